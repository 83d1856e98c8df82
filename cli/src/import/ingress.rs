// SPDX-License-Identifier: Apache-2.0
//! `weir import ingress`: the rate limits in annotations of ingress-nginx.
//!
//! The controller writes nginx's configuration, so this does the same, as far as limits and the choice of the location depend on it. The
//! rest is the import of nginx. Each directive has the place of the annotation, or of the path, that it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use super::nginx::{Block, Directive, imported};
use super::notes::{Note, Notes};
use super::{Imported, Object, Output};
use crate::document::Node;

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

/// The default of `limit-burst-multiplier`.
const MULTIPLIER: u64 = 5;

/// The largest number that the controller's reader and nginx take.
const MAX_NUMBER: u64 = i32::MAX as u64;

/// The files to import.
#[derive(Args)]
pub struct Arguments {
    /// Manifests with Ingresses, or what `kubectl get ingress -A -o yaml` prints. A ConfigMap of the controller among them has the status
    /// of rejections.
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

/// The locations of a host, by their names.
#[derive(Default)]
struct Host {
    /// All paths are regular expressions, because an Ingress of the host says so.
    is_regex: bool,
    locations: BTreeMap<(String, bool), Directive>,
}

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let files = super::read(&arguments.files, 0, &mut notes)?;
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let all = super::objects(&files);
    let mut http = Vec::new();
    for map in all.iter().filter(|object| object.kind() == "ConfigMap") {
        http.extend(map.statuses(&mut notes));
    }
    let ingresses: Vec<_> = all.iter().filter(|object| object.kind() == "Ingress").collect();
    let regex: BTreeSet<&str> =
        ingresses.iter().filter(|ingress| ingress.has_regex()).flat_map(|ingress| ingress.hosts()).collect();
    // The controller always has a default server, so a server with a name gets the requests of its host only.
    let mut hosts = BTreeMap::from([("", Host::default())]);
    for ingress in ingresses {
        ingress.note_others(&mut notes);
        if ingress.is_canary() {
            continue;
        }
        let limits = ingress.limits(&mut notes);
        http.extend(limits.zones);
        for (host, location) in ingress.locations(&limits.rules) {
            let entry = hosts.entry(host).or_default();
            entry.is_regex = regex.contains(host);
            entry.add(location);
        }
    }
    http.extend(hosts.into_iter().map(|(name, host)| host.server(name)));
    notes.rest(&files);
    imported(http, names, notes, "annotation of a limit in any Ingress")
}

impl<'a> Object<'a> {
    /// An annotation of the controller, and its line.
    fn setting(&self, name: &str) -> Option<(usize, String)> {
        let (place, value) = self.annotation(&format!("{PREFIX}{name}"))?;
        Some((place.line, value.text_or_number()?))
    }

    fn is_true(&self, name: &str) -> bool {
        self.setting(name).is_some_and(|(_, value)| value == "true")
    }

    /// The controller takes the limits of a canary from the Ingress beside it.
    fn is_canary(&self) -> bool {
        self.is_true("canary")
    }

    fn has_regex(&self) -> bool {
        self.is_true("use-regex") || self.setting("rewrite-target").is_some()
    }

    fn rules(&self) -> &'a [Node] {
        self.root.get("spec").map(|spec| spec.list("rules")).unwrap_or_default()
    }

    fn hosts(&self) -> impl Iterator<Item = &'a str> {
        self.rules().iter().map(|rule| rule.text_of("host"))
    }

    fn directive(&self, line: usize, words: &[&str]) -> Directive {
        let mut words = words.iter().map(|word| (*word).to_owned());
        let name = words.next().unwrap_or_default();
        Directive { name, arguments: words.collect(), block: None, file: self.file, line }
    }

    fn block(&self, line: usize, words: &[&str], inner: Vec<Directive>) -> Directive {
        Directive { block: Some(Block::Directives(inner)), ..self.directive(line, words) }
    }

    /// A number that the controller takes, which is none for what is no number, and for 0.
    fn number(&self, name: &str, notes: &mut Notes) -> Option<(usize, u64)> {
        let (line, text) = self.setting(name)?;
        match text.parse::<u64>() {
            Ok(0) => None,
            Ok(number) if number <= MAX_NUMBER => Some((line, number)),
            _ => {
                let why = format!("found {text:?}, allowed: a whole number; the controller ignores it");
                notes.add(Note::at(self.file, line, name, why, "Correct it"));
                None
            }
        }
    }

    fn limits(&self, notes: &mut Notes) -> Limits {
        let [rps, rpm, connections] =
            ["limit-rps", "limit-rpm", "limit-connections"].map(|name| self.number(name, notes));
        let multiplier =
            self.number("limit-burst-multiplier", notes).map_or(MULTIPLIER, |(_, number)| number);
        if rps.is_none() && rpm.is_none() && connections.is_none() {
            return Limits::default();
        }
        let name = self.name();
        let zone = |end: &str| format!("{name}-{end}");
        let mut limits = Limits::default();
        let key = self.key(&zone("key").replace(['-', '.'], "_"), &mut limits, notes);
        let mut note_replicas = |line, what: &str| {
            let why = "each replica of the controller has counted for itself, and all proxies with weir count together";
            let instead = "If the limit was meant for one replica of several, multiply it by their number";
            notes.add(Note::at(self.file, line, what, why, instead));
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
        if let Some((line, _)) = self.setting("enable-cors").filter(|_| self.is_true("enable-cors")) {
            let why = "the controller answers OPTIONS before it limits, so the policies do not count it";
            let instead = "Let Envoy's filter cors stand before weir; else such requests reach the upstream without a limit";
            notes.add(Note::at(self.file, line, "enable-cors", why, instead));
            let answer = vec![self.directive(line, &["return", "204"])];
            limits.rules.push(self.block(line, &["if", "($request_method", "=", "OPTIONS)"], answer));
        }
        limits
    }

    /// Returns the key of the zones: the address, and nothing for the networks that are exempt.
    fn key(&self, name: &str, limits: &mut Limits, notes: &mut Notes) -> String {
        const ADDRESS: &str = "$binary_remote_addr";
        let lists = ["limit-allowlist", "limit-whitelist"];
        let Some((line, networks)) = lists.iter().find_map(|name| self.setting(name)) else {
            return ADDRESS.to_owned();
        };
        let mut inner = vec![self.directive(line, &["default", "0"])];
        for network in networks.split(',').map(str::trim).filter(|network| !network.is_empty()) {
            if super::test::network(network).is_none() {
                let why = format!("{network:?} is no network, allowed: 10.0.0.0/8 or an address");
                notes.add(Note::at(self.file, line, "limit-allowlist", why, "Correct it"));
                continue;
            }
            inner.push(self.directive(line, &[network, "1"]));
        }
        let (exempt, key) = (format!("${name}_exempt"), format!("${name}"));
        limits.zones.push(self.block(line, &["geo", &exempt], inner));
        let cases = vec![self.directive(line, &["0", ADDRESS]), self.directive(line, &["1", ""])];
        limits.zones.push(self.block(line, &["map", &exempt, &key], cases));
        key
    }

    /// Notes annotations that limit, and are not imported.
    fn note_others(&self, notes: &mut Notes) {
        for (annotation, place, value) in self.annotations() {
            let Some(name) = annotation.strip_prefix(PREFIX) else { continue };
            notes.read(value);
            let said = match name {
                _ if self.is_canary() && name.starts_with("limit-") => {
                    Some(("the controller takes the limits of a canary from the Ingress beside it", ""))
                }
                _ if LIMITS.contains(&name) => None,
                _ => elsewhere(name, value).or_else(|| {
                    let is_like = ["limit", "rps", "rpm", "burst"].iter().any(|word| name.contains(word));
                    is_like.then_some((
                        "the controller has no such annotation, so it limits nothing",
                        "Correct its name",
                    ))
                }),
            };
            if let Some((why, instead)) = said {
                notes.add(Note::at(self.file, place.line, name, why, instead));
            }
        }
    }

    /// The locations, each with its host.
    fn locations(&self, rules: &[Directive]) -> Vec<(&'a str, Location)> {
        let mut found = Vec::new();
        let location = |line, path: &str, is_exact| Location {
            path: path.to_owned(),
            is_exact,
            block: self.block(line, &["location"], rules.to_vec()),
        };
        if let Some((place, _)) = self.root.get("spec").and_then(|spec| spec.field("defaultBackend")) {
            found.push(("", location(place.line, "/", false)));
        }
        for rule in self.rules() {
            let host = rule.text_of("host");
            let paths = rule.get("http").map(|http| http.list("paths")).unwrap_or_default();
            for node in paths {
                let path = Some(node.text_of("path")).filter(|path| !path.is_empty()).unwrap_or("/");
                let line = node.place.line;
                match node.text_of("pathType") {
                    "Exact" => found.push((host, location(line, path, true))),
                    // Segment by segment: the path itself, and what is below it.
                    "Prefix" if !self.has_regex() && path != "/" => {
                        let path = path.trim_end_matches('/');
                        found.push((host, location(line, path, true)));
                        found.push((host, location(line, &format!("{path}/"), false)));
                    }
                    _ => found.push((host, location(line, path, false))),
                }
            }
        }
        found
    }

    /// The status of rejections, from a ConfigMap.
    fn statuses(&self, notes: &mut Notes) -> Vec<Directive> {
        let data = self.root.get("data").map(Node::fields).unwrap_or_default();
        let mut found = Vec::new();
        for (name, place, value) in data {
            let directive = match name.as_str() {
                "limit-req-status-code" => "limit_req_status",
                "limit-conn-status-code" => "limit_conn_status",
                "use-forwarded-headers" | "use-proxy-protocol" | "enable-real-ip"
                    if value.text_or_number().as_deref() == Some("true") =>
                {
                    let why = "the controller takes a client's address from what the proxy before it says";
                    let instead = "Say in `client_address` which proxies weir trusts, and the same in Envoy";
                    notes.add(Note::at(self.file, place.line, name, why, instead));
                    continue;
                }
                _ => {
                    if let Some((why, instead)) = elsewhere(name, value) {
                        notes.read(value);
                        notes.add(Note::at(self.file, place.line, name, why, instead));
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

/// Says why a setting of the controller that limits is not imported, and what to do instead.
fn elsewhere(name: &str, value: &Node) -> Option<(&'static str, &'static str)> {
    let has_limits = value.text().is_some_and(|text| text.contains("limit_"));
    match name {
        "limit-rate" | "limit-rate-after" => {
            Some(("it slows down responses, which weir does not do", "Use Envoy's filter bandwidth_limit"))
        }
        _ if name.starts_with("global-rate-limit") => Some((
            "the controller has it no more since 1.10, and it is not imported",
            "Write a policy with `fixed_window`: it counts over all proxies",
        )),
        _ if name.ends_with("-snippet") && has_limits => Some((
            "limits in snippets are not read",
            "Import the nginx.conf of a controller's pod with `weir import nginx`",
        )),
        _ => None,
    }
}

struct Location {
    path: String,
    is_exact: bool,
    block: Directive,
}

impl Host {
    /// Adds a location. If two have one path, the controller keeps the first.
    fn add(&mut self, location: Location) {
        let Location { path, is_exact, block } = location;
        self.locations.entry((path, is_exact)).or_insert(block);
    }

    fn server(self, name: &str) -> Directive {
        let Self { is_regex, locations } = self;
        let mut locations: Vec<_> = locations.into_iter().collect();
        // nginx takes the first expression that matches, so the controller writes the longest path first.
        locations.sort_by_key(|((path, _), _)| core::cmp::Reverse(path.len()));
        let (file, line) = locations.first().map_or((0, 1), |(_, block)| (block.file, block.line));
        let of = |words: &[&str]| Directive {
            name: words.first().copied().unwrap_or_default().to_owned(),
            arguments: words.iter().skip(1).map(|word| (*word).to_owned()).collect(),
            block: None,
            file,
            line,
        };
        let mut inner = match name {
            "" => vec![of(&["server_name", "_"]), of(&["listen", "80", "default_server"])],
            _ => vec![of(&["server_name", name]), of(&["listen", "80"])],
        };
        inner.extend(locations.into_iter().map(|((path, is_exact), block)| {
            let arguments = match (is_regex, is_exact) {
                (true, _) => vec![String::from("~*"), format!("^{path}")],
                (false, true) => vec![String::from("="), path],
                (false, false) => vec![path],
            };
            Directive { arguments, ..block }
        }));
        Directive { block: Some(Block::Directives(inner)), ..of(&["server"]) }
    }
}
