// SPDX-License-Identifier: Apache-2.0
//! For `tests/envoy/native`, which cannot see inside Envoy's process: panics on purpose, and says which hooks and callbacks ran. Only the
//! cargo feature `instrumented` has it. The library that is shipped does not; a test looks.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::abi::HeaderMap;
use crate::clock::locked;
use crate::envoy::HttpFilter;

/// A request with this header names places, with commas between them: each panics once, when this worker is there next.
const HEADER: &str = "x-weir-instrumented-fault";

thread_local! {
    static ARMED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Arms the places that a request names.
pub fn arm(filter: HttpFilter) {
    let places = filter.header(HeaderMap::Request, HEADER).map(|(value, _)| value).unwrap_or_default();
    let places = String::from_utf8_lossy(&places).into_owned();
    let places = places.split(',').filter(|place| !place.is_empty()).map(str::to_owned);
    ARMED.with(|armed| armed.borrow_mut().extend(places));
}

/// Panics if the place is armed.
#[allow(clippy::panic)]
pub fn strike(place: &str) {
    let is_armed = ARMED.with(|armed| {
        let mut armed = armed.borrow_mut();
        armed.iter().position(|other| other == place).map(|at| armed.remove(at)).is_some()
    });
    if is_armed {
        panic!("at {place}, on purpose");
    }
}

/// Says once in Envoy's log that a hook or a callback ran.
pub fn ran(name: &'static str) {
    static RAN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if locked(&RAN).insert(name) {
        eprintln!("ran: {name}.");
    }
}
