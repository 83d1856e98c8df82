// SPDX-License-Identifier: Apache-2.0
//! The notes on what an import could not carry over, or carried over with a difference: its place, the reason, and the advice.
//!
//! An importer names the fields that it reads of each object ([`Notes::unread`]), and so each other field becomes a note. A setting that
//! limits requests and is in no object that was read becomes a note at the end ([`Notes::rest`]).

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use serde_json::{Value, json};

use super::nginx::Directive;
use super::{is_among, is_unpacked};
use crate::document::{Content, Node, Syntax};
use crate::source::Source;
use crate::words::printable;

/// The longest text of a file that a note repeats.
const MAX_SHOWN: usize = 80;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub file: usize,
    /// Its line, from 1.
    pub line: usize,
    pub what: String,
    /// The reason for which weir does not do it, or does it differently.
    pub why: String,
    pub instead: String,
}

#[derive(Default)]
pub struct Notes {
    all: Vec<Note>,
    /// The values that an importer has read, or said why not.
    read: HashSet<*const Node>,
}

/// Notes that differ in their places only, and in what is there.
struct Same<'a> {
    first: &'a Note,
    others: Vec<&'a Note>,
}

/// The words of a note for a field that is not read.
pub struct Reader {
    pub why: &'static str,
    pub instead: &'static str,
    /// True if names may be in camel case.
    pub camel: bool,
}

impl Reader {
    const DEFAULT: Self = Self {
        why: "it is not read",
        instead: "If it changes which requests count, write the policy by hand",
        camel: true,
    };
}

impl Note {
    pub fn new(directive: &Directive, why: impl Into<String>, instead: impl Into<String>) -> Self {
        let words = core::iter::once(&directive.name).chain(&directive.arguments);
        let what = words.map(String::as_str).collect::<Vec<_>>().join(" ");
        Self::at(directive.file, directive.line, &what, why, instead)
    }

    /// About a place in a file.
    pub fn at(
        file: usize,
        line: usize,
        what: &str,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        let mut what = what.to_owned();
        if let Some((end, _)) = what.char_indices().nth(MAX_SHOWN) {
            what.truncate(end);
            what.push('…');
        }
        Self { file, line, what, why: why.into(), instead: instead.into() }
    }
}

impl Notes {
    /// Adds a remark, once.
    pub fn add(&mut self, note: Note) {
        if !self.all.contains(&note) {
            self.all.push(note);
        }
    }

    /// Adds a remark about a place in a file.
    pub fn at(
        &mut self,
        file: usize,
        line: usize,
        what: &str,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.add(Note::at(file, line, what, why, instead));
    }

    /// Adds a remark about a field of an object.
    pub fn field(&mut self, file: usize, node: &Node, field: &str, why: impl Into<String>, instead: &str) {
        self.at(file, node.place_of(field).line, field, why, instead);
    }

    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Says that an importer has read all of this value, or has said why not.
    pub fn read(&mut self, node: &Node) {
        self.read.insert(core::ptr::from_ref(node));
    }

    /// Says that the importer reads these fields of an object, which are separated by blanks, and adds a note for each other one that has a
    /// value. A name that ends in `*` stands for all that begin so, and `name=value` for a field that says what is done anyway.
    pub fn unread(&mut self, file: usize, node: &Node, known: &str) {
        self.unread_by(&Reader::DEFAULT, file, node, known);
    }

    pub fn unread_by(&mut self, reader: &Reader, file: usize, node: &Node, known: &str) {
        for (name, place, value) in node.fields() {
            let is_called = |known: &str| {
                // The field may be in camel case.
                known == name
                    || reader.camel && node.get(known).is_some_and(|found| core::ptr::eq(found, value))
            };
            let is_read = |known: &str| match (known.strip_suffix('*'), known.split_once('=')) {
                (Some(prefix), _) => name.starts_with(prefix),
                (_, Some((known, said))) => {
                    is_called(known) && value.text_or_number().as_deref() == Some(said)
                }
                _ => is_called(known),
            };
            let is_unset = match &value.content {
                Content::Scalar(value) => value.is_null(),
                Content::List(items) => items.is_empty(),
                Content::Object(fields) => fields.is_empty(),
            };
            if !is_unset && !known.split_whitespace().any(is_read) {
                self.at(file, place.line, name, reader.why, reader.instead);
            }
        }
    }

    /// Adds a note for whatever limits requests in these files and was not read.
    pub fn rest<'a>(&mut self, files: impl IntoIterator<Item = &'a Source>) {
        for (number, file) in files.into_iter().enumerate() {
            file.documents.iter().for_each(|document| self.rest_of(number, document, ""));
        }
    }

    /// `around` is the name of the field that has the value.
    fn rest_of(&mut self, file: usize, node: &Node, around: &str) {
        if self.read.contains(&core::ptr::from_ref(node)) {
            return;
        }
        if node.text().is_some_and(is_configuration) {
            let why = "it is a configuration in a string, which limits requests and is not read";
            return self.at(file, node.place.line, around, why, "Import it as a file");
        }
        let are_annotations = around == "annotations";
        let kind = node.text_of("kind");
        if is_limit(kind) || kind == "BackendTrafficPolicy" && node.at(&["spec", "rateLimit"]).is_some() {
            // NGINX Gateway Fabric and others have a kind of this name, too.
            let api = node.text_of("apiVersion");
            let is_other = kind == "RateLimitPolicy" && !api.is_empty() && !api.contains("kuadrant.io");
            let what = if is_other { format!("{api} {kind}") } else { kind.to_owned() };
            return self.add(rest(file, node.place.line, &what));
        }
        if let Some((line, name)) = patched(node) {
            if OTHERS.iter().any(|end| name.ends_with(end)) {
                self.add(elsewhere(file, line, &name));
            } else if is_limit(&name) || name.contains("limit") {
                self.add(rest(file, line, &name));
            }
        }
        for (name, place, value) in node.fields() {
            if is_among(name, NO_LIMITS)
                || self.read.contains(&core::ptr::from_ref(value))
                || around == "ConfigMap" && value.text().is_some_and(|text| is_unpacked(name, text))
            {
                continue;
            }
            // A kustomization has patches as strings, too.
            if let Some(text) = value.text().filter(|_| name == "patch") {
                for mut patch in Node::parse(text, Syntax::Yaml).unwrap_or_default() {
                    patch.moved(&|_| *place);
                    self.rest_of(file, &patch, "");
                }
                continue;
            }
            // The name of a plugin or a filter counts; a cluster or a route may have any name.
            let settings = node.get("config").or(node.get("typed_config"));
            let names_kind = ["plugin", "@type", "type_url"].contains(&name.as_str())
                || name == "name"
                    && settings.is_some_and(|settings| !self.read.contains(&core::ptr::from_ref(settings)));
            // Annotations name objects of other controllers, whose own names say nothing.
            if are_annotations && OTHERS.iter().any(|end| name.ends_with(end)) {
                self.add(elsewhere(file, place.line, name));
                continue;
            }
            let text = value.text().filter(|text| (names_kind || are_annotations) && is_limit(text));
            if let Some(text) = text {
                let what = if are_annotations { name } else { text };
                self.add(rest(file, place.line, what));
                if !are_annotations {
                    return;
                }
            } else if is_limit(name) || are_annotations && name.contains("limit") {
                self.add(rest(file, place.line, name));
            } else {
                let is_data = kind == "ConfigMap" && name == "data";
                self.rest_of(file, value, if is_data { kind } else { name });
            }
        }
        node.items().iter().for_each(|item| self.rest_of(file, item, around));
    }

    /// Says how a header of this variable of nginx differs in Envoy, if it is one that Envoy writes.
    pub fn of_header(variable: &str) -> Option<&'static str> {
        match variable {
            "http_x_forwarded_for" => Some(
                "Envoy adds its peer's address to this header before weir reads it, and a client can write any other one into it",
            ),
            "http_x_forwarded_proto" | "http_x_request_id" => Some("Envoy writes this header itself"),
            _ => None,
        }
    }

    /// Says when weir cannot read the parameter or the cookie of this variable of nginx, because servers read it differently.
    pub fn of_pair(variable: &str) -> Option<&'static str> {
        if variable.starts_with("arg_") {
            return Some(
                "a parameter is unreadable whose name differs in case, or whose value has a wrong escape (`%zz`)",
            );
        }
        variable.starts_with("cookie_").then_some(
            "a cookie is unreadable whose name differs in case, or whose value has a wrong escape (`%zz`) or a quote within it",
        )
    }

    /// In the order of the files. Notes that say the same are together.
    fn sorted(&self) -> Vec<Same<'_>> {
        let mut notes: Vec<_> = self.all.iter().collect();
        notes.sort();
        let (mut sorted, mut places): (Vec<Same<'_>>, BTreeMap<_, usize>) = (Vec::new(), BTreeMap::new());
        for note in notes {
            let place = *places.entry((&note.why, &note.instead)).or_insert(sorted.len());
            match sorted.get_mut(place) {
                Some(same) => same.others.push(note),
                None => sorted.push(Same { first: note, others: Vec::new() }),
            }
        }
        sorted
    }

    /// One line each: `FILE:LINE: note: WHAT: WHY. INSTEAD. Also FILE:LINE, FILE:LINE (WHAT)`.
    pub fn print(&self, files: &[String], out: &mut impl Write) -> io::Result<()> {
        let named = |note: &Note| files.get(note.file).map(String::as_str).unwrap_or_default();
        for Same { first, others } in self.sorted() {
            let Note { line, what, why, instead, .. } = first;
            let mut text = format!("{}:{line}: note: {what}: {why}", named(first));
            if !instead.is_empty() {
                text.push_str(&format!(". {instead}"));
            }
            for (number, other) in others.iter().enumerate() {
                text.push_str(if number == 0 { ". Also " } else { ", " });
                text.push_str(&format!("{}:{}", named(other), other.line));
                if other.what != *what {
                    text.push_str(&format!(" ({})", other.what));
                }
            }
            writeln!(out, "{}", printable(&text))?;
        }
        Ok(())
    }

    pub fn json(&self, files: &[String]) -> Value {
        let place = |note: &Note| {
            let file = files.get(note.file).map(String::as_str).unwrap_or_default();
            json!({"file": file, "line": note.line, "what": note.what})
        };
        let note = |Same { first, others }: Same<'_>| {
            let mut note = place(first);
            if let Some(note) = note.as_object_mut() {
                note.insert(String::from("why"), first.why.as_str().into());
                note.insert(String::from("instead"), first.instead.as_str().into());
                if !others.is_empty() {
                    note.insert(String::from("also"), others.into_iter().map(place).collect());
                }
            }
            note
        };
        self.sorted().into_iter().map(note).collect()
    }
}

/// Fields that limit nothing, whatever is in them.
const NO_LIMITS: &str = "include_vh_rate_limits includeVhRateLimits managedFields status kubectl.kubernetes.io/last-applied-configuration";

/// Words for limits of requests, without what separates their parts.
const LIMITS: &str = "ratelimit limitador quotapolicy planpolicy limitcount limitreq limitconn limitrps limitrpm requestlimit throttl \
    inflightreq httpreqrate serviceprotection adaptiveconcurrency";

/// The ends of annotations that name what a controller runs: the plugins of Kong, a configuration of APISIX's plugins, the middlewares of
/// Traefik, the policies of NGINX Inc.
const OTHERS: [&str; 4] = ["/plugins", "/plugin-config-name", ".middlewares", "nginx.org/policies"];

/// True if a setting of this name limits requests.
pub fn is_limit(name: &str) -> bool {
    let letters: String = name.chars().filter(|next| next.is_alphanumeric()).collect();
    let letters = letters.to_ascii_lowercase();
    // Headers such as x-ratelimit-limit tell of limits only.
    !letters.starts_with("xratelimit") && LIMITS.split(' ').any(|word| letters.contains(word))
}

/// True if a string is an object in which something limits requests, or has directives of nginx that do.
fn is_configuration(text: &str) -> bool {
    let is_directive =
        |part: &str| matches!(part.split_whitespace().next(), Some("limit_req" | "limit_conn"));
    if text.contains(';') && text.split(['\n', ';', '{', '}']).any(is_directive) {
        return true;
    }
    let is_long = text.contains('\n') || text.starts_with('{');
    if !is_long || !is_limit(text) {
        return false;
    }
    let mut notes = Notes::default();
    for document in Node::parse(text, Syntax::Yaml).unwrap_or_default() {
        if document.is_object() {
            notes.rest_of(0, &document, "");
        }
    }
    !notes.is_empty()
}

/// The annotation that a JSON patch of kustomize writes, and its line: `path: /metadata/annotations/NAME`, where `~1` is a slash.
fn patched(node: &Node) -> Option<(usize, String)> {
    let (place, path) = node.field("path")?;
    let name = path.text()?.strip_prefix("/metadata/annotations/")?;
    (node.text_of("op") != "remove").then(|| (place.line, name.replace("~1", "/").replace("~0", "~")))
}

/// A note about an annotation that names what another controller runs.
fn elsewhere(file: usize, line: usize, what: &str) -> Note {
    let instead = match what {
        _ if what.starts_with("konghq.com/") => "Import it with `weir import kong`",
        _ if what.starts_with("k8s.apisix.apache.org/") => "Import it with `weir import apisix`",
        _ => "If it limits, write the policy by hand",
    };
    let why = "it names what another controller runs, which may limit requests, and this command does not read that";
    Note::at(file, line, what, why, instead)
}

/// A note about what no importer reads at its place.
fn rest(file: usize, line: usize, what: &str) -> Note {
    let instead = match what {
        "BackendTrafficPolicy" | "RateLimitPolicy" | "TokenRateLimitPolicy" => {
            "Import it with `weir import envoy`"
        }
        "Limitador" => {
            "Kuadrant writes the limits of its policies into it: import the policies, and write its other limits by hand"
        }
        _ if what.starts_with("konghq.com/") => "Import it with `weir import kong`",
        _ if what.starts_with("nginx.ingress.") => {
            "Import the Ingress that has it with `weir import ingress`; of a chart, import what `helm template` prints, and of a kustomization \
                what `kubectl kustomize` prints"
        }
        _ if ["limit-count", "limit-req", "limit-conn"].contains(&what) => {
            "Import APISIX's objects, or what `adc dump` prints, with `weir import apisix`"
        }
        _ if what.starts_with("rate-limiting") => {
            "Import the KongPlugins, or what `deck gateway dump` prints, with `weir import kong`; a copy of the plugin needs the plugin's name there"
        }
        "rate_limits" | "rateLimits" => {
            "If a rate-limit service counts them, import them with `weir import ratelimit --envoy`"
        }
        _ if what.ends_with(".RateLimit") || what.ends_with("http.ratelimit") => {
            "Import it with `weir import ratelimit --envoy`"
        }
        _ if what.contains("adaptive_concurrency") => {
            "Leave it in Envoy: no limit of weir follows the latency. The algorithm `concurrency` limits to a number"
        }
        _ if what.contains(".network.") || what.contains(".listener.") => {
            "It limits connections, so leave it in Envoy"
        }
        _ if what.ends_with(".LocalRateLimit") || what.ends_with("local_ratelimit") => {
            "Import it, or what Envoy has, its `/config_dump`, with `weir import envoy`"
        }
        _ => "Write the policy by hand",
    };
    let why = "it limits requests and is of a kind, or at a place, that this command does not read, so it is not imported";
    Note::at(file, line, what, why, instead)
}
