// SPDX-License-Identifier: Apache-2.0
//! `weir import`: configurations of other limiters as configurations of weir.

mod apisix;
mod credential;
mod envoy;
mod ingress;
mod kong;
mod nginx;
mod notes;
mod ratelimit;
mod status;
mod test;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::document::{Content, Node, Origin, Place, Syntax};
use super::source::Source as File;
use super::tree::{Map, Tree};
use super::{Ended, Found, failed};
pub(super) use nginx::name_of;
use notes::{Note, Notes};
use test::Test;
use weir::config::{Config, Host};

/// The files to import.
#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// nginx and OpenResty: limit_req, limit_conn, their zones, map and geo.
    Nginx(Nginx),
    /// ingress-nginx: the annotations limit-rps, limit-rpm, limit-connections, limit-burst-multiplier and limit-allowlist.
    Ingress(ingress::Arguments),
    /// APISIX: the plugins limit-count, limit-req and limit-conn, of its own files and of ApisixRoutes.
    Apisix(apisix::Arguments),
    /// Envoy Gateway's BackendTrafficPolicies, global and local; the token buckets of Envoy's filter local_ratelimit, of routes and of
    /// named virtual hosts, also in Istio's EnvoyFilters; Kuadrant's RateLimitPolicies and TokenRateLimitPolicies whose expressions are
    /// comparisons.
    Envoy(envoy::Arguments),
    /// Kong: the plugins rate-limiting and rate-limiting-advanced, of declarative files and of KongPlugins.
    Kong(kong::Arguments),
    /// The rate-limit service (envoyproxy/ratelimit): its descriptors, and the actions of Envoy's routes.
    Ratelimit(ratelimit::Arguments),
}

#[derive(Args)]
struct Nginx {
    /// nginx's main file, or the files that its block `http` includes. They may include up to 1,000 files, 16 levels deep, relative to their
    /// folder, which may be a copy of `/etc/nginx`.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The format of the result.
#[derive(Args)]
struct Output {
    /// Print `{"configuration": …, "notes": [{"file", "line", "what", "why", "instead"}]}`. The other places of a repeated note are in
    /// `also`.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// End with status 1 if there are notes.
    #[arg(long, help_heading = "Output")]
    strict: bool,
}

struct Imported {
    configuration: Map,
    files: Vec<String>,
    notes: Notes,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    match &arguments.from {
        From::Nginx(nginx) => finish(nginx::import(&nginx.files)?, &nginx.output, "nginx", out),
        From::Ingress(arguments) => finish(ingress::import(arguments)?, &arguments.output, "ingress", out),
        From::Apisix(arguments) => finish(apisix::import(arguments)?, &arguments.output, "apisix", out),
        From::Envoy(arguments) => finish(envoy::import(arguments)?, &arguments.output, "envoy", out),
        From::Kong(arguments) => finish(kong::import(arguments)?, &arguments.output, "kong", out),
        From::Ratelimit(arguments) => {
            finish(ratelimit::import(arguments)?, &arguments.output, "ratelimit", out)
        }
    }
}

/// Reads files of YAML or JSON. `number` is the number of the first one.
fn read(paths: &[PathBuf], number: usize, notes: &mut Notes) -> Result<Vec<File>, String> {
    let read = |(number, path): (usize, &PathBuf)| {
        let mut file = File::read(path)?;
        if let Some(wrong) = &file.wrong {
            return Err(format!("{}{}", wrong.line(&file.name), of_template(&file.text)));
        }
        if let Some(place) = file.ignored {
            notes.add(ignored(number, place));
        }
        file.documents.iter_mut().for_each(name_items);
        let inner: Vec<Node> =
            file.documents.iter().flat_map(|root| unpacked(root, &file.text, number, notes)).collect();
        file.documents.extend(inner);
        file.documents.iter_mut().for_each(merge);
        Ok(file)
    };
    (number..).zip(paths).map(read).collect()
}

fn ignored(file: usize, place: Place) -> Note {
    let why = "Envoy and gateways read the first document of a file, so the others are not imported";
    Note::at(file, place.line, "---", why, "Give each document a file of its own")
}

/// Fields of configurations that are imported, as texts in a ConfigMap of Kubernetes.
const UNPACKED: &str = "_format_version apiVersion descriptors domain global_rules plugins resources routes services static_resources";

fn is_known(document: &Node) -> bool {
    UNPACKED.split(' ').any(|field| document.get(field).is_some())
}

/// True if a string of this name in a ConfigMap is among the documents.
fn is_unpacked(name: &str, text: &str) -> bool {
    Node::parse(text, Syntax::of(name)).is_ok_and(|documents| documents.iter().any(is_known))
}

/// The configurations that are texts in ConfigMaps of a document.
fn unpacked(root: &Node, text: &str, number: usize, notes: &mut Notes) -> Vec<Node> {
    let all =
        if root.text_of("kind").ends_with("List") { root.list("items") } else { core::slice::from_ref(root) };
    let maps = all.iter().filter(|object| object.text_of("kind") == "ConfigMap");
    let mut found = Vec::new();
    for (name, place, value) in maps.flat_map(|map| map.get("data").map(Node::fields).unwrap_or_default()) {
        let Some(inner) = value.text() else { continue };
        match Node::parse(inner, Syntax::of(name)) {
            Ok(mut documents) => {
                let origin = value.origin.unwrap_or(Origin::Other);
                for document in &mut documents {
                    document.moved(&|inside| origin.place(text, value.place, inner, inside));
                }
                if documents.iter().all(|document| document.get("apiVersion").is_none()) {
                    let more = documents.iter().skip(1).find(|document| document.is_object());
                    more.into_iter().for_each(|more| notes.add(ignored(number, more.place)));
                    documents.truncate(1);
                }
                found.extend(documents.into_iter().filter(is_known));
            }
            Err((_, said)) if [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending)) => {
                let why = format!("it cannot be read: {said}");
                notes.at(number, place.line, &format!("data: {name}"), why, "Correct it");
            }
            Err(_) => {}
        }
    }
    found
}

/// Gives the items of a list such as `IngressList` their kind and version. The API server leaves both out there.
fn name_items(list: &mut Node) {
    let Some(kind) = list.text_of("kind").strip_suffix("List").filter(|kind| !kind.is_empty()) else {
        return;
    };
    let own = [("kind", kind.to_owned()), ("apiVersion", list.text_of("apiVersion").to_owned())];
    let Content::Object(fields) = &mut list.content else { return };
    for (.., items) in fields.iter_mut().filter(|(name, ..)| name == "items") {
        let Content::List(items) = &mut items.content else { continue };
        for item in items {
            let place = item.place;
            let Content::Object(fields) = &mut item.content else { continue };
            for (name, value) in &own {
                if !value.is_empty() && fields.iter().all(|(field, ..)| field != name) {
                    fields.push(((*name).to_owned(), place, text(place, value)));
                }
            }
        }
    }
}

/// Replaces the merge key `<<` of YAML by the fields that it names, as the readers of Kong, APISIX and Kubernetes do. A field of the object
/// itself wins, and of several objects the first.
fn merge(node: &mut Node) {
    match &mut node.content {
        Content::Scalar(_) => {}
        Content::List(items) => items.iter_mut().for_each(merge),
        Content::Object(fields) => {
            fields.iter_mut().for_each(|(.., value)| merge(value));
            let (named, mut own): (Vec<_>, Vec<_>) =
                core::mem::take(fields).into_iter().partition(|(name, ..)| name == "<<");
            for (.., named) in &named {
                let objects = if named.is_object() { core::slice::from_ref(named) } else { named.items() };
                for field in objects.iter().flat_map(Node::fields) {
                    if own.iter().all(|(name, ..)| *name != field.0) {
                        own.push(field.clone());
                    }
                }
            }
            *fields = own;
        }
    }
}

/// An object of Kubernetes, and the number of its file.
#[derive(Clone, Copy)]
struct Object<'a> {
    file: usize,
    root: &'a Node,
}

/// The documents of these files, each with the number of its file.
fn documents(files: &[File]) -> impl Iterator<Item = (usize, &Node)> {
    files.iter().enumerate().flat_map(|(file, of)| of.documents.iter().map(move |root| (file, root)))
}

/// The objects of these files, and those in lists.
fn objects(files: &[File]) -> Vec<Object<'_>> {
    let mut found = Vec::new();
    for (file, root) in documents(files) {
        let items = root.list("items");
        let is_list = root.text_of("kind").ends_with("List") && !items.is_empty();
        let all = if is_list { items } else { std::slice::from_ref(root) };
        found.extend(all.iter().map(|root| Object { file, root }));
    }
    found
}

impl<'a> Object<'a> {
    fn kind(&self) -> &'a str {
        self.root.text_of("kind")
    }

    fn metadata(&self, name: &str) -> &'a str {
        self.root.get("metadata").map(|metadata| metadata.text_of(name)).unwrap_or_default()
    }

    fn namespace(&self) -> &'a str {
        Some(self.metadata("namespace")).filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Its namespace, if the file says one, and its name: for the name of a policy.
    fn name(&self) -> String {
        let names = [self.metadata("namespace"), self.metadata("name")];
        names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("-")
    }

    /// The items of a list in its `spec`.
    fn listed_in_spec(&self, name: &str) -> &'a [Node] {
        self.root.at(&["spec", name]).map(Node::items).unwrap_or_default()
    }

    fn annotations(&self) -> &'a [(String, Place, Node)] {
        self.root.at(&["metadata", "annotations"]).map(Node::fields).unwrap_or_default()
    }

    /// An annotation, with its place.
    fn annotation(&self, name: &str) -> Option<(Place, &'a Node)> {
        let (_, place, value) = self.annotations().iter().find(|(annotation, ..)| annotation == name)?;
        Some((*place, value))
    }

    /// The class that an Ingress or another object names.
    fn class(&self) -> Option<&'a str> {
        let old = self.annotation("kubernetes.io/ingress.class").and_then(|(_, value)| value.text());
        self.root.at(&["spec", "ingressClassName"]).and_then(Node::text).or(old)
    }

    /// The texts in an annotation, between commas.
    fn listed(&self, name: &str) -> Vec<&'a str> {
        let text = self.annotation(name).and_then(|(_, value)| value.text()).unwrap_or_default();
        text.split(',').map(str::trim).filter(|text| !text.is_empty()).collect()
    }
}

/// A string at a place, for a configuration that is made of objects.
fn text(place: Place, text: &str) -> Node {
    Node::new(place, Content::Scalar(text.into()))
}

fn texts<'a>(place: Place, all: impl IntoIterator<Item = &'a str>) -> Node {
    Node::new(place, Content::List(all.into_iter().map(|one| text(place, one)).collect()))
}

/// An object of these fields, each at the place of its value.
fn object(place: Place, fields: Vec<(&str, Node)>) -> Node {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.place, value));
    Node::new(place, Content::Object(fields.collect()))
}

/// A configuration for each file, of what was made of its objects: their files, the lists that they are in, and the objects.
fn roots(made: &[(usize, &'static str, Node)], lists: &[&'static str], files: usize) -> Vec<Node> {
    let root = |file: usize| {
        let lists = lists.iter().map(|name| {
            let own = made.iter().filter(|(of, list, _)| *of == file && list == name);
            (*name, Node::new(Place::START, Content::List(own.map(|(.., node)| node.clone()).collect())))
        });
        object(Place::START, lists.filter(|(_, list)| !list.items().is_empty()).collect())
    };
    (0..files).map(root).collect()
}

/// The roots of each file: its documents, and what was made of them.
fn roots_of<'a>(files: &'a [File], made: &'a [Node]) -> Vec<(usize, &'a Node)> {
    let all = files.iter().zip(made).enumerate();
    all.flat_map(|(number, (file, made))| file.documents.iter().chain([made]).map(move |root| (number, root)))
        .collect()
}

/// A string as the body of a rejection. A word in braces gets a second brace, so that weir does not read it as a placeholder.
fn body(text: &str) -> String {
    let mut found = String::new();
    for (place, next) in text.char_indices() {
        let after = text.get(place..).and_then(|rest| rest.strip_prefix('{')?.split_once('}'));
        let is_word = |(word, _): &(&str, &str)| {
            word.starts_with(|first: char| first.is_ascii_alphabetic())
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        found.extend(after.filter(is_word).map(|_| '{'));
        found.push(next);
    }
    found
}

/// Says what to do about a file that cannot be read because it is a template.
fn of_template(text: &str) -> &'static str {
    if text.contains("${{ env") {
        ". It is a template: import what it makes, for decK what `deck file render --populate-env-vars` prints"
    } else if ["{{", "{%", "<%"].iter().any(|mark| text.contains(mark)) {
        ". It is a template: import what it makes, such as the output of `helm template`"
    } else {
        ""
    }
}

/// The beginning of a policy: its name, with a comment, and its requests.
fn policy(name: &str, comment: Vec<String>, requests: &Test) -> Map {
    let mut policy = Map::new();
    policy.commented("name", comment, name);
    if *requests != Test::Always {
        policy.set("match", requests.condition());
    }
    policy
}

/// The part of a subject that counts each address.
fn address() -> Map {
    Map::from([("client_address", Map::from([("ipv6_prefix", 128_u64.into())]).into())])
}

/// The part of a subject that counts all requests together.
fn literal(text: &str) -> Map {
    Map::from([("literal", text.into())])
}

/// The marks of texts that decK, Kong and APISIX replace before they read a value, in lower case.
const TEMPLATES: [&str; 4] = ["${{", "{vault://", "$env://", "$secret://"];

/// The fields whose text only clients read. Without it, weir's own text stays.
const MESSAGES: [&str; 2] = ["error_message", "rejected_msg"];

/// The fields of a route that select its requests. If one of their texts has `${` or `{{`, another program fills it in.
const MATCHED: &str =
    "expression headers host hosts method methods paths remote_addr remote_addrs snis uri uris";

/// True if a name is one of these, which are separated by blanks.
fn is_among(name: &str, names: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

/// True if decK, Kong or APISIX replaces this text, or a part of it.
fn is_template(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    TEMPLATES.iter().any(|mark| text.contains(mark))
}

/// Adds a note for each template in these fields of an object, which are separated by blanks, and returns whether the import needs the value of
/// one. `render` says how to fill in `${{…}}`.
fn note_templates(file: usize, node: &Node, fields: &str, render: &str, notes: &mut Notes) -> bool {
    let mut is_found = false;
    for (name, _, value) in node.fields().iter().filter(|(name, ..)| is_among(name, fields)) {
        value.walk(&mut |inner| {
            let text = inner.text().unwrap_or_default();
            // In an expression, `\{{2}` is two brackets.
            let marks = text.replace("\\{", "");
            let is_filled = is_among(name, MATCHED) && (marks.contains("${") || marks.contains("{{"));
            if is_filled || is_template(text) {
                let is_message = MESSAGES.contains(&name.as_str());
                is_found |= !is_message;
                let instead =
                    if text.contains("${{") { render } else { "Write its value into a copy of the file" };
                let effect = if is_message { "so it is not imported" } else { "so nothing is imported" };
                let why = format!("it is a template, whose value weir does not know, {effect}");
                notes.at(file, inner.place.line, &format!("{name}: {text}"), why, instead);
            }
        });
    }
    is_found
}

/// Requests without those that a plugin answers before anything counts them: of `all`, the requests `answered` are of its routes, and of these it
/// answers those that are `its`.
fn without(all: Test, answered: Test, its: Test) -> Test {
    match () {
        () if !answered.overlaps(&its) => all,
        () if all == answered => all.and(its.negated()),
        () => all.and(answered.and(its).negated()),
    }
}

/// Notes a host with a port among those of a route, and returns whether there is one.
fn note_port(file: usize, route: &Node, hosts: &[String], notes: &mut Notes) -> bool {
    let has_port = |host: &&String| test::without_port(host) != host.as_str();
    let Some(host) = hosts.iter().find(has_port) else { return false };
    let why = "weir tests no port, so the route's limits apply at each, beside those of other routes";
    let instead = "Load the policy only in the listener of this port";
    notes.at(file, route.place_of("hosts").line, host, why, instead);
    true
}

/// Notes a plugin that is for one consumer or group.
fn note_consumer(file: usize, place: Place, plugin: &str, notes: &mut Notes) {
    let why = "it is for one consumer or group, and weir knows no consumers, so it is not imported";
    let instead = "Write `tiers`: a header or a claim that names the plan chooses the limits";
    notes.at(file, place.line, plugin, why, instead);
}

/// The field for the class of an Ingress or of another object, in a configuration that is made of objects.
const CLASS: &str = "-class";

/// True if two objects are of different classes, which have gateways of their own.
fn are_apart(one: &Node, other: &Node) -> bool {
    let (one, other) = (one.text_of(CLASS), other.text_of(CLASS));
    !one.is_empty() && !other.is_empty() && one != other
}

/// True if the files have each parent of an HTTPRoute, and all are Gateways of other controllers than the one whose name begins so.
fn is_foreign(route: &Object<'_>, all: &[Object<'_>], own: &str) -> bool {
    let find = |kind: &str, namespace: Option<&str>, name: &str| {
        let is = |of: &&Object<'_>| of.kind() == kind && of.metadata("name") == name;
        all.iter().filter(is).find(|of| namespace.is_none_or(|namespace| of.namespace() == namespace))
    };
    let is_others = |parent: &Node| {
        let namespace = Some(parent.text_of("namespace")).filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or(route.namespace());
        let gateway = find("Gateway", Some(namespace), parent.text_of("name"))?;
        let class = find("GatewayClass", None, gateway.root.at(&["spec", "gatewayClassName"])?.text()?)?;
        let controller = class.root.at(&["spec", "controllerName"])?.text()?;
        Some(!controller.starts_with(own))
    };
    let parents = route.listed_in_spec("parentRefs");
    !parents.is_empty() && parents.iter().all(|parent| is_others(parent) == Some(true))
}

/// Notes each further class of what was made of the objects.
fn note_classes(made: &[Node], notes: &mut Notes) {
    let mut classes: Vec<&str> = Vec::new();
    let lists =
        made.iter().enumerate().flat_map(|(file, root)| root.children().map(move |list| (file, list)));
    for (file, object) in lists.flat_map(|(file, list)| list.items().iter().map(move |one| (file, one))) {
        let class = object.text_of(CLASS);
        if class.is_empty() || classes.contains(&class) {
            continue;
        }
        if !classes.is_empty() {
            let why = "it is a further class, which may have a gateway of its own, and its policies are among the others";
            let instead =
                "Import each class by itself, or load each policy only in the listeners of its gateway";
            notes.at(file, object.place.line, class, why, instead);
        }
        classes.push(class);
    }
}

/// The error if nothing was imported, with the notes that say why. If there are no notes, the files have nothing of the kind.
fn nothing(files: &[String], notes: &Notes, what: &str) -> String {
    let mut text = Vec::new();
    // A vector takes all that is written.
    let _ = notes.print(files, &mut text);
    let first = files.first().map(String::as_str).unwrap_or_default();
    let said = if notes.is_empty() {
        format!("found no {what}")
    } else {
        format!("imported no {what}. What was found:")
    };
    format!("{first}: {said}\n{}", String::from_utf8_lossy(&text)).trim_end().to_owned()
}

/// A decimal number that is not negative, in thousandths. A smaller part makes one more.
fn thousandths(node: &Node) -> Option<u64> {
    thousandths_of(&decimal(node)?)
}

/// A number as `1.5`, also where it is written `1e3`, `.5` or `+5`.
fn decimal(node: &Node) -> Option<String> {
    let text = node.text_or_number()?;
    let is_decimal = text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let read =
        || text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number.to_string());
    if is_decimal { Some(text) } else { read() }
}

fn thousandths_of(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && [whole, part].concat().bytes().all(|byte| byte.is_ascii_digit());
    let (shown, rest) = part.split_at_checked(3).unwrap_or((part, ""));
    let shown: u64 = if shown.is_empty() { 0 } else { format!("{shown:0<3}").parse().ok()? };
    let more = u64::from(rest.bytes().any(|byte| byte != b'0'));
    let number = whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(shown)?.checked_add(more)?;
    is_number.then_some(number)
}

/// Prints the configuration and the notes. The filter's own reader has to accept it first.
fn finish(imported: Imported, output: &Output, from: &str, out: &mut impl io::Write) -> Result<Found, Ended> {
    let Imported { configuration, files, notes } = imported;
    let tree = Tree::from(configuration);
    let refused = Config::parse_for(Host::Wasm, tree.json().to_string().as_bytes()).err();
    if output.json {
        let refused = refused.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        let mut whole = serde_json::json!({"configuration": tree.json(), "notes": notes.json(&files)});
        if !refused.is_empty()
            && let Some(whole) = whole.as_object_mut()
        {
            whole.insert(String::from("errors"), refused.into());
        }
        writeln!(out, "{}", super::words::json(&whole)).map_err(failed)?;
    } else {
        let first = files.first().map(String::as_str).unwrap_or_default();
        let head = format!(
            "Made by `weir import {from}` from {first}. Try it with `weir check`, and with `mode: shadow` first."
        );
        writeln!(out, "# {}", super::words::printable(&head)).map_err(failed)?;
        out.write_all(tree.yaml().as_bytes()).map_err(failed)?;
        notes.print(&files, &mut io::stderr().lock()).map_err(failed)?;
    }
    if let Some(errors) = refused {
        let lines: Vec<_> = errors.iter().map(|error| format!("  {error}")).collect();
        return Err(format!(
            "the filter refuses what was made, so complete it by hand:\n{}",
            lines.join("\n")
        )
        .into());
    }
    Ok(if output.strict && !notes.is_empty() { Found::Something } else { Found::Nothing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_in_thousandths() {
        for (text, thousandths) in [
            ("5", Some(5_000)),
            ("0.5", Some(500)),
            ("2.25", Some(2_250)),
            ("0.0001", Some(1)),
            ("1.0000", Some(1_000)),
            ("\"7\"", Some(7_000)),
            ("-1", None),
            ("1e3", Some(1_000_000)),
            ("2.5e-1", Some(250)),
            (".5", Some(500)),
            ("+5", Some(5_000)),
            ("1e30", None),
            ("$count", None),
            ("[1]", None),
        ] {
            let node = Node::parse(text, Syntax::Yaml).unwrap_or_default().pop().unwrap();
            assert_eq!(super::thousandths(&node), thousandths, "{text}");
        }
    }

    #[test]
    fn bodies_have_no_placeholders() {
        for (text, expected) in [
            ("wait {limit} s", "wait {{limit} s"),
            ("{{a-1}", "{{{a-1}"),
            ("{\"a\":{}} {1} { x}", "{\"a\":{}} {1} { x}"),
            ("{a", "{a"),
        ] {
            assert_eq!(body(text), expected, "{text}");
        }
    }

    #[test]
    fn merge_keys() {
        let text = "{a: &a {x: 1, y: 2}, b: &b {y: 3, z: 4}, c: {<<: [*a, *b], x: 9}, d: [{e: {<<: *a}}]}";
        let mut node = Node::parse(text, Syntax::Yaml).unwrap_or_default().pop().unwrap();
        merge(&mut node);
        let json = node.json();
        assert_eq!(json["c"], serde_json::json!({"x": 9, "y": 2, "z": 4}));
        assert_eq!(json["d"], serde_json::json!([{"e": {"x": 1, "y": 2}}]));
    }
}
