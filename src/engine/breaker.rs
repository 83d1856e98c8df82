//! The breaker: stops asking a store that does not answer, and finds out with one request when it does again.
//!
//! ```text
//!     failures in a row, or half of all       the pause is over
//!  Closed ────────────────────▶ Open ─────────────────────────────▶ Probing
//!    ▲                           ▲  nobody waits                       │  one request waits, the others do not
//!    │                           └────────── it failed: twice the pause┤
//!    └──────────────────────────────────────────────── it was answered ┘
//! ```

use super::flights::Lane;
use crate::policy::key;
use crate::time::Micros;

/// So many failures in a row open it,…
const IN_A_ROW: u32 = 3;

/// …and so many among those remembered: a store that fails every other time is no store either.
const IN_ALL: u32 = 8;

/// The last 16 outcomes, the youngest lowest; a failure is a 1.
type History = u16;

/// The first pause; each probe that fails doubles it, up to [`LONGEST`].
const SHORTEST: Micros = Micros::from_millis(100);

/// The longest pause: a store that returns is back in use after this and a probe.
const LONGEST: Micros = Micros::from_millis(800);

/// A probe whose client left is never answered; another one may go after this long.
const PROBE: Micros = Micros::from_millis(1_000);

/// Whether the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { history: History },
    Open { until: Micros, pause: Micros },
    Probing { since: Micros, pause: Micros },
}

/// One store's breaker.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Spreads the probes of workers that lost the store at the same moment.
    jitter: u64,
}

impl Breaker {
    pub const fn new(seed: u64) -> Self {
        Self { state: State::Closed { history: 0 }, jitter: seed }
    }

    /// Whether a request may wait for the store. The first one to ask after a pause is the probe.
    pub fn admits(&mut self, now: Micros) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until, pause } if until <= now || pause.plus(LONGEST) < until.since(now) => {
                self.state = State::Probing { since: now, pause };
                true
            }
            State::Probing { since, pause } if now.since(since) >= PROBE || now < since => {
                self.state = State::Probing { since: now, pause };
                true
            }
            State::Open { .. } | State::Probing { .. } => false,
        }
    }

    /// Whether anything may be sent: a probe, or everything.
    pub const fn sends(&self) -> bool {
        !matches!(self.state, State::Open { .. })
    }

    /// The store gave a usable answer in time.
    pub const fn answered(&mut self) {
        let history = match self.state {
            State::Closed { history } => history << 1,
            State::Open { .. } | State::Probing { .. } => 0,
        };
        self.state = State::Closed { history };
    }

    /// Whether all that is remembered went well.
    const fn is_whole(&self) -> bool {
        matches!(self.state, State::Closed { history: 0 })
    }

    /// Whether the last answer was of no use, or there is none since.
    const fn is_doubtful(&self) -> bool {
        !matches!(self.state, State::Closed { history } if history & 1 == 0)
    }

    /// A batch got no usable answer at all. Whether that opened the breaker.
    pub fn failed(&mut self, now: Micros) -> bool {
        let pause = match self.state {
            State::Closed { history }
                if history.trailing_ones() < IN_A_ROW.wrapping_sub(1)
                    && history.count_ones() < IN_ALL.wrapping_sub(1) =>
            {
                self.state = State::Closed { history: history << 1 | 1 };
                return false;
            }
            State::Closed { .. } => SHORTEST,
            State::Probing { pause, .. } => Micros(pause.0.saturating_mul(2)).min(LONGEST),
            State::Open { .. } => return false,
        };
        // Up to a quarter more; xorshift (Marsaglia 2003) is random enough for that.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let more = self.jitter.checked_rem(pause.0 / 4).unwrap_or(0);
        self.state = State::Open { until: now.plus(pause).plus(Micros(more)), pause };
        true
    }
}

/// The breakers of a store: one for all of it, and one for each part of its slots that fails by itself. A shard of a
/// cluster that is gone answers with errors, while the others answer.
#[derive(Debug)]
pub(super) struct Breakers {
    store: Breaker,
    /// By the slot's first six bits; those that are missing have nothing to remember.
    parts: Vec<(u16, Breaker)>,
    seed: u64,
}

impl Breakers {
    pub const fn new(seed: u64) -> Self {
        Self { store: Breaker::new(seed), parts: Vec::new(), seed }
    }

    /// Whether a request for the subject of this tag may wait for the store.
    pub fn admits(&mut self, tag: &[u8], now: Micros) -> bool {
        let part = self.place(tag).and_then(|place| self.parts.get_mut(place));
        part.is_none_or(|(_, part)| part.admits(now)) && self.store.admits(now)
    }

    /// Where in `parts` that of this tag is.
    fn place(&self, tag: &[u8]) -> Option<usize> {
        if self.parts.is_empty() {
            return None;
        }
        let part = part(tag);
        self.parts.iter().position(|(other, _)| *other == part)
    }

    /// Whether anything may be sent.
    pub const fn sends(&self) -> bool {
        self.store.sends()
    }

    /// The store answered this command with something usable.
    pub fn answered(&mut self, tag: &[u8]) {
        let Some(place) = self.place(tag) else { return };
        if let Some((_, part)) = self.parts.get_mut(place) {
            part.answered();
            if part.is_whole() {
                self.parts.swap_remove(place);
            }
        }
    }

    /// Whether there are doubtful slots at all.
    pub fn doubt(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.is_doubtful())
    }

    /// The lane in which to ask about the subject of this tag.
    pub fn lane(&self, tag: &[u8]) -> Lane {
        let part = self.place(tag).and_then(|place| self.parts.get(place));
        if part.is_some_and(|(_, part)| part.is_doubtful()) { Lane::Doubtful } else { Lane::Main }
    }

    /// The store answered this command with an error. Whether that opened a breaker.
    pub fn refused(&mut self, tag: &[u8], now: Micros) -> bool {
        if self.place(tag).is_none() {
            let part = part(tag);
            self.parts.push((part, Breaker::new(self.seed.wrapping_add(u64::from(part)) | 1)));
        }
        let part = self.place(tag).and_then(|place| self.parts.get_mut(place));
        part.is_some_and(|(_, part)| part.failed(now))
    }

    /// The store answered a batch in time.
    pub fn store_answered(&mut self) {
        self.store.answered();
    }

    /// Whether nothing of the store fails.
    pub fn all_closed(&self) -> bool {
        self.parts.is_empty() && self.store.is_whole()
    }

    /// A batch got no answer at all. Whether that opened the breaker.
    pub fn store_failed(&mut self, now: Micros) -> bool {
        self.store.failed(now)
    }
}

fn part(tag: &[u8]) -> u16 {
    key::slot(tag) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_failures_in_a_row_and_probes_one_by_one() {
        let mut breaker = Breaker::new(7);
        let mut now = Micros::from_secs(1);
        assert!(!breaker.failed(now) && !breaker.failed(now));
        breaker.answered();
        assert!(!breaker.failed(now) && !breaker.failed(now) && breaker.admits(now) && breaker.sends());
        for expected in [100, 200, 400, 800, 800] {
            assert!(breaker.failed(now), "{expected}");
            assert!(!breaker.admits(now) && !breaker.sends(), "{expected}");
            now = now.plus(Micros::from_millis(expected).since(Micros(1)));
            assert!(!breaker.admits(now), "{expected}: not before the pause is over");
            now = now.plus(Micros::from_millis(expected / 4)).plus(Micros(1));
            assert_eq!([breaker.admits(now), breaker.admits(now)], [true, false], "{expected}: one probe");
        }
        breaker.answered();
        assert!(breaker.admits(now) && breaker.sends());
    }

    #[test]
    fn opens_when_half_of_all_fail() {
        let now = Micros::from_secs(1);
        for (good, bad, opens_at) in [(1, 1, Some(8)), (2, 2, Some(8)), (2, 1, None), (15, 1, None)] {
            let mut breaker = Breaker::new(7);
            let opened = (0..100).find(|_| {
                (0..good).for_each(|_| breaker.answered());
                (0..bad).any(|_| breaker.failed(now))
            });
            let failures = opened.map(|rounds| rounds * bad + bad);
            assert_eq!(failures, opens_at, "{good} good, {bad} bad");
        }
    }

    #[test]
    fn a_lost_probe_is_replaced() {
        let mut breaker = Breaker::new(7);
        let now = Micros::from_secs(1);
        for _ in 0..IN_A_ROW {
            breaker.failed(now);
        }
        let later = now.plus(Micros::from_secs(1));
        assert_eq!([breaker.admits(later), breaker.admits(later)], [true, false]);
        assert!(breaker.admits(later.plus(PROBE)));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_keep_it_open() {
        let mut breaker = Breaker::new(7);
        for _ in 0..IN_A_ROW {
            breaker.failed(Micros::from_secs(1_000_000));
        }
        assert!(breaker.admits(Micros::from_secs(1)));
    }
}
