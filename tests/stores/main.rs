//! weir on the stores that `docs/stores.md` tells of, in the configurations that are shipped for them, and what
//! `docs/threats.md` promises. Each test has an Envoy, a Redis or several, and an upstream to itself.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod cluster;
mod sentinel;
mod shipped;
#[path = "../support/spec.rs"]
#[allow(dead_code)]
mod spec;
#[path = "../support/store.rs"]
#[allow(dead_code)]
mod store;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod traps;

// Where the files that other tests share look for it.
use support::redis;

fn main() -> std::process::ExitCode {
    let rooms = [cluster::TESTS, sentinel::TESTS, shipped::TESTS, tls::TESTS, traps::TESTS];
    support::run_with_envoy(&rooms.concat())
}
