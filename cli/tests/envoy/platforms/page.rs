// SPDX-License-Identifier: Apache-2.0
//! `docs/start.md`: its commands do what the page says.
//!
//! - *Plain Envoy*: bash runs the commands of the page, from the files of a release to the end, and prints what the page shows. Ports
//!   and the deadline are others.
//! - *Istio* and *Envoy Gateway*: `weir` runs with the arguments of the page, and an Envoy starts on what it renders. There is no
//!   Kubernetes here: of the other commands, files and names are checked.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_cli::envoys_reading;

use super::stored::Stored;
use super::{documents, gateway, istio, limits, of_kind};
use crate::support::envoy::binary;
use crate::support::weir::plugin;
use crate::support::{PATIENCE, TempFolder, redis};

pub const TESTS: &[(&str, fn())] = &[
    (PLAIN, plain),
    ("page: what Envoy says of a plugin that it cannot load", messages),
    ("page: Istio", || in_kubernetes("Istio", "0.0.0.0_8080", istio::apply)),
    ("page: Envoy Gateway", || {
        in_kubernetes("Envoy Gateway", "default/eg/http", |stored, text| {
            gateway::apply(stored, text, "default/eg/http")
        });
    }),
];

const PLAIN: &str = "page: plain Envoy, as a reader types it";
const PAGE: &str = include_str!("../../../../docs/start.md");

/// The cases that cannot run here, with the reason.
pub fn ignored() -> Vec<(&'static str, &'static str)> {
    let lacks = |program: &str| {
        let tried =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_err()
    };
    let missing =
        [("curl", "there is no curl"), ("python3", "there is no python3"), ("bash", "there is no bash")];
    missing
        .into_iter()
        .find(|(program, _)| lacks(program))
        .map(|(_, reason)| (PLAIN, reason))
        .into_iter()
        .collect()
}

/// A block of the page.
struct Block {
    /// The heading above it.
    section: &'static str,
    /// The name of the file that the reader writes it to.
    file: Option<&'static str>,
    mark: &'static str,
    text: String,
}

fn blocks() -> Vec<Block> {
    let (mut blocks, mut section, mut file) = (Vec::<Block>::new(), "", None);
    let mut open = false;
    for line in PAGE.lines() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(mark) => {
                open = true;
                blocks.push(Block { section, file: file.take(), mark, text: String::new() });
            }
            None if open => {
                let block = blocks.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {
                section = line.strip_prefix("## ").or(line.strip_prefix("### ")).unwrap_or(section);
                if let Some(name) =
                    line.strip_prefix("<!-- file: ").and_then(|rest| rest.strip_suffix(" -->"))
                {
                    file = Some(name);
                }
            }
        }
    }
    blocks
}

/// Writes the files of these sections into the folder, and makes these changes to `weir.yaml`.
fn write_files(folder: &Path, sections: &[&str], changes: &[(&str, &str)]) {
    let mut written = Vec::new();
    for block in blocks().iter().filter(|block| sections.contains(&block.section)) {
        let Some(name) = block.file else { continue };
        let text = if name == "weir.yaml" { changed(&block.text, changes) } else { block.text.clone() };
        fs::write(folder.join(name), text).expect("a file");
        written.push(name);
    }
    assert!(written.contains(&"weir.yaml"), "{written:?}");
}

/// The text with each of these changes; one that changes nothing is not what it says.
fn changed(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not in:\n{text}");
        text.replace(from, to)
    })
}

/// Programs under the names that the page calls them by.
fn programs(folder: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    symlink(binary().expect("an Envoy"), bin.join("envoy")).expect("a link");
    symlink(redis::binary().expect("a redis-server"), bin.join("redis-server")).expect("a link");
    bin
}

/// A shell with all that it has started, killed when dropped.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        crate::support::signal("-9", format!("-{}", self.0.id()));
        let _ = self.0.wait();
    }
}

const READY: &[&str] = &["Get the files", "Write a limit", "Plain Envoy"];

fn plain() {
    let folder = TempFolder::new("page");
    let path = folder.path();
    let bin = programs(path);
    // The files of a release, as `make dist` names them.
    fs::copy(plugin(), path.join("weir.wasm")).expect("a copy");
    fs::copy(env!("CARGO_BIN_EXE_weir"), path.join("weir-linux-x86_64")).expect("a copy");
    let ports: Vec<_> = (0..4).map(|_| redis::free_address().port().to_string()).collect();
    // A busy machine decides nothing.
    write_files(path, READY, &[("deadline: 50ms", "deadline: 10s")]);

    let mut script = String::from(
        "set -euo pipefail\nsha256sum weir.wasm weir-linux-x86_64 >SHA256SUMS\nmkdir -p other\n: >other/file\n\
         sha256sum other/file | sed 's,other/file,not-here,' >>SHA256SUMS\n",
    );
    let all = blocks();
    let mut expected = Vec::new();
    for (place, block) in all.iter().enumerate() {
        if !READY.contains(&block.section) || block.mark != "sh" || block.text.starts_with("make ") {
            continue;
        }
        let shown = all.get(place + 1).filter(|next| next.mark == "text" && next.section == block.section);
        expected.push((block.text.clone(), shown.map(|shown| shown.text.clone())));
        script.push_str(&block.text);
        script.push_str("echo @@\n");
    }
    // The port of the admin interface is no option of `weir render`.
    script = script.replace(
        ">envoy.yaml\n",
        &format!(">envoy.yaml\nsed -i 's/port_value: 9901/port_value: {}/' envoy.yaml\n", ports[3]),
    );
    for (from, to) in [
        ("6379", &ports[0]),
        ("8080", &ports[1]),
        ("127.0.0.1:10000", &format!("127.0.0.1:{}", ports[2])),
        ("127.0.0.1:9901", &format!("127.0.0.1:{}", ports[3])),
    ] {
        assert!(script.contains(from), "{from}");
        script = script.replace(from, to);
    }
    fs::write(path.join("script"), script).expect("a script");
    let (out, error) = (path.join("out"), path.join("error"));
    let search = std::env::var("PATH").unwrap_or_default();
    let home = path.join("home");
    let shell = Command::new("bash")
        .arg("script")
        .current_dir(path)
        .env("HOME", &home)
        .env("PATH", format!("{}:{}:{search}", home.join(".local/bin").display(), bin.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).expect("a file"))
        .stderr(fs::File::create(&error).expect("a file"))
        .process_group(0)
        .spawn()
        .expect("bash runs");
    let mut shell = Shell(shell);
    let read = |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
    // Several Envoys start, one after the other.
    let deadline = Instant::now() + PATIENCE * 6;
    let status = loop {
        match shell.0.try_wait().expect("a shell") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let (printed, error) = (read(&out), read(&error));
    // All but the list of what this Envoy has.
    let log = read(&path.join("envoy.log"));
    let log: Vec<&str> =
        log.lines().filter(|line| !line.contains("][main] [source/server/server.cc")).collect();
    assert!(
        status.is_some_and(|status| status.success()),
        "{status:?}\n{printed}\n{error}\n{}",
        log.join("\n")
    );
    let printed: Vec<&str> = printed.split("@@\n").collect();
    assert_eq!(printed.len(), expected.len() + 1, "{printed:?}");
    let mut shown = 0;
    for ((command, expected), printed) in expected.iter().zip(printed) {
        let Some(expected) = expected else { continue };
        shown += 1;
        assert_eq!(told(printed), told(expected), "{command}\n{error}");
    }
    assert!(shown >= 6, "{shown} outputs");
}

/// The lines that are the same in each run: no times, no commit and no spaces around.
fn told(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut line = line.trim().to_owned();
        for before in ["retry-after: ", ";t="] {
            if let Some((head, rest)) = line.clone().split_once(before) {
                let time: u64 = rest.parse().expect("a time");
                assert!((1..=60).contains(&time), "{line}");
                line = format!("{head}{before}TIME");
            }
        }
        match (line.find(" ("), line.find("): ")) {
            (Some(begin), Some(end)) if line.starts_with("weir ") => {
                line.replace_range(begin..=end, "");
                line
            }
            _ => line,
        }
    };
    text.lines().map(line).collect()
}

/// The messages in the table *If it does not work*.
fn messages() {
    let stored = Stored::start("redis");
    let folder = stored.folder.path();
    write_files(folder, READY, &[]);
    let not_wasm = folder.join("weir.wasm");
    fs::write(&not_wasm, "no plugin").expect("a file");
    let rows = [
        (
            "burst: 5",
            folder.join("nothing/weir.wasm"),
            format!("Invalid path: {}", folder.join("nothing/weir.wasm").display()),
        ),
        ("burst: 5", not_wasm, String::from("Unable to create Wasm plugin weir.bridge")),
        ("burts: 5", plugin(), String::from("Unable to create Wasm plugin weir.limiter")),
    ];
    for (burst, code, message) in rows {
        let row = message.split(": ").next().expect("a message");
        assert!(PAGE.contains(&format!("| `{row}")), "{row} is not on the page");
        let file = folder.join("weir.yaml");
        let (status, out, error) = super::weir(&[
            "render",
            file.to_str().expect("UTF-8"),
            "--for",
            "envoy",
            "--code",
            code.to_str().expect("UTF-8"),
        ]);
        assert_eq!((status, error.as_str()), (0, ""), "{out}");
        let config = folder.join("envoy.yaml");
        fs::write(&config, changed(&out, &[("burst: 5", burst)])).expect("a file");
        let validated = Command::new(binary().expect("an Envoy"))
            .args(["--mode", "validate", "-c"])
            .arg(&config)
            .output()
            .expect("Envoy runs");
        let said = String::from_utf8_lossy(&validated.stderr);
        assert!(!validated.status.success() && said.contains(&message), "{message}: {said}");
    }
}

/// The words of a command, without what comes after `>`, `|` or `&`.
fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().take_while(|word| !word.starts_with(['>', '|', '&'])).collect()
}

fn in_kubernetes(section: &str, listener: &str, apply: impl Fn(&Stored, &str) -> Value) {
    let stored = Stored::start("redis");
    let folder = stored.folder.path();
    write_files(
        folder,
        &["Write a limit", section],
        &[("deadline: 50ms", "deadline: 10s"), ("burst: 5", "burst: 3")],
    );
    fs::copy(plugin(), folder.join("weir.wasm")).expect("a copy");
    let all = blocks();
    let commands: Vec<&str> = all
        .iter()
        .filter(|block| block.section == section && block.mark == "sh")
        .flat_map(|block| block.text.lines())
        .collect();

    // The page renders once, as it is and with the store and the plugin of the test.
    let rendered = commands.iter().find(|command| command.starts_with("weir render")).expect("a command");
    let made = rendered.split_once(" >").expect("a file").1;
    let run = |more: &[String]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(&words(rendered)[1..])
            .args(more)
            .current_dir(folder)
            .output()
            .expect("weir runs");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let as_it_is = run(&[]);
    fs::write(folder.join(made), &as_it_is).expect("a file");
    let checked = commands.iter().find(|command| command.starts_with("weir check")).expect("a command");
    assert!(words(checked).contains(&made), "{checked}");
    let checked = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(&words(checked)[1..])
        .current_dir(folder)
        .output()
        .expect("weir runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let with_code = run(&[String::from("--code"), plugin().display().to_string()]);
    let (host, port) = stored.redis_address();
    let text = changed(
        &with_code,
        &[("address: redis.default, port_value: 6379", &format!("address: {host}, port_value: {port}"))],
    );
    limits(&apply(&stored, &text), listener);
    assert!(stored.asked(), "Redis has run no script");

    files_and_names(folder, &commands, &documents(&as_it_is));
}

/// Files that the commands name are there, and resources that they name are those that weir renders.
fn files_and_names(folder: &Path, commands: &[&str], documents: &[Value]) {
    let mut seen = (0, 0);
    for command in commands.iter().filter(|command| command.starts_with("kubectl ")) {
        let words = words(command);
        for pair in words.windows(2) {
            let file = match pair {
                ["-f" | "--patch-file", file] => Some(*file),
                [_, file] => file.strip_prefix("--from-file="),
                _ => None,
            };
            if let Some(file) = file {
                assert!(folder.join(file).is_file(), "{command}: there is no {file}");
                seen.0 += 1;
            }
            let kind = match pair[0] {
                "envoypatchpolicy" => "EnvoyPatchPolicy",
                "envoyproxy" => "EnvoyProxy",
                _ => continue,
            };
            let document = of_kind(documents, kind).unwrap_or_else(|| panic!("{command}: no {kind}"));
            let named = (document["metadata"]["name"].as_str(), document["metadata"]["namespace"].as_str());
            assert_eq!(named, (Some(pair[1]), words.get(2).copied()), "{command}");
            seen.1 += 1;
        }
    }
    assert!(seen.0 >= 3, "{seen:?}");

    // The file is mounted where Envoy looks for it.
    let text = documents.iter().map(Value::to_string).collect::<String>();
    assert!(text.contains("/etc/weir/weir.wasm"), "{text}");
    let read = |name: &str| {
        fs::read_to_string(folder.join(name)).ok().map(|text| envoys_reading(name, &text).expect("YAML"))
    };
    let made = commands
        .iter()
        .filter(|command| command.contains(" create configmap weir-wasm --from-file=weir.wasm"));
    assert_eq!(made.count(), 1);
    if let Some(mount) = read("mount.yaml") {
        let pod = &mount["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][0]["configMap"]["name"], "weir-wasm");
        assert_eq!(pod["containers"][0]["name"], "istio-proxy");
        assert_eq!(pod["volumes"][0]["name"], pod["containers"][0]["volumeMounts"][0]["name"]);
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/weir");
    } else {
        let proxy = of_kind(documents, "EnvoyProxy").expect("an EnvoyProxy");
        let reference =
            read("parameters.yaml").expect("a file")["spec"]["infrastructure"]["parametersRef"].clone();
        assert_eq!((&reference["kind"], &reference["name"]), (&proxy["kind"], &proxy["metadata"]["name"]));
        assert!(
            proxy["apiVersion"]
                .as_str()
                .is_some_and(|api| api.starts_with(reference["group"].as_str().expect("a group")))
        );
        assert!(seen.1 >= 3, "{seen:?}");
    }
}
