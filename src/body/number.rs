// SPDX-License-Identifier: Apache-2.0
//! Numbers of JSON, digit by digit, without floating point.

use core::fmt::Write as _;

/// The largest number that is kept: 10^12. A larger one counts as this one.
pub const MAX_MILLIONTHS: u64 = 1_000_000_000_000 * ONE;

/// One, in millionths.
const ONE: u64 = 1_000_000;

/// A number that is not negative, in whole millionths from 0 to [`MAX_MILLIONTHS`].
///
/// A number with more than six decimal places is rounded up, so a cost is never too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millionths(u64);

impl Millionths {
    /// Returns this number of millionths, at most [`MAX_MILLIONTHS`].
    #[must_use]
    pub const fn new(millionths: u64) -> Self {
        Self(if millionths < MAX_MILLIONTHS { millionths } else { MAX_MILLIONTHS })
    }

    /// Returns this number of units, at most 10^12.
    #[must_use]
    pub const fn of_units(units: u64) -> Self {
        Self::new(units.saturating_mul(ONE))
    }

    /// The number of millionths.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole units, rounded up.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0.div_ceil(ONE)
    }
}

/// A number of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    magnitude: Millionths,
    is_negative: bool,
    /// It is the magnitude, and nothing more.
    is_exact: bool,
}

impl Number {
    /// The distance from 0.
    #[must_use]
    pub const fn magnitude(self) -> Millionths {
        self.magnitude
    }

    /// The sum of two numbers that are not negative.
    pub(super) const fn plus(self, other: Self) -> Self {
        let magnitude = Millionths::new(self.magnitude.0.saturating_add(other.magnitude.0));
        Self { magnitude, is_negative: false, is_exact: self.is_exact && other.is_exact }
    }

    /// The number as a count; `None` if it is negative.
    #[must_use]
    pub fn counted(self) -> Option<Millionths> {
        (!self.is_negative).then_some(self.magnitude)
    }

    /// The whole number that it is; `None` if it is none, negative, or 10^12 or more.
    #[must_use]
    pub fn whole(self) -> Option<u64> {
        let is_whole = self.is_exact && !self.is_negative && self.magnitude.0.is_multiple_of(ONE);
        is_whole.then_some(self.magnitude.0 / ONE)
    }

    /// Its shortest text, which no other number has: `10` for `1e1`, `0` for `-0.0`. `None` if it cannot be told apart from others: it has
    /// more than six decimal places, or is 10^12 or more, or is a fraction of more than 10^9, for which floating point has too few digits.
    #[must_use]
    pub fn text(self) -> Option<String> {
        let (whole, places) = (self.magnitude.0 / ONE, self.magnitude.0 % ONE);
        if !self.is_exact || places > 0 && whole >= 1_000_000_000 {
            return None;
        }
        let mut text = String::from(if self.is_negative { "-" } else { "" });
        let _ = write!(text, "{whole}");
        if places > 0 {
            let _ = write!(text, ".{places:06}");
            text.truncate(text.trim_end_matches('0').len());
        }
        Some(text)
    }
}

/// A decimal number while its digits arrive. Its value is `digits` × 10^(`shift` ± `exponent`), and a little more where
/// `more` says so.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decimal {
    negative: bool,
    /// The first 19 significant digits: all that fit in 64 bits.
    digits: u64,
    shift: i64,
    /// A digit after these was not 0.
    more: bool,
    exponent: i64,
    negative_exponent: bool,
}

/// Another digit fits while `Decimal::digits` is smaller than this.
const FULL: u64 = 1_000_000_000_000_000_000;

/// An exponent stops growing here. No body has so many digits that the number would be in range again.
const LARGEST_EXPONENT: i64 = 1_000_000_000_000_000;

impl Decimal {
    pub(super) fn negative(&mut self) {
        self.negative = true;
    }

    /// A digit before the decimal point.
    pub(super) fn integer(&mut self, digit: u8) {
        if !self.push(digit) {
            self.shift += 1;
        }
    }

    /// A digit after the decimal point.
    pub(super) fn fraction(&mut self, digit: u8) {
        if self.push(digit) {
            self.shift -= 1;
        }
    }

    pub(super) fn negative_exponent(&mut self) {
        self.negative_exponent = true;
    }

    /// A digit of the exponent.
    pub(super) fn exponent(&mut self, digit: u8) {
        if self.exponent < LARGEST_EXPONENT {
            self.exponent = self.exponent * 10 + i64::from(digit & 0xf);
        }
    }

    /// Adds a digit. True if it fits.
    fn push(&mut self, digit: u8) -> bool {
        let digit = u64::from(digit & 0xf);
        let fits = self.digits < FULL;
        if fits {
            self.digits = self.digits * 10 + digit;
        } else {
            self.more |= digit != 0;
        }
        fits
    }

    /// The number that has ended.
    pub(super) fn number(&self) -> Number {
        if self.digits == 0 {
            return Number { magnitude: Millionths(0), is_negative: false, is_exact: true };
        }
        let exponent = if self.negative_exponent { -self.exponent } else { self.exponent };
        let shift = self.shift + exponent + 6;
        let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|power| 10_u64.checked_pow(power));
        let (millionths, is_exact) = match power {
            // Digits that did not fit are of a number that is too large.
            Some(power) if shift >= 0 => (self.digits.checked_mul(power).unwrap_or(MAX_MILLIONTHS), true),
            Some(power) => {
                let divides = self.digits.is_multiple_of(power);
                let rounded = self.digits.div_ceil(power).saturating_add(u64::from(divides && self.more));
                (rounded, divides && !self.more)
            }
            None if shift > 0 => (MAX_MILLIONTHS, false),
            None => (1, false),
        };
        Number {
            magnitude: Millionths::new(millionths),
            is_negative: self.negative,
            is_exact: is_exact && millionths < MAX_MILLIONTHS,
        }
    }
}
