// SPDX-License-Identifier: Apache-2.0
//! The bars for the figures: targets and floors, as ratios within this run.

use std::collections::BTreeMap;

use crate::MANY;
use crate::edges::{EVENTS, TWO};
use crate::report::{Figures, Report};
use crate::stats::{self, Estimate};

/// A bound on one of the figures. `is` is `None` if it was not measured.
pub struct Target {
    pub what: String,
    pub is: Option<Estimate>,
    pub at_most: f64,
}

impl Target {
    pub fn verdict(&self) -> &'static str {
        self.is.map_or("not measured", |is| is.verdict(self.at_most))
    }
}

/// A ratio without a bound, mostly what no filter in that host can do for less.
pub struct Floor {
    pub what: String,
    pub is: Estimate,
}

const LUA: &str = "nginx + lua";
const MEBIBYTE: f64 = 1_048_576.0;

/// The same proxy without a limit. A way of another build has the build's name behind its own.
fn plain(name: &str) -> &'static str {
    match name {
        _ if name.starts_with("nginx") => "nginx plain",
        _ if name.contains("events") => "envoy plain, events",
        _ if name.contains(TWO) => "envoy plain, two workers",
        _ => "envoy plain",
    }
}

/// The addition of a way to its own plain proxy in each round, in one of the figures.
fn added(
    report: &Report,
    name: &str,
    connections: u32,
    subjects: u32,
    figure: impl Fn(&Figures) -> f64,
) -> Option<BTreeMap<u32, f64>> {
    let way = report.rounds(name, connections, subjects)?;
    let plain = report.rounds(plain(name), connections, subjects)?;
    let both = |(round, way): (&u32, &Figures)| Some((*round, figure(way) - figure(plain.get(round)?)));
    Some(way.iter().filter_map(both).collect())
}

/// One by the other, of the rounds that have both.
fn by(first: &BTreeMap<u32, f64>, second: &BTreeMap<u32, f64>) -> Option<Estimate> {
    let pairs = first.iter().filter_map(|(round, first)| Some([*first, *second.get(round)?]));
    stats::ratio(&pairs.collect::<Vec<_>>())
}

/// The addition of a way to the CPU time of its own plain proxy, in microseconds.
pub fn added_cpu(report: &Report, name: &str, connections: u32, subjects: u32) -> Option<Estimate> {
    if name == plain(name) {
        return None;
    }
    stats::single(added(report, name, connections, subjects, Figures::cpu)?.into_values())
}

/// The ratio of a way's addition to the CPU time of its own plain proxy, to the addition of nginx + Lua to that of its own.
pub fn cpu_over_lua(report: &Report, name: &str, connections: u32, subjects: u32) -> Option<Estimate> {
    let lua = added(report, LUA, connections, subjects, Figures::cpu)?;
    by(&added(report, name, connections, subjects, Figures::cpu)?, &lua)
}

/// The ratio of a way's addition to the median latency at one connection, to that of nginx + Lua.
pub fn p50_over_lua(report: &Report, name: &str, subjects: u32) -> Option<Estimate> {
    let p50 = |name| added(report, name, 1, subjects, |figures| figures.p50_us);
    by(&p50(name)?, &p50(LUA)?)
}

/// The addition of a way to the instructions of its own plain proxy in each round.
fn counts(report: &Report, name: &str) -> Option<BTreeMap<u32, f64>> {
    let plain = report.instructions(plain(name))?;
    let way = report.instructions(name)?.iter();
    Some(way.filter_map(|(round, count)| Some((*round, count - plain.get(round)?))).collect())
}

/// The addition of a way to the instructions of its own plain proxy.
pub fn added_instructions(report: &Report, name: &str) -> Option<Estimate> {
    if name == plain(name) {
        return None;
    }
    stats::single(counts(report, name)?.into_values())
}

/// The CPU time that an idle filter adds beyond an empty one, in microseconds.
fn idle_over_empty(report: &Report, idle: &str, empty: &str) -> Option<Estimate> {
    let empty = report.rounds(empty, 32, MANY)?;
    let idle = report.rounds(idle, 32, MANY)?.iter();
    stats::single(idle.filter_map(|(round, idle)| Some(idle.cpu() - empty.get(round)?.cpu())))
}

pub fn targets(report: &Report) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |what: String, is, at_most| targets.push(Target { what, is, at_most });
    // The way; its bounds with many subjects and with one.
    let cpu: [(&str, [Option<f64>; 2]); 7] = [
        ("weir native exact", [Some(0.50), Some(0.48)]),
        ("weir native leased", [Some(0.6), Some(0.3)]),
        ("weir native idle", [Some(0.15), None]),
        ("weir native denied", [Some(0.25), Some(0.25)]),
        ("weir exact", [Some(1.00), Some(0.95)]),
        ("weir leased", [Some(0.25), Some(0.25)]),
        ("weir denied", [Some(0.25), Some(0.25)]),
    ];
    for (name, bounds) in cpu {
        for (subjects, bound) in [MANY, 1].into_iter().zip(bounds) {
            let Some(at_most) = bound else { continue };
            let what = format!("{name}, {subjects} subjects, 32 connections: added CPU over {LUA}'s");
            add(what, cpu_over_lua(report, name, 32, subjects), at_most);
        }
    }
    for (name, at_most) in [("weir native exact", 1.25), ("weir exact", 1.60)] {
        for subjects in [MANY, 1] {
            let what = format!("{name}, {subjects} subjects, 1 connection: added p50 over {LUA}'s");
            add(what, p50_over_lua(report, name, subjects), at_most);
        }
    }
    add(
        "no policy matches, in wasm, 32 connections: added CPU over an empty wasm filter's, µs".into(),
        idle_over_empty(report, "envoy idle wasm", "envoy empty wasm"),
        4.0,
    );
    // weir asks about each denied subject every one to two seconds, and about many subjects with one command.
    let commands: [(&str, u32, f64); 6] = [
        ("weir native exact", 1, 0.2),
        ("weir exact", 1, 0.2),
        ("weir native denied", MANY, 0.1),
        ("weir native denied", 1, 0.001),
        ("weir denied", MANY, 0.1),
        ("weir denied", 1, 0.001),
    ];
    for (name, subjects, at_most) in commands {
        let rounds = report.rounds(name, 32, subjects);
        let is =
            rounds.and_then(|rounds| stats::single(rounds.values().map(|figures| figures.redis_commands)));
        add(format!("{name}, {subjects} subjects, 32 connections: Redis commands per request"), is, at_most);
    }
    for (host, name, at_most) in [("native", "weir native", 250.0), ("wasm", "weir", 800.0)] {
        add(read_for_usage("by a path", host), reading(report, name, "settled"), at_most);
    }
    add("weir, any case, 256 connections: errors".into(), errors(report, 256), 0.0);
    targets
}

/// All errors of weir in a run; their number has no interval.
fn errors(report: &Report, connections: u32) -> Option<Estimate> {
    let names = report.names();
    let weirs = names.iter().filter(|name| name.starts_with("weir"));
    let loads = weirs.flat_map(|name| [MANY, 1].map(|subjects| report.rounds(name, connections, subjects)));
    let cases: Vec<_> = loads.flatten().collect();
    let all = cases.iter().flat_map(|rounds| rounds.values()).map(|figures| figures.errors).sum::<u64>();
    let rounds = cases.iter().map(|rounds| rounds.len()).max()?;
    let is = all as f64;
    Some(Estimate { is, low: is, high: is, rounds })
}

fn read_for_usage(by: &str, host: &str) -> String {
    format!("to read an event stream for its usage {by}, {host}: added µs of CPU per MiB")
}

/// The time that reading a MiB of events adds to `exact`, in microseconds.
fn reading(report: &Report, weir: &str, way: &str) -> Option<Estimate> {
    let cpu = |name: &str| added(report, name, 32, MANY, Figures::cpu);
    let read = cpu(&format!("{weir} {way}, events"))?;
    let passed = cpu(&format!("{weir} exact, events"))?;
    let more = |(round, read): (u32, f64)| Some((read - passed.get(&round)?) * MEBIBYTE / EVENTS as f64);
    stats::single(read.into_iter().filter_map(more))
}

/// The minimum costs of every filter in a host, in the same ratio: an empty filter; and, without leases, an empty filter and the time of
/// the script in Redis.
pub fn floors(report: &Report) -> Vec<Floor> {
    let mut floors = Vec::new();
    let mut add = |what: String, is: Option<Estimate>| floors.extend(is.map(|is| Floor { what, is }));
    for (host, empty, exact) in
        [("wasm", "envoy empty wasm", "weir exact"), ("native", "envoy empty native", "weir native exact")]
    {
        for subjects in [MANY, 1] {
            let what = format!("an empty {host} filter, {subjects} subjects, 32 connections");
            add(format!("{what}: added CPU over {LUA}'s"), cpu_over_lua(report, empty, 32, subjects));
            let with_redis = || {
                let redis = report.rounds(exact, 32, subjects)?;
                let mut cost = added(report, empty, 32, subjects, Figures::cpu)?;
                cost.retain(|round, cost| {
                    redis.get(round).map(|figures| *cost += figures.redis_us).is_some()
                });
                by(&cost, &added(report, LUA, 32, subjects, Figures::cpu)?)
            };
            add(format!("{what}, and {exact}'s time in Redis: the same"), with_redis());
        }
        let with_way = || {
            let way = report.way()?;
            let mut p50 = added(report, empty, 1, MANY, |figures| figures.p50_us)?;
            p50.values_mut().for_each(|p50| *p50 += way);
            let what = format!(
                "an empty {host} filter, {MANY} subjects, 1 connection, and {way:.0} µs to Redis and back: added p50"
            );
            Some((what, by(&p50, &added(report, LUA, 1, MANY, |figures| figures.p50_us)?)))
        };
        if let Some((what, is)) = with_way() {
            add(what, is);
        }
    }
    floors.extend(two_workers(report));
    floors.extend(native_idle(report));
    floors.extend(settling(report));
    floors.extend(exact_instructions(report));
    floors
}

/// No bound is set for these: what it costs to tell the cost of a request from its response.
fn settling(report: &Report) -> impl Iterator<Item = Floor> {
    let hosts = [("wasm", "weir"), ("native", "weir native")];
    hosts.into_iter().flat_map(|(host, weir)| {
        let cpu = |name: &str| added(report, name, 32, MANY, Figures::cpu);
        let (exact, settled) = (cpu(&format!("{weir} exact")), cpu(&format!("{weir} settled")));
        let header = exact.zip(settled).and_then(|(exact, settled)| by(&settled, &exact)).map(|is| Floor {
            what: format!("{weir} settled, {MANY} subjects, 32 connections: added CPU over {weir} exact's"),
            is,
        });
        let what = read_for_usage("by `usage: {provider: auto}`", host);
        let scanner = reading(report, weir, "usage").map(|is| Floor { what, is });
        header.into_iter().chain(scanner)
    })
}

/// No bound is set for these: two workers gather their requests apart, so their batches are smaller.
fn two_workers(report: &Report) -> impl Iterator<Item = Floor> {
    ["weir native exact", "weir exact"].into_iter().filter_map(|name| {
        let cpu = |name: &str| added(report, name, 32, MANY, Figures::cpu);
        let is = by(&cpu(&format!("{name}, {TWO}"))?, &cpu(name)?)?;
        Some(Floor {
            what: format!("{name}, {TWO}, {MANY} subjects, 32 connections: added CPU over one worker's"),
            is,
        })
    })
}

/// No bound is set for it: what the idle native filter adds beyond an empty one.
fn native_idle(report: &Report) -> Option<Floor> {
    let what =
        "no policy matches, native, 32 connections: added CPU over an empty native filter's, µs".into();
    Some(Floor { what, is: idle_over_empty(report, "weir native idle", "envoy empty native")? })
}

/// No bound is set for these, and they are no cost; but other programs hardly change them.
fn exact_instructions(report: &Report) -> impl Iterator<Item = Floor> {
    ["weir native exact", "weir exact"].into_iter().filter_map(|name| {
        let what = format!("{name}, {MANY} subjects, 32 connections: added instructions over {LUA}'s");
        Some(Floor { what, is: by(&counts(report, name)?, &counts(report, LUA)?)? })
    })
}
