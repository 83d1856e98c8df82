// SPDX-License-Identifier: Apache-2.0
//! How findings are printed.

use serde_json::{Value, json};

use super::{File, check};
use crate::support::root;

/// A file with a mistake in its fourth line, of which the others are told too.
const FILE: &str = "policies:\n- name: p\n  cost: {constant: 11}\n  limits: [{name: l, algorithm: leaky_bucket, rate: 10/s, burst: 10}]\n";

const SAID: &str =
    "policies[0].cost: a request costs 11, and can never pass: limit \"l\" never grants more than 10";
const ADVICE: &str = "Write a cost of at most 10, or a larger limit";

#[test]
fn excerpts_show_the_line() {
    let file = File::new("excerpt.yaml", FILE);
    let path = file.path();
    let (status, out, _) = check(&["--format", "excerpts", path]);
    let wanted = format!(
        "warning[impossible-cost]: {SAID}\n --> {path}:3:3\n  |\n3 |   cost: {{constant: 11}}\n  |   ^^^^\n  |\n  = help: {ADVICE}\n\n{path}: 1 \
         policy, no errors, 1 warning\n"
    );
    assert_eq!((status, out), (0, wanted), "no colours, because this is no terminal");
    let file = File::new("excerpt.yaml", FILE.replace("burst", "burts"));
    let (status, out, _) = check(&["--format", "excerpts", file.path()]);
    assert_eq!(status, 1);
    assert!(out.starts_with("error: policies[0].limits[0].burts: found an unknown field"), "{out}");
    assert!(
        !out.contains("help:")
            && out.contains("  |                                                           ^^^^^\n"),
        "{out}"
    );
}

/// The place may be anywhere, and the file may be of any kind.
#[test]
fn excerpts_of_any_file() {
    for (name, text, wanted) in [
        ("crlf.yaml", FILE.replace('\n', "\r\n"), "3 |   cost: {constant: 11}\n"),
        (
            "wide.yaml",
            FILE.replace("cost: {", "cost: { \"constant\": 1, # \u{6f22}\u{5b57}\n   ")
                .replace("constant: 11", ""),
            "",
        ),
        ("empty.yaml", String::new(), "the file is empty"),
        (
            "one-line.json",
            format!("{{\"policies\": [{}{{}}]}}", "{},".repeat(200)),
            "policies[200].name: found nothing",
        ),
        ("escape.yaml", "policies: [{name: \"\\e[31m\", limits: []}]\n".to_owned(), "found \"\\u{1b}[31m\""),
        ("escape-2.yaml", "\"a\\e[31m\": 1\n".to_owned(), "error: "),
    ] {
        let file = File::new(name, &text);
        for format in ["excerpts", "text", "json", "sarif", "github"] {
            let (status, out, error) = check(&["--format", format, file.path()]);
            assert!(status < 2 && error.is_empty(), "{name}: {out}{error}");
            assert!(!out.contains('\u{1b}'), "{name}: {out}");
            if format == "excerpts" {
                assert!(out.contains(wanted), "{name}: {out}");
            }
        }
    }
}

#[test]
fn an_excerpt_does_not_show_a_password() {
    let shipped = std::fs::read_to_string(root().join("envoy/tls.yaml")).expect("a file");
    let text = shipped.replace("filename: /run/secrets/redis-password", "inline_string: hunter2");
    let file = File::new("password.yaml", &text);
    for format in ["excerpts", "text", "json", "sarif", "github"] {
        let (_, out, _) = check(&["--format", format, file.path()]);
        assert!(out.contains("password-in-file") && !out.contains("hunter2"), "{out}");
    }
}

#[test]
fn json_is_one_object() {
    let (file, right) = (File::new("a.yaml", FILE), File::new("b.yaml", FILE.replace("11", "10")));
    let (status, out, _) = check(&["--format", "json", "--deny-warnings", file.path(), right.path()]);
    let wanted = json!({
        "files": [{"file": file.path(), "policies": 1}, {"file": right.path(), "policies": 1}],
        "findings": [{
            "severity": "warning", "code": "impossible-cost", "file": file.path(), "line": 3, "column": 3, "message": SAID,
            "advice": ADVICE,
        }],
    });
    assert_eq!((status, serde_json::from_str::<Value>(&out).expect("JSON")), (1, wanted));
}

#[test]
fn sarif_names_each_rule() {
    let file = File::new("a b,\u{e9}.yaml", FILE);
    let (status, out, _) = check(&["--format", "sarif", file.path()]);
    assert_eq!(status, 0);
    let log: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules: Vec<&Value> =
        run["tool"]["driver"]["rules"].as_array().expect("rules").iter().map(|rule| &rule["id"]).collect();
    let result = &run["results"][0];
    assert!(rules.contains(&&result["ruleId"]) && result["ruleId"] == "impossible-cost", "{out}");
    assert_eq!(
        (result["level"].as_str(), result["message"]["text"].as_str()),
        (Some("warning"), Some(format!("{SAID}. {ADVICE}").as_str()))
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["region"], json!({"startLine": 3, "startColumn": 3}));
    let uri = place["artifactLocation"]["uri"].as_str().expect("a URI");
    assert!(uri.starts_with("file:///") && uri.ends_with("a%20b%2C%C3%A9.yaml"), "{uri}");
    // Every code of an error is a rule.
    for text in ["a: [", "policies: 1", "admin: {}"] {
        let file = File::new("wrong.yaml", text);
        let (_, out, _) = check(&["--format", "sarif", file.path()]);
        let log: Value = serde_json::from_str(&out).expect("JSON");
        let run = &log["runs"][0];
        let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
        assert!(rules.iter().any(|rule| rule["id"] == run["results"][0]["ruleId"]), "{out}");
    }
}

#[test]
fn github_gets_one_command_for_each_finding() {
    let file = File::new("a,b%.yaml", FILE);
    let (status, out, _) = check(&["--format", "github", file.path()]);
    let path = file.path().replace('%', "%25").replace(',', "%2C");
    assert_eq!(
        (status, out),
        (0, format!("::warning file={path},line=3,col=3,title=weir%3A impossible-cost::{SAID}. {ADVICE}\n"))
    );
    let file = File::new("wrong.yaml", "policies: 1\n");
    let (status, out, _) = check(&["--format", "github", file.path()]);
    let said = "policies: found 1, allowed: a list of 1 to 256";
    assert_eq!((status, out), (1, format!("::error file={},line=1,col=1,title=weir::{said}\n", file.path())));
}

/// Without a terminal there is one line for each finding.
#[test]
fn elsewhere_than_on_a_terminal_a_finding_is_a_line() {
    let file = File::new("line.yaml", FILE);
    let path = file.path();
    let wanted = format!(
        "{path}:3:3: warning: {SAID}. {ADVICE} [impossible-cost]\n{path}: 1 policy, no errors, 1 warning\n"
    );
    assert_eq!(check(&[path]).1, wanted);
    assert_eq!(check(&["--format", "text", path]).1, wanted);
}

#[test]
fn a_file_that_cannot_be_read_is_a_failure() {
    let (status, out, error) = check(&["/no/such/file"]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(error.starts_with("weir: /no/such/file: "), "{error}");
}
