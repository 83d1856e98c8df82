// SPDX-License-Identifier: Apache-2.0
//! The number of admitted requests: exactly as many as the limit says, however they arrive, and whatever they carry.

use crate::leases::{leased, used};
use crate::support::eventually;
use crate::support::http::{self, Exchange, Request};
use crate::support::upstream::body_account;
use crate::support::weir::{PATIENT, Statuses, World, get, limited, limited_by, template};

/// The number of tests of exactness, each with a new subject.
const RUNS: usize = 100;

pub const TESTS: &[(&str, fn())] = &[
    ("40 at once on a limit of 10: one envoy", forty_on_ten::<1, 1>),
    ("40 at once on a limit of 10: one envoy, concurrency 2", forty_on_ten::<1, 2>),
    ("40 at once on a limit of 10: two envoys", forty_on_ten::<2, 1>),
    ("40 at once on a limit of 10: two envoys, concurrency 2", forty_on_ten::<2, 2>),
    ("the quota comes back as time passes", the_quota_comes_back),
    ("subjects are limited apart: by a header", subjects_are_limited_apart),
    ("a policy applies at its hours, and no other", hours),
    ("a denial by one policy gives back what another granted", a_denial_gives_back_other_grants),
    ("a subject over its limit costs redis nothing", a_denied_subject_costs_nothing),
    ("100 bursts on a limit of 10, two envoys of two workers: each admits 10", a_hundred_bursts_are_exact),
    (
        "100 leased bursts on a limit of 10, two envoys of two workers: none admits 11",
        a_hundred_leased_bursts,
    ),
    ("leases: a busy subject is asked about seldom, and never admitted too often", leases_are_exact::<1, 1>),
    ("leases: two envoys of two workers admit the limit", leases_are_exact::<2, 2>),
    ("leases: what is left comes back", leases_come_back),
    ("1,000 rejections at once", a_thousand_rejections),
    ("1,000 admissions at once, of 1,000 subjects", a_thousand_subjects),
    ("clients that disconnect while they are held", clients_disconnect_while_held),
    ("the body of a held request arrives whole", a_body_arrives_whole),
];

fn forty_on_ten<const ENVOYS: usize, const WORKERS: usize>() {
    let world = World::of(&limited(10), ENVOYS, WORKERS);
    for envoy in &world.envoys {
        assert_eq!(envoy.stat("server.concurrency"), WORKERS as u64);
    }
    assert_eq!(world.burst(40, &get()), Statuses(vec![(200, 10), (429, 30)]));
    assert_eq!(world.upstream.requests(), 10, "what was rejected must not have reached the upstream");
    assert_eq!(world.burst(8, &get()), Statuses(vec![(429, 8)]));
}

fn the_quota_comes_back() {
    let limit = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "2/s", "burst": 2}"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}]}}"#
    ));
    // At once: however long a request takes, more arrive than come back meanwhile.
    eventually("a rejection", || {
        world.burst(20, &get()).0.iter().any(|(status, _)| *status == 429).then_some(())
    });
    eventually("an admission", || (world.send(&get()).status == 200).then_some(()));
}

fn subjects_are_limited_apart() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}}"#, 1));
    let statuses: Vec<u16> = ["ann", "bob", "ann", "bob", "eve"]
        .iter()
        .map(|user| world.send(&get().header("x-user", user)).status)
        .collect();
    assert_eq!(statuses, [200, 200, 429, 429, 200]);
}

/// An hour before and after this minute, and the hours that are left.
fn hours() {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
    let clock = |seconds: u64| format!("{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60);
    let (from, to) = (clock(seconds + 23 * 3_600), clock(seconds + 3_600));
    let policy = |name: &str, hours: String, burst: usize| {
        let limit =
            format!(r#"{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}"#);
        format!(
            r#"{{"name": "{name}", "match": {{"time": {{"hours": "{hours}"}}}}, "subject": [{{"literal": "s"}}], "limits": [{limit}]}}"#
        )
    };
    let policies = [policy("now", format!("{from}-{to}"), 3), policy("later", format!("{to}-{from}"), 1)];
    let world = World::of(&format!(r#"{{{PATIENT}, "policies": [{}]}}"#, policies.join(", ")), 2, 1);
    assert_eq!(world.burst(8, &get()), Statuses(vec![(200, 3), (429, 5)]));
    assert_eq!(world.total("wasmcustom.weir.policy.later.requests.allowed.redis"), 0);
}

fn a_denial_gives_back_other_grants() {
    let limit = |name: &str, burst: usize| {
        format!(
            r#""limits": [{{"name": "{name}", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]"#
        )
    };
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [
            {{"name": "all", "subject": [{{"literal": "all"}}], {}}},
            {{"name": "each", "subject": [{{"header": {{"name": "x-user"}}}}], {}}}]}}"#,
        limit("all", 3),
        limit("each", 1),
    ));
    let as_user = |user: &str| world.send(&get().header("x-user", user)).status;
    assert_eq!(as_user("ann"), 200);
    // Denied by `each`: what `all` granted for it goes back with the next batch.
    assert_eq!([as_user("ann"), as_user("ann"), as_user("ann")], [429; 3]);
    assert_eq!([as_user("bob"), as_user("eve"), as_user("sam")], [200, 200, 429]);
}

fn a_denied_subject_costs_nothing() {
    let world = World::start(&limited(1).replace(r#""store": {"#, r#""store": {"denial_ttl": "1h", "#));
    assert_eq!([world.send(&get()).status, world.send(&get()).status], [200, 429]);
    let commands = || world.envoy().stat("wasmcustom.weir.commands");
    let before = commands();
    assert!(before >= 2, "both were asked about");
    assert_eq!(world.burst(100, &get()), Statuses(vec![(429, 100)]));
    assert_eq!(commands(), before);
}

fn a_thousand_rejections() {
    let world = World::start(&limited(1));
    assert_eq!(world.send(&get()).status, 200);
    assert_eq!(world.burst(1_000, &get()), Statuses(vec![(429, 1_000)]));
    assert_eq!(world.upstream.requests(), 1);
    assert_eq!(world.send(&get()).status, 429, "the worker must have survived it");
}

fn a_thousand_subjects() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}}"#, 1));
    let requests = (0..1_000).map(|user| get().header("x-user", &user.to_string()));
    let statuses: Statuses = http::burst(world.edge(), requests)
        .expect("responses")
        .iter()
        .map(|response| response.status)
        .collect();
    assert_eq!(statuses, Statuses(vec![(200, 1_000)]));
}

fn clients_disconnect_while_held() {
    let world = World::start(&limited(10));
    assert_eq!(world.send(&get()).status, 200);
    world.redis.freeze();
    let held = http::burst_held(world.edge(), (0..20).map(|_| get())).expect("sent");
    let active = |expected| {
        eventually(&format!("{expected} requests in flight"), || {
            (world.envoy().stat("http.edge.downstream_rq_active") == expected).then_some(())
        });
    };
    active(20);
    let (leaving, staying): (Vec<_>, Vec<_>) = held.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    leaving.into_iter().for_each(|(_, exchange)| Exchange::abort(exchange));
    active(10);
    world.redis.thaw();
    let statuses: Statuses =
        staying.into_iter().map(|(_, held)| held.finish().expect("a response").status).collect();
    // Nine were left. Of the ones that left, those asked about already keep their units; no request hangs.
    let answered: usize = statuses.0.iter().map(|(_, count)| count).sum();
    assert_eq!(answered, 10);
    assert!(statuses.0.iter().all(|(status, _)| [200, 429].contains(status)), "{statuses:?}");
    active(0);
    assert!(world.upstream.requests() <= 10);
    assert_eq!(world.envoy().stat("wasmcustom.weir.fallback"), 0);
}

fn a_body_arrives_whole() {
    let world = World::start(&limited(3));
    for length in [0, 1, 1_000_000] {
        let body: Vec<u8> = (0..length).map(|byte: u32| byte.to_le_bytes()[0]).collect();
        let response = world.send(&Request::post("/echo", &body));
        assert_eq!(response.status, 200);
        assert_eq!(response.text().lines().last(), Some(body_account(&body).as_str()));
    }
    assert_eq!(world.send(&Request::post("/echo", &[7; 1_000_000])).status, 429);
    assert_eq!(world.upstream.requests(), 3);
}

const EACH_USER: &str = r#"{"header": {"name": "x-user"}}"#;

fn user(run: usize) -> Request {
    get().header("x-user", &run.to_string())
}

fn a_hundred_bursts_are_exact() {
    let world = World::of(&limited_by(EACH_USER, 10), 2, 2);
    for run in 0..RUNS {
        assert_eq!(world.burst(24, &user(run)), Statuses(vec![(200, 10), (429, 14)]), "run {run}");
        assert_eq!(world.burst(8, &user(run)), Statuses(vec![(429, 8)]), "run {run}: the quota is used up");
    }
    assert_eq!(world.upstream.requests(), 10 * RUNS);
    assert_eq!(world.total("wasmcustom.weir.fallback"), 0, "redis decided");
    // Each of four workers asks on its own; a worker that asked for each request would have sent 32 a run.
    let commands = world.total("wasmcustom.weir.commands");
    assert!(
        commands < 24 * RUNS as u64,
        "requests must have shared commands, or been denied here: {commands}"
    );
}

fn a_hundred_leased_bursts() {
    let world = World::of(&leased(&limited_by(EACH_USER, 10), "300ms"), 2, 2);
    let admitted = |burst: &Statuses| {
        // One that the upstream failed has passed the limit too.
        assert!(burst.0.iter().all(|(status, _)| [200, 429].contains(status)), "{burst:?}");
        burst.0.iter().find(|(status, _)| *status == 200).map_or(0, |found| found.1)
    };
    let first: Vec<usize> = (0..RUNS).map(|run| admitted(&world.burst(24, &user(run)))).collect();
    assert!(first.iter().all(|admitted| (1..=10).contains(admitted)), "{first:?}");
    assert!(first.iter().any(|admitted| *admitted < 10), "some units must have been on lease: {first:?}");
    eventually("every lease to end", || (world.total("wasmcustom.weir.on_lease") == 0).then_some(()));
    // A refund gives back no more than what was taken when its grant was made, less what has come back with time or by other refunds
    // since: of a grant that is refunded after later ones, a unit may stay charged.
    let stays = RUNS / 10;
    let sum: usize = first.iter().sum();
    let used = eventually(&format!("what was on lease to be back, but for {stays} of all units"), || {
        let used = (0..RUNS).map(|run| used(&world.redis, &run.to_string(), 10, 24));
        Some(used.collect::<Vec<_>>()).filter(|used| used.iter().sum::<usize>() <= sum + stays)
    });
    assert!(used.iter().zip(&first).all(|(used, first)| used >= first), "{used:?} for {first:?}");
    // An Envoy that takes nothing in advance finds in Redis what was not admitted: that, and no more.
    let after = template(&limited_by(EACH_USER, 10), world.redis.address(), world.upstream.address()).start();
    let mut all = 0;
    for (run, first) in first.into_iter().enumerate() {
        let rest = http::burst(after.address("edge"), std::iter::repeat_n(user(run), 12)).expect("responses");
        let rest = admitted(&rest.iter().map(|response| response.status).collect());
        assert!(first + rest <= 10, "run {run}: {first} at first, then {rest}");
        all += first + rest;
    }
    assert!(all + stays >= 10 * RUNS, "{all} of {}", 10 * RUNS);
}

/// One after the other, so that each request finds what the one before it left on lease.
fn leases_are_exact<const ENVOYS: usize, const WORKERS: usize>() {
    let world = World::of(&leased(&limited(200), "60s"), ENVOYS, WORKERS);
    let edges: Vec<_> = world.envoys.iter().map(|envoy| envoy.address("edge")).collect();
    let statuses: Statuses =
        (0..400).map(|n| http::send(edges[n % edges.len()], &get()).expect("a response").status).collect();
    let admitted = statuses.0.iter().find(|(status, _)| *status == 200).expect("some").1;
    eventually(&format!("what was not admitted to be on lease, and counted: {statuses:?}"), || {
        (admitted as u64 + world.total("wasmcustom.weir.on_lease") == 200).then_some(())
    });
    let asked = world.total("wasmcustom.weir.commands");
    assert!(asked < 100, "{asked} script calls for 400 requests");
}

fn leases_come_back() {
    let world = World::start(&leased(&limited(10), "3s"));
    assert_eq!(world.send(&get()).status, 200);
    let on_lease = || world.envoy().stat("wasmcustom.weir.on_lease");
    eventually("a lease", || (on_lease() == 2).then_some(()));
    eventually("the lease to end", || (on_lease() == 0).then_some(()));
    // Another Envoy sees it as it is in Redis: one request was made of ten.
    let other = template(&limited(10), world.redis.address(), world.upstream.address()).start();
    let left = http::send(other.address("edge"), &get()).expect("a response").headers;
    assert!(left.get("ratelimit").is_some_and(|left| left.starts_with(r#""l";r=8;"#)), "{left:?}");
}
