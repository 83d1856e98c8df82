// SPDX-License-Identifier: Apache-2.0
//! PROTOTYPE: a transport socket on Redis's cluster.
use std::cell::{Cell, RefCell};

use crate::abi::{self, Buffer, Envoy, Module};
use crate::envoy::NetworkFilter;
use crate::panics::{caught, caught_or};
use crate::{pointers, worker};

#[repr(C)]
struct IoResult {
    action: u32,
    bytes: u64,
    end: bool,
}

const KEEP: u32 = 0;
const CLOSE: u32 = 1;

struct Socket {
    envoy: Envoy,
    filter: Option<NetworkFilter>,
    connected: Cell<bool>,
}

thread_local! {
    static OPENING: Cell<Option<NetworkFilter>> = const { Cell::new(None) };
    static SOCKETS: RefCell<Vec<(NetworkFilter, Envoy)>> = const { RefCell::new(Vec::new()) };
    static BYTES: RefCell<Vec<u8>> = RefCell::new(vec![0; 65536]);
}

pub fn opening(filter: NetworkFilter) {
    OPENING.with(|opening| opening.set(Some(filter)));
}

/// Writes at once, if there is a socket.
pub fn write(filter: NetworkFilter, bytes: &[u8]) -> bool {
    let socket = SOCKETS.with(|sockets| {
        sockets.borrow().iter().find(|(other, _)| *other == filter).map(|(_, socket)| *socket)
    });
    let Some(socket) = socket else { return false };
    let mut written = 0;
    unsafe { abi::io_write(socket, bytes.as_ptr().cast(), bytes.len(), &raw mut written) };
    if written != bytes.len() {
        log::error!("PROTOTYPE: wrote {written} of {}", bytes.len());
    }
    true
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_factory_config_new(
    _: Envoy,
    _: Buffer,
    _: Buffer,
    _: bool,
) -> Module {
    pointers::to_configuration(Some(()))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_factory_config_destroy(_: Module) {}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_new(_: Module, envoy: Envoy) -> Module {
    let filter = OPENING.with(Cell::take);
    log::warn!("PROTOTYPE: a socket, of a filter: {}", filter.is_some());
    Box::into_raw(Box::new(Socket { envoy, filter, connected: Cell::new(false) })).cast_const().cast()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_destroy(module: Module) {
    let socket = unsafe { Box::from_raw(module.cast::<Socket>().cast_mut()) };
    SOCKETS.with(|sockets| sockets.borrow_mut().retain(|(_, other)| *other != socket.envoy));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_set_callbacks(_: Envoy, _: Module) {}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_on_connected(envoy: Envoy, module: Module) {
    let socket = unsafe { &*module.cast::<Socket>() };
    socket.connected.set(true);
    if let Some(filter) = socket.filter {
        SOCKETS.with(|sockets| sockets.borrow_mut().push((filter, envoy)));
    }
    unsafe { abi::raise_event(envoy, 2) };
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_do_read(envoy: Envoy, module: Module) -> IoResult {
    let filter = unsafe { &*module.cast::<Socket>() }.filter;
    let mut result = IoResult { action: KEEP, bytes: 0, end: false };
    let mut bytes = BYTES.with(RefCell::take);
    bytes.resize(65536, 0);
    loop {
        let mut read = 0;
        let status = unsafe { abi::io_read(envoy, bytes.as_mut_ptr().cast(), bytes.len(), &raw mut read) };
        if read == 0 {
            result.end = status == 0;
            if status == 2 {
                result.action = CLOSE;
            }
            break;
        }
        match filter {
            Some(filter) => {
                let run = || worker::received(filter, bytes.get(..read).unwrap_or_default().to_vec());
                caught_or("transport_socket_read", run, worker::reset);
            }
            None => unsafe { abi::read_buffer_add(envoy, bytes.as_ptr().cast(), read) },
        }
        result.bytes += read as u64;
        if read < bytes.len() {
            break;
        }
    }
    BYTES.with(|place| *place.borrow_mut() = bytes);
    result
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_do_write(
    envoy: Envoy,
    _: Module,
    _: usize,
    _: bool,
) -> IoResult {
    let mut result = IoResult { action: KEEP, bytes: 0, end: false };
    let mut slices = [Buffer::NULL; 16];
    let mut count = slices.len();
    unsafe { abi::write_slices(envoy, slices.as_mut_ptr(), &raw mut count) };
    let mut total = 0;
    for slice in slices.iter().take(count) {
        let mut written = 0;
        unsafe { abi::io_write(envoy, slice.ptr, slice.length, &raw mut written) };
        total += written;
    }
    unsafe { abi::write_drain(envoy, total) };
    result.bytes = total as u64;
    result
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_close(envoy: Envoy, _: Module, _: u32, _: bool) {
    SOCKETS.with(|sockets| sockets.borrow_mut().retain(|(_, other)| *other != envoy));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_get_protocol(
    _: Envoy,
    _: Module,
    to: *mut Buffer,
) {
    unsafe { *to = Buffer::NULL };
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_get_failure_reason(
    _: Envoy,
    _: Module,
    to: *mut Buffer,
) {
    unsafe { *to = Buffer::NULL };
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_can_flush_close(_: Envoy, _: Module) -> bool {
    caught("x", || ());
    true
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_transport_socket_start_secure_transport(_: Envoy, _: Module) -> bool {
    false
}
