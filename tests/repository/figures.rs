// SPDX-License-Identifier: Apache-2.0
//! A figure in prose is that of the file that measured it. It is between `<!-- SOURCE: CASE, FIELD -->` and `<!-- / -->`. CASE is a name and
//! two more fields, or the key of an object. `WEIR_UPDATE=1` writes the figures, with as many decimals as are shown. Pages that say what a
//! request costs have no other.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const END: &str = "<!-- / -->";

/// The mark, the files below `docs/`, and the fields that tell cases of one name apart.
const SOURCES: [(&str, &[&str], [&str; 2]); 3] = [
    ("bench", &["bench/summary.json", "bench/services.json"], ["connections", "subjects"]),
    ("regions", &["regions/summary.json"], ["way", "regions"]),
    ("scale", &["scale/summary.json"], ["workers", "nodes"]),
];

/// A number with commas.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.len();
    let with = |(place, digit): (usize, char)| {
        let comma = place > 0 && (digits - place).is_multiple_of(3);
        [comma.then_some(','), Some(digit)]
    };
    whole.chars().enumerate().flat_map(with).flatten().chain(rest.chars()).collect()
}

/// The number at a path of keys, as in `wait_ms.p99`.
pub fn at(case: &Value, field: &str) -> Option<f64> {
    field.split('.').try_fold(case, |case, key| case.get(key))?.as_f64()
}

fn measured(files: &[Value], keys: [&str; 2], what: &str) -> Option<f64> {
    // Names have commas, too.
    match what.rsplitn(4, ", ").collect::<Vec<_>>()[..] {
        [field, object] => files.iter().find_map(|file| at(&file[object], field)),
        [field, second, first, name] => {
            let is = |case: &&Value| {
                let of = keys.map(|key| case[key].to_string());
                case["name"] == name && of.each_ref().map(|text| text.trim_matches('"')) == [first, second]
            };
            let lists = files.iter().flat_map(|file| [&file["cases"], &file["controls"]]);
            at(lists.filter_map(Value::as_array).flatten().find(is)?, field)
        }
        _ => None,
    }
}

fn pages() -> impl Iterator<Item = PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["docs", "docs/bench"].map(|folder| fs::read_dir(root.join(folder)).expect(folder));
    let paths = folders.into_iter().flatten().map(|entry| entry.expect("an entry").path());
    paths.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|end| end == "md"))
}

/// A comment at the beginning of a line ends the paragraph.
fn begins_a_line(text: &str, mark: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with(mark))
}

/// The page with the figures of one source, and the page without them.
fn inserted(page: &str, text: &str, mark: &str, figure: impl Fn(&str) -> Option<f64>) -> [String; 2] {
    assert!(!begins_a_line(text, mark), "{page}: write a word before the figure");
    let mut parts = text.split(mark);
    let mut written = parts.next().expect("a head").to_owned();
    let mut prose = written.clone();
    for part in parts {
        let (what, rest) = part.split_once(" -->").expect("an end of the mark");
        let (shown, rest) = rest.split_once(END).expect("an end of the figure");
        let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let figure = figure(what).unwrap_or_else(|| panic!("{page}: no file has {mark}{what}"));
        written += &format!("{mark}{what} -->{}{END}{rest}", grouped(figure, decimals));
        prose += rest;
    }
    [written, prose]
}

#[test]
fn figures_are_those_that_were_measured() {
    for path in pages() {
        let page = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("below").display().to_string();
        let text = fs::read_to_string(&path).expect("a page");
        let (mut written, mut prose) = (text.clone(), text.clone());
        for (source, files, keys) in SOURCES {
            let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
            let read = |name: &&str| fs::read_to_string(docs.join(name)).expect("the figures");
            let files = files.iter().map(|name| serde_json::from_str(&read(name)).expect("JSON"));
            let files: Vec<Value> = files.collect();
            let mark = format!("<!-- {source}: ");
            let figure = |what: &str| measured(&files, keys, what);
            [written, _] = inserted(&page, &written, &mark, figure);
            [_, prose] = inserted(&page, &prose, &mark, figure);
        }
        if std::env::var_os("WEIR_UPDATE").is_some() {
            fs::write(&path, &written).expect("written");
        } else {
            let differ = text.lines().zip(written.lines()).find(|(is, wanted)| is != wanted);
            assert_eq!(differ, None, "{page}: a figure is not what was measured; WEIR_UPDATE=1 writes it");
        }
        assert!(!prose.contains(END), "{page}: a figure of no source");
        let bare = |line: &&str| {
            let before = |(place, _): (usize, &str)| line[..place].trim_end();
            line.match_indices("µs")
                .map(before)
                .any(|text| text.ends_with(|last: char| last.is_ascii_digit()))
        };
        if ["README.md", "docs/faq.md", "docs/comparison.md"].contains(&page.as_str()) {
            assert_eq!(prose.lines().find(bare), None, "{page}: a figure that no file has measured");
        }
    }
}
