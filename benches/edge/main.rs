// SPDX-License-Identifier: Apache-2.0
//! `make bench`: what a limit at the edge costs, with weir and in other ways, beside each other on this machine in one run.
//!
//! ```text
//!  core 1: load ──▶ core 0: one of the edges ──▶ core 1: upstream (nginx)
//!                             │
//!                             └──▶ core 1: Redis
//! ```
//!
//! All edges run all the time, with one worker each. In each of 60 rounds all of them are measured one after the other for a tenth
//! of a second, under one load, then under the next. So whatever else the machine does, for longer than a round, affects all
//! rows of the table alike. A target compares the figures of the same round. `docs/bench/README.md` says how to read the results.
//!
//! For some cases only: `cargo bench --bench edge -- --rounds 8 --only 'plain,exact' --connections 32`;
//! `--beside before.wasm` adds weir's edges with another build of the plugin, `--beside before.so` with another of the module.
#![allow(missing_docs, clippy::disallowed_methods, clippy::float_arithmetic, clippy::indexing_slicing)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use weir_support::bars;
mod cost;
mod edges;
mod freeze;
mod instructions;
mod load;
mod machine;
mod pace;
mod report;
mod service;
mod stats;
use weir_support as support;
mod targets;
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
use machine::Machine;
use pace::Pace;
use report::{Case, Figures, Report};
use service::RATELIMIT;

/// The other number of subjects, besides one.
const MANY: u32 = 10_000;

/// The time for which Redis stands still at the end.
const FROZEN: Duration = Duration::from_secs(5);

/// A run with fewer requests does not count.
const FEWEST: u64 = 10;

fn main() -> ExitCode {
    match Plan::from_arguments().and_then(|plan| plan.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The edges to measure, and the durations.
struct Plan {
    rounds: u32,
    /// The duration of most measurements.
    measured: Duration,
    connections: Vec<u32>,
    subjects: Vec<u32>,
    /// Only edges whose names contain one of these; all edges if it is empty.
    only: Vec<String>,
    /// Other builds of the plugin or of the module.
    beside: Vec<PathBuf>,
    /// The time for which Redis stands still at the end, for each way. Unless set: not at all if `only` is.
    frozen: Option<Duration>,
}

impl Plan {
    fn from_arguments() -> io::Result<Self> {
        let mut plan = Self {
            rounds: pace::ROUNDS,
            measured: Duration::from_millis(100),
            connections: vec![1, 32, 256],
            subjects: vec![1, MANY],
            only: Vec::new(),
            beside: Vec::new(),
            frozen: None,
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
                "--freeze" => plan.frozen = Some(Duration::from_secs(number(&value)?.into())),
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
        let (began, machine) = (Instant::now(), Machine::now());
        let world = World::start(wanted, &self.beside)?;
        for edge in &world.edges {
            // In order to be denied, a subject has to empty its bucket first.
            for _ in 0..if edge.answers == 429 { 2 } else { 1 } {
                load::run(&self.load(edge, 32, Subjects::EachOnce(MANY)), &stop, || Ok(()))?;
            }
            edge.settle();
        }
        let mut report = Report::new(machine, self.shortened(&world), world.absent.clone());
        let mut progress = Progress::of(self, &world);
        for round in 0..self.rounds {
            if began.elapsed() > pace::LONGEST {
                report.shorten(format!(
                    "stopped after {round} of {} rounds, because no time was left",
                    self.rounds
                ));
                break;
            }
            self.measure_round(round, &world, &stop, &mut progress, &mut report)?;
        }
        progress.end();
        let by_default = if self.only.is_empty() { FROZEN } else { Duration::ZERO };
        let frozen = self.frozen.unwrap_or(by_default);
        if !frozen.is_zero() {
            report.add_frozen(freeze::run(&world.with_defaults()?, &world.redis, frozen, &stop)?);
        }
        report.publish()
    }

    /// Every second round in reverse order, so that no edge always follows the same one.
    fn measure_round(
        &self,
        round: u32,
        world: &World,
        stop: &AtomicBool,
        progress: &mut Progress,
        report: &mut Report,
    ) -> io::Result<()> {
        let mut order: Vec<_> = world.edges.iter().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for &connections in &self.connections {
            for &subjects in &self.subjects {
                for edge in &order {
                    if !round.is_multiple_of(self.pace(edge, connections).every) {
                        continue;
                    }
                    progress.next(edge.name, connections, subjects);
                    let drawn = Subjects::Random { of: subjects, seed: u64::from(round) };
                    let load = self.load(edge, connections, drawn);
                    match measure(&load, edge, world, stop) {
                        Ok(Some(figures)) => {
                            if figures.errors > 0 {
                                let (errors, counted) = (figures.errors, edge.diagnosis());
                                eprintln!("\n{errors} errors: {} in round {round}, {counted}", edge.name);
                            }
                            report.add(Case { name: edge.name, connections, subjects }, round, figures);
                        }
                        Ok(None) => report.add_lost(),
                        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                            eprintln!("\n{error}: {} in round {round}, {}", edge.name, edge.diagnosis());
                            report.add_hung(Case { name: edge.name, connections, subjects });
                        }
                        Err(error) => return Err(error),
                    }
                }
                if (connections, subjects) == (1, MANY) {
                    report.add_way(world.way_to_redis(self.measured)?);
                }
            }
        }
        let counts =
            self.connections.contains(&32) && self.subjects.contains(&MANY) && round.is_multiple_of(6);
        for edge in order.iter().filter(|edge| counts && instructions::COUNTED.contains(&edge.name)) {
            if let Some(count) = instructions::per_request(edge, world.redis.pid(), MANY, stop)? {
                report.add_instructions(edge.name, round, count);
            }
        }
        Ok(())
    }

    /// The differences from a full run.
    fn shortened(&self, world: &World) -> Vec<String> {
        let mut notes = Vec::new();
        let asks = |edge: &&Edge| edge.name.starts_with(RATELIMIT) && edge.service.is_empty();
        for Edge { name, .. } in world.edges.iter().filter(asks) {
            notes.push(format!("{name} without the CPU time of its service and of that service's Redis"));
        }
        if self.rounds < pace::ROUNDS {
            notes.push(format!("{} rounds instead of {}", self.rounds, pace::ROUNDS));
        }
        for connections in [1, 32, 256].iter().filter(|load| !self.connections.contains(load)) {
            notes.push(format!("not measured: {connections} connections"));
        }
        for subjects in [1, MANY].iter().filter(|load| !self.subjects.contains(load)) {
            notes.push(format!("not measured: {subjects} subjects"));
        }
        if !self.only.is_empty() {
            notes.push(format!("measured only the ways with {} in their names", self.only.join(" or ")));
        }
        notes
    }

    fn pace(&self, edge: &Edge, connections: u32) -> Pace {
        pace::of(edge.name, connections, self.measured)
    }

    fn load(&self, edge: &Edge, connections: u32, subjects: Subjects) -> Load {
        let Pace { warm_up, measured, .. } = self.pace(edge, connections);
        let (to, expected, connections) = (edge.address, edge.answers, connections as usize);
        Load { to, connections, subjects, expected, warm_up, measured }
    }
}

/// One run. `None` if it had hardly a request, because the machine was busy with other things: it says nothing about the edge.
fn measure(load: &Load, edge: &Edge, world: &World, stop: &AtomicBool) -> io::Result<Option<Figures>> {
    let mut redis = world.redis.connect();
    let (mut commands, mut begun) = ([0; 2], false);
    // Redis is asked for its counts outside the time that counts.
    let spent = || {
        if !begun {
            commands[0] = cost::commands(&mut redis);
        }
        let spent = [cost::cpu(&edge.pids)?, cost::cpu(&[world.redis.pid()])?, cost::cpu(&edge.service)?];
        if begun {
            commands[1] = cost::commands(&mut redis);
        }
        begun = true;
        Ok(spent)
    };
    let (mut sample, before, after) = load::run(load, stop, spent)?;
    edge.settle();
    if sample.requests < FEWEST {
        return Ok(None);
    }
    let requests = sample.requests as f64;
    let used = |which: usize| (after[which].used - before[which].used) as f64 / requests / 1e3;
    Ok(Some(Figures {
        rps: requests / sample.elapsed.as_secs_f64(),
        p50_us: sample.percentile(50),
        p99_us: sample.percentile(99),
        proxy_us: used(0),
        redis_us: used(1),
        service_us: used(2),
        kernel_us: (0..3).map(|which| after[which].kernel - before[which].kernel).sum::<u64>() as f64
            / requests
            / 1e3,
        redis_commands: (commands[1] - commands[0]) as f64 / requests,
        waited: (after[0].waited - before[0].waited) as f64 / sample.elapsed.as_nanos() as f64,
        errors: sample.errors,
    }))
}

fn usage(wrong: &str) -> io::Error {
    io::Error::other(format!(
        "unknown argument {wrong:?}; allowed: [--rounds N] [--milliseconds N] [--only PART-OF-NAME,…] [--connections N,…] \
         [--subjects N,…] [--freeze SECONDS] [--beside PLUGIN-OR-MODULE,…]"
    ))
}

/// The progress line.
struct Progress {
    begun: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    fn of(plan: &Plan, world: &World) -> Self {
        let runs =
            |edge, connections: &u32| plan.rounds.div_ceil(plan.pace(edge, *connections).every) as usize;
        let all: usize = world
            .edges
            .iter()
            .flat_map(|edge| plan.connections.iter().map(move |load| runs(edge, load)))
            .sum();
        Self { begun: Instant::now(), done: 0, all: all * plan.subjects.len() }
    }

    fn next(&mut self, name: &str, connections: u32, subjects: u32) {
        let elapsed = self.begun.elapsed();
        let left = if self.done == 0 {
            Duration::ZERO
        } else {
            elapsed / self.done as u32 * (self.all - self.done) as u32
        };
        self.done += 1;
        // A log gets a line for every 256th run only.
        let (start, end) = if io::stderr().is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
        if end.is_empty() || self.done % 256 == 1 {
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
        eprintln!("{} runs in {} s", self.done, self.begun.elapsed().as_secs());
    }
}
