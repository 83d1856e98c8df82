// SPDX-License-Identifier: Apache-2.0
//! Named JSON documents, in the manner of JSONTestSuite (<https://github.com/nst/JSONTestSuite>): which are JSON, and what is
//! found in them.

use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Form, MAX_NESTING, MAX_TEXT, MAX_TEXTS, Paths, Scanner, Unreadable};

use super::found;
use crate::table;

#[test]
fn what_is_json() {
    let valid: &[(&str, &[u8])] = &[
        ("an empty object", b"{}"),
        ("an empty array", b"[]"),
        ("a number alone", b"42"),
        ("a zero alone", b"0"),
        ("a negative zero", b"-0"),
        ("a string alone", br#""a""#),
        ("an empty string", br#""""#),
        ("a word alone", b"null"),
        ("white space everywhere", b" \t\r\n[ 1 ,\n2 , { } , [ ] , { \"a\" : true } ] \r\n"),
        ("all numbers", b"[0, -1, 1.5, 0.0, 1e3, 1E+2, 1e-7, 0e0, -0.1E01, 20e1]"),
        ("a huge exponent", b"[1e999999999999999999999999]"),
        ("all escapes", br#"["\"\\\/\b\f\n\r\t\u0041\uabCD"]"#),
        ("an escaped NUL", br#"["\u0000"]"#),
        ("a pair of surrogates", br#"["\ud83d\ude00"]"#),
        ("the greatest pair", br#"["\udbff\udfff"]"#),
        ("UTF-8 of all lengths", "[\"\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}\"]".as_bytes()),
        ("characters around the surrogates", "[\"\u{d7ff}\u{e000}\"]".as_bytes()),
        ("a key twice", br#"{"a": 1, "a": 2}"#),
        ("an empty key", br#"{"": 1}"#),
        ("brackets in a string", br#"["]}{[,:"]"#),
        ("DEL in a string", b"[\"\x7f\"]"),
    ];
    let invalid: &[(&str, &[u8])] = &[
        ("nothing", b""),
        ("white space alone", b" \n"),
        ("an array that is cut off", b"[1"),
        ("an object that is cut off", br#"{"a": 1"#),
        ("an object cut off after a comma", br#"{"a": 1,"#),
        ("a key alone", br#"{"a""#),
        ("a string that is cut off", br#"["a"#),
        ("a string cut off in an escape", br#""\u00"#),
        ("a word that is cut off", b"tru"),
        ("a word that is too long", b"truee"),
        ("a word in capitals", b"[True]"),
        ("a minus alone", b"-"),
        ("two minuses", b"[--1]"),
        ("a plus", b"[+1]"),
        ("a leading zero", b"[01]"),
        ("a leading zero after a minus", b"[-012]"),
        ("no digit before the point", b"[.5]"),
        ("no digit after a minus before the point", b"[-.5]"),
        ("no digit after the point", b"[5.]"),
        ("no digit between point and exponent", b"[5.e3]"),
        ("two points", b"[1.2.3]"),
        ("an exponent without digits", b"[1e]"),
        ("an exponent with a sign alone", b"[1e+]"),
        ("an exponent with a point", b"[1e1.5]"),
        ("two exponents", b"[1e2e3]"),
        ("a number that is cut off", b"1."),
        ("a space in a number", b"[1 2]"),
        ("hexadecimal", b"[0x1]"),
        ("NaN", b"[NaN]"),
        ("Infinity", b"[Infinity]"),
        ("minus Infinity", b"[-Infinity]"),
        ("full-width digits", "[１]".as_bytes()),
        ("a trailing comma in an array", b"[1,]"),
        ("a trailing comma in an object", br#"{"a": 1,}"#),
        ("a leading comma", b"[,1]"),
        ("two commas", b"[1,,2]"),
        ("a comma alone", b"[,]"),
        ("no comma", br#"[1 true]"#),
        ("no comma in an object", br#"{"a": 1 "b": 2}"#),
        ("no colon", br#"{"a" 1}"#),
        ("two colons", br#"{"a":: 1}"#),
        ("a comma for a colon", br#"{"a", 1}"#),
        ("a colon in an array", br#"["a": 1]"#),
        ("no value", br#"{"a": }"#),
        ("a number as key", b"{1: 1}"),
        ("a word as key", b"{null: 1}"),
        ("a key without quotes", b"{a: 1}"),
        ("quotes of the wrong kind", b"{'a': 1}"),
        ("an array closed as an object", b"[1}"),
        ("an object closed as an array", br#"{"a": 1]"#),
        ("an empty object closed as an array", b"{]"),
        ("an empty array closed as an object", b"[}"),
        ("a closing bracket alone", b"]"),
        ("one bracket too many", b"[]]"),
        ("two documents", b"{} {}"),
        ("two numbers", b"1 2"),
        ("trailing garbage", b"{}#"),
        ("a trailing comma", b"{},"),
        ("a comment", b"[1] // one"),
        ("a comment of several lines", b"/* one */ [1]"),
        ("NUL after the document", b"{}\0"),
        ("NUL for white space", b"[\x001]"),
        ("NUL in a string", b"[\"a\0b\"]"),
        ("form feed for white space", b"[\x0c1]"),
        ("a non-breaking space", "[\u{a0}1]".as_bytes()),
        ("a byte order mark", b"\xef\xbb\xbf{}"),
        ("UTF-16", b"[\0\"\0\xe9\0\"\0]\0"),
        ("a line feed in a string", b"[\"a\nb\"]"),
        ("a tab in a string", b"[\"a\tb\"]"),
        ("the last control character in a string", b"[\"0123456789\x1f\"]"),
        ("an unknown escape", br#"["\a"]"#),
        ("an escape of hexadecimal digits", br#"["\x41"]"#),
        ("an escape in capitals", br#"["\U0041"]"#),
        ("an escaped line feed", b"[\"\\\n\"]"),
        ("no hexadecimal digit", br#"["\u00g0"]"#),
        ("three hexadecimal digits", br#"["\u041"]"#),
        ("a sign in an escape", br#"["\u+041"]"#),
        ("a first surrogate alone", br#"["\ud83d"]"#),
        ("a first surrogate before a letter", br#"["\ud83dx"]"#),
        ("a first surrogate before a second one without its backslash", br#"["\ud83dxude00"]"#),
        ("a first surrogate before a second one without its u", br#"["\ud83d\xde00"]"#),
        ("a first surrogate before another escape", br#"["\ud83d\n"]"#),
        ("two first surrogates", br#"["\ud83d\ud83d"]"#),
        ("a second surrogate alone", br#"["\ude00"]"#),
        ("a surrogate in a key", br#"{"\ud83d": 1}"#),
        ("a surrogate in UTF-8", b"[\"\xed\xa0\x80\"]"),
        ("a continuation byte alone", b"[\"\x80\"]"),
        ("a character that is cut off", b"[\"\xe2\x82\"]"),
        ("a character that is cut off at the end", b"[\"\xe2\x82"),
        ("a character cut off by a letter", b"[\"\xe2\x82a\"]"),
        ("two bytes for ASCII", b"[\"\xc0\xaf\"]"),
        ("three bytes for two", b"[\"\xe0\x80\xaf\"]"),
        ("four bytes for three", b"[\"\xf0\x80\x80\xaf\"]"),
        ("beyond Unicode", b"[\"\xf4\x90\x80\x80\"]"),
        ("beyond UTF-8", b"[\"\xf5\x80\x80\x80\"]"),
        ("a byte that is never UTF-8", b"[\"aaaaaaaaaaaaaaaa\xff\"]"),
        ("Latin-1", b"[\"caf\xe9\"]"),
        ("not UTF-8 outside a string", b"[\xe9]"),
    ];
    let rows = valid.iter().map(|row| (row, "ok:")).chain(invalid.iter().map(|row| (row, "not JSON:")));
    // Once where nothing is wanted, once where each value is.
    table::each(rows.flat_map(|((name, body), wanted)| {
        let found = |paths| found(Form::Json, paths, body).split_inclusive(':').next().unwrap().to_owned();
        [(*name, found(&[]), wanted.into()), (*name, found(&["a", "[*]", "['']"]), wanted.to_owned())]
    }));
}

#[test]
fn what_is_found() {
    let long = |length: usize| format!("{{\"a\": \"{}\"}}", "x".repeat(length));
    #[rustfmt::skip]
    let rows = [
        ("a member", &["a"][..], r#"{"a": 5}"#.to_owned(), "ok: 5".to_owned()),
        ("several", &["a", "b", "c", "d", "e"], r#"{"a": "x", "b": true, "c": false, "d": [1], "e": {}}"#.into(), r#"ok: "x" true false nested nested"#.into()),
        ("null is no value", &["a"], r#"{"a": null}"#.into(), "ok: -".into()),
        ("null in place of an object", &["a.b"], r#"{"a": null}"#.into(), "ok: -".into()),
        ("another key", &["a"], r#"{"b": 5, "aa": 6, "": 7, "A": 8}"#.into(), "ok: -".into()),
        ("a key inside another", &["a"], r#"{"b": {"a": 5}}"#.into(), "ok: -".into()),
        ("a key after an object with the same", &["a"], r#"{"b": {"a": 5}, "a": 6}"#.into(), "ok: 6".into()),
        ("a longer way", &["a.b.c"], r#"{"a": {"x": {"c": 1}, "b": {"x": 2, "c": 3}}}"#.into(), "ok: 3".into()),
        ("a way and a part of it", &["a", "a.b"], r#"{"a": {"b": 1}}"#.into(), "ok: nested 1".into()),
        ("the same path twice", &["a", "a"], r#"{"a": "x"}"#.into(), r#"ok: "x" "x""#.into()),
        ("an index", &["[1]", "[0]", "[3]"], "[5, 6, 7]".into(), "ok: 6 5 -".into()),
        ("an index below an index", &["[1][0]"], "[[1], [2, 3], [4]]".into(), "ok: 2".into()),
        ("an index is no key", &["a[0]"], r#"{"a": {"0": 5}}"#.into(), "ok: -".into()),
        ("a key is no index", &["a['0']"], r#"{"a": [5]}"#.into(), "ok: -".into()),
        ("a key of digits", &["a['0']"], r#"{"a": {"0": 5}}"#.into(), "ok: 5".into()),
        ("all items", &["items[*].n", "items[0].n"], r#"{"items": [{"n": 1}, {}, {"n": 3}]}"#.into(), "ok: ?3 1".into()),
        ("one of all items", &["[*].n"], r#"[{}, {"n": 3}, {"n": null}]"#.into(), "ok: 3".into()),
        ("an item after nested ones", &["[2]"], "[[9, 9, 9], {\"a\": [9]}, 5]".into(), "ok: 5".into()),
        ("an escaped key", &["user"], r#"{"us\u0065r": "x"}"#.into(), r#"ok: "x""#.into()),
        ("a key with a dot", &["['a.b']", "a.b"], r#"{"a.b": 1}"#.into(), "ok: 1 -".into()),
        ("a key beyond ASCII", &["größe"], "{\"größe\": 1}".into(), "ok: 1".into()),
        ("a key beyond ASCII, escaped", &["größe"], r#"{"gr\u00f6\u00dfe": 1}"#.into(), "ok: 1".into()),
        ("a key beyond the BMP, escaped", &["['😀']"], r#"{"\ud83d\ude00": 1}"#.into(), "ok: 1".into()),
        ("an empty key", &["['']"], r#"{"": 1}"#.into(), "ok: 1".into()),
        ("escapes in a text", &["a"], r#"{"a": "\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00é"}"#.into(), r#"ok: "\"\\/\u{8}\u{c}\n\r\tAé😀é""#.into()),
        ("an empty text", &["a", "b"], r#"{"a": "", "b": ""}"#.into(), r#"ok: "" """#.into()),
        ("the longest text", &["a"], long(MAX_TEXT), format!("ok: \"{}\"", "x".repeat(MAX_TEXT))),
        ("a text that is too long", &["a"], long(MAX_TEXT + 1), "ok: too-long".into()),
        ("a value after a text that is too long", &["a", "b"], format!("{{\"a\": \"{}\", \"b\": \"y\"}}", "x".repeat(5000)), r#"ok: too-long "y""#.into()),
        ("a key twice", &["a"], r#"{"a": 1, "a": 2}"#.into(), "ok: ?2".into()),
        ("a key twice, with the same value", &["a"], r#"{"a": 1, "a": 1}"#.into(), "ok: ?1".into()),
        ("a key twice, once escaped", &["user"], r#"{"user": "a", "us\u0065r": "b"}"#.into(), r#"ok: ?"b""#.into()),
        ("a key twice, once null", &["a"], r#"{"a": 1, "a": null}"#.into(), "ok: ?1".into()),
        ("a key twice, first null", &["a"], r#"{"a": null, "a": 1}"#.into(), "ok: ?1".into()),
        ("a key twice, both null", &["a"], r#"{"a": null, "a": null}"#.into(), "ok: ?-".into()),
        ("a key twice on the way", &["a.b"], r#"{"a": {"b": 1}, "a": {}}"#.into(), "ok: ?1".into()),
        ("a key twice on the way, first a number", &["a.b"], r#"{"a": 1, "a": {"b": 2}}"#.into(), "ok: ?2".into()),
        ("a key twice aside of the way", &["a.b"], r#"{"a": {"b": 1, "c": 2, "c": 3}, "x": 1, "x": 2}"#.into(), "ok: 1".into()),
        ("a key twice in another object", &["a.b"], r#"{"a": {"b": 1, "c": {"b": 1}}, "b": 1}"#.into(), "ok: 1".into()),
        ("a key twice for one of two paths", &["a.b", "a.c"], r#"{"a": {"b": 1, "b": 2, "c": 3}}"#.into(), "ok: ?2 3".into()),
        ("a key twice in an item", &["[*].n", "[0].n", "[1].n"], r#"[{"n": 1, "n": 2}, {"n": 3}]"#.into(), "ok: ?3 ?2 3".into()),
        ("what was seen before an error", &["a", "b"], r#"{"a": 1, "b": 2 "c""#.into(), "not JSON: 1 2".into()),
        ("what was seen before the end", &["a", "b"], r#"{"a": 1, "b": 2"#.into(), "not JSON: 1 -".into()),
        ("nothing after an error", &["a", "b"], r#"{"a": 1,, "b": 2}"#.into(), "not JSON: 1 -".into()),
        ("half a text is none", &["a"], r#"{"a": "x"#.into(), "not JSON: -".into()),
        ("a number at the root", &["a", "[0]"], "5".into(), "ok: - -".into()),
    ];
    table::each(
        rows.into_iter()
            .map(|(name, paths, body, wanted)| (name, found(Form::Json, paths, body.as_bytes()), wanted)),
    );
}

/// Strings share a limited number of bytes, and a string that was replaced frees its bytes.
#[test]
fn texts_share_their_room() {
    let text = |byte: &str| byte.repeat(MAX_TEXT);
    let object = |members: &[(&str, &str)]| {
        let members: Vec<_> = members.iter().map(|(key, text)| format!("{key:?}: {text:?}")).collect();
        format!("{{{}}}\n", members.join(", "))
    };
    let (a, b, c) = (text("a"), text("b"), text("c"));
    assert_eq!(MAX_TEXTS, 3 * MAX_TEXT);
    let full = object(&[("a", &a), ("b", &b), ("c", &c)]);
    #[rustfmt::skip]
    let rows = [
        ("as many as fit", full.clone(), format!("ok: {a:?} {b:?} {c:?} -")),
        ("one more", [full.clone(), object(&[("d", "x")])].concat(), format!("ok: {a:?} {b:?} {c:?} too-long")),
        ("one more, empty", [full.clone(), object(&[("d", "")])].concat(), format!("ok: {a:?} {b:?} {c:?} \"\"")),
        ("the first is replaced by a word", [full.clone(), "{\"a\": true, \"d\": \"dd\"}\n".into(), object(&[("a", "new")])].concat(),
         format!("ok: \"new\" {b:?} {c:?} \"dd\"")),
        ("two in the middle are replaced",
         [object(&[("a", "1"), ("b", &b), ("c", &c), ("d", "")]), "{\"b\": true, \"c\": \"short\"}\n".into(), object(&[("b", &a), ("c", &b)])].concat(),
         format!("ok: \"1\" {a:?} {b:?} \"\"")),
        ("one is replaced again and again", (0..5000).map(|round| object(&[("a", &format!("{round}")), ("b", "kept")])).collect(),
         "ok: \"4999\" \"kept\" - -".into()),
        ("one is cut off again and again", (0..50).map(|_| format!("{{\"a\": \"{a}\n")).chain([object(&[("a", &b)])]).collect(), format!("ok: {b:?} - - -")),
    ];
    table::each(rows.into_iter().map(|(name, lines, wanted)| {
        (name, found(Form::JsonLines, &["a", "b", "c", "d"], lines.as_bytes()), wanted)
    }));
}

#[test]
fn how_deep_a_document_may_nest() {
    let nested =
        |depth: usize, open: &str, close: &str| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let (objects, closed) = (r#"{"a":"#, "}");
    let path = vec!["a"; 32].join(".");
    #[rustfmt::skip]
    let rows = [
        ("as deep as a path", nested(32, objects, closed), "ok: 1"),
        ("one deeper", nested(33, objects, closed), "ok: nested"),
        ("as deep as allowed", nested(MAX_NESTING, objects, closed), "ok: nested"),
        ("as deep as allowed, of both", nested(MAX_NESTING / 2, r#"[{"a":"#, "}]"), "ok: -"),
        ("too deep", nested(MAX_NESTING + 1, objects, closed), "too deep: nested"),
        ("too deep, arrays", nested(MAX_NESTING + 1, "[", "]"), "too deep: -"),
        ("the wrong bracket, deep inside", nested(500, "[", "]").replacen("]]]", "]}]", 1), "not JSON: -"),
        ("the wrong bracket, deep inside objects", nested(500, objects, closed).replacen("}}}", "}]}", 1), "not JSON: nested"),
        ("one bracket less", format!("{}1{}", "[".repeat(500), "]".repeat(499)), "not JSON: -"),
        ("a value after what is deep", format!(r#"{{"b": {}, {}"#, nested(900, "[", "]"), &nested(32, objects, closed)[1..]), "ok: 1"),
    ];
    table::each(
        rows.into_iter().map(|(name, body, wanted)| {
            (name, found(Form::Json, &[&path], body.as_bytes()), wanted.to_owned())
        }),
    );
}

#[test]
fn json_lines() {
    let rows = [
        ("no line", "", "ok: - -"),
        ("one line", "{\"a\": 1}\n", "ok: 1 -"),
        ("without the last line feed", "{\"a\": 1}\n{\"b\": 2}", "ok: 1 2"),
        ("CRLF and empty lines", "\r\n{\"a\": 1}\r\n\r\n \n{\"a\": 3}\r\n", "ok: 3 -"),
        ("two documents in a line", "{\"a\": 1} {\"a\": 2}\n{\"b\": 3}\n", "ok: 1 3"),
        ("a document in two lines", "{\"a\": 1,\n\"b\": 2}\n{\"b\": 3}\n", "ok: 1 3"),
        ("the last line is cut off", "{\"a\": 1}\n{\"b\": 2", "ok: 1 -"),
        ("CR within a document is white space", "{\"a\":\r1}\n", "ok: 1 -"),
        ("CR within a string", "{\"a\": \"\r\"}\n{\"b\": 1}\n", "ok: - 1"),
        ("a number per line", "1\n2\n", "ok: - -"),
    ];
    table::each(rows.into_iter().map(|(name, body, wanted)| {
        (name, found(Form::JsonLines, &["a", "b"], body.as_bytes()), wanted.to_owned())
    }));
}

#[test]
fn when_an_error_is_known() {
    let paths = Rc::new(Paths::new(&[]).unwrap());
    let rows = [
        ("JSON", Form::Json, "{\"a\": 1}", None),
        ("JSON that is cut off", Form::Json, "{\"a\": 1", None),
        ("no JSON", Form::Json, "{,", Some(Unreadable::NotJson)),
        ("too deep", Form::Json, &"[".repeat(MAX_NESTING + 1), Some(Unreadable::TooDeep)),
        ("a line: others may follow", Form::JsonLines, "{,\n", None),
        ("an event: others may follow", Form::EventStream, "data: {,\n\n", None),
        ("lengths of no message", Form::Frames, "data: {,\n\n", Some(Unreadable::NotFrames)),
        ("the beginning of a message", Form::Frames, "\0\0\0\x20\0\0\0\0", None),
    ];
    table::each(rows.into_iter().map(|(name, form, body, wanted)| {
        let mut scanner = Scanner::new(form, Rc::clone(&paths));
        scanner.feed(body.as_bytes());
        let found = scanner.error();
        scanner.feed(b"   ");
        (name, format!("{:?}", (found, scanner.error())), format!("{:?}", (wanted, wanted)))
    }));
}
