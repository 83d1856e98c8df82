// SPDX-License-Identifier: Apache-2.0
//! Ways by which clients reach Redis, and passwords that others can read.

use super::edge;
use super::picture::{Picture, addresses, bound, bridges, inside, is_local, targets};
use crate::check::warning::code;
use crate::document::{Node, Place};
use crate::finding::Finding;

/// Warns of such problems in a file. `stores` are the clusters that limiters use as stores.
pub fn warnings(picture: &Picture<'_>, documents: &[Node], stores: &[String], found: &mut Vec<Finding>) {
    documents.iter().for_each(|document| routes(document, None, stores, found));
    picture.listeners.iter().for_each(|listener| store_listener(listener, found));
    let mut names = Vec::new();
    for cluster in &picture.clusters {
        if bridges(cluster).is_empty() {
            continue;
        }
        let credentials = inside(cluster, &|node| node.type_name() == "Generic");
        names.extend(credentials.iter().map(|node| node.at(&["credential", "name"]).and_then(Node::text)));
        if !credentials.is_empty() {
            unencrypted(cluster, found);
        }
        picture.behind(cluster.text_of("name")).iter().for_each(|cluster| redis_password(cluster, found));
    }
    for listener in picture.listeners.iter().filter(|listener| is_store_listener(listener)) {
        listener_password(picture, listener, found);
    }
    secrets(picture, &names, found);
}

/// Each route of clients, and each proxied connection, that leads to one of these clusters. `manager` is the connection manager around it.
fn routes(node: &Node, manager: Option<&Node>, stores: &[String], found: &mut Vec<Finding>) {
    // The dynamic module's own listener leads to its store, and no clients connect to a listener that other machines do not reach.
    if is_store_listener(node) || is_inside(node) || node.type_name() == "BootstrapConfigDump" {
        return;
    }
    let mut all = Vec::new();
    if let Some(route) = node.get("route") {
        all.extend(targets(route));
    }
    if node.type_name() == "TcpProxy" {
        all.extend(targets(node));
    }
    for mirror in node.list("request_mirror_policies") {
        all.extend(targets(mirror));
    }
    all.retain(|(_, name)| stores.iter().any(|store| store == name));
    for (place, name) in all {
        let reason = format!("requests of clients reach cluster {name:?}, and through it Redis");
        let advice = "Route clients to the clusters of your upstreams only";
        found.push(Finding::warning(code::OPEN_BRIDGE, place, "cluster", reason, advice));
    }
    let manager = if node.get("http_filters").is_some() { Some(node) } else { manager };
    let header = manager.and_then(|manager| header_of_clients(node, manager));
    if let (Some((place, header)), Some(store)) = (header, stores.first()) {
        let reason = format!(
            "a client that sends `{header}: {store}` reaches cluster {store:?}, and through it Redis"
        );
        let advice = "Name the header in `internal_only_headers` of the `route_config`, or write the names of clusters";
        found.push(Finding::warning(code::OPEN_BRIDGE, place, "cluster_header", reason, advice));
    }
    node.children().for_each(|child| routes(child, manager, stores, found));
}

/// The header that names the cluster of a route, if clients may write it.
fn header_of_clients<'a>(route: &'a Node, manager: &Node) -> Option<(Place, &'a str)> {
    let (place, header) = route.field("cluster_header")?;
    let header = header.text().filter(|_| !edge::writes_headers(manager))?;
    let is_this = |name: &Node| name.text().is_some_and(|name| name.eq_ignore_ascii_case(header));
    let internal = manager.get("route_config").map(|routes| routes.list("internal_only_headers"));
    (!internal.unwrap_or_default().iter().any(is_this)).then_some((place, header))
}

/// True if a listener is the dynamic module's connection to Redis.
fn is_store_listener(node: &Node) -> bool {
    node.get("filter_chains").is_some()
        && !inside(node, &|node| node.text_of("filter_name") == "weir.store").is_empty()
}

/// True if a listener is reached from this machine only.
fn is_inside(node: &Node) -> bool {
    let is_inner = node.get("internal_listener").is_some() || node.at(&["address", "pipe"]).is_some();
    node.get("filter_chains").is_some() && (is_inner || bound(node).is_some_and(is_local))
}

fn store_listener(listener: &Node, found: &mut Vec<Finding>) {
    if let Some(address) = bound(listener)
        && is_store_listener(listener)
        && !is_local(address)
    {
        let reason =
            format!("each machine that reaches {address} can connect to Redis through weir's listener");
        let advice = "Write an abstract unix socket: `address: {pipe: {path: \"@weir-store\"}}`";
        let place = listener.place_of("address");
        found.push(Finding::warning(code::OPEN_BRIDGE, place, "address", reason, advice));
    }
}

fn is_encrypted(cluster: &Node) -> bool {
    // Other sockets may do the same in ways that are not known here.
    cluster.get("transport_socket_matches").is_some()
        || cluster.get("transport_socket").is_some_and(|socket| {
            !inside(socket, &|node| {
                !["", "RawBuffer", "InternalUpstreamTransport"].contains(&node.type_name())
            })
            .is_empty()
        })
}

fn unencrypted(cluster: &Node, found: &mut Vec<Finding>) {
    let remote = addresses(cluster).into_iter().find(|node| !is_local(node.text_of("address")));
    let Some(remote) = remote.filter(|_| !is_encrypted(cluster)) else { return };
    let reason = format!(
        "the password crosses the network to {} in clear, because the cluster has no TLS",
        remote.text_of("address")
    );
    let (place, advice) = (cluster.place_of("name"), "Add a `transport_socket` with TLS: see envoy/tls.yaml");
    found.push(Finding::warning(code::UNENCRYPTED_PASSWORD, place, "transport_socket", reason, advice));
}

const IN_FILE: &str = "each reader of this file, and of Envoy's config_dump, reads the password of Redis";
const FROM_FILE: &str =
    "Write `filename: /run/secrets/redis-password`, or take it from SDS: see envoy/tls.yaml";

fn in_file(place: Place, path: &str, found: &mut Vec<Finding>) {
    found.push(Finding::warning(code::PASSWORD_IN_FILE, place, path, IN_FILE, FROM_FILE));
}

/// The place of a data source that the file itself contains, as a string or as bytes.
fn inline(source: &Node) -> Option<Place> {
    let field = source.field("inline_string").or_else(|| source.field("inline_bytes"))?;
    let is_secret = field
        .1
        .text()
        .is_none_or(|text| !text.is_empty() && text != "[redacted]" && text != "W3JlZGFjdGVkXQ==");
    is_secret.then_some(field.0)
}

/// The password that `redis_proxy` sends to the nodes of a cluster.
fn redis_password(cluster: &Node, found: &mut Vec<Finding>) {
    let all = inside(cluster, &|node| node.get("auth_password").is_some());
    if !all.is_empty() {
        unencrypted(cluster, found);
    }
    for options in all {
        if let Some(place) = options.get("auth_password").and_then(inline) {
            in_file(place, "auth_password", found);
        }
    }
}

/// The password of the dynamic module's connection.
fn listener_password(picture: &Picture<'_>, listener: &Node, found: &mut Vec<Finding>) {
    for set in inside(listener, &|node| node.text_of("object_key") == "weir.password") {
        let reason = "Envoy logs the password of Redis at level debug, and weir does not read it from there";
        let advice = "Write `login_file: FILE` in the filter `weir.store`: see envoy/native-tls.yaml";
        let place = set.place_of("object_key");
        found.push(Finding::warning(code::PASSWORD_IN_FILE, place, "object_key", reason, advice));
    }
    for filter in inside(listener, &|node| node.text_of("filter_name") == "weir.store") {
        let value = filter.at(&["filter_config", "value"]).filter(|value| value.get("login_file").is_some());
        let cluster = value.and_then(|value| picture.cluster(value.text_of("cluster")));
        cluster.into_iter().for_each(|cluster| unencrypted(cluster, found));
    }
    picture.proxied(listener).iter().for_each(|cluster| redis_password(cluster, found));
}

/// The secrets of these names that are in the file.
fn secrets(picture: &Picture<'_>, names: &[Option<&str>], found: &mut Vec<Finding>) {
    for secret in &picture.secrets {
        let is_meant = names.iter().flatten().any(|name| *name == secret.text_of("name"));
        let source = secret.at(&["generic_secret", "secret"]);
        if let Some(place) = source.and_then(inline).filter(|_| is_meant) {
            in_file(place, "generic_secret", found);
        }
    }
}
