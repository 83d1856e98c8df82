// SPDX-License-Identifier: Apache-2.0
//! Places inside a string, as places in the text that the string is written in.

use super::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In lines of its own, each as far to the right as the first: YAML's `|`.
    Block,
    /// In quotes that begin at this byte.
    QuotedAtByte(usize),
    /// In quotes that begin at this character.
    QuotedAtChar(usize),
    /// Without quotes, as a word. Places inside it are not known.
    Plain,
    /// Otherwise. Places inside it are not known.
    Other,
}

impl Origin {
    /// The place in `text` of `inner`, a place in the string `decoded`, which begins at `start`.
    pub fn place(self, text: &str, start: Place, decoded: &str, inner: Place) -> Place {
        let byte = match self {
            Self::Block => {
                let line = start.line.saturating_add(inner.line).saturating_sub(1);
                return Place { line, column: start.column.saturating_add(inner.column).saturating_sub(1) };
            }
            Self::QuotedAtByte(byte) => Some(byte),
            Self::QuotedAtChar(chars) => text.char_indices().nth(chars).map(|(byte, _)| byte),
            Self::Plain | Self::Other => None,
        };
        let written = byte.and_then(|byte| text.get(byte..)).unwrap_or_default();
        let places = places(written, start);
        // Where the count differs, the string was written in a way that is not followed here.
        if places.len() != decoded.chars().count() {
            return start;
        }
        let before = decoded.split_inclusive('\n').take(inner.line.saturating_sub(1));
        let before: usize = before.map(|line| line.chars().count()).sum();
        let at = before.saturating_add(inner.column).saturating_sub(1);
        places.get(at).or(places.last()).copied().unwrap_or(start)
    }
}

/// The places of the characters of a string that is written in quotes, on one line or several.
fn places(written: &str, start: Place) -> Vec<Place> {
    let mut chars = written.chars().peekable();
    let Some(quote) = chars.next() else { return Vec::new() };
    let mut place = Place { column: start.column.saturating_add(1), ..start };
    let mut out = Vec::new();
    while let Some(next) = chars.next() {
        let here = place;
        place.column = place.column.saturating_add(1);
        let mut skip = |count: usize| {
            place.column = place.column.saturating_add(count);
            (0..count).filter_map(|_| chars.next()).collect::<String>()
        };
        match next {
            '\'' if quote == '\'' => {
                // Two of them are one.
                if chars.next_if_eq(&'\'').is_none() {
                    return out;
                }
                place.column = place.column.saturating_add(1);
                out.push(here);
            }
            '"' if quote == '"' => return out,
            '\\' if quote == '"' => match skip(1).chars().next() {
                Some('x') => {
                    skip(2);
                    out.push(here);
                }
                Some('u') => {
                    // Of a surrogate pair, the first half is no character.
                    let high = matches!(u32::from_str_radix(&skip(4), 16), Ok(0xd800..=0xdbff));
                    if !high {
                        out.push(here);
                    }
                }
                Some('U') => {
                    skip(8);
                    out.push(here);
                }
                _ => out.push(here),
            },
            // Lines are folded: what is known of places ends here.
            '\n' | '\r' => return Vec::new(),
            _ => out.push(here),
        }
    }
    out
}
