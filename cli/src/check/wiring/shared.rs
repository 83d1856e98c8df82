// SPDX-License-Identifier: Apache-2.0
//! Limiters of one Envoy that count under one name in one Redis.

use super::{Picture, Wired, edge};
use crate::check::against;
use crate::check::conditions::exclude;
use crate::check::warning::code;
use crate::finding::Finding;
use crate::source::{Limiter, Source};
use weir::config::Host;
use weir::policy::Policy;

/// A limiter, and the number of its file.
type InFile<'a> = (usize, Wired<'a>);

/// Returns warnings about limiters that change each other's counts, or that count a request twice, each with the number of its file.
pub fn warnings(
    files: &[Source],
    limiters: &[Vec<Limiter<'_>>],
    pictures: &[Picture<'_>],
) -> Vec<(usize, Finding)> {
    let each = limiters.iter().enumerate().flat_map(|(file, of)| of.iter().map(move |of| (file, of)));
    // A configuration by itself does not say in which Redis it counts.
    let each: Vec<_> =
        each.filter(|(_, limiter)| limiter.carrier.as_ref().is_some_and(edge::is_in_force)).collect();
    if each.len() < 2 {
        return Vec::new();
    }
    // Its carrier says which host it is for.
    let configs: Vec<_> = each.iter().map(|(_, limiter)| limiter.config(Host::Wasm)).collect();
    let wired = each.iter().zip(&configs).filter_map(|((file, limiter), config)| {
        Some((*file, Wired::new(limiter, config.as_ref().ok()?, pictures.get(*file)?, pictures)?))
    });
    let all: Vec<InFile<'_>> = wired.collect();
    let mut found = Vec::new();
    for (number, (file, wired)) in all.iter().enumerate() {
        let before = all.get(..number).unwrap_or_default();
        let place = |(other, of): &InFile<'_>| {
            let line = of.carrier.node.place.line;
            let name = files.get(*other).filter(|_| other != file).map(|of| of.name.as_str());
            name.map_or_else(|| format!("line {line}"), |name| format!("{name}:{line}"))
        };
        let own = differing(wired, before, &place).into_iter().chain(twice(wired, before, &place));
        found.extend(own.map(|finding| (*file, finding)));
    }
    found
}

/// A limiter that counts in the same keys as one before it, with other limits or of other subjects.
fn differing(
    wired: &Wired<'_>,
    before: &[InFile<'_>],
    place: &dyn Fn(&InFile<'_>) -> String,
) -> Vec<Finding> {
    let differs = |(index, policy): (usize, &Policy)| {
        let (other, of) =
            before.iter().find_map(|other| Some((other, wired.counted_by(policy, &other.1)?)))?;
        let what = difference(policy, of)?;
        let field = if policy.counters == policy.name { "name" } else { "counters" };
        let path = format!("policies[{index}].{field}");
        let reason = format!(
            "the limiter at {} counts {:?} in the same Redis with {what}, so each of the two changes what the other has counted",
            place(other),
            policy.counters
        );
        let advice = "Write another name, another `store.key_prefix`, or the same limits and subject";
        Some(Finding::warning(code::SHARED_COUNTS, wired.limiter.place(&path), path, reason, advice))
    };
    wired.config.policies.iter().enumerate().filter_map(differs).collect()
}

/// Says what is different of two policies that count in the same keys, if that is so.
fn difference(policy: &Policy, of: &Policy) -> Option<String> {
    let (ones, others) = (against::named(policy), against::named(of));
    let same_name = ones.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    let mut same_name = same_name.filter(|(one, other)| one.0 == other.0).peekable();
    same_name.peek()?;
    if against::parts(&policy.subject, &of.subject).is_some() {
        return Some(String::from("another subject"));
    }
    let unlike = same_name.find(|(one, other)| !one.1.counts_like(&other.1) || one.2 != other.2);
    unlike.map(|(one, _)| format!("another limit {:?}", one.0))
}

/// A limiter behind another one in a chain of filters that counts in the same keys.
fn twice(wired: &Wired<'_>, before: &[InFile<'_>], place: &dyn Fn(&InFile<'_>) -> String) -> Option<Finding> {
    let (manager, filter) = edge::chain(wired.carrier)?;
    let is_before = |(_, other): &&InFile<'_>| {
        edge::chain(other.carrier)
            .is_some_and(|(around, of)| core::ptr::eq(around, manager) && !core::ptr::eq(of, filter))
    };
    let (other, name) = before.iter().filter(is_before).find_map(|other| {
        let both = |policy: &&Policy| {
            wired.counted_by(policy, &other.1).is_some_and(|of| !exclude(&policy.matcher, &of.matcher))
        };
        Some((other, &wired.config.policies.iter().find(both)?.counters))
    })?;
    let reason = format!(
        "the limiter at {} is in the same chain and counts {name:?}, too, so a request counts twice",
        place(other)
    );
    let advice = "Remove one of the two, or give their policies other names";
    Some(Finding::warning(code::SHARED_COUNTS, filter.place, "http_filters", reason, advice))
}

impl Wired<'_> {
    /// The policy of another limiter that counts in the same keys of the same Redis.
    fn counted_by<'a>(&self, policy: &Policy, other: &'a Wired<'_>) -> Option<&'a Policy> {
        let is_same = |of: &&Policy| {
            of.counters == policy.counters && self.place_of_store(policy) == other.place_of_store(of)
        };
        let has_same_keys = self.config.store.key_prefix == other.config.store.key_prefix;
        other.config.policies.iter().find(is_same).filter(|_| has_same_keys)
    }

    /// The cluster of a policy's store, and the file that shows it. Several clusters of one name are those of several Envoys, and so may
    /// resources of Kubernetes be whose cluster is not shown.
    fn place_of_store(&self, policy: &Policy) -> Option<(*const Picture<'_>, &str)> {
        let name = self.config.regions.all.get(usize::from(policy.regions.store()))?.cluster.as_str();
        let picture = self.store(name).unwrap_or(self.own);
        let is_certain =
            match picture.clusters.iter().filter(|cluster| cluster.text_of("name") == name).count() {
                0 => self.carrier.around.first().is_none_or(|document| document.get("apiVersion").is_none()),
                count => count == 1,
            };
        is_certain.then_some((core::ptr::from_ref(picture), name))
    }
}
