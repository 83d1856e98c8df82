// SPDX-License-Identifier: Apache-2.0
//! The answer of one policy, next to what the policy says about responses.

use super::cause::Cause;
use super::settings::{Settings, Style};
use super::view::LimitView;
use crate::decision::{CheckAnswer, Decision, LimitStatus};
use crate::limit::RetryAfter;
use crate::time::Micros;

/// The answer of one policy to a request.
#[derive(Clone, Copy, Debug)]
pub struct PolicyAnswer<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The settings of its responses.
    pub settings: &'a Settings,
    /// Its limits as clients see them, in the plan's order.
    pub views: &'a [LimitView],
    /// The hash tag of the subject.
    pub tag: &'a [u8],
    /// The factor of the limits.
    pub scale: u64,
    /// The percentage of each limit that is kept for requests of other classes.
    pub kept_percent: u8,
    /// True if a denial rejects the request; in shadow mode it does not.
    pub is_enforced: bool,
    /// True if the client only asks what is left.
    pub is_quota_request: bool,
    /// True if the request is denied when nothing decided about it: `on_failure: deny`.
    pub denies_unanswered: bool,
    /// The decision, and its source.
    pub answer: &'a CheckAnswer,
}

impl<'a> PolicyAnswer<'a> {
    pub(super) fn limits(&self) -> impl Iterator<Item = (&'a LimitView, &'a LimitStatus)> + Clone + use<'a> {
        let statuses = self.answer.decision().map_or(&[][..], |decision| &decision.limits);
        self.views.iter().zip(statuses)
    }

    pub(super) fn is_denied(&self) -> bool {
        self.answer.decision().is_some_and(|decision| !decision.granted)
    }

    /// True if a ban denies the request.
    pub(super) fn is_banned(&self) -> bool {
        self.answer.decision().is_some_and(Decision::is_banned)
    }

    /// True if headers of this style show its limits.
    pub(super) fn shows(&self, style: Style) -> bool {
        self.is_enforced && self.settings.style == style && !self.is_banned()
    }

    /// The reason for which this answer rejects the request; `None` if it does not. The checks of a quota request reject nothing.
    pub(super) fn cause(&self) -> Option<Cause> {
        let is_unavailable = self.answer.decision().is_none() && self.denies_unanswered;
        match self.is_enforced && !self.is_quota_request {
            true if self.is_banned() => Some(Cause::Banned),
            true if self.is_denied() => Some(Cause::Exceeded),
            true if is_unavailable => Some(Cause::Unavailable),
            _ => None,
        }
    }

    /// True if the limit of this status is one that rejects the request.
    pub(super) fn is_violated(&self, status: &LimitStatus) -> bool {
        self.is_enforced && self.is_denied() && status.retry_after != RetryAfter::Now
    }

    /// The time for which the request is held before it passes.
    pub(super) fn delay(&self) -> Micros {
        let decision = self.answer.decision().filter(|decision| decision.granted && self.is_enforced);
        decision.map_or(Micros::ZERO, |decision| decision.delay)
    }
}

/// The order in which limits are nearest to their end: first those that deny, then by the fewest units left.
pub(super) fn nearness(status: &LimitStatus) -> (bool, u64) {
    (status.retry_after == RetryAfter::Now, status.remaining)
}
