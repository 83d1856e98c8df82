//! The network filter in front of `redis_proxy`: feeds [`crate::bridge`] and puts what it says on the wire.

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, RootContext, StreamContext};
use proxy_wasm::types::{Action, BufferType, ContextType};

use crate::bridge::{Bridge, Onward};

/// One per worker.
pub struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn create_stream_context(&self, _id: u32) -> Option<Box<dyn StreamContext>> {
        Some(Box::new(Connection { bridge: Bridge::new() }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::StreamContext)
    }
}

/// One per connection of the internal listener.
struct Connection {
    bridge: Bridge,
}

impl Context for Connection {}

impl StreamContext for Connection {
    fn on_downstream_data(&mut self, size: usize, _end_of_stream: bool) -> Action {
        if let Ok(Some(data)) = hostcalls::get_buffer(BufferType::DownstreamData, 0, size) {
            pass_on(BufferType::DownstreamData, size, &self.bridge.on_downstream(&data));
        }
        Action::Continue
    }

    fn on_upstream_data(&mut self, size: usize, _end_of_stream: bool) -> Action {
        if let Ok(Some(data)) = hostcalls::get_buffer(BufferType::UpstreamData, 0, size) {
            pass_on(BufferType::UpstreamData, size, &self.bridge.on_upstream(&data));
        }
        Action::Continue
    }
}

/// Puts what goes on in the place of the `size` bytes that came. The host's buffer is emptied every time: what has
/// to wait for the rest waits in the bridge.
fn pass_on(buffer: BufferType, size: usize, onward: &Onward<'_>) {
    let (bytes, mut close) = match onward {
        Onward::Send(bytes) => (bytes.as_ref(), false),
        Onward::Close => (&[][..], true),
    };
    if let Err(status) = hostcalls::set_buffer(buffer, 0, size, bytes) {
        log::error!("the bridge cannot write to its connection: {status:?}");
        close = true;
    }
    if close && let Err(status) = hostcalls::close_downstream() {
        log::error!("the bridge cannot close its connection: {status:?}");
    }
}
