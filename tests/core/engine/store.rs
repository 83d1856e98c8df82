// SPDX-License-Identifier: Apache-2.0
//! The times at which a worker asks the store, and how much it asks at a time. A worker always returns to the store.

use std::cell::LazyCell;

use proptest::prelude::*;
use weir::engine::{StoreFailure, StreamId};
use weir::policy::{Check, key};

use crate::worker::{ALLOW, BUCKET, DENY, Worker, check, check_of, configuration, granted, ms, policy};
use crate::world::World;
use crate::world::store::{Answers, Mood, SHARDS, Store};

const MS: u64 = 1_000;

/// The maximum number of policies of a request.
const POLICIES: usize = 4;

/// A worker, and a store that grants everything.
fn world(store: &str) -> World {
    let mut world = World::new(&[configuration(store, [(); POLICIES].map(|()| policy(BUCKET)))], 1, 1);
    world.stores[0] = granting();
    world
}

fn granting() -> Store {
    let mut store = Store::made_up(|_, task, _| granted(task.requests));
    store.capacity = 1_000_000;
    store
}

/// A check of a subject of this policy that is on this shard.
fn on(policy: usize, shard: usize) -> Check {
    thread_local! {
        static TAGS: LazyCell<Vec<String>> = LazyCell::new(|| (0..POLICIES * SHARDS).map(|place| {
            let (policy, shard) = (place / SHARDS, place % SHARDS);
            let mut tags = (0..).map(|number| format!("{{p{policy}|s{number}}}"));
            tags.find(|tag| usize::from(key::slot(tag.as_bytes()) >> 8) == shard * (64 / SHARDS)).expect("a subject")
        }).collect());
    }
    TAGS.with(|tags| check_of(policy, tags[policy * SHARDS + shard].as_str(), 1))
}

/// For so long, one request each millisecond: with one to four policies, each on every shard in turn.
fn steady(world: &mut World, millis: u64) {
    for request in 0..millis as usize {
        let policies = 1 + request % POLICIES;
        let subjects = (0..policies)
            .map(|policy| on((policy + request / SHARDS) % POLICIES, (request + 3 * policy) % SHARDS));
        world.arrive(0, subjects.collect());
        world.run(MS);
    }
}

/// The law: within one second of steady traffic after the store answers again, the store decides for every policy and
/// shard.
fn comes_back(world: &mut World) {
    steady(world, 1_000);
    let before = world.without_store();
    steady(world, 200);
    assert_eq!(world.without_store(), before, "the store answers, and a policy was decided without it");
    assert_eq!((world.engine(0).open_breakers(), world.outage()), (0, None));
}

#[test]
fn a_breaker_closes_again_where_requests_have_several_policies() {
    for policies in 1..=POLICIES {
        let mut world = world(ALLOW);
        let subjects: Vec<_> = (0..policies).map(|policy| on(policy, 0)).collect();
        let traffic = |world: &mut World, millis| {
            for _ in 0..millis {
                world.arrive(0, subjects.clone());
                world.run(MS);
            }
        };
        traffic(&mut world, 20);
        assert_eq!(world.without_store(), 0);
        world.stores[0].frozen_until = world.time + 200 * MS;
        traffic(&mut world, 200);
        assert!(world.without_store() > 0, "a freeze longer than the deadline is felt");
        traffic(&mut world, 1_000);
        let before = world.without_store();
        traffic(&mut world, 1_000);
        assert_eq!(world.without_store(), before, "{policies} policies");
    }
}

#[test]
fn a_policy_that_cannot_be_asked_about_leaves_the_others_to_the_store() {
    let mut world = world(ALLOW);
    world.stores[0].failing[0] = true;
    world.stores[0].answers =
        Answers::MadeUp(|_, task, _| granted(if task.tag.starts_with("p1") { 0 } else { task.requests }));
    // The first of them see the error, and the others an open breaker. `on_failure` allows what policy 0 says nothing about.
    for request in 1..=50 {
        world.arrive(0, vec![on(0, 0), on(1, 1)]);
        world.run(3 * MS);
        assert_eq!((world.ledger.open.len(), world.ledger.rejected()), (0, request), "policy 1 denies");
    }
    assert_eq!(world.outage(), Some(Some(1)));
    assert_eq!(world.engine(0).open_breakers(), 1);
}

#[test]
fn what_on_failure_rejects_costs_nothing_elsewhere() {
    let mut world = world(DENY);
    world.stores[0].failing[0] = true;
    for _ in 0..3 {
        world.arrive(0, vec![on(0, 0)]);
        world.run(3 * MS);
    }
    let asked = world.engine(0).counters().commands;
    world.arrive(0, vec![on(0, 0), on(1, 1)]);
    world.run(3 * MS);
    assert_eq!(
        (world.ledger.rejected(), world.engine(0).counters().commands),
        (4, asked),
        "policy 1 is not asked"
    );
}

#[test]
fn a_client_that_leaves_with_the_probe_frees_it() {
    // It leaves before its batch does, or after.
    for sent in [false, true] {
        let mut world = world(ALLOW);
        world.stores[0].mood = Mood::Refuses;
        for _ in 0..3 {
            world.arrive(0, vec![on(0, 0)]);
        }
        world.stores[0].mood = Mood::Answers;
        assert_eq!(world.engine(0).open_breakers(), 1);
        world.run(130 * MS);
        let stream = world.submit(0, vec![on(0, 0)]);
        if sent {
            world.turn(0);
        }
        world.close(stream);
        world.run(2 * MS);
        let before = world.without_store();
        world.arrive(0, vec![on(0, 0)]);
        world.run(2 * MS);
        assert_eq!((world.without_store(), world.engine(0).open_breakers()), (before, 0), "sent: {sent}");
    }
}

#[test]
fn a_probe_that_is_to_be_sent_again_is_free_when_its_client_has_left() {
    let mut world = world(ALLOW);
    world.stores[0].failing[0] = true;
    for _ in 0..3 {
        world.arrive(0, vec![on(0, 0)]);
        world.run(2 * MS);
    }
    assert_eq!(world.engine(0).open_breakers(), 1);
    (world.stores[0].failing[0], world.stores[0].forgets_percent) = (false, 100);
    world.run(130 * MS);
    world.arrive(0, vec![on(0, 0)]);
    world.close_one(0);
    world.run(2 * MS);
    world.stores[0].forgets_percent = 0;
    let before = world.without_store();
    world.arrive(0, vec![on(0, 0)]);
    world.run(2 * MS);
    assert_eq!((world.without_store(), world.engine(0).open_breakers()), (before, 0));
}

/// One task asks for as many grants as requests join it: they cost the store nothing more, however small the congestion window is.
#[test]
fn a_request_that_joins_a_waiting_task_is_never_overloaded() {
    for (policies, freeze) in
        [1, 2].into_iter().flat_map(|policies| [20, 45, 60, 200, 2_000].map(|freeze| (policies, freeze)))
    {
        let mut world = world(ALLOW);
        let subjects: Vec<_> = (0..policies).map(|policy| on(policy, 0)).collect();
        for millis in 0..200 + freeze {
            if millis == 200 {
                world.stores[0].frozen_until = world.time + freeze * MS;
            }
            world.arrive(0, subjects.clone());
            world.run(MS);
        }
        for pause in 0..20 {
            world.run(pause * MS);
            let before = world.overloaded();
            for _ in 0..120 {
                world.arrive(0, subjects.clone());
            }
            assert_eq!(
                world.overloaded(),
                before,
                "{policies} policies, a freeze of {freeze} ms, pause {pause}"
            );
        }
        if policies == 1 {
            assert_eq!(world.overloaded(), 0, "one task at most waits: a freeze of {freeze} ms");
        }
    }
}

/// Some requests a second do not keep a store busy, wherever it is. A move by more than half of what the deadline leaves
/// looks like a queue at first.
#[test]
fn a_few_requests_are_not_too_many_for_a_store_that_moves() {
    for (distance, moves_to) in [(1, 5), (1, 12), (1, 21), (1, 30), (5, 20), (20, 1), (20, 40), (40, 20)] {
        let mut world = world(ALLOW);
        world.near.trip = distance * MS / 2;
        for millis in 0..6_000 {
            if millis == 2_000 {
                world.near.trip = moves_to * MS / 2;
            }
            if world.random(1_000) < 180 {
                let policy = world.random(3) as usize;
                world.arrive(0, vec![on(policy, 0)]);
            }
            world.run(MS);
        }
        let at_first = if moves_to > 25 { 5 } else { 0 };
        assert!(world.overloaded() <= at_first, "{}, from {distance} to {moves_to} ms", world.overloaded());
    }
}

// --- A store that is slow ---------------------------------------------------------------------------------------------

#[test]
fn requests_that_ran_into_the_deadline_do_not_keep_others_from_asking() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    // First the store is near, then it gets so slow that a few tasks at a time are asked about,…
    for (round, takes) in [1, 1, 40, 40, 40, 40].into_iter().enumerate() {
        let stream = StreamId::try_from(round).expect("few") * 10;
        for more in 0..8 {
            worker.arrive(stream + more, &[&more.to_string()]);
        }
        while let Some(batch) = worker.next_batch() {
            worker.idle(ms(takes));
            worker.reply(&batch, batch.all_granted());
        }
    }
    // …and some wait behind them, until the rest are too many.
    assert!(worker.waits_alone(100));
    let slow = worker.batch();
    let waiting = (101..200).take_while(|stream| worker.waits_alone(*stream)).count();
    assert!(waiting < 99, "all of them wait");
    worker.idle(ms(70));
    assert!(worker.released().len() > waiting, "all of them ran into the deadline");
    worker.reply(&slow, slow.all_granted());
    assert!(worker.waits_alone(200));
    assert_eq!(worker.batch().tasks(), [check("p0|200", 1)]);
}

#[test]
fn a_slow_store_is_asked_about_less_at_a_time_and_further_requests_are_decided_at_once() {
    for topology in ["any", "single"] {
        let mut worker = Worker::new(&format!(r#"{{"topology": "{topology}"}}"#), [policy(BUCKET)]);
        let mut streams = 0..;
        // Forty requests arrive, a batch leaves, and the store replies after so long. How large the batch was.
        let mut round = |worker: &mut Worker, takes: u64| {
            for stream in streams.by_ref().take(40) {
                worker.waits_alone(stream);
            }
            let batch = worker.batch();
            worker.idle(ms(takes));
            worker.reply(&batch, batch.all_granted());
            batch.tasks().len()
        };
        assert_eq!([1, 1].map(|takes| round(&mut worker, takes)), [40, 40], "{topology}: it is near");
        assert_eq!(round(&mut worker, 40), 40, "{topology}");
        assert_eq!(round(&mut worker, 40), 40, "{topology}: one slow answer says little");
        // The store does twenty of forty in nineteen milliseconds, which is what it should take.
        let less = round(&mut worker, 20);
        assert!((10..30).contains(&less), "{topology}: {less}");
        let rest = worker.batch();
        for stream in streams.take(200) {
            worker.waits_alone(stream);
        }
        assert!(worker.engine.replied(rest.id, b"", worker.now), "{topology}");
        let overloaded = worker.failures().contains(&StoreFailure::Overloaded);
        assert!(overloaded, "{topology}: not all of them wait");
    }
}

// --- Whatever happened ------------------------------------------------------------------------------------------------

/// One event of a worker's history.
#[derive(Clone, Debug)]
enum Event {
    Requests { policies: usize, shards: [usize; POLICIES], count: usize },
    Passes(u64),
    Freezes(u64),
    Fails(usize, bool),
    Refuses(bool),
    Forgets(bool),
    Distance(u64),
    Leaves(usize),
    ClockMoves(i64),
}

fn event() -> impl Strategy<Value = Event> {
    let shards = proptest::array::uniform4(0..SHARDS);
    prop_oneof![
        8 => (1..=POLICIES, shards, 1..4_usize)
            .prop_map(|(policies, shards, count)| Event::Requests { policies, shards, count }),
        8 => (0..60_000_u64).prop_map(Event::Passes),
        1 => (0..400_000_u64).prop_map(Event::Freezes),
        2 => (0..SHARDS, any::<bool>()).prop_map(|(shard, fails)| Event::Fails(shard, fails)),
        1 => any::<bool>().prop_map(Event::Refuses),
        1 => any::<bool>().prop_map(Event::Forgets),
        1 => (100..45_000_u64).prop_map(Event::Distance),
        4 => (0..64_usize).prop_map(Event::Leaves),
        1 => prop_oneof![-5_000_000..5_000_000_i64, -4_000_000_000..4_000_000_000_i64].prop_map(Event::ClockMoves),
    ]
}

proptest! {
    #![proptest_config(crate::tried::tried(96))]

    #[test]
    fn whatever_happened_the_store_decides_again_within_a_second(
        events in proptest::collection::vec(event(), 0..150),
        // The congestion window of a store that is farther may take two seconds to grow: `congestion.rs`.
        distance in 100..35_000_u64,
    ) {
        let mut world = world(ALLOW);
        for event in events {
            match event {
                Event::Requests { policies, shards, count } => {
                    let subjects: Vec<_> = (0..policies).map(|policy| on(policy, shards[policy])).collect();
                    for _ in 0..count {
                        world.arrive(0, subjects.clone());
                    }
                }
                Event::Passes(span) => world.run(span),
                Event::Freezes(span) => world.stores[0].frozen_until = world.time + span,
                Event::Fails(shard, fails) => world.stores[0].failing[shard] = fails,
                Event::Refuses(refuses) => world.stores[0].mood = if refuses { Mood::Refuses } else { Mood::Answers },
                Event::Forgets(forgets) => world.stores[0].forgets_percent = if forgets { 100 } else { 0 },
                Event::Distance(distance) => world.near.trip = distance / 2,
                Event::Leaves(index) => world.close_one(index),
                Event::ClockMoves(by) => world.workers[0].skew += by,
            }
        }
        world.stores[0] = granting();
        world.near.trip = distance / 2;
        comes_back(&mut world);
    }
}
