//! JSON and YAML documents that keep the place of every value, so that an error can name its line.

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
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
        let documents = MarkedYaml::load_from_str(text).map_err(|error| {
            let marker = error.marker();
            (Place { line: marker.line(), column: marker.col().saturating_add(1) }, error.info().to_owned())
        })?;
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
                    let name = Self::from(name);
                    let text = name.text().map_or_else(|| name.json().to_string(), str::to_owned);
                    (text, name.place, Self::from(value))
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
        YamlData::Value(Scalar::Boolean(flag)) => Value::from(*flag),
        YamlData::Value(Scalar::Integer(number)) => Value::from(*number),
        YamlData::Value(Scalar::FloatingPoint(number)) => float(number.into_inner()),
        YamlData::Value(Scalar::String(text)) => Value::from(text.as_ref()),
        _ => Value::Null,
    }
}

/// A number as the filter has it: Envoy hands over `5e4` as it does `50000`.
fn float(number: f64) -> Value {
    let whole = number.to_string().parse::<u64>().ok().filter(|whole| *whole <= 1 << 53);
    whole.map_or_else(|| Value::from(number), Value::from)
}
