//! What is wrong with the store is one event to a request, and to the operator a counter and a log line of its own that says
//! what to do. Each fault is put into a real Redis, or into Envoy's configuration.

use std::thread;

use crate::support::cluster::Cluster;
use crate::support::envoy::Template;
use crate::support::eventually;
use crate::support::http;
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{get, shipped};

pub const TESTS: &[(&str, fn())] = &[
    ("each failure of the store has a counter and advice of its own", each_failure_is_told_apart),
    ("failure: a cluster without enable_redirection, or with topology single", a_cluster_is_misread),
    ("failure: redis reads its data", redis_reads_its_data),
];

const LIMITER: &str = r#"{"store": {"deadline": "50ms", "on_failure": "allow"}, "policies": [{"name": "p",
    "subject": [{"literal": "s"}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000}]}]}"#;

struct Fault {
    /// The end of `wasmcustom.weir.store.…`.
    kind: &'static str,
    /// What the log says, among other things.
    advice: &'static str,
    redis: fn() -> Redis,
    limiter: fn(&str) -> String,
    envoy: fn(Template) -> Template,
    strike: fn(&Redis),
}

const fn fault(kind: &'static str, advice: &'static str) -> Fault {
    Fault { kind, advice, redis, limiter: str::to_owned, envoy: |template| template, strike: |_| () }
}

fn redis() -> Redis {
    Redis::start().expect("a redis-server")
}

fn faults() -> Vec<Fault> {
    vec![
        Fault { redis: Redis::absent, ..fault("refused", "is it running, and its address right?") },
        Fault { strike: Redis::freeze, ..fault("slow", "longer than `op_timeout`") },
        Fault {
            strike: Redis::freeze,
            envoy: |template| template.with("op_timeout: 0.04s", "op_timeout: 5s"),
            ..fault("timeout", "no answer within `store.deadline`")
        },
        Fault {
            strike: |redis| says(redis, &["CONFIG", "SET", "requirepass", "secret"]),
            ..fault("noauth", "a password, or the right one")
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
            strike: |redis| says(redis, &["CONFIG", "SET", "maxmemory", "1"]),
            ..fault("oom", "raise `maxmemory`")
        },
        Fault { strike: runs_for_ever, ..fault("busy", "find it with SCRIPT KILL") },
        Fault {
            redis: || Redis::start_node().expect("a redis-server").0,
            ..fault("clusterdown", "see CLUSTER INFO")
        },
        Fault {
            // The script asks for the time.
            redis: || Redis::start_with(&["--rename-command", "TIME", ""]).expect("a redis-server"),
            ..fault("error", "see Redis's documentation of this error")
        },
        Fault {
            limiter: |limiter| limiter.replace(r#""store": {"#, r#""store": {"cluster": "nowhere", "#),
            ..fault("not_sent", "is `store.cluster` defined in Envoy")
        },
        Fault {
            envoy: |template| {
                template.with("server_listener_name: weir-bridge", "server_listener_name: nowhere")
            },
            ..fault("unreachable", "is its listener there?")
        },
        Fault {
            limiter: |limiter| limiter.replace(r#""store": {"#, r#""store": {"cluster": "upstream", "#),
            ..fault("not_the_bridge", "does `store.cluster` lead to it?")
        },
        Fault {
            // An endpoint that is not healthy, where no other is and panic is forbidden.
            envoy: |template| {
                template.with(
                    "  - name: redis\n    type: STRICT_DNS\n",
                    "  - name: redis\n    common_lb_config: {healthy_panic_threshold: {value: 0}}\n    \
                     health_checks: [{timeout: 1s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, \
                     http_health_check: {path: /}}]\n    type: STRICT_DNS\n",
                )
            },
            ..fault("no_host", "knows no Redis, or none that is healthy")
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
    let faults = faults();
    thread::scope(|scope| {
        for faults in faults.chunks(4) {
            scope.spawn(move || faults.iter().for_each(is_told));
        }
    });
}

fn is_told(fault: &Fault) {
    let (redis, upstream) = ((fault.redis)(), Upstream::start());
    let template = shipped(&(fault.limiter)(LIMITER), redis.address(), upstream.address());
    (fault.strike)(&redis);
    expect(fault.kind, &[".unused"], fault.advice, &(fault.envoy)(template));
}

/// Under this configuration requests are let through, this is counted and nothing else but `also`, and the log says what
/// to do.
fn expect(kind: &str, also: &[&str], advice: &str, template: &Template) {
    let envoy = template.start();
    let counters = || envoy.stats("wasmcustom.weir.store.");
    let name = format!("wasmcustom.weir.store.{kind}");
    eventually(&format!("{name} to count; now there are {:?}", counters()), || {
        let status = http::send(envoy.address("edge"), &get()).expect("a response").status;
        assert_eq!(status, 200, "{kind}: `on_failure` decides");
        counters().get(&name).filter(|count| **count > 2).map(drop)
    });
    let other: Vec<_> = counters()
        .into_iter()
        .filter(|(other, count)| {
            *count > 0 && *other != name && !also.iter().any(|also| other.ends_with(also))
        })
        .collect();
    assert_eq!(other, [], "{kind}");
    let log = eventually(&format!("a line about {kind}"), || {
        Some(envoy.log())
            .filter(|log| log.lines().any(|line| line.contains("store: ") && line.contains(advice)))
    });
    let lines = log.lines().filter(|line| line.contains(advice)).count() as u64;
    assert!(lines < counters()[&name], "{kind}: {lines} lines are as many as failures");
}

fn a_cluster_is_misread() {
    let cluster = Cluster::start(3, false).expect("a redis-server");
    // Envoy knows one of the nodes, as if it were all of Redis. These subjects are spread over all of them.
    let limiter = LIMITER.replace(r#"{"literal": "s"}"#, r#"{"header": {"name": "x-user"}}"#);
    let single = limiter.replace(r#""store": {"#, r#""store": {"topology": "single", "#);
    for (limiter, kind, advice) in [
        (limiter, "moved", "set `enable_redirection` in redis_proxy"),
        (single, "crossslot", "leave `store.topology` at `any` for a Redis Cluster"),
    ] {
        let upstream = Upstream::start();
        let envoy = shipped(&limiter, cluster.nodes[0].address(), upstream.address()).start();
        eventually(&format!("{kind} to count"), || {
            let users = (0..30).map(|user| get().header("x-user", &user.to_string()));
            let told = http::burst(envoy.address("edge"), users).expect("responses");
            assert!(told.iter().all(|response| response.status == 200), "{kind}: `on_failure` decides");
            (envoy.stat(&format!("wasmcustom.weir.store.{kind}")) > 0).then_some(())
        });
        eventually(&format!("a line about {kind}"), || envoy.log().contains(advice).then_some(()));
    }
}

fn redis_reads_its_data() {
    let redis = Redis::start_with(&["--enable-debug-command", "yes"]).expect("a redis-server");
    says(&redis, &["DEBUG", "POPULATE", "20000"]);
    // A key takes a millisecond, and between keys it says so to whoever asks.
    for (name, value) in [("key-load-delay", "1000"), ("loading-process-events-interval-bytes", "1024")] {
        says(&redis, &["CONFIG", "SET", name, value]);
    }
    redis.connect().tell(&[b"DEBUG", b"RELOAD"]);
    let mut other = redis.connect();
    eventually("redis to read its data", || other.say("GET x").starts_with("-LOADING").then_some(()));
    let upstream = Upstream::start();
    // It looks up from its reading now and then.
    let also = [".unused", ".slow", ".timeout"];
    let template = shipped(LIMITER, redis.address(), upstream.address());
    expect("loading", &also, "it will answer when it has", &template);
}
