// SPDX-License-Identifier: Apache-2.0
//! `client_address`: which proxies are trusted to report the client's address.

use super::schema::{
    Count, Errors, HEADER, Items, List, NETWORK, Text, Typed, View, count, list, object, text,
};
use crate::request::client_ip::{Network, Proxies, Trust, cover_everything};

object! {
    static CLIENT_ADDRESS: ClientAddressFields = "client_address", at_most_one(trusted_hops, trusted_networks),
        "Which proxies are trusted to report the client's address. Without fields it is the connection's. weir never uses the left \
         end of a chain as it stands: a client can write anything there.";
    header: Text = text(&HEADER).default("\"x-forwarded-for\"", "The header that proxies append to."),
    trusted_hops: Option<Count<usize>> = count(0, 32)
        .optional("How many proxies stand in front of Envoy, all trusted. The client is that many hops left of the connection; \
            when the chain is shorter, it is the connection."),
    trusted_networks: Option<List<Text>> = networks(256)
        .optional("The networks of trusted proxies. The client is the first hop, from the connection leftwards, outside them."),
}

/// A list of 1 to `max` networks.
pub(super) const fn networks(max: usize) -> Typed<List<Text>> {
    const ITEM: &Typed<Text> = &text(&NETWORK);
    list(ITEM, 1, max)
}

/// Reads a list of networks.
pub(super) fn read_networks(texts: &Items<'_, Text>) -> Vec<Network> {
    texts.iter().filter_map(|text| Network::parse(text).ok()).collect()
}

pub(super) fn read(view: &View<'_, ClientAddressFields>, errors: &mut Errors) -> Trust {
    let proxies = match view.get(&CLIENT_ADDRESS.trusted_networks) {
        Some(networks) => {
            let networks = read_networks(&networks);
            if cover_everything(&networks) {
                errors.add(
                    &view.path_of(&CLIENT_ADDRESS.trusted_networks),
                    "networks of every address",
                    "the networks of your proxies: if every address is trusted, the client is the left end of the chain, which \
                     it wrote itself",
                );
            }
            Proxies::Networks(networks)
        }
        None => Proxies::Hops(view.get(&CLIENT_ADDRESS.trusted_hops).unwrap_or(0)),
    };
    Trust::new(view.get(&CLIENT_ADDRESS.header).to_owned(), proxies)
}
