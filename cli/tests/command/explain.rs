// SPDX-License-Identifier: Apache-2.0
//! `weir explain` beside the filter's own code. Its output is in `transcripts/explain/` and `transcripts/redis/explain.txt`.

use std::time::Instant;

use crate::command::{File, weir};
use crate::support::redis::Redis;
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision};
use weir::policy::Check;
use weir::response::Verdict;
use weir::script::Form;

/// After any number of requests, `explain` shows for each algorithm what the filter answers to the next one. Nothing is counted.
#[test]
fn explain_says_what_the_filter_answers_next() {
    let Some(redis) = Redis::start() else { return crate::support::not_tested("no redis-server here") };
    let url = format!("redis://{}", redis.address());
    for (number, limit) in [
        r#""fixed_window", "limit": 3, "window": "30d", "align": "first""#,
        r#""fixed_window", "limit": 3, "window": "300d", "align": "clock""#,
        r#""sliding_log", "limit": 3, "window": "30d""#,
        r#""sliding_window", "limit": 3, "window": "30d""#,
        r#""leaky_bucket", "rate": "3/30d", "burst": 3"#,
        r#""leaky_bucket", "rate": "3/1m", "burst": 1, "max_delay": "1m""#,
        r#""token_bucket", "capacity": 3, "refill": 3, "interval": "30d", "mode": "stepwise""#,
        r#""token_bucket", "capacity": 1, "refill": 3, "interval": "30d", "overdraft": 5"#,
        r#""concurrency", "limit": 3, "ttl": "30d", "retry_after": "7s""#,
    ]
    .into_iter()
    .enumerate()
    {
        let text = format!(
            r#"{{"policies": [{{"name": "p{number}", "limits": [{{"name": "l", "algorithm": {limit}}}]}}]}}"#
        );
        let (file, config) =
            (File::new("next.json", &text), Config::parse(text.as_bytes()).expect("a configuration"));
        let check = Check::one(0, format!("{{p{number}|192.0.2.1}}"));
        let plan = config.plan(&check).expect("a plan");
        let mut operator = redis.connect();
        for request in 0..5 {
            let row = format!("{limit}, request {request}");
            let mut keys = || operator.call(&[b"DBSIZE"]);
            let (before, begun) = (keys(), Instant::now());
            let (status, out, failure) =
                weir(&["explain", file.path(), "--client", "192.0.2.1", "--redis", &url]);
            assert_eq!((status, failure.as_str()), (0, ""), "{row}");
            assert_eq!(keys(), before, "{row}: the copies are removed");
            let mut command = Vec::new();
            plan.check(&check.tag, check.ask(1), None, Form::Eval, &mut command);
            let reply = redis.connect().pipeline(&command, 1).remove(0);
            let (reply, _) = weir::resp::decode(&reply).expect("RESP").expect("a reply");
            let outcome = plan.outcome(&reply).expect("an outcome");
            let decision = Decision::new(&outcome, plan.limits(), 0, check.ask(1));
            let answer = CheckAnswer::Store(decision);
            let answers = weir::policy::answers(&config.policies, [(&check, &answer)].into_iter());
            let (said, headers) = match weir::response::verdict(&answers) {
                Verdict::Admit(admission) => ("goes to the upstream", admission.headers),
                Verdict::Reject(rejection) => ("answer: status 429", rejection.headers),
            };
            assert!(out.contains(said), "{row}: {said}\n{out}");
            for header in headers {
                let line = out.lines().find_map(|line| line.strip_prefix(&format!("  {}: ", header.name)));
                let (found, wanted) = (seconds(line.expect(header.name)), seconds(&header.value));
                assert_eq!(found.0, wanted.0, "{row}: {}", header.name);
                // The filter is asked later.
                let most = begun.elapsed().as_secs() + 1;
                let near = found.1.iter().zip(&wanted.1).all(|(one, other)| one.abs_diff(*other) <= most);
                assert!(near && found.1.len() == wanted.1.len(), "{row}: {found:?} {wanted:?}");
            }
        }
    }
}

/// The value of a header without its times, and its times: the `t` of limits, or all of `retry-after`.
fn seconds(value: &str) -> (String, Vec<u64>) {
    if let Ok(after) = value.parse() {
        return (String::new(), vec![after]);
    }
    let (times, rest): (Vec<&str>, Vec<&str>) =
        value.split([';', ',']).partition(|word| word.starts_with("t="));
    (rest.join(";"), times.iter().map(|time| time[2..].parse().expect("seconds")).collect())
}
