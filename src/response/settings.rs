// SPDX-License-Identifier: Apache-2.0
//! The operator's settings for responses: status, body, the style of the rate-limit fields.

use std::rc::Rc;

use super::template::Own;
use crate::time::Micros;

/// The settings of a policy's responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The status of a request over its limit; from 400 to 599.
    pub status: u16,
    /// The status of a request denied without asking; from 400 to 599.
    pub deny_status: u16,
    /// The status of a request that a ban denies; from 400 to 599.
    pub ban_status: u16,
    /// The body of a rejection.
    pub body: Body,
    /// The headers that carry the status of limits.
    pub style: Style,
    /// The treatment of a header of the same name that the upstream sends.
    pub upstream: Upstream,
    /// True if a header warns clients of limits that are nearly used up.
    pub warns: bool,
    /// `Retry-After` is later than the true time by a random time up to this.
    pub retry_jitter: Micros,
    /// The operator's own texts in rejections.
    pub own: Option<Rc<Own>>,
}

/// The body of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `application/problem+json` (RFC 9457).
    Problem,
    /// `application/json`: a small object.
    Json,
    /// `text/plain`: a sentence.
    Text,
    /// No body.
    Empty,
    /// The error object of an API, as its client libraries read it.
    Api(Api),
}

/// An API or a protocol whose client libraries read errors from bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
    /// Gemini's. All of Google's APIs use this form (AIP-193).
    Gemini,
    /// JSON-RPC 2.0, which MCP is made of.
    JsonRpc,
    /// GraphQL over HTTP.
    GraphQl,
}

/// The headers that carry the status of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `RateLimit-Policy` and `RateLimit`, as draft 11 has them.
    Draft11,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    XRateLimit,
    /// `X-RateLimit-Limit-Requests`, `-Tokens` and so on, as OpenAI has them.
    OpenAi,
    /// `Anthropic-RateLimit-Requests-Limit`, `-Tokens-Limit` and so on.
    Anthropic,
    /// Only `Retry-After`.
    None,
}

/// The treatment of a header of the same name that the upstream sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// weir's header replaces it.
    Replace,
    /// It stays, and weir's is not added.
    Keep,
    /// Both are sent, weir's after it.
    Append,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            status: 429,
            deny_status: 403,
            ban_status: 429,
            body: Body::Problem,
            style: Style::Draft11,
            upstream: Upstream::Replace,
            warns: false,
            retry_jitter: Micros::ZERO,
            own: None,
        }
    }
}
