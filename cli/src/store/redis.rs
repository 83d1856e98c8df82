// SPDX-License-Identifier: Apache-2.0
//! weir's Redis: one server, the primary that sentinels know, or a Redis Cluster. The servers themselves say which of them it is. Every
//! wait is bounded. So sentinels are asked here: the blocking client that the crate `redis` has for them waits without a bound.

use std::time::Duration;

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ConnectionLike as _, RedisError, Value,
};

use super::super::Failure;
use super::failure::{line, sentence};
use super::login::{Access, name, without_login};
use weir::limit::{Ask, Outcome, Permits};
use weir::resp;
use weir::script::{BadReply, Form, Plan};
use weir::time::Micros;

/// The number of times that a command is sent again to a cluster whose slots move.
const RETRIES: u32 = 4;

pub(in super::super) struct Redis {
    link: Link,
    name: String,
    /// The host of the place that was connected to first.
    host: String,
    /// The user of the login.
    user: String,
    timeout: Duration,
}

enum Link {
    One(Box<Connection>),
    Cluster(Box<ClusterConnection>),
}

/// The kind of server that a server says it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server,
    Cluster,
    Sentinel,
}

/// A server whose keys can be scanned.
#[derive(Clone)]
pub(in super::super) enum Node {
    Only,
    /// A primary of a cluster: host and port.
    Primary(String, u16),
}

impl Redis {
    /// Connects to the first of these places that answers, or to what it belongs to.
    pub(super) fn connect(places: &[ConnectionInfo], access: &Access) -> Result<Self, Failure> {
        let mut failures = Vec::new();
        for place in places {
            match Self::connect_to(place, places, access) {
                Ok(redis) => return Ok(redis),
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures.join("\n"))
    }

    fn connect_to(place: &ConnectionInfo, all: &[ConnectionInfo], access: &Access) -> Result<Self, Failure> {
        let name = name(place.addr());
        let failed = |error: RedisError| sentence(&name, &error, access.timeout);
        let (mut connection, kind) = Self::meet(place, access).map_err(failed)?;
        let link = match kind {
            Kind::Server => {
                select(&mut connection, place).map_err(failed)?;
                Link::One(Box::new(connection))
            }
            Kind::Cluster => Link::Cluster(Box::new(cluster(all, access).map_err(failed)?)),
            Kind::Sentinel => return Self::primary(&name, connection, place, access),
        };
        Ok(Self { link, name, host: host(place.addr()), user: user(place), timeout: access.timeout })
    }

    /// Connects to what may be a sentinel, which may have a login of its own, or none.
    fn meet(place: &ConnectionInfo, access: &Access) -> Result<(Connection, Kind), RedisError> {
        let sentinel = |as_sentinel: ConnectionInfo| {
            greet(as_sentinel, access).ok().filter(|(_, kind)| *kind == Kind::Sentinel)
        };
        if let Some(user) = &access.sentinels
            && let Some(met) = sentinel(user.at(place.clone()))
        {
            return Ok(met);
        }
        greet(place.clone(), access).or_else(|error| {
            let has_login = place.redis_settings().password().is_some();
            if !has_login || error.is_io_error() {
                return Err(error);
            }
            sentinel(without_login(place.clone())).ok_or(error)
        })
    }

    /// Connects to the primary that this sentinel knows.
    fn primary(
        sentinel: &str,
        mut connection: Connection,
        place: &ConnectionInfo,
        access: &Access,
    ) -> Result<Self, Failure> {
        let failed = |error: RedisError| sentence(sentinel, &error, access.timeout);
        let mut ask = |words: &[&str]| -> Result<Value, Failure> {
            let mut command = Cmd::new();
            words.iter().for_each(|word| {
                command.arg(word);
            });
            answer(connection.req_command(&command)).map_err(failed)
        };
        let known: Vec<String> = items(ask(&["SENTINEL", "MASTERS"])?)
            .into_iter()
            .filter_map(|primary| field(&items(primary), "name"))
            .collect();
        let shown = known.join(", ").escape_debug().to_string();
        let wanted = match (&access.sentinel, known.as_slice()) {
            (Some(name), _) if known.contains(name) => name,
            (Some(name), _) => {
                return Err(format!("the sentinel at {sentinel} knows no primary {name:?}, but: {shown}"));
            }
            (None, [only]) => only,
            (None, []) => return Err(format!("the sentinel at {sentinel} knows no primary")),
            (None, _) => {
                return Err(format!(
                    "the sentinel at {sentinel} knows several primaries: choose one with --sentinel, of {shown}"
                ));
            }
        };
        let address = items(ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", wanted])?);
        let words: Vec<String> = address.iter().filter_map(text).collect();
        let [host, port] = words.as_slice() else {
            return Err(format!("the sentinel at {sentinel} knows no address of {wanted:?}"));
        };
        let port: u16 = port.parse().map_err(|_| format!("{port:?}, which a sentinel said, is no port"))?;
        let primary = at(place.clone(), host.clone(), port);
        let name = name(primary.addr());
        let failed = |error: RedisError| sentence(&name, &error, access.timeout);
        let (mut connection, _) = greet(primary.clone(), access).map_err(failed)?;
        select(&mut connection, &primary).map_err(failed)?;
        // A sentinel learns of a failover a moment late. If the user may not ask for the role, the first write shows it.
        let role = answer(connection.req_command(&redis::cmd("ROLE")));
        if let Ok(role) = role
            && items(role).first().and_then(text).is_some_and(|role| role != "master")
        {
            return Err(format!(
                "Redis at {name}: the sentinel says that it is the primary, and it is a replica"
            ));
        }
        let link = Link::One(Box::new(connection));
        Ok(Self { link, name, host: host.clone(), user: user(place), timeout: access.timeout })
    }

    /// True if keys of different subjects may be on different nodes.
    pub const fn is_cluster(&self) -> bool {
        matches!(self.link, Link::Cluster(_))
    }

    /// The user that Redis knows this connection by.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Asks the limits of a subject; at `now`, or by Redis's own clock.
    pub fn check(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        ask: Ask,
        now: Option<Micros>,
    ) -> Result<Outcome, Failure> {
        self.run(|form, out| plan.check(tag, ask, now, form, out), |reply| plan.outcome(reply))
    }

    /// Charges `units`, or refunds them if they are negative.
    pub fn settle(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        units: i64,
        receipt: &Outcome,
        now: Micros,
    ) -> Result<Outcome, Failure> {
        let command = |form, out: &mut Vec<u8>| plan.settle(tag, units, receipt, Some(now), form, out);
        self.run(command, |reply| plan.outcome(reply))
    }

    pub fn release(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        permits: &[Permits],
        now: Micros,
    ) -> Result<(), Failure> {
        if permits.is_empty() {
            return Ok(());
        }
        let command = |form, out: &mut Vec<u8>| {
            plan.release(tag, permits, Some(now), form, out);
        };
        self.run(command, |_| Ok(()))
    }

    pub fn renew(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        receipt: &Outcome,
        now: Micros,
    ) -> Result<Outcome, Failure> {
        let permits: Vec<_> = receipt.permits(1).collect();
        let command = |form, out: &mut Vec<u8>| {
            plan.renew(tag, &permits, Some(now), form, out);
        };
        self.run(command, |reply| plan.renewed(receipt, reply))
    }

    /// Runs a script by its SHA-1 or, if this Redis does not know it, by its source.
    pub fn run<T>(
        &mut self,
        command: impl Fn(Form, &mut Vec<u8>),
        read: impl Fn(&resp::Reply<'_>) -> Result<T, BadReply>,
    ) -> Result<T, Failure> {
        let send = |redis: &mut Self, form| {
            let mut out = Vec::new();
            command(form, &mut out);
            redis.packed(&out)
        };
        let reply = match send(self, Form::Evalsha) {
            Err(error) if line(&error).is_some_and(|line| weir::script::is_noscript(line.as_bytes())) => {
                send(self, Form::Eval)
            }
            reply => reply,
        };
        let reply = reply.map_err(|error| self.failed(&error))?;
        read(&as_reply(&reply)).map_err(|bad| format!("Redis at {}: {bad}", self.name))
    }

    fn packed(&mut self, command: &[u8]) -> Result<Value, RedisError> {
        answer(match &mut self.link {
            Link::One(connection) => connection.req_packed_command(command),
            Link::Cluster(connection) => connection.req_packed_command(command),
        })
    }

    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Value, Failure> {
        let mut command = Vec::new();
        resp::array_header(&mut command, words.len());
        words.iter().for_each(|word| resp::bulk(&mut command, word));
        self.packed(&command).map_err(|error| self.failed(&error))
    }

    /// The fields of a hash, and their values.
    pub fn hash(&mut self, key: &[u8]) -> Result<Vec<[Vec<u8>; 2]>, Failure> {
        let all = items(self.ask(&[b"HGETALL", key])?);
        let pair = |[field, value]: &[Value; 2]| Some([bytes(field)?.to_vec(), bytes(value)?.to_vec()]);
        Ok(all.as_chunks().0.iter().filter_map(pair).collect())
    }

    /// The members of a sorted set, in their order.
    pub fn sorted_set(&mut self, key: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let all = items(self.ask(&[b"ZRANGE", key, b"0", b"-1"])?);
        Ok(all.iter().filter_map(bytes).map(<[u8]>::to_vec).collect())
    }

    /// The servers that have the keys.
    pub fn nodes(&mut self) -> Result<Vec<Node>, Failure> {
        let Link::Cluster(connection) = &mut self.link else { return Ok(vec![Node::Only]) };
        let anyone = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let slots = answer(connection.route_command(redis::cmd("CLUSTER").arg("SLOTS"), anyone));
        let slots = slots.map_err(|error| self.failed(&error))?;
        // Each range: its first and last slot, then its primary and replicas, each a host and a port.
        let primary = |range: Value| {
            let range = items(range);
            let Some(Value::Array(node)) = range.get(2) else { return None };
            let Some(Value::Int(port)) = node.get(1) else { return None };
            // A node that does not know its own address leaves the field empty: the client uses the address that it has.
            let host = node.first().and_then(text).filter(|host| !host.is_empty());
            Some((host.unwrap_or_else(|| self.host.clone()), u16::try_from(*port).ok()?))
        };
        let primaries: Option<Vec<_>> = items(slots).into_iter().map(primary).collect();
        let Some(mut primaries) = primaries.filter(|primaries| !primaries.is_empty()) else {
            return Err(format!("Redis at {}: not the reply to CLUSTER SLOTS", self.name));
        };
        primaries.sort_unstable();
        primaries.dedup();
        Ok(primaries.into_iter().map(|(host, port)| Node::Primary(host, port)).collect())
    }

    pub fn ask_node(&mut self, node: &Node, words: &[&[u8]]) -> Result<Value, Failure> {
        let (Link::Cluster(connection), Node::Primary(host, port)) = (&mut self.link, node) else {
            return self.ask(words);
        };
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(*word);
        });
        let there = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
        let reply = answer(connection.route_command(&command, RoutingInfo::SingleNode(there)));
        reply.map_err(|error| sentence(&format!("{host}:{port}"), &error, self.timeout))
    }

    /// The time for which one command may wait in Redis: shorter than the time-out of its reply.
    pub fn patience(&self) -> Duration {
        self.timeout.checked_div(2).unwrap_or_default()
    }

    fn failed(&self, error: &RedisError) -> Failure {
        sentence(&self.name, error, self.timeout)
    }
}

/// Connects to one server, and asks what it is. A server that does not say is one Redis, or something that passes for one. A database
/// is not chosen yet: sentinels and clusters have none.
fn greet(place: ConnectionInfo, access: &Access) -> Result<(Connection, Kind), RedisError> {
    let settings = place.redis_settings().clone().set_db(0);
    let place = place.set_redis_settings(settings);
    let client = match (&access.certificates, place.addr()) {
        (Some(certificates), ConnectionAddr::TcpTls { .. }) => {
            Client::build_with_tls(place, certificates.clone())
        }
        _ => Client::open(place),
    }?;
    let mut connection = client.get_connection_with_timeout(access.timeout)?;
    connection.set_read_timeout(Some(access.timeout))?;
    connection.set_write_timeout(Some(access.timeout))?;
    let hello = answer(connection.req_command(&redis::cmd("HELLO")));
    let kind = match hello {
        Ok(hello) => match field(&items(hello), "mode").as_deref() {
            Some("cluster") => Kind::Cluster,
            Some("sentinel") => Kind::Sentinel,
            _ => Kind::Server,
        },
        Err(error) if error.code() == Some("NOAUTH") || error.is_io_error() => return Err(error),
        Err(_) => Kind::Server,
    };
    Ok((connection, kind))
}

fn select(connection: &mut Connection, place: &ConnectionInfo) -> Result<(), RedisError> {
    match place.redis_settings().db() {
        0 => Ok(()),
        database => answer(connection.req_command(redis::cmd("SELECT").arg(database))).map(|_| ()),
    }
}

fn cluster(places: &[ConnectionInfo], access: &Access) -> Result<ClusterConnection, RedisError> {
    let mut builder = ClusterClient::builder(places.to_vec())
        .connection_timeout(access.timeout)
        .response_timeout(access.timeout)
        .retries(RETRIES)
        .min_retry_wait(10)
        .max_retry_wait(200);
    if let Some(certificates) = &access.certificates {
        builder = builder.certs(certificates.clone());
    }
    builder.build()?.get_connection()
}

fn user(place: &ConnectionInfo) -> String {
    place.redis_settings().username().unwrap_or("default").to_owned()
}

fn host(place: &ConnectionAddr) -> String {
    match place {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}

/// Another address, reached in the same way.
fn at(place: ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match place.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    place.set_addr(address)
}

/// A reply that is an error is one.
fn answer(reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}

/// The items of an array; of a map, its names and values one after the other.
pub(super) fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        Value::Map(pairs) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
        _ => Vec::new(),
    }
}

/// The value of a field in a list of names and values.
fn field(of: &[Value], name: &str) -> Option<String> {
    let pairs = of.as_chunks().0.iter();
    pairs.into_iter().find_map(|[key, value]| (text(key)? == name).then(|| text(value))?)
}

fn text(value: &Value) -> Option<String> {
    bytes(value).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

pub(in super::super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        Value::Okay => Some(b"OK"),
        _ => None,
    }
}

/// The reply, as the core reads replies.
fn as_reply(value: &Value) -> resp::Reply<'_> {
    match value {
        Value::Nil => resp::Reply::Bulk(None),
        Value::Int(number) => resp::Reply::Integer(*number),
        Value::Array(items) => resp::Reply::Array(Some(items.iter().map(as_reply).collect())),
        other => resp::Reply::Bulk(bytes(other)),
    }
}
