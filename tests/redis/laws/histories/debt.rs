// SPDX-License-Identifier: Apache-2.0
//! Limits that go into debt: the Lua answers as the pure limits do, every answer is true, and a charge counts as if it had been
//! requests that were let through.

use weir::limit::MAX_DEBT;

use super::*;

/// The maximum debt of a limit as a multiple of its quota: mostly so small that the debt is reached.
fn times() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 4 => 1..=3u32, 1 => 4..=MAX_DEBT]
}

fn indebted(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = Limit> {
    (limit, times()).prop_filter_map("a debt that is in bounds", |(limit, times)| limit.indebted(times).ok())
}

/// The same limit under two configurations: mostly the same; with another debt, or other numbers; or another limit.
fn limits_of(built: fn() -> BoxedStrategy<Built>) -> BoxedStrategy<[Limit; 2]> {
    let any = move || indebted(valid(built()));
    let other = (any(), times()).prop_map(|(limit, times)| {
        let other = limit.clone().indebted(times).unwrap_or(limit.clone());
        [limit, other]
    });
    let small = indebted(small()).prop_map(|limit| [limit.clone(), limit]);
    prop_oneof![4 => any().prop_map(|limit| [limit.clone(), limit]), 2 => other, 1 => [any(), any()], 1 => small]
        .boxed()
}

fn any_of_them() -> BoxedStrategy<Built> {
    prop_oneof![fixed_window(), sliding_log(), sliding_window(), token_bucket(), leaky_bucket()].boxed()
}

/// Steps. A third of them are charges, up to many times the quota of a small limit.
fn step_of_charges() -> impl Strategy<Value = Step> {
    let units = prop_oneof![4 => 0..=30i64, 2 => 0..=3_000_000i64, 1 => 0..=i64::MAX];
    let charge = (units, 0..4usize).prop_map(|(units, ago)| Some(Act::Settle { units, ago }));
    (step_of_classes(), prop_oneof![2 => Just(None), 1 => charge])
        .prop_map(|(step, charge)| Step { act: charge.unwrap_or(step.act), ..step })
}

macro_rules! alone {
    ($($algorithm:ident),+) => {$(
        #[test]
        fn $algorithm() {
            let limits = limits_of(|| super::$algorithm().boxed()).prop_map(|limit| vec![limit]);
            holds(500, limits, step_of_charges());
        }
    )+};
}

mod each_reply_of_lua_equals_the_pure_limit_in_debt {
    use super::*;
    alone!(fixed_window, sliding_log, sliding_window, token_bucket, leaky_bucket);

    #[test]
    fn of_any_mix() {
        let limit = prop_oneof![
            3 => limits_of(any_of_them),
            1 => super::super::limits_of(any_limit),
        ];
        holds(1_500, prop::collection::vec(limit, 1..=4), step_of_charges());
    }

    #[test]
    fn where_the_clock_goes_back() {
        let span = prop_oneof![Just(1_000i64), Just(10_000), Just(7_777), Just(1), Just(0)];
        let passes = (span, -4..=6i64, -1..=1i64).prop_map(|(span, times, more)| span * times + more);
        let step = (step_of_charges(), passes).prop_map(|(step, passes)| Step { passes, ..step });
        let limit = indebted(small()).prop_map(|limit| [limit.clone(), limit]);
        holds(1_000, prop::collection::vec(limit, 1..=2), step);
    }
}

/// Small limits that count units.
fn small_indebted() -> impl Strategy<Value = Limit> {
    indebted(small().prop_filter("units", |limit| !matches!(limit, Limit::Concurrency(_))))
}

fn charges() -> impl Strategy<Value = Vec<(u64, Move)>> {
    let charge = (1..=30u64).prop_map(|units| (0, Move::Charge { units }));
    let moves = (moves(), prop::collection::vec(prop::option::weighted(0.3, charge), 40));
    moves.prop_map(|(moves, charges)| {
        std::iter::zip(moves, charges).flat_map(|(step, charge)| [Some(step), charge]).flatten().collect()
    })
}

/// Without refunds a limit has left exactly what it would have if each charge had been a request that was let through, and
/// with refunds never more. So no history grants more.
fn counts_charges(server: Option<&Redis>, cases: u32) {
    hold(cases, &(small_indebted(), charges()), |(limit, moves)| match server {
        None => conserves(&limit, &mut Pure(vec![limit.clone()], Subject::default()), &moves),
        Some(server) => conserves(&limit, &mut Store::new(server, vec![limit.clone()]), &moves),
    });
}

#[test]
fn a_charge_of_the_pure_limits_counts_as_a_request_that_was_let_through() {
    counts_charges(None, 6_000);
}

#[test]
fn a_charge_of_the_lua_counts_as_a_request_that_was_let_through() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    counts_charges(Some(&server), 400);
}

/// In debt no request is granted. A request is denied at every microsecond before the stated time, and granted at it. The limit is full
/// again at the stated time, and not before. And no charge exceeds the maximum debt.
#[test]
fn answers_are_true_in_debt() {
    hold(3_000, &(small_indebted(), charges()), |(limit, moves)| {
        let limits = std::slice::from_ref(&limit);
        let overdraft = limit.counts()[2];
        let lowest = -((limit.quota() * u64::from(limit.debt()) + overdraft) as i64);
        let (mut subject, mut now) = (Subject::default(), START);
        for (passes, step) in moves {
            now = now.plus(Micros(passes * pace(&limit)));
            match step {
                Move::Check { requests, cost } => {
                    subject.check(limits, None, now, Ask::new(requests, cost));
                }
                Move::Charge { units } => {
                    let receipt = subject.check(limits, None, now, NONE);
                    let before = receipt.limits[0].remaining;
                    let after = subject.settle(limits, None, now, units as i64, &receipt).limits[0].remaining;
                    prop_assert_eq!(after, (before - units as i64).max(lowest).min(before));
                }
                Move::Refund { .. } => continue,
            }
            let is = subject.check(limits, None, now, NONE).limits[0];
            prop_assert!(is.remaining >= lowest);
            let at = |after: Micros, ask| subject.clone().check(limits, None, now.plus(after), ask);
            for cost in [1, 2, limit.quota()] {
                let one = Ask::new(1, cost);
                let answer = at(Micros::ZERO, one);
                prop_assert!(is.remaining > 0 || answer.granted == 0, "granted in debt");
                let RetryAfter::After(span) = answer.retry_after() else { continue };
                if answer.granted == 0 {
                    prop_assert_eq!(at(Micros(span.0 - 1), one).granted, 0, "too early, of {}", span);
                    prop_assert_eq!(at(Micros(span.0 / 2), one).granted, 0, "half of {}", span);
                    prop_assert_eq!(at(span, one).granted, 1, "after {}", span);
                }
            }
            let full = at(is.reset, NONE).limits[0];
            prop_assert_eq!((full.remaining, full.reset), (limit.quota() as i64, Micros::ZERO));
            if let Some(before) = is.reset.0.checked_sub(1) {
                prop_assert!(at(Micros(before), NONE).limits[0].reset > Micros::ZERO);
            }
        }
        Ok(())
    });
}

/// A limit that no charge has taken into debt answers as one that cannot go there.
#[test]
fn without_charges_it_answers_as_a_limit_without_debt() {
    hold(2_000, &(small_indebted(), moves()), |(limit, moves)| {
        let plain = limit.clone().indebted(0).unwrap();
        let mut both = [limit, plain].map(|limit| (limit, Subject::default()));
        let (mut now, mut receipts) = (START, Vec::new());
        for (passes, step) in moves {
            now = now.plus(Micros(passes * pace(&both[0].0)));
            let answers = both.each_mut().map(|(limit, subject)| {
                let limits = std::slice::from_ref(&*limit);
                match step {
                    Move::Refund { units, ago } => {
                        let receipt: Option<&Outcome> = receipts.iter().rev().nth(ago);
                        receipt
                            .map(|receipt| subject.settle(limits, None, now, -(units.min(9) as i64), receipt))
                    }
                    Move::Check { requests, cost } => {
                        Some(subject.check(limits, None, now, Ask::new(requests, cost)))
                    }
                    Move::Charge { .. } => None,
                }
            });
            prop_assert_eq!(&answers[0], &answers[1]);
            let [answer, _] = answers;
            receipts.extend(answer.filter(|answer| answer.granted > 0));
        }
        Ok(())
    });
}

/// A clock that goes back forgives no debt: of two subjects with the same charges, the one whose clock goes back never has more
/// left. For limits whose state is a moment, and which flow in real time.
#[test]
fn a_clock_that_goes_back_forgives_no_debt() {
    let back = prop_oneof![6 => Just(0u64), 1 => 1..=3u64, 1 => 0..=9_000u64];
    let moment = small_indebted().prop_filter("a moment", |limit| match limit {
        Limit::TokenBucket(of) => of.how() == Refill::Continuous,
        Limit::LeakyBucket(_) | Limit::SlidingLog(_) => true,
        _ => false,
    });
    let histories = (moment, charges(), prop::collection::vec(back, 80));
    hold(3_000, &histories, |(limit, moves, backs)| {
        let limits = std::slice::from_ref(&limit);
        let [mut skewed, mut even] = [Subject::default(), Subject::default()];
        let (mut real, mut behind) = (START, 0);
        for ((passes, step), back) in std::iter::zip(moves, backs) {
            (real, behind) = (real.plus(Micros(passes)), behind + back);
            let now = Micros(real.0 - behind);
            match step {
                Move::Check { requests, cost } => {
                    let granted = skewed.check(limits, None, now, Ask::new(requests, cost)).granted;
                    prop_assert_eq!(even.check(limits, None, real, Ask::new(granted, cost)).granted, granted);
                }
                Move::Charge { units } => {
                    let receipt = skewed.check(limits, None, now, NONE);
                    // No more than it takes whole: a log forgets what it was not charged.
                    let debt = limit.quota() * u64::from(limit.debt());
                    let room = receipt.limits[0].remaining.saturating_add_unsigned(debt);
                    let units = units.min(u64::try_from(room).unwrap_or(0));
                    skewed.settle(limits, None, now, units as i64, &receipt);
                    let receipt = even.check(limits, None, real, NONE);
                    even.settle(limits, None, real, units as i64, &receipt);
                }
                Move::Refund { .. } => continue,
            }
            let [is, most] = [(&mut skewed, now), (&mut even, real)]
                .map(|(subject, now)| subject.check(limits, None, now, NONE).limits[0].remaining);
            prop_assert!(is <= most, "{} left, {} where the clock went evenly", is, most);
        }
        Ok(())
    });
}
