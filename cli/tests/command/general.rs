// SPDX-License-Identifier: Apache-2.0
//! The native command: run as an operator runs it, judged by what it prints and by its exit status.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::command::{CONFIG, File, command, weir};
use crate::support::redis::Redis;
use crate::support::root;
use serde_json::Value;

/// Names of files, arguments, and what files say: no output gives a terminal commands, and none repeats the login of a URL.
#[test]
fn output_gives_no_commands_and_repeats_no_login() {
    const BAD: &str = "a\u{1b}[2J\u{9b}2J\u{202e}\n.yaml";
    let url = "redis://ann:PASS WORD@h";
    let named =
        File::new(BAD, "policies:\n- name: \"a\\e\u{9b}b\"\n  url: redis://ann:PASSWORD@h # \u{9b}2J\n");
    let right = File::new(&BAD.replace(".yaml", ".json"), CONFIG);
    let mut rows: Vec<Vec<&str>> = vec![
        vec!["journal", url],
        vec!["journal", "--redis", url, "--count", url],
        vec!["journal", "--redis", "http://ann:PASSWORD@h"],
        vec!["hot", BAD],
        vec!["inspect", named.path(), "--redis", url],
        vec!["inspect", named.path(), "--login-file", BAD, "--redis", "redis://127.0.0.1:1"],
        vec!["import", "nginx", BAD],
        vec!["import", "ingress", BAD],
        vec!["import", "ratelimit", BAD],
        vec!["man", "/dev/null/\u{9b}"],
        vec!["render", right.path(), "--for", "envoy", "--files", "/dev/null/\u{9b}"],
        vec!["render", right.path(), "--for", "envoy", "--redis", "redis://ann:PASSWORD@h"],
        vec!["render", right.path(), "--for", "envoy", "--listen", BAD],
        vec!["replay", right.path(), BAD],
        vec!["replay", right.path(), BAD, "--map", BAD],
        vec!["explain", right.path(), "--header", BAD],
        vec![BAD],
    ];
    for file in [BAD, url, named.path(), right.path()] {
        rows.push(vec!["explain", file]);
        for format in ["text", "excerpts", "json", "sarif", "github"] {
            rows.push(vec!["check", file, "--format", format]);
        }
    }
    for arguments in rows {
        let (status, out, error) = weir(&arguments);
        let said = out + &error;
        assert!(!said.is_empty() || status == 0, "{arguments:?}");
        let obeyed = |next: char| (next.is_control() && next != '\n') || next == '\u{202e}';
        assert!(!said.contains(obeyed), "{arguments:?}: {said:?}");
        assert!(!said.contains("PASS") && !said.contains("WORD@"), "{arguments:?}: {said}");
    }
}

/// Names of files become text in one place, and standard error has one way to it.
#[test]
fn names_and_errors_have_one_way_out() {
    let mut folders = vec![root().join("cli/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a file");
            let name = path.file_name().and_then(std::ffi::OsStr::to_str).expect("UTF-8");
            assert!(
                name == "words.rs" || !text.contains(".display()"),
                "{}: use words::file",
                path.display()
            );
            assert!(!text.contains("eprintln!"), "{}: use tell", path.display());
        }
    }
}

fn decisions(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Each code of a warning has a section in docs/command.md, and is in a transcript.
#[test]
fn each_code_is_documented_and_tested() {
    let (_, _, error) = weir(&["check", "--allow", "no-such-code", "x"]);
    let (_, codes) = error.split_once("[possible values: ").expect("the codes");
    let codes: BTreeSet<&str> = codes.split_once(']').expect("their end").0.split(", ").collect();
    let page = include_str!("../../../docs/command.md");
    let sections = page.lines().filter_map(|line| line.strip_prefix("#### `")?.strip_suffix('`'));
    assert_eq!(codes, sections.collect::<BTreeSet<_>>(), "docs/command.md");
    let read = |name| {
        std::fs::read_to_string(root().join(format!("cli/tests/command/transcripts/check/{name}.txt")))
    };
    let transcripts =
        ["against", "envoy", "files", "policies"].map(|name| read(name).expect("a transcript")).concat();
    // A measurement is tested where it can be replaced, in cli/src/check/regexes.rs.
    let is_tested = |code: &&str| *code == "slow-regex" || transcripts.contains(&format!(" [{code}]\n"));
    assert_eq!(codes.iter().find(|code| !is_tested(code)), None, "no transcript has this code");
}

#[test]
fn the_journal_is_followed_until_nobody_reads() {
    let Some(redis) = Redis::start() else { return crate::support::not_tested("no redis-server here") };
    redis.connect().say("XADD weir:{journal} 1-0 subject {p|ann-1}");
    let url = format!("redis://{}", redis.address());
    for prefix in ["weir", "empty"] {
        let mut weir = command(&["journal", "--follow", "--json", "--prefix", prefix, "--redis", &url])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir runs");
        let mut lines = BufReader::new(weir.stdout.take().expect("its output")).lines();
        let mut next =
            || decisions(&lines.next().expect("a line").expect("text")).remove(0)["subject"].clone();
        let (key, mut operator) = (format!("{prefix}:{{journal}}"), redis.connect());
        let mut add =
            |subject: &str| operator.call(&[b"XADD", key.as_bytes(), b"*", b"subject", subject.as_bytes()]);
        if prefix == "weir" {
            assert_eq!(next(), "{p|ann-1}");
        }
        // Each is printed as soon as it is there.
        for subject in ["one", "two", "three"] {
            add(subject);
            assert_eq!(next(), subject);
        }
        drop(lines);
        // It notices at its next line. While another test starts a process, that process may hold the other end of the pipe for a moment.
        while weir.try_wait().expect("a process").is_none() {
            add("four");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let output = weir.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
}
