// SPDX-License-Identifier: Apache-2.0
//! The dynamic module's two listeners: the connection to Redis, and the clock.

use super::picture::inside;
use super::{Wired, bridge};
use crate::check::warning::code;
use crate::document::Node;
use crate::finding::Finding;
use weir::config::{Region, Topology};

const SEE: &str = "see envoy/native.yaml";

fn filter<'a>(listener: &'a Node, name: &str) -> Option<&'a Node> {
    inside(listener, &|node| node.text_of("filter_name") == name).first().copied()
}

/// The listeners that have the filter of this name, and that filter.
fn with_filter<'a>(listeners: &[&'a Node], name: &str) -> Vec<(&'a Node, &'a Node)> {
    listeners.iter().filter_map(|listener| Some((*listener, filter(listener, name)?))).collect()
}

/// Returns a setting of a filter of the module.
fn setting<'a>(filter: &'a Node, name: &str) -> &'a str {
    let config = filter.get("filter_config");
    config.map(|config| config.get("value").unwrap_or(config).text_of(name)).unwrap_or_default()
}

fn listeners<'a>(wired: &Wired<'a>) -> Vec<&'a Node> {
    let shown = core::iter::once(wired.own).chain(wired.others.iter().copied());
    shown.flat_map(|picture| picture.listeners.iter().copied()).collect()
}

/// True if the limiter's own file has this listener.
fn is_own(wired: &Wired<'_>, listener: &Node) -> bool {
    wired.own.listeners.iter().any(|node| core::ptr::eq(*node, listener))
}

/// Warns of problems with the listener of the clock.
pub fn clock(wired: &Wired<'_>, found: &mut Vec<Finding>) {
    match with_filter(&listeners(wired), "weir.clock").first() {
        Some((listener, filter)) if is_own(wired, listener) => settings(listener, filter, found),
        None if wired.own.has_all_listeners => {
            let place = wired.carrier.node.place_of("filter_name");
            let reason =
                "no listener has the filter `weir.clock`, so only the requests that wait move weir's timers";
            let advice = format!("Add the listener `weir-clock`: {SEE}");
            found.push(Finding::warning(code::CLOCK_MISSING, place, "filter_name", reason, advice));
        }
        _ => {}
    }
}

/// Warns of problems with the listener that leads to the store of a region.
pub fn warnings(wired: &Wired<'_>, region: &Region, found: &mut Vec<Finding>) {
    let name = region.cluster.as_str();
    let path = format!("{}.cluster", region.path);
    let place = wired.limiter.place(&path);
    if wired.own.has_all_clusters && wired.store(name).is_none() {
        let reason = format!("there is no cluster {name:?}, so `on_failure` decides every request");
        let advice = "Add the cluster, or write the name of the one that leads to Redis";
        found.push(Finding::warning(code::UNKNOWN_CLUSTER, place, &path, reason, advice));
    }
    let of_store = with_filter(&listeners(wired), "weir.store")
        .into_iter()
        .find(|(_, filter)| setting(filter, "cluster") == name);
    let Some((listener, filter)) = of_store else {
        if wired.own.has_all_listeners {
            let reason = format!(
                "no listener has the filter `weir.store` with `cluster: {name}`, so weir has no connection to Redis and `on_failure` decides \
                 every request"
            );
            let advice = format!("Add the listener `weir-store`: {SEE}");
            found.push(Finding::warning(code::STORE_LISTENER_MISSING, place, path, reason, advice));
        }
        return;
    };
    if is_own(wired, listener) {
        settings(listener, filter, found);
        leads_elsewhere(listener, setting(filter, "cluster"), found);
    }
    let proxied = wired.own.proxied(listener);
    proxied.iter().for_each(|cluster| bridge::servers(wired, region, cluster, true, found));
    if proxied.is_empty()
        && let Some(cluster) = wired.store(name).and_then(|picture| picture.cluster(name))
    {
        bridge::servers(wired, region, cluster, false, found);
    }
    if region.topology == Topology::Single {
        bridge::topology(wired, region, &proxied, found);
    }
}

/// The address that the module connects to is that of the listener, and each worker gets a connection.
fn settings(listener: &Node, filter: &Node, found: &mut Vec<Finding>) {
    let bound = listener.at(&["address", "pipe", "path"]).and_then(Node::text).unwrap_or_default();
    let address = setting(filter, "address");
    if !bound.is_empty() && bound != address {
        let reason = format!("weir connects to {address:?}, and the listener is at {bound:?}");
        let place = filter.place_of("filter_config");
        let advice = format!("Write `address: {bound:?}`");
        found.push(Finding::warning(code::LISTENER_SETTINGS, place, "filter_config.address", reason, advice));
    }
    let field = "connection_balance_config";
    if listener.at(&[field, "exact_balance"]).is_none() {
        let reason = "Envoy may give the connections of several workers to one of them, and weir connects again and again until each \
                      has its own";
        let (place, advice) =
            (listener.place_of("name"), "Write `connection_balance_config: {exact_balance: {}}`");
        found.push(Finding::warning(code::LISTENER_SETTINGS, place, field, reason, advice));
    }
}

fn leads_elsewhere(listener: &Node, cluster: &str, found: &mut Vec<Finding>) {
    for proxy in inside(listener, &|node| node.type_name() == "TcpProxy") {
        let leads = proxy.text_of("cluster");
        if leads != cluster {
            let reason = format!(
                "the listener leads to cluster {leads:?}, and its filter `weir.store` says {cluster:?}"
            );
            let (place, advice) =
                (proxy.place_of("cluster"), "Write the name of the store's cluster in both");
            found.push(Finding::warning(code::LISTENER_SETTINGS, place, "cluster", reason, advice));
        }
        let field = "max_early_data_bytes";
        if proxy.get(field).is_none() {
            let reason = "Envoy may drop what weir sends before Redis has accepted the connection";
            let (place, advice) = (proxy.place_of("cluster"), "Write `max_early_data_bytes: 65536`");
            found.push(Finding::warning(code::LISTENER_SETTINGS, place, field, reason, advice));
        }
    }
}
