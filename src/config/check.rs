//! Holds a JSON value against its shape. Finds every error, not only the first, and names for each the place, the
//! value, what is allowed and what was probably meant. What was left out is filled in with its default.

use core::fmt;

use super::json::Json;
use super::shape::{Choice, Field, Kind, Need, Shape, Syntax};
use super::text;
use crate::limit::MAX_LOG;

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where: the JSON path, such as `policies[0].limits[1].burst`; `$` is the configuration itself.
    pub path: String,
    /// What is there: the value, or `nothing`.
    pub found: String,
    /// What may be there.
    pub allowed: String,
    /// What the operator probably meant.
    pub hint: Option<Hint>,
}

/// What the operator probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The valid name or value that differs least.
    Nearest(String),
    /// The field has this name now.
    Renamed(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, allowed: {}", self.path, self.found, self.allowed)?;
        match &self.hint {
            None => Ok(()),
            Some(Hint::Nearest(nearest)) => write!(f, " (did you mean {nearest:?}?)"),
            Some(Hint::Renamed(name)) => write!(f, " (it is called {name:?} now)"),
        }
    }
}

/// Everything wrong so far.
#[derive(Default)]
pub(super) struct Errors {
    pub(super) found: Vec<ConfigError>,
    pub(super) counts: Counts,
}

/// How counts are written.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Counts {
    /// As numbers.
    #[default]
    Numbers,
    /// As numbers or as their digits: Envoy makes a string of a number over 2^31 when it makes a `Struct` of YAML.
    NumbersOrDigits,
}

impl Errors {
    pub(super) fn add(&mut self, path: &str, found: impl fmt::Display, allowed: impl fmt::Display) {
        self.suggest(path, found, allowed, None);
    }

    pub(super) fn suggest(
        &mut self,
        path: &str,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
        hint: Option<Hint>,
    ) {
        let path = if path.is_empty() { "$" } else { path }.to_owned();
        self.found.push(ConfigError { path, found: found.to_string(), allowed: allowed.to_string(), hint });
    }
}

/// `value` as `kind` has it, defaults filled in; what does not fit goes to `errors`.
pub(super) fn check(value: Json, kind: &Kind, path: &str, errors: &mut Errors) -> Json {
    let value = match (kind, value) {
        (Kind::Count(..), Json::Text(digits)) if errors.counts == Counts::NumbersOrDigits => {
            digits.parse().map_or(Json::Text(digits), Json::Count)
        }
        (_, value) => value,
    };
    match (kind, value) {
        (Kind::Object(shape), Json::Object(fields)) => object(fields, shape, path, errors),
        (Kind::Tagged(tag, shapes), Json::Object(fields)) => tagged(fields, tag, shapes, path, errors),
        (Kind::List(of, min, max), Json::List(items)) => list(items, of, (*min, *max), path, errors),
        (Kind::Map(of, min, max), Json::Object(fields)) => map(fields, of, (*min, *max), path, errors),
        (Kind::Text(syntax), Json::Text(text)) => {
            string(&text, syntax, path, errors);
            Json::Text(text)
        }
        (kind, value) => {
            let fits = match (kind, &value) {
                (Kind::Flag, Json::Flag(_)) => true,
                (Kind::Count(min, max), Json::Count(count)) => min <= count && count <= max,
                (Kind::Span(min, max), Json::Text(text)) => {
                    text::span(text).is_some_and(|span| *min <= span && span <= *max)
                }
                (Kind::Word(words), Json::Text(text)) => words.iter().any(|word| word.name == text),
                _ => false,
            };
            if !fits {
                let meant = match (kind, &value) {
                    (Kind::Word(words), Json::Text(text)) => {
                        nearest(text, words.iter().map(|word| word.name))
                    }
                    _ => None,
                };
                errors.suggest(path, &value, allowed(kind), meant);
            }
            value
        }
    }
}

/// What a kind allows, in words.
pub(super) fn allowed(kind: &Kind) -> String {
    match kind {
        Kind::Flag => String::from("true or false"),
        Kind::Count(min, MAX_LOG) => {
            format!("a whole number from {min} to {MAX_LOG} (a `sliding_window` allows more)")
        }
        Kind::Count(min, max) => format!("a whole number from {min} to {max}"),
        Kind::Span(min, max) => format!(
            "a duration from {:?} to {:?}, a whole number and one of us, ms, s, m, h, d",
            text::span_text(*min),
            text::span_text(*max)
        ),
        Kind::Text(syntax) => format!("a string: {}", syntax.allowed),
        Kind::Word(words) => any_of(words.iter().map(|word| word.name)),
        Kind::List(_, min, max) => format!("a list of {min} to {max}"),
        Kind::Map(_, min, max) => format!("an object with {min} to {max} names of your choice"),
        Kind::Object(shape) => {
            format!("an object with {}", any_of(shape.fields.iter().map(|field| field.name)))
        }
        Kind::Tagged(tag, shapes) => {
            format!("an object whose {tag:?} is {}", any_of(shapes.iter().map(|shape| shape.name)))
        }
    }
}

fn any_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for name in names {
        out.push_str(if out.is_empty() { "" } else { ", " });
        out.push_str(name);
    }
    out
}

fn string(text: &str, syntax: &Syntax, path: &str, errors: &mut Errors) {
    let wrong = if text.len() > syntax.max { Err(Default::default()) } else { (syntax.check)(text) };
    let Err(wrong) = wrong else { return };
    let detail = wrong.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
    let found = format!("{}{detail}", Json::Text(text.to_owned()));
    errors.suggest(path, found, format!("a string: {}", syntax.allowed), wrong.nearest.map(Hint::Nearest));
}

fn object(fields: Vec<(String, Json)>, shape: &'static Shape, path: &str, errors: &mut Errors) -> Json {
    let known: Vec<&Field> = shape.fields.iter().collect();
    let out = members(fields, &known, path, errors);
    let given = |names: &'static [&'static str]| names.iter().filter(|name| out.get(name).is_some()).count();
    let wrong = match shape.choice {
        Choice::One(names) if given(names) != 1 => Some(("exactly one of", names)),
        Choice::AtMostOne(names) if given(names) > 1 => Some(("at most one of", names)),
        _ => None,
    };
    if let Some((how_many, names)) = wrong {
        let found = any_of(names.iter().copied().filter(|name| out.get(name).is_some()));
        let found = if found.is_empty() { String::from("none of them") } else { found };
        errors.add(path, found, format!("{how_many} {}", any_of(names.iter().copied())));
    }
    out
}

fn tagged(
    fields: Vec<(String, Json)>,
    tag: &'static str,
    shapes: &'static [&'static Shape],
    path: &str,
    errors: &mut Errors,
) -> Json {
    let word = fields.iter().find(|(name, _)| name == tag).map(|(_, value)| value);
    let shape = match word {
        Some(Json::Text(word)) => shapes.iter().find(|shape| shape.name == word),
        _ => None,
    };
    let Some(shape) = shape else {
        let names = || shapes.iter().map(|shape| shape.name);
        let meant = match word {
            Some(Json::Text(word)) => nearest(word, names()),
            // Perhaps the tag is there, misspelt.
            _ => None,
        };
        let found = word.map_or_else(|| String::from("nothing"), Json::to_string);
        errors.suggest(&format!("{path}.{tag}"), found, any_of(names()), meant);
        return Json::Object(fields);
    };
    let (tags, rest): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name == tag);
    if tags.len() > 1 {
        errors.add(&format!("{path}.{tag}"), "the same name twice", "each name once");
    }
    let out = object(rest, shape, path, errors);
    match out {
        Json::Object(mut members) => {
            members.extend(tags);
            Json::Object(members)
        }
        other => other,
    }
}

fn members(fields: Vec<(String, Json)>, known: &[&Field], path: &str, errors: &mut Errors) -> Json {
    let mut out: Vec<(String, Json)> = Vec::with_capacity(known.len());
    for (name, value) in fields {
        let at = join(path, &name);
        let Some(field) = known.iter().find(|field| field.name == name) else {
            let names = || known.iter().map(|field| field.name);
            let hint = renamed(&name, names()).or_else(|| nearest(&name, names()));
            errors.suggest(&at, "an unknown field", any_of(names()), hint);
            continue;
        };
        if out.iter().any(|(earlier, _)| *earlier == name) {
            errors.add(&at, "the same name twice", "each name once");
            continue;
        }
        let value = check(value, &field.kind, &at, errors);
        out.push((name, value));
    }
    for field in known {
        if out.iter().any(|(name, _)| name == field.name) {
            continue;
        }
        match field.need {
            Need::Required => errors.add(&join(path, field.name), "nothing", allowed(&field.kind)),
            Need::Optional => {}
            Need::Default(text) => {
                let value = Json::parse(text.as_bytes()).unwrap_or(Json::Null);
                let value = check(value, &field.kind, &join(path, field.name), errors);
                out.push((field.name.to_owned(), value));
            }
        }
    }
    Json::Object(out)
}

fn list(items: Vec<Json>, of: &Kind, (min, max): (usize, usize), path: &str, errors: &mut Errors) -> Json {
    if items.len() < min || items.len() > max {
        errors.add(path, format!("a list of {}", items.len()), format!("a list of {min} to {max}"));
    }
    let mut out: Vec<Json> = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let at = format!("{path}[{index}]");
        let item = check(item, of, &at, errors);
        if let Some(name @ Json::Text(text)) = item.get("name")
            && let Some(first) = out.iter().position(|earlier| earlier.get("name") == Some(name))
        {
            errors.add(
                &join(&at, "name"),
                format!("{text:?}"),
                format!("a name other than that of {path}[{first}]"),
            );
        }
        out.push(item);
    }
    Json::List(out)
}

fn map(
    fields: Vec<(String, Json)>,
    of: &Kind,
    (min, max): (usize, usize),
    path: &str,
    errors: &mut Errors,
) -> Json {
    if fields.len() < min || fields.len() > max {
        errors.add(path, format!("{} names", fields.len()), format!("{min} to {max} names of your choice"));
    }
    let mut out: Vec<(String, Json)> = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let at = join(path, &name);
        string(&name, &text::NAME, &at, errors);
        if out.iter().any(|(earlier, _)| *earlier == name) {
            errors.add(&at, "the same name twice", "each name once");
        }
        let value = check(value, of, &at, errors);
        out.push((name, value));
    }
    Json::Object(out)
}

/// The path of a field of the object at `path`; a name that is no plain word is quoted.
pub(super) fn join(path: &str, name: &str) -> String {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
        return format!("{path}[{}]", Json::Text(name.to_owned()));
    }
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Former names of fields, each with its present name. A former name is an error that says the present one.
const RENAMED: &[(&str, &str)] = &[
    ("absent", "on_missing"),
    ("equals", "exact"),
    ("least", "min"),
    ("most", "max"),
    ("of", "limits"),
    ("otherwise", "default"),
    ("property", "attribute"),
    ("record", "emit_filter_state"),
    ("several", "on_multiple"),
    ("source", "client_address"),
];

/// The present name of the field that was called `name`, where it is among `names`.
fn renamed(name: &str, mut names: impl Iterator<Item = &'static str>) -> Option<Hint> {
    let (_, present) = RENAMED.iter().find(|(former, _)| *former == name)?;
    names.any(|name| name == *present).then_some(Hint::Renamed(present))
}

/// The name most like `word`, when it is at most a third of the word's letters away (Levenshtein).
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<Hint> {
    let most = word.chars().count().min(64).div_ceil(3);
    names
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| Hint::Nearest(name.to_owned()))
}

/// How many letters must be added, removed or changed to make `from` into `to`; only the first 64 count.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, left) in from.chars().take(64).enumerate() {
        let mut diagonal = line;
        let mut before = line.saturating_add(1);
        for (cell, right) in row.iter_mut().zip(core::iter::once(None).chain(to.chars().map(Some))) {
            let above = *cell;
            let value = match right {
                None => line.saturating_add(1),
                Some(right) => {
                    let changed = diagonal.saturating_add(usize::from(left != right));
                    changed.min(above.saturating_add(1)).min(before.saturating_add(1))
                }
            };
            diagonal = above;
            before = value;
            *cell = value;
        }
    }
    row.last().copied().unwrap_or(0)
}
