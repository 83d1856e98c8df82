// SPDX-License-Identifier: Apache-2.0
//! The real parts that tests run against, each private to the test that starts it, and gone when it is dropped:
//! an Envoy ([`envoy`]), an upstream ([`upstream`]), and a client that decides when it sends what ([`http`]).
//! Files beside this one that it does not name are included by the targets that need them: some run without an Envoy.
#![allow(
    dead_code,
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
// Waiting for another process takes a real clock; nothing here is linked into the filter.
#![allow(clippy::disallowed_methods)]

pub mod certificates;
pub mod clients;
pub mod cluster;
pub mod dynamic;
pub mod envoy;
pub mod http;
pub mod http2;
pub mod load;
pub mod proxy;
pub mod redis;
pub mod regions;
pub mod rows;
pub mod sentinel;
pub mod server;
pub mod upstream;
pub mod weir;
pub mod without;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

/// How long anything may take that is expected to happen. Only a failing test ever waits as long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The folder of the project. A test is compiled for the folder of its crate.
pub fn root() -> &'static Path {
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    of_crate.ancestors().find(|folder| folder.join("Cargo.lock").exists()).expect("a workspace")
}

/// The library that makes the clock of a process wrong: `LD_PRELOAD`.
pub fn skewed_clock() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let name = format!("skewed_clock-{}.so", std::process::id());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = root().join("tests/support/skewed_clock.c");
        let status =
            Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).status();
        assert!(status.expect("a C compiler").success(), "{} does not compile", source.display());
        library
    };
    LIBRARY.get_or_init(compile).clone()
}

/// Waits until `happened` gives a value.
///
/// # Panics
/// When [`PATIENCE`] ends first; `what` then says what did not happen.
pub fn eventually<T>(what: &str, happened: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, happened)
}

/// As [`eventually`], where somebody else's program is known to take its time.
///
/// # Panics
/// When `patience` ends first.
pub fn eventually_within<T>(patience: Duration, what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {patience:?}, but {what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder under `target/tmp`; it is gone when dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{name}-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // What cannot be removed is no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The `main` of a test binary whose every test needs an Envoy: where there is none they are reported as ignored.
pub fn run_with_envoy(tests: &[(&'static str, fn())]) -> ExitCode {
    run(tests, !has_envoy(), &[])
}

/// As [`run_with_envoy`], for tests that need something else, too.
pub fn run_with_envoy_and(tests: &[(&'static str, fn())], has_rest: bool) -> ExitCode {
    run(tests, !has_envoy() || !has_rest, &[])
}

/// All of these cases with this reason to ignore them, if what they need is missing.
pub fn ignored_unless(
    is_there: bool,
    tests: &[(&'static str, fn())],
    reason: &'static str,
) -> Vec<(&'static str, &'static str)> {
    tests.iter().filter(|_| !is_there).map(|(name, _)| (*name, reason)).collect()
}

/// As [`run_with_envoy`]; the cases of these names are ignored, for a reason that is printed.
pub fn run_with_envoy_but(tests: &[(&'static str, fn())], ignored: &[(&str, &str)]) -> ExitCode {
    for (name, reason) in ignored {
        assert!(tests.iter().any(|(test, _)| test == name), "there is no case {name:?}");
        println!("ignored: {name}: {reason}");
    }
    run(tests, !has_envoy(), ignored)
}

/// Whether there is an Envoy and a Redis; prints if not.
pub fn has_parts() -> bool {
    let has = envoy::binary().is_some() && redis::binary().is_some();
    if !has {
        println!("skipped: no Envoy or no Redis here");
    }
    has
}

/// Writes a summary for programs to `target/`.
pub fn write_summary(to: &str, summary: &serde_json::Value) {
    let path = root().join("target").join(to);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the summary");
    std::fs::write(path, rows::rows(summary)).expect("the summary");
}

/// What may be shared between trials, one of which has panicked.
pub fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_envoy() -> bool {
    let has = envoy::binary().is_some();
    if !has {
        println!("skipped: no envoy in $WEIR_ENVOY, on $PATH or in target/venv/bin");
    }
    has
}

fn run(tests: &[(&'static str, fn())], missing: bool, ignored: &[(&str, &str)]) -> ExitCode {
    let trial = |&(name, test): &(&'static str, fn())| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing || ignored.iter().any(|(other, _)| *other == name))
    };
    let mut arguments = Arguments::from_args();
    // These tests mostly wait for other processes.
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert(2 * processors);
    libtest_mimic::run(&arguments, tests.iter().map(trial).collect()).exit_code()
}
