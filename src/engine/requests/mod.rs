//! The requests' life: submitted, decided, perhaps held, released, closed. It decides by what is known without asking
//! ([`Denied`], [`Leases`], [`Local`]) and by what the dispatch reports. It reports what others have to do: [`Release`]s to the
//! host; [`Settlement`]s, and the requests that no longer wait, to the dispatch.

mod denied;
mod lease;
mod local;
mod request;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::clock::Now;
use super::dispatch::{Batch, Due, Event, NotAsked, Settlement, Slots, Task, Waiter, Work, count, tasks};
use super::seed::Seed;
use super::{Action, Release, StreamId};
use crate::config::Config;
use crate::decision::{CheckAnswer, Decision};
use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Outcome};
use crate::policy::settle::{Fields, Settle, Settling, Watched};
use crate::policy::{Check, Mode};
use crate::response::{self, Admission, Cause, Record, Verdict};
use crate::sorted_map::SortedMap;
use crate::time::Micros;

use denied::Denied;
use lease::{Leases, Served, Unused};
use local::Local;
use request::{Part, Receipt, Request, State};

/// At most this many requests of one worker wait for the store; one more is decided as if the store were unavailable.
const MAX_WAITING: usize = 16_384;

/// At most this many requests of one worker are held for `max_delay`; one more is rejected.
const MAX_HELD: usize = 4_096;

/// How many requests were decided, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decided {
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
}

/// A check that the store is to be asked about.
pub(super) type Question = (Rc<Check>, Waiter, Slots);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Requests {
    config: Rc<Config>,
    /// The host chooses the numbers, so they need no [`Seed`].
    requests: HashMap<StreamId, Request, foldhash::fast::FixedState>,
    /// Requests in the order of their deadlines, in loop time. Requests that are already decided are skipped.
    deadlines: VecDeque<(Micros, StreamId)>,
    /// How many requests wait for the store.
    waiting: usize,
    /// Held requests and the uptime at which they are released, soonest first.
    held: SortedMap<(Micros, StreamId), ()>,
    denied: Denied,
    leases: Leases,
    local: Local,
    pub decided: Decided,
    pub settled: Settled,
    pub releases: VecDeque<Release>,
    /// What the store is to settle.
    pub settlements: Vec<Settlement>,
    /// Requests that no longer wait for the store.
    pub no_longer_waiting: Vec<StreamId>,
}

impl Requests {
    pub fn new(config: Rc<Config>, seed: u64) -> Self {
        Self {
            config,
            requests: HashMap::default(),
            deadlines: VecDeque::new(),
            waiting: 0,
            held: SortedMap::default(),
            denied: Denied::new(Seed(seed)),
            leases: Leases::new(Seed(seed)),
            local: Local::new(Seed(seed)),
            decided: Decided::default(),
            settled: Settled::default(),
            releases: VecDeque::new(),
            settlements: Vec::new(),
            no_longer_waiting: Vec::new(),
        }
    }

    // --- A request arrives -----------------------------------------------------------------------------------------

    /// A request arrives. If enough is known without the store, it is decided at once. Returns whether the store has to be
    /// asked.
    pub fn submit(&mut self, stream: StreamId, checks: InlineVec<Check>, now: Now) -> bool {
        let part = |check: Check| {
            let answer = self.denied.look_up(&check, now.host).map(CheckAnswer::DeniedUntil);
            Part { check: Rc::new(check), answer, in_flight: false, receipt: None, settling: None }
        };
        let mut request = Request { parts: checks.into_iter().map(part).collect(), state: State::Waiting };
        // One enforced denial is enough: then no lease is used for the other parts.
        let denied =
            request.parts.iter().any(|part| part.answer.is_some() && part.check.mode == Mode::Enforce);
        if !denied {
            for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
                let limits = self.config.plan(&part.check).map_or(&[][..], |plan| plan.limits());
                if let Some(Served { decision, receipt }) = self.leases.serve(&part.check, limits, now.host) {
                    (part.answer, part.receipt) =
                        (Some(CheckAnswer::Lease(decision)), Some(Receipt::Store(receipt)));
                }
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

    /// Decides those parts of a new request that the store is not asked about: `admits` says which. Returns the checks to
    /// ask the store about, none if the request is decided; and whether a part is not asked about because the store is
    /// overloaded.
    pub fn wait(
        &mut self,
        stream: StreamId,
        deadline: Micros,
        admits: &dyn Fn(&Check) -> Result<Slots, NotAsked>,
        now: Now,
    ) -> (InlineVec<Question>, bool) {
        let is_full = self.waiting > MAX_WAITING;
        let (mut questions, mut overloaded, mut fell_back) = (InlineVec::new(), false, false);
        let Some(request) = self.requests.get_mut(&stream) else { return (questions, overloaded) };
        let unanswered = request.parts.iter_mut().enumerate().filter(|(_, part)| part.answer.is_none());
        for (index, part) in unanswered {
            match admits(&part.check) {
                Ok(slots) if !is_full => {
                    questions.push((Rc::clone(&part.check), Waiter { stream, part: index }, slots));
                    continue;
                }
                Ok(_) | Err(NotAsked::Overloaded) => overloaded = true,
                Err(NotAsked::BreakerOpen) => {}
            }
            fell_back = true;
            fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        }
        // If `on_failure` rejects the request, the store must not charge it for its other policies.
        let is_rejected = fell_back
            && matches!(response::verdict(&request.answers(&self.config.policies)), Verdict::Reject(_));
        if questions.is_empty() || is_rejected {
            self.decide(stream, now);
            questions.clear();
        } else {
            self.deadlines.push_back((deadline, stream));
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
                if let Some(decision) = denied.look_up(check, now.host) {
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
            Event::Failed(Task { work: Work::Settle { .. }, .. }) => {}
            Event::NotRun { check, waiters, advance } => {
                self.leases.arrived(&check, advance);
                waiters.into_iter().for_each(|waiter| self.mark(waiter, false));
            }
        }
    }

    /// The store's answer about a subject, for all requests that wait for it.
    fn answered(&mut self, task: &Task, outcome: &Rc<Outcome>, (asked, now): (Micros, Now)) {
        let Task { check, plan, work: Work::Ask { waiters, advance } } = task else { return };
        let (ask, waiting, config) = (task.ask(), count(waiters), Rc::clone(&self.config));
        if outcome.granted < waiting {
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
            State::Waiting => {
                (part.answer, part.receipt) = (Some(answer), receipt);
                if request.is_answered() {
                    self.decide(to.stream, now);
                }
            }
            // It was admitted without the store, and is charged now. Its permits are released when it ends.
            State::Held { .. } | State::Admitted(_) if part.receipt.is_none() => part.receipt = receipt,
            State::Held { .. } | State::Admitted(_) => {
                receipt.iter().for_each(|receipt| self.settle(check, Due::Release(1), receipt, now));
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
            self.decide(waiter.stream, now);
        }
    }

    /// A request stops waiting: its parts without an answer are decided without the store.
    pub fn stop_waiting(&mut self, stream: StreamId, now: Now) {
        let Some(request) = self.requests.get_mut(&stream).filter(|request| request.waits()) else { return };
        for part in request.parts.iter_mut().filter(|part| part.answer.is_none()) {
            fall_back(part, &self.config, &mut self.denied, &mut self.local, now);
        }
        self.decide(stream, now);
    }

    /// All requests stop waiting.
    pub fn stop_all_waiting(&mut self, now: Now) {
        for (_, stream) in std::mem::take(&mut self.deadlines) {
            self.stop_waiting(stream, now);
        }
    }

    /// The store has recovered. The local shares begin unused when it fails again.
    pub fn store_recovered(&mut self) {
        self.local.forget();
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

    /// Decides the requests whose deadline has passed, without the store. Returns their number.
    pub fn expire(&mut self, now: Now) -> usize {
        let mut expired = 0_usize;
        while let Some(&(deadline, stream)) = self.deadlines.front() {
            let waits = self.waits(stream);
            if waits && deadline > now.loop_time {
                break;
            }
            self.deadlines.pop_front();
            if waits {
                expired = expired.saturating_add(1);
                self.stop_waiting(stream, now);
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
        self.settlements.extend(unused.into_iter().map(|Unused { check, receipt, requests }| {
            let due = Due::Refund(check.cost.saturating_mul(requests.into()));
            Settlement { check, due, receipt }
        }));
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
            self.deadlines.clear();
        }
    }

    /// All parts are answered: the request is admitted, held or rejected.
    fn decide(&mut self, stream: StreamId, now: Now) {
        self.stopped_waiting(stream);
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let fell_back =
            |part: &Part| matches!(part.answer, Some(CheckAnswer::Unavailable | CheckAnswer::Local(_)));
        if request.parts.iter().any(fell_back) {
            self.decided.fallback = self.decided.fallback.saturating_add(1);
        }
        let policies = &self.config.policies;
        let verdict = response::verdict(&request.answers(policies));
        let verdict = match verdict {
            Verdict::Admit(admission) if admission.delay > Micros::ZERO => {
                if self.held.len() < MAX_HELD {
                    let due = now.uptime.plus(admission.delay);
                    self.held.insert((due, stream), ());
                    request.state = State::Held { due, admission };
                    return;
                }
                let rejection = response::no_room_to_hold(&request.answers(policies));
                rejection.map_or(Verdict::Admit(admission), Verdict::Reject)
            }
            verdict => verdict,
        };
        let action = match verdict {
            Verdict::Admit(admission) => {
                request.admit(admission, &self.config, now.uptime);
                self.decided.admitted = self.decided.admitted.saturating_add(1);
                Action::Admit
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

    /// Refunds a grant of a request that is rejected all the same.
    fn refund_all(&mut self, check: &Rc<Check>, receipt: &Receipt, now: Now) {
        self.settle(check, Due::Refund(check.cost), receipt, now);
        self.settle(check, Due::Release(1), receipt, now);
        self.denied.forget(check);
    }

    fn settle(&mut self, check: &Rc<Check>, due: Due, receipt: &Receipt, now: Now) {
        match receipt {
            // A policy without `concurrency` limits holds no permits.
            Receipt::Store(receipt)
                if matches!(due, Due::Release(_)) && receipt.permits(1).next().is_none() => {}
            Receipt::Store(receipt) => {
                let (check, receipt) = (Rc::clone(check), Rc::clone(receipt));
                self.settlements.push(Settlement { check, due, receipt });
            }
            Receipt::Local(receipt) => {
                if let Some(shares) = self.config.shares(check) {
                    self.local.settle(check, shares, due, receipt, now.host);
                }
            }
        }
    }

    // --- The response shows what the request has cost --------------------------------------------------------------

    /// The headers of the response to an admitted request. Returns what else the host has to pass on of it.
    pub fn response_headers(&mut self, stream: StreamId, fields: Fields<'_>, now: Now) -> Watched {
        self.watch(stream, now, |settling, settle| settling.headers(settle, fields))
    }

    /// A part of the response's body, of so many bytes, and its content where that is needed.
    pub fn response_body(&mut self, stream: StreamId, bytes: usize, content: &[u8]) {
        let parts = self.requests.get_mut(&stream).into_iter().flat_map(|request| &mut request.parts);
        let watching = parts.filter_map(|part| part.settling.as_deref_mut());
        watching.for_each(|settling| settling.body(bytes, content));
    }

    /// The trailers of the response.
    pub fn response_trailers(&mut self, stream: StreamId, fields: Fields<'_>, now: Now) {
        self.watch(stream, now, |settling, settle| {
            settling.trailers(settle, fields);
            Watched::default()
        });
    }

    /// Shows a part of the response to each policy that settles, and settles what is known then.
    fn watch(
        &mut self,
        stream: StreamId,
        now: Now,
        mut show: impl FnMut(&mut Settling, &Settle) -> Watched,
    ) -> Watched {
        let config = Rc::clone(&self.config);
        let Some(request) = self.requests.get_mut(&stream) else { return Watched::default() };
        let (mut watched, mut known) = (Watched::default(), InlineVec::<(Rc<Check>, u64, Receipt)>::new());
        for Part { check, receipt, settling, .. } in &mut request.parts {
            let Some(state) = settling else { continue };
            let settle = config.settle(check);
            let wants = show(state, settle);
            // A grant that has not come yet is settled when the stream ends.
            match receipt.as_ref().and_then(|receipt| Some((receipt, state.known(settle, check.cost)?))) {
                Some((receipt, cost)) => {
                    known.push((Rc::clone(check), cost, receipt.clone()));
                    *settling = None;
                }
                None => watched = watched.or(wants),
            }
        }
        self.settled.unreadable = self.settled.unreadable.saturating_add(watched.unreadable.into());
        for (check, cost, receipt) in known {
            self.settle_cost(&check, cost, &receipt, now);
        }
        watched
    }

    /// A request has reserved `check.cost`, and turned out to cost this.
    fn settle_cost(&mut self, check: &Rc<Check>, cost: u64, receipt: &Receipt, now: Now) {
        let (more, less) = (cost.saturating_sub(check.cost), check.cost.saturating_sub(cost));
        self.settled.charged = self.settled.charged.saturating_add(more);
        self.settled.refunded = self.settled.refunded.saturating_add(less);
        if more > 0 {
            self.settle(check, Due::Charge(more), receipt, now);
        }
        if less > 0 {
            self.settle(check, Due::Refund(less), receipt, now);
            self.denied.forget(check);
        }
    }

    // --- A request is over -----------------------------------------------------------------------------------------

    /// The stream is closed, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Now) {
        let Some(mut request) = self.requests.remove(&stream) else { return };
        match request.state {
            State::Waiting => self.stopped_waiting(stream),
            State::Held { due, .. } => {
                self.held.remove(&(due, stream));
            }
            State::Admitted(_) => {}
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
            State::Waiting | State::Held { .. } | State::Rejected | State::Closed => None,
        }
    }

    pub fn record(&self, stream: StreamId) -> Option<Record<'_>> {
        let request = self.config.emit_filter_state.then(|| self.requests.get(&stream))??;
        response::record(&request.answers(&self.config.policies))
    }
}

/// Decides one part of a request without the store.
fn fall_back(
    Part { check, answer, receipt, .. }: &mut Part,
    config: &Config,
    denied: &mut Denied,
    local: &mut Local,
    now: Now,
) {
    *answer = Some(CheckAnswer::Unavailable);
    if let Some(decision) = denied.look_up_unanswered(check, now.host) {
        *answer = Some(CheckAnswer::DeniedUntil(decision));
    } else if let Some(shares) = config.shares(check) {
        let whole = config.plan(check).map_or(&[][..], |plan| plan.limits());
        let outcome = local.check(check, shares, whole, now.host);
        let decision = Decision::new(&outcome, shares, 0, Ask { requests: 1, cost: check.cost });
        *receipt = decision.granted.then_some(Receipt::Local(outcome));
        *answer = Some(CheckAnswer::Local(decision));
    }
}
