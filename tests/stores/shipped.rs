//! The configurations for other stores are `envoy/weir.yaml` with another store, and say nothing else.

pub const TESTS: &[(&str, fn())] = &[
    ("envoy/cluster.yaml is envoy/weir.yaml but for the store", || {
        same(include_str!("../../envoy/cluster.yaml"))
    }),
    ("envoy/tls.yaml is envoy/weir.yaml but for the store", || same(include_str!("../../envoy/tls.yaml"))),
    ("envoy/sentinel.yaml is envoy/weir.yaml but for the store", || {
        same(include_str!("../../envoy/sentinel.yaml"));
    }),
];

fn same(other: &str) {
    assert_eq!(all_but_the_store(other), all_but_the_store(include_str!("../../envoy/weir.yaml")));
}

/// What is neither a comment nor about the store: its cluster, and what `redis_proxy` makes of it beyond one Redis.
fn all_but_the_store(config: &str) -> String {
    let lines = config.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("\n");
    let (before, store) = text.split_once("\n  - name: redis\n").expect("the cluster `redis`");
    let (_, after) = store.split_once("\n  - name: upstream\n").expect("the cluster `upstream`");
    let cluster_only =
        |line: &&str| !["enable_redirection:", "dns_cache_config:"].iter().any(|it| line.contains(it));
    before.lines().filter(cluster_only).chain(after.lines()).collect::<Vec<_>>().join("\n")
}
