// SPDX-License-Identifier: Apache-2.0
//! The address of the client, in a chain of proxies. Some of them are trusted.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::request::client_ip::{self, Network, Proxies, Trust};

use crate::table::each;

/// The setting of trust, the connection, the chain, and the client.
#[rustfmt::skip]
const CLIENTS: &[(&str, &str, &str, &str, &str)] = &[
    ("nothing trusted", "0", "192.0.2.1:80", "203.0.113.9", "192.0.2.1"),
    ("one hop", "1", "10.0.0.1:80", "203.0.113.9", "203.0.113.9"),
    ("one hop, spoofed left of it", "1", "10.0.0.1:80", "6.6.6.6, 203.0.113.9", "203.0.113.9"),
    ("one hop, Envoy has appended it", "1", "10.0.0.1:80", "203.0.113.9, 10.0.0.1", "203.0.113.9"),
    ("two hops", "2", "10.0.0.1:80", "6.6.6.6, 203.0.113.9,10.0.0.2", "203.0.113.9"),
    ("a chain too short", "2", "10.0.0.1:80", "203.0.113.9", "10.0.0.1"),
    ("no chain", "1", "10.0.0.1:80", "", "10.0.0.1"),
    ("garbage where the client should be", "1", "10.0.0.1:80", "203.0.113.9, unknown", "10.0.0.1"),
    ("0.0.0.0 where the client's address should be", "1", "10.0.0.1:80", "203.0.113.9, 0.0.0.0", "10.0.0.1"),
    ("the unspecified IPv6 address", "1", "10.0.0.1:80", "203.0.113.9, ::", "10.0.0.1"),
    ("0.0.0.0, mapped to IPv6", "1", "10.0.0.1:80", "203.0.113.9, ::ffff:0.0.0.0", "10.0.0.1"),
    ("an address of this network", "1", "10.0.0.1:80", "0.1.2.3", "10.0.0.1"),
    ("multicast", "1", "10.0.0.1:80", "224.0.0.1", "10.0.0.1"),
    ("IPv6 multicast", "1", "10.0.0.1:80", "ff02::1", "10.0.0.1"),
    ("broadcast", "1", "10.0.0.1:80", "255.255.255.255", "10.0.0.1"),
    ("0.0.0.0 beyond a hop", "2", "10.0.0.1:80", "0.0.0.0, 10.0.0.2", "10.0.0.2"),
    ("networks, 0.0.0.0 beyond a hop", "10.0.0.0/8", "10.0.0.1:80", "0.0.0.0, 10.0.0.2", "10.0.0.2"),
    ("garbage beyond a hop", "2", "10.0.0.1:80", "_hidden, 10.0.0.2", "10.0.0.2"),
    ("garbage beyond the client", "1", "10.0.0.1:80", "<script>, 203.0.113.9", "203.0.113.9"),
    ("empty entries", "1", "10.0.0.1:80", ",,", "10.0.0.1"),
    ("ports in the chain", "1", "10.0.0.1:80", "203.0.113.9:1234", "203.0.113.9"),
    ("IPv6 in the chain", "1", "10.0.0.1:80", "2001:db8::9", "2001:db8::9"),
    ("IPv6 and a port in the chain", "1", "10.0.0.1:80", "[2001:db8::9]:1234", "2001:db8::9"),
    ("mapped in the chain", "1", "10.0.0.1:80", "::ffff:203.0.113.9", "203.0.113.9"),
    ("of NAT64 in the chain", "1", "10.0.0.1:80", "64:ff9b::203.0.113.9", "203.0.113.9"),
    ("of NAT64, with a port", "1", "10.0.0.1:80", "[64:ff9b::cb00:7109]:443", "203.0.113.9"),
    ("of NAT64, by the proxy", "10.0.0.0/8", "[64:ff9b::10.0.0.1]:80", "203.0.113.9", "203.0.113.9"),
    ("0.0.0.0 of NAT64", "1", "10.0.0.1:80", "203.0.113.9, 64:ff9b::", "10.0.0.1"),
    ("beside the prefix of NAT64", "1", "10.0.0.1:80", "64:ff9b::1:203.0.113.9", "64:ff9b::1:cb00:7109"),
    ("an entry of RFC 7239 is no address", "1", "10.0.0.1:80", "for=203.0.113.9", "10.0.0.1"),
    ("leading zeroes are no address", "1", "10.0.0.1:80", "203.0.113.009", "10.0.0.1"),
    ("networks, the peer is not trusted", "10.0.0.0/8", "192.0.2.1:80", "203.0.113.9", "192.0.2.1"),
    ("networks, one hop", "10.0.0.0/8", "10.0.0.1:80", "203.0.113.9", "203.0.113.9"),
    ("networks, spoofed left of it", "10.0.0.0/8", "10.0.0.1:80", "10.0.0.9, 203.0.113.9", "203.0.113.9"),
    ("networks, several hops", "10.0.0.0/8", "10.0.0.1:80", "6.6.6.6, 203.0.113.9, 10.1.0.1, 10.2.0.1", "203.0.113.9"),
    ("networks, everyone is trusted", "10.0.0.0/8", "10.0.0.1:80", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
    ("networks, garbage beyond a hop", "10.0.0.0/8", "10.0.0.1:80", "203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"),
    ("networks, mapped", "10.0.0.0/8", "[::ffff:10.0.0.1]:80", "203.0.113.9", "203.0.113.9"),
    ("networks of IPv6", "2001:db8:cd::/48", "[2001:db8:cd::1]:80", "2001:db8::9, 2001:db8:cd::2", "2001:db8::9"),
];

#[test]
fn clients() {
    each(CLIENTS.iter().map(|(row, trusted, connection, chain, wanted)| {
        let proxies = match trusted.parse() {
            Ok(hops) => Proxies::Hops(hops),
            Err(_) => Proxies::Networks(vec![Network::parse(trusted).unwrap()]),
        };
        let trust = Trust::new(String::from("x-forwarded-for"), proxies);
        let connection = client_ip::connection(connection.as_bytes()).unwrap();
        (row, trust.client(connection, chain.as_bytes()).to_string(), (*wanted).to_owned())
    }));
}

/// A network as it is written: its family and its prefix, or that it is none.
#[rustfmt::skip]
const NETWORKS: &[(&str, &str)] = &[
    ("10.0.0.0/8", "IPv4, 8"),
    ("10.0.0.1", "IPv4, 32"),
    ("2001:db8::/32", "IPv6, 32"),
    ("::1", "IPv6, 128"),
    ("::ffff:10.0.0.0/104", "IPv4, 8"),
    ("::ffff:0:0/95", "none"),
    ("64:ff9b::10.0.0.0/104", "IPv4, 8"),
    ("64:ff9b::/96", "none"),
    ("64:ff9b::/64", "none"),
    ("10.0.0.0/+8", "none"),
    ("10.0.0.0/", "none"),
    ("10.0.0.0/33", "none"),
];

#[test]
fn networks() {
    each(NETWORKS.iter().map(|(text, wanted)| {
        let found = Network::parse(text).map_or_else(
            |_| String::from("none"),
            |network| format!("{}, {}", if network.is_ipv4() { "IPv4" } else { "IPv6" }, network.prefix()),
        );
        (*text, found, (*wanted).to_owned())
    }));
}

/// Networks that are every address of a family, or not.
#[rustfmt::skip]
const COVERS: &[(&str, &[&str], bool)] = &[
    ("none", &[], false),
    ("one", &["0.0.0.0/0"], true),
    ("two halves", &["0.0.0.0/1", "128.0.0.0/1"], true),
    ("the same half twice", &["0.0.0.0/1", "0.0.0.0/1"], false),
    ("a half and a part of it", &["10.0.0.0/8", "0.0.0.0/1"], false),
    ("both halves, and a part of one", &["10.0.0.0/8", "0.0.0.0/1", "128.0.0.0/1"], true),
    ("halves of two families", &["0.0.0.0/1", "8000::/1"], false),
];

#[test]
fn networks_that_cover_everything() {
    each(COVERS.iter().map(|(name, networks, wanted)| {
        let networks: Vec<_> = networks.iter().map(|text| Network::parse(text).unwrap()).collect();
        (*name, client_ip::cover_everything(&networks).to_string(), wanted.to_string())
    }));
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use std::net::IpAddr;

    use proptest::prelude::*;
    use weir::request::client_ip::{self, Network, Proxies, Trust, connection};

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
            .prop_map(|address| address.to_canonical())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_a_client_writes_left_of_a_trusted_hop_changes_nothing(
            peer in address(), client in address().prop_filter("a host's", |it| client_ip::is_of_a_host(*it)), forged in "[ -~]{0,40}"
        ) {
            let trust = Trust::new(String::new(), Proxies::Hops(1));
            prop_assert_eq!(trust.client(peer, format!("{forged}, {client}, {peer}").as_bytes()), client);
            let network = Network::around(peer, 128);
            if client != peer {
                let trust = Trust::new(String::new(), Proxies::Networks(vec![network]));
                prop_assert_eq!(trust.client(peer, format!("{forged}, {client}").as_bytes()), client);
            }
        }

        #[test]
        fn addresses_are_read_as_they_are_written(address in address(), port: u16) {
            prop_assert_eq!(connection(std::net::SocketAddr::new(address, port).to_string().as_bytes()), Some(address));
            prop_assert_eq!(connection(address.to_string().as_bytes()), Some(address));
        }

        #[test]
        fn a_network_holds_what_it_is_around(address in address(), prefix in 0u8..=128) {
            let network = Network::around(address, prefix);
            prop_assert!(network.contains(address));
            prop_assert_eq!(Network::parse(&network.to_string()), Ok(network));
        }
    }
}
