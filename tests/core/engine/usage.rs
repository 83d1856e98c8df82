// SPDX-License-Identifier: Apache-2.0
//! The units that the policies charge, and the fullness of limits when they are asked.

use std::collections::BTreeMap;

use weir::engine::{Catalogue, Kind, Report, Submitted};
use weir::policy::Check;

use crate::engine::report::Host;
use crate::worker::*;

/// Everything that this worker has measured, by the names of the metrics.
pub fn measured(worker: &mut Worker) -> BTreeMap<String, i64> {
    let mut host = Host::new(worker.engine.config());
    Report::new(worker.engine.config()).export(&mut worker.engine, &mut host, worker.now);
    host.values
}

/// Units and fullness of the first policy, in the order of their names.
fn usage(worker: &mut Worker) -> String {
    let values = measured(worker).into_iter();
    let values =
        values.filter_map(|(name, value)| Some((name.strip_prefix("weir.policy.p0.")?.to_owned(), value)));
    let values = values.filter(|(name, _)| !name.contains("requests."));
    values.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn units_are_reserved_charged_and_refunded_once() {
    let settle = |cost: &str| settled(&format!(r#"[{{"cost": {{"constant": {cost}}}}}]"#), WINDOW);
    type Act = fn(&mut Worker);
    let admitted: Act = |worker| {
        assert_eq!(worker.arrive_costing(10, 1, &["ann"]), None);
        worker.answer([granted(1).remaining(90)]);
        worker.respond(1);
        worker.close(1);
    };
    #[rustfmt::skip]
    let cases: [(&str, String, Act, &str); 7] = [
        ("as reserved", policy(WINDOW), admitted, "limit.l.asked.50=1 units_reserved=10"),
        ("more than reserved", settle("13"), admitted, "limit.l.asked.50=1 units_charged=3 units_reserved=10"),
        ("less than reserved", settle("4"), admitted, "limit.l.asked.50=1 units_refunded=6 units_reserved=10"),
        (
            "denied",
            policy(WINDOW),
            |worker| {
                worker.all_wait([1], "ann");
                worker.answer([denied(secs(9))]);
            },
            "limit.l.asked.95=1",
        ),
        (
            "the client leaves, and the grant stays charged",
            policy(WINDOW),
            |worker| {
                worker.all_wait([1], "ann");
                let batch = worker.batch();
                worker.close(1);
                worker.reply(&batch, [granted(1).remaining(90)]);
            },
            "units_reserved=1",
        ),
        (
            "the store does not answer",
            policy(WINDOW),
            |worker| {
                worker.all_wait([1], "ann");
                let batch = worker.batch();
                worker.fail(&batch);
                worker.close(1);
            },
            "",
        ),
        (
            "a lease serves the second request, and the third is left",
            leased(r#"{"max": 8, "min": 2, "duration": "1s"}"#, WINDOW),
            |worker| {
                assert_eq!(worker.arrive(1, &["ann"]), None);
                worker.answer([granted(3).remaining(97).reset(MINUTE)]);
                assert_eq!(worker.arrive(2, &["ann"]), Some(true));
            },
            "limit.l.asked.50=2 units_reserved=2",
        ),
    ];
    for (name, policy, act, expected) in cases {
        let mut worker = Worker::new(ALLOW, [policy]);
        act(&mut worker);
        assert_eq!(usage(&mut worker), expected, "{name}");
    }
}

/// A request that one policy denies takes nothing of another.
#[test]
fn what_another_policy_denies_is_reserved_and_refunded() {
    let mut worker = Worker::new(ALLOW, [policy(WINDOW), policy(BUCKET)]);
    assert_eq!(worker.arrive(1, &["ann", "ann"]), None);
    assert_eq!(worker.answer([granted(1).remaining(90), denied(secs(9))]), [(1, false)]);
    assert_eq!(usage(&mut worker), "limit.l.asked.50=1 units_refunded=1 units_reserved=1");
}

/// With a limit of 100 units, including the request itself.
#[test]
fn a_limit_is_as_full_as_the_request_leaves_it() {
    for (left, full) in [(100, 50), (50, 50), (49, 80), (20, 80), (19, 95), (5, 95), (4, 100), (0, 100)] {
        let mut worker = Worker::new(ALLOW, [policy(WINDOW)]);
        worker.all_wait([1], "ann");
        worker.answer([granted(1).remaining(left)]);
        assert_eq!(usage(&mut worker), format!("limit.l.asked.{full}=1 units_reserved=1"), "{left} left");
    }
}

/// With a limit of 100 units. Half of them are kept for other requests.
#[test]
fn a_limit_is_as_full_as_it_is_for_requests_of_the_kind() {
    for (left, full) in [(100, 50), (90, 50), (75, 50), (74, 80), (60, 80), (59, 95), (50, 100)] {
        let mut worker = Worker::new(ALLOW, [policy(WINDOW)]);
        let common = Check { kept_percent: 50, ..check_of(0, "{p0|ann}", 1) };
        assert!(matches!(
            worker.engine.submit(1, [common].into_iter().collect(), worker.now),
            Submitted::Wait
        ));
        worker.answer([granted(1).remaining(left)]);
        assert_eq!(usage(&mut worker), format!("limit.l.asked.{full}=1 units_reserved=1"), "{left} left");
    }
}

/// Each tier has its own, and says how large its limits are. Only the decisions of limits of one name count together. A name in which a dot
/// stands is escaped.
#[test]
fn tiers_count_apart_and_tell_the_sizes_of_their_limits() {
    let limit = |units: u32| {
        format!(r#"[{{"name": "l", "algorithm": "sliding_window", "limit": {units}, "window": "1m"}}]"#)
    };
    let tiers = format!(
        r#"{{"by": {{"header": {{"name": "x-plan"}}}}, "default": "free", "limits": {{"free": {}, "gold.x": {}}}}}"#,
        limit(5),
        limit(50)
    );
    let mut worker = Worker::configured(&format!(r#"{{"policies": [{{"name": "p0", "tiers": {tiers}}}]}}"#));
    let catalogue = Catalogue::of(worker.engine.config());
    let of =
        |name: &str| catalogue.rows().iter().find(|of| of.name == name).map(|of| (of.kind, of.constant()));
    assert_eq!(of("weir.policy.p0.tier.free.limit.l.size"), Some((Kind::Gauge, Some(5))));
    assert_eq!(of("weir.policy.p0.tier.gold%2Ex.limit.l.size"), Some((Kind::Gauge, Some(50))));
    assert_eq!(of("weir.policy.p0.tier.gold%2Ex.units_reserved"), Some((Kind::Counter, None)));
    assert!(of("weir.policy.p0.tier.free.limit.l.asked.95").is_some());
    for (stream, tier) in [(1, 0), (2, 1)] {
        let check = Check { tier, ..check_of(0, format!("{{p0|{tier}}}"), 1) };
        worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
        worker.answer([granted(1).remaining(2)]);
    }
    let asked = "tier.free.limit.l.asked.80=1 tier.free.units_reserved=1 tier.gold%2Ex.limit.l.asked.100=1 tier.gold%2Ex.units_reserved=1";
    assert_eq!(usage(&mut worker), asked);
    assert_eq!(measured(&mut worker).get("weir.policy.p0.limit.l.requests.allowed"), Some(&2));
}
