// SPDX-License-Identifier: Apache-2.0
//! Metrics in Envoy's statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use weir_core::config::Config;
use weir_core::engine::{Catalogue, Definition, Kind, Metric, Metrics, Report};

use crate::envoy::{self, MetricScope};
use crate::panics;

/// What limiters that have ended left in the gauges. Their own configuration is gone, so another's takes it back.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// How many limiters have left something.
static LEAVES: AtomicU64 = AtomicU64::new(0);

/// At most so much is kept that no configuration has taken back; the oldest is forgotten.
const MAX_LEFT: usize = 16_384;

struct Left {
    gauge: String,
    value: i64,
    /// How many limiters had left something then, with this one.
    leaves: u64,
}

/// A limiter of this configuration ends that has exported this.
pub fn leave(report: &Report, config: &Config) {
    let mut gauges = report.gauges().peekable();
    if gauges.peek().is_none() {
        return;
    }
    let catalogue = Catalogue::of(config);
    let mut all = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let leaves = LEAVES.fetch_add(1, Ordering::AcqRel).saturating_add(1);
    all.extend(gauges.filter_map(|(metric, value)| {
        let gauge = catalogue.definitions().get(metric.place())?.name.clone();
        Some(Left { gauge, value: value.cast_signed(), leaves })
    }));
    let excess = all.len().saturating_sub(MAX_LEFT);
    all.drain(..excess);
}

/// The metrics of one configuration. Envoy lets a module define them only while it reads the configuration.
pub struct ConfigMetrics {
    /// Absent from the configuration's end on.
    scope: RwLock<Option<MetricScope>>,
    /// In the order of the catalogue.
    metrics: Vec<Option<envoy::Metric>>,
    /// The gauges, by their names.
    gauges: BTreeMap<String, Metric>,
    /// How many limiters had left something when this was defined. What they left was in gauges of that time.
    since: u64,
    /// How many had at the last look.
    looked: AtomicU64,
}

impl ConfigMetrics {
    /// In the hook that reads the configuration.
    pub fn define(scope: MetricScope, catalogue: &Catalogue) -> Self {
        let define = |Definition { kind, name }: &Definition| {
            let metric = match kind {
                Kind::Info => scope.gauge(name).inspect(|metric| scope.set(*metric, 1)),
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
        let since = LEAVES.load(Ordering::Acquire);
        let gauges = catalogue.gauges().map(|(name, metric)| (name.to_owned(), metric)).collect();
        Self { scope: RwLock::new(Some(scope)), metrics, gauges, since, looked: AtomicU64::new(since) }
    }

    /// In the hook that tells of the configuration's end. It waits for workers that count right now.
    pub fn end(&self) {
        *self.scope.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts what no limiter knows of: panics, and what limiters that have ended left in the gauges.
    pub fn update(&self) {
        if let panics @ 1.. = panics::take() {
            (&mut &*self).count(Metric::PANICS, panics);
        }
        let leaves = LEAVES.load(Ordering::Acquire);
        if self.looked.swap(leaves, Ordering::Relaxed) == leaves {
            return;
        }
        let mut all = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|left| {
            let gauge = self.gauges.get(&left.gauge).filter(|_| left.leaves > self.since);
            !gauge.is_some_and(|gauge| (&mut &*self).change(*gauge, left.value.saturating_neg()))
        });
    }

    /// Whether the configuration has this metric; `None` when the configuration is gone.
    fn with(&self, metric: Metric, act: impl FnOnce(&MetricScope, envoy::Metric)) -> Option<bool> {
        let scope = self.scope.read().unwrap_or_else(PoisonError::into_inner);
        let metric = self.metrics.get(metric.place()).copied().flatten();
        scope.as_ref().map(|scope| metric.map(|metric| act(scope, metric)).is_some())
    }
}

/// What is counted after the configuration's end is lost: Envoy has nowhere left to count it.
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
