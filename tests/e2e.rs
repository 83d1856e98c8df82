//! weir end to end: the filter that is shipped, in the configuration that is shipped, in a real Envoy, on a real Redis,
//! in front of a real upstream. Each test has all three to itself.
#![allow(missing_docs, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod support;

use std::process::ExitCode;

use support::eventually;
use support::http::{self, Exchange, Request};
use support::redis::Redis;
use support::upstream::{Upstream, body_account};
use support::weir::{PATIENT, Statuses, World, template};

fn main() -> ExitCode {
    support::run_with_envoy(&[
        ("40 at once on a limit of 10: one envoy", forty_on_ten::<1, 1>),
        ("40 at once on a limit of 10: one envoy, concurrency 2", forty_on_ten::<1, 2>),
        ("40 at once on a limit of 10: two envoys", forty_on_ten::<2, 1>),
        ("40 at once on a limit of 10: two envoys, concurrency 2", forty_on_ten::<2, 2>),
        ("the quota comes back as time passes", the_quota_comes_back),
        ("a rejection says why, and when to come back", a_rejection_says_when_to_come_back),
        ("a gRPC call is rejected with RESOURCE_EXHAUSTED", a_grpc_call_is_rejected),
        ("subjects are limited apart: by a header", subjects_are_limited_apart),
        ("hostile subjects reach no other subject's key", hostile_subjects_are_kept_apart),
        ("a path is the same path however it is spelled", spelling_tricks_do_not_help),
        ("an x-forwarded-for that nobody vouches for is not believed", a_spoofed_chain_is_not_believed),
        ("a denial by one policy gives back what another granted", a_denial_gives_back_other_grants),
        ("a subject over its limit costs redis nothing", a_denied_subject_costs_nothing),
        ("1,000 rejections at once", a_thousand_rejections),
        ("1,000 admissions at once, of 1,000 subjects", a_thousand_subjects),
        ("clients that disconnect while they are held", clients_disconnect_while_held),
        ("redis is absent at the start, then it is there", redis_comes_later),
        ("redis is frozen: on_failure allow lets everybody in by the deadline", frozen_redis::<true>),
        ("redis is frozen: on_failure deny lets nobody in", frozen_redis::<false>),
        ("redis forgets the script under load", redis_forgets_the_script),
        ("the body of a held request arrives whole", a_body_arrives_whole),
        ("decisions are in the access log", decisions_are_logged),
        ("max_delay holds requests until their turn", max_delay_holds),
        ("a configuration with mistakes is refused, and each is named", mistakes_are_refused),
        ("what is not the bridge's gets a 400 and a closed connection", the_bridge_refuses_strangers),
    ])
}

/// A policy with one limit that does not refill while a test runs.
fn limited(burst: usize) -> String {
    limited_by(r#"{"literal": "everybody"}"#, burst)
}

fn limited_by(subject: &str, burst: usize) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{subject}], "limits":
            [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]}}]}}"#
    )
}

fn get() -> Request {
    Request::get("/")
}

fn forty_on_ten<const ENVOYS: usize, const WORKERS: usize>() {
    let world = World::of(&limited(10), ENVOYS, WORKERS);
    for envoy in &world.envoys {
        assert_eq!(envoy.stat("server.concurrency"), WORKERS as u64);
    }
    assert_eq!(world.burst(40, &get()), Statuses(vec![(200, 10), (429, 30)]));
    assert_eq!(world.upstream.requests(), 10, "what was rejected must not have reached the upstream");
    assert_eq!(world.burst(8, &get()), Statuses(vec![(429, 8)]));
}

fn the_quota_comes_back() {
    let limit = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "20/s", "burst": 2}"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}]}}"#
    ));
    eventually("a rejection", || (world.send(&get()).status == 429).then_some(()));
    eventually("an admission", || (world.send(&get()).status == 200).then_some(()));
}

fn a_rejection_says_when_to_come_back() {
    let world = World::start(&limited(1));
    let admitted = world.send(&get());
    assert_eq!((admitted.status, admitted.headers.get("retry-after")), (200, None));
    assert_eq!(admitted.headers.get("ratelimit-policy"), Some(r#""l";q=1;w=86400"#));
    assert_eq!(admitted.headers.get("ratelimit"), Some(r#""l";r=0;t=86400"#));

    let rejected = world.send(&get());
    assert_eq!(rejected.status, 429);
    let seconds: u64 = rejected.headers.get("retry-after").expect("retry-after").parse().expect("seconds");
    // One unit a day, and it was taken a moment ago.
    assert!((86_000..=86_400).contains(&seconds), "{seconds}");
    assert!(rejected.headers.get("ratelimit").is_some_and(|limits| limits.starts_with(r#""l";r=0;t=86"#)));
    assert!(!rejected.body.is_empty());
}

fn a_grpc_call_is_rejected() {
    let world = World::start(&limited(1));
    let call = Request::post("/pkg.Service/Method", b"").header("content-type", "application/grpc+proto");
    assert_eq!(world.send(&call).status, 200);
    let rejected = world.send(&call);
    assert_eq!((rejected.status, rejected.headers.get("grpc-status")), (200, Some("8")));
    assert_eq!(rejected.headers.get("content-type"), Some("application/grpc"));
    let pushback: u64 = rejected.headers.get("grpc-retry-pushback-ms").expect("it").parse().expect("ms");
    assert!((86_000_000..=86_400_000).contains(&pushback), "{pushback}");
}

fn subjects_are_limited_apart() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}}"#, 1));
    let statuses: Vec<u16> = ["ann", "bob", "ann", "bob", "eve"]
        .iter()
        .map(|user| world.send(&get().header("x-user", user)).status)
        .collect();
    assert_eq!(statuses, [200, 200, 429, 429, 200]);
}

fn hostile_subjects_are_kept_apart() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}, "absent": "share"}"#, 1));
    let long = [b'a'; 40_000];
    let mut longer = long;
    longer[39_999] = b'b';
    let subjects: &[(&str, &[u8])] = &[
        ("plain", b"ann"),
        ("another slot's tag", b"}:x:{p|bob"),
        ("braces", b"{ann}"),
        ("a separator", b"ann|bob"),
        ("a limit's name", b"ann}:l"),
        ("an escape", b"%7Bann%7D"),
        ("an escaped escape", b"%257Bann%257D"),
        ("RESP", b"$3 ann *2"),
        ("a tab", b"an\tn"),
        ("no UTF-8", b"\xff\xfe\x80ann"),
        ("other bytes that are no UTF-8", b"\xff\xfe\x81ann"),
        ("the replacement character", "\u{fffd}\u{fffd}\u{fffd}ann".as_bytes()),
        ("40,000 bytes", &long),
        ("40,000 bytes, the last one another", &longer),
        ("nothing", b""),
    ];
    for round in [200, 429] {
        for (what, subject) in subjects {
            let response = world.send(&get().header_bytes("x-user", subject));
            assert_eq!(response.status, round, "{what}: a bucket of its own, with one unit in it");
        }
        assert_eq!(world.send(&get()).status, round, "those without the header share a bucket");
    }
    // Who sends the header twice does not get to choose which one counts.
    let twice = get().header("x-user", "someone").header("x-user", "else");
    assert_eq!(world.send(&twice).status, 403);
    let keys = world.redis.connect().call(&[b"KEYS", b"*"]);
    let keys = String::from_utf8(keys).expect("keys are text, whatever the subjects are");
    let keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    assert!(keys.len() >= subjects.len(), "{keys:#?}");
    for key in keys {
        let tag = key.strip_prefix("weir:{p|").and_then(|key| key.strip_suffix("}:l"));
        assert!(tag.is_some_and(|tag| !tag.contains(['{', '}', ' '])), "{key}");
        assert!(key.len() <= weir::policy::key::LONGEST_KEY, "{key}");
    }
}

fn spelling_tricks_do_not_help() {
    let limiter =
        limited(1).replace(r#""name": "p","#, r#""name": "p", "match": {"path": {"exact": "/login"}},"#);
    let world = World::start(&limiter);
    assert_eq!(world.send(&Request::get("/login")).status, 200);
    assert_eq!(world.send(&Request::get("/elsewhere")).status, 200, "the policy is about /login alone");
    for path in
        ["/login", "/x/../login", "/./login", "//login", "/%6cogin", "/login?next=/", "/x/%2e%2e/login"]
    {
        assert_eq!(world.send(&Request::get(path)).status, 429, "{path}");
    }
}

fn a_spoofed_chain_is_not_believed() {
    let world = World::start(&limited_by(r#"{"client_address": {}}"#, 3));
    let chains = ["203.0.113.1", "203.0.113.2, 10.0.0.1", "127.0.0.2", "unknown", "::1", "\u{fffd}"];
    let statuses = chains.map(|chain| world.send(&get().header("x-forwarded-for", chain)).status);
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

fn a_denial_gives_back_other_grants() {
    let limit = |name: &str, burst: usize| {
        format!(
            r#""limits": [{{"name": "{name}", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]"#
        )
    };
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [
            {{"name": "all", "subject": [{{"literal": "all"}}], {}}},
            {{"name": "each", "subject": [{{"header": {{"name": "x-user"}}}}], {}}}]}}"#,
        limit("all", 3),
        limit("each", 1),
    ));
    let as_user = |user: &str| world.send(&get().header("x-user", user)).status;
    assert_eq!(as_user("ann"), 200);
    // Denied by `each`: what `all` granted for it goes back with the next batch.
    assert_eq!([as_user("ann"), as_user("ann"), as_user("ann")], [429; 3]);
    assert_eq!([as_user("bob"), as_user("eve"), as_user("sam")], [200, 200, 429]);
}

fn a_denied_subject_costs_nothing() {
    let world = World::start(&limited(1));
    assert_eq!([world.send(&get()).status, world.send(&get()).status], [200, 429]);
    let commands = || world.envoy().stat("wasmcustom.weir.commands");
    let before = commands();
    assert!(before >= 2, "both were asked about");
    assert_eq!(world.burst(100, &get()), Statuses(vec![(429, 100)]));
    assert_eq!(commands(), before);
}

fn a_thousand_rejections() {
    let world = World::start(&limited(1));
    assert_eq!(world.send(&get()).status, 200);
    assert_eq!(world.burst(1_000, &get()), Statuses(vec![(429, 1_000)]));
    assert_eq!(world.upstream.requests(), 1);
    assert_eq!(world.send(&get()).status, 429, "the worker must have survived it");
}

fn a_thousand_subjects() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}}"#, 1));
    let requests = (0..1_000).map(|user| get().header("x-user", &user.to_string()));
    let statuses: Statuses = http::burst(world.edge(), requests)
        .expect("responses")
        .iter()
        .map(|response| response.status)
        .collect();
    assert_eq!(statuses, Statuses(vec![(200, 1_000)]));
}

fn clients_disconnect_while_held() {
    let world = World::start(&limited(10));
    assert_eq!(world.send(&get()).status, 200);
    world.redis.freeze();
    let held = http::burst_held(world.edge(), (0..20).map(|_| get())).expect("sent");
    let active = |expected| {
        eventually(&format!("{expected} requests in flight"), || {
            (world.envoy().stat("http.edge.downstream_rq_active") == expected).then_some(())
        });
    };
    active(20);
    let (leaving, staying): (Vec<_>, Vec<_>) = held.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    leaving.into_iter().for_each(|(_, exchange)| Exchange::abort(exchange));
    active(10);
    world.redis.thaw();
    let statuses: Statuses =
        staying.into_iter().map(|(_, held)| held.finish().expect("a response").status).collect();
    // Nine were left. Of the ones that left, those asked about already keep their units; nobody hangs.
    let answered: usize = statuses.0.iter().map(|(_, count)| count).sum();
    assert_eq!(answered, 10);
    assert!(statuses.0.iter().all(|(status, _)| [200, 429].contains(status)), "{statuses:?}");
    active(0);
    assert!(world.upstream.requests() <= 10);
    assert_eq!(world.envoy().stat("wasmcustom.weir.fallback"), 0);
}

fn redis_comes_later() {
    let upstream = Upstream::start();
    let mut redis = Redis::absent();
    let envoy = template(&limited(10).replace("deny", "allow"), redis.address(), upstream.address()).start();
    let edge = envoy.address("edge");
    let request = get();
    let status = || http::send(edge, &request).expect("a response").status;
    assert_eq!([status(), status()], [200; 2], "without a store, on_failure decides");
    redis.restart();
    let fallbacks = || envoy.stat("wasmcustom.weir.fallback");
    eventually("a request that Redis decides", || {
        let before = fallbacks();
        assert_eq!(status(), 200);
        (fallbacks() == before).then_some(())
    });
    let statuses: Statuses = http::burst(edge, (0..40).map(|_| get()))
        .expect("responses")
        .iter()
        .map(|response| response.status)
        .collect();
    assert_eq!(statuses, Statuses(vec![(200, 9), (429, 31)]));
}

fn frozen_redis<const ALLOW: bool>() {
    let (on_failure, expected) = if ALLOW { ("allow", 200) } else { ("deny", 503) };
    let limiter = limited(100)
        .replace(r#""deadline": "10s""#, r#""deadline": "50ms""#)
        .replace(r#""deny""#, &format!("{on_failure:?}"));
    let world = World::start(&limiter);
    let patient = eventually("an answer of Redis within the deadline", || {
        let response = world.send(&get());
        response.headers.get("ratelimit").is_some().then_some(response)
    });
    assert_eq!(patient.status, 200);
    world.redis.freeze();
    assert_eq!(world.burst(100, &get()), Statuses(vec![(expected, 100)]));
    world.redis.thaw();
    eventually("redis decides again", || world.send(&get()).headers.get("ratelimit").map(drop));
}

fn redis_forgets_the_script() {
    let world = World::of(&limited(150), 1, 2);
    let mut redis = world.redis.connect();
    let mut total = Vec::new();
    for _ in 0..10 {
        let held = http::burst_held(world.edge(), (0..20).map(|_| get())).expect("sent");
        assert_eq!(redis.call(&[b"SCRIPT", b"FLUSH"]), b"+OK\r\n");
        total.extend(held.into_iter().map(|held| held.finish().expect("a response").status));
    }
    assert_eq!(total.into_iter().collect::<Statuses>(), Statuses(vec![(200, 150), (429, 50)]));
    assert_eq!(world.envoy().stat("wasmcustom.weir.fallback"), 0);
}

fn a_body_arrives_whole() {
    let world = World::start(&limited(3));
    for length in [0, 1, 1_000_000] {
        let body: Vec<u8> = (0..length).map(|byte: u32| byte.to_le_bytes()[0]).collect();
        let response = world.send(&Request::post("/echo", &body));
        assert_eq!(response.status, 200);
        assert_eq!(response.text().lines().last(), Some(body_account(&body).as_str()));
    }
    assert_eq!(world.send(&Request::post("/echo", &[7; 1_000_000])).status, 429);
    assert_eq!(world.upstream.requests(), 3);
}

fn decisions_are_logged() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let limiter = limited(1).replacen('{', r#"{"record": true, "#, 1);
    let decision = ["policy", "limit", "outcome", "remaining", "source"]
        .map(|name| format!("%FILTER_STATE(wasm.weir.{name}:PLAIN)%"))
        .join(" ");
    let access_log = format!(
        r#"stat_prefix: edge
          access_log:
          - name: log
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StderrAccessLog
              log_format: {{text_format_source: {{inline_string: "DECIDED %RESPONSE_CODE% {decision}\n"}}}}
"#
    );
    let envoy = template(&limiter, redis.address(), upstream.address())
        .with("stat_prefix: edge\n", access_log)
        .argument("--file-flush-interval-msec")
        .argument("20")
        .start();
    for expected in [200, 429, 429] {
        assert_eq!(http::send(envoy.address("edge"), &get()).expect("a response").status, expected);
    }
    let expected = [
        "DECIDED 200 p l admitted 0 redis",
        "DECIDED 429 p l rejected 0 redis",
        "DECIDED 429 p l rejected 0 denied-until",
    ];
    eventually("three decisions in the log", || {
        let log = envoy.log();
        let decided: Vec<_> = log.lines().filter(|line| line.starts_with("DECIDED")).collect();
        (decided == expected).then_some(())
    });
}

fn max_delay_holds() {
    let limit =
        r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "10/s", "burst": 1, "max_delay": "300ms"}"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}]}}"#
    ));
    // One goes at once, three wait for 100, 200 and 300 ms, and there is no place for more.
    assert_eq!(world.burst(10, &get()), Statuses(vec![(200, 4), (429, 6)]));
}

fn mistakes_are_refused() {
    let (redis, upstream) = (Redis::absent(), Upstream::start());
    let mistaken = limited(10).replace("leaky_bucket", "leaky_buckt").replace(r#""rate""#, r#""rat""#);
    let log =
        template(&mistaken, redis.address(), upstream.address()).try_start().expect_err("it is refused");
    for expected in ["policies[0].limits[0].algorithm", "leaky_buckt", "leaky_bucket"] {
        assert!(log.contains(expected), "{expected:?} is not in:\n{log}");
    }
}

fn the_bridge_refuses_strangers() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    // The bridge as shipped, but where strangers can reach it.
    let envoy = template(&limited(10), redis.address(), upstream.address())
        .with("internal_listener: {}", "address: {socket_address: {address: 127.0.0.1, port_value: 0}}")
        .start();
    let ping = b"*1\r\n$4\r\nPING\r\n";
    let asked = |request: Request| http::send(envoy.address("weir-bridge"), &request).expect("a response");
    let ours = asked(Request::post("/", ping).header("x-weir-commands", "1"));
    assert_eq!((ours.status, ours.headers.get("x-weir-bridge"), ours.text()), (200, Some("1"), "+PONG\r\n"));
    let strangers = [
        ("another method", Request::get("/").header("x-weir-commands", "1")),
        ("no x-weir-commands", Request::post("/", ping)),
        ("a number that is none", Request::post("/", ping).header("x-weir-commands", "many")),
        ("more commands than announced", Request::post("/", ping).header("x-weir-commands", "0")),
        ("fewer commands than announced", Request::post("/", ping).header("x-weir-commands", "2")),
        ("no RESP", Request::post("/", b"PING").header("x-weir-commands", "1")),
    ];
    for (what, request) in strangers {
        let refused = asked(request);
        assert_eq!((refused.status, refused.headers.get("connection")), (400, Some("close")), "{what}");
        assert!(refused.text().starts_with("weir"), "{what}: {}", refused.text());
    }
    eventually("every connection to close", || {
        (envoy.stat("redis.weir.downstream_cx_active") == 0).then_some(())
    });
}
