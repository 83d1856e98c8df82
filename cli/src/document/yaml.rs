// SPDX-License-Identifier: Apache-2.0
//! Reads YAML with places.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};
use serde_json::Value;

use super::{Content, MAX_DEPTH, Node, Origin, Place, Wrong};

const MAX_COPIED: usize = 1_000_000;

/// Reads the documents of a file.
pub fn parse(text: &str) -> Result<Vec<Node>, Wrong> {
    let mut loader = Loader::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| scan_error(&error))?;
        loader.take(event, span)?;
    }
    if loader.documents.is_empty() {
        return Err((Place::START, String::from("the file is empty")));
    }
    Ok(loader.documents)
}

/// Returns the first place in valid YAML that Envoy refuses. Inside brackets or braces, Envoy's parser reads no word without quotes that
/// contains `?` or begins with `|` or `>`.
pub fn refused(text: &str) -> Option<Wrong> {
    let (mut rest, mut at) = (text.chars(), 0);
    // Whether what is open is in brackets or braces.
    let mut open = vec![false];
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let start = span.start.index();
                let skipped = start.checked_sub(at).and_then(|count| rest.nth(count));
                at = at.max(start.saturating_add(1));
                open.push(open.last() == Some(&true) || matches!(skipped, Some('[' | '{')));
            }
            Event::SequenceEnd | Event::MappingEnd => drop(open.pop()),
            Event::Scalar(word, ScalarStyle::Plain, ..)
                if open.last() == Some(&true) && (word.contains('?') || word.starts_with(['|', '>'])) =>
            {
                let said = format!(
                    "found {word:?} in brackets without quotes, which Envoy does not read, allowed: in quotes"
                );
                return Some((place_of(span.start), said));
            }
            Event::DocumentEnd => break,
            _ => {}
        }
    }
    None
}

fn place_of(marker: Marker) -> Place {
    Place { line: marker.line(), column: marker.col().saturating_add(1) }
}

fn scan_error(error: &ScanError) -> Wrong {
    let is_alias = error.info().ends_with("unknown anchor");
    let instead = if is_alias { ", allowed: a word that begins with `*` in quotes" } else { "" };
    (place_of(*error.marker()), [error.info(), instead].concat())
}

/// The state of the parser: the open nodes, and the documents read.
#[derive(Default)]
struct Loader {
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    copied: usize,
}

/// A value that aliases copy, with the number of values in it and the levels of its nesting.
#[derive(Clone)]
struct Anchored {
    node: Node,
    size: usize,
    depth: usize,
    /// Its text, if it may be the name of a field.
    name: Option<String>,
}

/// A list or an object that has begun.
struct Open {
    node: Node,
    anchor: usize,
    /// The name of a field whose value comes next.
    name: Option<(String, Place)>,
}

impl Loader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Wrong> {
        let place = place_of(span.start);
        match event {
            Event::SequenceStart(anchor, _) => self.begin(place, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.begin(place, anchor, Content::Object(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.add(open.node, open.anchor, None),
                None => Ok(()),
            },
            Event::Scalar(text, style, anchor, tag) => {
                // To Envoy a tag says that the value is no text, whatever it says and whether there are quotes; but for a lone `!`.
                let is_plain = match &tag {
                    Some(tag) => !(tag.handle.is_empty() && tag.suffix == "!"),
                    None => style == ScalarStyle::Plain,
                };
                // An empty value without a tag is null. With a tag, it is a string.
                let value = match plain(&text) {
                    value if is_plain && (tag.is_none() || !value.is_null()) => value,
                    _ => Value::from(text.as_ref()),
                };
                let name = if value.is_null() { String::from("null") } else { text.into_owned() };
                let origin = match style {
                    ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                        Origin::QuotedAtChar(span.start.index())
                    }
                    ScalarStyle::Literal => Origin::Block,
                    ScalarStyle::Plain => Origin::Plain,
                    ScalarStyle::Folded => Origin::Other,
                };
                let node = Node { place, content: Content::Scalar(value), origin: Some(origin) };
                self.add(node, anchor, Some(name))
            }
            Event::Alias(anchor) => {
                let Some(Anchored { node, size, depth, name }) = self.anchors.get(&anchor).cloned() else {
                    return Err((place, String::from("an alias is inside of what it stands for")));
                };
                self.copied = self.copied.saturating_add(size);
                if self.copied > MAX_COPIED {
                    return Err((place, format!("aliases copy more than {MAX_COPIED} values")));
                }
                if self.open.len().saturating_add(depth) > MAX_DEPTH {
                    return Err((place, format!("nested more than {MAX_DEPTH} levels deep")));
                }
                self.add(node, 0, name)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, place: Place, anchor: usize, content: Content) -> Result<(), Wrong> {
        if self.open.len() >= MAX_DEPTH {
            return Err((place, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.open.push(Open { node: Node::new(place, content), anchor, name: None });
        Ok(())
    }

    /// A value is whole: it belongs to what is open. `name` is its text, if it may be the name of a field.
    fn add(&mut self, node: Node, anchor: usize, name: Option<String>) -> Result<(), Wrong> {
        if anchor > 0 {
            let mut size = 0_usize;
            node.walk(&mut |_| size = size.saturating_add(1));
            let depth = depth(&node);
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, depth, name: name.clone() });
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        if open.node.is_object() && open.name.is_none() {
            let said = "found a list or an object as a name, allowed: a text";
            open.name = Some((name.ok_or_else(|| (node.place, said.to_owned()))?, node.place));
            return Ok(());
        }
        match &mut open.node.content {
            Content::List(items) => items.push(node),
            Content::Object(fields) => {
                fields.extend(open.name.take().map(|(name, place)| (name, place, node)))
            }
            Content::Scalar(_) => {}
        }
        Ok(())
    }
}

/// The levels of lists and objects in each other.
fn depth(node: &Node) -> usize {
    let inner = node.children().map(depth).max().unwrap_or(0);
    inner.saturating_add((!matches!(node.content, Content::Scalar(_))).into())
}

/// A word without quotes, as Envoy 1.40 reads it: null, a boolean or a whole number. Any other word is a string, also `0.5`.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if let Some(number) = integer(text) {
        // Envoy makes a string of a number beyond 32 bits, so that no digit is lost in a `Struct`.
        return i32::try_from(number).map_or_else(|_| Value::from(number.to_string()), Value::from);
    }
    Value::from(text)
}

/// A number that Envoy reads as a string: it has a fraction or an exponent, or is too large for 32 bits.
pub fn number(text: &str) -> Option<Value> {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Ok(whole) = digits.parse::<i64>() {
        return Some(Value::from(whole)).filter(|_| is_number);
    }
    let number = digits.parse::<f64>().ok().filter(|number| is_number && number.is_finite())?;
    // `1e3` is written 1000.
    Some(number.to_string().parse::<i64>().map_or_else(|_| Value::from(number), Value::from))
}

/// A whole number: decimal, hexadecimal after `0x`, or octal after a zero.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.split_at_checked(1) {
        Some(("-", digits)) => (-1, digits),
        Some(("+", digits)) => (1, digits),
        _ => (1, text),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // The parser would take a second sign.
    let is_number = digits.starts_with(|first: char| first.is_ascii_hexdigit());
    i64::from_str_radix(digits, radix).ok().filter(|_| is_number)?.checked_mul(sign)
}
