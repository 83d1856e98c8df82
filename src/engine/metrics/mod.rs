// SPDX-License-Identifier: Apache-2.0
//! The measurements of a worker, as Envoy's statistics. Counts gather in the worker, and [`Report`](super::Report) exports them on a tick.
//!
//! | file | what is inside |
//! |---|---|
//! | `catalogue.rs` | the table of a configuration's metrics: kind, name with its labels, and how each is read |
//! | `fixed.rs` | its rows that every configuration has |
//! | `peers.rs` | its rows of each other region, and of each policy there |
//!
//! No metric is for one subject: clients choose subjects, and Envoy never forgets a metric.

/// A [`Row`], with its meaning if the build has a use for it.
macro_rules! row {
    ($kind:expr, $name:expr, $reading:expr, $meaning:expr) => {
        $crate::engine::metrics::Row {
            kind: $kind,
            name: $name,
            #[cfg(not(target_arch = "wasm32"))]
            meaning: $meaning,
            reading: $reading,
        }
    };
}

mod catalogue;
mod fixed;
mod peers;

pub use catalogue::{Catalogue, Event, Kind, Metric, Row};
pub use fixed::Counters;
pub use peers::MAX_POLICY_PEERS;

pub(super) use catalogue::Reading;

/// The statistics of the host.
pub trait Metrics {
    /// Adds this to a counter or a gauge, or records it in a histogram. Returns false if the host did not take it.
    fn add(&mut self, metric: Metric, value: i64) -> bool;
}
