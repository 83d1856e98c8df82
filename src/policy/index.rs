//! Which policies may match a request, without a look at each of them. So a request that no policy is about costs the same
//! under one policy and under 256.
//!
//! A policy is filed under what a request must have to match: a method, a host, a path, a network, the value of a header, the
//! name of a route. For each of these attributes, the policies that stay candidates are those without a condition on it, and
//! those that are filed under the request's value. An attribute is read only when candidates have a condition on it.
//!
//! The index may name a policy that does not match; [`rule`](super::Policy::rule) says so. It never leaves out one that matches:
//! it looks up every reading of an attribute, and an attribute that is not known leaves all candidates.
//!
//! A look-up tries the lengths that configured values have, so a long value costs no more than a short one.

use core::mem::take;
use std::collections::BinaryHeap;

use super::matcher::{Condition, HostTest, PathTest, ValueTest};
use crate::request::Request;
use crate::request::client_ip::{Bits, Network};

/// The most policies of a configuration.
pub const MAX_POLICIES: usize = 256;

/// Under how many attributes a policy is filed at most. It bounds what conditions on very many headers cost.
const MAX_FILED: usize = 8;

/// With fewer policies a look at each of them costs less.
const MIN_POLICIES: usize = 4;

/// See the [module](self).
#[derive(Debug)]
pub struct Index {
    policies: Policies,
    attributes: Vec<Filed>,
}

/// An attribute, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attribute {
    Method,
    Host,
    Path,
    Client,
    Route,
    Header(String),
}

/// The policies by one attribute.
#[derive(Debug)]
struct Filed {
    attribute: Attribute,
    /// The policies without a condition on it.
    others: Policies,
    /// Those with one, by the part of the value that they name.
    parts: Vec<(Part, Vec<Key>)>,
}

/// What a part of a value has to be for this policy to match.
type Key = (Box<[u8]>, u8);

/// Which part of an attribute's value is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it.
    Whole,
    /// The first bytes, so many.
    Head(usize),
    /// The first bytes of a path, where a segment ends after them.
    Segments(usize),
    /// The last bytes of a host, from a dot on.
    Tail(usize),
}

/// What a condition requires of an attribute: that a part of it is one of these.
type Required = (Attribute, Vec<(Part, Box<[u8]>)>);

impl Index {
    /// The index of policies with these conditions, in the order of the configuration.
    pub fn new<'c>(conditions: impl ExactSizeIterator<Item = &'c Condition>) -> Self {
        let mut index = Self { policies: Policies::first(conditions.len()), attributes: Vec::new() };
        if conditions.len() < MIN_POLICIES {
            return index;
        }
        for (policy, condition) in (0..=u8::MAX).zip(conditions) {
            let mut required = Vec::new();
            require(condition, &mut required);
            for (attribute, parts) in required {
                index.file(policy, attribute, parts);
            }
        }
        for (_, keys) in index.attributes.iter_mut().flat_map(|filed| &mut filed.parts) {
            // A fifth of the code of `sort_unstable`.
            *keys = BinaryHeap::from(take(keys)).into_sorted_vec();
        }
        index
    }

    fn file(&mut self, policy: u8, attribute: Attribute, parts: Vec<(Part, Box<[u8]>)>) {
        let place = self.attributes.binary_search_by(|filed| filed.attribute.cmp(&attribute));
        let place = place.unwrap_or_else(|place| {
            let filed = Filed { attribute, others: self.policies, parts: Vec::new() };
            self.attributes.insert(place, filed);
            place
        });
        let Some(filed) = self.attributes.get_mut(place) else { return };
        filed.others.remove(policy);
        for (part, key) in parts {
            let key = (key, policy);
            match filed.parts.iter_mut().find(|(other, _)| *other == part) {
                Some((_, keys)) => keys.push(key),
                None => filed.parts.push((part, vec![key])),
            }
        }
    }

    /// The policies that may match `request`, in the order of the configuration.
    #[must_use]
    pub fn candidates<'a>(&'a self, request: &Request<'a>) -> Policies {
        let mut candidates = self.policies;
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
    /// The policies that this attribute of `request` leaves; `None` when its value is not known.
    fn find<'a>(&'a self, request: &Request<'a>) -> Option<Policies> {
        let mut found = self.others;
        let mut look_up = |value: &[u8]| self.look_up(value, &mut found);
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

    /// Adds the policies that are filed under `value`.
    fn look_up(&self, value: &[u8], found: &mut Policies) {
        for (part, keys) in &self.parts {
            let Some(value) = part.of(value) else { continue };
            let first = keys.partition_point(|(key, _)| **key < *value);
            let named = keys.get(first..).unwrap_or_default().iter();
            named.take_while(|(key, _)| **key == *value).for_each(|(_, policy)| found.add(*policy));
        }
    }
}

impl Part {
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
    let mut parts = Vec::new();
    let mut add = |part: Part, value: &[u8]| parts.push((part, Box::from(value)));
    let attribute = match condition {
        Condition::All(all) => return all.iter().for_each(|condition| require(condition, out)),
        Condition::Any(any) => return require_any(any, out),
        Condition::Not(_) | Condition::Query(..) | Condition::Cookie(..) | Condition::Attribute(..) => return,
        Condition::Method(names) => {
            names.iter().for_each(|name| add(Part::Whole, name));
            Attribute::Method
        }
        Condition::Route(names) => {
            names.iter().for_each(|name| add(Part::Whole, name));
            Attribute::Route
        }
        Condition::Host(hosts) => {
            for host in hosts {
                match host {
                    HostTest::Exact(host) => add(Part::Whole, host),
                    HostTest::Below(suffix) => add(Part::Tail(suffix.len()), suffix),
                }
            }
            Attribute::Host
        }
        Condition::Path(test) => {
            match test {
                PathTest::Exact(path, _) => add(Part::Whole, without_slash(path)),
                // Every path begins with nothing.
                PathTest::Prefix(path) if path.is_empty() => return,
                PathTest::Prefix(path) => add(Part::Segments(path.len()), path),
                PathTest::Regex(pattern) => {
                    let mut beginning = pattern.exact.beginning().as_bytes();
                    while let Some(shorter) = beginning.strip_suffix(b"/") {
                        beginning = shorter;
                    }
                    if beginning.is_empty() {
                        return;
                    }
                    add(Part::Head(beginning.len()), beginning);
                }
            }
            Attribute::Path
        }
        Condition::ClientAddress(networks) => {
            for bits in networks.iter().map(Network::bits) {
                add(Part::Head(bits.len()), &bits);
            }
            Attribute::Client
        }
        Condition::Header(name, test) => {
            let beginning = match test {
                ValueTest::Absent => return,
                ValueTest::Exact(value) => {
                    add(Part::Whole, value);
                    None
                }
                ValueTest::In(values) => {
                    values.iter().for_each(|value| add(Part::Whole, value));
                    None
                }
                ValueTest::Present => Some(&[][..]),
                ValueTest::Prefix(value) => Some(value.as_slice()),
                ValueTest::Regex(pattern) => Some(pattern.beginning().as_bytes()),
            };
            if let Some(beginning) = beginning {
                add(Part::Head(beginning.len()), beginning);
            }
            Attribute::Header(name.clone())
        }
    };
    add_first((attribute, parts), out);
}

/// Adds to `out` what is required whichever of `conditions` holds.
fn require_any(conditions: &[Condition], out: &mut Vec<Required>) {
    let Some((first, rest)) = conditions.split_first() else { return };
    let mut common = Vec::new();
    require(first, &mut common);
    for condition in rest {
        let mut other = Vec::new();
        require(condition, &mut other);
        common.retain_mut(|(attribute, parts)| {
            let same = other.iter_mut().find(|(other, _)| other == attribute);
            same.map(|(_, more)| parts.append(more)).is_some()
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

/// A set of policies, by their place in the configuration. Yields them in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies([u64; MAX_POLICIES / 64]);

impl Policies {
    /// The first `count` policies.
    fn first(count: usize) -> Self {
        let mut all = Self([0; _]);
        (0..=u8::MAX).take(count).for_each(|policy| all.add(policy));
        all
    }

    fn add(&mut self, policy: u8) {
        if let Some(word) = self.0.get_mut(usize::from(policy >> 6)) {
            *word |= 1 << (policy & 63);
        }
    }

    fn remove(&mut self, policy: u8) {
        if let Some(word) = self.0.get_mut(usize::from(policy >> 6)) {
            *word &= !(1 << (policy & 63));
        }
    }

    /// Whether `others` has all of them.
    fn are_among(self, others: Self) -> bool {
        self.0.iter().zip(others.0).all(|(word, other)| word & !other == 0)
    }

    /// Keeps those that `others` has too.
    fn keep(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word &= other);
    }
}

impl Iterator for Policies {
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
