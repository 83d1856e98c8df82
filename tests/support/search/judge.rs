// SPDX-License-Identifier: Apache-2.0
//! The invariants of every path, and those of its end.

use std::collections::BTreeMap;

use weir::engine::StreamId;

use super::{Run, stream_of};
use crate::worker::{Verb, check_of};
use crate::world::ledger::{Entry, Request};

/// The protocols that move units between parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Share,
    Debit,
    Lease,
    Settle,
    Queue,
}

/// The work of a store for a worker and one subject. In units; for releases, permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// Granted in answers that the worker has read, and in others.
    pub heard: i64,
    pub unheard: i64,
    pub refunded: i64,
    pub charged: i64,
    /// Refunds, charges and releases that the network has delivered once more than they were sent.
    pub copied: [i64; 3],
    /// Refunds, charges and releases that were lost.
    pub lost: [i64; 3],
}

impl Account {
    /// The granted units that stay charged.
    pub const fn net(&self) -> i64 {
        self.heard + self.unheard - self.refunded
    }

    fn add(&mut self, entry: &Entry) {
        let kind = match (entry.task.verb, entry.task.number) {
            (Verb::Check | Verb::Renew, _) => None,
            (Verb::Refund, 0..) => Some((0, entry.task.number)),
            (Verb::Refund, units) => Some((1, -units)),
            (Verb::Release, _) => Some((2, entry.task.requests)),
        };
        let granted = if entry.is_heard { &mut self.heard } else { &mut self.unheard };
        *granted += entry.granted();
        let Some((kind, units)) = kind else { return };
        if entry.is_lost() {
            self.lost[kind] += units;
        }
        if entry.is_copy {
            self.copied[kind] += units;
        }
        self.refunded += entry.settled().min(0).abs();
        self.charged += entry.settled().max(0);
    }

    fn with(&self, other: &Self) -> Self {
        let add = |one: [i64; 3], other: [i64; 3]| [0, 1, 2].map(|kind| one[kind] + other[kind]);
        Self {
            heard: self.heard + other.heard,
            unheard: self.unheard + other.unheard,
            refunded: self.refunded + other.refunded,
            charged: self.charged + other.charged,
            copied: add(self.copied, other.copied),
            lost: add(self.lost, other.lost),
        }
    }
}

/// The subject of requests that only come when all is over.
const LAST: &str = "p0|last";

/// By worker, store and subject.
type Accounts = BTreeMap<(usize, usize, String), Account>;

fn entries<'a>(run: &'a Run<'_>) -> impl Iterator<Item = &'a Entry> {
    run.world.ledger.entries.iter().filter(|entry| entry.task.tag != LAST)
}

/// The requests of the scenario's clients.
fn requests<'a>(run: &'a Run<'_>) -> impl Iterator<Item = (StreamId, &'a Request)> {
    let requests = run.world.ledger.requests.iter().map(|(stream, request)| (*stream, request));
    requests.filter(|(stream, _)| *stream <= stream_of(run.scenario.clients.len() - 1))
}

fn cost(request: &Request) -> i64 {
    i64::try_from(request.checks[0].cost).expect("a cost")
}

fn accounts(run: &Run<'_>) -> Accounts {
    let mut accounts = Accounts::new();
    for entry in entries(run) {
        let of = (entry.by, entry.store, entry.task.tag.clone());
        accounts.entry(of).or_default().add(entry);
    }
    accounts
}

fn sum<'a>(accounts: impl Iterator<Item = &'a Account>) -> Account {
    accounts.fold(Account::default(), |sum, account| sum.with(account))
}

/// All that the judge looks at later.
pub fn sums(run: &Run<'_>) -> impl std::hash::Hash {
    let requests = run.world.ledger.requests.iter().map(|(stream, request)| {
        let is_open = run.world.ledger.open.contains(stream);
        (*stream, request.worker, request.arrived, request.decided, is_open)
    });
    (accounts(run), requests.collect::<Vec<_>>())
}

fn holds(is_so: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(why()) }
}

/// Checks the invariants that are true at any time.
pub fn always(run: &Run<'_>) -> Result<(), String> {
    let (ledger, limit) = (&run.world.ledger, run.scenario.limit);
    let accounts = accounts(run);
    let all = sum(accounts.values());
    let admitted = || requests(run).filter(|(_, of)| of.is_admitted());
    let stores = 0..run.world.stores.len();
    match run.scenario.protocol {
        Protocol::Share | Protocol::Lease => {
            let (admitted, most) = (admitted().map(|(_, of)| cost(of)).sum::<i64>(), limit + all.copied[0]);
            let back =
                run.scenario.interval.map_or(0, |interval| run.world.time.div_ceil(interval).cast_signed());
            holds(admitted <= most + back, || format!("{admitted} units admitted of {most} and {back}"))?;
            holds(peak(run, |_| true) <= most, || format!("{} units granted of {most}", peak(run, |_| true)))
        }
        Protocol::Debit => stores.into_iter().try_for_each(|store| {
            let most = limit + all.copied[0];
            let found = peak(run, |entry| entry.store == store);
            holds(found <= most, || format!("store {store} has granted up to {found} units of {most}"))?;
            accounts.iter().filter(|((by, at, _), _)| *at == store && home(run, *by) != store).try_for_each(
                |((by, _, tag), of)| {
                    let own = accounts.get(&(*by, home(run, *by), tag.clone())).cloned().unwrap_or_default();
                    let (charged, granted) = (of.charged - of.copied[1], own.heard - own.refunded);
                    holds(charged <= granted + own.copied[0], || {
                        format!("{by} has charged store {store} with {charged} of {granted} units")
                    })
                },
            )
        }),
        Protocol::Queue => {
            let holding = admitted().filter(|(stream, _)| ledger.open.contains(stream));
            let (holding, most) = (i64::try_from(holding.count()).expect("few"), limit + all.copied[2]);
            holds(holding <= most, || format!("{holding} requests hold {most} permits"))
        }
        Protocol::Settle => Ok(()),
    }
}

/// The most that was charged at once, of what was granted, when something was granted.
fn peak(run: &Run<'_>, of: impl Fn(&Entry) -> bool) -> i64 {
    // Of a bucket, that is a time: how long until all has come back.
    let interval = run.scenario.interval.unwrap_or(1).cast_signed();
    let (mut sum, mut peak, mut last) = (0, 0, 0);
    for entry in entries(run).filter(|entry| of(entry)) {
        if run.scenario.interval.is_some() {
            sum = (sum - (entry.at - last).cast_signed()).max(0);
            last = entry.at;
        }
        sum += interval * (entry.granted() + entry.settled());
        if entry.granted() > 0 {
            peak = peak.max(sum);
        }
    }
    (peak + interval - 1) / interval
}

/// The region of a worker.
fn home(run: &Run<'_>, worker: usize) -> usize {
    run.world.workers[worker].region
}

/// The network is good, all requests end, and time passes.
const SETTLES: u64 = 400_000;

pub fn at_end(mut run: Run<'_>) -> Result<(), String> {
    run.world.run(SETTLES);
    let left =
        |(stream, of): &(StreamId, &Request)| of.decided.is_none() && !run.world.ledger.open.contains(stream);
    let early: Vec<_> = requests(&run).filter(left).map(|(stream, _)| stream).collect();
    for stream in &run.world.ledger.open {
        holds(run.world.ledger.requests[stream].decided.is_some(), || {
            format!("request {stream} is not decided")
        })?;
    }
    for stream in run.world.ledger.open.clone() {
        run.world.close(stream);
    }
    ask_until_all_is_sent(&mut run)?;
    let slack = i64::try_from(run.scenario.budget.steps - run.left.steps).expect("few") * super::STEP;
    let within = run.scenario.decided_within + slack.unsigned_abs();
    for (stream, request) in requests(&run).filter(|(_, of)| of.decided.is_some()) {
        let waited = request.waited();
        holds(waited <= within, || format!("request {stream} has waited {waited} µs"))?;
    }
    for place in &run.lives {
        let engine = run.world.engine(*place);
        let kept =
            (engine.on_lease(), engine.queued(), engine.counters().debits_waiting, engine.request_count());
        holds(kept == (0, 0, 0, 0), || format!("worker {place} keeps {kept:?}"))?;
    }
    always(&run)?;
    match run.scenario.protocol {
        Protocol::Settle => settled(&run),
        Protocol::Queue => released(run),
        Protocol::Share | Protocol::Lease => conserved(&run, &early),
        Protocol::Debit => conserved(&run, &early).and_then(|()| owed(&run)),
    }
}

/// While a breaker is open, nothing is sent before a request asks.
fn ask_until_all_is_sent(run: &mut Run<'_>) -> Result<(), String> {
    let mut last = 1_000;
    for _ in 0..20 {
        run.world.run(SETTLES);
        let closed = |place: &&usize| run.world.engine(**place).open_breakers() > 0;
        let asks: Vec<_> = run.lives.iter().filter(closed).copied().collect();
        if asks.is_empty() {
            return Ok(());
        }
        for place in asks {
            last += 1;
            run.world.arrive_as(last, place, vec![check_of(0, format!("{{{LAST}}}"), 1)]);
            run.world.run(SETTLES);
            run.world.close(last);
        }
    }
    Err("a breaker stays open".to_owned())
}

/// Checks that each worker has charged what its requests have used, and what losses and crashes explain.
fn conserved(run: &Run<'_>, early: &[u32]) -> Result<(), String> {
    let accounts = accounts(run);
    for worker in 0..run.world.workers.len() {
        let grants = accounts.iter().filter(|((by, ..), _)| *by == worker).map(|(_, of)| of);
        let of = sum(grants);
        let costs = |is_counted: &dyn Fn(StreamId, &Request) -> bool| -> i64 {
            let counted = requests(run).filter(|(stream, of)| of.worker == worker && is_counted(*stream, of));
            counted.map(|(_, of)| cost(of)).sum()
        };
        let admitted = costs(&|_, of| of.is_admitted());
        let left = costs(&|stream, _| early.contains(&stream));
        let (least, most) = (admitted - of.copied[0], admitted + left + of.unheard + of.lost[0]);
        let is_dead = run.world.workers[worker].is_dead;
        holds(of.net() >= least && (is_dead || of.net() <= most), || {
            format!("worker {worker}: {} units are charged, {least} to {most} were used: {of:?}", of.net())
        })?;
    }
    Ok(())
}

/// Each region is charged with what the workers of the others were granted, but for what was lost.
fn owed(run: &Run<'_>) -> Result<(), String> {
    let accounts = accounts(run);
    for worker in 0..run.world.workers.len() {
        let at = |store| accounts.get(&(worker, store, "p0|0".to_owned())).cloned().unwrap_or_default();
        let own = at(home(run, worker));
        let granted = own.heard - own.refunded + own.copied[0] - own.lost[0];
        for store in (0..run.world.stores.len()).filter(|store| *store != home(run, worker)) {
            let of = at(store);
            let charged = of.charged - of.copied[1] + of.lost[1];
            holds(run.world.workers[worker].is_dead || charged == granted, || {
                format!("worker {worker} has charged store {store} with {charged} of {granted} units")
            })?;
        }
    }
    Ok(())
}

/// Each request is charged with what it has cost.
fn settled(run: &Run<'_>) -> Result<(), String> {
    let accounts = accounts(run);
    for (stream, request) in requests(run) {
        let client = stream - stream_of(0);
        let of = accounts.get(&(request.worker, 0, format!("p0|{client}"))).cloned().unwrap_or_default();
        let reserved = cost(request);
        let true_cost =
            run.scenario.true_cost.filter(|_| run.responded.contains(&stream)).unwrap_or(reserved);
        let used = match request.decided {
            _ if of.heard == 0 => 0,
            Some((_, true)) => true_cost,
            Some((_, false)) => 0,
            None => reserved,
        };
        let charged = of.net() + of.charged;
        let least = used - of.copied[0] - of.lost[1];
        let most = used + of.unheard + of.lost[0] + of.copied[1];
        // The grants to a worker that has crashed are charged; what it has not settled by then never is.
        let is_dead = run.world.workers[request.worker].is_dead;
        let range = if is_dead { least.min(0)..=most.max(reserved) } else { least..=most };
        holds(range.contains(&charged), || {
            format!("request {stream}: {charged} units are charged, {range:?} were used: {of:?}")
        })?;
    }
    Ok(())
}

/// All permits are free: those of answers that no worker has read, of releases that were lost and of workers that crashed when their ttl is
/// over, the others at once.
fn released(mut run: Run<'_>) -> Result<(), String> {
    let accounts = accounts(&run);
    let crashed = accounts.iter().filter(|((by, ..), _)| run.world.workers[*by].is_dead);
    let (all, crashed) = (sum(accounts.values()), sum(crashed.map(|(_, of)| of)));
    if all.heard + all.unheard == 0 {
        return Ok(());
    }
    let explained = all.unheard + all.lost[2] + crashed.heard;
    for (span, explained) in [(0, explained), (3_000_000, 0)] {
        run.world.run(span);
        let held = run.scenario.limit - run.world.left(0, "p0|0");
        holds(held <= explained, || {
            format!("{held} permits are held after {span} µs, {explained} are explained: {all:?}")
        })?;
    }
    Ok(())
}
