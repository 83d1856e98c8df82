// SPDX-License-Identifier: Apache-2.0
//! Limits across three real regions, each with two Envoys, a Redis and an upstream of its own, and 50 ms ± 20 ms between them in each
//! direction. The results of each way are printed as a table, and written to `target/regions/summary.json`.
//!
//! Two forms. The short one puts all three ways under load at once in one case, and judges only the bounds, which no busy machine can break;
//! `make test` runs only the recipe. The full one is `make regions` (`WEIR_FULL=1`): each way by itself, for longer, and how much of the
//! limit is used and how long requests take is judged, too.
//!
//! `make run-regions` (`WEIR_REGIONS=show`) runs the recipe of `examples/regions/` until Ctrl-C.
//!
//! The networks are proxies that delay and lose (`tests/support/proxy.rs`).
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, clippy::float_arithmetic)]

mod beside;
mod bound;
mod cases;
mod clocks;
mod measure;
mod recipe;
mod report;
use weir_support as support;
mod world;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use support::{first_of, has_parts, is_full, locked};

use cases::{CASES, Case};
use measure::Row;
use report::Report;
use world::{WAYS, Way, World};

/// The durations of a run, and the strictness of its judgement.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub name: &'static str,
    /// Units per second of every limit, and units at once.
    pub rate: u32,
    pub burst: u32,
    /// The divisor of the length of each phase of a case.
    pub shorter: u32,
    /// The extra time for a charge to arrive on a busy machine.
    pub slack: Duration,
    /// True if the bars for use and time are judged, each way by itself.
    pub is_full: bool,
}

const SHORT: Form =
    Form { name: "short", rate: 60, burst: 30, shorter: 6, slack: Duration::from_secs(1), is_full: false };
const FULL: Form =
    Form { name: "full", rate: 120, burst: 60, shorter: 1, slack: Duration::from_millis(150), is_full: true };

/// The number of attempts at a case until nothing in it is broken that depends on time: other load of the machine delays charges now and
/// then, a defect each time. The bounds of `home` and `share` do not depend on time.
const ATTEMPTS: usize = 3;

/// The data that all trials share: a world, which a failed one does not hand on, and their results.
#[derive(Default)]
struct Shared {
    world: Mutex<Option<World>>,
    report: Mutex<Report>,
}

fn main() -> ExitCode {
    if std::env::var_os("WEIR_REGIONS").is_some_and(|how| how == "show") {
        recipe::show();
        return ExitCode::SUCCESS;
    }
    let form = if is_full() { FULL } else { SHORT };
    let mut arguments = Arguments::from_args();
    // Each has the machine to itself, or the one's load would slow down the other.
    arguments.test_threads = Some(1);
    let has_parts = has_parts();
    let shared = Arc::new(Shared::default());
    let mut trials = Vec::new();
    for case in first_of(CASES) {
        let ways: Vec<&'static [Way]> = if form.is_full { WAYS.chunks(1).collect() } else { vec![&WAYS] };
        trials.extend(ways.into_iter().map(|ways| trial(case, ways, form, Arc::clone(&shared))));
    }
    if form.is_full {
        trials.extend(beside::FAULTS.iter().map(|fault| {
            let shared = Arc::clone(&shared);
            let run = move || with_world(&shared, form, |world| beside::run(world, fault));
            Trial::test(fault.name, run)
        }));
    }
    let recipe = || {
        recipe::works();
        Ok(())
    };
    trials.push(Trial::test("the recipe of examples/regions", recipe));
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(!has_parts)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let report = locked(&shared.report);
    if !report.is_empty() {
        report.print();
        report.write(form);
    }
    conclusion.exit_code()
}

fn trial(case: &'static Case, ways: &'static [Way], form: Form, shared: Arc<Shared>) -> Trial {
    let name = match ways {
        [way] => format!("{}: {}", way.name, case.name),
        _ => case.name.to_owned(),
    };
    let run = move || {
        let attempt = |world: &mut World| {
            let rows = measure::run(world, case, ways, form);
            let broken: Vec<_> = rows.iter().flat_map(|row| row.broken(case, form)).collect();
            (rows, broken)
        };
        let run = |world: &mut World| {
            let (mut rows, mut broken) = attempt(world);
            for _ in 1..ATTEMPTS {
                if broken.is_empty() || rows.iter().any(Row::is_beyond_all_time) {
                    break;
                }
                let before: Vec<_> = rows.iter().map(|row| row.attempts.clone()).collect();
                (rows, broken) = {
                    let (mut rows, now) = attempt(world);
                    rows.iter_mut().zip(before).for_each(|(row, before)| {
                        row.attempts = before;
                        row.attempts.extend(broken.iter().cloned());
                    });
                    (rows, now)
                };
            }
            (Report { cases: rows, beside: Vec::new() }, broken)
        };
        if case.has_skewed_clocks {
            return conclude(&shared, run(&mut clocks::skewed(form))).map(drop);
        }
        with_world(&shared, form, run)
    };
    Trial::test(name, run)
}

fn with_world(
    shared: &Shared,
    form: Form,
    run: impl FnOnce(&mut World) -> (Report, Vec<String>),
) -> Result<(), Failed> {
    let slot = || locked(&shared.world);
    let known = slot().take();
    let mut world = known.unwrap_or_else(|| World::start(form));
    let found = run(&mut world);
    conclude(shared, found)?;
    *slot() = Some(world);
    Ok(())
}

fn conclude(shared: &Shared, (found, broken): (Report, Vec<String>)) -> Result<(), Failed> {
    locked(&shared.report).add(found);
    if broken.is_empty() { Ok(()) } else { Err(Failed::from(broken.join("\n"))) }
}
