// SPDX-License-Identifier: Apache-2.0
//! The responses to clients. Headers are read back by an independent parser of structured fields (RFC 9651), bodies by one of JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision, LimitStatus};
use weir::inline_vec::InlineVec;
use weir::limit::RetryAfter::{self, After, Never, Now};
use weir::policy::{self, Check, Mode};
use weir::request::sample::Sample;
use weir::request::{Attributes, is_grpc};
use weir::response::{
    Cause, PolicyAnswer, Rejection, Upstream, Verdict, denials, deny, late, no_room_to_hold, record,
    unavailable, verdict,
};
use weir::time::Micros;

/// Three policies: `a` with two limits in the draft's style, `b` in the other, `c` without headers. A limit of `a`
/// and one of `c` have the same name.
fn config() -> &'static Config {
    thread_local! {
        static CONFIG: &'static Config = Box::leak(Box::new(Config::parse(TEXT.as_bytes()).unwrap()));
    }
    CONFIG.with(|config| *config)
}

const TEXT: &str = r#"{"policies": [
        {"name": "a", "limits": [
            {"name": "burst", "algorithm": "leaky_bucket", "rate": "100/m", "burst": 100},
            {"name": "day", "algorithm": "leaky_bucket", "rate": "1000/d", "burst": 1000}]},
        {"name": "b", "limits": [{"name": "steady", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 3}],
            "on_failure": "deny",
            "response": {"status": 420, "format": "json", "headers": "x_ratelimit", "upstream_headers": "keep"}},
        {"name": "c", "limits": [{"name": "day", "algorithm": "leaky_bucket", "rate": "1/s"}],
            "response": {"format": "text", "headers": "none", "retry_jitter": "10s"}},
        {"name": "d", "limits": [
            {"name": "running", "algorithm": "concurrency", "limit": 4, "ttl": "15m"},
            {"name": "rate", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 9}]},
        {"name": "e", "limits": [
            {"name": "jobs", "algorithm": "concurrency", "limit": 2, "ttl": "15m", "retry_after": "5s"},
            {"name": "files", "algorithm": "concurrency", "limit": 2, "ttl": "15m", "retry_after": "3s"},
            {"name": "open", "algorithm": "concurrency", "limit": 2, "ttl": "15m"}]},
        {"name": "f", "limits": [{"name": "held", "algorithm": "concurrency", "limit": 6}],
            "response": {"format": "empty", "headers": "x_ratelimit"}}]}"#;

fn check(policy: usize) -> Check {
    Check::one(policy, b"{p|s}")
}

/// A limit that is whole in a year: no client has to wait for that.
fn standing(remaining: u64, retry_after: RetryAfter, window_ms: u64) -> LimitStatus {
    let (reset, window) = (Micros::from_secs(31_536_000), Micros::from_millis(window_ms));
    LimitStatus { remaining, retry_after, reset, window }
}

fn granted(limits: impl Into<Vec<LimitStatus>>) -> CheckAnswer {
    CheckAnswer::Store(Decision {
        granted: true,
        delay: Micros::ZERO,
        limits: limits.into().into(),
        ban: Now,
        own: None,
        at: Micros::ZERO,
    })
}

fn refused(limits: impl Into<Vec<LimitStatus>>) -> CheckAnswer {
    CheckAnswer::Store(Decision {
        granted: false,
        delay: Micros::ZERO,
        limits: limits.into().into(),
        ban: Now,
        own: None,
        at: Micros::ZERO,
    })
}

/// The subject is banned.
fn banned(limits: impl Into<Vec<LimitStatus>>, ban: RetryAfter) -> CheckAnswer {
    match refused(limits) {
        CheckAnswer::Store(decision) => CheckAnswer::Store(Decision { ban, ..decision }),
        other => other,
    }
}

/// The subject has limits of its own: each has these counts in place of the configured ones.
fn overridden(answer: CheckAnswer, policy: usize, counts: &[[u64; 3]]) -> CheckAnswer {
    let configured = config().policies[policy].tiers.tiers[0].plan.limits();
    let own = configured.iter().zip(counts).map(|(limit, counts)| limit.with_counts(*counts).unwrap());
    match answer {
        CheckAnswer::Store(decision) => {
            CheckAnswer::Store(Decision { own: Some(Rc::new(own.collect())), ..decision })
        }
        other => other,
    }
}

/// Each answer with what its policy says about responses.
fn of_policies<'a>(config: &'a Config, answers: &'a [(Check, CheckAnswer)]) -> InlineVec<PolicyAnswer<'a>> {
    policy::answers(&config.policies, answers.iter().map(|(check, answer)| (check, answer)))
}

const fn ms(span: u64) -> RetryAfter {
    After(Micros::from_millis(span))
}

/// The verdict as text: delay or status, then the headers.
fn told(answers: &[(Check, CheckAnswer)]) -> Vec<String> {
    let config = config();
    let (first, headers) = match verdict(&of_policies(config, answers)) {
        Verdict::Admit(admission) => (format!("admit after {}", admission.delay), admission.headers),
        Verdict::Reject(rejection) => {
            // The command says the same as the header.
            let after = if let After(after) = rejection.retry_after { Some(after) } else { None };
            let header = after.map(|after| after.as_secs_ceil().to_string());
            assert_eq!(value(&rejection, "retry-after"), header.as_deref());
            let never = rejection.grpc.pushback == Some(-1);
            assert_eq!(rejection.retry_after == Never, never);
            (format!("reject {}", rejection.status), rejection.headers)
        }
    };
    let headers = headers.iter().map(|header| format!("{}: {}", header.name, header.value));
    std::iter::once(first).chain(headers).collect()
}

fn rejection(answers: &[(Check, CheckAnswer)]) -> Rejection {
    match verdict(&of_policies(config(), answers)) {
        Verdict::Reject(rejection) => *rejection,
        Verdict::Admit(admission) => panic!("{admission:?}"),
    }
}

fn value<'a>(rejection: &'a Rejection, name: &str) -> Option<&'a str> {
    rejection.headers.iter().find(|header| header.name == name).map(|header| header.value.as_str())
}

const POLICY: &str = "ratelimit-policy: \"burst\";q=100;w=60, \"a.day\";q=1000;w=86400";

const IN_FLIGHT: &str = "ratelimit-policy: \"running\";q=4;qu=\"concurrent-requests\", \"rate\";q=9;w=9";
const JOBS: &str = "ratelimit-policy: \"jobs\";q=2;qu=\"concurrent-requests\", \"files\";q=2;qu=\"concurrent-requests\", \
                    \"open\";q=2;qu=\"concurrent-requests\"";
const PROBLEM: &str = "content-type: application/problem+json";

/// A name, the results of the checks, and the response to the client.
type Case = (&'static str, Vec<(Check, CheckAnswer)>, Vec<&'static str>);

fn cases() -> Vec<Case> {
    let shadow = |policy| Check { mode: Mode::Shadow, ..check(policy) };
    let a = |answer| (check(0), answer);
    vec![
        ("nothing asked", vec![], vec!["admit after 0us"]),
        (
            "admitted",
            vec![a(granted([standing(50, Now, 29_001), standing(900, Now, 1)]))],
            vec!["admit after 0us", POLICY, "ratelimit: \"burst\";r=50;t=30, \"a.day\";r=900;t=1"],
        ),
        (
            "a ban that is not there",
            vec![(Check { ban_only: true, ..check(0) }, granted([]))],
            vec!["admit after 0us"],
        ),
        (
            "admitted by the subject's own limits",
            vec![a(overridden(
                granted([standing(50, Now, 29_001), standing(900, Now, 1)]),
                0,
                &[[400, 200, 0], [1_000, 2_000, 0]],
            ))],
            vec![
                "admit after 0us",
                "ratelimit-policy: \"burst\";q=200;w=30, \"a.day\";q=2000;w=172800",
                "ratelimit: \"burst\";r=50;t=30, \"a.day\";r=900;t=1",
            ],
        ),
        (
            "admitted by the subject's own limits, of which half is kept for others",
            vec![(
                Check { kept_percent: 50, ..check(0) },
                overridden(
                    granted([standing(50, Now, 29_001), standing(900, Now, 1)]),
                    0,
                    &[[400, 200, 0], [1_000, 2_000, 0]],
                ),
            )],
            vec![
                "admit after 0us",
                "ratelimit-policy: \"burst\";q=100;w=30, \"a.day\";q=1000;w=172800",
                "ratelimit: \"burst\";r=50;t=30, \"a.day\";r=900;t=1",
            ],
        ),
        (
            "the last one admitted",
            vec![a(granted([standing(0, ms(600), 60_000), standing(899, Now, 0)]))],
            vec!["admit after 0us", POLICY, "ratelimit: \"burst\";r=0;t=1, \"a.day\";r=899;t=0"],
        ),
        (
            "admitted, but another of its cost would not be",
            vec![a(granted([standing(4, ms(2_100), 60_000), standing(899, Now, 9_000)]))],
            vec!["admit after 0us", POLICY, "ratelimit: \"burst\";r=4;t=3, \"a.day\";r=899;t=9"],
        ),
        (
            "admitted, with no time known",
            vec![a(granted([standing(0, Never, 60_000), standing(0, Now, 9_000)]))],
            vec!["admit after 0us", POLICY, "ratelimit: \"burst\";r=0, \"a.day\";r=0"],
        ),
        (
            "rejected, a moment too early: what lets it pass says no time that Retry-After would be earlier than",
            vec![a(refused([standing(0, ms(1), 60_000), standing(899, Now, 5)]))],
            vec![
                "reject 429",
                POLICY,
                "ratelimit: \"burst\";r=0;t=1, \"a.day\";r=899",
                "retry-after: 1",
                "content-type: application/problem+json",
            ],
        ),
        (
            "rejected by both, the later counts, rounded up",
            vec![a(refused([standing(0, ms(1_000), 60_000), standing(0, ms(86_001), 86_400_000)]))],
            vec![
                "reject 429",
                POLICY,
                "ratelimit: \"burst\";r=0;t=1, \"a.day\";r=0;t=87",
                "retry-after: 87",
                "content-type: application/problem+json",
            ],
        ),
        (
            "banned: what the limits have left says nothing",
            vec![a(banned([standing(50, Now, 29_001), standing(900, Now, 1)], ms(3_599_001)))],
            vec!["reject 429", "retry-after: 3600", PROBLEM],
        ),
        (
            "banned by one policy, and another shows its limits",
            vec![
                a(banned([standing(50, Now, 1), standing(0, ms(9), 1)], ms(5_000))),
                (check(1), granted([standing(2, Now, 5_000)])),
            ],
            vec!["reject 429", "x-ratelimit-limit: 3", "x-ratelimit-remaining: 2", "retry-after: 5", PROBLEM],
        ),
        (
            "banned, and a limit comes back later",
            vec![a(banned([standing(0, ms(7_000), 1), standing(900, Now, 1)], ms(5_000)))],
            vec!["reject 429", "retry-after: 7", PROBLEM],
        ),
        (
            "banned until an operator lifts the ban",
            vec![a(banned([standing(50, Now, 1), standing(900, Now, 1)], Never))],
            vec!["reject 429", PROBLEM],
        ),
        (
            "would be banned",
            vec![(shadow(0), banned([standing(50, Now, 1), standing(900, Now, 1)], ms(5_000)))],
            vec!["admit after 0us"],
        ),
        (
            "rejected by one policy, and banned for longer by the next",
            vec![
                a(refused([standing(0, ms(1_000), 60_000), standing(899, Now, 5)])),
                (check(1), banned([standing(3, Now, 5)], ms(9_000))),
            ],
            vec![
                "reject 429",
                POLICY,
                "ratelimit: \"burst\";r=0;t=1, \"a.day\";r=899",
                "retry-after: 9",
                PROBLEM,
            ],
        ),
        (
            "can never pass",
            vec![a(refused([standing(100, Never, 60_000), standing(0, ms(5_000), 9)]))],
            vec![
                "reject 429",
                POLICY,
                "ratelimit: \"burst\";r=100;t=60, \"a.day\";r=0;t=5",
                "content-type: application/problem+json",
            ],
        ),
        (
            "another style",
            vec![(check(1), refused([standing(0, ms(2_500), 3_000)]))],
            vec![
                "reject 420",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 3",
                "retry-after: 3",
                "content-type: application/json",
            ],
        ),
        (
            "another style, held back by another policy",
            vec![
                (check(1), granted([standing(2, Now, 9_000)])),
                (check(0), refused([standing(0, ms(2_500), 0), standing(1, Now, 1)])),
            ],
            vec![
                "reject 429",
                POLICY,
                "ratelimit: \"burst\";r=0;t=3, \"a.day\";r=1",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 2",
                "retry-after: 3",
                "content-type: application/problem+json",
            ],
        ),
        (
            "no style but Retry-After",
            vec![(check(2), granted([standing(0, Now, 0)]))],
            vec!["admit after 0us"],
        ),
        (
            "each policy in its own style",
            vec![
                a(granted([standing(1, Now, 0), standing(2, Now, 0)])),
                (check(1), granted([standing(2, Now, 1)])),
            ],
            vec![
                "admit after 0us",
                POLICY,
                "ratelimit: \"burst\";r=1;t=0, \"a.day\";r=2;t=0",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 2",
                "x-ratelimit-reset: 1",
            ],
        ),
        (
            "in shadow nothing is told",
            vec![(shadow(0), refused([standing(0, ms(5), 0), standing(0, Now, 0)]))],
            vec!["admit after 0us"],
        ),
        (
            "in shadow nothing is told, be the request rejected by another policy for less long",
            vec![
                (shadow(0), refused([standing(0, ms(9_000), 0), standing(0, ms(9_000), 0)])),
                (shadow(1), refused([standing(0, ms(9_000), 0)])),
                (check(3), refused([standing(1, Now, 0), standing(0, ms(2_000), 0)])),
            ],
            vec![
                "reject 429",
                IN_FLIGHT,
                "ratelimit: \"running\";r=1, \"rate\";r=0;t=2",
                "retry-after: 2",
                PROBLEM,
            ],
        ),
        ("in shadow nothing is delayed", vec![(shadow(0), delayed(0, 300))], vec!["admit after 0us"]),
        (
            "the longest delay",
            vec![(check(2), delayed(0, 100)), (check(2), delayed(0, 300))],
            vec!["admit after 300000us"],
        ),
        ("unavailable, allowed", vec![a(CheckAnswer::Unavailable)], vec!["admit after 0us"]),
        (
            "unavailable, denied",
            vec![(check(1), CheckAnswer::Unavailable)],
            vec!["reject 503", "retry-after: 1", "content-type: application/json"],
        ),
        (
            "unavailable, denied, and another policy denies for longer",
            vec![
                (check(1), CheckAnswer::Unavailable),
                a(refused([standing(0, ms(4_000), 0), standing(9, Now, 5_000)])),
            ],
            vec![
                "reject 503",
                POLICY,
                "ratelimit: \"burst\";r=0;t=4, \"a.day\";r=9",
                "retry-after: 4",
                "content-type: application/json",
            ],
        ),
        (
            "denied for less long than it takes to ask the store again",
            vec![
                a(refused([standing(0, ms(400), 0), standing(9, Now, 5_000)])),
                (check(1), CheckAnswer::Unavailable),
            ],
            vec![
                "reject 429",
                POLICY,
                "ratelimit: \"burst\";r=0;t=1, \"a.day\";r=9",
                "retry-after: 1",
                PROBLEM,
            ],
        ),
        (
            "all places taken: the rest of a ttl is nothing to wait for",
            vec![(check(3), refused([standing(0, ms(637_000), 0), standing(8, Now, 1_000)]))],
            vec!["reject 429", IN_FLIGHT, "ratelimit: \"running\";r=0, \"rate\";r=8;t=1", PROBLEM],
        ),
        (
            "all places taken, and the rate is used up: what time is known counts",
            vec![(check(3), refused([standing(0, ms(637_000), 0), standing(0, ms(2_000), 0)]))],
            vec![
                "reject 429",
                IN_FLIGHT,
                "ratelimit: \"running\";r=0, \"rate\";r=0;t=2",
                "retry-after: 2",
                PROBLEM,
            ],
        ),
        (
            "all places taken, by the estimate that is configured; of two the later",
            vec![(
                check(4),
                refused([standing(0, ms(637_000), 0), standing(0, ms(9), 0), standing(0, ms(9), 0)]),
            )],
            vec![
                "reject 429",
                JOBS,
                "ratelimit: \"jobs\";r=0, \"files\";r=0, \"open\";r=0",
                "retry-after: 5",
                PROBLEM,
            ],
        ),
        (
            "an estimate of a limit that admits does not count",
            vec![(check(4), refused([standing(1, Now, 0), standing(0, ms(9), 0), standing(1, Now, 0)]))],
            vec![
                "reject 429",
                JOBS,
                "ratelimit: \"jobs\";r=1, \"files\";r=0, \"open\";r=1",
                "retry-after: 3",
                PROBLEM,
            ],
        ),
        (
            "all places taken, in another style",
            vec![(check(5), refused([standing(0, ms(637_000), 0)]))],
            vec!["reject 429", "x-ratelimit-limit: 6", "x-ratelimit-remaining: 0"],
        ),
        (
            "places left, in another style",
            vec![(check(5), granted([standing(2, Now, 0)]))],
            vec!["admit after 0us", "x-ratelimit-limit: 6", "x-ratelimit-remaining: 2"],
        ),
        (
            "an estimate, and a time that is known",
            vec![
                (check(4), refused([standing(0, ms(9), 0), standing(1, Now, 0), standing(1, Now, 0)])),
                (check(1), refused([standing(0, ms(2_000), 0)])),
            ],
            vec![
                "reject 429",
                JOBS,
                "ratelimit: \"jobs\";r=0, \"files\";r=1, \"open\";r=1",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 2",
                "retry-after: 2",
                PROBLEM,
            ],
        ),
        (
            "in shadow it does not matter that the store is away",
            vec![(shadow(1), CheckAnswer::Unavailable)],
            vec!["admit after 0us"],
        ),
        (
            "one grants, one refuses",
            vec![
                (check(2), granted([standing(9, Now, 0)])),
                (check(1), refused([standing(0, ms(1_500), 9)])),
            ],
            vec![
                "reject 420",
                "x-ratelimit-limit: 3",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 2",
                "retry-after: 2",
                "content-type: application/json",
            ],
        ),
    ]
}

fn delayed(remaining: u64, delay_ms: u64) -> CheckAnswer {
    let limits = vec![standing(remaining, Now, 0)];
    CheckAnswer::Store(Decision {
        granted: true,
        delay: Micros::from_millis(delay_ms),
        limits: limits.into(),
        ban: Now,
        own: None,
        at: Micros::ZERO,
    })
}

#[test]
fn told_in_headers() {
    for (row, answers, wanted) in cases() {
        assert_eq!(told(&answers), wanted, "{row}");
    }
}

#[test]
fn bodies() {
    let refused_a = [(check(0), refused([standing(0, ms(1), 0), standing(0, Never, 0)]))];
    let body: serde_json::Value = serde_json::from_str(&rejection(&refused_a).body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "violated-policies": ["burst", "a.day"],
        })
    );
    let began = [(check(0), banned([standing(0, ms(1), 0), standing(5, Now, 0)], ms(9_000)))];
    let body: serde_json::Value = serde_json::from_str(&rejection(&began).body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
            "title": "Request not satisfied due to detection of abnormal request pattern",
            "status": 429,
            "violated-policies": ["burst"],
        })
    );
    let lasts = [(check(0), banned([standing(7, Now, 0), standing(5, Now, 0)], ms(9_000)))];
    let body: serde_json::Value = serde_json::from_str(&rejection(&lasts).body).unwrap();
    assert_eq!(body.get("violated-policies"), None, "the limits have come back");
    let banned_b = [(check(1), banned([standing(7, Now, 0)], ms(1_001)))];
    let body: serde_json::Value = serde_json::from_str(&rejection(&banned_b).body).unwrap();
    assert_eq!(body, serde_json::json!({"error": "banned", "policy": "b", "retry_after": 2}));
    let refused_b = [(check(1), refused([standing(0, ms(1_001), 0)]))];
    let body: serde_json::Value = serde_json::from_str(&rejection(&refused_b).body).unwrap();
    assert_eq!(body, serde_json::json!({"error": "rate limit exceeded", "policy": "b", "retry_after": 2}));
    let text = rejection(&[(check(2), refused([standing(0, Never, 0)]))]).body;
    assert_eq!(text, "Request cannot be satisfied as assigned quota has been exceeded.\n");
}

/// The largest configuration: names as long as they may be, and the same in every policy.
fn largest(headers: &str) -> Config {
    let limit = |index: usize| {
        let name = format!("{index}{}", "x".repeat(63));
        format!(
            r#"{{"name": "{name}", "algorithm": "token_bucket", "capacity": 1000000000000, "refill": 1000000, "interval": "1s"}}"#
        )
    };
    let limits = (0..8).map(limit).collect::<Vec<_>>().join(",");
    let policy =
        |index: usize| format!(r#"{{"name": "{index:03}{}", "limits": [{limits}]}}"#, "p".repeat(61));
    let policies = (0..256).map(policy).collect::<Vec<_>>().join(",");
    let text = format!(r#"{{"policies": [{policies}], "response": {{"headers": "{headers}"}}}}"#);
    Config::parse(text.as_bytes()).unwrap()
}

/// Nothing that a proxy, a client or a log would refuse.
const MAX_HEADER: usize = 1024;

#[test]
fn no_response_is_larger_than_the_bound() {
    let open = || vec![standing(5, Now, 1_000); 8];
    let closed = || vec![standing(0, ms(1_000), 1_000); 8];
    for headers in ["draft_11", "x_ratelimit", "none"] {
        let config = largest(headers);
        for (refusals, violated) in [(0, 0), (1, 7), (256, 7)] {
            let answer = |policy| if policy < refusals { refused(closed()) } else { granted(open()) };
            let answers: Vec<(Check, CheckAnswer)> =
                (0..256).map(|policy| (check(policy), answer(policy))).collect();
            let verdict = verdict(&of_policies(&config, &answers));
            let (headers, body) = match verdict {
                Verdict::Admit(admission) => (admission.headers, String::new()),
                Verdict::Reject(rejection) => (rejection.headers, rejection.body),
            };
            assert_eq!(body.is_empty(), refusals == 0);
            for header in &headers {
                assert!(header.value.len() <= MAX_HEADER, "{}: {} bytes", header.name, header.value.len());
            }
            let bytes: usize = headers.iter().map(|header| header.name.len() + header.value.len() + 4).sum();
            assert!(bytes <= 3 * MAX_HEADER, "{bytes} bytes of headers");
            assert!(body.len() <= MAX_HEADER + 256, "{} bytes of body", body.len());
            if refusals > 0 {
                let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                assert_eq!(body["violated-policies"].as_array().unwrap().len(), violated);
            }
        }
    }
}

#[test]
fn of_many_limits_those_are_shown_that_are_violated_and_then_the_tightest() {
    let limit = |index| {
        format!(
            r#"{{"name": "l{index}", "algorithm": "leaky_bucket", "rate": "1/s", "burst": {}}}"#,
            index + 1
        )
    };
    let policy = |index: usize| {
        let limits = (8 * index..8 * index + 8).map(limit).collect::<Vec<_>>().join(",");
        format!(r#"{{"name": "p{index}", "limits": [{limits}]}}"#)
    };
    let shown = |policies: usize, left: &dyn Fn(u64) -> (u64, RetryAfter), refusals: &[usize]| {
        let text =
            format!(r#"{{"policies": [{}]}}"#, (0..policies).map(policy).collect::<Vec<_>>().join(","));
        let config = Config::parse(text.as_bytes()).unwrap();
        let answer = |policy: usize| {
            let limits: Vec<LimitStatus> = (8 * policy..8 * policy + 8)
                .map(|index| {
                    let (remaining, retry_after) = left(index as u64);
                    standing(remaining, retry_after, 1_000)
                })
                .collect();
            if refusals.contains(&policy) { refused(limits) } else { granted(limits) }
        };
        let answers: Vec<(Check, CheckAnswer)> =
            (0..policies).map(|policy| (check(policy), answer(policy))).collect();
        let verdict = verdict(&of_policies(&config, &answers));
        let (headers, body) = match verdict {
            Verdict::Admit(admission) => (admission.headers, None),
            Verdict::Reject(rejection) => {
                let body: serde_json::Value = serde_json::from_str(&rejection.body).unwrap();
                (rejection.headers, Some(body["violated-policies"].clone()))
            }
        };
        let names = |header: usize| {
            let items = headers[header].value.split(", ");
            items.map(|item| item.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(0), names(1), "both headers are about the same limits");
        (names(0), body)
    };
    let named = |indices: &[u64]| indices.iter().map(|index| format!("l{index}")).collect::<Vec<_>>();

    // Sixteen are all shown, as configured.
    let (names, _) = shown(2, &|index| (15 - index.min(15), Now), &[]);
    assert_eq!(names, named(&(0..16).collect::<Vec<_>>()));
    // Of more the tightest, in proportion: all have one unit left of index + 1.
    let (names, _) = shown(3, &|_| (1, Now), &[]);
    assert_eq!(names, named(&(8..24).rev().collect::<Vec<_>>()));
    // Where none is tighter, as configured.
    let (names, _) = shown(3, &|index| (index + 1, Now), &[]);
    assert_eq!(names, named(&(0..16).collect::<Vec<_>>()));
    // A limit that rejects comes first, however much is left; a limit that a policy withholds while it admits does not.
    let left = |index| match index {
        5 => (6, Never),
        17 | 23 => (0, ms(1_000)),
        index => (index / 2, Now),
    };
    let (names, body) = shown(3, &left, &[0, 2]);
    assert_eq!(names[..3], named(&[17, 23, 5]));
    assert_eq!(names.len(), 16);
    assert_eq!(body, Some(serde_json::json!(["l5", "l17", "l23"])));
    let (names, _) = shown(3, &|index| if index == 0 { (1, ms(1)) } else { (0, Now) }, &[0]);
    assert_eq!(names[..3], named(&[0, 1, 2]));
    let (names, _) = shown(3, &left, &[0]);
    assert_eq!(names[..5], named(&[5, 0, 1, 17, 23]));
    // A body names as many, the tightest first.
    let (names, body) = shown(3, &|index| (index / 2, After(Micros(1))), &[0, 1, 2]);
    assert_eq!(body, Some(serde_json::json!(names)));
    assert_eq!(names[..2], named(&[0, 1]));
}

/// Sixteen names of 61 bytes are 1,024 bytes with quotes and commas: as many as a body has. With a byte more, the tightest come first.
#[test]
fn names_that_just_fit_are_shown_as_configured() {
    for (length, is_as_configured) in [(61, true), (62, false)] {
        let name =
            |index: usize| if index == 7 { format!("{index:0>length$}") } else { format!("{index:0>61}") };
        let limit = |index| {
            format!(
                r#"{{"name": "{}", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 20}}"#,
                name(index)
            )
        };
        let policy = |index: usize| {
            let limits = (8 * index..8 * index + 8).map(limit).collect::<Vec<_>>().join(",");
            format!(r#"{{"name": "p{index}", "limits": [{limits}]}}"#)
        };
        let text = format!(r#"{{"policies": [{}, {}]}}"#, policy(0), policy(1));
        let config = Config::parse(text.as_bytes()).unwrap();
        let left = |index: usize| standing(16 - index as u64, ms(1), 1_000);
        let answer = |policy: usize| {
            (check(policy), refused((8 * policy..8 * policy + 8).map(left).collect::<Vec<_>>()))
        };
        let answers = [answer(0), answer(1)];
        let Verdict::Reject(rejection) = verdict(&of_policies(&config, &answers)) else {
            panic!("it is refused")
        };
        let body: serde_json::Value = serde_json::from_str(&rejection.body).unwrap();
        let named = body["violated-policies"].as_array().unwrap();
        assert_eq!(named[0] == name(0), is_as_configured, "{length}: {named:?}");
        assert_eq!(named.len(), if is_as_configured { 16 } else { 15 }, "{length}");
    }
}

#[test]
fn a_request_about_which_nothing_could_be_decided_is_told_to_retry_in_a_second() {
    let rejection = unavailable(config().response(None));
    assert_eq!((rejection.status, rejection.grpc.code), (503, 14));
    let retry = rejection.headers.iter().find(|header| header.name == "retry-after");
    assert_eq!(retry.map(|header| header.value.as_str()), Some("1"));
}

#[test]
fn a_body_of_the_operators() {
    let text = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}],
        "response": {"format": "json", "body": "{\"slow\": \"down\"}"}}], "response": {"format": "empty"}}"#;
    let config = Config::parse(text.as_bytes()).unwrap();
    let answers = [(check(0), refused([standing(0, ms(1), 0)]))];
    let Verdict::Reject(rejection) = verdict(&of_policies(&config, &answers)) else {
        panic!("it is refused")
    };
    assert_eq!(rejection.body, "{\"slow\": \"down\"}");
    let global = deny(config.response(None), "");
    assert_eq!((global.status, global.body.as_str(), global.headers.len()), (403, "", 0));
}

#[test]
fn a_ban_has_a_status_of_its_own() {
    let text = TEXT.replacen(
        "{\"policies\"",
        "{\"response\": {\"status\": 430, \"ban_status\": 403}, \"policies\"",
        1,
    );
    let config = Config::parse(text.as_bytes()).unwrap();
    let limits = || [standing(0, ms(9), 0), standing(5, Now, 0)];
    for (answer, status, cause) in
        [(refused(limits()), 430, Cause::Exceeded), (banned(limits(), ms(5_000)), 403, Cause::Banned)]
    {
        let answers = [(check(0), answer)];
        let Verdict::Reject(rejection) = verdict(&of_policies(&config, &answers)) else {
            panic!("it is refused")
        };
        assert_eq!((rejection.status, rejection.cause), (status, cause));
    }
}

#[test]
fn denied_without_asking() {
    let config = config();
    let denied = deny(config.response(Some(1)), "b");
    assert_eq!(denied.status, 403);
    assert_eq!(denied.body, "{\"error\":\"request denied\",\"policy\":\"b\"}");
    assert_eq!((denied.grpc.code, denied.grpc.pushback), (7, None));
    let problem: serde_json::Value = serde_json::from_str(&deny(config.response(None), "").body).unwrap();
    assert_eq!(
        problem,
        serde_json::json!({"type": "about:blank", "title": "Request is denied", "status": 403})
    );
}

#[test]
fn grpc() {
    let rows = [
        ("exceeded", refused([standing(0, ms(1_234), 0)]), 8, Some(1_234)),
        ("never", refused([standing(0, Never, 0)]), 8, Some(-1)),
        ("banned", banned([standing(3, Now, 0)], ms(1_234)), 8, Some(1_234)),
        ("banned until an operator lifts the ban", banned([standing(3, Now, 0)], Never), 8, Some(-1)),
        ("unavailable", CheckAnswer::Unavailable, 14, Some(1_000)),
        ("all places taken", refused([standing(0, ms(637_000), 0), standing(1, Now, 0)]), 8, None),
        (
            "all places taken, and too fast",
            refused([standing(0, ms(637_000), 0), standing(0, ms(1_234), 0)]),
            8,
            Some(1_234),
        ),
    ];
    for (row, answer, code, pushback) in rows {
        let policy = if row.starts_with("all places") { 3 } else { 1 };
        let grpc = rejection(&[(check(policy), answer)]).grpc;
        assert_eq!((grpc.code, grpc.pushback), (code, pushback), "{row}");
    }
}

/// The result in Envoy and its filters is tested there: `a_rejection_of_what_became_grpc_is_no_success`.
#[test]
fn a_reply_to_a_grpc_call_has_its_status_among_the_headers() {
    let rejection = rejection(&[(check(1), refused([standing(0, ms(1_234), 0)]))]);
    let reply = |sample: &Sample| {
        let reply =
            rejection.reply(&|name| Attributes::header(sample, name).ok().flatten().map(Cow::into_owned));
        let headers: BTreeMap<_, _> =
            reply.headers.iter().map(|(name, value)| (*name, value.to_string())).collect();
        assert_eq!(headers.len(), reply.headers.len(), "{reply:?}");
        (reply.status, headers, reply.body.into_owned())
    };
    let own: BTreeMap<_, _> =
        rejection.headers.iter().map(|header| (header.name, header.value.clone())).collect();
    assert!(own.contains_key("content-type") && !rejection.body.is_empty());
    let http = Sample::default().header("grpc-accept-encoding", "identity");
    assert_eq!(reply(&http), (420, own.clone(), rejection.body.clone()));

    let mut grpc = own;
    grpc.remove("content-type");
    for (name, value) in
        [("grpc-status", "8"), ("grpc-message", "rate limit exceeded"), ("grpc-retry-pushback-ms", "1234")]
    {
        grpc.insert(name, value.to_owned());
    }
    let call = Sample::default().header("content-type", "application/grpc");
    assert_eq!(reply(&call), (420, grpc.clone(), String::new()));
    // As `grpc_web` leaves a request.
    let web = call.header("grpc-accept-encoding", "identity");
    assert_eq!(reply(&web), (200, grpc.clone(), String::new()));
    // The client of the transcoder has written the first of these.
    assert_eq!(reply(&web.header("x-envoy-original-method", "POST")), (420, grpc, String::new()));
}

/// Envoy's own result for these is tested in Envoy: `a_rejection_is_no_success`.
#[test]
fn a_grpc_call_is_what_envoy_takes_for_one() {
    let rows: &[(&[&str], bool)] = &[
        (&[], false),
        (&[""], false),
        (&["application/grpc"], true),
        (&["application/grpc+"], true),
        (&["application/grpc+proto"], true),
        (&["application/grpc+json;x=y"], true),
        (&["application/grpc+proto", "text/plain"], true),
        (&["application/grpc", "application/grpc"], false),
        (&["text/plain", "application/grpc"], false),
        (&["application/grpc;"], false),
        (&["application/grpc;x=y"], false),
        (&["application/grpc x"], false),
        (&["application/grpcx"], false),
        (&["application/grpc-web"], false),
        (&["application/grpc-web+proto"], false),
        (&["application/grp"], false),
        (&["APPLICATION/GRPC"], false),
        (&["application/Grpc+proto"], false),
    ];
    for (kinds, grpc) in rows {
        let sample = kinds.iter().fold(Sample::default(), |sample, kind| sample.header("content-type", kind));
        let is_grpc = |sample: &Sample| {
            is_grpc(&|name| Attributes::header(sample, name).ok().flatten().map(Cow::into_owned))
        };
        assert_eq!(is_grpc(&sample), *grpc, "{kinds:?}");
        assert!(!is_grpc(&sample.clone().without(":path")), "{kinds:?} without a path");
        assert!(!is_grpc(&sample.clone().unreadable(":path")), "{kinds:?} with an unreadable path");
        assert!(!is_grpc(&sample.unreadable("content-type")), "{kinds:?}, unreadable");
    }
}

/// A request that is held, or for which there is no place to be held, is denied by the limits that delay it; others have granted it.
#[test]
fn the_journal_has_what_each_policy_has_denied() {
    let at_once = || (check(4), granted([standing(1, Now, 0), standing(1, Now, 0), standing(1, Now, 0)]));
    let later = || (check(1), delayed(1, 500));
    let no = || (check(0), refused([standing(0, ms(1), 0), standing(5, Now, 0)]));
    /// A name, answers, whether the request was rejected, and what each answer denied.
    type Row = (&'static str, Vec<(Check, CheckAnswer)>, bool, Vec<Option<&'static str>>);
    let rows: Vec<Row> = vec![
        ("granted", vec![at_once()], false, vec![None]),
        ("granted, and held", vec![later(), at_once()], false, vec![None, None]),
        ("no place to be held", vec![later(), at_once()], true, vec![Some("rejected"), None]),
        ("rejected by another", vec![later(), no()], true, vec![None, Some("rejected")]),
        ("rejected by the first", vec![no(), at_once()], true, vec![Some("rejected"), None]),
    ];
    for (name, answers, is_rejected, wanted) in rows {
        let answers = of_policies(config(), &answers);
        let found: Vec<_> =
            denials(&answers, is_rejected).map(|denied| denied.map(|denied| denied.outcome)).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn access_logs_say_why_and_by_which_policy() {
    let by_limit = rejection(&[(check(0), refused([standing(0, ms(1), 0), standing(5, Now, 0)]))]);
    let by_ban = rejection(&[(check(0), banned([standing(0, ms(1), 0), standing(5, Now, 0)], ms(5)))]);
    let rows = [
        (by_limit, "weir_denied{a}"),
        (by_ban, "weir_banned{a}"),
        (deny(config().response(None), ""), "weir_forbidden"),
        (unavailable(config().response(None)), "weir_unavailable"),
        (late(config().response(None)), "weir_body_late"),
    ];
    for (rejection, wanted) in rows {
        assert_eq!(rejection.details, wanted);
    }
}

#[test]
fn headers_of_the_upstream_are_treated_as_configured() {
    let answers = [
        (check(0), granted([standing(1, Now, 0), standing(1, Now, 0)])),
        (check(1), granted([standing(1, Now, 0)])),
    ];
    let config = config();
    let Verdict::Admit(admission) = verdict(&of_policies(config, &answers)) else { panic!("it is granted") };
    let upstreams: Vec<_> = admission.headers.iter().map(|header| (header.name, header.upstream)).collect();
    assert_eq!(
        upstreams,
        [
            ("ratelimit-policy", Upstream::Replace),
            ("ratelimit", Upstream::Replace),
            ("x-ratelimit-limit", Upstream::Keep),
            ("x-ratelimit-remaining", Upstream::Keep),
            ("x-ratelimit-reset", Upstream::Keep),
        ]
    );
}

#[test]
fn no_room_to_hold_is_a_rejection_that_says_when() {
    let answers = [(check(0), delayed(0, 100)), (check(1), delayed(0, 1_300))];
    let rejection = no_room_to_hold(&of_policies(config(), &answers)).unwrap();
    assert_eq!((rejection.status, value(&rejection, "retry-after")), (420, Some("2")));
    assert_eq!(no_room_to_hold(&[]), None);
}

#[test]
fn records() {
    let config = config();
    let shadow = Check { mode: Mode::Shadow, ..check(0) };
    let a = granted([standing(7, Now, 0), standing(5, Now, 0)]);
    let b = granted([standing(6, Now, 0)]);
    let no = refused([standing(3, Now, 0), standing(9, ms(5), 0)]);
    let lease = CheckAnswer::Lease(Decision {
        granted: true,
        delay: Micros::ZERO,
        limits: vec![standing(1, Now, 0)].into(),
        ban: Now,
        own: None,
        at: Micros::ZERO,
    });
    let until = CheckAnswer::DeniedUntil(Decision {
        granted: false,
        delay: Micros::ZERO,
        limits: vec![standing(0, ms(1), 0)].into(),
        ban: Now,
        own: None,
        at: Micros::ZERO,
    });
    #[rustfmt::skip]
    let rows = [
        ("the limit nearest its end", vec![(check(0), a.clone()), (check(1), b)], "a a.day admitted Some(5) redis"),
        ("the policy that rejects", vec![(check(2), lease.clone()), (check(0), no.clone())], "a a.day rejected Some(9) redis"),
        ("the policy that bans", vec![(check(2), lease.clone()), (check(0), banned([standing(3, Now, 0), standing(9, Now, 0)], ms(5)))],
         "a burst banned Some(3) redis"),
        ("would have banned", vec![(shadow.clone(), banned([standing(3, Now, 0), standing(9, Now, 0)], ms(5)))], "a burst shadow Some(3) redis"),
        ("would have rejected", vec![(check(2), lease.clone()), (shadow, no)], "a a.day shadow Some(9) redis"),
        (
            "the policy that rejects, not one in shadow before it",
            vec![
                (
                    Check { mode: Mode::Shadow, ..check(0) },
                    refused([standing(3, Now, 0), standing(9, ms(5), 0)]),
                ),
                (check(1), refused([standing(2, ms(5), 0)])),
            ],
            "b steady rejected Some(2) redis",
        ),
        ("from a lease", vec![(check(1), lease)], "b steady admitted Some(1) lease"),
        ("denied until", vec![(check(1), until)], "b steady rejected Some(0) denied-until"),
        ("delayed", vec![(check(1), delayed(0, 1))], "b steady delayed Some(0) redis"),
        ("no answer", vec![(check(0), CheckAnswer::Unavailable)], "a  unanswered None fallback"),
        ("no answer, denied", vec![(check(1), CheckAnswer::Unavailable)], "b  rejected None fallback"),
    ];
    for (row, answers, wanted) in rows {
        let record = record(&of_policies(config, &answers), false).unwrap();
        let found = format!(
            "{} {} {} {:?} {}",
            record.policy, record.limit, record.outcome, record.remaining, record.source
        );
        assert_eq!(found, wanted, "{row}");
    }
    assert_eq!(record(&[], false), None);
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;
    use sfv::{BareItem, Key, ListEntry, Parser};

    use super::*;

    fn retry() -> impl Strategy<Value = RetryAfter> {
        prop_oneof![Just(Now), Just(Never), any::<u64>().prop_map(|span| After(Micros(span)))]
    }

    fn anything() -> impl Strategy<Value = LimitStatus> {
        let remaining = prop_oneof![Just(0), any::<u64>()];
        (remaining, retry(), any::<u64>(), any::<u64>()).prop_map(
            |(remaining, retry_after, reset, window)| {
                let (reset, window) = (Micros(reset), Micros(window));
                LimitStatus { remaining, retry_after, reset, window }
            },
        )
    }

    fn integer(parameters: &sfv::Parameters, name: &str) -> Option<u64> {
        let value = parameters.get(&Key::from_string(name.to_owned()).unwrap())?;
        u64::try_from(i64::from(value.as_integer()?)).ok()
    }

    /// The items of a list of strings, with their integer parameters `names`.
    fn list(text: &str, names: [&str; 2]) -> Vec<(String, Option<u64>, Option<u64>)> {
        let list: sfv::List = Parser::new(text).parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let item = |entry: &ListEntry| match entry {
            ListEntry::Item(item) => {
                let BareItem::String(name) = &item.bare_item else { panic!("{item:?} is no string") };
                (name.as_str().to_owned(), integer(&item.params, names[0]), integer(&item.params, names[1]))
            }
            ListEntry::InnerList(list) => panic!("{list:?}"),
        };
        list.iter().map(item).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn headers_are_structured_fields(burst in anything(), day in anything(), passes: bool) {
            let limits = [burst, day];
            let answers = [(check(0), if passes { granted(limits) } else { refused(limits) })];
            let lines = told(&answers);
            let value = |name: &str| lines.iter().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
            prop_assert_eq!(
                list(value("ratelimit-policy"), ["q", "w"]),
                [(String::from("burst"), Some(100), Some(60)), (String::from("a.day"), Some(1000), Some(86_400))]
            );
            let most = 999_999_999_999_999;
            let waits = lines.iter().any(|line| line.starts_with("retry-after: "));
            let state = |limit: LimitStatus| {
                let time = match limit.retry_after {
                    After(Micros(span)) => Some(span),
                    _ if waits || limit.remaining == 0 => None,
                    _ => Some(limit.window.0),
                };
                (Some(limit.remaining.min(most)), time.map(|time| time.div_ceil(1_000_000).min(most)))
            };
            let found: Vec<_> = list(value("ratelimit"), ["r", "t"]).into_iter().map(|(_, r, t)| (r, t)).collect();
            prop_assert_eq!(found, [state(burst), state(day)]);
        }

        #[test]
        fn retry_after_is_never_earlier_than_the_truth(span in 1..u64::MAX / 2, tag: Vec<u8>) {
            for (policy, jitter) in [(1, 0), (2, 10_000_000)] {
                let check = Check { tag: tag.clone(), ..check(policy) };
                let rejection = rejection(&[(check, refused([standing(0, After(Micros(span)), 0)]))]);
                let after: u64 = value(&rejection, "retry-after").unwrap().parse().unwrap();
                prop_assert!(u128::from(after) * 1_000_000 >= u128::from(span));
                prop_assert!(u128::from(after - 1) * 1_000_000 < u128::from(span) + jitter + 1);
                let pushback = u64::try_from(rejection.grpc.pushback.unwrap()).unwrap();
                prop_assert!(u128::from(pushback) * 1_000 >= u128::from(span));
            }
        }
    }

    #[test]
    fn jitter_spreads_clients() {
        let after = |client: u32| {
            let check = Check { tag: client.to_string().into_bytes(), ..check(2) };
            let rejection = rejection(&[(check, refused([standing(0, ms(1_000), 0)]))]);
            value(&rejection, "retry-after").unwrap().parse::<u64>().unwrap()
        };
        let times = |micros| {
            let rejection = rejection(&[(check(2), refused([standing(0, After(Micros(micros)), 0)]))]);
            value(&rejection, "retry-after").unwrap().parse::<u64>().unwrap()
        };
        let at_times: std::collections::HashSet<u64> = (1..100).map(times).collect();
        assert!(at_times.len() > 5, "one client, at times that differ by less than a second: {at_times:?}");
        let all: Vec<u64> = (0..1000).map(after).collect();
        for second in 2..=11 {
            let share = all.iter().filter(|after| **after == second).count();
            assert!((50..200).contains(&share), "{share} of 1000 clients come back after {second} s");
        }
    }
}
