// SPDX-License-Identifier: Apache-2.0
//! The replies of a plan's scripts.

use core::fmt;
use std::rc::Rc;

use super::{Options, Overrides, Plan};
use crate::bridge;
use crate::inline_vec::InlineVec;
use crate::limit::{Limit, LimitOutcome, Outcome, RetryAfter};
use crate::resp::Reply;
use crate::time::Micros;

/// The maximum number of subjects with this many limits each whose reply still fits through the bridge.
pub(super) fn most_subjects(limits: usize, options: &Options) -> usize {
    let limit = if options.overrides == Overrides::Read { 8 } else { 5 };
    bridge::REPLY.bulk / (8 * (2 + limit * limits + usize::from(options.ban.is_some())))
}

impl Plan {
    /// Reads the reply to [`Plan::renew`]: `receipt` with the new expiries of its permits.
    ///
    /// # Errors
    /// [`BadReply`] if it is another reply.
    pub fn renewed(&self, receipt: &Outcome, reply: &Reply<'_>) -> Result<Outcome, BadReply> {
        let expiries = match reply {
            Reply::Bulk(Some(bytes)) => bytes.as_chunks::<8>().0,
            Reply::Error(line) => return Err(BadReply::error(line)),
            _ => return Err(BadReply::Unexpected),
        };
        if receipt.permits(1).count() != expiries.len() {
            return Err(BadReply::Unexpected);
        }
        Ok(receipt.with_expiries(expiries.iter().map(|expiry| u64::from_le_bytes(*expiry))))
    }

    /// Reads the reply to [`Plan::check`] or [`Plan::settle`].
    ///
    /// # Errors
    /// [`BadReply`] if it is an error, or not a reply of this script.
    pub fn outcome(&self, reply: &Reply<'_>) -> Result<Outcome, BadReply> {
        let mut only = None;
        self.outcomes(reply, 1, |outcome| only = Some(outcome))?;
        only.ok_or(BadReply::Unexpected)
    }

    /// Reads the reply to [`Plan::check_all`] of this many subjects, and calls `each` with the outcome for each.
    ///
    /// # Errors
    /// [`BadReply`] if it is an error, or not a reply of this script to this many subjects. Then the outcomes so far count for nothing.
    pub fn outcomes(
        &self,
        reply: &Reply<'_>,
        subjects: usize,
        mut each: impl FnMut(Outcome),
    ) -> Result<(), BadReply> {
        let (bytes, rest) = string(reply)?.as_chunks();
        let mut numbers = bytes.iter().map(|bytes| i64::from_le_bytes(*bytes));
        for _ in 0..subjects {
            each(self.read(&mut numbers).ok_or(BadReply::Unexpected)?);
        }
        if numbers.next().is_some() || !rest.is_empty() { Err(BadReply::Unexpected) } else { Ok(()) }
    }

    /// Reads the answer for one subject.
    fn read(&self, numbers: &mut impl Iterator<Item = i64>) -> Option<Outcome> {
        let granted = u32::try_from(numbers.next()?).ok()?;
        let at = time(numbers.next()?)?;
        let mut limits = InlineVec::repeat(LimitOutcome::default(), self.limits.len());
        let mut own: Option<Vec<Limit>> = None;
        for &place in &self.linked.order {
            let (limit, answer) = (self.limits.get(place)?, limits.get_mut(place)?);
            answer.remaining = numbers.next()?;
            let reset = numbers.next()?;
            self.read_counts(place, numbers, &mut own)?;
            if reset < 0 {
                // A long answer has `-1 - reset`, which is `!reset`.
                answer.retry_after = wait(numbers.next()?)?;
                let extra = numbers.next()?;
                answer.refunded = u64::try_from(numbers.next()?).ok()?;
                set_extra(answer, limit, extra)?;
            }
            answer.reset = time(reset.max(!reset))?;
        }
        let ban = self.read_ban(numbers)?;
        Some(Outcome { granted, at, limits, own: own.map(Rc::new), ban })
    }

    /// Reads the counts in force of a limit, if the reply has them, and notes a limit of the subject's own.
    #[inline]
    fn read_counts(
        &self,
        place: usize,
        numbers: &mut impl Iterator<Item = i64>,
        own: &mut Option<Vec<Limit>>,
    ) -> Option<()> {
        if self.overrides() == Overrides::Ignored {
            return Some(());
        }
        let mut count = || numbers.next().and_then(|count| u64::try_from(count).ok());
        let counts = [count()?, count()?, count()?];
        let limit = self.limits.get(place)?;
        if counts != limit.counts() {
            *own.get_or_insert_with(|| self.limits.clone()).get_mut(place)? =
                limit.with_counts(counts).ok()?;
        }
        Some(())
    }

    /// Reads for how long a subject is banned, if the reply has it.
    #[inline]
    fn read_ban(&self, numbers: &mut impl Iterator<Item = i64>) -> Option<RetryAfter> {
        if self.ban().is_some() { wait(numbers.next()?) } else { Some(RetryAfter::Now) }
    }
}

/// The packed string of a reply.
fn string<'a>(reply: &Reply<'a>) -> Result<&'a [u8], BadReply> {
    match reply {
        Reply::Bulk(Some(bytes)) => Ok(bytes),
        Reply::Error(line) => Err(BadReply::error(line)),
        _ => Err(BadReply::Unexpected),
    }
}

fn set_extra(answer: &mut LimitOutcome, limit: &Limit, extra: i64) -> Option<()> {
    match limit {
        Limit::Concurrency(_) => answer.permit_expiry = u64::try_from(extra).ok()?,
        Limit::Distinct(_) => answer.refunded = u64::try_from(extra).ok()?,
        _ => answer.first_delay = extra,
    }
    Some(())
}

/// A time, or a span of time.
fn time(number: i64) -> Option<Micros> {
    u64::try_from(number).ok().map(Micros)
}

/// The time until a request would pass, from the number in the reply.
#[inline(always)]
fn wait(span: i64) -> Option<RetryAfter> {
    match span {
        -1 => Some(RetryAfter::Never),
        span => Some(RetryAfter::after(u64::try_from(span).ok()?)),
    }
}

/// A reply that is not an answer. For the request it is the same as no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// This Redis has not seen the script: ask again with [`Form::Eval`](super::Form::Eval).
    NoScript,
    /// Any other error of Redis.
    Error(String),
    /// Not a reply of this script.
    Unexpected,
}

/// True if an error says that Redis does not know the script. The command has to be sent again, as [`Form::Eval`](super::Form::Eval).
#[must_use]
pub fn is_noscript(error: &[u8]) -> bool {
    error.starts_with(b"NOSCRIPT")
}

impl BadReply {
    /// Reads an error of Redis.
    #[must_use]
    pub fn error(line: &[u8]) -> Self {
        if is_noscript(line) {
            return Self::NoScript;
        }
        Self::Error(String::from_utf8_lossy(line).into_owned())
    }
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScript => f.write_str("NOSCRIPT"),
            Self::Error(line) => f.write_str(line),
            Self::Unexpected => f.write_str("not a reply of this script"),
        }
    }
}

impl core::error::Error for BadReply {}
