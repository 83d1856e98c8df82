//! Counters and gauges in Envoy's statistics.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};

use weir_core::engine::{
    COUNTERS, GAUGES, MetricName, Metrics, Report, StoreFailure, UNREADABLE, store_counter,
};

use crate::envoy::{Metric, MetricScope};
use crate::panics;

/// The counter of panics, which only this host has.
const PANICS: MetricName = ("weir.", "panics");

/// What limiters that have ended left in the gauges. Their own configuration is gone, so another's takes it back.
static LEFT: [AtomicI64; GAUGES.len()] = [const { AtomicI64::new(0) }; GAUGES.len()];

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
    metrics: Vec<(MetricName, Metric)>,
}

impl ConfigMetrics {
    /// In the hook that reads the configuration.
    pub fn define(scope: MetricScope) -> Self {
        let counters = COUNTERS.into_iter().chain([UNREADABLE, PANICS]);
        let counters = counters.chain(StoreFailure::kinds().map(store_counter));
        let counters = counters.map(|name| (name, scope.counter(&full(name))));
        let gauges = GAUGES.into_iter().map(|name| (name, scope.gauge(&full(name))));
        let defined = |(name, metric): (MetricName, Option<Metric>)| {
            if metric.is_none() {
                log::error!("the metric {} cannot be defined", full(name));
            }
            metric.map(|metric| (name, metric))
        };
        let metrics = counters.chain(gauges).filter_map(defined).collect();
        Self { scope: RwLock::new(Some(scope)), metrics }
    }

    /// In the hook that tells of the configuration's end. It waits for workers that count right now.
    pub fn end(&self) {
        *self.scope.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts what no limiter knows of: panics, and what limiters that have ended left in the gauges.
    pub fn update(&self) {
        if let panics @ 1.. = panics::take() {
            (&mut &*self).count(PANICS, panics);
        }
        for (name, left) in GAUGES.into_iter().zip(&LEFT) {
            let left = left.swap(0, Ordering::Relaxed);
            if left != 0 {
                (&mut &*self).change(name, left.saturating_neg());
            }
        }
    }

    /// Whether the configuration has this metric; `None` when the configuration is gone.
    fn with(&self, name: MetricName, act: impl FnOnce(&MetricScope, Metric)) -> Option<bool> {
        let scope = self.scope.read().unwrap_or_else(PoisonError::into_inner);
        let metric = self.metrics.iter().find(|(other, _)| *other == name).map(|(_, metric)| *metric);
        scope.as_ref().map(|scope| metric.map(|metric| act(scope, metric)).is_some())
    }
}

impl Metrics for &ConfigMetrics {
    /// What is counted after the configuration's end is lost: Envoy has nowhere left to count it.
    fn count(&mut self, name: MetricName, by: u64) -> bool {
        self.with(name, |scope, metric| scope.count(metric, by)).unwrap_or(true)
    }

    fn change(&mut self, name: MetricName, by: i64) -> bool {
        self.with(name, |scope, metric| scope.change(metric, by)).unwrap_or(false)
    }
}

fn full((prefix, name): MetricName) -> String {
    format!("{prefix}{name}")
}
