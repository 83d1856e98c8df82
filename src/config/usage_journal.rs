// SPDX-License-Identifier: Apache-2.0
//! `usage_journal`: for how long what subjects have used is added up, and kept.

use super::schema::{Count, Duration, Errors, View, count, duration, duration_text, object};
use crate::time::Micros;

const DAY: Micros = Micros::from_secs(86_400);

/// The intervals over which usage is added up, and the time for which they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageJournal {
    /// The length of an interval; a day is a whole number of them.
    pub interval: Micros,
    /// The time for which an interval is kept after its end.
    pub keep: Micros,
    /// The most subjects of an interval.
    pub max_subjects: u32,
}

object! {
    static USAGE_JOURNAL: UsageJournalFields = "usage_journal",
        "How what subjects have used is written to Redis, for the policies that have `usage_journal: true`. See \
         [the usage journal](costs.md#the-usage-journal).";
    interval: Duration = duration(Micros::from_secs(60), DAY)
        .default("\"1d\"", "Over which time usage is added up, from `1m` to `1d`. A day must be a whole number of intervals; the first of a \
            day begins at 0:00 UTC."),
    keep: Duration = duration(Micros::from_secs(3_600), Micros::from_secs(400 * 86_400))
        .default("\"62d\"", "How long an interval is kept after its end, from `1h` to `400d`."),
    max_subjects: Count<u32> = count(1, 1_000_000)
        .default("100000", "The most subjects of an interval, of all policies. What further subjects use is added up as one, for each policy."),
}

pub(super) fn read(view: &View<'_, UsageJournalFields>, errors: &mut Errors) -> UsageJournal {
    let interval = view.get(&USAGE_JOURNAL.interval);
    if !interval.0.is_multiple_of(1_000_000) || !DAY.0.is_multiple_of(interval.0) {
        let found = format!("{:?}", duration_text(interval));
        errors.add(
            &view.path_of(&USAGE_JOURNAL.interval),
            found,
            "whole seconds, of which a day is a multiple",
        );
    }
    UsageJournal {
        interval,
        keep: view.get(&USAGE_JOURNAL.keep),
        max_subjects: view.get(&USAGE_JOURNAL.max_subjects),
    }
}
