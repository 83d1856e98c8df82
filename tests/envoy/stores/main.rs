// SPDX-License-Identifier: Apache-2.0
//! weir on the stores that `docs/stores.md` tells of, in the configurations that are shipped for them, and what
//! `docs/threats.md` promises, on the host that `WEIR_HOST` names. Each test has an Envoy, a Redis or several, and an upstream to itself.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod cluster;
mod failures;
mod grows;
mod secrets;
mod sentinel;
mod shipped;
use weir_support as support;
use weir_support::spec;
use weir_support::store;
mod threats;
mod tls;
mod traps;
mod wakeups;

use weir_support::weir::Host;

fn main() -> std::process::ExitCode {
    let files: [&[support::Case]; _] = [
        cluster::TESTS,
        failures::TESTS,
        grows::TESTS,
        secrets::TESTS,
        sentinel::TESTS,
        shipped::TESTS,
        threats::TESTS,
        tls::TESTS,
        traps::TESTS,
        wakeups::TESTS,
    ];
    support::run_on_hosts(&files, |host| match host {
        Host::Wasm => ONLY_NATIVE.to_vec(),
        Host::Native => ONLY_WASM.to_vec(),
    })
}

/// The cases that the plugin does not support, with the reason.
const ONLY_NATIVE: [(&str, &str); 1] = [(
    grows::WITHOUT_DESCRIPTORS,
    "Envoy opens the plugin's connections, and the plugin cannot count descriptors",
)];

/// The cases that the dynamic module does not have, with the reason.
#[rustfmt::skip]
const ONLY_WASM: [(&str, &str); 7] = [
    (failures::CLOSES_WITH_ITS_REPLY, "its batches overlap, and on_failure decides those in flight when a connection ends: native/src/tests has this case"),
    ("trap: a limiter that traps denies for a moment, and admits no request", "there is no VM that could trap"),
    ("trap: a bridge that traps at a message is a store that fails: on_failure decides", "there is no bridge"),
    ("trap: a bridge that traps at replies is a store that fails: on_failure decides", "there is no bridge"),
    ("wake-up: when none arrives, no request waits past the deadline", "its clock is a thread; the plugin is sabotaged"),
    ("wake-up: when no queue can be registered, no request waits past the deadline", "it has no queue; the plugin is sabotaged"),
    ("wake-up: a body that comes after its request was late is not counted", "its clock is a thread; the plugin is sabotaged"),
];

/// Waits until every worker asks the store again, which shows in the headers of what it decides: one worker's breaker may
/// close a moment after another's. Each probe is a request about a subject of its own.
fn every_worker_asks_again(envoy: &support::envoy::Envoy, mut probe: impl FnMut() -> support::http::Request) {
    support::eventually("every worker to ask the store again", || {
        let probes: Vec<_> = (0..30).map(|_| probe()).collect();
        let told = support::http::burst(envoy.address("edge"), probes).expect("responses");
        told.iter().all(|response| response.headers.get("ratelimit").is_some()).then_some(())
    });
}

/// The status of a request that the store decides: a worker that has found it wanting asks again within a second.
fn decided(envoy: &support::envoy::Envoy, request: &support::http::Request) -> u16 {
    support::eventually("the store to be asked", || {
        let told = support::http::send(envoy.address("edge"), request).expect("a response").status;
        (told != 503).then_some(told)
    })
}
