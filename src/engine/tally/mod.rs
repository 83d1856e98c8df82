// SPDX-License-Identifier: Apache-2.0
//! Counts the decisions of each policy and limit, by outcome and source. To count a decision is two additions.
//!
//! | file | what is inside |
//! |---|---|
//! | `series.rs` | the counts that there are for a configuration, and their names as metrics |
//! | `top.rs` | the subjects that are denied most |
//! | `used.rs` | the usage of subjects, and the writer of the usage journal |

mod series;
mod top;
mod used;

use crate::config::{Config, Unasked, UnaskedRuling};
use crate::decision::{CheckAnswer, Decision};
use crate::limit::{Limit, RetryAfter};
use crate::policy::{Check, Denial, Mode};
use crate::script::usage::Used;
use crate::time::Micros;

use series::{Fullness, Outcome, PolicyPlaces, Source, TierPlaces};

pub use series::{MAX_LIMIT_SERIES, escaped};
pub(super) use series::{UnitKind, Value, lay_out};
pub(super) use top::{Listed, Top};
pub(super) use used::Usage;

/// The decisions without the store, of all policies and of the configuration's own lists.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Totals {
    pub delayed: u64,
    pub shadow_denied: u64,
    pub denied_by_list: u64,
    pub subject_absent: u64,
    pub subject_ambiguous: u64,
    pub model_unknown: u64,
    pub exempt: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Tally {
    /// The values of the metrics of all policies and limits.
    pub counts: Vec<u64>,
    /// The places of each policy in them.
    policies: Vec<PolicyPlaces>,
    pub totals: Totals,
    /// The subjects that are denied most, and those that use most, if the configuration asks for them.
    pub top_denied: Option<Top>,
    pub top_used: Option<Top>,
    /// Present if the configuration asks for it.
    pub usage: Option<Usage>,
    /// The number of counted decisions.
    pub count: u64,
}

impl Tally {
    pub fn new(config: &Config, seed: u64) -> Self {
        let (policies, count) = lay_out(config, &mut |_, _| {});
        Self {
            counts: vec![0; count],
            policies,
            totals: Totals::default(),
            usage: Usage::new(config, seed),
            top_denied: config.top_denied.map(|settings| Top::new(settings, seed)),
            top_used: config.top_used.map(|settings| Top::new(settings, seed)),
            count: 0,
        }
    }

    /// A policy has answered about a request. `has_no_place`: the request may pass after a time, and is rejected because too many others
    /// are held already.
    pub fn answered(&mut self, check: &Check, answer: &CheckAnswer, has_no_place: bool) {
        let Some(policy) = self.policies.get(check.policy) else { return };
        if check.ban_only && answer.decision().is_none_or(|decision| decision.granted) {
            return;
        }
        let is_enforced = match check.mode {
            Mode::Enforce => true,
            Mode::Shadow => false,
            Mode::QuotaRequest => return,
        };
        let (source, decision) = match answer {
            CheckAnswer::Store(decision) => (Source::Redis, Some(decision)),
            CheckAnswer::Lease(decision) => (Source::Lease, Some(decision)),
            CheckAnswer::DeniedUntil(decision) => (Source::DeniedUntil, Some(decision)),
            CheckAnswer::Local(decision) => (Source::Local, Some(decision)),
            CheckAnswer::Unavailable => (Source::OnFailure, None),
        };
        let outcome = match decision {
            None if is_enforced && policy.denies_unanswered => Outcome::Denied,
            None => Outcome::Allowed,
            Some(decision) if !decision.granted && !is_enforced => Outcome::ShadowDenied,
            Some(decision) if !decision.granted && decision.is_banned() => Outcome::Banned,
            Some(decision) if !decision.granted => Outcome::Denied,
            Some(decision) if is_enforced && decision.delay > Micros::ZERO => {
                if has_no_place {
                    Outcome::Denied
                } else {
                    Outcome::Delayed
                }
            }
            Some(_) => Outcome::Allowed,
        };
        add(self.counts.get_mut(policy.requests(outcome, source)));
        self.count = self.count.wrapping_add(1);
        let Some(decision) = decision else { return };
        if let Some(tier) = policy.tiers.get(check.tier) {
            // A local share is not the limit.
            let is_of_limit = source != Source::Local;
            count(&mut self.counts, tier, (check, decision), (is_enforced, is_of_limit));
        }
        if decision.granted {
            return;
        }
        if !is_enforced {
            add(Some(&mut self.totals.shadow_denied));
        }
        if let Some(top) = &mut self.top_denied {
            top.add(&check.tag, 1);
        }
    }

    /// So many units of a check were reserved, charged or refunded, of what was granted at this time of the store.
    pub fn units(&mut self, check: &Check, kind: UnitKind, units: u64, granted_at: Micros) {
        if check.mode == Mode::QuotaRequest {
            return;
        }
        let (taken, requests) = match kind {
            UnitKind::Reserved => (units.cast_signed(), 1),
            UnitKind::Charged => (units.cast_signed(), 0),
            UnitKind::Refunded => (units.cast_signed().saturating_neg(), 0),
        };
        if let Some(top) = self.top_used.as_mut().filter(|_| units > 0) {
            match kind {
                UnitKind::Reserved | UnitKind::Charged => top.add(&check.tag, units),
                UnitKind::Refunded => top.refunded(&check.tag, units),
            }
        }
        if let Some(usage) = &mut self.usage {
            usage.add(check, granted_at, Used { units: taken, requests });
        }
        let tier = self.policies.get(check.policy).and_then(|policy| policy.tiers.get(check.tier));
        if let Some(count) = tier.and_then(|tier| self.counts.get_mut(kind.at(tier.units))) {
            *count = count.wrapping_add(units);
            self.count = self.count.wrapping_add(1);
        }
    }

    /// A request that was charged, at this time of the store, was rejected all the same.
    pub fn rejected(&mut self, check: &Check, granted_at: Micros) {
        if let Some(usage) = &mut self.usage {
            usage.add(check, granted_at, Used { units: 0, requests: -1 });
        }
    }

    /// The configuration has decided this about a request without asking the store.
    pub fn unasked(&mut self, unasked: &Unasked) {
        for (policy, ruling) in unasked {
            self.count = self.count.wrapping_add(1);
            let (outcome, source) = match ruling {
                UnaskedRuling::Exempt => (Outcome::Exempt, Source::List),
                UnaskedRuling::Denied(denial) => (Outcome::Denied, source_of(*denial)),
                UnaskedRuling::ShadowDenied(denial) => (Outcome::ShadowDenied, source_of(*denial)),
                // It is no decision.
                UnaskedRuling::UnreadableBody => continue,
            };
            let policy = policy.and_then(|policy| self.policies.get(policy));
            let is_global = policy.is_none();
            if let Some(policy) = policy {
                add(self.counts.get_mut(policy.requests(outcome, source)));
            }
            let totals = &mut self.totals;
            add(match (outcome, source) {
                (Outcome::Exempt, _) => is_global.then_some(&mut totals.exempt),
                (Outcome::ShadowDenied, _) => Some(&mut totals.shadow_denied),
                (_, Source::Absent) => Some(&mut totals.subject_absent),
                (_, Source::Ambiguous) => Some(&mut totals.subject_ambiguous),
                (_, Source::Model) => Some(&mut totals.model_unknown),
                _ => Some(&mut totals.denied_by_list),
            });
        }
    }
}

/// Counts a decision under the limits of its tier.
fn count(
    counts: &mut [u64],
    tier: &TierPlaces,
    (check, decision): (&Check, &Decision),
    (is_enforced, is_of_limit): (bool, bool),
) {
    // A ban denies before any limit is asked.
    if decision.is_banned() {
        return;
    }
    let denial = if is_enforced { Outcome::Denied } else { Outcome::ShadowDenied };
    for (place, (status, limit)) in decision.limits.iter().zip(&tier.limits).enumerate() {
        if is_of_limit {
            let own = decision.own.as_ref().and_then(|own| own.get(place));
            // A scaled limit is no larger than a limit may be.
            let scaled = limit.view.scaled(check.scale);
            let own = own.or(scaled.as_ref());
            let quota = own.map_or_else(|| limit.quota.wrapping_mul(check.scale), Limit::quota);
            // The remaining units do not include those that are kept for other requests.
            let quota = check.ask(1).open(quota);
            add(counts.get_mut(Fullness::of(quota, status.remaining).at(limit.asked)));
            let used = limit.warn_at.and_then(|warn_at| warn_at.used(quota, status.remaining));
            add(used.filter(|_| decision.granted).and_then(|_| counts.get_mut(limit.warned)));
        }
        let allows = decision.granted || status.retry_after == RetryAfter::Now;
        let outcome = if allows { Outcome::Allowed } else { denial };
        add(counts.get_mut(outcome.at(limit.requests)));
    }
}

fn add(count: Option<&mut u64>) {
    if let Some(count) = count {
        *count = count.wrapping_add(1);
    }
}

const fn source_of(denial: Denial) -> Source {
    match denial {
        Denial::Listed(_) => Source::List,
        Denial::Absent(_) => Source::Absent,
        Denial::Ambiguous(_) => Source::Ambiguous,
        Denial::UnknownModel(_) => Source::Model,
    }
}
