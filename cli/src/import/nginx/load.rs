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

/// nginx's folder on several systems. A copy of it includes the same absolute paths.
const FOLDERS: [&str; 5] = [
    "/etc/nginx/",
    "/usr/local/etc/nginx/",
    "/usr/local/nginx/conf/",
    "/usr/local/openresty/nginx/conf/",
    "/opt/homebrew/etc/nginx/",
];

/// Files that come with nginx, Debian or certbot, and have no limits.
const STOCK: [&str; 8] = [
    "mime.types",
    "fastcgi_params",
    "fastcgi.conf",
    "uwsgi_params",
    "scgi_params",
    "proxy_params",
    "options-ssl-nginx.conf",
    "/modules-enabled/*.conf",
];

/// The files, and the directives in them.
#[derive(Default)]
pub struct Loaded {
    /// Their names, as they are shown. One that is included several times is here once.
    pub files: Vec<String>,
    /// The number of files that were read.
    pub reads: usize,
    /// The directives of the first one, with those of the others where they are included.
    pub directives: Vec<Directive>,
}

/// Reads these files. nginx takes names of included files from the folder of its main file, and so does this.
pub fn load(paths: &[PathBuf], notes: &mut Notes) -> Result<Loaded, String> {
    let mut loaded = Loaded::default();
    for path in paths {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let directives = loaded.read(path)?;
        let directives = loaded.include(directives, &folder, 0, notes)?;
        loaded.directives.extend(directives);
    }
    Ok(loaded)
}

impl Loaded {
    fn read(&mut self, path: &Path) -> Result<Vec<Directive>, String> {
        let name = crate::words::file(path);
        if self.reads >= MAX_FILES {
            return Err(format!("{name}: more than {MAX_FILES} files are included"));
        }
        self.reads = self.reads.saturating_add(1);
        let number = self.files.iter().position(|file| *file == name).unwrap_or(self.files.len());
        if number == self.files.len() {
            self.files.push(name.clone());
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX).saturating_add(1);
        let read = open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        read.map_err(|error| format!("{name}: {error}"))?;
        let text = String::from_utf8_lossy(&bytes);
        // What is included there would hold everywhere.
        let is_head =
            |line: &str| line.starts_with("# configuration file /") && line.trim_end().ends_with(':');
        if let Some(line) =
            (1_usize..).zip(text.lines()).find_map(|(line, text)| is_head(text).then_some(line))
        {
            return Err(format!(
                "{name}:{line}: it is what `nginx -T` prints: give nginx.conf and its folder"
            ));
        }
        syntax::parse(&text, number)
            .map_err(|(line, said)| format!("{name}:{line}: {said}{}", instead(&text)))
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
            let name = directive.argument(0);
            let own = copied(Path::new(name), folder);
            // A pattern may find nothing in its folder, but not without the folder.
            let is_pattern = name.contains(['*', '?', '[']);
            let has_folder = |path: &Path| {
                path.parent().is_some_and(|parent| parent.as_os_str().is_empty() || parent.is_dir())
            };
            let is_copied = own.as_deref().is_some_and(|own| is_pattern && has_folder(own));
            let has_folder = is_copied || has_folder(&folder.join(name));
            // The name of the folder itself is no pattern.
            let literal = PathBuf::from(glob::Pattern::escape(&folder.to_string_lossy()));
            // The files of a copy count, not those that this machine's nginx has there.
            let mut found = Vec::new();
            if let Some(own) = copied(Path::new(name), &literal) {
                found = files(&own, &place)?;
            }
            if found.is_empty() && !is_copied {
                found = files(&literal.join(name), &place)?;
            }
            let is_stock = STOCK.iter().any(|stock| name.ends_with(stock));
            if found.is_empty() && !is_stock && !(is_pattern && has_folder) {
                notes.add(Note::new(
                    &directive,
                    "is not there, so what it says is not imported",
                    "Run the command where nginx runs, or copy nginx's folder; types and parameters of upstreams do not matter",
                ));
            }
            for mut path in found {
                // Links of a copied folder may lead to the original.
                if let Some(copied) = path.read_link().ok().and_then(|target| copied(&target, folder))
                    && copied.exists()
                {
                    path = copied;
                }
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

/// Says what to do about a file that cannot be read, because it is another one than nginx's.
fn instead(text: &str) -> &'static str {
    match of_template(text) {
        "" if text.contains("kind: ConfigMap") => ". It is a ConfigMap: import the texts in it as files",
        said => said,
    }
}

/// The place of a file of nginx's folder in a copy of it.
fn copied(path: &Path, copy: &Path) -> Option<PathBuf> {
    FOLDERS.iter().find_map(|original| Some(copy.join(path.strip_prefix(original).ok()?)))
}

/// The files that the name in an `include` means.
fn files(pattern: &Path, place: &str) -> Result<Vec<PathBuf>, String> {
    // As in a shell, `*` does not match a name that begins with a dot. Editors make such files.
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::default() };
    let found = glob::glob_with(&pattern.to_string_lossy(), options);
    let found = found.map_err(|error| format!("{place}: {error}"))?;
    found.collect::<Result<_, _>>().map_err(|error| format!("{place}: {error}"))
}
