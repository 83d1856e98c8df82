// SPDX-License-Identifier: Apache-2.0
//! A store in virtual time. It does what Redis does: it is the pure limits, and `tests/redis/scripts/on_redis.rs` shows that the scripts
//! answer as these do. Or it answers what a test makes up.

use std::collections::BTreeMap;

use weir::limit::{Ask, Limit, LimitOutcome, Outcome, Permits, Subject};
use weir::policy::key;
use weir::random::Random;
use weir::script::usage::{Interval, Used};
use weir::time::Micros;

use super::Defect;
use super::ledger::Did;
use crate::worker::{
    Batch, Command, Reply, Task, UsageWrite, Verb, as_script, done, error, key_count, noscript, numbers,
    renewed, together, written,
};

/// The number of parts of the slots that fail by themselves.
pub const SHARDS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Answers,
    /// It answers nothing, and does nothing of what it is sent.
    Hangs,
    /// Nothing can be sent to it.
    Refuses,
}

/// Its reply to a check of a subject.
#[derive(Clone, Copy, Debug)]
pub enum Answers {
    ByLimits,
    MadeUp(fn(&Command, &Task, &mut Random) -> Reply),
}

/// The time that a node takes for its input, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Service {
    /// The time for each batch of a worker, for each command of it, and for each subject of a command.
    pub batch: u64,
    pub command: u64,
    pub subject: u64,
    /// The spread of the times: each takes so many percent, drawn from these.
    pub percent: Vec<u64>,
}

/// A node that does one thing after the other. Nodes share the slots of the subjects.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The time at which it has done all that it was asked up to now, and the time for which it has worked, in nanoseconds.
    busy_until: u64,
    busy: u64,
    pub commands: u64,
}

impl Node {
    /// The nanoseconds that it has worked.
    pub fn worked(&self, at: u64) -> u64 {
        self.busy - self.busy_until.saturating_sub(at * 1_000)
    }
}

/// See the [module](self). Times are microseconds.
#[derive(Clone, Debug)]
pub struct Store {
    pub mood: Mood,
    pub answers: Answers,
    /// The error of its clock.
    pub skew: i64,
    /// The number of tasks that it does in a second.
    pub capacity: u64,
    /// Its answers come so much later at most, evenly distributed.
    pub jitter: u64,
    /// If there are any, these do the work, and `capacity` says nothing.
    pub nodes: Vec<Node>,
    pub service: Option<Service>,
    /// It answers nothing before this time.
    pub frozen_until: u64,
    /// It answers errors about these shards.
    pub failing: [bool; SHARDS],
    /// The number of commands of a hundred that it answers with an error.
    pub errs_percent: u64,
    /// The number of commands of a hundred whose script it does not know.
    pub forgets_percent: u64,
    /// The time at which it has done all that it was asked up to now.
    busy_until: u64,
    subjects: BTreeMap<String, Subject>,
    /// The usage journal: of each interval and subject what was used; and the last write of each worker.
    pub usage: BTreeMap<(Interval, String), Used>,
    written: BTreeMap<String, u64>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            mood: Mood::Answers,
            answers: Answers::ByLimits,
            skew: 0,
            capacity: u64::MAX,
            jitter: 0,
            nodes: Vec::new(),
            service: None,
            frozen_until: 0,
            failing: [false; SHARDS],
            errs_percent: 0,
            forgets_percent: 0,
            busy_until: 0,
            subjects: BTreeMap::new(),
            usage: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }
}

impl Store {
    pub fn made_up(reply: fn(&Command, &Task, &mut Random) -> Reply) -> Self {
        Self { answers: Answers::MadeUp(reply), ..Self::default() }
    }

    /// The time at which it has done a batch that reaches it at this time. It does not wait for a worker that is busy.
    pub(super) fn done(&mut self, batch: &Batch, at: u64, random: &mut Random) -> u64 {
        let begins = at.max(self.frozen_until);
        self.busy_until = match &self.service {
            Some(service) => service.done(&mut self.nodes, batch, begins, random),
            None => {
                let tasks = batch.task_count() as u64;
                begins.max(self.busy_until) + tasks.saturating_mul(1_000_000) / self.capacity
            }
        };
        self.busy_until + random.below(self.jitter + 1)
    }

    /// The number of subjects that it has been asked about.
    pub fn subjects(&self) -> usize {
        self.subjects.len()
    }

    /// Runs the commands of a batch.
    pub(super) fn run(
        &mut self,
        batch: &Batch,
        now: Micros,
        (random, defect): (&mut Random, Option<Defect>),
        mut note: impl FnMut(&Task, Did),
    ) -> Vec<Reply> {
        let reply = |command: &Command| {
            let mut refuses = |percent: u64| percent > 0 && random.below(100) < percent;
            let undone = if self.is_failing(command) || refuses(self.errs_percent) {
                Some((Did::Nothing, error("OOM command not allowed")))
            } else if !command.by_source() && refuses(self.forgets_percent) {
                Some((Did::Later, noscript()))
            } else {
                None
            };
            if let Some((did, reply)) = undone {
                command.tasks.iter().for_each(|task| note(task, did));
                return reply;
            }
            let mut replies = Vec::new();
            for task in &command.tasks {
                let reply = self.execute(command, task, now, (random, defect));
                note(task, Did::of(command, task, &reply));
                replies.push(reply);
            }
            if replies.len() == 1 { replies.remove(0) } else { together(replies) }
        };
        let mut replies: Vec<_> = batch.commands.iter().map(reply).collect();
        replies.extend(batch.journal.iter().map(|_| written()));
        for write in &batch.usage {
            let refuses = self.errs_percent > 0 && random.below(100) < self.errs_percent;
            if !refuses {
                self.write_usage(write);
            }
            replies.push(if refuses { error("NOPERM no right") } else { written() });
        }
        replies
    }

    /// As `lua/usage.lua` does.
    fn write_usage(&mut self, write: &UsageWrite) {
        let last = self.written.entry(write.worker.clone()).or_default();
        if *last >= write.number {
            return;
        }
        *last = write.number;
        for (tag, used) in &write.used {
            let sum = self.usage.entry((write.interval, tag.clone())).or_default();
            *sum = sum.plus(*used);
        }
    }

    fn is_failing(&self, command: &Command) -> bool {
        let shard = |task: &Task| usize::from(key::slot(task.tag.as_bytes()) >> 8) / (64 / SHARDS);
        self.failing.contains(&true) && self.failing[shard(&command.tasks[0])]
    }

    fn execute(
        &mut self,
        command: &Command,
        task: &Task,
        now: Micros,
        (random, defect): (&mut Random, Option<Defect>),
    ) -> Reply {
        let limits = command.plan.limits();
        match (self.answers, task.verb) {
            (Answers::MadeUp(reply), Verb::Check) => reply(command, task, random),
            (Answers::MadeUp(_), Verb::Renew) => renewed(task.number),
            (Answers::MadeUp(_), _) => done(),
            (Answers::ByLimits, Verb::Check) => {
                let question = numbers(command.words.last().expect("arguments"));
                let ask = Ask {
                    kept_percent: if command.keeps { u8::try_from(question[3]).expect("percent") } else { 0 },
                    ..Ask::new(
                        u32::try_from(task.requests).expect("a count"),
                        u64::try_from(task.number).expect("a cost"),
                    )
                };
                let subject = self.subject(task);
                if defect == Some(Defect::LendsForFree) && ask.kept_percent > 0 {
                    return as_script(&subject.clone().check(limits, None, now, ask));
                }
                as_script(&subject.check(limits, None, now, ask))
            }
            (Answers::ByLimits, Verb::Refund) => {
                let question = numbers(command.words.last().expect("arguments"));
                let receipt = receipt(&question[2..]);
                as_script(&self.subject(task).settle(limits, None, now, -task.number, &receipt))
            }
            (Answers::ByLimits, Verb::Renew) => {
                let question = numbers(&command.words[3 + key_count(&command.words)]);
                let permits = permits(limits, &question[1..]);
                let expiries = self.subject(task).renew(limits, &permits, now);
                Reply::Numbers(expiries.into_iter().map(u64::cast_signed).collect())
            }
            (Answers::ByLimits, Verb::Release) => {
                let question = numbers(&command.words[3 + key_count(&command.words)]);
                let permits = permits(limits, &question[1..]);
                for _ in 0..if defect == Some(Defect::ReleasesTwice) { 2 } else { 1 } {
                    self.subject(task).release(&permits);
                }
                done()
            }
        }
    }

    /// The units left to a subject by its first limit.
    pub fn left(&mut self, tag: &str, limits: &[Limit], now: Micros) -> i64 {
        let subject = self.subjects.get_mut(tag).expect("a subject that was asked about");
        subject.check(limits, None, now, Ask::new(0, 0)).limits[0].remaining
    }

    fn subject(&mut self, task: &Task) -> &mut Subject {
        self.subjects.entry(task.tag.clone()).or_default()
    }
}

impl Service {
    /// Each node gets the commands for its slots at once. The batch is done when all nodes are.
    fn done(&self, nodes: &mut [Node], batch: &Batch, begins: u64, random: &mut Random) -> u64 {
        let mut draw =
            |nanos: u64| nanos * self.percent[random.below(self.percent.len() as u64) as usize] / 100;
        let mut work = BTreeMap::<usize, (u64, u64)>::new();
        for command in &batch.commands {
            let slot = usize::from(key::slot(command.tasks[0].tag.as_bytes()));
            let (nanos, commands) = work.entry(slot * nodes.len() / 16_384).or_default();
            *nanos += draw(self.command + self.subject * command.tasks.len() as u64);
            *commands += 1;
        }
        let mut done = begins;
        for (node, (nanos, commands)) in work {
            let (node, nanos) = (&mut nodes[node], nanos + draw(self.batch));
            node.busy += nanos;
            node.commands += commands;
            node.busy_until = node.busy_until.max(begins * 1_000) + nanos;
            done = done.max(node.busy_until.div_ceil(1_000));
        }
        done
    }
}

/// The permits that a release names: of each limit that has permits, when they expire, and how many they are.
fn permits(limits: &[Limit], question: &[i64]) -> Vec<Permits> {
    let of = limits.iter().enumerate().filter(|(_, limit)| matches!(limit, Limit::Concurrency(_)));
    let permits = of.zip(question.chunks_exact(3)).map(|((limit, _), named)| Permits {
        limit,
        expiry: named[0].cast_unsigned(),
        count: u32::try_from(named[1]).expect("a count"),
    });
    permits.collect()
}

/// The receipt that a settlement brings: when it was charged, and what each limit answered.
fn receipt(question: &[i64]) -> Outcome {
    let unsigned = |number: i64| u64::try_from(number).expect("not negative");
    let limits = question[1..].chunks_exact(4).map(|answer| LimitOutcome {
        remaining: answer[0],
        reset: Micros(unsigned(answer[1])),
        refunded: unsigned(answer[2]),
        ..LimitOutcome::default()
    });
    Outcome { at: Micros(unsigned(question[0])), limits: limits.collect(), ..Outcome::NONE }
}
