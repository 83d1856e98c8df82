// SPDX-License-Identifier: Apache-2.0
//! The verdict about a request, given the answers of all policies that apply to it.

use super::answer::PolicyAnswer;
use super::cause::Cause;
use super::fields::{Header, Headers};
use super::fields::{Times, add_status, add_warnings, status_headers};
use super::named::NamedLimit;
use super::rejection::{Rejection, reject};
use super::retry_after::retry_after;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// The verdict about a request. `Admitted` is the data of one that continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<Admitted = Admission> {
    /// It continues to the upstream.
    Admit(Admitted),
    /// The client gets a response in the upstream's place.
    Reject(Box<Rejection>),
}

/// A request that continues to the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The time for which it is held before.
    pub delay: Micros,
    /// Headers to add to its response.
    pub headers: Vec<Header>,
}

/// The verdict about a request with these answers: the first that rejects it decides how.
#[must_use]
pub fn verdict(answers: &[PolicyAnswer<'_>]) -> Verdict {
    match decide(answers) {
        Verdict::Admit(delay) => {
            let mut all = Headers::default();
            headers(answers, &mut all);
            Verdict::Admit(Admission { delay, headers: all.into_vec() })
        }
        Verdict::Reject(rejection) => Verdict::Reject(rejection),
    }
}

/// The same without the headers of an admitted request, which are written when its response comes: only how long it is held before it
/// continues.
#[must_use]
pub fn decide(answers: &[PolicyAnswer<'_>]) -> Verdict<Micros> {
    let delay = || answers.iter().map(PolicyAnswer::delay).max().unwrap_or_default();
    rejection(answers).map_or_else(|| Verdict::Admit(delay()), |rejection| Verdict::Reject(rejection.into()))
}

/// The rejection of a request with these answers, if one of them rejects it.
pub(super) fn rejection(answers: &[PolicyAnswer<'_>]) -> Option<Rejection> {
    let (first, cause) = answers.iter().find_map(|answer| Some((answer, answer.cause()?)))?;
    let after = retry_after(answers);
    let violated = NamedLimit::names(answers, NamedLimit::is_violated);
    let headers = status_headers(answers, Times::beside(after));
    Some(reject(first, cause, &violated, after, headers))
}

/// The headers to add to the response of an admitted request.
pub fn headers(answers: &[PolicyAnswer<'_>], headers: &mut Headers) {
    headers.clear();
    add_status(answers, Times::All, headers);
    add_warnings(answers, headers);
}

/// The rejection of a request that was granted a delay when no place is left to hold it: as if the limit had no delay.
#[must_use]
pub fn no_room_to_hold(answers: &[PolicyAnswer<'_>]) -> Option<Rejection> {
    let longest = answers.iter().max_by_key(|answer| answer.delay())?;
    let names = NamedLimit::names(std::slice::from_ref(longest), |_| true);
    let after = RetryAfter::After(longest.delay());
    let headers = status_headers(answers, Times::beside(after));
    Some(reject(longest, Cause::Exceeded, &names, after, headers))
}
