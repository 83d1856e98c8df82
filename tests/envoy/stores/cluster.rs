// SPDX-License-Identifier: Apache-2.0
//! Redis Cluster: `envoy/cluster.yaml` and `envoy/native-cluster.yaml`.

use std::net::SocketAddr;

use weir::policy::key::{JOURNAL, Tag, slot};

use crate::every_worker_asks_again;
use crate::support::cluster::{Cluster, are_replicated, call};
use crate::support::envoy::{Envoy, Template};
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Kind, PATIENT, Statuses, get, limited_by, template_on_nodes};

pub const TESTS: &[(&str, fn())] = &[
    (
        "cluster: each of 60 subjects on three shards is admitted exactly twice",
        every_subject_is_limited_exactly,
    ),
    ("cluster: one shard forgets the script", one_shard_forgets_the_script),
    ("cluster: a slot on its way is followed, key by key, and counts on", a_moving_slot_is_followed),
    ("cluster: the least rights, and those to follow slots, suffice", the_least_rights_suffice),
    ("cluster: redis_proxy refuses to wait for replicas", replicas_are_not_awaited),
    ("cluster: a primary dies, and its replica takes over", a_replica_takes_over),
    ("cluster: a shard that hangs does not hold up requests for others", a_shard_hangs),
    ("cluster: the shard of the journal hangs, and no request waits for it", the_shard_of_the_journal_hangs),
];

/// The shipped configuration for a cluster, on three of these nodes.
pub fn template(nodes: &[SocketAddr], limiter: &str, upstream: &Upstream) -> Template {
    template_on_nodes(Kind::Cluster, nodes.iter().copied(), limiter, upstream.address())
}

/// As [`template`], with a `redis_proxy` that is as patient as the limiter is in tests.
fn patient(cluster: &Cluster, limiter: &str, upstream: &Upstream) -> Template {
    let nodes: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    template(&nodes, limiter, upstream).with("op_timeout: 0.04s", "op_timeout: 5s")
}

struct Shards {
    cluster: Cluster,
    envoy: Envoy,
    _upstream: Upstream,
}

impl Shards {
    fn start(limits: &str, replicated: bool) -> Self {
        let cluster = Cluster::start(3, replicated).expect("a redis-server");
        let upstream = Upstream::start();
        let limiter = format!(
            r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}],
                "limits": [{limits}]}}]}}"#
        );
        let envoy = patient(&cluster, &limiter, &upstream).concurrency(2).start();
        Self { cluster, envoy, _upstream: upstream }
    }

    fn burst<'a>(&self, users: impl IntoIterator<Item = &'a str>) -> Vec<u16> {
        let requests = users.into_iter().map(as_user);
        let responses = http::burst(self.envoy.address("edge"), requests).expect("responses");
        responses.iter().map(|response| response.status).collect()
    }

    fn send(&self, user: &str) -> u16 {
        http::send(self.envoy.address("edge"), &as_user(user)).expect("a response").status
    }

    fn home(&self, user: &str) -> usize {
        self.cluster.home(slot_of(user))
    }

    fn fallbacks(&self) -> u64 {
        self.envoy.stat("wasmcustom.weir.fallback")
    }
}

fn as_user(user: &str) -> Request {
    get().header("x-user", user)
}

pub fn slot_of(user: &str) -> u16 {
    let mut tag = Tag::new("p");
    tag.part(Some(user.as_bytes()));
    slot(&tag.finish())
}

/// This number of subjects; each shard has some of them.
fn users(count: usize, shards: &Shards) -> Vec<String> {
    let users: Vec<_> = (0..count).map(|number| format!("user-{number}")).collect();
    for node in 0..3 {
        assert!(users.iter().any(|user| shards.home(user) == node), "no subject on node {node}");
    }
    users
}

const TWICE: &str = r#"{"name": "bucket", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2},
    {"name": "log", "algorithm": "sliding_log", "limit": 3, "window": "1d"},
    {"name": "window", "algorithm": "fixed_window", "limit": 4, "window": "300d"}"#;

fn every_subject_is_limited_exactly() {
    let shards = Shards::start(TWICE, false);
    let users = users(60, &shards);
    // Four times each, in an order that keeps no subject together.
    let asked: Vec<_> = (0..4).flat_map(|_| users.iter().map(String::as_str)).collect();
    let statuses = shards.burst(asked.iter().copied());
    for user in &users {
        let of_user = asked.iter().zip(&statuses).filter(|(asked, _)| **asked == user.as_str());
        let of_user: Statuses = of_user.map(|(_, status)| *status).collect();
        assert_eq!(of_user, Statuses(vec![(200, 2), (429, 2)]), "{user}");
    }
    for (index, node) in shards.cluster.nodes.iter().enumerate() {
        let here = users.iter().filter(|user| shards.home(user) == index).count();
        assert_eq!(
            call(&mut node.connect(), &["DBSIZE"]),
            format!(":{}\r\n", 3 * here),
            "keys on node {index}"
        );
        assert!(shards.cluster.errors(index, "NOSCRIPT") > 0, "node {index} had to be told the script");
    }
    assert_eq!(shards.fallbacks(), 0);
}

fn one_shard_forgets_the_script() {
    let shards = Shards::start(TWICE, false);
    let users = users(30, &shards);
    assert_eq!(shards.burst(users.iter().map(String::as_str)), vec![200; 30]);
    let told = shards.cluster.errors(1, "NOSCRIPT");
    assert_eq!(call(&mut shards.cluster.nodes[1].connect(), &["SCRIPT", "FLUSH"]), "+OK\r\n");
    assert_eq!(shards.burst(users.iter().map(String::as_str)), vec![200; 30]);
    assert!(shards.cluster.errors(1, "NOSCRIPT") > told, "it had to be told again");
    assert_eq!(shards.burst(users.iter().map(String::as_str)), vec![429; 30]);
    assert_eq!(shards.fallbacks(), 0);
}

fn a_moving_slot_is_followed() {
    let shards =
        Shards::start(r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 7}"#, false);
    let Shards { cluster, .. } = &shards;
    let ann = "ann";
    let (moving, from) = (slot_of(ann), shards.home(ann));
    let to = (from + 1) % 3;
    // Another subject of the same slot, that has not been seen when the slot begins to move.
    let bob = (0..).map(|number| format!("bob-{number}")).find(|user| slot_of(user) == moving).expect("one");
    assert_eq!([shards.send(ann), shards.send(ann)], [200; 2]);

    cluster.begin_move(moving, from, to);
    assert_eq!([shards.send(ann), shards.send(ann)], [200; 2], "her key is still where it was");
    assert_eq!(cluster.errors(from, "ASK"), 0);
    assert_eq!([shards.send(&bob), shards.send(&bob)], [200; 2], "his begins where the slot goes");
    assert!(cluster.errors(from, "ASK") > 0);

    assert_eq!(cluster.move_keys(moving, from, to), 1, "hers; his is there already");
    assert_eq!([shards.send(ann), shards.send(ann)], [200; 2]);

    cluster.end_move(moving, from, to);
    let statuses: Statuses = shards.burst([ann; 20]).into_iter().collect();
    assert_eq!(statuses, Statuses(vec![(200, 1), (429, 19)]), "six of seven were taken on the way");
    let statuses: Statuses = shards.burst([bob.as_str(); 20]).into_iter().collect();
    assert_eq!(statuses, Statuses(vec![(200, 5), (429, 15)]), "two of seven were");
    assert!(cluster.errors(from, "MOVED") > 0);
    assert_eq!(shards.fallbacks(), 0, "no request was decided without the store");
}

fn the_least_rights_suffice() {
    let (cluster, upstream) = (Cluster::start(3, false).expect("a redis-server"), Upstream::start());
    let user = ["ACL", "SETUSER", "weir", "on", ">password"].into_iter().chain(crate::tls::rights());
    let user: Vec<_> = user.chain(["+cluster|slots", "+asking", "+xadd"]).collect();
    // Logged in before the default user is locked out.
    let mut admins: Vec<_> = cluster.nodes.iter().map(|node| node.connect()).collect();
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 2).replacen('{', r#"{"journal": {}, "#, 1);
    let moving = slot_of("ann");
    let (from, to) = (cluster.home(moving), (cluster.home(moving) + 1) % 3);
    cluster.begin_move(moving, from, to);
    for admin in &mut admins {
        assert_eq!(call(admin, &user), "+OK\r\n");
        assert_eq!(call(admin, &["ACL", "SETUSER", "default", "off"]), "+OK\r\n");
    }
    let login = r#"lb_policy: CLUSTER_PROVIDED
    typed_extension_protocol_options:
      envoy.filters.network.redis_proxy:
        "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions
        auth_username: {inline_string: weir}
        auth_password: {inline_string: password}"#;
    let template = patient(&cluster, &limiter, &upstream).with("lb_policy: CLUSTER_PROVIDED", login);
    let envoy = template.start();
    let send = |user: &str| http::send(envoy.address("edge"), &as_user(user)).expect("a response").status;
    assert_eq!(["ann"; 3].map(send), [200, 200, 429], "through ASK");
    for user in 0..20 {
        let user = format!("user-{user}");
        assert_eq!([user.as_str(); 3].map(send), [200, 200, 429], "{user}");
    }
    let journal = &mut admins[cluster.home(slot(JOURNAL.as_bytes()))];
    eventually("the journal", || (journal.integer(&[b"XLEN", b"weir:{journal}"]) == 21).then_some(()));
    for admin in &mut admins {
        assert_eq!(call(admin, &["ACL", "LOG"]), "*0\r\n", "nothing was tried that the user may not do");
    }
}

/// This is why `min_replicas` needs `topology: single`, which is wrong here.
fn replicas_are_not_awaited() {
    let (cluster, upstream) = (Cluster::start(1, false).expect("a redis-server"), Upstream::start());
    let nodes = [cluster.nodes[0].address(); 3];
    let store = r#""topology": "single", "min_replicas": 1"#;
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 20)
        .replace(r#""store": {"#, &format!(r#""store": {{{store}, "#));
    let envoy = template(&nodes, &limiter, &upstream).with("op_timeout: 0.04s", "op_timeout: 5s").start();
    let status = || http::send(envoy.address("edge"), &as_user("ann")).expect("a response").status;
    eventually("redis_proxy to refuse `WAIT`", || {
        assert_eq!(status(), 503);
        (envoy.stat("wasmcustom.weir.store.error") > 0).then_some(())
    });
    let log = envoy.log();
    assert!(log.to_lowercase().contains("wait"), "{log}");
}

fn a_replica_takes_over() {
    let mut shards =
        Shards::start(r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2}"#, true);
    let users = users(30, &shards);
    assert_eq!(shards.burst(users.iter().map(String::as_str)), vec![200; 30]);
    for node in shards.cluster.nodes.iter().take(3) {
        are_replicated(&mut node.connect(), 1);
    }
    shards.cluster.nodes[0].stop();
    let (orphaned, others): (Vec<_>, Vec<_>) = users.iter().partition(|user| shards.home(user) == 0);
    // The other slots know nothing of it.
    assert_eq!(shards.burst(others.iter().map(|user| user.as_str())), vec![200; others.len()]);
    assert_eq!(shards.burst(others.iter().map(|user| user.as_str())), vec![429; others.len()]);
    let mut strangers = (0..).map(|number| format!("probe-{number}")).filter(|user| shards.home(user) == 0);
    every_worker_asks_again(&shards.envoy, || as_user(&strangers.next().expect("endless")));
    assert!(call(&mut shards.cluster.nodes[3].connect(), &["ROLE"]).contains("master"));
    // Each part of the slots is asked about again in its own time, a second at most. Earlier charges still count: each has one of two units
    // left.
    for (user, status) in orphaned.iter().flat_map(|user| [(user, 200), (user, 429)]) {
        let first =
            eventually("its slots to be asked about", || Some(shards.send(user)).filter(|told| *told != 503));
        assert_eq!(first, status, "{user}");
    }
}

/// Once its slots are known to fail.
fn a_shard_hangs() {
    let (cluster, upstream) = (Cluster::start(3, false).expect("a redis-server"), Upstream::start());
    let nodes: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 100);
    let envoy = template(&nodes, &limiter, &upstream).with("op_timeout: 0.04s", "op_timeout: 5s").start();
    let edge = envoy.address("edge");
    let of_node =
        |node| (0..).map(|user| format!("user-{user}")).find(|user| cluster.home(slot_of(user)) == node);
    let [hung, well] = [0, 1].map(|node| of_node(node).expect("endless"));
    let send = |user: &str| http::send(edge, &as_user(user)).expect("a response").status;
    assert_eq!([send(&hung), send(&well)], [200; 2]);
    cluster.nodes[0].freeze();
    assert_eq!(send(&hung), 503, "after `op_timeout`");
    let batches = || envoy.stat("wasmcustom.weir.batches");
    let (before, held) = (batches(), http::burst_held(edge, [as_user(&hung)]).expect("sent"));
    eventually("its node to be asked", || (batches() > before).then_some(()));
    assert_eq!([send(&well), send(&well)], [200; 2]);
    assert_eq!(envoy.stat("http.edge.downstream_rq_active"), 1, "the other waits still");
    cluster.nodes[0].thaw();
    let held: Statuses = held.into_iter().map(|held| held.finish().expect("a response").status).collect();
    assert!([vec![(200, 1)], vec![(503, 1)]].contains(&held.0), "{held:?}");
}

/// Once it is known that the journal cannot be written.
fn the_shard_of_the_journal_hangs() {
    let (cluster, upstream) = (Cluster::start(3, false).expect("a redis-server"), Upstream::start());
    let nodes: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    let journal = cluster.home(slot(JOURNAL.as_bytes()));
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 1_000).replacen(
        '{',
        r#"{"journal": {}, "deny": [{"method": ["PUT"]}], "#,
        1,
    );
    let envoy = template(&nodes, &limiter, &upstream).with("op_timeout: 0.04s", "op_timeout: 2s").start();
    let send = |request: &Request| http::send(envoy.address("edge"), request).expect("a response").status;
    let elsewhere =
        (0..).map(|user| format!("user-{user}")).find(|user| cluster.home(slot_of(user)) != journal);
    let elsewhere = as_user(&elsewhere.expect("endless"));
    let length = || cluster.nodes[journal].connect().integer(&[b"XLEN", b"weir:{journal}"]);
    let deny = || assert_eq!(send(&Request::put("/")), 403);
    assert_eq!(send(&elsewhere), 200);
    deny();
    eventually("its entry", || (length() == 1).then_some(()));
    cluster.nodes[journal].freeze();
    let failures = || {
        ["slow", "refused"]
            .map(|kind| envoy.stat(&format!("wasmcustom.weir.store.{kind}")))
            .iter()
            .sum::<u64>()
    };
    deny();
    eventually("an entry to fail", || (failures() > 0).then_some(()));
    let batches = || envoy.stat("wasmcustom.weir.batches");
    eventually("requests that are decided while an entry waits", || {
        let before = batches();
        deny();
        eventually("its batch", || (batches() > before).then_some(()));
        let failed = failures();
        assert_eq!([send(&elsewhere), send(&elsewhere)], [200; 2]);
        (failures() == failed).then_some(())
    });
    cluster.nodes[journal].thaw();
    eventually("entries", || {
        deny();
        (length() > 2).then_some(())
    });
    assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0);
    assert_eq!(envoy.stat("wasmcustom.weir.breaker_open"), 0);
}
