// SPDX-License-Identifier: Apache-2.0
//! Which traces are recognised, what is read of them, and what is said about them.

use super::{CONFIG, File, config, decisions, fed, policy, replay};

/// A policy whose subject is all that a log can have of a request.
fn all_fields() -> File {
    let part = |part: &str| format!("{{{part}, \"on_missing\": \"share\"}}");
    let parts = [
        r#""method": {}"#,
        r#""path": {}"#,
        r#""host": {}"#,
        r#""client_address": {}"#,
        r#""header": {"name": "user-agent"}"#,
        r#""header": {"name": "x-forwarded-for"}"#,
        r#""route": {}"#,
        r#""attribute": {"path": ["connection", "requested_server_name"]}"#,
    ];
    let parts: Vec<String> = parts.into_iter().map(part).collect();
    config(&[policy("p", &format!("\"subject\": [{}], ", parts.join(", ")))])
}

/// The subject of the only request of a trace, its time, and the first line that is said about the trace.
fn read(line: &str, more: &[&str]) -> Result<(String, u64, String), String> {
    let config = all_fields();
    let (status, out, said) = fed(&[&[config.path(), "-", "--json"], more].concat(), line.as_bytes());
    if status != 0 {
        return Err(said);
    }
    let decision = decisions(&out).remove(0);
    let subject = decision["subject"].as_str().expect("a subject").replace("%-", "-");
    let format = said.lines().next().unwrap_or_default().trim_start_matches("weir: format: ");
    let format = format.split(';').next().unwrap_or_default().to_owned();
    Ok((subject, decision["t_ms"].as_u64().expect("a time"), format))
}

#[test]
fn each_format_is_recognised_and_named() {
    let time = "[10/Oct/2000:13:55:36 -0700]";
    let at = 971_211_336_000;
    let nginx = "nginx combined, times in whole seconds";
    let envoy = r#"[2016-04-15T20:17:00.310Z] "POST /v1 HTTP/2" 204 - 154 0 226 100 "203.0.113.9, 10.0.35.28" "agent" "id" "Example.org:443" "10.0.2.1:80""#;
    let istio = r#"[2026-01-31T08:00:00.500Z] "GET /status HTTP/1.1" 200 - via_upstream - "-" 0 135 5 4 "-" "curl/8" "id" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 sni.example default"#;
    let rows = [
        (
            "nginx combined",
            format!(r#"192.0.2.7 - bob {time} "GET /a?b HTTP/1.0" 200 23 "-" "curl/8""#),
            ("{p|GET|/a|localhost|192.0.2.7|curl/8|-|-|-}", at, nginx),
        ),
        (
            "with the time of the request, which ended then",
            format!(r#"192.0.2.7 - - {time} "GET /a HTTP/1.0" 200 23 "-" "-" 1.250"#),
            (
                "{p|GET|/a|localhost|192.0.2.7|-|-|-|-}",
                at - 1_250,
                "nginx combined with $request_time, times in whole seconds",
            ),
        ),
        (
            "nginx main",
            format!(r#"192.0.2.7 - - {time} "PUT /a HTTP/1.1" 200 23 "-" "-" "203.0.113.5""#),
            ("{p|PUT|/a|localhost|192.0.2.7|-|203.0.113.5|-|-}", at, "nginx main, times in whole seconds"),
        ),
        (
            "nginx main, timed",
            format!(r#"192.0.2.7 - - {time} "PUT /a HTTP/1.1" 200 23 "-" "-" "-" 0.000"#),
            (
                "{p|PUT|/a|localhost|192.0.2.7|-|-|-|-}",
                at,
                "nginx main with $request_time, times in whole seconds",
            ),
        ),
        (
            "escapes of nginx",
            format!(r#"192.0.2.7 - - {time} "GET /\x22 HTTP/1.0" 200 23 "-" "\x22\x5Cx""#),
            ("{p|GET|/%22|localhost|192.0.2.7|%22%5Cx|-|-|-}", at, nginx),
        ),
        (
            "escapes of Apache, and its absolute target",
            format!(r#"192.0.2.7 - - {time} "GET http://h.example/\"?q HTTP/1.1" 200 - "-" "a\\b\t""#),
            ("{p|GET|/%22|h.example|192.0.2.7|a%5Cb%09|-|-|-}", at, nginx),
        ),
        (
            "IPv6, a user with a space, and a zone to the east",
            String::from(r#"2001:db8::7 - a b [29/Feb/2024:00:30:00 +0100] "GET / HTTP/2.0" 200 23 "-" "-""#),
            ("{p|GET|/|localhost|2001:db8::/64|-|-|-|-}", 1_709_163_000_000, nginx),
        ),
        (
            "Envoy's default",
            envoy.to_owned(),
            (
                "{p|POST|/v1|example.org|10.0.35.28|agent|203.0.113.9,%2010.0.35.28|-|-}",
                1_460_751_420_310,
                "Envoy's default",
            ),
        ),
        (
            "Istio's default",
            istio.to_owned(),
            (
                "{p|GET|/status|httpbin|10.44.1.23|curl/8|-|default|sni.example}",
                1_769_846_400_500,
                "Istio's default",
            ),
        ),
        (
            "JSON",
            String::from(
                r#"{"t_ms": 7, "method": "PUT", "path": "/a", "client": "[::1]:5", "headers": {"User-Agent": ["a"]}}"#,
            ),
            ("{p|PUT|/a|localhost|::/64|a|-|-|-}", 7, "JSON"),
        ),
    ];
    for (row, line, (subject, at, format)) in rows {
        assert_eq!(read(&line, &[]), Ok((subject.to_owned(), at, format.to_owned())), "{row}");
    }
}

/// Each of them is nearly in a format.
#[test]
fn patterns_are_strict() {
    let nginx = r#"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 23 "-" "-""#;
    let envoy = r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/2" 204 - 154 0 226 100 "-" "a" "id" "h" "-""#;
    assert!(read(nginx, &[]).is_ok() && read(envoy, &[]).is_ok());
    let rows = [
        ("common, without referer and agent", nginx.replace(r#" "-" "-""#, "")),
        ("a month that is none", nginx.replace("Oct", "Okt")),
        ("no zone", nginx.replace(" -0700", "")),
        ("an hour that is none", nginx.replace("13:55", "25:55")),
        ("a status that is none", nginx.replace(" 200 ", " OK ")),
        ("two spaces", nginx.replace(" 200 ", "  200 ")),
        ("a field too many", format!("{nginx} \"x\" \"y\"")),
        ("a time of the request in milliseconds", format!("{nginx} 12")),
        ("a name before a value", format!("{nginx} rt=0.012")),
        ("a quote that is not escaped", nginx.replace(r#""-" "-""#, r#""-" "a"b""#)),
        ("an escape that is none", nginx.replace(r#""-" "-""#, r#""-" "\q""#)),
        ("Envoy, a quote in a field", envoy.replace("\"a\"", "\"a\"b\"")),
        ("Envoy, a field too many", format!("{envoy} -")),
        ("Envoy, a field too few", envoy.replace(" \"-\" \"a\"", " \"a\"")),
        ("Envoy, a time without a zone", envoy.replace('Z', "")),
        ("Envoy, a day that is none", envoy.replace("04-15", "02-30")),
        ("Envoy, a duration that is none", envoy.replace(" 226 ", " 0.2 ")),
        ("a word", String::from("hello")),
        ("a list of JSON", String::from("[1, 2]")),
    ];
    for (row, line) in rows {
        let refusal = read(&line, &[]).expect_err(row);
        assert!(
            refusal.starts_with("weir: the standard input: line 1: it is in no format that is known"),
            "{row}: {refusal}"
        );
        assert!(refusal.contains("nginx combined or main, Envoy's or Istio's default"), "{row}: {refusal}");
    }
}

#[test]
fn fields_of_json_have_the_names_that_the_operator_says() {
    let line = r#"{"ts": "2026-01-31T09:00:00.25+01:00", "req": {"method": "PUT", "uri": "/a?b", "a/b": "ua"}, "remote_addr": "192.0.2.7:5", "vhost": "h", "ms": 1500, "x": null, "tier": 3}"#;
    let map = |maps: &[&str]| {
        maps.iter().flat_map(|map| ["--map".to_owned(), (*map).to_owned()]).collect::<Vec<_>>()
    };
    let rest = [
        "client=remote_addr",
        "host=vhost",
        "duration_ms=ms",
        "method=/req/method",
        "path=/req/uri",
        "header.User-Agent=/req/a~1b",
        "header.x-forwarded-for=x",
        "attribute.xds.route_name=tier",
    ];
    let subject = "{p|PUT|/a|h|192.0.2.7|ua|-|3|-}";
    let at = 1_769_846_400_250;
    for (time, at) in [("time=ts", at), ("end=ts", at - 1_500)] {
        let maps = map(&[&[time], &rest[..]].concat());
        let maps: Vec<&str> = maps.iter().map(String::as_str).collect();
        assert_eq!(read(line, &maps), Ok((subject.to_owned(), at, String::from("JSON by --map"))), "{time}");
    }
    for (line, map, at) in [
        (r#"{"t": 1700000000.123}"#, "time_s=t", 1_700_000_000_123),
        (r#"{"t": "1700000000.5"}"#, "time_s=t", 1_700_000_000_500),
        (r#"{"t": 1700000000123}"#, "time_ms=t", 1_700_000_000_123),
        (r#"{"t": 1700000000123456}"#, "time_us=t", 1_700_000_000_123),
        (r#"{"t": 1700000000123456789}"#, "time_ns=t", 1_700_000_000_123),
        (r#"{"t": "10/Oct/2000:13:55:36 -0700"}"#, "end=t", 971_211_336_000),
    ] {
        let found = read(line, &["--map", map]).map(|(_, at, _)| at);
        assert_eq!(found, Ok(at), "{map}");
    }
    let request = r#"{"t": 1, "r": "GET /x HTTP/1.1"}"#;
    let found = read(request, &["--map", "time_ms=t", "--map", "request=r"]).map(|(subject, ..)| subject);
    assert_eq!(found, Ok(String::from("{p|GET|/x|localhost|-|-|-|-|-}")));
}

#[test]
fn a_mapping_that_cannot_be_meant_is_refused() {
    let line = r#"{"t": 1, "remote_addr": "192.0.2.1", "s": "soon"}"#;
    let rows: [(&[&str], &str); 11] = [
        (&["client=remote_addr"], "--map: found 0 times, allowed: one of time, end, time_s"),
        (&["time_ms=t", "end=s"], "--map: found 2 times"),
        (&["time_ms=t", "clinet=remote_addr"], "found \"clinet\", allowed: time, end, request, "),
        (&["time_ms=t", "clinet=remote_addr"], "(did you mean \"client\"?)"),
        (
            &["time_ms=t", "client=remote_adr"],
            "--map client=remote_adr: no line has the field \"remote_adr\"",
        ),
        (&["time_ms=t", "client=remote_adr"], "(did you mean \"remote_addr\"?)"),
        (&["time_ms=t", "client=a", "client=b"], "client=a and client=b have the same meaning"),
        (&["time_ms"], "allowed: MEANING=FIELD"),
        (&["time_ms="], "there is no name of a field"),
        (&["time=s"], "line 1: s is \"soon\", allowed: a date such as"),
        (&["time=t"], "for a number say time_s, time_ms"),
    ];
    for (maps, said) in rows {
        let maps: Vec<&str> = maps.iter().flat_map(|map| ["--map", map]).collect();
        let refusal = read(line, &maps).expect_err(said);
        assert!(refusal.contains(said), "{maps:?}: {refusal}");
    }
}

#[test]
fn what_is_no_request_is_counted_by_reason() {
    let line = |request: &str, status: u16| {
        format!("192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] \"{request}\" {status} 0 \"-\" \"-\"\n")
    };
    let log = [
        line("GET / HTTP/1.1", 200),
        line(r"\x16\x03\x01\x02\x00\x01\x00\x01\xFC", 400),
        line(r"\x16\x03\x01", 400),
        line("-", 408),
        line("", 400),
        line("GET /slow HTTP/1.1", 408),
        line("-", 400),
        line("PRI * HTTP/2.0", 400),
        line(r"\x00\x0E8K\xA3\xAAe", 400),
        line("GET /", 400),
        line("GET / HTTP/1.1", 499),
    ];
    let config = config(&[policy("p", "")]);
    let (status, out, said) = fed(&[config.path(), "-"], log.concat().as_bytes());
    assert_eq!(status, 0, "{said}");
    assert!(out.starts_with("2 requests, "), "{out}");
    for reason in [
        "skipped 2 lines: a TLS handshake on a port without TLS",
        "skipped 2 lines: the connection ended before a request",
        "skipped 2 lines: the request did not come in time (408)",
        "skipped 3 lines: not HTTP",
    ] {
        assert!(said.contains(&format!("weir: {reason}\n")), "{reason}: {said}");
    }
    // Envoy logs a method when it has read all headers.
    let envoy = |request: &str, status: u16| {
        format!(
            "[2016-04-15T20:17:00.310Z] \"{request}\" {status} DT 0 0 9 - \"-\" \"-\" \"-\" \"h\" \"-\"\n"
        )
    };
    let log = [envoy("GET / HTTP/1.1", 408), envoy("- - HTTP/1.1", 408), envoy("- - -", 0)].concat();
    let (_, out, said) = fed(&[config.path(), "-"], log.as_bytes());
    assert!(
        out.starts_with("1 requests, ")
            && said.contains("skipped 1 line: the request did not come in time (408)"),
        "{out}{said}"
    );
    assert!(said.contains("skipped 1 line: the connection ended before a request"), "{said}");
}

#[test]
fn what_a_log_lacks_is_said() {
    let nginx = r#"host.example - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 23 "-" "-""#;
    let whole = r#"{"t_ms": 1, "host": "h", "client": "192.0.2.1", "duration_ms": 1}"#;
    let client = "warning: no request has a client address that can be read (line 1: \"host.example\")";
    let (host, duration) = ("warning: no request has a host: ", "warning: no request has a duration: ");
    let rows: [(&str, &str, &[&str], &[&str]); 6] = [
        ("all", nginx, &[], &[client, host, duration]),
        ("a host is said", nginx, &["--host", "h.example"], &[client, duration]),
        ("a duration is said", nginx, &["--duration", "2s"], &[client, host]),
        ("both", nginx, &["--host", "h.example", "--duration", "0s"], &[client]),
        ("nothing", whole, &[], &[]),
        (
            "one of two",
            &format!("{whole}\n{{\"t_ms\": 2, \"client\": \"\\u001b[2J\"}}"),
            &[],
            &[
                "warning: 1 requests have no client address that can be read (line 2: \"\\x1b[2J\")",
                "warning: 1 requests have no host: ",
                "warning: 1 requests have no duration: ",
            ],
        ),
    ];
    let config = config(&[policy("p", "")]);
    for (row, log, more, warnings) in rows {
        let (status, _, said) = fed(&[&[config.path(), "-"], more].concat(), log.as_bytes());
        assert_eq!(status, 0, "{row}: {said}");
        let found: Vec<&str> = said.lines().filter(|line| line.contains("warning: ")).collect();
        assert_eq!(found.len(), warnings.len(), "{row}: {said}");
        for (found, wanted) in found.iter().zip(warnings) {
            assert!(found.starts_with(&format!("weir: {wanted}")), "{row}: {wanted}\n{said}");
        }
    }
}

#[test]
fn a_host_and_a_duration_stand_in_for_what_is_missing() {
    let nginx = r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 23 "-" "-""#;
    let found = read(nginx, &["--host", "h.example", "--duration", "1500ms"]);
    // The request ended then, so it came before.
    assert_eq!(
        found.map(|(subject, at, _)| (subject, at)),
        Ok(("{p|GET|/|h.example|192.0.2.1|-|-|-|-}".to_owned(), 971_211_334_500))
    );
    let json = r#"{"t_ms": 5000, "host": "own", "duration_ms": 7}"#;
    let found = read(json, &["--host", "h.example", "--duration", "1s"]);
    assert_eq!(
        found.map(|(subject, at, _)| (subject, at)),
        Ok(("{p|GET|/|own|127.0.0.1|-|-|-|-}".to_owned(), 5_000))
    );
    for (more, said) in
        [(["--duration", "5"], "250ms"), (["--duration", "1x"], "250ms"), (["--duration", "900d"], "366d")]
    {
        assert!(read(json, &more).expect_err(more[1]).contains(said), "{more:?}");
    }
}

#[test]
fn a_policy_that_lacks_a_field_in_the_whole_trace_is_named() {
    let rows = [
        (
            "a header of the subject",
            r#""subject": [{"header": {"name": "x-a"}, "on_missing": "skip"}], "#,
            "the header x-a",
        ),
        (
            "a header of the condition",
            r#""match": {"any": [{"header": {"name": "x-a", "exact": "1"}}]}, "#,
            "the header x-a",
        ),
        ("a cookie", r#""match": {"cookie": {"name": "s", "present": true}}, "#, "cookies"),
        ("a claim", r#""match": {"attribute": {"path": ["a", "b"], "exact": "c"}}, "#, "the attribute a.b"),
        ("a route", r#""match": {"route": ["r"]}, "#, "the attribute xds.route_name"),
        ("a body", r#""match": {"body_json": {"path": "m", "exact": "x"}}, "#, "a body"),
    ];
    let bare = r#"{"t_ms": 1, "host": "h", "client": "192.0.2.1", "duration_ms": 1}"#;
    for (row, field, words) in rows {
        let config = config(&[policy("q", field), policy("p", "")]);
        let (status, out, said) = fed(&[config.path(), "-"], bare.as_bytes());
        let warning =
            format!("weir: warning: policy q applied to no request: no request of the trace has {words}\n");
        assert!(status == 0 && said.contains(&warning), "{row}: {warning}{said}");
        assert!(out.contains("\napplied to no request: q\n"), "{row}: {out}");
    }
    // A policy that denies requests without it applies to all of them.
    let required = r#""subject": [{"header": {"name": "x-a"}, "on_missing": "deny"}], "#;
    let modes = [required.to_owned(), format!(r#"{required}"mode": "shadow", "#)];
    for fields in modes {
        let config = config(&[policy("q", &fields)]);
        let (_, _, said) = fed(&[config.path(), "-"], bare.as_bytes());
        let warning = "weir: warning: policy q denied every request, because the trace lacks what its subject needs: the header x-a\n";
        assert!(said.contains(warning), "{fields}: {said}");
    }
    // Neither where it is there and another thing is not met, nor where the policy applies without it.
    let config = config(&[
        policy("other", r#""match": {"header": {"name": "x-a", "exact": "2"}}, "#),
        policy("path", r#""match": {"path": {"exact": "/no"}}, "#),
        policy("without", r#""match": {"not": {"header": {"name": "x-b", "exact": "1"}}}, "#),
        policy("required", required),
        policy("shared", r#""subject": [{"header": {"name": "x-c"}}], "#),
    ]);
    let line =
        r#"{"t_ms": 1, "host": "h", "client": "192.0.2.1", "duration_ms": 1, "headers": {"x-a": "1"}}"#;
    let (_, out, said) = fed(&[config.path(), "-"], line.as_bytes());
    assert!(!said.contains("warning: "), "{said}");
    assert!(out.contains("\napplied to no request: other, path\n"), "{out}");
}

#[test]
fn a_file_and_the_standard_input_are_one() {
    let (config, log) = (File::new("config.json", CONFIG), "{\"t_ms\": 1}\n{\"t_ms\": 2}\n");
    let file = File::new("trace.jsonl", log);
    let (_, from_file, _) = replay(&[config.path(), file.path(), "--json"]);
    assert_eq!(fed(&[config.path(), "-", "--json"], log.as_bytes()).1, from_file);
    assert_eq!(from_file.lines().count(), 2);
}
