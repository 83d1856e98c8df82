// SPDX-License-Identifier: Apache-2.0
//! One subject under limits of several sizes: at several scales, with counts of its own, in another tier, or under an old and a new
//! configuration at once. A denied request changes no state, whatever limit denies it; and no order of sizes lets more through than
//! the largest size alone.

use super::*;

/// True if the state is a time. Sizes of one rate, or of one time to fill up, then interpret it alike; others each count in their own
/// measure.
fn is_time(limit: &Limit) -> bool {
    match limit {
        Limit::TokenBucket(of) => of.how() == Refill::Continuous,
        Limit::LeakyBucket(_) => true,
        _ => false,
    }
}

/// A request under one of two configurations, some time after the one before.
type Asked = (u64, usize, u32, u64, u8);

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let passes = prop_oneof![4 => Just(0u64), 3 => 0..=500u64, 3 => 0..=5_000u64, 1 => 0..=50_000u64];
    let cost = prop_oneof![4 => 0..=3u64, 1 => 4..=2_000u64];
    let kept = prop_oneof![4 => Just(0), 1 => kept_percent()];
    prop::collection::vec((passes, 0..2usize, 0..=9u32, cost, kept), 1..60)
}

/// The same, under one of three.
fn asked_of_three() -> impl Strategy<Value = Vec<Asked>> {
    (asked(), prop::collection::vec(0..3usize, 60)).prop_map(|(mut asked, which)| {
        asked.iter_mut().zip(which).for_each(|(asked, which)| asked.1 = which);
        asked
    })
}

/// A limit at three sizes of the same rate, the first the largest.
fn three_sizes() -> BoxedStrategy<[Limit; 3]> {
    let sized = (small().boxed(), [1..=60u64, 1..=60, 1..=60]).prop_map(|(limit, mut bursts)| {
        bursts.sort_unstable_by(|a, b| b.cmp(a));
        let [rate, _, overdraft] = limit.counts();
        let of = |burst: u64| match is_time(&limit) {
            true => limit.with_counts([rate, burst, overdraft]),
            false => limit.with_counts([burst, burst, overdraft]),
        };
        let [one, two, three] = bursts.map(of);
        Ok::<_, Invalid>([one?, two?, three?])
    });
    sized.prop_filter_map("in bounds", Result::ok).boxed()
}

/// True if both sizes keep their state in one form. The configuration refuses a `scale` that changes the form.
fn are_of_one_form(pair: &[Limit; 2]) -> bool {
    let is_marked = |limit: &Limit| matches!(limit, Limit::FixedWindow(of) if of.is_marked());
    is_marked(&pair[0]) == is_marked(&pair[1])
}

/// A limit and the same limit at another size.
fn resized() -> BoxedStrategy<[Limit; 2]> {
    let scale = prop_oneof![Just(2u64), Just(5), Just(63), Just(65), Just(1_000)];
    let scaled =
        (small().boxed(), scale).prop_map(|(limit, scale)| limit.scaled(scale).map(|large| [large, limit]));
    let counts = (small().boxed(), 1..=40u64, 1..=40u64, 0..=9u64).prop_map(|(limit, one, two, three)| {
        limit.with_counts([one, two, three]).map(|other| [limit, other])
    });
    prop_oneof![
        scaled.prop_filter_map("in bounds", Result::ok),
        counts.prop_filter_map("in bounds", Result::ok)
    ]
    .prop_filter("one form of state", are_of_one_form)
    .boxed()
}

/// The same, or a limit of the same algorithm with other windows, intervals and delays too.
fn reconfigured() -> BoxedStrategy<[Limit; 2]> {
    let alike = |pair: &[Limit; 2]| std::mem::discriminant(&pair[0]) == std::mem::discriminant(&pair[1]);
    let other = [small().boxed(), small().boxed()].prop_filter("one algorithm", alike);
    let ttl = |pair: &[Limit; 2]| match pair {
        // A permit that ends later than any of the new ttl is a sign of a clock that went back.
        [Limit::Concurrency(one), Limit::Concurrency(other)] => one.ttl() == other.ttl(),
        _ => true,
    };
    let resized = (resized(), any::<bool>())
        .prop_map(|([one, other], turned)| if turned { [other, one] } else { [one, other] });
    prop_oneof![2 => resized, 1 => other.prop_filter("one ttl", ttl)].boxed()
}

/// The history of a subject under the first of two limits. Denials by the other one in between change none of its answers.
fn denials_leave_no_trace(
    limits: &[Limit; 2],
    check: &mut dyn FnMut(usize, Micros, Ask) -> Outcome,
    asked: &[Asked],
) -> Result<(), TestCaseError> {
    // It has seen nothing but what was granted.
    let (mut lean, mut full, mut now) = (Subject::default(), Subject::default(), START);
    for &(passes, which, requests, cost, kept_percent) in asked {
        let limit = &limits[which];
        now = now.plus(Micros(passes * pace(limit)));
        let ask = Ask { kept_percent, ..Ask::new(requests, cost) };
        let of = |subject: &mut Subject| subject.check(std::slice::from_ref(limit), None, now, ask);
        let mut next = full.clone();
        let units = u64::from(of(&mut next).granted) * limit.cost(ask);
        if which == 1 && units > 0 {
            continue;
        }
        full = next;
        let answer = check(which, now, ask);
        if which == 1 {
            prop_assert_eq!(u64::from(answer.granted) * limit.cost(ask), 0);
            continue;
        }
        let mut next = lean.clone();
        prop_assert_eq!(&answer, &of(&mut next), "{:?}", ask);
        if units > 0 {
            lean = next;
        }
    }
    Ok(())
}

fn traceless(server: Option<&Redis>, cases: u32) {
    hold(cases, &(reconfigured(), asked()), |(limits, asked)| {
        let plans = limits.each_ref().map(|limit| plan_with(vec![limit.clone()], several()));
        match server {
            None => {
                let mut subject = Subject::default();
                let mut check = |which: usize, now, ask| subject.check(plans[which].limits(), None, now, ask);
                denials_leave_no_trace(&limits, &mut check, &asked)
            }
            Some(server) => {
                let mut store = Store::new(server, vec![limits[0].clone()]);
                let mut check = |which: usize, now, ask| {
                    store.plan = plans[which].clone();
                    store.check(Some(now), ask)
                };
                denials_leave_no_trace(&limits, &mut check, &asked)
            }
        }
    });
}

#[test]
fn what_another_size_denies_changes_no_state() {
    traceless(None, 4_000);
}

#[test]
fn what_another_size_denies_changes_no_state_in_redis() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    traceless(Some(&server), 400);
}

/// The limit that has the largest of each count.
fn largest(limits: &[Limit]) -> Limit {
    let of = |place: usize| limits.iter().map(|limit| limit.counts()[place]).max().unwrap();
    limits[0].with_counts([0, 1, 2].map(of)).unwrap()
}

/// Whatever the order of sizes, what passes is never more than the largest of them alone lets through.
fn passes_no_more(
    limits: &[Limit],
    check: &mut dyn FnMut(usize, Micros, Ask) -> Outcome,
    asked: &[Asked],
) -> Result<(), TestCaseError> {
    let (mut now, mut granted, mut by_pass) = (START, Vec::new(), Vec::new());
    for &(passes, which, requests, cost, kept_percent) in asked {
        now = now.plus(Micros(passes * pace(&limits[0])));
        let (ask, limits) =
            (Ask { kept_percent, ..Ask::new(requests, cost) }, std::slice::from_ref(&limits[which]));
        let outcome = check(which, now, ask);
        for place in 0..outcome.granted {
            granted.push((now.0, limits[0].cost(ask)));
            by_pass.push((now.plus(outcome.allotment(limits, place, ask).delay).0, cost));
        }
    }
    let (largest, granted, by_pass) = (largest(limits), Granted::new(granted), Granted::new(by_pass));
    let (rate, per, burst) = match &largest {
        Limit::LeakyBucket(of) => (of.rate(), of.per(), of.burst()),
        Limit::TokenBucket(of) if of.how() == Refill::Continuous => {
            (of.refill(), of.interval(), of.capacity() + of.overdraft())
        }
        _ => return bounded(&largest, &granted, &by_pass),
    };
    // A bucket of another rate reads a time to the microsecond.
    let rounded = asked.len() as u64;
    for from in by_pass.times() {
        for to in by_pass.times().filter(|&to| to >= from) {
            let flowed = (u128::from(rate) * u128::from(to - from + rounded)).div_ceil(per.0.into());
            prop_assert!(u128::from(by_pass.sum(from, to + 1)) <= u128::from(burst) + flowed);
        }
    }
    Ok(())
}

fn conserving(server: Option<&Redis>, cases: u32) {
    let alike = resized().prop_map(|[limit, other]| {
        let ([rate, ..], [other_rate, burst, overdraft]) = (limit.counts(), other.counts());
        let scaled = other.scaled(rate / other_rate.max(1)).as_ref() == Ok(&limit);
        match is_time(&limit) && !scaled {
            true => [limit.clone(), limit.with_counts([rate, burst, overdraft]).unwrap_or(limit)],
            false => [limit, other],
        }
    });
    hold(cases, &(alike, asked()), |(limits, asked)| match server {
        None => {
            let mut subject = Subject::default();
            let mut check =
                |which: usize, now, ask| subject.check(std::slice::from_ref(&limits[which]), None, now, ask);
            passes_no_more(&limits, &mut check, &asked)
        }
        Some(server) => {
            let mut store = Store::new(server, vec![limits[0].clone()]);
            let mut check = |which: usize, now, ask| {
                store.plan = plan_with(vec![limits[which].clone()], several());
                store.check(Some(now), ask)
            };
            passes_no_more(&limits, &mut check, &asked)
        }
    });
}

#[test]
fn no_order_of_sizes_lets_more_through_than_the_largest() {
    conserving(None, 6_000);
}

#[test]
fn no_order_of_sizes_lets_more_through_than_the_largest_in_redis() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    conserving(Some(&server), 400);
}

fn conserving_three(server: Option<&Redis>, cases: u32) {
    hold(cases, &(three_sizes(), asked_of_three()), |(limits, asked)| match server {
        None => {
            let mut subject = Subject::default();
            let mut check = |which: usize, now, ask: Ask| {
                let before = subject.clone();
                let outcome = subject.check(std::slice::from_ref(&limits[which]), None, now, ask);
                let may_change = ask.requests > 0 || before == Subject::default();
                assert!(may_change || before == subject, "a question changes nothing: {ask:?}");
                outcome
            };
            passes_no_more(&limits, &mut check, &asked)
        }
        Some(server) => {
            let mut store = Store::new(server, vec![limits[0].clone()]);
            let plans = limits.each_ref().map(|limit| plan_with(vec![limit.clone()], several()));
            let mut check = |which: usize, now, ask| {
                store.plan = plans[which].clone();
                store.check(Some(now), ask)
            };
            passes_no_more(&limits, &mut check, &asked)
        }
    });
}

#[test]
fn no_order_of_three_sizes_lets_more_through_than_the_largest() {
    conserving_three(None, 4_000);
}

#[test]
fn no_order_of_three_sizes_lets_more_through_than_the_largest_in_redis() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    conserving_three(Some(&server), 400);
}

/// After a denial by the smallest of three sizes, the middle one has no more left than if it was asked itself at the same time. The largest
/// one grants.
#[test]
fn what_a_third_size_denies_counts_as_a_denial_of_the_second() {
    hold(4_000, &(three_sizes(), asked_of_three()), |(limits, asked)| {
        if matches!(limits[0], Limit::Concurrency(_)) {
            // It grants whatever a request costs.
            return Ok(());
        }
        let [mut third, mut second] = [Subject::default(), Subject::default()];
        let mut now = START;
        for &(passes, which, requests, cost, _) in &asked {
            now = now.plus(Micros(passes * pace(&limits[0])));
            let check = |subject: &mut Subject, size: usize, ask| {
                subject.check(std::slice::from_ref(&limits[size]), None, now, ask)
            };
            match which {
                0 => {
                    let ask = Ask::new(requests, cost.min(3));
                    let granted =
                        [check(&mut third, 0, ask), check(&mut second, 0, ask)].map(|of| of.granted);
                    prop_assert_eq!(granted[0], granted[1]);
                }
                1 => {
                    let left =
                        [&mut third, &mut second].map(|of| check(of, 1, Ask::new(0, 1)).limits[0].remaining);
                    prop_assert!(left[0] <= left[1] + 1, "{left:?} of {limits:?}");
                }
                _ => {
                    // More than any of them holds.
                    let never = Ask::new(1, 1_000_000);
                    prop_assert_eq!(
                        check(&mut third, 2, never).granted + check(&mut second, 1, never).granted,
                        0
                    );
                }
            }
        }
        Ok(())
    });
}

/// The largest of three sizes has let 28 units through. After denials by the smallest, the middle one has nothing left, in whatever order
/// they are asked, and however often.
#[test]
fn three_sizes_of_a_bucket_in_turn() {
    let server = Redis::start();
    let (days, hour) = (Micros::from_secs(40 * 86_400), Micros::from_secs(3_600));
    let bucket = |burst: u64| Limit::from(LeakyBucket::new(3, days, burst, Micros::ZERO).unwrap());
    let wide = |burst: u64| {
        Limit::from(LeakyBucket::new(999_999_937, days, burst * 300_000_000, Micros::ZERO).unwrap())
    };
    for (units, sizes) in [(1, [60, 4, 8].map(bucket)), (300_000_000, [60, 4, 8].map(wide))] {
        let plans = sizes.each_ref().map(|limit| crate::store::plan(vec![limit.clone()]));
        let mut store = server.as_ref().map(|server| Store::new(server, vec![sizes[0].clone()]));
        let mut subject = Subject::default();
        let mut granted = |size: usize, now, requests| {
            let ask = Ask::new(requests, units);
            let outcome = subject.check(std::slice::from_ref(&sizes[size]), None, now, ask);
            if let Some(store) = &mut store {
                store.plan = plans[size].clone();
                assert_eq!(store.check(Some(now), ask), outcome, "in Redis");
            }
            outcome.granted
        };
        assert_eq!(granted(0, START, 28), 28);
        for _ in 0..5 {
            assert_eq!([granted(1, START, 1), granted(2, START, 8), granted(2, START, 8)], [0, 0, 0]);
        }
        // Both refill from then on; a question for no request changes nothing. When the larger one has granted, the smaller one cannot
        // tell how much of that was left of its own, and begins anew. So does the larger one then.
        let later = START.plus(Micros(hour.0 * if units == 1 { 24 * 41 } else { 24 * 37 }));
        assert_eq!((granted(1, later, 0), granted(2, later, 0)), (0, 0));
        assert_eq!((granted(2, later, 2), granted(1, later, 9)), (2, 0));
        for _ in 0..5 {
            assert_eq!([granted(1, later, 9), granted(2, later, 9)], [0, 0]);
        }
        assert_eq!(granted(0, later, 60), 33);
    }
}

/// Sixty requests at five times the size, one at one time, in turn: fifty pass, and no more, whatever the algorithm.
#[test]
fn a_smaller_size_now_and_then_lets_no_more_through() {
    let day = Micros::from_secs(86_400);
    let server = Redis::start();
    let limits: Vec<Limit> = vec![
        TokenBucket::new(10, 10, day, Refill::Stepwise, 0).unwrap().into(),
        TokenBucket::new(10, 10, day, Refill::Continuous, 0).unwrap().into(),
        LeakyBucket::new(10, day, 10, Micros::ZERO).unwrap().into(),
        FixedWindow::new(10, day, Align::Clock).unwrap().into(),
        FixedWindow::new(10, day, Align::First).unwrap().into(),
        SlidingLog::new(10, day).unwrap().into(),
        SlidingWindow::new(10, day, day).unwrap().into(),
        Concurrency::new(10, day).unwrap().into(),
    ];
    for limit in limits {
        let sizes = [limit.scaled(5).unwrap(), limit];
        let asks = || (0..5).flat_map(|_| (0..60).map(|_| 0).chain([1]));
        let mut subject = Subject::default();
        let granted: u32 = asks()
            .map(|size: usize| {
                subject.check(std::slice::from_ref(&sizes[size]), None, START, Ask::new(1, 1)).granted
            })
            .sum();
        assert_eq!(granted, 50, "{sizes:?}");
        let Some(server) = &server else { continue };
        let mut store = Store::new(server, vec![sizes[0].clone()]);
        let plans = sizes.each_ref().map(|limit| crate::store::plan(vec![limit.clone()]));
        let granted: u32 = asks()
            .map(|size: usize| {
                store.plan = plans[size].clone();
                store.check(Some(START), Ask::new(1, 1)).granted
            })
            .sum();
        assert_eq!(granted, 50, "in Redis: {sizes:?}");
    }
}

/// An operator makes a subject's own bucket smaller and larger again.
#[test]
fn an_override_that_comes_and_goes_lets_no_more_through() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    let day = Micros::from_secs(86_400);
    let limits: Vec<Limit> = vec![
        TokenBucket::new(50, 50, day, Refill::Stepwise, 0).unwrap().into(),
        TokenBucket::new(50, 50, day, Refill::Continuous, 0).unwrap().into(),
        LeakyBucket::new(50, day, 50, Micros::ZERO).unwrap().into(),
        FixedWindow::new(50, day, Align::Clock).unwrap().into(),
        SlidingLog::new(50, day).unwrap().into(),
        SlidingWindow::new(50, day, day).unwrap().into(),
        Concurrency::new(50, day).unwrap().into(),
    ];
    for limit in limits {
        let mut store = Store::new(&server, vec![limit.clone()]);
        let named = NamedLimit { name: "limit".to_owned(), limit: limit.clone() };
        store.plan =
            Plan::new(vec![named], Options { overrides: Overrides::Read, ..Options::default() }).unwrap();
        let key = [b"weir:", store.tag.as_slice(), b":override"].concat();
        let mut check = |text: Option<&str>, ask| {
            match text {
                Some(text) => store.redis.call(&[b"SET", &key, text.as_bytes()]),
                None => store.redis.call(&[b"DEL", &key]),
            };
            store.check(Some(START), ask).granted
        };
        assert_eq!(check(None, Ask::new(60, 1)), 50, "{limit:?}");
        for smaller in [
            r#"{"limit": {"capacity": 1, "burst": 1, "limit": 1}}"#,
            r#"{"limit": {"capacity": 1, "refill": 1, "burst": 1, "rate": 1}}"#,
        ] {
            assert_eq!(check(Some(smaller), Ask::new(9, 1)), 0, "{limit:?}");
            assert_eq!(check(None, Ask::new(60, 1)), 0, "{limit:?}");
        }
    }
}
