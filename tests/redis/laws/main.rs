// SPDX-License-Identifier: Apache-2.0
//! Laws: random histories against the pure limits, and against the Lua on a real Redis.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::type_complexity
)]

use weir_support::redis;
use weir_support::store;
use weir_support::tried;

mod histories;
mod nginx;
