// SPDX-License-Identifier: Apache-2.0
//! weir end to end: the filter that is shipped, in the configuration that is shipped, in a real Envoy, on a real Redis,
//! in front of a real upstream. Each test has all three to itself.
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

mod admission;
mod algorithms;
mod answers;
mod auto_leases;
mod bans;
mod calls;
mod chain;
mod configuration;
mod enquiries;
mod events;
mod exactness;
mod examples;
mod far;
use weir_support::frames;
mod hostile;
mod journal;
use weir_support::leases;
mod libraries;
mod metrics;
mod moves;
mod priority;
mod queues;
mod regions;
mod request_bodies;
mod scales;
mod settlements;
mod store;
use weir_support as support;
use weir_support::store as subject;
mod topology;
mod trailers;
mod usage;
mod versions;

use weir_support::weir::Host;

fn main() -> std::process::ExitCode {
    let files = [
        admission::TESTS,
        auto_leases::TESTS,
        algorithms::TESTS,
        answers::TESTS,
        bans::TESTS,
        priority::TESTS,
        scales::TESTS,
        calls::TESTS,
        chain::TESTS,
        configuration::TESTS,
        enquiries::TESTS,
        events::TESTS,
        examples::TESTS,
        exactness::TESTS,
        far::TESTS,
        hostile::TESTS,
        journal::TESTS,
        libraries::TESTS,
        metrics::TESTS,
        moves::TESTS,
        queues::TESTS,
        regions::TESTS,
        request_bodies::TESTS,
        settlements::TESTS,
        store::TESTS,
        topology::TESTS,
        trailers::TESTS,
        usage::TESTS,
        versions::TESTS,
    ];
    support::run_on_hosts(&files, |host| {
        let only_wasm = if host == Host::Native { &ONLY_WASM[..] } else { &[] };
        [only_wasm, &libraries::ignored(), &versions::ignored()].concat()
    })
}

/// The cases that the dynamic module does not support or need, with the reason.
const ONLY_WASM: [(&str, &str); 5] = [
    (versions::IN_ONE_ENVOY, "it has no bridge"),
    ("calls: what is documented is what Envoy traces", "it has no VM"),
    (
        "subjects are limited apart: by a claim of a verified token",
        "the ABI reads no values inside of others; the configuration is refused",
    ),
    ("what is no message for the bridge reaches redis by no route, and ends", "there is no bridge"),
    (
        "after an update of the plugin, the metric names the new one",
        "Envoy keeps a module that it has loaded",
    ),
];
