//! What the operator sees: counters, and a gauge of the requests on lease, in Envoy's statistics (`wasmcustom.weir.…`) and one log line per kind of
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
    /// Per kind of failure: when it was last logged, and how many have gone unlogged since.
    logged: Vec<(String, Micros, u64)>,
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
            self.log(failure, now);
        }
    }

    fn log(&mut self, failure: &StoreFailure, now: Micros) {
        let text = failure.to_string();
        match self.logged.iter_mut().find(|(kind, ..)| *kind == text) {
            Some((_, at, unlogged)) if now.since(*at) < LOG_INTERVAL => {
                *unlogged = unlogged.saturating_add(1)
            }
            Some((_, at, unlogged)) => {
                log::warn!("store: {text} (and {unlogged} more like it)");
                (*at, *unlogged) = (now, 0);
            }
            None => {
                // The texts come from the store: their number must not grow without bound.
                if self.logged.len() >= 32 {
                    self.logged.clear();
                }
                log::warn!("store: {text}");
                self.logged.push((text, now, 0));
            }
        }
    }
}

fn define(kind: MetricType, name: &str) -> Metric {
    hostcalls::define_metric(kind, name).unwrap_or_else(|status| {
        log::error!("the metric {name} cannot be defined: {status:?}");
        Metric::MAX
    })
}
