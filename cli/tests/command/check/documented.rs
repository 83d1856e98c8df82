// SPDX-License-Identifier: Apache-2.0
//! Each code has a section in docs/command.md, and each section a row in the tables of tests.

use std::collections::BTreeSet;

use super::{check, policies, wiring};

#[test]
fn each_code_is_documented_and_tested() {
    let (_, _, error) = check(&["--allow", "no-such-code", "x"]);
    let (_, codes) = error.split_once("[possible values: ").expect("the codes");
    let codes: BTreeSet<&str> = codes.split_once(']').expect("their end").0.split(", ").collect();
    let page = include_str!("../../../../docs/command.md");
    let sections = page.lines().filter_map(|line| line.strip_prefix("#### `")?.strip_suffix('`'));
    assert_eq!(codes, sections.collect::<BTreeSet<_>>(), "docs/command.md");
    let rows = policies::rows();
    // Two are tested in documents.rs; a measurement is tested where it can be replaced, in cli/src/check/regexes.rs.
    let others = ["duplicate-name", "ignored-document", "slow-regex"];
    let tested = rows.iter().map(|row| row.code).chain(others);
    let tested = tested.chain(wiring::CHANGES.iter().map(|change| change.code));
    assert_eq!(codes, tested.collect::<BTreeSet<_>>(), "tests");
}
