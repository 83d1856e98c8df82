// SPDX-License-Identifier: Apache-2.0
//! The documented bound of each way: the most that all regions together may admit.

use std::time::Duration;

use crate::Form;
use crate::cases::{Case, Demand, Event};
use crate::world::{BETWEEN, Hold, REGIONS, SYNC_INTERVAL, Way};

/// The limit over a time.
pub fn limit(form: Form, time: Duration) -> f64 {
    f64::from(form.burst) + f64::from(form.rate) * time.as_secs_f64()
}

/// The most that may be admitted in a case that has taken so long. `cut` is how long a region was cut off.
pub fn bound(form: Form, case: &Case, way: &Way, time: Duration, cut: Duration) -> f64 {
    let limit = |time| limit(form, time);
    let is_lost = case.phases.iter().any(|phase| matches!(phase.event, Event::Lost));
    let (burst, regions) = (f64::from(form.burst), REGIONS as f64);
    let is_burst = case.phases.iter().any(|phase| matches!(phase.event, Event::Burst));
    match way.hold {
        // The Redis that is lost is not the one that counts, and `on_failure: deny` admits nothing.
        Hold::Home => limit(time),
        // The worst burst: each region has the whole limit.
        Hold::Debit if is_burst => regions * limit(time),
        Hold::Debit => {
            let lag = lag(form, case);
            let mut bound = limit(time) + unknown(form, case, lag);
            if !cut.is_zero() {
                // Each side of the cut admits up to the limit by itself.
                bound += limit(cut + lag);
            }
            // A Redis that is empty knows of nothing.
            bound + if is_lost { burst } else { 0.0 }
        }
        // A Redis that is empty has the burst of its part again.
        Hold::Share => limit(time) + if is_lost { burst / regions } else { 0.0 },
    }
}

/// The maximum grants of the other regions in the last `lag`: as much as they were asked for, and no more than the limit.
fn unknown(form: Form, case: &Case, lag: Duration) -> f64 {
    let granted = |percent: u32| {
        let asked = f64::from(form.rate) * f64::from(percent) / 100.0 * lag.as_secs_f64();
        asked.ceil().min(limit(form, lag))
    };
    let of_others = |demand: Demand| {
        let grants = demand.map(granted);
        let each = grants.iter().filter(|own| **own > 0.0).map(|own| grants.iter().sum::<f64>() - own);
        each.fold(0.0, f64::max)
    };
    // The time may begin in one phase and end in the next.
    let demands = case.phases.iter().map(|phase| phase.demand);
    let pairs = demands.clone().zip(demands.clone().skip(1));
    let both = pairs.map(|(one, next)| std::array::from_fn(|region| one[region].max(next[region])));
    demands.clone().chain(both).map(of_others).fold(0.0, f64::max)
}

/// The maximum time until another region knows of a grant.
fn lag(form: Form, case: &Case) -> Duration {
    let trips = case.phases.iter().map(|phase| match &phase.event {
        Event::Ways(way) | Event::SlowRegion(way) => way.longest_trip(),
        _ => BETWEEN.longest_trip(),
    });
    SYNC_INTERVAL + trips.max().expect("a phase") + form.slack
}
