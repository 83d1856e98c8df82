//! What the host exports of a worker: counters (of failures too, by kind), and gauges of the requests on lease and of open breakers. And
//! the log: at most one line per second for each kind of failure, and while a breaker is open.
//!
//! An export costs the host a call for each value that has changed. So what changes is exported together, 100 ms after the first
//! change: the host asks [`Report::look`] in each turn, and for each request that is decided at once.

use core::fmt::Display;

use super::{Engine, Outage};
use crate::time::{Micros, Throttle};

/// The same kind of failure, and an open breaker, is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// How late counters, gauges and the log may be.
const EXPORT_INTERVAL: Micros = Micros::from_millis(100);

/// The name of a counter or gauge, in two parts. Hosts put nothing between them.
pub type MetricName = (&'static str, &'static str);

/// The counters that every worker has. Those of failures are `weir.store.KIND`.
pub const COUNTERS: [MetricName; 10] = [
    ("weir.", "admitted"),
    ("weir.", "rejected"),
    ("weir.", "banned"),
    ("weir.", "fallback"),
    ("weir.", "batches"),
    ("weir.", "commands"),
    ("weir.", "units_charged"),
    ("weir.", "units_refunded"),
    ("weir.", "bodies_unreadable"),
    ("weir.", "settlements_lost"),
];
/// The gauges that every worker has. All workers share them, so each adds what has changed.
pub const GAUGES: [MetricName; 2] = [("weir.", "on_lease"), ("weir.", "breaker_open")];
/// The counter of attributes that the host could not read.
pub const UNREADABLE: MetricName = ("weir.", "attribute_unreadable");

/// The counter of store failures of this kind.
#[must_use]
pub const fn store_counter(kind: &'static str) -> MetricName {
    ("weir.store.", kind)
}

/// The statistics of the host.
pub trait Metrics {
    /// Adds to a counter; whether it could. To add nothing makes the counter known.
    fn count(&mut self, name: MetricName, by: u64) -> bool;

    /// Adds to a gauge, or takes from it; whether it could.
    fn change(&mut self, name: MetricName, by: i64) -> bool;
}

/// What the host does about its statistics now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// It exports them.
    Now,
    /// It makes sure that it has a turn at this time.
    At(Micros),
    /// Nothing: nothing has changed, or the turn is already arranged.
    Nothing,
}

/// What was last exported, and what was last logged.
#[derive(Debug, Default)]
pub struct Report {
    /// Absent before the first export.
    exported: Option<[u64; COUNTERS.len()]>,
    gauges: [u64; 2],
    /// When the next export is due; absent while nothing has changed.
    due: Option<Micros>,
    outage: Throttle,
    kinds: Vec<(MetricName, Throttle)>,
}

impl Report {
    /// Whether it is time to export what has changed.
    pub fn look(&mut self, engine: &Engine, now: Micros) -> Export {
        match self.due {
            // A retired worker may have no later turn.
            Some(_) if engine.is_retired() => Export::Now,
            // No change waits longer than the interval, also when the host's clock is set back.
            Some(due) if now < due && due <= now.plus(EXPORT_INTERVAL) => Export::Nothing,
            Some(_) => Export::Now,
            None if !self.differs(engine) => Export::Nothing,
            None if engine.is_retired() => Export::Now,
            None => {
                let due = now.plus(EXPORT_INTERVAL);
                self.due = Some(due);
                Export::At(due)
            }
        }
    }

    /// When the next export is due; `None` while nothing has changed.
    #[must_use]
    pub const fn due(&self) -> Option<Micros> {
        self.due
    }

    fn differs(&self, engine: &Engine) -> bool {
        self.exported != Some(counters(engine)) || self.gauges != gauges(engine) || engine.has_failures()
    }

    /// Exports what has changed.
    pub fn export(&mut self, engine: &mut Engine, metrics: &mut impl Metrics, now: Micros) {
        self.due = None;
        let failures = engine.take_failures();
        let is_first = self.exported.is_none();
        let exported = self.exported.get_or_insert_default();
        for ((name, value), exported) in COUNTERS.into_iter().zip(counters(engine)).zip(exported) {
            let more = value.wrapping_sub(*exported);
            if (more > 0 || is_first) && metrics.count(name, more) {
                *exported = value;
            }
        }
        for ((name, value), exported) in GAUGES.into_iter().zip(gauges(engine)).zip(&mut self.gauges) {
            let change = value.wrapping_sub(*exported).cast_signed();
            if (change != 0 || is_first) && metrics.change(name, change) {
                *exported = value;
            }
        }
        for failure in &failures {
            self.count(store_counter(failure.kind()), &format_args!("store: {failure}"), metrics, now);
        }
        match engine.outage(now) {
            Some(outage) if self.outage.admit(LOG_INTERVAL, now).is_some() => log_outage(outage),
            Some(_) => {}
            None => self.outage = Throttle::default(),
        }
    }

    /// Counts the attributes that the host could not read for one request.
    pub fn unreadable(&mut self, failures: &[impl Display], metrics: &mut impl Metrics, now: Micros) {
        for failure in failures {
            self.count(UNREADABLE, failure, metrics, now);
        }
    }

    /// What the gauges contain of this worker.
    #[must_use]
    pub const fn gauges(&self) -> [u64; 2] {
        self.gauges
    }

    /// Counts a failure of this kind, and logs it unless one of its kind was logged within [`LOG_INTERVAL`].
    fn count(&mut self, name: MetricName, failure: &dyn Display, metrics: &mut impl Metrics, now: Micros) {
        if !metrics.count(name, 1) {
            log::error!("{}{} cannot be counted", name.0, name.1);
        }
        let index = self.kinds.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
            self.kinds.push((name, Throttle::default()));
            self.kinds.len().saturating_sub(1)
        });
        let Some((_, throttle)) = self.kinds.get_mut(index) else { return };
        match throttle.admit(LOG_INTERVAL, now) {
            None => {}
            Some(0) => log::warn!("{failure}"),
            Some(more) => log::warn!("{failure} ({more} more of its kind since)"),
        }
    }
}

/// In the order of [`COUNTERS`].
const fn counters(engine: &Engine) -> [u64; COUNTERS.len()] {
    let all = engine.counters();
    [
        all.admitted,
        all.rejected,
        all.banned,
        all.fallback,
        all.batches,
        all.commands,
        all.units_charged,
        all.units_refunded,
        all.bodies_unreadable,
        all.settlements_lost,
    ]
}

/// In the order of [`GAUGES`].
fn gauges(engine: &Engine) -> [u64; 2] {
    [engine.on_lease(), engine.open_breakers()]
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
