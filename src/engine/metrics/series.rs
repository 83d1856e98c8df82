// SPDX-License-Identifier: Apache-2.0
//! The metrics of each policy and limit: which there are, for a configuration.

use crate::config::Config;
use crate::inline_vec::InlineVec;
use crate::limit::Limit;
use crate::policy::subject::OnMissing;
use crate::policy::{Mode, OnFailure, Policy};
use crate::response::LimitView;
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

/// The number of cells of a policy: one for each outcome and source, also for those that never meet.
pub const POLICY_CELLS: usize = Outcome::ALL.len() * Source::ALL.len();

/// The cell of a policy for an outcome and a source.
pub(super) const fn cell(outcome: Outcome, source: Source) -> usize {
    (outcome as usize).saturating_mul(Source::ALL.len()).saturating_add(source as usize)
}

/// The outcomes of limits, by the names that they have in metrics.
pub const LIMIT_OUTCOMES: [Outcome; 3] = [Outcome::Allowed, Outcome::Denied, Outcome::ShadowDenied];

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

/// At most this many limits have metrics of their own, those of each tier counted. Further limits count only under their policy.
pub const MAX_LIMIT_SERIES: usize = 2_048;

/// One metric.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Series {
    /// The requests that a policy decided so.
    Policy { policy: usize, outcome: Outcome, source: Source },
    /// The requests that a limit decided with this outcome. Tiers may have limits of the same name; they count together.
    Limit { policy: usize, outcome: Outcome, limits: InlineVec<(usize, usize)> },
    /// The units of a tier.
    Units { policy: usize, tier: usize, kind: UnitKind },
    /// The requests that found a limit of a tier so full.
    Asked { policy: usize, tier: usize, limit: usize, full: Fullness },
    /// The requests that passed and left a limit of a tier as full as its `warn_at_percent`.
    Warned { policy: usize, tier: usize, limit: usize },
}

impl Series {
    /// All of a configuration, always in the same order.
    pub fn of(config: &Config) -> Vec<Self> {
        let mut all = Vec::new();
        for (index, policy) in config.policies.iter().enumerate() {
            let can = Can::of(policy);
            for &outcome in Outcome::ALL {
                let sources = Source::ALL.iter().filter(|source| can.decide(outcome, **source));
                all.extend(sources.map(|&source| Self::Policy { policy: index, outcome, source }));
            }
        }
        for (index, policy) in config.policies.iter().enumerate() {
            for tier in 0..policy.tiers.tiers.len() {
                all.extend(UnitKind::ALL.iter().map(|&kind| Self::Units { policy: index, tier, kind }));
            }
        }
        let mut limits = 0_usize;
        for (index, policy) in config.policies.iter().enumerate() {
            let can = Can::of(policy);
            for (_, places) in named_limits(policy) {
                limits = limits.saturating_add(places.iter().count());
                if limits > MAX_LIMIT_SERIES {
                    log::warn!(
                        "more than {MAX_LIMIT_SERIES} limits: the others have no metrics of their own"
                    );
                    return all;
                }
                for outcome in LIMIT_OUTCOMES.into_iter().filter(|outcome| can.limit_decides(*outcome)) {
                    all.push(Self::Limit { policy: index, outcome, limits: places.clone() });
                }
                for &(tier, limit) in places.iter() {
                    let asked = |&full| Self::Asked { policy: index, tier, limit, full };
                    all.extend(Fullness::ALL.iter().map(asked));
                    let view = policy.tiers.tiers.get(tier).and_then(|tier| tier.views.get(limit));
                    if view.and_then(LimitView::warn_at).is_some() {
                        all.push(Self::Warned { policy: index, tier, limit });
                    }
                }
            }
        }
        all
    }
}

/// The names of a policy's limits, each with its places: tier and limit.
fn named_limits(policy: &Policy) -> Vec<(&str, InlineVec<(usize, usize)>)> {
    let mut named: Vec<(&str, InlineVec<(usize, usize)>)> = Vec::new();
    for (tier, of) in policy.tiers.tiers.iter().enumerate() {
        for (limit, view) in of.views.iter().enumerate() {
            let name = view.own_name();
            match named.iter_mut().find(|(other, _)| *other == name) {
                Some((_, places)) => places.push((tier, limit)),
                None => named.push((name, [(tier, limit)].into_iter().collect())),
            }
        }
    }
    named
}

/// The decisions that are possible for a policy, so that no metric is defined that always stays 0.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools)]
struct Can {
    enforce: bool,
    shadow: bool,
    lease: bool,
    ban: bool,
    delay: bool,
    deny: bool,
    exempt: bool,
    lack: bool,
    model: bool,
    on_failure: OnFailure,
}

impl Can {
    fn of(policy: &Policy) -> Self {
        let is_enforced = policy.mode == Mode::Enforce;
        let tiers = &policy.tiers.tiers;
        let delays = |limit: &Limit| matches!(limit, Limit::LeakyBucket(of) if of.max_delay() > Micros::ZERO);
        Self {
            enforce: is_enforced,
            shadow: !is_enforced || policy.enforce_percent < 100,
            lease: policy.lease.is_some(),
            ban: tiers.iter().any(|tier| tier.plan.ban().is_some()),
            delay: tiers.iter().any(|tier| tier.plan.limits().iter().any(delays)),
            deny: !policy.deny.conditions().is_empty(),
            exempt: !policy.exempt.conditions().is_empty(),
            lack: policy.parts().any(|(_, part)| part.on_missing == OnMissing::Deny),
            model: policy.may_deny_models(),
            on_failure: policy.on_failure,
        }
    }

    fn decide(self, outcome: Outcome, source: Source) -> bool {
        let by_failure = |word| source == Source::OnFailure && self.on_failure == word;
        let by_store = match source {
            Source::Redis => true,
            Source::Local => self.on_failure == OnFailure::Local,
            _ => false,
        };
        let by_memory = by_store || source == Source::DeniedUntil;
        let by_lease = source == Source::Lease && self.lease;
        let unasked = match source {
            Source::List => self.deny,
            Source::Absent => self.lack,
            Source::Ambiguous => true,
            Source::Model => self.model,
            _ => false,
        };
        match outcome {
            Outcome::Allowed => {
                by_store
                    || by_lease
                    || by_failure(OnFailure::Allow)
                    || self.shadow && by_failure(OnFailure::Deny)
            }
            Outcome::Delayed => self.enforce && self.delay && by_store,
            Outcome::Denied => self.enforce && (by_memory || by_failure(OnFailure::Deny) || unasked),
            Outcome::Banned => {
                self.enforce && self.ban && matches!(source, Source::Redis | Source::DeniedUntil)
            }
            Outcome::ShadowDenied => self.shadow && (by_memory || unasked),
            Outcome::Exempt => self.exempt && source == Source::List,
        }
    }

    const fn limit_decides(self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Denied => self.enforce,
            Outcome::ShadowDenied => self.shadow,
            _ => true,
        }
    }
}
