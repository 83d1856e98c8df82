// SPDX-License-Identifier: Apache-2.0
//! The clocks of one worker. The host has one clock. An operator or NTP may set it back, and it runs on while the worker is
//! busy. Two others are derived from it:
//!
//! - **Uptime** never goes back. Pauses, held requests and round trips are measured on it.
//! - **Loop time** advances with the ticks of the worker's event loop. Deadlines are measured on it. A worker that was busy for
//!   longer than a deadline has the answers in its sockets, but needs some turns of its loop to read them. On a wall clock, the
//!   store would seem to have failed. On an idle loop, loop time is a wall clock, also when ticks are late.

use crate::time::Micros;

/// The interval at which loop time advances.
pub(super) const TICK: Micros = Micros::from_millis(5);

/// The maximum advance of loop time from one tick to the next.
pub(super) const STEP: Micros = Micros::from_millis(10);

/// While anything is due, the host calls the engine at least this often. If the host's clock is set back between two calls, uptime
/// does not count the time between them, and what is due is late by that time.
pub(super) const LOOK: Micros = Micros::from_secs(1);

/// One moment, on all clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The host's time.
    pub host: Micros,
    /// The host's time, as if it had never been set back.
    pub uptime: Micros,
    /// The time that deadlines are measured on.
    pub loop_time: Micros,
}

impl Now {
    /// The uptime since an earlier moment, but never far from the loop time since then, which does not count a busy worker.
    pub(super) fn since(self, earlier: Self) -> Micros {
        let ticks = self.loop_time.since(earlier.loop_time);
        self.uptime.since(earlier.uptime).max(ticks.since(STEP)).min(ticks.plus(TICK))
    }

    /// Returns how long the store took, if its answer is read now. A busy worker reads an answer late, by up to a turn of its loop. That
    /// turn does not count: otherwise the worker would count its own delay as the store's.
    pub(super) fn answered_after(self, sent: Self) -> Micros {
        let (took, ticks) = (self.since(sent), self.loop_time.since(sent.loop_time));
        let is_busy = self.uptime.since(sent.uptime) > ticks.plus(TICK);
        if is_busy { took.min(ticks.since(TICK).max(TICK)) } else { took }
    }
}

/// Makes a [`Now`] of the host's time.
#[derive(Debug, Default)]
pub struct Clock {
    latest: Now,
    /// The host's time at the last tick.
    ticked: Micros,
}

impl Clock {
    /// The moment at which the engine was last called.
    #[must_use]
    pub const fn latest(&self) -> Now {
        self.latest
    }

    /// The uptime at this time of the host's clock.
    pub(super) const fn uptime(&self, host: Micros) -> Micros {
        self.latest.uptime.plus(host.since(self.latest.host))
    }

    /// The engine is called at this time of the host's clock.
    pub(super) const fn at(&mut self, host: Micros) -> Now {
        self.latest = Now { host, uptime: self.uptime(host), ..self.latest };
        self.latest
    }

    /// The worker's event loop ticks at this time of the host's clock.
    pub fn tick(&mut self, host: Micros) -> Now {
        let step = host.since(self.ticked).min(STEP);
        self.ticked = host;
        self.latest.loop_time = self.latest.loop_time.plus(step);
        self.at(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_of_a_busy_worker_is_not_the_stores() {
        let rows = [
            ("an idle loop", 12, 10, 12),
            ("a tick that is as late as ticks may be", 15, 10, 15),
            ("a busy turn", 16, 10, 5),
            ("a longer one", 900, 30, 25),
            ("a busy turn at once", 900, 0, 5),
        ];
        for (name, uptime, ticks, took) in rows {
            let [uptime, loop_time] = [uptime, ticks].map(Micros::from_millis);
            let now = Now { uptime, loop_time, host: Micros::ZERO };
            assert_eq!(now.answered_after(Now::default()), Micros::from_millis(took), "{name}");
        }
    }
}
