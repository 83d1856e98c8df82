// SPDX-License-Identifier: Apache-2.0
//! `counters`: policies that count under one name. Their limits, bans and regions must be the same: one limit cannot read the state of
//! another. There are two exceptions. Leaky buckets of one rate have a time as their state, and differ only in how far it may be ahead. The
//! state of `concurrency` limits of one ttl is the permits that are held.

use std::rc::Rc;

use super::policy::{PolicyFields, path_of_counters};
use super::schema::{Errors, Items, Nested};
use crate::limit::Invalid;
use crate::policy::{Policy, Tier};
use crate::script::Plan;

/// Policies that share `counters` must have the same limits: each is compared with the first of them.
pub(super) fn check(views: &Items<'_, Nested<PolicyFields>>, policies: &mut [Policy], errors: &mut Errors) {
    for (index, (view, policy)) in views.iter().zip(policies.iter()).enumerate() {
        let earlier = policies.iter().take(index);
        let first = earlier.enumerate().find(|(_, other)| other.counters == policy.counters);
        if let Some((first, _)) = first.filter(|(_, other)| !counts_like(policy, other)) {
            let allowed = format!(
                "another name, or the limits, the ban and the regions of policies[{first}], which counts under this one"
            );
            errors.add(&path_of_counters(&view), format_args!("{:?}", policy.counters), allowed);
        }
    }
    if errors.found.is_empty() {
        share(policies);
    }
}

/// True if both have the same tiers with the same limits, in the same order: what workers count by themselves has no names.
fn counts_like(one: &Policy, other: &Policy) -> bool {
    let (ones, others) = (&one.tiers.tiers, &other.tiers.tiers);
    let is_scaled = one.scale.is_some() || other.scale.is_some();
    ones.len() == others.len()
        && one.regions == other.regions
        && ones.iter().zip(others).all(|(one, other)| {
            one.name == other.name
                && one.plan.counts_like(&other.plan)
                && (!is_scaled || one.plan.limits_like(&other.plan))
        })
}

/// Each bucket learns how much the others let a subject use, and each window how much larger scales do.
fn share(policies: &mut [Policy]) {
    for index in 0..policies.len() {
        let (before, rest) = policies.split_at_mut(index);
        let Some((policy, after)) = rest.split_first_mut() else { return };
        let others = before.iter().chain(after.iter()).filter(|other| other.counters == policy.counters);
        let scales = others.clone().filter_map(|other| other.scale.as_ref()).chain(&policy.scale);
        if let Some(max) = scales.map(|scale| scale.max).max() {
            policy.tiers.tiers.iter_mut().for_each(|tier| replace(tier, tier.plan.up_to(max)));
        }
        for other in others {
            let tiers = policy.tiers.tiers.iter_mut().zip(&other.tiers.tiers);
            tiers.for_each(|(tier, other)| share_tier(tier, other));
        }
    }
}

fn share_tier(tier: &mut Tier, other: &Tier) {
    if tier.plan.limits_like(&other.plan) {
        return;
    }
    replace(tier, tier.plan.sharing(&other.plan));
}

fn replace(tier: &mut Tier, plan: Result<Plan, Invalid>) {
    if let Ok(plan) = plan {
        tier.plan = Rc::new(plan);
        tier.shares = tier.plan.limits().iter().map(|limit| limit.local_share(tier.workers)).collect();
    }
}
