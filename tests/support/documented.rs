// SPDX-License-Identifier: Apache-2.0
//! The configurations that the guide and the reference show.

/// The pages, by their paths.
pub const PAGES: &[(&str, &str)] = &[
    ("docs/configuration.md", include_str!("../../docs/configuration.md")),
    ("docs/policies.md", include_str!("../../docs/policies.md")),
    ("docs/subjects.md", include_str!("../../docs/subjects.md")),
    ("docs/readings.md", include_str!("../../docs/readings.md")),
    ("docs/bodies.md", include_str!("../../docs/bodies.md")),
    ("docs/costs.md", include_str!("../../docs/costs.md")),
    ("docs/language-models.md", include_str!("../../docs/language-models.md")),
    ("docs/bans.md", include_str!("../../docs/bans.md")),
    ("docs/failure.md", include_str!("../../docs/failure.md")),
    ("docs/clients.md", include_str!("../../docs/clients.md")),
    ("docs/concepts.md", include_str!("../../docs/concepts.md")),
    ("docs/limits.md", include_str!("../../docs/limits.md")),
];

/// Each configuration as JSON, with the page and the line that it begins on.
pub fn examples() -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (page, text) in PAGES {
        let mut at = 0;
        for block in text.split("\n```yaml weir\n").skip(1) {
            at += text[at..].find("\n```yaml weir\n").expect("the block") + 1;
            let (yaml, _) = block.split_once("\n```\n").expect("its end");
            let place = format!("{page}, line {}", text[..at].lines().count() + 1);
            let value: serde_json::Value =
                serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{place}: {error}"));
            out.push((place, value.to_string()));
        }
    }
    assert!(out.len() > 60, "{} examples are found", out.len());
    out
}
