// SPDX-License-Identifier: Apache-2.0
//! `docs/bounds.md` shows what `make search` has searched: `docs/bounds/search.json`. `WEIR_UPDATE=1` writes the table.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;

use crate::figures::grouped;

const BEGIN: &str = "<!-- searched: begin -->\n";
const END: &str = "<!-- searched: end -->\n";

#[test]
fn the_page_shows_what_was_searched() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).expect(name);
    let figures: Value = serde_json::from_str(&read("bounds/search.json")).expect("figures");
    let table = table(figures["rows"].as_array().expect("rows"));
    let page = read("bounds.md");
    let (head, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (shown, tail) = rest.split_once(END).expect("where the table ends");
    if env::var_os("WEIR_UPDATE").is_some() {
        fs::write(docs.join("bounds.md"), [head, BEGIN, &table, END, tail].concat()).expect("the page");
        return;
    }
    assert_eq!(shown, table, "WEIR_UPDATE=1 writes the table");
}

fn table(rows: &[Value]) -> String {
    let number = |row: &Value, name: &str| row[name].as_u64().expect("a number");
    let sum = |name: &str| grouped(rows.iter().map(|row| number(row, name)).sum::<u64>() as f64, 0);
    let mut out = format!(
        "In {} rows, {} paths have reached {} different states, in {} s of one core. No path is wrong.\n\n",
        rows.len(),
        sum("paths"),
        sum("states"),
        sum("seconds")
    );
    let columns = "protocol | regions | workers | units | requests | time passes | leave | faults | states | paths | longest path | s";
    let _ = writeln!(out, "| {columns} |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for row in rows {
        assert_eq!(row["is_complete"], true, "a row that was not searched to its end: {row}");
        let sizes = ["regions", "workers", "units", "requests", "passes", "leavers", "faults"];
        let sizes = sizes.map(|name| number(row, name).to_string()).join(" | ");
        let [states, paths] = ["states", "paths"].map(|name| grouped(number(row, name) as f64, 0));
        let (longest, seconds) = (number(row, "longest"), number(row, "seconds"));
        let protocol = row["protocol"].as_str().expect("a name");
        let _ = writeln!(out, "| {protocol} | {sizes} | {states} | {paths} | {longest} | {seconds} |");
    }
    out
}
