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

/// Compares what is generated with what is published at this path. `WEIR_UPDATE=1` writes it instead.
#[cfg(not(target_arch = "wasm32"))]
pub fn published(path: &str, generated: &str) {
    let path = crate::root().join(path);
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, generated).expect("written");
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == generated,
        "{} is not what the code says; WEIR_UPDATE=1 cargo test writes it",
        path.display()
    );
}

/// The page, with what `generated` says between each comment `<!-- MARK NAME -->` and the next `<!-- end -->`; and the names.
#[cfg(not(target_arch = "wasm32"))]
pub fn written(page: &str, mark: &str, generated: impl Fn(&str) -> String) -> (String, Vec<String>) {
    let begin = format!("<!-- {mark}: ");
    let mut parts = page.split(&begin);
    let (mut out, mut names) = (parts.next().expect("a mark and its end").to_owned(), Vec::new());
    for part in parts {
        let (name, rest) = part.split_once(" -->").expect("a mark and its end");
        let (_, rest) = rest.split_once("<!-- end -->").expect("a mark and its end");
        out.push_str(&format!("{begin}{name} -->\n{}<!-- end -->{rest}", generated(name)));
        names.push(name.to_owned());
    }
    (out, names)
}
