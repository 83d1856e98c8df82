// SPDX-License-Identifier: Apache-2.0
//! A batch: the commands that a worker sends to the store together, and the tasks in each.

use std::rc::Rc;

use crate::config::Topology;
use crate::engine::StreamId;
use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Outcome};
use crate::policy::{Check, Subject};
use crate::script::{Form, Plan, ScriptKind};

/// At most this many tasks in one batch. This bounds the work of the callback that reads the replies, and the time for which the
/// connection is busy.
pub(in crate::engine) const MAX_TASKS: usize = 256;

/// At most this many bytes of commands in one batch, well below what the bridge takes. The longest single command has a quarter
/// of that, so a batch always holds one.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// One of the checks of a request that waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Waiter {
    pub stream: StreamId,
    /// The index of the request's check.
    pub place: usize,
}

/// A task of the store for one subject.
#[derive(Debug)]
pub(in crate::engine) struct Task {
    pub check: Rc<Check>,
    /// The limits of the check, and their script. All tasks of a worker share it.
    pub plan: Rc<Plan>,
    pub work: Work,
}

#[derive(Debug)]
pub(in crate::engine) enum Work {
    /// Grant one request per waiter, and this many in advance.
    Ask { waiters: InlineVec<Waiter>, advance: u32 },
    /// Grant this many units in advance, for another region. They are for later requests of the subject `of`; no request waits for the
    /// answer.
    Lend { units: u32, of: Subject },
    /// Settle what the grant `receipt` charged.
    Settle { due: Due, receipt: Rc<Outcome> },
}

/// A settlement that is due after a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Due {
    /// Refund this number of units: another policy has denied the request, or it has cost less than was reserved.
    Refund(u64),
    /// Charge this number of units more: the request has cost more than was reserved.
    Charge(u64),
    /// Release the permits of this number of requests, which have ended.
    Release(u32),
    /// Renew the permits of this request, which still runs.
    Renew(Waiter),
}

impl Due {
    /// Both settlements as one, if they are of one kind.
    pub fn with(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Refund(units), Self::Refund(more)) => Some(Self::Refund(units.saturating_add(more))),
            (Self::Charge(units), Self::Charge(more)) => Some(Self::Charge(units.saturating_add(more))),
            (Self::Release(requests), Self::Release(more)) => {
                Some(Self::Release(requests.saturating_add(more)))
            }
            _ => None,
        }
    }
}

/// A settlement for the store.
#[derive(Debug)]
pub(in crate::engine) struct Settlement {
    pub check: Rc<Check>,
    pub due: Due,
    pub receipt: Rc<Outcome>,
}

impl Task {
    /// Appends the command of a settlement.
    fn settle(&self, (due, receipt): (&Due, &Outcome), form: Form, out: &mut Vec<u8>) {
        let (plan, tag) = (&self.plan, &self.check.tag);
        match due {
            Due::Refund(units) => plan.settle(tag, signed(*units).saturating_neg(), receipt, None, form, out),
            Due::Charge(units) => plan.settle(tag, signed(*units), receipt, None, form, out),
            Due::Release(requests) => {
                let permits: Vec<_> = receipt.permits(*requests).collect();
                plan.release(tag, &permits, None, form, out);
            }
            Due::Renew(_) => {
                let permits: Vec<_> = receipt.permits(1).collect();
                plan.renew(tag, &permits, None, form, out);
            }
        }
    }

    /// Returns the number of requests that the task is for, and their cost. Those that are charged nothing do not count.
    pub fn ask(&self) -> Ask {
        let requests = match &self.work {
            Work::Ask { .. } if !self.check.is_charged() => 0,
            Work::Ask { waiters, advance } => count(waiters).saturating_add(*advance),
            Work::Lend { units, .. } => *units,
            Work::Settle { .. } => 0,
        };
        self.check.ask(requests)
    }

    /// True if the task asks this check, and requests wait for the answer.
    pub fn asks_about(&self, check: &Check) -> bool {
        matches!(self.work, Work::Ask { .. }) && *self.check == *check
    }

    /// True if one script call can do this task and the other.
    pub fn shares_a_command_with(&self, other: &Self) -> bool {
        let asks = |task: &Self| matches!(task.work, Work::Ask { .. } | Work::Lend { .. });
        asks(self) && asks(other) && Rc::ptr_eq(&self.plan, &other.plan)
    }

    /// The requests that wait for the answer.
    pub fn waiters(&self) -> &[Waiter] {
        match &self.work {
            Work::Ask { waiters, .. } => waiters,
            Work::Lend { .. } | Work::Settle { .. } => &[],
        }
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// The number of requests that wait.
pub(in crate::engine) fn count(waiters: &[Waiter]) -> u32 {
    u32::try_from(waiters.len()).unwrap_or(u32::MAX)
}

/// One script call: for one subject, or for checks of several subjects of one plan.
#[derive(Debug)]
pub(in crate::engine) struct Command {
    pub form: Form,
    pub tasks: InlineVec<Task>,
}

impl Command {
    fn encode(&self, plan: &Plan, form: Form, out: &mut Vec<u8>) {
        match &*self.tasks {
            [task @ Task { work: Work::Settle { due, receipt }, .. }] => {
                task.settle((due, receipt), form, out)
            }
            tasks => {
                let subjects = tasks.iter().map(|task| (task.check.tag.as_slice(), task.ask()));
                plan.check_all(subjects, None, form, out);
            }
        }
    }

    /// The script that the command calls.
    fn script(&self) -> ScriptKind {
        match &*self.tasks {
            [Task { work: Work::Settle { due: Due::Release(_) | Due::Renew(_), .. }, .. }] => {
                ScriptKind::Release
            }
            [Task { work: Work::Settle { .. }, .. }] => ScriptKind::Settle,
            _ => ScriptKind::Check,
        }
    }
}

/// The commands of a batch, in the order in which they are sent. The store's replies come in the same order.
pub(in crate::engine) type Batch = Vec<Command>;

/// The tasks of a batch.
pub(in crate::engine) fn tasks(batch: &[Command]) -> impl Iterator<Item = &Task> + Clone {
    batch.iter().flat_map(|command| &command.tasks)
}

/// Lists the tags of the checks, each with the request that asks.
pub(super) fn asks(batch: &[Command]) -> impl Iterator<Item = (&[u8], StreamId)> + Clone {
    tasks(batch)
        .flat_map(|task| task.waiters().iter().map(|waiter| (task.check.tag.as_slice(), waiter.stream)))
}

/// The bytes of a batch, as the bridge gets them.
pub(in crate::engine) struct Body {
    topology: Topology,
    pub bytes: Vec<u8>,
    /// The scripts whose sources are in it.
    sources: InlineVec<(Rc<Plan>, ScriptKind)>,
}

impl Body {
    pub fn new(topology: Topology) -> Self {
        Self { topology, bytes: Vec::new(), sources: InlineVec::new() }
    }

    /// Appends a command, unless that makes the body too long. Returns whether it was appended.
    ///
    /// If one Redis has all keys, a batch holds the source of each script once: further commands call it by its SHA-1, and their
    /// form changes to that. If Redis still does not know the script, the worker sends these commands again, and the
    /// first of them then has the source.
    pub fn push(&mut self, command: &mut Command) -> bool {
        let Some(Task { plan, .. }) = command.tasks.first() else { return true };
        let before = self.bytes.len();
        self.bytes.reserve(256);
        let script = command.script();
        let form = if self.has_source(plan.source_of(script)) { Form::Evalsha } else { command.form };
        command.encode(plan, form, &mut self.bytes);
        if self.bytes.len() > MAX_BYTES && before > 0 {
            self.bytes.truncate(before);
            return false;
        }
        if form == Form::Eval && self.topology == Topology::Single {
            self.sources.push((Rc::clone(plan), script));
        }
        command.form = form;
        true
    }

    /// True if an earlier command of the batch has this source.
    fn has_source(&self, source: &str) -> bool {
        self.sources.iter().any(|(plan, script)| plan.source_of(*script) == source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{LeakyBucket, Limit};
    use crate::script::{NamedLimit, Options};
    use crate::time::Micros;

    /// The source of a script that is not known to be there is not replaced by its hash because of a command that has the hash.
    #[test]
    fn only_a_source_in_the_same_batch_replaces_a_source() {
        let command = |form| Command { form, ..one() };
        let mut body = Body::new(Topology::Single);
        let forms = [Form::Evalsha, Form::Eval, Form::Eval].map(|form| {
            let mut command = command(form);
            assert!(body.push(&mut command));
            command.form
        });
        assert_eq!(forms, [Form::Evalsha, Form::Eval, Form::Evalsha]);
    }

    fn one() -> Command {
        let limit = Limit::from(LeakyBucket::new(1, Micros::from_secs(1), 5, Micros::ZERO).unwrap());
        let plan = Plan::new(vec![NamedLimit { name: "l".into(), limit }], Options::default()).unwrap();
        let check = Check::one(0, b"{p|1}");
        let waiters = InlineVec::One(Waiter { stream: 1, place: 0 });
        let work = Work::Ask { waiters, advance: 0 };
        let tasks = InlineVec::One(Task { check: Rc::new(check), plan: Rc::new(plan), work });
        Command { form: Form::Evalsha, tasks }
    }

    #[test]
    fn a_command_that_makes_a_batch_too_long_waits_for_the_next() {
        let mut command = one();
        let mut body = Body::new(Topology::Any);
        assert!(body.push(&mut command));
        let length = body.bytes.len();
        for (before, fits) in [(MAX_BYTES - length, true), (MAX_BYTES - length + 1, false)] {
            let mut body = Body::new(Topology::Any);
            body.bytes.resize(before, b' ');
            assert_eq!(body.push(&mut command), fits, "after {before} bytes");
            assert_eq!(body.bytes.len(), before + if fits { length } else { 0 });
        }
    }
}
