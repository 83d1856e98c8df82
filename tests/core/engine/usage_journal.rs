// SPDX-License-Identifier: Apache-2.0
//! The usage of subjects reaches the usage journal: each unit once, whatever is lost on the way.

use weir::script::usage::{Interval, Used};

use super::usage::measured;
use crate::worker::*;
use crate::world::store::Mood;
use crate::world::{Network, World};

/// A configuration that writes down what the subjects of these policies use.
fn recording(settings: &str, store: &str, policies: &[String]) -> String {
    let policies = policies.iter().map(|policy| format!(r#""usage_journal": true, {policy}"#));
    let config = configuration(store, policies);
    config.replacen('{', &format!(r#"{{"usage_journal": {settings}, "#), 1)
}

fn worker(policies: &[String]) -> Worker {
    Worker::configured(&recording("{}", ALLOW, policies))
}

/// The usage by subject, in the order of their names.
fn used(write: &UsageWrite) -> Vec<(&str, i64, i64)> {
    let mut used: Vec<_> =
        write.used.iter().map(|(tag, Used { units, requests })| (tag.as_str(), *units, *requests)).collect();
    used.sort_unstable();
    used
}

/// The writes of a batch that has nothing else.
fn alone(worker: &mut Worker) -> (Batch, Vec<UsageWrite>) {
    let batch = worker.batch();
    assert!(batch.commands.is_empty() && batch.journal.is_empty(), "nothing else");
    let writes = batch.usage.clone();
    (batch, writes)
}

fn admit(worker: &mut Worker, stream: u32, cost: u64, subject: &str) {
    assert_eq!(worker.arrive_costing(cost, stream, &[subject]), None);
    assert_eq!(worker.answer([granted(1)]), [(stream, true)]);
    worker.close(stream);
}

#[test]
fn it_is_added_up_and_written_after_five_seconds() {
    let mut worker = worker(&[policy(BUCKET)]);
    for (stream, subject) in [(1, "ann"), (2, "bob"), (3, "ann")] {
        admit(&mut worker, stream, 4, subject);
    }
    assert_eq!(worker.next_tick(), Some(worker.now.plus(secs(1))), "it looks again each second");
    worker.idle(ms(4_900));
    assert_eq!(worker.next_batch().map(|batch| batch.usage), None);
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(100))));
    worker.idle(ms(300));
    let (batch, writes) = alone(&mut worker);
    let [write] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(used(write), [("{p0|ann}", 8, 2), ("{p0|bob}", 4, 1)]);
    assert_eq!(write.interval, Interval::of(START, DAY));
    worker.reply(&batch, []);
    worker.idle(secs(20));
    assert!(worker.next_batch().is_none(), "nothing else was used");
    assert_eq!(worker.engine.next_tick(worker.now), None);
}

/// The gauge adds up all workers, and outlives one that ends.
#[test]
fn what_waits_to_be_written_is_counted() {
    let mut worker = worker(&[policy(BUCKET)]);
    let waiting = |worker: &mut Worker| measured(worker).get("weir.usage_waiting").copied();
    assert_eq!(waiting(&mut worker), None);
    admit(&mut worker, 1, 4, "ann");
    admit(&mut worker, 2, 4, "bob");
    assert_eq!(waiting(&mut worker), Some(2));
    worker.engine.retire();
    let (batch, _) = alone(&mut worker);
    assert_eq!(waiting(&mut worker), Some(2), "it waits until the store has answered");
    worker.reply(&batch, []);
    assert_eq!(waiting(&mut worker), None);
}

/// Requests that another policy denies use nothing: nothing of them waits.
#[test]
fn what_came_back_does_not_wait() {
    let mut worker = worker(&[policy(WINDOW), policy(BUCKET)]);
    for stream in 1..=46 {
        let subject = format!("s{stream}");
        assert_eq!(worker.arrive(stream, &[&subject, &subject]), None);
        worker.answer([granted(1), denied(secs(9))]);
        worker.close(stream);
        // Refunds.
        worker.drain();
    }
    assert_eq!(measured(&mut worker).get("weir.usage_waiting"), None);
    worker.idle(ms(5_200));
    assert!(worker.next_batch().is_none());
    assert_eq!(worker.engine.next_tick(worker.now), None);
}

/// It has a batch of its own, so that no request waits for it.
#[test]
fn it_does_not_share_a_batch_with_requests() {
    let mut worker = worker(&[policy(BUCKET)]);
    admit(&mut worker, 1, 1, "ann");
    worker.skip(secs(5));
    worker.all_wait([2], "bob");
    let batch = worker.batch();
    assert_eq!((batch.commands.len(), batch.usage.len()), (1, 0));
    alone(&mut worker);
}

#[test]
fn policies_that_do_not_want_it_have_none() {
    let quiet =
        configuration(ALLOW, [policy(BUCKET), format!(r#""usage_journal": true, {}"#, policy(BUCKET))]);
    let mut worker = Worker::configured(&quiet);
    assert_eq!(worker.arrive(1, &["ann", "ann"]), None);
    worker.answer([granted(1), granted(1)]);
    worker.idle(ms(5_200));
    let (_, writes) = alone(&mut worker);
    assert_eq!(used(&writes[0]), [("{p1|ann}", 1, 1)]);
}

/// The final usage of each kind of request.
#[test]
fn requests_use_what_they_cost_in_the_end() {
    type Act = fn(&mut Worker);
    let settle = |cost: &str| settled(&format!(r#"[{{"cost": {{"constant": {cost}}}}}]"#), WINDOW);
    let answered: Act = |worker| {
        assert_eq!(worker.arrive_costing(10, 1, &["ann"]), None);
        worker.answer([granted(1).remaining(90)]);
        worker.respond(1);
        worker.close(1);
    };
    let two = |worker: &mut Worker, second: Reply| {
        assert_eq!(worker.arrive(1, &["ann", "ann"]), None);
        worker.answer([granted(1), second]);
        worker.close(1);
    };
    #[rustfmt::skip]
    let cases: [(&str, Vec<String>, Box<dyn Fn(&mut Worker)>, &[(&str, i64, i64)]); 7] = [
        ("as reserved", vec![policy(WINDOW)], Box::new(answered), &[("{p0|ann}", 10, 1)]),
        ("more than reserved", vec![settle("13")], Box::new(answered), &[("{p0|ann}", 13, 1)]),
        ("less than reserved", vec![settle("4")], Box::new(answered), &[("{p0|ann}", 4, 1)]),
        ("nothing in the end", vec![settle("0")], Box::new(answered), &[("{p0|ann}", 0, 1)]),
        (
            "denied",
            vec![policy(WINDOW)],
            Box::new(|worker| {
                worker.all_wait([1], "ann");
                worker.answer([denied(secs(9))]);
            }),
            &[],
        ),
        ("denied by another policy", vec![policy(WINDOW), policy(BUCKET)], Box::new(move |worker| two(worker, denied(secs(9)))), &[]),
        ("granted by both", vec![policy(WINDOW), policy(BUCKET)], Box::new(move |worker| two(worker, granted(1))), &[("{p0|ann}", 1, 1), ("{p1|ann}", 1, 1)]),
    ];
    for (case, policies, act, wanted) in cases {
        let mut worker = worker(&policies);
        act(&mut worker);
        worker.drain();
        worker.idle(ms(5_200));
        let writes = worker.next_batch().map(|batch| batch.usage).unwrap_or_default();
        let all: Vec<_> = writes.iter().flat_map(used).collect();
        assert_eq!(all, wanted, "{case}");
    }
}

/// The answer may be lost after the store has done it: the number tells it.
#[test]
fn a_write_without_an_answer_is_sent_again_before_the_next() {
    let mut worker = worker(&[policy(BUCKET)]);
    admit(&mut worker, 1, 1, "ann");
    worker.idle(ms(5_200));
    let (batch, first) = alone(&mut worker);
    worker.fail(&batch);
    admit(&mut worker, 2, 7, "ann");
    worker.idle(secs(6));
    let (batch, again) = alone(&mut worker);
    assert_eq!((&again, first[0].number), (&first, 1));
    assert!(worker.next_batch().is_none(), "the next waits for the answer");
    worker.reply(&batch, []);
    worker.idle(ms(200));
    let (_, next) = alone(&mut worker);
    assert_eq!((next[0].number, used(&next[0])), (2, vec![("{p0|ann}", 7, 1)]));
}

/// The pauses between attempts grow to eight seconds.
#[test]
fn a_store_that_does_not_answer_is_asked_less_and_less_often() {
    let mut worker = worker(&[policy(BUCKET)]);
    admit(&mut worker, 1, 1, "ann");
    worker.idle(ms(5_200));
    for pause in [1, 2, 4, 8, 8] {
        let (batch, _) = alone(&mut worker);
        worker.fail(&batch);
        worker.skip(secs(pause).since(ms(1)));
        assert!(worker.next_batch().is_none(), "not before {pause} s");
        worker.idle(ms(1));
    }
    let (batch, _) = alone(&mut worker);
    worker.reply(&batch, []);
    admit(&mut worker, 2, 1, "ann");
    worker.idle(ms(5_200));
    let (batch, _) = alone(&mut worker);
    worker.fail(&batch);
    worker.idle(secs(1));
    alone(&mut worker);
}

/// When the store does not answer and requests stop, no request closes the breaker. Earlier usage is written all the same.
#[test]
fn it_is_written_although_a_breaker_is_open() {
    let mut worker = Worker::configured(&recording("{}", DENY, &[policy(BUCKET)]));
    admit(&mut worker, 1, 1, "ann");
    for stream in 2..=20 {
        worker.arrive(stream, &["bob"]);
        while let Some(batch) = worker.next_batch() {
            worker.fail(&batch);
        }
    }
    assert!(worker.engine.open_breakers() > 0);
    worker.idle(secs(9));
    let (_, writes) = alone(&mut worker);
    assert_eq!(used(&writes[0]), [("{p0|ann}", 1, 1)]);
}

/// Writes what is due, one write after the other; how many subjects each has.
fn write_all(worker: &mut Worker) -> Vec<(u64, usize)> {
    let mut writes = Vec::new();
    while let Some(batch) = worker.next_batch() {
        assert!(worker.next_batch().is_none(), "the next waits for the answer");
        writes.extend(batch.usage.iter().map(|write| (write.number, write.used.len())));
        worker.reply(&batch, []);
    }
    writes
}

/// A worker that drains for six seconds has written all: each write follows the answer to the last.
#[test]
fn many_subjects_are_written_in_parts_without_a_pause() {
    let mut worker = worker(&[policy(BUCKET)]);
    for stream in 1..=300 {
        admit(&mut worker, stream, 1, &format!("s{stream}"));
    }
    worker.idle(ms(5_200));
    assert_eq!(write_all(&mut worker), [(1, 128), (2, 128), (3, 44)]);
}

/// On several connections a write may overtake another, and the store would take the other for one that it has made.
#[test]
fn a_worker_that_ends_writes_at_once_and_one_after_the_other() {
    let mut worker = worker(&[policy(BUCKET)]);
    for stream in 1..=300 {
        admit(&mut worker, stream, 1, &format!("s{stream}"));
    }
    worker.engine.retire();
    assert!(!worker.engine.may_end());
    assert_eq!(write_all(&mut worker), [(1, 128), (2, 128), (3, 44)]);
    assert!(worker.engine.may_end());
}

/// If the store does not answer, a worker that ends waits a minute for its answer, and what is not written then is lost, and counted: what
/// waits behind the write that got no answer, too.
#[test]
fn a_worker_that_ends_gives_up_after_a_minute() {
    let mut worker = worker(&[policy(BUCKET)]);
    for stream in 1..=300 {
        admit(&mut worker, stream, 1, &format!("s{stream}"));
    }
    worker.engine.retire();
    let ended = worker.now;
    let dropped = |worker: &mut Worker| measured(worker).get("weir.usage_dropped").copied();
    while !worker.engine.may_end() {
        if let Some(batch) = worker.next_batch() {
            worker.fail(&batch);
        }
        assert_eq!(dropped(&mut worker), None);
        let due = worker.next_tick().expect("it goes on");
        worker.idle(due.since(worker.now).max(ms(1)));
    }
    assert_eq!(dropped(&mut worker), Some(300));
    assert_eq!(measured(&mut worker).get("weir.usage_waiting"), None);
    assert!((secs(60)..secs(69)).contains(&worker.now.since(ended)), "{:?}", worker.now.since(ended));
    assert!(worker.next_batch().is_none());
}

/// A write is for one interval. Usage in two of them goes into two writes, whatever their order.
#[test]
fn at_the_border_of_intervals_each_has_its_write() {
    let mut worker = Worker::configured(&recording(r#"{"interval": "1m"}"#, ALLOW, &[policy(BUCKET)]));
    for stream in 1..=200 {
        assert_eq!(worker.arrive(stream, &[&format!("s{}", stream % 100)]), None);
        worker.answer([granted(1).at(START.plus(if stream <= 100 { ms(0) } else { MINUTE }))]);
        worker.close(stream);
    }
    worker.idle(ms(5_200));
    assert_eq!(write_all(&mut worker), [(1, 100), (2, 100)]);
}

/// Each grant counts where the store's clock was, and so does what comes back later.
#[test]
fn a_request_counts_in_the_interval_of_its_grant() {
    let config =
        recording(r#"{"interval": "1m"}"#, ALLOW, &[settled(r#"[{"cost": {"constant": 4}}]"#, WINDOW)]);
    let mut worker = Worker::configured(&config);
    for (stream, at) in [(1, START), (2, START.plus(MINUTE))] {
        assert_eq!(worker.arrive_costing(10, stream, &["ann"]), None);
        worker.answer([granted(1).at(at)]);
    }
    worker.respond(2);
    worker.close(2);
    worker.drain();
    worker.idle(ms(5_200));
    let mut all = Vec::new();
    while let Some(batch) = worker.next_batch() {
        all.extend(batch.usage.iter().map(|write| (write.interval.start, write.used[0].1.units)));
        worker.reply(&batch, batch.commands.iter().map(|_| done()));
        worker.idle(ms(200));
    }
    worker.respond(1);
    worker.close(1);
    worker.drain();
    worker.idle(ms(5_200));
    let (_, late) = alone(&mut worker);
    all.extend(late.iter().map(|write| (write.interval.start, write.used[0].1.units)));
    all.sort_unstable();
    let first = Interval::of(START, MINUTE).start;
    assert_eq!(all, [(first, -6), (first, 10), (first + 60, 4)]);
    assert_eq!(worker.engine.counters().usage_merged, 0);
}

/// More subjects than a worker adds up count for the others of their policy, and no unit is lost.
#[test]
fn subjects_that_are_too_many_count_together() {
    let mut worker = worker(&[policy(WINDOW)]);
    let many = 16_384 + 10;
    for stream in 1..=many {
        assert_eq!(worker.arrive(stream, &[&format!("s{stream}")]), None);
        if stream % 128 == 0 || stream == many {
            while let Some(batch) = worker.next_batch() {
                let replies: Vec<_> =
                    batch.commands.iter().map(|command| all_granted(command.tasks.len())).collect();
                worker.reply(&batch, replies);
            }
        }
    }
    assert_eq!(worker.engine.counters().usage_merged, 10);
    worker.engine.retire();
    let mut sum = Used::default();
    let mut others = 0;
    while let Some(batch) = worker.next_batch() {
        for (tag, used) in batch.usage.iter().flat_map(|write| &write.used) {
            sum = sum.plus(*used);
            others += if tag == "{p0}" { used.units } else { 0 };
        }
        worker.reply(&batch, batch.commands.iter().map(|_| done()));
    }
    assert_eq!((sum.units, sum.requests, others), (many.into(), many.into(), 10));
}

fn all_granted(tasks: usize) -> Reply {
    if tasks == 1 { granted(1) } else { together((0..tasks).map(|_| granted(1))) }
}

/// A reload before the first write, on connections that are each slow in their own way.
#[test]
fn a_reload_loses_nothing_that_was_added_up() {
    const SUBJECTS: i64 = 10_001;
    let config = recording("{}", DENY, &[policy(BUCKET)]);
    let mut world = World::new(&[config], 1, 3);
    world.near = Network { trip: 2_000, jitter: 2_000, lost_percent: 0, breaks: false };
    for subject in 0..SUBJECTS {
        world.arrive(0, vec![check_of(0, format!("{{p0|s{subject}}}"), 1)]);
        world.run(100);
    }
    world.run(20_000);
    let admitted = world.ledger.requests.values().filter(|request| request.is_admitted()).count();
    world.reload(0);
    world.run(5_000_000);
    assert!(world.workers[0].is_dead, "it has ended");
    let sum = world.stores[0].usage.values().fold(Used::default(), |sum, used| sum.plus(*used));
    assert_eq!((admitted, sum.requests), (SUBJECTS as usize, SUBJECTS));
}

/// Five hundred intervals, two workers, a network that loses batches and answers, on connections that overtake each other; a store that
/// refuses, hangs, and whose clock is set forth and back; reloads: the sum is what was granted, and nothing grows.
#[test]
fn after_five_hundred_intervals_nothing_is_lost_and_nothing_has_grown() {
    let limits = WINDOW.replace("100", "100000000");
    let config = recording(r#"{"interval": "1m"}"#, DENY, &[policy(&limits)]);
    let mut world = World::new(&[config], 2, 3);
    world.near = Network { trip: 3_000, jitter: 3_000, lost_percent: 10, breaks: false };
    world.stores[0].errs_percent = 10;
    let mut workers = [0, 1];
    for round in 0..500_u32 {
        for worker in workers {
            for subject in 0..if round % 50 == 0 { 300 } else { 3 } {
                world.arrive(worker, vec![check_of(0, format!("{{p0|s{}}}", subject + round % 7), 3)]);
            }
        }
        if round % 25 == 24 {
            let place = (round / 25 % 2) as usize;
            workers[place] = world.reload(workers[place]);
        }
        world.stores[0].mood = if round % 40 == 20 { Mood::Hangs } else { Mood::Answers };
        // An hour forth, and back.
        world.stores[0].skew = if round % 10 == 9 { 3_600_000_000 } else { 0 };
        world.run(60_000_000);
    }
    (world.near.lost_percent, world.stores[0].errs_percent) = (0, 0);
    world.run(30_000_000);
    let mut taken = |kind: &str| -> i64 {
        let name = format!("weir.policy.p0.units_{kind}");
        (0..world.workers.len())
            .map(|worker| measured(world.worker(worker)).get(&name).map_or(0, |units| *units))
            .sum()
    };
    let taken = taken("reserved") - taken("refunded");
    let sum = world.stores[0].usage.values().fold(Used::default(), |sum, used| sum.plus(*used));
    assert_eq!((sum.units, sum.requests), (taken, taken / 3));
    assert!(sum.units > 10_000, "much was heard: {}", sum.units);
    for worker in workers {
        let values = crate::engine::usage::measured(world.worker(worker));
        assert_eq!(values.get("weir.usage_waiting"), None, "nothing waits");
    }
    assert!(
        (0..world.workers.len()).all(|worker| workers.contains(&worker) || world.workers[worker].is_dead)
    );
}
