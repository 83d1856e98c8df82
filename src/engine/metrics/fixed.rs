// SPDX-License-Identifier: Apache-2.0
//! The metrics that every configuration has. One line declares a metric: its kind, its name, its value and its meaning. Hosts put their
//! own prefix before the names; Envoy's is `wasmcustom.`.

use std::borrow::Cow;

use super::catalogue::{Event, Kind, Reading, Row};
use crate::engine::Engine;
use crate::engine::store::Store;

/// Declares the metrics: those that the engine has, each with its value, and those that are counted or recorded on an [`Event`].
macro_rules! metrics {
    (
        of $engine:ident { $($kind:ident $name:ident = $value:expr, $meaning:literal;)* }
        of events { $($event_kind:ident $event_name:ident on $event:ident, $event_meaning:literal;)* }
    ) => {
        /// The counts of an engine since it began, and the values of its gauges now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $meaning] pub $name: u64,)*
        }

        impl Counters {
            pub(in crate::engine) fn of($engine: &Engine) -> Self {
                Self { $($name: $value),* }
            }
        }

        /// The rows of these metrics.
        pub(super) static FIXED: &[Row] = &[
            $(row!(Kind::$kind, named!($name), Reading::Fixed(|of| of.$name), $meaning),)*
            $(row!(Kind::$event_kind, named!($event_name), Reading::Event(Event::$event), $event_meaning),)*
        ];
    };
}

macro_rules! named {
    ($name:ident) => {
        Cow::Borrowed(concat!("weir.", stringify!($name)))
    };
}

metrics! {
    of engine {
        Counter admitted = engine.requests.decided.admitted, "Requests that policies were asked about and that were admitted.";
        Counter rejected = engine.requests.decided.rejected, "Requests that a limit, a ban, `on_failure` or a late body rejected.";
        Counter banned = engine.requests.decided.banned, "Those of `rejected` that a ban denied.";
        Counter delayed = engine.requests.tally.totals.delayed, "Requests that were held because of a `max_delay`.";
        Counter fallback = engine.requests.decided.fallback, "Requests for which at least one policy was decided without Redis, because it failed, was late, or was not asked.";
        Counter shadow_denied = engine.requests.tally.totals.shadow_denied, "Denials by policies in `shadow`, or of subjects outside `enforce_percent`. Nothing was rejected because of them.";
        Counter denied_by_list = engine.requests.tally.totals.denied_by_list, "Requests rejected by a `deny` list, of the configuration or of a policy.";
        Counter subject_absent = engine.requests.tally.totals.subject_absent, "Requests rejected because they lack a part of the subject.";
        Counter subject_ambiguous = engine.requests.tally.totals.subject_ambiguous, "Requests rejected because a part of the subject is ambiguous.";
        Counter model_unknown = engine.requests.tally.totals.model_unknown, "Requests rejected because no price is known for their model, under `on_unknown_model: deny`.";
        Counter exempt = engine.requests.tally.totals.exempt, "Requests admitted by the `exempt` list of the configuration.";
        Counter enquiries = engine.requests.decided.enquiries, "Quota requests answered.";
        Counter queued = engine.requests.permit_queues.queued, "Requests that waited for a permit of a `concurrency` limit.";
        Counter batches = engine.stores.iter().map(|store| store.sent().0).sum(), "Batches sent to Redis.";
        Counter commands = engine.stores.iter().map(|store| store.sent().1).sum(), "Commands sent to Redis.";
        Counter settled = engine.requests.settled.requests, "Requests that were settled, by their response or at their end; each policy with `settle` counts.";
        Counter units_charged = engine.requests.settled.charged, "Units by which requests cost more than they had reserved. Limits are charged for what they have left of them.";
        Counter units_refunded = engine.requests.settled.refunded, "Units refunded after responses, because requests cost less than they had reserved.";
        Counter settlements_lost = engine.lost_settlements, "Refunds, charges and releases that Redis may not have made.";
        Counter bodies_unreadable = engine.requests.settled.unreadable, "Responses whose body a policy needed to tell the cost, and could not read.";
        Counter request_bodies_unreadable = engine.requests.bodies.unreadable, "Bodies of requests that a policy needed, and could not read.";
        Counter request_bodies_late = engine.requests.bodies.late, "Requests whose body did not come in time. They are rejected, unless only policies in shadow need it.";
        Counter request_bodies_hurried = engine.requests.bodies.hurried, "Those of `request_bodies_late` that had less time than `request_body.timeout`, because more than 2,048 requests of their worker waited for bodies.";
        Counter request_bodies_denied = engine.requests.bodies.denied, "Requests that a policy needing no body denied, before the body came that another policy needs.";
        Counter request_bodies_no_place = engine.requests.bodies.no_place, "Bodies that were taken for unreadable, because 4,096 requests of their worker waited for bodies already.";
        Counter request_bodies_over_share = engine.requests.bodies.over_share, "Bodies that were taken for unreadable, because as many requests of their client waited for bodies as half of the places that were left.";
        Counter journal_dropped = engine.stores.iter().map(|store| store.journal_dropped()).sum(), "Denials that are not in the journal although they were drawn.";
        Counter usage_merged = engine.requests.tally.usage.as_ref().map_or(0, |usage| usage.merged), "How often units counted in the usage journal for the others of a policy, because more than 16,384 subjects of a worker waited to be written.";
        Counter usage_dropped = engine.requests.tally.usage.as_ref().map_or(0, |usage| usage.dropped), "Subjects whose usage a worker that ended could not write to the usage journal: Redis did not answer for a minute.";
        Counter local_merged = engine.requests.local_merged(), "Grants of `sliding_log` limits that count as long as a later one under `on_failure: local`, because a worker's memory for them is bounded.";
        Counter debits_sent = engine.requests.debits.counts.sent, "Units that this region has granted under `debit` and charged in other regions, each region counted.";
        Counter debits_dropped = engine.requests.debits.counts.dropped, "Units that this region has granted under `debit` and not charged in other regions: they no longer mattered, there were too many subjects, or the worker ended.";
        Counter borrowed = engine.requests.borrowed, "Requests admitted under `share` with what another region has lent.";
        Counter top_denied = engine.requests.tally.top_denied.as_ref().map_or(0, |top| top.total.0), "Denials that the list of the most denied subjects counted; 0 without `top_denied`.";
        Counter top_denied_replaced = engine.requests.tally.top_denied.as_ref().map_or(0, |top| top.total.1), "Subjects that left that list for others, because it was full.";
        Gauge on_lease = engine.on_lease(), "Units on lease now.";
        Gauge breaker_open = engine.breakers_open(), "Open breakers: 1 for each worker that does not ask Redis at all, and 1 for each 64th of the slots that a worker does not ask about.";
        Gauge not_asking = u64::from(!engine.is_retired && engine.stores.peek(0).is_some_and(Store::is_not_asking)), "Workers that do not ask Redis at all.";
        Gauge policies_off = engine.policies_off(), "Policies that do not limit, because a breaker is open and their `on_failure` is `allow`; each worker counts its own.";
        Gauge waiting = engine.queued(), "Requests that wait for a permit of a `concurrency` limit.";
        Gauge asking = engine.requests.waiting() as u64, "Requests that wait for Redis.";
        Gauge held = engine.requests.held() as u64, "Requests that are held because of a `max_delay`.";
        Gauge debits_waiting = if engine.is_retired { 0 } else { engine.requests.debits.waiting() }, "Units that this region has granted under `debit` and has yet to charge in other regions, each region counted.";
        Gauge usage_waiting = engine.usage_waiting(), "Subjects whose usage is not in the usage journal yet. It is written after 5 s, and again until Redis has answered.";
        Gauge in_flight = engine.stores.iter().map(|store| store.batches_in_flight() as u64).sum(), "Batches that Redis has not answered yet.";
    }
    of events {
        Counter attribute_unreadable on Unreadable, "Attributes of requests that Envoy has and could not show.";
        Counter panics on Panic, "Panics inside `libweir.so`. Always 0 with `weir.wasm`, whose panics end the VM: Envoy counts those by itself.";
        Histogram store_latency_us on Latency, "How long Redis took to answer a batch, in microseconds: from the send to the reply, as the worker sees it.";
        Histogram batch_tasks on Tasks, "How many tasks a batch had: a subject, a settlement or an entry of the journal each.";
    }
}
