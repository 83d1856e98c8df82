// SPDX-License-Identifier: Apache-2.0
//! The connections of commands to Redis: TLS, users, Redis Cluster, Sentinel, and the messages when one fails. No password is in the
//! output.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use weir::policy::key::slot;

use super::{CONFIG, World, command, has_redis, run, world};
use crate::support::certificates::certificates;
use crate::support::cluster::{Cluster, call};
use crate::support::redis::{Redis, free_address};
use crate::support::sentinel::{Sentinel, replicated};
use crate::support::{TempFolder, eventually};

const PASSWORD: &str = "correct:horse battery";

/// `weir inspect` of a subject in this folder's configuration, at these URLs.
fn inspect(folder: &Path, urls: &str, more: &[&str]) -> Command {
    let file = folder.join("weir.yaml").display().to_string();
    let words = [&["inspect", &file, "--subject", "{login|ann}", "--redis", urls], more].concat();
    command(&words.into_iter().map(str::to_owned).collect::<Vec<_>>())
}

/// Its failure. It does not have the password.
fn failure(command: &mut Command) -> String {
    let (status, out, failure) = run(command);
    assert_eq!((status, out.as_str()), (2, ""), "{failure}");
    assert!(!failure.contains(PASSWORD) && !failure.contains("horse"), "{failure}");
    failure
}

fn succeeds(command: &mut Command) {
    let (status, out, failure) = run(command);
    assert_eq!((status, failure.as_str()), (0, ""));
    assert!(out.starts_with("policy login, subject {login|ann}") && !out.contains("horse"), "{out}");
}

#[test]
fn urls_are_tried_in_order_and_refused_with_a_reason() {
    let Some(world) = world() else { return };
    let (folder, url) = (world.folder.path(), world.url());
    let nobody = format!("redis://{}", free_address());
    succeeds(&mut inspect(folder, &url, &[]));
    succeeds(&mut inspect(folder, &format!("{nobody},{url}"), &[]));
    succeeds(&mut inspect(folder, &format!("unix://{}", world.redis.socket().display()), &[]));
    succeeds(&mut inspect(folder, &format!("{url}/3"), &["--timeout", "60s"]));
    #[rustfmt::skip]
    let rows = [
        ("nothing listens", nobody.clone(), "Connection refused"),
        ("no such database", format!("{url}/99"), "DB index is out of range"),
        ("no scheme", "localhost".into(), "allowed is redis://host[:port][/database], rediss://host[:port][/database] or unix:///path"),
        ("another scheme", "http://ann:horse@localhost".into(), "--redis http://…@localhost: allowed is redis://"),
        ("no socket", "unix:///no/such/socket".into(), "Redis at /no/such/socket: No such file"),
        ("no name", "redis://no-such-host.invalid".into(), "Redis at no-such-host.invalid:6379: "),
        ("TLS where there is none", url.replace("redis:", "rediss:"), "Redis at 127.0.0.1:"),
    ];
    for (row, url, wanted) in rows {
        let failure = failure(&mut inspect(folder, &url, &[]));
        assert!(failure.contains(wanted), "{row}: {failure}");
    }
    let (status, failure) = world.fails("inspect FILE --subject {login|ann} --timeout 1h");
    assert!(status == 2 && failure.contains("allowed is 10ms to 60s"), "{failure}");
    let words = ["bans"].map(str::to_owned);
    assert_eq!(run(&mut command(&words)).2, "weir: which Redis? Write --redis URL, or set WEIR_REDIS\n");
}

#[test]
fn no_command_waits_longer_than_the_timeout() {
    let Some(world) = world() else { return };
    world.redis.freeze();
    let url = format!("unix://{}", world.redis.socket().display());
    for url in [world.url(), url] {
        let failure = failure(&mut inspect(world.folder.path(), &url, &["--timeout", "200ms"]));
        assert!(failure.contains("no answer within 200 ms"), "{failure}");
    }
    world.redis.thaw();
}

#[test]
fn a_command_that_was_stopped_while_it_waited_says_so() {
    let Some(world) = world() else { return };
    world.redis.freeze();
    let unix = format!("unix://{}", world.redis.socket().display());
    for url in [world.url(), unix] {
        let mut command = inspect(world.folder.path(), &url, &["--timeout", "60s"]);
        let mut waiting = command.stderr(Stdio::piped()).spawn().expect("the command");
        let id = waiting.id();
        let signal = |name: &str| assert!(crate::support::signal(name, id), "kill {name} failed");
        eventually("the command to be stopped while it waits", || {
            signal("-STOP");
            signal("-CONT");
            waiting.try_wait().expect("its state").map(drop)
        });
        let ended = waiting.wait_with_output().expect("its output");
        let failure = String::from_utf8_lossy(&ended.stderr);
        let wanted = "this command was stopped while it waited for an answer; run it again";
        assert!(ended.status.code() == Some(2) && failure.contains(wanted), "{failure}");
    }
    world.redis.thaw();
}

#[test]
fn a_login_comes_from_a_file_or_from_the_environment() {
    let Some(world) = world() else { return };
    let folder = world.folder.path();
    let rights = [
        "~edge:*", "-@all", "+evalsha", "+eval", "+time", "+get", "+lrange", "+llen", "+exists", "+pttl",
        "+lindex",
    ];
    let user = format!(">{PASSWORD}");
    let mut admin = world.redis.connect();
    let words: Vec<_> = ["ACL", "SETUSER", "operator", "on", &user].into_iter().chain(rights).collect();
    assert_eq!(call(&mut admin, &words), "+OK\r\n");
    assert_eq!(call(&mut admin, &["ACL", "SETUSER", "default", "off"]), "+OK\r\n");
    let login = format!("operator:{PASSWORD}");
    let file = folder.join("login");
    fs::write(&file, format!("{login}\n")).expect("a file");
    let file = file.display().to_string();
    succeeds(&mut inspect(folder, &world.url(), &["--login-file", &file]));
    succeeds(inspect(folder, &world.url(), &[]).env("WEIR_REDIS_LOGIN", &login));
    // The file counts before the environment, and both before the URL.
    succeeds(inspect(folder, &world.url(), &["--login-file", &file]).env("WEIR_REDIS_LOGIN", "wrong"));
    let (status, _, warning) =
        run(inspect(folder, &world.url().replace("//", "//ann:horse@"), &[]).env("WEIR_REDIS_LOGIN", &login));
    assert_eq!(status, 0, "{warning}");
    assert!(
        warning.contains("others can see a password in --redis") && !warning.contains("horse"),
        "{warning}"
    );
    #[rustfmt::skip]
    let rows = [
        ("none", None, "NOAUTH"),
        ("a wrong password", Some("operator:wrong-horse"), "the login was refused: check the user and the password"),
        ("of no user", Some("nobody:wrong-horse"), "the login was refused"),
        ("no password", Some("operator:"), "WEIR_REDIS_LOGIN: allowed is one line, `user:password` or a password"),
    ];
    for (row, login, wanted) in rows {
        let mut command = inspect(folder, &world.url(), &[]);
        if let Some(login) = login {
            command.env("WEIR_REDIS_LOGIN", login);
        }
        let failure = failure(&mut command);
        assert!(failure.contains(wanted), "{row}: {failure}");
    }
    let failure = failure(&mut inspect(folder, &world.url(), &["--login-file", "/no/such/file"]));
    assert!(failure.contains("/no/such/file: No such file"), "{failure}");
    // The message says what the user may not do.
    let (status, _, failure) =
        run(command(&["bans", "--redis", &world.url()].map(str::to_owned)).env("WEIR_REDIS_LOGIN", &login));
    assert!(
        status == 2
            && failure.contains("NOPERM")
            && failure.contains("'scan' command: give the user this right"),
        "{failure}"
    );
}

/// Returns the words that follow this in a document.
fn documented(page: &'static str, begin: &str) -> Vec<&'static str> {
    let (_, line) = page.split_once(begin).expect("the documented user");
    line.lines().next().expect("a line").split_whitespace().filter(|word| !word.starts_with('>')).collect()
}

#[test]
fn the_documented_rights_of_an_operator_suffice() {
    let Some(world) = world() else { return };
    let weirs = documented(include_str!("../../../../docs/stores.md"), "ACL SETUSER weir on >password ");
    let more = documented(include_str!("../../../../docs/command.md"), "ACL SETUSER operator ");
    assert!(weirs.contains(&"~weir:*") && more.contains(&"+scan"), "{weirs:?} {more:?}");
    let mut admin = world.redis.connect();
    let user = format!(">{PASSWORD}");
    let words = [&["ACL", "SETUSER", "operator", "on", &user][..], &weirs, &["~edge:*"], &more].concat();
    assert_eq!(call(&mut admin, &words), "+OK\r\n");
    let file = world.file();
    let weir = |words: &str| {
        let words: Vec<String> = words.split(' ').map(|word| word.replace("FILE", &file)).collect();
        let (status, out, failure) = run(command(&words)
            .env("WEIR_REDIS", world.url())
            .env("WEIR_REDIS_LOGIN", format!("operator:{PASSWORD}")));
        assert_eq!((status, failure.as_str()), (0, ""), "{words:?}");
        out
    };
    world.requests("{login|ann}", 2);
    for words in [
        "inspect FILE --subject {login|ann}",
        "hot --used FILE",
        "usage FILE",
        "reset FILE --subject {login|ann} -y",
        "ban FILE --subject {login|ann} -y --for 1h",
        "ban FILE --subject {login|ann} -y",
        "bans FILE",
        "unban FILE --subject {login|ann} -y",
        "override set FILE --subject {api|ann} hour.limit=3 -y --for 1h",
        "override set FILE --subject {api|ann} hour.limit=4 -y",
        "override get FILE --subject {api|ann}",
        "override unset FILE --subject {api|ann} -y",
        "hot --prefix edge",
        "audit FILE",
        "journal --prefix edge",
    ] {
        weir(words);
    }
    assert!(
        weir("explain FILE --path /api -H x-user:ann --redis URL".replace("URL", &world.url()).as_str())
            .contains("api would admit it")
    );
}

#[test]
fn tls_is_spoken_to_whom_an_authority_vouches_for() {
    if !has_redis() {
        return crate::support::not_tested("no redis-server here");
    }
    let (files, strangers) = (TempFolder::new("tls"), TempFolder::new("tls"));
    let file = |name: &str| files.path().join(name).display().to_string();
    let redis = Redis::start_tls("localhost", files.path(), &["--tls-auth-clients", "yes"]);
    let world = World::on(redis.expect("a redis-server"));
    let folder = world.folder.path();
    let port = world.redis.address().port();
    let url = format!("rediss://localhost:{port}");
    let ours = ["--ca", &file("ca.crt"), "--cert", &file("client.crt"), "--key", &file("client.key")];
    succeeds(&mut inspect(folder, &url, &ours));
    #[rustfmt::skip]
    let rows: [(&str, String, Vec<&str>, &str); 5] = [
        ("an authority that is not known", url.clone(), vec![],
         "its certificate is signed by an authority that this machine does not trust; name the authority with --ca"),
        ("another name", format!("rediss://127.0.0.1:{port}"), ours.to_vec(), "its certificate is for another name"),
        ("without a certificate of its own", url.clone(), ours[..2].to_vec(), "Redis at localhost:"),
        ("without TLS", format!("redis://localhost:{port}"), vec![], "if it expects TLS, write rediss:// in place of redis://"),
        ("no PEM", url.clone(), vec!["--ca", "/dev/null"], "Redis at localhost:"),
    ];
    for (row, url, more, wanted) in rows {
        let failure = failure(&mut inspect(folder, &url, &more));
        assert!(failure.contains(wanted), "{row}: {failure}");
    }
    certificates("localhost", strangers.path());
    let stranger = strangers.path().join("ca.crt").display().to_string();
    failure(&mut inspect(
        folder,
        &url,
        &["--ca", &stranger, "--cert", &file("client.crt"), "--key", &file("client.key")],
    ));
    let (status, _, failure) = run(&mut inspect(folder, &url, &["--cert", &file("client.crt")]));
    assert!(status == 2 && failure.contains("--key <FILE>"), "{failure}");
}

#[test]
fn any_node_of_a_cluster_leads_to_all_of_it() {
    let Some(cluster) = Cluster::start(3, false) else {
        return crate::support::not_tested("no redis-server here");
    };
    let folder = TempFolder::new("cluster");
    fs::write(folder.path().join("weir.yaml"), CONFIG).expect("a file");
    let file = folder.path().join("weir.yaml").display().to_string();
    let users = ["ann", "bob", "eve", "joe", "kim", "lea", "max", "ned"];
    let homes: std::collections::BTreeSet<_> =
        users.iter().map(|user| cluster.home(slot(format!("{{login|{user}}}").as_bytes()))).collect();
    assert_eq!(homes.len(), 3, "subjects on each node");
    let url = format!("redis://{}", cluster.nodes[1].address());
    let weir = |words: &[&str]| {
        let words = [words, &["--redis", &url]].concat();
        let (status, out, failure) =
            run(&mut command(&words.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        assert_eq!((status, failure.as_str()), (0, ""));
        out
    };
    for user in users {
        let subject = format!("{{login|{user}}}");
        weir(&["ban", &file, "--subject", &subject, "--for", "1h", "-y"]);
        assert!(weir(&["inspect", &file, "--subject", &subject]).contains("ban: for another 1 h"));
    }
    let listed: String = users
        .iter()
        .map(|user| format!("{{login|{user}}} for another 1 h, imposed: no reason given\n"))
        .collect();
    assert_eq!(weir(&["bans", &file]), listed);
    weir(&["override", "set", &file, "--subject", "{api|ann}", "hour.limit=3", "-y"]);
    assert!(weir(&["inspect", &file, "--subject", "{api|ann}"]).contains("10 of 10").eq(&false));
    for user in users {
        weir(&["unban", &file, "--subject", &format!("{{login|{user}}}"), "-y"]);
    }
    assert_eq!(weir(&["bans", &file]), "no subject is banned\n");
    let list = folder.path().join("list.txt").display().to_string();
    fs::write(&list, users.join("\n")).expect("a file");
    let each = ["--policy", "login", "--path", "/login", "-H", "x-user: {}"];
    weir(&[&["ban", &file, "--from", &list, "--for", "1h", "-y"], &each[..]].concat());
    assert_eq!(weir(&["bans", &file]), listed);
    // The audit is on one of them, and has an entry for each change.
    let audit = weir(&["audit", &file]);
    let row = |action: &str, subject: &str| {
        audit.lines().any(|line| line.contains(&format!(" {action}  ")) && line.contains(subject))
    };
    assert!(
        users.iter().all(|user| row("ban", user) && row("unban", user)) && row("override set", "{api|ann}"),
        "{audit}"
    );
    assert!(row("ban", "{login|*}"), "{audit}");
    assert_eq!(audit.lines().count(), 1 + users.len() * 2 + 2, "{audit}");
    assert!(!audit.contains("failed"), "{audit}");
    // The journal is on one of them.
    let home = cluster.home(slot(b"{journal}"));
    call(
        &mut cluster.nodes[home].connect(),
        &["XADD", "edge:{journal}", "5-1", "outcome", "rejected", "age_ms", "0"],
    );
    assert_eq!(weir(&["journal", "--prefix", "edge"]), "1970-01-01T00:00:00.005Z rejected\n");
    // A node that hangs ends a command about its slots within some time-outs, and no command about others.
    let home = cluster.home(slot(b"{login|ann}"));
    cluster.nodes[home].freeze();
    let other = users.iter().find(|user| cluster.home(slot(format!("{{login|{user}}}").as_bytes())) != home);
    let other = format!("{{login|{}}}", other.expect("a user elsewhere"));
    let live = cluster.nodes.iter().enumerate().find(|(place, _)| *place != home).expect("another node").1;
    let url = format!("redis://{}", live.address());
    let ask = |subject: &str, timeout: &str| {
        run(&mut command(&["inspect", &file, "--subject", subject, "--redis", &url, "--timeout", timeout]))
    };
    let (status, _, failure) = ask("{login|ann}", "300ms");
    assert!(status == 2 && failure.contains("no answer within 300 ms"), "{failure}");
    let (status, out, failure) = ask(&other, "5s");
    assert!(status == 0 && out.contains("2 of 2 left"), "{failure}");
    cluster.nodes[home].thaw();
    // The message names a node that is unavailable.
    let gone = format!("redis://{}", free_address());
    let words = ["bans", &file, "--redis", &format!("{gone},{url}")].map(str::to_owned);
    assert_eq!(run(&mut command(&words)).0, 0, "the other node is asked");
}

#[test]
fn a_cluster_may_speak_tls_and_have_users() {
    if !has_redis() {
        return crate::support::not_tested("no redis-server here");
    }
    let files = TempFolder::new("tls-cluster");
    let file = |name: &str| files.path().join(name).display().to_string();
    let bus = free_address().port().to_string();
    let node = ["--tls-cluster", "yes", "--cluster-enabled", "yes", "--cluster-port", &bus];
    let more = [&["--tls-auth-clients", "no"], &node[..]].concat();
    let redis = Redis::start_tls("127.0.0.1", files.path(), &more).expect("a redis-server");
    let mut admin = redis.connect();
    call(&mut admin, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("the cluster", || {
        call(&mut admin, &["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(())
    });
    let user = format!(">{PASSWORD}");
    assert_eq!(call(&mut admin, &["ACL", "SETUSER", "operator", "on", &user, "~*", "+@all"]), "+OK\r\n");
    assert_eq!(call(&mut admin, &["ACL", "SETUSER", "default", "off"]), "+OK\r\n");
    let world = World::on(redis);
    let url = format!("rediss://127.0.0.1:{}", world.redis.address().port());
    let login = format!("operator:{PASSWORD}");
    let ca = file("ca.crt");
    let patient = ["--ca", &ca, "--timeout", "60s"];
    succeeds(inspect(world.folder.path(), &url, &patient).env("WEIR_REDIS_LOGIN", &login));
    let bans = [&["bans", "--redis", url.as_str()], &patient[..]].concat();
    let (status, out, failure) = run(
        command(&bans.into_iter().map(str::to_owned).collect::<Vec<_>>()).env("WEIR_REDIS_LOGIN", &login)
    );
    assert_eq!((status, out.as_str(), failure.as_str()), (0, "no subject is banned\n", ""));
    let failure = self::failure(
        inspect(world.folder.path(), &url, &["--ca", &file("ca.crt")])
            .env("WEIR_REDIS_LOGIN", "operator:horse"),
    );
    assert!(failure.contains("the login was refused"), "{failure}");
}

#[test]
fn sentinels_lead_to_the_primary() {
    if !has_redis() {
        return crate::support::not_tested("no redis-server here");
    }
    let mut nodes = replicated();
    let folder = TempFolder::new("sentinel");
    fs::write(folder.path().join("weir.yaml"), CONFIG).expect("a file");
    let sentinel = Sentinel::start(&nodes[0]);
    sentinel.knows(2);
    sentinel.waits(20_000);
    let url = format!("redis://{}", sentinel.address());
    succeeds(&mut inspect(folder.path(), &url, &[]));
    succeeds(&mut inspect(folder.path(), &url, &["--sentinel", "weir"]));
    // The primary may want a login that the sentinel does not know.
    succeeds(inspect(folder.path(), &url, &[]).env("WEIR_SENTINEL_LOGIN", "nobody:horse"));
    let failure = failure(&mut inspect(folder.path(), &url, &["--sentinel", "redis"]));
    assert!(failure.contains("knows no primary \"redis\", but: weir"), "{failure}");
    let file = folder.path().join("weir.yaml").display().to_string();
    let ban = ["ban", &file, "--subject", "{login|ann}", "-y", "--redis", &url].map(str::to_owned);
    assert_eq!(run(&mut command(&ban)).0, 0);
    sentinel.waits(500);
    nodes[0].stop();
    sentinel.has_left(nodes[0].address());
    eventually("the new primary to be reached", || (run(&mut command(&ban)).0 == 0).then_some(()));
    // A sentinel that changes the role of a node closes the connections to it, so a node is asked until it answers.
    eventually("a replica to refuse", || {
        nodes[1..].iter().find_map(|node| {
            let url = format!("redis://{}", node.address());
            let words = ["ban", &file, "--subject", "{login|ann}", "-y", "--redis", &url].map(str::to_owned);
            let (status, _, failure) = run(&mut command(&words));
            let refused =
                failure.contains("READONLY") && failure.contains("name the primary, or the sentinels");
            (status == 2 && refused).then_some(())
        })
    });
}

#[test]
fn a_sentinel_may_have_a_login_of_its_own() {
    let Some(world) = world() else { return };
    let redis = &world.redis;
    assert_eq!(redis.connect().say("ACL SETUSER operator on >horse ~* +@all"), "+OK\r\n");
    let lines = ["requirepass guard", "sentinel auth-user weir operator", "sentinel auth-pass weir horse"]
        .map(str::to_owned);
    let sentinel = Sentinel::start_with(redis, &lines);
    assert_eq!(redis.connect().say("ACL SETUSER default off"), "+OK\r\n");
    let url = format!("redis://{}", sentinel.address());
    let ask = || {
        let mut command = inspect(world.folder.path(), &url, &[]);
        command.env("WEIR_REDIS_LOGIN", "operator:horse");
        command
    };
    succeeds(ask().env("WEIR_SENTINEL_LOGIN", "guard"));
    let failure = failure(&mut ask());
    assert!(failure.contains("the login was refused"), "{failure}");
    // Or none at all, where Redis has one.
    let open = Sentinel::start_with(redis, &lines[1..]);
    let mut command = inspect(world.folder.path(), &format!("redis://{}", open.address()), &[]);
    succeeds(command.env("WEIR_REDIS_LOGIN", "operator:horse"));
}
