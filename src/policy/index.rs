// SPDX-License-Identifier: Apache-2.0
//! Finds the conditions that may hold for a request, without a look at each of them. So a request that no policy matches costs the same
//! under one policy and under 256. There is an index of what the policies match, and one of each [list](super::list) of conditions.
//!
//! A condition is filed under what a request must have to meet it: a method, a host, a path, a query parameter, a network, the name of a
//! route, the value of a header. For each of these attributes, the conditions that stay candidates are those that do not need it, and those
//! that are filed under the request's value. An attribute is read only when candidates need it.
//!
//! The index may name a condition that does not hold, so each candidate is tried. It never leaves out one that holds: it looks up every
//! reading of an attribute, and an attribute that is not known leaves all candidates.
//!
//! A look-up tries the lengths that configured values have, so a long value costs no more than a short one.

use core::mem::take;

use super::matcher::{Condition, HostTest, PathTest, ValueTest};
use crate::request::client_ip::{Bits, Network};
use crate::request::pairs::{self, Semicolon, Sent};
use crate::request::{Request, Unreadable};
use crate::sorted_map::sorted;

/// The most conditions of an index: the most policies of a configuration, and the longest list.
pub const MAX_CONDITIONS: usize = 256;

/// Under how many attributes a condition is filed at most. It bounds what conditions on very many headers cost.
const MAX_FILED: usize = 8;

/// With fewer conditions a look at each of them costs less.
const MIN_CONDITIONS: usize = 4;

/// See the [module](self).
#[derive(Debug)]
pub struct Index {
    all: Places,
    attributes: Vec<Filed>,
}

/// An attribute, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attribute {
    Method,
    Host,
    Path,
    Query,
    Client,
    Route,
    Header(String),
}

/// The conditions by one attribute.
#[derive(Debug)]
struct Filed {
    attribute: Attribute,
    /// The conditions that do not need it.
    others: Places,
    /// The conditions that need it: in a query by the parameter's name, otherwise under an empty name.
    names: Vec<Named>,
}

/// The conditions on a parameter of this name. In the order of these fields: names that may be taken for each other begin alike.
#[derive(Debug)]
struct Named {
    folded: Box<[u8]>,
    name: Box<[u8]>,
    parts: Parts,
}

/// Conditions by the part of a value that they name.
type Parts = Vec<(Lookup, Vec<Key>)>;

/// The value that a part must have for a condition to hold, and the place of that condition.
type Key = (Box<[u8]>, u8);

/// The part of an attribute's value that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// All of it.
    Whole,
    /// The first bytes, of this number.
    Head(usize),
    /// The first bytes of a path, where a segment ends after them.
    Segments(usize),
    /// The last bytes of a host, from a dot on.
    Tail(usize),
}

/// The requirement of a condition: a part of this attribute is one of these.
type Required = (Attribute, Vec<Value>);

/// A part of a value, and what it is; in a query, of the parameter of this name.
struct Value {
    name: Box<[u8]>,
    part: Lookup,
    is: Box<[u8]>,
}

impl Index {
    /// The index of `conditions`, each named by its place.
    pub fn new<'c>(conditions: impl ExactSizeIterator<Item = &'c Condition>) -> Self {
        let mut index = Self { all: Places::first(conditions.len()), attributes: Vec::new() };
        if conditions.len() < MIN_CONDITIONS {
            return index;
        }
        for (place, condition) in (0..=u8::MAX).zip(conditions) {
            let mut required = Vec::new();
            require(condition, &mut required);
            for (attribute, values) in required {
                index.file(place, attribute, values);
            }
        }
        let names = index.attributes.iter_mut().flat_map(|filed| &mut filed.names);
        for (_, keys) in names.flat_map(|named| &mut named.parts) {
            *keys = sorted(take(keys));
        }
        index
    }

    fn file(&mut self, place: u8, attribute: Attribute, values: Vec<Value>) {
        let filed = self.attributes.binary_search_by(|filed| filed.attribute.cmp(&attribute));
        let filed = filed.unwrap_or_else(|at| {
            self.attributes.insert(at, Filed { attribute, others: self.all, names: Vec::new() });
            at
        });
        let Some(filed) = self.attributes.get_mut(filed) else { return };
        filed.others.remove(place);
        for Value { name, part, is } in values {
            let folded: Box<[u8]> = pairs::folded(name.iter().copied()).collect();
            let named =
                filed.names.binary_search_by(|other| (&other.folded, &other.name).cmp(&(&folded, &name)));
            let named = named.unwrap_or_else(|at| {
                filed.names.insert(at, Named { folded, name, parts: Vec::new() });
                at
            });
            let Some(Named { parts, .. }) = filed.names.get_mut(named) else { return };
            match parts.iter_mut().find(|(other, _)| *other == part) {
                Some((_, keys)) => keys.push((is, place)),
                None => parts.push((part, vec![(is, place)])),
            }
        }
    }

    /// The places of the conditions that may hold for `request`, in order.
    #[must_use]
    pub fn candidates<'a>(&'a self, request: &Request<'a>) -> Places {
        let mut candidates = self.all;
        for filed in &self.attributes {
            if !candidates.are_among(filed.others)
                && let Some(found) = filed.find(request)
            {
                candidates.keep(found);
            }
        }
        candidates
    }
}

impl Filed {
    /// The conditions that this attribute of `request` leaves; `None` when its value is not known.
    fn find<'a>(&'a self, request: &Request<'a>) -> Option<Places> {
        let mut found = self.others;
        let mut look_up = |value: &[u8]| {
            self.names.iter().for_each(|named| look_up(&named.parts, value, &mut found));
        };
        let value = match &self.attribute {
            Attribute::Method => request.method().ok()?,
            Attribute::Host => request.host().ok()?,
            Attribute::Route => request.route().ok()?,
            Attribute::Path => {
                let path = request.path()?;
                if let Some(literal) = path.literal() {
                    look_up(without_slash(literal));
                }
                Some(without_slash(path.resolved()))
            }
            Attribute::Query => return self.find_in_query(request),
            Attribute::Client => {
                if let Some(client) = request.client().ok()? {
                    look_up(Bits::of(client).as_bytes());
                }
                None
            }
            Attribute::Header(name) => {
                if let Some(header) = request.header(name).ok()? {
                    header.any_reading(&mut |reading| {
                        look_up(reading);
                        false
                    })?;
                }
                None
            }
        };
        if let Some(value) = value {
            look_up(value);
        }
        Some(found)
    }

    /// A name is compared while it is decoded, and a value is decoded only when a condition names its parameter.
    fn find_in_query(&self, request: &Request<'_>) -> Option<Places> {
        let mut found = self.others;
        let (text, query) = request.query()?;
        for pairs in query.readings(Semicolon::Ambiguous) {
            if pairs.truncated() {
                return None;
            }
            request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
            for (name, value) in pairs::all_parameters(pairs, text) {
                // It may be any name.
                if name.has_wrong_escape() || pairs.may_have_brackets() && name.has_odd_brackets() {
                    return None;
                }
                self.look_up_named(name, |Named { name: wanted, parts, .. }| {
                    request.count(|effort| effort.pairs = effort.pairs.saturating_add(1));
                    match name.names(wanted) {
                        Ok(false) => {}
                        Ok(true) if value.is_clear() => look_up(parts, &value.value(), &mut found),
                        // It may have any value.
                        Ok(true) | Err(Unreadable) => {
                            let keys = parts.iter().flat_map(|(_, keys)| keys);
                            keys.for_each(|(_, place)| found.add(*place));
                        }
                    }
                });
            }
        }
        Some(found)
    }

    /// Calls `with` for the names that a parameter may have: those that its name begins with, up to where some server may end it.
    fn look_up_named<'s>(&'s self, name: Sent<'_>, mut with: impl FnMut(&'s Named)) {
        // To compare a single name costs less than to look for it.
        if let [only] = self.names.as_slice() {
            return with(only);
        }
        let (mut rest, mut folded) = (self.names.as_slice(), name.folded());
        for length in 0_usize.. {
            let (is_whole, byte) = match rest {
                [] => return,
                [only] => return with(only),
                [first, ..] => (first.folded.len() == length, folded.next()),
            };
            if is_whole {
                // The shortest are the first.
                let count = rest.partition_point(|named| named.folded.len() == length);
                let (whole, longer) = rest.split_at(count);
                if byte.is_none_or(|byte| byte == b'_' || !byte.is_ascii_graphic()) {
                    whole.iter().for_each(&mut with);
                }
                rest = longer;
            }
            let Some(byte) = byte else { return };
            let at = |named: &Named| named.folded.get(length).copied();
            rest = rest.get(rest.partition_point(|named| at(named) < Some(byte))..).unwrap_or_default();
            if rest.first().and_then(at) != Some(byte) {
                return;
            }
            rest = rest.get(..rest.partition_point(|named| at(named) == Some(byte))).unwrap_or_default();
        }
    }
}

/// Adds the conditions that are filed under `value`.
#[inline]
fn look_up(parts: &[(Lookup, Vec<Key>)], value: &[u8], found: &mut Places) {
    for (part, keys) in parts {
        let Some(value) = part.of(value) else { continue };
        let first = keys.partition_point(|(key, _)| **key < *value);
        let named = keys.get(first..).unwrap_or_default().iter();
        named.take_while(|(key, _)| **key == *value).for_each(|(_, place)| found.add(*place));
    }
}

impl Lookup {
    /// This part of `value`, if it has it.
    fn of(self, value: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Whole => Some(value),
            Self::Head(length) => value.get(..length),
            Self::Segments(length) => {
                value.get(..length).filter(|_| matches!(value.get(length), None | Some(b'/')))
            }
            Self::Tail(length) => {
                value.get(value.len().checked_sub(length)?..).filter(|tail| tail.first() == Some(&b'.'))
            }
        }
    }
}

/// A path as it is looked up: a slash at its end may make no difference.
fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Adds to `out` what each request has that meets `condition`.
fn require(condition: &Condition, out: &mut Vec<Required>) {
    let mut values = Vec::new();
    let name: &[u8] = if let Condition::Query(name, ..) = condition { name } else { &[] };
    let mut add = |part: Lookup, is: &[u8]| values.push(Value { name: name.into(), part, is: is.into() });
    let attribute = match condition {
        Condition::All(all) => return all.iter().for_each(|condition| require(condition, out)),
        Condition::Any(any) => return require_any(any, out),
        Condition::Not(_)
        | Condition::Cookie(..)
        | Condition::Attribute(..)
        | Condition::Body(..)
        | Condition::Time(_) => return,
        Condition::Method(names) => {
            names.iter().for_each(|name| add(Lookup::Whole, name));
            Attribute::Method
        }
        Condition::Route(names) => {
            names.iter().for_each(|name| add(Lookup::Whole, name));
            Attribute::Route
        }
        Condition::Host(hosts) => {
            for host in hosts {
                match host {
                    HostTest::Exact(host) => add(Lookup::Whole, host),
                    HostTest::Below(suffix) => add(Lookup::Tail(suffix.len()), suffix),
                }
            }
            Attribute::Host
        }
        Condition::Path(test) => {
            match test {
                PathTest::Exact(path, _) => add(Lookup::Whole, without_slash(path)),
                // Every path begins with nothing.
                PathTest::Prefix(path) if path.is_empty() => return,
                PathTest::Prefix(path) => add(Lookup::Segments(path.len()), path),
                PathTest::Regex(pattern) => {
                    let mut beginning = pattern.exact.beginning().as_bytes();
                    while let Some(shorter) = beginning.strip_suffix(b"/") {
                        beginning = shorter;
                    }
                    if beginning.is_empty() {
                        return;
                    }
                    add(Lookup::Head(beginning.len()), beginning);
                }
            }
            Attribute::Path
        }
        Condition::ClientAddress(networks) => {
            for bits in networks.iter().map(Network::bits) {
                add(Lookup::Head(bits.len()), &bits);
            }
            Attribute::Client
        }
        Condition::Header(_, test) | Condition::Query(_, _, test) => {
            let beginning = match test {
                ValueTest::Absent => return,
                ValueTest::Exact(value) => {
                    add(Lookup::Whole, value);
                    None
                }
                ValueTest::In(values) => {
                    values.iter().for_each(|value| add(Lookup::Whole, value));
                    None
                }
                ValueTest::Present | ValueTest::Normalized(..) => Some(&[][..]),
                ValueTest::Prefix(value) => Some(value.as_slice()),
                ValueTest::Regex(pattern) => Some(pattern.beginning().as_bytes()),
            };
            if let Some(beginning) = beginning {
                add(Lookup::Head(beginning.len()), beginning);
            }
            match condition {
                Condition::Header(name, _) => Attribute::Header(name.clone()),
                _ => Attribute::Query,
            }
        }
    };
    add_first((attribute, values), out);
}

/// Adds to `out` what is required whichever of `conditions` holds.
fn require_any(conditions: &[Condition], out: &mut Vec<Required>) {
    let Some((first, rest)) = conditions.split_first() else { return };
    let mut common = Vec::new();
    require(first, &mut common);
    for condition in rest {
        let mut other = Vec::new();
        require(condition, &mut other);
        common.retain_mut(|(attribute, values)| {
            let same = other.iter_mut().find(|(other, _)| other == attribute);
            same.map(|(_, more)| values.append(more)).is_some()
        });
    }
    common.into_iter().for_each(|required| add_first(required, out));
}

/// Adds to `out` what is required of an attribute, the first time.
fn add_first(required: Required, out: &mut Vec<Required>) {
    if out.len() < MAX_FILED && out.iter().all(|(attribute, _)| *attribute != required.0) {
        out.push(required);
    }
}

/// A set of conditions, by their places. Yields them in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places([u64; MAX_CONDITIONS / 64]);

impl Places {
    /// The first `count` conditions.
    fn first(count: usize) -> Self {
        let mut all = Self([0; _]);
        (0..=u8::MAX).take(count).for_each(|place| all.add(place));
        all
    }

    fn add(&mut self, place: u8) {
        if let Some(word) = self.0.get_mut(usize::from(place >> 6)) {
            *word |= 1 << (place & 63);
        }
    }

    fn remove(&mut self, place: u8) {
        if let Some(word) = self.0.get_mut(usize::from(place >> 6)) {
            *word &= !(1 << (place & 63));
        }
    }

    /// True if `others` has all of them.
    fn are_among(self, others: Self) -> bool {
        self.0.iter().zip(others.0).all(|(word, other)| word & !other == 0)
    }

    /// Keeps those that `others` has too.
    fn keep(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word &= other);
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let mut first = 0_u32;
        for word in &mut self.0 {
            if *word != 0 {
                first |= word.trailing_zeros();
                *word &= word.wrapping_sub(1);
                return usize::try_from(first).ok();
            }
            first = first.wrapping_add(u64::BITS);
        }
        None
    }
}
