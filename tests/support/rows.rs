// SPDX-License-Identifier: Apache-2.0
//! The JSON of what was measured: a line for each row, so that it is short, and a change of a row is a change of a line.

use serde_json::Value;

/// A list, or an object whose lists are tables.
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
