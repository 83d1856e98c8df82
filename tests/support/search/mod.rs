// SPDX-License-Identifier: Apache-2.0
//! Searches all interleavings of a small scenario: the real engines in the virtual [`World`], in which nothing happens by chance. A path is
//! a list of choices. Each path is run from the beginning, because an engine cannot be copied; paths of the same length are run together
//! (breadth first), so the first path that is found wrong is one of the shortest. After each path the network is good again, all requests
//! end, and the judge looks at what is left.
//!
//! A state that was seen before is not searched again. It is recognized by a hash of 64 bits of all that can decide what happens
//! next ([`World::digest`], what the clients may still do, and the sums that the judge looks at). `Scenario::prunes` switches that off.

pub mod judge;
pub mod scenarios;

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use weir::engine::StreamId;

use crate::worker::{Known, check_of};
use crate::world::{Defect, Event, World};
use judge::Protocol;

/// The amounts of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The number of times that time passes.
    pub passes: usize,
    /// Clients that leave while their requests wait.
    pub leavers: usize,
    pub crashes: usize,
    /// Batches and answers that are lost, silently or with their connection.
    pub losses: usize,
    /// Batches and answers that arrive twice.
    pub copies: usize,
    /// Steps of the clocks.
    pub steps: usize,
    /// The sum of the last four.
    pub faults: usize,
}

/// See the [module](self).
#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub protocol: Protocol,
    /// One for each region.
    pub configs: Vec<String>,
    /// In each region.
    pub workers: usize,
    /// The units, or permits, of all regions together.
    pub limit: i64,
    /// In how many microseconds a unit comes back.
    pub interval: Option<u64>,
    /// The worker of each client, and what its request costs.
    pub clients: Vec<(usize, u64)>,
    /// The number of clients that have come, been answered and left before the search begins.
    pub before: usize,
    /// The true cost of requests.
    pub true_cost: Option<i64>,
    /// Time passes for so long at most, unless a worker does something before.
    pub span: u64,
    /// A request is decided within this time.
    pub decided_within: u64,
    pub budget: Budget,
    pub defect: Option<Defect>,
    pub prunes: bool,
}

/// The next event.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// The client of this number comes.
    Come(usize),
    /// The response shows what the request has cost.
    Respond(StreamId),
    /// The request ends, or its client leaves.
    End(StreamId),
    Arrives(Event),
    IsLost(Event),
    Breaks(Event),
    ArrivesTwice(Event),
    TimePasses,
    /// The worker in this place crashes.
    Crashes(usize),
    /// The clock of this worker, or of this store, is set by so many microseconds.
    StepsWorker(usize, i64),
    StepsStore(usize, i64),
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The number of paths that were run, and of states that they have reached.
    pub paths: usize,
    pub states: usize,
    /// The number of choices in the longest path.
    pub longest: usize,
    /// All paths were run.
    pub is_complete: bool,
    /// Processor time.
    pub took: Duration,
    /// The first path that is wrong, and why.
    pub wrong: Option<(Vec<Choice>, String)>,
}

pub const SIZES: [&str; 7] = ["regions", "workers", "units", "requests", "passes", "leavers", "faults"];

/// The size of a clock's step.
const STEP: i64 = 50_000;

/// A scenario under way.
pub struct Run<'a> {
    pub scenario: &'a Scenario,
    pub world: World,
    /// The present index of each place's worker: a crash moves it.
    pub lives: Vec<usize>,
    pub has_come: Vec<bool>,
    /// The requests whose response has shown their cost.
    pub responded: Vec<StreamId>,
    pub left: Budget,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, known: &[Rc<Known>]) -> Self {
        let mut world = World::of(known, scenario.workers, 1);
        world.steer();
        world.stays_open = matches!(scenario.protocol, Protocol::Queue | Protocol::Settle);
        world.defect = scenario.defect;
        let mut run = Self {
            scenario,
            lives: (0..world.workers.len()).collect(),
            world,
            has_come: vec![false; scenario.clients.len()],
            responded: Vec::new(),
            left: scenario.budget,
        };
        for client in 0..scenario.before {
            run.choose(Choice::Come(client));
            while let Some(event) = run.world.on_the_way().first() {
                run.choose(Choice::Arrives(*event));
            }
            run.choose(Choice::End(stream_of(client)));
        }
        run
    }

    /// All possible next events.
    fn choices(&self) -> Vec<Choice> {
        let (left, world) = (self.left, &self.world);
        let mut choices: Vec<_> = world.on_the_way().into_iter().map(Choice::Arrives).collect();
        for (number, client) in self.scenario.clients.iter().enumerate() {
            // Those that are alike come in their order.
            let is_like = |other: &(usize, &(usize, u64))| other.1 == client && !self.has_come[other.0];
            if self
                .scenario
                .clients
                .iter()
                .enumerate()
                .find(is_like)
                .is_some_and(|(first, _)| first == number)
            {
                choices.push(Choice::Come(number));
            }
        }
        for stream in &world.ledger.open {
            let is_admitted = world.ledger.requests[stream].is_admitted();
            if is_admitted && self.scenario.true_cost.is_some() && !self.responded.contains(stream) {
                choices.push(Choice::Respond(*stream));
            }
            if world.ledger.requests[stream].decided.is_some() || left.leavers > 0 {
                choices.push(Choice::End(*stream));
            }
        }
        if left.passes > 0 {
            choices.push(Choice::TimePasses);
        }
        if left.faults == 0 {
            return choices;
        }
        for event in world.on_the_way() {
            if left.losses > 0 {
                choices.push(Choice::IsLost(event));
                choices.extend(world.is_awaited(event).then_some(Choice::Breaks(event)));
            }
            if left.copies > 0 {
                choices.push(Choice::ArrivesTwice(event));
            }
        }
        if left.crashes > 0 {
            choices.extend((0..self.lives.len()).map(Choice::Crashes));
        }
        if left.steps > 0 {
            for step in [-STEP, STEP] {
                choices.extend((0..self.lives.len()).map(|place| Choice::StepsWorker(place, step)));
                choices.extend((0..world.stores.len()).map(|store| Choice::StepsStore(store, step)));
            }
        }
        choices
    }

    fn choose(&mut self, choice: Choice) {
        let left = &mut self.left;
        let fault = match choice {
            Choice::IsLost(_) | Choice::Breaks(_) => Some(&mut left.losses),
            Choice::ArrivesTwice(_) => Some(&mut left.copies),
            Choice::Crashes(_) => Some(&mut left.crashes),
            Choice::StepsWorker(..) | Choice::StepsStore(..) => Some(&mut left.steps),
            _ => None,
        };
        if let Some(fault) = fault {
            *fault -= 1;
            left.faults -= 1;
        }
        match choice {
            Choice::Come(client) => {
                let (place, cost) = self.scenario.clients[client];
                self.has_come[client] = true;
                let subject = if self.scenario.protocol == Protocol::Settle { client } else { 0 };
                let check = check_of(0, format!("{{p0|{subject}}}"), cost);
                self.world.arrive_as(stream_of(client), self.lives[place], vec![check]);
            }
            Choice::Respond(stream) => self.respond(stream),
            Choice::End(stream) => {
                left.leavers -= usize::from(self.world.ledger.requests[&stream].decided.is_none());
                self.world.close(stream);
            }
            Choice::Arrives(event) => self.world.arrives(event),
            Choice::IsLost(event) => self.world.goes_missing(event),
            Choice::Breaks(event) => self.world.breaks(event),
            Choice::ArrivesTwice(event) => self.world.arrives_twice(event),
            Choice::TimePasses => {
                left.passes -= 1;
                self.world.passes(self.scenario.span);
            }
            Choice::Crashes(place) => self.lives[place] = self.world.crashes(self.lives[place]),
            Choice::StepsWorker(place, step) => self.world.workers[self.lives[place]].skew += step,
            Choice::StepsStore(store, step) => self.world.stores[store].skew += step,
        }
    }

    /// The response says what the request has cost.
    fn respond(&mut self, stream: StreamId) {
        let cost = self.scenario.true_cost.expect("a cost").to_string().into_bytes();
        let place = self.world.ledger.requests[&stream].worker;
        let worker = self.world.worker(place);
        let now = worker.now;
        worker.engine.response_headers(stream, &|name: &str| (name == "x-used").then(|| cost.clone()), now);
        self.responded.push(stream);
        self.world.turn(place);
    }

    fn state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.world.digest(&mut hasher);
        (&self.lives, &self.has_come, &self.left).hash(&mut hasher);
        let mut responded = self.responded.clone();
        responded.sort_unstable();
        responded.hash(&mut hasher);
        judge::sums(self).hash(&mut hasher);
        hasher.finish()
    }
}

/// The time for which this thread has had a processor: other work on the machine does not count. Where Linux does not tell it, the time
/// since then.
fn cpu_time(since: Instant) -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|told| told.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

/// The number of a client's request.
pub fn stream_of(client: usize) -> StreamId {
    StreamId::try_from(client).expect("few clients") + 1
}

impl Scenario {
    /// Its sizes, in the order of [`SIZES`].
    pub fn sizes(&self) -> [usize; 7] {
        let Budget { passes, leavers, faults, .. } = self.budget;
        let units = usize::try_from(self.limit).expect("few");
        let workers = self.configs.len() * self.workers;
        [self.configs.len(), workers, units, self.clients.len() - self.before, passes, leavers, faults]
    }

    /// Runs all paths, but no longer than this.
    pub fn search(&self, time: Duration) -> Found {
        let (begun, mut found) = (Instant::now(), Found::default());
        let begin = cpu_time(begun);
        let took = || cpu_time(begun).saturating_sub(begin);
        let known: Vec<_> = self.configs.iter().map(|config| Known::new(config)).collect();
        let (mut seen, mut paths) = (HashSet::new(), VecDeque::from([Vec::<u8>::new()]));
        while let Some(path) = paths.pop_front() {
            if found.paths.is_multiple_of(64) && took() > time {
                found.took = took();
                return found;
            }
            found.paths += 1;
            let mut chosen = Vec::new();
            let ran = catch_unwind(AssertUnwindSafe(|| self.run(&path, &known, &mut chosen, &mut seen)));
            let ran = ran.unwrap_or_else(|_| Err("it panics".to_owned()));
            match ran {
                Ok(0) => {}
                Ok(count) => {
                    found.longest = path.len();
                    let then =
                        |choice| path.iter().copied().chain([u8::try_from(choice).expect("few")]).collect();
                    paths.extend((0..count).map(then));
                }
                Err(why) => {
                    found.wrong = Some((chosen, why));
                    break;
                }
            }
            found.states = seen.len();
        }
        found.is_complete = found.wrong.is_none();
        found.took = took();
        found
    }

    /// Runs a path. Returns how many choices there are behind it, none if its last state was seen before.
    fn run(
        &self,
        path: &[u8],
        known: &[Rc<Known>],
        chosen: &mut Vec<Choice>,
        seen: &mut HashSet<u64>,
    ) -> Result<usize, String> {
        let mut run = Run::new(self, known);
        for place in path {
            let choice = run.choices()[usize::from(*place)];
            chosen.push(choice);
            run.choose(choice);
        }
        if !seen.insert(run.state()) && self.prunes {
            return Ok(0);
        }
        judge::always(&run)?;
        let count = run.choices().len();
        judge::at_end(run)?;
        // A path without choices is over.
        Ok(count)
    }
}
