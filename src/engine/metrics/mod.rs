// SPDX-License-Identifier: Apache-2.0
//! The measurements of a worker, as Envoy's statistics. Counts gather in the worker, and [`Report`](super::Report) exports them on a tick.
//!
//! | file | what is inside |
//! |---|---|
//! | `catalogue.rs` | every metric of a configuration, by its place; hosts define them all before the first request |
//! | `fixed.rs` | the metrics that every configuration has: names, meanings, and the source of their values |
//! | `series.rs` | the metrics of each policy and limit |
//! | `peers.rs` | the metrics of each other region, and of each policy there |
//! | `tally.rs` | the decisions of each policy and limit, by outcome and source |
//! | `samples.rs` | the values for histograms in each tick |
//! | `top.rs` | the subjects that are denied most |
//! | `used.rs` | the usage of subjects, and the writer of the usage journal |
//!
//! No metric is for one subject: clients choose subjects, and Envoy never forgets a metric.

mod catalogue;
mod fixed;
mod peers;
mod samples;
mod series;
mod tally;
mod top;
mod used;

pub use catalogue::{Catalogue, Definition, Kind, Metric, escaped};
pub use fixed::{
    BUILD_INFO, CONFIG_HASH, COUNTER_COUNT, COUNTERS, Counters, Fixed, GAUGE_COUNT, GAUGES, Gauges,
    HISTOGRAMS, PANICS, UNREADABLE,
};
pub use peers::{MAX_POLICY_PEERS, PEERS, POLICY_PEERS, PeerMetric};
pub use series::{LIMIT_OUTCOMES, MAX_LIMIT_SERIES};

pub(super) use peers::{Peer, PeerSeries};
pub(super) use samples::Samples;
pub(super) use series::{Series, UnitKind};
pub(super) use tally::Tally;
pub(super) use top::{Listed, Top};
pub(super) use used::Usage;

/// The statistics of the host.
pub trait Metrics {
    /// Adds to a counter; whether it could.
    fn count(&mut self, metric: Metric, by: u64) -> bool;

    /// Adds to a gauge, or takes from it; whether it could.
    fn change(&mut self, metric: Metric, by: i64) -> bool;

    /// Records a value in a histogram; whether it could.
    fn record(&mut self, metric: Metric, value: u64) -> bool;
}
