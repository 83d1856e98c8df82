//! The HTTP filter: pauses a request, has the [engine](crate::engine) ask about it, and does what it says.
//!
//! ```text
//!  request headers ─▶ submit ─▶ paused; the root's timer is armed, and the root is woken through the worker's own queue
//!                                  │ (a later turn of the event loop: what arrives meanwhile joins the batch)
//!  root: on_queue_ready ─▶ turn ─▶ a message on a stream to the bridge
//!  root: on_grpc_stream_message ─▶ replied ─▶ turn: next batch out first, then up to 64 requests released
//! ```
//!
//! Batches leave from the root context only: the host cancels what a request has begun when its client disconnects, and
//! a batch belongs to many clients.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{self, BufferType, ContextType, GrpcStatusCode, MapType};

use super::attributes::{HostAttributes, RequestAttributes};
use super::report::Report;
use super::streams::HostStreams;
use super::{done, now};
use crate::config::{Config, Evaluation};
use crate::decision::{self, Header, Rejection};
use crate::engine::{Action, Began, Closed, Engine, Sent, StoreFailure, Streams, Submitted, Timer};
use crate::policy::response::Upstream;
use crate::request;
use crate::shared::{self, Shared};
use crate::time::Micros;

/// At most this many requests are released in one callback. Local replies nest on the VM's stack: 256 held,
/// 1,000 overflowed it.
const MAX_RELEASES: usize = 64;

/// A wake-up that has not come after this long is lost. The timer does its work, and the next one is sent.
const WAKE_UP: Micros = Micros::from_secs(1);

/// One per worker and configuration.
pub struct Root {
    id: u32,
    /// Absent until the configuration is accepted.
    worker: Option<Rc<RefCell<Worker>>>,
    /// Envoy has told it to end, and waits for it to say that it has.
    ending: bool,
}

impl Root {
    pub const fn new(id: u32) -> Self {
        Self { id, worker: None, ending: false }
    }

    /// Tells the worker what has happened, and does what the engine wants done then: sends batches, releases requests,
    /// sets the timer, ends. Only the callbacks of the timer and the queue may open a stream: see
    /// [`Streams`](crate::engine::Streams).
    fn turn(&mut self, may_open: bool, happens: &dyn Fn(&mut Worker, Micros)) {
        let Some(worker) = &self.worker else { return };
        let now = now();
        {
            let mut worker = worker.borrow_mut();
            worker.streams.begin_callback(may_open);
            happens(&mut worker, now);
            let Worker { engine, streams, .. } = &mut *worker;
            streams.rotate(now);
            while let Some(batch) = streams.next_ready(now) {
                engine.connected(batch, now);
            }
            // The SDK files a stream under the context it believes active, and a release changes that belief: batches go
            // first. Sending enters no filter of ours again: the host calls back when its call is over.
            while let Some(outgoing) = engine.next_batch(now) {
                let batch = outgoing.id;
                match streams.send(outgoing, now) {
                    Ok(Sent::Now) => {}
                    Ok(Sent::Connecting) => engine.connecting(batch),
                    Err(failure) => engine.failed(batch, &failure, now),
                }
            }
        }
        for _ in 0..MAX_RELEASES {
            // A release enters the filter again, for the response it makes: nothing may stay borrowed.
            let Some(release) = worker.borrow_mut().engine.next_release() else { break };
            // A stream that is gone cannot be made effective; then there is nothing to release.
            if hostcalls::set_effective_context(release.stream).is_ok() {
                record(&worker.borrow(), release.stream);
                match release.action {
                    Action::Admit => {
                        done("resuming a request", hostcalls::resume_http_request());
                    }
                    Action::Reject(rejection) => reject(&rejection),
                }
            }
        }
        done("making the root context effective again", hostcalls::set_effective_context(self.id));
        let mut worker = worker.borrow_mut();
        if worker.engine.has_releases()
            || worker.engine.wants_to_send()
            || worker.streams.waits_for_callback(now)
        {
            worker.wake(now);
        }
        worker.arm(now);
        worker.report(now);
        if self.ending && !worker.engine.in_flight() {
            self.ending = false;
            done("ending the root context", hostcalls::done());
        }
    }
}

impl Context for Root {
    fn on_grpc_stream_initial_metadata(&mut self, token: u32, _headers: u32) {
        self.turn(false, &|worker, now| match worker.streams.began(token, now) {
            Some(Began::Connected(batch)) => worker.engine.connected(batch, now),
            Some(Began::Failed(batch, failure)) => worker.engine.failed(batch, &failure, now),
            None => {}
        });
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        self.turn(false, &|worker, now| {
            let Some(batch) = worker.streams.answered(token) else { return };
            match hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size) {
                Ok(Some(bytes)) => {
                    let well = worker.engine.replied(batch, &bytes, now);
                    worker.streams.judge(token, well, now);
                }
                _ => worker.engine.failed(batch, &StoreFailure::BadReply, now),
            }
        });
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        self.turn(false, &|worker, now| {
            match worker.streams.closed(token, status, now) {
                Closed::Idle => {}
                Closed::Fresh => log::warn!(
                    "store: a fresh connection could not be opened; the one that is open stays in use, where the store's name led to before"
                ),
                Closed::Lost(batch, failure) => worker.engine.failed(batch, &failure, now),
            }
        });
    }

    /// What the worker holds in advance goes back before it ends.
    fn on_done(&mut self) -> bool {
        self.turn(false, &|worker, _| worker.engine.retire());
        self.ending = self.worker.as_ref().is_some_and(|worker| worker.borrow().engine.in_flight());
        !self.ending
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        // Envoy also configures a throw-away VM on its main thread: nothing may begin here.
        let json = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size)
            .ok()
            .flatten()
            .unwrap_or_default();
        match Config::parse(&json) {
            Ok(config) => {
                self.worker = Some(Rc::new(RefCell::new(Worker::new(Rc::new(config), self.id))));
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
        Some(Box::new(Request { id, worker: Rc::clone(worker), submitted: false }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn on_queue_ready(&mut self, queue: u32) {
        // The message says nothing; it is the wake-up that counts.
        let _ = hostcalls::dequeue_shared_queue(queue);
        self.turn(true, &|worker, _| {
            worker.woken = None;
            worker.streams.clear();
        });
    }

    fn on_tick(&mut self) {
        self.turn(true, &|worker, now| {
            worker.engine.tick(now);
            while let Some(batch) = worker.engine.next_given_up() {
                worker.streams.give_up(batch, now);
            }
            worker.streams.clear();
        });
        if let Some(worker) = &self.worker {
            worker.borrow_mut().timer_fired(now());
        }
    }
}

/// What the streams of one worker share with its root context.
struct Worker {
    engine: Engine,
    streams: Streams<HostStreams>,
    /// The queue that wakes this worker's root; absent until the first request.
    queue: Option<u32>,
    /// When the wake-up that is on its way was sent.
    woken: Option<Micros>,
    timer: Timer,
    report: Report,
}

impl Worker {
    fn new(config: Rc<Config>, root: u32) -> Self {
        let streams = Streams::new(HostStreams { cluster: config.store.cluster.clone() });
        Self {
            // When a worker began, to the microsecond, is nobody's to know.
            engine: Engine::new(config, now().0 ^ u64::from(root).rotate_left(32)),
            streams,
            queue: None,
            woken: None,
            timer: Timer::default(),
            report: Report::default(),
        }
    }

    /// Has the root called on a later turn of this worker's event loop. It may fail: nothing depends on it but how soon.
    fn wake(&mut self, now: Micros) {
        if self.woken.is_some_and(|sent| sent <= now && now.since(sent) < WAKE_UP) {
            return;
        }
        self.woken = Some(now);
        if self.queue.is_none() {
            self.queue = open_queue();
        }
        if let Some(queue) = self.queue {
            done("waking the worker", hostcalls::enqueue_shared_queue(queue, None));
        }
    }

    /// Sees to it that the root is called when something is due; whether it is. Any callback may do that, of the root or of
    /// a request: the host files the timer under the root in either case.
    fn arm(&mut self, now: Micros) -> bool {
        let period = self.timer.arm(self.next_tick(now), now);
        self.set_timer(period)
    }

    fn timer_fired(&mut self, now: Micros) {
        let period = self.timer.fired(self.next_tick(now), now);
        self.set_timer(period);
    }

    fn next_tick(&self, now: Micros) -> Option<Micros> {
        self.engine.next_tick(now).into_iter().chain(self.streams.next_clear(now)).min()
    }

    fn set_timer(&mut self, millis: Option<u64>) -> bool {
        let Some(millis) = millis else { return true };
        let set = done("setting the tick period", hostcalls::set_tick_period(Duration::from_millis(millis)));
        if !set {
            self.timer.lost();
        }
        set
    }

    fn report(&mut self, now: Micros) {
        self.report.update(&mut self.engine, now);
    }
}

/// One request.
struct Request {
    id: u32,
    worker: Rc<RefCell<Worker>>,
    /// The engine knows it. What no policy is about costs nothing more after its headers.
    submitted: bool,
}

impl Context for Request {
    fn on_done(&mut self) -> bool {
        if !self.submitted {
            return true;
        }
        let mut worker = self.worker.borrow_mut();
        let now = now();
        worker.engine.closed(self.id, now);
        // Leases of this request may wait to be released.
        if worker.engine.wants_to_send() {
            worker.wake(now);
            worker.arm(now);
        }
        true
    }
}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> types::Action {
        let mut worker = self.worker.borrow_mut();
        let config = Rc::clone(worker.engine.config());
        let checks = match config.evaluate(&RequestAttributes::new(end_of_stream)) {
            Evaluation::Admit => return types::Action::Continue,
            Evaluation::Deny(policy, _) => {
                drop(worker);
                let name =
                    policy.and_then(|policy| config.policies.get(policy)).map_or("", |policy| &policy.name);
                if config.emit_filter_state {
                    leave([("weir.policy", name), ("weir.outcome", "denied")]);
                }
                reject(&decision::deny(config.response(policy), name));
                return types::Action::Pause;
            }
            Evaluation::Check(checks) => checks,
        };
        self.submitted = true;
        let now = now();
        let mut submitted = worker.engine.submit(self.id, checks, now);
        if let Submitted::Wait = submitted {
            // While a batch flies its reply is the wake-up.
            if worker.engine.wants_to_send() {
                worker.wake(now);
            }
            // The clock is looked at whether or not a wake-up or a reply ever comes.
            if !worker.arm(now) {
                submitted = worker.engine.cannot_wait(self.id, now);
            }
        }
        if let Submitted::Decided(_) = submitted {
            record(&worker, self.id);
            // Nothing wakes the root on its behalf.
            worker.report(now);
        }
        match submitted {
            Submitted::Wait => types::Action::Pause,
            Submitted::Decided(Action::Admit) => types::Action::Continue,
            Submitted::Decided(Action::Reject(rejection)) => {
                drop(worker);
                reject(&rejection);
                types::Action::Pause
            }
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> types::Action {
        if !self.submitted {
            return types::Action::Continue;
        }
        let worker = self.worker.borrow();
        if let Some(admission) = worker.engine.admission(self.id) {
            for header in &admission.headers {
                respond_with(header);
            }
        }
        types::Action::Continue
    }
}

/// Answers the effective stream's request in the upstream's place.
fn reject(rejection: &Rejection) {
    let sent = if request::is_grpc(&HostAttributes) {
        reject_grpc(rejection)
    } else {
        let headers = rejection.headers.iter().map(|header| (header.name, header.value.as_str())).collect();
        let body = rejection.body.as_bytes();
        hostcalls::send_http_response(u32::from(rejection.status), headers, Some(body))
    };
    done("rejecting a request", sent);
}

fn reject_grpc(rejection: &Rejection) -> Result<(), types::Status> {
    let grpc = &rejection.grpc;
    let code = match grpc.code {
        7 => GrpcStatusCode::PermissionDenied,
        14 => GrpcStatusCode::Unavailable,
        _ => GrpcStatusCode::ResourceExhausted,
    };
    let headers = rejection.headers.iter().filter(|header| header.name != "content-type");
    let pushback = grpc.pushback.iter().map(|millis| ("grpc-retry-pushback-ms", millis.as_bytes()));
    let metadata = headers.map(|header| (header.name, header.value.as_bytes())).chain(pushback).collect();
    hostcalls::send_grpc_response(code, Some(grpc.message), metadata)
}

/// Leaves the decision about the effective stream's request where access logs and later filters can read it.
fn record(worker: &Worker, stream: u32) {
    let Some(record) = worker.engine.record(stream) else { return };
    let remaining = record.remaining.map(|remaining| remaining.to_string()).unwrap_or_default();
    leave([
        ("weir.policy", record.policy),
        ("weir.limit", record.limit),
        ("weir.outcome", record.outcome),
        ("weir.remaining", &remaining),
        ("weir.source", record.source),
    ]);
}

/// Writes to the filter state of the effective stream.
fn leave<const N: usize>(values: [(&str, &str); N]) {
    for (name, value) in values {
        done("recording a decision", hostcalls::set_property(vec![name], Some(value.as_bytes())));
    }
}

/// Puts a header on the effective stream's response, beside or in place of the upstream's.
fn respond_with(header: &Header) {
    let (map, name, value) = (MapType::HttpResponseHeaders, header.name, header.value.as_str());
    let set = match header.upstream {
        Upstream::Replace => hostcalls::set_map_value(map, name, Some(value)),
        Upstream::Append => hostcalls::add_map_value(map, name, value),
        Upstream::Keep => match hostcalls::get_map_value_bytes(map, name) {
            Ok(Some(_)) => Ok(()),
            _ => hostcalls::set_map_value(map, name, Some(value)),
        },
    };
    done("setting a response header", set);
}

/// Registers the queue that wakes this worker. A queue belongs to the thread that registered its name last, so
/// the name must be this worker's alone.
fn open_queue() -> Option<u32> {
    let queue = shared::draw(&Numbers)
        .and_then(|number| hostcalls::register_shared_queue(&format!("weir.wake.{number}")));
    queue.inspect_err(|status| log::error!("no queue can be registered to wake this worker: {status:?}")).ok()
}

/// What all workers of this process draw their numbers from.
struct Numbers;

impl Numbers {
    const KEY: &str = "weir.workers";
    /// Only its version counts.
    const VALUE: &[u8] = b"1";
}

impl Shared for Numbers {
    type Error = types::Status;

    fn version(&self) -> Result<Option<u32>, types::Status> {
        hostcalls::get_shared_data(Self::KEY).map(|(_, version)| version)
    }

    fn write(&self) -> Result<(), types::Status> {
        hostcalls::set_shared_data(Self::KEY, Some(Self::VALUE), None)
    }

    fn replace(&self, version: u32) -> Result<bool, types::Status> {
        match hostcalls::set_shared_data(Self::KEY, Some(Self::VALUE), Some(version)) {
            Ok(()) => Ok(true),
            Err(types::Status::CasMismatch) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
