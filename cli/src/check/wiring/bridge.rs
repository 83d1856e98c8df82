// SPDX-License-Identifier: Apache-2.0
//! The plugin's connection to Redis: the cluster of the store, and the bridge in it.

use super::Wired;
use super::picture::{bridges, inside};
use crate::check::warning::code;
use crate::document::{Content, Node};
use crate::finding::Finding;
use crate::source::Kind;
use weir::config::{Region, Topology};

const SEE: &str = "see `weir-bridge` in envoy/weir.yaml";

/// Warns of problems between the limiter and the bridge.
pub fn warnings(wired: &Wired<'_>, region: &Region, found: &mut Vec<Finding>) {
    let name = region.cluster.as_str();
    let path = format!("{}.cluster", region.path);
    let place = wired.limiter.place(&path);
    let Some(picture) = wired.store(name) else {
        if wired.own.has_all_clusters {
            let reason = format!("there is no cluster {name:?}, so `on_failure` decides every request");
            let advice = format!("Add the cluster ({SEE}), or write the name of the one with the bridge");
            found.push(Finding::warning(code::UNKNOWN_CLUSTER, place, path, reason, advice));
        }
        return;
    };
    let Some(cluster) = picture.cluster(name) else { return };
    if bridges(cluster).is_empty() {
        let reason = format!(
            "cluster {name:?} has no bridge, so Redis gets no commands and `on_failure` decides every request"
        );
        let advice =
            format!("Add the filter with `root_id: weir.bridge` to the cluster's http_filters: {SEE}");
        found.push(Finding::warning(code::BRIDGE_MISSING, place, path, reason, advice));
    }
    let vm = |node: &Node| {
        let config = node.get("vm_config")?;
        Some((config.text_of("vm_id").to_owned(), config.get("configuration").map(Node::json)))
    };
    let own = vm(wired.carrier.node).filter(|_| wired.carrier.kind == Kind::Wasm);
    if own.is_some() && bridges(cluster).into_iter().any(|bridge| vm(bridge) == own) {
        let node = wired.carrier.node.get("vm_config").unwrap_or(wired.carrier.node);
        let reason = "the limiter and the bridge have the same `vm_id`, so they share a VM. The limiter's message reaches the bridge \
                      before the limiter's call has returned, and a VM cannot be entered twice";
        let advice = "Write two different names: `vm_id: weir` and `vm_id: weir-bridge`";
        let place = node.place_of("vm_id");
        found.push(Finding::warning(code::SHARED_VM, place, "vm_config.vm_id", reason, advice));
    }
    let behind = picture.behind(name);
    for one in &behind {
        servers(wired, region, one, !core::ptr::eq(*one, cluster), found);
    }
    if region.topology == Topology::Single {
        topology(wired, region, &behind, found);
    }
}

/// Warns if Envoy chooses among several servers that count apart, unless `redis_proxy` chooses by the key, or all but the primary are
/// unhealthy.
pub fn servers(
    wired: &Wired<'_>,
    region: &Region,
    cluster: &Node,
    is_proxied: bool,
    found: &mut Vec<Finding>,
) {
    let is_by_key = is_redis_cluster(cluster)
        || ["RING_HASH", "MAGLEV"].contains(&cluster.text_of("lb_policy"))
        || cluster.get("load_balancing_policy").is_some();
    let count = count(cluster);
    if count < 2 || asks_role(cluster) || (is_proxied && is_by_key) {
        return;
    }
    let reason = format!(
        "cluster {:?} has {count} servers, and each counts for itself what Envoy sends to it, so a subject may have its limit on each",
        cluster.text_of("name")
    );
    let path = format!("{}.cluster", region.path);
    let advice = "Write one address; for a primary and its replicas, the health check of envoy/sentinel.yaml; for a Redis Cluster, what \
                  envoy/cluster.yaml has";
    let place = wired.limiter.place(&path);
    found.push(Finding::warning(code::SEVERAL_SERVERS, place, path, reason, advice));
}

fn is_redis_cluster(cluster: &Node) -> bool {
    cluster.at(&["cluster_type", "name"]).and_then(Node::text) == Some("envoy.clusters.redis")
}

/// The number of servers among which Envoy chooses: of one priority, because those of another are for when these fail.
fn count(cluster: &Node) -> usize {
    let localities = cluster.get("load_assignment").map(|of| of.list("endpoints")).unwrap_or_default();
    let priority = |of: &Node| of.get("priority").and_then(Node::text_or_number).unwrap_or_default();
    let of_priority = |one: &Node| {
        let same = localities.iter().filter(|other| priority(other) == priority(one));
        same.map(|locality| locality.list("lb_endpoints").len()).sum()
    };
    localities.iter().map(of_priority).max().unwrap_or_default()
}

/// True if a health check asks a server whether it is the primary. What it sends is in hexadecimal; bytes in base64 are not read here.
fn asks_role(cluster: &Node) -> bool {
    cluster.list("health_checks").iter().any(|check| {
        let Some(send) = check.at(&["tcp_health_check", "send"]) else { return false };
        let text = send.text_of("text").to_ascii_lowercase();
        send.get("binary").is_some() || ["524f4c45", "726f6c65"].iter().any(|role| text.contains(role))
    })
}

/// Warns if `topology: single` sends a script for several subjects to a cluster that has their keys on different nodes.
pub fn topology(wired: &Wired<'_>, region: &Region, clusters: &[&Node], found: &mut Vec<Finding>) {
    let is_spread = |cluster: &Node| bridges(cluster).is_empty() && count(cluster) > 1 && !asks_role(cluster);
    let spread = clusters.iter().find(|cluster| is_redis_cluster(cluster) || is_spread(cluster));
    let Some(cluster) = spread else { return };
    let name = cluster.text_of("name");
    let reason = if is_redis_cluster(cluster) {
        format!(
            "cluster {name:?} is a Redis Cluster, which refuses a script about subjects in several slots (CROSSSLOT)"
        )
    } else {
        format!(
            "cluster {name:?} has several servers, and `redis_proxy` sends a script about several subjects to that of the first, so each \
             server counts a subject for itself"
        )
    };
    let path = format!("{}.topology", region.path);
    let (place, advice) = (wired.limiter.place(&path), "Write `topology: any`, the default");
    found.push(Finding::warning(code::SINGLE_BEFORE_CLUSTER, place, path, reason, advice));
}

/// Warns of problems in a cluster that has a bridge.
pub fn cluster(cluster: &Node, found: &mut Vec<Finding>) {
    let bridges = bridges(cluster);
    let follows = "the limiter's messages reach Redis as they are, and are no commands";
    bridges.iter().for_each(|bridge| fail_open(bridge, "the bridge", follows, found));
    let pool = |node: &Node| node.type_name() == "TcpConnectionPoolProto";
    let has_pool = cluster.get("upstream_config").is_some_and(|config| !inside(config, &pool).is_empty());
    if !bridges.is_empty() && !has_pool {
        let reason = "the cluster has a bridge and no TcpConnectionPoolProto, so Envoy speaks HTTP to Redis";
        let advice = format!("Add `upstream_config` with TcpConnectionPoolProto: {SEE}");
        let place = cluster.place_of("name");
        found.push(Finding::warning(code::NO_TCP_POOL, place, "upstream_config", reason, advice));
    }
}

/// A filter that Envoy goes on without when it fails.
pub fn fail_open(node: &Node, who: &str, follows: &str, found: &mut Vec<Finding>) {
    for (field, instead) in [
        ("failure_policy", "failure_policy: FAIL_RELOAD"),
        ("fail_strategy", "failStrategy: FAIL_RELOAD"),
        ("fail_open", "failure_policy: FAIL_RELOAD; where there is none, fail_open: false"),
    ] {
        let Some((place, value)) = node.field(field) else { continue };
        let is_number = matches!(&value.content, Content::Scalar(number) if number.as_u64() == Some(3));
        if value.text() == Some("FAIL_OPEN")
            || node.is_true(field)
            || (field == "failure_policy" && is_number)
        {
            let reason = format!("if {who} traps, {follows}");
            found.push(Finding::warning(code::FAIL_OPEN, place, field, reason, format!("Write `{instead}`")));
        }
    }
}
