// SPDX-License-Identifier: Apache-2.0
//! Looks through all keys of Redis, a piece at a time, so that Redis goes on deciding meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use redis::Value;

use super::Failure;
use super::store::{Redis, bytes};

/// About how many keys Redis looks at in one command: well below a millisecond.
const STEP: u64 = 500;

pub(super) struct Scan {
    /// Without those beyond the most, in order.
    pub keys: BTreeSet<Vec<u8>>,
    /// True if there may be more.
    pub is_partial: bool,
}

/// Looks for keys that match one of these patterns, until it has found more than `most` of them. On a terminal it shows how far it is.
pub(super) fn scan(redis: &mut Redis, patterns: &[Vec<u8>], most: usize) -> Result<Scan, Failure> {
    let nodes = redis.nodes()?;
    let mut total = 0_u64;
    for node in &nodes {
        // A user without this right gets no progress.
        if let Ok(Value::Int(keys)) = redis.ask_node(node, &[b"DBSIZE"]) {
            total = total.saturating_add(u64::try_from(keys).unwrap_or(0));
        }
    }
    let bar = progress(total.saturating_mul(u64::try_from(patterns.len()).unwrap_or(1)), "keys");
    let mut keys = BTreeSet::new();
    for node in &nodes {
        for pattern in patterns {
            let mut cursor = b"0".to_vec();
            loop {
                let step = STEP.to_string();
                let words: [&[u8]; 6] = [b"SCAN", &cursor, b"MATCH", pattern, b"COUNT", step.as_bytes()];
                let Value::Array(reply) = redis.ask_node(node, &words)? else { return Err(unexpected()) };
                let [next, Value::Array(found)] = reply.as_slice() else { return Err(unexpected()) };
                cursor = bytes(next).map(<[u8]>::to_vec).ok_or_else(unexpected)?;
                keys.extend(found.iter().filter_map(bytes).map(<[u8]>::to_vec));
                bar.inc(STEP);
                if keys.len() > most {
                    bar.finish_and_clear();
                    keys = keys.into_iter().take(most).collect();
                    return Ok(Scan { keys, is_partial: true });
                }
                if cursor == b"0" {
                    break;
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(Scan { keys, is_partial: false })
}

/// Shows on a terminal how many of so many things are done.
pub(super) fn progress(of: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(of);
    if let Ok(style) =
        ProgressStyle::with_template(&format!("{{bar:40}} {{pos}} of {{len}} {what}, {{eta}} left"))
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn unexpected() -> Failure {
    String::from("Redis: not the reply to SCAN")
}

/// A pattern that matches the keys of this name of all subjects of a policy, or of all policies.
pub(super) fn pattern(prefix: &str, policy: Option<&str>, name: &str) -> Vec<u8> {
    let policy = policy.map_or_else(|| String::from("*"), escaped);
    format!("{}:{{{policy}|*}}:{name}", escaped(prefix)).into_bytes()
}

/// A pattern that matches all keys of a run of `weir replay`.
pub(super) fn of_replay(run: u64) -> Vec<u8> {
    format!("*:{{replay-{run:016x}-*").into_bytes()
}

/// Escapes the special characters of patterns in a string.
fn escaped(text: &str) -> String {
    let is_special = |of: char| matches!(of, '*' | '?' | '[' | ']' | '^' | '\\');
    text.chars().flat_map(|of| is_special(of).then_some('\\').into_iter().chain([of])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_what_it_names() {
        assert_eq!(pattern("weir", None, "ban"), b"weir:{*|*}:ban");
        assert_eq!(pattern("we*r[1]", Some("a.b"), "*"), b"we\\*r\\[1\\]:{a.b|*}:*");
    }
}
