// SPDX-License-Identifier: Apache-2.0
//! `weir import nginx`. That the verdicts are nginx's is tested in `tests/nginx.rs`.

use serde_json::Value;

use crate::Folder;

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
        ("limit_req zone=odd;", "$uid_got is not known to weir. Write the policy by hand"),
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
        ("http {", "nginx.conf:1: found the end of the file in the block of \"http\""),
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
