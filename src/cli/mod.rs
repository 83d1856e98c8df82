//! The native command `weir`: shows what the filter would do, and runs the filter's code for that.
//!
//! Exit status: 0, success; 1, the configuration is wrong, or two configurations differ; 2, the command failed.

mod describe;
mod document;
mod explain;
mod file;
mod replay;
mod store;
mod trace;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config;
use file::Problem;

/// Why a command failed: a sentence for the operator.
type Failure = String;

/// Shows what the weir filter in Envoy would do.
#[derive(Parser)]
#[command(name = "weir", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Validate a plugin configuration, or an Envoy bootstrap that contains one (JSON or YAML).
    ///
    /// Prints one line for each error: FILE:LINE:COLUMN: error: PATH: what was found, what is allowed.
    Check {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// What a plugin configuration is for: `weir.wasm`, or `libweir.so`. An Envoy bootstrap says that by itself.
        #[arg(long, value_enum, default_value_t = Host::Wasm)]
        host: Host,
    },
    /// Print the JSON Schema of the configuration.
    Schema,
    /// Show which policies match a request, why the others do not, and what the filter would send to Redis.
    Explain(explain::Arguments),
    /// Run a trace of requests through the policies in simulated time.
    Replay(replay::Arguments),
}

/// What carries a configuration.
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
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match arguments.command {
        Command::Check { files, host } => check(&files, host.into(), &mut out),
        Command::Schema => {
            out.write_all(config::json_schema().as_bytes()).map(|()| Found::Nothing).map_err(failed)
        }
        Command::Explain(arguments) => explain::run(&arguments, &mut out),
        Command::Replay(arguments) => replay::run(&arguments, &mut out),
    };
    let done = done.and_then(|found| out.flush().map(|()| found).map_err(failed));
    match done {
        Ok(Found::Nothing) => ExitCode::SUCCESS,
        Ok(Found::Something) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("weir: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Whether a command found what it looks for: errors, differences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Something,
}

fn failed(error: io::Error) -> Failure {
    error.to_string()
}

fn check(files: &[PathBuf], host: config::Host, out: &mut impl io::Write) -> Result<Found, Failure> {
    let mut found = Found::Nothing;
    for path in files {
        match file::load(path, host) {
            Ok(configs) => {
                let policies: usize = configs.iter().map(|config| config.policies.len()).sum();
                let word = if policies == 1 { "policy" } else { "policies" };
                writeln!(out, "{}: {policies} {word}, no errors", path.display()).map_err(failed)?;
            }
            Err(Problem::Unreadable(failure)) => return Err(failure),
            Err(Problem::Wrong(lines)) => {
                found = Found::Something;
                for line in lines {
                    writeln!(out, "{line}").map_err(failed)?;
                }
            }
        }
    }
    Ok(found)
}
