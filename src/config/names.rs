// SPDX-License-Identifier: Apache-2.0
//! The names by which clients know limits.

use super::policy::{PolicyFields, limits_of};
use super::schema::{Errors, Items, Nested};
use crate::policy::Policy;
use crate::sorted_map::sorted;

/// Clients know a limit by its name alone where no other policy has one of the same name.
pub(super) fn qualify(policies: &mut [Policy]) {
    let names = limits_in_order(policies);
    for policy in policies {
        for limit_view in policy.tiers.tiers.iter_mut().flat_map(|tier| &mut tier.views) {
            if policies_with(&names, limit_view.name()).is_some_and(|(first, last)| first != last) {
                *limit_view = limit_view.qualified(&policy.name);
            }
        }
    }
}

/// No two policies may have limits that clients know by the same name. (Tiers of one policy may: a request has one tier.)
pub(super) fn check(views: &Items<'_, Nested<PolicyFields>>, policies: &[Policy], errors: &mut Errors) {
    let names = limits_in_order(policies);
    let all: Vec<_> = views.iter().map(|view| limits_of(&view)).collect();
    let limits = |index: usize| {
        let tiers = policies.get(index).map(|policy| policy.tiers.tiers.as_slice()).unwrap_or_default();
        all.get(index).into_iter().flatten().zip(tiers.iter().flat_map(|tier| &tier.views))
    };
    for index in 0..policies.len() {
        for (limit, limit_view) in limits(index) {
            let first = policies_with(&names, limit_view.name()).map_or(index, |(first, _)| first);
            if first == index {
                continue;
            }
            if let Some((other, _)) = limits(first).find(|(_, other)| other.name() == limit_view.name()) {
                let allowed = format!(
                    "another name: clients see {:?}, as they do for {}",
                    limit_view.name(),
                    other.path()
                );
                errors.add(&limit.path_of_name(), format_args!("{:?}", limit.name()), allowed);
            }
        }
    }
}

/// The names of all limits, as clients know them, each with its policy; in order.
fn limits_in_order(policies: &[Policy]) -> Vec<(String, usize)> {
    let mut names: Vec<(String, usize)> = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        let limit_views = policy.tiers.tiers.iter().flat_map(|tier| &tier.views);
        names.extend(limit_views.map(|limit_view| (limit_view.name().to_owned(), index)));
    }
    sorted(names)
}

/// The first and the last policy that have a limit of this name.
fn policies_with(names: &[(String, usize)], name: &str) -> Option<(usize, usize)> {
    let from = names.partition_point(|(other, _)| other.as_str() < name);
    let till = names.partition_point(|(other, _)| other.as_str() <= name);
    let same = names.get(from..till)?;
    Some((same.first()?.1, same.last()?.1))
}
