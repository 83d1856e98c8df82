// SPDX-License-Identifier: Apache-2.0
//! An Envoy that reads a part of its configuration from a file, which can be replaced while it runs: the listener
//! `edge` (LDS), weir's HTTP filter alone (ECDS), or the cluster `weir-bridge` (CDS). Between it and Redis lies a
//! network that can be slow, or cut.

use std::path::PathBuf;

use super::envoy::{Envoy, Template};
use super::http::{self, Response};
use super::proxy::Proxy;
use super::redis::Redis;
use super::upstream::Upstream;
use super::weir::{Host, apart, get, template};
use super::{TempFolder, eventually};

/// The content of the file.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    Listener,
    Filter,
    Cluster,
}

pub struct Dynamic {
    pub envoy: Envoy,
    pub network: Proxy,
    pub redis: Redis,
    pub upstream: Upstream,
    part: String,
    file: PathBuf,
    _folder: TempFolder,
}

/// A placeholder for the limiter's configuration, in the file or in the rest.
const LIMITER: &str = "@limiter@";

impl Dynamic {
    pub fn start(part: Part, limiter: &str, workers: usize, arguments: &[&str]) -> Self {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let network = Proxy::start(redis.address());
        let whole = template(LIMITER, network.address(), upstream.address());
        // An anchor does not reach from one file into another.
        let (anchor, rest) =
            whole.config().split_once(": &").and_then(|(_, rest)| rest.split_once(' ')).expect("an anchor");
        let value = rest.lines().next().expect("its value");
        let whole = whole.config().replace(&format!("&{anchor} "), "").replace(&format!("*{anchor}"), value);
        let folder = TempFolder::new("dynamic");
        let file = folder.path().join("part.yaml");
        let source = format!("{{path_config_source: {{path: {}}}}}", file.display());
        let (part, bootstrap) = match part {
            Part::Listener => listener(&whole, &source),
            Part::Filter => filter(&whole, &source),
            Part::Cluster => cluster(&whole, &source),
        };
        let bootstrap = bootstrap.replace(LIMITER, &escaped(limiter));
        std::fs::write(&file, part.replace(LIMITER, &escaped(limiter))).expect("a file");
        let bootstrap = Template::new(&format!("node: {{id: test, cluster: test}}\n{bootstrap}"));
        let template = arguments.iter().fold(bootstrap, |template, argument| template.argument(argument));
        let envoy = template.concurrency(workers).start();
        eventually("the listener", || envoy.admin("/listeners").contains("edge::").then_some(()));
        Self { envoy, network, redis, upstream, part, file, _folder: folder }
    }

    pub fn send(&self) -> Response {
        http::send(self.envoy.address("edge"), &get()).expect("a response")
    }

    pub fn update(&self, limiter: &str) {
        self.replace(&self.part.replace(LIMITER, &escaped(limiter)));
    }

    /// As [`Dynamic::update`], with another change to what is in the file.
    pub fn update_with(&self, limiter: &str, from: &str, to: &str) {
        assert!(self.part.contains(from), "the file has no {from:?}");
        self.replace(&self.part.replace(from, to).replace(LIMITER, &escaped(limiter)));
    }

    /// Removes the content of the file from the configuration.
    pub fn remove(&self) {
        self.replace("resources: []\n");
    }

    /// Envoy notices that a file takes the place of the one it read.
    fn replace(&self, part: &str) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, part).expect("a file");
        std::fs::rename(&next, &self.file).expect("it takes the other's place");
    }
}

/// The listener `edge` on its own, and the rest, which names where it is.
fn listener(whole: &str, source: &str) -> (String, String) {
    let (before, rest) = whole.split_once("  listeners:\n  - name: edge\n").expect("the listener");
    // The dynamic module's own listeners stay.
    let (end, others) = match Host::chosen() {
        Host::Wasm => ("  clusters:\n", ""),
        Host::Native => ("  - name: weir-store\n", "  listeners:\n"),
    };
    let (edge, after) = rest.split_once(end).expect("its end");
    let listener = format!(
        "resources:\n- \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n  name: edge\n{}",
        dedented(edge, "  ")
    );
    let lds = format!("dynamic_resources: {{lds_config: {source}}}");
    (listener, format!("{lds}\n{before}{others}{end}{after}"))
}

/// The cluster `weir-bridge` on its own, and the rest, which names where it is.
fn cluster(whole: &str, source: &str) -> (String, String) {
    let (bridge, rest) = apart(whole);
    (bridge, format!("dynamic_resources: {{cds_config: {source}}}\n{rest}"))
}

/// weir's HTTP filter on its own, and the rest, which names where it is.
fn filter(whole: &str, source: &str) -> (String, String) {
    const ROUTER: &str = "          - name: router\n";
    let (before, rest) = whole.split_once("          - name: weir\n").expect("the filter");
    let (weir, after) = rest.split_once(ROUTER).expect("its end");
    let filter = format!(
        "resources:\n- \"@type\": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\n  name: weir\n{}",
        dedented(weir, "          ")
    );
    let kind = match Host::chosen() {
        Host::Wasm => "wasm.v3.Wasm",
        Host::Native => "dynamic_modules.v3.DynamicModuleFilter",
    };
    let discovered = format!(
        "          - name: weir\n            config_discovery:\n              config_source: {source}\n              \
         type_urls: [type.googleapis.com/envoy.extensions.filters.http.{kind}]\n"
    );
    (filter, format!("{before}{discovered}{ROUTER}{after}"))
}

fn dedented(lines: &str, by: &str) -> String {
    lines.lines().map(|line| line.strip_prefix(by).unwrap_or(line).to_owned() + "\n").collect()
}

/// JSON inside the quotes of a YAML string.
fn escaped(limiter: &str) -> String {
    let quoted = serde_json::Value::from(limiter).to_string();
    quoted.trim_matches('"').to_owned()
}
