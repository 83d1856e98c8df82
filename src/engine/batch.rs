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

/// At most this many subjects in one command: Redis does nothing else while a script runs.
const MAX_SUBJECTS: usize = 64;

/// Among so many of the last commands one is looked for that a task can join.
const LOOKED_AT: usize = 8;

/// At most this many full batches gather before what goes back is dropped.
const MAX_GATHERED: usize = 64;

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
                let leases: Vec<_> = paid.leases(*requests).collect();
                plan.release(tag, &leases, None, form, out);
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
    pub fn encode(&self, plan: &Plan, out: &mut Vec<u8>) {
        match self.tasks.as_slice() {
            [task] => task.encode(plan, self.form, out),
            tasks => {
                let subjects = tasks.iter().map(|task| (task.check.tag.as_slice(), task.ask()));
                plan.check_all(subjects, None, self.form, out);
            }
        }
    }
}

/// Commands that travel together, in order; the store's replies come back in the same order.
pub(super) type Batch = Vec<Command>;

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
}

impl Queue {
    pub fn new(topology: Topology, seed: Seed) -> Self {
        let (ready, seats) = (VecDeque::new(), HashMap::with_hasher(seed));
        Self { topology, ready, open: Batch::new(), tasks: 0, seats }
    }

    /// Seats a request: beside the others of its subject, or in a task of its own.
    pub fn ask(&mut self, check: &Rc<Check>, waiter: Waiter) {
        if let Some((command, task)) = self.seats.get(check)
            && let Some(task) = self.open.get_mut(*command).and_then(|command| command.tasks.get_mut(*task))
            && let Work::Ask { waiters, .. } = &mut task.work
        {
            waiters.push(waiter);
            return;
        }
        let seat = self.push(check, Work::Ask { waiters: smallvec![waiter], advance: 0 });
        self.seats.insert(Rc::clone(check), seat);
    }

    /// Gives back what so many requests that `paid` granted have taken, if they have taken any of it.
    pub fn give_back(&mut self, check: &Rc<Check>, what: Taken, paid: &Rc<Outcome>, requests: u32) {
        if what == Taken::Places && paid.leases(1).next().is_none() {
            return;
        }
        for task in self.open.iter_mut().flat_map(|command| &mut command.tasks) {
            if let Work::GiveBack { what: other, paid: from, requests: others } = &mut task.work
                && (*other == what && Rc::ptr_eq(from, paid) && task.check == *check)
            {
                *others = others.saturating_add(requests);
                return;
            }
        }
        // While the store is away what should go back gathers. What is dropped comes back with time, or its ttl.
        if self.ready.len() < MAX_GATHERED {
            self.push(check, Work::GiveBack { what, paid: Rc::clone(paid), requests });
        }
    }

    /// Puts commands first in line: the store did not know their script and is told it now.
    pub fn repeat(&mut self, commands: Batch) {
        if !commands.is_empty() {
            self.ready.push_front(commands);
        }
    }

    /// How many tasks there are, all in all.
    pub fn len(&self) -> usize {
        let ready = self.ready.iter().flatten().map(|command| command.tasks.len()).sum::<usize>();
        ready.saturating_add(self.tasks)
    }

    /// The next batch to send, of `most` tasks at most. Requests that no longer wait (`waits` says) lose their
    /// seat, and what nobody waits for is dropped.
    pub fn take(&mut self, most: usize, waits: impl Fn(Waiter) -> bool) -> Option<Batch> {
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
        self.ready.is_empty() && self.open.is_empty()
    }

    /// Adds a task; where it is.
    fn push(&mut self, check: &Rc<Check>, work: Work) -> (usize, usize) {
        if self.tasks >= MAX_TASKS {
            let full = self.close();
            self.ready.push_back(full);
        }
        self.tasks = self.tasks.saturating_add(1);
        let task = Task { check: Rc::clone(check), work };
        if self.topology == Topology::Single {
            let joins = |command: &Command| {
                command.tasks.len() < MAX_SUBJECTS
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
