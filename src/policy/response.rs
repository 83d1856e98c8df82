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
    /// `RateLimit-Policy` and `RateLimit`.
    Draft,
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
            style: Style::Draft,
            upstream: Upstream::Replace,
            retry_jitter: Micros::ZERO,
        }
    }
}

/// What clients see of a limit: the same for every request, so worked out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    /// Its name: the limit's, or `policy.limit` where another policy has a limit of the same name.
    pub name: String,
    /// How many units it allows at once, or in a window.
    pub quota: u64,
    /// In what time that many come back; `None` for requests in flight, which time does not bring back.
    pub window: Option<Micros>,
}
