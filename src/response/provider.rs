// SPDX-License-Identifier: Apache-2.0
//! The rate-limit headers of language models' providers. They show one limit of requests and one of tokens, by names of their own.

use core::fmt::Write as _;

use super::answer::{PolicyAnswer, nearness};
use super::fields::Headers;
use super::named::NamedLimit;
use super::settings::Style;
use super::view::Counts;
use crate::time::{Date, Micros};

/// The names of the headers for the size of a limit, for what is left of it, and for when it is full again.
type Names = [&'static str; 3];

const OPENAI: [Names; 2] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
];

const ANTHROPIC: [Names; 2] = [
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
];

/// Adds the headers of the limit of requests that is nearest its end, and of the limit of tokens that is. Limits of requests in flight
/// have no place in them, nor have those of money, bytes and time: clients pace themselves by these headers, and count tokens.
pub(super) fn add(answers: &[PolicyAnswer<'_>], headers: &mut Headers) {
    for (style, names) in [(Style::OpenAi, OPENAI), (Style::Anthropic, ANTHROPIC)] {
        for (counts, [limit_name, remaining_name, reset_name]) in
            [Counts::Requests, Counts::Tokens].into_iter().zip(names)
        {
            let fits = |limit: &NamedLimit<'_>| limit.view.counts == counts && !limit.view.is_in_flight();
            let shown = answers.iter().filter(|answer| answer.shows(style));
            let nearest = shown
                .flat_map(NamedLimit::of)
                .filter(fits)
                .min_by_key(|limit| (nearness(limit.status), limit.quota()));
            let Some(limit) = nearest else { continue };
            let upstream = limit.answer.settings.upstream;
            headers.add_number(limit_name, limit.quota(), upstream);
            headers.add_number(remaining_name, limit.status.remaining, upstream);
            let mut reset = headers.value();
            match style {
                Style::Anthropic => {
                    let at = limit.answer.answer.decision().map_or(Micros::ZERO, |decision| decision.at);
                    rfc3339(at.plus(limit.status.reset), &mut reset);
                }
                _ => duration(limit.status.reset, &mut reset),
            }
            headers.add(reset_name, reset, upstream);
        }
    }
}

/// A span as OpenAI writes it: `17ms`, `1s`, `6m0s`; rounded up.
fn duration(span: Micros, out: &mut String) {
    let millis = span.as_millis_ceil();
    if millis < 1_000 && millis > 0 {
        let _ = write!(out, "{millis}ms");
        return;
    }
    let seconds = span.as_secs_ceil();
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    let _ = write!(out, "{seconds}s");
}

/// The last second of the year 9999, the last that RFC 3339 can write.
const LAST_SECOND: u64 = 253_402_300_799;

/// A time in RFC 3339, in UTC, to the second; rounded up.
fn rfc3339(time: Micros, out: &mut String) {
    let seconds = time.as_secs_ceil().min(LAST_SECOND);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let Date { year, month, day } = Date::of_day(days.cast_signed());
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_openai_writes_them() {
        let rows = [
            (0, "0s"),
            (1, "1ms"),
            (17_000, "17ms"),
            (999_001, "1s"),
            (1_000_001, "2s"),
            (360_000_000, "6m0s"),
            (3_600_000_000, "1h0m0s"),
            (90_061_000_000, "25h1m1s"),
        ];
        for (micros, wanted) in rows {
            let mut out = String::new();
            duration(Micros(micros), &mut out);
            assert_eq!(out, wanted, "{micros}");
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let rows = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_000_000, "2000-02-28T23:59:59Z"),
            (951_782_399_000_001, "2000-02-29T00:00:00Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00Z"),
            (1_735_689_599_000_000, "2024-12-31T23:59:59Z"),
            (1_735_689_600_000_000, "2025-01-01T00:00:00Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ];
        for (micros, wanted) in rows {
            let mut out = String::new();
            rfc3339(Micros(micros), &mut out);
            assert_eq!(out, wanted, "{micros}");
        }
    }
}
