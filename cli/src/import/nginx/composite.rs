// SPDX-License-Identifier: Apache-2.0
//! Texts of several variables, such as `map "$host:$uri"`, as tests on each of them.
//!
//! An entry is split where the first variable ends. That is known for certain where the character that follows is never in its value: no
//! method has a `:`, and no host a `/`.

use super::super::test::Test;
use super::variables::{
    Part, Source, expression, finds, is_address, search_test, source, text_test, unescaped,
};
use weir::policy::pattern::may_be_alternatives;

/// The maximum number of ways to split a string.
const MAX_WAYS: usize = 64;

/// The characters that have a special meaning in an expression unless they are escaped.
const META: &str = "\\.+*?()|[]{}^$";

/// True if weir has tests on the value of a variable.
pub fn has_tests(variable: &str) -> bool {
    is_address(variable)
        || ["request_method", "host", "http_host", "uri", "document_uri"].contains(&variable)
        || matches!(source(variable), Some(Source::Value(..)))
}

/// A test whether these parts together are what an entry of a map says.
pub fn test(parts: &[Part], entry: &str) -> Result<Test, String> {
    match (expression(entry), parts) {
        (None, _) => text(parts, unescaped(entry)),
        (Some((pattern, ignores_case)), parts) => {
            let (left, between, right) = match parts {
                [left @ Part::Variable(_), Part::Text(between), right @ Part::Variable(_)] => {
                    (Side::of(left), between.as_str(), Side::of(right))
                }
                [left @ Part::Variable(_), right @ Part::Variable(_)] => {
                    (Side::of(left), "", Side::of(right))
                }
                [Part::Text(text), Part::Variable(variable)] => {
                    if let Some(test) = behind(text, Side::Variable(variable), pattern, ignores_case) {
                        return test;
                    }
                    let last = text.chars().next_back().map_or(0, char::len_utf8);
                    let (text, between) =
                        text.split_at_checked(text.len().saturating_sub(last)).unwrap_or_default();
                    (Side::Text(text), between, Side::Variable(variable))
                }
                [Part::Variable(variable), Part::Text(text)] => {
                    let first = text.chars().next().map_or(0, char::len_utf8);
                    let (between, text) = text.split_at_checked(first).unwrap_or_default();
                    (Side::Variable(variable), between, Side::Text(text))
                }
                _ => return Err(TOO_MANY.to_owned()),
            };
            Split { left, between, right, ignores_case }.regex(pattern)
        }
    }
}

/// The test of an anchored expression on a variable behind this text; `None` if it is not easy to see what it finds in the text.
fn behind(text: &str, variable: Side<'_>, pattern: &str, ignores_case: bool) -> Option<Result<Test, String>> {
    if may_be_alternatives(pattern) {
        return None;
    }
    let mut rest = pattern.strip_prefix('^')?;
    for wanted in text.chars() {
        let (is_escaped, inner) = rest.strip_prefix('\\').map_or((false, rest), |inner| (true, inner));
        let next = inner.chars().next()?;
        let is_plain = if is_escaped { next.is_ascii_punctuation() } else { !META.contains(next) };
        rest = inner.get(next.len_utf8()..)?;
        if !is_plain || rest.starts_with(['*', '+', '?', '{']) {
            return None;
        }
        if next != wanted && !(ignores_case && next.eq_ignore_ascii_case(&wanted)) {
            return Some(Ok(Test::NEVER));
        }
    }
    Some(variable.found(&format!("^{rest}"), ignores_case))
}

const TOO_MANY: &str = "it is an expression for a text of more than two variables";

/// One test for each way in which the text can be split.
fn text(parts: &[Part], whole: &str) -> Result<Test, String> {
    let Some((first, rest)) = parts.split_first() else {
        return Ok(if whole.is_empty() { Test::Always } else { Test::NEVER });
    };
    match first {
        Part::Text(plain) => match whole.split_at_checked(plain.len()) {
            Some((before, after)) if before.eq_ignore_ascii_case(plain) => text(rest, after),
            _ => Ok(Test::NEVER),
        },
        Part::Variable(variable) => {
            if rest.is_empty() {
                return if may_be(variable, whole) { text_test(variable, whole) } else { Ok(Test::NEVER) };
            }
            let mut ways = Vec::new();
            let ends = whole.char_indices().map(|(at, _)| at).chain([whole.len()]);
            for (value, after) in ends.filter_map(|end| whole.split_at_checked(end)) {
                if !may_be(variable, value) {
                    continue;
                }
                let others = text(rest, after)?;
                if !others.is_never() {
                    ways.push(text_test(variable, value)?.and(others));
                }
                if ways.len() > MAX_WAYS {
                    return Err(format!("it can be split in more than {MAX_WAYS} ways"));
                }
            }
            Ok(Test::any_of(ways))
        }
    }
}

/// True if a variable may have this value at all.
pub fn may_be(variable: &str, value: &str) -> bool {
    let is_path = ["uri", "document_uri", "request_uri"].contains(&variable);
    let is_host = ["host", "http_host", "request_method"].contains(&variable) || is_address(variable);
    (!is_path || value.starts_with('/'))
        && (!is_host || !value.is_empty())
        && !value.chars().any(|next| is_never_in(variable, next))
        && (!is_address(variable) || value.parse::<core::net::IpAddr>().is_ok())
}

/// True if no value of a variable has this character.
fn is_never_in(variable: &str, next: char) -> bool {
    match variable {
        "host" => ['/', ':'].contains(&next),
        "http_host" => next == '/',
        "request_method" | "scheme" => !next.is_ascii_alphabetic(),
        _ if is_address(variable) => !next.is_ascii_hexdigit() && !['.', ':'].contains(&next),
        _ => false,
    }
}

/// A variable, or a string that is the same for all requests.
#[derive(Clone, Copy)]
enum Side<'a> {
    Text(&'a str),
    Variable(&'a str),
}

impl<'a> Side<'a> {
    fn of(part: &'a Part) -> Self {
        match part {
            Part::Text(text) => Self::Text(text),
            Part::Variable(name) => Self::Variable(name),
        }
    }

    fn never_has(self, next: char) -> bool {
        match self {
            Self::Text(text) => !text.contains(next),
            Self::Variable(name) => is_never_in(name, next),
        }
    }

    fn found(self, pattern: &str, ignores_case: bool) -> Result<Test, String> {
        match self {
            Self::Text(text) if finds(pattern, ignores_case, text)? => Ok(Test::Always),
            Self::Text(_) => Ok(Test::NEVER),
            Self::Variable(_) if pattern == "^" => Ok(Test::Always),
            Self::Variable(name) => search_test(name, pattern, ignores_case),
        }
    }
}

impl core::fmt::Display for Side<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Text(text) => write!(out, "{text:?}"),
            Self::Variable(name) => write!(out, "${name}"),
        }
    }
}

/// Two sides and the text between them. One side is a variable.
struct Split<'a> {
    left: Side<'a>,
    between: &'a str,
    right: Side<'a>,
    ignores_case: bool,
}

impl Split<'_> {
    fn regex(&self, pattern: &str) -> Result<Test, String> {
        // A path begins with a slash, which separates it from a host before it.
        let is_path = matches!(self.right, Side::Variable("uri" | "document_uri" | "request_uri"));
        let border = match self.between.chars().next() {
            Some(first) => first,
            None if is_path => '/',
            None => return Err(format!("nothing separates {} from {}", self.left, self.right)),
        };
        if border.is_alphanumeric() {
            return Err(format!("weir cannot split it at {:?}", self.between));
        }
        if !self.left.never_has(border) {
            return Err(format!("{} may have {border:?} in it", self.left));
        }
        let (anchored, ends) =
            (pattern.starts_with('^'), pattern.ends_with('$') && !pattern.ends_with("\\$"));
        let left = |pattern: &str| self.left.found(pattern, self.ignores_case);
        let right = |pattern: &str| self.right.found(pattern, self.ignores_case);
        let Some((before, after)) = split(pattern, border)? else {
            // The match is on one side of the border.
            return Ok(match (anchored, ends) {
                (true, true) => Test::NEVER,
                (true, false) => left(pattern)?,
                (false, true) => right(pattern)?,
                (false, false) => left(pattern)?.or(right(pattern)?),
            });
        };
        // The right side begins behind what is between both, or with the slash of a path.
        let after = match after.strip_prefix(regex_lite::escape(self.between).as_str()) {
            Some(after) => after,
            None => after.strip_prefix(self.between).ok_or_else(|| {
                format!("it has no {:?} between {} and {}", self.between, self.left, self.right)
            })?,
        };
        let across = match before {
            "^" => Test::NEVER,
            "" => right(&format!("^{after}"))?,
            before => left(&format!("{before}$"))?.and(right(&format!("^{after}"))?),
        };
        Ok(if anchored { across } else { across.or(right(pattern)?) })
    }
}

/// An expression before and from the first place that only this character can be at; nothing if it is nowhere. An escaped slash is a slash.
///
/// # Errors
/// The expression before it may find this character, too, so that the place is not known.
fn split(pattern: &str, border: char) -> Result<Option<(&str, &str)>, String> {
    let unsure = || format!("it may find {border:?} in several places");
    let mut depth = 0_usize;
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, next)) = chars.next() {
        match next {
            '\\' => match chars.next() {
                Some((from, escaped)) if escaped == border => {
                    return cut(pattern, at, from, depth, &unsure);
                }
                Some((_, 'd' | 'b' | '.' | '-' | '_' | '/' | ':')) => {}
                Some((_, 'w')) if !border.is_alphanumeric() && border != '_' => {}
                _ => return Err(unsure()),
            },
            _ if next == border && !META.contains(next) => return cut(pattern, at, at, depth, &unsure),
            '.' => return Err(unsure()),
            '[' => {
                let class: String =
                    chars.by_ref().map(|(_, next)| next).take_while(|next| *next != ']').collect();
                let has = class.contains(border);
                let is_negated = class.starts_with('^');
                // Ranges of letters and digits alone are clear.
                let is_clear = !class.contains(['\\', '[']) && !border.is_alphanumeric();
                if has != is_negated || !is_clear {
                    return Err(unsure());
                }
            }
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return Err(unsure()),
            _ => {}
        }
    }
    Ok(None)
}

/// Cuts at a border that is in no group and is not repeated.
fn cut<'p>(
    pattern: &'p str,
    at: usize,
    from: usize,
    depth: usize,
    unsure: &dyn Fn() -> String,
) -> Result<Option<(&'p str, &'p str)>, String> {
    let (before, after) = (pattern.get(..at).unwrap_or_default(), pattern.get(from..).unwrap_or_default());
    let is_repeated = after.get(1..).is_some_and(|rest| rest.starts_with(['*', '+', '?', '{']));
    let rest = after.get(1..).unwrap_or_default();
    if depth > 0 || is_repeated || may_be_alternatives(rest) {
        Err(unsure())
    } else {
        Ok(Some((before, after)))
    }
}
