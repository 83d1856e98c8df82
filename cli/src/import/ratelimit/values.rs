// SPDX-License-Identifier: Apache-2.0
//! Numbers and names in Envoy's configuration, and a note for each value that cannot be read.

use super::super::notes::Notes;
use crate::document::{Content, Node, is_called};

pub fn number(node: &Node) -> Option<u64> {
    match &node.unwrapped().content {
        Content::Scalar(value) => value.as_u64().or_else(|| value.as_str()?.parse().ok()),
        _ => None,
    }
}

/// The default of a fraction at runtime, in percent, rounded up.
pub fn percent(filter: &Node, field: &str) -> Option<u64> {
    let value = filter.at(&[field, "default_value"])?;
    let numerator = value.get("numerator").and_then(number).unwrap_or(0);
    Some(numerator.div_ceil(value.get("denominator").and_then(denominator).unwrap_or(1)))
}

/// The factor by which a denominator divides a percent; it may be a number of protobuf.
fn denominator(node: &Node) -> Option<u64> {
    match node.text_or_number()?.as_str() {
        "HUNDRED" | "0" => Some(1),
        "TEN_THOUSAND" | "1" => Some(100),
        "MILLION" | "2" => Some(10_000),
        _ => None,
    }
}

/// The names of fields, what they take, and whether a value is that.
type Kind = (&'static str, &'static str, fn(&Node) -> bool);

/// Fields of these names have one kind of value, wherever limits are read.
const KINDS: [Kind; 5] = [
    (
        "always_consume_default_token_bucket apply_on_stream_done case_sensitive disabled expect_match failure_mode_deny ignore_case \
            include_vh_rate_limits invert_match is_negative_hits local_rate_limit_per_downstream_connection present_match skip_if_absent",
        "true or false",
        |value| matches!(value.unwrapped().text_or_number().as_deref(), Some("true" | "false")),
    ),
    (
        "max_tokens numerator stage tokens_per_fill v4_prefix_mask_len v6_prefix_mask_len",
        "a whole number",
        |value| number(value).is_some(),
    ),
    ("descriptor_key descriptor_value domain header_name query_parameter_name regex", "a string", |value| {
        value.text().is_some()
    }),
    ("denominator", "HUNDRED, TEN_THOUSAND or MILLION", |value| denominator(value).is_some()),
    ("actions headers query_parameters rate_limits routes virtual_hosts", "a list", |value| {
        !matches!(value.content, Content::Scalar(_))
    }),
];

/// Adds a note for each value in here that Envoy does not read either.
pub fn note_unreadable(notes: &mut Notes, file: usize, node: &Node) {
    for (name, place, value) in node.fields() {
        if ["typed_config", "typed_per_filter_config"].iter().any(|inner| is_called(name, inner)) {
            continue;
        }
        let kind =
            KINDS.iter().find(|(names, ..)| names.split_whitespace().any(|known| is_called(name, known)));
        match kind {
            Some((_, allowed, is_right)) if !value.is_null() && !is_right(value) => {
                let found = match &value.content {
                    Content::Scalar(value) => value.to_string(),
                    Content::List(_) => String::from("a list"),
                    Content::Object(_) => String::from("an object"),
                };
                let why = format!("found {found}, allowed: {allowed}; it counts as not set");
                notes.at(file, place.line, name, why, "Correct it");
            }
            _ => note_unreadable(notes, file, value),
        }
    }
    node.items().iter().for_each(|item| note_unreadable(notes, file, item));
}
