// SPDX-License-Identifier: Apache-2.0
//! nginx's configuration as a whole: the file, and what it includes, in place.

use std::collections::VecDeque;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::super::notes::{Note, Notes};
use super::super::of_template;
use super::syntax::{self, Block, Directive};
use crate::document::MAX_TEXT;
use crate::source::open;

const MAX_FILES: usize = 1_000;

const MAX_INCLUDES: usize = 16;

/// The files, and the directives in them.
#[derive(Default)]
pub struct Loaded {
    /// Their names, as they are shown.
    pub files: Vec<String>,
    /// The directives of the first one, with those of the others where they are included.
    pub directives: Vec<Directive>,
}

/// Reads the file at `path`. nginx takes names of included files from the folder of its main file, and so does this.
pub fn load(path: &Path, notes: &mut Notes) -> Result<Loaded, String> {
    let mut loaded = Loaded::default();
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let directives = loaded.read(path)?;
    loaded.directives = loaded.include(directives, &folder, 0, notes)?;
    Ok(loaded)
}

impl Loaded {
    fn read(&mut self, path: &Path) -> Result<Vec<Directive>, String> {
        let name = crate::words::file(path);
        if self.files.len() >= MAX_FILES {
            return Err(format!("{name}: more than {MAX_FILES} files are included"));
        }
        let number = self.files.len();
        self.files.push(name.clone());
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX).saturating_add(1);
        let read = open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        read.map_err(|error| format!("{name}: {error}"))?;
        let text = String::from_utf8_lossy(&bytes);
        syntax::parse(&text, number)
            .map_err(|(line, said)| format!("{name}:{line}: {said}{}", of_template(&text)))
    }

    fn include(
        &mut self,
        directives: Vec<Directive>,
        folder: &Path,
        depth: usize,
        notes: &mut Notes,
    ) -> Result<Vec<Directive>, String> {
        let mut whole = Vec::new();
        let mut queue = VecDeque::from(directives);
        while let Some(mut directive) = queue.pop_front() {
            if let Some(Block::Directives(inner)) = directive.block.take() {
                directive.block = Some(Block::Directives(self.include(inner, folder, depth, notes)?));
            }
            if directive.name != "include" || directive.block.is_some() || directive.arguments.len() != 1 {
                whole.push(directive);
                continue;
            }
            let file = self.files.get(directive.file).map(String::as_str).unwrap_or_default();
            let place = format!("{file}:{}", directive.line);
            if depth >= MAX_INCLUDES {
                return Err(format!("{}: files include files more than {MAX_INCLUDES} deep", place));
            }
            let pattern = folder.join(directive.argument(0));
            // As in a shell, `*` does not match a name that begins with a dot. Editors make such files.
            let options =
                glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::default() };
            let found = glob::glob_with(&pattern.to_string_lossy(), options)
                .map_err(|error| format!("{}: {error}", place))?
                .collect::<Result<Vec<PathBuf>, _>>()
                .map_err(|error| format!("{}: {error}", place))?;
            if found.is_empty() && !directive.argument(0).contains(['*', '?', '[']) {
                notes.add(Note::new(
                    &directive,
                    "is not there, so what it says is not imported",
                    "Run the command where nginx runs, or copy the file; types and parameters of upstreams do not matter",
                ));
            }
            for path in found {
                // An included name was not given on the command line, so it may not lead to a descriptor either.
                if !path.is_file() {
                    let name = crate::words::file(&path);
                    return Err(format!("{place}: {name}: it is no regular file"));
                }
                let inner = self.read(&path)?;
                whole.extend(self.include(inner, folder, depth.saturating_add(1), notes)?);
            }
        }
        Ok(whole)
    }
}
