// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::rc::Rc;

use super::super::batch::{Command, Due, Settlement, Task, Waiter, Work};
use super::*;
use crate::config::{Config, Topology};
use crate::engine::generations::Seed;
use crate::inline_vec::InlineVec;
use crate::limit::Outcome;
use crate::policy::Check;
use crate::script::Form;

fn at(uptime: u64) -> Now {
    Now { host: Micros(uptime), uptime: Micros(uptime), loop_time: Micros(uptime) }
}

#[test]
fn what_an_idle_store_does_counts_from_the_next_batch() {
    let mut in_flight = InFlight::new(0, Micros::from_millis(50));
    for uptime in [1_000_000, 5_000_000] {
        in_flight.send(Slots::Normal, (Batch::new(), Vec::new()), at(uptime), Micros(uptime), false);
        assert_eq!(in_flight.batches[0].done.1.uptime, Micros(uptime));
        assert!(in_flight.complete(in_flight.batches[0].id).is_some());
    }
}

const DEADLINE: Micros = Micros::from_millis(50);

fn check() -> Rc<Check> {
    Rc::new(Check::one(0, b"{p|s}"))
}

/// A batch of one command with this many tasks.
fn batch(tasks: usize) -> Batch {
    batch_about(&vec!["{p|s}"; tasks])
}

fn batch_about(tags: &[&str]) -> Batch {
    let config = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]}]}"#;
    let config = Config::parse(config.as_bytes()).expect("valid");
    let work = || Work::Ask { waiters: InlineVec::new(), advance: 1 };
    let check = |tag: &str| Rc::new(Check::one(0, tag.as_bytes()));
    let task = |tag: &&str| Task {
        check: check(tag),
        plan: config.plan(&check(tag)).expect("a plan"),
        work: work(),
    };
    vec![Command { form: Form::Evalsha, tasks: tags.iter().map(task).collect() }]
}

/// Sends a batch with this many tasks, which is overdue a deadline later.
fn send(in_flight: &mut InFlight, (tasks, journal): (usize, usize), now: u64) -> BatchId {
    let id = in_flight.next_id();
    let journal = (0..journal).map(|_| Entry::new(Micros(now))).collect();
    let batch = if tasks > 0 { batch(tasks) } else { Batch::new() };
    in_flight.send(Slots::Normal, (batch, journal), at(now), Micros(now).plus(DEADLINE), false);
    id
}

/// The deadline of a busy store counts from its last answer.
#[test]
fn what_a_busy_store_does_counts_from_its_last_answer() {
    let mut in_flight = InFlight::new(0, DEADLINE);
    send(&mut in_flight, (3, 0), 1_000_000);
    let second = send(&mut in_flight, (2, 0), 1_005_000);
    let sample = in_flight.sample(second, at(1_009_000)).expect("in flight");
    // Nothing was answered before.
    assert_eq!((sample.done, sample.in_flight), ((2, Micros(1_009_000)), 5));
    in_flight.learn(Slots::Normal, 3, sample, at(1_009_000));
    let third = send(&mut in_flight, (1, 0), 1_010_000);
    let sample = in_flight.sample(third, at(1_012_000)).expect("in flight");
    assert_eq!(sample.done, (1, Micros(3_000)));
}

#[test]
fn the_journal_is_late_with_a_batch_that_has_entries_of_it() {
    // Tasks and entries of a batch, whether it is overdue, and whether the journal is late.
    let rows = [((1, 0), true, false), ((1, 1), false, false), ((1, 1), true, true), ((0, 1), true, true)];
    for (of, is_overdue, is_late) in rows {
        let mut in_flight = InFlight::new(0, DEADLINE);
        send(&mut in_flight, of, 1_000_000);
        in_flight.become_late(at(1_000_000 + if is_overdue { DEADLINE.0 } else { DEADLINE.0 - 1 }));
        assert_eq!(in_flight.is_journal_late(), is_late, "{of:?} {is_overdue}");
    }
}

/// A batch that waits for its connection is no failure of a store that has answered another one meanwhile.
#[test]
fn slow_connecting_is_no_failure_of_a_store_that_answers() {
    for (answered, is_failure) in [(None, true), (Some(999_000), true), (Some(1_001_000), false)] {
        let mut in_flight = InFlight::new(0, DEADLINE);
        let other = send(&mut in_flight, (1, 0), 900_000);
        let id = send(&mut in_flight, (1, 0), 1_000_000);
        if let Some(answered) = answered {
            let sample = in_flight.sample(other, at(answered)).expect("in flight");
            in_flight.learn(Slots::Normal, 1, sample, at(answered));
        }
        in_flight.complete(other);
        in_flight.connecting(id);
        let failed = in_flight.become_late(at(1_000_000 + CONNECTING * DEADLINE.0));
        assert_eq!(failed, if is_failure { vec![id] } else { vec![] }, "{answered:?}");
    }
}

/// Only a batch that was sent shows that the store has too much to do.
#[test]
fn a_batch_without_an_answer_shrinks_the_window_if_it_was_sent() {
    for (name, of, is_connecting, shrinks) in [
        ("sent", (1, 0), false, true),
        ("connecting", (1, 0), true, false),
        ("journal", (0, 1), false, false),
    ] {
        let mut in_flight = InFlight::new(0, DEADLINE);
        let id = send(&mut in_flight, of, 1_000_000);
        if is_connecting {
            in_flight.connecting(id);
        }
        let before = in_flight.congestion.normal.cwnd();
        assert!(in_flight.abandon(at(9_000_000)).is_some(), "{name}");
        assert_eq!(in_flight.congestion.normal.cwnd() < before, shrinks, "{name}");
    }
}

/// The shortest round trip and the last two, in milliseconds; and batches about these subjects, with the time for which they are in flight.
fn room_after(took: [u64; 3], elapsed: u64, asked: &[&[&str]], queue: &TaskQueue) -> (bool, bool) {
    let mut in_flight = InFlight::new(0, DEADLINE);
    let mut now = 1_000_000;
    for took in took {
        let id = send(&mut in_flight, (1, 0), now);
        now += took * 1_000;
        let sample = in_flight.sample(id, at(now)).expect("in flight");
        in_flight.learn(Slots::Normal, 1, sample, at(now));
        in_flight.complete(id);
    }
    for tags in asked {
        let batch = (batch_about(tags), Vec::new());
        in_flight.send(Slots::Normal, batch, at(now), Micros(now).plus(DEADLINE), false);
    }
    let later = at(now + elapsed * 1_000);
    let opens = in_flight.opens(Slots::Normal, queue).is_some_and(|opens| opens <= later.uptime);
    (in_flight.room(Slots::Normal, queue, later) > 0, opens)
}

#[test]
fn a_batch_that_only_repeats_what_is_asked_waits_for_as_long_as_answers_were_queued() {
    let plan = batch(1)[0].tasks[0].plan.clone();
    let queue = |tags: &[&str]| {
        let mut queue = TaskQueue::new(Topology::Any, Seed(1));
        let asks = |tag: &&str| Rc::new(Check::one(0, tag.as_bytes()));
        tags.iter().for_each(|tag| queue.ask(&asks(tag), &plan, Waiter { stream: 1, place: 0 }));
        queue
    };
    let same = || queue(&["{p|s}"]);
    let both = || queue(&["{p|s}", "{p|t}"]);
    let many = queue(&["{p|a}", "{p|b}", "{p|c}", "{p|s}", "{p|d}"]);
    let mut settles = same();
    let settlement = Settlement { check: check(), due: Due::Refund(1), receipt: Rc::new(Outcome::NONE) };
    assert!(settles.settle(settlement, &plan));
    let cost = Rc::new(Check { cost: 2, ..Check::one(0, b"{p|s}") });
    let mut other_cost = same();
    other_cost.ask(&cost, &plan, Waiter { stream: 1, place: 0 });
    let (one, two, each): (&[&[&str]], _, _) =
        (&[&["{p|s}"]], &[&["{p|s}", "{p|t}"][..]][..], &[&["{p|s}"][..], &["{p|t}"]][..]);
    // The waiting tasks, those in flight, the durations of the shortest answer and of the last two, and the milliseconds until the next
    // batch is sent.
    let rows = [
        ("a near store: as any other", same(), one, [1, 1, 1], 10),
        (
            "as long as the faster of the last two answers was queued, and a quarter",
            same(),
            one,
            [1, 17, 24],
            20,
        ),
        ("a single slow answer", same(), one, [1, 1, 40], 10),
        // 25 ms are left, and a quarter of that is 7.
        ("a far store: as any other", same(), one, [25, 25, 25], 7),
        ("another subject", both(), one, [1, 17, 24], 10),
        ("two hot subjects in one batch", both(), two, [1, 17, 24], 20),
        ("two hot subjects, and a batch about each", both(), each, [1, 17, 24], 20),
        ("one of two hot subjects", same(), two, [1, 17, 24], 20),
        ("a hot subject beside others", many, one, [1, 17, 24], 10),
        ("another cost", other_cost, one, [1, 17, 24], 10),
        ("a refund", settles, one, [1, 17, 24], 10),
    ];
    for (name, queue, asked, took, expected) in rows {
        let sent = (0..60).find(|elapsed| room_after(took, *elapsed, asked, &queue).0);
        assert_eq!(sent, Some(expected), "{name}");
        assert!(room_after(took, expected, asked, &queue).1, "{name}");
        assert!(!room_after(took, expected - 1, asked, &queue).1, "{name}");
    }
}
