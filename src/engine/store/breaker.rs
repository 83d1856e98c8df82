// SPDX-License-Identifier: Apache-2.0
//! The circuit breaker. It stops asking a store that does not answer, and finds out with a single request when it answers again.
//!
//! ```text
//!     failures in a row, or half of all       the pause is over
//!  Closed ────────────────────▶ Open ─────────────────────────────▶ Probing
//!    ▲                           ▲  no request waits                   │  one request waits, the others do not
//!    │                           ├───── the probe failed: twice the pause
//!    │                           ├───── the probe was lost: no pause is left
//!    └────────────────────────────────────── the probe was answered ───┘
//! ```
//!
//! A waiting request or a batch in flight always carries the probe. Both end in bounded time, whatever the store and the
//! clients do. If the carrier ends and the breaker has learned nothing, the next request is the probe. So no state waits for an
//! event that may never come.
//!
//! Times are the worker's uptime, which never goes back.

use crate::engine::{BatchId, StreamId};
use crate::random::Random;
use crate::time::Micros;

/// This many failures in a row open the breaker.
const IN_A_ROW: u32 = 3;

/// This many failures among the last 16 outcomes open it too, because a store that fails every other time is of no use either.
const IN_ALL: u32 = 8;

/// The last 16 outcomes; the newest is the lowest bit, and a failure is a 1.
type History = u16;

/// The first pause. Each probe that fails doubles it, up to [`LONGEST_PAUSE`].
pub(super) const SHORTEST_PAUSE: Micros = Micros::from_millis(100);

/// The longest pause. A pause may be a quarter longer. With that, the deadline of a probe that failed just before, and the
/// answer to the next probe, a store that recovers is in use again within a second.
const LONGEST_PAUSE: Micros = Micros::from_millis(400);

/// The request or the batch that carries a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A request that waits for its batch.
    Request(StreamId),
    /// A batch in flight.
    Batch(BatchId),
}

/// The state of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { history: History },
    Open { until: Micros, pause: Micros },
    Probing { carrier: Carrier, pause: Micros },
}

/// One store's breaker.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// The time at which it opened, unless it is closed.
    pub opened: Micros,
    /// Random. Spreads the probes of workers that lost the store at the same moment.
    jitter: Random,
}

impl Breaker {
    /// The time `span` after its pause ends, if no request asks until then.
    pub const fn unasked_at(&self, span: Micros) -> Option<Micros> {
        match self.state {
            State::Open { until, .. } => Some(until.plus(span)),
            State::Closed { .. } | State::Probing { .. } => None,
        }
    }

    pub const fn new(seed: u64) -> Self {
        Self { state: State::Closed { history: 0 }, opened: Micros::ZERO, jitter: Random::new(seed) }
    }

    /// True if a request may wait for the store now. If the breaker is not closed, that request is the probe. Changes nothing.
    pub fn admits(&self, now: Micros) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until, .. } => until <= now,
            State::Probing { .. } => false,
        }
    }

    /// A request that was admitted waits, or a batch is sent. It is the probe, if one is due.
    pub fn probe(&mut self, carrier: Carrier, now: Micros) {
        if let State::Open { until, pause } = self.state
            && until <= now
        {
            self.state = State::Probing { carrier, pause };
        }
    }

    /// True if anything may be sent: a probe, or everything. While a probe is in flight nothing follows it.
    pub fn sends(&self, now: Micros) -> bool {
        match self.state {
            State::Closed { .. } | State::Probing { carrier: Carrier::Request(_), .. } => true,
            State::Probing { carrier: Carrier::Batch(_), .. } => false,
            State::Open { until, .. } => until <= now,
        }
    }

    /// Something else carries the probe from now on.
    pub fn hand_over(&mut self, from: Carrier, to: Carrier) {
        if let State::Probing { carrier, .. } = &mut self.state
            && *carrier == from
        {
            *carrier = to;
        }
    }

    /// This carrier has ended. If it carried the probe, and the breaker has learned nothing, the next request is the probe.
    pub fn free(&mut self, by: Carrier, now: Micros) {
        if let State::Probing { carrier, pause } = self.state
            && carrier == by
        {
            self.state = State::Open { until: now, pause };
        }
    }

    /// The store gave a usable answer in time.
    pub const fn answered(&mut self) {
        let history = match self.state {
            State::Closed { history } => history << 1,
            State::Open { .. } | State::Probing { .. } => 0,
        };
        self.state = State::Closed { history };
    }

    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// True if it remembers no failure.
    pub const fn is_healthy(&self) -> bool {
        matches!(self.state, State::Closed { history: 0 })
    }

    /// True if the last answer was unusable, or there was none since the breaker opened.
    pub const fn is_suspect(&self) -> bool {
        !matches!(self.state, State::Closed { history } if history & 1 == 0)
    }

    /// This batch got no usable answer. Returns whether that opened the breaker. While there is a probe, only its own batch
    /// counts: batches that were sent before it say nothing new.
    pub fn failed(&mut self, by: BatchId, now: Micros) -> bool {
        let pause = match self.state {
            State::Closed { history }
                if history.trailing_ones() < IN_A_ROW.wrapping_sub(1)
                    && history.count_ones() < IN_ALL.wrapping_sub(1) =>
            {
                self.state = State::Closed { history: history << 1 | 1 };
                return false;
            }
            State::Closed { .. } => {
                self.opened = now;
                SHORTEST_PAUSE
            }
            State::Probing { carrier, pause } if carrier == Carrier::Batch(by) => {
                Micros(pause.0.saturating_mul(2)).min(LONGEST_PAUSE)
            }
            State::Probing { .. } | State::Open { .. } => return false,
        };
        // Up to a quarter longer.
        let more = self.jitter.below(pause.0 / 4);
        self.state = State::Open { until: now.plus(pause).plus(Micros(more)), pause };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Carrier = Carrier::Request(1);

    /// A request carries the probe, then this batch, which fails.
    fn probe_fails(breaker: &mut Breaker, now: Micros) -> bool {
        breaker.probe(REQUEST, now);
        breaker.hand_over(REQUEST, Carrier::Batch(9));
        breaker.failed(9, now)
    }

    #[test]
    fn opens_after_failures_in_a_row_and_probes_one_by_one() {
        let mut breaker = Breaker::new(7);
        let mut now = Micros::from_secs(1);
        assert!(!breaker.failed(1, now) && !breaker.failed(2, now));
        breaker.answered();
        assert!(
            !breaker.failed(3, now) && !breaker.failed(4, now) && breaker.admits(now) && breaker.sends(now)
        );
        assert!(breaker.failed(5, now));
        for expected in [100, 200, 400, 400] {
            assert!(!breaker.admits(now) && !breaker.sends(now), "{expected}");
            now = now.plus(Micros::from_millis(expected).since(Micros(1)));
            assert!(!breaker.admits(now), "{expected}: not before the pause is over");
            now = now.plus(Micros::from_millis(expected / 4)).plus(Micros(1));
            assert!(breaker.admits(now) && breaker.admits(now), "{expected}: asking changes nothing");
            breaker.probe(REQUEST, now);
            assert!(!breaker.admits(now) && breaker.sends(now), "{expected}: one probe");
            assert!(!breaker.failed(8, now), "{expected}: an older batch is not the probe");
            assert!(probe_fails(&mut breaker, now), "{expected}");
        }
        breaker.answered();
        assert!(breaker.admits(now) && breaker.sends(now));
    }

    #[test]
    fn opens_when_half_of_all_fail() {
        let now = Micros::from_secs(1);
        for (good, bad, opens_at) in [(1, 1, Some(8)), (2, 2, Some(8)), (2, 1, None), (15, 1, None)] {
            let mut breaker = Breaker::new(7);
            let opened = (0..100).find(|_| {
                (0..good).for_each(|_| breaker.answered());
                (0..bad).any(|_| breaker.failed(1, now))
            });
            let failures = opened.map(|rounds| rounds * bad + bad);
            assert_eq!(failures, opens_at, "{good} good, {bad} bad");
        }
    }

    #[test]
    fn a_lost_probe_is_free_at_once() {
        let mut breaker = Breaker::new(7);
        let now = Micros::from_secs(1);
        for _ in 0..IN_A_ROW {
            breaker.failed(1, now);
        }
        let later = now.plus(Micros::from_secs(1));
        for end in [REQUEST, Carrier::Batch(9)] {
            breaker.probe(REQUEST, later);
            breaker.hand_over(REQUEST, end);
            assert!(!breaker.admits(later), "{end:?}");
            breaker.free(Carrier::Batch(8), later);
            assert!(!breaker.admits(later), "{end:?}: another's end is not its end");
            breaker.free(end, later);
            assert!(breaker.admits(later), "{end:?}");
        }
    }

    /// Workers that lost the store at the same moment do not ask it again at the same moment.
    #[test]
    fn probes_are_spread_over_a_quarter_of_the_pause() {
        let begun = Micros::from_secs(1);
        let open = |seed: u64| {
            let mut breaker = Breaker::new(seed);
            let opened = (0..IN_A_ROW).filter(|_| breaker.failed(1, begun)).count();
            assert_eq!(opened, 1);
            breaker
        };
        let due = |breaker: &Breaker| {
            let State::Open { until, .. } = breaker.state else { panic!("it is open: {breaker:?}") };
            until
        };
        let workers = (1..=256_u64).map(|worker| {
            let breaker = open(worker.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            due(&breaker).since(begun)
        });
        let mut breaker = open(7);
        let mut probe = || {
            let now = due(&breaker);
            assert!(probe_fails(&mut breaker, now));
            due(&breaker).since(now)
        };
        probe();
        let times = (0..256).map(|_| probe());
        let spread = |row: &str, pauses: Vec<Micros>, shortest: Micros| {
            let more: Vec<u64> = pauses.iter().map(|pause| pause.0 - shortest.0).collect();
            let different: std::collections::HashSet<_> = more.iter().collect();
            assert!(different.len() > 200, "{row}: {} of {} differ", different.len(), more.len());
            for quarter in 0..4 {
                let count = more.iter().filter(|more| **more * 16 / shortest.0 == quarter).count();
                assert!((32..=96).contains(&count), "{row}: {count} of {} in quarter {quarter}", more.len());
            }
        };
        spread("workers", workers.collect(), SHORTEST_PAUSE);
        spread("probes of one worker", times.collect(), LONGEST_PAUSE);
    }
}
