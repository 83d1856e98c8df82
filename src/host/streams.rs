//! The streams to the bridge of one worker: who carries which batch.
//!
//! A stream is a connection of its own to the store, and carries one batch at a time. It stays open between batches, so that
//! a batch costs no more than its bytes; one that is closed, whoever closed it, is opened anew by the next batch.
//!
//! What Envoy's side of a stream bears was learned from crashes. A stream is not cancelled from within a callback that tells its
//! headers or a message: Envoy goes on with it afterwards. One that Envoy has closed is cancelled from within the
//! callback that tells so, and not later: until then it is in Envoy's books, and after that its memory is gone. And nothing is
//! sent before the headers are there: a stream that fails while it is sent its first message tells its
//! headers in the middle of that call, and this VM cannot be entered twice.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use crate::bridge::MARK;
use crate::engine::{BatchId, Outgoing, StoreFailure};

/// gRPC's UNAVAILABLE: what the host makes of a connection that could not be opened.
const UNAVAILABLE: u32 = 14;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Streams {
    open: Vec<Stream>,
    /// Those that carry no batch again, to be cancelled when no callback of theirs runs.
    done: Vec<u32>,
}

struct Stream {
    /// The host's name for it.
    token: u32,
    /// Whether whoever answers has said to be the bridge; `None` while nobody has answered.
    marked: Option<bool>,
    batch: Option<BatchId>,
    /// What is to be sent when the bridge has answered.
    held: Option<Vec<u8>>,
}

impl Streams {
    /// Sends a batch, at once on a stream that is idle, or on a new one when that is open. Called in the root's context: a
    /// stream belongs to the context that opened it.
    pub fn send(&mut self, cluster: &str, Outgoing { id, body }: Outgoing) -> Result<(), StoreFailure> {
        let Some(idle) = self.open.iter_mut().rfind(|stream| stream.batch.is_none()) else {
            let token = open(cluster)?;
            self.open.push(Stream { token, marked: None, batch: Some(id), held: Some(body) });
            return Ok(());
        };
        idle.batch = Some(id);
        let token = idle.token;
        message(token, &body).inspect_err(|_| self.let_go(token))
    }

    /// A stream has an answer: to this batch.
    pub fn answered(&mut self, token: u32) -> Option<BatchId> {
        self.find(token)?.batch.take()
    }

    /// A stream has headers: the bridge's, if it is the bridge that is at its other end. If not, what was to be answered.
    pub fn began(&mut self, token: u32) -> Option<(BatchId, StoreFailure)> {
        let header =
            |name| hostcalls::get_map_value_bytes(MapType::GrpcReceiveInitialMetadata, name).ok().flatten();
        let (stream, marked) = (self.find(token)?, header(MARK).is_some());
        stream.marked = Some(marked);
        let batch = stream.batch?;
        let failure = match (marked, stream.held.take()) {
            (true, Some(held)) => message(token, &held).err()?,
            (true, None) => return None,
            // What is not 200 is closed by the host next.
            (false, _) if header(":status").is_none_or(|status| status != b"200") => return None,
            (false, _) => StoreFailure::NotTheBridge,
        };
        self.let_go(token);
        Some((batch, failure))
    }

    /// A stream was closed: what had not been answered yet, and why it will not be.
    pub fn closed(&mut self, token: u32, status: u32) -> Option<(BatchId, StoreFailure)> {
        let stream = self.find(token).map(|stream| (stream.batch, stream.marked));
        self.cancel(token);
        let (batch, marked) = stream?;
        let stranger = marked == Some(false) && status != UNAVAILABLE;
        Some((batch?, if stranger { StoreFailure::NotTheBridge } else { StoreFailure::Refused }))
    }

    /// A stream is of no use any more.
    pub fn let_go(&mut self, token: u32) {
        self.open.retain(|stream| stream.token != token);
        self.done.push(token);
    }

    /// Cancels what was let go. Not called from a stream's own callback.
    pub fn clear(&mut self) {
        for token in std::mem::take(&mut self.done) {
            self.cancel(token);
        }
    }

    /// Nobody waits any longer for the answer to this batch. What it would have been must not be taken for the next one's.
    pub fn give_up(&mut self, batch: BatchId) {
        if let Some(stream) = self.open.iter().find(|stream| stream.batch == Some(batch)) {
            self.let_go(stream.token);
        }
    }

    fn find(&mut self, token: u32) -> Option<&mut Stream> {
        self.open.iter_mut().find(|stream| stream.token == token)
    }

    fn cancel(&mut self, token: u32) {
        self.open.retain(|stream| stream.token != token);
        self.done.retain(|done| *done != token);
        // It fails when Envoy has forgotten it already.
        let _ = hostcalls::cancel_grpc_stream(token);
    }
}

fn message(token: u32, commands: &[u8]) -> Result<(), StoreFailure> {
    hostcalls::send_grpc_stream_message(token, Some(commands), false).map_err(|_| StoreFailure::NotSent)
}

fn open(cluster: &str) -> Result<u32, StoreFailure> {
    hostcalls::open_grpc_stream(&service(cluster), "weir", "bridge", Vec::new())
        .map_err(|_| StoreFailure::NotSent)
}

/// The host wants a protobuf here, `envoy.config.core.v3.GrpcService`, of which only `envoy_grpc.cluster_name` is said. Its
/// lengths are varints, and the SDK wants text: what is longer than the one-byte ones
/// goes as it is, which the host takes for the name of a cluster when it is no protobuf.
fn service(cluster: &str) -> String {
    let byte = |length: usize| u8::try_from(length).ok().filter(u8::is_ascii).map(char::from);
    match (byte(cluster.len() + 2), byte(cluster.len())) {
        (Some(outer), Some(inner)) => format!("\n{outer}\n{inner}{cluster}"),
        _ => String::from(cluster),
    }
}
