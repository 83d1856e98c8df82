// SPDX-License-Identifier: Apache-2.0
//! A private Redis: a server on a socket in a directory of its own and on a free port. It ends when it is dropped. It keeps nothing on
//! disk, can be stopped, started again at the same address, and frozen.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use weir::resp::{self, Reply};

/// The Redis to test with: `$WEIR_REDIS_SERVER`, or `redis-server` on `$PATH`.
pub fn binary() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("WEIR_REDIS_SERVER") {
        // Empty says that this machine has none.
        return (!chosen.is_empty()).then(|| chosen.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|file| file.is_file())
}

/// A server, running or not.
#[derive(Debug)]
pub struct Redis {
    server: Option<Child>,
    directory: PathBuf,
    address: SocketAddr,
    arguments: Vec<String>,
    /// Variables of its environment.
    environment: Vec<(String, String)>,
    /// The network namespace that it runs in, if not in everybody's.
    namespace: Option<String>,
}

/// A server that the tests of a program share. It starts when the first of them uses it.
#[derive(Debug, Default)]
pub struct Shared(OnceLock<Redis>);

impl Deref for Shared {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        self.0.get_or_init(|| Redis::start().expect("a redis-server"))
    }
}

impl Redis {
    /// Starts a server and waits until it answers. `None`, if there is no redis-server on this machine.
    pub fn start() -> Option<Self> {
        binary()?;
        let mut redis = Self::absent();
        redis.restart();
        Some(redis)
    }

    /// Starts a server with more arguments; an argument `{port}` is the port it is to listen on.
    pub fn start_with(arguments: &[&str]) -> Option<Self> {
        binary()?;
        let mut redis = Self::absent();
        let port = redis.address.port().to_string();
        redis.arguments = arguments.iter().map(|argument| argument.replace("{port}", &port)).collect();
        redis.restart();
        Some(redis)
    }

    /// Starts a server with these variables in its environment.
    pub fn start_under(environment: &[(String, String)]) -> Option<Self> {
        binary()?;
        let mut redis = Self::absent();
        redis.environment = environment.to_vec();
        redis.restart();
        Some(redis)
    }

    /// Starts a server in a network namespace (`ip netns`), where it listens on every address.
    pub fn start_in(namespace: &str) -> Option<Self> {
        binary()?;
        let mut redis = Self::absent();
        redis.namespace = Some(namespace.into());
        redis.arguments = ["--bind", "0.0.0.0", "--protected-mode", "no"].map(String::from).into();
        redis.restart();
        Some(redis)
    }

    /// Starts a node of a cluster, which has no slots yet and knows no other node. Its bus listens on the port given too.
    pub fn start_node() -> Option<(Self, u16)> {
        let bus = free_address().port();
        let redis = Self::start_with(&[
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus.to_string(),
            // A primary counts as dead after so many milliseconds without a sign of it.
            "--cluster-node-timeout",
            "1500",
            // The other slots are served while some have no primary.
            "--cluster-require-full-coverage",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ]);
        Some((redis?, bus))
    }

    /// Starts a cluster of one, which has all slots.
    pub fn start_cluster() -> Option<Self> {
        let (redis, _) = Self::start_node()?;
        let mut connection = redis.connect();
        connection.call(&[b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"]);
        while !connection.call(&[b"CLUSTER", b"INFO"]).windows(16).any(|text| text == b"cluster_state:ok") {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }

    /// An address where there is no server yet; see [`Redis::restart`].
    pub fn absent() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        super::empty_folder(&directory);
        Self {
            server: None,
            directory,
            address: free_address(),
            arguments: Vec::new(),
            environment: Vec::new(),
            namespace: None,
        }
    }

    /// Starts it, for the first time or again, empty, and waits until it answers.
    pub fn restart(&mut self) {
        self.begin_with(&[]);
        let mut tries = 0..10_000;
        while !answers(&self.socket()) {
            assert!(tries.next().is_some(), "redis-server does not answer: {}", self.said());
            let ended = self.server.as_mut().and_then(|server| server.try_wait().expect("its state"));
            assert!(ended.is_none(), "redis-server has ended ({ended:?}): {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As [`Redis::restart`], with more arguments this once, and without waiting for an answer.
    pub fn begin_with(&mut self, arguments: &[&str]) {
        self.stop();
        let log = File::create(self.log()).expect("Redis's log");
        let server = self
            .command()
            .args(["--bind", "127.0.0.1", "--port", &self.address.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(&self.directory)
            .args(&self.arguments)
            .args(arguments)
            .envs(self.environment.iter().cloned())
            .stdout(log.try_clone().expect("Redis's log"))
            .stderr(log)
            .spawn();
        self.server = Some(server.expect("redis-server runs"));
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Its log since it was started.
    fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let server = binary().expect("a redis-server");
        let Some(namespace) = &self.namespace else { return Command::new(server) };
        // It becomes the server, once it is there: the process is the same.
        let mut ip = Command::new("ip");
        ip.args(["netns", "exec", namespace]).arg(server);
        ip
    }

    /// Kills it; nothing listens at its address afterwards.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Both fail only when it has ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Freezes it: its connections stay open, and nothing is answered.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Ends [`Redis::freeze`].
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        assert!(crate::signal(signal, self.pid()), "kill {signal} failed");
    }

    /// Its address, for clients that need a port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The socket on which it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// The process, to measure it.
    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("a running server").id()
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::to(&self.socket())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A port that is this process's until it ends. A socket that does not listen is bound to it, beside which a server can be (all of these
/// set `SO_REUSEADDR`), so the kernel gives the port to no connection, and to no server that asks for any port. Other processes of tests
/// could bind beside it, too: so each port has a name among the abstract sockets, which only one process can have.
pub fn free_address() -> SocketAddr {
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let reserved = |_| {
        // Processes beside each other begin far from each other.
        let tried = std::process::id().wrapping_mul(641).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + tried % (PORTS.end - PORTS.start);
        let name = UnixAddr::from_abstract_name(format!("weir-tests-{port}")).expect("a name");
        let own = UnixListener::bind_addr(&name).ok()?;
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("a port")));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("an option of a socket");
        socket.bind(&address.into()).ok()?;
        std::mem::forget((own, socket));
        Some(address)
    };
    PORTS.into_iter().find_map(reserved).expect("a free port")
}

/// True if it answers: not while it starts, and not if it ends meanwhile.
fn answers(socket: &Path) -> bool {
    let mut answer = [0; 7];
    let asked = UnixStream::connect(socket).and_then(|mut stream| {
        stream.write_all(b"PING\r\n")?;
        stream.read_exact(&mut answer)
    });
    asked.is_ok() && answer == *b"+PONG\r\n"
}

/// A connection that waits for its replies.
pub struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Connection {
    /// Connects to a socket.
    pub fn to(socket: &Path) -> Self {
        Self::try_to(socket).expect("a connection to Redis")
    }

    /// Connects to a socket, if a server listens there.
    pub fn try_to(socket: &Path) -> Option<Self> {
        UnixStream::connect(socket).ok().map(|stream| Self { stream, input: Vec::new() })
    }

    /// One command from its arguments; its reply, as bytes.
    pub fn call(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        let mut command = Vec::new();
        resp::array_header(&mut command, arguments.len());
        for argument in arguments {
            resp::bulk(&mut command, argument);
        }
        self.pipeline(&command, 1).remove(0)
    }

    /// One command from its arguments, without waiting for its reply.
    pub fn tell(&mut self, arguments: &[&[u8]]) {
        let mut command = Vec::new();
        resp::array_header(&mut command, arguments.len());
        arguments.iter().for_each(|argument| resp::bulk(&mut command, argument));
        self.stream.write_all(&command).expect("Redis reads");
    }

    /// As [`Connection::call`], for words; the reply as text.
    pub fn say(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.call(&words)).into_owned()
    }

    /// One command whose reply is an integer.
    pub fn integer(&mut self, arguments: &[&[u8]]) -> i64 {
        let reply = self.call(arguments);
        match resp::decode(&reply) {
            Ok(Some((Reply::Integer(number), _))) => number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// A number of this section of `INFO`.
    pub fn info(&mut self, section: &str, field: &str) -> f64 {
        let text = self.say(&format!("INFO {section}"));
        let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok();
        text.lines().find_map(value).unwrap_or_else(|| panic!("INFO {section} has no {field}"))
    }

    /// Seconds of user and system time that Redis has used.
    pub fn cpu_seconds(&mut self) -> f64 {
        self.info("cpu", "used_cpu_user") + self.info("cpu", "used_cpu_sys")
    }

    /// Commands that are already encoded, sent at once; the replies of all, as bytes.
    pub fn pipeline(&mut self, commands: &[u8], count: usize) -> Vec<Vec<u8>> {
        // Bytes that are written and not yet read must fit the sockets' buffers, so a long history is written from a thread.
        let mut writer = self.stream.try_clone().expect("a second handle");
        std::thread::scope(|scope| {
            if commands.len() < 32 * 1024 {
                writer.write_all(commands).expect("Redis reads");
            } else {
                scope.spawn(move || writer.write_all(commands).expect("Redis reads"));
            }
            (0..count).map(|_| self.reply()).collect()
        })
    }

    fn reply(&mut self) -> Vec<u8> {
        let mut chunk = [0; 64 * 1024];
        loop {
            if let Some((_, length)) = resp::decode(&self.input).expect("RESP") {
                return self.input.drain(..length).collect();
            }
            let read = self.stream.read(&mut chunk).expect("Redis replies");
            assert!(read > 0, "Redis has closed the connection");
            self.input.extend_from_slice(&chunk[..read]);
        }
    }
}
