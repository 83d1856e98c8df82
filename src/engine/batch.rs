//! The batch: what waits to be asked of the store, and what is on its way there.
//!
//! While one batch flies, everything that arrives gathers in the next; requests for one subject at one cost
//! become one task that asks for as many grants as there are requests. A hot subject therefore gets cheaper
//! per request as the load grows, and the answer is still exact: the script grants what it can, the requests
//! share it first come, first served. Each task is a command of its own, to the slot that its subject is in; where
//! one Redis has all slots, one command asks about many subjects, and they get cheaper too.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use smallvec::smallvec;

use super::StreamId;
use super::seed::Seed;
use crate::config::Topology;
use crate::limit::{Ask, Outcome};
use crate::policy::{Check, Few};
use crate::script::{Form, Plan};

/// At most this many tasks in one batch: it bounds the reply one callback has to digest, and the time the
/// connection is taken by it.
pub(super) const MAX_TASKS: usize = 256;

/// Among so many of the last commands one is looked for that a task can join.
const LOOKED_AT: usize = 8;

/// At most so much goes back later; what is more is dropped.
const MAX_REFUNDS: usize = 16_384;

/// Among so many of the last refunds one is looked for that another of the same grant can join.
const REFUNDS_LOOKED_AT: usize = 256;

/// One in so many tasks is a refund while refunds wait, and the others are checks.
const REFUND_SHARE: usize = 8;

/// At most this many bytes of commands in one batch, well below what the bridge takes. The longest single command has a quarter
/// of that: a batch always holds one.
const MAX_BYTES: usize = 1024 * 1024;

/// A request's seat in a command: the request, and which of its checks this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub stream: StreamId,
    pub part: usize,
}

/// What a command does for its subject.
#[derive(Debug)]
pub(super) enum Work {
    /// Ask for one grant per waiter, and for so many in advance.
    Ask { waiters: Few<Waiter>, advance: u32 },
    /// Give back what so many of the requests that `paid` granted have taken.
    GiveBack { what: Taken, paid: Rc<Outcome>, requests: u32 },
}

/// What a grant takes, and can be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Units: another policy denied the request.
    Units,
    /// Places in concurrency limits: the request has ended.
    Places,
}

/// What the store is to do for one subject.
#[derive(Debug)]
pub(super) struct Task {
    pub check: Rc<Check>,
    pub work: Work,
}

impl Task {
    fn encode(&self, plan: &Plan, form: Form, out: &mut Vec<u8>) {
        let tag = &self.check.tag;
        match &self.work {
            Work::Ask { .. } => plan.check(tag, self.ask(), None, form, out),
            Work::GiveBack { what: Taken::Units, paid, requests } => {
                let units = self.check.cost.saturating_mul(u64::from(*requests));
                let units = i64::try_from(units).unwrap_or(i64::MAX);
                plan.settle(tag, units.saturating_neg(), paid, None, form, out);
            }
            Work::GiveBack { what: Taken::Places, paid, requests } => {
                let permits: Vec<_> = paid.permits(*requests).collect();
                plan.release(tag, &permits, None, form, out);
            }
        }
    }

    /// The question this task puts.
    pub fn ask(&self) -> Ask {
        let requests = match &self.work {
            Work::Ask { waiters, advance } => {
                u32::try_from(waiters.len()).unwrap_or(u32::MAX).saturating_add(*advance)
            }
            Work::GiveBack { requests, .. } => *requests,
        };
        Ask { requests, cost: self.check.cost }
    }

    /// Whether one script call can do this task and the other.
    fn goes_with(&self, other: &Self) -> bool {
        let of = |task: &Self| match task.work {
            Work::Ask { .. } => Some((task.check.policy, task.check.tier)),
            Work::GiveBack { .. } => None,
        };
        of(self).is_some_and(|plan| of(other) == Some(plan))
    }
}

/// One script call: for one subject, or for several of one plan that are asked about.
#[derive(Debug)]
pub(super) struct Command {
    pub form: Form,
    pub tasks: Few<Task>,
}

impl Command {
    fn encode(&self, plan: &Plan, form: Form, out: &mut Vec<u8>) {
        match self.tasks.as_slice() {
            [task] => task.encode(plan, form, out),
            tasks => {
                let subjects = tasks.iter().map(|task| (task.check.tag.as_slice(), task.ask()));
                plan.check_all(subjects, None, form, out);
            }
        }
    }

    /// The script that it calls.
    fn source<'a>(&self, plan: &'a Plan) -> &'a str {
        let [check, check_all, settle, release] = plan.sources();
        match self.tasks.as_slice() {
            [Task { work: Work::Ask { .. }, .. }] => check,
            [Task { work: Work::GiveBack { what: Taken::Units, .. }, .. }] => settle,
            [Task { work: Work::GiveBack { what: Taken::Places, .. }, .. }] => release,
            _ => check_all,
        }
    }
}

/// The commands of a batch, as the bridge gets them.
pub(super) struct Body<'a> {
    topology: Topology,
    pub bytes: Vec<u8>,
    /// The scripts whose sources are in it.
    sources: Few<&'a str>,
}

impl<'a> Body<'a> {
    pub fn new(topology: Topology) -> Self {
        Self { topology, bytes: Vec::new(), sources: Few::new() }
    }

    /// Appends a command, unless that makes it too long. One Redis that is told a script's source knows it for the rest of the
    /// batch; the form of the command is then how it was sent. (Should that Redis still not know it, the command is
    /// sent again; the first command of a batch that calls a script always brings the source, so this ends.)
    pub fn push(&mut self, command: &mut Command, plan: &'a Plan) -> bool {
        let before = self.bytes.len();
        self.bytes.reserve(256);
        let source = command.source(plan);
        let knows = self.topology == Topology::Single && self.sources.contains(&source);
        let form = if knows { Form::Evalsha } else { command.form };
        command.encode(plan, form, &mut self.bytes);
        if self.bytes.len() > MAX_BYTES && before > 0 {
            self.bytes.truncate(before);
            return false;
        }
        if form == Form::Eval && self.topology == Topology::Single {
            self.sources.push(source);
        }
        command.form = form;
        true
    }
}

/// Commands that travel together, in order; the store's replies come back in the same order.
pub(super) type Batch = Vec<Command>;

/// Which request asks about which tag.
pub(super) fn asks(batch: &[Command]) -> impl Iterator<Item = (&[u8], StreamId)> + Clone {
    batch.iter().flat_map(|command| &command.tasks).flat_map(|Task { check, work }| {
        let waiters = match work {
            Work::Ask { waiters, .. } => waiters.as_slice(),
            Work::GiveBack { .. } => &[],
        };
        waiters.iter().map(|waiter| (check.tag.as_slice(), waiter.stream))
    })
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Queue {
    topology: Topology,
    /// Full batches, and commands to repeat, oldest first.
    ready: VecDeque<Batch>,
    /// The batch that gathers now,…
    open: Batch,
    /// …how many tasks there are in it,…
    tasks: usize,
    /// …and where in it each subject already asks: in which task of which command.
    seats: HashMap<Rc<Check>, (usize, usize), Seed>,
    /// What goes back when there is room besides the checks, oldest first,…
    refunds: VecDeque<Task>,
    /// …and how many tasks have gone before it since any of it went.
    before_refunds: usize,
}

impl Queue {
    pub fn new(topology: Topology, seed: Seed) -> Self {
        let (ready, seats) = (VecDeque::new(), HashMap::with_hasher(seed));
        let (refunds, before_refunds) = (VecDeque::new(), 0);
        Self { topology, ready, open: Batch::new(), tasks: 0, seats, refunds, before_refunds }
    }

    /// Seats a request: beside the others of its subject, or in a task of its own.
    /// One command asks about so many subjects of this plan at most.
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

    /// Gives back what so many requests that `paid` granted have taken, if they have taken any of it.
    pub fn give_back(&mut self, check: &Rc<Check>, what: Taken, paid: &Rc<Outcome>, requests: u32) {
        if what == Taken::Places && paid.permits(1).next().is_none() {
            return;
        }
        for task in self.refunds.iter_mut().rev().take(REFUNDS_LOOKED_AT) {
            if let Work::GiveBack { what: other, paid: from, requests: others } = &mut task.work
                && (*other == what && Rc::ptr_eq(from, paid) && task.check == *check)
            {
                *others = others.saturating_add(requests);
                return;
            }
        }
        // While the store is away what should go back gathers. What is dropped comes back with time, or its ttl.
        if self.refunds.len() < MAX_REFUNDS {
            let work = Work::GiveBack { what, paid: Rc::clone(paid), requests };
            self.refunds.push_back(Task { check: Rc::clone(check), work });
        }
    }

    /// Puts commands first in line: the store did not know their script and is told it now, or they did not fit.
    pub fn repeat(&mut self, commands: Batch) {
        if !commands.is_empty() {
            self.ready.push_front(commands);
        }
    }

    /// How many tasks there are, but for refunds: they go when there is room.
    pub fn len(&self) -> usize {
        let ready = self.ready.iter().flatten().map(|command| command.tasks.len()).sum::<usize>();
        ready.saturating_add(self.tasks)
    }

    /// The next batch to send, of `most` tasks at most: checks, then refunds. A few places are the refunds', so that they go at
    /// last whatever there is to ask.
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

    /// The checks that are next, so many at most. Requests that no longer wait (`waits` says) lose their
    /// seat. A check without a request is dropped.
    fn checks(&mut self, most: usize, waits: impl Fn(Waiter) -> bool) -> Option<Batch> {
        loop {
            let mut batch = match self.ready.pop_front() {
                Some(mut batch) => {
                    // What a window has left over is not to fly alone.
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
                    Work::GiveBack { .. } => true,
                });
                !command.tasks.is_empty()
            });
            let rest = split(&mut batch, most);
            self.repeat(rest);
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.open.is_empty() && self.refunds.is_empty()
    }

    /// Adds a task; where it is.
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

/// Takes off what is more than so many tasks.
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
    use crate::limit::{Answer, LeakyBucket, Limit};
    use crate::policy::Mode;
    use crate::script::NamedLimit;
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

    #[test]
    fn a_command_that_makes_a_batch_too_long_waits_for_the_next() {
        let limit = Limit::from(LeakyBucket::new(1, Micros::from_secs(1), 5, Micros::ZERO).unwrap());
        let plan = Plan::new(vec![NamedLimit { name: "l".into(), limit }]).unwrap();
        let waiters = smallvec![Waiter { stream: 1, part: 0 }];
        let tasks = smallvec![Task { check: check(1), work: Work::Ask { waiters, advance: 0 } }];
        let mut command = Command { form: Form::Evalsha, tasks };
        let mut body = Body::new(Topology::Any);
        assert!(body.push(&mut command, &plan));
        let length = body.bytes.len();
        for (before, fits) in [(MAX_BYTES - length, true), (MAX_BYTES - length + 1, false)] {
            let mut body = Body::new(Topology::Any);
            body.bytes.resize(before, b' ');
            assert_eq!(body.push(&mut command, &plan), fits, "after {before} bytes");
            assert_eq!(body.bytes.len(), before + if fits { length } else { 0 });
        }
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
                let paid = Outcome { granted: 1, at: Micros::ZERO, limits: Vec::new(), own: None };
                queue.give_back(&check(subject), Taken::Units, &Rc::new(paid), 1);
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
        let paid = Outcome { granted: 1, at: Micros::ZERO, limits: Vec::new(), own: None };
        queue.give_back(&check(1), Taken::Units, &Rc::new(paid), 1);
        assert_eq!([(); 3].map(|()| take(&mut queue, 4)), [(4, 0), (3, 1), (4, 0)]);
    }

    /// One task for what goes back of one grant to one subject; a receipt counts for its own grant only.
    #[test]
    fn refunds_of_one_grant_share_a_task() {
        let grant = |permit_expiry| {
            let limits = vec![Answer { permit_expiry, ..Answer::default() }];
            Rc::new(Outcome { granted: 9, at: Micros::ZERO, limits, own: None })
        };
        let (ann, bob, one, other, nothing) = (check(1), check(2), grant(7), grant(7), grant(0));
        let mut queue = Queue::new(Topology::Any, Seed(1));
        for (check, what, paid, requests) in [
            (&ann, Taken::Units, &one, 1),
            (&ann, Taken::Places, &one, 1),
            (&ann, Taken::Units, &other, 1),
            (&bob, Taken::Units, &one, 1),
            (&ann, Taken::Places, &nothing, 1),
            (&ann, Taken::Units, &one, 3),
            (&ann, Taken::Places, &one, 2),
            (&ann, Taken::Units, &nothing, 1),
        ] {
            queue.give_back(check, what, paid, requests);
        }
        let batch = queue.take(100, |_| true).unwrap();
        let found: Vec<_> = batch
            .iter()
            .flat_map(|command| &command.tasks)
            .map(|task| match &task.work {
                Work::GiveBack { what, paid, requests } => (&task.check, *what, Rc::as_ptr(paid), *requests),
                ask @ Work::Ask { .. } => panic!("{ask:?}"),
            })
            .collect();
        let wanted = [
            (&ann, Taken::Units, Rc::as_ptr(&one), 4),
            (&ann, Taken::Places, Rc::as_ptr(&one), 3),
            (&ann, Taken::Units, Rc::as_ptr(&other), 1),
            (&bob, Taken::Units, Rc::as_ptr(&one), 1),
            (&ann, Taken::Units, Rc::as_ptr(&nothing), 1),
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
        queue.repeat(batch);
        assert_eq!(queue.len(), 100);
        // What is to be repeated goes before what is left over, and what nobody waits for does not go.
        assert!(queue.take(256, |_| true).is_some() && queue.take(256, |_| false).is_none());
        assert!(queue.is_empty());
    }
}
