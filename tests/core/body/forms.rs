// SPDX-License-Identifier: Apache-2.0
//! The bodies that can be read, by their headers.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::Form;

use crate::table;

#[test]
fn forms() {
    let (json, events, lines) = (Some(Form::Json), Some(Form::EventStream), Some(Form::JsonLines));
    let frames = Some(Form::Frames);
    let rows = [
        ("application/json", "", json),
        ("Application/JSON", "", json),
        ("text/json", "", json),
        ("application/vnd.api+json", "", json),
        ("application/problem+json; charset=utf-8", "", json),
        ("application/json;charset=UTF-8", "", json),
        ("application/json; charset=\"utf-8\"", "", json),
        ("application/json; charset=us-ascii", "", json),
        ("application/json ; profile=\"x\"", "", json),
        ("application/json;", "", json),
        ("application/json; charset=utf-16", "", None),
        ("application/json; profile=x; Charset=latin1", "", None),
        ("application/json; charset", "", None),
        ("text/event-stream", "", events),
        ("text/event-stream; charset=utf-8", "", events),
        ("text/event-stream, application/json", "", None),
        ("text/event-stream; a=b, application/json", "", None),
        ("application/xml, application/a+json", "", None),
        ("application/x-ndjson", "", lines),
        ("application/ndjson", "", lines),
        ("application/jsonl", "", lines),
        ("application/x-jsonlines", "", lines),
        ("application/jsonlines", "", lines),
        ("application/x-jsonl", "", lines),
        ("application/stream+json", "", lines),
        ("application/vnd.amazon.eventstream", "", frames),
        ("Application/vnd.Amazon.eventstream; a=b", "identity", frames),
        ("application/vnd.amazon.eventstream", "gzip", None),
        ("application/json-seq", "", None),
        ("application/geo+json-seq", "", None),
        ("image/x+json", "", None),
        ("application/grpc", "", None),
        ("application/x-www-form-urlencoded", "", None),
        ("text/plain", "", None),
        ("", "", None),
        ("application/json", "identity", json),
        ("application/json", "Identity, identity", json),
        ("application/json", "gzip", None),
        ("application/json", "identity, gzip", None),
        ("text/event-stream", "br", None),
    ];
    table::each(rows.into_iter().map(|(content_type, encoding, wanted)| {
        let found = Form::of(content_type.as_bytes(), encoding.as_bytes());
        (format!("{content_type:?} {encoding:?}"), format!("{found:?}"), format!("{wanted:?}"))
    }));
}
