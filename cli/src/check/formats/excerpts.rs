// SPDX-License-Identifier: Apache-2.0
//! Findings with the lines that they are about, for a terminal.

use std::io;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

use super::{Report, summary};
use crate::check::warning::code;
use crate::document::Place;
use crate::finding::{Finding, Severity};
use crate::words;

/// Longer lines are not shown, in bytes: some lines are whole documents.
const LONGEST: usize = 64 * 1024;

/// The number of characters of a line that are shown before and behind a place.
const AROUND: usize = 100;

pub fn print(reports: &[Report<'_>], is_coloured: bool, out: &mut impl io::Write) -> io::Result<()> {
    let renderer = if is_coloured { Renderer::styled() } else { Renderer::plain() };
    for report in reports {
        for finding in &report.findings {
            writeln!(out, "{}\n", excerpt(&renderer, &report.source.name, &report.source.text, finding))?;
        }
        summary(report, out)?;
    }
    Ok(())
}

fn excerpt(renderer: &Renderer, name: &str, text: &str, finding: &Finding) -> String {
    let title = match finding.severity {
        Severity::Error => Level::ERROR.primary_title(finding.title()),
        Severity::Warning => Level::WARNING.primary_title(finding.title()).id(finding.code),
        Severity::Note => Level::NOTE.primary_title(finding.title()).id(finding.code),
    };
    let Place { line, column } = finding.place;
    let mut group = match marked(text, finding.place) {
        None => title.element(Origin::path(name).line(line).char_column(column)),
        Some(Marked { mut shown, span, cut }) => {
            if finding.code == code::PASSWORD_IN_FILE {
                // The password comes after the name of its field.
                shown.truncate(span.end);
            }
            let snippet = Snippet::source(shown).line_start(line);
            let snippet = snippet.annotation(AnnotationKind::Primary.span(span));
            // A snippet tells its place itself, unless it is not the beginning of its line.
            if cut == 0 {
                title.element(snippet.path(name))
            } else {
                title.element(Origin::path(name).line(line).char_column(column)).element(snippet)
            }
        }
    };
    if !finding.advice.is_empty() {
        group = group.element(Level::HELP.message(finding.advice()));
    }
    renderer.render(&[group])
}

/// The line at a place, or a part of it.
struct Marked {
    shown: String,
    /// The marked range: a word, or a string in quotes.
    span: Range<usize>,
    /// The number of characters that are left out at the beginning.
    cut: usize,
}

fn marked(text: &str, place: Place) -> Option<Marked> {
    let line = text.split('\n').nth(place.line.saturating_sub(1))?.trim_end_matches('\r');
    if line.len() > LONGEST {
        return None;
    }
    let begin = place.column.saturating_sub(1);
    let cut = begin.saturating_sub(AROUND);
    // A character for each, so that the place stays where it is.
    let hidden = [words::login(line), secret(line)].map(Option::unwrap_or_default);
    let shown = |(at, next): (usize, char)| match next {
        _ if hidden.iter().any(|range| range.contains(&at)) => '*',
        next if next != '\t' && words::is_obeyed(next) => char::REPLACEMENT_CHARACTER,
        next => next,
    };
    let shown: String = line.char_indices().map(shown).skip(cut).take(AROUND.saturating_mul(2)).collect();
    let start = shown.char_indices().nth(begin.saturating_sub(cut)).map_or(shown.len(), |(at, _)| at);
    let rest = shown.get(start..).unwrap_or_default();
    let length = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            rest.get(1..).and_then(|rest| rest.find(quote)).map(|at| at.saturating_add(2))
        }
        _ => rest.find([' ', ',', ':', '{', '}', '[', ']', '"', '\'', '\t']),
    };
    let length = length.unwrap_or(rest.len());
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let end = start.saturating_add(length.max(first));
    Some(Marked { shown, span: start..end, cut })
}

/// Returns the range of the value of `hash_secret` in a line, if it is there.
fn secret(line: &str) -> Option<Range<usize>> {
    const NAME: &str = "hash_secret";
    let after = line.find(NAME)?.saturating_add(NAME.len());
    let rest = line.get(after..)?;
    let start = rest.find(|next: char| !" :\\\"'".contains(next))?;
    let value = rest.get(start..)?;
    let length = value.find(|next: char| " ,}\\\"'".contains(next)).unwrap_or(value.len());
    let start = after.saturating_add(start);
    Some(start..start.saturating_add(length))
}
