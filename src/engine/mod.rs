//! The per-worker state machine: which requests wait, what is asked of the store on their behalf, and what
//! becomes of them. Plain values in, plain values out; the host owns the sockets, the timers and the clock.
//!
//! ```text
//!  submit ──▶ waiting ──▶ next_batch ──▶ (the store) ──▶ replied ──▶ decided ──▶ next_release
//!                │                           │               │          │
//!                │ deadline (tick)           │ NOSCRIPT      │ failed   │ delay: held until its turn (tick)
//!                └─▶ on_failure: allow|deny ◀┼───────────────┘          │
//!                                            └─▶ asked again with EVAL  └─▶ denied: other policies' grants go back
//!
//!  closed: the stream is over. A waiting request loses its seat, a held one its place, leases are released. A rejected
//!          one is remembered while parts of it are in flight: a grant that arrives late is refunded.
//! ```
//!
//! A request is decided exactly once; the reply that comes after its deadline finds it decided and only sees to
//! it that nothing leaks.

mod batch;
mod breaker;
mod congestion;
mod denied;
mod failure;
mod flights;
mod lease;
mod local;
mod request;
mod seed;
mod streams;
mod timer;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::slice;

use crate::bridge;
use crate::config::Config;
use crate::decision::{self, Admission, Answer, Finding, Record, Rejection, Verdict};
use crate::limit::{Ask, Outcome};
use crate::policy::{Check, Few, Mode};
use crate::resp;
use crate::script::{Form, Plan};
use crate::time::Micros;

use batch::{Batch, Body, Command, Queue, Taken, Task, Waiter, Work};
use breaker::{Breakers, Carrier};
use denied::Denied;
use flights::{Flights, Instant, Lane, Lanes};
use lease::{Leases, Returned, Served};
use local::Local;
use request::{Paid, Part, Request, State, answers};
use seed::Seed;

pub use breaker::Outage;
pub use failure::StoreFailure;
pub use streams::{Began, Closed, Sent, Streams, Token, Transport};
pub use timer::Timer;

/// The host's name for one request.
pub type StreamId = u32;

/// Names one batch in flight.
pub type BatchId = u32;

/// At most this many requests of one worker wait for the store; one more is decided as if the store were away.
const MAX_WAITING: usize = 16_384;

/// At most this many requests of one worker are held for `max_delay`; one more is rejected.
const MAX_HELD: usize = 4_096;

/// How often the clock that deadlines are measured on advances.
const TICK: Micros = Micros::from_millis(5);

/// By how much it advances at most, from one tick to the next.
///
/// A worker that is busy for longer than a deadline has the answers in its sockets already, but needs some turns
/// of its event loop to read them: a clock that ran on meanwhile would turn a burst into a failure of the store.
/// So this one advances with the ticks of the loop. An idle loop's clock is a wall clock, also where ticks are late.
const STEP: Micros = Micros::from_millis(10);

/// What became of a request that was just submitted.
#[derive(Debug)]
pub enum Submitted {
    /// Hold it: its verdict comes out of [`Engine::next_release`].
    Wait,
    /// It is decided already.
    Decided(Action),
}

/// A batch to send to the bridge now.
#[derive(Debug)]
pub struct Outgoing {
    /// To be handed back with the reply.
    pub id: BatchId,
    /// The RESP commands.
    pub body: Vec<u8>,
}

/// What to do with a request that was paused.
#[derive(Debug)]
pub enum Action {
    /// Let it through; [`Engine::admission`] says what its response is to carry.
    Admit,
    /// Answer in the upstream's place.
    Reject(Rejection),
}

/// A request whose time has come.
#[derive(Debug)]
pub struct Release {
    /// Whose.
    pub stream: StreamId,
    /// What to do with it.
    pub action: Action,
}

/// Counts since the worker began. The host exports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests let through.
    pub admitted: u64,
    /// Requests rejected.
    pub rejected: u64,
    /// Requests of which at least one policy was decided without the store, because it failed, was late, or was not asked.
    pub fallback: u64,
    /// Batches sent.
    pub batches: u64,
    /// Commands sent.
    pub commands: u64,
}

/// The worker's uptime: the host's clock without the times that it was set back, so that nothing lasts longer for that.
#[derive(Debug, Default)]
struct Uptime {
    last: Micros,
    elapsed: Micros,
}

impl Uptime {
    /// What it is at this time of the host's clock.
    const fn at(&self, now: Micros) -> Micros {
        self.elapsed.plus(now.since(self.last))
    }

    const fn advance(&mut self, now: Micros) -> Micros {
        self.elapsed = self.at(now);
        self.last = now;
        self.elapsed
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Engine {
    config: Rc<Config>,
    /// The host chooses the numbers, so they need no [`Seed`].
    requests: HashMap<StreamId, Request, foldhash::fast::FixedState>,
    /// Waiting requests in the order of their deadlines; those decided meanwhile are skipped.
    deadlines: VecDeque<(Micros, StreamId)>,
    /// See [`STEP`].
    clock: Micros,
    /// The host's time at the last tick.
    last_tick: Micros,
    uptime: Uptime,
    /// How many of [`requests`](Self::requests) wait for the store.
    waiting: usize,
    /// Requests that are granted and wait for their turn, soonest first, by the worker's uptime.
    held: BTreeSet<(Micros, StreamId)>,
    queues: Lanes<Queue>,
    denied: Denied,
    leases: Leases,
    local: Local,
    breakers: Breakers,
    flights: Flights,
    given_up: Vec<BatchId>,
    releases: VecDeque<Release>,
    failures: Vec<StoreFailure>,
    counters: Counters,
    is_retired: bool,
}

impl Engine {
    /// An engine for one worker under one configuration. `seed` is any number that clients cannot know.
    #[must_use]
    pub fn new(config: Rc<Config>, seed: u64) -> Self {
        Self {
            queues: Lanes {
                main: Queue::new(config.store.topology, Seed(seed)),
                doubtful: Queue::new(config.store.topology, Seed(seed)),
            },
            flights: Flights::new(config.store.deadline),
            config,
            requests: HashMap::default(),
            deadlines: VecDeque::new(),
            clock: Micros::ZERO,
            last_tick: Micros::ZERO,
            uptime: Uptime::default(),
            waiting: 0,
            held: BTreeSet::new(),
            denied: Denied::new(Seed(seed)),
            leases: Leases::new(Seed(seed)),
            local: Local::new(Seed(seed)),
            breakers: Breakers::new(seed),
            given_up: Vec::new(),
            releases: VecDeque::new(),
            failures: Vec::new(),
            counters: Counters::default(),
            is_retired: false,
        }
    }

    /// The configuration this engine decides under.
    #[must_use]
    pub fn config(&self) -> &Rc<Config> {
        &self.config
    }

    /// Counts since the worker began.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What went wrong with the store since this was last asked.
    pub fn take_failures(&mut self) -> Vec<StoreFailure> {
        std::mem::take(&mut self.failures)
    }

    /// A request arrived that these checks apply to.
    pub fn submit(&mut self, stream: StreamId, checks: Few<Check>, now: Micros) -> Submitted {
        let part = |check: Check| {
            let answer = self.denied.look_up(&check, now).map(Answer::DeniedUntil);
            Part { check: Rc::new(check), answer, in_flight: false, paid: None }
        };
        let mut request = Request { parts: checks.into_iter().map(part).collect(), state: State::Waiting };
        // One denial that counts is enough: what the other policies would say is not asked.
        let denied =
            request.parts.iter().any(|part| part.answer.is_some() && part.check.mode == Mode::Enforce);
        if !denied {
            for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
                let limits = self.config.plan(&part.check).map_or(&[][..], Plan::limits);
                if let Some(Served { finding, paid }) = self.leases.serve(&part.check, limits, now) {
                    (part.answer, part.paid) = (Some(Answer::Lease(finding)), Some(Paid::Store(paid)));
                }
            }
        }
        let known = denied || request.parts.iter().all(|part| part.answer.is_some());
        self.requests.insert(stream, request);
        self.waiting = self.waiting.saturating_add(1);
        if known {
            self.decide(stream, now);
        } else if self.seat(stream, now) {
            return Submitted::Wait;
        }
        // Decided a line above; unless it is held now, the youngest release is its own.
        match self.releases.pop_back_if(|release| release.stream == stream) {
            Some(release) => Submitted::Decided(release.action),
            None => Submitted::Wait,
        }
    }

    /// A request that was just submitted cannot wait, for no timer runs: `on_failure` decides it now.
    pub fn cannot_wait(&mut self, stream: StreamId, now: Micros) -> Submitted {
        self.give_up(stream, now);
        match self.releases.pop_back_if(|release| release.stream == stream) {
            Some(release) => Submitted::Decided(release.action),
            None => Submitted::Wait,
        }
    }

    /// Seats the parts of a request that nothing is known about, and decides those that cannot be asked about without the
    /// store. Whether the request waits; it is decided if not.
    fn seat(&mut self, stream: StreamId, now: Micros) -> bool {
        let uptime = self.uptime.advance(now);
        let store_admits = self.breakers.store_admits(uptime);
        let is_full = self.waiting > MAX_WAITING;
        let is_crowded =
            Lanes { main: self.is_crowded(Lane::Main), doubtful: self.is_crowded(Lane::Doubtful) };
        let Some(request) = self.requests.get_mut(&stream) else { return false };
        let (mut overloaded, mut fell_back) = (false, false);
        let mut asked: Few<(usize, Lane)> = Few::new();
        for (index, part) in request.parts.iter_mut().enumerate().filter(|(_, part)| part.answer.is_none()) {
            let lane = self.breakers.lane(&part.check.tag);
            let admits = store_admits && self.breakers.slots_admit(&part.check.tag, uptime);
            if admits && !is_full && !is_crowded.of(lane) {
                asked.push((index, lane));
                continue;
            }
            overloaded |= admits;
            fell_back = true;
            fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        }
        if overloaded {
            self.failures.push(StoreFailure::Overloaded);
        }
        // As above: if `on_failure` rejects the request, nothing is charged for it.
        let verdict = fell_back.then(|| decision::decide(&self.config.policies, answers(&request.parts)));
        if asked.is_empty() || matches!(verdict, Some(Verdict::Reject(_))) {
            self.decide(stream, now);
            return false;
        }
        for (part, lane) in asked {
            let Some(Part { check, .. }) = request.parts.get(part) else { continue };
            self.breakers.waits(&check.tag, stream, uptime);
            let subjects = self.config.plan(check).map_or(1, Plan::subjects);
            self.queues.of_mut(lane).ask(check, Waiter { stream, part }, subjects);
        }
        self.deadlines.push_back((self.deadline(), stream));
        true
    }

    /// The next batch to send, if one may go now.
    pub fn next_batch(&mut self, now: Micros) -> Option<Outgoing> {
        let uptime = self.uptime.advance(now);
        if !self.breakers.sends(uptime) {
            return None;
        }
        let (lane, mut batch) = self.take(Lane::Main, now).or_else(|| self.take(Lane::Doubtful, now))?;
        let config = Rc::clone(&self.config);
        let mut body = Body::new(config.store.topology);
        let unfit = batch.iter_mut().position(|command| !self.encode(command, &config, &mut body, now));
        let fits = unfit.unwrap_or(batch.len());
        self.queues.of_mut(lane).repeat(batch.split_off(fits));
        self.mark(&batch, true);
        self.counters.batches = self.counters.batches.saturating_add(1);
        self.counters.commands = self.counters.commands.saturating_add(batch.len() as u64);
        let id = self.flights.next_id();
        self.breakers.sent(id, batch::asks(&batch), uptime);
        let (left, is_probe) = ((now, self.instant()), self.breakers.is_open());
        self.flights.leave(lane, batch, left, self.deadline(), is_probe);
        Some(Outgoing { id, body: body.bytes })
    }

    /// Writes a command, and what it asks for in advance; whether it still fits.
    fn encode<'a>(
        &mut self,
        command: &mut Command,
        config: &'a Config,
        body: &mut Body<'a>,
        now: Micros,
    ) -> bool {
        for Task { check, work } in &mut command.tasks {
            if let (Some(lease), Work::Ask { waiters, advance }) = (config.lease(check), work) {
                let waiting = u32::try_from(waiters.len()).unwrap_or(u32::MAX);
                *advance = self.leases.take(check, lease, waiting, now);
            }
        }
        let plan = command.tasks.first().and_then(|task| config.plan(&task.check));
        let fits = plan.is_none_or(|plan| body.push(command, plan));
        if !fits {
            self.asks_anew(command);
        }
        fits
    }

    /// What a command asks for in advance is asked for when it is sent again.
    fn asks_anew(&mut self, command: &Command) {
        for Task { check, work } in &command.tasks {
            if let Work::Ask { advance, .. } = work {
                self.leases.arrived(check, *advance);
            }
        }
    }

    /// The batch needs a new connection, and the host has begun to open it. The batch has not been sent; when the connection
    /// is there the host calls [`connected`](Self::connected), and the next batch goes that way.
    pub fn connecting(&mut self, id: BatchId) {
        let Some(batch) = self.flights.connects(id) else { return };
        self.counters.batches = self.counters.batches.saturating_sub(1);
        self.counters.commands = self.counters.commands.saturating_sub(batch.len() as u64);
    }

    /// The connection of a batch is there: what waits can be sent.
    pub fn connected(&mut self, id: BatchId, now: Micros) {
        let uptime = self.uptime.advance(now);
        let Some(flight) = self.flights.end(id) else { return };
        flight.batch.iter().for_each(|command| self.asks_anew(command));
        self.send_again(id, flight.lane, flight.batch);
        self.breakers.ended(Carrier::Batch(id), uptime);
    }

    /// Commands of a batch that has ended go to the head of the queue.
    fn send_again(&mut self, id: BatchId, lane: Lane, commands: Batch) {
        // The store has not run them: nothing can be granted before they are sent again.
        self.mark(&commands, false);
        // Only a request that still waits can carry a probe on.
        let waits = |stream| self.requests.get(&stream).is_some_and(Request::waits);
        self.breakers.sent_back(id, batch::asks(&commands).filter(|(_, stream)| waits(*stream)));
        self.queues.of_mut(lane).repeat(commands);
    }

    /// Now, by both clocks.
    const fn instant(&self) -> Instant {
        Instant { clock: self.clock, uptime: self.uptime.elapsed }
    }

    /// Marks what a batch asks for as in flight, or not any more.
    fn mark(&mut self, batch: &[Command], in_flight: bool) {
        for Task { work, .. } in batch.iter().flat_map(|command| &command.tasks) {
            if let Work::Ask { waiters, .. } = work {
                for waiter in waiters {
                    self.mark_part(*waiter, in_flight);
                }
            }
        }
    }

    fn mark_part(&mut self, waiter: Waiter, in_flight: bool) {
        let request = self.requests.get_mut(&waiter.stream);
        if let Some(part) = request.and_then(|request| request.parts.get_mut(waiter.part)) {
            part.in_flight = in_flight;
        }
        if !in_flight {
            self.forget_closed(waiter.stream);
        }
    }

    /// A request whose stream is closed is forgotten when nothing of it is in flight.
    fn forget_closed(&mut self, stream: StreamId) {
        let over = |request: &Request| matches!(request.state, State::Closed) && !request.in_flight();
        if self.requests.get(&stream).is_some_and(over) {
            self.requests.remove(&stream);
        }
    }

    /// The next batch of a lane, if one may go.
    fn take(&mut self, lane: Lane, now: Micros) -> Option<(Lane, Batch)> {
        let room = self.flights.room(lane, self.instant());
        if room == 0 {
            return None;
        }
        loop {
            let requests = &self.requests;
            let waits = |waiter: Waiter| requests.get(&waiter.stream).is_some_and(Request::waits);
            let mut batch = self.queues.of_mut(lane).take(room, waits)?;
            if lane == Lane::Main && self.breakers.doubt() {
                // While it gathered some slots became doubtful.
                let doubted = |command: &mut Command| {
                    let first = command.tasks.first();
                    first.is_some_and(|task| self.breakers.lane(&task.check.tag) == Lane::Doubtful)
                };
                let doubtful = batch.extract_if(.., doubted).collect();
                self.queues.doubtful.repeat(doubtful);
            }
            self.serve(&mut batch, now);
            if !batch.is_empty() {
                return Some((lane, batch));
            }
        }
    }

    /// Decides without the store what has become known since these requests came: a subject that was denied meanwhile is
    /// denied, and who came while a lease was on its way here is served from it.
    fn serve(&mut self, batch: &mut Batch, now: Micros) {
        let (config, leases, denied) = (&self.config, &mut self.leases, &mut self.denied);
        let mut served = Vec::new();
        batch.retain_mut(|command| {
            command.tasks.retain(|Task { check, work }| {
                let Work::Ask { waiters, .. } = work else { return true };
                if let Some(finding) = denied.look_up(check, now) {
                    let denial =
                        |waiter| (waiter, Rc::clone(check), Answer::DeniedUntil(finding.clone()), None);
                    served.extend(waiters.drain(..).map(denial));
                    return false;
                }
                let (Some(_), Some(plan)) = (config.lease(check), config.plan(check)) else { return true };
                waiters.retain(|waiter| {
                    let found = leases.serve(check, plan.limits(), now);
                    let left = found.is_none();
                    served.extend(found.map(|Served { finding, paid }| {
                        (*waiter, Rc::clone(check), Answer::Lease(finding), Some(paid))
                    }));
                    left
                });
                !waiters.is_empty()
            });
            !command.tasks.is_empty()
        });
        for (waiter, check, answer, paid) in served {
            self.deliver(waiter, &check, answer, paid, now);
        }
    }

    /// Whether a batch could go now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        let could = |lane| !self.queues.of(lane).is_empty() && self.flights.room(lane, self.instant()) > 0;
        self.breakers.sends(self.uptime.elapsed) && (could(Lane::Main) || could(Lane::Doubtful))
    }

    /// Whether so many tasks wait already that one more could not be answered in time.
    fn is_crowded(&self, lane: Lane) -> bool {
        self.flights.is_crowded(lane, || self.queues.of(lane).len())
    }

    /// The deadline of what begins now, by the engine's clock; one tick more, because the clock may be about to
    /// advance for time that has passed already.
    fn deadline(&self) -> Micros {
        self.clock.plus(self.config.store.deadline).plus(TICK)
    }

    /// The bridge answered a batch with these RESP replies; whether there is any use in asking by the same way again.
    pub fn replied(&mut self, id: BatchId, replies: &[u8], now: Micros) -> bool {
        let mut rest = replies;
        let mut again = Batch::new();
        let uptime = self.uptime.advance(now);
        let sample = self.flights.sample(id, self.instant());
        let Some((sample, flight)) = sample.zip(self.flights.end(id)) else { return true };
        let (mut usable, mut intact, mut well) = (false, true, true);
        // Where all have given up meanwhile nobody is decided by what the store says.
        let waits = |waiter: &Waiter| self.requests.get(&waiter.stream).is_some_and(Request::waits);
        let mut tasks = flight.batch.iter().flat_map(|command| &command.tasks);
        let awaited =
            tasks.any(|task| matches!(&task.work, Work::Ask { waiters, .. } if waiters.iter().any(waits)));
        for command in flight.batch {
            // What the bridge bounds by the longest command is bounded by this one.
            let bounds = resp::Bounds { items: command.tasks.len(), ..bridge::REPLY };
            let reply = match resp::decode_within(rest, bounds) {
                Ok(Some((reply, length))) => {
                    rest = rest.get(length..).unwrap_or_default();
                    reply
                }
                // The rest of the replies is missing or not RESP: nobody can say which reply is whose.
                Ok(None) | Err(_) => {
                    (rest, intact) = (&[], false);
                    self.fail(&command, &StoreFailure::BadReply, now);
                    continue;
                }
            };
            match reply {
                resp::Reply::Error(text)
                    if text.starts_with(b"NOSCRIPT") && command.form == Form::Evalsha =>
                {
                    self.asks_anew(&command);
                    again.push(Command { form: Form::Eval, ..command });
                    usable = true;
                }
                resp::Reply::Error(text) => {
                    let tags = command.tasks.iter().map(|task| task.check.tag.as_slice());
                    let opened = self.breakers.refused(tags, id, uptime);
                    self.failures.extend((0..opened).map(|_| StoreFailure::BreakerOpen));
                    let failure = StoreFailure::answered(text, sample.took, self.config.store.deadline);
                    well &= !failure.is_the_connections();
                    self.fail(&command, &failure, now);
                }
                reply => {
                    let replies = match &reply {
                        resp::Reply::Array(Some(each)) if command.tasks.len() > 1 => each,
                        one => slice::from_ref(one),
                    };
                    if replies.len() != command.tasks.len() {
                        intact = false;
                        self.fail(&command, &StoreFailure::BadReply, now);
                        continue;
                    }
                    for (task, reply) in command.tasks.iter().zip(replies) {
                        let told = self.answer(task, reply, flight.sent, now);
                        (usable, intact) = (usable || told, intact && told);
                    }
                }
            }
        }
        self.send_again(id, flight.lane, again);
        if usable {
            // An error may come at once from something on the way.
            self.flights.learn(flight.lane, flight.tasks, sample, uptime);
        }
        if !intact {
            self.lost(id, now);
        } else if !flight.late {
            // One that comes too late is of no use to requests: it does not make a slow store a good one.
            self.breakers.store_answered();
            if usable && awaited && self.breakers.all_closed() {
                self.local.forget();
            }
        }
        self.breakers.ended(Carrier::Batch(id), uptime);
        well
    }

    /// A batch got no answer, or could not be sent.
    pub fn failed(&mut self, id: BatchId, failure: &StoreFailure, now: Micros) {
        let Some(flight) = self.flights.end(id) else { return };
        for command in flight.batch {
            self.fail(&command, failure, now);
        }
        self.lost(id, now);
        self.breakers.ended(Carrier::Batch(id), self.uptime.elapsed);
    }

    /// Time passed: held requests whose turn it is go, and whoever waits past the deadline is decided without
    /// the store.
    pub fn tick(&mut self, now: Micros) {
        let uptime = self.uptime.advance(now);
        while let Some(&(_, stream)) = self.held.first().filter(|(due, _)| *due <= uptime) {
            self.held.pop_first();
            self.let_go(stream);
        }
        self.end_leases(now);
        self.clock = self.clock.plus(now.since(self.last_tick).min(STEP));
        self.last_tick = now;
        for id in self.flights.become_late(self.clock) {
            self.lost(id, now);
        }
        while let Some(id) = self.flights.expired(self.clock) {
            let Some(flight) = self.flights.abandon(id) else { break };
            for task in flight.batch.iter().flat_map(|command| &command.tasks) {
                self.abandon(task, now);
            }
            self.breakers.ended(Carrier::Batch(id), uptime);
            self.given_up.push(id);
        }
        while let Some(&(deadline, stream)) = self.deadlines.front() {
            let waits = self.requests.get(&stream).is_some_and(Request::waits);
            if waits && deadline > self.clock {
                break;
            }
            self.deadlines.pop_front();
            if waits {
                self.failures.push(StoreFailure::Timeout);
                self.give_up(stream, now);
            }
        }
    }

    /// The worker is about to end, or its configuration is: what it holds in advance goes back with the next batch.
    pub fn retire(&mut self) {
        self.is_retired = true;
        let config = &self.config;
        let returned = self.leases.end_all(|check| config.lease(check).copied());
        self.return_leases(returned);
    }

    /// How many breakers are open: that of the store counts as one, as does that of each 64th of its slots.
    #[must_use]
    pub fn open_breakers(&self) -> u64 {
        // The gauge that adds up all workers outlives this one.
        if self.is_retired { 0 } else { self.breakers.open() }
    }

    /// What is not asked about because a breaker is open, and for how long; `None` while all are closed.
    #[must_use]
    pub fn outage(&self, now: Micros) -> Option<Outage> {
        self.breakers.outage(self.uptime.at(now))
    }

    /// How many requests this worker holds in advance.
    #[must_use]
    pub const fn on_lease(&self) -> u64 {
        self.leases.held()
    }

    /// A batch that is not awaited any longer: its answer, should it come, is not to be handed in.
    pub fn next_given_up(&mut self) -> Option<BatchId> {
        self.given_up.pop()
    }

    /// How many requests are remembered: their stream is open, or what was asked for them is in flight.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// Whether batches are on their way.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// A batch got no answer, or none that can be read. When that opens the breaker, nobody waits any longer.
    fn lost(&mut self, id: BatchId, now: Micros) {
        let uptime = self.uptime.advance(now);
        if self.breakers.store_failed(id, uptime) {
            self.failures.push(StoreFailure::BreakerOpen);
            for (_, stream) in std::mem::take(&mut self.deadlines) {
                self.give_up(stream, now);
            }
        }
    }

    fn end_leases(&mut self, now: Micros) {
        let config = &self.config;
        let returned = self.leases.ended(now, |check| config.lease(check).copied());
        self.return_leases(returned);
    }

    fn return_leases(&mut self, returned: Vec<Returned>) {
        for Returned { check, paid, requests } in returned {
            let lane = self.breakers.lane(&check.tag);
            self.queues.of_mut(lane).give_back(&check, Taken::Units, &paid, requests);
        }
    }

    /// When [`tick`](Self::tick) is due next; `None` while nothing waits for time to pass.
    #[must_use]
    pub fn next_tick(&self, now: Micros) -> Option<Micros> {
        // What is ready to go has a wake-up on its way. Should that be lost, the tick does its work.
        let ready = self.has_releases() || self.wants_to_send();
        let waiting = (self.waiting > 0 || self.in_flight() || ready).then(|| now.plus(TICK));
        let held = self.held.first().map(|(due, _)| now.plus(due.since(self.uptime.at(now))));
        let opens = [Lane::Main, Lane::Doubtful].into_iter().filter_map(|lane| {
            let opens = self.flights.opens(lane).filter(|_| !self.queues.of(lane).is_empty())?;
            Some(now.plus(opens.since(self.uptime.at(now))))
        });
        held.into_iter().chain(waiting).chain(self.leases.next_end()).chain(opens).min()
    }

    /// The next request to let through or reject.
    pub fn next_release(&mut self) -> Option<Release> {
        self.releases.pop_front()
    }

    /// Whether [`next_release`](Self::next_release) has one.
    #[must_use]
    pub fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    /// What the response of an admitted request is to carry.
    #[must_use]
    pub fn admission(&self, stream: StreamId) -> Option<&Admission> {
        match &self.requests.get(&stream)?.state {
            State::Admitted(admission) => Some(admission),
            State::Waiting | State::Held { .. } | State::Rejected | State::Closed => None,
        }
    }

    /// What there is to record of a decided request, if the configuration wants it recorded.
    #[must_use]
    pub fn record(&self, stream: StreamId) -> Option<Record<'_>> {
        let request = self.config.emit_filter_state.then(|| self.requests.get(&stream))??;
        decision::record(&self.config.policies, answers(&request.parts))
    }

    /// The stream is over, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Micros) {
        let Some(mut request) = self.requests.remove(&stream) else { return };
        match request.state {
            State::Waiting => self.no_longer_waits(stream),
            State::Held { due, .. } => {
                self.held.remove(&(due, stream));
            }
            State::Admitted(_) => {}
            State::Rejected | State::Closed => {
                // Bounded by what is in flight, and for twice the deadline at most.
                if request.in_flight() {
                    request.state = State::Closed;
                    self.requests.insert(stream, request);
                }
                return;
            }
        }
        for Part { check, paid, .. } in &request.parts {
            paid.iter().for_each(|paid| self.give_back(check, Taken::Places, paid, now));
        }
    }

    /// Hands the reply about a subject to those who wait for it; whether it was of use.
    fn answer(&mut self, task: &Task, reply: &resp::Reply<'_>, sent: Micros, now: Micros) -> bool {
        let Task { check, work: Work::Ask { waiters, advance } } = task else {
            self.breakers.answered(&task.check.tag);
            return true;
        };
        let config = Rc::clone(&self.config);
        let Some((plan, outcome)) =
            config.plan(check).and_then(|plan| Some((plan, Rc::new(plan.outcome(reply).ok()?))))
        else {
            self.fail_task(task, &StoreFailure::BadReply, now);
            return false;
        };
        self.breakers.answered(&check.tag);
        let (ask, waiting) = (task.ask(), u32::try_from(waiters.len()).unwrap_or(u32::MAX));
        if outcome.granted < waiting {
            let finding = Finding::new(&outcome, plan.limits(), outcome.granted, ask);
            self.denied.remember(check, plan.limits(), &finding, config.denial_ttl(check), (sent, now));
        }
        // Of other grants: what this one leaves counts for each of those who wait.
        let known = self.leases.known(check, now);
        if let (Some(surplus @ 1..), Some(lease)) =
            (outcome.granted.checked_sub(waiting), config.lease(check))
        {
            self.leases.keep(check, lease, plan.limits(), (surplus, &outcome), (sent, now));
        }
        self.leases.arrived(check, *advance);
        for (index, waiter) in (0..).zip(waiters) {
            let mut finding = Finding::new(&outcome, plan.limits(), index, ask);
            if let Some((on_lease, newest)) = known.as_ref().filter(|_| finding.granted) {
                let latest = if newest.at > outcome.at { newest } else { &outcome };
                let later = outcome.granted.saturating_sub(index.saturating_add(1));
                let held = on_lease.saturating_add(later.into());
                finding.limits = lease::standings(latest, plan.limits(), held, ask);
            }
            let paid = finding.granted.then(|| Rc::clone(&outcome));
            self.deliver(*waiter, check, Answer::Store(finding), paid, now);
        }
        true
    }

    fn deliver(
        &mut self,
        to: Waiter,
        check: &Rc<Check>,
        answer: Answer,
        paid: Option<Rc<Outcome>>,
        now: Micros,
    ) {
        let paid = paid.map(Paid::Store);
        let Some(request) = self.requests.get_mut(&to.stream) else {
            // Its client left before it was decided. The units stay charged, or aborting would be a way to ask for free; but
            // a permit must not outlive its request.
            return paid.iter().for_each(|paid| self.give_back(check, Taken::Places, paid, now));
        };
        let Some(part) = request.parts.get_mut(to.part) else { return };
        part.in_flight = false;
        match request.state {
            State::Waiting => {
                (part.answer, part.paid) = (Some(answer), paid);
                if request.parts.iter().all(|part| part.answer.is_some()) {
                    self.decide(to.stream, now);
                }
            }
            // Admitted without the store, and now counted by it: what it holds ends with the request.
            State::Held { .. } | State::Admitted(_) if part.paid.is_none() => part.paid = paid,
            State::Held { .. } | State::Admitted(_) => {
                paid.iter().for_each(|paid| self.give_back(check, Taken::Places, paid, now));
            }
            State::Rejected | State::Closed => {
                self.forget_closed(to.stream);
                paid.iter().for_each(|paid| self.undo(check, paid, now));
            }
        }
    }

    /// Returns what was granted to a request that is rejected all the same.
    fn undo(&mut self, check: &Rc<Check>, paid: &Paid, now: Micros) {
        self.give_back(check, Taken::Units, paid, now);
        self.give_back(check, Taken::Places, paid, now);
        self.denied.forget(check);
    }

    fn give_back(&mut self, check: &Rc<Check>, what: Taken, paid: &Paid, now: Micros) {
        match paid {
            Paid::Store(paid) => {
                let lane = self.breakers.lane(&check.tag);
                self.queues.of_mut(lane).give_back(check, what, paid, 1);
            }
            Paid::Local(paid) => {
                if let Some(shares) = self.config.shares(check) {
                    self.local.give_back(check, shares, what, paid, now);
                }
            }
        }
    }

    /// Whoever waits for this command is decided without it.
    fn fail(&mut self, command: &Command, failure: &StoreFailure, now: Micros) {
        for task in &command.tasks {
            self.fail_task(task, failure, now);
        }
    }

    fn fail_task(&mut self, task: &Task, failure: &StoreFailure, now: Micros) {
        self.failures.push(failure.clone());
        self.abandon(task, now);
    }

    fn abandon(&mut self, task: &Task, now: Micros) {
        if let Work::Ask { waiters, advance } = &task.work {
            self.leases.arrived(&task.check, *advance);
            for waiter in waiters {
                self.mark_part(*waiter, false);
                self.give_up_part(*waiter, now);
            }
        }
    }

    /// One part of a request is decided without the store; the others still wait for their answers.
    fn give_up_part(&mut self, waiter: Waiter, now: Micros) {
        let Some(request) = self.requests.get_mut(&waiter.stream).filter(|request| request.waits()) else {
            return;
        };
        let part = request.parts.get_mut(waiter.part).filter(|part| part.answer.is_none());
        let Some(part) = part else { return };
        fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        if request.parts.iter().all(|part| part.answer.is_some()) {
            self.decide(waiter.stream, now);
        }
    }

    fn give_up(&mut self, stream: StreamId, now: Micros) {
        let Some(request) = self.requests.get_mut(&stream).filter(|request| request.waits()) else { return };
        for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
            fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        }
        self.decide(stream, now);
    }

    fn no_longer_waits(&mut self, stream: StreamId) {
        self.breakers.ended(Carrier::Request(stream), self.uptime.elapsed);
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            // All that is left in it is decided, and nothing ticks to clear it away.
            self.deadlines.clear();
        }
    }

    /// All parts are answered: the request is admitted, held or rejected.
    fn decide(&mut self, stream: StreamId, now: Micros) {
        self.no_longer_waits(stream);
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let fell_back = |part: &Part| matches!(part.answer, Some(Answer::Unavailable | Answer::Local(_)));
        if request.parts.iter().any(fell_back) {
            self.counters.fallback = self.counters.fallback.saturating_add(1);
        }
        let policies = &self.config.policies;
        let verdict = match decision::decide(policies, answers(&request.parts)) {
            Verdict::Admit(admission) if admission.delay > Micros::ZERO => {
                if self.held.len() < MAX_HELD {
                    let due = self.uptime.advance(now).plus(admission.delay);
                    self.held.insert((due, stream));
                    request.state = State::Held { due, admission };
                    return;
                }
                let told = decision::no_room_to_hold(policies, answers(&request.parts));
                told.map_or(Verdict::Admit(admission), Verdict::Reject)
            }
            verdict => verdict,
        };
        let action = match verdict {
            Verdict::Admit(admission) => {
                request.state = State::Admitted(admission);
                self.counters.admitted = self.counters.admitted.saturating_add(1);
                Action::Admit
            }
            Verdict::Reject(rejection) => {
                request.state = State::Rejected;
                self.counters.rejected = self.counters.rejected.saturating_add(1);
                // What the policies that did not deny it granted goes back.
                let granted = request.parts.iter_mut();
                let granted = granted.filter_map(|part| Some((Rc::clone(&part.check), part.paid.take()?)));
                for (check, paid) in granted.collect::<Few<_>>() {
                    self.undo(&check, &paid, now);
                }
                Action::Reject(rejection)
            }
        };
        self.releases.push_back(Release { stream, action });
    }

    /// A held request's turn has come.
    fn let_go(&mut self, stream: StreamId) {
        let Some(request) = self.requests.get_mut(&stream) else { return };
        if let State::Held { admission, .. } = std::mem::replace(&mut request.state, State::Rejected) {
            request.state = State::Admitted(admission);
            self.counters.admitted = self.counters.admitted.saturating_add(1);
            self.releases.push_back(Release { stream, action: Action::Admit });
        }
    }
}

/// Decides one part of a request without the store.
fn fall_back(
    Part { check, answer, paid, .. }: &mut Part,
    config: &Config,
    denied: &mut Denied,
    local: &mut Local,
    now: Micros,
) {
    *answer = Some(Answer::Unavailable);
    if let Some(finding) = denied.look_up_unanswered(check, now) {
        *answer = Some(Answer::DeniedUntil(finding));
    } else if let Some(shares) = config.shares(check) {
        let whole = config.plan(check).map_or(&[][..], Plan::limits);
        let outcome = local.check(check, shares, whole, now);
        let finding = Finding::new(&outcome, shares, 0, Ask { requests: 1, cost: check.cost });
        *paid = finding.granted.then_some(Paid::Local(outcome));
        *answer = Some(Answer::Local(finding));
    }
}
