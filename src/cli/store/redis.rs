//! One Redis, for `--redis`: a plain connection, on which one script runs at a time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::super::Failure;
use crate::limit::{Ask, Outcome, Permits};
use crate::resp;
use crate::script::{BadReply, Form, Plan};
use crate::time::Micros;

/// How long to wait for Redis.
const TIMEOUT: Duration = Duration::from_secs(5);

trait Stream: std::io::Read + std::io::Write {}
impl<T: std::io::Read + std::io::Write> Stream for T {}

/// A connection.
pub(in super::super) struct Redis {
    stream: Box<dyn Stream>,
    reply: Vec<u8>,
}

impl Redis {
    /// Connects to `redis://[user:password@]host[:port][/database]` or `unix:///path`.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn connect(url: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| format!("{url}: {error}");
        if let Some(path) = url.strip_prefix("unix://") {
            let stream = UnixStream::connect(path).map_err(failed)?;
            stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
            return Ok(Self { stream: Box::new(stream), reply: Vec::new() });
        }
        let rest = url.strip_prefix("redis://").ok_or_else(|| {
            format!("{url}: not redis://[user:password@]host[:port][/database] or unix:///path (no TLS)")
        })?;
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) = place.rsplit_once('@').map_or((None, place), |(login, host)| (Some(login), host));
        let port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if port { host.to_owned() } else { format!("{host}:6379") };
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut redis = Self { stream: Box::new(stream), reply: Vec::new() };
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or(("", login));
            let words: Vec<&str> =
                ["AUTH", user, password].into_iter().filter(|word| !word.is_empty()).collect();
            redis.ask(&words)?;
        }
        if !database.is_empty() {
            redis.ask(&["SELECT", database])?;
        }
        Ok(redis)
    }

    fn ask(&mut self, words: &[&str]) -> Result<(), Failure> {
        let mut command = Vec::new();
        resp::array_header(&mut command, words.len());
        words.iter().for_each(|word| resp::bulk(&mut command, word.as_bytes()));
        match self.call(&command)? {
            resp::Reply::Error(line) => Err(String::from_utf8_lossy(line).into_owned()),
            _ => Ok(()),
        }
    }

    /// Asks the limits of a subject; at `now`, or by Redis's own clock.
    ///
    /// # Errors
    /// Redis cannot be asked, or its reply is not an answer.
    pub fn check(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        ask: Ask,
        now: Option<Micros>,
    ) -> Result<Outcome, Failure> {
        self.run(|form, out| plan.check(tag, ask, now, form, out), |reply| plan.outcome(reply))
    }

    /// Charges `units`, or refunds them if they are negative.
    ///
    /// # Errors
    /// Redis cannot be asked, or its reply is not an answer.
    pub fn settle(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        units: i64,
        receipt: &Outcome,
        now: Micros,
    ) -> Result<Outcome, Failure> {
        let command = |form, out: &mut Vec<u8>| plan.settle(tag, units, receipt, Some(now), form, out);
        self.run(command, |reply| plan.outcome(reply))
    }

    /// Releases permits.
    ///
    /// # Errors
    /// Redis cannot be asked, or its reply is an error.
    pub fn release(
        &mut self,
        plan: &Plan,
        tag: &[u8],
        permits: &[Permits],
        now: Micros,
    ) -> Result<(), Failure> {
        if permits.is_empty() {
            return Ok(());
        }
        let command = |form, out: &mut Vec<u8>| {
            plan.release(tag, permits, Some(now), form, out);
        };
        self.run(command, |reply| match reply {
            resp::Reply::Error(line) => Err(BadReply::error(line)),
            _ => Ok(()),
        })
    }

    /// Runs a script by its SHA-1 or, if this Redis does not know it, by its source.
    fn run<T>(
        &mut self,
        command: impl Fn(Form, &mut Vec<u8>),
        read: impl Fn(&resp::Reply<'_>) -> Result<T, BadReply>,
    ) -> Result<T, Failure> {
        let mut send = |form| {
            let mut out = Vec::new();
            command(form, &mut out);
            self.call(&out).map(|reply| read(&reply))
        };
        let answer = match send(Form::Evalsha)? {
            Err(BadReply::NoScript) => send(Form::Eval)?,
            answer => answer,
        };
        answer.map_err(|bad| format!("Redis: {bad}"))
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// The connection broke, was too slow, or did not speak RESP.
    fn call(&mut self, command: &[u8]) -> Result<resp::Reply<'_>, Failure> {
        let failed = |error: std::io::Error| format!("Redis: {error}");
        self.stream.write_all(command).map_err(failed)?;
        self.reply.clear();
        let mut chunk = [0; 4096];
        while !matches!(resp::decode(&self.reply), Ok(Some(_)) | Err(_)) {
            let read = self.stream.read(&mut chunk).map_err(failed)?;
            if read == 0 {
                return Err(String::from("Redis: the connection was closed"));
            }
            self.reply.extend(chunk.iter().take(read));
        }
        match resp::decode(&self.reply) {
            Ok(Some((reply, _))) => Ok(reply),
            _ => Err(String::from("Redis: not RESP")),
        }
    }
}
