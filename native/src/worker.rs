// SPDX-License-Identifier: Apache-2.0
//! What one worker thread has: its clock, its ways to Redis, and a limiter for each configuration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use weir_core::engine::{Outgoing, Sent, StoreFailure, greeting};
use weir_core::time::{Micros, Throttle};

use crate::clock::{Clock, TICK};
use crate::envoy::{Connection, HttpFilter, Scheduler};
use crate::limiter::{Configuration, Limiter};
use crate::now;
use crate::ways::{Answer, Ended, Ticket, Ways};

/// A connection that is closed for what the store sends is logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

thread_local! {
    static WORKER: Worker = const {
        Worker {
            clock: RefCell::new(None),
            substitutes: RefCell::new(Vec::new()),
            ways: RefCell::new(None),
            limiters: RefCell::new(Vec::new()),
            injects: Cell::new(false),
            early: RefCell::new(Vec::new()),
            unexpected: RefCell::new(None),
        }
    };
}

/// Nothing here stays borrowed across a call to Envoy that may enter the module again.
struct Worker {
    /// The clock, and the connection that it lives on.
    clock: RefCell<Option<(Connection, Clock)>>,
    /// In the first moments there is no clock. Each request that waits then has one of its own, which ends with the request.
    substitutes: RefCell<Vec<(HttpFilter, Clock)>>,
    ways: RefCell<Option<Ways>>,
    limiters: RefCell<Vec<Rc<Limiter>>>,
    /// Commands are handed to the next filter just now.
    injects: Cell<bool>,
    /// What the next filter has answered within that call. It must not be handed more commands there: `redis_proxy` would read them in
    /// the midst of reading others.
    early: RefCell<Vec<(Connection, Vec<u8>)>>,
    /// When unexpected replies were last logged.
    unexpected: RefCell<Option<Throttle>>,
}

/// The limiter of this configuration on this worker.
pub fn limiter(configuration: &Arc<Configuration>) -> Option<Rc<Limiter>> {
    WORKER.with(|worker| {
        let limiters = &mut *worker.limiters.borrow_mut();
        if let Some(limiter) = limiters.iter().find(|limiter| limiter.is_of(configuration)) {
            return Some(Rc::clone(limiter));
        }
        let limiter = Rc::new(Limiter::new(configuration)?);
        limiters.push(Rc::clone(&limiter));
        Some(limiter)
    })
}

fn limiters() -> Vec<Rc<Limiter>> {
    WORKER.with(|worker| worker.limiters.borrow().clone())
}

fn with_ways<T>(use_ways: impl FnOnce(&mut Ways) -> T) -> T {
    WORKER.with(|worker| use_ways(worker.ways.borrow_mut().get_or_insert_default()))
}

// --- The clock -----------------------------------------------------------------------------------------------------

/// A connection of the clock's listener has arrived. Returns whether it is this worker's clock: one is enough.
pub fn start_clock(connection: Connection) -> bool {
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
pub fn stop_clock(connection: Connection) {
    let is_clock = |(other, _): &mut (Connection, Clock)| *other == connection;
    WORKER.with(|worker| worker.clock.borrow_mut().take_if(is_clock));
}

/// A request is about to wait: makes sure that there is a clock for it. Returns whether there is one.
pub fn ensure_clock(filter: HttpFilter) -> bool {
    WORKER.with(|worker| {
        if worker.clock.borrow().is_some() {
            return true;
        }
        let clock = filter.scheduler().and_then(Clock::start).map(|clock| (filter, clock));
        let is_there = clock.is_some();
        worker.substitutes.borrow_mut().extend(clock);
        is_there
    })
}

/// A request is over, and so is the clock that it may have had.
pub fn stop_substitute(filter: HttpFilter) {
    WORKER.with(|worker| worker.substitutes.borrow_mut().retain(|(other, _)| *other != filter));
}

fn with_clocks(act: impl Fn(&Clock)) {
    WORKER.with(|worker| {
        if let Some((_, clock)) = &*worker.clock.borrow() {
            act(clock);
        } else {
            worker.substitutes.borrow().iter().for_each(|(_, clock)| act(clock));
        }
    });
}

/// Asks for a turn soon.
pub fn wake() {
    with_clocks(Clock::wake);
}

/// Asks for a tick at this time.
pub fn arm(due: Micros) {
    with_clocks(|clock| clock.arm(due));
}

/// The clock has called.
pub fn scheduled(event: u64) {
    with_clocks(Clock::woken);
    let (limiters, now) = (limiters(), now());
    if event == TICK {
        while let Some(connection) = with_ways(|ways| ways.without_a_cluster()) {
            ended(connection);
        }
        for ticket in limiters.iter().flat_map(|limiter| limiter.tick(now)) {
            // Its reply, if one still comes, must not be taken for that to another batch.
            if let Some(connection) = with_ways(|ways| ways.carrier(ticket)) {
                end(connection, &StoreFailure::Refused);
            }
        }
    }
    take_turns(&limiters);
    close_old_ways();
}

fn take_turns(limiters: &[Rc<Limiter>]) {
    loop {
        for limiter in limiters {
            if !limiter.turn() {
                WORKER.with(|worker| {
                    worker.limiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, limiter));
                });
            }
        }
        let early = WORKER.with(|worker| worker.early.take());
        if early.is_empty() {
            return;
        }
        early.iter().for_each(|(connection, bytes)| read(limiters, *connection, bytes));
    }
}

/// A hook of the clock or of a way has panicked. What was read of a way may be lost, so all ways close: replies that are still to
/// come must not be taken for those to another batch.
pub fn give_up() {
    while let Some(connection) = with_ways(|ways| ways.any()) {
        ended(connection);
    }
    limiters().iter().for_each(|limiter| limiter.give_up());
}

// --- The ways to Redis ---------------------------------------------------------------------------------------------

/// A connection that leads to this cluster has arrived, and the next filter is ready.
pub fn begin_way(connection: Connection, scheduler: Scheduler, cluster: &str, credentials: Option<&[u8]>) {
    with_ways(|ways| ways.begin(connection, scheduler, cluster, now()));
    inject(connection, &greeting(credentials));
    if WORKER.with(|worker| !worker.early.borrow().is_empty()) {
        take_turns(&limiters());
    }
}

fn inject(connection: Connection, commands: &[u8]) {
    WORKER.with(|worker| worker.injects.set(true));
    connection.inject(commands);
    WORKER.with(|worker| worker.injects.set(false));
}

/// Sends a batch on an open way, or notes that it waits for one.
///
/// # Errors
/// No listener leads to this cluster.
pub fn send(cluster: &str, limiter: u64, outgoing: &Outgoing, now: Micros) -> Result<Sent, StoreFailure> {
    let (sent, connection) = with_ways(|ways| ways.send(cluster, limiter, outgoing, now))?;
    if let Some(connection) = connection {
        inject(connection, &outgoing.body);
    }
    Ok(sent)
}

/// The store has sent these bytes on a way.
pub fn received(connection: Connection, bytes: Vec<u8>) {
    if WORKER.with(|worker| worker.injects.get()) {
        WORKER.with(|worker| worker.early.borrow_mut().push((connection, bytes)));
        return;
    }
    let limiters = limiters();
    read(&limiters, connection, &bytes);
    take_turns(&limiters);
    close_old_ways();
}

fn read(limiters: &[Rc<Limiter>], connection: Connection, bytes: &[u8]) {
    let now = now();
    let mut rest = bytes;
    let failure = loop {
        match with_ways(|ways| ways.answer(connection, &mut rest, now)) {
            Ok(None) => break None,
            Ok(Some(Answer::Opened)) => {
                let cluster = with_ways(|ways| ways.cluster(connection)).unwrap_or_default();
                asking(limiters, &cluster).for_each(|limiter| limiter.connected(&cluster, now));
            }
            Ok(Some(Answer::Refused(failure))) => break Some(failure),
            Ok(Some(Answer::Replies(Ticket { limiter, batch }, replies))) => {
                let asked = limiters.iter().find(|other| other.is_engine(limiter));
                if asked.is_some_and(|limiter| !limiter.replied(batch, &replies, now)) {
                    // What else is in flight on it is answered, too.
                    with_ways(|ways| ways.retire(connection));
                } else {
                    with_ways(|ways| ways.prove(connection));
                }
            }
            Err(_) => {
                log_unexpected(now);
                break Some(StoreFailure::Refused);
            }
        }
    };
    if let Some(failure) = failure {
        end(connection, &failure);
    }
}

fn log_unexpected(now: Micros) {
    const WHAT: &str = "the store sends what no batch asked for: the connection is closed";
    match WORKER
        .with(|worker| worker.unexpected.borrow_mut().get_or_insert_default().admit(LOG_INTERVAL, now))
    {
        None => {}
        Some(0) => log::error!("{WHAT}"),
        Some(more) => log::error!("{WHAT} ({more} more connections since)"),
    }
}

/// A way is closed, or the store has ended it. The turn comes later: when Envoy ends, it closes the ways before the clients' connections, and those that
/// wait are not to be answered as if Redis had failed.
pub fn ended(connection: Connection) {
    if end(connection, &StoreFailure::Refused) {
        wake();
    }
}

/// A connection that leads to this cluster was closed before it was a way: Envoy has no endpoint to connect to.
pub fn never_began(cluster: &str) {
    if with_ways(|ways| !ways.has(cluster)) {
        let (limiters, now) = (limiters(), now());
        asking(&limiters, cluster).for_each(|limiter| limiter.refused(cluster, &StoreFailure::Refused, now));
        wake();
    }
}

/// Forgets a way, has it closed, and fails what is in flight on it. Returns whether it was known.
fn end(connection: Connection, failure: &StoreFailure) -> bool {
    let Some(Ended { cluster, lost, others }) = with_ways(|ways| ways.end(connection, failure)) else {
        return false;
    };
    let (limiters, now) = (limiters(), now());
    for Ticket { limiter, batch } in lost {
        if let Some(limiter) = limiters.iter().find(|other| other.is_engine(limiter)) {
            limiter.failed(batch, failure, now);
        }
    }
    asking(&limiters, &cluster).for_each(|limiter| match others {
        // What waited for this connection takes another.
        true => limiter.connected(&cluster, now),
        false => limiter.refused(&cluster, failure, now),
    });
    true
}

fn asking<'a>(limiters: &'a [Rc<Limiter>], cluster: &'a str) -> impl Iterator<Item = &'a Rc<Limiter>> {
    limiters.iter().filter(move |limiter| limiter.asks(cluster))
}

fn close_old_ways() {
    let now = now();
    while let Some(connection) = with_ways(|ways| ways.next_to_close(now)) {
        ended(connection);
    }
}
