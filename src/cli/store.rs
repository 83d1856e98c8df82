//! Where `weir replay` keeps count: in memory, with the pure limits, or in a Redis, with the scripts of the filter.

use std::collections::HashMap;

use super::Failure;
use super::redis::Redis;
use crate::limit::{Ask, Lease, Outcome, Subject};
use crate::policy::Check;
use crate::script::{BadReply, Form, Plan};
use crate::time::Micros;

/// Keeps count of subjects.
pub(super) enum Store {
    /// Here: a subject for each tag and tier.
    Memory(HashMap<(Vec<u8>, usize), Subject>),
    /// There, under tags of this run.
    Redis(Redis, String),
}

impl Store {
    /// Asks for one request at `now`.
    ///
    /// # Errors
    /// Redis cannot be asked.
    pub fn check(&mut self, plan: &Plan, check: &Check, now: Micros) -> Result<Outcome, Failure> {
        let ask = Ask { requests: 1, cost: check.cost };
        match self {
            Self::Memory(subjects) => {
                let subject = subjects.entry((check.tag.clone(), check.tier)).or_default();
                Ok(subject.check(plan.limits(), now, ask))
            }
            Self::Redis(redis, run) => outcome(redis, plan, &tag_of(run, &check.tag), ask, Some(now)),
        }
    }

    /// Gives back what a request was granted by this policy, because another denied it.
    ///
    /// # Errors
    /// Redis cannot be asked.
    pub fn refund(&mut self, plan: &Plan, check: &Check, now: Micros, paid: &Outcome) -> Result<(), Failure> {
        let units = i64::try_from(check.cost).unwrap_or(i64::MAX).saturating_neg();
        match self {
            Self::Memory(subjects) => {
                if let Some(subject) = subjects.get_mut(&(check.tag.clone(), check.tier)) {
                    subject.settle(plan.limits(), now, units, paid);
                }
            }
            Self::Redis(redis, run) => {
                let tag = tag_of(run, &check.tag);
                call(redis, |form, out| plan.settle(&tag, units, paid, Some(now), form, out))?;
            }
        }
        self.release(plan, check, now, paid)
    }

    /// A request that was granted has ended.
    ///
    /// # Errors
    /// Redis cannot be asked.
    pub fn release(
        &mut self,
        plan: &Plan,
        check: &Check,
        now: Micros,
        paid: &Outcome,
    ) -> Result<(), Failure> {
        let leases: Vec<Lease> = paid.leases(1).collect();
        match self {
            Self::Memory(subjects) => {
                if let Some(subject) = subjects.get_mut(&(check.tag.clone(), check.tier)) {
                    subject.release(&leases);
                }
            }
            Self::Redis(redis, run) if !leases.is_empty() => {
                let tag = tag_of(run, &check.tag);
                call(redis, |form, out| {
                    plan.release(&tag, &leases, Some(now), form, out);
                })?;
            }
            Self::Redis(..) => {}
        }
        Ok(())
    }
}

/// A tag that no live filter uses: `{run:policy|subject}`.
fn tag_of(run: &str, tag: &[u8]) -> Vec<u8> {
    let inner = tag.strip_prefix(b"{").unwrap_or(tag);
    [b"{", run.as_bytes(), b":", inner].concat()
}

/// Asks the limits of a subject in Redis; at `now`, or by Redis's own clock.
///
/// # Errors
/// Redis cannot be asked, or says something else.
pub(super) fn outcome(
    redis: &mut Redis,
    plan: &Plan,
    tag: &[u8],
    ask: Ask,
    now: Option<Micros>,
) -> Result<Outcome, Failure> {
    let mut last = BadReply::Unexpected;
    for form in [Form::Evalsha, Form::Eval] {
        let mut command = Vec::new();
        plan.check(tag, ask, now, form, &mut command);
        match plan.outcome(&redis.call(&command)?) {
            Ok(outcome) => return Ok(outcome),
            Err(BadReply::NoScript) => last = BadReply::NoScript,
            Err(bad) => return Err(format!("Redis: {bad}")),
        }
    }
    Err(format!("Redis: {last}"))
}

fn call(redis: &mut Redis, command: impl Fn(Form, &mut Vec<u8>)) -> Result<(), Failure> {
    for form in [Form::Evalsha, Form::Eval] {
        let mut out = Vec::new();
        command(form, &mut out);
        match redis.call(&out)? {
            crate::resp::Reply::Error(line) if line.starts_with(b"NOSCRIPT") && form == Form::Evalsha => {}
            crate::resp::Reply::Error(line) => {
                return Err(format!("Redis: {}", String::from_utf8_lossy(line)));
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}
