// SPDX-License-Identifier: Apache-2.0
//! The configurations in `envoy/`, which the tests run, with another limiter, store and addresses.

use super::{Failure, Rendering, Store, host_and_port};
use crate::cli::Host;
use crate::cli::document::{Node, Syntax};
use crate::cli::tree::{Map, Tree};
use crate::config::Region;
use crate::time::Micros;

/// A bootstrap of Envoy.
pub struct Shipped {
    pub tree: Tree,
    /// What is between the limiter and each Redis: the name of each part.
    way: Vec<(Kind, String)>,
}

/// The file for this host and store.
const fn text(host: Host, store: Store) -> &'static str {
    match (host, store) {
        (Host::Wasm, Store::Redis) => include_str!("../../../envoy/weir.yaml"),
        (Host::Wasm, Store::Tls) => include_str!("../../../envoy/tls.yaml"),
        (Host::Wasm, Store::Sentinel) => include_str!("../../../envoy/sentinel.yaml"),
        (Host::Wasm, Store::Cluster) => include_str!("../../../envoy/cluster.yaml"),
        (Host::Native, Store::Redis) => include_str!("../../../envoy/native.yaml"),
        (Host::Native, Store::Tls) => include_str!("../../../envoy/native-tls.yaml"),
        (Host::Native, Store::Sentinel) => include_str!("../../../envoy/native-sentinel.yaml"),
        (Host::Native, Store::Cluster) => include_str!("../../../envoy/native-cluster.yaml"),
    }
}

/// A resource of Envoy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Cluster,
    Listener,
}

impl Kind {
    const fn list(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Listener => "listeners",
        }
    }
}

/// What is between the limiter and Redis in these files. The first cluster is the one that weir's configuration names, and the last
/// one leads to Redis.
const fn way(host: Host, store: Store) -> &'static [(Kind, &'static str)] {
    match (host, store) {
        (Host::Wasm, Store::Cluster) => {
            &[(Kind::Cluster, "weir-bridge"), (Kind::Listener, "redis-proxy"), (Kind::Cluster, "redis")]
        }
        (Host::Wasm, _) => &[(Kind::Cluster, "weir-bridge")],
        (Host::Native, _) => &[(Kind::Listener, "weir-store"), (Kind::Cluster, "redis")],
    }
}

/// How long a connection takes at most, in the shipped files.
const CONNECTED: Micros = Micros::from_millis(250);

impl Shipped {
    /// The one that these arguments ask for.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    pub fn new(rendering: &Rendering<'_>) -> Result<Self, Failure> {
        let arguments = rendering.arguments;
        let (host, store) = (arguments.host, arguments.store);
        let documents = Node::parse(text(host, store), Syntax::Yaml).map_err(|(_, said)| said)?;
        let tree = documents.first().map(Tree::from).ok_or("no document")?;
        let mut shipped = Self { tree, way: Vec::new() };
        let shipped_way = way(host, store);
        let parts = shipped_way.iter().map(|(kind, name)| Some((*kind, shipped.named(*kind, name)?)));
        let parts = parts.collect::<Option<Vec<_>>>().ok_or("the shipped file has no way to Redis")?;
        for region in &rendering.config.regions.all {
            let nodes = nodes(rendering, region)?;
            for (kind, part) in leading_to(region, &nodes, &parts, rendering) {
                shipped.add(kind, part, region, rendering)?;
            }
        }
        shipped.paths(rendering);
        shipped.ends(rendering)?;
        // The last, because the limiter's texts are not to be changed.
        shipped.limiter(rendering);
        Ok(shipped)
    }

    /// What is between the limiter and each Redis.
    pub fn ways(&self) -> impl Iterator<Item = (Kind, Map)> {
        self.way.iter().filter_map(|(kind, name)| Some((*kind, self.named(*kind, name)?)))
    }

    /// Puts a part of the way to a region's Redis in its place: those of this region are in the file already.
    fn add(
        &mut self,
        kind: Kind,
        part: Map,
        region: &Region,
        rendering: &Rendering<'_>,
    ) -> Result<(), Failure> {
        let shipped = way(rendering.arguments.host, rendering.arguments.store);
        let name = Tree::from(part.clone()).text_of("name").to_owned();
        let all = self.tree.at_mut(&["static_resources", kind.list()]);
        let Some(Tree::List(all)) = all else {
            return Err(String::from("the shipped file has no resources"));
        };
        let place = self.way.len();
        let old =
            shipped.get(place).and_then(|(_, old)| all.iter().position(|one| one.text_of("name") == *old));
        let others = all.iter().enumerate().filter(|(place, _)| Some(*place) != old);
        if others.into_iter().any(|(_, one)| one.text_of("name") == name) {
            return Err(format!(
                "{}.cluster is {:?}, and another cluster is called so; allowed: another name",
                region.path, region.cluster
            ));
        }
        match old.and_then(|old| all.get_mut(old)) {
            Some(old) => *old = part.into(),
            None => all.push(part.into()),
        }
        self.way.push((kind, name));
        Ok(())
    }

    /// The limiter's HTTP filter.
    pub fn filter(&self) -> Option<Map> {
        let mut found = None;
        self.tree.clone().change(&mut |tree| {
            if tree.text_of("name") == "weir" && found.is_none() && tree.get("typed_config").is_some() {
                found = tree.map_mut().cloned();
            }
        });
        found
    }

    fn named(&self, kind: Kind, name: &str) -> Option<Map> {
        let all = self.tree.get("static_resources")?.get(kind.list())?.items();
        let found = all.iter().find(|one| one.text_of("name") == name)?;
        if let Tree::Map(map) = found { Some(map.clone()) } else { None }
    }

    fn limiter(&mut self, rendering: &Rendering<'_>) {
        let (limiter, reads_bodies) = (&rendering.limiter, rendering.reads_bodies());
        self.tree.change(&mut |tree| {
            for (name, field) in [("root_id", "configuration"), ("filter_name", "filter_config")] {
                if tree.text_of(name) != "weir.limiter" {
                    continue;
                }
                if let Some(Tree::Map(configuration)) = tree.at_mut(&[field]) {
                    configuration.replace("value", limiter.clone());
                }
                if reads_bodies
                    && name == "root_id"
                    && let Some(map) = tree.map_mut()
                {
                    map.set("allow_on_headers_stop_iteration", true);
                }
            }
        });
    }

    /// The files that Envoy reads.
    fn paths(&mut self, rendering: &Rendering<'_>) {
        let arguments = rendering.arguments;
        let code = code(rendering);
        self.tree.change(&mut |tree| {
            let path = match tree.text_of("filename") {
                "/etc/weir/weir.wasm" | "/etc/weir/libweir.so" => code.as_str(),
                "/run/secrets/redis-password" => rendering.password_file(),
                "/etc/ssl/certs/ca-certificates.crt" => arguments.ca_file.as_str(),
                _ => return,
            };
            if let Some(map) = tree.map_mut() {
                map.replace("filename", path);
            }
        });
    }

    /// Where clients come in, and what is behind.
    fn ends(&mut self, rendering: &Rendering<'_>) -> Result<(), Failure> {
        let listen = host_and_port("listen", &rendering.arguments.listen)?;
        let upstream = host_and_port("upstream", &rendering.arguments.upstream)?;
        self.tree.change(&mut |tree| {
            let (host, port) = match tree.text_of("address") {
                "0.0.0.0" => listen,
                "upstream" => upstream,
                _ => return,
            };
            if let Some(map) = tree.map_mut() {
                map.replace("address", host);
                map.replace("port_value", port);
            }
        });
        Ok(())
    }
}

/// The nodes of a region's Redis; none, if those of the shipped file do.
fn nodes<'a>(rendering: &Rendering<'a>, region: &Region) -> Result<Vec<(&'a str, u64)>, Failure> {
    let (arguments, all) = (rendering.arguments, &rendering.config.regions.all);
    let is_here = all.first().is_some_and(|here| here.name == region.name);
    let mut nodes = Vec::new();
    for node in &arguments.redis {
        let (of, address) =
            node.split_once('=').map_or((None, node.as_str()), |(of, address)| (Some(of), address));
        if let Some(of) = of
            && all.iter().all(|region| region.name != of || of.is_empty())
        {
            let has = &rendering.config.regions;
            return Err(format!("--redis: found region {of:?}, and the configuration has {has}"));
        }
        let address = host_and_port("redis", address)?;
        if of.map_or(is_here, |of| of == region.name) {
            nodes.push(address);
        }
    }
    if nodes.is_empty() && !is_here {
        let name = &region.name;
        return Err(format!("--redis: found no address of region {name}, allowed: --redis {name}=HOST:PORT"));
    }
    if matches!(arguments.store, Store::Redis | Store::Tls) && nodes.len() > 1 {
        return Err(String::from(
            "--redis: found several nodes, allowed: one, or --store sentinel or cluster. With two writable nodes each would count by itself",
        ));
    }
    Ok(nodes)
}

/// The parts of the way, as they lead to a region's Redis.
fn leading_to(
    region: &Region,
    nodes: &[(&str, u64)],
    parts: &[(Kind, Map)],
    rendering: &Rendering<'_>,
) -> Vec<(Kind, Map)> {
    let is_here = rendering.config.regions.all.first().is_some_and(|here| here.name == region.name);
    let first = parts.iter().position(|(kind, _)| *kind == Kind::Cluster);
    let name_of = |part: &Map| Tree::from(part.clone()).text_of("name").to_owned();
    // What has one name here needs another in each region.
    let renamed = |name: &str| if is_here { name.to_owned() } else { format!("{name}-{}", region.name) };
    let names: Vec<(String, String)> = parts
        .iter()
        .enumerate()
        .map(|(place, (kind, part))| {
            let name = name_of(part);
            let new = match kind {
                _ if Some(place) == first => region.cluster.clone(),
                Kind::Cluster if !is_here => format!("{}-nodes", region.cluster),
                Kind::Cluster | Kind::Listener => renamed(&name),
            };
            (name, new)
        })
        .collect();
    let of_name = |name: &str| names.iter().find(|(old, _)| old == name).map(|(_, new)| new.as_str());
    let mut led = Vec::new();
    for (place, (kind, part)) in parts.iter().enumerate() {
        let mut part = Tree::from(part.clone());
        let new = names.get(place).map(|(_, new)| new.as_str()).unwrap_or_default();
        part.map_mut().into_iter().for_each(|part| part.replace("name", new));
        part.change(&mut |tree| {
            for field in ["cluster", "cluster_name", "server_listener_name"] {
                if let Some(new) = of_name(tree.text_of(field))
                    && let Some(map) = tree.map_mut()
                {
                    map.replace(field, new);
                }
            }
            for field in ["address", "path", "stat_prefix"] {
                let text = tree.text_of(field);
                if text.starts_with(if field == "stat_prefix" { "weir" } else { "@weir" }) {
                    let new = renamed(text);
                    tree.map_mut().into_iter().for_each(|map| map.replace(field, new.as_str()));
                }
            }
            // Envoy gives up a command before weir gives up its batch.
            if tree.get("op_timeout").is_some()
                && let Some(map) = tree.map_mut()
            {
                map.replace("op_timeout", seconds(Micros(region.deadline.0 / 5 * 4)));
            }
        });
        if place.saturating_add(1) == parts.len() {
            // A connection takes a trip, and a TLS handshake up to two more.
            let connected = Micros(region.deadline.0.saturating_mul(3)).max(CONNECTED);
            if !is_here {
                let connected = seconds(connected);
                part.map_mut()
                    .into_iter()
                    .for_each(|part| part.replace("connect_timeout", connected.as_str()));
            }
            lead(&mut part, nodes);
        }
        if let Tree::Map(part) = part {
            led.push((*kind, part));
        }
    }
    led
}

/// Lets a cluster lead to these nodes.
fn lead(cluster: &mut Tree, nodes: &[(&str, u64)]) {
    let Some((server_name, _)) = nodes.first() else { return };
    let endpoints: Vec<Tree> = nodes.iter().map(|(host, port)| endpoint(host, *port).into()).collect();
    let is_address = server_name.parse::<std::net::IpAddr>().is_ok();
    if let Some(Tree::List(localities)) = cluster.at_mut(&["load_assignment", "endpoints"]) {
        *localities = vec![Map::from([("lb_endpoints", endpoints.into())]).into()];
    }
    cluster.change(&mut |tree| {
        if tree.get("sni").is_some()
            && let Some(map) = tree.map_mut()
        {
            if is_address { drop(map.remove("sni")) } else { map.replace("sni", *server_name) }
        }
        if tree.get("san_type").is_some()
            && let Some(map) = tree.map_mut()
        {
            map.replace("san_type", if is_address { "IP_ADDRESS" } else { "DNS" });
            map.replace("matcher", Map::from([("exact", (*server_name).into())]));
        }
    });
}

/// A duration, as Envoy reads it.
fn seconds(span: Micros) -> String {
    let text = format!("{}.{:06}", span.0 / 1_000_000, span.0 % 1_000_000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Where weir's code is, in Envoy's file system.
pub fn code(rendering: &Rendering<'_>) -> String {
    let default = match rendering.arguments.host {
        Host::Wasm => "/etc/weir/weir.wasm",
        Host::Native => "/etc/weir/libweir.so",
    };
    rendering.arguments.code.clone().unwrap_or_else(|| default.to_owned())
}

fn endpoint(host: &str, port: u64) -> Map {
    let socket = Map::from([("address", host.into()), ("port_value", port.into())]);
    let address = Map::from([("socket_address", socket.into())]);
    Map::from([("endpoint", Map::from([("address", address.into())]).into())])
}
