// SPDX-License-Identifier: Apache-2.0
//! The number of cases to try: all of them under `make nightly` (`WEIR_FULL=1`), a part of them under `make test`.

use proptest::test_runner::Config;

/// True if everything is tried in full.
pub fn is_full() -> bool {
    std::env::var_os("WEIR_FULL").is_some()
}

/// A tenth of so many, unless everything is tried in full.
pub fn sized(full: usize) -> usize {
    if is_full() { full } else { full.div_ceil(10) }
}

/// A property is tried in so many cases, or in a tenth of them.
pub fn tried(cases: u32) -> Config {
    let cases = if is_full() { cases } else { cases.div_ceil(10) };
    Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() }
}
