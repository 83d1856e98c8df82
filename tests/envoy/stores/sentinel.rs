// SPDX-License-Identifier: Apache-2.0
//! A primary and its replicas under Redis Sentinel: `envoy/sentinel.yaml` and `envoy/native-sentinel.yaml`.

use crate::support::cluster::{are_replicated, call};
use crate::support::envoy::Envoy;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::sentinel::{Sentinel, is, is_primary, replicated, says};
use crate::support::upstream::Upstream;
use crate::support::weir::{Kind, PATIENT, Statuses, get, limited_by, template_on_nodes};
use crate::support::{PATIENCE, eventually, eventually_within};
use crate::{decided, every_worker_asks_again};

pub const TESTS: &[(&str, fn())] = &[
    (
        "sentinel: the primary dies, and weir follows to the one that sentinel chooses",
        the_primary_is_followed,
    ),
    ("sentinel: a primary that becomes a replica while it lives is left", a_living_primary_is_left),
    (
        "sentinel: with `min_replicas`, a grant that a replica lacks is not admitted, and refunded",
        replicas_are_awaited,
    ),
];

/// The shipped configuration for Sentinel, on these nodes, twenty for each `x-user`.
fn follower(nodes: &[Redis], upstream: &Upstream) -> Envoy {
    follower_of(nodes, upstream, &limited_by(r#"{"header": {"name": "x-user"}}"#, 20))
}

fn follower_of(nodes: &[Redis], upstream: &Upstream, limiter: &str) -> Envoy {
    template_on_nodes(Kind::Sentinel, nodes.iter().map(Redis::address), limiter, upstream.address())
        .concurrency(2)
        .start()
}

fn as_user(user: &str) -> Request {
    get().header("x-user", user)
}

/// The number of open connections that have asked this node about limits. Health checks have one of their own.
fn streams(node: &Redis) -> usize {
    let list = eventually("the list of connections", || says(node, "CLIENT LIST TYPE normal"));
    list.lines().filter(|line| line.contains("cmd=eval")).count()
}

fn a_living_primary_is_left() {
    let (nodes, upstream) = (replicated(), Upstream::start());
    let envoy = follower(&nodes, &upstream);
    let healthy = || envoy.stat("cluster.weir-bridge.membership_healthy");
    eventually("the primary, and it alone, to be healthy", || (healthy() == 1).then_some(()));
    let mut strangers = (0..).map(|number| as_user(&format!("stranger-{number}")));
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    let status = || http::send(envoy.address("edge"), &as_user("ann")).expect("a response").status;
    assert_eq!([(); 6].map(|()| status()), [200; 6]);
    assert!(streams(&nodes[0]) > 0);
    assert_eq!([streams(&nodes[1]), streams(&nodes[2])], [0; 2]);

    // The effect of `SENTINEL FAILOVER`: the roles change, and no connection ends by that.
    let port = nodes[1].address().port().to_string();
    assert_eq!(call(&mut nodes[0].connect(), &["FAILOVER", "TO", "127.0.0.1", &port]), "+OK\r\n");
    eventually("the roles to change", || (is_primary(&nodes[1]) && is(&nodes[0], "slave")).then_some(()));
    // Requests meanwhile must not lead weir back to the old primary.
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    eventually("the streams to the old primary to be closed", || (streams(&nodes[0]) == 0).then_some(()));
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    let statuses: Statuses = (0..40).map(|_| decided(&envoy, &as_user("ann"))).collect();
    assert_eq!(statuses, Statuses(vec![(200, 14), (429, 26)]), "six of twenty were taken before");
    assert!(streams(&nodes[1]) > 0);
    assert_eq!([streams(&nodes[0]), streams(&nodes[2])], [0; 2]);
}

/// weir needs one more right for that. The others are those of replicas and of Envoy's health check.
fn replicas_are_awaited() {
    let (nodes, upstream) = (replicated(), Upstream::start());
    let user = ["ACL", "SETUSER", "default", "resetkeys"].into_iter().chain(crate::tls::rights());
    let user: Vec<_> = user.filter(|word| *word != "on").collect();
    let more = ["+wait", "+role", "+psync", "+replconf", "+ping"];
    assert_eq!(call(&mut nodes[0].connect(), &[user.as_slice(), &more].concat()), "+OK\r\n");
    let store = r#""deadline": "2s", "on_failure": "deny", "topology": "single", "min_replicas": 2"#;
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 5)
        .replace(PATIENT, &format!(r#""store": {{{store}}}"#));
    let envoy = follower_of(&nodes, &upstream, &limiter);
    let mut strangers = (0..).map(|number| as_user(&format!("stranger-{number}")));
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    let status = || http::send(envoy.address("edge"), &as_user("ann")).expect("a response").status;
    assert_eq!([status(), status()], [200; 2]);
    nodes[2].freeze();
    let missed = || envoy.stat("wasmcustom.weir.store.noreplicas");
    eventually("a grant without its replica", || {
        assert_eq!(status(), 503);
        (missed() > 0).then_some(())
    });
    nodes[2].thaw();
    let first = eventually("the replica to acknowledge", || Some(status()).filter(|status| *status != 503));
    assert_eq!(first, 200);
    let statuses: Statuses = (0..5).map(|_| decided(&envoy, &as_user("ann"))).collect();
    assert_eq!(statuses, Statuses(vec![(200, 2), (429, 3)]), "what was not admitted was refunded");
}

fn the_primary_is_followed() {
    let mut nodes = replicated();
    let sentinel = Sentinel::start(&nodes[0]);
    sentinel.knows(2);
    sentinel.waits(20_000);

    let upstream = Upstream::start();
    let envoy = follower(&nodes, &upstream);
    let healthy = || envoy.stat("cluster.weir-bridge.membership_healthy");
    eventually("the primary, and it alone, to be healthy", || (healthy() == 1).then_some(()));
    let status = || http::send(envoy.address("edge"), &as_user("ann")).expect("a response").status;
    assert_eq!([(); 6].map(|()| status()), [200; 6]);
    assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0);
    are_replicated(&mut nodes[0].connect(), 2);

    sentinel.waits(500);
    nodes[0].stop();
    eventually("sentinel to choose another", || nodes[1..].iter().any(is_primary).then_some(()));
    // Were the old primary back before sentinel has seen its choice lead, it would take it back.
    sentinel.has_left(nodes[0].address());
    sentinel.waits(20_000);
    // Requests meanwhile are decided without the store.
    let mut strangers = (0..).map(|number| as_user(&format!("stranger-{number}")));
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    let statuses: Statuses = (0..40).map(|_| decided(&envoy, &as_user("ann"))).collect();
    assert_eq!(statuses, Statuses(vec![(200, 14), (429, 26)]), "six of twenty were taken before");

    // The old primary comes back as one, empty, until sentinel has told it otherwise: it looks at replicas every ten seconds,
    // and corrects one that has said for eight that it is a primary.
    nodes[0].restart();
    let demoted = || is(&nodes[0], "slave").then_some(());
    eventually_within(3 * PATIENCE, "the old primary to become a replica", demoted);
    eventually("one primary", || (healthy() == 1).then_some(()));
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    assert_eq!(decided(&envoy, &as_user("ann")), 429);
    assert_eq!(streams(&nodes[0]), 0, "no stream leads to it any more");
}
