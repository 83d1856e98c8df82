// SPDX-License-Identifier: Apache-2.0
//! The timer of a worker: which period to set, so that nothing that is due waits for a later tick.
//!
//! The host's timer is periodic, and to set it costs a host call. So between ticks the period is only ever shortened: a timer
//! that fires early does no harm. At a tick the period becomes the right one.

use crate::time::Micros;

/// The period in force. Call [`arm`](Self::arm) in every callback that makes something due. If a request relied on a wake-up to
/// start the timer, it would wait for ever when that wake-up is lost.
#[derive(Debug, Default)]
pub struct Timer {
    /// In milliseconds; `None` while no timer runs.
    period: Option<u64>,
}

impl Timer {
    /// The period to set now, in milliseconds, so that the timer fires at `due` at the latest; `None` if the period in
    /// force is short enough.
    pub fn arm(&mut self, due: Option<Micros>, now: Micros) -> Option<u64> {
        let period = due.map(|due| millis(due, now))?;
        if self.period.is_some_and(|in_force| in_force <= period) {
            return None;
        }
        self.period = Some(period);
        self.period
    }

    /// The timer has fired: the period to set from now on, 0 for none; `None` if the period in force is the right one.
    pub fn fired(&mut self, due: Option<Micros>, now: Micros) -> Option<u64> {
        let period = due.map(|due| millis(due, now));
        if period == self.period {
            return None;
        }
        self.period = period;
        Some(period.unwrap_or(0))
    }

    /// The host did not set the period, so perhaps no timer runs.
    pub const fn lost(&mut self) {
        self.period = None;
    }
}

/// A period of 0 would switch the timer off.
fn millis(due: Micros, now: Micros) -> u64 {
    due.since(now).as_millis_ceil().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const fn at(millis: u64) -> Micros {
        Micros::from_millis(1_000_000 + millis)
    }

    /// A periodic timer like the host's.
    #[derive(Default)]
    struct Host {
        timer: Timer,
        fires: Option<(u64, u64)>,
        calls: usize,
    }

    impl Host {
        fn set(&mut self, period: Option<u64>, now: u64) {
            let Some(period) = period else { return };
            self.calls += 1;
            self.fires = (period > 0).then_some((now + period, period));
        }

        fn arm(&mut self, due: &[u64], now: u64) {
            let period = self.timer.arm(due.iter().min().map(|due| at(*due)), at(now));
            self.set(period, now);
        }
    }

    #[test]
    fn what_is_due_sooner_than_the_timer_in_force_shortens_it() {
        let mut timer = Timer::default();
        assert_eq!(timer.arm(None, at(0)), None);
        assert_eq!(timer.arm(Some(at(20_000)), at(0)), Some(20_000), "one request is held for 20 s");
        assert_eq!(timer.arm(Some(at(1_050)), at(1_000)), Some(50), "and another for 50 ms");
        assert_eq!(timer.arm(Some(at(1_060)), at(1_001)), None, "the timer fires before that");
        assert_eq!(timer.fired(Some(at(20_000)), at(1_050)), Some(18_950));
        assert_eq!(timer.fired(None, at(20_000)), Some(0), "nothing is due");
        assert_eq!(timer.fired(None, at(20_001)), None);
    }

    #[test]
    fn what_is_due_already_is_due_in_a_millisecond() {
        let mut timer = Timer::default();
        assert_eq!(timer.arm(Some(at(0)), at(5)), Some(1), "a period of 0 would be none");
        assert_eq!(timer.arm(Some(at(0)), at(6)), None);
    }

    #[test]
    fn a_timer_that_the_host_did_not_set_is_set_again() {
        let mut timer = Timer::default();
        assert_eq!(timer.arm(Some(at(5)), at(0)), Some(5));
        timer.lost();
        assert_eq!(timer.arm(Some(at(5)), at(0)), Some(5));
    }

    /// Whatever becomes due, and whenever: it is never later than its time, rounded up to the millisecond.
    #[test]
    fn nothing_is_late() {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| random.below(below);
        for _ in 0..200 {
            let (mut host, mut due) = (Host::default(), Vec::new());
            for now in 0..2_000 {
                if let Some((_, period)) = host.fires.filter(|(fires, _)| *fires <= now) {
                    due.retain(|due| *due > now);
                    host.fires = Some((now + period, period));
                    let period = host.timer.fired(due.iter().min().map(|due| at(*due)), at(now));
                    host.set(period, now);
                }
                if next(40) == 0 {
                    let span = [1, 5, 50, 700][usize::try_from(next(4)).unwrap_or(0)];
                    due.push(now + 1 + next(span));
                    host.arm(&due, now);
                }
                assert!(due.iter().all(|due| *due > now), "{due:?} at {now}");
            }
            assert!(host.calls < 400, "{} calls", host.calls);
        }
    }
}
