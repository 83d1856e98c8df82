// SPDX-License-Identifier: Apache-2.0
//! Every failure of the store is one decision by `on_failure`, within the deadline.

use weir::engine::{Action, StoreFailure, Submitted};

use crate::worker::*;

fn one_waits() -> (Worker, Batch) {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    (worker, batch)
}

// --- The deadline -----------------------------------------------------------------------------------------------------

#[test]
fn the_deadline_decides_by_on_failure() {
    for (store, admitted) in [(ALLOW, true), (DENY, false)] {
        let mut worker = Worker::new(store, [policy(BUCKET)]);
        worker.all_wait([1], "ann");
        let late = worker.batch();
        // A tick may come as late as that after the deadline.
        worker.idle(ms(54));
        assert_eq!(worker.released(), [], "{store}: not before the deadline");
        worker.idle(ms(1));
        assert_eq!(worker.released(), [(1, admitted)], "{store}");
        assert_eq!(worker.failures(), [StoreFailure::Timeout]);
        assert_eq!(worker.reply(&late, [granted(1)]), [], "{store}: decided once");
    }
}

#[test]
fn a_batch_is_abandoned_after_twice_the_deadline() {
    let mut worker = Worker::new(r#"{"deadline": "50ms"}"#, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let late = worker.batch();
    worker.idle(ms(100));
    assert_eq!(worker.engine.next_abandoned(), None, "its reply still says what was charged");
    worker.released();
    assert!(worker.next_tick().is_some(), "no request waits, but the batch is in flight");
    worker.idle(ms(10));
    assert_eq!(worker.engine.next_abandoned(), Some(late.id));
    assert!(!worker.engine.in_flight());
    assert_eq!(worker.failures(), [StoreFailure::Timeout], "counted once");
    assert_eq!(worker.reply(&late, [granted(1)]), []);
    assert_eq!(worker.next_tick(), None);
}

#[test]
fn a_worker_that_was_busy_does_not_take_it_for_the_stores_fault() {
    let (mut worker, batch) = one_waits();
    worker.skip(secs(10));
    worker.engine.tick(worker.now);
    assert_eq!(worker.released(), []);
    assert_eq!(worker.reply(&batch, [granted(0)]), [(1, false)]);
}

// --- What the store replies -------------------------------------------------------------------------------------------

#[test]
fn every_failure_of_the_store_is_one_event_to_a_request() {
    let named = |text: &str| (error(text), StoreFailure::Error(text.into()));
    let bad = |bytes: &[u8]| (Reply::Bytes(bytes.to_vec()), StoreFailure::BadReply);
    let replies = [
        named("READONLY You can't write against a read only replica."),
        named("OOM command not allowed when used memory > 'maxmemory'."),
        (error("upstream failure"), StoreFailure::Refused),
        bad(b":1\r\n"),
        bad(b"$3\r\nabc\r\n"),
        bad(b"$16\r\nab"),
        bad(b"HTTP/1.1 200 OK\r\n"),
        bad(&[b"*1\r\n", bytes([granted(1)]).as_slice()].concat()),
        bad(b""),
    ];
    for (reply, failure) in replies {
        let (mut worker, batch) = one_waits();
        let shown = String::from_utf8_lossy(&bytes([reply.clone()])).into_owned();
        assert_eq!(worker.reply(&batch, [reply]), [(1, true)], "{shown}");
        assert_eq!(worker.failures(), [failure], "{shown}");
        assert_eq!(worker.engine.counters().fallback, 1, "{shown}");
    }
    for failure in [StoreFailure::NotSent, StoreFailure::Refused, StoreFailure::NotTheBridge] {
        let (mut worker, batch) = one_waits();
        worker.engine.failed(batch.id, &failure, worker.now);
        assert_eq!(worker.released(), [(1, true)], "{failure:?}");
        assert_eq!(worker.failures(), [failure]);
    }
}

/// A peer that answers, but not as the script does, is as good as none.
#[test]
fn replies_that_are_none_of_the_script_open_the_breaker() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    for stream in 0..3 {
        assert_eq!(worker.engine.open_breakers(), 0);
        // Of slots of its own each, and beside one that is good.
        worker.all_wait([stream], &stream.to_string());
        worker.all_wait([stream + 10], &(stream + 10).to_string());
        worker.answer([Reply::Bytes(b":1\r\n".to_vec()), granted(1)]);
    }
    assert_eq!(worker.engine.open_breakers(), 1);
}

/// A connection is authenticated, and led to one Redis, when it begins. After some errors another connection may do better.
#[test]
fn an_error_that_lasts_as_long_as_the_connection_says_so() {
    let rows = [
        ("NOAUTH Authentication required.", false),
        ("WRONGPASS invalid username-password pair", false),
        ("READONLY You can't write against a read only replica.", false),
        ("MASTERDOWN Link with MASTER is down", false),
        ("NOREPLICAS Not enough good replicas to write.", false),
        (
            "ERR Error running script (call to f_9): @user_script:4: @user_script: 4: -READONLY You can't write.",
            false,
        ),
        ("@user_script: 4: -NOREPLICAS Not enough good replicas to write.", false),
        ("ERR Error running script (call to f_9): @user_script:4: @user_script: 4: -OOM no", true),
        ("NOPERM this user has no permissions", true),
        ("OOM command not allowed", true),
        ("LOADING Redis is loading the dataset in memory", true),
        ("NOSCRIPT No matching script.", true),
        ("upstream failure", true),
    ];
    for (text, well) in rows {
        for replies in [[error(text), granted(1)], [granted(1), error(text)]] {
            let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
            worker.all_wait([1], "ann");
            worker.all_wait([2], "bob");
            let batch = worker.batch();
            assert_eq!(worker.engine.replied(batch.id, &bytes(replies), worker.now), well, "{text}");
        }
    }
}

#[test]
fn a_reply_that_envoy_waited_for_is_told_from_one_it_could_not_ask_for() {
    for (waited, failure) in
        [(0, StoreFailure::Refused), (5, StoreFailure::Refused), (40, StoreFailure::Slow)]
    {
        let (mut worker, batch) = one_waits();
        worker.idle(ms(waited));
        worker.reply(&batch, [error("upstream failure")]);
        assert_eq!(worker.failures(), [failure], "{waited} ms");
    }
}

#[test]
fn a_truncated_reply_fails_only_the_requests_that_it_lacks() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    worker.all_wait([2], "bob");
    assert_eq!(worker.answer([granted(0)]), [(1, false), (2, true)]);
    assert_eq!(worker.failures(), [StoreFailure::BadReply]);
}

#[test]
fn a_command_that_fails_is_one_failure_however_many_subjects_it_asks_about() {
    let mut worker = Worker::new(SINGLE, [policy(BUCKET)]);
    for round in 0..3 {
        // Among so many there are several in the same part of the slots.
        for subject in 0..64 {
            worker.all_wait([round * 100 + subject], &subject.to_string());
        }
        while let Some(batch) = worker.next_batch() {
            let replies = batch.each(error("OOM used"));
            worker.reply(&batch, replies);
        }
        let opened = worker.failures().contains(&StoreFailure::BreakerOpen);
        assert_eq!(opened, round == 2, "round {round}");
    }
}

// --- Requests that cannot wait ----------------------------------------------------------------------------------------

#[test]
fn too_many_waiting_requests_are_decided_at_once() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let mut stream = 0;
    let decided = loop {
        stream += 1;
        if let Some(admitted) = worker.arrive(stream, &["ann"]) {
            break admitted;
        }
        assert!(stream < 100_000, "the number of waiting requests must be bounded");
    };
    assert_eq!((decided, stream), (true, 16_385), "by on_failure");
    assert_eq!(worker.failures(), [StoreFailure::Overloaded]);
    worker.close(1);
    assert_eq!(worker.arrive(stream + 1, &["ann"]), None, "one that left makes room");
    assert!(worker.arrive(stream + 2, &["ann"]).is_some(), "for one");
}

#[test]
fn a_request_that_cannot_wait_is_decided_by_on_failure_and_no_longer_asked_about() {
    for (store, admitted) in [(ALLOW, true), (DENY, false)] {
        let mut worker = Worker::new(store, [policy(BUCKET)]);
        worker.all_wait([1], "ann");
        let Submitted::Decided(action) = worker.engine.cannot_wait(1, worker.now) else {
            panic!("{store}: it waits")
        };
        assert_eq!(matches!(action, Action::Admit), admitted, "{store}");
        assert_eq!((worker.engine.counters().fallback, worker.released()), (1, vec![]), "{store}: once");
        assert!(worker.next_batch().is_none(), "{store}");
        assert_eq!(worker.next_tick(), None, "{store}");
    }
}
