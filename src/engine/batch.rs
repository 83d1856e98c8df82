//! The batch: what waits to be asked of the store, and what is on its way there.
//!
//! While one batch flies, everything that arrives gathers in the next; requests for one subject at one cost
//! become one command that asks for as many grants as there are requests. A hot subject therefore gets cheaper
//! per request as the load grows, and the answer is still exact: the script grants what it can, the requests
//! share it first come, first served.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use smallvec::smallvec;

use super::StreamId;
use super::seed::Seed;
use crate::limit::{Ask, Outcome};
use crate::policy::{Check, Few};
use crate::script::{Form, Plan};

/// At most this many commands in one batch: it bounds the reply one callback has to digest, and the time the
/// connection is taken by it.
const MAX_COMMANDS: usize = 256;

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

/// One script call.
#[derive(Debug)]
pub(super) struct Command {
    pub check: Rc<Check>,
    pub form: Form,
    pub work: Work,
}

impl Command {
    pub fn encode(&self, plan: &Plan, out: &mut Vec<u8>) {
        let tag = &self.check.tag;
        match &self.work {
            Work::Ask { .. } => plan.check(tag, self.ask(), None, self.form, out),
            Work::GiveBack { what: Taken::Units, paid, requests } => {
                let units = self.check.cost.saturating_mul(u64::from(*requests));
                let units = i64::try_from(units).unwrap_or(i64::MAX);
                plan.settle(tag, units.saturating_neg(), paid, None, self.form, out);
            }
            Work::GiveBack { what: Taken::Places, paid, requests } => {
                let leases: Vec<_> = paid.leases(*requests).collect();
                plan.release(tag, &leases, None, self.form, out);
            }
        }
    }

    /// The question this command puts.
    pub fn ask(&self) -> Ask {
        let requests = match &self.work {
            Work::Ask { waiters, advance } => {
                u32::try_from(waiters.len()).unwrap_or(u32::MAX).saturating_add(*advance)
            }
            Work::GiveBack { requests, .. } => *requests,
        };
        Ask { requests, cost: self.check.cost }
    }
}

/// Commands that travel together, in order; the store's replies come back in the same order.
pub(super) type Batch = Vec<Command>;

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Queue {
    /// Full batches, and commands to repeat, oldest first.
    ready: VecDeque<Batch>,
    /// The batch that gathers now…
    open: Batch,
    /// …and where in it each subject already asks.
    seats: HashMap<Rc<Check>, usize, Seed>,
}

impl Queue {
    pub fn new(seed: Seed) -> Self {
        Self { ready: VecDeque::new(), open: Batch::new(), seats: HashMap::with_hasher(seed) }
    }

    /// Seats a request: beside the others of its subject, or in a command of its own.
    pub fn ask(&mut self, check: &Rc<Check>, waiter: Waiter) {
        if let Some(command) = self.seats.get(check).and_then(|seat| self.open.get_mut(*seat))
            && let Work::Ask { waiters, .. } = &mut command.work
        {
            waiters.push(waiter);
            return;
        }
        self.push(check, Work::Ask { waiters: smallvec![waiter], advance: 0 });
        self.seats.insert(Rc::clone(check), self.open.len().saturating_sub(1));
    }

    /// Gives back what so many requests that `paid` granted have taken, if they have taken any of it.
    pub fn give_back(&mut self, check: &Rc<Check>, what: Taken, paid: &Rc<Outcome>, requests: u32) {
        if what == Taken::Places && paid.leases(1).next().is_none() {
            return;
        }
        for command in &mut self.open {
            if let Work::GiveBack { what: other, paid: from, requests: others } = &mut command.work
                && (*other == what && Rc::ptr_eq(from, paid) && command.check == *check)
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

    /// The next batch to send. Requests that no longer wait (`waits` says) lose their seat, and a command that
    /// nobody waits for is dropped.
    pub fn take(&mut self, waits: impl Fn(Waiter) -> bool) -> Option<Batch> {
        loop {
            let mut batch = match self.ready.pop_front() {
                Some(batch) => batch,
                None if self.open.is_empty() => return None,
                None => self.close(),
            };
            batch.retain_mut(|command| match &mut command.work {
                Work::Ask { waiters, .. } => {
                    waiters.retain(|waiter| waits(*waiter));
                    !waiters.is_empty()
                }
                Work::GiveBack { .. } => true,
            });
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.open.is_empty()
    }

    fn push(&mut self, check: &Rc<Check>, work: Work) {
        if self.open.len() >= MAX_COMMANDS {
            let full = self.close();
            self.ready.push_back(full);
        }
        self.open.push(Command { check: Rc::clone(check), form: Form::Evalsha, work });
    }

    fn close(&mut self) -> Batch {
        self.seats.clear();
        std::mem::take(&mut self.open)
    }
}
