// SPDX-License-Identifier: Apache-2.0
//! The root context of a worker: the only one that sends batches, releases requests and learns of time and of answers.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{BufferType, ContextType};

use super::super::{done, now, read};
use super::filter::Filter;
use super::reply;
use super::streams;
use super::worker::Worker;
use crate::bridge;
use crate::config::Config;
use crate::engine::{Action, StoreFailure};
use crate::session::{self, Worker as _};
use crate::time::Micros;
use crate::version;

/// The most requests that are released in one callback. Local replies nest on the VM's stack: 256 fit, 1,000 overflowed it.
const MAX_RELEASES: usize = 64;

/// True if no worker has loaded this configuration before: one of them logs it.
fn is_news(json: &[u8]) -> bool {
    const KEY: &str = "weir.loaded";
    let digest = sha1_smol::Sha1::from(json).digest().bytes();
    let (known, version) = hostcalls::get_shared_data(KEY).unwrap_or_default();
    let is_known = known.as_deref() == Some(digest.as_slice());
    // If another worker is faster, it logs it.
    !is_known && hostcalls::set_shared_data(KEY, Some(&digest), version).is_ok()
}

/// One per worker and configuration.
pub struct Root {
    id: u32,
    /// Absent until the configuration is accepted.
    worker: Option<Rc<RefCell<Worker>>>,
    /// Envoy has asked the context to end, and waits for [`hostcalls::done`].
    ending: bool,
}

impl Root {
    pub const fn new(id: u32) -> Self {
        Self { id, worker: None, ending: false }
    }

    /// One callback: hands `event` to the worker, then does what the engine decided: sends batches, releases requests,
    /// arms the timer, ends the context. Only the callbacks of the timer and the queue may open a stream, or close one: see
    /// [`streams`].
    fn turn(&mut self, may_act: bool, event: &dyn Fn(&mut Worker, Micros)) {
        let Some(worker) = &self.worker else { return };
        let now = now();
        {
            let mut worker = worker.borrow_mut();
            worker.pool.begin(now, may_act);
            event(&mut worker, now);
            // The SDK files a stream under the context it believes active, and a release changes that belief: so batches
            // are sent before the releases. The host does not call back before its call of sending is over.
            worker.send_batches(now);
        }
        for _ in 0..MAX_RELEASES {
            // Drop the `RefCell` borrow before releasing: Envoy re-enters the filter with the local reply.
            let Some(release) = worker.borrow_mut().engine.next_release() else { break };
            // The engine releases no stream that has ended: until Envoy frees one, this call would succeed.
            if hostcalls::set_effective_context(release.stream).is_ok() {
                session::record(&worker.borrow().engine, release.stream, &reply::write_state);
                match release.action {
                    Action::Admit => {
                        done("resuming a request", hostcalls::resume_http_request());
                    }
                    Action::Reject(rejection) => reply::reject(&rejection),
                }
            }
        }
        let mut worker = worker.borrow_mut();
        let ends = self.ending && worker.engine.may_end();
        let goes_on =
            worker.engine.has_releases() || worker.engine.wants_to_send() || worker.pool.waits_for_callback();
        // Right after the call that ends the context, Envoy frees it with its streams: that is never a callback of one of them.
        if goes_on || ends && !may_act {
            worker.wake(now);
        }
        worker.arm(now);
        worker.report(now);
        drop(worker);
        if ends && may_act {
            self.ending = false;
            // A release has made its request's context effective. No other call above depends on which context it is.
            done("making the root context effective again", hostcalls::set_effective_context(self.id));
            self.stop();
            done("ending the root context", hostcalls::done());
        }
    }

    /// The context ends. Envoy would run its timer for ever.
    fn stop(&mut self) {
        self.worker = None;
        done("stopping the timer", hostcalls::set_tick_period(Duration::ZERO));
    }
}

impl Context for Root {
    fn on_grpc_stream_initial_metadata(&mut self, token: u32, _headers: u32) {
        self.turn(false, &|worker, _| streams::began(&mut worker.pool, token));
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        self.turn(false, &|worker, now| {
            let Some(batch) = worker.pool.answered(token) else { return };
            match hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size) {
                Ok(Some(bytes)) => {
                    let (replies, are_last) = bridge::replies(&bytes);
                    let is_usable = worker.engine.replied(batch, replies, now);
                    worker.pool.judge(token, is_usable);
                    streams::read(&mut worker.pool, token, are_last);
                }
                _ => {
                    worker.engine.failed(batch, &StoreFailure::BadReply, now);
                    // They may be the last replies of this stream.
                    streams::read(&mut worker.pool, token, true);
                }
            }
        });
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        self.turn(false, &|worker, _| streams::closed(&mut worker.pool, token, status));
    }

    /// Before the context ends, the worker's leases are refunded, and what its subjects have used is written.
    fn on_done(&mut self) -> bool {
        self.turn(false, &|worker, _| worker.engine.retire());
        self.ending = self.worker.as_ref().is_some_and(|worker| !worker.borrow().engine.may_end());
        if !self.ending {
            self.stop();
        }
        !self.ending
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        // Envoy also configures a VM on its main thread that serves no request: open no stream, arm no timer here.
        let json = read(BufferType::PluginConfiguration, size).unwrap_or_default();
        let config = Config::parse(&json);
        match config.and_then(|config| config.with_secret(weir_pause::variable).map_err(|error| vec![error]))
        {
            Ok(config) => {
                if is_news(&json) {
                    log::info!("{}", version::loaded(config.policies.len(), config.hash));
                }
                self.worker = Some(Rc::new(RefCell::new(Worker::new(Rc::new(config), self.id))));
                // While Envoy calls `on_tick`, it keeps a place in the table of its VM's timers. A root that enters the table meanwhile (a
                // request that is released has reached its filter) may move the table, and Envoy goes on with the old place. This starts no
                // timer.
                done("entering the table of timers", hostcalls::set_tick_period(Duration::ZERO));
                true
            }
            Err(errors) => {
                for error in errors {
                    log::error!("configuration: {error}");
                }
                false
            }
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let worker = self.worker.as_ref()?;
        Some(Box::new(Filter::new(id, Rc::clone(worker))))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn on_queue_ready(&mut self, queue: u32) {
        // The message is empty: the callback is all that counts.
        let _ = hostcalls::dequeue_shared_queue(queue);
        self.turn(true, &|worker, _| worker.wake_up.arrived());
    }

    fn on_tick(&mut self) {
        self.turn(true, &|worker, now| {
            worker.pool.tick(now);
            worker.engine.tick(now);
            while let Some(batch) = worker.engine.next_abandoned() {
                worker.pool.abandon(batch);
            }
        });
        if let Some(worker) = &self.worker {
            worker.borrow_mut().timer_fired(now());
        }
    }
}
