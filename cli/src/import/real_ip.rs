// SPDX-License-Identifier: Apache-2.0
//! nginx's `set_real_ip_from` and `real_ip_header` as weir's `client_address`.

use super::nginx::Directive;
use super::notes::{Note, Notes};
use crate::tree::{Map, Tree};

/// The client's address, as the block `http` or a server in it finds it.
pub fn client_address(http: &[Directive], notes: &mut Notes) -> Map {
    let servers =
        http.iter().filter(|directive| directive.name == "server").flat_map(|server| server.inner());
    let all: Vec<_> = http.iter().chain(servers).collect();
    let named =
        |name: &str| all.iter().filter(|directive| directive.name == name).copied().collect::<Vec<_>>();
    let mut networks: Vec<&str> = Vec::new();
    for from in named("set_real_ip_from") {
        match from.argument(0) {
            network if network.starts_with(|first: char| first.is_ascii_hexdigit() || first == ':') => {
                if !networks.contains(&network) {
                    networks.push(network);
                }
            }
            _ => notes.add(Note::new(
                from,
                "it is no network",
                "Write the network of the proxy in client_address",
            )),
        }
    }
    let mut configuration = Map::new();
    let Some(first) = networks.first() else { return configuration };
    let header = named("real_ip_header");
    let header_name =
        header.first().map(|header| header.argument(0)).unwrap_or("X-Real-IP").to_ascii_lowercase();
    if header_name == "proxy_protocol" {
        if let Some(header) = header.first() {
            let instead = "Add the listener filter proxy_protocol to Envoy's listener; weir then sees the client's address";
            notes.add(Note::new(header, "Envoy reads the PROXY protocol, not weir", instead));
        }
        return configuration;
    }
    let is_recursive = named("real_ip_recursive").iter().any(|directive| directive.argument(0) == "on");
    if !is_recursive && let Some(header) = header.first() {
        let why = "without real_ip_recursive nginx takes the last address of the header, whoever sent it; weir passes over trusted proxies";
        notes.add(Note::new(header, why, ""));
    }
    let comment = format!("set_real_ip_from {first}{}", if networks.len() > 1 { " …" } else { "" });
    let networks: Vec<Tree> = networks.into_iter().map(Tree::from).collect();
    let settings = Map::from([("header", header_name.into()), ("trusted_networks", networks.into())]);
    configuration.commented("client_address", vec![comment], settings);
    configuration
}
