// SPDX-License-Identifier: Apache-2.0
//! Three primaries with a replica each.

use weir::policy::key::{Tag, slot};

use crate::support::cluster::{Cluster, SLOTS};
use crate::support::envoy::Envoy;
use crate::support::redis::Redis;
use crate::support::weir::{Kind, Lab, template_on_nodes};
use crate::{Fault, measure};

pub struct Clustered(Lab<Cluster>);

/// The replica of the first primary.
const REPLICA: usize = 3;

impl Clustered {
    pub fn start() -> Self {
        Self(Lab::around(Cluster::start(3, true).expect("a redis-server"), |cluster, upstream| {
            let addresses = cluster.nodes.iter().map(Redis::address);
            vec![template_on_nodes(Kind::Cluster, addresses, &measure::limiter(""), upstream).concurrency(2)]
        }))
    }
}

impl measure::World for Clustered {
    fn envoy(&self) -> &Envoy {
        self.0.envoy()
    }

    fn user(number: usize) -> String {
        let is_first = |user: &String| {
            let mut tag = Tag::new("p");
            tag.part(Some(user.as_bytes()));
            slot(&tag.finish()) < SLOTS / 3
        };
        (0..).map(|more| format!("{number}-{more}")).find(is_first).expect("endless")
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Paused => self.0.redis.nodes[0].freeze(),
            _ => self.0.redis.nodes[0].stop(),
        }
    }

    fn await_promotion(&mut self) {
        self.0.redis.await_promotion(REPLICA, 0);
    }

    fn heal(&mut self, fault: Fault) {
        if fault == Fault::Paused {
            self.0.redis.nodes[0].thaw();
            self.0.redis.await_demotion(0);
        }
    }

    fn primary(&self) -> &Redis {
        &self.0.redis.nodes[REPLICA]
    }
}
