// SPDX-License-Identifier: Apache-2.0
//! Tables: of named cases, and of what was measured.

use serde_json::Value;

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

/// The JSON of measurements, a list or an object whose lists are tables: a line for each row, so that it is short, and a change of a row is
/// a change of a line.
pub fn rows(value: &Value) -> String {
    let list = |rows: &[Value]| {
        let rows: Vec<_> = rows.iter().map(Value::to_string).collect();
        format!("[\n{}\n]", rows.join(",\n"))
    };
    let field = |(name, value): (&String, &Value)| {
        let value = value.as_array().map_or_else(|| value.to_string(), |rows| list(rows));
        format!("\"{name}\":{value}")
    };
    match value {
        Value::Array(rows) => list(rows) + "\n",
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(field).collect();
            format!("{{\n{}\n}}\n", fields.join(",\n"))
        }
        other => format!("{other}\n"),
    }
}

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
