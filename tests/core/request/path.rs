// SPDX-License-Identifier: Apache-2.0
//! The readings of a request's path.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::request::path::{DecodedPath, Path};

use crate::table::each;

/// The readings of the path: resolved, and literal where that differs.
#[rustfmt::skip]
const PATHS: &[(&str, &str, Option<&str>)] = &[
    ("", "/", Some("")),
    ("/", "/", None),
    ("*", "/*", Some("*")),
    ("/a/b/", "/a/b/", None),
    ("/a/.", "/a/", Some("/a/.")),
    ("/a/..", "/", Some("/a/..")),
    ("/..", "/", Some("/..")),
    ("/a/b/../..", "/", Some("/a/b/../..")),
    ("/a/b/../../../c", "/c", Some("/a/b/../../../c")),
    ("/...", "/...", None),
    ("/a//b", "/a/b", Some("/a//b")),
    ("/a;x=1/b;y", "/a/b", Some("/a;x=1/b;y")),
    ("/;/a", "/a", Some("/;/a")),
    ("/%2e%2e/a", "/a", Some("/../a")),
    ("/a%00b", "/a\0b", None),
    ("/%", "/%", None),
    ("/%4", "/%4", None),
    ("/%%34%31", "/%41", None),
    ("/a+b", "/a+b", None),
    ("/a+%62", "/a+b", None),
    ("\\a\\..\\b", "/b", Some("\\a\\..\\b")),
];

#[test]
fn paths() {
    each(PATHS.iter().map(|(raw, resolved, literal)| {
        let decoded = DecodedPath::new(raw.as_bytes());
        let path = Path::new(raw.as_bytes(), decoded.as_ref());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found = (text(path.resolved()), path.literal().map(text));
        (format!("{raw:?}"), format!("{found:?}"), format!("{:?}", (resolved, literal)))
    }));
}

/// A path with `..` may be any if two things that upstreams do or do not do decide where it leads.
#[rustfmt::skip]
const MAY_BE_ANY: &[(&str, bool, &str)] = &[
    ("/a/../b", false, "dots alone"),
    ("/a/../", false, "the slash at the end is no empty segment"),
    ("/a/%2e%2e/b", false, "escaped dots alone"),
    ("/a/..;x/b", false, "a parameter alone"),
    ("/a/..%3bx/b", false, "an escaped parameter alone"),
    ("/a%2f../b", false, "an escaped slash alone"),
    ("/a\\../b", false, "a backslash alone; before it the dots are part of a name"),
    ("/a%5c../b", false, "an escaped backslash alone"),
    ("/a%5c../../b", true, "an escaped backslash, and dots"),
    ("/a\\../../b", true, "a backslash, and dots"),
    ("/a//../b", true, "an empty segment, and dots"),
    ("/a//..;x/b", true, "an empty segment, and a parameter after the dots"),
    ("/a/..;x/%2e%2e/b", true, "a parameter, and escaped dots"),
    ("/a/..%3bx/..;y/b", true, "a parameter, and an escaped one"),
    ("/%u0061", true, "a wide escape"),
    ("/login%0a", true, "a line's end, before which `$` of Python and PCRE stands"),
    ("/lo%0agin", false, "a line's end within"),
    ("/a//b;x/%2e", false, "no dots that climb"),
];

#[test]
fn paths_that_may_be_any() {
    each(MAY_BE_ANY.iter().map(|(raw, wanted, name)| {
        let found = DecodedPath::new(raw.as_bytes()).is_some_and(|path| path.may_be_any());
        (format!("{name}: {raw}"), format!("{found}"), format!("{wanted}"))
    }));
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;
    use weir::request::path::{DecodedPath, Path};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Paths with nothing to decode or resolve have a way of their own, which is no other reading.
        #[test]
        fn a_path_reads_the_same_where_one_of_its_letters_is_escaped(raw in "/[/.ab]{0,24}") {
            let decoded = DecodedPath::new(raw.as_bytes());
            let plain = Path::new(raw.as_bytes(), decoded.as_ref());
            for escaped in [raw.replacen('a', "%61", 1), raw.replacen('/', "%2f", 1)] {
                let decoded = DecodedPath::new(escaped.as_bytes());
                let path = Path::new(escaped.as_bytes(), decoded.as_ref());
                prop_assert_eq!(path, plain, "{} and {}", raw, escaped);
            }
        }

        #[test]
        fn a_resolved_path_has_nothing_left_to_resolve(raw in "[/.;\\\\%2eEfF5cCab]{0,24}") {
            let decoded = DecodedPath::new(raw.as_bytes());
            let path = Path::new(raw.as_bytes(), decoded.as_ref());
            let resolved = String::from_utf8_lossy(path.resolved());
            prop_assert!(resolved.starts_with('/'));
            prop_assert!(!resolved.contains("//") && !resolved.contains('\\') && !resolved.contains(';'));
            prop_assert!(resolved.split('/').all(|segment| segment != "." && segment != ".."));
        }
    }
}
