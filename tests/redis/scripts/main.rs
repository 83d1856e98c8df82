// SPDX-License-Identifier: Apache-2.0
//! The scripts on a real Redis, which all cases share, beside the pure limits.
//!
//! | file | what it shows |
//! |---|---|
//! | `tables.rs` | the rows of `tests/support/spec.rs`, against the pure limits and against the Lua |
//! | `states.rs` | an earlier version and this one, on the same keys, in turn |
//! | `rollout.rs` | both under load, at the same time |
//! | `usage.rs` | the script of the usage journal |
//! | `losses.rs` | what a Redis forgets: restarts, `FLUSHALL`, eviction |
//! | `on_redis.rs` | what only a real Redis can show: expiry, scripts it does not know, keys that hold something else |
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::type_complexity
)]

use weir_support::redis;
use weir_support::spec;
use weir_support::store;

mod losses;
mod on_redis;
mod rollout;
mod states;
mod tables;
mod usage;

use std::sync::Arc;

use libtest_mimic::Arguments;
use redis::Shared;

fn main() {
    let arguments = Arguments::from_args();
    let server = redis::binary().map(|_| Arc::new(Shared::default()));
    let mut trials = tables::trials(server.as_ref());
    match &server {
        Some(server) => {
            trials.extend(on_redis::trials(server));
            trials.extend(states::trials(server));
            trials.extend(rollout::trials(server));
            trials.extend(usage::trials(server));
            trials.extend(losses::trials());
        }
        None => eprintln!("skipped: no redis-server"),
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(server);
    conclusion.exit();
}
