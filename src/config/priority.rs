// SPDX-License-Identifier: Apache-2.0
//! `priority`: a share of each limit is kept for the requests of a class.

use super::condition::{self, CONDITION, ConditionFields};
use super::schema::{Count, Errors, Items, List, Nested, Typed, View, count, list, nested, object};
use crate::policy::matcher::Condition;
use crate::policy::{MAX_KEPT, Tiers};

object! {
    static CLASS: ClassFields = "priority_class",
        "A class of requests, and the share of each limit that is kept for it. A request that can be read in several ways belongs to \
         it only if it does in all of them (see [readings](readings.md)).";
    when: Nested<ConditionFields> = nested(&CONDITION).required("Which requests."),
    percent: Count<u8> = count(1, MAX_KEPT as u64)
        .required("The share, in percent of each limit, rounded up. All shares of a policy together are at most 99."),
}

/// The classes of one policy.
pub(super) const fn list_of() -> Typed<List<Nested<ClassFields>>> {
    list(const { &nested(&CLASS) }, 0, 16)
}

pub(super) fn read(classes: &Items<'_, Nested<ClassFields>>, errors: &mut Errors) -> Vec<(Condition, u8)> {
    let mut left = MAX_KEPT;
    let mut class = |view: View<'_, ClassFields>| {
        let percent = view.get(&CLASS.percent);
        match left.checked_sub(percent) {
            Some(rest) => left = rest,
            None => {
                let allowed = format!("at most {left}: all shares together are at most {MAX_KEPT}");
                errors.add(&view.path_of(&CLASS.percent), percent, allowed);
            }
        }
        (condition::read(&view.get(&CLASS.when)), percent)
    };
    classes.iter().map(&mut class).collect()
}

/// Checks the classes against the limits: no share of a limit of one unit can be kept.
pub(super) fn check(classes: &Items<'_, Nested<ClassFields>>, tiers: &Tiers, errors: &mut Errors) {
    let limits = tiers.tiers.iter().flat_map(|tier| tier.plan.limits().iter().zip(&tier.views));
    for (_, view) in limits.filter(|(limit, _)| limit.quota() < 2) {
        let found = format!("the limit {:?} of one unit", view.name());
        errors.add(
            &classes.path(),
            found,
            "limits of at least 2 units: of a single one, no share can be kept",
        );
    }
}
