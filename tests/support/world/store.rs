// SPDX-License-Identifier: Apache-2.0
//! A store in virtual time. It does what Redis does: it is the pure limits, and `tests/redis/scripts/on_redis.rs` shows that the scripts
//! answer as these do. Or it answers what a test makes up.

use std::collections::{BTreeMap, HashMap};

use weir::limit::{Ask, Limit, LimitOutcome, Outcome, Subject};
use weir::policy::key;
use weir::random::Random;
use weir::script::usage::{Interval, Used};
use weir::time::Micros;

use super::ledger::Did;
use crate::worker::{
    Batch, Command, Reply, Task, UsageWrite, Verb, as_script, done, error, noscript, numbers, together,
    written,
};

/// How many parts of the slots fail by themselves.
pub const SHARDS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Answers,
    /// It answers nothing, and does nothing of what it is sent.
    Hangs,
    /// Nothing can be sent to it.
    Refuses,
}

/// What it answers to a check of a subject.
#[derive(Clone, Copy, Debug)]
pub enum Answers {
    ByLimits,
    MadeUp(fn(&Command, &Task, &mut Random) -> Reply),
}

/// See the [module](self). Times are microseconds.
#[derive(Clone, Debug)]
pub struct Store {
    pub mood: Mood,
    pub answers: Answers,
    /// By how much its clock is wrong.
    pub skew: i64,
    /// How many tasks it does in a second.
    pub capacity: u64,
    /// Its answers come so much later at most, evenly distributed.
    pub jitter: u64,
    /// It answers nothing before this time.
    pub frozen_until: u64,
    /// It answers errors about these shards.
    pub failing: [bool; SHARDS],
    /// How many of a hundred commands it answers with an error.
    pub errs_percent: u64,
    /// Of how many of a hundred commands it does not know the script.
    pub forgets_percent: u64,
    /// When it has done what it was asked up to now.
    busy_until: u64,
    subjects: HashMap<String, Subject>,
    /// The usage journal: of each interval and subject what was used; and the last write of each worker.
    pub usage: BTreeMap<(Interval, String), Used>,
    written: HashMap<String, u64>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            mood: Mood::Answers,
            answers: Answers::ByLimits,
            skew: 0,
            capacity: u64::MAX,
            jitter: 0,
            frozen_until: 0,
            failing: [false; SHARDS],
            errs_percent: 0,
            forgets_percent: 0,
            busy_until: 0,
            subjects: HashMap::new(),
            usage: BTreeMap::new(),
            written: HashMap::new(),
        }
    }
}

impl Store {
    pub fn made_up(reply: fn(&Command, &Task, &mut Random) -> Reply) -> Self {
        Self { answers: Answers::MadeUp(reply), ..Self::default() }
    }

    /// When it has done so many tasks more that reach it at this time. It does not wait for a worker that is busy.
    pub(super) fn done(&mut self, tasks: usize, at: u64, random: &mut Random) -> u64 {
        let begins = at.max(self.busy_until).max(self.frozen_until);
        self.busy_until = begins + (tasks as u64).saturating_mul(1_000_000) / self.capacity;
        self.busy_until + random.below(self.jitter + 1)
    }

    /// Runs the commands of a batch.
    pub(super) fn run(
        &mut self,
        batch: &Batch,
        now: Micros,
        random: &mut Random,
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
                let reply = self.execute(command, task, now, random);
                note(task, Did::of(command, task, &reply));
                replies.push(reply);
            }
            if replies.len() == 1 { replies.remove(0) } else { together(replies) }
        };
        let mut replies: Vec<_> = batch.commands.iter().map(reply).collect();
        replies.extend(batch.journal.iter().map(|_| written()));
        for write in &batch.usage {
            self.write_usage(write);
            replies.push(written());
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

    fn execute(&mut self, command: &Command, task: &Task, now: Micros, random: &mut Random) -> Reply {
        let limits = command.plan.limits();
        match (self.answers, task.verb) {
            (Answers::MadeUp(reply), Verb::Check) => reply(command, task, random),
            (Answers::MadeUp(_), _) => done(),
            (Answers::ByLimits, Verb::Check) => {
                let question = numbers(command.words.last().expect("arguments"));
                let ask = Ask {
                    requests: u32::try_from(task.requests).expect("a count"),
                    cost: u64::try_from(task.number).expect("a cost"),
                    kept_percent: if command.keeps { u8::try_from(question[3]).expect("percent") } else { 0 },
                };
                as_script(&self.subject(task).check(limits, None, now, ask))
            }
            (Answers::ByLimits, Verb::Refund) => {
                let question = numbers(command.words.last().expect("arguments"));
                let receipt = receipt(&question[2..]);
                as_script(&self.subject(task).settle(limits, None, now, -task.number, &receipt))
            }
            (Answers::ByLimits, Verb::Release) => {
                panic!("a world whose stores make up the answers has permits")
            }
        }
    }

    /// What the first limit of a subject has left.
    pub fn left(&mut self, tag: &str, limits: &[Limit], now: Micros) -> i64 {
        let subject = self.subjects.get_mut(tag).expect("a subject that was asked about");
        subject.check(limits, None, now, Ask::new(0, 0)).limits[0].remaining
    }

    fn subject(&mut self, task: &Task) -> &mut Subject {
        self.subjects.entry(task.tag.clone()).or_default()
    }
}

/// The receipt that a settlement brings: when it was charged, and what each limit answered.
fn receipt(question: &[i64]) -> Outcome {
    let unsigned = |number: i64| u64::try_from(number).expect("not negative");
    let limits = question[1..].chunks_exact(3).map(|answer| LimitOutcome {
        remaining: answer[0],
        reset: Micros(unsigned(answer[1])),
        refunded: unsigned(answer[2]),
        ..LimitOutcome::default()
    });
    Outcome { at: Micros(unsigned(question[0])), limits: limits.collect(), ..Outcome::NONE }
}
