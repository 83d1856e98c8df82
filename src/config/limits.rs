// SPDX-License-Identifier: Apache-2.0
//! Limits: one object for each algorithm.

use super::schema::{
    Count, Draft, Duration, Errors, List, NAME, Nested, Rates, Tagged, Text, Typed, UTC_OFFSET, Variant,
    Variants, View, Word, Words, count, duration, list, nested, object, rate, tagged, text, utc_offset,
    variants, word, words,
};
use super::subject::{self, PART, PartFields};
use crate::limit::{
    Align, Concurrency, Distinct, FixedWindow, Invalid, LeakyBucket, Limit, MAX_LOG, MAX_MEMBERS, MAX_UNITS,
    MAX_WINDOW, MIN_WINDOW, Period, Refill, SlidingLog, SlidingWindow, TokenBucket, UtcOffset, time_for,
};
use crate::policy::QueueSettings;
use crate::policy::key::ValueHasher;
use crate::policy::subject::SubjectPart;
use crate::script::MAX_LIMITS;
use crate::time::Micros;

/// The part of a limit that clients see, and its permit queue.
pub(super) struct Quota {
    /// The number of units that the limit allows at once, or in a window.
    pub units: u64,
    /// The time in which the quota comes back; `None` for requests in flight, which time does not bring back.
    pub window: Option<Micros>,
    /// The operator's estimate of the duration of requests in flight.
    pub retry_estimate: Option<Micros>,
    /// The permit queue, if requests wait for a permit.
    pub queue: Option<QueueSettings>,
    /// The percentage used from which on weir warns, if it does.
    pub warn_at_percent: Option<u8>,
}

/// A limit or its invalid parameter, and what clients see of it.
type Made = (Result<Limit, Invalid>, Quota);

static ALGORITHMS: Variants<Made> = variants! {
    "algorithm":
    FIXED_WINDOW => fixed_window,
    SLIDING_LOG => sliding_log,
    SLIDING_WINDOW => sliding_window,
    TOKEN_BUCKET => token_bucket,
    LEAKY_BUCKET => leaky_bucket,
    CONCURRENCY => concurrency,
    DISTINCT => distinct,
};

/// The most parts of a subject, and of a value.
pub(super) const MAX_PARTS: usize = 8;

/// A list of the limits of one policy or tier.
pub(super) const fn list_of() -> Typed<List<Tagged>> {
    const LIMIT: &Typed<Tagged> = &tagged(&ALGORITHMS);
    list(LIMIT, 1, MAX_LIMITS)
}

/// Reads a limit. Parameters that do not go together are errors.
pub(super) fn read(view: &Variant<'_>, errors: &mut Errors) -> Option<(Limit, Quota)> {
    let wrong = |invalid: Invalid| {
        // The parameters of a limit are called like the fields, but that a rate is two parameters.
        let field = if invalid.parameter == "per" { "rate" } else { invalid.parameter };
        let found = view.parameter(field).map_or(invalid.value, ToString::to_string);
        errors.add(&view.path_of(field), found, invalid.allowed);
    };
    let (limit, quota) = view.read(&ALGORITHMS)?;
    Some((limit.map_err(wrong).ok()?, quota))
}

/// Units that come back in the time of `window`.
const fn quota(units: u64, window: Micros, warn_at_percent: Option<u8>) -> Quota {
    Quota { units, window: Some(window), retry_estimate: None, queue: None, warn_at_percent }
}

const fn name() -> Draft<Text> {
    text(&NAME).required("Its name: in keys, headers, metrics and logs.")
}

const fn warn_at() -> Draft<Option<Count<u8>>> {
    count(1, 100).optional(
        "From how many percent of the limit used on weir warns. See [warnings](clients.md#warnings).",
    )
}

const fn units() -> Typed<Count<u64>> {
    count(1, MAX_UNITS)
}

const fn period() -> Typed<Duration> {
    duration(MIN_WINDOW, MAX_WINDOW)
}

object! {
    static FIXED_WINDOW: FixedWindowFields = "fixed_window",
        "A number of units in each window. The cheapest; around the border of two windows, up to twice as many.";
    name: Text = name(),
    limit: Count<u64> = units().required("The most units in a window."),
    window: Option<Duration> = period()
        .optional("How long a window is. Required, but not with `day`, `week` and `month`, which are as long as the calendar says."),
    align: Word<Align> = word(&ALIGN).default("\"clock\"", "When windows begin."),
    utc_offset: Option<Text> = text(&UTC_OFFSET).optional("How far the time by which a `day`, `week` or `month` begins is ahead of \
        UTC, all year round; by default it is UTC. Daylight saving time is not followed."),
    anchor: Option<Count<u8>> = count(1, 31).optional("The day of the month with which a `month` begins; by default the first. A \
        shorter month begins with its last day."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

static ALIGN: Words<Align> = words! {
    "clock" => Align::Clock, "Windows begin at multiples of their length: every full minute.";
    "first" => Align::First, "A window begins with the first request after the last one ended.";
    "day" => Align::Calendar(Period::Day, UtcOffset::UTC), "Windows are days, from midnight.";
    "week" => Align::Calendar(Period::Week, UtcOffset::UTC), "Windows are weeks, from midnight before Monday.";
    "month" => Align::Calendar(Period::MONTH, UtcOffset::UTC), "Windows are months of the calendar, of 28 to 31 days, from the first or from `anchor`.";
};

fn fixed_window(view: &View<'_, FixedWindowFields>) -> Made {
    let (limit, window) = (view.get(&FIXED_WINDOW.limit), view.get(&FIXED_WINDOW.window));
    let (offset, anchor) = (view.get(&FIXED_WINDOW.utc_offset), view.get(&FIXED_WINDOW.anchor));
    let invalid = |parameter, value: &str, allowed: &str| {
        Err(Invalid { parameter, value: value.to_owned(), allowed: allowed.to_owned() })
    };
    let align = match (view.get(&FIXED_WINDOW.align), anchor) {
        (Align::Calendar(Period::Month { .. }, of), Some(anchor)) => {
            Align::Calendar(Period::Month { anchor }, of)
        }
        (align, _) => align,
    };
    let (window, limit_or_invalid) = match (align, window) {
        (Align::Clock | Align::First | Align::Calendar(Period::Day | Period::Week, _), window)
            if anchor.is_some() =>
        {
            (window.unwrap_or(Micros::ZERO), invalid("anchor", "", "none, because `align` is not `month`"))
        }
        (Align::Calendar(period, _), None) => {
            let offset = offset.and_then(utc_offset).unwrap_or(UtcOffset::UTC);
            let window = period.longest();
            (window, FixedWindow::new(limit, window, Align::Calendar(period, offset)))
        }
        (Align::Calendar(..), Some(window)) => (
            window,
            invalid("window", "", "none, because a `day`, `week` or `month` is as long as the calendar says"),
        ),
        (_, None) => (
            Micros::ZERO,
            invalid("window", "nothing", "a duration, because `align` is neither `day`, `week` nor `month`"),
        ),
        (_, Some(window)) if offset.is_some() => {
            (window, invalid("utc_offset", "", "none, because `align` is neither `day`, `week` nor `month`"))
        }
        (align, Some(window)) => (window, FixedWindow::new(limit, window, align)),
    };
    (limit_or_invalid.map(Limit::from), quota(limit, window, view.get(&FIXED_WINDOW.warn_at_percent)))
}

object! {
    static SLIDING_LOG: SlidingLogFields = "sliding_log",
        "Exact: never more in any window, wherever it begins. Remembers every request, so for small limits.";
    name: Text = name(),
    limit: Count<u64> = count(1, MAX_LOG).required("The most units in any window."),
    window: Duration = period().required("How long a window is."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

fn sliding_log(view: &View<'_, SlidingLogFields>) -> Made {
    let (limit, window) = (view.get(&SLIDING_LOG.limit), view.get(&SLIDING_LOG.window));
    (
        SlidingLog::new(limit, window).map(Limit::from),
        quota(limit, window, view.get(&SLIDING_LOG.warn_at_percent)),
    )
}

object! {
    static SLIDING_WINDOW: SlidingWindowFields = "sliding_window",
        "Nearly exact, in little memory: counts in sub-windows, the oldest in proportion to its overlap.";
    name: Text = name(),
    limit: Count<u64> = units().required("The most units in any window."),
    window: Duration = period().required("How long a window is."),
    precision: Option<Duration> = period().optional("How long a sub-window is: the window divided by a whole number. By default \
        the window itself, which is the well-known two-window counter."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

fn sliding_window(view: &View<'_, SlidingWindowFields>) -> Made {
    let (limit, window) = (view.get(&SLIDING_WINDOW.limit), view.get(&SLIDING_WINDOW.window));
    let precision = view.get(&SLIDING_WINDOW.precision).unwrap_or(window);
    (
        SlidingWindow::new(limit, window, precision).map(Limit::from),
        quota(limit, window, view.get(&SLIDING_WINDOW.warn_at_percent)),
    )
}

object! {
    static TOKEN_BUCKET: TokenBucketFields = "token_bucket",
        "A bucket that starts full, is emptied by requests and refilled by time. Bursts up to its capacity.";
    name: Text = name(),
    capacity: Count<u64> = units().required("The most tokens that the bucket holds: the burst."),
    refill: Count<u64> = units().required("How many tokens come back in an interval."),
    interval: Duration = period().required("How long an interval is."),
    mode: Word<Refill> = word(&REFILL).default("\"continuous\"", "How tokens come back."),
    overdraft: Count<u64> = count(0, MAX_UNITS).default("0", "How far below empty one request may go. The debt is paid before \
        the next request passes."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

static REFILL: Words<Refill> = words! {
    "continuous" => Refill::Continuous, "Tokens come back one by one, evenly.";
    "stepwise" => Refill::Stepwise, "All of an interval's tokens come back at its end.";
};

fn token_bucket(view: &View<'_, TokenBucketFields>) -> Made {
    let (capacity, refill) = (view.get(&TOKEN_BUCKET.capacity), view.get(&TOKEN_BUCKET.refill));
    let (interval, overdraft) = (view.get(&TOKEN_BUCKET.interval), view.get(&TOKEN_BUCKET.overdraft));
    let limit = TokenBucket::new(capacity, refill, interval, view.get(&TOKEN_BUCKET.mode), overdraft);
    let window = limit.as_ref().map_or(interval, TokenBucket::full_within);
    (limit.map(Limit::from), quota(capacity, window, view.get(&TOKEN_BUCKET.warn_at_percent)))
}

object! {
    static LEAKY_BUCKET: LeakyBucketFields = "leaky_bucket",
        "A steady rate with a burst (GCRA, like nginx `limit_req`). Can hold requests back until their turn.";
    name: Text = name(),
    rate: Rates = rate().required("The steady rate."),
    burst: Count<u64> = units().default("1", "How many units may come at once."),
    max_delay: Duration = duration(Micros::ZERO, Micros::from_secs(60))
        .default("\"0s\"", "How long a request beyond the burst may be held until its turn; `0s` rejects it."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

fn leaky_bucket(view: &View<'_, LeakyBucketFields>) -> Made {
    let (rate, burst) = (view.get(&LEAKY_BUCKET.rate), view.get(&LEAKY_BUCKET.burst));
    let limit = LeakyBucket::new(rate.count, rate.per, burst, view.get(&LEAKY_BUCKET.max_delay));
    let limit = limit.map(Limit::from);
    // With those that are held.
    let units = limit.as_ref().map_or(burst, Limit::quota);
    (limit, quota(units, time_for(units, rate.count, rate.per), view.get(&LEAKY_BUCKET.warn_at_percent)))
}

object! {
    static CONCURRENCY: ConcurrencyFields = "concurrency", "A number of requests in flight at once.";
    name: Text = name(),
    limit: Count<u64> = units().required("The most requests in flight."),
    ttl: Duration = period().default("\"60s\"", "After how long a request counts as finished if its proxy has crashed. While a \
        request runs, a worker renews its permit three times in each `ttl`, so a request may take longer."),
    retry_after: Option<Duration> = duration(Micros::from_secs(1), Micros::from_secs(3600)).optional("The `Retry-After` of a \
        rejection when all permits are held: your estimate of when one is free. By default the rejection has no `Retry-After`, \
        because a permit is free when a request ends, and weir does not know when."),
    queue: Option<Nested<QueueFields>> = nested(&QUEUE)
        .optional("Whether requests wait for a permit when all are held. By default they are rejected."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

object! {
    static QUEUE: QueueFields = "queue",
        "How requests wait until a permit is free. See [`concurrency`](limits.md#concurrency). Not for policies with a `ban`.";
    max_wait: Duration = duration(MIN_WINDOW, Micros::from_secs(60))
        .required("For how long a request may wait, counted from its arrival. Then it is rejected."),
    max_waiting: Count<usize> = count(1, 4_096)
        .default("100", "How many requests of one subject may wait in one worker. One more is rejected."),
}

fn concurrency(view: &View<'_, ConcurrencyFields>) -> Made {
    let limit = view.get(&CONCURRENCY.limit);
    let queue = view.get(&CONCURRENCY.queue).map(|queue| QueueSettings {
        max_wait: queue.get(&QUEUE.max_wait),
        max_waiting: queue.get(&QUEUE.max_waiting),
    });
    let (retry_estimate, warn_at_percent) =
        (view.get(&CONCURRENCY.retry_after), view.get(&CONCURRENCY.warn_at_percent));
    let quota = Quota { units: limit, window: None, retry_estimate, queue, warn_at_percent };
    (Concurrency::new(limit, view.get(&CONCURRENCY.ttl)).map(Limit::from), quota)
}

object! {
    static DISTINCT: DistinctFields = "distinct",
        "A number of different values: user names of one address, addresses of one account. A value counts from its first use; then its \
         requests pass, and cost nothing more.";
    name: Text = name(),
    limit: Count<u64> = count(1, MAX_MEMBERS).required("The most different values in use."),
    window: Duration = period().required("How long a value counts, from its first use."),
    of: List<Nested<PartFields>> = list(&nested(&PART), 1, MAX_PARTS)
        .required("The value: parts of the request, as in `subject`. Redis has only its hash. The same in all `distinct` limits of a policy."),
    warn_at_percent: Option<Count<u8>> = warn_at(),
}

fn distinct(view: &View<'_, DistinctFields>) -> Made {
    let (limit, window) = (view.get(&DISTINCT.limit), view.get(&DISTINCT.window));
    (Distinct::new(limit, window).map(Limit::from), quota(limit, window, view.get(&DISTINCT.warn_at_percent)))
}

/// Reads the value that `distinct` limits among these count, and its path. A check has one value, so it is the same for all.
pub(super) fn members(
    limits: &[Variant<'_>],
    hasher: &ValueHasher,
    errors: &mut Errors,
) -> (Vec<SubjectPart>, String) {
    let of = DISTINCT.of.shape.name;
    let mut distinct = limits.iter().filter_map(|limit| Some((limit, limit.parameter(of)?)));
    let Some((limit, value)) = distinct.next() else { return (Vec::new(), String::new()) };
    let path = limit.path_of(of);
    for (other, _) in distinct.filter(|(_, other)| *other != value) {
        let allowed = format!(
            "that of {path}: a request has one value for all distinct limits of its policy. Write a second policy"
        );
        errors.add(&other.path_of(of), "another value", allowed);
    }
    let parts = limit.view(&DISTINCT).get(&DISTINCT.of);
    (parts.iter().map(|part| subject::read(&part, hasher, errors)).collect(), path)
}
