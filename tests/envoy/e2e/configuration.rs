// SPDX-License-Identifier: Apache-2.0
//! Configurations, good and bad, as Envoy loads them.

use crate::support::dynamic::{Dynamic, Part};
use crate::support::envoy::Envoy;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{PATIENT, World, get, limited, plugin, template};
use crate::support::{TempFolder, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("a configuration with mistakes is refused, and each is named", mistakes_are_refused),
    ("counts in yaml are read as they are written", counts_are_read_as_written),
    ("an update keeps counting, and what is in flight ends well", an_update_keeps_counting),
    ("a bad update is refused, and the good configuration stays", a_bad_update_is_refused),
    (
        "the log says once which weir it is, and how many policies it has, and a metric names it",
        the_log_says_which,
    ),
    ("after an update of the plugin, the metric names the new one", the_metric_names_the_new_one),
    ("a subject's own limits are changed in redis, without a new configuration", overrides_are_read),
    ("a configuration that is refused while Envoy runs is counted by Envoy", refusals_are_counted),
    ("twenty thousand networks are read again when their file changes", lists_are_read_again),
    (
        "two policies, one of them with a lease: each has its own limits of a subject",
        overrides_of_two_policies,
    ),
];

/// The plugin is configured in each worker's thread, and in Envoy's main thread.
fn the_log_says_which() {
    let world = World::with(&limited(10), 1, 3, |template| {
        template.argument("--component-log-level").argument("wasm:info,dynamic_modules:info")
    });
    assert_eq!(world.send(&get()).status, 200);
    let line = format!("weir {}", env!("CARGO_PKG_VERSION"));
    let log = world.envoy().log();
    let lines: Vec<_> = log.lines().filter(|found| found.contains(&line)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let (_, build) = lines[0].split_once("weir ").expect("the build");
    let (build, hash) = build.split_once(": 1 policy, configuration ").unwrap_or_else(|| panic!("{build}"));
    let (version, commit) = build.split_once(' ').unwrap_or((build, "(unknown)"));
    let commit = commit.trim_matches(['(', ')']);
    assert_eq!(builds(world.envoy()), [(format!("{version}.{commit}"), 1)]);
    assert_eq!(world.envoy().stat("wasmcustom.weir.config_hash").to_string(), hash);
}

/// The builds of the limiters that Envoy has loaded, each with the value of its metric.
fn builds(envoy: &Envoy) -> Vec<(String, u64)> {
    const NAME: &str = "wasmcustom.weir.build_info.";
    let named = |(name, value): (String, u64)| (name.strip_prefix(NAME).expect("the name").to_owned(), value);
    envoy.stats(NAME).into_iter().map(named).collect()
}

fn the_metric_names_the_new_one() {
    let world = Dynamic::start(Part::Filter, &limited(10), 2, &[]);
    let [(old, 1)] = &builds(&world.envoy)[..] else { panic!("{:?}", builds(&world.envoy)) };
    world.update(&limited(11));
    eventually("the new limit", || {
        world.send().headers.get("ratelimit-policy")?.contains(";q=11;").then_some(())
    });
    assert_eq!(builds(&world.envoy), [(old.clone(), 1)]);
    // The same plugin, built from a commit of another name.
    let new = format!("{}z", &old[..old.len() - 1]);
    let mut wasm = std::fs::read(plugin()).expect("the plugin");
    let at = wasm.windows(old.len()).position(|bytes| bytes == old.as_bytes()).expect("the name");
    wasm[at..][..new.len()].copy_from_slice(new.as_bytes());
    let folder = TempFolder::new("build");
    let other = folder.path().join("weir.wasm");
    std::fs::write(&other, wasm).expect("a file");
    world.update_with(&limited(12), &plugin().display().to_string(), &other.display().to_string());
    eventually("the new build", || {
        world.send();
        builds(&world.envoy).contains(&(new.clone(), 1)).then_some(())
    });
    eventually("the old build's end", || {
        world.send();
        (builds(&world.envoy) == [(new.clone(), 1)]).then_some(())
    });
}

/// weir has no VM then that could count. The alert `WeirConfigurationRefused` is about these names, and the old limits stay in force.
fn refusals_are_counted() {
    let wrong = limited(10).replace("leaky_bucket", "leaky_buckt");
    for (part, name) in [
        (Part::Listener, "listener_manager_lds"),
        (Part::Filter, "extension_config_discovery_http_filter_weir"),
    ] {
        let world = Dynamic::start(part, &limited(10), 1, &[]);
        let refused = |count: u64| {
            let line = format!("envoy_{name}_update_rejected{{}} {count}");
            world.envoy.admin("/stats/prometheus").lines().any(|found| found == line).then_some(())
        };
        eventually("no refusal", || refused(0));
        world.update(&wrong);
        eventually("the refusal", || refused(1));
        assert!(world.send().headers.get("ratelimit-policy").is_some_and(|told| told.contains(";q=10;")));
        world.update(&limited(11));
        eventually("the next limit", || {
            world.send().headers.get("ratelimit-policy")?.contains(";q=11;").then_some(())
        });
        eventually("no further refusal", || refused(1));
    }
}

fn lists_are_read_again() {
    let listing = |last: &str| {
        let condition = |part: u32| {
            let networks: String = (0..1_000)
                .map(|number| {
                    let of = part * 1_000 + number;
                    format!(r#""10.{}.{}.0/24", "#, of / 256, of % 256)
                })
                .collect();
            format!(r#"{{"client_address": [{networks}"{last}"]}}"#)
        };
        let conditions: Vec<_> = (0..20).map(condition).collect();
        limited(9_999).replace("1/d", "1/h").replacen(
            '{',
            &format!(r#"{{"deny": [{}], "#, conditions.join(", ")),
            1,
        )
    };
    let world = Dynamic::start(Part::Filter, &listing("198.51.100.1"), 2, &[]);
    assert_eq!(world.send().status, 200);
    for (last, status) in [("127.0.0.0/8", 403), ("198.51.100.1", 200)] {
        world.update(&listing(last));
        eventually("the list", || (world.send().status == status).then_some(()));
    }
}

fn mistakes_are_refused() {
    let (redis, upstream) = (Redis::absent(), Upstream::start());
    let mistaken = limited(10).replace("leaky_bucket", "leaky_buckt").replace(r#""rate""#, r#""rat""#);
    let log =
        template(&mistaken, redis.address(), upstream.address()).try_start().expect_err("it is refused");
    for expected in ["policies[0].limits[0].algorithm", "leaky_buckt", "leaky_bucket"] {
        assert!(log.contains(expected), "{expected:?} is not in:\n{log}");
    }
}

/// Envoy makes a string of `1_2`, of `2k` and of a number over 2^31. It reads `010` as octal.
fn counts_are_read_as_written() {
    for (written, count) in [
        ("12", 12_u64),
        ("1_2", 12),
        ("\"12\"", 12),
        ("2k", 2_000),
        ("3000000000", 3_000_000_000),
        ("010", 8),
        ("0x10", 16),
    ] {
        let limit =
            format!(r#"{{"name": "l", "algorithm": "fixed_window", "limit": {written}, "window": "1h"}}"#);
        let limiter = format!(r#"{{{PATIENT}, "policies": [{{"name": "p", "limits": [{limit}]}}]}}"#);
        let world = World::with("the limiter", 1, 1, |template| {
            template
                .with("google.protobuf.StringValue", "google.protobuf.Struct")
                .with("\"the limiter\"", limiter)
        });
        let response = world.send(&get());
        let policy = response.headers.get("ratelimit-policy").unwrap_or_default();
        assert_eq!(policy, format!("\"l\";q={count};w=3600"), "{written}");
    }
}

fn an_update_keeps_counting() {
    let world = Dynamic::start(Part::Listener, &limited(10), 1, &[]);
    let in_flight = http::begin(world.envoy.address("edge"), &Request::get("/hold")).expect("sent");
    eventually("it to be held", || (world.upstream.held() == 1).then_some(()));
    for _ in 0..3 {
        assert_eq!(world.send().status, 200);
    }
    world.update(&limited(12));
    let mut admitted = 4;
    eventually("the new configuration", || {
        let response = world.send();
        admitted += usize::from(response.status == 200);
        response.headers.get("ratelimit-policy")?.contains(";q=12;").then_some(())
    });
    while world.send().status == 200 {
        admitted += 1;
    }
    assert_eq!(admitted, 12, "what was admitted under either configuration");
    world.upstream.release();
    assert_eq!(in_flight.finish().expect("a response").status, 200);
}

fn a_bad_update_is_refused() {
    let world = Dynamic::start(Part::Listener, &limited(3), 1, &[]);
    assert_eq!(world.send().status, 200);
    world.update(&limited(3).replace("burst", "brust"));
    eventually("the refusal", || {
        (world.envoy.stat("listener_manager.lds.update_rejected") == 1).then_some(())
    });
    assert!(world.envoy.log().contains("did you mean"), "{}", world.envoy.log());
    assert_eq!([world.send().status, world.send().status, world.send().status], [200, 200, 429]);
}

fn overrides_are_read() {
    let limit = r#"{"name": "l", "algorithm": "fixed_window", "limit": 2, "window": "300d"}"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}],
            "overrides": true, "limits": [{limit}]}}]}}"#
    ));
    let send = |user: &str| world.send(&get().header("x-user", user));
    let status = |user: &str| send(user).status;
    for user in ["ann", "bob"] {
        assert_eq!([status(user), status(user), status(user)], [200, 200, 429], "{user}");
    }
    let set = world.redis.connect().call(&[b"SET", b"weir:{p|ann}:override", br#"{"l": {"limit": 4}}"#]);
    assert_eq!(set, b"+OK\r\n");
    // A denial is relied on for a second at most, where an override may change it.
    let told = eventually("ann's own limit", || Some(send("ann")).filter(|told| told.status == 200));
    assert_eq!(told.headers.get("ratelimit-policy"), Some("\"l\";q=4;w=25920000"));
    assert_eq!([status("ann"), status("ann"), status("bob")], [200, 429, 429]);
}

/// Policy `few` admits two, and three of ann; policy `many` has a lease, and admits 100, and 60 of bob.
fn overrides_of_two_policies() {
    let policy = |name: &str, limit: u64, more: &str| {
        format!(
            r#"{{"name": "{name}", "subject": [{{"header": {{"name": "x-user"}}}}], "overrides": true, {more}
                "match": {{"path": {{"prefix": "/{name}"}}}},
                "limits": [{{"name": "l", "algorithm": "fixed_window", "limit": {limit}, "window": "300d"}}]}}"#
        )
    };
    let lease = r#""lease": {"max": 20, "min": 2, "duration": "1s"},"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{}, {}]}}"#,
        policy("few", 2, ""),
        policy("many", 100, lease)
    ));
    let mut redis = world.redis.connect();
    for (key, own) in [("weir:{few|ann}:override", "3"), ("weir:{many|bob}:override", "60")] {
        let own = format!(r#"{{"l": {{"limit": {own}}}}}"#);
        assert_eq!(redis.call(&[b"SET", key.as_bytes(), own.as_bytes()]), b"+OK\r\n");
    }
    for (path, user, admitted) in
        [("/few", "ann", 3), ("/few", "bob", 2), ("/many", "ann", 100), ("/many", "bob", 60)]
    {
        let statuses = (0..150).map(|_| world.send(&Request::get(path).header("x-user", user)).status);
        let statuses: Vec<_> = statuses.collect();
        let counts = [200, 429].map(|status| statuses.iter().filter(|other| **other == status).count());
        assert_eq!(counts, [admitted, 150 - admitted], "{path} {user}: {statuses:?}");
    }
}
