// SPDX-License-Identifier: Apache-2.0
//! ApisixRoutes, ApisixPluginConfigs and ApisixGlobalRules in the form of APISIX's own file. As in APISIX's ingress controller, each rule is a
//! route, and has a copy of the plugins of its ApisixPluginConfig, so it counts by itself.

use super::super::notes::Notes;
use super::super::{CLASS, Object, note_consumer, object, text};
use super::{KINDS, OTHERS, note_other};
use crate::document::{Content, Node, Place};
use crate::source::Source as File;

const RULE: &str = "name priority timeout match backends upstreams websocket plugin_config_name plugin_config_namespace plugins authentication";
const MATCH: &str = "paths methods hosts remoteAddrs exprs filter_func";
/// An annotation of an Ingress.
const CONFIG: &str = "k8s.apisix.apache.org/plugin-config-name";

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
    let configs = all.iter().filter(|object| object.kind() == "ApisixPluginConfig").copied().collect();
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
            kind @ ("PluginConfig" | "ApisixConsumer" | "Consumer") => {
                let is_config = kind == "PluginConfig";
                for item in object.listed_in_spec("plugins") {
                    let (name, place) = (item.text_of("name"), item.place_of("name"));
                    // Of a PluginConfig, the notes on the rest name the plugins that are imported elsewhere.
                    if OTHERS.contains(&name) || !is_config && KINDS.contains(&name) {
                        let note = if is_config { note_other } else { note_consumer };
                        cluster.notes.read(item);
                        note(object.file, place, name, cluster.notes);
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
    super::super::roots(&cluster.made, &["routes", "plugin_configs", "global_rules"], files.len())
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

    fn ingress(&mut self, of: &Object<'_>) {
        let Some((place, value)) = of.annotation(CONFIG) else { return };
        self.notes.read(value);
        let why = "an Ingress of APISIX is not read, so these plugins are not imported";
        self.note(of, place, CONFIG, why, "Import what `adc dump` prints");
        self.used.extend(value.text().and_then(|name| self.config(of.namespace(), name)));
    }

    fn config(&self, namespace: &str, name: &str) -> Option<usize> {
        let is = |config: &Object<'_>| config.namespace() == namespace && config.metadata("name") == name;
        self.configs.iter().position(is)
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
            match self.config(namespace, shared).and_then(|number| Some((number, *self.configs.get(number)?)))
            {
                Some((number, config)) => {
                    self.used.push(number);
                    let plugins = self.plugins_of(&config);
                    self.add(&config, "plugin_configs", &id, &name, plugins);
                    fields.push((String::from("plugin_config_id"), place, text(place, &id)));
                }
                None => {
                    let why = format!(
                        "the files have no ApisixPluginConfig {shared:?} of the namespace {namespace:?}"
                    );
                    let instead = "If it limits, import the file that has it, too";
                    self.note(of, place, "plugin_config_name", why, instead);
                }
            }
        }
        self.made.push((of.file, "routes", Node::new(place, Content::Object(fields))));
    }
}
