// SPDX-License-Identifier: Apache-2.0
//! Requests that pass weir more than once, and requests that do not: Envoy's own retries, its internal redirects, and two weir filters in
//! one chain, as `docs/policies.md` describes them.

use crate::support::envoy::Template;
use crate::support::eventually;
use crate::support::http::{self, Request, Response};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{PATIENT, World, get, limited, template};

pub const TESTS: &[(&str, fn())] = &[
    ("chain: what the router retries is charged once", a_retry_is_charged_once),
    ("chain: each hop of an internal redirect is charged", a_redirect_is_charged_again),
    (
        "chain: a condition exempts the hops of an internal redirect, and no client can forge it",
        a_hop_can_be_exempt,
    ),
    ("chain: two filters are two limiters: headers, and what is charged", two_filters_are_two_limiters),
    ("chain: the timer of one filter releases the first request of another", a_timer_leads_to_another_filter),
];

const ROUTE: &str = "route: {cluster: upstream, timeout: 0s}";

/// The remaining amount of a limit, as the response says.
fn left(response: &Response, limit: &str) -> Option<usize> {
    let fields = response.headers.0.iter().filter(|(name, _)| name == "ratelimit");
    let told = fields.flat_map(|(_, value)| value.split(", ")).find_map(|item| {
        let item = item.strip_prefix(&format!("{limit:?};r="))?;
        item.split(';').next()
    });
    told.map(|left| left.parse().expect("a number"))
}

fn a_retry_is_charged_once() {
    let retries = "route: {cluster: upstream, retry_policy: {retry_on: reset, num_retries: 3}}";
    let world = World::with(&limited(10), 1, 1, |envoy| envoy.with(ROUTE, retries));
    let held = http::begin(world.edge(), &Request::get("/hold")).expect("sent");
    for tried in 1..=3 {
        eventually("the upstream to have it", || (world.upstream.requests() == tried).then_some(()));
        eventually("it to be held there", || (world.upstream.held() == 1).then_some(()));
        world.upstream.reset();
    }
    eventually("the last try", || (world.upstream.requests() == 4).then_some(()));
    world.upstream.release();
    let response = held.finish().expect("a response");
    assert_eq!((response.status, left(&response, "l")), (200, Some(9)));
    assert_eq!(world.envoy().stat("cluster.upstream.upstream_rq_retry"), 3);
    assert_eq!(left(&world.send(&get()), "l"), Some(8), "one for four tries");
}

/// An Envoy that follows redirects by itself.
fn redirects(limiter: &str) -> World {
    let follows = "route: {cluster: upstream, internal_redirect_policy: {}}";
    World::with(limiter, 1, 1, |envoy| envoy.with(ROUTE, follows))
}

fn a_redirect_is_charged_again() {
    let world = redirects(&limited(10));
    let response = world.send(&Request::get("/moved"));
    assert_eq!((response.status, left(&response, "l")), (200, Some(8)), "both hops");
    assert_eq!(world.envoy().stat("cluster.upstream.upstream_internal_redirect_succeeded_total"), 1);
    assert!(response.text().starts_with("GET /there "), "{}", response.text());
    // The client gets the response of a hop that is denied.
    assert_eq!([(); 4].map(|()| world.send(&Request::get("/moved")).status), [200; 4]);
    let charged = limited(1);
    let world = redirects(&charged);
    assert_eq!(world.send(&Request::get("/moved")).status, 429);
    assert_eq!(world.upstream.requests(), 1);
}

fn a_hop_can_be_exempt() {
    let condition = r#""match": {"header": {"name": "x-envoy-original-url", "present": false}}"#;
    let world = redirects(&limited(10).replace(r#""name": "p","#, &format!(r#""name": "p", {condition},"#)));
    assert_eq!(world.send(&Request::get("/moved")).status, 200);
    assert_eq!(world.envoy().stat("cluster.upstream.upstream_internal_redirect_succeeded_total"), 1);
    assert_eq!(left(&world.send(&get()), "l"), Some(8), "the first hop, and this one");
    // Envoy takes the header off a request from outside, in any spelling.
    for name in ["x-envoy-original-url", "X-Envoy-Original-Url"] {
        let before = left(&world.send(&get()), "l").expect("it is limited");
        let forged = world.send(&get().header(name, "http://weir.test/"));
        assert_eq!(left(&forged, "l"), Some(before - 1), "{name}");
    }
}

/// weir twice: a filter under this configuration, and another after it.
fn twice(first: &str, second: &str, redis: &Redis, upstream: &Upstream) -> Template {
    const ROUTER: &str = "          - name: router\n";
    let one = template("@limiter@", redis.address(), upstream.address());
    let (before, rest) = one.config().split_once("          - name: weir\n").expect("the filter");
    let (weir, after) = rest.split_once(ROUTER).expect("its end");
    let filter = |weir: &str, name: &str, limiter: &str| {
        let quoted = serde_json::Value::from(limiter).to_string();
        format!("          - name: {name}\n{}", weir.replace("\"@limiter@\"", &quoted))
    };
    let (code, anchored) = weir.split_once(": &").expect("the plugin, or the module");
    let (anchor, rest) = anchored.split_once(' ').expect("its name");
    let (_, rest) = rest.split_once('\n').expect("its line");
    let again = format!("{code}: *{anchor}\n{rest}");
    let (first, second) = (filter(weir, "weir", first), filter(&again, "weir-again", second));
    Template::new(&format!("{before}{first}{second}{ROUTER}{after}"))
}

/// Redis has stopped before the first request, so the timer of the first filter decides it. In that call of Envoy's the second filter arms a
/// timer for the first time.
fn a_timer_leads_to_another_filter() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let first = limited(10).replace(PATIENT, r#""store": {"deadline": "50ms"}"#);
    let second =
        first.replace(r#""name": "p""#, r#""name": "q""#).replace(r#""name": "l""#, r#""name": "m""#);
    let envoy = twice(&first, &second, &redis, &upstream).start();
    redis.freeze();
    for _ in 0..3 {
        assert_eq!(http::send(envoy.address("edge"), &get()).expect("a response").status, 200);
    }
    redis.thaw();
    eventually("Redis decides again", || {
        let response = http::send(envoy.address("edge"), &get()).expect("a response");
        left(&response, "l")
    });
}

fn two_filters_are_two_limiters() {
    // The first limits to ten, the second, nearer to the upstream, to one.
    let second =
        limited(1).replace(r#""name": "p""#, r#""name": "q""#).replace(r#""name": "l""#, r#""name": "m""#);
    for (mode, shown, denied) in [
        ("replace", [Some(9), None], [Some(8), None]),
        ("keep", [None, Some(0)], [None, Some(0)]),
        ("append", [Some(9), Some(0)], [Some(8), Some(0)]),
    ] {
        let first = limited(10).replace(
            r#""name": "p","#,
            &format!(r#""name": "p", "response": {{"upstream_headers": "{mode}"}},"#),
        );
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let envoy = twice(&first, &second, &redis, &upstream).start();
        let send = || http::send(envoy.address("edge"), &get()).expect("a response");
        let both = |response: &Response| [left(response, "l"), left(response, "m")];
        let admitted = send();
        assert_eq!((admitted.status, both(&admitted)), (200, shown), "{mode}");
        let rejected = send();
        assert_eq!((rejected.status, both(&rejected)), (429, denied), "{mode}");
        assert!(rejected.headers.get("retry-after").is_some(), "{mode}");
        assert_eq!(upstream.requests(), 1, "{mode}");
        // The first does not know that the second denies: each request takes one of its ten.
        let statuses: Vec<_> = (0..8).map(|_| send()).collect();
        assert!(statuses.iter().all(|response| response.text().contains("\"m\"")), "{mode}: by the second");
        assert!(send().text().contains("\"l\""), "{mode}: by the first");
    }
}
