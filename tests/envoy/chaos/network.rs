// SPDX-License-Identifier: Apache-2.0
//! The network between weir and Redis: one for each Envoy, the cluster of Redis, and the servers at the other end.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::last;
use crate::store::ok;
use crate::support::TempFolder;
use crate::support::envoy::Template;
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::weir::{apart, with_login};
use crate::world::{ENVOYS, Fault, Felt, Policy, Store};

pub struct Between {
    redis: Redis,
    networks: Vec<Proxy>,
    /// The folder in which each Envoy reads about the cluster of Redis, and reads again when the file is another one.
    discovery: TempFolder,
}

impl Store for Between {
    const RATE: u32 = 60;

    fn start() -> Self {
        let redis = Redis::start().expect("a redis-server");
        let networks = (0..ENVOYS).map(|_| Proxy::start(redis.address())).collect();
        Self { redis, networks, discovery: TempFolder::new("chaos") }
    }

    fn users(&mut self, _: &Policy, fault: usize) -> Vec<String> {
        vec![format!("user-{fault}")]
    }

    fn change(&self, envoy: usize, shipped: Template) -> Template {
        let redis = |port: u16| format!("127.0.0.1, port_value: {port}");
        let shipped =
            shipped.with(&redis(self.redis.address().port()), redis(self.networks[envoy].address().port()));
        // Redis has no password yet, and does not mind.
        fs::write(self.file(envoy, "login"), "yesterday").expect("a file");
        let (bridge, rest) = apart(&with_login(shipped.config(), &self.file(envoy, "login")));
        fs::write(self.file(envoy, "sound"), bridge).expect("a file");
        self.discover(envoy, "sound");
        Template::new(&rest).with(
            "static_resources:\n",
            format!(
                "node: {{id: weir, cluster: weir}}\ndynamic_resources: {{cds_config: {{resource_api_version: V3, \
                 path_config_source: {{path: {:?}}}}}}}\nstatic_resources:\n",
                self.file(envoy, "yaml")
            ),
        )
    }

    fn address(&self) -> SocketAddr {
        self.redis.address()
    }
}

impl Between {
    fn file(&self, envoy: usize, what: &str) -> PathBuf {
        self.discovery.path().join(format!("{envoy}.{what}"))
    }

    /// Puts this file in the place of the one that the Envoy reads, which is what it watches for.
    fn discover(&self, envoy: usize, what: &str) {
        let new = self.file(envoy, "new");
        let copied = fs::copy(self.file(envoy, what), &new);
        copied.and_then(|_| fs::rename(&new, self.file(envoy, "yaml"))).expect("a file");
    }

    fn networks(&self, network: &Network) {
        self.networks.iter().for_each(|each| each.set(network.clone()));
    }

    fn during(&self, network: &Network, hold: Duration) {
        self.networks(network);
        last(hold);
        self.networks(&Network::Sound);
    }
}

pub const FAULTS: &[Fault<Between>] = &[
    Fault { name: "a slow network: 10 ms each way", felt: Felt::ByNobody, forgets: 0, inject: slow::<10> },
    Fault { name: "a slower network: 100 ms each way", felt: Felt::ByAll, forgets: 0, inject: slow::<100> },
    Fault {
        name: "the network between one Envoy and Redis is cut",
        felt: Felt::AtFirstEnvoy,
        forgets: 0,
        inject: cut,
    },
    Fault { name: "replies end early", felt: Felt::ByAll, forgets: 0, inject: truncated },
    Fault { name: "somebody else answers, in HTTP", felt: Felt::ByAll, forgets: 0, inject: foreign },
    Fault { name: "somebody else answers, in RESP", felt: Felt::ByAll, forgets: 0, inject: strange },
    Fault {
        name: "the cluster of Redis goes missing in Envoy's configuration",
        felt: Felt::ByAll,
        forgets: 0,
        inject: no_cluster,
    },
    Fault {
        name: "Envoy's password is yesterday's: WRONGPASS",
        felt: Felt::ByAll,
        forgets: 0,
        inject: wrong_password,
    },
];

fn slow<const MILLIS: u64>(store: &mut Between, hold: Duration) {
    store.during(&Network::Slow(Duration::from_millis(MILLIS)), hold);
}

fn cut(store: &mut Between, hold: Duration) {
    store.networks[0].set(Network::Cut);
    last(hold);
    store.networks[0].set(Network::Sound);
}

fn truncated(store: &mut Between, hold: Duration) {
    store.during(&Network::Truncating(5), hold);
}

fn foreign(store: &mut Between, hold: Duration) {
    store.during(&Network::Foreign(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"), hold);
}

fn strange(store: &mut Between, hold: Duration) {
    store.during(&Network::Foreign(b"*2\r\n$4\r\nwhat\r\n:-1\r\n"), hold);
}

fn no_cluster(store: &mut Between, hold: Duration) {
    // Something is to be under way when it goes.
    store.networks(&Network::Cut);
    last(hold / 8);
    for envoy in 0..ENVOYS {
        fs::write(store.file(envoy, "none"), "resources: []\n").expect("a file");
        store.discover(envoy, "none");
    }
    last(hold);
    store.networks(&Network::Sound);
    (0..ENVOYS).for_each(|envoy| store.discover(envoy, "sound"));
}

fn wrong_password(store: &mut Between, hold: Duration) {
    let mut redis = store.redis.connect();
    // An error where there is none yet, as at first.
    redis.say("AUTH yesterday");
    ok(&mut redis, "CONFIG SET requirepass today's");
    redis.say("CLIENT KILL TYPE normal");
    last(hold);
    ok(&mut redis, "CONFIG SET requirepass yesterday");
    // Envoy presents its password when it connects, and never again.
    redis.say("CLIENT KILL TYPE normal");
}
