// SPDX-License-Identifier: Apache-2.0
//! A private Redis Sentinel, and a primary with replicas for it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::cluster::call;
use super::redis::{Connection, Redis, binary, free_address};
use super::{TempFolder, eventually};

/// A sentinel that alone decides, quickly; it is killed when dropped.
pub struct Sentinel {
    process: Child,
    folder: TempFolder,
    address: SocketAddr,
}

impl Sentinel {
    pub fn start(primary: &Redis) -> Self {
        Self::start_with(primary, &[])
    }

    /// The same, with more lines of configuration.
    pub fn start_with(primary: &Redis, more: &[String]) -> Self {
        Self::watching(primary.address(), more)
    }

    /// The same, of the primary that is reached here.
    pub fn watching(primary: SocketAddr, more: &[String]) -> Self {
        let (folder, address) = (TempFolder::new("sentinel"), free_address());
        let config = folder.path().join("sentinel.conf");
        let lines = [
            "bind 127.0.0.1".to_owned(),
            format!("port {}", address.port()),
            format!("unixsocket {}", folder.path().join("sentinel.sock").display()),
            format!("dir {}", folder.path().display()),
            format!("sentinel monitor weir 127.0.0.1 {} 1", primary.port()),
            "sentinel down-after-milliseconds weir 500".to_owned(),
            "sentinel failover-timeout weir 2000".to_owned(),
        ];
        std::fs::write(&config, [&lines, more].concat().join("\n")).expect("sentinel's configuration");
        let process = Command::new(binary().expect("a redis-server"))
            .arg(&config)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let sentinel = Self { process: process.expect("redis-server runs"), folder, address };
        // It may want a login, so any answer counts.
        eventually("sentinel to answer", || {
            Connection::try_to(&sentinel.socket()).map(|mut connection| call(&mut connection, &["PING"]))
        });
        sentinel
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sentinel.sock")
    }

    /// Its address, for clients that need a port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it knows so many replicas, which is when it can replace the primary.
    pub fn knows(&self, replicas: usize) {
        let mut connection = Connection::to(&self.socket());
        eventually("sentinel to know the replicas", || {
            let told = call(&mut connection, &["SENTINEL", "REPLICAS", "weir"]);
            let whole = told.starts_with(&format!("*{replicas}\r\n")) && !told.contains("err\r\n");
            whole.then_some(())
        });
    }

    /// A node counts as dead after so many milliseconds without an answer. On a busy machine one that lives may say nothing for seconds, and
    /// sentinel corrects only nodes that were never dead for eight.
    pub fn waits(&self, milliseconds: u32) {
        let (mut connection, span) = (Connection::to(&self.socket()), milliseconds.to_string());
        let set = ["SENTINEL", "SET", "weir", "down-after-milliseconds", &span];
        assert_eq!(call(&mut connection, &set), "+OK\r\n");
        // It replaces no primary for half a minute after its machine stood still for two seconds. Redis before 7.0 cannot be told otherwise.
        call(&mut connection, &["SENTINEL", "DEBUG", "TILT-TRIGGER", "60000", "TILT-PERIOD", "1000"]);
    }

    /// Waits until the primary that it tells others is not this one any more.
    pub fn has_left(&self, primary: SocketAddr) {
        let mut connection = Connection::to(&self.socket());
        let port = primary.port().to_string();
        eventually("sentinel to tell of another primary", || {
            let told = call(&mut connection, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "weir"]);
            (!told.contains(&port)).then_some(())
        });
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a node's answer to a command. A sentinel that changes a node's role closes all connections to it: a client without an answer
/// asks again.
pub fn says(node: &Redis, command: &str) -> Option<String> {
    let mut connection = UnixStream::connect(node.socket()).ok()?;
    connection.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).ok()?;
    let mut told = String::new();
    connection.read_to_string(&mut told).ok().filter(|length| *length > 0).map(|_| told)
}

/// True if a node has this role.
pub fn is(node: &Redis, role: &str) -> bool {
    says(node, "ROLE").is_some_and(|told| told.contains(role))
}

pub fn is_primary(node: &Redis) -> bool {
    is(node, "master")
}

/// A primary, and two replicas that follow it.
pub fn replicated() -> Vec<Redis> {
    let nodes: Vec<_> = (0..3).map(|_| Redis::start().expect("a redis-server")).collect();
    follow(&nodes, nodes[0].address());
    nodes
}

/// All nodes but the first follow it, as it is reached here.
pub fn follow(nodes: &[Redis], primary: SocketAddr) {
    let port = primary.port().to_string();
    for replica in &nodes[1..] {
        assert_eq!(call(&mut replica.connect(), &["REPLICAOF", "127.0.0.1", &port]), "+OK\r\n");
        eventually("the replica to follow", || {
            call(&mut replica.connect(), &["ROLE"]).contains("connected").then_some(())
        });
    }
}
