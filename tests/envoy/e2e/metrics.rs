// SPDX-License-Identifier: Apache-2.0
//! The entries for weir's own answers in access logs and in Envoy's log, without `emit_filter_state`; and the counts of denials without
//! Redis.

use crate::support::envoy::Template;
use crate::support::eventually;
use crate::support::http::{Request, Response};
use crate::support::weir::{Host, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("metrics: an access log tells weir's answers from the upstream's", an_access_log_tells),
    ("metrics: what is decided without redis is counted under its policy", decided_without_redis),
    ("metrics: the most denied subjects are logged, with redis away too", the_most_denied),
];

/// Envoy logs of each request its status, its response code details, and weir's.
fn logging(template: Template) -> Template {
    const HTTP: &str = "          stat_prefix: edge\n";
    let state = format!("%FILTER_STATE({}weir.details:PLAIN)%", Host::chosen().filter_state_prefix());
    let log = format!(
        "          access_log:
          - name: details
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
              log_format: {{text_format_source: {{inline_string: \"access %PATH% %RESPONSE_CODE% [%RESPONSE_CODE_DETAILS%] [{state}]\\n\"}}}}\n"
    );
    template.with(HTTP, format!("{HTTP}{log}"))
}

/// The line of the access log about this path.
fn logged(world: &World, path: &str) -> String {
    let begin = format!("access {path} ");
    eventually("a line of the access log", || {
        let log = world.envoy().log();
        log.lines().find_map(|line| Some(line.split_once(&begin)?.1.to_owned()))
    })
}

fn an_access_log_tells() {
    let limits = |burst: u32| {
        format!(
            r#""limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]"#
        )
    };
    let user = r#""subject": [{"header": {"name": "x-user"}, "on_missing": "deny"}]"#;
    let ban = r#""ban": {"after": 1, "window": "1h", "duration": "1h"}"#;
    let about = |name: &str, rest: &str| {
        format!(r#"{{"name": "{name}", "match": {{"path": {{"prefix": "/{name}"}}}}, {rest}}}"#)
    };
    let policies = [
        about("limited", &format!("{user}, {}", limits(1))),
        about("banning", &format!("{user}, {ban}, {}", limits(1))),
        about("safe", &format!(r#"{user}, "on_failure": "deny", {}"#, limits(100))),
        about("call", &format!("{user}, {}", limits(1))),
    ];
    let limiter = format!(
        r#"{{"store": {{"deadline": "10s", "on_failure": "allow"}}, "quota": {{}},
            "deny": [{{"header": {{"name": "x-rude"}}}}], "policies": [{}]}}"#,
        policies.join(",")
    );
    let mut world = World::with(&limiter, 1, 1, logging);
    let is_native = Host::chosen() == Host::Native;
    let send = |world: &World, request: Request| -> Response { world.send(&request) };
    let ann = |path: &str| Request::get(path).header("x-user", "ann");
    let call = |path: &str| {
        Request::post(path, b"").header("x-user", "ann").header("content-type", "application/grpc")
    };
    let check = |world: &World, path: &str, status: u16, details: &str| {
        let line = logged(world, path);
        // An answer of the module has them in both places.
        let code_details = if is_native { details } else { "" };
        assert_eq!(line, format!("{status} [{code_details}] [{details}]"), "{path}");
    };
    // The upstream's.
    assert_eq!(send(&world, ann("/limited/first")).status, 200);
    assert_eq!(logged(&world, "/limited/first"), "200 [via_upstream] [-]");
    // A denial by Redis, and one that the worker knows.
    for path in ["/limited/second", "/limited/third"] {
        assert_eq!(send(&world, ann(path)).status, 429);
        check(&world, path, 429, "weir_denied{limited}");
    }
    assert_eq!(send(&world, ann("/banning/first")).status, 200);
    eventually("a ban", || {
        send(&world, ann("/banning/again"));
        let log = world.envoy().log();
        log.contains("[weir_banned{banning}]").then_some(())
    });
    assert_eq!(send(&world, Request::get("/limited/nobody")).status, 403);
    check(&world, "/limited/nobody", 403, "weir_forbidden{limited}");
    assert_eq!(send(&world, ann("/rude").header("x-rude", "1")).status, 403);
    check(&world, "/rude", 403, "weir_forbidden");
    assert_eq!(send(&world, ann("/.well-known/quota")).status, 200);
    check(&world, "/.well-known/quota", 200, "weir_enquiry");
    // A gRPC call that is denied has the status 200.
    send(&world, call("/call/first"));
    assert_eq!(send(&world, call("/call/second")).status, 200);
    check(&world, "/call/second", 200, "weir_denied{call}");
    world.redis.stop();
    assert_eq!(send(&world, ann("/safe/first")).status, 503);
    check(&world, "/safe/first", 503, "weir_unavailable{safe}");
}

fn decided_without_redis() {
    let limiter = r#"{"store": {"deadline": "10s"}, "deny": [{"header": {"name": "x-rude"}}],
        "exempt": [{"header": {"name": "x-boss"}}], "policies": [
            {"name": "a.b", "subject": [{"header": {"name": "x-user"}, "on_missing": "deny"}],
             "exempt": [{"method": ["HEAD"]}],
             "limits": [{"name": "l.m", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2}]},
            {"name": "trial", "mode": "shadow", "deny": [{"header": {"name": "x-odd"}}],
             "subject": [{"literal": "all"}],
             "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}]}]}"#;
    let world = World::of(limiter, 1, 2);
    let ann = || get().header("x-user", "ann");
    // None of these asks Redis about the first policy.
    for (request, times) in [(get().header("x-rude", "1"), 3), (get().header("x-boss", "1"), 2), (get(), 4)] {
        (0..times).for_each(|_| drop(world.send(&request)));
    }
    for _ in 0..3 {
        world.send(&ann());
    }
    world.send(&ann().header("x-odd", "1"));
    let expected = [
        ("denied_by_list", 3),
        ("exempt", 2),
        ("subject_absent", 4),
        ("policy.a%2Eb.requests.denied.absent", 4),
        ("policy.a%2Eb.requests.allowed.redis", 2),
        ("policy.a%2Eb.limit.l%2Em.requests.allowed", 2),
        ("policy.a%2Eb.limit.l%2Em.requests.denied", 2),
        ("policy.a%2Eb.units_reserved", 2),
        ("policy.a%2Eb.limit.l%2Em.asked.50", 1),
        ("policy.a%2Eb.limit.l%2Em.asked.100", 3),
        ("policy.a%2Eb.limit.l%2Em.size", 2),
        ("policy.trial.units_reserved", 1),
        ("policy.trial.requests.allowed.redis", 1),
        ("policy.trial.requests.shadow_denied.list", 1),
        ("policy.trial.limit.l.requests.shadow_denied", 2),
        ("shadow_denied", 3),
    ];
    eventually("the counts", || {
        let stats = world.envoy().stats("wasmcustom.weir.");
        let of = |name: &str| stats.get(&format!("wasmcustom.weir.{name}")).copied();
        let found = expected.map(|(name, _)| (name, of(name).unwrap_or(0)));
        // A denial that is known in one worker is asked about in the other: both count.
        let denied =
            ["redis", "denied-until"].map(|source| of(&format!("policy.a%2Eb.requests.denied.{source}")));
        (found == expected && denied.iter().flatten().sum::<u64>() == 2).then_some(())
    });
}

fn the_most_denied() {
    let limiter = r#"{"store": {"deadline": "10s", "denial_ttl": "1h", "on_failure": "allow"}, "top_denied": {"count": 2, "interval": "1s"},
        "policies": [{"name": "p", "subject": [{"header": {"name": "x-user"}}],
            "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}]}]}"#;
    let talkative = |template: Template| {
        template.argument("--component-log-level").argument("wasm:info,dynamic_modules:info")
    };
    let mut world = World::with(limiter, 1, 1, talkative);
    let deny = |world: &World, user: &str, times: usize| {
        let request = get().header("x-user", user);
        while world.send(&request).status != 429 {}
        (1..times).for_each(|_| assert_eq!(world.send(&request).status, 429));
    };
    let listed = |world: &World, subject: &str| {
        eventually("the list", || {
            let log = world.envoy().log();
            log.lines().any(|line| line.contains("top denied: ") && line.contains(subject)).then_some(())
        });
    };
    deny(&world, "eve%0a", 2);
    deny(&world, "ann", 3);
    // A percent sign of a subject is escaped, as in keys.
    listed(&world, "{p|eve%250a}");
    listed(&world, "{p|ann}");
    world.redis.stop();
    let begin = world.envoy().log().len();
    deny(&world, "ann", 3);
    eventually("the next list", || {
        let log = world.envoy().log();
        log[begin..]
            .lines()
            .any(|line| line.contains("top denied: ") && line.contains("{p|ann}"))
            .then_some(())
    });
}
