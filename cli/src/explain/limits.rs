// SPDX-License-Identifier: Apache-2.0
//! The remaining amounts of limits in words: `37 left, full again in 41 s`.

use crate::words::full_again;
use weir::limit::{Limit, LimitOutcome};
use weir::time::Micros;

/// Describes the remaining amount of a limit; `kept` of that is for requests of other classes.
pub fn has_left(limit: &Limit, answer: &LimitOutcome, kept: u64) -> String {
    let left = match u64::try_from(answer.remaining) {
        Ok(left) if matches!(limit, Limit::Distinct(_)) => format!("{left} new values left"),
        Ok(left) => format!("{left} left"),
        Err(_) => format!("none left, and {} owed", answer.remaining.unsigned_abs()),
    };
    let kept = if kept == 0 { String::new() } else { format!(", {kept} of them kept for other classes") };
    let full = match answer.reset {
        Micros::ZERO => String::from("full"),
        rest => full_again(limit, rest),
    };
    format!("{left}{kept}, {full}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_in_words() {
        let limit = Limit::from(weir::limit::SlidingLog::new(9, Micros::from_secs(60)).unwrap());
        let places = Limit::from(weir::limit::Concurrency::new(9, Micros::from_secs(60)).unwrap());
        let rows = [
            (&limit, 37, 41_000_000, 0, "37 left, full again in 41 s"),
            (&limit, 9, 0, 0, "9 left, full"),
            (&limit, 5, 90_000_000, 3, "5 left, 3 of them kept for other classes, full again in 1 min 30 s"),
            (&limit, -4, 1_000, 0, "none left, and 4 owed, full again in 1 ms"),
            (&places, 1, 60_000_000, 0, "1 left, full again when all its requests end"),
        ];
        for (limit, remaining, reset, kept, wanted) in rows {
            let answer = LimitOutcome { remaining, reset: Micros(reset), ..LimitOutcome::default() };
            assert_eq!(has_left(limit, &answer, kept), wanted);
        }
    }
}
