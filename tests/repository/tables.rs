// SPDX-License-Identifier: Apache-2.0
//! Tables in documents that a test makes, each between two marks: `<!-- NAME -->` and `<!-- end -->`. The table of threats, which names
//! tests. And a table of sentences that made readers stop, which no page or source says again, one of words that no page or comment uses,
//! and a rule for doc comments.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::layers::rust_files;

/// The page has these tables, by the names of their marks. `WEIR_UPDATE=1` writes them.
pub fn published<'a>(page: &str, tables: impl IntoIterator<Item = (&'a str, String)>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let mut document = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    for (name, table) in tables {
        let begin = format!("<!-- {name} -->\n");
        let (head, rest) = document.split_once(&begin).expect("a mark");
        let (found, tail) = rest.split_once("<!-- end -->\n").expect("its end");
        if std::env::var_os("WEIR_UPDATE").is_none() {
            assert_eq!(found, table, "{name}: WEIR_UPDATE=1 writes the table");
        }
        document = [head, &begin, &table, "<!-- end -->\n", tail].concat();
    }
    fs::write(path, document).expect("written");
}

/// The last column of `docs/threats.md` names tests, tables of tests, and files of them. `…` is any text.
#[test]
fn each_test_that_a_threat_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests", "cli/src", "cli/tests", "native/src"];
    let sources: String = folders
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .map(|file| fs::read_to_string(file).unwrap())
        .chain([fs::read_to_string(root.join("Makefile")).unwrap()])
        .collect();
    let threats = fs::read_to_string(root.join("docs/threats.md")).unwrap();
    let rows = threats.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| filter"));
    let tests = rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | "));
    let named: Vec<&str> = tests.flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 100, "{named:?}");
    let exists =
        |name: &str| root.join(name).is_file() || name.split('…').all(|part| sources.contains(part.trim()));
    let missing: Vec<&str> = named.into_iter().filter(|name| !exists(name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "docs/threats.md names no test that is not there");
}

/// A fragment of a sentence that made readers stop, in lower case, and what to say.
#[rustfmt::skip]
const STOPPED: [(&str, &str); 42] = [
    ("the answer is that to a client of which", "assumes that nothing has been counted for this client yet"),
    ("for want of", "because … is missing"),
    ("for lack of", "because … is missing"),
    ("in vain", "say what does not happen"),
    ("the truth", "say which value"),
    ("written that nobody reads", "ends when its output pipe closes"),
    ("about what is around the", "these warnings are about Envoy's own settings"),
    ("comes twice the last value", "if a key appears twice, the last value wins"),
    ("to help or stop one", "to raise, reset or ban one client"),
    ("does not read such a path", "weir does not interpret such a path: every path condition counts as possibly true"),
    ("path that may be any", "a path that cannot be resolved for certain"),
    ("cannot be read may have any value", "if a value cannot be read, weir assumes the stricter outcome"),
    ("taken on the strict side", "weir assumes the stricter outcome"),
    ("cross regions, never times", "regions exchange amounts and durations, not timestamps"),
    ("so many times the configured limits", "`scale` multiplies a policy's limits for each subject"),
    ("more when it runs out and less", "the reservation adapts to use"),
    ("makes labels of", "`stats_tags` tell Envoy which parts of a metric's name become labels"),
    ("policies are about", "a request that several policies match"),
    ("policy is about", "the policy applies to the request, or matches it"),
    ("it is about", "say what it applies to, describes or names"),
    ("by what one of them does not know", "the overshoot is at most the units that some region has not heard of yet"),
    ("may grant its part of each limit", "may grant its own share plus what it has borrowed minus what it has lent"),
    ("too high by the second number", "the first number is an upper bound"),
    ("goes as what is used", "debt decays as usage does"),
    ("finer precision makes", "a smaller `precision` reduces this error"),
    ("was already asked about when", "overtakes the queue only if its check was in flight when the queue formed"),
    ("for envoy a request that waits", "to Envoy a queued request looks idle"),
    ("no way back", "exact value first, without backtracking"),
    ("cluster types asks", "Envoy has no Sentinel support"),
    ("loads and does something else", "warns where a setting now behaves differently"),
    ("shows nothing of it but the time", "apart from the delay, nothing shows that a request has waited"),
    ("prints this table. it has", "we measured this with `make …` on …"),
    ("question while the first is under way", "if a second check were in flight, its reply could arrive first"),
    ("lent what they were asked for", "asks first the regions that have lent before"),
    ("kept of a limit for requests of other", "may not use the part of a limit that is reserved for other classes"),
    ("that took all is owed", "say which sum, over which regions, and what would go wrong"),
    ("stay borrowed over a release", "drop the `RefCell` borrow before releasing"),
    ("takes along what it holds", "when Envoy exits, its unused leased units are lost"),
    ("it has stopped to matter", "at most one second after it is no longer needed"),
    ("few questions to redis", "few round trips"),
    ("who does so", "name the actor"),
    ("nor is it", "one fact per sentence"),
];

/// Words that no page or comment uses outside of code, because they mean several things or nothing to a reader, and what to say.
#[rustfmt::skip]
const WORDS: [(&str, &str); 21] = [
    ("house", "crate"),
    ("anchors", "connector"),
    ("enquiry", "quota request"),
    ("enquiries", "quota requests"),
    ("dear", "expensive"),
    ("dearest", "most expensive"),
    ("gone", "unavailable, removed, or used up"),
    ("flights", "in-flight batches"),
    ("lane", "slots"),
    ("lanes", "slots"),
    ("a text", "a string"),
    ("stands in", "is in"),
    ("lies in", "is in"),
    ("hangs on", "depends on"),
    ("let go", "close a stream, release a request, abandon a batch"),
    ("lets go", "closes a stream, releases a request, abandons a batch"),
    ("give up", "abandon, or end"),
    ("gives up", "abandons, or ends"),
    ("nobody", "no client, no request, no operator"),
    ("is told", "say who reports what to whom"),
    ("of which", "one fact per sentence"),
];

/// The extensions of files with sentences. Scripts have none.
const TEXTS: [&str; 8] = ["md", "rs", "lua", "yaml", "json", "js", "html", "svg"];

/// All files below a folder, without those that a tool made, and without seeds, which say what a fuzzer found.
fn files(path: PathBuf) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match path.is_dir() {
        true if name.starts_with('.') || ["target", "seeds"].contains(&name) || path.is_symlink() => vec![],
        true => fs::read_dir(path).unwrap().flat_map(|entry| files(entry.unwrap().path())).collect(),
        false => vec![path],
    }
}

#[test]
fn no_sentence_is_known_to_make_readers_stop() {
    let (root, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    let is_text = |path: &PathBuf| match path.extension() {
        Some(extension) => TEXTS.iter().any(|text| extension == *text),
        None => path.parent().is_some_and(|folder| folder.ends_with("scripts")),
    };
    for file in files(root.into()).iter().filter(|file| is_text(file) && !file.ends_with(file!())) {
        let text = fs::read_to_string(file).unwrap_or_default().to_lowercase();
        // A sentence continues in the next line of a comment or a string.
        let words =
            text.lines().zip(1..).flat_map(|(line, at)| line.split_whitespace().map(move |word| (word, at)));
        let words: Vec<(&str, u32)> =
            words.filter(|(word, _)| !["//", "///", "//!", "--", "#", "\\"].contains(word)).collect();
        let joined = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" ");
        for (fragment, say) in STOPPED {
            for (at, _) in joined.match_indices(fragment) {
                let (_, line) = words[joined[..at].matches(' ').count()];
                found.push(format!("{}:{line}: {fragment:?}: say {say:?}", file.display()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new(), "sentences that made readers stop");
}

/// The page without what is in backticks, code blocks and the targets of links, in lower case.
fn prose(page: &str) -> Vec<(usize, String)> {
    let (mut is_code, mut lines) = (false, Vec::new());
    for (line, at) in page.lines().zip(1..) {
        is_code ^= line.trim_start().starts_with("```");
        if !is_code {
            let outside = line.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
            let after_links =
                outside.split("](").enumerate().map(|(place, part)| match part.split_once(')') {
                    Some((_, rest)) if place > 0 => rest,
                    _ => part,
                });
            lines.push((at, after_links.collect::<Vec<_>>().join(" ")));
        }
    }
    lines
}

/// The comments of a source, without their marks. A page has no mark: all of its text is a comment. A line without a comment is empty, so
/// that a finding can name its line.
fn comments(source: &str, mark: &str) -> String {
    let comment = |line: &str| {
        let line = [" ", line].concat();
        let (_, comment) = line.split_once(mark).unwrap_or_default();
        comment.trim_start_matches(['/', '!', '-', '#', ' ']).to_owned() + "\n"
    };
    source.lines().map(comment).collect()
}

#[test]
fn no_page_or_comment_uses_a_word_that_readers_do_not_know() {
    let (root, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    for file in files(root.into()) {
        let is_script = file.parent().is_some_and(|folder| folder.ends_with("scripts"));
        let mark = match file.extension().and_then(OsStr::to_str) {
            Some("md") if !file.ends_with("CHANGELOG.md") => "",
            Some("rs") => " //",
            Some("lua") => " --",
            Some("sh") | None if is_script => " #",
            _ => continue,
        };
        let text = fs::read_to_string(&file).expect("a page or a source");
        let (lines, end) = (prose(&comments(&text, mark)), (0, String::new()));
        for ((at, line), (_, next)) in lines.iter().zip(lines.iter().skip(1).chain([&end])) {
            // The words of an entry may be in two lines.
            let both = [line.trim_end(), " ", next.trim_start()].concat();
            let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
            for (word, say) in WORDS {
                let stands = both.match_indices(word).any(|(from, _)| {
                    let (head, tail) = (&both[..from], &both[from + word.len()..]);
                    from < line.len() && !is_letter(head.chars().last()) && !is_letter(tail.chars().next())
                });
                if stands {
                    found.push(format!("{}:{at}: {word:?}: say {say:?}", file.display()));
                }
            }
        }
    }
    assert_eq!(found, Vec::<String>::new(), "words that readers do not know");
}

/// A doc comment has a subject: *the time for which a value counts*, not *how long a value counts*.
#[test]
fn doc_comments_do_not_begin_with_a_question() {
    let (root, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    for file in files(root.into()).iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let text = fs::read_to_string(file).expect("a source");
        let mut before = "";
        for (line, at) in text.lines().map(str::trim_start).zip(1..) {
            let doc = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark));
            if let Some(mark) = doc.filter(|mark| !before.starts_with(mark))
                && let Some(word) = line.trim_start_matches(mark).split_whitespace().next()
                && ["What", "How", "Whether", "Where", "Which", "Why"].contains(&word)
            {
                found.push(format!("{}:{at}: {line}", file.display()));
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "begin with a subject:\n{}", found.join("\n"));
}
