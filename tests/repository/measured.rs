// SPDX-License-Identifier: Apache-2.0
//! Tables of documents whose figures a benchmark of this repository has measured. `make measured-keep` copies the files of the last runs to
//! `docs/` and writes the tables.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::figures::grouped;
use crate::tables;

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    serde_json::from_str(&fs::read_to_string(path).expect(name)).expect(name)
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// What a Redis has to have, and an example of it.
#[test]
fn sizing() {
    let capacity = read("sizing/capacity.json");
    let cases = capacity["cases"].as_array().expect("cases");
    let mut table = String::from(
        "| limits of the policy | bytes for a subject, MB for a million | Redis's CPU for a check, µs | for 10,000 checks/s, % of a core |\n\
         |---|--:|--:|--:|\n",
    );
    for case in cases {
        let (name, bytes, micros) =
            (case["limits"].as_str().expect("a name"), number(&case["bytes"]), number(&case["check_us"]));
        let _ = writeln!(table, "| {name} | {bytes:.0} | {micros:.1} | {micros:.0} |");
    }
    let _ = writeln!(
        table,
        "\nMeasured with `make bench-capacity` on Redis {}: {} subjects on an empty Redis, one command for each check.",
        capacity["redis"].as_str().expect("a version"),
        grouped(number(&capacity["subjects"]), 0),
    );

    let both = cases.iter().find(|case| case["limits"] == "`leaky_bucket` and `fixed_window` in one policy");
    let both = both.expect("the case of the example");
    let (bytes, micros) = (number(&both["bytes"]), number(&both["check_us"]));
    let megabytes = (200_000.0 * bytes / 1e6).ceil();
    let core = 20_000.0 * micros / 1e4;
    assert!(core < 50.0, "the example says that one Redis is enough");
    let example = format!(
        "- *Memory*: two limits take {bytes:.0} bytes for a subject, see `leaky_bucket` and `fixed_window` below. 200,000 subjects are {megabytes} MB. \
         Give Redis twice that.\n\
         - *CPU*: such a check takes {micros:.0} µs of Redis's one core, so 20,000 checks a second take {core:.0} % of it. That is below the half to \
         plan for: one Redis is enough.\n"
    );
    tables::published("docs/sizing.md", [("capacity", table), ("capacity: example", example)]);
}

/// How long one call of a script may take.
#[test]
fn worst_case() {
    let rows = read("bounds/worst.json");
    let mut table = String::from(
        "| one call, on the largest state that it may meet | µs, the least of 51 | the median |\n|---|--:|--:|\n",
    );
    for row in rows.as_array().expect("rows") {
        let name = row["name"].as_str().expect("a name");
        let (limit, state) = name.split_once(": ").expect("a limit and a state");
        let _ = writeln!(table, "| `{limit}`: {state} | {} | {} |", row["least_us"], row["median_us"]);
    }
    let longest =
        rows.as_array().expect("rows").iter().map(|row| number(&row["least_us"])).fold(0.0, f64::max);
    assert!(longest <= 400.0, "{longest} µs: no script may take so long");
    tables::published("docs/bounds.md", [("worst", table)]);
}

/// What Redis executes for a subject, beside what no script can leave out.
#[test]
fn redis() {
    let mut table = String::from("| Redis, for one subject of ten | instructions | ratio |\n|---|--:|--:|\n");
    for row in read("bench/redis.json").as_array().expect("rows") {
        let (name, count) = (row["name"].as_str().expect("a name"), number(&row["instructions"]));
        let _ = writeln!(table, "| {name} | {} | {:.2} |", grouped(count, 0), number(&row["ratio"]));
    }
    tables::published("docs/bench/README.md", [("redis", table)]);
}

/// The targets of `make bench` that the run beside the page has missed, or did not decide.
#[test]
fn targets() {
    let mut table = String::from("| target | is | at most | floor | |\n|---|--:|--:|--:|---|\n");
    let summary = read("bench/summary.json");
    // What an empty filter of the host adds with the time in Redis, under the same load.
    let floor = |target: &str| {
        let (way, load) = target.split_once(", ")?;
        let host = match way {
            "weir native exact" => "native",
            "weir exact" => "wasm",
            _ => return None,
        };
        let of = format!("an empty {host} filter, {}, and ", load.split_once(": ")?.0);
        let floors = summary["floors"].as_array().expect("floors");
        let floor =
            floors.iter().find(|floor| floor["floor"].as_str().is_some_and(|name| name.starts_with(&of)))?;
        floor["is"]["median"].as_f64().map(|floor| format!("{floor:.2}"))
    };
    let targets = summary["targets"].as_array().expect("targets");
    for target in targets.iter().filter(|target| target["verdict"] != "met") {
        let name = target["target"].as_str().expect("a name");
        let [is, low, high] = ["median", "low", "high"].map(|of| target["is"][of].as_f64());
        let is = is.map_or(String::from("-"), |is| match low.zip(high).filter(|(low, high)| low < high) {
            Some((low, high)) => format!("{is:.2} ({low:.2} to {high:.2})"),
            None => format!("{is:.2}"),
        });
        let (at_most, verdict) = (&target["at_most"], target["verdict"].as_str().expect("a verdict"));
        let floor = floor(name).unwrap_or_default();
        let _ = writeln!(table, "| {name} | {is} | {at_most} | {floor} | {verdict} |");
    }
    tables::published("docs/bench/README.md", [("targets", table)]);
}
