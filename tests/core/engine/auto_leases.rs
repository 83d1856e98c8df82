// SPDX-License-Identifier: Apache-2.0
//! `lease: auto`: how much is taken in advance, when a worker pauses, and what many workers admit together.

use weir::engine::{Action, Release, Submitted};
use weir::limit::{Align, Concurrency, FixedWindow, LeakyBucket, Limit, Refill, RetryAfter, TokenBucket};
use weir::policy::Lease;
use weir::time::Micros;

use crate::worker::*;
use crate::world::World;
use crate::world::ledger::Entry;

const AUTO: &str = r#""auto""#;

fn auto() -> Worker {
    Worker::new(DENY, [leased(AUTO, LARGE)])
}

fn bucket(rate: u64, burst: u64) -> Limit {
    LeakyBucket::new(rate, secs(1), burst, Micros::ZERO).expect("a bucket").into()
}

fn window(limit: u64, window: Micros) -> Limit {
    FixedWindow::new(limit, window, Align::Clock).expect("a window").into()
}

#[test]
fn a_lease_has_what_comes_back_in_40_us_and_a_hundredth_of_the_limit_at_most() {
    let refill = || TokenBucket::new(10_000, 5_000, ms(10), Refill::Stepwise, 0).expect("a bucket").into();
    let places = Concurrency::new(1_000_000, secs(1)).expect("places").into();
    let rows: [(&str, Vec<Limit>, u64, Option<(u32, u32)>); 14] = [
        ("500,000 a second", vec![bucket(500_000, 10_000)], 1, Some((20, 8))),
        ("a burst of 500", vec![bucket(500_000, 500)], 1, Some((5, 5))),
        ("a burst of 199", vec![bucket(500_000, 199)], 1, None),
        ("50,000 a second", vec![bucket(50_000, 10_000)], 1, Some((2, 2))),
        ("49,999 a second", vec![bucket(49_999, 10_000)], 1, None),
        ("30 million a minute", vec![window(30_000_000, MINUTE)], 1, Some((20, 8))),
        ("500,000 a second in steps", vec![refill()], 1, Some((20, 8))),
        ("requests of five", vec![bucket(500_000, 10_000)], 5, Some((4, 4))),
        ("requests of ten", vec![bucket(500_000, 10_000)], 10, Some((2, 2))),
        ("requests of eleven", vec![bucket(500_000, 10_000)], 11, None),
        ("requests that cost nothing", vec![bucket(500_000, 10_000)], 0, None),
        (
            "the smaller of two limits",
            vec![bucket(500_000, 10_000), window(3_600_000, MINUTE)],
            1,
            Some((2, 2)),
        ),
        ("a smaller one that is too small", vec![bucket(500_000, 10_000), window(1_000_000, DAY)], 1, None),
        ("permits", vec![bucket(500_000, 10_000), places], 1, None),
    ];
    for (name, limits, cost, expected) in rows {
        assert_eq!(Lease::auto(&limits, cost).map(|lease| (lease.max, lease.min)), expected, "{name}");
    }
}

/// Requests ask one by one, and all requests in a batch are granted and used. Returns how many each batch asks for.
fn sizes(worker: &mut Worker, batches: usize) -> Vec<i64> {
    let mut stream = 1_000;
    let mut next = |worker: &mut Worker| {
        stream += 1;
        worker.arrive(stream, &["ann"])
    };
    let mut size = |_| {
        while next(worker) == Some(true) {}
        let batch = worker.batch();
        let requests = batch.tasks()[0].requests;
        worker.skip(ms(1));
        worker.reply(&batch, [granted(requests).remaining(9_000)]);
        requests
    };
    (0..batches).map(&mut size).collect()
}

#[test]
fn the_fourth_request_takes_a_lease_that_grows_with_use() {
    assert_eq!(sizes(&mut auto(), 8), [1, 1, 1, 1 + 8, 1 + 16, 1 + 20, 1 + 20, 1 + 20]);
    // Of a limit that is too small nothing is taken in advance, and a denial holds for as long as without a lease.
    let small = LARGE.replace("500k/s", "49999/s");
    assert_eq!(sizes(&mut Worker::new(DENY, [leased(AUTO, &small)]), 8), [1; 8]);
    for (lease, until) in [(leased(AUTO, &small), 999), (leased(AUTO, LARGE), 499)] {
        let mut worker = Worker::new(DENY, [lease]);
        worker.all_wait([1], "ann");
        worker.answer([denied(DAY)]);
        worker.idle(ms(until));
        assert_eq!(worker.arrive(2, &["ann"]), Some(false), "{until}");
        worker.idle(ms(1_001));
        assert_eq!(worker.arrive(3, &["ann"]), None, "{until}");
    }
}

#[test]
fn what_is_left_after_half_a_second_goes_back() {
    let mut worker = auto();
    sizes(&mut worker, 4);
    assert_eq!(worker.engine.on_lease(), 8);
    worker.idle(ms(498));
    assert_eq!(worker.engine.on_lease(), 8);
    worker.idle(ms(1));
    assert_eq!((worker.engine.on_lease(), worker.drain()), (0, vec![refund("p0|ann", 8)]));
}

/// With few workers each batch has many requests, so nothing changes.
#[test]
fn a_batch_of_as_many_requests_as_a_lease_has_takes_none() {
    for (requests, asked) in [(19, 19 + 8), (20, 20), (40, 40)] {
        let mut worker = auto();
        worker.all_wait(1..=requests, "ann");
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [check("p0|ann", asked)], "{requests} at once");
        // It does not pause either.
        let reply = granted(0).wait(Micros(2));
        worker.skip(ms(2));
        worker.reply(&batch, [reply]);
        worker.skip(Micros(10));
        let pauses = worker.arrive(100, &["ann"]) == Some(false);
        assert_eq!(pauses, asked > i64::from(requests), "{requests} at once");
    }
}

/// A worker that has taken eight in advance, and used them.
fn paused_worker() -> Worker {
    let mut worker = auto();
    sizes(&mut worker, 4);
    let mut stream = 2_000..;
    while worker.engine.on_lease() > 0 {
        assert_eq!(worker.arrive(stream.next().expect("a number"), &["ann"]), Some(true));
    }
    worker
}

/// Asks, is answered after 2 ms that so many percent are granted, and uses them. For how many milliseconds it then denies by itself.
fn pause_after(worker: &mut Worker, stream: &mut u32, percent: i64) -> u64 {
    let mut arrives = |worker: &mut Worker| {
        *stream += 1;
        worker.arrive(*stream, &["ann"])
    };
    if !worker.engine.wants_to_send() {
        assert_eq!(arrives(worker), None, "it asks");
    }
    let batch = worker.batch();
    let wanted = batch.tasks()[0].requests;
    worker.skip(ms(2));
    let reply = granted(wanted * percent / 100);
    worker.reply(&batch, [if percent < 100 { reply.wait(Micros(2)) } else { reply.remaining(9_000) }]);
    while worker.engine.on_lease() > 0 {
        assert_eq!(arrives(worker), Some(true), "what was granted is used first");
    }
    let mut paused = 0;
    // The first that is not denied waits, and is asked about next.
    while arrives(worker) == Some(false) {
        paused += 1;
        worker.idle(ms(1));
        assert!(paused < 1_000, "it asks again");
    }
    paused
}

#[test]
fn a_worker_pauses_for_longer_while_others_take_what_comes_back() {
    // The percentage of the requested units that is granted each time.
    let rows: [(&str, &[i64], &[u64]); 6] = [
        ("nothing is granted", &[0; 9], &[2, 4, 8, 16, 32, 64, 128, 250, 250]),
        ("less than half", &[40; 3], &[2, 4, 8]),
        ("half and more: as long as before", &[0, 0, 50, 90], &[2, 4, 4, 4]),
        ("half at first: no pause", &[50, 50], &[0, 0]),
        ("all", &[100; 3], &[0, 0, 0]),
        ("all halves it", &[0, 0, 0, 100, 0], &[2, 4, 8, 0, 8]),
    ];
    for (name, grants, expected) in rows {
        let (mut worker, mut stream) = (paused_worker(), 3_000);
        let pauses: Vec<_> =
            grants.iter().map(|percent| pause_after(&mut worker, &mut stream, *percent)).collect();
        assert_eq!(pauses, expected, "{name}");
    }
}

#[test]
fn a_denial_that_lasts_longer_than_a_round_trip_is_no_reason_to_pause() {
    let mut worker = paused_worker();
    assert_eq!(worker.arrive(1, &["ann"]), None);
    let batch = worker.batch();
    worker.skip(ms(2));
    // The window has hardly anything left, and ends in 30 ms: three are granted.
    worker.reply(&batch, [granted(3).wait(ms(30))]);
    assert_eq!([2, 3].map(|stream| worker.arrive(stream, &["ann"])), [Some(true); 2]);
    assert_eq!(worker.arrive(4, &["ann"]), None, "it asks, as without auto");
    worker.answer([denied(ms(30))]);
    worker.idle(ms(27));
    assert_eq!(worker.arrive(5, &["ann"]), Some(false));
    worker.idle(ms(3));
    assert_eq!(worker.arrive(6, &["ann"]), None);
    // One that lasts as long as a round trip is.
    for (wait, pauses) in [(ms(2), true), (Micros(2_001), false)] {
        let mut worker = paused_worker();
        assert_eq!(worker.arrive(1, &["ann"]), None);
        let batch = worker.batch();
        worker.skip(ms(2));
        assert_eq!(worker.reply(&batch, [granted(0).wait(wait)]), [(1, false)]);
        worker.skip(Micros(2));
        assert_eq!(worker.arrive(2, &["ann"]) == Some(false), pauses, "{wait}");
    }
}

/// Requests that gathered meanwhile are denied without asking.
#[test]
fn a_pause_denies_what_waits_for_the_next_batch() {
    let mut worker = paused_worker();
    assert_eq!(worker.arrive(1, &["ann"]), None);
    let batch = worker.batch();
    worker.skip(ms(1));
    worker.all_wait(2..=5, "ann");
    worker.skip(ms(1));
    assert_eq!(worker.reply(&batch, [granted(3).wait(Micros(2))]), [(1, true)]);
    assert!(worker.next_batch().is_none(), "nothing is asked");
    assert_eq!(worker.released(), [(2, true), (3, true), (4, false), (5, false)]);
}

/// A subject that rests for as long as a lease lasts after a pause has its lease halved, and this one is too small then: it begins anew.
#[test]
fn a_pause_is_no_rest() {
    for (later, asked) in [(ms(0), 1), (ms(1), 1 + 8)] {
        let mut worker = paused_worker();
        // The used lease ends in half a second.
        worker.idle(ms(959));
        worker.skip(later);
        assert_eq!(worker.arrive(1, &["ann"]), None);
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [check("p0|ann", 1 + 8)]);
        worker.skip(ms(20));
        worker.reply(&batch, [granted(0).wait(ms(1))]);
        worker.idle(ms(520));
        assert_eq!(worker.arrive(2, &["ann"]), None);
        assert_eq!(worker.batch().tasks(), [check("p0|ann", asked)], "{later}");
    }
}

#[test]
fn clients_hear_no_earlier_time_than_that_of_the_pause() {
    let mut worker = paused_worker();
    worker.all_wait([1, 2], "ann");
    let batch = worker.batch();
    worker.skip(ms(40));
    worker.engine.replied(batch.id, &bytes([granted(1).wait(Micros(2))]), worker.now);
    assert!(matches!(worker.engine.next_release(), Some(Release { stream: 1, action: Action::Admit })));
    // The pause is as long as the round trip. The response states it as if it had begun when Redis was asked.
    let Some(Release { stream: 2, action: Action::Reject(told) }) = worker.engine.next_release() else {
        panic!("a rejection")
    };
    assert_eq!(told.retry_after, RetryAfter::After(ms(80)));
    worker.idle(ms(10));
    let checks = [check_of(0, "{p0|ann}", 1)].into_iter().collect();
    let Submitted::Decided(Action::Reject(told)) = worker.engine.submit(3, checks, worker.now) else {
        panic!("a rejection")
    };
    assert_eq!(told.retry_after, RetryAfter::After(ms(30)));
}

/// If at least half is granted at first, the worker does not pause, and clients get the time that Redis says.
#[test]
fn without_a_pause_clients_hear_the_time_of_the_store() {
    let mut worker = paused_worker();
    worker.all_wait(1..=19, "ann");
    let batch = worker.batch();
    let wanted = batch.tasks()[0].requests;
    assert!(wanted / 2 <= 18 && wanted > 19, "{wanted}");
    worker.skip(ms(40));
    worker.engine.replied(batch.id, &bytes([granted(18).wait(Micros(2))]), worker.now);
    let last = std::iter::from_fn(|| worker.engine.next_release()).last().expect("a release");
    let Action::Reject(told) = last.action else { panic!("a rejection") };
    assert_eq!((last.stream, told.retry_after), (19, RetryAfter::After(Micros(2))));
}

#[test]
fn a_clock_that_was_set_back_prolongs_no_pause() {
    for back in [Micros(1), secs(3_600)] {
        let mut worker = paused_worker();
        assert_eq!(worker.arrive(1, &["ann"]), None);
        let batch = worker.batch();
        worker.skip(ms(2));
        worker.reply(&batch, [granted(4).wait(Micros(2))]);
        worker.engine.tick(worker.now);
        worker.set_back(back);
        worker.engine.tick(worker.now);
        assert_eq!(worker.arrive(2, &["ann"]), None, "back by {back}");
    }
}

/// A subject whose limit in Redis is smaller has no lease of the size of the configured one.
#[test]
fn a_subjects_own_limits_count() {
    let overridden = format!(r#""overrides": true, {}"#, leased(AUTO, LARGE));
    let mut worker = Worker::new(DENY, [overridden]);
    worker.all_wait(1..=4, "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 4 + 8)]);
    worker.reply(&batch, [granted(12).remaining(9).and(&[1_000, 10, 0])]);
    (5..=12).for_each(|stream| assert_eq!(worker.arrive(stream, &["ann"]), Some(true)));
    assert_eq!(worker.arrive(13, &["ann"]), None);
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 1)]);
}

/// `workers` workers and one subject of `rate` requests a second, 1 ms away, under a limit of 100,000 a second and a burst of 2,000.
fn crowd(workers: usize, rate: u64, lease: bool) -> World {
    const LIMIT: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "100k/s", "burst": 2000}"#;
    let policy = if lease { leased(AUTO, LIMIT) } else { policy(LIMIT) };
    let mut world = World::new(&[configuration(DENY, [policy])], workers, 1);
    while world.time < 200_000 {
        let place = usize::try_from(world.random(workers as u64)).expect("a place");
        world.arrive(place, vec![check_of(0, "{p0|hot}", 1)]);
        let pause = world.random(2 * 1_000_000 / rate + 1);
        world.run(pause);
    }
    world
}

#[test]
fn many_workers_use_the_limit_and_never_more() {
    let mut commands = Vec::new();
    for (workers, lease) in [(4, false), (4, true), (100, true)] {
        let mut world = crowd(workers, 200_000, lease);
        let name = format!("{workers} workers, lease {lease}");
        let (end, asked) = (world.time, world.ledger.entries.len());
        for (at, used) in world.ledger.used("p0|hot") {
            let most = 2_000 + at / 10 + 1;
            assert!(u64::try_from(used).expect("never negative") <= most, "{name}: {used} at {at} of {most}");
        }
        // In the last 100 ms, with 100 in each ms.
        let lately =
            world.ledger.decisions.iter().filter(|(at, _, admitted)| *admitted && *at > end - 100_000);
        let lately = lately.count();
        assert!((9_900..=10_100).contains(&lately), "{name}: {lately} of 10,000 were admitted");
        let granted: i64 = world.ledger.entries.iter().map(Entry::granted).sum();
        let unused: i64 = world.ledger.entries.iter().map(|entry| -entry.settled()).sum();
        assert!(unused * 100 <= granted, "{name}: {unused} of {granted} were not used");
        commands.push(asked);
        // Demand ends: what is left comes back within half a second.
        world.run(510_000);
        let held: u64 = (0..workers).map(|place| world.engine(place).on_lease()).sum();
        assert_eq!(held, 0, "{name}");
        world.run(20_000);
        let admitted = world.ledger.decisions.iter().filter(|(.., admitted)| *admitted).count();
        let used = world.ledger.used("p0|hot").last().expect("some").1;
        assert_eq!(usize::try_from(used), Ok(admitted), "{name}: what is charged was admitted");
        world.ledger.judge(true, false);
    }
    // 40,000 requests. A hundred workers without a lease send 19,000 commands.
    assert!(commands[0] == commands[1] && commands[2] < 9_000, "{commands:?}");
}
