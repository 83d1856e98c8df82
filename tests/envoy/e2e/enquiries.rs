// SPDX-License-Identifier: Apache-2.0
//! Quota requests: a client asks what is left of its quota, and the upstream sees nothing of it.

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::http::{self, Request, Response};
use crate::support::weir::{PATIENT, World};

pub const TESTS: &[(&str, fn())] = &[
    ("enquiries: they are answered without spending, through both envoys", answered),
    ("enquiries: what is no enquiry goes to the upstream", only_enquiries),
    ("enquiries: a policy counts them", counted),
    ("enquiries: without redis, an enquiry is answered at once with 503", without_redis),
];

const POLICIES: &str = r#""policies": [
    {"name": "api", "subject": [{"header": {"name": "x-user"}}],
     "limits": [{"name": "day", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 5},
                {"name": "at-once", "algorithm": "concurrency", "limit": 2, "ttl": "60s"}]},
    {"name": "writes", "match": {"method": ["POST"]}, "subject": [{"header": {"name": "x-user"}}], "cost": {"constant": 3},
     "limits": [{"name": "written", "algorithm": "fixed_window", "limit": 10, "window": "1d", "align": "first"}]},
    {"name": "enquiries", "match": {"path": {"exact": "/quota"}}, "subject": [{"header": {"name": "x-user"}}],
     "limits": [{"name": "asked", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 3}]}]"#;

fn limiter(quota: &str) -> String {
    format!(r#"{{{PATIENT}, "emit_filter_state": true, "quota": {quota}, {POLICIES}}}"#)
}

fn ask(about: &str) -> Request {
    Request::get(&format!("/.well-known/quota{about}")).header("x-user", "ann")
}

fn policies(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.headers.get("cache-control"), Some("no-store"));
    assert_eq!(response.headers.get("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(response.text()).expect("JSON");
    body["policies"].clone()
}

fn left(response: &Response) -> Vec<(String, u64)> {
    let policies = policies(response);
    let limits = policies.as_array().expect("a list").iter();
    limits
        .map(|limit| {
            (limit["limit"].as_str().expect("a name").into(), limit["remaining"].as_u64().expect("units"))
        })
        .collect()
}

fn answered() {
    let world = World::of(&limiter("{}"), 2, 1);
    let [first, second] = [0, 1].map(|envoy| world.envoys[envoy].address("edge"));
    let send = |edge, request: &Request| http::send(edge, request).expect("a response");
    for edge in [first, second].repeat(10) {
        let left = left(&send(edge, &ask("?path=/v1/items")));
        assert_eq!(left, [("day".into(), 5), ("at-once".into(), 2)]);
    }
    let seen = world.upstream.requests();
    assert_eq!(send(first, &Request::get("/v1/items").header("x-user", "ann")).status, 200);
    assert_eq!(world.upstream.requests(), seen + 1);
    // The permit is released a moment after the response.
    eventually("the permit", || (left(&send(second, &ask("")))[1].1 == 2).then_some(()));
    let writing = send(second, &ask("?method=POST&path=/v1/items"));
    assert_eq!(left(&writing), [("day".into(), 4), ("at-once".into(), 2), ("written".into(), 10)]);
    let written = &policies(&writing)[2];
    assert_eq!(
        (&written["policy"], &written["quota"], &written["window_s"]),
        (&json!("writes"), &json!(10), &json!(86_400))
    );
    let fields = writing.headers.get("ratelimit").expect("the field");
    assert!(fields.starts_with("\"day\";r=4;t="), "{fields}");
    // Others have their own.
    let bob = Request::get("/.well-known/quota").header("x-user", "bob");
    assert_eq!(left(&send(first, &bob)), [("day".into(), 5), ("at-once".into(), 2)]);
    assert_eq!(world.upstream.requests(), seen + 1, "no enquiry reaches it");
    // A client over its limit learns when it may come again.
    (0..4).for_each(|_| {
        eventually("a place", || {
            (send(first, &Request::get("/").header("x-user", "ann")).status == 200).then_some(())
        });
    });
    let over = send(second, &ask("?path=/v1/items"));
    assert_eq!(left(&over)[0], ("day".into(), 0));
    assert!(
        policies(&over)[0]["retry_after_s"].as_u64().is_some_and(|after| (80_000..=86_400).contains(&after)),
        "{over:?}"
    );
    eventually("its metric", || (world.total("wasmcustom.weir.enquiries") >= 24).then_some(()));
}

fn only_enquiries() {
    let world = World::start(&limiter("{}"));
    for request in [
        Request::post("/.well-known/quota", b"x"),
        Request::get("/.well-known/quota/"),
        Request::get("/.well-known/quota").header("content-type", "application/grpc"),
    ] {
        let seen = world.upstream.requests();
        assert_eq!(world.send(&request).status, 200);
        assert_eq!(world.upstream.requests(), seen + 1, "{request:?}");
    }
}

fn counted() {
    let world = World::start(&limiter(r#"{"path": "/quota", "policy": "enquiries"}"#));
    let asked = Request::get("/quota?path=/v1").header("x-user", "ann");
    for rest in [2, 1, 0] {
        let names = [("day".into(), 5), ("at-once".into(), 2), ("asked".into(), rest)];
        assert_eq!(left(&world.send(&asked)), names);
    }
    let denied = world.send(&asked);
    assert_eq!(denied.status, 429);
    assert!(denied.headers.get("retry-after").is_some());
    assert_eq!(
        world.send(&Request::get("/v1").header("x-user", "ann")).status,
        200,
        "requests are not counted with them"
    );
}

fn without_redis() {
    let mut world = World::start(&limiter("{}").replace("deny", "allow"));
    assert_eq!(left(&world.send(&ask(""))).len(), 2);
    world.redis.stop();
    for _ in 0..5 {
        let response = world.send(&ask(""));
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.headers.get("cache-control"), Some("no-store"));
        assert!(response.text().contains("#temporary-reduced-capacity"), "{response:?}");
        assert_eq!(world.send(&Request::get("/").header("x-user", "ann")).status, 200, "a request passes");
    }
}
