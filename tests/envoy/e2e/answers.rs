// SPDX-License-Identifier: Apache-2.0
//! The responses to clients, and the logs.

use std::time::Instant;

use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, World, get, limited, limited_by, template};

pub const TESTS: &[(&str, fn())] = &[
    ("a rejection says why, and when to come back", a_rejection_says_when_to_come_back),
    ("a rejection has the page, the headers and the origins of its product", rejections_of_two_products),
    ("a gRPC call is rejected with RESOURCE_EXHAUSTED", a_grpc_call_is_rejected),
    ("a rejection never looks like a success, whatever its request says it is", a_rejection_is_no_success),
    (
        "a rejection never looks like a success, where a filter before weir has made gRPC of its request",
        a_rejection_of_what_became_grpc_is_no_success,
    ),
    ("all places taken: no time is said, or the estimate", all_places_taken),
    ("no answer from redis: a rejection says when it is asked again", no_answer_says_when),
    ("decisions are in the access log", decisions_are_logged),
    ("the upstream's own headers are replaced, kept or added to", upstream_headers),
    ("subjects are limited apart: by a claim of a verified token", a_claim_is_a_subject),
    (
        "subjects are limited apart: by a claim that envoy copies to the filter state",
        a_copied_claim_is_a_subject,
    ),
    ("an attribute that envoy cannot read is not an absent one", an_unreadable_attribute_is_not_absent),
];

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

/// Two policies: a shop with a page, and an API for the pages of another origin.
const TWO_PRODUCTS: &str = r#"{"policies": [
    {"name": "shop", "match": {"path": {"prefix": "/shop"}},
     "limits": [{"name": "day", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}],
     "response": {"bodies": [{"format": "html", "body": "<p>{limit}: {retry_after} s <i title=\"{request_id}\">"}],
       "add_headers": [{"name": "cache-control", "value": "no-store"}, {"name": "x-shop-request", "value": "{request_id}"}]}},
    {"name": "api", "match": {"path": {"prefix": "/api"}},
     "limits": [{"name": "own", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}],
     "response": {"format": "json", "body": "{\"policy\": \"{policy}\", \"wait\": {retry_after}}", "headers": "x_ratelimit",
       "cors": {"origins": ["https://*.example.com"], "credentials": true}}}]}"#;

fn rejections_of_two_products() {
    let world = World::start(TWO_PRODUCTS);
    let (shop, api) = (Request::get("/shop"), Request::get("/api/x"));
    for request in [&shop, &api] {
        let admitted = world.send(request);
        assert_eq!(
            (admitted.status, admitted.headers.get("vary"), admitted.headers.get("cache-control")),
            (200, None, None)
        );
    }
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = world.send(&shop.clone().header("accept", browser).header("origin", "https://a.example.com"));
    let id = page.headers.get("x-shop-request").expect("the id that Envoy gave the request").to_owned();
    let wait = page.headers.get("retry-after").expect("a time").to_owned();
    assert_eq!((page.status, page.headers.get("content-type")), (429, Some("text/html; charset=utf-8")));
    assert_eq!(
        (page.headers.get("cache-control"), page.headers.get("vary")),
        (Some("no-store"), Some("accept, origin"))
    );
    assert_eq!(page.text(), format!("<p>day: {wait} s <i title=\"{id}\">"));
    assert_eq!(page.headers.get("access-control-allow-origin"), None, "the shop has no other origin");

    // On two lines: the first prefers a page, both together JSON.
    let lines = shop.clone().header("accept", "text/html;q=0.5").header("accept", "application/json");
    for request in [&shop, &lines, &shop.clone().header("accept", "*/*")] {
        let problem = world.send(request);
        assert_eq!(
            (problem.status, problem.headers.get("content-type")),
            (429, Some("application/problem+json"))
        );
        assert!(problem.text().contains("quota-exceeded"), "{}", problem.text());
    }

    let foreign =
        world.send(&api.clone().header("origin", "https://app.example.com").header("accept", browser));
    let wait = foreign.headers.get("retry-after").expect("a time");
    assert_eq!(foreign.text(), format!(r#"{{"policy": "api", "wait": {wait}}}"#));
    let allowed = |response: &http::Response| {
        ["allow-origin", "allow-credentials", "expose-headers"]
            .map(|name| response.headers.get(&format!("access-control-{name}")).map(str::to_owned))
    };
    let exposed = "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, retry-after";
    let wanted = ["https://app.example.com", "true", exposed].map(|value| Some(value.to_owned()));
    assert_eq!(allowed(&foreign), wanted);
    assert_eq!(
        (foreign.headers.get("vary"), foreign.headers.get("cache-control")),
        (Some("accept, origin"), None)
    );
    for origin in ["https://example.com.evil.test", "https://evil.test", "null"] {
        let other = world.send(&api.clone().header("origin", origin));
        assert_eq!((other.status, allowed(&other)), (429, [None, None, None]), "{origin}");
    }
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

fn a_rejection_is_no_success() {
    let deny =
        limited(1).replacen('{', r#"{"deny": [{"header": {"name": "x-denied", "present": true}}], "#, 1);
    let world = World::start(&deny);
    assert_eq!(world.send(&get()).status, 200);
    // The `content-type` headers of a request, and `true` if Envoy takes that for gRPC.
    let rows: &[(&[&str], bool)] = &[
        (&["application/grpc"], true),
        (&["application/grpc+proto"], true),
        (&["application/grpc+json;x=y"], true),
        (&["application/grpc+"], true),
        (&["application/grpc;"], false),
        (&["application/grpc;x=y"], false),
        (&["application/grpc-web"], false),
        (&["application/grpc-web+proto"], false),
        (&["application/grpc "], true),
        (&["application/grpc x"], false),
        (&["application/grpcx"], false),
        (&["APPLICATION/GRPC"], false),
        (&["application/Grpc+proto"], false),
        (&["application/grpc", "application/grpc"], false),
        (&["application/grpc", "text/plain"], false),
        (&["text/plain", "application/grpc"], false),
        (&["application/grpc+proto", "text/plain"], true),
        (&[], false),
    ];
    for (kinds, grpc) in rows {
        for denied in [false, true] {
            let request = Request::post("/pkg.Service/Method", b"");
            let request = if denied { request.header("x-denied", "1") } else { request };
            let request = kinds.iter().fold(request, |request, kind| request.header("content-type", kind));
            let rejected = world.send(&request);
            let (http, status) = if denied { (403, "7") } else { (429, "8") };
            let expected = if *grpc { (200, Some(status)) } else { (http, None) };
            let found = (rejected.status, rejected.headers.get("grpc-status"));
            assert_eq!(found, expected, "{kinds:?}: {rejected:?}");
        }
    }
}

/// A request that becomes gRPC before weir: the way, its filters, its client's `content-type` headers, and the answers to the client (HTTP
/// status and gRPC status), for a request over its limit and for one that is denied.
type Became = (&'static str, String, &'static [&'static str], [(u16, Option<&'static str>); 2]);

fn what_makes_grpc() -> [Became; 3] {
    let filter = |name: &str, kind: &str, rest: &str| {
        format!(
            "          - name: {name}\n            typed_config:\n              \"@type\": \
             type.googleapis.com/envoy.extensions.filters.http.{kind}\n{rest}"
        )
    };
    let transcodes = format!(
        "              services: [pkg.Service]\n              auto_mapping: true\n              \
         proto_descriptor_bin: {DESCRIPTOR}\n"
    );
    let sets = "              mutations: {request_mutations: [{append: {header: {key: content-type, value: application/grpc}, \
                append_action: OVERWRITE_IF_EXISTS_OR_ADD}}]}\n";
    [
        (
            "grpc_web",
            filter("grpc-web", "grpc_web.v3.GrpcWeb", ""),
            &["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"],
            [(200, Some("8")), (200, Some("7"))],
        ),
        // It makes an HTTP status of the gRPC status.
        (
            "the transcoder",
            filter("transcoder", "grpc_json_transcoder.v3.GrpcJsonTranscoder", &transcodes),
            &["application/json"],
            [(429, Some("8")), (403, Some("7"))],
        ),
        // It changes no response.
        (
            "another type",
            filter("type", "header_mutation.v3.HeaderMutation", sets),
            &["application/json", "application/grpc;"],
            [(429, Some("8")), (403, Some("7"))],
        ),
    ]
}

/// A `FileDescriptorSet` in base64. `protoc --descriptor_set_out` makes it of
/// `syntax = "proto3"; package pkg; message M {} service Service { rpc Method(M) returns (M); }` in a file `m.proto`.
const DESCRIPTOR: &str =
    "CkAKB20ucHJvdG8SA3BrZyIDCgFNMiMKB1NlcnZpY2USGAoGTWV0aG9kEgYucGtnLk0aBi5wa2cuTWIGcHJvdG8z";

fn a_rejection_of_what_became_grpc_is_no_success() {
    let deny =
        limited(1).replacen('{', r#"{"deny": [{"header": {"name": "x-denied", "present": true}}], "#, 1);
    for (name, filter, kinds, became) in what_makes_grpc() {
        let filters = format!("          http_filters:\n{filter}");
        let world = World::with(&deny, 1, 1, |envoy| envoy.with("          http_filters:\n", &filters));
        assert_eq!(world.send(&get()).status, 200);
        let send = |kind: &str, denied: bool| {
            // The client of the transcoder says what else `grpc_web` would.
            let request = Request::post("/pkg.Service/Method", b"{}").header("content-type", kind).header(
                if name == "the transcoder" { "grpc-accept-encoding" } else { "x-other" },
                "identity",
            );
            world.send(&if denied { request.header("x-denied", "1") } else { request })
        };
        for kind in kinds {
            for (denied, expected) in [false, true].into_iter().zip(became) {
                let rejected = send(kind, denied);
                let found = (rejected.status, rejected.headers.get("grpc-status"));
                assert_eq!(found, expected, "{name}, {kind}: {rejected:?}");
                let answered = rejected.headers.get("content-type").unwrap_or_default();
                assert!(
                    name != "grpc_web" || answered.starts_with("application/grpc-web"),
                    "{kind}: {rejected:?}"
                );
            }
        }
        // A request that is gRPC from the beginning is rejected as gRPC.
        let rejected = send("application/grpc", false);
        assert_eq!(
            (rejected.status, rejected.headers.get("grpc-status")),
            (200, Some("8")),
            "{name}: {rejected:?}"
        );
        assert_eq!(world.upstream.requests(), 1, "{name}");
    }
}

fn all_places_taken() {
    let running = r#"{"name": "l", "algorithm": "concurrency", "limit": 1, "ttl": "15m"}"#;
    for (limit, after, pushback) in [
        (running.to_owned(), None, None),
        (running.replacen('{', r#"{"retry_after": "7s", "#, 1), Some("7"), Some("7000")),
    ] {
        let world = World::start(&limited(1).replacen(
            r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}"#,
            &limit,
            1,
        ));
        let held = http::burst_held(world.envoy().address("edge"), [Request::get("/hold")]).expect("sent");
        eventually("the request at the upstream", || (world.upstream.held() == 1).then_some(()));
        let rejected = world.send(&get());
        assert_eq!((rejected.status, rejected.headers.get("retry-after")), (429, after));
        assert_eq!(rejected.headers.get("ratelimit"), Some(r#""l";r=0"#));
        let call = Request::post("/pkg.Service/Method", b"").header("content-type", "application/grpc");
        let rejected = world.send(&call);
        assert_eq!(rejected.headers.get("grpc-status"), Some("8"));
        assert_eq!(rejected.headers.get("grpc-retry-pushback-ms"), pushback);
        assert_eq!(rejected.headers.get("retry-after"), after);
        drop(held);
    }
}

fn no_answer_says_when() {
    let mut world = World::start(&limited(9));
    assert_eq!(world.send(&get()).status, 200);
    world.redis.stop();
    let rejected = eventually("a rejection", || Some(world.send(&get())).filter(|told| told.status == 503));
    assert_eq!((rejected.headers.get("retry-after"), rejected.headers.get("ratelimit")), (Some("1"), None));
    let call = Request::post("/pkg.Service/Method", b"").header("content-type", "application/grpc");
    let rejected = world.send(&call);
    assert_eq!((rejected.status, rejected.headers.get("grpc-status")), (200, Some("14")));
    assert_eq!(rejected.headers.get("grpc-retry-pushback-ms"), Some("1000"));
}

fn decisions_are_logged() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let limiter = limited(1)
        .replacen('{', r#"{"emit_filter_state": true, "deny": [{"method": ["PUT"]}], "#, 1)
        .replace(r#""store": {"#, r#""store": {"denial_ttl": "1h", "#);
    let decision = ["policy", "limit", "outcome", "remaining", "source"]
        .map(|name| format!("%FILTER_STATE({}weir.{name}:PLAIN)%", Host::chosen().filter_state_prefix()))
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
        .start();
    for expected in [200, 429, 429] {
        assert_eq!(http::send(envoy.address("edge"), &get()).expect("a response").status, expected);
    }
    let put = Request::put("/");
    assert_eq!(http::send(envoy.address("edge"), &put).expect("a response").status, 403);
    let expected = [
        "DECIDED 200 p l admitted 0 redis",
        "DECIDED 429 p l rejected 0 redis",
        "DECIDED 429 p l rejected 0 denied-until",
        "DECIDED 403  - denied - -",
    ];
    eventually("all decisions in the log", || {
        let log = envoy.log();
        let decided: Vec<_> = log.lines().filter(|line| line.starts_with("DECIDED")).collect();
        (decided == expected).then_some(())
    });
}

fn upstream_headers() {
    let ours = r#""l";r=8;t="#;
    for (mode, expected) in
        [("replace", vec![ours]), ("keep", vec!["theirs"]), ("append", vec!["theirs", ours])]
    {
        let response = format!(r#""name": "p", "response": {{"upstream_headers": "{mode}"}},"#);
        let limiter = limited(9).replace(r#""name": "p","#, &response);
        let route = "route: {cluster: upstream, timeout: 0s}";
        let theirs = "response_headers_to_add: [{header: {key: ratelimit, value: theirs}}]";
        let add = format!("{route}\n                {theirs}");
        let world = World::with(&limiter, 1, 1, |envoy| envoy.with(route, add));
        let response = world.send(&get());
        assert_eq!(response.status, 200, "{mode}");
        let fields = response.headers.0.iter().filter(|(name, _)| name == "ratelimit");
        let values: Vec<&str> = fields.map(|(_, value)| value.as_str()).collect();
        assert!(
            values.len() == expected.len()
                && values.iter().zip(&expected).all(|(is, begins)| is.starts_with(begins)),
            "{mode}: {values:?}"
        );
    }
}

/// Signed with HMAC, by the key below; they end in 2100.
const TOKEN_OF_ANN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsifQ.eyJpc3MiOiJ0ZXN0Iiwic3ViIjoiYW5uIiwiZXhwIjo0MTAyNDQ0ODAwfQ.5sPWMbHEru828yr-PZXXXMNa5veTBPEQzVnF3LyiSC0";
const TOKEN_OF_BOB: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsifQ.eyJpc3MiOiJ0ZXN0Iiwic3ViIjoiYm9iIiwiZXhwIjo0MTAyNDQ0ODAwfQ.TTfRbGJ-cionaiuwQHUvMfdkjGdizi0h3yV2ycYAV8o";

/// Envoy verifies tokens, before these filters and weir.
fn verifies(then: &str) -> String {
    format!(
        r#"          http_filters:
          - name: jwt
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers:
                test:
                  issuer: test
                  payload_in_metadata: verified
                  local_jwks:
                    inline_string: '{{"keys": [{{"kty": "oct", "alg": "HS256", "kid": "k", "k": "YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcyBvciBtb3Jl"}}]}}'
              rules: [{{match: {{prefix: /}}, requires: {{provider_name: test}}}}]
{then}"#
    )
}

/// Two requests of each, in turn.
fn tokens_apart(world: &World) -> [u16; 4] {
    let status = |token: &str| world.send(&get().header("authorization", &format!("Bearer {token}"))).status;
    assert_eq!(world.send(&get()).status, 401, "without a token no request comes as far as weir");
    [TOKEN_OF_ANN, TOKEN_OF_BOB, TOKEN_OF_ANN, TOKEN_OF_BOB].map(status)
}

fn a_claim_is_a_subject() {
    let subject = r#"{"jwt_claim": {"payload": "verified", "claim": ["sub"]}}"#;
    let filters = verifies("");
    let world =
        World::with(&limited_by(subject, 1), 1, 1, |envoy| envoy.with("          http_filters:\n", filters));
    assert_eq!(tokens_apart(&world), [200, 200, 429, 429]);
}

/// As `docs/subjects.md` says.
fn a_copied_claim_is_a_subject() {
    let page = include_str!("../../../docs/subjects.md");
    let (_, copies) = page.split_once("```yaml\n- name: claims\n").expect("the documented filter");
    let copies = copies.split_once("```").expect("its end").0;
    let copies: String = copies.lines().map(|line| format!("          {line}\n")).collect();
    let copies = format!("          - name: claims\n{copies}");
    let subject = r#"{"attribute": {"path": ["filter_state", "claim.sub"]}, "on_missing": "deny"}"#;
    for (claim, expected) in [("sub", [200, 200, 429, 429]), ("plan", [403; 4])] {
        let filters = verifies(&copies.replace(":sub)", &format!(":{claim})")));
        let world = World::with(&limited_by(subject, 1), 1, 1, |envoy| {
            envoy.with("          http_filters:\n", filters)
        });
        assert_eq!(tokens_apart(&world), expected, "{claim}");
    }
}

/// A value that is null: Envoy has it, and cannot hand it over.
fn an_unreadable_attribute_is_not_absent() {
    let sets = r#"          http_filters:
          - name: metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata: [{metadata_namespace: account, value: {plan: null, owner: {name: ann, age: null}, id: "7"}}]
"#;
    let limiter = |key: &str| {
        let path = format!(r#"["metadata", "filter_metadata", "account", "{key}"]"#);
        limited_by(&format!(r#"{{"attribute": {{"path": {path}}}, "on_missing": "skip"}}"#), 1)
    };
    for (key, expected, unreadable) in
        [("id", [200, 429], 0), ("nothing", [200, 200], 0), ("plan", [403, 403], 2), ("owner", [403, 403], 2)]
    {
        let world = World::with(&limiter(key), 1, 1, |envoy| envoy.with("          http_filters:\n", sets));
        let began = Instant::now();
        assert_eq!([world.send(&get()).status, world.send(&get()).status], expected, "{key}");
        let most = 1 + began.elapsed().as_secs();
        if unreadable > 0 {
            let counted = || world.envoy().stat("wasmcustom.weir.attribute_unreadable") == unreadable;
            eventually("both to be counted", || counted().then_some(()));
            let log = world.envoy().log();
            let why = match Host::chosen() {
                Host::Wasm => "(Serializ",
                Host::Native => "by a dynamic module",
            };
            let line = format!("the attribute metadata.filter_metadata.account.{key} cannot be read {why}");
            // One line a second.
            assert!((1..=most).contains(&(log.matches(&line).count() as u64)), "{log}");
        }
    }
}
