// SPDX-License-Identifier: Apache-2.0
//! The metrics of each policy and limit: which there are, for a configuration, and where the tally counts each.

use crate::config::Config;
use crate::limit::Limit;
use crate::policy::subject::OnMissing;
use crate::policy::{Mode, OnFailure, Policy};
use crate::response::{LimitView, WarnAt};
use crate::time::Micros;

/// Declares what a label of metrics may be: a variant for each of its values, by the names that they have in metrics.
macro_rules! label {
    ($(#[$doc:meta])* $label:ident: $($variant:ident = $name:literal, $meaning:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $label {
            $(#[doc = $meaning] $variant,)*
        }

        impl $label {
            pub(super) const ALL: &[Self] = &[$(Self::$variant),*];

            /// The place of its count, if those of all values begin at `first`.
            pub(super) const fn at(self, first: usize) -> usize {
                first.wrapping_add(self as usize)
            }

            /// Its name in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

label! {
    /// The decision of a policy about a request. Another policy may have rejected it all the same.
    Outcome:
    Allowed = "allowed", "It may pass.";
    Delayed = "delayed", "It may pass after a time.";
    Denied = "denied", "It is denied.";
    Banned = "banned", "It is denied because of a ban.";
    ShadowDenied = "shadow_denied", "It would be denied, but the policy is in shadow, or the subject outside `enforce_percent`.";
    Exempt = "exempt", "The policy's `exempt` list lets it pass.";
}

label! {
    /// The source of a decision.
    Source:
    Redis = "redis", "Redis.";
    Lease = "lease", "A lease of the worker.";
    DeniedUntil = "denied-until", "An earlier denial, whose time has not come.";
    Local = "local", "The worker's share, because Redis did not answer.";
    OnFailure = "on_failure", "`on_failure`, because Redis did not answer.";
    List = "list", "A `deny` or `exempt` list.";
    Absent = "absent", "The subject lacks a part.";
    Ambiguous = "ambiguous", "A part of the subject is ambiguous.";
    Model = "model", "No price is known for the model.";
}

label! {
    /// The reason of a change in the units of a limit.
    UnitKind:
    Reserved = "reserved", "Requests took them when they were granted.";
    Charged = "charged", "Responses cost so many more than was reserved.";
    Refunded = "refunded", "They came back: the request was rejected all the same, or cost less.";
}

label! {
    /// The usage of a subject's limit at the request that asked, in percent.
    Fullness:
    Half = "50", "At most 50.";
    Most = "80", "More, and at most 80.";
    Nearly = "95", "More, and at most 95.";
    All = "100", "More than 95.";
}

impl Fullness {
    /// The fullness of a limit of `quota` units with `left` of them left.
    pub(super) const fn of(quota: u64, left: u64) -> Self {
        let used = quota.saturating_sub(left);
        if used <= left {
            Self::Half
        } else if used.saturating_mul(5) <= quota.saturating_mul(4) {
            Self::Most
        } else if used.saturating_mul(20) <= quota.saturating_mul(19) {
            Self::Nearly
        } else {
            Self::All
        }
    }
}

/// The value of a metric.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Value {
    /// The tally counts it at this place.
    Count(usize),
    /// It is always this.
    Constant(u64),
}

/// Escapes a name of the configuration as a part of a metric's name. Dots separate these parts, so a dot becomes `%2E`. No other character
/// of a name has a meaning there, and `%` is in none, so no two names become one.
#[must_use]
pub fn escaped(name: &str) -> String {
    name.replace('.', "%2E")
}

/// At most this many limits have metrics of their own, those of each tier counted. Further limits count only under their policy.
pub const MAX_LIMIT_SERIES: usize = 2_048;

/// The first place of the counts of a policy, and what the tally has to know of it.
#[derive(Debug)]
pub(in crate::engine) struct PolicyPlaces {
    first: usize,
    pub tiers: Vec<TierPlaces>,
    pub denies_unanswered: bool,
}

impl PolicyPlaces {
    /// The place of an outcome and a source. There are places also for those that never meet.
    pub const fn requests(&self, outcome: Outcome, source: Source) -> usize {
        source.at(self.first.wrapping_add((outcome as usize).wrapping_mul(Source::ALL.len())))
    }
}

/// The first place of the units of a tier, for each [`UnitKind`].
#[derive(Debug)]
pub(in crate::engine) struct TierPlaces {
    pub units: usize,
    pub limits: Vec<LimitPlaces>,
}

/// The places of a limit of a tier, and what the tally has to know of it.
#[derive(Debug)]
pub(in crate::engine) struct LimitPlaces {
    /// The number of units in the configuration.
    pub quota: u64,
    pub view: LimitView,
    /// The fullness for a warning, and the place of the requests with one.
    pub warn_at: Option<WarnAt>,
    pub warned: usize,
    /// The first for each [`Fullness`].
    pub asked: usize,
    /// The first for each [`Outcome`]. Limits of the same name in several tiers count together.
    pub requests: usize,
}

/// Gives a place to each count of a configuration, and passes on each metric that it has: its name and its value. Returns the places, and
/// their number.
pub(in crate::engine) fn lay_out(
    config: &Config,
    add: &mut dyn FnMut(&[&str], Value),
) -> (Vec<PolicyPlaces>, usize) {
    let (mut count, mut limits) = (0_usize, 0_usize);
    let mut take = |places: usize| {
        let first = count;
        count = count.saturating_add(places);
        first
    };
    let mut policies = Vec::new();
    for policy in &config.policies {
        let mut of_policy = PolicyPlaces {
            first: take(Outcome::ALL.len().saturating_mul(Source::ALL.len())),
            tiers: Vec::new(),
            denies_unanswered: policy.on_failure == OnFailure::Deny,
        };
        let name = ["weir.policy.", &escaped(&policy.name)].concat();
        for &outcome in Outcome::ALL {
            for &source in Source::ALL.iter().filter(|source| decides(policy, outcome, **source)) {
                let parts = [&name, ".requests.", outcome.name(), ".", source.name()];
                add(&parts, Value::Count(of_policy.requests(outcome, source)));
            }
        }
        let mut named: Vec<(&str, usize)> = Vec::new();
        for tier in &policy.tiers.tiers {
            let separator = if tier.name.is_empty() { "" } else { ".tier." };
            let tier_name = [&*name, separator, &escaped(&tier.name)].concat();
            let mut of_tier = TierPlaces { units: take(UnitKind::ALL.len()), limits: Vec::new() };
            for kind in UnitKind::ALL {
                add(&[&tier_name, ".units_", kind.name()], Value::Count(kind.at(of_tier.units)));
            }
            for (limit, view) in tier.plan.limits().iter().zip(&tier.views) {
                let known = named.iter().find(|(other, _)| *other == view.own_name()).map(|(_, of)| *of);
                let of = LimitPlaces {
                    quota: limit.quota(),
                    view: view.clone(),
                    warn_at: view.warn_at(),
                    warned: take(1),
                    asked: take(Fullness::ALL.len()),
                    requests: known.unwrap_or_else(|| take(Outcome::ALL.len())),
                };
                limits = limits.saturating_add(1);
                if limits <= MAX_LIMIT_SERIES {
                    let own = [".limit.", &escaped(view.own_name())].concat();
                    let decided = [Outcome::Allowed, Outcome::Denied, Outcome::ShadowDenied].into_iter();
                    let decided =
                        decided.filter(|outcome| known.is_none() && decides(policy, *outcome, Source::Redis));
                    for outcome in decided {
                        let value = Value::Count(outcome.at(of.requests));
                        add(&[&name, &own, ".requests.", outcome.name()], value);
                    }
                    for full in Fullness::ALL {
                        add(&[&tier_name, &own, ".asked.", full.name()], Value::Count(full.at(of.asked)));
                    }
                    if of.warn_at.is_some() {
                        add(&[&tier_name, &own, ".warned"], Value::Count(of.warned));
                    }
                    add(&[&tier_name, &own, ".size"], Value::Constant(of.quota));
                }
                named.push((view.own_name(), of.requests));
                of_tier.limits.push(of);
            }
            of_policy.tiers.push(of_tier);
        }
        policies.push(of_policy);
    }
    if limits > MAX_LIMIT_SERIES {
        log::warn!("more than {MAX_LIMIT_SERIES} limits: the others have no metrics of their own");
    }
    (policies, count)
}

/// True if a request may be decided so, from there: no metric is defined that always stays 0.
fn decides(policy: &Policy, outcome: Outcome, source: Source) -> bool {
    let enforces = policy.mode == Mode::Enforce;
    // These are denied without a subject.
    let of_all = matches!(source, Source::List | Source::Absent | Source::Ambiguous);
    let shadows = !enforces || policy.enforce_percent < 100 && !of_all;
    let mut plans = policy.tiers.tiers.iter().map(|tier| &tier.plan);
    let delays = |limit: &Limit| matches!(limit, Limit::LeakyBucket(of) if of.max_delay() > Micros::ZERO);
    let denies = match source {
        Source::Redis | Source::DeniedUntil | Source::Ambiguous => true,
        Source::Lease => false,
        Source::Local => policy.on_failure == OnFailure::Local,
        Source::OnFailure => policy.on_failure == OnFailure::Deny,
        Source::List => !policy.deny.conditions().is_empty(),
        Source::Absent => policy.parts().any(|(_, part)| part.on_missing == OnMissing::Deny),
        Source::Model => policy.may_deny_models(),
    };
    match (outcome, source) {
        (Outcome::Allowed, Source::Redis | Source::Local) => denies,
        (Outcome::Allowed, Source::Lease) => policy.lease.is_some(),
        (Outcome::Allowed, Source::OnFailure) => policy.on_failure == OnFailure::Allow || denies && shadows,
        (Outcome::Delayed, Source::Redis | Source::Local) => {
            enforces && denies && plans.any(|plan| plan.limits().iter().any(delays))
        }
        (Outcome::Denied, _) => enforces && denies,
        (Outcome::Banned, Source::Redis | Source::DeniedUntil) => {
            enforces && plans.any(|plan| plan.ban().is_some())
        }
        (Outcome::ShadowDenied, _) => shadows && denies && source != Source::OnFailure,
        (Outcome::Exempt, Source::List) => !policy.exempt.conditions().is_empty(),
        (Outcome::Allowed | Outcome::Delayed | Outcome::Banned | Outcome::Exempt, _) => false,
    }
}
