// SPDX-License-Identifier: Apache-2.0
//! Denials are written to a stream in Redis, by all workers, and no request suffers from that.

use std::collections::{BTreeMap, BTreeSet};

use weir::resp::{self, Reply};

use crate::support::eventually;
use crate::support::http;
use crate::support::redis::Connection;
use crate::support::weir::{PATIENT, Statuses, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("journal: who was denied, by what, through two envoys", denials_are_written),
    ("journal: a flood of denials is bounded", a_flood_is_bounded),
    ("journal: a limit that is nearly used up, in two envoys", warnings_are_written),
    ("journal: a redis that refuses it decides every request", a_refused_journal_harms_no_request),
    ("journal: a denial by a list is written without other traffic", a_list_is_enough),
    ("journal: off unless configured", it_is_off_by_default),
];

pub type Entry = BTreeMap<String, String>;

/// The entries of the journal, oldest first.
pub fn entries(redis: &mut Connection) -> Vec<Entry> {
    let reply = redis.call(&[b"XRANGE", b"weir:{journal}", b"-", b"+"]);
    let Ok(Some((Reply::Array(Some(entries)), _))) = resp::decode(&reply) else { panic!("{reply:?}") };
    let text = |reply: &Reply<'_>| match reply {
        Reply::Bulk(Some(bytes)) => String::from_utf8(bytes.to_vec()).expect("text"),
        other => panic!("{other:?}"),
    };
    let fields = |entry: &Reply<'_>| match entry {
        Reply::Array(Some(entry)) => match &entry[..] {
            [_, Reply::Array(Some(words))] => {
                words.as_chunks().0.iter().map(|[name, value]| (text(name), text(value))).collect()
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    entries.iter().map(fields).collect()
}

fn field<'a>(entry: &'a Entry, name: &str) -> &'a str {
    entry.get(name).map_or("-", String::as_str)
}

fn number(entry: &Entry, name: &str) -> u64 {
    entry.get(name).map_or(0, |number| number.parse().expect("a number"))
}

/// The first policy enforces, the second is in shadow; both by user.
fn journaling(journal: &str) -> String {
    let policy = |name: &str, mode: &str, limit: &str, burst: u32| {
        format!(
            r#"{{"name": "{name}", "mode": "{mode}", "subject": [{{"header": {{"name": "x-user"}}, "on_missing": "deny"}}],
            "limits": [{{"name": "{limit}", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]}}"#
        )
    };
    format!(
        r#"{{"journal": {journal}, {PATIENT}, "deny": [{{"method": ["DELETE"]}}, {{"method": ["PUT"]}}],
            "policies": [{}, {}]}}"#,
        policy("firm", "enforce", "few", 2),
        policy("tried", "shadow", "one", 1)
    )
}

fn as_user(user: &str) -> http::Request {
    get().header("x-user", user)
}

fn denials_are_written() {
    let world = World::of(&journaling("{}"), 2, 1);
    let send = |envoy: usize, request: &http::Request| {
        http::send(world.envoys[envoy].address("edge"), request).expect("a response").status
    };
    // The user is escaped in keys, and so it is here.
    let user = "a b}|\u{1b}[2J".replace('\u{1b}', "%1b");
    assert_eq!([0, 1].map(|envoy| send(envoy, &as_user(&user))), [200, 200]);
    assert_eq!([0, 1].map(|envoy| send(envoy, &as_user(&user))), [429, 429]);
    assert_eq!(send(1, &http::Request::put("/")), 403);
    assert_eq!(send(0, &get()), 403);
    let tag = |policy: &str| format!("{{{policy}|a%20b%7D%7C%251b%5B2J}}");
    let wanted: BTreeSet<_> = [
        format!("shadow tried one redis {} 1 -", tag("tried")),
        format!("rejected firm few redis {} 1 -", tag("firm")),
        String::from("denied - - - - - deny[1]"),
        String::from("denied firm - - - - subject[0] missing"),
    ]
    .into();
    let row = |entry: &Entry| {
        let names = ["outcome", "policy", "limit", "source", "subject", "cost", "reason"];
        names.map(|name| field(entry, name)).join(" ")
    };
    let mut redis = world.redis.connect();
    // Two rejections, and a shadow denial beside each and beside the second request.
    let found = eventually("the entries", || Some(entries(&mut redis)).filter(|found| found.len() == 7));
    let rows: Vec<_> = found.iter().map(row).collect();
    // A worker that was denied before may know the answer of the shadow policy by itself.
    let rows: BTreeSet<_> = rows.iter().map(|row| row.replace("denied-until", "redis")).collect();
    assert_eq!(rows, wanted);
    assert!(found.iter().all(|entry| number(entry, "age_ms") < 60_000 && number(entry, "skipped") == 0));
    assert_eq!(world.total("wasmcustom.weir.journal_dropped"), 0);
}

/// Requests go to the two Envoys in turn. Each of them writes one warning.
fn warnings_are_written() {
    let limiter = format!(
        r#"{{"journal": {{}}, {PATIENT}, "policies": [{{"name": "plan", "response": {{"warning_header": true}}, "limits": [
            {{"name": "day", "algorithm": "fixed_window", "align": "first", "limit": 10, "window": "1d", "warn_at_percent": 80}}]}}]}}"#
    );
    let world = World::of(&limiter, 2, 1);
    let responses = (0..11).map(|number: usize| {
        let response = http::send(world.envoys[number % 2].address("edge"), &get()).expect("a response");
        format!("{} {}", response.status, response.headers.get("x-ratelimit-warning").unwrap_or_default())
    });
    let mut wanted = vec![String::from("200 "); 7];
    wanted.extend([80, 90, 100].map(|used| format!("200 \"day\";used={used}")));
    wanted.push(String::from("429 "));
    assert_eq!(responses.collect::<Vec<_>>(), wanted);
    let mut redis = world.redis.connect();
    let found = eventually("the entries", || Some(entries(&mut redis)).filter(|found| found.len() == 3));
    let row = |entry: &Entry| {
        ["outcome", "policy", "limit", "used_percent"].map(|name| field(entry, name)).join(" ")
    };
    let rows: BTreeSet<_> = found.iter().map(row).collect();
    let wanted = ["warned plan day 80", "warned plan day 90", "rejected plan day -"].map(String::from);
    assert_eq!(rows, wanted.into());
    let counted = || Some(world.total("wasmcustom.weir.policy.plan.limit.day.warned"));
    eventually("the metric", || counted().filter(|count| *count == 3));
}

fn a_flood_is_bounded() {
    const CAP: i64 = 20;
    let world = World::of(&journaling(r#"{"max_entries": 20, "max_per_second": 5, "shadow": false}"#), 2, 2);
    let length = || world.redis.connect().integer(&[b"XLEN", b"weir:{journal}"]);
    let rejected =
        |round: &Statuses| round.0.iter().find(|(status, _)| *status == 429).map_or(0, |found| found.1);
    let mut denied = 0;
    let told = eventually("a full journal", || {
        denied += rejected(&world.burst(100, &as_user("ann"))) as u64;
        assert!(length() <= CAP, "never longer");
        let found = entries(&mut world.redis.connect());
        // The oldest entries were removed, so an entry of a later second is there.
        let is_told = found.iter().any(|entry| number(entry, "skipped") > 0);
        (found.len() as i64 == CAP && is_told).then_some(found)
    });
    assert!(told.iter().all(|entry| field(entry, "outcome") == "rejected"), "{told:?}");
    let dropped = eventually("the dropped ones to be counted", || {
        Some(world.total("wasmcustom.weir.journal_dropped")).filter(|dropped| *dropped > 0)
    });
    assert!(dropped <= denied);
    assert!(length() <= CAP);
}

fn a_refused_journal_harms_no_request() {
    let world = World::of(&journaling(r#"{"max_per_second": 10000}"#), 1, 2);
    let mut admin = world.redis.connect();
    assert_eq!(admin.say("ACL SETUSER default -xadd"), "+OK\r\n");
    for round in 0..10 {
        let user = format!("user-{round}");
        assert_eq!(world.burst(20, &as_user(&user)), Statuses(vec![(200, 2), (429, 18)]));
    }
    eventually("a failure", || (world.total("wasmcustom.weir.store.noperm") > 0).then_some(()));
    assert_eq!(world.total("wasmcustom.weir.breaker_open"), 0);
    assert_eq!(world.total("wasmcustom.weir.fallback"), 0);
    eventually("the dropped ones to be counted", || {
        (world.total("wasmcustom.weir.journal_dropped") > 0).then_some(())
    });
    assert!(world.envoy().log().contains("allow the user the commands"), "the operator is told");
    assert_eq!(admin.say("ACL SETUSER default +xadd"), "+OK\r\n");
    let told = eventually("entries", || {
        assert_eq!(world.send(&as_user("user-0")).status, 429);
        let found = entries(&mut admin);
        found.iter().any(|entry| number(entry, "skipped") > 0).then_some(found)
    });
    assert!(!told.is_empty());
    assert_eq!(world.total("wasmcustom.weir.fallback"), 0);
}

fn a_list_is_enough() {
    let world = World::of(&journaling("{}"), 1, 1);
    assert_eq!(world.send(&as_user("ann")).status, 200);
    let mut redis = world.redis.connect();
    for count in 1..4 {
        assert_eq!(world.send(&http::Request::put("/")).status, 403);
        eventually("its entry", || (entries(&mut redis).len() == count).then_some(()));
    }
}

fn it_is_off_by_default() {
    let world = World::start(&journaling("{}").replace(r#""journal": {},"#, ""));
    assert_eq!(world.burst(5, &as_user("ann")), Statuses(vec![(200, 2), (429, 3)]));
    assert_eq!(world.send(&http::Request::put("/")).status, 403);
    assert!(!world.redis.connect().say("INFO commandstats").contains("xadd"));
    assert_eq!(world.redis.connect().say("EXISTS weir:{journal}"), ":0\r\n");
}
