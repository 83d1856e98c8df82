//! The HTTP filter of Redis's cluster, where each of the limiter's streams comes through on its way to a connection of its
//! own: feeds [`crate::bridge`] and puts what it says on the wire.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, MapType};

use super::now;
use crate::bridge::{Bridge, MARK, Onward};
use crate::time::{Micros, Throttle};

/// The same expectation is logged at most once in this time, however many streams disappoint it.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// One per worker.
#[derive(Default)]
pub struct Root {
    closings: Rc<RefCell<Closings>>,
}

/// What streams of this worker were closed for. There are a handful of expectations.
#[derive(Default)]
struct Closings(Vec<(&'static str, Throttle)>);

impl Closings {
    fn log(&mut self, expected: &'static str) {
        if !self.0.iter().any(|(other, _)| *other == expected) {
            self.0.push((expected, Throttle::default()));
        }
        let closing = self.0.iter_mut().find(|(other, _)| *other == expected);
        match closing.and_then(|(_, throttle)| throttle.admit(LOG_INTERVAL, now())) {
            None => {}
            Some(0) => log::error!("the bridge closes a stream: it expected {expected}"),
            Some(more) => {
                log::error!("the bridge closes a stream: it expected {expected} ({more} more streams since)");
            }
        }
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Connection { bridge: Bridge::new(), closings: Rc::clone(&self.closings) }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// One per stream.
struct Connection {
    bridge: Bridge,
    closings: Rc<RefCell<Closings>>,
}

impl Context for Connection {}

impl HttpContext for Connection {
    fn on_http_request_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        // A filter before this one has put it there: it never leaves the process.
        let map = MapType::HttpRequestHeaders;
        if let Ok(Some(credentials)) = hostcalls::get_map_value_bytes(map, "authorization") {
            self.bridge = Bridge::authenticating(&credentials);
            // Nobody else is to come across it.
            let _ = hostcalls::set_map_value(map, "authorization", None);
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, count: usize, _end_of_stream: bool) -> Action {
        // A plain connection has no headers: Envoy makes up a `:status` for it. What has more speaks HTTP.
        if count > 1 {
            return Action::Continue;
        }
        // Unmarked it is taken for a stranger's.
        let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, MARK, Some("1"));
        Action::Continue
    }

    fn on_http_request_body(&mut self, size: usize, _end_of_stream: bool) -> Action {
        // An end alone says nothing; what was passed on before may still be on its way out.
        if size == 0 {
            return Action::Continue;
        }
        let bytes = read(BufferType::HttpRequestBody, size);
        let onward = bytes.as_deref().map_or(UNREAD, |bytes| self.bridge.on_downstream(bytes));
        pass_on(BufferType::HttpRequestBody, size, &onward, &self.closings);
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, _end_of_stream: bool) -> Action {
        // An end alone says nothing; what was passed on before may still be on its way out.
        if size == 0 {
            return Action::Continue;
        }
        let bytes = read(BufferType::HttpResponseBody, size);
        let onward = bytes.as_deref().map_or(UNREAD, |bytes| self.bridge.on_upstream(bytes));
        pass_on(BufferType::HttpResponseBody, size, &onward, &self.closings);
        Action::Continue
    }
}

const UNREAD: Onward<'static> = Onward::Close("bytes that it can read");

fn read(buffer: BufferType, size: usize) -> Option<Vec<u8>> {
    hostcalls::get_buffer(buffer, 0, size).ok().flatten()
}

/// Puts what goes on in the place of the `size` bytes that came. The host's buffer is emptied every time: what has
/// to wait for the rest waits in the bridge.
fn pass_on(buffer: BufferType, size: usize, onward: &Onward<'_>, closings: &RefCell<Closings>) {
    let (bytes, mut expected) = match onward {
        Onward::Send(bytes) => (bytes.as_ref(), None),
        Onward::Close(expected) => (&[][..], Some(*expected)),
    };
    if hostcalls::set_buffer(buffer, 0, size, bytes).is_err() {
        expected = Some("to write to its connection");
    }
    if let Some(expected) = expected {
        closings.borrow_mut().log(expected);
        // It fails when the stream is closed already.
        let _ = hostcalls::reset_http_request();
    }
}
