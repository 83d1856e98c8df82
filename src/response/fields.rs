// SPDX-License-Identifier: Apache-2.0
//! Headers of a response, and those that carry the status of limits: `RateLimit-Policy` and `RateLimit`, or `X-RateLimit-*`.

use super::answer::{PolicyAnswer, nearness};
use super::named::NamedLimit;
use super::provider;
use super::settings::{Style, Upstream};
use super::view::LimitView;
use crate::decision::LimitStatus;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// The capacity that a value begins with, in bytes.
const USUAL_LENGTH: usize = 64;

/// A header of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The treatment of the upstream's header of that name.
    pub upstream: Upstream,
}

impl Header {
    pub(super) const fn new(name: &'static str, value: String) -> Self {
        Self { name, value, upstream: Upstream::Replace }
    }
}

/// The headers of a response. The next response uses the memory of their values again.
#[derive(Debug, Default)]
pub struct Headers {
    all: Vec<Header>,
    spare: Vec<String>,
}

impl Headers {
    /// The headers of this response.
    #[must_use]
    pub fn as_slice(&self) -> &[Header] {
        &self.all
    }

    pub(super) fn into_vec(self) -> Vec<Header> {
        self.all
    }

    /// Removes all headers, for the next response.
    pub(super) fn clear(&mut self) {
        while let Some(header) = self.all.pop() {
            self.spare.push(header.value);
        }
    }

    /// An empty value, for [`Headers::add`].
    pub(super) fn value(&mut self) -> String {
        let mut value = self.spare.pop().unwrap_or_else(|| String::with_capacity(USUAL_LENGTH));
        value.clear();
        value
    }

    pub(super) fn add(&mut self, name: &'static str, value: String, upstream: Upstream) {
        self.all.push(Header { name, value, upstream });
    }

    pub(super) fn add_number(&mut self, name: &'static str, number: u64, upstream: Upstream) {
        let mut value = self.value();
        value.push_str(itoa::Buffer::new().format(number));
        self.add(name, value, upstream);
    }
}

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
    // A check of a ban alone has no limits, and an empty list is no field (RFC 9651 §4.1).
    if let Some(first) = of(Style::Draft11).find(|answer| !answer.views.is_empty()) {
        let upstream = first.settings.upstream;
        let (mut policy, mut state) = (headers.value(), headers.value());
        let selects = |limit: &NamedLimit<'_>| limit.has_style(Style::Draft11);
        NamedLimit::show_bounded(answers, selects, LimitView::largest_item, &mut |limit| {
            limit.view.append_policy(limit.quota(), limit.window(), &mut policy);
            limit.view.append_state(limit.status.remaining, times.of(&limit), &mut state);
        });
        headers.add("ratelimit-policy", policy, upstream);
        headers.add("ratelimit", state, upstream);
    }
    if let Some(first) = of(Style::XRateLimit).next()
        && let Some(limit) =
            of(Style::XRateLimit).flat_map(NamedLimit::of).min_by_key(|limit| nearness(limit.status))
    {
        let upstream = first.settings.upstream;
        headers.add_number("x-ratelimit-limit", limit.quota(), upstream);
        headers.add_number("x-ratelimit-remaining", limit.status.remaining, upstream);
        if let Some(time) = times.of(&limit) {
            headers.add_number("x-ratelimit-reset", time.as_secs_ceil(), upstream);
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
    NamedLimit::show_bounded(answers, shown, LimitView::largest_item, &mut |limit| {
        limit.view.append_warning(limit.warns().unwrap_or_default(), &mut value);
    });
    if !value.is_empty() {
        headers.add("x-ratelimit-warning", value, first.settings.upstream);
    }
}
