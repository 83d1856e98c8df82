// SPDX-License-Identifier: Apache-2.0
//! One case under load: what was admitted where and when, and whether that is good enough.

use std::thread;
use std::time::{Duration, Instant};

use crate::Form;
use crate::bound::{bound, limit};
use crate::cases::{Case, Demand, Event};
use crate::support::http;
use crate::support::load::{Exchange, Lane, Load};
use crate::support::proxy::{Carried, Network};
use crate::support::regions;
use crate::world::{BETWEEN, ENVOYS, REGIONS, Way, World};

/// The least share of the limit to be used in a steady phase.
const LEAST_SHARE: f64 = 0.95;
const LEAST_DEBIT: f64 = 0.97;

/// The limit is used again when this much of it is, over a [`WINDOW`].
const CONVERGED: f64 = 0.9;
const WINDOW: Duration = Duration::from_millis(500);

/// One request that was answered. Times count from the beginning of the case.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub region: usize,
    pub ended: Duration,
    pub took: Duration,
    /// 0, if there was none.
    pub status: u16,
}

/// The result of a case, under one way.
#[derive(Debug)]
pub struct Row {
    pub way: &'static str,
    pub name: &'static str,
    pub sent: usize,
    pub admitted: usize,
    /// Answered with 503, because a Redis could not be asked.
    pub refused: usize,
    /// Answered with something else than 200, 429 or 503, or not at all.
    pub astray: usize,
    /// The units that the limit allows in that time, and the most that the way promises to admit.
    pub limit: f64,
    pub bound: f64,
    /// The share of the rate that was used in the steady phases.
    pub utilisation: Option<f64>,
    pub p50: Vec<Option<Duration>>,
    pub p99: Vec<Option<Duration>>,
    /// Between all regions, in both directions; unknown if several ways were under load.
    pub messages_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// The violations in attempts before this one.
    pub attempts: Vec<String>,
    /// The time from the move, or the end of the fault, until the limit was used again.
    pub converged: Option<Duration>,
}

impl Row {
    /// True if more was admitted than the way admits, however long anything takes.
    pub fn is_beyond_all_time(&self) -> bool {
        self.way != "debit" && self.admitted as f64 > self.bound
    }

    /// The violated requirements.
    pub fn broken(&self, case: &Case, form: Form) -> Vec<String> {
        let Self { way, name, sent, admitted, limit, bound, utilisation, astray, .. } = self;
        let mut broken = Vec::new();
        let mut hold =
            |holds: bool, says: String| broken.extend((!holds).then(|| format!("{way}, {name}: {says}")));
        let least = if form.is_full { bound } else { limit };
        hold(
            *sent as f64 > *least,
            format!("{sent} requests cannot show that no more than {least:.0} are admitted"),
        );
        hold(
            *admitted as f64 <= *bound,
            format!("{admitted} were admitted; the bound is {bound:.0}, the limit {limit:.0}"),
        );
        hold(*admitted > 0, "nothing was admitted".into());
        hold(*astray == 0, format!("{astray} requests got no answer, or one that no policy gives"));
        if form.is_full && case.uses_the_limit {
            let least = match *way {
                "share" => LEAST_SHARE,
                "debit" => LEAST_DEBIT,
                _ => 0.0,
            };
            let used = utilisation.unwrap_or_default();
            hold(
                used >= least,
                format!("{:.1} % of the limit was used, not {:.0} %", used * 100.0, least * 100.0),
            );
        }
        broken
    }
}

/// A load that has run, and how long after the beginning of the case it began.
struct Ran {
    load: Load,
    region: usize,
    began: Duration,
}

/// The load on one way.
#[derive(Default)]
struct Loads {
    /// The answers to a burst, if there was one.
    burst: Vec<Answer>,
    running: Vec<Ran>,
    over: Vec<Ran>,
}

/// Runs one case.
pub fn run(world: &mut World, case: &Case, ways: &[Way], form: Form) -> Vec<Row> {
    let subjects: Vec<_> = ways.iter().map(|_| world.subject()).collect();
    regions::set_all(&world.regions, &Network::Far(BETWEEN));
    let (clock, carried) = (Instant::now(), world.carried());
    let mut loads: Vec<Loads> = ways.iter().map(|_| Loads::default()).collect();
    let (mut begins, mut demand) = (Vec::new(), [0; REGIONS]);
    for phase in case.phases {
        happen(world, &phase.event);
        begins.push(clock.elapsed());
        if phase.demand != demand {
            demand = phase.demand;
            for ((loads, way), subject) in loads.iter_mut().zip(ways).zip(&subjects) {
                loads.change(world, way, subject, (demand, form), clock);
            }
        }
        if let Event::Burst = phase.event {
            thread::scope(|scope| {
                for ((loads, way), subject) in loads.iter_mut().zip(ways).zip(&subjects) {
                    let world = &*world;
                    scope.spawn(move || loads.burst = burst(world, way, subject, form, clock));
                }
            });
        }
        thread::sleep(phase.lasts / form.shorter);
    }
    let over = clock.elapsed();
    begins.push(over);
    loads.iter().flat_map(|loads| &loads.running).for_each(|ran| ran.load.stop_sending());
    let carried = {
        let now = world.carried();
        Carried { messages: now.messages - carried.messages, bytes: now.bytes - carried.bytes }
    };
    regions::set_all(&world.regions, &Network::Far(BETWEEN));
    let rows = loads.into_iter().zip(ways).map(|(loads, way)| {
        let (sent, answers) = loads.end();
        let mut row = account(case, way, form, &begins, (sent, &answers));
        if let [_] = ways {
            row.messages_per_second = Some(carried.messages as f64 / over.as_secs_f64());
            row.bytes_per_second = Some(carried.bytes as f64 / over.as_secs_f64());
        }
        row
    });
    rows.collect()
}

/// Brings about the event at the beginning of a phase.
pub fn happen(world: &mut World, event: &Event) {
    let last = REGIONS - 1;
    match event {
        Event::None | Event::Burst => {}
        Event::Ways(way) => regions::set_all(&world.regions, &Network::Far(*way)),
        Event::SlowRegion(way) => regions::set_around(&world.regions, last, &Network::Far(*way)),
        Event::Cut => regions::set_around(&world.regions, last, &Network::Cut),
        Event::Lost => world.regions[last].lab.redis.stop(),
        Event::Back => world.regions[last].lab.redis.restart(),
    }
}

/// Asks each region for twice the burst at once, half of it at each Envoy.
fn burst(world: &World, way: &Way, subject: &str, form: Form, clock: Instant) -> Vec<Answer> {
    let lanes = (0..REGIONS).flat_map(|region| {
        let lanes = world.lanes(region, way, subject);
        lanes.into_iter().map(move |lane| (region, lane))
    });
    thread::scope(|scope| {
        let each = lanes.map(|(region, Lane { to, request })| {
            let requests = std::iter::repeat_n(request, form.burst as usize);
            scope.spawn(move || {
                let sent = clock.elapsed();
                let held = http::burst_held(to, requests).expect("requests are sent");
                let end = |exchange: http::Exchange| {
                    let status = exchange.finish().map_or(0, |response| response.status);
                    Answer { region, ended: clock.elapsed(), took: clock.elapsed() - sent, status }
                };
                held.into_iter().map(end).collect::<Vec<_>>()
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().flat_map(|each| each.join().expect("a burst")).collect()
    })
}

impl Loads {
    /// Changes the demand from now on.
    fn change(
        &mut self,
        world: &World,
        way: &Way,
        subject: &str,
        (demand, form): (Demand, Form),
        clock: Instant,
    ) {
        let before = std::mem::take(&mut self.running);
        let asked = demand.iter().enumerate().filter(|(_, percent)| **percent > 0);
        self.running = asked
            .map(|(region, percent)| {
                let lanes = world.lanes(region, way, subject);
                let rate = form.rate * percent / 100 / ENVOYS as u32;
                Ran { region, began: clock.elapsed(), load: Load::start(lanes, rate) }
            })
            .collect();
        before.iter().for_each(|ran| ran.load.stop_sending());
        self.over.extend(before);
    }

    /// Returns the number of requests sent, and all answers, in the order in which they came.
    fn end(self) -> (usize, Vec<Answer>) {
        let (mut all, mut answers) = (self.burst.len(), self.burst);
        for Ran { load, region, began } in self.over.into_iter().chain(self.running) {
            let (sent, exchanges) = load.end();
            all += sent;
            answers.extend(exchanges.iter().map(|exchange| answer(exchange, region, began)));
        }
        answers.sort_by_key(|answer| answer.ended);
        (all, answers)
    }
}

pub fn answer(exchange: &Exchange, region: usize, began: Duration) -> Answer {
    let status = exchange.response.as_ref().map_or(0, |response| response.status);
    Answer { region, ended: began + exchange.ended, took: exchange.took(), status }
}

fn account(
    case: &Case,
    way: &Way,
    form: Form,
    begins: &[Duration],
    (sent, answers): (usize, &[Answer]),
) -> Row {
    let admitted: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    let (limited, refused) = (count(429), count(503));
    let time = admitted.last().map_or(Duration::ZERO, |answer| answer.ended);
    let cut =
        case.phases.iter().zip(begins.windows(2)).filter(|(phase, _)| matches!(phase.event, Event::Cut));
    let cut = cut.map(|(_, begins)| begins[1] - begins[0]).sum();
    let within = |from: Duration, to: Duration| {
        admitted.iter().filter(|answer| (from..to).contains(&answer.ended)).count() as f64
    };
    let steady = case.phases.iter().zip(begins.windows(2)).filter(|(phase, _)| phase.is_steady);
    let steady = steady.map(|(_, begins)| (within(begins[0], begins[1]), begins[1] - begins[0]));
    let (used, lasted) = steady.fold((0.0, Duration::ZERO), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    let rate = f64::from(form.rate);
    let converged = case.converges_after.and_then(|phase| {
        let (from, to) = (begins[phase], begins[phase + 1]);
        let steps = (0..).map(|step| from + step * Duration::from_millis(20));
        let mut steps = steps.take_while(|at| *at + WINDOW <= to);
        let whole = rate * WINDOW.as_secs_f64();
        Some(steps.find(|at| within(*at, *at + WINDOW) >= CONVERGED * whole)? - from)
    });
    let times = |percent| (0..REGIONS).map(|region| percentile(answers, region, percent)).collect();
    Row {
        way: way.name,
        name: case.name,
        sent,
        admitted: admitted.len(),
        refused,
        astray: sent - admitted.len() - limited - refused,
        limit: limit(form, time),
        bound: bound(form, case, way, time, cut),
        utilisation: (!lasted.is_zero()).then(|| used / (rate * lasted.as_secs_f64())),
        p50: times(50),
        p99: times(99),
        messages_per_second: None,
        bytes_per_second: None,
        attempts: Vec::new(),
        converged,
    }
}

/// The duration within which this many of a hundred requests to a region were answered.
pub fn percentile(answers: &[Answer], region: usize, percent: usize) -> Option<Duration> {
    let mut times: Vec<_> =
        answers.iter().filter(|answer| answer.region == region).map(|answer| answer.took).collect();
    times.sort_unstable();
    times.get((times.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}
