//! What a request turned out to cost. A policy's [`Cost`](super::cost::Cost) is reserved when the request arrives. What the response
//! then shows is its true cost, and the difference is charged or refunded.
//!
//! A [`Settling`] watches one response for one policy. It keeps a few numbers, and at most 4 KiB where it reads the body, however
//! long the response is.

use core::ops::RangeInclusive;
use std::sync::Arc;

use crate::body::{Form, Paths, Scanner, Sum};
use crate::inline_vec::InlineVec;
use crate::time::Micros;

/// How the true cost of a request is told from its response: the first case that holds. Without one, it cost what was reserved.
#[derive(Debug, Default)]
pub struct Settle {
    /// The cases, in the order of the configuration.
    pub cases: Vec<Case>,
}

/// A true cost, and for which responses it holds.
#[derive(Debug)]
pub struct Case {
    /// For which responses.
    pub when: When,
    /// The true cost.
    pub cost: TrueCost,
}

/// A condition on a response: each list holds, where an empty one always does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// The status is one of these.
    pub status: Vec<RangeInclusive<u16>>,
    /// The gRPC status is one of these.
    pub grpc_status: Vec<u32>,
}

/// What a request turned out to cost.
#[derive(Debug)]
pub enum TrueCost {
    /// What was reserved.
    Reserved,
    /// This many units.
    Constant(u64),
    /// What the response shows.
    Shown(Shown),
}

/// A true cost that the response shows.
#[derive(Debug)]
pub struct Shown {
    /// Where.
    pub source: Source,
    /// The cost when it is not there, or is no whole number.
    pub on_missing: OnMissing,
    /// The largest cost.
    pub max: u64,
}

/// Where a response shows its cost.
#[derive(Debug)]
pub enum Source {
    /// In the header of this name, in lower case.
    Header(String),
    /// In the trailer of this name, in lower case.
    Trailer(String),
    /// The size of its body, in units of so many bytes (at least 1), rounded up.
    Bytes(u64),
    /// The time from the admission of the request to its end, in units of so long (at least 1), rounded up.
    Duration(Micros),
    /// A sum of numbers in its JSON body, or in the JSON of its events or lines: the last number at each path.
    Body(Arc<Paths>, Sum),
}

/// The true cost of a request whose response does not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// What was reserved.
    Reserved,
    /// This many units.
    Constant(u64),
}

/// What the host has to pass on of a response, besides its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// How many bytes each part of the body has.
    pub size: bool,
    /// The bytes of the body.
    pub content: bool,
    /// The trailers.
    pub trailers: bool,
    /// A policy needs the body and cannot read it: it is compressed, or it is no JSON by its `content-type`.
    pub unreadable: bool,
}

impl Watched {
    /// What either needs.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            size: self.size || other.size,
            content: self.content || other.content,
            trailers: self.trailers || other.trailers,
            unreadable: self.unreadable || other.unreadable,
        }
    }
}

/// Reads a header or trailer of a response, all of its lines joined by commas.
pub type Fields<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// The longest header that a cost is read from, in bytes.
const LONGEST: usize = 1024;

/// What is known of a response.
#[derive(Debug)]
pub struct Settling {
    /// When the request was admitted.
    since: Micros,
    status: Option<u16>,
    grpc_status: Option<u32>,
    /// No gRPC status will come any more.
    grpc_known: bool,
    bytes: u64,
    /// For each case what a header or trailer said.
    stated: InlineVec<Option<u64>>,
    /// What reads the body, for the cases that need it. There is none before the headers, and for a body that cannot be read.
    scanners: InlineVec<(usize, Scanner)>,
}

impl Settling {
    /// A request was admitted, at `since` of any clock that does not go back.
    #[must_use]
    pub fn new(settle: &Settle, since: Micros) -> Self {
        let stated = settle.cases.iter().map(|_| None).collect();
        Self {
            since,
            status: None,
            grpc_status: None,
            grpc_known: false,
            bytes: 0,
            stated,
            scanners: InlineVec::new(),
        }
    }

    /// The headers of the response. Where several come, the last ones count.
    pub fn headers(&mut self, settle: &Settle, fields: Fields<'_>) -> Watched {
        self.status = number(fields(":status")).and_then(|status| u16::try_from(status).ok());
        self.read_grpc_status(settle, fields);
        for (case, stated) in settle.cases.iter().zip(&mut self.stated) {
            if let TrueCost::Shown(Shown { source: Source::Header(name), .. }) = &case.cost {
                *stated = number(fields(name));
            }
        }
        let unreadable = self.read_body(settle, fields);
        Watched { content: !self.scanners.is_empty(), unreadable, ..settle.watched() }
    }

    /// Prepares to read the body. Returns whether a case that may hold needs it, and it is unreadable.
    fn read_body(&mut self, settle: &Settle, fields: Fields<'_>) -> bool {
        self.scanners.clear();
        let mut unreadable = false;
        for (index, case) in settle.cases.iter().enumerate() {
            if let TrueCost::Shown(Shown { source: Source::Body(paths, _), .. }) = &case.cost
                && self.holds(&case.when) != Some(false)
            {
                let [kind, coding] =
                    ["content-type", "content-encoding"].map(|name| fields(name).unwrap_or_default());
                match Form::of(&kind, &coding) {
                    Some(form) => self.scanners.push((index, Scanner::new(form, Arc::clone(paths)))),
                    None => unreadable = true,
                }
            }
        }
        unreadable
    }

    /// A part of the body, of so many bytes. These are its `content`, if [`Watched::content`] is set.
    pub fn body(&mut self, bytes: usize, content: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.scanners.iter_mut().for_each(|(_, scanner)| scanner.feed(content));
    }

    /// The trailers of the response.
    pub fn trailers(&mut self, settle: &Settle, fields: Fields<'_>) {
        self.read_grpc_status(settle, fields);
        for (case, stated) in settle.cases.iter().zip(&mut self.stated) {
            if let TrueCost::Shown(Shown { source: Source::Trailer(name), .. }) = &case.cost {
                *stated = number(fields(name));
            }
        }
    }

    fn read_grpc_status(&mut self, settle: &Settle, fields: Fields<'_>) {
        if settle.asks_grpc_status() {
            let status = number(fields("grpc-status")).and_then(|status| u32::try_from(status).ok());
            self.grpc_status = status.or(self.grpc_status);
            self.grpc_known |= status.is_some();
        }
    }

    /// The true cost, as soon as nothing that is still to come can change it.
    #[must_use]
    pub fn known(&self, settle: &Settle, reserved: u64) -> Option<u64> {
        self.status?;
        for (index, Case { when, cost }) in settle.cases.iter().enumerate() {
            match self.holds(when) {
                Some(true) => {
                    return match cost {
                        TrueCost::Shown(Shown { source: Source::Header(_), .. })
                        | TrueCost::Reserved
                        | TrueCost::Constant(_) => Some(self.of(index, cost, reserved, Micros::ZERO)),
                        TrueCost::Shown(_) => None,
                    };
                }
                Some(false) => {}
                None => return None,
            }
        }
        Some(reserved)
    }

    /// The true cost of a request that is over at `now`, however it ended.
    #[must_use]
    pub fn at_end(&mut self, settle: &Settle, reserved: u64, now: Micros) -> u64 {
        // A number at the very end of the body ends with it. What was read before an error counts.
        for (_, scanner) in &mut self.scanners {
            let _ = scanner.end();
        }
        let mut cases = settle.cases.iter().enumerate();
        let found = cases.find(|(_, case)| self.holds(&case.when) == Some(true));
        found.map_or(reserved, |(index, case)| self.of(index, &case.cost, reserved, now.since(self.since)))
    }

    /// Whether a condition holds; `None` while its gRPC status may still come.
    fn holds(&self, when: &When) -> Option<bool> {
        let among = |status: u16| when.status.iter().any(|range| range.contains(&status));
        if !when.status.is_empty() && !self.status.is_some_and(among) {
            return Some(false);
        }
        if when.grpc_status.is_empty() {
            return Some(true);
        }
        match self.grpc_status {
            Some(status) => Some(when.grpc_status.contains(&status)),
            None if self.grpc_known => Some(false),
            None => None,
        }
    }

    fn of(&self, case: usize, cost: &TrueCost, reserved: u64, elapsed: Micros) -> u64 {
        let Shown { source, on_missing, max } = match cost {
            TrueCost::Reserved => return reserved,
            TrueCost::Constant(units) => return *units,
            TrueCost::Shown(shown) => shown,
        };
        let shown = match source {
            Source::Header(_) | Source::Trailer(_) => self.stated.get(case).copied().flatten(),
            Source::Bytes(per) => self.status.map(|_| self.bytes.div_ceil((*per).max(1))),
            Source::Duration(per) => Some(elapsed.0.div_ceil(per.0.max(1))),
            Source::Body(_, sum) => {
                let scanner = self.scanners.iter().find(|(index, _)| *index == case);
                scanner.and_then(|(_, scanner)| sum.last(scanner))
            }
        };
        match (shown, on_missing) {
            (Some(units), _) => units.min(*max),
            (None, OnMissing::Reserved) => reserved,
            (None, OnMissing::Constant(units)) => *units,
        }
    }
}

impl Settle {
    /// Whether every request costs what it reserves.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    fn asks_grpc_status(&self) -> bool {
        self.cases.iter().any(|case| !case.when.grpc_status.is_empty())
    }

    fn watched(&self) -> Watched {
        let shown = |is: fn(&Source) -> bool| {
            let mut costs = self.cases.iter().map(|case| &case.cost);
            costs.any(|cost| matches!(cost, TrueCost::Shown(shown) if is(&shown.source)))
        };
        Watched {
            size: shown(|source| matches!(source, Source::Bytes(_))),
            content: false,
            unreadable: false,
            trailers: self.asks_grpc_status() || shown(|source| matches!(source, Source::Trailer(_))),
        }
    }
}

/// A whole number. Of several in one header, the largest counts.
fn number(value: Option<Vec<u8>>) -> Option<u64> {
    let value = value.filter(|value| value.len() <= LONGEST)?;
    value.split(|&byte| byte == b',').filter_map(super::cost::number).max()
}
