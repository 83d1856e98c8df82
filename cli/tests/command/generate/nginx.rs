// SPDX-License-Identifier: Apache-2.0
//! `weir import nginx`. That the verdicts are nginx's is tested in `cli/tests/envoy/nginx.rs`.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Folder;

/// The policies of a file whose block `http` has these directives, and the notes.
fn import(http: &str) -> (String, String) {
    let folder = Folder::with(&[("nginx.conf", &format!("events {{}}\nhttp {{\n{http}\n}}\n"))]);
    let (status, out, error) = folder.weir(&["import", "nginx", "nginx.conf"]);
    assert_eq!(status, 0, "{out}{error}");
    let (status, said) = folder.check(&out);
    assert_eq!(status, 0, "{out}{said}");
    (out, error)
}

#[test]
fn a_configuration_is_printed_with_the_lines_that_it_comes_from() {
    let (out, error) = import(
        "  limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
  limit_conn_zone $server_name zone=servers:1m;
  limit_req_status 429;
  limit_conn_status 429;
  server {
    server_name example.com;
    location /search/ { limit_req zone=one burst=5; proxy_pass http://u; }
    location / { limit_conn servers 100; proxy_pass http://u; }
  }",
    );
    assert_eq!(
        out,
        r#"# Made by `weir import nginx` from nginx.conf. Try it with `weir check`, and with `mode: shadow` first.
response:
  status: 429
policies:
# nginx.conf:3: limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s
# nginx.conf:9: limit_req zone=one burst=5
- name: one
  match: {path: {regex: "/search/.*", trailing_slash: distinct}}
  # nginx counts each address of IPv6. Without ipv6_prefix weir counts each /64, because one client has so many.
  subject: [{client_address: {ipv6_prefix: 128}}]
  limits: [{name: requests, algorithm: leaky_bucket, rate: 10/s, burst: 1, max_delay: 500ms}]
# nginx.conf:4: limit_conn_zone $server_name zone=servers:1m
# nginx.conf:10: limit_conn servers 100
- name: servers
  match: {not: {path: {regex: "/search/.*", trailing_slash: distinct}}}
  subject: [{literal: example.com}]
  limits: [{name: connections, algorithm: concurrency, limit: 100, ttl: 10m}]
"#
    );
    assert_eq!(error, "");
}

/// The limits that parameters of `limit_req` make, at three requests a second.
#[test]
fn bursts_and_delays() {
    let rows = [
        ("", "burst: 1}"),
        ("burst=5", "burst: 1, max_delay: 1666667us}"),
        ("burst=6", "burst: 1, max_delay: 2s}"),
        ("burst=5 nodelay", "burst: 6}"),
        ("burst=5 delay=2", "burst: 3, max_delay: 1s}"),
        ("burst=5 delay=9", "burst: 6}"),
        ("burst=500", "burst: 1, max_delay: 60s}"),
    ];
    for (parameters, limit) in rows {
        let (out, error) = import(&format!(
            "limit_req_zone $host zone=z:1m rate=3r/s; server {{ limit_req zone=z {parameters}; location / {{ }} }}"
        ));
        assert!(out.contains(&format!("rate: 3/s, {limit}]")), "{parameters}: {out}");
        assert_eq!(error.contains("60 s at most"), parameters == "burst=500", "{parameters}: {error}");
    }
}

#[test]
fn what_cannot_be_told_is_listed_with_its_line_and_what_to_do() {
    let rows = [
        (
            "limit_rate 50k;",
            "limit_rate 50k: weir does not slow responses down. Use Envoy's filter bandwidth_limit",
        ),
        ("access_by_lua_block { local a = {} }", "access_by_lua_block: Lua is not read. "),
        ("access_by_lua_file /a.lua;", "access_by_lua_file /a.lua: Lua is not read. "),
        ("limit_req_log_level warn;", "weir writes no log line for each rejection. "),
        ("limit_req zone=odd;", "$uid_got is not known to weir. Its policy is a skeleton in shadow mode: "),
        ("limit_req zone=nowhere;", "there is no zone of this name. "),
        ("limit_req zone=z forbid_action=@a;", "is no parameter of nginx's own module"),
        ("limit_conn z 5;", "its zone counts something else. "),
        ("rewrite ^/a /b last;", "weir sees the path that the client sends. "),
        ("if ($http_a) { return 403; }", "nginx answers these requests before it counts them"),
        ("location ~ ^/(?=a) { limit_req zone=z burst=9; }", "weir cannot search for it"),
        ("limit_req_status 200;", "weir does not reject with the status 200"),
        ("include no-such-file;", "is not there, so what it says is not imported"),
    ];
    for (directive, note) in rows {
        let folder = Folder::with(&[(
            "nginx.conf",
            &format!(
                "http {{\nlimit_req_zone $host zone=z:1m rate=1r/s;\nlimit_req_zone $uid_got zone=odd:1m rate=1r/s;\nserver {{\n  location / {{ limit_req zone=z; }}\n  location /a {{ limit_req zone=z burst=2;\n    {directive}\n  }}\n}}\n}}\n"
            ),
        )]);
        let (_, out, error) = folder.weir(&["import", "nginx", "nginx.conf"]);
        assert!(error.contains(note) && error.contains(": note: "), "{directive}: {error}");
        let line = if directive == "limit_req zone=odd;" { 3 } else { 7 };
        let is_about =
            |said: &&str| said.starts_with(&format!("nginx.conf:{line}: note: ")) && said.contains(note);
        assert!(
            directive == "limit_req_status 200;" || error.lines().any(|said| is_about(&said)),
            "{directive}: {error}"
        );
        assert!(out.contains("policies:"), "{directive}: the rest is imported: {out}");
    }
}

#[test]
fn files_are_included_as_nginx_includes_them() {
    let folder = Folder::with(&[
        ("nginx.conf", "http { include zones.conf; include sites/*.conf; include none/*.conf; }"),
        ("zones.conf", "limit_req_zone $host zone=z:1m rate=1r/s;"),
        ("sites/a.conf", "server { server_name a; include ../limit.conf; location / { } }"),
        ("sites/b.conf", "server { server_name b;\n include limit.conf; location / { } }"),
        ("limit.conf", "limit_req zone=z;"),
    ]);
    let (status, out, error) = folder.weir(&["import", "nginx", "--strict", "nginx.conf"]);
    assert_eq!(
        (status, error.as_str()),
        (
            1,
            "sites/a.conf:1: note: include ../limit.conf: is not there, so what it says is not imported. Run the command where nginx runs, or copy the file; types and parameters of upstreams do not matter\n"
        )
    );
    assert!(
        out.contains("# limit.conf:1: limit_req zone=z\n") && out.contains("match: {host: [b]}"),
        "{out}"
    );
    let folder = Folder::with(&[("nginx.conf", "include nginx.conf;")]);
    let (status, _, error) = folder.weir(&["import", "nginx", "nginx.conf"]);
    assert!(status == 2 && error.contains("nginx.conf:1: files include files more than 16 deep"), "{error}");
}

#[test]
fn what_nginx_refuses_is_refused_with_its_place() {
    for (text, said) in [
        ("http {", "nginx.conf:1: found the end of the file in the block that begins here"),
        ("http { a \"b; }", "nginx.conf:1: found a text without its closing \""),
        ("http { }", "found no limit_req and no limit_conn"),
        ("\n\n}", "nginx.conf:3: found `}` where no block is open"),
    ] {
        let folder = Folder::with(&[("nginx.conf", text)]);
        let (status, out, error) = folder.weir(&["import", "nginx", "nginx.conf"]);
        assert!(status == 2 && out.is_empty() && error.contains(said), "{text:?}: {error}");
    }
    let (status, _, error) = Folder::with(&[]).weir(&["import", "nginx", "nginx.conf"]);
    assert!(status == 2 && error.contains("nginx.conf: No such file"), "{error}");
}

#[test]
fn a_subject_and_a_name_of_a_file_are_data() {
    let (out, _) = import(
        "limit_req_zone \"a\u{7}: {b}#\" zone=z\u{e9}:1m rate=1r/s; server { limit_req zone=z\u{e9}; location \"/a\\\"b\" { } location / { } }",
    );
    assert!(out.contains("- name: z-\n") && out.contains(r#"literal: "a\u0007: {b}#""#), "{out}");
    assert!(!out.contains('\u{7}'), "{out:?}");
}

#[test]
fn json_has_the_configuration_and_the_notes() {
    let folder = Folder::with(&[(
        "a.conf",
        "limit_req_zone $host zone=z:1m rate=1r/s;\nserver { limit_req zone=z; limit_rate 1k; location / { } }",
    )]);
    let (status, out, error) = folder.weir(&["import", "nginx", "--json", "a.conf"]);
    let said: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((status, error.as_str()), (0, ""));
    assert_eq!(said["configuration"]["policies"][0]["limits"][0]["rate"], "1/s");
    assert_eq!(
        (said["notes"][0]["file"].as_str(), said["notes"][0]["line"].as_u64()),
        (Some("a.conf"), Some(2))
    );
    assert_eq!(said["notes"][0]["what"], "limit_rate 1k");
}

/// A file of the greatest size that is likely, and one with many cases, end soon.
#[test]
fn large_files_are_read() {
    let mut http = String::from("limit_req_zone $key zone=z:1m rate=1r/s; geo $free { default 1;\n");
    for number in 0..3_000 {
        http.push_str(&format!("10.{}.{}.0/24 0;\n", number / 256, number % 256));
    }
    http.push_str(
        "}\nmap $free $key { 0 \"\"; 1 $binary_remote_addr; }\nserver { limit_req zone=z; location / { }\n",
    );
    for number in 0..300 {
        http.push_str(&format!("location /a{number}/ {{ limit_req zone=z burst={}; }}\n", number % 3));
    }
    http.push_str("}\n");
    let (out, error) = import(&http);
    assert_eq!(error, "");
    assert!(out.contains("10.11.183.0/24"), "{}", out.len());
}

/// nginx tries many locations with regular expressions in their order, and every other one has another limit.
#[test]
fn locations_that_alternate_are_no_deep_condition() {
    let locations: String = (0..120)
        .map(|number| format!("location ~ /x{number}$ {{ limit_req zone=z burst={}; }}\n", number % 2))
        .collect();
    let (out, _) = import(&format!(
        "limit_req_zone $host zone=z:1m rate=1r/s; server {{\n{locations}location / {{ }} }}"
    ));
    let deepest = out.lines().map(|line| line.len() - line.trim_start().len()).max();
    assert!(deepest < Some(40), "{deepest:?}");
}

/// nginx has whole thousandths of a request in a second: a minute is too short for the next request of `1r/m`.
#[test]
fn rates_are_those_that_nginx_computes() {
    let rows = [
        ("10r/s", "rate: 10/s, burst: 1, max_delay: 500ms}", false),
        ("60r/m", "rate: 60/m, burst: 1, max_delay: 5s}", false),
        ("30r/m", "rate: 30/m, burst: 1, max_delay: 10s}", false),
        ("1r/m", "rate: 16/1000s, burst: 1, max_delay: 60s}", true),
        ("100r/m", "rate: 1666/1000s, burst: 1, max_delay: 3001201us}", true),
        ("5r/m", "rate: 83/1000s, burst: 1, max_delay: 60s}", true),
    ];
    for (rate, limit, is_cut) in rows {
        let (out, _) = import(&format!(
            "limit_req_zone $host zone=z:1m rate={rate}; server {{ limit_req zone=z burst=5; location / {{ }} }}"
        ));
        assert!(out.contains(limit), "{rate}: {out}");
        assert_eq!(out.contains(&format!("# nginx takes {rate} for ")), is_cut, "{rate}: {out}");
    }
}

#[test]
fn a_request_that_limit_conn_rejects_is_noted_where_limit_req_counts_it() {
    let zones = "limit_req_zone $host zone=r:1m rate=1r/s; limit_conn_zone $host zone=c:1m;\n";
    let said = "note: limit_conn c 2: nginx has counted a request in limit_req before limit_conn rejects it, and weir counts a rejected request nowhere";
    for (server, is_noted) in [
        ("limit_req zone=r; limit_conn c 2; location / { }", true),
        ("limit_req zone=r; location / { limit_conn c 2; }", true),
        ("location / { limit_req zone=r; } location /c { limit_conn c 2; }", false),
        ("limit_req zone=r; limit_req_dry_run on; limit_conn c 2; location / { }", false),
        ("limit_req zone=r; limit_conn c 2; limit_conn_dry_run on; location / { }", false),
    ] {
        let (_, error) = import(&format!("{zones}server {{ {server} }}"));
        assert_eq!(error.contains(said), is_noted, "{server}: {error}");
    }
}

/// What a map of several variables says, as conditions on each of them.
#[test]
fn maps_of_several_variables() {
    let rows = [
        (
            "$host:$uri",
            "a.test:/login",
            r#"host: [a.test], path: {regex: "(?i)/login", trailing_slash: distinct}"#,
        ),
        ("$host$uri", r"~^a\.test/api/", "path: {regex: \"/api/.*\", trailing_slash: distinct}\n"),
        ("$request_method:$uri", "~^POST:/a", "weir has no expressions for $request_method"),
        ("$request_method $host", "GET a.test", "method: [GET], host: [a.test]"),
        ("$http_a-$http_b", "x-1-2", "all: [{header: {name: b, exact: \"1-2\"}}]"),
        (
            "$host:$uri",
            "~.*:/x",
            "it may find ':' in several places, so its requests are taken for those of the next entries",
        ),
        ("$http_a:$uri", "~^x:/y", "$http_a may have ':' in it"),
        ("$host:$uri", "~^(a:/x|b:/y)", "it may find ':' in several places"),
    ];
    for (source, entry, found) in rows {
        let (out, error) = import(&format!(
            "map \"{source}\" $key {{ default \"\"; \"{entry}\" $binary_remote_addr; /never/ $http_x; }}
limit_req_zone $key zone=z:1m rate=1r/s; server {{ limit_req zone=z; location / {{ }} }}
limit_req_zone $host zone=y:1m rate=1r/s; server {{ limit_req zone=y; server_name y; location / {{ }} }}"
        ));
        let is_there = out.contains(found) || error.contains(found);
        assert!(is_there, "{source} {entry}: {out}{error}");
    }
}

#[test]
fn the_name_of_a_server_is_known_in_maps() {
    let (out, error) = import(
        "map $server_name $key { default $binary_remote_addr; free.test \"\"; ~^api\\. $http_x_api_key; }
limit_req_zone $key zone=z:1m rate=1r/s; limit_req zone=z;
server { server_name shop.test; location / { } }
server { server_name free.test; location / { } }
server { server_name api.test; location / { } }",
    );
    assert_eq!(error, "");
    // free.test has an empty key, and api.test another one.
    assert!(out.contains("- name: z\n  match: {not: {host: [free.test, api.test]}}\n"), "{out}");
    assert!(out.contains("- name: z-2\n  match: {host: [api.test], "), "{out}");
    assert!(out.contains("subject: [{header: {name: x-api-key}"), "{out}");
    assert!(!out.contains("\n  mode: shadow"), "{out}");
}

/// A key that weir does not know leaves a policy to be completed, which limits nothing until then.
#[test]
fn a_key_that_is_not_known_leaves_a_skeleton() {
    let (out, error) = import(
        "map $geoip_country_code $key { default \"\"; CN $binary_remote_addr; }
limit_req_zone $key zone=country:1m rate=1r/s;
limit_req_zone \"$uid_got$http_x\" zone=uid:1m rate=2r/s;
map $uri $part { default \"\"; ~^/u/(?<user>[^/]+)/ $user; ~^/g/([^/]+) $1; }
limit_req_zone $part zone=part:1m rate=3r/s;
server { limit_req zone=country burst=3 nodelay; limit_req zone=uid; limit_req zone=part; location / { } }",
    );
    let policy = |name: &str| {
        let rest = out.split(&format!("- name: {name}\n")).nth(1).unwrap_or_else(|| panic!("{name}: {out}"));
        rest.split("- name: ").next().unwrap_or_default().to_owned()
    };
    for (name, subject, limit) in [
        ("country", "[{literal: $key}]", "rate: 1/s, burst: 4"),
        ("uid", "[{header: {name: x}, on_multiple: join}]", "rate: 2/s"),
        ("part", "[{literal: $user}]", "rate: 3/s"),
        ("part-2", "[{literal: $1}]", "rate: 3/s"),
    ] {
        let policy = policy(name);
        assert!(policy.contains(subject) && policy.contains(limit), "{name}: {policy}");
        assert!(
            policy.contains("  # A skeleton, because $") && policy.contains("\n  mode: shadow\n"),
            "{name}: {policy}"
        );
    }
    assert_eq!(error.lines().count(), 4, "{error}");
    assert!(error.contains("nginx.conf:4: note: limit_req_zone $key zone=country:1m rate=1r/s: its key cannot be told: $geoip_country_code is not known to weir. Its policy is a skeleton"), "{error}");
    assert!(error.contains("$1 is a part that a regular expression has found"), "{error}");
}

#[test]
fn an_entry_that_cannot_be_searched_for_does_not_lose_the_map() {
    let (out, error) = import(
        "map $http_user_agent $key { default \"\"; ~(?=x) $host; ~*bot $binary_remote_addr; }
limit_req_zone $key zone=z:1m rate=1r/s; server { limit_req zone=z; location / { } }",
    );
    assert!(out.contains("(?i).*bot.*") && !out.contains("\n  mode: shadow"), "{out}");
    assert!(error.starts_with("nginx.conf:3: note: ~(?=x) $host: weir cannot search for it"), "{error}");
}

/// Hundreds of regular expressions take about as long as they are many. Without looking at their ends, 400 took 25 times as long as 100.
#[test]
fn many_regular_expressions_are_read_in_proportion() {
    let file = |count: usize| {
        let locations: String = (0..count)
            .map(|number| {
                format!("location ~ ^/api/v{number}/\\d+$ {{ limit_req zone=z burst={}; }}\nlocation ~ ^/p{number}/.*\\.php$ {{ }}\n", number % 50)
            })
            .collect();
        Folder::with(&[(
            "a.conf",
            &format!(
                "limit_req_zone $host zone=z:1m rate=100r/s; server {{\nlimit_req zone=z;\n{locations}location / {{ }} }}"
            ),
        )])
    };
    let time = |count: usize| {
        let folder = file(count);
        let began = Instant::now();
        let (status, out, error) = folder.weir(&["import", "nginx", "a.conf"]);
        assert_eq!(status, 0, "{error}");
        assert!(out.len() < 400 * count + 20_000, "{count}: {} bytes", out.len());
        began.elapsed()
    };
    let few = time(100).max(Duration::from_millis(50));
    let many = time(400);
    assert!(many < few * 12, "100 take {few:?}, 400 {many:?}");
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = Folder::with(&[("nginx.conf", "http { include pipe; }"), ("limits.yaml", "domain: d\n")]);
    let path = |name: &str| folder.0.join(name);
    assert!(Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo").success());
    for arguments in [
        &["check", "pipe"][..],
        &["import", "nginx", "pipe"],
        &["import", "nginx", "/dev/zero"],
        &["import", "ratelimit", "pipe"],
        &["import", "ratelimit", "limits.yaml", "--envoy", "pipe"],
        &["render", "--for", "envoy", "pipe"],
    ] {
        let (status, out, error) = folder.weir(arguments);
        assert!(
            status != 0 && (out.clone() + &error).contains("it is no regular file"),
            "{arguments:?}: {status} {out}{error}"
        );
    }
    let (status, out, error) = folder.weir(&["import", "nginx", "nginx.conf"]);
    assert!(
        status == 2 && out.is_empty() && error.contains("nginx.conf:1: pipe: it is no regular file"),
        "{error}"
    );
    // What a shell passes is read.
    std::fs::write(path("a.yaml"), "policies: []\n").expect("a file");
    let (status, _, error) = folder.weir(&["check", "/dev/stdin"]);
    assert!(!error.contains("regular"), "{status}: {error}");
}

/// A configuration from elsewhere may include any file of the machine. A message about such a file has none of its words.
#[test]
fn what_an_included_file_says_is_in_no_message() {
    for secret in ["root:secret:1:0:99999\n", "secret {\n", "\"secret\"secret;\n", "a; secret }\n", "secret"]
    {
        let folder = Folder::with(&[
            (
                "nginx.conf",
                "http {\n include secrets/*;\n limit_req_zone $host zone=z:1m rate=1r/s; server { limit_req zone=z; location / { } } }",
            ),
            ("secrets/shadow", secret),
        ]);
        for json in [&[][..], &["--json"]] {
            let (status, out, error) = folder.weir(&[&["import", "nginx", "nginx.conf"], json].concat());
            assert_eq!(status, 2, "{secret:?}: {out}{error}");
            assert!(error.contains("secrets/shadow:1: found "), "{secret:?}: {error}");
            assert!(
                !out.contains("secret:") && !error.replace("secrets/", "").contains("secret"),
                "{secret:?}: {out}{error}"
            );
        }
    }
}
