// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for their own bodies.

use std::net::{IpAddr, Ipv4Addr};

use weir::body::Ids;
use weir::config::BeforeBody;
use weir::config::UnaskedRuling;
use weir::engine::{Action, StreamId, Submitted};
use weir::policy::{Check, Mode};
use weir::request::client_ip::Network;

use crate::worker::*;

/// A body may take a second.
fn by_user() -> Worker {
    let policy = format!(
        r#"{{"name": "p0", "subject": [{{"body_json": {{"path": "user"}}}}], "limits": [{BUCKET}]}}"#
    );
    Worker::configured(&format!(
        r#"{{"request_body": {{"timeout": "1s"}}, "store": {ALLOW}, "policies": [{policy}]}}"#
    ))
}

/// A request waits for its body. It comes from this client, and these checks need no body.
fn awaits(worker: &mut Worker, stream: StreamId, client: u32, checks: &[Check]) -> bool {
    let client = Some(Network::around(IpAddr::V4(Ipv4Addr::from(client)), 64));
    let before =
        BeforeBody { client, checks: checks.iter().cloned().collect(), waits_for: None, is_enough: false };
    worker.engine.await_body(stream, before, worker.now)
}

/// The same, of a client of its own.
fn awaits_alone(worker: &mut Worker, stream: StreamId) -> bool {
    awaits(worker, stream, stream, &[])
}

#[test]
fn a_body_that_is_late_rejects_its_request() {
    let mut worker = by_user();
    assert!(awaits_alone(&mut worker, 1));
    worker.idle(ms(300));
    assert!(awaits_alone(&mut worker, 2));
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(700))), "the host has to tick then");
    worker.idle(ms(699));
    assert_eq!(worker.released(), []);
    assert!(worker.engine.is_paused(1) && worker.engine.awaits_body(1));
    worker.idle(ms(1));
    let release = worker.engine.next_release().expect("it is late");
    let Action::Reject(rejection) = release.action else { panic!("it is rejected") };
    assert_eq!((release.stream, rejection.status, rejection.grpc.code), (1, 408, 4));
    assert!(!worker.engine.awaits_body(1));
    worker.close(1);
    worker.idle(ms(300));
    assert_eq!(worker.released(), [(2, false)]);
    worker.close(2);
    let counters = worker.engine.counters();
    assert_eq!(
        (counters.request_bodies_late, counters.rejected, counters.request_bodies_unreadable),
        (2, 2, 0)
    );
    assert_eq!((worker.engine.request_count(), worker.next_tick()), (0, None), "nothing is left");
}

#[test]
fn a_body_that_comes_is_no_longer_waited_for() {
    let mut worker = by_user();
    assert!(awaits_alone(&mut worker, 1));
    worker.engine.body_came(1, true);
    worker.all_wait([1], "ann");
    assert!(!worker.engine.awaits_body(1) && worker.engine.is_paused(1));
    assert_eq!(worker.answer([granted(1)]), [(1, true)]);
    assert!(!worker.engine.is_paused(1));
    worker.idle(secs(2));
    assert_eq!(worker.released(), []);
    let counters = worker.engine.counters();
    assert_eq!(
        (counters.admitted, counters.request_bodies_late, counters.request_bodies_unreadable),
        (1, 0, 1)
    );
}

#[test]
fn a_body_that_its_headers_rule_out_is_counted() {
    let mut worker = by_user();
    worker.engine.note(&vec![(None, UnaskedRuling::UnreadableBody)]);
    let counters = worker.engine.counters();
    assert_eq!((counters.request_bodies_unreadable, counters.denied_by_list), (1, 0));
}

/// A request whose headers are let through while its data arrives must not be let through twice.
#[test]
fn a_request_is_paused_until_its_release_is_taken() {
    let mut worker = by_user();
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    worker.engine.replied(batch.id, &bytes([granted(1)]), worker.now);
    assert!(worker.engine.is_paused(1));
    assert!(worker.engine.next_release().is_some());
    assert!(!worker.engine.is_paused(1));
}

/// A ban in shadow closes nothing: the policies that are enforced still decide.
#[test]
fn a_ban_in_shadow_decides_no_request_without_its_body() {
    let banning = policy(&format!(
        r#"{BUCKET}], "mode": "shadow", "ban": {{"after": 1, "window": "1m", "duration": "1h"}}, "costs": ["#
    ));
    let mut worker = Worker::new(ALLOW, [banning, policy(BUCKET)]);
    let ban = Check { ban_only: true, mode: Mode::Shadow, ..check_of(0, "{p0|ann}", 0) };
    let own = check_of(1, "{p1|ann}", 1);
    let checks = [ban.clone(), own.clone()].into_iter().collect();
    assert!(matches!(worker.engine.submit(1, checks, worker.now), Submitted::Wait));
    let batch = worker.batch();
    let banned = granted(0).and(&[micros(secs(3_600))]);
    worker.engine.replied(batch.id, &bytes([banned, granted(1)]), worker.now);
    assert_eq!(worker.released(), [(1, true)], "the ban is in shadow");
    assert!(awaits(&mut worker, 2, 2, &[ban, own]));
    assert_eq!(worker.released(), []);
    assert!(worker.engine.awaits_body(2), "its own policy was not asked");
}

/// Envoy keeps an ended stream until the next turn of its event loop: a host could still resume or answer it.
#[test]
fn a_request_that_has_ended_is_not_released() {
    let mut worker = by_user();
    worker.all_wait([1, 2, 3, 4], "ann");
    let batch = worker.batch();
    worker.engine.replied(batch.id, &bytes([granted(2)]), worker.now);
    worker.close(1);
    worker.close(3);
    let left: Vec<_> = worker.released().into_iter().map(|(stream, _)| stream).collect();
    assert_eq!(left, [2, 4]);
    assert!(awaits_alone(&mut worker, 5));
    worker.idle(secs(1));
    worker.close(5);
    assert_eq!(worker.released(), [], "the body was late");
}

#[test]
fn a_client_that_leaves_is_not_waited_for() {
    let mut worker = by_user();
    assert!(awaits_alone(&mut worker, 1));
    worker.close(1);
    assert_eq!((worker.engine.request_count(), worker.next_tick()), (0, None));
    // The host may use the number again.
    assert!(awaits_alone(&mut worker, 1));
    worker.idle(ms(999));
    assert_eq!(worker.released(), []);
}

#[test]
fn so_many_wait_for_their_bodies_and_no_more() {
    let mut worker = by_user();
    assert!((0..4_096).all(|stream| awaits_alone(&mut worker, stream)));
    assert!(!awaits_alone(&mut worker, 4_096));
    assert!(!worker.engine.is_paused(4_096));
    worker.close(7);
    assert!(awaits_alone(&mut worker, 4_096));
    assert!(worker.waits_alone(5_000), "others do not wait for them");
}

/// A place is left for others, whatever one client or many do.
#[test]
fn one_client_gets_a_third_of_the_places_and_many_share_them() {
    for (clients, each) in [(1, 1_366), (2, 1_024), (30, 128), (600, 7), (4_000, 1)] {
        let mut worker = by_user();
        let mut streams = 0..;
        let mut got = vec![0; clients as usize];
        for _ in 0..2_000_u32.min(400_000 / clients) {
            for client in 0..clients {
                let stream = streams.next().unwrap();
                got[client as usize] += usize::from(awaits(&mut worker, stream, client, &[]));
            }
        }
        let (least, most) = (*got.iter().min().unwrap(), *got.iter().max().unwrap());
        assert!(
            (each..=each + 1).contains(&most) && least + 1 >= most,
            "{clients} clients: {least} to {most}"
        );
        let counters = worker.engine.counters();
        assert!(counters.request_bodies_over_share > 0 && counters.request_bodies_no_place == 0);
        assert!(awaits(&mut worker, 3_000_000, 1_000_000, &[]), "{clients} clients: one more gets a place");
    }
}

/// Clients without an address are one.
#[test]
fn places_come_back_to_a_client_when_its_requests_end() {
    let mut worker = by_user();
    let unknown = |worker: &mut Worker, stream| {
        worker.engine.await_body(
            stream,
            BeforeBody { client: None, checks: [].into_iter().collect(), waits_for: None, is_enough: false },
            worker.now,
        )
    };
    let got = (0..4_000).filter(|stream| unknown(&mut worker, *stream)).count();
    assert_eq!((got, unknown(&mut worker, 5_000)), (1_366, false));
    worker.close(7);
    assert!(unknown(&mut worker, 5_001) && !unknown(&mut worker, 5_002));
    worker.engine.body_came(8, false);
    assert!(unknown(&mut worker, 5_003) && !unknown(&mut worker, 5_004));
    worker.idle(secs(1));
    assert_eq!(worker.released().len(), 1_366, "all are late");
    assert!(unknown(&mut worker, 5_005));
    assert_eq!(worker.engine.counters().request_bodies_over_share, 2_634 + 3);
}

/// Clients whose bodies never come, each with an address of its own, and one whose bodies come after 100 ms.
#[test]
fn a_flood_without_bodies_takes_no_place_from_others() {
    for (each_ms, addresses) in [(1, 1), (1, 40), (1, u32::MAX), (6, u32::MAX)] {
        let policy = format!(
            r#"{{"name": "p0", "subject": [{{"body_json": {{"path": "user"}}}}], "limits": [{BUCKET}]}}"#
        );
        let mut worker = Worker::configured(&format!(
            r#"{{"request_body": {{"timeout": "10s"}}, "store": {ALLOW}, "policies": [{policy}]}}"#
        ));
        let (mut hostile, mut honest) = (1_000_000_u32.., 0_u32..);
        let mut sent = std::collections::VecDeque::new();
        for passed in 0..25_000_u32 {
            worker.idle(ms(1));
            for stream in hostile.by_ref().take(each_ms) {
                awaits(&mut worker, stream, 500_000 + stream % addresses, &[]);
            }
            if passed % 20 == 0 {
                let stream = honest.next().unwrap();
                assert!(awaits(&mut worker, stream, 7, &[]), "{each_ms} from {addresses}, after {passed} ms");
                sent.push_back((worker.now.plus(ms(100)), stream));
            }
            while sent.front().is_some_and(|(due, _)| *due <= worker.now) {
                let (_, stream) = sent.pop_front().unwrap();
                assert!(worker.engine.awaits_body(stream), "{each_ms} from {addresses}, after {passed} ms");
                worker.engine.body_came(stream, false);
            }
            for (stream, _) in worker.released() {
                worker.close(stream);
            }
        }
        let counters = worker.engine.counters();
        assert_eq!(counters.request_bodies_hurried > 0, addresses > 1, "{counters:?}");
        assert!(counters.request_bodies_hurried <= counters.request_bodies_late);
    }
}

/// A policy that needs the body, one that does not, and a check of that.
fn with_another(limits: &str, more: &str) -> (Worker, Check) {
    let by_user = format!(
        r#"{{"name": "p0", "subject": [{{"body_json": {{"path": "user"}}}}], "limits": [{BUCKET}]}}"#
    );
    let other = format!(r#"{{"name": "p1", {more} {}}}"#, policy(limits));
    let config = format!(
        r#"{{"request_body": {{"timeout": "1s"}}, "store": {DENY}, "policies": [{by_user}, {other}]}}"#
    );
    (Worker::configured(&config), check_of(1, "{p1|ann}", 3))
}

#[test]
fn a_request_that_is_denied_already_gets_no_place() {
    let (mut worker, check) = with_another(BUCKET, "");
    worker.engine.submit(1, [check.clone()].into_iter().collect(), worker.now);
    assert_eq!(worker.answer([denied(secs(30))]), [(1, false)]);
    (10..5_000).for_each(|stream| assert!(awaits_alone(&mut worker, stream) == (stream < 10 + 4_096)));
    // Also when all places are taken.
    assert!(awaits(&mut worker, 2, 7, std::slice::from_ref(&check)));
    let Some(release) = worker.engine.next_release() else { panic!("it is rejected at once") };
    let Action::Reject(rejection) = release.action else { panic!("it is rejected") };
    assert_eq!((release.stream, rejection.status), (2, 429));
    assert!(!worker.engine.awaits_body(2));
    worker.close(2);
    let counters = worker.engine.counters();
    assert_eq!(
        (counters.request_bodies_denied, counters.rejected, counters.request_bodies_no_place),
        (1, 2, 894)
    );
}

/// Its denied requests have no places, so they give none back.
#[test]
fn a_client_gets_no_more_places_by_requests_that_are_denied() {
    let (mut worker, check) = with_another(BUCKET, "");
    worker.engine.submit(1, [check.clone()].into_iter().collect(), worker.now);
    assert_eq!(worker.answer([denied(secs(30))]), [(1, false)]);
    let mut got = 0;
    for stream in 10..4_000 {
        got += usize::from(awaits(&mut worker, stream, 7, &[]));
        assert!(awaits(&mut worker, 10_000 + stream, 7, std::slice::from_ref(&check)));
        assert_eq!(worker.released(), [(10_000 + stream, false)]);
        worker.close(10_000 + stream);
    }
    assert_eq!(got, 1_366);
}

/// The store is asked as by a quota request: it charges nothing.
#[test]
fn a_request_whose_body_does_not_come_is_asked_about_and_denied() {
    let (mut worker, check) = with_another(BUCKET, "");
    for stream in [1, 2] {
        assert!(awaits(&mut worker, stream, 7, std::slice::from_ref(&check)));
    }
    worker.idle(ms(49));
    assert!(worker.next_batch().is_none(), "most bodies come at once");
    worker.idle(ms(1));
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [Task { number: 3, ..crate::worker::check("p1|ann", 0) }], "of both");
    assert_eq!(worker.reply(&batch, [denied(secs(30))]), [(1, false), (2, false)]);
    assert_eq!(worker.drain(), []);
    worker.close(1);
    worker.close(2);
    assert_eq!((worker.engine.request_count(), worker.next_tick()), (0, None));
    assert_eq!(worker.engine.counters().request_bodies_denied, 2);
    // From now on it is known.
    assert!(awaits(&mut worker, 3, 7, &[check]));
    assert_eq!(worker.released(), [(3, false)]);
}

/// The store has none left of what this worker has on lease: its denial would close the lease to all.
#[test]
fn a_request_whose_body_does_not_come_is_not_asked_about_while_a_lease_serves_it() {
    let lease = r#""lease": {"max": 8, "min": 2, "duration": "5s"},"#;
    let (mut worker, check) = with_another(WINDOW, lease);
    let check = Check { cost: 1, ..check };
    for (stream, is_asked) in [(1, false), (3, true)] {
        if !is_asked {
            worker.engine.submit(10, [check.clone()].into_iter().collect(), worker.now);
            assert_eq!(worker.answer([granted(3).remaining(0).reset(MINUTE)]), [(10, true)]);
        }
        assert!(awaits(&mut worker, stream, 7, std::slice::from_ref(&check)));
        worker.idle(ms(50));
        assert_eq!(worker.next_batch().is_some(), is_asked, "{} on lease", worker.engine.on_lease());
        for stream in [11, 12] {
            worker.engine.submit(stream, [check.clone()].into_iter().collect(), worker.now);
        }
    }
}

/// A quota request charges nothing, so nothing is granted, whatever a reply says.
#[test]
fn a_denial_to_an_enquiry_is_one_whatever_it_grants() {
    let (mut worker, check) = with_another(BUCKET, "");
    assert!(awaits(&mut worker, 1, 7, std::slice::from_ref(&check)));
    worker.idle(ms(50));
    assert_eq!(worker.answer([granted(1).wait(secs(30))]), [(1, false)]);
}

#[test]
fn a_rejection_names_the_call_that_has_waited() {
    let named = format!(r#""response": {{"style": "json_rpc"}}, {}"#, policy(BUCKET));
    let mut worker = Worker::new(DENY, [named]);
    worker.all_wait([1], "ann");
    worker.engine.name(1, Ids::One("7".into()));
    let batch = worker.batch();
    worker.engine.replied(batch.id, &bytes([denied(secs(9))]), worker.now);
    let release = worker.engine.next_release().expect("it is decided");
    let Action::Reject(rejection) = release.action else { panic!("it is rejected") };
    assert!(rejection.body.contains(r#""id":7"#), "{}", rejection.body);
}

#[test]
fn what_is_not_certain_denies_no_request_before_its_body() {
    let places = PLACES;
    let ban = r#""ban": {"after": 3, "window": "10m", "duration": "1h"},"#;
    let rows: [(&str, &str, Option<Reply>); 5] = [
        ("it is admitted", "", Some(granted(0))),
        ("a permit may be free at any time", places, Some(denied(secs(30)))),
        ("the denial has to be counted", ban, Some(denied(secs(30)).and(&[0]))),
        ("the store fails", "", Some(error("OOM"))),
        ("the store does not answer", "", None),
    ];
    for (name, kind, reply) in rows {
        let (limits, more) = match kind {
            _ if kind == places => (places, ""),
            more => (BUCKET, more),
        };
        let (mut worker, check) = with_another(limits, more);
        assert!(awaits(&mut worker, 1, 7, std::slice::from_ref(&check)));
        worker.idle(ms(50));
        let batch = worker.batch();
        if let Some(reply) = reply {
            assert_eq!(worker.reply(&batch, [reply]), [], "{name}");
        }
        worker.idle(ms(100));
        assert_eq!(worker.released(), [], "{name}");
        assert!(worker.engine.awaits_body(1), "{name}");
        worker.idle(ms(850));
        assert_eq!(worker.released(), [(1, false)], "{name}: late");
        worker.close(1);
        assert_eq!(worker.engine.counters().request_bodies_denied, 0, "{name}");
        assert_eq!(worker.engine.request_count(), 0, "{name}");
    }
}

#[test]
fn a_ban_denies_before_the_body() {
    let (mut worker, check) =
        with_another(BUCKET, r#""ban": {"after": 3, "window": "10m", "duration": "1h"},"#);
    assert!(awaits(&mut worker, 1, 7, &[check]));
    worker.idle(ms(50));
    assert_eq!(worker.answer([granted(0).and(&[micros(secs(3_600))])]), [(1, false)]);
    let counters = worker.engine.counters();
    assert_eq!((counters.banned, counters.request_bodies_denied), (1, 1));
}

/// A request asks once before its body has come and once after it. The answer to the first check must not admit the second.
#[test]
fn an_answer_from_before_the_body_decides_nothing_after_it() {
    for is_sent in [true, false] {
        let (mut worker, check) = with_another(BUCKET, "");
        assert!(awaits(&mut worker, 1, 7, std::slice::from_ref(&check)));
        worker.idle(ms(50));
        let early = is_sent.then(|| worker.batch());
        worker.engine.body_came(1, false);
        worker.engine.submit(1, [check_of(0, "{p0|bob}", 1), check].into_iter().collect(), worker.now);
        if let Some(early) = early {
            assert_eq!(worker.reply(&early, [granted(0)]), [], "it is not decided by that");
        }
        let batch = worker.batch();
        let asked: Vec<_> = batch.tasks().into_iter().filter(|task| task.requests > 0).collect();
        assert_eq!(asked.len(), 2, "{asked:?}");
        let replies: Vec<_> = batch.tasks().iter().map(|task| granted(task.requests)).collect();
        assert_eq!(worker.reply(&batch, replies), [(1, true)]);
        worker.close(1);
        assert_eq!((worker.drain(), worker.engine.request_count()), (vec![], 0));
    }
}
