// SPDX-License-Identifier: Apache-2.0
//! Batches that need a new connection to the store before they can be sent.

use weir::bridge;
use weir::engine::StreamId;

use crate::worker::*;

fn counted(worker: &Worker) -> (u64, u64) {
    let counters = worker.engine.counters();
    (counters.batches, counters.commands)
}

/// A batch of these requests is to leave, and its connection is being opened.
fn connecting(worker: &mut Worker, streams: impl IntoIterator<Item = StreamId>) -> Batch {
    worker.all_wait(streams, "ann");
    let batch = worker.batch();
    worker.engine.connecting(batch.id);
    batch
}

#[test]
fn what_waits_for_a_connection_is_sent_when_it_is_open() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let batch = connecting(&mut worker, [1, 2]);
    assert_eq!(counted(&worker), (0, 0), "nothing was sent");
    worker.close(2);
    worker.all_wait([3], "ann");
    worker.idle(ms(20));
    worker.engine.connected(batch.id, worker.now);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 1), check("p0|ann", 1)], "1 goes first, and 3 came later");
    assert_eq!(counted(&worker), (1, 2));
    assert_eq!(worker.reply(&batch, [granted(1), granted(1)]), [(1, true), (3, true)]);
}

/// A far store is connected to in several round trips, each nearly a deadline long.
#[test]
fn a_connection_that_takes_three_deadlines_is_no_failure_of_the_store() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    let batches: Vec<_> = (0..3)
        .map(|stream| {
            let batch = connecting(&mut worker, [stream]);
            worker.idle(ms(11));
            batch
        })
        .collect();
    worker.idle(ms(120));
    assert_eq!(worker.released(), [(0, false), (1, false), (2, false)], "the deadline is over");
    assert_eq!(worker.engine.open_breakers(), 0);
    assert_eq!(worker.engine.next_abandoned(), None);
    for batch in &batches {
        worker.engine.connected(batch.id, worker.now);
    }
    assert!(worker.next_batch().is_none(), "no request waits any more");
    worker.all_wait([9], "ann");
    assert_eq!(worker.answer([granted(1)]), [(9, true)]);
}

#[test]
fn a_connection_that_takes_longer_is_one() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let batch = connecting(&mut worker, [1]);
    worker.idle(ms(210));
    assert_eq!(worker.engine.next_abandoned(), None, "an answer may still come");
    worker.idle(ms(60));
    assert_eq!(worker.engine.next_abandoned(), Some(batch.id));
}

/// A limiter of an older version does not know the mark behind the last replies of a stream. Whatever the batch carries, its engine reads one
/// reply for each command, and nothing behind them.
#[test]
fn bytes_behind_the_replies_change_nothing() {
    for mark in [&[][..], &[bridge::LAST]] {
        let store = r#"{"deadline": "50ms", "on_failure": "deny", "topology": "single", "min_replicas": 1}"#;
        let config = configuration(store, [policy(BUCKET)]);
        let config = config.replacen('{', r#"{"journal": {}, "#, 1);
        let mut worker = Worker::configured(&config);
        worker.all_wait([1], "ann");
        assert_eq!(worker.answer([denied(DAY), acknowledged(1)]), [(1, false)]);
        worker.all_wait([2, 3], "bob");
        let batch = worker.batch();
        assert!(batch.replicas.is_some());
        let entries = batch.journal.iter().map(|_| written());
        let replies = bytes([granted(2), acknowledged(1)].into_iter().chain(entries));
        assert!(
            worker.engine.replied(batch.id, &[&replies, mark].concat(), worker.now),
            "{}",
            batch.journal.len()
        );
        assert_eq!(worker.released(), [(2, true), (3, true)]);
        worker.idle(ms(100));
        while let Some(batch) = worker.next_batch() {
            let replies = bytes(batch.journal.iter().map(|_| written()));
            assert!(worker.engine.replied(batch.id, &[&replies, mark].concat(), worker.now));
        }
        assert_eq!((worker.failures(), worker.engine.open_breakers()), (vec![], 0), "{mark:?}");
    }
}

#[test]
fn the_host_is_told_whether_a_request_can_be_released() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    assert!(!worker.engine.has_releases());
    worker.engine.replied(batch.id, &bytes([granted(1)]), worker.now);
    assert!(worker.engine.has_releases());
    assert_eq!(
        worker.next_tick(),
        Some(worker.now.plus(ms(5))),
        "if the wake-up is lost, the tick does its work"
    );
    assert_eq!(worker.released(), [(1, true)]);
    assert!(!worker.engine.has_releases());
    assert_eq!(worker.next_tick(), None);
}
