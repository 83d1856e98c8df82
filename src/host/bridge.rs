// SPDX-License-Identifier: Apache-2.0
//! The HTTP filter of Redis's cluster. Each stream of the limiter passes it on the way to a connection of its own; the filter
//! hands the bytes to [`crate::bridge`], and puts its output in their place.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, MapType};

use super::{now, read};
use crate::bridge::{Bridge, MARK, MARKS_LAST, Output};
use crate::time::{Micros, Throttle};

/// Streams closed for the same reason are logged at most once in this time.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// One per worker.
#[derive(Default)]
pub struct Root {
    closings: Rc<RefCell<Closings>>,
}

/// The log throttles for closed streams of this worker, by what was expected. There are about ten expectations.
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
        // Envoy's `credential_injector`, a filter before this one, has added it.
        let map = MapType::HttpRequestHeaders;
        if let Ok(Some(credentials)) = hostcalls::get_map_value_bytes(map, "authorization") {
            self.bridge = Bridge::authenticating(&credentials);
            // Remove it, so that no later filter or log shows it.
            let _ = hostcalls::set_map_value(map, "authorization", None);
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, count: usize, _end_of_stream: bool) -> Action {
        // A plain connection has no headers: Envoy adds a `:status`. A response with more comes from a server that speaks HTTP.
        if count > 1 {
            return Action::Continue;
        }
        // The limiter closes a stream without the mark.
        let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, MARK, Some(MARKS_LAST));
        Action::Continue
    }

    fn on_http_request_body(&mut self, size: usize, _end_of_stream: bool) -> Action {
        // The end of the stream is no reason to close it: what was passed on before may still be on its way.
        if size == 0 {
            return Action::Continue;
        }
        let bytes = read(BufferType::HttpRequestBody, size);
        let output = bytes.as_deref().map_or(UNREAD, |bytes| self.bridge.on_downstream(bytes));
        pass_on(BufferType::HttpRequestBody, size, &output, &self.closings);
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        // The end of the stream is no reason to close it: what was passed on before may still be on its way.
        if size == 0 {
            return Action::Continue;
        }
        let bytes = read(BufferType::HttpResponseBody, size);
        let output = bytes.as_deref().map_or(UNREAD, |bytes| self.bridge.on_upstream(bytes, end_of_stream));
        pass_on(BufferType::HttpResponseBody, size, &output, &self.closings);
        Action::Continue
    }
}

const UNREAD: Output<'static> = Output::Close("bytes that it can read");

/// Replaces the `size` bytes of input by the output. The host's buffer is emptied every time: bytes that wait for the
/// rest wait in the bridge.
fn pass_on(buffer: BufferType, size: usize, output: &Output<'_>, closings: &RefCell<Closings>) {
    let (bytes, mut expected) = match output {
        Output::Send(bytes) => (bytes.as_ref(), None),
        Output::Close(expected) => (&[][..], Some(*expected)),
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
