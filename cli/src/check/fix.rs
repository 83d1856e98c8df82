// SPDX-License-Identifier: Apache-2.0
//! `weir check --fix`: fields that have other names now get these in the file. Everything else in it stays as it is.

use std::fs;
use std::path::Path;

use super::super::source::{MARK, Source};
use super::super::{tell, words};
use crate::document::Place;
use weir::config::Host;

/// A field inside a renamed one is seen only when that has its present name. No field is nested as deep.
const MAX_ROUNDS: usize = 64;

/// Writes the present names into the file at `path`, and says so on standard error.
pub(super) fn rename(path: &Path, host: Host) -> Result<(), String> {
    for _ in 0..MAX_ROUNDS {
        let source = Source::read(path)?;
        let mut renamed: Vec<_> =
            source.limiters().iter().flat_map(|limiter| limiter.renamed(host)).collect();
        renamed.sort_unstable();
        // An alias is there again.
        renamed.dedup();
        let mut text = source.text.clone();
        // From the last one on, so that the places before it stay where they are.
        for (place, former, present) in renamed.iter().rev() {
            let Some(start) = named(&text, *place, former) else { continue };
            text.replace_range(start..start.saturating_add(former.len()), present);
        }
        if text == source.text {
            break;
        }
        if !fs::metadata(path).is_ok_and(|about| about.is_file()) {
            return Err(format!("{}: --fix has to write it, allowed: a regular file", source.name));
        }
        for (Place { line, column }, former, present) in &renamed {
            tell(&format!("{}:{line}:{column}: {former:?} is called {present:?} now: fixed", source.name));
        }
        if source.has_mark {
            text.insert(0, MARK);
        }
        fs::write(path, text).map_err(|error| format!("{}: {error}", words::file(path)))?;
    }
    Ok(())
}

/// Returns the start of the name that is at `place`, perhaps in quotes, or in those of JSON inside a string.
fn named(text: &str, place: Place, name: &str) -> Option<usize> {
    let lines = text.split_inclusive('\n').take(place.line.saturating_sub(1));
    let line: usize = lines.map(str::len).sum();
    let rest = text.get(line..)?;
    let (column, _) = rest.char_indices().nth(place.column.saturating_sub(1))?;
    let start = line.saturating_add(column);
    let at = text.get(start..)?;
    let quotes = ["", "\"", "'", "\\\""].into_iter().find(|quote| {
        at.strip_prefix(quote).and_then(|at| at.strip_prefix(name)).is_some_and(|after| {
            !after.starts_with(|next: char| next.is_alphanumeric() || "_-".contains(next))
        })
    })?;
    Some(start.saturating_add(quotes.len()))
}
