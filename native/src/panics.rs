// SPDX-License-Identifier: Apache-2.0
//! No panic crosses the boundary to Envoy: it would end the process. Each hook runs inside [`caught`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static CAUGHT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of panics that [`caught`] has caught in this process since the last call.
pub fn take_count() -> u64 {
    CAUGHT.swap(0, Ordering::Relaxed)
}

/// Runs the body of a hook; `None` when it panicked.
///
/// A panic drops each borrow of the body, so the next hook finds nothing locked. But it may leave state half changed: the caller
/// replaces that. See `Limiter::replace_engine`.
pub fn caught<T>(hook: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    ran!(hook);
    guarded(hook, body)
}

/// Drops a value, which may run any code: it may be the last reference to a limiter.
pub fn dropped<T>(value: T) {
    guarded("the drop of what a hook held", move || drop(value));
}

fn guarded<T>(hook: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body))
        .inspect_err(|panic| {
            CAUGHT.fetch_add(1, Ordering::Relaxed);
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
            log::error!("panic in {hook}: {text}. `on_failure` decides the requests that it concerns; please report it");
        })
        .ok()
}

/// Runs the body of a hook. If it panics, `replace` replaces what it may have left half changed.
pub fn caught_or(hook: &'static str, body: impl FnOnce(), replace: impl FnOnce()) {
    if caught(hook, body).is_none() {
        caught(hook, replace);
    }
}

/// Locks the mutex, also after a panic while it was locked: each change of these values is a single one, so none is half done.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
