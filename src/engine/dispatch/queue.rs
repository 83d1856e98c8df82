//! What waits to be sent to the store.
//!
//! While one batch is in flight, everything that arrives gathers in the next. Requests for one subject at one cost
//! become one task that asks for as many grants as there are requests. So a hot subject gets cheaper
//! per request as the load grows, and the answer is still exact: the script grants what it can, and the requests
//! share it in the order in which they came. Each task is a command of its own, to the slot that its subject is in. Where
//! one Redis has all slots, one command asks about many subjects, and they get cheaper too.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use smallvec::smallvec;

use super::batch::{Batch, Charge, Command, MAX_TASKS, Refund, Task, Waiter, Work};
use crate::config::Topology;
use crate::engine::seed::Seed;
use crate::policy::Check;
use crate::script::Form;

/// A new task looks for a command that it can join among this many of the last ones.
const LOOKED_AT: usize = 8;

/// At most this many refunds wait; further ones are dropped.
const MAX_REFUNDS: usize = 16_384;

/// A new refund looks for one of the same grant that it can join among this many of the last ones.
const REFUNDS_LOOKED_AT: usize = 256;

/// While refunds wait, one task in this many is a refund, and the others are checks.
const REFUND_SHARE: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Queue {
    topology: Topology,
    /// Full batches, and commands to send again, oldest first.
    ready: VecDeque<Batch>,
    /// The batch that gathers now.
    open: Batch,
    /// How many tasks are in it.
    tasks: usize,
    /// Where in it each subject is asked about: in which task of which command.
    seats: HashMap<Rc<Check>, (usize, usize), Seed>,
    /// Refunds, oldest first.
    refunds: VecDeque<Task>,
    /// How many tasks were sent since the last refund.
    before_refunds: usize,
}

impl Queue {
    pub fn new(topology: Topology, seed: Seed) -> Self {
        let (ready, seats) = (VecDeque::new(), HashMap::with_hasher(seed));
        let (refunds, before_refunds) = (VecDeque::new(), 0);
        Self { topology, ready, open: Batch::new(), tasks: 0, seats, refunds, before_refunds }
    }

    /// Adds a request: to the task of its subject, or in a task of its own. One command asks about at most this many
    /// subjects of its plan.
    pub fn ask(&mut self, check: &Rc<Check>, waiter: Waiter, subjects: usize) {
        if let Some((command, task)) = self.seats.get(check)
            && let Some(task) = self.open.get_mut(*command).and_then(|command| command.tasks.get_mut(*task))
            && let Work::Ask { waiters, .. } = &mut task.work
        {
            waiters.push(waiter);
            return;
        }
        let seat = self.push(check, Work::Ask { waiters: smallvec![waiter], advance: 0 }, subjects);
        self.seats.insert(Rc::clone(check), seat);
    }

    /// Adds a refund, unless there is nothing to give back.
    pub fn refund(&mut self, Refund { check, charge, receipt, requests }: Refund) {
        if charge == Charge::Permits && receipt.permits(1).next().is_none() {
            return;
        }
        for task in self.refunds.iter_mut().rev().take(REFUNDS_LOOKED_AT) {
            if let Work::Refund { charge: other, receipt: from, requests: others } = &mut task.work
                && (*other == charge && Rc::ptr_eq(from, &receipt) && task.check == check)
            {
                *others = others.saturating_add(requests);
                return;
            }
        }
        // While the store is unavailable refunds gather. Units that are not refunded come back with time, permits after their ttl.
        if self.refunds.len() < MAX_REFUNDS {
            self.refunds.push_back(Task { check, work: Work::Refund { charge, receipt, requests } });
        }
    }

    /// Puts commands first in line: the store did not know their script and gets its source now, or they did not fit.
    pub fn requeue(&mut self, commands: Batch) {
        if !commands.is_empty() {
            self.ready.push_front(commands);
        }
    }

    /// How many tasks wait. Refunds do not count: they are sent when there is room.
    pub fn len(&self) -> usize {
        let ready = self.ready.iter().flatten().map(|command| command.tasks.len()).sum::<usize>();
        ready.saturating_add(self.tasks)
    }

    /// The next batch to send, of at most this many tasks: checks, then refunds. Some places are kept for refunds, so that they are
    /// sent however many checks there are.
    pub fn take(&mut self, most: usize, waits: impl Fn(Waiter) -> bool) -> Option<Batch> {
        let due = self.before_refunds.saturating_add(most) / REFUND_SHARE;
        let checks = most.saturating_sub(due.min(most).min(self.refunds.len()));
        let mut batch = if checks > 0 { self.checks(checks, waits) } else { None }.unwrap_or_default();
        let taken: usize = batch.iter().map(|command| command.tasks.len()).sum();
        let refunds = self.refunds.drain(..most.saturating_sub(taken).min(self.refunds.len()));
        self.before_refunds = if refunds.len() > 0 { 0 } else { self.before_refunds.saturating_add(taken) };
        batch.extend(refunds.map(|task| Command { form: Form::Evalsha, tasks: smallvec![task] }));
        if self.refunds.is_empty() {
            self.before_refunds = 0;
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// The checks that are next, at most this many. A request that no longer waits (`waits` says) loses its seat. A check without
    /// a request is dropped.
    fn checks(&mut self, most: usize, waits: impl Fn(Waiter) -> bool) -> Option<Batch> {
        loop {
            let mut batch = match self.ready.pop_front() {
                Some(mut batch) => {
                    // What did not fit the congestion window is not sent alone.
                    if self.ready.is_empty() {
                        batch.extend(self.close());
                    }
                    batch
                }
                None if self.open.is_empty() => return None,
                None => self.close(),
            };
            batch.retain_mut(|command| {
                command.tasks.retain(|task| match &mut task.work {
                    Work::Ask { waiters, .. } => {
                        waiters.retain(|waiter| waits(*waiter));
                        !waiters.is_empty()
                    }
                    Work::Refund { .. } => true,
                });
                !command.tasks.is_empty()
            });
            let rest = split(&mut batch, most);
            self.requeue(rest);
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.open.is_empty() && self.refunds.is_empty()
    }

    /// Adds a task, and says where it is: the command, and the task in it.
    fn push(&mut self, check: &Rc<Check>, work: Work, subjects: usize) -> (usize, usize) {
        if self.tasks >= MAX_TASKS {
            let full = self.close();
            self.ready.push_back(full);
        }
        self.tasks = self.tasks.saturating_add(1);
        let task = Task { check: Rc::clone(check), work };
        if self.topology == Topology::Single {
            let joins = |command: &Command| {
                command.tasks.len() < subjects
                    && command.tasks.first().is_some_and(|first| first.goes_with(&task))
            };
            let mut commands = self.open.iter_mut().enumerate().rev().take(LOOKED_AT);
            if let Some((place, command)) = commands.find(|(_, command)| joins(command)) {
                command.tasks.push(task);
                return (place, command.tasks.len().saturating_sub(1));
            }
        }
        self.open.push(Command { form: Form::Evalsha, tasks: smallvec![task] });
        (self.open.len().saturating_sub(1), 0)
    }

    fn close(&mut self) -> Batch {
        self.seats.clear();
        self.tasks = 0;
        std::mem::take(&mut self.open)
    }
}

/// Takes off what is more than this many tasks.
fn split(batch: &mut Batch, most: usize) -> Batch {
    let mut room = most;
    let whole = batch.iter().take_while(|command| {
        let left = room.checked_sub(command.tasks.len());
        room = left.unwrap_or(room);
        left.is_some()
    });
    let mut rest = batch.split_off(whole.count());
    if let Some(first) = rest.first_mut().filter(|_| room > 0) {
        let more = first.tasks.drain(room..).collect();
        let tasks = std::mem::replace(&mut first.tasks, more);
        batch.push(Command { form: first.form, tasks });
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{LimitOutcome, Outcome};
    use crate::policy::Mode;
    use crate::time::Micros;

    fn check(subject: usize) -> Rc<Check> {
        Rc::new(Check {
            policy: 0,
            tier: 0,
            tag: format!("{{p|{subject}}}").into(),
            cost: 1,
            mode: Mode::Enforce,
        })
    }

    fn refund(check: &Rc<Check>, charge: Charge, receipt: &Rc<Outcome>, requests: u32) -> Refund {
        Refund { check: Rc::clone(check), charge, receipt: Rc::clone(receipt), requests }
    }

    /// What a queue would send: how many checks and how many refunds.
    fn take(queue: &mut Queue, most: usize) -> (usize, usize) {
        let batch = queue.take(most, |_| true).unwrap_or_default();
        assert!(batch.iter().all(|command| !command.tasks.is_empty()), "a reply is owed to each command");
        let is_check = |task: &&Task| matches!(task.work, Work::Ask { .. });
        let tasks: Vec<&Task> = batch.iter().flat_map(|command| &command.tasks).collect();
        let checks = tasks.iter().take_while(|task| is_check(task)).count();
        assert!(!tasks[checks..].iter().any(is_check), "checks go first");
        (checks, tasks.len() - checks)
    }

    #[test]
    fn one_place_in_eight_is_the_refunds_however_small_the_batches_are() {
        let queue = |checks: usize, refunds: usize| {
            let mut queue = Queue::new(Topology::Any, Seed(1));
            for subject in 0..checks {
                queue.ask(&check(subject), Waiter { stream: 1, part: 0 }, 64);
            }
            for subject in 0..refunds {
                let receipt = Outcome { granted: 1, at: Micros::ZERO, limits: Vec::new(), own: None };
                queue.refund(refund(&check(subject), Charge::Units, &Rc::new(receipt), 1));
            }
            queue
        };
        type Sent = (usize, usize);
        let rows: [(usize, usize, usize, &[Sent]); 8] = [
            (100, 100, 16, &[(14, 2), (14, 2), (14, 2)]),
            (100, 1, 16, &[(15, 1), (16, 0), (16, 0)]),
            // A batch of less than eight has a place for one when so many have gone before it.
            (100, 100, 4, &[(4, 0), (3, 1), (4, 0), (3, 1)]),
            (100, 100, 1, &[(1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (0, 1), (1, 0)]),
            (3, 100, 16, &[(3, 13), (0, 16), (0, 16)]),
            (3, 0, 16, &[(3, 0), (0, 0)]),
            (0, 3, 16, &[(0, 3), (0, 0)]),
            (0, 0, 16, &[(0, 0)]),
        ];
        for (checks, refunds, most, batches) in rows {
            let mut queue = queue(checks, refunds);
            let found: Vec<_> = batches.iter().map(|_| take(&mut queue, most)).collect();
            assert_eq!(found, batches, "{checks} checks, {refunds} refunds, {most} at a time");
        }
        // What went before there were any refunds is not counted against the checks.
        let mut queue = queue(100, 0);
        assert_eq!([(); 3].map(|()| take(&mut queue, 4)), [(4, 0); 3]);
        let receipt = Outcome { granted: 1, at: Micros::ZERO, limits: Vec::new(), own: None };
        queue.refund(refund(&check(1), Charge::Units, &Rc::new(receipt), 1));
        assert_eq!([(); 3].map(|()| take(&mut queue, 4)), [(4, 0), (3, 1), (4, 0)]);
    }

    /// One task for what goes back of one grant to one subject; a receipt counts for its own grant only.
    #[test]
    fn refunds_of_one_grant_share_a_task() {
        let grant = |permit_expiry| {
            let limits = vec![LimitOutcome { permit_expiry, ..LimitOutcome::default() }];
            Rc::new(Outcome { granted: 9, at: Micros::ZERO, limits, own: None })
        };
        let (ann, bob, one, other, nothing) = (check(1), check(2), grant(7), grant(7), grant(0));
        let mut queue = Queue::new(Topology::Any, Seed(1));
        for (check, charge, receipt, requests) in [
            (&ann, Charge::Units, &one, 1),
            (&ann, Charge::Permits, &one, 1),
            (&ann, Charge::Units, &other, 1),
            (&bob, Charge::Units, &one, 1),
            (&ann, Charge::Permits, &nothing, 1),
            (&ann, Charge::Units, &one, 3),
            (&ann, Charge::Permits, &one, 2),
            (&ann, Charge::Units, &nothing, 1),
        ] {
            queue.refund(refund(check, charge, receipt, requests));
        }
        let batch = queue.take(100, |_| true).unwrap();
        let found: Vec<_> = batch
            .iter()
            .flat_map(|command| &command.tasks)
            .map(|task| match &task.work {
                Work::Refund { charge, receipt, requests } => {
                    (&task.check, *charge, Rc::as_ptr(receipt), *requests)
                }
                ask @ Work::Ask { .. } => panic!("{ask:?}"),
            })
            .collect();
        let wanted = [
            (&ann, Charge::Units, Rc::as_ptr(&one), 4),
            (&ann, Charge::Permits, Rc::as_ptr(&one), 3),
            (&ann, Charge::Units, Rc::as_ptr(&other), 1),
            (&bob, Charge::Units, Rc::as_ptr(&one), 1),
            (&ann, Charge::Units, Rc::as_ptr(&nothing), 1),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_queue_says_what_it_holds() {
        let mut queue = Queue::new(Topology::Single, Seed(1));
        assert!(queue.is_empty());
        (0..100).for_each(|subject| queue.ask(&check(subject), Waiter { stream: 1, part: 0 }, 64));
        queue.ask(&check(0), Waiter { stream: 2, part: 0 }, 64);
        assert_eq!((queue.len(), queue.is_empty()), (100, false), "those of one subject share a task");
        let batch = queue.take(70, |_| true).unwrap();
        assert_eq!(batch.iter().map(|command| command.tasks.len()).collect::<Vec<_>>(), [64, 6]);
        assert_eq!((queue.len(), queue.is_empty()), (30, false));
        queue.requeue(batch);
        assert_eq!(queue.len(), 100);
        // What is to be repeated goes before what is left over, and what nobody waits for does not go.
        assert!(queue.take(256, |_| true).is_some() && queue.take(256, |_| false).is_none());
        assert!(queue.is_empty());
    }
}
