// SPDX-License-Identifier: Apache-2.0
//! What an import could not carry over, or carried over with a difference: its place, why, and what to do.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::nginx::Directive;
use crate::words::printable;

/// The longest text of a file that a note repeats.
const MAX_SHOWN: usize = 80;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub file: usize,
    /// Its line, from 1.
    pub line: usize,
    pub what: String,
    /// Why it is not, or not quite, what weir does.
    pub why: String,
    pub instead: String,
}

#[derive(Default)]
pub struct Notes(Vec<Note>);

impl Note {
    pub fn new(directive: &Directive, why: impl Into<String>, instead: impl Into<String>) -> Self {
        let words = core::iter::once(&directive.name).chain(&directive.arguments);
        let what = words.map(String::as_str).collect::<Vec<_>>().join(" ");
        Self::at(directive.file, directive.line, &what, why, instead)
    }

    /// About a place in a file.
    pub fn at(
        file: usize,
        line: usize,
        what: &str,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        let mut what = what.to_owned();
        if let Some((end, _)) = what.char_indices().nth(MAX_SHOWN) {
            what.truncate(end);
            what.push('…');
        }
        Self { file, line, what, why: why.into(), instead: instead.into() }
    }
}

impl Notes {
    /// Adds a remark, once.
    pub fn add(&mut self, note: Note) {
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the files.
    fn sorted(&self) -> Vec<&Note> {
        let mut notes: Vec<_> = self.0.iter().collect();
        notes.sort();
        notes
    }

    /// One line each: `FILE:LINE: note: WHAT: WHY. INSTEAD`.
    pub fn print(&self, files: &[String], out: &mut impl Write) -> io::Result<()> {
        for note in self.sorted() {
            let Note { file, line, what, why, instead } = note;
            let file = files.get(*file).map(String::as_str).unwrap_or_default();
            let instead = if instead.is_empty() { String::new() } else { format!(". {instead}") };
            writeln!(out, "{}", printable(&format!("{file}:{line}: note: {what}: {why}{instead}")))?;
        }
        Ok(())
    }

    pub fn json(&self, files: &[String]) -> Value {
        let note = |note: &Note| {
            let file = files.get(note.file).map(String::as_str).unwrap_or_default();
            json!({"file": file, "line": note.line, "what": note.what, "why": note.why, "instead": note.instead})
        };
        self.sorted().into_iter().map(note).collect()
    }
}
