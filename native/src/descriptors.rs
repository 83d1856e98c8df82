// SPDX-License-Identifier: Apache-2.0
//! The number of file descriptors that this process may still open.
//!
//! Envoy 1.40 faults at address 0 if `tcp_proxy` opens a connection and no descriptor is left: its connection pool goes on without a
//! socket. So the module opens no connection to Redis while few are left. Open connections stay in use. Without one, `on_failure` decides.

use std::fs;

/// The module opens a connection while more than this many are left. Other threads of Envoy accept connections meanwhile.
const RESERVE: u64 = 32;
const OPEN_DESCRIPTORS: &str = "/proc/self/fd";

/// True if descriptors are left for another connection to Redis. For workers: since Linux 6.2 the kernel says how many are open. Before
/// that, only [`are_left_by_count`] knows.
pub fn are_left() -> bool {
    // Under Miri there are no files.
    cfg!(miri)
        || fs::metadata(OPEN_DESCRIPTORS).is_ok_and(|open| open.len() == 0 || leaves_reserve(open.len()))
}

/// The same, for a thread that may spend time on it.
pub fn are_left_by_count() -> bool {
    if cfg!(miri) {
        return true;
    }
    let known = fs::metadata(OPEN_DESCRIPTORS).map(|open| open.len()).unwrap_or_default();
    if known > 0 {
        return leaves_reserve(known);
    }
    fs::read_dir(OPEN_DESCRIPTORS)
        .is_ok_and(|open| leaves_reserve(u64::try_from(open.count()).unwrap_or(u64::MAX)))
}

fn leaves_reserve(open: u64) -> bool {
    // If this file cannot be read, no descriptor is left to read it with.
    let Ok(limits) = fs::read_to_string("/proc/self/limits") else { return false };
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).and_then(|soft| soft.parse().ok());
    // "unlimited" is no number.
    soft.is_none_or(|soft: u64| soft.saturating_sub(open) > RESERVE)
}
