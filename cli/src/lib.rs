// SPDX-License-Identifier: Apache-2.0
//! The native command `weir`: shows what the filter would do, and runs the filter's code for that.
//!
//! Exit status: 0, success; 1, the configuration is wrong, or two configurations differ; 2, the command failed.
//!
//! For wasm32 it is [`lab`] alone, with what that uses.
#![cfg_attr(target_arch = "wasm32", allow(dead_code, unused_imports))]
#![cfg_attr(test, allow(clippy::type_complexity))]

mod check;
mod date;
mod describe;
mod diff;
mod document;
mod envoys;
mod explain;
mod finding;
pub mod lab;
mod region;
mod replay;
mod request;
mod sample;
mod source;
mod store;
mod trace;
mod tree;
mod words;

#[cfg(not(target_arch = "wasm32"))]
mod audit;
#[cfg(not(target_arch = "wasm32"))]
mod help;
#[cfg(not(target_arch = "wasm32"))]
mod hot;
#[cfg(not(target_arch = "wasm32"))]
mod import;
#[cfg(not(target_arch = "wasm32"))]
mod init;
#[cfg(not(target_arch = "wasm32"))]
mod journal;
#[cfg(not(target_arch = "wasm32"))]
mod pages;
#[cfg(not(target_arch = "wasm32"))]
mod render;
#[cfg(not(target_arch = "wasm32"))]
mod scan;
#[cfg(not(target_arch = "wasm32"))]
mod subject;
#[cfg(not(target_arch = "wasm32"))]
mod top;
#[cfg(not(target_arch = "wasm32"))]
mod usage;

use std::io::{self, Write as _};
#[cfg(not(target_arch = "wasm32"))]
use std::process::ExitCode;

use clap::ValueEnum;
#[cfg(not(target_arch = "wasm32"))]
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use weir::config;

/// The reason for which a command failed: a sentence for the operator.
type Failure = String;

/// The reason for which a command ended without a result.
enum Ended {
    /// It failed.
    Failed(Failure),
    /// The configuration is wrong: a line for each error.
    Wrong(String),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Shows what the weir filter in Envoy would do.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Parser)]
#[command(name = "weir", version = weir::version::BUILD)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[cfg(not(target_arch = "wasm32"))]
#[derive(Subcommand)]
enum Command {
    /// Check a configuration: of weir alone, or of an Envoy that contains it.
    ///
    /// Prints each error and each warning on its own line, in the order of the file. If there is an error, the filter refuses the
    /// configuration. A warning means that the configuration loads, but does not do what it seems to do; its code is at the end of the
    /// line. Give the files of one Envoy together (bootstrap, LDS, CDS, ECDS): one of them must have the limiter.
    Check(check::Arguments),
    /// Say in words what a change of the configuration means: for whom limits get tighter, and which subjects begin anew.
    ///
    /// A limit is tighter if it admits fewer requests at once or over time, and no more of either. A renamed policy is one removed and one
    /// new. Secrets are not printed. The status is 1 if there is a difference.
    Diff(diff::Arguments),
    /// Write a first configuration, from three questions or flags.
    ///
    /// On a terminal it asks for missing arguments; elsewhere it uses the defaults. The limit is a `token_bucket`. If clients can choose
    /// the value of `--by` freely, a second policy limits each address to ten times as much.
    Init(init::Arguments),
    /// Print the JSON Schema of the configuration: the file `weir.schema.json`.
    Schema,
    /// Explain one request: which policies match, why the others do not, the limits with their keys, and the answer to the client.
    ///
    /// After a denial without Redis, it only names the other policies, because the filter stops there. For a policy that does not match, it
    /// shows the first condition that fails.
    Explain(explain::Arguments),
    /// Run recorded requests through the policies in simulated time.
    ///
    /// Prints a row for each policy that applies to a request, and the subjects that it rejected most. A policy in shadow has its own row
    /// and column. `replay` does not simulate leases, queues, loans of regions, the breaker and `on_failure`, nor `settle`: a request
    /// costs what it reserves.
    Replay(replay::Arguments),
    /// Print the newest denials in the journal in Redis, oldest first.
    ///
    /// Redis has an entry at most 0.2 s after its denial, as long as Redis answers. The user needs `+xrevrange`, and `+xread` for
    /// `--follow`.
    Journal(journal::Arguments),
    /// Show what Redis holds for a subject: what each limit has left, its override, its ban, and the denials that count towards the next
    /// ban.
    ///
    /// It counts nothing. `it has no effect` marks an override or ban that the policy does not read, `ignored` a part of an override, with
    /// the reason.
    Inspect(subject::inspect::Arguments),
    /// Make the limits of a subject full again: it deletes their counts, and the denials that count towards a ban.
    ///
    /// A ban and an override stay. A `concurrency` limit no longer counts requests in flight. Workers see the change within twice
    /// `denial_ttl`.
    Reset(subject::reset::Arguments),
    /// Print, set or remove limits of a subject's own: in a policy with `overrides: true`.
    #[command(subcommand)]
    Override(subject::overrides::Arguments),
    /// Ban a subject: deny all its requests, in a policy with a `ban`.
    ///
    /// Without `--for`, the ban lasts until `weir unban`, and clients get no `Retry-After`.
    Ban(subject::ban::BanArguments),
    /// Lift the ban of a subject: also one that weir began.
    ///
    /// The next ban then lasts `duration` again. Counts stay: if a limit still denies the subject, use `weir reset`.
    Unban(subject::ban::UnbanArguments),
    /// Print the subjects that are banned.
    ///
    /// It scans all keys of Redis.
    Bans(subject::bans::Arguments),
    /// Print the changes that operators have made with this command: who, when, what, why.
    ///
    /// Prints the newest entries, oldest first.
    Audit(audit::Arguments),
    /// Print the subjects that are denied most: their number and share of the newest denials in the journal, and what denied the last
    /// request.
    Hot(hot::Arguments),
    /// Print how much of their limits subjects use: at this moment, or with `--from` in a time span.
    ///
    /// Without a subject and without a request, it scans Redis as `weir hot --used` does, and prints the subjects of each policy that use
    /// most. A time span is read from the usage journal; its last 5 s may be missing.
    Usage(usage::Arguments),
    /// Show live what weir does: requests and denials of each policy, the most denied subjects, the state of Redis, and the last failures.
    ///
    /// `?` shows the keys.
    Top(top::Arguments),
    /// Print what a shell needs to complete this command's arguments.
    ///
    /// bash reads it in /etc/bash_completion.d/weir.
    Completions(pages::CompletionsArguments),
    /// Print the manual page, or write all of them into a folder.
    ///
    /// `man` reads those in /usr/local/share/man/man1.
    Man(pages::ManArguments),
    /// Import the limits of another limiter as a configuration of weir.
    ///
    /// Each policy names the lines that it comes from. Standard error lists what is not imported, or imported with a difference:
    /// `FILE:LINE: note: WHAT: WHY. WHAT TO DO`. Each field that weir does not read has a note. If the filter's reader does not accept the
    /// result, the command prints it for you to complete, and ends with status 2. Passwords in the files are not printed. A file may have
    /// 16 MiB.
    Import(import::Arguments),
    /// Print the complete configuration of a platform: with the limiter of `FILE`.
    ///
    /// Warnings about the policies are on standard error, with their place in `FILE`. The output has no other warnings of `weir check`.
    Render(render::Arguments),
}

/// The hosts of a configuration.
#[derive(Clone, Copy, ValueEnum)]
enum Host {
    /// The plugin, `weir.wasm`.
    Wasm,
    /// The dynamic module, `libweir.so`.
    Native,
}

impl From<Host> for config::Host {
    fn from(host: Host) -> Self {
        match host {
            Host::Wasm => Self::Wasm,
            Host::Native => Self::Native,
        }
    }
}

/// Runs the command with the arguments of this process.
#[cfg(not(target_arch = "wasm32"))]
#[must_use]
pub fn main() -> ExitCode {
    let parsed = help::with_groups(Arguments::command()).try_get_matches();
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        // It repeats what was written: a URL with a password, in the place of another argument.
        Err(error) if error.use_stderr() => {
            tell(error.render().to_string().trim_end());
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    let mut out =
        Output { inner: io::BufWriter::new(io::stdout().lock()), is_closed: false, has_lead: false };
    let done = match arguments.command {
        Command::Check(arguments) => check::run(&arguments, &mut out),
        Command::Diff(arguments) => diff::run(&arguments, &mut out),
        Command::Init(arguments) => init::run(&arguments, &mut out),
        Command::Schema => print(&config::json_schema(), &mut out),
        Command::Explain(arguments) => explain::run(&arguments, &mut out),
        Command::Replay(arguments) => replay::run(&arguments, &mut out),
        Command::Journal(arguments) => journal::run(&arguments, &mut out),
        Command::Inspect(arguments) => subject::inspect::run(&arguments, &mut out),
        Command::Reset(arguments) => subject::reset::run(&arguments, &mut out),
        Command::Override(arguments) => subject::overrides::run(&arguments, &mut out),
        Command::Ban(arguments) => subject::ban::run(&arguments, &mut out),
        Command::Unban(arguments) => subject::ban::lift(&arguments, &mut out),
        Command::Bans(arguments) => subject::bans::run(&arguments, &mut out),
        Command::Audit(arguments) => audit::run(&arguments, &mut out),
        Command::Hot(arguments) => hot::run(&arguments, &mut out),
        Command::Usage(arguments) => usage::run(&arguments, &mut out),
        Command::Top(arguments) => top::run(&arguments, &mut out),
        Command::Completions(arguments) => pages::completions(&arguments, Arguments::command(), &mut out),
        Command::Man(arguments) => pages::man(&arguments, help::with_groups(Arguments::command()), &mut out),
        Command::Import(arguments) => import::run(&arguments, &mut out),
        Command::Render(arguments) => render::run(&arguments, &mut out),
    };
    let done = done.and_then(|found| out.flush().map(|()| found).map_err(failed).map_err(Ended::from));
    match done {
        // The output pipe has closed (`| head`): that is no failure.
        Err(_) if out.is_closed => ExitCode::SUCCESS,
        Ok(Found::Nothing) => ExitCode::SUCCESS,
        Ok(Found::Something) => ExitCode::from(1),
        Err(Ended::Wrong(lines)) => {
            tell(&format!("weir: {lines}"));
            ExitCode::from(1)
        }
        Err(Ended::Failed(failure)) => {
            tell(&format!("weir: {failure}"));
            ExitCode::from(2)
        }
    }
}

/// The standard output. The control characters from U+0080 to U+009F, which some terminals obey, are written as `\u0080` and so on: they can only
/// be in strings that others have written, and JSON and YAML read them so.
struct Output<W> {
    inner: W,
    /// It was closed before all was written (`| head`).
    is_closed: bool,
    /// The last byte was the first one of such a character, or of one of the next 32.
    has_lead: bool,
}

/// With which byte these characters begin in UTF-8.
const LEAD: u8 = 0xc2;

impl<W: io::Write> Output<W> {
    fn noticed<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_closed |= matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl<W: io::Write> io::Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some((&first, after)) = rest.split_first() {
            let written = if core::mem::take(&mut self.has_lead) {
                rest = after;
                match first {
                    0x80..=0x9f => write!(self.inner, "\\u00{first:02x}"),
                    _ => self.inner.write_all(&[LEAD, first]),
                }
            } else {
                let run = rest.iter().position(|byte| *byte == LEAD);
                self.has_lead = run.is_some();
                let (plain, after) = rest.split_at(run.unwrap_or(rest.len()));
                rest = after.get(1..).unwrap_or_default();
                self.inner.write_all(plain)
            };
            self.noticed(written)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if core::mem::take(&mut self.has_lead) {
            let written = self.inner.write_all(&[LEAD]);
            self.noticed(written)?;
        }
        let flushed = self.inner.flush();
        self.noticed(flushed)
    }
}

/// The result of a command that looks for something: errors, differences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Something,
}

fn failed(error: io::Error) -> Failure {
    error.to_string()
}

/// Prints the whole output of a command that looks for nothing.
fn print(text: &str, out: &mut impl io::Write) -> Result<Found, Ended> {
    out.write_all(text.as_bytes()).map_err(failed)?;
    Ok(Found::Nothing)
}

/// Says something on standard error: the only way there, so that nothing that was read gives a terminal commands or shows a login.
fn tell(text: &str) {
    // A closed standard error does not stop the command.
    let _ = writeln!(io::stderr(), "{}", words::lines(text));
}

/// Reads the file of this name with this text as Envoy does.
///
/// # Errors
/// The line, the column, and the mistake there.
pub fn envoys_reading(name: &str, text: &str) -> Result<serde_json::Value, String> {
    let syntax = document::Syntax::of(name);
    let wrong = |(place, said): (document::Place, String)| format!("{}:{}: {said}", place.line, place.column);
    let documents = document::Node::parse(text, syntax).map_err(wrong)?;
    document::Node::refused(text, syntax).map(wrong).map_or(Ok(()), Err)?;
    documents.first().map(document::Node::json).ok_or_else(|| String::from("no document"))
}

/// Returns what `weir import FROM --json FILE` prints.
///
/// # Errors
/// If the file cannot be read, or the filter refuses the result; the error says why.
#[cfg(not(target_arch = "wasm32"))]
pub fn imported(from: &str, file: &std::path::Path) -> Result<String, String> {
    #[derive(Parser)]
    struct Import {
        #[command(flatten)]
        arguments: import::Arguments,
    }
    let words = ["weir".as_ref(), from.as_ref(), "--json".as_ref(), file.as_os_str()];
    let Import { arguments } = Import::try_parse_from(words).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    match import::run(&arguments, &mut out) {
        Ok(_) => Ok(String::from_utf8_lossy(&out).into_owned()),
        Err(Ended::Wrong(said) | Ended::Failed(said)) => Err(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_gets_a_control_character_of_latin_1() {
        let text = "a\u{9b}2J\u{80}\u{9f}\u{a0}é\u{c2}z".as_bytes();
        let wanted = "a\\u009b2J\\u0080\\u009f\u{a0}é\u{c2}z";
        for cut in 0..text.len() {
            let mut out = Output { inner: Vec::new(), is_closed: false, has_lead: false };
            out.write_all(&text[..cut]).unwrap();
            out.write_all(&text[cut..]).unwrap();
            out.flush().unwrap();
            assert_eq!(String::from_utf8(out.inner).unwrap(), wanted, "cut at {cut}");
        }
        let mut out = Output { inner: Vec::new(), is_closed: false, has_lead: false };
        out.write_all(&[b'a', LEAD]).unwrap();
        out.flush().unwrap();
        assert_eq!(out.inner, [b'a', LEAD]);
    }
}
