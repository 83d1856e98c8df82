// SPDX-License-Identifier: Apache-2.0
//! `docs/scale.md` shows what `make scale` has simulated: its table and its charts. `WEIR_UPDATE=1` writes them.
//!
//! The table after `<!-- table: NAME; NAME -->` has the cases whose names begin so.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::figures::{at, grouped};
use crate::plot::{Line, plot};

const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end -->\n";

fn published(path: &Path, wanted: &str) {
    if std::env::var_os("WEIR_UPDATE").is_some() {
        fs::write(path, wanted).expect("written");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == wanted, "{} is not what was simulated; WEIR_UPDATE=1 writes it", path.display());
}

/// The columns of the tables: what they are called, where they are in a case, and their decimals.
const COLUMNS: [(&str, &str, usize); 13] = [
    ("workers", "workers", 0),
    ("nodes", "nodes", 0),
    ("requests/s", "requests_per_s", 0),
    ("commands/s, hottest node", "hottest.commands_per_s", 0),
    ("its core is busy, %", "hottest.busy_percent", 0),
    ("Redis decides, %", "decided_percent.redis", 1),
    ("the worker, %", "decided_percent.worker", 1),
    ("`on_failure`, %", "decided_percent.on_failure", 1),
    ("wait p50, ms", "wait_ms.p50", 1),
    ("p99", "wait_ms.p99", 1),
    ("admitted, %", "admitted_percent", 0),
    ("above the limit", "excess", 0),
    ("MB in Redis", "redis_mb", 1),
];

fn table(cases: &[Value], begins: &str) -> String {
    let of = |case: &&Value| {
        let name = case["name"].as_str().expect("a name");
        begins.split("; ").any(|begins| name.starts_with(begins))
    };
    let mut out = String::from("| traffic |");
    COLUMNS.iter().for_each(|(name, ..)| out += &format!(" {name} |"));
    let _ = writeln!(out, "\n|---|{}", "--:|".repeat(COLUMNS.len()));
    let mut rows = 0;
    for case in cases.iter().filter(of) {
        let _ = write!(out, "| {} |", case["name"].as_str().expect("a name"));
        for (_, field, decimals) in COLUMNS {
            let shown = at(case, field).map_or("–".to_owned(), |value| grouped(value, decimals));
            let _ = write!(out, " {shown} |");
        }
        out.push('\n');
        rows += 1;
    }
    assert!(rows > 0, "no case begins with {begins:?}");
    out
}

/// A field of the hot subject, by how many workers there are.
fn chart(cases: &[Value], title: &str, unit: &str, field: &str, top: f64) -> String {
    let names = [
        ("hot subject, a tenth admitted", "no lease"),
        ("hot subject, all admitted, lease 100", "lease of 100"),
    ];
    let lines = names.map(|(name, shown)| {
        let of = cases.iter().filter(|case| case["name"] == name);
        let points = of.filter_map(|case| Some((at(case, "workers")?, at(case, field)?)));
        let mut points: Vec<_> = points.collect();
        points.dedup_by_key(|(workers, _)| *workers);
        Line { name: shown.to_owned(), points }
    });
    plot(title, ("workers", unit), (10_500.0, top), &lines)
}

#[test]
fn the_page_shows_what_was_simulated() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let summary = fs::read_to_string(docs.join("scale/summary.json")).expect("docs/scale/summary.json");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let cases = summary["cases"].as_array().expect("cases");
    let path = docs.join("scale.md");
    let page = fs::read_to_string(&path).expect("docs/scale.md");

    let mut parts = page.split(BEGIN);
    let mut written = parts.next().expect("a head").to_owned();
    for part in parts {
        let (begins, rest) = part.split_once(" -->\n").expect("an end of the mark");
        let (_, rest) = rest.split_once(END).expect("an end of the table");
        written += &[BEGIN, begins, " -->\n", &table(cases, begins), END, rest].concat();
    }
    published(&path, &written);
    #[rustfmt::skip]
    let charts = [
        ("decided.svg", "One hot subject: what is decided before the deadline", "% of the requests", "decided_percent.in_time", 110.0),
        ("wait.svg", "One hot subject: how long requests wait that Redis is asked about", "ms, 99th percentile", "wait_ms.p99", 70.0),
    ];
    for (name, title, unit, field, top) in charts {
        published(&docs.join("scale").join(name), &chart(cases, title, unit, field, top));
    }
}
