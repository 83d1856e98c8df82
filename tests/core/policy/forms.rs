// SPDX-License-Identifier: Apache-2.0
//! Fields of HTML forms: as subjects and in conditions. The hostile rows are forms made to get round a policy.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::config::{Config, Evaluation};
use weir::request::sample::Sample;

use super::{evaluate, policy, tag};
use crate::table::each;
use crate::written::request;

const FORM: &str = "application/x-www-form-urlencoded";

/// The result for a POST with this body: the tags of the checks, or the decision without asking.
pub(super) fn with_form(config: &Config, content_type: &str, body: impl AsRef<[u8]>) -> String {
    let sample = request("POST /login").header("content-type", content_type).with_body(body);
    match evaluate(config, &sample) {
        Ok(checks) => {
            let tags: Vec<_> = checks.iter().map(|check| String::from_utf8_lossy(&check.tag)).collect();
            tags.join(", ")
        }
        Err(clear) => clear,
    }
}

#[test]
fn subjects() {
    let by_user = policy(r#""subject": [{"body_form": {"field": "user"}}]"#);
    let unclear = "deny ambiguous 0";
    let long = format!("user={}", "a".repeat(1025));
    let escaped = format!("user={}", "%61".repeat(1024));
    let name = format!("{}=1&user=ann", "n".repeat(3 * 1024 + 1));
    let [many, more] = [999, 1000].map(|others| format!("{}user=ann", "a&".repeat(others)));
    let [raw, tail] = ["", "\u{e4}"].map(|end| format!("b=\u{e4}{}{end}&user=ann", "x".repeat(3 * 1024)));
    let rows = [
        ("a field", "user=ann&password=x", "{p|ann}"),
        ("the last of several", "a=1&b=2&user=ann", "{p|ann}"),
        ("escapes in both, and a space", "us%65r=%61nn+b%20c", "{p|ann%20b%20c}"),
        ("what is in a value is data", "user=a%7Cb%7D=%26c", "{p|a%7Cb%7D=%26c}"),
        ("empty pairs, and one without a value", "&&a&user=ann&", "{p|ann}"),
        ("an empty value", "user=", "{p|}"),
        ("a name alone", "user", "{p|}"),
        ("none", "name=ann", "{p|%-}"),
        ("an empty body", "", "{p|%-}"),
        ("a name that ends in kana, whose bytes spaces have, too", "user%E3%81%8A=eve&user=ann", "{p|ann}"),
        ("some servers ignore case", "User=ann", unclear),
        ("also beside the field", "user=ann&USER=bob", unclear),
        ("beyond ASCII", "user=%C3%A4", "{p|%C3%A4}"),
        ("twice", "user=ann&user=bob", unclear),
        ("twice, the same", "user=ann&user=ann", unclear),
        ("twice, spelled otherwise", "user=ann&%75ser=bob", unclear),
        ("a semicolon may end a pair", "a=1;user=ann", unclear),
        ("also behind the field", "user=ann;b", unclear),
        ("a semicolon as an escape is data", "user=a%3Bb", "{p|a%3Bb}"),
        ("a wrong escape of the value", "user=%zz", unclear),
        ("an escape that is cut off", "user=ann%4", unclear),
        ("a wrong escape of another value", "a=%&user=ann", "{p|ann}"),
        ("a wrong escape of a name: it may be any", "%zz=1&user=ann", unclear),
        ("no UTF-8", "user=%FF", unclear),
        ("a zero byte ends it for some", "user=ann%00b", unclear),
        ("a zero byte in a name", "user=ann&user%00x=bob", unclear),
        ("spaces before a name are dropped by some", "user=ann&+user=bob", unclear),
        ("a list is the field for some", "user=ann&user%5B%5D=bob", unclear),
        ("a list alone", "user[]=bob", unclear),
        ("a list of no name is the field for some", "user=ann&[user]=bob", unclear),
        ("the end of a list is dropped by some", "user=ann&user%5D=bob", unclear),
        ("spaces behind a name are dropped by some", "user=ann&user+=bob", unclear),
        ("a byte order mark is dropped by some", "user=%EF%BB%BFann", unclear),
        ("a question mark before the first name is dropped by some", "?user=eve&user=ann", unclear),
        ("a default of Spring", "!user=eve&user=ann", unclear),
        ("also alone", "!user=eve", unclear),
        ("a late equals sign is of the name for Express", "user=ann]=x", unclear),
        ("also behind an escape", "user=ann%5d=x", unclear),
        ("other brackets and equals signs", "user=[a=b]%3D==&b=x]=y", "{p|%5Ba=b%5D===}"),
        ("bytes beyond ASCII are of Latin-1 for some", "user=\u{e4}", unclear),
        ("but not in another field", "user=ann&b=\u{e4}", "{p|ann}"),
        ("they are not looked at in a long one", &raw, "{p|ann}"),
        ("and not read at its end", &tail, unclear),
        ("a control character is a space for some", "user=ann%01", unclear),
        ("white space at the end is dropped by some", "a=b&user=ann\r\n", unclear),
        ("as an escape it is not", "user=ann%0D%0A", "{p|ann%0D%0A}"),
        ("as many fields as all servers read", &many, "{p|ann}"),
        ("a field more", &more, unclear),
        ("only like it", "users=bob&user=ann&use=x", "{p|ann}"),
        ("a field that says how to decode", "_charset_=utf-7&user=ann", unclear),
        ("the longest", &escaped, &format!("{{p|%~{}}}", "…")),
        ("a byte more", &long, unclear),
        ("a name that is too long", &name, unclear),
        ("JSON by the type of a form", r#"{"user":"ann"}"#, "{p|%-}"),
    ];
    each(rows.iter().map(|(name, body, wanted)| {
        let found = with_form(&by_user, FORM, body);
        // A long value is its hash.
        let found = match found.strip_prefix("{p|%~") {
            Some(_) => String::from("{p|%~…}"),
            None => found,
        };
        (*name, found, (*wanted).to_owned())
    }));
    // Some servers read nothing of a form that is no UTF-8.
    assert_eq!(with_form(&by_user, FORM, b"user=ann&a=\xff"), unclear);
}

#[test]
fn names_that_some_servers_change() {
    let config =
        policy(r#""subject": [{"body_form": {"field": "user.name"}}, {"body_form": {"field": "u[n]"}}]"#);
    let unclear = "deny ambiguous 0";
    let rows = [
        ("both", "user.name=ann&u[n]=bob", "{p|ann|bob}"),
        ("a name that is the same for PHP", "user.name=ann&user_name=eve&u[n]=bob", unclear),
        ("also with a space", "user.name=ann&u[n]=bob&user+name=eve", unclear),
        ("another key of the list", "user.name=ann&u[n]=bob&u[m]=eve", "{p|ann|bob}"),
        ("a list without its end", "user.name=ann&user[name=eve&u[n]=bob", unclear),
        ("a list within", "user.name=ann&u[n]=bob&u[n][0]=eve", "deny ambiguous 1"),
        ("what PHP drops behind a list", "user.name=ann&u[n]=bob&u[n]x=eve", "deny ambiguous 1"),
        ("what Express drops between", "user.name=ann&u[n]=bob&[u]x[n]=eve", "deny ambiguous 1"),
        ("an end without a beginning", "user.name=ann&u[n]=bob&u]n=eve", "deny ambiguous 1"),
        ("an end too much", "user.name=ann&u[n]=bob&u[[]n]=eve", "deny ambiguous 1"),
        ("another list of that kind", "user.name=ann&u[n]=bob&v[[n]]=eve", "{p|ann|bob}"),
        ("brackets that Rack drops", "user.name=ann&u[n]=bob&u[[n]]=eve", "deny ambiguous 1"),
        ("a list within one of no name", "user.name=ann&u[n]=bob&[u][n]=eve", "deny ambiguous 1"),
    ];
    each(
        rows.iter().map(|(name, body, wanted)| (*name, with_form(&config, FORM, body), (*wanted).to_owned())),
    );
}

#[test]
fn types() {
    let form = policy(r#""subject": [{"body_form": {"field": "user"}}]"#);
    let missing = policy(
        r#""subject": [{"body_form": {"field": "user", "on_unreadable": "missing"}, "on_missing": "deny"}]"#,
    );
    let both = policy(
        r#""subject": [{"body_form": {"field": "user", "on_unreadable": "missing"}},
            {"body_json": {"path": "user", "on_unreadable": "missing"}}]"#,
    );
    let (ann, json, unclear) = ("user=ann", r#"{"user": "bob"}"#, "deny ambiguous 0");
    let rows = [
        ("a charset", &form, "application/x-www-form-urlencoded; charset=UTF-8", ann, "{p|ann}"),
        ("in capitals", &form, "Application/X-WWW-Form-URLencoded", ann, unclear),
        ("a space behind it", &form, "application/x-www-form-urlencoded ; charset=UTF-8", ann, unclear),
        ("another charset", &form, "application/x-www-form-urlencoded; charset=utf-7", ann, unclear),
        ("two types", &form, "application/x-www-form-urlencoded, text/plain", ann, unclear),
        ("with parts", &form, "multipart/form-data; boundary=x", ann, unclear),
        ("any other type", &form, "text/plain", ann, unclear),
        ("JSON", &form, "application/json", json, unclear),
        ("as missing", &missing, "text/plain", ann, "deny absent 0"),
        ("an empty one of another type", &form, "text/plain", "", unclear),
        ("of both, a form", &both, FORM, ann, "{p|ann|%-}"),
        ("of both, JSON", &both, "application/json", json, "{p|%-|bob}"),
        ("of both, neither", &both, "multipart/form-data", json, "{p|%-|%-}"),
    ];
    each(rows.iter().map(|(name, config, content_type, body, wanted)| {
        (*name, with_form(config, content_type, body), (*wanted).to_owned())
    }));
}

#[test]
fn a_field_that_the_query_has_too() {
    let of = |part: &str| policy(&format!(r#""match": {{{part}}}, "subject": [{{{part}}}]"#));
    let [joined, apart] = ["unreadable", "ignored"]
        .map(|in_query| of(&format!(r#""body_form": {{"field": "user", "in_query": "{in_query}"}}"#)));
    let [json_joined, json_apart] = ["unreadable", "ignored"]
        .map(|in_query| of(&format!(r#""body_json": {{"path": "user.name", "in_query": "{in_query}"}}"#)));
    let unclear = "deny ambiguous 0";
    let rows = [
        ("another parameter", "?users=eve&b", "user=ann", "{p|ann}"),
        ("the same", "?user=ann", "user=ann", unclear),
        ("another value", "?a=b&user=eve", "user=ann", unclear),
        ("without a value", "?user", "user=ann", unclear),
        ("spelled otherwise", "?u%73er=eve", "user=ann", unclear),
        ("as PHP reads it", "?+user[]=eve", "user=ann", unclear),
        ("by a semicolon", "?a;user=eve", "user=ann", unclear),
        ("too many to be read", &format!("?{}", "a&".repeat(300)), "user=ann", unclear),
        ("only there", "?user=eve", "a=b", unclear),
        ("without a form", "?user=eve", "", "admit"),
    ];
    each(rows.iter().flat_map(|(name, query, body, wanted)| {
        let sample = request(&format!("POST /login{query}")).header("content-type", FORM).with_body(body);
        let (own, json) = match *body {
            "user=ann" => ("{p|ann}", r#"{"user": {"name": "ann"}}"#),
            "" => ("admit", ""),
            _ => ("admit", r#"{"a": "b"}"#),
        };
        let json = request(&format!("POST /login{query}")).with_body(json);
        [
            (format!("{name}, JSON, joined"), tag(&json_joined, &json), (*wanted).to_owned()),
            (format!("{name}, JSON, apart"), tag(&json_apart, &json), own.to_owned()),
            (format!("{name}, joined"), tag(&joined, &sample), (*wanted).to_owned()),
            (format!("{name}, apart"), tag(&apart, &sample), own.to_owned()),
        ]
    }));
}

#[test]
fn conditions() {
    let applies = policy(
        r#""match": {"body_form": {"field": "kind", "in": ["login", "reset"]}}, "subject": [{"literal": "x"}]"#,
    );
    let exempt = policy(
        r#""exempt": [{"body_form": {"field": "kind", "exact": "ping"}}], "subject": [{"literal": "x"}]"#,
    );
    let rows = [
        ("one of", &applies, "kind=reset", "{p|x}"),
        ("another", &applies, "kind=news", "admit"),
        ("none", &applies, "a=1", "admit"),
        ("in doubt a policy applies", &applies, "kind=news&kind=news", "{p|x}"),
        ("exempt", &exempt, "kind=ping", "admit"),
        ("in doubt nothing is exempt", &exempt, "kind=ping;", "{p|x}"),
    ];
    each(
        rows.iter()
            .map(|(name, config, body, wanted)| (*name, with_form(config, FORM, body), (*wanted).to_owned())),
    );
    // A request waits for a form that a policy reads, and for no other body.
    for (content_type, waits) in [(FORM, true), ("application/json", false), ("text/plain", false)] {
        let post: Sample =
            request("POST /login").header("content-type", content_type).header("content-length", "9");
        let evaluation = applies.evaluate(&post);
        assert_eq!(matches!(evaluation, Evaluation::AwaitBody(_)), waits, "{content_type}");
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use std::rc::Rc;

    use proptest::prelude::*;
    use weir::body::{Ambiguous, Fields, HtmlForm};

    use crate::tried::tried;

    /// Pieces that forms are made of, good ones and bad ones.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "user", "us%65r", "b", "=", "=", "&", "&", "+", "%", "%4", "%41", ";", "[", "%00", "a",
        ]);
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    fn field(form: &str, cuts: &[usize]) -> Option<Result<Option<String>, Ambiguous>> {
        let mut fields = Fields::new(&HtmlForm::Urlencoded, Rc::from([String::from("user")]));
        let mut from = 0;
        for &cut in cuts.iter().filter(|cut| **cut < form.len()) {
            if cut >= from {
                fields.feed(&form.as_bytes()[from..cut]);
                from = cut;
            }
        }
        fields.feed(&form.as_bytes()[from..]);
        fields.end();
        (!fields.is_unreadable()).then(|| fields.only("user").map(|text| text.map(str::to_owned)))
    }

    /// The value for a server that reads the first, or the last, field of the name: as the standard says, or with `;` as an end, too.
    fn by_server(form: &str, ends: &[char], last: bool) -> Option<String> {
        let plain = |text: &str| {
            let mut bytes = text.bytes().peekable();
            let mut out = Vec::new();
            while let Some(byte) = bytes.next() {
                let ahead: Vec<u8> = bytes.clone().take(2).collect();
                let code =
                    std::str::from_utf8(&ahead).ok().and_then(|code| u8::from_str_radix(code, 16).ok());
                match (byte, code) {
                    (b'+', _) => out.push(b' '),
                    (b'%', Some(code)) if ahead.len() == 2 => {
                        out.push(code);
                        bytes.nth(1);
                    }
                    _ => out.push(byte),
                }
            }
            String::from_utf8_lossy(&out).into_owned()
        };
        let pairs = form.split(ends).filter(|pair| !pair.is_empty());
        let mut values = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (plain(name) == "user").then(|| plain(value))
        });
        if last { values.next_back() } else { values.next() }
    }

    /// If weir has a value, every server has that value; if weir says that there is none, every server finds none. Cuts change nothing.
    #[test]
    fn what_weir_reads_every_server_reads() {
        proptest!(tried(2_000), |(form in pieces(), mut cuts in prop::collection::vec(0..40_usize, 0..5))| {
            cuts.sort_unstable();
            let read = field(&form, &cuts);
            prop_assert_eq!(&read, &field(&form, &[]));
            if let Some(Ok(value)) = read {
                for ends in [&['&'][..], &['&', ';']] {
                    for last in [false, true] {
                        prop_assert_eq!(by_server(&form, ends, last), value.clone());
                    }
                }
            }
        });
    }
}
