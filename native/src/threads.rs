// SPDX-License-Identifier: Apache-2.0
//! Primitives by which the threads of the clock and of the connector share state and wait. They are the standard library's; in the tests
//! with the feature `interleaved` they are Shuttle's, which tries the interleavings of threads, with a time that passes only while a thread
//! waits.

#[cfg(not(all(test, feature = "interleaved")))]
mod real {
    pub use std::sync::atomic::{AtomicBool, AtomicU64};
    pub use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    pub use std::sync::{Arc, Mutex};
    pub use std::thread::{Thread, park, park_timeout};
    pub use std::time::Instant;

    pub use crate::panics::locked;

    use std::io;
    use std::time::Duration;

    /// Starts a thread that runs until the process ends.
    pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
        Ok(std::thread::Builder::new().name(name.into()).spawn(run)?.thread().clone())
    }

    /// Waits for an event: for this time, or for as long as there is a sender.
    pub fn receive<T>(events: &Receiver<T>, wait: Option<Duration>) -> Result<T, RecvTimeoutError> {
        match wait {
            Some(wait) => events.recv_timeout(wait),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    #[cfg(miri)]
    pub fn model_time() -> weir_core::time::Micros {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(instant);
        let since = u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX);
        weir_core::time::Micros::from_secs(1_790_000_000).plus(weir_core::time::Micros(since))
    }

    /// The thread of the clock runs until the process ends.
    pub const fn is_over() -> bool {
        false
    }

    #[allow(clippy::disallowed_methods)]
    pub fn instant() -> Instant {
        Instant::now()
    }
}

#[cfg(all(test, feature = "interleaved"))]
#[allow(clippy::unwrap_used)]
mod real {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    pub use shuttle::sync::mpsc::{Receiver, Sender, channel};
    pub use shuttle::sync::{Arc, Mutex};
    pub use shuttle::thread::{Thread, park};
    pub use std::sync::mpsc::RecvTimeoutError;

    use std::cell::Cell;
    use std::io;
    use std::ops::Add;
    use std::sync::PoisonError;
    use std::sync::mpsc::TryRecvError;
    use std::time::Duration;

    use shuttle::sync::MutexGuard;

    // All threads of a model run on one thread of the system. No thread waits for these values, so they are no choices of the scheduler.
    thread_local! {
        /// The time of the model, in microseconds.
        static NOW: Cell<u64> = const { Cell::new(0) };
        static IS_OVER: Cell<bool> = const { Cell::new(false) };
    }

    pub fn pass(time: Duration) {
        NOW.set(NOW.get() + u64::try_from(time.as_micros()).unwrap());
        shuttle::thread::yield_now();
    }

    /// Each thread of a model has to end.
    pub fn is_over() -> bool {
        IS_OVER.get()
    }

    pub fn set_over(is_over: bool) {
        IS_OVER.set(is_over);
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Instant(Duration);

    impl Instant {
        pub fn duration_since(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
        pub fn saturating_duration_since(self, earlier: Self) -> Duration {
            self.duration_since(earlier)
        }
        pub fn elapsed(self) -> Duration {
            instant().duration_since(self)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;
        fn add(self, time: Duration) -> Self {
            Self(self.0 + time)
        }
    }

    pub fn instant() -> Instant {
        Instant(Duration::from_micros(NOW.get()))
    }

    pub fn model_time() -> weir_core::time::Micros {
        weir_core::time::Micros(NOW.get())
    }

    pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn start(_: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
        Ok(shuttle::thread::spawn(run).thread().clone())
    }

    pub fn park_timeout(time: Duration) {
        pass(time);
    }

    pub fn receive<T>(events: &Receiver<T>, wait: Option<Duration>) -> Result<T, RecvTimeoutError> {
        let Some(wait) = wait else { return events.recv().map_err(|_| RecvTimeoutError::Disconnected) };
        match events.try_recv() {
            Ok(event) => Ok(event),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {
                pass(wait);
                Err(RecvTimeoutError::Timeout)
            }
        }
    }
}

pub use real::*;
