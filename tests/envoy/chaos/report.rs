// SPDX-License-Identifier: Apache-2.0
//! The table for people and the summary for programs.

use std::time::Duration;

use crate::measure::Row;
use crate::overload::Overload;
use crate::support::write_summary;

/// Times are in milliseconds. Where the machine was `busy`, which the control tells, they say nothing about weir.
const COLUMNS: [&str; 16] = [
    "sent",
    "answered",
    "200",
    "429",
    "503",
    "5xx",
    "fallback",
    "local",
    "elsewhere",
    "over",
    "waiting",
    "slowest",
    "control",
    "recovered",
    "settled",
    "machine",
];

pub fn print(rows: &[Row]) {
    let widest = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    println!("{:widest$}  {}", "fault", COLUMNS.map(|column| format!("{column:>9}")).join(" "));
    for row in rows {
        let share = |count: usize| format!("{:.1}%", 100.0 * count as f64 / row.answered.max(1) as f64);
        let cells = [
            row.sent.to_string(),
            row.answered.to_string(),
            share(row.allowed),
            share(row.limited),
            share(row.refused),
            row.errors.to_string(),
            share(row.fallback),
            row.local.to_string(),
            if row.others > 0 { row.elsewhere.to_string() } else { "-".into() },
            row.over_admitted.to_string(),
            row.waiting.to_string(),
            millis(row.slowest),
            millis(row.control),
            row.recovered.map_or("never".into(), millis),
            millis(row.settled),
            if row.tells_time() { "quiet" } else { "busy" }.into(),
        ];
        println!("{:widest$}  {}", row.name, cells.map(|cell| format!("{cell:>9}")).join(" "));
    }
    for row in rows {
        if let Some(Overload { capacity, decided, grown }) = row.overload {
            println!(
                "\n{}: {capacity} commands a second; of what was too much it did {decided} a second; an Envoy grew by {grown} KiB",
                row.name
            );
        }
    }
    println!("\nWhat the operator was told:");
    for row in rows.iter().filter(|row| !row.told.is_empty()) {
        println!("  {}", row.name);
        row.told.iter().for_each(|told| println!("    {told}"));
    }
}

/// `denied` are those with 429 and those with the 503 that `on_failure: deny` is; `errors_5xx` are all others.
pub fn write(rows: &[Row]) {
    let fault = |row: &Row| {
        serde_json::json!({
            "name": row.name,
            "sent": row.sent,
            "answered": row.answered,
            "allowed": row.allowed,
            "denied": row.limited + row.refused,
            "errors_5xx": row.errors,
            "slowest_ms": row.slowest.as_millis(),
            "over_admitted": row.over_admitted,
            "recovered_ms": row.recovered.map(|recovered| recovered.as_millis()),
        })
    };
    let summary = serde_json::json!({ "faults": rows.iter().map(fault).collect::<Vec<_>>() });
    write_summary("chaos/summary.json", &summary);
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}
