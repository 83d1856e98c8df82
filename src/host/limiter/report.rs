//! Counters and gauges in Envoy's statistics (`wasmcustom.weir.…`).

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::engine::{MetricName, Metrics};

/// The metrics that were used so far, and their numbers.
#[derive(Default)]
pub(super) struct HostMetrics(Vec<(MetricName, u32)>);

impl HostMetrics {
    fn increment(&mut self, kind: MetricType, name: MetricName, by: i64) -> bool {
        let metric = self.0.iter().find(|(other, _)| *other == name).map(|(_, metric)| *metric);
        let metric = metric.unwrap_or_else(|| {
            let metric = define(kind, name);
            self.0.push((name, metric));
            metric
        });
        by == 0 || hostcalls::increment_metric(metric, by).is_ok()
    }
}

impl Metrics for HostMetrics {
    fn count(&mut self, name: MetricName, by: u64) -> bool {
        self.increment(MetricType::Counter, name, i64::try_from(by).unwrap_or(i64::MAX))
    }

    fn change(&mut self, name: MetricName, by: i64) -> bool {
        self.increment(MetricType::Gauge, name, by)
    }
}

fn define(kind: MetricType, (prefix, name): MetricName) -> u32 {
    hostcalls::define_metric(kind, &format!("{prefix}{name}")).unwrap_or_else(|status| {
        log::error!("the metric {prefix}{name} cannot be defined: {status:?}");
        u32::MAX
    })
}
