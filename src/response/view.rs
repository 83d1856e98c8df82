//! One limit as clients see it: its name, its quota, its items in the rate-limit fields.

use crate::time::Micros;

/// The parts of a limit that clients see. They are the same for every request, so they are written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitView {
    name: String,
    quota: u64,
    window: Option<Micros>,
    retry_estimate: Option<Micros>,
    /// Its item in `RateLimit-Policy`.
    policy: String,
    /// The beginning of its item in `RateLimit`.
    state: String,
}

/// The largest integer of a structured field (RFC 9651 §3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

impl LimitView {
    /// A limit with this name that allows `quota` units at once or in a window. The units come back within `window`; without
    /// one they are requests in flight, which come back when those end.
    #[must_use]
    pub fn new(name: String, quota: u64, window: Option<Micros>) -> Self {
        // The name needs no escapes: the configuration allows none that would.
        let period = match window {
            Some(window) => format!("w={}", window.as_secs_ceil().clamp(1, LARGEST_INTEGER)),
            None => "qu=\"concurrent-requests\"".to_owned(),
        };
        let policy = format!("\"{name}\";q={};{period}", quota.min(LARGEST_INTEGER));
        let state = format!("\"{name}\";r=");
        Self { name, quota, window, retry_estimate: None, policy, state }
    }

    /// The same limit; its rejections tell clients to retry after `retry_estimate`.
    #[must_use]
    pub fn estimated(self, retry_estimate: Option<Micros>) -> Self {
        Self { retry_estimate, ..self }
    }

    /// The same limit by another name.
    #[must_use]
    pub fn renamed(&self, name: String) -> Self {
        Self::new(name, self.quota, self.window).estimated(self.retry_estimate)
    }

    /// The limit's name; `policy.limit` where another policy has a limit of the same name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many units the limit allows at once or in a window.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.quota
    }

    /// Whether the limit counts requests in flight.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.window.is_none()
    }

    /// The operator's estimate of how long requests in flight take.
    #[must_use]
    pub const fn retry_estimate(&self) -> Option<Micros> {
        self.retry_estimate
    }

    /// How many bytes its item takes at most in the longer of the two headers, separator included.
    #[must_use]
    pub fn largest_item(&self) -> usize {
        const NUMBERS: usize = "999999999999999;t=999999999999999".len();
        self.policy.len().max(self.state.len().saturating_add(NUMBERS)).saturating_add(SEPARATOR.len())
    }

    /// Appends its item of `RateLimit-Policy`: `"name";q=100;w=60`.
    pub fn append_policy(&self, out: &mut String) {
        separate(out);
        out.push_str(&self.policy);
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

/// Separates the items of a list.
const SEPARATOR: &str = ", ";

fn separate(list: &mut String) {
    if !list.is_empty() {
        list.push_str(SEPARATOR);
    }
}
