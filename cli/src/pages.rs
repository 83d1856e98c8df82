// SPDX-License-Identifier: Apache-2.0
//! `weir completions` and `weir man`: what shells and `man` read about the command.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Ended, Found, failed, words};

/// For which shell.
#[derive(Args)]
pub(super) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// The folder to write to.
#[derive(Args)]
pub(super) struct ManArguments {
    /// Write a page for the command and for each of its subcommands into this folder: `weir.1`, `weir-check.1`, … By default, the page of
    /// the command is printed.
    folder: Option<PathBuf>,
}

pub(super) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
    out: &mut impl io::Write,
) -> Result<Found, Ended> {
    // The generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "weir", &mut script);
    out.write_all(&script).map_err(failed)?;
    Ok(Found::Nothing)
}

pub(super) fn man(
    arguments: &ManArguments,
    command: Command,
    out: &mut impl io::Write,
) -> Result<Found, Ended> {
    match &arguments.folder {
        None => Man::new(command).render(out).map_err(failed)?,
        Some(folder) => {
            let failed = |error: io::Error| format!("{}: {error}", words::file(folder));
            fs::create_dir_all(folder).map_err(failed)?;
            clap_mangen::generate_to(command, folder).map_err(failed)?;
        }
    }
    Ok(Found::Nothing)
}
