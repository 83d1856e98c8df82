// SPDX-License-Identifier: Apache-2.0
//! A shape as the field reference of `docs/configuration.md`, and as the list of everything that its examples have to show.

use serde_json::Value;

use super::shape::{Choice, FieldShape, Kind, Need, Shape};
use super::{check, syntax};

/// The fields of the shape called `name`, as Markdown: for `docs/configuration.md`.
#[must_use]
pub fn fields(root: &'static Shape, name: &str) -> Option<String> {
    let (shape, tag) = shapes(root).into_iter().find(|(shape, _)| shape.name == name)?;
    let mut out = format!("{}\n", shape.doc.text());
    match shape.choice {
        Choice::Free => {}
        Choice::ExactlyOne(choice) => out.push_str(&format!("\nExactly one of {}.\n", code(choice))),
        Choice::AtMostOne(choice) => out.push_str(&format!("\nAt most one of {}.\n", code(choice))),
    }
    if shape.fields.is_empty() {
        return Some(out);
    }
    out.push_str("\n| field | value | default | meaning |\n|---|---|---|---|\n");
    if let Some(tag) = tag {
        out.push_str(&format!(
            "| <a id=\"{0}-{tag}\"></a>`{tag}` | `{0}` | *required* | Which kind of limit. |\n",
            shape.name
        ));
    }
    for field in shape.fields {
        let default = match field.need {
            Need::Required => String::from("*required*"),
            Need::Optional => String::new(),
            Need::Default(text) => format!("`{}`", text.trim_matches('"')),
        };
        let mut meaning = field.doc.text().to_owned();
        for word in field.kind.words() {
            meaning.push_str(&format!("<br>`{}`: {}", word.name, word.doc.text()));
        }
        let value = value(&field.kind).replace('|', "\\|");
        out.push_str(&format!(
            "| <a id=\"{0}-{1}\"></a>`{1}` | {value} | {default} | {2} |\n",
            shape.name,
            field.name,
            meaning.replace('|', "\\|")
        ));
    }
    Some(out)
}

fn code(choice: &[&FieldShape]) -> String {
    choice.iter().map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ")
}

/// Describes the values that a kind allows, with links to shapes.
fn value(kind: &Kind) -> String {
    let link = |shape: &Shape| format!("[{0}](#{0})", shape.name);
    match kind {
        Kind::Duration(min, max) => {
            format!("duration, {} to {}", syntax::duration_text(*min), syntax::duration_text(*max))
        }
        Kind::Text(syntax) => syntax.allowed.to_owned(),
        Kind::Word(words) => {
            words.iter().map(|word| format!("`{}`", word.name)).collect::<Vec<_>>().join(", ")
        }
        Kind::List(of, min, max) => format!("list of {min} to {max}: {}", value(of)),
        Kind::Map(of, min, max) => format!("object of {min} to {max} names, each with a {}", value(of)),
        Kind::Object(shape) => link(shape),
        Kind::WordOr(word, shape) => format!("`{}`, {}", word.name, link(shape)),
        Kind::Tagged(_, shapes) => shapes.iter().map(|shape| link(shape)).collect::<Vec<_>>().join(", "),
        Kind::Flag | Kind::Count(..) => check::allowed(kind),
    }
}

/// Every shape, and the tag that tells it from others where one does.
fn shapes(root: &'static Shape) -> Vec<(&'static Shape, Option<&'static str>)> {
    fn visit(kind: &'static Kind, out: &mut Vec<(&'static Shape, Option<&'static str>)>) {
        match kind {
            Kind::List(of, ..) | Kind::Map(of, ..) => visit(of, out),
            Kind::Object(shape) | Kind::WordOr(_, shape) => add(shape, None, out),
            Kind::Tagged(tag, shapes) => shapes.iter().for_each(|shape| add(shape, Some(tag), out)),
            Kind::Flag | Kind::Count(..) | Kind::Duration(..) | Kind::Text(_) | Kind::Word(_) => {}
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
    add(root, None, &mut out);
    out
}

/// The names of all shapes, and of the fields and words of each: `policy`, `policy.name`, `policy.mode=shadow`.
/// Each must be in an example.
#[must_use]
pub fn vocabulary(root: &'static Shape) -> Vec<String> {
    let mut out = Vec::new();
    for (shape, _) in shapes(root) {
        out.push(shape.name.to_owned());
        for field in shape.fields {
            out.push(format!("{}.{}", shape.name, field.name));
            let words = field.kind.words().iter();
            out.extend(words.map(|word| format!("{}.{}={}", shape.name, field.name, word.name)));
        }
    }
    out
}

/// The part of the [`vocabulary`] that a configuration writes out; defaults do not count.
#[must_use]
pub fn used(root: &'static Shape, config: &Value) -> Vec<String> {
    fn visit(kind: &Kind, value: &Value, out: &mut Vec<String>) {
        match (kind, value) {
            (Kind::Object(shape) | Kind::WordOr(_, shape), Value::Object(_)) => object(shape, value, out),
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
            if let (Kind::Word(_) | Kind::WordOr(..), Value::String(word)) = (&field.kind, inner) {
                out.push(format!("{}.{}={word}", shape.name, field.name));
            }
            visit(&field.kind, inner, out);
        }
    }
    let mut out = Vec::new();
    visit(&Kind::Object(root), config, &mut out);
    out
}
