// SPDX-License-Identifier: Apache-2.0
//! The schema and the documents agree with the code.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[cfg(not(target_arch = "wasm32"))]
use std::collections::BTreeMap;

use weir::config;

use super::*;
use crate::documented::examples;
#[cfg(not(target_arch = "wasm32"))]
use crate::documented::{published, written};
#[cfg(not(target_arch = "wasm32"))]
use accepted::ACCEPTED;
#[cfg(not(target_arch = "wasm32"))]
use rejected::REJECTED;

#[test]
fn every_example_in_the_docs_loads() {
    for (place, example) in examples() {
        assert_eq!(errors(&example), Vec::<String>::new(), "{place}");
    }
}

#[test]
fn every_field_and_word_has_an_example_in_the_docs() {
    let shown: Vec<String> = examples()
        .iter()
        .flat_map(|(_, example)| config::used(&serde_json::from_str(example).unwrap()))
        .collect();
    for word in ["policy", "policy.mode", "policy.mode=shadow"] {
        assert!(config::vocabulary().iter().any(|known| known == word), "{word} is a word of the language");
    }
    let missing: Vec<String> =
        config::vocabulary().into_iter().filter(|word| !shown.contains(word)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_published_schema_is_the_generated_one() {
    published("weir.schema.json", &config::json_schema());
}

/// Each name of a field in the reference, with links to the objects that have it.
#[cfg(not(target_arch = "wasm32"))]
fn index(page: &str) -> String {
    let mut fields = BTreeMap::<&str, Vec<String>>::new();
    for (anchor, _) in page.split("| <a id=\"").skip(1).filter_map(|rest| rest.split_once("\"></a>`")) {
        let (object, field) = anchor.split_once('-').unwrap();
        fields.entry(field).or_default().push(format!("[{object}](#{anchor})"));
    }
    let line = |(field, objects): (&&str, &Vec<String>)| format!("| `{field}` | {} |\n", objects.join(", "));
    format!("| field | of |\n|---|---|\n{}", fields.iter().map(line).collect::<String>())
}

/// The parts of the reference, each with links to its objects. `scripts/site` makes a page of each part.
#[cfg(not(target_arch = "wasm32"))]
fn parts(page: &str) -> String {
    let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
    for line in page.lines() {
        if let Some(part) = line.strip_prefix("# ") {
            parts.push((part, Vec::new()));
        } else if let Some(object) = line.strip_prefix("## ")
            && config::reference(object).is_some()
        {
            parts.last_mut().unwrap().1.push(format!("[{object}](#{object})"));
        }
    }
    let row = |(part, objects): &(&str, Vec<String>)| {
        let anchor = part.to_lowercase().replace(',', "").replace(' ', "-");
        format!("| [{part}](#{anchor}) | {} |\n", objects.join(", "))
    };
    let rows = parts.iter().filter(|(_, objects)| !objects.is_empty()).map(row);
    format!("| part | objects |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_reference_in_the_docs_is_the_generated_one() {
    let (path, page) = crate::documented::PAGES[0];
    let (page, shown) = written(page, "fields", |object| {
        config::reference(object).unwrap_or_else(|| panic!("there is no {object}"))
    });
    let objects = config::vocabulary().into_iter().filter(|word| !word.contains('.'));
    assert_eq!(objects.filter(|object| !shown.contains(object)).collect::<Vec<_>>(), Vec::<String>::new());
    let (page, indexes) =
        written(&page, "index", |name| if name == "objects" { parts(&page) } else { index(&page) });
    assert_eq!(indexes, ["objects", "fields"]);
    published(path, &page);
}

/// An error names the field, not the shapes that it would not fit anyway.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_schema_names_the_field_that_is_wrong() {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("weir", serde_json::from_str(&config::json_schema()).unwrap()).unwrap();
    let schema = compiler.compile("weir", &mut schemas).unwrap();
    let said = |limit: &str| {
        let value: serde_json::Value = serde_json::from_str(&format!(
            r#"{{"policies": [{{"name": "p", "limits": [{{"name": "l", {limit}}}]}}]}}"#
        ))
        .unwrap();
        schemas.validate(&value, schema).err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    for (limit, wanted) in [
        (
            r#""algorithm": "leaky_bucket", "rate": "1/s", "burts": 3"#,
            "additionalProperties 'burts' not allowed",
        ),
        (r#""algorithm": "leaky_bucket", "burst": 3"#, "missing properties 'rate'"),
        (r#""algorithm": "leaky_bucket", "rate": true"#, "at '/policies/0/limits/0/rate'"),
        (r#""algorithm": "leeky_bucket", "rate": "1/s""#, "at '/policies/0/limits/0/algorithm'"),
        (r#""rate": "1/s""#, "missing properties 'algorithm'"),
    ] {
        let said = said(limit);
        let others = ["sliding_log", "oneOf failed", "'window'"];
        let is_about_others = others.iter().any(|other| said.contains(other)) && !limit.contains("leeky");
        assert!(said.contains(wanted) && !is_about_others, "{limit}: {said}");
    }
    assert_eq!(said(r#""algorithm": "leaky_bucket", "rate": "1/s""#), "");
}

/// An editor that validates with the schema must agree with the filter, as far as a schema can say it.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_schema_accepts_what_loads_and_rejects_what_has_no_shape() {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("weir", serde_json::from_str(&config::json_schema()).unwrap()).unwrap();
    let schema = compiler.compile("weir", &mut schemas).unwrap();
    let validates = |text: &str| {
        let value = serde_json::from_str(text).ok()?;
        Some(schemas.validate(&value, schema).map_err(|error| error.to_string()))
    };
    for (row, text) in ACCEPTED {
        assert_eq!(validates(&json(text)), Some(Ok(())), "{row}");
    }
    for (place, example) in examples() {
        assert_eq!(validates(&example), Some(Ok(())), "{place}");
    }
    // Rules that no schema can express: bounds of durations, and names that have to differ or to exist.
    let beyond = [
        "a field twice",
        "durations out of bounds",
        "two secrets",
        "replicas that redis_proxy cannot wait for, in bounds",
        "a denial_ttl that is too long",
        "intervals of usage that are no part of a day",
        "policies of one name",
        "limits that clients know by one name",
        "limits of one name",
        "counters of other limits",
        "other bursts where overrides or scales decide, and permits of another ttl",
        "text that is a count out of bounds",
        "a limit named like the key of overrides",
        "limits named like the keys of bans",
        "impossible bans",
        "scopes that a ban cannot have",
        "a ban of a policy that does not exist",
        "a queue with a ban",
        "a ban out of bounds",
        "impossible priorities",
        "impossible scales",
        "impossible leases",
        "tiers of one name",
        "an unknown tier",
        "paths that no request can have",
        "networks",
        "an invalid regular expression",
        "a regular expression that closes more than it opens",
        "a regular expression too large",
        "impossible costs",
        "names of prices, and one model twice",
        "a hash of a tier's name, and a credential for one",
        "values without spellings",
        "several values that are one",
        "credentials that are nowhere, in clear, and joined",
        "trusted networks that are every address",
        "trusted networks that are every address together",
        "parameters that do not go together",
        "bodies that do not go with their format",
        "a guess of an upload's size that nothing corrects",
        "a body beside a style",
        "a page without a body",
        "unknown placeholders",
        "bodies that are no JSON with every value",
        "headers that weir or Envoy writes",
        "credentials for every origin",
        "one header twice",
        "windows that do not go with their beginning",
        "regions that do not name this one",
        "two regions of one name",
        "a home that is no region",
        "a way across regions that there are none of",
        "what cannot be done across regions",
        "counters of other bans and regions",
        "what cannot be done with a distinct limit",
        "more distinct limits than a script has time for",
        "debits that are more than a limit can owe",
        "logs that may take too long together",
        "logs of a tier that may take too long together",
        "logs that may take too long with a subject's own limits",
        "a scale under which logs may take too long together",
    ];
    for (row, text, _) in REJECTED.iter().filter(|(row, ..)| !beyond.contains(row)) {
        assert!(!matches!(validates(&json(text)), Some(Ok(()))), "{row}");
    }
}
