// SPDX-License-Identifier: Apache-2.0
//! A store or a shard that fails is left alone, and tried with one request at a time until it answers again.

use weir::engine::StoreFailure;

use crate::worker::*;

fn failure() -> Reply {
    error("upstream failure")
}

#[test]
fn a_store_that_fails_again_and_again_is_left_alone_and_tried_with_one_request() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let mut outcomes = Vec::new();
    for stream in 1..=3 {
        worker.all_wait([stream], "ann");
        let batch = worker.batch();
        worker.all_wait([stream + 10], "bob");
        outcomes.extend(worker.fail(&batch));
        worker.close(stream + 10);
    }
    assert_eq!(outcomes, [(1, true), (2, true), (3, true), (13, true)], "no request waits any longer");
    assert!(worker.failures().contains(&StoreFailure::BreakerOpen));
    assert_eq!([worker.arrive(20, &["ann"]), worker.arrive(21, &["eve"])], [Some(true); 2]);
    assert!(!worker.engine.wants_to_send());

    worker.idle(ms(130));
    assert_eq!([worker.arrive(30, &["ann"]), worker.arrive(31, &["ann"])], [None, Some(true)], "one probe");
    let probe = worker.batch();
    assert_eq!(probe.tasks(), [check("p0|ann", 1)]);
    assert_eq!(worker.reply(&probe, [granted(1)]), [(30, true)]);
    assert_eq!([worker.arrive(40, &["ann"]), worker.arrive(41, &["ann"])], [None; 2], "in use again");
}

/// A store that takes requests and answers none is left alone, too, and those that wait then are decided at once.
#[test]
fn a_store_that_answers_none_is_left_alone() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    let mut stream = 0;
    while worker.engine.open_breakers() == 0 && stream < 60 {
        stream += 1;
        // Each has 50 ms, and one comes every 10 ms.
        worker.arrive(stream, &[&stream.to_string()]);
        worker.next_batch();
        worker.idle(ms(10));
    }
    assert!(stream < 60, "it is asked again and again");
    let latest = worker.released().last().copied();
    assert_eq!(latest, Some((stream, false)), "it had 40 ms left");
}

/// A batch that is late has failed already: what becomes of it then is no second failure.
#[test]
fn a_batch_that_is_late_and_then_fails_is_one_failure() {
    type End = fn(&mut Worker, &Batch);
    let ends: [(&str, End); 3] = [
        ("fails", |worker, late| drop(worker.fail(late))),
        ("no reply", |worker, late| drop(worker.reply(late, []))),
        ("is abandoned", |worker, _| worker.idle(ms(60))),
    ];
    for (row, end) in ends {
        let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
        for failures in 1..=3 {
            assert_eq!(worker.engine.open_breakers(), 0, "{row}: {failures} failures");
            worker.all_wait([failures], "ann");
            let late = worker.batch();
            worker.idle(ms(60));
            end(&mut worker, &late);
        }
        assert_eq!(worker.engine.open_breakers(), 1, "{row}");
    }
}

/// While the store answers on one connection, another that opens slowly is not its failure.
#[test]
fn a_connection_that_opens_slowly_beside_one_that_answers_is_no_failure() {
    for answers in [true, false] {
        let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
        let mut stream = 0;
        let mut ask = |worker: &mut Worker| {
            stream += 1;
            worker.arrive(stream, &[&stream.to_string()]).is_none().then(|| worker.batch())
        };
        for _ in 0..3 {
            let opening = ask(&mut worker).expect("it asks");
            worker.engine.connecting(opening.id);
            for _ in 0..23 {
                worker.idle(ms(10));
                if answers && let Some(batch) = ask(&mut worker) {
                    worker.reply(&batch, [granted(1)]);
                }
            }
        }
        assert_eq!(worker.engine.open_breakers(), u64::from(!answers), "answers: {answers}");
    }
}

#[test]
fn a_probe_that_is_sent_again_is_still_the_only_one() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    for stream in 1..=3 {
        worker.all_wait([stream], "ann");
        worker.answer([error("OOM used")]);
    }
    worker.idle(ms(130));
    worker.all_wait([10], "ann");
    assert_eq!(worker.answer([noscript()]), []);
    assert_eq!(worker.arrive(11, &["ann"]), Some(true), "before it leaves again");
    let again = worker.batch();
    assert_eq!((again.by_source(), again.tasks()), (true, vec![check("p0|ann", 1)]));
    assert_eq!(worker.arrive(12, &["ann"]), Some(true), "and after that");
    assert_eq!(worker.reply(&again, [granted(1)]), [(10, true)]);
    assert_eq!(worker.arrive(13, &["ann"]), None);
}

/// The store's breaker, and that of a shard.
#[test]
fn a_probe_that_fails_is_followed_by_a_longer_pause() {
    for is_store in [true, false] {
        let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
        let fail = |worker: &mut Worker, stream| {
            worker.all_wait([stream], "ann");
            let outcomes = if is_store { worker.lose() } else { worker.answer([error("OOM used")]) };
            assert_eq!(outcomes, [(stream, true)]);
        };
        (1..=3).for_each(|stream| fail(&mut worker, stream));
        for (stream, longest) in [(10, 125), (20, 250), (30, 500)] {
            worker.idle(ms(longest * 4 / 5 - 1));
            assert_eq!(worker.arrive(stream, &["ann"]), Some(true), "{longest} ms, {is_store}");
            worker.idle(ms(longest / 5 + 1));
            fail(&mut worker, stream + 1);
        }
    }
}

#[test]
fn a_shard_that_fails_is_left_alone_and_the_others_are_not() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    for stream in 1..=3 {
        worker.all_wait([stream], "ann");
        assert_eq!(worker.answer([failure()]), [(stream, true)]);
    }
    assert_eq!(worker.arrive(4, &["ann"]), Some(true), "it is not asked");
    assert_eq!(worker.arrive(5, &["bob"]), None, "another slot is");
    worker.answer([granted(1)]);
    worker.idle(ms(130));
    assert_eq!([worker.arrive(6, &["ann"]), worker.arrive(7, &["ann"])], [None, Some(true)], "one probe");
    worker.answer([granted(1)]);
    assert_eq!([worker.arrive(8, &["ann"]), worker.arrive(9, &["ann"])], [None; 2]);
}

#[test]
fn a_shard_that_hangs_holds_up_only_its_own_subjects() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let both_arrive = |worker: &mut Worker, ann, bob| {
        worker.all_wait([ann], "ann");
        worker.all_wait([bob], "bob");
    };
    both_arrive(&mut worker, 1, 2);
    let first = worker.batch();
    // Before anything is known of the shard, both wait; requests that arrive meanwhile do not for long.
    both_arrive(&mut worker, 3, 4);
    assert!(!worker.engine.wants_to_send());
    worker.idle(ms(11));
    let second = worker.batch();
    let both = [check("p0|ann", 1), check("p0|bob", 1)];
    assert_eq!(second.tasks(), both, "a slow batch does not hold up the next");
    assert_eq!(worker.reply(&first, [failure(), granted(1)]), [(1, true), (2, true)]);
    worker.reply(&second, [failure(), granted(1)]);

    // Now they leave apart, also those that have gathered together.
    both_arrive(&mut worker, 5, 6);
    let normal = worker.batch();
    assert_eq!(normal.tasks(), [check("p0|bob", 1)]);
    let suspect = worker.batch();
    assert_eq!(suspect.tasks(), [check("p0|ann", 1)]);
    assert_eq!(worker.reply(&normal, [granted(1)]), [(6, true)], "it does not wait for the other");
    // Once the shard answers, all is as before.
    assert_eq!(worker.reply(&suspect, [granted(1)]), [(5, true)]);
    both_arrive(&mut worker, 7, 8);
    assert_eq!(worker.batch().tasks(), both);
}

#[test]
fn requests_that_gathered_before_a_shard_failed_leave_apart_too() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let first = worker.batch();
    worker.all_wait([2], "ann");
    worker.all_wait([3], "bob");
    worker.reply(&first, [failure()]);
    assert_eq!(worker.batch().tasks(), [check("p0|bob", 1)]);
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 1)]);
    assert!(!worker.engine.wants_to_send());
}

/// While the breaker is open, a batch without an answer says that the store is still unavailable. It says nothing about how much
/// the store can do when it has recovered.
#[test]
fn probes_without_an_answer_leave_the_congestion_window_as_it_was() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET), policy(BUCKET)]);
    for stream in 0..3 {
        assert_eq!(worker.arrive(stream, &["ann", "bob"]), None);
        worker.lose();
    }
    assert_eq!(worker.engine.open_breakers(), 1);
    for probe in 10..12 {
        worker.idle(ms(501));
        assert_eq!(worker.arrive(probe, &["ann", "bob"]), None);
        let batch = worker.batch();
        worker.idle(ms(110));
        assert_eq!(worker.engine.next_abandoned(), Some(batch.id));
    }
    worker.idle(ms(501));
    assert_eq!(worker.arrive(20, &["ann", "bob"]), None);
    worker.answer([granted(1), granted(1)]);
    assert!((100..164).all(|stream| worker.waits_alone(stream)));
    assert_eq!(worker.batch().commands.len(), 64);
}
