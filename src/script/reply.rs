// SPDX-License-Identifier: Apache-2.0
//! The replies of a plan's scripts.

use core::fmt;
use std::sync::Arc;

use super::{Options, Overrides, Plan, link};
use crate::bridge;
use crate::inline_vec::InlineVec;
use crate::limit::{Limit, LimitOutcome, Outcome, RetryAfter};
use crate::resp::Reply;
use crate::time::Micros;

/// The bytes of a limit's entry at the end of a reply for several subjects: its place, and the values that are mostly 0.
const RARE: usize = 2 + 8 + 8 + 7;

/// The maximum number of subjects with this many limits each whose reply still fits through the bridge.
pub(super) fn most_subjects(limits: usize, options: &Options) -> usize {
    let subject = subject_size(limits, options).saturating_add(limits.saturating_mul(RARE));
    bridge::REPLY.bulk.saturating_sub(8) / subject.max(1)
}

/// The bytes of each subject in a reply for several, without those entries at the end.
fn subject_size(limits: usize, options: &Options) -> usize {
    let limit = link::answer_size(options.overrides).saturating_sub(2);
    8 * (1 + limit * limits + usize::from(options.ban.is_some()))
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = i64> {
    bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes))
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
        self.read(string(reply)?).ok_or(BadReply::Unexpected)
    }

    /// Reads the reply to [`Plan::check_all`] of this many subjects, and calls `each` with the outcome for each.
    ///
    /// # Errors
    /// [`BadReply`] if it is an error, or not a reply of this script to this many subjects. Then the outcomes so far count for nothing.
    pub fn outcomes(
        &self,
        reply: &Reply<'_>,
        subjects: usize,
        each: impl FnMut(Outcome),
    ) -> Result<(), BadReply> {
        self.read_all(string(reply)?, subjects, each).ok_or(BadReply::Unexpected)
    }

    fn reply_size(&self) -> usize {
        8 * (2 + link::answer_size(self.overrides()) * self.limits.len() + usize::from(self.ban().is_some()))
    }

    fn read(&self, bytes: &[u8]) -> Option<Outcome> {
        let (bytes, refunds) = bytes.split_at_checked(self.reply_size())?;
        let mut numbers = numbers(bytes);
        let granted = u32::try_from(numbers.next()?).ok()?;
        let at = time(numbers.next()?)?;
        let mut limits = InlineVec::repeat(LimitOutcome::default(), self.limits.len());
        let mut own: Option<Vec<Limit>> = None;
        for &place in &self.linked.order {
            let (limit, answer) = (self.limits.get(place)?, limits.get_mut(place)?);
            answer.remaining = numbers.next()?;
            answer.retry_after = wait(numbers.next()?)?;
            answer.reset = time(numbers.next()?)?;
            set_extra(answer, limit, numbers.next()?)?;
            self.read_counts(place, &mut numbers, &mut own)?;
        }
        let ban = self.read_ban(&mut numbers)?;
        let (refunds, rest) = refunds.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, place] in refunds {
            let answer =
                self.linked.order.get(usize::from(place)).and_then(|&place| limits.get_mut(place))?;
            answer.refunded = u64::from_le_bytes([a, b, c, d, e, f, g, 0]);
        }
        (rest.is_empty() && refunds.len() <= self.limits.len()).then_some(Outcome {
            granted,
            at,
            limits,
            own: own.map(Arc::new),
            ban,
        })
    }

    fn read_all(&self, bytes: &[u8], subjects: usize, mut each: impl FnMut(Outcome)) -> Option<()> {
        let options = &self.linked.options;
        let size = subject_size(self.limits.len(), options).checked_mul(subjects)?.checked_add(8)?;
        let (bytes, rare) = bytes.split_at_checked(size)?;
        let (mut rare, rest) = rare.as_chunks::<RARE>();
        if !rest.is_empty() || rare.len() > subjects.saturating_mul(self.limits.len()) {
            return None;
        }
        let mut numbers = numbers(bytes);
        let at = time(numbers.next()?)?;
        for subject in 0..subjects {
            let granted = u32::try_from(numbers.next()?).ok()?;
            let mut limits = InlineVec::repeat(LimitOutcome::default(), self.limits.len());
            let mut own: Option<Vec<Limit>> = None;
            for &place in &self.linked.order {
                let answer = limits.get_mut(place)?;
                answer.remaining = numbers.next()?;
                answer.reset = time(numbers.next()?)?;
                self.read_counts(place, &mut numbers, &mut own)?;
            }
            while let Some((of, others)) = rare.split_first()
                && self.read_rare(of, subject, &mut limits)?
            {
                rare = others;
            }
            let ban = self.read_ban(&mut numbers)?;
            each(Outcome { granted, at, limits, own: own.map(Arc::new), ban });
        }
        rare.is_empty().then_some(())
    }

    /// Reads what is mostly 0 of a limit, if it is of this subject.
    fn read_rare(&self, of: &[u8; RARE], subject: usize, limits: &mut [LimitOutcome]) -> Option<bool> {
        let (place, rest) = of.split_first_chunk()?;
        let (pair, refunded) = rest.split_at_checked(16)?;
        let order = &self.linked.order;
        let first = subject.checked_mul(order.len())?;
        let Some(&place) =
            usize::from(u16::from_le_bytes(*place)).checked_sub(first).and_then(|at| order.get(at))
        else {
            return Some(false);
        };
        let answer = limits.get_mut(place)?;
        let mut numbers = numbers(pair);
        answer.retry_after = wait(numbers.next()?)?;
        answer.refunded = refunded.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        set_extra(answer, self.limits.get(place)?, numbers.next()?)?;
        Some(true)
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

/// When a request would pass, as the script says it.
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
