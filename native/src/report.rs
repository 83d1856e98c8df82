//! Statistics and log: counters (of failures too, by kind), and gauges of the requests on lease and of open breakers; at most one
//! log line per second for each kind of failure, and while a breaker is open.

use core::fmt::Display;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};

use weir_core::engine::{Engine, Outage, StoreFailure};
use weir_core::time::{Micros, Throttle};

use crate::attributes::Failure;
use crate::envoy::{Metric, MetricScope};
use crate::panics;

/// The same kind of failure, and an open breaker, is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

const COUNTERS: [&str; 5] =
    ["weir.admitted", "weir.rejected", "weir.fallback", "weir.batches", "weir.commands"];
const GAUGES: [&str; 2] = ["weir.on_lease", "weir.breaker_open"];
const UNREADABLE: &str = "attribute_unreadable";

/// What limiters that have ended left in the gauges. Their own configuration is gone, so the next limiter takes it back.
static LEFT: [AtomicI64; 2] = [AtomicI64::new(0), AtomicI64::new(0)];

/// The metrics of one configuration. Envoy lets a module define them only while it reads the configuration.
pub struct Metrics {
    /// Absent from the configuration's end on.
    scope: RwLock<Option<MetricScope>>,
    counters: [Option<Metric>; 5],
    panics: Option<Metric>,
    gauges: [Option<Metric>; 2],
    kinds: Vec<(&'static str, Option<Metric>)>,
}

impl Metrics {
    /// In the hook that reads the configuration.
    pub fn define(scope: MetricScope) -> Self {
        let counter = |name: &str| {
            let metric = scope.counter(name);
            if metric.is_none() {
                log::error!("the metric {name} cannot be defined");
            }
            metric
        };
        let (counters, panics) = (COUNTERS.map(counter), counter("weir.panics"));
        let gauges = GAUGES.map(|name| scope.gauge(name));
        let mut kinds: Vec<_> =
            StoreFailure::kinds().map(|kind| (kind, counter(&format!("weir.store.{kind}")))).collect();
        kinds.push((UNREADABLE, counter("weir.attribute_unreadable")));
        Self { scope: RwLock::new(Some(scope)), counters, panics, gauges, kinds }
    }

    /// In the hook that tells of the configuration's end. It waits for workers that count right now.
    pub fn end(&self) {
        *self.scope.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts while the configuration lives; whether it does.
    fn with(&self, count: impl FnOnce(&MetricScope)) -> bool {
        self.scope.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(count).is_some()
    }
}

/// The values that one limiter has exported, and what it has logged.
#[derive(Default)]
pub struct Report {
    exported: [u64; 5],
    gauges: [u64; 2],
    outage: Throttle,
    kinds: Vec<(&'static str, Throttle)>,
}

impl Report {
    /// Exports what has changed.
    pub fn update(&mut self, engine: &mut Engine, metrics: &Metrics, now: Micros) {
        let counters = engine.counters();
        let values =
            [counters.admitted, counters.rejected, counters.fallback, counters.batches, counters.commands];
        let gauges = [engine.on_lease(), engine.open_breakers()];
        metrics.with(|scope| {
            for ((metric, value), exported) in
                metrics.counters.into_iter().zip(values).zip(&mut self.exported)
            {
                let more = value.wrapping_sub(*exported);
                if let Some(metric) = metric.filter(|_| more > 0) {
                    scope.count(metric, more);
                    *exported = value;
                }
            }
            if let (Some(metric), panics @ 1..) = (metrics.panics, panics::take()) {
                scope.count(metric, panics);
            }
            let left = LEFT.iter().map(|left| left.swap(0, Ordering::Relaxed));
            for (((metric, value), exported), left) in
                metrics.gauges.into_iter().zip(gauges).zip(&mut self.gauges).zip(left)
            {
                let change = value.wrapping_sub(*exported).cast_signed().saturating_sub(left);
                if let Some(metric) = metric.filter(|_| change != 0) {
                    scope.change(metric, change);
                    *exported = value;
                }
            }
        });
        for failure in &engine.take_failures() {
            self.count(failure.kind(), &format_args!("store: {failure}"), metrics, now);
        }
        match engine.outage(now) {
            Some(outage) if self.outage.admit(LOG_INTERVAL, now).is_some() => log_outage(outage),
            Some(_) => {}
            None => self.outage = Throttle::default(),
        }
    }

    /// Counts the attributes that could not be read for one request.
    pub fn unreadable(&mut self, failures: &[Failure], metrics: &Metrics, now: Micros) {
        for failure in failures {
            self.count(UNREADABLE, failure, metrics, now);
        }
    }

    /// Counts a failure of this kind, and logs it unless one of its kind was logged within [`LOG_INTERVAL`].
    fn count(&mut self, kind: &'static str, failure: &dyn Display, metrics: &Metrics, now: Micros) {
        metrics.with(|scope| {
            let metric =
                metrics.kinds.iter().find(|(other, _)| *other == kind).and_then(|(_, metric)| *metric);
            if let Some(metric) = metric {
                scope.count(metric, 1);
            }
        });
        if !self.kinds.iter().any(|(other, _)| *other == kind) {
            self.kinds.push((kind, Throttle::default()));
        }
        let throttle = self.kinds.iter_mut().find(|(other, _)| *other == kind);
        match throttle.and_then(|(_, throttle)| throttle.admit(LOG_INTERVAL, now)) {
            None => {}
            Some(0) => log::warn!("{failure}"),
            Some(more) => log::warn!("{failure} ({more} more of its kind since)"),
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        for (left, exported) in LEFT.iter().zip(self.gauges) {
            left.fetch_add(exported.cast_signed(), Ordering::Relaxed);
        }
    }
}

fn log_outage(Outage { lasted, slots }: Outage) {
    let seconds = lasted.0 / 1_000_000;
    match slots {
        None => log::warn!("store unavailable for {seconds} s: limits are decided by `on_failure`"),
        Some(slots) => log::warn!(
            "{slots} of 64 parts of the store's slots unavailable for {seconds} s: limits of subjects in them are decided by `on_failure`"
        ),
    }
}
