//! Random histories: each reply of the Lua on a real Redis equals the pure limits'.
#![cfg(not(target_arch = "wasm32"))]
#![allow(missing_docs)]

#[path = "support/redis.rs"]
#[allow(dead_code)]
mod redis;

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::{Connection, Redis};
use weir::limit::{
    Align, Ask, Concurrency, FixedWindow, LeakyBucket, Limit, Refill, SlidingLog, SlidingWindow, Subject,
    TokenBucket,
};
use weir::resp;
use weir::script::{BadReply, Form, NamedLimit, Plan};
use weir::time::Micros;

/// One step of a history: time goes on (or back), then somebody asks.
#[derive(Clone, Copy, Debug)]
struct Step {
    passes: i64,
    requests: u32,
    cost: u64,
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

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (count(), span(), prop_oneof![Just(Align::Clock), Just(Align::First)])
            .prop_map(|(limit, window, align)| FixedWindow::new(limit, window, align).map(Limit::from)),
        (count(), span()).prop_map(|(limit, window)| SlidingLog::new(limit, window).map(Limit::from)),
        (count(), span(), prop_oneof![Just(1u64), Just(2), Just(3), Just(10), Just(100)])
            .prop_map(|(limit, slot, n)| SlidingWindow::new(limit, Micros(slot.0 * n), slot).map(Limit::from)),
        (count(), count(), span(), any::<bool>(), prop_oneof![Just(0), count()]).prop_map(
            |(capacity, refill, interval, stepwise, overdraft)| {
                let how = if stepwise { Refill::Stepwise } else { Refill::Continuous };
                TokenBucket::new(capacity, refill, interval, how, overdraft).map(Limit::from)
            }
        ),
        (count(), span(), count(), prop_oneof![Just(Micros::ZERO), span()])
            .prop_map(|(rate, per, burst, max_delay)| LeakyBucket::new(rate, per, burst, max_delay).map(Limit::from)),
        (count(), span()).prop_map(|(limit, ttl)| Concurrency::new(limit, ttl).map(Limit::from)),
    ]
    .prop_filter_map("parameters that go together", Result::ok)
}

fn step() -> impl Strategy<Value = Step> {
    let passes = prop_oneof![
        3 => Just(0),
        3 => 0..=2_000i64,
        4 => 0..=2_000_000i64,
        2 => 0..=200_000_000i64,
        1 => 0..=100_000_000_000i64,
        1 => -10_000_000_000..=0i64,
        1 => -3_000..=0i64,
    ];
    let requests = prop_oneof![6 => 0..=5u32, 1 => 0..=1_000u32, 1 => any::<u32>()];
    let cost = prop_oneof![6 => 0..=3u64, 2 => 0..=1_000u64, 1 => count(), 1 => any::<u64>()];
    (passes, requests, cost).prop_map(|(passes, requests, cost)| Step { passes, requests, cost })
}

struct Store {
    redis: Connection,
    known: std::collections::HashSet<String>,
    histories: u64,
}

impl Store {
    fn load(&mut self, plan: &Plan) {
        if self.known.insert(plan.source().to_owned()) {
            let reply = self.redis.call(&[b"SCRIPT", b"LOAD", plan.source().as_bytes()]);
            assert_eq!(reply[0], b'$', "{}", String::from_utf8_lossy(&reply));
        }
    }
}

fn plan(limits: Vec<Limit>) -> Plan {
    let name = |(i, limit)| NamedLimit { name: format!("l{i}"), limit };
    Plan::new(limits.into_iter().enumerate().map(name).collect()).unwrap()
}

#[test]
fn each_reply_of_lua_equals_the_pure_limits() {
    let Some(server) = Redis::start() else { return eprintln!("skipped: no redis-server") };
    let store = RefCell::new(Store { redis: server.connect(), known: Default::default(), histories: 0 });
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let histories = (prop::collection::vec(limit(), 1..=3), prop::collection::vec(step(), 1..40));
    let result = runner.run(&histories, |(limits, steps)| {
        let mut store = store.borrow_mut();
        let plan = plan(limits);
        store.load(&plan);
        store.histories += 1;
        let tag = format!("{{p|{}}}", store.histories);
        let mut subject = Subject::default();
        let mut now = Micros(1_790_000_000_123_456);
        let (mut commands, mut expected) = (Vec::new(), Vec::new());
        for step in &steps {
            now = Micros(now.0.saturating_add_signed(step.passes));
            let ask = Ask { requests: step.requests, cost: step.cost };
            plan.check(tag.as_bytes(), ask, Some(now), Form::Evalsha, &mut commands);
            expected.push(subject.check(plan.limits(), now, ask));
        }
        let replies = store.redis.pipeline(&commands, steps.len());
        for (i, (reply, expected)) in replies.iter().zip(expected).enumerate() {
            let (reply, _) = resp::decode(reply).unwrap().unwrap();
            match plan.outcome(&reply) {
                Ok(outcome) => prop_assert_eq!(outcome, expected, "step {} of {:?}", i, steps),
                Err(bad) => prop_assert!(false, "step {}: {} {:?}", i, bad, reply),
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let _ = BadReply::NoScript;
}
