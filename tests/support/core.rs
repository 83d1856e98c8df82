// SPDX-License-Identifier: Apache-2.0
//! The core of one worker, from a request's attributes to the end of its stream, without Envoy and with a store whose answers the caller
//! chooses: for counting what a request costs. It calls what the hosts call, in the same order.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::rc::Rc;

use weir::config::Config;
use weir::engine::{Action, Engine, Metric, Metrics, Outgoing, Report, StoreFailure, StreamId, Timer};
use weir::request::{Attributes, Unreadable};
use weir::resp;
use weir::session::{self, Exchange, Next, Session, Worker as _};
use weir::time::Micros;

/// A GET with a header `x-user`. This host lends the bytes; those of Envoy copy them.
pub struct User<'a> {
    pub path: &'a str,
    pub name: &'a str,
}

impl Attributes for User<'_> {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(match name {
            ":method" => Some(Cow::Borrowed(b"GET")),
            ":path" => Some(Cow::Borrowed(self.path.as_bytes())),
            "x-user" => Some(Cow::Borrowed(self.name.as_bytes())),
            _ => None,
        })
    }

    fn header_lines(&self, _: &str) -> Result<usize, Unreadable> {
        Ok(1)
    }

    fn property(&self, _: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(None)
    }
}

impl Exchange for User<'_> {
    fn write_state(&self, _: &str, _: &str) {}

    fn take_failures(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Statistics that nothing reads.
pub struct Unread;

impl Metrics for Unread {
    fn add(&mut self, _: Metric, _: i64) -> bool {
        true
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

/// The store's reply to one command: so many granted, or none until so many microseconds from now.
pub fn answer(granted: i64, retry_after: i64, now: Micros) -> Vec<u8> {
    let now = i64::try_from(now.0).expect("a time");
    let mut reply = Vec::new();
    let answer = match retry_after {
        0 => vec![granted, now, 5, 1_000_000],
        _ => vec![granted, now, 5, -1 - 1_000_000, retry_after, 0, 0],
    };
    resp::bulk(&mut reply, &answer.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>());
    reply
}

pub struct Core {
    pub engine: Engine,
    pub now: Micros,
    report: Report,
    metrics: Unread,
    timer: Timer,
    next: StreamId,
    /// The sessions of requests that wait, in the order in which they came.
    waiting: VecDeque<Session>,
    /// The replies to a batch. It is kept, so that a round allocates nothing for itself.
    replies: Vec<u8>,
}

impl session::Worker for Core {
    type Metrics = Unread;

    fn parts(&mut self) -> (&mut Engine, &mut Report, &mut Unread) {
        (&mut self.engine, &mut self.report, &mut self.metrics)
    }

    fn now(&self) -> Micros {
        self.now
    }

    fn arm(&mut self, now: Micros) {
        let due = self.engine.next_tick(now).into_iter().chain(self.report.due()).min();
        self.timer.arm(due, now);
    }

    fn wait(&mut self, now: Micros) -> bool {
        self.arm(now);
        true
    }

    fn wake(&mut self, _: Micros) {}
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
        Self {
            engine,
            now,
            report: Report::new(&config),
            metrics: Unread,
            timer: Timer::default(),
            next: 0,
            waiting: VecDeque::with_capacity(1024),
            replies: Vec::with_capacity(64 * 1024),
        }
    }

    /// A request arrives; whether it passes, if that is known already.
    pub fn arrive(&mut self, request: &impl Exchange) -> Option<bool> {
        self.next = self.next.wrapping_add(1);
        let mut session = Session::new(self.next);
        let passes = match session.headers(self, request) {
            Next::Continue => true,
            Next::Reject(_) => false,
            Next::Pause => {
                self.waiting.push_back(session);
                return None;
            }
            Next::AwaitBody => panic!("the body is not there"),
        };
        self.leave(session, passes);
        Some(passes)
    }

    /// The store answers each command of the batch that waits in this way; how many requests passed, and ended.
    pub fn ask(&mut self, reply: &[u8]) -> usize {
        let Some(outgoing) = self.send() else { return 0 };
        let mut replies = std::mem::take(&mut self.replies);
        replies.clear();
        (0..outgoing.replies).for_each(|_| replies.extend(reply));
        self.engine.replied(outgoing.id, &replies, self.now);
        self.replies = replies;
        self.turn()
    }

    /// The store does not answer.
    pub fn fail(&mut self) -> usize {
        let Some(outgoing) = self.send() else { return 0 };
        self.engine.failed(outgoing.id, &StoreFailure::Refused, self.now);
        self.turn()
    }

    /// The turn in which a batch is sent. The store has answered before the next batch is due.
    fn send(&mut self) -> Option<Outgoing> {
        let outgoing = self.engine.next_batch(self.now)?;
        assert!(self.engine.next_batch(self.now).is_none(), "one batch at a time");
        self.end_turn();
        Some(outgoing)
    }

    /// The turn in which requests are released; how many passed, and ended.
    fn turn(&mut self) -> usize {
        let mut passed = 0;
        while let Some(release) = self.engine.next_release() {
            session::record(&self.engine, release.stream, &|_, _| {});
            let place = self.waiting.iter().position(|session| session.stream() == release.stream);
            let session = place.and_then(|place| self.waiting.remove(place)).expect("it waits");
            let passes = matches!(release.action, Action::Admit);
            self.leave(session, passes);
            passed += usize::from(passes);
        }
        self.end_turn();
        passed
    }

    fn end_turn(&mut self) {
        if self.engine.has_releases() || self.engine.wants_to_send() {
            self.wake(self.now);
        }
        self.arm(self.now);
        self.report(self.now);
    }

    /// The response gets its headers, and the stream ends.
    fn leave(&mut self, mut session: Session, passes: bool) {
        if passes {
            let is_known = session.is_known();
            let headers = session.response_headers(self, &|_| None, true);
            assert_eq!(!headers.is_empty(), is_known);
        }
        session.closed(self);
    }
}
