// SPDX-License-Identifier: Apache-2.0
//! Tables in documents that a test makes, each between two marks: `<!-- NAME -->` and `<!-- end -->`. And the table of threats, which names
//! tests.

use std::fs;
use std::path::Path;

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
