// SPDX-License-Identifier: Apache-2.0
//! The store moves: its name leads to another address, or its endpoint is another one, while the old Redis goes on running
//! and its connections stay open. Within seconds every request counts at the new one.
// The tests measure another process with a real clock.
#![allow(clippy::disallowed_methods)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weir::limit::{Ask, LeakyBucket};
use weir::time::Micros;

use crate::subject::Store;
use crate::support::clients::Clients;
use crate::support::envoy::{Envoy, Template};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, Statuses, limited, template_of};
use crate::support::{TempFolder, eventually, eventually_within};

pub const TESTS: &[(&str, fn())] = &[
    ("moves: the store's name leads to another address: weir follows under load", the_name_moves),
    ("moves: the store's endpoint is another one: weir follows under load", the_endpoint_moves),
    (
        "moves: no server at the new address: the old Redis goes on counting, and the log says so",
        nobody_is_at_the_new_address,
    ),
];

const LIMIT: usize = 1_000_000;
const WORKERS: usize = 2;
const CLIENTS: usize = 8;

/// The age of a stream (5 s), how often the test's Envoy looks the name up (1 s), and what a busy machine adds.
const SECONDS: Duration = Duration::from_secs(15);

fn limiter() -> String {
    limited(LIMIT).replace("1/d", "1/m")
}

fn the_name_moves() {
    let old = Redis::start().expect("a redis-server");
    let port = old.address().port();
    let new =
        Redis::start_with(&["--bind", "127.0.0.2", "--port", &port.to_string()]).expect("a redis-server");
    let (names, upstream) = (Names::start(Ipv4Addr::LOCALHOST), Upstream::start());
    let envoy = by_name(&names, port, &upstream).start();
    follows(&envoy, &old, &new, &upstream, || names.lead_to(Ipv4Addr::new(127, 0, 0, 2)));
}

fn the_endpoint_moves() {
    let (old, new) = (Redis::start().expect("a redis-server"), Redis::start().expect("a redis-server"));
    let (folder, upstream) = (TempFolder::new("moves"), Upstream::start());
    let file = folder.path().join("endpoints.yaml");
    let endpoint = |redis: &Redis| {
        let next = file.with_extension("next");
        let resource = format!(
            "resources:\n- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n  \
             cluster_name: weir-bridge\n  endpoints:\n  - lb_endpoints:\n    - endpoint: {{address: \
             {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}\n",
            redis.address().port()
        );
        std::fs::write(&next, resource).expect("a file");
        std::fs::rename(&next, &file).expect("it takes the other's place");
    };
    endpoint(&old);
    let eds = format!(
        "  - name: weir-bridge\n    type: EDS\n    eds_cluster_config: {{eds_config: {{path_config_source: {{path: {}}}}}}}\n",
        file.display()
    );
    let shipped = Host::chosen().shipped();
    let assigned =
        shipped.split_once("    load_assignment:\n      cluster_name: weir-bridge\n").expect("endpoints").1;
    let assigned = assigned.split_once("\n\n").expect("their end").0;
    let shipped = shipped
        .replace(&format!("    load_assignment:\n      cluster_name: weir-bridge\n{assigned}\n"), "")
        .replace("  - name: weir-bridge\n    type: STRICT_DNS\n", &eds);
    let template =
        template_of(&format!("node: {{id: test, cluster: test}}\n{shipped}"), &limiter(), upstream.address());
    let envoy = template.concurrency(WORKERS).start();
    follows(&envoy, &old, &new, &upstream, || endpoint(&new));
}

/// While clients ask without a pause, the store moves: after some seconds all requests count at the new Redis and none at the
/// old, none is lost or decided without a store, and the connections to both stay few.
fn follows(envoy: &Envoy, old: &Redis, new: &Redis, upstream: &Upstream, moves: impl FnOnce()) {
    let clients = Clients::start(CLIENTS, envoy.address("edge"));
    clients.go_on(100);
    assert_eq!(counted(new), 0);
    moves();
    let moved = Instant::now();
    eventually_within(SECONDS, "all to count at the new Redis", || {
        let before = (counted(old), counted(new));
        clients.go_on(100);
        let open = envoy.stat("cluster.weir-bridge.upstream_cx_active");
        assert!(open <= 3 * WORKERS as u64, "{open} connections");
        let follow = counted(old) == before.0 && counted(new) >= before.1 + 50;
        // A worker that got no request meanwhile keeps its connection to the old Redis.
        (follow && clients_of(old) == 0).then_some(())
    });
    let (took, left) = (moved.elapsed(), counted(old));
    clients.go_on(1_000);
    assert_eq!(counted(old), left, "nothing counts there {took:?} after the move");
    let told = clients.end();
    assert_eq!((told.broken, told.unanswered), (Vec::new(), 0));
    let admitted = told.statuses.len();
    assert_eq!(told.statuses.into_iter().collect::<Statuses>(), Statuses(vec![(200, admitted)]));
    assert_eq!((envoy.stat("wasmcustom.weir.fallback"), upstream.requests()), (0, admitted));
    charged_once(counted(old) + counted(new), admitted);
}

/// The number of connections to Redis over the network; the tests use its socket.
fn clients_of(redis: &Redis) -> usize {
    redis.connect().say("CLIENT LIST").matches(" addr=127.").count()
}

fn counted(redis: &Redis) -> usize {
    let bucket = LeakyBucket::new(1, Micros::from_secs(60), LIMIT as u64, Micros::ZERO).expect("a limit");
    let mut store = Store::named(redis, vec![("l".into(), bucket.into())], b"{p|everybody}");
    let ask = Ask::new(0, 1);
    let told = store.check(None, ask);
    LIMIT - usize::try_from(told.remaining(store.plan.limits(), 0, 0, ask)).expect("no more than the limit")
}

/// Each of two may have got one back, in the minute that a test takes at most.
fn charged_once(charged: usize, admitted: usize) {
    assert!((admitted - 2..=admitted).contains(&charged), "{charged} charged for {admitted}");
}

fn nobody_is_at_the_new_address() {
    let old = Redis::start().expect("a redis-server");
    let port = old.address().port();
    let (names, upstream) = (Names::start(Ipv4Addr::LOCALHOST), Upstream::start());
    let envoy = by_name(&names, port, &upstream).start();
    let clients = Clients::start(CLIENTS, envoy.address("edge"));
    clients.go_on(100);
    names.lead_to(Ipv4Addr::new(127, 0, 0, 3));
    let refused = || envoy.stat("cluster.weir-bridge.upstream_cx_connect_fail");
    eventually_within(SECONDS, "a successor to be refused, three times", || (refused() >= 3).then_some(()));
    clients.go_on(1_000);
    let told = clients.end();
    let admitted = told.statuses.len();
    assert_eq!(told.statuses.into_iter().collect::<Statuses>(), Statuses(vec![(200, admitted)]));
    assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0);
    charged_once(counted(&old), admitted);
    eventually("the operator to be told", || {
        envoy.log().contains("a fresh connection could not be opened").then_some(())
    });
    let (lines, refused) = (envoy.log().matches("a fresh connection").count() as u64, refused());
    assert!(lines <= refused + WORKERS as u64 && refused < 40, "{lines} lines, {refused} attempts");
}

/// weir as shipped, where Redis has a name that these name servers know.
fn by_name(names: &Names, port: u16, upstream: &Upstream) -> Template {
    let resolver = format!(
        "  - name: weir-bridge
    type: STRICT_DNS
    dns_lookup_family: V4_ONLY
    dns_refresh_rate: 1s
    typed_dns_resolver_config:
      name: envoy.network.dns_resolver.cares
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
        resolvers: [{{socket_address: {{address: 127.0.0.1, port_value: {}}}}}]
        dns_resolver_options: {{no_default_search_domain: true}}
",
        names.port
    );
    template_of(&Host::chosen().shipped(), &limiter(), upstream.address())
        .with("redis, port_value: 6379", format!("redis.weir.test, port_value: {port}"))
        .with("  - name: weir-bridge\n    type: STRICT_DNS\n", resolver)
        .concurrency(WORKERS)
}

/// A name server that knows one address for every name; it ends with the test's process.
struct Names {
    port: u16,
    leads_to: Arc<Mutex<Ipv4Addr>>,
}

impl Names {
    fn start(first: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let port = socket.local_addr().expect("its number").port();
        let leads_to = Arc::new(Mutex::new(first));
        let known = Arc::clone(&leads_to);
        thread::spawn(move || {
            let mut asked = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut asked) {
                let address = *known.lock().expect("an address");
                if let Some(answer) = answer(&asked[..length], address) {
                    // The client may have closed its socket.
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { port, leads_to }
    }

    fn lead_to(&self, address: Ipv4Addr) {
        *self.leads_to.lock().expect("an address") = address;
    }
}

/// The answer to a question about an address (RFC 1035, 4.1): that, for as short as it can be kept.
fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    const HEAD: usize = 12;
    let name = question.get(HEAD..)?.iter().position(|length| *length == 0)?;
    let end = HEAD + name + 1 + 4;
    let kind = question.get(end - 4..end - 2)?;
    let about_v4 = kind == [0, 1];
    let mut answer = question.get(..2)?.to_vec();
    // A response, with recursion; one question, and one answer or none.
    answer.extend_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(about_v4), 0, 0, 0, 0]);
    answer.extend_from_slice(question.get(HEAD..end)?);
    if about_v4 {
        // The name of the question; an address; class, time to live, length.
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    Some(answer)
}
