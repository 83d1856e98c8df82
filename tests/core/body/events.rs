// SPDX-License-Identifier: Apache-2.0
//! Event streams: which of their bytes are data, and which of the data is JSON.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::Form;

use super::found;
use crate::table;

#[test]
fn event_streams() {
    let rows: &[(&str, &[u8], &str)] = &[
        ("nothing", b"", "ok: - -"),
        ("an event", b"data: {\"a\": 1}\n\n", "ok: 1 -"),
        ("no space", b"data:{\"a\": 1}\n\n", "ok: 1 -"),
        ("two spaces", b"data:  {\"a\": 1}\n\n", "ok: 1 -"),
        ("a tab", b"data:\t{\"a\": 1}\n\n", "ok: 1 -"),
        ("CRLF", b"data: {\"a\": 1}\r\n\r\ndata: {\"b\": 2}\r\n\r\n", "ok: 1 2"),
        ("CR", b"data: {\"a\": 1}\r\rdata: {\"b\": 2}\r\r", "ok: 1 2"),
        ("all ends of lines", b"data: {\"a\": 1}\r\n\ndata: {\"a\": 2}\n\r\ndata: {\"b\": 2}\r\n\r", "ok: 2 2"),
        ("other fields", b"event: x\nid: 7\nretry: 1\ndata: {\"a\": 1}\nfoo: {\"a\": 2}\nfoo\n\n", "ok: 1 -"),
        ("names that begin alike", b"datas: {\"a\": 1}\n\ndat: {\"a\": 2}\n\nDATA: {\"a\": 3}\n\n data: {\"a\": 4}\n\ndata : {\"a\": 5}\n\n", "ok: - -"),
        ("a comment", b": data: {\"a\": 1}\n:\n\n", "ok: - -"),
        ("a comment within an event", b"data: {\"a\":\n: hello\ndata: 1}\n\n", "ok: 1 -"),
        ("data in several lines", b"data: {\"a\":\ndata\ndata:\ndata: 1,\ndata:\"b\": 2}\n\n", "ok: 1 2"),
        ("a number in two lines", b"data: {\"a\": 1\ndata: 2}\n\n", "ok: 1 -"),
        ("a string in two lines", b"data: {\"a\": \"x\ndata: y\"}\n\n", "ok: - -"),
        ("data in two events", b"data: {\"a\": 1,\n\ndata: \"b\": 2}\n\n", "ok: 1 -"),
        ("a byte order mark", b"\xef\xbb\xbfdata: {\"a\": 1}\n\n", "ok: 1 -"),
        ("two marks", b"\xef\xbb\xbf\xef\xbb\xbfdata: {\"a\": 1}\n\n", "ok: - -"),
        ("half a mark", b"\xef\xbbdata: {\"a\": 1}\n\n", "ok: - -"),
        ("a later mark", b"data: {\"a\": 1}\n\n\xef\xbb\xbfdata: {\"b\": 1}\n\n", "ok: 1 -"),
        ("a mark in the data", b"data: \xef\xbb\xbf{\"a\": 1}\n\n", "ok: - -"),
        ("a mark before a blank line", b"\xef\xbb\xbf\n\ndata: {\"a\": 1}\n\n", "ok: 1 -"),
        ("no blank line at the end", b"data: {\"a\": 1}\n\ndata: {\"b\": 2}\n", "ok: 1 2"),
        ("no line end at the end", b"data: {\"a\": 1}\n\ndata: {\"b\": 2}", "ok: 1 2"),
        ("cut off", b"data: {\"a\": 1}\n\ndata: {\"b\": 2", "ok: 1 -"),
        ("cut off after the name", b"data: {\"a\": 1}\n\ndata", "ok: 1 -"),
        ("done", b"data: {\"a\": 1}\n\ndata: [DONE]\n\n", "ok: 1 -"),
        ("done at the end", b"data: {\"a\": 1}\n\ndata: [DONE]", "ok: 1 -"),
        ("done without a space, and events after it", b"data:[DONE]\n\ndata: {\"a\": 1}\n\n", "ok: 1 -"),
        ("done, and more", b"data: [DONE] \n\n", "ok: - -"),
        ("nearly done", b"data: [DONE\n\n", "ok: - -"),
        ("done in small letters", b"data: [done]\n\n", "ok: - -"),
        ("not yet done", b"data: {\"a\": 1}[DONE]\n\n", "ok: 1 -"),
        ("done in a list", b"data: [[DONE]]\n\n", "ok: - -"),
        ("done after a line without data", b"data\ndata: [DONE]\n\n", "ok: - -"),
        ("a brace for the bracket of done", b"data: [DON\n\ndata: E]\n\n", "ok: - -"),
        ("events without data", b"id: 1\ndata:\n\ndata: \n\ndata\n\nevent: ping\n\ndata: {\"a\": 1}\n\n", "ok: 1 -"),
        ("an event that is not JSON", b"data: hello\n\ndata: {\"a\": 1}\n\n", "ok: 1 -"),
        ("an event that is not UTF-8", b"data: {\"a\": \"\xff\"}\n\ndata: {\"a\": 1}\n\n", "ok: 1 -"),
        ("no event stream at all", b"{\"a\": 1}", "ok: - -"),
        ("blank lines", b"\n\n\r\n\r\rdata: {\"a\": 1}\n\n\n\n", "ok: 1 -"),
        ("the last value counts", b"data: {\"a\": 1}\n\ndata: {\"a\": 2}\n\ndata: {\"a\": null}\n\n", "ok: 2 -"),
        ("what is no number hides none", b"data: {\"a\": 5}\n\ndata: {\"a\": \"?\"}\n\ndata: {\"a\": [7]}\n\n", "ok: 5 -"),
        ("a number of which the rest is wrong", b"data: {\"a\": 5}\n\ndata: {\"a\": 012}\n\ndata: {\"b\": 1_000}\n\n", "ok: 5 -"),
        ("an event that is no document", b"data: {\"a\": 5}\n\ndata: ?\n\n", "ok: 5 -"),
        ("a colon in the data", b"data: {\"data: a\": 1, \"a\": 1}\n\n", "ok: 1 -"),
    ];
    table::each(rows.iter().map(|(name, body, wanted)| {
        (*name, found(Form::EventStream, &["a", "b"], body), (*wanted).to_owned())
    }));
}
