// SPDX-License-Identifier: Apache-2.0
//! `weir import ratelimit`.

use super::Folder;

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
            "limits.yaml:19: note: descriptors: a request that one of its descriptors denies counts in the others, too; weir refunds it \
             there\nenvoy.yaml:23: note: destination_cluster: weir cannot tell what this action makes of a request, so the descriptor is not \
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
    let notes = "limits.yaml:3: note: descriptors: a request that one of its descriptors denies counts in the others, too; weir refunds \
                 it there\nlimits.yaml:14: note: key: path: only Envoy's routes say where its value stands in a request, so its limits are not imported. \
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

/// The notes about a service's configuration whose descriptors are these lines, and what is made of them.
fn import(descriptors: &str, arguments: &[&str]) -> (String, String) {
    let folder = Folder::with(&[("limits.yaml", &format!("domain: edge\ndescriptors:\n{descriptors}"))]);
    let (status, out, error) = folder.weir(&[&["import", "ratelimit", "limits.yaml"], arguments].concat());
    assert_eq!(status, 0, "{out}{error}");
    assert_eq!(folder.check(&out).0, 0, "{out}");
    (out, error)
}

#[test]
fn a_quota_that_only_reports_does_not_deny() {
    let (out, error) = import(
        "- key: remote_address\n  quota_mode: true\n  rate_limit: {unit: minute, requests_per_unit: 60}\n",
        &[],
    );
    assert!(out.ends_with("  mode: shadow\n"), "{out}");
    assert!(
        error.starts_with("limits.yaml:4: note: quota_mode: the service reports that its limit is reached"),
        "{error}"
    );
}

/// What is not read may be a part of a limit, so nothing is left out without a word.
#[test]
fn every_name_that_is_not_read_is_noted() {
    let rows = [
        ("burst: 5", "rate_limit", "burst"),
        ("unit_multiplier: 3", "rate_limit", "unit_multiplier"),
        ("algorithm: sliding", "descriptor", "algorithm"),
        ("unit: hour", "descriptor", "unit"),
        ("requestsPerUnit: 4", "rate_limit", "requestsPerUnit"),
        ("algorithm: x", "root", "algorithm"),
    ];
    for (text, place, name) in rows {
        let [root, descriptor, limit] =
            ["root", "descriptor", "rate_limit"].map(|own| if own == place { text } else { "" });
        let file = format!(
            "domain: edge\n{root}\ndescriptors:\n- key: remote_address\n  {descriptor}\n  rate_limit:\n    unit: minute\n    requests_per_unit: 60\n    {limit}\n"
        );
        let folder = Folder::with(&[("limits.yaml", &file)]);
        let (status, out, error) = folder.weir(&["import", "ratelimit", "--strict", "limits.yaml"]);
        assert!(status == 1 && out.contains("- name: remote_address"), "{text}: {out}{error}");
        assert!(
            error.contains(&format!("note: {name}: the service does not have it here")),
            "{text}: {error}"
        );
    }
}

/// The service refuses such a file. The policies of both excluded each other, so that neither matched a request.
#[test]
fn the_first_of_two_equal_descriptors_is_imported() {
    for second in ["  value: a\n", ""] {
        let one = |units: u64| {
            format!("- key: user\n{second}  rate_limit: {{unit: minute, requests_per_unit: {units}}}\n")
        };
        let (out, error) = import(&(one(7) + &one(8)), &["--descriptor", "user=header:x-user"]);
        assert!(out.contains("limit: 7,") && !out.contains("limit: 8,") && !out.contains("not:"), "{out}");
        assert!(
            error
                .contains("note: key: user: the service refuses a second descriptor with this key and value"),
            "{error}"
        );
    }
}

#[test]
fn a_config_map_around_the_file_is_read() {
    let file = "apiVersion: v1
kind: ConfigMap
metadata:
  name: ratelimit-config
data:
  config.yaml: |
    domain: edge
    descriptors:
    - key: remote_address
      burst: 4
      rate_limit:
        unit: minute
        requests_per_unit: 60
";
    let folder = Folder::with(&[("map.yaml", file)]);
    let (status, out, error) = folder.weir(&["import", "ratelimit", "map.yaml"]);
    assert_eq!(status, 0, "{error}");
    assert!(out.contains("# map.yaml:11: remote_address\n- name: remote_address\n"), "{out}");
    assert!(error.starts_with("map.yaml:10: note: burst: "), "{error}");
    let broken = file.replace("domain: edge", "domain: [");
    let folder = Folder::with(&[("map.yaml", &broken)]);
    let (status, _, error) = folder.weir(&["import", "ratelimit", "map.yaml"]);
    assert!(
        status == 2 && error.contains("map.yaml:6: note: data: config.yaml: it cannot be read"),
        "{error}"
    );
}

/// Where the limits of a route come from.
#[test]
fn the_filter_and_its_settings_of_routes_are_read() {
    let own = "rate_limits: [{actions: [{generic_key: {descriptor_value: api}}]}]";
    let per_route = |fields: &str| {
        format!(
            "typed_per_filter_config: {{envoy.filters.http.ratelimit: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, {fields}}}}}"
        )
    };
    let in_filter = |more: &str| {
        ENVOY.replace("failure_mode_deny: true", &format!("failure_mode_deny: true\n              {more}"))
    };
    let on_last = |more: &str| {
        ENVOY.replace(
            "- match: {prefix: /}\n                route: {cluster: c}\n            - name: rest",
            &format!("- match: {{prefix: /}}\n                {more}\n                route: {{cluster: c}}\n            - name: rest"),
        )
    };
    let all = &["generic_key-api", "remote_address", "user-bob", "user"][..];
    // What the file says, the policies that are made, how many of them name the path of the first route, and what is noted.
    for (envoy, names, paths, said) in [
        (
            in_filter(own),
            &["generic_key-api"][..],
            0,
            "rate_limits: the filter's own limits are imported for all routes",
        ),
        (on_last(&per_route(own)), all, 1, ""),
        (on_last(&per_route("vh_rate_limits: IGNORE")), all, 2, ""),
        (in_filter("filter_enforced: {}"), all, 1, "filter_enforced: it is not read"),
        (in_filter("stage: 1"), &[], 0, "stage: the filter has another stage"),
        (on_last(&per_route("domain: x")), all, 1, "domain: it is not read"),
        (ENVOY.replace("remote_address: {}", "remote_address: {x: y}"), all, 1, "x: it is not read"),
        (
            ENVOY.replace("stat_prefix: edge", "stat_prefix: edge\n          other: {rate_limits: []}"),
            all,
            1,
            "rate_limits: limits are read in the filter, and in virtual hosts",
        ),
    ] {
        let folder = Folder::with(&[("limits.yaml", SERVICE), ("envoy.yaml", &envoy)]);
        let (status, out, error) =
            folder.weir(&["import", "ratelimit", "limits.yaml", "--envoy", "envoy.yaml"]);
        assert_eq!(status, if names.is_empty() { 2 } else { 0 }, "{envoy}{out}{error}");
        let made: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("- name: ")).collect();
        assert_eq!((made.as_slice(), out.matches("/api.*").count()), (names, paths), "{said}: {out}");
        assert!(error.contains(said), "{said}: {envoy}{error}");
    }
}
