// SPDX-License-Identifier: Apache-2.0
//! Streams to the bridge as Envoy has them: what the [pool](crate::engine::Pool) opens, sends on and closes.
//!
//! Four rules about Envoy's side of a stream, each learned from a crash:
//!
//! - Do not cancel a stream from the callback that reports its headers or a message: Envoy uses the stream afterwards. So the pool closes
//!   streams in the callbacks of the root's timer and queue.
//! - Cancel a stream that Envoy has closed from the callback that reports the close, and not later: Envoy frees its memory then.
//! - Send nothing before the headers are there: a stream that fails while its first message is sent reports its headers in the
//!   middle of that call, and this VM cannot be entered twice.
//! - Send nothing on a stream from the callback of its last message. If one read returns the last reply and the end of the connection, Envoy
//!   has no connection any more when it reports the message. Envoy loses what is sent then, and up to 1.38.2 it crashes. The bridge marks
//!   that message, and the stream retires. Older bridges mark nothing: on their streams, the worker sends nothing from the callback of any
//!   message, and the batch leaves with the next wake-up.
//!
//! **A callback of the root's timer or queue opens one stream at most, before it sends anything; other callbacks open
//! none.** Otherwise a worker's thread spins for ever. When a stream fails while it is opened (there is no endpoint), Envoy
//! queues the stream's close until the callback has returned, and reports its headers at once. After it has reported
//! headers, Envoy empties that queue. If the close of another stream is in it, Envoy takes the close out, cannot report it
//! yet, and puts it back, without end.

use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use crate::bridge::{MARK, MARKS_LAST};
use crate::config::Config;
use crate::engine::{BatchId, NoConnection, Pool, Purpose, StoreFailure, Transport};

/// gRPC's UNAVAILABLE: what the host makes of a connection that could not be opened.
const UNAVAILABLE: u32 = 14;

/// The host's name for a stream.
pub(super) type Token = u32;

/// A stream to a bridge.
pub(super) struct Stream {
    pub token: Token,
    /// Its bridge marks the last message.
    marks_last: bool,
    /// Its headers are not the bridge's. Envoy closes it.
    is_foreign: bool,
}

/// Streams to the bridges of all stores. They belong to the context that is effective when they are opened: the root's.
pub(super) struct Streams {
    pub config: Rc<Config>,
}

impl Transport for Streams {
    const DEPTH: usize = 1;
    // Envoy closes a stream that cannot connect much sooner, but never one whose bridge has trapped.
    const SILENCE_FAILS: bool = false;
    type Batch = BatchId;
    type Id = Token;
    type Connection = Stream;

    fn id(stream: &Stream) -> Token {
        stream.token
    }

    fn open(&mut self, store: usize, _: Purpose) -> Result<Option<Stream>, NoConnection> {
        let region = self.config.regions.all.get(store).ok_or(NoConnection)?;
        let token = hostcalls::open_grpc_stream(&service(&region.cluster), "weir", "bridge", Vec::new());
        let token = token.map_err(|_| NoConnection)?;
        Ok(Some(Stream { token, marks_last: false, is_foreign: false }))
    }
}

/// Sends a message. Returns whether it could.
pub(super) fn send(stream: Token, commands: &[u8]) -> bool {
    hostcalls::send_grpc_stream_message(stream, Some(commands), false).is_ok()
}

/// Closes a stream.
pub(super) fn cancel(stream: Token) {
    // It fails when Envoy has removed the stream already.
    let _ = hostcalls::cancel_grpc_stream(stream);
}

/// Envoy reports the headers of a stream. The bridge marks its own.
pub(super) fn began(pool: &mut Pool<Streams>, token: Token) {
    let header =
        |name| hostcalls::get_map_value_bytes(MapType::GrpcReceiveInitialMetadata, name).ok().flatten();
    let Some(stream) = pool.get_mut(token) else { return };
    match header(MARK) {
        Some(mark) => {
            stream.marks_last = mark == MARKS_LAST.as_bytes();
            pool.opened(token);
        }
        None if header(":status").is_some_and(|status| status == b"200") => {
            pool.fail(token, &StoreFailure::NotTheBridge);
        }
        // Envoy closes a stream whose status is not 200 right after this callback.
        None => stream.is_foreign = true,
    }
}

/// A message of this stream was read, and may be its last. Envoy reports the close after this callback, or has lost it.
pub(super) fn read(pool: &mut Pool<Streams>, token: Token, is_last: bool) {
    if is_last {
        pool.retire(token);
    } else if pool.get_mut(token).is_some_and(|stream| !stream.marks_last) {
        pool.rest(token);
    }
}

/// Envoy has closed a stream.
pub(super) fn closed(pool: &mut Pool<Streams>, token: Token, status: u32) {
    let is_foreign = pool.get_mut(token).is_some_and(|stream| stream.is_foreign);
    let failure =
        if is_foreign && status != UNAVAILABLE { StoreFailure::NotTheBridge } else { StoreFailure::Refused };
    pool.closed(token, &failure);
    cancel(token);
}

/// The host expects a protobuf here, `envoy.config.core.v3.GrpcService`; only its `envoy_grpc.cluster_name` is set. Its
/// lengths are varints, and the SDK takes text, which varints of one byte are. A longer name is passed as it is: the host
/// takes text that is no protobuf for the name of a cluster.
fn service(cluster: &str) -> String {
    let byte = |length: usize| u8::try_from(length).ok().filter(u8::is_ascii).map(char::from);
    match (byte(cluster.len() + 2), byte(cluster.len())) {
        (Some(outer), Some(inner)) => format!("\n{outer}\n{inner}{cluster}"),
        _ => String::from(cluster),
    }
}
