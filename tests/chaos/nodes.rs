//! A Redis Cluster: three primaries that share the slots evenly, and a replica of each.

use std::net::SocketAddr;

use crate::support::eventually;
use crate::support::redis::{Connection, Redis};

/// A primary counts as dead after this long without a sign of it, in milliseconds.
const NODE_TIMEOUT: u32 = 1_000;
const PRIMARIES: usize = 3;

/// A running cluster. Members are numbered from 0; who is a primary changes with every failover.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Redis>,
}

impl Cluster {
    /// Starts one and waits until all of it works. `None`, if there is no redis-server on this machine.
    pub fn start() -> Option<Self> {
        let members = (0..2 * PRIMARIES).map(|_| Redis::start_member(NODE_TIMEOUT));
        let cluster = Self { members: members.collect::<Option<_>>()? };
        let everybody = || 0..cluster.members.len();
        for (primary, slots) in ["0 5460", "5461 10922", "10923 16383"].into_iter().enumerate() {
            cluster.ask(primary, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
        }
        for member in &cluster.members {
            // Where the others hear from it is not where clients do, and not to be derived from that.
            let (port, bus) = (member.address().port(), member.connect().say("CONFIG GET cluster-port"));
            let bus = bus.lines().last().expect("its value").to_owned();
            cluster.ask(0, &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        let all = |what: &str, command: &str, members: &mut dyn Iterator<Item = usize>, says: &str| {
            for member in members {
                eventually(what, || cluster.ask(member, command).contains(says).then_some(()));
            }
        };
        all("all members know each other", "CLUSTER INFO", &mut everybody(), "cluster_known_nodes:6");
        for replica in PRIMARIES..2 * PRIMARIES {
            let primary = cluster.id(replica - PRIMARIES);
            eventually("a member knows its primary", || {
                cluster.ask(replica, &format!("CLUSTER REPLICATE {primary}")).starts_with("+OK").then_some(())
            });
        }
        let mut replicas = PRIMARIES..2 * PRIMARIES;
        all("replicas follow their primaries", "INFO replication", &mut replicas, "master_link_status:up");
        all("all slots are served", "CLUSTER INFO", &mut everybody(), "cluster_state:ok");
        Some(cluster)
    }

    /// Where the first of its members listens.
    pub fn seed(&self) -> SocketAddr {
        self.members[0].address()
    }

    /// The members, to do something to one of them.
    pub fn members(&mut self) -> &mut [Redis] {
        &mut self.members
    }

    /// A command to one member, in words; its reply.
    pub fn ask(&self, member: usize, command: &str) -> String {
        self.connect(member).say(command)
    }

    /// The primary that serves a key.
    pub fn owner(&self, key: &str) -> usize {
        let all = 0..self.members.len();
        let serves = |&member: &usize| !self.ask(member, &format!("TYPE {key}")).starts_with("-MOVED");
        all.into_iter().find(serves).expect("a primary for every slot")
    }

    /// All members that serve slots.
    pub fn primaries(&self) -> Vec<usize> {
        let serves = |&member: &usize| self.ask(member, "CLUSTER NODES").contains("myself,master");
        (0..self.members.len()).filter(serves).collect()
    }

    /// The replica that follows this primary.
    pub fn replica(&self, primary: usize) -> usize {
        let id = self.id(primary);
        let follows = |&member: &usize| {
            self.ask(member, "CLUSTER NODES")
                .lines()
                .any(|line| line.contains("myself,slave") && line.contains(&id))
        };
        (0..self.members.len()).find(follows).expect("a replica of every primary")
    }

    /// Waits until this replica has taken its primary's place, and the other members of `besides` know.
    pub fn await_promotion(&self, replica: usize, besides: usize) {
        let id = self.id(replica);
        for member in (0..self.members.len()).filter(|&member| member != besides) {
            eventually("a replica takes its primary's place", || {
                let nodes = self.ask(member, "CLUSTER NODES");
                let line = nodes.lines().find(|line| line.starts_with(&id))?;
                line.contains("master").then_some(())
            });
        }
    }

    /// Moves the slot of this key, and the key, to another primary.
    pub fn move_slot(&self, key: &str, to: usize) {
        let slot = self.ask(0, &format!("CLUSTER KEYSLOT {key}"));
        let (from, slot) = (self.owner(key), slot.trim_start_matches(':').trim_end().to_owned());
        let (from_id, to_id, port) = (self.id(from), self.id(to), self.members[to].address().port());
        let ok = |member, command: &str| {
            let reply = self.ask(member, command);
            assert!(reply.starts_with('+'), "{command}: {reply}");
        };
        ok(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
        ok(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
        ok(from, &format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
        ok(to, &format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
        ok(from, &format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }

    fn id(&self, member: usize) -> String {
        let reply = self.ask(member, "CLUSTER MYID");
        reply.lines().nth(1).expect("an id").to_owned()
    }

    fn connect(&self, member: usize) -> Connection {
        self.members[member].connect()
    }
}
