// SPDX-License-Identifier: Apache-2.0
//! The results: the medians as a table, as `target/bench/summary.json` and as charts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::freeze::Outcome;
use crate::machine::Machine;
use crate::stats::{Estimate, median, spread};
use crate::targets::{self, Floor, Target};
use crate::{MANY, bars, support};

/// In the order in which they are shown.
const NAMES: [&str; 30] = [
    "envoy plain",
    "envoy plain again",
    "envoy empty wasm",
    "envoy idle wasm",
    "envoy empty native",
    "weir native idle",
    "envoy local_ratelimit",
    "envoy ratelimit",
    "weir exact",
    "weir exact, any",
    "weir leased",
    "weir denied",
    "weir denied, 1 h",
    "weir native exact",
    "weir native leased",
    "weir native denied",
    "weir settled",
    "weir native settled",
    "envoy plain, two workers",
    "weir exact, two workers",
    "weir native exact, two workers",
    "envoy plain, events",
    "weir exact, events",
    "weir settled, events",
    "weir usage, events",
    "weir native exact, events",
    "weir native settled, events",
    "weir native usage, events",
    "nginx plain",
    "nginx + lua",
];

/// The place of a case. The name of another build begins with that of the edge that it is another build of, and the name of a service with
/// `envoy ratelimit`.
fn place(name: &str) -> Option<usize> {
    let place = NAMES.iter().position(|known| *known == name);
    place.or_else(|| NAMES.iter().rposition(|known| name.starts_with(known)))
}

/// Listed apart from the cases: a second plain Envoy, empty filters, weir with `topology: any`, weir with a long `denial_ttl`, two workers,
/// and responses that are event streams.
const CONTROLS: [&str; 15] = [
    "envoy plain again",
    "envoy empty wasm",
    "envoy empty native",
    "weir exact, any",
    "weir denied, 1 h",
    "envoy plain, two workers",
    "weir exact, two workers",
    "weir native exact, two workers",
    "envoy plain, events",
    "weir exact, events",
    "weir settled, events",
    "weir usage, events",
    "weir native exact, events",
    "weir native settled, events",
    "weir native usage, events",
];

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub connections: u32,
    pub subjects: u32,
    pub name: &'static str,
}

/// The figures of one round. CPU and commands are per request.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub rps: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub proxy_us: f64,
    pub redis_us: f64,
    /// The rate-limit service, where the benchmark has started one.
    pub service_us: f64,
    /// The part of all three that was spent in the kernel.
    pub kernel_us: f64,
    pub redis_commands: f64,
    /// The part of the time in which the edge was ready to run, and another process had its core.
    pub waited: f64,
    pub errors: u64,
}

impl Figures {
    /// Proxy, Redis and service together.
    pub fn cpu(&self) -> f64 {
        self.proxy_us + self.redis_us + self.service_us
    }
}

/// A case over all its rounds.
pub struct Row {
    pub median: Figures,
    /// Half the distance between the quartiles of proxy, Redis and service together, and of the median latency.
    pub cpu_spread: f64,
    pub p50_spread: f64,
    pub rounds: usize,
}

/// The figures of all rounds.
pub struct Report {
    machine: Machine,
    /// The differences from a full run.
    shortened: Vec<String>,
    cases: BTreeMap<Case, BTreeMap<u32, Figures>>,
    instructions: BTreeMap<&'static str, BTreeMap<u32, f64>>,
    /// The round trips to Redis alone, in microseconds.
    ways: Vec<f64>,
    absent: Vec<(&'static str, String)>,
    /// The number of runs that had hardly a request.
    lost: usize,
    /// The runs in which the edge did not answer for seconds.
    hung: Vec<Case>,
    /// The results for clients while Redis stood still.
    frozen: Vec<Outcome>,
}

impl Report {
    pub fn new(machine: Machine, shortened: Vec<String>, absent: Vec<(&'static str, String)>) -> Self {
        let (cases, instructions, ways) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (hung, frozen) = (Vec::new(), Vec::new());
        Self { machine, shortened, cases, instructions, ways, absent, lost: 0, hung, frozen }
    }

    pub fn add(&mut self, case: Case, round: u32, figures: Figures) {
        self.cases.entry(case).or_default().insert(round, figures);
    }

    pub fn add_instructions(&mut self, name: &'static str, round: u32, count: f64) {
        self.instructions.entry(name).or_default().insert(round, count);
    }

    pub fn add_way(&mut self, way: Option<f64>) {
        self.ways.extend(way);
    }

    pub fn add_lost(&mut self) {
        self.lost += 1;
    }

    pub fn add_hung(&mut self, case: Case) {
        self.hung.push(case);
    }

    pub fn add_frozen(&mut self, outcomes: Vec<Outcome>) {
        self.frozen = outcomes;
    }

    pub fn shorten(&mut self, note: String) {
        self.shortened.push(note);
    }

    /// True if it has all ways.
    fn is_whole(&self) -> bool {
        !self.shortened.iter().any(|note| note.starts_with("measured only"))
    }

    /// A case by its rounds.
    pub fn rounds(&self, name: &str, connections: u32, subjects: u32) -> Option<&BTreeMap<u32, Figures>> {
        let is = |case: &Case| (case.name, case.connections, case.subjects) == (name, connections, subjects);
        Some(self.cases.iter().find(|(case, _)| is(case))?.1)
    }

    /// Instructions per request, by the rounds.
    pub fn instructions(&self, name: &str) -> Option<&BTreeMap<u32, f64>> {
        self.instructions.get(name)
    }

    /// The time in which Redis answers a program that does nothing else.
    pub fn way(&self) -> Option<f64> {
        (!self.ways.is_empty()).then(|| median(&self.ways))
    }

    /// The median of each figure of a case; the sum of its errors.
    pub fn row(&self, name: &str, connections: u32, subjects: u32) -> Option<Row> {
        let rounds = self.rounds(name, connections, subjects)?;
        let all = |figure: fn(&Figures) -> f64| rounds.values().map(figure).collect::<Vec<_>>();
        let (cpu, p50) = (all(Figures::cpu), all(|figures| figures.p50_us));
        let median = Figures {
            rps: median(&all(|figures| figures.rps)),
            p50_us: median(&p50),
            p99_us: median(&all(|figures| figures.p99_us)),
            proxy_us: median(&all(|figures| figures.proxy_us)),
            redis_us: median(&all(|figures| figures.redis_us)),
            service_us: median(&all(|figures| figures.service_us)),
            kernel_us: median(&all(|figures| figures.kernel_us)),
            redis_commands: median(&all(|figures| figures.redis_commands)),
            waited: median(&all(|figures| figures.waited)),
            errors: rounds.values().map(|figures| figures.errors).sum(),
        };
        Some(Row { median, cpu_spread: spread(&cpu), p50_spread: spread(&p50), rounds: rounds.len() })
    }

    /// Prints the table and the targets, and writes the files.
    pub fn publish(&self) -> io::Result<()> {
        // A part of the cases does not take the place of all of them.
        let name = if self.is_whole() { "target/bench" } else { "target/bench-part" };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        fs::create_dir_all(&folder)?;
        let parts = [self.conditions(), self.table(), self.targets_table(), self.frozen_table()];
        let table = parts.join("\n");
        print!("{table}");
        fs::write(folder.join("table.txt"), table)?;
        let summary = self.summary();
        fs::write(folder.join("summary.json"), support::table::rows(&summary))?;
        fs::write(folder.join("cpu.svg"), bars::cpu(&summary))?;
        fs::write(folder.join("latency.svg"), bars::latency(&summary))?;
        eprintln!("wrote table.txt, summary.json, cpu.svg and latency.svg in {name}");
        Ok(())
    }

    /// The machine and the conditions of the measurement; disturbances, and missing parts.
    pub fn conditions(&self) -> String {
        let mut text = format!(
            "{}\nfor {:.0} % of the measured time (median of all runs), the edge waited for its core, which other processes had\n",
            self.machine,
            self.disturbance() * 100.0,
        );
        if let Some(again) = targets::added_cpu(self, "envoy plain again", 32, MANY) {
            let Estimate { is, low, high, .. } = again;
            text += &format!(
                "a second plain Envoy seems to add {is:.1} µs ({low:.1} to {high:.1}) to the first: no difference of that size means anything\n"
            );
        }
        if self.lost > 0 {
            text += &format!(
                "runs that do not count, because the machine let hardly a request pass: {}\n",
                self.lost
            );
        }
        for Case { name, connections, subjects } in &self.hung {
            text += &format!(
                "no answer for five seconds: {name}, {connections} connections, {subjects} subjects\n"
            );
        }
        for note in &self.shortened {
            text += &format!("short form: {note}\n");
        }
        for (name, why) in &self.absent {
            text += &format!("not measured: {name}; {why}\n");
        }
        text
    }

    /// The part of the measured time for which an edge waited for its core.
    fn disturbance(&self) -> f64 {
        let waited: Vec<_> =
            self.cases.values().flat_map(BTreeMap::values).map(|figures| figures.waited).collect();
        median(&waited)
    }

    /// The names of what was measured, in the order in which they are shown.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.cases.keys().map(|case| case.name).collect();
        names.sort_by_key(|name| (place(name), *name));
        names.dedup();
        names
    }

    /// The cases in the order in which they are shown.
    fn rows(&self) -> impl Iterator<Item = (Case, Row)> {
        let mut cases: Vec<Case> = self.cases.keys().copied().collect();
        cases.sort_by_key(|case| (case.connections, case.subjects, place(case.name)));
        cases
            .into_iter()
            .filter_map(|case| Some((case, self.row(case.name, case.connections, case.subjects)?)))
    }

    fn table(&self) -> String {
        const HEADS: [[&str; 16]; 2] = [
            [
                "conns", "subjects", "rounds", "req/s", "p50", "±", "p99", "proxy", "redis", "service",
                "CPU", "±", "kernel", "added", "redis", "errors",
            ],
            [
                "", "", "", "", "µs", "µs", "µs", "CPU µs", "CPU µs", "CPU µs", "µs", "µs", "µs", "µs",
                "cmds", "",
            ],
        ];
        const WIDTHS: [usize; 16] = [6, 9, 7, 8, 9, 8, 9, 8, 8, 9, 8, 7, 8, 8, 8, 7];
        let width = self.names().iter().map(|name| name.len()).max().unwrap_or(0).max(20) + 2;
        let line = |name: &str, cells: [String; 16]| {
            let cells: String =
                cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
            format!("{name:<width$}{cells}\n")
        };
        let mut text: String = HEADS.iter().map(|head| line("", head.map(String::from))).collect();
        let mut before = None;
        for (case, Row { median, cpu_spread, p50_spread, rounds }) in self.rows() {
            let load = Some((case.connections, case.subjects));
            if load != before {
                text += "\n";
                before = load;
            }
            let added = targets::added_cpu(self, case.name, case.connections, case.subjects);
            let cells = [
                case.connections.to_string(),
                case.subjects.to_string(),
                rounds.to_string(),
                format!("{:.0}", median.rps),
                format!("{:.1}", median.p50_us),
                format!("{p50_spread:.1}"),
                format!("{:.1}", median.p99_us),
                format!("{:.2}", median.proxy_us),
                format!("{:.2}", median.redis_us),
                if median.service_us > 0.0 { format!("{:.2}", median.service_us) } else { String::new() },
                format!("{:.2}", median.cpu()),
                format!("{cpu_spread:.2}"),
                format!("{:.2}", median.kernel_us),
                added.map_or(String::new(), |added| format!("{:.2}", added.is)),
                format!("{:.3}", median.redis_commands),
                median.errors.to_string(),
            ];
            text += &line(case.name, cells);
        }
        text += "\ninstructions per request, proxy and Redis, 10000 subjects, 32 connections";
        text +=
            if self.instructions.is_empty() { ": not measured, perf cannot count them here\n" } else { "\n" };
        for name in NAMES {
            let Some(counts) = self.instructions.get(name) else { continue };
            let counts: Vec<f64> = counts.values().copied().collect();
            let added =
                targets::added_instructions(self, name).map(|added| format!(", added {:.0}", added.is));
            let (all, spread) = (median(&counts), spread(&counts));
            text += &format!("{name:<22}{all:>10.0} ± {spread:.0}{}\n", added.unwrap_or_default());
        }
        text
    }

    fn targets_table(&self) -> String {
        let mut text = format!(
            "{:<82} {:>8}  {:<18}{:>8}\n",
            "target (added: over its own plain proxy; CPU: proxy and Redis)",
            "is",
            "95 % interval",
            "at most"
        );
        for target in targets::targets(self) {
            let Target { what, is, at_most } = &target;
            let (is, interval) = is.as_ref().map_or(("-".into(), String::new()), shown);
            text += &format!("{what:<82} {is:>8}  {interval:<18}{at_most:>8}  {}\n", target.verdict());
        }
        text += "\nwithout a bound: floors (what a filter in that host can hardly do for less), and ratios that the processor counts\n";
        for Floor { what, is } in targets::floors(self) {
            let (is, interval) = shown(&is);
            text += &format!("{what:<82} {is:>8}  {interval}\n");
        }
        text
    }

    fn frozen_table(&self) -> String {
        if self.frozen.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "{:<32}{:>9}{:>9}{:>7}{:>7}{:>10}{:>12}\n",
            "while Redis stands still", "requests", "admitted", "429", "other", "p50 ms", "slowest ms"
        );
        for Outcome { name, requests, admitted, denied, failed, p50_us, slowest_us } in &self.frozen {
            let [p50, slowest] = [p50_us, slowest_us].map(|micros| micros / 1e3);
            text += &format!(
                "{name:<32}{requests:>9}{admitted:>9}{denied:>7}{failed:>7}{p50:>10.1}{slowest:>12.1}\n"
            );
        }
        text
    }

    /// The figures for the documents. The table has more.
    fn summary(&self) -> Value {
        let case = |(case, row): (Case, Row)| {
            let Row { median, rounds, .. } = row;
            let added = targets::added_cpu(self, case.name, case.connections, case.subjects);
            json!({
                "name": case.name,
                "connections": case.connections,
                "subjects": case.subjects,
                "rounds": rounds,
                "p50_us": rounded(median.p50_us, 10.0),
                "p99_us": rounded(median.p99_us, 10.0),
                "cpu_us": {"proxy": rounded(median.proxy_us, 1e3), "redis": rounded(median.redis_us, 1e3),
                           "service": rounded(median.service_us, 1e3), "total": rounded(median.cpu(), 1e3),
                           "added": added.as_ref().map(interval)},
            })
        };
        let (controls, cases): (Vec<_>, Vec<_>) =
            self.rows().partition(|(case, _)| CONTROLS.contains(&case.name));
        let targets = targets::targets(self).into_iter().map(|target| {
            json!({"target": target.what, "is": target.is.as_ref().map(interval), "at_most": target.at_most,
                   "verdict": target.verdict()})
        });
        let floors = targets::floors(self)
            .into_iter()
            .map(|floor| json!({"floor": floor.what, "is": interval(&floor.is)}));
        json!({
            "machine": self.machine.to_string(),
            "short_form": self.shortened,
            "cases": cases.into_iter().map(case).collect::<Vec<_>>(),
            "controls": controls.into_iter().map(case).collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
            "floors": floors.collect::<Vec<_>>(),
        })
    }
}

fn shown(estimate: &Estimate) -> (String, String) {
    let Estimate { is, low, high, .. } = estimate;
    (format!("{is:.3}"), format!("{low:.3} to {high:.3}"))
}

/// JSON has no number for infinity: it becomes `null`.
fn interval(estimate: &Estimate) -> Value {
    let Estimate { is, low, high, rounds } = estimate;
    json!({"median": rounded(*is, 1e4), "low": rounded(*low, 1e4), "high": rounded(*high, 1e4), "rounds": rounds})
}

fn rounded(figure: f64, parts: f64) -> f64 {
    (figure * parts).round() / parts
}
