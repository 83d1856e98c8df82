// SPDX-License-Identifier: Apache-2.0
//! HTML forms as `application/x-www-form-urlencoded`: pairs of a name and a value.
//!
//! Source: <https://url.spec.whatwg.org/#application/x-www-form-urlencoded>.

use super::fields::{Table, has_late_equals};
use super::values::MAX_TEXT;

/// The longest name as it is sent. No configuration has a longer one, and each of its bytes may be an escape.
const MAX_NAME: usize = 3 * 1024;

/// Reads the pairs of a form, in chunks that may be cut anywhere.
#[derive(Debug)]
pub(super) struct Urlencoded {
    /// The name of the pair that is being read, as it was sent.
    name: Vec<u8>,
    value: Vec<u8>,
    in_value: bool,
    /// The body has another type. So only the names of its pairs count, and what makes a form unreadable does not.
    only_names: bool,
}

impl Urlencoded {
    pub(super) const fn new() -> Self {
        Self { name: vec![], value: vec![], in_value: false, only_names: false }
    }

    /// Reads names in a body of another type. Each field that it puts into the table is unclear.
    pub(super) fn names() -> Self {
        Self { only_names: true, ..Self::new() }
    }

    /// More of it.
    pub(super) fn feed(&mut self, chunk: &[u8], table: &mut Table) {
        for &byte in chunk {
            match byte {
                b'&' => self.end(table),
                // Some servers end a pair here. Browsers write it as an escape.
                b';' if !self.only_names => table.refuse(),
                b'=' if !self.in_value => self.in_value = true,
                // One byte more than may be wanted shows that it is too long.
                _ if self.in_value && !self.only_names && self.value.len() <= 3 * MAX_TEXT => {
                    self.value.push(byte);
                }
                // Some servers read nothing of a form that is no UTF-8.
                _ if self.in_value && !byte.is_ascii() && !self.only_names => table.refuse(),
                _ if self.in_value => {}
                _ if self.name.len() < MAX_NAME => self.name.push(byte),
                _ if self.only_names => {}
                _ => table.refuse(),
            }
        }
    }

    /// A pair ends here.
    pub(super) fn end(&mut self, table: &mut Table) {
        let is_text = [&self.name, &self.value].iter().all(|raw| core::str::from_utf8(raw).is_ok());
        // Some servers take bytes for Latin-1 that are no escapes, and one drops white space at the end of a form.
        let is_clear = self.name.is_ascii()
            && self.value.is_ascii()
            && !has_late_equals(&self.value)
            && !self.value.last().is_some_and(u8::is_ascii_whitespace);
        let is_cut = self.only_names && self.name.len() == MAX_NAME;
        // The cut may be within an escape.
        let escape = self
            .name
            .iter()
            .rposition(|byte| *byte == b'%')
            .filter(|at| is_cut && at.saturating_add(2) >= MAX_NAME);
        self.name.truncate(escape.unwrap_or(MAX_NAME));
        let is_name = decode(&mut self.name);
        if self.only_names {
            table.put(&self.name, None);
            if is_cut && is_name {
                table.doubt(&self.name);
            }
        } else if is_name && is_text {
            let value = decode(&mut self.value).then_some(&*self.value).filter(|_| is_clear);
            table.put(&self.name, value);
        } else {
            // Of a wrong escape each server makes another name.
            table.refuse();
        }
        self.name.clear();
        self.value.clear();
        self.in_value = false;
    }
}

/// Decodes `+` and escapes. Returns `false` if an escape is wrong; then the text ends before it.
fn decode(text: &mut Vec<u8>) -> bool {
    let (mut from, mut to) = (0, 0);
    while let Some(&byte) = text.get(from) {
        from = from.saturating_add(1);
        let plain = match byte {
            b'+' => b' ',
            b'%' => {
                let end = from.saturating_add(2);
                let digits = text.get(from..end).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
                let Some(code) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
                    text.truncate(to);
                    return false;
                };
                from = end;
                code
            }
            byte => byte,
        };
        if let Some(place) = text.get_mut(to) {
            *place = plain;
        }
        to = to.saturating_add(1);
    }
    text.truncate(to);
    true
}
