// SPDX-License-Identifier: Apache-2.0
//! Limits across regions: what all of them admit together, however the network and the clocks behave, and that a store that fails
//! concerns nothing but what is asked about it.

use proptest::prelude::*;
use weir::engine::Submitted;
use weir::policy::Check;

use crate::worker::*;
use crate::world::store::Mood;
use crate::world::{Network, World};

const MS: u64 = 1_000;
const SEC: u64 = 1_000_000;

/// Units at once, and per second, of every limit here.
const BURST: u64 = 30;
const RATE: u64 = 60;

/// Policies, each for all requests that a test sends it: how it holds across regions. Headers and bodies say in turn what they cost.
fn policies(ways: &[&str]) -> String {
    policies_of(ways, RATE, BURST)
}

fn policies_of(ways: &[&str], rate: u64, burst: u64) -> String {
    let policy = |(place, way): (usize, &&str)| {
        let cost = [r#"{"header": {"name": "x-cost"}}"#, r#"{"body_json": {"paths": ["cost"]}}"#][place % 2];
        format!(
            r#"{{"name": "p{place}", "subject": [{{"literal": "s"}}], "regions": {way}, "cost": {cost}, "limits":
            [{{"name": "l", "algorithm": "leaky_bucket", "rate": "{rate}/s", "burst": {burst}}}]}}"#
        )
    };
    format!("[{}]", ways.iter().enumerate().map(policy).collect::<Vec<_>>().join(", "))
}

pub const DEBIT: &str = r#"{"debit": {}}"#;
pub const SHARE: &str = r#"{"share": {}}"#;

pub const NAMES: [&str; 3] = ["ams", "bom", "cle"];

/// A worker in each of three regions, with these policies.
pub fn world(ways: &[&str]) -> World {
    world_of(&policies(ways))
}

fn world_of(policies: &str) -> World {
    let all =
        NAMES.map(|name| format!(r#"{{"name": "{name}", "cluster": "c-{name}", "deadline": "500ms"}}"#));
    let config = |here| {
        format!(
            r#"{{"store": {{"deadline": "50ms", "on_failure": "deny", "denial_ttl": "100ms"}}, "regions": {{"here": "{here}",
            "sync_interval": "100ms", "all": [{}]}}, "policies": {policies}}}"#,
            all.join(", ")
        )
    };
    let mut world = World::new(&NAMES.map(config), 1, 1);
    world.far = Network { trip: 50_000, jitter: 20_000, lost_percent: 0, breaks: false };
    world.near = Network { trip: 250, jitter: 0, ..world.far };
    world
}

/// The next event.
#[derive(Clone, Debug)]
enum Step {
    /// This number of requests of one subject arrive in a region.
    Arrive {
        region: usize,
        subject: usize,
        count: usize,
    },
    Pass {
        millis: u64,
    },
    Close {
        which: usize,
    },
    /// The clock of a region's worker is set, to so many milliseconds from what it should be.
    Clock {
        region: usize,
        millis: i64,
    },
    Store {
        region: usize,
        mood: Mood,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let region = || 0..3usize;
    let mood = prop_oneof![3 => Just(Mood::Answers), 1 => Just(Mood::Hangs), 1 => Just(Mood::Refuses)];
    prop_oneof![
        8 => (region(), 0..2usize, 1..40usize).prop_map(|(region, subject, count)| Step::Arrive { region, subject, count }),
        8 => (1..120u64).prop_map(|millis| Step::Pass { millis }),
        2 => any::<usize>().prop_map(|which| Step::Close { which }),
        1 => (region(), -5_000..5_000i64).prop_map(|(region, millis)| Step::Clock { region, millis }),
        1 => (region(), mood).prop_map(|(region, mood)| Step::Store { region, mood }),
    ]
}

pub fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), 2..BURST]
}

fn network() -> impl Strategy<Value = Network> {
    (1..200u64, 0..100u64, prop_oneof![Just(0), Just(1), Just(20)]).prop_map(
        |(trip, jitter, lost_percent)| Network {
            trip: trip * MS,
            jitter: jitter.min(trip) * MS,
            lost_percent,
            breaks: false,
        },
    )
}

fn take(world: &mut World, step: &Step, costs: u64) {
    match *step {
        Step::Arrive { region, subject, count } => {
            let subject = ["ann", "bob"][subject];
            let policies: Vec<_> = (0..world.engine(region).config().policies.len()).collect();
            for _ in 0..count {
                let cost = world.cost(costs);
                world.arrive_under(region, &policies, (subject, cost));
            }
        }
        Step::Pass { millis } => world.run(millis * MS),
        Step::Close { which } => world.close_one(which),
        Step::Clock { region, millis } => world.workers[region].skew = millis * 1_000,
        Step::Store { region, mood } => world.stores[region].mood = mood,
    }
}

/// Pairs of a region and another one.
pub fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|by| (0..3).map(move |store| (by, store))).filter(|(by, store)| by != store)
}

proptest! {
    #![proptest_config(crate::tried::tried(60))]

    /// Whatever is late or lost, whoever leaves, and whatever the clocks show.
    #[test]
    fn share_never_grants_more_than_the_limit(
        steps in prop::collection::vec(step(), 1..150),
        network in network(),
        skews in prop::array::uniform3(-10_000_000..10_000_000i64),
        is_with_another in any::<bool>(),
        costs in costs(),
        seed in any::<u64>(),
    ) {
        // If the other policy denies, what this one has granted or borrowed is given back.
        let mut world = if is_with_another { world(&[SHARE, HOMES[0]]) } else { world(&[SHARE]) };
        world.far = network;
        world.seed(seed);
        for (store, skew) in world.stores.iter_mut().zip(skews) {
            store.skew = skew;
        }
        steps.iter().for_each(|step| take(&mut world, step, costs));
        let limit = |at: u64| BURST + RATE * at / SEC;
        for subject in ["ann", "bob"] {
            for (at, granted) in world.ledger.used(&format!("p0|{subject}")) {
                prop_assert!(granted <= limit(at).cast_signed(), "{granted} granted of {} at {at}", limit(at));
            }
            let mut admitted = 0;
            for (at, cost) in world.ledger.admitted(subject) {
                admitted += cost;
                prop_assert!(admitted <= limit(at), "{admitted} admitted of {} at {at}", limit(at));
            }
            // The other policy has granted all that was admitted, also where a loan served the first.
            let granted = world.ledger.used(&format!("p1|{subject}")).last().map_or(0, |(_, granted)| *granted);
            prop_assert!(!is_with_another || admitted.cast_signed() <= granted, "{admitted} admitted, {granted} granted");
        }
    }

    #[test]
    fn debit_charges_what_was_granted_once_at_most(
        steps in prop::collection::vec(step(), 1..150),
        network in network(),
        costs in costs(),
        seed in any::<u64>(),
    ) {
        let mut world = world(&[DEBIT]);
        world.far = network;
        world.seed(seed);
        for (number, step) in (1..).zip(&steps) {
            take(&mut world, step, costs);
            if number % 10 > 0 && number < steps.len() {
                continue;
            }
            for (by, store) in pairs() {
                let (granted, charged) = (world.ledger.granted(by, by), world.ledger.charged(by, store));
                prop_assert!(charged <= granted, "{by} charged {store} with {charged} of {granted}");
            }
        }
    }

    /// On a network that loses nothing, each grant is charged in each other region, and all admit no more than the limit and what the
    /// others grant within the interval and a trip.
    #[test]
    fn debit_charges_everything_in_time(
        arrivals in prop::collection::vec((0..3usize, 1..6usize, 1..40u64), 1..200),
        trip in 1..100u64,
        costs in costs(),
        seed in any::<u64>(),
    ) {
        let mut world = world(&[DEBIT]);
        world.far = Network { trip: trip * MS, jitter: trip * MS / 2, lost_percent: 0, breaks: false };
        world.seed(seed);
        for (region, count, millis) in arrivals {
            for _ in 0..count {
                let cost = world.cost(costs);
                world.arrive_under(region, &[0], ("ann", cost));
            }
            world.run(millis * MS);
        }
        // The interval and a trip; and a batch in flight keeps the next one back for 10 ms at most, beside two ticks.
        let lag = (100 + 30) * MS + 2 * trip * MS;
        let grants = world.ledger.entries.iter().map(|entry| (entry.at, entry.store, entry.granted().cast_unsigned()));
        let grants: Vec<_> = grants.filter(|(.., units)| *units > 0).collect();
        let (mut sum, mut forgotten, mut recent) = (0, 0, [0; 3]);
        for (at, store, units) in &grants {
            sum += units;
            recent[*store] += units;
            while let Some((_, store, units)) = grants.get(forgotten).filter(|(when, ..)| when + lag <= *at) {
                recent[*store] -= units;
                forgotten += 1;
            }
            let bound = BURST + RATE * at / SEC + recent.iter().sum::<u64>() - recent[*store];
            prop_assert!(sum <= bound, "{sum} are more than {bound} at {at}");
        }
        world.run(SEC);
        for (by, store) in pairs() {
            prop_assert_eq!(world.ledger.charged(by, store), world.ledger.granted(by, by));
        }
    }
}

/// A region with all the demand gets nearly all of the limit, and loses it to another within two intervals and the trips.
#[test]
fn share_follows_the_demand() {
    let mut world = world(&[SHARE]);
    world.load(&[0], 5 * MS, 5 * SEC);
    let steady = |world: &World, region: usize, from: u64| {
        let of = world.ledger.requests.values().filter(|of| of.worker == region && of.is_admitted());
        let admitted = of.filter(|of| of.decided.is_some_and(|(at, _)| at >= from)).count() as u64;
        admitted * 100 * SEC / RATE / (world.time - from)
    };
    let used = steady(&world, 0, SEC);
    assert!((95..=101).contains(&used), "{used} %");
    let moved = world.time;
    world.load(&[1], 5 * MS, 3 * SEC);
    let used = steady(&world, 1, moved + 2 * 100 * MS + 2 * 140 * MS);
    assert!((95..=105).contains(&used), "{used} % after the move");
}

/// The same, whatever the requests cost: what they cost makes no subjects of its own. One or all regions have the demand, which is twice the
/// limit.
#[test]
fn share_is_used_at_any_cost() {
    const COSTS: u64 = 10_000;
    for (row, regions) in [("one region", &[0][..]), ("all regions", &[0, 1, 2])] {
        let rate = 600_000;
        let mut world = world_of(&policies_of(&[SHARE], rate, rate / 2));
        let every = SEC * COSTS / 2 * regions.len() as u64 / (2 * rate);
        world.load_of(regions, COSTS, every, 6 * SEC);
        let admitted = world.ledger.admitted("ann").into_iter().filter(|(at, _)| *at >= SEC);
        let used = admitted.map(|(_, cost)| cost).sum::<u64>() * 100 * SEC / rate / (world.time - SEC);
        assert!((95..=105).contains(&used), "{row}: {used} %");
    }
}

/// However many costs there are: each other region is charged with the sum once a sync.
#[test]
fn debit_charges_all_that_requests_cost_as_one_subject() {
    let mut world = world_of(&policies_of(&[DEBIT], 40_000_000, 40_000_000));
    // 1,000 requests in each interval.
    world.load_of(&[0], 10_000, 100, SEC);
    world.run(SEC);
    let granted = world.ledger.granted(0, 0);
    assert!(granted > 45_000_000, "{granted}");
    for store in [1, 2] {
        assert_eq!(world.ledger.charged(0, store), granted, "{}", NAMES[store]);
        let charges = world.ledger.between(0, store).count();
        assert!(charges <= 12, "{charges} in ten intervals");
    }
    assert_eq!(world.engine(0).counters().debits_dropped, 0);
}

pub const HOMES: [&str; 2] = [r#"{"home": "ams"}"#, r#"{"home": "bom"}"#];

/// The far store's deadline bounds the wait for it, and nothing else waits.
#[test]
fn a_store_that_fails_delays_nothing_about_another() {
    for mood in [Mood::Hangs, Mood::Refuses] {
        let mut world = world(&HOMES);
        world.stores[1].mood = mood;
        let mut far = Vec::new();
        for round in 0..300 {
            let near = world.arrive_in(0, 0, &format!("near{round}"));
            far.push(world.arrive_in(0, 1, &format!("far{round}")));
            world.run(2 * MS);
            let near = world.ledger.requests.get(&near).expect("an answer of the own store");
            assert!(near.is_admitted() && near.waited() <= 2 * MS, "{mood:?}: {near:?}");
            world.run(8 * MS);
        }
        // Those of the own store have its deadline, not the far one's.
        world.stores[0].mood = mood;
        for round in 0..10 {
            far.push(world.arrive_in(0, 1, &format!("later{round}")));
            let near = world.arrive_in(0, 0, &format!("later{round}"));
            world.run(80 * MS);
            let near = world.ledger.requests.get(&near).expect("a decision");
            assert!(!near.is_admitted() && near.waited() <= 70 * MS, "{mood:?}: {near:?}");
        }
        world.run(SEC);
        let far = far.iter().map(|stream| &world.ledger.requests[stream]);
        let longest = far.inspect(|of| assert!(of.is_rejected())).map(|of| of.waited()).max().unwrap();
        assert!(longest <= 520 * MS, "{mood:?}: {longest}");
        assert_eq!(mood == Mood::Hangs, longest >= 500 * MS, "{longest}");
    }
}

/// Everything that is sent to a store finds out that it is available again: requests, charges, or loans, although no request waits for the
/// latter two.
#[test]
fn a_breaker_closes_within_a_second_after_its_store_answers_again() {
    let rows = [("requests", HOMES[1], 1), ("charges", DEBIT, 1), ("loans", SHARE, 2)];
    for (row, way, demand) in rows {
        for mood in [Mood::Hangs, Mood::Refuses] {
            let mut world = world(&[way]);
            world.load(&[0], 5 * MS / demand, SEC);
            world.stores[1].mood = mood;
            world.load(&[0], 5 * MS / demand, 8 * SEC);
            assert_eq!(world.engine(0).open_breakers(), 1, "{row}, {mood:?}");
            // An alert pages by this one: no request waits for charges and loans.
            let told = world.engine(0).counters().breaker_open;
            assert_eq!(told, u64::from(row == "requests"), "{row}, {mood:?}");
            world.stores[1].mood = Mood::Answers;
            let before = world.time;
            // Batches sent to a store that hangs are lost, and so are the tasks that waited for them: their deadline passes first.
            let deadline = if mood == Mood::Hangs { 500 * MS } else { 0 };
            world.load(&[0], 5 * MS / demand, SEC + deadline);
            assert_eq!(world.engine(0).open_breakers(), 0, "{row}, {mood:?}");
            let asked = world.ledger.between(0, 1).any(|entry| entry.at >= before);
            assert!(asked, "{row}, {mood:?}: nothing reached it");
        }
    }
}

/// Charges wait while their store is unavailable, and are made when it is available again, although no request comes any more.
#[test]
fn charges_that_wait_are_made_when_the_store_is_back() {
    for mood in [Mood::Hangs, Mood::Refuses] {
        let mut world = world(&[DEBIT]);
        world.stores[1].mood = mood;
        world.load(&[0], 5 * MS, 3 * SEC);
        // Syncs come and go.
        world.run(SEC);
        assert_eq!(world.engine(0).open_breakers(), 1, "{mood:?}");
        world.stores[1].mood = Mood::Answers;
        let waiting = world.engine(0).counters().debits_waiting;
        world.run(SEC + 500 * MS);
        let (left, charged) = (world.engine(0).counters().debits_waiting, world.ledger.charged(0, 1));
        assert_eq!((world.engine(0).open_breakers(), left), (0, 0), "{mood:?}: {waiting} waited");
        // Each probe has cost a unit, and the one under way may be lost, too.
        assert!(
            waiting >= BURST && charged.cast_unsigned() + 1 >= waiting,
            "{mood:?}: {charged} of {waiting}"
        );
    }
}

// --- One worker, step by step -----------------------------------------------------------------------------------------

/// A worker in ams, with policies `p0`, `p1`, … that hold so across regions. The other regions are bom and cle.
pub fn worker(ways: &[&str]) -> Worker {
    worker_with(&policies(ways))
}

fn worker_with(policies: &str) -> Worker {
    worker_of("", policies)
}

fn worker_of(store: &str, policies: &str) -> Worker {
    Worker::configured(&format!(
        r#"{{"store": {{{store}"deadline": "50ms", "on_failure": "deny"}}, "regions": {{"here": "ams", "sync_interval": "100ms", "all": [
        {{"name": "ams", "cluster": "a"}}, {{"name": "bom", "cluster": "b"}}, {{"name": "cle", "cluster": "c"}}]}},
        "policies": {policies}}}"#
    ))
}

/// A loan can be used for two intervals from its answer, however long that took: the way back takes nothing from it.
#[test]
fn a_loan_lasts_two_intervals_from_its_answer() {
    for way_back in [0, 20, 40] {
        let mut worker = worker(&[SHARE]);
        let asked = worker.ask_for_two(0);
        worker.idle(ms(way_back));
        for batch in &asked {
            worker.reply(batch, [granted(1)]);
        }
        assert_eq!(worker.engine.on_lease(), 2);
        worker.idle(ms(199));
        assert_eq!(worker.engine.on_lease(), 2, "{way_back} ms");
        worker.idle(ms(10));
        assert_eq!(worker.engine.on_lease(), 0, "{way_back} ms");
    }
}

/// A policy does not limit while the breaker of its own store is open; that of another one is nothing to it.
#[test]
fn a_policy_is_off_while_the_breaker_of_its_store_is_open() {
    let open = r#""on_failure": "allow", "limits""#;
    let policies = policies(&HOMES).replace(r#""limits""#, open);
    let mut worker = worker_with(&policies);
    for stream in 0..100 {
        assert_eq!(worker.engine.policies_off(), 0);
        if worker.arrive_under(stream, &[1]).is_none() {
            worker.lose();
        }
        worker.close(stream);
        if worker.engine.open_breakers() > 0 {
            break;
        }
    }
    assert_eq!((worker.engine.open_breakers(), worker.engine.policies_off()), (1, 1));
}

/// A request waits for two stores, and the breaker of one opens. Its policy is decided by `on_failure`, whatever that store answers
/// later. The other policy still waits for its own store.
#[test]
fn a_breaker_decides_only_what_its_own_store_was_asked() {
    for (on_failure, answer, admitted) in
        [("deny", granted(1), false), ("allow", granted(1), true), ("allow", denied(secs(9)), false)]
    {
        let row = format!("{on_failure}, then {answer:?}");
        let way = |policies: String| {
            policies.replace(r#""limits""#, &format!(r#""on_failure": "{on_failure}", "limits""#))
        };
        let mut worker = worker_with(&way(policies(&HOMES)));
        assert_eq!(worker.arrive_under(1, &[0, 1]), None);
        let asked = [worker.batch(), worker.batch()];
        let of = |policy: &str| asked.iter().find(|batch| batch.tasks()[0].tag.starts_with(policy)).unwrap();
        let mut stream = 1;
        while worker.engine.open_breakers() == 0 {
            stream += 1;
            assert_eq!(worker.arrive_under(stream, &[0]), None, "{row}");
            // A batch in flight keeps the next one back for a moment.
            worker.idle(ms(10));
            worker.lose();
            worker.close(stream);
        }
        assert_eq!(worker.released(), [], "{row}: it waits for the other store");
        let opposite = if on_failure == "deny" { granted(1) } else { denied(secs(9)) };
        assert_eq!(worker.reply(of("p0"), [opposite]), [], "{row}");
        assert_eq!(worker.reply(of("p1"), [answer]), [(1, admitted)], "{row}");
    }
}

/// A request that another policy denies has no use for a loan, whichever of the denials is known first, and however the policies are
/// ordered. If the other policy allows it, the loan admits it.
#[test]
fn nothing_is_borrowed_for_a_request_that_another_policy_denies() {
    for (ways, share, plain) in [([SHARE, HOMES[0]], 0, 1), ([HOMES[0], SHARE], 1, 0)] {
        let row = format!("{ways:?}");
        // The denial of the other policy is known when the request comes.
        let mut known = worker(&ways);
        known.borrow_two(share);
        assert_eq!(known.arrive_under(1, &[plain]), None);
        assert_eq!(known.answer([denied(secs(9))]), [(1, false)]);
        assert_eq!(known.arrive_under(2, &[0, 1]), Some(false), "{row}");
        assert_eq!((known.engine.on_lease(), known.engine.counters().borrowed), (2, 0), "{row}");

        // Both denials come with one batch.
        for is_denied in [true, false] {
            let mut asked = worker(&ways);
            assert_eq!(asked.arrive_under(1, &[0, 1]), None);
            let both = asked.batch();
            asked.borrow_two(share);
            let mut replies = [denied(secs(9)), denied(secs(9))];
            if !is_denied {
                replies[plain] = granted(1);
            }
            assert_eq!(asked.reply(&both, replies), [(1, !is_denied)], "{row}");
            let (left, borrowed) = if is_denied { (2, 0) } else { (1, 1) };
            assert_eq!(
                (asked.engine.on_lease(), asked.engine.counters().borrowed),
                (left, borrowed),
                "{row}"
            );
        }
    }
}

/// The store of another policy does not answer, and `on_failure` denies the request: then the worker uses no loan for it.
#[test]
fn nothing_is_borrowed_for_a_request_that_on_failure_denies() {
    for (on_failure, left, borrowed) in [("deny", 2, 0), ("allow", 1, 1)] {
        let [share, far] = [SHARE, HOMES[1]].map(|way| policies(&[way]));
        let settings = format!(r#""on_failure": "{on_failure}", "limits""#);
        let far = far.replace("p0", "p1").replace(r#""limits""#, &settings);
        let both = format!("{}, {}", share.strip_suffix(']').unwrap(), far.strip_prefix('[').unwrap());
        let mut worker = worker_with(&both);
        assert_eq!(worker.arrive_under(1, &[0, 1]), None);
        let asked = [worker.batch(), worker.batch()];
        let of = |policy: &str| asked.iter().find(|batch| batch.tasks()[0].tag.starts_with(policy)).unwrap();
        worker.borrow_two(0);
        assert_eq!(
            worker.reply(of("p0"), [denied(secs(9))]),
            [],
            "{on_failure}: it waits for the other store"
        );
        assert_eq!(worker.fail(of("p1")), [(1, on_failure == "allow")], "{on_failure}");
        let found = (worker.engine.on_lease(), worker.engine.counters().borrowed);
        assert_eq!(found, (left, borrowed), "{on_failure}");
    }
}

/// A loan serves one policy of a request. The worker asks the store about the others. If one of them denies the request, the worker gives
/// the loan back.
#[test]
fn a_request_that_a_loan_serves_is_asked_about_for_its_other_policies() {
    for (ways, share, plain) in
        [([SHARE, HOMES[0]], 0, 1), ([HOMES[0], SHARE], 1, 0), ([SHARE, HOMES[1]], 0, 1)]
    {
        for (answer, admitted) in [(granted(1), true), (denied(secs(9)), false)] {
            let row = format!("{ways:?}, {answer:?}");
            let mut worker = worker(&ways);
            worker.borrow_two(share);
            assert_eq!(worker.arrive_under(1, &[0, 1]), None, "{row}");
            let asked = worker.batch();
            assert_eq!(asked.tasks(), [check(&format!("p{plain}|ann"), 1)], "{row}");
            assert_eq!(worker.reply(&asked, [answer]), [(1, admitted)], "{row}");
            let given_back = worker.drain().contains(&refund(&format!("p{share}|ann"), 1));
            assert_eq!(given_back, !admitted, "{row}");
        }
    }
}

/// The store has denied a subject, and then does not answer. While that denial is remembered, the subject still exceeds the part of this
/// region, so a loan admits it: when the deadline passes, and while the breaker is open.
#[test]
fn a_loan_admits_a_request_that_a_remembered_denial_would_reject() {
    let worker = || {
        let mut worker = worker_of(r#""denial_ttl": "1ms", "#, &policies(&[SHARE]));
        worker.borrow_two(0);
        worker.idle(ms(20));
        worker
    };
    // The store grants the request after all: then it is charged here, and the loan is given back. If the request has ended by then, the loan
    // stays charged, and the grant is given back.
    for has_ended in [false, true] {
        let mut late = worker();
        assert_eq!(late.arrive_under(1, &[0]), None);
        let batch = late.batch();
        late.idle(ms(60));
        assert_eq!((late.released(), late.engine.on_lease()), (vec![(1, true)], 1));
        if has_ended {
            late.close(1);
        }
        late.reply(&batch, [granted(1)]);
        let given_back = late.batch();
        assert_eq!(given_back.tasks(), [refund("p0|ann", 1)]);
        assert_eq!(given_back.store == 0, has_ended);
        assert_eq!(
            late.engine.request_count(),
            2 + usize::from(!has_ended),
            "with those that could not borrow yet"
        );
    }

    let mut refused = worker();
    for stream in 1.. {
        if refused.engine.open_breakers() > 0 {
            break;
        }
        assert_eq!(refused.arrive(stream, &["bob"]), None);
        refused.idle(ms(10));
        refused.lose();
    }
    assert_eq!((refused.arrive_under(99, &[0]), refused.engine.on_lease()), (Some(true), 1));
}

/// The first requests of a subject that borrow are of one class, and those after them of another: these get the limit of their own class,
/// also if a loan serves a request before its store grants it.
#[test]
fn a_request_that_a_loan_serves_is_told_the_limit_of_its_class() {
    let mut worker = worker_of(r#""denial_ttl": "1ms", "#, &policies(&[SHARE]));
    let submit = |worker: &mut Worker, stream| {
        let check = Check { kept_percent: 50, ..check_of(0, "{p0|ann}", 1) };
        let submitted = worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
        assert!(matches!(submitted, Submitted::Wait), "{submitted:?}");
    };
    let told = |worker: &mut Worker, stream| {
        let headers = worker.engine.headers_to_add(stream).expect("it is admitted");
        headers.iter().find(|header| header.name == "ratelimit-policy").expect("a limit").value.clone()
    };
    worker.borrow_two(0);
    submit(&mut worker, 1);
    assert_eq!(worker.answer([denied(secs(9))]), [(1, true)], "from a loan");
    assert_eq!(told(&mut worker, 1), r#""l";q=15;w=1"#);
    worker.idle(ms(20));
    submit(&mut worker, 2);
    let late = worker.batch();
    worker.idle(ms(60));
    assert_eq!((worker.released(), worker.engine.on_lease()), (vec![(2, true)], 0), "from a loan");
    assert_eq!(told(&mut worker, 2), r#""l";q=15;w=1"#);
    worker.reply(&late, [granted(1)]);
    assert_eq!(told(&mut worker, 2), r#""l";q=15;w=1"#);
}

/// A region that lends to a worker that has ended meanwhile gets the loan back at once.
#[test]
fn a_loan_that_comes_after_the_worker_has_ended_is_given_back() {
    let mut worker = worker(&[SHARE]);
    let asked = worker.ask_for_two(0);
    assert_eq!(asked.len(), 2);
    worker.engine.retire();
    for batch in &asked {
        worker.reply(batch, [granted(1)]);
    }
    assert_eq!(worker.engine.on_lease(), 0);
    assert_eq!(worker.drain(), [(); 2].map(|()| refund("p0|ann", 1)));
}

/// If only one of two policies that share has a loan, the loan is of no use.
#[test]
fn a_loan_is_not_used_while_another_one_is_missing() {
    let mut worker = worker(&[SHARE, SHARE]);
    worker.borrow_two(0);
    assert_eq!(worker.arrive_under(1, &[1]), None);
    assert_eq!(worker.answer([denied(secs(9))]), [(1, false)]);
    assert_eq!(worker.arrive_under(2, &[0, 1]), Some(false));
    assert_eq!((worker.engine.on_lease(), worker.engine.counters().borrowed), (2, 0));
    // The other regions are asked for what is missing.
    worker.drain();
    worker.idle(ms(100));
    let tasks = worker.drain();
    assert!(tasks.iter().any(|task| task.tag == "p1|ann" && task.requests > 0), "{tasks:?}");
}

/// A worker that ends makes the charges of one more sync. The rest is counted as dropped, and later grants are charged at once.
#[test]
fn charges_that_a_worker_does_not_make_before_it_ends_are_counted() {
    let mut worker = worker(&[DEBIT, DEBIT]);
    let subjects = 400;
    for stream in 0..subjects {
        assert_eq!(worker.arrive(stream, &[&stream.to_string(), &stream.to_string()]), None);
        let batch = worker.batch();
        worker.reply(&batch, batch.all_granted());
    }
    assert_eq!(worker.arrive(subjects, &["late"]), None);
    let last = worker.batch();
    worker.engine.retire();
    let charged =
        |worker: &mut Worker| worker.drain().iter().map(|task| -task.number).sum::<i64>().cast_unsigned();
    let all = 2 * 2 * u64::from(subjects);
    let (sent, counters) = (charged(&mut worker), worker.engine.counters());
    assert_eq!((counters.debits_sent, counters.debits_sent + counters.debits_dropped), (sent, all));
    assert!(sent >= 512 && counters.debits_dropped > 0, "{sent} of {all}");
    worker.reply(&last, last.all_granted());
    assert_eq!((charged(&mut worker), worker.engine.counters().debits_sent), (2, sent + 2));
    assert_eq!(worker.next_tick(), None, "nothing is left to do");
}
