//! Statistics and log: counters (of failures too, by kind), and gauges of the requests on lease and of open breakers, in Envoy's
//! statistics (`wasmcustom.weir.…`); at most one log line per second for each kind of failure, and while a breaker is open.

use core::fmt::Display;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use super::attributes::Failure;
use crate::engine::{Engine, Outage};
use crate::time::{Micros, Throttle};

/// The same kind of failure, and an open breaker, is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// The values that were last exported, and what was last logged.
#[derive(Default)]
pub(super) struct Report {
    metrics: Option<([Metric; 5], [Metric; 2])>,
    exported: [u64; 5],
    gauges: [u64; 2],
    outage: Throttle,
    kinds: Vec<Kind>,
}

/// One kind of failure, with its counter.
struct Kind {
    name: &'static str,
    metric: Metric,
    log: Throttle,
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
            self.count("weir.store.", failure.kind(), &format_args!("store: {failure}"), now);
        }
        match engine.outage(now) {
            Some(outage) if self.outage.admit(LOG_INTERVAL, now).is_some() => log_outage(outage),
            Some(_) => {}
            None => self.outage = Throttle::default(),
        }
    }

    /// Counts the attributes that the host could not read for one request.
    pub fn unreadable(&mut self, failures: &[Failure], now: Micros) {
        for failure in failures {
            self.count("weir.", "attribute_unreadable", failure, now);
        }
    }

    /// Counts a failure of this kind, and logs it unless one of its kind was logged within [`LOG_INTERVAL`].
    fn count(&mut self, prefix: &str, name: &'static str, failure: &dyn Display, now: Micros) {
        let index = self.kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
            let metric = define(MetricType::Counter, &format!("{prefix}{name}"));
            self.kinds.push(Kind { name, metric, log: Throttle::default() });
            self.kinds.len().saturating_sub(1)
        });
        let Some(kind) = self.kinds.get_mut(index) else { return };
        if let Err(status) = hostcalls::increment_metric(kind.metric, 1) {
            log::error!("{prefix}{name} cannot be counted: {status:?}");
        }
        match kind.log.admit(LOG_INTERVAL, now) {
            None => {}
            Some(0) => log::warn!("{failure}"),
            Some(more) => log::warn!("{failure} ({more} more of its kind since)"),
        }
    }
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
