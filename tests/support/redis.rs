//! A Redis of one's own: a server on a socket in a directory of its own, gone when it is dropped.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir::resp::{self, Reply};

/// A running server.
pub struct Redis {
    server: Child,
    directory: PathBuf,
}

impl Redis {
    /// Starts a server and waits until it answers. `None`, if there is no redis-server on this machine.
    pub fn start() -> Option<Self> {
        Self::with(&["--port", "0"])
    }

    /// Starts a cluster of one, which has all slots.
    pub fn start_cluster() -> Option<Self> {
        let port = || {
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
        };
        let (port, bus) = (port().to_string(), port().to_string());
        let address =
            ["--bind", "127.0.0.1", "--port", &port, "--cluster-port", &bus, "--cluster-enabled", "yes"];
        let redis = Self::with(&address)?;
        let mut connection = redis.connect();
        connection.call(&[b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"]);
        while !connection.call(&[b"CLUSTER", b"INFO"]).windows(16).any(|text| text == b"cluster_state:ok") {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }

    fn with(arguments: &[&str]) -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for Redis");
        let server = Command::new("redis-server")
            .args(["--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(directory.join("redis.sock"))
            .arg("--dir")
            .arg(&directory)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            let _ = std::fs::remove_dir_all(&directory);
            return None;
        };
        let mut redis = Self { server, directory };
        while !redis.answers() {
            assert!(redis.server.try_wait().is_ok_and(|status| status.is_none()), "redis-server has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(redis)
    }

    fn answers(&self) -> bool {
        let Ok(stream) = UnixStream::connect(self.socket()) else { return false };
        let mut connection = Connection { stream, input: Vec::new() };
        connection.call(&[b"PING"]) == b"+PONG\r\n"
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// The process, to measure it.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::to(&self.socket())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A connection that waits for its replies.
pub struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Connection {
    /// Connects to a socket.
    pub fn to(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a connection to Redis");
        Self { stream, input: Vec::new() }
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

    /// One command whose reply is an integer.
    pub fn integer(&mut self, arguments: &[&[u8]]) -> i64 {
        let reply = self.call(arguments);
        match resp::decode(&reply) {
            Ok(Some((Reply::Integer(number), _))) => number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// Commands that are already encoded, sent at once; the replies of all, as bytes.
    pub fn pipeline(&mut self, commands: &[u8], count: usize) -> Vec<Vec<u8>> {
        // What is written and not yet read must fit the sockets' buffers, so a long history is written from a
        // thread.
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
