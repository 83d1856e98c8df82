// SPDX-License-Identifier: Apache-2.0
//! The files of the project agree with the code: layers, exports, documents, dashboards, the arithmetic of the benchmarks.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use weir_support::bars;
mod concepts;
mod exports;
mod figures;
mod layers;
mod measured;
mod metrics;
#[allow(dead_code)]
#[path = "../../benches/edge/stats.rs"]
mod of_bench;
use weir_support::plot;
mod shipped;
mod tables;
