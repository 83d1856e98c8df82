// SPDX-License-Identifier: Apache-2.0
//! One request while it is open: its checks, what is known about each, and its state.

use std::mem;
use std::rc::Rc;

use crate::body::Ids;
use crate::config::Config;
use crate::decision::CheckAnswer;
use crate::engine::subject::permit_queue::Queued;
use crate::engine::tally::Tally;
use crate::inline_vec::InlineVec;
use crate::limit::Outcome;
use crate::policy::settle::Settling;
use crate::policy::{self, Across, Check, Mode, OnFailure, Policy};
use crate::response::{self, PolicyAnswer, Verdict};
use crate::time::Micros;

/// One check of a request.
#[derive(Debug)]
pub(super) struct PolicyCheck {
    pub check: Rc<Check>,
    pub answer: Option<CheckAnswer>,
    /// True while a batch with this check is in flight. The store may still grant it after the request has been decided.
    pub in_flight: bool,
    /// A batch renews its permits, or is about to.
    pub renews: bool,
    /// The uptime of its last renewal; 0 if there was none.
    pub renewed: Micros,
    /// The grant, if there was one: what to refund if the request is rejected, and what to release when it ends.
    pub receipt: Option<Receipt>,
    /// Reads the true cost in its response; `None` before it is admitted, and when it is settled.
    pub settling: Option<Box<Settling>>,
}

impl PolicyCheck {
    /// A check, and its answer if there is one already.
    pub fn new(check: Check, answer: Option<CheckAnswer>) -> Self {
        Self {
            check: Rc::new(check),
            answer,
            in_flight: false,
            renews: false,
            renewed: Micros::ZERO,
            receipt: None,
            settling: None,
        }
    }

    /// True if its answer denies the request.
    pub fn denies(&self, config: &Config) -> bool {
        self.answer.as_ref().is_some_and(|answer| match answer.decision() {
            Some(decision) => !decision.granted,
            None => config.on_failure(&self.check) == OnFailure::Deny,
        })
    }

    /// True if the store has denied it, and other regions could lend the missing units.
    pub fn exceeds(&self, config: &Config) -> bool {
        matches!(&self.answer, Some(CheckAnswer::Store(of) | CheckAnswer::DeniedUntil(of)) if !of.granted)
            && config.regions_of(&self.check) == Across::Share
            && self.check.mode != Mode::QuotaRequest
    }
}

/// A grant, and what granted it.
#[derive(Clone, Debug)]
pub(super) enum Receipt {
    Store(Rc<Outcome>),
    Local(Rc<Outcome>),
}

impl Receipt {
    /// The time of the grant, by the clock of the store or of the worker that made it.
    pub fn at(&self) -> Micros {
        match self {
            Self::Store(outcome) | Self::Local(outcome) => outcome.at,
        }
    }
}

/// A request waits for its body.
#[derive(Debug)]
pub(super) struct AwaitsBody {
    /// The hash of where its client is.
    pub client: u64,
    /// True if the store was asked about it.
    pub asks: bool,
    /// The policy whose response it gets if its body is late.
    pub waits_for: Option<usize>,
    /// True if its checks decide then: only policies in shadow need the body.
    pub is_enough: bool,
}

/// A request waits for the stores.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The loop time until which it waits.
    pub deadline: Micros,
    /// Its place in a permit queue, if it is at the head of one and asks again.
    pub queued: Option<Box<Queued>>,
}

#[derive(Debug)]
pub(super) enum State {
    /// It has to have its body before policies can tell what applies to it. Its checks are those that deny it in any event.
    AwaitsBody(AwaitsBody),
    Waiting(Waiting),
    /// It waits for a permit of a `concurrency` limit, and the store is not asked about it now.
    Queued(Box<Queued>),
    /// It is admitted, and waits for its turn in the limits with `max_delay`.
    Held {
        due: Micros,
    },
    Admitted,
    Rejected,
    /// It was admitted, and its stream is closed. The engine keeps it while batches in flight ask about it, because their grants have to
    /// be settled: with the true cost of each check that has one. They are refunded if a loan has served the request.
    Ended(Vec<Option<u64>>),
    /// It was rejected, and its stream is closed. The engine keeps it while batches in flight ask about it, because their grants
    /// have to be refunded.
    Closed,
}

impl State {
    /// True if the request keeps the permits that it was granted.
    pub const fn holds(&self) -> bool {
        !matches!(self, Self::Rejected | Self::Ended(_) | Self::Closed)
    }
}

#[derive(Debug)]
pub(super) struct Request {
    pub checks: InlineVec<PolicyCheck>,
    pub state: State,
    /// The host knows the decision.
    pub host_knows: bool,
    /// The client only asks what is left. Once it is answered, its state is [`State::Admitted`].
    pub is_quota_request: bool,
    /// The uptime at which it came, and its number in the order in which requests came.
    pub arrived: (Micros, u64),
    /// The ids by which a rejection in JSON-RPC names it.
    pub json_rpc_ids: Option<Box<Ids>>,
}

impl Request {
    pub const fn new(checks: InlineVec<PolicyCheck>, state: State, arrived: (Micros, u64)) -> Self {
        Self { checks, state, host_knows: false, is_quota_request: false, arrived, json_rpc_ids: None }
    }

    /// It is admitted now. From now on its response is watched, if a policy settles its cost.
    pub fn admit(&mut self, config: &Config, uptime: Micros) {
        debug_assert!(self.is_answered(), "a policy that was not asked would limit nothing");
        self.state = State::Admitted;
        self.json_rpc_ids = None;
        for PolicyCheck { check, settling, .. } in &mut self.checks {
            let settle = config.settle(check);
            let of = || Settling::new(settle, uptime, check.requested).answering(check.is_many);
            *settling = (!settle.is_empty()).then(|| Box::new(of()));
        }
    }

    /// The client, and the checks that decide the request, if its body is late; `None` if it is rejected then.
    pub fn checks_without_body(&self) -> Option<(u64, InlineVec<Check>)> {
        let State::AwaitsBody(AwaitsBody { is_enough: true, client, .. }) = self.state else { return None };
        Some((client, self.checks.iter().map(|policy_check| (*policy_check.check).clone()).collect()))
    }

    /// Rejects it, because its body is late. `None` if it does not wait for its body.
    pub fn reject_late(&mut self) -> Option<AwaitsBody> {
        match mem::replace(&mut self.state, State::Rejected) {
            State::AwaitsBody(awaits) => Some(awaits),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub fn waits(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    pub fn in_flight(&self) -> bool {
        self.checks.iter().any(|policy_check| policy_check.in_flight)
    }

    pub fn is_answered(&self) -> bool {
        self.checks.iter().all(|policy_check| policy_check.answer.is_some())
    }

    /// Returns the verdict by what is known of it: how long it is held before it continues, or the response to its client. A quota request
    /// never reaches the upstream: it is rejected, or [answered](response::Cause::Answered).
    pub fn decide(&self, config: &Config) -> Verdict<Micros> {
        let answers = self.answers(&config.policies);
        if self.is_quota_request {
            return Verdict::Reject(response::enquiry(&answers, &config.response).into());
        }
        response::decide(&answers)
    }

    /// Counts what each policy has decided about it.
    pub fn tally(&self, tally: &mut Tally, has_no_place: bool) {
        for PolicyCheck { check, answer, .. } in &self.checks {
            if let Some(answer) = answer {
                tally.answered(check, answer, has_no_place);
            }
        }
    }

    /// The answers to its checks, each with the response settings of its policy.
    pub fn answers<'a>(&'a self, policies: &'a [Policy]) -> InlineVec<PolicyAnswer<'a>> {
        let checks = self
            .checks
            .iter()
            .filter_map(|policy_check| Some((&*policy_check.check, policy_check.answer.as_ref()?)));
        policy::answers(policies, checks)
    }
}
