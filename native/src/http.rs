//! The hooks of the HTTP filter `weir.limiter`. Envoy calls those of a request on the request's worker.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use weir_core::engine::StreamId;
use weir_core::policy::settle::Watched;

use crate::abi::{Buffer, CONTINUE, Envoy, Module, headers_status};
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
        Verdict::Reject(rejection) => {
            caught("http_filter_request_headers", || reply::reject(filter.envoy, &rejection));
            headers_status::STOP_ITERATION
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(_: Envoy, module: Module, _: bool) -> u32 {
    ran!("http_filter_response_headers");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    if let Some(stream) = filter.stream.get() {
        let watched =
            caught("http_filter_response_headers", || filter.limiter.response(stream, filter.envoy));
        filter.watched.set(watched.unwrap_or_default());
    }
    headers_status::CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(_: Envoy, module: Module, _: bool) -> u32 {
    ran!("http_filter_response_body");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    let watched = filter.watched.get();
    if let Some(stream) = filter.stream.get().filter(|_| watched.size || watched.content) {
        caught("http_filter_response_body", || filter.limiter.response_body(stream, filter.envoy));
    }
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(_: Envoy, module: Module) -> u32 {
    ran!("http_filter_response_trailers");
    // SAFETY: Envoy passes the filter of a request that is not destroyed.
    let filter = unsafe { kept::share_filter::<Filter>(module) };
    if let Some(stream) = filter.stream.get().filter(|_| filter.watched.get().trailers) {
        caught("http_filter_response_trailers", || {
            filter.limiter.response_trailers(stream, filter.envoy);
        });
    }
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
