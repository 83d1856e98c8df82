// SPDX-License-Identifier: Apache-2.0
//! No panic crosses the boundary to Envoy: it would end the process. Each hook runs inside [`caught`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

static CAUGHT: AtomicU64 = AtomicU64::new(0);

/// How many panics were caught in this process since this was last asked.
pub fn take() -> u64 {
    CAUGHT.swap(0, Ordering::Relaxed)
}

/// Runs the body of a hook; `None` when it panicked.
///
/// What the body has borrowed is given back while it unwinds, so the next hook finds nothing locked. State that a panic has left
/// half changed is given up by the caller: see `Limiter::give_up`.
pub fn caught<T>(hook: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    ran!(hook);
    catch_unwind(AssertUnwindSafe(body))
        .inspect_err(|panic| {
            CAUGHT.fetch_add(1, Ordering::Relaxed);
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
            log::error!("panic in {hook}: {text}. `on_failure` decides the requests that it concerns; please report it");
        })
        .ok()
}
