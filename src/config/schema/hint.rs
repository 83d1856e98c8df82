// SPDX-License-Identifier: Apache-2.0
//! The operator's probable intention: a field's former name, or a typing error.

use super::error::Hint;
use super::json::Json;
use super::syntax;

/// Former names of fields, each with its present name. The error about a former name contains the present one.
const RENAMED: &[(&str, &str)] = &[
    ("absent", "on_missing"),
    ("equals", "exact"),
    ("least", "min"),
    ("most", "max"),
    ("of", "limits"),
    ("otherwise", "default"),
    ("property", "attribute"),
    ("record", "emit_filter_state"),
    ("several", "on_multiple"),
    ("source", "client_address"),
];

/// Returns the name among `names` that was probably meant by the unknown field `name`.
pub fn meant<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone) -> Option<Hint> {
    let renamed = RENAMED.iter().find(|(former, _)| *former == name).map(|(_, present)| *present);
    match renamed {
        Some(present) if names.clone().any(|name| name == present) => Some(Hint::Renamed(present)),
        _ => nearest(name, names),
    }
}

/// The field and its value, where they are run together (`limit:5` is one word of YAML), or where a limit with a window has a rate.
pub fn with_value<'a>(
    name: &str,
    value: &Json,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<Hint> {
    let is_known = |wanted: &str| names.clone().any(|name| name == wanted);
    if let Some((field, rest)) = name.split_once(':').filter(|(field, _)| is_known(field)) {
        return Some(Hint::Nearest(format!("{field}: {rest}")));
    }
    let Json::Text(text) = value else { return None };
    let rate = syntax::rate(text).filter(|_| name == "rate" && is_known("limit") && is_known("window"))?;
    Some(Hint::Nearest(format!("limit: {}, window: {}", rate.count, syntax::duration_text(rate.per))))
}

/// The name most like `word`, when at most a third of the word's letters differ.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<Hint> {
    let allowed = word.chars().count().min(64).div_ceil(3);
    names
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| Hint::Nearest(name.to_owned()))
}

/// The Levenshtein distance: how many letters must be added, removed or changed to make `from` into `to`. Only the first 64
/// count.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, left) in from.chars().take(64).enumerate() {
        let mut diagonal = line;
        let mut before = line.saturating_add(1);
        for (cell, right) in row.iter_mut().zip(core::iter::once(None).chain(to.chars().map(Some))) {
            let above = *cell;
            let value = match right {
                None => line.saturating_add(1),
                Some(right) => {
                    let changed = diagonal.saturating_add(usize::from(left != right));
                    changed.min(above.saturating_add(1)).min(before.saturating_add(1))
                }
            };
            diagonal = above;
            before = value;
            *cell = value;
        }
    }
    row.last().copied().unwrap_or(0)
}
