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
                    format!("deny[{index}] holds: {}", listed_condition(&policy.deny, *index))
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
                (Mode::Enquiry, _) => ", asked without charging it",
                (Mode::Shadow, Mode::Shadow) => ", in shadow",
                (Mode::Shadow, _) => ", in shadow for this subject (enforce_percent)",
            };
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
            format!("matches{tier}, cost {}{reserved}{scale}{class}{counters}{mode}", check.cost)
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
