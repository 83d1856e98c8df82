// SPDX-License-Identifier: Apache-2.0
//! The filter of one request: evaluates the policies, submits the request to the engine, and adds headers to its response.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action as FilterAction, MapType};

use super::super::now;
use super::attributes::{self, HostAttributes};
use super::reply;
use super::worker::Worker;
use crate::config::{Evaluation, Unasked};
use crate::engine::{Action, Submitted};
use crate::policy::settle::Watched;
use crate::request::body::Body;
use crate::response;
use crate::time::Micros;

/// The filter of one request.
pub(super) struct Filter {
    id: u32,
    worker: Rc<RefCell<Worker>>,
    /// Whether the engine knows the request. One that no policy applies to costs nothing more after its headers.
    submitted: bool,
    /// What has come of the body, while the request waits for it, and how many bytes that is.
    body: Option<(Body, usize)>,
    /// What the engine has to see of the response.
    watched: Watched,
}

impl Filter {
    pub fn new(id: u32, worker: Rc<RefCell<Worker>>) -> Self {
        Self { id, worker, submitted: false, body: None, watched: Watched::default() }
    }

    /// The engine may have something to send now: a settlement, or permits to release.
    fn send(worker: &mut Worker, now: Micros) {
        if worker.engine.wants_to_send() {
            worker.wake_up.send(now);
            worker.arm(now);
        }
    }
}

impl Context for Filter {
    fn on_done(&mut self) -> bool {
        if !self.submitted {
            return true;
        }
        let mut worker = self.worker.borrow_mut();
        let now = now();
        worker.engine.closed(self.id, now);
        Self::send(&mut worker, now);
        true
    }
}

impl Filter {
    /// Decides the request, if what is known of it is enough: its headers, and its body where that has come.
    fn decide(&mut self, end_of_stream: bool, body: Option<&Body>) -> FilterAction {
        let mut worker = self.worker.borrow_mut();
        let config = Rc::clone(worker.engine.config());
        let attributes = HostAttributes::new(end_of_stream);
        let mut unasked = Unasked::new();
        let mut evaluation = config.evaluate_and_note(&attributes, body, &mut unasked);
        if let Evaluation::AwaitBody(before) = evaluation {
            let now = now();
            if worker.engine.await_body(self.id, *before, now) && worker.arm(now) {
                self.submitted = true;
                self.body = config.body().map(|body| (body, 0));
                worker.report_unreadable(&attributes.into_failures());
                return FilterAction::Pause;
            }
            worker.engine.body_came(self.id, true);
            let Some(body) = config.unreadable_body() else { return FilterAction::Continue };
            evaluation = config.evaluate_and_note(&attributes, Some(&body), &mut unasked);
        }
        worker.report_unreadable(&attributes.into_failures());
        worker.note(&unasked);
        let (checks, is_enquiry) = match evaluation {
            Evaluation::Admit | Evaluation::AwaitBody(_) => return FilterAction::Continue,
            Evaluation::Deny(policy, denial) => {
                if config.journal.is_some() {
                    let now = now();
                    worker.engine.denied(policy, denial, now);
                    worker.arm(now);
                }
                drop(worker);
                let name =
                    policy.and_then(|policy| config.policies.get(policy)).map_or("", |policy| &policy.name);
                if config.emit_filter_state {
                    reply::write_record([("weir.policy", name), ("weir.outcome", "denied")]);
                }
                reply::reject(&response::deny(config.response(policy), name));
                return FilterAction::Pause;
            }
            Evaluation::Check(checks) => (checks, false),
            Evaluation::Enquiry(checks) => (checks, true),
        };
        self.submitted = true;
        let now = now();
        let mut submitted = match is_enquiry {
            true => worker.engine.enquire(self.id, checks, now),
            false => worker.engine.submit(self.id, checks, now),
        };
        if let Submitted::Wait = submitted {
            // While a batch is in flight its reply is the wake-up.
            if worker.engine.wants_to_send() {
                worker.wake_up.send(now);
            }
            // The timer decides the request at its deadline when neither a wake-up nor a reply arrives.
            if !worker.arm(now) {
                submitted = worker.engine.cannot_wait(self.id, now);
            }
        }
        if let Submitted::Decided(_) = submitted {
            reply::record(&worker.engine, self.id);
            // No wake-up is sent for it, so no turn of the root reports it.
            worker.report(now);
        }
        match submitted {
            Submitted::Wait => FilterAction::Pause,
            Submitted::Decided(Action::Admit) => FilterAction::Continue,
            Submitted::Decided(Action::Reject(rejection)) => {
                drop(worker);
                reply::reject(&rejection);
                FilterAction::Pause
            }
        }
    }

    /// More of the request's body has come, so many bytes in all since it was paused. A request that is not decided stays paused,
    /// with its body.
    fn body_has(&mut self, bytes: usize, is_end: bool) -> FilterAction {
        // One that is late, or denied meanwhile, waits for its body no longer.
        let body = self.body.take().filter(|_| self.worker.borrow().engine.awaits_body(self.id));
        if let Some((mut body, read)) = body {
            body.feed(&attributes::request_body(read, bytes.saturating_sub(read)));
            if is_end {
                body.end();
            }
            if !body.is_read() {
                self.body = Some((body, bytes));
                return FilterAction::Pause;
            }
            let mut worker = self.worker.borrow_mut();
            worker.engine.body_came(self.id, body.is_unreadable());
            worker.report(now());
            drop(worker);
            self.submitted = false;
            return self.decide(false, Some(&body));
        }
        let is_paused = self.submitted && self.worker.borrow().engine.is_paused(self.id);
        if is_paused { FilterAction::Pause } else { FilterAction::Continue }
    }
}

impl HttpContext for Filter {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> FilterAction {
        self.decide(end_of_stream, None)
    }

    // Called while the request is paused only where the plugin's configuration in Envoy has `allow_on_headers_stop_iteration`. Then
    // Envoy would go on with the request if these did not pause it again.
    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> FilterAction {
        self.body_has(size, end_of_stream)
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> FilterAction {
        let read = self.body.as_ref().map_or(0, |(_, read)| *read);
        self.body_has(read, true)
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> FilterAction {
        if !self.submitted {
            return FilterAction::Continue;
        }
        let mut worker = self.worker.borrow_mut();
        let worker = &mut *worker;
        if worker.engine.config().settles {
            let now = now();
            let fields = |name: &str| attributes::response_field(MapType::HttpResponseHeaders, name);
            self.watched = worker.engine.response_headers(self.id, &fields, now);
            Self::send(worker, now);
        }
        if let Some(admission) = worker.engine.admission(self.id) {
            for header in &admission.headers {
                reply::add_header(header);
            }
        }
        FilterAction::Continue
    }

    fn on_http_response_body(&mut self, size: usize, _end_of_stream: bool) -> FilterAction {
        if self.watched.size || self.watched.content {
            let content = if self.watched.content { attributes::response_body(size) } else { Vec::new() };
            self.worker.borrow_mut().engine.response_body(self.id, size, &content);
        }
        FilterAction::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> FilterAction {
        if self.watched.trailers {
            let mut worker = self.worker.borrow_mut();
            let now = now();
            let fields = |name: &str| attributes::response_field(MapType::HttpResponseTrailers, name);
            worker.engine.response_trailers(self.id, &fields, now);
            Self::send(&mut worker, now);
        }
        FilterAction::Continue
    }
}
