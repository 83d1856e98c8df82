// SPDX-License-Identifier: Apache-2.0
//! The operator's JSON, made into a [`Config`] or into the list of everything that is wrong with it. A configuration that
//! loads cannot fail later: whatever could be wrong is found here.
//!
//! Each concept has one file. It declares the fields, with their defaults and their documentation; reads them into the types
//! of [`policy`](crate::policy); and checks what no declaration can express: parameters that do not go together, names that
//! do not exist.
//!
//! | file | fields |
//! |---|---|
//! | `document.rs` | the whole configuration |
//! | `store.rs` | `store`, and the words of `on_failure` |
//! | `client_address.rs` | `client_address`: trusted proxies |
//! | `policy.rs` | one of `policies` |
//! | `condition.rs` | `match`, `deny`, `exempt` |
//! | `subject.rs` | `subject` |
//! | `limits.rs`, `tiers.rs`, `names.rs` | `limits`, `tiers`, and the names by which clients know limits |
//! | `counters.rs` | `counters`: policies that count under one name |
//! | `request_body.rs` | `request_body` |
//! | `quota.rs` | `quota` |
//! | `journal.rs`, `usage_journal.rs` | `journal`, `usage_journal`, `top_denied`, `top_used` |
//! | `cost.rs`, `settle.rs` | `cost`, `costs`, `settle` |
//! | `usage.rs` | `usage` of costs, and `prices` |
//! | `priority.rs`, `scale.rs` | `priority`, `scale` |
//! | `regions.rs` | `regions`, of the configuration and of a policy |
//! | `ban.rs`, `lease.rs`, `response.rs` | `ban`, `lease`, `response` |
//!
//! `host.rs` refuses what a host cannot do. `unasked.rs` notes what is decided without Redis. `schema/` is the machinery beneath them.

mod ban;
mod client_address;
mod condition;
mod cost;
mod counters;
mod document;
mod host;
mod journal;
mod lease;
mod limits;
mod names;
mod policy;
mod priority;
mod quota;
mod regions;
mod request_body;
mod response;
mod scale;
mod schema;
mod settle;
mod store;
mod subject;
mod tiers;
mod unasked;
mod usage;
mod usage_journal;

pub use host::Host;
pub use journal::{Journal, Top};
pub use quota::Quota;
pub use regions::{Region, Regions};
pub use request_body::RequestBody;
pub use schema::{ConfigError, Hint};
pub use store::{Store, Topology};
pub use unasked::{Unasked, UnaskedRuling};
pub use usage_journal::UsageJournal;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use crate::decision::Decision;
use crate::inline_vec::InlineVec;
use crate::limit::Limit;
use crate::policy::index::Index;
use crate::policy::list::Conditions;
use crate::policy::matcher::OnAmbiguity;
use crate::policy::settle::Settle;
use crate::policy::{Across, Check, Denial, Lease, Mode, OnFailure, Policy, QueueSettings, Ruling};
use crate::request::body::Body;
use crate::request::client_ip::{Network, Trust};
use crate::request::{Attributes, Request};
use crate::response::Settings;
use crate::script::{Overrides, Plan};
use crate::time::Micros;

use document::DOCUMENT;
use schema::{Errors, Json, Kind};

/// The JSON Schema of a configuration, as text that ends with a newline.
#[must_use]
pub fn json_schema() -> String {
    schema::json_schema(&DOCUMENT.shape)
}

/// The field reference of `docs/configuration.md`, as Markdown: the objects called `object`.
#[must_use]
pub fn reference(object: &str) -> Option<String> {
    schema::fields(&DOCUMENT.shape, object)
}

/// The names of all objects, and of the fields and words of each: `policy`, `policy.name`, `policy.mode=shadow`.
#[must_use]
pub fn vocabulary() -> Vec<String> {
    schema::vocabulary(&DOCUMENT.shape)
}

/// The part of the [`vocabulary`] that a configuration writes out; defaults do not count.
#[must_use]
pub fn used(config: &serde_json::Value) -> Vec<String> {
    schema::used(&DOCUMENT.shape, config)
}

/// Reads a duration as a configuration has it: `250ms`.
#[must_use]
pub fn duration(text: &str) -> Option<Micros> {
    schema::duration_of(text)
}

/// The shortest way to write a duration in a configuration.
#[must_use]
pub fn duration_text(duration: Micros) -> String {
    schema::duration_text(duration)
}

/// The name most like `word`, if one is: what the operator probably meant.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    match schema::nearest(word, names)? {
        Hint::Nearest(name) => Some(name),
        Hint::Renamed(_) => None,
    }
}

/// The largest configuration, in bytes of JSON.
pub const MAX_LENGTH: usize = 1024 * 1024;

/// The maximum nesting of objects and lists. Envoy reads no protobuf that is nested more than 100 messages deep, and makes up to three of
/// each object.
pub const MAX_NESTING: usize = 32;

/// The configuration: the policies, and the store.
#[derive(Debug)]
pub struct Config {
    /// The settings of the store.
    pub store: Store,
    /// The stores of all regions.
    pub regions: Regions,
    /// The proxies that are trusted to report the client's address.
    pub trust: Trust,
    /// The values of request bodies that policies need.
    pub request_body: RequestBody,
    /// The endpoint for quota requests, if there is one.
    pub quota: Option<Quota>,
    /// The policies: from 1 to 256, with different names.
    pub policies: Vec<Policy>,
    /// Finds the policies that may match a request.
    index: Index,
    /// Requests to deny, before anything else.
    pub deny: Conditions,
    /// Requests to admit without asking Redis, unless denied.
    pub exempt: Conditions,
    /// The responses to the decisions of [`Config::deny`].
    pub response: Settings,
    /// The denials that are written to the journal; absent if none are.
    pub journal: Option<Journal>,
    /// The logging of the most denied subjects; absent if none are logged.
    pub top_denied: Option<Top>,
    /// The logging of the subjects that use most, by each worker.
    pub top_used: Option<Top>,
    /// The settings with which usage is written to the store.
    pub usage_journal: UsageJournal,
    /// True if decisions are written to Envoy's filter state.
    pub emit_filter_state: bool,
    /// True if any policy reads true costs from responses.
    pub settles: bool,
    /// True if any of these is the size of the request's body.
    pub counts_uploads: bool,
    /// True if any limit has a queue.
    pub queues: bool,
    /// True if a ban closes more than its policy.
    bans_close: bool,
    /// A number that names what was written, whatever the order of its fields.
    pub hash: u32,
}

/// The time for which a worker relies on a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenialTtl {
    /// The worker asks the store again after this at the earliest…
    pub min: Micros,
    /// …and after this at the latest.
    pub max: Micros,
    /// If the store does not answer then, the denial holds for this long.
    pub unanswered: Micros,
}

/// The configuration's decision about a request, before Redis is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Its body has to come first. The host feeds it to a [`Body`] of [`Config::body`], and asks [`Config::evaluate_with_body`].
    AwaitBody(Box<BeforeBody>),
    /// It is admitted: no policy applies to it, or it is exempt from all that do.
    Admit,
    /// It is denied, by the policy of this index or, without one, by the global deny list.
    Deny(Option<usize>, Denial),
    /// Redis is asked about each of these checks; at least one.
    Check(InlineVec<Check>),
    /// It is a quota request: Redis is asked each of these checks, if there are any, and weir answers the request. Those of
    /// [`Mode::QuotaRequest`] are charged nothing.
    QuotaRequest(InlineVec<Check>),
}

/// The part of a request's evaluation that does not need its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeforeBody {
    /// The client's network: the address, of IPv6 the /64. `None` if that is not known.
    pub client: Option<Network>,
    /// The checks of the policies that need nothing of the body. If an enforced one is denied, the request is denied. A check of
    /// [`Across::Share`] denies nothing yet, because other regions may lend what it lacks.
    pub checks: InlineVec<Check>,
    /// The first enforced policy that needs the body, if one does: if the body is late, the response is that of this policy.
    pub waits_for: Option<usize>,
    /// True if nothing that may reject the request needs the body, but policies in shadow do: if it is late, these checks decide.
    pub is_enough: bool,
}

/// Addresses of one client have this many bits in common.
const CLIENT_PREFIX: u8 = 64;

/// One step of an evaluation.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// This condition of the global deny list holds. The evaluation ends.
    Denied(usize),
    /// This condition of the global exempt list holds. The evaluation ends, unless the request is a quota request: then its own policy may
    /// follow.
    Exempt(usize),
    /// A quota request asks about a request with this method and path. The steps that follow evaluate that other request.
    QuotaRequest(&'a [u8], &'a [u8]),
    /// The policy of this index decided so. The evaluation ends if this is a denial that is enforced.
    Policy(usize, &'a Ruling),
}

/// Sees the steps of an evaluation.
trait Observer {
    fn step(&mut self, step: Step<'_>);

    /// A step for the request that a quota request asks for.
    fn of_enquiry(&mut self, step: Step<'_>) {
        self.step(step);
    }

    /// These policies do not apply to the request.
    fn unmatched(&mut self, policies: Range<usize>);

    /// The request is evaluated again when its body is there.
    fn discard(&mut self) {}

    /// After [`Observer::discard`]: this step denies the request whatever its body has.
    fn certain(&mut self, _: Step<'_>) {}
}

impl<Observe: FnMut(Step<'_>)> Observer for Observe {
    fn step(&mut self, step: Step<'_>) {
        self(step);
    }

    fn unmatched(&mut self, policies: Range<usize>) {
        policies.for_each(|policy| self(Step::Policy(policy, &Ruling::Unmatched)));
    }
}

impl Config {
    /// Reads a configuration: JSON, or a serialized `google.protobuf.Struct`.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration; never empty.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Errors::default();
        // It has more bytes than its JSON: mostly at most twice as many.
        let of_struct = if text.len() > 2 * MAX_LENGTH { None } else { schema::protobuf(text) };
        if text.len() > MAX_LENGTH && of_struct.is_none() {
            errors.add("", format_args!("{} bytes", text.len()), format_args!("up to {MAX_LENGTH} bytes"));
            return Err(errors.found);
        }
        let json = match (Json::parse(text), of_struct) {
            (Ok(json), _) => json,
            (Err(_), Some(json)) if !text.is_empty() => json,
            (Err(wrong), _) => {
                errors.add("", format_args!("no JSON ({wrong})"), "a JSON object");
                return Err(errors.found);
            }
        };
        let nesting = json.nesting();
        if nesting > MAX_NESTING {
            let found = format_args!("objects and lists in each other, {nesting} levels deep");
            errors.add("", found, format_args!("up to {MAX_NESTING} levels"));
            return Err(errors.found);
        }
        let json = schema::check(json, &Kind::Object(&DOCUMENT.shape), "", &mut errors);
        if !errors.found.is_empty() {
            return Err(errors.found);
        }
        let config = document::read(&json, &mut errors);
        if errors.found.is_empty() { Ok(config) } else { Err(errors.found) }
    }

    /// Returns the checks for a request with these `attributes`, or the decision if Redis need not be asked. The order is: global deny
    /// list, global exempt list, then the policies as written. The first that denies decides.
    #[must_use]
    pub fn evaluate(&self, attributes: &dyn Attributes) -> Evaluation {
        match &self.request_body.wanted {
            None => self.evaluate_request(&Request::new(attributes, &self.trust)),
            Some(wanted) => match attributes.body() {
                Some(bytes) => self.evaluate_with_body(attributes, &Body::whole(wanted, attributes, bytes)),
                None => self.evaluate_request(&Request::new(attributes, &self.trust).before_body(wanted)),
            },
        }
    }

    /// The same, for a request whose body has arrived.
    #[must_use]
    pub fn evaluate_with_body(&self, attributes: &dyn Attributes, body: &Body) -> Evaluation {
        self.evaluate_request(&Request::new(attributes, &self.trust).with_body(body))
    }

    /// The body by which a request is evaluated, if all of it is known from the beginning and a policy needs it.
    #[must_use]
    pub fn needed_body(&self, attributes: &dyn Attributes) -> Option<Body> {
        let (wanted, bytes) = self.request_body.wanted.as_ref().zip(attributes.body())?;
        let before = Request::new(attributes, &self.trust).before_body(wanted);
        let waits = matches!(self.evaluate_request(&before), Evaluation::AwaitBody(_));
        waits.then(|| Body::whole(wanted, attributes, bytes))
    }

    /// Returns the body of a request before any of it has arrived; `None` if no policy needs any.
    #[must_use]
    pub fn body(&self, attributes: &dyn Attributes) -> Option<Body> {
        self.request_body.wanted.as_ref().map(|wanted| Body::new(wanted, attributes))
    }

    /// The body of a request that is not read; `None` if no policy needs any.
    #[must_use]
    pub fn unreadable_body(&self) -> Option<Body> {
        self.request_body.wanted.as_ref().map(Body::unreadable)
    }

    /// Returns the checks for `request`, or the decision; see [`Config::evaluate`].
    #[must_use]
    pub fn evaluate_request<'a>(&'a self, request: &Request<'a>) -> Evaluation {
        self.evaluate_steps(request, |_| {})
    }

    /// The same as [`Config::evaluate_request`]; calls `observe` with each step.
    pub fn evaluate_steps<'a>(
        &'a self,
        request: &Request<'a>,
        mut observe: impl FnMut(Step<'_>),
    ) -> Evaluation {
        self.evaluate_observed(request, &mut observe)
    }

    fn evaluate_observed<'a>(&'a self, request: &Request<'a>, observer: &mut impl Observer) -> Evaluation {
        let mut evaluation = self.decide(request, observer);
        if request.awaits_body() {
            observer.discard();
            evaluation = self.decide_without_body(request, observer);
        }
        evaluation
    }

    /// Returns the decision about a request whose body has not arrived, if it is denied in any event.
    fn decide_without_body<'a>(&'a self, request: &Request<'a>, observer: &mut impl Observer) -> Evaluation {
        if let Some(listed) = self.deny.first_without_body(request) {
            observer.certain(Step::Denied(listed));
            return Evaluation::Deny(None, Denial::Listed(listed));
        }
        let client = request.client().ok().flatten().map(|client| Network::around(client, CLIENT_PREFIX));
        let (checks, waits_for, is_enough) = (InlineVec::new(), None, false);
        let mut before = Box::new(BeforeBody { client, checks, waits_for, is_enough });
        // Its body may show that it is exempt from all policies.
        let may_be_exempt =
            request.without_body(|| self.exempt.first(request, OnAmbiguity::Fails)) != Some(None);
        if may_be_exempt || self.asked(request).is_some() {
            return Evaluation::AwaitBody(before);
        }
        before.is_enough =
            request.without_body(|| self.deny.first(request, OnAmbiguity::Holds)) == Some(None);
        for index in self.index.candidates(request) {
            let Some(policy) = self.policies.get(index) else { break };
            match policy.rule_without_body(index, request) {
                Some(Ruling::Denied(denial)) if policy.enforces(denial) => {
                    observer.certain(Step::Policy(index, &Ruling::Denied(denial)));
                    return Evaluation::Deny(Some(index), denial);
                }
                Some(Ruling::Check(check)) => before.checks.push(check),
                None if policy.mode == Mode::Enforce => {
                    before.waits_for = before.waits_for.or(Some(index));
                    before.is_enough = false;
                }
                _ => {}
            }
        }
        if self.bans_close {
            self.add_bans(&mut before.checks, &mut |_| {});
        }
        Evaluation::AwaitBody(before)
    }

    /// The decision by what is known of a request, also while its body has not come.
    fn decide<'a>(&'a self, request: &Request<'a>, observer: &mut impl Observer) -> Evaluation {
        if let Some(listed) = self.deny.first(request, OnAmbiguity::Holds) {
            observer.step(Step::Denied(listed));
            return Evaluation::Deny(None, Denial::Listed(listed));
        }
        if let Some(asked) = self.asked(request) {
            observer.step(Step::QuotaRequest(asked.method(), asked.target()));
            return self.decide_enquiry(request, &asked, &mut |step: Step<'_>| observer.of_enquiry(step));
        }
        if let Some(listed) = self.exempt.first(request, OnAmbiguity::Fails) {
            observer.step(Step::Exempt(listed));
            return Evaluation::Admit;
        }
        let mut checks = InlineVec::new();
        let mut unmatched = 0;
        for index in self.index.candidates(request) {
            let Some(policy) = self.policies.get(index) else { break };
            let ruling = policy.rule(index, request);
            if matches!(ruling, Ruling::Unmatched) {
                continue;
            }
            observer.unmatched(unmatched..index);
            unmatched = index.saturating_add(1);
            observer.step(Step::Policy(index, &ruling));
            match ruling {
                Ruling::Check(check) => checks.push(check),
                Ruling::Denied(denial) if policy.enforces(denial) => {
                    return Evaluation::Deny(Some(index), denial);
                }
                Ruling::Denied(_)
                | Ruling::Unmatched
                | Ruling::Skipped(_)
                | Ruling::Unknown(_)
                | Ruling::Exempt(_) => {}
            }
        }
        let policies = self.policies.len();
        observer.unmatched(unmatched..policies);
        if self.bans_close {
            self.add_bans(&mut checks, &mut |step: Step<'_>| observer.step(step));
        }
        if checks.is_empty() { Evaluation::Admit } else { Evaluation::Check(checks) }
    }

    /// The limits that a check asks about.
    #[must_use]
    pub fn plan(&self, check: &Check) -> Option<Rc<Plan>> {
        Some(self.policies.get(check.policy)?.tiers.tiers.get(check.tier)?.plan_at(check.scale))
    }

    /// This worker's shares of the limits, if it keeps them by itself while the store is unavailable. Quota requests use none of them.
    #[must_use]
    pub fn shares(&self, check: &Check) -> Option<Cow<'_, [Limit]>> {
        let policy =
            self.policies.get(check.policy).filter(|policy| policy.on_failure == OnFailure::Local)?;
        if !check.is_charged() {
            return None;
        }
        Some(policy.tiers.tiers.get(check.tier)?.shares_at(check.scale))
    }

    /// The queues of the limits that a check asks about, in the plan's order.
    #[must_use]
    pub fn queues_of(&self, check: &Check) -> &[Option<QueueSettings>] {
        let tiers = self.policies.get(check.policy).map(|policy| &policy.tiers.tiers);
        tiers.and_then(|tiers| tiers.get(check.tier)).map_or(&[], |tier| &tier.queues)
    }

    /// Returns the decision for a request that the store does not answer. A ban that is not known denies nothing.
    #[must_use]
    pub fn on_failure(&self, check: &Check) -> OnFailure {
        if check.ban_only {
            return OnFailure::Allow;
        }
        self.policies.get(check.policy).map_or(self.store.on_failure, |policy| policy.on_failure)
    }

    /// True if weir warns of a limit of this check.
    #[must_use]
    pub fn may_warn(&self, check: &Check) -> bool {
        let tier = self.policies.get(check.policy).and_then(|policy| policy.tiers.tiers.get(check.tier));
        tier.is_some_and(|tier| tier.views.iter().any(|view| view.warn_at().is_some()))
    }

    /// Returns the rules by which the true cost of a request is read from its response.
    #[must_use]
    pub fn settle(&self, check: &Check) -> &Settle {
        const NOTHING: &Settle = &Settle { cases: Vec::new() };
        self.policies.get(check.policy).filter(|_| !check.ban_only).map_or(NOTHING, |policy| &policy.settle)
    }

    /// Returns how the limits hold across regions.
    #[must_use]
    pub fn regions_of(&self, check: &Check) -> Across {
        self.policies.get(check.policy).map_or(Across::Apart, |policy| policy.regions)
    }

    /// Returns the lease of the policy, if requests are reserved in advance. A quota request reserves none.
    #[must_use]
    pub fn lease(&self, check: &Check) -> Option<Lease> {
        let policy = self.policies.get(check.policy)?;
        let lease = policy.lease.as_ref()?;
        // Under `share`, only what other regions lend is a lease.
        let is_leased =
            check.mode != Mode::QuotaRequest && (policy.regions != Across::Share || check.store != 0);
        match is_leased {
            false => None,
            true if lease.is_auto => Lease::auto(self.plan(check)?.limits(), check.cost),
            true => Some(*lease),
        }
    }

    /// Returns the time for which a worker relies on a denial. Then it asks again, and sees what has changed in the store meanwhile: by an
    /// operator (after `store.denial_ttl`), by an override (within a second), or by workers that returned unused units when their leases
    /// ended. A denial that may lead to a ban has to be counted in the store, so the worker asks again at once.
    #[must_use]
    pub fn denial_ttl(&self, check: &Check, denial: &Decision) -> DenialTtl {
        let leases = self.lease(check).map_or(Micros(u64::MAX), |lease| lease.duration);
        let tiers = self.policies.get(check.policy).map(|policy| policy.tiers.tiers.as_slice());
        let plan = tiers.and_then(|tiers| tiers.get(check.tier)).map(|tier| &tier.plan);
        let unanswered = match plan.map(|plan| plan.overrides()) {
            Some(Overrides::Read) => leases.min(Micros::from_secs(1)),
            _ => leases,
        };
        let min = self.store.denial_ttl;
        let ttl = DenialTtl { min: min.min(unanswered), max: min.plus(min).min(unanswered), unanswered };
        match plan.and_then(|plan| plan.ban()) {
            None => ttl,
            Some(_) if denial.is_banned() => DenialTtl { unanswered: Micros(u64::MAX), ..ttl },
            Some(_) => DenialTtl { min: Micros::ZERO, max: Micros::ZERO, ..ttl },
        }
    }

    /// Returns the settings of the response to a denial, given the policy that denied.
    #[must_use]
    pub fn response(&self, policy: Option<usize>) -> &Settings {
        policy.and_then(|policy| self.policies.get(policy)).map_or(&self.response, |policy| &policy.response)
    }
}
