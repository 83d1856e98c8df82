// SPDX-License-Identifier: Apache-2.0
//! The command: its arguments, its progress and its output.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Replay, Wanted, distinct};
use crate::scan::{of_replay, scan};
use crate::store::{Login, Memory, Redis, Store};
use crate::trace::{self, Lines, Mapping, Options, Trace};
use crate::{Ended, Failure, Found, failed, source, tell, words};
use weir::config::Config;
use weir::policy::key::tag_of;
use weir::time::Micros;

/// The number of requests after which the progress bar moves.
const STEP: u64 = 4096;

/// The trace to replay, and its configuration.
#[derive(Args)]
pub struct Arguments {
    /// The configuration, or a configuration of Envoy that contains one.
    file: PathBuf,
    /// The trace, or `-` for the standard input: lines of JSON, or an access log of nginx, Apache, Envoy or Istio. The first line that fits
    /// a format decides.
    trace: PathBuf,
    /// The meaning of a field in JSON lines with other names: `time=ts`, `client=remote_addr`, `header.x-key=/request/key`. Repeat it, or
    /// separate several with commas.
    #[arg(long, value_name = "MEANING=FIELD", value_parser = trace::mapping, value_delimiter = ',')]
    map: Vec<Mapping>,
    /// The host of requests without one. By default `localhost`.
    #[arg(long)]
    host: Option<String>,
    /// The duration of requests without one, such as `250ms`. By default they end at once, so `concurrency` limits do not deny them.
    #[arg(long, value_parser = trace::duration)]
    duration: Option<Micros>,
    /// Print a line for each decision: `{"line", "t_ms", "allowed", "policy", "limit", "tier", "subject", "remaining", "retry_after_ms",
    /// "reset_ms", "delay_ms", "outcome"}`. An unknown value is `null`. With `--against`, `first` is FILE and `second` is OTHER.
    #[arg(long)]
    json: bool,
    /// Also decide every request under a second configuration, and print the requests that the two decide differently. The status is 1 if
    /// there are some.
    #[arg(long, value_name = "OTHER")]
    against: Option<PathBuf>,
    /// Write one page with charts over time, which loads nothing (*unasked*: denied without asking Redis). With `--against` it shows both
    /// configurations.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Count in this Redis, with the filter's own scripts and the trace's time, under keys that `replay` removes.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    redis: Vec<String>,
    #[command(flatten)]
    login: Login,
}

pub fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    // Operators in containers often have the same process id.
    let run = RandomState::new().hash_one(0);
    let first = source::load_one(&arguments.file)?;
    let second = arguments.against.as_deref().map(source::load_one).transpose()?;
    let connect = || arguments.login.connect_if(&arguments.redis);
    connect()?;
    let found = decide(arguments, run, (first, second), out);
    // Redis may close a connection that is idle for long, so this is a new one.
    if let Err(failure) = connect().and_then(|redis| redis.map_or(Ok(()), |redis| remove(redis, run))) {
        say(&format!("warning: the keys of this run stay in Redis until they expire: {failure}"));
    }
    found
}

/// Decides about all requests, and reports.
fn decide(
    arguments: &Arguments,
    run: u64,
    (first, second): (Config, Option<Config>),
    out: &mut impl io::Write,
) -> Result<Found, Ended> {
    let store = |place: &str| -> Result<Store, Failure> {
        match arguments.login.connect_if(&arguments.redis)? {
            None => Ok(Store::Memory(Memory::default())),
            Some(redis) => Ok(Store::Redis(redis, format!("replay-{run:016x}-{place}"))),
        }
    };
    let name = |path: &Path| words::printable(&path.file_name().unwrap_or_default().to_string_lossy());
    let names = [name(&arguments.file), arguments.against.as_deref().map(name).unwrap_or_default()];
    let mut wanted = Wanted::new(&first);
    let trace = read(arguments, &first, &mut wanted)?;
    let mut replay = Replay::new(trace, wanted, arguments.html.is_some(), (first, store("1")?));
    if let Some(second) = second {
        replay.compare((second, store("2")?));
    }
    let bar = progress(Some(replay.trace.summary.requests), "replaying {wide_bar} {percent}% {eta} left");
    while let Some((decision, other)) = replay.next()? {
        match other {
            None if arguments.json => writeln!(out, "{}", decision.json()).map_err(failed)?,
            Some((other, false)) if arguments.json => {
                writeln!(out, "{{\"first\":{},\"second\":{}}}", decision.json(), other.json())
                    .map_err(failed)?;
            }
            _ => {}
        }
        if replay.first.totals.requests.is_multiple_of(STEP) {
            bar.set_position(replay.first.totals.requests);
        }
    }
    bar.finish_and_clear();
    replay.warnings().iter().for_each(|warning| say(&format!("warning: {warning}")));
    if let Some(path) = &arguments.html {
        let trace = match arguments.trace.as_os_str() == "-" {
            true => String::from("the standard input"),
            false => name(arguments.trace.as_path()),
        };
        fs::write(path, replay.page(trace, names.clone())?)
            .map_err(|error| format!("{}: {error}", words::file(path)))?;
    }
    let first = &replay.first;
    match &replay.second {
        Some((_, differences)) => {
            if !arguments.json {
                differences.report(&distinct(names), out).map_err(failed)?;
            }
            Ok(if differences.same == first.totals.requests { Found::Nothing } else { Found::Something })
        }
        None => {
            if !arguments.json {
                first.totals.report(&first.config, out).map_err(failed)?;
            }
            Ok(Found::Nothing)
        }
    }
}

/// The number of keys that are found before they are removed.
const FOUND: usize = 100_000;

/// Removes the keys of a run.
fn remove(mut redis: Redis, run: u64) -> Result<(), Failure> {
    let patterns = [of_replay(run)];
    loop {
        let found = scan(&mut redis, &patterns, FOUND)?;
        let keys: Vec<&[u8]> = found.keys.iter().map(Vec::as_slice).collect();
        // The keys of one subject are on one node.
        for of_subject in keys.chunk_by(|one, other| tag_of(one) == tag_of(other)) {
            redis.ask(&[&[b"DEL".as_slice()], of_subject].concat())?;
        }
        if !found.is_partial {
            return Ok(());
        }
    }
}

/// Reads the trace for the first time, and says what is in it and what it lacks for this configuration.
fn read(arguments: &Arguments, config: &Config, wanted: &mut Wanted) -> Result<Trace, Failure> {
    let options =
        Options { map: arguments.map.clone(), host: arguments.host.clone(), duration: arguments.duration };
    let mut bar: Option<ProgressBar> = None;
    let moved = |read: u64, size: Option<u64>| {
        bar.get_or_insert_with(|| progress(size, "reading {wide_bar} {percent}% {eta} left"))
            .set_position(read);
    };
    let lines = Lines::open(&arguments.trace)?;
    let trace = Trace::read(lines, options, moved, |event| wanted.look(config, &event.request));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let trace = trace?;
    trace.summary.notes().iter().for_each(|note| say(note));
    trace.warnings().iter().for_each(|warning| say(&format!("warning: {warning}")));
    Ok(trace)
}

fn say(text: &str) {
    tell(&format!("weir: {text}"));
}

/// A progress bar, if stderr is a terminal.
fn progress(length: Option<u64>, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let Some(length) = length else {
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(100));
        return spinner;
    };
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
