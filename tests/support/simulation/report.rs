// SPDX-License-Identifier: Apache-2.0
//! Everything that the documents show of the simulation: `files` makes it, and the test compares it with what is published.

use std::fmt::Write;

use serde_json::{Value, json};

use super::cases::{self, Case};
use super::{Figures, Run, Setup, Way, charts, figures};
use crate::table;

/// The beginning of the generated tables in `docs/proofs.md`.
pub const BEGIN: &str = "<!-- simulated: begin -->\n";
pub const END: &str = "<!-- simulated: end -->\n";

const WAYS: [Way; 5] = [Way::One, Way::Debit, Way::Share, Way::RandomDrop, Way::FlowShare];

/// The simulations of a report.
pub struct Report {
    pub table: Vec<(Case, Figures)>,
    moving: Vec<(Setup, Run)>,
    flows: Vec<(Setup, Run)>,
    unequal: Vec<(Setup, Run)>,
    woken: Vec<(Setup, Figures)>,
    spread: Vec<(Setup, Figures)>,
}

/// Runs everything.
pub fn simulate() -> Report {
    let table = cases::table();
    let moving = WAYS.map(cases::moving);
    let flows = WAYS.map(cases::flows);
    let unequal = WAYS.map(cases::unequal);
    let woken =
        [2, 8].map(|regions| [50, 100, 200, 500, 900].map(|interval| cases::woken(regions, interval)));
    let spread = [50, 200].map(|burst| [2, 4, 8, 16, 32].map(|regions| cases::spread(regions, burst)));
    let mut setups: Vec<_> = table.iter().map(|case| case.setup.clone()).collect();
    setups.extend([moving, flows, unequal].into_iter().flatten());
    setups.extend(woken.into_iter().chain(spread).flatten());
    let results = cases::run_all(&setups);
    let mut results = setups.into_iter().zip(results);
    let table =
        table.into_iter().zip(&mut results).map(|(case, (_, (_, figures)))| (case, figures)).collect();
    let mut runs = || results.by_ref().take(WAYS.len()).map(|(setup, (run, _))| (setup, run)).collect();
    let (moving, flows, unequal) = (runs(), runs(), runs());
    let mut figures = || results.by_ref().take(10).map(|(setup, (_, figures))| (setup, figures)).collect();
    let (woken, spread) = (figures(), figures());
    Report { table, moving, flows, unequal, woken, spread }
}

impl Report {
    /// The files of `docs/regions/`, with their names.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        vec![
            ("moving.svg", charts::moving(&self.moving)),
            ("flows.svg", charts::flows(&self.flows)),
            ("woken.svg", charts::woken(&self.woken)),
            ("spread.svg", charts::spread(&self.spread)),
            ("summary.json", self.summary()),
        ]
    }

    fn summary(&self) -> String {
        let row = |name: &str, setup: &Setup, figures: &Figures| {
            json!({
                "way": setup.way.name(),
                "name": name,
                "regions": setup.regions,
                "delay_ms": setup.delay / 1_000,
                "sync_interval_ms": setup.sync_interval / 1_000,
                "algorithm": setup.shape.name(),
                "rate": setup.rate,
                "burst": setup.burst,
                "excess": figures.excess,
                "bound": cases::bound(setup),
                "utilisation": rounded(figures.utilisation),
                "fairness": rounded(figures.fairness),
                "messages_per_s": rounded(figures.messages),
            })
        };
        let mut cases: Vec<Value> =
            self.table.iter().map(|(case, figures)| row(&case.name, &case.setup, figures)).collect();
        cases.extend(self.woken.iter().map(|(setup, figures)| row("regions that wake up", setup, figures)));
        cases.extend(self.spread.iter().map(|(setup, figures)| {
            let name = format!("few regions with most of the demand, burst {}", setup.burst);
            row(&name, setup, figures)
        }));
        for (name, runs) in [("moving", &self.moving), ("flows", &self.flows), ("unequal", &self.unequal)] {
            cases.extend(runs.iter().map(|(setup, run)| row(name, setup, &Figures::new(setup, run))));
        }
        table::rows(&json!({ "cases": cases }))
    }

    /// The tables in `docs/proofs.md`.
    pub fn tables(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "| mode | case | above the limit | bound | admitted | fairness | messages/s |");
        let _ = writeln!(out, "|---|---|--:|--:|--:|--:|--:|");
        for (Case { name, setup, .. }, Figures { excess, utilisation, fairness, messages, .. }) in &self.table
        {
            let way = setup.way.name();
            let [excess, bound] = [*excess, cases::bound(setup)].map(|units| table::grouped(units as f64, 0));
            let _ = writeln!(
                out,
                "| `{way}` | {name} | {excess} | {bound} | {utilisation:.0} % | {fairness:.2} | {messages:.0} |"
            );
        }
        let _ = writeln!(
            out,
            "\n| mode | demand moves: 90 % after | unequal demand: each region's part | fairness | admitted | 3 and 7 flows: fairness | admitted | above the limit | messages/s |"
        );
        let _ = writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|");
        for (((setup, moving), unequal), flows) in self.moving.iter().zip(&self.unequal).zip(&self.flows) {
            let after = figures::follows_after(setup, moving, 4, 90);
            let after = after.map_or_else(|| "not within 3 s".to_owned(), |ms| format!("{ms} ms"));
            let parts = parts(&unequal.0, &unequal.1);
            let (unequal, flows) = (Figures::new(&unequal.0, &unequal.1), Figures::new(&flows.0, &flows.1));
            let excess = unequal.excess.max(flows.excess);
            let _ = writeln!(
                out,
                "| {} | {after} | {parts} | {:.2} | {:.0} % | {:.2} | {:.0} % | {excess} | {:.0} |",
                setup.way.name(),
                unequal.fairness,
                unequal.utilisation,
                flows.fairness,
                flows.utilisation,
                unequal.messages
            );
        }
        out
    }
}

/// The percentage of all admitted requests in each region.
fn parts(setup: &Setup, run: &Run) -> String {
    let later = run.admitted.iter().filter(|(at, _)| *at >= setup.from * 1_000_000);
    let mut each = vec![0_usize; setup.regions];
    later.for_each(|(_, flow)| each[usize::from(*flow)] += 1);
    let all = each.iter().sum::<usize>().max(1);
    let parts: Vec<_> =
        each.iter().map(|count| format!("{:.0}", 100.0 * *count as f64 / all as f64)).collect();
    format!("{} %", parts.join(" / "))
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
