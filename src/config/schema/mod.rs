// SPDX-License-Identifier: Apache-2.0
//! The machinery beneath the configuration: shapes, fields, checks and errors.
//!
//! - `json.rs`, `protobuf.rs`: the two forms in which Envoy hands on a configuration, both read into a `Json`
//! - `shape.rs`: what a configuration may look like, as data
//! - `field.rs`: how an object and its fields are declared, once, with the types that they are read as
//! - `syntax.rs`: strings with a syntax of their own: durations, rates, names, networks, paths, …
//! - `check.rs`: holds a `Json` against a shape and fills in defaults
//! - `view.rs`: reads a checked object field by field
//! - `error.rs`, `hint.rs`: what is wrong with a configuration, and what the operator probably meant
//! - `json_schema.rs`, `reference.rs`: the same shapes, published for editors and for readers

mod check;
mod error;
mod field;
mod hint;
mod json;
mod json_schema;
mod protobuf;
mod reference;
mod shape;
mod syntax;
mod view;

pub(super) use check::check;
pub(super) use error::Errors;
pub use error::{ConfigError, Hint};
pub(super) use field::{
    Count, Draft, Duration, Field, Flag, List, Map, Nested, Object, Rates, Tagged, Text, Typed, Variants,
    Word, WordOr, Words, count, duration, flag, list, map, nested, object, rate, tagged, text, variants,
    word, word_or, words,
};
pub(super) use hint::nearest;
pub(super) use json::Json;
pub(super) use json_schema::json_schema;
pub(super) use protobuf::parse as protobuf;
pub(super) use reference::{fields, used, vocabulary};
pub(super) use shape::{Choice, Doc, Kind, Shape, WordShape};
pub(super) use syntax::{
    ADDED_HEADER, BODY, BODY_PATH, DAY_SPAN, HEADER, HEADER_VALUE, HOST, KEY_PREFIX, METHOD, MODEL, NAME,
    NETWORK, ORIGIN, PATH, REGEX, SECRET, STATUS, TEXT, UTC_OFFSET, VARIABLE, WEIGHT, day_span,
    duration as duration_of, duration_text, statuses, utc_offset,
};
pub(super) use view::{Entries, Items, Variant, View};
