// SPDX-License-Identifier: Apache-2.0
//! Random histories, with the time brought along: each reply of the Lua on a real Redis equals the pure
//! limits', and both keep the laws. A failure is shrunk to the shortest history that still fails.

mod debt;
mod sizes;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use crate::redis::{Connection, Redis};
use crate::store::{Store, outcomes_of, plan_with};
use crate::tried::tried;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir::limit::{
    Align, Ask, Ban, Concurrency, Distinct, FixedWindow, Invalid, LeakyBucket, Limit, MAX_LOG, MAX_WINDOW,
    Member, Outcome, Period, Permits, Refill, RetryAfter, SlidingLog, SlidingWindow, Subject, TokenBucket,
    UtcOffset,
};
use weir::resp::{self, Reply};
use weir::script::{Classes, Form, NamedLimit, Options, Overrides, Plan};
use weir::time::Micros;

/// Tries a property on so many cases.
#[track_caller]
fn hold<S: Strategy>(cases: u32, of: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    if let Err(error) = TestRunner::new(tried(cases)).run(of, property) {
        panic!("{error}");
    }
}

/// Requests are of several classes.
fn several() -> Options {
    Options { classes: Classes::Several, ..Options::default() }
}

/// One step of a history: time goes on (or back), then something happens, under one of two configurations.
#[derive(Clone, Copy, Debug)]
struct Step {
    passes: i64,
    configuration: usize,
    /// The percentage of each limit that a check keeps for others.
    kept_percent: u8,
    /// The value of the requests; one of few.
    member: u8,
    act: Act,
}

impl Step {
    fn ask(&self, requests: u32, cost: u64) -> Ask {
        let member = Member([self.member; 12]);
        Ask { requests, cost, kept_percent: self.kept_percent, member }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Check {
        requests: u32,
        cost: u64,
    },
    /// Settles the check that many checks ago.
    Settle {
        units: i64,
        ago: usize,
    },
    Release {
        requests: u32,
        ago: usize,
    },
    Renew {
        requests: u32,
        ago: usize,
    },
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..=20u64, 2 => 1..=1_000_000u64, 1 => 1..=1_000_000_000_000u64]
}

fn span() -> impl Strategy<Value = Micros> {
    let units = prop_oneof![
        Just(1_000u64),
        Just(1_000_000),
        Just(60_000_000),
        Just(3_600_000_000),
        Just(86_400_000_000)
    ];
    prop_oneof![
        4 => (units, 1..=30u64).prop_map(|(unit, n)| Micros(unit * n)),
        1 => (1_000..=31_622_400_000_000u64).prop_map(Micros),
    ]
}

type Built = Result<Limit, Invalid>;

fn fixed_window() -> impl Strategy<Value = Built> {
    (count(), span(), prop_oneof![Just(Align::Clock), Just(Align::First), calendar()])
        .prop_map(|(limit, window, align)| FixedWindow::new(limit, window, align).map(Limit::from))
}

fn calendar() -> impl Strategy<Value = Align> {
    let month = prop_oneof![Just(1u8), Just(31), 1..=31u8].prop_map(|anchor| Period::Month { anchor });
    let period = prop_oneof![Just(Period::Day), Just(Period::Week), month];
    let minutes = prop_oneof![Just(0i16), Just(120), Just(-330), -720..=840i16];
    (period, minutes).prop_map(|(period, minutes)| Align::Calendar(period, UtcOffset::from_minutes(minutes)))
}

fn sliding_log() -> impl Strategy<Value = Built> {
    (prop_oneof![4 => 1..=20u64, 1 => 1..=MAX_LOG], span())
        .prop_map(|(limit, window)| SlidingLog::new(limit, window).map(Limit::from))
}

fn sliding_window() -> impl Strategy<Value = Built> {
    let slots = prop_oneof![Just(1u64), Just(2), Just(3), Just(10), Just(100)];
    (count(), span(), slots)
        .prop_map(|(limit, slot, n)| SlidingWindow::new(limit, Micros(slot.0 * n), slot).map(Limit::from))
}

fn token_bucket() -> impl Strategy<Value = Built> {
    let how = prop_oneof![Just(Refill::Continuous), Just(Refill::Stepwise)];
    (count(), count(), span(), how, prop_oneof![Just(0), count()]).prop_map(
        |(capacity, refill, interval, how, overdraft)| {
            TokenBucket::new(capacity, refill, interval, how, overdraft).map(Limit::from)
        },
    )
}

fn leaky_bucket() -> impl Strategy<Value = Built> {
    (count(), span(), count(), prop_oneof![Just(Micros::ZERO), span()]).prop_map(
        |(rate, per, burst, max_delay)| LeakyBucket::new(rate, per, burst, max_delay).map(Limit::from),
    )
}

fn concurrency() -> impl Strategy<Value = Built> {
    (count(), span()).prop_map(|(limit, ttl)| Concurrency::new(limit, ttl).map(Limit::from))
}

fn distinct() -> impl Strategy<Value = Built> {
    distinct_up_to(1_000)
}

fn distinct_up_to(most: u64) -> impl Strategy<Value = Built> {
    (prop_oneof![4 => 1..=5u64, 1 => 1..=most], span())
        .prop_map(|(limit, window)| Distinct::new(limit, window).map(Limit::from))
}

fn valid(built: BoxedStrategy<Built>) -> BoxedStrategy<Limit> {
    built.prop_filter_map("parameters that go together", Result::ok).boxed()
}

/// The same limit under two configurations: mostly the same, sometimes with other numbers, seldom another
/// algorithm.
fn limits_of(built: fn() -> BoxedStrategy<Built>) -> BoxedStrategy<[Limit; 2]> {
    prop_oneof![
        4 => valid(built()).prop_map(|limit| [limit.clone(), limit]),
        2 => [valid(built()), valid(built())],
        1 => [valid(built()), valid(any_limit())],
    ]
    .boxed()
}

fn any_limit() -> BoxedStrategy<Built> {
    prop_oneof![
        fixed_window(),
        sliding_log(),
        sliding_window(),
        token_bucket(),
        leaky_bucket(),
        concurrency(),
        // Three of more than 200 values would take longer than a script may.
        distinct_up_to(200)
    ]
    .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    let passes = prop_oneof![
        6 => Just(0),
        6 => 0..=2_000i64,
        8 => 0..=2_000_000i64,
        4 => 0..=200_000_000i64,
        2 => 0..=100_000_000_000i64,
        1 => 0..=4_000_000_000_000i64,
        1 => -10_000_000_000..=0i64,
        1 => -3_000..=0i64,
        1 => -2..=0i64,
    ];
    let requests = || prop_oneof![6 => 0..=5u32, 1 => 0..=1_000u32, 1 => any::<u32>()];
    let cost = || prop_oneof![6 => 0..=3u64, 2 => 0..=1_000u64, 1 => count(), 1 => any::<u64>()];
    let units = prop_oneof![6 => -5..=5i64, 1 => -1_000_000..=1_000_000i64, 1 => any::<i64>()];
    let act = prop_oneof![
        6 => (requests(), cost()).prop_map(|(requests, cost)| Act::Check { requests, cost }),
        1 => (units, 0..4usize).prop_map(|(units, ago)| Act::Settle { units, ago }),
        1 => (requests(), 0..4usize).prop_map(|(requests, ago)| Act::Release { requests, ago }),
        1 => (requests(), 0..4usize).prop_map(|(requests, ago)| Act::Renew { requests: requests.max(1), ago }),
    ];
    let configuration = prop_oneof![5 => Just(0usize), 1 => Just(1)];
    (passes, configuration, 0..6u8, act).prop_map(|(passes, configuration, member, act)| Step {
        passes,
        configuration,
        kept_percent: 0,
        member,
        act,
    })
}

/// The same of requests of several classes.
fn step_of_classes() -> impl Strategy<Value = Step> {
    (step(), kept_percent()).prop_map(|(step, kept_percent)| Step { kept_percent, ..step })
}

/// The percentage kept for others: mostly nothing or a usual share. The configuration allows up to 99 percent.
fn kept_percent() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0), 2 => Just(20), 3 => 1..=99u8, 1 => any::<u8>()]
}

/// A Redis, and what it knows already.
struct Loaded {
    redis: Connection,
    loaded: HashSet<String>,
    histories: u64,
}

impl Loaded {
    fn new(server: &Redis) -> RefCell<Self> {
        RefCell::new(Self { redis: server.connect(), loaded: HashSet::new(), histories: 0 })
    }

    fn load(&mut self, plan: &Plan) {
        for source in plan.sources() {
            if self.loaded.insert(source.to_owned()) {
                let reply = self.redis.call(&[b"SCRIPT", b"LOAD", source.as_bytes()]);
                assert_eq!(reply[0], b'$', "{}\n{source}", String::from_utf8_lossy(&reply));
            }
        }
    }

    /// The keys of a subject expire within twenty years: a bucket is full again within ten. The time was brought along, so they live
    /// longer than they would by Redis's clock.
    fn every_key_expires(&mut self, tag: &[u8], limits: usize) -> Result<(), TestCaseError> {
        let names = (0..limits).map(|i| format!("limit{i}")).chain(["ban".to_owned(), "denials".to_owned()]);
        for name in names {
            let key = [b"weir:", tag, b":", name.as_bytes()].concat();
            let millis = self.redis.integer(&[b"PTTL", &key]);
            prop_assert!(
                millis == -2 || (0..632_448_000_000).contains(&millis),
                "{} expires in {} ms",
                name,
                millis
            );
        }
        Ok(())
    }
}

/// The answer of the pure limits to a step.
#[derive(Debug)]
enum Expected {
    Outcome(Outcome),
    /// The outcomes of a check for several subjects.
    Outcomes(Box<[Outcome; 3]>),
    Released,
    Renewed(Box<Outcome>),
}

fn runs_alike(
    store: &RefCell<Loaded>,
    limits: &[[Limit; 2]],
    bans: &[Option<Ban>; 2],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut store = store.borrow_mut();
    let limits_of = |i: usize| limits.iter().map(|limits| limits[i].clone()).collect();
    let classes =
        if steps.iter().any(|step| step.kept_percent > 0) { Classes::Several } else { Classes::One };
    let plans = [0, 1]
        .map(|i| plan_with(limits_of(i), Options { ban: bans[i].clone(), classes, ..Options::default() }));
    plans.iter().for_each(|plan| store.load(plan));
    store.histories += 1;
    let tag = format!("{{p|{}}}", store.histories).into_bytes();

    let mut subject = Subject::default();
    // Asked about together with the subject, before it and after it.
    let mut others = [b"a", b"b"].map(|name| ([&tag[..], name].concat(), Subject::default()));
    let mut now = START;
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    let mut checks = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        now = Micros(now.0.saturating_add_signed(step.passes));
        let plan = &plans[step.configuration];
        let before = |ago: usize| checks.iter().rev().nth(ago).cloned();
        match step.act {
            Act::Check { requests, cost } => {
                let ask = step.ask(requests, cost);
                let outcome = subject.check(plan.limits(), plan.ban(), now, ask);
                checks.push(outcome.clone());
                if i % 2 == 0 {
                    plan.check(&tag, ask, Some(now), Form::Evalsha, &mut commands);
                    expected.push((i, Expected::Outcome(outcome)));
                } else {
                    let [(first, before), (last, after)] = &mut others;
                    let asks = [
                        Ask { cost: cost / 2, kept_percent: 0, ..ask },
                        ask,
                        Ask { requests: requests / 2, ..ask },
                    ];
                    let tags = [first.as_slice(), &tag, last];
                    plan.check_all(tags.into_iter().zip(asks), Some(now), Form::Evalsha, &mut commands);
                    let [before, after] = [(before, asks[0]), (after, asks[2])]
                        .map(|(other, ask)| other.check(plan.limits(), plan.ban(), now, ask));
                    expected.push((i, Expected::Outcomes(Box::new([before, outcome, after]))));
                }
            }
            Act::Settle { units, ago } => {
                let Some(receipt) = before(ago) else { continue };
                plan.settle(&tag, units, &receipt, Some(now), Form::Evalsha, &mut commands);
                // Charges are added up whatever they are for, so what one does must not depend on the grant.
                let mut other = subject.clone();
                let outcome = subject.settle(plan.limits(), plan.ban(), now, units, &receipt);
                if units > 0 {
                    let unlike =
                        Outcome { at: now.plus(Micros(1)), limits: [].into_iter().collect(), ..receipt };
                    let of_other = other.settle(plan.limits(), plan.ban(), now, units, &unlike);
                    prop_assert_eq!((of_other, other), (outcome.clone(), subject.clone()), "step {}", i);
                }
                expected.push((i, Expected::Outcome(outcome)));
            }
            Act::Release { requests, ago } => {
                let Some(receipt) = before(ago) else { continue };
                let permits: Vec<Permits> = receipt.permits(requests).collect();
                if plan.release(&tag, &permits, Some(now), Form::Evalsha, &mut commands) {
                    subject.release(&permits);
                    expected.push((i, Expected::Released));
                }
            }
            Act::Renew { requests, ago } => {
                let Some(mut receipt) = before(ago) else { continue };
                let permits: Vec<Permits> = receipt.permits(requests).collect();
                // The configuration may be another than that of the grant.
                let is_apt = permits.iter().all(|permits| plan.ttl(permits.limit).is_some());
                if is_apt && plan.renew(&tag, &permits, Some(now), Form::Evalsha, &mut commands) {
                    let expiries = subject.renew(plan.limits(), &permits, now);
                    for (Permits { limit, .. }, expiry) in permits.iter().zip(expiries) {
                        receipt.limits[*limit].permit_expiry = expiry;
                    }
                    expected.push((i, Expected::Renewed(Box::new(receipt))));
                }
            }
        }
    }
    let replies = store.redis.pipeline(&commands, expected.len());
    for (reply, (i, expected)) in replies.iter().zip(expected) {
        let (reply, _) = resp::decode(reply).unwrap().unwrap();
        match expected {
            Expected::Outcome(outcome) => match plans[steps[i].configuration].outcome(&reply) {
                Ok(replied) => prop_assert_eq!(replied, outcome, "step {}", i),
                Err(bad) => prop_assert!(false, "step {}: {}", i, bad),
            },
            Expected::Outcomes(outcomes) => {
                let replied = outcomes_of(&plans[steps[i].configuration], &reply, outcomes.len());
                prop_assert_eq!(replied.as_deref(), Ok(&outcomes[..]), "step {}", i);
            }
            Expected::Renewed(receipt) => {
                let replied = plans[steps[i].configuration].renewed(&receipt, &reply);
                prop_assert_eq!(replied.as_ref(), Ok(&*receipt), "step {}", i);
            }
            Expected::Released => prop_assert!(matches!(reply, Reply::Integer(_)), "step {}: {:?}", i, reply),
        }
    }
    store.every_key_expires(&tag, limits.len())
}

fn holds(cases: u32, limits: impl Strategy<Value = Vec<[Limit; 2]>>, step: impl Strategy<Value = Step>) {
    holds_with_bans(cases, limits, Just([None, None]), step);
}

fn holds_with_bans(
    cases: u32,
    limits: impl Strategy<Value = Vec<[Limit; 2]>>,
    bans: impl Strategy<Value = [Option<Ban>; 2]>,
    step: impl Strategy<Value = Step>,
) {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    let store = Loaded::new(&server);
    let histories = (limits, bans, prop::collection::vec(step, 1..60));
    hold(cases, &histories, |(limits, bans, steps)| runs_alike(&store, &limits, &bans, &steps));
}

macro_rules! alone {
    ($($algorithm:ident),+) => {$(
        #[test]
        fn $algorithm() {
            holds(500, limits_of(|| super::$algorithm().boxed()).prop_map(|limit| vec![limit]), step());
        }
    )+};
}

mod each_reply_of_lua_equals_the_pure_limit {
    use super::*;
    alone!(fixed_window, sliding_log, sliding_window, token_bucket, leaky_bucket, concurrency, distinct);

    #[test]
    fn of_any_mix() {
        holds(1_500, prop::collection::vec(limits_of(any_limit), 1..=4), step());
    }

    #[test]
    fn of_requests_of_several_classes() {
        let limit =
            prop_oneof![2 => small().prop_map(|limit| [limit.clone(), limit]), 2 => limits_of(any_limit)];
        holds(1_500, prop::collection::vec(limit, 1..=3), step_of_classes());
    }

    /// Mostly with limits and bans so small that subjects are banned again and again; sometimes without a ban.
    #[test]
    fn of_policies_with_a_ban() {
        let ban = || {
            (1..=6u32, span(), span(), 1..=4u32, 1..=5u64).prop_map(
                |(after, window, duration, factor, times)| {
                    let max = Micros(duration.0 * times).min(MAX_WINDOW);
                    Ban::new(after, window, duration, factor, max).ok()
                },
            )
        };
        let bans = prop_oneof![4 => ban().prop_map(|ban| [ban.clone(), ban]), 1 => [ban(), ban()],
            1 => ban().prop_map(|ban| [ban, None])];
        let limit =
            prop_oneof![2 => small().prop_map(|limit| [limit.clone(), limit]), 1 => limits_of(any_limit)];
        let step = prop_oneof![step(), step_of_classes()];
        holds_with_bans(1_500, prop::collection::vec(limit, 1..=3), bans, step);
    }

    /// Checks of one request each: a month's last microsecond and the next one's first, for 75 years.
    fn months(limit: &Limit) -> Vec<Step> {
        let (mut subject, mut now, mut steps) = (Subject::default(), START, Vec::new());
        for _ in 0..900 {
            let outcome = subject.check(std::slice::from_ref(limit), None, now, Ask::new(1, 1));
            let passes = i64::try_from(outcome.limits[0].reset.0).unwrap();
            steps.extend([check(passes - 1, 1), check(1, 1)]);
            now = Micros(now.0.saturating_add_signed(passes));
        }
        steps
    }

    fn check(passes: i64, requests: u32) -> Step {
        check_of(passes, requests, 1)
    }

    fn check_of(passes: i64, requests: u32, cost: u64) -> Step {
        Step { passes, configuration: 0, kept_percent: 0, member: 1, act: Act::Check { requests, cost } }
    }

    fn under_the_second(step: Step) -> Step {
        Step { configuration: 1, ..step }
    }

    /// A rate so high that a double cannot hold the products.
    const MANY: u64 = 10_000_000_019;

    fn settle(passes: i64, units: i64, ago: usize) -> Step {
        Step { passes, configuration: 0, kept_percent: 0, member: 1, act: Act::Settle { units, ago } }
    }

    #[test]
    fn in_histories_that_chance_seldom_finds() {
        let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
        let store = Loaded::new(&server);
        let (second, hour) = (Micros::from_secs(1), Micros::from_secs(3_600));
        let (half, half_an_hour, day) = (500_000, 1_800_000_000, 86_400_000_000);
        let month = |minutes| {
            let align = Align::Calendar(Period::MONTH, UtcOffset::from_minutes(minutes));
            FixedWindow::new(2, Micros::ZERO, align).unwrap().into()
        };
        let of_a_million: Limit = LeakyBucket::new(1_000_000, second, 10, Micros::ZERO).unwrap().into();
        let of_a_million_too = of_a_million.clone();
        let odd_slot = SlidingWindow::new(10, Micros(1_001), Micros(1_001)).unwrap().into();
        let to_a_slot = 1_001 - (START.0 % 1_001) as i64;
        let log = SlidingLog::new(2, second).unwrap().into();
        let one_each_millisecond = FixedWindow::new(1, Micros(1_000), Align::First).unwrap().into();
        let ban = Ban::new(3, hour, second, 1, second).unwrap();
        let an_hour = FixedWindow::new(2, hour, Align::First).unwrap();
        let next_month =
            Subject::default().check(&[month(-330)], None, START, Ask::new(1, 1)).limits[0].reset;
        let month_behind = next_month.0 as i64;
        let overdrawn: Limit =
            TokenBucket::new(MANY, MANY, second, Refill::Continuous, 5 * MANY).unwrap().into();
        let of_a_billion = LeakyBucket::new(1_000_000_000, second, 10, Micros::ZERO).unwrap().into();
        let both = |limit: Limit| [limit.clone(), limit];
        let rows: Vec<(&str, [Limit; 2], Option<Ban>, Vec<Step>)> = vec![
            ("months of UTC", both(month(0)), None, months(&month(0))),
            ("months behind UTC", both(month(-330)), None, months(&month(-330))),
            ("months ahead of UTC", both(month(840)), None, months(&month(840))),
            (
                "the clock goes back by months",
                both(month(-330)),
                None,
                vec![check(0, 1), check(-70 * day, 1), check(day, 1)],
            ),
            (
                "what is owed for a microsecond comes back within it",
                both(of_a_million),
                None,
                vec![
                    check(0, 1),
                    settle(0, -1, 0),
                    check(0, 3),
                    settle(0, -1, 0),
                    settle(0, -2, 0),
                    check(0, 1),
                ],
            ),
            (
                "a part of a slot is rounded up",
                both(odd_slot),
                None,
                vec![check(to_a_slot, 3), settle(1_001 + 500, -1, 0), check(0, 0)],
            ),
            (
                "a refund when its grant leaves the window",
                both(log),
                None,
                vec![check(0, 1), check(half, 1), settle(half, -1, 1), check(0, 2)],
            ),
            (
                "denials before the clock went back",
                both(one_each_millisecond),
                Some(ban),
                vec![check(0, 2), check(-half_an_hour, 1), check(2 * half_an_hour, 2), check(0, 0)],
            ),
            (
                "an hour's window of the month before",
                [an_hour.into(), month(-330)],
                None,
                vec![
                    check(month_behind - half_an_hour, 1),
                    under_the_second(check(half_an_hour, 1)),
                    under_the_second(check(0, 1)),
                ],
            ),
            (
                "a bucket of many units a second in overdraft",
                both(overdrawn.clone()),
                None,
                // The last leaves one part of a microsecond over.
                vec![check_of(0, 1, MANY), settle(0, 4 * MANY as i64, 0), check(0, 0), check(368_421, 0)],
            ),
            (
                "more comes back than was taken, and a part of a microsecond",
                both(overdrawn.clone()),
                None,
                vec![check_of(0, 1, 15_000), settle(0, -25_000, 0)],
            ),
            (
                "less than a microsecond comes back",
                both(overdrawn.clone()),
                None,
                vec![check_of(0, 1, 5_000), settle(0, -15_000, 0), check(0, 0)],
            ),
            (
                "what is owed for a microsecond comes back under wide numbers",
                [of_a_million_too, overdrawn.clone()],
                None,
                vec![check(0, 1), under_the_second(settle(0, -20_000, 0)), under_the_second(check(0, 0))],
            ),
            (
                "what is owed for a part of a microsecond comes back under wide numbers",
                [of_a_billion, overdrawn],
                None,
                vec![check(0, 1), under_the_second(settle(0, -20_000, 0)), under_the_second(check(0, 0))],
            ),
            (
                "the clock goes back month by month",
                both(month(840)),
                None,
                [check(0, 1)].into_iter().chain([check(-31 * day, 1); 14]).collect(),
            ),
        ];
        for (name, limits, ban, steps) in rows {
            runs_alike(&store, &[limits], &[ban.clone(), ban], &steps)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// A smaller bucket cuts off what a larger one counts, and the larger one counts on: where what was cut off is ten years, and where it
    /// has just come back.
    #[test]
    fn of_buckets_of_two_sizes() {
        const TEN_YEARS: i64 = 316_224_000_000_000;
        let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
        let store = Loaded::new(&server);
        let second = 1_000_000;
        for (units, more) in [1, MANY].into_iter().flat_map(|units| [(units, -1), (units, 0), (units, 1)]) {
            let bucket = |seconds| {
                let burst = seconds * units;
                LeakyBucket::new(units, Micros::from_secs(1), burst, Micros::ZERO).unwrap().into()
            };
            let full = |passes: i64| under_the_second(check(passes, 1));
            let histories = [
                vec![full(0), full(70 * second - TEN_YEARS + more), check(0, 0)],
                vec![full(0), full(80 * second + more), check(0, 0)],
            ];
            for then in histories {
                let steps: Vec<Step> = [check_of(0, 1, 80 * units)].into_iter().chain(then).collect();
                runs_alike(&store, &[[bucket(90), bucket(10)]], &[None, None], &steps)
                    .unwrap_or_else(|error| panic!("{units} units a second, {more} µs: {error}"));
            }
        }
    }

    /// Around every boundary: steps of a window, a slot, a microsecond, forth and back.
    #[test]
    fn where_the_clock_goes_back() {
        let span = prop_oneof![Just(1_000i64), Just(10_000), Just(7_777), Just(1), Just(0)];
        let passes = (span, -4..=6i64, -1..=1i64).prop_map(|(span, times, more)| span * times + more);
        let step =
            (step(), passes, 0..=4u32, 0..=3u64).prop_map(|(step, passes, requests, cost)| match step.act {
                Act::Check { .. } => Step { passes, act: Act::Check { requests, cost }, ..step },
                act => Step { passes, act, ..step },
            });
        let limits = prop::collection::vec(small().prop_map(|limit| [limit.clone(), limit]), 1..=2);
        holds(800, limits, step);
    }
}

/// A subject's own limits: of each limit the counts that replace the configured ones, if any do.
type Own = Vec<Option<[u64; 3]>>;

/// The names of the counts, as in an override.
fn names(limit: &Limit) -> [&'static str; 3] {
    match limit {
        Limit::TokenBucket(_) => ["refill", "capacity", "overdraft"],
        Limit::LeakyBucket(_) => ["rate", "burst", "-"],
        _ => ["limit", "-", "-"],
    }
}

/// Everything but windows that follow the clock: without overrides these are kept in another form.
fn overridable() -> BoxedStrategy<Limit> {
    valid(any_limit())
        .prop_filter(
            "no clock",
            |limit| !matches!(limit, Limit::FixedWindow(of) if of.align() == Align::Clock),
        )
        .boxed()
}

/// The expected reply to a command about a subject, and perhaps about a second one.
enum Told {
    One(Outcome),
    Both([Outcome; 2]),
    /// It sets the subject's own limits.
    Nothing,
}

fn own_outcome(outcome: Outcome, in_force: &[Limit], limits: &[Limit]) -> Outcome {
    Outcome { own: (in_force != limits).then(|| in_force.to_vec().into()), ..outcome }
}

fn own_limits_count(
    store: &RefCell<Loaded>,
    limits: &[Limit],
    steps: &[(Step, Option<Own>)],
) -> Result<(), TestCaseError> {
    let mut store = store.borrow_mut();
    let named = |(i, limit): (usize, &Limit)| NamedLimit { name: format!("limit{i}"), limit: limit.clone() };
    let limits_of = limits.iter().enumerate().map(named).collect();
    let plan = Plan::new(limits_of, Options { overrides: Overrides::Read, ..several() }).unwrap();
    store.load(&plan);
    store.histories += 1;
    let tag = format!("{{o|{}}}", store.histories);
    let key = format!("weir:{tag}:override");

    let (mut subject, mut now, mut in_force) = (Subject::default(), START, limits.to_vec());
    // Has no limits of its own, and is asked about after those of the subject were in force.
    let (mut other, second_tag) = (Subject::default(), format!("{{o|{} too}}", store.histories));
    let (mut commands, mut expected, mut receipt) = (Vec::new(), Vec::new(), None);
    for (step, own) in steps {
        now = Micros(now.0.saturating_add_signed(step.passes));
        if let Some(own) = own {
            let text: serde_json::Map<_, _> = std::iter::zip(limits, own)
                .enumerate()
                .filter_map(|(i, (limit, own))| {
                    let counts = std::iter::zip(names(limit), (*own)?).filter(|(name, _)| *name != "-");
                    let counts = counts.map(|(name, count)| (name.to_owned(), count.into()));
                    Some((format!("limit{i}"), serde_json::Value::Object(counts.collect())))
                })
                .collect();
            let text = serde_json::Value::Object(text).to_string();
            resp::array_header(&mut commands, 3);
            for part in [b"SET".as_slice(), key.as_bytes(), text.as_bytes()] {
                resp::bulk(&mut commands, part);
            }
            expected.push(Told::Nothing);
            in_force = std::iter::zip(limits, own)
                .map(|(limit, own)| own.and_then(|own| limit.with_counts(own).ok()).unwrap_or(limit.clone()))
                .collect();
        }
        let outcome = match step.act {
            Act::Check { requests, cost } => {
                let ask = step.ask(requests, cost);
                let tags = [&tag, &second_tag].map(|tag| (tag.as_bytes(), ask));
                plan.check_all(tags.into_iter(), Some(now), Form::Evalsha, &mut commands);
                let own = own_outcome(
                    receipt.insert(subject.check(&in_force, None, now, ask)).clone(),
                    &in_force,
                    limits,
                );
                expected.push(Told::Both([own, other.check(limits, None, now, ask)]));
                continue;
            }
            Act::Settle { units, .. } => {
                let Some(receipt) = &receipt else { continue };
                plan.settle(tag.as_bytes(), units, receipt, Some(now), Form::Evalsha, &mut commands);
                subject.settle(&in_force, None, now, units, receipt)
            }
            Act::Release { .. } | Act::Renew { .. } => continue,
        };
        expected.push(Told::One(own_outcome(outcome, &in_force, limits)));
    }
    let replies = store.redis.pipeline(&commands, expected.len());
    for (reply, expected) in replies.iter().zip(expected) {
        let (reply, _) = resp::decode(reply).unwrap().unwrap();
        match expected {
            Told::One(outcome) => prop_assert_eq!(plan.outcome(&reply), Ok(outcome)),
            Told::Both(outcomes) => {
                prop_assert_eq!(outcomes_of(&plan, &reply, 2), Ok(Vec::from(outcomes)));
            }
            Told::Nothing => prop_assert_eq!(reply, Reply::Simple(b"OK")),
        }
    }
    Ok(())
}

#[test]
fn own_limits_of_a_subject_replace_the_configured_ones() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    let store = Loaded::new(&server);
    let counts =
        || prop::option::of((count(), count(), prop_oneof![Just(0), count()]).prop_map(<[u64; 3]>::from));
    let owns = prop::option::weighted(0.2, prop::collection::vec(counts(), 3));
    let steps = prop::collection::vec((step_of_classes(), owns), 1..30);
    // Of values, two limits at most: each may be as large as any.
    let fit =
        |limits: &Vec<Limit>| limits.iter().filter(|limit| matches!(limit, Limit::Distinct(_))).count() < 2;
    let histories = (prop::collection::vec(overridable(), 1..=3).prop_filter("time", fit), steps);
    hold(500, &histories, |(limits, steps)| own_limits_count(&store, &limits, &steps));
}

/// The pure limits, or the Lua.
trait Answers {
    fn check(&mut self, now: Micros, ask: Ask) -> Outcome;
    fn settle(&mut self, now: Micros, units: i64, receipt: &Outcome) -> Outcome;
    fn release(&mut self, now: Micros, permits: &[Permits]);
}

struct Pure(Vec<Limit>, Subject);

impl Answers for Pure {
    fn check(&mut self, now: Micros, ask: Ask) -> Outcome {
        self.1.check(&self.0, None, now, ask)
    }
    fn settle(&mut self, now: Micros, units: i64, receipt: &Outcome) -> Outcome {
        self.1.settle(&self.0, None, now, units, receipt)
    }
    fn release(&mut self, _: Micros, permits: &[Permits]) {
        self.1.release(permits);
    }
}

impl Answers for Store {
    fn check(&mut self, now: Micros, ask: Ask) -> Outcome {
        Self::check(self, Some(now), ask)
    }
    fn settle(&mut self, now: Micros, units: i64, receipt: &Outcome) -> Outcome {
        Self::settle(self, Some(now), units, receipt)
    }
    fn release(&mut self, now: Micros, permits: &[Permits]) {
        if !permits.is_empty() {
            Self::release(self, Some(now), permits);
        }
    }
}

const START: Micros = Micros(1_790_000_000_123_456);
const NONE: Ask = Ask::new(0, 0);

/// The times at which units were granted, or passed: in order, each with the sum of all units until then.
struct Granted(Vec<(u64, u64)>);

impl Granted {
    fn new(mut at: Vec<(u64, u64)>) -> Self {
        at.sort_unstable();
        let mut sum = 0;
        for (_, units) in &mut at {
            sum += *units;
            *units = sum;
        }
        Self(at)
    }

    /// Units in `from..to`.
    fn sum(&self, from: u64, to: u64) -> u64 {
        let until = |end: u64| match self.0.partition_point(|&(at, _)| at < end) {
            0 => 0,
            place => self.0[place - 1].1,
        };
        until(to) - until(from)
    }

    /// Each time once.
    fn times(&self) -> impl Iterator<Item = u64> {
        self.0.chunk_by(|a, b| a.0 == b.0).map(|same| same[0].0)
    }
}

/// Small numbers, so that limits are reached, and time in the measure of the limit.
fn small() -> impl Strategy<Value = Limit> {
    let span = || prop_oneof![Just(Micros(1_000)), Just(Micros(10_000)), Just(Micros(7_777))];
    let slots = prop_oneof![Just(1u64), Just(2), Just(10)];
    prop_oneof![
        (1..=9u64, span(), prop_oneof![Just(Align::Clock), Just(Align::First), calendar()])
            .prop_map(|(limit, window, align)| FixedWindow::new(limit, window, align).map(Limit::from)),
        (1..=9u64, span()).prop_map(|(limit, window)| SlidingLog::new(limit, window).map(Limit::from)),
        (1..=9u64, span(), slots).prop_map(|(limit, slot, n)| SlidingWindow::new(
            limit,
            Micros(slot.0 * n),
            slot
        )
        .map(Limit::from)),
        (1..=9u64, 1..=9u64, span(), any::<bool>(), 0..=5u64).prop_map(
            |(capacity, refill, interval, steps, debt)| {
                let how = if steps { Refill::Stepwise } else { Refill::Continuous };
                TokenBucket::new(capacity, refill, interval, how, debt).map(Limit::from)
            }
        ),
        (1..=9u64, span(), 1..=9u64, prop_oneof![Just(Micros::ZERO), span()])
            .prop_map(|(rate, per, burst, delay)| LeakyBucket::new(rate, per, burst, delay).map(Limit::from)),
        (1..=9u64, span()).prop_map(|(limit, ttl)| Concurrency::new(limit, ttl).map(Limit::from)),
    ]
    .prop_filter_map("parameters that go together", Result::ok)
}

/// The speed of time for a limit: windows of the calendar are longer than those of [`small`] by this factor.
fn pace(limit: &Limit) -> u64 {
    match limit {
        Limit::FixedWindow(of) if matches!(of.align(), Align::Calendar(..)) => of.window().0 / 10_000,
        _ => 1,
    }
}

/// The window that contains `from`, of windows that begin with no request. Months are counted from 1970, by their lengths.
fn window_around(of: &FixedWindow, from: u64) -> Option<(u64, u64)> {
    const DAY: i64 = 86_400_000_000;
    let (period, offset) = match of.align() {
        Align::First => return None,
        Align::Clock => {
            let start = from - from % of.window().0;
            return Some((start, start + of.window().0));
        }
        Align::Calendar(period, offset) => (period, i64::from(offset.minutes()) * 60_000_000),
    };
    let local = from as i64 + offset;
    let (mut start, mut end, mut month) = (0, 0, 0);
    match period {
        Period::Day => (start, end) = (local - local % DAY, local - local % DAY + DAY),
        // The fourth day after the epoch was a Monday.
        Period::Week => {
            start = local - (local - 4 * DAY) % (7 * DAY);
            end = start + 7 * DAY;
        }
        Period::Month { anchor } => {
            let mut first = 0;
            while end <= local {
                let year = 1970 + month / 12;
                let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                let days = match month % 12 + 1 {
                    2 => 28 + i64::from(leap),
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                (start, end, month) = (end, first + (days.min(anchor.into()) - 1) * DAY, month + 1);
                first += days * DAY;
            }
        }
    }
    Some(((start - offset) as u64, (end - offset) as u64))
}

/// The shortest window.
fn shortest(of: &FixedWindow) -> Micros {
    match of.align() {
        Align::Calendar(Period::Month { .. }, _) => Micros::from_secs(28 * 86_400),
        _ => of.window(),
    }
}

/// The time that passes before requests come, their number, their cost, and the percentage that each check keeps for others.
fn moments() -> impl Strategy<Value = Vec<(u64, u32, u64, u8)>> {
    let passes = prop_oneof![2 => Just(0u64), 3 => 0..=500u64, 3 => 0..=5_000u64, 1 => 0..=50_000u64];
    prop::collection::vec((passes, 0..=4u32, 0..=3u64, kept_percent()), 1..40)
}

/// Never more than the limit in any window, or than burst + rate x t.
fn bounded(limit: &Limit, granted: &Granted, by_pass: &Granted) -> Result<(), TestCaseError> {
    let sum = |from, to| granted.sum(from, to);
    for from in granted.times() {
        match limit {
            Limit::SlidingLog(of) => prop_assert!(sum(from, from + of.window().0) <= of.limit()),
            Limit::FixedWindow(of) => match window_around(of, from) {
                Some((start, end)) => prop_assert!(sum(start, end) <= of.limit()),
                // Two windows cover any span as long as one.
                None => prop_assert!(sum(from, from + of.window().0) <= 2 * of.limit()),
            },
            Limit::SlidingWindow(of) => {
                let slot = of.precision().0;
                let start = from - from % slot;
                prop_assert!(sum(start, start + of.window().0) <= of.limit(), "in whole slots");
            }
            Limit::TokenBucket(of) => {
                for to in granted.times().filter(|&to| to >= from) {
                    // With steps, the span may contain one more than fits it.
                    let steps = ((to - from) / of.interval().0 + 1) * of.refill();
                    prop_assert!(sum(from, to + 1) <= of.capacity() + of.overdraft() + steps);
                }
            }
            Limit::LeakyBucket(_) => {}
            Limit::Concurrency(of) => prop_assert!(sum(from, from + of.ttl().0) <= of.limit()),
            Limit::Distinct(_) => unreachable!("`small` has none: see `values_are_those_of_a_table`"),
        }
    }
    // A delay is rounded up to a microsecond, at either end.
    let flows = match limit {
        Limit::LeakyBucket(of) => Some((of.rate(), of.per(), of.burst())),
        Limit::TokenBucket(of) if of.how() == Refill::Continuous => {
            Some((of.refill(), of.interval(), of.capacity() + of.overdraft()))
        }
        _ => None,
    };
    if let Some((rate, per, burst)) = flows {
        for from in by_pass.times() {
            for to in by_pass.times().filter(|&to| to >= from) {
                let flowed = (u128::from(rate) * u128::from(to - from + 1)).div_ceil(per.0.into());
                prop_assert!(u128::from(by_pass.sum(from, to + 1)) <= u128::from(burst) + flowed);
            }
        }
    }
    Ok(())
}

/// The same outcome without the count of refunds.
fn uncounted(mut outcome: Outcome) -> Outcome {
    outcome.limits.iter_mut().for_each(|answer| answer.refunded = 0);
    outcome
}

fn keeps_the_laws(
    limit: &Limit,
    answers: &mut dyn Answers,
    moments: &[(u64, u32, u64, u8)],
) -> Result<(), TestCaseError> {
    let limits = std::slice::from_ref(limit);
    let quota = limit.quota() as i64;
    let mut now = START;
    let (mut granted, mut by_pass) = (Vec::new(), Vec::new());
    for &(passes, requests, cost, kept_percent) in moments {
        now = now.plus(Micros(passes * pace(limit)));
        let ask = Ask { kept_percent, ..Ask::new(requests, cost) };
        let before = answers.check(now, NONE);
        let outcome = answers.check(now, ask);
        let (was, is) = (before.limits[0], outcome.limits[0]);

        // Granted units are charged, neither more nor less; a request that is denied leaves no trace.
        let units = i64::from(outcome.granted) * limit.cost(ask) as i64;
        prop_assert_eq!(is.remaining, was.remaining - units);
        if units == 0 {
            prop_assert_eq!(&answers.check(now, NONE), &before);
        }
        prop_assert!(is.remaining <= quota);
        // The units kept for others are left.
        let kept = limit.kept(ask) as i64;
        prop_assert!(outcome.granted == 0 || kept == 0 || is.remaining >= kept);

        // A request that is not granted could not have been: one more of the same is denied.
        if outcome.granted < requests {
            prop_assert!(outcome.retry_after() > RetryAfter::Now);
            prop_assert_eq!(answers.check(now, Ask { requests: 1, ..ask }).granted, 0);
        }

        // Of those asked for together each sees less than the one before, and waits no less.
        let shares =
            (0..requests).map(|i| (outcome.remaining(limits, 0, i, ask), outcome.allotment(limits, i, ask)));
        let shares: Vec<_> = shares.collect();
        for pair in shares.windows(2).filter(|pair| pair[1].1.granted) {
            prop_assert!(pair[1].0 <= pair[0].0 && pair[1].1.delay >= pair[0].1.delay);
        }
        for (_, share) in shares.iter().filter(|(_, share)| share.granted) {
            granted.push((now.0, limit.cost(ask)));
            by_pass.push((now.plus(share.delay).0, cost));
        }

        // Giving back restores what was, to the microsecond.
        if outcome.granted > 0 {
            answers.settle(now, -(i64::from(outcome.granted) * cost as i64), &outcome);
            let permits: Vec<_> = outcome.permits(outcome.granted).collect();
            answers.release(now, &permits);
            prop_assert_eq!(uncounted(answers.check(now, NONE)).limits, uncounted(before).limits);
            let again = answers.check(now, ask);
            prop_assert_eq!(uncounted(again), uncounted(outcome.clone()));
        }

        // Denied at every microsecond before, granted at it.
        if let RetryAfter::After(span) = outcome.retry_after() {
            let one = Ask { requests: 1, ..ask };
            for early in [1, span.0 / 2, span.0 - 1].into_iter().filter(|&early| early < span.0) {
                prop_assert_eq!(
                    answers.check(now.plus(Micros(early)), one).granted,
                    0,
                    "{} early",
                    span.0 - early
                );
            }
            now = now.plus(span);
            let outcome = answers.check(now, one);
            prop_assert_eq!(outcome.granted, 1, "not granted after {}", span);
            granted.push((now.0, limit.cost(one)));
            by_pass.push((now.plus(outcome.allotment(limits, 0, one).delay).0, cost));
        }
    }
    bounded(limit, &Granted::new(granted), &Granted::new(by_pass))?;

    // The limit is full again at the stated time.
    let reset = answers.check(now, NONE).limits[0].reset;
    let whole = answers.check(now.plus(reset), NONE).limits[0];
    prop_assert_eq!((whole.remaining, whole.reset), (quota, Micros::ZERO));
    Ok(())
}

fn lawful(server: Option<&Redis>, cases: u32) {
    hold(cases, &(small(), moments()), |(limit, moments)| match server {
        None => keeps_the_laws(&limit, &mut Pure(vec![limit.clone()], Subject::default()), &moments),
        Some(server) => {
            let mut store = Store::new(server, vec![limit.clone()]);
            store.plan = plan_with(vec![limit.clone()], several());
            keeps_the_laws(&limit, &mut store, &moments)
        }
    });
}

#[test]
fn the_pure_limits_keep_the_laws() {
    lawful(None, 1_000);
}

#[test]
fn the_lua_keeps_the_laws() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    lawful(Some(&server), 300);
}

/// Whatever requests of other classes take, at whatever times: a request of the class gets what is kept for it.
#[test]
fn what_is_kept_for_a_class_is_there_for_it() {
    let moments = (moments(), 1..=99u8);
    hold(2_000, &(small(), moments), |(limit, (moments, percent))| {
        let limits = std::slice::from_ref(&limit);
        let (mut subject, mut now) = (Subject::default(), START);
        for (passes, requests, cost, more) in moments {
            now = now.plus(Micros(passes * pace(&limit)));
            let kept_percent = more.clamp(percent, 99);
            let ask = Ask { kept_percent, ..Ask::new(requests, cost) };
            let receipt = subject.check(limits, None, now, ask);
            // Some of it is refunded, too.
            subject.settle(limits, None, now, -i64::from(receipt.granted / 2), &receipt);
            let kept = limit.kept(Ask { kept_percent: percent, ..ask });
            let favoured = Ask::new(u32::try_from(kept).unwrap(), 1);
            prop_assert_eq!(subject.clone().check(limits, None, now, favoured).granted, favoured.requests);
        }
        Ok(())
    });
}

/// In real time no more passes than if Redis's clock ran evenly, even if it jumps.
#[test]
fn a_clock_that_goes_back_never_lets_more_through() {
    let passes = prop_oneof![2 => Just(0u64), 3 => 0..=500u64, 3 => 0..=5_000u64, 1 => 0..=50_000u64];
    let back = prop_oneof![8 => Just(0u64), 1 => 1..=3u64, 1 => 0..=20_000u64, 1 => 0..=9_000_000u64];
    let moments = prop::collection::vec((passes, back, 1..=4u32, 1..=3u64), 1..60);
    hold(2_000, &(small(), moments), |(limit, moments)| {
        let mut subject = Subject::default();
        let (mut real, mut behind, mut granted) = (START.0, 0, Vec::new());
        for (passes, back, requests, cost) in moments {
            let pace = pace(&limit);
            // No window of the calendar goes back to before the epoch.
            let back = if pace > 1 { back.min(20_000) } else { back };
            (real, behind) = (real + passes * pace, behind + back * pace);
            let ask = Ask::new(requests, cost);
            let outcome = subject.check(std::slice::from_ref(&limit), None, Micros(real - behind), ask);
            granted.push((real, u64::from(outcome.granted) * limit.cost(ask)));
        }
        let granted = Granted::new(granted);
        for from in granted.times() {
            let within = |span: Micros| granted.sum(from, from + span.0);
            match &limit {
                Limit::SlidingLog(of) => prop_assert!(within(of.window()) <= of.limit()),
                Limit::FixedWindow(of) => prop_assert!(within(shortest(of)) <= 2 * of.limit()),
                Limit::SlidingWindow(of) => prop_assert!(within(of.window()) <= 2 * of.limit()),
                Limit::Concurrency(of) => prop_assert!(within(of.ttl()) <= of.limit()),
                Limit::Distinct(_) => unreachable!("`small` has none: see `values_are_those_of_a_table`"),
                Limit::TokenBucket(of) => {
                    for to in granted.times().filter(|&to| to >= from) {
                        let steps = ((to - from) / of.interval().0 + 1) * of.refill();
                        prop_assert!(granted.sum(from, to + 1) <= of.capacity() + of.overdraft() + steps);
                    }
                }
                Limit::LeakyBucket(of) => {
                    let queue = limit.quota();
                    for to in granted.times().filter(|&to| to >= from) {
                        let flowed =
                            (u128::from(of.rate()) * u128::from(to - from)).div_ceil(of.per().0.into());
                        prop_assert!(u128::from(granted.sum(from, to + 1)) <= u128::from(queue) + flowed);
                    }
                }
            }
        }
        Ok(())
    });
}

/// A grant, with the number of its units that have been refunded; or a charge, which is not refunded.
struct Receipt {
    outcome: Outcome,
    units: u64,
    refunded: u64,
    charge: bool,
}

/// One step of a history with refunds: time goes on, then a check, a charge, or a part of a receipt goes back.
#[derive(Clone, Copy, Debug)]
enum Move {
    Check {
        requests: u32,
        cost: u64,
    },
    /// Refunds this number of units of the receipt that many receipts ago; at most those that are left of it.
    Refund {
        units: u64,
        ago: usize,
    },
    /// Charges these units, at most as many as the limit accepts in debt.
    Charge {
        units: u64,
    },
}

fn moves() -> impl Strategy<Value = Vec<(u64, Move)>> {
    let passes = prop_oneof![4 => Just(0u64), 3 => 0..=500u64, 3 => 0..=5_000u64, 1 => 0..=30_000u64];
    let check = (1..=4u32, 1..=4u64).prop_map(|(requests, cost)| Move::Check { requests, cost });
    let units = prop_oneof![1..=3u64, Just(u64::MAX)];
    let refund = (units, 0..6usize).prop_map(|(units, ago)| Move::Refund { units, ago });
    prop::collection::vec((passes, prop_oneof![3 => check, 2 => refund]), 1..40)
}

/// The units that an uncharged limit would have left: one that has seen only the units that were not refunded, at the times at which they
/// were granted. Written from the algorithms' definitions and not from their code; windows and steps begin where the limit under test began
/// them, because a refund does not move a window.
fn left_of_the_uncharged(limit: &Limit, net: &[(Grid, u64, u64)], now: u64, grid: Grid) -> i128 {
    let sum = |counts: &dyn Fn(&(Grid, u64, u64)) -> bool| -> i128 {
        net.iter().filter(|entry| counts(entry)).map(|&(_, _, units)| i128::from(units)).sum()
    };
    let bucket = |rate: u64, per: Micros, capacity: u64, delay: Micros| {
        // In parts of a unit: a unit is `per`, and `rate` flow in a microsecond.
        let (mut owed, mut last) = (0u128, 0);
        for &(_, at, units) in net {
            owed = owed.saturating_sub(u128::from(at - last) * u128::from(rate));
            (owed, last) = (owed + u128::from(units) * u128::from(per.0), at);
        }
        owed = owed.saturating_sub(u128::from(now - last) * u128::from(rate));
        let room = i128::from(capacity) * i128::from(per.0) + i128::from(delay.0) * i128::from(rate);
        (room - owed as i128).div_euclid(per.0.into())
    };
    match limit {
        Limit::FixedWindow(of) => i128::from(of.limit()) - sum(&|&(of, ..)| of == grid),
        Limit::SlidingLog(of) => i128::from(of.limit()) - sum(&|&(_, at, _)| at + of.window().0 > now),
        Limit::SlidingWindow(of) => {
            let slot = of.precision().0;
            let start = now - now % slot;
            let whole = sum(&|&(_, at, _)| at + of.window().0 >= start + slot);
            let oldest = start - of.window().0;
            let part = sum(&|&(_, at, _)| at >= oldest && at < oldest + slot);
            let covered = i128::from(slot - (now - start));
            i128::from(of.limit()) - whole - (part * covered + i128::from(slot) - 1) / i128::from(slot)
        }
        Limit::TokenBucket(of) if of.how() == Refill::Continuous => {
            bucket(of.refill(), of.interval(), of.capacity(), Micros::ZERO)
        }
        Limit::TokenBucket(of) => {
            let (mut missing, mut current, mut last) = (0u128, None::<Grid>, 0);
            let steps = |from: u64, to: u64, begun: u64| {
                u128::from((to - begun) / of.interval().0 - (from - begun) / of.interval().0)
            };
            for &(grid, at, units) in net {
                missing = match current {
                    Some(begun) if begun == grid => {
                        missing.saturating_sub(steps(last, at, begun.0) * u128::from(of.refill()))
                    }
                    _ => 0,
                };
                (current, last) = (Some(grid), at);
                missing += u128::from(units);
            }
            if let Some(begun) = current {
                missing = missing.saturating_sub(steps(last, now, begun.0) * u128::from(of.refill()));
            }
            i128::from(of.capacity()) - missing as i128
        }
        Limit::LeakyBucket(of) => bucket(of.rate(), of.per(), of.burst(), of.max_delay()),
        Limit::Concurrency(_) | Limit::Distinct(_) => i128::MAX,
    }
}

/// Names the window or the steps in which units were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid(u64);

/// Quota is conserved: after refunds in any parts, at any times, between any other requests, a limit never has more
/// left than one that was never charged what has been refunded; and never more than was asked back comes back.
fn conserves(limit: &Limit, answers: &mut dyn Answers, moves: &[(u64, Move)]) -> Result<(), TestCaseError> {
    let mut now = START;
    let mut receipts: Vec<Receipt> = Vec::new();
    let mut grids: Vec<Grid> = Vec::new();
    let mut begun = Grid(0);
    let debt = limit.quota() * u64::from(limit.debt());
    for &(passes, step) in moves {
        now = now.plus(Micros(passes * pace(limit)));
        let question = answers.check(now, NONE);
        let before = question.limits[0];
        let mut took = |outcome: Outcome, units, charge| {
            begun = match limit {
                Limit::FixedWindow(_) => Grid(now.0 + outcome.limits[0].reset.0),
                Limit::TokenBucket(_) if before.remaining < limit.quota() as i64 => begun,
                _ => Grid(now.0),
            };
            grids.push(begun);
            receipts.push(Receipt { outcome, units, refunded: 0, charge });
        };
        match step {
            Move::Check { requests, cost } => {
                let outcome = answers.check(now, Ask::new(requests, cost));
                let units = u64::from(outcome.granted) * cost;
                if outcome.granted > 0 {
                    took(outcome, units, false);
                }
            }
            Move::Charge { units } => {
                let room = before.remaining.saturating_add_unsigned(debt);
                let units = units.min(u64::try_from(room).unwrap_or(0));
                let outcome = answers.settle(now, units as i64, &question);
                prop_assert_eq!(outcome.limits[0].remaining, before.remaining - units as i64);
                if units > 0 {
                    took(outcome, units, true);
                }
            }
            Move::Refund { units, ago } => {
                let grant = receipts.iter_mut().rev().filter(|receipt| !receipt.charge).nth(ago);
                let Some(receipt) = grant else { continue };
                let units = units.min(receipt.units - receipt.refunded);
                let after = answers.settle(now, -(units as i64), &receipt.outcome).limits[0];
                prop_assert!(after.remaining <= before.remaining + units as i64, "more than was asked back");
                prop_assert!(after.remaining >= before.remaining, "a refund takes nothing");
                receipt.refunded += units;
            }
        }
        let net: Vec<_> = std::iter::zip(&grids, &receipts)
            .map(|(&grid, receipt)| (grid, receipt.outcome.at.0, receipt.units - receipt.refunded))
            .collect();
        let is = answers.check(now, NONE).limits[0];
        // The current window, if it has begun; otherwise no grant counts.
        let grid = Grid(if is.reset == Micros::ZERO { 0 } else { now.0 + is.reset.0 });
        let most = left_of_the_uncharged(limit, &net, now.0, grid);
        prop_assert!(
            i128::from(is.remaining) <= most,
            "{} left, {} without the refunded",
            is.remaining,
            most
        );
        if receipts.iter().all(|receipt| receipt.refunded == 0) {
            prop_assert_eq!(i128::from(is.remaining), most, "what was taken, and no more");
        }
    }
    Ok(())
}

fn conserving(server: Option<&Redis>, cases: u32) {
    let counted = small().prop_filter("units", |limit| !matches!(limit, Limit::Concurrency(_)));
    hold(cases, &(counted, moves()), |(limit, moves)| match server {
        None => conserves(&limit, &mut Pure(vec![limit.clone()], Subject::default()), &moves),
        Some(server) => conserves(&limit, &mut Store::new(server, vec![limit.clone()]), &moves),
    });
}

#[test]
fn the_pure_limits_conserve_what_is_refunded() {
    conserving(None, 6_000);
}

#[test]
fn the_lua_conserves_what_is_refunded() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    conserving(Some(&server), 400);
}

/// If a charge is refunded in parts, at any later times, the parts together give back no more than the whole
/// would have at the time of the first part.
#[test]
fn parts_of_a_receipt_give_back_no_more_than_the_whole() {
    let parts = prop::collection::vec((0..=3_000u64, 1..=4u64), 1..8);
    let histories = (small(), moves(), 0..10_000u64, 1..=4u32, 1..=4u64, parts);
    hold(4_000, &histories, |(limit, moves, rests, requests, cost, parts)| {
        let limits = std::slice::from_ref(&limit);
        let (mut subject, mut now) = (Subject::default(), START);
        for (passes, step) in moves {
            now = now.plus(Micros(passes * pace(&limits[0])));
            if let Move::Check { requests, cost } = step {
                subject.check(limits, None, now, Ask::new(requests, cost));
            }
        }
        let receipt = subject.check(limits, None, now, Ask::new(requests, cost));
        let mut units = u64::from(receipt.granted) * cost;
        now = now.plus(Micros(rests * pace(&limits[0])));
        let mut whole = subject.clone();
        whole.settle(limits, None, now, -(units as i64), &receipt);
        for (passes, part) in parts {
            let part = part.min(units);
            units -= part;
            subject.settle(limits, None, now, -(part as i64), &receipt);
            let [parts, whole] =
                [&mut subject, &mut whole].map(|subject| subject.check(limits, None, now, NONE).limits[0]);
            prop_assert!(parts.remaining <= whole.remaining, "{} of {:?}", part, receipt);
            now = now.plus(Micros(passes * pace(&limits[0])));
        }
        Ok(())
    });
}

/// The same law beside the limit itself, when Redis's clock goes back now and then: a second limit sees only the requests
/// that are never refunded, at the times that really pass. For limits whose state is a moment; windows and intervals that
/// a clock moves are not those of the second limit.
#[test]
fn refunds_conserve_the_quota_when_the_clock_goes_back() {
    let passes = prop_oneof![3 => Just(0u64), 3 => 0..=500u64, 3 => 0..=5_000u64];
    let back = prop_oneof![8 => Just(0u64), 1 => 1..=3u64, 1 => 0..=9_000u64];
    let check = (1..=4u32, 1..=4u64, any::<bool>());
    let refund = (prop_oneof![1..=3u64, Just(u64::MAX)], 0..6usize);
    let step = prop_oneof![3 => check.prop_map(Ok), 2 => refund.prop_map(Err)];
    let counted = small().prop_filter("a moment", |limit| match limit {
        Limit::TokenBucket(of) => of.how() == Refill::Continuous,
        Limit::LeakyBucket(_) | Limit::SlidingLog(_) => true,
        _ => false,
    });
    let histories = (counted, prop::collection::vec((passes, back, step), 1..40));
    hold(5_000, &histories, |(limit, steps)| {
        let limits = std::slice::from_ref(&limit);
        let (mut subject, mut uncharged) = (Subject::default(), Subject::default());
        let (mut real, mut behind) = (START, 0);
        let mut receipts = Vec::new();
        for (passes, back, step) in steps {
            (real, behind) = (real.plus(Micros(passes)), behind + back);
            let now = Micros(real.0 - behind);
            match step {
                Ok((requests, cost, refunded)) => {
                    let receipt = subject.check(limits, None, now, Ask::new(requests, cost));
                    let units = u64::from(receipt.granted) * cost;
                    if refunded {
                        receipts.push((receipt, units));
                    } else {
                        let ask = Ask::new(receipt.granted, cost);
                        let granted = uncharged.check(limits, None, real, ask).granted;
                        prop_assert_eq!(granted, receipt.granted, "more than the uncharged limit");
                    }
                }
                Err((units, ago)) => {
                    let Some((receipt, left)) = receipts.iter_mut().rev().nth(ago) else { continue };
                    let units = units.min(*left);
                    *left -= units;
                    subject.settle(limits, None, now, -(units as i64), receipt);
                }
            }
            let [is, most] = [(&mut subject, now), (&mut uncharged, real)]
                .map(|(subject, now)| subject.check(limits, None, now, NONE).limits[0]);
            prop_assert!(
                is.remaining <= most.remaining,
                "{} left, {} uncharged",
                is.remaining,
                most.remaining
            );
        }
        Ok(())
    });
}

/// Redis's clock goes back, and a request comes: a stepwise bucket has no more left than if the clock had run on. Its tokens come later, by
/// the step of the clock and an interval at most, and when it says so: the times of this request hold.
#[test]
fn a_stepwise_bucket_begins_its_interval_again_when_the_clock_goes_back() {
    let span = prop_oneof![Just(Micros(1_000)), Just(Micros(10_000)), Just(Micros(7_777))];
    let bucket = (1..=9u64, 1..=9u64, span, 0..=5u64).prop_filter_map(
        "its bounds",
        |(most, refill, interval, debt)| {
            TokenBucket::new(most, refill, interval, Refill::Stepwise, debt).ok()
        },
    );
    let back = prop_oneof![1..=3u64, 1..=1_000u64, 1..=50_000u64];
    let ask = (1..=4u32, 1..=4u64).prop_map(|(requests, cost)| Ask::new(requests, cost));
    let held = std::cell::Cell::new(0);
    hold(6_000, &(bucket, moves(), 0..=3_000u64, back, ask), |(bucket, moves, rest, back, ask)| {
        let limits = &[Limit::from(bucket.clone())];
        let (mut subject, mut now) = (Subject::default(), START);
        for (passes, step) in moves {
            now = now.plus(Micros(passes));
            if let Move::Check { requests, cost } = step {
                subject.check(limits, None, now, Ask::new(requests, cost));
            }
        }
        let mut unmoved = subject.clone();
        let real = now.plus(Micros(rest));
        let now = Micros(real.0 - back);
        let check = |subject: &mut Subject, now, ask| subject.check(limits, None, now, ask);
        let [is, was] = [(&mut subject.clone(), now), (&mut unmoved, real)]
            .map(|(subject, now)| check(subject, now, NONE).limits[0]);
        prop_assert!(
            is.remaining <= was.remaining,
            "{} left, {} without the step",
            is.remaining,
            was.remaining
        );
        let latest = was.reset.0 + back + bucket.interval().0;
        prop_assert!(is.reset.0 <= latest, "whole in {}, at the latest in {}", is.reset.0, latest);
        let outcome = check(&mut subject, now, ask);
        if let (0, RetryAfter::After(wait)) = (outcome.granted, outcome.limits[0].retry_after) {
            held.set(held.get() + 1);
            prop_assert!(check(&mut subject.clone(), now.plus(wait), ask).granted > 0, "after {:?}", wait);
        }
        let whole = check(&mut subject, now.plus(outcome.limits[0].reset), NONE).limits[0].remaining;
        prop_assert_eq!(whole, bucket.capacity() as i64);
        Ok(())
    });
    assert!(held.get() > 0, "no request was denied");
}

/// Bounds the grants in real time if Redis's clock goes back and grants are refunded. `docs/bounds.md` states the bound: never more than
/// without refunds; in windows as many units more as are refunded of grants from before the clock went back; and the limit once more for
/// each time that the clock goes back into a window whose count is forgotten, here because a refund emptied a later one.
fn bounded_when_the_clock_goes_back(
    limit: &Limit,
    answers: &mut dyn Answers,
    steps: &[(u64, u64, Result<(u32, u64), (u64, usize)>)],
) -> Result<(), TestCaseError> {
    let (mut real, mut behind, mut stale) = (START.0, 0, 0);
    let (mut refunded, mut forgotten) = (false, 0);
    // Of each grant: its real time, how far behind the clock was, what of its units is not refunded, its outcome.
    let mut receipts: Vec<(u64, u64, u64, Outcome)> = Vec::new();
    for &(passes, back, step) in steps {
        let pace = pace(limit);
        // No window of the calendar goes back to before the epoch.
        let back = if pace > 1 { back.min(20_000) } else { back };
        (real, behind) = (real + passes * pace, behind + back * pace);
        let now = Micros(real - behind);
        if back > 0 && refunded {
            (refunded, forgotten) = (false, forgotten + 1);
        }
        match step {
            Ok((requests, cost)) => {
                let outcome = answers.check(now, Ask::new(requests, cost));
                let units = u64::from(outcome.granted) * cost;
                receipts.push((real, behind, units, outcome));
            }
            Err((units, ago)) => {
                let Some((_, then, left, outcome)) = receipts.iter_mut().rev().nth(ago) else { continue };
                let units = units.min(*left);
                *left -= units;
                stale += if *then < behind { units } else { 0 };
                refunded = true;
                answers.settle(now, -(units as i64), outcome);
            }
        }
    }
    // The units granted in each window since the clock went back last.
    if let Limit::FixedWindow(of) = limit {
        let mut windows = std::collections::BTreeMap::new();
        for (_, behind, units, outcome) in &receipts {
            *windows.entry((behind, outcome.at.plus(outcome.limits[0].reset))).or_insert(0) += units;
        }
        for (window, units) in windows {
            prop_assert!(units <= of.limit() + stale, "{} units in {:?}, {} refunded", units, window, stale);
        }
    }
    let granted = Granted::new(receipts.iter().map(|(real, _, units, _)| (*real, *units)).collect());
    for from in granted.times() {
        let within = |span: Micros| granted.sum(from, from + span.0);
        match limit {
            Limit::SlidingLog(of) => prop_assert!(within(of.window()) <= of.limit()),
            Limit::FixedWindow(of) => {
                prop_assert!(within(shortest(of)) <= (2 + forgotten) * of.limit() + stale);
            }
            Limit::SlidingWindow(of) => prop_assert!(within(of.window()) <= 2 * of.limit() + stale),
            Limit::TokenBucket(of) => {
                for to in granted.times().filter(|&to| to >= from) {
                    let steps = ((to - from) / of.interval().0 + 1) * of.refill();
                    prop_assert!(granted.sum(from, to + 1) <= of.capacity() + of.overdraft() + steps);
                }
            }
            Limit::LeakyBucket(of) => {
                for to in granted.times().filter(|&to| to >= from) {
                    let flowed = (u128::from(of.rate()) * u128::from(to - from)).div_ceil(of.per().0.into());
                    prop_assert!(u128::from(granted.sum(from, to + 1)) <= u128::from(limit.quota()) + flowed);
                }
            }
            Limit::Concurrency(_) | Limit::Distinct(_) => {}
        }
    }
    Ok(())
}

fn refunding_when_the_clock_goes_back(server: Option<&Redis>, cases: u32) {
    let passes = prop_oneof![2 => Just(0u64), 3 => 0..=500u64, 3 => 0..=5_000u64];
    let back = prop_oneof![8 => Just(0u64), 1 => 1..=3u64, 1 => 0..=20_000u64];
    let refund = (prop_oneof![1..=3u64, Just(u64::MAX)], 0..6usize);
    let step = prop_oneof![3 => (1..=9u32, 1..=2u64).prop_map(Ok), 2 => refund.prop_map(Err)];
    let steps = prop::collection::vec((passes, back, step), 1..60);
    let counted = small().prop_filter("units", |limit| !matches!(limit, Limit::Concurrency(_)));
    hold(cases, &(counted, steps), |(limit, steps)| match server {
        None => bounded_when_the_clock_goes_back(
            &limit,
            &mut Pure(vec![limit.clone()], Subject::default()),
            &steps,
        ),
        Some(server) => {
            bounded_when_the_clock_goes_back(&limit, &mut Store::new(server, vec![limit.clone()]), &steps)
        }
    });
}

#[test]
fn refunds_let_through_no_more_than_stated_when_the_clock_goes_back() {
    refunding_when_the_clock_goes_back(None, 6_000);
}

#[test]
fn refunds_of_the_lua_let_through_no_more_than_stated_when_the_clock_goes_back() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    refunding_when_the_clock_goes_back(Some(&server), 400);
}

/// The largest excess: a grant is refunded into a window that the clock reaches twice, from units that others have taken in it.
fn refunded_into_a_window_that_comes_twice(new: &mut dyn FnMut(Limit) -> Box<dyn Answers>) {
    let second = Micros::from_secs(1);
    let ten = Ask::new(10, 1);
    let at = |tenths: u64| Micros(100_000_000 * 100_000 + tenths * 100_000);
    for limit in [
        Limit::from(FixedWindow::new(10, second, Align::Clock).unwrap()),
        // Too large for one number.
        FixedWindow::new(10, second, Align::Clock).map(Limit::from).unwrap().indebted(1).unwrap(),
        SlidingWindow::new(10, second, second).unwrap().into(),
        SlidingWindow::new(10, second, Micros::from_millis(500)).unwrap().into(),
    ] {
        let mut answers = new(limit.clone());
        let receipt = answers.check(at(1_002), ten);
        assert_eq!(receipt.granted, 10);
        // Redis's clock goes back by three windows. The granted units count until the end of the next window.
        assert_eq!(answers.check(at(973), ten).granted, 0, "{limit:?}");
        let again = answers.check(at(1_002), ten);
        assert_eq!(again.granted, 10, "{limit:?}");
        // The refund is of the first ten, and comes from the second ten.
        answers.settle(at(1_003), -10, &receipt);
        assert_eq!(answers.check(at(1_004), ten).granted, 10, "{limit:?}");
        // Not a second time: these are refunded in their turn, and others only to what they charged.
        assert_eq!(answers.check(at(1_005), ten).granted, 0, "{limit:?}");
    }
}

#[test]
fn a_refund_into_a_window_that_comes_twice_lets_through_what_is_refunded_once() {
    refunded_into_a_window_that_comes_twice(&mut |limit| Box::new(Pure(vec![limit], Subject::default())));
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    refunded_into_a_window_that_comes_twice(&mut |limit| Box::new(Store::new(&server, vec![limit])));
}

/// Ten units, after five of them have flowed, come back as five, in whatever parts: the other five are another request's.
#[test]
fn ten_units_of_which_five_have_flowed_come_back_as_five() {
    let second = Micros::from_secs(1);
    let limits: [Limit; 3] = [
        LeakyBucket::new(1, second, 10, Micros::ZERO).unwrap().into(),
        TokenBucket::new(10, 1, second, Refill::Continuous, 7).unwrap().into(),
        TokenBucket::new(10, 1, second, Refill::Stepwise, 0).unwrap().into(),
    ];
    let server = Redis::start();
    for (limit, parts) in
        limits.iter().flat_map(|limit| [vec![10], vec![5, 5], vec![1; 10]].map(|parts| (limit, parts)))
    {
        let pure: Box<dyn Answers> = Box::new(Pure(vec![limit.clone()], Subject::default()));
        let lua = server
            .as_ref()
            .map(|server| -> Box<dyn Answers> { Box::new(Store::new(server, vec![limit.clone()])) });
        for mut answers in [pure].into_iter().chain(lua) {
            let receipt = answers.check(START, Ask::new(10, 1));
            let now = START.plus(Micros(5 * second.0));
            assert_eq!((receipt.granted, answers.check(now, Ask::new(5, 1)).granted), (10, 5));
            for &part in &parts {
                answers.settle(now, -part, &receipt);
            }
            // A bucket that flows evenly is a microsecond behind: its answer was rounded up.
            let left = answers.check(now.plus(Micros(1)), NONE).limits[0].remaining;
            assert_eq!(left, 5, "{limit:?} in parts of {parts:?}");
        }
    }
}

/// Requests with a value, or a refund of the check that many checks ago.
#[derive(Clone, Copy, Debug)]
enum Used {
    Value { value: u8, requests: u32, cost: u64 },
    Refund { ago: usize },
}

/// A limit of values, against a table of them: when each was first used, and by how many requests.
fn values_are_those_of_a_table(
    (limit, window): (u64, u64),
    answers: &mut dyn Answers,
    steps: &[(u64, Used)],
) -> Result<(), TestCaseError> {
    let (mut now, mut checks) = (START, Vec::<(u8, u64, Outcome, u64)>::new());
    let mut table: HashMap<u8, (u64, u32)> = HashMap::new();
    for &(passes, step) in steps {
        now = now.plus(Micros(passes));
        table.retain(|_, (at, ..)| *at + window > now.0);
        let ends = |table: &HashMap<u8, (u64, u32)>| -> Vec<u64> {
            table.values().map(|(at, ..)| at + window - now.0).collect()
        };
        let outcome = match step {
            Used::Value { value, requests, cost } => {
                let ask = Ask { member: Member([value; 12]), ..Ask::new(requests, cost) };
                let outcome = answers.check(now, ask);
                let passes = table.contains_key(&value) || (table.len() as u64) < limit;
                prop_assert_eq!(outcome.granted, if passes { requests } else { 0 });
                if passes && cost > 0 {
                    table.entry(value).or_insert((now.0, 0)).1 += requests;
                }
                // The next request with this value passes, or waits for the first value to end.
                let is_denied = !table.contains_key(&value) && table.len() as u64 >= limit;
                let soonest = ends(&table).into_iter().min().filter(|_| is_denied);
                let wanted = soonest.map_or(RetryAfter::Now, |span| RetryAfter::After(Micros(span)));
                prop_assert_eq!(outcome.retry_after(), wanted);
                checks.push((value, cost, outcome.clone(), now.0));
                outcome
            }
            Used::Refund { ago } => {
                let Some((value, cost, receipt, at)) = checks.iter().rev().nth(ago) else { continue };
                // The receipt says when the value was first used: of two first uses in the same microsecond it may be either's.
                // A check that was denied has added none.
                if *cost > 0 && receipt.granted > 0 && table.get(value) == Some(&(*at, 1)) {
                    table.remove(value);
                }
                answers.settle(now, -(*cost as i64), receipt)
            }
        };
        let (left, reset) = (limit as i64 - table.len() as i64, ends(&table).into_iter().max());
        let answer = outcome.limits[0];
        prop_assert_eq!((answer.remaining, answer.reset), (left, Micros(reset.unwrap_or(0))));
    }
    Ok(())
}

fn values_hold(server: Option<&Redis>, cases: u32) {
    let used = (1..10u8, 1..=3u32, 0..=2u64);
    let act = prop_oneof![
        5 => used.prop_map(|(value, requests, cost)| Used::Value { value, requests, cost }),
        2 => (0..4usize).prop_map(|ago| Used::Refund { ago }),
    ];
    let passes = prop_oneof![Just(0u64), 0..=300u64, 0..=3_000u64];
    let steps = prop::collection::vec((passes, act), 1..60);
    hold(cases, &(1..=5u64, 1_000..=5_000u64, steps), |(limit, window, steps)| {
        let limits = vec![Distinct::new(limit, Micros(window)).unwrap().into()];
        match server {
            None => {
                let mut pure = Pure(limits, Subject::default());
                values_are_those_of_a_table((limit, window), &mut pure, &steps)
            }
            Some(server) => {
                values_are_those_of_a_table((limit, window), &mut Store::new(server, limits), &steps)
            }
        }
    });
}

#[test]
fn the_pure_limit_counts_different_values() {
    values_hold(None, 6_000);
}

#[test]
fn the_lua_counts_different_values() {
    let Some(server) = Redis::start() else { return weir_support::not_tested("no redis-server here") };
    values_hold(Some(&server), 500);
}
