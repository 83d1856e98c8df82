// SPDX-License-Identifier: Apache-2.0
//! Credentials as subjects: where a request has one, and that one credential is one subject, however it is spelled.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::policy::key::{LONGEST_HIDDEN, Tag, ValueHasher};

use super::{LIMITS, config, policy, tag};
use crate::table::each;
use crate::written::request;

const DEFAULT: &str = r#"{"credential": {}}"#;
const FIRST: &str = r#"{"credential": {}, "on_multiple": "first"}"#;
const LAST: &str = r#"{"credential": {}, "on_multiple": "last"}"#;
const OWN: &str =
    r#"{"credential": {"headers": ["x-token", "proxy-authorization"], "query": ["access_token", "t"]}}"#;
const NO_HEADERS: &str = r#"{"credential": {"headers": []}}"#;
const NO_QUERY: &str = r#"{"credential": {"query": []}}"#;
const LITERAL: &str = r#"{"credential": {"semicolon": "literal"}}"#;

/// Parts, requests, and the credential whose hash is the subject; or the decision without asking.
#[rustfmt::skip]
const CREDENTIALS: &[(&str, &str, &str, Result<&str, &str>)] = &[
    ("bearer", DEFAULT, "GET /\nauthorization: Bearer K1", Ok("K1")),
    ("bearer in lower case", DEFAULT, "GET /\nauthorization: bearer K1", Ok("K1")),
    ("bearer in capitals", DEFAULT, "GET /\nauthorization: BEARER K1", Ok("K1")),
    ("several spaces", DEFAULT, "GET /\nauthorization: Bearer   K1", Ok("K1")),
    ("a tab", DEFAULT, "GET /\nauthorization: Bearer\tK1", Ok("K1")),
    ("another scheme", DEFAULT, "GET /\nauthorization: token K1", Ok("K1")),
    ("no scheme", DEFAULT, "GET /\nauthorization: K1", Ok("K1")),
    ("a scheme alone", DEFAULT, "GET /\nauthorization: Bearer", Ok("Bearer")),
    ("the token's case matters", DEFAULT, "GET /\nauthorization: Bearer k1", Ok("k1")),
    ("a token with marks", DEFAULT, "GET /\nauthorization: Bearer x1|a:b.c-_~+/==", Ok("x1|a:b.c-_~+/==")),
    ("a number before it, of Laravel", DEFAULT, "GET /\nauthorization: Bearer 1|K1", Ok("K1")),
    ("another number before it", DEFAULT, "GET /\nauthorization: Bearer 01|K|1", Ok("K|1")),
    ("a number before a key", DEFAULT, "GET /\nx-api-key: 1|K1", Ok("1|K1")),
    ("its name before it, of Rails", DEFAULT, "GET /\nauthorization: Token token=K1", Ok("K1")),
    ("another name before it", DEFAULT, "GET /\nauthorization: Bearer tokens=K1", Ok("tokens=K1")),
    ("x-api-key", DEFAULT, "GET /\nx-api-key: K1", Ok("K1")),
    ("api-key", DEFAULT, "GET /\napi-key: K1", Ok("K1")),
    ("x-goog-api-key", DEFAULT, "GET /\nx-goog-api-key: K1", Ok("K1")),
    ("in the query", DEFAULT, "GET /?alt=sse&key=K1", Ok("K1")),
    ("in the query, escaped", DEFAULT, "GET /?%6bey=%4b1", Ok("K1")),
    ("nowhere", DEFAULT, "GET /", Err("{p|%-}")),
    ("nowhere, skip", r#"{"credential": {}, "on_missing": "skip"}"#, "GET /", Err("admit")),
    ("nowhere, deny", r#"{"credential": {}, "on_missing": "deny"}"#, "GET /", Err("deny absent 0")),
    ("empty everywhere", DEFAULT, "GET /?key=\nauthorization: \nx-api-key: ", Err("{p|%-}")),
    ("empty, and then there", DEFAULT, "GET /?key=K1\nauthorization: ", Ok("K1")),
    // In several places.
    ("the same in two places", DEFAULT, "GET /?key=K1\nauthorization: Bearer K1", Ok("K1")),
    ("two in two places", DEFAULT, "GET /?key=K2\nauthorization: Bearer K1", Err("deny ambiguous 0")),
    ("two in two headers", DEFAULT, "GET /\nx-api-key: K1\napi-key: K2", Err("deny ambiguous 0")),
    ("two in two places, first", FIRST, "GET /?key=K2\nx-api-key: K1", Ok("K1")),
    ("two in two places, last", LAST, "GET /?key=K2\nx-api-key: K1", Ok("K2")),
    ("two on two lines", DEFAULT, "GET /\nx-api-key: K1\nx-api-key: K2", Err("deny ambiguous 0")),
    ("the same on two lines", DEFAULT, "GET /\nx-api-key: K1\nx-api-key: K1", Err("deny ambiguous 0")),
    ("two on two lines, first", FIRST, "GET /\nx-api-key: K1\nx-api-key: K2", Ok("K1")),
    ("two on two lines, last", LAST, "GET /\nauthorization: Bearer K1\nauthorization: Bearer K2", Ok("K2")),
    ("twice in the query", DEFAULT, "GET /?key=K1&key=K1", Err("deny ambiguous 0")),
    ("after a semicolon", DEFAULT, "GET /?a=1;key=K1", Err("deny ambiguous 0")),
    ("after a literal semicolon", LITERAL, "GET /?a=1;key=K1\nx-api-key: K2", Ok("K2")),
    // Spellings that upstreams may read in another way.
    ("a comma in a scheme", DEFAULT, "GET /\nauthorization: K1, x", Err("deny ambiguous 0")),
    ("two words in a key", DEFAULT, "GET /\nx-api-key: K1 x", Err("deny ambiguous 0")),
    ("two words after a scheme", DEFAULT, "GET /\nauthorization: Bearer K1 x", Err("deny ambiguous 0")),
    ("a scheme in a key", DEFAULT, "GET /\nx-api-key: Bearer K1", Err("deny ambiguous 0")),
    ("a comma", DEFAULT, "GET /\nauthorization: Bearer K1,x", Err("deny ambiguous 0")),
    ("a semicolon behind it, of Rails", DEFAULT, "GET /\nauthorization: Bearer K1;x", Err("deny ambiguous 0")),
    ("a semicolon before it, of Rails", DEFAULT, "GET /\nauthorization: Bearer ;K1", Err("deny ambiguous 0")),
    ("a semicolon elsewhere", DEFAULT, "GET /?key=K1%3Bx\nx-api-key: K1;x", Ok("K1;x")),
    ("a comma in a key", DEFAULT, "GET /\nx-api-key: K1,x", Err("deny ambiguous 0")),
    ("quotes", DEFAULT, "GET /\nauthorization: Bearer \"K1\"", Err("deny ambiguous 0")),
    ("a space that is not ASCII", DEFAULT, "GET /\nx-api-key: K1\u{a0}x", Err("deny ambiguous 0")),
    ("a space in the query", DEFAULT, "GET /?key=K1+x", Err("deny ambiguous 0")),
    ("a space at the end of the query", DEFAULT, "GET /?key=K1+", Ok("K1")),
    ("a control character in the query", DEFAULT, "GET /?key=K1%00", Err("deny ambiguous 0")),
    ("a signature", DEFAULT, "GET /\nauthorization: AWS4-HMAC-SHA256 Credential=AK/20261126/eu/bedrock/aws4_request, Signature=1f", Err("deny ambiguous 0")),
    ("a signature without spaces", DEFAULT, "GET /\nauthorization: AWS4-HMAC-SHA256 Credential=AK,Signature=1f", Err("deny ambiguous 0")),
    ("digest", DEFAULT, "GET /\nauthorization: Digest username=\"ann\"", Err("deny ambiguous 0")),
    ("basic", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldA==", Ok("YW5uOnNlY3JldA==")),
    ("basic in lower case", DEFAULT, "GET /\nauthorization: basic YW5uOnNlY3JldA==", Ok("YW5uOnNlY3JldA==")),
    ("basic, one equals sign", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldHM=", Ok("YW5uOnNlY3JldHM=")),
    ("basic, no equals sign", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldCEh", Ok("YW5uOnNlY3JldCEh")),
    ("basic with other unused bits", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldB==", Err("deny ambiguous 0")),
    ("basic with other unused bits, two", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldHN=", Err("deny ambiguous 0")),
    ("basic without padding", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldA", Err("deny ambiguous 0")),
    ("basic with too much padding", DEFAULT, "GET /\nauthorization: Basic YW5uOnNlY3JldCEhA===", Err("deny ambiguous 0")),
    ("basic with padding inside", DEFAULT, "GET /\nauthorization: Basic YW5u=nNlY3JldA==", Err("deny ambiguous 0")),
    ("basic with a number before it", DEFAULT, "GET /\nauthorization: Basic 1|YW5uOnNlY3JldCEh", Err("deny ambiguous 0")),
    ("basic with a byte that decoders ignore", DEFAULT, "GET /\nauthorization: Basic YW5u*OnNlY3JldA=", Err("deny ambiguous 0")),
    ("basic of nothing", DEFAULT, "GET /\nauthorization: Basic ====", Err("deny ambiguous 0")),
    ("bearer is no base64", DEFAULT, "GET /\nauthorization: Bearer YW5uOnNlY3JldB", Ok("YW5uOnNlY3JldB")),
    ("the header is unreadable", DEFAULT, "GET /\nx-api-key: K1\n?authorization", Err("deny ambiguous 0")),
    ("a later header is unreadable", DEFAULT, "GET /\nauthorization: Bearer K1\n?x-api-key", Err("deny ambiguous 0")),
    ("a later header is unreadable, first", FIRST, "GET /\nauthorization: Bearer K1\n?x-api-key", Ok("K1")),
    ("the query is unreadable", DEFAULT, "GET /\nx-api-key: K1\n?:path", Err("deny ambiguous 0")),
    // Places of one's own.
    ("an own header", OWN, "GET /\nx-token: K1", Ok("K1")),
    ("an own header with a scheme", OWN, "GET /\nproxy-authorization: Bearer K1", Ok("K1")),
    ("an own parameter", OWN, "GET /?access_token=K1", Ok("K1")),
    ("another own parameter", OWN, "GET /?t=K1", Ok("K1")),
    ("a header that is not listed", OWN, "GET /\nx-api-key: K1", Err("{p|%-}")),
    ("a parameter that is not listed", OWN, "GET /?key=K1", Err("{p|%-}")),
    ("a header where none is listed", NO_HEADERS, "GET /\nx-api-key: K1", Err("{p|%-}")),
    ("a parameter where none is listed", NO_HEADERS, "GET /?key=K1", Ok("K1")),
    ("a header where no parameter is listed", NO_QUERY, "GET /?key=K2\nx-api-key: K1", Ok("K1")),
    ("an unreadable query where no parameter is listed", NO_QUERY, "GET /\nx-api-key: K1\n?:path", Ok("K1")),
];

fn tag_of(hasher: &ValueHasher, credential: &str) -> String {
    let mut tag = Tag::new("p");
    tag.hashed(&hasher.digest(credential.as_bytes()));
    String::from_utf8(tag.finish()).unwrap()
}

#[test]
fn credentials() {
    let (plain, keyed) = (ValueHasher::default(), ValueHasher::with_secret(b"a secret of tests"));
    for (store, hasher) in [("{}", plain), (r#"{"hash_secret": "a secret of tests"}"#, keyed)] {
        each(CREDENTIALS.iter().map(|(row, part, text, wanted)| {
            let config = config(&format!(
                r#"{{"store": {store}, "policies": [{{"name": "p", {LIMITS}, "subject": [{part}]}}]}}"#
            ));
            let wanted = wanted.map_or_else(String::from, |credential| tag_of(&hasher, credential));
            (row, tag(&config, &request(text)), wanted)
        }));
    }
}

/// The secret of a variable hashes as the same secret in the configuration. A file's last line feed is no part of it.
#[test]
fn a_secret_in_the_environment() {
    const SECRET: &str = "a secret of tests";
    let text = format!(
        r#"{{"store": {{"hash_secret_env": "HASH"}}, "policies": [{{"name": "p", {LIMITS}, "subject": [{DEFAULT}]}}]}}"#
    );
    let request = request("GET /\nx-api-key: K1");
    let with = |value: Option<&str>| {
        config(&text).with_secret(|name| value.filter(|_| name == "HASH").map(str::to_owned))
    };
    let wanted = tag_of(&ValueHasher::with_secret(SECRET.as_bytes()), "K1");
    for value in [SECRET, "a secret of tests\n", "a secret of tests\r\n"] {
        let config = with(Some(value)).expect("a secret");
        assert!(!config.store.lacks_secret());
        assert_eq!(tag(&config, &request), wanted, "{value:?}");
    }
    assert!(config(&text).store.lacks_secret());
    let allowed = "a variable of the environment with 16 to 1024 printable characters of ASCII";
    for (value, found) in [
        (None, "no such variable"),
        (Some("fifteen letters"), "a text of 15 bytes"),
        (Some("a secret of\n tests"), "a text of 18 bytes"),
    ] {
        let error = with(value).expect_err("no secret").to_string();
        assert_eq!(error, format!("store.hash_secret_env: found \"HASH\": {found}, allowed: {allowed}"));
    }
}

#[test]
fn a_long_credential_is_hashed_as_a_short_one_up_to_what_is_read() {
    let found = |part: &str, key: &str| {
        tag(&policy(&format!(r#""subject": [{part}]"#)), &request("GET /").header("x-api-key", key))
    };
    let (longest, longer) = ("k".repeat(LONGEST_HIDDEN), "k".repeat(LONGEST_HIDDEN + 1));
    for part in [DEFAULT, r#"{"header": {"name": "x-api-key"}, "hash": true}"#] {
        assert_eq!(found(part, &longest), tag_of(&ValueHasher::default(), &longest));
        assert_eq!(found(part, &longer), "deny ambiguous 0");
    }
    assert!(found(r#"{"header": {"name": "x-api-key"}}"#, &longer).starts_with("{p|%~"));
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// A credential that a lenient upstream reads as `K1…` has the same subject, or is denied.
        #[test]
        fn no_spelling_of_a_credential_is_another_subject(
            key in "[A-Za-z0-9._~+/-]{1,40}",
            place in select(vec!["authorization", "x-api-key", "api-key", "x-goog-api-key", "?key"]),
            scheme in select(vec!["", "Bearer", "bearer", "BeArEr", "Token", "Key"]),
            label in select(vec!["", "", "token=", "1|", "007|"]),
            before in "[ \t]{1,3}",
            after in select(vec!["", " ", "\t ", "\u{a0}", "\u{2003}", "\u{b}", ",", ", x", " x", "\"", "\u{85}"]),
            quote in select(vec!["", "", "", "\"", "'"]),
        ) {
            // A word before another one is a scheme.
            prop_assume!(place != "authorization" || !scheme.is_empty() || after != " x");
            let config = policy(&format!(r#""subject": [{DEFAULT}]"#));
            let sent = match place {
                "authorization" if !scheme.is_empty() => format!("{scheme}{before}{label}{quote}{key}{quote}{after}"),
                _ => format!("{quote}{key}{quote}{after}"),
            };
            let sample = match place {
                "?key" => {
                    let escaped = sent.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
                    request("GET /").path(format!("/?key={escaped}"))
                }
                header => request("GET /").header(header, sent.trim_matches([' ', '\t'])),
            };
            let found = tag(&config, &sample);
            let is_same = found == tag_of(&ValueHasher::default(), &key);
            // A quote of this kind is a part of the key: no upstream takes it for anything else.
            let is_other = quote == "'" && found == tag_of(&ValueHasher::default(), &format!("'{key}'"));
            prop_assert!(is_same || is_other || found == "deny ambiguous 0", "{sent:?}: {found}");
            prop_assert!(!(quote.is_empty() && after.trim_matches([' ', '\t']).is_empty()) || is_same, "{sent:?}: {found}");
        }

        /// Two spellings of base64 that any decoder takes for the same bytes are one subject, or one of them is denied.
        #[test]
        fn no_spelling_of_basic_is_another_subject(secret in proptest::collection::vec(any::<u8>(), 1..12), noise in "[A-Za-z0-9+/=*_-]{0,2}", at in any::<proptest::sample::Index>()) {
            let config = policy(&format!(r#""subject": [{DEFAULT}]"#));
            let base64 = base64(&secret);
            let mut other = base64.clone();
            other.insert_str(at.index(base64.len() + 1), &noise);
            let of = |token: &str| tag(&config, &request("GET /").header("authorization", format!("Basic {token}")));
            prop_assert_eq!(of(&base64), tag_of(&ValueHasher::default(), &base64));
            let found = of(&other);
            prop_assert!(found == "deny ambiguous 0" || lenient(&other) != secret || other == base64, "{base64} {other}");
        }
    }

    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn base64(bytes: &[u8]) -> String {
        let groups = bytes.chunks(3).map(|group| {
            let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
                << (8 * (3 - group.len()));
            let digit = |place: usize| match place <= group.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]),
                false => '=',
            };
            (0..4).map(digit).collect::<String>()
        });
        groups.collect()
    }

    /// As a decoder reads it that ignores what it does not know, and all padding.
    fn lenient(base64: &str) -> Vec<u8> {
        let url = base64.replace('-', "+").replace('_', "/");
        let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
        for value in url.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
            (bits, count) = (bits << 6 | u32::try_from(value).unwrap(), count + 6);
            if count >= 8 {
                count -= 8;
                bytes.push(u8::try_from(bits >> count & 255).unwrap());
            }
        }
        bytes
    }
}
