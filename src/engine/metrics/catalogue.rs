// SPDX-License-Identifier: Apache-2.0
//! Every metric of a configuration, a row for each. A host defines them all when it has read the configuration: Envoy lets a dynamic module
//! define none later, and a counter that begins to exist with its first count shows no rate for it.

use std::borrow::Cow;

use super::fixed::{Counters, FIXED};
use super::peers;
use crate::config::Config;
use crate::engine::request::Peer;
use crate::engine::tally::{Value, lay_out};
use crate::engine::{Engine, StoreFailure};
use crate::version;

/// Names a metric of a [`Catalogue`].
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The kind.
    pub kind: Kind,
    /// The place of the row.
    pub place: usize,
}

/// The kind of a metric: what Envoy does with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Adds them up.
    Counter,
    /// Keeps the newest. All workers share a gauge, so each adds what has changed.
    Gauge,
    /// Counts how many were how large.
    Histogram,
}

/// The way in which a metric gets its value.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Reading {
    /// The engine has it.
    Fixed(fn(&Counters) -> u64),
    /// The tally counts it at this place.
    Tally(usize),
    /// It is of the region of this store.
    Peer(fn(&Peer) -> u64, u8),
    /// It is what this policy has outstanding in the region of this store.
    Outstanding(usize, u8),
    /// It is counted or recorded when this happens.
    Event(Event),
    /// It is always this. The host sets it when it has defined the metric.
    Constant(u64),
}

impl Reading {
    /// The value that this worker has for it now, if it is not counted when something happens.
    pub fn value(self, engine: &Engine, counters: &Counters) -> u64 {
        match self {
            Self::Fixed(read) => read(counters),
            Self::Tally(place) => engine.requests.tally.counts.get(place).copied().unwrap_or(0),
            Self::Peer(read, store) => read(&engine.requests.peer(store, engine.clock.latest())),
            Self::Outstanding(policy, store) => engine.requests.outstanding(policy, store),
            Self::Event(_) | Self::Constant(_) => 0,
        }
    }
}

/// Something that a metric counts or records when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The host could not read an attribute.
    Unreadable,
    /// A hook of the dynamic module panicked.
    Panic,
    /// The store failed in this way.
    Failure(&'static str),
    /// A batch was answered after this time.
    Latency,
    /// A batch was answered that had so many tasks.
    Tasks,
}

/// One metric.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its kind.
    pub kind: Kind,
    /// Its name, to which Envoy adds its own prefix. `stats_tags` make labels of the parts that the configuration names.
    pub name: Cow<'static, str>,
    /// Its meaning, if a table of the documents has it from here. The plugin has no use for it.
    #[cfg(not(target_arch = "wasm32"))]
    pub meaning: &'static str,
    /// The source of its value.
    pub(in crate::engine) reading: Reading,
}

impl Row {
    /// The value of a gauge that never changes.
    #[must_use]
    pub const fn constant(&self) -> Option<u64> {
        if let Reading::Constant(value) = self.reading { Some(value) } else { None }
    }

    /// The event that this metric counts or records.
    #[must_use]
    pub const fn event(&self) -> Option<Event> {
        if let Reading::Event(event) = self.reading { Some(event) } else { None }
    }
}

/// Every metric of a configuration.
#[derive(Clone, Debug)]
pub struct Catalogue(Vec<Row>);

impl Catalogue {
    /// The catalogue of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let mut rows = FIXED.to_vec();
        rows.extend(StoreFailure::kinds().map(|kind| {
            let name = Cow::Owned(["weir.store.", kind].concat());
            row!(Kind::Counter, name, Reading::Event(Event::Failure(kind)), "")
        }));
        lay_out(config, &mut |name, value| {
            let (kind, reading) = match value {
                Value::Count(place) => (Kind::Counter, Reading::Tally(place)),
                Value::Constant(value) => (Kind::Gauge, Reading::Constant(value)),
            };
            rows.push(row!(kind, Cow::Owned(name.concat()), reading, ""));
        });
        rows.extend(peers::rows(config));
        rows.push(row!(
            Kind::Gauge,
            Cow::Borrowed("weir.config_hash"),
            Reading::Constant(config.hash.into()),
            "A number that names the configuration in force: equal for configurations that say the same. The line of the log that says how many \
             policies are loaded has it, and `weir check --format json`."
        ));
        rows.push(row!(
            Kind::Gauge,
            Cow::Borrowed(version::METRIC),
            Reading::Constant(1),
            "Always 1. Its name says which version is loaded, and from which commit it was built."
        ));
        Self(rows)
    }

    /// The metrics, each with its row.
    pub fn metrics(&self) -> impl Iterator<Item = (Metric, &Row)> {
        self.0.iter().enumerate().map(|(place, row)| (Metric { kind: row.kind, place }, row))
    }

    /// The rows, by the places of the metrics.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.0
    }
}
