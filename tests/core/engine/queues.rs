// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for a permit of a `concurrency` limit: in order, not for too long, and no permit is lost.

use weir::engine::{Action, StoreFailure, StreamId, Submitted};
use weir::policy::Check;
use weir::time::Micros;

use crate::worker::*;

/// A worker of one policy with five places, for which requests wait.
fn worker(max_wait: &str, max_waiting: usize) -> Worker {
    Worker::new(DENY, [policy(&queued(PLACES, max_wait, max_waiting))])
}

/// All places are taken.
fn full() -> Reply {
    granted(0).remaining(0).wait(secs(30))
}

fn granted_as(requests: i64, permit: i64) -> Reply {
    granted(requests).remaining(0).wait(secs(30)).permit(permit)
}

/// Requests arrive, ask, and are denied.
fn denied_at_first(worker: &mut Worker, streams: impl IntoIterator<Item = StreamId>) {
    worker.all_wait(streams, "ann");
    assert_eq!(worker.answer([full()]), [], "none is decided");
}

/// The tasks that the worker asks within this time, if the store has no place; each with its time since now.
fn asks_within(worker: &mut Worker, span: Micros) -> Vec<(u64, Task)> {
    let (begin, mut asked) = (worker.now, Vec::new());
    while worker.now < begin.plus(span) {
        worker.idle(ms(1));
        if let Some(batch) = worker.next_batch() {
            asked.extend(batch.tasks().into_iter().map(|task| (worker.now.since(begin).0 / 1_000, task)));
            let full = batch.each(full());
            assert_eq!(worker.reply(&batch, full), []);
        }
    }
    assert!(worker.next_tick() > Some(worker.now), "no turn is taken before it may ask");
    asked
}

#[test]
fn a_request_waits_until_a_place_is_free() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1]);
    assert_eq!((worker.engine.queued(), worker.engine.counters().queued), (1, 1));
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(20))), "nothing is done before");
    worker.idle(ms(20));
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 1)]);
    assert_eq!(worker.reply(&batch, [granted_as(1, 7)]), [(1, true)]);
    assert_eq!(worker.engine.queued(), 0);
    worker.close(1);
    assert_eq!(worker.drain(), [release("p0|ann", 7)]);
    assert_eq!((worker.engine.request_count(), worker.next_tick()), (0, None));
}

#[test]
fn it_asks_at_growing_intervals() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1]);
    let times: Vec<_> = asks_within(&mut worker, ms(1_000)).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [20, 60, 140, 300, 620, 940]);
}

/// The release has to reach the store first: it may come after the checks in a batch.
#[test]
fn it_asks_at_once_when_its_worker_has_released_a_place() {
    let mut worker = worker("2s", 100);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([granted_as(1, 7)]), [(1, true)]);
    denied_at_first(&mut worker, [2, 3]);
    asks_within(&mut worker, ms(100));
    worker.close(1);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [release("p0|ann", 7)]);
    assert_eq!(worker.reply(&batch, [done()]), []);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2)], "at once, and together");
    assert_eq!(worker.reply(&batch, [granted_as(1, 8)]), [(2, true)], "in order");
    // One that is released while they ask is not forgotten.
    worker.idle(ms(20));
    let batch = worker.batch();
    worker.close(2);
    worker.idle(ms(10));
    let releasing = worker.batch();
    worker.reply(&releasing, [done()]);
    assert_eq!(worker.next_batch().map(|batch| batch.tasks()), None, "they ask already");
    worker.reply(&batch, [full()]);
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 1)]);
}

/// A class, a scale, another policy of the same counters: the store is asked for each of them, about the same permits.
#[test]
fn a_released_place_wakes_all_queues_of_its_subject() {
    let places = || {
        format!(
            r#""counters": "c", "scale": {{"from": {{"header": {{"name": "x"}}}}, "max": 9}}, {}"#,
            policy(&queued(PLACES, "2s", 100))
        )
    };
    let mut worker = Worker::new(DENY, [places(), places()]);
    let of = |policy| check_of(policy, "{c|ann}", 1);
    let kinds = [
        of(0),
        Check { kept_percent: 20, ..of(0) },
        Check { scale: 2, ..of(0) },
        Check { scale: 3, kept_percent: 20, ..of(0) },
        of(1),
    ];
    let submit = |worker: &mut Worker, stream, check: &Check| {
        let decided = worker.engine.submit(stream, [check.clone()].into_iter().collect(), worker.now);
        assert!(matches!(decided, Submitted::Wait), "{check:?}");
    };
    submit(&mut worker, 1, &kinds[0]);
    assert_eq!(worker.answer([granted_as(1, 7)]), [(1, true)]);
    for (stream, check) in (2..).zip(&kinds) {
        submit(&mut worker, stream, check);
    }
    submit(&mut worker, 9, &check_of(0, "{c|bob}", 1));
    let batch = worker.batch();
    assert_eq!(worker.reply(&batch, batch.each(full())), []);
    asks_within(&mut worker, ms(100));
    worker.close(1);
    assert_eq!(worker.answer([done()]), []);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), vec![check("c|ann", 1); kinds.len()], "at once, and nobody else");
    let mut replies = batch.each(full());
    replies[3] = granted_as(1, 8);
    assert_eq!(worker.reply(&batch, replies), [(5, true)]);
}

/// The store's answer for one class says nothing about another.
#[test]
fn a_request_of_another_class_asks_for_itself() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1]);
    let submit = |worker: &mut Worker, stream, check| {
        let decided = worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
        assert!(matches!(decided, Submitted::Wait));
        worker.next_batch().map_or(0, |batch| batch.task_count())
    };
    let of = |kept_percent, cost| Check { kept_percent, ..check_of(0, "{p0|ann}", cost) };
    let rows = [
        ("of its class", of(0, 1), 0),
        ("of its class, at another cost", of(0, 2), 0),
        ("of another", of(20, 1), 1),
    ];
    for (stream, (name, check, asked)) in (2..).zip(rows) {
        assert_eq!(submit(&mut worker, stream, check), asked, "{name}");
    }
}

/// An idle request costs little, however many there are: of one subject, and of as many subjects.
#[test]
fn idle_requests_cost_the_store_little() {
    for (subjects, most) in [(1, 3 * 20 + 5), (160, 160 * (3 * 20 + 5)), (3_800, 500 * 20 + 500)] {
        let mut worker = worker("20s", 4_096);
        let mut first = 0;
        for stream in 0..3_800 {
            worker.all_wait([stream], &(stream % subjects).to_string());
        }
        while let Some(batch) = worker.next_batch() {
            first += batch.tasks().len();
            assert_eq!(worker.reply(&batch, batch.each(full())), []);
        }
        let asks = first + asks_within(&mut worker, secs(20).since(ms(1))).len();
        assert_eq!(worker.engine.queued(), 3_800);
        assert!(
            asks.saturating_sub(first) <= most,
            "{subjects} subjects: {asks} checks in 20 s, {first} at first"
        );
        worker.idle(ms(1));
        assert_eq!(worker.released().len(), 3_800, "none waits longer");
        assert_eq!(worker.next_tick(), None);
    }
}

#[test]
fn one_that_comes_later_does_not_overtake() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1, 2]);
    worker.all_wait([3], "ann");
    assert_eq!(worker.next_batch().map(|batch| batch.tasks()), None, "it is not asked about");
    worker.all_wait([4], "bob");
    assert_eq!(worker.answer([granted_as(1, 9)]), [(4, true)], "others have places of their own");
    worker.idle(ms(20));
    worker.all_wait([5], "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 3)]);
    assert_eq!(worker.reply(&batch, [granted_as(2, 7)]), [(1, true), (2, true)]);
    worker.idle(ms(20));
    assert_eq!(worker.answer([granted_as(2, 7)]), [(3, true), (5, true)]);
    // A request whose check was sent before the permit queue existed, and that is denied later, is ahead of those that came after it.
    worker.all_wait([6], "ann");
    let first = worker.batch();
    worker.all_wait([7], "ann");
    worker.idle(ms(10));
    let second = worker.batch();
    worker.reply(&first, [full()]);
    worker.all_wait([8], "ann");
    worker.reply(&second, [full()]);
    worker.idle(ms(20));
    assert_eq!(worker.answer([granted_as(2, 7)]), [(6, true), (7, true)]);
}

#[test]
fn at_most_sixteen_ask_together_and_the_next_at_once() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, 1..40);
    worker.idle(ms(20));
    for (asked, first) in [(16, 1), (16, 17), (7, 33)] {
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [check("p0|ann", asked)]);
        let first_of = worker.reply(&batch, [granted_as(asked, 7)])[0];
        assert_eq!(first_of, (first, true));
    }
}

#[test]
fn requests_of_another_cost_wait_in_the_same_line() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1]);
    worker.arrive_costing(5, 2, &["ann"]);
    worker.all_wait([3], "ann");
    worker.idle(ms(20));
    for (cost, stream) in [(1, 1), (5, 2), (1, 3)] {
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [Task { number: cost, ..check("p0|ann", 1) }]);
        assert_eq!(worker.reply(&batch, [granted_as(1, 7)]), [(stream, true)]);
    }
}

#[test]
fn no_request_waits_past_max_wait() {
    let mut worker = worker("100ms", 100);
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    worker.idle(ms(10));
    assert_eq!(worker.reply(&batch, [full()]), []);
    assert!(!asks_within(&mut worker, ms(89)).is_empty());
    worker.idle(ms(1));
    let last = worker.engine.next_release().expect("its rejection");
    let Action::Reject(rejection) = last.action else { panic!("no place was free") };
    assert_eq!((last.stream, rejection.status, worker.engine.queued()), (1, 429, 0));
    assert!(rejection.headers.iter().any(|header| header.value == r#""l";r=0"#), "{rejection:?}");
    assert_eq!(worker.engine.record(1).map(|record| record.outcome), Some("rejected"));
    worker.close(1);
    // Also while it asks: a grant that comes later is returned.
    denied_at_first(&mut worker, [2]);
    asks_within(&mut worker, ms(59));
    worker.idle(ms(1));
    let batch = worker.batch();
    worker.idle(ms(39));
    assert_eq!(worker.released(), []);
    worker.idle(ms(1));
    assert_eq!(worker.released(), [(2, false)]);
    worker.close(2);
    assert_eq!(worker.reply(&batch, [granted_as(1, 7)]), []);
    assert_eq!(worker.drain(), [refund("p0|ann", 1), release("p0|ann", 7)]);
    assert_eq!((worker.engine.request_count(), worker.engine.queued()), (0, 0));
}

#[test]
fn a_client_that_leaves_makes_room() {
    let mut worker = worker("2s", 2);
    denied_at_first(&mut worker, [1, 2]);
    assert_eq!(worker.arrive(3, &["ann"]), Some(false), "the line is full");
    worker.close(1);
    assert_eq!(worker.arrive(4, &["ann"]), None);
    worker.idle(ms(20));
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2)]);
    worker.close(2);
    assert_eq!(worker.reply(&batch, [granted_as(2, 7)]), [(4, true)]);
    assert_eq!(worker.drain(), [release("p0|ann", 7)], "the permit of the one that has left");
    worker.close(4);
    assert_eq!(worker.drain(), [release("p0|ann", 7)]);
    assert_eq!((worker.engine.queued(), worker.engine.request_count()), (0, 1), "that of 3");
}

/// Waiting is for requests that nothing else denies.
#[test]
fn what_else_is_denied_does_not_wait() {
    let rate = BUCKET.replace(r#""l""#, r#""rate""#);
    let both = format!("{rate}, {}", queued(PLACES, "2s", 100));
    let denied_by = |bucket: Micros, places: Micros| {
        let number = |wait: Micros| if wait == Micros::ZERO { [5, 0, 1, 0] } else { [0, micros(wait), 1, 0] };
        answer(0, &[number(bucket), number(places)].concat())
    };
    for (name, bucket, places, decided) in [
        ("by places alone", Micros::ZERO, secs(30), None),
        ("by the rate alone", secs(3), Micros::ZERO, Some(false)),
        ("by both", secs(3), secs(30), Some(false)),
    ] {
        let mut worker = Worker::new(DENY, [policy(&both)]);
        worker.all_wait([1], "ann");
        let found = worker.answer([denied_by(bucket, places)]);
        assert_eq!(found.first().map(|(_, admitted)| *admitted), decided, "{name}");
    }
    let places = || policy(&queued(PLACES, "2s", 100));
    let mut worker = Worker::new(DENY, [places(), places()]);
    worker.arrive(1, &["ann", "ann"]);
    assert_eq!(worker.answer([full(), full()]), [(1, false)], "by two policies");
    let mut worker = Worker::new(DENY, [format!(r#""mode": "shadow", {}"#, places())]);
    worker.all_wait([1], "ann");
    let shadow = Check { mode: weir::policy::Mode::Shadow, ..check_of(0, "{p0|bob}", 1) };
    worker.engine.submit(2, [shadow].into_iter().collect(), worker.now);
    assert_eq!(worker.answer([full(), full()]), [(2, true)], "shadow rejects nothing");
}

/// The grants of other policies stay charged while a request waits.
#[test]
fn grants_of_other_policies_are_refunded_if_it_waits_in_vain() {
    for in_vain in [true, false] {
        let mut worker = Worker::new(DENY, [policy(BUCKET), policy(&queued(PLACES, "100ms", 100))]);
        worker.arrive(1, &["ann", "all"]);
        assert_eq!(worker.answer([granted(1), full()]), []);
        assert_eq!(worker.drain(), [], "nothing is refunded yet");
        // Another request finds the permit queue, and asks only about its own subject.
        worker.arrive(2, &["bob", "all"]);
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [check("p0|bob", 1)]);
        assert_eq!(worker.reply(&batch, [granted(1)]), []);
        assert_eq!(worker.engine.queued(), 2);
        worker.idle(ms(20));
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [check("p1|all", 2)]);
        if in_vain {
            worker.reply(&batch, [full()]);
            worker.idle(ms(80));
            assert_eq!(worker.released(), [(1, false), (2, false)]);
            let settled = worker.drain();
            assert!(
                settled.contains(&refund("p0|ann", 1)) && settled.contains(&refund("p0|bob", 1)),
                "{settled:?}"
            );
        } else {
            assert_eq!(worker.reply(&batch, [granted_as(2, 7)]), [(1, true), (2, true)]);
            assert_eq!(worker.drain(), []);
        }
    }
}

/// A policy that `on_failure` has decided grants after all, while the request waits for a permit of another.
#[test]
fn a_late_grant_of_another_policy_is_kept_until_the_end() {
    for (store, admitted) in [(ALLOW, true), (ALLOW, false), (LOCAL, true), (LOCAL, false)] {
        let mut worker = Worker::new(store, [policy(BUCKET), policy(&queued(PLACES, "300ms", 100))]);
        worker.arrive(1, &["bob", "all"]);
        assert_eq!(worker.answer([granted(1), full()]), []);
        worker.arrive(2, &["ann", "all"]);
        let late = worker.batch();
        assert_eq!(late.tasks(), [check("p0|ann", 1)], "the permits have a line already");
        worker.idle(ms(25));
        let asking = worker.batch();
        worker.reply(&asking, [full()]);
        worker.idle(ms(35));
        assert_eq!(
            (worker.released(), worker.engine.queued()),
            (vec![], 2),
            "on_failure admits it, and it waits on"
        );
        worker.reply(&late, [granted(1)]);
        let mut decided = Vec::new();
        while worker.engine.queued() > 0 {
            worker.idle(ms(1));
            decided.extend(worker.released());
            if worker.engine.queued() > 0
                && let Some(batch) = worker.next_batch()
            {
                let reply = if admitted { granted_as(2, 7) } else { full() };
                decided.extend(worker.reply(&batch, [reply]));
            }
        }
        assert_eq!(decided, [(1, admitted), (2, admitted)]);
        let refunds = [refund("p0|bob", 1), refund("p0|ann", 1)];
        let settled = worker.drain();
        assert!(refunds.iter().all(|refund| settled.contains(refund) != admitted), "{settled:?}");
    }
}

/// A request that `on_failure` rejects has no use for a permit; one that it lets through may wait for it.
#[test]
fn a_request_that_on_failure_denies_does_not_wait() {
    for (on_failure, found) in [("deny", vec![(1, false)]), ("allow", vec![])] {
        let other = format!(r#""on_failure": "{on_failure}", {}"#, policy(BUCKET));
        let mut worker = Worker::new(DENY, [other, policy(&queued(PLACES, "2s", 100))]);
        worker.arrive(1, &["ann", "all"]);
        assert_eq!(worker.answer([error("OOM"), full()]), found, "{on_failure}");
    }
}

/// A denial that comes at the very end of `max_wait` is the last.
#[test]
fn a_denial_at_the_end_of_max_wait_decides() {
    let mut worker = worker("40ms", 100);
    denied_at_first(&mut worker, [1]);
    worker.idle(ms(20));
    let batch = worker.batch();
    worker.skip(ms(20));
    assert_eq!(worker.reply(&batch, [full()]), [(1, false)]);
    assert_eq!(worker.engine.queued(), 0);
}

/// A client gets the store's last answer.
#[test]
fn a_request_that_waited_in_vain_is_rejected_by_the_last_denial() {
    let mut worker = worker("100ms", 100);
    denied_at_first(&mut worker, [1]);
    worker.idle(ms(20));
    let batch = worker.batch();
    assert_eq!(worker.reply(&batch, [granted(0).remaining(3).wait(secs(30))]), []);
    worker.idle(ms(80));
    assert_eq!(worker.released(), [(1, false)]);
    assert_eq!(worker.remaining(1), 3);
}

/// If too many requests wait, another subject gets no permit queue: its next request asks, when there is a place again.
#[test]
fn a_subject_without_a_place_to_wait_is_asked_about_again() {
    let mut worker = worker("1s", 4_096);
    denied_at_first(&mut worker, [0]);
    worker.all_wait(1..4_096, "ann");
    assert_eq!(worker.engine.queued(), 4_096);
    worker.all_wait([5_000], "bob");
    assert_eq!(worker.answer([full()]), [(5_000, false)], "no room");
    worker.engine.retire();
    (0..4_096).for_each(|stream| worker.close(stream));
    assert_eq!(worker.engine.queued(), 0);
    worker.drain();
    worker.all_wait([5_001], "bob");
    assert_eq!(worker.batch().tasks(), [check("p0|bob", 1)]);
}

/// While the store is overloaded, it is not asked for a permit queue. The queue asks later, even if no permit is released.
#[test]
fn a_line_asks_again_after_the_store_was_overloaded() {
    let mut worker = worker("5s", 100);
    let mut streams = 1_000..;
    let mut arrive = |worker: &mut Worker, count: usize| {
        streams.by_ref().take(count).for_each(|stream| {
            worker.waits_alone(stream);
        });
    };
    // The store grants a permit to all but ann.
    let answer = |worker: &mut Worker, batch: &Batch| {
        let reply = |task: &Task| if task.tag == "p0|ann" { full() } else { granted_as(1, 7) };
        let replies = batch.commands.iter().map(|of| match &of.tasks[..] {
            [task] => reply(task),
            tasks => together(tasks.iter().map(reply)),
        });
        worker.reply(batch, replies.collect::<Vec<_>>());
    };
    // It gets slower, and ann is denied.
    for takes in [1, 1, 40, 40, 20] {
        if takes == 20 {
            worker.all_wait([1], "ann");
        }
        arrive(&mut worker, 39);
        let batch = worker.batch();
        worker.idle(ms(takes));
        answer(&mut worker, &batch);
    }
    assert_eq!(worker.engine.queued(), 1);
    let slow = worker.batch();
    arrive(&mut worker, 300);
    worker.idle(ms(20));
    assert!(worker.failures().contains(&StoreFailure::Overloaded), "not all of them wait");
    answer(&mut worker, &slow);
    let asks = |batch: &Batch| batch.tasks().contains(&check("p0|ann", 1));
    let mut waited = 0;
    loop {
        match worker.next_batch() {
            Some(batch) if asks(&batch) => break,
            Some(batch) => answer(&mut worker, &batch),
            None => worker.idle(ms(1)),
        }
        waited += 1;
        assert!(waited < 500, "it does not ask again");
    }
}

/// When the store fails, `on_failure` decides those that wait, as it decides others.
#[test]
fn without_the_store_on_failure_decides() {
    for (store, admitted) in [(ALLOW, true), (DENY, false)] {
        let mut worker = Worker::new(store, [policy(&queued(PLACES, "2s", 100))]);
        denied_at_first(&mut worker, [1, 2]);
        worker.idle(ms(20));
        assert_eq!(worker.lose(), [(1, admitted), (2, admitted)], "{store}");
        assert_eq!(worker.engine.queued(), 0);
        // Its deadline counts from when it asks: that of the first question is over long since.
        let mut worker = Worker::new(store, [policy(&queued(PLACES, "2s", 100))]);
        denied_at_first(&mut worker, [1]);
        worker.idle(ms(20));
        let batch = worker.batch();
        worker.idle(ms(48));
        assert_eq!(worker.released(), [], "{store}: the deadline is 50 ms");
        worker.idle(ms(15));
        assert_eq!(worker.released(), [(1, admitted)], "{store}");
        worker.reply(&batch, [full()]);
    }
}

/// Requests that ask and requests that wait do not affect others that have to be decided.
#[test]
fn other_requests_keep_their_deadlines() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1, 2]);
    worker.idle(ms(19));
    worker.all_wait([3], "bob");
    let lost = worker.batch();
    worker.idle(ms(11));
    let asking = worker.batch();
    assert_eq!(asking.tasks(), [check("p0|ann", 2)]);
    worker.reply(&asking, [full()]);
    worker.idle(ms(50));
    assert_eq!(worker.released(), [(3, false)], "at its deadline");
    worker.fail(&lost);
}

/// Without a timer nothing would end its wait.
#[test]
fn a_request_that_cannot_wait_is_rejected_at_once() {
    let mut worker = worker("2s", 100);
    denied_at_first(&mut worker, [1]);
    worker.all_wait([2], "ann");
    let decided = worker.engine.cannot_wait(2, worker.now);
    assert!(matches!(decided, Submitted::Decided(Action::Reject(rejection)) if rejection.status == 429));
    assert_eq!(worker.engine.queued(), 1, "the other waits on");
}

#[test]
fn a_retired_worker_decides_those_that_wait() {
    let mut worker = worker("100ms", 100);
    denied_at_first(&mut worker, [1, 2]);
    worker.engine.retire();
    worker.idle(ms(20));
    assert_eq!(worker.answer([granted_as(1, 7)]), [(1, true)]);
    asks_within(&mut worker, ms(79));
    worker.idle(ms(1));
    assert_eq!(worker.released(), [(2, false)]);
}

#[cfg(not(target_arch = "wasm32"))]
mod property {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const MAX_WAIT: Micros = ms(300);
    const PLACES: i64 = 5;

    #[derive(Clone, Debug)]
    enum Step {
        Arrive,
        Send,
        Reply(usize),
        Close(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Arrive),
            4 => Just(Step::Send),
            4 => any::<usize>().prop_map(Step::Reply),
            3 => any::<usize>().prop_map(Step::Close),
            3 => (1..40u64).prop_map(Step::Pass),
        ]
    }

    /// A worker, the permits in the store, and the requests that are open: when each came, and whether it was admitted.
    struct World {
        worker: Worker,
        held: BTreeMap<i64, i64>,
        in_flight: Vec<(Batch, Vec<Reply>)>,
        open: BTreeMap<StreamId, (Micros, Option<bool>)>,
        next: StreamId,
        permit: i64,
        /// True if each batch is answered before anything else happens: then order is strict.
        prompt: bool,
    }

    impl World {
        fn step(&mut self, step: &Step) {
            match *step {
                Step::Arrive => {
                    let decided = self.worker.arrive(self.next, &["ann"]);
                    self.open.insert(self.next, (self.worker.now, decided));
                    self.next += 1;
                }
                Step::Send => self.send(),
                Step::Reply(which) if !self.in_flight.is_empty() => self.reply(which % self.in_flight.len()),
                Step::Close(which) if !self.open.is_empty() => {
                    let stream = *self.open.keys().nth(which % self.open.len()).unwrap();
                    self.close(stream);
                }
                Step::Pass(millis) => (0..millis).for_each(|_| self.pass()),
                Step::Reply(_) | Step::Close(_) => {}
            }
        }

        fn pass(&mut self) {
            self.worker.idle(ms(1));
            while let Some(id) = self.worker.engine.next_abandoned() {
                // Its reply is lost, and its permits end with their ttl.
                let place = self.in_flight.iter().position(|(batch, _)| batch.id == id).unwrap();
                for reply in self.in_flight.remove(place).1 {
                    if let Reply::Check(answers) = reply {
                        self.held.remove(&answers[0].limits[0].extra);
                    }
                }
            }
            let released = self.worker.released();
            self.decided(released);
            let now = self.worker.now;
            let waits =
                |(came, decided): &(Micros, Option<bool>)| decided.is_none() && now > came.plus(MAX_WAIT);
            assert!(!self.open.values().any(waits), "{:?} at {now:?}", self.open);
        }

        fn decided(&mut self, released: Vec<(StreamId, bool)>) {
            for (stream, admitted) in released {
                let Some((_, decided)) = self.open.get_mut(&stream) else { continue };
                assert_eq!(decided.replace(admitted), None, "decided once");
                let first = self.open.iter().find(|(_, (_, decided))| decided.is_none());
                let overtakes = admitted && first.is_some_and(|(first, _)| *first < stream);
                assert!(!self.prompt || !overtakes, "{stream} overtakes {first:?}");
            }
        }

        fn close(&mut self, stream: StreamId) {
            self.open.remove(&stream);
            self.worker.close(stream);
        }

        /// The store executes a batch when it is sent.
        fn send(&mut self) {
            let Some(batch) = self.worker.next_batch() else { return };
            let replies = batch.tasks().into_iter().map(|task| self.execute(&task)).collect();
            self.in_flight.push((batch, replies));
            if self.prompt {
                self.reply(0);
            }
        }

        fn execute(&mut self, task: &Task) -> Reply {
            if task.verb == Verb::Release {
                let held = self.held.get_mut(&task.number).expect("a permit that is held");
                *held -= task.requests;
                assert!(*held >= 0, "{task:?} releases more than is held");
            }
            if task.verb != Verb::Check {
                return done();
            }
            let grant = task.requests.min(PLACES - self.used());
            self.permit += 1;
            self.held.insert(self.permit, grant);
            let wait = if self.used() == PLACES { secs(30) } else { Micros::ZERO };
            let permit = if grant > 0 { self.permit } else { 0 };
            granted(grant).remaining(PLACES - self.used()).wait(wait).permit(permit)
        }

        fn used(&self) -> i64 {
            self.held.values().sum()
        }

        fn reply(&mut self, which: usize) {
            let (batch, replies) = self.in_flight.remove(which);
            let released = self.worker.reply(&batch, replies);
            self.decided(released);
        }

        /// All is answered and closed: no permit is held, and nothing is remembered.
        fn end(&mut self) {
            (0..2_000).for_each(|_| {
                while !self.in_flight.is_empty() {
                    self.reply(0);
                }
                self.send();
                self.pass();
                if let Some((&stream, _)) = self.open.iter().find(|(_, (_, decided))| decided.is_some()) {
                    self.close(stream);
                }
            });
            assert!(self.open.is_empty(), "{:?}", self.open);
            assert_eq!(
                (self.used(), self.worker.engine.request_count(), self.worker.engine.queued()),
                (0, 0, 0)
            );
            // A breaker that no request closes counts as an outage for two minutes.
            self.worker.skip(secs(130));
            self.worker.idle(ms(1));
            assert_eq!(self.worker.next_tick(), None, "nothing is left to do");
        }
    }

    proptest! {
        #![proptest_config(crate::tried::tried(200))]
        #[test]
        fn no_permit_is_lost_and_no_request_waits_too_long_or_is_overtaken(
            steps in prop::collection::vec(step(), 1..150),
            prompt in any::<bool>(),
        ) {
            let mut world = World {
                worker: worker("300ms", 6),
                held: BTreeMap::new(),
                in_flight: Vec::new(),
                open: BTreeMap::new(),
                next: 1,
                permit: 100,
                prompt,
            };
            steps.iter().for_each(|step| world.step(step));
            world.end();
        }
    }
    proptest! {
        #![proptest_config(crate::tried::tried(20))]
        /// No other worker says that it has released a permit. It is found within the longest pause if at most 160 subjects wait, and
        /// within as many five-hundredths of a second as subjects wait otherwise; each time for the first request of its subject.
        #[test]
        fn a_permit_that_another_worker_has_released_is_found_in_time(
            subjects in prop_oneof![1..160_u32, 161..1_000_u32],
            released in prop::collection::vec((0..2_000_u64, any::<u32>()), 1..8),
        ) {
            let mut worker = worker("60s", 4_096);
            let released: Vec<_> = released.into_iter().map(|(at, which)| (at, which % subjects)).collect();
            // Each subject has a request, those that get a permit more.
            let more = released.iter().map(|(_, which)| *which);
            let order: Vec<_> = (0..subjects).chain(more).collect();
            for (stream, subject) in (0..).zip(&order) {
                worker.all_wait([stream], &subject.to_string());
            }
            let longest = ms(if subjects <= 160 { 321 } else { 321 + u64::from(subjects) * 2 });
            let mut places: BTreeMap<u32, Vec<Micros>> = BTreeMap::new();
            let begin = worker.now;
            while worker.now < begin.plus(secs(5)) {
                let passed = worker.now.since(begin).0 / 1_000;
                for (_, which) in released.iter().filter(|(at, _)| *at == passed) {
                    places.entry(*which).or_default().push(worker.now);
                }
                while let Some(batch) = worker.next_batch() {
                    let replies: Vec<_> = batch.tasks().iter().map(|task| {
                        let which: u32 = task.tag.strip_prefix("p0|").unwrap().parse().unwrap();
                        let free = places.get_mut(&which).map_or(0, |free| {
                            let granted = free.len().min(task.requests as usize);
                            for since in free.drain(..granted) {
                                assert!(worker.now <= since.plus(longest), "{subjects}: {since:?}");
                            }
                            granted
                        });
                        granted_as(free as i64, 7)
                    }).collect();
                    for (stream, admitted) in worker.reply(&batch, replies) {
                        let subject = order[stream as usize];
                        let before = order.iter().zip(0..stream).filter(|(of, _)| **of == subject);
                        prop_assert!(admitted);
                        for (_, earlier) in before {
                            prop_assert!(worker.engine.headers_to_add(earlier).is_some(), "{stream} before {earlier}");
                        }
                    }
                }
                worker.idle(ms(1));
            }
            prop_assert!(places.values().all(Vec::is_empty), "all are found");
            prop_assert_eq!(worker.engine.queued() as usize, order.len() - released.len());
        }
    }
}
