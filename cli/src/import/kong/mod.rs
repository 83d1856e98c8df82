// SPDX-License-Identifier: Apache-2.0
//! `weir import kong`: the plugins rate-limiting and rate-limiting-advanced of Kong's declarative files, and of its objects of Kubernetes, as
//! policies.
//!
//! | file | what is inside |
//! |---|---|
//! | `kubernetes.rs` | the declarative form of KongPlugins, Ingresses, HTTPRoutes and Services |
//! | `routes.rs` | which route a request has |
//! | `limits.rs` | what a plugin limits, and by what |

mod kubernetes;
mod limits;
mod routes;

use std::path::PathBuf;

use clap::Args;

use super::credential::Places;
use super::nginx::name_of;
use super::notes::Notes;
use super::test::Test;
use super::{Imported, Output};
use crate::document::{Content, Node};
use crate::tree::{Map, Tree};
use routes::Entry;

/// The files to import.
#[derive(Args)]
pub struct Arguments {
    /// Kong's declarative configuration, or what `deck gateway dump` prints; or manifests with KongPlugins and KongClusterPlugins, and the
    /// Ingresses, HTTPRoutes, Services and KongConsumers that name them. Several files may name each other's objects.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// The kinds of plugins that are imported.
const KINDS: [&str; 2] = ["rate-limiting", "rate-limiting-advanced"];

/// Plugins that limit, too.
const OTHERS: [&str; 5] = [
    "response-ratelimiting",
    "ai-rate-limiting-advanced",
    "graphql-rate-limiting-advanced",
    "service-protection",
    "request-size-limiting",
];

/// Plugins that answer requests before those that limit: `cors` answers preflights, and the others what they refuse.
const BEFORE: &str = "cors bot-detection ip-restriction acl opa request-validator jwe-decrypt json-threat-protection xml-threat-protection \
    injection-protection application-registration konnect-application-auth";

/// Plugins that find consumers, in the order in which they run, and the headers and query parameters in which they look for a credential unless
/// told otherwise.
const AUTHENTICATION: [(&str, &[&str], &[&str]); 16] = [
    ("session", &[], &[]),
    ("oauth2-introspection", &["authorization"], &["access_token"]),
    ("mtls-auth", &[], &[]),
    ("jwt", &["authorization"], &["jwt"]),
    ("oauth2", &["authorization"], &["access_token"]),
    ("vault-auth", &["access_token"], &["access_token"]),
    ("key-auth", &["apikey"], &["apikey"]),
    ("key-auth-enc", &["apikey"], &["apikey"]),
    ("ldap-auth", &["authorization", "proxy-authorization"], &[]),
    ("ldap-auth-advanced", &["authorization", "proxy-authorization"], &[]),
    ("basic-auth", &["authorization", "proxy-authorization"], &[]),
    ("openid-connect", &["authorization"], &[]),
    ("hmac-auth", &["authorization", "proxy-authorization"], &[]),
    ("jwt-signer", &["authorization"], &[]),
    ("saml", &[], &[]),
    ("header-cert-auth", &[], &[]),
];

/// Those that know a client by a cookie only.
const BY_COOKIE: [&str; 2] = ["session", "saml"];

/// The fields that are read of services, routes and plugins.
const READ: [(&str, &str); 3] = [
    ("services", "enabled"),
    ("routes", "hosts methods headers paths snis expression priority regex_priority protocols"),
    ("plugins", "name enabled protocols"),
];

/// The fields that are read in the `config` of plugins that do not limit.
const READ_OF_OTHERS: &str = "key_names header_names uri_param_names auth_header_name certificate_header_name access_token_name key_in_header \
    key_in_query key_in_body cookie_names preflight_continue";

/// A plugin, and what it is for: a route, a service, or all.
struct Plugin<'a> {
    file: usize,
    node: &'a Node,
    route: Option<usize>,
    service: Option<usize>,
}

/// A part of the requests that a plugin counts apart, with a policy of its own.
#[derive(Clone, Copy, PartialEq)]
enum Apart {
    Nothing,
    /// The requests of a service, or those of routes without one.
    Service(Option<usize>),
    Route(usize),
}

/// The objects of Kong's files.
#[derive(Default)]
struct Gateway<'a> {
    /// The workspace of each file. Kong has one router for all, and plugins only for the routes of theirs.
    workspaces: Vec<&'a str>,
    /// Each with the number of its file, and so are routes.
    services: Vec<(usize, &'a Node)>,
    routes: Vec<(usize, &'a Node)>,
    /// The service of each route.
    services_of: Vec<Option<usize>>,
    plugins: Vec<Plugin<'a>>,
    authentication: Vec<Plugin<'a>>,
    before: Vec<Plugin<'a>>,
    /// The places in `plugins` of those that run for each route.
    running: Vec<Vec<usize>>,
}

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let mut files = super::read(&arguments.files, 0, &mut notes)?;
    for root in files.iter_mut().flat_map(|file| file.documents.iter_mut()) {
        if let Some(shared) = root.get("_plugin_configs").cloned() {
            complete(root, &shared);
        }
        if let Some(defaults) = root.at(&["_info", "defaults"]).cloned() {
            fill(root, &defaults);
        }
    }
    files.iter().flat_map(|file| &file.documents).for_each(|root| {
        root.get("_plugin_configs").into_iter().for_each(|shared| notes.read(shared));
    });
    let made = kubernetes::declarative(&files, &mut notes);
    super::note_classes(&made, &mut notes);
    let roots = super::roots_of(&files, &made);
    if roots.iter().fold(false, |is_found, (file, root)| note_templates(*file, root, &mut notes) || is_found)
    {
        let files: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        return Err(super::nothing(&files, &notes, "plugin rate-limiting"));
    }
    let workspaces = files.iter().map(|file| {
        let named = file.documents.iter().find_map(|root| root.get("_workspace")?.text());
        named.unwrap_or("default")
    });
    let workspaces = workspaces.collect();
    let mut gateway = Gateway { workspaces, ..Gateway::default() };
    roots.iter().for_each(|(file, root)| gateway.add_services(*file, root));
    roots.iter().for_each(|(file, root)| gateway.add_routes(*file, root, &mut notes));
    roots.iter().for_each(|(file, root)| gateway.add_plugins(*file, root, &mut notes));
    gateway.running = (0..gateway.routes.len()).map(|route| gateway.running(route)).collect();
    // Kong migrates these formats, in which an expression looks like any other path.
    let is_old = |file: usize| {
        let mut roots = files.get(file).into_iter().flat_map(|file| &file.documents);
        let version = roots.find_map(|root| root.get("_format_version")?.text_or_number());
        version.is_some_and(|version| ["1.1", "2.1"].contains(&version.as_str()))
    };
    let entries = routes::entries(&gateway.routes, (&is_old, &|route| gateway.is_off(route)), &mut notes);
    let (mut policies, mut names, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    for (number, plugin) in gateway.plugins.iter().enumerate() {
        if gateway.requests(&entries, &|route| gateway.runs(number, route, Apart::Nothing), true).is_never() {
            let why = "no request has it: each of its routes has a plugin of its own or is of a service that is off, or it has none";
            plugin.note(why, "", &mut notes);
            continue;
        }
        if gateway.routes.is_empty() && plugin.service.is_some() {
            let why = "the files have no routes, so its limits apply to all requests";
            let instead = "Import the file that has the routes, too";
            plugin.note(why, instead, &mut notes);
        }
        let before = policies.len();
        for apart in gateway.scopes(plugin) {
            let groups = gateway.groups(number, &entries, apart, &mut notes);
            let scope = gateway.name(plugin, apart);
            let file = files.get(plugin.file).map(|file| file.name.as_str()).unwrap_or_default();
            let comment = format!("{file}:{}: {} of {scope}", plugin.node.place.line, plugin.name());
            let counted = gateway.counted(plugin, apart);
            let mut made = limits::policies(
                plugin,
                (&name_of(&scope), comment),
                (&groups, counted),
                &mut names,
                &mut notes,
            );
            share(plugin, &mut made, &mut shared, &mut notes);
            policies.extend(made);
        }
        if policies.len().saturating_sub(before) > 256 {
            let why = "Kong counts each of its routes or services apart, and weir has at most 256 policies";
            let instead = "Write one policy with `{route: {}}` in its `subject`, the name of Envoy's route";
            plugin.note(why, instead, &mut notes);
        }
    }
    gateway.note_before(&mut notes);
    notes.rest(&files);
    let files = files.into_iter().map(|file| file.name).collect::<Vec<_>>();
    if policies.is_empty() {
        return Err(super::nothing(&files, &notes, "plugin rate-limiting"));
    }
    let policies: Vec<Tree> = policies.into_iter().map(Tree::from).collect();
    Ok(Imported { configuration: Map::from([("policies", policies.into())]), files, notes })
}

/// Adds what plugins share with others in the files of deck: `_config` names it. Their own fields win.
fn complete(node: &mut Node, shared: &Node) {
    let name = node.fields().iter().find(|(name, ..)| name == "_config").and_then(|(.., name)| name.text());
    let named = name.and_then(|name| shared.get(name)).cloned();
    match &mut node.content {
        Content::Scalar(_) => {}
        Content::List(items) => items.iter_mut().for_each(|item| complete(item, shared)),
        Content::Object(fields) => {
            let Some(named) = named else {
                return fields.iter_mut().for_each(|(.., value)| complete(value, shared));
            };
            let own =
                fields.iter().rposition(|(name, ..)| name == "config").map(|place| fields.remove(place).2);
            let all = own.iter().chain([&named]).flat_map(Node::fields);
            let all = all.rev().map(|(name, place, value)| (name.clone(), *place, value.clone())).collect();
            fields.push((String::from("config"), named.place, Node::new(named.place, Content::Object(all))));
        }
    }
}

/// Fills the services and routes of deck's files with what `_info.defaults` says. Their own fields win.
fn fill(node: &mut Node, defaults: &Node) {
    let Content::Object(fields) = &mut node.content else { return };
    for (kind, list) in fields.iter_mut().filter_map(|(name, _, list)| Some((name.strip_suffix('s')?, list)))
    {
        let (Content::List(items), "service" | "route") = (&mut list.content, kind) else { continue };
        for item in items {
            let missing = defaults.get(kind).map(Node::fields).unwrap_or_default().iter();
            let is_missing = |name: &str| item.get(name).is_none_or(|own| own.json().is_null());
            let missing: Vec<_> = missing.filter(|(name, ..)| is_missing(name)).cloned().collect();
            if let Content::Object(fields) = &mut item.content {
                fields.extend(missing);
            }
            fill(item, defaults);
        }
    }
}

/// Notes the templates in what is read of the services, routes and plugins in an object, unless they are off, and returns whether the import
/// needs the value of one.
fn note_templates(file: usize, object: &Node, notes: &mut Notes) -> bool {
    const RENDER: &str = "Import what `deck file render --populate-env-vars` prints";
    let mut is_found = false;
    for (list, fields) in READ {
        for node in object.list(list).iter().filter(|node| !is_false(node, "enabled")) {
            let name = node.text_of("name");
            if list == "plugins" && !is_read(name) && !name.contains("${{") {
                continue;
            }
            is_found |= super::note_templates(file, node, fields, RENDER, notes);
            if let Some(config) = node.get("config").filter(|_| list == "plugins") {
                let fields = if KINDS.contains(&name) { limits::READ } else { READ_OF_OTHERS };
                is_found |= super::note_templates(file, config, fields, RENDER, notes);
            }
            is_found |= note_templates(file, node, notes);
        }
    }
    is_found
}

/// True if a field is false. `null` is Kong's default.
fn is_false(node: &Node, field: &str) -> bool {
    node.get(field).and_then(Node::text_or_number).as_deref() == Some("false")
}

/// True if a plugin of this name is read.
fn is_read(name: &str) -> bool {
    KINDS.contains(&name) || super::is_among(name, BEFORE) || finds_consumers(name)
}

fn finds_consumers(name: &str) -> bool {
    AUTHENTICATION.iter().any(|(known, ..)| *known == name)
}

/// Lets the policies of plugins with one `namespace` count together, as in Kong. `shared` are the first ones of each, by their names.
fn share<'a>(
    plugin: &Plugin<'a>,
    made: &mut [Map],
    shared: &mut Vec<(&'a Node, Vec<(bool, Tree)>)>,
    notes: &mut Notes,
) {
    let Some(config) = plugin.node.get("config") else { return };
    let namespace = config.text_of("namespace");
    if namespace.is_empty() {
        return;
    }
    let is_same = |of: &Node| of.text_of("namespace") == namespace;
    // Credentials and addresses are counted apart, and not each plugin has both.
    let kind = |policy: &Map| policy.get("subject") == Some(&vec![Tree::from(super::address())].into());
    let named = |policy: &Map| Some((kind(policy), policy.get("name")?.clone()));
    let known = shared.iter_mut().find(|(of, _)| is_same(of) && of.json() == config.json());
    if let Some((_, names)) = known {
        for policy in made {
            match names.iter().find(|(of, _)| *of == kind(policy)) {
                Some((_, name)) => policy.replace("counters", name.clone()),
                None => names.extend(named(policy)),
            }
        }
        return;
    }
    if shared.iter().any(|(of, _)| is_same(of)) {
        let why = "Kong counts the plugins of one namespace together; these differ, so each policy counts by itself";
        notes.field(plugin.file, config, "namespace", why, "Give them the same limits and `counters`");
    }
    shared.push((config, made.iter().filter_map(named).collect()));
}

impl<'a> Gateway<'a> {
    /// The services of a file, so that routes and plugins of any file can name them.
    fn add_services(&mut self, file: usize, root: &'a Node) {
        for service in root.list("services") {
            let number = self.services.len();
            self.services.push((file, service));
            for route in service.list("routes") {
                self.routes.push((file, route));
                self.services_of.push(Some(number));
            }
        }
    }

    fn add_routes(&mut self, file: usize, root: &'a Node, notes: &mut Notes) {
        for route in root.list("routes") {
            self.routes.push((file, route));
            let name = reference(route, "service");
            let service = self.named(&self.services, file, &name);
            if service.is_none() && !name.is_empty() {
                let why = format!("the files have no service {name:?}");
                let instead = "If it limits, import the file that has it, too";
                notes.field(file, route, "service", why, instead);
            }
            self.services_of.push(service);
        }
    }

    fn add_plugins(&mut self, file: usize, root: &'a Node, notes: &mut Notes) {
        for service in root.list("services") {
            let number = self.services.iter().position(|(_, other)| core::ptr::eq(*other, service));
            service.list("plugins").iter().for_each(|plugin| self.add(file, plugin, (None, number), notes));
        }
        let of_services = root.list("services").iter().flat_map(|service| service.list("routes"));
        for route in of_services.chain(root.list("routes")) {
            let number = self.routes.iter().position(|(_, other)| core::ptr::eq(*other, route));
            route.list("plugins").iter().for_each(|plugin| self.add(file, plugin, (number, None), notes));
        }
        root.list("plugins").iter().for_each(|plugin| self.add(file, plugin, (None, None), notes));
        // Without a database, those of groups are in a list of their own.
        for of in root.list("consumers").iter().chain(root.list("consumer_groups")).chain([root]) {
            let own = if core::ptr::eq(of, root) { &[] } else { of.list("plugins") };
            for plugin in own.iter().chain(of.list("consumer_group_plugins")) {
                note_consumer(file, plugin, notes);
            }
        }
    }

    /// The one of this name or id in a list, of the workspace of a file.
    fn named(&self, list: &[(usize, &Node)], file: usize, name: &str) -> Option<usize> {
        let is = |node: &Node| node.text_of("name") == name || node.text_of("id") == name;
        list.iter().position(|(of, node)| !name.is_empty() && self.is_shared(*of, file) && is(node))
    }

    /// True if two files are of one workspace.
    fn is_shared(&self, one: usize, other: usize) -> bool {
        self.workspaces.get(one) == self.workspaces.get(other)
    }

    /// A plugin at this place, which may also name a route or a service.
    fn add(
        &mut self,
        file: usize,
        plugin: &'a Node,
        place: (Option<usize>, Option<usize>),
        notes: &mut Notes,
    ) {
        let name = plugin.text_of("name");
        if OTHERS.contains(&name) {
            let instead = match name {
                "ai-rate-limiting-advanced" => "Write a policy whose `cost` is `usage`, which counts tokens",
                _ => "Write the policy by hand",
            };
            notes.at(file, plugin.place.line, name, "this plugin is not imported", instead);
            return notes.read(plugin);
        }
        let is_off = is_false(plugin, "enabled");
        let is_limit = KINDS.contains(&name);
        if !is_limit && (is_off || !is_read(name)) {
            return;
        }
        notes.read(plugin);
        if is_off {
            let why = "it is off (`enabled`), so it is not imported";
            return notes.at(file, plugin.place.line, name, why, "");
        }
        if !reference(plugin, "consumer").is_empty() || !reference(plugin, "consumer_group").is_empty() {
            return note_consumer(file, plugin, notes);
        }
        let mut wanted = |kind: &str, of: Option<usize>, list: &[(usize, &Node)]| {
            let name = reference(plugin, kind);
            let found = of.or_else(|| self.named(list, file, &name));
            if found.is_none() && !name.is_empty() {
                let effect = if is_limit { "the plugin is not imported" } else { "it is for no route here" };
                let why = format!("the files have no {kind} {name:?}, so {effect}");
                let instead = "Import the file that has it, too";
                notes.at(file, plugin.place.line, plugin.text_of("name"), why, instead);
                return Err(());
            }
            Ok(found)
        };
        let (Ok(route), Ok(service)) =
            (wanted("route", place.0, &self.routes), wanted("service", place.1, &self.services))
        else {
            return;
        };
        let list = match () {
            () if is_limit => &mut self.plugins,
            () if finds_consumers(name) => &mut self.authentication,
            () => &mut self.before,
        };
        list.push(Plugin { file, node: plugin, route, service });
    }

    /// True if a plugin is for the requests of this route, unless a more particular one of its kind is.
    fn applies(&self, plugin: &Plugin<'_>, route: usize) -> bool {
        let service = self.services_of.get(route).copied().flatten();
        let is_near = |(file, node): &(usize, &Node)| {
            self.is_shared(*file, plugin.file) && !super::are_apart(node, plugin.node)
        };
        plugin.route.is_none_or(|of| of == route)
            && plugin.service.is_none_or(|of| Some(of) == service)
            && self.routes.get(route).is_some_and(is_near)
    }

    /// The requests of a plugin, or those among them that it counts apart, with the places in which authentication looks for their credential:
    /// those for which none runs come last, and Kong counts an address there.
    fn groups(
        &self,
        number: usize,
        entries: &[Entry],
        apart: Apart,
        notes: &mut Notes,
    ) -> Vec<(Places, Test)> {
        let Some(plugin) = self.plugins.get(number) else { return Vec::new() };
        let mut groups: Vec<(Places, Vec<usize>)> = Vec::new();
        let is_by_consumer = limits::is_by_consumer(plugin.node);
        if is_by_consumer && self.routes.is_empty() {
            let is_same = |auth: &&Plugin<'_>| {
                plugin.service.is_none() || auth.service.is_none() || auth.service == plugin.service
            };
            return vec![(places(self.authentication.iter().filter(is_same), notes), Test::Always)];
        }
        let run = |route: &usize| self.runs(number, *route, apart) && !self.is_off(*route);
        for route in (0..self.routes.len()).filter(run) {
            let of_route = self.authentication.iter().filter(|auth| self.applies(auth, route));
            let places = if is_by_consumer { places(of_route, notes) } else { Places::default() };
            match groups.iter_mut().find(|(known, _)| *known == places) {
                Some((_, routes)) => routes.push(route),
                None => groups.push((places, vec![route])),
            }
        }
        if self.routes.is_empty() {
            groups.push((Places::default(), Vec::new()));
        }
        groups.sort_by_key(|(places, _)| !places.finds_consumers);
        let groups = groups.into_iter().map(|(places, routes)| {
            // They are in order.
            (places, self.counted_requests(entries, &|route| routes.binary_search(&route).is_ok()))
        });
        groups.filter(|(_, requests)| !requests.is_never()).collect()
    }

    /// The parts that a plugin counts apart.
    fn scopes(&self, plugin: &Plugin<'_>) -> Vec<Apart> {
        let words = limits::identifiers(plugin.node);
        match () {
            () if plugin.route.is_some() || self.routes.is_empty() => vec![Apart::Nothing],
            () if words.contains(&"route") => (0..self.routes.len()).map(Apart::Route).collect(),
            () if words.contains(&"service") && plugin.service.is_none() => {
                let services = (0..self.services.len()).map(Some).chain([None]);
                services.map(Apart::Service).collect()
            }
            () => vec![Apart::Nothing],
        }
    }

    /// True if Kong does not know a route because its service is off.
    fn is_off(&self, route: usize) -> bool {
        let service = self.services_of.get(route).copied().flatten().and_then(|of| self.services.get(of));
        service.is_some_and(|(_, service)| is_false(service, "enabled"))
    }

    /// The name of the service or the route that the requests of a plugin have; none if they have no service.
    fn counted(&self, plugin: &Plugin<'_>, apart: Apart) -> Option<&'a str> {
        let of_route = plugin.route.and_then(|number| self.services_of.get(number).copied());
        let service = match apart {
            Apart::Route(number) => {
                return self.routes.get(number).and_then(|(_, node)| name_in(node)).or(Some("route"));
            }
            Apart::Service(of) => Some(of),
            Apart::Nothing => None,
        };
        let Some(number) = plugin.service.map(Some).or(service).or(of_route) else { return Some("service") };
        Some(self.services.get(number?).and_then(|(_, node)| name_in(node)).unwrap_or("service"))
    }

    /// The plugins that run for the requests of a route: of those of one kind, Kong runs the one that is most particular.
    fn running(&self, route: usize) -> Vec<usize> {
        let all = || self.plugins.iter().enumerate().filter(|(_, of)| self.applies(of, route));
        let of_kind =
            |kind: &str| all().filter(|(_, of)| of.name() == kind).min_by_key(|(_, of)| of.particular());
        KINDS.into_iter().filter_map(of_kind).map(|(number, _)| number).collect()
    }

    /// True if a plugin runs for the requests of a route, which may have to be among those that it counts apart.
    fn runs(&self, plugin: usize, route: usize, apart: Apart) -> bool {
        let is_it = match apart {
            Apart::Nothing => true,
            Apart::Service(of) => of == self.services_of.get(route).copied().flatten(),
            Apart::Route(of) => of == route,
        };
        is_it && self.running.get(route).is_some_and(|running| running.contains(&plugin))
    }

    /// The requests of the routes for whose numbers `runs` is true. Where Kong does not say which of several routes has a request, these have it
    /// if `are_first`, otherwise the others.
    fn requests(&self, entries: &[Entry], runs: &dyn Fn(usize) -> bool, are_first: bool) -> Test {
        if self.routes.is_empty() {
            return Test::Always;
        }
        if entries.iter().all(|entry| runs(entry.route)) {
            // Kong answers 404 to requests that have no route.
            return Test::any_of(entries.iter().map(|entry| entry.requests.clone()));
        }
        // Only those that may have the same requests: each of many routes may have a plugin of its own.
        let own: Vec<&Entry> = entries.iter().filter(|entry| runs(entry.route)).collect();
        let is_near = |entry: &&Entry| {
            // Where it is not known that a route has a request, another's limits stay.
            runs(entry.route)
                || !entry.is_partial && own.iter().any(|own| own.requests.overlaps(&entry.requests))
        };
        let mut known: Vec<&Entry> = entries.iter().filter(is_near).collect();
        known.sort_by_cached_key(|entry| entry.order(runs(entry.route) != are_first));
        let class = |entry: &&Entry| {
            self.routes.get(entry.route).map(|(_, node)| node.text_of(super::CLASS)).unwrap_or_default()
        };
        // Each class has a router of its own.
        let mut classes: Vec<&str> = known.iter().map(class).filter(|class| !class.is_empty()).collect();
        classes.sort_unstable();
        classes.dedup();
        let of_class = |own: Option<&str>| {
            let is_own = |entry: &&&Entry| own.is_none_or(|own| ["", own].contains(&class(entry)));
            let known = known.iter().filter(is_own);
            Test::first_match(known.map(|entry| (&entry.requests, runs(entry.route))))
        };
        classes.into_iter().map(Some).map(of_class).reduce(Test::or).unwrap_or_else(|| of_class(None))
    }

    /// The same, without the preflights that Kong answers before it counts.
    fn counted_requests(&self, entries: &[Entry], runs: &dyn Fn(usize) -> bool) -> Test {
        let all = self.requests(entries, runs, true);
        if self.routes.is_empty() {
            return all;
        }
        let mut run = (0..self.routes.len()).filter(|route| runs(*route));
        let answered = if run.all(|route| self.answers_preflights(route)) {
            all.clone()
        } else {
            // A route that has only some of its requests lets others answer.
            let is_partial =
                |route: usize| entries.iter().any(|entry| entry.route == route && entry.is_partial);
            let answers = |route: usize| runs(route) && self.answers_preflights(route) && !is_partial(route);
            self.requests(entries, &answers, false)
        };
        let preflight = Test::Method(vec![String::from("OPTIONS")])
            .and(limits::present("origin"))
            .and(limits::present("access-control-request-method"));
        super::without(all, answered, preflight)
    }

    fn answers_preflights(&self, route: usize) -> bool {
        let is_it = |of: &&Plugin<'_>| of.name() == "cors" && self.applies(of, route);
        let cors = self.before.iter().filter(is_it).min_by_key(|of| of.particular());
        // With a condition, it may let preflights pass, too.
        let is_continued = |of: &Plugin<'_>| {
            !of.node.text_of("condition").is_empty()
                || of.node.get("config").is_some_and(|config| config.is_true("preflight_continue"))
        };
        cors.is_some_and(|cors| !is_continued(cors))
    }

    /// Notes the plugins that answer requests before Kong counts them, where something limits.
    fn note_before(&self, notes: &mut Notes) {
        let is_limited = |route: &usize| {
            !self.is_off(*route) && self.plugins.iter().any(|plugin| self.applies(plugin, *route))
        };
        let limited: Vec<usize> = (0..self.routes.len()).filter(is_limited).collect();
        let refuses = |auth: &&Plugin<'_>| is_needed(auth) && auth.name() != "session";
        let refuse = self.authentication.iter().filter(refuses);
        for plugin in self.before.iter().chain(refuse) {
            let name = plugin.name();
            let mut routes = limited.iter().filter(|route| self.applies(plugin, **route));
            let (why, instead) = if name == "cors" {
                (
                    "Kong answers preflights before it limits, so the policies do not count them",
                    "Let Envoy's filter cors stand before weir; else such requests reach the upstream without a limit",
                )
            } else {
                (
                    "Kong does not count the requests that it refuses, and weir counts them",
                    "Let a filter of Envoy that refuses them stand before weir",
                )
            };
            if routes.any(|route| name != "cors" || self.answers_preflights(*route)) {
                plugin.note(why, instead, notes);
            }
        }
    }

    /// Returns the name for a policy: the object that the plugin is for, or what it counts apart.
    fn name(&self, plugin: &Plugin<'_>, apart: Apart) -> String {
        let (of_route, of_service) = match apart {
            Apart::Route(number) => (Some(number), None),
            Apart::Service(number) => (None, number),
            Apart::Nothing => (None, None),
        };
        let route = plugin.route.or(of_route).and_then(|number| self.routes.get(number));
        let service = plugin.service.or(of_service).and_then(|number| self.services.get(number));
        let Some((_, node)) = route.or(service) else { return String::from("all") };
        name_in(node).unwrap_or("route").to_owned()
    }
}

impl<'a> Plugin<'a> {
    fn name(&self) -> &'a str {
        self.node.text_of("name")
    }

    fn note(&self, why: impl Into<String>, instead: &str, notes: &mut Notes) {
        notes.at(self.file, self.node.place.line, self.name(), why, instead);
    }

    /// The most particular is the least.
    const fn particular(&self) -> (bool, bool) {
        (self.route.is_none(), self.service.is_none())
    }

    /// Returns the places in which a plugin that finds consumers looks for a credential, unless told otherwise in these.
    fn places(&self, headers: &[&'static str], query: &[&'static str], notes: &mut Notes) -> Places {
        let mut found = Places::default();
        found.finds_consumers = true;
        let config = self.node.get("config").unwrap_or(self.node);
        let is_on = |field: &str| !is_false(config, field);
        let of = |field, fields: &[&str], defaults: &[&'static str]| {
            // A name, or a list of them, which may be empty.
            let own = fields.iter().filter_map(|name| config.get(name)).find_map(|of| match &of.content {
                Content::List(items) => Some(items.iter().filter_map(Node::text).collect::<Vec<_>>()),
                _ => of.text().map(|name| vec![name]),
            });
            if is_on(field) { own.unwrap_or_else(|| defaults.to_vec()) } else { Vec::new() }
        };
        let own =
            ["key_names", "header_names", "auth_header_name", "certificate_header_name", "access_token_name"];
        let names = of("key_in_header", &own, headers);
        names.iter().for_each(|name| found.add(name, ""));
        let names = of("key_in_query", &["key_names", "uri_param_names", "access_token_name"], query);
        names.iter().for_each(|name| found.add("", name));
        match self.name() {
            "hmac-auth" => found.is_signed = true,
            "mtls-auth" => found.reads_certificate = true,
            _ => {}
        }
        let mut note = |field: &str, why: &str, instead: &str| {
            notes.field(self.file, config, field, why, instead);
        };
        let methods = config.list("auth_methods");
        let has_session = self.name() == "openid-connect"
            && (methods.is_empty() || methods.iter().any(|method| method.text() == Some("session")));
        if has_session || !config.list("cookie_names").is_empty() {
            let why = "weir's `credential` does not read cookies, so tokens in a cookie are not told apart";
            let field = if has_session { "auth_methods" } else { "cookie_names" };
            note(field, why, "Write `cookie` as the `subject`");
        }
        if config.is_true("key_in_body") {
            let why = "weir's `credential` does not read bodies, so keys in a body are not told apart";
            note("key_in_body", why, "Write `body_form` or `body_json` as the `subject`");
        }
        found
    }
}

/// Returns the places in which these plugins look for a credential. Of each kind Kong runs the most particular. One without `anonymous` replaces
/// the consumer of those before it; with `anonymous`, each is tried.
fn places<'a>(all: impl Iterator<Item = &'a Plugin<'a>>, notes: &mut Notes) -> Places {
    let all: Vec<_> = all.collect();
    let of_kind = |row: &(&'static str, &'static [&'static str], &'static [&'static str])| {
        let same = all.iter().copied().filter(|plugin| plugin.name() == row.0);
        Some((*row, same.min_by_key(|plugin| plugin.particular())?))
    };
    let run: Vec<_> = AUTHENTICATION.iter().filter_map(of_kind).collect();
    // A session only repeats what another plugin has found.
    let decides =
        |((name, ..), plugin): &&((&str, _, _), &Plugin<'_>)| *name != "session" && is_needed(plugin);
    let last = run.iter().rfind(decides);
    let all = last.map_or(run.as_slice(), core::slice::from_ref);
    if all.iter().all(|((name, ..), _)| BY_COOKIE.contains(name)) {
        for (_, plugin) in all {
            let why = "it knows a client by a cookie only, which weir's `credential` does not read";
            let instead = "Write `cookie` with the cookie's name as the `subject`";
            plugin.note(why, instead, notes);
        }
    }
    let Some((row, last)) = last else {
        let each: Vec<Places> =
            run.iter().map(|((_, headers, query), plugin)| plugin.places(headers, query, notes)).collect();
        let mut joined = Places::joined(&each);
        joined.is_anonymous = run.iter().any(|(_, plugin)| !is_needed(plugin));
        return joined;
    };
    for (_, other) in run.iter().filter(|((name, ..), _)| *name != row.0) {
        let why = format!(
            "Kong counts the consumer that {} names, which each request needs, so weir reads the credential of that plugin only",
            row.0
        );
        other.note(why, "", notes);
    }
    last.places(row.1, row.2, notes)
}

/// True if a plugin that finds consumers refuses other requests.
fn is_needed(plugin: &Plugin<'_>) -> bool {
    plugin.node.at(&["config", "anonymous"]).and_then(Node::text).is_none_or(str::is_empty)
}

/// The name of a service or a route.
fn name_in(node: &Node) -> Option<&str> {
    ["name", "host", "url", "id"].into_iter().map(|name| node.text_of(name)).find(|name| !name.is_empty())
}

fn note_consumer(file: usize, plugin: &Node, notes: &mut Notes) {
    let name = plugin.text_of("name");
    if KINDS.contains(&name) || OTHERS.contains(&name) {
        notes.read(plugin);
        super::note_consumer(file, plugin.place, name, notes);
    }
}

/// Returns the target of a reference: a name, or an object with a `name` or an `id`, or those of a consumer.
fn reference(node: &Node, field: &str) -> String {
    let Some(of) = node.get(field) else { return String::new() };
    let inner = ["name", "id", "username", "custom_id"].map(|name| of.text_of(name));
    let inner = inner.into_iter().find(|name| !name.is_empty()).map(str::to_owned);
    inner.or_else(|| of.text().map(str::to_owned)).unwrap_or_default()
}
