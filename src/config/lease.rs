// SPDX-License-Identifier: Apache-2.0
//! `lease`: requests that a worker takes in advance.

use super::schema::{Count, Duration, Errors, View, count, duration, object};
use crate::limit::{Limit, MIN_WINDOW};
use crate::policy::{Lease, Tiers};
use crate::time::Micros;

object! {
    static LEASE: LeaseFields = "lease",
        "How many requests of one subject a worker may take in advance, and for how long. It takes more when it runs out and \
         less when it has some left. Not for policies with a `concurrency` limit, a `max_delay`, a `ban` or a `priority`.";
    max: Count<u32> = count(1, 1_000_000)
        .required("The most requests of one subject that one worker holds in advance."),
    min: Count<u32> = count(1, 1_000_000)
        .default("1", "The fewest requests that a worker takes in advance; not above `max`."),
    duration: Duration = duration(MIN_WINDOW, Micros::from_secs(60))
        .default("\"1s\"", "How long a worker may hold them. Then it returns those that it has left."),
}

pub(super) fn read(view: &View<'_, LeaseFields>, tiers: &Tiers, errors: &mut Errors) -> Lease {
    let (min, max) = (view.get(&LEASE.min), view.get(&LEASE.max));
    if min > max {
        errors.add(&view.path_of(&LEASE.min), min, format_args!("1 to {max}, which is `max`"));
    }
    let holds = |limit: &Limit| match limit {
        Limit::Concurrency(_) => true,
        Limit::LeakyBucket(bucket) => bucket.max_delay() > Micros::ZERO,
        _ => false,
    };
    if tiers.tiers.iter().any(|tier| tier.plan.limits().iter().any(holds)) {
        let allowed = "no lease with a concurrency limit or a max_delay: their requests take turns";
        errors.add(&view.path(), "a lease", allowed);
    }
    Lease { max, min, duration: view.get(&LEASE.duration) }
}
