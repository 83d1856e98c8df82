// SPDX-License-Identifier: Apache-2.0
//! One fault under load: what became of every request, and whether that is good enough.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::overload::Overload;
use crate::support::envoy::Envoy;
use crate::support::load::{Exchange, Load};
use crate::world::{BURST, DEADLINE, ENVOYS, Fault, Felt, Kind, Policy, RATE, SOURCE, Store, World};
use crate::{Form, last};

/// No request may take longer than the deadline and this.
const GRACE: Duration = Duration::from_millis(25);
/// The control takes no longer on a machine that is quiet enough to judge time: what is held takes more turns of Envoy's
/// loop than the control does, and a stall costs it as many times as much.
const QUIET: Duration = Duration::from_millis(10);
/// Redis decides again this soon after a fault.
const RECOVERY: Duration = Duration::from_secs(2);
/// The maximum wait for that, on however busy a machine.
const LONGEST: Duration = Duration::from_secs(60);
/// An Envoy under overload grows no more than this, in KiB.
const GROWTH: u64 = 4 * 1024;

/// The effects of a fault. Counts are of requests of [`Kind::Limited`].
#[derive(Debug, Default)]
pub struct Row {
    pub name: &'static str,
    pub felt: Felt,
    pub sent: usize,
    pub answered: usize,
    /// Answered by the upstream.
    pub allowed: usize,
    /// Answered with 429.
    pub limited: usize,
    /// Answered with 503 because a policy has `on_failure: deny`.
    pub refused: usize,
    /// Any other answer from 500 to 599.
    pub errors: usize,
    /// Answered with what no policy says; and the control, if it was not let through.
    pub astray: usize,
    /// Decided without Redis.
    pub fallback: usize,
    /// The fallbacks admitted by `on_failure: local`.
    pub local: usize,
    /// Asked where the fault is not to be felt.
    pub others: usize,
    /// The others that were decided without Redis.
    pub elsewhere: usize,
    /// The number of `Lane`s that the fault must not affect; `silent` is the number of those for which Redis decided nothing meanwhile.
    pub spared: usize,
    pub silent: usize,
    pub slowest: Duration,
    /// The slowest of the control: how long the machine or an Envoy stalled, whatever weir did.
    pub control: Duration,
    /// Admitted beyond what the limit allows: `burst + rate x time`, once more the burst for each time that the store
    /// forgot. And what `on_failure: local` admitted beyond a worker's share of that. `on_failure: allow` has no bound;
    /// those are in `fallback`.
    pub over_admitted: usize,
    /// The time from the end of the fault until Redis had decided for every `Lane`; absent if it did not.
    pub recovered: Option<Duration>,
    /// The time from the end of the fault to the last request that was decided without Redis.
    pub settled: Duration,
    /// The reason of the first one that was not answered, or astray.
    pub why: Option<String>,
    /// The most requests that one Envoy owed an answer at once.
    pub waiting: usize,
    /// The overload, if it was more than Redis can do.
    pub overload: Option<Overload>,
    /// The messages of the Envoys' logs about the store, and about traps.
    pub told: BTreeSet<String>,
}

impl Row {
    /// True if the machine was quiet enough to attribute long times to weir.
    pub fn tells_time(&self) -> bool {
        self.control <= QUIET
    }

    /// The violated requirements.
    pub fn broken(&self, form: Form) -> Vec<String> {
        let Self { sent, answered, errors, astray, over_admitted, slowest, .. } = self;
        let mut broken = Vec::new();
        let mut hold = |holds: bool, says: String| broken.extend((!holds).then_some(says));
        let felt = self.felt != Felt::ByNobody;
        hold(self.fallback > 0 || !felt, "the fault has not happened".into());
        hold(self.local > 0 || !felt, "`on_failure: local` has admitted no request".into());
        let Self { spared, silent, .. } = self;
        let limited_to_some = !matches!(self.felt, Felt::ByFirstUser { .. }) || silent < spared;
        hold(limited_to_some, "Redis decided no request, though most of it was there".into());
        hold(sent == answered, format!("{sent} were sent, {answered} answered"));
        hold(*errors == 0, format!("{errors} were answered with an unexpected 5xx"));
        hold(*astray == 0, format!("{astray} were answered with what no policy says"));
        hold(self.why.is_none(), format!("the first of these: {}", self.why.as_deref().unwrap_or_default()));
        hold(*over_admitted == 0, format!("{over_admitted} were admitted beyond the limits"));
        hold(self.recovered.is_some(), format!("Redis did not decide again within {LONGEST:?}"));
        if let Some(Overload { decided, .. }) = self.overload {
            hold(decided > 0, "Redis decided about nothing of what was too much".into());
        }
        if form.judges_time && self.tells_time() {
            hold(*slowest <= DEADLINE + GRACE, format!("the slowest answer took {slowest:?}"));
            let recovered = self.recovered.unwrap_or_default();
            hold(recovered <= RECOVERY, format!("Redis decided again after {recovered:?}"));
            let Self { others, elsewhere, .. } = self;
            let most = if let Felt::ByFirstUser { others } = self.felt { others } else { 0 };
            let says =
                format!("{elsewhere} of {others} were decided without Redis, which was there for them");
            hold(elsewhere * 100 <= others * most, says);
            hold(*silent == 0, format!("of {spared} lanes Redis said nothing about {silent}"));
            if let Some(Overload { capacity, grown, .. }) = self.overload {
                hold(grown <= GROWTH, format!("an Envoy has grown by {grown} KiB"));
                // The requests that arrive at one of the Envoys within the longest time that an answer may take. They come evenly, but for
                // the pace of their clients, so the bound is twice that.
                let at_once = (DEADLINE + GRACE).as_secs_f64() * f64::from(2 * capacity) / ENVOYS as f64;
                let waiting = self.waiting;
                hold(waiting <= 2 * at_once.ceil() as usize, format!("{waiting} waited at once"));
            }
        }
        broken
    }
}

/// Runs one fault.
pub fn run<S: Store>(world: &mut World<S>, fault: &Fault<S>, form: Form) -> Row {
    let (mut kinds, lanes): (Vec<_>, Vec<_>) = world.lanes().into_iter().unzip();
    let logged: Vec<_> = world.lab.envoys.iter().map(|envoy| envoy.log().len()).collect();
    let load = Load::start(lanes, S::RATE / form.ease);
    let limited: Vec<_> = (0..kinds.len()).filter(|&lane| subject(&kinds[lane]).is_some()).collect();
    let decided_since = |since: Duration| {
        limited.iter().all(|&lane| load.any(|x| x.lane == lane && x.sent >= since && by_redis(x)))
    };
    let decides = |since: Duration| {
        while !decided_since(since) && load.elapsed() < since + LONGEST {
            last(Duration::from_millis(20));
        }
    };
    decides(Duration::ZERO);
    last(form.around);
    let began = load.elapsed();
    (fault.inject)(&mut world.lab.redis, form.hold);
    let over = load.elapsed();
    decides(over);
    last(form.around);
    let (steady, clock) = (kinds.len(), Instant::now() - load.elapsed());
    let (mut sent, mut exchanges) = load.end();
    let mut overload = None;
    if let Some(flood) = world.lab.redis.flood() {
        // As if it had been one load.
        let later = flood.at - clock;
        exchanges.extend(flood.exchanges.into_iter().map(|x| Exchange {
            lane: steady + x.lane,
            sent: later + x.sent,
            ended: later + x.ended,
            ..x
        }));
        (sent, overload) = (sent + flood.sent, Some(flood.overload));
        kinds.extend(flood.kinds);
    }
    let mut row = Row { name: fault.name, felt: fault.felt, sent, overload, ..Row::default() };
    let forgets = fault.forgets + world.lab.redis.forgot();
    account(&mut row, &kinds, &exchanges, began..over, forgets);
    row.recovered = recovered(&kinds[..steady], &exchanges, over);
    row.told = world.lab.envoys.iter().zip(logged).flat_map(|(envoy, from)| told(envoy, from)).collect();
    row
}

fn source(exchange: &Exchange) -> Option<&str> {
    exchange.response.as_ref().ok()?.headers.get(SOURCE)
}

/// Redis was asked about this very request.
pub fn by_redis(exchange: &Exchange) -> bool {
    source(exchange) == Some("redis")
}

/// Decided without Redis, now or a moment ago.
fn without_redis(exchange: &Exchange) -> bool {
    !matches!(source(exchange), Some("redis" | "denied-until" | "lease"))
}

fn account(row: &mut Row, kinds: &[Kind], exchanges: &[Exchange], during: Range<Duration>, forgets: u32) {
    let (control, limited): (Vec<_>, Vec<_>) =
        exchanges.iter().partition(|exchange| matches!(kinds[exchange.lane], Kind::Control));
    row.sent -= control.len();
    let mut astray: Vec<_> =
        control.iter().filter(|x| !matches!(&x.response, Ok(r) if r.status == 200)).collect();
    row.astray = astray.len();
    row.control = control.iter().map(|exchange| exchange.took()).max().unwrap_or_default();
    for exchange in &limited {
        let (Kind::Limited { policy, user, envoy }, Ok(response)) =
            (kinds[exchange.lane], &exchange.response)
        else {
            astray.push(exchange);
            continue;
        };
        let alone = without_redis(exchange);
        row.answered += 1;
        match (response.status, policy.on_failure) {
            (200, "allow" | "local") => row.allowed += 1,
            (200, "deny") if !alone => row.allowed += 1,
            (429, _) => row.limited += 1,
            (503, "deny") if alone && source(exchange) == Some("fallback") => row.refused += 1,
            (500..600, _) => {
                row.errors += 1;
                astray.push(exchange);
            }
            _ => {
                row.astray += 1;
                astray.push(exchange);
            }
        }
        row.fallback += usize::from(alone);
        row.local += usize::from(alone && (response.status, policy.on_failure) == (200, "local"));
        let other = !row.felt.at(envoy, user);
        row.others += usize::from(other);
        row.elsewhere += usize::from(alone && other);
        row.slowest = row.slowest.max(exchange.took());
        if alone {
            row.settled = row.settled.max(exchange.ended.saturating_sub(during.end));
        }
    }
    row.why = astray.iter().min_by_key(|exchange| exchange.sent).map(|exchange| format!("{exchange:?}"));
    row.over_admitted = over_admitted(kinds, &limited, forgets) + over_share(kinds, &limited, &during);
    row.waiting = (0..ENVOYS).map(|envoy| most_at_once(kinds, &limited, envoy)).max().unwrap_or_default();
    let is_spared =
        |kind: &Kind| matches!(*kind, Kind::Limited { envoy, user, .. } if !row.felt.at(envoy, user));
    let spared: Vec<_> = (0..kinds.len()).filter(|&lane| is_spared(&kinds[lane])).collect();
    let says = |x: &Exchange| !without_redis(x) && during.contains(&x.sent) && during.contains(&x.ended);
    let is_silent = |lane: usize| !limited.iter().any(|x| x.lane == lane && says(x));
    row.spared = spared.len();
    row.silent = spared.into_iter().filter(|&lane| is_silent(lane)).count();
}

fn most_at_once(kinds: &[Kind], limited: &[&Exchange], at: usize) -> usize {
    let is_there = |x: &&&Exchange| matches!(kinds[x.lane], Kind::Limited { envoy, .. } if envoy == at);
    let there = || limited.iter().filter(is_there);
    let (mut sent, mut ended): (Vec<_>, Vec<_>) = there().map(|x| (x.sent, x.ended)).unzip();
    sent.sort();
    ended.sort();
    let owed = |(before, sent): (usize, &Duration)| before + 1 - ended.partition_point(|ended| ended <= sent);
    sent.iter().enumerate().map(owed).max().unwrap_or_default()
}

/// Summed over policies and users: how many Redis admitted beyond the bound.
fn over_admitted(kinds: &[Kind], limited: &[&Exchange], forgets: u32) -> usize {
    let mut over = 0;
    for whose in kinds.iter().filter_map(subject).collect::<BTreeSet<_>>() {
        let mine = || limited.iter().filter(|exchange| subject(&kinds[exchange.lane]) == Some(whose));
        let admitted =
            mine().filter(|x| !without_redis(x) && matches!(&x.response, Ok(r) if r.status == 200));
        let began = mine().map(|exchange| exchange.sent).min().unwrap_or_default();
        let ended = mine().map(|exchange| exchange.ended).max().unwrap_or_default();
        let earned = (ended - began).as_secs_f64() * f64::from(RATE);
        let bound = BURST as usize * (forgets as usize + 1) + earned.ceil() as usize;
        over += admitted.count().saturating_sub(bound);
    }
    over
}

/// Summed over Envoys and users: how many `on_failure: local` admitted during a fault beyond a worker's share, which is whole again
/// whenever the store has answered meanwhile. That is 0 times where the store is unavailable all the time.
fn over_share(kinds: &[Kind], limited: &[&Exchange], during: &Range<Duration>) -> usize {
    let within = |exchange: &&&Exchange| during.contains(&exchange.ended);
    let mut over = 0;
    for (lane, kind) in kinds.iter().enumerate() {
        let Kind::Limited { policy: Policy { on_failure: "local", .. }, envoy: here, .. } = *kind else {
            continue;
        };
        let alone = || limited.iter().filter(within).filter(|x| x.lane == lane && without_redis(x));
        let (Some(first), Some(last)) = (alone().map(|x| x.sent).min(), alone().map(|x| x.ended).max())
        else {
            continue;
        };
        let is_here = |x: &Exchange| matches!(kinds[x.lane], Kind::Limited { envoy, .. } if envoy == here);
        let by_redis = |x: &&&Exchange| is_here(x) && by_redis(x) && (first..last).contains(&x.ended);
        let whole = 1 + limited.iter().filter(by_redis).count();
        let earned = (last - first).as_secs_f64() * f64::from(RATE) / ENVOYS as f64;
        let admitted = alone().filter(|x| matches!(&x.response, Ok(r) if r.status == 200)).count();
        over += admitted.saturating_sub(BURST as usize / ENVOYS * whole + earned.ceil() as usize);
    }
    over
}

fn subject(kind: &Kind) -> Option<(&'static str, usize)> {
    match *kind {
        Kind::Control => None,
        Kind::Limited { policy, user, .. } => Some((policy.name, user)),
    }
}

/// The time from the end of the fault until Redis had decided for every `Lane`; `None` if it did not.
fn recovered(kinds: &[Kind], exchanges: &[Exchange], over: Duration) -> Option<Duration> {
    let lanes = (0..kinds.len()).filter(|&lane| subject(&kinds[lane]).is_some());
    let first = |lane| {
        let decided = exchanges.iter().filter(|x| x.lane == lane && x.sent >= over && by_redis(x));
        decided.map(|exchange| exchange.ended - over).min()
    };
    lanes.map(first).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// The end of a log line that stands for others too.
const AGAIN: &str = " more of its kind since)";

/// The messages of an Envoy's log about the store, and about traps, each once and without numbers of repetition.
fn told(envoy: &Envoy, from: usize) -> Vec<String> {
    let log = envoy.log();
    let lines = log.get(from..).unwrap_or_default().lines();
    let told = lines.filter_map(|line| match line.split_once("store: ") {
        Some((_, said)) => Some(
            said.rsplit_once(" (").filter(|(_, more)| more.ends_with(AGAIN)).map_or(said, |(said, _)| said),
        ),
        None => line.split_once("[error][wasm]").map(|(_, said)| said),
    });
    told.map(String::from).collect()
}
