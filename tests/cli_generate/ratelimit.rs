// SPDX-License-Identifier: Apache-2.0
//! `weir import ratelimit`.

use crate::Folder;

const SERVICE: &str = "domain: edge
descriptors:
- key: remote_address
  rate_limit: {unit: minute, requests_per_unit: 60}
- key: remote_address
  value: 203.0.113.7
  rate_limit: {unlimited: true}
- key: user
  value: bob
  rate_limit: {unit: day, requests_per_unit: 0}
- key: user
  rate_limit: {name: users, unit: month, requests_per_unit: 10000, replaces: [{name: all}]}
  shadow_mode: true
- key: path
  value: /api*
  descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
- key: generic_key
  value: api
  rate_limit: {name: all, unit: second, requests_per_unit: 100}
";

const ENVOY: &str = "static_resources:
  listeners:
  - name: edge
    filter_chains:
    - filters:
      - name: http
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
          route_config:
            virtual_hosts:
            - name: a
              domains: [a.test, \"*.a.test\"]
              rate_limits:
              - actions: [{remote_address: {}}]
              routes:
              - match: {prefix: /api, headers: [{name: \":method\", string_match: {exact: POST}}]}
                route:
                  cluster: c
                  include_vh_rate_limits: true
                  rate_limits:
                  - actions: [{generic_key: {descriptor_value: api}}]
                  - actions: [{destination_cluster: {}}]
              - match: {path: /x}
                route:
                  cluster: c
                  rate_limits:
                  - actions: [{request_headers: {header_name: X-User, descriptor_key: user}}]
              - match: {prefix: /}
                route: {cluster: c}
            - name: rest
              domains: [\"*\"]
              routes: [{match: {prefix: /}, route: {cluster: c}}]
          http_filters:
          - name: limits
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: edge
              failure_mode_deny: true
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service: {grpc_service: {envoy_grpc: {cluster_name: c}}}
";

#[test]
fn the_routes_say_which_requests_have_a_descriptor() {
    let folder = Folder::with(&[("limits.yaml", SERVICE), ("envoy.yaml", ENVOY)]);
    let (status, out, error) = folder.weir(&["import", "ratelimit", "limits.yaml", "--envoy", "envoy.yaml"]);
    assert_eq!(
        out,
        r#"# Made by `weir import ratelimit` from limits.yaml. Try it with `weir check`, and with `mode: shadow` first.
# failure_mode_deny
store:
  on_failure: deny
response:
  headers: x_ratelimit
policies:
# limits.yaml:21: generic_key-api
- name: generic_key-api
  match:
    host: [a.test, "*.a.test"]
    path: {regex: "/api.*", trailing_slash: distinct}
    method: [POST]
    not:
      host: [a.test, "*.a.test"]
      path: {exact: /x, trailing_slash: distinct}
      header: {name: x-user}
      not: {header: {name: x-user, exact: bob}}
  subject: [{literal: generic_key-api}]
  limits: [{name: all, algorithm: fixed_window, limit: 100, window: 1s}]
# limits.yaml:4: remote_address
- name: remote_address
  match:
    host: [a.test, "*.a.test"]
    not:
      any: [{path: {exact: /x, trailing_slash: distinct}}, {client_address: ["203.0.113.7"]}]
  subject: [{client_address: {ipv6_prefix: 128}}]
  limits: [{name: per-minute, algorithm: fixed_window, limit: 60, window: 1m}]
# limits.yaml:10: user-bob
- name: user-bob
  match:
    host: [a.test, "*.a.test"]
    path: {exact: /x, trailing_slash: distinct}
    header: {name: x-user, exact: bob}
  subject: [{literal: user-bob}]
  limits: [{name: per-day, algorithm: fixed_window, limit: 1, window: 1d}]
  deny: [{}]
  response: {deny_status: 429}
# limits.yaml:12: user
- name: user
  match:
    host: [a.test, "*.a.test"]
    path: {exact: /x, trailing_slash: distinct}
    header: {name: x-user}
    not: {header: {name: x-user, exact: bob}}
  subject: [{header: {name: x-user}, on_missing: skip, on_multiple: join}]
  limits: [{name: users, algorithm: fixed_window, limit: 10000, window: 30d}]
  mode: shadow
"#
    );
    assert_eq!(
        (status, error.as_str()),
        (
            0,
            "envoy.yaml:23: note: destination_cluster: weir cannot tell what this action makes of a request, so the descriptor is not \
             imported. Write the policy by hand\n"
        )
    );
    assert_eq!(folder.check(&out).0, 0);
}

#[test]
fn without_routes_the_operator_says_where_values_stand() {
    let folder = Folder::with(&[("limits.yaml", SERVICE)]);
    let (status, out, error) = folder.weir(&[
        "import",
        "ratelimit",
        "limits.yaml",
        "--descriptor",
        "user=header:X-User",
        "--strict",
    ]);
    assert_eq!(status, 1, "{error}");
    assert!(out.contains("- name: user-bob\n") && out.contains("- name: generic_key-api\n"), "{out}");
    assert!(out.contains("  subject: [{client_address: {ipv6_prefix: 128}}]\n"), "{out}");
    let notes = "limits.yaml:14: note: key: path: only Envoy's routes say where its value stands in a request, so its limits are not imported. \
                 Add `--envoy FILE`, or `--descriptor path=header:NAME`\nlimits.yaml:20: note: generic_key: api: only Envoy's routes say \
                 which requests have it; the policy is for all requests. Add `--envoy FILE`, or a `match` to the policy\n";
    assert_eq!(error, notes);
    let (status, out, _) = folder.weir(&[
        "import",
        "ratelimit",
        "limits.yaml",
        "--descriptor",
        "user=header:x-user",
        "--descriptor",
        "path=path",
    ]);
    assert!(status == 0 && out.contains("- name: path--api--user\n"), "{out}");
    assert!(out.contains(r#"path: {regex: "/api.*", trailing_slash: distinct}"#), "{out}");
    assert_eq!(folder.check(&out).0, 0);
}

#[test]
fn what_is_wrong_is_said() {
    let folder = Folder::with(&[
        ("limits.yaml", SERVICE),
        ("empty.yaml", "domain: d\ndescriptors: []\n"),
        ("wrong.yaml", "domain: [\n"),
        (
            "unit.yaml",
            "domain: d\ndescriptors:\n- key: generic_key\n  rate_limit: {unit: fortnight, requests_per_unit: 1}\n",
        ),
        ("other.yaml", &ENVOY.replace("domain: edge", "domain: other")),
    ]);
    for (arguments, said) in [
        (&["empty.yaml"][..], "empty.yaml: found no rate_limit that weir can import"),
        (&["wrong.yaml"], "wrong.yaml:"),
        (&["unit.yaml"], "unit.yaml:4: note: rate_limit: the service refuses it"),
        (
            &["limits.yaml", "--envoy", "other.yaml"],
            "limits.yaml:1: note: domain: edge: Envoy's filter asks for another domain",
        ),
        (&["limits.yaml", "--descriptor", "user"], "allowed: KEY=SOURCE"),
        (
            &["limits.yaml", "--descriptor", "user=nowhere"],
            "--descriptor user: found \"nowhere\", allowed: client_address, path,",
        ),
        (&["limits.yaml", "--envoy", "none.yaml"], "none.yaml: No such file"),
    ] {
        let (status, out, error) = folder.weir(&[&["import", "ratelimit"], arguments].concat());
        assert!(status == 2 && out.is_empty() && error.contains(said), "{arguments:?}: {error}");
    }
}
