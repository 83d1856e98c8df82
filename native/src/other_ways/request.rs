// SPDX-License-Identifier: Apache-2.0
//! A stream of one of the requests that wait. It ends with its request, and a batch that is in flight on it then gets no answer.

use std::cell::RefCell;

use weir_core::engine::{Outgoing, Pipeline, StoreFailure};

use super::{Answer, NO_TIMEOUT_MS, SUCCESS, headers, joined, start_stream_of_request};
use crate::abi::{Buffer, Envoy, Module};
use crate::envoy::HttpFilter;
use crate::panics::caught;
use crate::ways::Ticket;
use crate::worker;

thread_local! {
    static STREAMS: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
    /// What this worker has not taken yet. A request must not be released in a hook of its own stream, so the turn comes later.
    static ANSWERS: RefCell<Vec<Answer>> = const { RefCell::new(Vec::new()) };
}

struct Stream {
    filter: HttpFilter,
    id: u64,
    /// How much of what it has received is known: Envoy shows all of it each time.
    seen: usize,
    pipeline: Pipeline<Ticket>,
}

/// Begins a stream of this request, with the batch.
pub fn send(
    cluster: &str,
    filter: HttpFilter,
    ticket: Ticket,
    outgoing: &Outgoing,
) -> Result<(), StoreFailure> {
    let (mut headers, mut id) = (headers(), 0);
    let (cluster, body) = (Buffer::of(cluster.as_bytes()), Buffer::of(&outgoing.body));
    // SAFETY: the request waits, so its filter lives; Envoy copies the texts, and writes to one place of this frame.
    let result = unsafe {
        start_stream_of_request(
            filter.pointer(),
            &raw mut id,
            cluster,
            headers.as_mut_ptr(),
            headers.len(),
            body,
            false,
            NO_TIMEOUT_MS,
        )
    };
    if result != SUCCESS {
        return Err(StoreFailure::NotSent);
    }
    let mut pipeline = Pipeline::new();
    pipeline.sent(ticket, outgoing.replies);
    STREAMS.with(|streams| streams.borrow_mut().push(Stream { filter, id, seen: 0, pipeline }));
    Ok(())
}

/// What was answered since.
pub fn take_answers() -> Vec<Answer> {
    ANSWERS.with(RefCell::take)
}

/// A request is over, and so are its streams.
pub fn closed(filter: HttpFilter) {
    lose(|stream| stream.filter == filter);
}

/// These streams have ended.
fn lose(is_over: impl Fn(&Stream) -> bool) {
    let lost = STREAMS.with(|streams| {
        let mut streams = streams.borrow_mut();
        let over = streams.extract_if(.., |stream| is_over(stream));
        over.flat_map(|stream| stream.pipeline.close().collect::<Vec<_>>()).collect::<Vec<_>>()
    });
    if !lost.is_empty() {
        ANSWERS.with(|answers| answers.borrow_mut().extend(lost.into_iter().map(|ticket| (ticket, None))));
        worker::wake();
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
    envoy: Envoy,
    _: Module,
    id: u64,
    chunks: *const Buffer,
    count: usize,
    _: bool,
) {
    caught("http_filter_http_stream_data", || {
        let answered = STREAMS.with(|streams| {
            let mut streams = streams.borrow_mut();
            let of = |stream: &&mut Stream| stream.filter.pointer() == envoy && stream.id == id;
            let stream = streams.iter_mut().find(of)?;
            // SAFETY: Envoy hands the chunks to this hook.
            let bytes = unsafe { joined(chunks, count, stream.seen) };
            stream.seen += bytes.len();
            stream.pipeline.next(&mut bytes.as_slice()).ok().flatten()
        });
        if let Some((ticket, replies)) = answered {
            ANSWERS.with(|answers| answers.borrow_mut().push((ticket, Some(replies))));
            worker::wake();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    envoy: Envoy,
    _: Module,
    id: u64,
    _: u32,
) {
    caught("http_filter_http_stream_reset", || {
        lose(|stream| stream.filter.pointer() == envoy && stream.id == id);
    });
}
