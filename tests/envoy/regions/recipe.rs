// SPDX-License-Identifier: Apache-2.0
//! `examples/regions/`: three edges as its file says, with a load that moves from region to region, and a line each second that shows
//! what each region admits. `make run-regions` runs it until Ctrl-C; the tests run it for some seconds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::envoy::{Envoy, Template};
use crate::support::http::Request;
use crate::support::load::{Lane, Load};
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::regions::NAMES;
use crate::support::upstream::Upstream;
use crate::support::weir::plugin;
use crate::world::{BETWEEN, REGIONS};

/// The limit that the file says, and the load: what the region of most clients is asked for, and each of the others.
const RATE: u32 = 90;
pub const BURST: u32 = 45;
const MOST: u32 = 180;
const REST: u32 = 10;
/// The time for which most clients stay in a region.
const STAYS: u64 = 10;

/// See the [module](self).
pub struct Recipe {
    edges: Vec<Edge>,
    _stores: Vec<Redis>,
    _upstream: Upstream,
}

struct Edge {
    envoy: Envoy,
    address: SocketAddr,
    _networks: Vec<Proxy>,
}

/// The demand on the regions, and the requests they have admitted, in one second.
#[derive(Debug)]
pub struct Second {
    pub number: u64,
    /// Its length.
    pub lasted: Duration,
    /// The region that most clients are in.
    pub hot: usize,
    pub admitted: Vec<u64>,
}

/// The requests a second that a region is asked for.
const fn demand(region: usize, hot: usize) -> u32 {
    if region == hot { MOST } else { REST }
}

impl Second {
    pub fn sum(&self) -> u64 {
        self.admitted.iter().sum()
    }

    fn line(&self) -> String {
        let rate = |count: u64| (count as f64 / self.lasted.as_secs_f64()).round();
        let each = NAMES.iter().zip(&self.admitted).enumerate().map(|(region, (name, count))| {
            format!("   {name} {:4}/s of {:3}", rate(*count), demand(region, self.hot))
        });
        let each: String = each.collect();
        format!("{:4} s{each}   sum {:4}/s, limit {RATE}/s", self.number, rate(self.sum()))
    }
}

impl Recipe {
    /// `across` is how the limits hold. The edges listen on these ports; a port 0 is a free one.
    pub fn start(across: &str, ports: [u16; REGIONS]) -> Self {
        let stores: Vec<_> = (0..REGIONS).map(|_| Redis::start().expect("a redis-server")).collect();
        let upstream = Upstream::start();
        let edge = |(here, port): (usize, u16)| {
            let mut networks = Vec::new();
            let mut template = Template::new(include_str!("../../../examples/regions/edge.yaml"));
            for (there, redis) in stores.iter().enumerate() {
                let mut address = redis.address();
                if there != here {
                    let proxy = Proxy::start(address);
                    proxy.set(Network::Far(BETWEEN));
                    address = proxy.address();
                    networks.push(proxy);
                }
                let name = format!("address: redis-{}, port_value: 6379", NAMES[there]);
                template =
                    template.with(&name, format!("address: 127.0.0.1, port_value: {}", address.port()));
            }
            let name = NAMES[here];
            let template = template
                .with("cluster: redis-ams # (region)", format!("cluster: redis-{name} #"))
                .with("here: ams # (region)", format!("here: {name}"))
                .with("port_value: 10001", format!("port_value: {port}"))
                .with("regions: {share: {}}", format!("regions: {across}"))
                .with(
                    "upstream, port_value: 8080",
                    format!("127.0.0.1, port_value: {}", upstream.address().port()),
                )
                .with("/etc/weir/weir.wasm", plugin().display())
                .concurrency(2);
            let envoy = template.start();
            Edge { address: envoy.address("edge"), envoy, _networks: networks }
        };
        let edges = ports.into_iter().enumerate().map(edge).collect();
        Self { edges, _stores: stores, _upstream: upstream }
    }

    /// A load of one API key: most of it in one region.
    fn load(&self, hot: usize) -> Vec<Load> {
        let request = Request::get("/").header("x-api-key", "hot");
        let load = |(region, edge): (usize, &Edge)| {
            let lane = Lane { to: edge.address, request: request.clone() };
            Load::start(vec![lane], demand(region, hot))
        };
        self.edges.iter().enumerate().map(load).collect()
    }

    /// The number of requests that each edge has admitted since it began.
    fn admitted(&self) -> Vec<u64> {
        let stat = |edge: &Edge| {
            let stats = edge.envoy.admin("/stats?filter=^wasmcustom.weir.admitted$");
            stats.trim().split_once(": ").and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
        };
        self.edges.iter().map(stat).collect()
    }

    /// Runs the load until it is stopped, or for so many seconds, and shows each of them.
    pub fn run(&self, stopped: &AtomicBool, seconds: u64, mut show: impl FnMut(&Second)) {
        let (mut before, mut load, mut hot) = (self.admitted(), Vec::new(), 0);
        let (clock, mut latest) = (Instant::now(), Instant::now());
        for number in 1..=seconds {
            if (number - 1) % STAYS == 0 {
                hot = usize::try_from((number - 1) / STAYS).expect("a count") % REGIONS;
                let over = std::mem::replace(&mut load, self.load(hot));
                over.iter().for_each(Load::stop_sending);
            }
            while clock.elapsed() < Duration::from_secs(number) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
            let admitted = self.admitted();
            let lasted = latest.elapsed();
            latest = Instant::now();
            let more = admitted.iter().zip(&before).map(|(now, before)| now - before).collect();
            show(&Second { number, lasted, hot, admitted: more });
            before = admitted;
        }
    }
}

/// The command `make run-regions`. The script has checked `WAY` and `FOR`.
pub fn show() {
    let across = match std::env::var("WAY").as_deref() {
        Ok("debit") => r#"{debit: {}}"#,
        Ok("home") => "{home: ams}",
        _ => r#"{share: {}}"#,
    };
    let seconds = std::env::var("FOR").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(u64::MAX);
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).expect("a handler");
    }
    println!("starting three regions, 50 ms ± 20 ms apart, with `regions: {across}`");
    let recipe = Recipe::start(across, [10_001, 10_002, 10_003]);
    println!(
        "each second: what a region admits, of what its clients ask for; and the sum, beside the limit of {RATE}/s and {BURST} at once"
    );
    println!(
        "try it: curl -i -H 'x-api-key: me' http://127.0.0.1:10001/ (ams; bom has 10002, cle 10003); Ctrl-C stops everything"
    );
    recipe.run(&stopped, seconds, |second| println!("{}", second.line()));
}

/// The file works as it is: an edge of each region, and never more than the limit.
pub fn works() {
    let recipe = Recipe::start("{share: {}}", [0; REGIONS]);
    let (clock, mut seconds) = (Instant::now(), Vec::new());
    recipe.run(&AtomicBool::new(false), 3, |second| seconds.push(second.sum()));
    let most = f64::from(BURST) + f64::from(RATE) * clock.elapsed().as_secs_f64();
    let sum: u64 = seconds.iter().sum();
    assert!(sum as f64 <= most, "{seconds:?} are more than {most}");
    assert!(seconds.len() == 3 && sum > u64::from(BURST), "{seconds:?}");
}
