// SPDX-License-Identifier: Apache-2.0
//! A request reserves a cost. Its response shows its true cost, and the difference is charged or refunded, once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir::engine::{StoreFailure, StreamId};
use weir::policy::settle::Watched;

use crate::worker::*;
use crate::world::{Network, World};

/// The parts of a response that a host passes on.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// Headers; the status first.
    Headers(&'static [(&'static str, &'static str)]),
    Body(&'static str),
    Trailers(&'static [(&'static str, &'static str)]),
    /// Time passes.
    After(u64),
    /// The stream ends, behind a whole response.
    End,
    /// The client leaves, or the upstream breaks off.
    Cut,
}

use Seen::{After, Body, Cut, End, Headers, Trailers};

fn see(worker: &mut Worker, stream: StreamId, seen: Seen) -> Watched {
    let read = |fields: &'static [(&str, &str)]| {
        move |name: &str| {
            let found = fields.iter().find(|(field, _)| *field == name);
            found.map(|(_, value)| value.as_bytes().to_vec())
        }
    };
    let now = worker.now;
    match seen {
        Headers(fields) => return worker.engine.response_headers(stream, &read(fields), now),
        Trailers(fields) => worker.engine.response_trailers(stream, &read(fields), now),
        Body(content) => worker.engine.response_body(stream, content.len(), content.as_bytes()),
        After(millis) => worker.idle(ms(millis)),
        End => {
            worker.engine.response_whole(stream);
            worker.close(stream);
        }
        Cut => worker.close(stream),
    }
    Watched::default()
}

/// A worker with one request that has reserved 10 units and is admitted.
fn admitted(cases: &str) -> Worker {
    let mut worker = Worker::new(ALLOW, [settled(cases, BUCKET)]);
    assert_eq!(worker.arrive_costing(10, 1, &["ann"]), None);
    let batch = worker.batch();
    assert_eq!(worker.reply(&batch, [granted(1)]), [(1, true)]);
    worker
}

const OK: Seen = Headers(&[(":status", "200")]);

#[test]
fn what_a_request_has_cost_is_told_from_its_response() {
    let failures = r#"[{"when": {"status": [401, "403-404", "5xx"]}, "cost": {"reserved": {}}}, {"cost": {"constant": 0}}]"#;
    let header = r#"[{"cost": {"header": {"name": "x-used", "max": 1000}}}]"#;
    let refunded = r#"[{"cost": {"header": {"name": "x-used", "on_missing": {"constant": 0}}}}]"#;
    let trailer = r#"[{"cost": {"trailer": {"name": "x-used", "on_missing": {"constant": 3}}}}]"#;
    let bytes = r#"[{"cost": {"response_bytes": {"per": 10}}}]"#;
    let time = r#"[{"cost": {"duration": {"per": "100ms", "max": 40}}}]"#;
    let grpc = r#"[{"when": {"grpc_status": [0]}, "cost": {"constant": 1}}, {"when": {"grpc_status": [16]}, "cost": {"constant": 25}}]"#;
    let denied = r#"[{"when": {"grpc_status": [16]}, "cost": {"reserved": {}}}, {"cost": {"constant": 0}}]"#;
    let spent = r#"[{"when": {"status": [401]}, "cost": {"reserved": {}}}, {"cost": {"duration": {"per": "100ms"}}}]"#;
    let both = r#"[{"when": {"status": [200], "grpc_status": [7]}, "cost": {"constant": 11}}]"#;
    let tokens = r#"[{"cost": {"body_json": {"sum": [{"paths": ["u.in", "u.input"]}, {"paths": ["u.out"], "weight": "0.5"}], "on_missing": {"constant": 1}, "max": 500}}}]"#;
    let back = r#"[{"when": {"status": ["3xx"], "header": {"name": "location", "regex": "(https?://[^/]+)?/login([/?#].*)?"}}, "cost": {"constant": 25}}, {"cost": {"constant": 0}}]"#;
    let cookie = r#"[{"when": {"header": {"name": "set-cookie", "prefix": "session="}}, "cost": {"constant": 0}}, {"cost": {"constant": 25}}]"#;
    let absent = r#"[{"when": {"header": {"name": "x-user", "present": false}}, "cost": {"constant": 25}}, {"when": {"header": {"name": "x-user", "exact": "Ann", "normalize": ["lowercase"]}}, "cost": {"constant": 1}}]"#;
    let and_grpc = r#"[{"when": {"header": {"name": "x-user", "in": ["ann"]}, "grpc_status": [7]}, "cost": {"constant": 25}}]"#;
    const JSON: Seen = Headers(&[(":status", "200"), ("content-type", "application/json")]);
    const EVENTS: Seen = Headers(&[(":status", "200"), ("content-type", "text/event-stream; charset=utf-8")]);
    const PACKED: Seen =
        Headers(&[(":status", "200"), ("content-type", "application/json"), ("content-encoding", "gzip")]);
    // The settled units: above 0 charged, below 0 refunded. `None`: nothing is settled.
    type Row = (&'static str, &'static [Seen], Option<i64>);
    #[rustfmt::skip]
    let rows: &[(&str, &[Row])] = &[
        (failures,
         &[("a success", &[OK, End], Some(-10)),
           ("a failure", &[Headers(&[(":status", "401")]), End], None),
           ("in a range", &[Headers(&[(":status", "404")]), End], None),
           ("below a range", &[Headers(&[(":status", "402")]), End], Some(-10)),
           ("in a class", &[Headers(&[(":status", "599")]), End], None),
           ("below a class", &[Headers(&[(":status", "499")]), End], Some(-10)),
           ("no response", &[Cut], None),
           ("1xx, then a failure", &[Headers(&[(":status", "503")]), OK, End], None)]),
        (
            header,
            &[
                ("less", &[Headers(&[(":status", "200"), ("x-used", "4")]), End], Some(-6)),
                ("more", &[Headers(&[(":status", "200"), ("x-used", "25")]), End], Some(15)),
                ("as reserved", &[Headers(&[(":status", "200"), ("x-used", "10")]), End], None),
                ("nothing", &[Headers(&[(":status", "200"), ("x-used", "0")]), End], Some(-10)),
                (
                    "the largest of several",
                    &[Headers(&[(":status", "200"), ("x-used", "4, 12,7")]), End],
                    Some(2),
                ),
                (
                    "at most max",
                    &[Headers(&[(":status", "200"), ("x-used", "99999999999999999999999")]), End],
                    Some(990),
                ),
                ("no number", &[Headers(&[(":status", "200"), ("x-used", "1.5")]), End], None),
                ("below zero", &[Headers(&[(":status", "200"), ("x-used", "-4")]), End], None),
                ("missing", &[OK, End], None),
                ("no response", &[Cut], None),
            ],
        ),
        (refunded, &[("missing", &[OK, Cut], Some(-10)), ("no response", &[Cut], None)]),
        (trailer,
         &[("in the trailers", &[OK, Body("123456789"), Trailers(&[("x-used", "17")]), End], Some(7)),
           ("in the headers", &[Headers(&[(":status", "200"), ("x-used", "17")]), End], Some(-7)),
           ("other trailers", &[OK, Trailers(&[("used", "17")]), End], Some(-7)),
           ("cut off before them", &[OK, Body("1"), Cut], None)]),
        (bytes, &[("rounded up", &[OK, Body("12345678901"), Body("2"), End], Some(-8)), ("empty", &[OK, End], Some(-10)), ("cut off", &[OK, Body("12345678901"), Cut], Some(-8)), ("no response", &[Cut], None)]),
        (time,
         &[("rounded up", &[OK, After(1_010), End], Some(1)),
           ("at most max", &[OK, After(9_000), End], Some(30)),
           ("without a response", &[After(300), Cut], Some(-7))]),
        (
            tokens,
            &[
                (
                    "a sum, rounded up",
                    &[JSON, Body(r#"{"u": {"in": 20, "#), Body(r#""out": 3}}"#), End],
                    Some(12),
                ),
                (
                    "the last number counts",
                    &[
                        EVENTS,
                        Body("data: {\"u\": {\"in\": 4}}\n\nda"),
                        Body("ta: {\"u\": {\"in\": 7}}\n\n"),
                        End,
                    ],
                    Some(-3),
                ),
                ("another place", &[JSON, Body(r#"{"u": {"input": 11}}"#), End], Some(1)),
                ("none of the numbers", &[JSON, Body(r#"{"u": {}}"#), End], Some(-9)),
                ("at most max", &[JSON, Body(r#"{"u": {"in": 1e9}}"#), End], Some(490)),
                (
                    "what was read before it broke off",
                    &[EVENTS, Body("data: {\"u\": {\"in\": 15}}\n\ndata: {\"u"), End],
                    Some(5),
                ),
                ("a number that broke off", &[JSON, Body(r#"{"u": {"in": 15"#), End], Some(-9)),
                ("less than was reserved, and cut off", &[EVENTS, Body("data: {\"u\": {\"in\": 4}}\n\n"), Cut], None),
                ("more, and cut off", &[EVENTS, Body("data: {\"u\": {\"in\": 14}}\n\n"), Cut], Some(4)),
                (
                    "cut off behind the end that OpenAI writes",
                    &[EVENTS, Body("data: {\"u\": {\"in\": 4}}\n\ndata: [DONE]\n\n"), Cut],
                    Some(-6),
                ),
                (
                    "the same, in pieces",
                    &[EVENTS, Body("data: {\"u\": {\"in\": 4}}\n\ndata: [DO"), Body("NE]\n\n"), Cut],
                    Some(-6),
                ),
                (
                    "cut off within that",
                    &[EVENTS, Body("data: {\"u\": {\"in\": 4}}\n\ndata: [DON"), Cut],
                    None,
                ),
                ("cut off within JSON", &[JSON, Body(r#"{"u": {"in": 4, "#), Cut], None),
                ("cut off behind JSON", &[JSON, Body(r#"{"u": {"in": 4}}"#), Cut], Some(-6)),
                ("a number that was cut off", &[JSON, Body(r#"{"u": {"in": 15"#), Cut], None),
                ("compressed, and cut off", &[PACKED, Body("{}"), Cut], None),
                ("compressed", &[PACKED, Body("{}"), End], Some(-9)),
                ("not JSON by its type", &[OK, Body(r#"{"u": {"in": 15}}"#), End], Some(-9)),
                ("no response", &[Cut], None),
            ],
        ),
        (grpc,
         &[("in the trailers", &[OK, Trailers(&[("grpc-status", "0")]), End], Some(-9)),
           ("in the headers", &[Headers(&[(":status", "200"), ("grpc-status", "16")]), End], Some(15)),
           ("another", &[OK, Trailers(&[("grpc-status", "5")]), End], None),
           ("none", &[OK, End], None)]),
        (denied,
         &[("another status", &[OK, Trailers(&[("grpc-status", "0")]), End], Some(-10)),
           ("no status", &[OK, End], Some(-10)),
           ("cut off before its status", &[OK, Cut], None)]),
        // A line feed stands between two lines of a header.
        (back,
         &[("back to the login", &[Headers(&[(":status", "302"), ("location", "/login?error=1")]), Cut], Some(15)),
           ("by a whole address", &[Headers(&[(":status", "303"), ("location", "https://a.test/login")]), End], Some(15)),
           ("elsewhere", &[Headers(&[(":status", "302"), ("location", "/account")]), End], Some(-10)),
           ("a longer path", &[Headers(&[(":status", "302"), ("location", "/logins")]), End], Some(-10)),
           ("another status", &[Headers(&[(":status", "200"), ("location", "/login")]), End], Some(-10)),
           ("no location", &[Headers(&[(":status", "302")]), End], Some(-10)),
           ("on the second of two lines", &[Headers(&[(":status", "302"), ("location", "/account\n/login")]), End], Some(15)),
           ("behind a comma", &[Headers(&[(":status", "302"), ("location", "/account?a,/login")]), End], Some(-10)),
           ("1xx, then elsewhere", &[Headers(&[(":status", "302"), ("location", "/login")]), OK, End], Some(15)),
           ("no response", &[Cut], None)]),
        (cookie,
         &[("one line", &[Headers(&[(":status", "200"), ("set-cookie", "session=1")]), End], Some(-10)),
           ("the first", &[Headers(&[(":status", "200"), ("set-cookie", "session=1\ntheme=a")]), End], Some(-10)),
           ("the last", &[Headers(&[(":status", "200"), ("set-cookie", "theme=a; Expires=Wed, 09 Jun 2027 10:18:14 GMT\nsession=1")]), End], Some(-10)),
           ("inside another", &[Headers(&[(":status", "200"), ("set-cookie", "theme=a,session=1")]), End], Some(15)),
           ("none", &[OK, End], Some(15)),
           ("no response", &[Cut], Some(15))]),
        (absent,
         &[("absent", &[OK, End], Some(15)),
           ("normalised", &[Headers(&[(":status", "200"), ("x-user", "aNN")]), End], Some(-9)),
           ("another", &[Headers(&[(":status", "200"), ("x-user", "bob")]), End], None)]),
        (and_grpc,
         &[("both", &[Headers(&[(":status", "200"), ("x-user", "ann")]), Trailers(&[("grpc-status", "7")]), End], Some(15)),
           ("the header alone", &[Headers(&[(":status", "200"), ("x-user", "ann")]), Trailers(&[("grpc-status", "0")]), End], None),
           ("the status alone", &[Headers(&[(":status", "200")]), Trailers(&[("grpc-status", "7")]), End], None)]),
        (spent,
         &[("cut off before a status", &[After(300), Cut], None)]),
        (both,
         &[("both hold", &[OK, Trailers(&[("grpc-status", "7")]), End], Some(1)),
           ("one holds", &[Headers(&[(":status", "201"), ("grpc-status", "7")]), End], None)]),
    ];
    for (cases, rows) in rows {
        for (name, seen, settled) in *rows {
            let mut worker = admitted(cases);
            for seen in *seen {
                see(&mut worker, 1, *seen);
            }
            let wanted: Vec<_> = settled.iter().map(|units| charge("p0|ann", *units)).collect();
            assert_eq!(worker.drain(), wanted, "{cases}: {name}");
            let counters = worker.engine.counters();
            let units = [counters.units_charged, counters.units_refunded].map(u64::cast_signed);
            let settled = settled.unwrap_or(0);
            assert_eq!(units, [settled.max(0), -settled.min(0)], "{cases}: {name}");
            assert_eq!(worker.engine.request_count(), 0);
        }
    }
}

/// Its case may hold: the request costs no less than it has reserved.
#[test]
fn a_header_too_long_to_be_searched_makes_no_request_cheaper() {
    let cases = |cost: u64| {
        format!(
            r#"[{{"when": {{"header": {{"name": "location", "regex": "/login.*"}}}}, "cost": {{"constant": 25}}}}, {{"cost": {{"constant": {cost}}}}}]"#
        )
    };
    for (length, cost, settled) in [(9, 0, Some(15)), (60_000, 0, None), (60_000, 12, Some(2))] {
        let location: &str = format!("/login?{}", "a".repeat(length)).leak();
        let mut worker = admitted(&cases(cost));
        see(&mut worker, 1, Headers(vec![(":status", "302"), ("location", location)].leak()));
        see(&mut worker, 1, End);
        let wanted: Vec<_> = settled.iter().map(|units| charge("p0|ann", *units)).collect();
        assert_eq!(worker.drain(), wanted, "{length}, {cost}");
    }
}

/// A stream may last for hours. A final cost is settled at once, and only once.
#[test]
fn a_cost_is_settled_as_soon_as_it_is_known() {
    let watched = |size, trailers| Watched { size, trailers, ..Watched::default() };
    #[rustfmt::skip]
    let rows: [(&str, Seen, Watched, Option<i64>); 7] = [
        (r#"[{"cost": {"constant": 1}}]"#, OK, watched(false, false), Some(-9)),
        (r#"[{"cost": {"header": {"name": "x-used"}}}]"#, Headers(&[(":status", "200"), ("x-used", "12")]), watched(false, false), Some(2)),
        (r#"[{"when": {"header": {"name": "location"}}, "cost": {"constant": 1}}]"#, Headers(&[(":status", "302"), ("location", "/")]), watched(false, false), Some(-9)),
        (r#"[{"cost": {"response_bytes": {}}}]"#, OK, watched(true, false), None),
        (r#"[{"cost": {"trailer": {"name": "x-used"}}}]"#, OK, watched(false, true), None),
        (r#"[{"when": {"grpc_status": [0]}, "cost": {"constant": 1}}]"#, OK, watched(false, true), None),
        (r#"[{"when": {"grpc_status": [0]}, "cost": {"constant": 1}}]"#, Headers(&[(":status", "200"), ("grpc-status", "0")]), watched(false, false), Some(-9)),
    ];
    for (cases, headers, wanted, settled) in rows {
        let mut worker = admitted(cases);
        assert_eq!(see(&mut worker, 1, headers), wanted, "{cases}");
        let tasks: Vec<_> = settled.iter().map(|units| charge("p0|ann", *units)).collect();
        assert_eq!(worker.drain(), tasks, "{cases}: before the end");
        if settled.is_some() {
            see(&mut worker, 1, headers);
            worker.close(1);
            assert_eq!(worker.drain(), [], "{cases}: once");
        }
    }
}

#[test]
fn a_body_is_watched_only_if_it_is_needed_and_can_be_read() {
    let cases = r#"[{"when": {"status": ["5xx"]}, "cost": {"constant": 0}}, {"cost": {"body_json": {"sum": [{"paths": ["n"]}]}}}]"#;
    let content = Watched { content: true, ..Watched::default() };
    let unreadable = Watched { unreadable: true, ..Watched::default() };
    let rows: [(Seen, Watched, u64); 4] = [
        (Headers(&[(":status", "200"), ("content-type", "application/json")]), content, 0),
        (Headers(&[(":status", "503"), ("content-type", "application/json")]), Watched::default(), 0),
        (Headers(&[(":status", "200"), ("content-type", "text/html")]), unreadable, 1),
        (
            Headers(&[(":status", "200"), ("content-encoding", "br"), ("content-type", "application/json")]),
            unreadable,
            1,
        ),
    ];
    for (headers, wanted, unreadable) in rows {
        let mut worker = admitted(cases);
        assert_eq!(see(&mut worker, 1, headers), wanted, "{headers:?}");
        assert_eq!(worker.engine.counters().bodies_unreadable, unreadable, "{headers:?}");
    }
}

/// Nothing is read, kept or counted for a case after one that holds in any event.
#[test]
fn a_case_that_cannot_hold_any_more_needs_nothing() {
    let body = r#"{"cost": {"body_json": {"sum": [{"paths": ["n"]}]}}}"#;
    let cases = format!(r#"[{{"when": {{"status": [200]}}, "cost": {{"response_bytes": {{}}}}}}, {body}]"#);
    let size = Watched { size: true, ..Watched::default() };
    for kind in ["application/json", "text/html"] {
        let mut worker = admitted(&cases);
        let fields = |name: &str| match name {
            ":status" => Some(b"200".to_vec()),
            "content-type" => Some(kind.into()),
            _ => None,
        };
        let now = worker.now;
        assert_eq!(worker.engine.response_headers(1, &fields, now), size, "{kind}");
        assert_eq!(worker.engine.counters().bodies_unreadable, 0, "{kind}");
        see(&mut worker, 1, Body("{\"n\": 999}"));
        see(&mut worker, 1, End);
        assert_eq!(worker.drain(), [], "{kind}: ten bytes, as reserved");
    }
}

/// One request is asked about and one is served from the lease: each is settled from the same grant.
#[test]
fn what_a_lease_has_granted_is_settled_too() {
    let lease = r#"{"max": 4, "min": 2, "duration": "60s"}"#;
    let cases = r#"[{"cost": {"header": {"name": "x-used"}}}]"#;
    let mut worker = Worker::new(ALLOW, [format!(r#""settle": {cases}, {}"#, leased(lease, WINDOW))]);
    assert_eq!(worker.arrive_costing(10, 1, &["ann"]), None);
    let batch = worker.batch();
    assert_eq!(batch.tasks()[0].requests, 3, "two in advance");
    assert_eq!(worker.reply(&batch, [granted(3)]), [(1, true)]);
    assert_eq!(worker.arrive_costing(10, 2, &["ann"]), Some(true), "from the lease");
    for (stream, used) in [(1, "4"), (2, "13")] {
        let fields = |name: &str| match name {
            ":status" => Some(b"200".to_vec()),
            "x-used" => Some(used.into()),
            _ => None,
        };
        let now = worker.now;
        worker.engine.response_headers(stream, &fields, now);
        worker.close(stream);
    }
    assert_eq!(worker.drain(), [refund("p0|ann", 6), charge("p0|ann", 3)]);
}

#[test]
fn only_what_was_charged_is_settled() {
    let cases = r#"[{"cost": {"constant": 2}}]"#;
    // A policy that denies: the other's reservation goes back whole, and is not settled.
    let mut worker = Worker::new(ALLOW, [settled(cases, BUCKET), policy(BUCKET)]);
    assert_eq!(worker.arrive_costing(10, 1, &["ann", "ann"]), None);
    let batch = worker.batch();
    assert_eq!(worker.reply(&batch, [granted(1), denied(DAY)]), [(1, false)]);
    see(&mut worker, 1, Headers(&[(":status", "429")]));
    worker.close(1);
    assert_eq!(worker.drain(), [refund("p0|ann", 10)]);

    // The store does not answer: nothing was charged.
    let mut worker = Worker::new(ALLOW, [settled(cases, BUCKET)]);
    assert_eq!(worker.arrive_costing(10, 1, &["ann"]), None);
    let late = worker.batch();
    worker.idle(ms(60));
    assert_eq!(worker.released(), [(1, true)]);
    see(&mut worker, 1, OK);
    assert_eq!(worker.drain(), []);
    // The grant comes late, while the stream is open: it is settled at the end.
    assert_eq!(worker.reply(&late, [granted(1)]), []);
    worker.close(1);
    assert_eq!(worker.drain(), [refund("p0|ann", 8)]);

    // The client leaves while the request waits: what the store grants stays charged.
    let mut worker = Worker::new(ALLOW, [settled(cases, BUCKET)]);
    assert_eq!(worker.arrive_costing(10, 1, &["ann"]), None);
    let batch = worker.batch();
    worker.close(1);
    assert_eq!(worker.reply(&batch, [granted(1)]), []);
    assert_eq!(worker.drain(), []);
}

/// `on_failure` has admitted a request, and its grant comes when the response is there, or when the stream has ended. The true cost of the
/// request is charged all the same. A policy that does not settle keeps what the request has reserved.
#[test]
fn a_grant_that_comes_after_the_response_is_settled() {
    let cases = r#"[{"cost": {"header": {"name": "x-used"}}}]"#;
    const USED: Seen = Headers(&[(":status", "200"), ("x-used", "2")]);
    for (store, ends_first) in [(ALLOW, false), (ALLOW, true), (LOCAL, false), (LOCAL, true)] {
        let row = format!("{store}, the stream ends first: {ends_first}");
        let late = || {
            let mut worker = Worker::new(store, [settled(cases, BUCKET), policy(BUCKET)]);
            assert_eq!(worker.arrive_costing(10, 1, &["ann", "all"]), None);
            let late = worker.batch();
            worker.idle(ms(60));
            assert_eq!(worker.released(), [(1, true)], "{row}");
            see(&mut worker, 1, USED);
            (worker, late)
        };
        let (mut worker, batch) = late();
        if ends_first {
            worker.close(1);
        }
        assert_eq!(worker.reply(&batch, batch.all_granted()), [], "{row}");
        if !ends_first {
            worker.close(1);
        }
        assert_eq!(worker.drain(), [refund("p0|ann", 8)], "{row}");
        assert_eq!((worker.engine.request_count(), worker.engine.counters().settled), (0, 1), "{row}");

        // No grant comes.
        let (mut worker, batch) = late();
        worker.close(1);
        worker.fail(&batch);
        assert_eq!((worker.drain(), worker.engine.request_count()), (vec![], 0), "{row}");
    }
}

#[test]
fn charges_of_one_subject_share_a_command() {
    let mut worker = Worker::new(ALLOW, [settled(r#"[{"cost": {"header": {"name": "x-used"}}}]"#, BUCKET)]);
    for (stream, cost) in [(1, 1), (2, 2), (3, 1)] {
        assert_eq!(worker.arrive_costing(cost, stream, &["ann"]), None);
    }
    let batch = worker.batch();
    assert_eq!(worker.reply(&batch, [granted(2), granted(1)]).len(), 3);
    for stream in 1..=3 {
        see(&mut worker, stream, Headers(&[(":status", "200"), ("x-used", "5")]));
    }
    assert_eq!(worker.drain(), [charge("p0|ann", 4 + 3 + 4)]);
}

#[test]
fn settlements_that_the_store_may_not_have_made_are_counted() {
    let mut worker = admitted(r#"[{"cost": {"constant": 2}}]"#);
    see(&mut worker, 1, OK);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [refund("p0|ann", 8)]);
    worker.fail(&batch);
    assert_eq!(worker.engine.counters().settlements_lost, 1);
}

/// Envoy has no connection to Redis, and finds none: nothing of a batch was sent.
#[test]
fn settlements_that_were_not_sent_wait_for_the_next_batch() {
    let fates: [(&str, fn(&mut Worker, &Batch)); 3] = [
        ("no connection could be opened", |worker, batch| {
            worker.engine.connecting(batch.id);
            worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
        }),
        ("no connection came in time", |worker, batch| {
            worker.engine.connecting(batch.id);
            worker.idle(secs(1));
            assert_eq!(worker.engine.next_abandoned(), Some(batch.id));
        }),
        ("the host could not send", |worker, batch| {
            worker.engine.failed(batch.id, &StoreFailure::NotSent, worker.now);
        }),
    ];
    for (fate, lose) in fates {
        let mut worker = Worker::new(ALLOW, [policy(PLACES)]);
        worker.all_wait([1], "ann");
        worker.all_wait([2, 3], "bob");
        worker.answer([granted(1).permit(7), granted(2).permit(8)]);
        (1..=3).for_each(|stream| worker.close(stream));
        worker.all_wait([4], "cid");
        let batch = worker.batch();
        let releases = batch.tasks()[1..].to_vec();
        assert_eq!(releases.len(), 2, "{fate}");
        lose(&mut worker, &batch);
        assert_eq!(worker.released(), [(4, true)], "{fate}: requests do not wait for another batch");
        worker.idle(secs(1));
        assert_eq!(worker.drain(), releases, "{fate}: in their order");
        assert_eq!(worker.engine.counters().settlements_lost, 0, "{fate}");
    }
}

/// If no answer comes, it is unknown if the store has run a probe, so a probe carries as little as possible.
#[test]
fn a_probe_carries_one_settlement_at_most() {
    let mut worker = Worker::new(ALLOW, [policy(PLACES)]);
    let subjects = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (stream, subject) in (0..).zip(subjects) {
        worker.all_wait([stream], subject);
    }
    worker.answer(subjects.map(|_| granted(1).permit(7)));
    while worker.engine.outage(worker.now).is_none() {
        worker.arrive(100, &["x"]);
        worker.lose();
        worker.close(100);
    }
    (0..8).for_each(|stream| worker.close(stream));
    let mut lost = 0;
    for _ in 0..4 {
        worker.idle(secs(1));
        let probe = worker.batch();
        assert_eq!(probe.tasks().len(), 1);
        worker.fail(&probe);
        lost += 1;
        assert_eq!(worker.engine.counters().settlements_lost, lost);
    }
    worker.idle(secs(1));
    assert_eq!(worker.drain().len(), 4, "the others are settled when the store answers again");
}

#[test]
fn a_local_share_is_settled_too() {
    let store = r#"{"deadline": "50ms", "on_failure": "local", "workers": 1}"#;
    let window = r#"{"name": "l", "algorithm": "fixed_window", "limit": 20, "window": "1d"}"#;
    let mut worker = Worker::new(store, [settled(r#"[{"cost": {"constant": 3}}]"#, window)]);
    worker.all_wait([1], "else");
    while worker.engine.outage(worker.now).map(|(_, outage)| outage).is_none() {
        worker.lose();
        worker.arrive(1, &["else"]);
    }
    let mut admitted = 0;
    for stream in 2..20 {
        if worker.arrive_costing(10, stream, &["ann"]) == Some(true) {
            admitted += 1;
            see(&mut worker, stream, OK);
        }
        worker.close(stream);
    }
    // Each has cost 3 of 20, and needs 10 to begin with: after four, 8 are left.
    assert_eq!(admitted, 4);
}

// --- The law ----------------------------------------------------------------------------------------------------------

/// One request of a history: what it reserves of each of two policies, what it has cost, and how it ends.
#[derive(Clone, Debug)]
struct Job {
    subject: usize,
    reserved: u64,
    used: &'static [(&'static str, &'static str)],
    leaves: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(Job),
    Respond(usize),
    Close(usize),
    Pass(u64),
}

const USED: [(u64, &[(&str, &str)]); 5] = [
    (0, &[(":status", "200"), ("x-used", "0")]),
    (1, &[(":status", "200"), ("x-used", "1")]),
    (7, &[(":status", "200"), ("x-used", "7")]),
    (40, &[(":status", "200"), ("x-used", "40")]),
    (5, &[(":status", "500")]),
];

fn step() -> impl Strategy<Value = Step> {
    let job = (0..3usize, 0..12u64, 0..USED.len(), prop::bool::weighted(0.2));
    let job = job.prop_map(|(subject, reserved, used, leaves)| Job {
        subject,
        reserved,
        used: USED[used].1,
        leaves,
    });
    prop_oneof![
        5 => job.prop_map(Step::Arrive),
        3 => any::<usize>().prop_map(Step::Respond),
        3 => any::<usize>().prop_map(Step::Close),
        3 => (100..15_000u64).prop_map(Step::Pass),
    ]
}

const LIMIT: u64 = 1_000_000;

/// A worker with two policies, and a store that does what it is asked.
struct History {
    world: World,
    /// By the number of the request.
    jobs: BTreeMap<StreamId, Job>,
    /// The units that each subject must have spent in the end.
    spent: BTreeMap<String, u64>,
}

impl History {
    fn new() -> Self {
        let header = r#"[{"cost": {"header": {"name": "x-used", "on_missing": {"constant": 5}}}}]"#;
        let status = r#"[{"when": {"status": ["5xx"]}, "cost": {"constant": 0}}]"#;
        let window = format!(
            r#"{{"name": "l", "algorithm": "fixed_window", "limit": {LIMIT}, "window": "366d", "align": "first"}}"#
        );
        let policies = [settled(header, &window), settled(status, &window)];
        let mut world = World::new(&[configuration(r#"{"deadline": "10s"}"#, policies)], 1, 1);
        world.stays_open = true;
        Self { world, jobs: BTreeMap::new(), spent: BTreeMap::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(job) => {
                let check =
                    |policy| check_of(policy, format!("{{p{policy}|s{}}}", job.subject), job.reserved);
                let stream = self.world.arrive(0, [0, 1].map(check).into());
                self.jobs.insert(stream, job);
            }
            Step::Respond(which) => drop(self.respond(which)),
            Step::Close(which) => self.close(which),
            Step::Pass(micros) => self.world.run(micros),
        }
    }

    /// One of the admitted requests has its response, unless its client leaves without.
    fn respond(&mut self, which: usize) -> Option<StreamId> {
        let ledger = &self.world.ledger;
        let admitted: Vec<_> =
            ledger.open.iter().filter(|stream| ledger.requests[stream].is_admitted()).copied().collect();
        let stream = *admitted.get(which % admitted.len().max(1))?;
        let Job { used, leaves, .. } = self.jobs[&stream];
        if !leaves {
            see(self.world.worker(0), stream, Headers(used));
        }
        Some(stream)
    }

    /// One of the admitted requests has its response, and ends.
    fn close(&mut self, which: usize) {
        let Some(stream) = self.respond(which) else { return };
        let Job { subject, reserved, used, leaves } = self.jobs[&stream];
        let said = USED.iter().find(|(_, fields)| *fields == used).expect("a response").0;
        let failed = used[0].1 == "500";
        let first = if leaves { reserved.max(5) } else { said };
        let second = if failed && !leaves { 0 } else { reserved };
        *self.spent.entry(format!("p0|s{subject}")).or_default() += first;
        *self.spent.entry(format!("p1|s{subject}")).or_default() += second;
        self.world.close(stream);
    }

    fn end(mut self) {
        while !self.world.ledger.open.is_empty() {
            self.world.run(20_000);
            self.close(0);
        }
        self.world.run(1_000_000);
        assert!(self.world.ledger.requests.values().all(|request| request.is_admitted()));
        for (tag, spent) in &self.spent {
            assert_eq!(self.world.ledger.spent(tag), spent.cast_signed(), "{tag}");
            assert_eq!(LIMIT.cast_signed() - self.world.left(0, tag), spent.cast_signed(), "{tag}");
        }
        let engine = self.world.engine(0);
        assert_eq!((engine.counters().settlements_lost, engine.request_count()), (0, 0));
    }
}

proptest! {
    #![proptest_config(crate::tried::tried(300))]
    /// Whatever the order of arrivals, batches, replies, responses and ends: each subject has spent what its requests have cost.
    #[test]
    fn what_is_spent_is_what_requests_have_cost(
        steps in prop::collection::vec(step(), 1..100),
        trip in 100..15_000u64,
        seed in any::<u64>(),
    ) {
        let mut history = History::new();
        history.world.seed(seed);
        history.world.near = Network { trip, jitter: trip, ..history.world.near };
        steps.into_iter().for_each(|step| history.step(step));
        history.end();
    }
}

#[test]
fn a_store_that_fails_costs_the_reservation_at_most() {
    let mut worker = admitted(r#"[{"cost": {"constant": 500}}]"#);
    see(&mut worker, 1, OK);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [charge("p0|ann", 490)]);
    let now = worker.now;
    worker.engine.failed(batch.id, &StoreFailure::Refused, now);
    worker.close(1);
    assert_eq!(worker.drain(), [], "a charge is not sent twice");
}

/// Requests of ann that are granted this permit.
fn hold(worker: &mut Worker, streams: std::ops::RangeInclusive<StreamId>, permit: i64) {
    let count = i64::from(streams.end() - streams.start() + 1);
    worker.all_wait(streams, "ann");
    assert_eq!(worker.answer([granted(count).permit(permit)]).len(), usize::try_from(count).unwrap());
}

#[test]
fn a_permit_is_renewed_for_as_long_as_its_request_runs() {
    let mut worker = Worker::new(DENY, [policy(PLACES)]);
    hold(&mut worker, 1..=2, 7);
    worker.idle(ms(19_900));
    assert_eq!(worker.drain(), [], "a request that ends sooner costs nothing more");
    worker.idle(ms(200));
    for period in 0..500 {
        let permit = if period == 0 { 7 } else { 1_000 + period };
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [renew("p0|ann", permit), renew("p0|ann", permit)], "period {period}");
        let replies = batch.each(renewed(1_001 + period));
        assert_eq!(worker.reply(&batch, replies), []);
        if period == 250 {
            worker.close(1);
            assert_eq!(worker.drain(), [release("p0|ann", 1_251)]);
            hold(&mut worker, 3..=3, 1_251);
        }
        worker.now = worker.now.plus(secs(20));
        worker.engine.tick(worker.now);
        worker.idle(ms(10));
    }
    worker.close(2);
    worker.close(3);
    assert_eq!((worker.engine.request_count(), worker.engine.counters().settlements_lost), (0, 0));
}

/// The end of a permit whose renewal is on its way: name, true if the request ends before the renewal does, the reply to the renewal, and the
/// commands that the worker sends after the request has ended.
type Renewal = (&'static str, bool, Option<Reply>, &'static [(Verb, i64)]);

#[test]
fn a_permit_whose_renewal_is_on_its_way_is_released_once() {
    let rows: [Renewal; 6] = [
        ("answered, and ended", false, Some(renewed(9)), &[(Verb::Release, 9)]),
        ("ended, and answered", true, Some(renewed(9)), &[(Verb::Release, 9)]),
        ("no answer, and ended", false, None, &[(Verb::Release, 7)]),
        // Which permit it has is not known: it ends with its ttl.
        ("ended, and no answer", true, None, &[]),
        ("refused, and ended", false, Some(error("OOM command not allowed")), &[(Verb::Release, 7)]),
        ("ended, and refused", true, Some(error("OOM command not allowed")), &[]),
    ];
    for (row, ends_first, reply, wanted) in rows {
        let mut worker = Worker::new(DENY, [policy(PLACES)]);
        hold(&mut worker, 1..=1, 7);
        worker.idle(secs(20));
        worker.idle(ms(10));
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [renew("p0|ann", 7)], "{row}");
        if ends_first {
            worker.close(1);
            assert_eq!(worker.drain(), [], "{row}");
        }
        match reply {
            Some(reply) => assert_eq!(worker.reply(&batch, [reply]), [], "{row}"),
            None => assert_eq!(worker.fail(&batch), [], "{row}"),
        }
        if !ends_first {
            worker.close(1);
        }
        let found: Vec<_> = worker.drain().into_iter().map(|task| (task.verb, task.number)).collect();
        assert_eq!(found, wanted, "{row}");
        assert_eq!(
            (worker.engine.request_count(), worker.engine.counters().settlements_lost),
            (0, 0),
            "{row}"
        );
    }
}

#[test]
fn a_renewal_that_got_no_answer_is_sent_again_a_third_of_the_ttl_later() {
    let mut worker = Worker::new(DENY, [policy(PLACES), policy(&PLACES.replace("60s", "6s"))]);
    assert_eq!(worker.arrive(1, &["ann", "ann"]), None);
    let batch = worker.batch();
    let replies = [granted(1).permit(70), granted(1).permit(6)];
    assert_eq!(worker.reply(&batch, replies).len(), 1);
    let mut found = Vec::new();
    for second in 1..=40 {
        worker.idle(secs(1));
        while let Some(batch) = worker.next_batch() {
            found.extend(batch.tasks().into_iter().map(|task| (second, task.tag, task.number)));
            worker.fail(&batch);
        }
    }
    let seconds = |tag: &str, permit: i64| {
        let of = found.iter().filter(|(_, other, number)| other == tag && *number == permit);
        of.map(|(second, ..)| *second).collect::<Vec<_>>()
    };
    assert_eq!(seconds("p0|ann", 70), [20, 40]);
    // A batch that failed a moment before may delay one.
    let short = seconds("p1|ann", 6);
    assert!(
        (19..=20).contains(&short.len()) && short.windows(2).all(|pair| pair[1] - pair[0] <= 3),
        "{short:?}"
    );
}

/// More than leave together, and more than may wait: each is renewed in time, and no release is lost.
#[test]
fn the_permits_of_very_many_requests_are_renewed() {
    const REQUESTS: u32 = 20_000;
    let places = PLACES.replace(r#""limit": 5"#, r#""limit": 1000000"#);
    let mut worker = Worker::new(DENY, [policy(&places)]);
    for half in [1..=REQUESTS / 2, REQUESTS / 2 + 1..=REQUESTS] {
        for stream in half {
            assert_eq!(worker.arrive(stream, &["ann"]), None);
        }
        while let Some(batch) = worker.next_batch() {
            let replies: Vec<_> = batch.tasks().iter().map(|task| granted(task.requests).permit(7)).collect();
            worker.reply(&batch, replies);
        }
    }
    for third in 1..=3 {
        let (end, mut count) = (worker.now.plus(secs(20)), 0);
        while worker.now < end {
            worker.now = worker.now.plus(ms(50));
            worker.engine.tick(worker.now);
            while let Some(batch) = worker.next_batch() {
                count += batch.tasks().iter().filter(|task| task.verb == Verb::Renew).count();
                let replies = batch.each(renewed(7));
                worker.reply(&batch, replies);
            }
        }
        // The last of a third may follow at the beginning of the next.
        assert!(third == 1 || count.abs_diff(REQUESTS as usize) <= 3_000, "third {third}: {count}");
    }
    (1..=REQUESTS).for_each(|stream| worker.close(stream));
    let released: i64 =
        worker.drain().iter().filter(|task| task.verb == Verb::Release).map(|task| task.requests).sum();
    assert_eq!(released, i64::from(REQUESTS));
    assert_eq!(worker.engine.counters().settlements_lost, 0);
}

/// While a request waits for a permit of one policy, the worker renews its permit of another policy.
#[test]
fn a_permit_is_renewed_while_its_request_is_queued() {
    for (row, is_admitted) in [("it gets its place", true), ("its client leaves", false)] {
        let places = PLACES.replace("60s", "6s");
        let mut worker = Worker::new(DENY, [policy(&places), policy(&queued(PLACES, "20s", 100))]);
        assert_eq!(worker.arrive(1, &["ann", "room"]), None);
        let full = || granted(0).remaining(0).wait(secs(30));
        assert_eq!(worker.answer([granted(1).permit(7), full()]), [], "{row}");
        let (mut renewals, mut permit) = (Vec::new(), 7);
        for _ in 0..700 {
            worker.idle(ms(10));
            while let Some(batch) = worker.next_batch() {
                let replies = batch.tasks().into_iter().map(|task| match task.verb {
                    Verb::Renew => {
                        renewals.push(task.number);
                        permit += 1;
                        renewed(permit)
                    }
                    _ => full(),
                });
                let replies: Vec<_> = replies.collect();
                assert_eq!(worker.reply(&batch, replies), [], "{row}");
            }
        }
        assert_eq!(renewals, [7, 8, 9], "{row}");
        if is_admitted {
            let batch = loop {
                worker.idle(ms(20));
                if let Some(batch) = worker.next_batch() {
                    break batch;
                }
            };
            assert_eq!(worker.reply(&batch, [granted(1).permit(99)]), [(1, true)], "{row}");
        }
        worker.close(1);
        let mut released: Vec<_> = worker.drain().into_iter().map(|task| (task.verb, task.number)).collect();
        released.sort_by_key(|(_, number)| *number);
        let wanted = [(Verb::Release, 10), (Verb::Release, 99)];
        assert_eq!(released, wanted[..1 + usize::from(is_admitted)], "{row}");
    }
}

/// Without the store, a worker's own permits are renewed, too.
#[test]
fn permits_of_a_worker_alone_hold_for_as_long_as_their_requests_run() {
    let mut worker = Worker::new(LOCAL, [policy(PLACES)]);
    worker.all_wait(1..=5, "ann");
    assert_eq!(worker.lose().iter().filter(|(_, admitted)| *admitted).count(), 5);
    for second in 0..200 {
        worker.idle(secs(1));
        while let Some(batch) = worker.next_batch() {
            worker.fail(&batch);
        }
        let stream = 10 + second;
        let decided = worker.arrive(stream, &["ann"]);
        let admitted = decided.or_else(|| worker.lose().first().map(|(_, admitted)| *admitted));
        assert_eq!(admitted, Some(false), "second {second}");
    }
}
