// SPDX-License-Identifier: Apache-2.0
//! A primary, two replicas and a sentinel. All but Envoy reach each node through a proxy, which is its network.

use crate::support::cluster::call;
use crate::support::envoy::Envoy;
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::sentinel::{Sentinel, follow, is, is_primary};
use crate::support::weir::{Kind, Lab, template_on_nodes};
use crate::support::{PATIENCE, eventually, eventually_within};
use crate::{Case, Fault, LAG, measure};

pub struct Watched {
    lab: Lab<Vec<Redis>>,
    networks: Vec<Proxy>,
    sentinel: Sentinel,
}

impl Watched {
    pub fn start(case: &Case) -> Self {
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let nodes: Vec<_> = (0..3).map(|_| Redis::start_with(&at_once).expect("a redis-server")).collect();
        let networks: Vec<_> = nodes.iter().map(|node| Proxy::start(node.address())).collect();
        for (node, network) in nodes.iter().zip(&networks) {
            let port = network.address().port().to_string();
            set(node, "replica-announce-ip", "127.0.0.1");
            set(node, "replica-announce-port", &port);
            if case.refuses_writes {
                set(node, "min-replicas-max-lag", "1");
                set(node, "min-replicas-to-write", "1");
            }
        }
        follow(&nodes, networks[0].address());
        let sentinel = Sentinel::watching(networks[0].address(), &[]);
        sentinel.knows(2);
        if case.fault == Fault::Lost {
            networks[0].set(Network::Slow(LAG));
        }
        let more = match case.min_replicas {
            0 => String::new(),
            count => format!(r#", "topology": "single", "min_replicas": {count}"#),
        };
        let limiter = measure::limiter(&more);
        let lab = Lab::around(nodes, |nodes, upstream| {
            let addresses = nodes.iter().map(Redis::address);
            vec![template_on_nodes(Kind::Sentinel, addresses, &limiter, upstream).concurrency(2)]
        });
        let healthy = || lab.total("cluster.weir-bridge.membership_healthy");
        eventually("the primary, and it alone, to be healthy", || (healthy() == 1).then_some(()));
        Self { lab, networks, sentinel }
    }
}

fn set(node: &Redis, name: &str, value: &str) {
    assert_eq!(call(&mut node.connect(), &["CONFIG", "SET", name, value]), "+OK\r\n");
}

impl measure::World for Watched {
    fn envoy(&self) -> &Envoy {
        self.lab.envoy()
    }

    fn user(number: usize) -> String {
        number.to_string()
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Killed => self.lab.redis[0].stop(),
            Fault::Lost => {
                self.networks[0].set(Network::Lost);
                self.lab.redis[0].stop();
            }
            Fault::Partitioned => self.networks[0].set(Network::Cut),
            Fault::Paused => self.lab.redis[0].freeze(),
        }
    }

    fn await_promotion(&mut self) {
        eventually("sentinel to choose another", || self.lab.redis[1..].iter().any(is_primary).then_some(()));
        // Were the old primary back before sentinel has seen its choice lead, it would take it back.
        self.sentinel.has_left(self.networks[0].address());
    }

    fn heal(&mut self, fault: Fault) {
        match fault {
            Fault::Killed | Fault::Lost => return,
            Fault::Partitioned => self.networks[0].set(Network::Sound),
            Fault::Paused => self.lab.redis[0].thaw(),
        }
        // Sentinel looks at replicas every ten seconds, and corrects one that has said for eight that it is a primary.
        let demoted = || is(&self.lab.redis[0], "slave").then_some(());
        eventually_within(3 * PATIENCE, "the old primary to become a replica", demoted);
    }

    fn primary(&self) -> &Redis {
        self.lab.redis.iter().find(|node| is_primary(node)).expect("a primary")
    }
}
