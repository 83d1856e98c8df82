// SPDX-License-Identifier: Apache-2.0
//! The clock that wakes a worker. Envoy has no timers for filters of requests, so a thread looks every few milliseconds which
//! worker has something due, and commits to its scheduler. While nothing is due the thread sleeps.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use weir_core::time::Micros;

use crate::envoy::Scheduler;
use crate::now;

/// The number of an event that only asks for a turn.
pub const WAKE: u64 = 0;
/// The number of an event that says that time has passed.
pub const TICK: u64 = 1;

/// How often the thread looks while something is due later.
const STEP: Micros = Micros::from_millis(5);
/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// A clock of one worker.
pub struct Clock {
    shared: Arc<Shared>,
    /// A wake-up is on its way.
    waking: Cell<bool>,
}

/// What the worker and the thread share.
struct Shared {
    /// Absent from the clock's end on.
    scheduler: Mutex<Option<Scheduler>>,
    /// When the next tick is due, in microseconds of [`uptime`]. The host's clock may be set back.
    due: AtomicU64,
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
        let scheduler = Mutex::new(Some(scheduler));
        let shared = Arc::new(Shared { scheduler, due: AtomicU64::new(NEVER) });
        let thread = Keeper::get()?;
        locked(&thread.clocks).push(Arc::clone(&shared));
        Some(Self { shared, waking: Cell::new(false) })
    }

    /// Asks for a turn of this worker, later in the same turn of its event loop or in the next.
    pub fn wake(&self) {
        if !self.waking.replace(true) {
            self.shared.commit(WAKE);
        }
    }

    /// The wake-up has arrived.
    pub fn woken(&self) {
        self.waking.set(false);
    }

    /// Asks for a tick at this time of the host's clock.
    pub fn arm(&self, due: Micros) {
        let due = uptime().plus(due.since(now()));
        if self.shared.due.fetch_min(due.0, Ordering::SeqCst) > due.0
            && let Some(keeper) = Keeper::get()
            && keeper.sleeps.swap(false, Ordering::SeqCst)
        {
            keeper.thread.unpark();
        }
    }
}

impl Drop for Clock {
    /// In the hook that tells of its owner's end, or earlier: no commit runs from here on.
    fn drop(&mut self) {
        drop(locked(&self.shared.scheduler).take());
        if let Some(keeper) = Keeper::get() {
            locked(&keeper.clocks).retain(|clock| !Arc::ptr_eq(clock, &self.shared));
        }
    }
}

/// Asks every worker for a turn; from any thread.
pub fn wake_all() {
    if let Some(Some(keeper)) = KEEPER.get() {
        locked(&keeper.clocks).iter().for_each(|clock| clock.commit(WAKE));
    }
}

/// Absent before the first clock.
static KEEPER: OnceLock<Option<Keeper>> = OnceLock::new();

/// The thread, and the clocks that it looks after.
struct Keeper {
    clocks: Arc<Mutex<Vec<Arc<Shared>>>>,
    /// Nothing was due when it went to sleep.
    sleeps: Arc<AtomicBool>,
    thread: Thread,
}

impl Keeper {
    fn get() -> Option<&'static Self> {
        KEEPER.get_or_init(Self::start).as_ref()
    }

    fn start() -> Option<Self> {
        let clocks = Arc::new(Mutex::new(Vec::new()));
        let sleeps = Arc::new(AtomicBool::new(false));
        let (of_thread, asleep) = (Arc::clone(&clocks), Arc::clone(&sleeps));
        let thread =
            thread::Builder::new().name("weir-clock".into()).spawn(move || keep(&of_thread, &asleep));
        let thread = thread.inspect_err(|error| log::error!("no thread for the clock: {error}")).ok()?;
        Some(Self { clocks, sleeps, thread: thread.thread().clone() })
    }
}

fn keep(clocks: &Mutex<Vec<Arc<Shared>>>, sleeps: &AtomicBool) {
    // The lock is given back before the thread sleeps.
    let strike = || strike(&locked(clocks));
    loop {
        if let Some(left) = strike() {
            thread::park_timeout(Duration::from_micros(left.min(STEP).0.max(1_000)));
            continue;
        }
        sleeps.store(true, Ordering::SeqCst);
        // What became due before the store above did not wake this thread.
        if strike().is_none() {
            thread::park();
        }
        sleeps.store(false, Ordering::SeqCst);
    }
}

/// Commits a tick to each worker that has something due. Returns how long until the next is due; `None` without any.
fn strike(clocks: &[Arc<Shared>]) -> Option<Micros> {
    let now = uptime();
    let left = clocks.iter().filter_map(|clock| {
        let due = clock.due.load(Ordering::SeqCst);
        if due <= now.0 {
            // The worker's turn says when the next is due. So a busy worker has one tick in its queue at most.
            clock.due.store(NEVER, Ordering::SeqCst);
            clock.commit(TICK);
            return Some(STEP);
        }
        (due < NEVER).then(|| Micros(due).since(now))
    });
    left.min()
}

/// The time since the first call, on a clock that an operator or NTP cannot set back.
#[allow(clippy::disallowed_methods)]
fn uptime() -> Micros {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Micros(u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// A panic while it was locked changes nothing here: each change is a single one.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
