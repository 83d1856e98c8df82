// SPDX-License-Identifier: Apache-2.0
//! The metrics that every configuration has. One row of a table declares a metric: its name, its value and its meaning. Hosts put their
//! own prefix before the names; Envoy's is `wasmcustom.`.

use crate::engine::Engine;
use crate::engine::dispatch::Dispatch;
use crate::version;

/// A metric that every configuration has.
#[derive(Clone, Copy)]
pub struct Fixed {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, for the documents. The plugin has no use for it.
    #[cfg(not(target_arch = "wasm32"))]
    pub meaning: &'static str,
}

macro_rules! fixed {
    ($name:expr, $meaning:literal) => {
        Fixed {
            name: $name,
            #[cfg(not(target_arch = "wasm32"))]
            meaning: $meaning,
        }
    };
}

/// Declares metrics: a struct of their values, read from an engine, and the table of their names and meanings, in the same order.
macro_rules! metrics {
    (
        $(#[$of_values:meta])* $values:ident of $engine:ident,
        $(#[$of_table:meta])* $table:ident, $count:ident;
        $($name:ident = $value:expr, $meaning:literal;)*
    ) => {
        $(#[$of_values])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $values {
            $(#[doc = $meaning] pub $name: u64,)*
        }

        impl $values {
            pub(in crate::engine) fn of($engine: &Engine) -> Self {
                Self { $($name: $value),* }
            }

            pub(in crate::engine) const fn in_order(self) -> [u64; $count] {
                [$(self.$name),*]
            }
        }

        #[doc = concat!("How many [`", stringify!($table), "`] there are.")]
        pub const $count: usize = [$(stringify!($name)),*].len();

        $(#[$of_table])*
        pub static $table: [Fixed; $count] = [$(fixed!(concat!("weir.", stringify!($name)), $meaning)),*];
    };
}

metrics! {
    /// Counts since the worker began.
    Counters of engine,
    /// The counters, but for those of store failures, [`UNREADABLE`] and [`PANICS`].
    COUNTERS, COUNTER_COUNT;
    admitted = engine.requests.decided.admitted, "Requests that policies were asked about and that were admitted.";
    rejected = engine.requests.decided.rejected, "Requests that a limit, a ban, `on_failure` or a late body rejected.";
    banned = engine.requests.decided.banned, "Those of `rejected` that a ban denied.";
    delayed = engine.requests.tally.totals.delayed, "Requests that were held because of a `max_delay`.";
    fallback = engine.requests.decided.fallback, "Requests of which at least one policy was decided without Redis, because it failed, was late, or was not asked.";
    shadow_denied = engine.requests.tally.totals.shadow_denied, "Denials by policies in `shadow`, or of subjects outside `enforce_percent`. Nothing was rejected because of them.";
    denied_by_list = engine.requests.tally.totals.denied_by_list, "Requests rejected by a `deny` list, of the configuration or of a policy.";
    subject_absent = engine.requests.tally.totals.subject_absent, "Requests rejected because they lack a part of the subject.";
    subject_ambiguous = engine.requests.tally.totals.subject_ambiguous, "Requests rejected because a part of the subject is ambiguous.";
    model_unknown = engine.requests.tally.totals.model_unknown, "Requests rejected because no price is known for their model, under `on_unknown_model: deny`.";
    exempt = engine.requests.tally.totals.exempt, "Requests admitted by the `exempt` list of the configuration.";
    enquiries = engine.requests.decided.enquiries, "Enquiries answered.";
    queued = engine.requests.permit_queues.queued, "Requests that waited for a permit of a `concurrency` limit.";
    batches = engine.stores.iter().map(|store| store.sent().0).sum(), "Batches sent to Redis.";
    commands = engine.stores.iter().map(|store| store.sent().1).sum(), "Commands sent to Redis.";
    settled = engine.requests.settled.requests, "Requests whose true cost their response told.";
    units_charged = engine.requests.settled.charged, "Units by which requests cost more than they had reserved. Limits are charged for what they have left of them.";
    units_refunded = engine.requests.settled.refunded, "Units refunded after responses, because requests cost less than they had reserved.";
    settlements_lost = engine.lost_settlements, "Refunds, charges and releases that Redis may not have made.";
    bodies_unreadable = engine.requests.settled.unreadable, "Responses whose body a policy needed to tell the cost, and could not read.";
    request_bodies_unreadable = engine.requests.bodies.unreadable, "Bodies of requests that a policy needed, and could not read.";
    request_bodies_late = engine.requests.bodies.late, "Requests rejected because their body did not come in time.";
    request_bodies_hurried = engine.requests.bodies.hurried, "Those of `request_bodies_late` that had less time than `request_body.timeout`, because more than 2,048 requests of their worker waited for bodies.";
    request_bodies_denied = engine.requests.bodies.denied, "Requests that a policy needing no body denied, before the body came that another policy needs.";
    request_bodies_no_place = engine.requests.bodies.no_place, "Bodies that were taken for unreadable, because 4,096 requests of their worker waited for bodies already.";
    request_bodies_over_share = engine.requests.bodies.over_share, "Bodies that were taken for unreadable, because as many requests of their client waited for bodies as half of the places that were left.";
    journal_dropped = engine.stores.iter().map(|store| store.journal_dropped()).sum(), "Denials that are not in the journal although they were drawn.";
    usage_merged = engine.requests.tally.usage.as_ref().map_or(0, |usage| usage.merged), "How often units counted in the usage journal for the others of a policy, because more than 16,384 subjects of a worker waited to be written.";
    usage_dropped = engine.requests.tally.usage.as_ref().map_or(0, |usage| usage.dropped), "Subjects whose usage a worker that ended could not write to the usage journal: Redis did not answer for a minute.";
    local_merged = engine.requests.local_merged(), "Grants of `sliding_log` limits that count as long as a later one under `on_failure: local`, because a worker's memory for them is bounded.";
    debits_sent = engine.requests.debits.counts.sent, "Units that this region has granted under `debit` and charged in other regions, each region counted.";
    debits_dropped = engine.requests.debits.counts.dropped, "Units that this region has granted under `debit` and not charged in other regions: they no longer mattered, there were too many subjects, or the worker ended.";
    borrowed = engine.requests.borrowed, "Requests admitted under `share` with what another region has lent.";
    top_denied = engine.requests.tally.top_denied.as_ref().map_or(0, |top| top.total.0), "Denials that the list of the most denied subjects counted; 0 without `top_denied`.";
    top_denied_replaced = engine.requests.tally.top_denied.as_ref().map_or(0, |top| top.total.1), "Subjects that left that list for others, because it was full.";
}

metrics! {
    /// The state now.
    Gauges of engine,
    /// The gauges. All workers share them, so each adds what has changed.
    GAUGES, GAUGE_COUNT;
    on_lease = engine.on_lease(), "Units on lease now.";
    breaker_open = engine.open_breakers(), "Open breakers: 1 for each worker that does not ask Redis at all, and 1 for each 64th of the slots that a worker does not ask about.";
    not_asking = u64::from(!engine.is_retired && engine.stores.peek(0).is_some_and(Dispatch::is_not_asking)), "Workers that do not ask Redis at all.";
    policies_off = engine.policies_off(), "Policies that do not limit, because a breaker is open and their `on_failure` is `allow`; each worker counts its own.";
    waiting = engine.queued(), "Requests that wait for a permit of a `concurrency` limit.";
    asking = engine.requests.waiting() as u64, "Requests that wait for Redis.";
    held = engine.requests.held() as u64, "Requests that are held because of a `max_delay`.";
    debits_waiting = engine.debits_waiting(), "Units that this region has granted under `debit` and has yet to charge in other regions, each region counted.";
    usage_waiting = engine.usage_waiting(), "Subjects whose usage is not in the usage journal yet. It is written after 5 s, and again until Redis has answered.";
    in_flight = engine.stores.iter().map(|store| store.batches_in_flight() as u64).sum(), "Batches that Redis has not answered yet.";
}

/// The histograms.
pub static HISTOGRAMS: [Fixed; 2] = [
    fixed!(
        "weir.store_latency_us",
        "How long Redis took to answer a batch, in microseconds: from the send to the reply, as the worker sees it."
    ),
    fixed!(
        "weir.batch_tasks",
        "How many tasks a batch had: a subject, a settlement or an entry of the journal each."
    ),
];

/// The counter of attributes that the host could not read.
pub static UNREADABLE: Fixed =
    fixed!("weir.attribute_unreadable", "Attributes of requests that Envoy has and could not show.");

/// The counter of panics.
pub static PANICS: Fixed = fixed!(
    "weir.panics",
    "Panics inside `libweir.so`. Always 0 with `weir.wasm`, whose panics end the VM: Envoy counts those by itself."
);

/// The metric that names the build.
pub static BUILD_INFO: Fixed = fixed!(
    version::METRIC,
    "Always 1. Its name says which version is loaded, and from which commit it was built."
);

/// The metric that names the configuration.
pub static CONFIG_HASH: Fixed = fixed!(
    "weir.config_hash",
    "A number that names the configuration in force: equal for configurations that say the same. The line of the log that says how many \
     policies are loaded has it, and `weir check --format json`."
);
