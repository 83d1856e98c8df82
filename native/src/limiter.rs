// SPDX-License-Identifier: Apache-2.0
//! One configuration on one worker: its engine, the requests that it knows, and its turn.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::config::{Config, Host};
use weir_core::engine::{Action, BatchId, Catalogue, Engine, Outgoing, Report, Sent, StoreFailure, StreamId};
use weir_core::policy::OnFailure;
use weir_core::request::body::Body;
use weir_core::response;
use weir_core::session::{self, Next, Session, Worker as _};
use weir_core::time::Micros;
use weir_core::version;

use crate::abi::{self, HeaderMap};
use crate::attributes::HostAttributes;
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
pub enum By {
    Store,
    OnFailure,
}

/// What has come of a request behind its headers.
pub struct Part<'a> {
    /// Shows the body.
    pub feed: &'a mut dyn FnMut(&mut Body),
    pub is_end: bool,
}

/// Arms the clock for the next thing that is due.
fn arm(state: &State, now: Micros) {
    if let Some(due) = state.engine.next_tick(now).into_iter().chain(state.report.due()).min() {
        worker::arm(due);
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

    /// A session for a request that has arrived, or whose hook has panicked.
    pub fn session(&self) -> Session {
        let state = &mut *self.state.borrow_mut();
        let id = state.next_stream;
        state.next_stream = state.next_stream.wrapping_add(1);
        Session::new(id)
    }

    /// Shows a session the headers of its request, or a part of the body, and notes what comes of it.
    pub fn request(
        &self,
        session: &mut Session,
        (filter, end_of_stream): (HttpFilter, bool),
        part: Option<Part<'_>>,
        by: By,
    ) -> Next {
        #[cfg(feature = "instrumented")]
        if part.is_none() && by == By::Store {
            crate::instrumented::arm(filter);
        }
        fault!("evaluation");
        let exchange = HostAttributes::new(filter, end_of_stream);
        let state = &mut *self.state.borrow_mut();
        let waits = (by == By::Store).then_some(filter);
        let worker = &mut self.on_worker(state, waits);
        let next = match part {
            None => session.headers(worker, &exchange),
            Some(Part { feed, is_end }) => session.body(worker, &exchange, feed, is_end),
        };
        let pauses = matches!(next, Next::Pause | Next::AwaitBody);
        if pauses && by == By::OnFailure {
            // It is held.
            worker::ensure_clock(filter);
            arm(state, now());
        }
        if session.is_known() {
            // One that was released is not paused again.
            let stream = state.streams.entry(session.stream());
            let stream = stream.and_modify(|stream| stream.is_paused &= pauses);
            stream.or_insert(Stream { filter, end_of_stream, is_paused: pauses });
        } else {
            state.streams.remove(&session.stream());
        }
        next
    }

    fn on_worker<'a>(&'a self, state: &'a mut State, waits: Option<HttpFilter>) -> OnWorker<'a> {
        OnWorker { state, metrics: &self.configuration.metrics, waits }
    }

    /// The hook of a request has panicked: the request is decided again, under another number.
    pub fn forget(&self, session: &Session) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.streams.remove(&session.stream());
        }
    }

    /// The response to a request is on its way to the client.
    pub fn response(&self, session: &mut Session, filter: HttpFilter) {
        fault!("response");
        let state = &mut *self.state.borrow_mut();
        let fields = |name: &str| filter.header(HeaderMap::Response, name).map(|(value, _)| value);
        for header in session.response_headers(&mut self.on_worker(state, None), &fields) {
            reply::add_header(filter, header);
        }
    }

    /// A part of the response's body passes.
    pub fn response_body(&self, session: &Session, filter: HttpFilter) {
        let state = &mut *self.state.borrow_mut();
        session.response_body(&mut self.on_worker(state, None), &|_, show| {
            filter.received(abi::Body::ReceivedResponse, |chunk| show(chunk.len(), chunk));
        });
    }

    /// The trailers of the response pass.
    pub fn response_trailers(&self, session: &Session, filter: HttpFilter) {
        let state = &mut *self.state.borrow_mut();
        let fields = |name: &str| filter.header(HeaderMap::ResponseTrailers, name).map(|(value, _)| value);
        session.response_trailers(&mut self.on_worker(state, None), &fields);
    }

    /// A request is over, however it ended.
    pub fn closed(&self, session: &mut Session) {
        let state = &mut *self.state.borrow_mut();
        // First of all: after a panic, the filter must not be found any more.
        if let Some(stream) = state.streams.remove(&session.stream()) {
            worker::stop_substitute(stream.filter);
        }
        fault!("end");
        session.closed(&mut self.on_worker(state, None));
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
            let write = |name: &str, value: &str| reply::write_state(filter, name, value);
            session::record(&self.state.borrow().engine, stream, &write);
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
        self.on_worker(state, None).report(now);
        arm(state, now);
        !state.retires || state.engine.in_flight() || !state.streams.is_empty()
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
        let mut paused: Vec<_> = paused.collect();
        // In the order in which they came.
        paused.sort_by_key(|(id, _)| *id);
        let decide = |(id, stream): (StreamId, Stream)| {
            let next = caught("the decision of a request that waited", || {
                let request = (stream.filter, stream.end_of_stream);
                self.request(&mut Session::new(id), request, None, By::OnFailure)
            });
            // Also one that the engine does not know: it is there until its `destroy` hook.
            let stream = Stream { is_paused: false, ..stream };
            self.state.borrow_mut().streams.entry(id).or_insert(stream);
            (id, next.unwrap_or_else(|| self.last_resort()))
        };
        let decided: Vec<_> = paused.into_iter().map(decide).collect();
        for (id, next) in decided {
            // Whether one that was just released has ended this one, too.
            let filter = self.state.borrow().streams.get(&id).map(|stream| stream.filter);
            match (filter, next) {
                // Held, or gone.
                (_, Next::Pause | Next::AwaitBody) | (None, _) => {}
                (Some(filter), Next::Continue) => filter.resume(),
                (Some(filter), Next::Reject(rejection)) => reply::reject(filter, &rejection),
            }
        }
        // Last, because the engine may be half changed: what it has counted since the last export.
        report.export(&mut engine, &mut &self.configuration.metrics, now());
        report::leave(&report, &self.config);
        let state = &mut *self.state.borrow_mut();
        self.on_worker(state, None).report(now());
    }

    /// What becomes of a request when its decision has panicked twice. Without an engine, `local` cannot count, and it denies: a
    /// client that finds such a request must not have an open door.
    pub fn last_resort(&self) -> Next {
        match self.config.store.on_failure {
            OnFailure::Deny | OnFailure::Local => {
                Next::Reject(response::unavailable(self.config.response(None)))
            }
            OnFailure::Allow => Next::Continue,
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        report::leave(&self.report, self.engine.config());
    }
}

/// The worker as the session of a request needs it.
struct OnWorker<'a> {
    state: &'a mut State,
    metrics: &'a ConfigMetrics,
    /// The request that may wait.
    waits: Option<HttpFilter>,
}

impl<'a> session::Worker for OnWorker<'a> {
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
        let is_there = self.waits.is_some_and(worker::ensure_clock);
        if is_there {
            arm(self.state, now);
        }
        is_there
    }

    fn wake(&mut self, _: Micros) {
        worker::wake();
    }
}
