// SPDX-License-Identifier: Apache-2.0
//! The password of Redis is in no output: each configuration that is shipped, with a login, at Envoy's most talkative level, while it is
//! accepted and while it is refused.

use std::fs;

use crate::cluster;
use crate::support::TempFolder;
use crate::support::cluster::{Cluster, call};
use crate::support::envoy::{Envoy, Template};
use crate::support::eventually;
use crate::support::http;
use crate::support::redis::{Connection, Redis};
use crate::support::regions::{HERE, NAMES, section, with_stores};
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, Kind, PATIENT, get, limited, template, template_on_nodes, with_login};
use crate::tls::{Secured, rights};

pub const TESTS: &[(&str, fn())] = &[
    ("secrets: the password of one Redis is in no output", of_one),
    ("secrets: the password of a Redis over TLS is in no output", over_tls),
    ("secrets: the password of Redis behind Sentinel's configuration is in no output", of_a_primary),
    ("secrets: the password of a Redis Cluster is in no output", of_a_cluster),
    ("secrets: the password of two regions is in no output", of_two_regions),
];

/// The password as it would be in plain text, in a header of basic authentication, and in bytes that are printed.
const PASSWORD: &str = "Kr0kodil-Marker-77";
const FORMS: [&str; 5] =
    [PASSWORD, "S3Iwa29kaWwtTWFya2VyLTc3", "d2VpcjpLcjBrb2RpbC1NYXJrZXItNzc", "4b72306b6f64696c", "Kr0kodil"];

/// weir's user; health checks of Envoy need no login.
fn secure(redis: &Redis) -> Connection {
    let mut admin = redis.connect();
    assert_eq!(
        call(&mut admin, &["ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all"]),
        "+OK\r\n"
    );
    assert_eq!(call(&mut admin, &["AUTH", "admin", "admin"]), "+OK\r\n");
    let password = format!(">{PASSWORD}");
    let user: Vec<_> = ["ACL", "SETUSER", "weir", "on", &password]
        .into_iter()
        .chain(rights())
        .chain(["+cluster|slots", "+asking"])
        .collect();
    assert_eq!(call(&mut admin, &user), "+OK\r\n");
    let default = ["ACL", "SETUSER", "default", "on", "nopass", "resetkeys", "-@all", "+role"];
    assert_eq!(call(&mut admin, &default), "+OK\r\n");
    admin
}

/// A limiter that asks Redis, and decides nothing without it.
fn limiter() -> String {
    limited(1_000).replace(r#""deadline": "10s""#, r#""deadline": "2s""#)
}

/// All output of Envoy.
fn told(envoy: &Envoy) -> Vec<(&'static str, String)> {
    let mut told: Vec<_> = [
        "/config_dump?include_eds",
        "/init_dump",
        "/stats",
        "/stats/prometheus",
        "/clusters",
        "/listeners",
        "/server_info",
        "/runtime",
        "/certs",
        "/memory",
    ]
    .map(|page| (page, envoy.admin(page)))
    .into();
    let arguments = fs::read(format!("/proc/{}/cmdline", envoy.pid())).expect("its arguments");
    told.push(("ps", String::from_utf8_lossy(&arguments).into_owned()));
    told.push(("the log", envoy.log()));
    told
}

/// Runs it with the right password, and with one that Redis refuses.
fn quiet(template: Template, admins: &mut [Connection]) {
    let envoy = template.argument("--log-level").argument("trace").start();
    let status = || http::send(envoy.address("edge"), &get()).expect("a response").status;
    eventually("Redis to decide", || (status() == 200).then_some(()));
    silent(&envoy);
    for admin in admins.iter_mut() {
        assert_eq!(call(admin, &["ACL", "SETUSER", "weir", "resetpass", ">another"]), "+OK\r\n");
        call(admin, &["CLIENT", "KILL", "TYPE", "normal"]);
    }
    eventually("Redis to refuse the login", || (status() == 503).then_some(()));
    (0..3).for_each(|_| assert_eq!(status(), 503));
    silent(&envoy);
}

fn silent(envoy: &Envoy) {
    for (what, text) in told(envoy) {
        for form in FORMS {
            let line = text.lines().find(|line| line.contains(form));
            assert!(line.is_none(), "{what} has the password: {line:?}");
        }
    }
    let log = envoy.log();
    assert!(log.contains("[trace]") && log.contains("[debug]"), "the log is not at its most talkative level");
}

/// A folder with the login.
fn login() -> TempFolder {
    let folder = TempFolder::new("secrets");
    fs::write(folder.path().join("login"), format!("weir:{PASSWORD}\n")).expect("a file");
    folder
}

fn of_one() {
    let (redis, upstream, login) = (Redis::start().expect("a redis-server"), Upstream::start(), login());
    let admin = secure(&redis);
    let shipped = template(&limiter(), redis.address(), upstream.address());
    quiet(Template::new(&with_login(shipped.config(), &login.path().join("login"))), &mut [admin]);
}

fn over_tls() {
    let mut secured = Secured::start("redis");
    let password = format!(">{PASSWORD}");
    assert_eq!(call(&mut secured.admin, &["ACL", "SETUSER", "weir", &password]), "+OK\r\n");
    secured.say(&format!("weir:{PASSWORD}\n"));
    let template = secured.template(&limiter());
    quiet(template, std::slice::from_mut(&mut secured.admin));
}

/// One of the nodes is there, and it is the primary.
fn of_a_primary() {
    let (redis, upstream, login) = (Redis::start().expect("a redis-server"), Upstream::start(), login());
    let admin = secure(&redis);
    let absent = [Redis::absent(), Redis::absent()];
    let nodes = [&redis, &absent[0], &absent[1]].map(Redis::address);
    let shipped = template_on_nodes(Kind::Sentinel, nodes.into_iter(), &limiter(), upstream.address());
    quiet(Template::new(&with_login(shipped.config(), &login.path().join("login"))), &mut [admin]);
}

fn of_a_cluster() {
    let (cluster, upstream, login) =
        (Cluster::start(3, false).expect("a redis-server"), Upstream::start(), login());
    fs::write(login.path().join("password"), PASSWORD).expect("a file");
    let mut admins: Vec<_> = cluster.nodes.iter().map(secure).collect();
    let nodes: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    let options = format!(
        r#"lb_policy: CLUSTER_PROVIDED
    typed_extension_protocol_options:
      envoy.filters.network.redis_proxy:
        "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions
        auth_username: {{inline_string: weir}}
        auth_password: {{filename: {}}}"#,
        login.path().join("password").display()
    );
    let template =
        cluster::template(&nodes, &limiter(), &upstream).with("lb_policy: CLUSTER_PROVIDED", options);
    quiet(template, &mut admins);
}

fn of_two_regions() {
    let stores = [(); 2].map(|()| Redis::start().expect("a redis-server"));
    let (upstream, login) = (Upstream::start(), login());
    let mut admins = [&stores[0], &stores[1]].map(secure);
    let limiter = format!(
        r#"{{{}, {}, "policies": [{{"name": "p", "subject": [{{"literal": "all"}}], "regions": {{"share": {{}}}}, "limits":
            [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1000/s", "burst": 1000}}]}}]}}"#,
        PATIENT.replace("10s", "2s"),
        section(2, "50ms").replace(HERE, NAMES[0]).replace("10s", "2s")
    );
    let shipped = template(&limiter, stores[0].address(), upstream.address());
    let config = with_login(shipped.config(), &login.path().join("login"));
    let other = [(NAMES[1], stores[1].address())];
    let config = with_stores(Host::chosen(), &config, stores[0].address(), other.into_iter());
    quiet(Template::new(&config), &mut admins);
}
