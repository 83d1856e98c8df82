// SPDX-License-Identifier: Apache-2.0
//! Warnings about Envoy's configuration: the shipped files have none, and each change to one of them has one.

use super::{File, check};
use crate::support::root;

/// A change to a shipped file.
pub struct Change {
    pub code: &'static str,
    pub name: &'static str,
    /// The file of `envoy/`.
    file: &'static str,
    /// What is replaced, wherever it first is, and by what.
    replace: &'static [(&'static str, &'static str)],
    /// What the file has at the place of the warning, first or only.
    at: &'static str,
    /// What the warning says, among other things.
    says: &'static str,
}

impl Change {
    /// The changed file.
    fn text(&self) -> String {
        let mut text = shipped(self.file);
        for (from, to) in self.replace {
            assert!(text.contains(from), "{}: {from} is not in {}", self.name, self.file);
            text = text.replacen(from, to, 1);
        }
        text
    }
}

fn shipped(name: &str) -> String {
    let path = format!("{}/envoy/{name}", root().display());
    std::fs::read_to_string(path).expect("a shipped file")
}

/// `line:column` of a text in a file.
fn place(text: &str, at: &str) -> String {
    let (before, _) = text.split_once(at).unwrap_or_else(|| panic!("{at} is not in the file"));
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{}:{column}", before.matches('\n').count() + 1)
}

const BRIDGE_VM: &str = "vm_id: weir-bridge";
const BURST: &str = "burst: 10}";
const BY_TRAILER: &str = "burst: 10}\n                      settle: [{cost: {trailer: {name: x-used}}}]";
const PASSES_TRAILERS: &str = "explicit_http_config: {http_protocol_options: {enable_trailers: true}}";

pub const CHANGES: &[Change] = &[
    Change {
        code: "unknown-cluster",
        name: "of the plugin",
        file: "weir.yaml",
        replace: &[("      cluster: weir-bridge\n", "      cluster: redis\n")],
        at: "cluster: redis",
        says: "store.cluster: there is no cluster \"redis\", so `on_failure` decides every request",
    },
    Change {
        code: "bridge-missing",
        name: "an upstream",
        file: "weir.yaml",
        replace: &[
            ("      cluster: weir-bridge\n", "      cluster: upstream\n"),
            ("route: {cluster: upstream}", "route: {cluster: other}"),
        ],
        at: "cluster: upstream",
        says: "store.cluster: cluster \"upstream\" has no bridge",
    },
    Change {
        code: "no-tcp-pool",
        name: "HTTP",
        file: "weir.yaml",
        replace: &[(
            "extensions.upstreams.http.tcp.v3.TcpConnectionPoolProto",
            "extensions.upstreams.http.http.v3.HttpConnectionPoolProto",
        )],
        at: "name: weir-bridge\n",
        says: "upstream_config: the cluster has a bridge and no TcpConnectionPoolProto",
    },
    Change {
        code: "shared-vm",
        name: "one name",
        file: "weir.yaml",
        replace: &[(BRIDGE_VM, "vm_id: weir")],
        at: "vm_id: weir",
        says: "vm_config.vm_id: the limiter and the bridge have the same `vm_id`",
    },
    Change {
        code: "shared-vm",
        name: "no name",
        file: "weir.yaml",
        replace: &[
            ("vm_id: weir\n", "nack_on_code_cache_miss: true\n"),
            (BRIDGE_VM, "nack_on_code_cache_miss: true"),
        ],
        at: "nack_on_code_cache_miss",
        says: "share a VM",
    },
    Change {
        code: "fail-open",
        name: "the limiter",
        file: "weir.yaml",
        replace: &[("failure_policy: FAIL_RELOAD", "failure_policy: FAIL_OPEN")],
        at: "failure_policy: FAIL_OPEN",
        says: "failure_policy: if the limiter traps, all requests of the worker pass without limits. Write `failure_policy: FAIL_RELOAD`",
    },
    Change {
        code: "fail-open",
        name: "the bridge, in camel case",
        file: "tls.yaml",
        replace: &[(
            "root_id: weir.bridge\n              failure_policy: FAIL_RELOAD",
            "rootId: weir.bridge\n              failOpen: true",
        )],
        at: "failOpen",
        says: "if the bridge traps, the limiter's messages reach Redis",
    },
    Change {
        code: "single-before-cluster",
        name: "behind redis_proxy",
        file: "cluster.yaml",
        replace: &[("deadline: 50ms", "topology: single")],
        at: "topology: single",
        says: "store.topology: cluster \"redis\" is a Redis Cluster",
    },
    Change {
        code: "single-before-cluster",
        name: "of the module",
        file: "native-cluster.yaml",
        replace: &[("deadline: 50ms", "topology: single")],
        at: "topology: single",
        says: "store.topology: cluster \"redis\" is a Redis Cluster",
    },
    Change {
        code: "client-chosen-address",
        name: "false",
        file: "weir.yaml",
        replace: &[("use_remote_address: true", "use_remote_address: false")],
        at: "use_remote_address: false",
        says: "use_remote_address: Envoy takes the client's address from the X-Forwarded-For that the client sends",
    },
    Change {
        code: "client-chosen-address",
        name: "missing",
        file: "native.yaml",
        replace: &[("          use_remote_address: true\n", "")],
        at: "http_filters:",
        says: "Write `use_remote_address: true`",
    },
    Change {
        code: "idle-timeout",
        name: "missing",
        file: "weir.yaml",
        replace: &[("          stream_idle_timeout: 30s\n", "")],
        at: "http_filters:",
        says: "stream_idle_timeout: if weir traps, the requests paused in that worker wait for 5 minutes",
    },
    Change {
        code: "idle-timeout",
        name: "none",
        file: "weir.yaml",
        replace: &[("stream_idle_timeout: 30s", "stream_idle_timeout: 0s")],
        at: "stream_idle_timeout: 0s",
        says: "wait for ever",
    },
    Change {
        code: "idle-timeout",
        name: "shorter than a queue",
        file: "weir.yaml",
        replace: &[(
            "{name: steady, algorithm: leaky_bucket, rate: 1/s, burst: 10}",
            "{name: l, algorithm: concurrency, limit: 1, queue: {max_wait: 31s}}",
        )],
        at: "stream_idle_timeout: 30s",
        says: "Envoy ends each request that is idle for 30000 ms, and weir holds requests for up to 31000 ms",
    },
    Change {
        code: "idle-timeout",
        name: "shorter than a delay",
        file: "native.yaml",
        replace: &[
            ("stream_idle_timeout: 30s", "stream_idle_timeout: 2.5s"),
            ("burst: 10}", "burst: 10, max_delay: 2500ms}"),
        ],
        at: "stream_idle_timeout: 2.5s",
        says: "Envoy ends each request that is idle for 2500 ms, and weir holds requests for up to 2500 ms (`max_delay`, `max_wait`)",
    },
    Change {
        code: "trailers-dropped",
        name: "HTTP/1.1 as it is unless configured",
        file: "weir.yaml",
        replace: &[
            (BURST, BY_TRAILER),
            (PASSES_TRAILERS, "explicit_http_config: {http_protocol_options: {}}"),
        ],
        at: "name: upstream\n",
        says: "enable_trailers: Envoy drops the trailers of HTTP/1.1 from cluster \"upstream\", so costs by `trailer` are not known",
    },
    Change {
        code: "trailers-dropped",
        name: "of a part of a route",
        file: "native.yaml",
        replace: &[
            (BURST, "burst: 10}\n                    settle: [{cost: {trailer: {name: x-used}}}]"),
            (
                "route: {cluster: upstream}",
                "route: {weighted_clusters: {clusters: [{name: upstream, weight: 1}, {name: other, weight: 1}]}}",
            ),
            ("{enable_trailers: true}", "{enable_trailers: false}"),
        ],
        at: "name: upstream\n",
        says: "Write `enable_trailers: true` in its `http_protocol_options`: see envoy/weir.yaml",
    },
    Change {
        code: "unread-bodies",
        name: "proxied",
        file: "weir.yaml",
        replace: &[
            ("# allow_on_headers_stop_iteration", "allow_on_headers_stop_iteration"),
            ("subject: [{client_address: {}}]", "subject: [{client_address: {}}, {body_json: {path: user}}]"),
            (
                "          use_remote_address: true\n",
                "          use_remote_address: true\n          proxy_100_continue: true\n",
            ),
        ],
        at: "proxy_100_continue: true",
        says: "proxy_100_continue: a client that sends `expect: 100-continue` waits for the upstream before it sends its body",
    },
    Change {
        code: "open-bridge",
        name: "a route",
        file: "weir.yaml",
        replace: &[("route: {cluster: upstream}", "route: {cluster: weir-bridge}")],
        at: "cluster: weir-bridge}",
        says: "requests of clients reach cluster \"weir-bridge\"",
    },
    Change {
        code: "open-bridge",
        name: "a part of a route",
        file: "weir.yaml",
        replace: &[(
            "route: {cluster: upstream}",
            "route: {weighted_clusters: {clusters: [{name: upstream, weight: 1}, {name: weir-bridge, weight: 1}]}}",
        )],
        at: "name: weir-bridge, weight",
        says: "requests of clients reach cluster \"weir-bridge\"",
    },
    Change {
        code: "open-bridge",
        name: "a mirror",
        file: "weir.yaml",
        replace: &[(
            "route: {cluster: upstream}",
            "route: {cluster: upstream, request_mirror_policies: [{cluster: weir-bridge}]}",
        )],
        at: "cluster: weir-bridge}",
        says: "requests of clients reach cluster \"weir-bridge\"",
    },
    Change {
        code: "open-bridge",
        name: "a way on a network",
        file: "native.yaml",
        replace: &[(
            "address: {pipe: {path: \"@weir-store\"}}",
            "address: {socket_address: {address: 0.0.0.0, port_value: 1}}",
        )],
        at: "address: {socket_address: {address: 0.0.0.0, port_value: 1}}",
        says: "each machine that reaches 0.0.0.0 can connect to weir's way to Redis",
    },
    Change {
        code: "password-in-file",
        name: "a secret",
        file: "tls.yaml",
        replace: &[("{filename: /run/secrets/redis-password}", "{inline_string: \"weir:secret\"}")],
        at: "inline_string",
        says: "generic_secret: each reader of this file, and of Envoy's config_dump, reads the password of Redis",
    },
    Change {
        code: "password-in-file",
        name: "the filter state that the module once read",
        file: "native-tls.yaml",
        replace: &[(
            "    - filters:\n      - name: weir\n",
            "    - filters:\n      - name: password\n        typed_config:\n          \"@type\": \
             type.googleapis.com/envoy.extensions.filters.network.set_filter_state.v3.Config\n          \
             on_new_connection: [{object_key: weir.password}]\n      - name: weir\n",
        )],
        at: "object_key: weir.password",
        says: "Envoy logs the password of Redis at level debug",
    },
    Change {
        code: "password-in-file",
        name: "of redis_proxy",
        file: "cluster.yaml",
        replace: &[(
            "    # The cluster chooses the node, by the slot.\n",
            "    typed_extension_protocol_options:\n      envoy.filters.network.redis_proxy:\n        \"@type\": \
             type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions\n        auth_password: {inline_string: secret}\n",
        )],
        at: "inline_string: secret",
        says: "auth_password",
    },
    Change {
        code: "unencrypted-password",
        name: "of the plugin",
        file: "tls.yaml",
        replace: &[(
            "    transport_socket:\n      name: envoy.transport_sockets.tls",
            "    metadata:\n      name: envoy.transport_sockets.tls",
        )],
        at: "name: weir-bridge\n",
        says: "transport_socket: the password crosses the network to redis in clear, because the cluster has no TLS",
    },
    Change {
        code: "unencrypted-password",
        name: "of the module",
        file: "native-tls.yaml",
        replace: &[(
            "    transport_socket:\n      name: envoy.transport_sockets.tls",
            "    metadata:\n      name: envoy.transport_sockets.tls",
        )],
        at: "name: redis\n",
        says: "the password crosses the network to redis in clear",
    },
    Change {
        code: "way-missing",
        name: "for another cluster",
        file: "native.yaml",
        replace: &[
            (
                "      cluster: redis\n                    # No request",
                "      cluster: upstream\n                    # No request",
            ),
            ("route: {cluster: upstream}", "route: {cluster: other}"),
        ],
        at: "cluster: upstream",
        says: "no listener has the filter `weir.store` with `cluster: upstream`",
    },
    Change {
        code: "clock-missing",
        name: "another filter",
        file: "native.yaml",
        replace: &[("filter_name: weir.clock", "filter_name: other")],
        at: "filter_name: weir.limiter",
        says: "no listener has the filter `weir.clock`",
    },
    Change {
        code: "way-settings",
        name: "another address",
        file: "native.yaml",
        replace: &[("address: {pipe: {path: \"@weir-store\"}}", "address: {pipe: {path: \"@weir-2\"}}")],
        at: "filter_config:\n            \"@type\": type.googleapis.com/google.protobuf.Struct\n            # `cluster`",
        says: "filter_config.address: weir connects to \"@weir-store\", and the listener is at \"@weir-2\"",
    },
    Change {
        code: "way-settings",
        name: "any worker",
        file: "native.yaml",
        replace: &[(
            "    # Each worker gets one connection.\n    connection_balance_config: {exact_balance: {}}\n",
            "",
        )],
        at: "name: weir-store\n",
        says: "connection_balance_config",
    },
    Change {
        code: "way-settings",
        name: "another cluster",
        file: "native.yaml",
        replace: &[(
            "          cluster: redis\n          # The connection",
            "          cluster: upstream\n          # The connection",
        )],
        at: "cluster: upstream\n          # The connection",
        says: "the listener leads to cluster \"upstream\", and its filter `weir.store` says \"redis\"",
    },
    Change {
        code: "way-settings",
        name: "no early data",
        file: "native.yaml",
        replace: &[("          max_early_data_bytes: 65536\n", "")],
        at: "cluster: redis\n          # The connection",
        says: "max_early_data_bytes",
    },
];

#[test]
fn each_change_has_its_warning() {
    for change in CHANGES {
        let Change { code, name, file, at, says, .. } = change;
        let text = change.text();
        let changed = File::new("changed.yaml", &text);
        let (status, out, error) = check(&[changed.path()]);
        let first = out.lines().next().unwrap_or_default();
        let start = format!("{}:{}: warning: ", changed.path(), place(&text, at));
        assert!(first.starts_with(&start), "{code}, {name}, {file}: {start} in\n{out}{error}");
        assert!(
            first.contains(says) && first.ends_with(&format!(" [{code}]")),
            "{code}, {name}: {says}:\n{out}"
        );
        assert_eq!((status, out.lines().count()), (0, 2), "{code}, {name}: {out}");
    }
}

/// Nothing is wrong where somebody else takes care, or where the file does not show it.
#[test]
fn no_warning_where_it_is_not_known_or_not_so() {
    for (name, file, from, to) in [
        (
            "clusters from elsewhere",
            "weir.yaml",
            "static_resources:",
            "dynamic_resources: {cds_config: {path_config_source: {path: /x}}}\nstatic_resources:",
        ),
        ("behind proxies", "weir.yaml", "use_remote_address: true", "xff_num_trusted_hops: 1"),
        (
            "on this machine",
            "weir.yaml",
            "address: 0.0.0.0, port_value: 10000",
            "address: 127.0.0.1, port_value: 10000",
        ),
        (
            "a sidecar",
            "weir.yaml",
            "    filter_chains:\n",
            "    traffic_direction: INBOUND\n    filter_chains:\n",
        ),
        ("no address is read", "weir.yaml", "subject: [{client_address: {}}]", "subject: [{host: {}}]"),
        (
            "a code of its own",
            "weir.yaml",
            "vm_id: weir-bridge",
            "vm_id: weir\n                configuration: {\"@type\": type.googleapis.com/google.protobuf.StringValue, value: b}",
        ),
        ("a long delay", "weir.yaml", "burst: 10}", "burst: 10, max_delay: 29s}"),
        (
            "a secret of somebody else",
            "tls.yaml",
            "secrets:\n",
            "secrets:\n  - name: other\n    generic_secret: {secret: {inline_string: x}}\n",
        ),
        (
            "a proxy for this machine",
            "native.yaml",
            "  - name: edge\n",
            "  - name: own\n    address: {socket_address: {address: 127.0.0.1, port_value: 6379}}\n    filter_chains: [{filters: [{typed_config: \
             {\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, cluster: redis}}]}]\n  - name: edge\n",
        ),
        ("one Redis", "sentinel.yaml", "deadline: 50ms", "topology: single"),
        ("costs by trailer", "weir.yaml", BURST, BY_TRAILER),
        (
            "costs by trailer, over HTTP/2",
            "weir.yaml",
            PASSES_TRAILERS,
            "explicit_http_config: {http2_protocol_options: {}}",
        ),
        (
            "no body is read",
            "weir.yaml",
            "          use_remote_address: true\n",
            "          use_remote_address: true\n          proxy_100_continue: true\n",
        ),
    ] {
        let text = shipped(file);
        assert!(text.contains(from), "{name}");
        let mut text = text.replacen(from, to, 1);
        match name {
            "clusters from elsewhere" => {
                text = text.replacen("      cluster: weir-bridge\n", "      cluster: elsewhere\n", 1)
            }
            "costs by trailer, over HTTP/2" => text = text.replacen(BURST, BY_TRAILER, 1),
            "no address is read" | "on this machine" | "a sidecar" => {
                text = text.replacen("use_remote_address: true", "use_remote_address: false", 1);
            }
            _ => {}
        }
        let file = File::new("fine.yaml", &text);
        let (status, out, error) = check(&[file.path(), "--deny-warnings"]);
        assert_eq!((status, out.lines().count()), (0, 1), "{name}: {out}{error}");
    }
}

/// A header that a filter before weir verifies is no header of the client's choice.
#[test]
fn a_filter_that_verifies_clients_is_seen() {
    let text = shipped("weir.yaml").replacen("{client_address: {}}", "{header: {name: x-user}}", 1);
    let verified = text.replacen(
        "          http_filters:\n",
        "          http_filters:\n          - name: auth\n            typed_config: {\"@type\": \
         type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication}\n",
        1,
    );
    for (text, warns) in [(text, true), (verified, false)] {
        let file = File::new("verified.yaml", &text);
        let (_, out, _) = check(&[file.path()]);
        assert_eq!(out.contains("[unverified-subject]"), warns, "{out}");
    }
}

/// Two bootstraps are two Envoys: the clusters of one are none of the other's.
#[test]
fn files_that_show_all_are_envoys_of_their_own() {
    let first = shipped("weir.yaml")
        .replace("cluster: upstream}", "cluster: second}")
        .replace("name: upstream\n", "name: second\n");
    let second = shipped("weir.yaml")
        .replace("name: weir-bridge\n", "name: second\n")
        .replace(" cluster: weir-bridge\n", " cluster: second\n");
    let (first, second) = (File::new("first.yaml", &first), File::new("second.yaml", &second));
    let (status, out, error) = check(&[first.path(), second.path(), "--deny-warnings"]);
    assert_eq!((status, out.lines().count()), (0, 2), "{out}{error}");
}
