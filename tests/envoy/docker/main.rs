// SPDX-License-Identifier: Apache-2.0
//! envoy/compose.yaml as it is shipped, in a Docker engine: the limit holds for one Envoy and for two on one Redis. And the output of `make
//! dist`, if there is any: its compose.yaml needs nothing but the images. `make dist ARGS=try` runs that case. Each case is a compose
//! project of its own, with its own networks and free ports, and is removed when it ends. Reads WEIR_DOCKER (the compose command; empty: no
//! engine, the cases are skipped) and WEIR_PLUGIN.
#![allow(missing_docs)]
#![allow(clippy::disallowed_methods, reason = "waiting for containers takes a clock")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use libtest_mimic::{Arguments, Failed, Trial};

/// The time-out for the start of the containers.
const START: Duration = Duration::from_secs(60);
const LIMIT: usize = 10;
const AT_ONCE: usize = 40;

fn main() -> process::ExitCode {
    let compose = env::var("WEIR_DOCKER").unwrap_or_default();
    if compose.is_empty() {
        eprintln!("skipped: no docker engine (WEIR_DOCKER is empty)");
    }
    let cases = [("one Envoy admits the limit", 1), ("two Envoys on one Redis admit the limit", 2)];
    let absent = compose.is_empty();
    let mut trials: Vec<_> = cases
        .into_iter()
        .map(|(name, envoys)| {
            let compose = compose.clone();
            Trial::test(name, move || limit_holds(&Project::up(&compose, envoys)?, envoys))
                .with_ignored_flag(absent)
        })
        .collect();
    if dist().join("weir-files-oci.tar").exists() {
        let name = "the files of a release need images alone, and a new limit no restart";
        trials.push(Trial::test(name, move || from_images_alone(&compose)).with_ignored_flag(absent));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The folder with the output of `make dist`.
fn dist() -> PathBuf {
    root().join("target/dist")
}

fn from_images_alone(compose: &str) -> Result<(), Failed> {
    let loaded =
        Command::new("docker").arg("load").arg("--input").arg(dist().join("weir-files-oci.tar")).output()?;
    if !loaded.status.success() {
        return Err(String::from_utf8_lossy(&loaded.stderr).into_owned().into());
    }
    let project = Project::released(compose)?;
    limit_holds(&project, 1)?;
    let limiter = fs::read_to_string(&project.config)?;
    fs::write(&project.config, limiter.replace("burst: 10", "burst: 15"))?;
    project.compose(&["run", "--rm", "weir"])?;
    let edge = project.address(1)?;
    let deadline = Instant::now() + START;
    while !answer(edge)?.contains("ratelimit-policy: \"steady\";q=15;") {
        if Instant::now() > deadline {
            return Err(format!("the new limit did not come in {START:?}\n{}", project.logs()).into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn limit_holds(project: &Project, envoys: usize) -> Result<(), Failed> {
    let edges = (1..=envoys).map(|index| project.address(index)).collect::<Result<Vec<_>, _>>()?;
    for edge in &edges {
        project.until_admits(*edge)?;
    }
    // Resets the charges of these attempts.
    project.compose(&["exec", "-T", "redis", "redis-cli", "flushall"])?;

    let start = Barrier::new(AT_ONCE);
    let clients = edges.iter().cycle().take(AT_ONCE).map(|edge| {
        let start = &start;
        move || {
            start.wait();
            status(*edge)
        }
    });
    let statuses: Result<Vec<u16>, Failed> = thread::scope(|scope| {
        let asked: Vec<_> = clients.map(|client| scope.spawn(client)).collect();
        asked
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| Err("a client panicked".into())))
            .collect()
    });
    let statuses = statuses?;

    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    if (count(200), count(429)) == (LIMIT, AT_ONCE - LIMIT) {
        Ok(())
    } else {
        Err(format!("{LIMIT} of {AT_ONCE} should pass and the rest be 429: {statuses:?}\n{}", project.logs())
            .into())
    }
}

/// A running compose project.
struct Project {
    compose: Vec<String>,
    name: String,
    file: PathBuf,
    config: PathBuf,
}

impl Project {
    fn up(compose: &str, envoys: usize) -> Result<Self, Failed> {
        let file = root().join("envoy/compose.yaml");
        let project = Self::new(compose, &envoys.to_string(), file, &root().join("envoy/weir.yaml"))?;
        project.compose(&["up", "--detach", "--scale", &format!("envoy={envoys}")])?;
        Ok(project)
    }

    /// The files of a release.
    fn released(compose: &str) -> Result<Self, Failed> {
        let project = Self::new(compose, "released", dist().join("compose.yaml"), &dist().join("weir.yaml"))?;
        project.compose(&["up", "--detach"])?;
        Ok(project)
    }

    fn new(compose: &str, name: &str, file: PathBuf, shipped: &Path) -> Result<Self, Failed> {
        let name = format!("weir-test-{}-{name}", process::id());
        let config = env::temp_dir().join(format!("{name}.yaml"));
        fs::write(&config, exact(&fs::read_to_string(shipped)?)?)?;
        Ok(Self { compose: compose.split(' ').map(str::to_owned).collect(), name, file, config })
    }

    /// The address of the `index`th Envoy, from 1.
    fn address(&self, index: usize) -> Result<SocketAddr, Failed> {
        let output = self.compose(&["port", &format!("--index={index}"), "envoy", "10000"])?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    /// With `on_failure: deny`, a 200 says that Envoy, the plugin, Redis and the upstream are all there.
    fn until_admits(&self, edge: SocketAddr) -> Result<(), Failed> {
        let deadline = Instant::now() + START;
        loop {
            match status(edge) {
                Ok(200) => return Ok(()),
                last if Instant::now() > deadline => {
                    return Err(
                        format!("not one request admitted in {START:?}: {last:?}\n{}", self.logs()).into()
                    );
                }
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn logs(&self) -> String {
        self.compose(&["logs", "--no-color", "--tail=20"])
            .map_or_else(|_| "no logs".into(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn compose(&self, arguments: &[&str]) -> Result<Output, Failed> {
        let (program, words) = self.compose.split_first().ok_or("no compose command")?;
        let output = Command::new(program)
            .args(words)
            .arg("--file")
            .arg(&self.file)
            .args(arguments)
            .env("COMPOSE_PROJECT_NAME", &self.name)
            .env("WEIR_PORT", "")
            .env("WEIR_CONFIG", &self.config)
            .env("WEIR_PLUGIN", env::var("WEIR_PLUGIN").unwrap_or_default())
            .output()?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{} {arguments:?}: {}\n{said}", self.compose.join(" "), output.status).into())
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if let Err(why) = self.compose(&["down", "--volumes", "--timeout", "2"]) {
            eprintln!("{}", why.message().unwrap_or("the compose project was not removed"));
        }
        drop(fs::remove_file(&self.config));
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shipped configuration, with the same limit, but so slow to refill that it is a number, and with time enough that a busy machine
/// cannot be taken for a Redis that is unavailable.
fn exact(shipped: &str) -> Result<String, Failed> {
    let mut config = shipped.to_owned();
    for (old, new) in [
        ("rate: 1/s", "rate: 1/h"),
        ("on_failure: allow", "on_failure: deny"),
        ("deadline: 50ms", "deadline: 5s"),
    ] {
        if !config.contains(old) {
            return Err(format!("the shipped configuration no longer has `{old}`").into());
        }
        config = config.replace(old, new);
    }
    Ok(config)
}

/// The status of one GET.
fn status(edge: SocketAddr) -> Result<u16, Failed> {
    let answer = answer(edge)?;
    let code = answer.split(' ').nth(1).ok_or_else(|| format!("not an HTTP answer: {answer:?}"))?;
    Ok(code.parse()?)
}

/// The answer to one GET.
fn answer(edge: SocketAddr) -> Result<String, Failed> {
    let mut stream = TcpStream::connect_timeout(&edge, START)?;
    stream.set_read_timeout(Some(START))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
