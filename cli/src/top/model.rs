// SPDX-License-Identifier: Apache-2.0
//! The contents of the view, computed from one sample after the other.

use std::collections::BTreeMap;

use super::stats::{Latency, Stats};
use weir::time::Micros;

#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Its time, from the beginning of the command.
    pub at: Micros,
    /// The Envoys that did not answer, and why.
    pub silent: Vec<String>,
    pub envoys: usize,
    pub stats: Stats,
    /// Redis; absent if the arguments do not name it.
    pub redis: Option<Result<RedisView, String>>,
}

/// The answers of Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RedisView {
    /// The time that Redis took to answer.
    pub ping: Micros,
    /// The number of denials counted; `skipped` is the number of those in no entry of the journal.
    pub denials: u64,
    pub skipped: u64,
    pub hot: Vec<HotSubject>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HotSubject {
    pub policy: String,
    pub subject: String,
    /// The meaning of `subject`: see [`Denied::field`](super::super::hot::Denied::field).
    pub field: &'static str,
    pub denials: u64,
    /// The time of day of the last of them.
    pub last: String,
    pub by: String,
}

/// The rate of events, in tenths a second; `None` until there are two samples.
pub(super) type Rate = Option<u64>;

/// One policy, or one of its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub name: String,
    pub requests: Rate,
    pub denied: Rate,
    pub shadow: Rate,
    /// Decided without Redis, because it failed.
    pub fallback: Rate,
    /// The limits that denied, with the most denials first.
    pub limits: Vec<(String, u64)>,
}

/// A kind of failure: of the store, or panics of the dynamic module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub kind: String,
    /// The number since Envoy began.
    pub total: u64,
    /// The time at which `total` last grew, from the beginning of the command.
    pub last: Option<Micros>,
    pub rate: Rate,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub now: Sample,
    before: Option<Sample>,
    failed: BTreeMap<String, Micros>,
}

impl Model {
    pub fn take(&mut self, sample: Sample) {
        let before = core::mem::replace(&mut self.now, sample);
        // An Envoy that did not answer would make the sums smaller, and the next ones larger.
        let is_whole = |of: &Sample| of.envoys > 0 && of.silent.is_empty();
        let is_same = before.envoys == self.now.envoys && is_whole(&before) && is_whole(&self.now);
        self.before = is_same.then_some(before);
        if let Some(before) = &self.before {
            for (kind, total) in failing(&self.now.stats) {
                if total > before.stats.get(&counter(kind)) {
                    self.failed.insert(kind.to_owned(), self.now.at);
                }
            }
        }
    }

    /// True if no Envoy has answered or failed to answer yet.
    pub fn is_new(&self) -> bool {
        self.now.envoys == 0 && self.now.silent.is_empty()
    }

    /// The rate at which the counters of these names grew.
    pub fn rate(&self, names: &[&str]) -> Rate {
        let sum = names
            .iter()
            .map(|name| self.grown(name))
            .try_fold(0_u64, |sum, of| Some(sum.saturating_add(of?)));
        self.per_second(sum?)
    }

    fn grown(&self, name: &str) -> Option<u64> {
        let (before, now) = (self.before.as_ref()?.stats.get(name), self.now.stats.get(name));
        // An Envoy that has begun anew counts from zero.
        Some(now.checked_sub(before).unwrap_or(now))
    }

    fn per_second(&self, count: u64) -> Rate {
        let passed = self.now.at.since(self.before.as_ref()?.at);
        count.saturating_mul(10_000_000).checked_div(passed.0)
    }

    pub fn gauge(&self, name: &str) -> u64 {
        self.now.stats.get(name)
    }

    /// The latency of Redis, as the workers see it.
    pub fn latency(&self) -> Option<Latency> {
        self.now.stats.latency()
    }

    /// The policies; none if this version of weir does not count by policy.
    pub fn policies(&self) -> Vec<Row> {
        let mut rows: BTreeMap<&str, Counts> = BTreeMap::new();
        for (path, _) in self.now.stats.below("policy.") {
            let Some((policy, rest)) = path.split_once('.') else { continue };
            let counts = rows.entry(policy).or_default();
            let name = format!("policy.{path}");
            let Some(grown) = self.grown(&name) else { continue };
            counts.is_known = true;
            let parts: Vec<&str> = rest.split('.').collect();
            match parts.as_slice() {
                ["requests", outcome, source @ ..] => counts.add(outcome, source.first(), grown),
                ["limit", limit, "requests", "denied" | "banned", ..] if grown > 0 => {
                    let sum = counts.limits.entry(unescaped(limit)).or_default();
                    *sum = sum.saturating_add(grown);
                }
                _ => {}
            }
        }
        let row = |(name, counts): (&str, Counts)| {
            let rate = |count: u64| if counts.is_known { self.per_second(count) } else { None };
            let mut limits: Vec<(String, u64)> = counts.limits.clone().into_iter().collect();
            limits.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Row {
                name: unescaped(name),
                requests: rate(counts.requests),
                denied: rate(counts.denied),
                shadow: rate(counts.shadow),
                fallback: rate(counts.fallback),
                limits,
            }
        };
        rows.into_iter().map(row).collect()
    }

    /// The failures, the newest first; those before the command began come last.
    pub fn failures(&self) -> Vec<Failure> {
        let failure = |(kind, total): (&str, u64)| Failure {
            kind: kind.to_owned(),
            total,
            last: self.failed.get(kind).copied(),
            rate: self.rate(&[&counter(kind)]),
        };
        let mut all: Vec<_> = failing(&self.now.stats).filter(|(_, total)| *total > 0).map(failure).collect();
        all.sort_by(|a, b| {
            b.last.cmp(&a.last).then_with(|| b.total.cmp(&a.total)).then_with(|| a.kind.cmp(&b.kind))
        });
        all
    }
}

/// The growth since the last sample.
#[derive(Default)]
struct Counts {
    is_known: bool,
    requests: u64,
    denied: u64,
    shadow: u64,
    fallback: u64,
    limits: BTreeMap<String, u64>,
}

impl Counts {
    fn add(&mut self, outcome: &str, source: Option<&&str>, grown: u64) {
        let more = |sum: &mut u64| *sum = sum.saturating_add(grown);
        more(&mut self.requests);
        match outcome {
            "denied" | "banned" => more(&mut self.denied),
            "shadow_denied" => more(&mut self.shadow),
            _ => {}
        }
        if matches!(source, Some(&("local" | "on_failure" | "fallback"))) {
            more(&mut self.fallback);
        }
    }
}

impl Row {
    pub fn share(&self) -> Option<u64> {
        self.denied?.saturating_mul(100).checked_div(self.requests?)
    }
}

/// The name of the counter of panics, which is their kind too.
const PANICS: &str = "panics";

/// The kinds of failures, and how many there were.
fn failing(stats: &Stats) -> impl Iterator<Item = (&str, u64)> {
    stats.below("store.").chain([(PANICS, stats.get(PANICS))])
}

fn counter(kind: &str) -> String {
    if kind == PANICS { kind.to_owned() } else { format!("store.{kind}") }
}

/// A name of the configuration, as it is there: in names of metrics, its dots are `%2E`.
fn unescaped(name: &str) -> String {
    name.replace("%2E", ".")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn stats(values: &[(&str, u64)]) -> Stats {
        let stat = |(name, value): &(&str, u64)| serde_json::json!({ "name": format!("wasmcustom.weir.{name}"), "value": value });
        let all: Vec<_> = values.iter().map(stat).collect();
        Stats::parse(&serde_json::json!({ "stats": all }).to_string()).unwrap()
    }

    fn at(seconds: u64, values: &[(&str, u64)]) -> Sample {
        Sample { at: Micros::from_secs(seconds), envoys: 1, stats: stats(values), ..Sample::default() }
    }

    #[test]
    fn rates_are_differences() {
        let mut model = Model::default();
        model.take(at(10, &[("admitted", 100), ("policy.a.requests.allowed.redis", 5)]));
        assert_eq!(model.rate(&["admitted"]), None, "one sample has no rate");
        assert_eq!(model.policies(), [Row { name: "a".into(), ..Row::default() }]);
        model.take(at(12, &[("admitted", 107), ("rejected", 4)]));
        assert_eq!(model.rate(&["admitted"]), Some(35));
        assert_eq!(model.rate(&["admitted", "rejected"]), Some(55));
        model.take(at(13, &[("admitted", 2)]));
        assert_eq!(model.rate(&["admitted"]), Some(20), "an Envoy that has begun anew");
        model.take(Sample { envoys: 0, ..at(14, &[]) });
        assert_eq!(model.rate(&["admitted"]), None, "an Envoy that is silent");
        model.take(at(15, &[("admitted", 1_000)]));
        assert_eq!(
            model.rate(&["admitted"]),
            None,
            "it answers again: since when it has counted is not known"
        );
    }

    #[test]
    fn policies_have_all_their_outcomes() {
        let mut model = Model::default();
        let before = [
            ("policy.a%2Eb.requests.allowed.redis", 0),
            ("policy.a%2Eb.requests.denied.redis", 0),
            ("policy.a%2Eb.requests.denied.denied_until", 0),
            ("policy.a%2Eb.requests.banned.redis", 0),
            ("policy.a%2Eb.requests.shadow_denied.redis", 0),
            ("policy.a%2Eb.requests.allowed.on_failure", 0),
            ("policy.a%2Eb.limit.x%2Ey.requests.denied", 0),
            ("policy.quiet.requests.allowed.redis", 0),
            ("policy.odd", 0),
            ("policy.odd.of.a.later.version", 0),
        ];
        model.take(at(0, &before));
        let after: Vec<_> =
            before.iter().enumerate().map(|(place, (name, _))| (*name, place as u64 + 1)).collect();
        model.take(at(1, &after));
        let rows = model.policies();
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["a.b", "odd", "quiet"]);
        let row = &rows[0];
        assert_eq!((row.requests, row.denied), (Some(210), Some(90)));
        assert_eq!((row.shadow, row.fallback, row.share()), (Some(50), Some(60), Some(42)));
        assert_eq!(row.limits, [(String::from("x.y"), 7)]);
    }

    #[test]
    fn the_last_failure_is_first() {
        let mut model = Model::default();
        model.take(at(0, &[("store.slow", 50), ("store.timeout", 1), ("store.noauth", 0)]));
        assert_eq!(model.failures().first().map(|of| (of.kind.as_str(), of.last)), Some(("slow", None)));
        model.take(at(2, &[("store.slow", 50), ("store.timeout", 5), ("store.noauth", 0)]));
        model.take(at(4, &[("store.slow", 50), ("store.timeout", 5), ("store.noauth", 0), ("panics", 1)]));
        let failures = model.failures();
        let all: Vec<_> = failures.iter().map(|of| (of.kind.as_str(), of.total, of.last)).collect();
        let (two, four) = (Micros::from_secs(2), Micros::from_secs(4));
        assert_eq!(all, [("panics", 1, Some(four)), ("timeout", 5, Some(two)), ("slow", 50, None)]);
    }
}
