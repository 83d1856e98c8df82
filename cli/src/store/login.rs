// SPDX-License-Identifier: Apache-2.0
//! The address of Redis, and the login: the arguments of all commands that speak to Redis.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo,
    TlsCertificates,
};

use super::super::{Failure, date, tell, words};
use super::Redis;
use weir::time::Micros;

/// The variable that has the URLs, where no argument has.
const URLS: &str = "WEIR_REDIS";
/// The variable that has the login at Redis.
const LOGIN: &str = "WEIR_REDIS_LOGIN";
/// The variable that has the login at the sentinels.
const SENTINEL_LOGIN: &str = "WEIR_SENTINEL_LOGIN";

/// The longest file that is read for a login, a certificate or a key, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Redis, for a command that does nothing without it.
#[derive(Args, Clone)]
pub(in super::super) struct Place {
    /// weir's Redis: `redis://host[:port][/database]`, `rediss://…` with TLS, or `unix:///path`. Several, separated by commas, are tried in
    /// order. Of a Redis Cluster, name any node; with Sentinel, the sentinels. By default the variable WEIR_REDIS.
    #[arg(long = "redis", value_name = "URL", value_delimiter = ',', help_heading = "Redis")]
    urls: Vec<String>,
    #[command(flatten)]
    login: Login,
}

impl Place {
    pub fn connect(&self) -> Result<Redis, Failure> {
        if !self.urls.is_empty() {
            return self.login.connect(&self.urls);
        }
        self.connect_quietly()
    }

    /// The same, without a word about a password in an argument.
    pub fn connect_quietly(&self) -> Result<Redis, Failure> {
        let urls = if self.urls.is_empty() { of_environment() } else { self.urls.clone() };
        if urls.is_empty() {
            return Err(format!("which Redis? Write --redis URL, or set {URLS}"));
        }
        self.login.open(&urls)
    }

    /// True if the arguments or the environment say where Redis is.
    pub fn is_given(&self) -> bool {
        !self.urls.is_empty() || !of_environment().is_empty()
    }

    /// The time-out of a connection, and of each reply.
    pub const fn timeout(&self) -> Duration {
        self.login.timeout
    }
}

fn of_environment() -> Vec<String> {
    let urls = env::var(URLS).unwrap_or_default();
    urls.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

/// The login to Redis.
#[derive(Args, Clone)]
#[command(next_help_heading = "Redis")]
pub(in super::super) struct Login {
    /// A file with one line, `user:password`, or the password alone for the user `default`: the file that Envoy reads. By default the
    /// variable WEIR_REDIS_LOGIN, in the same form.
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,
    /// The authorities that sign Redis's certificate, in PEM. By default those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The command's own certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The primary's name at the sentinels. Needed only if they know several. The variable WEIR_SENTINEL_LOGIN is for sentinels with their
    /// own login.
    #[arg(long, value_name = "NAME")]
    sentinel: Option<String>,
    /// For a connection, and for each reply: `10ms` to `60s`.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = timeout)]
    timeout: Duration,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let bounds = Micros::from_millis(10)..=Micros::from_secs(60);
    date::duration(text, bounds, "allowed is 10ms to 60s").map(|of| Duration::from_micros(of.0))
}

impl Login {
    /// Connects to the first of these that answers. They were given as arguments.
    pub fn connect(&self, urls: &[String]) -> Result<Redis, Failure> {
        if urls.iter().any(|url| parse(url).is_ok_and(|place| place.redis_settings().password().is_some())) {
            tell(&format!(
                "weir: others can see a password in --redis in the list of processes: use --login-file or {LOGIN}"
            ));
        }
        self.open(urls)
    }

    /// The same, if there are any.
    pub fn connect_if(&self, urls: &[String]) -> Result<Option<Redis>, Failure> {
        if urls.is_empty() { Ok(None) } else { self.connect(urls).map(Some) }
    }

    fn open(&self, urls: &[String]) -> Result<Redis, Failure> {
        let places = urls.iter().map(|url| self.place(url)).collect::<Result<Vec<_>, _>>()?;
        let access = Access {
            certificates: self.certificates()?,
            sentinel: self.sentinel.clone(),
            sentinels: User::of_variable(SENTINEL_LOGIN)?,
            timeout: self.timeout,
        };
        Redis::connect(&places, &access)
    }

    /// Returns the connection of a URL, with the login of a file or of the environment.
    fn place(&self, url: &str) -> Result<ConnectionInfo, Failure> {
        let place = parse(url)?;
        let user = match &self.login_file {
            Some(path) => {
                let (bytes, name) = (read(path)?, words::file(path));
                let text = String::from_utf8(bytes).map_err(|_| format!("{name}: no UTF-8"))?;
                Some(User::parse(&text).map_err(|wrong| format!("{name}: {wrong}"))?)
            }
            None => User::of_variable(LOGIN)?,
        };
        Ok(if let Some(user) = user { user.at(place) } else { place })
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>, Failure> {
        let root_cert = self.ca.as_deref().map(read).transpose()?;
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            _ => None,
        };
        let is_given = root_cert.is_some() || client_tls.is_some();
        Ok(is_given.then_some(TlsCertificates { client_tls, root_cert }))
    }
}

pub(super) struct Access {
    /// The certificates of a connection with TLS.
    pub certificates: Option<TlsCertificates>,
    /// The name of the primary.
    pub sentinel: Option<String>,
    /// The login at the sentinels.
    pub sentinels: Option<User>,
    /// The time-out of a connection, and of each reply.
    pub timeout: Duration,
}

pub(super) struct User {
    name: Option<String>,
    password: String,
}

impl User {
    /// Reads `user:password`, or a password alone.
    fn parse(text: &str) -> Result<Self, String> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (name, password) = line.split_once(':').unwrap_or(("", line));
        if password.is_empty() || password.contains('\n') {
            return Err(String::from("allowed is one line, `user:password` or a password"));
        }
        let name = (!name.is_empty()).then(|| name.to_owned());
        Ok(Self { name, password: password.to_owned() })
    }

    /// The login in a variable, if it is set.
    fn of_variable(name: &str) -> Result<Option<Self>, Failure> {
        let login = env::var(name).ok().map(|line| Self::parse(&line));
        login.transpose().map_err(|wrong| format!("{name}: {wrong}"))
    }

    /// The same place, with this login in place of another.
    pub fn at(&self, place: ConnectionInfo) -> ConnectionInfo {
        let settings = bare(&place).set_password(&self.password);
        let settings = match &self.name {
            Some(name) => settings.set_username(name),
            None => settings,
        };
        place.set_redis_settings(settings)
    }
}

/// The same place, without a login.
pub(super) fn without_login(place: ConnectionInfo) -> ConnectionInfo {
    let settings = bare(&place);
    place.set_redis_settings(settings)
}

fn bare(place: &ConnectionInfo) -> RedisConnectionInfo {
    let settings = place.redis_settings();
    let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
    bare.set_db(settings.db()).set_protocol(settings.protocol())
}

fn parse(url: &str) -> Result<ConnectionInfo, Failure> {
    let place = url.into_connection_info().map_err(|error| {
        let allowed =
            "allowed is redis://host[:port][/database], rediss://host[:port][/database] or unix:///path";
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        format!("--redis {}: {allowed}{detail}", masked(url))
    })?;
    let settings = place.redis_settings().clone().set_skip_set_lib_name();
    Ok(place.set_redis_settings(settings))
}

/// A URL without its login.
fn masked(url: &str) -> String {
    let from = url.find("://").map_or(0, |at| at.saturating_add(3));
    let shown = match url.rfind('@').filter(|at| *at >= from) {
        Some(at) => [url.get(..from), Some("…"), url.get(at..)].map(Option::unwrap_or_default).concat(),
        None => url.to_owned(),
    };
    shown.escape_debug().to_string()
}

/// An address, as errors name it.
pub(super) fn name(place: &ConnectionAddr) -> String {
    match place {
        ConnectionAddr::Unix(path) => words::file(path),
        other => other.to_string().escape_debug().to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", words::file(path));
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_FILE {
        return Err(format!("{}: found {length} bytes, allowed are {MAX_FILE}", words::file(path)));
    }
    fs::read(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_login() {
        for (url, shown) in [
            ("redis://localhost:1", "redis://localhost:1"),
            ("redis://ann:secret@localhost", "redis://…@localhost"),
            ("redis://:se@cret@localhost", "redis://…@localhost"),
            ("rediss://secret@h/3", "rediss://…@h/3"),
            ("ann:secret@localhost", "…@localhost"),
            ("http://ann:secret@localhost", "http://…@localhost"),
            ("redis://\u{1b}[2J", "redis://\\u{1b}[2J"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn a_login_is_one_line() {
        let read = |text: &str| User::parse(text).map(|user| (user.name.unwrap_or_default(), user.password));
        let is = |name: &str, password: &str| Ok((name.to_owned(), password.to_owned()));
        assert_eq!(read("ann:secret\n"), is("ann", "secret"));
        assert_eq!(read("ann:se:cret\r\n"), is("ann", "se:cret"));
        assert_eq!(read("secret"), is("", "secret"));
        assert_eq!(read(":se:cret"), is("", "se:cret"));
        for wrong in ["", "\n", "ann:", "ann:secret\nmore"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
