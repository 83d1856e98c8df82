// SPDX-License-Identifier: Apache-2.0
//! Two configurations of the dynamic module in one Envoy of one worker: two listeners, each with policies, a store and connections of its own.
//! The worker has one clock, and all connections and limiters beside each other.

use std::path::PathBuf;

use crate::instrumented;
use crate::support::clients::Clients;
use crate::support::envoy::{Envoy, Template};
use crate::support::http::{self, Request, Response};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, get, limited, template_on};
use crate::support::{TempFolder, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("two configurations: each decides by its own policies, in its own store", apart),
    ("two configurations: one store fails, and the other's requests notice nothing", one_store_fails),
    ("two configurations: one comes and goes, and the other works under load", one_comes_and_goes),
    ("two configurations: both go, and the module stays loaded", both_go),
];
/// With the instrumented module.
pub const PANICS: &[(&str, fn())] =
    &[("panics: in one of two configurations, the requests of the other go on waiting", a_panic_in_one)];

/// Two of everything but the worker: what is `b`'s has its name, `a`'s has the names of the shipped configuration.
struct Two {
    envoy: Envoy,
    a: Redis,
    b: Redis,
    _upstream: Upstream,
    listeners: [String; 3],
    file: PathBuf,
    _folder: TempFolder,
}

impl Two {
    fn start(limit_a: usize, limit_b: usize, change: impl FnOnce(Template) -> Template) -> Self {
        let (a, b) = (Redis::start().expect("a redis-server"), Redis::start().expect("a redis-server"));
        let upstream = Upstream::start();
        let template = change(template_on(Host::Native, "@limiter@", a.address(), upstream.address()));
        // An anchor does not reach from one file into another.
        let (_, module) = template.config().split_once("&weir_module ").expect("an anchor");
        let module = module.lines().next().expect("its value").to_owned();
        let whole = template.config().replace("&weir_module ", "").replace("*weir_module", &module);
        let (before, rest) = whole.split_once("  - name: edge\n").expect("the listener");
        let (edge, rest) =
            rest.split_once("  - name: weir-store\n").expect("the listener of the connections to Redis");
        let (store, rest) = rest.split_once("  - name: weir-clock\n").expect("the clock's listener");
        let (clock, rest) = rest.split_once("  clusters:\n").expect("the clusters");
        let (cluster, after) = rest.split_once("  - name: upstream\n").expect("the upstream");
        let of_b = |block: &str| block.replace("weir-bridge", "weir-b");

        let folder = TempFolder::new("two");
        let name = folder.path().file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let limiter = |limit: usize, policy: &str, cluster: &str| {
            let limiter = limited(limit)
                .replace("1/d", "1/m")
                .replace(r#""name": "p""#, &format!(r#""name": "{policy}""#))
                .replace(r#""store": {"#, &format!(r#""store": {{"cluster": "{cluster}", "#));
            let quoted = serde_json::Value::from(limiter).to_string();
            quoted.trim_matches('"').to_owned()
        };
        let listener = |name: &str, block: &str| {
            let block: String =
                block.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line))).collect();
            format!(
                "- \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n  name: {name}\n{block}"
            )
        };
        let edge_a = edge.replace("@limiter@", &limiter(limit_a, "a", "weir-bridge"));
        let edge_b = edge
            .replace("@limiter@", &limiter(limit_b, "b", "weir-b"))
            .replace("stat_prefix: edge\n", "stat_prefix: edge-b\n");
        let own = |suffix: &str| format!("\"@{name}-{suffix}\"");
        let store_a = store.replace("\"@weir-store\"", &own("a"));
        let store_b = of_b(&store.replace("\"@weir-store\"", &own("b")));
        let listeners = [
            listener("edge", &edge_a) + &listener("weir-store", &store_a),
            listener("edge-b", &edge_b) + &listener("weir-store-b", &store_b),
            listener("weir-clock", &clock.replace("\"@weir-clock\"", &own("clock"))),
        ];
        let file = folder.path().join("listeners.yaml");
        let port = |redis: &Redis| format!("port_value: {}", redis.address().port());
        let cluster_b = of_b(cluster).replace(&port(&a), &port(&b));
        let source = format!("{{path_config_source: {{path: {}}}}}", file.display());
        let before = before.trim_end().trim_end_matches("listeners:").trim_end();
        let bootstrap = format!(
            "node: {{id: test, cluster: test}}\ndynamic_resources: {{lds_config: {source}}}\n{before}\n  clusters:\n{cluster}{cluster_b}  - \
             name: upstream\n{after}"
        );
        std::fs::write(&file, format!("resources:\n{}", listeners.concat())).expect("a file");
        let envoy = Template::new(&bootstrap).argument("--drain-time-s").argument("1").start();
        for edge in ["edge::", "edge-b::"] {
            eventually("the listener", || envoy.admin("/listeners").contains(edge).then_some(()));
        }
        Self { envoy, a, b, _upstream: upstream, listeners, file, _folder: folder }
    }

    fn send(&self, edge: &str, request: &Request) -> Response {
        http::send(self.envoy.address(edge), request).expect("a response")
    }

    /// Envoy has these listeners from now on.
    fn have(&self, listeners: &[&String]) {
        let updates = || self.envoy.stat("listener_manager.lds.update_success");
        let before = updates();
        let next = self.file.with_extension("next");
        let all: String = listeners.iter().map(|listener| listener.as_str()).collect();
        let resources = if all.is_empty() { " []\n".to_owned() } else { format!("\n{all}") };
        std::fs::write(&next, format!("resources:{resources}")).expect("a file");
        std::fs::rename(&next, &self.file).expect("it takes the other's place");
        eventually("the update", || (updates() > before).then_some(()));
    }

    /// The number of connections to a Redis beside the test's own.
    fn connections(redis: &Redis) -> usize {
        redis.connect().say("CLIENT LIST").matches(" addr=").count() - 1
    }
}

fn keys(redis: &Redis) -> String {
    let keys = redis.connect().say("KEYS *");
    let keys: Vec<_> = keys.lines().filter(|line| line.starts_with("weir:")).collect();
    keys.join(" ")
}

fn apart() {
    let two = Two::start(2, 3, |template| template);
    let statuses = |edge: &str, count: usize| -> Vec<u16> {
        (0..count).map(|_| two.send(edge, &get()).status).collect()
    };
    assert_eq!(statuses("edge", 1), [200]);
    assert_eq!(statuses("edge-b", 1), [200]);
    assert_eq!(statuses("edge", 2), [200, 429]);
    assert_eq!(statuses("edge-b", 3), [200, 200, 429]);
    assert_eq!([keys(&two.a), keys(&two.b)], ["weir:{a|everybody}:l", "weir:{b|everybody}:l"]);
    assert_eq!([Two::connections(&two.a), Two::connections(&two.b)], [1, 1]);
}

fn one_store_fails() {
    let mut two = Two::start(100, 100, |template| template);
    assert_eq!([two.send("edge", &get()).status, two.send("edge-b", &get()).status], [200; 2]);
    for _ in 0..3 {
        two.b.stop();
        eventually("on_failure to decide", || (two.send("edge-b", &get()).status == 503).then_some(()));
        for _ in 0..5 {
            let by_a = two.send("edge", &get());
            assert!(by_a.status == 200 && by_a.headers.get("ratelimit").is_some(), "{by_a:?}");
        }
        two.b.restart();
        eventually("Redis to decide", || (two.send("edge-b", &get()).status == 200).then_some(()));
    }
}

fn a_panic_in_one() {
    let two = Two::start(100, 100, instrumented);
    assert_eq!([two.send("edge", &get()).status, two.send("edge-b", &get()).status], [200; 2]);
    two.b.freeze();
    let waiting: Vec<_> =
        (0..4).map(|_| http::begin(two.envoy.address("edge-b"), &get()).expect("sent")).collect();
    let active = || two.envoy.stat("http.edge-b.downstream_rq_active");
    eventually("four to wait", || (active() == 4).then_some(()));
    for place in ["evaluation", "submission", "end"] {
        let broken = two.send("edge", &get().header("x-weir-instrumented-fault", place));
        assert_eq!(broken.status, if place == "end" { 200 } else { 503 }, "{place}");
        let next = two.send("edge", &get());
        assert!(next.status == 200 && next.headers.get("ratelimit").is_some(), "{place}: {next:?}");
    }
    assert_eq!(active(), 4, "they wait still");
    two.b.thaw();
    for exchange in waiting {
        let response = exchange.finish().expect("a response");
        assert!(response.status == 200 && response.headers.get("ratelimit").is_some(), "{response:?}");
    }
}

fn one_comes_and_goes() {
    const ROUNDS: usize = 3;
    let two = Two::start(1_000_000, 100, |template| template);
    let clients = Clients::start(4, two.envoy.address("edge"));
    let [a, b, clock] = &two.listeners;
    for round in 0..ROUNDS {
        assert_eq!(two.send("edge-b", &get()).status, 200, "{round}");
        assert_eq!(Two::connections(&two.b), 1, "{round}");
        two.have(&[a, clock]);
        clients.go_on(50);
        eventually("the connection to close", || (Two::connections(&two.b) == 0).then_some(()));
        clients.go_on(50);
        two.have(&[a, b, clock]);
        eventually("the listener", || two.envoy.admin("/listeners").contains("edge-b::").then_some(()));
        clients.go_on(50);
    }
    let limit = two.send("edge-b", &get());
    assert!(limit.headers.get("ratelimit").is_some_and(|left| left.contains("r=96;")), "{limit:?}");
    let told = clients.end();
    assert_eq!((told.broken.len(), told.unanswered), (0, 0), "{:?}", told.broken);
    assert!(told.statuses.iter().all(|status| *status == 200), "{:?}", told.statuses());
    assert_eq!(two.envoy.stat("wasmcustom.weir.fallback"), 0);
    // A worker has more for a while where Redis answers late.
    eventually("one connection", || (Two::connections(&two.a) == 1).then_some(()));
}

/// Also where the configuration allows Envoy to unload the module.
fn both_go() {
    let two = Two::start(100, 100, |template| template.with("do_not_close: true", "do_not_close: false"));
    let [a, b, clock] = &two.listeners;
    for round in 0..3 {
        for edge in ["edge", "edge-b"] {
            let response = two.send(edge, &get());
            assert!(response.headers.get("ratelimit").is_some(), "{round}: {response:?}");
        }
        two.have(&[]);
        let all = || Two::connections(&two.a) + Two::connections(&two.b);
        eventually("the connections to close", || (all() == 0).then_some(()));
        two.have(&[a, b, clock]);
        for edge in ["edge::", "edge-b::"] {
            eventually("the listener", || two.envoy.admin("/listeners").contains(edge).then_some(()));
        }
    }
    assert_eq!(two.envoy.stat("wasmcustom.weir.fallback"), 0);
}
