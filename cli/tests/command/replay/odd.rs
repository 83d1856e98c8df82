// SPDX-License-Identifier: Apache-2.0
//! Odd traces: each is read as it is meant, or refused by name.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{CONFIG, File, config, decisions, fed, policy, replay};
use crate::command::command;

const BARE: &str = r#""host": "h", "client": "192.0.2.1", "duration_ms": 1"#;

fn json(at: u64) -> String {
    format!("{{\"t_ms\": {at}, {BARE}}}")
}

fn nginx(time: &str) -> String {
    format!("192.0.2.7 - - [{time}] \"GET / HTTP/1.1\" 200 0 \"-\" \"-\"")
}

/// What becomes of a trace: the times of its requests, in order, or a part of what is said about it.
enum Wanted {
    Times(&'static [u64]),
    /// The same, and something is said.
    Said(&'static [u64], &'static str),
    Refused(&'static str),
}

#[test]
fn odd_traces() {
    use Wanted::{Refused, Said, Times};
    let lines = |lines: &[String]| lines.join("\n").into_bytes();
    let one = || json(1);
    let hundred = |more: &str| {
        let mut all: Vec<String> = (1..=200)
            .map(|second| nginx(&format!("10/Oct/2000:13:{:02}:{:02} +0000", second / 60, second % 60)))
            .collect();
        all.insert(100, more.to_owned());
        all.join("\n").into_bytes()
    };
    let rows: Vec<(&str, Vec<u8>, Wanted)> = vec![
        ("out of order", lines(&[json(30), json(10), json(20), json(10)]), Times(&[10, 10, 20, 30])),
        (
            "time zones",
            lines(&[
                nginx("10/Oct/2000:13:55:36 -0700"),
                nginx("10/Oct/2000:20:55:35 +0000"),
                nginx("11/Oct/2000:02:25:37 +0530"),
            ]),
            Times(&[971_211_335_000, 971_211_336_000, 971_211_337_000]),
        ),
        (
            "a leap second is the second before it",
            lines(&[nginx("31/Dec/2016:23:59:60 +0000"), nginx("01/Jan/2017:00:00:00 +0000")]),
            Times(&[1_483_228_799_000, 1_483_228_800_000]),
        ),
        (
            "the night of a change to summer time",
            lines(&[nginx("31/Mar/2024:01:59:59 +0100"), nginx("31/Mar/2024:03:00:00 +0200")]),
            Times(&[1_711_846_799_000, 1_711_846_800_000]),
        ),
        ("blank lines", b"\n\n{\"t_ms\": 1}\n   \n{\"t_ms\": 2}\n\n".to_vec(), Times(&[1, 2])),
        ("CRLF", b"{\"t_ms\": 1}\r\n{\"t_ms\": 2}\r\n".to_vec(), Times(&[1, 2])),
        (
            "CRLF in a log of text",
            [nginx("10/Oct/2000:13:55:36 +0000").as_bytes(), b"\r\n"].concat(),
            Times(&[971_186_136_000]),
        ),
        ("a byte order mark", [&b"\xef\xbb\xbf"[..], one().as_bytes()].concat(), Times(&[1])),
        ("UTF-16", b"\xff\xfe{\0".to_vec(), Refused("it is UTF-16, allowed: UTF-8")),
        ("gzip", b"\x1f\x8b\x08\0".to_vec(), Refused("it is compressed (gzip)")),
        ("no end of the last line", one().into_bytes(), Times(&[1])),
        (
            "the end within a line of JSON",
            [one().as_bytes(), b"\n{\"t_ms\": 2, \"pa"].concat(),
            Said(&[1], "skipped line 2: the trace ends within it"),
        ),
        (
            "a broken line of JSON",
            lines(&[one(), String::from("{\"t_ms\": 2,"), json(3)]),
            Refused("line 2: it is not JSON, at column 11: "),
        ),
        (
            "one broken line of 201",
            hundred("192.0.2.7 - - [10/Oct"),
            Said(&[], "skipped 1 line that cannot be read: line 101: it is not in the format nginx combined"),
        ),
        (
            "three broken lines of 203",
            hundred("a\nb\nc"),
            Refused(
                "line 101: it is not in the format nginx combined, and 2 more of 203 lines cannot be read",
            ),
        ),
        (
            "two formats",
            hundred(r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/2" 204 - 154 0 226 100 "-" "a" "id" "h" "-""#),
            Refused(
                "line 101: it is in the format Envoy's default, and the lines before are in nginx combined; a trace has one format",
            ),
        ),
        (
            "two formats of nginx",
            hundred(&format!("{} \"-\"", nginx("10/Oct/2000:13:00:00 +0000"))),
            Refused("line 101: it is in the format nginx main"),
        ),
        (
            "JSON in a log of text",
            hundred("{\"t_ms\": 1}"),
            Refused("line 101: it is JSON, and the lines before are in nginx combined"),
        ),
        (
            "text in JSON",
            lines(&[one(), nginx("10/Oct/2000:13:00:00 +0000")]),
            Refused("line 2: it is not JSON"),
        ),
        (
            "IPv6, mapped and with a zone",
            lines(&["::ffff:192.0.2.1", "[2001:db8::1]:443", "fe80::1%eth0", "2001:DB8::1"].map(|client| {
                format!("{{\"t_ms\": 1, \"client\": \"{client}\", \"host\": \"h\", \"duration_ms\": 1}}")
            })),
            Times(&[1, 1, 1, 1]),
        ),
        ("missing fields", b"{\"t_ms\": 4}".to_vec(), Said(&[4], "warning: no request has a host")),
        ("no time", b"{\"path\": \"/\"}".to_vec(), Refused("line 1: there is no t_ms")),
        (
            "a repeated field",
            b"{\"t_ms\": 1, \"path\": \"/a\", \"t_ms\": 2}".to_vec(),
            Refused("line 1: it is not JSON, at column 32: the field \"t_ms\" comes twice"),
        ),
        (
            "a repeated header",
            b"{\"t_ms\": 1, \"headers\": {\"a\": \"1\", \"a\": \"2\"}}".to_vec(),
            Refused("the field \"a\" comes twice"),
        ),
        (
            "JSON that is not UTF-8",
            b"{\"t_ms\": 1, \"path\": \"/\xff\"}".to_vec(),
            Refused("line 1: it is not JSON"),
        ),
        (
            "a log that is not UTF-8",
            nginx("10/Oct/2000:13:55:36 +0000").replace("GET /", "GET /\u{e9}").into_bytes(),
            Times(&[971_186_136_000]),
        ),
        (
            "a log in Latin-1",
            nginx("10/Oct/2000:13:55:36 +0000")
                .bytes()
                .map(|byte| if byte == b'7' { 0xe9 } else { byte })
                .collect(),
            Said(&[971_186_136_000], "(line 1: \"192.0.2.\\xe9\")"),
        ),
        ("nothing", Vec::new(), Refused("no request in it: it is empty")),
        ("blank lines only", b"\n\n".to_vec(), Refused("no request in it: it is empty")),
        (
            "no request",
            hundred("")
                .into_iter()
                .take(0)
                .chain(nginx("10/Oct/2000:13:55:36 +0000").replace("GET / HTTP/1.1", "-").into_bytes())
                .collect(),
            Refused("no request in it: skipped 1 line: the connection ended before a request"),
        ),
        (
            "nanoseconds as milliseconds",
            lines(&[json(1_700_000_000_123_456_789)]),
            Refused(
                "line 1: t_ms is 1700000000123456789, which is after the year 9999 in ms: is it in a smaller unit?",
            ),
        ),
        (
            "microseconds as milliseconds",
            lines(&[json(1_700_000_000_123_456)]),
            Refused("is it in a smaller unit?"),
        ),
        (
            "a duration in nanoseconds",
            one().replace("\"duration_ms\": 1", "\"duration_ms\": 9000000000000000000").into_bytes(),
            Refused("duration_ms is 9000000000000000000, which is after the year 9999"),
        ),
        (
            "a negative time",
            b"{\"t_ms\": -5}".to_vec(),
            Refused("t_ms is -5, allowed: a number that is not negative"),
        ),
        ("a time as text", b"{\"t_ms\": \"now\"}".to_vec(), Refused("t_ms is \"now\", allowed: a number")),
        ("parts of a millisecond", b"{\"t_ms\": 1.9}".to_vec(), Times(&[1])),
        (
            "a misspelt key",
            b"{\"t_ms\": 1, \"cleint\": \"192.0.2.1\"}".to_vec(),
            Refused(
                "line 1: found the unknown field \"cleint\", allowed: t_ms, duration_ms, method, path, host, client, headers, attributes, body (did you mean \"client\"?)",
            ),
        ),
        (
            "the JSON of another log",
            b"{\"stamp\": 1, \"path\": \"/\"}".to_vec(),
            Refused(
                "line 1: found the unknown field \"stamp\", allowed: t_ms, duration_ms, method, path, host, client, headers, attributes, body; or the names of another log, with --map",
            ),
        ),
        (
            "a misspelt key in line 2",
            lines(&[one(), String::from("{\"t_ms\": 1, \"Path\": \"/\"}")]),
            Refused("line 2: found the unknown field \"Path\""),
        ),
        (
            "a path that is none",
            b"{\"t_ms\": 1, \"path\": 2}".to_vec(),
            Refused("path is 2, allowed: a string"),
        ),
        (
            "headers that are none",
            b"{\"t_ms\": 1, \"headers\": []}".to_vec(),
            Refused("headers is [], allowed: an object"),
        ),
        (
            "a list of lists",
            b"{\"t_ms\": 1, \"headers\": {\"a\": [[1]]}}".to_vec(),
            Refused("the header a is [[1]], allowed"),
        ),
        ("nesting", [b"{\"t_ms\": 1, \"body\": ".to_vec(), vec![b'['; 100_000]].concat(), Refused("")),
        (
            "a line of two megabytes",
            lines(&[one(), format!("{{\"t_ms\": 1, \"path\": \"/{}\"}}", "a".repeat(2 << 20))]),
            Refused("it is longer than 1048576 bytes"),
        ),
        (
            "a host name as the client",
            lines(&[one().replace("192.0.2.1", "gateway.example"), one()]),
            Said(
                &[1, 1],
                "warning: 1 requests have no client address that can be read (line 1: \"gateway.example\")",
            ),
        ),
        ("a TLS handshake in JSON", b"{\"t_ms\": 1, \"method\": \"\\u0016\\u0003\"}".to_vec(), Times(&[1])),
    ];
    let config = config(&[policy("p", "")]);
    for (row, trace, wanted) in rows {
        let (status, out, said) = fed(&[config.path(), "-", "--json"], &trace);
        assert!(!said.contains("panicked") && !said.contains('\u{1b}'), "{row}: {said}");
        let (times, part) = match wanted {
            Times(times) => (Some(times), "format: "),
            Said(times, part) => (Some(times), part),
            Refused(part) => (None, part),
        };
        assert!(said.contains(part), "{row}: {part}\n{said}");
        assert_eq!(status, if times.is_some() { 0 } else { 2 }, "{row}: {said}");
        let Some(times) = times else { continue };
        let found: Vec<_> =
            decisions(&out).iter().map(|line| line["t_ms"].as_u64().expect("a time")).collect();
        if times.is_empty() {
            assert_eq!(found.len(), 200, "{row}");
        } else {
            assert_eq!(found, times, "{row}");
        }
        // A row that warns of nothing has clients that can be read.
        if matches!(wanted, Times(_)) {
            assert!(!said.contains("client address"), "{row}: {said}");
        }
    }
}

#[test]
fn a_directory_and_a_missing_file() {
    let config = File::new("config.json", CONFIG);
    let folder = std::env::temp_dir();
    for (path, said) in [
        (folder.to_str().expect("UTF-8"), "it is a directory, allowed: a file, or - for the standard input"),
        ("/no/such/trace", "/no/such/trace: No such file"),
    ] {
        let (status, out, failure) = replay(&[config.path(), path]);
        assert!(status == 2 && out.is_empty() && failure.contains(said), "{failure}");
    }
}

/// A hundred thousand lines of which `head` reads two.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (config, trace) =
        (File::new("config.json", CONFIG), (0..100_000).map(|at| json(at) + "\n").collect::<String>());
    let trace = File::new("long.jsonl", trace);
    let mut weir = command(&["replay", "--json", config.path(), trace.path()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    let mut lines = BufReader::new(weir.stdout.take().expect("its output")).lines();
    assert!(lines.by_ref().take(2).all(|line| line.is_ok_and(|line| line.starts_with("{\"line\":"))));
    drop(lines);
    let output = weir.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("ipe") && !said.contains("panicked"), "{said}");
}

/// A million lines about a million clients, in no order: the memory is that of a part of them, and what is out of order is said.
#[test]
fn a_million_lines_of_a_million_clients_take_bounded_memory() {
    let config = config(&[policy("p", "").replace("1000000", "1").replace("1d", "1m")]);
    let mut log = Vec::with_capacity(130 << 20);
    for number in 0..1_000_000_u64 {
        // In steps of a prime, so that no two neighbours are in order.
        let at = number * 7_919 % 1_000_000;
        let (second, millis) = (at / 100, at % 100 * 10);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let client = format!(
            "{}.{}.{}.{}",
            11 + number / 16_777_216,
            number >> 16 & 255,
            number >> 8 & 255,
            number & 255
        );
        log.extend_from_slice(
            format!(
                "[2026-01-01T{hour:02}:{minute:02}:{second:02}.{millis:03}Z] \"GET / HTTP/1.1\" 200 - 0 0 5 1 \"{client}\" \"curl/8\" \"-\" \"h\" \"-\"\n"
            )
            .as_bytes(),
        );
    }
    let trace = File::new("million.log", &log);
    let mut weir = command(&["replay", config.path(), trace.path()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    // The kernel keeps the peak as long as the process lives.
    let (status, mut peak) = (format!("/proc/{}/status", weir.id()), 0);
    while weir.try_wait().expect("a process").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak =
            line.map_or(peak, |line| line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = weir.wait_with_output().expect("its output");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(out.starts_with("1000000 requests, 0 of them"), "{out}");
    assert!(out.contains("p       enforce   1000000   1000000\n"), "{out}");
    let (_, said) = said.split_once("weir: warning: ").expect("a warning");
    let (count, said) = said.split_once(" lines could not be put in order, the first is line ").expect(said);
    let (first, _) = said.split_once(": they are too far behind later lines").expect(said);
    let (count, first): (u64, u64) = (count.parse().expect(count), first.parse().expect(first));
    assert!(count > 300_000 && (200_000..300_000).contains(&first), "{count} {first}");
    assert!((1 << 10..64 << 10).contains(&peak), "{peak} kB, and the log has {} kB", log.len() >> 10);
}
