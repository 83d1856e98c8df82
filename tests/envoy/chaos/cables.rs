// SPDX-License-Identifier: Apache-2.0
//! A Redis in a network namespace of its own, and a cable to it for each Envoy: a `veth` pair with addresses of its own.
//! A fault of one cable leaves the other alone. No proxy accepts connections in Redis's place: packets vanish, and
//! neither end gets an error.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use crate::last;
use crate::support::envoy::Template;
use crate::support::redis::Redis;
use crate::world::{ENVOYS, Fault, Felt, Policy, Store};

pub struct Cables {
    // Dropped before the namespace that it runs in.
    redis: Redis,
    namespace: Namespace,
}

impl Store for Cables {
    const RATE: u32 = 60;

    fn missing() -> Option<&'static str> {
        let missing = Namespace::new(0).is_none();
        missing.then_some("no network namespaces here: that takes root, iproute2, and a kernel that lets us")
    }

    fn start() -> Self {
        let namespace = Namespace::new(ENVOYS).expect("a network namespace");
        Self { redis: Redis::start_in(&namespace.name).expect("a redis-server"), namespace }
    }

    fn users(&mut self, _: &Policy, fault: usize) -> Vec<String> {
        vec![format!("user-{fault}")]
    }

    fn change(&self, envoy: usize, shipped: Template) -> Template {
        let port = self.redis.address().port();
        let redis = |address: Ipv4Addr| format!("{address}, port_value: {port}");
        let [_, there] = self.namespace.cables[envoy].addresses();
        shipped.with(&redis(Ipv4Addr::LOCALHOST), redis(there))
    }

    fn address(&self) -> SocketAddr {
        self.redis.address()
    }
}

pub const FAULTS: &[Fault<Cables>] = &[
    Fault {
        name: "the cable between one Envoy and Redis is pulled",
        felt: Felt::AtFirstEnvoy,
        forgets: 0,
        inject: pulled,
    },
    // Redis counts the checks that it gets meanwhile.
    Fault {
        name: "packets from Redis to one Envoy vanish",
        felt: Felt::AtFirstEnvoy,
        forgets: 0,
        inject: vanish,
    },
];

fn pulled(store: &mut Cables, hold: Duration) {
    let Namespace { name, cables } = &store.namespace;
    let set = |state: &str| assert!(ip(&["-n", name, "link", "set", &cables[0].there, state]), "{state}");
    set("down");
    last(hold);
    set("up");
}

fn vanish(store: &mut Cables, hold: Duration) {
    let Namespace { name, cables } = &store.namespace;
    let [envoy, _] = cables[0].addresses().map(|address| address.to_string());
    let route = |does: &str| assert!(ip(&["-n", name, "route", does, "blackhole", &envoy]), "{does}");
    route("add");
    last(hold);
    route("delete");
}

/// A network namespace; it and its cables are removed when dropped.
struct Namespace {
    name: String,
    cables: Vec<Cable>,
}

/// Two devices. One of them is in the namespace.
struct Cable {
    here: String,
    there: String,
    number: u32,
}

impl Namespace {
    /// With so many cables that work. `None`, if that cannot be had here.
    fn new(cables: usize) -> Option<Self> {
        let process = std::process::id();
        let name = format!("weir-{process}");
        let mut namespace = ip(&["netns", "add", &name]).then_some(Self { name, cables: Vec::new() })?;
        for (cable, letter) in (0..).zip('a'..).take(cables) {
            // Names of devices have 15 bytes; processes have 22 bits, and addresses enough for 13 of them.
            let here = format!("weir{process}{letter}");
            let cable = Cable { there: format!("{here}r"), here, number: process % 0x2000 * 2 + cable };
            namespace.cables.push(cable);
            namespace.plug()?;
        }
        Some(namespace)
    }

    /// Makes the last of its cables work.
    fn plug(&self) -> Option<()> {
        let (name, Cable { here, there, .. }) = (self.name.as_str(), self.cables.last()?);
        let [here_is, there_is] = self.cables.last()?.addresses().map(|address| address.to_string());
        let mac = "02:00:00:00:00:02";
        let steps: [&[&str]; 6] = [
            &["link", "add", here, "type", "veth", "peer", "name", there, "netns", name, "address", mac],
            &["address", "add", &format!("{here_is}/30"), "dev", here],
            &["-n", name, "address", "add", &format!("{there_is}/30"), "dev", there],
            &["link", "set", here, "up"],
            &["-n", name, "link", "set", there, "up"],
            // With a permanent neighbour, the kernel need not resolve the address again a second later, when the cable is back.
            &["neighbour", "add", &there_is, "lladdr", mac, "dev", here, "nud", "permanent"],
        ];
        steps.iter().all(|step| ip(step)).then_some(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // With one end, the other is removed, too. A missing device is no reason to fail.
        for Cable { here, .. } in &self.cables {
            ip(&["link", "delete", here]);
        }
        ip(&["netns", "delete", &self.name]);
    }
}

impl Cable {
    /// This end's and the other's: two of the four of a network that is set aside for tests of networks (RFC 2544).
    fn addresses(&self) -> [Ipv4Addr; 2] {
        let network = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + self.number * 4;
        [network + 1, network + 2].map(Ipv4Addr::from)
    }
}

/// Runs `ip`. Returns `true` if it succeeded.
fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}
