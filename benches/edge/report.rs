//! The results: the medians as a table, as `target/bench/summary.json` and as charts; the targets and floors.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::{MANY, chart};

/// In the order in which they are shown.
pub const NAMES: [&str; 11] = [
    "envoy plain",
    "envoy empty wasm",
    "envoy idle wasm",
    "envoy local_ratelimit",
    "weir exact",
    "weir exact, any",
    "weir leased",
    "weir denied",
    "weir denied, 1 h",
    "nginx plain",
    "nginx + lua",
];

/// What a wasm filter costs that does nothing.
const CONTROL: &str = "envoy empty wasm";

/// Listed apart from the cases: an empty filter, weir with `topology: any`, and weir with a long `denial_ttl`.
const CONTROLS: [&str; 3] = [CONTROL, "weir exact, any", "weir denied, 1 h"];

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub connections: u32,
    pub subjects: u32,
    pub name: &'static str,
}

/// What was measured. CPU and commands are per request.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub rps: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub proxy_us: f64,
    pub redis_us: f64,
    pub redis_commands: f64,
    pub errors: u64,
}

impl Figures {
    /// Proxy and Redis together.
    fn cpu(&self) -> f64 {
        self.proxy_us + self.redis_us
    }
}

/// The figures of all rounds.
pub struct Report {
    rounds: BTreeMap<Case, Vec<Figures>>,
    /// The round trips to Redis alone, in microseconds.
    ways: Vec<f64>,
    absent: Vec<(&'static str, String)>,
}

impl Report {
    pub fn new(absent: Vec<(&'static str, String)>) -> Self {
        Self { rounds: BTreeMap::new(), ways: Vec::new(), absent }
    }

    pub fn add(&mut self, case: Case, figures: Figures) {
        self.rounds.entry(case).or_default().push(figures);
    }

    pub fn add_way(&mut self, way: Option<f64>) {
        self.ways.extend(way);
    }

    /// The median of each figure of a case; the sum of its errors.
    pub fn median(&self, name: &str, connections: u32, subjects: u32) -> Option<Figures> {
        let is = |case: &Case| (case.name, case.connections, case.subjects) == (name, connections, subjects);
        let rounds = self.rounds.iter().find(|(case, _)| is(case))?.1;
        let median = |figure: fn(&Figures) -> f64| median(rounds.iter().map(figure).collect());
        Some(Figures {
            rps: median(|figures| figures.rps),
            p50_us: median(|figures| figures.p50_us),
            p99_us: median(|figures| figures.p99_us),
            proxy_us: median(|figures| figures.proxy_us),
            redis_us: median(|figures| figures.redis_us),
            redis_commands: median(|figures| figures.redis_commands),
            errors: rounds.iter().map(|figures| figures.errors).sum(),
        })
    }

    /// Prints the table and the targets, and writes the files.
    pub fn publish(&self) -> io::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
        fs::create_dir_all(&folder)?;
        let table = format!("{}\n{}", self.table(), self.targets_table());
        print!("{table}");
        fs::write(folder.join("table.txt"), table)?;
        fs::write(folder.join("summary.json"), format!("{:#}\n", self.summary()))?;
        fs::write(folder.join("cpu.svg"), chart::cpu(self))?;
        fs::write(folder.join("latency.svg"), chart::latency(self))?;
        eprintln!("wrote table.txt, summary.json, cpu.svg and latency.svg in target/bench");
        Ok(())
    }

    /// The cases in the order in which they are shown.
    fn cases(&self) -> impl Iterator<Item = (Case, Figures)> {
        let mut cases: Vec<Case> = self.rounds.keys().copied().collect();
        let place = |name| NAMES.iter().position(|known| *known == name);
        cases.sort_by_key(|case| (case.connections, case.subjects, place(case.name)));
        cases
            .into_iter()
            .filter_map(|case| Some((case, self.median(case.name, case.connections, case.subjects)?)))
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<22}{:>6}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>8}{:>8}\n{:<22}{:>6}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>8}{:>8}\n",
            "",
            "conns",
            "subjects",
            "req/s",
            "p50",
            "p99",
            "proxy",
            "redis",
            "redis",
            "errors",
            "",
            "",
            "",
            "",
            "µs",
            "µs",
            "CPU µs",
            "CPU µs",
            "cmds",
            "",
        );
        let mut before = None;
        for (case, figures) in self.cases() {
            let load = Some((case.connections, case.subjects));
            if load != before {
                text += "\n";
                before = load;
            }
            text += &format!(
                "{:<22}{:>6}{:>9}{:>9.0}{:>9.1}{:>9.1}{:>8.2}{:>8.2}{:>8.3}{:>8}\n",
                case.name,
                case.connections,
                case.subjects,
                figures.rps,
                figures.p50_us,
                figures.p99_us,
                figures.proxy_us,
                figures.redis_us,
                figures.redis_commands,
                figures.errors,
            );
        }
        for (name, why) in &self.absent {
            text += &format!("\n{name}: not measured, Envoy refuses the configuration: {why}\n");
        }
        text
    }

    fn targets_table(&self) -> String {
        let mut text = format!(
            "{:<80}{:>8}{:>8}\n",
            "target (added: over its own plain proxy; CPU: proxy and Redis)", "is", "at most"
        );
        for target in self.targets() {
            let is = target.is.map_or("-".into(), |is| format!("{is:.3}"));
            text += &format!("{:<80}{is:>8}{:>8}  {}\n", target.what, target.at_most, target.verdict());
        }
        text += "\nfloor (what a filter in wasm can hardly do for less)\n";
        for (what, is) in self.floors() {
            text += &format!("{what:<80}{is:>8.3}\n");
        }
        text
    }

    fn summary(&self) -> Value {
        let case = |(case, figures): (Case, Figures)| {
            json!({
                "name": case.name,
                "connections": case.connections,
                "subjects": case.subjects,
                "rps": rounded(figures.rps, 1.0),
                "p50_us": rounded(figures.p50_us, 10.0),
                "p99_us": rounded(figures.p99_us, 10.0),
                "cpu_us": {"proxy": rounded(figures.proxy_us, 1e3), "redis": rounded(figures.redis_us, 1e3)},
                "redis_commands_per_request": rounded(figures.redis_commands, 1e4),
                "errors": figures.errors,
            })
        };
        let (controls, cases): (Vec<_>, Vec<_>) =
            self.cases().partition(|(case, _)| CONTROLS.contains(&case.name));
        let targets = self.targets().into_iter().map(|target| {
            json!({"target": target.what, "is": target.is.map(|is| rounded(is, 1e4)), "at_most": target.at_most,
                   "verdict": target.verdict()})
        });
        let floors =
            self.floors().into_iter().map(|(what, is)| json!({"floor": what, "is": rounded(is, 1e4)}));
        json!({
            "cases": cases.into_iter().map(case).collect::<Vec<_>>(),
            "controls": controls.into_iter().map(case).collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
            "floors": floors.collect::<Vec<_>>(),
            "rounds": self.rounds.values().map(Vec::len).max(),
            "not_measured": self.absent.iter().map(|(name, why)| (*name, why.as_str())).collect::<BTreeMap<_, _>>(),
        })
    }

    /// The targets, as ratios within this run.
    fn targets(&self) -> Vec<Target> {
        const ADDED: fn(&Report, &str, u32, u32) -> Option<f64> = Report::added_cpu;
        let ratio = |name, connections, subjects| {
            Some(
                ADDED(self, name, connections, subjects)?
                    / ADDED(self, "nginx + lua", connections, subjects)?,
            )
        };
        let commands = |name, subjects| Some(self.median(name, 32, subjects)?.redis_commands);
        let mut targets = Vec::new();
        let mut add = |what: String, is, at_most| targets.push(Target { what, is, at_most });
        let over = "added CPU over nginx + lua's";
        add(
            format!("weir exact, {MANY} subjects, 32 connections: {over}"),
            ratio("weir exact", 32, MANY),
            0.5,
        );
        add(format!("weir exact, 1 subject, 32 connections: {over}"), ratio("weir exact", 32, 1), 0.35);
        add(
            "weir exact, 1 subject, 32 connections: Redis commands per request".into(),
            commands("weir exact", 1),
            0.2,
        );
        for subjects in [MANY, 1] {
            for name in ["weir leased", "weir denied"] {
                let what = format!("{name}, {subjects} subjects, 32 connections");
                add(format!("{what}: {over}"), ratio(name, 32, subjects), 0.25);
                if name == "weir denied" {
                    // weir asks about each subject every one to two seconds, and about many subjects with one command.
                    let at_most = if subjects == 1 { 0.001 } else { 0.1 };
                    add(format!("{what}: Redis commands per request"), commands(name, subjects), at_most);
                }
            }
        }
        for subjects in [MANY, 1] {
            let is = self
                .added_p50("weir exact", "envoy plain", subjects)
                .and_then(|weir| Some(weir / self.added_p50("nginx + lua", "nginx plain", subjects)?));
            add(
                format!("weir exact, {subjects} subjects, 1 connection: added p50 over nginx + lua's"),
                is,
                1.0,
            );
        }
        for subjects in [MANY, 1] {
            let cpu = |name| Some(self.median(name, 32, subjects)?.cpu());
            let is = cpu("envoy idle wasm").and_then(|weir| Some(weir - cpu(CONTROL)?));
            add(
                format!(
                    "no policy matches, {subjects} subjects, 32 connections: µs over an empty wasm filter"
                ),
                is,
                3.0,
            );
        }
        targets
    }

    /// What every filter in wasm costs at least, in the same ratio: an empty filter; and, without leases, an empty filter
    /// and the time of the script in Redis.
    fn floors(&self) -> Vec<(String, f64)> {
        let mut floors = Vec::new();
        for subjects in [MANY, 1] {
            let what = format!("an empty wasm filter, {subjects} subjects, 32 connections");
            let redis = self.median("weir exact", 32, subjects).map(|figures| figures.redis_us);
            let (empty, lua) =
                (self.added_cpu(CONTROL, 32, subjects), self.added_cpu("nginx + lua", 32, subjects));
            if let (Some(empty), Some(lua), Some(redis)) = (empty, lua, redis) {
                floors.push((format!("{what}: added CPU over nginx + lua's"), empty / lua));
                floors.push((
                    format!("{what}, and weir exact's time in Redis: the same"),
                    (empty + redis) / lua,
                ));
            }
        }
        let way = (!self.ways.is_empty()).then(|| median(self.ways.clone()));
        for subjects in [MANY, 1] {
            let empty = self.added_p50(CONTROL, "envoy plain", subjects);
            let lua = self.added_p50("nginx + lua", "nginx plain", subjects);
            if let (Some(way), Some(empty), Some(lua)) = (way, empty, lua) {
                let what = format!(
                    "an empty wasm filter, {subjects} subjects, 1 connection, and {way:.0} µs to Redis and back: added p50"
                );
                floors.push((what, (empty + way) / lua));
            }
        }
        floors
    }

    fn added_cpu(&self, name: &str, connections: u32, subjects: u32) -> Option<f64> {
        let plain = if name.starts_with("nginx") { "nginx plain" } else { "envoy plain" };
        let cpu = |name| Some(self.median(name, connections, subjects)?.cpu());
        Some(cpu(name)? - cpu(plain)?)
    }

    fn added_p50(&self, name: &str, plain: &str, subjects: u32) -> Option<f64> {
        Some(self.median(name, 1, subjects)?.p50_us - self.median(plain, 1, subjects)?.p50_us)
    }
}

/// A bound on one of the figures. `is` is `None` if it was not measured.
struct Target {
    what: String,
    is: Option<f64>,
    at_most: f64,
}

impl Target {
    fn verdict(&self) -> &'static str {
        match self.is {
            None => "not measured",
            Some(is) if is <= self.at_most => "pass",
            Some(_) => "miss",
        }
    }
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 }
}

fn rounded(figure: f64, parts: f64) -> f64 {
    (figure * parts).round() / parts
}
