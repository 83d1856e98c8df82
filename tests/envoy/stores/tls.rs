// SPDX-License-Identifier: Apache-2.0
//! TLS and a user of its own: `envoy/tls.yaml`, `envoy/native-tls.yaml`, and the rights that `docs/stores.md` says this user needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weir::limit::{Ask, Limit};
use weir::resp;
use weir::script::{Form, Options};

use crate::spec;
use crate::store::{Store, plan_with};
use crate::support::certificates::certificates;
use crate::support::cluster::call;
use crate::support::envoy::{Envoy, Template};
use crate::support::eventually;
use crate::support::http;
use crate::support::redis::{Connection, Redis};
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, Kind, PATIENT, Statuses, get, limited, template_of};

pub const TESTS: &[(&str, fn())] = &[
    ("tls: weir limits through TLS, as a user with the least rights", the_least_rights_suffice),
    (
        "tls: the documented rights are those that the scripts use, and no more",
        the_documented_rights_are_exact,
    ),
    ("tls: a stream that succeeds an old one logs in before it takes over", a_successor_logs_in),
    (
        "tls: a successor that is not let in takes no place: who is logged in goes on",
        a_successor_is_not_let_in,
    ),
    ("tls: a wrong password is a failure of the store that says so", a_wrong_password_says_so),
    ("tls: the file of the password is read as documented", the_file_is_read_as_documented),
    ("tls: a password that changes is used from the next connection on", a_password_changes),
    ("tls: a login file that is missing is refused, and one that goes is not needed", the_file_goes),
    ("tls: a user without rights is a failure of the store that says so", a_user_without_rights_says_so),
    ("tls: a missing right is no open door", a_missing_right_is_no_open_door),
    ("tls: a certificate of an unknown authority is refused", a_foreign_certificate_is_refused),
    ("tls: a certificate of somebody else is not spoken to", somebody_elses_certificate_is_refused),
];

const PASSWORD: &str = "correct horse battery staple";

/// A Redis that speaks TLS only, with a certificate for `name`, and the files that go with it.
pub struct Secured {
    pub redis: Redis,
    /// Logged in before the default user was locked out.
    pub admin: Connection,
    files: PathBuf,
    upstream: Upstream,
}

impl Secured {
    pub fn start(name: &str) -> Self {
        static STARTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let files =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{}-{number}", std::process::id()));
        crate::support::empty_folder(&files);
        let redis = Redis::start_tls(name, &files, &["--tls-auth-clients", "no"]).expect("a redis-server");
        let mut admin = redis.connect();
        let password = format!(">{PASSWORD}");
        let user: Vec<_> = ["ACL", "SETUSER", "weir", "on", &password].into_iter().chain(rights()).collect();
        assert_eq!(call(&mut admin, &user), "+OK\r\n");
        assert_eq!(call(&mut admin, &["ACL", "SETUSER", "default", "off"]), "+OK\r\n");
        let secured = Self { redis, admin, files, upstream: Upstream::start() };
        secured.say(&format!("weir:{PASSWORD}"));
        secured
    }

    /// Writes the file that Envoy reads when it starts.
    pub fn say(&self, credentials: &str) {
        fs::write(self.files.join("password"), credentials).expect("the password");
    }

    /// The shipped configuration for TLS, for this Redis.
    pub fn template(&self, limiter: &str) -> Template {
        let file = |name: &str| self.files.join(name).display().to_string();
        template_of(&Host::chosen().shipped_for(Kind::Tls), limiter, self.upstream.address())
            .with(
                "redis, port_value: 6379",
                format!("127.0.0.1, port_value: {}", self.redis.address().port()),
            )
            .with("/etc/ssl/certs/ca-certificates.crt", file("ca.crt"))
            .with("/run/secrets/redis-password", file("password"))
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        // A folder that cannot be removed is no reason to fail a test.
        let _ = fs::remove_dir_all(&self.files);
    }
}

/// The words after `ACL SETUSER weir on >…` in `docs/stores.md`.
pub fn rights() -> Vec<&'static str> {
    let page = include_str!("../../../docs/stores.md");
    let (_, line) = page.split_once("ACL SETUSER weir on >").expect("the documented user");
    line.lines().next().expect("a line").split_whitespace().skip(1).collect()
}

/// All six algorithms; and another policy whose denial refunds their grants.
const ALL: &str = r#""policies": [
    {"name": "all", "subject": [{"literal": "all"}], "limits": [
        {"name": "window", "algorithm": "fixed_window", "limit": 5, "window": "300d"},
        {"name": "first", "algorithm": "fixed_window", "limit": 5, "window": "1d", "align": "first"},
        {"name": "log", "algorithm": "sliding_log", "limit": 5, "window": "1d"},
        {"name": "sliding", "algorithm": "sliding_window", "limit": 5, "window": "1d", "precision": "1h"},
        {"name": "tokens", "algorithm": "token_bucket", "capacity": 5, "refill": 1, "interval": "1d"},
        {"name": "leaky", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 5},
        {"name": "flight", "algorithm": "concurrency", "limit": 5, "ttl": "1h"}]},
    {"name": "each", "subject": [{"header": {"name": "x-user"}}], "limits": [
        {"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}]}]"#;

fn the_least_rights_suffice() {
    let mut secured = Secured::start("redis");
    let envoy = secured.template(&format!("{{{PATIENT}, {ALL}}}")).start();
    let as_user = |user: &str| {
        http::send(envoy.address("edge"), &get().header("x-user", user)).expect("a response").status
    };
    assert_eq!(as_user("ann"), 200);
    // Denied by `each`, so that `all` gets its units back, four times; it would be empty otherwise.
    assert_eq!([(); 4].map(|()| as_user("ann")), [429; 4]);
    assert_eq!(["bob", "eve", "sam", "joe"].map(as_user), [200; 4]);
    assert_eq!(as_user("max"), 429, "five were let in");
    let mut held = || call(&mut secured.admin, &["EXISTS", "weir:{all|all}:flight"]);
    eventually("every place to be released", || (held() == ":0\r\n").then_some(()));
    assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0);
    for told in [envoy.log(), envoy.admin("/config_dump"), envoy.admin("/stats")] {
        assert!(!told.contains(PASSWORD), "Envoy keeps the password to itself");
    }
    let refused = call(&mut secured.admin, &["ACL", "LOG"]);
    assert_eq!(refused, "*0\r\n", "nothing was tried that the user may not do");
    assert!(envoy.stat("cluster.weir-bridge.ssl.handshake") > 0, "it was TLS");
}

fn a_successor_logs_in() {
    let mut secured = Secured::start("redis");
    let envoy = secured.template(&limited(50_000).replace("1/d", "1/h")).start();
    let connections = |which: &str| envoy.stat(&format!("cluster.weir-bridge.upstream_cx_{which}"));
    eventually("a stream to be succeeded, under load, and its successor", || {
        let told = http::burst(envoy.address("edge"), (0..5).map(|_| get())).expect("responses");
        assert!(told.iter().all(|response| response.status == 200));
        assert!(connections("active") <= 3, "{} connections", connections("active"));
        (connections("total") >= 3).then_some(())
    });
    assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0);
    assert_eq!(call(&mut secured.admin, &["ACL", "LOG"]), "*0\r\n");
}

fn a_successor_is_not_let_in() {
    let mut secured = Secured::start("redis");
    let envoy = secured.template(&limited(50_000).replace("1/d", "1/h")).start();
    let burst = || {
        let told = http::burst(envoy.address("edge"), (0..5).map(|_| get())).expect("responses");
        told.iter().filter(|response| response.status == 200).count()
    };
    assert_eq!(burst(), 5);
    // Envoy has read the password when it started.
    assert_eq!(call(&mut secured.admin, &["ACL", "SETUSER", "weir", "resetpass", ">another"]), "+OK\r\n");
    // The dynamic module logs in before it sends a batch, so that none is lost.
    let (refused, costs): (&dyn Fn() -> usize, usize) = match Host::chosen() {
        Host::Wasm => (&|| envoy.stat("wasmcustom.weir.store.wrongpass") as usize, 1),
        Host::Native => (&|| envoy.log().matches("a fresh connection could not be opened").count(), 0),
    };
    for tried in 1..=2 {
        let mut admitted = Vec::new();
        eventually("a successor to be refused", || {
            admitted.push(burst());
            (refused() >= tried).then_some(())
        });
        // One batch at most found it out; whatever was asked before, and after, was decided by Redis.
        let (bad, last) = (admitted.iter().filter(|admitted| **admitted < 5).count(), burst());
        assert!(bad <= costs && last == 5, "{admitted:?}, {last}");
    }
    eventually("the operator to be told", || {
        envoy.log().contains("correct the user or the password").then_some(())
    });
}

fn the_documented_rights_are_exact() {
    let redis = Redis::start().expect("a redis-server");
    let mut admin = redis.connect();
    // Only a script that gets the time as an argument, as the tables pass it, needs PEXPIRE.
    let user = ["ACL", "SETUSER", "weir", "on", "nopass"].into_iter().chain(rights()).chain(["+pexpire"]);
    assert_eq!(call(&mut admin, &user.collect::<Vec<_>>()), "+OK\r\n");
    assert_eq!(call(&mut admin, &["CONFIG", "RESETSTAT"]), "+OK\r\n");
    let ask = |store: &mut Store, now, requests| store.check(now, Ask::new(requests, 1));
    let limited = |limits: Vec<Limit>| {
        let mut store = Store::new(&redis, limits);
        assert_eq!(call(&mut store.redis, &["AUTH", "weir", "any"]), "+OK\r\n");
        store
    };
    // Every case of the specification, and then what is done to a subject after it was asked about.
    for table in spec::tables() {
        let mut store = limited(table.limits);
        for row in &table.rows {
            store.check(Some(row.now), row.ask);
        }
    }
    for table in spec::bans() {
        let mut store = limited(table.limits.clone());
        store.plan = plan_with(table.limits, Options { ban: table.ban, ..Options::default() });
        for row in &table.rows {
            store.check(Some(row.now), row.ask);
        }
        // A ban of an operator's.
        let key = format!("weir:{}:ban", String::from_utf8_lossy(&store.tag));
        call(&mut admin, &["SET", &key, "why", "EX", "100"]);
        assert_eq!(ask(&mut store, None, 1).granted, 0);
    }
    for (_, limit) in spec::each() {
        let mut store = limited(vec![limit]);
        let receipt = ask(&mut store, None, 2);
        store.settle(None, 1, &receipt);
        store.settle(None, -2, &receipt);
        let permits: Vec<_> = receipt.permits(2).collect();
        if !permits.is_empty() {
            store.release(None, &permits[..1]);
            ask(&mut store, None, 1);
            store.release(None, &permits);
        }
        // Something else stands under the key.
        let key = String::from_utf8(store.key(0)).expect("text");
        for poison in [
            ["SET", key.as_str(), "what is this", "KEEPTTL"].as_slice(),
            &["DEL", &key],
            &["SADD", &key, "a"],
        ] {
            call(&mut admin, poison);
            ask(&mut store, None, 1);
        }
    }
    let done = call(&mut admin, &["INFO", "commandstats"]);
    let done = done.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    let ours = ["acl", "auth", "config|resetstat", "info", "pexpire", "sadd"];
    let done: BTreeSet<_> = done.filter(|command| !ours.contains(command)).collect();
    let documented: BTreeSet<_> = rights().into_iter().filter_map(|right| right.strip_prefix('+')).collect();
    assert_eq!(done, documented);
    assert_eq!(call(&mut admin, &["ACL", "LOG"]), "*0\r\n");
}

/// Every request is decided without the store, and the operator reads `why`.
fn fails_with(secured: &Secured, template: Template, why: &str) -> Envoy {
    let envoy = template.start();
    let statuses: Statuses = http::burst(envoy.address("edge"), (0..20).map(|_| get()))
        .expect("responses")
        .iter()
        .map(|response| response.status)
        .collect();
    assert_eq!(statuses, Statuses(vec![(503, 20)]));
    assert_eq!(secured.upstream.requests(), 0);
    let log = eventually("a line in the log", || Some(envoy.log()).filter(|log| log.contains("store: ")));
    assert!(log.contains(why), "{why:?} is not in:\n{log}");
    assert!(!log.contains(PASSWORD) && !log.contains("a guess"), "no password is logged:\n{log}");
    eventually("each to be counted", || (envoy.stat("wasmcustom.weir.fallback") == 20).then_some(()));
    envoy
}

fn a_wrong_password_says_so() {
    // Before a login, Redis accepts only short commands: it does not read an eleventh argument.
    for limiter in [limited(5), format!("{{{PATIENT}, {ALL}}}")] {
        for credentials in ["weir:a guess", "nobody:a guess", "a guess"] {
            let mut secured = Secured::start("redis");
            let default = ["ACL", "SETUSER", "default", "on", "resetpass", ">secret"];
            assert_eq!(call(&mut secured.admin, &default), "+OK\r\n");
            secured.say(credentials);
            fails_with(&secured, secured.template(&limiter), "password");
        }
    }
}

fn the_file_is_read_as_documented() {
    for (what, user, password, file) in [
        ("a user", "weir", "secret", "weir:secret"),
        ("a line end", "weir", "secret", "weir:secret\n"),
        ("a line end of windows", "weir", "secret", "weir:secret\r\n"),
        ("a colon", "weir", "se:cr:et", "weir:se:cr:et"),
        ("letters of all kinds", "weir", " §€crèt\" ", "weir: §€crèt\" "),
        ("a password alone", "default", "secret", "secret"),
        ("a password alone, with a colon", "default", "se:cret", ":se:cret"),
        ("a password alone, and a line end", "default", "secret", "secret\n"),
    ] {
        let mut secured = Secured::start("redis");
        let words = ["ACL", "SETUSER", user, "on", "resetpass", &format!(">{password}")];
        assert_eq!(call(&mut secured.admin, &words), "+OK\r\n", "{what}");
        secured.say(file);
        let envoy = secured.template(&limited(2)).start();
        let status = || http::send(envoy.address("edge"), &get()).expect("a response").status;
        assert_eq!([(); 3].map(|()| status()), [200, 200, 429], "{what}: {}", envoy.log());
    }
}

/// As documented: it is read again when another file takes the place of the one that was read.
fn a_password_changes() {
    let mut secured = Secured::start("redis");
    let template = secured.template(&limited(50_000).replace("1/d", "1/h"));
    let (file, next) = (secured.files.join("secret.yaml"), secured.files.join("next.yaml"));
    let (template, form): (_, fn(&str) -> String) = match Host::chosen() {
        Host::Wasm => {
            let source = format!(
                "credential: {{name: redis-password, sds_config: {{path_config_source: {{path: {}}}}}}}",
                file.display()
            );
            let template = template.with("credential: {name: redis-password}", source);
            let form = |password: &str| {
                format!(
                    "resources:\n- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  \
                     name: redis-password\n  generic_secret: {{secret: {{inline_string: \"weir:{password}\"}}}}\n"
                )
            };
            (
                template.with("static_resources:\n", "node: {id: test, cluster: test}\nstatic_resources:\n"),
                form,
            )
        }
        Host::Native => {
            let read = secured.files.join("password").display().to_string();
            (template.with(&read, file.display()), |password| format!("weir:{password}\n"))
        }
    };
    let now_is = |password: &str| {
        fs::write(&next, form(password)).expect("a file");
        fs::rename(&next, &file).expect("it takes the other's place");
    };
    now_is(PASSWORD);
    let envoy = template.start();
    let burst = || http::burst(envoy.address("edge"), (0..5).map(|_| get())).expect("responses");
    let admitted = || burst().iter().filter(|response| response.status == 200).count();
    assert_eq!(admitted(), 5);
    assert_eq!(call(&mut secured.admin, &["ACL", "SETUSER", "weir", ">another"]), "+OK\r\n");
    now_is("another");
    if Host::chosen() == Host::Wasm {
        eventually("Envoy to read it", || {
            (envoy.stat("sds.redis-password.update_success") > 1).then_some(())
        });
    }
    let words = ["ACL", "SETUSER", "weir", &format!("<{PASSWORD}")];
    assert_eq!(call(&mut secured.admin, &words), "+OK\r\n");
    // Those that are open stay open and logged in; what follows them is not.
    let connections = || envoy.stat("cluster.weir-bridge.upstream_cx_total");
    let before = connections();
    eventually("a successor, which all requests are decided on", || {
        assert_eq!(admitted(), 5);
        (connections() >= before + 2).then_some(())
    });
    assert_eq!(call(&mut secured.admin, &["ACL", "LOG"]), "*0\r\n", "no login was refused");
}

/// Envoy does not start without it. Later, the login is what it was.
fn the_file_goes() {
    let mut secured = Secured::start("redis");
    let file = secured.files.join("password");
    let template = secured.template(&limited(50_000).replace("1/d", "1/h"));
    for (what, content) in
        [("nothing", None), ("empty", Some(String::new())), ("long", Some("x".repeat(5_000)))]
    {
        match content {
            None => fs::remove_file(&file).expect("a file"),
            Some(content) => fs::write(&file, content).expect("a file"),
        }
        // Envoy itself reads the plugin's, and accepts any text.
        if what == "nothing" || Host::chosen() == Host::Native {
            let log = template.try_start().expect_err("Envoy must not start");
            assert!(log.contains(&file.display().to_string()) && log.contains("password"), "{what}: {log}");
        }
    }
    secured.say(&format!("weir:{PASSWORD}"));
    let envoy = template.start();
    let status = || http::send(envoy.address("edge"), &get()).expect("a response").status;
    assert_eq!(status(), 200);
    fs::remove_file(&file).expect("a file");
    for _ in 0..3 {
        call(&mut secured.admin, &["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("Redis to decide", || (status() == 200).then_some(()));
    }
    assert_eq!(call(&mut secured.admin, &["ACL", "LOG"]), "*0\r\n", "no login was refused");
}

/// A script repairs a state that is damaged; that it may not read or write it must not look like that.
fn a_missing_right_is_no_open_door() {
    let redis = Redis::start().expect("a redis-server");
    let mut admin = redis.connect();
    let mut granted = |limit: &Limit, missing: Option<&str>| {
        let user = ["ACL", "SETUSER", "weir", "reset", "on", "nopass"].into_iter().chain(rights());
        let user: Vec<_> = user.chain(["+pexpire"]).filter(|right| Some(*right) != missing).collect();
        assert_eq!(call(&mut admin, &user), "+OK\r\n");
        let mut store = Store::new(&redis, vec![limit.clone()]);
        assert_eq!(call(&mut store.redis, &["AUTH", "weir", "any"]), "+OK\r\n");
        let mut ask = |form| {
            let mut command = Vec::new();
            store.plan.check(&store.tag, Ask::new(1, 1), Some(spec::START), form, &mut command);
            let reply = store.redis.pipeline(&command, 1).remove(0);
            let (reply, _) = resp::decode(&reply).expect("RESP").expect("a whole reply");
            store.plan.outcome(&reply).map_or(0, |outcome| outcome.granted)
        };
        (0..20).map(|_| ask(Form::Eval)).sum::<u32>()
    };
    for (name, limit) in spec::each() {
        let most = granted(&limit, None);
        for right in rights().into_iter().filter(|right| right.starts_with('+')) {
            let without = granted(&limit, Some(right));
            assert!(without <= most, "{name} without {right}: {without} where {most} may pass");
        }
    }
}

fn a_user_without_rights_says_so() {
    let mut secured = Secured::start("redis");
    assert_eq!(call(&mut secured.admin, &["ACL", "SETUSER", "weir", "-evalsha"]), "+OK\r\n");
    fails_with(&secured, secured.template(&format!("{{{PATIENT}, {ALL}}}")), "NOPERM");
}

fn a_foreign_certificate_is_refused() {
    let secured = Secured::start("redis");
    let template = secured.template(&format!("{{{PATIENT}, {ALL}}}"));
    // Another authority than the one that signed what Redis shows.
    certificates("redis", &secured.files);
    let envoy = fails_with(&secured, template, "store: ");
    assert!(envoy.stat("cluster.weir-bridge.ssl.fail_verify_error") > 0);
}

fn somebody_elses_certificate_is_refused() {
    let secured = Secured::start("someone-else");
    let envoy = fails_with(&secured, secured.template(&format!("{{{PATIENT}, {ALL}}}")), "store: ");
    assert!(envoy.stat("cluster.weir-bridge.ssl.fail_verify_san") > 0);
}
