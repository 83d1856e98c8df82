// SPDX-License-Identifier: Apache-2.0
//! A policy's decision about a request before Redis is asked, in words.

use super::usage;
use crate::describe;
use weir::policy::list::Conditions;
use weir::policy::matcher::{Condition, OnAmbiguity};
use weir::policy::{Check, Denial, Mode, Policy, Ruling};
use weir::request::Request;

pub fn listed_condition(list: &Conditions, index: usize) -> String {
    list.conditions().get(index).map(describe::condition).unwrap_or_default()
}

/// Returns the part of the request that cannot be read, or has several readings, if a condition holds only therefore.
pub fn doubt<'a>(condition: &'a Condition, request: &Request<'a>) -> Option<String> {
    if condition.holds(request, OnAmbiguity::Fails) || !condition.holds(request, OnAmbiguity::Holds) {
        return None;
    }
    first_doubt(condition, request).map(describe::tested)
}

/// The first condition in this one whose result depends on how the request is read.
fn first_doubt<'a>(condition: &'a Condition, request: &Request<'a>) -> Option<&'a Condition> {
    match condition {
        Condition::All(each) | Condition::Any(each) => {
            each.iter().find_map(|each| first_doubt(each, request))
        }
        Condition::Not(inner) => first_doubt(inner, request),
        one => {
            let is_certain = one.holds(request, OnAmbiguity::Fails) == one.holds(request, OnAmbiguity::Holds);
            (!is_certain).then_some(one)
        }
    }
}

/// The way in which a condition of a `deny` list holds.
pub fn holds(doubt: Option<&str>) -> String {
    doubt.map_or_else(|| String::from("holds"), |doubt| format!("counts as true because {doubt} {UNCERTAIN}"))
}

const UNCERTAIN: &str = "cannot be read or has several readings";

/// Says if a policy applies only because part of the request cannot be read, or is not exempt therefore.
fn doubts<'a>(policy: &'a Policy, request: &Request<'a>) -> String {
    let mut said = String::new();
    if let Some(doubt) = doubt(&policy.matcher, request) {
        said.push_str(&format!("; `match` counts as true because {doubt} {UNCERTAIN}"));
    }
    let mut exempt = policy.exempt.conditions().iter().enumerate();
    if let Some((index, doubt)) = exempt.find_map(|(index, each)| Some((index, doubt(each, request)?))) {
        said.push_str(&format!("; exempt[{index}] counts as false because {doubt} {UNCERTAIN}"));
    }
    said
}

pub fn in_words<'a>(policy: &'a Policy, ruling: &Ruling, request: &Request<'a>) -> String {
    let part = |index: &usize| policy.part(*index).map(describe::part).unwrap_or_default();
    match ruling {
        Ruling::Unmatched => match policy.matcher.broken_by(request, OnAmbiguity::Holds) {
            Some(Condition::Not(excluded)) => {
                format!("does not match, `not` excludes it: {}", describe::condition(excluded))
            }
            broken => {
                let broken = broken.map(describe::condition).unwrap_or_default();
                format!("does not match, it is not true that {broken}")
            }
        },
        Ruling::Skipped(index) => format!("skipped, the request has no {}", part(index)),
        Ruling::Unknown(index) => format!("not shown, a quota request cannot have the {}", part(index)),
        Ruling::Exempt(index) => {
            format!("exempt, exempt[{index}] holds: {}", listed_condition(&policy.exempt, *index))
        }
        Ruling::Denied(denial) => {
            let why = match denial {
                Denial::Listed(index) => {
                    let listed = policy.deny.conditions().get(*index);
                    let holds = holds(listed.and_then(|listed| doubt(listed, request)).as_deref());
                    format!("deny[{index}] {holds}: {}", listed_condition(&policy.deny, *index))
                }
                Denial::Absent(index) => format!("the request has no {}", part(index)),
                Denial::Ambiguous(index) => {
                    format!("the request has more than one {}, or it cannot be read", part(index))
                }
                Denial::UnknownModel(_) => usage::unknown_model(request),
            };
            let shadow = match (policy.enforces(*denial), policy.mode) {
                (true, _) => "",
                (false, Mode::Enforce) => " (in shadow for this subject: enforce_percent)",
                (false, _) => " (shadow: not enforced)",
            };
            format!("denied{shadow}, {why}")
        }
        Ruling::Check(check) => {
            let mode = match (check.mode, policy.mode) {
                (Mode::Enforce, _) => "",
                (Mode::QuotaRequest, _) => ", asked without charging it",
                (Mode::Shadow, Mode::Shadow) => ", in shadow",
                (Mode::Shadow, _) if check.ban_only => ", in shadow for this subject, or that policy is",
                (Mode::Shadow, _) => ", in shadow for this subject (enforce_percent)",
            };
            if check.ban_only {
                return format!("does not match, but its ban is for a policy that matches (ban.scope){mode}");
            }
            let tier = policy.tiers.tiers.get(check.tier).map(|tier| tier.name.as_str()).unwrap_or_default();
            let tier = if tier.is_empty() { String::new() } else { format!(", tier {tier}") };
            let counters = if policy.counters == policy.name {
                String::new()
            } else {
                format!(", counts as {}", policy.counters)
            };
            let scale = match policy.scale {
                Some(_) => format!(", limits times {}", check.scale),
                None => String::new(),
            };
            let class = class(policy, check, request);
            let reserved = usage::reserved(policy, request);
            let doubts = doubts(policy, request);
            format!("matches{tier}, cost {}{reserved}{scale}{class}{counters}{mode}{doubts}", check.cost)
        }
    }
}

/// The class of a request, and what is kept from it.
fn class<'a>(policy: &'a Policy, check: &Check, request: &Request<'a>) -> String {
    let kept = match check.kept_percent {
        0 => String::from("nothing is kept from it"),
        percent => format!("{percent} % of each limit are kept from it"),
    };
    match policy.class_of(request) {
        _ if policy.priority.is_empty() => String::new(),
        None => format!(", of no class: {kept}"),
        Some(class) => {
            let when = policy.priority.get(class).map(|(when, _)| describe::condition(when));
            format!(", priority[{class}] holds, {}: {kept}", when.unwrap_or_default())
        }
    }
}
