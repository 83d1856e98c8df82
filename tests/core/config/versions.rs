// SPDX-License-Identifier: Apache-2.0
//! Configurations of earlier versions count on the same keys as before.
//!
//! `tests/states/VERSION/configurations.json` has what that version accepted: every configuration of the guide and of `accepted.rs`, so
//! each field and word is in one of them; and with each the keys of a subject. Before a version is tagged,
//! `scripts/record` writes its file. The command's tests show that `weir check --fix` makes a
//! configuration of this version from each.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use weir::config::Config;
use weir::policy::Check;

use super::accepted::ACCEPTED;
use crate::documented::examples;

/// The keys of the limits of a subject, tier by tier.
fn keys(config: &Config) -> Vec<String> {
    let mut keys = Vec::new();
    for (place, policy) in config.policies.iter().enumerate() {
        for tier in 0..policy.tiers.tiers.len() {
            let tag = format!("{{{}|ann}}", policy.counters);
            let check = Check { tier, ..Check::one(place, tag.as_str()) };
            let plan = config.plan(&check).expect("a plan");
            keys.extend(plan.names().iter().map(|name| format!("{}:{tag}:{name}", config.store.key_prefix)));
        }
    }
    keys
}

fn recording() -> String {
    let accepted = ACCEPTED.iter().map(|(name, text)| ((*name).to_owned(), super::json(text)));
    let documented = examples().into_iter().map(|(place, text)| {
        // Lines move.
        let page = place.split(',').next().expect("a page").to_owned();
        (page, text)
    });
    let row = |(name, text): (String, String)| {
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        json!([name, text, keys(&config)]).to_string()
    };
    format!("[\n{}\n]\n", accepted.chain(documented).map(row).collect::<Vec<_>>().join(",\n"))
}

#[test]
fn configurations_of_earlier_versions_count_on_the_same_keys() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states");
    if std::env::var_os("WEIR_RECORD").is_some() {
        let folder = folder.join(env!("CARGO_PKG_VERSION"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("configurations.json"), recording()).unwrap();
    }
    let mut versions = 0;
    for folder in fs::read_dir(folder).unwrap() {
        let file = folder.unwrap().path().join("configurations.json");
        let rows: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for row in rows.as_array().unwrap() {
            // Where a field has another name now, `weir check --fix` comes first.
            if let Ok(config) = Config::parse(row[1].as_str().unwrap().as_bytes()) {
                assert_eq!(json!(keys(&config)), row[2], "{}: {}", file.display(), row[0]);
            }
        }
        versions += 1;
    }
    assert!(versions >= 1);
}
