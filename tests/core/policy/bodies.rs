// SPDX-License-Identifier: Apache-2.0
//! Values of request bodies: as subjects, in conditions, as costs. The hostile rows are bodies made to get round a policy.

use std::rc::Rc;

use proptest::prelude::*;
use serde_json::Value;
use weir::config::{Config, Evaluation, Unasked, UnaskedRuling};
use weir::request::Request;
use weir::request::body::{Body, Wanted};
use weir::request::sample::Sample;

use super::{config, evaluate, policy};
use crate::table::each;
use crate::written::request;

/// The result for a POST with this body: the tags and costs of the checks, or the decision without asking.
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
    let by_user_id = r#""subject": [{"body_json": {"path": "user_id"}}]"#;
    let missing =
        r#""subject": [{"body_json": {"path": "user", "on_unreadable": "missing"}, "on_missing": "deny"}]"#;
    let normalized = r#""subject": [{"body_json": {"path": "user"}, "normalize": ["email"]}]"#;
    let by_key = r#""subject": [{"body_json": {"path": "key.id"}}]"#;
    let by_item = r#""subject": [{"body_json": {"path": "items[0].id"}, "on_missing": "share"}]"#;
    let nested = r#""subject": [{"body_json": {"path": "login['e-mail']"}, "on_missing": "skip"}]"#;
    let behind = |name: &str| format!(r#"{{"user": "ann", "z": "&{name}user=victim&"}}"#);
    rows(&[
        ("a text", by_user, r#"{"user": "ann"}"#, "{p|ann} 1"),
        (
            "pairs in a body without a type, which Rack takes for a form",
            by_user,
            r#"{"user": "x1", "z": "&user=victim&"}"#,
            "deny ambiguous 0",
        ),
        ("other pairs", by_user, r#"{"user": "ann", "z": "&name=victim&"}"#, "{p|ann} 1"),
        (
            "a pair behind many brackets, which Rack drops",
            by_user,
            &behind(&"[".repeat(4000)),
            "deny ambiguous 0",
        ),
        ("nearly as many as weir keeps of a name", by_user, &behind(&"[".repeat(3070)), "deny ambiguous 0"),
        (
            "a long text behind a wrong escape",
            by_user,
            &behind(&format!("P 5% {}", "n".repeat(4000))),
            "{p|ann} 1",
        ),
        ("a long text that none drops", by_user, &behind(&"n".repeat(4000)), "{p|ann} 1"),
        ("an item", by_item, r#"{"items": [{"id": "ann"}]}"#, "{p|ann} 1"),
        ("a key that is an index to some", by_item, r#"{"items": {"0": {"id": "ann"}}}"#, "deny ambiguous 0"),
        ("the key of another index", by_item, r#"{"items": {"7": {"id": "ann"}}}"#, "{p|%-} 1"),
        ("a key that is no number", by_item, r#"{"items": {"00": {"id": "ann"}}}"#, "{p|%-} 1"),
        ("an empty key", by_item, r#"{"items": {"": {"id": "ann"}}}"#, "{p|%-} 1"),
        ("another key", by_item, r#"{"items": {"a": {"id": "ann"}}}"#, "{p|%-} 1"),
        ("escapes are decoded", by_user, r#"{"us\u0065r": "\u0061nn"}"#, "{p|ann} 1"),
        ("what is in a text is data", by_user, r#"{"user": "a|b}{"}"#, "{p|a%7Cb%7D%7B} 1"),
        ("normalized", normalized, r#"{"user": " A.nn+x@GMAIL.com\n"}"#, "{p|ann@gmail.com} 1"),
        ("a number", by_user, r#"{"user": 42}"#, "{p|42} 1"),
        ("the same number", by_user, r#"{"user": 4.20e1}"#, "{p|42} 1"),
        ("not whole", by_user, r#"{"user": 0.125}"#, "{p|0.125} 1"),
        ("below zero", by_user, r#"{"user": -7}"#, "{p|-7} 1"),
        ("below zero, not whole", by_user, r#"{"user": -75e-1}"#, "{p|-7.5} 1"),
        ("zero", by_user, r#"{"user": 0.0}"#, "{p|0} 1"),
        ("zero below zero", by_user, r#"{"user": -0e5}"#, "{p|0} 1"),
        ("the largest number", by_user, r#"{"user": -999999999999}"#, "{p|-999999999999} 1"),
        ("the largest fraction", by_user, r#"{"user": 999999999.999999}"#, "{p|999999999.999999} 1"),
        (
            "a larger one is a whole number in JavaScript",
            by_user,
            r#"{"user": 123456789012.000001}"#,
            "deny ambiguous 0",
        ),
        ("finer than a millionth", by_user, r#"{"user": 0.0000001}"#, "deny ambiguous 0"),
        ("nearly a whole number", by_user, r#"{"user": 41.99999999}"#, "deny ambiguous 0"),
        ("too large a number below zero", by_user, r#"{"user": -1e12}"#, "deny ambiguous 0"),
        ("true", by_user, r#"{"user": true}"#, "{p|true} 1"),
        ("too large a number", by_user, r#"{"user": 1e12}"#, "deny ambiguous 0"),
        ("null is none", by_user, r#"{"user": null}"#, "{p|%-} 1"),
        ("none", by_user, r#"{"name": "ann"}"#, "{p|%-} 1"),
        ("an empty body", by_user, "", "{p|%-} 1"),
        ("twice", by_user, r#"{"user": "ann", "user": "bob"}"#, "deny ambiguous 0"),
        // Servers in C end a string at a zero character; Go and ASP.NET ignore the case of keys.
        ("a zero character", by_user, r#"{"user": "ann\u0000N"}"#, "deny ambiguous 0"),
        ("a zero character, of another value", by_user, r#"{"user": "ann", "b": "\u0000"}"#, "{p|ann} 1"),
        (
            "a zero character behind the key",
            by_user,
            r#"{"user\u0000": "ann", "user": "bob"}"#,
            "deny ambiguous 0",
        ),
        ("also alone", by_user, r#"{"user\u0000x": "ann"}"#, "deny ambiguous 0"),
        (
            "behind another key",
            by_user,
            r#"{"users\u0000": "ann", "use\u0000r": 1, "user": "bob"}"#,
            "{p|bob} 1",
        ),
        ("another case", by_user, r#"{"user": "ann", "User": "bob"}"#, "deny ambiguous 0"),
        ("also alone", by_user, r#"{"USER": "bob"}"#, "deny ambiguous 0"),
        (
            "another case and a zero character",
            by_user,
            r#"{"uSER\u0000": "bob", "user": "ann"}"#,
            "deny ambiguous 0",
        ),
        (
            "a letter that Go takes for an s",
            by_user,
            r#"{"u\u017fer": "bob", "user": "ann"}"#,
            "deny ambiguous 0",
        ),
        ("as it is", by_user, r#"{"uſer": "bob", "user": "ann"}"#, "deny ambiguous 0"),
        ("only like it", by_user, r#"{"Users": 1, "US": 2, "uňer": 3, "user": "ann"}"#, "{p|ann} 1"),
        ("the sign of Kelvin", by_key, r#"{"\u212aey": {"id": 7}, "key": {"id": 8}}"#, "deny ambiguous 0"),
        ("case on the way", by_key, r#"{"KEY": {"id": 7}, "key": {"id": 8}}"#, "deny ambiguous 0"),
        ("case at the end", by_key, r#"{"key": {"id": 8, "Id": 7}}"#, "deny ambiguous 0"),
        (
            "case elsewhere",
            by_key,
            r#"{"other": {"KEY": 1, "ID": 2}, "key": {"id": 8, "in": {"ID": 3}}}"#,
            "{p|8} 1",
        ),
        (
            "in capitals, of protobuf",
            by_user_id,
            r#"{"user_id": "ann", "userId": "bob"}"#,
            "deny ambiguous 0",
        ),
        ("also alone", by_user_id, r#"{"userId": "bob"}"#, "deny ambiguous 0"),
        (
            "other capitals and marks",
            by_user_id,
            r#"{"UserI_D_": "bob", "user_id": "ann"}"#,
            "deny ambiguous 0",
        ),
        ("a mark of protobuf", by_user, r#"{"us_er": "bob", "user": "ann"}"#, "deny ambiguous 0"),
        ("a mark before it", by_user, r#"{"_user": "bob", "user": "ann"}"#, "{p|ann} 1"),
        ("marks alone", by_user, r#"{"_": "bob", "__": 1, "": 2, "user": "ann"}"#, "{p|ann} 1"),
        ("half of a pair of surrogates", by_user, r#"{"user": "ann\ud800"}"#, "deny ambiguous 0"),
        ("no number", by_user, r#"{"user": "ann", "n": NaN}"#, "deny ambiguous 0"),
        ("a comment", by_user, r#"{"user": "ann" /* */}"#, "deny ambiguous 0"),
        ("a comma at the end", by_user, r#"{"user": "ann",}"#, "deny ambiguous 0"),
        (
            "nested too deep",
            by_user,
            &format!("{{\"a\": {}, \"user\": \"ann\"}}", "[".repeat(1025)),
            "deny ambiguous 0",
        ),
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
    let banned =
        r#""deny": [{"body_json": {"path": "user", "exact": "ann"}}], "subject": [{"literal": "x"}]"#;
    let tokens = r#""subject": [{"literal": "x"}], "cost": {"body_json": {"paths": ["max_tokens", "max_completion_tokens"],
        "on_missing": 100, "min": 10, "max": 4000}}"#;
    let by_model = r#""subject": [{"literal": "x"}], "costs": [{"when": {"body_json": {"path": "model", "prefix": "big"}},
        "cost": {"constant": 7}}]"#;
    let below_zero = r#""match": {"body_json": {"path": "n", "exact": "-1"}}, "subject": [{"literal": "x"}]"#;
    let nested = r#""match": {"any": [{"all": [{"not": {"body_json": {"path": "model", "exact": "tiny"}}}]}]},
        "subject": [{"literal": "x"}]"#;
    let calls = r#""subject": [{"literal": "x"}], "cost": {"calls": {"on_unreadable": 50}}"#;
    rows(&[
        ("nested", nested, r#"{"model": "huge"}"#, "{p|x} 1"),
        ("nested, and it is not so", nested, r#"{"model": "tiny"}"#, "admit"),
        ("one of", model, r#"{"model": "huge"}"#, "{p|x} 1"),
        ("another", model, r#"{"model": "tiny"}"#, "admit"),
        ("absent", model, "{}", "admit"),
        ("in doubt a policy applies", model, "model=tiny", "{p|x} 1"),
        ("also when it is twice", model, r#"{"model": "tiny", "model": "tiny"}"#, "{p|x} 1"),
        ("in doubt by a zero character", model, r#"{"model": "tiny\u0000"}"#, "{p|x} 1"),
        ("in doubt by case", model, r#"{"model": "tiny", "Model": "huge"}"#, "{p|x} 1"),
        ("exempt", exempt, r#"{"model": "tiny"}"#, "admit"),
        ("in doubt nothing is exempt, by a zero character", exempt, r#"{"model": "tiny\u0000"}"#, "{p|x} 1"),
        ("in doubt nothing is exempt", exempt, r#"{"model": "tiny", "model": "tiny"}"#, "{p|x} 1"),
        ("denied", denied, r#"{"admin": false}"#, "deny listed 0"),
        ("not denied", denied, r#"{"admin": null}"#, "{p|x} 1"),
        ("in doubt denied", denied, "{", "deny listed 0"),
        ("in doubt denied, by a zero character", banned, r#"{"user": "ann\u0000N"}"#, "deny listed 0"),
        ("another user is not denied", banned, r#"{"user": "bob"}"#, "{p|x} 1"),
        ("a cost", tokens, r#"{"max_tokens": 20}"#, "{p|x} 20"),
        ("rounded up", tokens, r#"{"max_tokens": 20.2}"#, "{p|x} 21"),
        ("the largest of several", tokens, r#"{"max_tokens": 20, "max_completion_tokens": 30}"#, "{p|x} 30"),
        ("at least", tokens, r#"{"max_tokens": 5}"#, "{p|x} 10"),
        ("zero below zero", tokens, r#"{"max_tokens": -0.0}"#, "{p|x} 10"),
        ("below zero", tokens, r#"{"max_tokens": -5}"#, "{p|x} 4000"),
        ("hardly below zero", tokens, r#"{"max_tokens": -1e-300}"#, "{p|x} 4000"),
        ("at most", tokens, r#"{"max_tokens": 1e300}"#, "{p|x} 4000"),
        ("a text is no number", tokens, r#"{"max_tokens": "20"}"#, "{p|x} 4000"),
        ("an array", tokens, r#"{"max_tokens": [20]}"#, "{p|x} 4000"),
        ("an empty object", tokens, r#"{"max_tokens": {}}"#, "{p|x} 4000"),
        ("true", tokens, r#"{"max_tokens": true}"#, "{p|x} 4000"),
        (
            "one that is no number beside one",
            tokens,
            r#"{"max_tokens": "9", "max_completion_tokens": 30}"#,
            "{p|x} 4000",
        ),
        ("missing", tokens, "{}", "{p|x} 100"),
        ("null is none", tokens, r#"{"max_tokens": null}"#, "{p|x} 100"),
        ("in doubt the most, by case", tokens, r#"{"max_tokens": 1, "Max_Tokens": 9}"#, "{p|x} 4000"),
        ("in doubt the most", tokens, r#"{"max_tokens": 1, "max_tokens": 1}"#, "{p|x} 4000"),
        ("a number below zero", below_zero, r#"{"n": -10e-1}"#, "{p|x} 1"),
        ("the number above zero", below_zero, r#"{"n": 1}"#, "admit"),
        ("zero", below_zero, r#"{"n": 0}"#, "admit"),
        ("a case", by_model, r#"{"model": "big-1"}"#, "{p|x} 7"),
        ("not the case", by_model, r#"{"model": "small"}"#, "{p|x} 1"),
        ("in doubt the dearer", by_model, "no", "{p|x} 7"),
        ("one call", calls, r#"{"method": "a", "params": [1, 2, 3]}"#, "{p|x} 1"),
        ("a batch", calls, r#" [{"id": [1, 2]}, {"a": {"b": 1, "c": 2}} , {}]"#, "{p|x} 3"),
        ("a batch of one", calls, "[{}]", "{p|x} 1"),
        ("a batch of none", calls, "[]", "{p|x} 1"),
        ("a batch of batches", calls, "[[1, 2, 3], [4]]", "{p|x} 2"),
        ("a text", calls, r#""[1, 2]""#, "{p|x} 1"),
        ("no body", calls, "", "{p|x} 1"),
        ("in doubt as many as stated", calls, "[1, 2", "{p|x} 50"),
    ]);
}

#[test]
fn a_long_text_is_no_cost() {
    let tokens = policy(
        r#""subject": [{"literal": "x"}], "cost": {"body_json": {"paths": ["n"], "on_missing": 2, "max": 4000}}"#,
    );
    for length in [1, 1024, 1025, 5000] {
        let body = format!(r#"{{"n": "{}"}}"#, "4".repeat(length));
        assert_eq!(with_body(&tokens, &body), "{p|x} 4000", "{length}");
    }
}

/// A `content-type` or a `content-encoding` may say that a body is not what weir would read.
#[test]
fn what_the_headers_say_of_a_body() {
    let by_user = policy(r#""subject": [{"body_json": {"path": "user"}}]"#);
    let longest = format!("{:x<1024}", "application/json; a=");
    let longer = format!("{longest}x");
    let rows: &[(&[&str], &str, bool)] = &[
        (&[], "", true),
        (&["application/json"], "", true),
        (&["text/plain"], "", true),
        (&["application/json; charset=utf-8"], "", true),
        (&["application/json;CHARSET = UTF8"], "", true),
        (&[r#"application/json; charset="utf-8"; x=y"#], "", true),
        (&["application/json; charset=utf-8; charset=UTF-8"], "", true),
        (&["application/json; charset=utf-7"], "", false),
        (&["application/json; charset=UTF-16LE"], "", false),
        (&["application/json; charset=utf-32"], "", false),
        (&["application/json; charset=cp037"], "", false),
        (&["application/json; charset=us-ascii"], "", false),
        (&[r#"application/json; charset="utf-7""#], "", false),
        (&["application/json; charset='utf-8'"], "", false),
        (&[r#"application/json; charset="utf\-7""#], "", false),
        (&["application/json; charset"], "", false),
        (&["application/json; charset="], "", false),
        (&["application/json;a=b;\tChArSeT=utf-7;c=d"], "", false),
        (&["application/json; charset=utf-8; charset=utf-7"], "", false),
        (&["application/json; charset=utf-7; charset=utf-8"], "", false),
        (&["application/json; charset*=utf-8''utf-7"], "", false),
        (&["application/json; charset*0=utf; charset*1=-7"], "", false),
        (&["application/json charset=utf-7"], "", false),
        (&["application/json, charset=utf-7"], "", false),
        (&[r#"application/json; a="; charset=utf-7""#], "", false),
        (&[r#"application/json; a="\"; charset=utf-7; b=""#], "", false),
        (&["application/json (a comment) charset=utf-7"], "", false),
        (&["application/json", "application/json; charset=utf-7"], "", false),
        (&["application/json; charset=utf-7", "application/json"], "", false),
        (&["application/json; charset=utf-8", "application/json"], "", true),
        (&["application/x-www-form-urlencoded"], "", false),
        (&["application/json", "Application/X-WWW-Form-Urlencoded"], "", false),
        (&["multipart/form-data; boundary=x"], "", false),
        (&["Multipart/Mixed"], "", false),
        (&[&longest], "", true),
        (&[&longer], "", false),
        (&["application/json"], "identity", true),
        (&["application/json"], "Identity, identity", true),
        (&["application/json"], "gzip", false),
        (&["application/json"], "identity, x-unknown", false),
    ];
    each(rows.iter().map(|(types, coding, readable)| {
        let mut post = request("POST /login").header("content-length", "15");
        post = types.iter().fold(post, |post, kind| post.header("content-type", kind));
        if !coding.is_empty() {
            post = post.header("content-encoding", coding);
        }
        // Before the body has come, and with it.
        let ahead = evaluate(&by_user, &post).map(|_| String::from("check")).unwrap_or_else(|clear| clear);
        let found = match evaluate(&by_user, &post.with_body(r#"{"user": "ann"}"#)) {
            Ok(checks) => String::from_utf8_lossy(&checks[0].tag).into_owned(),
            Err(clear) => clear,
        };
        let wanted = if *readable { ["await body", "{p|ann}"] } else { ["deny ambiguous 0"; 2] };
        (format!("{types:?} {coding:?}"), format!("{ahead}, {found}"), wanted.join(", "))
    }));
}

/// Bodies in UTF-16 and UTF-32, which some servers know by their NULs or their byte order marks, are no JSON in UTF-8.
#[test]
fn bodies_in_wider_characters_cannot_be_read() {
    let by_user = policy(r#""subject": [{"body_json": {"path": "user"}}]"#);
    let text = r#"{"user": "ann"}"#;
    let wide = |mark: &[u8], bytes: fn(u16) -> Vec<u8>| {
        let units: Vec<u8> = text.encode_utf16().flat_map(bytes).collect();
        [mark, &units].concat()
    };
    let little = |unit: u16| unit.to_le_bytes().to_vec();
    let big = |unit: u16| unit.to_be_bytes().to_vec();
    let rows = [
        ("UTF-16, little-endian", wide(b"", little)),
        ("UTF-16, big-endian", wide(b"", big)),
        ("UTF-16 with a mark", wide(b"\xff\xfe", little)),
        ("UTF-16, big-endian, with a mark", wide(b"\xfe\xff", big)),
        ("UTF-32", wide(b"", |unit| u32::from(unit).to_le_bytes().to_vec())),
        ("UTF-32 with a mark", wide(b"\0\0\xfe\xff", |unit| u32::from(unit).to_be_bytes().to_vec())),
        ("UTF-8 with a mark", [b"\xef\xbb\xbf", text.as_bytes()].concat()),
    ];
    each(rows.map(|(name, body)| {
        let found = evaluate(&by_user, &request("POST /").with_body(body)).map(|_| String::from("check"));
        (name, found.unwrap_or_else(|clear| clear), "deny ambiguous 0".to_owned())
    }));
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
    // Conditions that need no body are tried first, wherever they are.
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

/// A request is evaluated again when its body has come. The decisions without asking Redis count then, and only then.
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
    let mut body = config.body(&post).unwrap();
    body.feed(br#"{"user": "ann"}"#);
    body.end();
    assert!(matches!(config.evaluate_and_note(&post, Some(&body), &mut unasked), Evaluation::Check(_)));
    assert_eq!(unasked, [(Some(0), UnaskedRuling::Exempt)]);
}

/// A body that the headers rule out is noted, if a policy needs it.
#[test]
fn a_body_that_is_out_of_reach_is_noted_where_it_is_needed() {
    let config = config(
        r#"{"policies": [{"name": "p", "match": {"path": {"exact": "/login"}}, "subject": [{"body_json": {"path": "user", "on_unreadable": "missing"}}],
            "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
    );
    let post = |path: &str| request(path).header("content-length", "20");
    let unreadable = [(None, UnaskedRuling::UnreadableBody)];
    for (name, request, noted) in [
        (
            "a form",
            post("POST /login").header("content-type", "application/x-www-form-urlencoded"),
            &unreadable[..],
        ),
        ("compressed", post("POST /login").header("content-encoding", "gzip"), &unreadable),
        ("JSON", post("POST /login").header("content-type", "application/json"), &[]),
        ("of another path", post("POST /").header("content-encoding", "gzip"), &[]),
        ("none", request("GET /login").header("content-encoding", "gzip"), &[]),
    ] {
        let mut unasked = Unasked::new();
        let _ = config.evaluate_and_note(&request, None, &mut unasked);
        assert_eq!(unasked, noted, "{name}");
    }
}

/// If a request is denied in any event, it is denied before its body comes. If its body may change that, it is not.
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
        ("", other(r#""mode": "shadow","#), "192.0.2.7 [1]"),
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
        assert_eq!(before(lists, std::slice::from_ref(&policy)), wanted, "{lists} {policy}");
    }
    let ban = r#""match": {"method": ["GET"]}, "ban": {"after": 1, "window": "1m", "duration": "1h", "scope": ["other"]},"#;
    let closing = other(ban).replace(r#""other","#, r#""closing","#);
    assert_eq!(before("", &[other(""), closing]), "192.0.2.7 [1, 2]", "and its ban is asked about meanwhile");
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
fn a_configuration_has_at_most_20_paths_and_20_fields() {
    let of = |paths: usize, fields: usize| {
        let path = |path| format!(r#"{{"body_json": {{"path": "k{path}", "present": true}}}}"#);
        let field = |field| format!(r#"{{"body_form": {{"field": "f{field}", "present": true}}}}"#);
        let parts: Vec<_> = (0..paths).map(path).chain((0..fields).map(field)).collect();
        let text = format!(
            r#"{{"deny": [{}], "policies": [{{"name": "p", "subject": [{{"body_json": {{"path": "k0"}}}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}]}}]}}"#,
            parts.join(", ")
        );
        Config::parse(text.as_bytes())
            .map(|_| ())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let error = |what: &str| {
        Err(vec![format!(
            "policies: found 21 different {what}, allowed: up to 20 different {what}, of all policies together"
        )])
    };
    assert_eq!(of(20, 20), Ok(()));
    assert_eq!(of(21, 20), error("paths of `body_json`"));
    assert_eq!(of(20, 21), error("fields of `body_form`"));
}

/// A JSON text as a client may write it: keys twice, broken off, with bytes in it that are none.
fn hostile_json() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![
        Just(r#""user""#),
        Just(r#""us\u0065r""#),
        Just(r#""other""#),
        Just(r#""User""#),
        Just(r#""user\u0000""#)
    ];
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

/// The value of a cost in a document, and what it counts: `None` if it is absent, an error if it is no clean number.
fn stated() -> impl Strategy<Value = (Option<String>, Result<Option<u64>, ()>)> {
    let is = |text: &str, counts| Just((Some(text.to_owned()), counts));
    prop_oneof![
        2 => Just((None, Ok(None))),
        1 => is("null", Ok(None)),
        4 => (0..60_u64).prop_map(|units| (Some(units.to_string()), Ok(Some(units)))),
        2 => (0..60_u64, 1..1_000_u32)
            .prop_map(|(units, part)| (Some(format!("{units}.{part:03}")), Ok(Some(units + 1)))),
        1 => (0..6_u64).prop_map(|units| (Some(format!("{units}e1")), Ok(Some(units * 10)))),
        1 => is("-0", Ok(Some(0))),
        1 => is("1e40", Ok(Some(u64::MAX))),
        2 => (1..60_u64).prop_map(|units| (Some(format!("-{units}")), Err(()))),
        1 => (0..60_u64).prop_map(|units| (Some(format!("\"{units}\"")), Err(()))),
        1 => (0..60_u64).prop_map(|units| (Some(format!("[{units}]")), Err(()))),
        1 => (1_000..1_100_usize).prop_map(|length| (Some(format!("\"{}\"", "4".repeat(length))), Err(()))),
        1 => prop::sample::select(&["[]", "{}", "true", "false", "\"\"", "-1e-9"][..])
            .prop_map(|text| (Some(text.to_owned()), Err(()))),
    ]
}

/// A parameter of a type, and whether weir can read a body with it.
fn parameter() -> impl Strategy<Value = (String, bool)> {
    let name = prop::sample::select(&["charset", "Charset", "CHARSET", "charset ", "\tcharset"][..]);
    let utf8 = prop::sample::select(&["utf-8", "UTF-8", "utf8", "\"utf-8\"", " utf-8"][..]);
    let other = prop::sample::select(
        &["utf-7", "utf-16", "UTF-16LE", "\"utf-7\"", "latin1", "ebcdic-cp-us", "", "utf-8x", "u", "\"utf-8"]
            [..],
    );
    let rest = prop::sample::select(&["profile=x", "", "a=\"b\"", "q=utf-7", "version=1"][..]);
    prop_oneof![
        (name.clone(), utf8).prop_map(|(name, value)| (format!("{name}={value}"), true)),
        (name, other).prop_map(|(name, value)| (format!("{name}={value}"), false)),
        rest.prop_map(|text| (text.to_owned(), true)),
    ]
}

/// A number of JSON as it may be written, and its shortest text if weir can tell it apart from all others.
fn written_number() -> impl Strategy<Value = (String, Option<String>)> {
    let digits = ("-?", "0|[1-9][0-9]{0,13}", "|[0-9]{1,8}", -8..9_i32);
    digits.prop_map(|(minus, integer, fraction, exponent)| {
        let mut text = format!("{minus}{integer}");
        if !fraction.is_empty() {
            text.push_str(&format!(".{fraction}"));
        }
        if exponent != 0 {
            text.push_str(&format!("e{exponent}"));
        }
        // The point moves through the digits, which have enough zeros on both sides.
        let zeros = "0".repeat(20);
        let all = format!("{zeros}{integer}{fraction}{zeros}");
        let point = usize::try_from(20 + i32::try_from(integer.len()).unwrap() + exponent).unwrap();
        let (whole, places) = (all[..point].trim_start_matches('0'), all[point..].trim_end_matches('0'));
        let is_zero = whole.is_empty() && places.is_empty();
        // A fraction beside more digits is lost in floating point.
        let known = places.len() <= 6 && whole.len() <= if places.is_empty() { 12 } else { 9 };
        let minus = if is_zero { "" } else { minus.as_str() };
        let whole = if whole.is_empty() { "0" } else { whole };
        let point = if places.is_empty() { "" } else { "." };
        (text, known.then(|| format!("{minus}{whole}{point}{places}")))
    })
}

proptest! {
    /// If weir has a value, every JSON parser has that value; if weir says that there is none, every parser finds none.
    #[test]
    fn what_weir_reads_every_parser_reads(text in hostile_json(), cuts in prop::collection::vec(0..60_usize, 0..4)) {
        let wanted = Rc::new(Wanted::new(vec![String::from("user")], 65_536).unwrap());
        let mut body = Body::new(&wanted, &Sample::default());
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

    /// A batch has as many calls as every parser finds items, wherever it is cut; what no parser can read has no number of calls.
    #[test]
    fn a_batch_costs_its_items(
        calls in prop::collection::vec(prop::sample::select(vec!["{}", "[]", "[1, 2]", r#"{"a": [3, 4]}"#, "5", r#""],""#]), 0..6),
        broken in prop::option::weighted(0.3, any::<(prop::sample::Index, u8)>()),
    ) {
        let mut text = format!("[ {} ]", calls.join(" , ")).into_bytes();
        if let Some((at, byte)) = broken {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let config = policy(r#""subject": [{"literal": "x"}], "cost": {"calls": {"on_unreadable": 50}}"#);
        let Evaluation::Check(checks) = config.evaluate(&request("POST /").with_body(&text)) else { panic!("a check") };
        let parsed = serde_json::from_slice::<Value>(&text);
        let items = parsed.map_or(50, |value| value.as_array().map_or(1, |items| items.len().max(1)));
        prop_assert_eq!(checks[0].cost, items as u64, "{}", String::from_utf8_lossy(&text));
    }

    /// Only an absent cost is `on_missing`; one that is no clean number is `max`.
    #[test]
    fn a_cost_that_cannot_be_read_is_the_largest(
        values in prop::collection::vec(stated(), 2), on_missing in 0..80_u64, min in 0..30_u64, more in 1..40_u64,
    ) {
        let max = min + more;
        let config = policy(&format!(
            r#""subject": [{{"literal": "x"}}], "cost": {{"body_json": {{"paths": ["a", "b"], "on_missing": {on_missing}, "min": {min}, "max": {max}}}}}"#
        ));
        let members: Vec<_> = values.iter().zip(["a", "b"]).filter_map(|((text, _), key)| Some(format!("\"{key}\": {}", text.as_ref()?))).collect();
        let body = format!("{{{}}}", members.join(", "));
        let numbers: Result<Vec<_>, ()> = values.iter().map(|(_, counts)| *counts).collect();
        let wanted = match numbers.map(|numbers| numbers.into_iter().flatten().max()) {
            Ok(Some(units)) => units.clamp(min, max),
            Ok(None) => on_missing,
            Err(()) => max,
        };
        prop_assert_eq!(with_body(&config, &body), format!("{{p|x}} {wanted}"), "{}", body);
    }

    /// Every charset that a type names has to be UTF-8, wherever it names it.
    #[test]
    fn no_charset_but_utf_8_is_read(lines in prop::collection::vec((
        prop::sample::select(&["application/json", "text/plain", "application/vnd.x+json", ""][..]),
        prop::collection::vec((prop::sample::select(&[";", "; ", " ;", " ; "][..]), parameter()), 0..4),
    ), 0..3)) {
        let config = policy(r#""subject": [{"body_json": {"path": "user"}}]"#);
        let mut sample = request("POST /").with_body(r#"{"user": "ann"}"#);
        let mut readable = true;
        for (kind, parameters) in &lines {
            let mut line = (*kind).to_owned();
            for (between, (parameter, is_utf8)) in parameters {
                line.push_str(&format!("{between}{parameter}"));
                readable &= is_utf8;
            }
            sample = sample.header("content-type", line);
        }
        let found = evaluate(&config, &sample).map(|_| String::from("check")).unwrap_or_else(|clear| clear);
        prop_assert_eq!(found, if readable { "check" } else { "deny ambiguous 0" }, "{:?}", lines);
    }

    /// Each number has one spelling, which a condition matches.
    #[test]
    fn each_number_has_its_own_text((number, text) in written_number(), other in "-?[0-9]{1,3}") {
        let config = policy(r#""subject": [{"body_json": {"path": "n"}}]"#);
        let body = format!(r#"{{"n": {number}}}"#);
        let wanted = text.as_ref().map_or("deny ambiguous 0".to_owned(), |text| format!("{{p|{text}}} 1"));
        prop_assert_eq!(with_body(&config, &body), wanted, "{}", number);
        for exact in text.iter().chain([&other]) {
            let config = policy(&format!(
                r#""match": {{"body_json": {{"path": "n", "exact": "{exact}"}}}}, "subject": [{{"literal": "x"}}]"#
            ));
            // A number without a spelling may be any.
            let matches = text.as_ref().is_none_or(|text| text == exact);
            prop_assert_eq!(with_body(&config, &body), if matches { "{p|x} 1" } else { "admit" }, "{} {}", number, exact);
        }
    }
}
