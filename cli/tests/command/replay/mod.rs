// SPDX-License-Identifier: Apache-2.0
//! `weir replay`: which traces it reads, what it decides about them, and what it says. Run as an operator runs it.

mod browser;
mod decisions;
mod formats;
mod odd;
mod page;

pub use crate::command::{CONFIG, File};
use serde_json::Value;

/// Runs `weir replay` with these arguments: exit status, standard output, standard error.
pub fn replay(arguments: &[&str]) -> (i32, String, String) {
    crate::command::weir(&[&["replay"], arguments].concat())
}

/// The same, with this standard input.
pub fn fed(arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    crate::command::fed(&[&["replay"], arguments].concat(), input)
}

/// The lines of `--json`.
pub fn decisions(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

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
