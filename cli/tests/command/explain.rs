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

/// A policy for each way in which one can be about an enquiry.
fn enquiring() -> File {
    let limits = r#""limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
    let text = format!(
        r#"{{"quota": {{"policy": "counting"}}, "exempt": [{{"path": {{"exact": "/free"}}}}], "policies": [
            {{"name": "writes", "match": {{"method": ["POST"]}}, {limits}}},
            {{"name": "reads", "match": {{"method": ["GET"]}}, {limits}}},
            {{"name": "tenants", "subject": [{{"path_segment": {{"index": 1}}}}], {limits}}},
            {{"name": "watched", "mode": "shadow", {limits}}},
            {{"name": "counting", "match": {{"path": {{"exact": "/.well-known/quota"}}}}, {limits}}}]}}"#
    );
    File::new("enquiring.json", &text)
}

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

#[test]
fn explain_says_where_a_subject_is_counted() {
    let config = File::new("regions.json", REGIONS);
    let counted = |more: &[&str]| {
        let (status, out, failure) = weir(&[&["explain", config.path()], more].concat());
        assert_eq!((status, failure.as_str()), (0, ""));
        let lines = out.lines().filter(|line| line.contains("counted") || line.contains("limit "));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let limit = |policy: &str| format!("limit {policy}.l: 1 per 1d, 9 at once, leaky bucket");
    assert_eq!(
        counted(&[]),
        [
            "counted in the Redis of region ams (cluster redis-ams); cle, bom count apart",
            &limit("apart"),
            "counted in the Redis of region bom (cluster redis-bom), for all regions (home)",
            &limit("home"),
            "counted in the Redis of region ams (cluster redis-ams); what it grants is charged in cle, bom every 100ms afterwards (debit)",
            &limit("debit"),
            "counted in the Redis of region ams (cluster redis-ams), which has 1 of 3 equal parts of each limit; what that lacks is \
             asked of cle, bom every 100ms (share)",
            "limit share.l: 9 per 3d, 3 at once, leaky bucket",
            "answer, if nothing is counted yet: the request goes to the upstream; its response gets these headers",
        ]
    );
    // The same file, as another region has it.
    let in_bom = counted(&["--region", "bom"]);
    assert_eq!(in_bom[0], "counted in the Redis of region bom (cluster redis-bom); cle, ams count apart");
    assert_eq!(in_bom[2], "counted in the Redis of region bom (cluster redis-bom), for all regions (home)");
    // Without regions there is nothing to say.
    let alone = File::new("alone.json", CONFIG);
    assert!(!weir(&["explain", alone.path()]).1.contains("counted in"));
    for (file, region, said) in [
        (config.path(), "fra", "--region \"fra\": the configuration has ams, cle, bom"),
        (config.path(), "", "--region \"\": the configuration has ams, cle, bom"),
        (alone.path(), "ams", "--region \"ams\": the configuration has no `regions`"),
    ] {
        let (status, _, failure) = weir(&["explain", file, "--region", region]);
        assert!(status == 2 && failure.contains(said), "{failure}");
    }
}

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
    let config = File::new("json.json", CONFIG);
    let said = json(&[config.path(), "--client", "192.0.2.1", "--commands"]);
    assert_eq!(
        (&said["client"], &said["enquiry"], &said["list"]),
        (&"192.0.2.1".into(), &().into(), &().into())
    );
    let [login, all, watched] = said["policies"].as_array().expect("a list").as_slice() else {
        panic!("{said}")
    };
    assert_eq!(
        login,
        &serde_json::json!({"policy": "login", "ruling": "does_not_match", "mode": "enforce", "because_of": null,
            "words": "does not match, it is not true that the path is /login"})
    );
    assert_eq!(
        (&all["ruling"], &all["cost"], &all["subject"], &all["slot"], &all["counted"], &all["tier"]),
        (&"matches".into(), &1.into(), &"{all|192.0.2.1}".into(), &3915.into(), &().into(), &().into())
    );
    let limit = &all["asked"]["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["limit"], &limit["key"], &limit["remaining"]),
        (
            &"steady".into(),
            &"1 per 1s, 3 at once, leaky bucket".into(),
            &"weir:{all|192.0.2.1}:steady".into(),
            &().into()
        )
    );
    assert_eq!(all["asked"]["command"][0], "EVALSHA");
    assert_eq!((&watched["ruling"], &watched["because_of"]), (&"skipped".into(), &"subject[0]".into()));
    let answer = &said["answer"];
    assert_eq!(
        (&answer["admitted"], &answer["assumes"], &answer["delay_ms"]),
        (&true.into(), &"nothing is counted yet".into(), &0.into())
    );
    assert_eq!(answer["headers"][0]["name"], "ratelimit-policy");

    let denying =
        File::new("json-deny.json", CONFIG.replacen('{', r#"{"deny": [{"path": {"exact": "/a.B/C"}}],"#, 1));
    let said = json(&[denying.path(), "--path", "/a.B/C"]);
    assert_eq!(
        (&said["list"]["name"], &said["list"]["index"], &said["answer"]["status"], &said["policies"]),
        (&"deny".into(), &0.into(), &403.into(), &serde_json::json!([]))
    );
    assert!(said["answer"]["body"].as_str().is_some_and(|body| body.contains("Request is denied")), "{said}");
    let said = json(&[denying.path(), "--path", "/a.B/C", "-H", "content-type: application/grpc"]);
    assert_eq!((&said["answer"]["grpc_status"], &said["answer"]["status"]), (&7.into(), &().into()));

    let regions = File::new("json-regions.json", REGIONS);
    let said = json(&[regions.path()]);
    assert_eq!(said["region"], "ams");
    assert_eq!(
        said["policies"].as_array().expect("a list").iter().map(|policy| policy["counted"].clone()).collect::<Vec<_>>(),
        serde_json::json!([
            {"way": null, "region": "ams", "cluster": "redis-ams", "others": ["cle", "bom"], "sync_interval_ms": null},
            {"way": "home", "region": "bom", "cluster": "redis-bom", "others": ["ams", "cle"], "sync_interval_ms": null},
            {"way": "debit", "region": "ams", "cluster": "redis-ams", "others": ["cle", "bom"], "sync_interval_ms": 100},
            {"way": "share", "region": "ams", "cluster": "redis-ams", "others": ["cle", "bom"], "sync_interval_ms": 100},
        ]).as_array().expect("a list").clone()
    );

    let enquiry = json(&[enquiring().path(), "--path", "/.well-known/quota?path=/v1%3Fa&method=POST"]);
    assert_eq!(enquiry["enquiry"], serde_json::json!({"method": "POST", "path": "/v1?a"}));
    let rulings: Vec<_> = enquiry["policies"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|policy| (policy["ruling"].as_str().expect("a text"), policy["mode"].as_str().expect("a text")))
        .collect();
    assert_eq!(
        rulings,
        [
            ("matches", "enquiry"),
            ("does_not_match", "enforce"),
            ("not_shown", "enforce"),
            ("matches", "shadow"),
            ("matches", "enforce")
        ]
    );

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
fn explain_reads_the_body() {
    let config = File::new(
        "bodies.json",
        r#"{"policies": [{"name": "p", "match": {"body_json": {"path": "model", "prefix": "big"}},
            "subject": [{"body_json": {"path": "user"}}], "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
    );
    for (body, wanted) in [
        (r#"{"model": "big-1", "user": "ann"}"#, "subject {p|ann} in slot"),
        (
            r#"{"model": "small"}"#,
            "does not match, it is not true that the value model of the body begins with \"big\"",
        ),
        (
            r#"{"model": "big-1", "user": []}"#,
            "denied, the request has more than one value user of the body, or it cannot be read",
        ),
        ("no json", "denied, the request has more than one value user of the body, or it cannot be read"),
    ] {
        let (status, out, _) = weir(&["explain", config.path(), "--body", body]);
        assert_eq!((status, out.contains(wanted)), (0, true), "{body}: {out}");
    }
}

#[test]
fn explain_says_what_matches_and_why_the_rest_does_not() {
    let config = File::new("explain.json", CONFIG);
    let (status, out, _) = weir(&["explain", config.path(), "--path", "/x", "--client", "192.0.2.1"]);
    assert_eq!(status, 0);
    assert_eq!(
        out,
        "client 192.0.2.1\n\
         policy login: does not match, it is not true that the path is /login\n\
         policy all: matches, cost 1\n  subject {all|192.0.2.1} in slot 3915\n  \
         limit steady: 1 per 1s, 3 at once, leaky bucket\n    key weir:{all|192.0.2.1}:steady\n  \
         limit flying: 2 at the same time, each for at most 1m, concurrency\n    key weir:{all|192.0.2.1}:flying\n\
         policy watched: skipped, the request has no header x-key\n\
         answer, if nothing is counted yet: the request goes to the upstream; its response gets these headers\n  \
         ratelimit-policy: \"steady\";q=3;w=3, \"flying\";q=2;qu=\"concurrent-requests\"\n  \
         ratelimit: \"steady\";r=2;t=2, \"flying\";r=1\n"
    );
    let (_, out, _) = weir(&["explain", config.path(), "--client", "192.0.2.1", "--commands"]);
    let command = out.lines().find(|line| line.starts_with("  command EVALSHA ")).expect("a command");
    assert!(command.contains(" 2 weir:{all|192.0.2.1}:steady weir:{all|192.0.2.1}:flying "), "{command}");
    let (_, out, _) = weir(&["explain", config.path(), "--client", "10.1.2.3", "-H", "x-key: a"]);
    assert!(out.contains("policy all: exempt, exempt[0] holds: the client is in 10.0.0.0/8\n"), "{out}");
    assert!(
        out.contains("policy watched: matches, cost 1, in shadow\n  subject {watched|a} in slot "),
        "{out}"
    );
}

#[test]
fn explain_names_conditions_in_words() {
    let claim = "metadata.filter_metadata.envoy.filters.http.jwt_authn.jwt_payload.plan";
    for (condition, words) in [
        (r#"{"header": {"name": "x-a", "in": ["b", "a"]}}"#, r#"the header x-a is "a" or "b""#.to_owned()),
        (r#"{"query": {"name": "q", "in": ["a"]}}"#, r#"the query parameter q is "a""#.to_owned()),
        (r#"{"cookie": {"name": "s", "exact": "a"}}"#, r#"the cookie s is "a""#.to_owned()),
        (
            r#"{"attribute": {"path": ["a", "b"], "prefix": "c"}}"#,
            r#"the attribute a.b begins with "c""#.to_owned(),
        ),
        (r#"{"jwt_claim": {"claim": ["plan"], "in": ["a"]}}"#, format!(r#"the attribute {claim} is "a""#)),
        (
            r#"{"any": [{"path": {"exact": "/a"}}, {"not": {"method": ["GET"]}}]}"#,
            String::from("(the path is /a or not the method is GET)"),
        ),
    ] {
        let limits =
            r#""limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
        let text = format!(r#"{{"policies": [{{"name": "p", "match": {condition}, {limits}}}]}}"#);
        let config = File::new("words.json", &text);
        let (_, out, _) = weir(&["explain", config.path()]);
        assert!(out.contains(&format!("policy p: does not match, it is not true that {words}\n")), "{out}");
    }
}

#[test]
fn explain_says_what_excludes_a_request() {
    let text = r#"{"policies": [{"name": "p", "match": {"method": ["GET"],
        "not": {"any": [{"path": {"exact": "/health"}}, {"path": {"prefix": "/api"}}]}},
        "limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]}]}"#;
    let config = File::new("not.json", text);
    for (path, words) in [
        (
            "/api/1",
            "policy p: does not match, `not` excludes it: (the path is /health or the path is /api/ or below)\n",
        ),
        ("/", "policy p: matches, cost 1\n"),
    ] {
        let (_, out, _) = weir(&["explain", config.path(), "--path", path]);
        assert!(out.contains(words), "{path}: {out}");
    }
}

#[test]
fn explain_says_what_an_enquiry_asks() {
    let config = enquiring();
    let explain = |path: &str| {
        let (status, out, failure) = weir(&["explain", config.path(), "--path", path]);
        assert_eq!((status, failure.as_str()), (0, ""));
        let line = |line: &str| {
            line.split(" {").next().unwrap_or_default().split(": 1 per").next().unwrap_or_default().to_owned()
        };
        let (policies, answer) = out.split_once("\nanswer").expect("an answer");
        assert!(
            answer.starts_with(", if nothing is counted yet: status 200\n  ratelimit-policy: "),
            "{answer}"
        );
        let policies = policies.lines().skip(1).filter(|line| !line.contains(" key "));
        policies.map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        explain("/.well-known/quota?path=/v1%3Fa&method=POST"),
        [
            "an enquiry about POST /v1?a, which weir answers",
            "policy writes: matches, cost 1, asked without taking it",
            "  subject",
            "  limit writes.few",
            "policy reads: does not match, it is not true that the method is GET",
            "policy tenants: not shown, an enquiry cannot have the path segment 1",
            "policy watched: matches, cost 1, in shadow",
            "  subject",
            "policy counting: matches, cost 1",
            "  subject",
            "  limit counting.few",
        ]
    );
    assert_eq!(
        explain("/.well-known/quota?path=/free"),
        [
            "an enquiry about GET /free, which weir answers",
            "exempt from all policies: exempt[0] holds, the path is /free",
            "policy counting: matches, cost 1",
            "  subject",
            "  limit counting.few",
        ]
    );
}

#[test]
fn explain_stops_where_the_filter_stops() {
    let limits = r#""limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]"#;
    let text = format!(
        r#"{{
            "deny": [{{"path": {{"exact": "/deny"}}}}],
            "exempt": [{{"path": {{"exact": "/exempt"}}}}],
            "policies": [
                {{"name": "first", {limits}}},
                {{"name": "shadow", "mode": "shadow", "deny": [{{"path": {{"exact": "/x"}}}}], {limits}}},
                {{"name": "denies", "deny": [{{"path": {{"exact": "/x"}}}}], {limits}}},
                {{"name": "last", {limits}}}
            ]
        }}"#
    );
    let config = File::new("order.json", &text);
    let explain = |path: &str| {
        let (status, out, failure) = weir(&["explain", config.path(), "--path", path]);
        assert_eq!((status, failure.as_str()), (0, ""));
        let shown = |line: &str| line.split(" {first").next().unwrap_or_default().to_owned();
        out.lines().skip(1).map(shown).collect::<Vec<_>>()
    };
    let denied = [
        "answer: status 403",
        "  content-type: application/problem+json",
        "",
        r#"  {"type":"about:blank","title":"Request is denied","status":403}"#,
    ];
    assert_eq!(explain("/deny"), [&["denied: deny[0] holds, the path is /deny"][..], &denied].concat());
    assert_eq!(
        explain("/exempt"),
        [
            "exempt from all policies: exempt[0] holds, the path is /exempt",
            "answer: the request goes to the upstream"
        ]
    );
    assert_eq!(
        explain("/x"),
        [
            "policy first: matches, cost 1",
            "  subject",
            "policy shadow: denied (shadow: not enforced), deny[0] holds: the path is /x",
            "policy denies: denied, deny[0] holds: the path is /x",
            "the request is denied without asking Redis; not evaluated: last",
            "answer: status 403",
            "  content-type: application/problem+json",
            "",
            r#"  {"type":"about:blank","title":"Request is denied","status":403}"#,
        ]
    );
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

#[test]
fn explain_says_how_many_times_the_limits_a_subject_has() {
    let config = File::new(
        "scale.json",
        r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "fixed_window", "limit": 5, "window": "1h"}],
            "scale": {"from": {"header": {"name": "x-seats"}}, "max": 9, "default": 2}}]}"#,
    );
    for (more, times) in [(&["-H", "x-seats: 3"][..], 3), (&["-H", "x-seats: 99"], 9), (&[], 2)] {
        let (status, out, failure) = weir(&[&["explain", config.path()], more].concat());
        assert_eq!(status, 0, "{failure}");
        assert!(out.contains(&format!("policy p: matches, cost 1, limits times {times}\n")), "{out}");
    }
}

#[test]
fn explain_refuses_a_client_that_is_no_address() {
    let config = File::new("client.json", CONFIG);
    for client in ["", "localhost", "192.0.2", "192.0.2.1/24", "1.2.3.4.5", "::g", "-"] {
        let (status, out, failure) = weir(&["explain", config.path(), &format!("--client={client}")]);
        assert!(
            status == 2 && out.is_empty() && failure.starts_with("weir: --client "),
            "{client}: {status} {failure}"
        );
    }
    for (client, said) in [
        ("192.0.2.1:443", "client 192.0.2.1\n"),
        ("2001:DB8::1", "client 2001:db8::1\n"),
        ("[2001:db8::1]:443", "client 2001:db8::1\n"),
        ("::ffff:192.0.2.1", "client 192.0.2.1\n"),
    ] {
        let (status, out, _) = weir(&["explain", config.path(), "--client", client]);
        assert!(status == 0 && out.starts_with(said), "{client}: {out}");
    }
}

/// A GET has no body, so there is nothing that cannot be read.
#[test]
fn explain_takes_a_request_without_a_body_as_the_filter_does() {
    let config = File::new(
        "no-body.json",
        r#"{"policies": [{"name": "p", "subject": [{"body_json": {"path": "user"}, "on_missing": "skip"}],
            "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
    );
    let (_, out, _) = weir(&["explain", config.path()]);
    assert!(out.contains("policy p: skipped, the request has no value user of the body\n"), "{out}");
    let (_, out, _) = weir(&["explain", config.path(), "-H", "content-length: 5"]);
    assert!(
        out.contains("policy p: denied, the request has more than one value user of the body, or it cannot"),
        "{out}"
    );
}

#[test]
fn explain_says_what_a_grpc_client_gets() {
    let config =
        File::new("grpc.json", CONFIG.replacen('{', r#"{"deny": [{"path": {"exact": "/a.B/C"}}],"#, 1));
    let call = ["--method", "POST", "--path", "/a.B/C", "-H", "content-type: application/grpc"];
    let (_, out, _) = weir(&[&["explain", config.path()], &call[..]].concat());
    assert!(out.ends_with("answer: gRPC status 7, request denied\n"), "{out}");
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
