// SPDX-License-Identifier: Apache-2.0
//! Metrics in Envoy's statistics (`wasmcustom.weir.…`).

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::engine::{Catalogue, Kind, Metric, Metrics, Row};

/// The host's numbers of all metrics, in the order of the catalogue.
pub(super) struct HostMetrics(Vec<Option<u32>>);

impl HostMetrics {
    /// Defines them all. The workers share them: a metric that another worker has defined is the same one.
    pub fn define(catalogue: &Catalogue) -> Self {
        Self(catalogue.rows().iter().map(define).collect())
    }
}

impl Metrics for HostMetrics {
    fn add(&mut self, metric: Metric, value: i64) -> bool {
        let Some(id) = self.0.get(metric.place).copied().flatten() else { return false };
        let added = match metric.kind {
            Kind::Counter | Kind::Gauge => hostcalls::increment_metric(id, value),
            Kind::Histogram => hostcalls::record_metric(id, value.cast_unsigned()),
        };
        added.is_ok()
    }
}

fn define(row: &Row) -> Option<u32> {
    let kind = match row.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let defined = hostcalls::define_metric(kind, &row.name).and_then(|id| {
        row.constant().map_or(Ok(()), |value| hostcalls::record_metric(id, value)).map(|()| id)
    });
    defined.inspect_err(|status| log::error!("the metric {} cannot be defined: {status:?}", row.name)).ok()
}
