// SPDX-License-Identifier: Apache-2.0
//! A shape as a JSON Schema (2020-12): what `weir schema` prints and editors read.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::shape::{Choice, FieldShape, Kind, Need, Shape, Syntax};
use super::syntax;

/// The schema, as text that ends with a newline.
#[must_use]
pub fn json_schema(root: &'static Shape) -> String {
    let mut definitions = BTreeMap::new();
    let root = reference(&Kind::Object(root), &mut definitions);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "weir",
        "$defs": definitions,
    });
    merge(&mut schema, root);
    format!("{schema:#}\n")
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// The schema of a kind; shapes and syntaxes go to the definitions, once.
fn reference(kind: &Kind, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Count(min, max) => json!({
            "type": ["integer", "string"],
            "minimum": min,
            "maximum": max,
            "pattern": syntax::COUNT_PATTERN,
        }),
        Kind::Duration(min, max) => {
            let (min, max) = (syntax::duration_text(*min), syntax::duration_text(*max));
            json!({"type": "string", "pattern": syntax::DURATION_PATTERN, "$comment": format!("from {min} to {max}")})
        }
        Kind::Text(syntax) => {
            definitions.entry(syntax.name).or_insert_with(|| string(syntax));
            json!({"$ref": format!("#/$defs/{}", syntax.name)})
        }
        Kind::Word(words) => {
            let each = words.iter().map(|word| json!({"const": word.name, "description": word.doc.text()}));
            json!({"type": "string", "oneOf": each.collect::<Vec<_>>()})
        }
        Kind::WordOr(word, shape) => {
            let word = json!({"const": word.name, "description": word.doc.text()});
            json!({"oneOf": [word, define(shape, None, definitions)]})
        }
        Kind::List(of, min, max) => {
            json!({"type": "array", "items": reference(of, definitions), "minItems": min, "maxItems": max})
        }
        Kind::Map(of, min, max) => json!({
            "type": "object",
            "propertyNames": reference(&Kind::Text(&syntax::NAME), definitions),
            "additionalProperties": reference(of, definitions),
            "minProperties": min,
            "maxProperties": max,
        }),
        Kind::Object(shape) => define(shape, None, definitions),
        Kind::Tagged(tag, shapes) => {
            let names: Vec<&str> = shapes.iter().map(|shape| shape.name).collect();
            // An error of `oneOf` only says that no shape fits. With `if`/`then`, the error names what is wrong in the chosen shape.
            let each = shapes.iter().map(|shape| {
                let named = json!({"properties": {*tag: {"const": shape.name}}, "required": [tag]});
                json!({"if": named, "then": define(shape, Some(tag), definitions)})
            });
            let each: Vec<Value> = each.collect();
            json!({"type": "object", "properties": {*tag: {"enum": names}}, "required": [tag], "allOf": each})
        }
    }
}

fn string(syntax: &Syntax) -> Value {
    let mut schema = json!({"type": "string", "maxLength": syntax.max, "description": syntax.allowed});
    if !syntax.pattern.is_empty() {
        merge(&mut schema, json!({"pattern": syntax.pattern}));
    }
    if let Some((min, max)) = syntax.number {
        merge(&mut schema, json!({"type": ["string", "number"], "minimum": min, "maximum": max}));
    }
    schema
}

fn define(
    shape: &'static Shape,
    tag: Option<&str>,
    definitions: &mut BTreeMap<&'static str, Value>,
) -> Value {
    let reference = json!({"$ref": format!("#/$defs/{}", shape.name)});
    if definitions.contains_key(shape.name) {
        return reference;
    }
    // The place is taken first, because a shape may contain itself.
    definitions.insert(shape.name, Value::Null);
    let mut properties: BTreeMap<&str, Value> =
        shape.fields.iter().map(|field| (field.name, property(field, definitions))).collect();
    let required = shape.fields.iter().filter(|field| matches!(field.need, Need::Required));
    let required: Vec<&str> = required.map(|field| field.name).collect();
    if let Some(tag) = tag {
        properties.insert(tag, json!(true));
    }
    let mut schema = json!({
        "type": "object",
        "description": shape.doc.text(),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    match shape.choice {
        Choice::Free => {}
        Choice::ExactlyOne(choice) => {
            let each = choice.iter().map(|field| json!({"required": [field.name]}));
            merge(&mut schema, json!({"oneOf": each.collect::<Vec<_>>()}));
        }
        Choice::AtMostOne(choice) => {
            let pairs = choice.iter().enumerate().flat_map(|(index, one)| {
                let others = choice.iter().skip(index.saturating_add(1));
                others.map(move |other| json!({"required": [one.name, other.name]}))
            });
            merge(&mut schema, json!({"not": {"anyOf": pairs.collect::<Vec<_>>()}}));
        }
    }
    definitions.insert(shape.name, schema);
    reference
}

fn property(field: &FieldShape, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    let mut schema = reference(&field.kind, definitions);
    merge(&mut schema, json!({"description": field.doc.text()}));
    if let Need::Default(text) = field.need {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        merge(&mut schema, json!({"default": value}));
    }
    schema
}
