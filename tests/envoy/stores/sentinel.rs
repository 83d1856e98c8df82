// SPDX-License-Identifier: Apache-2.0
//! A primary and its replicas under Redis Sentinel: `envoy/sentinel.yaml` and `envoy/native-sentinel.yaml`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::support::cluster::call;
use crate::support::envoy::Envoy;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::sentinel::{Sentinel, replicated};
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, Kind, Statuses, get, limited_by, template_of};
use crate::support::{PATIENCE, eventually, eventually_within};
use crate::{decided, every_worker_asks_again};

pub const TESTS: &[(&str, fn())] = &[
    (
        "sentinel: the primary dies, and weir follows to the one that sentinel chooses",
        the_primary_is_followed,
    ),
    ("sentinel: a primary that becomes a replica while it lives is left", a_living_primary_is_left),
];

/// What is shipped for Sentinel, on these nodes, twenty for each `x-user`.
fn follower(nodes: &[Redis], upstream: &Upstream) -> Envoy {
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 20);
    let template = template_of(&Host::chosen().shipped_for(Kind::Sentinel), &limiter, upstream.address());
    let template = nodes.iter().enumerate().fold(template, |template, (index, node)| {
        let address = format!("127.0.0.1, port_value: {}", node.address().port());
        template.with(&format!("redis-{}, port_value: 6379", index + 1), address)
    });
    template.concurrency(2).start()
}

/// A sentinel that changes a node's role closes all connections to it: a client without an answer asks again.
fn says(node: &Redis, command: &str) -> Option<String> {
    let mut connection = UnixStream::connect(node.socket()).ok()?;
    connection.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).ok()?;
    let mut told = String::new();
    connection.read_to_string(&mut told).ok().filter(|length| *length > 0).map(|_| told)
}

fn is(node: &Redis, role: &str) -> bool {
    says(node, "ROLE").is_some_and(|told| told.contains(role))
}

fn is_primary(node: &Redis) -> bool {
    is(node, "master")
}

fn as_user(user: &str) -> Request {
    get().header("x-user", user)
}

/// How many connections have asked this node about limits, and are open. Health checks have one of their own.
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

    // What `SENTINEL FAILOVER` comes to: the roles change, and no connection ends by that.
    let port = nodes[1].address().port().to_string();
    assert_eq!(call(&mut nodes[0].connect(), &["FAILOVER", "TO", "127.0.0.1", &port]), "+OK\r\n");
    eventually("the roles to change", || (is_primary(&nodes[1]) && is(&nodes[0], "slave")).then_some(()));
    // Who asks meanwhile must not lead weir back to where it was.
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    eventually("the streams to the old primary to be closed", || (streams(&nodes[0]) == 0).then_some(()));
    every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
    let statuses: Statuses = (0..40).map(|_| decided(&envoy, &as_user("ann"))).collect();
    assert_eq!(statuses, Statuses(vec![(200, 14), (429, 26)]), "six of twenty were taken before");
    assert!(streams(&nodes[1]) > 0);
    assert_eq!([streams(&nodes[0]), streams(&nodes[2])], [0; 2]);
}

fn the_primary_is_followed() {
    let mut nodes = replicated();
    let sentinel = Sentinel::start(&nodes[0]);
    sentinel.knows(2);

    let upstream = Upstream::start();
    let envoy = follower(&nodes, &upstream);
    let healthy = || envoy.stat("cluster.weir-bridge.membership_healthy");
    eventually("the primary, and it alone, to be healthy", || (healthy() == 1).then_some(()));
    let status = || http::send(envoy.address("edge"), &as_user("ann")).expect("a response").status;
    assert_eq!([(); 6].map(|()| status()), [200; 6]);
    assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0);
    assert_eq!(
        call(&mut nodes[0].connect(), &["WAIT", "2", "10000"]),
        ":2\r\n",
        "what was taken is replicated"
    );

    nodes[0].stop();
    eventually("sentinel to choose another", || nodes[1..].iter().any(is_primary).then_some(()));
    // Were the old primary back before sentinel has seen its choice lead, it would take it back.
    sentinel.has_left(&nodes[0]);
    // Who asks meanwhile is decided without the store.
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
