//! Conditions on a request. Where a request can be read in two ways (a path in two spellings, a header on two
//! lines, a value too long to search) the caller says which way to lean: a policy leans towards applying, an
//! exemption towards not applying. So there is no spelling that gets round a policy.

use regex_lite::Regex;

use crate::request::Request;
use crate::request::client_ip::Network;

/// The longest value a regular expression is tried on, in bytes. Bounds the time of a match, which is linear in
/// the value's length; a longer value is in doubt.
pub const LONGEST_SEARCHED: usize = 4096;

/// What an ambiguous request is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lean {
    /// In doubt the condition holds: for policies and deny lists.
    Holds,
    /// In doubt it does not: for exemptions.
    Fails,
}

impl Lean {
    const fn opposite(self) -> Self {
        match self {
            Self::Holds => Self::Fails,
            Self::Fails => Self::Holds,
        }
    }

    /// Over several readings: any is enough when leaning towards holding, all are needed when not.
    fn over<T>(self, readings: impl IntoIterator<Item = T>, test: impl FnMut(T) -> bool) -> bool {
        let mut readings = readings.into_iter();
        match self {
            Self::Holds => readings.any(test),
            Self::Fails => readings.all(test),
        }
    }
}

/// A condition on a request.
#[derive(Debug)]
pub enum Condition {
    /// All of them hold; the empty list always does.
    All(Vec<Condition>),
    /// At least one of them holds.
    Any(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// On the path.
    Path(PathTest),
    /// The method is one of these, in capitals.
    Method(Vec<Vec<u8>>),
    /// The host is like one of these.
    Host(Vec<HostTest>),
    /// On the header of this name, in lower case.
    Header(String, ValueTest),
    /// On the query parameter of this name.
    Query(Vec<u8>, ValueTest),
    /// The route's name is one of these.
    Route(Vec<Vec<u8>>),
    /// The client's address lies in one of these.
    Source(Vec<Network>),
}

/// A test on the path.
#[derive(Debug)]
pub enum PathTest {
    /// It is this.
    Exact(Vec<u8>),
    /// It is this or lies below it; without a slash at its end.
    Prefix(Vec<u8>),
    /// The whole of it matches.
    Regex(Regex),
}

/// A test on the host.
#[derive(Debug, PartialEq, Eq)]
pub enum HostTest {
    /// It is this, in lower case.
    Exact(Vec<u8>),
    /// It ends with this, which begins with a dot.
    Below(Vec<u8>),
}

/// A test on a header or query parameter.
#[derive(Debug)]
pub enum ValueTest {
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// Its value is this.
    Equals(Vec<u8>),
    /// Its value begins with this.
    Prefix(Vec<u8>),
    /// Its whole value matches.
    Regex(Regex),
}

impl Condition {
    /// Whether the condition holds for `request`.
    #[must_use]
    pub fn holds(&self, request: &Request<'_>, lean: Lean) -> bool {
        self.broken_by(request, lean).is_none()
    }

    /// The innermost condition that does not hold, when the whole does not.
    #[must_use]
    pub fn broken_by(&self, request: &Request<'_>, lean: Lean) -> Option<&Self> {
        let holds = match self {
            Self::All(all) => return all.iter().find_map(|each| each.broken_by(request, lean)),
            Self::Any(any) => any.iter().any(|each| each.holds(request, lean)),
            Self::Not(not) => !not.holds(request, lean.opposite()),
            Self::Path(test) => {
                let path = request.path();
                let readings = core::iter::once(path.resolved()).chain(path.literal());
                lean.over(readings, |path| test.holds(path, lean))
            }
            Self::Method(names) => request.method().is_some_and(|method| names.contains(&method)),
            Self::Host(hosts) => {
                request.host().is_some_and(|host| hosts.iter().any(|test| test.holds(&host)))
            }
            Self::Header(name, test) => match request.header(name) {
                None => test.holds_absent(),
                Some(value) if request.header_lines(name, &value) > 1 => {
                    let lines = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                    lean.over(lines.chain([value.as_slice()]), |line| test.holds(line, lean))
                }
                Some(value) => test.holds(&value, lean),
            },
            Self::Query(name, test) => {
                let values = request.query(name);
                if values.is_empty() {
                    test.holds_absent()
                } else {
                    lean.over(&values, |value| test.holds(value, lean))
                }
            }
            Self::Route(names) => request.route().is_some_and(|route| names.contains(&route)),
            Self::Source(networks) => {
                request.client().is_some_and(|client| networks.iter().any(|network| network.contains(client)))
            }
        };
        (!holds).then_some(self)
    }
}

impl PathTest {
    fn holds(&self, path: &[u8], lean: Lean) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path
                .strip_prefix(prefix.as_slice())
                .is_some_and(|rest| matches!(rest.first(), None | Some(b'/'))),
            Self::Regex(regex) => search(regex, path, lean),
        }
    }
}

impl HostTest {
    fn holds(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        }
    }
}

impl ValueTest {
    fn holds(&self, value: &[u8], lean: Lean) -> bool {
        match self {
            Self::Present => true,
            Self::Absent => false,
            Self::Equals(wanted) => value == wanted,
            Self::Prefix(prefix) => value.starts_with(prefix),
            Self::Regex(regex) => search(regex, value, lean),
        }
    }

    const fn holds_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// Whether all of `value` matches. Bytes that are not UTF-8 are searched as U+FFFD.
fn search(regex: &Regex, value: &[u8], lean: Lean) -> bool {
    if value.len() > LONGEST_SEARCHED {
        return lean == Lean::Holds;
    }
    regex.is_match(&String::from_utf8_lossy(value))
}
