// SPDX-License-Identifier: Apache-2.0
//! The filter of one request: shows its [`Session`] what Envoy shows of the request and of its response.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action as FilterAction, MapType};

use super::attributes::{self, HostAttributes};
use super::reply;
use super::worker::Worker;
use crate::request::body::Body;
use crate::session::{Chunk, Next, Session, Show};

/// The filter of one request.
pub(super) struct Filter {
    worker: Rc<RefCell<Worker>>,
    session: Session,
}

impl Filter {
    pub const fn new(id: u32, worker: Rc<RefCell<Worker>>) -> Self {
        Self { worker, session: Session::new(id) }
    }

    /// More bytes of the request's body have arrived.
    fn body_has(&mut self, bytes: usize, is_end: bool) -> FilterAction {
        let mut feed = |body: &mut Body| body.feed(&attributes::request_body(bytes));
        let exchange = HostAttributes::new(false);
        let chunk = Chunk { size: &|| bytes, feed: &mut feed, is_end };
        let next = self.session.body(&mut *self.worker.borrow_mut(), &exchange, chunk);
        act(next)
    }
}

/// The caller must hold no borrow: Envoy enters the filter again with the local reply.
fn act(next: Next) -> FilterAction {
    match next {
        Next::Continue => FilterAction::Continue,
        Next::Pause | Next::AwaitBody => FilterAction::Pause,
        Next::Reject(rejection) => {
            reply::reject(&rejection);
            FilterAction::Pause
        }
    }
}

impl Context for Filter {
    fn on_done(&mut self) -> bool {
        self.session.closed(&mut *self.worker.borrow_mut());
        true
    }
}

impl HttpContext for Filter {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> FilterAction {
        let exchange = HostAttributes::new(end_of_stream);
        let next = self.session.headers(&mut *self.worker.borrow_mut(), &exchange);
        if matches!(next, Next::AwaitBody) {
            weir_pause::await_body();
        }
        act(next)
    }

    // Envoy calls these for a paused request only if it waits for its body, and the plugin's configuration in Envoy has
    // `allow_on_headers_stop_iteration`. Then Envoy would go on with the request if these did not pause it again.
    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> FilterAction {
        self.body_has(size, end_of_stream)
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> FilterAction {
        self.body_has(0, true)
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> FilterAction {
        let fields = |name: &str| attributes::response_field(MapType::HttpResponseHeaders, name);
        for header in self.session.response_headers(&mut *self.worker.borrow_mut(), &fields, end_of_stream) {
            reply::add_header(header);
        }
        FilterAction::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> FilterAction {
        let pass = |with_bytes: bool, show: Show<'_>| {
            show(size, &if with_bytes { attributes::response_body(size) } else { Vec::new() });
        };
        self.session.response_body(&mut *self.worker.borrow_mut(), &pass, end_of_stream);
        FilterAction::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> FilterAction {
        let fields = |name: &str| attributes::response_field(MapType::HttpResponseTrailers, name);
        self.session.response_trailers(&mut *self.worker.borrow_mut(), &fields);
        FilterAction::Continue
    }
}
