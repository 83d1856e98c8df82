// SPDX-License-Identifier: Apache-2.0
//! `weir explain`: why a request is limited or not, and what its client gets. Run as an operator runs it.

use crate::command::{CONFIG, File, weir};
use crate::support::redis::Redis;
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision};
use weir::limit::Ask;
use weir::policy::Check;
use weir::response::Verdict;
use weir::script::Form;

/// Requests of one minute take all permits; a permit expires after five.
fn in_flight(more: &str) -> String {
    format!(
        r#"{{"policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [
            {{"name": "running", "algorithm": "concurrency", "limit": 2, "ttl": "5m"{more}}}]}}]}}"#
    )
}

/// Two requests of the subject begin, and do not end.
fn take_all_places(redis: &Redis, config: &str) {
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let check = Check::one(0, b"{p|s}");
    let mut command = Vec::new();
    let plan = config.plan(&check).expect("a plan");
    plan.check(&check.tag, Ask::new(2, 1), None, Form::Eval, &mut command);
    let reply = redis.connect().pipeline(&command, 1).remove(0);
    assert!(reply.starts_with(b"$"), "{}", reply.escape_ascii());
}

/// One request of a subject at once, and a ban of an hour by the second denial.
fn banning() -> File {
    let text = r#"{"policies": [{"name": "p", "ban": {"after": 2, "window": "10m", "duration": "1h"}, "limits": [
        {"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    File::new("ban.json", text)
}

/// A policy for each way across three regions.
const REGIONS: &str = r#"{
  "store": {"cluster": "redis-ams"},
  "regions": {"here": "ams", "sync_interval": "100ms", "all": [
    {"name": "cle", "cluster": "redis-cle"}, {"name": "ams", "cluster": "x"}, {"name": "bom", "cluster": "redis-bom"}]},
  "policies": [
    {"name": "apart", "subject": [{"literal": "s"}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 9}]},
    {"name": "home", "regions": {"home": "bom"}, "subject": [{"literal": "s"}],
     "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 9}]},
    {"name": "debit", "regions": {"debit": {}}, "subject": [{"literal": "s"}],
     "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 9}]},
    {"name": "share", "regions": {"share": {}}, "subject": [{"literal": "s"}],
     "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "9/d", "burst": 9}]}
  ]
}"#;

/// What one Redis says counts only for policies that it counts.
#[test]
fn explain_asks_a_redis_only_about_what_it_counts() {
    let (Some(ams), Some(bom)) = (Redis::start(), Redis::start()) else {
        return eprintln!("no redis-server here: not tested");
    };
    let config = File::new("asked.json", REGIONS);
    let explained = |redis: &Redis, more: &[&str]| {
        let url = format!("redis://{}", redis.address());
        let (status, out, failure) = weir(&[&["explain", config.path(), "--redis", &url], more].concat());
        assert_eq!((status, failure.as_str()), (0, ""));
        out
    };
    let home = "\n  not asked: policy home is counted in the Redis of region bom: name that Redis with --redis, and write --region bom\n";
    let out = explained(&ams, &[]);
    assert!(
        out.contains(home)
            && out.contains("\nanswer, if nothing is counted yet of home: the request goes to"),
        "{out}"
    );
    assert!(out.contains("\n  debit would admit it\n") && !out.contains("home would"), "{out}");
    let out = explained(&bom, &["--region", "bom"]);
    assert!(!out.contains("not asked") && out.contains("\n  home would admit it\n"), "{out}");
    assert!(out.contains("\nanswer: the request goes to the upstream"), "{out}");

    // The part of this region is used up. A worker may have borrowed.
    let text = REGIONS.replace("bom\", \"cluster\": \"redis-bom\"", "bom\", \"cluster\": \"b\"");
    let read = Config::parse(text.as_bytes()).expect("a configuration");
    let check = Check::one(3, b"{share|s}");
    let mut command = Vec::new();
    read.plan(&check).expect("a plan").check(&check.tag, Ask::new(3, 1), None, Form::Eval, &mut command);
    ams.connect().pipeline(&command, 1);
    let out = explained(&ams, &[]);
    let rejects = out.lines().find(|line| line.contains("share would")).expect("a line");
    assert!(
        rejects.contains("reject it, retry after")
            && rejects.ends_with(", unless a worker has borrowed for it from another region"),
        "{out}"
    );
}

#[test]
fn explain_tells_programs_what_it_tells_people() {
    let json = |arguments: &[&str]| -> serde_json::Value {
        let (status, out, failure) = weir(&[&["explain", "--json"], arguments].concat());
        assert_eq!((status, failure.as_str(), out.lines().count()), (0, "", 1), "{out}");
        serde_json::from_str(&out).expect("JSON")
    };
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    take_all_places(&redis, &in_flight(r#", "retry_after": "7s""#));
    let flying = File::new("json-flying.json", in_flight(r#", "retry_after": "7s""#));
    let said = json(&[flying.path(), "--redis", &url]);
    let asked = &said["policies"][0]["asked"];
    assert_eq!(
        (&asked["limits"][0]["remaining"], &asked["would"], &asked["banned"], &said["answer"]["assumes"]),
        (&0.into(), &serde_json::json!({"admit": false, "retry_after_ms": 7_000}), &false.into(), &().into())
    );
    assert_eq!(said["answer"]["status"], 429);
    redis.connect().say("SET weir:{p|192.0.2.1}:ban x EX 1000");
    let said = json(&[banning().path(), "--client", "192.0.2.1", "--redis", &url]);
    let asked = &said["policies"][0]["asked"];
    let rest = asked["banned_ms"].as_u64().expect("a number");
    assert!(asked["banned"] == true && (900_000..=1_000_000).contains(&rest), "{said}");
    assert_eq!(asked["other_keys"].as_array().map(Vec::len), Some(2), "{said}");
}

#[test]
fn explain_tells_of_places_in_use_what_the_filter_tells() {
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let shadow = in_flight("").replace(r#""name": "p", "#, r#""name": "p", "mode": "shadow", "#);
    let jitter = in_flight(r#", "retry_after": "7s""#)
        .replace(r#""name": "p", "#, r#""name": "p", "response": {"retry_jitter": "1h"}, "#);
    take_all_places(&redis, &in_flight(""));
    for (text, said) in [
        (in_flight(""), "p would reject it, without a time to retry"),
        (in_flight(r#", "retry_after": "7s""#), "p would reject it, retry after 7 s"),
        (shadow, "p would reject it, without a time to retry (shadow: not enforced)"),
        (jitter, "p would reject it, JITTER"),
    ] {
        let config = File::new("taken.json", &text);
        let (status, out, failure) = weir(&["explain", config.path(), "--redis", &url]);
        assert_eq!(status, 0, "{failure}");
        let last = out.lines().find(|line| line.contains("would")).expect("a line").trim();
        let told = out.lines().find_map(|line| line.strip_prefix("  retry-after: "));
        if said.contains("JITTER") {
            let retry: u64 = told.expect(last).parse().expect("seconds");
            assert!((8..=3_607).contains(&retry), "with the jitter that the filter adds: {retry}");
        } else {
            assert_eq!(last, said, "{text}");
        }
    }
}

#[test]
fn explain_says_for_how_long_a_subject_is_banned() {
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let (config, mut operator) = (banning(), redis.connect());
    let explained = || weir(&["explain", config.path(), "--client", "192.0.2.1", "--redis", &url]).1;
    assert!(!explained().contains("banned"), "{}", explained());
    assert_eq!(operator.say("SET weir:{p|192.0.2.1}:ban x EX 1000"), "+OK\r\n");
    let out = explained();
    assert!(
        out.contains("  banned for 16 min ") && out.contains("  p would reject it, retry after 16 min "),
        "{out}"
    );
    assert!(
        out.contains("answer: status 429\n  retry-after: ") && out.contains("abnormal-usage-detected"),
        "{out}"
    );
    assert_eq!(operator.say("SET weir:{p|192.0.2.1}:ban x"), "+OK\r\n");
    assert!(
        explained().contains("  p would reject it, until an operator lifts the ban\n"),
        "{}",
        explained()
    );
}

#[test]
fn explain_says_what_is_kept_from_a_class() {
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let config = File::new(
        "priority.json",
        r#"{"policies": [{"name": "p", "subject": [{"literal": "all"}],
            "limits": [{"name": "l", "algorithm": "fixed_window", "limit": 50, "window": "1h", "align": "first"}],
            "priority": [{"when": {"path": {"exact": "/health"}}, "percent": 5},
                         {"when": {"header": {"name": "plan", "exact": "paid"}}, "percent": 15}]}]}"#,
    );
    let explained = |more: &[&str]| {
        let (status, out, failure) = weir(&[&["explain", config.path(), "--redis", &url], more].concat());
        assert_eq!(status, 0, "{failure}");
        let lines = out.lines().filter(|line| line.starts_with("policy") || line.starts_with("  limit"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let left = "  limit l: 50 per 1h, fixed window from its first request; 50 left";
    assert_eq!(
        explained(&["--path", "/health"]),
        format!(
            "policy p: matches, cost 1, priority[0] holds, the path is /health: nothing is kept from it\n{left}, whole"
        )
    );
    assert_eq!(
        explained(&["-H", "plan: paid"]),
        format!(
            "policy p: matches, cost 1, priority[1] holds, the header plan is \"paid\": 5 % of each limit are kept \
             from it\n{left}, 3 of them kept for other classes, whole"
        )
    );
    assert_eq!(
        explained(&[]),
        format!(
            "policy p: matches, cost 1, of no class: 20 % of each limit are kept from it\n{left}, 10 of them kept for \
             other classes, whole"
        )
    );
}

/// What a client sees of each algorithm, after any number of requests: what the filter answers to the next one. Nothing is counted.
#[test]
fn explain_says_what_the_filter_answers_next() {
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
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
            let before = keys();
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
                // The filter is asked a moment later.
                let near = found.1.iter().zip(&wanted.1).all(|(one, other)| one.abs_diff(*other) <= 1);
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

/// A user that may not copy keys sees the decision, and why there are no headers.
#[test]
fn explain_needs_no_more_rights_than_the_filter_to_say_what_is_decided() {
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let config = File::new("acl.json", CONFIG);
    redis.connect().say("ACL SETUSER default -copy");
    let explained = || weir(&["explain", config.path(), "--client", "192.0.2.1", "--redis", &url]);
    let (status, out, failure) = explained();
    assert_eq!(status, 0, "{failure}");
    assert!(out.contains("\n  all would admit it\n"), "{out}");
    let said = "\nanswer: the request goes to the upstream; the headers of its response are not known (Redis";
    assert!(out.contains(said) && out.contains("NOPERM"), "{out}");
    redis.connect().say("ACL SETUSER default -evalsha -eval");
    assert_eq!(explained().0, 2);
}
