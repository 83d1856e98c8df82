// SPDX-License-Identifier: Apache-2.0
//! Files, and the limiter's configurations in them: one alone, or one or several wherever Envoy and its control planes write them.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use super::document::{Content, MAX_TEXT, Node, Origin, Place, Syntax};
use super::finding::Finding;
use super::{Ended, words};
use serde_json::Value;
use weir::config::{Config, Hint, Host, Region};

pub(super) struct Source {
    /// Its name, as it was given.
    pub name: String,
    /// Without the byte order mark of YAML, which no column counts.
    pub text: String,
    pub has_mark: bool,
    /// True if the text is read as JSON, not as YAML.
    pub is_json: bool,
    /// The parsed documents; empty if the text has a mistake.
    pub documents: Vec<Node>,
    /// The mistake.
    pub wrong: Option<Finding>,
    /// The place of the first document that Envoy does not read, if there is one.
    pub ignored: Option<Place>,
}

/// A configuration of the limiter somewhere in a file.
pub(super) struct Limiter<'a> {
    /// The file that it is written in.
    file: &'a str,
    /// The configuration as the filter gets it.
    json: Vec<u8>,
    /// The same, with places.
    node: Node,
    /// The string that contains the configuration, if it is written as one.
    within: Option<Within<'a>>,
    /// The object that carries the configuration; `None` if it is alone in its file.
    pub carrier: Option<Carrier<'a>>,
}

/// An object that carries a configuration.
#[derive(Clone)]
pub(super) struct Carrier<'a> {
    /// The object that says so: a `PluginConfig`, a `DynamicModuleFilter`, or a part of a resource of Kubernetes.
    pub node: &'a Node,
    pub kind: Kind,
    /// The nodes around it, from the document inwards.
    pub around: Vec<&'a Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Wasm,
    /// Envoy's filter of a dynamic module.
    Native,
    /// Istio's `WasmPlugin`.
    WasmPlugin,
    /// Envoy Gateway's `EnvoyExtensionPolicy`.
    ExtensionPolicy,
}

#[derive(Clone, Copy)]
struct Within<'a> {
    string: &'a str,
    start: Place,
    origin: Origin,
}

/// Opens a file to read it to its end. A pipe with a name or a device may have no end, so it is refused, unless a shell or the operator
/// passes it as an open descriptor: `weir check <(weir import nginx nginx.conf)`.
pub(super) fn open(path: &Path) -> io::Result<fs::File> {
    let about = fs::metadata(path)?;
    let is_passed = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|given| path.starts_with(given));
    // A folder fails when it is read, with the message of the system.
    if about.is_file() || about.is_dir() || is_passed {
        fs::File::open(path)
    } else {
        Err(io::Error::other("it is no regular file, allowed: a file, or a descriptor such as /dev/stdin"))
    }
}

/// Envoy shows a plugin the body of a waiting request only if this field is true.
const NO_BODIES: &str = "allow_on_headers_stop_iteration: found nothing, allowed: true beside root_id, because a policy has \
    `body_json` (Envoy 1.35 or newer)";

/// The byte order mark.
pub(super) const MARK: char = '\u{feff}';

impl Source {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = words::file(path);
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX).saturating_add(1);
        let read = open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        read.map_err(|error| format!("{name}: {error}"))?;
        Ok(Self::of_bytes(name, bytes))
    }

    fn of_bytes(name: String, bytes: Vec<u8>) -> Self {
        let wrong = match String::from_utf8(bytes) {
            Ok(text) => return Self::of(name, text),
            Err(wrong) => wrong,
        };
        let valid = wrong.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(wrong.as_bytes().get(..valid).unwrap_or_default());
        let (above, line) =
            before.rsplit_once('\n').map_or((None, &*before), |(above, line)| (Some(above), line));
        let lines = above.map_or(0, |above| above.split('\n').count());
        let place = Place { line: lines.saturating_add(1), column: line.chars().count().saturating_add(1) };
        let wrong = Finding::error("syntax", place, "the file is not UTF-8");
        Self { documents: Vec::new(), wrong: Some(wrong), ignored: None, ..Self::of(name, String::new()) }
    }

    /// A source with this content, as if it had been read from the file of this name.
    pub fn of(name: String, mut text: String) -> Self {
        let syntax = Syntax::of(&name);
        // Envoy reads none in JSON.
        let has_mark = syntax != Syntax::Json && text.starts_with(MARK);
        if has_mark {
            text.drain(..MARK.len_utf8());
        }
        let (mut documents, mut wrong) = match Node::parse(&text, syntax) {
            Ok(documents) => (documents, None),
            Err((place, said)) => (Vec::new(), Some(Finding::error("syntax", place, said))),
        };
        let is_json = match syntax {
            Syntax::Json => true,
            Syntax::Yaml => false,
            Syntax::Either => Node::parse_json(&text).is_ok(),
        };
        // Envoy reads the first document of a file, and Kubernetes all of them.
        let mut ignored = None;
        if documents.iter().any(|document| document.get("apiVersion").is_some()) {
            documents.iter_mut().for_each(Node::read_by_kubernetes);
        } else {
            ignored = documents.iter().skip(1).find(|of| !of.is_null()).map(|of| of.place);
            documents.truncate(1);
            if let (None, Some((place, said))) = (&wrong, Node::refused(&text, syntax)) {
                wrong = Some(Finding::error("syntax", place, said));
            }
        }
        Self { name, text, has_mark, documents, wrong, ignored, is_json }
    }

    /// The limiter's configurations, in the order of the file.
    pub fn limiters(&self) -> Vec<Limiter<'_>> {
        let mut limiters = Vec::new();
        for document in &self.documents {
            self.collect(document, &mut Vec::new(), &mut limiters);
        }
        if let [only] = self.documents.as_slice()
            && limiters.is_empty()
            && !is_envoys(only)
        {
            let json = if self.is_json { self.text.clone() } else { only.json().to_string() };
            let (json, node) = (json.into_bytes(), only.clone());
            limiters.push(Limiter { file: &self.text, json, node, within: None, carrier: None });
        }
        limiters
    }

    pub fn only<'a, 'b>(&self, limiters: &'b [Limiter<'a>]) -> Result<&'b Limiter<'a>, Ended> {
        let name = &self.name;
        if let Some(wrong) = &self.wrong {
            return Err(Ended::Wrong(wrong.line(name)));
        }
        match limiters {
            [only] => Ok(only),
            [] => Err(Ended::Wrong(format!("{name}: found no configuration of the limiter"))),
            many => {
                let many = many.len();
                Err(Ended::Failed(format!(
                    "{name}: found {many} configurations, this command needs exactly one"
                )))
            }
        }
    }

    /// Ends a command with a line for each of these errors.
    pub fn refused(&self, findings: &[Finding]) -> Ended {
        let lines: Vec<String> = findings.iter().map(|finding| finding.line(&self.name)).collect();
        Ended::Wrong(lines.join("\n"))
    }

    /// The only configuration, as the proxies of this region have it; and what the filter is given.
    pub fn load(&self, region: Option<&str>) -> Result<(Config, Vec<u8>), Ended> {
        let limiters = self.limiters();
        let only = self.only(&limiters)?;
        let read = |of: &Limiter<'_>| of.config(Host::Wasm).map_err(|findings| self.refused(&findings));
        let config = read(only)?;
        // Without the variable, the configuration is read nevertheless: few commands need it.
        let with_secret = |config: Config| match &config.store.hash_secret_env {
            Some(name) if std::env::var_os(name).is_some() => config
                .with_secret(|name| std::env::var(name).ok())
                .map_err(|error| Ended::Failed(error.to_string())),
            _ => Ok(config),
        };
        let config = with_secret(config)?;
        let Some(name) = region else { return Ok((config, only.json.clone())) };
        let all = &config.regions.all;
        match all.iter().find(|region| region.name == *name && !name.is_empty()) {
            Some(region) => {
                let only = only.in_region(region);
                Ok((with_secret(read(&only)?)?, only.json))
            }
            None => {
                Err(Ended::Failed(format!("--region {name:?}: the configuration has {}", config.regions)))
            }
        }
    }

    /// Finds the configurations in `node`, which is inside of `around`.
    fn collect<'a>(&'a self, node: &'a Node, around: &mut Vec<&'a Node>, limiters: &mut Vec<Limiter<'a>>) {
        // A dump has what the bootstrap says a second time, among the listeners and clusters.
        if node.type_name() == "BootstrapConfigDump" {
            return;
        }
        let carriers = [
            ("root_id", "configuration", Kind::Wasm),
            ("filter_name", "filter_config", Kind::Native),
            ("plugin_name", "plugin_config", Kind::WasmPlugin),
            ("root_id", "config", Kind::ExtensionPolicy),
        ];
        let of_weir = || carriers.into_iter().filter(move |(name, ..)| node.text_of(name) == "weir.limiter");
        for (_, field, kind) in of_weir() {
            if let Some(configuration) = node.get(field) {
                let carrier = Carrier { node, kind, around: around.clone() };
                limiters.push(self.limiter(configuration.get("value").unwrap_or(configuration), carrier));
            }
        }
        // Envoy gives the filter an empty text.
        let is_configured = of_weir().any(|(_, field, _)| node.get(field).is_some());
        if let Some((.., kind)) = of_weir().next().filter(|_| !is_configured) {
            let kind = if node.get("code").is_some() { Kind::ExtensionPolicy } else { kind };
            let carrier = Some(Carrier { node, kind, around: around.clone() });
            let empty = Node::new(node.place, Content::Object(Vec::new()));
            limiters.push(Limiter { file: &self.text, json: Vec::new(), node: empty, within: None, carrier });
        }
        around.push(node);
        node.children().for_each(|child| self.collect(child, around, limiters));
        around.pop();
    }

    /// A configuration as an object, or as text.
    fn limiter<'a>(&'a self, value: &'a Node, carrier: Carrier<'a>) -> Limiter<'a> {
        let carrier = Some(carrier);
        let Some(text) = value.text() else {
            let mut json = value.json();
            whole_numbers(&mut json);
            let json = json.to_string().into_bytes();
            return Limiter { file: &self.text, json, node: value.clone(), within: None, carrier };
        };
        let origin = value.origin.unwrap_or(Origin::Other);
        let within = Some(Within { string: text, start: value.place, origin });
        // A string that is no JSON is reported when it is read.
        let node = Node::parse_json(text).unwrap_or_else(|_| Node::empty());
        Limiter { file: &self.text, json: text.into(), node, within, carrier }
    }
}

impl Limiter<'_> {
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// The same configuration for another region, whose proxies differ in `here` and in the cluster of their store.
    fn in_region(&self, region: &Region) -> Self {
        let mut json: Value = serde_json::from_slice(&self.json).unwrap_or_default();
        if let Some(whole) = json.as_object_mut() {
            let store = whole.entry("store").or_insert_with(|| serde_json::json!({}));
            if let Some(store) = store.as_object_mut() {
                store.insert(String::from("cluster"), region.cluster.as_str().into());
            }
            if let Some(regions) = whole.get_mut("regions").and_then(Value::as_object_mut) {
                regions.insert(String::from("here"), region.name.as_str().into());
            }
        }
        let json = json.to_string().into_bytes();
        Self { json, node: self.node.clone(), carrier: self.carrier.clone(), ..*self }
    }

    /// The place in the file of `path`, such as `policies[0].name`.
    pub fn place(&self, path: &str) -> Place {
        self.outer(self.node.look(path).0)
    }

    fn outer(&self, inner: Place) -> Place {
        self.within.map_or(inner, |of| of.origin.place(self.file, of.start, of.string, inner))
    }

    /// The word at a place of the file.
    fn word(&self, place: Place) -> String {
        let line = self.file.split('\n').nth(place.line.saturating_sub(1)).unwrap_or_default();
        let word = line.chars().skip(place.column.saturating_sub(1));
        word.take_while(|next| !next.is_whitespace() && !",]}".contains(*next)).collect()
    }

    /// Numbers that YAML reads as octal or hexadecimal: where, how it is written, and what it is.
    pub fn other_radix(&self) -> Vec<(Place, String, i64)> {
        let mut found = Vec::new();
        self.node.walk(&mut |node| {
            let Node { place, content: Content::Scalar(value), origin: Some(Origin::Plain) } = node else {
                return;
            };
            let Some(number) = value.as_i64().filter(|_| self.within.is_none()) else { return };
            let word = self.word(*place);
            let digits = word.trim_start_matches(['+', '-']);
            if digits.len() > 1 && digits.starts_with('0') && word.parse() != Ok(number) {
                found.push((*place, word, number));
            }
        });
        found
    }

    /// Says how YAML reads the word at `path`, if it reads something else than is written there.
    fn misread(&self, path: &str) -> String {
        let Node { place, content: Content::Scalar(value), origin: Some(Origin::Plain) } =
            self.node.look(path).1
        else {
            return String::new();
        };
        let word = self.word(*place);
        let taken = value.to_string();
        if value.is_string() || word == taken {
            return String::new();
        }
        // Nothing is written there: the place is that of the colon, or of the end.
        if word == ":" || word.is_empty() {
            return " (no value is written there)".to_owned();
        }
        format!(" (YAML takes {word} for {taken}; in quotes it is text)")
    }

    /// The fields that have other names now: where each name is, what it is, and what it is called now.
    pub fn renamed(&self, host: Host) -> Vec<(Place, String, &'static str)> {
        let errors = Config::parse_for(self.host(host), &self.json).err().unwrap_or_default();
        let renamed = errors.iter().filter_map(|error| {
            let Some(Hint::Renamed(present)) = &error.hint else { return None };
            let former = error.path.rsplit('.').next().unwrap_or_default();
            Some((self.place(&error.path), former.to_owned(), *present))
        });
        renamed.collect()
    }

    /// The host that carries it, or `host` if it is alone in its file.
    fn host(&self, host: Host) -> Host {
        match self.carrier.as_ref().map(|carrier| carrier.kind) {
            None => host,
            Some(Kind::Native) => Host::Native,
            Some(Kind::Wasm | Kind::WasmPlugin | Kind::ExtensionPolicy) => Host::Wasm,
        }
    }

    /// The configuration, for the host that carries it, or for `host` if it is alone in its file.
    pub fn config(&self, host: Host) -> Result<Config, Vec<Finding>> {
        if let Some(within) = self.within
            && let Err((place, said)) = Node::parse_json(within.string)
        {
            return Err(vec![Finding::error("syntax", self.outer(place), said)]);
        }
        if let Some(carrier) = self.carrier.as_ref().filter(|_| self.json.is_empty()) {
            let (name, field) = match carrier.kind {
                Kind::Wasm => ("root_id", "configuration"),
                Kind::Native => ("filter_name", "filter_config"),
                Kind::WasmPlugin => ("pluginName", "pluginConfig"),
                Kind::ExtensionPolicy => ("rootID", "config"),
            };
            let said = format!(
                "{field}: found nothing, allowed: the configuration of weir, beside `{name}: weir.limiter`"
            );
            return Err(vec![Finding::error("configuration", carrier.node.place, said)]);
        }
        let config = Config::parse_for(self.host(host), &self.json).map_err(|errors| {
            let finding = |error: &weir::config::ConfigError| {
                let said = format!("{error}{}{}", self.misread(&error.path), elsewhere(error));
                Finding::error("configuration", self.place(&error.path), said)
            };
            let mut findings: Vec<_> = errors.iter().map(finding).collect();
            findings.sort_by_key(|finding| finding.place);
            findings
        })?;
        match &self.carrier {
            Some(Carrier { node, kind: Kind::Wasm, .. })
                if config.request_body.wanted.is_some()
                    && !node.is_true("allow_on_headers_stop_iteration") =>
            {
                Err(vec![Finding::error("body-not-shown", node.place, NO_BODIES)])
            }
            _ => Ok(config),
        }
    }
}

/// Says where a field belongs that is unknown at its place: to an object around it, or to a few others.
fn elsewhere(error: &weir::config::ConfigError) -> String {
    if error.found != "an unknown field" {
        return String::new();
    }
    let fields = weir::config::vocabulary();
    let (mut around, name) = error.path.rsplit_once('.').unwrap_or(("", &error.path));
    let has = |object: &str| fields.contains(&format!("{object}.{name}"));
    while let Some((outer, _)) = around.rsplit_once('.') {
        around = outer;
        let last = around.rsplit('.').next().unwrap_or_default();
        let object = match last.split('[').next() {
            Some("policies") => "policy",
            Some("subject" | "of" | "by" | "from") => "subject_part",
            _ => continue,
        };
        if has(object) {
            return format!(" (it is a field of {around})");
        }
    }
    let objects: Vec<&str> = fields
        .iter()
        .filter_map(|field| field.strip_suffix(name)?.strip_suffix('.'))
        .filter(|object| !object.contains('.'))
        .collect();
    if objects.is_empty() || objects.len() > 3 {
        String::new()
    } else {
        format!(" (it is a field of {})", objects.join(", "))
    }
}

/// A number of a `Struct` is a double: `10.0` and `1e3` are 10 and 1000 to the filter.
fn whole_numbers(value: &mut Value) {
    match value {
        // Rust writes a whole number without a fraction.
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(|number| number.to_string().parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// True if a document is Envoy's or its control plane's: a bootstrap, a list of resources, a dump, a resource of Kubernetes.
pub(super) fn is_envoys(document: &Node) -> bool {
    ["static_resources", "dynamic_resources", "admin", "resources", "configs", "apiVersion", "typed_config"]
        .iter()
        .any(|name| document.get(name).is_some())
}

/// The only configuration in the file at `path`.
pub(super) fn load_one(path: &Path) -> Result<Config, Ended> {
    Source::read(path)?.load(None).map(|(config, _)| config)
}

/// The same, and as it is written.
pub(super) fn load_with_text(path: &Path) -> Result<(Config, Value), Ended> {
    let (config, json) = Source::read(path)?.load(None)?;
    let text = serde_json::from_slice(&json).map_err(|wrong| Ended::Failed(wrong.to_string()))?;
    Ok((config, text))
}
