//! A Redis Cluster, and what can happen to one of its primaries: the others' slots are none the worse for it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::last;
use crate::nodes::Cluster;
use crate::support::envoy::Template;
use crate::support::eventually;
use crate::world::{Fault, Felt, Policy, Store};

pub struct Sharded {
    cluster: Cluster,
    /// The keys of the users whose part of the store fails.
    affected: Vec<String>,
    /// Who was killed and has not been started again.
    dead: Option<usize>,
}

/// Hears of slots and primaries that move within a quarter of a second, or twice that if it asks who has died: most of the
/// time to recover is then weir's own, which asks a part of the store that has failed at least once a second.
const CLUSTERED: &str = r#"  - name: redis
    lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.redis
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig
        cluster_refresh_rate: 0.25s
        cluster_refresh_timeout: 0.25s
        redirect_refresh_interval: 0.1s
        redirect_refresh_threshold: 1
        failure_refresh_threshold: 1
        host_degraded_refresh_threshold: 1
"#;

impl Store for Sharded {
    const RATE: u32 = 30;

    fn start() -> Self {
        Self { cluster: Cluster::start().expect("a redis-server"), affected: Vec::new(), dead: None }
    }

    /// One on each of the primaries; the first always on the same one as the other policies' first.
    fn users(&mut self, policy: &Policy, fault: usize) -> Vec<String> {
        if let Some(dead) = self.dead.take() {
            self.cluster.members()[dead].restart();
            follows(&self.cluster, dead);
        }
        let key = |user: &str| format!("weir:{{{}|{user}}}:l", policy.name);
        let mut on = Vec::<(usize, String)>::new();
        for user in (0..).map(|user| format!("user-{fault}-{user}")) {
            let owner = self.cluster.owner(&key(&user));
            if !on.iter().any(|(other, _)| *other == owner) {
                on.push((owner, user));
            }
            if on.len() == 3 {
                break;
            }
        }
        on.sort();
        let users: Vec<_> = on.into_iter().map(|(_, user)| user).collect();
        self.affected.retain(|key| key.contains(&format!("user-{fault}-")));
        self.affected.push(key(&users[0]));
        users
    }

    fn change(&self, _: usize, shipped: Template) -> Template {
        shipped.with("  - name: redis\n    type: STRICT_DNS\n", CLUSTERED).with(
            "enable_hashtagging: true\n",
            "enable_hashtagging: true\n            enable_redirection: true\n",
        )
    }

    fn address(&self) -> SocketAddr {
        self.cluster.seed()
    }
}

pub const FAULTS: &[Fault<Sharded>] = &[
    Fault {
        name: "cluster: slots move from primary to primary",
        felt: Felt::ByNobody,
        forgets: 0,
        inject: slots_move,
    },
    // What a primary had not told its replica yet is forgotten.
    Fault {
        name: "cluster: a primary is frozen, its replica takes over",
        felt: Felt::ByFirstUser { others: 10 },
        forgets: 1,
        inject: primary_freezes,
    },
    Fault {
        name: "cluster: a primary is killed, its replica takes over",
        felt: Felt::ByFirstUser { others: 10 },
        forgets: 1,
        inject: primary_dies,
    },
];

fn slots_move(store: &mut Sharded, hold: Duration) {
    let cluster = &store.cluster;
    let home = cluster.owner(&store.affected[0]);
    let away = cluster.primaries().into_iter().find(|&primary| primary != home).expect("another primary");
    let began = Instant::now();
    while began.elapsed() < hold {
        for to in [away, home] {
            store.affected.iter().for_each(|key| cluster.move_slot(key, to));
            last(hold / 8);
        }
    }
}

fn primary_freezes(store: &mut Sharded, _: Duration) {
    let cluster = &mut store.cluster;
    let primary = cluster.owner(&store.affected[0]);
    let replica = cluster.replica(primary);
    cluster.members()[primary].freeze();
    cluster.await_promotion(replica, primary);
    cluster.members()[primary].thaw();
    follows(cluster, primary);
}

fn primary_dies(store: &mut Sharded, _: Duration) {
    let cluster = &mut store.cluster;
    let primary = cluster.owner(&store.affected[0]);
    let replica = cluster.replica(primary);
    cluster.members()[primary].stop();
    cluster.await_promotion(replica, primary);
    store.dead = Some(primary);
}

/// Waits until what was a primary is a replica.
fn follows(cluster: &Cluster, member: usize) {
    eventually("a primary that comes back follows the new one", || {
        cluster.ask(member, "CLUSTER NODES").contains("myself,slave").then_some(())
    });
}
