// SPDX-License-Identifier: Apache-2.0
//! The number of units that a request costs. A cost that clients can influence has bounds, so that a client can neither pass for free nor
//! empty a limit with one request.

use super::usage::Estimate;
use crate::request::pairs::{self, Semicolon};
use crate::request::{Request, Unreadable};

/// The number of units that a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// This number of units.
    Constant(u64),
    /// The number that the request states, within bounds.
    Stated(CostSource, Bounds),
    /// The most that a language model may use for it.
    Usage(Estimate),
    /// The number of its calls of JSON-RPC; this number if its body cannot be read.
    Calls(u64),
}

/// The place where a request states its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// In the header of this name, in lower case.
    Header(String),
    /// In the query parameter of this name.
    Query(Vec<u8>),
    /// In its JSON body, at any of these paths.
    Body(Vec<String>),
    /// In `content-length`, in units of `per` bytes (at least 1), rounded up. A body that has none costs `on_unknown`, if that is given.
    ContentLength {
        /// The bytes of one unit.
        per: u64,
        /// The cost of a body without `content-length`, within the bounds.
        on_unknown: Option<u64>,
    },
}

/// The bounds of a cost that a request states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The cost when the request states none.
    pub on_missing: u64,
    /// The smallest cost.
    pub min: u64,
    /// The largest cost; at least `min`. A request whose cost is no whole number has this cost, too.
    pub max: u64,
}

/// The longest header that a cost is read from, in bytes.
const MAX_HEADER: usize = 1024;

/// The cost that a request states.
enum Stated {
    /// This number of units.
    Units(u64),
    /// Nothing.
    Nothing,
    /// A value that was not read, or that is no whole number: the cost is unknown.
    Unknown,
}

impl Cost {
    /// Shows the paths of the values that it reads in the body.
    pub(super) fn body_paths<'a>(&'a self, show: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Stated(CostSource::Body(paths), _) => paths.iter().for_each(|path| show(path)),
            Self::Usage(estimate) => estimate.body_paths(show),
            // The body must be read, and no value of it is needed: this is the shortest path.
            Self::Calls(_) => show("id"),
            Self::Stated(..) | Self::Constant(_) => {}
        }
    }

    /// True if a unit is a byte; `None` for a constant, which is in the units of the costs beside it.
    #[must_use]
    pub(super) const fn is_in_bytes(&self) -> Option<bool> {
        match self {
            Self::Constant(_) => None,
            Self::Stated(source, _) => Some(matches!(source, CostSource::ContentLength { per: 1, .. })),
            Self::Usage(_) | Self::Calls(_) => Some(false),
        }
    }

    /// True if it guesses the size of a body whose size is not stated.
    #[must_use]
    pub const fn guesses_size(&self) -> bool {
        matches!(self, Self::Stated(CostSource::ContentLength { on_unknown: Some(_), .. }, _))
    }

    /// True if `request` is denied because no price is known for its model.
    pub(super) fn denies_model(&self, request: &Request<'_>) -> bool {
        matches!(self, Self::Usage(estimate) if estimate.denies_model(request))
    }

    /// True if `request` asks a language model for several answers.
    pub(super) fn asks_many(&self, request: &Request<'_>) -> bool {
        matches!(self, Self::Usage(estimate) if estimate.asks_many(request))
    }

    /// True if it denies requests of unknown models.
    #[must_use]
    pub fn may_deny_models(&self) -> bool {
        matches!(self, Self::Usage(estimate) if estimate.prices.denies_unknown())
    }

    /// The units that `request` costs. Of several values, and of several readings of a query, the largest counts.
    #[must_use]
    pub fn of<'a>(&'a self, request: &Request<'a>) -> u64 {
        let (source, bounds) = match self {
            Self::Constant(units) => return *units,
            Self::Usage(estimate) => return estimate.of(request),
            Self::Calls(on_unreadable) => return request.calls().unwrap_or(*on_unreadable),
            Self::Stated(source, bounds) => (source, bounds),
        };
        bounds.cost(match source {
            CostSource::Header(name) => header(request, name),
            CostSource::Query(name) => return query(request, name, bounds),
            CostSource::Body(paths) => {
                let numbers = paths.iter().filter_map(|path| request.body_number(path).transpose());
                largest(numbers.map(Result::ok))
            }
            CostSource::ContentLength { per, on_unknown } => match header(request, "content-length") {
                Stated::Units(bytes) => Stated::Units(bytes.div_ceil((*per).max(1))),
                // The length of a body without `content-length` (chunked, or HTTP/2) is unknown.
                Stated::Nothing if request.has_body() => on_unknown.map_or(Stated::Unknown, Stated::Units),
                stated => stated,
            },
        })
    }
}

impl Bounds {
    fn cost(&self, stated: Stated) -> u64 {
        match stated {
            Stated::Units(units) => units.clamp(self.min, self.max.max(self.min)),
            Stated::Nothing => self.on_missing,
            Stated::Unknown => self.max,
        }
    }
}

fn header<'a>(request: &Request<'a>, name: &'a str) -> Stated {
    match request.header(name) {
        Ok(None) => Stated::Nothing,
        Ok(Some(header)) if header.value.len() <= MAX_HEADER => {
            largest(header.value.split(|&byte| byte == b',').map(|text| number(text.trim_ascii())))
        }
        Ok(Some(_)) | Err(Unreadable) => Stated::Unknown,
    }
}

fn query(request: &Request<'_>, name: &[u8], bounds: &Bounds) -> u64 {
    let Some((text, query)) = request.query() else { return bounds.max };
    let readings = query.readings(Semicolon::Ambiguous).map(|pairs| {
        if pairs.truncated() {
            return bounds.max;
        }
        request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
        let Ok(values) = pairs::parameters(pairs, text, name) else { return bounds.max };
        bounds.cost(largest(values.iter().map(|value| number(&value.value()))))
    });
    readings.max().unwrap_or(bounds.on_missing)
}

/// The largest of these numbers. If a value is no number (`None`), the cost is unknown.
fn largest(numbers: impl Iterator<Item = Option<u64>>) -> Stated {
    let mut stated = Stated::Nothing;
    for number in numbers {
        stated = match (number, stated) {
            (None, _) => return Stated::Unknown,
            (Some(units), Stated::Units(others)) => Stated::Units(units.max(others)),
            (Some(units), _) => Stated::Units(units),
        };
    }
    stated
}

/// A whole number: digits, and nothing else. A number that is too large for 64 bits counts as the largest one.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text).ok()?;
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().unwrap_or(u64::MAX))
}
