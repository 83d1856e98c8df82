// SPDX-License-Identifier: Apache-2.0
//! The rate-limit services of `envoy ratelimit`: programs of the reader, which the environment names.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cost;
use crate::support::eventually;
use crate::support::http::{Kept, Request};
use crate::support::redis::{Redis, free_address};

/// The address of a service that runs, as `127.0.0.1:8081`, or a command of the shell that starts one. With `_NAME` added, each names one of
/// several services.
pub const VARIABLE: &str = "WEIR_BENCH_RATELIMIT";

/// Envoy that asks a service. The name of a service is added: `envoy ratelimit limitador`.
pub const RATELIMIT: &str = "envoy ratelimit";

/// The header of a request that has the small limit of three an hour, which proves that the service limits.
pub const PROOF: &str = "x-proof";
/// The service has denied by now, even if it counts in its memory first.
const MAX_PROOFS: usize = 100;

/// A service. If the benchmark has started it, it is stopped when this is dropped.
pub struct Service {
    /// The edge that asks it.
    pub edge: &'static str,
    pub address: SocketAddr,
    started: Option<(Child, PathBuf)>,
}

impl Service {
    /// The services that the environment names, in the order of their names. A command gets the port on which the service is to listen
    /// (`PORT`), and the address of the Redis that all edges share (`REDIS`).
    pub fn all(redis: SocketAddr, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Self>> {
        let named = std::env::vars().filter_map(|(variable, value)| {
            let name = variable.strip_prefix(VARIABLE)?.replace('_', " ").to_lowercase();
            (!value.is_empty()).then(|| (format!("{RATELIMIT}{name}"), variable, value))
        });
        let mut services = Vec::new();
        for (edge, variable, value) in named.filter(|(edge, ..)| wanted(edge)).collect::<BTreeSet<_>>() {
            // The name lives as long as the benchmark.
            let edge: &'static str = edge.leak();
            services.push(match value.parse() {
                Ok(address) => Self { edge, address, started: None },
                Err(_) => Self::start(edge, &variable, &value, redis)?,
            });
        }
        Ok(services)
    }

    fn start(edge: &'static str, variable: &str, command: &str, redis: SocketAddr) -> io::Result<Self> {
        let address = free_address();
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ratelimit-{}.log", address.port()));
        let output = File::create(&log)?;
        let process = Command::new("sh")
            .args(["-c", command])
            .env("PORT", address.port().to_string())
            .env("REDIS", redis.to_string())
            // A group of its own, so that all that the command has started can be stopped.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let mut service = Self { edge, address, started: Some((process, log.clone())) };
        let runs = eventually("the rate-limit service's listener", || match service.has_ended() {
            false => TcpStream::connect(address).is_ok().then_some(true),
            true => Some(false),
        });
        let ended = || {
            io::Error::other(format!("{variable} ended: {}", fs::read_to_string(&log).unwrap_or_default()))
        };
        if runs { Ok(service) } else { Err(ended()) }
    }

    fn has_ended(&mut self) -> bool {
        self.started.as_mut().is_some_and(|(process, _)| !matches!(process.try_wait(), Ok(None)))
    }

    /// Fails unless the service denies requests of the small limit, through the Envoy at this address. A service that does not know its limits
    /// admits everything, and its figures would be those of no limit.
    pub fn prove(&self, envoy: SocketAddr, redis: &Redis) -> io::Result<()> {
        let keys = || redis.connect().integer(&[b"DBSIZE"]);
        let before = keys();
        // Services that share a Redis may have the same keys.
        let value = format!("{}-{}", std::process::id(), self.address.port());
        let request = Request::get("/").header(PROOF, &value);
        let mut client = Kept::open(envoy)?;
        let mut ask = || client.send(&request).map(|response| response.status);
        let (first, mut denied) = (ask()?, false);
        for _ in 1..MAX_PROOFS {
            denied |= ask()? == 429;
        }
        let problem = match first {
            200 if !denied => format!(
                "has denied none of {MAX_PROOFS} requests that have the descriptor `proof`: does it read the file with the limits?"
            ),
            200 => {
                if self.started.is_some() {
                    eventually("the service's counters in Redis", || (keys() > before).then_some(()));
                }
                return Ok(());
            }
            status => format!("has not decided the first request in time: Envoy answers {status}"),
        };
        Err(io::Error::other(format!("{}: the service at {} {problem}", self.edge, self.address)))
    }

    /// Its processes, to measure them. None if the benchmark has not started it.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        self.started.as_ref().map_or(Ok(Vec::new()), |(process, _)| cost::family(process.id()))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some((process, log)) = &mut self.started else { return };
        crate::support::signal("-TERM", format!("-{}", process.id()));
        let _ = process.wait();
        let _ = fs::remove_file(log);
    }
}
