//! weir on the stores that `docs/stores.md` tells of, in the configurations that are shipped for them, and what
//! `docs/threats.md` promises. Each test has an Envoy, a Redis or several, and an upstream to itself.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod cluster;
#[path = "../support/mod.rs"]
mod support;

fn main() -> std::process::ExitCode {
    let rooms = [cluster::TESTS];
    support::run_with_envoy(&rooms.concat())
}
