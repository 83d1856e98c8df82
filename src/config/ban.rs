// SPDX-License-Identifier: Apache-2.0
//! `ban`: a subject that is denied too often is denied for a time.

use super::schema::{Count, Duration, Errors, View, count, duration, object};
use crate::limit::{Ban, MAX_DENIALS, MAX_FACTOR, MAX_WINDOW, MIN_WINDOW};
use crate::time::Micros;

object! {
    static BAN: BanFields = "ban",
        "When a subject is denied for a time, because the limits have denied too many of its requests. Not for policies with a \
         `lease`.";
    after: Count<u32> = count(1, MAX_DENIALS as u64)
        .required("The denied request that begins the ban: the fifth within `window`, for example."),
    window: Duration = duration(MIN_WINDOW, MAX_WINDOW)
        .required("Within which time, from the first denial that counts."),
    duration: Duration = duration(MIN_WINDOW, MAX_WINDOW).required("How long the first ban lasts."),
    factor: Count<u32> = count(1, MAX_FACTOR as u64)
        .default("1", "How many times as long each further ban lasts, if it begins within `max` of the end of the one before."),
    max: Option<Duration> = duration(MIN_WINDOW, MAX_WINDOW)
        .optional("The longest that a ban lasts; not shorter than `duration`. By default a day, or `duration` if that is longer or \
            `factor` is 1."),
}

/// The default of `max` if `factor` is above 1.
const DEFAULT_MAX: Micros = Micros::from_secs(24 * 60 * 60);

pub(super) fn read(view: &View<'_, BanFields>, errors: &mut Errors) -> Option<Ban> {
    let duration = view.get(&BAN.duration);
    let factor = view.get(&BAN.factor);
    let longest = if factor > 1 { DEFAULT_MAX.max(duration) } else { duration };
    let max = view.get(&BAN.max).unwrap_or(longest);
    if max < duration {
        errors.add(&view.path_of(&BAN.max), "less than `duration`", "`duration` to 366d");
    }
    // The fields exclude all other invalid bans.
    Ban::new(view.get(&BAN.after), view.get(&BAN.window), duration, factor, max).ok()
}
