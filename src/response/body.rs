// SPDX-License-Identifier: Apache-2.0
//! The body of a rejection, in the form that the operator chose.

use core::fmt::Write as _;

use super::cause::Cause;
use super::settings::{Body, Settings};
use super::template::Kind;
use crate::time::Micros;

/// The URL of the draft's registered problem types.
const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// The capacity that a problem's body begins with, in bytes.
const USUAL_LENGTH: usize = 256;

/// The values that a body can mention.
pub(super) struct Detail<'a> {
    /// The policy's name; empty for the global deny list.
    pub policy: &'a str,
    pub violated: &'a [&'a str],
    pub after: Option<Micros>,
    /// True if a limit that is violated counts tokens.
    pub in_tokens: bool,
}

/// The body, with its `content-type` where there is one.
pub(super) fn body(
    settings: &Settings,
    status: u16,
    cause: Cause,
    detail: &Detail<'_>,
) -> (Option<&'static str>, String) {
    match &settings.body {
        Body::Problem => (Some("application/problem+json"), problem(status, cause, detail)),
        Body::Json => (Some(Kind::Json.content_type()), object(cause, detail)),
        Body::Text => (Some(Kind::Text.content_type()), sentence(cause, detail)),
        Body::Empty => (None, String::new()),
        Body::Api(api) => {
            let (content_type, body) = api.body(status, cause, detail);
            (Some(content_type), body)
        }
    }
}

fn problem(status: u16, cause: Cause, detail: &Detail<'_>) -> String {
    let (base, name) = match cause.problem_type() {
        None => ("", "about:blank"),
        Some(name) => (PROBLEM_TYPES, name),
    };
    let mut out = String::with_capacity(USUAL_LENGTH);
    let _ = write!(out, "{{\"type\":\"{base}{name}\",\"title\":\"{}\",\"status\":{status}", cause.title());
    // A ban lasts longer than the limits that it began with are exceeded: then there are none to name.
    if cause == Cause::Exceeded || cause == Cause::Banned && !detail.violated.is_empty() {
        let _ = write!(out, ",\"violated-policies\":[");
        for (index, name) in detail.violated.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(out, "{comma}\"{name}\"");
        }
        out.push(']');
    }
    out.push('}');
    out
}

fn object(cause: Cause, detail: &Detail<'_>) -> String {
    let mut out = format!("{{\"error\":\"{}\"", cause.message());
    if !detail.policy.is_empty() {
        let _ = write!(out, ",\"policy\":\"{}\"", detail.policy);
    }
    if let Some(after) = detail.after {
        let _ = write!(out, ",\"retry_after\":{}", after.as_secs_ceil());
    }
    out.push('}');
    out
}

fn sentence(cause: Cause, detail: &Detail<'_>) -> String {
    let retry =
        detail.after.map(|after| format!(" Retry after {} s.", after.as_secs_ceil())).unwrap_or_default();
    format!("{}.{retry}\n", cause.title())
}
