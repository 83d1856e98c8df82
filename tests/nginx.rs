//! weir beside nginx: the same arrivals find the same verdicts as under `limit_req` and `limit_conn`, and leave at the same times.
//! Its cases are ignored where there is no nginx.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
// Requests are sent and leave at times of a real clock.
#![allow(clippy::disallowed_methods)]

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

// Where the files that other tests share look for it.
use support::http::{self, Exchange, Request};
use support::redis::free_address;
use support::upstream::Upstream;
use support::weir::{PATIENT, World};
use support::{TempFolder, eventually};

fn main() -> std::process::ExitCode {
    let has_nginx = binary().is_some();
    if !has_nginx {
        println!("skipped: no nginx in $WEIR_NGINX, /usr/sbin or .tools/nginx");
    }
    support::run_with_envoy_and(&TESTS, has_nginx)
}

const TESTS: [(&str, fn()); 5] = [
    ("nginx: limit_req without a burst", || limit_req("", r#""burst": 1"#, 0)),
    ("nginx: limit_req with a burst that is delayed", || {
        limit_req("burst=5", r#""burst": 1, "max_delay": "2500ms""#, 5)
    }),
    ("nginx: limit_req with a burst at once", || limit_req("burst=5 nodelay", r#""burst": 6"#, 0)),
    ("nginx: limit_req with a burst of which a part is delayed", || {
        limit_req("burst=5 delay=2", r#""burst": 3, "max_delay": "1500ms""#, 3)
    }),
    ("nginx: limit_conn", limit_conn),
];

/// The root under which nginx is installed.
fn binary() -> Option<PathBuf> {
    let root = std::env::var_os("WEIR_NGINX").filter(|root| !root.is_empty()).map(PathBuf::from)?;
    Some(root.join("usr/sbin/nginx")).filter(|binary| binary.exists())
}

/// A running nginx; it is gone when dropped.
struct Nginx {
    process: Child,
    address: SocketAddr,
    /// Its files.
    _folder: TempFolder,
}

impl Nginx {
    /// nginx before this upstream, with these directives of `http` and of `location`.
    fn start(zone: &str, limit: &str, upstream: SocketAddr) -> Self {
        let (folder, address) = (TempFolder::new("nginx"), free_address());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("  {name}_temp_path {name};\n"))
            .concat();
        let config = format!(
            "daemon off;\npid nginx.pid;\nerror_log error.log;\nevents {{}}\nhttp {{\n  access_log off;\n{temporary}  {zone}\n  \
             server {{\n    listen {address};\n    location / {{ {limit} proxy_pass http://{upstream}; }}\n  }}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config).expect("written");
        let process = Command::new(binary().expect("an nginx"))
            .args(["-p", folder.path().to_str().expect("a path"), "-c", "nginx.conf", "-e", "error.log"])
            .stdin(Stdio::null())
            .spawn()
            .expect("started");
        let nginx = Self { process, address, _folder: folder };
        eventually("nginx to listen", || std::net::TcpStream::connect(address).ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends with it.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// What became of requests that came at once: how many were rejected, and after how many milliseconds the others left.
#[derive(Debug)]
struct Burst {
    rejected: usize,
    left: Vec<u64>,
}

fn burst(edge: SocketAddr, count: usize) -> Burst {
    let began = Instant::now();
    let sent = http::burst_held(edge, std::iter::repeat_n(Request::get("/"), count)).expect("sent");
    let wait = |exchange: Exchange| {
        thread::spawn(move || (exchange.finish().expect("a response").status, began.elapsed().as_millis()))
    };
    let waiting: Vec<_> = sent.into_iter().map(wait).collect();
    let answers: Vec<_> = waiting.into_iter().map(|thread| thread.join().expect("an answer")).collect();
    assert!(answers.iter().all(|(status, _)| [200, 503, 429].contains(status)), "{answers:?}");
    let mut left: Vec<u64> = answers
        .iter()
        .filter(|(status, _)| *status == 200)
        .map(|(_, after)| u64::try_from(*after).expect("a short time"))
        .collect();
    left.sort_unstable();
    Burst { rejected: answers.len() - left.len(), left }
}

/// Two a second: so slow that a busy machine does not change what has come back between two bursts.
const EVERY: u64 = 500;
/// How much sooner than its time a request may seem to leave: clocks of milliseconds are rounded.
const EARLY: u64 = 20;
/// How much later, on a busy machine.
const LATE: u64 = 400;

/// The same bursts, at the same times, at nginx with these parameters of `limit_req`, and at weir with these of a bucket. Of each
/// burst that finds all of the limit, the last `held` leave one after the other.
fn limit_req(parameters: &str, bucket: &str, held: usize) {
    let upstream = Upstream::start();
    let nginx = Nginx::start(
        "limit_req_zone $host zone=z:1m rate=2r/s;",
        &format!("limit_req zone=z {parameters};"),
        upstream.address(),
    );
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits":
            [{{"name": "l", "algorithm": "leaky_bucket", "rate": "2/s", {bucket}}}]}}]}}"#
    ));
    // How many at once, and how long after the last of the burst before has left.
    for (count, pause) in [(10, 0), (10, 750), (3, 1_250), (10, 4_000)] {
        thread::sleep(Duration::from_millis(pause));
        let [theirs, ours] = thread::scope(|scope| {
            let both = [nginx.address, world.edge()].map(|edge| scope.spawn(move || burst(edge, count)));
            both.map(|burst| burst.join().expect("a burst"))
        });
        assert_eq!(theirs.rejected, ours.rejected, "{parameters}: {theirs:?} and {ours:?}");
        for (place, (theirs, ours)) in theirs.left.iter().zip(&ours.left).enumerate() {
            assert!(theirs.abs_diff(*ours) <= LATE, "{parameters}, place {place}: {theirs} ms and {ours} ms");
        }
        if pause == 0 || pause == 4_000 {
            let at_once = ours.left.len() - held;
            for (place, left) in (1..).zip(&ours.left[at_once..]) {
                let due = place * EVERY;
                assert!((due - EARLY..=due + LATE).contains(left), "{parameters}, place {place}: {left} ms");
            }
        }
    }
}

fn limit_conn() {
    let upstream = Upstream::start();
    let nginx = Nginx::start("limit_conn_zone $host zone=z:1m;", "limit_conn z 3;", upstream.address());
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits":
            [{{"name": "l", "algorithm": "concurrency", "limit": 3, "ttl": "60s"}}]}}]}}"#
    ));
    for round in 0..3 {
        for (edge, behind) in [(nginx.address, &upstream), (world.edge(), &world.upstream)] {
            let held: Vec<_> =
                (0..3).map(|_| http::begin(edge, &Request::get("/hold")).expect("sent")).collect();
            eventually("three requests to be held", || (behind.held() == 3).then_some(()));
            let rejected = (0..2).map(|_| http::send(edge, &Request::get("/")).expect("a response").status);
            assert!(rejected.clone().all(|status| [503, 429].contains(&status)), "round {round}");
            assert_eq!(rejected.count(), 2);
            behind.reset();
            drop(held);
            eventually("a place to be free", || {
                (http::send(edge, &Request::get("/")).expect("a response").status == 200).then_some(())
            });
        }
    }
}
