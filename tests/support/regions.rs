// SPDX-License-Identifier: Apache-2.0
//! Several regions: each has a Redis, Envoys and an upstream of its own, and reaches the Redis of each other region over a network that
//! can be slow, or cut.

use std::net::SocketAddr;
use std::thread;

use super::envoy::Template;
use super::http::Request;
use super::proxy::{Network, Proxy};
use super::redis::Redis;
use super::weir::{Host, World, template};

/// The name of the region in this place.
pub const NAMES: [&str; 4] = ["ams", "bom", "cle", "dfw"];

/// A placeholder for the name of the region in a limiter's configuration.
pub const HERE: &str = "@here@";

/// One region.
#[derive(Debug)]
pub struct Region {
    pub lab: World,
    /// The networks to the Redis of each region, in their order; that to its own is always sound.
    pub networks: Vec<Proxy>,
}

impl Region {
    /// The address for clients of one of its Envoys.
    pub fn edge(&self, envoy: usize) -> SocketAddr {
        self.lab.envoys[envoy].address("edge")
    }

    pub fn status(&self, request: &Request) -> u16 {
        self.lab.send(request).status
    }
}

/// `regions` of a limiter's configuration, for so many regions.
pub fn section(count: usize, sync_interval: &str) -> String {
    let region =
        |name: &&str| format!(r#"{{"name": "{name}", "cluster": "weir-bridge-{name}", "deadline": "10s"}}"#);
    let all: Vec<_> = NAMES[..count].iter().map(region).collect();
    format!(
        r#""regions": {{"here": "{HERE}", "sync_interval": "{sync_interval}", "all": [{}]}}"#,
        all.join(", ")
    )
}

/// Starts so many regions of so many Envoys with two workers each. The limiter's configuration is the same for all, but for
/// [`HERE`].
pub fn start(limiter: &str, count: usize, envoys: usize) -> Vec<Region> {
    let stores = (0..count).map(|_| Redis::start().expect("a redis-server")).collect();
    start_on(stores, limiter, envoys, &|_, template| template)
}

/// As [`start`], a region on each of these stores. `change` gets the place of the region, and changes Envoy's configuration.
pub fn start_on(
    stores: Vec<Redis>,
    limiter: &str,
    envoys: usize,
    change: &(dyn Fn(usize, Template) -> Template + Sync),
) -> Vec<Region> {
    let addresses: Vec<_> = stores.iter().map(Redis::address).collect();
    let start = |(here, redis): (usize, Redis)| {
        let networks: Vec<_> = addresses.iter().map(|address| Proxy::start(*address)).collect();
        let limiter = limiter.replace(HERE, NAMES[here]);
        let others = (0..addresses.len()).filter(|other| *other != here);
        let others = others.map(|other| (NAMES[other], networks[other].address()));
        let lab = World::around(redis, |redis, upstream| {
            let shipped = template(&limiter, redis.address(), upstream);
            let config = with_stores(Host::chosen(), shipped.config(), redis.address(), others);
            vec![change(here, Template::new(&config).concurrency(2)); envoys]
        });
        Region { lab, networks }
    };
    thread::scope(|scope| {
        let started: Vec<_> =
            stores.into_iter().enumerate().map(|store| scope.spawn(move || start(store))).collect();
        started.into_iter().map(|region| region.join().expect("a region")).collect()
    })
}

/// All networks between the regions become like this.
pub fn set_all(regions: &[Region], network: &Network) {
    for (here, region) in regions.iter().enumerate() {
        let others = region.networks.iter().enumerate().filter(|(other, _)| *other != here);
        others.for_each(|(_, proxy)| proxy.set(network.clone()));
    }
}

/// The networks between the region in this place and all others, in both directions, become like this.
pub fn set_around(regions: &[Region], place: usize, network: &Network) {
    for (here, region) in regions.iter().enumerate() {
        for (there, proxy) in region.networks.iter().enumerate() {
            if here != there && (here == place || there == place) {
                proxy.set(network.clone());
            }
        }
    }
}

/// A configuration of Envoy with this host of weir, and with the clusters of more stores beside that of `redis`.
pub fn with_stores<'a>(
    host: Host,
    config: &str,
    redis: SocketAddr,
    others: impl Iterator<Item = (&'a str, SocketAddr)>,
) -> String {
    let (_, cluster) = config.split_once("  - name: weir-bridge\n").expect("the cluster");
    let (cluster, _) = cluster.split_once("  - name: upstream\n").expect("its end");
    let listener = match host {
        Host::Wasm => "",
        Host::Native => {
            let (_, listener) = config.split_once("  - name: weir-store\n").expect("the listener");
            listener.split_once("  # weir's clock").expect("its end").0
        }
    };
    let mut config = config.to_owned();
    for (name, address) in others {
        let renamed = |block: &str| {
            block
                .replace("cluster: weir-bridge", &format!("cluster: weir-bridge-{name}"))
                .replace("cluster_name: weir-bridge", &format!("cluster_name: weir-bridge-{name}"))
                .replace("@weir-store", &format!("@weir-store-{name}"))
                .replace(&format!("port_value: {}", redis.port()), &format!("port_value: {}", address.port()))
        };
        let cluster = format!("  - name: weir-bridge-{name}\n{}  - name: upstream\n", renamed(cluster));
        config = config.replacen("  - name: upstream\n", &cluster, 1);
        if !listener.is_empty() {
            let listener = format!("  - name: weir-store-{name}\n{}  # weir's clock", renamed(listener));
            config = config.replacen("  # weir's clock", &listener, 1);
        }
    }
    config
}
