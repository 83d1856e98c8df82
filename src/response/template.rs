// SPDX-License-Identifier: Apache-2.0
//! The operator's own texts in rejections: headers and bodies with placeholders, the headers for browsers on other origins (CORS), and
//! the choice of a body by the request's `accept`.
//!
//! No value needs an escape. A client can choose one of them, the id of its request: it is left out if it would need one.

use std::borrow::Cow;

use super::fields::Header;

/// The placeholders, in the order of [`Values`].
const PLACEHOLDERS: [&str; 4] = ["retry_after", "limit", "policy", "request_id"];

/// The values of the placeholders; an empty one is none.
pub(super) type Values<'a> = [&'a str; PLACEHOLDERS.len()];

/// The longest id of a request that a rejection shows, in bytes.
const LONGEST_ID: usize = 128;

/// The longest `accept` that weir reads, in bytes. For a longer one the default is acceptable.
const LONGEST_ACCEPT: usize = 1024;

/// The most media ranges of an `accept` that weir reads.
const MAX_RANGES: usize = 16;

/// The longest origin that weir compares, in bytes.
const LONGEST_ORIGIN: usize = 256;

/// The operator's own texts in rejections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Further headers: their names, in lower case, and values.
    pub headers: Vec<(String, Template)>,
    /// The headers for browsers on other origins.
    pub cors: Option<Cors>,
    /// The body, in place of that of the settings.
    pub body: Option<Template>,
    /// Further bodies, for requests that prefer their type.
    pub bodies: Vec<Template>,
}

/// The origins whose pages may read rejections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The origins: `*` is all of them, and before a domain every name below it.
    pub origins: Vec<String>,
    /// True if they may when the request had credentials.
    pub credentials: bool,
}

/// The use of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value of a header.
    Header,
    /// A JSON document.
    Json,
    /// A page in HTML.
    Html,
    /// Plain text.
    Text,
}

/// A string with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    kind: Kind,
    parts: Vec<Piece>,
    /// The text after the last placeholder.
    rest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// The text before the placeholder.
    before: String,
    /// The place of the value.
    value: usize,
    /// True if the placeholder is a whole value of JSON, outside a string.
    is_json: bool,
}

impl Kind {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Html => "text/html; charset=utf-8",
            Self::Header | Self::Text => "text/plain; charset=utf-8",
        }
    }
}

impl Template {
    /// Reads a string. A word in braces is a placeholder, unless another brace is before them; every other brace is part of the string.
    ///
    /// # Errors
    /// The name of an unknown placeholder.
    pub fn new(kind: Kind, text: &str) -> Result<Self, &str> {
        let (mut parts, mut before, mut in_string) = (Vec::new(), String::new(), false);
        let (mut rest, mut follows_brace) = (text, false);
        loop {
            let (literal, after) = cut(rest, b'{');
            append(&mut before, literal);
            in_string = ends_in_string(literal, in_string);
            let Some(after) = after else { break };
            let is_escaped = follows_brace && literal.is_empty();
            (rest, follows_brace) = (after, true);
            match word(after) {
                Some((word, after)) if !is_escaped => {
                    let value = PLACEHOLDERS.iter().position(|name| *name == word).ok_or(word)?;
                    let is_json = kind == Kind::Json && !in_string;
                    parts.push(Piece { before: core::mem::take(&mut before), value, is_json });
                    (rest, follows_brace) = (after, false);
                }
                // The brace before stands for both, and the word follows.
                Some(_) => {}
                None => append(&mut before, "{"),
            }
        }
        Ok(Self { kind, parts, rest: before })
    }

    /// The text with an example of each value: if this is JSON, the text is JSON with every value.
    #[must_use]
    pub fn example(&self) -> String {
        self.fill(&["1", "z", "z", "z"])
    }

    pub(super) const fn content_type(&self) -> &'static str {
        self.kind.content_type()
    }

    /// The text with these values. A missing one is empty, or `null` in place of a value of JSON.
    #[inline(never)]
    pub(super) fn fill(&self, values: &Values<'_>) -> String {
        let mut out = String::new();
        for Piece { before, value, is_json } in &self.parts {
            append(&mut out, before);
            let text = values.get(*value).copied().unwrap_or_default();
            // A number is a value of JSON as it is.
            let (quote, text) = match (*is_json, text, *value) {
                (true, "", _) => ("", "null"),
                (true, _, 1..) => ("\"", text),
                _ => ("", text),
            };
            append(&mut out, quote);
            append(&mut out, text);
            append(&mut out, quote);
        }
        append(&mut out, &self.rest);
        out
    }
}

/// Appends a string. Inlined, it would enlarge the plugin by many bytes.
#[inline(never)]
fn append(out: &mut String, text: &str) {
    out.push_str(text);
}

/// The text before the first of these bytes, which are ASCII, and what follows it, if it is there.
#[inline(never)]
fn cut(text: &str, at: u8) -> (&str, Option<&str>) {
    let place = text.bytes().position(|byte| byte == at).unwrap_or(text.len());
    let (before, after) = text.split_at_checked(place).unwrap_or_default();
    (before, after.get(1..))
}

/// The word before the next closing brace, if nothing else is there, and what follows the brace.
fn word(text: &str) -> Option<(&str, &str)> {
    let (word, after) = cut(text, b'}');
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let begins = word.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if begins && word.bytes().all(is_word) { Some((word, after?)) } else { None }
}

/// True if a string of JSON is open after this text.
fn ends_in_string(text: &str, mut in_string: bool) -> bool {
    let mut is_escaped = false;
    for byte in text.bytes() {
        in_string ^= byte == b'"' && !is_escaped;
        is_escaped = in_string && byte == b'\\' && !is_escaped;
    }
    in_string
}

/// A header of the request as text, if it has at most this many bytes of printable ASCII; otherwise an empty one.
#[inline(never)]
fn text(header: &dyn Fn(&str) -> Option<Vec<u8>>, name: &str, longest: usize) -> String {
    let value = header(name).unwrap_or_default();
    let is_text = value.len() <= longest && value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if is_text { String::from_utf8(value).unwrap_or_default() } else { String::new() }
}

/// The id of a request, if no character of it has a meaning in JSON, in HTML or in a script. So have the names of policies and limits.
pub(super) fn request_id(header: &dyn Fn(&str) -> Option<Vec<u8>>) -> String {
    let mut id = text(header, "x-request-id", LONGEST_ID);
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:/+=@".contains(&byte)) {
        id.clear();
    }
    id
}

impl Own {
    /// The body that a request prefers to that of these headers; the first of several.
    #[inline(never)]
    pub(super) fn preferred(
        &self,
        headers: &[Header],
        header: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<&Template> {
        if self.bodies.is_empty() {
            return None;
        }
        let accept = text(header, "accept", LONGEST_ACCEPT).replace(" ", "").to_ascii_lowercase();
        let default = headers.iter().find(|header| header.name == "content-type");
        let (mut best, mut preferred) = (quality(&accept, default.map_or("", |header| &header.value)), None);
        for template in &self.bodies {
            let quality = quality(&accept, template.content_type());
            if quality > best {
                (best, preferred) = (quality, Some(template));
            }
        }
        preferred
    }

    /// Adds headers to those of a reply. `header` reads a header of the request.
    #[inline(never)]
    pub(super) fn add<'a>(
        &'a self,
        values: &Values<'_>,
        header: &dyn Fn(&str) -> Option<Vec<u8>>,
        headers: &mut Vec<(&'a str, Cow<'a, str>)>,
    ) {
        for (name, template) in &self.headers {
            // Without a value, a header says less than it seems to.
            if template.parts.iter().all(|part| values.get(part.value).is_some_and(|value| !value.is_empty()))
            {
                push(headers, name, template.fill(values));
            }
        }
        if self.cors.is_some() || !self.bodies.is_empty() {
            push(headers, "vary", String::from("accept, origin"));
        }
        let Some(cors) = &self.cors else { return };
        let origin = text(header, "origin", LONGEST_ORIGIN);
        if let Some(origin) = cors.allowed(&origin) {
            let mut names = String::new();
            for (name, _) in headers.iter().filter(|(name, _)| !matches!(*name, "content-type" | "vary")) {
                let comma = if names.is_empty() { "" } else { ", " };
                append(&mut names, comma);
                append(&mut names, name);
            }
            push(headers, "access-control-allow-origin", origin.to_owned());
            push(headers, "access-control-expose-headers", names);
            if cors.credentials {
                push(headers, "access-control-allow-credentials", String::from("true"));
            }
        }
    }
}

/// Adds a header: not inlined, because it is done often and rarely.
#[inline(never)]
pub(super) fn push<'a>(headers: &mut Vec<(&'a str, Cow<'a, str>)>, name: &'a str, value: String) {
    headers.push((name, Cow::Owned(value)));
}

impl Cors {
    /// The value of `access-control-allow-origin` for this origin, if it is one of them.
    fn allowed<'a>(&'a self, origin: &'a str) -> Option<&'a str> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_allowed = |allowed: &&String| match cut(allowed, b'*') {
            (_, None) => *allowed == origin,
            ("", _) => !origin.is_empty(),
            (scheme, Some(domain)) => {
                let name = origin.strip_prefix(scheme).and_then(|rest| rest.strip_suffix(domain));
                name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_name))
            }
        };
        let allowed = self.origins.iter().find(is_allowed)?;
        Some(if allowed == "*" { "*" } else { origin })
    }
}

/// The quality of a content type by the media ranges of `accept`, in lower case without spaces, in thousandths: that of the most specific
/// range (RFC 9110 §12.5.1).
#[inline(never)]
fn quality(accept: &str, content_type: &str) -> u16 {
    let (kind, _) = cut(content_type, b';');
    let (mut best, mut ranges) = ((0, 0), Some(accept));
    for _ in 0..MAX_RANGES {
        let Some(all) = ranges else { break };
        let (range, rest) = cut(all, b',');
        ranges = rest;
        let (range, mut parameters) = cut(range, b';');
        let specific = match cut(range, b'*') {
            ("", Some("/*")) => 1,
            (group, Some("")) if group.ends_with('/') && kind.starts_with(group) => 2,
            // A client that reads JSON reads a problem, too.
            _ if range == "application/json" && kind.ends_with("+json") => 3,
            _ if range == kind && !kind.is_empty() => 4,
            _ => continue,
        };
        let mut quality = 1000;
        while let Some(all) = parameters {
            let (parameter, rest) = cut(all, b';');
            if let Some(of) = parameter.strip_prefix("q=") {
                quality = thousandths(of.as_bytes());
            }
            parameters = rest;
        }
        best = best.max((specific, quality));
    }
    best.1
}

/// A quality in thousandths; 0 if it is none.
fn thousandths(quality: &[u8]) -> u16 {
    match quality {
        [b'1', ..] => 1000,
        [b'0', b'.', places @ ..] if places.len() <= 3 && places.iter().all(u8::is_ascii_digit) => {
            let digits = places.iter().chain(b"000").take(3);
            digits.fold(0, |value: u16, digit| value.saturating_mul(10).saturating_add(u16::from(digit & 15)))
        }
        _ => 0,
    }
}
