// SPDX-License-Identifier: Apache-2.0
//! A store that is far away, though within the deadline: it is asked from the first requests on, and not taken for one that is
//! overloaded.

use std::time::Duration;

use crate::support::clients::Clients;
use crate::support::eventually;
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Statuses, template};

pub const TESTS: &[(&str, fn())] = &[
    ("far: 280 ms of a deadline of 500 ms", || is_asked_from_the_start(140, "500ms")),
    ("far: 800 ms of a deadline of 1 s", || is_asked_from_the_start(400, "1s")),
];

const CLIENTS: usize = 32;
const ADMITTED: usize = 300;

/// A request that the store does not decide is refused at once, so clients that are refused ask far more often.
fn is_asked_from_the_start(each_way: u64, deadline: &str) {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let proxy = Proxy::start(redis.address());
    proxy.set(Network::Slow(Duration::from_millis(each_way)));
    let limiter = format!(
        r#"{{"store": {{"deadline": {deadline:?}, "on_failure": "deny"}}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000000}}]}}]}}"#,
    );
    let envoy = template(&limiter, proxy.address(), upstream.address()).concurrency(2).start();
    let clients = Clients::start(CLIENTS, envoy.address("edge"));
    let admitted = || clients.so_far().statuses.iter().filter(|status| **status == 200).count();
    eventually("redis to decide", || (admitted() >= ADMITTED).then_some(()));
    let told = clients.end();
    let Statuses(statuses) = told.statuses();
    let refused = statuses.iter().find(|(status, _)| *status == 503).map_or(0, |found| found.1);
    // A few where the machine does nothing else. A worker that takes the distance for load refuses thousands before so many pass.
    assert!(refused < 10 * ADMITTED, "{statuses:?}");
    println!("{each_way} ms each way, {deadline}: {statuses:?}");
}
