// SPDX-License-Identifier: Apache-2.0
//! A private Redis Cluster: primaries that share the slots in equal parts, and a replica for each where a test wants them.

use std::ops::RangeInclusive;

use super::eventually;
use super::redis::{Connection, Redis, binary};

/// The number of slots.
pub const SLOTS: u16 = 16_384;

/// A running cluster. At first the first nodes are the primaries, in the order of their slots; then come their replicas, in
/// the same order. Failovers change that.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Redis>,
    shards: usize,
}

impl Cluster {
    /// Starts one and waits until every node agrees that it is whole. `None`, if there is no redis-server on this machine.
    pub fn start(shards: usize, replicated: bool) -> Option<Self> {
        binary()?;
        let count = if replicated { 2 * shards } else { shards };
        let started: Vec<_> = (0..count).map(|_| Redis::start_node()).collect::<Option<_>>()?;
        let meet: Vec<_> =
            started.iter().map(|(node, bus)| (node.address().port().to_string(), bus.to_string())).collect();
        let cluster = Self { nodes: started.into_iter().map(|(node, _)| node).collect(), shards };
        for (index, node) in cluster.nodes.iter().take(shards).enumerate() {
            let (from, to) = (cluster.first_slot(index), cluster.first_slot(index + 1) - 1);
            ok(&mut node.connect(), &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        }
        // The first node meets all, also itself: from a node that meets it, a node hears its own address. If one stands still for a moment,
        // only one of two may know the other. So a node that does not know the first one meets it, too.
        eventually("the nodes to know each other", || {
            let told = format!("cluster_known_nodes:{count}\r");
            let mut all_know = true;
            for (index, node) in cluster.nodes.iter().enumerate() {
                let mut node = node.connect();
                let known = call(&mut node, &["CLUSTER", "NODES"]);
                let wanted = if index == 0 { count } else { 1 };
                for (port, bus) in meet.iter().take(wanted) {
                    if !known.contains(&format!("127.0.0.1:{port}@")) {
                        all_know = false;
                        ok(&mut node, &["CLUSTER", "MEET", "127.0.0.1", port, bus]);
                    }
                }
                all_know &= call(&mut node, &["CLUSTER", "INFO"]).contains(&told);
            }
            all_know.then_some(())
        });
        for (index, replica) in cluster.nodes.iter().enumerate().skip(shards) {
            let primary = cluster.id(index - shards);
            eventually("the replica to know its primary", || {
                (call(&mut replica.connect(), &["CLUSTER", "REPLICATE", &primary]) == "+OK\r\n").then_some(())
            });
            eventually("the replica to follow its primary", || {
                call(&mut replica.connect(), &["ROLE"]).contains("connected").then_some(())
            });
        }
        cluster.wait_for("cluster_state:ok");
        cluster.wait_for(&format!("cluster_size:{shards}\r"));
        Some(cluster)
    }

    /// The node that has this slot, unless it was moved or its primary replaced.
    pub fn home(&self, slot: u16) -> usize {
        (0..self.shards).rfind(|&index| self.first_slot(index) <= slot).expect("a primary")
    }

    /// The node that has this slot now, as the nodes themselves say. All of them must be running.
    pub fn owner(&self, slot: u16) -> usize {
        let has = |&node: &usize| self.slots(node).iter().any(|slots| slots.contains(&slot));
        (0..self.nodes.len()).find(has).expect("somebody who has the slot")
    }

    /// The nodes that have slots now.
    pub fn primaries(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| !self.slots(node).is_empty()).collect()
    }

    /// The replica that follows this primary.
    pub fn replica(&self, primary: usize) -> usize {
        let id = self.id(primary);
        let follows = |&node: &usize| self.is(node, "slave") && self.myself(node).contains(&id);
        (0..self.nodes.len()).find(follows).expect("a replica of every primary")
    }

    /// Waits until this node is a replica.
    pub fn await_demotion(&self, node: usize) {
        eventually("a primary that comes back follows the new one", || self.is(node, "slave").then_some(()));
    }

    /// Waits until this replica has taken its primary's place, and all know but that primary.
    pub fn await_promotion(&self, replica: usize, primary: usize) {
        let id = self.id(replica);
        for node in (0..self.nodes.len()).filter(|&node| node != primary) {
            eventually("a replica takes its primary's place", || {
                let nodes = self.ask(node, &["CLUSTER", "NODES"]);
                let line = nodes.lines().find(|line| line.starts_with(&id))?;
                line.contains("master").then_some(())
            });
        }
    }

    /// The id of a node.
    pub fn id(&self, node: usize) -> String {
        self.ask(node, &["CLUSTER", "MYID"]).lines().nth(1).expect("a bulk string").into()
    }

    /// Moves a slot with its keys.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    /// Begins to move a slot: keys that `from` does not have are now asked of `to` (`ASK`).
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, source, target) = (slot.to_string(), self.id(from), self.id(to));
        ok(&mut self.nodes[to].connect(), &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        ok(&mut self.nodes[from].connect(), &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Moves the keys of a slot; how many there were.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) -> usize {
        let mut source = self.nodes[from].connect();
        let keys = call(&mut source, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        let keys: Vec<_> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let port = self.nodes[to].address().port().to_string();
        for key in &keys {
            ok(&mut source, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        keys.len()
    }

    /// Ends a move: from now on `from` answers `MOVED`.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, target) = (slot.to_string(), self.id(to));
        for node in [to, from] {
            ok(&mut self.nodes[node].connect(), &["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }

    /// Sees to it that a node still has a slot that was moved to it. Returns whether it had lost the slot with its keys: Redis 7.0.13 to 7.2.3
    /// may believe an older message of the node that had it before. Then each of the two says for ever that the other has it.
    pub fn insist(&self, slot: u16, node: usize) -> bool {
        let is_lost = !self.slots(node).iter().any(|slots| slots.contains(&slot));
        if is_lost {
            let words = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.id(node)];
            ok(&mut self.nodes[node].connect(), &words);
            eprintln!("Redis had lost slot {slot}");
        }
        is_lost
    }

    /// The number of times that a node answered with this error, which is one word.
    pub fn errors(&self, node: usize, error: &str) -> u64 {
        let stats = self.ask(node, &["INFO", "errorstats"]);
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("errorstat_{error}:count="))?.parse().ok());
        count.unwrap_or(0)
    }

    fn ask(&self, node: usize, words: &[&str]) -> String {
        call(&mut self.nodes[node].connect(), words)
    }

    fn is(&self, node: usize, role: &str) -> bool {
        self.myself(node).contains(&format!("myself,{role}"))
    }

    /// A node's line about itself: id, address, role, primary, five more, and the slots that it has.
    fn myself(&self, node: usize) -> String {
        let nodes = self.ask(node, &["CLUSTER", "NODES"]);
        nodes.lines().find(|line| line.contains("myself,")).expect("a node that knows itself").into()
    }

    fn slots(&self, node: usize) -> Vec<RangeInclusive<u16>> {
        // Slots in brackets are being moved.
        let myself = self.myself(node);
        let slots = myself.split(' ').skip(8).filter(|slots| !slots.starts_with('['));
        let slot = |slot: &str| slot.parse::<u16>().expect("a slot");
        slots
            .map(|slots| slots.split_once('-').unwrap_or((slots, slots)))
            .map(|(a, b)| slot(a)..=slot(b))
            .collect()
    }

    fn first_slot(&self, shard: usize) -> u16 {
        u16::try_from(usize::from(SLOTS) * shard / self.shards).expect("a slot")
    }

    fn wait_for(&self, told: &str) {
        for node in &self.nodes {
            let mut connection = node.connect();
            eventually(told, || call(&mut connection, &["CLUSTER", "INFO"]).contains(told).then_some(()));
        }
    }
}

/// The reply to a command, as text.
pub fn call(redis: &mut Connection, words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    String::from_utf8_lossy(&redis.call(&words)).into_owned()
}

/// Waits until this many replicas have all that the primary has written. `WAIT` would wait only for what its own connection wrote.
pub fn are_replicated(primary: &mut Connection, replicas: usize) {
    eventually("the replicas to have all writes", || {
        let info = call(primary, &["INFO", "replication"]);
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let written = info.lines().find_map(|line| number(line.strip_prefix("master_repl_offset:")?))?;
        let of_replicas = info.lines().filter(|line| line.starts_with("slave"));
        let offsets = of_replicas
            .filter_map(|line| line.split(',').find_map(|part| number(part.strip_prefix("offset=")?)));
        (offsets.filter(|offset| *offset >= written).count() == replicas).then_some(())
    });
}

fn ok(redis: &mut Connection, words: &[&str]) {
    assert_eq!(call(redis, words), "+OK\r\n", "{words:?}");
}
