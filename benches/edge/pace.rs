// SPDX-License-Identifier: Apache-2.0
//! The number of measurements of each case, and their duration.

use std::time::Duration;

use crate::edges::TWO;
use crate::service::RATELIMIT;

/// The number of rounds for a judgement of the targets.
pub const ROUNDS: u32 = 60;

/// No round begins later than this after the start, so that all of it takes at most twelve minutes.
pub const LONGEST: Duration = Duration::from_secs(11 * 60);

/// The ways whose cost depends on what they have learned in the last seconds: the leases that they hold, the denials that they
/// remember. A short run would measure how they learn it.
const LEARNING: [&str; 2] = ["leased", "denied"];

/// The ways that the targets compare at one connection, besides the rate-limit services of the reader.
const COMPARED_ALONE: [&str; 5] =
    ["envoy plain", "weir exact", "weir native exact", "nginx plain", "nginx + lua"];

/// No target is about these.
const UNCOMPARED: [&str; 4] =
    ["envoy local_ratelimit", "weir exact, any", "weir usage, events", "weir native usage, events"];

/// The rounds in which a case is measured, and for how long.
#[derive(Clone, Copy)]
pub struct Pace {
    /// In the first round, and in every so many rounds after it.
    pub every: u32,
    pub warm_up: Duration,
    pub measured: Duration,
}

/// The pace of a case, where `short` is how long most runs are measured.
pub fn of(name: &str, connections: u32, short: Duration) -> Pace {
    // The connections are opened in the warm-up.
    let warm_up = Duration::from_millis(40) + Duration::from_micros(500) * connections;
    if LEARNING.iter().any(|way| name.contains(way)) {
        let every = if connections == 32 { 6 } else { 30 };
        return Pace { every, warm_up: warm_up.max(Duration::from_millis(250)), measured: short * 10 };
    }
    // A megabyte takes as long whatever the connections are.
    if name.contains("events") && connections != 32 {
        return Pace { every: u32::MAX, warm_up, measured: short };
    }
    let is_compared = match connections {
        1 => COMPARED_ALONE.contains(&name) || name.starts_with(RATELIMIT),
        32 => !UNCOMPARED.contains(&name) && !name.contains(TWO),
        _ => false,
    };
    Pace { every: if is_compared { 1 } else { 6 }, warm_up, measured: short }
}
