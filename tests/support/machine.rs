// SPDX-License-Identifier: Apache-2.0
//! Waiting, folders, and the `main` of test programs whose cases need an Envoy.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

use crate::tried::is_full;
use crate::weir::Host;

/// The time that anything may take that is expected to happen. Only a failing test ever waits as long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the project. A test is compiled for the folder of its crate.
pub fn root() -> &'static Path {
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    of_crate.ancestors().find(|folder| folder.join("Cargo.lock").exists()).expect("a workspace")
}

/// Says that the test of this thread passes without having tested anything, because something is missing here. `scripts/test` names a file for
/// that, and counts these tests as skipped.
pub fn not_tested(missing: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("{name}: {missing}: not tested");
    if let Some(path) = std::env::var_os("WEIR_NOT_TESTED") {
        let file = std::fs::File::options().create(true).append(true).open(path);
        std::io::Write::write_all(&mut file.expect("a file"), format!("{name}: {missing}\n").as_bytes())
            .expect("written");
    }
}

/// The folder to which tests write files: `target/tmp`.
pub fn folder_for_files() -> PathBuf {
    let folder = root().join("target/tmp");
    std::fs::create_dir_all(&folder).expect("a folder for the tests' files");
    folder
}

/// The library that makes the clock of a process wrong: `LD_PRELOAD`.
pub fn skewed_clock() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let name = format!("skewed_clock-{}.so", std::process::id());
        let library = folder_for_files().join(name);
        let source = root().join("tests/support/skewed_clock.c");
        let status =
            Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).status();
        assert!(status.expect("a C compiler").success(), "{} does not compile", source.display());
        library
    };
    LIBRARY.get_or_init(compile).clone()
}

/// Sends a signal (`-TERM`) to a process, or to a group of them, whose number has a `-` before it. Returns `true` if it existed.
pub fn signal(signal: &str, process: impl ToString) -> bool {
    let kill = Command::new("kill").args([signal, "--", &process.to_string()]).stderr(Stdio::null()).status();
    kill.expect("the program kill").success()
}

/// Waits until `happened` gives a value.
///
/// # Panics
/// When [`PATIENCE`] ends first; `what` then says what did not happen.
pub fn eventually<T>(what: &str, happened: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, happened)
}

/// As [`eventually`], for a foreign program that is known to be slow.
///
/// # Panics
/// When `patience` ends first.
pub fn eventually_within<T>(patience: Duration, what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = happened() {
            return value;
        }
        let waited = begin.elapsed();
        assert!(waited < patience, "waited {patience:?}, but {what} did not happen");
        // To ask costs the machine something, often an Envoy that lists its statistics. So it is asked less often with time.
        std::thread::sleep((waited / 8).clamp(Duration::from_millis(1), Duration::from_millis(100)));
    }
}

/// Makes a folder whose name has the number of this process. Numbers come again, so an earlier process may have left its files there. Then
/// tests would look for an Envoy at the address of the earlier one.
///
/// # Panics
/// When the folder cannot be made.
pub fn empty_folder(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
    std::fs::create_dir_all(path).expect("a folder");
}

/// A folder under `target/tmp`; it is removed when dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{name}-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = folder_for_files().join(name);
        empty_folder(&path);
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed is no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A case: its name, and what it does.
pub type Case = (&'static str, fn());

/// Cases that are not run here, and why.
pub type Ignored = Vec<(&'static str, &'static str)>;

/// All of these cases with this reason to ignore them, if what they need is missing.
pub fn ignored_unless(is_there: bool, cases: &[Case], reason: &'static str) -> Ignored {
    cases.iter().filter(|_| !is_there).map(|(name, _)| (*name, reason)).collect()
}

/// The `main` of a program whose cases need an Envoy: if there is none, they are reported as ignored.
pub fn run_with_envoy(cases: &[Case], ignored: &Ignored) -> ExitCode {
    let missing = !has_envoy();
    let trial = |case: &Case| trial(case, None, missing || is_in(ignored, case.0));
    ignored.iter().for_each(|(name, reason)| eprintln!("ignored: {name}: {reason}"));
    run(cases.iter().map(trial).collect())
}

/// As [`run_with_envoy`], for files of cases that both hosts have to pass. `ignored` says what one of them does not have.
///
/// Under nextest each case has a process of its own, so both hosts are in one run: under `make nightly` with all cases, under `make test`
/// the module with all cases, and the plugin with those that the module does not have and the first of each file. Envoy starts the module
/// in a tenth of the time. Elsewhere `WEIR_HOST` names the one host.
pub fn run_on_hosts(files: &[&[Case]], ignored: impl Fn(Host) -> Ignored) -> ExitCode {
    let cases: Vec<&Case> = files.iter().copied().flatten().collect();
    for (name, _) in [Host::Wasm, Host::Native].into_iter().flat_map(&ignored) {
        assert!(cases.iter().any(|(case, _)| *case == name), "there is no case {name:?}");
    }
    if std::env::var_os("NEXTEST").is_none() || std::env::var_os("WEIR_HOST").is_some() {
        return run_with_envoy(&files.concat(), &ignored(Host::chosen()));
    }
    let (missing, of_wasm, of_native) = (!has_envoy(), ignored(Host::Wasm), ignored(Host::Native));
    let mut trials = Vec::new();
    for (place, case) in files.iter().flat_map(|file| file.iter().enumerate()) {
        let [not_wasm, not_native] = [&of_wasm, &of_native].map(|ignored| is_in(ignored, case.0));
        if !not_native {
            trials.push(trial(case, Some(Host::Native), missing));
        }
        if if not_wasm { not_native } else { is_full() || place == 0 || not_native } {
            trials.push(trial(case, Some(Host::Wasm), missing || not_wasm));
        }
    }
    run(trials)
}

/// Under `make test` the first of these, all of them otherwise.
pub fn first_of<T>(all: &'static [T]) -> &'static [T] {
    if is_full() { all } else { all.get(..1).unwrap_or(all) }
}

/// True if there is an Envoy and a Redis; prints if not.
pub fn has_parts() -> bool {
    let has = crate::envoy::binary().is_some() && crate::redis::binary().is_some();
    if !has {
        eprintln!("skipped: no Envoy or no Redis here");
    }
    has
}

/// Writes a summary for programs to `target/`.
pub fn write_summary(to: &str, summary: &serde_json::Value) {
    let path = root().join("target").join(to);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the summary");
    std::fs::write(path, crate::table::rows(summary)).expect("the summary");
}

/// Locks data that trials share, even if one of them has panicked.
pub fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_envoy() -> bool {
    let has = crate::envoy::binary().is_some();
    if !has {
        eprintln!("skipped: no envoy in $WEIR_ENVOY, on $PATH or in target/venv/bin");
    }
    has
}

fn is_in(ignored: &Ignored, case: &str) -> bool {
    ignored.iter().any(|(name, _)| *name == case)
}

fn trial(&(name, run): &Case, host: Option<Host>, is_ignored: bool) -> Trial {
    let named = host.map_or_else(|| name.to_owned(), |host| format!("{}: {name}", host.name()));
    let run = move || {
        host.into_iter().for_each(Host::choose);
        run();
        Ok(())
    };
    Trial::test(named, run).with_ignored_flag(is_ignored)
}

fn run(trials: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // These tests mostly wait for other processes.
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert(2 * processors);
    libtest_mimic::run(&arguments, trials).exit_code()
}
