// SPDX-License-Identifier: Apache-2.0
//! The ids of calls of JSON-RPC: of one call, or of a batch.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{IdScanner, Ids, MAX_ID_BYTES, MAX_IDS};

use crate::table::each;

/// The ids of a body that was read in pieces: of one call alone, of a batch in an array.
pub fn ids(body: &[u8], size: usize) -> String {
    let mut scanner = IdScanner::default();
    body.chunks(size).for_each(|chunk| scanner.feed(chunk));
    match scanner.ids() {
        None => String::from("-"),
        Some(Ids::One(id)) => id.into(),
        Some(Ids::Batch(ids)) => format!("[{}]", ids.lines().collect::<Vec<_>>().join(",")),
    }
}

#[test]
fn the_ids_of_calls_are_those_of_the_body() {
    let many = |count: usize| format!("[{}]", vec![r#"{"id":1}"#; count].join(","));
    let long = |length: usize| format!(r#"[{{"id":"{}"}}]"#, "x".repeat(length));
    let of_many = format!("[{}]", vec!["1"; MAX_IDS].join(","));
    let of_long = format!(r#"["{}"]"#, "x".repeat(MAX_ID_BYTES - 3));
    let (most, too_many) = (many(MAX_IDS), many(MAX_IDS + 1));
    let (longest, too_long) = (long(MAX_ID_BYTES - 3), long(MAX_ID_BYTES - 2));
    let longest_one = longest.trim_matches(['[', ']']);
    let rows: &[(&str, &str, &str)] = &[
        ("a number", r#"{"id": 7}"#, "7"),
        ("a number, as it is written", r#"{"id":-1.50e+1 , "a": 1}"#, "-1.50e+1"),
        ("a large number", r#" {"id": 123456789012345678901234567890}"#, "123456789012345678901234567890"),
        ("a string", r#"{"id": "a-é 1"}"#, r#""a-é 1""#),
        ("an empty string", r#"{"id": ""}"#, r#""""#),
        ("escapes stay", r#"{"id": "a\"}\\\u0001\n,"}"#, r#""a\"}\\\u0001\n,""#),
        ("after other members", r#"{"method": "id", "params": {"id": 1, "a": [{"id": 2}]}, "id": 3}"#, "3"),
        ("before them", r#"{"id": 3, "params": {"id": 1, "a": [{"id": 2}, "\"id\": 4"]}}"#, "3"),
        ("a key that is spelled otherwise", r#"{"\u0069d": 3}"#, "3"),
        ("and so all of it", r#"{"\u0069\u0064": 3}"#, "3"),
        ("another key", r#"{"ID": 1, "idd": 2, "i\"d": 3, "\\id": 4, "id ": 5}"#, "-"),
        ("the key is a value", r#"{"a": "id", "b": 1}"#, "-"),
        ("twice", r#"{"id": 1, "id": 1}"#, "-"),
        ("twice, spelled otherwise", r#"{"id": 1, "i\u0064": 2}"#, "-"),
        ("and once null", r#"{"id": null, "id": 2}"#, "-"),
        ("null", r#"{"id": null}"#, "-"),
        ("a word", r#"{"id": true}"#, "-"),
        ("an object", r#"{"id": {"id": 1}}"#, "-"),
        ("an array", r#"{"id": [1]}"#, "-"),
        ("a notification", r#"{"method": "a"}"#, "-"),
        ("an empty object", "{}", "-"),
        ("no object", r#""id""#, "-"),
        ("a number alone", "12", "-"),
        ("an empty body", "", "-"),
        ("a batch", r#"[{"id": 1}, {"id": "b"} ,{"method": "id", "id":3}]"#, r#"[1,"b",3]"#),
        ("a batch of one", r#"[{"id": 1}]"#, "[1]"),
        ("notifications are not answered", r#"[{"a": 1}, {"id": 2}, {}]"#, "[2]"),
        ("notifications alone", r#"[{"a": {"id": 1}}, {}]"#, "[]"),
        ("an id of null", r#"[{"id": null}, {"id": 2}]"#, "[null,2]"),
        (
            "what is no id",
            r#"[{"id": [1, {"id": 2}]}, {"id": false}, {"id": 1, "id": 2}]"#,
            "[null,null,null]",
        ),
        ("what is no call", r#"[1, "id", [{"id": 5}], null, [], {"id": 6}]"#, "[null,null,null,null,null,6]"),
        ("an empty batch", "[ ]", "-"),
        ("the id of one says nothing of the next", r#"[{"id": 1, "a": {"id": 2}}, {"b": 1}]"#, "[1]"),
        ("as many as there may be", &most, &of_many),
        ("more", &too_many, "-"),
        ("as long as they may be", &longest, &of_long),
        ("longer", &too_long, "-"),
        ("one that is long", longest_one, of_long.trim_matches(['[', ']'])),
    ];
    each(rows.iter().flat_map(|(name, body, wanted)| {
        let row =
            |size| (format!("{name}, in pieces of {size}"), ids(body.as_bytes(), size), (*wanted).to_owned());
        [1, 2, 3, 7, 100_000].map(row)
    }));
}
