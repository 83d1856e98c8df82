//! What access logs and later filters can read about a verdict.

use super::answer::{PolicyAnswer, nearness};
use super::cause::Cause;
use crate::time::Micros;

/// The record of a verdict: about the policy that rejected the request, or else about the limit nearest its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The limit; empty when nothing decided.
    pub limit: &'a str,
    /// `admitted`, `delayed`, `rejected`, `banned` (rejected because of a ban), `shadow` (would have been rejected) or `unanswered` (admitted, nothing decided).
    pub outcome: &'static str,
    /// How many units are left.
    pub remaining: Option<u64>,
    /// How long until the limit is full again.
    pub reset: Option<Micros>,
    /// Where the answer comes from; see [`CheckAnswer::source`](crate::decision::CheckAnswer::source).
    pub source: &'static str,
}

/// The record of a verdict; `None` when no policy was asked.
#[must_use]
pub fn record<'a>(answers: &[PolicyAnswer<'a>]) -> Option<Record<'a>> {
    let nearest = |answer: &PolicyAnswer<'a>| answer.limits().min_by_key(|(_, status)| nearness(status));
    let left = |answer: &&PolicyAnswer<'a>| nearest(answer).map_or(u64::MAX, |(_, status)| status.remaining);
    let rejects = answers.iter().find(|answer| answer.cause().is_some());
    let answer = rejects
        .or_else(|| answers.iter().find(|answer| answer.is_denied()))
        .or_else(|| answers.iter().min_by_key(left))?;
    let limit = nearest(answer);
    let outcome = match answer.answer.decision() {
        _ if answer.cause() == Some(Cause::Banned) => "banned",
        _ if answer.cause().is_some() => "rejected",
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
