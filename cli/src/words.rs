// SPDX-License-Identifier: Apache-2.0
//! Spans of time, limits and other people's bytes in words.

use core::ops::Range;
use std::path::Path;

use serde_json::Value;
use weir::config::duration_text;
use weir::limit::{Align, Limit, Period, Refill, RetryAfter, UtcOffset};
use weir::time::Micros;

/// A span of time, rounded up: `250 ms`, `41 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn span(span: Micros) -> String {
    const UNITS: [(u64, &str, u64, &str); 3] =
        [(86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")];
    if span < Micros::from_secs(1) {
        return format!("{} ms", span.as_millis_ceil());
    }
    for (unit, name, small, small_name) in UNITS {
        // Rounding up may fill a unit: 59.5 min are 1 h.
        let smalls = span.0.div_ceil(small.saturating_mul(1_000_000));
        let in_unit = unit.checked_div(small).unwrap_or(1);
        if smalls >= in_unit {
            let (units, rest) = (smalls / in_unit.max(1), smalls % in_unit.max(1));
            return if rest == 0 {
                format!("{units} {name}")
            } else {
                format!("{units} {name} {rest} {small_name}")
            };
        }
    }
    format!("{} s", span.as_secs_ceil())
}

/// A time to wait in milliseconds; `None` where there is none to say.
pub(super) fn millis(of: RetryAfter) -> Option<u64> {
    match of {
        RetryAfter::Now => Some(0),
        RetryAfter::After(span) => Some(span.as_millis_ceil()),
        RetryAfter::Unknown | RetryAfter::Never => None,
    }
}

/// A number of things: `1 request`, `2 requests`.
pub(super) fn count(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Describes a limit: `100 per 1m, sliding window`.
pub(super) fn limit(of: &Limit) -> String {
    match of {
        Limit::FixedWindow(of) => {
            let (window, from) = match of.align() {
                Align::Clock => (duration_text(of.window()), String::from("by the clock")),
                Align::First => (duration_text(of.window()), String::from("from its first request")),
                Align::Calendar(period, offset) => {
                    let from = match period {
                        Period::Month { anchor: anchor @ 2.. } => format!(" from day {anchor}"),
                        _ => String::new(),
                    };
                    (format!("{}{from}", name(period)), format!("by the calendar of {}", zone(offset)))
                }
            };
            format!("{} per {window}, fixed window {from}", of.limit())
        }
        Limit::SlidingLog(of) => format!("{} per {}, sliding log", of.limit(), duration_text(of.window())),
        Limit::Distinct(of) => {
            format!("{} different values per {}, distinct", of.limit(), duration_text(of.window()))
        }
        Limit::SlidingWindow(of) => {
            format!("{} per {}, sliding window", of.limit(), duration_text(of.window()))
        }
        Limit::TokenBucket(of) => {
            let steps = if of.how() == Refill::Stepwise { " in steps" } else { "" };
            let overdraft = match of.overdraft() {
                0 => String::new(),
                units => format!(", up to {units} in advance"),
            };
            let (refill, interval) = (of.refill(), duration_text(of.interval()));
            format!("{refill} per {interval}{steps}, {} at once{overdraft}, token bucket", of.capacity())
        }
        Limit::LeakyBucket(of) => {
            let held = match of.max_delay() {
                Micros::ZERO => String::new(),
                delay => format!(", then held for up to {}", duration_text(delay)),
            };
            format!(
                "{} per {}, {} at once{held}, leaky bucket",
                of.rate(),
                duration_text(of.per()),
                of.burst()
            )
        }
        Limit::Concurrency(of) => {
            format!("{} at the same time, ttl {}, concurrency", of.limit(), duration_text(of.ttl()))
        }
    }
}

/// Says when a limit is full again, which is in so long if no request comes.
pub(super) fn full_again(limit: &Limit, rest: Micros) -> String {
    match limit {
        // A worker renews the permit of a request that runs.
        Limit::Concurrency(_) => String::from("full again when all its requests end"),
        _ => format!("full again in {}", span(rest)),
    }
}

const fn name(period: Period) -> &'static str {
    match period {
        Period::Day => "day",
        Period::Week => "week",
        Period::Month { .. } => "month",
    }
}

fn zone(offset: UtcOffset) -> String {
    let minutes = offset.minutes();
    let (sign, away) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
    if away == 0 { String::from("UTC") } else { format!("UTC{sign}{:02}:{:02}", away / 60, away % 60) }
}

/// The name of a file, as all output has it.
pub(super) fn file(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// Escapes foreign text, so that it stays on its line, gives a terminal no commands, and repeats no login of a URL.
pub(super) fn printable(line: &str) -> String {
    let without_login =
        login(line).and_then(|login| Some([line.get(..login.start)?, "…", line.get(login.end..)?].concat()));
    let line = without_login.as_deref().unwrap_or(line);
    let mut shown = String::with_capacity(line.len());
    for next in line.chars() {
        if is_obeyed(next) { shown.extend(next.escape_debug()) } else { shown.push(next) }
    }
    shown
}

pub(super) fn lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// True if a terminal obeys a character instead of showing it, or shows the text around it in another order.
pub(super) fn is_obeyed(next: char) -> bool {
    next.is_control()
        || matches!(next, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A value as a line of JSON. Characters that a terminal obeys are escaped, which JSON allows in all strings.
pub(super) fn json_line(value: &Value) -> String {
    let mut line = json(value);
    line.push('\n');
    line
}

/// The same without the end of the line.
pub(super) fn json(value: &Value) -> String {
    let mut line = String::new();
    for next in value.to_string().chars() {
        if is_obeyed(next) {
            line.push_str(&format!("\\u{:04x}", u32::from(next)));
        } else {
            line.push(next);
        }
    }
    line
}

/// Rows as columns of equal width. Columns of these places are numbers, which end at the same place.
pub(super) fn table<R: AsRef<[String]>>(rows: &[R], numbers: &[usize]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        let cells = row.as_ref();
        widths.resize(cells.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            // No formatting of Rust is wider.
            *width = cell.chars().count().min(usize::from(u16::MAX)).max(*width);
        }
    }
    let line = |row: &R| {
        let cell = |(column, (text, &width)): (usize, (&String, &usize))| {
            if numbers.contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
        };
        let cells: Vec<String> = row.as_ref().iter().zip(&widths).enumerate().map(cell).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Returns the range of a URL's login in a line, if it has one: between the first `://` and the last `@`, because a password may have any
/// character.
pub(super) fn login(line: &str) -> Option<Range<usize>> {
    let start = line.find("://")?.saturating_add(3);
    line.rfind('@').filter(|end| *end > start).map(|end| start..end)
}

/// Bytes that others have written, so that a terminal obeys none of them: what is no printable ASCII is escaped.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => shown.push_str("\\\\"),
            b' '..=b'~' => shown.push(char::from(*byte)),
            _ => shown.extend(byte.escape_ascii().map(char::from)),
        }
    }
    shown
}

/// The same of what people have written, in the letters of their language.
pub(super) fn written(bytes: &[u8]) -> String {
    let mut written = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for next in chunk.valid().chars() {
            if is_obeyed(next) { written.extend(next.escape_debug()) } else { written.push(next) }
        }
        written.push_str(&shown(chunk.invalid()));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::config::Config;

    #[test]
    fn each_algorithm_in_words() {
        let rows = [
            (
                r#""fixed_window", "limit": 9, "window": "1h", "align": "clock""#,
                "9 per 1h, fixed window by the clock",
            ),
            (
                r#""fixed_window", "limit": 9, "window": "90s", "align": "first""#,
                "9 per 90s, fixed window from its first request",
            ),
            (
                r#""fixed_window", "limit": 9, "align": "month""#,
                "9 per month, fixed window by the calendar of UTC",
            ),
            (
                r#""fixed_window", "limit": 9, "align": "month", "anchor": 31"#,
                "9 per month from day 31, fixed window by the calendar of UTC",
            ),
            (
                r#""fixed_window", "limit": 9, "align": "day", "utc_offset": "-03:30""#,
                "9 per day, fixed window by the calendar of UTC-03:30",
            ),
            (r#""sliding_log", "limit": 2, "window": "1m""#, "2 per 1m, sliding log"),
            (r#""sliding_window", "limit": 100, "window": "1m""#, "100 per 1m, sliding window"),
            (r#""leaky_bucket", "rate": "5/s""#, "5 per 1s, 1 at once, leaky bucket"),
            (
                r#""leaky_bucket", "rate": "5/s", "burst": 9, "max_delay": "250ms""#,
                "5 per 1s, 9 at once, then held for up to 250ms, leaky bucket",
            ),
            (
                r#""token_bucket", "capacity": 9, "refill": 2, "interval": "1s""#,
                "2 per 1s, 9 at once, token bucket",
            ),
            (
                r#""token_bucket", "capacity": 9, "refill": 2, "interval": "1s", "mode": "stepwise", "overdraft": 3"#,
                "2 per 1s in steps, 9 at once, up to 3 in advance, token bucket",
            ),
            (r#""concurrency", "limit": 4, "ttl": "30s""#, "4 at the same time, ttl 30s, concurrency"),
        ];
        for (limit, wanted) in rows {
            let text = format!(
                r#"{{"policies": [{{"name": "p", "limits": [{{"name": "l", "algorithm": {limit}}}]}}]}}"#
            );
            let config = Config::parse(text.as_bytes()).unwrap();
            assert_eq!(super::limit(&config.policies[0].tiers.tiers[0].plan.limits()[0]), wanted, "{limit}");
        }
    }

    #[test]
    fn a_terminal_obeys_nothing_that_is_shown() {
        assert_eq!(shown(b"{\"a\": 1}"), "{\"a\": 1}");
        assert_eq!(shown(b"\x1b[2J\n\\\xff\0"), "\\x1b[2J\\n\\\\\\xff\\x00");
        let text = "Größe \u{1b}\u{9b}\u{202e}: C:\\a\n".as_bytes();
        let wanted = "Größe \\u{1b}\\u{9b}\\u{202e}: C:\\a\\n\\xff";
        assert_eq!(written(&[text, b"\xff"].concat()), wanted);
    }

    #[test]
    fn a_line_gives_no_commands_and_repeats_no_login() {
        for (line, wanted) in [
            ("plain ä é 日 \u{301}", "plain ä é 日 \u{301}"),
            ("\u{1b}[2J\u{9b}2J\r\n\t\u{7f}", "\\u{1b}[2J\\u{9b}2J\\r\\n\\t\\u{7f}"),
            ("a\u{202e}b\u{2066}\u{2028}", "a\\u{202e}b\\u{2066}\\u{2028}"),
            ("'redis://u:PASS@WORD /@h/1' is", "'redis://…@h/1' is"),
            ("redis://h:1 and b@c", "redis://…@c"),
            ("redis://h:1", "redis://h:1"),
            ("://@", "://@"),
        ] {
            assert_eq!(printable(line), wanted);
        }
        assert_eq!(lines("a://b@c\n\u{1b}\n"), "a://…@c\n\\u{1b}\n");
        assert_eq!(file(Path::new("a\nb\u{9b}")), "a\\nb\\u{9b}");
    }

    #[test]
    fn json_gives_no_commands_either() {
        for (text, wanted) in [
            ("plain ä é 日", "\"plain ä é 日\""),
            ("a\u{1b}[2J\u{9b}\u{7f}", "\"a\\u001b[2J\\u009b\\u007f\""),
            ("a\u{202e}b\u{2066}\u{2028}\u{61c}\u{200f}", "\"a\\u202eb\\u2066\\u2028\\u061c\\u200f\""),
        ] {
            assert_eq!(json(&text.into()), wanted);
            assert_eq!(serde_json::from_str::<Value>(wanted).unwrap(), Value::from(text));
        }
    }

    /// Formatting pads to 65,535 characters at most, and panics beyond.
    #[test]
    fn a_cell_of_any_length_is_printed() {
        let long = "s".repeat(70_000);
        let rows =
            [["SUBJECT".into(), "UNITS".into()], [long.clone(), "7".into()], ["ann".into(), "12".into()]];
        let printed = table(&rows, &[1]);
        assert!(printed.contains(&format!("{long}      7\n")), "{}", printed.lines().nth(1).unwrap().len());
        assert_eq!(printed.lines().count(), 3);
    }

    #[test]
    fn spans_are_rounded_up() {
        let rows = [
            (0, "0 ms"),
            (1, "1 ms"),
            (999_001, "1000 ms"),
            (1_000_000, "1 s"),
            (1_000_001, "2 s"),
            (59_000_001, "1 min"),
            (60_000_000, "1 min"),
            (200_000_000, "3 min 20 s"),
            (3_599_500_000, "1 h"),
            (7_500_000_000, "2 h 5 min"),
            (86_399_999_999, "1 d"),
            (273_600_000_000, "3 d 4 h"),
        ];
        for (micros, wanted) in rows {
            assert_eq!(span(Micros(micros)), wanted, "{micros}");
        }
    }
}
