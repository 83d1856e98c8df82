// SPDX-License-Identifier: Apache-2.0
//! A real store of each kind, and what `weir render` has to know of it.

use std::fs;
use std::path::Path;

use crate::support::TempFolder;
use crate::support::cluster::{Cluster, call};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{module, plugin};

/// A store, an upstream and a folder for files.
pub struct Stored {
    pub kind: &'static str,
    nodes: Vec<Redis>,
    _cluster: Option<Cluster>,
    pub upstream: Upstream,
    pub folder: TempFolder,
    addresses: Vec<String>,
}

impl Stored {
    pub fn start(kind: &'static str) -> Self {
        let folder = TempFolder::new("platforms");
        let (mut nodes, mut cluster) = (Vec::new(), None);
        match kind {
            "redis" => nodes.push(Redis::start().expect("a redis-server")),
            "tls" => nodes.push(secured(folder.path())),
            "sentinel" => {
                nodes = (0..2).map(|_| Redis::start().expect("a redis-server")).collect();
                let port = nodes[0].address().port().to_string();
                assert_eq!(call(&mut nodes[1].connect(), &["REPLICAOF", "127.0.0.1", &port]), "+OK\r\n");
                // Envoy's health check has no login, and neither has the replica.
                let others =
                    ["default", "resetkeys", "-@all", "+role", "+ping", "+replconf", "+psync", "+info"];
                for node in &nodes {
                    log_in(node, folder.path());
                    let mut admin = node.connect();
                    assert_eq!(call(&mut admin, &[&["ACL", "SETUSER"], &others[..]].concat()), "+OK\r\n");
                }
            }
            "cluster" => cluster = Some(Cluster::start(3, false).expect("a redis-server")),
            other => panic!("no store {other}"),
        }
        let all = cluster.as_ref().map_or(&nodes, |cluster| &cluster.nodes);
        let addresses = all.iter().map(|node| format!("127.0.0.1:{}", node.address().port())).collect();
        Self { kind, nodes, _cluster: cluster, upstream: Upstream::start(), folder, addresses }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The arguments for `--for PLATFORM`.
    pub fn arguments(&self, platform: &str, host: &str) -> Vec<String> {
        let code = if host == "native" { module() } else { plugin() };
        let mut all =
            ["--for", platform, "--store", self.kind, "--host", host, "--code"].map(str::to_owned).to_vec();
        all.push(code.display().to_string());
        for address in &self.addresses {
            all.extend([String::from("--redis"), address.clone()]);
        }
        if self.kind == "tls" {
            all.extend([String::from("--ca-file"), self.file("ca.crt")]);
        }
        if ["tls", "sentinel"].contains(&self.kind) {
            all.extend([String::from("--password-file"), self.file("password")]);
        }
        all
    }

    /// The address of the first node.
    pub fn redis_address(&self) -> (&str, &str) {
        self.addresses[0].split_once(':').expect("an address and a port")
    }

    /// The same with another store, as that of the region `bom`.
    pub fn arguments_beside(&self, bom: &Self, platform: &str, host: &str) -> Vec<String> {
        let mut all = self.arguments(platform, host);
        for address in &bom.addresses {
            all.extend([String::from("--redis"), format!("bom={address}")]);
        }
        if self.kind == "tls" {
            // One file with both authorities, and the same login.
            let read = |stored: &Self| fs::read_to_string(stored.file("ca.crt")).expect("a file");
            fs::write(self.file("ca.crt"), read(self) + &read(bom)).expect("a file");
        }
        all
    }

    /// The keys of the first node.
    pub fn keys(&self) -> String {
        call(&mut self.nodes[0].connect(), &["KEYS", "*"])
    }

    /// True if the store has run scripts. It has not if Envoy spoke to something else.
    pub fn asked(&self) -> bool {
        let nodes = self._cluster.as_ref().map_or(&self.nodes, |cluster| &cluster.nodes);
        self.kind == "tls"
            || nodes
                .iter()
                .any(|node| call(&mut node.connect(), &["INFO", "commandstats"]).contains("cmdstat_evalsha:"))
    }
}

/// A Redis that speaks TLS only, and refuses clients without a password.
fn secured(folder: &Path) -> Redis {
    let redis = Redis::start_tls("127.0.0.1", folder, &["--tls-auth-clients", "no"]).expect("a redis-server");
    log_in(&redis, folder);
    assert_eq!(call(&mut redis.connect(), &["ACL", "SETUSER", "default", "off"]), "+OK\r\n");
    redis
}

/// A user for weir, and a file with its login.
fn log_in(redis: &Redis, folder: &Path) {
    fs::write(folder.join("password"), "weir:correct horse\n").expect("a file");
    let user = ["ACL", "SETUSER", "weir", "on", ">correct horse", "~*", "+@all"];
    assert_eq!(call(&mut redis.connect(), &user), "+OK\r\n");
}
