// SPDX-License-Identifier: Apache-2.0
//! JSON and YAML documents that keep the place of every value, so that a finding can name its line. A word in YAML means here what
//! Envoy takes it for.
//!
//! The size of a file is limited before it is read, and so is its nesting. If a file is too large or too deep, the command ends with
//! a message.

mod json;
mod origin;
mod yaml;

use std::collections::HashSet;

use serde_json::Value;

pub(super) use origin::Origin;

/// The largest text, in bytes.
pub(super) const MAX_TEXT: usize = 16 * 1024 * 1024;

/// The deepest nesting. Envoy reads no configuration that is nested as deep.
const MAX_DEPTH: usize = 128;

/// A place in a document: line and column, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
    pub const START: Self = Self { line: 1, column: 1 };
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub place: Place,
    pub content: Content,
    /// The notation of a string, from which the places inside it follow.
    pub origin: Option<Origin>,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    /// Names, their places and their values.
    Object(Vec<(String, Place, Node)>),
}

/// The notation of a document. Envoy decides by the end of the file's name, and so does the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `.json`
    Json,
    /// `.yaml` or `.yml`. JSON in such a file is read as YAML.
    Yaml,
    /// Another name: what begins as JSON and is JSON, or else YAML.
    Either,
}

impl Syntax {
    /// The syntax of the file of this name.
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name.ends_with(".json") {
            Self::Json
        } else if name.ends_with(".yaml") || name.ends_with(".yml") {
            Self::Yaml
        } else {
            Self::Either
        }
    }
}

/// A mistake in a document, and its place.
pub(super) type Wrong = (Place, String);

impl Node {
    /// A node of this content, in a document that is not shown.
    pub const fn new(place: Place, content: Content) -> Self {
        Self { place, content, origin: None }
    }

    /// An empty object at the beginning of a document.
    pub const fn empty() -> Self {
        Self::new(Place::START, Content::Object(Vec::new()))
    }

    /// Reads the documents of a file: one of JSON, or one or several of YAML.
    pub fn parse(text: &str, syntax: Syntax) -> Result<Vec<Self>, Wrong> {
        if text.len() > MAX_TEXT {
            return Err((Place::START, format!("the file is larger than {MAX_TEXT} bytes")));
        }
        match syntax {
            Syntax::Json => Ok(vec![Self::parse_json(text)?]),
            Syntax::Yaml => yaml::parse(text),
            Syntax::Either if !text.trim_start().starts_with(['{', '[']) => yaml::parse(text),
            Syntax::Either => match Self::parse_json(text) {
                Ok(node) => Ok(vec![node]),
                // In YAML, braces need no quotes inside.
                Err(wrong) => yaml::parse(text).map_err(|_| wrong),
            },
        }
    }

    /// Returns the mistake for which Envoy refuses a file that [`Node::parse`] reads; `None` if Envoy reads it, too.
    pub fn refused(text: &str, syntax: Syntax) -> Option<Wrong> {
        let is_json = syntax != Syntax::Yaml && Self::parse_json(text).is_ok();
        if is_json { None } else { yaml::refused(text) }
    }

    pub fn parse_json(text: &str) -> Result<Self, Wrong> {
        json::parse(text)
    }

    /// The field called `name`, which protobuf's JSON may also write in camel case.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.field(name).map(|(_, value)| value)
    }

    /// The same, with the place of its name. Of fields of the same name the last counts, as in Envoy.
    pub fn field(&self, name: &str) -> Option<(Place, &Self)> {
        let Content::Object(fields) = &self.content else { return None };
        let found = fields.iter().rev().find(|(field, ..)| is_called(field, name));
        found.map(|(_, place, value)| (*place, value))
    }

    /// The field at the end of these names.
    pub fn at(&self, names: &[&str]) -> Option<&Self> {
        names.iter().try_fold(self, |node, name| node.get(name))
    }

    pub fn text(&self) -> Option<&str> {
        if let Content::Scalar(Value::String(text)) = &self.content { Some(text) } else { None }
    }

    /// The text of a string, or of a number or truth value as it is written.
    pub fn text_or_number(&self) -> Option<String> {
        match &self.content {
            Content::Scalar(Value::String(text)) => Some(text.clone()),
            Content::Scalar(value) if !value.is_null() => Some(value.to_string()),
            _ => None,
        }
    }

    /// The text of the string in the field called `name`; empty if there is none.
    pub fn text_of(&self, name: &str) -> &str {
        self.get(name).and_then(Self::text).unwrap_or_default()
    }

    /// True if the field called `name` is true.
    pub fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name).map(|node| &node.content), Some(Content::Scalar(Value::Bool(true))))
    }

    /// The fields of an object: names, their places and their values; none of anything else.
    pub fn fields(&self) -> &[(String, Place, Self)] {
        if let Content::Object(fields) = &self.content { fields } else { &[] }
    }

    /// Gives each value the place that `to` says.
    pub fn moved(&mut self, to: &dyn Fn(Place) -> Place) {
        self.place = to(self.place);
        match &mut self.content {
            Content::Scalar(_) => {}
            Content::List(items) => items.iter_mut().for_each(|item| item.moved(to)),
            Content::Object(fields) => {
                for (_, place, value) in fields {
                    *place = to(*place);
                    value.moved(to);
                }
            }
        }
    }

    /// True if it is `{}`.
    pub fn is_empty_object(&self) -> bool {
        self.is_object() && self.fields().is_empty()
    }

    pub const fn is_object(&self) -> bool {
        matches!(self.content, Content::Object(_))
    }

    /// The items of a list; none of anything else.
    pub fn items(&self) -> &[Self] {
        if let Content::List(items) = &self.content { items } else { &[] }
    }

    /// The items of the list in the field called `name`.
    pub fn list(&self, name: &str) -> &[Self] {
        self.get(name).map(Self::items).unwrap_or_default()
    }

    /// The last word of the field `@type`: `Cluster` of `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    pub fn type_name(&self) -> &str {
        self.text_of("@type").rsplit('.').next().unwrap_or_default()
    }

    /// The place of the field called `name`, or else the place of this node.
    pub fn place_of(&self, name: &str) -> Place {
        self.field(name).map_or(self.place, |(place, _)| place)
    }

    /// The fields and items, one level down.
    pub fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match &self.content {
            Content::Scalar(_) => Box::new(std::iter::empty()),
            Content::List(items) => Box::new(items.iter()),
            Content::Object(fields) => Box::new(fields.iter().map(|(.., value)| value)),
        }
    }

    /// The names that an object in it has twice, where they come again.
    pub fn repeated(&self) -> Vec<(Place, &str)> {
        let mut repeated = Vec::new();
        self.walk(&mut |node| {
            if let Content::Object(fields) = &node.content {
                let mut names = HashSet::new();
                let again = fields.iter().filter(|(name, ..)| !names.insert(name.as_str()));
                repeated.extend(again.map(|(name, place, _)| (*place, name.as_str())));
            }
        });
        repeated
    }

    /// Shows each value, the outer ones first.
    pub fn walk<'a>(&'a self, show: &mut dyn FnMut(&'a Self)) {
        show(self);
        self.children().for_each(|child| child.walk(show));
    }

    /// Reads words without quotes as Kubernetes does: it takes for numbers what Envoy leaves texts, such as `0.5`. It gives resources to
    /// others as JSON, so what they are is decided there.
    pub fn read_by_kubernetes(&mut self) {
        match &mut self.content {
            Content::Scalar(value) => {
                let number =
                    value.as_str().filter(|_| self.origin == Some(Origin::Plain)).and_then(yaml::number);
                if let Some(number) = number {
                    *value = number;
                }
            }
            Content::List(items) => items.iter_mut().for_each(Self::read_by_kubernetes),
            Content::Object(fields) => fields.iter_mut().for_each(|(.., value)| value.read_by_kubernetes()),
        }
    }

    pub fn json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::json).collect(),
            Content::Object(fields) => {
                fields.iter().map(|(name, _, value)| (name.clone(), value.json())).collect()
            }
        }
    }

    /// The place of `path`, such as `policies[0].limits[1].burst`, or of the longest part of it that exists, and what is there. The place
    /// of a field is that of its name.
    pub fn look(&self, path: &str) -> (Place, &Self) {
        let path = path.strip_prefix('.').unwrap_or(path);
        match &self.content {
            Content::Object(fields) => {
                // Names may contain dots, so the longest name that fits counts.
                let fits = fields.iter().rev().filter_map(|(name, place, value)| {
                    let quoted = format!("[{}]", Value::from(name.as_str()));
                    let rest =
                        path.strip_prefix(name.as_str()).or_else(|| path.strip_prefix(quoted.as_str()))?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((rest, *place, value))
                });
                fits.min_by_key(|(rest, ..)| rest.len()).map_or((self.place, self), |(rest, place, value)| {
                    if rest.is_empty() { (place, value) } else { value.look(rest) }
                })
            }
            Content::List(items) => {
                let item = path.strip_prefix('[').and_then(|path| path.split_once(']'));
                let item =
                    item.and_then(|(index, rest)| Some((items.get(index.parse::<usize>().ok()?)?, rest)));
                item.map_or((self.place, self), |(item, rest)| item.look(rest))
            }
            Content::Scalar(_) => (self.place, self),
        }
    }
}

/// True if `field` is `name`, or `name` in camel case: `rootId`, and Envoy Gateway's `rootID`, for `root_id`.
pub fn is_called(field: &str, name: &str) -> bool {
    if field == name {
        return true;
    }
    if !name.contains('_') {
        return false;
    }
    let letters = name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase());
    field.bytes().map(|byte| byte.to_ascii_lowercase()).eq(letters)
}

/// The forms that Envoy's reader of protobuf also takes: a number, `true` or `false` in quotes, a wrapper as an object, one object in place of a list.
impl Node {
    /// The value inside of a wrapper, which may be an object: `{value: 5}` is 5.
    pub fn unwrapped(&self) -> &Self {
        match self.fields() {
            [(name, _, value)] if name == "value" => value,
            _ => self,
        }
    }

    /// `true` or `false` in the field called `name`; `None` if there is none.
    pub fn truth(&self, name: &str) -> Option<bool> {
        match &self.get(name)?.unwrapped().content {
            Content::Scalar(Value::Bool(value)) => Some(*value),
            Content::Scalar(Value::String(text)) => text.parse().ok(),
            _ => None,
        }
    }

    /// The items in the field called `name`: those of a list, or one object.
    pub fn each(&self, name: &str) -> &[Self] {
        match self.get(name) {
            Some(Self { content: Content::List(items), .. }) => items,
            Some(value) if value.is_object() => core::slice::from_ref(value),
            _ => &[],
        }
    }

    /// True if this stands for no value.
    pub const fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    /// Leaves out the fields with other names, in all objects.
    pub fn retain(&mut self, keeps: &dyn Fn(&str) -> bool) {
        match &mut self.content {
            Content::Scalar(_) => {}
            Content::List(items) => items.iter_mut().for_each(|item| item.retain(keeps)),
            Content::Object(fields) => {
                fields.retain(|(name, ..)| keeps(name));
                fields.iter_mut().for_each(|(.., value)| value.retain(keeps));
            }
        }
    }
}
