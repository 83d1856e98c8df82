// SPDX-License-Identifier: Apache-2.0
//! More load than Redis can bear, from ever other users: no two requests share a command, and none is known to be denied. The capacity of
//! Redis is measured first. It is small here, behind a narrow link: two Envoys and the clients of twice as much fit on the machine that
//! judges them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::last;
use crate::measure::by_redis;
use crate::support::envoy::{Envoy, Template, resident};
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::load::{Exchange, Lane, Load};
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::world::{ENVOYS, Fault, Felt, Kind, POLICIES, Policy, SOURCE, Store};

/// The bandwidth of the link, in bytes a second: some hundreds of commands.
const LINK: u32 = 60_000;
/// The number of clients of each Envoy that measure the capacity of Redis. Their requests take a fraction of the deadline.
const CLIENTS: usize = 4;
/// They measure for so long, so many times, and the best counts: stalls of the machine can only reduce the figure.
const WINDOW: Duration = Duration::from_millis(200);
const WINDOWS: u32 = 5;
/// One of so many requests of the flood is a control: the more are judged, the more of these tell when the machine stalls.
const CONTROL: usize = 7;

pub struct Narrow {
    redis: Redis,
    link: Proxy,
    edges: Vec<SocketAddr>,
    processes: Vec<u32>,
    /// The capacity of Redis, in commands a second.
    capacity: u32,
    floods: usize,
    flood: Option<Flood>,
}

/// The requests that were too many, and what became of them.
#[derive(Debug)]
pub struct Flood {
    pub at: Instant,
    pub kinds: Vec<Kind>,
    pub sent: usize,
    pub exchanges: Vec<Exchange>,
    pub overload: Overload,
}

/// The size of the overload, and its effects.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// The capacity of Redis, in commands a second.
    pub capacity: u32,
    /// The number of these requests that Redis decided about, a second.
    pub decided: u32,
    /// The growth of the Envoy that grew most, from a third of the flood's time to its end, in KiB.
    pub grown: u64,
}

impl Store for Narrow {
    const RATE: u32 = 4;

    fn start() -> Self {
        let redis = Redis::start().expect("a redis-server");
        let link = Proxy::start(redis.address());
        link.set(Network::Narrow(LINK));
        Self { redis, link, edges: Vec::new(), processes: Vec::new(), capacity: 0, floods: 0, flood: None }
    }

    fn users(&mut self, _: &Policy, fault: usize) -> Vec<String> {
        (0..self.steady()).map(|user| format!("user-{fault}-{user}")).collect()
    }

    fn change(&self, _: usize, shipped: Template) -> Template {
        let redis = |port: u16| format!("127.0.0.1, port_value: {port}");
        shipped.with(&redis(self.redis.address().port()), redis(self.link.address().port()))
    }

    fn address(&self) -> SocketAddr {
        self.redis.address()
    }

    fn meet(&mut self, envoys: &[Envoy]) {
        self.edges = envoys.iter().map(|envoy| envoy.address("edge")).collect();
        self.processes = envoys.iter().map(Envoy::pid).collect();
        // A machine that stalled all the time would say less, but hardly the same twice.
        self.capacity = eventually("what Redis can do to be the same twice", || {
            let (before, now) = (self.capacity, capacity(&self.edges));
            self.capacity = before.max(now);
            (before.abs_diff(now) * 10 < before).then_some(self.capacity)
        });
    }

    fn flood(&mut self) -> Option<Flood> {
        self.flood.take()
    }
}

pub const FAULTS: &[Fault<Narrow>] =
    &[Fault { name: "overload: twice what Redis can do", felt: Felt::ByAll, forgets: 0, inject: overload }];

impl Narrow {
    /// The number of permanent users of each policy: so many that they ask for half of the capacity of Redis.
    fn steady(&self) -> usize {
        self.capacity as usize / 2 / (Self::RATE as usize * ENVOYS * POLICIES.len())
    }
}

/// Measures how many requests Redis decides about in a second while clients keep it busy that wait for their answers.
fn capacity(edges: &[SocketAddr]) -> u32 {
    let began = Instant::now();
    let client = |client: usize| {
        let (mut decided, edge) = (Vec::new(), edges[client % edges.len()]);
        for user in 0.. {
            if began.elapsed() >= WINDOW * WINDOWS {
                break;
            }
            let asked = request(&POLICIES[0], &format!("client-{client}-{user}"));
            if http::send(edge, &asked).is_ok_and(|r| r.headers.get(SOURCE) == Some("redis")) {
                decided.push(began.elapsed());
            }
        }
        decided
    };
    let decided: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS * edges.len()).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let count = |window: u32| {
        decided.iter().filter(|at| (WINDOW * window..WINDOW * (window + 1)).contains(*at)).count()
    };
    let most = (0..WINDOWS).map(count).max().unwrap_or_default();
    (most as f64 / WINDOW.as_secs_f64()) as u32
}

fn request(policy: &Policy, user: &str) -> Request {
    Request::get(&format!("/{}", policy.name)).header("x-user", user)
}

/// Three times as long as other faults: what piles up takes its time.
fn overload(store: &mut Narrow, hold: Duration) {
    // The permanent users ask for half of the capacity of Redis, and these for the rest of twice that.
    let limited = store.capacity as usize * 3 / 2;
    let lane = |number: usize| {
        let (policy, envoy) = (&POLICIES[number / ENVOYS % POLICIES.len()], number % ENVOYS);
        let to = store.edges[envoy];
        if number.is_multiple_of(CONTROL) {
            return (Kind::Control, Lane { to, request: Request::get("/") });
        }
        let request = request(policy, &format!("flood-{}-{number}", store.floods));
        (Kind::Limited { policy, user: store.steady() + number, envoy }, Lane { to, request })
    };
    let count = limited * CONTROL / (CONTROL - 1);
    let (kinds, lanes): (Vec<_>, Vec<_>) = (0..count).map(lane).unzip();
    let (at, load) = (Instant::now(), Load::start(lanes, 1));
    last(hold);
    let before: Vec<_> = store.processes.iter().map(|&process| resident(process)).collect();
    last(hold * 2);
    let grown =
        store.processes.iter().zip(before).map(|(&process, was)| resident(process).saturating_sub(was));
    let grown = grown.max().unwrap_or_default();
    let (sent, exchanges) = load.end();
    let decided = exchanges.iter().filter(|exchange| by_redis(exchange)).count();
    let decided = (decided as f64 / at.elapsed().as_secs_f64()) as u32;
    let overload = Overload { capacity: store.capacity, decided, grown };
    store.floods += 1;
    store.flood = Some(Flood { at, kinds, sent, exchanges, overload });
}
