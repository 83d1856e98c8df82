// SPDX-License-Identifier: Apache-2.0
//! Searches all interleavings of the protocols that move units between parties, and writes what was searched to `target/search/`.
//!
//! `make search` runs it. A row ends after so many seconds of processor time: `SECONDS_EACH`, 60 unless set.
#![allow(missing_docs, clippy::expect_used, clippy::panic)]

use weir_support::search;
use weir_support::table;

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use search::{SIZES, scenarios};
use serde_json::{Map, Value, json};

fn main() -> std::io::Result<()> {
    let each = env::var("SECONDS_EACH").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
    let mut rows = Vec::new();
    for scenario in scenarios::long() {
        let found = scenario.search(Duration::from_secs(each));
        let sizes = SIZES.iter().zip(scenario.sizes()).map(|(name, size)| ((*name).to_owned(), json!(size)));
        let mut row: Map<String, Value> = sizes.collect();
        row.insert("protocol".into(), json!(scenario.name));
        for (name, value) in [("paths", found.paths), ("states", found.states), ("longest", found.longest)] {
            row.insert(name.into(), json!(value));
        }
        row.insert("seconds".into(), json!(found.took.as_secs()));
        row.insert("is_complete".into(), json!(found.is_complete));
        println!("{}", Value::Object(row.clone()));
        if let Some((path, why)) = found.wrong {
            panic!("{} {:?}: {why}\n{path:#?}", scenario.name, scenario.sizes());
        }
        rows.push(row);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/search");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("summary.json"), table::rows(&json!({ "rows": rows })))?;
    println!("The figures are in {}.", folder.join("summary.json").display());
    Ok(())
}
