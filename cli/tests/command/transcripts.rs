// SPDX-License-Identifier: Apache-2.0
//! Text files with commands and what they print, in `cli/tests/command/transcripts/`. `WEIR_UPDATE=1` writes what they print now.
//!
//! A command begins with `  $ `, and continues with `  > `. Below it is what it prints, with `2> ` before each line of standard error,
//! and its status (`[1]`) unless that is 0. Lines that are not indented are for the reader. `[..]` stands for any characters.
//!
//! `bash` runs all commands of a file in one folder, which is empty at first. `$ROOT` is this repository. In the folder `redis`, each file
//! has a Redis, `$WEIR_REDIS`.

use std::fs;
use std::path::Path;
use std::process::Command;

use snapbox::assert::Action;
use snapbox::{Assert, Data};

use crate::support::redis::{self, Redis};
use crate::support::{TempFolder, root};

macro_rules! folders {
    ($($name:ident),*) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}

folders!(arguments, check, explain, generate, redis, replay);

/// Runs the transcripts of a folder.
fn run(folder: &str) {
    let has_redis = folder == "redis";
    if has_redis
        && (redis::binary().is_none() || Command::new("redis-cli").arg("--version").output().is_err())
    {
        return crate::support::not_tested("no redis-server or no redis-cli here");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/transcripts").join(folder);
    let action = if std::env::var_os("WEIR_UPDATE").is_some() { Action::Overwrite } else { Action::Verify };
    let mut failures = Vec::new();
    for file in fs::read_dir(folder).expect("a folder") {
        let file = file.expect("an entry").path();
        let found = Data::text(found(&fs::read_to_string(&file).expect("a transcript"), has_redis));
        let assert = Assert::new().action(action).normalize_paths(false);
        failures.extend(assert.try_eq(Some(&"now"), found, Data::read_from(&file, None)).err());
    }
    let failures: String = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{failures}\nWEIR_UPDATE=1 writes what the commands print now");
}

/// The transcript with what its commands print now.
fn found(transcript: &str, has_redis: bool) -> String {
    // Paragraphs for the reader, and commands. The earlier output is left out.
    let mut parts: Vec<String> = Vec::new();
    let mut after_blank = true;
    for line in transcript.lines() {
        let continues = match parts.last() {
            Some(part) if part.starts_with("  $ ") => line.starts_with("  >"),
            Some(_) => !after_blank && !line.starts_with(' '),
            None => false,
        };
        match parts.last_mut() {
            _ if line.is_empty() => {}
            Some(part) if continues => *part += &format!("{line}\n"),
            _ if line.starts_with("  $ ") || !line.starts_with(' ') => parts.push(format!("{line}\n")),
            _ => {}
        }
        after_blank = line.is_empty();
    }

    let folder = TempFolder::new("transcript");
    let (files, outputs) = (folder.path().join("files"), folder.path().join("outputs"));
    for path in [&files, &outputs] {
        fs::create_dir(path).expect("a folder");
    }
    let script =
        parts.iter().enumerate().filter(|(_, part)| part.starts_with("  $ ")).map(|(number, part)| {
            let lines: Vec<&str> = part.lines().map(|line| line.get(4..).unwrap_or_default()).collect();
            let (command, output) = (lines.join("\n"), outputs.join(number.to_string()));
            format!("{{ {command}\n}} >{0}.out 2>{0}.err </dev/null; echo $? >{0}.status\n", output.display())
        });
    let redis = has_redis.then(Redis::start).flatten();
    let address = redis.as_ref().map(|redis| redis.address().to_string()).unwrap_or_default();
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().expect("a folder").display();
    let status = Command::new("bash")
        .args(["-c", &script.collect::<String>()])
        .current_dir(&files)
        .env_clear()
        .env("PATH", format!("{weir}:{}", std::env::var("PATH").expect("a path")))
        .envs(redis.iter().map(|_| ("WEIR_REDIS", format!("redis://{address}"))))
        .envs([("LC_ALL", "C.UTF-8"), ("ROOT", root().to_str().expect("UTF-8"))])
        .status();
    assert!(status.expect("bash").success(), "bash cannot read {transcript}");

    let mut text = String::new();
    for (number, part) in parts.iter().enumerate() {
        let is_command = part.starts_with("  $ ");
        text += if is_command || number == 0 { "" } else { "\n" };
        text += part;
        if is_command {
            let read = |end: &str| {
                let text = fs::read(outputs.join(format!("{number}.{end}"))).expect("an output");
                let text = String::from_utf8(text).expect("UTF-8");
                let text = text
                    .replace(&files.display().to_string(), "$PWD")
                    .replace(&root().display().to_string(), "$ROOT");
                if has_redis { text.replace(&address, "$ADDRESS") } else { text }
            };
            let status = read("status");
            let status = if status == "0\n" { String::new() } else { format!("[{}]", status.trim()) };
            for (before, lines) in [("  ", read("out")), ("  2> ", read("err")), ("  ", status)] {
                text.extend(lines.lines().map(|line| format!("{before}{line}").trim_end().to_owned() + "\n"));
            }
        }
    }
    text
}
