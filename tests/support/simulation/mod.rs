// SPDX-License-Identifier: Apache-2.0
//! Limits across regions, in virtual time: the engines and the limits of weir, and in place of the network delays. Clients are drawn from a
//! seed, so the same setup gives the same figures on every machine.
//!
//! | file | what is inside |
//! |---|---|
//! | `setup.rs` | a simulation: the way, the regions, the limit, the clients |
//! | `clients.rs` | the times of requests: at given rates, or as flows that go faster until they are denied |
//! | `regions.rs` | the regions of weir, in a [world](crate::world) |
//! | `paper.rs` | two other schemes, for comparison: global random drop and flow proportional share |
//! | `figures.rs` | the figures of a run: excess, utilisation, time to follow, fairness, messages |
//! | `cases.rs` | the setups of the documents and of the test, and their bounds |
//! | `charts.rs`, `report.rs` | plots and tables |
#![allow(
    dead_code,
    missing_docs,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

pub mod cases;
pub mod charts;
pub mod clients;
pub mod figures;
pub mod paper;
pub mod regions;
pub mod report;
pub mod setup;

pub use figures::Figures;
pub use setup::{Clients, Setup, Shape, Way};

/// The requests of one run, with their results.
#[derive(Debug, Default)]
pub struct Run {
    /// The time at which each request was sent, in microseconds, and its flow; in this order.
    pub sent: Vec<(u64, u16)>,
    /// The time at which each request was admitted, and its flow; in this order.
    pub admitted: Vec<(u64, u16)>,
    /// The number of messages from one region to another, each with its answer if it has one.
    pub messages: u64,
}

/// Runs a setup.
pub fn run(setup: &Setup) -> Run {
    match setup.way {
        Way::Home | Way::Debit | Way::Share => regions::run(setup),
        Way::RandomDrop | Way::FlowShare => paper::run(setup),
        Way::One => figures::central(setup),
    }
}
