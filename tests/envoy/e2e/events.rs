// SPDX-License-Identifier: Apache-2.0
//! Events in Envoy while requests wait in weir: its listeners are drained or replaced, the filter's configuration or the connection to
//! Redis is replaced, the process ends. No request is left hanging, nothing that Envoy has accepted is lost before its end, and exactly the
//! admitted requests are charged.

use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::leases::{leased, used};
use crate::support::clients::{Clients, Told};
use crate::support::dynamic::{Dynamic, Part};
use crate::support::envoy::Envoy;
use crate::support::eventually;
use crate::support::http::{self, Exchange, Request, Response};
use crate::support::proxy::Network;
use crate::support::weir::{Host, Statuses, TIME_TO_CONNECT, get, limited};

pub const TESTS: &[(&str, fn())] = &[
    ("events: the listeners are drained at once", listeners_are_drained::<false>),
    ("events: the listeners are drained gracefully", listeners_are_drained::<true>),
    (
        "events: weir decides for who is connected still, when the listeners are gone",
        a_stream_begins_after_a_drain,
    ),
    ("events: the cluster of the bridge is replaced, again and again", the_cluster_is_replaced::<false>),
    (
        "events: the cluster of the bridge goes and comes back, again and again",
        the_cluster_is_replaced::<true>,
    ),
    ("events: the filters of the listener are replaced", the_listener_is_replaced::<false>),
    ("events: the listener is replaced", the_listener_is_replaced::<true>),
    ("events: the filter gets another configuration, a broken one, and the first", the_filter_is_replaced),
    ("events: envoy is terminated", envoy_ends::<true>),
    ("events: envoy is told to quit", envoy_ends::<false>),
    ("events: what is on lease stays charged when envoy ends", leases_end_with_envoy),
    ("events: what is on lease goes back when envoy is drained before it ends", a_drain_gives_leases_back),
];

/// More than any of these tests uses up.
const LIMIT: usize = 50_000;

const CLIENTS: usize = 8;

/// So distant that a request is on its way there at any time.
const FAR: Network = Network::Slow(Duration::from_millis(10));

/// Less than one unit comes back while a test runs.
fn everybody(limit: usize) -> String {
    limited(limit).replace("1/d", "1/h")
}

/// As [`everybody`], and beyond the first request to `/late` a wait of 3 s.
fn limiter(limit: usize) -> String {
    let late = r#"{"name": "late", "match": {"path": {"exact": "/late"}}, "subject": [{"literal": "late"}], "limits":
        [{"name": "l", "algorithm": "leaky_bucket", "rate": "20/m", "burst": 1, "max_delay": "1m"}]}"#;
    everybody(limit).replace(r#""policies": ["#, &format!(r#""policies": [{late}, "#))
}

/// An Envoy of two workers under steady load, with a request that `max_delay` holds.
struct Busy {
    world: Dynamic,
    clients: Clients,
    late: Vec<Exchange>,
}

impl Busy {
    fn start(part: Part, limiter: &str, arguments: &[&str]) -> Self {
        let world = Dynamic::start(part, limiter, 2, arguments);
        let edge = world.envoy.address("edge");
        let late = http::burst_held(edge, (0..2).map(|_| Request::get("/late"))).expect("sent");
        eventually("one of them to pass", || {
            (world.envoy.stat("http.edge.downstream_rq_completed") >= 1).then_some(())
        });
        world.network.set(FAR);
        let clients = Clients::start(CLIENTS, edge);
        clients.go_on(50);
        Self { world, clients, late }
    }

    /// Has something happen while every client's request is surely paused in weir, and lets them go only once it is `seen`.
    fn while_all_wait(&self, happens: impl FnOnce(), seen: &str, is_seen: impl Fn() -> bool) {
        all_wait(&self.world);
        happens();
        eventually(seen, || is_seen().then_some(()));
        self.world.network.set(FAR);
    }

    /// Nothing that Envoy has taken was lost, and each request was charged once.
    fn account(self, end: impl FnOnce(Clients) -> Told, limit: usize) {
        let Self { world, clients, late } = self;
        let told = end(clients);
        for late in late {
            assert_eq!(late.finish().expect("a response").status, 200);
        }
        assert_eq!(told.broken, [""; 0]);
        assert!(told.statuses.iter().all(|status| *status == 200), "{:?}", told.statuses());
        let admitted = told.statuses.len() + 2;
        let stat = |name: &str| world.envoy.stat(name);
        let counted = stat("http.edge.downstream_rq_total");
        assert_eq!(counted, admitted as u64, "{} connections ended in place of an answer", told.unanswered);
        eventually("no request to be left", || (stat("http.edge.downstream_rq_active") == 0).then_some(()));
        assert_eq!(stat("wasmcustom.weir.fallback"), 0, "Redis decided");
        assert_eq!(world.upstream.requests(), admitted);
        eventually("what was on lease to be back, and nothing else", || {
            (stat("wasmcustom.weir.on_lease") == 0 && charged(&world, limit) == admitted).then_some(())
        });
    }
}

/// Cuts the network, and waits until every client's request is paused in weir.
fn all_wait(world: &Dynamic) {
    world.network.set(Network::Cut);
    let mut before = None;
    eventually("every client to wait", || {
        let [active, total] =
            ["active", "total"].map(|name| world.envoy.stat(&format!("http.edge.downstream_rq_{name}")));
        // If no request has come meanwhile, no request has ended either: each client would have asked again.
        (active >= CLIENTS as u64 && before.replace(total) == Some(total)).then_some(())
    });
}

/// The number of units of everybody's limit that are used.
fn charged(world: &Dynamic, limit: usize) -> usize {
    used(&world.redis, "everybody", limit, 1)
}

/// Has Envoy's admin interface do something.
fn order(envoy: &Envoy, what: &str) -> io::Result<Response> {
    let options: serde_json::Value = serde_json::from_str(&envoy.admin("/server_info")).expect("JSON");
    let file = options["command_line_options"]["admin_address_path"].as_str().expect("a file").to_owned();
    let admin: SocketAddr = std::fs::read_to_string(file).expect("an address").parse().expect("an address");
    http::send(admin, &Request::post(what, b""))
}

fn drain(envoy: &Envoy, how: &str) {
    let told = order(envoy, &format!("/drain_listeners{how}")).expect("an answer");
    assert_eq!((told.status, told.text()), (200, "OK\n"));
}

fn closed(edge: SocketAddr) -> bool {
    TcpStream::connect(edge).is_err()
}

fn listeners_are_drained<const GRACEFUL: bool>() {
    // Within this time Envoy closes more and more of the connections. By default it is ten minutes, which hardly closes one.
    let drain_time: &[&str] = if GRACEFUL { &["--drain-time-s", "1"] } else { &[] };
    let busy = Busy::start(Part::Listener, &limiter(LIMIT), drain_time);
    let edge = busy.world.envoy.address("edge");
    let drain = || drain(&busy.world.envoy, if GRACEFUL { "?graceful" } else { "" });
    busy.while_all_wait(drain, "the door to be closed", || closed(edge));
    if GRACEFUL {
        // Each answer says that it is the connection's last.
        busy.account(Clients::leave, LIMIT);
    } else {
        busy.clients.go_on(50);
        busy.account(Clients::end, LIMIT);
    }
}

fn a_stream_begins_after_a_drain() {
    // Its one worker has asked nothing yet: its stream to Redis is opened after the drain.
    let world = Dynamic::start(Part::Listener, &everybody(LIMIT), 1, &[]);
    let edge = world.envoy.address("edge");
    let mut connection = TcpStream::connect(edge).expect("a connection");
    eventually("it to be accepted", || {
        (world.envoy.stat("http.edge.downstream_cx_active") == 1).then_some(())
    });
    if Host::chosen() == Host::Native {
        // The drain closes the module's own listeners, too.
        let mut redis = world.redis.connect();
        eventually("the module's connection", || {
            (redis.say("CLIENT LIST").matches(" addr=").count() == 2).then_some(())
        });
    }
    drain(&world.envoy, "");
    eventually("the door to be closed", || closed(edge).then_some(()));
    connection.write_all(b"GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n").expect("sent");
    let answer = http::read(&mut BufReader::new(connection)).expect("HTTP").expect("an answer");
    assert!(
        answer.headers.get("ratelimit").is_some_and(|told| told.starts_with(r#""l";r=49999;"#)),
        "{answer:?}"
    );
}

/// Batches on their way to Redis then are lost, and `on_failure` decides their requests; the next batches use streams of the next cluster.
fn the_cluster_is_replaced<const GONE: bool>() {
    const ROUNDS: usize = 5;
    let Busy { world, clients, late } = Busy::start(Part::Cluster, &limiter(LIMIT), &[]);
    let stat = |name: &str| world.envoy.stat(name);
    let mut redis = world.redis.connect();
    let (change, name) = if GONE { ("removed", "a removal") } else { ("modified", "an update") };
    for round in 1..=ROUNDS {
        all_wait(&world);
        if GONE {
            world.remove();
        } else {
            world.update_with("", TIME_TO_CONNECT, &TIME_TO_CONNECT.replace('5', &format!("5.{round}")));
        }
        eventually(name, || {
            (stat(&format!("cluster_manager.cluster_{change}")) == round as u64).then_some(())
        });
        world.network.set(FAR);
        if GONE {
            eventually("every stream to be closed", || {
                (redis.say("CLIENT LIST").matches(" addr=").count() == 1).then_some(())
            });
            world.update("");
        }
        let admitted = || clients.so_far().statuses.iter().filter(|status| **status == 200).count();
        let before = admitted();
        eventually("redis to decide again", || (admitted() >= before + 50).then_some(()));
    }
    let told = clients.end();
    for late in late {
        assert_eq!(late.finish().expect("a response").status, 200);
    }
    let Statuses(statuses) = told.statuses();
    // A dynamic module's open connection outlives an update of its cluster, so nothing on it is lost.
    let lost = GONE || Host::chosen() == Host::Wasm;
    let (admitted, refused) = match statuses[..] {
        [(200, admitted), (503, refused)] if lost => (admitted, refused),
        [(200, admitted)] if !lost => (admitted, 0),
        _ => panic!("{statuses:?}"),
    };
    let admitted = admitted + 2;
    assert_eq!((told.broken, told.unanswered), (Vec::new(), 0));
    assert_eq!(stat("http.edge.downstream_rq_total"), (admitted + refused) as u64);
    eventually("no request to be left", || (stat("http.edge.downstream_rq_active") == 0).then_some(()));
    eventually("each refusal to be counted", || {
        (stat("wasmcustom.weir.fallback") == refused as u64).then_some(())
    });
    // Tasks that waited for a connection have not been sent, and use the next one.
    assert!(refused >= ROUNDS || !lost, "{refused} refused, though all were waiting each time");
    assert_eq!(world.upstream.requests(), admitted);
    // Redis may have been asked about those whose answer was lost.
    let charged = charged(&world, LIMIT);
    assert!((admitted..=admitted + refused).contains(&charged), "{charged} charged for {admitted}");
    assert!(!world.envoy.log().contains("[error][wasm]"), "{}", world.envoy.log());
}

fn the_listener_is_replaced<const WHOLE: bool>() {
    // Each open connection learns of the drain with its next answer, and may finish that.
    let busy = Busy::start(Part::Listener, &limiter(LIMIT), &["--drain-strategy", "immediate"]);
    let stat = |name: &str| busy.world.envoy.stat(&format!("listener_manager.{name}"));
    let (from, draining) =
        ("filter_chains:", if WHOLE { "total_listeners_draining" } else { "total_filter_chains_draining" });
    let to = if WHOLE { "per_connection_buffer_limit_bytes: 65536\n  filter_chains:" } else { from };
    let update = || busy.world.update_with(&limiter(LIMIT + 50), from, to);
    busy.while_all_wait(update, draining, || stat(draining) == 1);
    busy.clients.go_on(50);
    let seen = busy.clients.so_far().policies;
    assert_eq!(seen.len(), 2, "under the one and under the other: {seen:?}");
    busy.account(Clients::end, LIMIT + 50);
}

fn the_filter_is_replaced() {
    let busy = Busy::start(Part::Filter, &limiter(LIMIT), &[]);
    let updates = |outcome: &str| {
        busy.world.envoy.stat(&format!("extension_config_discovery.http_filter.weir.{outcome}"))
    };
    let on_lease = || busy.world.envoy.stat("wasmcustom.weir.on_lease");

    let leased = leased(&limiter(LIMIT), "1m");
    busy.while_all_wait(|| busy.world.update(&leased), "the update", || updates("update_success") == 2);
    busy.clients.go_on(50);
    eventually("something to be on lease", || (on_lease() > 0).then_some(()));

    let broken = leased.replace("burst", "brust");
    busy.while_all_wait(|| busy.world.update(&broken), "the refusal", || updates("update_rejected") == 1);
    assert!(busy.world.envoy.log().contains("did you mean"), "{}", busy.world.envoy.log());
    busy.clients.go_on(50);
    eventually("the old one to lease still", || (on_lease() > 0).then_some(()));

    busy.while_all_wait(
        || busy.world.update(&limiter(LIMIT)),
        "the update",
        || updates("update_success") == 3,
    );
    busy.clients.go_on(50);
    busy.account(Clients::end, LIMIT);
}

fn envoy_ends<const BY_SIGNAL: bool>() {
    let busy = Busy::start(Part::Filter, &leased(&limiter(LIMIT), "1m"), &[]);
    let edge = busy.world.envoy.address("edge");
    let at_upstream = http::begin(edge, &Request::get("/hold")).expect("sent");
    eventually("it to be there", || (busy.world.upstream.held() == 1).then_some(()));
    all_wait(&busy.world);
    end::<BY_SIGNAL>(&busy.world.envoy);
    let Busy { world, clients, late } = busy;
    let told = clients.leave();
    assert_eq!(told.broken, [""; 0], "answered, or closed");
    assert!(told.statuses.iter().all(|status| *status == 200), "{:?}", told.statuses());
    assert!(told.unanswered >= CLIENTS, "{}", told.unanswered);
    let mut late_answered = 0;
    for exchange in late.into_iter().chain([at_upstream]) {
        match exchange.finish() {
            Ok(response) => {
                assert_eq!(response.status, 200);
                late_answered += 1;
            }
            Err(error) => assert!(
                [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&error.kind()),
                "{error}"
            ),
        }
    }
    // Requests whose answer was lost stay charged, and so do unused leases: never the other way around.
    let (admitted, charged) = (told.statuses.len() + late_answered, charged(&world, LIMIT));
    let most = admitted + CLIENTS + 2 + 2 * 20;
    assert!((admitted..=most).contains(&charged), "{charged} charged for {admitted}");
}

/// Ends Envoy, and waits until the process has ended.
fn end<const BY_SIGNAL: bool>(envoy: &Envoy) {
    let process = envoy.pid();
    if BY_SIGNAL {
        assert!(crate::support::signal("-TERM", process));
    } else {
        // Its answer may be cut off by what it does.
        let _ = order(envoy, "/quitquitquit");
    }
    eventually("the process to end", || {
        // It is a zombie until its parent waits for it.
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        (!status.contains("State:") || status.contains("State:\tZ")).then_some(())
    });
}

fn leases_end_with_envoy() {
    let world = Dynamic::start(Part::Filter, &leased(&everybody(LIMIT), "1m"), 1, &[]);
    assert_eq!(http::send(world.envoy.address("edge"), &get()).expect("a response").status, 200);
    eventually("a lease", || (world.envoy.stat("wasmcustom.weir.on_lease") == 2).then_some(()));
    end::<true>(&world.envoy);
    // A worker's event loop has stopped before the filter hears of its end: nothing can be sent any more.
    assert_eq!(charged(&world, LIMIT), 1 + 2);
}

fn a_drain_gives_leases_back() {
    let world = Dynamic::start(Part::Filter, &leased(&everybody(LIMIT), "1s"), 1, &[]);
    let edge = world.envoy.address("edge");
    assert_eq!(http::send(edge, &get()).expect("a response").status, 200);
    drain(&world.envoy, "");
    eventually("the door to be closed", || closed(edge).then_some(()));
    eventually("the lease to end, and go back", || (charged(&world, LIMIT) == 1).then_some(()));
    eventually("no lease", || (world.envoy.stat("wasmcustom.weir.on_lease") == 0).then_some(()));
    end::<true>(&world.envoy);
    assert_eq!(charged(&world, LIMIT), 1);
}
