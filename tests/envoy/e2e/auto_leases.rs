// SPDX-License-Identifier: Apache-2.0
//! `lease: auto`: one subject that two Envoys of two workers each are busy with.

use std::thread;

use weir::limit::{Align, Ask, FixedWindow};
use weir::time::Micros;

use crate::subject::Store;
use crate::support::eventually;
use crate::support::http::Kept;
use crate::support::redis::Redis;
use crate::support::weir::{PATIENT, Statuses, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("leases: with auto redis runs a fraction of the commands", auto_asks_less),
    ("leases: with auto two envoys of two workers admit the limit", auto_is_exact),
];

/// 500,000 a second.
const LIMIT: u64 = 43_200_000_000;
const DAY: Micros = Micros::from_secs(86_400);

fn limiter(lease: &str) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "everybody"}}], {lease} "limits":
            [{{"name": "l", "algorithm": "fixed_window", "limit": "43_200M", "window": "1d"}}]}}]}}"#
    )
}

const AUTO: &str = r#""lease": "auto","#;

/// The limit in Redis.
fn store(redis: &Redis) -> Store {
    let limit = FixedWindow::new(LIMIT, DAY, Align::Clock).expect("a limit").into();
    Store::named(redis, vec![("l".into(), limit)], b"{p|everybody}")
}

/// Eight clients of each Envoy send so many requests each, one after the other.
fn busy(world: &World, each: usize) -> Statuses {
    let client = move |to| {
        let mut kept = Kept::open(to).expect("a connection");
        (0..each).map(|_| kept.send(&get()).expect("a response").status).collect::<Vec<_>>()
    };
    let edges = world.envoys.iter().flat_map(|envoy| [envoy.address("edge"); 8]);
    let clients: Vec<_> = edges.map(|to| thread::spawn(move || client(to))).collect();
    clients.into_iter().flat_map(|client| client.join().expect("responses")).collect()
}

/// The number of scripts that Redis has run.
fn scripts(redis: &Redis) -> u64 {
    let stats = redis.connect().say("INFO commandstats");
    let calls =
        |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u64>().ok();
    stats.lines().find_map(calls).expect("it has run some")
}

fn auto_asks_less() {
    let [without, with] = ["", AUTO].map(|lease| {
        let world = World::of(&limiter(lease), 2, 2);
        busy(&world, 10);
        let before = scripts(&world.redis);
        assert_eq!(busy(&world, 250), Statuses(vec![(200, 4_000)]));
        eventually("what is left to be back", || {
            (world.total("wasmcustom.weir.on_lease") == 0).then_some(())
        });
        let asked = scripts(&world.redis) - before;
        let ask = Ask::new(0, 1);
        eventually("what was admitted to be charged, and nothing else", || {
            let mut store = store(&world.redis);
            let told = store.check(None, ask);
            (told.remaining(store.plan.limits(), 0, 0, ask) == LIMIT - 4_160).then_some(())
        });
        asked
    });
    println!("4,000 requests: {without} scripts, with auto {with}");
    assert!(with * 3 < without, "{with} with auto, {without} without");
}

fn auto_is_exact() {
    let world = World::of(&limiter(AUTO), 2, 2);
    assert_eq!(store(&world.redis).check(None, Ask::new(1, LIMIT - 3_000)).granted, 1);
    let mut admitted = 0;
    // A worker that was denied denies for half a second at most. By then, what others held is back.
    eventually("the whole limit to be admitted", || {
        let Statuses(statuses) = busy(&world, 100);
        assert!(statuses.iter().all(|(status, _)| [200, 429].contains(status)), "{statuses:?}");
        admitted += statuses.iter().find(|(status, _)| *status == 200).map_or(0, |found| found.1);
        assert!(admitted <= 3_000, "{admitted} of 3,000");
        (admitted == 3_000).then_some(())
    });
    eventually("every lease to end", || (world.total("wasmcustom.weir.on_lease") == 0).then_some(()));
    assert_eq!(busy(&world, 20), Statuses(vec![(429, 320)]));
    assert_eq!(world.total("wasmcustom.weir.fallback"), 0);
}
