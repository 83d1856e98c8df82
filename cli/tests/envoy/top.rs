// SPDX-License-Identifier: Apache-2.0
//! `weir top` in a terminal, with a real Envoy and a real Redis.

use std::process::Command;

use crate::support::eventually;
use crate::support::http::Request;
use crate::support::weir::{PATIENT, World, get};
use crate::terminal::Terminal;
use serde_json::Value;

pub const TESTS: [(&str, fn()); 5] = [
    (
        "top: rates, hot subjects and failures are shown, and keys do what the help says",
        what_happens_is_shown,
    ),
    ("top: the terminal is as it was after quitting, a signal and a panic", the_terminal_is_restored),
    ("top: what does not answer is said, and keys work meanwhile", what_does_not_answer_is_said),
    ("top: programs get lines of JSON", programs_get_lines),
    ("top: bad arguments are refused", bad_arguments_are_refused),
];

/// Two requests for each user, and a journal.
fn limited() -> World {
    let policy = r#"{"name": "few", "subject": [{"header": {"name": "x-user"}}],
        "limits": [{"name": "daily", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2}]}"#;
    World::start(&format!(r#"{{{PATIENT}, "journal": {{}}, "policies": [{policy}]}}"#))
}

fn as_user(user: &str) -> Request {
    get().header("x-user", user)
}

fn url(world: &World) -> String {
    format!("redis://{}", world.redis.address())
}

fn words(world: &World) -> Vec<String> {
    let admin = world.envoy().admin_address().to_string();
    ["top", "--admin", &admin, "--interval", "300ms"].map(str::to_owned).into()
}

fn top(world: &World, size: (u16, u16), variables: &[(&str, &str)]) -> Terminal {
    let words = words(world);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Terminal::run_with(&words, &url(world), size, variables)
}

fn what_happens_is_shown() {
    let mut world = limited();
    let mut terminal = top(&world, (24, 80), &[]);
    terminal.shows("weir top  1 of 1 Envoys answer");
    terminal.shows("the journal has no denials");
    assert!(terminal.is_alternate() && terminal.hides_cursor());
    let statuses = world.burst(12, &as_user("ann"));
    assert_eq!(statuses.0, [(200, 2), (429, 10)]);
    world.burst(5, &as_user("bob"));
    terminal.shows("{few|ann}");
    terminal.shows("hot subjects, of the last 13 denials");
    let hot = terminal.text();
    let line =
        |text: &str, of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_default().to_owned();
    let ann: Vec<String> = line(&hot, "{few|ann}").split_whitespace().map(str::to_owned).collect();
    assert_eq!(
        (ann[0].as_str(), ann[1].as_str(), ann.last().map(String::as_str)),
        ("10", "76", Some("daily")),
        "{hot}"
    );
    // Denials show in the rate of an interval in which there are some.
    eventually("a rate of rejections", || {
        world.burst(6, &as_user("ann"));
        let text = terminal.text();
        let totals = line(&text, "/s rejected");
        (!totals.is_empty() && !totals.contains("0.0/s rejected") && !totals.contains("-/s rejected"))
            .then_some(())
    });
    // A filter, and back.
    terminal.types("/BOB");
    terminal.shows("/BOB█");
    terminal.types("\r");
    terminal.shows("only \"BOB\"");
    let text = terminal.text();
    assert!(text.contains("{few|bob}") && !text.contains("{few|ann}"), "{text}");
    terminal.types("s");
    terminal.shows("policies by requests");
    terminal.types("?");
    terminal.shows("pause, and go on");
    terminal.types("x");
    // Paused, nothing new is shown.
    terminal.types("p");
    terminal.shows("paused");
    let other = top(&world, (24, 80), &[]);
    // The journal may have its entries of this second already, and drops further ones.
    eventually("bobby in the journal", || {
        world.burst(3, &as_user("bobby"));
        other.text().contains("{few|bobby}").then_some(())
    });
    drop(other);
    assert!(!terminal.text().contains("{few|bobby}"));
    terminal.types(" ");
    terminal.shows("{few|bobby}");
    // Another size.
    terminal.resize(30, 120);
    terminal.shows("{few|bobby}");
    // A store that fails.
    world.redis.stop();
    terminal.shows("Connection refused");
    terminal.shows("Redis does not answer");
    eventually("a failure of the store", || {
        world.burst(2, &as_user("eve"));
        let text = terminal.text();
        let failures = text.lines().skip_while(|line| !line.starts_with("failures─")).nth(1)?.to_owned();
        (failures.contains(" ago)") || failures.contains("(now)")).then_some(())
    });
    terminal.shows("breakers open");
    terminal.types("\u{1b}");
    terminal.types("q");
    assert_eq!(terminal.ends(), 0);
}

fn the_terminal_is_restored() {
    let world = limited();
    let restored = |terminal: &Terminal, how: &str| {
        eventually("the terminal to be restored", || (!terminal.is_alternate()).then_some(()));
        assert!(!terminal.hides_cursor(), "{how}");
    };
    for key in ["q", "\u{3}"] {
        let mut terminal = top(&world, (24, 80), &[]);
        terminal.shows("1 of 1 Envoys answer");
        terminal.types(key);
        assert_eq!(terminal.ends(), 0);
        restored(&terminal, key);
    }
    for signal in ["-TERM", "-HUP", "-INT"] {
        let mut terminal = top(&world, (24, 80), &[]);
        terminal.shows("1 of 1 Envoys answer");
        assert!(crate::support::signal(signal, terminal.pid()));
        assert_eq!(terminal.ends(), 0, "{signal}");
        restored(&terminal, signal);
    }
    let mut terminal = top(&world, (24, 80), &[("WEIR_TOP_PANICS", "1")]);
    assert_ne!(terminal.ends(), 0);
    restored(&terminal, "a panic");
    terminal.shows("WEIR_TOP_PANICS is set");
}

fn what_does_not_answer_is_said() {
    let world = limited();
    let nobody = crate::support::redis::free_address().to_string();
    let admin = world.envoy().admin_address().to_string();
    let words = ["top", "--admin", &nobody, "--admin", &admin, "--interval", "300ms", "--timeout", "500ms"];
    let mut terminal = Terminal::run(&words, &url(&world), (24, 120));
    terminal.shows("1 of 2 Envoys answer: 127.0.0.1:");
    world.redis.freeze();
    terminal.shows("no answer within 500 ms");
    terminal.types("/key");
    terminal.shows("/key█");
    world.redis.thaw();
    terminal.types("\u{1b}");
    terminal.shows("the journal has no denials");
    terminal.types("q");
    assert_eq!(terminal.ends(), 0);
    // Something else than an Envoy.
    let upstream = world.upstream.address().to_string();
    let mut terminal = Terminal::run(&["top", "--admin", &upstream, "--interval", "300ms"], "", (24, 120));
    terminal.shows("0 of 1 Envoys answer: 127.0.0.1:");
    terminal.shows("write --redis URL to see which subjects are denied most");
    terminal.types("q");
    assert_eq!(terminal.ends(), 0);
}

fn programs_get_lines() {
    let world = limited();
    world.burst(5, &as_user("ann"));
    let words = [words(&world), ["--json", "--count", "2"].map(str::to_owned).into()].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(&words)
        .env("WEIR_REDIS", url(&world))
        .output()
        .expect("weir runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    let line = &lines[1];
    assert_eq!(
        (&line["envoys"], &line["silent"], &line["breaker_open"]),
        (&1.into(), &Value::Array(Vec::new()), &0.into())
    );
    assert!(line["admitted_per_s"].is_number(), "{line}");
    assert_eq!(
        (&line["redis"]["denials"], &line["redis"]["hot"][0]["subject"]),
        (&3.into(), &"{few|ann}".into())
    );
}

fn bad_arguments_are_refused() {
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).output().expect("weir runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let rows: [(&str, &[&str], &str); 5] = [
        ("no terminal", &["top"], "the view needs a terminal: elsewhere, write --json"),
        ("no port", &["top", "--admin", "localhost"], "allowed is host:port, such as 127.0.0.1:9901"),
        ("a path", &["top", "--admin", "http://localhost:9901/stats"], "allowed is host:port"),
        ("no interval", &["top", "--interval", "0s"], "allowed is 100ms to 60s"),
        ("a count of screens", &["top", "--count", "3"], "--json"),
    ];
    for (row, words, wanted) in rows {
        let (status, failure) = run(words);
        assert!(status == Some(2) && failure.contains(wanted), "{row}: {failure}");
    }
}
