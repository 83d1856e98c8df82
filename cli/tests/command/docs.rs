// SPDX-License-Identifier: Apache-2.0
//! The documents: what they show is right.
//!
//! - A block that is marked `yaml weir` or `json weir` is a complete configuration, and `weir check` accepts it without a warning that is not
//!   meant.
//! - If the block before it is marked `nginx`, `yaml ratelimit` or `yaml ingress`, it is what `weir import` makes of that one.
//! - YAML in a sentence, such as `path: {prefix: /api}`, is YAML as Envoy reads it.
//! - A command that begins with `weir` names a command and flags that exist.
//! - The block after `<!-- all of: FILE -->` is that file without its lines for tools; `WEIR_UPDATE=1` writes it there. That after
//!   `<!-- part of: FILE -->` is a part of it.
//! - A link to a file of this repository, and to a heading of it, leads somewhere.
//! - Each example names the schema for editors, and the schema accepts it.
//! - The page of troubleshooting has every kind of failure of the store.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::Value;
use weir::engine::StoreFailure;
use weir_cli::envoys_reading;

use crate::support::root;

/// A block between fences.
struct Block {
    page: String,
    line: usize,
    /// The text behind the first fence.
    mark: String,
    text: String,
}

/// The pages: `README.md` and those of `docs/`.
fn pages() -> Vec<(String, String)> {
    let root = root();
    let docs = fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        docs.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.sort();
    let name = |path: &PathBuf| path.strip_prefix(root).expect("a path below").display().to_string();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("a page"))).collect()
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (page, text) in pages() {
        let mut open = false;
        for (event, range) in parsed(&text).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(mark))) => {
                    let line = text[..range.start].lines().count() + 1;
                    assert!(text[range].ends_with("```"), "{page}:{line}: the block has no end");
                    let (page, mark) = (page.clone(), mark.trim().to_owned());
                    blocks.push(Block { page, line, mark, text: String::new() });
                    open = true;
                }
                Event::Text(text) if open => blocks.last_mut().expect("a block").text.push_str(&text),
                Event::End(TagEnd::CodeBlock) => open = false,
                _ => {}
            }
        }
    }
    blocks
}

fn parsed(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Runs `weir` in a folder with these files.
fn weir(files: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("docs-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(&folder)
        .output()
        .expect("weir runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Warnings that examples have: where, and which. Most show one policy of a configuration.
const MEANT: [(&str, &str); 6] = [
    (".md", "unverified-subject"),
    (".md", "published-secret"),
    ("configuration.md", "shadowed-policy"),
    ("configuration.md", "uncounted-batch"),
    ("language-models.md", "unhashed-credential"),
    ("migration.md", "held-permits"),
];

#[test]
fn marked_blocks_are_what_they_say() {
    let (mut configurations, mut imports) = (0, 0);
    let blocks = blocks();
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{}:{}", block.page, block.line);
        let name = match block.mark.as_str() {
            "yaml weir" => "block.yaml",
            "json weir" => "block.json",
            "nginx" | "yaml ratelimit" | "yaml ingress" => {
                let next =
                    blocks.get(index + 1).filter(|next| next.page == block.page && next.mark == "yaml weir");
                assert!(next.is_some(), "{place}: no block `yaml weir` says what it is imported as");
                continue;
            }
            mark => {
                let known = ["yaml", "json", "text", "sh", ""].contains(&mark);
                assert!(known, "{place}: {mark:?} marks no kind of block");
                continue;
            }
        };
        configurations += 1;
        let meant = MEANT.iter().filter(|(page, _)| block.page.ends_with(page));
        let meant = meant.flat_map(|(_, code)| ["--allow", code]);
        let arguments: Vec<&str> = ["check", "--deny-warnings", name].into_iter().chain(meant).collect();
        let (status, out, error) = weir(&[(name, &block.text)], &arguments);
        assert_eq!(status, 0, "{place}: {out}{error}");
        let before =
            index.checked_sub(1).map(|before| &blocks[before]).filter(|before| before.page == block.page);
        let imported = match before.map(|before| (before.mark.as_str(), before.text.as_str())) {
            Some(("nginx", text)) => {
                weir(&[("nginx.conf", text)], &["import", "nginx", "--json", "nginx.conf"])
            }
            Some(("yaml ingress", text)) => {
                weir(&[("ingress.yaml", text)], &["import", "ingress", "--json", "ingress.yaml"])
            }
            Some(("yaml ratelimit", text)) => weir(
                &[("limits.yaml", text)],
                &["import", "ratelimit", "--json", "limits.yaml", "--descriptor", "user=header:x-user"],
            ),
            _ => continue,
        };
        imports += 1;
        let (status, out, error) = imported;
        assert_eq!(status, 0, "{place}: {out}{error}");
        let said: Value = serde_json::from_str(&out).expect("JSON");
        let shown = envoys_reading("block.yaml", &block.text).expect("YAML");
        assert_eq!(said["configuration"], shown, "{place}");
        // The page shows what the import notes about it.
        let page = fs::read_to_string(root().join(&block.page)).expect("a page");
        for note in said["notes"].as_array().expect("notes") {
            let text = |name: &str| note[name].as_str().expect("a text").to_owned();
            let line = format!("{}:{}: note: {}: {}", text("file"), note["line"], text("what"), text("why"));
            assert!(page.contains(&line), "{place}: does not show `{line}`");
        }
    }
    assert!(configurations >= 80 && imports >= 2, "{configurations} configurations, {imports} imports");
}

#[test]
fn short_examples_are_what_envoy_reads() {
    let mut checked = 0;
    for (page, text) in pages() {
        for event in parsed(&text) {
            let Event::Code(code) = event else { continue };
            let is_name = |name: &str| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            let Some((name, value)) = code.split_once(": ") else { continue };
            if !(is_name(name) && value.starts_with(['{', '['])
                || name.strip_prefix('{').is_some_and(is_name))
            {
                continue;
            }
            let yaml = if name.starts_with('{') { format!("- {code}") } else { code.to_string() };
            assert!(envoys_reading("short.yaml", &yaml).is_ok(), "{page}: {code}");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

/// The words of a page that are commands: those of code, in a line or in a block.
fn commands(text: &str) -> Vec<String> {
    let spans = text.split('`').enumerate().filter(|(number, _)| number % 2 == 1).map(|(_, span)| span);
    let lines = text.lines().map(|line| line.trim_start_matches("$ "));
    spans
        .chain(lines)
        .filter(|text| text.starts_with("weir ") && !text.contains('\n'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn commands_and_flags_exist() {
    let help = |names: &[&str]| {
        let (status, out, _) = weir(&[], &[names, &["--help"]].concat());
        (status == 0).then_some(out)
    };
    let listed = |help: &str| -> BTreeSet<String> {
        let (commands, _) = help.split_once("Options:\n").unwrap_or((help, ""));
        let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let known = listed(&help(&[]).expect("help"));
    assert!(known.contains("check"), "{known:?}");
    let mut checked = 0;
    for (page, text) in pages() {
        for command in commands(&text) {
            let words: Vec<&str> =
                command.split_whitespace().skip(1).take_while(|word| *word != "|").collect();
            // A sentence that begins with the name.
            let Some(name) = words.first().filter(|word| known.contains(**word)) else { continue };
            let mut names = vec![*name];
            let inner = listed(&help(&names).unwrap_or_default());
            names.extend(words.get(1).filter(|word| inner.contains(**word)));
            let Some(help) = help(&names) else { panic!("{page}: {command}: no such command") };
            for flag in words.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
                let flag = flag.split(['=', ',', '`', ')']).next().expect("a flag");
                assert!(
                    help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")),
                    "{page}: {command}: no flag {flag}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn files_are_shown_as_they_are() {
    let root = root();
    let read =
        |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut whole, mut parts) = (BTreeSet::new(), 0);
    for (page, text) in pages() {
        let mut updated = text.clone();
        for (mark, all) in [("\n<!-- all of: ", true), ("\n<!-- part of: ", false)] {
            for (_, rest) in text.match_indices(mark).map(|(at, _)| text.split_at(at + mark.len())) {
                let (name, rest) = rest.split_once(" -->\n```").expect("a name and a block");
                let (_, rest) = rest.split_once('\n').expect("a mark of the block");
                let (shown, _) = rest.split_once("```\n").expect("an end of the block");
                let file = read(name);
                if !all {
                    parts += 1;
                    assert!(is_part(shown, &file), "{page}: this is no part of {name}:\n{shown}");
                    continue;
                }
                let file = for_readers(&file);
                assert!(whole.insert(name.to_owned()), "{page}: {name} is shown twice");
                if std::env::var_os("WEIR_UPDATE").is_some() {
                    let block = |text: &str| format!("{mark}{name} -->\n```yaml weir\n{text}```\n");
                    updated = updated.replace(&block(shown), &block(file));
                } else {
                    assert!(shown == file, "{page}: this is not {name}; WEIR_UPDATE=1 writes it:\n{shown}");
                }
            }
        }
        if updated != text {
            fs::write(root.join(page), updated).expect("written");
        }
    }
    let examples =
        fs::read_dir(root.join("examples")).expect("examples").map(|entry| entry.expect("an entry").path());
    let examples: BTreeSet<String> = examples
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .map(|path| path.strip_prefix(root).expect("below").display().to_string())
        .collect();
    assert_eq!(whole, examples, "docs/recipes.md shows each example");
    assert_eq!((whole.len(), parts), (21, 1));
}

#[test]
fn examples_name_the_schema_that_accepts_them() {
    let root = root();
    let schema = root.join("weir.schema.json");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let text = fs::read_to_string(&schema).expect("the schema");
    compiler.add_resource("weir", serde_json::from_str(&text).expect("JSON")).expect("a schema");
    let compiled = compiler.compile("weir", &mut schemas).expect("a schema");
    let mut seen = 0;
    for folder in ["examples", "examples/compose"] {
        for entry in fs::read_dir(root.join(folder)).expect("examples") {
            let file = entry.expect("an entry").path();
            let name = file.display().to_string();
            if file.extension().is_none_or(|end| end != "yaml") || name.ends_with("compose.yaml") {
                continue;
            }
            let text = fs::read_to_string(&file).expect("an example");
            let hint = text.lines().find_map(|line| line.strip_prefix("# yaml-language-server: $schema="));
            let named =
                file.parent().expect("a folder").join(hint.unwrap_or_else(|| panic!("{name}: no schema")));
            assert_eq!(named.canonicalize().ok().as_ref(), Some(&schema), "{name}: {}", named.display());
            let example = envoys_reading(&name, &text).expect("YAML");
            schemas.validate(&example, compiled).unwrap_or_else(|error| panic!("{name}: {error}"));
            seen += 1;
        }
    }
    assert_eq!(seen, 22);
}

/// A file from its first line on that is for readers: lines for tools come before it.
fn for_readers(mut file: &str) -> &str {
    while let Some((line, rest)) = file.split_once('\n')
        && ["# SPDX-License-Identifier: ", "# yaml-language-server: "]
            .iter()
            .any(|tool| line.starts_with(tool))
    {
        file = rest;
    }
    file
}

/// True if these lines are in the file one after the other, perhaps further to the right.
fn is_part(shown: &str, file: &str) -> bool {
    let shown: Vec<&str> = shown.lines().collect();
    let file: Vec<&str> = file.lines().collect();
    let first = shown.first().copied().unwrap_or_default();
    !shown.is_empty()
        && file.windows(shown.len()).any(|lines| {
            let Some(indent) = lines[0].strip_suffix(first).filter(|indent| indent.trim().is_empty()) else {
                return false;
            };
            lines.iter().zip(&shown).all(|(line, shown)| {
                line.strip_prefix(indent)
                    .map_or(line.trim().is_empty() && shown.is_empty(), |line| line == *shown)
            })
        })
}

/// All pages of Markdown in the repository.
fn all_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
            all_pages(&path, pages);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

/// The link targets of a page: those of its headings, as GitHub makes them, and those that it writes out.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut heading) = (BTreeSet::new(), None::<String>);
    for event in parsed(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&text));
            }
            Event::InlineHtml(html) => {
                let anchor = html.strip_prefix("<a id=\"").and_then(|rest| rest.strip_suffix("\">"));
                found.extend(anchor.map(str::to_owned));
            }
            Event::End(TagEnd::Heading(_)) => {
                let kept = heading.take().expect("a heading").to_lowercase();
                let kept = kept.chars().filter(|next| next.is_alphanumeric() || " -_".contains(*next));
                let anchor = kept.collect::<String>().replace(' ', "-");
                let again = (1..).map(|number| format!("{anchor}-{number}"));
                let free = std::iter::once(anchor.clone()).chain(again).find(|name| !found.contains(name));
                found.extend(free);
            }
            _ => {}
        }
    }
    found
}

/// The targets of the links of a page.
fn targets(text: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    };
    parsed(text).filter_map(target).collect()
}

#[test]
fn links_lead_somewhere() {
    assert_eq!(
        anchors("# A `b` c\n```\n# no\n```\n## a B: c\n<a id=\"d\"></a>e\n"),
        ["a-b-c", "a-b-c-1", "d"].map(String::from).into()
    );
    assert_eq!(targets("[a](b.md#c) `[d](e)`\n```\n[f](g)\n```\n[`h`](i)\n"), ["b.md#c", "i"]);
    let root = root();
    let mut pages = Vec::new();
    all_pages(root, &mut pages);
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (path, anchor) =
                target.split_once('#').map_or((&*target, None), |(path, anchor)| (path, Some(anchor)));
            let file =
                if path.is_empty() { page.clone() } else { page.parent().expect("a folder").join(path) };
            let name = page.strip_prefix(root).expect("below").display();
            let Ok(file) = file.canonicalize() else {
                wrong.push(format!("{name}: {target}: there is no such file"));
                continue;
            };
            if let Some(anchor) = anchor
                && file.extension().is_some_and(|end| end == "md")
                && !anchors(&fs::read_to_string(&file).expect("a page")).contains(anchor)
            {
                wrong.push(format!("{name}: {target}: there is no such heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(pages.len() > 20 && checked > 200, "{} pages, {checked} links", pages.len());
}

#[test]
fn troubleshooting_has_every_kind_of_failure() {
    let (_, text) =
        pages().into_iter().find(|(page, _)| page == "docs/troubleshooting.md").expect("the page");
    let (_, section) = text.split_once("## Redis fails\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let first = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let mut named: Vec<&str> =
        first.flat_map(|cell| cell.split(", ")).map(|word| word.trim_matches('`')).collect();
    named.sort_unstable();
    assert_eq!(named, StoreFailure::kinds().collect::<Vec<_>>());
}
