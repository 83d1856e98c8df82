// SPDX-License-Identifier: Apache-2.0
//! `--for envoy`: a bootstrap, and files that Envoy watches.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;
use weir_cli::envoys_reading;

use super::stored::Stored;
use super::{documents, limiter, limits, render, two_regions, weir};
use crate::browser::Browser;
use crate::support::TempFolder;
use crate::support::envoy::{Template, binary};
use crate::support::http::{self, Request};
use crate::support::http2::front;
use crate::support::weir::{World, module, plugin};
use crate::support::{eventually, not_tested, root};

pub const TESTS: &[(&str, fn())] = &[
    ("envoy: with one Redis", || bootstrap("redis", "wasm")),
    ("envoy: over TLS with a password", || bootstrap("tls", "wasm")),
    ("envoy: with Sentinel", || bootstrap("sentinel", "wasm")),
    ("envoy: with a Redis Cluster", || bootstrap("cluster", "wasm")),
    ("envoy: the dynamic module with one Redis", || bootstrap("redis", "native")),
    ("envoy: the dynamic module over TLS with a password", || bootstrap("tls", "native")),
    ("envoy: the dynamic module with Sentinel", || bootstrap("sentinel", "native")),
    ("envoy: the dynamic module with a Redis Cluster", || bootstrap("cluster", "native")),
    ("envoy: two regions, each with one Redis", || regions("redis", "wasm")),
    ("envoy: two regions over TLS with a password", || regions("tls", "wasm")),
    ("envoy: two regions with Sentinel", || regions("sentinel", "wasm")),
    ("envoy: two regions, each with a Redis Cluster", || regions("cluster", "wasm")),
    ("envoy: the dynamic module in two regions, each with one Redis", || regions("redis", "native")),
    ("envoy: the dynamic module in two regions over TLS with a password", || regions("tls", "native")),
    ("envoy: the dynamic module in two regions with Sentinel", || regions("sentinel", "native")),
    ("envoy: the dynamic module in two regions, each with a Redis Cluster", || regions("cluster", "native")),
    ("envoy: what is rendered is what is shipped", rendered_is_shipped),
    ("envoy: a new limiter is read while Envoy runs", a_new_limiter_is_read),
    ("envoy: a WebSocket passes, counts, and may be idle: weir.wasm", || web_sockets("wasm")),
    ("envoy: a WebSocket passes, counts, and may be idle: libweir.so", || web_sockets("native")),
    (
        "page: a browser shows a rejection to the pages of the origins that may read it",
        rejections_in_a_browser,
    ),
];

fn bootstrap(store: &'static str, host: &str) {
    let stored = Stored::start(store);
    let mut arguments = stored.arguments("envoy", host);
    arguments.extend([
        "--listen".into(),
        "127.0.0.1:0".into(),
        "--upstream".into(),
        stored.upstream.address().to_string(),
    ]);
    let text = render(stored.folder.path(), &limiter(), &arguments);
    validate(&stored.folder.path().join("made.yaml"));
    limits(&documents(&text)[0], "edge");
    assert!(stored.asked(), "Redis has run no script");
}

/// Three upgrades pass, one of them over HTTP/2, and what is sent after a time that ends other streams comes back. The fourth is rejected.
fn web_sockets(host: &str) {
    let stored = Stored::start("redis");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            thread::spawn(move || {
                let mut client = client.expect("a connection");
                let _ = head(&mut client);
                let upgraded =
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
                client.write_all(upgraded.as_bytes()).expect("sent");
                let mut echo = client.try_clone().expect("the same connection");
                let _ = std::io::copy(&mut client, &mut echo);
            });
        }
    });
    let mut arguments = stored.arguments("envoy", host);
    arguments.extend(["--listen".into(), "127.0.0.1:0".into(), "--upstream".into(), upstream]);
    let text = render(stored.folder.path(), &limiter(), &arguments);
    let text = text.replace("stream_idle_timeout: 30s", "stream_idle_timeout: 1s");
    let mut config = documents(&text).remove(0);
    let manager = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    // As docs/beside.md has it.
    config.pointer_mut(manager).expect("the manager")["local_reply_config"] = json!({"mappers": [{
        "filter": {"status_code_filter": {"comparison": {"op": "EQ", "value": {"default_value": 429, "runtime_key": "weir.status"}}}},
        "headers_to_add": [{"header": {"key": "x-envoy-ratelimited", "value": "true"}}],
    }]});
    config.pointer_mut(manager).expect("the manager")["http2_protocol_options"] =
        json!({"allow_connect": true});
    let envoy = Template::new(&config.to_string()).start();
    let edge = envoy.address("edge");
    let front = front(edge);
    let open = |to| {
        let mut socket = TcpStream::connect(to).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-version: 13\r\n\r\n";
        socket.write_all(request.as_bytes()).expect("sent");
        let head = head(&mut socket);
        (socket, head)
    };
    let over_http2 = front.address("front");
    let mut sockets: Vec<_> = [edge, over_http2, edge]
        .into_iter()
        .map(|to| {
            let (socket, head) = open(to);
            assert!(head.starts_with("HTTP/1.1 101 "), "{head}\n{}", envoy.log());
            socket
        })
        .collect();
    thread::sleep(Duration::from_secs(3));
    for socket in &mut sockets {
        let mut echo = [0; 4];
        socket.write_all(b"ping").expect("sent");
        socket.read_exact(&mut echo).expect("an answer");
        assert_eq!(&echo, b"ping");
    }
    for to in [edge, over_http2] {
        let (_, head) = open(to);
        assert!(
            head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nx-envoy-ratelimited: true\r\n"),
            "{head}"
        );
    }
    assert_eq!(envoy.stat("http.edge.downstream_rq_http2_total"), 2);
}

/// Two pages ask for what weir rejects. The page of the named origin sees the status and `retry-after`, and the other page sees neither.
fn rejections_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return not_tested("no chromium") };
    let [own, other] = [(); 2].map(|()| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let origin = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.expect("a connection");
                let _ = head(&mut client);
                let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\nconnection: close\r\n\r\n<p>a page";
                let _ = client.write_all(page.as_bytes());
            }
        });
        origin
    });
    let cors = format!(r#""response": {{"cors": {{"origins": ["http://{own}"]}}}}, "limits""#);
    let world = World::of(&limiter().replace(r#""limits""#, &cors), 1, 1);
    assert_eq!([0; 3].map(|_| world.send(&Request::get("/")).status), [200; 3]);
    let edge = world.envoy().address("edge");
    let seen = "answer => answer.status + ' ' + (answer.headers.get('retry-after') > 1000)";
    for (origin, wanted) in [(own, "429 true"), (other, "hidden")] {
        browser.open(&format!("http://{origin}/"), 1280, "light");
        assert_eq!(
            browser.value(&format!("fetch('http://{edge}/').then({seen}, () => 'hidden')")),
            wanted,
            "{origin}"
        );
    }
}

/// Reads until an empty line.
pub fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && socket.read_exact(&mut byte).is_ok() {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn regions(store: &'static str, host: &str) {
    let listen = ["--listen".into(), "127.0.0.1:0".into()];
    two_regions(store, "envoy", host, &listen, "edge", |stored, text| {
        validate(&stored.folder.path().join("made.yaml"));
        documents(text).remove(0)
    });
}

fn validate(config: &Path) {
    let output = Command::new(binary().expect("an Envoy"))
        .args(["--mode", "validate", "--log-level", "error", "-c"])
        .arg(config)
        .output()
        .expect("Envoy runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Without other addresses, all that is in the files of `envoy/`, which the tests of the stores run.
fn rendered_is_shipped() {
    let folder = TempFolder::new("platforms");
    let limiter = "store: {cluster: CLUSTER, deadline: 50ms, on_failure: allow}\npolicies:\n- name: per-client\n  subject: \
                   [{client_address: {}}]\n  limits: [{name: steady, algorithm: leaky_bucket, rate: 1/s, burst: 10}]\n";
    for (host, cluster, prefix) in [("wasm", "weir-bridge", ""), ("native", "redis", "native-")] {
        let file = folder.path().join("weir.yaml");
        fs::write(&file, limiter.replace("CLUSTER", cluster)).expect("a file");
        for store in ["redis", "tls", "sentinel", "cluster"] {
            let (status, out, error) = weir(&[
                "render",
                file.to_str().expect("UTF-8"),
                "--for",
                "envoy",
                "--store",
                store,
                "--host",
                host,
            ]);
            assert_eq!((status, error.as_str()), (0, ""), "{host}, {store}");
            let name = match (host, store) {
                ("wasm", "redis") => String::from("weir.yaml"),
                ("native", "redis") => String::from("native.yaml"),
                _ => format!("{prefix}{store}.yaml"),
            };
            let shipped = root().join("envoy").join(&name);
            let shipped = fs::read_to_string(shipped).expect("a file");
            let read = |text: &str| envoys_reading("a.yaml", text).expect("YAML");
            assert_eq!(read(&out), read(&shipped), "{name}");
        }
    }
}

/// LDS, CDS and ECDS as files: the limiter changes without a restart.
fn a_new_limiter_is_read() {
    for (host, code) in [("wasm", plugin()), ("native", module())] {
        let stored = Stored::start("redis");
        let files = stored.folder.path().join("files");
        let file = stored.folder.path().join("weir.json");
        let render = |limiter: &str, force: &[String]| {
            fs::write(&file, limiter).expect("a file");
            let mut arguments = vec![String::from("render"), file.display().to_string()];
            arguments.extend(stored.arguments("envoy", host));
            arguments.extend([
                "--listen".into(),
                "127.0.0.1:0".into(),
                "--upstream".into(),
                stored.upstream.address().to_string(),
            ]);
            arguments.extend(["--files".into(), files.display().to_string()]);
            arguments.extend_from_slice(force);
            let (status, out, error) = weir(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!((status, error.as_str(), out.lines().count()), (0, "", 4), "{host}: {out}");
            let names = ["bootstrap.yaml", "lds.yaml", "cds.yaml", "ecds.yaml"].map(|name| files.join(name));
            let mut check = vec!["check", "--deny-warnings"];
            check.extend(names.iter().map(|name| name.to_str().expect("UTF-8")));
            let (status, said, _) = weir(&check);
            assert_eq!(status, 0, "{host}: {said}");
        };
        render(&limiter(), &[]);
        if host == "native" {
            // Envoys side by side must not share an abstract socket.
            for name in ["lds.yaml", "cds.yaml"] {
                let path = files.join(name);
                let text = fs::read_to_string(&path).expect("a file");
                fs::write(&path, text.replace("@weir-", &format!("@platforms-{}-", std::process::id())))
                    .expect("a file");
            }
        }
        assert!(code.exists(), "{}", code.display());
        let bootstrap = fs::read_to_string(files.join("bootstrap.yaml")).expect("a file");
        let envoy = Template::new(&bootstrap).start();
        let edge = envoy.address("edge");
        let send = || http::send(edge, &Request::get("/")).expect("a response").status;
        assert_eq!([(); 4].map(|()| send()), [200, 200, 200, 429], "{host}: {}", envoy.log());
        // Only the limiter's file may change now: another listener would have another port.
        let lds = fs::read(files.join("lds.yaml")).expect("a file");
        render(&limiter().replace("\"p\"", "\"q\"").replace("429", "430"), &["--force".into()]);
        fs::write(files.join("lds.yaml"), lds).expect("a file");
        eventually("the new limiter", || (send() == 200).then_some(()));
        // Where a ConfigMap is mounted, a file is a link into `..data`, a link that is replaced.
        let ecds = files.join("ecds.yaml");
        let text = fs::read_to_string(&ecds).expect("a file");
        let mount = |version: &str, text: &str| {
            let (folder, link) = (files.join(version), files.join("..link"));
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("ecds.yaml"), text).expect("a file");
            symlink(version, &link).expect("a link");
            fs::rename(&link, files.join("..data")).expect("moved");
        };
        mount("..1", &text);
        symlink("..data/ecds.yaml", files.join("..file")).expect("a link");
        fs::rename(files.join("..file"), &ecds).expect("moved");
        while send() == 200 {}
        mount("..2", &text.replace("name: q", "name: r"));
        eventually("the limiter of the new ConfigMap", || (send() == 200).then_some(()));
    }
}
