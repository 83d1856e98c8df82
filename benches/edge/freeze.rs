// SPDX-License-Identifier: Apache-2.0
//! Requests of clients on each way while Redis stands still: it keeps its connections, and answers nothing.
//!
//! Each way has its defaults and a limit of three requests an hour. New clients come at a steady pace, whatever became of those before them
//! (an open loop), so a way that makes them wait makes none of them wait less.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::edges::Unpaced;
use crate::service::PROOF;
use crate::stats::median;
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;

/// The interval between clients.
const PACE: Duration = Duration::from_millis(25);

/// The results of one way's requests.
pub struct Outcome {
    pub name: String,
    pub requests: usize,
    /// With status 200, 429, and any other.
    pub admitted: usize,
    pub denied: usize,
    pub failed: usize,
    pub p50_us: f64,
    pub slowest_us: f64,
}

/// Stops Redis for so long, for each way in turn.
pub fn run(ways: &[Unpaced], redis: &Redis, frozen: Duration, stop: &AtomicBool) -> io::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for way in ways {
        eprintln!("Redis stands still for {} s: {}", frozen.as_secs(), way.name);
        // Connections, scripts and counters are there before.
        send(way, 0)?;
        redis.freeze();
        let sent = send_steadily(way, frozen, stop);
        redis.thaw();
        eventually("Redis", || (redis.connect().integer(&[b"DBSIZE"]) >= 0).then_some(()));
        outcomes.push(outcome(&way.name, &sent?));
    }
    Ok(outcomes)
}

type Sent = (u16, Duration);

fn send_steadily(way: &Unpaced, during: Duration, stop: &AtomicBool) -> io::Result<Vec<Sent>> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let mut clients = Vec::new();
        while begun.elapsed() < during && !stop.load(Ordering::Relaxed) {
            let number = clients.len() + 1;
            clients.push(scope.spawn(move || send(way, number)));
            thread::sleep((begun + PACE * number as u32).saturating_duration_since(Instant::now()));
        }
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    })
}

/// One request, on a connection of its own. All of a way have the same subject of the limit.
fn send(way: &Unpaced, number: usize) -> io::Result<Sent> {
    let request = Request::get("/").header(PROOF, &way.name).header("x-user", &format!("freeze-{number}"));
    let begun = Instant::now();
    let response = http::send(way.address, &request)?;
    Ok((response.status, begun.elapsed()))
}

fn outcome(name: &str, sent: &[Sent]) -> Outcome {
    let with = |is: fn(u16) -> bool| sent.iter().filter(|(status, _)| is(*status)).count();
    let waits: Vec<_> = sent.iter().map(|(_, wait)| wait.as_secs_f64() * 1e6).collect();
    Outcome {
        name: name.to_owned(),
        requests: sent.len(),
        admitted: with(|status| status == 200),
        denied: with(|status| status == 429),
        failed: with(|status| !matches!(status, 200 | 429)),
        p50_us: median(&waits),
        slowest_us: waits.iter().copied().fold(0.0, f64::max),
    }
}
