// SPDX-License-Identifier: Apache-2.0
//! The limits that a response names. Many policies on one request have many limits, and proxies and clients refuse headers
//! that grow without bound: so a response names those that matter most.

use super::answer::PolicyAnswer;
use super::settings::Style;
use super::view::LimitView;
use crate::decision::{CheckAnswer, LimitStatus};
use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Limit};
use crate::time::Micros;

/// The most limits that one header or body names.
const MAX_NAMED: usize = 16;

/// The most bytes of their names and numbers in one header or body.
const MAX_BYTES: usize = 1024;

/// One limit that a response names.
#[derive(Clone, Copy)]
pub(super) struct NamedLimit<'a> {
    pub answer: &'a PolicyAnswer<'a>,
    pub view: &'a LimitView,
    pub status: &'a LimitStatus,
    /// The subject's own limit, if an override replaces the configured one.
    own: Option<&'a Limit>,
}

impl<'a> NamedLimit<'a> {
    /// All limits of `answer`.
    pub fn of(answer: &'a PolicyAnswer<'a>) -> impl Iterator<Item = Self> + Clone {
        let own = answer.answer.decision().and_then(|decision| decision.own.as_ref());
        let limits = answer.limits().enumerate();
        limits.map(move |(place, (view, status))| NamedLimit {
            answer,
            view,
            status,
            own: own.and_then(|own| own.get(place)),
        })
    }

    pub fn has_style(&self, style: Style) -> bool {
        self.answer.shows(style)
    }

    /// The number of units that the limit allows such requests at once or in a window.
    #[inline]
    pub fn quota(&self) -> u64 {
        let PolicyAnswer { scale, kept_percent, .. } = *self.answer;
        self.own.map_or_else(|| self.view.quota(scale, kept_percent), |own| self.ask().open(own.quota()))
    }

    fn ask(&self) -> Ask {
        Ask { kept_percent: self.answer.kept_percent, ..Ask::new(0, 0) }
    }

    /// The time in which the units of [`quota`](Self::quota) come back; `None` if they are requests in flight.
    #[inline]
    pub fn window(&self) -> Option<Micros> {
        let scaled = self.view.scaled(self.answer.scale);
        self.own.or(scaled.as_ref()).map_or(self.view.window(), Limit::period)
    }

    /// The used percentage of the limit, if the policy admits the request and the percentage is enough for a warning. `None` if the worker
    /// decided by its own share, which says nothing about the limit.
    pub fn warns(&self) -> Option<u64> {
        let warn_at = self.view.warn_at()?;
        let PolicyAnswer { answer, is_quota_request, scale, .. } = self.answer;
        let is_known = matches!(answer, CheckAnswer::Store(of) | CheckAnswer::Lease(of) if of.granted);
        let scaled = self.view.scaled(*scale);
        let of_view = || warn_at.quota.saturating_mul(*scale);
        let quota = self.own.or(scaled.as_ref()).map_or_else(of_view, Limit::quota);
        let used = warn_at.used(self.ask().open(quota), self.status.remaining);
        used.filter(|_| is_known && !is_quota_request)
    }

    pub fn is_violated(&self) -> bool {
        self.answer.is_violated(self.status)
    }

    /// True if a response names this limit before the other: limits that reject the request first, then those with the smallest part of
    /// their quota left.
    fn matters_more_than(&self, other: &Self) -> bool {
        // left / quota < other left / other quota, without a division.
        let part = |one: &Self, of: &Self| u128::from(one.status.remaining) * u128::from(of.quota());
        match (self.is_violated(), other.is_violated()) {
            (true, false) => true,
            (false, true) => false,
            _ => part(self, other) < part(other, self),
        }
    }

    /// Shows the limits that `selects` selects, in the configured order if all may be named; otherwise those that matter most.
    pub fn show_bounded(
        answers: &'a [PolicyAnswer<'a>],
        selects: fn(&Self) -> bool,
        size: fn(&LimitView) -> usize,
        show: &mut dyn FnMut(Self),
    ) {
        let all = || answers.iter().flat_map(NamedLimit::of).filter(selects);
        let (mut count, mut bytes) = (0_usize, 0_usize);
        all().for_each(|limit| {
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(size(limit.view));
        });
        if count <= MAX_NAMED && bytes <= MAX_BYTES {
            all().for_each(show);
        } else {
            Self::most_important(all(), size).into_iter().for_each(show);
        }
    }

    /// The limits that matter most, as many as fit.
    #[cold]
    fn most_important(limits: impl Iterator<Item = Self>, size: fn(&LimitView) -> usize) -> Vec<Self> {
        let mut most = Vec::with_capacity(MAX_NAMED);
        for limit in limits {
            let place = most.partition_point(|other: &Self| !limit.matters_more_than(other));
            if place < MAX_NAMED {
                most.truncate(MAX_NAMED.saturating_sub(1));
                most.insert(place, limit);
            }
        }
        let mut room = MAX_BYTES;
        let fits = |limit: &&Self| match room.checked_sub(size(limit.view)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let fit = most.iter().take_while(fits).count();
        most.truncate(fit);
        most
    }

    /// The names of the selected limits, for a body.
    pub fn names(answers: &'a [PolicyAnswer<'a>], selects: fn(&Self) -> bool) -> InlineVec<&'a str> {
        let quoted = |view: &LimitView| view.name().len().saturating_add(3);
        let mut names = InlineVec::new();
        Self::show_bounded(answers, selects, quoted, &mut |limit| names.push(limit.view.name()));
        names
    }
}
