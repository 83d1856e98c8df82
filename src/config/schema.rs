//! The configuration language as a JSON Schema (2020-12): what `weir schema` prints and editors read.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::language::CONFIG;
use super::shape::{Choice, Field, Kind, Need, Shape, Syntax};
use super::{check, text};

/// The schema, as text that ends with a newline.
#[must_use]
pub fn schema() -> String {
    let mut definitions = BTreeMap::new();
    let root = reference(&Kind::Object(&CONFIG), &mut definitions);
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
        Kind::Count(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Span(min, max) => {
            let (min, max) = (text::span_text(*min), text::span_text(*max));
            json!({"type": "string", "pattern": text::SPAN_PATTERN, "$comment": format!("from {min} to {max}")})
        }
        Kind::Text(syntax) => {
            definitions.entry(syntax.name).or_insert_with(|| string(syntax));
            json!({"$ref": format!("#/$defs/{}", syntax.name)})
        }
        Kind::Word(words) => {
            let each = words.iter().map(|word| json!({"const": word.name, "description": word.doc.text()}));
            json!({"type": "string", "oneOf": each.collect::<Vec<_>>()})
        }
        Kind::List(of, min, max) => {
            json!({"type": "array", "items": reference(of, definitions), "minItems": min, "maxItems": max})
        }
        Kind::Map(of, min, max) => json!({
            "type": "object",
            "propertyNames": reference(&Kind::Text(&text::NAME), definitions),
            "additionalProperties": reference(of, definitions),
            "minProperties": min,
            "maxProperties": max,
        }),
        Kind::Object(shape) => define(shape, None, definitions),
        Kind::Tagged(tag, shapes) => {
            let each = shapes.iter().map(|shape| define(shape, Some(tag), definitions));
            json!({"oneOf": each.collect::<Vec<_>>()})
        }
    }
}

fn string(syntax: &Syntax) -> Value {
    let mut schema = json!({"type": "string", "maxLength": syntax.max, "description": syntax.allowed});
    if !syntax.pattern.is_empty() {
        merge(&mut schema, json!({"pattern": syntax.pattern}));
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
    // Its place is taken first: a condition may hold conditions.
    definitions.insert(shape.name, Value::Null);
    let mut properties: BTreeMap<&str, Value> =
        shape.fields.iter().map(|field| (field.name, property(field, definitions))).collect();
    let required = shape.fields.iter().filter(|field| matches!(field.need, Need::Required));
    let mut required: Vec<&str> = required.map(|field| field.name).collect();
    if let Some(tag) = tag {
        properties.insert(tag, json!({"const": shape.name}));
        required.push(tag);
    }
    let mut schema = json!({
        "type": "object",
        "description": shape.doc.text(),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let need = |names: &[&str]| json!({"required": names});
    match shape.choice {
        Choice::Free => {}
        Choice::One(names) => {
            let each = names.iter().map(|name| need(&[name]));
            merge(&mut schema, json!({"oneOf": each.collect::<Vec<_>>()}));
        }
        Choice::AtMostOne(names) => {
            let pairs = names.iter().enumerate().flat_map(|(index, one)| {
                names.iter().skip(index.saturating_add(1)).map(move |other| need(&[one, other]))
            });
            merge(&mut schema, json!({"not": {"anyOf": pairs.collect::<Vec<_>>()}}));
        }
    }
    definitions.insert(shape.name, schema);
    reference
}

fn property(field: &Field, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    let mut schema = reference(&field.kind, definitions);
    merge(&mut schema, json!({"description": field.doc.text()}));
    if let Need::Default(text) = field.need {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        merge(&mut schema, json!({"default": value}));
    }
    schema
}

/// The fields of every shape, as Markdown: for `docs/configuration.md`.
#[must_use]
pub fn fields(shape: &str) -> Option<String> {
    let shape = shapes().into_iter().find(|(known, _)| known.name == shape)?;
    let (shape, tag) = shape;
    let mut out = format!("{}\n", shape.doc.text());
    match shape.choice {
        Choice::Free => {}
        Choice::One(names) => out.push_str(&format!("\nExactly one of {}.\n", code(names))),
        Choice::AtMostOne(names) => out.push_str(&format!("\nAt most one of {}.\n", code(names))),
    }
    if shape.fields.is_empty() {
        return Some(out);
    }
    out.push_str("\n| field | value | when absent | meaning |\n|---|---|---|---|\n");
    if let Some(tag) = tag {
        out.push_str(&format!("| `{tag}` | `\"{}\"` | *required* | Which kind of limit. |\n", shape.name));
    }
    for field in shape.fields {
        let absent = match field.need {
            Need::Required => String::from("*required*"),
            Need::Optional => String::new(),
            Need::Default(text) => format!("`{text}`"),
        };
        let mut meaning = field.doc.text().to_owned();
        if let Kind::Word(words) = field.kind {
            for word in words {
                meaning.push_str(&format!("<br>`{}`: {}", word.name, word.doc.text()));
            }
        }
        let value = value(&field.kind).replace('|', "\\|");
        out.push_str(&format!(
            "| `{}` | {value} | {absent} | {} |\n",
            field.name,
            meaning.replace('|', "\\|")
        ));
    }
    Some(out)
}

fn code(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What a kind allows, with links to shapes.
fn value(kind: &Kind) -> String {
    let link = |shape: &Shape| format!("[{0}](#{0})", shape.name);
    match kind {
        Kind::Span(min, max) => format!("duration, {} to {}", text::span_text(*min), text::span_text(*max)),
        Kind::Text(syntax) => syntax.allowed.to_owned(),
        Kind::Word(words) => {
            words.iter().map(|word| format!("`\"{}\"`", word.name)).collect::<Vec<_>>().join(", ")
        }
        Kind::List(of, min, max) => format!("list of {min} to {max}: {}", value(of)),
        Kind::Map(of, min, max) => format!("object of {min} to {max} names, each with a {}", value(of)),
        Kind::Object(shape) => link(shape),
        Kind::Tagged(_, shapes) => shapes.iter().map(|shape| link(shape)).collect::<Vec<_>>().join(", "),
        Kind::Flag | Kind::Count(..) => check::allowed(kind),
    }
}

/// Every shape of the language, and the tag that tells it from others where one does.
fn shapes() -> Vec<(&'static Shape, Option<&'static str>)> {
    fn visit(kind: &'static Kind, out: &mut Vec<(&'static Shape, Option<&'static str>)>) {
        match kind {
            Kind::List(of, ..) | Kind::Map(of, ..) => visit(of, out),
            Kind::Object(shape) => add(shape, None, out),
            Kind::Tagged(tag, shapes) => shapes.iter().for_each(|shape| add(shape, Some(tag), out)),
            Kind::Flag | Kind::Count(..) | Kind::Span(..) | Kind::Text(_) | Kind::Word(_) => {}
        }
    }
    fn add(
        shape: &'static Shape,
        tag: Option<&'static str>,
        out: &mut Vec<(&'static Shape, Option<&'static str>)>,
    ) {
        if out.iter().all(|(known, _)| known.name != shape.name) {
            out.push((shape, tag));
            shape.fields.iter().for_each(|field| visit(&field.kind, out));
        }
    }
    let mut out = Vec::new();
    add(&CONFIG, None, &mut out);
    out
}

/// The names of all shapes, and of the fields and words of each: `policy`, `policy.name`, `policy.mode=shadow`.
/// What examples have to show.
#[must_use]
pub fn vocabulary() -> Vec<String> {
    let mut out = Vec::new();
    for (shape, _) in shapes() {
        out.push(shape.name.to_owned());
        for field in shape.fields {
            out.push(format!("{}.{}", shape.name, field.name));
            if let Kind::Word(words) = field.kind {
                out.extend(words.iter().map(|word| format!("{}.{}={}", shape.name, field.name, word.name)));
            }
        }
    }
    out
}

/// The part of the [`vocabulary`] that a configuration uses, as it is written: defaults do not count.
#[must_use]
pub fn used(config: &Value) -> Vec<String> {
    fn visit(kind: &Kind, value: &Value, out: &mut Vec<String>) {
        match (kind, value) {
            (Kind::Object(shape), Value::Object(_)) => object(shape, value, out),
            (Kind::Tagged(tag, shapes), Value::Object(fields)) => {
                let word = fields.get(*tag).and_then(Value::as_str).unwrap_or_default();
                shapes.iter().filter(|shape| shape.name == word).for_each(|shape| object(shape, value, out));
            }
            (Kind::List(of, ..), Value::Array(items)) => items.iter().for_each(|item| visit(of, item, out)),
            (Kind::Map(of, ..), Value::Object(items)) => items.values().for_each(|item| visit(of, item, out)),
            _ => {}
        }
    }
    fn object(shape: &Shape, value: &Value, out: &mut Vec<String>) {
        out.push(shape.name.to_owned());
        for field in shape.fields {
            let Some(inner) = value.get(field.name) else { continue };
            out.push(format!("{}.{}", shape.name, field.name));
            if let (Kind::Word(_), Value::String(word)) = (&field.kind, inner) {
                out.push(format!("{}.{}={word}", shape.name, field.name));
            }
            visit(&field.kind, inner, out);
        }
    }
    let mut out = Vec::new();
    visit(&Kind::Object(&CONFIG), config, &mut out);
    out
}
