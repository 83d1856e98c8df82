// SPDX-License-Identifier: Apache-2.0
//! Two versions of weir in two Envoys on one Redis: the limits hold for both together, whichever begins, and nothing is lost. `make
//! rollout OLDER=COMMIT` builds the older one.

use std::path::PathBuf;

use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, PATIENT, Statuses, World, get, limited, module, plugin, template};

pub const TESTS: &[(&str, fn())] = &[
    ("versions: two of them under load grant together what each limit has", || {
        for limit in LIMITS {
            under_load(limit);
        }
    }),
    ("versions: what the older one has counted counts for this one, and the other way round", || {
        for limit in LIMITS {
            one_after_the_other(limit);
        }
    }),
    ("versions: both write to the journals", both_write),
    (IN_ONE_ENVOY, in_one_envoy),
];

/// Each filter has a file of its own, so an update may replace one before the other.
pub const IN_ONE_ENVOY: &str = "versions: a limiter and a bridge of two versions in one Envoy";

/// Each test, with the reason not to run it, if there is no older version.
pub fn ignored() -> Vec<(&'static str, &'static str)> {
    crate::support::ignored_unless(
        older().is_some(),
        TESTS,
        "no older version in $WEIR_OLDER: make rollout OLDER=COMMIT",
    )
}

fn older() -> Option<PathBuf> {
    std::env::var_os("WEIR_OLDER").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Limits that give nothing back while a test runs.
const LIMITS: [&str; 6] = [
    r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/20d", "burst": 100}"#,
    r#"{"name": "l", "algorithm": "token_bucket", "capacity": 100, "refill": 1, "interval": "20d"}"#,
    r#"{"name": "l", "algorithm": "token_bucket", "capacity": 100, "refill": 1, "interval": "20d", "mode": "stepwise"}"#,
    r#"{"name": "l", "algorithm": "fixed_window", "limit": 100, "window": "366d"}"#,
    r#"{"name": "l", "algorithm": "sliding_window", "limit": 100, "window": "366d", "precision": "366d"}"#,
    r#"{"name": "l", "algorithm": "sliding_log", "limit": 100, "window": "366d"}"#,
];

/// A world with two Envoys: the older version, and this one.
fn world(limit: &str) -> World {
    start(limit, "").expect("the older version starts")
}

/// The same with this beside the limits of the policy; `None` if the older version does not know it.
fn start(limit: &str, beside: &str) -> Option<World> {
    let limiter = format!(
        r#"{{{PATIENT}, "journal": {{}}, "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}],
            {beside} "limits": [{limit}]}}]}}"#
    );
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let this = template(&limiter, redis.address(), upstream.address()).concurrency(2);
    let built = match Host::chosen() {
        Host::Wasm => plugin(),
        Host::Native => module(),
    };
    let earlier = template(&limiter, redis.address(), upstream.address())
        .concurrency(2)
        .with(&built.display().to_string(), older().expect("an older version").display());
    let earlier = match earlier.try_start() {
        Ok(envoy) => envoy,
        Err(said) if said.contains("found an unknown field") => return None,
        Err(said) => panic!("{said}"),
    };
    Some(World { envoys: vec![earlier, this.start()], redis, upstream })
}

fn of(user: &str) -> Request {
    get().header("x-user", user)
}

/// The number of simultaneous requests that one of the Envoys admits.
fn admitted(world: &World, envoy: usize, count: usize, user: &str) -> usize {
    let requests = (0..count).map(|_| of(user));
    let statuses: Statuses = http::burst(world.envoys[envoy].address("edge"), requests)
        .expect("responses")
        .iter()
        .map(|it| it.status)
        .collect();
    assert!(statuses.0.iter().all(|(status, _)| [200, 429].contains(status)), "{statuses:?}");
    statuses.0.iter().filter(|(status, _)| *status == 200).map(|(_, count)| count).sum()
}

fn redis_decided(world: &World) {
    for envoy in &world.envoys {
        assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0, "Redis decided");
    }
}

fn under_load(limit: &str) {
    let world = world(limit);
    assert_eq!(world.burst(300, &of("ann")), Statuses(vec![(200, 100), (429, 200)]), "{limit}");
    redis_decided(&world);
}

fn one_after_the_other(limit: &str) {
    let world = world(limit);
    for (user, order) in [("rollout", [0, 1, 0]), ("downgrade", [1, 0, 1])] {
        let found = [(order[0], 60), (order[1], 30), (order[2], 30)]
            .map(|(envoy, count)| admitted(&world, envoy, count, user));
        assert_eq!(found, [60, 30, 10], "{user}: {limit}");
    }
    redis_decided(&world);
}

fn both_write() {
    let knows_usage = start(LIMITS[0], r#""usage_journal": true,"#);
    let (writes_usage, world) = (knows_usage.is_some(), knows_usage.unwrap_or_else(|| world(LIMITS[0])));
    // The older one denies twenty in the end, this one fifty.
    let found = [(0, 60), (1, 90), (0, 20)].map(|(envoy, count)| admitted(&world, envoy, count, "ann"));
    assert_eq!(found, [60, 40, 0]);
    let mut redis = world.redis.connect();
    eventually("seventy entries of the journal", || {
        let entries = redis.say("XRANGE weir:{journal} - +");
        let number = |name: &str| entries.matches(&format!("\r\n{name}\r\n")).count();
        (number("subject") == 70 || number("skipped") > 0).then_some(())
    });
    if !writes_usage {
        return println!("the older version has no usage journal");
    }
    eventually("a hundred units in the usage journal", || {
        let index = redis.say("ZRANGE weir:{journal}:usage 0 -1");
        let interval = index.lines().nth(2)?.to_owned();
        let used = redis.say(&format!("HGETALL weir:{{journal}}:usage:{interval}"));
        used.contains("\r\n100 100\r\n").then_some(())
    });
}

/// Also where the store ends each connection together with its reply.
fn in_one_envoy() {
    let file = |file: PathBuf| format!("code: {{local: {{filename: {}}}}}", file.display());
    let (this, older) = (file(plugin()), file(older().expect("an older version")));
    for (limiter, bridge) in [(&this, &older), (&older, &this)] {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let proxy = Proxy::start(redis.address());
        let envoy = template(&limited(200), proxy.address(), upstream.address())
            .with("code: *weir_wasm", bridge)
            .with(&format!("code: &weir_wasm {}", &this["code: ".len()..]), limiter)
            .start();
        let edge = envoy.address("edge");
        let burst = http::burst(edge, (0..100).map(|_| get())).expect("responses");
        let burst: Statuses = burst.iter().map(|response| response.status).collect();
        assert_eq!(burst, Statuses(vec![(200, 100)]), "the limiter is {limiter}");
        proxy.set(Network::Closing);
        // One after the other: then nothing waits when a reply comes, and the older limiter sends nothing from the callback.
        let one_by_one: Statuses =
            (0..120).map(|_| http::send(edge, &get()).expect("a response").status).collect();
        assert_eq!(one_by_one, Statuses(vec![(200, 100), (429, 20)]), "the limiter is {limiter}");
        assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0, "the limiter is {limiter}");
        assert!(envoy.stat("cluster.weir-bridge.upstream_cx_total") >= 100, "each answer ends a stream");
    }
}
