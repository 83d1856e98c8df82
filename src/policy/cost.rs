//! How many units a request takes. A cost that clients can influence has bounds, so that a stranger can neither
//! pass for free nor empty a limit with one request.

use crate::request::pairs::{self, Semicolon};
use crate::request::{Request, Unreadable};

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

/// The longest header that a cost is read from, in bytes.
const LONGEST: usize = 1024;

/// What a request says of its cost.
enum Stated {
    /// So many units.
    Units(u64),
    /// Nothing, or nothing that is a whole number.
    Nothing,
    /// Something that is not known: the cost may be any.
    Unknown,
}

impl Cost {
    /// The units `request` takes. Of several values the largest counts; where the cost may be any, it is the most.
    #[must_use]
    pub fn of<'a>(&'a self, request: &Request<'a>) -> u64 {
        let (said, bounds) = match self {
            Self::Constant(units) => return *units,
            Self::Said(said, bounds) => (said, bounds),
        };
        let stated = match said {
            Said::Header(name) => header(request, name),
            Said::Query(name) => query(request, name),
            Said::ContentLength(per) => match header(request, "content-length") {
                Stated::Units(bytes) => Stated::Units(bytes.div_ceil((*per).max(1))),
                // A body without a length (chunked, or HTTP/2) has any length.
                Stated::Nothing if request.has_body() => Stated::Unknown,
                stated => stated,
            },
        };
        match stated {
            Stated::Units(units) => units.clamp(bounds.min, bounds.max.max(bounds.min)),
            Stated::Nothing => bounds.absent,
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
    if header.value.len() > LONGEST {
        return Stated::Unknown;
    }
    let numbers = header.value.split(|&byte| byte == b',').filter_map(number);
    numbers.max().map_or(Stated::Nothing, Stated::Units)
}

fn query(request: &Request<'_>, name: &[u8]) -> Stated {
    let Some((text, query)) = request.query() else { return Stated::Unknown };
    let mut most = None;
    for pairs in query.readings(Semicolon::Ambiguous) {
        if pairs.truncated() {
            return Stated::Unknown;
        }
        request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
        let values = pairs::parameters(pairs, text, name);
        most = most.max(values.iter().filter_map(|value| number(&value.value())).max());
    }
    most.map_or(Stated::Nothing, Stated::Units)
}

/// A whole number; one too large for 64 bits is the largest.
fn number(text: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text.trim_ascii()).ok()?;
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().unwrap_or(u64::MAX))
}
