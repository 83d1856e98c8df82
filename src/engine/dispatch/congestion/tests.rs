// SPDX-License-Identifier: Apache-2.0
//! The size of the window, answer by answer. The store is 2 ms away and the deadline is 50 ms: so the slack is 48 ms, a sixteenth of it 3, and
//! the target 26 ms. tests/core/engine/congestion.rs measures how well that serves requests.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use super::*;

const DEADLINE: Micros = Micros::from_millis(50);
const NEAR: u64 = 2_000;

/// A store that is asked by one batch after another.
struct World {
    congestion: Congestion,
    now: Micros,
    batches: usize,
}

impl World {
    fn new() -> Self {
        Self { congestion: Congestion::new(DEADLINE), now: Micros::from_secs(1), batches: 1 }
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
        let sample = Sample { took: Micros(took), sent, in_flight, batches: self.batches };
        self.congestion.answered(sample, self.now);
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
        self
    }

    fn distance(&self) -> Option<u64> {
        self.congestion.distance.map(|distance| distance.0)
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
fn the_longer_the_round_trip_the_less_it_grows() {
    // What each round trip takes, and the windows after 256, with 256 in flight.
    let cases = [
        ("no queue: each round trip grows twice as much", NEAR, [288, 320, 384, 512]),
        ("a sixteenth of the slack", 5_000, [288, 320, 384, 512]),
        ("more", 5_001, [272, 272, 272, 272]),
        ("the target", 26_000, [272, 272, 272, 272]),
        ("more than the target: it shrinks, from the second answer on", 26_100, [256, 255, 254, 253]),
        ("twice the target", 52_000, [256, 128, 64, 32]),
    ];
    for (name, took, windows) in cases {
        let mut world = World::at(NEAR).slowly();
        assert_eq!(world.answers(256, took, 4), windows, "{name}");
    }
    let mut world = World::at(NEAR).slowly();
    world.congestion.cwnd = MAX_CWND;
    assert_eq!(
        world.answers(20, 52_000, 2)[1],
        20,
        "twice what is used counts, of a window that is not used"
    );
}

#[test]
fn what_was_sent_before_it_shrank_neither_grows_nor_shrinks_it() {
    let mut world = World::at(NEAR).slowly();
    let before = world.now;
    assert_eq!(world.answers(256, 52_000, 2), [256, 128]);
    for took in [NEAR, 60_000] {
        assert_eq!(world.answered(before, 256, took), 128, "took {took}");
    }
    let since = world.now;
    assert_eq!(world.answered(since, 128, NEAR), 144);
}

#[test]
fn the_fastest_of_the_last_answers_counts() {
    // The number of batches in flight; n, if every n-th answer is fast and the others are slow; and `true` if the window shrinks.
    for (batches, every, shrinks) in
        [(1, 2, false), (1, 3, true), (3, 3, false), (3, 4, true), (9, 4, false), (9, 5, true)]
    {
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
    // First come two round trips of 40 ms with 256 in flight. Then come three with the tasks in flight and the time of the row. With a queue,
    // 128 would take 20 ms; the middle of both is 30.
    let cases = [
        ("fewer in flight, and hardly faster", 128, 30_001, 30_001),
        ("as fast as a queue would be", 128, 30_000, NEAR),
        ("three quarters are fewer", 192, 40_000, 40_000),
        ("more are not", 193, 40_000, NEAR),
        ("one cannot be fewer", 1, 27_000, 27_000),
    ];
    for (name, in_flight, took, distance) in cases {
        let mut world = World::at(NEAR).slowly();
        assert_eq!(world.answers(256, 40_000, 2), [256, 166], "{name}");
        world.answers(in_flight, took, 2);
        assert_eq!(world.distance(), Some(NEAR), "{name}: two say too little");
        let cwnd = world.answer(in_flight, took);
        assert_eq!((world.distance(), cwnd >= 256), (Some(distance), distance != NEAR), "{name}");
    }
    // A queue that goes ends the suspicion.
    for (took, is_suspected) in [(26_000, false), (26_001, true)] {
        let mut world = World::at(NEAR).slowly();
        world.answers(256, 40_000, 2);
        world.answers(64, took, 2);
        assert_eq!(world.congestion.longest.is_some(), is_suspected, "{took}");
    }
}

#[test]
fn an_unanswered_batch_leaves_half_of_what_was_in_flight() {
    for (before, in_flight, after) in [(256, 100, 50), (256, 1, 1), (10, 800, 10)] {
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
    // The last round trip counts no longer than the target, 39 ms: seven batches in a pace of 5.5 ms.
    let mut world = World::at(28_000);
    (world.now, world.congestion.cwnd) = (Micros::ZERO, 256);
    world.answered(Micros::ZERO, 1, 49_000);
    assert_eq!(world.congestion.batch(200, 1), 37);
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
        for took in trips {
            world.answer(1, took);
        }
        assert_eq!(world.congestion.pace_of_repeats(), Micros(pace), "{name}");
    }
}

#[test]
fn no_more_wait_than_can_be_answered_in_time() {
    assert_eq!(World::new().congestion.may_wait(1, 1), usize::MAX, "nothing is known");
    // 50 ms less one round trip and the pace are 38 ms: 19 windows of 256, and those that may be sent at once.
    assert_eq!(World::at(NEAR).congestion.may_wait(256, 10), 4_874, "no queue");
    // Two round trips with 256 in flight, the tasks that may be sent at once, and those that may wait: what the store does within the
    // deadline less the pace, less the tasks in flight.
    let cases = [
        ("no more than an eighth of the slack", [8_000, 9_000], 10, 1_064),
        ("a queue: 512 in 18 ms, for 40 ms", [9_000, 9_000], 10, 881),
        ("half of the jitter is less time: 512 in 20 ms, for 39 ms", [9_000, 11_000], 10, 742),
        ("the window has room for more", [9_000, 9_000], 1_000, 1_000),
    ];
    for (name, trips, free, places) in cases {
        let mut world = World::at(NEAR).slowly();
        for took in trips {
            world.answer(256, took);
        }
        assert_eq!(world.congestion.may_wait(256, free), places, "{name}");
    }
    let mut world = World::at(NEAR).slowly();
    world.answers(1, 49_000, 2);
    assert_eq!(world.congestion.may_wait(256, 0), 1, "always one");
}

/// Whatever is answered, and whatever is not.
#[test]
fn the_window_is_never_empty_and_never_above_its_bound() {
    let (mut world, mut random) = (World::new(), crate::random::Random::new(1));
    for _ in 0..10_000 {
        let in_flight = 1 + usize::try_from(random.below(2 * MAX_CWND as u64)).unwrap();
        let took = random.below(120_000);
        world.answer(in_flight, took);
        if random.below(20) == 0 {
            world.congestion.unanswered(in_flight);
        }
        assert!((1..=MAX_CWND).contains(&world.cwnd()));
    }
}
