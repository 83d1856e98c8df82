// SPDX-License-Identifier: Apache-2.0
//! A cost that is the weighted sum of numbers in a body.

use core::fmt;

use super::number::Millionths;
use super::scan::Scanner;
use super::values::Value;

/// The largest sum, in units: a larger one counts as this one.
pub const MAX_SUM: u64 = 1_000_000_000_000;
/// The most terms of a sum.
pub const MAX_TERMS: usize = 16;

/// The largest weight, in whole units.
const MAX_WEIGHT: u64 = 1_000_000;

/// The product of a number and a weight counts these parts of a unit.
const PARTS: u128 = 1_000_000_000_000;

/// The factor of a term, from 0 to 1,000,000 in steps of a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

impl Weight {
    /// Reads a weight such as `1` or `0.25`; `None` if it is no decimal number from 0 to 1,000,000 with at most six decimal places.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (units, places) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(units) || !is_number(places) || places.len() > 6 {
            return None;
        }
        let units: u64 = units.parse().ok()?;
        let places: u64 = format!("{places:0<6}").parse().ok()?;
        let millionths = units.saturating_mul(1_000_000).saturating_add(places);
        (millionths <= MAX_WEIGHT * 1_000_000).then_some(Self(millionths))
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A sum of at most [`MAX_TERMS`] terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The factor of each number, and the values that may hold it: the first that is a number and not negative counts.
    terms: Vec<(Weight, Vec<usize>)>,
}

impl Sum {
    /// A sum; `None` of more than [`MAX_TERMS`] terms. A path is given by its number in [`Paths`](super::Paths).
    #[must_use]
    pub fn new(terms: Vec<(Weight, Vec<usize>)>) -> Option<Self> {
        (terms.len() <= MAX_TERMS).then_some(Self { terms })
    }

    /// The sum of the last numbers, in units: rounded up, at most [`MAX_SUM`]. `None` if no path has a number.
    #[must_use]
    pub fn last(&self, scanner: &Scanner) -> Option<u64> {
        // In units of 10^-12. A term is at most 10^30, so sixteen of them fit in 128 bits.
        let mut sum: Option<u128> = None;
        for (weight, values) in &self.terms {
            let number = values.iter().find_map(|path| match scanner.last(*path)? {
                Value::Number(number) => number.counted(),
                _ => None,
            });
            if let Some(number) = number {
                sum = Some(sum.unwrap_or_default() + product(&(number, *weight)));
            }
        }
        sum.map(|sum| units(sum, 1))
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
