// SPDX-License-Identifier: Apache-2.0
//! The grants that a failover forgets. A real Envoy, on a real Redis with Sentinel or a real Redis Cluster, is under steady load when the
//! primary dies or is cut off. Each request is a unit of a subject of its own. So afterwards each key that the new primary lacks is a unit
//! that was granted and forgotten.
//!
//! Two forms. The short one kills a primary once, and judges the bound with a second of slack, because the machine may be busy: in a cluster
//! (part of `make test`), and with Sentinel. The full one is `make failover` (`WEIR_FULL=1`): each case 30 times. Both print
//! a table and write `target/failover/HOST.json`; docs/stores.md shows the copy in `docs/stores/`.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, clippy::float_arithmetic)]

mod clustered;
mod cost;
mod measure;
mod report;
use weir_support as support;
mod watched;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use support::{has_parts, is_full, locked};

use cost::Cost;
use measure::{Run, run};
use report::Row;

/// The number of runs of each case, and the strictness of the judgement.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub runs: usize,
    /// Requests per second.
    pub rate: u32,
    /// The number of requests over which the cost of `store.min_replicas` is averaged.
    pub cost_of: usize,
    /// The extra time that a busy machine may need for anything.
    pub slack: Duration,
    /// The number of cases that run at once. Most of the time they wait.
    pub at_once: usize,
}

const SHORT: Form = Form { runs: 1, rate: 100, cost_of: 100, slack: Duration::from_secs(1), at_once: 2 };
const FULL: Form =
    Form { runs: 30, rate: 300, cost_of: 5_000, slack: Duration::from_millis(500), at_once: 3 };

/// The time for which requests wait for an answer. Longer than shipped, so that a replica that is [`LAG`] behind can acknowledge.
const DEADLINE: Duration = Duration::from_millis(400);
/// The lag of a replica behind the primary, in cases with a lag.
const LAG: Duration = Duration::from_millis(50);
/// The time for which a primary that has lost its replicas may accept writes with `min-replicas-max-lag 1`. Redis counts in whole seconds,
/// and looks once a second.
const NOTICED: Duration = Duration::from_secs(3);

/// The kind of store, which decides what replaces the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Sentinel,
    Cluster,
}

/// The fault of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its process is killed.
    Killed,
    /// Its machine is lost, with what was under way to replicas that are [`LAG`] behind.
    Lost,
    /// Sentinel and the replicas cannot reach it, but Envoy can. When another is the primary, the partition heals.
    Partitioned,
    /// It stops, and goes on when another is the primary.
    Paused,
}

#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub topology: Topology,
    pub fault: Fault,
    /// `min-replicas-to-write 1` and `min-replicas-max-lag 1` in Redis.
    pub refuses_writes: bool,
    /// `store.min_replicas`.
    pub min_replicas: u32,
}

const fn case(name: &'static str, topology: Topology, fault: Fault) -> Case {
    Case { name, topology, fault, refuses_writes: false, min_replicas: 0 }
}

static CASES: [Case; 9] = [
    case("Sentinel: the primary is killed", Topology::Sentinel, Fault::Killed),
    case("Sentinel: the primary is lost, its replicas are 50 ms behind", Topology::Sentinel, Fault::Lost),
    Case {
        min_replicas: 1,
        ..case("the same, with `store.min_replicas: 1`", Topology::Sentinel, Fault::Lost)
    },
    case("Sentinel: a partition, Envoy is with the old primary", Topology::Sentinel, Fault::Partitioned),
    Case {
        refuses_writes: true,
        ..case(
            "the same partition, with Redis's `min-replicas-to-write 1`",
            Topology::Sentinel,
            Fault::Partitioned,
        )
    },
    Case {
        min_replicas: 1,
        ..case("the same partition, with `store.min_replicas: 1`", Topology::Sentinel, Fault::Partitioned)
    },
    Case {
        min_replicas: 2,
        ..case("the same partition, with `store.min_replicas: 2`", Topology::Sentinel, Fault::Partitioned)
    },
    case("Cluster: a primary is killed", Topology::Cluster, Fault::Killed),
    case("Cluster: a primary stops, and goes on when it was replaced", Topology::Cluster, Fault::Paused),
];

fn main() -> ExitCode {
    let form = if is_full() { FULL } else { SHORT };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(form.at_once);
    let missing = !has_parts();
    let rows: Arc<Mutex<Vec<Row>>> = Arc::default();
    let trial = |(place, case): (usize, &'static Case)| {
        let rows = Arc::clone(&rows);
        let run = move || measured(place, case, form, &rows);
        Trial::test(case.name, run).with_ignored_flag(missing)
    };
    let is_here = |(_, case): &(usize, &Case)| is_full() || case.name.ends_with("primary is killed");
    let mut trials: Vec<_> = CASES.iter().enumerate().filter(is_here).map(trial).collect();
    let costs: Arc<Mutex<Vec<Cost>>> = Arc::default();
    let measured = Arc::clone(&costs);
    let cost = move || {
        *locked(&measured) = cost::measure(form);
        Ok(())
    };
    if is_full() {
        trials.push(Trial::test("the cost of `store.min_replicas`", cost).with_ignored_flag(missing));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let costs = locked(&costs);
    let mut rows = locked(&rows);
    rows.sort_by_key(|row| row.place);
    if !rows.is_empty() || !costs.is_empty() {
        report::print(&rows, &costs);
        report::write(&rows, &costs, form);
    }
    conclusion.exit_code()
}

fn measured(place: usize, case: &'static Case, form: Form, rows: &Mutex<Vec<Row>>) -> Result<(), Failed> {
    let runs: Vec<Run> = (0..form.runs).map(|_| run(case, form)).collect();
    let broken = runs.iter().find(|run| run.forgotten > run.allowed).map(|run| format!("{run:?}"));
    locked(rows).push(Row { place, name: case.name, runs });
    broken.map_or(Ok(()), |run| Err(Failed::from(run)))
}
