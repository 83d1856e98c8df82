// SPDX-License-Identifier: Apache-2.0
//! Times and durations as numbers of a unit, without floating point: `1700000000.123` seconds are exact.

use serde_json::Value;

use crate::{Failure, date};
use weir::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// The units, each with the ending of a field's name: `_ms`.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Seconds, "_s"), (Self::Millis, "_ms"), (Self::Micros, "_us"), (Self::Nanos, "_ns")];

    /// The number of digits of a number below whole microseconds; negative if digits are missing.
    const fn digits_below_micros(self) -> i32 {
        match self {
            Self::Seconds => -6,
            Self::Millis => -3,
            Self::Micros => 0,
            Self::Nanos => 3,
        }
    }
}

/// Reads the number `value` of the field `name`, a JSON number or one as text, rounded down to microseconds.
///
/// # Errors
/// It is no number, it is negative, or it is greater than any time until the year 9999.
pub fn micros(name: &str, value: &Value, unit: Unit) -> Result<Micros, Failure> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        other => return Err(format!("{name} is {other}, allowed: a number")),
    };
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return Err(format!(
            "{name} is {value}, allowed: a number that is not negative, such as 1700000000 or 0.25"
        ));
    }
    let below = unit.digits_below_micros();
    let keep = usize::try_from(below.saturating_neg()).unwrap_or(0);
    let micros = format!("{whole}{:0<keep$}", part.get(..keep.min(part.len())).unwrap_or_default());
    let cut = usize::try_from(below).unwrap_or(0);
    let micros = micros.get(..micros.len().saturating_sub(cut)).unwrap_or_default();
    let micros = if micros.is_empty() { Ok(0) } else { micros.parse() };
    let found = micros.ok().map(Micros).filter(|micros| *micros <= date::LAST);
    found.ok_or_else(|| {
        let (_, ending) = Unit::ALL.into_iter().find(|(each, _)| *each == unit).unwrap_or((unit, ""));
        let ending = ending.trim_start_matches('_');
        format!("{name} is {value}, which is after the year 9999 in {ending}: is it in a smaller unit?")
    })
}

/// Reads a duration of the command line: `250ms`.
pub fn duration(text: &str) -> Result<Micros, Failure> {
    let allowed = "allowed: a whole number and one of us, ms, s, m, h, d, up to 366d, such as 250ms";
    date::duration(text, Micros::ZERO..=Micros::from_secs(366 * 86_400), allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_unit() {
        let rows = [
            ("1700000000", Unit::Seconds, Some(1_700_000_000_000_000)),
            ("1700000000.123", Unit::Seconds, Some(1_700_000_000_123_000)),
            ("\"1700000000.1234567\"", Unit::Seconds, Some(1_700_000_000_123_456)),
            ("0.012", Unit::Seconds, Some(12_000)),
            ("5", Unit::Millis, Some(5_000)),
            ("1.5", Unit::Millis, Some(1_500)),
            ("1.2345", Unit::Millis, Some(1_234)),
            ("7", Unit::Micros, Some(7)),
            ("7.9", Unit::Micros, Some(7)),
            ("1999", Unit::Nanos, Some(1)),
            ("12", Unit::Nanos, Some(0)),
            ("1700000000123456789", Unit::Nanos, Some(1_700_000_000_123_456)),
            ("1700000000123456789", Unit::Millis, None),
            ("1700000000123456789", Unit::Micros, None),
            ("1700000000000", Unit::Seconds, None),
            ("253402207200000", Unit::Millis, Some(253_402_207_200_000_000)),
            ("253402207200001", Unit::Millis, None),
            ("-1", Unit::Millis, None),
            ("1e3", Unit::Millis, Some(1_000_000)),
            ("1e300", Unit::Millis, None),
            ("\"\"", Unit::Millis, None),
            ("\"1 \"", Unit::Millis, None),
            ("\"NaN\"", Unit::Millis, None),
            ("null", Unit::Millis, None),
            ("true", Unit::Millis, None),
        ];
        for (text, unit, wanted) in rows {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(micros("t", &value, unit).ok(), wanted.map(Micros), "{text} {unit:?}");
        }
    }

    #[test]
    fn durations_of_the_command_line() {
        assert_eq!(duration("250ms"), Ok(Micros::from_millis(250)));
        assert_eq!(duration("0s"), Ok(Micros::ZERO));
        for text in ["", "5", "1.5s", "-1s", "367d", "99999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
