// SPDX-License-Identifier: Apache-2.0
//! Requests that are reserved in advance: how many, how long they are kept, that the rest is refunded, and the answers to clients
//! meanwhile.

use weir::engine::StreamId;
use weir::time::Micros;

use crate::worker::*;

const SHORT: &str = r#"{"max": 8, "min": 2, "duration": "100ms"}"#;
const LONG: &str = r#"{"max": 8, "min": 2, "duration": "5s"}"#;

fn short() -> Worker {
    Worker::new(ALLOW, [leased(SHORT, WINDOW)])
}

fn long() -> Worker {
    Worker::new(DENY, [leased(LONG, WINDOW)])
}

/// One request asks, and all that it asks for is granted. Returns how many are on lease then.
fn lease_to(worker: &mut Worker, stream: StreamId) -> i64 {
    lease_of(worker, stream, 97)
}

/// The same, of a limit that has so much left then, and is full again in a minute.
fn lease_of(worker: &mut Worker, stream: StreamId, remaining: i64) -> i64 {
    lease_until(worker, stream, remaining, MINUTE)
}

fn lease_until(worker: &mut Worker, stream: StreamId, remaining: i64, reset: Micros) -> i64 {
    assert_eq!(worker.arrive(stream, &["ann"]), None, "nothing is on lease");
    let batch = worker.batch();
    let [task] = batch.tasks().try_into().expect("one task");
    let all = granted(task.requests).remaining(remaining).reset(reset);
    assert_eq!(worker.reply(&batch, [all]), [(stream, true)]);
    task.requests - 1
}

/// Each of these requests is served from the lease.
fn all_served(worker: &mut Worker, streams: impl IntoIterator<Item = StreamId>) {
    streams
        .into_iter()
        .for_each(|stream| assert_eq!(worker.arrive(stream, &["ann"]), Some(true), "{stream}"));
}

/// Unused units on lease are refunded, and the store has done it.
fn takes_back(worker: &mut Worker) {
    let batch = worker.batch();
    assert_eq!((worker.engine.on_lease(), batch.tasks().len()), (0, 1));
    worker.reply(&batch, [done()]);
}

// --- How many ---------------------------------------------------------------------------------------------------------

#[test]
fn a_request_on_lease_is_admitted_without_asking_and_the_lease_grows_with_use() {
    let mut worker = short();
    let mut streams = 1..;
    let sizes = [2, 2, 4, 8, 8].map(|expected| {
        let taken = lease_to(&mut worker, streams.next().expect("a number"));
        let count = usize::try_from(taken).expect("a count");
        assert_eq!(worker.engine.on_lease(), count as u64, "{expected}");
        all_served(&mut worker, streams.by_ref().take(count));
        assert_eq!(worker.engine.on_lease(), 0);
        taken
    });
    assert_eq!(sizes, [2, 4, 8, 8, 8]);
}

/// A lease is of units: it is enough for a request of the subject at any cost up to its rest. Unused units are refunded.
#[test]
fn a_lease_serves_requests_of_any_cost() {
    let mut worker = short();
    let costs = |worker: &mut Worker, stream, cost| worker.arrive_costing(cost, stream, &["ann"]);
    assert_eq!(costs(&mut worker, 1, 5), None);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [Task { number: 5, ..check("p0|ann", 3) }], "two in advance");
    worker.reply(&batch, [granted(3).remaining(85)]);
    assert_eq!(worker.engine.on_lease(), 10);
    assert_eq!(
        [(2, 3), (3, 4), (4, 1)].map(|(stream, cost)| costs(&mut worker, stream, cost)),
        [Some(true); 3]
    );
    assert_eq!((worker.engine.on_lease(), worker.remaining(4)), (2, 87));
    // It does not have so many, so the store is asked. With the units that it holds, it has eight requests of this cost at most.
    assert_eq!(costs(&mut worker, 5, 3), None);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [Task { number: 3, ..check("p0|ann", 1 + 4) }]);
    worker.reply(&batch, [granted(1)]);
    worker.idle(ms(110));
    assert_eq!(worker.drain(), [refund("p0|ann", 2)]);
}

#[test]
fn a_subject_that_would_hardly_use_a_lease_gets_none() {
    let bucket = BUCKET.replace(r#""burst": 10"#, r#""burst": 1000"#);
    let mut worker = Worker::new(ALLOW, [leased(r#"{"max": 100, "min": 10, "duration": "1s"}"#, &bucket)]);
    let mut stream = 0;
    let mut asks = |worker: &mut Worker, count: u32| {
        stream += 1;
        let admitted = (0..count).map(|more| worker.arrive(stream * 100 + more, &["ann"]));
        assert!(admitted.filter(Option::is_none).count() > 0, "nothing is on lease");
        let batch = worker.batch();
        let requests = batch.tasks()[0].requests;
        worker.reply(&batch, [granted(requests)]);
        requests
    };
    // Half of the minimum, within a lease's duration: one by one, or at once.
    let one_by_one = [1; 5].map(|count| asks(&mut worker, count));
    assert_eq!(one_by_one, [1, 1, 1, 1, 11]);
    // The subject rests. Its unused units are refunded, and it is unknown again.
    worker.idle(secs(1));
    takes_back(&mut worker);
    assert_eq!([4, 1].map(|count| asks(&mut worker, count)), [4, 11]);
    worker.idle(secs(1));
    takes_back(&mut worker);
    // Too slowly.
    for _ in 0..4 {
        assert_eq!(asks(&mut worker, 4), 4);
        worker.idle(ms(1_001));
    }
    // It uses its lease, and keeps it.
    assert_eq!(asks(&mut worker, 5), 15);
    for round in 0..3 {
        all_served(&mut worker, (0..6).map(|more| 9_000 + round * 10 + more));
        worker.idle(secs(1));
        takes_back(&mut worker);
        assert_eq!(asks(&mut worker, 1), 11, "round {round}");
    }
}

/// The size of a lease follows the subject: see `engine/subject/lease.rs`.
#[test]
fn a_lease_that_is_half_used_is_kept_and_one_that_is_used_less_is_halved() {
    for (used, size) in [(0, 4), (3, 4), (4, 8), (5, 8), (8, 8)] {
        let second = r#"{"max": 8, "min": 2, "duration": "1s"}"#;
        let mut worker = Worker::new(DENY, [leased(second, WINDOW)]);
        let mut streams = 1..;
        // It runs out of two, then of four, and has eight.
        for wanted in [2, 4, 8] {
            assert_eq!(lease_to(&mut worker, 100 + StreamId::try_from(wanted).expect("few")), wanted);
            let served = if wanted == 8 { used } else { wanted };
            all_served(&mut worker, streams.by_ref().take(usize::try_from(served).expect("few")));
        }
        let left = i64::try_from(worker.engine.on_lease()).expect("few");
        worker.idle(secs(1));
        let returned: i64 = worker.drain().iter().map(|task| task.number).sum();
        assert_eq!(returned, left, "{used} of 8 used");
        assert_eq!(left, 8 - used);
        assert_eq!(lease_to(&mut worker, 200), size, "{used} of 8 used");
    }
}

#[test]
fn a_request_that_arrives_while_a_lease_is_on_its_way_is_served_from_it() {
    let mut worker = short();
    worker.all_wait([1], "ann");
    let first = worker.batch();
    worker.all_wait([2, 3, 4], "ann");
    assert_eq!(worker.reply(&first, [granted(3)]), [(1, true)]);
    // The two on lease are for two of them; what the third asks for in advance is twice as much, for they have run out.
    let second = worker.batch();
    assert_eq!(
        (worker.released(), second.tasks()),
        (vec![(2, true), (3, true)], vec![check("p0|ann", 1 + 4)])
    );
    assert_eq!(worker.reply(&second, [granted(5)]), [(4, true)]);
    assert_eq!(worker.engine.on_lease(), 4);
    // When all can be served nothing is asked.
    worker.all_wait([5], "bob");
    worker.answer([granted(1)]);
    assert!(!worker.engine.wants_to_send());
}

#[test]
fn a_partial_lease_serves_the_requests_that_wait_first() {
    let mut worker = short();
    worker.all_wait(1..=3, "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 5)]);
    assert_eq!(worker.reply(&batch, [granted(2).wait(secs(1))]), [(1, true), (2, true), (3, false)]);
    assert_eq!(worker.engine.on_lease(), 0);
}

#[test]
fn a_worker_never_holds_more_than_max_on_lease() {
    let bucket = BUCKET.replace(r#""burst": 10"#, r#""burst": 1000"#);
    let mut worker = Worker::new(ALLOW, [leased(r#"{"max": 8, "min": 8}"#, &bucket)]);
    worker.all_wait(21..25, "ann");
    let first = worker.batch();
    assert_eq!(first.tasks(), [check("p0|ann", 4 + 8)]);
    // Two batches ask about the subject at once: what the first asks for counts already, and again if it has to repeat it.
    worker.all_wait([2], "ann");
    worker.idle(ms(11));
    let second = worker.batch();
    assert_eq!(second.tasks(), [check("p0|ann", 1)]);
    worker.reply(&second, [granted(1)]);
    worker.reply(&first, [noscript()]);
    let again = worker.batch();
    assert_eq!((again.by_source(), again.tasks()), (true, vec![check("p0|ann", 4 + 8)]));
    worker.reply(&again, [granted(4 + 8)]);
    assert_eq!(worker.engine.on_lease(), 8);
    // One that fails no longer counts.
    all_served(&mut worker, 3..11);
    worker.all_wait([11], "ann");
    worker.lose();
    worker.all_wait([12], "ann");
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 9)]);
}

#[test]
fn a_subject_whose_lease_never_came_has_to_show_again_that_it_would_use_one() {
    let store = ALLOW.replace("50ms", "1s");
    let mut worker = Worker::new(&store, [leased(r#"{"max": 8, "min": 8, "duration": "100ms"}"#, WINDOW)]);
    worker.all_wait(1..=4, "ann");
    let lost = worker.batch();
    assert_eq!(lost.tasks(), [check("p0|ann", 4 + 8)]);
    // For as long as a lease lasts the subject gets none; then it is known that it will not.
    worker.idle(ms(101));
    worker.all_wait(5..=8, "ann");
    let next = worker.batch();
    assert_eq!(next.tasks(), [check("p0|ann", 4)], "eight may still come: no more are asked for");
    worker.fail(&next);
    worker.all_wait(10..=13, "ann");
    let third = worker.batch();
    assert_eq!(third.tasks(), [check("p0|ann", 4)], "they may still come");
    worker.reply(&third, [granted(4)]);
    worker.fail(&lost);
    worker.all_wait([9], "ann");
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 1)]);
}

#[test]
fn a_subject_that_others_hold_on_lease_is_asked_about_again_when_they_may_be_back() {
    let mut worker = short();
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([denied(DAY)]), [(1, false)]);
    worker.idle(ms(99));
    assert_eq!(worker.arrive(2, &["ann"]), Some(false));
    worker.idle(ms(1));
    assert_eq!(worker.arrive(3, &["ann"]), None);
}

// --- How long ---------------------------------------------------------------------------------------------------------

#[test]
fn what_is_left_is_refunded_when_the_lease_ends() {
    let mut worker = short();
    assert_eq!(lease_to(&mut worker, 1), 2);
    let end = worker.now.plus(ms(100));
    assert_eq!(worker.next_tick(), Some(end), "the end of the lease");
    worker.idle(ms(99));
    assert!(!worker.engine.wants_to_send() && worker.engine.on_lease() == 2);
    worker.idle(ms(1));
    assert_eq!(worker.engine.on_lease(), 0);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [refund("p0|ann", 2)]);
    worker.reply(&batch, [done()]);
    assert_eq!(worker.next_tick(), None);
}

#[test]
fn a_tick_at_the_moment_of_a_grant_ends_no_lease() {
    let mut worker = long();
    lease_to(&mut worker, 1);
    worker.engine.tick(worker.now);
    worker.engine.tick(worker.now);
    assert_eq!(worker.engine.on_lease(), 2);
}

#[test]
fn a_lease_that_has_ended_serves_no_request_before_the_tick_that_returns_it() {
    let mut worker = long();
    lease_to(&mut worker, 1);
    worker.skip(secs(5).since(Micros(1)));
    all_served(&mut worker, [2]);
    worker.skip(Micros(1));
    worker.all_wait([3], "ann");
}

#[test]
fn a_lease_of_a_window_ends_with_it() {
    let mut worker = long();
    lease_until(&mut worker, 1, 97, secs(1));
    worker.idle(ms(999));
    assert_eq!(worker.engine.on_lease(), 2);
    worker.idle(ms(1));
    assert_eq!(worker.engine.on_lease(), 0);
    assert_eq!(worker.batch().tasks(), [refund("p0|ann", 2)]);
    // A bucket has no window: its lease goes on.
    let mut worker = Worker::new(DENY, [leased(LONG, BUCKET)]);
    lease_until(&mut worker, 1, 7, secs(1));
    worker.idle(ms(1_001));
    assert_eq!(worker.engine.on_lease(), 2);
}

// --- A worker that ends -----------------------------------------------------------------------------------------------

#[test]
fn a_worker_that_ends_refunds_what_it_has_on_lease() {
    let mut worker = short();
    lease_to(&mut worker, 1);
    worker.engine.retire();
    assert_eq!((worker.engine.on_lease(), worker.batch().commands.len()), (0, 1));
}

/// If a worker has ended meanwhile, the requests granted to it in advance are refunded at once.
#[test]
fn a_lease_that_comes_after_the_worker_has_ended_is_refunded() {
    let mut worker = long();
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    worker.all_wait([2, 3], "ann");
    worker.engine.retire();
    assert_eq!(worker.reply(&batch, [granted(3)]), [(1, true)]);
    assert_eq!(worker.engine.on_lease(), 0);
    assert_eq!(worker.drain(), [check("p0|ann", 2), refund("p0|ann", 2)], "it asks for none in advance");
}

/// When something is ready to leave, a tick follows, because the wake-up that was requested may be lost.
#[test]
fn what_is_ready_does_not_depend_on_a_wake_up() {
    let minute = SHORT.replace("100ms", "1m");
    let mut worker = Worker::new(ALLOW, [leased(&minute, WINDOW)]);
    assert_eq!(worker.next_tick(), None, "nothing is ready");
    lease_to(&mut worker, 1);
    worker.engine.retire();
    assert!(worker.engine.wants_to_send() && !worker.engine.in_flight(), "a refund is");
    let soon = worker.now.plus(ms(5));
    assert!(worker.next_tick().is_some_and(|tick| tick <= soon));
    worker.answer([done()]);
    assert_eq!(worker.next_tick(), None, "it is done");
}

// --- A clock that is set back -----------------------------------------------------------------------------------------

#[test]
fn a_clock_that_was_set_back_prolongs_no_lease() {
    for back in [Micros(1), ms(50), secs(3_600), START] {
        let mut worker = Worker::new(DENY, [leased(SHORT, WINDOW)]);
        lease_to(&mut worker, 1);
        worker.idle(ms(10));
        worker.set_back(back);
        assert_eq!(worker.arrive(2, &["ann"]), None, "back by {back}: its age is unknown");
        worker.engine.tick(worker.now);
        assert_eq!(worker.engine.on_lease(), 0, "back by {back}: it is not stranded");
        let batch = worker.batch();
        let tasks = batch.tasks();
        let refunds = tasks.iter().filter(|task| task.verb == Verb::Refund);
        assert_eq!(refunds.map(|task| task.number).sum::<i64>(), 2, "back by {back}: {tasks:?}");
        // And leases go on as before, in the time that is now.
        worker.reply(&batch, tasks.iter().map(|task| granted(task.requests).remaining(90).reset(MINUTE)));
        assert!(worker.engine.on_lease() > 0, "back by {back}");
        worker.idle(ms(101));
        assert_eq!(worker.engine.on_lease(), 0, "back by {back}");
        worker.released();
        while let Some(batch) = worker.next_batch() {
            let replies = batch.each(denied(DAY));
            worker.reply(&batch, replies);
        }
        worker.idle(secs(1));
        assert_eq!(worker.next_tick(), None, "back by {back}: nothing is remembered for ever");
    }
}

#[test]
fn a_lease_that_was_on_its_way_when_the_clock_was_set_back_is_not_kept() {
    let mut worker = long();
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    worker.set_back(secs(3_600));
    worker.engine.tick(worker.now);
    let all = granted(batch.tasks()[0].requests).remaining(97).reset(MINUTE);
    assert_eq!(worker.reply(&batch, [all]), [(1, true)]);
    worker.engine.tick(worker.now);
    assert_eq!(worker.engine.on_lease(), 0);
    assert_eq!(worker.batch().tasks(), [refund("p0|ann", 2)]);
}

#[test]
fn a_subject_that_rests_without_a_lease_is_forgotten_after_the_clock_was_set_back() {
    let mut worker = Worker::new(DENY, [leased(SHORT, WINDOW)]);
    lease_to(&mut worker, 1);
    all_served(&mut worker, [2, 3]);
    worker.set_back(secs(3_600));
    worker.idle(secs(1));
    assert_eq!(worker.next_tick(), None);
}

// --- What clients are told --------------------------------------------------------------------------------------------

#[test]
fn remaining_counts_what_is_on_lease() {
    let mut worker = long();
    assert_eq!(lease_of(&mut worker, 1, 97), 2);
    all_served(&mut worker, [2, 3]);
    // Asked for again: more is taken in advance, and no other client used any.
    assert_eq!(lease_of(&mut worker, 4, 92), 4);
    all_served(&mut worker, [5]);
    let remaining: Vec<_> = (1..=5).map(|stream| worker.remaining(stream)).collect();
    assert_eq!(remaining, [99, 98, 97, 96, 95]);
    // The last of them, of a limit that is used up.
    all_served(&mut worker, [6, 7, 8]);
    assert_eq!(worker.remaining(8), 92);
}

#[test]
fn what_several_grants_hold_is_counted_once_each_and_no_longer_than_they_last() {
    let mut worker = Worker::new(DENY, [leased(r#"{"max": 8, "min": 4, "duration": "1s"}"#, WINDOW)]);
    worker.all_wait([1, 2], "ann");
    let first = worker.batch();
    assert_eq!(first.tasks(), [check("p0|ann", 2 + 4)]);
    worker.all_wait([3], "ann");
    worker.idle(ms(11));
    let second = worker.batch();
    assert_eq!(second.tasks(), [check("p0|ann", 1 + 4)]);
    // 100. 6 and then 5 of them are charged; 4 + 4 of these are on lease. The answers overtake each other.
    worker.reply(&second, [granted(5).at(START.plus(ms(11))).remaining(89).reset(MINUTE)]);
    assert_eq!(worker.remaining(3), 93);
    worker.reply(&first, [granted(6).remaining(94).reset(MINUTE)]);
    // The store had 89 left after both, whichever answer is read last.
    assert_eq!([1, 2].map(|stream| worker.remaining(stream)), [89 + 9, 89 + 8]);
    all_served(&mut worker, [4]);
    assert_eq!(worker.remaining(4), 89 + 7);
    // The first lease ends at this very microsecond: its rest serves no request, and no longer counts.
    worker.now = START.plus(secs(1));
    all_served(&mut worker, [5]);
    assert_eq!(worker.remaining(5), 89 + 2);
}

#[test]
fn what_is_known_under_a_lease_is_as_old_as_the_lease() {
    const TWO: &str = r#"{"name": "a", "algorithm": "fixed_window", "limit": 100, "window": "1d"},
        {"name": "b", "algorithm": "fixed_window", "limit": 3, "window": "1d"}"#;
    let mut worker = Worker::new(DENY, [leased(r#"{"max": 8, "min": 6, "duration": "5s"}"#, TWO)]);
    worker.all_wait(1..=3, "ann");
    // The first has nothing left in Redis, and six on lease here; the second has filled up.
    let minute = micros(MINUTE);
    worker.answer([granted(9).remaining(0).wait(MINUTE).reset(MINUTE).and(&[3, 0, minute, 0])]);
    worker.skip(secs(2));
    all_served(&mut worker, [4]);
    let record = worker.engine.record(4).expect("a record");
    // Neither denies the next request: the one nearer its end is named.
    assert_eq!((record.limit, record.remaining), ("b", Some(3)));
    let mut worker = long();
    lease_to(&mut worker, 1);
    worker.skip(secs(2));
    all_served(&mut worker, [2]);
    let reset = worker.engine.record(2).expect("a record").reset;
    assert_eq!(reset, Some(secs(58)), "two seconds after the store said a minute");
}

#[test]
fn a_debt_is_shown_as_nothing_left_and_a_limit_as_no_more_than_it_holds() {
    const DEBT: &str = r#"{"name": "l", "algorithm": "token_bucket", "capacity": 10, "refill": 1, "interval": "1d", "overdraft": 5}"#;
    let mut worker = Worker::new(DENY, [leased(LONG, DEBT)]);
    assert_eq!(lease_of(&mut worker, 1, -3), 2);
    all_served(&mut worker, [2]);
    assert_eq!(worker.remaining(2), 0, "one is on lease, and three are owed");
    // It has filled up since the first lease was taken.
    const FAST: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "10/s", "burst": 10}"#;
    let mut worker = Worker::new(DENY, [leased(LONG, FAST)]);
    assert_eq!(lease_of(&mut worker, 1, 10), 2);
    all_served(&mut worker, [2]);
    assert_eq!(worker.remaining(2), 10);
}

#[test]
fn the_last_request_of_a_lease_is_told_when_redis_has_more() {
    let mut worker = long();
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 3)]);
    // Redis has none left for a minute; two are on lease here.
    worker.reply(&batch, [granted(3).remaining(0).wait(MINUTE).reset(MINUTE)]);
    worker.skip(secs(1));
    all_served(&mut worker, [2, 3]);
    let ratelimit = |stream| {
        let headers = worker.engine.headers_to_add(stream).expect("admitted");
        headers.iter().find(|header| header.name == "ratelimit").expect("a header").value.clone()
    };
    assert_eq!([2, 3].map(ratelimit), ["\"l\";r=1;t=60", "\"l\";r=0;t=59"]);
}

/// While units of an earlier lease are here, one more request passes, whatever the store has left.
#[test]
fn a_request_that_has_waited_is_told_of_the_lease_behind_it() {
    const BUCKET_OF_100: &str =
        r#"{"name": "l", "algorithm": "token_bucket", "capacity": 100, "refill": 100, "interval": "1m"}"#;
    let mut worker = Worker::new(DENY, [leased(LONG, BUCKET_OF_100)]);
    worker.all_wait([1], "ann");
    worker.answer([granted(3).remaining(12).reset(MINUTE)]);
    all_served(&mut worker, [2, 3]);
    worker.all_wait(4..=8, "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 5 + 4)]);
    worker.reply(&batch, [granted(9).remaining(0).wait(ms(600)).reset(MINUTE)]);
    let headers = worker.engine.headers_to_add(4).expect("admitted");
    let ratelimit = headers.iter().find(|header| header.name == "ratelimit").expect("a header");
    assert_eq!(ratelimit.value, "\"l\";r=8;t=5", "so many flow within this time");
}

/// A lease stays as it is configured where the limits of its subject are not.
#[test]
fn the_limits_of_a_subject_leave_its_lease_as_it_is() {
    let overridden = format!(r#""overrides": true, {}"#, leased(LONG, LARGE));
    let mut worker = Worker::new(DENY, [overridden]);
    let ask = |worker: &mut Worker, stream| {
        assert_eq!(worker.arrive(stream, &["ann"]), None);
        let batch = worker.batch();
        let requests = batch.tasks()[0].requests;
        worker.reply(&batch, [granted(requests).remaining(9).and(&[1_000, 10, 0])]);
        requests
    };
    assert_eq!(ask(&mut worker, 1), 1 + 2);
    all_served(&mut worker, 2..=3);
    assert_eq!(ask(&mut worker, 4), 1 + 4);
}

/// A request that one policy is known to deny takes nothing of the lease of another.
#[test]
fn a_denied_request_uses_no_lease() {
    let mut worker = Worker::new(DENY, [leased(LONG, WINDOW), policy(BUCKET)]);
    assert_eq!(worker.arrive(1, &["ann", "bob"]), None);
    worker.answer([granted(3).remaining(97).reset(MINUTE), denied(DAY)]);
    let on_lease = worker.engine.on_lease();
    assert_eq!((on_lease, worker.arrive(2, &["ann", "bob"])), (2, Some(false)));
    assert_eq!(worker.engine.on_lease(), on_lease);
}
