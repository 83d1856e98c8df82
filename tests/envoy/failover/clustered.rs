// SPDX-License-Identifier: Apache-2.0
//! Three primaries with a replica each.

use weir::policy::key::{Tag, slot};

use crate::support::cluster::{Cluster, SLOTS};
use crate::support::envoy::Envoy;
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Kind, template_on_nodes};
use crate::{Fault, measure};

pub struct Clustered {
    cluster: Cluster,
    envoy: Envoy,
    _upstream: Upstream,
}

/// The replica of the first primary.
const REPLICA: usize = 3;

impl Clustered {
    pub fn start() -> Self {
        let (cluster, upstream) = (Cluster::start(3, true).expect("a redis-server"), Upstream::start());
        let addresses = cluster.nodes.iter().map(Redis::address);
        let template = template_on_nodes(Kind::Cluster, addresses, &measure::limiter(""), upstream.address());
        let envoy = template.concurrency(2).start();
        Self { cluster, envoy, _upstream: upstream }
    }
}

impl measure::World for Clustered {
    fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    fn user(number: usize) -> String {
        let is_first = |user: &String| {
            let mut tag = Tag::new("p");
            tag.part(Some(user.as_bytes()));
            slot(tag.finish().as_bytes()) < SLOTS / 3
        };
        (0..).map(|more| format!("{number}-{more}")).find(is_first).expect("endless")
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Paused => self.cluster.nodes[0].freeze(),
            _ => self.cluster.nodes[0].stop(),
        }
    }

    fn await_promotion(&mut self) {
        self.cluster.await_promotion(REPLICA, 0);
    }

    fn heal(&mut self, fault: Fault) {
        if fault == Fault::Paused {
            self.cluster.nodes[0].thaw();
            self.cluster.await_demotion(0);
        }
    }

    fn primary(&self) -> &Redis {
        &self.cluster.nodes[REPLICA]
    }
}
