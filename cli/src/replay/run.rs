// SPDX-License-Identifier: Apache-2.0
//! A configuration and everything counted under it, while a trace runs through.

use std::collections::BTreeMap;

use super::decision::Decision;
use super::totals::Totals;
use crate::explain::{self, Counts, Explanation};
use crate::store::Store;
use crate::trace::Event;
use crate::{Failure, request};
use weir::config::{Config, Evaluation, Step};
use weir::decision::CheckAnswer;
use weir::inline_vec::InlineVec;
use weir::limit::{Outcome, Permits, RetryAfter};
use weir::policy::{self, Check, Mode, Ruling};
use weir::response::{self, Record, Verdict};
use weir::script::Plan;
use weir::time::Micros;

pub struct Run {
    pub config: Config,
    pub totals: Totals,
    store: Store,
    /// Requests that hold permits, by the time at which they end.
    ends: BTreeMap<(Micros, u64), Vec<(Check, Outcome)>>,
    requests: u64,
    /// The time of the next renewal of permits.
    renews_at: Micros,
}

impl Run {
    pub fn new(config: Config, store: Store, totals: Totals) -> Self {
        Self { config, totals, store, ends: BTreeMap::new(), requests: 0, renews_at: Micros(u64::MAX) }
    }

    /// Decides about a request, which came no earlier than the one before.
    pub fn decide(&mut self, event: &Event) -> Result<Decision, Failure> {
        self.requests = self.requests.saturating_add(1);
        self.release_ended(event.at)?;
        self.renew_running(event.at)?;
        let body = request::body(&self.config, &event.request);
        let mut in_shadow = false;
        let evaluation = {
            let (config, totals) = (&self.config, &mut self.totals);
            let request = request::request(config, &event.request, body.as_ref());
            config.evaluate_steps(&request, |step| {
                if let Step::Policy(index, Ruling::Denied(denial)) = step {
                    let is_enforced =
                        config.policies.get(index).is_none_or(|policy| policy.enforces(*denial));
                    in_shadow |= !is_enforced;
                    totals.deny(index, is_enforced, event.at);
                }
            })
        };
        let decision = match evaluation {
            // A quota request charges only the policy that counts quota requests.
            Evaluation::QuotaRequest(mut checks) => {
                checks.retain(|check| check.mode != Mode::QuotaRequest);
                let decision = self.ask(event, checks)?;
                if decision.allowed {
                    let outcome = Record::QUOTA_REQUEST.outcome;
                    Decision { outcome, ..Decision::clear(event.at, event.line, true, String::new()) }
                } else {
                    decision
                }
            }
            Evaluation::Check(checks) => self.ask(event, checks)?,
            Evaluation::Admit | Evaluation::AwaitBody(_) => {
                self.totals.unmatched = self.totals.unmatched.saturating_add(1);
                Decision::clear(event.at, event.line, true, String::new())
            }
            Evaluation::Deny(policy, _) => {
                let name = policy
                    .and_then(|policy| self.config.policies.get(policy))
                    .map(|policy| policy.name.clone());
                if name.is_none() {
                    self.totals.globally_denied = self.totals.globally_denied.saturating_add(1);
                }
                Decision::clear(event.at, event.line, false, name.unwrap_or_default())
            }
        };
        let decision = Decision { in_shadow: in_shadow || decision.in_shadow, ..decision };
        self.totals.decided(&decision);
        Ok(decision)
    }

    /// Explains what would happen to a request, which comes no earlier than the one before. Nothing is counted.
    pub fn explain(&mut self, event: &Event) -> Result<Explanation<'_>, Failure> {
        self.release_ended(event.at)?;
        self.renew_running(event.at)?;
        let counts = match &self.store {
            Store::Memory(memory) => Counts::Replay(memory, event.at),
            Store::Redis(..) => Counts::Nothing(event.at),
        };
        explain::explain(&self.config, counts, &event.request)
    }

    fn release_ended(&mut self, now: Micros) -> Result<(), Failure> {
        while let Some(entry) = self.ends.first_entry()
            && entry.key().0 <= now
        {
            let (ended, _) = *entry.key();
            for (check, receipt) in entry.remove() {
                if let Some(plan) = self.config.plan(&check) {
                    self.store.release(&plan, &check, ended, &receipt)?;
                }
            }
        }
        Ok(())
    }

    /// Renews permits before they expire, as a worker does: here when the next request comes.
    fn renew_running(&mut self, now: Micros) -> Result<(), Failure> {
        if now < self.renews_at {
            return Ok(());
        }
        self.renews_at = Micros(u64::MAX);
        for (check, receipt) in self.ends.values_mut().flatten() {
            let Some(plan) = self.config.plan(check) else { continue };
            if renewal(&plan, receipt) <= now {
                *receipt = self.store.renew(&plan, check, now, receipt)?;
            }
            self.renews_at = self.renews_at.min(renewal(&plan, receipt));
        }
        Ok(())
    }

    fn ask(&mut self, event: &Event, checks: InlineVec<Check>) -> Result<Decision, Failure> {
        let (mut answers, mut granted) = (Vec::new(), Vec::new());
        for check in checks {
            let Some(plan) = self.config.plan(&check) else { continue };
            let outcome = self.store.check(&plan, &check, event.at)?;
            let decision = check.decision(&outcome, plan.limits(), 0, check.ask(1));
            if check.is_charged() || !decision.granted {
                self.totals.checked(&check, &decision, event.at);
            }
            if check.is_charged() && decision.granted {
                granted.push((check.clone(), outcome));
            }
            answers.push((check, CheckAnswer::Store(decision)));
        }
        let would_reject = |(check, answer): &(Check, CheckAnswer)| {
            check.mode == Mode::Shadow && answer.decision().is_some_and(|decision| !decision.granted)
        };
        let in_shadow = answers.iter().any(would_reject);
        let decision = Decision { in_shadow, ..decision_of(&self.config, &answers, event) };
        if decision.allowed {
            granted.retain(|(_, receipt)| receipt.permits(1).next().is_some());
            if !granted.is_empty() {
                let plans =
                    granted.iter().filter_map(|(check, receipt)| Some((self.config.plan(check)?, receipt)));
                let due = plans.map(|(plan, receipt)| renewal(&plan, receipt));
                self.renews_at = due.fold(self.renews_at, Micros::min);
                self.ends.insert((event.at.plus(decision.delay).plus(event.took), self.requests), granted);
            }
            return Ok(decision);
        }
        for (check, receipt) in granted {
            if let Some(plan) = self.config.plan(&check) {
                self.store.refund(&plan, &check, event.at, &receipt)?;
            }
        }
        Ok(decision)
    }
}

/// The decision that follows from the answers of all policies that apply.
fn decision_of(config: &Config, answers: &[(Check, CheckAnswer)], event: &Event) -> Decision {
    let of = policy::answers(&config.policies, answers.iter().map(|(check, answer)| (check, answer)));
    let record = response::record(&of, false);
    let (allowed, delay, retry_after) = match response::verdict(&of) {
        Verdict::Admit(admission) => (true, admission.delay, RetryAfter::Now),
        Verdict::Reject(rejection) => (false, Micros::ZERO, rejection.retry_after),
    };
    let Some(record) = record else { return Decision::clear(event.at, event.line, allowed, String::new()) };
    let policy_of =
        |check: &&Check| config.policies.get(check.policy).is_some_and(|policy| policy.name == record.policy);
    let check = answers.iter().map(|(check, _)| check).find(policy_of);
    let tiers = check.and_then(|check| config.policies.get(check.policy)).map(|policy| &policy.tiers.tiers);
    let tier =
        tiers.zip(check).and_then(|(tiers, check)| tiers.get(check.tier)).map(|tier| tier.name.clone());
    Decision {
        at: event.at,
        line: event.line,
        allowed,
        policy: record.policy.to_owned(),
        limit: record.limit.to_owned(),
        tier: tier.unwrap_or_default(),
        subject: check.map(|check| check.tag.clone()).unwrap_or_default(),
        remaining: record.remaining,
        retry_after,
        reset: record.reset,
        delay,
        outcome: record.outcome,
        in_shadow: false,
    }
}

/// The time at which permits of this grant are to be renewed: a third of their `ttl` after they were granted.
fn renewal(plan: &Plan, receipt: &Outcome) -> Micros {
    let due = |permits: Permits| {
        let ttl = plan.ttl(permits.limit)?;
        Some(Micros(permits.expiry).since(Micros(ttl.0 / 3 * 2)))
    };
    receipt.permits(1).filter_map(due).min().unwrap_or(Micros(u64::MAX))
}
