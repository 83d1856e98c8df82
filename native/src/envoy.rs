// SPDX-License-Identifier: Apache-2.0
//! Envoy's objects behind safe methods. The caller that makes a handle promises that nothing uses it after the hook that reports the
//! end of its object. The safety of all methods depends on this promise.

use core::cell::OnceCell;
use core::ptr;
use std::borrow::Cow;

use crate::abi::{self, Buffer, Envoy, Header, HeaderMap};

/// Copies bytes of Envoy.
///
/// # Safety
/// Envoy has returned the buffer in the current hook, and nothing has called a setter since.
pub unsafe fn copy(buffer: Buffer) -> Vec<u8> {
    // SAFETY: the caller promises the same.
    unsafe { bytes(&buffer) }.to_vec()
}

/// Bytes of Envoy, without a copy.
///
/// # Safety
/// As for [`copy`]; and nothing uses the bytes after the hook has returned or something has called a setter.
unsafe fn bytes(buffer: &Buffer) -> &[u8] {
    if buffer.ptr.is_null() {
        return &[];
    }
    // SAFETY: the ABI says that such a buffer is readable for its length until the hook returns.
    unsafe { core::slice::from_raw_parts(buffer.ptr.cast::<u8>(), buffer.length) }
}

/// The number of Envoy's worker threads. Only the main thread may call it.
pub fn concurrency() -> u32 {
    // SAFETY: it has no arguments; on another thread Envoy reports a bug and returns 0.
    unsafe { abi::concurrency() }
}

/// True if Envoy only checks its configuration. Only the main thread may call it.
pub fn is_validation_mode() -> bool {
    // SAFETY: it has no arguments; on another thread Envoy reports a bug.
    unsafe { abi::is_validation_mode() }
}

/// One request's filter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HttpFilter(Envoy);

impl HttpFilter {
    /// # Safety
    /// `filter` is the filter that Envoy passes to the hooks of a request. Nothing uses the handle after the request's `destroy`
    /// hook has returned to Envoy, nor on another thread.
    pub const unsafe fn new(filter: Envoy) -> Self {
        Self(filter)
    }

    /// The headers of a map, all read in one call when the first is asked for.
    ///
    /// # Safety
    /// Nothing uses them after the current hook has returned to Envoy, or after something has called a setter of this map.
    pub const unsafe fn headers(self, map: HeaderMap) -> Headers {
        Headers { filter: self, map, lines: OnceCell::new() }
    }

    /// Shows the chunks of a body that its hook has received. Only that hook may call it.
    pub fn body_chunks(self, body: abi::Body, mut show: impl FnMut(&[u8])) {
        // SAFETY: the filter lives.
        let count = unsafe { abi::body_chunk_count(self.0, body) };
        // SAFETY: as above; there are as many places as Envoy has just counted chunks.
        let chunks = buffers(count, |places| unsafe { abi::body_chunks(self.0, body, places) });
        // SAFETY: Envoy has just returned them, and leaves them where they are until the hook returns.
        chunks.into_iter().for_each(|chunk| show(unsafe { bytes(&chunk) }));
    }

    /// Adds a line to the response's header.
    pub fn add_header(self, name: &str, value: &str) -> bool {
        self.write_header(abi::add_header, name, value)
    }

    /// Replaces all lines of the response's header by one.
    pub fn set_header(self, name: &str, value: &str) -> bool {
        self.write_header(abi::set_header, name, value)
    }

    fn write_header(
        self,
        write: unsafe extern "C" fn(Envoy, HeaderMap, Buffer, Buffer) -> bool,
        name: &str,
        value: &str,
    ) -> bool {
        let (name, value) = (Buffer::of(name.as_bytes()), Buffer::of(value.as_bytes()));
        // SAFETY: the filter lives, and the callback is one of the two for its headers; Envoy copies both strings.
        unsafe { write(self.0, HeaderMap::Response, name, value) }
    }

    /// An attribute that is a string, by its number in `src/request/module.rs`.
    pub fn attribute(self, attribute: u32) -> Option<Vec<u8>> {
        self.buffer(|value| {
            // SAFETY: the filter lives; Envoy writes to one place of the caller's frame.
            unsafe { abi::attribute_string(self.0, attribute, value) }
        })
    }

    /// A string in the dynamic metadata.
    pub fn metadata(self, namespace: &str, key: &str) -> Option<Vec<u8>> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        self.buffer(|value| {
            // SAFETY: the filter lives; Envoy reads both names and writes to one place of the caller's frame.
            unsafe { abi::metadata_string(self.0, abi::DYNAMIC_METADATA, namespace, key, value) }
        })
    }

    /// True if the dynamic metadata has a value of any type there.
    pub fn has_metadata(self, namespace: &str, key: &str) -> bool {
        let namespace = Buffer::of(namespace.as_bytes());
        // SAFETY: the filter lives; Envoy reads the name.
        let count = unsafe { abi::metadata_key_count(self.0, abi::DYNAMIC_METADATA, namespace) };
        let keys = buffers(count, |places| {
            // SAFETY: as above; there are as many places as Envoy has just counted keys.
            unsafe { abi::metadata_keys(self.0, abi::DYNAMIC_METADATA, namespace, places) }
        });
        // SAFETY: Envoy has just returned them.
        keys.into_iter().any(|other| unsafe { copy(other) } == key.as_bytes())
    }

    /// A value of the filter state: a string, or an object as logs show it.
    pub fn filter_state(self, key: &str) -> Option<Vec<u8>> {
        let key = Buffer::of(key.as_bytes());
        self.buffer(|value| {
            // SAFETY: the filter lives; Envoy reads the name and writes to one place of the caller's frame.
            unsafe { abi::filter_state(self.0, key, value) || abi::filter_state_typed(self.0, key, value) }
        })
    }

    /// True if the filter state has a value of any kind there.
    pub fn has_filter_state(self, key: &str) -> bool {
        // SAFETY: the filter lives; Envoy reads the name.
        unsafe { abi::has_filter_state(self.0, Buffer::of(key.as_bytes())) }
    }

    fn buffer(self, read: impl FnOnce(*mut Buffer) -> bool) -> Option<Vec<u8>> {
        let mut value = Buffer::NULL;
        // SAFETY: Envoy has just returned it.
        read(&raw mut value).then(|| unsafe { copy(value) })
    }

    /// Writes a value to the filter state.
    pub fn set_filter_state(self, key: &str, value: &str) -> bool {
        let (key, value) = (Buffer::of(key.as_bytes()), Buffer::of(value.as_bytes()));
        // SAFETY: the filter lives; Envoy copies both strings.
        unsafe { abi::set_filter_state(self.0, key, value) }
    }

    /// A scheduler that calls the request's hook `scheduled`.
    pub fn scheduler(self) -> Option<Scheduler> {
        // SAFETY: the filter lives.
        let pointer = unsafe { abi::new_request_scheduler(self.0) };
        Scheduler::new(pointer, abi::commit_to_request, abi::delete_request_scheduler)
    }

    /// Continues a paused request. Envoy may call further hooks of this request, `destroy` too, before this returns.
    pub fn resume(self) {
        // SAFETY: the filter lives. Envoy ignores the call for a request that is not paused.
        unsafe { abi::continue_decoding(self.0) }
    }

    /// Answers the request in the upstream's place. Envoy may call further hooks of this request, `destroy` too, before this returns.
    pub fn respond<'a>(
        self,
        status: u16,
        headers: impl Iterator<Item = (&'a str, &'a str)>,
        body: &[u8],
        details: &str,
    ) {
        let mut headers = lines(headers);
        let (count, body, details) = (headers.len(), Buffer::of(body), Buffer::of(details.as_bytes()));
        // SAFETY: the filter lives; Envoy copies the headers and the strings before it returns.
        unsafe { abi::send_response(self.0, u32::from(status), headers.as_mut_ptr(), count, body, details) }
    }
}

/// The headers of a map, as Envoy has them.
pub struct Headers {
    filter: HttpFilter,
    map: HeaderMap,
    lines: OnceCell<Vec<Header>>,
}

impl Headers {
    /// The value of a header, its lines joined by commas, and how many lines it has; `None` without any. The name is in lower case, as
    /// Envoy's are.
    pub fn get(&self, name: &str) -> Option<(Cow<'_, [u8]>, usize)> {
        self.joined(name, b',')
    }

    /// The same, its lines joined by this byte.
    pub fn joined(&self, name: &str, by: u8) -> Option<(Cow<'_, [u8]>, usize)> {
        // Envoy keeps the host under this name.
        let name = if name == "host" { ":authority" } else { name };
        // SAFETY: Envoy has returned the buffers, and the caller uses the headers only as long as these are valid.
        let is_of = |line: &&Header| unsafe { bytes(&line.key) } == name.as_bytes();
        // SAFETY: as above.
        let mut values = self.lines().iter().filter(is_of).map(|line| unsafe { bytes(&line.value) });
        let (mut joined, mut lines) = (Cow::Borrowed(values.next()?), 1);
        for value in values {
            let joined = joined.to_mut();
            joined.push(by);
            joined.extend_from_slice(value);
            lines += 1;
        }
        Some((joined, lines))
    }

    fn lines(&self) -> &[Header] {
        self.lines.get_or_init(|| {
            let Self { filter, map, .. } = *self;
            // SAFETY: the filter lives, as `HttpFilter::new` requires.
            let count = unsafe { abi::header_count(filter.0, map) };
            let none = Header { key: Buffer::NULL, value: Buffer::NULL };
            // SAFETY: as above; there are as many places as Envoy has just counted headers.
            filled(none, count, |places| unsafe { abi::headers(filter.0, map, places) })
        })
    }
}

/// Returns the array that Envoy writes, with `count` elements; empty if Envoy fails.
fn filled<T: Copy>(empty: T, count: usize, write: impl FnOnce(*mut T) -> bool) -> Vec<T> {
    let mut places = vec![empty; count];
    if count > 0 && write(places.as_mut_ptr()) { places } else { Vec::new() }
}

fn buffers(count: usize, write: impl FnOnce(*mut Buffer) -> bool) -> Vec<Buffer> {
    filled(Buffer::NULL, count, write)
}

fn lines<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Header> {
    headers
        .map(|(key, value)| Header { key: Buffer::of(key.as_bytes()), value: Buffer::of(value.as_bytes()) })
        .collect()
}

/// One connection's filter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NetworkFilter(Envoy);

impl NetworkFilter {
    /// # Safety
    /// `filter` is the filter that Envoy passes to the hooks of a connection. Nothing uses the handle after Envoy has called the
    /// connection's `destroy` hook, nor on another thread.
    pub const unsafe fn new(filter: Envoy) -> Self {
        Self(filter)
    }

    /// The number of its worker thread.
    pub fn worker(self) -> u32 {
        // SAFETY: the filter lives, as `new` requires.
        unsafe { abi::worker_index(self.0) }
    }

    /// True if Envoy has a cluster of this name.
    pub fn has_cluster(self, name: &str) -> bool {
        let (name, none) = (Buffer::of(name.as_bytes()), ptr::null_mut());
        // SAFETY: the filter lives; Envoy reads the name, and a null pointer asks for no number.
        unsafe { abi::cluster_host_count(self.0, name, 0, none, none, none) }
    }

    /// Passes bytes to the next filter, as if the peer had sent them. Envoy may call further hooks of this connection before this
    /// returns.
    pub fn inject(self, bytes: &[u8]) {
        // SAFETY: the filter lives; Envoy copies the bytes.
        unsafe { abi::inject_read_data(self.0, Buffer::of(bytes), false) }
    }

    /// Removes the bytes that Envoy is about to send to the peer, and returns them. Only the hook `write` may call it: the buffer may not
    /// exist afterwards.
    pub fn take_written(self) -> Vec<u8> {
        // SAFETY: the filter lives, and Envoy has a buffer during the hook.
        let count = unsafe { abi::write_buffer_chunk_count(self.0) };
        // SAFETY: as above; there are as many places as Envoy has just counted chunks.
        let chunks = buffers(count, |places| unsafe { abi::write_buffer_chunks(self.0, places) });
        if chunks.is_empty() {
            return Vec::new();
        }
        // SAFETY: Envoy has just returned them, and nothing drains them before they are copied.
        let bytes = chunks.into_iter().flat_map(|chunk| unsafe { copy(chunk) }).collect::<Vec<u8>>();
        // SAFETY: the filter lives, and Envoy has a buffer during the hook.
        unsafe { abi::drain_write_buffer(self.0, bytes.len()) };
        bytes
    }

    /// Closes it. Envoy calls further hooks of this connection before this returns.
    pub fn close(self) {
        // SAFETY: the filter lives.
        unsafe { abi::close_connection(self.0, abi::CLOSE_NO_FLUSH) }
    }

    /// A scheduler that calls the connection's hook `scheduled`; `None` when the connection has no thread yet.
    pub fn scheduler(self) -> Option<Scheduler> {
        // SAFETY: the filter lives.
        let pointer = unsafe { abi::new_scheduler(self.0) };
        Scheduler::new(pointer, abi::commit, abi::delete_scheduler)
    }
}

/// Calls the hook `scheduled` of a request or a connection on its worker thread, from any thread.
pub struct Scheduler {
    pointer: Envoy,
    /// The two callbacks for this kind of scheduler.
    commit: unsafe extern "C" fn(Envoy, u64),
    delete: unsafe extern "C" fn(Envoy),
}

// SAFETY: the ABI allows `commit` on any thread, and `delete` on any thread while no commit runs. `commit` takes a shared
// reference and `drop` an exclusive one, so they do not overlap.
unsafe impl Send for Scheduler {}

impl Scheduler {
    /// `None` if Envoy has made none. The callbacks are those for this kind of pointer.
    pub(crate) fn new(
        pointer: Envoy,
        commit: unsafe extern "C" fn(Envoy, u64),
        delete: unsafe extern "C" fn(Envoy),
    ) -> Option<Self> {
        (!pointer.is_null()).then_some(Self { pointer, commit, delete })
    }

    /// Makes Envoy call the hook with this number. It does nothing if the request or the connection has ended.
    pub fn commit(&self, event: u64) {
        // SAFETY: the scheduler lives until it is dropped, and the callback is the one for its kind.
        unsafe { (self.commit)(self.pointer, event) }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: Envoy has made it, the callback is the one for its kind, and nothing uses it after this.
        unsafe { (self.delete)(self.pointer) }
    }
}

/// The metrics of one configuration.
pub struct MetricScope(Envoy);

// SAFETY: Envoy's tables of metrics do not change after it has read the configuration, and counters and gauges are atomic.
unsafe impl Send for MetricScope {}
// SAFETY: as above.
unsafe impl Sync for MetricScope {}

/// The number of a metric.
#[derive(Clone, Copy)]
pub struct Metric(usize);

impl MetricScope {
    /// # Safety
    /// `config` is the configuration that Envoy passes to the hook that reads it. Nothing uses the scope after the hook that reports the
    /// configuration's end has returned.
    pub const unsafe fn new(config: Envoy) -> Self {
        Self(config)
    }

    /// Defines a counter. Only the hook that reads the configuration may call it.
    pub fn counter(&self, name: &str) -> Option<Metric> {
        self.define(abi::define_counter, name)
    }

    /// Defines a gauge. Only the hook that reads the configuration may call it.
    pub fn gauge(&self, name: &str) -> Option<Metric> {
        self.define(abi::define_gauge, name)
    }

    /// Defines a histogram. Only the hook that reads the configuration may call it.
    pub fn histogram(&self, name: &str) -> Option<Metric> {
        self.define(abi::define_histogram, name)
    }

    fn define(
        &self,
        define: unsafe extern "C" fn(Envoy, Buffer, *mut Buffer, usize, *mut usize) -> u32,
        name: &str,
    ) -> Option<Metric> {
        let mut id = 0;
        let name = Buffer::of(name.as_bytes());
        // SAFETY: the configuration lives, as `new` requires; the ABI allows no labels to be a null pointer.
        let result = unsafe { define(self.0, name, ptr::null_mut(), 0, &raw mut id) };
        (result == abi::METRIC_SUCCESS).then_some(Metric(id))
    }

    /// Records a value in a histogram.
    pub fn record(&self, Metric(id): Metric, value: u64) {
        // SAFETY: the configuration lives, and the number is one of its histograms.
        unsafe { abi::record_value(self.0, id, ptr::null_mut(), 0, value) };
    }

    /// Adds to a counter.
    pub fn count(&self, Metric(id): Metric, by: u64) {
        // SAFETY: the configuration lives, and the number is one of its counters.
        unsafe { abi::increment_counter(self.0, id, ptr::null_mut(), 0, by) };
    }

    /// Sets a gauge.
    pub fn set(&self, Metric(id): Metric, to: u64) {
        // SAFETY: the configuration lives, and the number is one of its gauges.
        unsafe { abi::set_gauge(self.0, id, ptr::null_mut(), 0, to) };
    }

    /// Adds to a gauge, or subtracts from it.
    pub fn change(&self, Metric(id): Metric, by: i64) {
        // SAFETY: the configuration lives, and the number is one of its gauges.
        unsafe {
            if by < 0 {
                abi::decrement_gauge(self.0, id, ptr::null_mut(), 0, by.unsigned_abs());
            } else {
                abi::increment_gauge(self.0, id, ptr::null_mut(), 0, by.unsigned_abs());
            }
        }
    }
}
