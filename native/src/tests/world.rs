// SPDX-License-Identifier: Apache-2.0
//! A worker of the tests' Envoy: the thread of a test. It has an event loop, and objects that its filters belong to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::{Buffer, Envoy, Module};

use super::envoy::{Answers, Connection, Events, Scope, Stream, Within, fresh_id};
use super::sockets;

unsafe extern "C" {
    fn envoy_dynamic_module_on_program_init() -> *const core::ffi::c_char;
    fn envoy_dynamic_module_on_http_filter_config_new(envoy: Envoy, name: Buffer, config: Buffer) -> Module;
    fn envoy_dynamic_module_on_http_filter_config_destroy(config: Module);
    fn envoy_dynamic_module_on_http_filter_new(config: Module, envoy: Envoy) -> Module;
    fn envoy_dynamic_module_on_http_filter_request_headers(envoy: Envoy, module: Module, end: bool) -> u32;
    fn envoy_dynamic_module_on_http_filter_request_body(envoy: Envoy, module: Module, end: bool) -> u32;
    fn envoy_dynamic_module_on_http_filter_response_headers(envoy: Envoy, module: Module, end: bool) -> u32;
    fn envoy_dynamic_module_on_http_filter_response_body(envoy: Envoy, module: Module, end: bool) -> u32;
    fn envoy_dynamic_module_on_http_filter_response_trailers(envoy: Envoy, module: Module) -> u32;
    fn envoy_dynamic_module_on_http_filter_scheduled(envoy: Envoy, module: Module, event: u64);
    fn envoy_dynamic_module_on_http_filter_destroy(module: Module);
    fn envoy_dynamic_module_on_network_filter_config_new(
        envoy: Envoy,
        name: Buffer,
        config: Buffer,
    ) -> Module;
    fn envoy_dynamic_module_on_network_filter_config_destroy(config: Module);
    fn envoy_dynamic_module_on_network_filter_new(config: Module, envoy: Envoy) -> Module;
    fn envoy_dynamic_module_on_network_filter_new_connection(envoy: Envoy, module: Module) -> u32;
    fn envoy_dynamic_module_on_network_filter_scheduled(envoy: Envoy, module: Module, event: u64);
    fn envoy_dynamic_module_on_network_filter_write(
        envoy: Envoy,
        module: Module,
        length: usize,
        end: bool,
    ) -> u32;
    fn envoy_dynamic_module_on_network_filter_event(envoy: Envoy, module: Module, event: u32);
    fn envoy_dynamic_module_on_network_filter_destroy(module: Module);
}

/// The objects of the worker.
#[derive(Default)]
struct Worker {
    events: Events,
    streams: BTreeMap<u64, Envoy>,
    connections: BTreeMap<u64, Envoy>,
    /// The replies of Redis, each with the number of turns before it.
    replies: Vec<(u64, Vec<u8>, usize, bool)>,
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::default();
}

fn worker<T>(act: impl FnOnce(&mut Worker) -> T) -> T {
    WORKER.with(|worker| act(&mut worker.borrow_mut()))
}

pub fn events() -> Events {
    worker(|worker| Arc::clone(&worker.events))
}

/// Redis answers after `turns` turns. If `is_last`, it then closes the connection.
pub fn later(connection: u64, replies: Vec<u8>, turns: usize, is_last: bool) {
    worker(|worker| worker.replies.push((connection, replies, turns, is_last)));
}

// --- Streams ----------------------------------------------------------------------------------------------------------

/// A request: the number of its stream, and the status that its client gets, 0 until then.
pub struct Request {
    pub id: u64,
    status: Arc<AtomicU64>,
}

impl Request {
    pub fn status(&self) -> u64 {
        self.status.load(Ordering::SeqCst)
    }

    /// True if its stream is over.
    pub fn has_ended(&self) -> bool {
        worker(|worker| !worker.streams.contains_key(&self.id))
    }

    /// The client closes the connection.
    pub fn cancel(&self) {
        if let Some(stream) = worker(|worker| worker.streams.get(&self.id).copied()) {
            end(stream);
        }
    }
}

/// The response passes the filter. Envoy then continues or stops, as the filter has answered.
pub fn respond(pointer: Envoy, status: u64) {
    let stream = pointer.cast::<Stream>();
    let (module, within) = unsafe { ((*stream).module.get(), (*stream).within.get()) };
    let module = module.expect("a filter");
    unsafe {
        assert_eq!((*stream).status.swap(status, Ordering::SeqCst), 0, "one response");
        *(*stream).body.borrow_mut() = vec![b"{\"usage\":".to_vec(), b"1}".to_vec()];
        // A hook that panics releases others, and one of these may end this stream.
        let is_there = || worker(|worker| worker.streams.values().any(|other| *other == pointer));
        envoy_dynamic_module_on_http_filter_response_headers(pointer, module, false);
        if is_there() {
            envoy_dynamic_module_on_http_filter_response_body(pointer, module, true);
        }
        if is_there() {
            envoy_dynamic_module_on_http_filter_response_trailers(pointer, module);
        }
    }
    if within == Within::EndAll {
        let others: Vec<_> = worker(|worker| worker.streams.values().copied().collect());
        others.into_iter().filter(|other| *other != pointer).for_each(end);
    }
    if within != Within::Stay {
        end(pointer);
    }
}

/// The stream ends, and its memory is free. It may have ended before.
fn end(pointer: Envoy) {
    let is_there = worker(|worker| {
        let before = worker.streams.len();
        worker.streams.retain(|_, other| *other != pointer);
        worker.streams.len() < before
    });
    if is_there {
        let stream = pointer.cast::<Stream>();
        if let Some(module) = unsafe { (*stream).module.take() } {
            unsafe { envoy_dynamic_module_on_http_filter_destroy(module) };
        }
        drop(unsafe { Box::from_raw(stream) });
    }
}

// --- Connections ------------------------------------------------------------------------------------------------------

/// Bytes for the peer reach the filter, in two chunks.
pub fn write(pointer: Envoy, bytes: &[u8], end: bool) {
    let connection = pointer.cast::<Connection>();
    let module = unsafe { (*connection).module.get() }.expect("a filter");
    let (first, last) = bytes.split_at(bytes.len() / 2);
    unsafe {
        *(*connection).buffer.borrow_mut() = vec![first.to_vec(), last.to_vec()];
        (*connection).has_ended.set(end);
        envoy_dynamic_module_on_network_filter_write(pointer, module, bytes.len(), end);
    }
}

/// The connection closes, and its memory is free.
pub fn close(pointer: Envoy) {
    let connection = pointer.cast::<Connection>();
    if unsafe { (*connection).is_closing.replace(true) } {
        return;
    }
    worker(|worker| worker.connections.retain(|_, other| *other != pointer));
    unsafe {
        let module = (*connection).module.get();
        if let Some(module) = module {
            envoy_dynamic_module_on_network_filter_event(pointer, module, 1);
            envoy_dynamic_module_on_network_filter_destroy(module);
        }
        drop(Box::from_raw(connection));
    }
}

fn open(listener: &Listener, socket: sockets::Accepted) {
    let connection = Connection { id: fresh_id(), listener: listener.name.clone(), ..Connection::default() };
    connection.answers.set(listener.answers);
    *connection.socket.borrow_mut() = Some(socket);
    let id = connection.id;
    let pointer: Envoy = Box::into_raw(Box::new(connection)).cast();
    worker(|worker| worker.connections.insert(id, pointer));
    unsafe {
        let module = envoy_dynamic_module_on_network_filter_new(listener.config, pointer);
        assert!(!module.is_null());
        (*pointer.cast::<Connection>()).module.set(Some(module));
        envoy_dynamic_module_on_network_filter_new_connection(pointer, module);
    }
}

// --- Configurations ---------------------------------------------------------------------------------------------------

/// A configuration of the limiter. Its end frees its metrics.
pub struct Limiter {
    config: Module,
    scope: *mut Scope,
}

impl Limiter {
    pub fn new(json: &str) -> Self {
        assert!(!unsafe { envoy_dynamic_module_on_program_init() }.is_null());
        let scope = Box::into_raw(Box::<Scope>::default());
        let (name, json) = (Buffer::of(b"weir.limiter"), Buffer::of(json.as_bytes()));
        let config = unsafe { envoy_dynamic_module_on_http_filter_config_new(scope.cast(), name, json) };
        assert!(!config.is_null(), "the configuration loads");
        Self { config, scope }
    }

    /// The values of its metrics.
    pub fn values(&self) -> Vec<i64> {
        unsafe { &*self.scope }.lock().unwrap().clone()
    }

    /// A request of this user. It ends as `within` says. A request with a body waits for the body.
    pub fn request(&self, user: &str, within: Within, body: Option<&str>) -> Request {
        self.faulty("", user, within, body)
    }

    /// The same, and the module panics when the worker reaches these places.
    pub fn faulty(&self, places: &str, user: &str, within: Within, body: Option<&str>) -> Request {
        let line = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let mut request = vec![line(":path", "/"), line(":method", "POST"), line("x-user", user)];
        request.push(line("x-weir-instrumented-fault", places));
        request.extend(body.map(|_| line("content-type", "application/json")));
        let stream = Stream { id: fresh_id(), request, ..Stream::default() };
        stream.within.set(within);
        let told = Request { id: stream.id, status: Arc::clone(&stream.status) };
        let pointer: Envoy = Box::into_raw(Box::new(stream)).cast();
        worker(|worker| worker.streams.insert(told.id, pointer));
        unsafe {
            let module = envoy_dynamic_module_on_http_filter_new(self.config, pointer);
            assert!(!module.is_null());
            (*pointer.cast::<Stream>()).module.set(Some(module));
            let next = envoy_dynamic_module_on_http_filter_request_headers(pointer, module, body.is_none());
            let goes_on = || told.status() == 0 && !told.has_ended();
            let mut passes = next == 0 && goes_on();
            if let Some(body) = body.filter(|_| goes_on()) {
                *(*pointer.cast::<Stream>()).body.borrow_mut() = vec![body.as_bytes().to_vec()];
                passes = envoy_dynamic_module_on_http_filter_request_body(pointer, module, true) == 0;
            }
            if passes && goes_on() {
                respond(pointer, 200);
            }
        }
        told
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        unsafe {
            envoy_dynamic_module_on_http_filter_config_destroy(self.config);
            drop(Box::from_raw(self.scope));
        }
    }
}

/// A listener of the module.
pub struct Listener {
    config: Module,
    name: String,
    pub answers: Answers,
}

impl Listener {
    fn new(filter: &str, json: &str, name: String) -> Self {
        sockets::listen(&name);
        let (filter, json) = (Buffer::of(filter.as_bytes()), Buffer::of(json.as_bytes()));
        let config =
            unsafe { envoy_dynamic_module_on_network_filter_config_new(std::ptr::null_mut(), filter, json) };
        assert!(!config.is_null(), "the configuration loads");
        Self { config, name, answers: Answers::Later }
    }

    pub fn store(cluster: &str) -> Self {
        let name = format!("store-{}", fresh_id());
        Self::new("weir.store", &format!(r#"{{"cluster": "{cluster}", "address": "@{name}"}}"#), name)
    }

    pub fn clock() -> Self {
        let name = format!("clock-{}", fresh_id());
        Self::new("weir.clock", &format!(r#"{{"address": "@{name}"}}"#), name)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        sockets::close(&self.name);
        unsafe { envoy_dynamic_module_on_network_filter_config_destroy(self.config) };
    }
}

// --- The event loop ---------------------------------------------------------------------------------------------------

/// One turn of the worker's event loop. Returns whether something happened.
pub fn turn(listeners: &[&Listener]) -> bool {
    let mut happened = false;
    for listener in listeners {
        while let Some(socket) = sockets::accept(&listener.name) {
            happened = true;
            open(listener, socket);
        }
    }
    let (events, replies) = worker(|worker| {
        let events = std::mem::take(&mut *worker.events.lock().unwrap());
        worker.replies.iter_mut().for_each(|(_, _, turns, _)| *turns -= 1);
        (events, worker.replies.extract_if(.., |(_, _, turns, _)| *turns == 0).collect::<Vec<_>>())
    });
    for (id, bytes, _, is_last) in replies {
        happened = true;
        if let Some(connection) = worker(|worker| worker.connections.get(&id).copied()) {
            write(connection, &bytes, is_last);
        }
    }
    for (id, event) in events {
        happened = true;
        if let Some(stream) = worker(|worker| worker.streams.get(&id).copied()) {
            unsafe {
                let module = (*stream.cast::<Stream>()).module.get().expect("a filter");
                envoy_dynamic_module_on_http_filter_scheduled(stream, module, event);
            }
        } else if let Some(connection) = worker(|worker| worker.connections.get(&id).copied()) {
            unsafe {
                let module = (*connection.cast::<Connection>()).module.get().expect("a filter");
                envoy_dynamic_module_on_network_filter_scheduled(connection, module, event);
            }
        }
    }
    happened
}

/// Runs turns until `is_so` is true.
pub fn until(what: &str, listeners: &[&Listener], mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        if !turn(listeners) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!("{what} does not happen");
}

/// Closes each connection of the worker.
pub fn close_all() {
    close_if(|_| true);
}

/// Closes each connection of a listener.
pub fn close_of(listener: &Listener) {
    close_if(|connection| connection.listener == listener.name);
}

/// The number of the newest connection of a listener; 0 if there is none.
pub fn newest_of(listener: &Listener) -> u64 {
    let is_of = |connection: &&Envoy| unsafe { (*connection.cast::<Connection>()).listener == listener.name };
    worker(|worker| {
        worker.connections.iter().rfind(|(_, connection)| is_of(connection)).map_or(0, |(id, _)| *id)
    })
}

fn close_if(is_so: impl Fn(&Connection) -> bool) {
    for connection in worker(|worker| worker.connections.values().copied().collect::<Vec<_>>()) {
        if is_so(unsafe { &*connection.cast::<Connection>() }) {
            close(connection);
        }
    }
}

/// The number of the worker's connections.
pub fn connections() -> usize {
    worker(|worker| worker.connections.len())
}
