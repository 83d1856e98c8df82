// SPDX-License-Identifier: Apache-2.0
//! Values of request bodies: as subjects, in conditions, as costs. The hostile rows are bodies made to get round a policy.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use weir::config::{Config, Evaluation, Unasked, UnaskedRuling};
use weir::request::Request;
use weir::request::body::{Body, Wanted};
use weir::request::sample::Sample;

use crate::request::request;
use crate::table::each;
use crate::{config, evaluate, policy};

/// What becomes of a POST with this body: the tags and costs of the checks, or what is clear without.
fn with_body(config: &Config, body: &str) -> String {
    match evaluate(config, &request("POST /login").with_body(body)) {
        Ok(checks) => {
            let each =
                checks.iter().map(|check| format!("{} {}", String::from_utf8_lossy(&check.tag), check.cost));
            each.collect::<Vec<_>>().join(", ")
        }
        Err(clear) => clear,
    }
}

/// Name, fields of the policy, body, what becomes of it.
fn rows(rows: &[(&str, &str, &str, &str)]) {
    each(
        rows.iter().map(|(name, fields, body, wanted)| {
            (name, with_body(&policy(fields), body), (*wanted).to_owned())
        }),
    );
}

#[test]
fn subjects() {
    let by_user = r#""subject": [{"body_json": {"path": "user"}}]"#;
    let missing =
        r#""subject": [{"body_json": {"path": "user", "on_unreadable": "missing"}, "on_missing": "deny"}]"#;
    let nested = r#""subject": [{"body_json": {"path": "login['e-mail']"}, "on_missing": "skip"}]"#;
    rows(&[
        ("a text", by_user, r#"{"user": "ann"}"#, "{p|ann} 1"),
        ("escapes are decoded", by_user, r#"{"us\u0065r": "\u0061nn"}"#, "{p|ann} 1"),
        ("what is in a text is data", by_user, r#"{"user": "a|b}{"}"#, "{p|a%7Cb%7D%7B} 1"),
        ("a number", by_user, r#"{"user": 42}"#, "{p|42} 1"),
        ("the same number", by_user, r#"{"user": 4.20e1}"#, "{p|42} 1"),
        ("not whole", by_user, r#"{"user": 0.125}"#, "{p|0.125} 1"),
        ("true", by_user, r#"{"user": true}"#, "{p|true} 1"),
        ("too large a number", by_user, r#"{"user": 1e12}"#, "deny ambiguous 0"),
        ("null is none", by_user, r#"{"user": null}"#, "{p|%-} 1"),
        ("none", by_user, r#"{"name": "ann"}"#, "{p|%-} 1"),
        ("an empty body", by_user, "", "{p|%-} 1"),
        ("twice", by_user, r#"{"user": "ann", "user": "bob"}"#, "deny ambiguous 0"),
        ("twice, spelled otherwise", by_user, r#"{"user": "ann", "\u0075ser": "ann"}"#, "deny ambiguous 0"),
        ("an object", by_user, r#"{"user": {"name": "ann"}}"#, "deny ambiguous 0"),
        ("an array", by_user, r#"{"user": ["ann"]}"#, "deny ambiguous 0"),
        ("no JSON", by_user, "user=ann", "deny ambiguous 0"),
        ("cut off", by_user, r#"{"user": "ann""#, "deny ambiguous 0"),
        ("more than one document", by_user, r#"{"user": "ann"} {"user": "bob"}"#, "deny ambiguous 0"),
        ("a byte order mark", by_user, "\u{feff}{\"user\": \"ann\"}", "deny ambiguous 0"),
        ("unreadable as missing", missing, "user=ann", "deny absent 0"),
        ("several as missing", missing, r#"{"user": 1, "user": 2}"#, "deny absent 0"),
        ("there all the same", missing, r#"{"user": "ann"}"#, "{p|ann} 1"),
        ("a quoted key", nested, r#"{"login": {"e-mail": "a@b"}}"#, "{p|a@b} 1"),
        ("skipped", nested, r#"{"login": {}}"#, "admit"),
    ]);
}

#[test]
fn conditions_and_costs() {
    let model =
        r#""match": {"body_json": {"path": "model", "in": ["big", "huge"]}}, "subject": [{"literal": "x"}]"#;
    let exempt =
        r#""exempt": [{"body_json": {"path": "model", "exact": "tiny"}}], "subject": [{"literal": "x"}]"#;
    let denied =
        r#""deny": [{"body_json": {"path": "admin", "present": true}}], "subject": [{"literal": "x"}]"#;
    let tokens = r#""subject": [{"literal": "x"}], "cost": {"body_json": {"paths": ["max_tokens", "max_completion_tokens"],
        "on_missing": 100, "min": 10, "max": 4000}}"#;
    let by_model = r#""subject": [{"literal": "x"}], "costs": [{"when": {"body_json": {"path": "model", "prefix": "big"}},
        "cost": {"constant": 7}}]"#;
    let nested = r#""match": {"any": [{"all": [{"not": {"body_json": {"path": "model", "exact": "tiny"}}}]}]},
        "subject": [{"literal": "x"}]"#;
    rows(&[
        ("nested", nested, r#"{"model": "huge"}"#, "{p|x} 1"),
        ("nested, and it is not so", nested, r#"{"model": "tiny"}"#, "admit"),
        ("one of", model, r#"{"model": "huge"}"#, "{p|x} 1"),
        ("another", model, r#"{"model": "tiny"}"#, "admit"),
        ("absent", model, "{}", "admit"),
        ("in doubt a policy applies", model, "model=tiny", "{p|x} 1"),
        ("also when it is twice", model, r#"{"model": "tiny", "model": "tiny"}"#, "{p|x} 1"),
        ("exempt", exempt, r#"{"model": "tiny"}"#, "admit"),
        ("in doubt nothing is exempt", exempt, r#"{"model": "tiny", "model": "tiny"}"#, "{p|x} 1"),
        ("denied", denied, r#"{"admin": false}"#, "deny listed 0"),
        ("not denied", denied, r#"{"admin": null}"#, "{p|x} 1"),
        ("in doubt denied", denied, "{", "deny listed 0"),
        ("a cost", tokens, r#"{"max_tokens": 20}"#, "{p|x} 20"),
        ("rounded up", tokens, r#"{"max_tokens": 20.2}"#, "{p|x} 21"),
        ("the largest of several", tokens, r#"{"max_tokens": 20, "max_completion_tokens": 30}"#, "{p|x} 30"),
        ("at least", tokens, r#"{"max_tokens": -5}"#, "{p|x} 10"),
        ("at most", tokens, r#"{"max_tokens": 1e300}"#, "{p|x} 4000"),
        ("a text is no number", tokens, r#"{"max_tokens": "20"}"#, "{p|x} 100"),
        ("missing", tokens, "{}", "{p|x} 100"),
        ("in doubt the most", tokens, r#"{"max_tokens": 1, "max_tokens": 1}"#, "{p|x} 4000"),
        ("a case", by_model, r#"{"model": "big-1"}"#, "{p|x} 7"),
        ("not the case", by_model, r#"{"model": "small"}"#, "{p|x} 1"),
        ("in doubt the dearer", by_model, "no", "{p|x} 7"),
    ]);
}

/// A body is waited for only where its value decides.
#[test]
fn what_waits_for_its_body() {
    let login = r#""match": {"method": ["POST"], "path": {"exact": "/login"}}, "subject": [{"body_json": {"path": "user"}}]"#;
    let post = || request("POST /login").header("content-length", "20");
    let rows: [(&str, Sample, &str); 11] = [
        ("there is a body", post(), "await body"),
        ("chunked", request("POST /login").header("transfer-encoding", "chunked"), "await body"),
        ("another path", post().path("/other"), "admit"),
        ("another method", post().method("PUT"), "admit"),
        ("no body", request("POST /login"), "check"),
        ("too long", request("POST /login").header("content-length", "65537"), "deny ambiguous 0"),
        ("compressed", post().header("content-encoding", "gzip"), "deny ambiguous 0"),
        ("not compressed", post().header("content-encoding", "identity"), "await body"),
        ("an upgrade", post().header("upgrade", "websocket"), "deny ambiguous 0"),
        ("after the upstream's 100", post().header("expect", "100-continue"), "deny ambiguous 0"),
        ("unreadable headers", post().unreadable("content-encoding"), "deny ambiguous 0"),
    ];
    for (name, sample, wanted) in rows {
        let found = evaluate(&policy(login), &sample).map(|_| String::from("check"));
        assert_eq!(found.unwrap_or_else(|clear| clear), wanted, "{name}");
    }
    // What needs no body is tried first, wherever it stands.
    let last = r#""match": {"body_json": {"path": "user", "exact": "ann"}, "not": {"path": {"exact": "/other"}}},
        "subject": [{"literal": "x"}]"#;
    for (path, wanted) in [("/login", "await body"), ("/other", "admit")] {
        assert_eq!(evaluate(&policy(last), &post().path(path)).unwrap_err(), wanted, "{path}");
    }
    // A list that denies or exempts without the body, before the policy that needs it.
    let listed = config(
        r#"{"deny": [{"path": {"exact": "/a"}}], "exempt": [{"path": {"exact": "/b"}}], "policies": [{"name": "p",
            "subject": [{"body_json": {"path": "user"}}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
    );
    for (path, wanted) in [("/a", "deny global listed 0"), ("/b", "admit"), ("/c", "await body")] {
        assert_eq!(evaluate(&listed, &post().path(path)).unwrap_err(), wanted, "{path}");
    }
}

/// A request is evaluated again when its body has come. What was decided without asking Redis counts then, and only then.
#[test]
fn what_is_noted_of_a_request_counts_once() {
    let config = config(
        r#"{"policies": [{"name": "a", "exempt": [{"path": {"exact": "/login"}}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]},
            {"name": "p", "subject": [{"body_json": {"path": "user"}}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
    );
    let post = request("POST /login").header("content-length", "20");
    let mut unasked = Unasked::new();
    assert!(matches!(config.evaluate_and_note(&post, None, &mut unasked), Evaluation::AwaitBody(_)));
    assert_eq!(unasked, []);
    let mut body = config.body().unwrap();
    body.feed(br#"{"user": "ann"}"#);
    body.end();
    assert!(matches!(config.evaluate_and_note(&post, Some(&body), &mut unasked), Evaluation::Check(_)));
    assert_eq!(unasked, [(Some(0), UnaskedRuling::Exempt)]);
}

/// What denies a request in any event denies it before its body comes. What its body may change does not.
#[test]
fn what_needs_no_body_denies_before_it_comes() {
    let limit = r#""limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]"#;
    let by_user = format!(r#"{{"name": "user", "subject": [{{"body_json": {{"path": "user"}}}}], {limit}}}"#);
    let before = |lists: &str, policies: &[String]| {
        let config = config(&format!(r#"{{{lists} "policies": [{by_user}, {}]}}"#, policies.join(", ")));
        let post = request("POST /login").header("content-length", "20").from("192.0.2.7:1234");
        let mut unasked = Unasked::new();
        match config.evaluate_and_note(&post, None, &mut unasked) {
            Evaluation::AwaitBody(before) => {
                assert_eq!(unasked, []);
                let checks: Vec<_> = before.checks.iter().map(|check| check.policy).collect();
                format!("{} {checks:?}", before.client.expect("an address"))
            }
            Evaluation::Deny(policy, denial) => {
                assert_eq!(unasked, [(policy, UnaskedRuling::Denied(denial))]);
                format!("{policy:?} {denial:?}")
            }
            other => panic!("{other:?}"),
        }
    };
    let other = |more: &str| {
        format!(r#"{{"name": "other", {more} "subject": [{{"client_address": {{}}}}], {limit}}}"#)
    };
    let (listed, by_body) =
        (r#"{"client_address": ["192.0.2.0/24"]}"#, r#"{"body_json": {"path": "a", "exact": "b"}}"#);
    let rows = [
        ("", other(""), "192.0.2.7 [1]"),
        ("", other(r#""mode": "shadow","#), "192.0.2.7 []"),
        // The body may deny it, which changes nothing for the other policies.
        (&format!(r#""deny": [{by_body}],"#), other(""), "192.0.2.7 [1]"),
        (&format!(r#""deny": [{by_body}, {listed}],"#), other(""), "None Listed(1)"),
        // The body may show that it is exempt.
        (&format!(r#""exempt": [{by_body}],"#), other(""), "192.0.2.7 []"),
        (&format!(r#""exempt": [{by_body}],"#), other(&format!(r#""deny": [{listed}],"#)), "192.0.2.7 []"),
        ("", other(&format!(r#""exempt": [{by_body}],"#)), "192.0.2.7 []"),
        ("", other(&format!(r#""exempt": [{by_body}], "deny": [{listed}],"#)), "Some(1) Listed(0)"),
        ("", other(&format!(r#""deny": [{by_body}, {listed}],"#)), "Some(1) Listed(1)"),
        ("", other(&format!(r#""match": {by_body}, "deny": [{listed}],"#)), "192.0.2.7 []"),
        ("", other(&format!(r#""mode": "shadow", "deny": [{listed}],"#)), "192.0.2.7 []"),
        (
            "",
            other(&format!(r#""costs": [{{"when": {by_body}, "cost": {{"constant": 2}}}}],"#)),
            "192.0.2.7 []",
        ),
    ];
    for (lists, policy, wanted) in rows {
        assert_eq!(before(lists, &[policy.clone()]), wanted, "{lists} {policy}");
    }
}

#[test]
fn a_body_counts_up_to_its_bound_and_not_a_byte_more() {
    let fields = |bytes: usize| {
        config(&format!(
            r#"{{"request_body": {{"max_bytes": {bytes}}}, "policies": [{{"name": "p", "subject": [{{"body_json": {{"path": "u"}}}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}]}}]}}"#
        ))
    };
    let body = r#"{"u": "ann"}"#;
    assert_eq!(with_body(&fields(body.len()), body), "{p|ann} 1");
    assert_eq!(with_body(&fields(body.len() - 1), body), "deny ambiguous 0");
}

#[test]
fn a_configuration_has_at_most_16_paths() {
    let of = |paths: usize| {
        let parts: Vec<_> = (0..paths)
            .map(|path| format!(r#"{{"body_json": {{"path": "k{path}", "present": true}}}}"#))
            .collect();
        let text = format!(
            r#"{{"deny": [{}], "policies": [{{"name": "p", "subject": [{{"body_json": {{"path": "k0"}}}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}]}}]}}"#,
            parts.join(", ")
        );
        Config::parse(text.as_bytes())
            .map(|_| ())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(of(16), Ok(()));
    let error = "policies: found 17 different paths, allowed: up to 16 different paths of `body_json`, of all policies together";
    assert_eq!(of(17), Err(vec![error.to_owned()]));
}

/// A JSON text as a client may write it: keys twice, broken off, with bytes in it that are none.
fn hostile_json() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![Just(r#""user""#), Just(r#""us\u0065r""#), Just(r#""other""#), Just(r#""User""#)];
    let value = prop_oneof![
        Just(String::from(r#""ann""#)),
        Just(String::from(r#""b\u006fb""#)),
        Just(String::from("null")),
        Just(String::from(r#"{"user": "eve"}"#)),
        Just(String::from(r#"["user"]"#)),
        (0..2_000_u32).prop_map(|number| number.to_string()),
    ];
    let pairs = prop::collection::vec((key, value), 0..4);
    (pairs, any::<prop::sample::Index>(), prop::option::weighted(0.3, any::<u8>())).prop_map(
        |(pairs, at, broken)| {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            let mut text = format!("{{{}}}", pairs.join(", ")).into_bytes();
            if let Some(byte) = broken {
                let at = at.index(text.len());
                text[at] = byte;
            }
            text
        },
    )
}

proptest! {
    /// Where weir has a value, every parser of JSON has that value; where it says that there is none, every parser finds none.
    #[test]
    fn what_weir_reads_every_parser_reads(text in hostile_json(), cuts in prop::collection::vec(0..60_usize, 0..4)) {
        let wanted = Arc::new(Wanted::new(vec![String::from("user")], 65_536).unwrap());
        let mut body = Body::new(&wanted);
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts {
            body.feed(&text[from..cut]);
            from = cut;
        }
        body.feed(&text[from..]);
        body.end();
        let sample = request("POST /").with_body(&text);
        let config = policy(r#""subject": [{"literal": "x"}]"#);
        let request = Request::new(&sample, &config.trust).with_body(&body);
        let parsed = serde_json::from_slice::<Value>(&text);
        match request.body_text("user") {
            Err(_) => {}
            Ok(None) => prop_assert!(parsed.unwrap().get("user").is_none_or(Value::is_null)),
            Ok(Some(found)) => {
                let value = parsed.unwrap();
                let value = value.get("user").unwrap();
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                prop_assert_eq!(String::from_utf8(found.into_owned()).unwrap(), value);
            }
        }
    }

    /// No body gets round a policy that is about one value: where a parser finds this value, first or last, the policy applies.
    #[test]
    fn no_body_gets_round_a_policy(text in hostile_json()) {
        let config = policy(r#""match": {"body_json": {"path": "user", "exact": "ann"}}, "subject": [{"literal": "x"}]"#);
        let found = config.evaluate(&request("POST /").with_body(&text));
        let parsed = serde_json::from_slice::<Value>(&text);
        if parsed.is_ok_and(|value| value.get("user").and_then(Value::as_str) == Some("ann")) {
            prop_assert!(matches!(found, Evaluation::Check(_)), "{found:?}");
        }
    }
}
