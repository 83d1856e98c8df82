// SPDX-License-Identifier: Apache-2.0
//! Short trials with a larger congestion window. They distinguish a queue from a distance.
//!
//! A round trip is long because the store has a queue, or because the store is farther away than it was. A few more tasks in
//! flight lengthen the round trip only if there is a queue. So while the [congestion window](super::congestion) hardly
//! grows, a trial adds up to a quarter to it, and one answer to a batch of the trial shows which of the two is the case.

use crate::time::Micros;

/// This many round trips pass before a trial. Each trial that finds a queue doubles it.
const FIRST_PAUSE: u32 = 4;

/// At most this many round trips pass between two trials.
const MAX_PAUSE: u32 = 64;

/// A trial that is under way.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The number of tasks in flight before, and their round trip.
    in_flight: usize,
    trip: Micros,
    /// The number of further tasks that may be in flight.
    more: usize,
    /// A batch that was sent before this uptime shows nothing.
    since: Micros,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// There is a queue. This many tasks were in flight before the trial.
    Queue(usize),
    /// There is no queue: the store is this far away.
    Distance(Micros),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Trials {
    pause: u32,
    /// The number of round trips of the pause that are over.
    passed: u32,
    running: Option<Trial>,
}

impl Trials {
    pub const fn new() -> Self {
        Self { pause: FIRST_PAUSE, passed: 0, running: None }
    }

    /// Ends the trial, and begins another pause.
    pub const fn stop(&mut self) {
        (self.passed, self.running) = (0, None);
    }

    /// One more round trip is over. Returns whether a trial is due.
    pub const fn is_due(&mut self) -> bool {
        self.passed = self.passed.saturating_add(1);
        self.running.is_none() && self.passed >= self.pause
    }

    /// Begins a trial: from now on `more` tasks than these may be in flight.
    pub const fn begin(&mut self, in_flight: usize, more: usize, trip: Micros, since: Micros) {
        self.running = Some(Trial { in_flight, trip, more, since });
    }

    /// Returns the result of the trial, if an answer shows it. That ends the trial. `took` is the round trip of the answered batch, and
    /// `tasks` is the number of tasks in flight when it was sent.
    pub fn result(&mut self, took: Micros, sent: Micros, tasks: usize) -> Option<Shown> {
        let Trial { in_flight, trip, more, since } = self.running?;
        if sent < since || tasks < in_flight.saturating_add(more.div_ceil(2)) {
            return None;
        }
        self.stop();
        let if_queue = trip.0.saturating_mul(tasks as u64).checked_div(in_flight as u64)?;
        if took.0 < trip.0.midpoint(if_queue) {
            return Some(Shown::Distance(took));
        }
        self.pause = self.pause.saturating_mul(2).min(MAX_PAUSE);
        Some(Shown::Queue(in_flight))
    }
}
