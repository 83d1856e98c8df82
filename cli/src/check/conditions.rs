// SPDX-License-Identifier: Apache-2.0
//! Conditions that include others, and conditions that no request can meet. The text of the conditions decides both, and only where that is
//! certain for each request that can be read in one way only.

use crate::describe;
use weir::policy::matcher::{Condition, HostTest, OnAmbiguity, PathPattern, PathTest, TimeTest, ValueTest};
use weir::policy::pattern;
use weir::request::Request;
use weir::request::client_ip::{Network, Trust, cover_everything};
use weir::request::sample::Sample;
use weir::time::Micros;

/// True if each request that meets `narrow` meets `wide`.
pub fn covers(wide: &Condition, narrow: &Condition) -> bool {
    match (wide, narrow) {
        (Condition::All(all), _) => all.iter().all(|each| covers(each, narrow)),
        (_, Condition::Any(any)) if !any.is_empty() => any.iter().all(|each| covers(wide, each)),
        (Condition::Any(any), _) if any.iter().any(|each| covers(each, narrow)) => true,
        (_, Condition::All(all)) if all.iter().any(|each| covers(wide, each)) => true,
        (Condition::Path(PathTest::Prefix(prefix)), _) if prefix.is_empty() => true,
        (Condition::ClientAddress(networks), _) if covers_all_addresses(networks) => true,
        (Condition::Not(wide), Condition::Not(narrow)) => covers(narrow, wide),
        (Condition::Method(wide), Condition::Method(narrow))
        | (Condition::Route(wide), Condition::Route(narrow)) => narrow.iter().all(|name| wide.contains(name)),
        (Condition::Host(wide), Condition::Host(narrow)) => {
            narrow.iter().all(|narrow| wide.iter().any(|wide| host_covers(wide, narrow)))
        }
        (Condition::ClientAddress(wide), Condition::ClientAddress(narrow)) => {
            narrow.iter().all(|narrow| wide.iter().any(|wide| network_covers(wide, narrow)))
        }
        (Condition::Time(wide), Condition::Time(narrow)) => {
            at_each_edge([*wide, *narrow]).all(|[wide, narrow]| wide || !narrow)
        }
        (Condition::Path(PathTest::Prefix(prefix)), Condition::Path(PathTest::Prefix(path)))
        | (Condition::Path(PathTest::Prefix(prefix)), Condition::Path(PathTest::Exact(path, _))) => {
            is_below(path, prefix)
        }
        (Condition::Path(PathTest::Prefix(prefix)), Condition::Path(PathTest::Regex(pattern))) => {
            beginning(pattern).strip_prefix(prefix.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
        }
        (Condition::Header(one, wide), Condition::Header(other, narrow))
        | (Condition::Body(one, wide), Condition::Body(other, narrow)) => {
            one == other && value_covers(wide, narrow)
        }
        (Condition::Cookie(one, wide), Condition::Cookie(other, narrow)) => {
            one == other && value_covers(wide, narrow)
        }
        (Condition::Query(one, of_one, wide), Condition::Query(other, of_other, narrow)) => {
            (one, of_one) == (other, of_other) && value_covers(wide, narrow)
        }
        (Condition::Attribute(one, wide), Condition::Attribute(other, narrow)) => {
            one.path == other.path && value_covers(wide, narrow)
        }
        // In words, conditions with another `normalize` or `trailing_slash` are the same.
        _ => format!("{wide:?}") == format!("{narrow:?}"),
    }
}

fn covers_all_addresses(networks: &[Network]) -> bool {
    let family = |ipv4: bool| {
        let of: Vec<_> = networks.iter().filter(|network| network.is_ipv4() == ipv4).copied().collect();
        !of.is_empty() && cover_everything(&of)
    };
    family(true) && family(false)
}

fn host_covers(wide: &HostTest, narrow: &HostTest) -> bool {
    match (wide, narrow) {
        (HostTest::Exact(wide), HostTest::Exact(narrow)) => wide == narrow,
        (HostTest::Below(suffix), HostTest::Exact(host)) => {
            host.len() > suffix.len() && host.ends_with(suffix)
        }
        (HostTest::Below(suffix), HostTest::Below(narrow)) => narrow.ends_with(suffix),
        (HostTest::Exact(_), HostTest::Below(_)) => false,
    }
}

fn network_covers(wide: &Network, narrow: &Network) -> bool {
    narrow.bits().starts_with(&wide.bits())
}

fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Says whether each of two tests holds, at the beginning and at the end of each span of a week: between these times neither changes.
fn at_each_edge(tests: [TimeTest; 2]) -> impl Iterator<Item = [bool; 2]> {
    let trust = Trust::default();
    let edges = tests.into_iter().flat_map(|TimeTest { span: (from, to), offset, .. }| {
        [from, to].map(|edge| i64::from(edge).saturating_sub(offset.minutes().into()))
    });
    let week =
        edges.flat_map(|edge| (7..14_i64).map(move |day| day.saturating_mul(24 * 60).saturating_add(edge)));
    week.map(move |minute| {
        let at = Micros::from_secs(minute.unsigned_abs().saturating_mul(60));
        let sample = Sample::default().at(at);
        tests.map(|test| Condition::Time(test).holds(&Request::new(&sample, &trust), OnAmbiguity::Holds))
    })
}

/// Says why no request can meet all of these; `None` if one may.
pub fn contradiction(all: &[&Condition]) -> Option<String> {
    let (mut leaves, mut choices) = (Vec::new(), Vec::new());
    all.iter().for_each(|each| flatten(each, &mut leaves, &mut choices));
    among(&leaves).or_else(|| choices.iter().find_map(|any| none_of(any, &leaves)))
}

/// True if it is certain that no request meets both.
pub fn exclude(one: &Condition, other: &Condition) -> bool {
    contradiction(&[one, other]).is_some()
}

/// The conditions that all have to hold: single ones, and choices.
fn flatten<'a>(
    condition: &'a Condition,
    leaves: &mut Vec<&'a Condition>,
    choices: &mut Vec<&'a [Condition]>,
) {
    match condition {
        Condition::All(all) => all.iter().for_each(|each| flatten(each, leaves, choices)),
        Condition::Any(any) => choices.push(any),
        leaf => leaves.push(leaf),
    }
}

/// The single conditions in a condition, also those that must not hold.
pub fn leaves(condition: &Condition) -> Vec<&Condition> {
    match condition {
        Condition::All(each) | Condition::Any(each) => each.iter().flat_map(leaves).collect(),
        Condition::Not(not) => leaves(not),
        leaf => vec![leaf],
    }
}

/// Says why no alternative of `any` can hold together with `leaves`.
fn none_of(any: &[Condition], leaves: &[&Condition]) -> Option<String> {
    let mut first = None;
    for each in any {
        let mut all = leaves.to_vec();
        flatten(each, &mut all, &mut Vec::new());
        let reason = among(&all)?;
        first.get_or_insert(reason);
    }
    first
}

fn among(leaves: &[&Condition]) -> Option<String> {
    let pairs = leaves
        .iter()
        .enumerate()
        .flat_map(|(at, one)| leaves.iter().take(at).map(move |other| (*other, *one)));
    for (one, other) in pairs {
        if excludes(one, other) || excludes(other, one) {
            let (one, other) = (describe::condition(one), describe::condition(other));
            return Some(format!(
                "({one}) and ({other}) exclude each other, so no request meets both that can be read in one way only"
            ));
        }
    }
    let all = Condition::All(Vec::new());
    let never = leaves.iter().find(|leaf| matches!(leaf, Condition::Not(not) if covers(not, &all)));
    never.map(|never| {
        let never = describe::condition(never);
        format!("only a request that can be read in several ways meets ({never})")
    })
}

/// True if no request meets both.
fn excludes(one: &Condition, other: &Condition) -> bool {
    match (one, other) {
        (Condition::Not(not), _) => covers(not, other),
        (Condition::Method(one), Condition::Method(other))
        | (Condition::Route(one), Condition::Route(other)) => !one.iter().any(|name| other.contains(name)),
        (Condition::Host(one), Condition::Host(other)) => !one
            .iter()
            .any(|one| other.iter().any(|other| host_covers(one, other) || host_covers(other, one))),
        (Condition::ClientAddress(one), Condition::ClientAddress(other)) => !one
            .iter()
            .any(|one| other.iter().any(|other| network_covers(one, other) || network_covers(other, one))),
        (Condition::Path(one), Condition::Path(other)) => paths_exclude(one, other),
        (Condition::Time(one), Condition::Time(other)) => {
            !at_each_edge([*one, *other]).any(|both| both == [true; 2])
        }
        (Condition::Attribute(one, test), Condition::Attribute(other, second)) => {
            one.path == other.path && (values_exclude(test, second) || absent_excludes(test, second))
        }
        (Condition::Body(one, test), Condition::Body(other, second)) => {
            one == other && (values_exclude(test, second) || absent_excludes(test, second))
        }
        // A client may send several of these, and each may meet one condition.
        (Condition::Header(one, test), Condition::Header(other, second)) => {
            one == other && absent_excludes(test, second)
        }
        (Condition::Query(one, _, test), Condition::Query(other, _, second))
        | (Condition::Cookie(one, test), Condition::Cookie(other, second)) => {
            one == other && absent_excludes(test, second)
        }
        _ => false,
    }
}

fn paths_exclude(one: &PathTest, other: &PathTest) -> bool {
    let without_slash = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
    match (one, other) {
        (PathTest::Exact(one, _), PathTest::Exact(other, _)) => without_slash(one) != without_slash(other),
        (PathTest::Prefix(prefix), PathTest::Exact(path, _)) => !is_below(path, prefix),
        (PathTest::Prefix(one), PathTest::Prefix(other)) => !is_below(one, other) && !is_below(other, one),
        (PathTest::Regex(pattern), PathTest::Exact(path, _)) => {
            !without_slash(path).starts_with(without_slash(beginning(pattern)).as_slice())
        }
        (PathTest::Regex(pattern), PathTest::Prefix(other)) => begin_apart(beginning(pattern), other),
        (PathTest::Regex(one), PathTest::Regex(other)) => begin_apart(beginning(one), beginning(other)),
        _ => false,
    }
}

/// The beginning of each path that an expression matches.
fn beginning(pattern: &PathPattern) -> &[u8] {
    let text = pattern.exact.text();
    pattern::beginning(text.strip_prefix('^').unwrap_or(text)).as_bytes()
}

/// True if no text begins with both.
fn begin_apart(one: &[u8], other: &[u8]) -> bool {
    !one.starts_with(other) && !other.starts_with(one)
}

fn absent_excludes(one: &ValueTest, other: &ValueTest) -> bool {
    matches!(one, ValueTest::Absent) && !matches!(other, ValueTest::Absent)
}

/// True if a value meets a test; `unknown` if only the filter knows.
fn meets(value: &[u8], test: &ValueTest, unknown: bool) -> bool {
    match test {
        ValueTest::Exact(exact) => value == exact,
        ValueTest::In(values) => values.iter().any(|other| value == other),
        ValueTest::Prefix(prefix) => value.starts_with(prefix),
        ValueTest::Present => true,
        ValueTest::Regex(_) => unknown,
        ValueTest::Absent => false,
        ValueTest::Normalized(normal, test) => {
            normal.apply(value.into()).map_or(unknown, |value| meets(&value, test, unknown))
        }
    }
}

/// True if each value that meets `narrow` meets `wide`.
fn value_covers(wide: &ValueTest, narrow: &ValueTest) -> bool {
    match (wide, narrow) {
        (ValueTest::Present, narrow) => !matches!(narrow, ValueTest::Absent),
        (wide, ValueTest::Exact(value)) => meets(value, wide, false),
        (wide, ValueTest::In(values)) => values.iter().all(|value| meets(value, wide, false)),
        (ValueTest::Prefix(wide), ValueTest::Prefix(narrow)) => narrow.starts_with(wide),
        (ValueTest::Normalized(of_wide, wide), ValueTest::Normalized(of_narrow, narrow))
            if of_wide == of_narrow =>
        {
            value_covers(wide, narrow)
        }
        _ => format!("{wide:?}") == format!("{narrow:?}"),
    }
}

/// True if no single value meets both.
fn values_exclude(one: &ValueTest, other: &ValueTest) -> bool {
    match (one, other) {
        (ValueTest::Exact(value), test) => !meets(value, test, true),
        (ValueTest::In(values), test) => !values.iter().any(|value| meets(value, test, true)),
        (ValueTest::Prefix(one), ValueTest::Prefix(other)) => begin_apart(one, other),
        (ValueTest::Normalized(of_one, one), ValueTest::Normalized(of_other, other))
            if of_one == of_other =>
        {
            values_exclude(one, other)
        }
        _ => false,
    }
}
