// SPDX-License-Identifier: Apache-2.0
//! The requests that a worker admits by itself while the store does not decide: its local share of each limit.

use weir::engine::Action;
use weir::time::Micros;

use crate::worker::*;

/// The limit is ten, and a fifth of it is this worker's.
const FIFTH: &str = r#"{"deadline": "50ms", "on_failure": "local", "workers": 5}"#;

#[test]
fn an_answer_that_no_request_awaits_any_more_is_no_new_beginning() {
    let mut worker = Worker::new(&FIFTH.replace("50ms", "1s"), [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let slow = worker.batch();
    worker.idle(ms(11));
    let mut fail = |stream| {
        worker.arrive(stream, &["ann"]);
        worker.lose()
    };
    // With the third failure the worker stops waiting for the first batch as well.
    assert_eq!([2, 3, 4].map(&mut fail), [vec![(2, true)], vec![(3, true)], vec![(4, false), (1, false)]]);
    assert_eq!(worker.reply(&slow, [granted(1)]), []);
    worker.arrive(5, &["ann"]);
    assert_eq!(worker.lose(), [(5, false)], "what it admitted by itself counts still");
}

#[test]
fn a_worker_limits_by_itself_while_the_store_is_unavailable_and_begins_anew_after_that() {
    let mut worker = Worker::new(FIFTH, [policy(BUCKET)]);
    let mut stream = 0;
    let mut fail = |worker: &mut Worker| {
        stream += 1;
        worker.arrive(stream, &["ann"]).unwrap_or_else(|| worker.lose()[0].1)
    };
    assert_eq!([0; 4].map(|_| fail(&mut worker)), [true, true, false, false]);
    worker.idle(secs(5));
    assert_eq!([0; 2].map(|_| fail(&mut worker)), [true, false], "one a second, a fifth of which is its");

    worker.idle(secs(1));
    worker.all_wait([100], "ann");
    worker.answer([granted(1)]);
    assert_eq!([0; 3].map(|_| fail(&mut worker)), [true, true, false]);
}

/// A cost that the limit can hold passes when the store has recovered, whatever this worker's share is: no client gets *never*.
#[test]
fn only_what_the_whole_limit_cannot_hold_is_rejected_for_good() {
    for (cost, retry_after, pushback) in
        [(2, Some("10"), Some(10_000)), (3, None, None), (10, None, None), (11, None, Some(-1))]
    {
        let mut worker = Worker::new(FIFTH, [policy(BUCKET)]);
        let mut decide = |stream| {
            worker.arrive_costing(cost, stream, &["ann"]);
            let batch = worker.batch();
            worker.engine.failed(batch.id, &weir::engine::StoreFailure::Refused, worker.now);
            worker.engine.next_release().expect("decided").action
        };
        if cost == 2 {
            assert!(matches!(decide(1), Action::Admit));
        }
        let Action::Reject(rejection) = decide(2) else { panic!("a cost of {cost} is admitted") };
        let header = rejection.headers.iter().find(|header| header.name == "retry-after");
        assert_eq!(header.map(|header| header.value.as_ref()), retry_after, "a cost of {cost}");
        assert_eq!(rejection.grpc.pushback, pushback, "a cost of {cost}");
    }
}

/// All logs have so many entries together: what has no place counts with a later one, and that is counted.
#[test]
fn entries_without_a_place_are_counted() {
    const LOG: &str = r#"{"name": "l", "algorithm": "sliding_log", "limit": 10000, "window": "1d"}"#;
    let mut worker = Worker::new(r#"{"deadline": "50ms", "on_failure": "local"}"#, [policy(LOG)]);
    let admit = |worker: &mut Worker, stream: u32, subject: &str| {
        let admitted = worker.arrive(stream, &[subject]).unwrap_or_else(|| worker.lose()[0].1);
        assert!(admitted, "{stream}");
        worker.close(stream);
    };
    // With 1,024 subjects each has 128 entries.
    (0..1_024).for_each(|stream| admit(&mut worker, stream, &stream.to_string()));
    for (requests, merges) in [(127, false), (1, true)] {
        for _ in 0..requests {
            admit(&mut worker, 5_000, "7");
            worker.skip(Micros(1));
        }
        assert_eq!(worker.engine.counters().local_merged > 0, merges, "{requests} more");
    }
}
