// SPDX-License-Identifier: Apache-2.0
//! A Redis Cluster, and what can happen to one of its primaries: the others' slots are none the worse for it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weir::policy::key::slot;

use crate::last;
use crate::support::cluster::Cluster;
use crate::support::envoy::Template;
use crate::support::weir::{Host, Kind, SHIPPED_TIME_TO_CONNECT, TIME_TO_CONNECT, template_of};
use crate::world::{Fault, Felt, Policy, Store};

pub struct Sharded {
    cluster: Cluster,
    /// The fault, and the slots of the users whose part of the store fails then.
    affected: (usize, Vec<u16>),
    /// The node that was killed and has not been started again.
    dead: Option<usize>,
    /// The number of times that Redis has lost a slot that was moved.
    lost: u32,
}

const SHARDS: usize = 3;

impl Store for Sharded {
    const RATE: u32 = 20;

    fn start() -> Self {
        let cluster = Cluster::start(SHARDS, true).expect("a redis-server");
        Self { cluster, affected: Default::default(), dead: None, lost: 0 }
    }

    /// One on each of the primaries; the first always on the same one as the other policies' first.
    fn users(&mut self, policy: &Policy, fault: usize) -> Vec<String> {
        if let Some(dead) = self.dead.take() {
            self.cluster.nodes[dead].restart();
            self.cluster.await_demotion(dead);
        }
        let mut on = Vec::<(usize, String, u16)>::new();
        for user in (0..).map(|user| format!("user-{fault}-{user}")) {
            let slot = slot(format!("{}|{user}", policy.name).as_bytes());
            let owner = self.cluster.owner(slot);
            if !on.iter().any(|(other, ..)| *other == owner) {
                on.push((owner, user, slot));
            }
            if on.len() == SHARDS {
                break;
            }
        }
        on.sort();
        if self.affected.0 != fault {
            self.affected = (fault, Vec::new());
        }
        self.affected.1.push(on[0].2);
        on.into_iter().map(|(_, user, _)| user).collect()
    }

    /// Envoy learns of moved slots and primaries within a quarter of a second, or twice that if it asks a dead node: most of the time to
    /// recover is then weir's own, which asks a part of the store that has failed at least once a second.
    fn shipped(&self, limiter: &str, upstream: SocketAddr) -> Template {
        let shipped = template_of(&Host::chosen().shipped_for(Kind::Cluster), limiter, upstream)
            .with(TIME_TO_CONNECT, SHIPPED_TIME_TO_CONNECT)
            .with("cluster_refresh_rate: 1s", "cluster_refresh_rate: 0.25s")
            .with("cluster_refresh_timeout: 0.5s", "cluster_refresh_timeout: 0.25s")
            .with("redirect_refresh_interval: 0.25s", "redirect_refresh_interval: 0.1s")
            .with(
                "failure_refresh_threshold: 1",
                "failure_refresh_threshold: 1\n        host_degraded_refresh_threshold: 1",
            );
        self.cluster.nodes.iter().zip(1..=SHARDS).fold(shipped, |shipped, (node, number)| {
            let at = format!("127.0.0.1, port_value: {}", node.address().port());
            shipped.with(&format!("redis-{number}, port_value: 6379"), at)
        })
    }

    fn address(&self) -> SocketAddr {
        self.cluster.nodes[0].address()
    }

    fn forgot(&mut self) -> u32 {
        std::mem::take(&mut self.lost)
    }
}

pub const FAULTS: &[Fault<Sharded>] = &[
    Fault {
        name: "cluster: slots move from primary to primary",
        felt: Felt::ByNobody,
        forgets: 0,
        inject: slots_move,
    },
    // Writes that a primary had not sent to its replica yet are forgotten. While it is silent, others wait for the batches that ask it:
    // three until weir no longer asks it, and then one a second at most for each part of its slots.
    Fault {
        name: "cluster: a primary is frozen, its replica takes over",
        felt: Felt::ByFirstUser { others: 10 },
        forgets: 1,
        inject: primary_freezes,
    },
    // A refused connection is an answer: no request waits.
    Fault {
        name: "cluster: a primary is killed, its replica takes over",
        felt: Felt::ByFirstUser { others: 1 },
        forgets: 1,
        inject: primary_dies,
    },
];

fn slots_move(store: &mut Sharded, hold: Duration) {
    let Sharded { cluster, affected: (_, slots), lost, .. } = store;
    let home = cluster.owner(slots[0]);
    let away = cluster.primaries().into_iter().find(|&primary| primary != home).expect("another primary");
    let redirected = cluster.errors(home, "MOVED");
    let began = Instant::now();
    while began.elapsed() < hold {
        for (from, to) in [(home, away), (away, home)] {
            slots.iter().for_each(|&slot| cluster.move_slot(slot, from, to));
            last(hold / 8);
            *lost += slots.iter().map(|&slot| u32::from(cluster.insist(slot, to))).sum::<u32>();
        }
    }
    assert!(cluster.errors(home, "MOVED") > redirected, "no worker has noticed");
}

fn primary_freezes(store: &mut Sharded, _: Duration) {
    let Sharded { cluster, affected: (_, slots), .. } = store;
    let primary = cluster.owner(slots[0]);
    let replica = cluster.replica(primary);
    cluster.nodes[primary].freeze();
    cluster.await_promotion(replica, primary);
    cluster.nodes[primary].thaw();
    cluster.await_demotion(primary);
}

fn primary_dies(store: &mut Sharded, _: Duration) {
    let Sharded { cluster, affected: (_, slots), dead, .. } = store;
    let primary = cluster.owner(slots[0]);
    let replica = cluster.replica(primary);
    cluster.nodes[primary].stop();
    cluster.await_promotion(replica, primary);
    *dead = Some(primary);
}
