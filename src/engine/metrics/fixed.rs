// SPDX-License-Identifier: Apache-2.0
//! The metrics that every configuration has. Hosts put their own prefix before the names; Envoy's is `wasmcustom.`.

use crate::engine::{Counters, Engine};
use crate::version;

/// How many [`COUNTERS`] there are.
pub const COUNTER_COUNT: usize = 32;
/// How many [`GAUGES`] there are.
pub const GAUGE_COUNT: usize = 9;
/// How many [`HISTOGRAMS`] there are.
pub const HISTOGRAM_COUNT: usize = 2;

/// A metric, and its value.
#[derive(Clone, Copy)]
pub struct Fixed<Of> {
    /// Its name.
    pub name: &'static str,
    /// What it measures, for the documents. The plugin has no use for it.
    #[cfg(not(target_arch = "wasm32"))]
    pub meaning: &'static str,
    value: fn(&Of) -> u64,
}

macro_rules! fixed {
    ($name:literal, $value:expr, $meaning:literal) => {
        Fixed {
            name: concat!("weir.", $name),
            #[cfg(not(target_arch = "wasm32"))]
            meaning: $meaning,
            value: $value,
        }
    };
    ($($name:literal = $value:expr, $meaning:literal;)*) => {
        [$(fixed!($name, $value, $meaning)),*]
    };
}

/// The counters, but for those of store failures, [`UNREADABLE`] and [`PANICS`].
pub static COUNTERS: [Fixed<Counters>; COUNTER_COUNT] = fixed! {
    "admitted" = |of| of.admitted, "Requests that policies were asked about and that were admitted.";
    "rejected" = |of| of.rejected, "Requests that a limit, a ban, `on_failure` or a late body rejected.";
    "banned" = |of| of.banned, "Those of `rejected` that a ban denied.";
    "delayed" = |of| of.delayed, "Requests that were held because of a `max_delay`.";
    "fallback" = |of| of.fallback, "Requests of which at least one policy was decided without Redis, because it failed, was late, or was not asked.";
    "shadow_denied" = |of| of.shadow_denied, "Denials by policies in `shadow`, or of subjects outside `enforce_percent`. Nothing was rejected because of them.";
    "denied_by_list" = |of| of.denied_by_list, "Requests rejected by a `deny` list, of the configuration or of a policy.";
    "subject_absent" = |of| of.subject_absent, "Requests rejected because they lack a part of the subject.";
    "subject_ambiguous" = |of| of.subject_ambiguous, "Requests rejected because a part of the subject is ambiguous.";
    "exempt" = |of| of.exempt, "Requests admitted by the `exempt` list of the configuration.";
    "enquiries" = |of| of.enquiries, "Enquiries answered.";
    "queued" = |of| of.queued, "Requests that waited for a permit of a `concurrency` limit.";
    "batches" = |of| of.batches, "Batches sent to Redis.";
    "commands" = |of| of.commands, "Commands sent to Redis.";
    "settled" = |of| of.settled, "Requests whose true cost their response told.";
    "units_charged" = |of| of.units_charged, "Units charged after responses, because requests cost more than they had reserved.";
    "units_refunded" = |of| of.units_refunded, "Units refunded after responses, because requests cost less than they had reserved.";
    "settlements_lost" = |of| of.settlements_lost, "Refunds, charges and releases that Redis may not have made.";
    "bodies_unreadable" = |of| of.bodies_unreadable, "Responses whose body a policy needed to tell the cost, and could not read.";
    "request_bodies_unreadable" = |of| of.request_bodies_unreadable, "Bodies of requests that a policy needed, and could not read.";
    "request_bodies_late" = |of| of.request_bodies_late, "Requests rejected because their body did not come in time.";
    "request_bodies_hurried" = |of| of.request_bodies_hurried, "Those of `request_bodies_late` that had less time than `request_body.timeout`, because more than 2,048 requests of their worker waited for bodies.";
    "request_bodies_denied" = |of| of.request_bodies_denied, "Requests that a policy needing no body denied, before the body came that another policy needs.";
    "request_bodies_no_place" = |of| of.request_bodies_no_place, "Bodies that were taken for unreadable, because 4,096 requests of their worker waited for bodies already.";
    "request_bodies_over_share" = |of| of.request_bodies_over_share, "Bodies that were taken for unreadable, because as many requests of their client waited for bodies as half of the places that were left.";
    "journal_dropped" = |of| of.journal_dropped, "Denials that are not in the journal although they were drawn.";
    "local_merged" = |of| of.local_merged, "Grants of `sliding_log` limits that count as long as a later one under `on_failure: local`, because a worker's memory for them is bounded.";
    "debits_sent" = |of| of.debits_sent, "Units that this region has granted under `debit` and charged in other regions, each region counted.";
    "debits_dropped" = |of| of.debits_dropped, "Units that this region has granted under `debit` and not charged in other regions: they no longer mattered, there were too many subjects, or the worker ended.";
    "borrowed" = |of| of.borrowed, "Requests admitted under `share` with what another region has lent.";
    "top_denied" = |of| of.top_denied, "Denials that the list of the most denied subjects counted; 0 without `top_denied`.";
    "top_denied_replaced" = |of| of.top_denied_replaced, "Subjects that left that list for others, because it was full.";
};

/// The gauges. All workers share them, so each adds what has changed.
pub static GAUGES: [Fixed<Engine>; GAUGE_COUNT] = fixed! {
    "on_lease" = |of| of.on_lease(), "Units on lease now.";
    "breaker_open" = |of| of.open_breakers(), "Open breakers: 1 for each worker that does not ask Redis at all, and 1 for each 64th of the slots that a worker does not ask about.";
    "not_asking" = |of| of.is_not_asking(), "Workers that do not ask Redis at all.";
    "policies_off" = |of| of.policies_off(), "Policies that do not limit, because a breaker is open and their `on_failure` is `allow`; each worker counts its own.";
    "waiting" = |of| of.queued(), "Requests that wait for a permit of a `concurrency` limit.";
    "asking" = |of| of.asking(), "Requests that wait for Redis.";
    "held" = |of| of.held(), "Requests that are held because of a `max_delay`.";
    "debits_waiting" = |of| of.debits_waiting(), "Units that this region has granted under `debit` and has yet to charge in other regions, each region counted.";
    "in_flight" = |of| of.batches_in_flight(), "Batches that Redis has not answered yet.";
};

/// The histograms.
pub static HISTOGRAMS: [Fixed<()>; HISTOGRAM_COUNT] = fixed! {
    "store_latency_us" = |()| 0, "How long Redis took to answer a batch, in microseconds: from the send to the reply, as the worker sees it.";
    "batch_tasks" = |()| 0, "How many tasks a batch had: a subject, a settlement or an entry of the journal each.";
};

/// The counter of attributes that the host could not read.
pub static UNREADABLE: Fixed<()> =
    fixed!("attribute_unreadable", |()| 0, "Attributes of requests that Envoy has and could not show.");

/// The counter of panics.
pub static PANICS: Fixed<()> = fixed!(
    "panics",
    |()| 0,
    "Panics inside `libweir.so`. Always 0 with `weir.wasm`, whose panics end the VM: Envoy counts those by itself."
);

/// The metric that names the build.
pub static BUILD_INFO: Fixed<()> = Fixed {
    name: version::METRIC,
    #[cfg(not(target_arch = "wasm32"))]
    meaning: "Always 1. Its name says which version is loaded, and from which commit it was built.",
    value: |()| 1,
};

/// The values of [`COUNTERS`].
pub(in crate::engine) fn counters(of: &Counters) -> [u64; COUNTER_COUNT] {
    values(&COUNTERS, of)
}

/// The values of [`GAUGES`].
pub(in crate::engine) fn gauges(of: &Engine) -> [u64; GAUGE_COUNT] {
    values(&GAUGES, of)
}

fn values<Of, const COUNT: usize>(metrics: &[Fixed<Of>; COUNT], of: &Of) -> [u64; COUNT] {
    let mut values = [0; COUNT];
    for (value, metric) in values.iter_mut().zip(metrics) {
        *value = (metric.value)(of);
    }
    values
}
