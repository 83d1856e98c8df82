// SPDX-License-Identifier: Apache-2.0
//! Limits in words: `100 per 1m, sliding window; 37 left, whole again in 41 s`.

use crate::cli::words::span;
use crate::config::duration_text;
use crate::limit::{Align, Limit, LimitOutcome, Period, Refill, UtcOffset};
use crate::time::Micros;

/// What a limit allows.
pub fn allows(of: &Limit) -> String {
    match of {
        Limit::FixedWindow(of) => {
            let (window, from) = match of.align() {
                Align::Clock => (duration_text(of.window()), String::from("by the clock")),
                Align::First => (duration_text(of.window()), String::from("from its first request")),
                Align::Calendar(period, offset) => {
                    (String::from(name(period)), format!("by the calendar of {}", zone(offset)))
                }
            };
            format!("{} per {window}, fixed window {from}", of.limit())
        }
        Limit::SlidingLog(of) => format!("{} per {}, sliding log", of.limit(), duration_text(of.window())),
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
            format!(
                "{} at the same time, each for at most {}, concurrency",
                of.limit(),
                duration_text(of.ttl())
            )
        }
    }
}

const fn name(period: Period) -> &'static str {
    match period {
        Period::Day => "day",
        Period::Week => "week",
        Period::Month => "month",
    }
}

fn zone(offset: UtcOffset) -> String {
    let minutes = offset.minutes();
    let (sign, away) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
    if away == 0 { String::from("UTC") } else { format!("UTC{sign}{:02}:{:02}", away / 60, away % 60) }
}

/// What it has left; `kept` of that is for requests of other classes.
pub fn has_left(limit: &Limit, answer: &LimitOutcome, kept: u64) -> String {
    let left = match u64::try_from(answer.remaining) {
        Ok(left) => format!("{left} left"),
        Err(_) => format!("none left, and {} taken in advance", answer.remaining.unsigned_abs()),
    };
    let kept = if kept == 0 { String::new() } else { format!(", {kept} of them kept for other classes") };
    let whole = match answer.reset {
        Micros::ZERO => String::from("whole"),
        // A permit is free when its request ends. The rest of its time is only the longest time until then.
        rest if matches!(limit, Limit::Concurrency(_)) => {
            format!("whole again in {} at the latest", span(rest))
        }
        rest => format!("whole again in {}", span(rest)),
    };
    format!("{left}{kept}, {whole}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

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
            (
                r#""concurrency", "limit": 4, "ttl": "30s""#,
                "4 at the same time, each for at most 30s, concurrency",
            ),
        ];
        for (limit, wanted) in rows {
            let text = format!(
                r#"{{"policies": [{{"name": "p", "limits": [{{"name": "l", "algorithm": {limit}}}]}}]}}"#
            );
            let config = Config::parse(text.as_bytes()).unwrap();
            assert_eq!(allows(&config.policies[0].tiers.tiers[0].plan.limits()[0]), wanted, "{limit}");
        }
    }

    #[test]
    fn what_is_left_in_words() {
        let limit = Limit::from(crate::limit::SlidingLog::new(9, Micros::from_secs(60)).unwrap());
        let places = Limit::from(crate::limit::Concurrency::new(9, Micros::from_secs(60)).unwrap());
        let rows = [
            (&limit, 37, 41_000_000, 0, "37 left, whole again in 41 s"),
            (&limit, 9, 0, 0, "9 left, whole"),
            (&limit, 5, 90_000_000, 3, "5 left, 3 of them kept for other classes, whole again in 1 min 30 s"),
            (&limit, -4, 1_000, 0, "none left, and 4 taken in advance, whole again in 1 ms"),
            (&places, 1, 60_000_000, 0, "1 left, whole again in 1 min at the latest"),
        ];
        for (limit, remaining, reset, kept, wanted) in rows {
            let answer = LimitOutcome { remaining, reset: Micros(reset), ..LimitOutcome::default() };
            assert_eq!(has_left(limit, &answer, kept), wanted);
        }
    }
}
