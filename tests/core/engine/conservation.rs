// SPDX-License-Identifier: Apache-2.0
//! Whatever happens, each grant is charged or refunded exactly once.

use proptest::prelude::*;
use weir::engine::StreamId;
use weir::limit::Limit;
use weir::random::Random;
use weir::script::usage::Used;
use weir::time::Micros;

use crate::engine::usage::measured;
use crate::worker::*;
use crate::world::ledger::Entry;
use crate::world::store::Store;
use crate::world::{Network, World};

/// The next step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Arrive { policies: usize, subject: usize },
    Close { which: usize },
    Pass { micros: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..=4usize, 0..3usize).prop_map(|(policies, subject)| Step::Arrive { policies, subject }),
        3 => any::<usize>().prop_map(|which| Step::Close { which }),
        3 => (100..15_000u64).prop_map(|micros| Step::Pass { micros }),
    ]
}

/// Grants mostly all, sometimes some or none.
fn at_random(command: &Command, task: &Task, random: &mut Random) -> Reply {
    let some = random.below(task.requests.cast_unsigned() + 1).cast_signed();
    let granted = if random.below(4) == 0 { some } else { task.requests };
    reply(command, task, granted, random)
}

fn all(command: &Command, task: &Task, random: &mut Random) -> Reply {
    reply(command, task, task.requests, random)
}

fn reply(command: &Command, task: &Task, granted: i64, random: &mut Random) -> Reply {
    let mut numbers = Vec::new();
    // Buckets go before concurrency in the script.
    for limit in command.plan.limits() {
        let extra = match limit {
            Limit::Concurrency(_) if granted > 0 => 1 + random.below(1 << 40).cast_signed(),
            Limit::LeakyBucket(bucket) if bucket.max_delay() > Micros::ZERO => {
                random.below(2).cast_signed() * 40_000
            }
            _ => 0,
        };
        // Until a unit comes back, or until other workers have taken fewer.
        let wait = if granted < task.requests { [30_000, 2][usize::from(random.below(2) == 0)] } else { 0 };
        numbers.extend([5, wait, 60_000_000, extra]);
    }
    answer(granted, &numbers)
}

/// Each request has subjects of its own, or three subjects are shared by all.
struct History {
    world: World,
    apart: bool,
}

impl History {
    fn arrive(&mut self, policies: usize, shared: &str) -> StreamId {
        let subject = if self.apart { self.world.arrived().to_string() } else { shared.to_owned() };
        let checks = (0..policies).map(|policy| check_of(policy, format!("{{p{policy}|{subject}}}"), 1));
        self.world.arrive(0, checks.collect())
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { policies, subject } => drop(self.arrive(policies, &format!("s{subject}"))),
            Step::Close { which } => self.world.close_one(which),
            Step::Pass { micros } => self.world.run(micros),
        }
        let bound =
            self.world.ledger.open.len() + usize::try_from(self.world.asked_in_flight()).expect("a count");
        let remembered = self.world.engine(0).request_count();
        assert!(remembered <= bound, "what is remembered is open or in flight");
    }

    /// The store answers and nothing is lost, all streams are closed, and nothing is left to send.
    fn end(mut self) -> World {
        self.world.stores[0] = Store::made_up(all);
        self.world.near = Network { trip: 500, jitter: 0, lost_percent: 0, breaks: false };
        self.world.run(100_000);
        while !self.world.ledger.open.is_empty() {
            self.world.close_one(0);
        }
        for round in 0..100 {
            // While a breaker is open nothing is sent before a request asks.
            let stream = self.arrive(1, &format!("last{round}"));
            self.world.run(60_000);
            self.world.worker(0).engine.retire();
            self.world.turn(0);
            self.world.run(60_000);
            let decided = self.world.engine(0).record(stream).map(|record| record.source);
            self.world.close(stream);
            if decided == Some("redis") && self.world.engine(0).on_lease() == 0 {
                return self.world;
            }
        }
        panic!("the store answers, and no request is decided by it");
    }
}

/// These units, of all policies.
fn units(world: &mut World, kind: &str) -> i64 {
    let values = measured(world.worker(0));
    values.iter().filter(|(name, _)| name.ends_with(kind)).map(|(_, value)| value).sum()
}

proptest! {
    #![proptest_config(crate::tried::tried(400))]
    #[test]
    fn what_is_charged_and_not_refunded_was_admitted_or_left(
        steps in prop::collection::vec(step(), 1..120),
        apart in any::<bool>(),
        denies in any::<bool>(),
        single in any::<bool>(),
        lease in prop_oneof![Just(None), Just(Some(r#"{"max": 8, "min": 2, "duration": "100ms"}"#)), Just(Some(r#""auto""#))],
        queue in any::<bool>(),
        trip in 100..15_000u64,
        jitter in 0..15_000u64,
        lost_percent in prop_oneof![Just(0), Just(8)],
        breaks in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (topology, on_failure) = (if single { "single" } else { "any" }, if denies { "deny" } else { "allow" });
        let store = format!(r#"{{"deadline": "20ms", "on_failure": "{on_failure}", "topology": "{topology}"}}"#);
        let first = match lease {
            Some(lease) if !apart => leased(lease, if lease == r#""auto""# { LARGE } else { WINDOW }),
            _ => policy(BUCKET),
        };
        let both = format!("{}, {PLACES}", BUCKET.replace(r#""l""#, r#""b""#));
        let places = if queue { queued(PLACES, "80ms", 3) } else { PLACES.to_owned() };
        let policies = [first, policy(&delayed("30s")), policy(&places), policy(&both)]
            .map(|policy| format!(r#"{policy}, "usage_journal": true"#));
        let mut world = World::new(&[configuration(&store, policies)], 1, 1);
        world.seed(seed);
        world.stays_open = true;
        world.near = Network { trip, jitter: jitter.min(trip), lost_percent, breaks };
        world.stores[0] = Store::made_up(at_random);
        (world.stores[0].errs_percent, world.stores[0].forgets_percent) = (6, 6);
        let mut history = History { world, apart };
        steps.iter().for_each(|step| history.step(step));
        let mut world = history.end();
        prop_assert_eq!(world.engine(0).request_count(), 0, "nothing is remembered of requests that are over");
        world.ledger.judge(denies, apart);
        let used = world.stores[0].usage.values().fold(Used::default(), |sum, used| sum.plus(*used));
        let mut taken = |kind| units(&mut world, kind);
        let taken = taken("units_reserved") + taken("units_charged") - taken("units_refunded");
        prop_assert_eq!(used.units, taken, "the usage journal has each unit that was taken and did not come back");
        // Units granted in advance are reserved when they serve a request.
        if lease.is_none() || apart {
            let granted: i64 = world.ledger.entries.iter().filter(|entry| entry.is_heard).map(Entry::granted).sum();
            prop_assert_eq!(units(&mut world, "units_reserved"), granted, "each grant that was heard is reserved");
        }
    }
}
