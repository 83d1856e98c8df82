// SPDX-License-Identifier: Apache-2.0
//! Weighted sums: the first path with a number counts, and the sum is rounded up and bounded.

use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Form, MAX_SUM, MAX_TERMS, Paths, Sum, Weight};

use super::read;
use crate::table;

#[test]
fn weights() {
    let rows = [
        ("0", true),
        ("1", true),
        ("0.25", true),
        ("0.000001", true),
        ("1.000000", true),
        ("1000000", true),
        ("007", true),
        ("1000000.000001", false),
        ("1000001", false),
        ("99999999999999999999999", false),
        ("0.0000001", false),
        ("0.0000000", false),
        ("", false),
        (".5", false),
        ("5.", false),
        ("-1", false),
        ("+1", false),
        ("1.+5", false),
        ("1e3", false),
        ("1.2.3", false),
        (" 1", false),
        ("1/4", false),
    ];
    table::each(rows.into_iter().map(|(text, allowed)| {
        (format!("{text:?}"), Weight::parse(text).is_some().to_string(), allowed.to_string())
    }));
    assert_eq!(Weight::parse("half"), None);
    assert_eq!(Weight::parse("0.5"), Weight::parse("0.500"));
    assert_ne!(Weight::parse("0.5"), Weight::parse("0.05"));
}

/// The terms of a sum: the weight and the paths of each. Path 0 is `a`, path 1 is `b`, and so on.
type Terms<'a> = &'a [(&'a str, &'a [usize])];

fn sum(terms: Terms<'_>) -> Sum {
    Sum::new(terms.iter().map(|(weight, paths)| (Weight::parse(weight).unwrap(), paths.to_vec())).collect())
        .unwrap()
}

#[test]
fn sums() {
    let most = MAX_SUM.to_string();
    let all: Vec<_> = (0..MAX_TERMS).map(|_| ("1000000", &[0][..])).collect();
    #[rustfmt::skip]
    let rows: &[(&str, Terms<'_>, &str, &str)] = &[
        ("no term", &[], r#"{"a": 1}"#, "-"),
        ("no number", &[("1", &[0])], r#"{"b": 1}"#, "-"),
        ("a text is no number", &[("1", &[0])], r#"{"a": "1"}"#, "-"),
        ("one term", &[("1", &[0])], r#"{"a": 7}"#, "7"),
        ("zero", &[("1", &[0])], r#"{"a": 0}"#, "0"),
        ("a weight of zero", &[("0", &[0])], r#"{"a": 5}"#, "0"),
        ("two terms", &[("1", &[0]), ("4", &[1])], r#"{"a": 7, "b": 2}"#, "15"),
        ("one of two terms", &[("1", &[0]), ("4", &[1])], r#"{"b": 2}"#, "8"),
        ("rounded up", &[("0.25", &[0])], r#"{"a": 5}"#, "2"),
        ("not rounded", &[("0.25", &[0])], r#"{"a": 8}"#, "2"),
        ("rounded after the sum", &[("0.25", &[0]), ("0.75", &[1])], r#"{"a": 1, "b": 1}"#, "1"),
        ("the least", &[("0.000001", &[0])], r#"{"a": 0.000001}"#, "1"),
        ("a little over a unit", &[("0.5", &[0])], r#"{"a": 2.000001}"#, "2"),
        ("the first path", &[("1", &[0, 1])], r#"{"b": 9, "a": 7}"#, "7"),
        ("the second path", &[("1", &[0, 1])], r#"{"b": 9, "a": null}"#, "9"),
        ("the second path, for a text", &[("1", &[0, 1])], r#"{"a": "x", "b": 9}"#, "9"),
        ("a path that does not exist", &[("1", &[9, 0])], r#"{"a": 7}"#, "7"),
        ("the greatest", &[("1", &[0])], r#"{"a": 1e12}"#, &most),
        ("beyond the greatest", &[("1000000", &[0])], r#"{"a": 1e300}"#, &most),
        ("all terms beyond the greatest", &all, r#"{"a": 1e300}"#, &most),
        ("just below the greatest", &[("1", &[0])], r#"{"a": 999999999998.5}"#, "999999999999"),
        ("a key twice", &[("1", &[0])], r#"{"a": 1, "a": 5}"#, "5"),
        ("a key twice that does not count", &[("1", &[0, 1])], r#"{"a": 1, "b": 1, "b": 2}"#, "1"),
        ("a key twice that would count before", &[("1", &[0, 1])], r#"{"a": "x", "a": "y", "b": 1}"#, "1"),
        ("a text after the number", &[("1", &[0])], r#"{"a": 6, "a": "x"}"#, "6"),
        ("an object after the number", &[("1", &[0])], r#"{"a": 6, "a": {"a": 9}}"#, "6"),
        ("true after the number, and one more", &[("1", &[0])], r#"{"a": 6, "a": true, "a": 7}"#, "7"),
        ("null after the number", &[("1", &[0])], r#"{"a": 6, "a": null}"#, "6"),
        ("below zero", &[("1", &[0])], r#"{"a": -5}"#, "-"),
        ("below zero after the number", &[("1", &[0])], r#"{"a": 6, "a": -5}"#, "6"),
        ("below zero before another path", &[("1", &[0, 1])], r#"{"a": -5, "b": 9}"#, "9"),
        ("zero below zero", &[("1", &[0])], r#"{"a": -0.0}"#, "0"),
        ("a zero before the number", &[("1", &[0])], r#"{"a": 012}"#, "-"),
        ("an underscore in the number", &[("1", &[0])], r#"{"a": 1_000}"#, "-"),
        ("a word after the number", &[("1", &[0])], r#"{"a": 10px}"#, "-"),
        ("hexadecimal", &[("1", &[0])], r#"{"a": 0x10}"#, "-"),
        ("two points", &[("1", &[0])], r#"{"a": 1.5.3}"#, "-"),
        ("no number after one", &[("1", &[0])], r#"{"a": 6, "a": 012}"#, "6"),
        ("garbage after the document", &[("1", &[0])], r#"{"a": 6} {"a": 900}"#, "6"),
        ("garbage within the document", &[("1", &[0])], r#"{"a": 6 ! "a": 900}"#, "6"),
        // Each number is rounded up to a millionth before it is weighed: less than one unit more for each term.
        ("rounded before the weight", &[("1000000", &[0]), ("1000000", &[1])], r#"{"a": 1e-9, "b": 1e-9}"#, "2"),
    ];
    let paths = Rc::new(Paths::new(&["a", "b"]).unwrap());
    table::each(rows.iter().map(|(name, terms, body, last)| {
        let (scanner, _) = read(Form::Json, &paths, [body.as_bytes()]);
        let found = sum(terms).last(&scanner).map_or("-".to_owned(), |sum| sum.to_string());
        (*name, found, (*last).to_owned())
    }));
    let term = || (Weight::parse("1").unwrap(), vec![0]);
    let of = |count: usize| Sum::new((0..count).map(|_| term()).collect());
    assert!(of(MAX_TERMS).is_some() && of(MAX_TERMS + 1).is_none());
}
