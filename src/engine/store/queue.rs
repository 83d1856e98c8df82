// SPDX-License-Identifier: Apache-2.0
//! The task queue: the tasks that wait to be sent to the store.
//!
//! While one batch is in flight, everything that arrives gathers in the next one. Requests of one subject at one cost become one task,
//! which asks for as many grants as there are requests. So the cost per request of a hot subject falls as the load grows, and the answer
//! stays exact: the script grants as many as fit, and the requests get the grants in the order in which they came. Each task is a command
//! of its own, for the slot of its subject. If one Redis has all slots, one command asks about many subjects, which costs less.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::batch::{Batch, Command, Due, MAX_TASKS, Settlement, Task, Waiter, Work};
use crate::config::Topology;
use crate::engine::StreamId;
use crate::engine::generations::Seed;
use crate::inline_vec::InlineVec;
use crate::policy::{Check, Subject};
use crate::script::{Form, Plan};

/// A new task looks at this many of the last commands for one that it can join.
const LOOKED_AT: usize = 8;

/// At most this many settlements wait; further ones are dropped.
const MAX_SETTLEMENTS: usize = 16_384;

/// A new settlement looks at this many of the last ones for one to join.
const SETTLEMENTS_LOOKED_AT: usize = 256;

/// While settlements wait, one task in this many is a settlement, and the others are checks.
const SETTLEMENT_SHARE: usize = 8;

/// With at most this many tasks, the task of a subject is found by looking at each. A hash of the subject costs as much.
const FEW: usize = 8;

/// A task that waits, and the form in which its command is sent.
#[derive(Debug)]
struct Waiting {
    task: Task,
    form: Form,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TaskQueue {
    topology: Topology,
    /// The tasks, in the order in which they are sent.
    waiting: VecDeque<Waiting>,
    /// The number of the first of them; the others are numbered in this order.
    first: u64,
    /// The number of the task for each check, while more than [`FEW`] wait. Further requests join it until it is sent.
    numbers: HashMap<Rc<Check>, u64, Seed>,
    /// The settlements, oldest first.
    settlements: VecDeque<Task>,
    /// The number of tasks sent since the last settlement.
    before_settlements: usize,
    /// The memory of a batch that has ended, for the next one.
    spare: Batch,
}

impl TaskQueue {
    pub fn new(topology: Topology, seed: Seed) -> Self {
        let (waiting, numbers) = (VecDeque::new(), HashMap::with_hasher(seed));
        let (settlements, spare) = (VecDeque::new(), Batch::new());
        Self { topology, waiting, first: 0, numbers, settlements, before_settlements: 0, spare }
    }

    /// True if a task waits that a request with this check would join.
    pub fn asks_about(&self, check: &Check) -> bool {
        self.find(check).is_some()
    }

    /// The place of the task that a request with this check joins. If several ask about it, it is the last: the others were put back before
    /// it.
    fn find(&self, check: &Check) -> Option<usize> {
        if self.waiting.len() <= FEW {
            return self.waiting.iter().rposition(|waiting| waiting.task.asks_about(check));
        }
        find_numbered(&self.waiting, self.first, *self.numbers.get(check)?, check)
    }

    /// A task was put in this place: numbers it, if more than [`FEW`] wait.
    fn put(&mut self, place: usize) {
        let count = self.waiting.len();
        match count.checked_sub(FEW) {
            None | Some(0) => {}
            // The others are not numbered yet.
            Some(1) => (0..count).rev().for_each(|place| self.number(place)),
            Some(_) => self.number(place),
        }
    }

    /// Notes the number of the task in this place, unless another one asks about the same.
    fn number(&mut self, place: usize) {
        let Some(Waiting { task: Task { check, work: Work::Ask { .. }, .. }, .. }) = self.waiting.get(place)
        else {
            return;
        };
        if !self.asks_about(check) {
            self.numbers.insert(Rc::clone(check), self.first.wrapping_add(place as u64));
        }
    }

    /// Adds a request: to the task of its subject, or in a task of its own.
    pub fn ask(&mut self, check: &Rc<Check>, plan: &Rc<Plan>, waiter: Waiter) {
        let task = self.find(check).and_then(|place| self.waiting.get_mut(place));
        if let Some(Work::Ask { waiters, .. }) = task.map(|waiting| &mut waiting.task.work) {
            return waiters.push(waiter);
        }
        let work = Work::Ask { waiters: InlineVec::One(waiter), advance: 0 };
        self.add_last(Task { check: Rc::clone(check), plan: Rc::clone(plan), work });
    }

    /// Adds a loan. No request waits for it.
    pub fn lend(&mut self, asks: Rc<Check>, plan: Rc<Plan>, (units, of): (u32, Subject)) {
        self.add_last(Task { check: asks, plan, work: Work::Lend { units, of } });
    }

    fn add_last(&mut self, task: Task) {
        self.waiting.push_back(Waiting { task, form: Form::Evalsha });
        self.put(self.waiting.len().saturating_sub(1));
    }

    /// Adds a settlement. Returns `true` unless the queue is full.
    ///
    /// Settlements of one subject share a task: refunds to one grant, releases of permits that expire together, and all charges, because a
    /// charge does not depend on the grant.
    pub fn settle(&mut self, Settlement { check, due, receipt }: Settlement, plan: &Rc<Plan>) -> bool {
        for task in self.settlements.iter_mut().rev().take(SETTLEMENTS_LOOKED_AT) {
            if let Work::Settle { due: other, receipt: from } = &mut task.work
                && let Some(both) = other.with(due)
                && task.check.has_the_subject_of(&check)
                && match due {
                    Due::Refund(_) => Rc::ptr_eq(from, &receipt),
                    Due::Charge(_) => true,
                    Due::Release(_) => from.permits(1).eq(receipt.permits(1)),
                    Due::Renew(_) => false,
                }
            {
                *other = both;
                return true;
            }
        }
        // While the store is unavailable, settlements gather. Without a refund, units come back with time, and permits after
        // their ttl. Without a charge, a request has cost what it reserved.
        let most = if matches!(due, Due::Renew(_)) { MAX_SETTLEMENTS / 2 } else { MAX_SETTLEMENTS };
        let has_room = self.settlements.len() < most;
        if has_room {
            let work = Work::Settle { due, receipt };
            self.settlements.push_back(Task { check, plan: Rc::clone(plan), work });
        }
        has_room
    }

    /// Puts a settlement that was not sent first among these. Returns it if there is no room for it.
    pub fn put_back(&mut self, settlement: Task) -> Result<(), Task> {
        if self.settlements.len() >= MAX_SETTLEMENTS {
            return Err(settlement);
        }
        self.settlements.push_front(settlement);
        Ok(())
    }

    /// Puts commands back, before all that wait: they did not fit, they were not sent, or the store did not know their script.
    pub fn requeue(&mut self, commands: Batch) {
        for Command { form, tasks } in commands.into_iter().rev() {
            for task in tasks.into_iter().rev() {
                self.first = self.first.wrapping_sub(1);
                self.waiting.push_front(Waiting { task, form });
                self.put(0);
            }
        }
    }

    /// Takes back the memory of a batch that has ended.
    pub fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        if batch.capacity() > self.spare.capacity() {
            self.spare = batch;
        }
    }

    /// The number of waiting settlements.
    pub fn settlements(&self) -> usize {
        self.settlements.len()
    }

    /// The number of waiting tasks. Settlements do not count, because they are sent when there is room.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.settlements.is_empty()
    }

    /// True if checks wait and nothing else, [`FEW`] at most, and `is_meant` holds for each.
    pub fn only_asks(&self, is_meant: &dyn Fn(&Check) -> bool) -> bool {
        let asks = |waiting: &Waiting| {
            matches!(waiting.task.work, Work::Ask { .. }) && is_meant(&waiting.task.check)
        };
        let are_few = (1..=FEW).contains(&self.waiting.len());
        are_few && self.settlements.is_empty() && self.waiting.iter().all(asks)
    }

    /// Returns the next batch to send, with at most `most` tasks, at most `most_settlements` of them settlements: checks, then settlements.
    /// Some places are kept for settlements, so that they are sent even if there are many checks. A request that no longer waits, by
    /// `waits`, leaves its task.
    pub fn take(
        &mut self,
        most: usize,
        most_settlements: usize,
        waits: &dyn Fn(StreamId) -> bool,
    ) -> Option<Batch> {
        let due = self.before_settlements.saturating_add(most) / SETTLEMENT_SHARE;
        let settlements = self.settlements.len().min(most_settlements);
        let checks = most.saturating_sub(due.min(most).min(settlements));
        let mut batch = std::mem::take(&mut self.spare);
        let mut taken = 0_usize;
        while taken < checks
            && let Some(next) = self.next(waits)
        {
            taken = taken.saturating_add(1);
            self.add(next, &mut batch);
        }
        self.forget_sent();
        let room = most.saturating_sub(taken).min(settlements);
        self.before_settlements = if room > 0 { 0 } else { self.before_settlements.saturating_add(taken) };
        if room > 0 {
            let settlements = self.settlements.drain(..room);
            batch
                .extend(settlements.map(|task| Command { form: Form::Evalsha, tasks: InlineVec::One(task) }));
        }
        if self.settlements.is_empty() {
            self.before_settlements = 0;
        }
        if batch.is_empty() {
            self.spare = batch;
            return None;
        }
        Some(batch)
    }

    /// The first task. A check for which no request waits any more is dropped.
    fn next(&mut self, waits: &dyn Fn(StreamId) -> bool) -> Option<Waiting> {
        while let Some(mut next) = self.waiting.pop_front() {
            self.first = self.first.wrapping_add(1);
            let Work::Ask { waiters, .. } = &mut next.task.work else { return Some(next) };
            waiters.retain(|waiter| waits(waiter.stream));
            if !waiters.is_empty() {
                return Some(next);
            }
        }
        None
    }

    /// Forgets the numbers of tasks that were sent: all at once, which costs less than one by one.
    fn forget_sent(&mut self) {
        if self.waiting.len() <= FEW {
            self.numbers.clear();
        } else if self.numbers.len() > self.waiting.len().saturating_mul(2).saturating_add(MAX_TASKS) {
            let (waiting, first) = (&self.waiting, self.first);
            self.numbers.retain(|check, number| find_numbered(waiting, first, *number, check).is_some());
        }
    }

    /// Adds a task to one of the last commands of a batch, or in a command of its own.
    fn add(&self, Waiting { task, form }: Waiting, batch: &mut Batch) {
        let joins = |command: &&mut Command| {
            command.form == form
                && command.tasks.len() < task.plan.subjects()
                && command.tasks.first().is_some_and(|first| first.shares_a_command_with(&task))
        };
        let last = if self.topology == Topology::Single { LOOKED_AT } else { 0 };
        match batch.iter_mut().rev().take(last).find(joins) {
            Some(command) => command.tasks.push(task),
            None => batch.push(Command { form, tasks: InlineVec::One(task) }),
        }
    }
}

/// The place of the task of this number, if it asks about this check. A number may be that of a task that was sent, or of another one that
/// was put there since.
fn find_numbered(waiting: &VecDeque<Waiting>, first: u64, number: u64, check: &Check) -> Option<usize> {
    let place = usize::try_from(number.wrapping_sub(first)).ok()?;
    waiting.get(place)?.task.asks_about(check).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::limit::{LeakyBucket, LimitOutcome, Outcome};
    use crate::random::Random;
    use crate::script::{NamedLimit, Options};
    use crate::time::Micros;

    fn check(subject: usize) -> Rc<Check> {
        Rc::new(Check::one(0, format!("{{p|{subject}}}")))
    }

    fn plan() -> Rc<Plan> {
        let limit = LeakyBucket::new(1, Micros::from_secs(1), 5, Micros::ZERO).unwrap().into();
        Rc::new(Plan::new(vec![NamedLimit { name: "l".into(), limit }], Options::default()).unwrap())
    }

    fn settlement(check: &Rc<Check>, due: Due, receipt: &Rc<Outcome>) -> Settlement {
        Settlement { check: Rc::clone(check), due, receipt: Rc::clone(receipt) }
    }

    /// The numbers of checks and settlements that a queue would send.
    fn take(queue: &mut TaskQueue, most: usize) -> (usize, usize) {
        let batch = queue.take(most, usize::MAX, &|_| true).unwrap_or_default();
        assert!(batch.iter().all(|command| !command.tasks.is_empty()), "a reply is owed to each command");
        let is_check = |task: &&Task| matches!(task.work, Work::Ask { .. });
        let tasks: Vec<&Task> = batch.iter().flat_map(|command| &command.tasks).collect();
        let checks = tasks.iter().take_while(|task| is_check(task)).count();
        assert!(!tasks[checks..].iter().any(is_check), "checks go first");
        (checks, tasks.len() - checks)
    }

    #[test]
    fn one_place_in_eight_is_the_settlements_however_small_the_batches_are() {
        let plan = plan();
        let queue = |checks: usize, settlements: usize| {
            let mut queue = TaskQueue::new(Topology::Any, Seed(1));
            for subject in 0..checks {
                queue.ask(&check(subject), &plan, Waiter { stream: 1, place: 0 });
            }
            for subject in 0..settlements {
                let receipt = Outcome { granted: 1, ..Outcome::NONE };
                assert!(queue.settle(settlement(&check(subject), Due::Refund(1), &Rc::new(receipt)), &plan));
            }
            queue
        };
        type Sent = (usize, usize);
        let rows: [(usize, usize, usize, &[Sent]); 8] = [
            (100, 100, 16, &[(14, 2), (14, 2), (14, 2)]),
            (100, 1, 16, &[(15, 1), (16, 0), (16, 0)]),
            // A batch of less than eight tasks has a place for a settlement if seven checks were sent since the last one.
            (100, 100, 4, &[(4, 0), (3, 1), (4, 0), (3, 1)]),
            (100, 100, 1, &[(1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (0, 1), (1, 0)]),
            (3, 100, 16, &[(3, 13), (0, 16), (0, 16)]),
            (3, 0, 16, &[(3, 0), (0, 0)]),
            (0, 3, 16, &[(0, 3), (0, 0)]),
            (0, 0, 16, &[(0, 0)]),
        ];
        for (checks, settlements, most, batches) in rows {
            let mut queue = queue(checks, settlements);
            let found: Vec<_> = batches.iter().map(|_| take(&mut queue, most)).collect();
            assert_eq!(found, batches, "{checks} checks, {settlements} settlements, {most} at a time");
        }
        // A probe carries one at most.
        let mut probes = queue(3, 100);
        let mut settlements = |most: usize, most_settlements: usize| {
            let batch = probes.take(most, most_settlements, &|_| true).unwrap_or_default();
            (batch.len(), batch.iter().filter(|of| matches!(of.tasks[0].work, Work::Settle { .. })).count())
        };
        assert_eq!([settlements(16, 1), settlements(16, 1), settlements(16, 0)], [(4, 1), (1, 1), (0, 0)]);
        // Checks sent before there were any settlements do not reduce the share of later checks.
        let mut queue = queue(100, 0);
        assert_eq!([(); 3].map(|()| take(&mut queue, 4)), [(4, 0); 3]);
        let receipt = Outcome { granted: 1, ..Outcome::NONE };
        assert!(queue.settle(settlement(&check(1), Due::Refund(1), &Rc::new(receipt)), &plan));
        assert_eq!([(); 3].map(|()| take(&mut queue, 4)), [(4, 0), (3, 1), (4, 0)]);
    }

    /// One task for what is settled of one grant to one subject. Refunded units belong to their own grant; permits are the same if
    /// they expire together; a charge is the same after any grant, where the limits are the same.
    #[test]
    fn settlements_of_one_kind_share_a_task() {
        let grant = |permit_expiry| {
            let limits = InlineVec::One(LimitOutcome { permit_expiry, ..LimitOutcome::default() });
            Rc::new(Outcome { granted: 9, limits, ..Outcome::NONE })
        };
        let (ann, bob, one, other, later, nothing) =
            (check(1), check(2), grant(7), grant(7), grant(8), grant(0));
        let larger = Rc::new(Check { scale: 2, ..Check::clone(&ann) });
        let mut queue = TaskQueue::new(Topology::Any, Seed(1));
        for (check, due, receipt) in [
            (&ann, Due::Refund(1), &one),
            (&ann, Due::Release(1), &one),
            (&ann, Due::Refund(1), &other),
            (&ann, Due::Charge(5), &one),
            (&bob, Due::Refund(1), &one),
            (&ann, Due::Refund(3), &one),
            (&ann, Due::Release(2), &one),
            (&ann, Due::Charge(6), &other),
            (&larger, Due::Charge(2), &other),
            (&bob, Due::Charge(1), &one),
            (&ann, Due::Release(1), &other),
            (&ann, Due::Release(1), &later),
            (&ann, Due::Refund(1), &nothing),
        ] {
            assert!(queue.settle(settlement(check, due, receipt), &plan()));
        }
        let batch = queue.take(100, usize::MAX, &|_| true).unwrap();
        let found: Vec<_> = batch
            .iter()
            .flat_map(|command| &command.tasks)
            .map(|task| match &task.work {
                Work::Settle { due, receipt } => (&task.check, *due, Rc::as_ptr(receipt)),
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted = [
            (&ann, Due::Refund(4), Rc::as_ptr(&one)),
            (&ann, Due::Release(4), Rc::as_ptr(&one)),
            (&ann, Due::Refund(1), Rc::as_ptr(&other)),
            (&ann, Due::Charge(11), Rc::as_ptr(&one)),
            (&bob, Due::Refund(1), Rc::as_ptr(&one)),
            (&larger, Due::Charge(2), Rc::as_ptr(&other)),
            (&bob, Due::Charge(1), Rc::as_ptr(&one)),
            (&ann, Due::Release(1), Rc::as_ptr(&later)),
            (&ann, Due::Refund(1), Rc::as_ptr(&nothing)),
        ];
        assert_eq!(found, wanted);
    }

    /// Then they are not forgotten all at once.
    #[test]
    fn numbers_are_bounded_while_many_tasks_wait() {
        let (plan, mut queue) = (plan(), TaskQueue::new(Topology::Any, Seed(1)));
        let mut subjects = (0..).map(check);
        let mut ask = |queue: &mut TaskQueue, count: usize| {
            for check in subjects.by_ref().take(count) {
                queue.ask(&check, &plan, Waiter { stream: 1, place: 0 });
            }
        };
        ask(&mut queue, 20);
        for _ in 0..1_000 {
            ask(&mut queue, 7);
            assert_eq!(take(&mut queue, 7), (7, 0));
            assert!(queue.numbers.len() <= 2 * 20 + MAX_TASKS, "{} of 20", queue.numbers.len());
        }
    }

    #[test]
    fn settlements_that_wait_are_bounded() {
        let (mut queue, plan) = (TaskQueue::new(Topology::Any, Seed(1)), plan());
        let receipt = Rc::new(Outcome { granted: 1, ..Outcome::NONE });
        let mut settle = |subject| queue.settle(settlement(&check(subject), Due::Charge(1), &receipt), &plan);
        assert!((0..MAX_SETTLEMENTS).all(&mut settle));
        assert!(!settle(MAX_SETTLEMENTS), "there is no room for a new task");
        assert!(settle(MAX_SETTLEMENTS - 1), "it joins one that waits");
    }

    /// Whatever was sent and put back meanwhile, a request waits in a task of its own subject, and in one only.
    #[test]
    fn a_request_joins_no_other_subjects_task() {
        for subjects in [5, FEW + 2, 40] {
            each_waits_once(subjects);
        }
    }

    fn each_waits_once(subjects: usize) {
        let (mut queue, plan) = (TaskQueue::new(Topology::Any, Seed(1)), plan());
        let checks: Vec<_> = (0..subjects).map(check).collect();
        let (mut random, mut sent) = (Random::new(1), Vec::<Batch>::new());
        let mut roll = |sides: u64| random.below(sides);
        let mut waiting = Vec::new();
        for stream in 0..20_000 {
            match roll(8) {
                0 => sent.extend(queue.take(usize::try_from(roll(4)).unwrap() + 1, usize::MAX, &|_| true)),
                1 if !sent.is_empty() => {
                    queue.requeue(sent.swap_remove(usize::try_from(roll(64)).unwrap() % sent.len()))
                }
                2 if sent.len() > 2 => {
                    // Answered: these wait no longer.
                    let answered = sent.swap_remove(0);
                    let streams: Vec<_> = waiters(&answered).map(|(_, stream)| stream).collect();
                    waiting.retain(|(_, stream)| !streams.contains(stream));
                }
                _ => {
                    let subject = usize::try_from(roll(checks.len() as u64)).unwrap();
                    queue.ask(&checks[subject], &plan, Waiter { stream, place: 0 });
                    assert!(queue.asks_about(&checks[subject]));
                    waiting.push((subject, stream));
                }
            }
            if stream % 50 == 0 {
                // Those that wait are in the queue or in flight, each once, beside their own subject.
                let queued: Batch = queue.waiting.iter().map(command).collect();
                let mut found: Vec<_> = sent.iter().chain([&queued]).flat_map(waiters).collect();
                let mut wanted: Vec<_> =
                    waiting.iter().map(|(subject, stream)| (checks[*subject].tag.clone(), *stream)).collect();
                found.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(found, wanted);
                assert!(queue.numbers.len() <= 2 * queue.waiting.len() + MAX_TASKS, "the table is bounded");
            }
        }
    }

    fn command(waiting: &Waiting) -> Command {
        let Task { check, plan, work } = &waiting.task;
        let Work::Ask { waiters, advance } = work else { panic!("{work:?}") };
        let work = Work::Ask { waiters: waiters.clone(), advance: *advance };
        let task = Task { check: Rc::clone(check), plan: Rc::clone(plan), work };
        Command { form: waiting.form, tasks: InlineVec::One(task) }
    }

    /// The tag of each request's subject, and the request.
    fn waiters(batch: &Batch) -> impl Iterator<Item = (Vec<u8>, StreamId)> {
        let of = |task: &Task| {
            let tag = task.check.tag.clone();
            task.waiters().iter().map(move |waiter| (tag.clone(), waiter.stream)).collect::<Vec<_>>()
        };
        batch.iter().flat_map(|command| &command.tasks).flat_map(of)
    }

    #[test]
    fn a_request_joins_a_task_that_is_sent_again_alone() {
        let (mut queue, plan) = (TaskQueue::new(Topology::Any, Seed(1)), plan());
        (0..3).for_each(|subject| queue.ask(&check(subject), &plan, Waiter { stream: 1, place: 0 }));
        let first = queue.take(1, usize::MAX, &|_| true).unwrap();
        queue.take(1, usize::MAX, &|_| true).unwrap();
        queue.requeue(first);
        assert!(queue.asks_about(&check(0)) && !queue.asks_about(&check(1)) && queue.asks_about(&check(2)));
        queue.ask(&check(0), &plan, Waiter { stream: 2, place: 0 });
        assert_eq!(queue.len(), 2);
    }

    /// However many tasks were sent at once.
    #[test]
    fn numbers_of_tasks_that_were_sent_are_forgotten() {
        let (mut queue, plan) = (TaskQueue::new(Topology::Any, Seed(1)), plan());
        (0..1_000).for_each(|subject| queue.ask(&check(subject), &plan, Waiter { stream: 1, place: 0 }));
        queue.take(999, usize::MAX, &|_| true).unwrap();
        assert_eq!(queue.numbers.len(), 0, "one is found without");
        assert!(queue.asks_about(&check(999)));
    }

    #[test]
    fn a_queue_says_what_it_holds() {
        let plan = plan();
        let mut queue = TaskQueue::new(Topology::Single, Seed(1));
        assert!(queue.is_empty());
        (0..100).for_each(|subject| queue.ask(&check(subject), &plan, Waiter { stream: 1, place: 0 }));
        queue.ask(&check(0), &plan, Waiter { stream: 2, place: 0 });
        assert_eq!((queue.len(), queue.is_empty()), (100, false), "those of one subject share a task");
        let batch = queue.take(70, usize::MAX, &|_| true).unwrap();
        assert_eq!(batch.iter().map(|command| command.tasks.len()).collect::<Vec<_>>(), [64, 6]);
        assert_eq!((queue.len(), queue.is_empty()), (30, false));
        queue.requeue(batch);
        assert_eq!(queue.len(), 100);
        // Tasks that are sent again go first, and can be joined. Tasks for which no request waits are not sent.
        (0..70).for_each(|subject| {
            assert!(queue.asks_about(&check(subject)));
            queue.ask(&check(subject), &plan, Waiter { stream: 3, place: 0 });
        });
        assert_eq!(queue.len(), 100);
        assert!(
            queue.take(70, usize::MAX, &|_| true).is_some()
                && queue.take(256, usize::MAX, &|_| false).is_none()
        );
        assert!(queue.is_empty());
    }
}
