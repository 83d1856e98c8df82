//! The Lua on a real Redis, held to the pure limits.
#![cfg(not(target_arch = "wasm32"))]
#![allow(missing_docs, clippy::panic, clippy::unwrap_used)]

#[path = "support/redis.rs"]
#[allow(dead_code)]
mod redis;

use redis::{Connection, Redis};
use weir::limit::{Ask, LeakyBucket, Limit, Outcome, Subject};
use weir::resp;
use weir::script::{BadReply, Form, NamedLimit, Plan};
use weir::time::Micros;

fn ask(redis: &mut Connection, plan: &Plan, tag: &[u8], ask: Ask, now: Option<Micros>) -> Outcome {
    for form in [Form::Evalsha, Form::Eval] {
        let mut command = Vec::new();
        plan.check(tag, ask, now, form, &mut command);
        let reply = redis.pipeline(&command, 1).remove(0);
        let (reply, _) = resp::decode(&reply).unwrap().unwrap();
        match plan.outcome(&reply) {
            Ok(outcome) => return outcome,
            Err(BadReply::NoScript) => {}
            Err(bad) => panic!("{bad}"),
        }
    }
    panic!("EVAL answers NOSCRIPT");
}

#[test]
fn leaky_bucket() {
    let Some(server) = Redis::start() else { return eprintln!("skipped: no redis-server") };
    let mut redis = server.connect();
    let limit: Limit = LeakyBucket::new(3, Micros::from_secs(1), 4, Micros::from_millis(500)).unwrap().into();
    let plan = Plan::new(vec![NamedLimit { name: "burst".to_owned(), limit }]).unwrap();
    let mut subject = Subject::default();
    let mut now = Micros::from_secs(1_700_000_000);
    for (step, requests, cost) in
        [(0, 3, 1), (1, 2, 1), (0, 1, 0), (333_333, 1, 1), (1, 1, 1), (700_000, 5, 2), (1, 1, 9)]
    {
        now = now.plus(Micros(step));
        let question = Ask { requests, cost };
        let expected = subject.check(plan.limits(), now, question);
        assert_eq!(ask(&mut redis, &plan, b"{p|s}", question, Some(now)), expected);
        println!("{expected:?}");
    }
}
