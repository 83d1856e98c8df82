// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for their own bodies.

use weir::engine::Action;

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

#[test]
fn a_body_that_is_late_rejects_its_request() {
    let mut worker = by_user();
    assert!(worker.engine.await_body(1, worker.now));
    worker.idle(ms(300));
    assert!(worker.engine.await_body(2, worker.now));
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
    assert!(worker.engine.await_body(1, worker.now));
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

/// A request whose headers are let through while data of it come must not be let through twice.
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

#[test]
fn a_client_that_leaves_is_not_waited_for() {
    let mut worker = by_user();
    assert!(worker.engine.await_body(1, worker.now));
    worker.close(1);
    assert_eq!((worker.engine.request_count(), worker.next_tick()), (0, None));
    // The host may use the number again.
    assert!(worker.engine.await_body(1, worker.now));
    worker.idle(ms(999));
    assert_eq!(worker.released(), []);
}

#[test]
fn so_many_wait_for_their_bodies_and_no_more() {
    let mut worker = by_user();
    assert!((0..4_096).all(|stream| worker.engine.await_body(stream, worker.now)));
    assert!(!worker.engine.await_body(4_096, worker.now));
    assert!(!worker.engine.is_paused(4_096));
    worker.close(7);
    assert!(worker.engine.await_body(4_096, worker.now));
    assert!(worker.waits_alone(5_000), "others do not wait for them");
}
