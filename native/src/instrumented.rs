// SPDX-License-Identifier: Apache-2.0
//! Panics on purpose, for `tests/panics.rs` and `tests/envoy/native`. The latter cannot see inside Envoy's process, so this also logs which
//! hooks and callbacks ran. Only tests and the cargo feature `instrumented` have this code; a test checks that the shipped library has none.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::abi::HeaderMap;
use crate::envoy::HttpFilter;
use crate::panics::locked;

/// This header of a request names places, with commas between them. Each place panics once, when this worker next reaches it.
const HEADER: &str = "x-weir-instrumented-fault";

thread_local! {
    static ARMED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Arms the places that a request names.
pub fn arm(filter: HttpFilter) {
    // SAFETY: nothing here changes a header.
    let headers = unsafe { filter.headers(HeaderMap::Request) };
    let places = headers.get(HEADER).map(|(value, _)| value.into_owned()).unwrap_or_default();
    let places = String::from_utf8_lossy(&places);
    let places = places.split(',').filter(|place| !place.is_empty()).map(str::to_owned);
    ARMED.with(|armed| armed.borrow_mut().extend(places));
}

/// Panics if the place is armed.
#[allow(clippy::panic)]
pub fn panic_if_armed(place: &str) {
    let is_armed = ARMED.with(|armed| {
        let mut armed = armed.borrow_mut();
        armed.iter().position(|other| other == place).map(|at| armed.remove(at)).is_some()
    });
    if is_armed {
        panic!("at {place}, on purpose");
    }
}

/// True if a place is armed that nothing has reached.
#[cfg(all(test, not(feature = "interleaved")))]
pub fn is_armed() -> bool {
    ARMED.with(|armed| !armed.borrow().is_empty())
}

/// Writes once to Envoy's log that a hook or a callback ran.
pub fn log_run(name: &'static str) {
    static RAN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if locked(&RAN).insert(name) {
        eprintln!("ran: {name}.");
    }
}
