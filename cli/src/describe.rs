// SPDX-License-Identifier: Apache-2.0
//! Conditions and parts of subjects in words.

use weir::policy::matcher::{Condition, HostTest, PathTest, TimeTest, ValueTest};
use weir::policy::subject::{Source, SubjectPart};
use weir::request::body::{field, json};

pub(super) fn condition(of: &Condition) -> String {
    let all = |all: &[Condition], word: &str| {
        let each: Vec<String> = all.iter().map(condition).collect();
        if each.is_empty() { String::from("anything") } else { format!("({})", each.join(word)) }
    };
    match of {
        Condition::All(conditions) => all(conditions, " and "),
        Condition::Any(conditions) => all(conditions, " or "),
        Condition::Not(of) => format!("not {}", condition(of)),
        Condition::Path(PathTest::Exact(path, _)) => format!("the path is {}", path.escape_ascii()),
        Condition::Path(PathTest::Prefix(path)) => format!("the path is {0}/ or below", path.escape_ascii()),
        Condition::Path(PathTest::Regex(pattern)) => format!("the path matches {}", pattern.exact.text()),
        Condition::Method(names) => format!("the method is {}", one_of(names)),
        Condition::Host(hosts) => {
            let each = hosts.iter().map(|host| match host {
                HostTest::Exact(host) => host.escape_ascii().to_string(),
                HostTest::Below(suffix) => format!("*{}", suffix.escape_ascii()),
            });
            format!("the host is {}", each.collect::<Vec<_>>().join(" or "))
        }
        Condition::Header(_, test)
        | Condition::Query(_, _, test)
        | Condition::Cookie(_, test)
        | Condition::Attribute(_, test)
        | Condition::Body(_, test) => format!("{} {}", tested(of), value(test)),
        Condition::Route(names) => format!("the route is {}", one_of(names)),
        Condition::Time(test) => time(test),
        Condition::ClientAddress(networks) => {
            let each: Vec<String> = networks.iter().map(ToString::to_string).collect();
            format!("the client is in {}", each.join(" or "))
        }
    }
}

/// A condition in words.
pub(super) fn tested(of: &Condition) -> String {
    match of {
        Condition::All(_) | Condition::Any(_) | Condition::Not(_) => String::from("the request"),
        Condition::Path(_) => String::from("the path"),
        Condition::Method(_) => String::from("the method"),
        Condition::Host(_) => String::from("the host"),
        Condition::Header(name, _) => format!("the header {name}"),
        Condition::Query(name, ..) => format!("the query parameter {}", name.escape_ascii()),
        Condition::Cookie(name, _) => format!("the cookie {}", name.escape_ascii()),
        Condition::Attribute(property, _) => format!("the attribute {}", property.path.join(".")),
        Condition::Body(path, _) => format!("the {}", body(path)),
        Condition::Route(_) => String::from("the route"),
        Condition::ClientAddress(_) => String::from("the client's address"),
        Condition::Time(_) => String::from("the time"),
    }
}

fn time(TimeTest { days, span: (from, to), offset }: &TimeTest) -> String {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let begins: Vec<_> =
        DAYS.iter().enumerate().filter(|(day, _)| days >> day & 1 == 1).map(|(_, name)| *name).collect();
    let clock = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
    let (sign, ahead) =
        (if offset.minutes() < 0 { '-' } else { '+' }, clock(offset.minutes().unsigned_abs()));
    format!("the time is {}-{} (UTC{sign}{ahead}) of {}", clock(*from), clock(*to), begins.join(", "))
}

fn one_of(names: &[Vec<u8>]) -> String {
    names.iter().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>().join(" or ")
}

fn value(test: &ValueTest) -> String {
    match test {
        ValueTest::Present => String::from("is there"),
        ValueTest::Absent => String::from("is not there"),
        ValueTest::Exact(text) => format!("is \"{}\"", text.escape_ascii()),
        ValueTest::In(texts) => {
            let each: Vec<_> = texts.iter().map(|text| format!("\"{}\"", text.escape_ascii())).collect();
            format!("is {}", each.join(" or "))
        }
        ValueTest::Prefix(text) => format!("begins with \"{}\"", text.escape_ascii()),
        ValueTest::Regex(pattern) => format!("matches {}", pattern.text()),
        ValueTest::Normalized(_, test) => format!("normalized {}", value(test)),
    }
}

/// A value of a body.
fn body(path: &str) -> String {
    match field(path) {
        Some(name) => format!("field {} of the form", name.escape_default()),
        None => format!("value {} of the body", json(path)),
    }
}

pub(super) fn part(part: &SubjectPart) -> String {
    match &part.source {
        Source::ClientAddress { .. } => String::from("client address"),
        Source::Header(name) => format!("header {name}"),
        Source::Cookie(name) => format!("cookie {}", name.escape_ascii()),
        Source::Query(name, _) => format!("query parameter {}", name.escape_ascii()),
        Source::Path(_) => String::from("path"),
        Source::PathSegment(index) => format!("path segment {index}"),
        Source::Method => String::from("method"),
        Source::Host => String::from("host"),
        Source::Attribute(property) => format!("attribute {}", property.path.join(".")),
        Source::Body(path, _) => body(path),
        Source::Credential(_) => String::from("credential"),
        Source::Literal(_) => String::from("literal"),
    }
}
