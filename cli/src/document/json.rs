// SPDX-License-Identifier: Apache-2.0
//! Reads JSON with places. `serde_json` decides what JSON is, and says what is wrong; the walk below only finds the places.

use serde_json::Value;

use super::{Content, Node, Origin, Place, Wrong};

pub fn parse(text: &str) -> Result<Node, Wrong> {
    // A `Value` bounds the nesting, which `IgnoredAny` does not.
    serde_json::from_str::<Value>(text).map_err(|error| {
        let mark =
            if text.starts_with('\u{feff}') { ", because it begins with a byte order mark" } else { "" };
        let said = format!("$: found no JSON ({error}{mark}), allowed: a JSON object");
        (Place { line: error.line().max(1), column: error.column().max(1) }, said)
    })?;
    let mut walk = Walk { text, at: 0, place: Place::START };
    walk.value().ok_or((Place::START, String::from("$: found no JSON, allowed: a JSON object")))
}

/// A place in a valid JSON document.
struct Walk<'a> {
    text: &'a str,
    /// In bytes.
    at: usize,
    place: Place,
}

impl Walk<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at = self.at.saturating_add(next.len_utf8());
        if next == '\n' {
            self.place = Place { line: self.place.line.saturating_add(1), column: 1 };
        } else {
            self.place.column = self.place.column.saturating_add(1);
        }
        Some(next)
    }

    fn skip(&mut self, of: &[char]) {
        while self.rest().starts_with(of) {
            self.next();
        }
    }

    /// Returns the next character after white space, commas and colons. These are known to be where they belong.
    fn peek(&mut self) -> Option<char> {
        self.skip(&[' ', '\t', '\r', '\n', ',', ':']);
        self.rest().chars().next()
    }

    fn value(&mut self) -> Option<Node> {
        let first = self.peek()?;
        let (place, start) = (self.place, self.at);
        let mut origin = None;
        let content = match first {
            '{' => {
                self.next();
                let mut fields = Vec::new();
                while self.peek()? != '}' {
                    let place = self.place;
                    let name = self.string()?;
                    fields.push((name, place, self.value()?));
                }
                self.next();
                Content::Object(fields)
            }
            '[' => {
                self.next();
                let mut items = Vec::new();
                while self.peek()? != ']' {
                    items.push(self.value()?);
                }
                self.next();
                Content::List(items)
            }
            '"' => {
                origin = Some(Origin::QuotedAtByte(start));
                Content::Scalar(Value::from(self.string()?))
            }
            _ => {
                while self
                    .rest()
                    .starts_with(|next: char| next.is_ascii_alphanumeric() || "+-.".contains(next))
                {
                    self.next();
                }
                Content::Scalar(serde_json::from_str(self.text.get(start..self.at)?).ok()?)
            }
        };
        Some(Node { place, content, origin })
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        self.next();
        loop {
            match self.next()? {
                '"' => return serde_json::from_str(self.text.get(start..self.at)?).ok(),
                '\\' => self.next(),
                _ => None,
            };
        }
    }
}
