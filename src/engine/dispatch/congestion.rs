// SPDX-License-Identifier: Apache-2.0
//! The maximum number of tasks in flight: the congestion window (`cwnd`).
//!
//! The law is the gradient controller of Envoy's adaptive concurrency filter: the window is multiplied with the **target**, divided by the
//! round trip. Three things are as in Swift (Kumar et al., SIGCOMM 2020): the target is a delay that follows from what is promised, the
//! window shrinks once in each round trip, and it grows by a part of itself.
//!
//! The shortest round trip is the **distance**. The time of the deadline beyond it is the **slack**. The target is the distance and half of
//! the slack, so requests that wait for a place have the other half.
//!
//! | round trip | the congestion window |
//! |---|---|
//! | up to the distance and 1/16 of the slack | grows in each round trip by twice as much as in the last, until it doubles |
//! | up to the target | grows by a sixteenth each round trip |
//! | more | is multiplied with the target, divided by the round trip |
//!
//! One slow answer says little, so the fastest of the last two to four counts. A failure says nothing about delay.
//!
//! Envoy measures the distance anew from time to time, with a small window. Here a window that shrinks measures it: if fewer tasks in flight
//! do not shorten the round trips, there is no queue, and the store is farther away than before.

use super::batch::MAX_TASKS;
use crate::time::Micros;

/// After this time without an answer, a batch no longer delays the next. It is many round trips to a near store, and a fifth of
/// the usual deadline.
const SLOW: Micros = Micros::from_millis(10);

/// At most this many batches are in flight at a time. Each has its own connection.
pub(super) const MAX_BATCHES: usize = 16;

/// The first window: enough for a burst at a near store, and not too much for a far or slow one.
const FIRST: usize = 128;

/// The largest window.
const MAX_CWND: usize = MAX_BATCHES * MAX_TASKS;

/// In a round trip the window grows by a sixteenth, times two to the power of at most this.
const BOOST: u32 = 4;

/// This many of the last answers are remembered.
const TRIPS: usize = 8;

/// An answered batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub took: Micros,
    /// The uptime at which it was sent.
    pub sent: Micros,
    /// The number of tasks in flight when it was sent, including its own.
    pub in_flight: usize,
    /// The number of batches in flight now, including it.
    pub batches: usize,
}

/// The longest round trip since round trips became too long. With fewer tasks in flight it shows whether that was a queue.
#[derive(Clone, Copy, Debug)]
struct Longest {
    in_flight: usize,
    took: Micros,
    /// The shortest round trip of batches that were sent with fewer tasks in flight, and how many such batches there were.
    less: (Micros, u32),
}

/// The congestion window of the normal or the suspect slots. Times are the worker's uptime.
#[derive(Debug)]
pub(super) struct Congestion {
    /// The number of tasks that may be in flight.
    cwnd: usize,
    deadline: Micros,
    /// The shortest round trip since the store has moved.
    distance: Option<Micros>,
    /// The shortest round trip of all.
    shortest: Option<Micros>,
    /// The last answers, the youngest first.
    trips: [Option<Sample>; TRIPS],
    /// When the window last shrank. Batches that were sent before say nothing about it.
    shrunk: Micros,
    longest: Option<Longest>,
    /// Each round trip without queueing adds one, which doubles the growth, up to [`BOOST`].
    boost: u32,
    /// When the current round trip began.
    round: Micros,
}

impl Congestion {
    pub const fn new(deadline: Micros) -> Self {
        Self {
            cwnd: FIRST,
            deadline,
            distance: None,
            shortest: None,
            trips: [None; TRIPS],
            shrunk: Micros::ZERO,
            longest: None,
            boost: BOOST,
            round: Micros::ZERO,
        }
    }

    /// The number of tasks that may be in flight.
    pub const fn cwnd(&self) -> usize {
        self.cwnd
    }

    fn distance(&self) -> Micros {
        self.distance.unwrap_or_default()
    }

    fn slack(&self) -> Micros {
        self.deadline.since(self.distance())
    }

    /// The longest round trip that does not shrink the window.
    fn target(&self) -> Micros {
        self.distance().plus(Micros(self.slack().0 / 2))
    }

    /// The interval after a batch in which the next is not sent unless the answer comes. A distant store needs several batches in flight,
    /// evenly spread, because a request that waits long for its batch has too little of its deadline left.
    pub fn pace(&self) -> Micros {
        let spread = Micros(self.distance().0 / MAX_BATCHES as u64);
        spread.max(SLOW.min(Micros(self.slack().0 / 4)))
    }

    /// The interval before a batch that only repeats subjects of batches in flight. It waits for as long as recent answers were queued,
    /// and further requests for its subjects join its tasks. Otherwise each worker would have several commands for a hot subject in the
    /// queue of its shard. Neither a single slow answer nor a distant store delays it. Here all time beyond the shortest round trip ever
    /// is queueing, because a queue of other workers may stay.
    pub fn pace_of_repeats(&self) -> Micros {
        let lately = self.trips.iter().take(2).flatten().map(|trip| trip.took).min().unwrap_or_default();
        let queued = lately.since(self.shortest.unwrap_or_default());
        self.pace().max(Micros(queued.0 / 4 * 5).min(Micros(self.slack().0 / 8 * 5)))
    }

    /// The number of tasks that one batch may have when this many are in flight. If there are several batches at a time, each has its share
    /// of the window, so that the store is busy evenly. But half a window may be sent at once.
    pub fn batch(&self, in_flight: usize, batches_in_flight: usize) -> usize {
        // A long queue must become shorter, so it must not lead to more batches.
        let trip = self.trips[0].map_or(Micros::ZERO, |trip| trip.took).min(self.target());
        let batches = trip.0.checked_div(self.pace().0).unwrap_or(1).clamp(1, MAX_BATCHES as u64);
        let share = self.cwnd.div_ceil(usize::try_from(batches).unwrap_or(1));
        let free = self
            .cwnd
            .saturating_sub(in_flight)
            .div_ceil(MAX_BATCHES.saturating_sub(batches_in_flight).max(1));
        share.max(free).max((self.cwnd / 2).saturating_sub(in_flight)).min(MAX_TASKS)
    }

    /// The number of further tasks that can be answered in time, if `in_flight` are in flight and `free` more may be sent at once.
    pub fn may_wait(&self, in_flight: usize, free: usize) -> usize {
        let trips = self.trips.iter().flatten();
        let took = trips.clone().map(|trip| trip.took);
        let (Some(slowest), Some(fastest)) = (took.clone().max(), took.min()) else { return usize::MAX };
        let in_time = if fastest.since(self.distance()).0 > self.slack().0 / 8 {
            // The store is busy: it does the tasks in flight in a round trip.
            let jitter = Micros(slowest.since(fastest).0 / 2);
            let time = self.deadline.since(self.pace().plus(jitter));
            let (tasks, took) = trips.fold((0_usize, Micros::ZERO), |(tasks, took), trip| {
                (tasks.saturating_add(trip.in_flight), took.plus(trip.took))
            });
            // Tasks that fit into the window are sent at once. If there is little to do, few are in flight for that reason alone.
            scaled(tasks, time, took).saturating_sub(in_flight).max(free)
        } else {
            let rest = self.deadline.since(slowest.plus(self.pace()));
            free.saturating_add(scaled(self.cwnd, rest, fastest))
        };
        in_time.max(1)
    }

    /// A batch was answered.
    pub fn answered(&mut self, sample: Sample, at: Micros) {
        let Sample { took, sent, in_flight, batches } = sample;
        let shortest = |known: Option<Micros>| Some(known.map_or(took, |known| known.min(took)));
        (self.distance, self.shortest) = (shortest(self.distance), shortest(self.shortest));
        self.trips.rotate_right(1);
        self.trips[0] = Some(sample);
        let lately = self.trips.iter().take(batches.clamp(2, 4)).flatten();
        let known = lately.clone().count();
        let fastest = lately.min_by_key(|trip| trip.took).copied().unwrap_or(sample);
        let target = self.target();
        if fastest.took > target {
            self.boost = 0;
            if known > 1 && sent >= self.shrunk && !self.has_moved(in_flight, took) {
                // A window that is not used says nothing about itself, only about twice what was used.
                let used = self.cwnd.min(fastest.in_flight.saturating_mul(2));
                self.shrink(scaled(used, target, fastest.took), at);
            }
            return;
        }
        self.longest = None;
        let is_used = in_flight.saturating_mul(2) >= self.cwnd;
        if sent < self.shrunk || !is_used || took > target {
            return;
        }
        let is_calm = took.since(self.distance()).0 <= self.slack().0 / 16;
        if !is_calm {
            self.boost = 0;
        }
        if sent >= self.round {
            self.round = at;
            self.boost = self.boost.saturating_add(is_calm.into()).min(BOOST);
        }
        // The window grows from what was in flight a round trip ago, because that is known to be possible.
        let more = (in_flight >> BOOST.saturating_sub(self.boost)).max(1);
        self.cwnd = self.cwnd.max(in_flight.saturating_add(more)).min(MAX_CWND);
    }

    /// The window shrinks to this, unless it is smaller.
    fn shrink(&mut self, to: usize, at: Micros) {
        if to < self.cwnd {
            (self.cwnd, self.shrunk) = (to.max(1), at);
        }
    }

    /// True if the round trip is long although this worker has no queue there: fewer tasks in flight do not shorten it. Then the store is
    /// farther away, or other clients keep it busy.
    fn has_moved(&mut self, in_flight: usize, took: Micros) -> bool {
        let longest = self.longest.get_or_insert(Longest { in_flight, took, less: (Micros(u64::MAX), 0) });
        let is_less = in_flight.saturating_mul(4) <= longest.in_flight.saturating_mul(3);
        if !is_less && in_flight > 1 {
            if took > longest.took {
                *longest = Longest { in_flight, took, ..*longest };
            }
            return false;
        }
        longest.less = (longest.less.0.min(took), longest.less.1.saturating_add(1));
        let if_queue = longest.took.0.saturating_mul(in_flight as u64).checked_div(longest.in_flight as u64);
        let trip = longest.less.0;
        let moved = longest.less.1 >= 3
            && (in_flight == 1 || trip.0 > longest.took.0.midpoint(if_queue.unwrap_or(0)));
        if moved {
            self.cwnd = self.cwnd.max(longest.in_flight).min(MAX_CWND);
            (self.distance, self.longest, self.boost) = (Some(trip), None, BOOST);
        }
        moved
    }

    /// A batch was not answered within twice its deadline. This many tasks were in flight.
    pub fn unanswered(&mut self, in_flight: usize) {
        self.cwnd = self.cwnd.min(in_flight / 2).max(1);
        self.boost = BOOST;
    }
}

/// `tasks` × `part` / `whole`.
fn scaled(tasks: usize, part: Micros, whole: Micros) -> usize {
    let scaled = (tasks as u64).saturating_mul(part.0).checked_div(whole.0).unwrap_or(0);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
