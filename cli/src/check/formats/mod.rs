// SPDX-License-Identifier: Apache-2.0
//! The formats of findings: for people, and for programs.

mod excerpts;
mod programs;

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};

use clap::ValueEnum;

use super::Report;
use crate::finding::Severity;

/// The format of the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// `excerpts` on a terminal, `text` elsewhere.
    Auto,
    /// One line for each finding.
    Text,
    /// Lines of the files, with colours unless `NO_COLOR` is set.
    Excerpts,
    /// One object of JSON.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Commands for a GitHub workflow, which shows findings beside the lines of a pull request.
    Github,
}

pub fn print(format: Format, reports: &[Report<'_>], out: &mut impl io::Write) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    match format {
        Format::Auto if is_terminal => excerpts::print(reports, is_coloured(), out),
        Format::Auto | Format::Text => lines(reports, out),
        Format::Excerpts => excerpts::print(reports, is_terminal && is_coloured(), out),
        Format::Json => programs::json(reports, out),
        Format::Sarif => programs::sarif(reports, out),
        Format::Github => programs::github(reports, out),
    }
}

fn is_coloured() -> bool {
    allows_colours(env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref())
}

/// <https://no-color.org>
fn allows_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

fn lines(reports: &[Report<'_>], out: &mut impl io::Write) -> io::Result<()> {
    for report in reports {
        for finding in &report.findings {
            writeln!(out, "{}", finding.line(&report.source.name))?;
        }
        summary(report, out)?;
    }
    Ok(())
}

/// Prints the summary of a file without errors.
fn summary(
    Report { source, policies, findings, .. }: &Report<'_>,
    out: &mut impl io::Write,
) -> io::Result<()> {
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Ok(());
    }
    let word = if *policies == 1 { "policy" } else { "policies" };
    let counted = |severity: Severity| match findings.iter().filter(|of| of.severity == severity).count() {
        0 => String::new(),
        1 => format!(", 1 {}", severity.word()),
        count => format!(", {count} {}s", severity.word()),
    };
    let (warnings, notes) = (counted(Severity::Warning), counted(Severity::Note));
    writeln!(out, "{}: {policies} {word}, no errors{warnings}{notes}", source.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_the_terminals_and_the_operators_choice() {
        for (no_color, term, coloured) in [
            (None, None, true),
            (None, Some("xterm"), true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            let found = allows_colours(no_color.map(OsStr::new), term.map(OsStr::new));
            assert_eq!(found, coloured, "{no_color:?} {term:?}");
        }
    }
}
