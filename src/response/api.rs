// SPDX-License-Identifier: Apache-2.0
//! Rejections that the client libraries of an API understand: the body that they make an error of, and the headers by which they
//! retry.

use core::fmt::Write as _;

use super::body::Detail;
use super::cause::Cause;
use super::header::Header;
use super::settings::Api;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// An error of JSON-RPC up to the id of its request.
pub(super) const UP_TO_ID: &str = "{\"jsonrpc\":\"2.0\",\"id\":";

/// An error of JSON-RPC whose request is not known, with its id.
pub(super) const NAMELESS: &str = "{\"jsonrpc\":\"2.0\",\"id\":null";

/// The client libraries of OpenAI and Anthropic wait for as long as they are told, up to this. When they are told to wait for longer,
/// some versions retry within seconds.
const LONGEST_WAIT: Micros = Micros::from_secs(60);

impl Api {
    /// Adds the headers by which client libraries retry, beside `retry-after`.
    pub(super) fn add_retry(self, cause: Cause, retry_after: RetryAfter, headers: &mut Vec<Header>) {
        if !matches!(self, Self::OpenAi | Self::Anthropic) {
            return;
        }
        if let RetryAfter::After(after) = retry_after {
            headers.push(Header::new("retry-after-ms", after.as_millis_ceil().to_string()));
        }
        let is_in_vain = match retry_after {
            RetryAfter::After(after) => after > LONGEST_WAIT,
            RetryAfter::Never => true,
            RetryAfter::Now | RetryAfter::Unknown => cause == Cause::Denied,
        };
        if is_in_vain {
            headers.push(Header::new("x-should-retry", String::from("false")));
        }
    }

    /// The body and its `content-type`.
    pub(super) fn body(self, status: u16, cause: Cause, detail: &Detail<'_>) -> (&'static str, String) {
        let message = message(cause, detail);
        let mut out = String::new();
        let content_type = match self {
            Self::OpenAi => {
                let (kind, code) = openai(cause, detail.in_tokens);
                let _ = write!(
                    out,
                    "{{\"error\":{{\"message\":\"{message}\",\"type\":\"{kind}\",\"param\":null,\"code\":\"{code}\"}}}}"
                );
                JSON
            }
            Self::Anthropic => {
                let kind = anthropic(cause);
                let _ = write!(
                    out,
                    "{{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}"
                );
                JSON
            }
            Self::Gemini => {
                let name = status_name(cause);
                let _ = write!(
                    out,
                    "{{\"error\":{{\"code\":{status},\"message\":\"{message}\",\"status\":\"{name}\",\"details\":["
                );
                details(detail, &mut out);
                out.push_str("]}}");
                JSON
            }
            Self::JsonRpc => {
                let code = json_rpc(cause);
                let _ = write!(out, "{NAMELESS},\"error\":{{\"code\":{code},\"message\":\"{message}\"");
                if let Some(after) = detail.after {
                    let _ = write!(out, ",\"data\":{{\"retryAfterMs\":{}}}", after.as_millis_ceil());
                }
                out.push_str("}}");
                JSON
            }
            Self::GraphQl => {
                let code = graphql(cause);
                let _ = write!(
                    out,
                    "{{\"errors\":[{{\"message\":\"{message}\",\"extensions\":{{\"code\":\"{code}\""
                );
                if let Some(after) = detail.after {
                    let _ = write!(out, ",\"retryAfterMs\":{}", after.as_millis_ceil());
                }
                out.push_str("}}]}");
                "application/graphql-response+json"
            }
        };
        (content_type, out)
    }
}

const JSON: &str = "application/json";

/// The sentences that people read.
fn message(cause: Cause, detail: &Detail<'_>) -> String {
    let mut out = String::from(match cause {
        Cause::Exceeded => "Rate limit exceeded",
        Cause::Banned => "Blocked after too many requests over the limit",
        Cause::Denied => "Request denied",
        Cause::Unavailable => "Rate limit temporarily unavailable",
        Cause::Late => "Request body did not arrive in time",
        Cause::Answered => "ok",
    });
    for (index, name) in detail.violated.iter().enumerate() {
        let _ = write!(out, "{}{name}", if index == 0 { ": " } else { ", " });
    }
    out.push('.');
    if let Some(after) = detail.after {
        let _ = write!(out, " Retry after {} s.", after.as_secs_ceil());
    }
    out
}

/// The type and the code of an error of OpenAI. The type of a limit names its unit.
const fn openai(cause: Cause, in_tokens: bool) -> (&'static str, &'static str) {
    match cause {
        Cause::Exceeded if in_tokens => ("tokens", "rate_limit_exceeded"),
        Cause::Exceeded | Cause::Banned | Cause::Answered => ("requests", "rate_limit_exceeded"),
        Cause::Denied => ("invalid_request_error", "request_denied"),
        Cause::Unavailable => ("server_error", "service_unavailable"),
        Cause::Late => ("invalid_request_error", "request_timeout"),
    }
}

const fn anthropic(cause: Cause) -> &'static str {
    match cause {
        Cause::Exceeded | Cause::Banned | Cause::Answered => "rate_limit_error",
        Cause::Denied => "permission_error",
        Cause::Unavailable => "api_error",
        Cause::Late => "timeout_error",
    }
}

/// The name of the gRPC status, which errors of Google's APIs have.
const fn status_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Exceeded | Cause::Banned | Cause::Answered => "RESOURCE_EXHAUSTED",
        Cause::Denied => "PERMISSION_DENIED",
        Cause::Unavailable => "UNAVAILABLE",
        Cause::Late => "DEADLINE_EXCEEDED",
    }
}

/// JSON-RPC leaves -32000 to -32099 to servers. MCP uses some of these: -32000 to -32002, and -32042.
const fn json_rpc(cause: Cause) -> i32 {
    match cause {
        Cause::Exceeded | Cause::Banned | Cause::Answered => -32029,
        Cause::Denied => -32043,
        Cause::Unavailable => -32053,
        Cause::Late => -32048,
    }
}

const fn graphql(cause: Cause) -> &'static str {
    match cause {
        Cause::Exceeded | Cause::Banned | Cause::Answered => "RATE_LIMITED",
        Cause::Denied => "FORBIDDEN",
        Cause::Unavailable => "SERVICE_UNAVAILABLE",
        Cause::Late => "REQUEST_TIMEOUT",
    }
}

/// `RetryInfo` and `QuotaFailure` of google.rpc.
fn details(detail: &Detail<'_>, out: &mut String) {
    const TYPE: &str = "{\"@type\":\"type.googleapis.com/google.rpc.";
    if let Some(after) = detail.after {
        let millis = after.as_millis_ceil();
        let (seconds, rest) = (millis.checked_div(1_000), millis.checked_rem(1_000));
        let _ = write!(out, "{TYPE}RetryInfo\",\"retryDelay\":\"{}", seconds.unwrap_or_default());
        // The JSON of a protobuf duration has 0, 3, 6 or 9 places.
        if let Some(rest) = rest.filter(|rest| *rest > 0) {
            let _ = write!(out, ".{rest:03}");
        }
        out.push_str("s\"}");
    }
    if !detail.violated.is_empty() {
        let comma = if detail.after.is_some() { "," } else { "" };
        let _ = write!(out, "{comma}{TYPE}QuotaFailure\",\"violations\":[");
        for (index, name) in detail.violated.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(out, "{comma}{{\"quotaId\":\"{name}\"}}");
        }
        out.push_str("]}");
    }
}
