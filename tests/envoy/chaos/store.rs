// SPDX-License-Identifier: Apache-2.0
//! One Redis, and what can happen to it.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::last;
use crate::support::eventually;
use crate::support::redis::{Connection, Redis};
use crate::world::{Fault, Felt, Policy, Store};

pub struct Single {
    redis: Redis,
}

impl Store for Single {
    const RATE: u32 = 60;

    fn start() -> Self {
        Self { redis: Redis::start_with(&["--enable-debug-command", "local"]).expect("a redis-server") }
    }

    fn users(&mut self, _: &Policy, fault: usize) -> Vec<String> {
        vec![format!("user-{fault}")]
    }

    fn address(&self) -> SocketAddr {
        self.redis.address()
    }
}

pub const FAULTS: &[Fault<Single>] = &[
    Fault { name: "none", felt: Felt::ByNobody, forgets: 0, inject: none },
    Fault { name: "kill -9, and started again", felt: Felt::ByAll, forgets: 1, inject: killed },
    Fault { name: "SIGSTOP", felt: Felt::ByAll, forgets: 0, inject: stopped },
    Fault { name: "slow: DEBUG SLEEP 0.1, again and again", felt: Felt::ByAll, forgets: 0, inject: sleepy },
    Fault { name: "full: OOM", felt: Felt::ByAll, forgets: 0, inject: full },
    Fault { name: "a replica without a primary: READONLY", felt: Felt::ByAll, forgets: 0, inject: read_only },
    Fault { name: "SCRIPT FLUSH, again and again", felt: Felt::ByNobody, forgets: 0, inject: forgetful },
    Fault {
        name: "a password that Envoy does not know: NOAUTH",
        felt: Felt::ByAll,
        forgets: 0,
        inject: locked,
    },
    Fault { name: "a long script: BUSY", felt: Felt::ByAll, forgets: 0, inject: busy },
    // The state that is loaded is older than the one that was lost.
    Fault { name: "kill -9, and a slow start: LOADING", felt: Felt::ByAll, forgets: 1, inject: loading },
];

fn none(_: &mut Single, hold: Duration) {
    last(hold);
}

fn killed(store: &mut Single, hold: Duration) {
    store.redis.stop();
    last(hold);
    store.redis.restart();
}

fn stopped(store: &mut Single, hold: Duration) {
    store.redis.freeze();
    last(hold);
    store.redis.thaw();
}

fn sleepy(store: &mut Single, hold: Duration) {
    let (mut redis, began) = (store.redis.connect(), Instant::now());
    while began.elapsed() < hold {
        ok(&mut redis, "DEBUG SLEEP 0.1");
    }
}

fn full(store: &mut Single, hold: Duration) {
    let mut redis = store.redis.connect();
    ok(&mut redis, "CONFIG SET maxmemory-policy noeviction");
    ok(&mut redis, "CONFIG SET maxmemory 16mb");
    let mut kept = 0;
    while redis.say(&format!("SETRANGE ballast:{kept} 1000000 x")).starts_with(':') {
        kept += 1;
    }
    last(hold);
    for ballast in 0..kept {
        redis.say(&format!("UNLINK ballast:{ballast}"));
    }
    ok(&mut redis, "CONFIG SET maxmemory 0");
}

fn read_only(store: &mut Single, hold: Duration) {
    let mut redis = store.redis.connect();
    // Nothing listens on the discard port here.
    ok(&mut redis, "REPLICAOF 127.0.0.1 9");
    last(hold);
    ok(&mut redis, "REPLICAOF NO ONE");
}

fn forgetful(store: &mut Single, hold: Duration) {
    let (mut redis, began) = (store.redis.connect(), Instant::now());
    while began.elapsed() < hold {
        ok(&mut redis, "SCRIPT FLUSH");
        last(Duration::from_millis(10));
    }
}

fn locked(store: &mut Single, hold: Duration) {
    let mut redis = store.redis.connect();
    ok(&mut redis, "CONFIG SET requirepass secret");
    // Connections that were let in stay in.
    redis.say("CLIENT KILL TYPE normal");
    last(hold);
    ok(&mut redis, "CONFIG SET requirepass ");
}

fn busy(store: &mut Single, hold: Duration) {
    let mut redis = store.redis.connect();
    ok(&mut redis, "CONFIG SET busy-reply-threshold 50");
    let mut endless = store.redis.connect();
    let script = thread::spawn(move || endless.call(&[b"EVAL", b"while true do end", b"0"]));
    eventually("BUSY", || redis.say("PING").starts_with("-BUSY").then_some(()));
    last(hold);
    ok(&mut redis, "SCRIPT KILL");
    script.join().expect("an answer, which is an error");
    ok(&mut redis, "CONFIG SET busy-reply-threshold 5000");
}

fn loading(store: &mut Single, hold: Duration) {
    const KEYS: u32 = 1_000;
    let mut redis = store.redis.connect();
    ok(&mut redis, &format!("DEBUG POPULATE {KEYS} ballast 1000"));
    ok(&mut redis, "SAVE");
    let micros = (hold / KEYS).as_micros().to_string();
    store.redis.begin_with(&["--key-load-delay", &micros, "--loading-process-events-interval-bytes", "1024"]);
    eventually("LOADING is over", || {
        let mut redis = Connection::try_to(&store.redis.socket())?;
        redis.say("PING").starts_with("+PONG").then_some(())
    });
}

/// A command that must succeed.
pub fn ok(redis: &mut Connection, command: &str) {
    let reply = redis.say(command);
    assert!(reply.starts_with("+OK"), "{command}: {reply}");
}
