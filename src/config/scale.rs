// SPDX-License-Identifier: Apache-2.0
//! `scale`: how many times the configured limits a subject has, told by trusted data of its requests.

use super::schema::{Count, Errors, Nested, View, count, nested, object};
use super::subject::{self, PART, PartFields};
use crate::limit::{Invalid, Limit, MAX_UNITS};
use crate::policy::Tiers;
use crate::policy::scale::Scale;
use crate::policy::subject::Source;

object! {
    static SCALE: ScaleFields = "scale",
        "How many times as large as configured the limits of the policy are: a whole number in the request, where no client \
         can write it. Limits, rates, bursts and overdrafts are multiplied; windows, intervals and delays stay.";
    from: Nested<PartFields> = nested(&PART)
        .required("Where the number stands: `jwt_claim`, `attribute` or `header`. Its `on_missing` has no effect here. A `header` has to be \
            one that Envoy sets, or removes from requests of clients."),
    max: Count<u64> = count(1, MAX_UNITS).required("The number is at most this: a larger one counts as this."),
    min: Count<u64> = count(1, MAX_UNITS)
        .default("1", "The number is at least this: a smaller one counts as this, and so does one that is ambiguous or unreadable."),
    default: Count<u64> = count(1, MAX_UNITS)
        .default("1", "The number of requests that have none, or no whole number; from `min` to `max`."),
}

pub(super) fn read(view: &View<'_, ScaleFields>, tiers: &Tiers, errors: &mut Errors) -> Scale {
    let part = view.get(&SCALE.from);
    let from = subject::read_name(&part, errors);
    if !matches!(from.source, Source::Attribute(_) | Source::Header(_)) {
        errors.add(&part.path(), "another part", "jwt_claim, attribute or header");
    }
    let (min, max, default) = (view.get(&SCALE.min), view.get(&SCALE.max), view.get(&SCALE.default));
    if min > max {
        errors.add(&view.path_of(&SCALE.min), min, format_args!("1 to {max}, which is `max`"));
    } else if !(min..=max).contains(&default) {
        errors.add(
            &view.path_of(&SCALE.default),
            default,
            format_args!("{min} to {max}, from `min` to `max`"),
        );
    }
    for tier in &tiers.tiers {
        for (limit, limit_view) in tier.plan.limits().iter().zip(&tier.views) {
            let name = limit_view.name();
            match limit.scaled(max) {
                Err(invalid) => {
                    let allowed = format!(
                        "what keeps the limit {name:?} in bounds: {} may be {}",
                        invalid.parameter, invalid.allowed
                    );
                    errors.add(&view.path_of(&SCALE.max), max, allowed);
                }
                Ok(scaled) if is_marked(limit) != is_marked(&scaled) => {
                    let allowed = format!(
                        "what leaves the limit {name:?} below two units a microsecond, or a limit above that"
                    );
                    errors.add(&view.path_of(&SCALE.max), max, allowed);
                }
                Ok(_) => {}
            }
        }
        // Logs get larger, and the script that goes through all of them takes longer.
        let each = tier.plan.limits().iter().all(|limit| limit.scaled(max).is_ok());
        if let Some(Invalid { value, allowed, .. }) = tier.plan.scaled(max).err().filter(|_| each) {
            let allowed = format!("a scale without {value}; they may take {allowed}");
            errors.add(&view.path_of(&SCALE.max), max, allowed);
        }
    }
    Scale { from, min, max, default }
}

/// True if its state is one number. All scales have to count in the same state.
fn is_marked(limit: &Limit) -> bool {
    matches!(limit, Limit::FixedWindow(of) if of.is_marked())
}
