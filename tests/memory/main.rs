// SPDX-License-Identifier: Apache-2.0
//! However many subjects there are, what is kept about them stays within a bound: natively by the bytes allocated, in wasm
//! by the size of linear memory, which never shrinks.
//!
//! Half of the strangers fill every table, the other half must find room in what there is; or all of them do, and must when
//! they come again. Ten million requests of a million subjects, for each table, in WebAssembly (minutes):
//!
//! ```sh
//! eval "$(scripts/env)"
//! WEIR_SUBJECTS=1000000 WEIR_REQUESTS=10000000 scripts/cargo-wasm test --release --package weir --test memory -- subjects
//! ```
//!
//! Natively it is `cargo` in place of `scripts/cargo-wasm`, and `-- --nocapture` to see the figures.
#![allow(missing_docs, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[cfg(not(target_arch = "wasm32"))]
mod allocations;
use weir_support::core;
// In WebAssembly it only measures time, in the build that ships.
#[cfg(any(not(target_arch = "wasm32"), not(debug_assertions)))]
mod effort;

use core::{Core, User, answer, limited};
use weir::time::Micros;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::{console_log as println, wasm_bindgen_test as test};

/// More than any table holds, twice.
const STRANGERS: &str = match option_env!("WEIR_SUBJECTS") {
    Some(count) => count,
    None => "150000",
};

/// One of each, unless they come again.
const REQUESTS: &str = match option_env!("WEIR_REQUESTS") {
    Some(count) => count,
    None => STRANGERS,
};

/// Requests of different subjects that ride in one batch.
const CROWD: usize = 64;

const HOUR: i64 = 3_600_000_000;

fn stays_flat(config: &str, mut crowd: impl FnMut(&mut Core)) {
    let [strangers, requests] = [STRANGERS, REQUESTS].map(|count| count.parse::<usize>().expect("a number"));
    let (mut core, mut meter) = (Core::new(config), Meter::default());
    let mut meet = |requests: std::ops::Range<usize>| {
        for request in requests {
            let name = uncounted(|| format!("{:032}", request % strangers));
            core.arrive(&User { path: "/api", name: &name });
            uncounted(|| drop(name));
            if request % CROWD == 0 {
                crowd(&mut core);
            }
        }
    };
    let met = strangers.min(requests / 2);
    let at_first = meter.most(|| meet(0..met));
    let at_last = meter.most(|| meet(met..requests));
    println!(
        "at most {at_first} bytes in the first {met} requests, {at_last} until {requests}, of {strangers} subjects"
    );
    assert!(at_first > 1 << 20, "{at_first} bytes for {met} subjects: something must have been kept");
    assert!(at_last <= at_first + at_first / 50, "{at_first} bytes grew to {at_last}");
}

#[test]
fn denied_subjects() {
    stays_flat(&limited("", "allow"), |core| {
        core.ask(&answer(0, HOUR, core.now));
    });
}

#[test]
fn leased_subjects() {
    let lease = r#""lease": {"max": 8, "min": 4, "duration": "1m"},"#;
    stays_flat(&limited(lease, "allow"), |core| {
        // Leases end, and go back, all the time.
        core.now = core.now.plus(Micros::from_millis(100));
        core.engine.tick(core.now);
        // Four more for each, as long as there is room.
        let granted = if core.engine.on_lease() < 65_536 { 5 } else { 1 };
        core.ask(&answer(granted, 0, core.now));
    });
}

#[test]
fn subjects_while_the_store_is_away() {
    stays_flat(&limited("", "local"), |core| {
        core.fail();
    });
}

/// Measures the most memory in use at any time, in bytes.
#[derive(Default)]
struct Meter {
    #[cfg(not(target_arch = "wasm32"))]
    in_use: i64,
}

impl Meter {
    #[cfg(not(target_arch = "wasm32"))]
    fn most(&mut self, run: impl FnOnce()) -> u64 {
        let measured = allocation_counter::measure(run);
        let most = self.in_use.saturating_add_unsigned(measured.bytes_max);
        self.in_use += measured.bytes_current;
        u64::try_from(most).expect("no more is freed than was allocated")
    }

    #[cfg(target_arch = "wasm32")]
    fn most(&mut self, run: impl FnOnce()) -> u64 {
        run();
        std::arch::wasm32::memory_size(0) as u64 * 65_536
    }
}

/// Runs `own` without counting its allocations, which are the test's own.
#[cfg(not(target_arch = "wasm32"))]
fn uncounted<T>(own: impl FnOnce() -> T) -> T {
    let mut result = None;
    allocation_counter::opt_out(|| result = Some(own()));
    result.expect("it ran")
}

/// Linear memory counts everything.
#[cfg(target_arch = "wasm32")]
fn uncounted<T>(own: impl FnOnce() -> T) -> T {
    own()
}
