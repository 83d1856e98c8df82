// SPDX-License-Identifier: Apache-2.0
//! The edges that are compared, and the upstream and the Redis that they share.
//!
//! Each Envoy runs a shipped configuration: `envoy/weir.yaml` or `envoy/native.yaml` with weir, and the former with another filter
//! instead or with none.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::service::{PROOF, RATELIMIT, Service, VARIABLE};
use crate::support::envoy::{self, Envoy, Template};
use crate::support::redis::{Redis, free_address};
use crate::support::weir::{Host, without_weir};
use crate::support::{eventually, weir};
use crate::{MANY, cost, way};

/// The core of an edge with one worker.
const EDGE: &str = "0";
/// The cores of an edge with two workers.
const EDGE_OF_TWO: &str = "0,2";
/// The core of everything else: the load, the upstream, Redis.
const REST: &str = "1";
/// The same where edges with two workers are measured. All share both cores.
const REST_OF_TWO: &str = "1,3";
/// An edge with two workers is measured on a machine with so many cores.
const CORES_FOR_TWO: usize = 4;
/// The ending of the names of edges with two workers.
pub const TWO: &str = "two workers";

/// The length of the event stream that the upstream sends, in bytes.
pub const EVENTS: usize = 1024 * 1024;

/// The module whose filter does nothing: `native/empty`.
const EMPTY_MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/native/libweir_empty.so");

/// All processes. They end when this is dropped.
pub struct World {
    pub redis: Redis,
    pub edges: Vec<Edge>,
    /// The edges that could not be started, each with the reason.
    pub absent: Vec<(&'static str, String)>,
    _upstream: Nginx,
    _nginx: Option<Nginx>,
    services: Vec<Service>,
    upstream: SocketAddr,
}

/// A way that is measured for its failures only, and not for its costs.
pub struct Unpaced {
    pub name: String,
    pub address: SocketAddr,
    _envoy: Option<Envoy>,
}

/// One of the edges.
pub struct Edge {
    pub name: &'static str,
    pub address: SocketAddr,
    pub pids: Vec<u32>,
    /// The processes of the service that it asks, if the benchmark has started them.
    pub service: Vec<u32>,
    /// The expected status of its responses.
    pub answers: u16,
    envoy: Option<Envoy>,
}

impl Edge {
    /// Waits until its leases are refunded. Otherwise the refunds would count as cost of the next edge.
    pub fn settle(&self) {
        let Some(envoy) = self.envoy.as_ref().filter(|_| self.name.contains("leased")) else { return };
        eventually("the end of all leases", || (envoy.stat("wasmcustom.weir.on_lease") == 0).then_some(()));
    }
}

impl Edge {
    /// Envoy's statistics of weir and of its requests.
    pub fn diagnosis(&self) -> String {
        let Some(envoy) = &self.envoy else { return "not an Envoy".into() };
        let mut stats = envoy.stats("(wasmcustom|http.edge.downstream_rq|http.edge.downstream_cx_active|cluster.weir-bridge.upstream_cx)");
        stats.retain(|_, value| *value > 0);
        format!("{stats:?}")
    }
}

impl World {
    /// Starts the edges whose names are `wanted`; those with weir also with each of the `other` builds of the plugin or the module.
    pub fn start(wanted: impl Fn(&str) -> bool, others: &[PathBuf]) -> io::Result<Self> {
        envoy::binary()
            .ok_or_else(|| io::Error::other("no Envoy: run 'make bench', or scripts/setup bench"))?;
        pin(rest())?;
        let redis = Redis::start().ok_or_else(|| io::Error::other("no redis-server"))?;
        let (upstream, events) = (free_address(), free_address());
        let conf = include_str!("upstream.conf")
            .replace("$upstream$", &port(upstream))
            .replace("$events$", &port(events));
        let _upstream = Nginx::start(&conf, upstream)?;

        let services = Service::all(redis.address(), &wanted)?;

        // A process inherits the cores of its parent.
        let (mut edges, mut absent) = (Vec::new(), Vec::new());
        let mut built = envoys(redis.address(), upstream, events)?;
        built.extend(services.iter().map(|service| (service.edge, 200, asking(service, upstream))));
        if services.is_empty() && wanted(RATELIMIT) {
            absent.push((RATELIMIT, format!("{VARIABLE} names no rate-limit service")));
        }
        let others = others.iter().flat_map(|other| beside(&built, other)).collect::<Vec<_>>();
        for (name, answers, template) in built.into_iter().chain(others) {
            if !wanted(name) {
                continue;
            }
            if name.contains(TWO) && cores() < CORES_FOR_TWO {
                let why = format!("it takes {CORES_FOR_TWO} cores, and this machine has {}", cores());
                absent.push((name, why));
                continue;
            }
            pin(if name.contains(TWO) { EDGE_OF_TWO } else { EDGE })?;
            match template.try_start() {
                Ok(envoy) => {
                    let (address, pids) = (envoy.address("edge"), vec![envoy.pid()]);
                    let asked = services.iter().find(|service| service.edge == name);
                    asked.map_or(Ok(()), |service| service.prove(address, &redis))?;
                    let service = asked.map_or(Ok(Vec::new()), Service::pids)?;
                    edges.push(Edge { name, address, pids, service, answers, envoy: Some(envoy) });
                }
                // Envoy logs the reason several times. The first line that contains it is enough.
                Err(log) => absent.push((name, format!("Envoy refuses the configuration: {}", why(&log)))),
            }
        }
        pin(EDGE)?;
        let mut _nginx = None;
        if wanted("nginx plain") || wanted("nginx + lua") {
            let (plain, lua) = (free_address(), free_address());
            let conf = include_str!("nginx.conf")
                .replace("$here$", concat!(env!("CARGO_MANIFEST_DIR"), "/benches/edge"))
                .replace("$upstream$", &port(upstream))
                .replace("$redis$", &port(redis.address()))
                .replace("$plain$", &port(plain))
                .replace("$lua$", &port(lua));
            let nginx = Nginx::start(&conf, plain)?;
            // nginx accepts connections before it has started its worker, whose CPU time is measured.
            let family = || cost::family(nginx.process.id()).ok().filter(|pids| pids.len() > 1);
            let pids = eventually("nginx's worker", family);
            for (name, address) in [("nginx plain", plain), ("nginx + lua", lua)] {
                if wanted(name) {
                    let (pids, service) = (pids.clone(), Vec::new());
                    edges.push(Edge { name, address, pids, service, answers: 200, envoy: None });
                }
            }
            _nginx = Some(nginx);
        }
        pin(rest())?;
        Ok(Self { redis, edges, absent, _upstream, _nginx, services, upstream })
    }

    /// The ways that ask Redis, with their defaults: weir in both hosts, also with `on_failure: local`; each service; and nginx if it runs. Each
    /// has a limit of three an hour, except nginx, which has the benchmark's.
    pub fn with_defaults(&self) -> io::Result<Vec<Unpaced>> {
        let mut proof = policy("freeze", 3, "1h");
        proof["subject"] = json!([{"header": {"name": PROOF}}]);
        let limiter = |store| json!({"store": store, "policies": [proof]}).to_string();
        let weir = |name, host, store| {
            (name, weir::template_on(host, &limiter(store), self.redis.address(), self.upstream))
        };
        let local = json!({"on_failure": "local"});
        let weirs = [
            weir("weir", Host::Wasm, json!({})),
            weir("weir, local", Host::Wasm, local.clone()),
            weir("weir native", Host::Native, json!({})),
            weir("weir native, local", Host::Native, local),
        ];
        let services = self.services.iter().map(|service| {
            let by_default = asking(service, self.upstream)
                .with("timeout: 0.05s", "timeout: 0.02s")
                .with("failure_mode_deny: true", "failure_mode_deny: false");
            (service.edge, by_default)
        });
        pin(EDGE)?;
        let mut ways = Vec::new();
        for (name, template) in weirs.into_iter().chain(services) {
            let envoy = template.try_start().map_err(io::Error::other)?;
            ways.push(Unpaced { name: name.to_owned(), address: envoy.address("edge"), _envoy: Some(envoy) });
        }
        pin(rest())?;
        let nginx = self.edges.iter().filter(|edge| edge.name == "nginx + lua");
        ways.extend(nginx.map(|edge| Unpaced {
            name: edge.name.into(),
            address: edge.address,
            _envoy: None,
        }));
        Ok(ways)
    }

    /// The time in which Redis answers the batch of `weir exact`, for a client on the edge's core, in microseconds. `None` if there is no
    /// `weir exact`, because then Redis does not know the script.
    pub fn way_to_redis(&self, measured: Duration) -> io::Result<Option<f64>> {
        if !self.edges.iter().any(|edge| edge.name == "weir exact") {
            return Ok(None);
        }
        pin(EDGE)?;
        let question = way::question(&limiter("single", exact("exact")));
        let way = way::round_trip(self.redis.address(), &question, measured);
        pin(rest())?;
        way.map(Some)
    }
}

/// Turns the text of a WebAssembly module into its bytes.
fn assemble(text: &Path, bytes: &Path) -> io::Result<()> {
    let assembled = Command::new("wasm-as").arg(text).arg("-o").arg(bytes).status();
    match assembled {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("wasm-as {}: {status}", text.display()))),
        Err(error) => Err(io::Error::other(format!("wasm-as, of binaryen: {error}"))),
    }
}

/// The Envoys: name, status of the responses, configuration.
fn envoys(
    redis: SocketAddr,
    upstream: SocketAddr,
    events: SocketAddr,
) -> io::Result<Vec<(&'static str, u16, Template)>> {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.wasm");
    assemble(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/edge/empty.wat")), &empty)?;
    let other = |filter: &str| without_weir(filter, upstream);
    let on = |host, limiter: &str| weir::template_on(host, limiter, redis, upstream);
    let wasm = |policy| on(Host::Wasm, &limiter("single", policy));
    let native = |policy| on(Host::Native, &limiter("single", policy));
    let idle = with(exact("idle"), "match", json!({"path": {"prefix": "/other"}}));
    let leased = with(exact("leased"), "lease", json!({"max": 1_000, "min": 10}));
    let settled = |cost| with(exact("settled"), "settle", json!([{"cost": cost}]));
    let by_header = settled(json!({"header": {"name": "x-cost"}}));
    let by_events = settled(json!({"body_json": {"sum": [{"paths": ["usage.total_tokens"]}]}}));
    let by_usage = settled(json!({"usage": {"provider": "auto"}}));
    let streaming = |host, policy| weir::template_on(host, &limiter("single", policy), redis, events);
    // One request a day, and each subject uses it before the measurements.
    let denied = policy("denied", 1, "1d");
    // Ways that are compared stand side by side, so that they are measured shortly after one another.
    Ok(vec![
        ("envoy plain", 200, other("")),
        ("envoy empty wasm", 200, other(part("empty_wasm")).with("/etc/weir/empty.wasm", empty.display())),
        ("envoy idle wasm", 200, wasm(idle.clone())),
        (
            "envoy empty native",
            200,
            other(part("empty_native")).with("/etc/weir/libweir_empty.so", EMPTY_MODULE),
        ),
        ("weir native idle", 200, native(idle)),
        ("envoy plain again", 200, other("")),
        (
            "envoy local_ratelimit",
            200,
            other(part("local_ratelimit"))
                .with("max_dynamic_descriptors: 10000", format!("max_dynamic_descriptors: {MANY}")),
        ),
        ("weir exact", 200, wasm(exact("exact"))),
        ("weir exact, any", 200, on(Host::Wasm, &limiter("any", exact("any")))),
        ("weir native exact", 200, native(exact("exact"))),
        ("weir leased", 200, wasm(leased.clone())),
        ("weir native leased", 200, native(leased)),
        ("weir denied", 429, wasm(denied.clone())),
        ("weir denied, 1 h", 429, on(Host::Wasm, &denied_for_long())),
        ("weir native denied", 429, native(denied)),
        ("weir settled", 200, wasm(by_header.clone())),
        ("weir native settled", 200, native(by_header)),
        ("envoy plain, two workers", 200, other("").concurrency(2)),
        ("weir exact, two workers", 200, wasm(exact("exact")).concurrency(2)),
        ("weir native exact, two workers", 200, native(exact("exact")).concurrency(2)),
        ("envoy plain, events", 200, without_weir("", events)),
        ("weir exact, events", 200, streaming(Host::Wasm, exact("exact"))),
        ("weir settled, events", 200, streaming(Host::Wasm, by_events.clone())),
        ("weir usage, events", 200, streaming(Host::Wasm, by_usage.clone())),
        ("weir native exact, events", 200, streaming(Host::Native, exact("exact"))),
        ("weir native settled, events", 200, streaming(Host::Native, by_events)),
        ("weir native usage, events", 200, streaming(Host::Native, by_usage)),
    ])
}

/// Envoy that asks this service.
fn asking(service: &Service, upstream: SocketAddr) -> Template {
    let (address, port) = (service.address.ip(), service.address.port());
    without_weir(part("ratelimit"), upstream)
        .with("  clusters:\n", format!("  clusters:\n{}", part("ratelimit_cluster")))
        .with("ratelimit, port_value: 8081", format!("{address}, port_value: {port}"))
}

fn with(mut policy: Value, field: &str, value: Value) -> Value {
    policy[field] = value;
    policy
}

/// weir's configuration with one policy. A request that Redis did not decide is rejected, so that it shows as an error.
fn limiter(topology: &str, policy: Value) -> String {
    json!({"store": {"on_failure": "deny", "topology": topology}, "policies": [policy]}).to_string()
}

/// As `weir denied`, but weir does not ask Redis again during the measurements. The difference is what asking again costs.
fn denied_for_long() -> String {
    let store = json!({"on_failure": "deny", "topology": "single", "denial_ttl": "1h"});
    json!({"store": store, "policies": [policy("denied-1h", 1, "1d")]}).to_string()
}

/// A token bucket for each `x-user`. It is never empty.
fn exact(name: &str) -> Value {
    policy(name, 1_000_000, "1s")
}

fn policy(name: &str, capacity: u64, interval: &str) -> Value {
    json!({
        "name": name,
        "subject": [{"header": {"name": "x-user"}}],
        "limits": [{"name": "tokens", "algorithm": "token_bucket",
                    "capacity": capacity, "refill": capacity, "interval": interval}],
    })
}

/// The edges with weir again, with another build of the plugin or of the module. Its file name is added to their names.
fn beside(edges: &[(&'static str, u16, Template)], other: &Path) -> Vec<(&'static str, u16, Template)> {
    let is_module = other.extension().is_some_and(|extension| extension == "so");
    let built = if is_module { weir::module() } else { weir::plugin() }.display().to_string();
    let weirs = edges.iter().filter(|(.., template)| template.config().contains(&built));
    let file = other.file_stem().unwrap_or_default().to_string_lossy();
    let named = |(name, answers, template): &(&'static str, u16, Template)| {
        // The name lives as long as the benchmark.
        let name: &'static str = format!("{name} {file}").leak();
        (name, *answers, template.clone().with(&built, other.display()))
    };
    weirs.map(named).collect()
}

/// A part of `parts.yaml`.
fn part(name: &str) -> &'static str {
    let parts = include_str!("parts.yaml").split("--- # ");
    let named = parts.filter_map(|part| part.split_once('\n')).find(|(of, _)| *of == name);
    named.unwrap_or_else(|| panic!("parts.yaml without {name}")).1
}

/// The reason for which Envoy refused a configuration, from its log.
fn why(log: &str) -> String {
    let said = log.lines().find(|line| line.contains("configuration: ")).or_else(|| log.lines().next());
    let said = said.unwrap_or("the log is empty");
    said.rsplit_once("configuration: ").map_or(said, |(_, said)| said).trim().into()
}

/// An event stream of [`EVENTS`] bytes, as a language model writes it: a few characters in each event, and the usage in the last.
pub fn event_stream() -> Vec<u8> {
    const LAST: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"total_tokens\":3}}\n\ndata: [DONE]\n\n";
    let mut stream = Vec::with_capacity(EVENTS);
    let mut number = 0_usize;
    while stream.len() + LAST.len() < EVENTS - 256 {
        let event = format!(
            "data: {{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word {number}\"}}}}],\"usage\":null}}\n\n"
        );
        stream.extend(event.as_bytes());
        number += 1;
    }
    // A comment fills what is left.
    let left = EVENTS - LAST.len() - stream.len() - 3;
    stream.extend(format!(":{}\n\n", "x".repeat(left)).as_bytes());
    stream.extend(LAST.as_bytes());
    stream
}

/// A running nginx, with its files in its own folder. It is stopped, and its folder removed, when this is dropped.
struct Nginx {
    process: Child,
    folder: PathBuf,
}

impl Nginx {
    /// Starts one and waits until it accepts connections at `address`.
    fn start(conf: &str, address: SocketAddr) -> io::Result<Self> {
        let root = std::env::var("WEIR_NGINX").ok().filter(|root| !root.is_empty()).ok_or_else(|| {
            io::Error::other("no nginx: run 'make bench', which installs it and sets WEIR_NGINX")
        })?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "nginx-{}-{}",
            std::process::id(),
            address.port()
        ));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("events"), event_stream())?;
        fs::write(folder.join("nginx.conf"), conf.replace("$root$", root.trim_end_matches('/')))?;
        let log = File::create(folder.join("log"))?;
        let libraries = format!(
            "{root}/usr/lib/{arch}-linux-gnu:{root}/lib/{arch}-linux-gnu",
            arch = std::env::consts::ARCH
        );
        let process = Command::new(Path::new(&root).join("usr/sbin/nginx"))
            .env("LD_LIBRARY_PATH", libraries)
            .arg("-p")
            .arg(&folder)
            .args(["-c", "nginx.conf", "-e", "log"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut nginx = Self { process, folder };
        let runs = eventually("nginx's listener", || match nginx.process.try_wait() {
            Ok(None) => TcpStream::connect(address).is_ok().then_some(true),
            _ => Some(false),
        });
        if runs { Ok(nginx) } else { Err(io::Error::other(fs::read_to_string(nginx.folder.join("log"))?)) }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGKILL would leave its workers running.
        crate::support::signal("-TERM", self.process.id());
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The number of cores of the machine. This process may be bound to fewer.
fn cores() -> usize {
    fs::read_to_string("/proc/stat").map_or(0, |stat| {
        stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count()
    })
}

/// The cores of everything but the edges, on this machine.
fn rest() -> &'static str {
    if cores() < CORES_FOR_TWO { REST } else { REST_OF_TWO }
}

/// Binds this process, and the processes that it starts from now on, to these cores.
fn pin(cores: &str) -> io::Result<()> {
    let pid = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-c", "-p", cores, &pid]).output()?;
    let failed = || io::Error::other(format!("core {cores}: {}", String::from_utf8_lossy(&done.stderr)));
    if done.status.success() { Ok(()) } else { Err(failed()) }
}

fn port(address: SocketAddr) -> String {
    address.port().to_string()
}
