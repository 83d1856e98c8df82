// SPDX-License-Identifier: Apache-2.0
//! A cost that is the weighted sum of numbers in a body.

use core::fmt;

use super::number::Millionths;
use super::scan::Scanner;
use super::values::{Ambiguous, Value};

/// The largest sum, in units: a larger one counts as this one.
pub const MAX_SUM: u64 = 1_000_000_000_000;
/// The most terms of a sum.
pub const MAX_TERMS: usize = 16;

/// The largest weight, in whole units.
const MAX_WEIGHT: u64 = 1_000_000;

/// The product of a number and a weight counts these parts of a unit.
const PARTS: u128 = 1_000_000_000_000;

/// The allowed weights.
const ALLOWED: &str = "a decimal number from 0 to 1000000 with at most six decimal places, such as 1 or 0.25";

/// The factor of a term, from 0 to 1,000,000 in steps of a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

impl Weight {
    /// Reads a weight such as `1` or `0.25`.
    ///
    /// # Errors
    /// [`WeightError`] if it is no decimal number from 0 to 1,000,000 with at most six decimal places.
    pub fn parse(text: &str) -> Result<Self, WeightError> {
        let error = || WeightError { value: text.to_owned(), allowed: ALLOWED };
        let (units, places) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(units) || !is_number(places) || places.len() > 6 {
            return Err(error());
        }
        let units: u64 = units.parse().map_err(|_| error())?;
        let places: u64 = format!("{places:0<6}").parse().map_err(|_| error())?;
        let millionths = units.saturating_mul(1_000_000).saturating_add(places);
        if millionths > MAX_WEIGHT * 1_000_000 { Err(error()) } else { Ok(Self(millionths)) }
    }
}

/// The error of a weight that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightError {
    /// The text.
    pub value: String,
    /// The allowed weights.
    pub allowed: &'static str,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weight {:?}; allowed: {}", self.value, self.allowed)
    }
}

impl core::error::Error for WeightError {}

/// A sum of at most [`MAX_TERMS`] terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The factor of each number, and the values that may hold it: the first that is a number and not negative counts.
    terms: Vec<(Weight, Vec<usize>)>,
}

/// A sum of more than [`MAX_TERMS`] terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumError {
    /// The number of terms.
    pub terms: usize,
}

impl fmt::Display for SumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a sum of {} terms; allowed: at most {MAX_TERMS}", self.terms)
    }
}

impl core::error::Error for SumError {}

impl Sum {
    /// A sum. A path is given by its number in [`Paths`](super::Paths).
    ///
    /// # Errors
    /// [`SumError`] if there are too many terms.
    pub fn new(terms: Vec<(Weight, Vec<usize>)>) -> Result<Self, SumError> {
        if terms.len() > MAX_TERMS {
            return Err(SumError { terms: terms.len() });
        }
        Ok(Self { terms })
    }

    /// The sum of the last numbers, in units: rounded up, at most [`MAX_SUM`]. `None` if no path has a number.
    #[must_use]
    pub fn last(&self, scanner: &Scanner) -> Option<u64> {
        self.of(|path| Ok(scanner.last(path))).unwrap_or_default()
    }

    /// As [`last`](Self::last), of the only numbers.
    ///
    /// # Errors
    /// [`Ambiguous`] if a path that counts, or one that would count before it, is.
    pub fn only(&self, scanner: &Scanner) -> Result<Option<u64>, Ambiguous> {
        self.of(|path| scanner.only(path))
    }

    fn of<'a>(
        &self,
        value: impl Fn(usize) -> Result<Option<Value<'a>>, Ambiguous>,
    ) -> Result<Option<u64>, Ambiguous> {
        let counted = |path| {
            Ok(value(path)?
                .and_then(|value| if let Value::Number(number) = value { number.counted() } else { None }))
        };
        // In units of 10^-12. A term is at most 10^30, so sixteen of them fit in 128 bits.
        let mut sum: Option<u128> = None;
        for (weight, values) in &self.terms {
            for path in values {
                if let Some(number) = counted(*path)? {
                    sum = Some(sum.unwrap_or_default() + product(&(number, *weight)));
                    break;
                }
            }
        }
        Ok(sum.map(|sum| units(sum, 1)))
    }
}

fn product((number, weight): &(Millionths, Weight)) -> u128 {
    u128::from(number.get()) * u128::from(weight.0)
}

/// The sum of at most [`MAX_TERMS`] numbers and their factors, divided by `per` and rounded up once: at most [`MAX_SUM`].
#[must_use]
pub fn weigh(terms: &[(Millionths, Weight)], per: u64) -> u64 {
    units(terms.iter().take(MAX_TERMS).map(product).sum(), per.max(1))
}

/// Whole units of 10^-12 parts, divided by `per` and rounded up once: at most [`MAX_SUM`].
fn units(parts: u128, per: u64) -> u64 {
    let units = parts.div_ceil(PARTS * u128::from(per));
    u64::try_from(units).unwrap_or(MAX_SUM).min(MAX_SUM)
}
