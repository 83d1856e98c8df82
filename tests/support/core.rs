// SPDX-License-Identifier: Apache-2.0
//! The core of one worker, from a request's attributes to its verdict, without a host and with a store that says what it
//! is told to say: for counting what a request costs.

use std::rc::Rc;

use weir::config::{Config, Evaluation, Unasked};
use weir::engine::{Action, Engine, StoreFailure, StreamId, Submitted};
use weir::request::{Attributes, Unreadable};
use weir::resp;
use weir::time::Micros;

/// A GET with a header `x-user`; the host answers in bytes of its own, as Envoy does.
pub struct User<'a> {
    pub path: &'a str,
    pub name: &'a str,
}

impl Attributes for User<'_> {
    fn header(&self, name: &str) -> Result<Option<Vec<u8>>, Unreadable> {
        Ok(match name {
            ":method" => Some(b"GET".to_vec()),
            ":path" => Some(self.path.into()),
            "x-user" => Some(self.name.into()),
            _ => None,
        })
    }

    fn header_lines(&self, _: &str) -> Result<usize, Unreadable> {
        Ok(1)
    }

    fn property(&self, _: &[&str]) -> Result<Option<Vec<u8>>, Unreadable> {
        Ok(None)
    }
}

/// One policy on everything below `/api`, for each `x-user`.
pub fn limited(lease: &str, on_failure: &str) -> String {
    format!(
        r#"{{"store": {{"on_failure": "{on_failure}"}}, "policies": [{{"name": "p", {lease}
            "match": {{"path": {{"prefix": "/api"}}}}, "subject": [{{"header": {{"name": "x-user"}}}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1000/m", "burst": 1000}}]}}]}}"#
    )
}

/// What the store answers to one command: so many granted, or none until so many microseconds from now.
pub fn answer(granted: i64, retry_after: i64, now: Micros) -> Vec<u8> {
    let now = i64::try_from(now.0).expect("a time");
    let mut reply = Vec::new();
    resp::bulk(&mut reply, &[granted, now, 5, retry_after, 1_000_000, 0].map(i64::to_le_bytes).concat());
    reply
}

pub struct Core {
    pub engine: Engine,
    pub now: Micros,
    config: Rc<Config>,
    next: StreamId,
}

impl Core {
    pub fn new(config: &str) -> Self {
        let config = Config::parse(config.as_bytes()).unwrap_or_else(|errors| {
            panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        });
        let config = Rc::new(config);
        let now = Micros::from_secs(1_700_000_000);
        let mut engine = Engine::new(Rc::clone(&config), 1);
        engine.tick(now);
        Self { engine, now, config, next: 0 }
    }

    /// A request arrives; whether it passes, if that is known already.
    pub fn arrive(&mut self, attributes: &dyn Attributes) -> Option<bool> {
        let mut unasked = Unasked::new();
        let evaluation = self.config.evaluate_and_note(attributes, None, &mut unasked);
        if !unasked.is_empty() {
            self.engine.note(&unasked);
        }
        match evaluation {
            Evaluation::Admit => Some(true),
            Evaluation::AwaitBody(_) => panic!("the body is not there"),
            Evaluation::Deny(..) => Some(false),
            Evaluation::Check(checks) | Evaluation::Enquiry(checks) => {
                self.next = self.next.wrapping_add(1);
                match self.engine.submit(self.next, checks, self.now) {
                    Submitted::Wait => None,
                    Submitted::Decided(action) => Some(self.leave(self.next, &action)),
                }
            }
        }
    }

    /// The store answers each command of the batch that waits in this way; how many requests passed, and ended.
    pub fn ask(&mut self, reply: &[u8]) -> usize {
        let asked = self.engine.counters().commands;
        let Some(outgoing) = self.engine.next_batch(self.now) else { return 0 };
        let commands = self.engine.counters().commands - asked;
        let replies = uncounted(|| reply.repeat(usize::try_from(commands).expect("few")));
        self.engine.replied(outgoing.id, &replies, self.now);
        uncounted(|| drop(replies));
        self.release()
    }

    /// The store does not answer.
    pub fn fail(&mut self) -> usize {
        let Some(outgoing) = self.engine.next_batch(self.now) else { return 0 };
        self.engine.failed(outgoing.id, &StoreFailure::Refused, self.now);
        self.release()
    }

    fn release(&mut self) -> usize {
        let mut passed = 0;
        while let Some(release) = self.engine.next_release() {
            passed += usize::from(self.leave(release.stream, &release.action));
        }
        passed
    }

    /// The response gets its headers, and the stream ends.
    fn leave(&mut self, stream: StreamId, action: &Action) -> bool {
        let passes = matches!(action, Action::Admit);
        assert_eq!(self.engine.admission(stream).is_some(), passes);
        self.engine.closed(stream, self.now);
        passes
    }
}

/// What the test allocates for itself is not counted.
#[cfg(not(target_arch = "wasm32"))]
pub fn uncounted<T>(own: impl FnOnce() -> T) -> T {
    let mut result = None;
    allocation_counter::opt_out(|| result = Some(own()));
    result.expect("it ran")
}

/// Linear memory counts everything.
#[cfg(target_arch = "wasm32")]
pub fn uncounted<T>(own: impl FnOnce() -> T) -> T {
    own()
}
