// SPDX-License-Identifier: Apache-2.0
//! Requests while weir itself traps, under the `failure_policy` that is shipped. weir is not known to trap, and has no hook for it: the
//! plugin that was built is sabotaged, by an `unreachable` at the head of one callback.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::every_worker_asks_again;
use crate::support::envoy::Template;
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Statuses, get, limited, plugin, template};

pub const TESTS: &[(&str, fn())] = &[
    ("trap: a limiter that traps denies for a moment, and admits no request", the_limiter_traps),
    ("trap: a bridge that traps at a message is a store that fails: on_failure decides", || {
        the_bridge_traps("proxy_on_request_body", 10_000);
    }),
    ("trap: a bridge that traps at replies is a store that fails: on_failure decides", || {
        the_bridge_traps("proxy_on_response_body", 5_000);
    }),
];

/// The plugin that was built, with a callback that traps when its argument of this index is greater than `bound`; the file is removed when
/// this is dropped.
pub struct Sabotaged(PathBuf);

impl Sabotaged {
    fn new(callback: &str, argument: u8, bound: u32) -> Self {
        // local.get argument; i32.const bound; i32.gt_u; if; unreachable; end
        let mut head = vec![0x20, argument, 0x41];
        write_signed(&mut head, bound);
        head.extend_from_slice(&[0x4b, 0x04, 0x40, 0x00, 0x0b]);
        Self::made(callback, |wasm| sabotage(wasm, callback, &head))
    }

    /// The plugin that was built, with a callback that does nothing.
    pub fn deaf(callback: &str) -> Self {
        const RETURN: u8 = 0x0f;
        Self::made(callback, |wasm| sabotage(wasm, callback, &[RETURN]))
    }

    /// The plugin that was built, with another function of the host in place of one: they take and return the same.
    pub fn misled(function: &str, to: &str) -> Self {
        Self::made(function, |wasm| mislead(wasm, function, to))
    }

    fn made(what: &str, sabotage: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let wasm = std::fs::read(plugin()).expect("the plugin");
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{what}-{}-{made}.wasm", std::process::id());
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&file, sabotage(&wasm)).expect("the sabotaged plugin");
        Self(file)
    }

    /// weir as shipped, with this plugin for a limiter; the bridge is as it was built.
    pub fn limiter(&self, limiter: &str, redis: &Redis, upstream: &Upstream) -> Template {
        let built = code(&plugin());
        template(limiter, redis.address(), upstream.address())
            .with("code: *weir_wasm", &built)
            .with(&format!("code: &weir_wasm {}", &built["code: ".len()..]), code(&self.0))
    }

    /// weir as shipped, with this plugin for a bridge.
    fn bridge(&self, limiter: &str, redis: &Redis, upstream: &Upstream) -> Template {
        template(limiter, redis.address(), upstream.address()).with("code: *weir_wasm", code(&self.0))
    }
}

fn code(plugin: &Path) -> String {
    format!("code: {{local: {{filename: {}}}}}", plugin.display())
}

impl Drop for Sabotaged {
    fn drop(&mut self) {
        // A file that cannot be removed is no reason to fail a test.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn the_limiter_traps() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    // Of a request's headers, the forty-first is poison.
    let sabotaged = Sabotaged::new("proxy_on_request_headers", 1, 40);
    let poison = (0..50).fold(get(), |request, number| request.header(&format!("x-{number}"), "poison"));
    let envoy = sabotaged
        .limiter(&limited(100), &redis, &upstream)
        .with("stream_idle_timeout: 30s", "stream_idle_timeout: 2s")
        .start();
    let edge = envoy.address("edge");
    let status = |request: &Request| http::send(edge, request).expect("a response").status;
    assert_eq!(status(&get()), 200);
    redis.freeze();
    let paused = http::burst_held(edge, (0..5).map(|_| get())).expect("sent");
    eventually("5 requests to wait", || (envoy.stat("http.edge.downstream_rq_active") == 5).then_some(()));
    assert_eq!(status(&poison), 503);
    assert_eq!(status(&get()), 503, "denied while there is no VM");
    redis.thaw();
    // Only this timeout ends the requests that were paused when it trapped: no request gets Redis's answer.
    let paused: Statuses =
        paused.into_iter().map(|paused| paused.finish().expect("a response").status).collect();
    assert_eq!(paused, Statuses(vec![(503, 5)]));
    assert_eq!(envoy.stat("http.edge.downstream_rq_idle_timeout"), 5);
    assert_eq!(upstream.requests(), 1, "no request got past");
    // It counts on where it was: one was admitted before, and one is here.
    eventually("a new VM", || (status(&get()) == 200).then_some(()));
    assert_eq!(envoy.stat("wasm.weir.limiter.vm_reload_success"), 1);
    let responses = http::burst(edge, (0..200).map(|_| get())).expect("responses");
    let admitted = responses.iter().filter(|response| response.status == 200).count();
    assert!((93..=98).contains(&admitted), "what the paused had taken may be gone: {admitted}");
    assert_eq!(upstream.requests(), 2 + admitted);
}

const LIMIT: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}"#;

/// At more bytes at once than what a few subjects make.
fn the_bridge_traps(callback: &str, bytes: u32) {
    let sabotaged = Sabotaged::new(callback, 1, bytes);
    for (on_failure, expected) in [("allow", 200), ("deny", 503)] {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let limiter = format!(
            r#"{{"store": {{"deadline": "10s", "on_failure": {on_failure:?}}}, "policies": [
                    {{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}], "limits": [{LIMIT}]}}]}}"#,
        );
        let envoy = sabotaged.bridge(&limiter, &redis, &upstream).start();
        let edge = envoy.address("edge");
        let users = |users: std::ops::Range<u32>| -> Statuses {
            let requests = users.map(|user| get().header("x-user", &user.to_string()));
            http::burst(edge, requests).expect("responses").iter().map(|response| response.status).collect()
        };
        let fallbacks = || envoy.stat("wasmcustom.weir.fallback");
        assert_eq!((users(0..1), fallbacks()), (Statuses(vec![(200, 1)]), 0));
        // Requests that arrive while Redis is frozen gather in large batches.
        redis.freeze();
        let many = (1..301).map(|user| get().header("x-user", &user.to_string()));
        let many = http::burst_held(edge, many).expect("sent");
        eventually("all of them to arrive", || {
            (envoy.stat("http.edge.downstream_rq_total") == 301).then_some(())
        });
        redis.thaw();
        let many: Statuses =
            many.into_iter().map(|asked| asked.finish().expect("a response").status).collect();
        let failed = many.0.iter().find(|(status, _)| *status == expected).map_or(0, |found| found.1);
        assert!(fallbacks() > 0 && failed as u64 >= fallbacks(), "{callback}, {on_failure}: {many:?}");
        assert!(envoy.log().contains("store: "), "the operator is told:\n{}", envoy.log());
        let mut strangers = (1_000..).map(|user: u32| get().header("x-user", &user.to_string()));
        every_worker_asks_again(&envoy, || strangers.next().expect("endless"));
        let twice = [users(900..901), users(900..901)];
        assert_eq!(twice, [200, 429].map(|status| Statuses(vec![(status, 1)])), "it counts again");
    }
}

/// Puts instructions at the head of an exported function.
/// The format: <https://webassembly.github.io/spec/core/binary/modules.html>.
fn sabotage(wasm: &[u8], export: &str, head: &[u8]) -> Vec<u8> {
    let (magic, mut rest) = wasm.split_at(8);
    let (mut out, mut imported, mut target) = (magic.to_vec(), 0, None);
    while let Some((&id, after)) = rest.split_first() {
        let mut section = after;
        let size = number(&mut section);
        let (mut content, after) = section.split_at(size);
        rest = after;
        let mut payload = content.to_vec();
        match id {
            IMPORTS => {
                for _ in 0..number(&mut content) {
                    let (_module, _name) = (name(&mut content), name(&mut content));
                    assert_eq!(take(&mut content, 1), [0], "weir imports functions only");
                    number(&mut content);
                    imported += 1;
                }
            }
            EXPORTS => {
                for _ in 0..number(&mut content) {
                    let (name, kind) = (name(&mut content), take(&mut content, 1)[0]);
                    let index = number(&mut content);
                    if kind == 0 && name == export.as_bytes() {
                        target = Some(index - imported);
                    }
                }
            }
            CODE => {
                let target = target.unwrap_or_else(|| panic!("the plugin exports no {export}"));
                payload.clear();
                let count = number(&mut content);
                write(&mut payload, count);
                for index in 0..count {
                    let size = number(&mut content);
                    let mut code = take(&mut content, size);
                    let mut body = Vec::new();
                    if index == target {
                        let whole = code;
                        for _ in 0..number(&mut code) {
                            number(&mut code);
                            take(&mut code, 1);
                        }
                        body.extend_from_slice(&whole[..whole.len() - code.len()]);
                        body.extend_from_slice(head);
                    }
                    body.extend_from_slice(code);
                    write(&mut payload, body.len());
                    payload.extend_from_slice(&body);
                }
            }
            _ => {}
        }
        out.push(id);
        write(&mut out, payload.len());
        out.extend_from_slice(&payload);
    }
    out
}

/// Imports one function of the host in place of another.
fn mislead(wasm: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (magic, mut rest) = wasm.split_at(8);
    let (mut out, mut found) = (magic.to_vec(), 0);
    while let Some((&id, after)) = rest.split_first() {
        let mut section = after;
        let size = number(&mut section);
        let (mut content, after) = section.split_at(size);
        rest = after;
        let mut payload = content.to_vec();
        if id == IMPORTS {
            payload.clear();
            let count = number(&mut content);
            write(&mut payload, count);
            for _ in 0..count {
                let module = name(&mut content);
                let function = match name(&mut content) {
                    function if function == from.as_bytes() => {
                        found += 1;
                        to.as_bytes()
                    }
                    function => function,
                };
                for name in [module, function] {
                    write(&mut payload, name.len());
                    payload.extend_from_slice(name);
                }
                assert_eq!(take(&mut content, 1), [0], "weir imports functions only");
                payload.push(0);
                let kind = number(&mut content);
                write(&mut payload, kind);
            }
        }
        out.push(id);
        write(&mut out, payload.len());
        out.extend_from_slice(&payload);
    }
    assert_eq!(found, 1, "the plugin imports {from}");
    out
}

const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;

fn take<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn name<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let length = number(from);
    take(from, length)
}

/// LEB128, unsigned.
fn number(from: &mut &[u8]) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = take(from, 1)[0];
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn write(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// LEB128, signed, of what is not negative: the last byte's second bit would be a sign.
fn write_signed(out: &mut Vec<u8>, value: u32) {
    let mut value = value as usize;
    while value >= 0x40 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
