// SPDX-License-Identifier: Apache-2.0
//! Tables of documents whose figures a benchmark of this repository has measured. `make measured-keep` copies the files of the last runs to
//! `docs/` and writes the tables.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;
use weir::limit::{MAX_LOG, SlidingLog};
use weir::script::{NamedLimit, Options, Plan};
use weir::time::Micros;
use weir_support::table::grouped;

use crate::figures::at;
use crate::tables;

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    serde_json::from_str(&fs::read_to_string(path).expect(name)).expect(name)
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// The resources that a Redis needs, and an example.
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
    let mut proxies = String::from("| Envoy | workers | MB | CPU time of a start, s |\n|---|--:|--:|--:|\n");
    for proxy in capacity["proxies"].as_array().expect("proxies") {
        let name = proxy["proxy"].as_str().expect("a name");
        let _ = writeln!(
            proxies,
            "| {name} | {} | {} | {:.2} |",
            proxy["workers"],
            number(&proxy["mb"]),
            number(&proxy["start_s"])
        );
    }
    let tables = [("capacity", table), ("capacity: example", example), ("capacity: proxies", proxies)];
    tables::published("docs/sizing.md", tables);
}

/// The maximum time of one call of a script.
#[test]
fn worst_case() {
    let rows = read("bounds/worst.json");
    let mut table =
        String::from("| the longest call, on the largest state | µs, the least of 51 |\n|---|--:|\n");
    let split = |row: &Value| {
        let (limit, state) =
            row["name"].as_str().expect("a name").split_once(": ").expect("a limit and a state");
        (limit.to_owned(), state.to_owned(), number(&row["least_us"]))
    };
    let mut longest: Vec<(String, String, f64)> = Vec::new();
    for row in rows.as_array().expect("rows").iter().map(split) {
        match longest.iter_mut().find(|(limit, ..)| *limit == row.0) {
            Some(known) if known.2 >= row.2 => {}
            Some(known) => *known = row,
            None => longest.push(row),
        }
    }
    for (limit, state, micros) in &longest {
        let _ = writeln!(table, "| `{limit}`: {state} | {micros} |");
    }
    let longest = longest.iter().map(|(_, _, micros)| *micros).fold(0.0, f64::max);
    assert!(longest <= 400.0, "{longest} µs: no script may take so long");
    tables::published("docs/bounds.md", [("worst", table)]);
}

/// The page has each number of the error of a policy whose script may take too long.
#[test]
fn times_that_are_added_up() {
    let log = || SlidingLog::new(MAX_LOG, Micros::from_secs(60)).expect("a limit").into();
    let logs = (0..8).map(|number| NamedLimit { name: format!("log{number}"), limit: log() });
    let refused = Plan::new(logs.collect(), Options::default()).expect_err("too many logs");
    let numbers = |text: &str| -> BTreeSet<u64> {
        let text = text.replace(',', "");
        text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let page = include_str!("../../docs/bounds.md");
    let (_, table) = page.split_once("| limit | µs |\n").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    let (_, said) = refused.allowed.split_once(':').expect("the times");
    let (shown, said) = (numbers(table), numbers(said));
    assert!(said.is_subset(&shown), "{said:?} {shown:?}");
}

/// The instructions of Redis for a subject, beside those that no script can leave out.
#[test]
fn redis() {
    let mut table = String::from("| Redis, for one subject of ten | instructions | ratio |\n|---|--:|--:|\n");
    for row in read("bench/redis.json").as_array().expect("rows") {
        let (name, count) = (row["name"].as_str().expect("a name"), number(&row["instructions"]));
        let _ = writeln!(table, "| {name} | {} | {:.2} |", grouped(count, 0), number(&row["ratio"]));
    }
    tables::published("docs/proofs.md", [("redis", table)]);
}

/// The limiters that were measured beside weir in one run.
#[test]
fn services() {
    let services = read("bench/services.json");
    let cases = services["cases"].as_array().expect("cases");
    let mut table =
        String::from("| | added CPU, µs | p50, µs | Redis stopped for 5 s |\n|---|--:|--:|---|\n");
    for one in cases.iter().filter(|case| case["connections"] == 1) {
        let text = |field: &str| one[field].as_str().expect("a text");
        let many = cases.iter().find(|case| case["name"] == one["name"] && case["connections"] == 32);
        let added = at(many.expect("32 connections, too"), "cpu_us.added.median");
        let added = added.map_or("–".to_owned(), |added| grouped(added, 0));
        let p50 = grouped(number(&one["p50_us"]), 0);
        let _ = writeln!(table, "| {} | {added} | {p50} | {} |", text("shown"), text("redis_stopped"));
    }
    tables::published("docs/bench/README.md", [("services", table)]);
}

/// The targets of `make bench` that the last run has missed. Those that it did not decide are in its table only.
#[test]
fn targets() {
    let mut table = String::from("| target | is | at most | floor |\n|---|--:|--:|--:|\n");
    let summary = read("bench/summary.json");
    // The addition of an empty filter of the host and the time in Redis, under the same load.
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
    for target in targets.iter().filter(|target| target["verdict"] == "missed") {
        let name = target["target"].as_str().expect("a name");
        let [is, low, high] = ["median", "low", "high"].map(|of| target["is"][of].as_f64());
        let is = is.map_or(String::from("-"), |is| match low.zip(high).filter(|(low, high)| low < high) {
            Some((low, high)) => format!("{is:.2} ({low:.2} to {high:.2})"),
            None => format!("{is:.2}"),
        });
        let (at_most, floor) = (&target["at_most"], floor(name).unwrap_or_default());
        let _ = writeln!(table, "| {name} | {is} | {at_most} | {floor} |");
    }
    tables::published("docs/proofs.md", [("targets", table)]);
}

mod failover {
    //! The figures of failovers in `docs/stores.md` are those that `make failover` has measured, as `docs/stores/` has them. `WEIR_UPDATE=1`
    //! writes the tables.

    use std::fmt::Write;
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::Value;
    use weir_support::table::grouped;

    use super::number;
    use crate::tables;

    const HOSTS: [(&str, &str); 2] = [("wasm", "plugin"), ("native", "dynamic module")];

    fn path(of: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
    }

    /// The figures of the hosts that were measured; the plugin always is.
    fn figures() -> Vec<(&'static str, Value)> {
        let read = |(host, name)| {
            let text = fs::read_to_string(path(&format!("docs/stores/{host}.json"))).ok()?;
            Some((name, serde_json::from_str(&text).expect("JSON")))
        };
        let found: Vec<_> = HOSTS.into_iter().filter_map(read).collect();
        assert!(
            found.iter().any(|(name, _)| *name == HOSTS[0].1),
            "docs/stores has no figures of the plugin"
        );
        found
    }

    /// A case in each row, and a column for what is forgotten with each host. The rest is the larger maximum of the hosts.
    fn forgotten() -> String {
        let hosts: Vec<_> = figures();
        let of = |name: &str| format!("forgotten, {name}");
        let columns: Vec<_> = hosts.iter().map(|(name, _)| of(name)).collect();
        let (rate, deadline) = (&hosts[0].1["requests_per_second"], &hosts[0].1["deadline_ms"]);
        let runs = &hosts[0].1["cases"][0]["runs"];
        assert!(runs.as_u64() >= Some(30), "30 runs each");
        let mut table = format!(
            "\n{rate} requests a second and a `deadline` of {deadline} ms, {runs} times each (median / maximum of the units):\n\n\
             | what happens | {} | bound | seconds without a grant, at most |\n|---{}|--:|--:|\n",
            columns.join(" | "),
            "|--:".repeat(hosts.len())
        );
        for (row, case) in hosts[0].1["cases"].as_array().expect("cases").iter().enumerate() {
            let name = case["name"].as_str().expect("a name");
            let cases: Vec<_> = hosts.iter().map(|(_, figures)| &figures["cases"][row]).collect();
            assert!(
                cases.iter().all(|of| of["name"] == name && of["runs"] == *runs),
                "{name}: as often on each host"
            );
            let units: Vec<_> = cases
                .iter()
                .map(|of| {
                    ["median", "max"].map(|field| grouped(number(&of["forgotten"][field]), 0)).join(" / ")
                })
                .collect();
            let most = |field: &str| cases.iter().map(|of| number(&of[field]["max"])).fold(0.0, f64::max);
            let (bound, outage) = (grouped(most("bound"), 0), most("outage_ms") / 1_000.0);
            let _ = writeln!(table, "| {name} | {} | {bound} | {outage:.1} |", units.join(" | "));
        }
        table + "\n"
    }

    fn cost() -> String {
        let mut table = String::from(
            "\n| host | `min_replicas` | a request takes (median) | CPU time of the primary |\n|---|---|---|---|\n",
        );
        for (host, figures) in figures() {
            for cost in figures["costs"].as_array().expect("costs") {
                let (count, median, cpu) =
                    (&cost["min_replicas"], &cost["median_us"], &cost["primary_cpu_us"]);
                let _ = writeln!(table, "| {host} | {count} | {median} µs | {cpu} µs |");
            }
        }
        table + "\n"
    }

    #[test]
    fn the_figures_are_those_that_were_measured() {
        tables::published("docs/stores.md", [("failover", forgotten()), ("failover cost", cost())]);
    }
}

mod scale {
    //! `docs/proofs.md` shows what `make scale` has simulated in tables, and `docs/scale.md` in charts. `WEIR_UPDATE=1` writes them.
    //!
    //! The table after `<!-- table: NAME; NAME -->` has the cases whose names begin so.

    use std::fmt::Write;
    use std::fs;
    use std::path::Path;

    use serde_json::Value;
    use weir_support::table::grouped;

    use crate::figures::at;
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
        let path = docs.join("proofs.md");
        let page = fs::read_to_string(&path).expect("docs/proofs.md");

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
}

mod searched {
    //! `docs/bounds.md` shows what `make search` has searched: `docs/bounds/search.json`. `WEIR_UPDATE=1` writes the table.

    use std::fmt::Write;
    use std::path::Path;
    use std::{env, fs};

    use serde_json::Value;
    use weir_support::table::grouped;

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
        let columns =
            "protocol | regions | workers | units | requests | time passes | leave | faults | states | paths";
        let _ = writeln!(out, "| {columns} |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
        for row in rows {
            assert_eq!(row["is_complete"], true, "a row that was not searched to its end: {row}");
            let sizes = ["regions", "workers", "units", "requests", "passes", "leavers", "faults"];
            let sizes = sizes.map(|name| number(row, name).to_string()).join(" | ");
            let [states, paths] = ["states", "paths"].map(|name| grouped(number(row, name) as f64, 0));
            let protocol = row["protocol"].as_str().expect("a name");
            let _ = writeln!(out, "| {protocol} | {sizes} | {states} | {paths} |");
        }
        out
    }
}
