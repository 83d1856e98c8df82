// SPDX-License-Identifier: Apache-2.0
//! One configuration on one worker: its engine, the requests that it knows, and its turn.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::config::{Config, ConfigError, Host};
use weir_core::engine::{
    Action, BatchId, Catalogue, EXPORT_INTERVAL, Engine, Outgoing, Report, StoreFailure, StreamId,
};
use weir_core::policy::OnFailure;
use weir_core::response;
use weir_core::session::{self, Chunk, Entry, Next, RequestTable, Session, Show, Worker as _};
use weir_core::time::Micros;
use weir_core::version;

use crate::abi::{self, HeaderMap};
use crate::attributes::HostAttributes;
use crate::connections::BatchKey;
use crate::envoy::{HttpFilter, MetricScope};
use crate::panics::caught;
use crate::report::{self, ConfigMetrics};
use crate::{now, reply, worker};

/// The most requests that one turn releases, so that the worker serves its other connections in between.
const MAX_RELEASES: usize = 64;

/// One configuration. All workers share it.
pub struct Configuration {
    /// It has no errors.
    json: Vec<u8>,
    metrics: ConfigMetrics,
    /// Envoy has removed it.
    is_removed: AtomicBool,
}

impl Configuration {
    /// Reads a configuration. If it has errors, logs each and returns `None`.
    pub fn read(json: Vec<u8>, scope: MetricScope) -> Option<Self> {
        match parse(&json) {
            Ok(config) => {
                log::info!("{}", version::loaded(config.policies.len(), config.hash));
                let metrics = ConfigMetrics::define(scope, &Catalogue::of(&config));
                Some(Self { json, metrics, is_removed: AtomicBool::new(false) })
            }
            Err(errors) => {
                errors.iter().for_each(|error| log::error!("configuration: {error}"));
                None
            }
        }
    }

    /// Envoy has removed it.
    pub fn remove(&self) {
        self.metrics.end();
        self.is_removed.store(true, Ordering::Release);
    }
}

/// A configuration, with the secret that is in the environment of Envoy.
fn parse(json: &[u8]) -> Result<Config, Vec<ConfigError>> {
    let config = Config::parse_for(Host::Native, json)?;
    config.with_secret(|name| std::env::var(name).ok()).map_err(|error| vec![error])
}

/// See the [module](self).
pub struct Limiter {
    configuration: Arc<Configuration>,
    config: Rc<Config>,
    /// Names the engine, so that it gets no reply to a batch of another.
    engine_id: Cell<u64>,
    state: RefCell<State>,
}

/// Nothing borrows it across a call to Envoy that may enter the module again.
struct State {
    engine: Engine,
    /// The requests that the engine knows.
    requests: RequestTable<HttpFilter>,
    report: Report,
    is_retiring: bool,
}

/// The authority that decides a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    Store,
    OnFailure,
}

/// Arms the clock for the next time at which something is due.
fn arm(state: &State, now: Micros) {
    if let Some(due_at) = state.engine.next_tick(now).into_iter().chain(state.report.due()).min() {
        worker::arm(due_at);
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
        // Each worker reads it for itself, because threads cannot share a `Config`.
        let config = Rc::new(parse(&configuration.json).ok()?);
        let state = State {
            engine: Engine::new(Rc::clone(&config), seed()),
            requests: RequestTable::default(),
            report: Report::new(&config),
            is_retiring: false,
        };
        let configuration = Arc::clone(configuration);
        Some(Self { configuration, config, engine_id: Cell::new(fresh_id()), state: RefCell::new(state) })
    }

    pub fn has_configuration(&self, configuration: &Arc<Configuration>) -> bool {
        Arc::ptr_eq(&self.configuration, configuration)
    }

    pub fn has_engine(&self, id: u64) -> bool {
        self.engine_id.get() == id
    }

    // --- Requests --------------------------------------------------------------------------------------------------

    /// A session for a request whose headers are there, or whose hook has panicked.
    pub fn session(&self) -> Session {
        Session::new(self.state.borrow_mut().requests.draw())
    }

    /// Shows a session the headers of its request, or a chunk of the body, and notes what the session decides.
    pub fn request(
        &self,
        session: &mut Session,
        (filter, end_of_stream): (HttpFilter, bool),
        chunk: Option<Chunk<'_>>,
        decider: Decider,
    ) -> Next {
        #[cfg(any(test, feature = "instrumented"))]
        if chunk.is_none() && decider == Decider::Store {
            crate::instrumented::arm(filter);
        }
        fault!("evaluation");
        // SAFETY: the session changes no header of the request; this hook answers the request only after these are dropped.
        let exchange = unsafe { HostAttributes::new(filter, end_of_stream) };
        let state = &mut *self.state.borrow_mut();
        let may_wait = (decider == Decider::Store).then_some(filter);
        let worker = &mut self.session_worker(state, may_wait);
        let next = match chunk {
            None => session.headers(worker, &exchange),
            Some(chunk) => session.body(worker, &exchange, chunk),
        };
        let pauses = matches!(next, Next::Pause | Next::AwaitBody);
        if pauses && decider == Decider::OnFailure {
            // `on_failure` holds it.
            worker::ensure_clock(filter);
            arm(state, now());
        }
        if session.is_known() {
            state.requests.note(session.stream(), Entry { filter, end_of_stream, is_paused: pauses });
        } else if decider == Decider::Store {
            state.requests.remove(session.stream(), filter);
        }
        next
    }

    fn session_worker<'a>(&'a self, state: &'a mut State, may_wait: Option<HttpFilter>) -> SessionWorker<'a> {
        SessionWorker { state, metrics: &self.configuration.metrics, may_wait }
    }

    /// A hook of a request has panicked: the module decides the request again, under another number.
    pub fn forget(&self, session: &Session, filter: HttpFilter) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.requests.remove(session.stream(), filter);
        }
    }

    /// One of the requests that wait.
    pub fn any_waiting(&self) -> Option<HttpFilter> {
        self.state.try_borrow().ok()?.requests.any_paused()
    }

    /// The headers of a response pass.
    pub fn response(&self, session: &mut Session, filter: HttpFilter, is_end: bool) {
        fault!("response");
        let state = &mut *self.state.borrow_mut();
        // SAFETY: the session changes no header of the response, and `add_headers` reads none after it has written one.
        let upstream = unsafe { filter.headers(HeaderMap::Response) };
        let fields = |name: &str| upstream.joined(name, b'\n').map(|(value, _)| value.into_owned());
        let worker = &mut self.session_worker(state, None);
        reply::add_headers(filter, &upstream, session.response_headers(worker, &fields, is_end));
    }

    /// A chunk of a response's body passes.
    pub fn response_body(&self, session: &mut Session, filter: HttpFilter, is_end: bool) {
        fault!("response body");
        let state = &mut *self.state.borrow_mut();
        let pass = |_: bool, show: Show<'_>| {
            filter.body_chunks(abi::Body::ReceivedResponse, |chunk| show(chunk.len(), chunk));
        };
        session.response_body(&mut self.session_worker(state, None), &pass, is_end);
    }

    /// The trailers of a response pass.
    pub fn response_trailers(&self, session: &mut Session, filter: HttpFilter, _: bool) {
        fault!("response trailers");
        let state = &mut *self.state.borrow_mut();
        // SAFETY: the session changes none of them.
        let trailers = unsafe { filter.headers(HeaderMap::ResponseTrailers) };
        let fields = |name: &str| trailers.joined(name, b'\n').map(|(value, _)| value.into_owned());
        session.response_trailers(&mut self.session_worker(state, None), &fields);
    }

    /// A request has ended, for whatever reason.
    pub fn closed(&self, session: &mut Session, filter: HttpFilter) {
        let state = &mut *self.state.borrow_mut();
        // First of all: after a panic, nothing may use the filter any more.
        state.requests.remove(session.stream(), filter);
        fault!("end");
        session.closed(&mut self.session_worker(state, None));
    }

    // --- Batches ---------------------------------------------------------------------------------------------------

    /// The cluster that leads to a store.
    fn cluster(&self, store: u8) -> &str {
        self.config.regions.all.get(usize::from(store)).map_or("", |region| &region.cluster)
    }

    /// A batch that waited for a connection can be sent now.
    pub fn connected(&self, batch: BatchId, now: Micros) {
        self.state.borrow_mut().engine.connected(batch, now);
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
    pub fn tick(&self, now: Micros) -> Vec<BatchKey> {
        fault!("tick");
        let state = &mut *self.state.borrow_mut();
        state.engine.tick(now);
        let mut abandoned = Vec::new();
        while let Some(batch) = state.engine.next_abandoned() {
            abandoned.push(BatchKey { engine: self.engine_id.get(), batch });
        }
        abandoned
    }

    // --- The turn --------------------------------------------------------------------------------------------------

    /// Does what the engine has decided: sends batches, releases requests, arms the clock. Returns whether the worker still needs the
    /// limiter.
    pub fn turn(&self) -> bool {
        fault!("turn");
        let now = now();
        if self.configuration.is_removed.load(Ordering::Acquire) {
            let state = &mut *self.state.borrow_mut();
            if !std::mem::replace(&mut state.is_retiring, true) {
                state.engine.retire();
            }
        }
        while let Some(outgoing) = self.next_batch(now) {
            self.send(&outgoing, now);
        }
        for _ in 0..MAX_RELEASES {
            let Some((stream, filter, action)) = self.next_release() else { break };
            let write = |name: &str, value: &str| reply::write_state(filter, name, value);
            session::record(&self.state.borrow().engine, stream, &write);
            // Nothing is borrowed here: Envoy enters the module again, with the response and the end of the request.
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
        self.session_worker(state, None).report(now);
        arm(state, now);
        !state.is_retiring || !state.engine.may_end() || !state.requests.is_empty()
    }

    fn next_batch(&self, now: Micros) -> Option<Outgoing> {
        self.state.borrow_mut().engine.next_batch(now)
    }

    fn send(&self, outgoing: &Outgoing, now: Micros) {
        match worker::send(self.cluster(outgoing.store), self.engine_id.get(), outgoing) {
            Ok(true) => {}
            Ok(false) => self.state.borrow_mut().engine.connecting(outgoing.id),
            Err(failure) => self.failed(outgoing.id, &failure, now),
        }
    }

    /// The next release of a request that has not ended meanwhile.
    fn next_release(&self) -> Option<(StreamId, HttpFilter, Action)> {
        let state = &mut *self.state.borrow_mut();
        loop {
            let release = state.engine.next_release()?;
            if let Some(filter) = state.requests.release(release.stream) {
                return Some((release.stream, filter, release.action));
            }
        }
    }

    // --- Panics ----------------------------------------------------------------------------------------------------

    /// A hook has panicked, and may have left the engine half changed: replaces the engine. Each policy's `on_failure` decides the
    /// requests that wait: `local` counts them from zero. Permits that they hold end with their `ttl`.
    pub fn replace_engine(&self) {
        // The panic, and what the old engine had in gauges, are counted in a turn, and perhaps nothing else is due. Not at once: turns that
        // panic each time must leave time for requests.
        worker::arm(now().plus(EXPORT_INTERVAL));
        let (paused, mut engine, mut report) = {
            let Ok(mut state) = self.state.try_borrow_mut() else { return };
            self.engine_id.set(fresh_id());
            let fresh = Engine::new(Rc::clone(&self.config), seed());
            let engine = std::mem::replace(&mut state.engine, fresh);
            let report = std::mem::replace(&mut state.report, Report::new(&self.config));
            (state.requests.take_paused(), engine, report)
        };
        let decide = |(id, Entry { filter, end_of_stream, .. })| {
            let next = caught("the decision of a request that waited", || {
                self.request(&mut Session::new(id), (filter, end_of_stream), None, Decider::OnFailure)
            });
            let next = next.unwrap_or_else(|| self.decide_without_engine());
            let is_held = matches!(next, Next::Pause | Next::AwaitBody);
            self.state.borrow_mut().requests.set_paused(id, is_held);
            (id, next)
        };
        let decided: Vec<_> = paused.into_iter().map(decide).collect();
        for (id, next) in decided {
            // To release one request may have ended this one, too.
            let filter = self.state.borrow().requests.filter(id);
            match (filter, next) {
                // `on_failure` holds it, or it has ended.
                (_, Next::Pause | Next::AwaitBody) | (None, _) => {}
                (Some(filter), Next::Continue) => filter.resume(),
                (Some(filter), Next::Reject(rejection)) => reply::reject(filter, &rejection),
            }
        }
        // Exports the counts of the old engine since the last export. Last, because this may panic: the engine may be half changed.
        fault!("export");
        report.export(&mut engine, &mut &self.configuration.metrics, now());
        report::add_residues(&report, &self.config);
        let state = &mut *self.state.borrow_mut();
        self.session_worker(state, None).report(now());
    }

    /// Decides a request whose decision has panicked twice. Without an engine, `local` cannot count, so it denies: otherwise a client that
    /// finds such a request could evade the limits.
    pub fn decide_without_engine(&self) -> Next {
        match self.config.store.on_failure {
            OnFailure::Deny | OnFailure::Local => {
                Next::Reject(response::unavailable(self.config.response(None)).into())
            }
            OnFailure::Allow => Next::Continue,
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        report::add_residues(&self.report, self.engine.config());
    }
}

/// The worker, for the session of a request.
struct SessionWorker<'a> {
    state: &'a mut State,
    metrics: &'a ConfigMetrics,
    /// The request, if it may wait for the store.
    may_wait: Option<HttpFilter>,
}

impl<'a> session::Worker for SessionWorker<'a> {
    type Metrics = &'a ConfigMetrics;

    fn parts(&mut self) -> (&mut Engine, &mut Report, &mut &'a ConfigMetrics) {
        (&mut self.state.engine, &mut self.state.report, &mut self.metrics)
    }

    fn now(&self) -> Micros {
        now()
    }

    fn arm(&mut self, now: Micros) {
        arm(self.state, now);
    }

    fn wait(&mut self, now: Micros) -> bool {
        fault!("submission");
        let is_there = self.may_wait.is_some_and(worker::ensure_clock);
        if is_there {
            arm(self.state, now);
        }
        is_there
    }

    fn wake(&mut self, _: Micros) {
        worker::wake();
    }
}
