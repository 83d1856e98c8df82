// SPDX-License-Identifier: Apache-2.0
//! The configurations in `envoy/`, which the tests run, with another limiter, store and addresses.

use super::{Failure, Rendering, Store, host_and_port};
use crate::cli::Host;
use crate::cli::document::{Node, Syntax};
use crate::cli::tree::{Map, Tree};

/// A bootstrap of Envoy.
pub struct Shipped(pub Tree);

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

/// Names of other clusters in these files.
const TAKEN: [&str; 2] = ["upstream", "redis"];

impl Shipped {
    /// The one that these arguments ask for.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    pub fn new(rendering: &Rendering<'_>) -> Result<Self, Failure> {
        let arguments = rendering.arguments;
        let (host, store) = (arguments.host, arguments.store);
        let documents = Node::parse(text(host, store), Syntax::Yaml).map_err(|(_, said)| said)?;
        let mut shipped = Self(documents.first().map(Tree::from).ok_or("no document")?);
        shipped.limiter(rendering);
        let own = match host {
            Host::Wasm => "weir-bridge",
            Host::Native => "redis",
        };
        let name = rendering.config.store.cluster.as_str();
        if name != own && TAKEN.contains(&name) {
            return Err(format!(
                "store.cluster is {name:?}, and another cluster is called so; allowed: another name"
            ));
        }
        shipped.rename(own, name);
        // Behind the bridge of a Redis Cluster is another cluster.
        let leads_on = matches!((host, store), (Host::Wasm, Store::Cluster));
        shipped.store(arguments, if leads_on { "redis" } else { name })?;
        shipped.paths(rendering);
        shipped.ends(rendering)?;
        Ok(shipped)
    }

    /// The cluster of this name.
    pub fn cluster(&self, name: &str) -> Option<Map> {
        self.named("clusters", name)
    }

    /// The listener of this name.
    pub fn listener(&self, name: &str) -> Option<Map> {
        self.named("listeners", name)
    }

    /// The limiter's HTTP filter.
    pub fn filter(&self) -> Option<Map> {
        let mut found = None;
        self.0.clone().change(&mut |tree| {
            if tree.text_of("name") == "weir" && found.is_none() && tree.get("typed_config").is_some() {
                found = tree.map_mut().cloned();
            }
        });
        found
    }

    fn named(&self, kind: &str, name: &str) -> Option<Map> {
        let all = self.0.get("static_resources")?.get(kind)?.items();
        let found = all.iter().find(|one| one.text_of("name") == name)?;
        if let Tree::Map(map) = found { Some(map.clone()) } else { None }
    }

    fn limiter(&mut self, rendering: &Rendering<'_>) {
        let (limiter, reads_bodies) = (&rendering.limiter, rendering.reads_bodies());
        self.0.change(&mut |tree| {
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

    /// Gives the store's cluster another name, where it is defined and where it is used.
    fn rename(&mut self, from: &str, to: &str) {
        if let Some(Tree::List(clusters)) = self.0.at_mut(&["static_resources", "clusters"]) {
            for cluster in clusters.iter_mut().filter(|cluster| cluster.text_of("name") == from) {
                cluster.map_mut().into_iter().for_each(|cluster| cluster.replace("name", to));
            }
        }
        self.0.change(&mut |tree| {
            for name in ["cluster", "cluster_name"] {
                if tree.text_of(name) == from
                    && let Some(map) = tree.map_mut()
                {
                    map.replace(name, to);
                }
            }
        });
    }

    fn store(&mut self, arguments: &super::Arguments, name: &str) -> Result<(), Failure> {
        let is_one = matches!(arguments.store, Store::Redis | Store::Tls);
        if is_one && arguments.redis.len() > 1 {
            return Err(String::from(
                "--redis: found several nodes, allowed: one, or --store sentinel or cluster. With two writable nodes each would count by itself",
            ));
        }
        let Some(first) = arguments.redis.first() else { return Ok(()) };
        let nodes =
            arguments.redis.iter().map(|node| host_and_port("redis", node)).collect::<Result<Vec<_>, _>>()?;
        let endpoints: Vec<Tree> =
            nodes.into_iter().map(|(host, port)| endpoint(host, port).into()).collect();
        let server_name = host_and_port("redis", first)?.0.to_owned();
        let is_address = server_name.parse::<std::net::IpAddr>().is_ok();
        let Some(Tree::List(clusters)) = self.0.at_mut(&["static_resources", "clusters"]) else {
            return Ok(());
        };
        for cluster in clusters.iter_mut().filter(|cluster| cluster.text_of("name") == name) {
            if let Some(Tree::List(localities)) = cluster.at_mut(&["load_assignment", "endpoints"]) {
                *localities = vec![Map::from([("lb_endpoints", endpoints.clone().into())]).into()];
            }
            cluster.change(&mut |tree| {
                if tree.get("sni").is_some()
                    && let Some(map) = tree.map_mut()
                {
                    if is_address {
                        drop(map.remove("sni"))
                    } else {
                        map.replace("sni", server_name.as_str())
                    }
                }
                if tree.get("san_type").is_some()
                    && let Some(map) = tree.map_mut()
                {
                    map.replace("san_type", if is_address { "IP_ADDRESS" } else { "DNS" });
                    map.replace("matcher", Map::from([("exact", server_name.as_str().into())]));
                }
            });
        }
        Ok(())
    }

    /// The files that Envoy reads.
    fn paths(&mut self, rendering: &Rendering<'_>) {
        let arguments = rendering.arguments;
        let code = code(rendering);
        self.0.change(&mut |tree| {
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
        self.0.change(&mut |tree| {
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
