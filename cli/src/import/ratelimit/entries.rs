// SPDX-License-Identifier: Apache-2.0
//! The place in a request of each value of a descriptor's entries.

use std::net::IpAddr;

use super::super::envoy::attribute;
use super::super::test::{PathTest, Test, escaped, network};
use super::envoy::pseudo_header;
use crate::tree::{Map, Tree};
use weir::request::client_ip::Network;

/// One entry of a descriptor, as Envoy makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// It is this for the requests that meet the test. Without a value it is whatever the service's configuration says.
    Fixed(Option<String>, Test),
    Address(Address),
    Path,
    Method,
    Host,
    Route,
    /// A field of a condition, which is also a kind of a subject's part: `header`, `query`, `cookie`, `jwt_claim`, `attribute`.
    Value(&'static str, Map),
}

/// So many bits of an address weir keeps at least, of IPv4 and of IPv6.
pub const MIN_BITS: [u64; 2] = [8, 16];

/// The forms of a client's address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Address {
    /// Not known: a value may also be a network.
    Any,
    Whole,
    /// So many of its bits, of IPv4 and of IPv6, with `/` and their number.
    Masked(Option<u64>, Option<u64>),
}

impl Address {
    /// True if Envoy may send this text for an address in this network. The service compares texts.
    fn may_be(self, text: &str, network: &Network) -> bool {
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let is_canonical = address.parse::<IpAddr>().is_ok_and(|parsed| parsed.to_string() == address);
        match self {
            Self::Any => true,
            Self::Whole => bits.is_empty() && is_canonical,
            Self::Masked(ipv4, ipv6) => {
                let mask = if text.contains(':') { ipv6.unwrap_or(128) } else { ipv4.unwrap_or(32) };
                let is_exact = Network::parse(text).is_ok_and(|exact| exact.bits() == network.bits());
                bits == mask.to_string() && is_canonical && is_exact
            }
        }
    }
}

impl Source {
    /// As `--descriptor` has it: `header:x-api-key`, `client_address`, …
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = |kind, name: &str| Self::Value(kind, Map::from([("name", name.into())]));
        let path = |text: &str| text.split('/').map(Tree::from).collect::<Vec<_>>();
        Ok(match text.split_once(':') {
            None => match text {
                "client_address" => Self::Address(Address::Any),
                "path" => Self::Path,
                "method" => Self::Method,
                "host" => Self::Host,
                "route" => Self::Route,
                "constant" => Self::Fixed(None, Test::Always),
                _ => return Err(allowed(text)),
            },
            Some((kind, name)) if !name.is_empty() => match kind {
                "header" => named("header", &name.to_ascii_lowercase()),
                "query" => named("query", name),
                "cookie" => named("cookie", name),
                "jwt_claim" => Self::Value("jwt_claim", Map::from([("claim", path(name).into())])),
                "attribute" => Self::Value("attribute", Map::from([("path", path(name).into())])),
                _ => return Err(allowed(text)),
            },
            Some(_) => return Err(allowed(text)),
        })
    }

    /// The part of a subject; none if the value is not known.
    pub fn part(&self) -> Option<Tree> {
        let mut part = Map::new();
        match self {
            Self::Fixed(None, _) => return None,
            Self::Fixed(Some(text), _) => drop(part.set("literal", text.as_str())),
            Self::Address(form) => {
                let Address::Masked(ipv4, ipv6) = *form else {
                    return Self::Address(Address::Masked(None, None)).part();
                };
                let mut address = Map::new();
                if let Some(bits) = ipv4 {
                    address.set("ipv4_prefix", bits.max(MIN_BITS[0]));
                }
                // The service counts each address for itself.
                address.set("ipv6_prefix", ipv6.unwrap_or(128).max(MIN_BITS[1]));
                part.set("client_address", address);
            }
            Self::Path => drop(part.set("path", Map::from([("trailing_slash", "distinct".into())]))),
            Self::Method => drop(part.set("method", Map::new())),
            Self::Host => drop(part.set("host", Map::new())),
            Self::Route => drop(part.set("route", Map::new()).set("on_missing", "skip")),
            Self::Value(kind, settings) => {
                part.set(kind, settings.clone()).set("on_missing", "skip");
                // Envoy takes the first line of a header. Those whose lines it joins come as one line.
                if ["header", "query"].contains(kind) {
                    part.set("on_multiple", "first");
                }
            }
        }
        Some(part.into())
    }

    /// The test for requests that have the value at all.
    pub fn is_there(&self) -> Test {
        match self {
            Self::Fixed(_, test) => test.clone(),
            Self::Value(kind, settings) => Test::Value(kind, settings.clone()),
            _ => Test::Always,
        }
    }

    /// A test on the value, where `*` stands for any text.
    pub fn is(&self, value: &str) -> Result<Test, String> {
        let is_wild = value.contains('*');
        let (field, text) = if is_wild { ("regex", expression(value)) } else { ("exact", value.to_owned()) };
        match self {
            Self::Fixed(None, test) => Ok(test.clone()),
            Self::Fixed(Some(own), test) => Ok(if matches(value, own) { test.clone() } else { Test::NEVER }),
            // Each address, which the service counts for itself.
            Self::Address(_) if value == "*" => Ok(Test::Always),
            Self::Address(form) => {
                let exact = network(value).filter(|network| form.may_be(value, network));
                let begins = || numbers(value).filter(|_| !matches!(form, Address::Masked(..)));
                let found = exact.or_else(begins).map(|network| Test::Address(vec![network]));
                found.ok_or_else(|| {
                    if is_wild {
                        return String::from(
                            "weir knows `*` only in place of the last numbers of an IPv4 address that is not masked",
                        );
                    }
                    format!(
                        "the service compares texts, and Envoy never sends {value:?}, so it has no effect"
                    )
                })
            }
            Self::Path if is_wild => Ok(Test::Path(PathTest::regex(text))),
            Self::Path => Ok(Test::Path(PathTest::Exact(text))),
            Self::Method if !is_wild && !value.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                Ok(Test::Method(vec![text]))
            }
            Self::Method => Ok(pseudo_header("method", field, &text)),
            // weir's own test of hosts knows no ports.
            Self::Host if !value.contains(['*', ':']) => Ok(Test::Host(vec![value.to_ascii_lowercase()])),
            Self::Host => Ok(pseudo_header("host", field, &text)),
            Self::Route => Ok(attribute(["xds", "route_name"], field, &text)),
            Self::Value(kind, settings) => {
                let mut test = settings.clone();
                test.set(field, text);
                Ok(Test::Value(kind, test))
            }
        }
    }
}

/// The network of the addresses that begin with these numbers, such as `10.0.*`.
fn numbers(value: &str) -> Option<Network> {
    let known = value.strip_suffix(".*")?;
    let rest = [".0.0.0/8", ".0.0/16", ".0/24"].get(known.matches('.').count())?;
    network(&format!("{known}{rest}"))
}

/// A regular expression for a value.
fn expression(value: &str) -> String {
    value.split('*').map(escaped).collect::<Vec<_>>().join(".*")
}

fn matches(value: &str, text: &str) -> bool {
    let regex = regex_lite::Regex::new(&format!("^(?s:{})$", expression(value)));
    regex.is_ok_and(|regex| regex.is_match(text))
}

fn allowed(text: &str) -> String {
    format!(
        "found {text:?}, allowed: client_address, path, method, host, route, constant, header:NAME, query:NAME, cookie:NAME, jwt_claim:NAME \
         or attribute:NAME/NAME"
    )
}
