// SPDX-License-Identifier: Apache-2.0
//! Laws: random histories against the pure limits, and against the Lua on a real Redis.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "../../support/redis.rs"]
#[allow(dead_code)]
mod redis;
#[path = "../../support/store.rs"]
#[allow(dead_code)]
mod store;
#[path = "../../support/tried.rs"]
mod tried;

mod histories;
mod nginx;
