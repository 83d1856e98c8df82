// SPDX-License-Identifier: Apache-2.0
//! `weir import apisix`: the plugins limit-count, limit-req and limit-conn of APISIX's files, and of its objects of Kubernetes, as policies.
//!
//! | file | what is inside |
//! |---|---|
//! | `kubernetes.rs` | APISIX's own form of ApisixRoutes and what they name |
//! | `routes.rs` | which route a request has |
//! | `limits.rs` | what a plugin limits, and by what |

mod kubernetes;
mod limits;
mod routes;

use std::path::PathBuf;

use clap::Args;

use super::credential::Places;
use super::nginx::name_of;
use super::notes::{Notes, is_limit};
use super::test::Test;
use super::{CLASS, Imported, Output, are_apart};
use crate::document::{Node, Place};
use crate::source::Source as File;
use crate::tree::{Map, Tree};
use limits::Writer;
use routes::Entry;
use weir::config::nearest;

/// The files to import.
#[derive(Args)]
pub struct Arguments {
    /// `apisix.yaml` of the standalone mode, what `adc dump` prints, or what the Admin API answers; or the manifests that APISIX's controller
    /// reads. Several files may name each other's objects.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// The plugins that are imported.
const KINDS: [&str; 3] = ["limit-count", "limit-req", "limit-conn"];

/// Plugins that limit, too.
const OTHERS: [&str; 5] =
    ["ai-rate-limiting", "graphql-limit-count", "workflow", "api-breaker", "traffic-split"];

/// Plugins that find consumers, in the order in which they run, with the header and the query parameter in which they look for a credential
/// unless told otherwise.
const AUTHENTICATION: [(&str, &str, &str); 8] = [
    ("multi-auth", "", ""),
    ("wolf-rbac", "authorization", "rbac_token"),
    ("ldap-auth-advanced", "authorization", ""),
    ("ldap-auth", "authorization", ""),
    ("hmac-auth", "authorization", ""),
    ("basic-auth", "authorization", ""),
    ("jwt-auth", "authorization", "jwt"),
    ("key-auth", "apikey", "apikey"),
];

/// Plugins that answer requests before those that limit: `cors` answers OPTIONS, and most of the others what they refuse.
const BEFORE: &str = "cors uri-blocker authz-casbin dingtalk-auth fault-injection feishu-auth jwe-decrypt openid-connect redirect \
    request-validation saml-auth";

/// The same, but APISIX runs those of routes in its access phase, and so after the limits of global rules.
const IN_ACCESS: &str = "acl ai-aliyun-content-moderation ai-aws-content-moderation ai-cache ai-lakera-guard ai-prompt-guard authz-casdoor \
    authz-keycloak cas-auth chaitin-waf consumer-restriction csrf forward-auth graphql-proxy-cache ip-restriction mocking opa proxy-cache \
    referer-restriction ua-restriction";

/// The fields that are read of routes and services, beside their plugins, and of plugins that find consumers.
const READ: &str = "uri uris host hosts remote_addr remote_addrs method methods priority status";
const READ_OF_AUTHENTICATION: &str = "header query cookie _meta";

/// A route, and what it takes from elsewhere.
struct Route<'a> {
    file: usize,
    node: &'a Node,
    /// With the number of its file.
    service: Option<(usize, &'a Node)>,
}

/// A plugin with its name, and the object that has it.
#[derive(Clone, Copy)]
struct Plugin<'a> {
    file: usize,
    name: &'a str,
    place: Place,
    config: &'a Node,
    owner: &'a Node,
    is_off: bool,
}

/// A plugin of any kind that runs: its file, its name and place, and its configuration.
type Running<'a> = (usize, &'a str, Place, &'a Node);

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let files = super::read(&arguments.files, 0, &mut notes)?;
    let made = kubernetes::standalone(&files, &mut notes);
    let dumped = dumped(&files, &mut notes);
    let mut roots = super::roots_of(&files, &made);
    roots.extend(dumped.iter().enumerate());
    super::note_classes(&made, &mut notes);
    if roots.iter().fold(false, |is_found, (file, root)| note_templates(*file, root, &mut notes) || is_found)
    {
        let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        return Err(super::nothing(&names, &notes, WHAT));
    }
    let routes = all_routes(&roots, &mut notes);
    let run: Vec<Vec<Plugin<'_>>> = routes.iter().map(|route| run_by(route, &roots, &mut notes)).collect();
    let entries = routes::entries(&routes, &run, &mut notes);
    let global = of_all(&roots, &mut notes);
    // Where a plugin looks for a credential matters where another one counts by it.
    let counts = |plugins: &[Plugin<'_>]| plugins.iter().any(|plugin| limits::is_by_consumer(plugin.config));
    let mut places = |route: Option<&Route<'_>>, run: &[Plugin<'_>]| {
        if counts(&global) || counts(run) { places(route, &roots, &mut notes) } else { Places::default() }
    };
    let common = places(None, &[]);
    let places: Vec<Places> = routes.iter().zip(&run).map(|(route, run)| places(Some(route), run)).collect();
    let (none, nowhere) = (Places::default(), vec![Places::default(); places.len()]);
    let answers: Vec<bool> = routes.iter().map(|route| answers_options(Some(route), &roots)).collect();
    let answers = |route: Option<usize>| match route {
        Some(route) => answers.get(route).copied().unwrap_or_default(),
        None => answers_options(None, &roots),
    };
    let is_near = |route: usize, plugin: &Plugin<'_>| {
        routes.get(route).is_some_and(|route| !are_apart(route.node, plugin.owner))
    };
    let apart = |plugin: &Plugin<'_>, runs: &dyn Fn(usize) -> bool, rest: Option<&Places>| {
        // Another class has a router of its own.
        let is_own = |entry: &&Entry| plugin.owner.text_of(CLASS).is_empty() || is_near(entry.route, plugin);
        let (mut entries, others): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(is_own);
        entries.extend(others);
        if limits::is_by_consumer(plugin.config) {
            apart(&entries, (&places, rest), runs, &answers)
        } else {
            apart(&entries, (&nowhere, rest.map(|_| &none)), runs, &answers)
        }
    };
    let mut found: Vec<(Plugin<'_>, Vec<(Test, Places)>)> = Vec::new();
    let options = Test::Method(vec![String::from("OPTIONS")]);
    // Global rules run beside the plugins of routes.
    for plugin in &global {
        let groups = apart(plugin, &|route| is_near(route, plugin), Some(&common));
        if !common.finds_consumers && groups.iter().any(|(_, places)| places.finds_consumers) {
            let why =
                "APISIX before 3.17 runs it before the authentication of routes, and so counts addresses";
            notes.field(plugin.file, plugin.config, "key", why, "For such a version, write `client_address`");
        }
        let is_answered = |entry: &Entry| {
            !entry.is_partial && answers(Some(entry.route)) && entry.requests.overlaps(&options)
        };
        if !answers(None) && entries.iter().any(is_answered) {
            let why = "APISIX before 3.17 runs it before the `cors` of routes, and so counts OPTIONS";
            let instead =
                "For such a version, remove the whole `not` around `method: [OPTIONS]` from its `match`";
            notes.at(plugin.file, plugin.place.line, plugin.name, why, instead);
        }
        found.push((*plugin, groups));
    }
    for (route, run) in routes.iter().zip(&run).filter(|(_, run)| !global.is_empty() || !run.is_empty()) {
        note_before(route, !run.is_empty(), &roots, &mut notes);
    }
    for (file, root) in &roots {
        note_metadata(*file, root, &mut notes);
        for owner in root.list("consumers").iter().chain(root.list("consumer_groups")) {
            note_consumer(*file, owner, &mut notes);
        }
    }
    // Each plugin of a route, a plugin configuration or a service, once, with the routes that run it.
    let mut seen: Vec<&Node> = Vec::new();
    for plugin in run.iter().flatten() {
        if seen.iter().any(|other| core::ptr::eq(*other, plugin.config)) {
            continue;
        }
        seen.push(plugin.config);
        let runs = |route: usize| {
            run.get(route).is_some_and(|of| of.iter().any(|other| core::ptr::eq(other.config, plugin.config)))
        };
        let is_shared = (0..run.len()).filter(|route| runs(*route)).nth(1).is_some();
        if is_shared && plugin.config.text_of("group").is_empty() {
            let why = "older versions of APISIX count each route that runs it by itself; newer ones and weir count these routes together";
            let instead = "Write a policy for each route if your version counts so";
            notes.at(plugin.file, plugin.place.line, plugin.name, why, instead);
        }
        found.push((*plugin, apart(plugin, &runs, None)));
    }
    for (file, root) in &roots {
        for owner in root.list("services").iter().chain(root.list("plugin_configs")) {
            for plugin in plugins(*file, owner, &mut notes) {
                // Rules of ApisixRoutes have copies of it.
                let is_it = |other: &Plugin<'_>| (other.file, other.place) == (plugin.file, plugin.place);
                if !plugin.is_off && !run.iter().flatten().any(is_it) {
                    let why = "no route runs it: none uses it, or each has a plugin of its own";
                    notes.at(*file, plugin.place.line, plugin.name, why, "");
                }
            }
        }
    }
    notes.rest(&files);
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut writer = Writer::new(&mut notes);
    for (number, (plugin, groups)) in found.iter().enumerate() {
        let scope = name(plugin.owner);
        let file = names.get(plugin.file).map(String::as_str).unwrap_or_default();
        let comment = format!("{file}:{}: {} of {scope}", plugin.place.line, plugin.name);
        for (requests, places) in groups {
            writer.add((number, plugin), (&name_of(&scope), &comment), (requests, places));
        }
    }
    let policies: Vec<Tree> = writer.finish().into_iter().map(Tree::from).collect();
    if policies.is_empty() {
        return Err(super::nothing(&names, &notes, WHAT));
    }
    Ok(Imported { configuration: Map::from([("policies", policies.into())]), files: names, notes })
}

const WHAT: &str = "plugin limit-count, limit-req or limit-conn";

/// The lists in a configuration, by which keys in an answer of the Admin API begin.
const LISTS: [&str; 6] =
    ["routes", "services", "plugin_configs", "global_rules", "consumers", "consumer_groups"];

/// A configuration for each file of what the Admin API answers: an object, or a list of them, each with its key; or a route.
fn dumped(files: &[File], notes: &mut Notes) -> Vec<Node> {
    let mut made = Vec::new();
    for (file, document) in super::documents(files) {
        // APISIX 2 has the objects in `node`.
        let document = document.get("node").unwrap_or(document);
        let own = core::slice::from_ref(document);
        let lists = [document.list("list"), document.list("nodes"), document.items(), own];
        let entries = lists.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
        for entry in entries {
            let value = entry.get("value").unwrap_or(entry);
            let key = entry.text_of("key").trim_start_matches("/apisix/");
            let is_route = value.get("uri").or(value.get("uris")).is_some();
            let list = LISTS.iter().find(|list| key.split('/').next() == Some(**list));
            if let Some(list) = list.or(LISTS.first().filter(|_| is_route)) {
                notes.read(value);
                made.push((file, *list, value.clone()));
            }
        }
    }
    super::roots(&made, &LISTS, files.len())
}

/// Notes the templates in what is read of a configuration, unless it is off, and returns whether the import needs the value of one.
fn note_templates(file: usize, root: &Node, notes: &mut Notes) -> bool {
    const RENDER: &str = "Write its value into a copy of the file";
    let mut note = |node: &Node, fields: &str| super::note_templates(file, node, fields, RENDER, notes);
    let mut is_found = false;
    let listed = |list: &str| root.list(list).iter();
    let of_services = listed("services").flat_map(|service| service.list("routes"));
    let owners =
        listed("routes").chain(listed("services")).chain(listed("plugin_configs")).chain(of_services);
    let owners = owners.filter(|owner| !is_off_by_status(owner));
    for owner in owners.clone() {
        is_found |= note(owner, READ);
    }
    for owner in owners.chain(global_rules(root)) {
        let plugins = owner.get("plugins").unwrap_or(owner).fields().iter();
        for (name, _, config) in plugins.filter(|(.., config)| !is_off(config)) {
            if KINDS.contains(&name.as_str()) {
                is_found |= note(config, limits::KNOWN);
            } else if AUTHENTICATION.iter().any(|(known, ..)| known == name) {
                is_found |= note(config, READ_OF_AUTHENTICATION);
            }
        }
    }
    is_found
}

/// The routes of all files: those of a service have it, and others name it.
fn all_routes<'a>(roots: &[(usize, &'a Node)], notes: &mut Notes) -> Vec<Route<'a>> {
    let mut found = Vec::new();
    for &(file, root) in roots {
        for service in root.list("services") {
            notes.unread(file, service, routes::SERVICE);
            let routes = service.list("routes").iter();
            found.extend(routes.map(|node| Route { file, node, service: Some((file, service)) }));
        }
        found.extend(root.list("routes").iter().map(|node| {
            let service = by_id(roots, "services", &node.get("service_id"));
            Route { file, node, service }
        }));
    }
    for Route { file, node, .. } in &found {
        for (field, list) in [("service_id", "services"), ("plugin_config_id", "plugin_configs")] {
            let Some((place, id)) = node.field(field) else { continue };
            if let (Some(name), None) = (id.text_or_number(), by_id(roots, list, &Some(id))) {
                let why = format!("the files have no {name:?} among the {list}");
                let instead = "If it limits, import the file that has it, too";
                notes.at(*file, place.line, field, why, instead);
            }
        }
    }
    found.retain(|Route { file, node, .. }| {
        let is_off = is_off_by_status(node);
        if is_off {
            for plugin in plugins(*file, node, notes) {
                let why = "its route is off (`status: 0`), so it is not imported";
                notes.at(*file, plugin.place.line, plugin.name, why, "");
            }
        }
        !is_off
    });
    found
}

/// The object of a list that has this id.
fn by_id<'a>(roots: &[(usize, &'a Node)], list: &str, id: &Option<&Node>) -> Option<(usize, &'a Node)> {
    let id = id.and_then(Node::text_or_number)?;
    let all = roots.iter().flat_map(|(file, root)| root.list(list).iter().map(move |node| (*file, node)));
    let is = |(_, node): &(usize, &Node)| {
        node.get("id").and_then(Node::text_or_number).as_deref() == Some(id.as_str())
    };
    all.into_iter().find(is)
}

/// Returns the objects that have plugins for a route, the most particular first.
fn owners<'a>(route: &Route<'a>, roots: &[(usize, &'a Node)]) -> impl Iterator<Item = (usize, &'a Node)> {
    let shared = by_id(roots, "plugin_configs", &route.node.get("plugin_config_id"));
    [Some((route.file, route.node)), shared, route.service].into_iter().flatten()
}

/// The plugins that a route runs: its own, then those of its plugin configuration and of its service that have other names. One that is off
/// hides others, too.
fn run_by<'a>(route: &Route<'a>, roots: &[(usize, &'a Node)], notes: &mut Notes) -> Vec<Plugin<'a>> {
    let mut run: Vec<Plugin<'a>> = Vec::new();
    for (file, owner) in owners(route, roots) {
        for plugin in plugins(file, owner, notes) {
            if run.iter().all(|other| other.name != plugin.name) {
                run.push(plugin);
            }
        }
    }
    run.retain(|plugin| !plugin.is_off);
    run
}

/// The plugins of all global rules.
fn of_all<'a>(roots: &[(usize, &'a Node)], notes: &mut Notes) -> Vec<Plugin<'a>> {
    let mut found: Vec<Plugin<'a>> = Vec::new();
    for (file, root) in roots {
        for owner in global_rules(root) {
            for plugin in plugins(*file, owner, notes).into_iter().filter(|plugin| !plugin.is_off) {
                let is_same =
                    |other: &Plugin<'_>| other.name == plugin.name && !are_apart(other.owner, plugin.owner);
                if found.iter().any(is_same) {
                    let why = "two global rules have it, and weir counts by both. Since 3.15 APISIX runs neither; its ingress controller runs one of them, \
                        or that of each GatewayProxy at its own gateway";
                    let instead = "Keep the policy that counts at your gateway";
                    notes.at(*file, plugin.place.line, plugin.name, why, instead);
                }
                found.push(plugin);
            }
        }
    }
    found
}

/// The requests of the routes that run a plugin, with the places in which authentication looks for their credential: those for which none runs
/// come last, and APISIX counts an address there. `rest` are the places for requests without a route. `answers` says for which routes OPTIONS is
/// answered before it counts.
fn apart(
    entries: &[&Entry],
    (places, rest): (&[Places], Option<&Places>),
    runs: &dyn Fn(usize) -> bool,
    answers: &dyn Fn(Option<usize>) -> bool,
) -> Vec<(Test, Places)> {
    let mut kinds: Vec<&Places> = Vec::new();
    let of_routes = places.iter().enumerate().filter(|(route, _)| runs(*route)).map(|(_, places)| places);
    for kind in of_routes.chain(rest) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.sort_by_key(|places| !places.finds_consumers);
    let part = |kind: &Places, of: &dyn Fn(Option<usize>) -> bool| {
        let is_own = |route: usize| runs(route) && places.get(route) == Some(kind) && of(Some(route));
        // Where it is not known that a route has a request, another's limits stay.
        let known = entries.iter().filter(|entry| !entry.is_partial || is_own(entry.route));
        let known = known.map(|entry| (&entry.requests, is_own(entry.route)));
        Test::first_match(known.chain(rest.map(|rest| (&Test::Always, rest == kind && of(None)))))
    };
    let is_partial = |route: usize| entries.iter().any(|entry| entry.route == route && entry.is_partial);
    let requests = |kind: &Places| {
        let all = part(kind, &|_| true);
        let is_all =
            (0..places.len()).filter(|route| runs(*route)).map(Some).chain(rest.map(|_| None)).all(answers);
        let answered = if is_all {
            all.clone()
        } else {
            part(kind, &|route| answers(route) && !route.is_some_and(is_partial))
        };
        super::without(all, answered, Test::Method(vec![String::from("OPTIONS")]))
    };
    kinds.into_iter().map(|kind| (requests(kind), kind.clone())).collect()
}

/// The plugins that run for a route, or for requests without one: those of global rules, and then its own. The most particular of a name hides
/// others.
fn running<'a>(route: Option<&Route<'a>>, roots: &[(usize, &'a Node)]) -> [Vec<Running<'a>>; 2] {
    let own: Vec<(usize, &Node)> = route.into_iter().flat_map(|route| owners(route, roots)).collect();
    let is_near = |owner: &&Node| route.is_none_or(|route| !are_apart(route.node, owner));
    let global: Vec<(usize, &Node)> = roots
        .iter()
        .flat_map(|(file, root)| {
            global_rules(root).into_iter().filter(is_near).map(move |owner| (*file, owner))
        })
        .collect();
    [global, own].map(|owners| {
        let mut found: Vec<Running<'a>> = Vec::new();
        for (file, owner) in owners {
            // Of two of one name in an object, the last counts.
            for (name, place, config) in owner.get("plugins").unwrap_or(owner).fields().iter().rev() {
                if found.iter().all(|(_, other, ..)| other != name) {
                    found.push((file, name, *place, config));
                }
            }
        }
        found.retain(|(.., config)| !is_off(config));
        found
    })
}

/// True if `cors` answers OPTIONS of a route before anything counts it.
fn answers_options(route: Option<&Route<'_>>, roots: &[(usize, &Node)]) -> bool {
    let is_cors = |name: &str, config: &Node| name == "cors" && config.at(&["_meta", "filter"]).is_none();
    running(route, roots).iter().flatten().any(|(_, name, _, config)| is_cors(name, config))
}

/// Notes the plugins that answer requests of a route before APISIX counts them. `has_limits`: its limits are not those of global rules only.
fn note_before(route: &Route<'_>, has_limits: bool, roots: &[(usize, &Node)], notes: &mut Notes) {
    let [global, own] = running(Some(route), roots);
    let all = global.iter().map(|plugin| (plugin, true)).chain(own.iter().map(|plugin| (plugin, has_limits)));
    for ((file, name, place, config), is_before_access) in all {
        let answers = super::is_among(name, BEFORE)
            || AUTHENTICATION.iter().any(|(known, ..)| known == name)
            || is_before_access && super::is_among(name, IN_ACCESS);
        // A cache on a disk answers after the limits.
        let is_on_disk = name.ends_with("proxy-cache") && config.text_of("cache_strategy") != "memory";
        if !answers || is_on_disk || config.get("anonymous_consumer").is_some() {
            continue;
        }
        let (why, instead) = if *name == "cors" {
            (
                "APISIX answers OPTIONS before it limits, so the policies do not count it",
                "Let Envoy's filter cors stand before weir; else such requests reach the upstream without a limit",
            )
        } else {
            (
                "APISIX does not count the requests that it answers, and weir counts them",
                "Let a filter of Envoy that answers them stand before weir",
            )
        };
        notes.at(*file, place.line, name, why, instead);
    }
}

/// Returns the places in which the plugins of a route, and those of global rules, look for a credential. The last one that runs names the
/// consumer; those of a route run after global ones.
fn places<'a>(route: Option<&Route<'a>>, roots: &[(usize, &'a Node)], notes: &mut Notes) -> Places {
    let mut run = Vec::new();
    for all in running(route, roots) {
        let of_name = |row: &(&'static str, &'static str, &'static str)| {
            let (file, _, place, config) = *all.iter().find(|(_, name, ..)| *name == row.0)?;
            Some((*row, file, place, config))
        };
        run.extend(AUTHENTICATION.iter().filter_map(of_name));
    }
    let mut found = Places::default();
    let Some(((name, header, parameter), file, place, config)) = run.pop() else { return found };
    let mut note = |file, place: Place, name: &str, why: &str, instead: &str| {
        notes.at(file, place.line, name, why, instead);
    };
    for ((other, ..), file, place, _) in run.iter().filter(|((other, ..), ..)| *other != name) {
        let why = format!(
            "APISIX counts the consumer that {name} names, which each request needs, so weir reads the credential of that plugin only"
        );
        note(*file, *place, other, &why, "");
    }
    found.finds_consumers = true;
    let said = |field: &str, default: &str| match config.text_of(field) {
        "" => default.to_owned(),
        said => said.to_owned(),
    };
    match name {
        "multi-auth" => {
            let why = "where its plugins look for a credential is not read";
            note(file, place, name, why, "Name the places in the `credential` of the policies");
        }
        "hmac-auth" => found.is_signed = true,
        "ldap-auth-advanced" => found.add("proxy-authorization", ""),
        "wolf-rbac" => found.add("x-rbac-token", ""),
        _ => {}
    }
    // These read a cookie unless told otherwise, too.
    let reads_cookie = config
        .get("cookie")
        .map_or_else(|| ["jwt-auth", "wolf-rbac"].contains(&name), |cookie| cookie.text() != Some(""));
    if reads_cookie {
        let why = "weir's `credential` does not read cookies, so tokens in a cookie are not told apart";
        note(file, place, name, why, "Write `cookie` as the `subject`");
    }
    found.add(&said("header", header), &said("query", parameter));
    found
}

/// The global rules of a file: a list of them, or an object of plugins.
fn global_rules(root: &Node) -> Vec<&Node> {
    let listed = root.list("global_rules");
    if listed.is_empty() { root.get("global_rules").into_iter().collect() } else { listed.iter().collect() }
}

/// True if a route is off.
fn is_off_by_status(route: &Node) -> bool {
    matches!(route.get("status").and_then(number), Some(0))
}

/// True if a plugin is off.
fn is_off(config: &Node) -> bool {
    config.at(&["_meta", "disable"]).is_some_and(|flag| flag.text_or_number().as_deref() == Some("true"))
}

/// The plugins of an object that limit.
fn plugins<'a>(file: usize, owner: &'a Node, notes: &mut Notes) -> Vec<Plugin<'a>> {
    let fields = owner.get("plugins").unwrap_or(owner).fields();
    let mut found = Vec::new();
    for (number, (name, place, config)) in fields.iter().enumerate() {
        let is_off = is_off(config);
        let mut later = fields.iter().skip(number.saturating_add(1));
        if KINDS.contains(&name.as_str()) && later.any(|(other, ..)| other == name) {
            notes.read(config);
            let why = "the object has it twice, and APISIX and weir read the last one";
            notes.at(file, place.line, name, why, "Remove one");
            continue;
        }
        // A name that has a limit's name in it is in the notes on the rest.
        let meant = nearest(name, KINDS.into_iter()).filter(|_| !is_limit(name));
        if let Some(meant) = meant {
            let why = "weir does not know this plugin, so it is not imported";
            let instead = format!("Correct its name (did you mean {meant:?}?)");
            notes.at(file, place.line, name, why, instead);
        }
        if OTHERS.contains(&name.as_str()) {
            note_other(file, *place, name, notes);
            notes.read(config);
        }
        if name == "real-ip" && !is_off {
            let why = "it changes the address that counts, and is not imported";
            let instead = "Write `client_address: {header, trusted_networks}`";
            notes.at(file, place.line, name, why, instead);
        }
        if KINDS.contains(&name.as_str()) {
            notes.read(config);
            if is_off {
                let why = "it is off (`_meta.disable`), so it is not imported";
                notes.at(file, place.line, name, why, "");
            }
            found.push(Plugin { file, name, place: *place, config, owner, is_off });
        }
    }
    found
}

/// Notes names of headers: by the name of a plugin in an object, or in a list by the field `id`.
fn note_metadata(file: usize, root: &Node, notes: &mut Notes) {
    let Some(metadata) = root.get("plugin_metadata") else { return };
    let listed = metadata.items().iter().map(|item| (item.text_of("id"), item.place, item));
    let named = metadata.fields().iter().map(|(name, place, value)| (name.as_str(), *place, value));
    for (name, place, value) in listed.chain(named).filter(|(name, ..)| KINDS.contains(name)) {
        notes.read(value);
        let why = "weir's headers have its own names";
        notes.at(file, place.line, name, why, "Choose them by `response: {headers}`");
    }
}

fn note_other(file: usize, place: Place, plugin: &str, notes: &mut Notes) {
    let instead = match plugin {
        "ai-rate-limiting" => "Write a policy whose `cost` is `usage`, which counts tokens",
        _ => "Write the policy by hand",
    };
    notes.at(file, place.line, plugin, "this plugin is not imported", instead);
}

fn note_consumer(file: usize, owner: &Node, notes: &mut Notes) {
    for (name, place, config) in owner.get("plugins").map(Node::fields).unwrap_or_default() {
        if KINDS.contains(&name.as_str()) || OTHERS.contains(&name.as_str()) {
            notes.read(config);
            super::note_consumer(file, *place, name, notes);
        }
    }
}

/// Returns the name for a policy: that of the object with the plugin.
fn name(owner: &Node) -> String {
    let names =
        ["name", "id", "uri"].map(|name| owner.get(name).and_then(Node::text_or_number).unwrap_or_default());
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| String::from("all"))
}

pub use super::ratelimit::number;
