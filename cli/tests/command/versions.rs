// SPDX-License-Identifier: Apache-2.0
//! `weir check --fix` makes a configuration of this version from each that an earlier version has accepted: `tests/states`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::command::{File, weir};
use crate::support::root;

#[test]
fn configurations_of_every_version_load_after_fix() {
    let mut fixed = BTreeSet::new();
    let mut tried = 0;
    for folder in fs::read_dir(root().join("tests/states")).expect("a folder") {
        let path = folder.expect("an entry").path().join("configurations.json");
        let rows: Value = serde_json::from_str(&fs::read_to_string(&path).expect("a file")).expect("JSON");
        for row in rows.as_array().expect("rows") {
            let (name, text) = (row[0].as_str().expect("a name"), row[1].as_str().expect("a text"));
            let file = File::new("old.json", text);
            let (status, _, changes) = weir(&["check", "--fix", file.path()]);
            let (_, found, _) = weir(&["check", "--format", "text", file.path()]);
            assert_eq!(status, 0, "{}: {name}: {found}", path.display());
            fixed.extend(changes.lines().filter_map(|line| {
                let (former, present) = line.split_once(": \"")?.1.split_once("\" is called \"")?;
                Some((former.to_owned(), present.strip_suffix("\" now: fixed")?.to_owned()))
            }));
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried} configurations");
    assert_eq!(fixed, renamed(), "each name that was renamed is in a recorded configuration");
}

/// The former names and the present ones, as the code has them.
fn renamed() -> BTreeSet<(String, String)> {
    let source = include_str!("../../../src/config/schema/hint.rs");
    let (_, table) = source.split_once("const RENAMED").expect("the table");
    let (table, _) = table.split_once("];").expect("its end");
    let row = |line: &str| {
        let (former, present) =
            line.trim().strip_prefix("(\"")?.strip_suffix("\"),")?.split_once("\", \"")?;
        Some((former.to_owned(), present.to_owned()))
    };
    let rows: BTreeSet<_> = table.lines().filter_map(row).collect();
    assert!(!rows.is_empty(), "the table is read");
    rows
}
