// SPDX-License-Identifier: Apache-2.0
//! The bodies that can be read, by their headers.

/// The way in which a body contains its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It is one JSON document.
    Json,
    /// It is an event stream (server-sent events); the data of each event is a document.
    EventStream,
    /// Each line is a document.
    JsonLines,
    /// It is one of Amazon's event streams; the payload of each message is a document.
    Frames,
}

impl Form {
    /// The form of a body with this `content-type` and `content-encoding`; the latter is empty if there is none.
    /// `None`: it is compressed, in another charset than UTF-8, or of another type, so it is unreadable.
    #[must_use]
    pub fn of(content_type: &[u8], content_encoding: &[u8]) -> Option<Self> {
        // A comma joins several header lines: which of them holds is unknown.
        if content_type.contains(&b',') || is_coded(content_encoding) {
            return None;
        }
        // ASCII is UTF-8.
        if !charsets_are(content_type, &[b"utf-8", b"utf8", b"us-ascii"]) {
            return None;
        }
        let media_type = media_type(content_type).to_ascii_lowercase();
        match media_type.as_slice() {
            b"application/json" | b"text/json" => Some(Self::Json),
            b"text/event-stream" => Some(Self::EventStream),
            b"application/vnd.amazon.eventstream" => Some(Self::Frames),
            b"application/x-ndjson"
            | b"application/ndjson"
            | b"application/jsonl"
            | b"application/x-jsonl"
            | b"application/x-jsonlines"
            | b"application/jsonlines"
            | b"application/stream+json" => Some(Self::JsonLines),
            name if name.starts_with(b"application/") && name.ends_with(b"+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// The longest `content-type` that is read, in bytes.
const MAX_TYPE: usize = 1024;

/// True if the server may see another document in the body of a request than weir, which reads JSON in UTF-8 whatever the type. It may if
/// the body is coded, if the type names another charset, or if it names a form: one body can be JSON and a form.
///
/// Servers differ in how they split a type, so a hostile one is looked at as a whole.
#[must_use]
pub fn may_be_other_than_json(content_type: &[u8], content_encoding: &[u8]) -> bool {
    is_coded(content_encoding)
        || content_type.len() > MAX_TYPE
        // A server that decodes ASCII may drop other bytes.
        || !charsets_are(content_type, &UTF_8)
        || contains(content_type, b"form-urlencoded")
        || contains(content_type, b"multipart/")
}

/// The way in which a body contains the form of an HTML page, in UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HtmlForm {
    /// Pairs of a name and a value.
    Urlencoded,
    /// A part for each field, with this text between them.
    Multipart {
        /// `boundary` of the type.
        boundary: Vec<u8>,
    },
}

impl HtmlForm {
    /// The form of a body with these headers. `None`: it is none, or some server that reads forms reads it otherwise. One that looks at no
    /// type may read another body as a form too: what is in that one is unknown.
    #[must_use]
    pub fn of(content_type: &[u8], content_encoding: &[u8]) -> Option<Self> {
        if is_coded(content_encoding)
            || content_type.len() > MAX_TYPE
            || content_type.contains(&b',')
            || !charsets_are(content_type, &UTF_8)
        {
            return None;
        }
        if contains(content_type, b"multipart/") {
            return boundary(core::str::from_utf8(content_type).ok()?)
                .map(|boundary| Self::Multipart { boundary });
        }
        // Some servers read no form where the type is written in capitals, or has a space behind it.
        (content_type.split(|&byte| byte == b';').next() == Some(b"application/x-www-form-urlencoded"))
            .then_some(Self::Urlencoded)
    }
}

/// The boundary of `multipart/form-data`, if it is written as clients write it; Qt's has `/` and `=` in quotes. Servers differ in how they
/// read all other ways: spaces, escapes, a parameter that is there twice (Rack takes the last `boundary=`) or continued (`boundary*0`).
fn boundary(content_type: &str) -> Option<Vec<u8>> {
    let mut parts = content_type.split(';');
    if parts.next() != Some("multipart/form-data") {
        return None;
    }
    let mut boundary = None;
    for part in parts {
        match part.trim_start_matches(' ').split_once('=')? {
            ("boundary", value) if boundary.is_none() => {
                let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
                let is_known = |text: &&str| {
                    let has_marks = quoted.is_some() && !contains(text.as_bytes(), b"boundary=");
                    let plain = has_marks.then(|| text.replace(['/', '='], ""));
                    text.len() <= MAX_BOUNDARY && is_plain(plain.as_deref().unwrap_or(text))
                };
                boundary = Some(quoted.unwrap_or(value)).filter(is_known);
                boundary?;
            }
            // It is UTF-8.
            ("charset", _) => {}
            _ => return None,
        }
    }
    boundary.map(|text| text.as_bytes().to_vec())
}

/// The longest boundary, in bytes (RFC 2046, section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// True if this is not empty, and has no characters that any server treats specially outside of quotes.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte))
}

/// True if a part of this type is plain text in one of these charsets. aiohttp knows text in lower case only.
pub(super) fn is_plain_text(content_type: &[u8], charsets: &[&[u8]]) -> bool {
    media_type(content_type) == b"text/plain"
        && !content_type.contains(&b',')
        && charsets_are(content_type, charsets)
}

pub(super) const UTF_8: [&[u8]; 2] = [b"utf-8", b"utf8"];
/// The charsets that clients name and that all have ASCII: Apache's `HttpClient` writes the last one.
pub(super) const OF_ASCII: [&[u8]; 4] = [b"utf-8", b"utf8", b"us-ascii", b"iso-8859-1"];

fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

fn is_coded(content_encoding: &[u8]) -> bool {
    let mut codings = content_encoding.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    !codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

/// True if every charset that a `content-type` names is one of these. If the word is not in the form `charset=NAME`, a server may still
/// find a name: then it is unknown.
fn charsets_are(content_type: &[u8], known: &[&[u8]]) -> bool {
    let parts = content_type.split(|byte| matches!(byte, b';' | b','));
    parts.filter(|part| contains(part, b"charset")).all(|part| {
        let mut sides = part.splitn(2, |&byte| byte == b'=').map(<[u8]>::trim_ascii);
        let (name, value) = (sides.next().unwrap_or_default(), sides.next().unwrap_or_default());
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        name.eq_ignore_ascii_case(b"charset") && known.iter().any(|known| value.eq_ignore_ascii_case(known))
    })
}

/// True if `text` contains this word, in capitals or not.
pub(super) fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}
