// SPDX-License-Identifier: Apache-2.0
//! One configuration on one worker: its engine, the requests that it knows, and its turn.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::config::{BeforeBody, Config, Evaluation, Host, Unasked};
use weir_core::engine::{
    Action, BatchId, Catalogue, Engine, Export, Outgoing, Report, Sent, StoreFailure, StreamId, Submitted,
};
use weir_core::policy::settle::Watched;
use weir_core::policy::{Denial, OnFailure};
use weir_core::request::body::Body;
use weir_core::response;
use weir_core::time::Micros;
use weir_core::version;

use crate::abi::{self, HeaderMap};
use crate::attributes::{Failure, HostAttributes};
use crate::envoy::{HttpFilter, MetricScope};
use crate::panics::caught;
use crate::report::{self, ConfigMetrics};
use crate::ways::Ticket;
use crate::{now, reply, worker};

/// The most requests that are released in one turn, so that the worker's other connections are served in between.
const MAX_RELEASES: usize = 64;

/// One configuration, as all workers share it.
pub struct Configuration {
    /// It was read without errors.
    json: Vec<u8>,
    metrics: ConfigMetrics,
    /// Envoy has given it up.
    ended: AtomicBool,
}

impl Configuration {
    /// Reads a configuration; `None`, and a line in the log for each error, if it is wrong.
    pub fn read(json: Vec<u8>, scope: MetricScope) -> Option<Self> {
        match Config::parse_for(Host::Native, &json) {
            Ok(config) => {
                log::info!("{}", version::loaded(config.policies.len()));
                let metrics = ConfigMetrics::define(scope, &Catalogue::of(&config));
                Some(Self { json, metrics, ended: AtomicBool::new(false) })
            }
            Err(errors) => {
                errors.iter().for_each(|error| log::error!("configuration: {error}"));
                None
            }
        }
    }

    /// Envoy has given it up.
    pub fn end(&self) {
        self.metrics.end();
        self.ended.store(true, Ordering::Release);
    }
}

/// See the [module](self).
pub struct Limiter {
    configuration: Arc<Configuration>,
    config: Rc<Config>,
    /// Names the engine, so that no reply to a batch of another reaches it.
    engine_id: Cell<u64>,
    state: RefCell<State>,
}

/// Never borrowed across a call to Envoy that may enter the module again.
struct State {
    engine: Engine,
    /// The requests that the engine knows.
    streams: HashMap<StreamId, Stream>,
    next_stream: StreamId,
    /// Batches that wait for a way to open, each with the store that it is for.
    waiting: Vec<(u8, BatchId)>,
    report: Report,
    retires: bool,
}

#[derive(Clone, Copy)]
struct Stream {
    filter: HttpFilter,
    /// The request has no body.
    end_of_stream: bool,
    is_paused: bool,
}

/// Who decides a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Store,
    OnFailure,
}

/// What a request's hook is to do.
pub enum Verdict {
    Continue,
    Pause,
    /// Its body has to come first.
    AwaitBody(Body),
    Reject(response::Rejection),
}

/// Arms the clock for the next thing that is due.
fn arm(state: &State, now: Micros) {
    if let Some(due) = state.engine.next_tick(now).into_iter().chain(state.report.due()).min() {
        worker::arm(due);
    }
}

/// The engine may have something to send now: a settlement, or permits to release.
fn send(state: &State, now: Micros) {
    if state.engine.wants_to_send() {
        worker::wake();
        arm(state, now);
    }
}

fn fresh_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(0);
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// A number that clients cannot know.
fn seed() -> u64 {
    RandomState::new().hash_one(fresh_id())
}

impl Limiter {
    /// A limiter of this configuration for the current worker.
    pub fn new(configuration: &Arc<Configuration>) -> Option<Self> {
        // Each worker reads it for itself: what is read is not shared between threads.
        let config = Rc::new(Config::parse_for(Host::Native, &configuration.json).ok()?);
        let state = State {
            engine: Engine::new(Rc::clone(&config), seed()),
            streams: HashMap::new(),
            next_stream: 0,
            waiting: Vec::new(),
            report: Report::new(&config),
            retires: false,
        };
        let configuration = Arc::clone(configuration);
        Some(Self { configuration, config, engine_id: Cell::new(fresh_id()), state: RefCell::new(state) })
    }

    pub fn is_of(&self, configuration: &Arc<Configuration>) -> bool {
        Arc::ptr_eq(&self.configuration, configuration)
    }

    pub fn is_engine(&self, id: u64) -> bool {
        self.engine_id.get() == id
    }

    pub fn asks(&self, cluster: &str) -> bool {
        self.config.regions.all.iter().any(|region| region.cluster == cluster)
    }

    // --- Requests --------------------------------------------------------------------------------------------------

    /// A request has arrived. `stream` is set when the engine knows it.
    pub fn request(
        &self,
        filter: HttpFilter,
        end_of_stream: bool,
        stream: &Cell<Option<StreamId>>,
    ) -> Verdict {
        #[cfg(feature = "instrumented")]
        crate::instrumented::arm(filter);
        let id = self.fresh_stream();
        self.decide(id, Stream { filter, end_of_stream, is_paused: false }, By::Store, None, stream)
    }

    /// The body that a request waits for has come. As [`request`](Self::request) otherwise.
    pub fn request_with_body(
        &self,
        id: StreamId,
        filter: HttpFilter,
        body: &Body,
        stream: &Cell<Option<StreamId>>,
    ) -> Verdict {
        fault!("body");
        {
            let state = &mut *self.state.borrow_mut();
            state.engine.body_came(id, body.is_unreadable());
            state.streams.remove(&id);
            stream.set(None);
            self.report(state, now());
        }
        let arrived = Stream { filter, end_of_stream: false, is_paused: false };
        self.decide(id, arrived, By::Store, Some(body), stream)
    }

    /// The hook of a request's body has panicked: it decides the request itself.
    pub fn forget(&self, stream: StreamId) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.streams.remove(&stream);
        }
    }

    /// Whether a request waits for its body.
    pub fn awaits_body(&self, stream: StreamId) -> bool {
        self.state.borrow().engine.awaits_body(stream)
    }

    /// Whether a request is not yet let through.
    pub fn is_paused(&self, stream: StreamId) -> bool {
        self.state.borrow().streams.get(&stream).is_some_and(|stream| stream.is_paused)
    }

    /// A request whose hook has panicked: each policy's `on_failure` decides it. As [`request`](Self::request) otherwise.
    pub fn request_again(
        &self,
        filter: HttpFilter,
        end_of_stream: bool,
        stream: &Cell<Option<StreamId>>,
    ) -> Verdict {
        let id = self.fresh_stream();
        self.decide(id, Stream { filter, end_of_stream, is_paused: false }, By::OnFailure, None, stream)
    }

    /// A request has to wait for its body; `None` if it cannot.
    fn await_body(&self, id: StreamId, stream: Stream, before: BeforeBody, now: Micros) -> Option<Body> {
        let state = &mut *self.state.borrow_mut();
        if !state.engine.await_body(id, before, now) {
            state.engine.body_came(id, true);
            return None;
        }
        if !worker::ensure_clock(stream.filter) {
            state.engine.body_came(id, true);
            return None;
        }
        state.streams.insert(id, Stream { is_paused: true, ..stream });
        arm(state, now);
        self.config.body()
    }

    fn fresh_stream(&self) -> StreamId {
        let state = &mut *self.state.borrow_mut();
        let id = state.next_stream;
        state.next_stream = state.next_stream.wrapping_add(1);
        id
    }

    fn decide(
        &self,
        id: StreamId,
        stream: Stream,
        by: By,
        body: Option<&Body>,
        known: &Cell<Option<StreamId>>,
    ) -> Verdict {
        fault!("evaluation");
        let Stream { filter, end_of_stream, .. } = stream;
        let attributes = HostAttributes::new(filter, end_of_stream);
        let now = now();
        let mut unasked = Unasked::new();
        let mut evaluation = self.config.evaluate_and_note(&attributes, body, &mut unasked);
        if let Evaluation::AwaitBody(before) = evaluation {
            if by == By::Store
                && let Some(body) = self.await_body(id, stream, *before, now)
            {
                known.set(Some(id));
                self.report_unreadable(&attributes.into_failures(), now);
                return Verdict::AwaitBody(body);
            }
            let Some(body) = self.config.unreadable_body() else { return Verdict::Continue };
            evaluation = self.config.evaluate_and_note(&attributes, Some(&body), &mut unasked);
        }
        self.report_unreadable(&attributes.into_failures(), now);
        self.note(&unasked, now);
        let (checks, is_enquiry) = match evaluation {
            Evaluation::Admit | Evaluation::AwaitBody(_) => return Verdict::Continue,
            Evaluation::Deny(policy, denial) => {
                self.journal(policy, denial, now);
                let name = policy.and_then(|policy| self.config.policies.get(policy));
                let name = name.map_or("", |policy| &policy.name);
                if self.config.emit_filter_state {
                    reply::write_record(filter, [("weir.policy", name), ("weir.outcome", "denied")]);
                }
                return Verdict::Reject(response::deny(self.config.response(policy), name));
            }
            Evaluation::Check(checks) => (checks, false),
            Evaluation::Enquiry(checks) => (checks, true),
        };
        let state = &mut *self.state.borrow_mut();
        state.streams.insert(id, stream);
        known.set(Some(id));
        let mut submitted = match is_enquiry {
            true => state.engine.enquire(id, checks, now),
            false => state.engine.submit(id, checks, now),
        };
        fault!("submission");
        if matches!(submitted, Submitted::Wait) && by == By::OnFailure {
            submitted = state.engine.cannot_wait(id, now);
        }
        // It waits for the store, or is held.
        if matches!(submitted, Submitted::Wait) {
            if worker::ensure_clock(filter) {
                // While a batch is in flight its reply is the wake-up.
                if state.engine.wants_to_send() {
                    worker::wake();
                }
                // The tick decides the request at its deadline when no reply arrives.
                arm(state, now);
            } else {
                submitted = state.engine.cannot_wait(id, now);
            }
        }
        match submitted {
            Submitted::Wait => {
                state.pause(id);
                Verdict::Pause
            }
            Submitted::Decided(action) => {
                reply::record(&state.engine, id, filter);
                // No wake-up is sent for it, so no turn reports it.
                self.report(state, now);
                match action {
                    Action::Admit => Verdict::Continue,
                    Action::Reject(rejection) => Verdict::Reject(rejection),
                }
            }
        }
    }

    /// A request is denied that the engine does not know.
    fn journal(&self, policy: Option<usize>, denial: Denial, now: Micros) {
        let state = &mut *self.state.borrow_mut();
        if self.config.journal.is_some() {
            state.engine.denied(policy, denial, now);
            arm(state, now);
        }
    }

    /// The configuration has decided this about a request without asking the store.
    fn note(&self, unasked: &Unasked, now: Micros) {
        if !unasked.is_empty() {
            let state = &mut *self.state.borrow_mut();
            state.engine.note(unasked);
            self.report(state, now);
        }
    }

    fn report_unreadable(&self, failures: &[Failure], now: Micros) {
        if !failures.is_empty() {
            let state = &mut *self.state.borrow_mut();
            state.report.unreadable(failures, &mut &self.configuration.metrics, now);
        }
    }

    /// The response to a request is on its way to the client. Returns what else of it the engine has to see.
    pub fn response(&self, stream: StreamId, filter: HttpFilter) -> Watched {
        fault!("response");
        let state = &mut *self.state.borrow_mut();
        let mut watched = Watched::default();
        if self.config.settles {
            let now = now();
            let fields = |name: &str| filter.header(HeaderMap::Response, name).map(|(value, _)| value);
            watched = state.engine.response_headers(stream, &fields, now);
            send(state, now);
        }
        for header in state.engine.admission(stream).into_iter().flat_map(|admission| &admission.headers) {
            reply::add_header(filter, header);
        }
        watched
    }

    /// A part of the response's body passes.
    pub fn response_body(&self, stream: StreamId, filter: HttpFilter) {
        let state = &mut *self.state.borrow_mut();
        let show = |chunk: &[u8]| state.engine.response_body(stream, chunk.len(), chunk);
        filter.received(abi::Body::ReceivedResponse, show);
    }

    /// The trailers of the response pass.
    pub fn response_trailers(&self, stream: StreamId, filter: HttpFilter) {
        let state = &mut *self.state.borrow_mut();
        let now = now();
        let fields = |name: &str| filter.header(HeaderMap::ResponseTrailers, name).map(|(value, _)| value);
        state.engine.response_trailers(stream, &fields, now);
        send(state, now);
    }

    /// A request is over, however it ended.
    pub fn closed(&self, stream: StreamId) {
        let state = &mut *self.state.borrow_mut();
        // First of all: after a panic, the filter must not be found any more.
        if let Some(stream) = state.streams.remove(&stream) {
            worker::stop_substitute(stream.filter);
        }
        fault!("end");
        let now = now();
        state.engine.closed(stream, now);
        send(state, now);
    }

    // --- Batches ---------------------------------------------------------------------------------------------------

    /// The cluster that leads to a store.
    fn cluster(&self, store: u8) -> &str {
        self.config.regions.all.get(usize::from(store)).map_or("", |region| &region.cluster)
    }

    /// The batches that wait for a way to this cluster. They wait no longer.
    fn take_waiting(&self, state: &mut State, cluster: &str) -> Vec<BatchId> {
        let waiting = state.waiting.extract_if(.., |(store, _)| self.cluster(*store) == cluster);
        waiting.map(|(_, batch)| batch).collect()
    }

    /// A way to the store at this cluster is open.
    pub fn connected(&self, cluster: &str, now: Micros) {
        let state = &mut *self.state.borrow_mut();
        for batch in self.take_waiting(state, cluster) {
            state.engine.connected(batch, now);
        }
    }

    /// No way to the store at this cluster could be opened.
    pub fn refused(&self, cluster: &str, failure: &StoreFailure, now: Micros) {
        let state = &mut *self.state.borrow_mut();
        for batch in self.take_waiting(state, cluster) {
            state.engine.failed(batch, failure, now);
        }
    }

    /// The newest request that waits, if this is the engine.
    #[cfg(feature = "other_ways")]
    pub fn waiting_request(&self, engine: u64) -> Option<HttpFilter> {
        let state = self.state.borrow();
        let paused = state.streams.iter().filter(|(_, stream)| self.is_engine(engine) && stream.is_paused);
        paused.max_by_key(|(id, _)| **id).map(|(_, stream)| stream.filter)
    }

    /// The store has answered a batch. Returns whether the connection is good enough for the next.
    pub fn replied(&self, batch: BatchId, replies: &[u8], now: Micros) -> bool {
        fault!("reply");
        self.state.borrow_mut().engine.replied(batch, replies, now)
    }

    /// A batch gets no answer.
    pub fn failed(&self, batch: BatchId, failure: &StoreFailure, now: Micros) {
        self.state.borrow_mut().engine.failed(batch, failure, now);
    }

    /// Time has passed. Returns the batches that the engine has abandoned.
    pub fn tick(&self, now: Micros) -> Vec<Ticket> {
        let state = &mut *self.state.borrow_mut();
        state.engine.tick(now);
        let mut abandoned = Vec::new();
        while let Some(batch) = state.engine.next_abandoned() {
            state.waiting.retain(|(_, waiting)| *waiting != batch);
            abandoned.push(Ticket { limiter: self.engine_id.get(), batch });
        }
        abandoned
    }

    // --- The turn --------------------------------------------------------------------------------------------------

    /// Does what the engine decided: sends batches, releases requests, arms the clock. Returns whether the limiter is still needed.
    pub fn turn(&self) -> bool {
        fault!("turn");
        let now = now();
        if self.configuration.ended.load(Ordering::Acquire) {
            let state = &mut *self.state.borrow_mut();
            if !std::mem::replace(&mut state.retires, true) {
                state.engine.retire();
            }
        }
        while let Some(outgoing) = self.next_batch(now) {
            self.send(&outgoing, now);
        }
        for _ in 0..MAX_RELEASES {
            let Some((stream, filter, action)) = self.next_release() else { break };
            reply::record(&self.state.borrow().engine, stream, filter);
            // Nothing is borrowed: Envoy enters the module again, with the response and the end of the request.
            match action {
                Action::Admit => filter.resume(),
                Action::Reject(rejection) => reply::reject(filter, &rejection),
            }
        }
        let state = &mut *self.state.borrow_mut();
        if state.engine.has_releases() || state.engine.wants_to_send() {
            worker::wake();
        }
        self.configuration.metrics.update();
        self.report(state, now);
        arm(state, now);
        !state.retires || state.engine.in_flight() || !state.streams.is_empty()
    }

    /// Exports the statistics if it is time, or arms the clock for it.
    fn report(&self, state: &mut State, now: Micros) {
        match state.report.look(&state.engine, now) {
            Export::Now => state.report.export(&mut state.engine, &mut &self.configuration.metrics, now),
            Export::At(due) => worker::arm(due),
            Export::Nothing => {}
        }
    }

    fn next_batch(&self, now: Micros) -> Option<Outgoing> {
        self.state.borrow_mut().engine.next_batch(now)
    }

    fn send(&self, outgoing: &Outgoing, now: Micros) {
        match worker::send(self.cluster(outgoing.store), self.engine_id.get(), outgoing, now) {
            Ok(Sent::Now) => {}
            Ok(Sent::Connecting) => {
                let state = &mut *self.state.borrow_mut();
                state.waiting.push((outgoing.store, outgoing.id));
                state.engine.connecting(outgoing.id);
            }
            Err(failure) => self.failed(outgoing.id, &failure, now),
        }
    }

    /// A request that has ended meanwhile needs no release.
    fn next_release(&self) -> Option<(StreamId, HttpFilter, Action)> {
        let state = &mut *self.state.borrow_mut();
        loop {
            let release = state.engine.next_release()?;
            if let Some(stream) = state.streams.get_mut(&release.stream) {
                stream.is_paused = false;
                return Some((release.stream, stream.filter, release.action));
            }
        }
    }

    // --- Panics ----------------------------------------------------------------------------------------------------

    /// A hook has panicked, and may have left the engine half changed. It gets a new one. Each policy's `on_failure` decides the
    /// requests that wait: `local` counts them from zero. Permits that they hold end with their `ttl`.
    pub fn give_up(&self) {
        let (streams, mut engine, mut report) = {
            let Ok(mut state) = self.state.try_borrow_mut() else { return };
            self.engine_id.set(fresh_id());
            let fresh = Engine::new(Rc::clone(&self.config), seed());
            state.waiting.clear();
            let engine = std::mem::replace(&mut state.engine, fresh);
            let report = std::mem::replace(&mut state.report, Report::new(&self.config));
            (std::mem::take(&mut state.streams), engine, report)
        };
        let paused = streams.into_iter().filter(|(_, stream)| stream.is_paused);
        let mut paused: Vec<_> =
            paused.map(|(id, stream)| (id, Stream { is_paused: false, ..stream })).collect();
        // In the order in which they came.
        paused.sort_by_key(|(id, _)| *id);
        self.state.borrow_mut().streams.extend(paused.iter().copied());
        let decide = |(id, stream): (StreamId, Stream)| {
            let verdict = caught("the decision of a request that waited", || {
                self.decide(id, stream, By::OnFailure, None, &Cell::new(None))
            });
            (id, verdict.unwrap_or_else(|| self.last_resort()))
        };
        let decided: Vec<_> = paused.into_iter().map(decide).collect();
        for (id, verdict) in decided {
            // Whether one that was just released has ended this one, too.
            let filter = self.state.borrow().streams.get(&id).map(|stream| stream.filter);
            match (filter, verdict) {
                // Held, or gone.
                (_, Verdict::Pause | Verdict::AwaitBody(_)) | (None, _) => {}
                (Some(filter), Verdict::Continue) => filter.resume(),
                (Some(filter), Verdict::Reject(rejection)) => reply::reject(filter, &rejection),
            }
        }
        // Last, because the engine may be half changed: what it has counted since the last export.
        report.export(&mut engine, &mut &self.configuration.metrics, now());
        report::leave(&report, &self.config);
        let state = &mut *self.state.borrow_mut();
        self.report(state, now());
    }

    /// What becomes of a request when its decision has panicked twice. Without an engine, `local` cannot count, and it denies: a
    /// client that finds such a request must not have an open door.
    pub fn last_resort(&self) -> Verdict {
        match self.config.store.on_failure {
            OnFailure::Deny | OnFailure::Local => {
                Verdict::Reject(response::unavailable(self.config.response(None)))
            }
            OnFailure::Allow => Verdict::Continue,
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        report::leave(&self.report, self.engine.config());
    }
}

impl State {
    fn pause(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.is_paused = true;
        }
    }
}
