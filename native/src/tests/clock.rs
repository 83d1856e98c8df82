// SPDX-License-Identifier: Apache-2.0
//! The thread of the clock and its workers, in many interleavings. A worker that waits for a tick that never comes is a deadlock, which
//! Shuttle reports.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use shuttle::sync::{Condvar, Mutex};

use super::*;
use crate::abi::Envoy;

/// A scheduler of Envoy. It stays after its end, so that a later commit is seen.
#[derive(Default)]
struct Events {
    committed: Mutex<Vec<u64>>,
    arrived: Condvar,
    running: AtomicUsize,
    is_deleted: AtomicBool,
}

unsafe extern "C" fn commit(pointer: Envoy, event: u64) {
    // SAFETY: it is an `Events` that is never freed.
    let events = unsafe { &*pointer.cast_const().cast::<Events>() };
    events.running.fetch_add(1, SeqCst);
    assert!(!events.is_deleted.load(SeqCst), "a commit after the scheduler's end");
    events.committed.lock().unwrap().push(event);
    assert!(!events.is_deleted.load(SeqCst), "the scheduler ends while a commit runs");
    events.arrived.notify_all();
    events.running.fetch_sub(1, SeqCst);
}

unsafe extern "C" fn delete(pointer: Envoy) {
    // SAFETY: as above.
    let events = unsafe { &*pointer.cast_const().cast::<Events>() };
    assert_eq!(events.running.load(SeqCst), 0, "the scheduler ends while a commit runs");
    assert!(!events.is_deleted.swap(true, SeqCst), "it ends once");
}

impl Events {
    fn leaked() -> &'static Self {
        Box::leak(Box::default())
    }

    fn scheduler(&'static self) -> Scheduler {
        let pointer = core::ptr::from_ref(self).cast_mut().cast::<c_void>();
        Scheduler::new(pointer, commit, delete).unwrap()
    }

    /// Waits for an event, and takes all that are there.
    fn wait_for(&self, event: u64) {
        let mut committed = self.committed.lock().unwrap();
        while !committed.contains(&event) {
            committed = self.arrived.wait(committed).unwrap();
        }
        committed.clear();
    }
}

/// Tries a model in which workers share this thread.
fn search(model: fn(&'static ClockThread)) {
    let run = move || {
        threads::set_over(false);
        let thread: &'static ClockThread = Box::leak(Box::new(ClockThread::start().unwrap()));
        model(thread);
        threads::set_over(true);
        thread.thread.unpark();
    };
    shuttle::check_random(run, 1_000);
    shuttle::check_pct(run, 1_000, 3);
}

/// A worker arms its clock for now, or for later, and waits.
fn ticks(thread: &'static ClockThread, first: u64) {
    let events = Events::leaked();
    let clock = Clock::start_on(thread, events.scheduler());
    for millis in [first, 0, 7] {
        clock.arm(now().plus(Micros::from_millis(millis)));
        events.wait_for(TICK);
    }
    drop(clock);
    assert!(events.is_deleted.load(SeqCst));
}

#[test]
fn each_tick_comes() {
    search(|thread| {
        let workers = [0, 3].map(|first| shuttle::thread::spawn(move || ticks(thread, first)));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn a_clock_that_was_armed_for_later_ticks_when_it_is_armed_for_now() {
    search(|thread| {
        let events = Events::leaked();
        let clock = Clock::start_on(thread, events.scheduler());
        clock.arm(now().plus(Micros::from_secs(3_600)));
        clock.arm(now());
        events.wait_for(TICK);
    });
}

#[test]
fn clocks_end_while_all_are_woken() {
    search(|thread| {
        let wakes = shuttle::thread::spawn(move || (0..2).for_each(|_| thread.wake_all()));
        let workers = [0, 1].map(|_| {
            shuttle::thread::spawn(move || {
                let events = Events::leaked();
                let clock = Clock::start_on(thread, events.scheduler());
                clock.wake();
                events.wait_for(WAKE);
                clock.woken();
                clock.arm(now());
                drop(clock);
                assert!(events.is_deleted.load(SeqCst));
            })
        });
        wakes.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(locked(&thread.clocks).is_empty());
    });
}
