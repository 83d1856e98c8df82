// SPDX-License-Identifier: Apache-2.0
//! The metrics of other regions: charges and loans, each for every region, and for every policy there.

use proptest::prelude::*;
use weir::config::Config;
use weir::engine::{Catalogue, Export, MAX_POLICY_PEERS, Report};

use crate::engine::regions::{DEBIT, HOMES, NAMES, SHARE, pairs, worker, world};
use crate::engine::report::{Exporting, Host, logged};
use crate::worker::*;
use crate::world::store::Mood;
use crate::world::{Network, World};

impl Exporting {
    /// The exported values of a metric of the regions bom and cle.
    fn both(&mut self, name: &str) -> [i64; 2] {
        self.worker.skip(ms(100));
        while self.look() != Export::Nothing {
            self.worker.skip(ms(100));
        }
        ["bom", "cle"].map(|region| self.host.of(&name.replace("PEER", region)))
    }
}

/// The metrics of a configuration of these regions, and these policies with their ways.
fn names(regions: &[&str], policies: &[(&str, &str)]) -> Vec<String> {
    let all: Vec<_> = regions.iter().map(|name| format!(r#"{{"name": "{name}", "cluster": "c"}}"#)).collect();
    let policy = |(name, way): &(&str, &str)| {
        format!(
            r#"{{"name": "{name}", "regions": {way}, "limits":
            [{{"name": "l", "algorithm": "leaky_bucket", "rate": "60/m", "burst": 60}}]}}"#
        )
    };
    let policies: Vec<_> = policies.iter().map(policy).collect();
    let config = format!(
        r#"{{"regions": {{"here": "{}", "all": [{}]}}, "policies": [{}]}}"#,
        regions[0],
        all.join(","),
        policies.join(",")
    );
    let config = Config::parse(config.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
    let catalogue = Catalogue::of(&config);
    let names = catalogue.rows().iter().map(|row| row.name.to_string());
    names.filter(|name| name.contains(".peer.")).collect()
}

/// Each other region has its metrics, and each policy has its own there, by the way that it has across regions.
#[test]
fn the_ways_of_the_policies_say_which_metrics_there_are() {
    let home = r#"{"home": "a.b"}"#;
    assert_eq!(names(&["ams", "a.b"], &[("p", home)]), [""; 0]);
    let debits =
        ["debits_waiting", "debits_sent", "debits_answered", "debits_dropped", "sync_lag_ms", "workers_late"];
    let mut expected: Vec<_> = debits.map(|name| format!("weir.peer.a%2Eb.{name}")).into();
    expected.push("weir.policy.p%2E0.peer.a%2Eb.debits_unanswered".into());
    assert_eq!(names(&["ams", "a.b"], &[("p.0", DEBIT), ("q", home)]), expected);
    let expected = ["bom", "cle"].map(|of| format!("weir.peer.{of}.borrowed")).into_iter();
    let expected = expected.chain(["bom", "cle"].map(|of| format!("weir.policy.p.peer.{of}.on_loan")));
    assert_eq!(names(&["ams", "bom", "cle"], &[("p", SHARE)]), expected.collect::<Vec<_>>());
}

/// The most regions and policies: a bounded number of metrics, each with a name of its own.
#[test]
fn the_number_of_metrics_is_bounded() {
    let regions: Vec<_> = (0..32).map(|number| format!("r{number}")).collect();
    let regions: Vec<_> = regions.iter().map(String::as_str).collect();
    let policies: Vec<_> = (0..100).map(|number| format!("p{number}")).collect();
    let ways = [DEBIT, SHARE].into_iter().cycle();
    let policies: Vec<_> = policies.iter().map(String::as_str).zip(ways).collect();
    let mut names = names(&regions, &policies);
    assert_eq!(names.len(), 31 * 7 + MAX_POLICY_PEERS);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 31 * 7 + MAX_POLICY_PEERS);
}

#[test]
fn a_charge_waits_is_sent_and_is_answered_or_not() {
    let mut exporting = Exporting::of(worker(&[DEBIT, DEBIT]));
    for (stream, policies) in [(1, &[0][..]), (2, &[0]), (3, &[1])] {
        assert_eq!(exporting.worker.arrive_under(stream, policies), None);
    }
    exporting.worker.answer([granted(2), granted(1)]);
    assert_eq!(exporting.both("weir.peer.PEER.debits_waiting"), [3, 3]);
    assert_eq!(exporting.both("weir.policy.p0.peer.PEER.debits_unanswered"), [2, 2]);
    assert_eq!(exporting.both("weir.policy.p1.peer.PEER.debits_unanswered"), [1, 1]);
    let gauges =
        exporting.gauges().into_iter().filter(|(name, _)| name.contains(".peer.") && name.contains("debits"));
    let expected = [
        ("weir.peer.bom.debits_waiting", 3),
        ("weir.peer.cle.debits_waiting", 3),
        ("weir.policy.p0.peer.bom.debits_unanswered", 2),
        ("weir.policy.p0.peer.cle.debits_unanswered", 2),
        ("weir.policy.p1.peer.bom.debits_unanswered", 1),
        ("weir.policy.p1.peer.cle.debits_unanswered", 1),
    ];
    assert_eq!(gauges.collect::<Vec<_>>(), expected.map(|(name, value)| (name.to_owned(), value)));
    exporting.worker.idle(ms(1));
    // Waiting charges are sent to both.
    let bom = exporting.worker.batch();
    let cle = exporting.worker.batch();
    assert_eq!((bom.tasks(), cle.tasks()), (cle.tasks(), vec![charge("p0|ann", 2), charge("p1|ann", 1)]));
    assert_eq!(exporting.both("weir.peer.PEER.debits_sent"), [3, 3]);
    assert_eq!(exporting.both("weir.peer.PEER.debits_waiting"), [0, 0]);
    assert_eq!(exporting.both("weir.policy.p0.peer.PEER.debits_unanswered"), [2, 2]);
    // Only one of them answers.
    exporting.worker.reply(&bom, bom.each(done()));
    exporting.worker.fail(&cle);
    assert_eq!(exporting.both("weir.peer.PEER.debits_answered"), [3, 0]);
    assert_eq!(exporting.both("weir.policy.p0.peer.PEER.debits_unanswered"), [0, 0]);
    assert_eq!(exporting.both("weir.policy.p1.peer.PEER.debits_unanswered"), [0, 0]);
    assert_eq!(exporting.both("weir.peer.PEER.debits_sent"), [3, 3]);
    exporting.worker.idle(ms(500));
    assert_eq!(exporting.worker.next_tick(), None, "nothing is left to do");
}

#[test]
fn the_log_names_the_region_of_a_store_that_fails() {
    let mut exporting = Exporting::of(worker(&HOMES));
    for (policy, region) in [(0, "ams"), (1, "bom")] {
        logged();
        assert_eq!(exporting.worker.arrive_under(1, &[policy]), None);
        exporting.worker.answer([error("OOM command not allowed")]);
        exporting.worker.close(1);
        // A kind of failure is logged once a second.
        exporting.pass(ms(1_500));
        let [line] = &logged()[..] else { panic!("one line") };
        assert!(line.starts_with(&format!("store of region {region}: \"OOM")), "{line}");
    }
}

/// Units that are refunded before they are charged need not be charged.
#[test]
fn a_refund_lowers_what_waits() {
    let mut exporting = Exporting::of(worker(&[DEBIT, HOMES[0]]));
    assert_eq!(exporting.worker.arrive_under(1, &[0, 1]), None);
    assert_eq!(exporting.worker.arrive_under(2, &[0]), None);
    exporting.worker.answer([granted(2), denied(secs(9))]);
    assert_eq!(exporting.both("weir.peer.PEER.debits_waiting"), [1, 1]);
    assert_eq!(exporting.both("weir.policy.p0.peer.PEER.debits_unanswered"), [1, 1]);
    exporting.worker.engine.retire();
    assert_eq!(exporting.both("weir.peer.PEER.debits_waiting"), [0, 0], "the gauges are of other workers");
    assert_eq!(exporting.both("weir.policy.p0.peer.PEER.debits_unanswered"), [0, 0]);
    assert_eq!(exporting.both("weir.peer.PEER.debits_sent"), [1, 1]);
}

#[test]
fn a_loan_counts_under_the_region_that_lends_it() {
    let mut exporting = Exporting::of(worker(&[SHARE, SHARE]));
    exporting.worker.borrow_two(1);
    let on_loan = |exporting: &mut Exporting| {
        // Long enough for the export, and not for the loan.
        exporting.pass(ms(101));
        ["bom", "cle"].map(|region| exporting.host.of(&format!("weir.policy.p1.peer.{region}.on_loan")))
    };
    assert_eq!(exporting.worker.arrive_under(1, &[1]), Some(true));
    let [bom, cle] = on_loan(&mut exporting);
    assert_eq!(bom + cle, 1, "one of them is used");
    let borrowed = ["bom", "cle"].map(|region| exporting.host.of(&format!("weir.peer.{region}.borrowed")));
    assert_eq!(borrowed, [1 - bom, 1 - cle]);
    exporting.worker.idle(ms(200));
    assert_eq!(on_loan(&mut exporting), [0, 0], "what is left is given back");
    assert_eq!(exporting.host.of("weir.policy.p0.peer.bom.on_loan"), 0);
}

/// A loan of requests of one cost serves one of another cost, and that is paid to the region that has lent.
#[test]
fn a_loan_is_paid_where_it_was_lent_at_any_cost() {
    let mut exporting = Exporting::of(worker(&[SHARE]));
    let worker = &mut exporting.worker;
    for (stream, cost) in [(901, 2), (902, 1)] {
        assert_eq!(worker.arrive_costing(cost, stream, &["ann"]), None);
    }
    worker.idle(ms(10));
    assert_eq!(worker.answer([denied(secs(9)), denied(secs(9))]).len(), 2);
    while let Some(batch) = worker.next_batch() {
        worker.reply(&batch, [granted(2)]);
    }
    assert_eq!(worker.arrive_costing(1, 903, &["ann"]), Some(true));
    assert_eq!(exporting.both("weir.peer.PEER.borrowed").iter().sum::<i64>(), 1);
}

/// The statistics that a region's worker exports.
struct Statistics(Report, Host);

impl Statistics {
    fn of(world: &World, region: usize) -> Self {
        let config = world.engine(region).config();
        Self(Report::new(config), Host::new(config))
    }

    fn read(&mut self, world: &mut World, region: usize, name: &str) -> i64 {
        self.0.export(&mut world.workers[region].worker.engine, &mut self.1, Default::default());
        self.1.of(name)
    }
}

/// A region that does not answer is late, and no other is. When it answers again, it is charged with what waited, and late no longer.
#[test]
fn the_lag_of_a_region_that_does_not_answer_grows() {
    for mood in [Mood::Hangs, Mood::Refuses] {
        let mut world = world(&[DEBIT, DEBIT]);
        let mut ams = Statistics::of(&world, 0);
        let mut of = |world: &mut World, name: &str| {
            [1, 2].map(|peer| ams.read(world, 0, &format!("weir.peer.{}.{name}", NAMES[peer])))
        };
        world.load(&[0], 5_000, 2_000_000);
        let steady = of(&mut world, "sync_lag_ms");
        // The interval, and a trip there and back.
        assert!(steady.iter().all(|lag| (0..=300).contains(lag)), "{mood:?}: {steady:?}");
        world.stores[1].mood = mood;
        world.load(&[0], 5_000, 6_000_000);
        let [bom, cle] = of(&mut world, "sync_lag_ms");
        assert!((3_000..=6_300).contains(&bom) && cle <= 300, "{mood:?}: {bom}, {cle}");
        assert_eq!(of(&mut world, "workers_late"), [1, 0], "{mood:?}");
        assert!(of(&mut world, "debits_waiting")[0] > 0, "{mood:?}");
        world.stores[1].mood = Mood::Answers;
        world.run(3_000_000);
        assert_eq!(of(&mut world, "sync_lag_ms"), [0, 0], "{mood:?}");
        assert_eq!(of(&mut world, "workers_late"), [0, 0], "{mood:?}");
    }
}

/// With more subjects than one sync charges, the lag is that of the subjects that wait for the next one.
#[test]
fn the_lag_of_many_subjects_is_that_of_those_that_wait() {
    let mut world = world(&[DEBIT]);
    let mut ams = Statistics::of(&world, 0);
    let mut worst = [0; 2];
    for round in 0..60 {
        // 4,000 a second for each region; a sync of 100 ms charges 512.
        for number in 0..40 {
            world.arrive_in(0, 0, &format!("{round}-{number}"));
        }
        world.run(10_000);
        for (worst, peer) in worst.iter_mut().zip([1, 2]) {
            *worst = ams.read(&mut world, 0, &format!("weir.peer.{}.sync_lag_ms", NAMES[peer])).max(*worst);
        }
    }
    let waiting = ams.read(&mut world, 0, "weir.peer.bom.debits_waiting");
    assert!(waiting > 512, "{waiting}");
    // After 600 ms about 1,300 of 2,400 subjects are charged; the next one came about 300 ms ago.
    assert!(worst.iter().all(|lag| (200..=450).contains(lag)), "{worst:?}");
}

proptest! {
    #![proptest_config(crate::tried::tried(40))]

    /// Whatever happens: what a region has admitted, and another does not know of, is not above what is unanswered there, and what was
    /// dropped or lost.
    #[test]
    fn what_is_unanswered_bounds_what_another_region_does_not_know(
        steps in prop::collection::vec((0..3usize, 0..2usize, 0..9usize, 1..120u64, 0..12u8), 1..80),
        trip in 1..200u64,
        lost_percent in prop_oneof![Just(0), Just(20)],
        costs in crate::engine::regions::costs(),
        seed in any::<u64>(),
    ) {
        let mut world = world(&[DEBIT, DEBIT]);
        world.far = Network { trip: trip * 1_000, jitter: trip * 500, lost_percent, breaks: false };
        world.seed(seed);
        let mut all: Vec<_> = (0..3).map(|region| Statistics::of(&world, region)).collect();
        for (region, policy, count, millis, mood) in steps {
            for _ in 0..count {
                let cost = world.cost(costs);
                world.arrive_under(region, &[policy], ("ann", cost));
            }
            world.stores[region].mood = match mood {
                0 => Mood::Hangs,
                1 => Mood::Refuses,
                _ => Mood::Answers,
            };
            world.run(millis * 1_000);
            for (by, store) in pairs() {
                let mut read = |name: &str| all[by].read(&mut world, by, &name.replace("PEER", NAMES[store]));
                let unanswered = ["p0", "p1"].map(|of| read(&format!("weir.policy.{of}.peer.PEER.debits_unanswered")));
                let [waiting, sent, answered, dropped] = ["waiting", "sent", "answered", "dropped"]
                    .map(|what| read(&format!("weir.peer.PEER.debits_{what}")));
                let lost = waiting + sent - answered - unanswered.iter().sum::<i64>();
                prop_assert!(lost >= 0, "{waiting} + {sent} - {answered} - {unanswered:?}");
                for (policy, unanswered) in unanswered.iter().enumerate() {
                    let tag = format!("p{policy}|ann");
                    let charges = world.ledger.between(by, store).filter(|of| of.task.tag == tag);
                    let known = charges.map(|of| of.settled()).sum::<i64>() + unanswered + dropped + lost;
                    let admitted = world.ledger.requests.values().filter(|of| of.worker == by && of.is_admitted());
                    let admitted = admitted.map(|of| &of.checks[0]).filter(|of| of.policy == policy).map(|of| of.cost).sum::<u64>();
                    prop_assert!(admitted.cast_signed() <= known, "{by} admitted {admitted}, {store} knows of {known}");
                }
            }
        }
    }
}
