// SPDX-License-Identifier: Apache-2.0
//! The table for people and the summary for programs.

use serde_json::{Value, json};

use crate::cost::Cost;
use crate::measure::Run;
use crate::support::weir::Host;
use crate::support::write_summary;
use crate::{DEADLINE, Form};

/// The results of the runs of one case.
pub struct Row {
    /// The index of the case.
    pub place: usize,
    pub name: &'static str,
    pub runs: Vec<Run>,
}

impl Row {
    /// The median and the largest number of this kind.
    fn spread(&self, of: impl Fn(&Run) -> u128) -> Value {
        let mut numbers: Vec<_> = self.runs.iter().map(of).collect();
        numbers.sort_unstable();
        json!({"median": numbers[numbers.len() / 2], "max": numbers.last()})
    }

    fn summary(&self) -> Value {
        json!({
            "name": self.name,
            "runs": self.runs.len(),
            "granted": self.spread(|run| run.granted as u128),
            "forgotten": self.spread(|run| run.forgotten as u128),
            "bound": self.spread(|run| run.bound as u128),
            "outage_ms": self.spread(|run| run.outage.as_millis()),
        })
    }
}

pub fn print(rows: &[Row], costs: &[Cost]) {
    println!(
        "Median and maximum of units forgotten, of the bound, and of the longest time without a grant (ms):"
    );
    for row in rows {
        let summary = row.summary();
        let both = |kind: &str| format!("{} / {}", summary[kind]["median"], summary[kind]["max"]);
        let kinds = ["forgotten", "bound", "outage_ms"].map(|kind| format!("{:>15}", both(kind)));
        println!("{:3} runs {}  {}", row.runs.len(), kinds.concat(), row.name);
    }
    for Cost { min_replicas, median, primary } in costs {
        println!(
            "`min_replicas: {min_replicas}`: a request takes {median:?}, and the primary computes for {primary:?}"
        );
    }
}

fn of_cost(cost: &Cost) -> Value {
    json!({
        "min_replicas": cost.min_replicas,
        "median_us": cost.median.as_micros(),
        "primary_cpu_us": cost.primary.as_micros(),
    })
}

pub fn write(rows: &[Row], costs: &[Cost], form: Form) {
    let summary = json!({
        "requests_per_second": form.rate,
        "deadline_ms": DEADLINE.as_millis(),
        "costs": costs.iter().map(of_cost).collect::<Vec<_>>(),
        "cases": rows.iter().map(Row::summary).collect::<Vec<_>>(),
    });
    let name = if Host::chosen() == Host::Wasm { "wasm" } else { "native" };
    write_summary(&format!("failover/{name}.json"), &summary);
}
