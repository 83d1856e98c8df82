// SPDX-License-Identifier: Apache-2.0
//! Regular expressions that match whole values, with a bound on what one search costs.
//!
//! A search takes time in proportion to the value's length and to the size of the program. Their product is bounded: a larger
//! program searches shorter values, and a longer value is not searched.

use regex_lite::{Regex, RegexBuilder};

use super::normal::fold;
use crate::request::{Request, pairs::Sent};

/// The longest value that any regular expression is tried on, in bytes.
pub const MAX_SEARCHED: usize = 4096;

/// The most that one search may cost, in bytes times the size of the program: about 100 µs in WebAssembly.
pub const MAX_STEPS: usize = 32 * 1024;

/// The largest program: it still searches values of 64 bytes.
pub const MAX_PROGRAM: usize = MAX_STEPS / 64;

/// The cost of starting a search, in bytes.
const START_COST: usize = 8;

/// The largest compiled program, in bytes. Only bounds memory: [`MAX_PROGRAM`] is reached first.
const MAX_COMPILED: usize = 256 * 1024;

/// A regular expression that must match a whole value.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    size: usize,
    beginning: Box<str>,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn new(text: &str) -> Result<Self, String> {
        // On its own first: `a)|(b` is invalid, but would become valid between the parentheses of `^(?:…)$`.
        let size = size(text);
        if size > MAX_PROGRAM {
            return Err(format!(
                "a program of {size} steps, where {MAX_PROGRAM} are allowed: write a shorter expression or lower repetitions"
            ));
        }
        compile(text)?;
        Ok(Self { regex: compile(&format!("^(?:{text})$"))?, size, beginning: beginning(text).into() })
    }

    /// The same, but that a `/` may follow. Not for an expression that [looks at the end](Self::looks_at_end).
    #[must_use]
    pub fn with_slash(&self) -> Option<Self> {
        let regex = compile(&format!("^(?:{})/?$", self.text())).ok()?;
        Some(Self { regex, size: self.size.saturating_add(2), beginning: self.beginning.clone() })
    }

    /// The same for values in small letters, whatever the case of its own.
    #[must_use]
    pub fn without_case(&self) -> Option<Self> {
        let anchored = |text: &str| compile(&format!("^(?:(?i){text})$"));
        let regex = anchored(&small(self.text())).or_else(|_| anchored(self.text())).ok()?;
        Some(Self { regex, size: self.size, beginning: String::new().into() })
    }

    /// True if it may look at the end of a value: such an expression matches nothing before a slash that follows.
    #[must_use]
    pub fn looks_at_end(&self) -> bool {
        self.text().contains('$') || self.text().contains(r"\z")
    }

    /// The expression as the operator wrote it, without the `^(?:` and `)$` around it.
    #[must_use]
    pub fn text(&self) -> &str {
        let text = self.regex.as_str();
        text.strip_prefix("^(?:").and_then(|text| text.strip_suffix(")$")).unwrap_or(text)
    }

    /// The beginning of each value that matches.
    #[must_use]
    pub const fn beginning(&self) -> &str {
        &self.beginning
    }

    /// The length of the longest value that is searched, in bytes as they were sent.
    #[must_use]
    pub fn longest(&self) -> usize {
        MAX_STEPS.checked_div(self.size).unwrap_or(MAX_SEARCHED).min(MAX_SEARCHED)
    }
}

/// Compiles an expression, in which a `.` also stands for the end of a line.
///
/// # Errors
/// What is wrong with it.
pub fn compile(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.dot_matches_new_line(true).size_limit(MAX_COMPILED).build().map_err(|error| error.to_string())
}

/// The expression for values in small letters. ASCII stays as it is.
fn small(text: &str) -> String {
    let (mut folded, mut at) = (String::with_capacity(text.len()), 0_usize);
    while let Some(letter) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let end = at.saturating_add(letter.len_utf8());
        let rest = text.get(end..).unwrap_or_default();
        let is_name = rest.starts_with("?P<") || rest.starts_with("?<");
        let end = match letter {
            '[' => end.saturating_add(class(rest)),
            '(' if is_name => end.saturating_add(rest.find('>').unwrap_or(0)),
            '\\' => end.saturating_add(rest.chars().next().map_or(0, char::len_utf8)),
            _ => end,
        };
        let written = text.get(at..end).unwrap_or_default();
        match letter {
            '[' => add_small(written, &mut folded),
            _ if letter.is_ascii() => folded.push_str(written),
            // All that it becomes may be repeated.
            _ => folded.extend(["(?:", &fold(written), ")"]),
        }
        at = end;
    }
    folded
}

/// Adds a class, and to its letters and ranges beyond ASCII those in small letters.
fn add_small(class: &str, out: &mut String) {
    let Some(inner) = class.strip_suffix(']') else { return out.push_str(class) };
    out.push_str(inner);
    let small = |letter: char| {
        let folded = fold(letter.encode_utf8(&mut [0; 4]));
        let mut letters = folded.chars();
        letters.next().filter(|_| letters.next().is_none())
    };
    let items = inner.strip_prefix('[').unwrap_or(inner);
    let mut letters = items.strip_prefix('^').unwrap_or(items).chars();
    while let Some(first) = letters.next() {
        // A class within, such as `\d`, or a sign.
        if first == '\\' {
            letters.next();
            continue;
        }
        let mut last = first;
        let mut ahead = letters.clone();
        if let (Some('-'), Some(end)) = (ahead.next(), ahead.next()) {
            (last, letters) = (end, ahead);
        }
        let (Some(first), Some(last)) = (small(first), small(last)) else { continue };
        if !(first.is_ascii() && last.is_ascii()) && first <= last {
            out.extend([first, '-', last]);
        }
    }
    out.push(']');
}

/// The characters at the beginning of an expression that stand for themselves, in each value that matches. ASCII only: other bytes
/// of a value may be searched as U+FFFD.
#[must_use]
pub fn beginning(text: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii() && !b"\\.+*?()|[]{}^$".contains(&byte);
    let length = text.bytes().position(|byte| !is_plain(byte)).unwrap_or(text.len());
    let rest = text.get(length..).unwrap_or_default();
    let length = match rest.as_bytes().first() {
        _ if may_be_alternatives(rest) => 0,
        // The repetition belongs to the last of them.
        Some(b'*' | b'?' | b'{' | b'+') => length.saturating_sub(1),
        _ => length,
    };
    text.get(..length).unwrap_or_default()
}

/// True if a `|` may be outside of all groups.
#[must_use]
pub fn may_be_alternatives(text: &str) -> bool {
    let (mut depth, mut at) = (0_usize, 0_usize);
    while let Some(byte) = text.as_bytes().get(at) {
        at = at.saturating_add(1);
        let rest = text.get(at..).unwrap_or_default();
        match byte {
            b'|' if depth == 0 => return true,
            // The flag `x` begins comments, in which parentheses and brackets mean nothing.
            b'(' if rest.starts_with('?') && !rest.starts_with("?:") => return rest.contains('|'),
            b'(' => depth = depth.saturating_add(1),
            b')' => depth = depth.saturating_sub(1),
            b'[' => at = at.saturating_add(class(rest)),
            b'\\' => at = at.saturating_add(1),
            _ => {}
        }
    }
    false
}

/// The remaining search budget of one condition, over all readings of a request: many short values cost as much as one long value.
pub struct Searches<'r, 'a> {
    request: Option<&'r Request<'a>>,
    bytes: usize,
}

impl<'r, 'a> Searches<'r, 'a> {
    /// The searches of a condition on `request`.
    #[must_use]
    pub const fn new(request: &'r Request<'a>) -> Self {
        Self { request: Some(request), bytes: 0 }
    }

    /// The searches of a condition on a response.
    #[must_use]
    pub const fn of_response() -> Self {
        Self { request: None, bytes: 0 }
    }

    /// True if all of `value` matches; `None` if this value, or the values before it together, are too long to be searched. A value that
    /// does not begin as the expression does costs no search. Bytes that are not UTF-8 are searched as U+FFFD.
    pub fn search(&mut self, pattern: &Pattern, value: Sent<'_>) -> Option<bool> {
        if !value.begins_with(pattern.beginning().as_bytes()) {
            return Some(false);
        }
        let length = value.sent_length();
        self.bytes = self.bytes.saturating_add(length);
        if self.bytes > pattern.longest() {
            return None;
        }
        self.bytes = self.bytes.saturating_add(START_COST);
        let steps = length.saturating_add(START_COST).saturating_mul(pattern.size);
        if let Some(request) = self.request {
            request.count(|effort| effort.steps = effort.steps.saturating_add(steps));
        }
        Some(pattern.regex.is_match(&String::from_utf8_lossy(&value.value())))
    }
}

/// An upper bound of the states in the program of a regular expression: its characters, multiplied by the repetitions around it, and what
/// joins them. It depends on the text alone, so that every build of weir has the same bounds.
#[must_use]
pub fn size(text: &str) -> usize {
    // For each open group: the size of what is before it, and of what is in it until now.
    let mut open: Vec<usize> = Vec::new();
    let mut total = FIXED;
    // The size of the last item, which a repetition multiplies.
    let mut last = 0_usize;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = rest.get(first.len_utf8()..).unwrap_or_default();
        let mut add = |size: usize| {
            last = size;
            total = total.saturating_add(size).min(MAX_SIZE);
        };
        rest = match first {
            '(' => {
                open.push(total);
                total = total.saturating_add(3);
                after
            }
            ')' => {
                let before = open.pop().unwrap_or(FIXED);
                last = total.saturating_sub(before);
                after
            }
            '[' => {
                let length = class(after);
                add(1_usize.saturating_add(length / 4));
                after.get(length..).unwrap_or_default()
            }
            '\\' => {
                add(2);
                let escaped = after.chars().next().map_or(0, char::len_utf8);
                after.get(escaped..).unwrap_or_default()
            }
            '*' | '+' | '?' => {
                total = total.saturating_add(2);
                last = last.saturating_add(2);
                after
            }
            '{' => {
                let (times, length) = repetition(after);
                let once = last.saturating_add(2);
                let more = once.saturating_mul(times).min(MAX_SIZE);
                total = total.saturating_sub(last).saturating_add(more).min(MAX_SIZE);
                last = more;
                after.get(length..).unwrap_or_default()
            }
            '|' => {
                add(2);
                after
            }
            _ => {
                add(1);
                after
            }
        };
    }
    total
}

/// The states that every expression has: `^`, `$`, the capture of the whole, the match.
const FIXED: usize = 6;

/// The largest size that is counted.
const MAX_SIZE: usize = 1_000_000;

/// The length of a class after its `[`, with its `]`.
fn class(text: &str) -> usize {
    let bytes = text.as_bytes();
    let begin = if bytes.first() == Some(&b'^') { 1 } else { 0 };
    let mut at: usize = begin;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b']' if at > begin => return at.saturating_add(1),
            b'\\' => at.saturating_add(2),
            b'[' if bytes.get(at.saturating_add(1)) == Some(&b':') => {
                let rest = bytes.get(at..).unwrap_or_default();
                let end = rest.windows(2).position(|pair| pair == b":]");
                at.saturating_add(end.map_or(1, |end| end.saturating_add(2)))
            }
            _ => at.saturating_add(1),
        };
    }
    bytes.len()
}

/// Returns how often `{n}`, `{n,}` or `{n,m}` repeats at most in the program, and its length after the `{`.
fn repetition(text: &str) -> (usize, usize) {
    let Some(length) = text.find('}') else { return (1, 0) };
    let numbers = text.get(..length).unwrap_or_default();
    let number = |digits: &str| digits.parse::<u16>().map_or(MAX_SIZE, usize::from);
    let times = numbers.split(',').map(str::trim).filter(|digits| !digits.is_empty()).map(number).max();
    // `{n,}` repeats the last one for ever, which is one more.
    (times.unwrap_or(1).saturating_add(1), length.saturating_add(1))
}
