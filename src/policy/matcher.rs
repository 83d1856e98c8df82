// SPDX-License-Identifier: Apache-2.0
//! Conditions on a request. A request can be ambiguous: a path in two spellings, a header on two lines, a value too long to
//! search, an attribute that the host cannot read. For such a request the caller chooses with [`OnAmbiguity`]: a policy
//! applies, an exemption does not. So no spelling gets round a policy.

use std::borrow::Cow;

use super::key::LONGEST_HIDDEN;
use super::normal::Normal;
use super::pattern::{Pattern, Searches};
use crate::limit::UtcOffset;
use crate::request::client_ip::Network;
use crate::request::pairs::{self, Pairs, Semicolon, Sent, Values};
use crate::request::path::{Path, TrailingSlash};
use crate::request::{Header, Property, Request, Unreadable};
use crate::sorted_map::sorted;
use crate::time::Micros;

/// The result of a condition if a request can be read in two ways, and only one of them meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAmbiguity {
    /// It holds: for policies and deny lists.
    Holds,
    /// It does not hold: for exemptions.
    Fails,
}

impl OnAmbiguity {
    const fn opposite(self) -> Self {
        match self {
            Self::Holds => Self::Fails,
            Self::Fails => Self::Holds,
        }
    }

    /// The result of a condition on something that is not known: too long to be read, or unreadable. Of several readings, one with
    /// this result decides.
    const fn in_doubt(self) -> bool {
        matches!(self, Self::Holds)
    }

    /// The result of a condition on an attribute.
    fn test<T>(self, attribute: Result<T, Unreadable>, test: impl FnOnce(T) -> bool) -> bool {
        attribute.map_or_else(|Unreadable| self.in_doubt(), test)
    }

    /// The result over several readings: it holds if any of them does, or fails if any of them does.
    fn over<T>(self, readings: impl IntoIterator<Item = T>, mut test: impl FnMut(T) -> bool) -> bool {
        let decisive = self.in_doubt();
        readings.into_iter().any(|reading| test(reading) == decisive) == decisive
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
    Query(Vec<u8>, Semicolon, ValueTest),
    /// On the cookie of this name.
    Cookie(Vec<u8>, ValueTest),
    /// On this Envoy attribute: a JWT claim is one of them.
    Attribute(Property, ValueTest),
    /// On the value at this path of the JSON body.
    Body(String, ValueTest),
    /// The route's name is one of these.
    Route(Vec<Vec<u8>>),
    /// The client's address is in one of these.
    ClientAddress(Vec<Network>),
    /// On the time.
    Time(TimeTest),
}

/// A test on the time, by the proxy's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeTest {
    /// The days on which the span begins, from Monday: a bit each.
    pub days: u8,
    /// The first minute of the span, and the first after it; a span that ends no later than it begins ends on the next day.
    pub span: (u16, u16),
    /// The offset of the local time from UTC.
    pub offset: UtcOffset,
}

/// A test on the path.
#[derive(Debug)]
pub enum PathTest {
    /// It is this.
    Exact(Vec<u8>, TrailingSlash),
    /// It is this or lies below it; without a slash at its end.
    Prefix(Vec<u8>),
    /// The whole of it matches.
    Regex(PathPattern),
}

/// A regular expression for paths.
#[derive(Debug)]
pub struct PathPattern {
    /// As it was written.
    pub exact: Pattern,
    /// The meaning of a slash at the end of a path.
    pub trailing_slash: TrailingSlash,
    /// The same expression, after which a slash may follow: one search for both spellings of a path. `None` when the expression can
    /// look at the end of the path (`$`): before a slash that end does not match, so each spelling is searched.
    pub with_slash: Option<Pattern>,
}

/// A test on the host.
#[derive(Debug, PartialEq, Eq)]
pub enum HostTest {
    /// It is this, in lower case.
    Exact(Vec<u8>),
    /// It ends with this, which begins with a dot.
    Below(Vec<u8>),
}

/// A test on a value that has a name: a header, a query parameter, a cookie, an attribute.
#[derive(Debug)]
pub enum ValueTest {
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// Its value is this.
    Exact(Vec<u8>),
    /// Its value is one of these, which are in order.
    In(Vec<Vec<u8>>),
    /// Its value begins with this.
    Prefix(Vec<u8>),
    /// Its whole value matches.
    Regex(Pattern),
    /// Its value meets this test after these steps. The strings in the test were normalized by the same steps.
    Normalized(Normal, Box<ValueTest>),
}

impl Condition {
    /// True if it has a regular expression: then it is tried after those that have none.
    #[must_use]
    pub fn searches(&self) -> bool {
        match self {
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().any(Self::searches),
            Self::Not(condition) => condition.searches(),
            Self::Path(test) => matches!(test, PathTest::Regex(_)),
            Self::Header(_, test)
            | Self::Query(_, _, test)
            | Self::Cookie(_, test)
            | Self::Attribute(_, test)
            | Self::Body(_, test) => test.searches(),
            Self::Method(_) | Self::Host(_) | Self::Route(_) | Self::ClientAddress(_) | Self::Time(_) => {
                false
            }
        }
    }

    /// Shows the paths of the values of a body that it tests.
    pub fn body_paths<'a>(&'a self, show: &mut dyn FnMut(&'a str)) {
        match self {
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().for_each(|condition| condition.body_paths(show));
            }
            Self::Not(condition) => condition.body_paths(show),
            Self::Body(path, _) => show(path),
            _ => {}
        }
    }

    /// True if it tests a value of a body: then it is tried after those that test none, because the request has to wait.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        let mut reads = false;
        self.body_paths(&mut |_| reads = true);
        reads
    }

    /// True if the condition holds for `request`.
    #[must_use]
    pub fn holds<'a>(&'a self, request: &Request<'a>, on_ambiguity: OnAmbiguity) -> bool {
        self.broken_by(request, on_ambiguity).is_none()
    }

    /// The innermost condition that does not hold, when the whole does not: the first that is tried.
    #[must_use]
    pub fn broken_by<'a>(&'a self, request: &Request<'a>, on_ambiguity: OnAmbiguity) -> Option<&'a Self> {
        let holds = match self {
            Self::All(all) => return all.iter().find_map(|each| each.broken_by(request, on_ambiguity)),
            Self::Any(any) => any.iter().any(|each| each.holds(request, on_ambiguity)),
            Self::Not(not) => !not.holds(request, on_ambiguity.opposite()),
            Self::Path(test) => request
                .path()
                .map_or_else(|| on_ambiguity.in_doubt(), |path| test.holds(path, request, on_ambiguity)),
            Self::Method(names) => on_ambiguity.test(request.method(), |method| {
                method.is_some_and(|method| names.iter().any(|name| name == method))
            }),
            Self::Host(hosts) => on_ambiguity.test(request.host(), |host| {
                host.is_some_and(|host| hosts.iter().any(|test| test.holds(host)))
            }),
            Self::Header(name, test) => on_ambiguity.test(request.header(name), |header| match header {
                None => test.holds_absent(),
                Some(header) => test.holds_header(header, request, on_ambiguity),
            }),
            Self::Query(name, semicolon, test) => request.query().map_or_else(
                || on_ambiguity.in_doubt(),
                |(text, query)| {
                    let mut searches = Searches::new(request);
                    on_ambiguity.over(query.readings(*semicolon), |pairs| {
                        let values = || pairs::parameters(pairs, text, name);
                        test.holds_any(pairs, values, &mut searches, request, on_ambiguity)
                    })
                },
            ),
            Self::Cookie(name, test) => on_ambiguity.test(request.cookies(), |cookies| match cookies {
                None => test.holds_absent(),
                Some((header, pairs)) => {
                    let values = || pairs::cookie(pairs, &header.value, name);
                    test.holds_any(pairs, values, &mut Searches::new(request), request, on_ambiguity)
                }
            }),
            // As in a subject, an empty attribute is one that is not there.
            Self::Attribute(property, test) => {
                on_ambiguity.test(request.property(property), |value| match value {
                    None | Some([]) => test.holds_absent(),
                    Some(value) => test.holds(Sent::plain(value), &mut Searches::new(request), on_ambiguity),
                })
            }
            Self::Body(path, test) => on_ambiguity.test(request.body_text(path), |text| match text {
                None => test.holds_absent(),
                Some(text) => test.holds(Sent::plain(&text), &mut Searches::new(request), on_ambiguity),
            }),
            Self::Route(names) => on_ambiguity.test(request.route(), |route| {
                route.is_some_and(|route| names.iter().any(|name| name == route))
            }),
            Self::ClientAddress(networks) => on_ambiguity.test(request.client(), |client| {
                client.is_some_and(|client| networks.iter().any(|network| network.contains(client)))
            }),
            Self::Time(test) => on_ambiguity.test(request.now(), |now| test.holds(now)),
        };
        (!holds).then_some(self)
    }
}

impl TimeTest {
    const DAY: u64 = 24 * 60;

    fn holds(self, now: Micros) -> bool {
        // From ten days before the epoch, so that no local time is negative. That day is a Monday.
        let minutes =
            (now.0 / 60_000_000 + 10 * Self::DAY).saturating_add_signed(self.offset.minutes().into());
        let (day, minute) = (minutes / Self::DAY, minutes % Self::DAY);
        let begins_on = |day: u64| self.days >> (day % 7) & 1 == 1;
        let (from, to) = (u64::from(self.span.0), u64::from(self.span.1));
        if from < to {
            return begins_on(day) && (from..to).contains(&minute);
        }
        minute >= from && begins_on(day) || minute < to && begins_on(day - 1)
    }
}

impl PathTest {
    fn holds(&self, path: Path<'_>, request: &Request<'_>, on_ambiguity: OnAmbiguity) -> bool {
        match self {
            Self::Exact(exact, TrailingSlash::Ambiguous) if on_ambiguity == OnAmbiguity::Holds => {
                // `/login` for `/login/`, and the other way round.
                let exact = exact.strip_suffix(b"/").unwrap_or(exact);
                path.without_slash().strip_suffix(b"/").unwrap_or(path.without_slash()) == exact
            }
            // An exemption is for the spelling that it names.
            Self::Exact(exact, _) => on_ambiguity.over(path.readings(), |path| path == exact),
            Self::Prefix(prefix) => on_ambiguity.over(path.readings(), |path| {
                path.strip_prefix(prefix.as_slice())
                    .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
            }),
            Self::Regex(pattern) => pattern.holds(path, request, on_ambiguity),
        }
    }
}

impl PathPattern {
    /// The expression `exact` under this meaning of a slash at the end of a path.
    #[must_use]
    pub fn new(exact: Pattern, trailing_slash: TrailingSlash) -> Self {
        let with_slash = match trailing_slash {
            TrailingSlash::Ambiguous if !exact.looks_at_end() => exact.with_slash(),
            TrailingSlash::Ambiguous | TrailingSlash::Distinct => None,
        };
        Self { exact, trailing_slash, with_slash }
    }

    fn holds(&self, path: Path<'_>, request: &Request<'_>, on_ambiguity: OnAmbiguity) -> bool {
        let mut searches = Searches::new(request);
        let mut matches = |pattern: &Pattern, path: &[u8]| {
            searches.search(pattern, Sent::plain(path)).unwrap_or_else(|| on_ambiguity.in_doubt())
        };
        match (self.trailing_slash, on_ambiguity) {
            (TrailingSlash::Ambiguous, OnAmbiguity::Holds) => {
                let mut either = |without: &[u8], with: &[u8]| match &self.with_slash {
                    Some(with_slash) => matches(with_slash, with),
                    None => matches(&self.exact, without) || matches(&self.exact, with),
                };
                either(path.without_slash(), request.path_with_slash())
                    || path.literal().is_some_and(|literal| {
                        let without = literal.strip_suffix(b"/").unwrap_or(literal);
                        either(without, &[without, b"/"].concat())
                    })
            }
            (TrailingSlash::Ambiguous, OnAmbiguity::Fails) => {
                let resolved = path.resolved();
                let shorter = Some(path.without_slash()).filter(|shorter| shorter.len() < resolved.len());
                core::iter::once(resolved)
                    .chain(shorter)
                    .chain(path.literal())
                    .all(|path| matches(&self.exact, path))
            }
            (TrailingSlash::Distinct, on_ambiguity) => {
                on_ambiguity.over(path.readings(), |path| matches(&self.exact, path))
            }
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
    fn searches(&self) -> bool {
        match self {
            Self::Regex(_) => true,
            Self::Normalized(_, test) => test.searches(),
            _ => false,
        }
    }

    /// The same test on values after these steps. The beginning of an address is no address: there `email` stands for the other steps.
    #[must_use]
    #[inline(never)]
    pub fn normalized(self, normal: Normal) -> Self {
        let normal = match self {
            Self::Present | Self::Absent => Normal::default(),
            Self::Prefix(_) | Self::Regex(_) => normal.without_email(),
            _ => normal,
        };
        if normal.is_none() {
            return self;
        }
        // A configuration is UTF-8.
        let apply = |normal: Normal, text: Vec<u8>| {
            normal.apply(text.as_slice().into()).map_or_else(|| text.clone(), Cow::into_owned)
        };
        let test = match self {
            Self::Exact(text) => Self::Exact(apply(normal, text)),
            Self::In(texts) => Self::In(sorted(texts.into_iter().map(|text| apply(normal, text)).collect())),
            Self::Prefix(text) => Self::Prefix(apply(Normal { trim: false, ..normal }, text)),
            Self::Regex(pattern) if normal.lowercase => {
                Self::Regex(pattern.without_case().unwrap_or(pattern))
            }
            other => other,
        };
        Self::Normalized(normal, Box::new(test))
    }

    fn holds(&self, value: Sent<'_>, searches: &mut Searches<'_, '_>, on_ambiguity: OnAmbiguity) -> bool {
        match self {
            Self::Present => true,
            Self::Absent => false,
            Self::Exact(wanted) => value.equals(wanted),
            Self::In(values) => values.binary_search_by(|wanted| value.compare(wanted).reverse()).is_ok(),
            Self::Prefix(prefix) => value.begins_with(prefix),
            Self::Regex(pattern) => {
                searches.search(pattern, value).unwrap_or_else(|| on_ambiguity.in_doubt())
            }
            Self::Normalized(normal, test) => match value.value() {
                value if value.len() > LONGEST_HIDDEN => on_ambiguity.in_doubt(),
                value => match normal.apply(value) {
                    Some(value) => test.holds(Sent::plain(&value), searches, on_ambiguity),
                    None => on_ambiguity.in_doubt(),
                },
            },
        }
    }

    const fn holds_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// On all lines of a header: each element is a reading, and all of them joined.
    fn holds_header(&self, header: &Header, request: &Request<'_>, on_ambiguity: OnAmbiguity) -> bool {
        let mut searches = Searches::new(request);
        if header.lines <= 1 || matches!(self, Self::Present | Self::Absent) {
            return self.holds(Sent::plain(&header.value), &mut searches, on_ambiguity);
        }
        let decisive = on_ambiguity.in_doubt();
        let found = header.any_reading(&mut |reading| {
            request.count(|effort| effort.pairs = effort.pairs.saturating_add(1));
            self.holds(Sent::plain(reading), &mut searches, on_ambiguity) == decisive
        });
        found.map_or(on_ambiguity.in_doubt(), |found| found == decisive)
    }

    /// On a header of a response, its lines joined by line feeds: any of them.
    #[must_use]
    #[inline(never)]
    pub fn holds_line(&self, lines: Option<&[u8]>, on_ambiguity: OnAmbiguity) -> bool {
        let Some(lines) = lines else { return self.holds_absent() };
        let mut searches = Searches::of_response();
        let mut lines = lines.split(|&byte| byte == b'\n');
        lines.any(|line| self.holds(Sent::plain(line), &mut searches, on_ambiguity))
    }

    /// On the values of a parameter in one reading of the query, or of a cookie: each is a reading.
    fn holds_any<'t>(
        &self,
        pairs: &Pairs,
        values: impl FnOnce() -> Result<Values<'t>, Unreadable>,
        searches: &mut Searches<'_, '_>,
        request: &Request<'_>,
        on_ambiguity: OnAmbiguity,
    ) -> bool {
        if pairs.truncated() {
            return on_ambiguity.in_doubt();
        }
        request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
        on_ambiguity.test(values(), |values| {
            if values.is_empty() {
                return self.holds_absent();
            }
            let mut test = |value| self.holds(value, searches, on_ambiguity);
            on_ambiguity.over(values, |value| {
                if value.has_one_reading() {
                    test(value)
                } else {
                    on_ambiguity.over(value.readings(), &mut test)
                }
            })
        })
    }
}
