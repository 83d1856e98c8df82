// SPDX-License-Identifier: Apache-2.0
//! The connection from the limiter to the Redis of each region: names, addresses and times of what is between them.

use super::{Failure, Rendering, Store, host_and_port};
use crate::Host;
use crate::tree::{Map, Tree};
use weir::config::Region;
use weir::time::Micros;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Cluster,
    Listener,
}

impl Kind {
    /// The name of the list that it is in.
    pub const fn list(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Listener => "listeners",
        }
    }

    pub const fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
        }
    }
}

/// The parts between the limiter and Redis in these files. The first cluster is the one that weir's configuration names, and the last
/// one leads to Redis.
pub const fn between(host: Host, store: Store) -> &'static [(Kind, &'static str)] {
    match (host, store) {
        (Host::Wasm, Store::Cluster) => {
            &[(Kind::Cluster, "weir-bridge"), (Kind::Listener, "redis-proxy"), (Kind::Cluster, "redis")]
        }
        (Host::Wasm, _) => &[(Kind::Cluster, "weir-bridge")],
        (Host::Native, _) => &[(Kind::Listener, "weir-store"), (Kind::Cluster, "redis")],
    }
}

/// The time-out of a connection in the shipped files.
const CONNECTED: Micros = Micros::from_millis(250);

/// The nodes of a region's Redis; none, if those of the shipped file do.
pub fn nodes<'a>(rendering: &Rendering<'a>, region: &Region) -> Result<Vec<(&'a str, u64)>, Failure> {
    let (arguments, all) = (rendering.arguments, &rendering.config.regions.all);
    let is_here = is_here(rendering, region);
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

/// True if the proxies are in this region.
fn is_here(rendering: &Rendering<'_>, region: &Region) -> bool {
    rendering.config.regions.all.first().is_some_and(|here| here.name == region.name)
}

/// The parts between the limiter and a region's Redis: those of a shipped file with other names, addresses and times.
pub fn leading_to(
    region: &Region,
    nodes: &[(&str, u64)],
    parts: &[(Kind, Map)],
    rendering: &Rendering<'_>,
) -> Vec<(Kind, Map)> {
    let is_here = is_here(rendering, region);
    let names = Names::of(region, parts, is_here);
    let mut led: Vec<(Kind, Tree)> =
        parts.iter().map(|(kind, part)| (*kind, names.given(part, region))).collect();
    if let Some((_, last)) = led.last_mut() {
        if let (Tree::Map(last), false) = (&mut *last, is_here) {
            // A connection takes a trip, and a TLS handshake up to two more.
            let connected = Micros(region.deadline.0.saturating_mul(3)).max(CONNECTED);
            last.replace("connect_timeout", seconds(connected));
        }
        lead(last, nodes);
    }
    let map = |(kind, part)| if let Tree::Map(part) = part { Some((kind, part)) } else { None };
    led.into_iter().filter_map(map).collect()
}

/// The names of these parts: the shipped one, and the region's.
struct Names {
    all: Vec<(String, String)>,
    ending: String,
}

impl Names {
    fn of(region: &Region, parts: &[(Kind, Map)], is_here: bool) -> Self {
        let first = parts.iter().position(|(kind, _)| *kind == Kind::Cluster);
        let ending = if is_here { String::new() } else { format!("-{}", region.name) };
        let name = |(place, (kind, part)): (usize, &(Kind, Map))| {
            let old = part.text_of("name").to_owned();
            let new = match kind {
                Kind::Cluster if Some(place) == first => region.cluster.clone(),
                // A name such as `redis-bom` is likely to be that of the first cluster.
                Kind::Cluster if !is_here => format!("{}-nodes", region.cluster),
                Kind::Cluster | Kind::Listener => format!("{old}{ending}"),
            };
            (old, new)
        };
        Self { all: parts.iter().enumerate().map(name).collect(), ending }
    }

    fn instead_of(&self, old: &str) -> Option<&str> {
        self.all.iter().find(|(name, _)| name == old).map(|(_, new)| new.as_str())
    }

    /// A part with the region's names and times.
    fn given(&self, part: &Map, region: &Region) -> Tree {
        let mut part = part.clone();
        if let Some(new) = self.instead_of(part.text_of("name")) {
            part.replace("name", new);
        }
        let mut part = Tree::from(part);
        part.change(&mut |tree| {
            let Some(map) = tree.map_mut() else { return };
            for field in ["cluster", "cluster_name", "server_listener_name"] {
                if let Some(new) = self.instead_of(map.text_of(field)) {
                    map.replace(field, new);
                }
            }
            for (field, beginning) in [("address", "@weir"), ("path", "@weir"), ("stat_prefix", "weir")] {
                let old = map.text_of(field);
                if old.starts_with(beginning) {
                    let new = format!("{old}{}", self.ending);
                    map.replace(field, new);
                }
            }
            // Envoy abandons a command before weir abandons its batch.
            if map.get("op_timeout").is_some() {
                map.replace("op_timeout", seconds(Micros(region.deadline.0 / 5 * 4)));
            }
        });
        part
    }
}

/// Lets a cluster lead to these nodes.
fn lead(cluster: &mut Tree, nodes: &[(&str, u64)]) {
    let Some((server_name, _)) = nodes.first() else { return };
    let endpoint = |(host, port): &(&str, u64)| {
        let yaml = "{endpoint: {address: {socket_address: {address: $host, port_value: $port}}}}";
        Tree::template(yaml, &[("host", (*host).into()), ("port", (*port).into())])
    };
    let endpoints: Vec<Tree> = nodes.iter().map(endpoint).collect();
    let address = server_name.parse::<std::net::IpAddr>().ok();
    if let Some(Tree::List(localities)) = cluster.at_mut(&["load_assignment", "endpoints"]) {
        *localities = vec![Map::from([("lb_endpoints", endpoints.into())]).into()];
    }
    cluster.change(&mut |tree| {
        let Some(map) = tree.map_mut() else { return };
        if map.get("sni").is_some() {
            if address.is_some() { drop(map.remove("sni")) } else { map.replace("sni", *server_name) }
        }
        if map.get("san_type").is_some() {
            map.replace("san_type", if address.is_some() { "IP_ADDRESS" } else { "DNS" });
            // Envoy compares texts, and writes the address of a certificate in its short form.
            let exact = address.map_or_else(|| (*server_name).to_owned(), |address| address.to_string());
            map.replace("matcher", Map::from([("exact", exact.into())]));
        }
    });
}

/// A duration, as Envoy reads it.
fn seconds(span: Micros) -> String {
    let text = format!("{}.{:06}", span.0 / 1_000_000, span.0 % 1_000_000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}
