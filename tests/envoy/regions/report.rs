// SPDX-License-Identifier: Apache-2.0
//! The tables for people and the summary for programs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Form;
use crate::beside;
use crate::measure::Row;
use crate::support::regions::NAMES;
use crate::support::write_summary;

/// The results of all cases.
#[derive(Debug, Default)]
pub struct Report {
    pub cases: Vec<Row>,
    pub beside: Vec<beside::Row>,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty() && self.beside.is_empty()
    }

    pub fn add(&mut self, more: Self) {
        self.cases.extend(more.cases);
        self.beside.extend(more.beside);
    }

    /// Times are in milliseconds.
    pub fn print(&self) {
        let columns =
            ["sent", "admitted", "limit", "bound", "used", "503", "p50", "p99", "msg/s", "KB/s", "converged"];
        let widths = [6, 8, 6, 6, 6, 5, 11, 13, 6, 6, 9];
        let line = |name: &str, way: &str, cells: [String; 11]| {
            let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
            println!("{name:38}  {way:5}  {}", cells.collect::<Vec<_>>().join(" "));
        };
        line("case", "way", columns.map(String::from));
        for row in &self.cases {
            let of = |number: Option<f64>| number.map_or_else(|| "-".into(), |number| format!("{number:.0}"));
            let times = |times: &[Option<Duration>]| {
                let each = times
                    .iter()
                    .map(|time| time.map_or_else(|| "-".into(), |time| time.as_millis().to_string()));
                each.collect::<Vec<_>>().join("/")
            };
            let cells = [
                row.sent.to_string(),
                row.admitted.to_string(),
                format!("{:.0}", row.limit),
                format!("{:.0}", row.bound),
                row.utilisation.map_or_else(|| "-".into(), |used| format!("{:.1}%", used * 100.0)),
                row.refused.to_string(),
                times(&row.p50),
                times(&row.p99),
                of(row.messages_per_second),
                of(row.bytes_per_second.map(|bytes| bytes / 1_000.0)),
                row.converged.map_or_else(|| "-".into(), |time| time.as_millis().to_string()),
            ];
            line(row.name, row.way, cells);
        }
        for (row, before) in
            self.cases.iter().flat_map(|row| row.attempts.iter().map(move |before| (row, before)))
        {
            println!("{}, {}: run again after: {before}", row.way, row.name);
        }
        self.beside.iter().for_each(|row| println!("{row}"));
    }

    pub fn write(&self, form: Form) {
        let by_region = |times: &[Option<Duration>]| {
            let each = NAMES.iter().zip(times);
            each.filter_map(|(name, time)| Some(((*name).to_owned(), json!(millis((*time)?)))))
                .collect::<serde_json::Map<_, _>>()
        };
        let case = |row: &Row| {
            json!({
                "way": row.way,
                "name": row.name,
                "sent": row.sent,
                "admitted": row.admitted,
                "refused": row.refused,
                "limit": row.limit.floor(),
                "bound": row.bound.floor(),
                "utilisation": row.utilisation.map(rounded),
                "p50_ms_by_region": by_region(&row.p50),
                "p99_ms_by_region": by_region(&row.p99),
                "messages_per_s": row.messages_per_second.map(f64::round),
                "bytes_per_s": row.bytes_per_second.map(f64::round),
                "broken_before": row.attempts,
                "converged_ms": row.converged.map(|time| time.as_millis()),
            })
        };
        let summary = json!({
            "form": form.name,
            "network": "TCP proxies that delay by 50 ms ± 20 ms in each direction; a lost packet and what follows it arrive after TCP's time-out",
            "cases": self.cases.iter().map(case).collect::<Vec<_>>(),
            "beside": self.beside.iter().map(beside::Row::json).collect::<Vec<Value>>(),
        });
        write_summary("regions/summary.json", &summary);
    }
}

/// In milliseconds, with one digit.
pub fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

fn rounded(share: f64) -> f64 {
    (share * 1_000.0).round() / 1_000.0
}
