// SPDX-License-Identifier: Apache-2.0
//! `min_replicas`: a grant that too few replicas have is decided by `on_failure`, and a denial stands.

use weir::engine::StoreFailure;

use crate::engine::usage::measured;
use crate::worker::*;

fn store(on_failure: &str) -> String {
    format!(
        r#"{{"deadline": "80ms", "topology": "single", "min_replicas": 2, "on_failure": "{on_failure}"}}"#
    )
}

fn noreplicas() -> StoreFailure {
    StoreFailure::Error("NOREPLICAS too few have acknowledged".into())
}

/// Three requests. The store grants two of them.
#[test]
fn a_grant_that_too_few_replicas_have_is_decided_by_on_failure() {
    let admitted = [(1, true), (2, true), (3, false)];
    let denied = [(1, false), (2, false), (3, false)];
    let refunded = vec![refund("p0|ann", 2)];
    for (case, on_failure, reply, decided, settled, failure) in [
        ("as many as wanted", "deny", acknowledged(2), admitted, vec![], None),
        ("more", "deny", acknowledged(3), admitted, vec![], None),
        (
            "deny: rejected and refunded",
            "deny",
            acknowledged(1),
            denied,
            refunded.clone(),
            Some(noreplicas()),
        ),
        ("allow: admitted, and charged", "allow", acknowledged(1), admitted, vec![], Some(noreplicas())),
        ("local: admitted, and charged", "local", acknowledged(0), admitted, vec![], Some(noreplicas())),
        (
            "no right to ask",
            "deny",
            error("NOPERM wait"),
            denied,
            refunded,
            Some(StoreFailure::Error("NOPERM wait".into())),
        ),
    ] {
        let mut worker = Worker::new(&store(on_failure), [policy(BUCKET)]);
        worker.all_wait([1, 2, 3], "ann");
        let batch = worker.batch();
        assert_eq!(batch.replicas, Some((2, 40)), "{case}: half of the deadline");
        let mut outcomes = worker.reply(&batch, [granted(2), reply]);
        outcomes.sort_unstable();
        assert_eq!(outcomes, decided, "{case}");
        assert_eq!(worker.failures().first(), failure.as_ref(), "{case}");
        let rest = worker.next_batch();
        assert_eq!(rest.as_ref().map_or(vec![], Batch::tasks), settled, "{case}");
        assert!(
            rest.is_none_or(|batch| batch.replicas.is_none()),
            "{case}: no replica is awaited for a refund"
        );
    }
}

/// The store answers. So the breaker stays closed, and denials stand, however long replicas are missing.
#[test]
fn missing_replicas_are_no_outage() {
    let mut worker = Worker::new(&store("allow"), [policy(BUCKET)]);
    for stream in 0..20 {
        worker.all_wait([stream], "ann");
        let reply = if stream < 5 { granted(1) } else { granted(0).wait(ms(1)) };
        assert_eq!(worker.answer([reply, acknowledged(0)]), [(stream, stream < 5)]);
        worker.idle(secs(3));
    }
    assert_eq!(worker.failures(), vec![noreplicas(); 5], "a denial needs no replica");
}

/// Otherwise each request would wait for replicas that are unavailable.
#[test]
fn missing_replicas_are_awaited_for_long_once_a_second() {
    let mut worker = Worker::new(&store("allow"), [policy(BUCKET)]);
    for (case, reply, later, timeout) in [
        ("at first", 0, ms(0), 40),
        ("after a miss", 0, ms(0), 10),
        ("a second later", 0, secs(1), 40),
        ("after another miss", 2, ms(0), 10),
        ("when they are back", 2, ms(0), 40),
    ] {
        worker.idle(later);
        worker.all_wait([1], "ann");
        let batch = worker.batch();
        assert_eq!(batch.replicas, Some((2, timeout)), "{case}");
        assert_eq!(worker.reply(&batch, [granted(1), acknowledged(reply)]), [(1, true)], "{case}");
        worker.close(1);
    }
}

/// A reply without the reply to `WAIT` was cut off.
#[test]
fn a_reply_that_is_missing_is_a_bad_reply() {
    let mut worker = Worker::new(&store("deny"), [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([granted(1)]), [(1, false)]);
    assert_eq!(worker.failures().first(), Some(&StoreFailure::BadReply));
    for stream in [2, 3] {
        assert_eq!(worker.engine.open_breakers(), 0);
        worker.all_wait([stream], "ann");
        worker.answer([granted(1)]);
    }
    assert_eq!(worker.engine.open_breakers(), 1, "it is no answer of the store");
}

#[test]
fn an_error_that_lasts_as_long_as_the_connection_ends_it() {
    for (reply, is_good) in [(acknowledged(2), true), (error("NOAUTH log in"), false)] {
        let mut worker = Worker::new(&store("allow"), [policy(BUCKET)]);
        worker.all_wait([1], "ann");
        let batch = worker.batch();
        assert_eq!(worker.engine.replied(batch.id, &bytes([granted(1), reply]), worker.now), is_good);
    }
}

/// Requests reserved in advance are given back, too: later requests would be admitted by them.
#[test]
fn a_lease_that_too_few_replicas_have_is_refunded() {
    let lease = r#"{"max": 8, "min": 2, "duration": "5s"}"#;
    let mut worker = Worker::new(&store("deny"), [leased(lease, WINDOW)]);
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 3)], "two in advance");
    let reply = granted(3).remaining(97).reset(secs(60));
    assert_eq!(worker.reply(&batch, [reply, acknowledged(1)]), [(1, false)]);
    let refunded: i64 = worker.drain().iter().map(|task| task.number).sum();
    assert_eq!((refunded, worker.engine.on_lease()), (3, 0));
    let values = measured(&mut worker);
    let units = |kind: &str| values.get(&format!("weir.policy.p0.units_{kind}")).copied().unwrap_or(0);
    assert_eq!((units("reserved"), units("refunded")), (1, 1), "what no request took counts in neither");
}
