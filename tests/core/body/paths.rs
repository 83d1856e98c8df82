// SPDX-License-Identifier: Apache-2.0
//! The syntax of paths, and the refusal of a wrong one.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Form, MAX_DEPTH, MAX_PATH_LENGTH, MAX_PATHS, Paths};

use super::found;
use crate::table;

#[test]
fn how_paths_are_written() {
    let rows = [
        ("a", r#"{"a": 1}"#),
        ("a_B-9", r#"{"a_B-9": 1}"#),
        ("a1.b", r#"{"a1": {"b": 1}}"#),
        ("-", r#"{"-": 1}"#),
        ("名前", r#"{"名前": 1}"#),
        ("a[0]", r#"{"a": [1]}"#),
        ("a[0].b", r#"{"a": [{"b": 1}]}"#),
        ("a[0][1]", r#"{"a": [[0, 1]]}"#),
        ("a[10]", r#"{"a": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]}"#),
        ("[*]", "[1]"),
        ("[*][*].b", r#"[[{"b": 1}]]"#),
        ("['a']", r#"{"a": 1}"#),
        ("[\"a\"]", r#"{"a": 1}"#),
        ("a['b.c']", r#"{"a": {"b.c": 1}}"#),
        ("a['b'].c", r#"{"a": {"b": {"c": 1}}}"#),
        ("a['b'][0]", r#"{"a": {"b": [1]}}"#),
        ("['@type']", r#"{"@type": 1}"#),
        ("['*']", r#"{"*": 1}"#),
        ("['0']", r#"{"0": 1}"#),
        (r"['it\'s \\ \x']".replace(r"\x", "\\\"").leak(), r#"{"it's \\ \"": 1}"#),
        ("['it\"s']", r#"{"it\"s": 1}"#),
        ("[\"it's\"]", r#"{"it's": 1}"#),
        ("['']", r#"{"": 1}"#),
        ("['a]b']", r#"{"a]b": 1}"#),
    ];
    table::each(
        rows.into_iter()
            .map(|(path, body)| (path, found(Form::Json, &[path], body.as_bytes()), "ok: 1".into())),
    );
}

#[test]
fn what_is_no_path() {
    let rows = [
        ("", 0, "a key of"),
        (".", 0, "a key of"),
        (".a", 0, "a key of"),
        ("a.", 2, "a key of"),
        ("a..b", 2, "a key of"),
        ("$.a", 0, "a key of"),
        ("@type", 0, "a key of"),
        ("*", 0, "a key of"),
        ("a.*", 2, "a key of"),
        ("a b", 1, "the end"),
        ("a→b", 1, "the end"),
        ("a:b", 1, "the end"),
        ("a]", 1, "the end"),
        ("a.[0]", 1, "the end"),
        ("[0]a", 3, "the end"),
        ("['a']b", 5, "the end"),
        ("a.0", 2, "an index in brackets"),
        ("0", 0, "an index in brackets"),
        ("a[", 2, "`[0]`"),
        ("a[]", 2, "`[0]`"),
        ("a[b]", 2, "`[0]`"),
        ("a[-1]", 2, "`[0]`"),
        ("a[01]", 2, "`[0]`"),
        ("a[+1]", 2, "`[0]`"),
        ("a[4294967296]", 2, "`[0]`"),
        ("a[1", 3, "`]`"),
        ("a[1:2]", 3, "`]`"),
        ("a[**]", 3, "`]`"),
        ("a['b'", 5, "`]`"),
        ("a['b", 4, "the quote"),
        ("a['b\"]", 6, "the quote"),
        (r"a['\u0041']", 3, r"`\\`"),
        (r"a['\", 3, r"`\\`"),
    ];
    table::each(rows.into_iter().map(|(path, byte, allowed)| {
        let found = match Paths::new(&["fine", path]) {
            Ok(_) => "a path".to_owned(),
            Err((byte, found)) if found.starts_with(allowed) => byte.to_string(),
            Err(other) => format!("{other:?}"),
        };
        (path, found, byte.to_string())
    }));
}

#[test]
fn the_bounds_of_paths() {
    let error = |paths: &[&str]| Paths::new(paths).map(|paths| paths.count());
    assert_eq!(error(&[]), Ok(0));
    assert_eq!(error(&["a"; MAX_PATHS]), Ok(MAX_PATHS));
    assert_eq!(error(&["a"; MAX_PATHS + 1]), Err((0, "at most 20 paths")));
    let deepest = vec!["a"; MAX_DEPTH].join(".");
    assert_eq!(error(&[&deepest]), Ok(1));
    let deeper = format!("{deepest}[*]");
    assert_eq!(error(&[&deeper]), Err((63, "at most 32 segments")));
    let longest = "a".repeat(MAX_PATH_LENGTH);
    assert_eq!(error(&[&longest]), Ok(1));
    assert_eq!(error(&[&format!("{longest}a")]), Err((512, "at most 512 bytes")));
}
