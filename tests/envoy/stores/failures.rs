// SPDX-License-Identifier: Apache-2.0
//! The failures of the store: to a request each is the same event, and to the operator each is a counter and a log line of its own that
//! says what to do. Each fault is put into a real Redis, or into Envoy's configuration.
// The tests measure another process with a real clock.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use crate::support::cluster::Cluster;
use crate::support::envoy::{Envoy, Template};
use crate::support::eventually;
use crate::support::http;
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, Statuses, get, limited, template};
use crate::support::without;
use crate::{cluster, every_worker_asks_again};

pub const TESTS: &[(&str, fn())] = &[
    ("each failure of the store has a counter and advice of its own", each_failure_is_told_apart),
    ("failure: through redis_proxy, each has a counter and advice too", redis_proxy_tells_them_apart),
    ("failure: a cluster without enable_redirection, or with topology single", a_cluster_is_misread),
    ("failure: redis reads its data", redis_reads_its_data),
    ("failure: it costs each of many workers a few connections", connections_are_few),
    (CLOSES_WITH_ITS_REPLY, the_store_closes_with_its_reply),
    ("outage: it is told once a second and worker, and ends when the store is back", outages_end),
];

pub const CLOSES_WITH_ITS_REPLY: &str =
    "closing: a store that ends each connection together with its reply costs no request its decision";

/// Failures that do not depend on time must not depend on it because tests make the machine slow.
const LIMITER: &str = r#"{"store": {"deadline": "5s", "on_failure": "allow"}, "policies": [{"name": "p",
    "subject": [{"literal": "s"}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000}]}]}"#;

struct Fault {
    /// The end of `wasmcustom.weir.store.…`.
    kind: &'static str,
    /// A part of the log message.
    advice: &'static str,
    /// Other counters that may count meanwhile.
    also: &'static [&'static str],
    redis: fn() -> Vec<Redis>,
    /// The network between Envoy and the first of them, if not just a wire.
    network: Option<Network>,
    limiter: fn(&str) -> String,
    envoy: fn(Template) -> Template,
    /// True if it strikes a store that was well until then, and not before Envoy starts.
    later: bool,
    strike: fn(&Redis),
    /// The host that shows it, if not both.
    only: Option<Host>,
}

const fn fault(kind: &'static str, advice: &'static str) -> Fault {
    Fault {
        kind,
        advice,
        also: &["breaker_open"],
        redis: || vec![redis()],
        network: None,
        limiter: str::to_owned,
        envoy: |template| template,
        later: false,
        strike: |_| (),
        only: None,
    }
}

/// Something that only this host has, or tells in this way.
const fn of(host: Host, fault: Fault) -> Fault {
    Fault { only: Some(host), ..fault }
}

const fn cluster_fault(kind: &'static str, advice: &'static str) -> Fault {
    Fault {
        redis: || Cluster::start(3, false).expect("a redis-server").nodes,
        later: true,
        ..fault(kind, advice)
    }
}

fn redis() -> Redis {
    Redis::start().expect("a redis-server")
}

fn hasty(limiter: &str) -> String {
    limiter.replace("\"5s\"", "\"100ms\"")
}

const NO_CONNECTION: &str = "check that it runs, and that Envoy has its address";
const NO_BRIDGE: &str = "check that `store.cluster` in Envoy has weir's filter and its `upstream_config`";

fn faults() -> Vec<Fault> {
    vec![
        Fault { redis: || vec![Redis::absent()], ..fault("refused", NO_CONNECTION) },
        Fault { envoy: unhealthy, ..of(Host::Wasm, fault("not_sent", "a batch could not be sent")) },
        Fault { envoy: unhealthy, ..of(Host::Native, fault("refused", NO_CONNECTION)) },
        Fault { envoy: overflowing, ..of(Host::Wasm, fault("not_sent", "its circuit breaker closed")) },
        Fault { envoy: overflowing, ..of(Host::Native, fault("refused", NO_CONNECTION)) },
        Fault {
            strike: Redis::freeze,
            limiter: hasty,
            // On a slow machine a connection that the dynamic module opens anew gets no answer to its login, either.
            also: &["breaker_open", "refused"],
            ..fault("timeout", "no answer within `store.deadline`")
        },
        Fault {
            strike: |redis| says(redis, &["CONFIG", "SET", "requirepass", "secret"]),
            ..fault("noauth", "the password of Redis, or the right one")
        },
        Fault {
            strike: |redis| says(redis, &["ACL", "SETUSER", "default", "-evalsha"]),
            ..fault("noperm", "allow the user the commands and keys named in docs/stores.md")
        },
        Fault {
            strike: |redis| says(redis, &["REPLICAOF", "127.0.0.1", "1"]),
            ..fault("readonly", "let it find the primary")
        },
        Fault {
            strike: |redis| {
                says(redis, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
                says(redis, &["REPLICAOF", "127.0.0.1", "1"]);
            },
            ..fault("masterdown", "the replica has lost its primary")
        },
        Fault {
            strike: |redis| says(redis, &["CONFIG", "SET", "min-replicas-to-write", "1"]),
            ..fault("noreplicas", "the primary has lost its replicas")
        },
        Fault {
            strike: |redis| says(redis, &["CONFIG", "SET", "maxmemory", "1"]),
            ..fault("oom", "raise `maxmemory`")
        },
        Fault { strike: runs_for_ever, ..fault("busy", "stop it with SCRIPT KILL") },
        Fault {
            redis: || vec![Redis::start_node().expect("a redis-server").0],
            ..fault("clusterdown", "see CLUSTER INFO")
        },
        Fault {
            // The script asks for the time.
            redis: || vec![Redis::start_with(&["--rename-command", "TIME", ""]).expect("a redis-server")],
            ..fault("error", "see Redis's documentation of this error")
        },
        Fault {
            limiter: |limiter| limiter.replace(r#""store": {"#, r#""store": {"cluster": "nowhere", "#),
            ..fault("not_sent", "is `store.cluster` defined in Envoy")
        },
        Fault {
            // An HTTP server that waits for the end of the request, which there is none of.
            limiter: |limiter| {
                hasty(&limiter.replace(r#""store": {"#, r#""store": {"cluster": "upstream", "#))
            },
            ..of(Host::Wasm, fault("timeout", "no answer within `store.deadline`"))
        },
        Fault {
            // Redis is sent gRPC.
            envoy: without::the_bridge,
            ..of(Host::Wasm, fault("not_the_bridge", NO_BRIDGE))
        },
        Fault {
            // An HTTP server.
            network: Some(HTTP),
            envoy: |template| without::upstream_config(without::the_bridge(template)),
            ..of(Host::Wasm, fault("not_the_bridge", NO_BRIDGE))
        },
        Fault {
            // The bridge is there, but does not mark what speaks HTTP.
            network: Some(HTTP),
            envoy: without::upstream_config,
            ..of(Host::Wasm, fault("not_the_bridge", NO_BRIDGE))
        },
        Fault {
            // Redis is sent HTTP, which it takes for an attack.
            envoy: without::upstream_config,
            ..of(Host::Wasm, fault("refused", NO_CONNECTION))
        },
        Fault {
            // No RESP.
            network: Some(HTTP),
            ..fault("refused", NO_CONNECTION)
        },
        Fault {
            network: Some(Network::Foreign(b"+OK\r\n")),
            // It answers once to all that it reads at a time: to the greeting alone, when a batch arrives with it.
            also: &["breaker_open", "timeout"],
            ..fault("bad_reply", "is not what the script answers")
        },
        Fault {
            // Redis says so to AUTH, and to nothing else.
            network: Some(Network::Foreign(
                b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            )),
            // It says so once for a batch. Requests that came while the connection was opened are a second command of the first batch.
            also: &["breaker_open", "timeout"],
            ..fault("wrongpass", "correct the user or the password")
        },
    ]
}

const HTTP: Network = Network::Foreign(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");

/// An endpoint that is not healthy, where no other is and panic is forbidden.
fn unhealthy(template: Template) -> Template {
    template.with(
        "  - name: weir-bridge\n    type: STRICT_DNS\n",
        "  - name: weir-bridge\n    common_lb_config: {healthy_panic_threshold: {value: 0}}\n    \
         health_checks: [{timeout: 1s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, \
         http_health_check: {path: /}}]\n    type: STRICT_DNS\n",
    )
}

/// A circuit breaker that is open.
fn overflowing(template: Template) -> Template {
    let cluster = "  - name: weir-bridge\n    type: STRICT_DNS\n";
    let breaker = "    circuit_breakers: {thresholds: [{max_connections: 0, max_pending_requests: 0}]}\n";
    template.with(cluster, format!("{cluster}{breaker}"))
}

/// The faults in which `redis_proxy` is involved.
fn faults_of_redis_proxy() -> Vec<Fault> {
    vec![
        Fault {
            // One of several Redis that are no cluster; it is not healthy.
            envoy: |template| {
                let kind = without::part(
                    &template,
                    "    lb_policy: CLUSTER_PROVIDED\n",
                    "    upstream_connection_options:",
                );
                template.with(&kind, "    common_lb_config: {healthy_panic_threshold: {value: 0}}\n    \
                     health_checks: [{timeout: 1s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, \
                     http_health_check: {path: /}}]\n")
            },
            later: false,
            ..cluster_fault("no_host", "has no healthy endpoint of Redis")
        },
        Fault {
            envoy: |template| {
                template.with("server_listener_name: redis-proxy", "server_listener_name: nowhere")
            },
            later: false,
            ..of(Host::Wasm, cluster_fault("refused", NO_CONNECTION))
        },
        Fault {
            strike: |redis| redis.connect().tell(&[b"SHUTDOWN", b"NOSAVE"]),
            ..cluster_fault("refused", NO_CONNECTION)
        },
        Fault {
            strike: Redis::freeze,
            limiter: hasty,
            // Redis's connection ends when one command is too slow, and the requests that came later are lost with it.
            also: &["breaker_open", "refused"],
            ..cluster_fault("slow", "longer than `op_timeout`")
        },
        Fault {
            strike: Redis::freeze,
            limiter: hasty,
            envoy: |template| template.with("op_timeout: 0.04s", "op_timeout: 5s"),
            // As above.
            also: &["breaker_open", "refused"],
            ..cluster_fault("timeout", "no answer within `store.deadline`")
        },
        Fault {
            strike: |redis| says(redis, &["ACL", "SETUSER", "default", "-evalsha"]),
            envoy: |template| template.with("op_timeout: 0.04s", "op_timeout: 5s"),
            ..cluster_fault("noperm", "allow the user the commands and keys named in docs/stores.md")
        },
    ]
}

/// Says one command, which has to be taken.
fn says(redis: &Redis, words: &[&str]) {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    assert_eq!(redis.connect().call(&words), b"+OK\r\n", "{words:?}");
}

fn runs_for_ever(redis: &Redis) {
    says(redis, &["CONFIG", "SET", "lua-time-limit", "1"]);
    redis.connect().tell(&[b"EVAL", b"while true do end", b"0"]);
    let mut other = redis.connect();
    eventually("redis to be busy", || other.say("PING").starts_with("-BUSY").then_some(()));
}

fn each_failure_is_told_apart() {
    are_told_apart(&faults(), |limiter, redis, upstream| template(limiter, redis[0], upstream.address()));
}

fn redis_proxy_tells_them_apart() {
    are_told_apart(&faults_of_redis_proxy(), |limiter, redis, upstream| {
        cluster::template(redis, limiter, upstream)
    });
}

type Of = fn(&str, &[SocketAddr], &Upstream) -> Template;

fn are_told_apart(faults: &[Fault], of: Of) {
    thread::scope(|scope| {
        let is_here = |fault: &&Fault| fault.only.is_none_or(|host| host == Host::chosen());
        let faults: Vec<_> = faults.iter().filter(is_here).collect();
        for faults in faults.chunks(6) {
            let faults = faults.to_vec();
            scope.spawn(move || faults.into_iter().for_each(|fault| is_told(fault, of)));
        }
    });
}

fn is_told(fault: &Fault, of: Of) {
    let (redis, upstream) = ((fault.redis)(), Upstream::start());
    let mut addresses: Vec<_> = redis.iter().map(Redis::address).collect();
    let proxy = fault.network.clone().map(|network| {
        let proxy = Proxy::start(addresses[0]);
        proxy.set(network);
        addresses[0] = proxy.address();
        proxy
    });
    let template = (fault.envoy)(of(&(fault.limiter)(LIMITER), &addresses, &upstream));
    let strike = || redis.iter().for_each(fault.strike);
    if !fault.later {
        strike();
    }
    let envoy = template.start();
    if fault.later {
        every_worker_asks_again(&envoy, get);
        strike();
    }
    expect(fault.kind, fault.also, fault.advice, &envoy);
    drop(proxy);
}

/// Requests are let through, this is counted and nothing else but `also`, and the log says what to do.
fn expect(kind: &str, also: &[&str], advice: &str, envoy: &Envoy) {
    let counters = || envoy.stats("wasmcustom.weir.store.");
    let before = counters();
    let counted = eventually("failures to count", || {
        // Several at once: a breaker that opens soon decides the later ones.
        let told = http::burst(envoy.address("edge"), (0..5).map(|_| get())).expect("responses");
        assert!(told.iter().all(|response| response.status == 200), "{kind}: `on_failure` decides");
        let counted = counters().into_iter().filter_map(|(name, count)| {
            let more = count - before.get(&name).unwrap_or(&0);
            let name = name.rsplit('.').next()?.to_owned();
            (more > 0 && !also.contains(&name.as_str())).then_some((name, more))
        });
        let counted: Vec<_> = counted.collect();
        counted.iter().any(|(_, count)| *count > 2).then_some(counted)
    });
    let kinds: Vec<_> = counted.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kinds, [kind], "{advice:?} was to be said:\n{}", envoy.log());
    eventually(&format!("a line about {kind}"), || {
        let log = envoy.log();
        log.lines().any(|line| line.contains("store: ") && line.contains(advice)).then_some(())
    });
    eventually(&format!("{kind}: fewer lines than failures"), || {
        http::burst(envoy.address("edge"), (0..5).map(|_| get())).expect("responses");
        let failures: u64 = counters()
            .iter()
            .filter(|(name, _)| name.ends_with(&format!(".{kind}")))
            .map(|(_, count)| count)
            .sum();
        ((envoy.log().matches(advice).count() as u64) < failures).then_some(())
    });
}

fn a_cluster_is_misread() {
    // These subjects are spread over all nodes.
    let limiter = LIMITER.replace(r#"{"literal": "s"}"#, r#"{"header": {"name": "x-user"}}"#);
    let single = limiter.replace(r#""store": {"#, r#""store": {"topology": "single", "#);
    let one_node: Of = |limiter, redis, upstream| template(limiter, redis[0], upstream.address());
    // A command that takes too long would have Envoy ask where the slots are.
    fn all(limiter: &str, redis: &[SocketAddr], upstream: &Upstream) -> Template {
        cluster::template(redis, limiter, upstream).with("op_timeout: 0.04s", "op_timeout: 5s")
    }
    let unguided: Of = |limiter, redis, upstream| {
        all(limiter, redis, upstream)
            .with("enable_redirection: true", "enable_redirection: false")
            .with("cluster_refresh_rate: 1s", "cluster_refresh_rate: 3600s")
    };
    const MOVED: (&str, &str) = ("moved", "set `enable_redirection` in redis_proxy");
    const CROSSSLOT: (&str, &str) = ("crossslot", "leave `store.topology` at `any` for a Redis Cluster");
    let cluster = Cluster::start(3, false).expect("a redis-server");
    let redis: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    for (limiter, of, (kind, advice)) in [
        // Envoy knows one of the nodes, as if it were all of Redis.
        (&limiter, one_node, MOVED),
        (&single, one_node, CROSSSLOT),
        (&single, all as Of, CROSSSLOT),
    ] {
        let upstream = Upstream::start();
        misread(&of(limiter, &redis, &upstream).start(), kind, advice);
    }
    // Envoy knows all of them, and where their slots were when it started.
    let upstream = Upstream::start();
    let envoy = unguided(&limiter, &redis, &upstream).start();
    every_worker_asks_again(&envoy, || get().header("x-user", "1"));
    let moving = cluster::slot_of("1");
    let (from, to) = (cluster.home(moving), (cluster.home(moving) + 1) % 3);
    cluster.begin_move(moving, from, to);
    cluster.move_keys(moving, from, to);
    cluster.end_move(moving, from, to);
    misread(&envoy, MOVED.0, MOVED.1);
}

fn misread(envoy: &Envoy, kind: &str, advice: &str) {
    eventually(&format!("{kind} to count"), || {
        let users = (0..30).map(|user| get().header("x-user", &user.to_string()));
        let told = http::burst(envoy.address("edge"), users).expect("responses");
        let odd: Vec<_> = told.iter().filter(|response| response.status != 200).collect();
        assert!(odd.is_empty(), "{kind}: `on_failure` decides: {odd:?}");
        (envoy.stat(&format!("wasmcustom.weir.store.{kind}")) > 0).then_some(())
    });
    eventually(&format!("a line about {kind}"), || envoy.log().contains(advice).then_some(()));
}

fn redis_reads_its_data() {
    let redis = Redis::start_with(&["--enable-debug-command", "yes"]).expect("a redis-server");
    says(&redis, &["DEBUG", "POPULATE", "20000"]);
    // A key takes a millisecond, and between keys Redis answers BUSY.
    for (name, value) in [("key-load-delay", "1000"), ("loading-process-events-interval-bytes", "1024")] {
        says(&redis, &["CONFIG", "SET", name, value]);
    }
    redis.connect().tell(&[b"DEBUG", b"RELOAD"]);
    let mut other = redis.connect();
    eventually("redis to read its data", || other.say("GET x").starts_with("-LOADING").then_some(()));
    let upstream = Upstream::start();
    // It looks up from its reading now and then.
    let also = ["breaker_open", "timeout"];
    let template = template(&hasty(LIMITER), redis.address(), upstream.address());
    expect("loading", &also, "it answers when it has finished", &template.start());
}

/// The connections that one worker needs must not be opened for all of them.
fn connections_are_few() {
    const WORKERS: u64 = 8;
    let (redis, upstream) = (redis(), Upstream::start());
    let limiter = LIMITER.replace(r#"{"literal": "s"}"#, r#"{"header": {"name": "x-user"}}"#);
    let template = template(&limiter, redis.address(), upstream.address());
    let envoy = template.concurrency(usize::try_from(WORKERS).expect("few")).start();
    let mut users = (0..).map(|user: u32| get().header("x-user", &user.to_string()));
    every_worker_asks_again(&envoy, || users.next().expect("endless"));
    says(&redis, &["CONFIG", "SET", "maxmemory", "1"]);
    eventually("many failures", || {
        http::burst(envoy.address("edge"), users.by_ref().take(100)).expect("responses");
        (envoy.stat("wasmcustom.weir.store.oom") > 30 * WORKERS).then_some(())
    });
    says(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    every_worker_asks_again(&envoy, || users.next().expect("endless"));
    let connections = envoy.stat("cluster.weir-bridge.upstream_cx_total");
    assert!((WORKERS..=4 * WORKERS).contains(&connections), "{connections} connections of {WORKERS} workers");
}

/// Two policies on each request, and two workers. A worker alone has half of the units.
const BOTH: &str = r#"{"store": {"deadline": "250ms", "on_failure": ON_FAILURE, "workers": 2}, "policies": [
    {"name": "a", "subject": [{"literal": "s"}], "limits": [
        {"name": "a", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000000}]},
    {"name": "b", "subject": [{"header": {"name": "x-user"}}], "limits": [
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000000}]}]}"#;

type Act = fn(&mut Redis);

fn outages_end() {
    let frozen: (Act, Act) = (|redis| redis.freeze(), |redis| redis.thaw());
    let gone: (Act, Act) = (Redis::stop, Redis::restart);
    let rows = [("deny", frozen), ("allow", frozen), ("local", frozen), ("deny", gone)];
    thread::scope(|scope| {
        for (on_failure, (strike, mend)) in rows {
            scope.spawn(move || an_outage_ends(on_failure, strike, mend));
        }
    });
}

fn an_outage_ends(on_failure: &str, strike: Act, mend: Act) {
    let (mut redis, upstream) = (redis(), Upstream::start());
    let limiter = BOTH.replace("ON_FAILURE", &format!("{on_failure:?}"));
    let envoy = template(&limiter, redis.address(), upstream.address()).concurrency(2).start();
    let requests = || (0..8).map(|user| get().header("x-user", &user.to_string()));
    let send = || http::burst(envoy.address("edge"), requests()).expect("responses");
    // Both limits are in the header, with more units than any worker has by itself.
    let by_redis = |told: &http::Response| {
        let limits = told.headers.get("ratelimit").unwrap_or_default();
        let left = limits.split(";r=").skip(1).map(|rest| rest.split(';').next()?.parse::<u32>().ok());
        left.filter(|left| left.is_some_and(|left| left > 600_000)).count() == 2
    };
    let redis_decides = |what: &str| {
        eventually(
            &format!("{on_failure}, {what}: Redis to decide all requests, and no breaker to be open"),
            || {
                let all = send().iter().all(by_redis);
                (all && envoy.stat("wasmcustom.weir.breaker_open") == 0).then_some(())
            },
        );
    };
    redis_decides("at the start");
    // The durations of an outage in whole seconds, as each worker logs them.
    let mut told_before = 0;
    for (outage, lines) in [("a short outage", 1), ("another", 1), ("one of seconds", 3)] {
        let (struck, mut first_told) = (Instant::now(), None);
        strike(&mut redis);
        let told = eventually(&format!("{on_failure}, {outage}: {lines} lines of each worker"), || {
            let decided = send();
            let status = if on_failure == "deny" { 503 } else { 200 };
            // The first ones may still be of the time before.
            let by_itself = decided.iter().filter(|told| !by_redis(told));
            assert!(by_itself.clone().all(|told| told.status == status), "{on_failure}: {decided:?}");
            let told = outage_lines(&envoy.log(), told_before);
            if told.len() == 2 {
                first_told.get_or_insert_with(|| struck.elapsed().as_secs());
            }
            (told.len() == 2 && told.values().all(|seconds| seconds.len() >= lines)).then_some(told)
        });
        assert!(envoy.stat("wasmcustom.weir.breaker_open") >= 2, "{on_failure}: both workers count");
        for seconds in told.values() {
            let different: BTreeSet<_> = seconds.iter().collect();
            assert_eq!(
                different.len(),
                seconds.len(),
                "{on_failure}: more than once in a second: {seconds:?}"
            );
            // On a machine that stands still, the first line comes late.
            assert!(Some(seconds[0]) <= first_told, "{on_failure}: of an outage before: {seconds:?}");
        }
        mend(&mut redis);
        redis_decides(outage);
        // Each worker that has told of the outage tells of its end.
        eventually(&format!("{on_failure}, {outage}: its end is told"), || {
            send();
            let ends = envoy
                .log()
                .lines()
                .skip(told_before)
                .filter(|line| line.contains("store available again after "))
                .count();
            (ends == 2).then_some(())
        });
        told_before = envoy.log().lines().count();
    }
}

/// The lines that each thread of Envoy has logged of an outage, after the first `skip`.
fn outage_lines(log: &str, skip: usize) -> BTreeMap<String, Vec<u64>> {
    let mut told = BTreeMap::<String, Vec<u64>>::new();
    for line in log.lines().skip(skip) {
        let Some((_, rest)) = line.split_once("store unavailable for ") else { continue };
        let seconds = rest.split(' ').next().expect("a number").parse().expect(rest);
        // [2026-01-01 00:00:00.000][thread][warning]…
        let thread = line.split("][").nth(1).expect(line).to_owned();
        told.entry(thread).or_default().push(seconds);
    }
    told
}

/// A load balancer may end a connection so, or a store that shuts down. One read of Envoy returns the reply and the end. If the limiter
/// sends the next batch on that stream, Envoy loses the batch, and older versions of Envoy crash.
fn the_store_closes_with_its_reply() {
    const CLIENTS: usize = 20;
    const EACH: usize = 200;
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let proxy = Proxy::start(redis.address());
    let limiter = limited(2 * CLIENTS * EACH).replace("1/d", "1/h");
    let envoy = template(&limiter, proxy.address(), upstream.address()).concurrency(2).start();
    let edge = envoy.address("edge");
    proxy.set(Network::Closing);
    // A client sends its next request when it has the response to the last one, so the next batch is there when a reply comes.
    let client = || (0..EACH).map(|_| http::send(edge, &get()).map(|response| response.status)).collect();
    let answered: Vec<io::Result<Vec<u16>>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    let statuses: Result<Vec<_>, _> = answered.into_iter().collect();
    let statuses: Statuses = statuses.expect("Envoy lives").into_iter().flatten().collect();
    let ends = envoy.stat("cluster.weir-bridge.upstream_cx_total");
    let fallbacks = envoy.stat("wasmcustom.weir.fallback");
    println!("{ends} connections, {fallbacks} fallbacks, {statuses:?}");
    assert_eq!((statuses, fallbacks), (Statuses(vec![(200, CLIENTS * EACH)]), 0));
    assert!(ends >= EACH as u64, "{ends} connections have carried {} requests", CLIENTS * EACH);
}
