// SPDX-License-Identifier: Apache-2.0
//! The requests' life: submitted, decided, perhaps held, released, closed. It decides by what is known without asking
//! ([`Denied`], [`Leases`], [`Local`]) and by what the dispatch reports. It reports what others have to do: [`Release`]s to the
//! host; [`Settlement`]s, and the requests that no longer wait, to the dispatch.
//!
//! | file | what is inside |
//! |---|---|
//! | `request.rs` | one request, and each policy's part of it |
//! | `bodies.rs`, `queued.rs` | what a request may wait for before or after it is decided: its body, a permit |
//! | `denied.rs`, `lease.rs`, `pairs.rs`, `local.rs` | what is known without asking |
//! | `settling.rs` | refunds, and the true cost of a request |
//! | `across.rs`, `loans.rs`, `debits.rs` | limits that several regions share |

mod across;
mod bodies;
mod debits;
mod denied;
mod lease;
mod loans;
mod local;
mod pairs;
mod queued;
mod request;
mod settling;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::clock::Now;
use super::dispatch::{Batch, Due, Event, NotAsked, Settlement, Slots, Task, Waiter, Work, count, tasks};
use super::metrics::Tally;
use super::seed::Seed;
use super::{Action, Release, StreamId};
use crate::config::Config;
use crate::decision::{CheckAnswer, Decision};
use crate::inline_vec::InlineVec;
use crate::limit::Outcome;
use crate::policy::{Check, Lease, Mode};
use crate::response::{self, Admission, Cause, PolicyDenial, Record, Verdict};
use crate::sorted_map::SortedMap;
use crate::time::Micros;

use debits::Debits;
use denied::Denied;
use lease::{Leases, Served, Unused};
pub(super) use loans::Loan;
use loans::Loans;
use local::Local;
use pairs::Pairs;
use queued::Lines;
use request::{Part, Receipt, Request, State};

/// At most this many requests of one worker wait for the store; one more is decided as if the store were unavailable.
const MAX_WAITING: usize = 16_384;

/// At most this many requests of one worker are held for `max_delay`; one more is rejected.
const MAX_HELD: usize = 4_096;

/// How many requests were decided, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decided {
    /// Enquiries that were answered.
    pub enquiries: u64,
    pub admitted: u64,
    pub rejected: u64,
    /// Those of the rejected requests that a ban denied.
    pub banned: u64,
    /// At least one policy was decided without the store, because it failed, was late, or was not asked.
    pub fallback: u64,
}

/// What was settled after the response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    /// Units charged, because requests cost more than they had reserved.
    pub charged: u64,
    /// Units refunded, because requests cost less than they had reserved.
    pub refunded: u64,
    /// Responses whose body a policy needed and could not read.
    pub unreadable: u64,
    /// Requests whose true cost was told.
    pub requests: u64,
}

/// What became of the bodies of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bodies {
    /// Those that a policy needed and could not read.
    pub unreadable: u64,
    /// Those that did not come in time, so that the request was rejected.
    pub late: u64,
}

/// A check that the store is to be asked about.
pub(super) type Question = (Rc<Check>, Waiter, Slots);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Requests {
    config: Rc<Config>,
    /// The host chooses the numbers, so they need no [`Seed`].
    requests: HashMap<StreamId, Request, foldhash::fast::FixedState>,
    /// Requests in the order of their deadlines, in loop time: for each store those of which it has the longest. Requests that are already
    /// decided are skipped.
    deadlines: Vec<VecDeque<(Micros, StreamId)>>,
    /// How many requests wait for the store.
    waiting: usize,
    /// Held requests and the uptime at which they are released, soonest first.
    held: SortedMap<(Micros, StreamId), ()>,
    /// Requests that wait for their bodies, and the uptime at which they are rejected, soonest first.
    awaited: SortedMap<(Micros, StreamId), ()>,
    denied: Denied,
    leases: Leases,
    loans: Loans,
    pub debits: Debits,
    /// How many requests were admitted with what another region has lent, and with that of each store.
    pub borrowed: u64,
    borrowed_of: Vec<u64>,
    /// For each store what workers count by themselves without it.
    local: Vec<Local>,
    pub lines: Lines,
    /// How many requests came.
    came: u64,
    pub bodies: Bodies,
    pub decided: Decided,
    pub settled: Settled,
    pub tally: Tally,
    pub releases: VecDeque<Release>,
    /// What the store is to settle.
    pub settlements: Vec<Settlement>,
    /// Requests that were decided, for the journal. Empty if there is none.
    pub journaled: Vec<StreamId>,
    /// Requests that no longer wait for the store.
    pub no_longer_waiting: Vec<StreamId>,
}

impl Requests {
    pub fn new(config: Rc<Config>, seed: u64) -> Self {
        let (stores, interval) = (config.regions.all.len(), config.regions.sync_interval);
        Self {
            tally: Tally::new(&config, seed),
            requests: HashMap::default(),
            deadlines: vec![VecDeque::new(); stores],
            waiting: 0,
            held: SortedMap::default(),
            awaited: SortedMap::default(),
            denied: Denied::new(Seed(seed)),
            leases: Leases::new(Pairs::new(&config), Seed(seed)),
            loans: Loans::new(stores, interval, Seed(seed)),
            debits: Debits::new(&config, Seed(seed)),
            config,
            borrowed: 0,
            borrowed_of: vec![0; stores],
            local: (0..stores).map(|_| Local::new(Seed(seed))).collect(),
            lines: Lines::new(Seed(seed)),
            came: 0,
            bodies: Bodies::default(),
            decided: Decided::default(),
            settled: Settled::default(),
            releases: VecDeque::new(),
            settlements: Vec::new(),
            journaled: Vec::new(),
            no_longer_waiting: Vec::new(),
        }
    }

    // --- A request arrives -----------------------------------------------------------------------------------------

    /// A request arrives. If enough is known without the store, it is decided at once. Returns whether the store has to be
    /// asked.
    pub fn submit(&mut self, stream: StreamId, checks: InlineVec<Check>, is_enquiry: bool, now: Now) -> bool {
        let part = |check: Check| {
            let answer = self.denied.look_up(&enforced(&check), now.host).map(CheckAnswer::DeniedUntil);
            Part { check: Rc::new(check), answer, in_flight: false, receipt: None, settling: None }
        };
        let mut parts: InlineVec<_> = checks.into_iter().map(part).collect();
        self.borrow(&mut parts, now);
        self.came = self.came.wrapping_add(1);
        let request = Request::new(parts, State::Waiting, (now.uptime, self.came));
        let mut request = Request { is_enquiry, ..request };
        // One enforced denial is enough: then no lease is used for the other parts. A part that a loan serves is no denial.
        let denies = |part: &Part| part.denies(&self.config) && part.check.mode == Mode::Enforce;
        let denied = request.parts.iter().any(denies);
        if !denied {
            for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
                let plan = self.config.plan(&part.check);
                let limits = plan.as_ref().map_or(&[][..], |plan| plan.limits());
                if let Some(Served { decision, receipt }) = self.leases.serve(&part.check, limits, now.host) {
                    (part.answer, part.receipt) =
                        (Some(CheckAnswer::Lease(decision)), Some(Receipt::Store(receipt)));
                }
            }
        }
        if !denied {
            // It may not overtake the requests that wait for a permit already.
            for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
                part.answer = self.lines.denial(&part.check).map(CheckAnswer::Store);
            }
        }
        let known = denied || request.is_answered();
        self.requests.insert(stream, request);
        self.waiting = self.waiting.saturating_add(1);
        if known {
            self.decide(stream, now);
        }
        !known
    }

    /// Decides those parts of a new request that no store is asked about: `admits` says which. Returns the checks to ask stores about,
    /// none if the request is decided; and the store that a part is not asked about because it is overloaded. The request waits until the
    /// latest deadline of the stores that are asked.
    pub fn wait(
        &mut self,
        stream: StreamId,
        deadline: &dyn Fn(&Check) -> Option<Micros>,
        admits: &dyn Fn(&Check) -> Result<Slots, NotAsked>,
        now: Now,
    ) -> (InlineVec<Question>, Option<u8>) {
        let is_full = self.waiting > MAX_WAITING;
        let (mut questions, mut overloaded, mut fell_back) = (InlineVec::new(), None, false);
        let mut latest = (Micros::ZERO, 0);
        let Some(request) = self.requests.get_mut(&stream) else { return (questions, overloaded) };
        let unanswered = request.parts.iter_mut().enumerate().filter(|(_, part)| part.answer.is_none());
        for (index, part) in unanswered {
            match admits(&part.check) {
                Ok(slots) if !is_full => {
                    latest = latest.max((deadline(&part.check).unwrap_or_default(), part.check.store));
                    questions.push((Rc::clone(&part.check), Waiter { stream, part: index }, slots));
                    continue;
                }
                Ok(_) | Err(NotAsked::Overloaded) => overloaded = Some(part.check.store),
                Err(NotAsked::BreakerOpen) => {}
            }
            fell_back = true;
            fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        }
        // If `on_failure` rejects the request, the store must not charge it for its other policies.
        let is_rejected = fell_back
            && matches!(request.verdict(&self.config), Verdict::Reject(of) if of.cause != Cause::Answered);
        if questions.is_empty() || is_rejected {
            self.decide(stream, now);
            questions.clear();
        } else {
            let (deadline, store) = latest;
            request.deadline = deadline;
            if let Some(deadlines) = self.deadlines.get_mut(usize::from(store)) {
                deadlines.push_back((deadline, stream));
            }
        }
        (questions, overloaded)
    }

    // --- The store is asked ----------------------------------------------------------------------------------------

    /// Whether a request still waits for the store.
    pub fn waits(&self, stream: StreamId) -> bool {
        self.requests.get(&stream).is_some_and(Request::waits)
    }

    pub const fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// Decides those requests of a batch for which an answer has become known since they came: the subject was denied meanwhile,
    /// or a lease was granted. Takes them out of the batch.
    pub fn serve(&mut self, batch: &mut Batch, now: Now) {
        let (config, leases, denied) = (&self.config, &mut self.leases, &mut self.denied);
        let mut served = Vec::new();
        batch.retain_mut(|command| {
            command.tasks.retain(|Task { check, plan, work }| {
                let Work::Ask { waiters, .. } = work else { return true };
                if let Some(decision) = denied.look_up(&enforced(check), now.host) {
                    let denial =
                        |waiter| (waiter, Rc::clone(check), CheckAnswer::DeniedUntil(decision.clone()), None);
                    served.extend(waiters.drain(..).map(denial));
                    return false;
                }
                if config.lease(check).is_none() {
                    return true;
                }
                waiters.retain(|waiter| {
                    let found = leases.serve(check, plan.limits(), now.host);
                    let left = found.is_none();
                    served.extend(found.map(|Served { decision, receipt }| {
                        (*waiter, Rc::clone(check), CheckAnswer::Lease(decision), Some(receipt))
                    }));
                    left
                });
                !waiters.is_empty()
            });
            !command.tasks.is_empty()
        });
        for (waiter, check, answer, receipt) in served {
            self.deliver(waiter, &check, answer, receipt, now);
        }
    }

    /// A task is about to be sent: asks for requests in advance, if its policy leases.
    pub fn ask_in_advance(&mut self, task: &mut Task, now: Now) {
        let Task { check, work: Work::Ask { waiters, advance }, .. } = task else { return };
        if let Some(lease) = self.config.lease(check) {
            *advance = self.leases.take(check, lease, count(waiters), now.host);
        }
    }

    /// A task is not sent now after all. It asks for requests in advance again when it is sent.
    pub fn not_sent(&mut self, task: &Task) {
        if let Work::Ask { advance, .. } = task.work {
            self.leases.arrived(&task.check, advance);
        }
    }

    /// A batch is sent. From now on the store may grant what it asks for.
    pub fn sent(&mut self, batch: &Batch) {
        for waiter in tasks(batch).flat_map(Task::waiters) {
            self.mark(*waiter, true);
        }
    }

    fn mark(&mut self, waiter: Waiter, in_flight: bool) {
        let request = self.requests.get_mut(&waiter.stream);
        if let Some(part) = request.and_then(|request| request.parts.get_mut(waiter.part)) {
            part.in_flight = in_flight;
        }
        if !in_flight {
            self.forget_closed(waiter.stream);
        }
    }

    /// Forgets a request whose stream is closed, if no batch in flight asks about it.
    fn forget_closed(&mut self, stream: StreamId) {
        let over = |request: &Request| matches!(request.state, State::Closed) && !request.in_flight();
        if self.requests.get(&stream).is_some_and(over) {
            self.requests.remove(&stream);
        }
    }

    // --- The store has answered, or not ----------------------------------------------------------------------------

    /// The result of a task.
    pub fn handle(&mut self, event: Event, now: Now) {
        match event {
            Event::Answered { task, outcome, asked } => self.answered(&task, &outcome, (asked, now)),
            Event::Failed(Task { check, work: Work::Ask { waiters, advance }, .. }) => {
                self.leases.arrived(&check, advance);
                for waiter in waiters {
                    self.mark(waiter, false);
                    self.fall_back_part(waiter, now);
                }
            }
            Event::Failed(Task { check, work: Work::Settle { due: Due::Charge(units), .. }, .. }) => {
                self.charge_ended(&check, units, false);
            }
            Event::Failed(Task { work: Work::Lend { .. } | Work::Settle { .. }, .. }) => {}
            Event::Charged(check, units) => self.charge_ended(&check, units, true),
            Event::Released(check) => self.lines.released(&check, now.uptime),
            Event::NotRun { check, waiters, advance } => {
                self.leases.arrived(&check, advance);
                waiters.into_iter().for_each(|waiter| self.mark(waiter, false));
            }
        }
    }

    /// The store's answer about a subject, for all requests that wait for it.
    fn answered(&mut self, task: &Task, outcome: &Rc<Outcome>, (asked, now): (Micros, Now)) {
        let Task { check, plan, work } = task;
        if let Work::Lend { requests, of } = work {
            self.loans.answered(of, check.store, (*requests, outcome.granted));
            if let (lent @ 1.., Some(lease)) = (outcome.granted, self.config.lease(check)) {
                // The way back takes nothing from the time in which it can be used.
                let duration = lease.duration.plus(now.host.since(asked));
                let lease = Lease { duration, ..*lease };
                self.leases.keep(check, &lease, plan.limits(), (lent, outcome), (asked, now.host));
            }
        }
        let Work::Ask { waiters, advance } = work else { return };
        self.owe(check, u64::from(outcome.granted).saturating_mul(check.cost), now);
        let (ask, waiting, config) = (task.ask(), count(waiters), Rc::clone(&self.config));
        if outcome.granted < waiting && check.mode != Mode::Enquiry {
            let decision = Decision::new(outcome, plan.limits(), outcome.granted, ask);
            let ttl = config.denial_ttl(check, &decision);
            self.denied.remember(check, plan.limits(), &decision, ttl, (asked, now.host));
        }
        // What is on lease from other grants. What this grant leaves over is added for each waiting request below.
        let known = self.leases.known(check, now.host);
        if let (Some(surplus @ 1..), Some(lease)) =
            (outcome.granted.checked_sub(waiting), config.lease(check))
        {
            self.leases.keep(check, lease, plan.limits(), (surplus, outcome), (asked, now.host));
        }
        self.leases.arrived(check, *advance);
        for (index, waiter) in (0..).zip(waiters) {
            let mut decision = Decision::new(outcome, plan.limits(), index, ask);
            if let Some((on_lease, newest)) = known.as_ref().filter(|_| decision.granted) {
                let latest = if newest.at > outcome.at { newest } else { outcome };
                let later = outcome.granted.saturating_sub(index.saturating_add(1));
                let held = on_lease.saturating_add(later.into());
                decision.limits = lease::statuses(latest, plan.limits(), held, ask);
            }
            let receipt = decision.granted.then(|| Rc::clone(outcome));
            self.deliver(*waiter, check, CheckAnswer::Store(decision), receipt, now);
        }
    }

    fn deliver(
        &mut self,
        to: Waiter,
        check: &Rc<Check>,
        answer: CheckAnswer,
        receipt: Option<Rc<Outcome>>,
        now: Now,
    ) {
        let receipt = receipt.map(Receipt::Store);
        let Some(request) = self.requests.get_mut(&to.stream) else {
            // The client left before its request was decided. The units stay charged. Otherwise clients could abort requests to
            // send them for free. But a permit must not outlive its request.
            return receipt.iter().for_each(|receipt| self.settle(check, Due::Release(1), receipt, now));
        };
        let Some(part) = request.parts.get_mut(to.part) else { return };
        part.in_flight = false;
        match request.state {
            // It has no parts.
            State::AwaitsBody { .. } => {}
            State::Waiting if part.answer.is_none() => {
                (part.answer, part.receipt) = (Some(answer), receipt);
                if request.is_answered() {
                    self.conclude(to.stream, now);
                }
            }
            // This part was decided without the store, and is charged there now. What its local share was charged instead is
            // refunded. Permits are released when the request ends.
            State::Waiting | State::Queued | State::Held { .. } | State::Admitted(_) => {
                let Some(grant) = receipt else { return };
                let is_admitted = matches!(request.state, State::Admitted(_));
                if is_admitted && part.settling.is_none() && !self.config.settle(check).is_empty() {
                    // The local share was charged the true cost.
                    return self.settle(check, Due::Release(1), &grant, now);
                }
                if let Some(local) = part.receipt.replace(grant) {
                    self.refund_all(check, &local, now);
                }
            }
            State::Rejected | State::Closed => {
                self.forget_closed(to.stream);
                receipt.iter().for_each(|receipt| self.refund_all(check, receipt, now));
            }
        }
    }

    /// Decides one part of a request without the store. The other parts still wait for their answers.
    fn fall_back_part(&mut self, waiter: Waiter, now: Now) {
        let request = self.requests.get_mut(&waiter.stream).filter(|request| request.waits());
        let Some(request) = request else { return };
        let part = request.parts.get_mut(waiter.part).filter(|part| part.answer.is_none());
        let Some(part) = part else { return };
        fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        if request.is_answered() {
            self.conclude(waiter.stream, now);
        }
    }

    /// A request stops waiting: its parts without an answer are decided without the store.
    pub fn stop_waiting(&mut self, stream: StreamId, now: Now) {
        let Some(request) = self.requests.get_mut(&stream).filter(|request| request.waits()) else { return };
        for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
            fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        }
        self.conclude(stream, now);
    }

    /// No request waits for this store any more. Some go on to wait for another.
    pub fn stop_all_waiting(&mut self, store: u8, now: Now) {
        let waiting: Vec<_> = self.deadlines.iter().flatten().map(|(_, stream)| *stream).collect();
        for stream in waiting {
            let Some(request) = self.requests.get_mut(&stream).filter(|request| request.waits()) else {
                continue;
            };
            let parts = request.parts.iter_mut();
            for part in parts.filter(|part| part.answer.is_none() && part.check.store == store) {
                fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
            }
            if request.is_answered() {
                self.conclude(stream, now);
            }
        }
    }

    /// The store has recovered. The local shares begin unused when it fails again.
    pub fn store_recovered(&mut self, store: u8) {
        if let Some(local) = self.local.get_mut(usize::from(store)) {
            local.forget();
        }
    }

    // --- Time passes -----------------------------------------------------------------------------------------------

    /// Releases the held requests whose turn it is.
    pub fn release_held(&mut self, now: Now) {
        while let Some(&((_, stream), ())) = self.held.first().filter(|((due, _), ())| *due <= now.uptime) {
            self.held.pop_first();
            let Some(request) = self.requests.get_mut(&stream) else { continue };
            if let State::Held { admission, .. } = std::mem::replace(&mut request.state, State::Rejected) {
                request.admit(admission, &self.config, now.uptime);
                self.decided.admitted = self.decided.admitted.saturating_add(1);
                self.releases.push_back(Release { stream, action: Action::Admit });
            }
        }
    }

    /// Decides the requests whose deadline has passed, without the stores. Returns a store that has not answered for each of them.
    pub fn expire(&mut self, now: Now) -> Vec<u8> {
        let mut expired = Vec::new();
        for place in 0..self.deadlines.len() {
            while let Some(&(deadline, stream)) = self.deadlines.get(place).and_then(VecDeque::front) {
                // A request that asks again has another deadline than before.
                let waits = |of: &&Request| of.waits() && of.deadline == deadline;
                let waiting = self.requests.get(&stream).filter(waits);
                if waiting.is_some() && deadline > now.loop_time {
                    break;
                }
                let unanswered = waiting.and_then(|of| of.parts.iter().find(|part| part.answer.is_none()));
                expired.extend(unanswered.map(|part| part.check.store));
                let is_waiting = waiting.is_some();
                self.deadlines.get_mut(place).and_then(VecDeque::pop_front);
                if is_waiting {
                    self.stop_waiting(stream, now);
                }
            }
        }
        expired
    }

    /// Refunds what is left of the leases that have ended.
    pub fn end_leases(&mut self, now: Now) {
        let config = &self.config;
        let unused = self.leases.ended(now.host, |check| config.lease(check).copied());
        self.refund_unused(unused);
    }

    /// Refunds what is left of all leases.
    pub fn end_all_leases(&mut self) {
        let config = &self.config;
        let unused = self.leases.end_all(|check| config.lease(check).copied());
        self.refund_unused(unused);
    }

    fn refund_unused(&mut self, unused: Vec<Unused>) {
        for Unused { check, requests, .. } in &unused {
            self.debits.refunded(check, check.cost.saturating_mul((*requests).into()));
        }
        self.settlements.extend(unused.into_iter().map(|Unused { check, receipt, requests }| {
            let due = Due::Refund(check.cost.saturating_mul(requests.into()));
            Settlement { check, due, receipt }
        }));
    }

    /// How many requests wait for the store.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many requests are held for `max_delay`.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// How many requests this worker holds in advance.
    pub const fn on_lease(&self) -> u64 {
        self.leases.held()
    }

    /// When the next lease ends, by the host's clock.
    pub fn next_lease_end(&self) -> Option<Micros> {
        self.leases.next_end()
    }

    /// The uptime at which the next held request is released.
    pub fn next_held(&self) -> Option<Micros> {
        self.held.first().map(|((due, _), ())| *due)
    }

    // --- A request is decided --------------------------------------------------------------------------------------

    fn stopped_waiting(&mut self, stream: StreamId) {
        self.no_longer_waiting.push(stream);
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            // Everything left in it is decided, and no tick would remove it.
            self.deadlines.iter_mut().for_each(VecDeque::clear);
        }
    }

    /// The last part of a request that waited is answered.
    fn conclude(&mut self, stream: StreamId, now: Now) {
        if let Some(request) = self.requests.get_mut(&stream) {
            let mut parts = std::mem::take(&mut request.parts);
            self.borrow(&mut parts, now);
            if let Some(request) = self.requests.get_mut(&stream) {
                request.parts = parts;
            }
        }
        self.decide(stream, now);
    }

    /// All parts are answered: the request is admitted, held or rejected.
    fn decide(&mut self, stream: StreamId, now: Now) {
        self.stopped_waiting(stream);
        if self.queue(stream, now) {
            return;
        }
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let fell_back =
            |part: &Part| matches!(part.answer, Some(CheckAnswer::Unavailable | CheckAnswer::Local(_)));
        if request.parts.iter().any(fell_back) {
            self.decided.fallback = self.decided.fallback.saturating_add(1);
        }
        if self.config.journal.is_some() {
            self.journaled.push(stream);
        }
        let mut has_no_place = false;
        let verdict = match request.verdict(&self.config) {
            Verdict::Admit(admission) if admission.delay > Micros::ZERO => {
                if self.held.len() < MAX_HELD {
                    let due = now.uptime.plus(admission.delay);
                    self.held.insert((due, stream), ());
                    self.tally.totals.delayed = self.tally.totals.delayed.saturating_add(1);
                    request.tally(&mut self.tally, false);
                    request.state = State::Held { due, admission };
                    return;
                }
                has_no_place = true;
                let rejection = response::no_room_to_hold(&request.answers(&self.config.policies));
                rejection.map_or(Verdict::Admit(admission), Verdict::Reject)
            }
            verdict => verdict,
        };
        request.tally(&mut self.tally, has_no_place);
        let action = match verdict {
            Verdict::Admit(admission) => {
                request.admit(admission, &self.config, now.uptime);
                self.decided.admitted = self.decided.admitted.saturating_add(1);
                Action::Admit
            }
            Verdict::Reject(answer) if answer.cause == Cause::Answered => {
                request.state = State::Admitted(Admission::default());
                self.decided.enquiries = self.decided.enquiries.saturating_add(1);
                Action::Reject(answer)
            }
            Verdict::Reject(rejection) => {
                request.state = State::Rejected;
                self.decided.rejected = self.decided.rejected.saturating_add(1);
                let is_banned = rejection.cause == Cause::Banned;
                self.decided.banned = self.decided.banned.saturating_add(is_banned.into());
                // Refund the grants of the policies that did not deny it.
                let granted = request.parts.iter_mut();
                let granted = granted.filter_map(|part| Some((Rc::clone(&part.check), part.receipt.take()?)));
                for (check, receipt) in granted.collect::<InlineVec<_>>() {
                    self.refund_all(&check, &receipt, now);
                }
                Action::Reject(rejection)
            }
        };
        self.releases.push_back(Release { stream, action });
    }

    // --- A request is over -----------------------------------------------------------------------------------------

    /// The stream is closed, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Now) {
        let Some(mut request) = self.requests.remove(&stream) else { return };
        if let Some(queued) = request.queued.take() {
            self.lines.leave(stream, *queued, false, now.uptime);
        }
        match request.state {
            State::AwaitsBody { due } => {
                self.awaited.remove(&(due, stream));
            }
            State::Waiting => self.stopped_waiting(stream),
            State::Held { due, .. } => {
                self.held.remove(&(due, stream));
            }
            State::Queued | State::Admitted(_) => {}
            State::Rejected | State::Closed => {
                // Within twice the deadline, no batch in flight asks about it any more.
                if request.in_flight() {
                    request.state = State::Closed;
                    self.requests.insert(stream, request);
                }
                return;
            }
        }
        for Part { check, receipt, settling, .. } in &mut request.parts {
            let Some(receipt) = receipt else { continue };
            if let Some(settling) = settling {
                let cost = settling.at_end(self.config.settle(check), check.cost, now.uptime);
                self.settle_cost(check, cost, receipt, now);
            }
            self.settle(check, Due::Release(1), receipt, now);
        }
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn admission(&self, stream: StreamId) -> Option<&Admission> {
        match &self.requests.get(&stream)?.state {
            State::Admitted(admission) => Some(admission),
            State::AwaitsBody { .. }
            | State::Waiting
            | State::Queued
            | State::Held { .. }
            | State::Rejected
            | State::Closed => None,
        }
    }

    /// Whether the host has not been told yet to let the request through.
    pub fn is_paused(&self, stream: StreamId) -> bool {
        let is_admitted = |request: &Request| matches!(request.state, State::Admitted(_));
        self.requests.get(&stream).is_some_and(|request| {
            !is_admitted(request) || self.releases.iter().any(|release| release.stream == stream)
        })
    }

    /// Shows what each policy denied about a request that is decided, in shadow mode too, and what the request costs there.
    pub fn denials(&self, stream: StreamId, show: &mut dyn FnMut(&PolicyDenial<'_>, u64)) {
        let Some(request) = self.requests.get(&stream) else { return };
        let is_rejected = matches!(request.state, State::Rejected | State::Closed);
        let answered =
            || request.parts.iter().filter_map(|part| Some((part.check.cost, part.answer.as_ref()?)));
        let denies = |answer: &CheckAnswer| answer.decision().is_some_and(|decision| !decision.granted);
        if is_rejected || answered().any(|(_, answer)| denies(answer)) {
            let answers = request.answers(&self.config.policies);
            for (denied, (cost, _)) in response::denials(&answers, is_rejected).zip(answered()) {
                denied.iter().for_each(|denied| show(denied, cost));
            }
        }
    }

    pub fn record(&self, stream: StreamId) -> Option<Record<'_>> {
        let request = self.config.emit_filter_state.then(|| self.requests.get(&stream))??;
        if request.is_enquiry && matches!(request.state, State::Admitted(_)) {
            return Some(Record::ENQUIRY);
        }
        response::record(&request.answers(&self.config.policies))
    }
}

/// A check as denials remember it: an enquiry is denied where a request is.
fn enforced(check: &Check) -> Cow<'_, Check> {
    match check.mode {
        Mode::Enquiry => Cow::Owned(Check { mode: Mode::Enforce, ..check.clone() }),
        Mode::Enforce | Mode::Shadow => Cow::Borrowed(check),
    }
}

/// Decides one part of a request without the store.
fn fall_back(
    Part { check, answer, receipt, .. }: &mut Part,
    config: &Config,
    denied: &mut Denied,
    local: &mut [Local],
    now: Now,
) {
    *answer = Some(CheckAnswer::Unavailable);
    if let Some(decision) = denied.look_up_unanswered(&enforced(check), now.host) {
        *answer = Some(CheckAnswer::DeniedUntil(decision));
    } else if let Some((local, shares)) = local.get_mut(usize::from(check.store)).zip(config.shares(check)) {
        let plan = config.plan(check);
        let whole = plan.as_ref().map_or(&[][..], |plan| plan.limits());
        let outcome = local.check(check, &shares, whole, now.host);
        let decision = Decision::new(&outcome, &shares, 0, check.ask(1));
        *receipt = decision.granted.then_some(Receipt::Local(outcome));
        *answer = Some(CheckAnswer::Local(decision));
    }
}
