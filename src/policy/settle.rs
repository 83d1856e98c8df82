// SPDX-License-Identifier: Apache-2.0
//! The true cost of a request. A policy's [`Cost`](super::cost::Cost) is reserved when the request arrives. The response then shows the
//! true cost, and the difference is charged or refunded.
//!
//! A [`Settling`] watches one response for one policy. It keeps a few numbers, and at most 5 KiB where it reads the body, however long the
//! response is.

use core::ops::RangeInclusive;
use std::rc::Rc;

use super::matcher::{OnAmbiguity, ValueTest};
use super::usage::{self, Usage};
use crate::body::{Form, Paths, Scanner, Sum};
use crate::inline_vec::InlineVec;
use crate::time::Micros;

/// The rules by which the true cost is read from the response: the first case that holds. Without one, the reserved cost stays.
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

/// A condition on a response: each part holds, where an empty one always does.
#[derive(Debug, Default)]
pub struct When {
    /// The status is one of these.
    pub status: Vec<RangeInclusive<u16>>,
    /// The gRPC status is one of these.
    pub grpc_status: Vec<u32>,
    /// A line of the header of this name, in lower case, meets the test.
    pub header: Option<(String, ValueTest)>,
}

/// The true cost of a request.
#[derive(Debug)]
pub enum TrueCost {
    /// The reserved cost.
    Reserved,
    /// This many units.
    Constant(u64),
    /// The cost that the response shows.
    Shown(Shown),
}

/// A true cost that the response shows.
#[derive(Debug)]
pub struct Shown {
    /// The place.
    pub source: Source,
    /// The cost when it is not there, or is no whole number.
    pub on_missing: OnMissing,
    /// The largest cost.
    pub max: u64,
}

/// The place where a response shows its cost.
#[derive(Debug)]
pub enum Source {
    /// In the header of this name, in lower case.
    Header(String),
    /// In the trailer of this name, in lower case.
    Trailer(String),
    /// The size of the request's body, as far as it has passed, in units of this many bytes (at least 1), rounded up.
    RequestBytes(u64),
    /// The size of its body, in units of this many bytes (at least 1), rounded up.
    Bytes(u64),
    /// The time from the admission of the request to its end, in units of this length (at least 1), rounded up.
    Duration(Micros),
    /// A sum of numbers in its JSON body, or in the JSON of its events or lines: the last number at each path.
    Body(Rc<Paths>, Sum),
    /// The tokens that a language model has used, by the same kinds of bodies.
    Usage(Usage),
}

impl TrueCost {
    /// True if a unit is a byte; `None` for a cost in the units of the costs beside it.
    pub(super) const fn is_in_bytes(&self) -> Option<bool> {
        match self {
            Self::Reserved | Self::Constant(_) => None,
            Self::Shown(shown) => Some(matches!(shown.source, Source::Bytes(1) | Source::RequestBytes(1))),
        }
    }
}

/// The true cost of a request whose response does not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// The reserved cost.
    Reserved,
    /// This many units.
    Constant(u64),
}

/// The parts of a response that the host must pass on, besides its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The number of bytes of each part of the body.
    pub size: bool,
    /// The bytes of the body.
    pub content: bool,
    /// The trailers.
    pub trailers: bool,
    /// A policy needs the body and cannot read it: it is compressed, or it is no JSON by its `content-type`.
    pub unreadable: bool,
}

impl Watched {
    /// True if the host has to say when the response has ended.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.size || self.content || self.trailers || self.unreadable
    }

    /// Returns the parts that either needs.
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

/// Reads a header or trailer of a response, all of its lines joined by line feeds.
pub type Fields<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// The longest header that a cost is read from, in bytes.
const LONGEST: usize = 1024;

/// The state of one response.
#[derive(Debug)]
pub struct Settling {
    /// The time at which the request was admitted.
    since: Micros,
    status: Option<u16>,
    grpc_status: Option<u32>,
    /// A bit for each case whose condition on a header holds, and for each for which that cannot be told.
    header: [u16; 2],
    bytes: u64,
    /// The bytes of the request's body that have passed.
    uploaded: u64,
    /// True if no part of it is still to come.
    is_whole: bool,
    /// For each case what a header or trailer said.
    stated: InlineVec<Option<u64>>,
    /// The readers of the body, for the cases that need it. There is none before the headers, and for a body that cannot be read.
    scanners: InlineVec<(usize, Scanner)>,
    /// The row of the prices of the model that the request names.
    requested: Option<u16>,
    /// True if the request asks a language model for several answers.
    is_many: bool,
}

impl Settling {
    /// A request was admitted, at `since` of any clock that does not go back. `requested` is the row of the prices of its model.
    #[must_use]
    pub fn new(settle: &Settle, since: Micros, requested: Option<u16>) -> Self {
        let (stated, scanners) = (settle.cases.iter().map(|_| None).collect(), InlineVec::new());
        Self {
            since,
            status: None,
            grpc_status: None,
            header: [0; 2],
            bytes: 0,
            uploaded: 0,
            is_whole: false,
            stated,
            scanners,
            requested,
            is_many: false,
        }
    }

    /// The same of a request that asks for several answers.
    #[must_use]
    pub fn answering(self, is_many: bool) -> Self {
        Self { is_many, ..self }
    }

    /// The headers of the response. Where several come, the last ones count. Returns what else is needed to tell the cost, by the
    /// cases that may still hold: none after one that holds in any event.
    pub fn headers(&mut self, settle: &Settle, fields: Fields<'_>) -> Watched {
        self.status = number(fields(":status")).and_then(|status| u16::try_from(status).ok());
        self.read_grpc_status(settle, fields);
        self.scanners = InlineVec::new();
        self.header = [0; 2];
        for (index, case) in settle.cases.iter().enumerate() {
            let [holds, doubt] = &mut self.header;
            match case.when.header_holds(fields) {
                Some(true) => *holds |= bit(index),
                Some(false) => {}
                None => *doubt |= bit(index),
            }
        }
        let mut watched = Watched::default();
        for (index, case) in settle.cases.iter().enumerate() {
            let holds = self.holds(index, &case.when);
            if holds == Some(false) {
                continue;
            }
            watched.trailers |= holds.is_none();
            match &case.cost {
                TrueCost::Shown(Shown { source, .. }) => self.expect(index, source, fields, &mut watched),
                TrueCost::Reserved | TrueCost::Constant(_) => {}
            }
            if holds == Some(true) {
                break;
            }
        }
        watched
    }

    /// Reads what the headers show of the cost of a case, and prepares to read the rest.
    fn expect(&mut self, case: usize, source: &Source, fields: Fields<'_>, watched: &mut Watched) {
        match source {
            Source::Header(name) => self.state(case, number(fields(name))),
            Source::Trailer(name) => {
                watched.trailers = true;
                // A response of gRPC without a message has its trailers in its headers.
                if fields("grpc-status").is_some() {
                    self.state(case, number(fields(name)));
                }
            }
            Source::Bytes(_) => watched.size = true,
            Source::Duration(_) | Source::RequestBytes(_) => {}
            Source::Body(paths, _) | Source::Usage(Usage { paths, .. }) => {
                let [kind, coding] =
                    ["content-type", "content-encoding"].map(|name| list(fields(name)).unwrap_or_default());
                match Form::of(&kind, &coding) {
                    Some(form) => {
                        watched.content = true;
                        self.scanners.push((case, Scanner::new(form, Rc::clone(paths))));
                    }
                    None => watched.unreadable = true,
                }
            }
        }
    }

    /// This many bytes of the request's body have passed until now.
    pub const fn uploaded(&mut self, bytes: u64) {
        self.uploaded = bytes;
    }

    fn state(&mut self, case: usize, units: Option<u64>) {
        if let Some(stated) = self.stated.get_mut(case) {
            *stated = units;
        }
    }

    /// A part of the body, of this many bytes. These are its `content`, if [`Watched::content`] is set.
    pub fn body(&mut self, bytes: usize, content: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.scanners.iter_mut().for_each(|(_, scanner)| scanner.feed(content));
    }

    /// The trailers of the response.
    pub fn trailers(&mut self, settle: &Settle, fields: Fields<'_>) {
        self.read_grpc_status(settle, fields);
        for (index, case) in settle.cases.iter().enumerate() {
            if let TrueCost::Shown(Shown { source: Source::Trailer(name), .. }) = &case.cost {
                self.state(index, number(fields(name)));
            }
        }
    }

    /// The response has ended by itself. One that was cut off has not.
    pub const fn whole(&mut self) {
        self.is_whole = true;
    }

    fn read_grpc_status(&mut self, settle: &Settle, fields: Fields<'_>) {
        if settle.asks_grpc_status() {
            let status = number(fields("grpc-status")).and_then(|status| u32::try_from(status).ok());
            self.grpc_status = status.or(self.grpc_status);
        }
    }

    /// The true cost, as soon as nothing that is still to come can change it.
    #[must_use]
    pub fn known(&self, settle: &Settle, reserved: u64) -> Option<u64> {
        self.status?;
        for (index, Case { when, cost }) in settle.cases.iter().enumerate() {
            match self.holds(index, when) {
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

    /// The true cost of a request that is over at `now`, however it ended. If a response was cut off, a missing cost is no less than the
    /// reserved one.
    #[must_use]
    pub fn at_end(&mut self, settle: &Settle, reserved: u64, now: Micros) -> u64 {
        // A number at the very end of the body ends with it. Values read before an error count.
        for (_, scanner) in &mut self.scanners {
            let _ = scanner.end();
        }
        let mut least = 0;
        for (index, case) in settle.cases.iter().enumerate() {
            match self.holds(index, &case.when) {
                Some(true) => {
                    return self.of(index, &case.cost, reserved, now.since(self.since)).max(least);
                }
                None if !self.is_whole || self.header[1] & bit(index) > 0 => least = reserved,
                Some(false) | None => {}
            }
        }
        reserved
    }

    /// True if the condition of a case holds; `None` while its status, header or gRPC status may still come, or if a header cannot be told.
    fn holds(&self, case: usize, when: &When) -> Option<bool> {
        if !when.status.is_empty() {
            let status = self.status?;
            if !when.status.iter().any(|range| range.contains(&status)) {
                return Some(false);
            }
        }
        let [holds, doubt] = self.header.map(|cases| cases & bit(case) > 0);
        if when.header.is_some() && !holds {
            // Before the headers of a response there is no status.
            return if doubt || self.status.is_none() { None } else { Some(false) };
        }
        if when.grpc_status.is_empty() {
            return Some(true);
        }
        self.grpc_status.map(|status| when.grpc_status.contains(&status))
    }

    /// The reader of the body for a case.
    fn scanner(&self, case: usize) -> Option<&Scanner> {
        self.scanners.iter().find(|(index, _)| *index == case).map(|(_, scanner)| scanner)
    }

    fn of(&self, case: usize, cost: &TrueCost, reserved: u64, elapsed: Micros) -> u64 {
        let Shown { source, on_missing, max } = match cost {
            TrueCost::Reserved => return reserved,
            TrueCost::Constant(units) if self.status.is_none() => return reserved.max(*units),
            TrueCost::Constant(units) => return *units,
            TrueCost::Shown(shown) => shown,
        };
        let unsaid = match source {
            Source::Header(_) if self.status.is_some() => 0,
            _ if self.is_whole => 0,
            _ => reserved,
        };
        let shown = match source {
            Source::Header(_) | Source::Trailer(_) => self.stated.get(case).copied().flatten(),
            Source::Bytes(per) => self.status.map(|_| self.bytes.div_ceil((*per).max(1))),
            Source::RequestBytes(per) => Some(self.uploaded.div_ceil((*per).max(1))),
            Source::Duration(per) => Some(elapsed.0.div_ceil(per.0.max(1))),
            Source::Body(_, sum) => self.scanner(case).and_then(|scanner| {
                let unsaid = if scanner.is_done() { 0 } else { unsaid };
                sum.last(scanner).map(|said| said.max(unsaid))
            }),
            Source::Usage(usage) => self.scanner(case).and_then(|scanner| {
                usage.used(scanner, (self.requested, self.is_many), (reserved, self.is_whole), self.bytes)
            }),
        };
        match (shown, on_missing) {
            (Some(units), _) => units.min(*max),
            (None, _) if matches!(source, Source::Usage(_)) && self.requested == Some(usage::NO_MODEL) => 0,
            (None, OnMissing::Reserved) => match (source, self.scanner(case)) {
                (Source::Usage(usage), Some(scanner)) => {
                    reserved.max(usage.least(scanner, self.requested).min(*max))
                }
                _ => reserved,
            },
            (None, OnMissing::Constant(units)) => unsaid.max(*units),
        }
    }
}

impl When {
    /// True if the condition on a header holds; `None` if that cannot be told.
    #[inline(never)]
    fn header_holds(&self, fields: Fields<'_>) -> Option<bool> {
        let Some((name, test)) = &self.header else { return Some(true) };
        let lines = fields(name);
        let [may, does] =
            [OnAmbiguity::Holds, OnAmbiguity::Fails].map(|on| test.holds_line(lines.as_deref(), on));
        (may == does).then_some(does)
    }
}

impl Settle {
    /// The cases that read the tokens of a language model.
    pub fn usages(&self) -> impl Iterator<Item = (&Usage, &Shown)> {
        self.cases.iter().filter_map(|case| match &case.cost {
            TrueCost::Shown(shown) => match &shown.source {
                Source::Usage(usage) => Some((usage, shown)),
                _ => None,
            },
            TrueCost::Reserved | TrueCost::Constant(_) => None,
        })
    }

    /// True if it needs the number of bytes of the request's body.
    #[must_use]
    pub fn counts_uploads(&self) -> bool {
        let counts = |case: &Case| {
            matches!(&case.cost, TrueCost::Shown(Shown { source: Source::RequestBytes(_), .. }))
        };
        self.cases.iter().any(counts)
    }

    /// True if every request costs what it reserves.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    fn asks_grpc_status(&self) -> bool {
        self.cases.iter().any(|case| !case.when.grpc_status.is_empty())
    }
}

/// The bit of a case: a policy has at most 16.
fn bit(case: usize) -> u16 {
    u32::try_from(case).ok().and_then(|case| 1_u16.checked_shl(case)).unwrap_or_default()
}

/// The lines of a header as the list that they are together.
#[inline(never)]
fn list(mut lines: Option<Vec<u8>>) -> Option<Vec<u8>> {
    for byte in lines.iter_mut().flatten().filter(|byte| **byte == b'\n') {
        *byte = b',';
    }
    lines
}

/// A whole number. Of several in one header, the largest counts.
fn number(value: Option<Vec<u8>>) -> Option<u64> {
    let value = list(value).filter(|value| value.len() <= LONGEST)?;
    value.split(|&byte| byte == b',').filter_map(|text| super::cost::number(text.trim_ascii())).max()
}
