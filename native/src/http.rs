// SPDX-License-Identifier: Apache-2.0
//! The hooks of the HTTP filter `weir.limiter`. Envoy calls those of a request on the request's worker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_core::request::body::Body;
use weir_core::session::{Chunk, Next, Session};

use crate::abi::{
    self, Buffer, CONTINUE, Envoy, Header, Module, STOP_ITERATION, data_status, headers_status,
};
use crate::envoy::{HttpFilter, MetricScope, copy};
use crate::limiter::{Configuration, Decider, Limiter};
use crate::panics::{caught, caught_or};
use crate::{clock, pointers, reply, worker};

/// `filter_name` of the filter.
const LIMITER: &[u8] = b"weir.limiter";

/// The filter of one request.
struct Filter {
    envoy: HttpFilter,
    limiter: Rc<Limiter>,
    /// It gets its name when the headers come.
    session: RefCell<Session>,
    /// Envoy has ended the request, and `envoy` is freed.
    has_ended: Cell<bool>,
}

/// Reads a configuration, on the main thread, also for `--mode validate`. A null pointer refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: Envoy,
    name: Buffer,
    config: Buffer,
) -> Module {
    // SAFETY: Envoy passes both to this hook.
    let (name, config) = unsafe { (copy(name), copy(config)) };
    let read = caught("http_filter_config_new", || {
        if name != LIMITER {
            let name = String::from_utf8_lossy(&name);
            log::error!("filter_name: {name:?} of an HTTP filter is not \"weir.limiter\"");
            return None;
        }
        // SAFETY: `envoy` is the configuration that this hook reads, and `Configuration::remove` drops it.
        Configuration::read(config, unsafe { MetricScope::new(envoy) })
    });
    pointers::to_configuration(read.flatten())
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: Module) {
    // SAFETY: it comes from `Arc::into_raw`, and Envoy passes it to this hook once.
    let config = unsafe { pointers::take_configuration::<Configuration>(config) };
    caught("http_filter_config_destroy", || {
        config.remove();
        fault!("removal");
        // The workers refund their leases, and drop their limiters.
        clock::wake_all();
    });
}

/// A request has arrived. A null pointer would close the stream.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(config: Module, envoy: Envoy) -> Module {
    // SAFETY: it is this module's configuration of an HTTP filter, which outlives its requests.
    let config = unsafe { pointers::share_configuration::<Configuration>(config) };
    // SAFETY: nothing uses the handle after `destroy`, which calls the limiter's `closed`.
    let envoy = unsafe { HttpFilter::new(envoy) };
    let limiter = caught("http_filter_new", || worker::limiter(&config)).flatten();
    pointers::to_filter(limiter.map(|limiter| Filter {
        envoy,
        session: RefCell::new(Session::new(0)),
        has_ended: Cell::new(false),
        limiter,
    }))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    _: Envoy,
    module: Module,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    let next = filter.decide("http_filter_request_headers", end_of_stream, None);
    match next {
        Next::Continue => headers_status::CONTINUE,
        Next::Pause => headers_status::STOP_ALL_AND_WATERMARK,
        Next::AwaitBody | Next::Reject(_) => headers_status::STOP_ITERATION,
    }
}

impl Filter {
    /// Shows the session the headers or a chunk of the body, and sends the response if it rejects the request. If that panics,
    /// `on_failure` decides.
    fn decide(&self, hook: &'static str, end_of_stream: bool, chunk: Option<Chunk<'_>>) -> Next {
        let request = |chunk: Option<Chunk<'_>>, decider| {
            let session = &mut *self.session.borrow_mut();
            if chunk.is_none() {
                *session = self.limiter.session();
            }
            self.limiter.request(session, (self.envoy, end_of_stream), chunk, decider)
        };
        let next = caught(hook, || request(chunk, Decider::Store)).or_else(|| {
            caught(hook, || {
                self.limiter.forget(&self.session.borrow(), self.envoy);
                self.limiter.replace_engine();
                // To release another request may have ended this one.
                if self.has_ended.get() { Next::Pause } else { request(None, Decider::OnFailure) }
            })
        });
        let next = next.unwrap_or_else(|| self.limiter.decide_without_engine());
        if let Next::Reject(rejection) = &next
            && !self.has_ended.get()
        {
            caught(hook, || reply::reject(self.envoy, rejection));
        }
        next
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    _: Envoy,
    module: Module,
    end_of_stream: bool,
) -> u32 {
    ran!("http_filter_request_body");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    let mut feed = |body: &mut Body| {
        fault!("body");
        filter.envoy.body_chunks(abi::Body::ReceivedRequest, |chunk| body.feed(chunk));
    };
    let size = || {
        let mut size = 0_usize;
        filter.envoy.body_chunks(abi::Body::ReceivedRequest, |chunk| size = size.saturating_add(chunk.len()));
        size
    };
    let chunk = Chunk { size: &size, feed: &mut feed, is_end: end_of_stream };
    let next = filter.decide("http_filter_request_body", false, Some(chunk));
    match next {
        Next::Continue => CONTINUE,
        Next::AwaitBody | Next::Pause => data_status::STOP_AND_WATERMARK,
        Next::Reject(_) => data_status::STOP_NO_BUFFER,
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(_: Envoy, module: Module) -> u32 {
    ran!("http_filter_request_trailers");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    let chunk = Chunk { size: &|| 0, feed: &mut |_| {}, is_end: true };
    let next = filter.decide("http_filter_request_trailers", false, Some(chunk));
    match next {
        Next::Continue => CONTINUE,
        Next::AwaitBody | Next::Pause | Next::Reject(_) => STOP_ITERATION,
    }
}

/// Runs a hook of a response, if the engine knows its request. If the hook panics, replaces the engine.
///
/// # Safety
/// Envoy passes this filter to the hook.
unsafe fn run_on_response(
    module: Module,
    hook: &'static str,
    is_end: bool,
    run: fn(&Limiter, &mut Session, HttpFilter, bool),
) -> u32 {
    ran!(hook);
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    if filter.session.borrow().is_known() {
        let run = || run(&filter.limiter, &mut filter.session.borrow_mut(), filter.envoy, is_end);
        caught_or(hook, run, || filter.limiter.replace_engine());
    }
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    _: Envoy,
    module: Module,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: Envoy passes the filter to this hook.
    unsafe { run_on_response(module, "http_filter_response_headers", end_of_stream, Limiter::response) }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    _: Envoy,
    module: Module,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: Envoy passes the filter to this hook.
    unsafe { run_on_response(module, "http_filter_response_body", end_of_stream, Limiter::response_body) }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(_: Envoy, module: Module) -> u32 {
    // SAFETY: Envoy passes the filter to this hook.
    unsafe { run_on_response(module, "http_filter_response_trailers", true, Limiter::response_trailers) }
}

/// The request's own clock has called: the worker has no other yet.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(_: Envoy, _: Module, event: u64) {
    caught_or("http_filter_scheduled", || worker::scheduled(event), worker::reset);
}

/// The request has ended, for whatever reason.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(module: Module) {
    // SAFETY: it comes from `Rc::into_raw`, and Envoy passes it to this hook once.
    let filter = unsafe { pointers::take_filter::<Filter>(module) };
    filter.has_ended.set(true);
    // Whatever the engine knows of the request: the clock's scheduler must not outlive it.
    let had_clock = caught("http_filter_destroy", || worker::stop_request_clock(filter.envoy));
    if filter.session.borrow().is_known() {
        let close = || filter.limiter.closed(&mut filter.session.borrow_mut(), filter.envoy);
        caught_or("http_filter_destroy", close, || filter.limiter.replace_engine());
    }
    if had_clock == Some(true) {
        caught("http_filter_destroy", worker::replace_clock);
    }
}

macro_rules! ignore {
    ($($hook:ident($($argument:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $hook($(_: $argument),*) {
            ran!(stringify!($hook));
        })*
    };
}

// Hooks that do nothing: Envoy refuses the configuration of a module that lacks them. They report on streams and calls that a filter can
// begin. weir begins none.
ignore! {
    envoy_dynamic_module_on_http_filter_stream_complete(Envoy, Module);
    envoy_dynamic_module_on_http_filter_http_callout_done(
        Envoy, Module, u64, u32, *const Header, usize, *const Buffer, usize);
    envoy_dynamic_module_on_http_filter_http_stream_headers(Envoy, Module, u64, *const Header, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_data(Envoy, Module, u64, *const Buffer, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_trailers(Envoy, Module, u64, *const Header, usize);
    envoy_dynamic_module_on_http_filter_http_stream_complete(Envoy, Module, u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(Envoy, Module, u64, u32);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(Envoy, Module);
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(Envoy, Module);
}
