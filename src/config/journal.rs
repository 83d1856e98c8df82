// SPDX-License-Identifier: Apache-2.0
//! `journal`: which denials are written to a stream in Redis. `top_denied`, `top_used`: whether each worker logs the subjects that it denies
//! most, and those that use most.

use super::schema::{Count, Duration, Flag, View, count, duration, flag, object};
use crate::time::Micros;

/// The denials that are written to the journal, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The most entries that the stream keeps.
    pub max_entries: u32,
    /// The percentage of denials that are written, drawn at random.
    pub sample_percent: u8,
    /// The most entries that one worker writes in a second.
    pub max_per_second: u32,
    /// True if denials in shadow mode are written.
    pub shadow: bool,
}

object! {
    static JOURNAL: JournalFields = "journal",
        "Which denials weir writes to a stream in Redis, and how long that is. See [the journal](clients.md#the-journal).";
    max_entries: Count<u32> = count(1, 1_000_000)
        .default("10000", "The most entries that the stream keeps. Redis removes the oldest in the command that adds one, so the \
            stream is never longer. An entry takes some hundred bytes of Redis's memory."),
    sample_percent: Count<u8> = count(1, 100)
        .default("100", "How many of a hundred denials are written. Each denial is drawn at random, whatever its subject."),
    max_per_second: Count<u32> = count(1, 10_000)
        .default("100", "The most entries that one worker writes in a second. Further denials are only counted."),
    shadow: Flag = flag().default("true", "Whether denials in shadow mode are written, too."),
}

pub(super) fn read(view: &View<'_, JournalFields>) -> Journal {
    Journal {
        max_entries: view.get(&JOURNAL.max_entries),
        sample_percent: view.get(&JOURNAL.sample_percent),
        max_per_second: view.get(&JOURNAL.max_per_second),
        shadow: view.get(&JOURNAL.shadow),
    }
}

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

pub(super) fn read_top(view: &View<'_, TopFields>) -> Top {
    Top { count: view.get(&TOP.count), interval: view.get(&TOP.interval) }
}
