// SPDX-License-Identifier: Apache-2.0
//! The instructions that an edge and Redis execute for a request, counted by the processor: other programs on the machine hardly change them.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use crate::edges::Edge;
use crate::load::{self, Load, Subjects};

/// The edges that are counted.
pub const COUNTED: [&str; 9] = [
    "envoy plain",
    "envoy empty wasm",
    "envoy idle wasm",
    "envoy empty native",
    "weir native idle",
    "weir exact",
    "weir native exact",
    "nginx plain",
    "nginx + lua",
];

/// Sends a fixed number of requests while `perf` counts. `None` if there is no `perf`, or if it cannot count here (most virtual
/// machines hide the counters).
pub fn per_request(edge: &Edge, redis: u32, requests: u32, stop: &AtomicBool) -> io::Result<Option<f64>> {
    let pids = edge.pids.iter().chain([&redis]).map(u32::to_string).collect::<Vec<_>>().join(",");
    let counting = Command::new("perf")
        .args(["stat", "--field-separator", ",", "--event", "instructions", "--pid", &pids])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut perf) = counting else { return Ok(None) };
    // It does not say when it has begun.
    thread::sleep(Duration::from_millis(100));
    let load = Load {
        to: edge.address,
        connections: 32,
        subjects: Subjects::EachOnce(requests),
        expected: edge.answers,
        warm_up: Duration::ZERO,
        measured: Duration::ZERO,
    };
    let sent = load::run(&load, stop, || Ok(()));
    // perf prints its counts when it is interrupted.
    crate::support::signal("-INT", perf.id());
    let mut said = String::new();
    if let Some(mut stderr) = perf.stderr.take() {
        stderr.read_to_string(&mut said)?;
    }
    perf.wait()?;
    sent?;
    // "<count>,<unit>,<event>,…", where the count is a remark in words if there is none.
    let count =
        said.lines().find(|line| line.contains(",instructions")).and_then(|line| line.split(',').next());
    Ok(count.and_then(|count| count.parse::<f64>().ok()).map(|count| count / f64::from(requests)))
}
