// SPDX-License-Identifier: Apache-2.0
//! The dynamic module in a real Envoy, on a real Redis: what is this host's own, and what every host must do. `WEIR_HOST=native` runs
//! the cases of `tests/envoy/e2e` on it, too.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
// The tests measure with a real clock if a decision comes in time.
#![allow(clippy::disallowed_methods)]

mod attributes;
mod bindings;
mod panics;
use weir_support as support;
mod two;

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use support::envoy::{Envoy, Template};
use support::http::Request;
use support::redis::Redis;
use support::upstream::Upstream;
use support::weir::{Host, Statuses, World, get, limited, limited_by, module, template_on};
use support::{eventually, ignored_unless};

const TESTS: &[(&str, fn())] = &[
    ("native: the limit admits with its headers, then rejects", a_limit),
    ("native: 40 at once on a limit of 10, two envoys of two workers", forty_on_ten),
    ("native: a request that no policy applies to is admitted, a denied one is rejected", without_redis),
    ("native: a request is held for max_delay", a_held_request),
    ("native: a gRPC call is rejected with RESOURCE_EXHAUSTED", a_grpc_call),
    (
        "native: Redis is frozen: on_failure decides within the deadline, and Redis again afterwards",
        redis_freezes,
    ),
    ("native: Redis is restarted, again and again", redis_restarts),
    ("native: without the clock's listener, requests wait on clocks of their own", without_the_clock),
    ("native: without the listener weir-store, on_failure decides", without_a_connection),
    ("native: another process cannot send commands to Redis", a_foreign_client),
    ("native: a bad configuration is refused, and the log says why", bad_configurations),
];

fn main() -> ExitCode {
    let is_built = module().is_file();
    let is_instrumented = instrumented_module().is_file();
    let with_instrumented = [bindings::TESTS, panics::TESTS, two::PANICS].concat();
    let tests = [TESTS, attributes::TESTS, two::TESTS, &with_instrumented].concat();
    let needed: &[(bool, &[support::Case], &str)] = &[
        (is_built, &tests, "scripts/native builds the module"),
        (is_built && is_instrumented, &with_instrumented, "scripts/native instrumented builds their module"),
    ];
    let ignored = needed.iter().flat_map(|(is_there, cases, why)| ignored_unless(*is_there, cases, why));
    support::run_with_envoy(&tests, &ignored.collect())
}

/// The dynamic module with what tests need inside: `scripts/native instrumented`.
fn instrumented_module() -> PathBuf {
    module().with_file_name("libweir-instrumented.so")
}

/// Envoy loads the instrumented module.
fn instrumented(template: Template) -> Template {
    template.with(&module().display().to_string(), instrumented_module().display())
}

fn world(limiter: &str) -> World {
    World::on(Host::Native, limiter, 1, 1, |template| template)
}

fn a_limit() {
    let world = world(&limited(2));
    let first = world.send(&get());
    assert_eq!((first.status, first.headers.get("ratelimit-policy")), (200, Some("\"l\";q=2;w=172800")));
    assert!(first.headers.get("ratelimit").is_some_and(|left| left.starts_with("\"l\";r=1;")), "{first:?}");
    assert_eq!(world.send(&get()).status, 200);
    assert_eq!([connections(&world, "weir-clock"), connections(&world, "weir-store")], [1, 1]);
    let rejected = world.send(&get());
    assert_eq!(rejected.status, 429);
    assert!(rejected.headers.get("retry-after").is_some(), "{rejected:?}");
    assert_eq!(world.upstream.requests(), 2, "what was rejected must not have reached the upstream");
    let stats = ["admitted", "rejected", "fallback", "panics"];
    let counted = || stats.map(|name| world.envoy().stat(&format!("wasmcustom.weir.{name}")));
    eventually("all to be counted", || (counted() == [2, 1, 0, 0]).then_some(()));
}

fn forty_on_ten() {
    let world = World::on(Host::Native, &limited(10), 2, 2, |template| template);
    assert_eq!(world.burst(40, &get()), Statuses(vec![(200, 10), (429, 30)]));
    assert_eq!(world.upstream.requests(), 10);
}

fn without_redis() {
    let limiter = limited(1)
        .replacen('{', r#"{"deny": [{"method": ["PUT"]}], "#, 1)
        .replace(r#""name": "p","#, r#""name": "p", "match": {"method": ["POST"]},"#);
    let world = world(&limiter);
    assert_eq!([world.send(&get()).status, world.send(&get()).status], [200; 2]);
    assert_eq!(world.send(&Request::put("/")).status, 403);
    assert_eq!(world.envoy().stat("wasmcustom.weir.commands"), 0);
}

fn a_held_request() {
    let world =
        world(&limited(1).replace("1/d", "4/s").replace(r#""burst": 1"#, r#""burst": 1, "max_delay": "1s""#));
    let begin = Instant::now();
    assert_eq!([world.send(&get()).status, world.send(&get()).status], [200; 2]);
    // A quarter of a second, but for what clocks of milliseconds round.
    assert!(begin.elapsed() > Duration::from_millis(240), "{:?}", begin.elapsed());
}

fn a_grpc_call() {
    let world = world(&limited(1));
    let call = Request::post("/pkg.Service/Method", b"").header("content-type", "application/grpc");
    assert_eq!(world.send(&call).status, 200);
    let rejected = world.send(&call);
    assert_eq!((rejected.status, rejected.headers.get("grpc-status")), (200, Some("8")));
}

/// A deadline that a test waits for, and a verdict that shows if the store or `on_failure` decided.
fn hasty(limit: usize) -> String {
    limited(limit).replace("10s", "500ms")
}

/// It may miss the deadline on a busy machine, and is asked again then.
fn redis_decides(world: &World) {
    eventually("Redis to decide", || (world.send(&get()).status == 200).then_some(()));
}

fn redis_freezes() {
    let world = world(&hasty(100));
    redis_decides(&world);
    world.redis.freeze();
    for _ in 0..5 {
        assert_eq!(world.send(&get()).status, 503, "on_failure: deny, and no time-out of Envoy's own");
    }
    world.redis.thaw();
    redis_decides(&world);
    assert!(world.envoy().stat("wasmcustom.weir.store.timeout") > 0);
}

fn redis_restarts() {
    let mut world = world(&hasty(1_000));
    for round in 0..5 {
        redis_decides(&world);
        world.redis.stop();
        assert_eq!(world.send(&get()).status, 503, "round {round}");
        world.redis.restart();
    }
    redis_decides(&world);
}

/// The shipped configuration without the listener of this name.
fn without(listener: &str) -> impl FnOnce(Template) -> Template {
    let address = format!("\"@{listener}\"}}}}\n");
    // It listens, but nowhere where the module looks.
    move |template| template.with(&address, format!("\"@{listener}-elsewhere\"}}}}\n"))
}

/// The number of connections that a listener of the module has had.
fn connections(world: &World, listener: &str) -> u64 {
    let name = listener.trim_start_matches("weir");
    let stats = world.envoy().stats("listener.@");
    let of_listener = |stat: &str| {
        stat.trim_end_matches(".downstream_cx_total").trim_end_matches("-elsewhere").ends_with(name)
    };
    let found = stats.iter().filter(|(stat, _)| stat.ends_with(".downstream_cx_total") && of_listener(stat));
    found.map(|(_, connections)| *connections).sum()
}

fn without_the_clock() {
    let world = World::on(Host::Native, &hasty(100), 1, 1, without("weir-clock"));
    redis_decides(&world);
    assert_eq!([connections(&world, "weir-clock"), connections(&world, "weir-store")], [0, 1]);
    world.redis.freeze();
    assert_eq!(world.burst(10, &get()), Statuses(vec![(503, 10)]));
}

fn without_a_connection() {
    let world = World::on(Host::Native, &hasty(100), 1, 1, without("weir-store"));
    assert_eq!(world.send(&get()).status, 503);
    let told = || world.envoy().log().matches("nothing listens at @").count();
    eventually("the operator to be told", || (told() >= 1).then_some(()));
}

/// A connection to the listener `weir-store`.
fn connect(envoy: &Envoy) -> UnixStream {
    let stats = envoy.stats("listener.@");
    let listener = stats.keys().find_map(|stat| {
        let address = stat.strip_prefix("listener.@")?.strip_suffix(".downstream_cx_total")?;
        (address.contains("store") && !address.contains(".worker_")).then_some(address)
    });
    let listener = SocketAddr::from_abstract_name(listener.expect("a listener")).expect("an address");
    UnixStream::connect_addr(&listener).expect("a connection")
}

/// Every process in Envoy's network namespace can connect to `weir-store`.
fn a_foreign_client() {
    let world = world(&limited(100));
    assert_eq!(world.send(&get()).status, 200);
    let mut client = connect(world.envoy());
    client.write_all(b"SET stolen 1\r\n").expect("it is sent");
    // Later requests on the same worker are answered: so Envoy has read the bytes.
    for _ in 0..20 {
        assert_eq!(world.send(&get()).status, 200);
    }
    assert_eq!(world.redis.connect().integer(&[b"EXISTS", b"stolen"]), 0);
    client.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    assert!(!matches!(client.read(&mut [0; 64]), Ok(1..)), "Redis's replies are not for it");
}

fn bad_configurations() {
    let (redis, upstream) = (Redis::absent(), Upstream::start());
    let template = |limiter: &str| template_on(Host::Native, limiter, redis.address(), upstream.address());
    let good = limited(1);
    let inside = |path: &str| limited_by(&format!(r#"{{"attribute": {{"path": {path}}}}}"#), 1);
    let cases = [
        (
            template(&limited_by(r#"{"jwt_claim": {"claim": ["sub"]}}"#, 1)),
            "policies[0].subject[0]: found [\"metadata\",\"filter_metadata\",\"envoy.filters.http.jwt_authn\",\"jwt_payload\",\"sub\"], \
             a value inside another, which a dynamic module cannot read, allowed: an attribute [\"filter_state\", KEY]",
        ),
        (
            template(&inside(r#"["source", "port"]"#)),
            "policies[0].subject[0]: found [\"source\",\"port\"], which a dynamic module cannot read, allowed: request.headers.NAME",
        ),
        (template(&good.replace("1/d", "one")), r#"policies[0].limits[0].rate: found "one""#),
        (template("not JSON"), "no JSON"),
        (template(&good).with("weir.limiter", "weir.bridge"), r#"filter_name: "weir.bridge""#),
        (template(&good).with("weir.clock", "weir.watch"), r#"filter_name: "weir.watch""#),
        (template(&good).with("cluster: weir-bridge}", "clusters: []}"), "cluster: string expected"),
        (template(&good).with("{address: \"@weir-clock\"}", "{address: clock}"), "is no abstract socket"),
    ];
    for (template, error) in cases {
        let log = template.try_start().expect_err("Envoy must not start");
        assert!(log.contains(error), "{error} is not in:\n{log}");
    }
}
