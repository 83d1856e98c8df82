// SPDX-License-Identifier: Apache-2.0
//! A stream of Envoy's main thread for each worker. The worker hands its batches to the main thread, which hands back the replies.
//!
//! Envoy keeps what a stream has received in its buffer, and shows all of it again each time. Before the buffer is full, another stream
//! takes its place.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use weir_core::engine::{Outgoing, Pipeline, StoreFailure};

use super::{
    Answer, NO_TIMEOUT_MS, SUCCESS, WAY, commit_to_main, delete_main_scheduler, headers, joined,
    new_main_scheduler, reset_stream, send_on_stream, start_stream,
};
use crate::abi::{Buffer, Envoy, Module};
use crate::clock::{Handle, locked};
use crate::envoy::Scheduler;
use crate::panics::caught;
use crate::ways::Ticket;

/// What a worker and the main thread share.
struct Seat {
    clock: Handle,
    /// Replies that the worker has not taken yet.
    received: Arc<Mutex<Vec<u8>>>,
    /// The main thread's stream for this worker.
    stream: Option<u64>,
    /// How much of what the stream has received is known.
    seen: usize,
}

/// A stream that has received so much is replaced.
const FULL: usize = 262_144;

/// A batch on its way to the main thread.
struct Letter {
    seat: usize,
    body: Vec<u8>,
    /// No other batch of this worker is in flight.
    is_alone: bool,
}

/// The workers.
static SEATS: Mutex<Vec<Seat>> = Mutex::new(Vec::new());
static POST: Mutex<Vec<Letter>> = Mutex::new(Vec::new());
/// What calls the main thread.
static MAIN: Mutex<Option<Scheduler>> = Mutex::new(None);

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// What a worker keeps for itself.
struct Worker {
    seat: usize,
    pipeline: Pipeline<Ticket>,
    received: Arc<Mutex<Vec<u8>>>,
}

/// A configuration is read, on the main thread. The newest has the streams.
pub fn configure(config: Envoy) {
    // SAFETY: Envoy has handed the configuration to the hook that reads it.
    let pointer = unsafe { new_main_scheduler(config) };
    // SAFETY: Envoy has just made the scheduler, and the two callbacks are those for its kind.
    *locked(&MAIN) = Some(unsafe { Scheduler::new(pointer, commit_to_main, delete_main_scheduler) });
}

/// Hands a batch to the main thread.
pub fn send(clock: Handle, ticket: Ticket, outgoing: &Outgoing) -> Result<(), StoreFailure> {
    let (seat, is_alone) = WORKER.with(|worker| {
        let worker = &mut *worker.borrow_mut();
        let worker = worker.get_or_insert_with(|| sit_down(clock));
        let is_alone = worker.pipeline.in_flight().next().is_none();
        worker.pipeline.sent(ticket, outgoing.replies);
        (worker.seat, is_alone)
    });
    let is_first = {
        let post = &mut *locked(&POST);
        post.push(Letter { seat, body: outgoing.body.clone(), is_alone });
        post.len() == 1
    };
    // Until the main thread has taken what is there, a call is on its way.
    if is_first {
        locked(&MAIN).as_ref().ok_or(StoreFailure::NotSent)?.commit(0);
    }
    Ok(())
}

fn sit_down(clock: Handle) -> Worker {
    let received = Arc::new(Mutex::new(Vec::new()));
    let seats = &mut *locked(&SEATS);
    seats.push(Seat { clock, received: Arc::clone(&received), stream: None, seen: 0 });
    Worker { seat: seats.len() - 1, pipeline: Pipeline::new(), received }
}

/// What was answered since.
pub fn take_answers() -> Vec<Answer> {
    WORKER.with(|worker| {
        let mut answered = Vec::new();
        if let Some(worker) = &mut *worker.borrow_mut() {
            let received = std::mem::take(&mut *locked(&worker.received));
            let mut rest = received.as_slice();
            while let Ok(Some((ticket, replies))) = worker.pipeline.next(&mut rest) {
                answered.push((ticket, Some(replies)));
            }
        }
        answered
    })
}

/// The main thread sends what the workers have handed to it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(config: Envoy, _: Module, _: u64) {
    caught("http_filter_config_scheduled", || {
        let Some((_, cluster)) = WAY.get() else { return };
        for Letter { seat, body, is_alone } in std::mem::take(&mut *locked(&POST)) {
            let (stream, full) = match locked(&SEATS).get_mut(seat) {
                Some(seat) if is_alone && seat.seen >= FULL => (None, seat.stream.take()),
                Some(seat) => (seat.stream, None),
                None => continue,
            };
            if let Some(full) = full {
                // SAFETY: Envoy passes the configuration to this hook.
                unsafe { reset_stream(config, full) };
            }
            if let Some(stream) = stream {
                // SAFETY: Envoy passes the configuration to this hook; it copies the bytes.
                unsafe { send_on_stream(config, stream, Buffer::of(&body), false) };
                continue;
            }
            let (mut headers, mut id) = (headers(), 0);
            let (cluster, body) = (Buffer::of(cluster.as_bytes()), Buffer::of(&body));
            // SAFETY: as above; Envoy copies the texts, and writes to one place of this frame.
            let result = unsafe {
                start_stream(
                    config,
                    &raw mut id,
                    cluster,
                    headers.as_mut_ptr(),
                    headers.len(),
                    body,
                    false,
                    NO_TIMEOUT_MS,
                )
            };
            if result == SUCCESS
                && let Some(seat) = locked(&SEATS).get_mut(seat)
            {
                (seat.stream, seat.seen) = (Some(id), 0);
            }
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_data(
    _: Envoy,
    _: Module,
    stream: u64,
    chunks: *const Buffer,
    count: usize,
    _: bool,
) {
    caught("http_filter_config_http_stream_data", || {
        let mut seats = locked(&SEATS);
        let Some(seat) = seats.iter_mut().find(|seat| seat.stream == Some(stream)) else { return };
        // SAFETY: Envoy hands the chunks to this hook.
        let bytes = unsafe { joined(chunks, count, seat.seen) };
        seat.seen += bytes.len();
        let received = &mut *locked(&seat.received);
        let is_first = received.is_empty();
        received.extend(bytes);
        // Until the worker has taken what is there, a wake-up is on its way.
        if is_first {
            seat.clock.wake();
        }
    });
}
