// SPDX-License-Identifier: Apache-2.0
//! The hooks of the HTTP filter `weir.limiter`. Envoy calls those of a request on the request's worker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use weir_core::engine::StreamId;
use weir_core::policy::settle::Watched;
use weir_core::request::body::Body;

use crate::abi::{self, Buffer, CONTINUE, Envoy, Module, STOP_ITERATION, data_status, headers_status};
use crate::envoy::{HttpFilter, MetricScope, copy};
use crate::limiter::{Configuration, Limiter, Verdict};
use crate::panics::caught;
use crate::{clock, kept, reply, worker};

/// `filter_name` of the filter.
const LIMITER: &[u8] = b"weir.limiter";

/// The filter of one request.
struct Filter {
    envoy: HttpFilter,
    limiter: Rc<Limiter>,
    /// Set when the engine knows the request. One that no policy applies to costs nothing more after its headers.
    stream: Cell<Option<StreamId>>,
    /// What has come of the body, while the request waits for it.
    body: RefCell<Option<Body>>,
    /// What the engine has to see of the response.
    watched: Cell<Watched>,
}

/// Reads a configuration, on the main thread, also for `--mode validate`. A null pointer refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: Envoy,
    name: Buffer,
    config: Buffer,
) -> Module {
    // SAFETY: Envoy hands both out for this hook.
    let (name, config) = unsafe { (copy(name), copy(config)) };
    let read = caught("http_filter_config_new", || {
        if name != LIMITER {
            let name = String::from_utf8_lossy(&name);
            log::error!("filter_name: {name:?} of an HTTP filter is not \"weir.limiter\"");
            return None;
        }
        #[cfg(feature = "other_ways")]
        crate::other_ways::main_thread::configure(envoy);
        // SAFETY: `envoy` is the configuration that this hook reads, and `Configuration::end` forgets it.
        Configuration::read(config, unsafe { MetricScope::new(envoy) })
    });
    kept::configuration(read.flatten())
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: Module) {
    // SAFETY: it comes from `Arc::into_raw`, and Envoy passes it to this hook once.
    let config = unsafe { Arc::from_raw(config.cast::<Configuration>()) };
    caught("http_filter_config_destroy", || {
        config.end();
        // The workers refund their leases, and drop their limiters.
        clock::wake_all();
    });
}

/// A request has arrived. A null pointer would close the stream.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(config: Module, envoy: Envoy) -> Module {
    // SAFETY: it is this module's configuration of an HTTP filter, which outlives its requests.
    let config = unsafe { kept::share_configuration::<Configuration>(config) };
    // SAFETY: the filter forgets the handle in `destroy`, by the limiter's `closed`.
    let envoy = unsafe { HttpFilter::new(envoy) };
    let limiter = caught("http_filter_new", || worker::limiter(&config)).flatten();
    kept::filter(limiter.map(|limiter| Filter {
        envoy,
        limiter,
        stream: Cell::new(None),
        body: RefCell::default(),
        watched: Cell::default(),
    }))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    _: Envoy,
    module: Module,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    let verdict = caught("http_filter_request_headers", || {
        filter.limiter.request(filter.envoy, end_of_stream, &filter.stream)
    });
    let verdict = verdict.or_else(|| {
        caught("http_filter_request_headers", || {
            filter.limiter.give_up();
            filter.stream.set(None);
            filter.limiter.request_again(filter.envoy, end_of_stream, &filter.stream)
        })
    });
    let verdict = verdict.unwrap_or_else(|| filter.limiter.last_resort());
    match verdict {
        Verdict::Continue => headers_status::CONTINUE,
        Verdict::Pause => headers_status::STOP_ALL_AND_WATERMARK,
        Verdict::AwaitBody(body) => {
            *filter.body.borrow_mut() = Some(body);
            headers_status::STOP_ITERATION
        }
        Verdict::Reject(rejection) => {
            caught("http_filter_request_headers", || reply::reject(filter.envoy, &rejection));
            headers_status::STOP_ITERATION
        }
    }
}

/// More of a request's body has come, which Envoy shows unless the request waits for the store. Returns whether it waits,
/// and for what.
fn body_came(filter: &Filter, hook: &'static str, is_end: bool, show: impl FnOnce(&mut Body)) -> Waits {
    let Some(stream) = filter.stream.get() else { return Waits::No };
    let decide = || {
        // After a panic, or when it is late, the request waits for its body no longer.
        let body = filter.body.borrow_mut().take().filter(|_| filter.limiter.awaits_body(stream));
        let Some(mut body) = body else {
            return if filter.limiter.is_paused(stream) { Verdict::Pause } else { Verdict::Continue };
        };
        show(&mut body);
        if is_end {
            body.end();
        }
        match body.is_read() {
            true => filter.limiter.request_with_body(stream, filter.envoy, &body, &filter.stream),
            false => Verdict::AwaitBody(body),
        }
    };
    let verdict = caught(hook, decide).or_else(|| {
        caught(hook, || {
            filter.limiter.forget(stream);
            filter.limiter.give_up();
            filter.stream.set(None);
            filter.limiter.request_again(filter.envoy, false, &filter.stream)
        })
    });
    match verdict.unwrap_or_else(|| filter.limiter.last_resort()) {
        Verdict::Continue => Waits::No,
        Verdict::Pause => Waits::ForStore,
        Verdict::AwaitBody(body) => {
            *filter.body.borrow_mut() = Some(body);
            Waits::ForBody
        }
        Verdict::Reject(rejection) => {
            caught(hook, || reply::reject(filter.envoy, &rejection));
            Waits::ForNothing
        }
    }
}

/// What a request waits for whose body comes.
enum Waits {
    No,
    ForBody,
    ForStore,
    /// It is rejected.
    ForNothing,
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    _: Envoy,
    module: Module,
    end_of_stream: bool,
) -> u32 {
    ran!("http_filter_request_body");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    let show = |body: &mut Body| filter.envoy.received(abi::Body::ReceivedRequest, |chunk| body.feed(chunk));
    match body_came(&filter, "http_filter_request_body", end_of_stream, show) {
        Waits::No => CONTINUE,
        Waits::ForBody => data_status::STOP_AND_BUFFER,
        Waits::ForStore => data_status::STOP_AND_WATERMARK,
        Waits::ForNothing => data_status::STOP_NO_BUFFER,
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(_: Envoy, module: Module) -> u32 {
    ran!("http_filter_request_trailers");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    match body_came(&filter, "http_filter_request_trailers", true, |_| {}) {
        Waits::No => CONTINUE,
        Waits::ForBody | Waits::ForStore | Waits::ForNothing => STOP_ITERATION,
    }
}

/// Runs a hook of a response, if the engine knows its request. A panic may have left the engine half changed.
///
/// # Safety
/// Envoy passes this filter to the hook.
unsafe fn of_response<T>(
    module: Module,
    hook: &'static str,
    run: impl FnOnce(&Filter, StreamId) -> T,
) -> Option<T> {
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    let stream = filter.stream.get()?;
    let done = caught(hook, || run(&filter, stream));
    if done.is_none() {
        caught(hook, || filter.limiter.give_up());
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(_: Envoy, module: Module, _: bool) -> u32 {
    ran!("http_filter_response_headers");
    let run = |filter: &Filter, stream| filter.watched.set(filter.limiter.response(stream, filter.envoy));
    // SAFETY: Envoy passes the filter to this hook.
    unsafe { of_response(module, "http_filter_response_headers", run) };
    headers_status::CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(_: Envoy, module: Module, _: bool) -> u32 {
    ran!("http_filter_response_body");
    let run = |filter: &Filter, stream| {
        let watched = filter.watched.get();
        if watched.size || watched.content {
            filter.limiter.response_body(stream, filter.envoy);
        }
    };
    // SAFETY: Envoy passes the filter to this hook.
    unsafe { of_response(module, "http_filter_response_body", run) };
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(_: Envoy, module: Module) -> u32 {
    ran!("http_filter_response_trailers");
    let run = |filter: &Filter, stream| {
        if filter.watched.get().trailers {
            filter.limiter.response_trailers(stream, filter.envoy);
        }
    };
    // SAFETY: Envoy passes the filter to this hook.
    unsafe { of_response(module, "http_filter_response_trailers", run) };
    CONTINUE
}

/// The clock that this request has for want of another has called.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(_: Envoy, _: Module, event: u64) {
    if caught("http_filter_scheduled", || worker::scheduled(event)).is_none() {
        caught("http_filter_scheduled", worker::give_up);
    }
}

/// The request is over, however it ended.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(module: Module) {
    ran!("http_filter_destroy");
    // SAFETY: it comes from `Rc::into_raw`, and Envoy passes it to this hook once.
    let filter = unsafe { Rc::from_raw(module.cast::<Filter>()) };
    if let Some(stream) = filter.stream.take() {
        let closed = caught("http_filter_destroy", || filter.limiter.closed(stream));
        if closed.is_none() {
            caught("http_filter_destroy", || filter.limiter.give_up());
        }
    }
}
