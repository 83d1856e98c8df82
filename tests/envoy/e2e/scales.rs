// SPDX-License-Identifier: Apache-2.0
//! The factor of a subject's limits is in the findings of an earlier filter about its requests.

use crate::support::http;
use crate::support::weir::{Host, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("scale: by a header that envoy sets, the same through both envoys", a_header_scales),
    ("scale: by metadata of an earlier filter, text or a number", metadata_scales),
];

/// Two requests an hour of each subject, times the number from there.
fn scaled(from: &str) -> String {
    format!(
        r#"{{"store": {{"deadline": "10s", "on_failure": "deny"}},
            "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}],
            "scale": {{"from": {from}, "min": 1, "max": 4, "default": 2}},
            "limits": [{{"name": "l", "algorithm": "fixed_window", "limit": 2, "window": "1h", "align": "first"}}]}}]}}"#
    )
}

fn a_header_scales() {
    let world = World::of(&scaled(r#"{"header": {"name": "x-seats"}}"#), 2, 1);
    let edges = [0, 1].map(|envoy| world.envoys[envoy].address("edge"));
    for (user, seats, quota) in [
        ("ann", Some("3"), 6),
        ("bob", Some("1"), 2),
        ("eve", Some("9"), 8),
        ("joe", None, 4),
        ("sue", Some("0"), 2),
    ] {
        let request = || match seats {
            Some(seats) => get().header("x-user", user).header("x-seats", seats),
            None => get().header("x-user", user),
        };
        for number in 0..quota + 2 {
            let response = http::send(edges[number % 2], &request()).expect("a response");
            assert_eq!(response.status, if number < quota { 200 } else { 429 }, "{user}, {number}");
            let policy = response.headers.get("ratelimit-policy").expect("a field");
            assert_eq!(policy, format!("\"l\";q={quota};w=3600"), "{user}");
        }
    }
    // Ann has fewer seats now. Her usage still counts; with more seats, she has some units left.
    let status = |seats: &str| world.send(&get().header("x-user", "ann").header("x-seats", seats)).status;
    assert_eq!([status("2"), status("4"), status("4"), status("4")], [429, 200, 200, 429]);
}

fn metadata_scales() {
    let sets = r#"          http_filters:
          - name: metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata: [{metadata_namespace: account, value: {text: "3", number: 3, half: "1.5", flag: true}}]
"#;
    // The dynamic module reads only text: any other value is unreadable, which counts as the smallest number.
    let is_native = Host::chosen() == Host::Native;
    let other = |quota| if is_native { 2 } else { quota };
    for (key, quota) in [("text", 6), ("number", other(6)), ("half", 4), ("flag", other(4)), ("nothing", 4)] {
        let from =
            format!(r#"{{"attribute": {{"path": ["metadata", "filter_metadata", "account", "{key}"]}}}}"#);
        let world = World::with(&scaled(&from), 1, 1, |envoy| envoy.with("          http_filters:\n", sets));
        let passed = (0..9).filter(|_| world.send(&get().header("x-user", "ann")).status == 200).count();
        assert_eq!(passed, quota, "{key}");
    }
}
