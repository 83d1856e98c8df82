// SPDX-License-Identifier: Apache-2.0
//! The configuration.
//!
//! | file | what it shows |
//! |---|---|
//! | `accepted.rs` | what loads, also with some bytes changed |
//! | `rejected.rs` | the errors of what does not load |
//! | `fields.rs` | every field reaches what it is for |
//! | `structs.rs` | a configuration that Envoy hands on as a `google.protobuf.Struct` |
//! | `documents.rs` | the schema and the documents agree with the code |
//! | `versions.rs` | configurations of earlier versions |

mod accepted;
mod documents;
mod fields;
mod rejected;
mod structs;
#[cfg(not(target_arch = "wasm32"))]
mod versions;

use weir::config::Config;

/// Writes out the short forms of the tables.
fn json(text: &str) -> String {
    const LIMIT: &str = r#""name": "l", "algorithm": "leaky_bucket", "rate": "1/s""#;
    const VALUES: &str = r#""name": "users", "algorithm": "distinct", "limit": 20, "window": "10m", "of": [{"body_form": {"field": "user"}}]"#;
    const MANY_VALUES: &str = r#""algorithm": "distinct", "limit": 1000, "window": "1h", "of": [{"body_form": {"field": "user"}}], "name":"#;
    let policy = format!(r#""name": "p", "limits": [{{{LIMIT}}}]"#);
    let text = text.replace("{P", &format!("{{{policy}")).replace("{L", &format!("{{{LIMIT}"));
    text.replace("{D", &format!("{{{VALUES}")).replace("{E", &format!("{{{MANY_VALUES}"))
}

fn errors(text: &str) -> Vec<String> {
    Config::parse(text.as_bytes()).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}
