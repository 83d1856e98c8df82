// SPDX-License-Identifier: Apache-2.0
//! A figure in prose is that of the file that measured it. It is between `<!-- SOURCE: CASE, FIELD -->` and `<!-- / -->`. CASE is a name and
//! two more fields, or the key of an object. `WEIR_UPDATE=1` writes the figures, with as many decimals as are shown. Pages that say what a
//! request costs have no other.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_support::table::grouped;

const END: &str = "<!-- / -->";

/// The mark, the files below `docs/`, and the fields that tell cases of one name apart.
const SOURCES: [(&str, &[&str], [&str; 2]); 3] = [
    ("bench", &["bench/summary.json", "bench/services.json"], ["connections", "subjects"]),
    ("regions", &["regions/summary.json"], ["way", "regions"]),
    ("scale", &["scale/summary.json"], ["workers", "nodes"]),
];

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

mod charts {
    //! The charts of `docs/bench` show what was measured. `WEIR_UPDATE=1` draws them again.

    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use crate::bars;

    #[test]
    fn charts_are_drawn_from_the_measured_figures() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bench");
        let read = |name: &str| -> Value {
            serde_json::from_str(&fs::read_to_string(folder.join(name)).expect(name)).expect(name)
        };
        let (services, summary) = (read("services.json"), read("summary.json"));
        let charts = [
            ("added.svg", bars::added(&services)),
            ("cpu.svg", bars::cpu(&summary)),
            ("latency.svg", bars::latency(&summary)),
        ];
        for (name, drawn) in charts {
            let path = folder.join(name);
            if std::env::var_os("WEIR_UPDATE").is_some() {
                fs::write(&path, &drawn).expect(name);
            }
            let is = fs::read_to_string(&path).unwrap_or_default();
            assert!(is == drawn, "{name} is not what its figures say; WEIR_UPDATE=1 draws it again");
        }
    }
}

mod stats {
    //! The benchmark judges targets by ratios of noisy figures. Here the noise is known, and so is what must be found in it.

    #[allow(dead_code)]
    use crate::of_bench::{Estimate, median, ratio, spread};

    /// A number between -1 and 1 for each round, without a pattern.
    fn noise(seed: u64, round: u64) -> f64 {
        let mixed = (seed * 1_000 + round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 32)) % 2_001) as f64 / 1_000.0 - 1.0
    }

    /// The width of the interval, in parts of the figure.
    fn width(of: &Estimate) -> f64 {
        (of.high - of.low) / of.is.abs()
    }

    /// Sixty rounds in which a way adds 10 and its counterpart 20, both with noise of this size.
    fn rounds(seed: u64, size: f64) -> Vec<[f64; 2]> {
        (0..60)
            .map(|round| [10.0 + size * noise(seed, round), 20.0 + size * noise(seed + 1, round)])
            .collect()
    }

    #[test]
    fn medians_and_spreads_are_those_of_the_figures() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), 1.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn an_interval_contains_the_true_ratio_about_as_often_as_it_says() {
        let hits = (0..40).filter(|seed| {
            let found = ratio(&rounds(seed * 2, 5.0)).expect("rounds");
            found.low <= 0.5 && 0.5 <= found.high
        });
        // 95 % of 40, less three standard deviations.
        let hits = hits.count();
        assert!((34..=40).contains(&hits), "{hits} of 40");
    }

    #[test]
    fn a_verdict_falls_only_where_the_interval_allows_one() {
        let quiet = ratio(&rounds(7, 0.5)).expect("rounds");
        assert_eq!(quiet.verdict(0.6), "met");
        assert_eq!(quiet.verdict(0.4), "missed");
        assert_eq!(quiet.verdict(quiet.is), "not decided");
        let noisy = ratio(&rounds(7, 15.0)).expect("rounds");
        assert_eq!(noisy.verdict(0.6), "not decided");
        assert!(width(&noisy) > width(&quiet));
    }

    #[test]
    fn what_slows_down_whole_rounds_does_not_widen_the_interval() {
        // The machine makes each round up to five times as slow, both figures of it alike.
        let disturbed = |(round, [way, other]): (u64, [f64; 2])| {
            let factor = 3.0 + 2.0 * noise(99, round);
            [way * factor, other * factor]
        };
        let slow: Vec<_> = (0..).zip(rounds(3, 0.5)).map(disturbed).collect();
        let found = ratio(&slow).expect("rounds");
        assert!(
            found.low <= 0.5 && 0.5 <= found.high && width(&found) < 0.15,
            "{found:?}, {}",
            width(&found)
        );
        // The same figures in other rounds are no pairs.
        let [ways, others] = [0, 1].map(|which| slow.iter().map(move |pair| pair[which]));
        let mixed: Vec<_> = ways.zip(others.cycle().skip(17)).map(|(way, other)| [way, other]).collect();
        let mixed = ratio(&mixed).expect("rounds");
        assert!(width(&mixed) > 2.0 * width(&found), "{mixed:?} {found:?}");
    }

    #[test]
    fn the_same_rounds_give_the_same_interval() {
        assert_eq!(ratio(&rounds(1, 5.0)), ratio(&rounds(1, 5.0)));
    }

    #[test]
    fn few_rounds_and_a_vanishing_counterpart_decide_nothing() {
        let few = ratio(&rounds(1, 0.1)[..7]).expect("rounds");
        assert_eq!(few.verdict(10.0), "not decided: too few rounds");
        let vanished: Vec<_> = rounds(1, 0.1).into_iter().map(|[way, _]| [way, 0.0]).collect();
        assert_eq!(ratio(&vanished).expect("rounds").is, f64::INFINITY);
        assert_eq!(ratio(&[]), None);
    }
}
