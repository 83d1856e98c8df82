// SPDX-License-Identifier: Apache-2.0
//! Metrics in Envoy's statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use weir_core::config::Config;
use weir_core::engine::{Catalogue, Event, Kind, Metric, Metrics, Report, Row};

use crate::envoy::{self, MetricScope};
use crate::panics::{self, locked};

/// The values that limiters had added to gauges when they ended. Envoy may have removed their configuration, so another configuration
/// subtracts these values.
static RESIDUES: Mutex<Vec<Residue>> = Mutex::new(Vec::new());

/// The number of limiters that have ended with values in gauges.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The most residues that wait for a configuration to subtract them. Beyond that, the oldest stay in the gauges.
const MAX_RESIDUES: usize = 16_384;

struct Residue {
    gauge: String,
    value: i64,
    /// The value of [`ENDED`] after this limiter's end.
    ended: u64,
}

/// A limiter of this configuration ends, and its report has added to gauges: notes it, so that something subtracts it.
pub fn add_residues(report: &Report, config: &Config) {
    let mut gauges = report.gauges().peekable();
    if gauges.peek().is_none() {
        return;
    }
    let catalogue = Catalogue::of(config);
    let mut all = locked(&RESIDUES);
    let ended = ENDED.fetch_add(1, Ordering::AcqRel).saturating_add(1);
    all.extend(gauges.filter_map(|(metric, value)| {
        let gauge = catalogue.rows().get(metric.place)?.name.to_string();
        Some(Residue { gauge, value: value.cast_signed(), ended })
    }));
    let excess = all.len().saturating_sub(MAX_RESIDUES);
    all.drain(..excess);
}

/// The metrics of one configuration. Envoy lets a module define them only while it reads the configuration.
pub struct ConfigMetrics {
    /// Absent after the configuration's end.
    scope: RwLock<Option<MetricScope>>,
    /// In the order of the catalogue.
    metrics: Vec<Option<envoy::Metric>>,
    /// The counter of panics.
    panics: Option<Metric>,
    /// The gauges, by name.
    gauges: BTreeMap<String, Metric>,
    /// The value of [`ENDED`] at the definition. Older residues are in gauges of that time.
    ended_before: u64,
    /// The value of [`ENDED`] at the last look.
    ended_seen: AtomicU64,
}

impl ConfigMetrics {
    /// Defines them. Only the hook that reads the configuration may call it.
    pub fn define(scope: MetricScope, catalogue: &Catalogue) -> Self {
        let define = |row: &Row| {
            let metric = match row.kind {
                Kind::Counter => scope.counter(&row.name),
                Kind::Gauge => scope.gauge(&row.name),
                Kind::Histogram => scope.histogram(&row.name),
            };
            match (metric, row.constant()) {
                (Some(metric), Some(value)) => scope.set(metric, value),
                (Some(_), None) => {}
                (None, _) => log::error!("the metric {} cannot be defined", row.name),
            }
            metric
        };
        let metrics = catalogue.rows().iter().map(define).collect();
        let gauges = catalogue.metrics().filter(|(_, row)| row.kind == Kind::Gauge);
        let gauges = gauges.map(|(metric, row)| (row.name.to_string(), metric)).collect();
        let mut all = catalogue.metrics();
        let panics = all.find(|(_, row)| row.event() == Some(Event::Panic)).map(|(metric, _)| metric);
        let ended = ENDED.load(Ordering::Acquire);
        let scope = RwLock::new(Some(scope));
        Self { scope, metrics, panics, gauges, ended_before: ended, ended_seen: AtomicU64::new(ended) }
    }

    /// For the hook that reports the configuration's end. It waits for workers that count at this moment.
    pub fn end(&self) {
        *self.scope.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts what no limiter counts: panics, and the residues of ended limiters.
    pub fn update(&self) {
        // After the configuration's end, what is counted is lost: another one counts it.
        if self.scope.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            return;
        }
        if let (Some(metric), panics @ 1..) = (self.panics, panics::take_count()) {
            (&mut &*self).add(metric, panics.cast_signed());
        }
        let ended = ENDED.load(Ordering::Acquire);
        if self.ended_seen.swap(ended, Ordering::Relaxed) == ended {
            return;
        }
        locked(&RESIDUES).retain(|residue| {
            let gauge = self.gauges.get(&residue.gauge).filter(|_| residue.ended > self.ended_before);
            !gauge.is_some_and(|gauge| (&mut &*self).add(*gauge, residue.value.saturating_neg()))
        });
    }
}

impl Metrics for &ConfigMetrics {
    fn add(&mut self, metric: Metric, value: i64) -> bool {
        let scope = self.scope.read().unwrap_or_else(PoisonError::into_inner);
        // Envoy has removed the metrics of a configuration that has ended. What is counted then is lost.
        let Some(scope) = scope.as_ref() else { return metric.kind != Kind::Gauge };
        let Some(id) = self.metrics.get(metric.place).copied().flatten() else { return false };
        match metric.kind {
            Kind::Counter => scope.count(id, value.cast_unsigned()),
            Kind::Gauge => scope.change(id, value),
            Kind::Histogram => scope.record(id, value.cast_unsigned()),
        }
        true
    }
}
