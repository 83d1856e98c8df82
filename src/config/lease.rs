// SPDX-License-Identifier: Apache-2.0
//! `lease`: requests that a worker takes in advance.

use super::schema::{Count, Doc, Duration, Errors, View, WordShape, count, duration, object};
use crate::limit::{Limit, MIN_WINDOW};
use crate::policy::{Lease, Tiers};
use crate::time::Micros;

object! {
    static LEASE: LeaseFields = "lease",
        "How many requests of one subject a worker may take in advance, and for how long. The reservation adapts to use. \
         Not for policies with a `concurrency` or `distinct` limit, a `max_delay`, a `ban` or a `priority`.";
    max: Count<u32> = count(1, 1_000_000)
        .required("The most requests of one subject that one worker holds in advance."),
    min: Count<u32> = count(1, 1_000_000)
        .default("1", "The fewest requests that a worker takes in advance; not above `max`."),
    duration: Duration = duration(MIN_WINDOW, Micros::from_secs(60))
        .default("\"1s\"", "How long a worker may hold them. Then it returns those that it has left."),
}

pub(super) static AUTO: WordShape = WordShape {
    name: "auto",
    doc: Doc::new(
        "Only for subjects so busy that it pays, and as many as the limits allow; of limits below 50,000 units a second none.",
    ),
};

/// `view` is none for `auto`.
pub(super) fn read(
    view: Option<View<'_, LeaseFields>>,
    path: &str,
    tiers: &Tiers,
    errors: &mut Errors,
) -> Lease {
    let holds = |limit: &Limit| match limit {
        Limit::Concurrency(_) => true,
        Limit::LeakyBucket(bucket) => bucket.max_delay() > Micros::ZERO,
        _ => false,
    };
    if tiers.tiers.iter().any(|tier| tier.plan.limits().iter().any(holds)) {
        let allowed = "no lease with a concurrency limit or a max_delay: their requests take turns";
        errors.add(path, "a lease", allowed);
    }
    if tiers.tiers.iter().any(|tier| tier.plan.counts_members()) {
        let allowed = "no lease with a distinct limit: a worker does not know the values of later requests";
        errors.add(path, "a lease", allowed);
    }
    let Some(view) = view else { return Lease::AUTO };
    let (min, max) = (view.get(&LEASE.min), view.get(&LEASE.max));
    if min > max {
        errors.add(&view.path_of(&LEASE.min), min, format_args!("1 to {max}, which is `max`"));
    }
    Lease { max, min, duration: view.get(&LEASE.duration), is_auto: false }
}
