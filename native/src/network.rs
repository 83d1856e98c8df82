// SPDX-License-Identifier: Apache-2.0
//! The hooks of the network filters `weir.clock` and `weir.store`: the module's own connections to its Envoy. Envoy calls those of a
//! connection on the connection's worker.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use crate::abi::{self, Buffer, Envoy, Module};
use crate::anchors::{self, ListenerId};
use crate::envoy::{Connection, Scheduler, concurrency, copy, is_validation_mode};
use crate::login::Login;
use crate::panics::caught;
use crate::ways::{self, CLOSE};
use crate::{clock, descriptors, kept, worker};

/// What connections of a listener are for.
enum Role {
    Clock,
    /// A way to this cluster, with this login.
    Store(String, Option<Arc<Login>>),
}

/// One listener's filter, as all workers share it.
struct Configuration {
    role: Role,
    /// Absent when Envoy only checks its configuration.
    listener: Option<ListenerId>,
}

/// The filter of one connection.
struct Anchor {
    envoy: Connection,
    configuration: Arc<Configuration>,
    worker: u32,
    /// Calls the hook `scheduled` when the filters behind this one are ready. The way keeps it from then on.
    start: Cell<Option<Scheduler>>,
    is_clock: Cell<bool>,
}

impl Configuration {
    fn read(name: &[u8], config: &[u8]) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(config).map_err(|error| format!("no JSON ({error})"))?;
        let text = |field: &str| {
            let value = json.get(field).and_then(Value::as_str).filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{field}: text expected"))
        };
        let role = match name {
            b"weir.clock" => Role::Clock,
            b"weir.store" => {
                let login = json.get("login_file").map(|_| text("login_file")).transpose()?;
                let login = login.map(|path| {
                    Login::from_file(path).map_err(|error| format!("login_file: {path:?}: {error}"))
                });
                Role::Store(text("cluster")?.to_owned(), login.transpose()?.map(Arc::new))
            }
            name => {
                let name = String::from_utf8_lossy(name);
                return Err(format!("filter_name: {name:?} is not one of \"weir.clock\", \"weir.store\""));
            }
        };
        let address = text("address")?;
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
        let listener = anchors::add(address, concurrency(), login);
        let listener = listener.ok_or_else(|| format!("address: {address:?} is too long"))?;
        if let Role::Store(cluster, _) = &role {
            ways::register(cluster, listener);
        }
        Ok(Self { role, listener: Some(listener) })
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            ways::unregister(listener);
            anchors::remove(listener);
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
    // SAFETY: Envoy hands both out for this hook.
    let (name, config) = unsafe { (copy(name), copy(config)) };
    let read = caught("network_filter_config_new", || {
        let read = Configuration::read(&name, &config);
        read.inspect_err(|error| log::error!("configuration of a network filter: {error}")).ok()
    });
    kept::configuration(read.flatten())
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_config_destroy(config: Module) {
    // SAFETY: it comes from `Arc::into_raw`, and Envoy passes it to this hook once.
    let config = unsafe { Arc::from_raw(config.cast::<Configuration>()) };
    caught("network_filter_config_destroy", || drop(config));
}

/// A connection has arrived at a worker.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_new(config: Module, envoy: Envoy) -> Module {
    // SAFETY: it is this module's configuration of a network filter, which outlives its connections.
    let configuration = unsafe { kept::share_configuration::<Configuration>(config) };
    // SAFETY: the worker forgets the handle in `destroy`.
    let envoy = unsafe { Connection::new(envoy) };
    let anchor = caught("network_filter_new", || {
        let worker = envoy.worker();
        if let Some(listener) = configuration.listener {
            anchors::arrived(listener, worker);
        }
        Anchor { envoy, configuration, worker, start: Cell::new(None), is_clock: Cell::new(false) }
    });
    kept::filter(anchor)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_new_connection(_: Envoy, module: Module) -> u32 {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let anchor = unsafe { kept::share_filter::<Anchor>(module) };
    let begins = caught("network_filter_new_connection", || match anchor.configuration.role {
        Role::Clock => {
            anchor.is_clock.set(worker::start_clock(anchor.envoy));
            anchor.is_clock.get()
        }
        // The filters behind this one hear of the connection after this hook.
        Role::Store(..) => {
            let (scheduler, begins) = (anchor.envoy.scheduler(), descriptors::suffice());
            scheduler.iter().filter(|_| begins).for_each(|scheduler| scheduler.commit(clock::WAKE));
            anchor.start.set(scheduler);
            begins
        }
    });
    if begins == Some(false) {
        caught("network_filter_new_connection", || anchor.envoy.close());
        return abi::STOP_ITERATION;
    }
    abi::CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_scheduled(_: Envoy, module: Module, event: u64) {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let anchor = unsafe { kept::share_filter::<Anchor>(module) };
    let done = caught("network_filter_scheduled", || match &anchor.configuration.role {
        Role::Clock if anchor.is_clock.get() => worker::scheduled(event),
        Role::Clock => {}
        Role::Store(..) if event == CLOSE => anchor.envoy.close(),
        Role::Store(cluster, login) => {
            if let Some(scheduler) = anchor.start.take() {
                let credentials = login.as_ref().map(|login| login.credentials());
                worker::begin_way(anchor.envoy, scheduler, cluster, credentials.as_deref());
            }
        }
    });
    if done.is_none() {
        caught("network_filter_scheduled", worker::give_up);
    }
}

/// The peer is this module, and it sends nothing: commands are injected behind this hook. Any process in Envoy's network namespace can
/// connect to the listener, too. Its bytes must not reach Redis, so they stay here.
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

/// The store has answered. Nothing is passed on to the peer.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_write(
    _: Envoy,
    module: Module,
    length: usize,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let anchor = unsafe { kept::share_filter::<Anchor>(module) };
    let done = caught("network_filter_write", || {
        if length > 0 {
            let bytes = anchor.envoy.take_written();
            worker::received(anchor.envoy, bytes);
        }
        if end_of_stream {
            worker::ended(anchor.envoy);
        }
    });
    if done.is_none() {
        caught("network_filter_write", worker::give_up);
    }
    abi::STOP_ITERATION
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_event(_: Envoy, module: Module, event: u32) {
    // SAFETY: Envoy passes the filter of a connection that is not destroyed.
    let anchor = unsafe { kept::share_filter::<Anchor>(module) };
    if event <= abi::LAST_CLOSE_EVENT {
        end("network_filter_event", &anchor);
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_network_filter_destroy(module: Module) {
    // SAFETY: it comes from `Rc::into_raw`, and Envoy passes it to this hook once.
    let anchor = unsafe { Rc::from_raw(module.cast::<Anchor>()) };
    end("network_filter_destroy", &anchor);
    caught("network_filter_destroy", || {
        if let Some(listener) = anchor.configuration.listener {
            anchors::gone(listener, anchor.worker);
        }
    });
}

/// The connection is closed. It does nothing at the second call.
fn end(hook: &'static str, anchor: &Anchor) {
    let done = caught(hook, || match anchor.configuration.role {
        Role::Clock => worker::stop_clock(anchor.envoy),
        Role::Store(ref cluster, _) if anchor.start.take().is_some() => worker::never_began(cluster),
        Role::Store(..) => worker::ended(anchor.envoy),
    });
    if done.is_none() {
        caught(hook, worker::give_up);
    }
}
