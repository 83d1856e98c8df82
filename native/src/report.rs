// SPDX-License-Identifier: Apache-2.0
//! Metrics in Envoy's statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use weir_core::config::Config;
use weir_core::engine::{Catalogue, Definition, Kind, Metric, Metrics, Report};

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
        let gauge = catalogue.definitions().get(metric.place())?.name.clone();
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
        let define = |Definition { kind, name, value }: &Definition| {
            let metric = match kind {
                Kind::Info => scope.gauge(name).inspect(|metric| scope.set(*metric, *value)),
                Kind::Counter => scope.counter(name),
                Kind::Gauge => scope.gauge(name),
                Kind::Histogram => scope.histogram(name),
            };
            if metric.is_none() {
                log::error!("the metric {name} cannot be defined");
            }
            metric
        };
        let metrics = catalogue.definitions().iter().map(define).collect();
        let ended = ENDED.load(Ordering::Acquire);
        let gauges = catalogue.gauges().map(|(name, metric)| (name.to_owned(), metric)).collect();
        let scope = RwLock::new(Some(scope));
        Self { scope, metrics, gauges, ended_before: ended, ended_seen: AtomicU64::new(ended) }
    }

    /// For the hook that reports the configuration's end. It waits for workers that count at this moment.
    pub fn end(&self) {
        *self.scope.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts what no limiter counts: panics, and the residues of ended limiters.
    pub fn update(&self) {
        if let panics @ 1.. = panics::take_count() {
            (&mut &*self).count(Metric::PANICS, panics);
        }
        let ended = ENDED.load(Ordering::Acquire);
        if self.ended_seen.swap(ended, Ordering::Relaxed) == ended {
            return;
        }
        locked(&RESIDUES).retain(|residue| {
            let gauge = self.gauges.get(&residue.gauge).filter(|_| residue.ended > self.ended_before);
            !gauge.is_some_and(|gauge| (&mut &*self).change(*gauge, residue.value.saturating_neg()))
        });
    }

    /// Calls `act` on this metric. Returns false if the configuration does not have it, and `None` after the configuration has ended.
    fn with(&self, metric: Metric, act: impl FnOnce(&MetricScope, envoy::Metric)) -> Option<bool> {
        let scope = self.scope.read().unwrap_or_else(PoisonError::into_inner);
        let metric = self.metrics.get(metric.place()).copied().flatten();
        scope.as_ref().map(|scope| metric.map(|metric| act(scope, metric)).is_some())
    }
}

/// Counts after the configuration's end are lost: Envoy has removed its metrics.
impl Metrics for &ConfigMetrics {
    fn count(&mut self, metric: Metric, by: u64) -> bool {
        self.with(metric, |scope, metric| scope.count(metric, by)).unwrap_or(true)
    }

    fn change(&mut self, metric: Metric, by: i64) -> bool {
        self.with(metric, |scope, metric| scope.change(metric, by)).unwrap_or(false)
    }

    fn record(&mut self, metric: Metric, value: u64) -> bool {
        self.with(metric, |scope, metric| scope.record(metric, value)).unwrap_or(true)
    }
}
