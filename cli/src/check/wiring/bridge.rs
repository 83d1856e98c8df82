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
        found.push(Finding::warning(
            code::SHARED_VM,
            node.place_of("vm_id"),
            "vm_config.vm_id",
            reason,
            advice,
        ));
    }
    if region.topology == Topology::Single {
        topology(wired, region, &picture.behind(name), found);
    }
}

/// Warns if `topology: single` sends a script for several subjects to a cluster that has their keys on different nodes.
pub fn topology(wired: &Wired<'_>, region: &Region, clusters: &[&Node], found: &mut Vec<Finding>) {
    let is_redis_cluster = |cluster: &&&Node| {
        cluster.at(&["cluster_type", "name"]).and_then(Node::text) == Some("envoy.clusters.redis")
    };
    let Some(cluster) = clusters.iter().find(is_redis_cluster) else { return };
    let reason = format!(
        "cluster {:?} is a Redis Cluster, which refuses a script about subjects in several slots (CROSSSLOT)",
        cluster.text_of("name")
    );
    let path = format!("{}.topology", region.path);
    let (place, advice) = (wired.limiter.place(&path), "Write `topology: any`, the default");
    found.push(Finding::warning(code::SINGLE_BEFORE_CLUSTER, place, path, reason, advice));
}

/// Warns of problems in a cluster that has a bridge.
pub fn cluster(cluster: &Node, found: &mut Vec<Finding>) {
    let bridges = bridges(cluster);
    for bridge in &bridges {
        fail_open(
            bridge,
            "the bridge",
            "the limiter's messages reach Redis as they are, and are no commands",
            found,
        );
    }
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
