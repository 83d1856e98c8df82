//! `make bench`: what a limit at the edge costs, with weir and in other ways, beside each other on this machine in one run.
//!
//! ```text
//!  core 1: load ──▶ core 0: one of the edges ──▶ core 1: upstream (nginx)
//!                             │
//!                             └──▶ core 1: Redis
//! ```
//!
//! All edges run all the time, with one worker each. In each round all of them are measured one after the other under one
//! load, then under the next. So whatever else the machine does affects neighbouring rows of the table alike. The figures are
//! medians of the rounds. `docs/bench/README.md` says how to read them.
//!
//! For some cases only: `cargo bench --no-default-features --bench edge -- --rounds 1 --only 'plain,exact' --connections 32`;
//! `--beside before.wasm` adds weir's edges with another build of the plugin.
#![allow(missing_docs, clippy::disallowed_methods, clippy::float_arithmetic, clippy::indexing_slicing)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod chart;
mod cost;
mod edges;
mod load;
mod report;
#[path = "../../tests/support/mod.rs"]
mod support;
mod way;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use edges::{Edge, World};
use load::{Load, Subjects};
use report::{Case, Figures, Report};

/// The other number of subjects, besides one.
const MANY: u32 = 10_000;

fn main() -> ExitCode {
    match Plan::from_arguments().and_then(|plan| plan.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What to measure, and for how long.
struct Plan {
    rounds: u32,
    warm_up: Duration,
    measured: Duration,
    connections: Vec<u32>,
    subjects: Vec<u32>,
    /// Only edges whose names contain one of these; all edges if it is empty.
    only: Vec<String>,
    /// Other builds of the plugin.
    beside: Vec<PathBuf>,
}

impl Plan {
    fn from_arguments() -> io::Result<Self> {
        let mut plan = Self {
            rounds: 4,
            warm_up: Duration::from_millis(250),
            measured: Duration::from_millis(1_200),
            connections: vec![1, 32, 256],
            subjects: vec![1, MANY],
            only: Vec::new(),
            beside: Vec::new(),
        };
        // Cargo adds `--bench`.
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| usage(&argument))?;
            let list = || value.split(',').map(str::trim);
            let number = |text: &str| text.parse::<u32>().map_err(|_| usage(text));
            match argument.as_str() {
                "--rounds" => plan.rounds = number(&value)?,
                "--milliseconds" => plan.measured = Duration::from_millis(number(&value)?.into()),
                "--connections" => plan.connections = list().map(number).collect::<io::Result<_>>()?,
                "--subjects" => plan.subjects = list().map(number).collect::<io::Result<_>>()?,
                "--only" => plan.only = list().map(String::from).collect(),
                "--beside" => plan.beside = list().map(PathBuf::from).collect(),
                _ => return Err(usage(&argument)),
            }
        }
        Ok(plan)
    }

    fn run(&self) -> io::Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let wanted =
            |name: &str| self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()));
        let world = World::start(wanted, &self.beside)?;
        let mut progress = Progress::of(self, world.edges.len());
        for edge in &world.edges {
            // Each subject sends two requests: the first makes its bucket, the second is denied where the bucket is then empty.
            for _ in 0..2 {
                load::run(&self.load(edge, 32, Subjects::EachOnce(MANY)), &stop, || Ok(()))?;
            }
            edge.settle();
        }
        let mut report = Report::new(world.absent.clone());
        for round in 0..self.rounds {
            for &connections in &self.connections {
                for &subjects in &self.subjects {
                    // Every second round in reverse order, so that no edge always follows the same one.
                    let mut order: Vec<_> = world.edges.iter().collect();
                    if round % 2 == 1 {
                        order.reverse();
                    }
                    for edge in order {
                        progress.next(edge.name, connections, subjects);
                        let drawn = Subjects::Random { of: subjects, seed: u64::from(round) };
                        let load = self.load(edge, connections as usize, drawn);
                        let figures = measure(&load, edge, &world, &stop)?;
                        report.add(Case { name: edge.name, connections, subjects }, figures);
                    }
                    if connections == 1 {
                        report.add_way(world.way_to_redis(self.measured)?);
                    }
                }
            }
        }
        progress.end();
        report.publish()
    }

    fn load(&self, edge: &Edge, connections: usize, subjects: Subjects) -> Load {
        let (warm_up, measured) = (self.warm_up, self.measured);
        Load { to: edge.address, connections, subjects, expected: edge.answers, warm_up, measured }
    }
}

/// One run.
fn measure(load: &Load, edge: &Edge, world: &World, stop: &AtomicBool) -> io::Result<Figures> {
    let mut redis = world.redis.connect();
    let spent = || Ok([cost::cpu(&edge.pids)?, cost::cpu(&[world.redis.pid()])?, cost::commands(&mut redis)]);
    let (mut sample, before, after) = load::run(load, stop, spent)?;
    edge.settle();
    let requests = sample.requests as f64;
    let [proxy, redis, commands] = [0, 1, 2].map(|what| (after[what] - before[what]) as f64 / requests);
    Ok(Figures {
        rps: requests / sample.elapsed.as_secs_f64(),
        p50_us: sample.percentile(50),
        p99_us: sample.percentile(99),
        proxy_us: proxy / 1e3,
        redis_us: redis / 1e3,
        redis_commands: commands,
        errors: sample.errors,
    })
}

fn usage(wrong: &str) -> io::Error {
    io::Error::other(format!(
        "unknown argument {wrong:?}; allowed: [--rounds N] [--milliseconds N] [--only PART-OF-NAME,…] [--connections N,…] \
         [--subjects N,…] [--beside PLUGIN,…]"
    ))
}

/// The progress line.
struct Progress {
    begun: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    fn of(plan: &Plan, edges: usize) -> Self {
        let all = plan.rounds as usize * plan.connections.len() * plan.subjects.len() * edges;
        Self { begun: Instant::now(), done: 0, all }
    }

    fn next(&mut self, name: &str, connections: u32, subjects: u32) {
        let elapsed = self.begun.elapsed();
        let left = if self.done == 0 {
            Duration::ZERO
        } else {
            elapsed / self.done as u32 * (self.all - self.done) as u32
        };
        self.done += 1;
        // A log gets a line for every sixteenth run only.
        let (start, end) = if io::stderr().is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
        if end.is_empty() || self.done % 16 == 1 {
            eprint!(
                "{start}run {} of {}: {name}, connections {connections}, subjects {subjects}; {} s so far, about {} s left{end}",
                self.done,
                self.all,
                elapsed.as_secs(),
                left.as_secs(),
            );
            let _ = io::stderr().flush();
        }
    }

    fn end(&self) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        eprintln!("{} runs in {} s", self.all, self.begun.elapsed().as_secs());
    }
}
