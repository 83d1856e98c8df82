// SPDX-License-Identifier: Apache-2.0
//! The attributes of a request, each read on first use and kept for the request. The host reads headers and Envoy properties;
//! everything else is worked out here, the same in the filter, in tests and in the native command.
//!
//! An attribute that the host cannot read is [`Unreadable`], not absent: the request may have it. Policies take such an attribute
//! for one that may have any value.

pub mod body;
pub mod client_ip;
pub mod enquiry;
pub mod module;
pub mod pairs;
pub mod path;
pub mod sample;

use core::cell::{Cell, OnceCell, RefCell};
use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use crate::time::Micros;
use body::{Body, Wanted};
use client_ip::Trust;
use pairs::{LONGEST_PAIRS, MAX_PAIRS, Pairs, Query, Semicolon};
use path::{DecodedPath, Path, Split};

/// The host failed to read an attribute, which the request may or may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// The source of attributes: Envoy's host calls, or a map in tests and on the command line.
pub trait Attributes {
    /// The value of the header `name`, which is in lower case; `:method`, `:path`, `:authority` and `:scheme`
    /// count. A header sent on several lines is one value, its lines joined by a comma (RFC 9110 §5.3). A host that has the bytes lends
    /// them.
    /// `None` when the request has no such header.
    ///
    /// # Errors
    /// [`Unreadable`]
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable>;

    /// The number of lines that [`Attributes::header`] joined. Called only if the value contains a comma, so that the usual request pays
    /// nothing for it.
    ///
    /// # Errors
    /// [`Unreadable`]
    fn header_lines(&self, name: &str) -> Result<usize, Unreadable>;

    /// The time, by the proxy's clock; `None` if it is not known.
    fn now(&self) -> Option<Micros> {
        None
    }

    /// True if a body follows the headers, or if that is not known.
    fn has_body(&self) -> bool {
        true
    }

    /// The body, where all of it is known from the beginning: in tests, and on the command line.
    fn body(&self) -> Option<&[u8]> {
        None
    }

    /// The Envoy attribute at `path`, for example `["source", "address"]`; `None` when it is not set.
    ///
    /// # Errors
    /// [`Unreadable`]
    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable>;
}

/// True if this is a gRPC call as Envoy knows one: the type in lower case, without parameters, and a path. A request is no gRPC call if
/// that cannot be read. Envoy looks at the headers before its filters run, and weir when it rejects: a filter between may have changed
/// them. See [`Rejection::reply`](crate::response::Rejection::reply).
///
/// `header` reads a header. weir calls this only for a request that it rejects, and reads the path only if the type is gRPC's.
#[must_use]
pub fn is_grpc(header: &dyn Fn(&str) -> Option<Vec<u8>>) -> bool {
    let kind = header("content-type").unwrap_or_default();
    let rest = kind.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+'))) && header(":path").is_some()
}

/// The number of hashes that are kept for the request.
const MAX_DIGESTS: usize = 64;

/// A header's value, all of its lines.
#[derive(Debug)]
pub struct Header<'a> {
    /// The value; its lines joined by a comma.
    pub value: Cow<'a, [u8]>,
    /// On how many lines it was sent.
    pub lines: usize,
}

/// The result of reading one header.
type HeaderRead<'a> = Result<Option<Header<'a>>, Unreadable>;

impl Header<'_> {
    /// True if `test` holds for any of its readings: all of its lines joined and, if there are several, each element. `None` if there is
    /// more than is read.
    pub fn any_reading(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> Option<bool> {
        if self.lines <= 1 {
            return Some(test(&self.value));
        }
        let mut elements = self.value.split(|&byte| byte == b',');
        if self.value.len() > LONGEST_PAIRS || elements.clone().nth(MAX_PAIRS).is_some() {
            return None;
        }
        Some(test(&self.value) || elements.any(|element| test(element.trim_ascii())))
    }
}

/// The result of reading an attribute that is kept as it was sent.
type Read<'a> = Result<Option<Cow<'a, [u8]>>, Unreadable>;

/// The headers and attributes read so far, by name, also those that are missing; the first few without memory of their own.
#[derive(Default)]
struct Named<'a> {
    kept: [OnceCell<(&'a str, HeaderRead<'a>)>; 4],
    more: OnceCell<Box<Self>>,
}

/// The path of an Envoy attribute, for example `["source", "address"]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Property {
    /// Its words.
    pub path: Vec<String>,
    /// Each word after a NUL, which no header has in its name.
    name: String,
}

impl Property {
    /// The attribute at `path`.
    #[must_use]
    pub fn new(path: &[&str]) -> Self {
        Self {
            path: path.iter().map(|&word| word.to_owned()).collect(),
            name: path.iter().flat_map(|word| ["\0", word]).collect(),
        }
    }
}

/// The parts of a request that were looked at: they bound its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The number of comparisons with a parameter, a cookie or an element of a header on several lines.
    pub pairs: usize,
    /// Bytes searched with regular expressions, times the size of the program.
    pub steps: usize,
    /// Bytes hashed.
    pub hashed: usize,
}

/// A hash that stands for a value in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// The SHA-1 of a value that is too long.
    Long([u8; 20]),
    /// The first bits of the SHA-256, or of an HMAC with it, of a value that must not be there in clear.
    Hidden([u8; 16]),
}

/// Identifies the value of a digest: a name, and a number for its kind.
pub type ValueId<'a> = (u16, &'a [u8]);

/// One request: its [`Attributes`], and what was already worked out from them. `'a` is what lives as long as the
/// configuration: names of headers, and parts of subjects.
pub struct Request<'a> {
    attributes: &'a dyn Attributes,
    trust: &'a Trust,
    target: OnceCell<(Cow<'a, [u8]>, Split)>,
    /// The path, if it has to be decoded.
    decoded: OnceCell<Option<DecodedPath>>,
    /// The resolved path with a slash at its end.
    slashed: OnceCell<Vec<u8>>,
    query: OnceCell<Query>,
    cookies: OnceCell<Pairs>,
    method: OnceCell<Read<'a>>,
    host: OnceCell<Read<'a>>,
    client: OnceCell<Result<Option<IpAddr>, Unreadable>>,
    named: Named<'a>,
    body: BodyState<'a>,
    /// The hashes of values, so that two policies of one subject hash it once.
    digests: RefCell<Vec<(ValueId<'a>, Digest)>>,
    effort: Cell<Effort>,
}

/// The state of a request's body.
enum BodyState<'a> {
    /// No policy needs a value of it.
    Unneeded,
    /// It has not come yet.
    Ahead {
        wanted: &'a Rc<Wanted>,
        /// True if it could not be read in any event.
        out_of_reach: OnceCell<bool>,
        /// True if a policy has asked for a value of it.
        awaited: Cell<bool>,
    },
    /// The body has arrived, or weir decided without waiting for it.
    Read(&'a Body),
}

impl<'a> Request<'a> {
    /// A request whose client address is found with `trust`.
    #[must_use]
    pub fn new(attributes: &'a dyn Attributes, trust: &'a Trust) -> Self {
        Self {
            attributes,
            trust,
            target: OnceCell::new(),
            decoded: OnceCell::new(),
            slashed: OnceCell::new(),
            query: OnceCell::new(),
            cookies: OnceCell::new(),
            method: OnceCell::new(),
            host: OnceCell::new(),
            client: OnceCell::new(),
            named: Named::default(),
            body: BodyState::Unneeded,
            digests: RefCell::default(),
            effort: Cell::default(),
        }
    }

    /// The same request with a body that has not arrived yet. The `wanted` values of it may be needed.
    #[must_use]
    pub fn before_body(self, wanted: &'a Rc<Wanted>) -> Self {
        let (out_of_reach, awaited) = (OnceCell::new(), Cell::new(false));
        Self { body: BodyState::Ahead { wanted, out_of_reach, awaited }, ..self }
    }

    /// With this body.
    #[must_use]
    pub fn with_body(self, body: &'a Body) -> Self {
        Self { body: BodyState::Read(body), ..self }
    }

    /// A header; see [`Attributes::header`].
    ///
    /// # Errors
    /// [`Unreadable`], also if a line [begins or ends](has_odd_ends) as servers differ in.
    pub fn header(&self, name: &'a str) -> Result<Option<&Header<'a>>, Unreadable> {
        self.named(name, &|| {
            let Some(value) = self.attributes.header(name)? else { return Ok(None) };
            let lines = if value.contains(&b',') { self.attributes.header_lines(name)? } else { 1 };
            let mut each = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            let is_odd = has_odd_ends(&value) || lines > 1 && !value.is_ascii() && each.any(has_odd_ends);
            if is_odd { Err(Unreadable) } else { Ok(Some(Header { value, lines })) }
        })
    }

    /// Returns what is kept under `name`; `read` reads it the first time.
    fn named(
        &self,
        name: &'a str,
        read: &dyn Fn() -> HeaderRead<'a>,
    ) -> Result<Option<&Header<'a>>, Unreadable> {
        let mut named = &self.named;
        loop {
            for cell in &named.kept {
                let is_new = cell.get().is_none();
                let (kept, value) = cell.get_or_init(|| (name, read()));
                if is_new || *kept == name {
                    return value.as_ref().map(Option::as_ref).map_err(|unreadable| *unreadable);
                }
            }
            named = named.more.get_or_init(Box::default);
        }
    }

    /// True if a body follows the headers.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.attributes.has_body()
    }

    /// True if a value was asked for of a body that has not arrived yet: then the request is not known completely.
    #[must_use]
    pub const fn awaits_body(&self) -> bool {
        matches!(&self.body, BodyState::Ahead { awaited, .. } if awaited.get())
    }

    /// True if a value of its body was asked for, and its headers say that the body cannot be read.
    #[must_use]
    pub fn lacks_body(&self) -> bool {
        matches!(&self.body, BodyState::Ahead { out_of_reach, .. } if out_of_reach.get() == Some(&true))
    }

    /// Returns the result of `look` if the body cannot change it; `None` if it depends on a body that has not arrived.
    pub fn without_body<Found>(&self, look: impl FnOnce() -> Found) -> Option<Found> {
        let BodyState::Ahead { awaited, .. } = &self.body else { return Some(look()) };
        let before = awaited.replace(false);
        let found = look();
        let depends = awaited.get();
        awaited.set(before || depends);
        (!depends).then_some(found)
    }

    /// The text of the value at a path of the JSON body; `None` if there is none.
    ///
    /// # Errors
    /// [`Unreadable`], also for a body that has not come yet: see [`Request::awaits_body`]. Also for a field of a form, and for a value of JSON,
    /// if the query has a parameter of its name: servers that join both read the parameter's value, or both.
    pub fn body_text(&self, path: &str) -> Result<Option<Cow<'a, [u8]>>, Unreadable> {
        self.body_apart(path)?.map_or(Ok(None), |body| body.text(path))
    }

    /// Its body, unless servers may read a parameter of the query in place of the value at this path.
    fn body_apart(&self, path: &str) -> Result<Option<&'a Body>, Unreadable> {
        let body = self.body()?;
        match body.and_then(|body| body.joins(path)) {
            Some(name) if self.may_have_parameter(name) => Err(Unreadable),
            _ => Ok(body),
        }
    }

    /// The number at a path of the JSON body, rounded up; `None` if there is none.
    ///
    /// # Errors
    /// As of [`Request::body_text`].
    pub fn body_number(&self, path: &str) -> Result<Option<u64>, Unreadable> {
        self.body_apart(path)?.map_or(Ok(None), |body| body.number(path))
    }

    /// The whole number at a path of its body, if there is one. 0 and a fraction are unreadable, too: servers differ in what they make of them.
    ///
    /// # Errors
    /// As of [`Request::body_text`].
    pub fn body_count(&self, path: &str) -> Result<Option<u64>, Unreadable> {
        self.body()?.map_or(Ok(None), |body| body.count(path))
    }

    /// The number of calls of JSON-RPC: for a batch, which is an array, its items; 1 for anything else.
    ///
    /// # Errors
    /// As for [`Request::body_text`].
    pub fn calls(&self) -> Result<u64, Unreadable> {
        self.body()?.map_or(Ok(1), Body::calls)
    }

    /// The length of its body in bytes.
    ///
    /// # Errors
    /// As for [`Request::body_text`].
    pub fn body_length(&self) -> Result<u64, Unreadable> {
        self.body()?.map_or(Ok(0), Body::length)
    }

    fn body(&self) -> Result<Option<&'a Body>, Unreadable> {
        if !self.has_body() {
            return Ok(None);
        }
        match &self.body {
            BodyState::Read(body) => Ok(Some(body)),
            BodyState::Unneeded => Err(Unreadable),
            BodyState::Ahead { wanted, out_of_reach, awaited } => {
                let is_out_of_reach = || body::is_out_of_reach(wanted, self.attributes).unwrap_or(true);
                awaited.set(!out_of_reach.get_or_init(is_out_of_reach));
                Err(Unreadable)
            }
        }
    }

    /// Any Envoy attribute.
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn property(&self, property: &'a Property) -> Result<Option<&[u8]>, Unreadable> {
        self.property_at(&property.name, &|| {
            self.attributes.property(&property.path.iter().map(String::as_str).collect::<Vec<_>>())
        })
    }

    fn property_at(&self, name: &'a str, read: &dyn Fn() -> Read<'a>) -> Result<Option<&[u8]>, Unreadable> {
        let property = self.named(name, &|| Ok(read()?.map(|value| Header { value, lines: 1 })))?;
        Ok(property.map(|property| property.value.as_ref()))
    }

    /// The request method, in capitals.
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn method(&self) -> Result<Option<&[u8]>, Unreadable> {
        let read = || {
            let mut method = self.attributes.header(":method")?;
            if let Some(method) = method.as_mut().filter(|method| method.iter().any(u8::is_ascii_lowercase)) {
                method.to_mut().make_ascii_uppercase();
            }
            Ok(method)
        };
        borrowed(self.method.get_or_init(read))
    }

    /// The host of the request: lower case, without port, without the root's dot.
    ///
    /// # Errors
    /// [`Unreadable`], also if servers find another host in it.
    pub fn host(&self) -> Result<Option<&[u8]>, Unreadable> {
        borrowed(self.host.get_or_init(|| self.attributes.header(":authority")?.map(host).transpose()))
    }

    /// The path, in the spelling policies are matched on, and as it was sent; `None` when it is too long to be read,
    /// unreadable, or [may be any](DecodedPath::may_be_any).
    #[must_use]
    pub fn path(&self) -> Option<Path<'_>> {
        let (target, split) = self.target();
        let raw = target.get(split.path.clone()?).unwrap_or_default();
        let decoded = self.decoded.get_or_init(|| DecodedPath::new(raw)).as_ref();
        let may_be_any = decoded.is_some_and(DecodedPath::may_be_any);
        (!may_be_any).then(|| Path::new(raw, decoded))
    }

    /// The resolved path with a slash at its end.
    #[must_use]
    pub fn path_with_slash(&self) -> &[u8] {
        self.slashed.get_or_init(|| {
            let path = self.path().map(Path::without_slash).unwrap_or_default();
            if path == b"/" { path.to_vec() } else { [path, b"/"].concat() }
        })
    }

    /// The query's text, and where its parameters are; `None` when the path before it is too long to be read, or unreadable.
    #[must_use]
    pub fn query(&self) -> Option<(&[u8], &Query)> {
        let (target, split) = self.target();
        split.path.as_ref()?;
        let text = target.get(split.query.clone()).unwrap_or_default();
        Some((text, self.query.get_or_init(|| Query::new(text))))
    }

    /// True if some server finds a parameter of this name in the query.
    fn may_have_parameter(&self, name: &[u8]) -> bool {
        self.query().is_none_or(|(text, query)| {
            query.readings(Semicolon::Ambiguous).any(|pairs| {
                self.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
                let values = pairs::parameters(pairs, text, name);
                pairs.truncated() || values.map_or(true, |values| !values.is_empty())
            })
        })
    }

    /// The cookie header, and where its cookies are in it.
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn cookies(&self) -> Result<Option<(&Header<'a>, &Pairs)>, Unreadable> {
        let Some(header) = self.header("cookie")? else { return Ok(None) };
        let pairs = self.cookies.get_or_init(|| pairs::cookies(&header.value));
        Ok(Some((header, pairs)))
    }

    /// The time, by the proxy's clock.
    ///
    /// # Errors
    /// [`Unreadable`] if it is not known.
    pub fn now(&self) -> Result<Micros, Unreadable> {
        self.attributes.now().ok_or(Unreadable)
    }

    /// The hash of a value of this request, when it was kept.
    #[must_use]
    pub fn digest(&self, id: ValueId<'_>) -> Option<Digest> {
        let digests = self.digests.borrow();
        digests.iter().find(|(kept, _)| *kept == id).map(|(_, digest)| *digest)
    }

    /// True if any hash was kept.
    pub(crate) fn has_digests(&self) -> bool {
        self.digests.try_borrow().is_ok_and(|digests| !digests.is_empty())
    }

    /// Keeps the hash of a value.
    pub fn keep_digest(&self, id: ValueId<'a>, digest: Digest) {
        let mut digests = self.digests.borrow_mut();
        if digests.len() < MAX_DIGESTS {
            digests.push((id, digest));
        }
    }

    /// Adds to the effort that was made for the request.
    pub fn count(&self, add: impl FnOnce(&mut Effort)) {
        let mut effort = self.effort.get();
        add(&mut effort);
        self.effort.set(effort);
    }

    /// The parts of the request that were looked at until now.
    #[must_use]
    pub const fn effort(&self) -> Effort {
        self.effort.get()
    }

    /// The client's address, IPv4-mapped IPv6 as IPv4; `None` when the connection has no IP address (a unix
    /// socket).
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn client(&self) -> Result<Option<IpAddr>, Unreadable> {
        *self.client.get_or_init(|| {
            let address = self.attributes.property(&["source", "address"])?;
            let Some(connection) = address.and_then(|address| client_ip::connection(&address)) else {
                return Ok(None);
            };
            if self.trust.is_connection() {
                return Ok(Some(connection));
            }
            let chain = self.header(self.trust.header())?;
            Ok(Some(self.trust.client(connection, chain.map_or(&[][..], |chain| &chain.value))))
        })
    }

    /// The name of the route that Envoy chose.
    ///
    /// # Errors
    /// [`Unreadable`]
    pub fn route(&self) -> Result<Option<&[u8]>, Unreadable> {
        self.property_at("\0xds\0route_name", &|| self.attributes.property(&["xds", "route_name"]))
    }

    fn target(&self) -> &(Cow<'a, [u8]>, Split) {
        self.target.get_or_init(|| {
            let Ok(target) = self.attributes.header(":path") else {
                return (Cow::Borrowed(&[]), Split::UNREADABLE);
            };
            let target = target.unwrap_or_default();
            let split = Split::new(&target);
            (target, split)
        })
    }
}

fn borrowed<'r>(kept: &'r Read<'_>) -> Result<Option<&'r [u8]>, Unreadable> {
    kept.as_ref().map(Option::as_deref).map_err(|unreadable| *unreadable)
}

/// True if gunicorn drops bytes at the ends of this line: spaces of Latin-1. In UTF-8 they are the end of a letter.
fn has_odd_ends(line: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(0x85 | 0xa0));
    (is_space(line.first()) || is_space(line.last())) && core::str::from_utf8(line).is_err()
}

/// The kind of each byte in a host. Each kind is a bit.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static OF_HOST: [u8; 256] = {
    let mut kinds = [FOREIGN; 256];
    let mut byte = b'-';
    while byte <= b'z' {
        kinds[byte as usize] = match byte {
            b'A'..=b'Z' => CAPITAL,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' | b'[' | b']' => 0,
            _ => FOREIGN,
        };
        byte += 1;
    }
    kinds
};
const CAPITAL: u8 = 1;
/// No host has it.
const FOREIGN: u8 = 1 << 1;

/// The host of an authority. Unreadable if it has anything but a host and a port in digits: some servers end it at any colon, others take
/// what is behind an `@`, or decode it.
fn host(authority: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Unreadable> {
    let is_literal = authority.first() == Some(&b'[');
    let last = if is_literal { b']' } else { b':' };
    let mut kinds = 0;
    let end = authority.iter().position(|&byte| {
        kinds |= OF_HOST.get(usize::from(byte)).copied().unwrap_or(FOREIGN);
        byte == last
    });
    let end = end.map_or(authority.len(), |end| end.saturating_add(is_literal.into()));
    let (host, port) = authority.split_at(end);
    let is_port = matches!(port.first(), None | Some(b':')) && port.iter().skip(1).all(u8::is_ascii_digit);
    if !is_port || kinds & FOREIGN != 0 {
        return Err(Unreadable);
    }
    let length = host.strip_suffix(b".").unwrap_or(host).len();
    Ok(match authority {
        Cow::Borrowed(authority) if kinds == 0 => Cow::Borrowed(authority.get(..length).unwrap_or_default()),
        authority => {
            let mut host = authority.into_owned();
            host.truncate(length);
            host.make_ascii_lowercase();
            Cow::Owned(host)
        }
    })
}
