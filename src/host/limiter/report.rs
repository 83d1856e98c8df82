// SPDX-License-Identifier: Apache-2.0
//! Metrics in Envoy's statistics (`wasmcustom.weir.…`).

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::engine::{Catalogue, Definition, Kind, Metric, Metrics};

/// The host's numbers of all metrics, in the order of the catalogue.
pub(super) struct HostMetrics(Vec<Option<u32>>);

impl HostMetrics {
    /// Defines them all. The workers share them: a metric that another worker has defined is the same one.
    pub fn define(catalogue: &Catalogue) -> Self {
        Self(catalogue.definitions().iter().map(define).collect())
    }

    fn of(&self, metric: Metric) -> Option<u32> {
        self.0.get(metric.place()).copied().flatten()
    }

    fn increment(&self, metric: Metric, by: i64) -> bool {
        self.of(metric).is_some_and(|metric| hostcalls::increment_metric(metric, by).is_ok())
    }
}

impl Metrics for HostMetrics {
    fn count(&mut self, metric: Metric, by: u64) -> bool {
        self.increment(metric, i64::try_from(by).unwrap_or(i64::MAX))
    }

    fn change(&mut self, metric: Metric, by: i64) -> bool {
        self.increment(metric, by)
    }

    fn record(&mut self, metric: Metric, value: u64) -> bool {
        self.of(metric).is_some_and(|metric| hostcalls::record_metric(metric, value).is_ok())
    }
}

fn define(Definition { kind, name, value }: &Definition) -> Option<u32> {
    let of = match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge | Kind::Info => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let defined = hostcalls::define_metric(of, name).and_then(|id| {
        if *kind == Kind::Info { hostcalls::record_metric(id, *value) } else { Ok(()) }.map(|()| id)
    });
    defined.inspect_err(|status| log::error!("the metric {name} cannot be defined: {status:?}")).ok()
}
