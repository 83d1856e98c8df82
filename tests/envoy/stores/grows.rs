// SPDX-License-Identifier: Apache-2.0
//! Nothing grows with time, and running out of file descriptors ends no Envoy. On the files that ship: Envoy's time of day runs a hundred
//! times as fast, so that a connection to Redis, which is renewed after 5 s, is renewed every 50 ms. There are two regions, denials with a
//! journal, a configuration that changes, and a Redis that hangs or closes connections. `WEIR_FULL=1` (`make soak`) runs ten times as long.
//!
//! Timers are not seen from outside: one that is armed again and again would show as memory.
// Periods end by a real clock.
#![allow(clippy::disallowed_methods)]

use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::envoy::{Envoy, Template, resident};
use crate::support::http::{self, Request};
use crate::support::redis::{Connection, Redis};
use crate::support::regions::{HERE, NAMES, section, with_stores};
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, World, get, limited, template};
use crate::support::{TempFolder, eventually, skewed_clock};

pub const TESTS: &[(&str, fn())] = &[
    ("grows: nothing, over 500 renewals of each connection to Redis", || nothing_grows(renewals, false)),
    ("grows: nothing, while Redis hangs and closes connections and the configuration changes", || {
        nothing_grows(losses, true);
    }),
    ("grows: clients beyond the descriptors are refused, and Envoy lives", clients_are_refused),
    (WITHOUT_DESCRIPTORS, descriptors_run_out),
    ("grows: Envoy alone faults when tcp_proxy has no descriptor for a connection", envoy_alone_faults),
];

pub const WITHOUT_DESCRIPTORS: &str =
    "grows: without descriptors no connection to Redis is opened, and Envoy lives";

/// The factor by which Envoy's time of day runs faster.
const RATE: u64 = 100;
/// After how long a connection to Redis gets a successor, by that clock.
const AGE: Duration = Duration::from_millis(5_000 / RATE);

fn fast(template: Template) -> Template {
    let preload = ("LD_PRELOAD".to_owned(), skewed_clock().display().to_string());
    template.under(&[preload, ("WEIR_CLOCK_RATE".to_owned(), RATE.to_string())])
}

/// The resources of an Envoy and its Redis.
#[derive(Clone, Copy)]
struct Held {
    descriptors: usize,
    threads: usize,
    /// KiB
    memory: u64,
    statistics: usize,
    connections: usize,
    keys: i64,
}

impl Held {
    fn by(envoy: &Envoy, stores: &[Redis]) -> Self {
        let count =
            |of: &str| fs::read_dir(format!("/proc/{}/{of}", envoy.pid())).expect("a process").count();
        let clients = |redis: &Redis| redis.connect().say("CLIENT LIST").matches(" addr=").count() - 1;
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            memory: resident(envoy.pid()),
            statistics: envoy.admin("/stats").lines().count(),
            connections: stores.iter().map(clients).sum(),
            keys: stores.iter().map(|redis| redis.connect().integer(&[b"DBSIZE"])).sum(),
        }
    }

    /// A connection may be on its way at the moment, with three descriptors: this side's two and that to Redis. Allocators keep
    /// memory that was freed; what a period leaves behind would be there hundreds of times.
    fn is_level_with(&self, first: &Self) -> bool {
        self.descriptors <= first.descriptors + 12
            && self.threads <= first.threads
            && self.memory <= first.memory + first.memory / 5
            && self.statistics <= first.statistics
            && self.connections <= first.connections + 4
            && self.keys <= first.keys
    }
}

impl fmt::Display for Held {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptors, threads, memory, statistics, connections, keys } = self;
        write!(
            to,
            "{descriptors} descriptors, {threads} threads, {memory} KiB, {statistics} statistics, {connections} connections to Redis, {keys} keys"
        )
    }
}

/// An Envoy whose listener for clients comes from a file.
struct Changing {
    envoy: Envoy,
    /// The listeners to change between: two configurations, and after each one that is refused.
    listeners: [String; 4],
    folder: TempFolder,
}

impl Changing {
    fn start(shipped: &Template) -> Self {
        // An anchor does not reach from one file into another.
        let name = match Host::chosen() {
            Host::Wasm => "weir_wasm",
            Host::Native => "weir_module",
        };
        let (_, value) = shipped.config().split_once(&format!("&{name} ")).expect("an anchor");
        let value = value.lines().next().expect("its value").to_owned();
        let whole = shipped.config().replace(&format!("&{name} "), "").replace(&format!("*{name}"), &value);
        let (before, rest) = whole.split_once("  - name: edge\n").expect("the listener");
        let end =
            rest.find("  - name: weir-store\n").or_else(|| rest.find("  clusters:\n")).expect("its end");
        let (edge, after) = rest.split_at(end);
        let edge: String =
            edge.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line))).collect();
        let listener = |burst: &str| {
            let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
            format!("resources:\n- \"@type\": {kind}\n  name: edge\n{}", edge.replace("@burst@", burst))
        };
        let (folder, listeners) = (TempFolder::new("grows"), ["5", "\"broken\"", "6", "-1"].map(listener));
        let file = folder.path().join("edge.yaml");
        fs::write(&file, &listeners[0]).expect("a file");
        let bootstrap = format!(
            "node: {{id: test, cluster: test}}\ndynamic_resources: {{lds_config: {{path_config_source: {{path: {}}}}}}}\n{before}{after}",
            file.display()
        );
        let template = Template::new(&bootstrap).concurrency(2).argument("--drain-time-s").argument("1");
        let envoy = fast(template).start();
        eventually("the listener", || envoy.admin("/listeners").contains("edge::").then_some(()));
        Self { envoy, listeners, folder }
    }

    fn change(&self, round: usize) {
        let [next, file] = ["next.yaml", "edge.yaml"].map(|name| self.folder.path().join(name));
        fs::write(&next, &self.listeners[round % 4]).expect("a file");
        fs::rename(&next, &file).expect("it takes the other's place");
    }
}

/// An Envoy with weir in one of two regions.
struct Tried {
    changing: Changing,
    stores: [Redis; 2],
    /// The test's own.
    admins: [Connection; 2],
    _upstream: Upstream,
}

impl Tried {
    fn start() -> Self {
        let stores = [(); 2].map(|()| Redis::start().expect("a redis-server"));
        let upstream = Upstream::start();
        // By the same clock. But the plugin's timer is Envoy's, whose clock is right.
        let deadline = match Host::chosen() {
            Host::Wasm => "50ms",
            Host::Native => "5s",
        };
        let limiter = format!(
            r#"{{"store": {{"deadline": "{deadline}", "on_failure": "allow"}}, "journal": {{}}, {}, "policies": [
                {{"name": "all", "subject": [{{"literal": "all"}}], "regions": {{"share": {{}}}}, "limits":
                    [{{"name": "l", "algorithm": "token_bucket", "capacity": 1000, "refill": 1000, "interval": "1s"}}]}},
                {{"name": "few", "match": {{"path": {{"prefix": "/few"}}}}, "subject": [{{"literal": "few"}}], "limits":
                    [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": @burst@}}]}}]}}"#,
            section(2, "50ms").replace(HERE, NAMES[0])
        );
        let [here, there] = [&stores[0], &stores[1]].map(Redis::address);
        let shipped = template(&limiter, here, upstream.address());
        let config = with_stores(Host::chosen(), shipped.config(), here, [(NAMES[1], there)].into_iter());
        let changing = Changing::start(&Template::new(&config));
        let admins = [&stores[0], &stores[1]].map(Redis::connect);
        Self { changing, stores, admins, _upstream: upstream }
    }

    fn ask(&self) {
        for path in ["/", "/few", "/", "/", "/few", "/"] {
            let status = http::send(self.edge(), &Request::get(path)).map(|response| response.status);
            assert!(matches!(status, Ok(200 | 429)), "{status:?}\n{}", self.changing.envoy.log());
        }
    }

    fn edge(&self) -> SocketAddr {
        self.changing.envoy.address("edge")
    }

    /// The resources held when nothing is under way: listeners of old configurations drain for a second.
    fn held(&self) -> Held {
        thread::sleep(Duration::from_millis(2_500));
        (0..5).for_each(|_| self.ask());
        Held::by(&self.changing.envoy, &self.stores)
    }
}

/// The events of one period.
type Period = fn(&mut Tried, usize);

/// Only requests: whatever else happens, happens by itself.
fn renewals(tried: &mut Tried, _: usize) {
    tried.ask();
}

fn losses(tried: &mut Tried, round: usize) {
    tried.ask();
    tried.changing.change(round);
    if round.is_multiple_of(3) {
        tried.admins.iter_mut().for_each(|redis| drop(redis.say("CLIENT KILL TYPE normal")));
    }
    if round % 10 == 7 {
        tried.stores[0].freeze();
        let held: Vec<_> = (0..4).map(|_| http::begin(tried.edge(), &get()).expect("sent")).collect();
        thread::sleep(2 * AGE);
        tried.stores[0].thaw();
        held.into_iter().for_each(|exchange| drop(exchange.finish()));
    }
}

fn nothing_grows(period: Period, has_losses: bool) {
    let times = if crate::support::is_full() { 10 } else { 1 };
    let mut tried = Tried::start();
    let mut run = |rounds: std::ops::Range<usize>| {
        for round in rounds {
            let next = Instant::now() + AGE;
            period(&mut tried, round);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        tried.held()
    };
    let first = run(0..50 * times);
    let mut last = run(50 * times..500 * times);
    // Whatever is on its way at the moment is over soon.
    for _ in 0..5 {
        if !last.is_level_with(&first) {
            last = run(0..0);
        }
    }
    println!("first: {first}\nlast:  {last}");
    let stat = |name: &str| usize::try_from(tried.changing.envoy.stat(name)).expect("a number");
    let opened = stat("cluster.weir-bridge.upstream_cx_total");
    assert!(opened >= 500 * times, "{opened} connections were opened");
    assert!(tried.admins[0].integer(&[b"XLEN", b"weir:{journal}"]) > 0, "there is no journal");
    assert!(last.is_level_with(&first), "after 50 periods: {first}\nafter 500: {last}");
    if has_losses {
        assert!(stat("wasmcustom.weir.fallback") > 0, "no hang of Redis was felt");
        for outcome in ["success", "rejected"] {
            let changes = stat(&format!("listener_manager.lds.update_{outcome}"));
            assert!(changes > 100 * times, "{changes} changes of the configuration: {outcome}");
        }
    }
}

/// Sets how many descriptors a process may have.
fn limit_descriptors(process: u32, count: usize) {
    let arguments = [format!("--nofile={count}:"), format!("--pid={process}")];
    let status = Command::new("prlimit").args(arguments).status();
    assert!(status.expect("prlimit").success());
}

fn descriptors(envoy: &Envoy) -> usize {
    fs::read_dir(format!("/proc/{}/fd", envoy.pid())).expect("a running process").count()
}

/// Clients that connect, say a part of a request, and wait.
fn crowd(edge: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut client = TcpStream::connect(edge).ok()?;
        client.write_all(b"GET / HTTP/1.1\r\nhost: ").ok()?;
        Some(client)
    };
    (0..count).filter_map(connect).collect()
}

/// A limit that nothing here reaches.
fn enough() -> String {
    limited(1_000_000).replace("1/d", "1000000/s").replace(r#""deny""#, r#""allow""#).replace("10s", "1s")
}

/// Redis decides again, and Envoy was never started anew.
fn lives(envoy: &Envoy) {
    let by_redis = || {
        let response = http::send(envoy.address("edge"), &get()).ok()?;
        response.headers.get("ratelimit").map(drop)
    };
    eventually("Redis to decide again", by_redis);
    assert!(!envoy.log().contains("Caught"), "{}", envoy.log());
}

/// As shipped, where the number of clients is bounded below that of descriptors.
fn clients_are_refused() {
    const CLIENTS: usize = 40;
    let bounded = |template: Template| {
        fast(template).with(
            "max_active_downstream_connections: 50000",
            format!("max_active_downstream_connections: {CLIENTS}"),
        )
    };
    let world = World::with(&enough(), 1, 2, bounded);
    let (envoy, edge) = (world.envoy(), world.edge());
    lives(envoy);
    // For each client one to the upstream, and what else comes and goes.
    limit_descriptors(envoy.pid(), descriptors(envoy) + 2 * CLIENTS + 48);
    let mut kept = http::Kept::open(edge).expect("a connection");
    // Envoy counts a connection when it accepts it: this one has its place before the crowd comes.
    assert_eq!(kept.send(&get()).expect("a response").status, 200);
    let all = crowd(edge, 10 * CLIENTS);
    let begin = Instant::now();
    while begin.elapsed() < 40 * AGE {
        // A busy machine may miss a deadline by this clock, and `on_failure` decides.
        assert_eq!(kept.send(&get()).expect("a response").status, 200);
    }
    let refused = envoy.stat("listener.127.0.0.1_0.downstream_global_cx_overflow");
    assert!(refused > 0, "{:?}", envoy.stats("listener."));
    drop((all, kept));
    lives(envoy);
}

/// Without such a bound the dynamic module opens no connection to Redis then. Envoy faults if `tcp_proxy` opens one.
fn descriptors_run_out() {
    let world = World::with(&enough(), 1, 2, fast);
    let (envoy, edge) = (world.envoy(), world.edge());
    (0..20).for_each(|_| assert_eq!(world.send(&get()).status, 200));
    let mut kept = http::Kept::open(edge).expect("a connection");
    assert_eq!(kept.send(&get()).expect("a response").status, 200);
    let most = descriptors(envoy) + 60;
    limit_descriptors(envoy.pid(), most);
    let all = crowd(edge, 400);
    eventually("all to be used", || (descriptors(envoy) >= most).then_some(()));
    let mut redis = world.redis.connect();
    let begin = Instant::now();
    for round in 0.. {
        if begin.elapsed() > 40 * AGE {
            break;
        }
        // On the connection to Redis that is open, or without one.
        assert_eq!(kept.send(&get()).expect("a response").status, 200);
        if round % 100 == 99 {
            redis.say("CLIENT KILL TYPE normal");
        }
    }
    drop((all, kept));
    lives(envoy);
}

/// The fault as docs/sizing.md describes it. When this fails, a newer Envoy has fixed it, and the page and `native/src/descriptors.rs` can
/// say so.
fn envoy_alone_faults() {
    let upstream = Upstream::start();
    let config = format!(
        r#"
static_resources:
  listeners:
  - name: edge
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: tcp
          cluster: upstream
  clusters:
  - name: upstream
    type: STATIC
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}
"#,
        upstream.address().port()
    );
    let envoy = Template::new(&config).start();
    let edge = envoy.address("edge");
    let mut most = descriptors(&envoy) + 20;
    limit_descriptors(envoy.pid(), most);
    let all = crowd(edge, 100);
    // One more at a time: sooner or later there is one for a client, and none for its connection to the upstream.
    eventually("Envoy to fault", || {
        let has_faulted = envoy.log().contains("Caught ");
        if !has_faulted {
            most += 1;
            limit_descriptors(envoy.pid(), most);
            thread::sleep(Duration::from_millis(100));
        }
        has_faulted.then_some(())
    });
    drop(all);
}
