// SPDX-License-Identifier: Apache-2.0
//! The state of one worker thread: its clock, its connections to Redis, and a limiter for each configuration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use weir_core::engine::{Outgoing, Output, StoreFailure, greeting};
use weir_core::time::{Micros, Throttle};

use crate::clock::{self, Clock, TICK};
use crate::connections::{self, BatchKey, Clusters, Connection, Pool, Reply};
use crate::envoy::{HttpFilter, NetworkFilter, Scheduler};
use crate::limiter::{Configuration, Limiter};
use crate::now;

/// The log reports a connection that closes because of what Redis sends at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

thread_local! {
    static WORKER: Worker = const {
        Worker {
            clock: RefCell::new(None),
            request_clocks: RefCell::new(Vec::new()),
            pool: RefCell::new(None),
            limiters: RefCell::new(Vec::new()),
            is_injecting: Cell::new(false),
            early_replies: RefCell::new(Vec::new()),
            unexpected_log: RefCell::new(None),
        }
    };
}

/// Nothing here stays borrowed across a call to Envoy that may enter the module again.
struct Worker {
    /// The clock, and the connection whose scheduler it has.
    clock: RefCell<Option<(NetworkFilter, Clock)>>,
    /// In the first moments there is no clock. Then a request that waits has one, which ends with the request.
    request_clocks: RefCell<Vec<(HttpFilter, Clock)>>,
    /// The connections to Redis.
    pool: RefCell<Option<Pool>>,
    limiters: RefCell<Vec<Rc<Limiter>>>,
    /// The worker passes commands to the next filter just now.
    is_injecting: Cell<bool>,
    /// The replies of the next filter within that call. The worker must not pass more commands to it there: `redis_proxy` would read them
    /// while it reads others.
    early_replies: RefCell<Vec<EarlyReply>>,
    /// Limits how often the log reports unexpected replies.
    unexpected_log: RefCell<Option<Throttle>>,
}

/// Bytes that a connection has brought while the worker passed commands on, and whether the connection ends behind them.
struct EarlyReply {
    connection: NetworkFilter,
    bytes: Vec<u8>,
    is_last: bool,
}

/// The limiter of this configuration on this worker.
pub fn limiter(configuration: &Arc<Configuration>) -> Option<Rc<Limiter>> {
    WORKER.with(|worker| {
        let limiters = &mut *worker.limiters.borrow_mut();
        if let Some(limiter) = limiters.iter().find(|limiter| limiter.has_configuration(configuration)) {
            return Some(Rc::clone(limiter));
        }
        let limiter = Rc::new(Limiter::new(configuration)?);
        limiters.push(Rc::clone(&limiter));
        // Its first turn subtracts what limiters of earlier configurations had in gauges.
        wake();
        Some(limiter)
    })
}

fn limiters() -> Vec<Rc<Limiter>> {
    WORKER.with(|worker| worker.limiters.borrow().clone())
}

fn limiter_of(key: BatchKey) -> Option<Rc<Limiter>> {
    WORKER.with(|worker| {
        worker.limiters.borrow().iter().find(|limiter| limiter.has_engine(key.engine)).map(Rc::clone)
    })
}

fn with_pool<T>(act: impl FnOnce(&mut Pool) -> T) -> T {
    WORKER.with(|worker| act(worker.pool.borrow_mut().get_or_insert_with(|| Pool::new(Clusters::default()))))
}

/// Changes the pool, and does what it decides. The pool may act at any time: the connector opens connections, and schedulers close them.
/// Requests are decided in a later turn.
fn update<T>(act: impl FnOnce(&mut Pool) -> T) -> T {
    let result = with_pool(|pool| {
        pool.begin(now(), true);
        act(pool)
    });
    while let Some(output) = with_pool(Pool::poll) {
        match output {
            Output::Close(connection) => connection.close(),
            Output::Connected(key) => limiter_of(key).iter().for_each(|limiter| {
                limiter.connected(key.batch, now());
                wake();
            }),
            Output::Failed(key, failure) => limiter_of(key).iter().for_each(|limiter| {
                limiter.failed(key.batch, &failure, now());
                wake();
            }),
        }
    }
    result
}

// --- The clock -----------------------------------------------------------------------------------------------------

/// Envoy has given a connection of the clock's listener to this worker. Returns whether it becomes the worker's clock: one is enough.
pub fn start_clock(connection: NetworkFilter) -> bool {
    let is_new = WORKER.with(|worker| {
        let clock = &mut *worker.clock.borrow_mut();
        if clock.is_some() {
            return false;
        }
        *clock = connection.scheduler().and_then(Clock::start).map(|clock| (connection, clock));
        clock.is_some()
    });
    if is_new {
        // The turn arms it for the requests that wait already.
        wake();
    }
    is_new
}

/// A connection of the clock's listener is closed.
pub fn stop_clock(connection: NetworkFilter) {
    let is_clock = |(other, _): &mut (NetworkFilter, Clock)| *other == connection;
    let stopped = WORKER.with(|worker| worker.clock.borrow_mut().take_if(is_clock));
    if stopped.is_some() {
        replace_clock();
    }
}

/// The worker has lost a clock. If it has no other, one of the requests that wait gets a clock of its own: otherwise none of them would end in
/// time.
pub fn replace_clock() {
    let has_clock =
        WORKER.with(|worker| worker.clock.borrow().is_some() || !worker.request_clocks.borrow().is_empty());
    if has_clock || limiters().iter().find_map(|limiter| limiter.any_waiting()).is_some_and(ensure_clock) {
        // The turn arms it.
        wake();
    }
}

/// Makes sure that a request that is about to wait has a clock. Returns whether there is one.
pub fn ensure_clock(filter: HttpFilter) -> bool {
    WORKER.with(|worker| {
        // One is enough: when its request ends, another that waits gets one.
        if worker.clock.borrow().is_some() || !worker.request_clocks.borrow().is_empty() {
            return true;
        }
        let clock = filter.scheduler().and_then(Clock::start).map(|clock| (filter, clock));
        let is_there = clock.is_some();
        worker.request_clocks.borrow_mut().extend(clock);
        is_there
    })
}

/// A request has ended. If it has a clock of its own, that ends too. Returns whether it had one.
pub fn stop_request_clock(filter: HttpFilter) -> bool {
    WORKER.with(|worker| {
        let clocks = &mut *worker.request_clocks.borrow_mut();
        let before = clocks.len();
        clocks.retain(|(other, _)| *other != filter);
        clocks.len() < before
    })
}

fn with_clocks(act: impl Fn(&Clock)) {
    WORKER.with(|worker| {
        if let Some((_, clock)) = &*worker.clock.borrow() {
            act(clock);
        } else {
            worker.request_clocks.borrow().iter().for_each(|(_, clock)| act(clock));
        }
    });
}

/// Asks for a turn soon.
pub fn wake() {
    with_clocks(Clock::wake);
}

/// Asks for a tick at this time.
pub fn arm(due_at: Micros) {
    with_clocks(|clock| clock.arm(due_at));
}

/// The scheduler of a clock has called.
pub fn scheduled(event: u64) {
    with_clocks(Clock::woken);
    // One that was not in force meanwhile has perhaps called now.
    WORKER.with(|worker| worker.request_clocks.borrow().iter().for_each(|(_, clock)| clock.woken()));
    let (limiters, now) = (limiters(), now());
    if event == TICK {
        update(|pool| pool.tick(now));
        while let Some(connection) = with_pool(|pool| connections::first_without_cluster(pool)) {
            close(connection);
        }
        for key in limiters.iter().flat_map(|limiter| limiter.tick(now)) {
            update(|pool| pool.abandon(key));
        }
    }
    take_turns(limiters);
}

fn take_turns(mut limiters: Vec<Rc<Limiter>>) {
    loop {
        let count = limiters.len();
        limiters.retain(|limiter| {
            let goes_on = limiter.turn();
            if !goes_on {
                WORKER.with(|worker| {
                    worker.limiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, limiter));
                });
            }
            goes_on
        });
        if limiters.len() < count {
            // Another limiter subtracts what these had in gauges. It may have nothing else to do, also if it is one of another worker.
            clock::wake_all();
        }
        let early = WORKER.with(|worker| worker.early_replies.take());
        if early.is_empty() {
            return update(|_| ());
        }
        for EarlyReply { connection, bytes, is_last } in early {
            read(connection, &bytes);
            if is_last {
                close(connection);
            }
        }
    }
}

/// A hook of a clock or a connection has panicked. Bytes that it has read of a connection may be lost, so all connections close: later
/// replies must not count as replies to other batches.
pub fn reset() {
    WORKER.with(|worker| worker.early_replies.take());
    while let Some(connection) = with_pool(|pool| pool.iter().map(|(first, _)| first.filter).next()) {
        close(connection);
    }
    limiters().iter().for_each(|limiter| limiter.replace_engine());
}

// --- The connections to Redis --------------------------------------------------------------------------------------

/// A connection that leads to this cluster is there, and the next filter is ready.
pub fn connect(connection: NetworkFilter, scheduler: Scheduler, cluster: &str, credentials: Option<&[u8]>) {
    update(|pool| {
        let store = connections::store(pool, cluster);
        pool.add(Connection::new(connection, scheduler), store);
    });
    inject(connection, &greeting(credentials));
    if WORKER.with(|worker| !worker.early_replies.borrow().is_empty()) {
        take_turns(limiters());
    }
}

fn inject(connection: NetworkFilter, commands: &[u8]) {
    WORKER.with(|worker| worker.is_injecting.set(true));
    connection.inject(commands);
    WORKER.with(|worker| worker.is_injecting.set(false));
}

/// Sends a batch on an open connection. Returns whether it could; otherwise the batch waits for a connection.
///
/// # Errors
/// No listener leads to this cluster.
pub fn send(cluster: &str, engine: u64, outgoing: &Outgoing) -> Result<bool, StoreFailure> {
    let connection = with_pool(|pool| {
        pool.begin(now(), true);
        connections::send(pool, cluster, engine, outgoing)
    })?;
    connection.iter().for_each(|connection| inject(*connection, &outgoing.body));
    Ok(connection.is_some())
}

/// Redis has sent these bytes; they are the last of this connection if `is_last`. Then Redis reads no more commands on it, so the worker
/// closes it before it sends the next batch.
pub fn received(connection: NetworkFilter, bytes: Vec<u8>, is_last: bool) {
    if WORKER.with(|worker| worker.is_injecting.get()) {
        if is_last {
            with_pool(|pool| pool.retire(connection));
        }
        let reply = EarlyReply { connection, bytes, is_last };
        WORKER.with(|worker| worker.early_replies.borrow_mut().push(reply));
        return;
    }
    if bytes.is_empty() {
        return if is_last {
            close(connection)
        };
    }
    read(connection, &bytes);
    if is_last {
        close(connection);
    }
    take_turns(limiters());
}

fn read(connection: NetworkFilter, bytes: &[u8]) {
    let now = now();
    let mut rest = bytes;
    let failure = loop {
        match update(|pool| connections::read(pool, connection, &mut rest)) {
            Ok(None) => break None,
            Ok(Some(Reply::Opened)) => {}
            Ok(Some(Reply::Refused(failure))) => break Some(failure),
            Ok(Some(Reply::Batch(key, replies))) => {
                let limiter = limiter_of(key);
                let is_good = limiter.is_none_or(|limiter| limiter.replied(key.batch, &replies, now));
                update(|pool| pool.judge(connection, is_good));
            }
            Err(_) => {
                log_unexpected(now);
                break Some(StoreFailure::Refused);
            }
        }
    };
    if let Some(failure) = failure {
        fail(connection, &failure);
    }
}

fn log_unexpected(now: Micros) {
    const WHAT: &str = "the store has sent a reply that no batch expects: weir closes the connection";
    let more = WORKER
        .with(|worker| worker.unexpected_log.borrow_mut().get_or_insert_default().admit(LOG_INTERVAL, now));
    match more {
        None => {}
        Some(0) => log::error!("{WHAT}"),
        Some(more) => log::error!("{WHAT} ({more} more connections since)"),
    }
}

/// A connection is closed, or Redis has ended it, or the worker closes it. The turn comes later: when Envoy ends, it closes these
/// connections before those of the clients, and `on_failure` must not decide the requests that wait then.
pub fn close(connection: NetworkFilter) {
    fault!("close");
    fail(connection, &StoreFailure::Refused);
}

/// A connection that leads to this cluster was closed before the greeting: Envoy has no endpoint to connect to.
pub fn closed_early(cluster: &str) {
    update(|pool| {
        let store = connections::store(pool, cluster);
        pool.not_opened(store, &StoreFailure::Refused);
    });
}

/// Closes a connection later, and fails what is in flight on it.
fn fail(connection: NetworkFilter, failure: &StoreFailure) {
    update(|pool| pool.fail(connection, failure));
}
