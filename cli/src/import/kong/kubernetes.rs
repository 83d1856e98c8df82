// SPDX-License-Identifier: Apache-2.0
//! KongPlugins, and the objects that name them, in the form of Kong's declarative file: as Kong's ingress controller does, each Ingress becomes
//! a route for each host and port of a Service, and each HTTPRoute a route for the matches that differ in their paths only. A plugin counts
//! for each route, or for each port of a Service, by itself.

use super::super::notes::Notes;
use super::super::{CLASS, Object, is_foreign, object, text, texts};
use super::{KINDS, OTHERS, is_read};
use crate::document::{Content, Node, Place};
use crate::source::Source as File;

const PLUGINS: &str = "konghq.com/plugins";

/// A Service of Kubernetes and its port.
type Backend = (String, String);

/// A route, while its paths are collected. `key` tells it from the others of its object.
struct Route<'a> {
    key: String,
    place: Place,
    hosts: Vec<&'a str>,
    paths: Vec<String>,
    methods: Vec<&'a str>,
    headers: Vec<(String, Place, Node)>,
    backends: Vec<Backend>,
    /// The plugins that its own rule names.
    plugins: Vec<usize>,
}

struct Cluster<'a, 'n> {
    plugins: Vec<Object<'a>>,
    /// The results: the file, the list in the declarative form, and the object.
    made: Vec<(usize, &'static str, Node)>,
    /// The services of Kong, each with what is behind it.
    services: Vec<(String, Vec<Backend>)>,
    /// The plugins, each with the kind and the name of what it is for.
    scopes: Vec<(usize, &'static str, String)>,
    /// The plugins of Services to which no route leads, each with the Service.
    idle: Vec<(usize, String)>,
    /// The Ingresses of other controllers.
    others: Vec<Object<'a>>,
    bindings: Vec<Object<'a>>,
    notes: &'n mut Notes,
}

/// Returns a declarative configuration for each file; without fields if it has no objects.
pub fn declarative(files: &[File], notes: &mut Notes) -> Vec<Node> {
    let all = super::super::objects(files);
    let is_plugin = |object: &&Object<'_>| ["KongPlugin", "KongClusterPlugin"].contains(&object.kind());
    let plugins = all.iter().filter(is_plugin).copied().collect();
    let others =
        all.iter().filter(|object| object.kind() == "Ingress" && !is_kongs(object)).copied().collect();
    let (made, services, scopes, idle) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let bindings = all.iter().filter(|object| object.kind() == "KongPluginBinding").copied().collect();
    let mut cluster = Cluster { plugins, made, services, scopes, idle, others, bindings, notes };
    for object in &all {
        match object.kind() {
            "Ingress" if is_kongs(object) => cluster.ingress(object),
            "HTTPRoute" if has_kongs(object) || !is_foreign(object, &all, "konghq.com/") => {
                cluster.http_route(object)
            }
            "KongConsumer" => cluster.consumer(object, "consumer"),
            "KongConsumerGroup" => cluster.consumer(object, "consumer_group"),
            _ => {}
        }
    }
    for object in &all {
        match object.kind() {
            "Ingress" | "HTTPRoute" | "KongConsumer" | "KongConsumerGroup" => {}
            "Service" => cluster.service(object),
            kind => {
                let Some((place, value)) = object.annotation(PLUGINS) else { continue };
                let why = format!("plugins of a {kind} are not imported");
                cluster.notes.read(value);
                cluster.notes.at(object.file, place.line, PLUGINS, why, "Write the policy by hand");
            }
        }
    }
    (0..cluster.plugins.len()).for_each(|number| cluster.plugin(number));
    super::super::roots(&cluster.made, &["services", "routes", "plugins"], files.len())
}

/// False if the Ingress names the class of another controller, and nothing of Kong.
fn is_kongs(ingress: &Object<'_>) -> bool {
    ingress.class().is_none_or(|class| class.contains("kong")) || has_kongs(ingress)
}

/// True if an object has an annotation of Kong.
fn has_kongs(of: &Object<'_>) -> bool {
    of.annotations().iter().any(|(name, ..)| name.starts_with("konghq.com/"))
}

/// True if an Ingress leads to the Service of this id.
fn leads_to(ingress: &Object<'_>, service: &str) -> bool {
    let mut is_found = false;
    ingress.root.walk(&mut |node| {
        let name = node.get("service").map_or(node.text_of("serviceName"), |of| of.text_of("name"));
        is_found |= !name.is_empty() && id(ingress.namespace(), name) == service;
    });
    is_found
}

fn id(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl<'a> Cluster<'a, '_> {
    fn note(&mut self, of: &Object<'_>, place: Place, what: &str, why: impl Into<String>, instead: &str) {
        self.notes.at(of.file, place.line, what, why, instead);
    }

    /// The plugins of these names: `name`, or `namespace:name`. A KongPlugin comes before a KongClusterPlugin.
    fn named(&mut self, of: &Object<'_>, place: Place, what: &str, names: &[&str]) -> Vec<usize> {
        let mut found = Vec::new();
        for name in names {
            let (namespace, name) = name.split_once(':').unwrap_or((of.namespace(), name));
            let is = |object: &&Object<'_>, kind| object.kind() == kind && object.metadata("name") == name;
            let own = |object: &Object<'_>| is(&object, "KongPlugin") && object.namespace() == namespace;
            let common = |object: &Object<'_>| is(&object, "KongClusterPlugin");
            let place_of = self.plugins.iter().position(own).or_else(|| self.plugins.iter().position(common));
            match place_of {
                Some(number) => found.push(number),
                None => {
                    let why = format!(
                        "the files have no KongPlugin {name:?} of the namespace {namespace:?}, nor a KongClusterPlugin"
                    );
                    self.note(of, place, what, why, "If it limits, import the file that has it, too");
                }
            }
        }
        found
    }

    fn annotated(&mut self, of: &Object<'_>) -> Vec<usize> {
        let Some((place, value)) = of.annotation(PLUGINS) else { return Vec::new() };
        self.notes.read(value);
        self.named(of, place, PLUGINS, &of.listed(PLUGINS))
    }

    fn consumer(&mut self, of: &Object<'_>, kind: &'static str) {
        let name = of.name();
        let all = self.annotated(of);
        self.scopes.extend(all.into_iter().map(|plugin| (plugin, kind, name.clone())));
    }

    fn service(&mut self, of: &Object<'_>) {
        let own = id(of.namespace(), of.metadata("name"));
        for plugin in self.annotated(of) {
            let behind =
                self.services.iter().filter(|(_, all)| all.iter().any(|(service, _)| *service == own));
            let known = self.scopes.len();
            self.scopes.extend(behind.map(|(name, _)| (plugin, "service", name.clone())));
            if self.scopes.len() == known {
                self.idle.push((plugin, own.clone()));
            }
        }
    }

    fn ingress(&mut self, of: &Object<'a>) {
        let prefix = of.annotation("konghq.com/regex-prefix").and_then(|(_, value)| value.text());
        let mut routes: Vec<Route<'a>> = Vec::new();
        let Some(spec) = of.root.get("spec") else { return };
        let mut add = |host: &'a str, place: Place, paths: Vec<String>, backend: Option<&Node>| {
            let service = backend.and_then(|backend| backend.get("service"));
            // Before networking.k8s.io/v1, both were fields of the backend.
            let old = |name| backend.map(|backend| backend.text_of(name)).unwrap_or_default();
            let name = service.map_or(old("serviceName"), |service| service.text_of("name"));
            let port = service.or(backend).and_then(|of| of.get("port").or_else(|| of.get("servicePort")));
            let backends = vec![(id(of.namespace(), name), written(port))];
            let hosts = Some(host).filter(|host| !host.is_empty()).into_iter().collect();
            let key = format!("{host} {backends:?}");
            let (methods, headers, plugins) = (Vec::new(), Vec::new(), Vec::new());
            collect(&mut routes, Route { key, place, hosts, paths, methods, headers, backends, plugins });
        };
        if let Some((place, backend)) = spec.field("defaultBackend").or_else(|| spec.field("backend")) {
            add("", place, vec![String::from("/")], Some(backend));
        }
        for rule in spec.list("rules") {
            for node in rule.get("http").map(|http| http.list("paths")).unwrap_or_default() {
                let path = Some(node.text_of("path")).filter(|path| !path.is_empty()).unwrap_or("/");
                let base = path.trim_matches('/');
                let paths = match node.text_of("pathType") {
                    "Prefix" if base.is_empty() => vec![String::from("/")],
                    "Prefix" => vec![format!("/{base}/"), format!("~/{base}$")],
                    "Exact" => vec![format!("~/{}$", path.trim_start_matches('/'))],
                    _ => vec![path.to_owned()],
                };
                let paths = paths.into_iter().map(|path| match path.strip_prefix(prefix.unwrap_or("/~")) {
                    Some(expression) => format!("~{expression}"),
                    None => path,
                });
                let paths = paths.collect();
                add(rule.text_of("host"), node.place, paths, node.get("backend"));
            }
        }
        self.routes(of, routes);
    }

    fn http_route(&mut self, of: &Object<'a>) {
        let mut routes = Vec::new();
        let Some(spec) = of.root.get("spec") else { return };
        for rule in spec.list("rules") {
            let backends = rule.list("backendRefs").iter().map(|backend| {
                let namespace = Some(backend.text_of("namespace")).filter(|name| !name.is_empty());
                let service = id(namespace.unwrap_or(of.namespace()), backend.text_of("name"));
                (service, written(backend.get("port")))
            });
            let backends: Vec<Backend> = backends.collect();
            let mut plugins = Vec::new();
            for filter in rule.list("filters").iter().filter_map(|filter| filter.get("extensionRef")) {
                if filter.text_of("kind") == "KongPlugin" {
                    plugins.extend(self.named(of, filter.place, "extensionRef", &[filter.text_of("name")]));
                }
            }
            let matches: Vec<&Node> = match rule.list("matches") {
                [] => vec![rule],
                matches => matches.iter().collect(),
            };
            for one in matches {
                let (path, method) = (one.get("path"), one.get("method"));
                let of_path = |field| path.map(|path| path.text_of(field)).unwrap_or_default();
                let value = Some(of_path("value")).filter(|value| !value.is_empty()).unwrap_or("/");
                let paths = match of_path("type") {
                    "Exact" => vec![format!("~{value}$")],
                    "RegularExpression" => vec![format!("~{value}")],
                    _ if value == "/" => vec![String::from("/")],
                    _ => vec![format!("{}/", value.trim_end_matches('/')), format!("~{value}$")],
                };
                if let Some((place, _)) = one.field("queryParams") {
                    let why = "it is not read, so the route is imported for all queries";
                    self.note(of, place, "queryParams", why, "Write it into the `match` of its policies");
                }
                let header = |header: &Node| {
                    let value = match header.text_of("type") {
                        "RegularExpression" => format!("~*{}", header.text_of("value")),
                        _ => header.text_of("value").to_owned(),
                    };
                    let values = texts(header.place, [value.as_str()]);
                    (header.text_of("name").to_owned(), header.place, values)
                };
                let differ = ["method", "headers", "queryParams"].map(|name| written(one.get(name)));
                let filters = written(rule.get("filters"));
                collect(
                    &mut routes,
                    Route {
                        key: format!("{backends:?} {filters} {differ:?}"),
                        place: one.place,
                        hosts: spec.list("hostnames").iter().filter_map(Node::text).collect(),
                        paths,
                        methods: method.and_then(Node::text).into_iter().collect(),
                        headers: one.list("headers").iter().map(header).collect(),
                        backends: backends.clone(),
                        plugins: plugins.clone(),
                    },
                );
            }
        }
        self.routes(of, routes);
    }

    /// The routes of an object, and what its annotations say of all of them.
    fn routes(&mut self, of: &Object<'a>, routes: Vec<Route<'a>>) {
        let plugins = self.annotated(of);
        if let Some((place, _)) = of.annotation("konghq.com/override") {
            let why = "a KongIngress is not read, and may change which requests the routes have";
            self.note(of, place, "konghq.com/override", why, "Write the annotations that replace it");
        }
        for (number, route) in routes.into_iter().enumerate() {
            let place = route.place;
            let name = format!("{} {}/{} {number}", of.kind(), of.namespace(), of.metadata("name"));
            let service = self.service_of(of, &route);
            let all = plugins.iter().chain(&route.plugins).copied();
            self.scopes.extend(all.map(|plugin| (plugin, "route", name.clone())));
            let hosts = route.hosts.into_iter().chain(of.listed("konghq.com/host-aliases"));
            let methods = match of.listed("konghq.com/methods") {
                own if own.is_empty() => route.methods,
                own => own,
            };
            let headers = Some(headers(of)).filter(|own| !own.is_empty()).unwrap_or(route.headers);
            let at_snis = of.annotation("konghq.com/snis").map_or(place, |(place, _)| place);
            let mut fields = vec![
                ("id", text(place, &name)),
                ("name", text(place, &of.name())),
                ("service", text(place, &service)),
                ("hosts", texts(place, hosts)),
                ("paths", texts(place, route.paths.iter().map(String::as_str))),
                ("methods", texts(place, methods)),
                ("headers", Node::new(place, Content::Object(headers))),
                ("snis", texts(at_snis, of.listed("konghq.com/snis"))),
            ];
            let priority = of.annotation("konghq.com/regex-priority");
            fields.extend(priority.map(|(_, value)| ("regex_priority", value.clone())));
            fields.extend(of.class().map(|class| (CLASS, text(place, class))));
            self.made.push((of.file, "routes", object(place, fields)));
        }
    }

    /// The service that a route leads to, by its name: one for each port of a Service, and for each kind of route.
    fn service_of(&mut self, of: &Object<'_>, route: &Route<'_>) -> String {
        let name = format!("{} {:?}", of.kind(), route.backends);
        if !self.services.iter().any(|(other, _)| *other == name) {
            let shown =
                route.backends.first().map(|(service, _)| service.replace('/', "-")).unwrap_or_default();
            let shown = shown.strip_prefix("default-").unwrap_or(&shown);
            let fields = vec![("id", text(route.place, &name)), ("name", text(route.place, shown))];
            self.made.push((of.file, "services", object(route.place, fields)));
            self.services.push((name.clone(), route.backends.clone()));
        }
        name
    }

    /// Says why a plugin is for nothing, and what to do.
    fn unused(&self, plugin: usize, of: &Object<'_>) -> (String, &'static str) {
        let names = |binding: &Object<'_>| {
            let name = binding.root.at(&["spec", "pluginRef", "name"]).and_then(Node::text);
            binding.namespace() == of.namespace() && name == Some(of.metadata("name"))
        };
        if let Some(binding) = self.bindings.iter().find(|binding| names(binding)) {
            let name = binding.metadata("name");
            let why =
                format!("the KongPluginBinding {name:?} names it, which is not read, so it is not imported");
            return (why, "Import what `deck gateway dump` prints");
        }
        let Some((_, service)) = self.idle.iter().find(|(number, _)| *number == plugin) else {
            let why = "no route, Service or consumer in these files names it in `konghq.com/plugins`, so it is not imported";
            return (why.to_owned(), "If other files do, import them, too");
        };
        let Some(ingress) = self.others.iter().find(|ingress| leads_to(ingress, service)) else {
            let why = format!(
                "no Ingress or HTTPRoute in these files leads to its Service {service:?}, so it is not imported"
            );
            return (why, "If other files have one, import them, too");
        };
        let why = format!(
            "the Ingress {:?}, which leads to its Service, is of the class {:?} and not Kong's, so it is not imported",
            ingress.metadata("name"),
            ingress.class().unwrap_or_default()
        );
        (why, "If the class is Kong's, import the Ingress without it")
    }

    /// A KongPlugin for each of what it is for.
    fn plugin(&mut self, number: usize) {
        let Some(of) = self.plugins.get(number).copied() else { return };
        let (kind, place) = (of.root.text_of("plugin"), of.root.place_of("plugin"));
        let (is_limit, is_other) = (KINDS.contains(&kind), OTHERS.contains(&kind));
        if !is_other && !is_read(kind) {
            return;
        }
        self.notes.read(of.root);
        let of_it = self.scopes.iter().filter(|(plugin, ..)| *plugin == number);
        let mut scopes: Vec<_> = of_it.map(|(_, kind, name)| Some((*kind, name.clone()))).collect();
        let consumer = of.root.text_of("consumerRef");
        scopes.extend((!consumer.is_empty()).then(|| Some(("consumer", consumer.to_owned()))));
        if scopes.iter().flatten().any(|(kind, _)| kind.starts_with("consumer")) {
            // Only requests of these consumers have it, on whatever routes.
            scopes.retain(|scope| scope.as_ref().is_some_and(|(kind, _)| kind.starts_with("consumer")));
        }
        let global = of.root.at(&["metadata", "labels", "global"]).and_then(Node::text_or_number);
        let is_global = of.kind() == "KongClusterPlugin" && global.as_deref() == Some("true");
        scopes.extend((is_global || is_other && scopes.is_empty()).then_some(None));
        let unused = self.unused(number, &of);
        let (why, instead) = match () {
            () if of.root.is_true("disabled") => ("it is off (`disabled`), so it is not imported", ""),
            () if of.root.get("configFrom").is_some() => {
                ("its `configFrom` names a Secret, which is not read, so it is not imported", "")
            }
            () if scopes.is_empty() => (unused.0.as_str(), unused.1),
            () => ("", ""),
        };
        if !why.is_empty() {
            if is_limit {
                self.note(&of, place, kind, why, instead);
            }
            return;
        }
        let others = ["apiVersion", "kind", "metadata", "status", "disabled", "consumerRef"];
        let fields = of.root.fields().iter().filter(|(name, ..)| !others.contains(&name.as_str()));
        let fields: Vec<_> = fields
            .cloned()
            .map(|(name, place, value)| match name.as_str() {
                "plugin" => (String::from("name"), place, value),
                _ => (name, place, value),
            })
            .collect();
        for scope in scopes {
            // A global one is for its class.
            let scope = scope
                .or_else(|| Some((CLASS, of.class()?.to_owned())))
                .map(|(kind, name)| (kind.to_owned(), place, text(place, &name)));
            let fields = fields.iter().cloned().chain(scope).collect();
            self.made.push((of.file, "plugins", Node::new(place, Content::Object(fields))));
        }
    }
}

/// The headers in annotations: `konghq.com/headers.NAME`, with values between commas.
fn headers(of: &Object<'_>) -> Vec<(String, Place, Node)> {
    let separator =
        of.annotation("konghq.com/headers-separator").and_then(|(_, value)| value.text()).unwrap_or(",");
    let all = of.annotations().iter().filter_map(|(name, place, value)| {
        let name = name.strip_prefix("konghq.com/headers.").filter(|name| !name.is_empty())?;
        let value = value.text().filter(|value| !value.is_empty())?;
        Some((name.to_owned(), *place, texts(*place, value.split(separator).map(str::trim))))
    });
    all.collect()
}

/// Adds the paths of a route to those of one with the same key.
fn collect<'a>(routes: &mut Vec<Route<'a>>, route: Route<'a>) {
    match routes.iter_mut().find(|other| other.key == route.key) {
        Some(same) => same.paths.extend(route.paths),
        None => routes.push(route),
    }
}

fn written(node: Option<&Node>) -> String {
    node.map(|node| node.json().to_string()).unwrap_or_default()
}
