// SPDX-License-Identifier: Apache-2.0
//! The hooks of the network filters `weir.clock` and `weir.store`: the module's own connections to its Envoy. Envoy calls the hooks of a
//! connection on the connection's worker.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::Value;

use crate::abi::{self, Buffer, Envoy, Module};
use crate::connections::{self, CLOSE};
use crate::connector::{self, ListenerId};
use crate::envoy::{NetworkFilter, Scheduler, concurrency, copy, is_validation_mode};
use crate::login::Login;
use crate::panics::{caught, caught_or};
use crate::{clock, descriptors, pointers, worker};

/// The purpose of a listener's connections.
enum Role {
    Clock,
    /// To reach this cluster of Redis, with this login.
    Store(String, Option<Arc<Login>>),
}

/// The configuration of one listener's filter. All workers share it.
struct Configuration {
    role: Role,
    /// Absent while Envoy only checks its configuration.
    listener: Option<ListenerId>,
}

/// The filter of one connection.
struct Filter {
    envoy: NetworkFilter,
    configuration: Arc<Configuration>,
    worker: u32,
    /// Calls the hook `scheduled` when the filters behind this one are ready. From then on the worker has it.
    scheduler: Cell<Option<Scheduler>>,
    is_clock: Cell<bool>,
}

impl Configuration {
    fn read(name: &[u8], config: &[u8]) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(config).map_err(|error| format!("no JSON ({error})"))?;
        let string = |field: &str| {
            let value = json.get(field).and_then(Value::as_str).filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{field}: string expected"))
        };
        let role = match name {
            b"weir.clock" => Role::Clock,
            b"weir.store" => {
                let login = json.get("login_file").map(|_| string("login_file")).transpose()?;
                let login = login.map(|path| {
                    Login::from_file(path).map_err(|error| format!("login_file: {path:?}: {error}"))
                });
                Role::Store(string("cluster")?.to_owned(), login.transpose()?.map(Arc::new))
            }
            name => {
                let name = String::from_utf8_lossy(name);
                return Err(format!("filter_name: {name:?} is not one of \"weir.clock\", \"weir.store\""));
            }
        };
        let address = string("address")?;
        if !address.starts_with('@') || address.len() < 2 {
            return Err(format!("address: {address:?} is no abstract socket, such as \"@weir-store\""));
        }
        if is_validation_mode() {
            return Ok(Self { role, listener: None });
        }
        let login = match &role {
            Role::Clock => None,
            Role::Store(_, login) => login.clone(),
        };
        let listener = connector::add(address, concurrency(), login);
        let listener = listener.ok_or_else(|| format!("address: {address:?} is too long"))?;
        if let Role::Store(cluster, _) = &role {
            connections::register(cluster, listener);
        }
        Ok(Self { role, listener: Some(listener) })
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            connections::unregister(listener);
            connector::remove(listener);
        }
    }
}

/// Reads a configuration, on the main thread. A null pointer refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_config_new(
    _: Envoy,
    name: Buffer,
    config: Buffer,
) -> Module {
    // SAFETY: Envoy passes both to this hook.
    let (name, config) = unsafe { (copy(name), copy(config)) };
    let read = caught("network_filter_config_new", || {
        let read = Configuration::read(&name, &config);
        read.inspect_err(|error| log::error!("configuration of a network filter: {error}")).ok()
    });
    pointers::to_configuration(read.flatten())
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_config_destroy(config: Module) {
    // SAFETY: it comes from `Arc::into_raw`, and Envoy passes it to this hook once.
    let config = unsafe { pointers::take_configuration::<Configuration>(config) };
    caught("network_filter_config_destroy", move || drop(config));
}

/// Envoy has given a connection to a worker.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_new(config: Module, envoy: Envoy) -> Module {
    // SAFETY: it is this module's configuration of a network filter, which outlives its connections.
    let configuration = unsafe { pointers::share_configuration::<Configuration>(config) };
    // SAFETY: the worker drops the handle in `destroy`.
    let envoy = unsafe { NetworkFilter::new(envoy) };
    let filter = caught("network_filter_new", || {
        let worker = envoy.worker();
        if let Some(listener) = configuration.listener {
            connector::accepted(listener, worker);
        }
        Filter {
            envoy,
            configuration: Arc::clone(&configuration),
            worker,
            scheduler: Cell::new(None),
            is_clock: Cell::new(false),
        }
    });
    pointers::to_filter(filter)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_new_connection(_: Envoy, module: Module) -> u32 {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    let is_needed = caught("network_filter_new_connection", || match filter.configuration.role {
        Role::Clock => {
            filter.is_clock.set(worker::start_clock(filter.envoy));
            filter.is_clock.get()
        }
        // Envoy calls the filters behind this one after this hook.
        Role::Store(..) => {
            let (scheduler, is_needed) = (filter.envoy.scheduler(), descriptors::are_left());
            scheduler.iter().filter(|_| is_needed).for_each(|scheduler| scheduler.commit(clock::WAKE));
            filter.scheduler.set(scheduler);
            is_needed
        }
    });
    if is_needed == Some(false) {
        caught("network_filter_new_connection", || filter.envoy.close());
        return abi::STOP_ITERATION;
    }
    abi::CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_scheduled(_: Envoy, module: Module, event: u64) {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    let run = || match &filter.configuration.role {
        Role::Clock if filter.is_clock.get() => worker::scheduled(event),
        Role::Clock => {}
        Role::Store(..) if event == CLOSE => filter.envoy.close(),
        Role::Store(cluster, login) => {
            if let Some(scheduler) = filter.scheduler.take() {
                let credentials = login.as_ref().map(|login| login.credentials());
                worker::connect(filter.envoy, scheduler, cluster, credentials.as_deref());
            }
        }
    };
    caught_or("network_filter_scheduled", run, worker::reset);
}

/// The peer is this module, and it sends nothing: the module injects commands behind this hook. Any process in Envoy's network namespace
/// can connect to the listener, too. Its bytes must not reach Redis, so they stop here.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_read(
    _: Envoy,
    _: Module,
    length: usize,
    _: bool,
) -> u32 {
    ran!("network_filter_read");
    if length > 0 { abi::STOP_ITERATION } else { abi::CONTINUE }
}

/// Redis has answered. Nothing reaches the peer.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_write(
    _: Envoy,
    module: Module,
    length: usize,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    let run = || {
        let bytes = if length > 0 { filter.envoy.take_written() } else { Vec::new() };
        worker::received(filter.envoy, bytes, end_of_stream);
    };
    caught_or("network_filter_write", run, worker::reset);
    abi::STOP_ITERATION
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_event(_: Envoy, module: Module, event: u32) {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let filter = unsafe { pointers::share_filter::<Filter>(module) };
    if event <= abi::LAST_CLOSE_EVENT {
        closed("network_filter_event", &filter);
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_destroy(module: Module) {
    // SAFETY: it comes from `Rc::into_raw`, and Envoy passes it to this hook once.
    let filter = unsafe { pointers::take_filter::<Filter>(module) };
    closed("network_filter_destroy", &filter);
    caught("network_filter_destroy", || {
        if let Some(listener) = filter.configuration.listener {
            connector::closed(listener, filter.worker);
        }
    });
}

/// The connection is closed. The second call does nothing.
fn closed(hook: &'static str, filter: &Filter) {
    let run = || match filter.configuration.role {
        Role::Clock => worker::stop_clock(filter.envoy),
        Role::Store(ref cluster, _) if filter.scheduler.take().is_some() => worker::closed_early(cluster),
        Role::Store(..) => worker::close(filter.envoy),
    };
    caught_or(hook, run, worker::reset);
}
