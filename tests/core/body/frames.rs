// SPDX-License-Identifier: Apache-2.0
//! Amazon's event streams: which of their bytes are payloads, and which lengths no message has.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::Form;

use super::found;
use crate::frames::{event, message};
use crate::table;

/// A message that says how long it is, and how long its headers are.
fn lengths(whole: u32, headers: u32) -> Vec<u8> {
    [whole.to_be_bytes(), headers.to_be_bytes()].concat()
}

#[test]
fn frames() {
    let one = message(b"", br#"{"a": 1}"#);
    let two = event("metadata", br#"{"b": 2}"#);
    // An example of Amazon's.
    let known = b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json{\"foo\":\"bar\"}\x8d\x9c\x08\xb1";
    let mut wrong = [&one[..], &two].concat();
    wrong[8..12].fill(0);
    let headers = message(br#"{"a": 9}"#, br#"{"a": 1}"#);
    let cut = |text: &[u8], bytes: usize| text[..text.len() - bytes].to_vec();
    #[rustfmt::skip]
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", vec![], "ok: - - -"),
        ("a message", one.clone(), "ok: 1 - -"),
        ("an example", known.to_vec(), "ok: - - \"bar\""),
        ("two", [&one[..], &two].concat(), "ok: 1 2 -"),
        ("the last number counts", [&one[..], &message(b"", br#"{"a": 7}"#), &message(b"", br#"{"a": null}"#)].concat(), "ok: 7 - -"),
        ("headers are no payload", headers, "ok: 1 - -"),
        ("an empty payload", [&message(b"", b"")[..], &message(b"x", b""), &one].concat(), "ok: 1 - -"),
        ("checksums are not looked at", wrong, "ok: 1 2 -"),
        ("a payload in two messages is none", [message(b"", br#"{"a": "#), message(b"", b"1}")].concat(), "ok: - - -"),
        ("a payload that is no JSON", [&message(b"", b"\0\xff")[..], &one].concat(), "ok: 1 - -"),
        ("a message within a payload", [&message(b"", &message(b"", br#"{"a": 9}"#))[..], &two].concat(), "ok: - 2 -"),
        ("two documents in a payload", message(b"", br#"{"a": 1}{"a": 2}"#), "ok: 1 - -"),
        ("the last checksum is missing", cut(&one, 4), "ok: 1 - -"),
        ("a payload without its end", [&two[..], &cut(&one, 5)].concat(), "ok: - 2 -"),
        ("a number that is cut off", [&two[..], &cut(&message(b"", br#"{"a": 12}"#), 6)].concat(), "ok: - 2 -"),
        ("no payload yet", [&two[..], &one[..12]].concat(), "ok: - 2 -"),
        ("no lengths yet", [&two[..], &one[..7]].concat(), "ok: - 2 -"),
        ("shorter than its own lengths", [&one[..], &lengths(15, 0), &two].concat(), "no frames: 1 - -"),
        ("zero", [&one[..], &[0; 16], &two].concat(), "no frames: 1 - -"),
        ("headers that are longer than the message", [&one[..], &lengths(50, 35), &[0; 60]].concat(), "no frames: 1 - -"),
        ("headers that just fit", [&lengths(50, 34)[..], &[0; 42], &one].concat(), "ok: 1 - -"),
        ("headers with an overflow", [&one[..], &lengths(50, u32::MAX), &two].concat(), "no frames: 1 - -"),
        ("headers that are too long", [&one[..], &lengths(16 + 131_073, 131_073), &[0; 140_000]].concat(), "no frames: 1 - -"),
        ("the longest headers", [&lengths(16 + 131_072, 131_072)[..], &[0; 131_080], &one].concat(), "ok: 1 - -"),
        ("the longest payload", [&one[..], &lengths(16 + 25_165_824, 0), &[0; 60]].concat(), "ok: 1 - -"),
        ("a payload that is too long", [&one[..], &lengths(16 + 25_165_825, 0), &[0; 60]].concat(), "no frames: 1 - -"),
        ("all bits", [&one[..], &[0xff; 40]].concat(), "no frames: 1 - -"),
        ("JSON", br#"{"a": 1, "b": 2}"#.to_vec(), "no frames: - - -"),
        ("events", b"data: {\"a\": 1}\n\n".to_vec(), "no frames: - - -"),
    ];
    table::each(rows.iter().map(|(name, body, wanted)| {
        (*name, found(Form::Frames, &["a", "b", "foo"], body), (*wanted).to_owned())
    }));
}

/// The values read in a stream do not depend on where it is cut.
#[test]
fn cut_at_every_byte() {
    let paths = std::rc::Rc::new(weir::body::Paths::new(&["usage.outputTokens", "text"]).unwrap());
    let stream = [
        event("contentBlockDelta", br#"{"text": "{\"usage\": {\"outputTokens\": 9}}"}"#),
        message(b"", b""),
        event("metadata", br#"{"usage": {"outputTokens": 12}}"#),
    ]
    .concat();
    for cut in 0..=stream.len() {
        let (begin, end) = stream.split_at(cut);
        let (scanner, end) = super::read(Form::Frames, &paths, [begin, end]);
        let shown = super::shown(&scanner, Form::Frames, paths.count(), end);
        assert_eq!(shown, r#"ok: 12 "{\"usage\": {\"outputTokens\": 9}}""#, "cut at {cut}");
    }
}
