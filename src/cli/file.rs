//! Configurations in files: weir's own, as JSON or YAML, or one or several inside an Envoy bootstrap.

use std::fs;
use std::path::Path;

use super::document::{Content, Node, Place};
use crate::config::{Config, Host};

/// Why a file has no valid configuration.
#[derive(Debug)]
pub(super) enum Problem {
    /// It cannot be read.
    Unreadable(String),
    /// It has errors: one line each, in the form that editors read.
    Wrong(Vec<String>),
}

/// A configuration somewhere in a file.
struct Part {
    json: Vec<u8>,
    /// The document that the JSON was taken from.
    node: Node,
    /// Where that document begins in the file.
    offset: Offset,
    /// What carries it, if the file says so.
    host: Option<Host>,
}

/// How places in a part become places in the file.
#[derive(Clone, Copy)]
enum Offset {
    /// They are the same.
    None,
    /// The part is a string that begins here, each line of it as far to the right.
    Block(Place),
}

impl Offset {
    fn apply(self, place: Place) -> Place {
        match self {
            Self::None => place,
            Self::Block(start) => Place {
                line: start.line.saturating_add(place.line).saturating_sub(1),
                column: start.column.saturating_add(place.column).saturating_sub(1),
            },
        }
    }
}

/// The configurations in the file at `path`; at least one. A configuration alone is read for `host`, and one in Envoy's
/// configuration for the host that it is for.
pub(super) fn load(path: &Path, host: Host) -> Result<Vec<Config>, Problem> {
    let text = fs::read_to_string(path)
        .map_err(|error| Problem::Unreadable(format!("{}: {error}", path.display())))?;
    let line = |place: Place, said: &str| {
        format!("{}:{}:{}: error: {said}", path.display(), place.line, place.column)
    };
    let parts = parts(&text).map_err(|(place, said)| Problem::Wrong(vec![line(place, &said)]))?;
    let (mut configs, mut wrong) = (Vec::new(), Vec::new());
    for part in parts {
        match Config::parse_for(part.host.unwrap_or(host), &part.json) {
            Ok(config) => configs.push(config),
            Err(errors) => {
                let said = errors.iter().map(|error| {
                    let place = part.offset.apply(part.node.find(&error.path));
                    line(place, &error.to_string())
                });
                wrong.extend(said);
            }
        }
    }
    if wrong.is_empty() { Ok(configs) } else { Err(Problem::Wrong(wrong)) }
}

/// The configuration to explain or to replay: the only one in the file at `path`.
pub(super) fn load_one(path: &Path) -> Result<Config, String> {
    let mut configs = load(path, Host::Wasm).map_err(|problem| match problem {
        Problem::Unreadable(failure) => failure,
        Problem::Wrong(lines) => lines.join("\n"),
    })?;
    match (configs.pop(), configs.len()) {
        (Some(config), 0) => Ok(config),
        (_, others) => Err(format!(
            "{}: found {} configurations, this command needs exactly one",
            path.display(),
            others.saturating_add(1)
        )),
    }
}

fn parts(text: &str) -> Result<Vec<Part>, (Place, String)> {
    let node = match Node::parse(text) {
        Ok(node) => node,
        // For invalid JSON the filter has its own message.
        Err((place, said)) if text.trim_start().starts_with('{') => {
            let node = Node { place, content: Content::List(Vec::new()) };
            if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() && !said.contains("duplicate") {
                return Err((place, said));
            }
            return Ok(vec![Part { json: text.into(), node, offset: Offset::None, host: None }]);
        }
        Err(wrong) => return Err(wrong),
    };
    let mut parts = Vec::new();
    collect(&node, &mut parts)?;
    if !parts.is_empty() {
        return Ok(parts);
    }
    let bootstrap =
        ["static_resources", "dynamic_resources", "admin"].iter().any(|name| node.get(name).is_some());
    if bootstrap {
        return Err((node.place, String::from("an Envoy bootstrap without a weir.limiter in it")));
    }
    let json =
        if text.trim_start().starts_with('{') { text.into() } else { node.json().to_string().into_bytes() };
    Ok(vec![Part { json, node, offset: Offset::None, host: None }])
}

/// Finds the configuration of every Wasm plugin, and of every dynamic module's filter, that is the limiter's.
fn collect(node: &Node, parts: &mut Vec<Part>) -> Result<(), (Place, String)> {
    for (name, field, host) in
        [("root_id", "configuration", Host::Wasm), ("filter_name", "filter_config", Host::Native)]
    {
        let limiter = node.get(name).and_then(Node::text) == Some("weir.limiter");
        if let Some(configuration) = node.get(field).filter(|_| limiter) {
            parts.push(part(configuration.get("value").unwrap_or(configuration), host));
        }
    }
    node.children().try_for_each(|child| collect(child, parts))
}

/// A configuration as an object, or as text.
fn part(value: &Node, host: Host) -> Part {
    let host = Some(host);
    match value.text() {
        None => {
            let json = value.json().to_string().into_bytes();
            Part { json, node: value.clone(), offset: Offset::None, host }
        }
        Some(text) => {
            let offset = Offset::Block(value.place);
            let inner = Node::parse(text)
                .unwrap_or_else(|(place, _)| Node { place, content: Content::List(Vec::new()) });
            Part { json: text.into(), node: inner, offset, host }
        }
    }
}
