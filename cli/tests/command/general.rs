// SPDX-License-Identifier: Apache-2.0
//! The native command: run as an operator runs it, judged by what it prints and by its exit status.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::command::{CONFIG, File, command, weir};
use crate::support::redis::Redis;
use crate::support::root;
use serde_json::Value;

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
            ":8:11: error: policies: found nothing, allowed: a list of 1 to 256\nFILE:9:13: error: policys: found an unknown field, \
             allowed: $schema, store, regions, client_address, request_body, policies, quota, deny, exempt, response, journal, \
             top_denied, emit_filter_state (did you mean \"policies\"?)",
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

/// What stands for a count, and why it is none. `tests/envoy/e2e/configuration.rs` shows that Envoy reads them so.
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

/// What YAML takes for another thing than text is said, with the word that is written.
#[test]
fn check_says_what_yaml_takes_a_word_for() {
    let said = |name: &str| {
        let text = format!(
            "policies:\n- {{name: {name}, limits: [{{name: l, algorithm: leaky_bucket, rate: 1/s}}]}}\n"
        );
        weir(&["check", File::new("word.yaml", &text).path()]).1
    };
    for (name, wanted) in [
        ("y", "a letter or digit (YAML takes y for true; in quotes it is text)\n"),
        ("Off", " (YAML takes Off for false; in quotes it is text)\n"),
        ("~", " (YAML takes ~ for null; in quotes it is text)\n"),
        ("0x10", " (YAML takes 0x10 for 16; in quotes it is text)\n"),
        ("true", "a letter or digit\n"),
        ("'-'", "a letter or digit\n"),
        ("-x", "a letter or digit\n"),
        ("'y'", "1 policy, no errors\n"),
    ] {
        let said = said(name);
        assert!(said.ends_with(wanted), "{name}: {said}");
    }
}

/// A limiter without a configuration is a limiter: Envoy gives it an empty text.
#[test]
fn check_names_a_limiter_without_a_configuration() {
    for (text, wanted) in [
        (
            "typed_config:\n  config:\n    root_id: weir.limiter\n",
            ":3:5: error: configuration: found nothing, allowed: the configuration of weir, beside `root_id: weir.limiter`\n",
        ),
        (
            "typed_config: {config: {root_id: weir.limiter, vm_config: {}}}\n",
            ":1:24: error: configuration: found nothing, allowed: the configuration of weir, beside `root_id: weir.limiter`\n",
        ),
        (
            "typed_config: {filter_name: weir.limiter}\n",
            ":1:15: error: filter_config: found nothing, allowed: the configuration of weir, beside `filter_name: weir.limiter`\n",
        ),
        (
            "apiVersion: extensions.istio.io/v1alpha1\nspec: {pluginName: weir.limiter, url: x}\n",
            ":2:7: error: pluginConfig: found nothing, allowed: the configuration of weir, beside `pluginName: weir.limiter`\n",
        ),
        (
            "apiVersion: gateway.envoyproxy.io/v1alpha1\nspec: {wasm: [{rootID: weir.limiter, code: {}}]}\n",
            ":2:15: error: config: found nothing, allowed: the configuration of weir, beside `rootID: weir.limiter`\n",
        ),
        ("typed_config: {config: {root_id: weir.bridge}}\nadmin: {}\nstatic_resources: {}\n", ""),
    ] {
        let file = File::new("without.yaml", text);
        let (_, out, _) = weir(&["check", file.path()]);
        assert!(wanted.is_empty() || out == format!("{}{wanted}", file.path()), "{out}");
        assert!(!out.contains("without a weir.limiter"), "{out}");
    }
}

/// `docs/command.md`: 1 says that the configuration is wrong, 2 that the command failed.
#[test]
fn a_wrong_configuration_is_no_failed_command() {
    let wrong = File::new("wrong.yaml", "policies: []\n");
    let syntax = File::new("syntax.yaml", "policies: [\n");
    let other = File::new("other.yaml", "admin: {}\n");
    let (right, trace) = (File::new("right.json", CONFIG), File::new("trace.jsonl", "{\"t_ms\": 1}\n"));
    let redis = ["--redis", "redis://127.0.0.1:1"];
    for file in [wrong.path(), syntax.path(), other.path()] {
        for (arguments, wanted) in [
            (vec!["check", file], 1),
            (vec!["explain", file], 1),
            (vec!["replay", file, trace.path()], 1),
            (vec!["replay", right.path(), trace.path(), "--against", file], 1),
            (vec!["inspect", file, redis[0], redis[1]], 1),
            (vec!["bans", file, redis[0], redis[1]], 1),
            (vec!["render", file, "--for", "istio"], 1),
            (vec!["explain", "none.yaml"], 2),
            (vec!["explain", right.path(), "--method"], 2),
        ] {
            let (status, out, error) = weir(&arguments);
            assert_eq!(status, wanted, "{arguments:?}: {out}{error}");
        }
    }
}

/// Names of files, arguments, and what files say: no output gives a terminal commands, and none repeats the login of a URL.
#[test]
fn output_gives_no_commands_and_repeats_no_login() {
    const BAD: &str = "a\u{1b}[2J\u{9b}2J\u{202e}\n.yaml";
    let url = "redis://ann:PASS WORD@h";
    let named =
        File::new(BAD, "policies:\n- name: \"a\\e\u{9b}b\"\n  url: redis://ann:PASSWORD@h # \u{9b}2J\n");
    let right = File::new(&BAD.replace(".yaml", ".json"), CONFIG);
    let mut rows: Vec<Vec<&str>> = vec![
        vec!["journal", url],
        vec!["journal", "--redis", url, "--count", url],
        vec!["journal", "--redis", "http://ann:PASSWORD@h"],
        vec!["hot", BAD],
        vec!["inspect", named.path(), "--redis", url],
        vec!["inspect", named.path(), "--login-file", BAD, "--redis", "redis://127.0.0.1:1"],
        vec!["import", "nginx", BAD],
        vec!["import", "ratelimit", BAD],
        vec!["man", "/dev/null/\u{9b}"],
        vec!["render", right.path(), "--for", "envoy", "--files", "/dev/null/\u{9b}"],
        vec!["render", right.path(), "--for", "envoy", "--redis", "redis://ann:PASSWORD@h"],
        vec!["render", right.path(), "--for", "envoy", "--listen", BAD],
        vec!["replay", right.path(), BAD],
        vec!["replay", right.path(), BAD, "--map", BAD],
        vec!["explain", right.path(), "--header", BAD],
        vec![BAD],
    ];
    for file in [BAD, url, named.path(), right.path()] {
        rows.push(vec!["explain", file]);
        for format in ["text", "excerpts", "json", "sarif", "github"] {
            rows.push(vec!["check", file, "--format", format]);
        }
    }
    for arguments in rows {
        let (status, out, error) = weir(&arguments);
        let said = out + &error;
        assert!(!said.is_empty() || status == 0, "{arguments:?}");
        let obeyed = |next: char| (next.is_control() && next != '\n') || next == '\u{202e}';
        assert!(!said.contains(obeyed), "{arguments:?}: {said:?}");
        assert!(!said.contains("PASS") && !said.contains("WORD@"), "{arguments:?}: {said}");
    }
}

/// Names of files become text in one place, and standard error has one way to it.
#[test]
fn names_and_errors_have_one_way_out() {
    let mut folders = vec![root().join("cli/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a file");
            let name = path.file_name().and_then(std::ffi::OsStr::to_str).expect("UTF-8");
            assert!(
                name == "words.rs" || !text.contains(".display()"),
                "{}: use words::file",
                path.display()
            );
            assert!(!text.contains("eprintln!"), "{}: use tell", path.display());
        }
    }
}

/// Envoy shows a plugin the bodies of requests that wait only if it is told to.
#[test]
fn check_asks_for_the_setting_that_body_json_needs() {
    let config = r#"{"policies": [{"name": "p", "subject": [{"body_json": {"path": "user"}}],
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    let without = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    let said = "allow_on_headers_stop_iteration: found nothing, allowed: true beside root_id, because a policy has `body_json`";
    for (name, field, setting, config, wanted) in [
        ("root_id", "configuration", "", config, 1),
        ("root_id", "configuration", "allow_on_headers_stop_iteration: false", config, 1),
        ("root_id", "configuration", "allow_on_headers_stop_iteration: true", config, 0),
        ("root_id", "configuration", "", without, 0),
        ("filter_name", "filter_config", "", config, 0),
    ] {
        let text = serde_json::Value::from(config);
        let file = File::new(
            "bodies.yaml",
            format!(
                "admin: {{}}\nfilter:\n  {name}: weir.limiter\n  {setting}\n  {field}: {{value: {text}}}\n"
            ),
        );
        let (status, out, _) = weir(&["check", file.path()]);
        assert_eq!(
            (status, out.contains(&format!(":3:3: error: {said}"))),
            (wanted, wanted == 1),
            "{name} {setting}: {out}"
        );
    }
}

#[test]
fn check_finds_the_configuration_of_the_envoy_that_is_delivered() {
    for name in ["weir.yaml", "native.yaml"] {
        let path = format!("{}/envoy/{name}", root().display());
        assert_eq!(weir(&["check", &path]), (0, format!("{path}: 1 policy, no errors\n"), String::new()));
    }
}

/// The dynamic module's own code says so, and `tests/envoy/native` sees the same lines in Envoy's log.
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
            condition("costs", &format!(r#"[{{"when": {claim}, "cost": {{"constant": 1}}}}]"#)),
            found(12, "costs[0].when"),
        ),
        (
            "of a class",
            condition("priority", &format!(r#"[{{"when": {claim}, "percent": 10}}]"#))
                .replace(r#""limit": 1"#, r#""limit": 10"#),
            found(15, "priority[0].when"),
        ),
        (
            "of a scale",
            condition("scale", &format!(r#"{{"from": {claim}, "max": 2}}"#)),
            found(11, "scale.from"),
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
    let published = include_str!("../../../weir.schema.json");
    assert_eq!(weir(&["schema"]), (0, published.to_owned(), String::new()));
}

fn decisions(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn the_documented_examples_are_configurations() {
    let page = include_str!("../../../docs/configuration.md");
    for section in ["Bans", "Priority", "Scales"] {
        let (_, section) = page.split_once(&format!("\n## {section}\n")).expect("a section");
        let (_, yaml) = section.split_once("```yaml\n").expect("an example");
        let (yaml, _) = yaml.split_once("```").expect("its end");
        assert!(yaml.lines().count() <= 15, "{yaml}");
        let file = File::new("documented.yaml", yaml);
        let (status, out, _) = weir(&["check", file.path()]);
        assert_eq!((status, out), (0, format!("{}: 1 policy, no errors\n", file.path())));
    }
}

/// A Redis whose journal has these entries, the last of them as written by anyone who may write there.
fn with_journal(entries: u64) -> Option<Redis> {
    let redis = Redis::start()?;
    let mut operator = redis.connect();
    for entry in 1..=entries {
        let id = format!("{}-0", 1_700_000_000_000 + 1_000 * entry);
        let [age, subject] = [(100 + entry).to_string(), format!("{{p|ann-{entry}}}")];
        let words = [
            "XADD",
            "weir:{journal}",
            &id,
            "policy",
            "p",
            "limit",
            "l",
            "outcome",
            "rejected",
            "source",
            "redis",
        ];
        let more = ["subject", subject.as_str(), "cost", "1", "age_ms", &age, "skipped", "7"];
        let words: Vec<_> = words.into_iter().chain(more).map(str::as_bytes).collect();
        operator.call(&words);
    }
    Some(redis)
}

#[test]
fn the_journal_is_printed_oldest_first() {
    let Some(redis) = with_journal(1_203) else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let print = |more: &[&str]| weir(&[&["journal", "--redis", &url], more].concat());
    let (status, out, failure) = print(&["--count", "2"]);
    assert_eq!(
        (status, out.as_str(), failure.as_str()),
        (
            0,
            "2023-11-14T22:33:20.698Z rejected policy=p limit=l source=redis subject={p|ann-1202} cost=1 skipped=7\n\
             2023-11-14T22:33:21.697Z rejected policy=p limit=l source=redis subject={p|ann-1203} cost=1 skipped=7\n",
            ""
        )
    );
    // Page by page, and no entry twice.
    for (count, first) in [("1201", 3), ("1203", 1), ("5000", 1)] {
        let (_, out, _) = print(&["--json", "--count", count]);
        let subjects: Vec<_> = decisions(&out).iter().map(|entry| entry["subject"].clone()).collect();
        let wanted: Vec<_> = (first..=1_203).map(|entry| Value::from(format!("{{p|ann-{entry}}}"))).collect();
        assert!(subjects == wanted, "{count}: {} of {}", subjects.len(), wanted.len());
    }
    assert_eq!(print(&[]).1.lines().count(), 100);
    let (_, out, _) = print(&["--json", "--count", "1"]);
    let wanted = serde_json::json!({
        "id": "1700001203000-0", "time": "2023-11-14T22:33:21.697Z", "policy": "p", "limit": "l", "outcome": "rejected",
        "source": "redis", "subject": "{p|ann-1203}", "cost": 1, "age_ms": 1303, "skipped": 7
    });
    assert_eq!(decisions(&out), [wanted]);
    assert_eq!(print(&["--prefix", "staging"]), (0, String::new(), String::new()), "another key");
}

#[test]
fn the_journal_is_printed_without_what_a_terminal_obeys() {
    let Some(redis) = with_journal(0) else { return eprintln!("no redis-server here: not tested") };
    let url = format!("unix://{}", redis.socket().display());
    redis.connect().call(&[b"XADD", b"weir:{journal}", b"1-1", b"outcome", b"\x1b[2J", b"a\nb", b"\xff\r"]);
    let (_, out, _) = weir(&["journal", "--redis", &url]);
    assert_eq!(out, "1970-01-01T00:00:00.001Z \\x1b[2J a\\nb=\\xff\\r\n");
    let (_, out, _) = weir(&["journal", "--redis", &url, "--json"]);
    assert!(out.lines().count() == 1 && !out.contains('\x1b'), "{out}");
}

#[test]
fn the_journal_is_followed_until_nobody_reads() {
    let Some(redis) = with_journal(1) else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    for prefix in ["weir", "empty"] {
        let mut weir = command(&["journal", "--follow", "--json", "--prefix", prefix, "--redis", &url])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir runs");
        let mut lines = BufReader::new(weir.stdout.take().expect("its output")).lines();
        let mut next =
            || decisions(&lines.next().expect("a line").expect("text")).remove(0)["subject"].clone();
        let (key, mut operator) = (format!("{prefix}:{{journal}}"), redis.connect());
        let mut add =
            |subject: &str| operator.call(&[b"XADD", key.as_bytes(), b"*", b"subject", subject.as_bytes()]);
        if prefix == "weir" {
            assert_eq!(next(), "{p|ann-1}");
        }
        // Each is printed as soon as it is there.
        for subject in ["one", "two", "three"] {
            add(subject);
            assert_eq!(next(), subject);
        }
        drop(lines);
        // It notices at its next line. While another test starts a process, that process may hold the other end of the pipe for a moment.
        while weir.try_wait().expect("a process").is_none() {
            add("four");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let output = weir.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
}

#[test]
fn a_journal_that_cannot_be_read_is_a_failure() {
    let Some(redis) = with_journal(1) else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let read = |more: &[&str]| weir(&[&["journal", "--redis", &url], more].concat());
    redis.connect().say("SET other:{journal} text");
    let (status, _, failure) = read(&["--prefix", "other"]);
    assert!(status == 2 && failure.contains(&format!("{}: WRONGTYPE", redis.address())), "{failure}");
    redis.connect().say("ACL SETUSER default -xrevrange");
    let (status, _, failure) = read(&[]);
    assert!(status == 2 && failure.contains("'xrevrange' command: give the user this right"), "{failure}");
    assert_eq!(read(&["--count", "0"]).0, 2);
    assert_eq!(weir(&["journal", "--redis", "http://localhost"]).0, 2);
}
