//! What the operator sees: counters (of failures too, by kind), and a gauge of the requests on lease, in Envoy's statistics (`wasmcustom.weir.…`) and one log line per kind of
//! failure and second.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::engine::{Counters, StoreFailure};
use crate::time::Micros;

/// The same kind of failure is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// What was last exported.
#[derive(Default)]
pub(super) struct Report {
    metrics: Option<([Metric; 5], Metric)>,
    exported: [u64; 5],
    on_lease: u64,
    failures: Vec<Kind>,
}

/// One kind of failure.
struct Kind {
    name: &'static str,
    metric: Metric,
    logged: Option<Micros>,
    unlogged: u64,
}

type Metric = u32;

impl Report {
    /// Exports what has changed.
    pub fn update(&mut self, counters: Counters, on_lease: u64, failures: &[StoreFailure], now: Micros) {
        let values =
            [counters.admitted, counters.rejected, counters.fallback, counters.batches, counters.commands];
        let (metrics, leased) = *self.metrics.get_or_insert_with(|| {
            let counters =
                ["weir.admitted", "weir.rejected", "weir.fallback", "weir.batches", "weir.commands"];
            (
                counters.map(|name| define(MetricType::Counter, name)),
                define(MetricType::Gauge, "weir.on_lease"),
            )
        });
        // All workers share the gauge: each adds what has changed here.
        let change = on_lease.wrapping_sub(self.on_lease).cast_signed();
        if change != 0 && hostcalls::increment_metric(leased, change).is_ok() {
            self.on_lease = on_lease;
        }
        for ((metric, value), exported) in metrics.into_iter().zip(values).zip(&mut self.exported) {
            let more = i64::try_from(value.wrapping_sub(*exported)).unwrap_or(i64::MAX);
            if more > 0 && hostcalls::increment_metric(metric, more).is_ok() {
                *exported = value;
            }
        }
        for failure in failures {
            self.count(failure, now);
        }
    }

    fn count(&mut self, failure: &StoreFailure, now: Micros) {
        let name = failure.kind();
        let index = self.failures.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
            let metric = define(MetricType::Counter, &format!("weir.store.{name}"));
            self.failures.push(Kind { name, metric, logged: None, unlogged: 0 });
            self.failures.len().saturating_sub(1)
        });
        let Some(kind) = self.failures.get_mut(index) else { return };
        if let Err(status) = hostcalls::increment_metric(kind.metric, 1) {
            log::error!("weir.store.{name} cannot be counted: {status:?}");
        }
        // A clock that was set back must not silence the log.
        if kind.logged.is_some_and(|at| at <= now && now.since(at) < LOG_INTERVAL) {
            kind.unlogged = kind.unlogged.saturating_add(1);
            return;
        }
        match std::mem::take(&mut kind.unlogged) {
            0 => log::warn!("store: {failure}"),
            more => log::warn!("store: {failure} ({more} more of its kind since)"),
        }
        kind.logged = Some(now);
    }
}

fn define(kind: MetricType, name: &str) -> Metric {
    hostcalls::define_metric(kind, name).unwrap_or_else(|status| {
        log::error!("the metric {name} cannot be defined: {status:?}");
        Metric::MAX
    })
}
