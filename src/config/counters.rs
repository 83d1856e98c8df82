//! `counters`: policies that count under one name. Their limits must be the same: the state of a limit means nothing to another one.

use super::policy::{PolicyFields, path_of_counters};
use super::schema::{Errors, Items, Nested};
use crate::policy::Policy;

/// Each policy needs the limits of the first one that counts under its name.
pub(super) fn check(views: &Items<'_, Nested<PolicyFields>>, policies: &[Policy], errors: &mut Errors) {
    for (index, (view, policy)) in views.iter().zip(policies).enumerate() {
        let earlier = policies.iter().take(index);
        let first = earlier.enumerate().find(|(_, other)| other.counters == policy.counters);
        if let Some((first, _)) = first.filter(|(_, other)| !counts_like(policy, other)) {
            let allowed =
                format!("another name, or the limits of policies[{first}], which counts under this one");
            errors.add(&path_of_counters(&view), format_args!("{:?}", policy.counters), allowed);
        }
    }
}

/// Whether both have the same tiers with the same limits, in the same order: what workers count by themselves has no names.
fn counts_like(one: &Policy, other: &Policy) -> bool {
    let (ones, others) = (&one.tiers.tiers, &other.tiers.tiers);
    ones.len() == others.len()
        && ones
            .iter()
            .zip(others)
            .all(|(one, other)| one.name == other.name && one.plan.counts_like(&other.plan))
}
