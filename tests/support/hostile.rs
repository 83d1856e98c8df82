// SPDX-License-Identifier: Apache-2.0
//! Requests that cost a matcher the most, and the configurations that they are tried on: every example in
//! the guide and the reference, and some that are worse. Each request is one that Envoy's defaults let through: at most 60 KiB of
//! headers in all.

use crate::documented;
use weir::config::Config;
use weir::request::sample::Sample;

/// The longest header that passes Envoy (`max_request_headers_kb` is 60), with a kilobyte left for the other headers.
const LONGEST: usize = 59 * 1024;

/// `unit` repeated up to the longest header.
fn filled(unit: &str) -> String {
    unit.repeat(LONGEST / unit.len())
}

/// `unit` up to `length` bytes.
fn long(unit: &str, length: usize) -> String {
    unit.repeat(length / unit.len())
}

fn plain() -> Sample {
    let plain = Sample::default().path("/api/things?page=2").from("192.0.2.1:4711");
    // Without a key, an example denies it before the others see it.
    plain.header("x-user", "ann").header("x-api-key", "k")
}

/// Every header that an example reads, one of them at its longest: the examples read different ones.
const HEADERS: &[&str] =
    &["x-user", "x-api-key", "x-tenant", "x-points", "x-plan", "accept-language", "user-agent"];

/// The requests, by name. The first is one that means no harm.
pub fn requests() -> Vec<(String, Sample)> {
    let mut out = vec![(String::from("plain"), plain())];
    let mut add = |name: &str, request: Sample| out.push((name.to_owned(), request));
    for (name, unit) in [
        ("query &a", "&a"),
        ("query &%61=%62", "&%61=%62"),
        ("query &q=1", "&q=1"),
        ("query ;q=1", ";q=1"),
        ("query %71", "%71"),
    ] {
        add(name, plain().path(format!("/api?{}", filled(unit))));
    }
    for value in [long("7", 4_000), filled("7"), long("%37", 12_000)] {
        let name = format!("query page={}...", &value[..3]);
        add(
            &format!("{name} {} bytes", value.len()),
            plain().path(format!("/v1?page={value}&q=1&account={value}")),
        );
    }
    for (name, unit) in [("cookie ;a", ";a"), ("cookie ;session=1", ";session=1"), ("cookie a", "a")] {
        add(name, plain().header("cookie", filled(unit)));
    }
    for unit in ["a", "{", "Bo", "Crawle", ",", ",a", "1,", "\u{fffd}"] {
        for header in HEADERS {
            let request = plain().without(header).header(header, filled(unit));
            add(&format!("{header} of {unit:?}"), request.clone());
            add(&format!("{header} of {unit:?}, 2 lines"), request.header(header, "a"));
        }
    }
    for length in [32, 64, 128, 256, 512, 1024, 2048, 4096] {
        for unit in ["a", "Bo", "Crawle"] {
            add(
                &format!("user-agent of {length} bytes of {unit:?}"),
                plain().header("user-agent", long(unit, length)),
            );
        }
    }
    for unit in ["/a", "/%2e", "//", "/..", "/;", "/users/7", "a", "%61", "\\"] {
        add(&format!("path of {unit:?}"), plain().path(format!("/users/{}", filled(unit))));
        add(&format!("path of 2048 bytes of {unit:?}"), plain().path(format!("/users/{}", long(unit, 2048))));
    }
    for unit in ["/a", "/%2e", "/b/..", "%61"] {
        add(
            &format!("path of 8000 bytes of {unit:?}"),
            plain().path(format!("/users/{}", long(unit, 8_000))),
        );
    }
    // All at once: a path and a query as long as they are read, cookies too, and what is left of 60 KiB in other headers.
    let path = format!("/users/{}?q=x&{}", long("/%2e", 8_000), long("&q=%61;b", 16_000));
    let many = plain().path(path).header("cookie", long(";session=a", 16_000)).from("10.0.0.9:1");
    let many =
        many.header("user-agent", long("Crawle", 1_200)).header("x-forwarded-for", long("10.0.0.1,", 2_000));
    let many = many
        .header("accept-language", long("a,", 2_000))
        .header("accept-language", "b")
        .header("accept", "text/csv");
    let rest = long("{", 13_000);
    for header in ["x-api-key", "x-tenant", "x-user"] {
        add(&format!("all at once, {header}"), many.clone().without(header).header(header, &rest));
    }
    for unit in ["10.0.0.1,", ",", "10.0.0.1, ", "fd00::1,", "a,"] {
        add(
            &format!("chain of {unit:?}"),
            plain().header("x-forwarded-for", filled(unit)).from("10.0.0.9:1"),
        );
    }
    out
}

/// The policies of all examples in one configuration.
fn everything(texts: &[(String, String)]) -> String {
    let (mut policies, mut prices) = (Vec::new(), serde_json::Map::new());
    for (index, (name, text)) in texts.iter().enumerate().filter(|(_, (name, _))| name.starts_with("docs")) {
        let text: serde_json::Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        prices.extend(
            text["prices"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, table)| (name.clone(), table.clone())),
        );
        for policy in text["policies"].as_array().into_iter().flatten() {
            let mut policy = policy.clone();
            for name in ["name", "counters"] {
                if let Some(own) = policy.get(name).and_then(|name| name.as_str()) {
                    policy[name] = format!("{index}-{own}").into();
                }
            }
            for closed in
                policy.pointer_mut("/ban/scope").and_then(|scope| scope.as_array_mut()).into_iter().flatten()
            {
                *closed = format!("{index}-{}", closed.as_str().expect("a name")).into();
            }
            // The whole has no regions.
            policy.as_object_mut().expect("a policy").remove("regions");
            policies.push(policy);
        }
    }
    let store = serde_json::json!({"hash_secret": "a secret of tests"});
    serde_json::json!({ "store": store, "policies": policies, "prices": prices }).to_string()
}

/// The configurations, by name: the examples of the documents, each by itself, and what is worse.
pub fn configurations() -> Vec<(String, Config)> {
    let mut texts = documented::examples();
    let limits = r#""limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "10/s"}]"#;
    let listed: Vec<String> = (0..256).map(|n| format!("\"1{n}\"")).collect();
    for (name, condition) in [
        ("one query condition", r#"{"query": {"name": "q", "exact": "x"}}"#),
        ("a list of values", &format!(r#"{{"query": {{"name": "q", "in": [{}]}}}}"#, listed.join(","))),
        ("a cookie condition", r#"{"cookie": {"name": "session", "in": ["x", "y"]}}"#),
        (
            "an expression of the documents",
            r#"{"header": {"name": "user-agent", "regex": ".*([Bb]ot|[Cc]rawler).*"}}"#,
        ),
    ] {
        texts.push((
            String::from(name),
            format!(r#"{{"policies": [{{"name": "p", "match": {condition}, {limits}}}]}}"#),
        ));
    }
    let cookie = r#""subject": [{"cookie": {"name": "session"}}]"#;
    texts.push((
        String::from("a cookie"),
        format!(r#"{{"policies": [{{"name": "p", {cookie}, {limits}}}]}}"#),
    ));
    let conditions: Vec<String> =
        (0..20).map(|n| format!(r#"{{"query": {{"name": "parameter{n}", "exact": "x"}}}}"#)).collect();
    texts.push((
        String::from("twenty query conditions"),
        format!(
            r#"{{"policies": [{{"name": "p", "match": {{"any": [{}]}}, {limits}}}]}}"#,
            conditions.join(",")
        ),
    ));
    // So many that they have an index.
    let listed: Vec<String> = (0..8).map(|n| format!(r#"{{"query": {{"name": "q{n}"}}}}"#)).collect();
    texts.push((
        String::from("a deny list of parameters"),
        format!(r#"{{"policies": [{{"name": "p", "deny": [{}], {limits}}}]}}"#, listed.join(",")),
    ));
    texts.push((
        String::from("trusted networks"),
        format!(r#"{{"client_address": {{"trusted_networks": ["10.0.0.0/8", "fd00::/8"]}}, "policies": [{{"name": "p", {limits}}}]}}"#),
    ));
    let twelve: Vec<String> = (0..12)
        .map(|n| format!(r#"{{"name": "p{n}", "subject": [{{"header": {{"name": "x-user"}}}}, {{"cookie": {{"name": "session"}}}}, {{"path": {{}}}}], {limits}}}"#))
        .collect();
    texts.push((
        String::from("twelve policies of one subject"),
        format!(r#"{{"policies": [{}]}}"#, twelve.join(",")),
    ));
    // As many expressions as a condition needs to be slow, each as large as is allowed, or as long a search as is allowed.
    let worst =
        [".*a".repeat(40), "(.?)".repeat(80), "(a|b|o|B|C|r|w|l|e)*".repeat(8), "[a-z]{1,125}".to_owned()];
    for (number, regex) in worst.iter().enumerate() {
        let conditions = format!(r#"{{"header": {{"name": "user-agent", "regex": "{regex}x"}}}}"#);
        texts.push((
            format!("the largest expression, {number}"),
            format!(r#"{{"policies": [{{"name": "p", "match": {conditions}, {limits}}}]}}"#),
        ));
    }
    texts.push((String::from("all examples in one"), everything(&texts)));
    let load = |(name, text): (String, String)| {
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        (name, config)
    };
    texts.into_iter().map(load).collect()
}
