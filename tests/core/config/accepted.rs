// SPDX-License-Identifier: Apache-2.0
//! Valid configurations.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use weir::config;

use super::*;

/// Valid configurations. `L` is replaced with one limit, `P` with a policy's name and limits.
#[rustfmt::skip]
pub const ACCEPTED: &[(&str, &str)] = &[
    ("the smallest", r#"{"policies": [{P}]}"#),
    ("white space and order do not matter", "{ \"policies\" :\n[ {\"limits\":[{L}],\t\"name\":\"p\"} ] }"),
    ("the largest counts",
     r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1000000000000, "window": "366d"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1000000/s", "burst": 1000000000000}]}]}"#),
    ("the smallest windows and rates",
     r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1, "window": "1ms"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1/d"},
        {"name": "c", "algorithm": "leaky_bucket", "rate": "1/366d"}]}]}"#),
    ("every unit of time",
     r#"{"policies": [{"name": "p", "limits": [
        {"name": "us", "algorithm": "sliding_log", "limit": 1, "window": "1000us"},
        {"name": "ms", "algorithm": "sliding_log", "limit": 1, "window": "500ms"},
        {"name": "s", "algorithm": "sliding_log", "limit": 1, "window": "1s"},
        {"name": "m", "algorithm": "sliding_log", "limit": 1, "window": "1m"},
        {"name": "h", "algorithm": "sliding_log", "limit": 1, "window": "1h"},
        {"name": "d", "algorithm": "sliding_log", "limit": 1, "window": "1d"}]}]}"#),
    ("one name in two policies", r#"{"policies": [{P}, {"name": "q", "limits": [{L}]}]}"#),
    ("escapes in names of fields", r#"{"p\u006flicies": [{P}]}"#),
    ("an IPv4-mapped network", r#"{"policies": [{P}], "deny": [{"client_address": ["::ffff:192.0.2.0/120"]}]}"#),
    ("a bare IPv6 host", r#"{"policies": [{P, "match": {"host": ["[::1]", "xn--nxasmq6b.example"]}}]}"#),
    ("a path that is not ASCII", r#"{"policies": [{P, "match": {"path": {"exact": "/café"}}}]}"#),
    ("conditions in conditions", r#"{"policies": [{P, "match": {"not": {"any": [{"all": [{"not": {}}]}]}}}]}"#),
    ("one tier for all requests", r#"{"policies": [{"name": "p", "tiers": {"by": {"host": {}}, "default": "t", "limits": {"t": [{L}]}}}]}"#),
    ("trusted networks that are nearly every address",
     r#"{"policies": [{P}], "client_address": {"trusted_networks": ["0.0.0.0/1", "64.0.0.0/2", "128.0.0.0/2", "8000::/1"]}}"#),
    ("the largest regular expression", r#"{"policies": [{P, "match": {"path": {"regex": "[a-z]{1,125}"}}}]}"#),
    ("the smallest cost is the largest", r#"{"policies": [{P, "cost": {"header": {"name": "x-cost", "min": 5, "max": 5}}}]}"#),
    ("statuses as text and as numbers",
     r#"{"policies": [{P, "settle": [{"when": {"status": [100, "599", "4xx", "500-500", "200-599"]}, "cost": {"constant": 0}}]}]}"#),
    ("weights as text and as numbers",
     r#"{"policies": [{P, "settle": [{"cost": {"body_json": {"sum": [{"paths": ["a"], "weight": 2}, {"paths": ["[\"b.c\"][0]", "d[*].e"], "weight": "0.5"}, {"paths": ["f"], "weight": 0.25}]}}}]}]}"#),
    ("as large shares as there may be, and policies with and without them that share counters",
     r#"{"policies": [
            {"name": "p", "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 2}],
             "priority": [{"when": {"path": {"exact": "/a"}}, "percent": 98}, {"when": {}, "percent": 1}]},
            {"name": "q", "counters": "p", "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 2}]}]}"#),
    ("the smallest scale is the largest, and limits that just hold it",
     r#"{"policies": [
            {"name": "p", "limits": [{"name": "a", "algorithm": "fixed_window", "limit": 1, "window": "1ms"},
                {"name": "b", "algorithm": "sliding_log", "limit": 50, "window": "1h"}],
             "scale": {"from": {"header": {"name": "x"}}, "min": 1999, "max": 1999, "default": 1999}},
            {"name": "q", "limits": [{"name": "c", "algorithm": "fixed_window", "limit": 2000, "window": "1ms"}],
             "scale": {"from": {"jwt_claim": {"claim": ["seats"]}}, "max": "500M"}}]}"#),
    ("a lease that follows the limits", r#"{"policies": [{P, "lease": "auto"}]}"#),
    ("the smallest lease is the largest", r#"{"policies": [{P, "lease": {"max": 5, "min": 5}}]}"#),
    ("counts as text",
     r#"{"policies": [{"name": "p", "enforce_percent": "0", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": "50_000", "window": "1d"},
        {"name": "b", "algorithm": "fixed_window", "limit": "1_0_0", "window": "1d"},
        {"name": "c", "algorithm": "fixed_window", "limit": "10k", "window": "1d"},
        {"name": "d", "algorithm": "fixed_window", "limit": "1_000G", "window": "1d"},
        {"name": "e", "algorithm": "leaky_bucket", "rate": "10k/s", "burst": "2M"},
        {"name": "f", "algorithm": "leaky_bucket", "rate": "50_000/5m"}]}]}"#),
    ("windows of the calendar",
     r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1, "align": "day"},
        {"name": "b", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "+00:00"},
        {"name": "c", "algorithm": "fixed_window", "limit": 1, "align": "week", "utc_offset": "-12:00"},
        {"name": "d", "algorithm": "fixed_window", "limit": 1, "align": "month", "utc_offset": "+14:00"},
        {"name": "e", "algorithm": "fixed_window", "limit": 1, "align": "month", "utc_offset": "+05:45"},
        {"name": "f", "algorithm": "fixed_window", "limit": 1, "align": "month", "utc_offset": "-11:59"}]}]}"#),
    ("policies that share counters, with buckets of one rate and permits of one ttl",
     r#"{"policies": [
            {"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 2}, {"name": "c", "algorithm": "concurrency", "limit": 1}]},
            {"name": "q", "counters": "p", "mode": "shadow", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 9, "max_delay": "7s"}, {"name": "c", "algorithm": "concurrency", "limit": 9}]}]}"#),
    ("policies that share counters, one of them by its name, and whose tiers are in any order",
     r#"{"policies": [{P, "counters": "q"}, {"name": "q", "limits": [{L}]}, {"name": "r", "counters": "q", "limits": [{L}], "mode": "shadow"},
            {"name": "s", "counters": "t", "overrides": true, "tiers": {"by": {"host": {}}, "default": "u", "limits": {"u": [{L}], "v": [{L}]}}},
            {"name": "w", "counters": "t", "overrides": true, "tiers": {"by": {"path": {}}, "default": "v", "limits": {"v": [{L}], "u": [{L}]}}}]}"#),
    ("credentials in places of one's own, and hashes without a secret",
     r#"{"policies": [{P, "subject": [{"credential": {}}, {"credential": {"headers": []}, "hash": true},
            {"credential": {"headers": ["x-token", "proxy-authorization"], "query": [], "semicolon": "literal"}, "on_multiple": "last"},
            {"host": {}, "hash": true}]}]}"#),
    ("an empty body", r#"{"policies": [{P}], "response": {"format": "text", "body": ""}}"#),
];

#[test]
fn accepted() {
    for (row, text) in ACCEPTED {
        assert_eq!(errors(&json(text)), Vec::<String>::new(), "{row}");
    }
}

#[test]
fn a_configuration_too_large_is_not_even_read() {
    let smallest = json(r#"{"policies": [{P}]}"#);
    let largest = format!("{smallest}{}", " ".repeat(config::MAX_LENGTH - smallest.len()));
    assert_eq!(errors(&largest), Vec::<String>::new());
    let text = format!("{{{}}}", " ".repeat(config::MAX_LENGTH));
    assert_eq!(errors(&text), ["$: found 1048578 bytes, allowed: up to 1048576 bytes"]);
}

#[test]
fn a_configuration_nested_too_deep_is_refused() {
    let nested = |count: usize| {
        let not = r#"{"not": "#.repeat(count);
        json(r#"{"policies": [{P, "match": NOT}]}"#)
            .replace("NOT", &format!("{not}{{}}{}", "}".repeat(count)))
    };
    assert_eq!(errors(&nested(config::MAX_NESTING - 4)), Vec::<String>::new());
    assert_eq!(
        errors(&nested(config::MAX_NESTING - 3)),
        ["$: found objects and lists in each other, 33 levels deep, allowed: up to 32 levels"]
    );
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;

    use super::{ACCEPTED, Config, json};

    /// JSON that is nearly a configuration: an accepted one with some bytes changed.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let row = (0..ACCEPTED.len()).prop_map(|row| json(ACCEPTED[row].1).into_bytes());
        let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8);
        (row, changes).prop_map(|(mut text, changes)| {
            for (place, byte) in changes {
                let place = place.index(text.len());
                text[place] = byte;
            }
            text
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics_and_errors_say_something(text in nearly()) {
            if let Err(errors) = Config::parse(&text) {
                prop_assert!(!errors.is_empty());
                for error in errors {
                    prop_assert!(!error.path.is_empty() && !error.found.is_empty() && !error.allowed.is_empty());
                }
            }
        }
    }
}
