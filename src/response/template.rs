// SPDX-License-Identifier: Apache-2.0
//! The operator's own texts in rejections: headers and bodies with placeholders, the headers for browsers on other origins (CORS), and
//! the choice of a body by the request's `accept`.
//!
//! A client can choose one value of a placeholder, the id of its request. Bodies escape every character of a value that could have a
//! meaning in them.

use core::fmt::Write as _;
use std::borrow::Cow;

/// The longest id of a request that a text shows, in bytes.
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
    /// The origins; `*` stands for names below a domain.
    pub origins: Vec<String>,
    /// True if they may when the request had credentials.
    pub credentials: bool,
}

/// The use of a text, which says how values are escaped in it.
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

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    kind: Kind,
    parts: Vec<Part>,
    /// The text after the last placeholder.
    rest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// The text before the placeholder.
    before: String,
    placeholder: Placeholder,
    /// True if the placeholder is a whole value of JSON, outside a string.
    is_json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    RetryAfter,
    Limit,
    Policy,
    RequestId,
}

/// The values of one rejection; an empty name is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The seconds of `retry-after`.
    pub(super) retry_after: Option<u64>,
    /// The first limit that denies the request.
    pub(super) limit: String,
    /// The policy that denies the request.
    pub(super) policy: String,
}

impl Kind {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Html => "text/html; charset=utf-8",
            Self::Header | Self::Text => "text/plain; charset=utf-8",
        }
    }

    /// Appends a value, which is of ASCII.
    fn escape(self, value: &str, out: &mut String) {
        for letter in value.chars() {
            let is_plain = letter.is_ascii_alphanumeric() || "-._".contains(letter);
            let _ = match self {
                Self::Json if !is_plain => write!(out, "\\u{:04x}", u32::from(letter)),
                Self::Html if !is_plain => write!(out, "&#{};", u32::from(letter)),
                _ => out.write_char(letter),
            };
        }
    }
}

impl Template {
    /// Reads a text. A word in braces is a placeholder; every other brace is part of the text.
    ///
    /// # Errors
    /// The name of an unknown placeholder.
    pub fn new(kind: Kind, text: &str) -> Result<Self, &str> {
        let (mut parts, mut before, mut in_string) = (Vec::new(), String::new(), false);
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            before.push_str(literal);
            in_string = ends_in_string(literal, in_string);
            let is_escaped = after.starts_with('{');
            let word = word(after.strip_prefix('{').unwrap_or(after));
            rest = after;
            match word {
                None => before.push('{'),
                // The second brace, which is next, is not to begin a placeholder.
                Some(word) if is_escaped => {
                    before.extend(["{", word]);
                    rest = after.get(word.len().saturating_add(1)..).unwrap_or_default();
                }
                Some(word) => {
                    let placeholder = match word {
                        "retry_after" => Placeholder::RetryAfter,
                        "limit" => Placeholder::Limit,
                        "policy" => Placeholder::Policy,
                        "request_id" => Placeholder::RequestId,
                        unknown => return Err(unknown),
                    };
                    let is_json = kind == Kind::Json && !in_string;
                    parts.push(Part { before: core::mem::take(&mut before), placeholder, is_json });
                    rest = after.get(word.len().saturating_add(1)..).unwrap_or_default();
                }
            }
        }
        before.push_str(rest);
        Ok(Self { kind, parts, rest: before })
    }

    /// The text with an example of each value: if this is JSON, the text is JSON with every value.
    #[must_use]
    pub fn example(&self) -> String {
        let name = || String::from("z");
        self.fill(&Values { retry_after: Some(1), limit: name(), policy: name() }, Some("z"))
    }

    pub(super) const fn content_type(&self) -> &'static str {
        self.kind.content_type()
    }

    /// The text with these values. A missing one is empty, or `null` in place of a value of JSON.
    pub(super) fn fill(&self, values: &Values, id: Option<&str>) -> String {
        let mut out = String::new();
        for Part { before, placeholder, is_json } in &self.parts {
            out.push_str(before);
            match (values.get(*placeholder, id), *is_json) {
                (None, false) => {}
                (None, true) => out.push_str("null"),
                (Some(value), true) if *placeholder != Placeholder::RetryAfter => {
                    out.push('"');
                    self.kind.escape(&value, &mut out);
                    out.push('"');
                }
                (Some(value), _) => self.kind.escape(&value, &mut out),
            }
        }
        out.push_str(&self.rest);
        out
    }
}

/// The word before the next closing brace, if nothing else is there.
fn word(text: &str) -> Option<&str> {
    let (word, _) = text.split_once('}')?;
    let is_word = word.starts_with(|first: char| first.is_ascii_alphabetic())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    is_word.then_some(word)
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

impl Values {
    fn get<'a>(&'a self, placeholder: Placeholder, id: Option<&'a str>) -> Option<Cow<'a, str>> {
        let name = |name: &'a str| Some(name).filter(|name| !name.is_empty()).map(Cow::from);
        match placeholder {
            Placeholder::RetryAfter => self.retry_after.map(|seconds| seconds.to_string().into()),
            Placeholder::Limit => name(&self.limit),
            Placeholder::Policy => name(&self.policy),
            Placeholder::RequestId => id.map(Cow::from),
        }
    }
}

/// A header of the request as text, if it has at most this many bytes of printable ASCII.
fn text(header: &dyn Fn(&str) -> Option<Vec<u8>>, name: &str, longest: usize) -> Option<String> {
    let is_text = |value: &Vec<u8>| {
        (1..=longest).contains(&value.len()) && value.iter().all(|byte| matches!(byte, b' '..=b'~'))
    };
    String::from_utf8(header(name).filter(is_text)?).ok()
}

impl Own {
    /// Adds the texts to a reply with these headers and this body. `header` reads a header of the request.
    pub(super) fn add<'a>(
        &'a self,
        values: &Values,
        is_grpc: bool,
        header: &dyn Fn(&str) -> Option<Vec<u8>>,
        headers: &mut Vec<(&'a str, Cow<'a, str>)>,
        body: &mut Cow<'a, str>,
    ) {
        let id = text(header, "x-request-id", LONGEST_ID);
        let id = id.as_deref();
        if !is_grpc {
            let kind = headers.iter_mut().find(|(name, _)| *name == "content-type");
            let default = kind.as_ref().map_or("", |(_, value)| value.as_ref());
            let accept = text(header, "accept", LONGEST_ACCEPT).unwrap_or_default();
            let other = self.preferred(default, &accept.to_ascii_lowercase());
            if let Some(template) = other.or(self.body.as_ref()) {
                *body = template.fill(values, id).into();
            }
            if let Some(template) = other {
                headers.retain(|(name, _)| *name != "content-type");
                headers.push(("content-type", template.content_type().into()));
            }
        }
        for (name, template) in &self.headers {
            // Without a value, a header says less than it seems to.
            if template.parts.iter().all(|part| values.get(part.placeholder, id).is_some()) {
                headers.push((name, template.fill(values, id).into()));
            }
        }
        let vary = match (&self.cors, self.bodies.is_empty()) {
            (None, true) => return,
            (None, false) => "accept",
            (Some(_), true) => "origin",
            (Some(_), false) => "accept, origin",
        };
        let origin = self.cors.as_ref().and_then(|cors| {
            let origin = text(header, "origin", LONGEST_ORIGIN)?;
            cors.allows(&origin).then_some((origin, cors.credentials))
        });
        if let Some((origin, credentials)) = origin {
            let names = headers.iter().map(|(name, _)| *name).filter(|name| *name != "content-type");
            let names = names.collect::<Vec<_>>().join(", ");
            headers.push(("access-control-allow-origin", origin.into()));
            headers.push(("access-control-expose-headers", names.into()));
            if credentials {
                headers.push(("access-control-allow-credentials", "true".into()));
            }
        }
        headers.push(("vary", vary.into()));
    }

    /// The body that a request with this `accept`, in lower case, prefers to the default of this type; the first of several.
    fn preferred(&self, default: &str, accept: &str) -> Option<&Template> {
        let (mut best, mut preferred) = (quality(accept, default), None);
        for template in &self.bodies {
            let quality = quality(accept, template.content_type());
            if quality > best {
                (best, preferred) = (quality, Some(template));
            }
        }
        preferred
    }
}

impl Cors {
    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| match allowed.split_once('*') {
            None => allowed == origin,
            Some((scheme, domain)) => {
                let name = origin.strip_prefix(scheme).and_then(|rest| rest.strip_suffix(domain));
                let is_name =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
                name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_name))
            }
        })
    }
}

/// The quality of a content type by the media ranges of `accept`, in thousandths: that of the most specific range (RFC 9110 §12.5.1).
fn quality(accept: &str, content_type: &str) -> u16 {
    let kind = content_type.split(';').next().unwrap_or_default();
    let (group, subtype) = kind.split_once('/').unwrap_or_default();
    let mut best = (0, 0);
    for range in accept.split(',').take(MAX_RANGES) {
        let mut parameters = range.split(';').map(str::trim);
        let specific = match parameters.next().and_then(|range| range.split_once('/')) {
            Some(("*", "*")) => 1,
            Some((of, "*")) if of == group => 2,
            // A client that reads JSON reads a problem, too.
            Some((of, "json")) if of == group && subtype.ends_with("+json") => 3,
            Some((of, sub)) if of == group && sub == subtype => 4,
            _ => continue,
        };
        let quality = parameters.find_map(|parameter| parameter.strip_prefix("q="));
        best = best.max((specific, quality.map_or(1000, thousandths)));
    }
    best.1
}

/// A quality in thousandths; 0 if it is none.
fn thousandths(quality: &str) -> u16 {
    match quality.split_once('.').unwrap_or((quality, "")) {
        ("1", _) => 1000,
        ("0", places) if places.len() <= 3 => format!("{places:0<3}").parse().unwrap_or_default(),
        _ => 0,
    }
}
