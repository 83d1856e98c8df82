//! What lies between weir and Redis: a network for each Envoy of its own, the bridge, and who answers at the other end.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::last;
use crate::store::ok;
use crate::support::envoy::Template;
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::world::{Fault, Felt, Policy, Store};

pub struct Between {
    redis: Redis,
    networks: Vec<Proxy>,
    /// Where Envoy reads about the bridge's cluster, and reads again when the file is another one.
    discovery: PathBuf,
}

impl Store for Between {
    const RATE: u32 = 60;

    fn start() -> Self {
        let redis = Redis::start().expect("a redis-server");
        let networks = (0..2).map(|_| Proxy::start(redis.address())).collect();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let between = Self { redis, networks, discovery: folder.join("clusters.yaml") };
        between.discover(&bridge().1);
        between
    }

    fn users(&mut self, _: &Policy, fault: usize) -> Vec<String> {
        vec![format!("user-{fault}")]
    }

    fn change(&self, envoy: usize, shipped: Template) -> Template {
        let discovered = format!(
            "node: {{id: weir, cluster: weir}}\ndynamic_resources: {{cds_config: {{resource_api_version: V3, \
             path_config_source: {{path: {:?}}}}}}}\nstatic_resources:\n",
            self.discovery
        );
        let redis = |port: u16| format!("127.0.0.1, port_value: {port}");
        shipped
            .with(&bridge().0, "")
            .with("static_resources:\n", discovered)
            .with(&redis(self.redis.address().port()), redis(self.networks[envoy].address().port()))
            // Redis has none yet, and does not mind.
            .with("  - name: redis\n    type", PASSWORD)
    }

    fn address(&self) -> SocketAddr {
        self.redis.address()
    }
}

const PASSWORD: &str = r#"  - name: redis
    typed_extension_protocol_options:
      envoy.filters.network.redis_proxy:
        "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions
        auth_password: {inline_string: yesterday}
    type"#;

impl Drop for Between {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.discovery.parent().expect("a folder"));
    }
}

impl Between {
    /// Replaces the file as a whole, which is what Envoy watches for.
    fn discover(&self, clusters: &str) {
        let new = self.discovery.with_extension("new");
        fs::write(&new, clusters).and_then(|()| fs::rename(&new, &self.discovery)).expect("a file");
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

/// The bridge's cluster in the shipped configuration, and the same for discovery.
fn bridge() -> (String, String) {
    let shipped = include_str!("../../envoy/weir.yaml");
    let (begin, end) = ("  - name: weir-bridge\n    connect_timeout", "  # One connection per worker");
    let from = shipped.find(begin).expect("the bridge's cluster");
    let (cluster, _) = shipped[from..].split_once(end).expect("another cluster after it");
    let fields = cluster.trim_start_matches("  - ").replace("\n  ", "\n");
    let kind = r#"- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster"#;
    (cluster.to_owned(), format!("resources:\n{kind}\n  {fields}"))
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
        name: "the bridge goes missing in Envoy's configuration",
        felt: Felt::ByAll,
        forgets: 0,
        inject: no_bridge,
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

fn no_bridge(store: &mut Between, hold: Duration) {
    // Something is to be under way when it goes.
    store.networks(&Network::Cut);
    last(hold / 8);
    store.discover("resources: []\n");
    last(hold);
    store.networks(&Network::Sound);
    store.discover(&bridge().1);
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
