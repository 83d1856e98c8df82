// SPDX-License-Identifier: Apache-2.0
//! The header fields that carry the status of limits: `RateLimit-Policy` and `RateLimit`, or `X-RateLimit-*`.

use super::answer::{PolicyAnswer, nearness};
use super::header::{Header, Headers};
use super::named::NamedLimit;
use super::provider;
use super::settings::Style;
use super::view::LimitView;
use crate::decision::LimitStatus;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// The limits that state a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    All,
    /// Only the limits that `Retry-After` waits for. It must not be earlier than any `t`, and a limit that lets the request pass may have a
    /// longer one.
    Violated,
}

impl Times {
    /// The limits that state a time beside this `Retry-After`.
    pub(super) const fn beside(after: RetryAfter) -> Self {
        if matches!(after, RetryAfter::After(_)) { Self::Violated } else { Self::All }
    }

    fn of(self, limit: &NamedLimit<'_>) -> Option<Micros> {
        // Requests in flight end at any time: the rest of a ttl is not how long a client has to wait.
        let states = !limit.view.is_in_flight() && (self == Self::All || limit.is_violated());
        if states { time(limit.status) } else { None }
    }
}

/// The `t` beside `r`: within it, no more than `r` units. `None` where no time is known after which a request passes.
fn time(status: &LimitStatus) -> Option<Micros> {
    match status.retry_after {
        // Also when some units are left: they are too few for a request of this cost.
        RetryAfter::After(span) => Some(span),
        _ if status.remaining > 0 => Some(status.window),
        _ => None,
    }
}

/// The headers that carry the status of enforced limits.
pub(super) fn status_headers(answers: &[PolicyAnswer<'_>], times: Times) -> Vec<Header> {
    let mut headers = Headers::default();
    add_status(answers, times, &mut headers);
    headers.into_vec()
}

/// Adds the headers that carry the status of enforced limits, each policy's in its own style. While a subject is banned, what its
/// limits have left says nothing about when a request passes: the headers leave out the limits of that policy.
pub(super) fn add_status(answers: &[PolicyAnswer<'_>], times: Times, headers: &mut Headers) {
    let of = |style| {
        let has_style = move |answer: &&PolicyAnswer<'_>| answer.shows(style);
        answers.iter().filter(has_style).filter(|answer| answer.answer.decision().is_some())
    };
    if let Some(first) = of(Style::Draft11).next() {
        let upstream = first.settings.upstream;
        let (mut policy, mut state) = (headers.value(), headers.value());
        let selects = |limit: &NamedLimit<'_>| limit.has_style(Style::Draft11);
        for limit in NamedLimit::bounded(answers, selects, LimitView::largest_item) {
            limit.view.append_policy(limit.quota(), limit.window(), &mut policy);
            limit.view.append_state(limit.status.remaining, times.of(&limit), &mut state);
        }
        headers.add("ratelimit-policy", policy, upstream);
        headers.add("ratelimit", state, upstream);
    }
    if let Some(first) = of(Style::XRateLimit).next()
        && let Some(limit) =
            of(Style::XRateLimit).flat_map(NamedLimit::of).min_by_key(|limit| nearness(limit.status))
    {
        let mut add = |name, number: u64| {
            let mut value = headers.value();
            value.push_str(itoa::Buffer::new().format(number));
            headers.add(name, value, first.settings.upstream);
        };
        add("x-ratelimit-limit", limit.quota());
        add("x-ratelimit-remaining", limit.status.remaining);
        if let Some(time) = times.of(&limit) {
            add("x-ratelimit-reset", time.as_secs_ceil());
        }
    }
    if answers.iter().any(|answer| matches!(answer.settings.style, Style::OpenAi | Style::Anthropic)) {
        provider::add(answers, headers);
    }
}

/// Adds the header that warns of limits that are nearly used up, if a policy has it (`warning_header`).
pub(super) fn add_warnings(answers: &[PolicyAnswer<'_>], headers: &mut Headers) {
    let Some(first) = answers.iter().find(|answer| answer.settings.warns) else { return };
    let shown = |limit: &NamedLimit<'_>| {
        limit.answer.settings.warns && limit.answer.is_enforced && limit.warns().is_some()
    };
    let mut value = headers.value();
    for limit in NamedLimit::bounded(answers, shown, LimitView::largest_item) {
        limit.view.append_warning(limit.warns().unwrap_or_default(), &mut value);
    }
    if !value.is_empty() {
        headers.add("x-ratelimit-warning", value, first.settings.upstream);
    }
}
