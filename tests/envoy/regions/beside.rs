// SPDX-License-Identifier: Apache-2.0
//! The effect on other regions of one that is slow, or whose Redis is unavailable: their p99 in rounds with the fault and rounds without,
//! in turn, so that other load of the machine affects both alike. Requests that no policy matches (`none`) show the effect of the machine:
//! all regions share it, and the cost of a fault to one slows the others.

use std::fmt;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir::random::Random;

use crate::cases::Event;
use crate::measure::{Answer, answer, happen};
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

/// The number of times that the rounds are run, until they show that nothing is felt. All of them count in the end: none is left out for
/// its result.
const ATTEMPTS: usize = 4;
/// Pairs of rounds, one with the fault and one without, in each attempt.
const PAIRS: usize = 12;
/// The time for a change to settle, and the duration of a round after it.
const SETTLES: Duration = Duration::from_millis(1_500);
const ROUND: Duration = Duration::from_millis(2_500);
/// Requests per second for each `Lane`.
const RATE: u32 = 40;
/// The maximum ratio of the p99 of another region.
const MOST: f64 = 1.1;
/// The number of times that the pairs are drawn again for an interval.
const DRAWS: usize = 500;

/// The durations of the requests of one round.
type Times = Vec<Duration>;

/// The effect on one other region, under one way.
#[derive(Debug)]
pub struct Row {
    way: &'static str,
    name: &'static str,
    region: &'static str,
    /// A round without the fault, and the one beside it with the fault.
    pairs: Vec<[Times; 2]>,
}

impl Row {
    /// The p99 of all rounds of a kind.
    fn p99(&self, kind: usize) -> Duration {
        p99(self.pairs.iter().map(|pair| &pair[kind]))
    }

    /// The ratio of the p99 with the fault to that without; its 95 % interval.
    ///
    /// The interval is a bootstrap: whole pairs are drawn again, with replacement. Other load of the machine lasts longer than a request,
    /// so the requests of a round are not independent, and the two rounds of a pair have much of it in common. The seed is fixed.
    fn ratio(&self) -> [f64; 2] {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut drawn = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let pairs: Vec<_> = (0..self.pairs.len())
                .map(|_| &self.pairs[random.draw_high() as usize % self.pairs.len()])
                .collect();
            let of = |kind: usize| p99(pairs.iter().map(|pair| &pair[kind])).as_secs_f64();
            drawn.push(of(1) / of(0));
        }
        drawn.sort_by(f64::total_cmp);
        [drawn[DRAWS / 40], drawn[DRAWS - 1 - DRAWS / 40]]
    }

    fn verdict(&self) -> Verdict {
        match self.ratio() {
            [_, high] if high <= MOST => Verdict::NotFelt,
            [low, _] if low > MOST => Verdict::Felt,
            _ => Verdict::NotDecided,
        }
    }

    pub fn json(&self) -> Value {
        let [low, high] = self.ratio();
        json!({
            "way": self.way,
            "name": self.name,
            "region": self.region,
            "p99_ms_sound": millis(self.p99(0)),
            "p99_ms_faulty": millis(self.p99(1)),
            "ratio_interval": [low, high],
            "rounds": self.pairs.len(),
            "requests": self.pairs.iter().flatten().map(Vec::len).sum::<usize>(),
            "verdict": self.verdict().words(),
        })
    }
}

/// The meaning of a ratio's interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    NotFelt,
    Felt,
    NotDecided,
}

impl Verdict {
    const fn words(self) -> &'static str {
        match self {
            Self::NotFelt => "not felt",
            Self::Felt => "felt",
            Self::NotDecided => "not decided: the rounds differ too much",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, name, region, pairs } = self;
        let [low, high] = self.ratio();
        let (with, without) = (millis(self.p99(1)), millis(self.p99(0)));
        write!(
            f,
            "{name:38}  {way:5}  p99 in {region}: {with} ms; without: {without} ms; {low:.2} to {high:.2} times; {} rounds each: {}",
            pairs.len(),
            self.verdict().words()
        )
    }
}

/// The p99 of the requests of several rounds.
fn p99<'a>(rounds: impl Iterator<Item = &'a Times>) -> Duration {
    let mut times: Times = rounds.flatten().copied().collect();
    let place = (times.len() * 99).div_ceil(100) - 1;
    *times.select_nth_unstable(place).1
}

pub fn run(world: &mut World, fault: &Fault) -> (Report, Vec<String>) {
    let mut rows = attempt(world, fault);
    for _ in 1..ATTEMPTS {
        if rows.iter().all(|row| row.verdict() == Verdict::NotFelt) {
            break;
        }
        rows.iter_mut().zip(attempt(world, fault)).for_each(|(row, more)| row.pairs.extend(more.pairs));
    }
    let felt = rows.iter().filter(|row| row.way != CONTROL.name && row.verdict() == Verdict::Felt);
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
    let (mut pairs, mut was_faulty) = (Vec::new(), false);
    for pair in 0..PAIRS {
        let mut rounds = [Duration::ZERO..Duration::ZERO, Duration::ZERO..Duration::ZERO];
        // Neither kind always comes first.
        let first = pair % 2;
        for kind in [first, 1 - first] {
            let is_faulty = kind == 1;
            if is_faulty != was_faulty {
                happen(world, if is_faulty { &fault.begin } else { &fault.end });
            }
            was_faulty = is_faulty;
            thread::sleep(SETTLES);
            let begins = clock.elapsed();
            thread::sleep(ROUND);
            rounds[kind] = begins..clock.elapsed();
        }
        pairs.push(rounds);
    }
    if was_faulty {
        happen(world, &fault.end);
    }
    let mut rows = Vec::new();
    for (way, region, began, load) in loads {
        let (_, exchanges) = load.end();
        if region == REGIONS - 1 {
            continue;
        }
        let answers: Vec<Answer> = exchanges.iter().map(|exchange| answer(exchange, region, began)).collect();
        let times = |round: &Range<Duration>| {
            let within = answers.iter().filter(|answer| round.contains(&answer.ended));
            let times: Times = within.map(|answer| answer.took).collect();
            assert!(!times.is_empty(), "requests in each round");
            times
        };
        let pairs = pairs.iter().map(|[sound, faulty]| [times(sound), times(faulty)]).collect();
        rows.push(Row { way: way.name, name: fault.name, region: NAMES[region], pairs });
    }
    rows
}
