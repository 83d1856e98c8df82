// SPDX-License-Identifier: Apache-2.0
//! Limits across regions. Each region has a Redis of its own.

use std::time::Duration;

use crate::support::dynamic::{Dynamic, Part};
use crate::support::proxy::Network;
use crate::support::regions::{self, HERE, Region, section};
use crate::support::{eventually, http};

pub const TESTS: &[(&str, fn())] = &[
    ("regions: home counts for all regions, exactly", home),
    ("regions: a home that is cut off is no concern of other policies", home_is_cut_off),
    ("regions: debit charges in the others what one has granted", debit),
    ("regions: debit, when the network is whole again", debit_after_a_cut),
    (
        "regions: what waits is in no gauge when the configuration is replaced",
        gauges_of_a_replaced_configuration,
    ),
    ("regions: share lends to one region what the others do not need, and never more than the limit", share),
    ("regions: share, a region that is cut off has its own part", share_in_a_cut),
];

/// Policies for all requests, each as `name`, how it holds across regions, and its limits.
fn limiter(count: usize, policies: &[(&str, &str, &str)]) -> String {
    let policies: Vec<_> = policies
        .iter()
        .map(|(name, way, limit)| {
            format!(
                r#"{{"name": "{name}", "match": {{"path": {{"prefix": "/{name}"}}}}, "subject": [{{"literal": "all"}}],
                    "regions": {way}, "limits": [{limit}]}}"#
            )
        })
        .collect();
    format!(
        r#"{{"store": {{"deadline": "10s", "on_failure": "deny", "denial_ttl": "0s"}}, {}, "policies": [{}]}}"#,
        section(count, "50ms"),
        policies.join(", ")
    )
}

/// The number of requests to this path that pass, one after the other, at the Envoys of a region in turn.
fn passed(region: &Region, path: &str, requests: usize) -> usize {
    let request = http::Request::get(path);
    let status = |number: usize| {
        let edge = region.edge(number % region.lab.envoys.len());
        http::send(edge, &request).expect("a response").status
    };
    (0..requests).map(status).filter(|status| *status == 200).count()
}

const HUNDRED: &str =
    r#"{"name": "l", "algorithm": "token_bucket", "capacity": 90, "refill": 1, "interval": "1h"}"#;

const PLENTY: &str =
    r#"{"name": "l", "algorithm": "token_bucket", "capacity": 9000, "refill": 1, "interval": "1h"}"#;

fn home() {
    let regions = regions::start(&limiter(3, &[("p", r#"{"home": "bom"}"#, HUNDRED)]), 3, 2);
    regions::set_all(&regions, &Network::Slow(Duration::from_millis(20)));
    let sums: Vec<_> = std::thread::scope(|scope| {
        let each: Vec<_> = regions.iter().map(|region| scope.spawn(|| passed(region, "/p", 60))).collect();
        each.into_iter().map(|each| each.join().expect("a region")).collect()
    });
    assert_eq!(sums.iter().sum::<usize>(), 90, "{sums:?}");
    let keys = |region: &Region| region.lab.redis.connect().say("DBSIZE");
    assert_eq!(regions.iter().map(keys).collect::<Vec<_>>(), [":0\r\n", ":1\r\n", ":0\r\n"]);
}

fn home_is_cut_off() {
    let policies = [("near", r#"{"home": "ams"}"#, HUNDRED), ("far", r#"{"home": "bom"}"#, HUNDRED)];
    let config = limiter(2, &policies).replace(r#""deadline": "10s"}]"#, r#""deadline": "300ms"}]"#);
    let regions = regions::start(&config, 2, 1);
    let ams = &regions[0];
    assert_eq!((passed(ams, "/near", 1), passed(ams, "/far", 1)), (1, 1));
    ams.networks[1].set(Network::Cut);
    assert_eq!(passed(ams, "/far", 5), 0, "on_failure: deny");
    assert_eq!(passed(ams, "/near", 5), 5);
    assert!(ams.lab.total("wasmcustom.weir.store.timeout") > 0);
    eventually("the log to tell which region", || {
        ams.lab.envoys[0].log().contains("store of region bom").then_some(())
    });
    ams.networks[1].set(Network::Sound);
    eventually("the far region to count again", || (passed(ams, "/far", 1) == 1).then_some(()));
}

fn debit() {
    let regions = regions::start(&limiter(2, &[("p", r#"{"debit": {}}"#, HUNDRED)]), 2, 2);
    assert_eq!(passed(&regions[0], "/p", 60), 60);
    eventually("all charges to arrive", || {
        (regions[0].lab.total("wasmcustom.weir.debits_sent") == 60).then_some(())
    });
    // ams has charged bom, and no other region.
    let peer = |region: &Region, name: &str| region.lab.total(&format!("wasmcustom.weir.peer.{name}"));
    eventually("the answers to all charges", || {
        (peer(&regions[0], "bom.debits_answered") == 60).then_some(())
    });
    eventually("the end of the lag", || (peer(&regions[0], "bom.sync_lag_ms") == 0).then_some(()));
    assert_eq!((peer(&regions[0], "bom.debits_sent"), peer(&regions[0], "bom.debits_dropped")), (60, 0));
    assert_eq!((peer(&regions[0], "bom.debits_waiting"), peer(&regions[0], "bom.workers_late")), (0, 0));
    assert_eq!(peer(&regions[1], "ams.debits_sent"), 0);
    assert_eq!(passed(&regions[1], "/p", 60), 30);
    eventually("all charges of the other region to arrive", || {
        (regions[1].lab.total("wasmcustom.weir.debits_sent") == 30).then_some(())
    });
    assert_eq!(passed(&regions[0], "/p", 60), 0);
}

fn debit_after_a_cut() {
    let policies = [("p", r#"{"debit": {}}"#, HUNDRED), ("q", r#"{"debit": {}}"#, PLENTY)];
    let config = limiter(3, &policies).replace(r#""deadline": "10s"}"#, r#""deadline": "300ms"}"#);
    let regions = regions::start(&config, 3, 1);
    let of = |name: &str| regions[0].lab.total(&format!("wasmcustom.weir.{name}"));
    regions[0].networks[1].set(Network::Cut);
    assert_eq!(passed(&regions[0], "/p", 40), 40);
    // Only the way to bom is cut, and its charges wait.
    let mut others = 0;
    eventually("bom to be late", || {
        others += passed(&regions[0], "/q", 3);
        (of("peer.bom.workers_late") > 0).then_some(())
    });
    assert!(of("peer.bom.sync_lag_ms") > 1_000);
    let unanswered = ["bom", "cle"].map(|peer| of(&format!("policy.q.peer.{peer}.debits_unanswered")));
    assert!(unanswered[0] > 0, "{unanswered:?}");
    let granted = u64::try_from(40 + others).expect("a number");
    eventually("all answers of cle", || (of("peer.cle.debits_answered") == granted).then_some(()));
    eventually("the end of cle's lag", || (of("peer.cle.sync_lag_ms") == 0).then_some(()));
    assert_eq!((of("peer.cle.workers_late"), of("policy.q.peer.cle.debits_unanswered")), (0, 0));
    regions[0].networks[1].set(Network::Sound);
    eventually("the end of bom's lag", || {
        (of("peer.bom.sync_lag_ms") == 0 && of("peer.bom.workers_late") == 0).then_some(())
    });
    assert_eq!((of("policy.q.peer.bom.debits_unanswered"), of("peer.bom.debits_waiting")), (0, 0));
    assert_eq!(of("peer.bom.debits_sent") + of("peer.bom.debits_dropped"), granted);
    let passed = passed(&regions[1], "/p", 90);
    assert!((50..=90).contains(&passed), "{passed}");
}

fn gauges_of_a_replaced_configuration() {
    let config = |policies: &[_]| limiter(2, policies).replace(HERE, "ams");
    let (p, q) = (("p", r#"{"debit": {}}"#, PLENTY), ("q", r#"{"debit": {}}"#, PLENTY));
    // Envoy has no cluster of bom, so all charges wait once the breaker is open.
    let world = Dynamic::start(Part::Filter, &config(&[p]), 2, &[]);
    let gauges = || {
        let names =
            ["peer.bom.debits_waiting", "peer.bom.sync_lag_ms", "policy.p.peer.bom.debits_unanswered"];
        names.map(|name| world.envoy.stat(&format!("wasmcustom.weir.{name}")))
    };
    let send =
        |path: &str| http::send(world.envoy.address("edge"), &http::Request::get(path)).expect("a response");
    let charges_wait = || {
        (0..8).for_each(|_| assert_eq!(send("/p").status, 200));
        gauges().iter().all(|gauge| *gauge > 0).then_some(())
    };
    eventually("charges to wait", charges_wait);
    world.update(&config(&[p, q]));
    eventually("the end of the first configuration", || {
        // A worker of the next one counts when it has something to do.
        (0..8).for_each(|_| assert_eq!(send("/other").status, 200));
        (gauges() == [0; 3]).then_some(())
    });
    eventually("charges to wait", charges_wait);
}

fn share() {
    let regions = regions::start(&limiter(3, &[("p", r#"{"share": {}}"#, HUNDRED)]), 3, 2);
    let mut sum = 0;
    eventually("nearly all of the limit to be in use in one region", || {
        sum += passed(&regions[0], "/p", 10);
        (sum >= 80).then_some(())
    });
    assert!(sum <= 90, "{sum}");
    let of = |name: &str| regions[0].lab.total(&format!("wasmcustom.weir.{name}"));
    // Its own part is 30.
    eventually("what was borrowed to be counted", || {
        let borrowed = ["bom", "cle"].map(|peer| of(&format!("peer.{peer}.borrowed")));
        let is_enough = borrowed.iter().all(|borrowed| *borrowed > 0);
        (is_enough && borrowed.iter().sum::<u64>() + 30 >= 80).then_some(())
    });
    eventually("the end of all loans", || {
        (["bom", "cle"].map(|peer| of(&format!("policy.p.peer.{peer}.on_loan"))) == [0, 0]).then_some(())
    });
    let rest: usize = regions.iter().map(|region| passed(region, "/p", 20)).sum();
    assert!(sum + rest <= 90, "{sum} and {rest}");
}

fn share_in_a_cut() {
    let regions = regions::start(&limiter(3, &[("p", r#"{"share": {}}"#, HUNDRED)]), 3, 1);
    regions::set_all(&regions, &Network::Cut);
    let sums: Vec<_> = regions.iter().map(|region| passed(region, "/p", 40)).collect();
    assert_eq!(sums, [30; 3]);
}
