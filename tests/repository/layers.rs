// SPDX-License-Identifier: Apache-2.0
//! The order of the layers: a module imports only modules of lower layers. The documentation of `src/lib.rs` states the layers of the crate,
//! and that of `src/engine/mod.rs` those of the engine. The imports have to agree with it. So no two modules can import each other, directly
//! or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layer of each top-level module.
type Layers = BTreeMap<String, u32>;

#[test]
fn every_import_goes_to_a_lower_layer() {
    check("src", "lib.rs", "crate::");
    check("src/engine", "mod.rs", "crate::engine::");
}

/// Checks the modules of this folder. The file `top` states their layers, and paths to them begin with `root`.
fn check(folder: &str, top: &str, root: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let layers = layers(&fs::read_to_string(source.join(top)).unwrap());
    let mut modules = BTreeSet::new();
    let mut wrong = Vec::new();
    for file in rust_files(&source) {
        let module = module_of(file.strip_prefix(&source).unwrap());
        // The file at the top names the modules, and has what they share.
        let Some(name) = module.first().filter(|name| *name != "lib") else {
            continue;
        };
        modules.insert(name.clone());
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replace(root, "\0").replace("crate::", "elsewhere::").replace('\0', "crate::");
        for imported in imports(&module, &text) {
            wrong.extend(
                against_the_order(&layers, name, &imported)
                    .map(|wrong| format!("{}: {wrong}", file.display())),
            );
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let stated: BTreeSet<String> = layers.into_keys().collect();
    assert_eq!(modules, stated, "the modules of {folder}, and those in the table of {top}");
}

#[test]
fn what_counts_as_an_import() {
    let layers = layers("//! | 2 | `attic`, [`loft`] | high |\n//! | 1 | `hall` | low |\n");
    assert_eq!(layers.len(), 3);
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &str, &[&str]); 11] = [
        ("a path", &["hall"], "use crate::attic::Box;", &["attic"]),
        ("a group", &["hall"], "use crate::{attic::{Box, hat::Hat}, loft};", &["attic", "loft"]),
        ("a path within code", &["hall"], "fn f() -> crate::attic::Box { crate::loft::g() }", &["attic", "loft"]),
        ("super, of a top-level module", &["hall"], "use super::attic::Box;", &["attic"]),
        ("super, of a file in a module", &["hall", "door"], "use super::attic::Box;", &[]),
        ("super twice", &["hall", "door"], "use super::super::attic::Box;", &["attic"]),
        ("super, of a module in a file", &["hall"], "mod tests { use super::attic; } use super::loft;", &["loft"]),
        ("what is visible there", &["hall"], "pub(crate) fn attic() {} pub(super) mod loft {}", &[]),
        ("a comment", &["hall"], "//! [`crate::attic`]\n/* crate::loft */", &[]),
        ("a string", &["hall"], r#"const TEXT: &str = "crate::attic \" crate::loft";"#, &[]),
        ("a lifetime and a character", &["hall"], "fn f<'a>(c: &'a str) { '\"'; crate::attic::g(c) }", &["attic"]),
    ];
    for (name, module, text, expected) in cases {
        let module: Vec<String> = module.iter().map(ToString::to_string).collect();
        let found: Vec<String> = imports(&module, text).into_iter().collect();
        assert_eq!(found, expected, "{name}");
    }
    assert!(against_the_order(&layers, "attic", "hall").is_none(), "downwards");
    assert!(against_the_order(&layers, "attic", "attic").is_none(), "within a module");
    assert!(against_the_order(&layers, "hall", "attic").is_some(), "upwards");
    assert!(against_the_order(&layers, "attic", "loft").is_some(), "sideways");
    assert!(against_the_order(&layers, "cellar", "hall").is_some(), "a module without a layer");
}

/// Says what is wrong when `name` imports `imported`, if anything is. Names that are no modules are items of `src/lib.rs`.
fn against_the_order(layers: &Layers, name: &str, imported: &str) -> Option<String> {
    let Some(layer) = layers.get(name) else { return Some(format!("`{name}` has no layer in the table")) };
    let layer_of_imported = layers.get(imported)?;
    let wrong = name != imported && layer_of_imported >= layer;
    wrong.then(|| format!("`{name}` (layer {layer}) imports `{imported}` (layer {layer_of_imported})"))
}

/// The table of `src/lib.rs`: rows `//! | layer | modules | …`, with modules in backticks.
fn layers(library: &str) -> Layers {
    let rows = library.lines().filter_map(|line| line.strip_prefix("//! | "));
    let of_row = |row: &str| {
        let mut columns = row.split(" | ");
        let layer = columns.next()?.parse::<u32>().ok()?;
        let modules = columns.next()?.split('`').skip(1).step_by(2).map(str::to_owned);
        Some(modules.map(|name| (name, layer)).collect::<Vec<_>>())
    };
    rows.filter_map(of_row).flatten().collect()
}

pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => rust_files(&path),
        false => vec![path],
    });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// `engine/mod.rs` is `engine`, `engine/timer.rs` is `engine::timer`.
fn module_of(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name != "mod").collect()
}

/// The top-level modules that the text of the file of `module` names, by `crate::…` or by as many `super::` as it takes.
fn imports(module: &[String], text: &str) -> BTreeSet<String> {
    let tokens = tokens(text);
    let mut found = BTreeSet::new();
    // The modules that begin in this file, each by the depth of its brace.
    let mut inner = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                depth += 1;
                if at >= 2 && tokens[at - 2] == "mod" {
                    inner.push(depth);
                }
            }
            "}" => {
                inner.pop_if(|begin| *begin == depth);
                depth -= 1;
            }
            "crate" | "super" => {
                let (above, end) = steps_up(&tokens[at..]);
                let is_root = token == "crate" || above == module.len() + inner.len();
                if end > 0 && is_root {
                    found.extend(first_names(&tokens[at + end..]));
                }
                at += end.max(1);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Returns how many `super` a path begins with, and the number of tokens that they (or `crate`) have with the `::` after them.
fn steps_up(tokens: &[String]) -> (usize, usize) {
    // `pub(crate)` and `pub(super)` begin no path.
    let is_up =
        |step: &&[String]| matches!(step, [up, colons] if (up == "crate" || up == "super") && colons == "::");
    let steps = tokens.chunks(2).take_while(is_up).count();
    (steps, 2 * steps)
}

/// The first name of a path, or of each path in `{a::b, c}`.
fn first_names(tokens: &[String]) -> Vec<String> {
    if tokens.first().is_none_or(|token| token != "{") {
        return tokens.first().cloned().into_iter().collect();
    }
    let (mut names, mut depth, mut begins) = (Vec::new(), 0, false);
    for token in tokens {
        match token.as_str() {
            "{" => (depth, begins) = (depth + 1, depth == 0),
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            "," => begins = depth == 1,
            name if begins => {
                names.push(name.to_owned());
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// Names, `::`, braces and commas, without comments, strings and characters.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            // A character ends with a quote soon; a lifetime does not.
            let ends = rest.chars().nth(1) == Some('\\') || rest.chars().nth(2) == Some('\'');
            if ends { quoted(rest, '\'') } else { 1 }
        } else if name > 0 {
            tokens.push(rest[..name].to_owned());
            name
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if matches!(first, '{' | '}' | ',') {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a string or character that begins here.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw string that begins here, `r"…"` or `br#"…"#`, if one does.
fn raw_string(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('b').unwrap_or(text).strip_prefix('r')?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let body = inner[hashes..].strip_prefix('"')?;
    let end = body.find(&format!("\"{}", "#".repeat(hashes)))?;
    Some(text.len() - body.len() + end + 1 + hashes)
}
