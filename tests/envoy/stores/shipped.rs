// SPDX-License-Identifier: Apache-2.0
//! The configurations for other stores are `envoy/weir.yaml` or `envoy/native.yaml` with another store, and say nothing else. Envoy reads in
//! them what weir allows.

use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, Kind, template};

pub const TESTS: &[(&str, fn())] = &[
    ("envoy/cluster.yaml is envoy/weir.yaml but for the store", || same_in_wasm(Kind::Cluster)),
    ("envoy/tls.yaml is envoy/weir.yaml but for the store", || same_in_wasm(Kind::Tls)),
    ("envoy/sentinel.yaml is envoy/weir.yaml but for the store", || same_in_wasm(Kind::Sentinel)),
    ("envoy/native-cluster.yaml is envoy/native.yaml but for the store", || same_in_native(Kind::Cluster)),
    ("envoy/native-tls.yaml is envoy/native.yaml but for the store", || same_in_native(Kind::Tls)),
    ("envoy/native-sentinel.yaml is envoy/native.yaml but for the store", || same_in_native(Kind::Sentinel)),
    ("Envoy reads a configuration that is nested as deep as weir allows", the_deepest_loads),
];

fn the_deepest_loads() {
    let (redis, upstream) = (Redis::absent(), Upstream::start());
    // Below the policy's `match`, an object in the fourth level.
    let below = weir::config::MAX_NESTING - 4;
    let nots = format!("{}{{}}{}", r#"{"not": "#.repeat(below), "}".repeat(below));
    let lists = format!("{}{{}}{}", r#"{"any": [{}, "#.repeat(below / 2), "]}".repeat(below / 2));
    for deepest in [nots, lists] {
        let limiter = format!(
            r#"{{"policies": [{{"name": "p", "match": {deepest}, "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}}]}}]}}"#
        );
        // As an object, as in weir's own files, and not as a string.
        let template = template("the limiter", redis.address(), upstream.address())
            .with("google.protobuf.StringValue", "google.protobuf.Struct")
            .with("\"the limiter\"", limiter);
        template.try_start().expect("it loads");
    }
}

fn same_in_wasm(store: Kind) {
    let [one, other] = [Kind::Redis, store].map(|store| Host::Wasm.shipped_for(store));
    assert_eq!(all_but_the_store(&other), all_but_the_store(&one));
    // Wherever it leads, the way there is the same, and fails in the same way.
    for name in ["    upstream_config:", "        - name: weir", "        - name: codec"] {
        assert_eq!(without(&plain(&other), name).1, without(&plain(&one), name).1);
    }
}

fn same_in_native(store: Kind) {
    // Removes the filters on the commands' path, and the login.
    let others = |config: &str| {
        let config = all_but_the_store(config).replace(", login_file: /run/secrets/redis-password", "");
        let filters = ["      - name: tcp_proxy", "      - name: weir-bridge"];
        filters.iter().fold(config, |config, filter| without(&config, filter).0)
    };
    let [one, other] = [Kind::Redis, store].map(|store| Host::Native.shipped_for(store));
    assert_eq!(others(&other), others(&one));
}

fn plain(config: &str) -> String {
    let lines = config.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// The configuration without comments, and without the store: its clusters, its password, and the way through `redis_proxy`.
fn all_but_the_store(config: &str) -> String {
    let (config, cluster) = without(&plain(config), "  - name: weir-bridge");
    assert!(!cluster.is_empty(), "there is no cluster `weir-bridge`");
    let others = ["  - name: redis", "  - name: redis-proxy", "  secrets:", "bootstrap_extensions:"];
    others.iter().fold(config, |config, block| without(&config, block).0)
}

/// Removes the block that begins with this line: the lines with a deeper indent, and the items of a list. Returns the rest, and the block.
fn without(config: &str, first: &str) -> (String, String) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut inside = false;
    let (block, rest): (Vec<_>, Vec<_>) = config.lines().partition(|&line| {
        let deeper = indent(line) > indent(first);
        let item = indent(line) == indent(first) && line.trim_start().starts_with("- ");
        inside = line == first || (inside && (deeper || (item && !first.trim_start().starts_with("- "))));
        inside
    });
    (rest.join("\n"), block.join("\n"))
}
