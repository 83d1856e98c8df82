// SPDX-License-Identifier: Apache-2.0
//! `tiers`: sets of limits. A request chooses one of them.

use std::rc::Rc;

use super::limits;
use super::schema::{
    Errors, Items, List, Map, NAME, Nested, Tagged, Text, Typed, Variant, View, map, nearest, nested, object,
    text,
};
use super::store::Store;
use super::subject::{self, PART, PartFields};
use crate::limit::{Invalid, Limit, MAX_DEBT};
use crate::policy::scale::ScaledPlans;
use crate::policy::{Across, Tier, Tiers};
use crate::response::{LimitView, WarnAt};
use crate::script::{NamedLimit, Options, Plan};

object! {
    static TIERS: TiersFields = "tiers",
        "Limits chosen by the request: a plan header or a claim names the tier. Each tier counts for itself; for one without limits, write \
        `exempt`.";
    by: Nested<PartFields> = nested(&PART)
        .required("The part of the request that names the tier. No `normalize`; `on_missing` has no effect: a request without it, or \
            for which it is ambiguous, has the tier `default`."),
    default: Text = text(&NAME).required("The tier of requests that name no tier that exists."),
    limits: Map<List<Tagged>> = map(LISTS, 1, 64).required("The tiers: names, and the limits of each."),
}

const LISTS: &Typed<List<Tagged>> = &limits::list_of();

/// The settings that apply to all tiers of a policy.
pub(super) struct Beside<'a> {
    pub store: &'a Store,
    pub options: Options,
    /// The way in which the limits hold across regions, and the number of regions.
    pub regions: (Across, usize),
}

/// Reads the tiers that a request chooses from.
pub(super) fn read(view: &View<'_, TiersFields>, beside: &Beside<'_>, errors: &mut Errors) -> Tiers {
    let lists = view.get(&TIERS.limits);
    let mut tiers = Vec::new();
    for (name, limits) in lists.iter() {
        tiers.extend(tier(name, &limits, beside, errors));
    }
    let default = view.get(&TIERS.default);
    let names = || lists.iter().map(|(name, _)| name);
    if names().all(|name| name != default) {
        let allowed = format!("the name of a tier: {}", names().collect::<Vec<_>>().join(", "));
        let hint = nearest(default, names());
        errors.add_with_hint(&view.path_of(&TIERS.default), format_args!("{default:?}"), allowed, hint);
    }
    let default = tiers.iter().position(|tier| tier.name == default).unwrap_or(0);
    Tiers { by: Some(subject::read_name(&view.get(&TIERS.by), errors)), default, tiers }
}

/// The limits of a policy without tiers: one tier without a name.
pub(super) fn read_only(limits: &Items<'_, Tagged>, beside: &Beside<'_>, errors: &mut Errors) -> Tiers {
    Tiers { by: None, default: 0, tiers: tier("", limits, beside, errors).into_iter().collect() }
}

/// The limits of all tiers.
pub(super) fn limits_of<'a>(view: &View<'a, TiersFields>) -> Vec<Variant<'a>> {
    view.get(&TIERS.limits).iter().flat_map(|(_, limits)| limits.iter()).collect()
}

/// Limits of different tiers have different keys: what one tier counted means nothing to another. A client that can
/// choose its tier gains no more than the sum of them.
fn tier(
    tier: &str,
    views: &Items<'_, Tagged>,
    Beside { store, options, regions }: &Beside<'_>,
    errors: &mut Errors,
) -> Option<Tier> {
    let mut limits = Vec::new();
    let mut limit_views = Vec::new();
    let mut queues = Vec::new();
    for view in views.iter() {
        let name = view.name();
        let key = if tier.is_empty() { name.to_owned() } else { format!("{tier}/{name}") };
        if options.keys().any(|other| other == key) {
            let allowed = "another name: this one is a key of overrides or bans";
            errors.add(&view.path_of_name(), format_args!("{name:?}"), allowed);
            continue;
        }
        let Some((limit, quota)) = limits::read(&view, errors) else { continue };
        let limit = match across(limit, *regions) {
            Ok(limit) => limit,
            Err(Invalid { value, allowed, .. }) => {
                let found = format_args!("a limit that other regions may take {value} times below zero");
                errors.add(&view.path(), found, format_args!("{allowed}: see `regions`"));
                continue;
            }
        };
        let warn_at = quota.warn_at_percent.map(|percent| WarnAt { percent, quota: limit.quota() });
        let view = LimitView::new(name.to_owned(), quota.units, quota.window).of(&limit);
        limits.push(NamedLimit { name: key, limit });
        queues.push(quota.queue);
        limit_views.push(view.estimated(quota.retry_estimate).warning_at(warn_at));
    }
    if limits.len() < views.iter().count() {
        return None;
    }
    let plan = Plan::new(limits, options.clone()).map_err(|invalid| {
        // The check and the code above leave one thing for the plan to find: the limits may take too long together.
        errors.add(&views.path(), invalid.value, invalid.allowed);
    });
    let plan = Rc::new(plan.ok()?.under(&store.key_prefix));
    let shares = plan.limits().iter().map(|limit| limit.local_share(store.workers)).collect();
    let (name, workers, scaled) = (tier.to_owned(), store.workers, ScaledPlans::default());
    Some(Tier { name, plan, scaled, workers, shares, views: limit_views, queues })
}

/// A limit as the script of one of this many regions has it.
fn across(limit: Limit, (regions, count): (Across, usize)) -> Result<Limit, Invalid> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match (regions, &limit) {
        (Across::Apart | Across::Home(_), _) => Ok(limit),
        // It is refused beside the policy.
        (_, Limit::Concurrency(_) | Limit::Distinct(_)) => Ok(limit),
        // Each of the others may have granted a limit before it knows of this one, and one more until its charge is here.
        (Across::Debit, _) => limit.indebted(count.saturating_mul(2).min(MAX_DEBT)),
        (Across::Share, _) => Ok(limit.local_share(count)),
    }
}
