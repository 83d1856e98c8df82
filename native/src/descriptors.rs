// SPDX-License-Identifier: Apache-2.0
//! How many file descriptors this process may still open.
//!
//! Envoy 1.40 faults at address 0 when `tcp_proxy` opens a connection and none is left: its connection pool goes on without a socket. So no
//! connection to Redis is opened while few are left. Those that are open stay in use, and without one `on_failure` decides.

use std::fs;

/// A connection is opened while more than these are left. Other threads of Envoy accept connections meanwhile.
const RESERVE: u64 = 32;
const OPEN: &str = "/proc/self/fd";

/// Whether another connection to Redis may be opened. On a worker: the kernel says how many are open since Linux 6.2; before that, only
/// [`counted`] knows.
pub fn suffice() -> bool {
    fs::metadata(OPEN).is_ok_and(|open| open.len() == 0 || leaves(open.len()))
}

/// The same, on a thread that may take its time.
pub fn counted() -> bool {
    let known = fs::metadata(OPEN).map(|open| open.len()).unwrap_or_default();
    if known > 0 {
        return leaves(known);
    }
    fs::read_dir(OPEN).is_ok_and(|open| leaves(u64::try_from(open.count()).unwrap_or(u64::MAX)))
}

fn leaves(open: u64) -> bool {
    // Not readable: none is left to read it with.
    let Ok(limits) = fs::read_to_string("/proc/self/limits") else { return false };
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).and_then(|soft| soft.parse().ok());
    // "unlimited" is no number.
    soft.is_none_or(|soft: u64| soft.saturating_sub(open) > RESERVE)
}
