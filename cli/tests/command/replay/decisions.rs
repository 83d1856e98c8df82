// SPDX-License-Identifier: Apache-2.0
//! What is decided: in simulated time, by the filter's own code.

use serde_json::{Value, json as value};

use super::{CONFIG, File, decisions, replay};
use crate::support::redis::Redis;

#[test]
fn it_answers_enquiries_as_the_filter_does() {
    let line = |t_ms: u64, path: &str| format!("{{\"t_ms\": {t_ms}, \"path\": \"{path}\"}}\n");
    let asked = "/.well-known/quota?path=/x";
    let limits = r#""limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
    let config = File::new(
        "enquiring.json",
        format!(
            r#"{{"quota": {{"policy": "counting"}}, "policies": [{{"name": "reads", "match": {{"method": ["GET"]}}, {limits}}},
                {{"name": "counting", "match": {{"path": {{"exact": "/.well-known/quota"}}}}, {limits}}}]}}"#
        ),
    );
    let trace = File::new("enquiries.jsonl", [line(0, asked), line(1, "/x"), line(2, asked)].concat());
    let (status, out, _) = replay(&[config.path(), trace.path(), "--json"]);
    assert_eq!(status, 0);
    let found: Vec<_> =
        decisions(&out).iter().map(|line| (line["outcome"].clone(), line["policy"].clone())).collect();
    let wanted = value!([["enquiry", null], ["admitted", "reads"], ["rejected", "counting"]]);
    assert_eq!(value!(found), wanted, "one in an hour, and it takes nothing of what it asks about");
}

/// One second of requests to `/login`, ten a second, then a pause and one more.
fn trace() -> String {
    let line = |at| {
        format!("{{\"t_ms\": {at}, \"path\": \"/login\", \"client\": \"192.0.2.1\", \"duration_ms\": 250}}\n")
    };
    (0..10).map(|n| line(n * 100)).chain([line(60_001)]).collect()
}

#[test]
fn it_decides_in_simulated_time() {
    let (config, trace) = (File::new("replay.json", CONFIG), File::new("replay.jsonl", trace()));
    let (status, out, _) = replay(&["--json", config.path(), trace.path()]);
    assert_eq!(status, 0);
    let decisions = decisions(&out);
    let allowed: Vec<bool> = decisions.iter().map(|line| line["allowed"] == true).collect();
    let mut wanted = vec![true, true];
    wanted.extend([false; 8]);
    wanted.push(true);
    assert_eq!(allowed, wanted);
    assert_eq!(
        out.lines().nth(2),
        Some(
            "{\"line\":3,\"t_ms\":200,\"allowed\":false,\"policy\":\"login\",\"limit\":\"tries\",\"tier\":null,\
             \"subject\":\"{login|192.0.2.1}\",\"remaining\":0,\"retry_after_ms\":59801,\"reset_ms\":59900,\"delay_ms\":0,\
             \"outcome\":\"rejected\"}"
        )
    );
    let (_, totals, _) = replay(&[config.path(), trace.path()]);
    assert_eq!(
        totals,
        "11 requests, 0 of them admitted without a check\n\n\
         policy  mode     requests  admitted  rejected\n\
         login   enforce        11         3         8\n\
         all     enforce        11        10         1\n\n\
         applied to no request: watched\n\n\
         login, most rejected subjects:\n         8  {login|192.0.2.1}\n\n\
         all, most rejected subjects:\n         1  {all|192.0.2.1}\n"
    );
}

#[test]
fn it_counts_what_policies_share_once() {
    let policy = |name: &str, path: &str, more: &str| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "{path}"}}}}, "limits": [
                {{"name": "l", "algorithm": "fixed_window", "limit": 3, "window": "1h"}}]{more}}}"#
        )
    };
    let lines = ["/a", "/b", "/a", "/b", "/a"];
    let trace: String = lines.map(|path| format!("{{\"t_ms\": 0, \"path\": \"{path}\"}}\n")).concat();
    let trace = File::new("shared.jsonl", &trace);
    for (more, allowed) in [("", [true; 5]), (r#", "counters": "a""#, [true, true, true, false, false])] {
        let config = format!(r#"{{"policies": [{}, {}]}}"#, policy("a", "/a", ""), policy("b", "/b", more));
        let config = File::new("shared.json", &config);
        let (_, out, _) = replay(&["--json", config.path(), trace.path()]);
        let found: Vec<bool> = decisions(&out).iter().map(|line| line["allowed"] == true).collect();
        assert_eq!(found, allowed, "{more}");
    }
}

#[test]
fn it_tells_shadow_denials_from_rejections() {
    // `tries` rejects for a minute what `few` would reject for an hour; and `few` alone would reject two more.
    let policy = |name: &str, mode: &str, path: &str, limit: &str| {
        format!(
            r#"{{"name": "{name}", "mode": "{mode}", "match": {{"path": {{"prefix": "{path}"}}}}, "limits": [
                {{"name": "l", "algorithm": "fixed_window", {limit}}}]}}"#
        )
    };
    let config = format!(
        r#"{{"policies": [{}, {}]}}"#,
        policy("watched", "shadow", "/", r#""limit": 1, "window": "1h""#),
        policy("login", "enforce", "/login", r#""limit": 1, "window": "1m""#),
    );
    let line = |path: &str, client: &str| {
        format!("{{\"t_ms\": 0, \"path\": \"{path}\", \"client\": \"{client}\"}}\n")
    };
    let (login, other) = (line("/login", "192.0.2.1"), line("/other", "192.0.2.2"));
    let trace = [login.as_str(), &login, &other, &other, &other].concat();
    let (config, trace) = (File::new("shadow.json", &config), File::new("shadow.jsonl", &trace));
    let (_, out, _) = replay(&["--json", config.path(), trace.path()]);
    let decided: Vec<_> = decisions(&out)
        .iter()
        .map(|line| (line["allowed"] == true, line["policy"].clone(), line["retry_after_ms"].clone()))
        .collect();
    assert_eq!(decided[1], (false, "login".into(), 60_000.into()), "what the client is told");
    assert_eq!(decided[3], (true, "watched".into(), 0.into()));
    let outcomes: Vec<_> = decisions(&out).iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["admitted", "rejected", "admitted", "shadow", "shadow"]);
    let (_, totals, _) = replay(&[config.path(), trace.path()]);
    assert_eq!(
        totals,
        "5 requests, 0 of them admitted without a check\n\n\
         policy   mode     requests  admitted  rejected  would be rejected\n\
         watched  shadow          5         2         -                  3\n\
         login    enforce         2         1         1                  -\n\n\
         watched, subjects that would be rejected most (shadow):\n         2  {watched|192.0.2.2}\n         1  \
         {watched|192.0.2.1}\n\n\
         login, most rejected subjects:\n         1  {login|192.0.2.1}\n"
    );
}

#[test]
fn it_tells_of_places_in_use_what_the_filter_tells() {
    let trace: String = (0..3).map(|n| format!("{{\"t_ms\": {n}, \"duration_ms\": 60000}}\n")).collect();
    let trace = File::new("places.jsonl", &trace);
    for (more, after) in [("", Value::Null), (r#", "retry_after": "7s""#, 7_000.into())] {
        let config = File::new(
            "places.json",
            format!(
                r#"{{"policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [
                    {{"name": "running", "algorithm": "concurrency", "limit": 2, "ttl": "5m"{more}}}]}}]}}"#
            ),
        );
        let (_, out, _) = replay(&["--json", config.path(), trace.path()]);
        let last = decisions(&out).pop().expect("a decision");
        assert_eq!((&last["allowed"], &last["retry_after_ms"]), (&Value::Bool(false), &after), "{more}");
    }
}

#[test]
fn it_bans_as_the_filter_does() {
    let line = |seconds: u64| format!("{{\"t_ms\": {}, \"client\": \"192.0.2.1\"}}\n", seconds * 1_000);
    let trace: String = [0, 0, 2, 2, 10, 3_601, 3_602].map(line).concat();
    let (config, trace) = (
        File::new(
            "ban.json",
            r#"{"policies": [{"name": "p", "ban": {"after": 2, "window": "10m", "duration": "1h"}, "limits": [
                {"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
        ),
        File::new("ban.jsonl", &trace),
    );
    let (_, out, _) = replay(&["--json", config.path(), trace.path()]);
    let outcomes: Vec<_> = decisions(&out).iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(
        outcomes,
        ["admitted", "rejected", "admitted", "banned", "banned", "banned", "admitted"],
        "the ban begins after two seconds"
    );
    let retries: Vec<_> = decisions(&out).iter().map(|line| line["retry_after_ms"].clone()).collect();
    assert_eq!(retries[3..6], [3_600_000, 3_592_000, 1_000].map(Value::from));
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let (status, lua, failure) = replay(&["--json", config.path(), trace.path(), "--redis", &url]);
    assert_eq!((status, lua), (0, out), "{failure}");
}

#[test]
fn it_compares_two_configurations() {
    let (config, trace) = (File::new("first.json", CONFIG), File::new("both.jsonl", trace()));
    let other =
        File::new("second.json", CONFIG.replace("\"limit\": 2, \"window\"", "\"limit\": 3, \"window\""));
    let (status, out, _) = replay(&[config.path(), trace.path(), "--against", config.path()]);
    assert_eq!(status, 0, "{out}");
    let (status, out, _) = replay(&[config.path(), trace.path(), "--against", other.path()]);
    assert_eq!(status, 1, "{out}");
    assert!(
        out.starts_with(
            "10 decided the same, 1 rejected by the first only, 0 by the second only, 0 delayed differently\n\n\
             subjects by how often only the first rejects them:\n         1  {login|192.0.2.1}\n\n\
             the first of these requests:\n  first  {\"line\":4,"
        ),
        "{out}"
    );
}

/// What a policy in shadow would do is a difference, also beside a policy that rejects.
#[test]
fn it_compares_what_policies_in_shadow_would_do() {
    let watched = |limit: u64| {
        CONFIG.replace("\"limit\": 1, \"window\": \"1h\"", &format!("\"limit\": {limit}, \"window\": \"1h\""))
    };
    let line = |at: u64, path: &str| {
        format!(
            "{{\"t_ms\": {at}, \"path\": \"{path}\", \"client\": \"192.0.2.1\", \"headers\": {{\"x-key\": \"k\"}}}}\n"
        )
    };
    // The last one is rejected by `login` in both.
    let trace = [
        line(0, "/"),
        line(9_000, "/"),
        line(20_000, "/login"),
        line(20_001, "/login"),
        line(20_002, "/login"),
    ];
    let trace = File::new("shadow.jsonl", trace.concat());
    let (few, many) = (File::new("few.json", watched(1)), File::new("many.json", watched(100)));
    for (first, second, said) in [
        (&few, &many, "4 would be rejected by the first only, 0 by"),
        (&many, &few, "0 would be rejected by the first only, 4 by"),
    ] {
        let (status, out, _) = replay(&[first.path(), trace.path(), "--against", second.path()]);
        assert_eq!(status, 1, "{out}");
        assert!(out.starts_with("1 decided the same, 0 rejected by the first only, 0 by the second only, 0 delayed differently\nin shadow: ") && out.contains(said), "{out}");
        let (status, out, _) = replay(&[first.path(), trace.path(), "--against", second.path(), "--json"]);
        assert_eq!((status, out.lines().count()), (1, 4), "{out}");
    }
    let (status, out, _) = replay(&[few.path(), trace.path(), "--against", few.path()]);
    assert!(status == 0 && !out.contains("in shadow"), "{out}");
}

#[test]
fn it_in_redis_decides_the_same() {
    let Some(redis) = Redis::start() else { return eprintln!("no redis-server here: not tested") };
    let url = format!("redis://{}", redis.address());
    let (config, trace) = (File::new("lua.json", CONFIG), File::new("lua.jsonl", trace()));
    let (_, pure, _) = replay(&["--json", config.path(), trace.path()]);
    let (status, lua, failure) = replay(&["--json", config.path(), trace.path(), "--redis", &url]);
    assert_eq!((status, lua), (0, pure), "{failure}");
}

/// The decision names who it is about, also by what the policy would reject, and in which tier.
#[test]
fn it_names_the_subject_and_the_tier() {
    let config = File::new(
        "tiers.json",
        r#"{"policies": [{"name": "p", "subject": [{"header": {"name": "x-key"}}], "tiers": {"by": {"header": {"name": "plan"}},
            "default": "free", "limits": {
                "free": [{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1h"}],
                "paid": [{"name": "l", "algorithm": "fixed_window", "limit": 2, "window": "1h"}]}}}],
            "deny": [{"path": {"exact": "/denied"}}], "exempt": [{"path": {"exact": "/exempt"}}]}"#,
    );
    let line = |path: &str, headers: &str| {
        format!("{{\"t_ms\": 1, \"path\": \"{path}\", \"headers\": {{{headers}}}}}\n")
    };
    let trace = [
        line("/", r#""x-key": "a", "plan": "paid""#),
        line("/", r#""x-key": "\u001b[2J\"}""#),
        line("/denied", ""),
        line("/exempt", ""),
    ];
    let trace = File::new("tiers.jsonl", trace.concat());
    let (_, out, _) = replay(&["--json", config.path(), trace.path()]);
    assert!(!out.contains('\u{1b}'), "{out}");
    let found: Vec<_> =
        decisions(&out).iter().map(|line| value!([line["subject"], line["tier"], line["line"]])).collect();
    let wanted =
        value!([["{p|a}", "paid", 1], ["{p|%1B%5B2J%22%7D}", "free", 2], [null, null, 3], [null, null, 4]]);
    assert_eq!(value!(found), wanted);
}

/// A minute of requests that all fit into one place: the one that came first has it, though it ended last.
#[test]
fn it_takes_requests_in_the_order_in_which_they_came() {
    let config = File::new(
        "one.json",
        r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "concurrency", "limit": 1, "ttl": "5m"}]}]}"#,
    );
    let line = |second: u64, took: u64, path: &str| {
        format!(
            "[2026-01-01T00:00:{second:02}.000Z] \"GET {path} HTTP/1.1\" 200 - 0 0 {took} 1 \"192.0.2.1\" \"-\" \"-\" \"h\" \"-\"\n"
        )
    };
    let log = [line(20, 1, "/second"), line(31, 1, "/third"), line(10, 20_000, "/first")].concat();
    let trace = File::new("ended.log", log);
    let (_, out, _) = replay(&["--json", config.path(), trace.path()]);
    let found: Vec<_> =
        decisions(&out).iter().map(|line| (line["line"].clone(), line["allowed"].clone())).collect();
    assert_eq!(value!(found), value!([[3, true], [1, false], [2, true]]));
}
