// SPDX-License-Identifier: Apache-2.0
//! Spans of time, limits and other people's bytes in words.

use crate::config::duration_text;
use crate::limit::{Align, Limit, Period, Refill};
use crate::time::Micros;

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

/// What a limit allows.
pub(super) fn limit(of: &Limit) -> String {
    match of {
        Limit::FixedWindow(of) => {
            let window = match of.align() {
                Align::Clock => format!("{}, aligned to the clock", duration_text(of.window())),
                Align::First => duration_text(of.window()),
                Align::Calendar(Period::Day, _) => String::from("day"),
                Align::Calendar(Period::Week, _) => String::from("week"),
                Align::Calendar(Period::Month, _) => String::from("month"),
            };
            format!("fixed_window, {} per {window}", of.limit())
        }
        Limit::SlidingLog(of) => format!("sliding_log, {} per {}", of.limit(), duration_text(of.window())),
        Limit::SlidingWindow(of) => {
            format!("sliding_window, {} per {}", of.limit(), duration_text(of.window()))
        }
        Limit::TokenBucket(of) => {
            let steps = if of.how() == Refill::Stepwise { " in steps" } else { "" };
            let (refill, interval) = (of.refill(), duration_text(of.interval()));
            format!("token_bucket, {refill} per {interval}{steps}, capacity {}", of.capacity())
        }
        Limit::LeakyBucket(of) => {
            format!("leaky_bucket, {} per {}, burst {}", of.rate(), duration_text(of.per()), of.burst())
        }
        Limit::Concurrency(of) => format!("concurrency, {} in flight", of.limit()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_is_shown() {
        assert_eq!(shown(b"{\"a\": 1}"), "{\"a\": 1}");
        assert_eq!(shown(b"\x1b[2J\n\\\xff\0"), "\\x1b[2J\\n\\\\\\xff\\x00");
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
