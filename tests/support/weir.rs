// SPDX-License-Identifier: Apache-2.0
//! weir itself: the configuration that is shipped, `envoy/weir.yaml`, with the plugin that was built, in front of a private upstream, on a
//! private Redis. A test sets the limiter's configuration; the rest is as shipped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use super::envoy::{Envoy, Template};
use super::eventually;
use super::http::{self, Request, Response};
use super::redis::Redis;
use super::upstream::Upstream;

/// As shipped, but for the deadline: machines that run tests are busy ones, and how fast Redis is never decides a
/// test. Tests of the deadline say their own.
pub const PATIENT: &str = r#""store": {"deadline": "10s", "on_failure": "deny"}"#;

/// The time in which a connection to Redis must open: on a busy machine a TLS handshake takes long, and so does a worker that serves others
/// first.
pub const TIME_TO_CONNECT: &str = "connect_timeout: 5s";
pub const SHIPPED_TIME_TO_CONNECT: &str = "connect_timeout: 0.25s";

/// The plugin that was built: `$WEIR_PLUGIN`, or where `make plugin` puts it.
pub fn plugin() -> PathBuf {
    std::env::var_os("WEIR_PLUGIN").map_or_else(|| super::root().join("target/weir.wasm"), PathBuf::from)
}

/// The dynamic module that was built: `$WEIR_MODULE`, or where `scripts/native` puts it.
pub fn module() -> PathBuf {
    std::env::var_os("WEIR_MODULE").map_or_else(|| super::root().join("target/libweir.so"), PathBuf::from)
}

static CHOSEN: OnceLock<Host> = OnceLock::new();

/// The host of the core in Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `weir.wasm`
    Wasm,
    /// `libweir.so`
    Native,
}

impl Host {
    /// The host that this test runs on: that of its case, or `$WEIR_HOST`, or `wasm`.
    pub fn chosen() -> Self {
        let named = || match std::env::var("WEIR_HOST").as_deref() {
            Err(_) | Ok("wasm") => Self::Wasm,
            Ok("native") => Self::Native,
            Ok(other) => panic!("WEIR_HOST is {other:?}; it can be \"wasm\" or \"native\""),
        };
        CHOSEN.get().copied().unwrap_or_else(named)
    }

    /// Chooses the host that this process tests from now on.
    pub fn choose(self) {
        CHOSEN.set(self).expect("a process of its own for each case");
    }

    /// As `WEIR_HOST` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
        }
    }

    /// The prefix that Envoy puts before the names of filter state that a filter writes.
    pub const fn filter_state_prefix(self) -> &'static str {
        match self {
            Self::Wasm => "wasm.",
            Self::Native => "",
        }
    }

    /// The configuration that is shipped for it.
    pub fn shipped(self) -> String {
        self.shipped_for(Kind::Redis)
    }

    /// The configuration that is shipped for it and such a store. The cluster that weir asks has the name that a limiter asks for unless
    /// it says another.
    pub fn shipped_for(self, store: Kind) -> String {
        let native = |shipped: &str| {
            shipped
                .replace("cluster: redis", "cluster: weir-bridge")
                .replace("cluster_name: redis", "cluster_name: weir-bridge")
                .replace("name: redis\n", "name: weir-bridge\n")
        };
        match (self, store) {
            (Self::Wasm, Kind::Redis) => include_str!("../../envoy/weir.yaml").into(),
            (Self::Wasm, Kind::Cluster) => include_str!("../../envoy/cluster.yaml").into(),
            (Self::Wasm, Kind::Tls) => include_str!("../../envoy/tls.yaml").into(),
            (Self::Wasm, Kind::Sentinel) => include_str!("../../envoy/sentinel.yaml").into(),
            (Self::Native, Kind::Redis) => native(include_str!("../../envoy/native.yaml")),
            (Self::Native, Kind::Cluster) => native(include_str!("../../envoy/native-cluster.yaml")),
            (Self::Native, Kind::Tls) => native(include_str!("../../envoy/native-tls.yaml")),
            (Self::Native, Kind::Sentinel) => native(include_str!("../../envoy/native-sentinel.yaml")),
        }
    }
}

/// The stores that there is a configuration for.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Redis,
    Cluster,
    Tls,
    Sentinel,
}

/// The shipped configuration with these addresses, and this limiter configuration (JSON).
pub fn template(limiter: &str, redis: SocketAddr, upstream: SocketAddr) -> Template {
    template_on(Host::chosen(), limiter, redis, upstream)
}

/// As [`template`], on this host.
pub fn template_on(host: Host, limiter: &str, redis: SocketAddr, upstream: SocketAddr) -> Template {
    template_of(&host.shipped(), limiter, upstream)
        .with("redis, port_value: 6379", format!("127.0.0.1, port_value: {}", redis.port()))
}

/// The shipped configuration for this store of several nodes, on the first three of these.
pub fn template_on_nodes(
    store: Kind,
    nodes: impl Iterator<Item = SocketAddr>,
    limiter: &str,
    upstream: SocketAddr,
) -> Template {
    let template = template_of(&Host::chosen().shipped_for(store), limiter, upstream);
    nodes.take(3).zip(1..).fold(template, |template, (node, number)| {
        let address = format!("127.0.0.1, port_value: {}", node.port());
        template.with(&format!("redis-{number}, port_value: 6379"), address)
    })
}

/// Any of the shipped configurations, with this limiter configuration (JSON or YAML) and upstream; the addresses of Redis stay.
pub fn template_of(shipped: &str, limiter: &str, upstream: SocketAddr) -> Template {
    // The limiter's configuration is the first `Struct`; its block ends where the next filter begins.
    let (before, rest) = shipped.split_once("google.protobuf.Struct\n").expect("a Struct");
    let (_, after) = rest.split_once("          - name: router\n").expect("a router");
    let indentation = before.lines().last().expect("a line").find('"').expect("a type");
    let value = if !limiter.starts_with('#') {
        format!(
            "google.protobuf.StringValue\n{:indentation$}value: {}\n",
            "",
            serde_json::Value::from(limiter)
        )
    } else {
        // A file of `examples/`: YAML, which Envoy reads.
        let lines = limiter.lines().map(|line| format!("{:indentation$}  {line}\n", ""));
        format!("google.protobuf.Struct\n{:indentation$}value:\n{}", "", lines.collect::<String>())
    };
    let config = format!("{before}{value}          - name: router\n{after}");
    let (path, built) = if shipped.contains("/etc/weir/weir.wasm") {
        ("/etc/weir/weir.wasm", plugin())
    } else {
        ("/etc/weir/libweir.so", module())
    };
    Template::new(&config)
        .with("0.0.0.0, port_value: 10000", "127.0.0.1, port_value: 0")
        .with("upstream, port_value: 8080", format!("127.0.0.1, port_value: {}", upstream.port()))
        .with(SHIPPED_TIME_TO_CONNECT, TIME_TO_CONNECT)
        .with(path, built.display())
}

/// The shipped configuration with this HTTP filter, or none, instead of weir, and without the bridge.
pub fn without_weir(filter: &str, upstream: SocketAddr) -> Template {
    let shipped = include_str!("../../envoy/weir.yaml");
    let between = |text: &str, from: &str, to: &str, new: &str| {
        let (before, rest) =
            text.split_once(from).unwrap_or_else(|| panic!("envoy/weir.yaml without {from:?}"));
        let (_, after) = rest.split_once(to).unwrap_or_else(|| panic!("envoy/weir.yaml without {to:?}"));
        format!("{before}{new}{to}{after}")
    };
    let config = between(shipped, "          - name: weir\n", "          - name: router\n", filter);
    let config = between(&config, "  - name: weir-bridge\n", "  - name: upstream\n    type", "");
    Template::new(&config)
        .with("0.0.0.0, port_value: 10000", "127.0.0.1, port_value: 0")
        .with("upstream, port_value: 8080", format!("127.0.0.1, port_value: {}", upstream.port()))
}

/// The cluster `weir-bridge` as a file that Envoy discovers it in (CDS), and the rest of a configuration without it. An
/// anchor does not reach from the one into the other.
pub fn apart(whole: &str) -> (String, String) {
    const UPSTREAM: &str = "  - name: upstream\n";
    let (before, rest) = whole.split_once("  - name: weir-bridge\n").expect("the cluster");
    let (bridge, after) = rest.split_once(UPSTREAM).expect("its end");
    let bridge: String =
        bridge.lines().map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned() + "\n").collect();
    let code = format!("{{local: {{filename: {}}}}}", plugin().display());
    let discovered = format!(
        "resources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: weir-bridge\n{}",
        bridge.replace("*weir_wasm", &code)
    );
    (discovered, format!("{before}{UPSTREAM}{after}"))
}

/// A shipped configuration without a login, with that in this file, as what is shipped for TLS has it.
pub fn with_login(config: &str, file: &Path) -> String {
    let file = file.display();
    if Host::chosen() == Host::Native {
        return config
            .replace("cluster: weir-bridge}", &format!("cluster: weir-bridge, login_file: {file}}}"));
    }
    let tls = Host::Wasm.shipped_for(Kind::Tls);
    let begin = tls.find("        - name: password\n").expect("the filter");
    let end = tls[begin..].find("        - name: weir\n").expect("the next filter");
    let filters = "        http_filters:\n";
    let secret = format!(
        "  secrets:\n  - name: redis-password\n    generic_secret: {{secret: {{filename: {file}}}}}\n"
    );
    config.replacen("static_resources:\n", &format!("static_resources:\n{secret}"), 1).replacen(
        &format!("{filters}        - name: weir\n"),
        &format!("{filters}{}        - name: weir\n", &tls[begin..begin + end]),
        1,
    )
}

/// With the settings of Envoy that a policy with `body_json` needs.
pub fn reading_bodies(template: Template) -> Template {
    const LIMITER: &str = "                root_id: weir.limiter\n";
    match Host::chosen() {
        Host::Wasm => template
            .with(LIMITER, format!("{LIMITER}                allow_on_headers_stop_iteration: true\n")),
        Host::Native => template,
    }
}

/// With trailers in HTTP/1.1 between clients and Envoy, which drops them by default.
pub fn with_trailers(template: Template) -> Template {
    const MANAGER: &str = "          stat_prefix: edge\n";
    template.with(MANAGER, format!("{MANAGER}          http_protocol_options: {{enable_trailers: true}}\n"))
}

/// A store, an upstream, and any number of Envoys with weir between them.
#[derive(Debug)]
pub struct Lab<S> {
    pub envoys: Vec<Envoy>,
    pub redis: S,
    pub upstream: Upstream,
}

/// The store is one Redis.
pub type World = Lab<Redis>;

impl World {
    /// One Envoy with one worker, under this limiter configuration.
    pub fn start(limiter: &str) -> Self {
        Self::of(limiter, 1, 1)
    }

    /// `envoys` Envoys of `workers` workers each.
    pub fn of(limiter: &str, envoys: usize, workers: usize) -> Self {
        Self::with(limiter, envoys, workers, |template| template)
    }

    /// As [`World::of`], with a change to Envoy's configuration.
    pub fn with(
        limiter: &str,
        envoys: usize,
        workers: usize,
        change: impl FnOnce(Template) -> Template,
    ) -> Self {
        Self::on(Host::chosen(), limiter, envoys, workers, change)
    }

    /// As [`World::with`], on this host.
    pub fn on(
        host: Host,
        limiter: &str,
        envoys: usize,
        workers: usize,
        change: impl FnOnce(Template) -> Template,
    ) -> Self {
        Self::around(Redis::start().expect("a redis-server"), |redis, upstream| {
            let template = template_on(host, limiter, redis.address(), upstream).concurrency(workers);
            vec![change(template); envoys]
        })
    }
}

impl<S> Lab<S> {
    /// Envoys of these templates, started at once. They get the store and the address of the upstream.
    pub fn around(redis: S, templates: impl FnOnce(&S, SocketAddr) -> Vec<Template>) -> Self {
        let upstream = Upstream::start();
        let templates = templates(&redis, upstream.address());
        let envoys = thread::scope(|scope| {
            let started: Vec<_> = templates.iter().map(|template| scope.spawn(|| template.start())).collect();
            started.into_iter().map(|envoy| envoy.join().expect("an Envoy")).collect()
        });
        Self { envoys, redis, upstream }
    }

    pub fn envoy(&self) -> &Envoy {
        self.envoys.first().expect("an Envoy")
    }

    /// The address of the first Envoy for clients.
    pub fn edge(&self) -> SocketAddr {
        self.envoy().address("edge")
    }

    /// The sum of a counter or gauge over all Envoys.
    pub fn total(&self, stat: &str) -> u64 {
        self.envoys.iter().map(|envoy| envoy.stat(stat)).sum()
    }

    /// Waits until weir has counted that requests which reserved so many units have cost `units`. A worker counts when the reply
    /// arrives, so Redis may have a charge before the counters have it.
    pub fn counts_cost(&self, what: &str, reserved: u64, units: u64) {
        eventually(what, || {
            let charged = self.total("wasmcustom.weir.units_charged");
            let refunded = self.total("wasmcustom.weir.units_refunded");
            (reserved + charged == units + refunded).then_some(())
        });
    }

    pub fn send(&self, request: &Request) -> Response {
        http::send(self.edge(), request).expect("a response")
    }

    /// The statuses of `count` requests that arrive at once, shared out among the Envoys.
    pub fn burst(&self, count: usize, request: &Request) -> Statuses {
        let share = count / self.envoys.len();
        let held: Vec<_> = self.envoys.iter().map(|envoy| envoy.address("edge")).collect();
        let held: Vec<_> = held
            .into_iter()
            .map(|edge| http::burst_held(edge, std::iter::repeat_n(request.clone(), share)).expect("sent"))
            .collect();
        held.into_iter().flatten().map(|exchange| exchange.finish().expect("a response").status).collect()
    }
}

/// The number of responses with each status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(pub Vec<(u16, usize)>);

impl FromIterator<u16> for Statuses {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Self {
        let mut counts = std::collections::BTreeMap::new();
        for status in statuses {
            *counts.entry(status).or_insert(0) += 1;
        }
        Self(counts.into_iter().collect())
    }
}

/// A policy with one limit that does not refill while a test runs.
pub fn limited(burst: usize) -> String {
    limited_by(r#"{"literal": "everybody"}"#, burst)
}

pub fn limited_by(subject: &str, burst: usize) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{subject}], "limits":
            [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]}}]}}"#
    )
}

pub fn get() -> Request {
    Request::get("/")
}
