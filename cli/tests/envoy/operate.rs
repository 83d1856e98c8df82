// SPDX-License-Identifier: Apache-2.0
//! The operator's views, tried on a real scrape: a Prometheus reads the metrics of an Envoy, every query of the dashboard and of the rules
//! has an answer, every documented name exists, and alerts fire when Redis stops. Its cases are ignored where there is no Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::envoy::Template;
use crate::support::http::{self, Request};
use crate::support::redis::{Redis, free_address};
use crate::support::regions::with_stores;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, World, template_on};
use crate::support::{PATIENCE, TempFolder, eventually, eventually_within, ignored_unless, root};
use serde_json::Value;

/// The cases that cannot run here, with the reason.
pub fn ignored() -> Vec<(&'static str, &'static str)> {
    let missing = "no prometheus and promtool in $WEIR_PROMETHEUS, /usr/bin or .tools/prometheus";
    ignored_unless(folder().is_some(), &TESTS, missing)
}

pub const TESTS: [(&str, fn()); 4] = [
    ("operate: promtool accepts the rules, and each alert fires when it should", promtool),
    ("operate: every query has an answer, and alerts fire: weir.wasm", || scraped(Host::Wasm)),
    ("operate: every query has an answer, and alerts fire: libweir.so", || scraped(Host::Native)),
    ("operate: both hosts have the same names, and the document has each", documented),
];

fn path(of: &str) -> PathBuf {
    root().join(of)
}

fn read(of: &str) -> String {
    fs::read_to_string(path(of)).unwrap_or_else(|error| panic!("{of}: {error}"))
}

/// The folder with `prometheus` and `promtool`.
fn folder() -> Option<PathBuf> {
    let folder =
        std::env::var_os("WEIR_PROMETHEUS").filter(|folder| !folder.is_empty()).map(PathBuf::from)?;
    Some(folder).filter(|folder| folder.join("prometheus").exists() && folder.join("promtool").exists())
}

fn promtool() {
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules.test.yaml"]] {
        let mut command = Command::new(folder().expect("it was there").join("promtool"));
        let output = command.args(arguments).current_dir(path("operate")).output().expect("it runs");
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success() && said.contains("SUCCESS"), "{arguments:?}: {said}");
    }
}

/// A running Prometheus that reads one Envoy each second; it stops when dropped.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: TempFolder,
}

impl Prometheus {
    /// With the rules that are shipped. Alerts fire at once: what they wait for is tested by `promtool`.
    fn start(envoy: SocketAddr) -> Self {
        let (folder_of, folder) = (folder().expect("it was there"), TempFolder::new("prometheus"));
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            path
        };
        let at_once = |line: &str| !line.trim_start().starts_with("for: ");
        let rules: Vec<String> = read("operate/rules.yaml")
            .lines()
            .filter(|line| at_once(line))
            .map(|line| {
                ["[2m]", "[5m]", "[10m]"]
                    .iter()
                    .fold(line.to_owned(), |line, span| line.replace(span, "[10s]"))
            })
            .collect();
        file("rules.yaml", &rules.join("\n"));
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yaml]\nscrape_configs:\n\
             - job_name: envoy\n  metrics_path: /stats/prometheus\n  static_configs: [{{targets: ['{envoy}']}}]\n"
        );
        let config = file("prometheus.yaml", &config);
        let address = free_address();
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let process = Command::new(folder_of.join("prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("the log"))
            .stdout(log)
            .spawn()
            .expect("it runs");
        let prometheus = Self { process, address, folder };
        eventually("Prometheus's readiness", || {
            http::send(address, &Request::get("/-/ready")).ok().filter(|response| response.status == 200)
        });
        prometheus
    }

    fn get(&self, path: &str) -> Value {
        let response = http::send(self.address, &Request::get(path)).expect("an answer of Prometheus");
        let body: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].clone()
    }

    /// The values that a query has now.
    fn query(&self, query: &str) -> Vec<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.get(&format!("/api/v1/query?query={encoded}"));
        let samples = data["result"].as_array().expect("samples").clone();
        let value = |sample: &Value| sample["value"][1].as_str().expect("a value").parse().expect("a number");
        samples.iter().map(value).collect()
    }

    /// The alerts that fire.
    fn firing(&self) -> BTreeSet<String> {
        let data = self.get("/api/v1/alerts");
        let firing =
            data["alerts"].as_array().expect("alerts").iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().expect("a name").to_owned()).collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Policies that together can count everything.
const LIMITER: &str = r#"{
    "store": {"deadline": "200ms", "on_failure": "allow"}, "top_denied": {"interval": "1s"},
    "regions": {"here": "ams", "sync_interval": "50ms", "all": [
        {"name": "ams", "cluster": "weir-bridge-ams"}, {"name": "bom", "cluster": "weir-bridge-bom"}]},
    "deny": [{"header": {"name": "x-rude"}}], "exempt": [{"header": {"name": "x-boss"}}],
    "policies": [
        {"name": "per.user", "subject": [{"header": {"name": "x-user"}, "on_missing": "deny", "on_multiple": "deny"}],
         "limits": [{"name": "burst", "algorithm": "leaky_bucket", "rate": "1/m", "burst": 20}]},
        {"name": "trial", "mode": "shadow", "subject": [{"header": {"name": "x-user"}}],
         "limits": [{"name": "day", "algorithm": "fixed_window", "limit": 5, "window": "1d", "warn_at_percent": 20}]},
        {"name": "debit", "match": {"path": {"exact": "/debit"}}, "on_failure": "deny", "regions": {"debit": {}},
         "limits": [{"name": "hour", "algorithm": "fixed_window", "limit": 5000, "window": "1h"}]},
        {"name": "share", "match": {"path": {"exact": "/share"}}, "on_failure": "deny", "regions": {"share": {}},
         "limits": [{"name": "hour", "algorithm": "fixed_window", "limit": 10, "window": "1h"}]}
    ]}"#;

/// An Envoy of the region ams. The other Redis is that of bom.
fn world(host: Host, workers: usize) -> (World, Redis, Discovered) {
    let (redis, bom, upstream) = (Redis::start(), Redis::start(), Upstream::start());
    let (redis, bom) = (redis.expect("a redis-server"), bom.expect("a redis-server"));
    let shipped = template_on(host, LIMITER, redis.address(), upstream.address());
    let others = [("bom", bom.address())].into_iter();
    let config = with_stores(host, shipped.config(), redis.address(), others);
    let (discovered, sources) = Discovered::new(&config);
    let envoys = vec![Template::new(&format!("{sources}{config}")).concurrency(workers).start()];
    (World { envoys, redis, upstream }, bom, discovered)
}

/// A second listener that Envoy reads from a file, its limiter from another, and a cluster from a third.
struct Discovered {
    folder: TempFolder,
    limiter: Value,
}

impl Discovered {
    /// The files, and what a bootstrap says of them.
    fn new(config: &str) -> (Self, String) {
        let folder = TempFolder::new("discovered");
        let path = folder.path().to_owned();
        let source = |name: &str| serde_json::json!({"path_config_source": {"path": path.join(name)}, "resource_api_version": "V3"});
        let mut listener =
            weir_cli::envoys_reading("a.yaml", config).expect("YAML")["static_resources"]["listeners"][0]
                .clone();
        listener["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
        listener["name"] = "second".into();
        listener["address"] =
            serde_json::json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}});
        let filters = &mut listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
        let filters = filters.as_array_mut().expect("filters");
        let filter = filters.iter_mut().find(|filter| filter["name"] == "weir").expect("the limiter");
        let kind = filter["typed_config"]["@type"].clone();
        let discovery = serde_json::json!({"name": "weir", "config_discovery": {"config_source": source("ecds.yaml"), "type_urls": [kind]}});
        let mut limiter = std::mem::replace(filter, discovery);
        limiter["@type"] = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig".into();
        let discovered = Self { folder, limiter };
        discovered.write("ecds.yaml", &discovered.limiter);
        discovered.write("lds.yaml", &listener);
        let kind = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        discovered.write("cds.yaml", &serde_json::json!({"@type": kind, "name": "second", "type": "STATIC"}));
        let sources = format!(
            "node: {{id: a, cluster: a}}\ndynamic_resources: {{lds_config: {}, cds_config: {}}}\n",
            source("lds.yaml"),
            source("cds.yaml")
        );
        (discovered, sources)
    }

    fn write(&self, name: &str, resource: &Value) {
        let next = self.folder.path().join("next");
        fs::write(&next, serde_json::json!({"resources": [resource]}).to_string()).expect("written");
        fs::rename(next, self.folder.path().join(name)).expect("moved");
    }

    /// Delivers a limiter without policies.
    fn refuse(&self) {
        let mut wrong = self.limiter.clone();
        let config = &mut wrong["typed_config"];
        let value = match config["config"].is_null() {
            false => &mut config["config"]["configuration"]["value"],
            true => &mut config["filter_config"]["value"],
        };
        assert!(!value.is_null());
        *value = if value.is_string() { "{}".into() } else { serde_json::json!({}) };
        self.write("ecds.yaml", &wrong);
    }
}

/// Requests of all kinds. One is of a new user, so that Redis has to be asked.
fn traffic(edge: SocketAddr) {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let fresh = format!("user-{}", SENT.fetch_add(1, Ordering::Relaxed));
    let user = |name: &str| Request::get("/").header("x-user", name);
    let requests = [
        user("ann"),
        user(&fresh),
        user("bob"),
        user("bob"),
        Request::get("/"),
        user("rude").header("x-rude", "1"),
        user("boss").header("x-boss", "1"),
        user("two").header("x-user", "three"),
        Request::get("/debit").header("x-user", &fresh),
        Request::get("/share").header("x-user", &fresh),
    ];
    for request in requests {
        http::send(edge, &request).expect("a response");
    }
}

/// A query without Grafana's variables, over spans in which a test has traffic.
fn concrete(query: &str) -> String {
    let query = ["$__rate_interval", "5m", "10m"]
        .iter()
        .fold(query.to_owned(), |query, span| query.replace(&format!("[{span}]"), "[10s]"));
    query.replace("$instance", ".*").replace("$policy", ".*")
}

/// A rule's query without the bound that makes it an alert.
fn unbounded(expr: &str) -> String {
    match expr.strip_prefix("absent(") {
        Some(inner) => inner.trim_end_matches(')').to_owned(),
        None => expr.split_once(" > ").map_or(expr, |(query, _)| query).to_owned(),
    }
}

fn scraped(host: Host) {
    let (mut world, mut bom, discovered) = world(host, 2);
    let prometheus = Prometheus::start(world.envoy().admin_address());
    let edge = world.edge();
    let rules = crate::queries::rules(&read("operate/rules.yaml"));
    let from_rules = rules.iter().map(|rule| (rule.name().to_owned(), unbounded(&rule.expr)));
    let mut queries: Vec<_> =
        crate::queries::dashboard(&read("operate/dashboard.json")).into_iter().chain(from_rules).collect();
    // The metrics that the alerts wait for must have been scraped by then.
    let begin = Instant::now();
    while !queries.is_empty() && begin.elapsed() < PATIENCE {
        traffic(edge);
        queries.retain(|(_, query)| {
            let values = prometheus.query(&concrete(query));
            values.is_empty() || values.iter().any(|value| value.is_nan())
        });
        thread::sleep(Duration::from_millis(100));
    }
    assert!(queries.is_empty(), "without an answer: {queries:#?}\n{}", prometheus.log());
    let of = |query: &str| prometheus.query(query).iter().sum::<f64>();
    for query in [
        r#"weir_policy_requests{policy="per%2Euser", outcome="denied", source="absent"}"#,
        r#"weir_policy_requests{policy="per%2Euser", outcome="denied", source="ambiguous"}"#,
        r#"weir_policy_limit_requests{policy="per%2Euser", limit="burst", outcome="denied"}"#,
        r#"weir_policy_limit_requests{policy="trial", limit="day", outcome="shadow_denied"}"#,
        "weir_denied_by_list",
        "weir_exempt",
        "weir_top_denied",
        "weir_store_latency_us_count",
        concat!("weir_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\", commit!=\"\"}"),
        r#"weir_peer_debits_answered{peer="bom"}"#,
        r#"weir_peer_borrowed{peer="bom"}"#,
    ] {
        eventually(query, || {
            traffic(edge);
            (of(query) > 0.0).then_some(())
        });
    }
    // Limits that are on, and no breaker: these alerts are silent. The test's own requests have neither subject.
    let silent = [
        "WeirLimitsOff",
        "WeirBreakerOpen",
        "WeirFallback",
        "WeirAbsent",
        "WeirPanics",
        "WeirConfigurationRefused",
        "WeirStoreMisconfigured",
        "WeirRegionLate",
    ];
    let firing = prometheus.firing();
    assert!(silent.iter().all(|alert| !firing.contains(*alert)), "{firing:?}");
    // A limiter is refused, and the old one stays.
    discovered.refuse();
    eventually_within(Duration::from_secs(40), "the alert", || {
        traffic(edge);
        prometheus.firing().contains("WeirConfigurationRefused").then_some(())
    });
    // The other region's Redis stops, while requests are granted here.
    bom.stop();
    eventually_within(Duration::from_secs(40), "the alert", || {
        traffic(edge);
        prometheus.firing().contains("WeirRegionLate").then_some(())
    });
    // Redis stops.
    world.redis.stop();
    let wanted = ["WeirLimitsOff", "WeirBreakerOpen", "WeirFallback", "WeirSubjectUnknown"];
    eventually_within(Duration::from_secs(30), "the alerts", || {
        traffic(edge);
        let firing = prometheus.firing();
        wanted.iter().all(|alert| firing.contains(*alert)).then_some(())
    });
    // The upper bound: one policy that is enforced, on two workers.
    let off = of("sum(weir_policies_off)");
    assert!((1.0..=2.0).contains(&off), "{off}");
    // Envoy has stopped, and its metrics have ended.
    world.envoys.clear();
    eventually_within(Duration::from_secs(40), "the alert", || {
        prometheus.firing().contains("WeirAbsent").then_some(())
    });
}

/// The names with which an Envoy answers Prometheus, each with its labels.
fn names(host: Host) -> BTreeMap<String, BTreeSet<String>> {
    let (world, _bom, _discovered) = world(host, 1);
    traffic(world.edge());
    let scrape = || world.envoy().admin("/stats/prometheus");
    let text =
        eventually("histograms", || Some(scrape()).filter(|text| text.contains("weir_batch_tasks_count{} ")));
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("weir_")) {
        let (name, rest) = line.split_once('{').expect("labels");
        let labels = rest.split('}').next().expect("their end").split(',');
        let labels = labels
            .filter(|label| !label.starts_with("le="))
            .filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        names.entry(name.to_owned()).or_default().extend(labels);
    }
    names
}

fn documented() {
    let [wasm, native] = [Host::Wasm, Host::Native].map(names);
    assert_eq!(wasm, native);
    let document = read("docs/metrics.md");
    let suffixes = ["_bucket", "_sum", "_count"];
    for name in wasm.keys() {
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let is_there =
            document.contains(&format!("| `{base}` |")) || document.contains(&format!("`{base}{{"));
        assert!(is_there, "docs/metrics.md has no {base}");
    }
    // And every documented name is in the scrape.
    let rows =
        document.lines().filter_map(|line| line.strip_prefix("| `wasmcustom.weir.")?.split("| `").nth(1));
    let documented: Vec<_> = rows.map(|rest| rest.split(['`', '{']).next().expect("a name")).collect();
    assert!(documented.len() > 35, "{documented:?}");
    for name in documented {
        assert!(
            wasm.contains_key(name) || wasm.contains_key(&format!("{name}_bucket")),
            "no scrape has {name}"
        );
    }
}
