// SPDX-License-Identifier: Apache-2.0
//! An operator's tools beside a real Envoy: the command's `top`, `render` and `import`, and what Prometheus reads.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
// Requests are sent, and metrics are read, at times of a real clock.
#![allow(clippy::disallowed_methods)]

#[path = "../command/replay/browser.rs"]
#[allow(dead_code)]
mod browser;
mod nginx;
mod operate;
mod platforms;
use weir_support::queries;
mod routes;
use weir_support as support;
#[path = "../support/terminal.rs"]
#[allow(dead_code)]
mod terminal;
mod top;

fn main() -> std::process::ExitCode {
    let tests = [
        platforms::tests(),
        top::TESTS.into(),
        nginx::TESTS.into(),
        operate::TESTS.into(),
        routes::TESTS.into(),
    ]
    .concat();
    // Their question is what the command says and writes, not how a host does it. Envoy starts the module in a tenth of the time.
    if !support::is_full() && std::env::var_os("WEIR_HOST").is_none() {
        support::weir::Host::Native.choose();
    }
    let ignored =
        [platforms::kubernetes::ignored(), platforms::page::ignored(), nginx::ignored(), operate::ignored()]
            .concat();
    support::run_with_envoy(&tests, &ignored)
}
