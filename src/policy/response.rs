//! How a policy's decisions are told to clients: the operator's choices. `decision.rs` does the telling.

use crate::time::Micros;

/// How decisions are told to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status of a request over its limit; from 400 to 599.
    pub status: u16,
    /// The status of a request denied without asking; from 400 to 599.
    pub deny_status: u16,
    /// What the body of a rejection is.
    pub body: Body,
    /// Which headers tell a client where it stands.
    pub style: Style,
    /// What happens to headers of the same names that the upstream sends.
    pub upstream: Upstream,
    /// `Retry-After` is later than the truth by a random time up to this.
    pub retry_jitter: Micros,
}

/// What the body of a rejection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `application/problem+json` (RFC 9457).
    Problem,
    /// `application/json`: this, or a small object.
    Json(Option<String>),
    /// `text/plain`: this, or a sentence.
    Text(Option<String>),
    /// None.
    Empty,
}

/// Which headers tell a client where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `RateLimit-Policy` and `RateLimit`, as draft 11 has them.
    Draft11,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    XRateLimit,
    /// None but `Retry-After`.
    None,
}

/// What happens to headers of the same names that the upstream sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// Ours stand in their place.
    Replace,
    /// They stay, and ours are not added.
    Keep,
    /// Both are there, ours after them.
    Append,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            status: 429,
            deny_status: 403,
            body: Body::Problem,
            style: Style::Draft11,
            upstream: Upstream::Replace,
            retry_jitter: Micros::ZERO,
        }
    }
}

/// What clients see of a limit: the same for every request, so worked out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    name: String,
    quota: u64,
    window: Option<Micros>,
    retry_estimate: Option<Micros>,
    /// Its item in `RateLimit-Policy`, and how its item in `RateLimit` begins.
    policy: String,
    state: String,
}

/// The largest integer of a structured field (RFC 9651 §3.3.1).
pub(crate) const LARGEST_INTEGER: u64 = 999_999_999_999_999;

impl Face {
    /// A limit of this name that allows `quota` units at once, or in a window; they come back in the time of `window`,
    /// or are requests in flight, which time does not bring back.
    #[must_use]
    pub fn new(name: String, quota: u64, window: Option<Micros>) -> Self {
        // The name needs no escapes: the configuration allows none that would.
        let told = match window {
            Some(window) => format!("w={}", window.as_secs_ceil().clamp(1, LARGEST_INTEGER)),
            None => "qu=\"concurrent-requests\"".to_owned(),
        };
        let policy = format!("\"{name}\";q={};{told}", quota.min(LARGEST_INTEGER));
        let state = format!("\"{name}\";r=");
        Self { name, quota, window, retry_estimate: None, policy, state }
    }

    /// The same limit, whose rejections say to come back after `retry_estimate`.
    #[must_use]
    pub fn estimated(self, retry_estimate: Option<Micros>) -> Self {
        Self { retry_estimate, ..self }
    }

    /// The same limit by another name.
    #[must_use]
    pub fn renamed(&self, name: String) -> Self {
        Self::new(name, self.quota, self.window).estimated(self.retry_estimate)
    }

    /// Its name: the limit's, or `policy.limit` where another policy has a limit of the same name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many units it allows at once, or in a window.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.quota
    }

    /// Whether it counts requests in flight, which time does not bring back.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.window.is_none()
    }

    /// How long requests in flight take, as the operator estimates.
    #[must_use]
    pub const fn retry_estimate(&self) -> Option<Micros> {
        self.retry_estimate
    }

    /// How many bytes its item takes in the longer of the two headers, with what separates it from the next.
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

/// What is between the items of a list.
const SEPARATOR: &str = ", ";

fn separate(list: &mut String) {
    if !list.is_empty() {
        list.push_str(SEPARATOR);
    }
}
