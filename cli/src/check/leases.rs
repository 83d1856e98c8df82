// SPDX-License-Identifier: Apache-2.0
//! Limits so large that `lease: auto` would reduce the cost of one busy subject.

use super::warning::{code, note};
use crate::finding::Finding;
use weir::config::Config;
use weir::limit::Limit;
use weir::policy::{Across, Lease, Policy, Tier};
use weir::time::Micros;

pub fn notes(config: &Config) -> Vec<Finding> {
    let gains = config.policies.iter().enumerate().filter(|(_, policy)| gains(policy));
    let found = gains.map(|(index, policy)| {
        note(
            code::AUTO_LEASE,
            format!("policies[{index}].name"),
            format!("a subject of policy {:?} may send so much that it fills a core of Redis", policy.name),
            "Write `lease: auto`, or `--allow auto-lease` if no subject does",
        )
    });
    found.collect()
}

fn gains(policy: &Policy) -> bool {
    let takes_turns = |limit: &Limit| match limit {
        Limit::Concurrency(_) | Limit::Distinct(_) => true,
        Limit::LeakyBucket(bucket) => bucket.max_delay() > Micros::ZERO,
        _ => false,
    };
    let forbids = |tier: &Tier| tier.plan.ban().is_some() || tier.plan.limits().iter().any(takes_turns);
    let is_possible = policy.lease.is_none()
        && policy.priority.is_empty()
        && policy.closed_by.is_empty()
        && policy.regions != Across::Share;
    is_possible
        && policy.tiers.tiers.iter().any(|tier| Lease::auto(tier.plan.limits(), 1).is_some())
        && !policy.tiers.tiers.iter().any(forbids)
}
