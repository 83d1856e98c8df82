// SPDX-License-Identifier: Apache-2.0
//! The export of what a worker has [measured](super::metrics), and its log: at most one line per second for each kind of failure, and
//! while a breaker is open. If the configuration asks for them, the log also has the subjects that are denied most or use most.
//!
//! An export costs the host a call for each value that has changed. So what changes is exported together, 100 ms after the first
//! change: the host asks [`Report::look`] in each turn, and for each request that is decided at once.

use core::fmt::Display;
use std::borrow::Cow;

use super::metrics::{Catalogue, Counters, Event, Kind, Metric, Metrics, Reading, Row};
use super::tally::Listed;
use super::{Engine, Outage};
use crate::config::Config;
use crate::time::{Micros, Throttle};

/// The same kind of failure, and an open breaker, is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// The maximum delay of counters, gauges and the log.
pub const EXPORT_INTERVAL: Micros = Micros::from_millis(100);

/// The host's next action for its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// It exports them.
    Now,
    /// It makes sure that it has a turn at this time.
    At(Micros),
    /// Nothing: nothing has changed, or the turn is already arranged.
    Nothing,
}

/// The values that were last exported, and the last log lines.
#[derive(Debug)]
pub struct Report {
    /// Each metric, how it is read, and the value that was exported.
    metrics: Vec<(Metric, Reading, u64)>,
    /// The values of the engine at the last export; absent if the host did not take all of it.
    exported: Option<(Counters, u64)>,
    /// The time of the next export; absent while nothing has changed.
    due: Option<Micros>,
    outage: Throttle,
    /// The outage that was logged last, unless its end was logged: the store, the part of its slots, and the beginning.
    unavailable: Option<(u8, Option<u32>, Micros)>,
    /// The metrics of events.
    events: Vec<(Event, Metric, Throttle)>,
}

impl Report {
    /// The report of a new engine of this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let catalogue = Catalogue::of(config);
        let event = |(metric, row): (_, &Row)| Some((row.event()?, metric, Throttle::default()));
        Self {
            events: catalogue.metrics().filter_map(event).collect(),
            metrics: catalogue.metrics().map(|(metric, row)| (metric, row.reading, 0)).collect(),
            exported: Some((Counters::default(), 0)),
            due: None,
            outage: Throttle::default(),
            unavailable: None,
        }
    }

    /// Says if it is time to export what has changed.
    pub fn look(&mut self, engine: &Engine, now: Micros) -> Export {
        match self.due {
            // A retired worker may have no later turn.
            Some(_) if engine.is_retired() => Export::Now,
            // No change waits longer than the interval, also when the host's clock is set back.
            Some(due) if now < due && due <= now.plus(EXPORT_INTERVAL) => Export::Nothing,
            Some(_) => Export::Now,
            None if engine.top_due().is_some_and(|due| due <= now) => Export::Now,
            None if !self.differs(engine) => Export::Nothing,
            None if engine.is_retired() => Export::Now,
            None => {
                let due = now.plus(EXPORT_INTERVAL);
                self.due = Some(due);
                Export::At(due)
            }
        }
    }

    /// The time of the next export; `None` while nothing has changed.
    #[must_use]
    pub const fn due(&self) -> Option<Micros> {
        self.due
    }

    /// A failure, or how long a batch took, comes with the end of a batch or with a decision, which a gauge or a count shows.
    fn differs(&self, engine: &Engine) -> bool {
        self.exported
            .as_ref()
            .is_none_or(|(counters, changes)| *changes != engine.changes() || *counters != engine.counters())
    }

    /// Exports what has changed.
    pub fn export(&mut self, engine: &mut Engine, metrics: &mut impl Metrics, now: Micros) {
        self.due = None;
        let counters = engine.counters();
        let mut all = true;
        for (metric, reading, exported) in &mut self.metrics {
            let value = reading.value(engine, &counters);
            let more = value.wrapping_sub(*exported).cast_signed();
            if more == 0 || metrics.add(*metric, more) {
                *exported = value;
            } else {
                all = false;
            }
        }
        self.exported = all.then(|| (counters, engine.changes()));
        for (event, value) in engine.take_samples() {
            if let Some((_, metric, _)) = self.events.iter().find(|(of, ..)| *of == event) {
                metrics.add(*metric, value.cast_signed());
            }
        }
        for (store, failure) in engine.take_failures() {
            let line = format_args!("{}: {failure}", name(engine, store));
            self.count(Event::Failure(failure.kind()), &line, metrics, now);
        }
        let outage = engine.outage(now);
        if let Some((store, slots, since)) = self.unavailable
            && outage.is_none_or(|(another, _)| another != store)
        {
            log_end(&name(engine, store), slots, now.since(since));
            self.unavailable = None;
        }
        if let Some((store, outage)) = outage {
            let is_logged = self.outage.admit(LOG_INTERVAL, now).is_some();
            if is_logged {
                log_outage(&name(engine, store), outage);
            }
            // An outage that was not logged has no end in the log either.
            if is_logged || self.unavailable.is_some() {
                let since = Micros(now.0.saturating_sub(outage.lasted.0));
                self.unavailable = Some((store, outage.slots, since));
            }
        }
        engine.take_top(now, &log_listed);
    }

    /// Counts the attributes that the host could not read for one request.
    pub fn unreadable(&mut self, failures: &[impl Display], metrics: &mut impl Metrics, now: Micros) {
        for failure in failures {
            self.count(Event::Unreadable, failure, metrics, now);
        }
    }

    /// The values of this worker in the gauges that are not 0.
    pub fn gauges(&self) -> impl Iterator<Item = (Metric, u64)> {
        let gauges = self.metrics.iter().filter(|(of, _, value)| of.kind == Kind::Gauge && *value > 0);
        gauges.map(|(metric, .., value)| (*metric, *value))
    }

    /// Counts a failure of this kind, and logs it unless one of its kind was logged within [`LOG_INTERVAL`].
    fn count(&mut self, event: Event, failure: &dyn Display, metrics: &mut impl Metrics, now: Micros) {
        let known = self.events.iter_mut().find(|(of, ..)| *of == event);
        let Some((_, metric, throttle)) = known else { return };
        if !metrics.add(*metric, 1) {
            log::error!("this failure cannot be counted: {failure}");
        }
        match throttle.admit(LOG_INTERVAL, now) {
            None => {}
            Some(0) => log::warn!("{failure}"),
            Some(more) => log::warn!("{failure} ({more} more of its kind since)"),
        }
    }
}

/// The name of a store in the log.
fn name(engine: &Engine, store: u8) -> Cow<'static, str> {
    match engine.config().regions.all.get(usize::from(store)) {
        Some(region) if !region.name.is_empty() => Cow::Owned(format!("store of region {}", region.name)),
        _ => Cow::Borrowed("store"),
    }
}

fn log_outage(store: &str, Outage { lasted, slots }: Outage) {
    let seconds = lasted.0 / 1_000_000;
    match slots {
        None => log::warn!("{store} unavailable for {seconds} s: limits are decided by `on_failure`"),
        Some(slots) => log::warn!(
            "{store} answers for some subjects only, for {seconds} s: `on_failure` decides the others ({slots} of 64 groups of subjects)"
        ),
    }
}

/// The log level is that of the outage, so that a log with the outage has its end, too.
fn log_end(store: &str, slots: Option<u32>, lasted: Micros) {
    let seconds = lasted.as_secs_ceil();
    match slots {
        None => log::warn!("{store} available again after {seconds} s"),
        Some(_) => {
            log::warn!("{store} answers for all subjects about which requests ask again after {seconds} s")
        }
    }
}

/// Logs one of the subjects that were denied most, or used most. It is written as in keys: no byte of it can end the line.
fn log_listed(what: &str, Listed { tag, count, error }: &Listed, lasted: Micros) {
    let (subject, seconds) = (tag.escape_ascii(), lasted.as_secs_ceil());
    log::info!("top {what}: {count} in {seconds} s, {error} of them perhaps of others: {subject}");
}
