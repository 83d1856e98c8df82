//! How many units a request takes. A cost that clients can influence has bounds, so that a stranger can neither
//! pass for free nor empty a limit with one request.

use crate::request::Request;

/// How many units a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// This many.
    Constant(u64),
    /// What the request says.
    Said(Said, Bounds),
}

/// Where the request says its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// In the header of this name, in lower case.
    Header(String),
    /// In the query parameter of this name.
    Query(Vec<u8>),
    /// In `content-length`, in units of so many bytes (at least 1), rounded up.
    ContentLength(u64),
}

/// The bounds of a cost that the request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The cost when it is absent or no whole number.
    pub absent: u64,
    /// The least.
    pub min: u64,
    /// The most; at least `min`.
    pub max: u64,
}

impl Cost {
    /// The units `request` takes. Of several values the largest counts.
    #[must_use]
    pub fn of(&self, request: &Request<'_>) -> u64 {
        let (said, bounds) = match self {
            Self::Constant(units) => return *units,
            Self::Said(said, bounds) => (said, bounds),
        };
        let header = |name| {
            let value = request.header(name).unwrap_or_default();
            value.split(|&byte| byte == b',').filter_map(number).max()
        };
        let units = match said {
            Said::Header(name) => header(name),
            Said::Query(name) => request.query(name).iter().filter_map(|value| number(value)).max(),
            Said::ContentLength(per) => header("content-length").map(|bytes| bytes.div_ceil((*per).max(1))),
        };
        units.map_or(bounds.absent, |units| units.clamp(bounds.min, bounds.max.max(bounds.min)))
    }
}

/// A whole number; one too large for 64 bits is the largest.
fn number(text: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text.trim_ascii()).ok()?;
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().unwrap_or(u64::MAX))
}
