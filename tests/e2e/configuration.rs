//! Configurations, good and bad, as Envoy loads them.

use std::path::PathBuf;

use crate::support::envoy::{Envoy, Template};
use crate::support::http::{self, Request, Response};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{PATIENT, World, get, limited, plugin, template};
use crate::support::{TempFolder, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("a configuration with mistakes is refused, and each is named", mistakes_are_refused),
    ("an update keeps counting, and what is in flight ends well", an_update_keeps_counting),
    ("a bad update is refused, and the good configuration stays", a_bad_update_is_refused),
    ("a subject's own limits are changed in redis, without a new configuration", overrides_are_read),
];

fn mistakes_are_refused() {
    let (redis, upstream) = (Redis::absent(), Upstream::start());
    let mistaken = limited(10).replace("leaky_bucket", "leaky_buckt").replace(r#""rate""#, r#""rat""#);
    let log =
        template(&mistaken, redis.address(), upstream.address()).try_start().expect_err("it is refused");
    for expected in ["policies[0].limits[0].algorithm", "leaky_buckt", "leaky_bucket"] {
        assert!(log.contains(expected), "{expected:?} is not in:\n{log}");
    }
}

/// A running Envoy that reads its listener from a file, which can be replaced.
struct Dynamic {
    envoy: Envoy,
    listener: String,
    file: PathBuf,
    _folder: TempFolder,
    _redis: Redis,
    upstream: Upstream,
}

/// What stands for the limiter's configuration in [`Dynamic::listener`].
const LIMITER: &str = "@limiter@";

impl Dynamic {
    fn start(limiter: &str) -> Self {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let whole = template(LIMITER, redis.address(), upstream.address());
        let code = format!("{{local: {{filename: {}}}}}", plugin().display());
        let whole = whole.config().replace("&weir_wasm ", "").replace("*weir_wasm", &code);

        // The listener `edge` moves from the bootstrap into the file.
        let (before, rest) = whole.split_once("  - name: edge\n").expect("the listener");
        let (edge, after) = rest.split_once("  # The bridge:").expect("its end");
        let edge: String =
            edge.lines().map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned() + "\n").collect();
        let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
        let listener = format!("resources:\n- \"@type\": {kind}\n  name: edge\n{edge}");

        let folder = TempFolder::new("lds");
        let file = folder.path().join("lds.yaml");
        let lds = format!("{{lds_config: {{path_config_source: {{path: {}}}}}}}", file.display());
        let bootstrap = format!(
            "node: {{id: test, cluster: test}}\ndynamic_resources: {lds}\n{before}  # The bridge:{after}"
        );
        std::fs::write(&file, listener.replace(LIMITER, &escaped(limiter))).expect("a listener");
        let envoy = Template::new(&bootstrap).start();
        eventually("the listener", || envoy.admin("/listeners").contains("edge::").then_some(()));
        Self { envoy, listener, file, _folder: folder, _redis: redis, upstream }
    }

    /// Envoy notices that a file takes the place of the one it read.
    fn update(&self, limiter: &str) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, self.listener.replace(LIMITER, &escaped(limiter))).expect("a listener");
        std::fs::rename(&next, &self.file).expect("it takes the other's place");
    }

    fn send(&self) -> Response {
        http::send(self.envoy.address("edge"), &get()).expect("a response")
    }
}

/// JSON inside the quotes of a YAML string.
fn escaped(limiter: &str) -> String {
    let quoted = serde_json::Value::from(limiter).to_string();
    quoted.trim_matches('"').to_owned()
}

fn an_update_keeps_counting() {
    let world = Dynamic::start(&limited(10));
    let in_flight = http::begin(world.envoy.address("edge"), &Request::get("/hold")).expect("sent");
    eventually("it to be held", || (world.upstream.held() == 1).then_some(()));
    for _ in 0..3 {
        assert_eq!(world.send().status, 200);
    }
    world.update(&limited(12));
    let mut admitted = 4;
    eventually("the new configuration", || {
        let response = world.send();
        admitted += usize::from(response.status == 200);
        response.headers.get("ratelimit-policy")?.contains(";q=12;").then_some(())
    });
    while world.send().status == 200 {
        admitted += 1;
    }
    assert_eq!(admitted, 12, "what was admitted under either configuration");
    world.upstream.release();
    assert_eq!(in_flight.finish().expect("a response").status, 200);
}

fn a_bad_update_is_refused() {
    let world = Dynamic::start(&limited(3));
    assert_eq!(world.send().status, 200);
    world.update(&limited(3).replace("burst", "brust"));
    eventually("the refusal", || {
        (world.envoy.stat("listener_manager.lds.update_rejected") == 1).then_some(())
    });
    assert!(world.envoy.log().contains("did you mean"), "{}", world.envoy.log());
    assert_eq!([world.send().status, world.send().status, world.send().status], [200, 200, 429]);
}

fn overrides_are_read() {
    let limit = r#"{"name": "l", "algorithm": "fixed_window", "limit": 2, "window": "300d"}"#;
    let world = World::start(&format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}],
            "overrides": true, "limits": [{limit}]}}]}}"#
    ));
    let status = |user: &str| world.send(&get().header("x-user", user)).status;
    for user in ["ann", "bob"] {
        assert_eq!([status(user), status(user), status(user)], [200, 200, 429], "{user}");
    }
    let set = world.redis.connect().call(&[b"SET", b"weir:{p|ann}:override", br#"{"l": {"limit": 4}}"#]);
    assert_eq!(set, b"+OK\r\n");
    // A denial is relied on for a second at most, where an override may change it.
    eventually("ann's own limit", || (status("ann") == 200).then_some(()));
    assert_eq!([status("ann"), status("ann"), status("bob")], [200, 429, 429]);
}
