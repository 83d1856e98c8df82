// SPDX-License-Identifier: Apache-2.0
//! `weir import ingress`: the rate limits in annotations of ingress-nginx.
//!
//! The controller writes nginx's configuration, so this does the same, as far as limits and the choice of the location depend on it. The
//! rest is the import of nginx. Each directive has the place of the annotation, or of the path, that it comes from.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use super::nginx::{Block, Directive, imported, parse};
use super::notes::Notes;
use super::{Imported, Object, Output};
use crate::document::{Node, Origin, Place};
use crate::source::Source as File;
use weir::config::nearest;

const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// The annotations of limits that are read.
const LIMITS: [&str; 6] = [
    "limit-rps",
    "limit-rpm",
    "limit-connections",
    "limit-burst-multiplier",
    "limit-allowlist",
    "limit-whitelist",
];

/// The directives of a snippet on which limits depend, beside those that begin with `limit_`.
const DEPENDS: [&str; 7] = ["break", "error_page", "if", "location", "return", "rewrite", "set"];

/// The default of `limit-burst-multiplier`.
const MULTIPLIER: u64 = 5;

/// The largest number that the controller's reader and nginx take.
const MAX_NUMBER: u64 = i32::MAX as u64;

/// The reaction of the controller to a limit or a network that it cannot read.
const REFUSES: &str = "since 1.12 the controller takes nothing of this Ingress";

/// A value that the controller cannot read.
struct Refused;

/// The files to import.
#[derive(Args)]
pub struct Arguments {
    /// Manifests with Ingresses, or what `kubectl get ingress -A -o yaml` prints. A ConfigMap of the controller among them has the status
    /// of rejections and snippets.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// The limits of an Ingress: what is at the beginning of the block `http`, and in each of its locations.
#[derive(Default)]
struct Limits {
    zones: Vec<Directive>,
    rules: Vec<Directive>,
}

/// The server of a host.
#[derive(Default)]
struct Host {
    aliases: Vec<String>,
    /// The text of `server-snippet`.
    snippet: Vec<Directive>,
    /// The server's own answer, before it chooses a location.
    answers: Vec<Directive>,
    /// In the order in which the controller finds them.
    locations: Vec<Location>,
}

struct Location {
    path: String,
    is_exact: bool,
    /// The controller reads all paths of the host as regular expressions, because of this one.
    is_regex: bool,
    /// It has the paths that no Ingress has, and whether they have a backend.
    rest: Option<bool>,
    block: Directive,
}

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let files = super::read(&arguments.files, 0, &mut notes)?;
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let all = super::objects(&files);
    let (mut http, mut variable) = (Vec::new(), String::from("$binary_remote_addr"));
    let (mut of_servers, mut of_locations) = (Vec::new(), Vec::new());
    let maps: Vec<_> = all.iter().filter(|object| object.kind() == "ConfigMap").collect();
    for map in &maps {
        http.extend(map.statuses(&mut variable, &mut notes));
        let data = map.root.get("data").map(Node::fields).unwrap_or_default();
        for (name, _, value) in data {
            let list = match name.as_str() {
                "http-snippet" => &mut http,
                "server-snippet" => &mut of_servers,
                "location-snippet" => &mut of_locations,
                _ => continue,
            };
            list.extend(map.snippet(text_of(map, &files), name, value, &mut notes));
        }
    }
    let set =
        |name: &str| maps.iter().find_map(|map| map.root.at(&["data", name])).and_then(Node::text_or_number);
    // Other ConfigMaps are those of other programs.
    let of_controller = |map: &&Object<'_>| {
        let data = map.root.get("data").map(Node::fields).unwrap_or_default();
        let is_setting = |name: &str| name.ends_with("-snippet") || name.starts_with("limit-");
        data.iter().any(|(name, ..)| is_setting(name) || name == "allow-snippet-annotations")
    };
    let allows = maps
        .iter()
        .any(of_controller)
        .then(|| set("allow-snippet-annotations").is_some_and(|value| is_true(&value)));
    let rejected = ["limit_req_status", "limit_conn_status"].map(|name| {
        let status = http.iter().rfind(|directive| directive.name == name);
        status.map_or("503", |status| status.argument(0)).to_owned()
    });
    let mut ingresses: Vec<_> = all.iter().filter(|object| object.kind() == "Ingress").collect();
    let first = ingresses.iter().find_map(|ingress| ingress.class());
    for other in ingresses.iter().filter(|of| of.class().is_some_and(|own| Some(own) != first)) {
        let why = "it is of another class than the first Ingress, and perhaps of another controller; weir takes all for those of one controller";
        let instead = "Give the Ingresses of one controller only";
        notes.at(other.file, other.root.place.line, "ingressClassName", why, instead);
    }
    // Of two that have one path, the controller takes the older one.
    if ingresses.iter().all(|ingress| !ingress.metadata("creationTimestamp").is_empty()) {
        let age = |ingress: &&Object<'_>| {
            let name = format!("{}/{}", ingress.namespace(), ingress.metadata("name"));
            (ingress.metadata("creationTimestamp").to_owned(), Reverse(name))
        };
        ingresses.sort_by_key(age);
    }
    // The controller always has a default server, so a server with a name gets the requests of its host only.
    let mut all_others = Host::default();
    let block = Directive::new(String::from("location"), Vec::new(), (0, 1));
    let root =
        Location { path: String::from("/"), is_exact: false, is_regex: false, rest: Some(false), block };
    all_others.add(root);
    let mut hosts = BTreeMap::from([("", all_others)]);
    for ingress in ingresses {
        ingress.note_others(&mut notes);
        if ingress.root.get("spec").is_none() {
            for (annotation, place, value) in ingress.annotations() {
                let Some(name) = annotation.strip_prefix(PREFIX) else { continue };
                if LIMITS.contains(&name) || value.text().is_some_and(|text| text.contains("limit_")) {
                    let why = "its Ingress has no `spec`, so it limits nothing here";
                    let instead = "If this is a patch, import what `kubectl kustomize` prints";
                    notes.at(ingress.file, place.line, name, why, instead);
                }
            }
            continue;
        }
        if ingress.is_true("canary") {
            continue;
        }
        let mut limits = ingress.limits(&variable, &mut notes);
        http.extend(limits.zones);
        let mut snippet = |name: &str| {
            let Some((place, value)) = ingress.annotation(&format!("{PREFIX}{name}")) else {
                return Vec::new();
            };
            let found = ingress.snippet(text_of(ingress, &files), name, value, &mut notes);
            let depends =
                |of: &Directive| of.name.starts_with("limit_") || DEPENDS.contains(&of.name.as_str());
            if !found.iter().any(depends) {
                return found;
            }
            if allows == Some(true) {
                if set("annotations-risk-level").as_deref() != Some("Critical") {
                    let why = "from 1.12 on the controller takes nothing of an Ingress with a snippet without `annotations-risk-level: Critical` in its \
                               ConfigMap, and it is imported";
                    notes.at(
                        ingress.file,
                        place.line,
                        name,
                        why,
                        "Remove what it makes if the controller is one of these",
                    );
                }
                return found;
            }
            let (why, instead) = if allows.is_some() {
                (
                    "the controller reads it only with `allow-snippet-annotations: \"true\"` in its ConfigMap, so it is not imported",
                    "Give the controller's ConfigMap if this is another one",
                )
            } else {
                (
                    "the controller reads it only with `allow-snippet-annotations: \"true\"` in its ConfigMap, and it is imported",
                    "Import the ConfigMap, too, or remove what it makes if the controller does not read it",
                )
            };
            notes.at(ingress.file, place.line, name, why, instead);
            if allows.is_some() { Vec::new() } else { found }
        };
        let server = snippet("server-snippet");
        limits.rules.extend(ingress.answers());
        limits.rules.extend(snippet("configuration-snippet"));
        limits.rules.extend(of_locations.iter().cloned());
        let mut rules = limits.rules.iter().chain(&server).chain(&of_servers);
        if rules.any(|rule| rule.name.starts_with("limit_")) {
            ingress.note_answers(&set, &mut notes);
            ingress.note_errors(PREFIX, ingress.annotations(), &rejected, &mut notes);
            for map in &maps {
                let data = map.root.get("data").map(Node::fields).unwrap_or_default();
                map.note_errors("", data, &rejected, &mut notes);
                let blocks = |name: &str| ["block-user-agents", "block-referers"].contains(&name);
                for (name, place, _) in data.iter().filter(|(name, ..)| blocks(name)) {
                    notes.at(map.file, place.line, name, FORBIDS, DENY);
                }
            }
        }
        ingress.add_locations(&limits.rules, &server, &mut hosts);
    }
    let all: BTreeSet<String> = hosts.keys().map(|name| (*name).to_owned()).collect();
    for (name, mut host) in hosts {
        host.snippet.extend(of_servers.iter().cloned());
        http.push(host.server(name, &all, &mut notes));
    }
    notes.rest(&files);
    let block = Some(Block::Directives(http));
    let http = Directive { block, ..Directive::new(String::from("http"), Vec::new(), (0, 1)) };
    imported(vec![http], names, notes, "annotation of a limit in any Ingress")
}

const FORBIDS: &str =
    "the controller answers such requests with 403 before it counts them, and weir counts them";

const DENY: &str = "If that matters, write their condition into `deny`";

/// True for the words that Go reads so.
fn is_true(value: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True"].contains(&value)
}

/// The text of an object's file.
fn text_of<'f>(object: &Object<'_>, files: &'f [File]) -> &'f str {
    files.get(object.file).map(|file| file.text.as_str()).unwrap_or_default()
}

impl<'a> Object<'a> {
    /// The directives of a snippet, at their places in the file of this text.
    fn snippet(&self, text: &str, name: &str, value: &Node, notes: &mut Notes) -> Vec<Directive> {
        let Some(inner) = value.text() else { return Vec::new() };
        notes.read(value);
        match parse(inner, self.file) {
            Ok(mut directives) => {
                let origin = value.origin.unwrap_or(Origin::Other);
                directives.iter_mut().for_each(|directive| {
                    directive.moved(&|line| {
                        origin.place(text, value.place, inner, Place { line, column: 1 }).line
                    });
                });
                directives
            }
            Err((_, said)) => {
                let why = format!("it cannot be read: {said}");
                notes.at(self.file, value.place.line, name, why, "Correct it");
                Vec::new()
            }
        }
    }

    /// An annotation of the controller, and its line.
    fn setting(&self, name: &str) -> Option<(usize, String)> {
        let (place, value) = self.annotation(&format!("{PREFIX}{name}"))?;
        Some((place.line, value.text_or_number()?))
    }

    fn is_true(&self, name: &str) -> bool {
        self.line_if_true(name).is_some()
    }

    /// The line of an annotation that is true.
    fn line_if_true(&self, name: &str) -> Option<usize> {
        self.setting(name).filter(|(_, value)| is_true(value)).map(|(line, _)| line)
    }

    /// True if the controller reads this path as a regular expression, and so all others of its host.
    fn has_regex(&self, path: &str) -> bool {
        let target = self.setting("rewrite-target").map(|(_, target)| target).unwrap_or_default();
        self.is_true("use-regex") || !target.is_empty() && target != path
    }

    fn directive(&self, line: usize, words: &[&str]) -> Directive {
        let mut words = words.iter().map(|word| (*word).to_owned());
        let name = words.next().unwrap_or_default();
        Directive::new(name, words.collect(), (self.file, line))
    }

    fn block(&self, line: usize, words: &[&str], inner: Vec<Directive>) -> Directive {
        Directive { block: Some(Block::Directives(inner)), ..self.directive(line, words) }
    }

    /// A number that limits, and its line: none for 0 and what is below. For what is no number a note says what the controller `does`.
    fn number(&self, name: &str, does: &str, notes: &mut Notes) -> Result<Option<(usize, u64)>, Refused> {
        let Some((line, text)) = self.setting(name).filter(|(_, text)| !text.is_empty()) else {
            return Ok(None);
        };
        match text.parse::<i64>().map(u64::try_from) {
            Ok(Err(_) | Ok(0)) => Ok(None),
            Ok(Ok(number)) if number <= MAX_NUMBER => Ok(Some((line, number))),
            _ => {
                let why = format!("found {text:?}, allowed: a whole number; {does}");
                notes.at(self.file, line, name, why, "Correct it");
                Err(Refused)
            }
        }
    }

    /// The networks that are exempt, and their line.
    fn exempt(&self, notes: &mut Notes) -> Result<Option<(usize, Vec<String>)>, Refused> {
        let lists = ["limit-allowlist", "limit-whitelist"].into_iter();
        let list = lists.filter_map(|name| self.setting(name)).find(|(_, text)| !text.is_empty());
        let Some((line, text)) = list else { return Ok(None) };
        let networks: Vec<String> = text.split(',').map(|network| network.trim().to_owned()).collect();
        if let Some(wrong) = networks.iter().find(|network| super::test::network(network).is_none()) {
            let why = format!("{wrong:?} is no network, allowed: 10.0.0.0/8 or an address; {REFUSES}");
            notes.at(self.file, line, "limit-allowlist", why, "Correct it");
            return Err(Refused);
        }
        Ok(Some((line, networks)))
    }

    fn limits(&self, variable: &str, notes: &mut Notes) -> Limits {
        let numbers =
            ["limit-rps", "limit-rpm", "limit-connections"].map(|name| self.number(name, REFUSES, notes));
        if numbers.iter().all(|number| matches!(number, Ok(None))) {
            return Limits::default();
        }
        let ([Ok(rps), Ok(rpm), Ok(connections)], Ok(exempt)) = (numbers, self.exempt(notes)) else {
            return Limits::default();
        };
        let does = format!("the controller takes {MULTIPLIER}");
        let multiplier = self.number("limit-burst-multiplier", &does, notes);
        let multiplier = multiplier.unwrap_or_default().map_or(MULTIPLIER, |(_, number)| number);
        if let Some((line, _)) = self.setting("limit-burst-multiplier").filter(|(_, number)| number == "0") {
            let why = format!(
                "nginx refuses the burst of 0 that the controller writes, and {MULTIPLIER} counts here"
            );
            notes.at(self.file, line, "limit-burst-multiplier", why, "Write at least 1");
        }
        // With a slash, because `a` and `b-c` are another Ingress than `a-b` and `c`.
        let names = [self.metadata("namespace"), self.metadata("name")];
        let name = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/");
        let zone = |end: &str| format!("{name}-{end}");
        let mut limits = Limits::default();
        let key = zone("key").replace('-', "_").replace('.', "_dot_").replace('/', "__");
        let key = self.key(&key, variable, exempt, &mut limits);
        let mut note_replicas = |line, what: &str| {
            let why = "each replica of the controller has counted for itself, and all proxies with weir count together";
            let instead = "If the limit was meant for one replica of several, multiply it by their number";
            notes.at(self.file, line, what, why, instead);
        };
        // In this order, nginx asks them.
        if let Some((line, limit)) = connections {
            let zone = zone("conn");
            limits.zones.push(self.directive(line, &["limit_conn_zone", &key, &format!("zone={zone}:5m")]));
            limits.rules.push(self.directive(line, &["limit_conn", &zone, &limit.to_string()]));
            note_replicas(line, "limit-connections");
        }
        for (found, end, unit) in [(rpm, "rpm", "m"), (rps, "rps", "s")] {
            let Some((line, limit)) = found else { continue };
            let (zone, rate) = (zone(end), format!("rate={limit}r/{unit}"));
            let zoned = ["limit_req_zone", &key, &format!("zone={zone}:5m"), &rate];
            limits.zones.push(self.directive(line, &zoned));
            let burst = format!("burst={}", limit.saturating_mul(multiplier).min(MAX_NUMBER));
            limits
                .rules
                .push(self.directive(line, &["limit_req", &format!("zone={zone}"), &burst, "nodelay"]));
            note_replicas(line, &format!("limit-{end}"));
        }
        limits
    }

    /// The line of `enable-cors`, and whether it is for all origins.
    fn cors(&self) -> Option<(usize, bool)> {
        let origins = self.setting("cors-allow-origin");
        let is_for_all = origins.is_none_or(|(_, origins)| origins.trim() == "*");
        self.line_if_true("enable-cors").map(|line| (line, is_for_all))
    }

    /// The answers that the controller gives before it limits.
    fn answers(&self) -> Vec<Directive> {
        let preflight = self.cors().filter(|(_, is_for_all)| *is_for_all).map(|(line, _)| {
            let answer = vec![self.directive(line, &["return", "204"])];
            self.block(line, &["if", "($request_method", "=", "OPTIONS)"], answer)
        });
        let moved = ["temporal-redirect", "permanent-redirect"].into_iter();
        let moved = moved.filter_map(|name| self.setting(name));
        preflight
            .into_iter()
            .chain(moved.map(|(line, _)| self.directive(line, &["return", "301", "/"])))
            .collect()
    }

    /// Notes requests that the controller answers or passes on before it counts them. `set` is a setting of its ConfigMap.
    fn note_answers(&self, set: &dyn Fn(&str) -> Option<String>, notes: &mut Notes) {
        if let Some((line, is_for_all)) = self.cors() {
            let (why, instead) = if is_for_all {
                (
                    "the controller answers OPTIONS before it limits, so the policies do not count it",
                    "Let Envoy's filter cors stand before weir; else such requests reach the upstream without a limit",
                )
            } else {
                (
                    "the controller answers OPTIONS of these origins before it limits, and the policies count it",
                    "Let Envoy's filter cors stand before weir",
                )
            };
            notes.at(self.file, line, "enable-cors", why, instead);
        }
        if let Some((line, _)) = self.setting("auth-tls-match-cn") {
            notes.at(self.file, line, "auth-tls-match-cn", FORBIDS, DENY);
        }
        if let Some(line) = self.line_if_true("ssl-passthrough") {
            let why = "with --enable-ssl-passthrough the controller passes TLS on without reading it, so it limits no request in TLS, and weir does";
            notes.at(self.file, line, "ssl-passthrough", why, "Remove its policies if that is not meant");
        }
        let is_on = |name: &str, default: bool| {
            let value = self.setting(name).map(|(_, value)| value).or_else(|| set(name));
            value.map_or(default, |value| is_true(&value))
        };
        let tls = self.root.at(&["spec", "tls"]).filter(|tls| !tls.items().is_empty());
        let tls = tls.filter(|_| is_on("ssl-redirect", true)).map(|tls| (tls.place.line, "tls"));
        let forced = self.setting("force-ssl-redirect").map_or(self.root.place.line, |(line, _)| line);
        let forced = is_on("force-ssl-redirect", false).then_some((forced, "force-ssl-redirect"));
        if let Some((line, what)) = forced.or(tls) {
            let why =
                "the controller redirects requests without TLS before it counts them, and weir counts them";
            let instead = "Leave weir out of Envoy's listener that redirects";
            notes.at(self.file, line, what, why, instead);
        }
    }

    /// Notes `custom-http-errors` among these settings, if one of them is the status of a rejection.
    fn note_errors(
        &self,
        prefix: &str,
        settings: &[(String, Place, Node)],
        rejected: &[String],
        notes: &mut Notes,
    ) {
        let is_it = |name: &str| name.strip_prefix(prefix) == Some("custom-http-errors");
        for (_, place, value) in settings.iter().filter(|(name, ..)| is_it(name)) {
            let codes = value.text_or_number().unwrap_or_default();
            if codes.split(',').any(|code| rejected.iter().any(|rejected| rejected == code.trim())) {
                let why = "the default backend answers a rejected request, and weir with a body of its own";
                let instead = "Write `response: {body: …}`";
                notes.at(self.file, place.line, "custom-http-errors", why, instead);
            }
        }
    }

    /// Returns the key of the zones: the address, and nothing for the networks that are exempt.
    fn key(
        &self,
        name: &str,
        variable: &str,
        exempt: Option<(usize, Vec<String>)>,
        limits: &mut Limits,
    ) -> String {
        let Some((line, networks)) = exempt else { return variable.to_owned() };
        let mut inner = vec![self.directive(line, &["default", "0"])];
        inner.extend(networks.iter().map(|network| self.directive(line, &[network, "1"])));
        let (exempt, key) = (format!("${name}_exempt"), format!("${name}"));
        limits.zones.push(self.block(line, &["geo", &exempt], inner));
        let cases = vec![self.directive(line, &["0", variable]), self.directive(line, &["1", ""])];
        limits.zones.push(self.block(line, &["map", &exempt, &key], cases));
        key
    }

    /// Notes annotations that limit, and are not imported.
    fn note_others(&self, notes: &mut Notes) {
        for (annotation, place, value) in self.annotations() {
            let Some(name) = annotation.strip_prefix(PREFIX) else { continue };
            notes.read(value);
            let said = match name {
                _ if self.is_true("canary") && name.starts_with("limit-") => {
                    let why = "the controller takes the limits of a canary from the Ingress beside it";
                    Some((why, String::new()))
                }
                _ if LIMITS.contains(&name) => None,
                _ => elsewhere(name, value)
                    .map(|(why, instead)| (why, instead.to_owned()))
                    .or_else(|| misspelt(name)),
            };
            if let Some((why, instead)) = said {
                notes.at(self.file, place.line, name, why, instead);
            }
        }
    }

    /// Adds the locations to their hosts.
    fn add_locations(&self, rules: &[Directive], snippet: &[Directive], hosts: &mut BTreeMap<&'a str, Host>) {
        // nginx sends `/files` to `/files/` before a proxy.
        let proxy = |line| self.directive(line, &["proxy_pass", "http://upstream_balancer"]);
        let location = |line, path: &str, is_exact| Location {
            path: path.to_owned(),
            is_exact,
            is_regex: self.has_regex(path),
            rest: None,
            block: self.block(line, &["location"], [rules, &[proxy(line)]].concat()),
        };
        let spec = self.root.get("spec");
        let backend = spec.and_then(|spec| spec.field("defaultBackend")).map(|(place, _)| place.line);
        let own = spec.map(|spec| spec.list("rules")).unwrap_or_default();
        if let Some(line) = backend.filter(|_| own.is_empty()) {
            // For this one the controller does not read the annotations of redirects.
            let limits = rules.iter().filter(|rule| rule.name != "return").cloned().collect();
            let block = self.block(line, &["location"], limits);
            let all = Location { is_regex: false, block, ..location(line, "/", false) };
            hosts.entry("").or_default().add(all);
        }
        for rule in own {
            let name = rule.text_of("host");
            let is_new = !hosts.contains_key(name);
            let host = hosts.entry(name).or_default();
            if is_new {
                let rest = location(backend.unwrap_or(rule.place.line), "/", false);
                host.add(Location { rest: Some(backend.is_some()), ..rest });
            }
            // The controller takes the first one of a host.
            if host.snippet.is_empty() {
                host.snippet = snippet.to_vec();
            }
            if host.aliases.is_empty() {
                let aliases = self.setting("server-alias").map(|(_, aliases)| aliases).unwrap_or_default();
                let aliases = aliases.split(',').map(str::trim).filter(|alias| !alias.is_empty());
                host.aliases = aliases.map(str::to_owned).collect();
            }
            if let Some((line, _)) = self.setting("app-root") {
                let answer = vec![self.directive(line, &["return", "302", "/"])];
                host.answers.push(self.block(line, &["if", "($uri", "=", "/)"], answer));
            }
            for node in rule.get("http").map(|http| http.list("paths")).unwrap_or_default() {
                let path = Some(node.text_of("path")).filter(|path| !path.is_empty()).unwrap_or("/");
                // All other types are prefixes to the controller.
                host.add(location(node.place.line, path, node.text_of("pathType") == "Exact"));
            }
        }
    }

    /// The status of rejections, and the variable that limits count by, from a ConfigMap.
    fn statuses(&self, variable: &mut String, notes: &mut Notes) -> Vec<Directive> {
        let data = self.root.get("data").map(Node::fields).unwrap_or_default();
        let mut found = Vec::new();
        for (name, place, value) in data {
            let directive = match name.as_str() {
                "limit-req-status-code" => "limit_req_status",
                "limit-conn-status-code" => "limit_conn_status",
                "limit-conn-zone-variable" => {
                    notes.read(value);
                    *variable =
                        value.text_or_number().filter(|text| !text.is_empty()).unwrap_or(variable.clone());
                    continue;
                }
                "use-forwarded-headers" | "use-proxy-protocol" | "enable-real-ip"
                    if value.text_or_number().as_deref() == Some("true") =>
                {
                    let why = "the controller takes a client's address from what the proxy before it says";
                    let instead = "Say in `client_address` which proxies weir trusts, and the same in Envoy";
                    notes.at(self.file, place.line, name, why, instead);
                    continue;
                }
                _ => {
                    if let Some((why, instead)) = elsewhere(name, value) {
                        notes.read(value);
                        notes.at(self.file, place.line, name, why, instead);
                    }
                    continue;
                }
            };
            notes.read(value);
            if let Some(status) = value.text_or_number() {
                found.push(self.directive(place.line, &[directive, &status]));
            }
        }
        found
    }
}

/// Names a mistake: the controller does not know this annotation, but its name resembles one that limits.
fn misspelt(name: &str) -> Option<(&'static str, String)> {
    let lower = name.to_ascii_lowercase();
    let names = LIMITS.into_iter().chain(["limit-rate", "limit-rate-after"]);
    let longer = names.clone().find(|known| known.starts_with(lower.as_str())).map(str::to_owned);
    let meant = longer.or_else(|| nearest(&lower, names)).map(|meant| format!(" (did you mean {meant:?}?)"));
    let is_like = meant.is_some() || ["limit", "rps", "rpm", "burst"].iter().any(|word| lower.contains(word));
    let instead = format!("Correct its name{}", meant.unwrap_or_default());
    is_like.then_some(("the controller has no such annotation, so it limits nothing", instead))
}

/// Says why a setting of the controller that limits is not imported, and what to do instead.
fn elsewhere(name: &str, value: &Node) -> Option<(&'static str, &'static str)> {
    let is_read =
        ["http-snippet", "server-snippet", "configuration-snippet", "location-snippet"].contains(&name);
    let has_limits = !is_read && value.text().is_some_and(|text| text.contains("limit_"));
    match name {
        "limit-rate" | "limit-rate-after" => {
            Some(("it slows down responses, which weir does not do", "Use Envoy's filter bandwidth_limit"))
        }
        _ if name.starts_with("global-rate-limit") => Some((
            "the controller has it no more since 1.12, and it is not imported",
            "Write a policy with `fixed_window`: it counts over all proxies",
        )),
        _ if name.ends_with("-snippet") && has_limits => Some((
            "limits in this snippet are not read",
            "Import the nginx.conf of a controller's pod with `weir import nginx`",
        )),
        _ => None,
    }
}

impl Host {
    /// Adds a location. Of two that have one path, the controller keeps the first.
    fn add(&mut self, location: Location) {
        let path = (&location.path, location.is_exact);
        match self.locations.iter_mut().find(|other| (&other.path, other.is_exact) == path) {
            Some(rest) if rest.rest.is_some() => *rest = location,
            Some(_) => {}
            None => self.locations.push(location),
        }
    }

    /// `hosts`: those that have a server of their own.
    fn server(self, name: &str, hosts: &BTreeSet<String>, notes: &mut Notes) -> Directive {
        let is_regex = self.locations.iter().any(|location| location.is_regex);
        let mut locations = self.locations;
        // nginx takes the first expression that matches, so the controller writes the longest path first.
        locations.sort_by(|one, other| (other.path.len(), &other.path).cmp(&(one.path.len(), &one.path)));
        let exact: BTreeSet<String> = locations
            .iter()
            .filter(|location| location.is_exact)
            .map(|location| location.path.clone())
            .collect();
        let (file, line) = locations.first().map_or((0, 1), |first| (first.block.file, first.block.line));
        let of = |words: &[&str]| {
            let mut words = words.iter().map(|word| (*word).to_owned());
            Directive::new(words.next().unwrap_or_default(), words.collect(), (file, line))
        };
        // To the controller, `*` is one label.
        let pattern =
            name.strip_prefix("*.").map(|domain| format!("~^[\\w-]+\\.{}$", domain.replace('.', "\\.")));
        let name = if name.is_empty() { "_" } else { name };
        let mut names = vec!["server_name", pattern.as_deref().unwrap_or(name)];
        names.extend(self.aliases.iter().map(String::as_str).filter(|alias| !hosts.contains(*alias)));
        let port: &[&str] = if name == "_" { &["listen", "80", "default_server"] } else { &["listen", "80"] };
        let mut inner = vec![of(&names), of(port)];
        inner.extend(self.snippet);
        inner.extend(self.answers);
        for Location { path, is_exact, is_regex: is_own, rest, mut block } in locations {
            if rest == Some(false) {
                if block.inner().iter().any(|directive| directive.name.starts_with("limit_")) {
                    let why = "the controller answers other paths of this host with 404, and counts them, too; weir does not";
                    notes.at(block.file, block.line, name, why, "");
                }
                block.block = None;
            }
            // Segment by segment: what is below the path, and the path itself.
            let below = format!("{}/", path.strip_suffix('/').unwrap_or(&path));
            let paths = match path.as_str() {
                "/" => vec![("/", is_exact)],
                _ if is_exact || is_own => vec![(path.as_str(), is_exact)],
                _ if exact.contains(&path) => vec![(below.as_str(), false)],
                _ => vec![(below.as_str(), false), (path.as_str(), true)],
            };
            for (path, is_exact) in paths {
                let pattern = format!("^{path}");
                let words: &[&str] = match (is_regex, is_exact) {
                    (true, _) => &["~*", &pattern],
                    (false, true) => &["=", path],
                    (false, false) => &[path],
                };
                let arguments = words.iter().map(|word| (*word).to_owned()).collect();
                inner.push(Directive { arguments, ..block.clone() });
            }
        }
        Directive { block: Some(Block::Directives(inner)), ..of(&["server"]) }
    }
}
