// SPDX-License-Identifier: Apache-2.0
//! Which bodies can be read, by their headers.

/// How a body holds its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It is one JSON document.
    Json,
    /// It is an event stream (server-sent events); the data of each event is a document.
    EventStream,
    /// Each line is a document.
    JsonLines,
}

impl Form {
    /// The form of a body with this `content-type` and `content-encoding`; the latter is empty if there is none.
    /// `None`: it is compressed, in another charset than UTF-8, or of another type, so it is unreadable.
    #[must_use]
    pub fn of(content_type: &[u8], content_encoding: &[u8]) -> Option<Self> {
        let mut codings = content_encoding.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        if !codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")) {
            return None;
        }
        let mut parts = content_type.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        if !parts.all(is_utf8) {
            return None;
        }
        match media_type.as_slice() {
            // A comma joins several header lines: which of them holds is unknown.
            name if name.contains(&b',') => None,
            b"application/json" | b"text/json" => Some(Self::Json),
            b"text/event-stream" => Some(Self::EventStream),
            b"application/x-ndjson"
            | b"application/ndjson"
            | b"application/jsonl"
            | b"application/x-jsonlines"
            | b"application/jsonlines" => Some(Self::JsonLines),
            name if name.starts_with(b"application/") && name.ends_with(b"+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// Whether a parameter of a media type leaves the charset as it is for JSON: UTF-8.
fn is_utf8(parameter: &[u8]) -> bool {
    let equals = parameter.iter().position(|&byte| byte == b'=').unwrap_or(parameter.len());
    let (name, value) = parameter.split_at(equals);
    if !name.trim_ascii().eq_ignore_ascii_case(b"charset") {
        return !parameter.contains(&b',');
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    [&b"utf-8"[..], b"utf8", b"us-ascii"].iter().any(|charset| value.eq_ignore_ascii_case(charset))
}
