// SPDX-License-Identifier: Apache-2.0
//! Objects of Kubernetes in the form of APISIX's own file. As in APISIX's ingress controller, each rule of an ApisixRoute and each path of an
//! Ingress is a route, and has a copy of the plugins of its ApisixPluginConfig, so it counts by itself. Each rule of an HTTPRoute is a service
//! with the plugins of its PluginConfigs, and its matches are routes.

use super::super::notes::Notes;
use super::super::{CLASS, Object, is_foreign, note_consumer, object, text, texts};
use super::{KINDS, OTHERS};
use crate::document::{Content, Node, Place};
use crate::source::Source as File;

const RULE: &str = "name priority timeout match backends upstreams websocket plugin_config_name plugin_config_namespace plugins authentication";
const MATCH: &str = "paths methods hosts remoteAddrs exprs filter_func";
/// The beginning of the annotations of an Ingress, and the one that names its ApisixPluginConfig.
const PREFIX: &str = "k8s.apisix.apache.org/";
const CONFIG: &str = "k8s.apisix.apache.org/plugin-config-name";

/// Annotations of an Ingress, and filters of an HTTPRoute, that stand for a plugin.
const PLUGINS: [(&str, &str); 10] = [
    ("enable-cors", "cors"),
    ("enable-csrf", "csrf"),
    ("http-to-https", "redirect"),
    ("http-redirect", "redirect"),
    ("auth-uri", "forward-auth"),
    ("allowlist-source-range", "ip-restriction"),
    ("blocklist-source-range", "ip-restriction"),
    ("auth-type", "key-auth"),
    ("CORS", "cors"),
    ("RequestRedirect", "redirect"),
];

/// The types of `authentication`, each with its field and its plugin.
const AUTHENTICATION: [(&str, &str); 6] = [
    ("keyAuth", "key-auth"),
    ("jwtAuth", "jwt-auth"),
    ("basicAuth", "basic-auth"),
    ("hmacAuth", "hmac-auth"),
    ("ldapAuth", "ldap-auth"),
    ("wolfRBAC", "wolf-rbac"),
];

struct Cluster<'a, 'n> {
    configs: Vec<Object<'a>>,
    /// The places in `configs` of those that something names.
    used: Vec<usize>,
    /// The results: the file, the list in APISIX's own form, and the object.
    made: Vec<(usize, &'static str, Node)>,
    notes: &'n mut Notes,
}

/// Returns a configuration of APISIX's own form for each file; without fields if it has no such objects.
pub fn standalone(files: &[File], notes: &mut Notes) -> Vec<Node> {
    let all = super::super::objects(files);
    let is_config = |object: &&Object<'_>| ["ApisixPluginConfig", "PluginConfig"].contains(&object.kind());
    let configs = all.iter().filter(is_config).copied().collect();
    let mut cluster = Cluster { configs, used: Vec::new(), made: Vec::new(), notes };
    for object in &all {
        match object.kind() {
            "ApisixRoute" => {
                object.listed_in_spec("http").iter().for_each(|rule| cluster.rule(object, rule));
            }
            // The plugins of a GatewayProxy are a global rule, too.
            "ApisixGlobalRule" | "GatewayProxy" => {
                let plugins = cluster.plugins_of(object);
                cluster.add(object, "global_rules", &object.name(), &object.name(), plugins);
            }
            "Ingress" => cluster.ingress(object),
            "HTTPRoute" if !is_foreign(object, &all, "apisix.apache.org/") => cluster.http_route(object),
            "GRPCRoute" => cluster.grpc_route(object),
            "HTTPRoutePolicy" => {
                let why = "it is not read, and may change which requests its routes have";
                let instead = "Write its `vars` into the `match` of their policies";
                cluster.note(object, object.root.place, object.kind(), why, instead);
            }
            "ApisixConsumer" | "Consumer" => {
                for item in object.listed_in_spec("plugins") {
                    let (name, place) = (item.text_of("name"), item.place_of("name"));
                    if OTHERS.contains(&name) || KINDS.contains(&name) {
                        cluster.notes.read(item);
                        note_consumer(object.file, place, name, cluster.notes);
                    }
                }
            }
            _ => {}
        }
    }
    for (number, config) in cluster.configs.clone().iter().enumerate() {
        if !cluster.used.contains(&number) {
            let plugins = cluster.plugins_of(config);
            cluster.add(config, "plugin_configs", &config.name(), &config.name(), plugins);
        }
    }
    super::super::roots(&cluster.made, &["routes", "services", "plugin_configs", "global_rules"], files.len())
}

/// The class of Ingresses that an object is of. Each class may have a gateway of its own.
fn class(of: &Object<'_>) -> Option<Node> {
    let class = of.root.at(&["spec", "ingressClassName"])?;
    Some(text(class.place, class.text()?))
}

impl<'a> Cluster<'a, '_> {
    fn note(&mut self, of: &Object<'_>, place: Place, what: &str, why: impl Into<String>, instead: &str) {
        self.notes.at(of.file, place.line, what, why, instead);
    }

    fn add(&mut self, of: &Object<'_>, list: &'static str, id: &str, name: &str, plugins: Node) {
        let place = of.root.place;
        let mut fields = vec![("id", text(place, id)), ("name", text(place, name)), ("plugins", plugins)];
        fields.extend(class(of).map(|class| (CLASS, class)));
        self.made.push((of.file, list, object(place, fields)));
    }

    fn ingress(&mut self, of: &Object<'a>) {
        let annotation = |name: &str| of.annotation(&[PREFIX, name].concat());
        let is_own = of.class().is_some_and(|class| class.contains("apisix"));
        let config = of.annotation(CONFIG);
        if !is_own && config.is_none() {
            return;
        }
        let mut plugins = object(of.root.place, Vec::new());
        let paths = |rule: &'a Node| rule.at(&["http", "paths"]).map(Node::items).unwrap_or_default();
        let rules = of.listed_in_spec("rules");
        let has_paths = rules.iter().any(|rule| !paths(rule).is_empty());
        if let Some((place, value)) = config.filter(|_| has_paths) {
            self.notes.read(value);
            let name = value.text().unwrap_or_default();
            let shared = self.shared(of, (place, CONFIG), ("ApisixPluginConfig", of.namespace(), name));
            plugins = shared.map_or(plugins, |config| self.plugins_of(&config));
        }
        if let Content::Object(fields) = &mut plugins.content {
            fields.extend(PLUGINS.into_iter().filter_map(|(name, plugin)| {
                let (place, value) = annotation(name)?;
                let plugin = if value.text() == Some("basicAuth") { "basic-auth" } else { plugin };
                (value.text() != Some("false")).then(|| (plugin.to_owned(), place, object(place, Vec::new())))
            }));
        }
        for (rule, path) in rules.iter().flat_map(|rule| paths(rule).iter().map(move |path| (rule, path))) {
            let place = path.place;
            let uri = path.text_of("path");
            let below = format!("{}/*", uri.trim_end_matches('/'));
            let regex = annotation("use-regex").filter(|(_, value)| value.text() == Some("true"));
            let (uris, vars) = match (path.text_of("pathType"), regex) {
                ("Prefix", _) => (vec![uri, &below], Vec::new()),
                ("ImplementationSpecific", Some(_)) => (vec!["/*"], vec![uri]),
                _ => (vec![uri], Vec::new()),
            };
            let host = Some(rule.text_of("host")).filter(|host| !host.is_empty());
            let mut fields = vec![
                ("name", text(place, &of.name())),
                ("hosts", texts(place, host)),
                ("uris", texts(place, uris)),
                ("vars", texts(place, vars)),
                ("plugins", plugins.clone()),
            ];
            fields.extend(of.class().map(|class| (CLASS, text(place, class))));
            self.made.push((of.file, "routes", object(place, fields)));
        }
    }

    fn grpc_route(&mut self, of: &Object<'a>) {
        for filter in of.listed_in_spec("rules").iter().flat_map(|rule| rule.list("filters")) {
            if self.filter(of, filter).is_some() {
                let why = "a GRPCRoute is not read, so these plugins are not imported";
                self.note(of, filter.place, "extensionRef", why, "Import what `adc dump` prints");
            }
        }
    }

    /// The PluginConfig that a filter of a route names.
    fn filter(&mut self, of: &Object<'a>, filter: &Node) -> Option<Object<'a>> {
        let target = filter.get("extensionRef").filter(|target| target.text_of("kind") == "PluginConfig")?;
        let name = ("PluginConfig", of.namespace(), target.text_of("name"));
        self.shared(of, (target.place, "extensionRef"), name)
    }

    fn http_route(&mut self, of: &Object<'a>) {
        let hosts: Vec<&str> = of.listed_in_spec("hostnames").iter().filter_map(Node::text).collect();
        let longest = |is_counted: &dyn Fn(&&&str) -> bool| {
            hosts.iter().filter(is_counted).map(|host| host.len()).max().unwrap_or(0)
        };
        let lengths = [longest(&|host| !host.contains('*')), longest(&|_| true)];
        for (index, rule) in of.listed_in_spec("rules").iter().enumerate() {
            let mut plugins = Vec::new();
            for filter in rule.list("filters") {
                let known = PLUGINS.iter().find(|(kind, _)| *kind == filter.text_of("type"));
                plugins.extend(known.map(|(_, plugin)| {
                    ((*plugin).to_owned(), filter.place, object(filter.place, Vec::new()))
                }));
                let config = self.filter(of, filter);
                plugins.extend(config.iter().flat_map(|config| self.plugins_of(config).fields().to_vec()));
            }
            let id = text(rule.place, &format!("{}/{} {index}", of.namespace(), of.metadata("name")));
            let name = text(rule.place, &of.name());
            let service = vec![
                ("id", id.clone()),
                ("name", name.clone()),
                ("hosts", texts(rule.place, hosts.iter().copied())),
                ("plugins", Node::new(rule.place, Content::Object(plugins))),
            ];
            self.made.push((of.file, "services", object(rule.place, service)));
            let matches = match rule.list("matches") {
                [] => core::slice::from_ref(rule),
                matches => matches,
            };
            for one in matches {
                let path = one.get("path");
                let of_path = |field| path.map(|path| path.text_of(field)).unwrap_or_default();
                let value = Some(of_path("value")).filter(|value| !value.is_empty()).unwrap_or("/");
                let below = format!("{}/*", value.trim_end_matches('/'));
                let (uris, vars) = match of_path("type") {
                    "Exact" => (vec![value], Vec::new()),
                    "RegularExpression" => (vec!["/*"], vec![value]),
                    _ => (vec![value, &below], Vec::new()),
                };
                let method = one.get("method").and_then(Node::text);
                // The controller makes the priority of these numbers, each shifted by so many bits.
                let [plain, any] = lengths;
                let parts = [
                    (plain, 31),
                    (any, 23),
                    (method.iter().len(), 22),
                    (one.list("headers").len(), 17),
                    (one.list("queryParams").len(), 12),
                    (16_usize.saturating_sub(index), 7),
                ];
                let priority = parts.iter().fold(0, |all, (number, bits)| all | number.wrapping_shl(*bits));
                let mut fields = vec![
                    ("name", name.clone()),
                    ("service_id", id.clone()),
                    ("uris", texts(one.place, uris)),
                    ("vars", texts(one.place, vars)),
                    ("methods", texts(one.place, method)),
                    ("priority", text(one.place, &priority.to_string())),
                ];
                let others = ["headers", "queryParams"].into_iter();
                fields.extend(others.filter_map(|name| Some((name, one.get(name)?.clone()))));
                self.made.push((of.file, "routes", object(one.place, fields)));
            }
        }
    }

    /// The object whose plugins another one shares, by its kind, namespace and name.
    fn shared(
        &mut self,
        of: &Object<'a>,
        (place, what): (Place, &str),
        (kind, namespace, name): (&str, &str, &str),
    ) -> Option<Object<'a>> {
        let is = |config: &Object<'_>| {
            config.kind() == kind && config.namespace() == namespace && config.metadata("name") == name
        };
        let found = self.configs.iter().position(is);
        self.used.extend(found);
        if found.is_none() {
            let why = format!("the files have no {kind} {name:?} of the namespace {namespace:?}");
            self.note(of, place, what, why, "If it limits, import the file that has it, too");
        }
        self.configs.get(found?).copied()
    }

    fn plugins_of(&mut self, of: &Object<'a>) -> Node {
        self.plugins(of, of.listed_in_spec("plugins"))
    }

    /// A list of plugins as APISIX's object, without those that are off. Of two that have one name, the last counts.
    fn plugins(&mut self, of: &Object<'a>, list: &'a [Node]) -> Node {
        let mut fields: Vec<(String, Place, Node)> = Vec::new();
        // The field that turns a plugin on or off, and its default.
        let (flag, default) = if of.kind() == "GatewayProxy" { ("enabled", false) } else { ("enable", true) };
        for item in list {
            let name = item.text_of("name");
            let (is_limit, place) = (KINDS.contains(&name), item.place_of("name"));
            if is_limit || OTHERS.contains(&name) {
                self.notes.read(item);
                self.notes.unread(of.file, item, &format!("name {flag} config secretRef"));
            }
            let is_set = item.get(flag).and_then(Node::text_or_number).is_some();
            let is_on = if is_set { item.is_true(flag) } else { default };
            if !is_on {
                if is_limit {
                    self.note(of, place, name, "it is off, so it is not imported", "");
                }
                continue;
            }
            if is_limit && let Some((place, _)) = item.field("secretRef") {
                let why = "what is in a Secret is not read";
                self.note(of, place, "secretRef", why, "Write into `config` what limits");
            }
            let config = item.get("config").cloned().unwrap_or_else(|| object(place, Vec::new()));
            fields.retain(|(other, ..)| other != name);
            fields.push((name.to_owned(), place, config));
        }
        Node::new(of.root.place, Content::Object(fields))
    }

    /// A rule of an ApisixRoute as a route.
    fn rule(&mut self, of: &Object<'a>, rule: &'a Node) {
        self.notes.unread(of.file, rule, RULE);
        let place = rule.place;
        let name = format!("{}-{}", of.name(), rule.text_of("name"));
        let id = format!("{}/{}/{}", of.namespace(), of.metadata("name"), rule.text_of("name"));
        let mut fields = vec![(String::from("name"), place, text(place, &name))];
        fields.extend(class(of).map(|class| (CLASS.to_owned(), class.place, class)));
        if let Some(tests) = rule.get("match") {
            self.notes.unread(of.file, tests, MATCH);
            let names = [("paths", "uris"), ("remoteAddrs", "remote_addrs")];
            fields.extend(tests.fields().iter().map(|(name, place, value)| {
                let own = names.iter().find(|(known, _)| known == name).map_or(name.as_str(), |(_, own)| own);
                (own.to_owned(), *place, value.clone())
            }));
        }
        fields.extend(
            rule.field("priority").map(|(place, value)| (String::from("priority"), place, value.clone())),
        );
        let mut plugins = self.plugins(of, rule.list("plugins"));
        if let (Some(said), Content::Object(plugins)) = (rule.get("authentication"), &mut plugins.content)
            && said.is_true("enable")
        {
            let kind = said.text_of("type");
            let known = AUTHENTICATION.iter().find(|(known, _)| *known == kind);
            let plugin = known.map_or("basic-auth", |(_, plugin)| plugin);
            let config = said.get(kind).cloned().unwrap_or_else(|| object(said.place, Vec::new()));
            plugins.push((plugin.to_owned(), said.place, config));
        }
        fields.push((String::from("plugins"), plugins.place, plugins));
        if let Some((place, shared)) = rule.field("plugin_config_name") {
            let own = rule.text_of("plugin_config_namespace");
            let namespace = if own.is_empty() { of.namespace() } else { own };
            let shared = shared.text().unwrap_or_default();
            let what = (place, "plugin_config_name");
            if let Some(config) = self.shared(of, what, ("ApisixPluginConfig", namespace, shared)) {
                let plugins = self.plugins_of(&config);
                self.add(&config, "plugin_configs", &id, &name, plugins);
                fields.push((String::from("plugin_config_id"), place, text(place, &id)));
            }
        }
        self.made.push((of.file, "routes", Node::new(place, Content::Object(fields))));
    }
}
