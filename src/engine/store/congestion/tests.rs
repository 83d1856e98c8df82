// SPDX-License-Identifier: Apache-2.0
//! The size of the window, answer by answer. The store is 2 ms away and the deadline is 50 ms: so the slack is 48 ms, an eighth of it 6, a
//! quarter 12, a half 24. tests/core/engine/congestion.rs measures how well that serves requests.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use super::*;

const DEADLINE: Micros = Micros::from_millis(50);
const NEAR: u64 = 2_000;

/// A store that is asked by one batch after another.
struct World {
    congestion: Congestion,
    now: Micros,
    batches: usize,
    /// The tasks that the store did and the time for them. `None`: all that were in flight, in the round trip.
    done: Option<(usize, Micros)>,
}

impl World {
    fn new() -> Self {
        Self { congestion: Congestion::new(DEADLINE), now: Micros::from_secs(1), batches: 1, done: None }
    }

    /// A store at this distance, with a window that is used in full.
    fn at(distance: u64) -> Self {
        let mut world = Self::new();
        world.answer(FIRST, distance);
        world
    }

    fn cwnd(&self) -> usize {
        self.congestion.cwnd()
    }

    /// A batch is sent now, with `in_flight` tasks in flight, and answered `took` microseconds later.
    fn answer(&mut self, in_flight: usize, took: u64) -> usize {
        let sent = self.now;
        self.now = sent.plus(Micros(took));
        self.answered(sent, in_flight, took)
    }

    /// A batch that was sent at `sent` is answered now.
    fn answered(&mut self, sent: Micros, in_flight: usize, took: u64) -> usize {
        let (took, batches) = (Micros(took), self.batches);
        let done = self.done.unwrap_or((in_flight, took));
        let tasks = if self.done.is_some() { 1 } else { in_flight };
        let now = Now { host: self.now, uptime: self.now, loop_time: self.now };
        self.congestion.answered(Sample { took, sent, in_flight, batches, done, tasks }, now);
        self.cwnd()
    }

    /// The same answer, `times` times.
    fn answers(&mut self, in_flight: usize, took: u64, times: usize) -> Vec<usize> {
        (0..times).map(|_| self.answer(in_flight, took)).collect()
    }

    /// The same store, after its window has begun to grow slowly, and has forgotten everything but the distance.
    fn slowly(mut self) -> Self {
        self.congestion.boost = 0;
        self.congestion.trips = [None; TRIPS];
        self.congestion.rates = [(0, Micros::ZERO); TRIPS];
        self
    }

    fn distance(&self) -> Option<u64> {
        self.congestion.distance.get().map(|distance| distance.0)
    }
}

#[test]
fn the_first_answers_double_the_window_that_is_used() {
    // The number of tasks in flight, and the window then.
    let cases = [(1, 128), (63, 128), (64, 128), (65, 130), (100, 200), (128, 256)];
    for (in_flight, cwnd) in cases {
        let mut world = World::new();
        assert_eq!(world.answer(in_flight, NEAR), cwnd, "{in_flight} in flight");
    }
    let mut world = World::new();
    let windows: Vec<_> = (0..20)
        .map(|_| {
            let cwnd = world.cwnd();
            world.answer(cwnd, NEAR)
        })
        .collect();
    assert_eq!(windows[..3], [256, 512, 1_024]);
    assert_eq!(windows[19], MAX_CWND);
}

#[test]
fn the_longer_the_queue_the_slower_it_grows() {
    // What each round trip takes, and the windows after 256, with 256 in flight. The fourth round trip of a window that hardly grows
    // begins a trial with a quarter more.
    let cases = [
        ("no queue: each round trip grows twice as much", NEAR, [288, 320, 384, 512]),
        ("an eighth of the slack", 8_000, [288, 320, 384, 512]),
        ("more", 8_001, [272, 272, 272, 320]),
        ("a quarter", 14_000, [272, 272, 272, 320]),
        ("more than a quarter: it stays", 14_001, [256, 256, 256, 320]),
        ("a half", 26_000, [256, 256, 256, 320]),
        // 256 tasks in 26.001 ms are 196 in 20 ms, which are the distance and 3/8 of the slack.
        ("more than a half: it shrinks, from the second answer on", 26_001, [256, 196, 196, 196]),
    ];
    for (name, took, windows) in cases {
        let mut world = World::at(NEAR).slowly();
        assert_eq!(world.answers(256, took, 4), windows, "{name}");
    }
}

#[test]
fn what_was_sent_before_it_shrank_neither_grows_nor_shrinks_it() {
    let mut world = World::at(NEAR).slowly();
    let before = world.now;
    assert_eq!(world.answers(256, 26_001, 2), [256, 196]);
    for took in [NEAR, 40_000] {
        assert_eq!(world.answered(before, 256, took), 196, "took {took}");
    }
    // In that very time is not before. And a window that only stays has not shrunk.
    let mut world = World::at(NEAR).slowly();
    assert_eq!(world.answers(256, 26_001, 2), [256, 196]);
    let since = world.now;
    assert_eq!(world.answer(256, 26_001), 196);
    assert_eq!(world.answered(since, 196, NEAR), 220);
}

#[test]
fn a_store_that_is_busy_with_one_task_has_no_queue() {
    // The store is 30 ms away: the slack is 20 ms, and a half of it 10. A row has the store's time for a task, the round trip, and the
    // windows after 128.
    let cases = [
        ("a task takes longer than half of the slack", 12_000, 42_000, [128, 128]),
        // In the distance and three quarters of the 12 ms, that is in 39 ms, it does three.
        ("the queue is longer", 12_000, 42_001, [128, 3]),
        ("no more than three quarters of the slack count", 40_000, 45_000, [128, 128]),
        ("the queue is longer than these", 40_000, 45_001, [128, 1]),
        ("a task takes less than half of the slack", 1_000, 40_000, [128, 128]),
        ("the queue is longer than the half", 1_000, 40_001, [128, 37]),
    ];
    for (name, service, took, windows) in cases {
        let mut world = World::at(30_000).slowly();
        world.congestion.cwnd = 128;
        world.done = Some((1, Micros(service)));
        assert_eq!(world.answers(128, took, 2), windows, "{name}");
    }
}

#[test]
fn the_fastest_of_the_last_answers_counts() {
    // The number of batches in flight; n, if every n-th answer is fast and the others are slow; and `true` if the window shrinks.
    let cases = [
        (1, 2, false),
        (1, 3, true),
        (3, 3, false),
        (3, 4, true),
        (4, 4, false),
        (9, 4, false),
        (9, 5, true),
    ];
    for (batches, every, shrinks) in cases {
        let mut world = World::at(NEAR).slowly();
        world.batches = batches;
        for nth in 0..9 {
            // So few are in flight that the window does not grow.
            world.answer(2, if nth % every == 0 { NEAR } else { 40_000 });
        }
        assert_eq!(world.cwnd() < 256, shrinks, "{batches} batches, one of {every} is fast");
    }
}

#[test]
fn a_store_that_is_farther_away_is_told_from_a_queue() {
    // First come round trips of 40 ms with 256 in flight and one of 41 ms with 240. Then come three with the tasks in flight and the time
    // of the row. With a queue, 128 would take 21.866 ms; the middle of both is 31.433.
    let cases = [
        ("fewer in flight, and hardly faster", 128, 31_434, 240, 31_434),
        ("as fast as a queue would be", 128, 31_433, 81, NEAR),
        ("three quarters are fewer", 180, 40_000, 240, 40_000),
        ("more are not", 181, 40_000, 90, NEAR),
        ("one cannot be fewer", 1, 27_000, 240, 27_000),
    ];
    for (name, in_flight, took, cwnd, distance) in cases {
        let mut world = World::at(NEAR).slowly();
        assert_eq!(world.answers(256, 40_000, 2), [256, 128], "{name}");
        assert_eq!(world.answer(240, 41_000), 128, "{name}");
        world.answers(in_flight, took, 2);
        assert_eq!(world.distance(), Some(NEAR), "{name}: two say too little");
        assert_eq!(world.answer(in_flight, took), cwnd, "{name}");
        assert_eq!(world.distance(), Some(distance), "{name}");
    }
}

/// With one task in flight there is no queue, so its round trips show the distance of a store that has moved away.
#[test]
fn a_store_that_is_farther_away_is_noticed_with_one_task_at_a_time() {
    let mut world = World::at(NEAR).slowly();
    world.answers(1, 40_000, 2);
    assert_eq!(world.distance(), Some(NEAR), "two say too little");
    world.answers(1, 40_000, 2);
    assert_eq!(world.distance(), Some(40_000));
}

#[test]
fn a_queue_that_goes_ends_the_suspicion() {
    // A quarter of the slack is a half of what may be.
    for (took, is_suspected) in [(14_000, false), (14_001, true)] {
        let mut world = World::at(NEAR).slowly();
        world.answers(256, 40_000, 2);
        world.answers(64, took, 4);
        assert_eq!(world.congestion.worst.is_some(), is_suspected, "{took}");
    }
}

/// The number of round trips until a trial begins, with half of the window in flight.
fn round_trips_to_a_trial(world: &mut World) -> usize {
    let cwnd = world.cwnd();
    // It stays, but for the trial.
    let begun = |_: &usize| world.answer(cwnd, 14_001) > cwnd;
    (1..100).find(begun).expect("a trial")
}

#[test]
fn a_trial_that_shows_a_queue_doubles_the_time_to_the_next() {
    let mut world = World::at(NEAR).slowly();
    // The answer that shows the queue is the first round trip of the next pause.
    for pause in [4, 8 - 1, 16 - 1, 32 - 1, 64 - 1, 64 - 1] {
        assert_eq!(round_trips_to_a_trial(&mut world), pause);
        let tasks = world.cwnd();
        world.answer(tasks, 26_000);
    }
}

#[test]
fn a_store_that_is_slower_by_half_may_be_another_one() {
    // The round trip, the window after it, and the number of round trips until the next trial.
    for (took, shrunk, pause) in [(40_000, 128, 8), (40_320, 126, 4)] {
        let mut world = World::at(NEAR).slowly();
        assert_eq!(round_trips_to_a_trial(&mut world), 4);
        assert_eq!(world.answer(320, 26_000), 256);
        assert_eq!(world.answers(256, took, 2)[1], shrunk);
        assert_eq!(round_trips_to_a_trial(&mut world), pause, "{shrunk}");
    }
}

#[test]
fn a_trial_is_no_more_than_the_store_does_in_a_quarter_of_the_slack() {
    for (done, more) in [(3, 3), (200, 64)] {
        let mut world = World::at(NEAR).slowly();
        world.done = Some((done, Micros(12_000)));
        assert_eq!(world.answers(256, 14_001, 4), [256, 256, 256, 256 + more]);
    }
}

#[test]
fn the_delivery_rate_is_that_of_the_last_answers() {
    // A store 45 ms away answers ten tasks each time. A row has the interval, and the rate. A rate over less than a quarter of a round trip
    // (11.25 ms) says nothing.
    for (every, tasks, span) in [(8_000, 20, 16_000), (11_250, 10, 11_250), (11_249, 20, 22_498)] {
        let mut world = World::at(45_000).slowly();
        for _ in 0..5 {
            world.now = world.now.plus(Micros(every));
            let sent = Micros(world.now.0 - 45_000);
            world.answered(sent, 10, 45_000);
        }
        assert_eq!(world.congestion.rates[0], (tasks, Micros(span)), "every {every}");
    }
}

#[test]
fn a_trial_shows_a_queue_or_a_distance() {
    // A trial has begun, with 64 more than 256. A row has the tasks in flight, the round trip, the window and the distance after it. With a
    // queue, 288 would take 9.001 ms; the middle of both is 8.501.
    let cases = [
        ("no longer than before", 288, 8_500, 576, 8_500),
        (
            "longer, as in a queue: it was too many, and grows by a sixteenth from there",
            288,
            8_501,
            306,
            NEAR,
        ),
        ("too few to tell", 287, 8_001, 320, NEAR),
    ];
    for (name, in_flight, took, cwnd, distance) in cases {
        let mut world = World::at(NEAR).slowly();
        assert_eq!(world.answers(256, 8_001, 3), [272, 272, 272]);
        let before = world.now;
        assert_eq!(world.answer(256, 8_001), 320);
        assert_eq!(world.answered(before, 288, 8_500), 320, "{name}: it was sent before the trial began");
        world.now = world.now.plus(Micros(1));
        assert_eq!(world.answer(in_flight, took), cwnd, "{name}");
        assert_eq!(world.distance(), Some(distance), "{name}");
    }
}

#[test]
fn a_queue_that_never_empties_is_emptied_to_see_the_distance() {
    // In the first span the distance was 2 ms. A row has the round trips of the second span; the window that empties the queue (what the
    // store does in 2 ms, less a sixteenth); the next round trip; and the windows after it and after one more.
    let cases = [
        ("hardly longer than before", 4_823, None),
        ("a sixteenth of the slack longer, and it was no queue", 4_825, Some((99, 2_000, 256, 512))),
        // 256 in 6 ms are 85 in 2 ms. The queue was as long as the rest: 256 in 6 ms are 853 in 20 ms.
        ("there was a queue", 6_000, Some((79, 2_000, 256, 288))),
        ("there was a long queue", 24_000, Some((19, 2_000, 213, 239))),
        ("there was none", 24_000, Some((19, 23_000, 256, 512))),
    ];
    for (name, took, expected) in cases {
        let mut world = World::at(NEAR).slowly();
        world.now = Micros::from_secs(4);
        world.answer(1, took);
        world.now = Micros::from_secs(8);
        let sent = world.now;
        let Some((drained, measured, cwnd, grown)) = expected else {
            assert!(world.answer(256, took) > 256, "{name}");
            continue;
        };
        assert_eq!(world.answer(256, took), drained, "{name}");
        assert_eq!(world.answered(sent, 256, took), drained, "{name}: it was sent before");
        assert_eq!(world.answer(drained, measured), cwnd, "{name}");
        assert_eq!(world.answer(cwnd, measured), grown, "{name}");
    }
}

#[test]
fn an_unanswered_batch_leaves_an_eighth_of_what_was_in_flight() {
    for (before, in_flight, after) in [(256, 100, 12), (256, 7, 1), (10, 800, 10)] {
        let mut world = World::at(NEAR);
        world.congestion.cwnd = before;
        world.congestion.unanswered(in_flight);
        assert_eq!(world.cwnd(), after, "{in_flight} of {before} in flight");
    }
}

#[test]
fn a_far_store_has_several_batches_in_flight() {
    // The distance, and the time between two batches. Then, for a number of tasks and of batches in flight, the number of tasks in one
    // batch: the share of one batch in the pace, its share of the rest, or what is missing to half of the window of 256.
    let cases = [
        (None, 10_000, [((0, 0), 128), ((127, 1), 128), ((128, 15), 128)]),
        (Some(NEAR), 10_000, [((0, 0), 256), ((200, 1), 256), ((256, 2), 256)]),
        (Some(28_000), 5_500, [((0, 0), 128), ((100, 1), 52), ((128, 15), 128)]),
        (Some(45_000), 2_812, [((0, 0), 128), ((120, 1), 16), ((200, 14), 28)]),
    ];
    for (distance, pace, batches) in cases {
        let world = distance.map_or_else(World::new, World::at);
        assert_eq!(world.congestion.pace(), Micros(pace), "{distance:?}");
        for ((tasks, of), batch) in batches {
            assert_eq!(world.congestion.batch(tasks, of), batch, "{distance:?}, {tasks} in {of} in flight");
        }
    }
    // The last round trip counts no longer than the distance and 3/8 of the slack.
    let mut world = World::at(28_000);
    world.congestion.cwnd = 256;
    world.congestion.trips[0] = Some(Micros(49_000));
    // 36.25 ms are six batches in a pace of 5.5 ms.
    assert_eq!(world.congestion.batch(200, 1), 43);
}

/// A batch that repeats tasks in flight waits as long as recent answers were queued, but never so long that it misses the deadline.
#[test]
fn repeats_wait_for_the_answer_where_the_store_is_slow() {
    let cases = [
        ("nothing is queued", [1_000, 1_000], 10_000),
        ("one of two was slow", [40_000, 1_000], 10_000),
        ("both were: 20 ms, and a quarter more", [21_000, 30_000], 25_000),
        ("five eighths of 49 ms at most", [45_000, 45_000], 30_625),
    ];
    for (name, trips, pace) in cases {
        let mut world = World::at(1_000);
        world.congestion.shortest = Some(Micros(1_000));
        for (place, trip) in trips.into_iter().enumerate() {
            world.congestion.trips[place] = Some(Micros(trip));
        }
        assert_eq!(world.congestion.pace_of_repeats(), Micros(pace), "{name}");
    }
}

#[test]
fn no_more_wait_than_can_be_answered_in_time() {
    assert_eq!(World::new().congestion.may_wait(1, 1), usize::MAX, "nothing is known");
    let mut world = World::at(NEAR);
    // 50 ms less one round trip and the pace are 38 ms: 19 windows of 256, and those that may be sent at once.
    assert_eq!(world.congestion.may_wait(256, 10), 4_874, "no queue");
    world.congestion.unanswered(800);
    assert_eq!(world.congestion.may_wait(256, 10), FIRST, "nothing is known any more");

    // Two round trips with 256 in flight, the tasks that may be sent at once, and those that may wait: what the store does within the
    // deadline less the pace, less the tasks in flight.
    let cases = [
        ("no more than an eighth of the slack", [8_000, 9_000], 10, 1_250),
        ("a queue: 512 in 18 ms, for 40 ms", [9_000, 9_000], 10, 881),
        ("half of the jitter is less time: 768 in 29 ms, for 39 ms", [9_000, 11_000], 10, 776),
        ("the window has room for more", [9_000, 9_000], 1_000, 1_000),
    ];
    for (name, trips, free, places) in cases {
        let mut world = World::at(NEAR).slowly();
        for took in trips {
            world.answer(256, took);
        }
        assert_eq!(world.congestion.may_wait(256, free), places, "{name}");
        // While the distance is measured, a quarter of the slack less.
        world.congestion.drained = Some((256, world.now));
        if name.starts_with("a queue") {
            assert_eq!(world.congestion.may_wait(256, free), 540, "{name}, which is measured");
        }
    }
    let mut world = World::at(NEAR).slowly();
    world.answers(1, 49_000, 2);
    assert_eq!(world.congestion.may_wait(256, 0), 1, "always one");
}
