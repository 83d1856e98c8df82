// SPDX-License-Identifier: Apache-2.0
//! Errors of Redis in words for an operator. They contain no login.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::super::Failure;

/// The error line of Redis, if it is one.
pub(super) fn line(error: &RedisError) -> Option<String> {
    let code = error.code()?;
    Some(error.detail().map_or_else(|| code.to_owned(), |detail| format!("{code} {detail}")))
}

/// Says what went wrong at `place`, and what to do about it.
pub(super) fn sentence(place: &str, error: &RedisError, timeout: Duration) -> Failure {
    let what = line(error).unwrap_or_else(|| reason(error, timeout));
    let what = what.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"");
    format!("Redis at {place}: {what}{}", advice(error))
}

fn reason(error: &RedisError, timeout: Duration) -> String {
    if error.is_timeout() {
        return format!("no answer within {} ms", timeout.as_millis());
    }
    if error.is_connection_dropped() && !error.is_connection_refusal() {
        return String::from("the connection was closed");
    }
    match (error.kind(), error.detail()) {
        (ErrorKind::AuthenticationFailed, _) => String::from("the login was refused"),
        (_, Some(detail)) => detail.to_owned(),
        (_, None) => error.to_string(),
    }
}

fn advice(error: &RedisError) -> &'static str {
    match error.code() {
        Some("NOPERM") => ": give the user this right, or use another user",
        Some("NOAUTH") => ": write the login in a file for --login-file, or in WEIR_REDIS_LOGIN",
        Some("WRONGPASS") => ": check the user and the password",
        Some("READONLY") => ": this node is a replica; name the primary, or the sentinels",
        Some("MOVED" | "ASK") => {
            ": the keys are on that node; name a node of the cluster itself, not what is before it"
        }
        Some("CLUSTERDOWN") => ": some slots have no primary",
        Some(_) => "",
        None if error.kind() == ErrorKind::AuthenticationFailed => ": check the user and the password",
        None if error.is_connection_refusal() => "",
        None if error.is_connection_dropped() => ": if it expects TLS, write rediss:// in place of redis://",
        None if error.to_string().contains("Interrupted") => {
            ": this command was stopped while it waited for an answer; run it again"
        }
        None if error.to_string().contains("UnknownIssuer") => {
            ": its certificate is signed by an authority that this machine does not trust; name the authority with --ca"
        }
        None if error.to_string().contains("not valid for name") => {
            ": its certificate is for another name; use the name that the certificate has"
        }
        None => "",
    }
}
