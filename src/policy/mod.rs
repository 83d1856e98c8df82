//! Policies: which requests are limited, which of them share a limit, and how much each request takes. This room decides what
//! to ask the store, or that the store need not be asked.

pub mod cost;
pub mod index;
pub mod key;
pub mod list;
pub mod matcher;
pub mod pattern;
pub mod settle;
pub mod subject;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cost::Cost;
use key::Tag;
use list::Conditions;
use matcher::{Condition, OnAmbiguity};
use settle::Settle;
use subject::{OnMissing, Part, Value};

use crate::decision::CheckAnswer;
use crate::inline_vec::InlineVec;
use crate::limit::Limit;
use crate::request::Request;
use crate::response::{LimitView, PolicyAnswer, Settings};
use crate::script::Plan;
use crate::time::Micros;

/// Which requests are limited, which of them share a limit, and how much is allowed.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The name under which its limits count, in keys: its own, or one that it shares with policies of the same limits.
    pub counters: String,
    /// Which requests it applies to.
    pub matcher: Condition,
    /// Matching requests to deny without asking the store.
    pub deny: Conditions,
    /// Matching requests to admit without asking the store.
    pub exempt: Conditions,
    /// The parts of its subjects; from 1 to 8.
    pub subject: Vec<Part>,
    /// Costs of the requests that meet a condition; the first that does counts.
    pub costs: Vec<(Condition, Cost)>,
    /// How many units any other request takes.
    pub cost: Cost,
    /// How the true cost of a request is told from its response.
    pub settle: Settle,
    /// The limits to choose from; at least one tier.
    pub tiers: Tiers,
    /// What a denial leads to.
    pub mode: Mode,
    /// For how many of a hundred subjects denials are enforced.
    pub enforce_percent: u8,
    /// How requests are taken in advance, if they are.
    pub lease: Option<Lease>,
    /// What happens when the store does not answer.
    pub on_failure: OnFailure,
    /// What clients see of its decisions.
    pub response: Settings,
}

/// What a denial leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The request is rejected.
    Enforce,
    /// It is counted and reported, and the request goes on.
    Shadow,
}

/// What happens to a request that the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is admitted.
    Allow,
    /// It is rejected.
    Deny,
    /// This worker limits by itself.
    Local,
}

/// How many requests of one subject a worker may take in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The most that a worker holds.
    pub max: u32,
    /// The fewest that it takes at a time.
    pub min: u32,
    /// For how long.
    pub duration: Micros,
}

/// The limits of a policy: one tier, or several to choose from by the request.
#[derive(Debug)]
pub struct Tiers {
    /// The part of the request that names the tier; `None` when there is only one tier.
    pub by: Option<Part>,
    /// The tier of requests that name no tier that exists: an index into `tiers`.
    pub default: usize,
    /// The tiers.
    pub tiers: Vec<Tier>,
}

/// A named set of limits.
#[derive(Debug)]
pub struct Tier {
    /// Its name; empty when the policy has one tier only.
    pub name: String,
    /// Its limits, as the store is asked about them.
    pub plan: Arc<Plan>,
    /// The share of each limit that one worker keeps by itself while the store is unavailable, in the same order.
    pub shares: Vec<Limit>,
    /// What clients see of each limit, in the same order.
    pub views: Vec<LimitView>,
}

/// What to ask of the store for one policy and one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which policy: an index into the configuration's.
    pub policy: usize,
    /// Which of its tiers.
    pub tier: usize,
    /// The hash tag of the subject's keys: `{policy|subject}`, where the policy is named as it counts.
    pub tag: Vec<u8>,
    /// How many units the request takes; 0 asks without taking.
    pub cost: u64,
    /// What a denial leads to, for this subject.
    pub mode: Mode,
}

impl Check {
    /// Whether both are about the same subject and limits, at whatever cost.
    #[must_use]
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        (self.policy, self.tier, &self.tag) == (other.policy, other.tier, &other.tag)
    }
}

/// What clients choose freely is hashed. The tag names the policy, and a subject has few tiers and modes.
impl Hash for Check {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.tag);
        state.write_u64(self.cost);
    }
}

/// Why a request is denied without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It meets this condition of the deny list.
    Listed(usize),
    /// It lacks this part of the subject.
    Absent(usize),
    /// This part of its subject is not known: see [`Value::Ambiguous`].
    Ambiguous(usize),
}

/// What one policy decides about a request, before the store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The policy does not apply to it.
    Unmatched,
    /// The request lacks this part of the subject, and the policy skips such requests.
    Skipped(usize),
    /// It meets this condition of the exempt list.
    Exempt(usize),
    /// It is denied.
    Denied(Denial),
    /// The store is asked.
    Check(Check),
}

impl Policy {
    /// What this policy, at `index` of the configuration, decides about `request`.
    #[must_use]
    pub fn rule<'a>(&'a self, index: usize, request: &Request<'a>) -> Ruling {
        if !self.matcher.holds(request, OnAmbiguity::Holds) {
            return Ruling::Unmatched;
        }
        if let Some(listed) = self.deny.first(request, OnAmbiguity::Holds) {
            return Ruling::Denied(Denial::Listed(listed));
        }
        if let Some(listed) = self.exempt.first(request, OnAmbiguity::Fails) {
            return Ruling::Exempt(listed);
        }
        let mut tag = Tag::new(&self.counters);
        for (index, part) in self.subject.iter().enumerate() {
            if part.add_kept(request, &mut tag) {
                continue;
            }
            match (part.value(request), part.on_missing) {
                (Value::Is(value), _) => part.add(&value, request, &mut tag),
                (Value::Absent, OnMissing::Share) => tag.part(None),
                (Value::Absent, OnMissing::Skip) => return Ruling::Skipped(index),
                (Value::Absent, OnMissing::Deny) => return Ruling::Denied(Denial::Absent(index)),
                (Value::Ambiguous, _) => return Ruling::Denied(Denial::Ambiguous(index)),
            }
        }
        let tag = tag.finish();
        let enforced = self.mode == Mode::Enforce
            && (self.enforce_percent >= 100 || key::percentile(&tag) < self.enforce_percent);
        Ruling::Check(Check {
            policy: index,
            tier: self.tiers.choose(request),
            tag: tag.into_bytes(),
            cost: self.cost_of(request),
            mode: if enforced { Mode::Enforce } else { Mode::Shadow },
        })
    }
}

impl Policy {
    /// How many units `request` takes: by the first condition that holds. A request that can be read in several ways costs the
    /// most that it does in any of them.
    fn cost_of<'a>(&'a self, request: &Request<'a>) -> u64 {
        let mut most = 0;
        for (when, cost) in &self.costs {
            if when.holds(request, OnAmbiguity::Holds) {
                most = cost.of(request).max(most);
                if when.holds(request, OnAmbiguity::Fails) {
                    return most;
                }
            }
        }
        self.cost.of(request).max(most)
    }
}

/// The answers to `checks` of `policies`, each with what its policy says about responses.
pub fn answers<'a>(
    policies: &'a [Policy],
    checks: impl Iterator<Item = (&'a Check, &'a CheckAnswer)>,
) -> InlineVec<PolicyAnswer<'a>> {
    let mut answers = InlineVec::new();
    for (check, answer) in checks {
        let Some(policy) = policies.get(check.policy) else { continue };
        let Some(tier) = policy.tiers.tiers.get(check.tier) else { continue };
        answers.push(PolicyAnswer {
            policy: &policy.name,
            settings: &policy.response,
            views: &tier.views,
            tag: &check.tag,
            is_enforced: check.mode == Mode::Enforce,
            denies_unanswered: policy.on_failure == OnFailure::Deny,
            answer,
        });
    }
    answers
}

impl Tiers {
    /// The tier of `request`: an index into [`Tiers::tiers`]. A request whose tier is not known has the default one.
    #[must_use]
    pub fn choose<'a>(&'a self, request: &Request<'a>) -> usize {
        let Some(Value::Is(name)) = self.by.as_ref().map(|by| by.value(request)) else {
            return self.default;
        };
        self.tiers.iter().position(|tier| tier.name.as_bytes() == name.as_ref()).unwrap_or(self.default)
    }
}
