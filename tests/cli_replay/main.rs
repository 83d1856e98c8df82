// SPDX-License-Identifier: Apache-2.0
//! `weir replay`: which traces it reads, what it decides about them, and what it says. Run as an operator runs it.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod browser;
mod decisions;
mod formats;
mod odd;
mod page;
#[path = "../support/redis.rs"]
#[allow(dead_code)]
mod redis;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Runs `weir replay` with these arguments: exit status, standard output, standard error.
pub fn replay(arguments: &[&str]) -> (i32, String, String) {
    fed(arguments, b"")
}

/// The same, with this standard input.
pub fn fed(arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("replay")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    // It may end before it has read all.
    let _ = child.stdin.take().expect("its input").write_all(input);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The lines of `--json`.
pub fn decisions(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A file that goes with the test.
pub struct File(PathBuf);

impl File {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-replay-{}-{next}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a file");
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Two requests of a client in a minute, three at once of one.
pub const CONFIG: &str = r#"{
  "policies": [
    {
      "name": "login",
      "match": {"path": {"exact": "/login"}},
      "limits": [{"name": "tries", "algorithm": "sliding_log", "limit": 2, "window": "1m"}]
    },
    {
      "name": "all",
      "exempt": [{"client_address": ["10.0.0.0/8"]}],
      "limits": [
        {"name": "steady", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 3},
        {"name": "flying", "algorithm": "concurrency", "limit": 2}
      ]
    },
    {
      "name": "watched",
      "mode": "shadow",
      "subject": [{"header": {"name": "x-key"}, "on_missing": "skip"}],
      "limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]
    }
  ]
}
"#;

/// A policy with more fields, and a limit that nothing reaches.
pub fn policy(name: &str, more: &str) -> String {
    format!(
        r#"{{"name": "{name}", {more}"limits": [{{"name": "l", "algorithm": "fixed_window", "limit": 1000000, "window": "1d"}}]}}"#
    )
}

/// A configuration of these policies.
pub fn config(policies: &[String]) -> File {
    File::new("config.json", format!("{{\"policies\": [{}]}}", policies.join(", ")))
}
