// SPDX-License-Identifier: Apache-2.0
//! What the other regions feel of one that is slow, or whose Redis is gone: their p99 in rounds with the fault and rounds without,
//! in turn, so that both have the same share of what else the machine does. Requests that no policy is about (`none`) show what of it is
//! the machine's own: all regions share it, and what a fault costs one takes from the others.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cases::Event;
use crate::measure::{Answer, answer, happen, percentile};
use crate::report::{Report, millis};
use crate::support::load::Load;
use crate::support::proxy;
use crate::support::regions::NAMES;
use crate::world::{BETWEEN, CONTROL, REGIONS, WAYS, World};

/// Something that happens to the last region, and ends.
pub struct Fault {
    pub name: &'static str,
    begin: Event,
    end: Event,
}

pub static FAULTS: [Fault; 2] = [
    Fault {
        name: "beside a slow region",
        begin: Event::SlowRegion(proxy::Way { trip: Duration::from_millis(300), ..BETWEEN }),
        end: Event::Ways(BETWEEN),
    },
    Fault { name: "beside a region whose Redis is gone", begin: Event::Lost, end: Event::Back },
];

/// How often the rounds are run, until they tell that nothing is felt. All of them count in the end: none is left out for what it shows.
const ATTEMPTS: usize = 3;
/// Of each kind.
const ROUNDS: usize = 12;
/// How long a round is, after what changed has settled.
const SETTLES: Duration = Duration::from_millis(1_500);
const ROUND: Duration = Duration::from_millis(2_500);
/// Requests per second for each lane.
const RATE: u32 = 25;
/// How much longer the p99 of another region may be.
const MOST: f64 = 1.1;

/// What one other region felt, under one way.
#[derive(Debug)]
pub struct Row {
    way: &'static str,
    name: &'static str,
    region: &'static str,
    /// The p99 of each round, sorted.
    sound: Vec<Duration>,
    faulty: Vec<Duration>,
}

impl Row {
    /// Whether rounds without a fault are so much alike that a bar of a tenth can be judged. On a busy machine they are not, and then this
    /// shows nothing.
    fn tells_time(&self) -> bool {
        quartile(&self.sound, 3).as_secs_f64() <= MOST * median(&self.sound).as_secs_f64()
    }

    fn is_longer(&self) -> bool {
        median(&self.faulty).as_secs_f64() > MOST * median(&self.sound).as_secs_f64()
    }

    fn verdict(&self) -> &'static str {
        match (self.tells_time(), self.is_longer()) {
            (false, _) => "not judged: the machine was busy",
            (true, true) => "felt",
            (true, false) => "not felt",
        }
    }

    fn add(&mut self, more: Self) {
        self.sound.extend(more.sound);
        self.faulty.extend(more.faulty);
        self.sound.sort_unstable();
        self.faulty.sort_unstable();
    }

    pub fn json(&self) -> Value {
        json!({
            "way": self.way,
            "name": self.name,
            "region": self.region,
            "p99_ms_sound": millis(median(&self.sound)),
            "p99_ms_faulty": millis(median(&self.faulty)),
            "p99_ms_sound_quartiles": [millis(quartile(&self.sound, 1)), millis(quartile(&self.sound, 3))],
            "p99_ms_faulty_quartiles": [millis(quartile(&self.faulty, 1)), millis(quartile(&self.faulty, 3))],
            "rounds": self.sound.len(),
            "verdict": self.verdict(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, name, region, sound, faulty } = self;
        let spread = |times: &[Duration]| {
            let at = |part: usize| millis(quartile(times, part));
            format!("{} ms ({} to {})", millis(median(times)), at(1), at(3))
        };
        let (verdict, with, without) = (self.verdict(), spread(faulty), spread(sound));
        write!(
            f,
            "{name:38}  {way:5}  p99 in {region}: {with}; without: {without}; {} rounds each: {verdict}",
            sound.len()
        )
    }
}

fn quartile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() - 1) * part / 4]
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

pub fn run(world: &mut World, fault: &Fault) -> (Report, Vec<String>) {
    let mut rows = attempt(world, fault);
    for _ in 1..ATTEMPTS {
        if rows.iter().all(|row| row.tells_time() && !row.is_longer()) {
            break;
        }
        rows.iter_mut().zip(attempt(world, fault)).for_each(|(row, more)| row.add(more));
    }
    let felt = rows.iter().filter(|row| row.way != CONTROL.name && row.tells_time() && row.is_longer());
    let broken = felt.map(ToString::to_string).collect();
    (Report { cases: Vec::new(), beside: rows }, broken)
}

fn attempt(world: &mut World, fault: &Fault) -> Vec<Row> {
    let subject = world.subject();
    let clock = Instant::now();
    let mut loads = Vec::new();
    for way in WAYS.iter().chain([&CONTROL]) {
        for region in 0..REGIONS {
            let began = clock.elapsed();
            loads.push((way, region, began, Load::start(world.lanes(region, way, &subject), RATE)));
        }
    }
    let mut rounds = Vec::new();
    for round in 0..2 * ROUNDS {
        // Neither kind always comes first.
        let is_faulty = round % 4 == 1 || round % 4 == 2;
        if is_faulty != rounds.last().is_some_and(|(is_faulty, _)| *is_faulty) {
            happen(world, if is_faulty { &fault.begin } else { &fault.end });
        }
        thread::sleep(SETTLES);
        let begins = clock.elapsed();
        thread::sleep(ROUND);
        rounds.push((is_faulty, begins..clock.elapsed()));
    }
    if rounds.last().is_some_and(|(is_faulty, _)| *is_faulty) {
        happen(world, &fault.end);
    }
    let mut rows = Vec::new();
    for (way, region, began, load) in loads {
        let (_, exchanges) = load.end();
        if region == REGIONS - 1 {
            continue;
        }
        let answers: Vec<Answer> = exchanges.iter().map(|exchange| answer(exchange, region, began)).collect();
        let times = |kind: bool| {
            let rounds = rounds.iter().filter(|(is_faulty, _)| *is_faulty == kind);
            let mut times: Vec<_> = rounds
                .map(|(_, round)| {
                    let within = answers.iter().filter(|answer| round.contains(&answer.ended)).copied();
                    percentile(&within.collect::<Vec<_>>(), region, 99).expect("requests in each round")
                })
                .collect();
            times.sort_unstable();
            times
        };
        let (sound, faulty) = (times(false), times(true));
        rows.push(Row { way: way.name, name: fault.name, region: NAMES[region], sound, faulty });
    }
    rows
}
