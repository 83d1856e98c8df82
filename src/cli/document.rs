//! JSON and YAML documents that keep the place of every value, so that an error can name its line. A word in YAML means here what
//! Envoy takes it for.

use saphyr::{MarkedYaml, ScalarStyle, ScanError, YamlData, YamlLoader};
use saphyr_parser::Parser;
use serde_json::Value;

/// A place in a text: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub line: usize,
    pub column: usize,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub place: Place,
    pub content: Content,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    /// Names, their places and their values.
    Object(Vec<(String, Place, Node)>),
}

impl Node {
    /// Reads a text of one document. YAML 1.2 includes JSON.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, (Place, String)> {
        let wrong = |error: &ScanError| {
            let marker = error.marker();
            (Place { line: marker.line(), column: marker.col().saturating_add(1) }, error.info().to_owned())
        };
        let mut loader = YamlLoader::<MarkedYaml<'_>>::default();
        loader.early_parse(false);
        Parser::new_from_str(text).load(&mut loader, true).map_err(|error| wrong(&error))?;
        loader.error().map_or(Ok(()), |error| Err(wrong(error)))?;
        let documents = loader.into_documents();
        let first =
            documents.first().ok_or((Place { line: 1, column: 1 }, String::from("the file is empty")))?;
        Ok(Self::from(first))
    }

    /// The field called `name`.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Content::Object(fields) = &self.content else { return None };
        fields.iter().find(|(field, ..)| field == name).map(|(.., value)| value)
    }

    /// The text of a string.
    pub fn text(&self) -> Option<&str> {
        if let Content::Scalar(Value::String(text)) = &self.content { Some(text) } else { None }
    }

    /// The fields and items, one level down.
    pub fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match &self.content {
            Content::Scalar(_) => Box::new(std::iter::empty()),
            Content::List(items) => Box::new(items.iter()),
            Content::Object(fields) => Box::new(fields.iter().map(|(.., value)| value)),
        }
    }

    /// The value as JSON.
    pub fn json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::json).collect(),
            Content::Object(fields) => {
                fields.iter().map(|(name, _, value)| (name.clone(), value.json())).collect()
            }
        }
    }

    /// The place of `path`, such as `policies[0].limits[1].burst`, or of the longest part of it that exists. The place of a
    /// field is that of its name.
    pub fn find(&self, path: &str) -> Place {
        let path = path.strip_prefix('.').unwrap_or(path);
        match &self.content {
            Content::Object(fields) => {
                // Names may contain dots, so the longest name that fits counts.
                let fits = fields.iter().filter_map(|(name, place, value)| {
                    let quoted = format!("[{}]", Value::from(name.as_str()));
                    let rest =
                        path.strip_prefix(name.as_str()).or_else(|| path.strip_prefix(quoted.as_str()))?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((rest, *place, value))
                });
                fits.min_by_key(|(rest, ..)| rest.len()).map_or(self.place, |(rest, place, value)| {
                    if rest.is_empty() { place } else { value.find(rest) }
                })
            }
            Content::List(items) => {
                let item = path.strip_prefix('[').and_then(|path| path.split_once(']'));
                let item =
                    item.and_then(|(index, rest)| Some((items.get(index.parse::<usize>().ok()?)?, rest)));
                item.map_or(self.place, |(item, rest)| item.find(rest))
            }
            Content::Scalar(_) => self.place,
        }
    }
}

impl From<&MarkedYaml<'_>> for Node {
    fn from(yaml: &MarkedYaml<'_>) -> Self {
        let start = yaml.span.start;
        let place = Place { line: start.line(), column: start.col().saturating_add(1) };
        let content = match &yaml.data {
            YamlData::Sequence(items) => Content::List(items.iter().map(Self::from).collect()),
            YamlData::Mapping(fields) => {
                let field = |(name, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| {
                    let place = Self::from(name).place;
                    let text = match &name.data {
                        YamlData::Representation(text, ..) => text.as_ref().to_owned(),
                        _ => Self::from(name).json().to_string(),
                    };
                    (text, place, Self::from(value))
                };
                Content::Object(fields.iter().map(field).collect())
            }
            YamlData::Tagged(_, inner) => return Self::from(&**inner),
            data => Content::Scalar(scalar(data)),
        };
        Self { place, content }
    }
}

fn scalar<'a>(data: &YamlData<'a, MarkedYaml<'a>>) -> Value {
    match data {
        YamlData::Representation(text, ScalarStyle::Plain, _) => plain(text),
        YamlData::Representation(text, ..) => Value::from(text.as_ref()),
        _ => Value::Null,
    }
}

/// A word without quotes, as Envoy 1.40 reads it: what is neither nothing, a truth value nor a whole number is a text, `0.5` too. A tag
/// changes nothing.
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
        // Envoy makes a text of what is beyond 32 bits, so that no digit is lost in a `Struct`.
        return i32::try_from(number).map_or_else(|_| Value::from(number.to_string()), Value::from);
    }
    Value::from(text)
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
