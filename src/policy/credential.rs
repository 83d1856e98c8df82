// SPDX-License-Identifier: Apache-2.0
//! The credential of a request: an API key or a token, wherever clients of different providers send it.
//!
//! Clients choose the bytes, and upstreams read them leniently. So a credential that an upstream may read in another way is ambiguous:
//! otherwise a client could spell one credential in many ways, and each spelling would be a subject of its own.

use std::borrow::Cow;

use super::key::LONGEST_HIDDEN;
use super::subject::{OnMultiple, Source, Value};
use crate::request::pairs::Semicolon;
use crate::request::{Request, Unreadable};

/// The places in which requests have their credential.
#[derive(Debug, PartialEq, Eq)]
pub struct Credential {
    places: Vec<Source>,
    /// The names of all places. No other list of places has the same.
    names: Vec<u8>,
}

impl Credential {
    /// In these headers, and in these query parameters.
    #[must_use]
    pub fn new<'a>(
        headers: impl Iterator<Item = &'a str>,
        (parameters, semicolon): (impl Iterator<Item = &'a str>, Semicolon),
    ) -> Self {
        let (mut places, mut names) = (Vec::new(), vec![u8::from(semicolon == Semicolon::Literal)]);
        // No byte of UTF-8 is 254 or 255.
        let mut add = |place: Source, kind: u8, name: &str| {
            places.push(place);
            names.push(kind);
            names.extend(name.bytes());
        };
        headers.for_each(|name| add(Source::Header(name.to_owned()), 254, name));
        parameters.for_each(|name| add(Source::Query(name.into(), semicolon), 255, name));
        Self { places, names }
    }

    /// The headers.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.places
            .iter()
            .filter_map(|place| if let Source::Header(name) = place { Some(name.as_str()) } else { None })
    }

    /// True if it has no places, so that no request has a credential.
    pub(crate) const fn is_nowhere(&self) -> bool {
        self.places.is_empty()
    }

    /// Identifies the places: a digest that is kept for this request belongs to these names.
    pub(super) fn names(&self) -> &[u8] {
        &self.names
    }

    /// The credential of `request`. Places that have the same one count as one place.
    pub(super) fn read<'a: 'r, 'r>(
        &'a self,
        on_multiple: OnMultiple,
        request: &'r Request<'a>,
    ) -> Result<Value<'r>, Unreadable> {
        let mut found = Value::Absent;
        for place in &self.places {
            let sent = match place.read(on_multiple, request)? {
                Value::Is(sent) if sent.len() > LONGEST_HIDDEN => return Ok(Value::Ambiguous),
                Value::Is(sent) if sent.trim_ascii().is_empty() => continue,
                Value::Is(sent) => sent,
                Value::Absent => continue,
                Value::Ambiguous => return Ok(Value::Ambiguous),
            };
            let of_place = if place.has_scheme() { after_scheme } else { word };
            let token = match sent {
                Cow::Borrowed(sent) => of_place(sent).map(Cow::Borrowed),
                Cow::Owned(sent) => of_place(&sent).map(|token| Cow::Owned(token.to_vec())),
            };
            let Some(token) = token.map(Value::Is) else { return Ok(Value::Ambiguous) };
            match on_multiple {
                OnMultiple::First => return Ok(token),
                OnMultiple::Last => found = token,
                _ if found == Value::Absent || found == token => found = token,
                OnMultiple::Deny | OnMultiple::Join => return Ok(Value::Ambiguous),
            }
        }
        Ok(found)
    }
}

/// The token of `authorization: Bearer TOKEN`, whatever the scheme is, or of `authorization: TOKEN`. `None` if it is ambiguous, or has
/// parameters: a signature is another one in each request. Rails also reads `TOKEN;x` and `token=TOKEN`, and Laravel `1|TOKEN`.
fn after_scheme(sent: &[u8]) -> Option<&[u8]> {
    let sent = sent.trim_ascii();
    let (scheme, token) = sent.split_at(sent.iter().position(u8::is_ascii_whitespace).unwrap_or_default());
    let (scheme, token) = (word(scheme)?, word(token)?);
    let is_clear = !token.contains(&b';') && (!scheme.eq_ignore_ascii_case(b"basic") || is_canonical(token));
    let token = token.strip_prefix(b"token=").unwrap_or(token);
    let digits = token.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let behind = token.get(digits..).and_then(|behind| behind.strip_prefix(b"|"));
    is_clear.then_some(behind.unwrap_or(token))
}

/// A credential without spaces around it. Some upstreams ignore spaces within it too, or bytes beyond ASCII, and take a comma or a
/// quote for its end: then it is ambiguous.
fn word(sent: &[u8]) -> Option<&[u8]> {
    let word = sent.trim_ascii();
    word.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"')).then_some(word)
}

/// True if no other base64 has the same bytes, also for a decoder that ignores what it does not know.
fn is_canonical(base64: &[u8]) -> bool {
    let digits = base64.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last.saturating_add(1));
    let unused = match base64.len().saturating_sub(digits) {
        0 => 0,
        1 => 0b11,
        2 => 0b1111,
        _ => return false,
    };
    let mut values = base64.iter().take(digits).map(|&byte| match byte {
        b'A'..=b'Z' => Some(byte.wrapping_sub(b'A')),
        b'a'..=b'z' => Some(byte.wrapping_sub(b'a').wrapping_add(26)),
        b'0'..=b'9' => Some(byte.wrapping_sub(b'0').wrapping_add(52)),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    });
    let last = values.try_fold(0_u8, |_, value| value);
    base64.len().is_multiple_of(4) && last.is_some_and(|last| last & unused == 0)
}
