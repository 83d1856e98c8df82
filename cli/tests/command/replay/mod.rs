// SPDX-License-Identifier: Apache-2.0
//! `weir replay`: its page, large traces, and counting in a Redis. Its input and decisions are in `transcripts/replay/`.

pub mod browser;
pub mod page;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::command::command;
pub use crate::command::{CONFIG, File};
use crate::support::redis::Redis;

/// Runs `weir replay` with these arguments: exit status, standard output, standard error.
pub fn replay(arguments: &[&str]) -> (i32, String, String) {
    crate::command::weir(&[&["replay"], arguments].concat())
}

/// Limits of each kind, and a ban that begins and ends.
#[test]
fn it_in_redis_decides_the_same() {
    let Some(redis) = Redis::start() else { return crate::support::not_tested("no redis-server here") };
    let url = format!("redis://{}", redis.address());
    let line = |at: u64| {
        format!("{{\"t_ms\": {at}, \"path\": \"/login\", \"client\": \"192.0.2.1\", \"duration_ms\": 250}}\n")
    };
    let banning = r#"{"policies": [{"name": "p", "ban": {"after": 2, "window": "10m", "duration": "1h"}, "limits": [
        {"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    let times = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 60_001];
    let bans = [0, 0, 2_000, 2_000, 10_000, 3_601_000, 3_602_000];
    for (config, times) in [(CONFIG, &times[..]), (banning, &bans)] {
        let config = File::new("lua.json", config);
        let trace = File::new("lua.jsonl", times.iter().copied().map(line).collect::<String>());
        let (_, pure, _) = replay(&["--json", config.path(), trace.path()]);
        assert_eq!(pure.lines().count(), times.len());
        let (status, lua, failure) = replay(&["--json", config.path(), trace.path(), "--redis", &url]);
        assert_eq!((status, lua), (0, pure), "{failure}");
    }
}

/// A hundred thousand lines. `head` reads two of them.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (config, trace) = (
        File::new("config.json", CONFIG),
        (0..100_000).map(|at| format!("{{\"t_ms\": {at}}}\n")).collect::<String>(),
    );
    let trace = File::new("long.jsonl", trace);
    let mut weir = command(&["replay", "--json", config.path(), trace.path()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    let mut lines = BufReader::new(weir.stdout.take().expect("its output")).lines();
    let is_right =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.starts_with("{\"line\":"));
    assert_eq!(lines.by_ref().take(2).filter(is_right).count(), 2);
    drop(lines);
    let output = weir.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("ipe") && !said.contains("panicked"), "{said}");
}

/// A trace of a million lines about a million clients is in no order. `weir replay` takes less memory than the trace is long, and warns
/// of the lines that it could not put in order.
#[test]
fn a_million_lines_of_a_million_clients_take_bounded_memory() {
    let config = File::new(
        "million.json",
        r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1m"}]}]}"#,
    );
    let mut log = Vec::with_capacity(130 << 20);
    for number in 0..1_000_000_u64 {
        // In steps of a prime, so that no two neighbours are in order.
        let at = number * 7_919 % 1_000_000;
        let (second, millis) = (at / 100, at % 100 * 10);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let client = format!(
            "{}.{}.{}.{}",
            11 + number / 16_777_216,
            number >> 16 & 255,
            number >> 8 & 255,
            number & 255
        );
        log.extend_from_slice(
            format!(
                "[2026-01-01T{hour:02}:{minute:02}:{second:02}.{millis:03}Z] \"GET / HTTP/1.1\" 200 - 0 0 5 1 \"{client}\" \"curl/8\" \"-\" \"h\" \"-\"\n"
            )
            .as_bytes(),
        );
    }
    let trace = File::new("million.log", &log);
    let mut weir = command(&["replay", config.path(), trace.path()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    // The kernel keeps the peak as long as the process lives.
    let (status, mut peak) = (format!("/proc/{}/status", weir.id()), 0);
    while weir.try_wait().expect("a process").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak =
            line.map_or(peak, |line| line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = weir.wait_with_output().expect("its output");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(out.starts_with("1000000 requests, 0 of them"), "{out}");
    assert!(out.contains("p       enforce   1000000   1000000\n"), "{out}");
    let (_, said) = said.split_once("weir: warning: ").expect("a warning");
    let (count, said) = said.split_once(" lines could not be put in order, the first is line ").expect(said);
    let (first, _) = said.split_once(": they are too far behind later lines").expect(said);
    let (count, first): (u64, u64) = (count.parse().expect(count), first.parse().expect(first));
    assert!(count > 300_000 && (200_000..300_000).contains(&first), "{count} {first}");
    assert!((1 << 10..64 << 10).contains(&peak), "{peak} kB, and the log has {} kB", log.len() >> 10);
}
