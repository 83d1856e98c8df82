// SPDX-License-Identifier: Apache-2.0
//! The clock of a worker. Envoy has no timers for filters of requests. So one thread of the module looks every few milliseconds which
//! worker has something due, and commits to the scheduler of that worker. While nothing is due, the thread sleeps.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use weir_core::time::Micros;

use crate::envoy::Scheduler;
use crate::now;
use crate::threads::{
    self, Arc, AtomicBool, AtomicU64, Instant, Mutex, Thread, instant, locked, park, park_timeout,
};

/// The number of an event that only asks for a turn.
pub const WAKE: u64 = 0;
/// The number of an event that says that time has passed.
pub const TICK: u64 = 1;

/// The interval at which the thread looks while something is due later.
const INTERVAL: Micros = Micros::from_millis(5);
/// The due time if nothing is due.
const NEVER: u64 = u64::MAX;

/// A clock of one worker.
pub struct Clock {
    shared: Arc<Shared>,
    thread: &'static ClockThread,
    /// The worker has asked for a turn, and its scheduler has not called yet.
    is_waking: Cell<bool>,
}

/// The state that the worker and the thread share.
struct Shared {
    /// Absent after the clock's end.
    scheduler: Mutex<Option<Scheduler>>,
    /// The time of the next tick, in microseconds of [`monotonic`]: an operator may set the host's clock back.
    due_at: AtomicU64,
}

impl Shared {
    fn commit(&self, event: u64) {
        if let Some(scheduler) = locked(&self.scheduler).as_ref() {
            scheduler.commit(event);
        }
    }
}

impl Clock {
    /// A clock that commits to this scheduler.
    pub fn start(scheduler: Scheduler) -> Option<Self> {
        Some(Self::start_on(ClockThread::get()?, scheduler))
    }

    fn start_on(thread: &'static ClockThread, scheduler: Scheduler) -> Self {
        let scheduler = Mutex::new(Some(scheduler));
        let shared = Arc::new(Shared { scheduler, due_at: AtomicU64::new(NEVER) });
        locked(&thread.clocks).push(Arc::clone(&shared));
        Self { shared, thread, is_waking: Cell::new(false) }
    }

    /// Asks for a turn of this worker, later in the same turn of its event loop or in the next.
    pub fn wake(&self) {
        if !self.is_waking.replace(true) {
            self.shared.commit(WAKE);
        }
    }

    /// The scheduler has given this worker its turn, so the next `wake` asks again.
    pub fn woken(&self) {
        self.is_waking.set(false);
    }

    /// Asks for a tick at this time of the host's clock.
    pub fn arm(&self, due_at: Micros) {
        let due_at = monotonic().plus(due_at.since(now()));
        if self.shared.due_at.fetch_min(due_at.0, Ordering::SeqCst) > due_at.0
            && self.thread.is_asleep.swap(false, Ordering::SeqCst)
        {
            self.thread.thread.unpark();
        }
    }
}

impl Drop for Clock {
    /// No commit runs after this. The hook that reports the end of the scheduler's owner drops the clock, or something drops it earlier.
    fn drop(&mut self) {
        drop(locked(&self.shared.scheduler).take());
        locked(&self.thread.clocks).retain(|clock| !Arc::ptr_eq(clock, &self.shared));
    }
}

/// Asks every worker for a turn; from any thread.
pub fn wake_all() {
    if let Some(Some(thread)) = THREAD.get() {
        thread.wake_all();
    }
}

/// Absent before the first clock.
static THREAD: OnceLock<Option<ClockThread>> = OnceLock::new();

/// The thread, and the clocks whose ticks it commits.
struct ClockThread {
    clocks: Arc<Mutex<Vec<Arc<Shared>>>>,
    /// It sleeps until something wakes it, because nothing was due.
    is_asleep: Arc<AtomicBool>,
    thread: Thread,
}

impl ClockThread {
    fn get() -> Option<&'static Self> {
        THREAD.get_or_init(Self::start).as_ref()
    }

    fn start() -> Option<Self> {
        let clocks = Arc::new(Mutex::new(Vec::new()));
        let is_asleep = Arc::new(AtomicBool::new(false));
        let (thread_clocks, thread_is_asleep) = (Arc::clone(&clocks), Arc::clone(&is_asleep));
        let thread = threads::start("weir-clock", move || run(&thread_clocks, &thread_is_asleep));
        let thread =
            thread.inspect_err(|error| log::error!("the thread of the clock cannot start: {error}")).ok()?;
        Some(Self { clocks, is_asleep, thread })
    }

    fn wake_all(&self) {
        locked(&self.clocks).iter().for_each(|clock| clock.commit(WAKE));
    }
}

fn run(clocks: &Mutex<Vec<Arc<Shared>>>, is_asleep: &AtomicBool) {
    // Each call unlocks the clocks before the thread sleeps.
    let commit_due = || commit_due(&locked(clocks));
    while !threads::is_over() {
        if let Some(left) = commit_due() {
            park_timeout(Duration::from_micros(left.min(INTERVAL).0.max(1_000)));
            continue;
        }
        is_asleep.store(true, Ordering::SeqCst);
        // A tick that became due before this store did not wake the thread.
        if commit_due().is_none() {
            park();
        }
        is_asleep.store(false, Ordering::SeqCst);
    }
}

/// Commits a tick to each worker that has something due. Returns how long until the next tick is due; `None` if no tick is.
fn commit_due(clocks: &[Arc<Shared>]) -> Option<Micros> {
    let now = monotonic();
    let left = clocks.iter().filter_map(|clock| {
        let due_at = clock.due_at.load(Ordering::SeqCst);
        if due_at <= now.0 {
            // The worker's turn says when the next tick is due. So a busy worker has at most one tick in its event queue.
            clock.due_at.store(NEVER, Ordering::SeqCst);
            clock.commit(TICK);
            return Some(INTERVAL);
        }
        (due_at < NEVER).then(|| Micros(due_at).since(now))
    });
    left.min()
}

/// The time since the first call, and a day: a time of zero is long ago. Neither an operator nor NTP can set this clock back.
fn monotonic() -> Micros {
    static START: LazyLock<Instant> = LazyLock::new(instant);
    let since = Micros(u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX));
    Micros::from_secs(86_400).plus(since)
}

#[cfg(all(test, feature = "interleaved"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#[path = "tests/clock.rs"]
mod interleaved;
