//! Random histories on a real Redis, with the time brought along: each reply of the Lua equals the pure limits'.
#![cfg(not(target_arch = "wasm32"))]
#![allow(missing_docs)]

#[path = "support/redis.rs"]
#[allow(dead_code)]
mod redis;

use std::cell::RefCell;
use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::{Connection, Redis};
use weir::limit::{
    Align, Ask, Concurrency, FixedWindow, Invalid, LeakyBucket, Lease, Limit, Outcome, Refill, SlidingLog,
    SlidingWindow, Subject, TokenBucket,
};
use weir::resp::{self, Reply};
use weir::script::{Form, NamedLimit, Plan};
use weir::time::Micros;

/// One step of a history: time goes on (or back), then somebody does something, under one of two configurations.
#[derive(Clone, Copy, Debug)]
struct Step {
    passes: i64,
    configuration: usize,
    act: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Check {
        requests: u32,
        cost: u64,
    },
    /// Of the check that many checks ago.
    Settle {
        units: i64,
        ago: usize,
    },
    Release {
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
    (count(), span(), prop_oneof![Just(Align::Clock), Just(Align::First)])
        .prop_map(|(limit, window, align)| FixedWindow::new(limit, window, align).map(Limit::from))
}

fn sliding_log() -> impl Strategy<Value = Built> {
    (count(), span()).prop_map(|(limit, window)| SlidingLog::new(limit, window).map(Limit::from))
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

fn valid(built: BoxedStrategy<Built>) -> BoxedStrategy<Limit> {
    built.prop_filter_map("parameters that go together", Result::ok).boxed()
}

/// The same limit under two configurations: mostly the same, sometimes with other numbers, seldom another algorithm.
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
        concurrency()
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
        1 => -10_000_000_000..=0i64,
        1 => -3_000..=0i64,
    ];
    let requests = || prop_oneof![6 => 0..=5u32, 1 => 0..=1_000u32, 1 => any::<u32>()];
    let cost = || prop_oneof![6 => 0..=3u64, 2 => 0..=1_000u64, 1 => count(), 1 => any::<u64>()];
    let units = prop_oneof![6 => -5..=5i64, 1 => -1_000_000..=1_000_000i64, 1 => any::<i64>()];
    let act = prop_oneof![
        6 => (requests(), cost()).prop_map(|(requests, cost)| Act::Check { requests, cost }),
        1 => (units, 0..4usize).prop_map(|(units, ago)| Act::Settle { units, ago }),
        1 => (requests(), 0..4usize).prop_map(|(requests, ago)| Act::Release { requests, ago }),
    ];
    let configuration = prop_oneof![5 => Just(0usize), 1 => Just(1)];
    (passes, configuration, act).prop_map(|(passes, configuration, act)| Step { passes, configuration, act })
}

/// A Redis, and what it knows already.
struct Store {
    redis: Connection,
    loaded: HashSet<String>,
    histories: u64,
}

impl Store {
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
}

fn plan(limits: impl Iterator<Item = Limit>) -> Plan {
    let name = |(i, limit)| NamedLimit { name: format!("limit{i}"), limit };
    Plan::new(limits.enumerate().map(name).collect()).unwrap()
}

/// What the pure limits say of a step.
#[derive(Debug)]
enum Expected {
    Outcome(Outcome),
    Released,
}

fn runs_alike(store: &RefCell<Store>, limits: &[[Limit; 2]], steps: &[Step]) -> Result<(), TestCaseError> {
    let mut store = store.borrow_mut();
    let plans = [0, 1].map(|i| plan(limits.iter().map(|limits| limits[i].clone())));
    plans.iter().for_each(|plan| store.load(plan));
    store.histories += 1;
    let tag = format!("{{p|{}}}", store.histories).into_bytes();

    let mut subject = Subject::default();
    let mut now = Micros(1_790_000_000_123_456);
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    let mut checks = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        now = Micros(now.0.saturating_add_signed(step.passes));
        let plan = &plans[step.configuration];
        let before = |ago: usize| checks.iter().rev().nth(ago).cloned();
        match step.act {
            Act::Check { requests, cost } => {
                let ask = Ask { requests, cost };
                plan.check(&tag, ask, Some(now), Form::Evalsha, &mut commands);
                let outcome = subject.check(plan.limits(), now, ask);
                checks.push(outcome.clone());
                expected.push((i, Expected::Outcome(outcome)));
            }
            Act::Settle { units, ago } => {
                let Some(paid) = before(ago) else { continue };
                plan.settle(&tag, units, &paid, Some(now), Form::Evalsha, &mut commands);
                expected.push((i, Expected::Outcome(subject.settle(plan.limits(), now, units, &paid))));
            }
            Act::Release { requests, ago } => {
                let Some(paid) = before(ago) else { continue };
                let leases: Vec<Lease> = paid.leases(requests).collect();
                if plan.release(&tag, &leases, Some(now), Form::Evalsha, &mut commands) {
                    subject.release(&leases);
                    expected.push((i, Expected::Released));
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
            Expected::Released => prop_assert!(matches!(reply, Reply::Integer(_)), "step {}: {:?}", i, reply),
        }
    }
    Ok(())
}

fn holds(cases: u32, limits: impl Strategy<Value = Vec<[Limit; 2]>>) {
    let Some(server) = Redis::start() else { return eprintln!("skipped: no redis-server") };
    let store = Store::new(&server);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let histories = (limits, prop::collection::vec(step(), 1..60));
    let result =
        TestRunner::new(config).run(&histories, |(limits, steps)| runs_alike(&store, &limits, &steps));
    if let Err(error) = result {
        panic!("{error}");
    }
}

macro_rules! alone {
    ($($algorithm:ident),+) => {$(
        #[test]
        fn $algorithm() {
            holds(700, limits_of(|| super::$algorithm().boxed()).prop_map(|limit| vec![limit]));
        }
    )+};
}

mod each_reply_of_lua_equals_the_pure_limit {
    use super::*;
    alone!(fixed_window, sliding_log, sliding_window, token_bucket, leaky_bucket, concurrency);

    #[test]
    fn of_any_mix() {
        holds(2_000, prop::collection::vec(limits_of(any_limit), 1..=4));
    }
}
