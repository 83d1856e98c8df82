// SPDX-License-Identifier: Apache-2.0
//! Holds a JSON value against its shape. Finds every error, not only the first, and names for each the place, the
//! value, what is allowed and what was probably meant. Fills in the default of each field that is not given.

use super::error::{Errors, Hint, path_of};
use super::hint::{meant, nearest, with_value};
use super::json::Json;
use super::shape::{Choice, FieldShape, Kind, NAME, Need, Shape, Syntax};
use super::syntax;
use crate::limit::MAX_LOG;

/// `value` with defaults filled in; what `kind` does not allow goes to `errors`.
pub fn check(value: Json, kind: &Kind, path: &str, errors: &mut Errors) -> Json {
    let value = match (kind, value) {
        // The error about a count that is out of bounds has it as it was written.
        (Kind::Count(min, max), Json::Text(text)) => match syntax::count(&text) {
            Some(count) if (*min..=*max).contains(&count) => Json::Count(count),
            _ => Json::Text(text),
        },
        (_, value) => value,
    };
    match (kind, value) {
        (Kind::Object(shape) | Kind::WordOr(_, shape), Json::Object(fields)) => {
            object(fields, shape, path, errors)
        }
        (Kind::Tagged(tag, shapes), Json::Object(fields)) => tagged(fields, tag, shapes, path, errors),
        (Kind::List(of, min, max), Json::List(items)) => list(items, of, (*min, *max), path, errors),
        (Kind::Map(of, min, max), Json::Object(fields)) => map(fields, of, (*min, *max), path, errors),
        (Kind::Text(syntax), Json::Text(text)) => {
            string(&text, syntax, path, errors);
            Json::Text(text)
        }
        (Kind::Text(Syntax { number: Some(_), check, .. }), Json::Number(number))
            if check(&number).is_ok() =>
        {
            Json::Text(number)
        }
        (Kind::Text(Syntax { number: Some((min, max)), .. }), Json::Count(number))
            if (min..=max).contains(&&number) =>
        {
            Json::Text(number.to_string())
        }
        (kind, value) => {
            let fits = match (kind, &value) {
                (Kind::Flag, Json::Flag(_)) => true,
                (Kind::Count(min, max), Json::Count(count)) => min <= count && count <= max,
                (Kind::Duration(min, max), Json::Text(text)) => {
                    syntax::duration(text).is_some_and(|duration| *min <= duration && duration <= *max)
                }
                (kind, Json::Text(text)) => kind.words().iter().any(|word| word.name == text),
                _ => false,
            };
            if !fits {
                let hint = match (kind, &value) {
                    (Kind::Count(..), Json::Text(text)) => syntax::nearest_count(text).map(Hint::Nearest),
                    (Kind::Duration(..), Json::Text(text)) => {
                        syntax::nearest_duration(text).map(Hint::Nearest)
                    }
                    (_, Json::Text(text)) => nearest(text, kind.words().iter().map(|word| word.name)),
                    _ => None,
                };
                let hint = hint.filter(|hint| is_allowed(hint, kind));
                let as_text = match (kind, &value) {
                    (Kind::Count(_, max), Json::Text(_)) if *max >= 50_000 => syntax::COUNT_FORMS,
                    _ => "",
                };
                let found = match kind {
                    Kind::Text(syntax) if is_secret(syntax) => String::from("another value"),
                    _ => value.to_string(),
                };
                errors.add_with_hint(path, found, format_args!("{}{as_text}", allowed(kind)), hint);
            }
            value
        }
    }
}

/// Describes the values that a kind allows.
pub fn allowed(kind: &Kind) -> String {
    match kind {
        Kind::Flag => String::from("true or false"),
        Kind::Count(min, MAX_LOG) => {
            format!("a whole number from {min} to {MAX_LOG} (a `sliding_window` allows more)")
        }
        Kind::Count(min, max) => format!("a whole number from {min} to {max}"),
        Kind::Duration(min, max) => format!(
            "a duration from {:?} to {:?}, a whole number and one of us, ms, s, m, h, d",
            syntax::duration_text(*min),
            syntax::duration_text(*max)
        ),
        Kind::Text(syntax) => allowed_text(syntax),
        Kind::Word(words) => any_of(words.iter().map(|word| word.name)),
        Kind::List(_, min, max) => format!("a list of {min} to {max}"),
        Kind::Map(_, min, max) => format!("an object with {min} to {max} names of your choice"),
        Kind::Object(shape) => {
            format!("an object with {}", any_of(shape.fields.iter().map(|field| field.name)))
        }
        Kind::WordOr(word, shape) => format!("{}, or {}", word.name, allowed(&Kind::Object(shape))),
        Kind::Tagged(tag, shapes) => {
            format!("an object whose {tag:?} is {}", any_of(shapes.iter().map(|shape| shape.name)))
        }
    }
}

fn allowed_text(syntax: &Syntax) -> String {
    let kind = if syntax.number.is_some() { "" } else { "a string: " };
    format!("{kind}{}", syntax.allowed)
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
    let checked = if text.len() > syntax.max { Err(Default::default()) } else { (syntax.check)(text) };
    let Err(mismatch) = checked else { return };
    let detail = mismatch.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
    let found = if is_secret(syntax) {
        format!("a text of {} bytes", text.len())
    } else {
        format!("{}{detail}", Json::Text(text.to_owned()))
    };
    let hint =
        mismatch.nearest.filter(|nearest| nearest.len() <= syntax.max && (syntax.check)(nearest).is_ok());
    errors.add_with_hint(path, found, allowed_text(syntax), hint.map(Hint::Nearest));
}

/// True if a hint is allowed: the probable intention may be out of bounds, too.
fn is_allowed(hint: &Hint, kind: &Kind) -> bool {
    match (hint, kind) {
        (Hint::Nearest(text), Kind::Count(min, max)) => {
            syntax::count(text).is_some_and(|count| (*min..=*max).contains(&count))
        }
        (Hint::Nearest(text), Kind::Duration(min, max)) => {
            syntax::duration(text).is_some_and(|duration| (*min..=*max).contains(&duration))
        }
        _ => true,
    }
}

/// Errors are logged, and a secret that has only a mistake is nearly the right one.
fn is_secret(syntax: &Syntax) -> bool {
    syntax.name == syntax::SECRET.name
}

fn object(fields: Vec<(String, Json)>, shape: &'static Shape, path: &str, errors: &mut Errors) -> Json {
    let out = members(fields, shape.fields, path, errors);
    let is_given = |field: &&&FieldShape| out.get(field.name).is_some();
    let given = |choice: &'static [&'static FieldShape]| choice.iter().filter(is_given).count();
    let wrong = match shape.choice {
        Choice::ExactlyOne(choice) if given(choice) != 1 => Some(("exactly one of", choice)),
        Choice::AtMostOne(choice) if given(choice) > 1 => Some(("at most one of", choice)),
        _ => None,
    };
    if let Some((how_many, choice)) = wrong {
        let found = any_of(choice.iter().filter(is_given).map(|field| field.name));
        let found = if found.is_empty() { String::from("none of them") } else { found };
        errors.add(path, found, format!("{how_many} {}", any_of(choice.iter().map(|field| field.name))));
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
        let hint = match word {
            Some(Json::Text(word)) => nearest(word, names()),
            _ => None,
        };
        let found = word.map_or_else(|| String::from("nothing"), Json::to_string);
        errors.add_with_hint(&format!("{path}.{tag}"), found, any_of(names()), hint);
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

fn members(
    fields: Vec<(String, Json)>,
    known: &'static [&'static FieldShape],
    path: &str,
    errors: &mut Errors,
) -> Json {
    let mut out: Vec<(String, Json)> = Vec::with_capacity(known.len());
    for (name, value) in fields {
        let at = path_of(path, &name);
        let Some(field) = known.iter().find(|field| field.name == name) else {
            let names = || known.iter().map(|field| field.name);
            let hint = with_value(&name, &value, names()).or_else(|| meant(&name, names()));
            errors.add_with_hint(&at, "an unknown field", any_of(names()), hint);
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
            Need::Required => errors.add(&path_of(path, field.name), "nothing", allowed(&field.kind)),
            Need::Optional => {}
            Need::Default(text) => {
                let value = Json::parse(text.as_bytes()).unwrap_or(Json::Null);
                let value = check(value, &field.kind, &path_of(path, field.name), errors);
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
        if let Some(name @ Json::Text(text)) = item.get(NAME)
            && let Some(first) = out.iter().position(|earlier| earlier.get(NAME) == Some(name))
        {
            errors.add(
                &path_of(&at, NAME),
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
        let at = path_of(path, &name);
        string(&name, &syntax::NAME, &at, errors);
        if out.iter().any(|(earlier, _)| *earlier == name) {
            errors.add(&at, "the same name twice", "each name once");
        }
        let value = check(value, of, &at, errors);
        // The names of a `Struct` have no order, so none may matter.
        let place = out.partition_point(|(earlier, _)| *earlier <= name);
        out.insert(place, (name, value));
    }
    Json::Object(out)
}
