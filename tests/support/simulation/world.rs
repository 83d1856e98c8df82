// SPDX-License-Identifier: Apache-2.0
//! The regions of weir in virtual time: each has workers with real engines, a store, and a clock of its own. Between the regions is a
//! delay; a batch is on its way for so long, and its replies once more. What a host does is done here too: ticks, batches, releases.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use weir::config::Config;
use weir::engine::{Action, BatchId, Engine, StreamId, Submitted};
use weir::random::Random;
use weir::time::Micros;

use super::clients::{self, Flow};
use super::store::{Scripts, Store};
use super::{Run, Setup, Way};
use crate::worker::{START, check_of};

/// One way from a worker to the store of its own region, in microseconds.
const NEAR: u64 = 200;

/// The clocks of two neighbouring regions differ by this, in microseconds.
const SKEW: u64 = 1_700_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A flow sends a request.
    Sends(usize),
    Tick(usize),
    /// A worker's batch reaches a store.
    Reached(usize, BatchId),
    Answered(usize, BatchId),
    /// All regions publish their demand.
    Publish,
    /// What was published reaches all.
    Known,
}

/// How far what a worker keeps for other regions moves in an interval, in percent, if it is granted twice its fair part.
const KEEPS_MORE: f64 = 10.0;

/// A worker is granted its fair part if it has so many times it.
const FAIR_ENOUGH: f64 = 1.05;

/// What a new interval counts in the averages of a worker.
const NEW: f64 = 0.25;

/// What a worker knows of demand, if shares are to follow it.
#[derive(Clone, Default)]
struct Demand {
    /// Since it was published last.
    came: u64,
    granted: u64,
    /// The averages, a second.
    demand: f64,
    grants: f64,
    /// How many percent of its region's part it keeps for other regions.
    kept: f64,
}

impl Demand {
    fn publish(&mut self, setup: &Setup) -> f64 {
        let rate = |count: &mut u64| std::mem::take(count) as f64 * 1_000_000.0 / setup.sync_interval as f64;
        self.demand += NEW * (rate(&mut self.came) - self.demand);
        self.grants += NEW * (rate(&mut self.granted) - self.grants);
        self.demand
    }

    /// The demand of all workers is known.
    fn adjust(&mut self, all: f64, setup: &Setup) {
        let fair = self.demand * (setup.rate as f64 / all.max(1.0)).min(1.0);
        let more = if fair > 0.0 { (self.grants / fair - FAIR_ENOUGH).clamp(-1.0, 1.0) } else { -1.0 };
        self.kept = (self.kept + KEEPS_MORE * more).clamp(0.0, 90.0);
    }
}

/// A worker, and its host.
struct Worker {
    engine: Engine,
    region: usize,
    /// The regions of the engine's stores.
    stores: Vec<usize>,
    timer: Option<u64>,
    /// Batches on their way, with the region that they are for; and replies on their way back.
    in_flight: BTreeMap<BatchId, (usize, Vec<u8>)>,
    /// The flows whose requests wait.
    waiting: BTreeMap<StreamId, u16>,
    streams: StreamId,
    demand: Demand,
}

struct World {
    delay: u64,
    time: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    workers: Vec<Worker>,
    stores: Vec<Store>,
    scripts: Scripts,
    flows: Vec<Flow>,
    /// Demands on their way to all.
    published: VecDeque<f64>,
    run: Run,
}

pub fn run(setup: &Setup) -> Run {
    let configs: Vec<_> = (0..setup.regions)
        .map(|region| {
            let config = Config::parse(setup.config(region).as_bytes());
            Rc::new(config.unwrap_or_else(|errors| panic!("{errors:?}")))
        })
        .collect();
    let worker = |place: usize| {
        let region = place / setup.workers;
        let stores = std::iter::once(region).chain((0..setup.regions).filter(|other| *other != region));
        let mut engine = Engine::new(Rc::clone(&configs[region]), setup.seed + place as u64);
        engine.tick(clock(region, 0));
        Worker {
            engine,
            region,
            stores: stores.collect(),
            timer: None,
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            streams: 0,
            demand: Demand::default(),
        }
    };
    let mut world = World {
        delay: setup.delay,
        time: 0,
        events: BinaryHeap::new(),
        number: 0,
        workers: (0..setup.regions * setup.workers).map(worker).collect(),
        stores: (0..setup.regions).map(|_| Store::default()).collect(),
        scripts: Scripts::new(&configs[0]),
        flows: clients::flows(setup),
        published: VecDeque::new(),
        run: Run::default(),
    };
    let mut random = clients::random(setup.seed);
    for flow in 0..world.flows.len() {
        let at = random.below(100_000);
        world.schedule(at, Event::Sends(flow));
    }
    if setup.way == Way::Following {
        world.schedule(setup.sync_interval, Event::Publish);
    }
    while let Some(Reverse((at, _, event))) = world.events.pop()
        && at < setup.micros()
    {
        world.time = at;
        world.happens(event, setup, &mut random);
    }
    world.run
}

/// The clock of a region, so long after the beginning.
fn clock(region: usize, time: u64) -> Micros {
    Micros(START.0 + SKEW * region as u64 + time)
}

impl World {
    fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn happens(&mut self, event: Event, setup: &Setup, random: &mut Random) {
        let place = match event {
            Event::Sends(flow) => {
                let (sends, next) = self.flows[flow].next(self.time, random);
                if let Some(next) = next {
                    self.schedule(next, event);
                }
                if !sends {
                    return;
                }
                let worker = random.below(setup.workers as u64) as usize;
                self.arrive(self.flows[flow].region * setup.workers + worker, flow, setup)
            }
            Event::Tick(place) => {
                let now = self.now(place);
                let worker = &mut self.workers[place];
                if worker.timer != Some(self.time) {
                    return;
                }
                worker.timer = None;
                worker.engine.tick(now);
                while let Some(batch) = worker.engine.next_abandoned() {
                    worker.in_flight.remove(&batch);
                }
                place
            }
            Event::Reached(place, batch) => {
                let from = self.workers[place].region;
                let Some((region, body)) = self.workers[place].in_flight.get_mut(&batch) else { return };
                let (region, now) = (*region, clock(*region, self.time));
                *body = self.stores[region].run(body, &self.scripts, now);
                self.schedule(self.time + self.delay(from, region), Event::Answered(place, batch));
                return;
            }
            Event::Answered(place, batch) => {
                let now = self.now(place);
                let worker = &mut self.workers[place];
                let Some((_, replies)) = worker.in_flight.remove(&batch) else { return };
                assert!(worker.engine.replied(batch, &replies, now), "good replies");
                place
            }
            Event::Publish => {
                let all = self.workers.iter_mut().map(|worker| worker.demand.publish(setup)).sum();
                self.published.push_back(all);
                self.run.messages += (setup.regions * (setup.regions - 1)) as u64;
                self.schedule(self.time + self.delay, Event::Known);
                self.schedule(self.time + setup.sync_interval, Event::Publish);
                return;
            }
            Event::Known => {
                let all = self.published.pop_front().expect("a demand");
                self.workers.iter_mut().for_each(|worker| worker.demand.adjust(all, setup));
                return;
            }
        };
        self.turn(place);
    }

    const fn delay(&self, from: usize, to: usize) -> u64 {
        if from == to { NEAR } else { self.delay }
    }

    fn now(&self, worker: usize) -> Micros {
        clock(self.workers[worker].region, self.time)
    }

    fn arrive(&mut self, place: usize, flow: usize, setup: &Setup) -> usize {
        let now = self.now(place);
        let worker = &mut self.workers[place];
        worker.streams += 1;
        let stream = worker.streams;
        let mut check = check_of(0, "{p|all}", 1);
        if setup.way == Way::Home {
            check.store = worker.stores.iter().position(|region| *region == 0).expect("the home") as u8;
        }
        worker.demand.came += 1;
        if setup.way == Way::Following {
            check.kept_percent = worker.demand.kept as u8;
        }
        let number = u16::try_from(flow).expect("few flows");
        self.run.sent.push((self.time, number));
        worker.waiting.insert(stream, number);
        if let Submitted::Decided(action) = worker.engine.submit(stream, [check].into_iter().collect(), now) {
            self.decided(place, stream, &action);
        }
        place
    }

    fn decided(&mut self, place: usize, stream: StreamId, action: &Action) {
        let (now, worker) = (self.now(place), &mut self.workers[place]);
        let flow = worker.waiting.remove(&stream).expect("a request that waits");
        let admitted = matches!(action, Action::Admit);
        if admitted {
            worker.demand.granted += 1;
            self.run.admitted.push((self.time, flow));
        }
        self.flows[usize::from(flow)].decided(admitted, self.time);
        worker.engine.closed(stream, now);
    }

    /// What a host does after each event.
    fn turn(&mut self, place: usize) {
        let now = self.now(place);
        while let Some(outgoing) = self.workers[place].engine.next_batch(now) {
            let worker = &mut self.workers[place];
            let (from, to) = (worker.region, worker.stores[usize::from(outgoing.store)]);
            worker.in_flight.insert(outgoing.id, (to, outgoing.body));
            self.run.messages += u64::from(from != to);
            self.schedule(self.time + self.delay(from, to), Event::Reached(place, outgoing.id));
        }
        while let Some(release) = self.workers[place].engine.next_release() {
            self.decided(place, release.stream, &release.action);
        }
        let worker = &mut self.workers[place];
        let failures = worker.engine.take_failures();
        assert!(failures.is_empty(), "{failures:?}");
        if let Some(due) = worker.engine.next_tick(now) {
            // Whole milliseconds, as the host's timers.
            let at = self.time + due.since(now).as_millis_ceil().max(1) * 1_000;
            if worker.timer.is_none_or(|timer| at < timer) {
                worker.timer = Some(at);
                self.schedule(at, Event::Tick(place));
            }
        }
    }
}
