// SPDX-License-Identifier: Apache-2.0
//! One worker under one configuration: its engine, its streams, its timer, its wake-up, its statistics.

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;

use super::super::{done, now};
use super::report::HostMetrics;
use super::seed::seed;
use super::streams::{self, Streams};
use super::wake_up::WakeUp;
use crate::config::Config;
use crate::engine::{Catalogue, Engine, Outgoing, Output, Pool, Report, StoreFailure, Timer};
use crate::session;
use crate::time::Micros;

/// The delay after which a stream that is no longer needed is cancelled.
const CLEAR: Micros = Micros::from_millis(5);

/// The state that the root context of a worker and its requests share.
pub(super) struct Worker {
    pub engine: Engine,
    pub pool: Pool<Streams>,
    pub wake_up: WakeUp,
    timer: Timer,
    report: Report,
    metrics: HostMetrics,
}

impl Worker {
    pub fn new(config: Rc<Config>, root: u32) -> Self {
        let mut pool = Pool::new(Streams { config: Rc::clone(&config) });
        for _ in &config.regions.all {
            pool.add_store();
        }
        Self {
            report: Report::new(&config),
            metrics: HostMetrics::define(&Catalogue::of(&config)),
            engine: Engine::new(config, seed(root)),
            pool,
            wake_up: WakeUp::default(),
            timer: Timer::default(),
        }
    }

    /// Sends the batches that may leave now.
    pub fn send_batches(&mut self, now: Micros) {
        loop {
            while let Some(output) = self.pool.poll() {
                match output {
                    Output::Close(stream) => streams::cancel(stream.token),
                    Output::Connected(batch) => self.engine.connected(batch, now),
                    Output::Failed(batch, failure) => self.engine.failed(batch, &failure, now),
                }
            }
            let Some(Outgoing { id, store, body, slots, .. }) = self.engine.next_batch(now) else { return };
            match self.pool.send(store.into(), id, slots) {
                Ok(Some(stream)) => {
                    if !streams::send(stream, &body) {
                        self.pool.fail(stream, &StoreFailure::NotSent);
                    }
                }
                Ok(None) => self.engine.connecting(id),
                Err(failure) => self.engine.failed(id, &failure, now),
            }
        }
    }

    pub fn timer_fired(&mut self, now: Micros) {
        let period = self.timer.fired(self.next_tick(now), now);
        self.set_timer(period);
    }

    fn next_tick(&self, now: Micros) -> Option<Micros> {
        self.engine
            .next_tick(now)
            .into_iter()
            .chain(self.pool.any_closing().then(|| now.plus(CLEAR)))
            .chain(self.report.due())
            .min()
    }

    fn set_timer(&mut self, millis: Option<u64>) -> bool {
        let Some(millis) = millis else { return true };
        let set = done("setting the tick period", hostcalls::set_tick_period(Duration::from_millis(millis)));
        if !set {
            self.timer.lost();
        }
        set
    }
}

impl session::Worker for Worker {
    type Metrics = HostMetrics;

    fn parts(&mut self) -> (&mut Engine, &mut Report, &mut HostMetrics) {
        (&mut self.engine, &mut self.report, &mut self.metrics)
    }

    fn now(&self) -> Micros {
        now()
    }

    fn arm(&mut self, now: Micros) {
        self.wait(now);
    }

    // Callbacks of requests may arm it, too: the host files the timer under the root in either case.
    fn wait(&mut self, now: Micros) -> bool {
        let period = self.timer.arm(self.next_tick(now), now);
        self.set_timer(period)
    }

    fn wake(&mut self, now: Micros) {
        self.wake_up.send(now);
    }
}
