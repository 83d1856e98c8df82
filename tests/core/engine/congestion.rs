// SPDX-License-Identifier: Apache-2.0
//! The number of tasks that a worker asks of the store at a time: a worker and a store in virtual time. The aim: from two seconds after
//! each change on, the store decides at least nine in ten of the requests that it can decide within the deadline. A table contains the
//! cases in which that is so, and a sample of scenarios bounds the others. The first second after a worker connects has a bar of its own.
//!
//! `cargo test --test core engine::congestion -- --nocapture` prints the figures.

use weir_support::{is_full, sized};

use crate::worker::{BUCKET, granted, policy};
use crate::world::World;
use crate::world::store::Store;

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// A lasting change.
#[derive(Clone, Copy, Debug)]
enum Change {
    Start,
    Capacity(u64),
    Distance(u64),
    Hiccup(u64),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    deadline: u64,
    distance: u64,
    jitter: u64,
    /// Tasks a second.
    capacity: u64,
    /// Requests a second.
    rate: u64,
    /// Round trips until a connection can be used.
    handshake: u64,
    change: Change,
}

/// In so many of a hundred scenarios some second may be below 90 %, and below 50 %.
const MAY_BE_BELOW_90: u64 = 40;
const MAY_BE_BELOW_50: u64 = 15;

const FAST: u64 = 100_000;

const fn case(name: &'static str, deadline: u64, distance: u64) -> Case {
    Case {
        name,
        deadline: deadline * MS,
        distance: distance * MS,
        jitter: 0,
        capacity: FAST,
        rate: 2_000,
        handshake: 1,
        change: Change::Start,
    }
}

const fn changes(name: &'static str, deadline: u64, distance: u64, change: Change) -> Case {
    Case { change, ..case(name, deadline, distance) }
}

/// A store with little capacity, asked for so many requests a second.
const fn limited(name: &'static str, deadline: u64, distance: u64, capacity: u64, rate: u64) -> Case {
    Case { capacity, rate, ..case(name, deadline, distance) }
}

const CASES: &[Case] = &[
    case("cold start at 1 of 50", 50, 1),
    case("cold start at 5 of 50", 50, 5),
    case("cold start at 15 of 50", 50, 15),
    case("cold start at 28 of 50", 50, 28),
    case("cold start at 45 of 50", 50, 45),
    case("cold start at 80 of 100", 100, 80),
    case("cold start at 130 of 200", 200, 130),
    case("cold start at 180 of 200", 200, 180),
    Case { handshake: 2, ..case("cold start at 28 of 50 with TLS", 50, 28) },
    Case { handshake: 3, ..case("cold start at 180 of 200 with an old TLS", 200, 180) },
    Case { jitter: 5 * MS, ..case("jitter of 5 at 5 of 50", 50, 5) },
    Case { jitter: 15 * MS, ..case("jitter of 15 at 28 of 50", 50, 28) },
    Case { jitter: 40 * MS, ..case("jitter of 40 at 130 of 200", 200, 130) },
    Case { jitter: 3 * MS, ..case("jitter of 3 at 40 of 50", 50, 40) },
    Case { rate: 20, ..case("20 requests a second at 45 of 50", 50, 45) },
    Case { rate: 20, ..case("20 requests a second at 130 of 200", 200, 130) },
    limited("all of the capacity at 1 of 50", 50, 1, 1_000, 1_000),
    limited("twice the capacity at 1 of 50", 50, 1, 1_000, 2_000),
    limited("twice a small capacity at 1 of 50", 50, 1, 300, 600),
    limited("ten times the capacity at 1 of 50", 50, 1, 300, 3_000),
    limited("twice the capacity at 15 of 50", 50, 15, 1_000, 2_000),
    limited("twice the capacity at 28 of 50", 50, 28, 1_000, 2_000),
    limited("twice the capacity at 80 of 100", 100, 80, 1_000, 2_000),
    limited("twice the capacity at 130 of 200", 200, 130, 1_000, 2_000),
    Case { jitter: 5 * MS, ..limited("twice the capacity with jitter at 5 of 50", 50, 5, 1_000, 2_000) },
    changes("capacity falls to half the need at 1 of 50", 50, 1, Change::Capacity(1_000)),
    changes("capacity falls to a tenth of the need at 1 of 50", 50, 1, Change::Capacity(200)),
    changes("capacity falls to half the need at 130 of 200", 200, 130, Change::Capacity(1_000)),
    Case { change: Change::Capacity(FAST), ..limited("capacity comes back at 1 of 50", 50, 1, 200, 2_000) },
    Case {
        change: Change::Capacity(FAST),
        ..limited("capacity comes back at 130 of 200", 200, 130, 200, 2_000)
    },
    changes("moves from 1 to 20 of 50", 50, 1, Change::Distance(20 * MS)),
    Case {
        rate: 180,
        ..changes("180 requests a second, and it moves from 1 to 21 of 50", 50, 1, Change::Distance(21 * MS))
    },
    changes("moves from 1 to 40 of 50", 50, 1, Change::Distance(40 * MS)),
    changes("moves from 20 to 160 of 200", 200, 20, Change::Distance(160 * MS)),
    changes("moves from 160 to 20 of 200", 200, 160, Change::Distance(20 * MS)),
    changes("a hiccup of 100 at 1 of 50", 50, 1, Change::Hiccup(100 * MS)),
    changes("a hiccup of 1000 at 1 of 50", 50, 1, Change::Hiccup(1_000 * MS)),
    changes("a hiccup of 100 at 70 of 200", 200, 70, Change::Hiccup(100 * MS)),
    changes("a hiccup of 300 at 70 of 200", 200, 70, Change::Hiccup(300 * MS)),
    changes("a hiccup of 1000 at 70 of 200", 200, 70, Change::Hiccup(1_000 * MS)),
    changes("a hiccup of 300 at 45 of 50", 50, 45, Change::Hiccup(300 * MS)),
    changes("a hiccup of 1000 at 130 of 200", 200, 130, Change::Hiccup(1_000 * MS)),
    changes("a hiccup of 300 at 180 of 200", 200, 180, Change::Hiccup(300 * MS)),
    Case {
        handshake: 3,
        ..changes("a hiccup of 1000 at 130 of 200 with an old TLS", 200, 130, Change::Hiccup(1_000 * MS))
    },
];

/// The conditions for some seconds.
#[derive(Clone, Copy, Debug)]
struct Phase {
    seconds: u64,
    distance: u64,
    jitter: u64,
    capacity: u64,
    rate: u64,
    /// The store answers nothing for so long when it begins.
    freeze: u64,
}

#[derive(Clone, Debug)]
struct Scenario {
    name: String,
    deadline: u64,
    handshake: u64,
    single: bool,
    phases: Vec<Phase>,
}

/// The requests of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    decided: u64,
    possible: u64,
}

/// Workers and a store. The store denies what it decides, and requests without its decision are allowed. The rejections are as small as
/// can be, because hundreds of thousands are written.
fn world(store: &str, handshake: u64, workers: usize) -> World {
    let config = format!(
        r#"{{"store": {store}, "response": {{"headers": "none", "format": "empty"}}, "policies": [{{"name": "p0", {}}}]}}"#,
        policy(BUCKET)
    );
    let mut world = World::new(&[config], workers, 1);
    world.handshake = handshake;
    world.stores[0] = Store::made_up(|_, _, _| granted(0));
    world
}

fn play(scenario: &Scenario) -> Vec<Vec<Second>> {
    let topology = if scenario.single { r#", "topology": "single""# } else { "" };
    let store = format!(r#"{{"deadline": "{}us", "on_failure": "allow"{topology}}}"#, scenario.deadline);
    let mut world = world(&store, scenario.handshake, 1);
    let mut marks = Vec::new();
    for phase in &scenario.phases {
        world.behaves(phase.distance, phase.jitter, phase.capacity);
        if phase.freeze > 0 {
            world.stores[0].frozen_until = world.time + phase.freeze;
        }
        let begins = world.time;
        // The last of them are decided before the next change.
        for second in 1..=phase.seconds {
            let from = world.arrived();
            marks.push((from, world.arrive_until(begins + second * SECOND, phase.rate)));
        }
        // Not cut at the end, so that the next change comes at no round time.
        let begins = world.time;
        while world.time < begins + scenario.deadline + 10 * MS {
            world.arrive(0, world.alone());
            let pause = world.random(2 * SECOND / phase.rate);
            world.run(pause);
        }
    }
    world.run(3 * scenario.deadline + 20 * MS);
    let mut marks = marks.into_iter();
    let figures = |phase: &Phase| {
        let second = |(from, to): (u32, u32)| {
            let decided = world.decided(from, to);
            let arrived = u64::from(to - from);
            let possible = possible(scenario.deadline, phase, arrived);
            Second { decided, possible }
        };
        marks.by_ref().take(phase.seconds as usize).map(second).collect()
    };
    scenario.phases.iter().map(figures).collect()
}

/// The number of a second's requests that a store can decide within the deadline. A worker has 4,096 tasks in flight at most; if answers
/// differ, only those count whose trip fits.
fn possible(deadline: u64, phase: &Phase, arrived: u64) -> u64 {
    let service = SECOND / phase.capacity;
    let slack = deadline.saturating_sub(phase.distance + service);
    let in_flight = 4_096 * SECOND / phase.distance.max(1);
    let most = arrived.min(phase.capacity).min(in_flight);
    if phase.jitter > slack { most * slack / phase.jitter } else { most }
}

/// The share of the worst second and the mean, in percent, from two seconds after each change on. Where little is asked several seconds
/// count as one.
fn judged(phases: &[Phase], figures: &[Vec<Second>]) -> (u64, u64) {
    let (mut worst, mut all) = (100, Second::default());
    for (phase, figures) in phases.iter().zip(figures) {
        let mut sum = Second::default();
        for second in figures.iter().skip(2 + phase.freeze.div_ceil(SECOND) as usize) {
            sum = Second { decided: sum.decided + second.decided, possible: sum.possible + second.possible };
            all = Second { decided: all.decided + second.decided, possible: all.possible + second.possible };
            if sum.possible >= 50 {
                worst = worst.min(100 * sum.decided / sum.possible);
                sum = Second::default();
            }
        }
    }
    (worst, 100 * all.decided / all.possible.max(1))
}

/// The share in percent that the store decides of the requests in the second after the connection's handshake. The connection is opened for
/// the first request.
fn first_second(case: &Case) -> u64 {
    let Case { deadline, distance, jitter, capacity, handshake, .. } = *case;
    let store = format!(r#"{{"deadline": "{deadline}us", "on_failure": "allow"}}"#);
    let mut world = world(&store, handshake, 1);
    world.behaves(distance, jitter, capacity);
    let from = world.arrive_until(handshake * distance, case.rate);
    let to = world.arrive_until(handshake * distance + SECOND, case.rate);
    world.run(3 * deadline + 20 * MS);
    100 * world.decided(from, to) / u64::from(to - from)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    /// Between these, and as likely between 1 and 2 as between 10 and 20.
    fn spread(&mut self, least: u64, most: u64) -> u64 {
        let octave = least << self.below(u64::from((most / least).ilog2()) + 1);
        (octave + self.below(octave)).min(most)
    }
}

/// A store as it may be, and two changes to it.
fn scenario(seed: u64, most_rate: u64) -> Scenario {
    let mut random = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let deadline = random.spread(20, 500) * MS;
    let distance = |random: &mut Random| {
        let tenths = 10 + random.below(890);
        let near = random.below(3) == 0;
        if near { deadline * tenths / 10_000 } else { deadline * tenths / 1_000 }.max(200)
    };
    let jitter = |random: &mut Random, distance: u64| {
        if random.below(2) == 0 { 0 } else { random.below((deadline - distance) / 2) }
    };
    let mut phase = Phase {
        seconds: 5,
        distance: distance(&mut random),
        jitter: 0,
        capacity: random.spread(50, 50_000),
        rate: 0,
        freeze: 0,
    };
    phase.jitter = jitter(&mut random, phase.distance);
    let demand = random.spread(200, 10_000);
    phase.rate = (phase.capacity * demand / 1_000).clamp(10, most_rate);
    let mut phases = vec![phase];
    if random.below(3) == 0 {
        phases[0].seconds = 14;
    }
    for _ in 0..2 {
        phase.freeze = 0;
        match random.below(4) {
            0 => phase.distance = distance(&mut random),
            1 => phase.capacity = random.spread(50, 50_000),
            2 => {
                phase.freeze = random.spread(20, 2_000) * MS;
                phase.seconds = 6;
            }
            _ => phase.rate = (phase.capacity * random.spread(200, 10_000) / 1_000).clamp(10, most_rate),
        }
        phase.jitter = phase.jitter.min((deadline - phase.distance) / 2);
        phases.push(phase);
    }
    Scenario {
        name: format!("seed {seed}"),
        deadline,
        handshake: 1 + random.below(3),
        single: random.below(3) == 0,
        phases,
    }
}

fn of_case(case: &Case) -> Scenario {
    let phase = Phase {
        seconds: 12,
        distance: case.distance,
        jitter: case.jitter,
        capacity: case.capacity,
        rate: case.rate,
        freeze: 0,
    };
    let short = Phase { seconds: 5, ..phase };
    let phases = match case.change {
        Change::Start => vec![phase],
        Change::Capacity(capacity) => vec![short, Phase { capacity, ..short }],
        Change::Distance(distance) => vec![short, Phase { distance, ..short }],
        Change::Hiccup(freeze) => vec![short, Phase { freeze, ..short }],
    };
    Scenario {
        name: case.name.into(),
        deadline: case.deadline,
        handshake: case.handshake,
        single: false,
        phases,
    }
}

fn show(scenario: &Scenario, figures: &[Vec<Second>]) {
    let (worst, mean) = judged(&scenario.phases, figures);
    println!("{worst:3} %, mean {mean:3} %  {}: deadline {} ms", scenario.name, scenario.deadline / MS);
    for (phase, figures) in scenario.phases.iter().zip(figures) {
        let share = |second: &Second| 100 * second.decided / second.possible.max(1);
        println!("    {phase:?}: {:?}", figures.iter().map(share).collect::<Vec<_>>());
    }
}

/// The least percentage in one second; of all seconds together it is at least nine in ten.
const WORST_SECOND: u64 = 70;

#[test]
fn the_store_decides_what_it_can() {
    let mut failed = Vec::new();
    for case in CASES.iter().step_by(if is_full() { 1 } else { 22 }) {
        let scenario = of_case(case);
        let figures = play(&scenario);
        show(&scenario, &figures);
        let (worst, mean) = judged(&scenario.phases, &figures);
        if worst < WORST_SECOND || mean < 90 {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// The aim of the first second after the handshake, in percent.
const FIRST_SECOND: u64 = 80;

/// A worker that knows nothing of its store sends 128 tasks, and more only when these are answered. So where more than that arrive within
/// a round trip, the requests of the first two round trips may go undecided: with 2,000 requests a second, the aim is missed from 100 ms on.
/// If fewer arrive, the distance does not matter.
#[test]
fn a_store_decides_from_the_handshake_on() {
    let far = |rate| Case { rate, ..case("few, 180 of 200", 200, 180) };
    let cold = CASES.iter().copied().filter(|case| case.name.starts_with("cold start"));
    let cases: Vec<_> = cold.chain([100, 200, 400].map(far)).collect();
    let mut below = Vec::new();
    for case in &cases {
        let share = first_second(case);
        println!("{share:3} %  {}, {} requests a second", case.name, case.rate);
        let is_few = case.rate * case.distance <= 128 * SECOND;
        let two_trips = 2 * case.distance * 100 / SECOND;
        let bar = if is_few { 95 } else { FIRST_SECOND.min(99 - two_trips) };
        if share < bar {
            below.push((case.name, share, bar));
        }
    }
    assert!(cases.len() > 3 && below.is_empty(), "{below:?}");
}

/// Workers share a store that can do half of what they ask: none starves, for 500 deadlines if they are two, and the store stays busy.
#[test]
fn workers_share_a_store_that_has_too_much_to_do() {
    let mut unfair = Vec::new();
    for (workers, distance, seconds) in [(2, 1, 27), (2, 28, 27), (8, 1, 10), (8, 20, 10)] {
        let mut world = world(r#"{"deadline": "50ms", "on_failure": "allow"}"#, 1, workers);
        let capacity = 500 * workers as u64;
        world.behaves(distance * MS, 0, capacity);
        let (mut from, begins) = (0, 2 * SECOND);
        while world.time < seconds * SECOND {
            if world.time < begins {
                from = world.arrived();
            }
            let (worker, checks) = (world.random(workers as u64) as usize, world.alone());
            world.arrive(worker, checks);
            let pause = world.random(SECOND / capacity);
            world.run(pause);
        }
        let to = world.arrived();
        world.run(SECOND);
        let mut decided = vec![0; workers];
        for (_, request) in world.ledger.requests.range(from + 1..=to) {
            decided[request.worker] += u64::from(request.is_rejected());
        }
        let fair = capacity * (seconds - 2) / workers as u64;
        let shares: Vec<_> = decided.iter().map(|decided| 100 * decided / fair).collect();
        println!("{workers} workers at {distance} ms: {shares:?} % of their fair shares");
        let mean = shares.iter().sum::<u64>() / workers as u64;
        unfair.extend(
            (mean < 90 || shares.iter().any(|share| *share < 20)).then_some((workers, distance, shares)),
        );
    }
    assert!(unfair.is_empty(), "{unfair:?}");
}

/// Clients ask in a closed loop, in bursts of 150 ms with pauses. Each request keeps the worker busy for a time, and now and then another
/// process has its processor. The store is near and has little to do, so it decides every request: only the loop of the worker is slow, and
/// deadlines do not count that. No answer is later than the deadline: such a one would be missed under any law.
#[test]
fn a_saturated_worker_does_not_take_its_own_delay_for_the_stores() {
    let mut refused = Vec::new();
    for (clients, work, preempted, jitter) in [
        (256, 90, 0, 0),
        (256, 90, 20 * MS, 0),
        (256, 90, 0, 10 * MS),
        (256, 90, 20 * MS, 10 * MS),
        (256, 90, 100 * MS, 20 * MS),
        (256, 300, 50 * MS, 60 * MS),
        (256, 1_000, 100 * MS, 40 * MS),
        (32, 1_000, 50 * MS, 20 * MS),
    ] {
        let store = r#"{"deadline": "50ms", "on_failure": "allow", "topology": "single"}"#;
        let mut world = world(store, 0, 1);
        world.behaves(100, jitter, 1_000_000);
        for _ in 0..sized(8) {
            saturate(&mut world, clients, work, preempted);
            world.run(4 * SECOND);
        }
        let (arrived, without) = (world.arrived(), world.engine(0).counters().fallback);
        println!(
            "{without} of {arrived}: {clients} clients, {work} us each, preempted for {preempted} us, answers up to {jitter} us late"
        );
        refused.extend((without > 0).then_some((clients, work, preempted, jitter, without, arrived)));
    }
    assert!(refused.is_empty(), "{refused:?}");
}

/// Turns of an event loop: some of what has come is read, each request takes its time, and what they ask leaves at the end of the turn.
fn saturate(world: &mut World, clients: u64, work: u64, preempted: u64) {
    let ends = world.time + 150 * MS;
    let mut ready = clients;
    while world.time < ends {
        let now = 1 + world.random(ready);
        for _ in 0..now.min(ready) {
            world.time += work / 2;
            world.submit(0, world.alone());
        }
        ready -= now.min(ready);
        if world.random(4) == 0 {
            world.time += world.random(preempted);
        }
        world.turn(0);
        world.run(100);
        // The responses: their clients ask again.
        let waiting = world.ledger.open.len() as u64;
        world.time += (clients - ready - waiting) * work / 2;
        ready = clients - waiting;
    }
    world.run(SECOND / 10);
}

/// The law does not hold everywhere: not for a store that does some hundred tasks a second or less and is asked for many times that,
/// nor where its capacity falls many times over while it is far, nor where answers differ by more than half of what the deadline
/// leaves beyond the distance. So this bounds in how many scenarios it does not.
///
/// `SEED=1001 COUNT=120 RATE=5000 cargo test … scenarios -- --nocapture` plays others.
#[test]
fn in_most_scenarios_the_store_decides_most_of_what_it_can() {
    let number =
        |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count, most_rate) = (number("SEED", 1), number("COUNT", 24), number("RATE", 1_000));
    let mut results = Vec::new();
    for seed in first..first + count {
        let scenario = scenario(seed, most_rate);
        let figures = play(&scenario);
        results.push((judged(&scenario.phases, &figures), scenario, figures));
    }
    results.sort_by_key(|(judged, ..)| *judged);
    results.iter().for_each(|(_, scenario, figures)| show(scenario, figures));
    let below = |percent| results.iter().filter(|((worst, _), ..)| *worst < percent).count() as u64;
    println!("of {count}: {} below 90 %, {} below 80 %, {} below 50 %", below(90), below(80), below(50));
    assert!(below(90) * 100 <= count * MAY_BE_BELOW_90 && below(50) * 100 <= count * MAY_BE_BELOW_50);
}
