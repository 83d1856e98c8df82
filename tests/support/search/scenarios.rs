// SPDX-License-Identifier: Apache-2.0
//! The scenarios to search: a row for each protocol and size.

use super::judge::Protocol;
use super::{Budget, Scenario};
use crate::worker::{configuration, leased, policy, queued, settled};
use crate::world::Defect;

const MS: u64 = 1_000;

/// Requests that are not answered within 20 ms are decided by `on_failure`. Each request asks the store.
fn store(on_failure: &str) -> String {
    format!(r#"{{"deadline": "20ms", "on_failure": "{on_failure}", "denial_ttl": "0s"}}"#)
}

/// So many units for each of so many regions, in a day or at once.
fn window(units: i64) -> String {
    format!(r#"{{"name": "l", "algorithm": "fixed_window", "limit": {units}, "window": "1d"}}"#)
}

fn bucket(units: i64) -> String {
    format!(r#"{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {units}}}"#)
}

const NAMES: [&str; 3] = ["ams", "bom", "cle"];

/// Regions that hold a limit together.
fn regions(count: usize, way: &str, limit: &str) -> Vec<String> {
    let names = &NAMES[..count];
    let all =
        names.iter().map(|name| format!(r#"{{"name": "{name}", "cluster": "{name}", "deadline": "20ms"}}"#));
    let all = all.collect::<Vec<_>>().join(", ");
    let config = |here: &&str| {
        format!(
            r#"{{"store": {}, "regions": {{"here": "{here}", "sync_interval": "40ms", "all": [{all}]}},
            "policies": [{{"name": "p0", "regions": {{"{way}": {{}}}}, {}}}]}}"#,
            store("deny"),
            policy(limit)
        )
    };
    names.iter().map(config).collect()
}

/// Clients whose requests cost one unit, by their worker.
fn clients(places: &[usize]) -> Vec<(usize, u64)> {
    places.iter().map(|place| (*place, 1)).collect()
}

fn row(
    name: &'static str,
    protocol: Protocol,
    configs: Vec<String>,
    limit: i64,
    clients: Vec<(usize, u64)>,
) -> Scenario {
    Scenario {
        name,
        protocol,
        configs,
        workers: 1,
        limit,
        interval: None,
        clients,
        before: 0,
        true_cost: None,
        span: 100 * MS,
        decided_within: 40 * MS,
        budget: Budget { passes: 3, ..Budget::default() },
        defect: None,
        prunes: true,
    }
}

/// Each region has so many units.
pub fn share(count: usize, each: i64, places: &[usize]) -> Scenario {
    let limit = each * i64::try_from(count).expect("few");
    row("share", Protocol::Share, regions(count, "share", &bucket(limit)), limit, clients(places))
}

pub fn debit(count: usize, places: &[usize]) -> Scenario {
    row("debit", Protocol::Debit, regions(count, "debit", &window(2)), 2, clients(places))
}

pub fn lease(workers: usize, places: &[usize]) -> Scenario {
    let lease = leased(r#"{"max": 2, "min": 2, "duration": "100ms"}"#, &window(4));
    let config = configuration(&store("deny"), [lease]);
    Scenario { workers, ..row("lease", Protocol::Lease, vec![config], 4, clients(places)) }
}

/// Each worker may hold two units, and its first four clients have come. Of 50,000 units so many are left then.
fn auto(limit: &str, left: u64, workers: usize, places: &[usize]) -> Scenario {
    let config = configuration(&store("deny"), [leased(r#""auto""#, limit)]);
    let first = (0..workers).flat_map(|place| [(place, 1); 4]);
    let used = 50_000 - left - 6 * u64::try_from(workers).expect("few");
    let before: Vec<_> = [(0, used)].into_iter().chain(first).collect();
    let all = before.iter().copied().chain(clients(places)).collect();
    Scenario {
        workers,
        before: before.len(),
        ..row("lease: auto", Protocol::Lease, vec![config], 50_000, all)
    }
}

pub fn auto_window(left: u64, workers: usize, places: &[usize]) -> Scenario {
    let limit =
        r#"{"name": "l", "algorithm": "fixed_window", "limit": 50000, "window": "1s", "align": "first"}"#;
    auto(limit, left, workers, places)
}

/// A unit comes back in 20 µs. So workers pause, if time passes in steps like that.
pub fn auto_bucket(left: u64, workers: usize, places: &[usize]) -> Scenario {
    let limit = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "50000/s", "burst": 50000}"#;
    Scenario { interval: Some(20), span: 30, ..auto(limit, left, workers, places) }
}

/// Requests reserve two units, and cost so many.
pub fn settle(on_failure: &str, true_cost: i64, places: &[usize]) -> Scenario {
    let cases = r#"[{"cost": {"header": {"name": "x-used"}}}]"#;
    let config = configuration(&store(on_failure), [settled(cases, &window(100))]);
    let clients = places.iter().map(|place| (*place, 2)).collect();
    let row = row("settle", Protocol::Settle, vec![config], 100, clients);
    Scenario { true_cost: Some(true_cost), ..row }
}

pub fn queue(workers: usize, limit: i64, places: &[usize]) -> Scenario {
    let permits = format!(r#"{{"name": "l", "algorithm": "concurrency", "limit": {limit}, "ttl": "2s"}}"#);
    let config = configuration(&store("deny"), [policy(&queued(&permits, "60ms", 10))]);
    let row = row("queue", Protocol::Queue, vec![config], limit, clients(places));
    Scenario { workers, decided_within: 120 * MS, ..row }
}

impl Scenario {
    /// Time passes so often, and so many faults happen: each a loss, a crash, a copy or a step of a clock, and at most two of a kind. The
    /// judge of a bucket relies on its clock.
    pub fn with(self, passes: usize, faults: usize) -> Self {
        let steps = if self.interval.is_some() { 0 } else { 2 };
        let budget = Budget { passes, faults, losses: 2, crashes: 2, copies: 2, steps, ..self.budget };
        Self { budget, ..self }
    }

    /// Clients may leave while they wait.
    fn impatient(mut self) -> Self {
        self.budget.leavers = 2;
        self
    }

    fn defective(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }
}

/// The scenarios that `make test` searches: each protocol, in seconds.
pub fn smallest() -> Vec<Scenario> {
    vec![
        share(2, 1, &[0, 0]).with(0, 1),
        debit(2, &[0]).with(1, 1),
        lease(1, &[0]).with(1, 1),
        auto_bucket(1, 1, &[0, 0, 0, 0]).with(2, 0),
        settle("local", 3, &[0]).with(1, 1),
        queue(1, 1, &[0]).with(1, 1),
    ]
}

/// The scenarios that `make nightly` searches besides.
pub fn short() -> Vec<Scenario> {
    vec![
        share(2, 2, &[0, 0, 0]).with(1, 0),
        share(2, 1, &[0, 0]).with(0, 1),
        debit(2, &[0, 1]).with(2, 0),
        debit(2, &[0]).with(1, 1),
        lease(2, &[0, 0, 1]).with(1, 0),
        lease(1, &[0, 0]).with(1, 1),
        auto_window(1, 2, &[0, 0, 0, 1, 1, 1]).with(1, 0),
        auto_bucket(1, 1, &[0, 0, 0, 0]).with(2, 0),
        auto_window(1, 1, &[0, 0, 0]).with(1, 1),
        settle("allow", 1, &[0, 0]).with(1, 0),
        settle("local", 3, &[0]).with(1, 1),
        queue(2, 1, &[0, 1]).with(1, 0).impatient(),
        queue(1, 1, &[0]).with(2, 1),
    ]
}

/// The scenarios that `make search` searches.
pub fn long() -> Vec<Scenario> {
    vec![
        share(2, 2, &[0, 0, 0]).with(2, 0).impatient(),
        share(2, 2, &[0, 0, 0, 1]).with(1, 0),
        share(2, 2, &[0, 0, 0]).with(1, 1),
        share(2, 2, &[0, 0]).with(1, 2),
        share(3, 2, &[0, 0, 0, 1]).with(1, 0),
        share(3, 1, &[0, 0]).with(1, 1),
        debit(2, &[0, 0, 1]).with(2, 0).impatient(),
        debit(2, &[0, 1]).with(2, 1),
        debit(2, &[0]).with(2, 2),
        debit(3, &[0, 1]).with(2, 0),
        debit(3, &[0, 1]).with(1, 1),
        lease(2, &[0, 0, 1]).with(2, 0).impatient(),
        lease(2, &[0, 0, 1]).with(1, 1),
        lease(2, &[0, 1]).with(1, 2),
        lease(3, &[0, 1, 2]).with(1, 0),
        auto_window(1, 2, &[0, 0, 0, 1, 1, 1]).with(1, 0),
        auto_window(1, 1, &[0, 0, 0]).with(1, 1),
        auto_bucket(1, 2, &[0, 0, 0, 1, 1, 1]).with(2, 0),
        settle("allow", 1, &[0, 0]).with(2, 0).impatient(),
        settle("allow", 1, &[0, 0]).with(1, 1),
        settle("local", 3, &[0, 0]).with(1, 1),
        settle("deny", 3, &[0]).with(2, 2),
        queue(2, 1, &[0, 0, 1]).with(1, 0).impatient(),
        queue(2, 1, &[0, 1]).with(1, 1),
        queue(2, 1, &[0]).with(2, 2),
        queue(3, 2, &[0, 1, 2]).with(1, 0),
    ]
}

/// Scenarios in which something is wrong on purpose. A search of each finds it.
pub fn wrong() -> Vec<Scenario> {
    vec![
        share(2, 1, &[0, 0, 1]).with(1, 0).defective(Defect::LendsForFree),
        debit(2, &[0]).with(1, 1).defective(Defect::SendsAgain),
        lease(1, &[0]).with(2, 1).defective(Defect::SendsAgain),
        auto_window(9, 1, &[0, 0, 0]).with(1, 1).defective(Defect::SendsAgain),
        settle("deny", 1, &[0]).with(1, 1).defective(Defect::SendsAgain),
        queue(1, 2, &[0, 0, 0, 0]).with(0, 0).defective(Defect::ReleasesTwice),
    ]
}
