// SPDX-License-Identifier: Apache-2.0
//! The parts of Envoy's configuration that weir has to do with, wherever Envoy and its control planes write them.

use crate::document::{Node, Place};
use crate::source::Source;

/// The parts of one Envoy that one file shows.
#[derive(Default)]
pub struct Picture<'a> {
    pub clusters: Vec<&'a Node>,
    pub listeners: Vec<&'a Node>,
    pub secrets: Vec<&'a Node>,
    /// True if a cluster that is not here does not exist.
    pub has_all_clusters: bool,
    /// True if a listener that is not here does not exist.
    pub has_all_listeners: bool,
}

impl<'a> Picture<'a> {
    pub fn of(source: &'a Source) -> Self {
        let mut picture = Self::default();
        for document in &source.documents {
            if let Some(bootstrap) = document.get("static_resources") {
                let dynamic = |name| document.at(&["dynamic_resources", name]).is_some();
                picture.has_all_clusters = bootstrap.is_object() && !dynamic("cds_config");
                picture.has_all_listeners = bootstrap.is_object() && !dynamic("lds_config");
            }
            let dumps = |name| document.list("configs").iter().any(|dump| dump.type_name() == name);
            picture.has_all_clusters |= dumps("ClustersConfigDump");
            picture.has_all_listeners |= dumps("ListenersConfigDump");
            picture.gather(document);
        }
        picture
    }

    fn gather(&mut self, node: &'a Node) {
        match node.type_name() {
            // Its content comes again among the listeners and clusters.
            "BootstrapConfigDump" => return,
            "Cluster" => self.clusters.push(node),
            "Listener" => self.listeners.push(node),
            "Secret" => self.secrets.push(node),
            _ => {}
        }
        if let Some(resources) = node.get("static_resources") {
            self.clusters.extend(resources.list("clusters"));
            self.listeners.extend(resources.list("listeners"));
            self.secrets.extend(resources.list("secrets"));
        }
        // Istio's EnvoyFilter, and Envoy Gateway's EnvoyPatchPolicy.
        let value = node.at(&["patch", "value"]).or_else(|| node.at(&["operation", "value"]));
        if let Some(value) = value.filter(|value| value.type_name().is_empty()) {
            match (node.text_of("apply_to"), node.text_of("type").rsplit('.').next().unwrap_or_default()) {
                ("CLUSTER", _) | (_, "Cluster") => self.clusters.push(value),
                ("LISTENER", _) | (_, "Listener") => self.listeners.push(value),
                _ => {}
            }
        }
        node.children().for_each(|child| self.gather(child));
    }

    pub fn cluster(&self, name: &str) -> Option<&'a Node> {
        self.clusters.iter().find(|cluster| cluster.text_of("name") == name).copied()
    }

    /// The clusters that commands to the cluster `name` come to, itself included: those behind the listeners inside of Envoy that it
    /// leads to.
    pub fn behind(&self, name: &str) -> Vec<&'a Node> {
        let Some(cluster) = self.cluster(name) else { return Vec::new() };
        let mut all = vec![cluster];
        for endpoint in inside(cluster, &|node| node.get("server_listener_name").is_some()) {
            let listener = endpoint.text_of("server_listener_name");
            for listener in self.listeners.iter().filter(|node| node.text_of("name") == listener) {
                all.extend(self.proxied(listener));
            }
        }
        all
    }

    /// The clusters that the `redis_proxy` of a listener leads to.
    pub fn proxied(&self, listener: &'a Node) -> Vec<&'a Node> {
        let proxies = inside(listener, &|node| node.type_name() == "RedisProxy");
        let routes = proxies
            .iter()
            .flat_map(|proxy| inside(proxy, &|node| node.get("cluster").and_then(Node::text).is_some()));
        routes.filter_map(|route| self.cluster(route.text_of("cluster"))).collect()
    }
}

/// The clusters that a route, a mirror or a `tcp_proxy` leads to.
pub fn targets(node: &Node) -> Vec<(Place, &str)> {
    let weighted =
        node.get("weighted_clusters").map(|weighted| weighted.list("clusters")).unwrap_or_default();
    let weighted = weighted.iter().map(|cluster| (cluster.place_of("name"), cluster.text_of("name")));
    core::iter::once((node.place_of("cluster"), node.text_of("cluster"))).chain(weighted).collect()
}

/// The values in `node` that are so, outer ones first.
pub fn inside<'a>(node: &'a Node, is_so: &dyn Fn(&Node) -> bool) -> Vec<&'a Node> {
    let mut found = Vec::new();
    node.walk(&mut |node| {
        if is_so(node) {
            found.push(node);
        }
    });
    found
}

/// The way from `node` to each value in it that is so, itself included.
pub fn paths<'a>(node: &'a Node, is_so: &dyn Fn(&Node) -> bool) -> Vec<Vec<&'a Node>> {
    if is_so(node) {
        return vec![vec![node]];
    }
    let inner = node.children().flat_map(|child| paths(child, is_so));
    inner.map(|path| core::iter::once(node).chain(path).collect()).collect()
}

/// The bridges in a cluster: the objects that name weir's bridge.
pub fn bridges(cluster: &Node) -> Vec<&Node> {
    inside(cluster, &|node| node.text_of("root_id") == "weir.bridge")
}

pub fn addresses(cluster: &Node) -> Vec<&Node> {
    cluster.get("load_assignment").map_or_else(Vec::new, |endpoints| {
        inside(endpoints, &|node| node.get("address").and_then(Node::text).is_some())
    })
}

/// The address that a listener listens at.
pub fn bound(listener: &Node) -> Option<&str> {
    listener.at(&["address", "socket_address", "address"]).and_then(Node::text)
}

/// True if an address, as text, stays on this machine.
pub fn is_local(address: &str) -> bool {
    address == "localhost"
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}
