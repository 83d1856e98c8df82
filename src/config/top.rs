// SPDX-License-Identifier: Apache-2.0
//! `top_denied`, `top_used`: whether each worker logs the subjects that it denies most, and those that use most.

use super::schema::{Count, Duration, View, count, duration, object};
use crate::time::Micros;

/// The number of subjects that a worker logs, and the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// Their number.
    pub count: u8,
    /// The time between two lists.
    pub interval: Micros,
}

object! {
    static TOP: TopFields = "top",
        "Of `top_denied` and `top_used`: how many subjects each worker logs, and how often. See [the most denied subjects](metrics.md#the-most-denied-subjects).";
    count: Count<u8> = count(1, 32).default("10", "How many. Each is one line of Envoy's log, at level `info`."),
    interval: Duration = duration(Micros::from_secs(1), Micros::from_secs(3_600))
        .default("\"1m\"", "How often, from `1s` to `1h`. The list begins anew each time. A worker that has counted nothing logs nothing."),
}

pub(super) fn read(view: &View<'_, TopFields>) -> Top {
    Top { count: view.get(&TOP.count), interval: view.get(&TOP.interval) }
}
