// SPDX-License-Identifier: Apache-2.0
//! Grants that arrive after their request is decided or has closed. Units that no admitted request uses are refunded, exactly once; a
//! permit of a concurrency limit is released when its request ends.

use crate::worker::*;

/// One request waits for a reply until it is too late: it is decided by `on_failure`, and its batch is not abandoned yet.
fn one_late(store: &str, limit: &str) -> (Worker, Batch) {
    let mut worker = Worker::new(store, [policy(limit)]);
    worker.all_wait([1], "ann");
    let late = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, store != DENY)]);
    (worker, late)
}

fn miss_the_deadline(worker: &mut Worker) {
    worker.idle(ms(60));
}

#[test]
fn a_grant_that_arrives_after_the_denial_is_refunded() {
    let (mut worker, late) = one_late(DENY, BUCKET);
    assert_eq!(worker.reply(&late, [granted(1)]), []);
    assert_eq!(worker.batch().tasks()[0], refund("p0|ann", 1));
}

#[test]
fn a_grant_that_arrives_after_its_rejected_request_has_closed_is_refunded() {
    let (mut worker, late) = one_late(DENY, BUCKET);
    worker.close(1);
    assert_eq!(worker.reply(&late, [granted(1)]), []);
    assert_eq!(worker.batch().tasks(), [refund("p0|ann", 1)]);
    assert_eq!(worker.engine.request_count(), 0, "nothing of it stays");
}

#[test]
fn a_permit_that_arrives_after_its_rejected_request_has_closed_is_refunded() {
    let (mut worker, late) = one_late(DENY, PLACES);
    worker.close(1);
    worker.reply(&late, [granted(1).permit(77)]);
    assert!(worker.drain().contains(&release("p0|ann", 77)), "its place is free again");
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn each_request_that_shares_a_late_answer_gets_what_is_its_own() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    worker.all_wait(1..=4, "ann");
    let late = worker.batch();
    // The first leaves while it waits and stays charged; the others are rejected, and only the last stream stays open.
    worker.close(1);
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(2, false), (3, false), (4, false)]);
    worker.close(2);
    worker.close(3);
    // Three are granted: to the one that left, and to two of the rejected.
    worker.reply(&late, [granted(3).wait(DAY)]);
    assert_eq!(worker.batch().tasks(), [refund("p0|ann", 2)]);
    assert_eq!(worker.engine.request_count(), 1, "the stream that is open");
    worker.close(4);
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_late_grant_of_one_policy_is_refunded_where_another_had_denied() {
    // Admitted by `on_failure`, were it not for the denial.
    let mut worker = Worker::new(ALLOW, [policy(BUCKET), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    assert_eq!(worker.answer([denied(DAY), noscript()]), []);
    let again = worker.batch();
    assert_eq!(again.tasks(), [check("p1|all", 1)]);
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, false)]);
    worker.close(1);
    worker.reply(&again, [granted(1)]);
    assert_eq!(worker.batch().tasks(), [refund("p1|all", 1)]);
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_late_grant_is_refunded_where_there_was_no_room_to_hold_the_request() {
    let mut worker = Worker::new(ALLOW, [policy(&delayed("30s")), policy(BUCKET)]);
    let held = |requests| granted(requests).remaining(0).wait(secs(1)).delay(secs(1));
    worker.all_wait(0..4_096, "ann");
    assert_eq!(worker.answer([held(4_096)]), []);
    worker.arrive(5_000, &["ann", "all"]);
    worker.answer([held(1), noscript()]);
    let again = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(5_000, false)]);
    worker.close(5_000);
    let back = worker.batch();
    assert_eq!(back.tasks(), [refund("p0|ann", 1)]);
    worker.reply(&back, [done()]);
    worker.reply(&again, [granted(1)]);
    assert_eq!(worker.batch().tasks(), [refund("p1|all", 1)]);
    assert_eq!(worker.engine.request_count(), 4_096);
}

#[test]
fn a_late_denial_of_a_request_that_has_closed_refunds_nothing() {
    let (mut worker, late) = one_late(DENY, BUCKET);
    worker.close(1);
    worker.reply(&late, [denied(DAY)]);
    assert!(!worker.engine.wants_to_send());
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_closed_request_is_forgotten_when_its_batch_fails_or_is_abandoned_or_never_ran() {
    type End = fn(&mut Worker, &Batch);
    let ends: [(&str, End); 5] = [
        ("failed", |worker, late| drop(worker.fail(late))),
        ("abandoned", |worker, _| worker.idle(ms(60))),
        ("an error", |worker, late| drop(worker.reply(late, [error("OOM used")]))),
        ("no script", |worker, late| drop(worker.reply(late, [noscript()]))),
        ("no reply", |worker, late| drop(worker.reply(late, []))),
    ];
    for (row, end) in ends {
        let (mut worker, late) = one_late(DENY, BUCKET);
        worker.close(1);
        assert_eq!(worker.engine.request_count(), 1, "{row}: its grant may still come");
        end(&mut worker, &late);
        assert_eq!(worker.engine.request_count(), 0, "{row}");
        assert!(worker.next_batch().is_none(), "{row}: it is not asked for again");
    }
}

#[test]
fn a_rejected_request_that_was_never_sent_is_forgotten_at_once() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    worker.batch();
    worker.all_wait([2], "bob");
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, false), (2, false)]);
    worker.close(2);
    assert_eq!(worker.engine.request_count(), 1, "only the one that was sent can still be granted");
    assert!(worker.next_batch().is_none());
}

#[test]
fn a_request_that_leaves_while_it_waits_stays_charged_and_gives_up_its_place() {
    let mut worker = Worker::new(DENY, [policy(PLACES), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    let batch = worker.batch();
    worker.close(1);
    assert_eq!(worker.engine.request_count(), 0);
    worker.reply(&batch, [granted(1).permit(77), granted(1)]);
    assert_eq!(worker.batch().tasks(), [release("p0|ann", 77)]);
    assert!(!worker.engine.wants_to_send(), "aborting is no way to ask for free");
}

#[test]
fn a_late_permit_of_an_admitted_request_is_released_when_the_request_ends() {
    let (mut worker, late) = one_late(ALLOW, PLACES);
    worker.reply(&late, [granted(1).permit(77)]);
    assert!(!worker.engine.wants_to_send(), "the request runs: it holds its place");
    worker.close(1);
    assert_eq!(worker.batch().tasks(), [release("p0|ann", 77)]);
}

#[test]
fn a_late_permit_of_a_request_that_was_counted_locally_is_released_when_the_request_ends() {
    let (mut worker, late) = one_late(LOCAL, PLACES);
    worker.reply(&late, [granted(1).permit(77)]);
    assert!(worker.next_batch().is_none(), "the request is not over");
    worker.close(1);
    assert_eq!(worker.batch().tasks(), [release("p0|ann", 77)]);
    assert!(worker.next_batch().is_none(), "once");
}

/// A request that is charged in the store is not charged to the local share too.
#[test]
fn a_late_grant_takes_the_place_of_a_local_one() {
    // A share of two places for each kind of limit.
    for limit in [
        r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/1h", "burst": 2}"#,
        r#"{"name": "l", "algorithm": "concurrency", "limit": 2, "ttl": "1h"}"#,
    ] {
        let (mut worker, late) = one_late(LOCAL, limit);
        worker.reply(&late, [granted(1).permit(77)]);
        // Redis is unavailable, and the local share decides: both of its places are free.
        worker.all_wait(2..=4, "ann");
        let lost = worker.batch();
        worker.idle(ms(60));
        assert_eq!(worker.released(), [(2, true), (3, true), (4, false)], "{limit}");
        worker.fail(&lost);
        worker.close(1);
        // The breaker's pause ends.
        worker.idle(secs(1));
        let settled = worker.drain();
        let released = settled.contains(&release("p0|ann", 77));
        assert_eq!(released, limit.contains("concurrency"), "{limit}: {settled:?}");
        assert!(
            !settled.contains(&refund("p0|ann", 1)),
            "{limit}: it was admitted, and is charged: {settled:?}"
        );
    }
}
