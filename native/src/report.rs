// SPDX-License-Identifier: Apache-2.0
//! Metrics in Envoy's statistics.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};

use weir_core::engine::{Catalogue, Definition, GAUGE_COUNT, Kind, Metric, Metrics, Report};

use crate::envoy::{self, MetricScope};
use crate::panics;

/// What limiters that have ended left in the gauges. Their own configuration is gone, so another's takes it back.
static LEFT: [AtomicI64; GAUGE_COUNT] = [const { AtomicI64::new(0) }; GAUGE_COUNT];

/// A limiter ends that has exported this.
pub fn leave(report: &Report) {
    for (left, exported) in LEFT.iter().zip(report.gauges()) {
        left.fetch_add(exported.cast_signed(), Ordering::Relaxed);
    }
}

/// The metrics of one configuration. Envoy lets a module define them only while it reads the configuration.
pub struct ConfigMetrics {
    /// Absent from the configuration's end on.
    scope: RwLock<Option<MetricScope>>,
    /// In the order of the catalogue.
    metrics: Vec<Option<envoy::Metric>>,
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
        Self { scope: RwLock::new(Some(scope)), metrics }
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
        for (place, left) in LEFT.iter().enumerate() {
            let left = left.swap(0, Ordering::Relaxed);
            if left != 0 {
                (&mut &*self).change(Metric::gauge(place), left.saturating_neg());
            }
        }
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
