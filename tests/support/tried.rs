// SPDX-License-Identifier: Apache-2.0
//! How often a property is tried.

use proptest::test_runner::Config;

/// `make mutants` runs the tests once for each mutant: a tenth of the cases has to do there, and what the shortest failure is does
/// not matter.
pub fn tried(cases: u32) -> Config {
    let (cases, max_shrink_iters) = match std::env::var_os("WEIR_MUTANTS") {
        Some(_) => (cases.div_ceil(10), 0),
        None => (cases, 20_000),
    };
    Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() }
}
