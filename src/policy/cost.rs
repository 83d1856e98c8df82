// SPDX-License-Identifier: Apache-2.0
//! How many units a request takes. A cost that clients can influence has bounds, so that a client can neither pass
//! for free nor empty a limit with one request.

use crate::request::pairs::{self, Semicolon};
use crate::request::{Request, Unreadable};

/// How many units a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// This many.
    Constant(u64),
    /// What the request states, within bounds.
    Stated(CostSource, Bounds),
}

/// Where a request states its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// In the header of this name, in lower case.
    Header(String),
    /// In the query parameter of this name.
    Query(Vec<u8>),
    /// In its JSON body, at any of these paths.
    Body(Vec<String>),
    /// In `content-length`, in units of so many bytes (at least 1), rounded up.
    ContentLength(u64),
}

/// The bounds of a cost that a request states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The cost when the request states none, or no whole number.
    pub on_missing: u64,
    /// The smallest cost.
    pub min: u64,
    /// The largest cost; at least `min`.
    pub max: u64,
}

/// The longest header that a cost is read from, in bytes.
const MAX_HEADER: usize = 1024;

/// What a request states about its cost.
enum Stated {
    /// So many units.
    Units(u64),
    /// Nothing, or nothing that is a whole number.
    Nothing,
    /// Something that was not read: the cost may be any.
    Unknown,
}

impl Cost {
    /// Shows the paths of the values of a body that it is.
    pub(super) fn body_paths<'a>(&'a self, show: &mut dyn FnMut(&'a str)) {
        if let Self::Stated(CostSource::Body(paths), _) = self {
            paths.iter().for_each(|path| show(path));
        }
    }

    /// Whether a unit is a byte; `None` of a constant, which is in the units of the costs beside it.
    #[must_use]
    pub(super) const fn is_in_bytes(&self) -> Option<bool> {
        match self {
            Self::Constant(_) => None,
            Self::Stated(source, _) => Some(matches!(source, CostSource::ContentLength(1))),
        }
    }

    /// The units `request` takes. Of several values the largest counts; where the cost may be any, it is the largest allowed.
    #[must_use]
    pub fn of<'a>(&'a self, request: &Request<'a>) -> u64 {
        let (source, bounds) = match self {
            Self::Constant(units) => return *units,
            Self::Stated(source, bounds) => (source, bounds),
        };
        let stated = match source {
            CostSource::Header(name) => header(request, name),
            CostSource::Query(name) => query(request, name),
            CostSource::Body(paths) => body(request, paths),
            CostSource::ContentLength(per) => match header(request, "content-length") {
                Stated::Units(bytes) => Stated::Units(bytes.div_ceil((*per).max(1))),
                // A body without a length (chunked, or HTTP/2) has any length.
                Stated::Nothing if request.has_body() => Stated::Unknown,
                stated => stated,
            },
        };
        match stated {
            Stated::Units(units) => units.clamp(bounds.min, bounds.max.max(bounds.min)),
            Stated::Nothing => bounds.on_missing,
            Stated::Unknown => bounds.max,
        }
    }
}

fn header<'a>(request: &Request<'a>, name: &'a str) -> Stated {
    let header = match request.header(name) {
        Ok(Some(header)) => header,
        Ok(None) => return Stated::Nothing,
        Err(Unreadable) => return Stated::Unknown,
    };
    if header.value.len() > MAX_HEADER {
        return Stated::Unknown;
    }
    let numbers = header.value.split(|&byte| byte == b',').filter_map(number);
    numbers.max().map_or(Stated::Nothing, Stated::Units)
}

fn query(request: &Request<'_>, name: &[u8]) -> Stated {
    let Some((text, query)) = request.query() else { return Stated::Unknown };
    let mut largest = None;
    for pairs in query.readings(Semicolon::Ambiguous) {
        if pairs.truncated() {
            return Stated::Unknown;
        }
        request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
        let values = pairs::parameters(pairs, text, name);
        largest = largest.max(values.iter().filter_map(|value| number(&value.value())).max());
    }
    largest.map_or(Stated::Nothing, Stated::Units)
}

fn body(request: &Request<'_>, paths: &[String]) -> Stated {
    let mut largest = None;
    for path in paths {
        match request.body_number(path) {
            Ok(number) => largest = largest.max(number),
            Err(Unreadable) => return Stated::Unknown,
        }
    }
    largest.map_or(Stated::Nothing, Stated::Units)
}

/// A whole number; one too large for 64 bits is the largest.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text.trim_ascii()).ok()?;
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().unwrap_or(u64::MAX))
}
