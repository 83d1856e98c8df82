// SPDX-License-Identifier: Apache-2.0
//! Counts how often Envoy enters the plugin for a request, and the calls that the plugin makes in Envoy meanwhile: they cost time, and no
//! instruction count of the core shows that. Envoy's own trace of its wasm filters has each entry and each call.
//!
//! `calls.txt` has the counts. `WEIR_UPDATE=1` writes them there.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use super::support::http::Request;
use super::support::weir::{Host, World};

pub const TESTS: &[(&str, fn())] = &[("calls: what is documented is what Envoy traces", what_is_documented)];

/// The number of requests that are counted, one after the other.
const REQUESTS: usize = 40;

/// The number of requests before that, which open streams and define metrics.
const FIRST: usize = 5;

/// Calls that depend on time, not on the request: they are made at most a hundred times a second.
const TIMED: &str = "set_tick_period_milliseconds";

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/envoy/e2e/calls.txt");
const BEGIN: &str = "<!-- counted -->\n";
const END: &str = "<!-- end -->\n";

/// Entries, each with the calls that it makes, and how many there were of each kind.
type Entries = BTreeMap<(String, Vec<String>), usize>;

/// The entries in a trace; those of the timer are left out.
fn entries(trace: &str) -> Entries {
    let mut entries = Entries::new();
    let mut open: Vec<(String, Vec<String>)> = Vec::new();
    for line in trace.lines() {
        let after = |mark: &str| Some(line.split_once(mark)?.1.split(['(', ' ']).next()?.to_owned());
        if let Some(entry) = after("[host->vm] ") {
            open.push((entry.replacen("proxy_", "", 1), Vec::new()));
        } else if line.contains("[host<-vm]") {
            let entry = open.pop().expect("it was entered");
            if entry.0 != "on_tick" {
                *entries.entry(entry).or_default() += 1;
            }
        } else if let (Some(call), Some((_, calls))) = (after("[vm->host] env.proxy_"), open.last_mut())
            && call != TIMED
        {
            calls.push(call);
        }
    }
    entries
}

/// The entries of one request, in a table.
fn counted(limiter: &str, request: &Request, expected: u16) -> String {
    let world = World::on(Host::Wasm, limiter, 1, 1, |template| {
        template.argument("--component-log-level").argument("wasm:trace")
    });
    let send = |count| (0..count).map(|_| world.send(request).status).collect::<Vec<_>>();
    send(FIRST);
    let begin = world.envoy().log().len();
    assert_eq!(send(REQUESTS), [expected; REQUESTS]);
    let log = world.envoy().log();
    let mut table = String::from("| entry | times | host calls in each |\n|---|---|---|\n");
    let (mut all, mut all_calls) = (0, 0);
    for ((entry, calls), times) in entries(log.get(begin..).expect("more of the log")) {
        // A call that happens less than once in two requests does not belong to the request.
        let times = (times + REQUESTS / 2) / REQUESTS;
        if times > 0 {
            (all, all_calls) = (all + times, all_calls + times * calls.len());
            let calls: Vec<_> = calls.iter().map(|call| format!("`{call}`")).collect();
            writeln!(table, "| `{entry}` | {times} | {} |", calls.join(", ")).expect("a string");
        }
    }
    writeln!(table, "| **all** | **{all}** | **{all_calls}** |").expect("a string");
    table
}

fn what_is_documented() {
    let limits = |burst: u32| {
        format!(
            r#""limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]"#
        )
    };
    let policy = |rest: &str| {
        format!(
            r#"{{"store": {{"deadline": "10s", "topology": "single"}}, "policies": [{{"name": "p",
            "subject": [{{"header": {{"name": "x-user"}}}}], {rest}}}]}}"#
        )
    };
    let idle = policy(&format!(r#""match": {{"path": {{"prefix": "/other"}}}}, {}"#, limits(1_000)));
    let listed = idle.replacen('{', r#"{"deny": [{"path": {"prefix": "/"}}], "#, 1);
    let user = Request::get("/things").header("x-user", "ann");
    let cases = [
        ("Idle: no policy matches", counted(&idle, &user, 200)),
        ("Exact: Redis decides", counted(&policy(&limits(1_000)), &user, 200)),
        ("Denied: the worker knows it", counted(&policy(&limits(1)), &user, 429)),
        ("Denied by a list", counted(&listed, &user, 403)),
    ];
    let tables: Vec<_> = cases.iter().map(|(name, table)| format!("### {name}\n\n{table}\n")).collect();
    let tables = tables.concat();
    let document = fs::read_to_string(DOCUMENT).expect("the document");
    let (head, rest) = document.split_once(BEGIN).expect("a mark");
    let (found, tail) = rest.split_once(END).expect("a mark");
    if std::env::var_os("WEIR_UPDATE").is_some() {
        fs::write(DOCUMENT, [head, BEGIN, &tables, END, tail].concat()).expect("written");
    } else {
        assert_eq!(found, tables, "WEIR_UPDATE=1 writes what is counted now");
    }
}
