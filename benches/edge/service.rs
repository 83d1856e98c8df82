// SPDX-License-Identifier: Apache-2.0
//! The rate-limit service of `envoy ratelimit`: a program of the reader, which `WEIR_BENCH_RATELIMIT` names.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cost;
use crate::support::eventually;
use crate::support::redis::free_address;

/// The address of a service that runs, as `127.0.0.1:8081`, or a command of the shell that starts one.
const VARIABLE: &str = "WEIR_BENCH_RATELIMIT";

/// A service. If the benchmark has started it, it is stopped when this is dropped.
pub struct Service {
    pub address: SocketAddr,
    started: Option<(Child, PathBuf)>,
}

impl Service {
    /// The service that the environment names. A command gets the port on which the service is to listen (`PORT`), and the address
    /// of the Redis that all edges share (`REDIS`).
    pub fn named(redis: SocketAddr) -> io::Result<Option<Self>> {
        let Some(named) = std::env::var(VARIABLE).ok().filter(|named| !named.is_empty()) else {
            return Ok(None);
        };
        match named.parse() {
            Ok(address) => Ok(Some(Self { address, started: None })),
            Err(_) => Self::start(&named, redis).map(Some),
        }
    }

    fn start(command: &str, redis: SocketAddr) -> io::Result<Self> {
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
        let mut service = Self { address, started: Some((process, log.clone())) };
        let runs = eventually("the rate-limit service's listener", || match service.has_ended() {
            false => TcpStream::connect(address).is_ok().then_some(true),
            true => Some(false),
        });
        let ended = || {
            io::Error::other(format!("{VARIABLE} ended: {}", fs::read_to_string(&log).unwrap_or_default()))
        };
        if runs { Ok(service) } else { Err(ended()) }
    }

    fn has_ended(&mut self) -> bool {
        self.started.as_mut().is_some_and(|(process, _)| !matches!(process.try_wait(), Ok(None)))
    }

    /// Its processes, to measure them. None if the benchmark has not started it.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        self.started.as_ref().map_or(Ok(Vec::new()), |(process, _)| cost::family(process.id()))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some((process, log)) = &mut self.started else { return };
        // This fails only if it has ended already.
        let group = format!("-{}", process.id());
        let _ = Command::new("kill").args(["--", &group]).stderr(Stdio::null()).status();
        let _ = process.wait();
        let _ = fs::remove_file(log);
    }
}
