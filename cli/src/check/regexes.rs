// SPDX-License-Identifier: Apache-2.0
//! Expressions that look as if they were searched for within a value; and the worst time of each, measured on the longest values that the
//! filter searches.

use std::time::{Duration, Instant};

use super::warning::{code, warning};
use crate::finding::Finding;
use weir::policy::matcher::{Condition, PathTest, ValueTest};
use weir::policy::pattern::{self, Pattern, Searches};
use weir::request::Request;
use weir::request::client_ip::Trust;
use weir::request::pairs::Sent;
use weir::request::sample::Sample;

/// A part of a request in which an expression is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Path,
    /// It has one word among many.
    UserAgent,
    Value,
}

/// Says what an expression does not match, and what to write, if it was probably meant to match a part of the whole.
pub fn partial(pattern: &Pattern, place: Place) -> Option<(String, &'static str)> {
    let whole = pattern.text();
    let is_plain = pattern::beginning(whole) == whole;
    let text = without_flags(whole);
    let begins = pattern::beginning(text.trim_start_matches('^'));
    if place == Place::Path && !is_plain && !begins.is_empty() && !begins.starts_with('/') {
        let reason = format!("a path begins with `/`, so `{whole}` matches none");
        return Some((reason, "Begin the expression with `/`, or with `.*`"));
    }
    let advice = match (text.starts_with('^'), text.ends_with('$') && !text.ends_with("\\$")) {
        (true, false) if !is_open_after(text) => "Write `prefix`, or end the expression with `.*` or `$`",
        (false, true) if !is_open_before(text) => "Begin the expression with `.*` or `^`",
        _ if text.is_empty() => return None,
        (false, false) if place == Place::UserAgent && !repeats(text) => {
            "Write `.*` before and after it, or `exact` or `in` for the whole value"
        }
        (false, false) if is_plain && place == Place::Value => "Write `exact`, or `.*` before and after it",
        (false, false) if is_plain && !text.starts_with('/') => "Write `prefix`, or `.*` before and after it",
        _ => return None,
    };
    let what = if place == Place::Path { "path" } else { "value" };
    let reason = format!("the whole {what} has to match, so `{whole}` does not match a longer {what}");
    Some((reason, advice))
}

/// An expression without flags such as `(?i)` before it.
fn without_flags(text: &str) -> &str {
    let flags = text.strip_prefix("(?").and_then(|rest| rest.split_once(')'));
    flags
        .filter(|(flags, _)| flags.bytes().all(|flag| flag.is_ascii_lowercase()))
        .map_or(text, |(_, rest)| rest)
}

fn repeats(text: &str) -> bool {
    text.contains(['*', '+', '{'])
}

/// True if an expression may match a string of any length at its end.
fn is_open_after(text: &str) -> bool {
    text.ends_with(['*', '+', '?', '}']) || text.ends_with(')') && repeats(text)
}

/// The same at its beginning.
fn is_open_before(text: &str) -> bool {
    pattern::beginning(text).is_empty() && repeats(text)
}

/// The maximum time of one search.
const MOST: Duration = Duration::from_millis(1);

/// Warns of the expressions at these places that take longer.
pub fn warnings(patterns: &[(String, &Pattern)], found: &mut Vec<Finding>) {
    // Without optimisations, this program is many times slower than the filter. A browser has no such clock.
    if !cfg!(debug_assertions) && !cfg!(target_arch = "wasm32") {
        slower(patterns, measured, found);
    }
}

fn slower(patterns: &[(String, &Pattern)], measure: fn(&Pattern) -> Duration, found: &mut Vec<Finding>) {
    for (path, pattern) in patterns {
        let worst = measure(pattern);
        if worst > MOST {
            let reason = format!(
                "the regular expression {:?} takes {} µs on a value of {} bytes, and delays all requests of its worker by that",
                pattern.text(),
                worst.as_micros(),
                pattern.longest()
            );
            let advice = "Write a shorter expression, lower repetitions, or `exact`, `prefix` or `in`";
            found.push(warning(code::SLOW_REGEX, path.clone(), reason, advice));
        }
    }
}

/// The expression of a single condition.
pub fn of_condition(condition: &Condition) -> Option<&Pattern> {
    match condition {
        Condition::Path(PathTest::Regex(pattern)) => {
            Some(pattern.with_slash.as_ref().unwrap_or(&pattern.exact))
        }
        Condition::Header(_, test)
        | Condition::Query(_, _, test)
        | Condition::Cookie(_, test)
        | Condition::Attribute(_, test)
        | Condition::Body(_, test) => of_value(test),
        _ => None,
    }
}

pub fn of_value(test: &ValueTest) -> Option<&Pattern> {
    match test {
        ValueTest::Normalized(_, test) => of_value(test),
        ValueTest::Regex(pattern) => Some(pattern),
        _ => None,
    }
}

/// The time of the slowest search that was found. Of several searches of the same value the fastest counts: what makes one slower
/// is the machine.
fn measured(pattern: &Pattern) -> Duration {
    values(pattern).iter().map(|value| search(pattern, value)).max().unwrap_or_default()
}

/// Values of the greatest length, on which the search goes on to the end: each character of the expression again and again, and its
/// text again and again; after what each value that matches begins with.
fn values(pattern: &Pattern) -> Vec<Vec<u8>> {
    let plain: Vec<u8> = pattern.text().bytes().filter(u8::is_ascii_alphanumeric).collect();
    let mut single: Vec<u8> = [plain.as_slice(), b"a0-/ "].concat();
    single.sort_unstable();
    single.dedup();
    let mut units: Vec<Vec<u8>> = single.into_iter().take(32).map(|byte| vec![byte]).collect();
    units.push(plain);
    let beginning = pattern.beginning().as_bytes();
    let value = |unit: &Vec<u8>| {
        beginning.iter().chain(unit.iter().cycle()).take(pattern.longest()).copied().collect()
    };
    units.iter().filter(|unit| !unit.is_empty()).map(value).collect()
}

/// Redis and Envoy tell the filter the time; a measurement needs this machine's.
#[expect(clippy::disallowed_methods, reason = "a measurement of this machine")]
fn search(pattern: &Pattern, value: &[u8]) -> Duration {
    let (sample, trust) = (Sample::default(), Trust::default());
    let request = Request::new(&sample, &trust);
    let once = |_| {
        let mut searches = Searches::new(&request);
        let begun = Instant::now();
        let matches = searches.search(pattern, Sent::plain(value));
        let took = begun.elapsed();
        std::hint::black_box(matches);
        took
    };
    (0..3).map(once).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::conditions::leaves;
    use super::*;
    use weir::config::Config;

    #[test]
    fn an_expression_is_reported_by_what_was_measured() {
        let pattern = Pattern::new("/[a-z]+").unwrap();
        let patterns = [(String::from("policies[0].match"), &pattern)];
        for (took, said) in [(999, None), (1_000, None), (1_001, Some("1001 µs"))] {
            let mut found = Vec::new();
            let measure: fn(&Pattern) -> Duration = match took {
                999 => |_| Duration::from_micros(999),
                1_000 => |_| Duration::from_micros(1_000),
                _ => |_| Duration::from_micros(1_001),
            };
            slower(&patterns, measure, &mut found);
            let reason = found.first().map(|warning| warning.reason.as_str());
            assert_eq!(reason.is_some(), said.is_some(), "{took}");
            assert!(reason.zip(said).is_none_or(|(reason, said)| reason.contains(said)), "{reason:?}");
        }
    }

    #[test]
    fn each_condition_has_its_expression() {
        for test in [
            r#""path": {"regex": "x+"}"#,
            r#""header": {"name": "a", "regex": "x+"}"#,
            r#""query": {"name": "a", "regex": "x+", "normalize": ["trim"]}"#,
            r#""cookie": {"name": "a", "regex": "x+", "normalize": ["trim", "lowercase"]}"#,
            r#""jwt_claim": {"claim": ["a"], "regex": "x+"}"#,
            r#""body_json": {"path": "a", "regex": "x+"}"#,
        ] {
            let config = format!(
                r#"{{"policies": [{{"name": "p", "match": {{{test}}},
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}]}}]}}"#
            );
            let config = Config::parse(config.as_bytes()).unwrap();
            assert!(
                leaves(&config.policies[0].matcher).into_iter().any(|of| of_condition(of).is_some()),
                "{test}"
            );
        }
    }

    #[test]
    fn values_are_as_long_as_the_filter_searches_and_begin_so_that_it_does() {
        for text in ["/[a-z]+", "abc(d|e)*f", "", "[0-9]{1,64}", "x*"] {
            let pattern = Pattern::new(text).unwrap();
            let values = values(&pattern);
            assert!(!values.is_empty(), "{text}");
            for value in values {
                assert_eq!(value.len(), pattern.longest(), "{text}");
                assert!(value.starts_with(pattern.beginning().as_bytes()), "{text}");
            }
            assert!(measured(&pattern) > Duration::ZERO, "{text}");
        }
    }
}
