// SPDX-License-Identifier: Apache-2.0
//! `weir check --against OLD`: which subjects begin anew, because their keys in Redis, or the states in them, are others than before.

use std::collections::BTreeSet;

use super::warning::{code, warning};
use crate::describe;
use crate::finding::Finding;
use weir::config::Config;
use weir::limit::{Limit, Refill};
use weir::policy::subject::SubjectPart;
use weir::policy::{Policy, Tier};
use weir::script::Overrides;

/// The consequence for counts that are not read any more.
const ADVICE: &str =
    "Until all proxies have the new configuration, a subject has two counts, and may get twice its limit";

pub fn warnings(new: &Config, old: &Config) -> Vec<Finding> {
    let anew = |path: String, reason: String, advice: &str| warning(code::BEGINS_ANEW, path, reason, advice);
    if new.store.key_prefix != old.store.key_prefix {
        let before = &old.store.key_prefix;
        let reason = format!("all subjects begin anew: their keys began with {before:?} before");
        return vec![anew(String::from("store.key_prefix"), reason, ADVICE)];
    }
    let (mut found, mut under_secret) = (Vec::new(), Vec::new());
    let is_hashed = |parts: &[SubjectPart]| parts.iter().any(|part| part.hash.is_some());
    let has_other_secret = new.store.hash_secret_env != old.store.hash_secret_env
        || !new.store.hasher.is_like(&old.store.hasher);
    for (index, policy) in new.policies.iter().enumerate() {
        let at = format!("policies[{index}]");
        let mut before = old.policies.iter().filter(|other| other.counters == policy.counters);
        let Some(before) = before.clone().find(|other| other.name == policy.name).or_else(|| before.next())
        else {
            if let Some(renamed) = renamed(policy, new, old) {
                let reason = format!(
                    "its subjects begin anew: they were counted under {renamed:?}, and no policy counts there now"
                );
                let advice = format!("Write `counters: {renamed}`");
                found.push(anew(format!("{at}.name"), reason, &advice));
            }
            continue;
        };
        let named = |config: &Config, store: u8| {
            config.regions.all.get(usize::from(store)).map(|region| region.name.clone())
        };
        // A configuration without regions is for the region of the other one.
        let region = |config: &Config, other: &Config, policy: &Policy| {
            let name = named(config, policy.regions.store()).filter(|name| !name.is_empty());
            name.or_else(|| named(other, 0))
        };
        let (here, there) = (region(new, old, policy), region(old, new, before));
        if let (Some(here), Some(there)) = (here, there)
            && here != there
        {
            let reason =
                format!("its subjects begin anew: the Redis of region {there:?} counted them before");
            found.push(anew(format!("{at}.regions"), reason, ADVICE));
        } else if let Some((part, what)) = parts(&policy.subject, &before.subject) {
            let path = part.map_or_else(|| format!("{at}.subject"), |part| format!("{at}.subject[{part}]"));
            let reason = format!("its subjects begin anew, with their bans and overrides: {what}");
            found.push(anew(path, reason, ADVICE));
        } else if is_hashed(&policy.subject) && has_other_secret {
            under_secret.push(policy.name.as_str());
        } else {
            let (now, then) = (&policy.members, &before.members);
            let members = parts(now, then).map(|(_, what)| what).or_else(|| {
                let secret = || String::from("the secret of their hashes is another one, or is elsewhere");
                (is_hashed(now) && has_other_secret).then(secret)
            });
            let members = members.filter(|_| !now.is_empty() && !then.is_empty());
            let members = members.map(|what| format!("its different values count anew: {what}"));
            let each = limits(policy, before).into_iter().chain(members);
            let field = if policy.tiers.by.is_some() { "tiers" } else { "limits" };
            found.extend(each.map(|reason| anew(format!("{at}.{field}"), reason, ADVICE)));
        }
    }
    if !under_secret.is_empty() {
        let names = under_secret.join(", ");
        let reason = format!(
            "the hashed subjects of {names} begin anew, with their bans and overrides: the secret is another one, or is elsewhere"
        );
        found.push(anew(String::from("store.hash_secret"), reason, ADVICE));
    }
    found
}

/// The name under which the subjects of a policy were probably counted, if no policy counts under it now.
fn renamed<'a>(policy: &Policy, new: &Config, old: &'a Config) -> Option<&'a str> {
    let is_counted = |name: &str| new.policies.iter().any(|policy| policy.counters == name);
    let left = old.policies.iter().filter(|other| !is_counted(&other.counters));
    let found = left
        .filter(|other| parts(&policy.subject, &other.subject).is_none() && limits(policy, other).is_empty());
    found.map(|other| other.counters.as_str()).next()
}

/// Finds the part of a subject that differs in keys, or of the values that are counted, and describes the difference.
pub fn parts(now: &[SubjectPart], before: &[SubjectPart]) -> Option<(Option<usize>, String)> {
    if before.len() != now.len() {
        let words =
            |parts: &[SubjectPart]| parts.iter().map(describe::part).collect::<Vec<_>>().join(" and ");
        return Some((None, format!("they were {}, and are {}", words(before), words(now))));
    }
    before.iter().zip(now).enumerate().find_map(|(place, (before, now))| {
        let what = if format!("{:?}", before.source) != format!("{:?}", now.source) {
            let (was, is) = (describe::part(before), describe::part(now));
            if was == is {
                format!("the {is} is read in another way")
            } else {
                format!("this part was the {was}, and is the {is}")
            }
        } else {
            let is = describe::part(now);
            match (before.hash.is_some(), now.hash.is_some()) {
                (false, true) => String::from("this part was in clear, and is hashed"),
                (true, false) => String::from("this part was hashed, and is in clear"),
                _ if before.normalize == now.normalize => return None,
                _ => format!("spellings of the {is} are joined in another way (`normalize`)"),
            }
        };
        Some((Some(place), what))
    })
}

/// The limits that begin anew, and why.
fn limits(new: &Policy, old: &Policy) -> Vec<String> {
    let (now, before) = (named(new), named(old));
    let names = |of: &[Named]| of.iter().map(|(name, ..)| name.clone()).collect::<BTreeSet<_>>();
    let gone: Vec<String> = names(&before).difference(&names(&now)).cloned().collect();
    let mut found = Vec::new();
    for (name, limit, is_marked) in &now {
        match before.iter().find(|(other, ..)| other == name) {
            Some((_, other, was_marked)) if was_marked == is_marked && keeps_state(other, limit) => {}
            Some(_) => found.push(format!(
                "limit {name:?} begins anew: its state has another form, by its algorithm, its windows, `precision`, `mode`, `overrides` or a very large `limit`"
            )),
            None if gone.is_empty() => {}
            None => found.push(format!(
                "limit {name:?} begins anew: it has another name than before ({})",
                gone.join(", ")
            )),
        }
    }
    found
}

/// A limit: its name in keys, and whether its state is a number that also says which window it is.
pub type Named = (String, Limit, bool);

pub fn named(policy: &Policy) -> Vec<Named> {
    let of_tier = |tier: &Tier| {
        let reads_overrides = tier.plan.overrides() == Overrides::Read;
        let is_marked =
            |limit: &Limit| matches!(limit, Limit::FixedWindow(of) if of.is_marked()) && !reads_overrides;
        let limits = tier.plan.names().into_iter().zip(tier.plan.limits());
        limits.map(|(name, limit)| (name.to_owned(), limit.clone(), is_marked(limit))).collect::<Vec<_>>()
    };
    policy.tiers.tiers.iter().flat_map(of_tier).collect()
}

/// True if a limit continues from the state of another: see "a new configuration" in docs/limits.md.
fn keeps_state(old: &Limit, new: &Limit) -> bool {
    match (old, new) {
        (Limit::FixedWindow(old), Limit::FixedWindow(new)) => {
            (old.window(), old.align()) == (new.window(), new.align())
        }
        (Limit::SlidingWindow(old), Limit::SlidingWindow(new)) => {
            (old.window(), old.precision()) == (new.window(), new.precision())
        }
        (Limit::TokenBucket(old), Limit::TokenBucket(new)) => old.how() == new.how(),
        // Both count in the same bucket.
        (Limit::TokenBucket(bucket), Limit::LeakyBucket(_))
        | (Limit::LeakyBucket(_), Limit::TokenBucket(bucket)) => bucket.how() == Refill::Continuous,
        _ => core::mem::discriminant(old) == core::mem::discriminant(new),
    }
}
