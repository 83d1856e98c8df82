// SPDX-License-Identifier: Apache-2.0
//! The facts of a verdict for access logs and later filters.

use super::answer::{PolicyAnswer, nearness};
use super::cause::Cause;
use super::named::NamedLimit;
use crate::decision::LimitStatus;
use crate::inline_vec::InlineVec;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// The record of a verdict: about the policy that rejected the request, or else about the limit nearest its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The limit; empty when nothing decided.
    pub limit: &'a str,
    /// `admitted`, `delayed`, `rejected`, `banned` (rejected because of a ban), `shadow` (would have been rejected), `unanswered`
    /// (admitted, nothing decided) or `enquiry`.
    pub outcome: &'static str,
    /// The units that are left.
    pub remaining: Option<u64>,
    /// The time until the limit is full again.
    pub reset: Option<Micros>,
    /// The source of the answer; see [`CheckAnswer::source`](crate::decision::CheckAnswer::source).
    pub source: &'static str,
}

impl Record<'_> {
    /// The record of a quota request that was answered. It is for all policies.
    pub const QUOTA_REQUEST: Self =
        Self { policy: "", limit: "", outcome: "enquiry", remaining: None, reset: None, source: "" };
}

/// The record of a verdict; `None` when no policy was asked. `is_rejected`: the request was rejected, perhaps because no place was left to hold it.
#[must_use]
pub fn record<'a>(answers: &[PolicyAnswer<'a>], is_rejected: bool) -> Option<Record<'a>> {
    let nearest = |answer: &PolicyAnswer<'a>| answer.limits().min_by_key(|(_, status)| nearness(status));
    let left = |answer: &&PolicyAnswer<'a>| nearest(answer).map_or(u64::MAX, |(_, status)| status.remaining);
    // A policy without limits here has only looked for a ban.
    let left = |answer: &&PolicyAnswer<'a>| (answer.views.is_empty(), left(answer));
    let rejects = answers.iter().find(|answer| answer.cause().is_some());
    if rejects.is_none() && answers.iter().any(|answer| answer.is_quota_request) {
        return Some(Record::QUOTA_REQUEST);
    }
    let has_no_place = is_rejected && rejects.is_none();
    let longest = answers.iter().filter(|_| has_no_place).max_by_key(|answer| answer.delay());
    let answer = rejects
        .or(longest)
        .or_else(|| answers.iter().find(|answer| answer.is_denied()))
        .or_else(|| answers.iter().min_by_key(left))?;
    let limit = nearest(answer);
    let outcome = match answer.answer.decision() {
        _ if answer.cause() == Some(Cause::Banned) => "banned",
        _ if answer.cause().is_some() || has_no_place => "rejected",
        None => "unanswered",
        Some(decision) if !decision.granted => "shadow",
        Some(_) if answer.delay() == Micros::ZERO => "admitted",
        Some(_) => "delayed",
    };
    Some(Record {
        policy: answer.policy,
        limit: limit.map_or("", |(view, _)| view.name()),
        outcome,
        remaining: limit.map(|(_, status)| status.remaining),
        reset: limit.map(|(_, status)| status.reset),
        source: answer.answer.source(),
    })
}

/// The maximum number of limits that are named for one denial.
const MAX_LIMITS: usize = 8;

/// A denial by one policy, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDenial<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The hash tag of the subject.
    pub subject: &'a [u8],
    /// The limits that deny the request; none if a ban alone does, or if nothing was decided.
    pub limits: InlineVec<&'a str>,
    /// `rejected`, `banned` or `shadow`, as in a [`Record`].
    pub outcome: &'static str,
    /// The source of the answer, as in a [`Record`].
    pub source: &'static str,
}

/// Returns the denial of each of these answers; `None` for one that denied nothing. `is_rejected`: the request was rejected.
pub fn denials<'a>(
    answers: &'a [PolicyAnswer<'a>],
    is_rejected: bool,
) -> impl Iterator<Item = Option<PolicyDenial<'a>>> {
    // No place was left to hold a request that was granted a delay.
    let has_no_place = is_rejected && answers.iter().all(|answer| answer.cause().is_none());
    answers.iter().map(move |answer| {
        let is_delayed = has_no_place && answer.delay() > Micros::ZERO;
        let outcome = match answer.cause() {
            Some(Cause::Banned) => "banned",
            Some(_) => "rejected",
            None if answer.is_quota_request => return None,
            None if is_delayed => "rejected",
            None if answer.is_denied() => "shadow",
            None => return None,
        };
        let denies = |status: &LimitStatus| answer.is_denied() && status.retry_after != RetryAfter::Now;
        let limits = answer.limits().filter(|(_, status)| is_delayed || denies(status));
        Some(PolicyDenial {
            policy: answer.policy,
            subject: answer.tag,
            limits: limits.map(|(view, _)| view.name()).take(MAX_LIMITS).collect(),
            outcome,
            source: answer.answer.source(),
        })
    })
}

/// A limit that an admitted request leaves as full as its `warn_at_percent`, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning<'a> {
    /// The policy.
    pub policy: &'a str,
    /// True if the policy is not in shadow.
    pub is_enforced: bool,
    /// The limit, by the name that clients see.
    pub limit: &'a str,
    /// The hash tag of the subject.
    pub subject: &'a [u8],
    /// The percentage of it that is used, rounded down.
    pub used_percent: u64,
    /// The time until it is full again, if no request comes.
    pub reset: Micros,
    /// The source of the answer, as in a [`Record`].
    pub source: &'static str,
}

/// The warnings about an admitted request with these answers.
pub fn warnings<'a>(answers: &'a [PolicyAnswer<'a>]) -> impl Iterator<Item = Warning<'a>> {
    answers.iter().flat_map(NamedLimit::of).filter_map(|limit| {
        let used_percent = limit.warns()?;
        Some(Warning {
            policy: limit.answer.policy,
            is_enforced: limit.answer.is_enforced,
            limit: limit.view.name(),
            subject: limit.answer.tag,
            used_percent,
            reset: limit.status.reset,
            source: limit.answer.answer.source(),
        })
    })
}
