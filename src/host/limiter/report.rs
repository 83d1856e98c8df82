//! What the operator sees: counters (of failures too, by kind), and gauges of the requests on lease and of the breakers that
//! are open, in Envoy's statistics (`wasmcustom.weir.…`); one log line per kind of failure and second, and one per second
//! while a breaker is open.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::engine::{Engine, Outage, StoreFailure};
use crate::time::Micros;

/// The same kind of failure, and an open breaker, is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// What was last exported.
#[derive(Default)]
pub(super) struct Report {
    metrics: Option<([Metric; 5], [Metric; 2])>,
    exported: [u64; 5],
    gauges: [u64; 2],
    outage_logged: Option<Micros>,
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
    pub fn update(&mut self, engine: &mut Engine, now: Micros) {
        let (counters, failures) = (engine.counters(), engine.take_failures());
        let values =
            [counters.admitted, counters.rejected, counters.fallback, counters.batches, counters.commands];
        let (metrics, gauges) = *self.metrics.get_or_insert_with(|| {
            let counters =
                ["weir.admitted", "weir.rejected", "weir.fallback", "weir.batches", "weir.commands"];
            let gauges = ["weir.on_lease", "weir.breaker_open"];
            (
                counters.map(|name| define(MetricType::Counter, name)),
                gauges.map(|name| define(MetricType::Gauge, name)),
            )
        });
        // All workers share the gauges: each adds what has changed here.
        let now_are = [engine.on_lease(), engine.open_breakers()];
        for ((gauge, value), exported) in gauges.into_iter().zip(now_are).zip(&mut self.gauges) {
            let change = value.wrapping_sub(*exported).cast_signed();
            if change != 0 && hostcalls::increment_metric(gauge, change).is_ok() {
                *exported = value;
            }
        }
        for ((metric, value), exported) in metrics.into_iter().zip(values).zip(&mut self.exported) {
            let more = i64::try_from(value.wrapping_sub(*exported)).unwrap_or(i64::MAX);
            if more > 0 && hostcalls::increment_metric(metric, more).is_ok() {
                *exported = value;
            }
        }
        for failure in &failures {
            self.count(failure, now);
        }
        match engine.outage(now) {
            Some(outage) if is_due(self.outage_logged, now) => {
                self.outage_logged = Some(now);
                log_outage(outage);
            }
            Some(_) => {}
            None => self.outage_logged = None,
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
        if !is_due(kind.logged, now) {
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

/// Whether something that was last logged then may be logged again. A clock that was set back must not silence the log.
fn is_due(logged: Option<Micros>, now: Micros) -> bool {
    logged.is_none_or(|at| at > now || now.since(at) >= LOG_INTERVAL)
}

fn log_outage(Outage { lasted, slots }: Outage) {
    let seconds = lasted.0 / 1_000_000;
    match slots {
        None => log::warn!("store unavailable for {seconds} s: limits are decided by `on_failure`"),
        Some(slots) => log::warn!(
            "{slots} of 64 parts of the store's slots unavailable for {seconds} s: limits of subjects in them are decided by `on_failure`"
        ),
    }
}

fn define(kind: MetricType, name: &str) -> Metric {
    hostcalls::define_metric(kind, name).unwrap_or_else(|status| {
        log::error!("the metric {name} cannot be defined: {status:?}");
        Metric::MAX
    })
}
