// SPDX-License-Identifier: Apache-2.0
//! One limit as clients see it: its name, its quota, its items in the rate-limit fields.

use crate::limit::{Ask, Limit};
use crate::time::Micros;

/// The parts of a limit that clients see. They are the same for every request, so they are written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitView {
    name: String,
    /// The place in `name` at which the name within its policy begins.
    own_name: usize,
    quota: u64,
    window: Option<Micros>,
    in_bytes: bool,
    /// Its units.
    pub counts: Counts,
    retry_estimate: Option<Micros>,
    warn_at: Option<WarnAt>,
    /// The limit, if its quota grows otherwise than its numbers.
    limit: Option<Limit>,
    /// Its item in `RateLimit-Policy`.
    policy: String,
    /// The beginning of its item in `RateLimit`.
    state: String,
}

/// The units of a limit, for client libraries of language models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// Requests.
    #[default]
    Requests,
    /// Tokens, or what else requests cost.
    Tokens,
    /// Money, bytes or time.
    Others,
    /// Different values of something.
    Values,
}

/// The usage of a limit at which weir warns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarnAt {
    /// In percent of what a request of its kind may use.
    pub percent: u8,
    /// The limit's units in Redis: with `regions: share`, the share of this region.
    pub quota: u64,
}

impl WarnAt {
    /// Returns the used percentage if this many of these units are left, rounded down, if that is enough for a warning.
    #[must_use]
    pub fn used(self, quota: u64, remaining: u64) -> Option<u64> {
        let used = quota.saturating_sub(remaining).saturating_mul(100).checked_div(quota)?;
        (used >= u64::from(self.percent)).then_some(used)
    }
}

/// The largest integer of a structured field (RFC 9651 §3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

impl LimitView {
    /// A limit with this name that allows `quota` units at once or in a window. The units come back within `window`; without
    /// one they are requests in flight, which come back when those end.
    #[must_use]
    pub fn new(name: String, quota: u64, window: Option<Micros>) -> Self {
        let policy = policy(&name, quota, window, false);
        // The name needs no escapes: the configuration allows none that would.
        let state = format!("\"{name}\";r=");
        let (in_bytes, counts, retry_estimate, warn_at, limit) = (false, Counts::Requests, None, None, None);
        Self {
            name,
            own_name: 0,
            quota,
            window,
            in_bytes,
            counts,
            retry_estimate,
            warn_at,
            limit,
            policy,
            state,
        }
    }

    /// The same limit; its rejections tell clients to retry after `retry_estimate`.
    #[must_use]
    pub fn estimated(self, retry_estimate: Option<Micros>) -> Self {
        Self { retry_estimate, ..self }
    }

    /// The same limit; weir warns when it is so full.
    #[must_use]
    pub fn warning_at(self, warn_at: Option<WarnAt>) -> Self {
        Self { warn_at, ..self }
    }

    /// The same view of this limit. What a `max_delay` holds is rounded: ten times the limit holds more than ten times as much.
    #[must_use]
    pub fn of(self, limit: &Limit) -> Self {
        let holds = matches!(limit, Limit::LeakyBucket(bucket) if bucket.max_delay() > Micros::ZERO);
        Self { limit: holds.then(|| limit.clone()), ..self }
    }

    /// The limit, this many times as large, if it does not grow as its quota does.
    #[inline]
    #[must_use]
    pub fn scaled(&self, scale: u64) -> Option<Limit> {
        if scale <= 1 { None } else { self.larger(scale) }
    }

    #[cold]
    fn larger(&self, scale: u64) -> Option<Limit> {
        self.limit.as_ref().and_then(|limit| limit.scaled(scale).ok())
    }

    /// The same limit with bytes of contents as its units; clients see that. Limits of requests in flight keep their unit.
    #[must_use]
    pub fn in_bytes(&self) -> Self {
        let policy = policy(&self.name, self.quota, self.window, true);
        Self { in_bytes: true, policy, ..self.clone() }
    }

    /// The same limit by the name `policy.limit`.
    #[must_use]
    pub fn qualified(&self, policy: &str) -> Self {
        let name = format!("{policy}.{}", self.own_name());
        let own_name = name.len().saturating_sub(self.own_name().len());
        let view = Self::new(name, self.quota, self.window).estimated(self.retry_estimate);
        let view = if self.in_bytes { view.in_bytes() } else { view };
        Self { own_name, counts: self.counts, warn_at: self.warn_at, limit: self.limit.clone(), ..view }
    }

    /// The limit's name within its policy.
    #[must_use]
    pub fn own_name(&self) -> &str {
        self.name.get(self.own_name..).unwrap_or_default()
    }

    /// The limit's name; `policy.limit` where another policy has a limit of the same name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The units that the limit allows at once or in a window, multiplied by `scale`, less the percentage that is kept for other requests.
    #[must_use]
    pub fn quota(&self, scale: u64, kept_percent: u8) -> u64 {
        let scaled = self.scaled(scale).map(|limit| limit.quota());
        Ask { kept_percent, ..Ask::new(0, 0) }.open(scaled.unwrap_or(self.quota.saturating_mul(scale)))
    }

    /// The usage at which weir warns of it, if weir does.
    #[must_use]
    pub const fn warn_at(&self) -> Option<WarnAt> {
        self.warn_at
    }

    /// Within which time the units come back; `None` if they are requests in flight.
    #[must_use]
    pub const fn window(&self) -> Option<Micros> {
        self.window
    }

    /// True if the limit counts requests in flight.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.window.is_none()
    }

    /// The operator's estimate of how long requests in flight take.
    #[must_use]
    pub const fn retry_estimate(&self) -> Option<Micros> {
        self.retry_estimate
    }

    /// The maximum length of its item in the longer of the two headers, in bytes, separator included.
    #[must_use]
    pub fn largest_item(&self) -> usize {
        const NUMBERS: usize = "999999999999999;t=999999999999999".len();
        self.policy.len().max(self.state.len().saturating_add(NUMBERS)).saturating_add(SEPARATOR.len())
    }

    /// Appends its item of `RateLimit-Policy`, `"name";q=100;w=60`, of a request that has this quota within `window`.
    pub fn append_policy(&self, quota: u64, window: Option<Micros>, out: &mut String) {
        separate(out);
        if (quota, window) == (self.quota, self.window) {
            return out.push_str(&self.policy);
        }
        out.push_str(&policy(&self.name, quota, window, self.in_bytes));
    }

    /// Appends its item of a warning: `"name";used=85`.
    pub fn append_warning(&self, used_percent: u64, out: &mut String) {
        separate(out);
        out.extend(["\"", &self.name, "\";used=", itoa::Buffer::new().format(used_percent)]);
    }

    /// Appends its item of `RateLimit`: `"name";r=50;t=30`.
    pub fn append_state(&self, remaining: u64, time: Option<Micros>, out: &mut String) {
        separate(out);
        out.push_str(&self.state);
        let mut digits = itoa::Buffer::new();
        out.push_str(digits.format(remaining.min(LARGEST_INTEGER)));
        if let Some(time) = time {
            out.push_str(";t=");
            out.push_str(digits.format(time.as_secs_ceil().min(LARGEST_INTEGER)));
        }
    }
}

/// The item of a limit in `RateLimit-Policy`. The draft's quota units are requests, unless it says another.
fn policy(name: &str, quota: u64, window: Option<Micros>, in_bytes: bool) -> String {
    let quota = quota.min(LARGEST_INTEGER);
    let Some(window) = window else {
        return format!("\"{name}\";q={quota};qu=\"concurrent-requests\"");
    };
    let unit = if in_bytes { ";qu=\"content-bytes\"" } else { "" };
    format!("\"{name}\";q={quota}{unit};w={}", window.as_secs_ceil().clamp(1, LARGEST_INTEGER))
}

/// Separates the items of a list.
const SEPARATOR: &str = ", ";

fn separate(list: &mut String) {
    if !list.is_empty() {
        list.push_str(SEPARATOR);
    }
}
