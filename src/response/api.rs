// SPDX-License-Identifier: Apache-2.0
//! Rejections that the client libraries of an API understand: the body that they make an error of, and the headers by which they
//! retry.

use core::fmt::Write as _;

use super::body::Detail;
use super::cause::Cause;
use super::fields::Header;
use super::settings::Api;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// An error of JSON-RPC begins with this, and the id of its request follows.
pub(super) const UP_TO_ID: &str = "{\"jsonrpc\":\"2.0\",\"id\":";

/// An error of JSON-RPC begins with this if weir does not know the id of its request.
pub(super) const WITHOUT_ID: &str = "{\"jsonrpc\":\"2.0\",\"id\":null";

/// The client libraries of OpenAI and Anthropic wait for as long as the response says, up to this. If it says longer, some versions retry
/// within seconds.
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
        let is_useless = match retry_after {
            RetryAfter::After(after) => after > LONGEST_WAIT,
            RetryAfter::Never => true,
            RetryAfter::Now | RetryAfter::Unknown => cause == Cause::Denied,
        };
        if is_useless {
            headers.push(Header::new("x-should-retry", String::from("false")));
        }
    }

    /// The body and its `content-type`.
    pub(super) fn body(self, status: u16, cause: Cause, detail: &Detail<'_>) -> (&'static str, String) {
        let (name, code) = self.names(status, cause, detail.in_tokens);
        let retry = match (self, detail.after) {
            (Self::Gemini, _) => details(detail),
            (Self::JsonRpc, Some(after)) => {
                format!(",\"data\":{{\"retryAfterMs\":{}}}", after.as_millis_ceil())
            }
            (Self::GraphQl, Some(after)) => format!(",\"retryAfterMs\":{}", after.as_millis_ceil()),
            _ => String::new(),
        };
        let content_type =
            if self == Self::GraphQl { "application/graphql-response+json" } else { "application/json" };
        let body = self.template().replace("$name", name).replace("$code", &code).replace("$retry", &retry);
        // The message is last: it contains names that the operator chose.
        (content_type, body.replace("$message", &message(cause, detail)))
    }

    /// The body, with a place for each value of [`Api::names`], for the message, and for when to retry.
    const fn template(self) -> &'static str {
        match self {
            Self::OpenAi => r#"{"error":{"message":"$message","type":"$name","param":null,"code":"$code"}}"#,
            Self::Anthropic => r#"{"type":"error","error":{"type":"$name","message":"$message"}}"#,
            Self::Gemini => {
                r#"{"error":{"code":$code,"message":"$message","status":"$name","details":[$retry]}}"#
            }
            Self::JsonRpc => {
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":$code,"message":"$message"$retry}}"#
            }
            Self::GraphQl => r#"{"errors":[{"message":"$message","extensions":{"code":"$code"$retry}}]}"#,
        }
    }

    /// The API's names for the error: its name or type, and its code. The type of OpenAI names the unit of the limit.
    fn names(self, status: u16, cause: Cause, in_tokens: bool) -> (&'static str, String) {
        // For limits and bans, for denials, while the store is unavailable, and for bodies that are late.
        let row: [(&str, &str); 4] = match self {
            Self::OpenAi => [
                (
                    if in_tokens && cause == Cause::Exceeded { "tokens" } else { "requests" },
                    "rate_limit_exceeded",
                ),
                ("invalid_request_error", "request_denied"),
                ("server_error", "service_unavailable"),
                ("invalid_request_error", "request_timeout"),
            ],
            Self::Anthropic => {
                [("rate_limit_error", ""), ("permission_error", ""), ("api_error", ""), ("timeout_error", "")]
            }
            // The names of gRPC's statuses.
            Self::Gemini => [
                ("RESOURCE_EXHAUSTED", ""),
                ("PERMISSION_DENIED", ""),
                ("UNAVAILABLE", ""),
                ("DEADLINE_EXCEEDED", ""),
            ],
            // JSON-RPC leaves -32000 to -32099 to servers. MCP uses some of these: -32000 to -32002, and -32042.
            Self::JsonRpc => [("", "-32029"), ("", "-32043"), ("", "-32053"), ("", "-32048")],
            Self::GraphQl => [
                ("", "RATE_LIMITED"),
                ("", "FORBIDDEN"),
                ("", "SERVICE_UNAVAILABLE"),
                ("", "REQUEST_TIMEOUT"),
            ],
        };
        let [limited, denied, unavailable, late] = row;
        let (name, code) = match cause {
            Cause::Exceeded | Cause::Banned | Cause::Answered => limited,
            Cause::Denied => denied,
            Cause::Unavailable => unavailable,
            Cause::Late => late,
        };
        (name, if self == Self::Gemini { status.to_string() } else { String::from(code) })
    }
}

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

/// `RetryInfo` and `QuotaFailure` of google.rpc.
fn details(detail: &Detail<'_>) -> String {
    const TYPE: &str = "{\"@type\":\"type.googleapis.com/google.rpc.";
    let mut out = String::new();
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
    out
}
