// SPDX-License-Identifier: Apache-2.0
//! The figures of failovers in `docs/stores.md` are those that `make failover` has measured, as `docs/stores/` has them. `WEIR_UPDATE=1`
//! writes the tables.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tables;

const HOSTS: [(&str, &str); 2] = [("wasm", "plugin"), ("native", "dynamic module")];

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// Of the hosts that were measured; the plugin always is.
fn figures() -> Vec<(&'static str, Value)> {
    let read = |(host, name)| {
        let text = fs::read_to_string(path(&format!("docs/stores/{host}.json"))).ok()?;
        Some((name, serde_json::from_str(&text).expect("JSON")))
    };
    let found: Vec<_> = HOSTS.into_iter().filter_map(read).collect();
    assert!(found.iter().any(|(name, _)| *name == HOSTS[0].1), "docs/stores has no figures of the plugin");
    found
}

/// The median and the maximum.
fn both(spread: &Value) -> String {
    format!("{} / {}", spread["median"], spread["max"])
}

fn seconds(spread: &Value) -> String {
    let [median, max] = ["median", "max"].map(|of| spread[of].as_f64().expect("a time") / 1_000.0);
    format!("{median:.1} / {max:.1}")
}

fn forgotten() -> String {
    let mut table = String::new();
    for (host, figures) in figures() {
        let cases = figures["cases"].as_array().expect("cases");
        let (rate, deadline) = (&figures["requests_per_second"], &figures["deadline_ms"]);
        let runs = &cases[0]["runs"];
        assert!(
            cases.iter().all(|case| case["runs"] == *runs && runs.as_u64() >= Some(30)),
            "{host}: 30 runs each"
        );
        let _ = write!(
            table,
            "\nWith the {host}, {rate} requests a second and a `deadline` of {deadline} ms, {runs} times each (median / maximum):\n\n\
             | what happens | units forgotten | bound | seconds without a grant |\n|---|---|---|---|\n"
        );
        for case in cases {
            let name = case["name"].as_str().expect("a name");
            let (forgotten, bound) = (both(&case["forgotten"]), both(&case["bound"]));
            let _ = writeln!(table, "| {name} | {forgotten} | {bound} | {} |", seconds(&case["outage_ms"]));
        }
    }
    table + "\n"
}

fn cost() -> String {
    let mut table = String::from(
        "\n| host | `min_replicas` | a request takes (median) | CPU time of the primary |\n|---|---|---|---|\n",
    );
    for (host, figures) in figures() {
        for cost in figures["costs"].as_array().expect("costs") {
            let (count, median, cpu) = (&cost["min_replicas"], &cost["median_us"], &cost["primary_cpu_us"]);
            let _ = writeln!(table, "| {host} | {count} | {median} µs | {cpu} µs |");
        }
    }
    table + "\n"
}

#[test]
fn the_figures_are_those_that_were_measured() {
    tables::published("docs/stores.md", [("failover", forgotten()), ("failover cost", cost())]);
}
