//! The native command: run as an operator runs it, judged by what it prints and by its exit status.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "support/redis.rs"]
#[allow(dead_code)]
mod redis;

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use weir::config::Config;
use weir::limit::Ask;
use weir::policy::{Check, Mode};
use weir::script::Form;

/// Runs `weir` with these arguments: exit status, standard output, standard error.
fn weir(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A file that goes with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const CONFIG: &str = r#"{
  "policies": [
    {
      "name": "login",
      "match": {"path": {"exact": "/login"}},
      "limits": [{"name": "tries", "algorithm": "sliding_log", "limit": 2, "window": "1m"}]
    },
    {
      "name": "all",
      "exempt": [{"client_address": ["10.0.0.0/8"]}],
      "limits": [
        {"name": "steady", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 3},
        {"name": "flying", "algorithm": "concurrency", "limit": 2}
      ]
    },
    {
      "name": "watched",
      "mode": "shadow",
      "subject": [{"header": {"name": "x-key"}, "on_missing": "skip"}],
      "limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]
    }
  ]
}
"#;

#[test]
fn check_is_quiet_about_what_is_right() {
    let config = File::new("right.json", CONFIG);
    let path = config.path();
    assert_eq!(weir(&["check", path]), (0, format!("{path}: 3 policies, no errors\n"), String::new()));
}

#[test]
fn check_points_at_what_is_wrong() {
    let rows = [
        (
            "JSON",
            CONFIG.replace("\"burst\": 3", "\"burts\": 3"),
            ":12:72: error: policies[1].limits[0].burts: found an unknown field, allowed: name, rate, burst, max_delay \
             (did you mean \"burst\"?)",
        ),
        (
            "a value, at its name",
            CONFIG.replace("\"1m\"", "\"1y\""),
            ":6:76: error: policies[0].limits[0].window: found \"1y\", allowed: a duration from \"1ms\" to \"366d\", \
             a whole number and one of us, ms, s, m, h, d",
        ),
        (
            "YAML",
            String::from(
                "policies:\n- name: p\n  limits:\n  - name: l\n    algorithm: leaky_bucket\n    rate: fast\n",
            ),
            ":6:5: error: policies[0].limits[0].rate: found \"fast\", allowed: a string: a whole number from 1 to \
             1000000000000, `/`, and a duration from 1 ms to 366 days or its unit, such as `10/s` or `100/5m`",
        ),
        (
            "a block of text in a bootstrap",
            bootstrap("StringValue\n        value: |\n          {\n            \"policys\": []\n          }"),
            ":9:13: error: policys: found an unknown field, allowed: $schema, store, client_address, policies, deny, \
             exempt, response, emit_filter_state (did you mean \"policies\"?)\nFILE:8:11: error: policies: found nothing, allowed: a list \
             of 1 to 256",
        ),
        (
            "a structure in a bootstrap",
            bootstrap("Struct\n        value:\n          policies: 7"),
            ":8:11: error: policies: found 7, allowed: a list of 1 to 256",
        ),
    ];
    for (row, text, said) in rows {
        let file = File::new("wrong", &text);
        let (status, out, _) = weir(&["check", file.path()]);
        assert_eq!(out, format!("FILE{said}\n").replace("FILE", file.path()), "{row}");
        assert_eq!(status, 1, "{row}");
    }
}

/// What stands for a count, and why it is none. `tests/e2e/configuration.rs` shows that Envoy reads them so.
#[test]
fn check_reads_the_words_of_yaml_as_envoy_does() {
    let found = |limit: &str| {
        let text = bootstrap(&format!(
            "Struct\n        value:\n          policies:\n          - name: p\n            limits:\n            \
             - {{name: l, algorithm: fixed_window, window: 1d, limit: {limit}}}"
        ));
        let file = File::new("words.yaml", &text);
        let (status, out, _) = weir(&["check", file.path()]);
        let found = out.split_once(".limit: found ").and_then(|(_, rest)| rest.split_once(", allowed"));
        assert_eq!(found.is_some(), status == 1, "{limit}: {out}");
        found.map_or_else(String::new, |(found, _)| found.to_owned())
    };
    for (limit, wanted) in [
        ("50000", ""),
        ("50_000", ""),
        ("10k", ""),
        ("\"2M\"", ""),
        ("'10'", ""),
        ("+5", ""),
        ("!!str 5", ""),
        ("3000000000", ""),
        ("0x10", ""),
        ("010", ""),
        ("1.5", "\"1.5\""),
        ("5e4", "\"5e4\""),
        ("5.0", "\"5.0\""),
        ("08", "\"08\""),
        ("10K", "\"10K\""),
        ("-1", "-1"),
        ("\"010\"", "\"010\""),
        ("0o10", "\"0o10\""),
        ("9999999999999", "\"9999999999999\""),
        ("yes", "true"),
        ("Off", "false"),
        ("n", "false"),
        ("\"no\"", "\"no\""),
        ("yEs", "\"yEs\""),
        ("~", "null"),
        ("+-5", "\"+-5\""),
        ("inf", "\"inf\""),
    ] {
        assert_eq!(found(limit), wanted, "{limit}");
    }
}

/// A bootstrap with the limiter's configuration in it, of this type and value.
fn bootstrap(configuration: &str) -> String {
    let head = [
        "static_resources:",
        "  filters:",
        "  - config:",
        "      root_id: weir.limiter",
        "      configuration:",
    ];
    format!("{}\n        \"@type\": type.googleapis.com/google.protobuf.{configuration}\n", head.join("\n"))
}

#[test]
fn check_finds_the_configuration_of_the_envoy_that_is_delivered() {
    for name in ["weir.yaml", "native.yaml"] {
        let path = format!("{}/envoy/{name}", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(weir(&["check", &path]), (0, format!("{path}: 1 policy, no errors\n"), String::new()));
    }
}

/// The dynamic module's own code says so, and `tests/native` sees the same lines in Envoy's log.
#[test]
fn check_refuses_what_the_host_cannot_read() {
    let limits = r#""limits": [{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
    let claim = r#"{"jwt_claim": {"claim": ["sub"]}}"#;
    let attribute = |path: &str| format!(r#"{{"attribute": {{"path": {path}}}}}"#);
    let by = |part: &str| {
        format!(
            "{{\"policies\": [{{\"name\": \"p\",\n\"subject\": [{{\"host\": {{}}}},\n{part}], {limits}}}]}}"
        )
    };
    let list = limits.split_once(": ").expect("a list").1;
    let tiers = format!(
        "{{\"policies\": [{{\"name\": \"p\", \"tiers\": {{\n\"by\": {claim}, \"default\": \"t\", \"limits\": {{\"t\": {list}}}}}}}]}}"
    );
    let nested = "found [\"metadata\",\"filter_metadata\",\"envoy.filters.http.jwt_authn\",\"jwt_payload\",\"sub\"], a value inside \
                  another, which a dynamic module cannot read, allowed: an attribute [\"filter_state\", KEY], to which Envoy's \
                  filter set_filter_state copies the value: see docs/configuration.md#in-the-dynamic-module";
    let texts = weir::request::module::TEXTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let unknown = |path: &str| {
        format!(
            "found {path}, which a dynamic module cannot read, allowed: request.headers.NAME, filter_state.KEY, \
             metadata.filter_metadata.NAMESPACE.KEY, {texts}: see docs/configuration.md#in-the-dynamic-module"
        )
    };
    let second = |found: &str| format!(":3:1: error: policies[0].subject[1]: {found}");
    let condition = |field: &str, text: &str| {
        format!("{{\"policies\": [{{\"name\": \"p\",\n\"{field}\": {text}, {limits}}}]}}")
    };
    let found = |column: u32, place: &str| Some(format!(":2:{column}: error: policies[0].{place}: {nested}"));
    let any = format!(r#"{{"any": [{{"method": ["GET"]}}, {{"not": {claim}}}]}}"#);
    let rows = [
        ("a condition on a claim", condition("match", claim), found(1, "match")),
        ("inside of others", condition("match", &any), found(1, "match")),
        (
            "in a list",
            condition("deny", &format!(r#"[{{"method": ["PUT"]}}, {claim}]"#)),
            found(31, "deny[1]"),
        ),
        ("in another list", condition("exempt", &format!("[{claim}]")), found(12, "exempt[0]")),
        (
            "of a cost",
            condition("costs", &format!(r#"[{{"when": {claim}, "cost": {{"constant": 2}}}}]"#)),
            found(12, "costs[0].when"),
        ),
        ("a claim", by(claim), Some(second(nested))),
        ("a tier by a claim", tiers, Some(format!(":2:1: error: policies[0].tiers.by: {nested}"))),
        ("a number", by(&attribute(r#"["source", "port"]"#)), Some(second(&unknown(r#"["source","port"]"#)))),
        (
            "a word too many",
            by(&attribute(r#"["filter_state", "a", "b"]"#)),
            Some(second(&unknown(r#"["filter_state","a","b"]"#))),
        ),
        (
            "a word too few",
            by(&attribute(r#"["metadata", "filter_metadata", "a"]"#)),
            Some(second(&unknown(r#"["metadata","filter_metadata","a"]"#))),
        ),
        (
            "one word for two",
            by(&attribute(r#"["source.address"]"#)),
            Some(second(&unknown(r#"["source.address"]"#))),
        ),
        ("metadata", by(&attribute(r#"["metadata", "filter_metadata", "a", "b"]"#)), None),
        ("filter state", by(&attribute(r#"["filter_state", "a"]"#)), None),
        ("a route", by(r#"{"route": {}}"#), None),
        ("a certificate", by(r#"{"tls_subject": {}}"#), None),
    ];
    for (row, config, refusal) in rows {
        let file = File::new("host.json", &config);
        let path = file.path();
        let right = format!("{path}: 1 policy, no errors\n");
        for host in [&["check", path][..], &["check", "--host", "wasm", path]] {
            assert_eq!(weir(host), (0, right.clone(), String::new()), "{row}: {host:?}");
        }
        let native = match &refusal {
            Some(refusal) => (1, format!("{path}{refusal}\n"), String::new()),
            None => (0, right, String::new()),
        };
        assert_eq!(weir(&["check", "--host", "native", path]), native, "{row}");
        // Envoy's configuration says which host it has, whatever the command line says.
        for (name, field, expected) in
            [("root_id", "configuration", 0), ("filter_name", "filter_config", i32::from(refusal.is_some()))]
        {
            let text = serde_json::Value::from(config.as_str());
            let filter =
                format!("admin: {{}}\nfilter:\n  {name}: weir.limiter\n  {field}: {{value: {text}}}\n");
            let file = File::new("host.yaml", &filter);
            for host in ["wasm", "native"] {
                let (status, out, _) = weir(&["check", "--host", host, file.path()]);
                assert_eq!(status, expected, "{row}: {name}: {out}");
            }
        }
    }
    assert_eq!(weir(&["check", "--host", "other", "x"]).0, 2);
}

#[test]
fn what_cannot_be_done_has_a_status_of_its_own() {
    assert_eq!(weir(&["check", "/no/such/file"]).0, 2);
    assert_eq!(weir(&["explain", "/no/such/file"]).0, 2);
    assert_eq!(weir(&["dance"]).0, 2);
}

#[test]
fn schema_is_the_published_one() {
    let published = include_str!("../weir.schema.json");
    assert_eq!(weir(&["schema"]), (0, published.to_owned(), String::new()));
}

#[test]
fn explain_says_what_matches_and_why_the_rest_does_not() {
    let config = File::new("explain.json", CONFIG);
    let (status, out, _) = weir(&["explain", config.path(), "--path", "/x", "--client", "192.0.2.1"]);
    assert_eq!(status, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "client 192.0.2.1");
    assert_eq!(lines[1], "policy login: does not match, it is not true that the path is /login");
    assert_eq!(lines[2], "policy all: matches, cost 1");
    assert_eq!(lines[3], "  subject {all|192.0.2.1} in slot 3915");
    assert!(lines[4].starts_with("  command EVALSHA "), "{out}");
    assert!(lines[4].contains(" 2 weir:{all|192.0.2.1}:steady weir:{all|192.0.2.1}:flying "), "{out}");
    assert_eq!(lines[5], "policy watched: skipped, the request has no header x-key");
    let (_, out, _) = weir(&["explain", config.path(), "--client", "10.1.2.3", "-H", "x-key: a"]);
    assert!(out.contains("policy all: exempt, exempt[0] holds: the client is in 10.0.0.0/8\n"), "{out}");
    assert!(
        out.contains("policy watched: matches, cost 1, in shadow\n  subject {watched|a} in slot "),
        "{out}"
    );
}

#[test]
fn explain_names_conditions_in_words() {
    let claim = "metadata.filter_metadata.envoy.filters.http.jwt_authn.jwt_payload.plan";
    for (condition, words) in [
        (r#"{"header": {"name": "x-a", "in": ["b", "a"]}}"#, r#"the header x-a is "a" or "b""#.to_owned()),
        (r#"{"query": {"name": "q", "in": ["a"]}}"#, r#"the query parameter q is "a""#.to_owned()),
        (r#"{"cookie": {"name": "s", "exact": "a"}}"#, r#"the cookie s is "a""#.to_owned()),
        (
            r#"{"attribute": {"path": ["a", "b"], "prefix": "c"}}"#,
            r#"the attribute a.b begins with "c""#.to_owned(),
        ),
        (r#"{"jwt_claim": {"claim": ["plan"], "in": ["a"]}}"#, format!(r#"the attribute {claim} is "a""#)),
    ] {
        let limits =
            r#""limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
        let text = format!(r#"{{"policies": [{{"name": "p", "match": {condition}, {limits}}}]}}"#);
        let config = File::new("words.json", &text);
        let (_, out, _) = weir(&["explain", config.path()]);
        assert!(out.contains(&format!("policy p: does not match, it is not true that {words}\n")), "{out}");
    }
}

#[test]
fn explain_stops_where_the_filter_stops() {
    let limits = r#""limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
    let text = format!(
        r#"{{
            "deny": [{{"path": {{"exact": "/deny"}}}}],
            "exempt": [{{"path": {{"exact": "/exempt"}}}}],
            "policies": [
                {{"name": "first", {limits}}},
                {{"name": "shadow", "mode": "shadow", "deny": [{{"path": {{"exact": "/x"}}}}], {limits}}},
                {{"name": "denies", "deny": [{{"path": {{"exact": "/x"}}}}], {limits}}},
                {{"name": "last", {limits}}}
            ]
        }}"#
    );
    let config = File::new("order.json", &text);
    let explain = |path: &str| {
        let (status, out, failure) = weir(&["explain", config.path(), "--path", path]);
        assert_eq!((status, failure.as_str()), (0, ""));
        let shown = |line: &str| line.split(" {first").next().unwrap_or_default().to_owned();
        out.lines().skip(1).map(shown).collect::<Vec<_>>()
    };
    assert_eq!(explain("/deny"), ["denied: deny[0] holds, the path is /deny"]);
    assert_eq!(explain("/exempt"), ["exempt from all policies: exempt[0] holds, the path is /exempt"]);
    assert_eq!(
        explain("/x"),
        [
            "policy first: matches, cost 1",
            "  subject",
            "policy shadow: denied (shadow: not enforced), deny[0] holds: the path is /x",
            "policy denies: denied, deny[0] holds: the path is /x",
            "the request is denied without asking Redis; not evaluated: last",
        ]
    );
}

/// One second of requests to `/login`, ten a second, then a pause and one more.
fn trace() -> String {
    let line = |at| {
        format!("{{\"t_ms\": {at}, \"path\": \"/login\", \"client\": \"192.0.2.1\", \"duration_ms\": 250}}\n")
    };
    (0..10).map(|n| line(n * 100)).chain([line(60_001)]).collect()
}

fn decisions(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn replay_decides_in_simulated_time() {
    let (config, trace) = (File::new("replay.json", CONFIG), File::new("replay.jsonl", &trace()));
    let (status, out, _) = weir(&["replay", "--json", config.path(), trace.path()]);
    assert_eq!(status, 0);
    let decisions = decisions(&out);
    let allowed: Vec<bool> = decisions.iter().map(|line| line["allowed"] == true).collect();
    let mut wanted = vec![true, true];
    wanted.extend([false; 8]);
    wanted.push(true);
    assert_eq!(allowed, wanted);
    assert_eq!(
        out.lines().nth(2),
        Some(
            "{\"t_ms\":200,\"allowed\":false,\"policy\":\"login\",\"limit\":\"tries\",\"remaining\":0,\
             \"retry_after_ms\":59801,\"reset_ms\":59900,\"delay_ms\":0,\"outcome\":\"rejected\"}"
        )
    );
    let (_, totals, _) = weir(&["replay", config.path(), trace.path()]);
    assert!(
        totals.starts_with("11 requests, 0 of them admitted without a check\npolicy login: 3 admitted, "),
        "{totals}"
    );
    assert!(totals.contains("           8  {login|192.0.2.1}\n"), "{totals}");
}

#[test]
fn replay_counts_what_policies_share_once() {
    let policy = |name: &str, path: &str, more: &str| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "{path}"}}}}, "limits": [
                {{"name": "l", "algorithm": "fixed_window", "limit": 3, "window": "1h"}}]{more}}}"#
        )
    };
    let lines = ["/a", "/b", "/a", "/b", "/a"];
    let trace: String = lines.map(|path| format!("{{\"t_ms\": 0, \"path\": \"{path}\"}}\n")).concat();
    let trace = File::new("shared.jsonl", &trace);
    for (more, allowed) in [("", [true; 5]), (r#", "counters": "a""#, [true, true, true, false, false])] {
        let config = format!(r#"{{"policies": [{}, {}]}}"#, policy("a", "/a", ""), policy("b", "/b", more));
        let config = File::new("shared.json", &config);
        let (_, out, _) = weir(&["replay", "--json", config.path(), trace.path()]);
        let found: Vec<bool> = decisions(&out).iter().map(|line| line["allowed"] == true).collect();
        assert_eq!(found, allowed, "{more}");
        let (_, out, _) = weir(&["explain", config.path(), "--path", "/b"]);
        assert_eq!(
            out.contains("policy b: matches, cost 1, counts as a\n  subject {a|"),
            !more.is_empty(),
            "{out}"
        );
    }
}

#[test]
fn replay_tells_shadow_denials_from_rejections() {
    // `tries` rejects for a minute what `few` would reject for an hour; and `few` alone would reject two more.
    let policy = |name: &str, mode: &str, path: &str, limit: &str| {
        format!(
            r#"{{"name": "{name}", "mode": "{mode}", "match": {{"path": {{"prefix": "{path}"}}}}, "limits": [
                {{"name": "l", "algorithm": "fixed_window", {limit}}}]}}"#
        )
    };
    let config = format!(
        r#"{{"policies": [{}, {}]}}"#,
        policy("watched", "shadow", "/", r#""limit": 1, "window": "1h""#),
        policy("login", "enforce", "/login", r#""limit": 1, "window": "1m""#),
    );
    let line = |path: &str, client: &str| {
        format!("{{\"t_ms\": 0, \"path\": \"{path}\", \"client\": \"{client}\"}}\n")
    };
    let (login, other) = (line("/login", "192.0.2.1"), line("/other", "192.0.2.2"));
    let trace = [login.as_str(), &login, &other, &other, &other].concat();
    let (config, trace) = (File::new("shadow.json", &config), File::new("shadow.jsonl", &trace));
    let (_, out, _) = weir(&["replay", "--json", config.path(), trace.path()]);
    let decided: Vec<_> = decisions(&out)
        .iter()
        .map(|line| (line["allowed"] == true, line["policy"].clone(), line["retry_after_ms"].clone()))
        .collect();
    assert_eq!(decided[1], (false, "login".into(), 60_000.into()), "what the client is told");
    assert_eq!(decided[3], (true, "watched".into(), 0.into()));
    let outcomes: Vec<_> = decisions(&out).iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["admitted", "rejected", "admitted", "shadow", "shadow"]);
    let (_, totals, _) = weir(&["replay", config.path(), trace.path()]);
    let lines: Vec<&str> = totals.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "policy watched: 2 admitted, 0 delayed, 0 rejected, 3 would be rejected (shadow), 0 denied without a check",
            "           2  {watched|192.0.2.2} (shadow)",
            "           1  {watched|192.0.2.1} (shadow)",
            "policy login: 1 admitted, 0 delayed, 1 rejected, 0 would be rejected (shadow), 0 denied without a check",
            "           1  {login|192.0.2.1}",
        ]
    );
}

/// Requests of one minute take all permits; a permit expires after five.
fn in_flight(more: &str) -> String {
    format!(
        r#"{{"policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [
            {{"name": "running", "algorithm": "concurrency", "limit": 2, "ttl": "5m"{more}}}]}}]}}"#
    )
}

#[test]
fn replay_tells_of_places_in_use_what_the_filter_tells() {
    let trace: String = (0..3).map(|n| format!("{{\"t_ms\": {n}, \"duration_ms\": 60000}}\n")).collect();
    let trace = File::new("places.jsonl", &trace);
    for (more, after) in [("", Value::Null), (r#", "retry_after": "7s""#, 7_000.into())] {
        let config = File::new("places.json", &in_flight(more));
        let (_, out, _) = weir(&["replay", "--json", config.path(), trace.path()]);
        let last = decisions(&out).pop().expect("a decision");
        assert_eq!((&last["allowed"], &last["retry_after_ms"]), (&Value::Bool(false), &after), "{more}");
    }
}

#[test]
fn explain_tells_of_places_in_use_what_the_filter_tells() {
    let Some(redis) = redis::Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let shadow = in_flight("").replace(r#""name": "p", "#, r#""name": "p", "mode": "shadow", "#);
    let jitter = in_flight(r#", "retry_after": "7s""#)
        .replace(r#""name": "p", "#, r#""name": "p", "response": {"retry_jitter": "1h"}, "#);
    take_all_places(&redis, &in_flight(""));
    for (text, said) in [
        (in_flight(""), "would be rejected, without a time to retry"),
        (in_flight(r#", "retry_after": "7s""#), "would be rejected, retry after 7000 ms"),
        (shadow, "would be rejected, without a time to retry (shadow: not enforced)"),
        (jitter, "would be rejected, retry after JITTER ms"),
    ] {
        let config = File::new("taken.json", &text);
        let (status, out, failure) = weir(&["explain", config.path(), "--redis", &url]);
        assert_eq!(status, 0, "{failure}");
        let last = out.lines().last().expect("a line").trim();
        if said.contains("JITTER") {
            let retry = last.strip_prefix("would be rejected, retry after ");
            let retry: u64 = retry.and_then(|rest| rest.split(' ').next()).expect(last).parse().expect(last);
            assert!((7_001..=3_607_000).contains(&retry), "with the jitter that the filter adds: {last}");
        } else {
            assert_eq!(last, said, "{text}");
        }
    }
}

/// Two requests of the subject begin, and do not end.
fn take_all_places(redis: &redis::Redis, config: &str) {
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let tag = b"{p|s}".to_vec();
    let check = Check { policy: 0, tier: 0, tag: tag.clone(), cost: 1, mode: Mode::Enforce };
    let mut command = Vec::new();
    let plan = config.plan(&check).expect("a plan");
    plan.check(&tag, Ask { requests: 2, cost: 1 }, None, Form::Eval, &mut command);
    let reply = redis.connect().pipeline(&command, 1).remove(0);
    assert!(reply.starts_with(b"$"), "{}", reply.escape_ascii());
}

/// One request of a subject at once, and a ban of an hour by the second denial.
fn banning() -> File {
    let text = r#"{"policies": [{"name": "p", "ban": {"after": 2, "window": "10m", "duration": "1h"}, "limits": [
        {"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    File::new("ban.json", text)
}

#[test]
fn replay_bans_as_the_filter_does() {
    let line = |seconds: u64| format!("{{\"t_ms\": {}, \"client\": \"192.0.2.1\"}}\n", seconds * 1_000);
    let trace: String = [0, 0, 2, 2, 10, 3_601, 3_602].map(line).concat();
    let (config, trace) = (banning(), File::new("ban.jsonl", &trace));
    let (_, out, _) = weir(&["replay", "--json", config.path(), trace.path()]);
    let outcomes: Vec<_> = decisions(&out).iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(
        outcomes,
        ["admitted", "rejected", "admitted", "banned", "banned", "banned", "admitted"],
        "the ban begins after two seconds"
    );
    let retries: Vec<_> = decisions(&out).iter().map(|line| line["retry_after_ms"].clone()).collect();
    assert_eq!(retries[3..6], [3_600_000, 3_592_000, 1_000].map(Value::from));
    let Some(redis) = redis::Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let (status, lua, failure) = weir(&["replay", "--json", config.path(), trace.path(), "--redis", &url]);
    assert_eq!((status, lua), (0, out), "{failure}");
}

#[test]
fn explain_says_for_how_long_a_subject_is_banned() {
    let Some(redis) = redis::Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let (config, mut operator) = (banning(), redis.connect());
    let explained = || weir(&["explain", config.path(), "--client", "192.0.2.1", "--redis", &url]).1;
    assert!(!explained().contains("banned"), "{}", explained());
    assert_eq!(operator.say("SET weir:{p|192.0.2.1}:ban x EX 1000"), "+OK\r\n");
    let out = explained();
    let rest = out.split_once("  banned for ").and_then(|(_, rest)| rest.split(' ').next());
    assert!(
        rest.is_some_and(|rest| (900_000..=1_000_001).contains(&rest.parse::<u64>().expect(rest))),
        "{out}"
    );
    assert!(out.contains("  would be rejected, retry after "), "{out}");
    assert_eq!(operator.say("SET weir:{p|192.0.2.1}:ban x"), "+OK\r\n");
    assert!(
        explained().ends_with("  would be rejected, until an operator lifts the ban\n"),
        "{}",
        explained()
    );
}

#[test]
fn the_documented_ban_of_failed_logins_is_a_configuration() {
    let page = include_str!("../docs/configuration.md");
    let (_, bans) = page.split_once("\n## Bans\n").expect("a section");
    let (_, yaml) = bans.split_once("```yaml\n").expect("an example");
    let (yaml, _) = yaml.split_once("```").expect("its end");
    assert!(yaml.lines().count() <= 15, "{yaml}");
    let file = File::new("logins.yaml", yaml);
    let (status, out, _) = weir(&["check", file.path()]);
    assert_eq!((status, out), (0, format!("{}: 1 policy, no errors\n", file.path())));
}

#[test]
fn replay_compares_two_configurations() {
    let (config, trace) = (File::new("first.json", CONFIG), File::new("both.jsonl", &trace()));
    let other =
        File::new("second.json", &CONFIG.replace("\"limit\": 2, \"window\"", "\"limit\": 3, \"window\""));
    let (status, out, _) = weir(&["replay", config.path(), trace.path(), "--against", config.path()]);
    assert_eq!(status, 0, "{out}");
    let (status, out, _) = weir(&["replay", config.path(), trace.path(), "--against", other.path()]);
    assert_eq!(status, 1, "{out}");
    assert!(
        out.starts_with("10 decided the same, 1 rejected by the first only, 0 by the second only, "),
        "{out}"
    );
}

#[test]
fn replay_in_redis_decides_the_same() {
    let Some(redis) = redis::Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let (config, trace) = (File::new("lua.json", CONFIG), File::new("lua.jsonl", &trace()));
    let (_, pure, _) = weir(&["replay", "--json", config.path(), trace.path()]);
    let (status, lua, failure) = weir(&["replay", "--json", config.path(), trace.path(), "--redis", &url]);
    assert_eq!((status, lua), (0, pure), "{failure}");
    let (_, out, _) = weir(&["explain", config.path(), "--client", "192.0.2.1", "--redis", &url]);
    assert!(out.contains("  limit steady: 3 left, full again in 0 ms\n"), "{out}");
    assert!(out.contains("  would be admitted\n"), "{out}");
}
