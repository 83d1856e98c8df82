// SPDX-License-Identifier: Apache-2.0
//! Tables of named cases.

/// Runs a table and names every row that is wrong.
pub fn each<T>(rows: impl IntoIterator<Item = (T, String, String)>)
where
    T: std::fmt::Display,
{
    let wrong: Vec<String> = rows
        .into_iter()
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(row, found, wanted)| format!("{row}: found {found}, wanted {wanted}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
