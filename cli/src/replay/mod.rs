// SPDX-License-Identifier: Apache-2.0
//! `weir replay`: runs a trace through the policies in simulated time, as fast as possible.

mod against;
mod decision;
mod heaviest;
mod page;
mod run;
mod timeline;
mod totals;
mod wanted;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::store::{Login, Memory, Store};
use super::trace::{self, Mapping, Options, Trace};
use super::{Ended, Failure, Found, failed, source, tell, words};
use against::Differences;
use page::{Page, Side};
use run::Run;
use timeline::Steps;
use totals::Totals;
use wanted::Wanted;
use weir::time::Micros;

/// How often the progress bar moves, in requests.
const STEP: u64 = 4096;

/// What to replay.
#[derive(Args)]
pub(super) struct Arguments {
    /// The configuration, or an Envoy bootstrap that contains one.
    file: PathBuf,
    /// The trace, `-` for the standard input: JSON lines (`{"t_ms": 0, "method": "GET", "path": "/", "client": "192.0.2.1",
    /// "headers": {}}`), other JSON lines with `--map`, or an access log of nginx (combined, main), of Envoy or of Istio (their
    /// defaults).
    trace: PathBuf,
    /// What a field of JSON lines means: `time=ts`, `client=remote_addr`, `header.x-key=/request/key`. See `docs/command.md`.
    #[arg(long, value_name = "MEANING=FIELD", value_parser = trace::mapping)]
    map: Vec<Mapping>,
    /// The host of requests whose line has none.
    #[arg(long)]
    host: Option<String>,
    /// The duration of requests whose line has none, such as `250ms`.
    #[arg(long, value_parser = trace::duration)]
    duration: Option<Micros>,
    /// Write one line of JSON for each decision, in place of the totals.
    #[arg(long)]
    json: bool,
    /// Compare with another configuration, decision by decision; status 1 when they differ.
    #[arg(long, value_name = "OTHER")]
    against: Option<PathBuf>,
    /// Write a page with charts into this file: one file of HTML that loads nothing.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Count in this Redis, with the filter's own scripts and the trace's time, under keys of this run.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    redis: Vec<String>,
    #[command(flatten)]
    login: Login,
}

impl Arguments {
    fn warnings(&self, trace: &Trace) -> Vec<String> {
        trace.summary.warnings(self.host.as_deref(), self.duration)
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let store = |place: &str| -> Result<Store, Failure> {
        match arguments.login.connect_if(&arguments.redis)? {
            None => Ok(Store::Memory(Memory::default())),
            Some(redis) => Ok(Store::Redis(redis, format!("replay-{}-{place}", process::id()))),
        }
    };
    let first = source::load_one(&arguments.file)?;
    let second = arguments.against.as_deref().map(source::load_one).transpose()?;
    let mut wanted = Wanted::new(&first);
    let mut trace = read(arguments, &mut wanted)?;
    let steps = trace.summary.span.filter(|_| arguments.html.is_some()).map(Steps::of);
    let totals = Totals::new(&first, steps);
    let mut first = Run::new(first, store("1")?, totals);
    let mut second = match second {
        None => None,
        Some(other) => {
            let totals = Totals::new(&other, steps);
            Some((Run::new(other, store("2")?, totals), Differences::default()))
        }
    };
    let bar = progress(Some(trace.summary.requests), "replaying {wide_bar} {percent}% {eta} left");
    while let Some(event) = trace.next()? {
        let decision = first.decide(&event)?;
        match &mut second {
            None if arguments.json => writeln!(out, "{}", decision.json()).map_err(failed)?,
            None => {}
            Some((second, differences)) => {
                let other = second.decide(&event)?;
                if !differences.compare(&decision, &other) && arguments.json {
                    writeln!(out, "{{\"first\":{},\"second\":{}}}", decision.json(), other.json())
                        .map_err(failed)?;
                }
            }
        }
        if first.totals.requests.is_multiple_of(STEP) {
            bar.set_position(first.totals.requests);
        }
    }
    bar.finish_and_clear();
    let missing = first.totals.never(&first.config).map(|(index, name)| (name, wanted.missing(index)));
    let never = missing.filter(|(_, missing)| !missing.is_empty()).map(|(name, missing)| {
        format!("policy {name} applied to no request: no request of the trace has {}", missing.join(", "))
    });
    let required = first.totals.applied(&first.config).map(|(index, name)| (name, wanted.required(index)));
    let denied = required.filter(|(_, required)| !required.is_empty()).map(|(name, required)| {
        let required = required.join(", ");
        format!(
            "policy {name} denied every request, because the trace lacks what its subject needs: {required}"
        )
    });
    let after: Vec<String> = trace.disorder().into_iter().chain(never).chain(denied).collect();
    after.iter().for_each(|warning| say(&format!("warning: {warning}")));
    if let Some(path) = &arguments.html {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut sides =
            vec![Side { name: name(&arguments.file), config: &first.config, totals: &first.totals }];
        if let (Some((second, _)), Some(other)) = (&second, &arguments.against) {
            sides.push(Side { name: name(other), config: &second.config, totals: &second.totals });
        }
        // Two files may have one name in two folders.
        if let [first, second] = sides.as_mut_slice()
            && first.name == second.name
        {
            first.name.push_str(" (first)");
            second.name.push_str(" (second)");
        }
        let page = Page {
            trace: if arguments.trace.as_os_str() == "-" {
                String::from("the standard input")
            } else {
                name(&arguments.trace)
            },
            notes: trace.summary.notes(),
            warnings: arguments.warnings(&trace).into_iter().chain(after).collect(),
            sides,
            differences: second.as_ref().map(|(_, differences)| differences),
        };
        fs::write(path, page.write()?).map_err(|error| format!("{}: {error}", words::file(path)))?;
    }
    match &second {
        Some((_, differences)) => {
            if !arguments.json {
                differences.report(out).map_err(failed)?;
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

/// Reads the trace for the first time, and says what is in it and what it lacks.
fn read(arguments: &Arguments, wanted: &mut Wanted) -> Result<Trace, Failure> {
    let options =
        Options { map: arguments.map.clone(), host: arguments.host.clone(), duration: arguments.duration };
    let mut bar: Option<ProgressBar> = None;
    let moved = |read: u64, size: Option<u64>| {
        bar.get_or_insert_with(|| progress(size, "reading {wide_bar} {percent}% {eta} left"))
            .set_position(read);
    };
    let trace = Trace::read(&arguments.trace, options, moved, |event| wanted.look(&event.request));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let trace = trace?;
    trace.summary.notes().iter().for_each(|note| say(note));
    arguments.warnings(&trace).iter().for_each(|warning| say(&format!("warning: {warning}")));
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
