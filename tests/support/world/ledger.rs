// SPDX-License-Identifier: Apache-2.0
//! The work of each store for each worker, and the result of each request. The sums of both sides must agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir::engine::StreamId;
use weir::limit::Limit;
use weir::policy::Check;

use crate::worker::{Batch, Command, Reply, Task, Verb};

/// A request. Times are microseconds since the beginning.
#[derive(Clone, Debug)]
pub struct Request {
    pub worker: usize,
    pub checks: Vec<Check>,
    pub arrived: u64,
    /// The time of the decision, and whether the request was admitted.
    pub decided: Option<(u64, bool)>,
}

impl Request {
    pub fn is_admitted(&self) -> bool {
        self.decided.is_some_and(|(_, admitted)| admitted)
    }

    pub fn is_rejected(&self) -> bool {
        self.decided.is_some_and(|(_, admitted)| !admitted)
    }

    /// The time until it was decided.
    pub fn waited(&self) -> u64 {
        self.decided.expect("a decision").0 - self.arrived
    }
}

/// A store's work on a task.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: u64,
    /// The worker that asked, and the region whose store did it.
    pub by: usize,
    pub store: usize,
    pub task: Task,
    pub did: Did,
    /// The worker has read the reply.
    pub is_heard: bool,
    /// The network has delivered it once more than it was sent.
    pub is_copy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// This number of requests were granted, and this permit is for them.
    Granted {
        requests: i64,
        permit: Option<i64>,
    },
    Settled,
    /// This is the permit from then on.
    Renewed {
        permit: i64,
    },
    /// It did nothing: it never got the task, or answered with an error.
    Nothing,
    /// It asked for the source of the script.
    Later,
}

impl Did {
    pub(super) fn of(command: &Command, task: &Task, reply: &Reply) -> Self {
        let answer = match (task.verb, reply) {
            (Verb::Check, Reply::Check(answers)) => &answers[0],
            (Verb::Renew, Reply::Numbers(numbers)) => return Self::Renewed { permit: numbers[0] },
            _ => return Self::Settled,
        };
        let mut limits = command.plan.limits().iter();
        let permits = limits.position(|limit| matches!(limit, Limit::Concurrency(_)));
        let permit = permits.filter(|_| answer.granted > 0).map(|place| answer.limits[place].extra);
        Self::Granted { requests: answer.granted, permit }
    }
}

impl Entry {
    /// Units that were granted.
    pub fn granted(&self) -> i64 {
        if let Did::Granted { requests, .. } = self.did { requests * self.task.number } else { 0 }
    }

    /// Units that were charged without being asked for or, if negative, refunded.
    pub fn settled(&self) -> i64 {
        if self.did == Did::Settled && self.task.verb == Verb::Refund { -self.task.number } else { 0 }
    }

    /// Units that are used from now on, or no longer.
    fn used(&self) -> i64 {
        self.granted() + self.settled().min(0)
    }

    /// The store has not done it, and will not.
    pub fn is_lost(&self) -> bool {
        self.did == Did::Nothing || (self.did == Did::Later && !self.is_heard)
    }
}

/// The units of a subject, by their use.
#[derive(Clone, Debug, Default)]
struct Account {
    granted: i64,
    refunded: i64,
    /// Granted in replies that no worker has read.
    unheard: i64,
    /// Refunds that were lost.
    lost: i64,
    /// Places held, by permit.
    places: BTreeMap<i64, i64>,
    /// Requests that were admitted, and those whose client left while they waited.
    admitted: i64,
    left: i64,
}

/// See the [module](self).
#[derive(Default)]
pub struct Ledger {
    pub requests: BTreeMap<StreamId, Request>,
    /// The requests that are not over.
    pub open: BTreeSet<StreamId>,
    /// The time of each decision, its request, and whether the request was admitted; in this order.
    pub decisions: Vec<(u64, StreamId, bool)>,
    pub entries: Vec<Entry>,
    /// True if the ledger does not keep the stores' work: for worlds that would not fit into memory.
    pub forgets: bool,
}

impl Ledger {
    pub(super) fn note(&mut self, at: u64, by: usize, store: usize, task: &Task, did: Did) {
        if self.forgets {
            return;
        }
        self.entries.push(Entry { at, by, store, task: task.clone(), did, is_heard: false, is_copy: false });
    }

    /// A batch does not reach its store.
    pub(super) fn undone(&mut self, at: u64, by: usize, store: usize, batch: &Batch) {
        batch.tasks().iter().for_each(|task| self.note(at, by, store, task, Did::Nothing));
    }

    pub fn rejected(&self) -> usize {
        self.requests.values().filter(|request| request.is_rejected()).count()
    }

    /// The time at which each request of a subject was admitted, and its cost.
    pub fn admitted(&self, subject: &str) -> Vec<(u64, u64)> {
        let end = format!("|{subject}}}");
        let of = |request: &&Request| request.checks[0].tag.ends_with(end.as_bytes());
        let admitted = self.requests.values().filter(|request| request.is_admitted()).filter(of);
        let mut at: Vec<_> = admitted.filter_map(|of| Some((of.decided?.0, of.checks[0].cost))).collect();
        at.sort_unstable();
        at
    }

    /// The work of a store for a worker.
    pub fn between(&self, by: usize, store: usize) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| (entry.by, entry.store) == (by, store))
    }

    /// Units that a store has granted a worker, beyond what this gave back.
    pub fn granted(&self, by: usize, store: usize) -> i64 {
        self.between(by, store).map(Entry::used).sum()
    }

    /// Units that a subject was granted or charged, less what was refunded.
    pub fn spent(&self, tag: &str) -> i64 {
        let of = self.entries.iter().filter(|entry| entry.task.tag == tag);
        of.map(|entry| entry.granted() + entry.settled()).sum()
    }

    /// Units that a worker has charged in a store.
    pub fn charged(&self, by: usize, store: usize) -> i64 {
        self.between(by, store).map(|entry| entry.settled().max(0)).sum()
    }

    /// The units that all stores have granted a subject, less what was given back, after each change.
    pub fn used(&self, tag: &str) -> Vec<(u64, i64)> {
        let of = self.entries.iter().filter(|entry| entry.task.tag == tag);
        let add = |sum: &mut i64, entry: &Entry| {
            *sum += entry.used();
            Some((entry.at, *sum))
        };
        of.scan(0, add).collect()
    }

    fn accounts(&self) -> HashMap<String, Account> {
        let mut accounts: HashMap<String, Account> = HashMap::new();
        for entry in &self.entries {
            let account = accounts.entry(entry.task.tag.clone()).or_default();
            account.granted += entry.granted();
            account.refunded -= entry.settled();
            assert!(account.refunded <= account.granted, "{entry:?}: {account:?}");
            match (entry.task.verb, entry.did) {
                (Verb::Check, Did::Granted { .. }) if !entry.is_heard => account.unheard += entry.granted(),
                (Verb::Check, Did::Granted { requests, permit: Some(permit) }) => {
                    account.places.insert(permit, requests);
                }
                (Verb::Refund, _) if entry.is_lost() => account.lost += entry.task.number,
                (Verb::Renew, Did::Renewed { permit }) => {
                    if let Some(places) = account.places.get_mut(&entry.task.number) {
                        *places -= entry.task.requests;
                    }
                    *account.places.entry(permit).or_default() += entry.task.requests;
                }
                // A place that is not released ends with its ttl.
                (Verb::Release, did) if did == Did::Settled || entry.is_lost() => {
                    let places = account.places.get_mut(&entry.task.number).expect("a permit that is held");
                    *places -= entry.task.requests;
                    assert!(*places >= 0, "{entry:?} releases more than is held");
                }
                _ => {}
            }
        }
        for request in self.requests.values() {
            for check in &request.checks {
                let tag = String::from_utf8_lossy(&check.tag);
                let account = accounts.entry(tag.trim_matches(['{', '}']).to_owned()).or_default();
                let cost = i64::try_from(check.cost).expect("a cost");
                match request.decided {
                    Some((_, true)) => account.admitted += cost,
                    Some((_, false)) => {}
                    None => account.left += cost,
                }
            }
        }
        accounts
    }

    /// Checks the end of a run: units that were charged and not refunded are those of requests that were admitted, or whose client left
    /// while they waited. No place is held.
    ///
    /// If `on_failure` denies, no request is admitted without a charge. If each request has subjects of its own, its charges are not
    /// refunded.
    pub fn judge(&self, denies: bool, apart: bool) {
        assert!(self.open.is_empty(), "all is over");
        for (tag, account) in self.accounts() {
            let Account { granted, refunded, unheard, lost, ref places, admitted, left } = account;
            let charged = granted - refunded;
            let least = if denies { admitted } else { 0 };
            assert!(
                (least..=admitted + left + unheard + lost).contains(&charged),
                "{tag}: {charged} of {account:?}"
            );
            assert!(
                !apart || admitted + left == 0 || refunded == 0,
                "{tag}: an admitted request was refunded"
            );
            assert_eq!(places.values().sum::<i64>(), 0, "{tag}: {account:?}");
        }
    }
}
