// SPDX-License-Identifier: Apache-2.0
//! Configuration that the command writes: values in the order in which they are to be read, with comments, as YAML that Envoy,
//! Kubernetes and people read alike, or as JSON.

use std::fmt::Write as _;

use serde_json::Value;

use super::document::{Content, Node, Syntax};
use super::words::printable;

/// The maximum width of a line with several values on it.
const WIDTH: usize = 110;

/// At this depth, what fits on a line is written on one.
const FLOW_DEPTH: usize = 3;

/// On one line, values are nested at most so deep.
const FLOW_NESTING: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Map),
}

/// Names and values, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Map(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    comment: Vec<String>,
    name: String,
    value: Tree,
}

impl Map {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn set(&mut self, name: &str, value: impl Into<Tree>) -> &mut Self {
        self.commented(name, Vec::new(), value)
    }

    /// Adds a value with lines of comment above it.
    pub fn commented(&mut self, name: &str, comment: Vec<String>, value: impl Into<Tree>) -> &mut Self {
        self.0.push(Entry { comment, name: name.to_owned(), value: value.into() });
        self
    }

    pub fn get(&self, name: &str) -> Option<&Tree> {
        self.0.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
    }

    /// The text of this name; empty, if there is none.
    pub fn text_of(&self, name: &str) -> &str {
        if let Some(Tree::Scalar(value)) = self.get(name) { value.as_str().unwrap_or_default() } else { "" }
    }

    /// The value of this name, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tree> {
        self.0.iter_mut().find(|entry| entry.name == name).map(|entry| &mut entry.value)
    }

    /// Sets a value in the place of the one of this name, or at the end.
    pub fn replace(&mut self, name: &str, value: impl Into<Tree>) {
        match self.get_mut(name) {
            Some(old) => *old = value.into(),
            None => drop(self.set(name, value)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Tree> {
        let place = self.0.iter().position(|entry| entry.name == name)?;
        Some(self.0.remove(place).value)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.name.as_str())
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl<const N: usize> From<[(&str, Tree); N]> for Map {
    fn from(entries: [(&str, Tree); N]) -> Self {
        let mut map = Self::new();
        for (name, value) in entries {
            map.set(name, value);
        }
        map
    }
}

impl<T: Into<Map>> From<T> for Tree {
    fn from(map: T) -> Self {
        Self::Map(map.into())
    }
}

impl From<&str> for Tree {
    fn from(text: &str) -> Self {
        Self::Scalar(text.into())
    }
}

impl From<String> for Tree {
    fn from(text: String) -> Self {
        Self::Scalar(text.into())
    }
}

impl From<u64> for Tree {
    fn from(number: u64) -> Self {
        Self::Scalar(number.into())
    }
}

impl From<bool> for Tree {
    fn from(flag: bool) -> Self {
        Self::Scalar(flag.into())
    }
}

impl From<Vec<Self>> for Tree {
    fn from(items: Vec<Self>) -> Self {
        Self::List(items)
    }
}

impl From<&Node> for Tree {
    fn from(node: &Node) -> Self {
        Self::of(node, &[])
    }
}

impl Tree {
    /// YAML of this program, with each of these values where `$NAME` is written as one. Nothing is replaced inside of the values.
    pub fn template(yaml: &str, values: &[(&str, Self)]) -> Self {
        let documents = Node::parse(yaml, Syntax::Yaml).unwrap_or_default();
        Self::of(documents.first().unwrap_or(&Node::empty()), values)
    }

    fn of(node: &Node, values: &[(&str, Self)]) -> Self {
        match &node.content {
            Content::Scalar(value) => {
                let name = value.as_str().and_then(|text| text.strip_prefix('$'));
                let named = name.and_then(|name| values.iter().find(|(other, _)| *other == name));
                named.map_or_else(|| Self::Scalar(value.clone()), |(_, value)| value.clone())
            }
            Content::List(items) => Self::List(items.iter().map(|item| Self::of(item, values)).collect()),
            Content::Object(fields) => {
                let entry = |(name, _, value): &(String, _, Node)| Entry {
                    comment: Vec::new(),
                    name: name.clone(),
                    value: Self::of(value, values),
                };
                Self::Map(Map(fields.iter().map(entry).collect()))
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<&Self> {
        if let Self::Map(map) = self { map.get(name) } else { None }
    }

    /// The value at the end of these names, to change it.
    pub fn at_mut(&mut self, names: &[&str]) -> Option<&mut Self> {
        names.iter().try_fold(self, |tree, name| match tree {
            Self::Map(map) => map.get_mut(name),
            _ => None,
        })
    }

    /// Names and values, to change them.
    pub const fn map_mut(&mut self) -> Option<&mut Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    pub fn items(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { &[] }
    }

    /// The text in the field called `name`.
    pub fn text_of(&self, name: &str) -> &str {
        if let Self::Map(map) = self { map.text_of(name) } else { "" }
    }

    /// Changes each value, the outer ones first.
    pub fn change(&mut self, each: &mut dyn FnMut(&mut Self)) {
        each(self);
        match self {
            Self::Scalar(_) => {}
            Self::List(items) => items.iter_mut().for_each(|item| item.change(each)),
            Self::Map(map) => map.0.iter_mut().for_each(|entry| entry.value.change(each)),
        }
    }

    /// As JSON. Of names that come twice the last counts, as in YAML.
    pub fn json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => items.iter().map(Self::json).collect(),
            Self::Map(map) => map.0.iter().map(|entry| (entry.name.clone(), entry.value.json())).collect(),
        }
    }

    /// As YAML, in lines that each end with a line feed.
    pub fn yaml(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Map(map) if !map.is_empty() => map.write(&mut out, 0, 0),
            Self::List(items) if !items.is_empty() => write_list(items, &mut out, 0, 0),
            other => {
                let _ = writeln!(out, "{}", other.flow());
            }
        }
        out
    }

    fn flow(&self) -> String {
        match self {
            Self::Scalar(value) => scalar(value),
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::flow).collect::<Vec<_>>().join(", "))
            }
            Self::Map(map) => {
                let entry = |entry: &Entry| format!("{}: {}", text(&entry.name), entry.value.flow());
                format!("{{{}}}", map.0.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The depth to which lists and maps are nested in it. Lists of words do not count.
    fn nesting(&self) -> usize {
        let inner = match self {
            Self::Scalar(_) => return 0,
            Self::List(items) if items.iter().all(|item| matches!(item, Self::Scalar(_))) => return 0,
            Self::List(items) => items.iter().map(Self::nesting).max(),
            Self::Map(map) => map.0.iter().map(|entry| entry.value.nesting()).max(),
        };
        inner.unwrap_or(0).saturating_add(1)
    }

    fn has_comment(&self) -> bool {
        match self {
            Self::Scalar(_) => false,
            Self::List(items) => items.iter().any(Self::has_comment),
            Self::Map(map) => {
                map.0.iter().any(|entry| !entry.comment.is_empty() || entry.value.has_comment())
            }
        }
    }

    /// A string of several lines that can be written as they are.
    fn block(&self) -> Option<&str> {
        let Self::Scalar(Value::String(text)) = self else { return None };
        let lines = text.strip_suffix('\n')?;
        let is_plain = lines
            .lines()
            .all(|line| !line.is_empty() && !line.ends_with(' ') && !line.contains(char::is_control));
        (is_plain && lines.starts_with(|first: char| first.is_ascii_graphic()) && !lines.ends_with('\n'))
            .then_some(text)
    }

    /// The value, if it fits on a line that has so many characters already.
    fn on_a_line(&self, before: usize, depth: usize) -> Option<String> {
        match self {
            Self::Scalar(value) => Some(scalar(value)),
            Self::List(items) if items.is_empty() => Some(String::from("[]")),
            Self::Map(map) if map.is_empty() => Some(String::from("{}")),
            _ if depth < FLOW_DEPTH || self.nesting() > FLOW_NESTING || self.has_comment() => None,
            _ => Some(self.flow()).filter(|flow| before.saturating_add(flow.chars().count()) <= WIDTH),
        }
    }
}

impl Map {
    /// Each entry on lines of its own. The first line of the first one is already indented.
    fn write(&self, out: &mut String, indent: usize, depth: usize) {
        for entry in &self.0 {
            for line in &entry.comment {
                let _ = writeln!(out, "{:indent$}# {}", "", printable(line));
            }
            let name = text(&entry.name);
            if let Some(lines) = entry.value.block() {
                let _ = writeln!(out, "{:indent$}{name}: |", "");
                let deeper = indent.saturating_add(2);
                for line in lines.lines() {
                    let _ = writeln!(out, "{:deeper$}{line}", "");
                }
                continue;
            }
            let before = indent.saturating_add(name.chars().count()).saturating_add(2);
            if let Some(value) = entry.value.on_a_line(before, depth.saturating_add(1)) {
                let _ = writeln!(out, "{:indent$}{name}: {value}", "");
                continue;
            }
            let _ = writeln!(out, "{:indent$}{name}:", "");
            match &entry.value {
                Tree::Map(map) => map.write(out, indent.saturating_add(2), depth.saturating_add(1)),
                Tree::List(items) => write_list(items, out, indent, depth.saturating_add(1)),
                Tree::Scalar(_) => {}
            }
        }
    }
}

fn write_list(items: &[Tree], out: &mut String, indent: usize, depth: usize) {
    for item in items {
        let deeper = indent.saturating_add(2);
        if let Some(value) = item.on_a_line(deeper, depth.saturating_add(1)) {
            let _ = writeln!(out, "{:indent$}- {value}", "");
            continue;
        }
        let mut inner = String::new();
        match item {
            Tree::Map(map) => map.write(&mut inner, deeper, depth.saturating_add(1)),
            Tree::List(items) => write_list(items, &mut inner, deeper, depth.saturating_add(1)),
            Tree::Scalar(_) => {}
        }
        // Comments above the first name stay above the dash.
        let mut lines = inner.split_inclusive('\n').peekable();
        while let Some(line) = lines.next_if(|line| line.trim_start().starts_with('#')) {
            out.push_str(line.get(2..).unwrap_or_default());
        }
        for (number, line) in lines.enumerate() {
            if number == 0 {
                let _ = write!(out, "{:indent$}- {}", "", line.trim_start());
            } else {
                out.push_str(line);
            }
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(word) => text(word),
        other => other.to_string(),
    }
}

/// A string: in quotes, unless every reader of YAML reads it as a string without them.
fn text(word: &str) -> String {
    let first = word.chars().next().unwrap_or(' ');
    let begins = first.is_ascii_alphabetic() || first == '/' || first == '_' || first == '$';
    // `10/s` and `50ms` begin as numbers, and are none.
    let rate = first.is_ascii_digit()
        && word.chars().last().is_some_and(|last| "smhd".contains(last))
        && word.chars().all(|next| next.is_ascii_digit() || "/usmhd".contains(next))
        && word.chars().any(|next| "smhd".contains(next));
    let plain = word.chars().all(|next| next.is_ascii_alphanumeric() || "_-./$@".contains(next));
    let lower = word.to_ascii_lowercase();
    let reserved = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"].contains(&lower.as_str());
    if (begins || rate) && plain && !reserved {
        return word.to_owned();
    }
    let quoted = Value::from(word).to_string();
    quoted.chars().fold(String::new(), |mut out, next| {
        if next.is_control() || "\u{2028}\u{2029}\u{feff}".contains(next) {
            let _ = write!(out, "\\u{:04x}", u32::from(next));
        } else {
            out.push(next);
        }
        out
    })
}
