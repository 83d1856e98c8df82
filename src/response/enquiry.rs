// SPDX-License-Identifier: Apache-2.0
//! The answer to a quota request: the client's remaining quota, in the header fields and as JSON.
//!
//! ```json
//! {"policies": [
//!     {"policy": "api", "limit": "minute", "quota": 100, "remaining": 0, "window_s": 60, "reset_s": 42, "retry_after_s": 42},
//!     {"policy": "exports", "limit": "at-once", "quota": 5, "remaining": 3},
//!     {"policy": "login", "banned": true, "retry_after_s": 300}
//! ]}
//! ```

use core::fmt::Write as _;

use super::answer::PolicyAnswer;
use super::fields::Header;
use super::fields::{Times, status_headers};
use super::named::NamedLimit;
use super::rejection::{Rejection, answer, unavailable};
use super::settings::{Settings, Style};
use super::verdict::rejection;
use super::view::LimitView;
use crate::inline_vec::InlineVec;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// The most bans that an answer names.
const MAX_BANS: usize = 16;

/// The response to a quota request, given the answers of all policies that apply to the request that it asks for, and of the policy that
/// counts quota requests. It is a rejection if that policy denies the quota request, or if the store has not answered in time: then clients
/// get what `settings` say.
#[must_use]
pub fn enquiry(answers: &[PolicyAnswer<'_>], settings: &Settings) -> Rejection {
    let counting: InlineVec<_> = answers.iter().filter(|answer| !answer.is_quota_request).copied().collect();
    if let Some(rejection) = rejection(&counting) {
        return rejection;
    }
    let no_store = Header::new("cache-control", String::from("no-store"));
    if answers.iter().any(|answer| answer.is_quota_request && answer.answer.decision().is_none()) {
        let mut rejection = unavailable(settings);
        rejection.headers.push(no_store);
        return rejection;
    }
    let mut headers = status_headers(answers, Times::All);
    headers.push(no_store);
    answer(headers, body(answers))
}

/// The limits that the header fields show, and others that matter as much. A policy that shows no limits in header fields shows
/// none here.
fn body(answers: &[PolicyAnswer<'_>]) -> String {
    let mut out = String::from("{\"policies\":[");
    let begin = |out: &mut String, policy: &str| {
        let comma = if out.ends_with('}') { "," } else { "" };
        let _ = write!(out, "{comma}{{\"policy\":\"{policy}\"");
    };
    for banned in answers.iter().filter(|answer| answer.is_enforced && answer.is_banned()).take(MAX_BANS) {
        begin(&mut out, banned.policy);
        out.push_str(",\"banned\":true");
        let ban = banned.answer.decision().map_or(RetryAfter::Now, |decision| decision.ban);
        seconds("retry_after_s", after(ban), &mut out);
        out.push('}');
    }
    let shown = |limit: &NamedLimit<'_>| {
        let style = limit.answer.settings.style;
        style != Style::None && limit.has_style(style)
    };
    NamedLimit::show_bounded(answers, shown, LimitView::largest_item, &mut |limit| {
        let (quota, window) = (limit.quota(), limit.window());
        let NamedLimit { answer, view, status, .. } = limit;
        begin(&mut out, answer.policy);
        let _ = write!(
            out,
            ",\"limit\":\"{}\",\"quota\":{},\"remaining\":{}",
            view.name(),
            quota,
            status.remaining
        );
        seconds("window_s", window, &mut out);
        // When requests in flight end is not known, only when their permits expire.
        if !view.is_in_flight() {
            seconds("reset_s", Some(status.reset), &mut out);
            seconds("retry_after_s", after(status.retry_after), &mut out);
        }
        out.push('}');
    });
    out.push_str("]}\n");
    out
}

const fn after(retry_after: RetryAfter) -> Option<Micros> {
    match retry_after {
        RetryAfter::After(span) => Some(span),
        RetryAfter::Now | RetryAfter::Unknown | RetryAfter::Never => None,
    }
}

/// A span of time in whole seconds, rounded up; nothing if there is none.
fn seconds(name: &str, span: Option<Micros>, out: &mut String) {
    if let Some(span) = span {
        let _ = write!(out, ",\"{name}\":{}", span.as_secs_ceil());
    }
}
