// SPDX-License-Identifier: Apache-2.0
//! One request between a host and the engine, without either: the instructions to a host in each phase of a request.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use weir::engine::{Action, Engine, Kind, Metric, Metrics, Report};
use weir::request::sample::Sample;
use weir::request::{Attributes, Unreadable};
use weir::session::{self, Chunk, Exchange, Next, Session, Show};
use weir::time::Micros;

use crate::worker::*;

/// Statistics that only count how often a counter grew.
#[derive(Default)]
struct Statistics {
    counted: usize,
}

impl Metrics for Statistics {
    fn add(&mut self, metric: Metric, _: i64) -> bool {
        self.counted += usize::from(metric.kind == Kind::Counter);
        true
    }
}

/// A worker, and what its host was called for.
struct Host {
    worker: Worker,
    report: Report,
    metrics: Statistics,
    /// True if a timer can be armed.
    has_timer: bool,
    wakes: usize,
    arms: usize,
    clocks: Cell<usize>,
}

impl session::Worker for Host {
    type Metrics = Statistics;

    fn parts(&mut self) -> (&mut Engine, &mut Report, &mut Statistics) {
        (&mut self.worker.engine, &mut self.report, &mut self.metrics)
    }

    fn now(&self) -> Micros {
        self.clocks.set(self.clocks.get() + 1);
        self.worker.now
    }

    fn arm(&mut self, _: Micros) {
        self.arms += 1;
    }

    fn wait(&mut self, _: Micros) -> bool {
        self.has_timer
    }

    fn wake(&mut self, _: Micros) {
        self.wakes += 1;
    }
}

/// A request as a host shows it: its body comes later.
struct Arrived {
    sample: Sample,
    written: RefCell<Vec<(String, String)>>,
}

impl Attributes for Arrived {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Attributes::header(&self.sample, name)
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        Attributes::header_lines(&self.sample, name)
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Attributes::property(&self.sample, path)
    }
}

impl Exchange for Arrived {
    fn write_state(&self, name: &str, value: &str) {
        self.written.borrow_mut().push((name.to_owned(), value.to_owned()));
    }

    fn take_failures(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One request, its session, and its worker.
struct Case {
    host: Host,
    request: Arrived,
    session: Session,
}

const STREAM: u32 = 7;

impl Case {
    fn configured(config: &str) -> Self {
        let worker = Worker::configured(config);
        let report = Report::new(worker.engine.config());
        let host = Host {
            worker,
            report,
            metrics: Statistics::default(),
            has_timer: true,
            wakes: 0,
            arms: 0,
            clocks: Cell::new(0),
        };
        let request = Arrived { sample: Sample::default(), written: RefCell::default() };
        Self { host, request, session: Session::new(STREAM) }
    }

    /// Policies `p0`, `p1`, ….
    fn new(store: &str, policies: &[String]) -> Self {
        let named =
            policies.iter().enumerate().map(|(place, policy)| format!(r#"{{"name": "p{place}", {policy}}}"#));
        let policies = named.collect::<Vec<_>>().join(", ");
        Self::configured(&format!(
            r#"{{"emit_filter_state": true, "request_body": {{"timeout": "1s"}}, "store": {store}, "policies": [{policies}]}}"#
        ))
    }

    fn headers(&mut self) -> Said {
        said(&self.session.headers(&mut self.host, &self.request))
    }

    fn body(&mut self, part: &[u8], is_end: bool) -> Said {
        let feed = &mut |body: &mut weir::request::body::Body| body.feed(part);
        said(&self.session.body(&mut self.host, &self.request, Chunk { size: &|| part.len(), feed, is_end }))
    }

    fn trailers(&mut self) -> Said {
        let chunk = Chunk { size: &|| 0, feed: &mut |_| {}, is_end: true };
        said(&self.session.body(&mut self.host, &self.request, chunk))
    }

    /// Whatever comes of the request, this is said of it.
    fn all_say(&mut self, expected: Said, case: &str) {
        assert_eq!(self.body(b"{", false), expected, "{case}");
        assert_eq!(self.body(b"}", true), expected, "{case}");
        assert_eq!(self.trailers(), expected, "{case}");
    }

    /// The subjects that the next batch asks about.
    fn asked(&mut self) -> Vec<String> {
        let batch = self.host.worker.next_batch();
        batch.iter().flat_map(Batch::tasks).filter(|task| task.requests > 0).map(|task| task.tag).collect()
    }

    fn reports(&mut self) {
        let now = self.host.worker.now;
        session::Worker::report(&mut self.host, now);
    }

    fn closed(mut self, case: &str) {
        self.session.closed(&mut self.host);
        assert!(!self.session.is_known(), "{case}");
    }
}

/// The instruction to a host, with the status of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Continue,
    Pause,
    AwaitBody,
    Reject(u16),
}

fn said(next: &Next) -> Said {
    match next {
        Next::Continue => Said::Continue,
        Next::Pause => Said::Pause,
        Next::AwaitBody => Said::AwaitBody,
        Next::Reject(rejection) => Said::Reject(rejection.status),
    }
}

use Said::{AwaitBody, Continue, Pause, Reject};

/// A policy whose subject is in the body.
fn by_user(on_unreadable: &str) -> String {
    format!(
        r#""subject": [{{"body_json": {{"path": "user", "on_unreadable": "{on_unreadable}"}}}}], "limits": [{BUCKET}]"#
    )
}

const BODY: &[u8] = br#"{"user": "ann"}"#;

#[test]
fn a_request_that_waits_stays_paused_until_its_release_and_a_rejected_one_for_ever() {
    let second = Reply::delay;
    let rows: [(&str, String, &[Reply], bool); 5] = [
        ("it waits for the store", policy(BUCKET), &[], true),
        ("it is admitted, and not released yet", policy(BUCKET), &[granted(1)], true),
        ("it is rejected, and not released yet", policy(BUCKET), &[denied(secs(30))], false),
        ("it is held", policy(&delayed("5s")), &[second(granted(1), secs(1))], true),
        ("it waits for a permit", policy(&queued(PLACES, "1s", 5)), &[denied(secs(30))], false),
    ];
    for with_body in [false, true] {
        for (case, policy, replies, passes) in &rows {
            let policies = [policy.clone(), by_user("missing")];
            let mut it = Case::new(DENY, &policies[..1 + usize::from(with_body)]);
            if with_body {
                assert_eq!(it.headers(), AwaitBody, "{case}");
                assert_eq!(it.body(&BODY[..5], false), AwaitBody, "{case}");
                assert_eq!(it.body(&BODY[5..], true), Pause, "{case}");
            } else {
                assert_eq!(it.headers(), Pause, "{case}");
            }
            it.all_say(Pause, case);
            if let [reply] = replies {
                let batch = it.host.worker.batch();
                let other = with_body.then(|| granted(1));
                let all = bytes([reply.clone()].into_iter().chain(other));
                it.host.worker.engine.replied(batch.id, &all, it.host.worker.now);
            }
            it.all_say(Pause, case);
            it.host.worker.idle(secs(2));
            it.all_say(Pause, case);
            let release = it.host.worker.engine.next_release();
            // Without a reply, `on_failure` denies it.
            let passes = *passes && !replies.is_empty();
            let admitted = release.map(|release| matches!(release.action, Action::Admit));
            assert_eq!(admitted, Some(passes), "{case}");
            it.all_say(if passes { Continue } else { Pause }, case);
            it.closed(case);
        }
    }
}

#[test]
fn a_body_is_read_in_pieces_and_ends_with_its_last_or_with_trailers() {
    let rows: [(&str, &[&[u8]], bool, &str); 7] = [
        ("whole", &[BODY], false, "p0|ann"),
        ("whole, with trailers", &[BODY], true, "p0|ann"),
        ("in pieces", &[&BODY[..3], &BODY[3..9], &BODY[9..]], false, "p0|ann"),
        ("in pieces, with trailers", &[&BODY[..3], &BODY[3..]], true, "p0|ann"),
        ("nothing", &[b""], false, "p0|"),
        ("no JSON", &[b"{\"user\": ", b"}"], false, "p0|"),
        ("it ends within", &[&BODY[..5]], true, "p0|"),
    ];
    for (case, pieces, trailers, tag) in rows {
        let mut it = Case::new(DENY, &[by_user("missing")]);
        it.request.sample = Sample::default().method("POST");
        assert_eq!(it.headers(), AwaitBody, "{case}");
        let mut last = AwaitBody;
        for (place, piece) in (1..).zip(pieces) {
            assert_eq!(last, AwaitBody, "{case}");
            last = it.body(piece, !trailers && place == pieces.len());
        }
        if trailers {
            assert_eq!(last, AwaitBody, "{case}");
            last = it.trailers();
        }
        assert_eq!(last, Pause, "{case}");
        let asked = it.asked();
        assert!(asked.len() == 1 && asked[0].starts_with(tag), "{case}: {asked:?}");
        let unreadable = u64::from(matches!(case, "no JSON" | "it ends within"));
        assert_eq!(it.host.worker.engine.counters().request_bodies_unreadable, unreadable, "{case}");
        it.closed(case);
    }
}

#[test]
fn a_body_that_cannot_be_read_denies_where_the_policy_says_so() {
    let mut it = Case::new(ALLOW, &[by_user("deny")]);
    assert_eq!(it.headers(), AwaitBody);
    assert_eq!(it.body(b"]", false), Reject(403));
    let written = it.request.written.borrow().clone();
    let state = [("weir.policy", "p0"), ("weir.outcome", "denied")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(written, state);
    it.all_say(Pause, "it is rejected");
    assert!(!it.session.is_known() && it.asked().is_empty());
}

#[test]
fn a_body_that_is_late_or_whose_request_is_denied_is_not_charged() {
    for (case, other, wait, reply) in [
        ("late", None, secs(1), None),
        ("denied meanwhile", Some(policy(BUCKET)), ms(50), Some(denied(secs(30)))),
    ] {
        for is_released in [false, true] {
            let policies: Vec<_> = [by_user("missing")].into_iter().chain(other.clone()).collect();
            let mut it = Case::new(DENY, &policies);
            assert_eq!(it.headers(), AwaitBody, "{case}");
            it.host.worker.idle(wait);
            if let Some(reply) = &reply {
                let batch = it.host.worker.batch();
                let replies = bytes([reply.clone()]);
                it.host.worker.engine.replied(batch.id, &replies, it.host.worker.now);
            }
            if is_released {
                let release = it.host.worker.engine.next_release();
                assert!(release.is_some_and(|release| matches!(release.action, Action::Reject(_))), "{case}");
            }
            assert_eq!(it.body(BODY, true), Pause, "{case}");
            it.all_say(Pause, case);
            assert_eq!(it.asked(), Vec::<String>::new(), "{case}");
            assert_eq!(it.host.worker.engine.counters().rejected, 1, "{case}");
            it.closed(case);
        }
    }
}

#[test]
fn a_late_body_has_the_response_of_the_policy_that_waits_for_it() {
    let limits = r#""limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]"#;
    let of = |name: &str, fields: &str, style: &str| {
        format!(r#"{{"name": "{name}", {fields}, "response": {{"style": "{style}"}}, {limits}}}"#)
    };
    const WAITS: &str = r#""subject": [{"body_json": {"path": "user"}}]"#;
    const NEVER: &str = r#""subject": [{"literal": "s"}]"#;
    const OTHER: &str =
        r#""match": {"path": {"exact": "/other"}}, "subject": [{"body_json": {"path": "user"}}]"#;
    let shadow = format!(r#""mode": "shadow", {WAITS}"#);
    let (openai, anthropic, own) = ("request_timeout", "timeout_error", "-32048");
    let list = r#"[{"body_json": {"path": "admin", "present": true}}]"#;
    let (deny, exempt) = (format!(r#""deny": {list},"#), format!(r#""exempt": {list},"#));
    #[rustfmt::skip]
    let rows = [
        ("the only one", "", vec![of("a", WAITS, "openai")], openai),
        ("the first of two", "", vec![of("a", WAITS, "openai"), of("b", WAITS, "anthropic")], openai),
        ("the second waits", "", vec![of("a", NEVER, "openai"), of("b", WAITS, "anthropic")], anthropic),
        ("the first does not apply", "", vec![of("a", OTHER, "openai"), of("b", WAITS, "anthropic")], anthropic),
        ("the first is in shadow", "", vec![of("a", &shadow, "openai"), of("b", WAITS, "anthropic")], anthropic),
        ("a list waits", &deny, vec![of("a", NEVER, "openai")], own),
        ("a list and a policy wait", &deny, vec![of("a", WAITS, "openai")], openai),
        ("it may be exempt", &exempt, vec![of("a", WAITS, "openai")], own),
    ];
    for (name, list, policies, wanted) in rows {
        let mut it = Case::configured(&format!(
            r#"{{{list} "response": {{"style": "json_rpc"}}, "request_body": {{"timeout": "1s"}}, "policies": [{}]}}"#,
            policies.join(",")
        ));
        assert_eq!(it.headers(), AwaitBody, "{name}");
        it.host.worker.idle(secs(1));
        let release = it.host.worker.engine.next_release().expect(name);
        let Action::Reject(rejection) = release.action else { panic!("{name}: it is admitted") };
        assert_eq!((rejection.status, rejection.details.as_str()), (408, "weir_body_late"), "{name}");
        assert!(rejection.body.contains(wanted), "{name}: {}", rejection.body);
    }
}

/// A policy in shadow rejects nothing, so a body that is late for it alone decides nothing.
#[test]
fn a_body_that_is_late_for_policies_in_shadow_rejects_nothing() {
    let limits = r#""limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]"#;
    let shadow = format!(
        r#"{{"name": "a", "mode": "shadow", "subject": [{{"body_json": {{"path": "user"}}}}], {limits}}}"#
    );
    let enforced = format!(r#"{{"name": "b", "subject": [{{"literal": "s"}}], {limits}}}"#);
    for (name, policies, reply, wanted) in [
        ("it is alone", vec![shadow.clone()], None, true),
        ("another admits", vec![shadow.clone(), enforced.clone()], Some(granted(1)), true),
        ("another denies", vec![shadow, enforced], Some(denied(secs(30))), false),
    ] {
        let mut it = Case::configured(&format!(
            r#"{{"request_body": {{"timeout": "1s"}}, "policies": [{}]}}"#,
            policies.join(",")
        ));
        assert_eq!(it.headers(), AwaitBody, "{name}");
        it.host.worker.idle(ms(60));
        // Asked without a charge, because the body takes long.
        if reply.is_some() {
            let question = it.host.worker.batch();
            it.host.worker.engine.replied(question.id, &bytes([granted(0)]), it.host.worker.now);
        }
        it.host.worker.idle(ms(940));
        if let Some(reply) = reply {
            let batch = it.host.worker.batch();
            it.host.worker.engine.replied(batch.id, &bytes([reply]), it.host.worker.now);
        }
        let release = it.host.worker.engine.next_release().expect(name);
        assert_eq!(matches!(release.action, Action::Admit), wanted, "{name}");
        assert_eq!(it.host.worker.engine.counters().request_bodies_late, 1, "{name}");
        it.closed(name);
    }
}

#[test]
fn two_policies_are_asked_about_at_once_when_the_body_is_there() {
    let mut it = Case::new(DENY, &[by_user("missing"), policy(BUCKET)]);
    assert_eq!((it.headers(), it.asked().len()), (AwaitBody, 0));
    assert_eq!((it.body(BODY, true), it.host.wakes), (Pause, 1));
    let mut asked = it.asked();
    asked.sort();
    assert_eq!(asked, ["p0|ann", "p1|s"]);
}

#[test]
fn without_a_timer_a_request_is_decided_at_once() {
    for (case, store, policy, expected) in [
        ("allowed", ALLOW, policy(BUCKET), Continue),
        ("denied", DENY, policy(BUCKET), Reject(503)),
        ("its body is one that cannot be read", ALLOW, by_user("missing"), Continue),
        ("its body is one that cannot be read, and it is denied", ALLOW, by_user("deny"), Reject(403)),
    ] {
        let mut it = Case::new(store, &[policy]);
        it.host.has_timer = false;
        assert_eq!(it.headers(), expected, "{case}");
        it.all_say(if expected == Continue { Continue } else { Pause }, case);
        let unreadable = u64::from(case.contains("body"));
        assert_eq!(it.host.worker.engine.counters().request_bodies_unreadable, unreadable, "{case}");
        assert_eq!(it.asked(), Vec::<String>::new(), "{case}");
        assert!(it.host.worker.engine.next_release().is_none(), "{case}");
        it.closed(case);
    }
}

/// Its release must not be left behind for a request that is submitted all the same.
#[test]
fn a_request_that_is_denied_before_its_body_and_cannot_wait_is_rejected_at_once() {
    let mut it = Case::new(DENY, &[by_user("missing"), policy(BUCKET)]);
    let check = check_of(1, "{p1|s}", 1);
    it.host.worker.engine.submit(1, [check].into_iter().collect(), it.host.worker.now);
    assert_eq!(it.host.worker.answer([denied(secs(30))]), [(1, false)]);
    it.host.has_timer = false;
    assert_eq!(it.headers(), Reject(429));
    it.all_say(Pause, "rejected");
    assert!(it.host.worker.engine.next_release().is_none());
    assert_eq!(it.request.written.borrow()[2].1, "rejected");
    it.closed("rejected");
}

#[test]
fn a_request_that_no_policy_applies_to_costs_nothing_more() {
    let mut it = Case::new(ALLOW, &[format!(r#""match": {{"method": ["PUT"]}}, {}"#, policy(BUCKET))]);
    assert_eq!(it.headers(), Continue);
    it.all_say(Continue, "unmatched");
    assert!(it.session.response_headers(&mut it.host, &|_| panic!("nothing is read"), true).is_empty());
    it.session.closed(&mut it.host);
    assert_eq!((it.host.clocks.get(), it.host.arms, it.host.wakes), (0, 0, 0));
}

#[test]
fn a_request_that_a_list_denies_and_an_enquiry_that_is_answered_stay_paused() {
    let rest = format!(r#""store": {ALLOW}, "policies": [{{"name": "p0", {}}}]"#, policy(BUCKET));
    let mut it = Case::configured(&format!(r#"{{"deny": [{{"method": ["GET"]}}], {rest}}}"#));
    assert_eq!(it.headers(), Reject(403));
    it.all_say(Pause, "denied");
    assert_eq!(it.host.worker.engine.counters().denied_by_list, 1);
    assert_eq!(it.request.written.borrow().len(), 0, "nothing is written unless it is configured");

    let mut it = Case::configured(&format!(r#"{{"quota": {{}}, {rest}}}"#));
    it.request.sample = Sample::default().path("/.well-known/quota");
    assert_eq!(it.headers(), Pause);
    assert_eq!(it.host.worker.answer([granted(0)]), [(STREAM, false)]);
    it.all_say(Pause, "answered");
    it.closed("answered");
}

#[test]
fn a_response_settles_its_request_and_wakes_the_worker() {
    let header = settled(r#"[{"cost": {"header": {"name": "x-used", "max": 50}}}]"#, WINDOW);
    let trailer = settled(r#"[{"cost": {"trailer": {"name": "x-used", "max": 50}}}]"#, WINDOW);
    let bytes = settled(r#"[{"cost": {"response_bytes": {"per": 10}}}]"#, WINDOW);
    let content = settled(r#"[{"cost": {"body_json": {"sum": [{"paths": ["n"]}]}}}]"#, WINDOW);
    for (case, policy, cost, wakes) in [
        ("by a header", header, 4, [true, false, true]),
        ("by a trailer", trailer, 4, [false, false, true]),
        ("by its size", bytes, 2, [false, false, true]),
        ("by its content", content, 7, [false, false, true]),
    ] {
        let mut it = Case::new(DENY, std::slice::from_ref(&policy));
        assert_eq!(it.headers(), Pause, "{case}");
        assert_eq!(it.host.worker.answer([granted(1)]), [(STREAM, true)], "{case}");
        let fields = |name: &str| match name {
            ":status" => Some(b"200".to_vec()),
            "content-type" => Some(b"application/json".to_vec()),
            "x-used" => Some(b"4".to_vec()),
            _ => None,
        };
        let before = it.host.wakes;
        let added = it.session.response_headers(&mut it.host, &fields, false).len();
        assert!(added > 0, "{case}: the headers of the limits");
        let woken = [it.host.wakes - before];
        let json = br#"{"n": 7, "t": "."}"#;
        let pass = |with_bytes: bool, show: Show<'_>| {
            assert_eq!(with_bytes, case == "by its content");
            assert!(!case.contains("header") && !case.contains("trailer"));
            show(json.len(), if with_bytes { json } else { b"" });
        };
        it.session.response_body(&mut it.host, &pass, false);
        let before = it.host.wakes;
        it.session.response_trailers(&mut it.host, &fields);
        let woken = [woken[0], it.host.wakes - before];
        let before = it.host.wakes;
        it.session.closed(&mut it.host);
        let woken = [woken[0], woken[1], it.host.wakes - before].map(|count| count > 0);
        assert_eq!(woken, wakes, "{case}");
        let settled: Vec<_> = it.host.worker.drain().into_iter().map(|task| task.number).collect();
        assert_eq!(settled, [1 - cost], "{case}");
    }
}

/// Nothing is sent because of such a response, and so no turn of the worker may follow.
#[test]
fn what_a_response_only_counts_is_exported() {
    let by_content = settled(r#"[{"cost": {"body_json": {"sum": [{"paths": ["n"]}]}}}]"#, WINDOW);
    let by_size = settled(r#"[{"cost": {"response_bytes": {"per": 10}}}]"#, WINDOW);
    let rows: [(&str, &str, &str, &[u8]); 2] = [
        ("it is compressed", &by_content, "gzip", b"?"),
        ("it costs what it has reserved", &by_size, "identity", b"0123456789"),
    ];
    for (case, policy, encoding, body) in rows {
        let mut it = Case::new(DENY, &[policy.to_owned()]);
        assert_eq!(it.headers(), Pause, "{case}");
        assert_eq!(it.host.worker.answer([granted(1)]), [(STREAM, true)], "{case}");
        it.reports();
        it.host.worker.skip(secs(1));
        it.reports();
        let exported = it.host.metrics.counted;
        it.host.arms = 0;
        let fields = |name: &str| match name {
            ":status" => Some(b"200".to_vec()),
            "content-type" => Some(b"application/json".to_vec()),
            "content-encoding" => Some(encoding.into()),
            _ => None,
        };
        it.session.response_headers(&mut it.host, &fields, false);
        it.session.response_body(&mut it.host, &|_, show: Show<'_>| show(body.len(), body), true);
        it.session.closed(&mut it.host);
        assert!(it.host.worker.drain().is_empty(), "{case}");
        assert!(it.host.arms > 0, "{case}: a turn is arranged");
        it.host.worker.skip(ms(100));
        it.reports();
        assert!(it.host.metrics.counted > exported, "{case}");
    }
}

/// With and without a policy that waits for the body, and with what the session sees before and after the request is admitted.
#[test]
fn an_upload_costs_the_bytes_that_came() {
    let uploads = settled(
        r#"[{"when": {"status": ["5xx"]}, "cost": {"constant": 0}}, {"cost": {"request_bytes": {"per": 10}}}]"#,
        WINDOW,
    );
    let rows: &[(&str, &[&str], &[&str], &str, u64)] = &[
        ("no body", &[], &[], "200", 0),
        ("all before it is admitted", &["0123456789", "x"], &[], "200", 2),
        ("all after it is admitted", &[], &["0123456789", "x"], "200", 2),
        ("before and after", &["0123"], &["456789", "0123456789"], "200", 2),
        ("an upstream that failed", &["0123"], &["456789"], "503", 0),
        ("no response", &["0123456789"], &["0123456789x"], "", 3),
    ];
    for (case, before, after, status, cost) in rows {
        let mut it = Case::new(DENY, std::slice::from_ref(&uploads));
        assert_eq!(it.headers(), Pause, "{case}");
        before.iter().for_each(|chunk| assert_eq!(it.body(chunk.as_bytes(), false), Pause, "{case}"));
        assert_eq!(it.host.worker.answer([granted(1)]), [(STREAM, true)], "{case}");
        after.iter().for_each(|chunk| assert_eq!(it.body(chunk.as_bytes(), false), Continue, "{case}"));
        if !status.is_empty() {
            it.session.response_headers(
                &mut it.host,
                &|name: &str| (name == ":status").then(|| status.as_bytes().to_vec()),
                true,
            );
        }
        it.session.closed(&mut it.host);
        let settled: i64 = it.host.worker.drain().into_iter().map(|task| task.number).sum();
        assert_eq!(settled, 1 - *cost as i64, "{case}");
    }
}

#[test]
fn statistics_arm_the_timer_when_they_change_and_leave_when_it_is_time() {
    let mut it = Case::new(DENY, &[policy(BUCKET)]);
    assert_eq!(it.headers(), Pause);
    it.host.arms = 0;
    it.host.worker.answer([granted(1)]);
    it.reports();
    assert_eq!((it.host.arms, it.host.metrics.counted), (1, 0));
    it.host.worker.skip(secs(1));
    it.reports();
    assert!(it.host.metrics.counted > 0);
    it.closed("reported");
}
