// SPDX-License-Identifier: Apache-2.0
//! Envoy's objects, and the callbacks that the module calls. A pointer that the module has is a box of one of these objects, which is freed
//! as soon as Envoy may free it. The value that a callback returns is freed at the next setter.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::abi::{Body, Buffer, Envoy, Header, HeaderMap, Module};

use super::sockets::Accepted;
use super::{redis, world};

pub type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// Events that schedulers have committed, each for an object of this number.
pub type Events = Arc<Mutex<Vec<(u64, u64)>>>;

/// A number for each object.
pub fn fresh_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// Envoy's actions within a call of the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Within {
    /// The response passes, and the stream ends.
    #[default]
    End,
    /// The same, and each other stream of the worker ends, too: their client has closed the connection.
    EndAll,
    /// The response passes, and the stream ends later.
    Stay,
}

/// The time and the call in which the simulated Redis answers the module's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// The replies come with a later event.
    #[default]
    Later,
    /// After this many turns of the event loop.
    After(usize),
    /// Within the call that injects them, as `redis_proxy` answers errors.
    Within,
    /// The connection closes within that call.
    Closes,
    /// The connection ends together with the replies to its first batch: within that call, or with a later event.
    Last {
        later: bool,
    },
    Never,
}

/// A request's filter.
#[derive(Default)]
pub struct Stream {
    pub id: u64,
    pub module: Cell<Option<Module>>,
    pub request: Lines,
    pub response: RefCell<Lines>,
    pub body: RefCell<Vec<Vec<u8>>>,
    pub within: Cell<Within>,
    /// The status that the client got.
    pub status: Arc<AtomicU64>,
    /// The values that callbacks have returned, until a setter is called.
    pub returned: RefCell<Vec<Vec<u8>>>,
}

/// A connection's filter.
#[derive(Default)]
pub struct Connection {
    pub id: u64,
    pub listener: String,
    pub module: Cell<Option<Module>>,
    pub worker: u32,
    pub answers: Cell<Answers>,
    /// The bytes that are about to be written to the peer.
    pub buffer: RefCell<Vec<Vec<u8>>>,
    pub is_closing: Cell<bool>,
    /// Redis has ended it: it reads no more commands.
    pub has_ended: Cell<bool>,
    pub socket: RefCell<Option<Accepted>>,
}

/// A configuration: the values of its metrics.
pub type Scope = Mutex<Vec<i64>>;

struct Scheduler {
    events: Events,
    id: u64,
}

/// A `Stream`, `Connection` or `Scheduler` that lives.
unsafe fn of<'a, T>(pointer: Envoy) -> &'a T {
    unsafe { &*pointer.cast_const().cast::<T>() }
}

fn text(buffer: Buffer) -> Vec<u8> {
    if buffer.ptr.is_null() {
        return Vec::new();
    }
    unsafe { std::slice::from_raw_parts(buffer.ptr.cast::<u8>(), buffer.length) }.to_vec()
}

impl Stream {
    /// A buffer that is valid until the next setter.
    fn lend(&self, bytes: &[u8]) -> Buffer {
        let copy = bytes.to_vec();
        let buffer = Buffer::of(&copy);
        self.returned.borrow_mut().push(copy);
        buffer
    }

    fn lines(&self, map: HeaderMap) -> Lines {
        match map {
            HeaderMap::Request => self.request.clone(),
            HeaderMap::Response => self.response.borrow().clone(),
            HeaderMap::ResponseTrailers => Vec::new(),
        }
    }
}

macro_rules! callbacks {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            #[unsafe(export_name = concat!("envoy_dynamic_module_callback_", stringify!($name)))]
            #[allow(unused_unsafe)]
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? { unsafe { $body } }
        )*
    };
}

callbacks! {
    log(_level: u32, message: Buffer) { println!("{}", String::from_utf8_lossy(&text(message))); }
    log_enabled(_level: u32) -> bool { true }
    get_concurrency() -> u32 { 1 }
    is_validation_mode() -> bool { false }

    http_filter_config_define_counter(config: Envoy, name: Buffer, l: *mut Buffer, n: usize, id: *mut usize) -> u32 {
        define(config, &text(name), (l, n), id)
    }
    http_filter_config_define_gauge(config: Envoy, name: Buffer, l: *mut Buffer, n: usize, id: *mut usize) -> u32 {
        define(config, &text(name), (l, n), id)
    }
    http_filter_config_define_histogram(config: Envoy, name: Buffer, l: *mut Buffer, n: usize, id: *mut usize) -> u32 {
        define(config, &text(name), (l, n), id)
    }
    http_filter_config_record_histogram_value(config: Envoy, id: usize, _l: *mut Buffer, _n: usize, _value: u64) -> u32 {
        add(config, id, 1)
    }
    http_filter_config_increment_counter(config: Envoy, id: usize, _l: *mut Buffer, _n: usize, by: u64) -> u32 {
        add(config, id, by.cast_signed())
    }
    http_filter_config_set_gauge(config: Envoy, id: usize, _l: *mut Buffer, _n: usize, to: u64) -> u32 {
        of::<Scope>(config).lock().unwrap()[id] = to.cast_signed();
        0
    }
    http_filter_config_increment_gauge(config: Envoy, id: usize, _l: *mut Buffer, _n: usize, by: u64) -> u32 {
        add(config, id, by.cast_signed())
    }
    http_filter_config_decrement_gauge(config: Envoy, id: usize, _l: *mut Buffer, _n: usize, by: u64) -> u32 {
        add(config, id, -by.cast_signed())
    }

    http_get_headers_size(filter: Envoy, map: HeaderMap) -> usize { of::<Stream>(filter).lines(map).len() }
    http_get_headers(filter: Envoy, map: HeaderMap, headers: *mut Header) -> bool {
        let stream = of::<Stream>(filter);
        for (place, (key, value)) in stream.lines(map).iter().enumerate() {
            headers.add(place).write(Header { key: stream.lend(key), value: stream.lend(value) });
        }
        true
    }
    http_add_header(filter: Envoy, _map: HeaderMap, name: Buffer, value: Buffer) -> bool {
        let (stream, line) = (of::<Stream>(filter), (text(name), text(value)));
        stream.returned.borrow_mut().clear();
        stream.response.borrow_mut().push(line);
        true
    }
    http_set_header(filter: Envoy, _map: HeaderMap, name: Buffer, value: Buffer) -> bool {
        let (stream, line) = (of::<Stream>(filter), (text(name), text(value)));
        stream.returned.borrow_mut().clear();
        stream.response.borrow_mut().retain(|(other, _)| *other != line.0);
        stream.response.borrow_mut().push(line);
        true
    }
    http_send_response(filter: Envoy, status: u32, headers: *mut Header, count: usize, body: Buffer, details: Buffer) {
        let lines = (0..count).map(|place| headers.add(place).read()).map(|line| (text(line.key), text(line.value)));
        *of::<Stream>(filter).response.borrow_mut() = lines.collect();
        let (_body, _details) = (text(body), text(details));
        world::respond(filter, u64::from(status));
    }
    http_filter_continue_decoding(filter: Envoy) {
        *of::<Stream>(filter).response.borrow_mut() = vec![(b"server".to_vec(), b"upstream".to_vec())];
        world::respond(filter, 200);
    }
    http_filter_get_attribute_string(_filter: Envoy, _attribute: u32, _value: *mut Buffer) -> bool { false }
    http_get_metadata_string(_filter: Envoy, _source: u32, _n: Buffer, _key: Buffer, _value: *mut Buffer) -> bool { false }
    http_get_metadata_keys_count(_filter: Envoy, _source: u32, _namespace: Buffer) -> usize { 0 }
    http_get_metadata_keys(_filter: Envoy, _source: u32, _namespace: Buffer, _keys: *mut Buffer) -> bool { false }
    http_get_filter_state_bytes(_filter: Envoy, _key: Buffer, _value: *mut Buffer) -> bool { false }
    http_has_filter_state(_filter: Envoy, _key: Buffer) -> bool { false }
    http_get_filter_state_typed(_filter: Envoy, _key: Buffer, _value: *mut Buffer) -> bool { false }
    http_get_body_chunks_size(filter: Envoy, _body: Body) -> usize { of::<Stream>(filter).body.borrow().len() }
    http_get_body_chunks(filter: Envoy, _body: Body, chunks: *mut Buffer) -> bool {
        for (place, chunk) in of::<Stream>(filter).body.borrow().iter().enumerate() {
            chunks.add(place).write(Buffer::of(chunk));
        }
        true
    }
    http_filter_scheduler_new(filter: Envoy) -> Envoy { scheduler(of::<Stream>(filter).id) }
    http_filter_scheduler_commit(scheduler: Envoy, event: u64) { commit(scheduler, event) }
    http_filter_scheduler_delete(scheduler: Envoy) { drop(Box::from_raw(scheduler.cast::<Scheduler>())) }
    http_set_filter_state_bytes(filter: Envoy, key: Buffer, value: Buffer) -> bool {
        let (_key, _value) = (text(key), text(value));
        of::<Stream>(filter).returned.borrow_mut().clear();
        true
    }

    network_filter_get_worker_index(filter: Envoy) -> u32 { of::<Connection>(filter).worker }
    network_filter_get_cluster_host_count(
        filter: Envoy, cluster: Buffer, _p: u32, _total: *mut usize, _healthy: *mut usize, _degraded: *mut usize
    ) -> bool {
        assert!(of::<Connection>(filter).id > 0 && !text(cluster).is_empty());
        true
    }
    network_filter_inject_read_data(filter: Envoy, data: Buffer, _end_of_stream: bool) {
        let (connection, commands) = (of::<Connection>(filter), text(data));
        assert!(!connection.has_ended.get(), "no batch is sent after the last reply");
        match connection.answers.get() {
            Answers::Never => {}
            Answers::Later => world::later(connection.id, redis::replies(&commands), 1, false),
            Answers::After(turns) => world::later(connection.id, redis::replies(&commands), turns, false),
            Answers::Within => world::write(filter, &redis::replies(&commands), false),
            Answers::Last { later } => {
                let (replies, is_batch) = (redis::replies(&commands), commands.windows(4).any(|word| word == b"EVAL"));
                match later {
                    true => world::later(connection.id, replies, 1, is_batch),
                    false => world::write(filter, &replies, is_batch),
                }
            }
            Answers::Closes => world::close(filter),
        }
    }
    network_filter_get_write_buffer_chunks_size(filter: Envoy) -> usize { of::<Connection>(filter).buffer.borrow().len() }
    network_filter_get_write_buffer_chunks(filter: Envoy, chunks: *mut Buffer) -> bool {
        for (place, chunk) in of::<Connection>(filter).buffer.borrow().iter().enumerate() {
            chunks.add(place).write(Buffer::of(chunk));
        }
        true
    }
    network_filter_drain_write_buffer(filter: Envoy, length: usize) -> bool {
        let buffer = of::<Connection>(filter).buffer.take();
        assert_eq!(buffer.iter().map(Vec::len).sum::<usize>(), length);
        true
    }
    network_filter_close(filter: Envoy, _how: u32) { world::close(filter) }
    network_filter_scheduler_new(filter: Envoy) -> Envoy { scheduler(of::<Connection>(filter).id) }
    network_filter_scheduler_commit(scheduler: Envoy, event: u64) { commit(scheduler, event) }
    network_filter_scheduler_delete(scheduler: Envoy) { drop(Box::from_raw(scheduler.cast::<Scheduler>())) }
}

unsafe fn define(config: Envoy, name: &[u8], labels: (*mut Buffer, usize), id: *mut usize) -> u32 {
    assert!(!name.is_empty() && labels == (ptr::null_mut(), 0));
    let mut values = unsafe { of::<Scope>(config) }.lock().unwrap();
    unsafe { id.write(values.len()) };
    values.push(0);
    0
}

unsafe fn add(config: Envoy, id: usize, by: i64) -> u32 {
    unsafe { of::<Scope>(config) }.lock().unwrap()[id] += by;
    0
}

fn scheduler(id: u64) -> Envoy {
    Box::into_raw(Box::new(Scheduler { events: world::events(), id })).cast()
}

unsafe fn commit(pointer: Envoy, event: u64) {
    let scheduler = unsafe { of::<Scheduler>(pointer) };
    scheduler.events.lock().unwrap().push((scheduler.id, event));
}
