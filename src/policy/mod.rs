// SPDX-License-Identifier: Apache-2.0
//! Policies: which requests are limited, which of them share a limit, and how much each request takes. This module decides what
//! to ask the store, or that the store need not be asked.

pub mod cost;
pub mod credential;
pub mod index;
pub mod key;
pub mod list;
pub mod matcher;
pub mod normal;
pub mod pattern;
pub mod scale;
pub mod settle;
pub mod subject;
pub mod usage;

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use cost::Cost;
use key::Tag;
use list::Conditions;
use matcher::{Condition, OnAmbiguity};
use scale::{Scale, ScaledPlans};
use settle::{Settle, TrueCost};
use subject::{OnMissing, SubjectPart, Value};

use usage::Prices;

use crate::decision::{CheckAnswer, Decision};
use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Limit, Member, Outcome};
use crate::request::Request;
use crate::response::{Counts, LimitView, PolicyAnswer, Settings};
use crate::script::Plan;
use crate::time::Micros;

/// A policy: the requests it applies to, the subjects that share a limit, and the limits.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The name under which its limits count, in keys: its own, or one that it shares with policies of the same limits.
    pub counters: String,
    /// The condition for the requests it applies to.
    pub matcher: Condition,
    /// Matching requests to deny without asking the store.
    pub deny: Conditions,
    /// Matching requests to admit without asking the store.
    pub exempt: Conditions,
    /// The parts of its subjects; from 1 to 8.
    pub subject: Vec<SubjectPart>,
    /// The parts of the value that its `distinct` limits count; none if it has no such limit.
    pub members: Vec<SubjectPart>,
    /// The place of these parts within the policy: `limits[0].of`.
    pub members_path: String,
    /// Costs of the requests that meet a condition; the first that does counts.
    pub costs: Vec<(Condition, Cost)>,
    /// The cost of any other request.
    pub cost: Cost,
    /// Shares of each limit, in percent, that are kept for the requests that meet a condition. A request belongs to the class of
    /// the first that holds, and may use all that is not kept for the classes before it.
    pub priority: Vec<(Condition, u8)>,
    /// The rules by which the true cost of a request is read from its response.
    pub settle: Settle,
    /// The prices of tokens by model, if there are any, and `true` if the body of a request is read because it names the model.
    pub prices: Option<(Rc<Prices>, bool)>,
    /// The factor of the limits of its subjects, if subjects differ in it.
    pub scale: Option<Scale>,
    /// The limits to choose from; at least one tier.
    pub tiers: Tiers,
    /// The effect of a denial.
    pub mode: Mode,
    /// The percentage of subjects for which denials are enforced.
    pub enforce_percent: u8,
    /// The policies whose bans deny its requests, too: indices into the configuration's. They have the same subjects.
    pub closed_by: Vec<usize>,
    /// The lease of requests that are reserved in advance, if there is one.
    pub lease: Option<Lease>,
    /// The way in which its limits hold across regions.
    pub regions: Across,
    /// True if the usage of its subjects is written to the usage journal.
    pub usage_journal: bool,
    /// The decision if the store does not answer.
    pub on_failure: OnFailure,
    /// The responses to its decisions.
    pub response: Settings,
}

/// The most percent of a limit that are kept for the requests of some classes: something is for all requests.
pub const MAX_KEPT: u8 = 99;

/// The effect of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The request is rejected.
    Enforce,
    /// The denial is counted and reported, and the request continues.
    Shadow,
    /// Nothing: the client only asks what is left. Nothing is taken.
    QuotaRequest,
}

/// The decision for a request that the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is admitted.
    Allow,
    /// It is rejected.
    Deny,
    /// This worker limits by itself.
    Local,
}

/// The way in which the limits of a policy hold across regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Across {
    /// They do not: this region's store counts alone.
    #[default]
    Apart,
    /// One store counts for all: an index into the configuration's.
    Home(u8),
    /// This region's store decides. Its grants are charged in the other regions afterwards.
    Debit,
    /// Each region has a part of every limit, and borrows from the others what they do not need.
    Share,
}

impl Across {
    /// The store that decides: an index into the configuration's.
    #[must_use]
    pub const fn store(self) -> u8 {
        match self {
            Self::Home(store) => store,
            Self::Apart | Self::Debit | Self::Share => 0,
        }
    }
}

/// The number of requests of one subject that a worker may reserve in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The most that a worker holds.
    pub max: u32,
    /// The fewest that it takes at a time.
    pub min: u32,
    /// The duration of a lease.
    pub duration: Micros,
    /// It is `auto`: the limits say how many.
    pub is_auto: bool,
}

impl Lease {
    /// The lease of `auto` before the limits are known. With half this duration 10,000 workers admit hardly less above the limit while
    /// traffic grows; with a fifth of it, a worker's share of the requests is too small for a lease, and they use a whole core of Redis.
    pub const AUTO: Self = Self { max: 0, min: 0, duration: Micros::from_millis(500), is_auto: true };

    /// Under `auto` a worker holds at most what comes back of a limit in this time. So of one subject, all workers together
    /// get 25,000 leases a second at most.
    const EVERY: Micros = Micros(40);

    /// Under `auto` a worker holds at most this part of a limit.
    const PART: u64 = 100;

    /// Under `auto` a lease has this many requests at first, unless a worker may hold only fewer.
    const FIRST: u32 = 8;

    /// Returns the lease of `auto` under these limits, for requests of this cost; `None` if it reserves nothing in advance.
    #[must_use]
    pub fn auto(limits: &[Limit], cost: u64) -> Option<Self> {
        let units =
            limits.iter().map(|limit| limit.flow(Self::EVERY).min(limit.quota() / Self::PART)).min()?;
        let max = u32::try_from(units.checked_div(cost)?).unwrap_or(u32::MAX);
        (max >= 2).then(|| Self { max, min: max.min(Self::FIRST), ..Self::AUTO })
    }
}

/// The permit queue of a `concurrency` limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// The maximum wait, from the arrival of the request.
    pub max_wait: Micros,
    /// The most waiting requests of one subject in one worker.
    pub max_waiting: usize,
}

impl QueueSettings {
    /// Returns the smaller of both for each setting.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            max_wait: self.max_wait.min(other.max_wait),
            max_waiting: self.max_waiting.min(other.max_waiting),
        }
    }
}

/// The limits of a policy: one tier, or several to choose from by the request.
#[derive(Debug)]
pub struct Tiers {
    /// The part of the request that names the tier; `None` when there is only one tier.
    pub by: Option<SubjectPart>,
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
    pub plan: Rc<Plan>,
    /// Its limits at other scales.
    pub scaled: ScaledPlans,
    /// The number of workers among which limits are divided while the store is unavailable.
    pub workers: u32,
    /// The share of each limit that one worker keeps by itself then, in the same order.
    pub shares: Vec<Limit>,
    /// The part of each limit that clients see, in the same order.
    pub views: Vec<LimitView>,
    /// The queue of each limit, if it has one, in the same order.
    pub queues: Vec<Option<QueueSettings>>,
}

/// A check: what weir asks the store for one policy and one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The policy: an index into the configuration's.
    pub policy: usize,
    /// The tier: an index into the policy's.
    pub tier: usize,
    /// The hash tag of the subject's keys: `{policy|subject}`, where the policy is named as it counts.
    pub tag: Vec<u8>,
    /// The cost of the request in units; 0 asks without charging.
    pub cost: u64,
    /// The percentage of each limit that is kept for requests of other classes: see [`Policy::priority`].
    pub kept_percent: u8,
    /// The value that `distinct` limits count: see [`Policy::members`].
    pub member: Member,
    /// The factor of the limits: see [`Policy::scale`].
    pub scale: u64,
    /// The row of the prices of the model that the request names: see [`Policy::prices`].
    pub requested: Option<u16>,
    /// True if the request asks a language model for several answers.
    pub is_many: bool,
    /// The store that is asked: an index into the configuration's. 0 is that of this region.
    pub store: u8,
    /// The effect of a denial, for this subject.
    pub mode: Mode,
    /// True if only the ban of the subject counts: the request is one of a policy that the ban closes. Nothing is charged.
    pub ban_only: bool,
}

impl Check {
    /// One unit of a subject under this policy's first tier, with its limits as they are configured. The store of this region is
    /// asked, and a denial is enforced.
    #[must_use]
    pub fn one(policy: usize, tag: impl Into<Vec<u8>>) -> Self {
        let tag = tag.into();
        let (kept_percent, member, scale, requested, mode) = (0, Member::NONE, 1, None, Mode::Enforce);
        let (is_many, store, ban_only) = (false, 0, false);
        let (tier, cost) = (0, 1);
        Self {
            policy,
            tier,
            tag,
            cost,
            kept_percent,
            member,
            scale,
            requested,
            is_many,
            store,
            mode,
            ban_only,
        }
    }

    /// True if what is granted is charged.
    #[must_use]
    pub fn is_charged(&self) -> bool {
        self.mode != Mode::QuotaRequest && !self.ban_only
    }

    /// The decision about request `index` of those asked about together.
    #[must_use]
    pub fn decision(&self, outcome: &Outcome, limits: &[Limit], index: u32, ask: Ask) -> Decision {
        if self.ban_only { Decision::by_ban(outcome) } else { Decision::new(outcome, limits, index, ask) }
    }

    /// Returns the check of the limits for this many such requests.
    #[must_use]
    pub const fn ask(&self, requests: u32) -> Ask {
        Ask { requests, cost: self.cost, kept_percent: self.kept_percent, member: self.member }
    }

    /// True if both are for the same subject and limits, whatever their costs, classes and values.
    #[must_use]
    pub fn has_the_subject_of(&self, other: &Self) -> bool {
        let subject = |check: &Self| (check.policy, check.tier, check.scale, check.store);
        subject(self) == subject(other) && self.tag == other.tag
    }

    /// The key of what is known about its subject.
    #[must_use]
    pub fn subject(self: &Rc<Self>) -> Subject {
        Subject(Rc::clone(self))
    }
}

/// The subject and the limits of a check, without its cost, class and value: requests that [differ only in these](Check::has_the_subject_of) have
/// the same state. A table by subjects that clients can give costs would grow with the costs.
#[derive(Clone, Debug)]
pub struct Subject(pub Rc<Check>);

impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        self.0.has_the_subject_of(&other.0)
    }
}

impl Eq for Subject {}

impl Hash for Subject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0.tag);
    }
}

/// Hashes the fields that clients choose freely. The tag names the policy, and a subject has few tiers, modes, classes and scales.
impl Hash for Check {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.tag);
        state.write_u64(self.cost);
        if self.member != Member::NONE {
            state.write(&self.member.0);
        }
    }
}

/// The reason for which a request is denied without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It meets this condition of the deny list.
    Listed(usize),
    /// It lacks this part: see [`part_place`].
    Absent(usize),
    /// This part is not known: see [`Value::Ambiguous`].
    Ambiguous(usize),
    /// Its cost depends on its model, and the table of prices does not have that, or the request does not say it. Has this mode for its
    /// subject.
    UnknownModel(Mode),
}

/// The number of the first part of [`Policy::members`]: those of the subject are numbered from 0.
pub const FIRST_OF_MEMBER: usize = 1 << 16;

/// The list of a part by its number, as in the configuration, and its place there.
#[must_use]
pub const fn part_place(number: usize) -> (&'static str, usize) {
    match number.checked_sub(FIRST_OF_MEMBER) {
        Some(place) => ("of", place),
        None => ("subject", number),
    }
}

/// The decision of one policy about a request, before the store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The policy does not apply to it.
    Unmatched,
    /// The request lacks this part, and the policy skips such requests: see [`part_place`].
    Skipped(usize),
    /// A quota request cannot have this part of the subject.
    Unknown(usize),
    /// It meets this condition of the exempt list.
    Exempt(usize),
    /// It is denied.
    Denied(Denial),
    /// The store is asked.
    Check(Check),
}

impl Policy {
    /// Returns the decision of this policy, at `index` of the configuration, about `request`.
    #[must_use]
    pub fn rule<'a>(&'a self, index: usize, request: &Request<'a>) -> Ruling {
        let ruling = || {
            let tag = match self.tag(request) {
                Ok(tag) => tag,
                Err(ruling) => return ruling,
            };
            // This comes before the cost, which may have to wait for a body.
            if self.denies_model(request) {
                return Ruling::Denied(Denial::UnknownModel(self.mode_of(&tag)));
            }
            if self.members.is_empty() {
                return Ruling::Check(self.check(index, request, tag));
            }
            self.rule_member(index, request, tag)
        };
        self.rule_before_subject(request).unwrap_or_else(ruling)
    }

    /// Returns the decision of this policy about `request` if its body cannot change that; `None` if it depends on the body, which has not
    /// arrived yet.
    #[must_use]
    pub fn rule_without_body<'a>(&'a self, index: usize, request: &Request<'a>) -> Option<Ruling> {
        request.without_body(|| self.rule(index, request)).or_else(|| {
            let applies = request.without_body(|| self.matcher.holds(request, OnAmbiguity::Holds));
            let listed =
                applies.filter(|applies| *applies).and_then(|_| self.deny.first_without_body(request));
            listed.map(|listed| Ruling::Denied(Denial::Listed(listed)))
        })
    }

    /// Returns the decision of this policy about a quota request for the request `asked`. The subject is that of the quota request,
    /// whatever it says about the other request: otherwise a client could name the subject of another client.
    #[must_use]
    pub fn rule_enquiry<'a, 'b>(&'a self, index: usize, asked: &Request<'b>, enquiry: &Request<'a>) -> Ruling
    where
        'a: 'b,
    {
        if let Some(ruling) = self.rule_before_subject(asked) {
            return ruling;
        }
        if let Some(part) = self.subject.iter().position(|part| part.source.is_of_target()) {
            return Ruling::Unknown(part);
        }
        match self.tag(enquiry) {
            // Its model is not known: that is in the body of the other request. Its value neither: it asks what is left for another one.
            Ok(tag) => {
                let check = self.check(index, asked, tag);
                // A policy in shadow shows clients nothing.
                let mode = if check.mode == Mode::Enforce { Mode::QuotaRequest } else { check.mode };
                Ruling::Check(Check { mode, ..check })
            }
            Err(ruling) => ruling,
        }
    }

    /// True if a denial without asking the store rejects the request.
    #[must_use]
    pub fn enforces(&self, denial: Denial) -> bool {
        let mode = if let Denial::UnknownModel(mode) = denial { mode } else { self.mode };
        mode == Mode::Enforce
    }

    /// Returns the decision of this policy about `request`, if it does not depend on the subject.
    fn rule_before_subject<'a>(&'a self, request: &Request<'a>) -> Option<Ruling> {
        if !self.matcher.holds(request, OnAmbiguity::Holds) {
            return Some(Ruling::Unmatched);
        }
        if let Some(listed) = self.deny.first(request, OnAmbiguity::Holds) {
            return Some(Ruling::Denied(Denial::Listed(listed)));
        }
        self.exempt.first(request, OnAmbiguity::Fails).map(Ruling::Exempt)
    }

    /// The hash tag of the subject of `sent`, or what the lack of one leads to.
    fn tag<'a>(&'a self, sent: &Request<'a>) -> Result<Vec<u8>, Ruling> {
        self::tag(&self.counters, &self.subject, 0, sent)
    }

    /// The same for a policy whose limits count the values of requests.
    #[cold]
    fn rule_member<'a>(&'a self, index: usize, request: &Request<'a>, tag: Vec<u8>) -> Ruling {
        let mut check = self.check(index, request, tag);
        if self.tiers.tiers.get(check.tier).is_some_and(|tier| tier.plan.counts_members()) {
            let subject = String::from_utf8_lossy(&check.tag);
            match self::tag(&subject, &self.members, FIRST_OF_MEMBER, request) {
                Ok(value) => check.member = key::member(&value),
                Err(ruling) => return ruling,
            }
        }
        Ruling::Check(check)
    }

    /// Its part of this number: see [`part_place`].
    #[must_use]
    pub fn part(&self, number: usize) -> Option<&SubjectPart> {
        match number.checked_sub(FIRST_OF_MEMBER) {
            Some(place) => self.members.get(place),
            None => self.subject.get(number),
        }
    }

    /// All parts of requests that it reads for keys and limits, and where each is in the configuration.
    pub fn parts(&self) -> impl Iterator<Item = (String, &SubjectPart)> {
        let subject = self.subject.iter().zip(0_usize..).map(|(part, at)| (format!("subject[{at}]"), part));
        let path = &self.members_path;
        subject
            .chain(self.members.iter().zip(0_usize..).map(move |(part, at)| (format!("{path}[{at}]"), part)))
    }

    /// Returns the effect of a denial for the subject of this tag.
    fn mode_of(&self, tag: &[u8]) -> Mode {
        let enforced = self.mode == Mode::Enforce
            && (self.enforce_percent >= 100 || key::percentile(tag) < self.enforce_percent);
        if enforced { Mode::Enforce } else { Mode::Shadow }
    }

    /// The row of the prices of the model that a request names; [`usage::NO_MODEL`], if it uses no tokens.
    fn requested<'a>(&'a self, request: &Request<'a>, uses_tokens: bool) -> Option<u16> {
        if uses_tokens && usage::is_free(request) {
            return Some(usage::NO_MODEL);
        }
        let (prices, reads_body) = self.prices.as_ref()?;
        usage::requested_row(prices, request, *reads_body)
    }

    /// Returns the check for the tier and the cost of `request`, and for the subject of this tag.
    fn check<'a>(&'a self, index: usize, request: &Request<'a>, tag: Vec<u8>) -> Check {
        let uses_tokens = self.settle.usages().next().is_some();
        Check {
            policy: index,
            tier: self.tiers.choose(request),
            mode: self.mode_of(&tag),
            tag,
            cost: self.cost_of(request),
            kept_percent: self.kept_from(self.class_of(request)),
            member: Member::NONE,
            scale: self.scale.as_ref().map_or(1, |scale| scale.of(request)),
            requested: self.requested(request, uses_tokens),
            is_many: uses_tokens && self.costs_of(request).any(|cost| cost.asks_many(request)),
            store: self.regions.store(),
            ban_only: false,
        }
    }

    /// Returns the check of its ban alone, for a request of a policy that the ban closes, which has this check. It is in shadow if one of
    /// both policies is.
    #[must_use]
    pub fn ban_check(&self, index: usize, closed: &Check) -> Check {
        let subject = closed.tag.iter().position(|byte| *byte == b'|');
        let subject = subject.and_then(|at| closed.tag.get(at..)).unwrap_or_default();
        let tag = [b"{", self.counters.as_bytes(), subject].concat();
        let mode = self.mode_of(&tag);
        Check {
            tier: self.tiers.default,
            cost: 0,
            store: self.regions.store(),
            mode: if mode == Mode::Enforce { closed.mode } else { mode },
            ban_only: true,
            ..Check::one(index, tag)
        }
    }
}

impl Policy {
    /// Shows the paths of the values of request bodies that it needs.
    pub fn body_paths<'a>(&'a self, show: &mut dyn FnMut(&'a str)) {
        let lists = [&self.deny, &self.exempt].into_iter().flat_map(|list| list.conditions());
        let conditions = lists.chain([&self.matcher]).chain(self.costs.iter().map(|(when, _)| when));
        let conditions = conditions.chain(self.priority.iter().map(|(when, _)| when));
        conditions.for_each(|condition| condition.body_paths(show));
        self.subject.iter().chain(&self.members).chain(&self.tiers.by).for_each(|part| part.body_paths(show));
        self.costs.iter().map(|(_, cost)| cost).chain([&self.cost]).for_each(|cost| cost.body_paths(show));
    }

    /// True if its limits count bytes of requests or responses: one of its costs does, and no other is in another unit.
    #[must_use]
    pub fn counts_bytes(&self) -> bool {
        let costs = self.costs.iter().map(|(_, cost)| cost).chain([&self.cost]);
        let true_costs = self.settle.cases.iter().map(|case| &case.cost);
        let mut units =
            costs.filter_map(Cost::is_in_bytes).chain(true_costs.filter_map(TrueCost::is_in_bytes));
        units.next() == Some(true) && units.all(|is_in_bytes| is_in_bytes)
    }

    /// True if its limits count requests: the cost depends neither on the request nor on its response.
    #[must_use]
    pub fn counts_requests(&self) -> bool {
        let mut costs = self.costs.iter().map(|(_, cost)| cost).chain([&self.cost]);
        let mut true_costs = self.settle.cases.iter().map(|case| &case.cost);
        costs.all(|cost| matches!(cost, Cost::Constant(_)))
            && true_costs.all(|cost| matches!(cost, TrueCost::Reserved | TrueCost::Constant(_)))
    }

    /// Returns the unit that its limits count, for the headers of providers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        if self.counts_requests() {
            return Counts::Requests;
        }
        let is_time = |cost: &TrueCost| matches!(cost, TrueCost::Shown(shown) if matches!(shown.source, settle::Source::Duration(_)));
        let mut costs = self.costs.iter().map(|(_, cost)| cost).chain([&self.cost]);
        let mut usages = self.settle.usages();
        let is_money = costs
            .any(|cost| matches!(cost, Cost::Usage(estimate) if estimate.prices.is_by_model()))
            || usages.any(|(usage, _)| usage.prices.is_by_model());
        let others =
            is_money || self.counts_bytes() || self.settle.cases.iter().any(|case| is_time(&case.cost));
        if others { Counts::Others } else { Counts::Tokens }
    }

    /// The class of `request`: an index into [`Policy::priority`]. One that can be read in several ways belongs to a class only if
    /// it does in all of them, so that no client gains by being ambiguous.
    #[must_use]
    pub fn class_of<'a>(&'a self, request: &Request<'a>) -> Option<usize> {
        self.priority.iter().position(|(when, _)| when.holds(request, OnAmbiguity::Fails))
    }

    /// Returns the percentage of each limit that requests of this class, or of none, may not use, because it is kept for other classes.
    #[must_use]
    pub fn kept_from(&self, class: Option<usize>) -> u8 {
        let before = self.priority.iter().take(class.unwrap_or(usize::MAX));
        before.fold(0, |sum: u8, (_, percent)| sum.saturating_add(*percent)).min(MAX_KEPT)
    }

    /// The cost of `request`: by the first condition that holds. A request that can be read in several ways has several.
    fn costs_of<'a>(&'a self, request: &Request<'a>) -> impl Iterator<Item = &'a Cost> {
        let cases = self.costs.iter().map(|(when, cost)| (Some(when), cost)).chain([(None, &self.cost)]);
        let mut is_certain = false;
        let possible = cases.map_while(move |(when, cost)| {
            let holds = |on_ambiguity| when.is_none_or(|when| when.holds(request, on_ambiguity));
            if is_certain {
                return None;
            }
            let may_hold = holds(OnAmbiguity::Holds);
            is_certain = may_hold && holds(OnAmbiguity::Fails);
            Some(may_hold.then_some(cost))
        });
        possible.flatten()
    }

    /// Returns the cost of `request`: the largest of its costs.
    fn cost_of<'a>(&'a self, request: &Request<'a>) -> u64 {
        // Most policies have one cost.
        if self.costs.is_empty() {
            return self.cost.of(request);
        }
        self.costs_of(request).map(|cost| cost.of(request)).max().unwrap_or(0)
    }

    /// True if any cost of `request` denies it for its model.
    fn denies_model<'a>(&'a self, request: &Request<'a>) -> bool {
        self.may_deny_models() && self.costs_of(request).any(|cost| cost.denies_model(request))
    }

    /// True if it denies requests of unknown models.
    #[must_use]
    pub fn may_deny_models(&self) -> bool {
        self.costs.iter().map(|(_, cost)| cost).chain([&self.cost]).any(Cost::may_deny_models)
    }
}

/// The tag of the values of these parts, or what the lack of one leads to. The first part has this number.
#[inline(never)]
fn tag<'a>(
    name: &str,
    parts: &'a [SubjectPart],
    first: usize,
    sent: &Request<'a>,
) -> Result<Vec<u8>, Ruling> {
    let mut tag = Tag::new(name);
    for (part, number) in parts.iter().zip(first..) {
        if part.add_kept(sent, &mut tag) {
            continue;
        }
        match (part.value(sent), part.on_missing) {
            (Value::Is(value), _) => part.add(&value, sent, &mut tag),
            (Value::Absent, OnMissing::Share) => tag.part(None),
            (Value::Absent, OnMissing::Skip) => return Err(Ruling::Skipped(number)),
            (Value::Absent, OnMissing::Deny) => return Err(Ruling::Denied(Denial::Absent(number))),
            (Value::Ambiguous, _) => return Err(Ruling::Denied(Denial::Ambiguous(number))),
        }
    }
    Ok(tag.finish())
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
            views: if check.ban_only { &[] } else { &tier.views },
            tag: &check.tag,
            kept_percent: check.kept_percent,
            scale: check.scale,
            is_enforced: check.mode != Mode::Shadow,
            is_quota_request: check.mode == Mode::QuotaRequest,
            denies_unanswered: policy.on_failure == OnFailure::Deny && !check.ban_only,
            answer,
        });
    }
    answers
}

impl Tier {
    /// Its limits, this many times as large.
    #[must_use]
    pub fn plan_at(&self, scale: u64) -> Rc<Plan> {
        self.scaled.plan(&self.plan, scale)
    }

    /// One worker's shares of them.
    #[must_use]
    pub fn shares_at(&self, scale: u64) -> Cow<'_, [Limit]> {
        if scale == 1 {
            return Cow::Borrowed(&self.shares);
        }
        self.plan_at(scale).limits().iter().map(|limit| limit.local_share(self.workers)).collect()
    }
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
