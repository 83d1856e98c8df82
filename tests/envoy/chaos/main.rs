// SPDX-License-Identifier: Apache-2.0
//! Faults in real parts, under steady open-loop load on two real Envoys with what is shipped, its deadline included.
//! The effects of each fault are printed as a table and written to `target/chaos/summary.json`.
//!
//! Two forms. The short one has one fault of each kind, and judges only what no busy machine can break. `make test` runs those of them that
//! `.config/nextest.toml` does not leave out. The full one is `make chaos` (`WEIR_FULL=1`): it has all faults, for longer, and judges
//! time, too.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, clippy::float_arithmetic)]

mod cables;
mod cluster;
mod measure;
mod network;
mod overload;
mod report;
mod store;
use weir_support as support;
mod world;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use measure::Row;
use support::{first_of, has_parts, is_full, locked};
use world::{Fault, Store, World};

/// The durations of a run, and the strictness of its judgement.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Sound operation before the fault, and again after it is over.
    around: Duration,
    /// The fault.
    hold: Duration,
    /// The divisor of the request rate of the store's world.
    ease: u32,
    /// True if the bars for time are judged.
    judges_time: bool,
}

impl Form {
    const SHORT: Self = Self {
        around: Duration::from_millis(200),
        hold: Duration::from_millis(400),
        ease: 2,
        judges_time: false,
    };
    const FULL: Self =
        Self { around: Duration::from_secs(1), hold: Duration::from_secs(3), ease: 1, judges_time: true };
    /// The number of attempts at a fault until the machine is quiet enough to judge time.
    const ATTEMPTS: usize = 2;
}

type Rows = Arc<Mutex<Vec<Row>>>;

fn main() -> ExitCode {
    let form = if is_full() { Form::FULL } else { Form::SHORT };
    let mut arguments = Arguments::from_args();
    // Each has the machine to itself, or the one's load would be the other's fault.
    arguments.test_threads = Some(1);
    let rows = Rows::default();
    let mut trials = trials(store::FAULTS, form, &rows);
    trials.extend(self::trials(network::FAULTS, form, &rows));
    trials.extend(self::trials(cables::FAULTS, form, &rows));
    trials.extend(self::trials(overload::FAULTS, form, &rows));
    trials.extend(self::trials(cluster::FAULTS, form, &rows));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let rows = locked(&rows);
    if !rows.is_empty() {
        report::print(&rows);
        report::write(&rows);
    }
    conclusion.exit_code()
}

/// One trial per fault. They share a world, which a failed one does not hand on.
fn trials<S: Store>(faults: &'static [Fault<S>], form: Form, rows: &Rows) -> Vec<Trial> {
    let shared: Arc<Mutex<Option<World<S>>>> = Arc::default();
    let missing = if has_parts() { S::missing() } else { Some("no Envoy or no Redis here") };
    if let Some(why) = missing {
        faults.iter().for_each(|fault| eprintln!("skipped: {}: {why}", fault.name));
    }
    let trial = |fault: &'static Fault<S>| {
        let (shared, rows) = (Arc::clone(&shared), Arc::clone(rows));
        let run = move || {
            let slot = || locked(&shared);
            let known = slot().take();
            let mut world = known.unwrap_or_else(World::start);
            let mut row = measure::run(&mut world, fault, form);
            for _ in 1..Form::ATTEMPTS {
                if !form.judges_time || row.tells_time() || !row.broken(form).is_empty() {
                    break;
                }
                row = measure::run(&mut world, fault, form);
            }
            let broken = row.broken(form);
            locked(&rows).push(row);
            if !broken.is_empty() {
                return Err(Failed::from(broken.join("\n")));
            }
            *slot() = Some(world);
            Ok(())
        };
        Trial::test(fault.name, run).with_ignored_flag(missing.is_some())
    };
    first_of(faults).iter().map(trial).collect()
}

/// Lets this much time pass, because the time is what the test is about.
fn last(time: Duration) {
    thread::sleep(time);
}
