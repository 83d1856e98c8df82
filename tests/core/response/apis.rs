// SPDX-License-Identifier: Apache-2.0
//! Rejections in the form of an API, and the headers of its limits. `tests/envoy/e2e/libraries.rs` shows them to the client libraries.

use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision, LimitStatus};
use weir::limit::RetryAfter::{self, After, Never, Now, Unknown};
use weir::policy::{self, Check};
use weir::request::sample::Sample;
use weir::response::{Rejection, Verdict, deny, late, unavailable, verdict};
use weir::time::Micros;

/// One policy counts requests, and one what they cost.
fn config(response: &str) -> Config {
    let text = format!(
        r#"{{"response": {{{response}}}, "policies": [
            {{"name": "rate", "limits": [
                {{"name": "minute", "algorithm": "leaky_bucket", "rate": "60/m", "burst": 60}},
                {{"name": "hour", "algorithm": "leaky_bucket", "rate": "1000/h", "burst": 1000}},
                {{"name": "running", "algorithm": "concurrency", "limit": 4}}]}},
            {{"name": "budget", "cost": {{"header": {{"name": "x-cost"}}}},
              "limits": [{{"name": "day", "algorithm": "leaky_bucket", "rate": "150000/d", "burst": 150000}}]}}]}}"#
    );
    Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

/// A limit that is full again in six minutes.
const fn limit(remaining: u64, retry_after: RetryAfter) -> LimitStatus {
    LimitStatus { remaining, retry_after, reset: Micros::from_secs(360), window: Micros::from_secs(9) }
}

/// At the end of a year.
const AT: Micros = Micros::from_secs(1_735_689_599);

fn store(granted: bool, limits: impl Into<Vec<LimitStatus>>, ban: RetryAfter) -> CheckAnswer {
    let (limits, delay) = (limits.into().into(), Micros::ZERO);
    CheckAnswer::Store(Decision { granted, delay, limits, ban, own: None, at: AT })
}

fn of(config: &Config, answers: [CheckAnswer; 2]) -> Verdict {
    let checks: Vec<_> =
        (0..).zip(answers).map(|(policy, answer)| (Check::one(policy, b"{p|s}"), answer)).collect();
    let checks = checks.iter().map(|(check, answer)| (check, answer));
    verdict(&policy::answers(&config.policies, checks))
}

fn rejected(config: &Config, answers: [CheckAnswer; 2]) -> Rejection {
    match of(config, answers) {
        Verdict::Reject(rejection) => rejection,
        Verdict::Admit(admission) => panic!("it is admitted: {admission:?}"),
    }
}

fn rate(after: RetryAfter) -> [CheckAnswer; 2] {
    let limits = [limit(0, after), limit(7, Now), limit(4, Now)];
    [store(false, limits, Now), store(true, [limit(9, Now)], Now)]
}

fn budget(after: RetryAfter) -> [CheckAnswer; 2] {
    let limits = [limit(3, Now), limit(7, Now), limit(4, Now)];
    [store(true, limits, Now), store(false, [limit(9, after)], Now)]
}

fn banned(after: RetryAfter) -> [CheckAnswer; 2] {
    let limits = [limit(3, Now), limit(7, Now), limit(4, Now)];
    [store(false, limits, after), store(true, [limit(9, Now)], Now)]
}

fn all_running() -> [CheckAnswer; 2] {
    let limits = [limit(3, Now), limit(7, Now), limit(0, Unknown)];
    [store(false, limits, Now), store(true, [limit(9, Now)], Now)]
}

const fn seconds(seconds: u64) -> RetryAfter {
    After(Micros::from_secs(seconds))
}

fn body(rejection: &Rejection) -> Value {
    serde_json::from_str(&rejection.body).unwrap_or_else(|error| panic!("{error}: {}", rejection.body))
}

fn header<'a>(headers: &'a [weir::response::Header], name: &str) -> Option<&'a str> {
    headers.iter().find(|header| header.name == name).map(|header| header.value.as_str())
}

/// What is rejected, and its error in each of the forms.
#[test]
fn each_cause_has_its_form_in_each_api() {
    let retry =
        |delay: &str| json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay});
    let quota = |name: &str| json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": name}]});
    let half = After(Micros::from_millis(1_500));
    let of_config: fn(&Config) -> Rejection = |config| deny(config.response(None), "");
    let rows: [(&str, Box<dyn Fn(&Config) -> Rejection>, Value, u16); 6] = [
        (
            "a limit of requests",
            Box::new(move |config| rejected(config, rate(half))),
            json!({
                "message": "Rate limit exceeded: minute. Retry after 2 s.",
                "openai": ["requests", "rate_limit_exceeded"], "anthropic": "rate_limit_error",
                "gemini": ["RESOURCE_EXHAUSTED", [retry("1.500s"), quota("minute")]],
                "json_rpc": [-32029, 1_500], "graphql": "RATE_LIMITED",
            }),
            429,
        ),
        (
            "a limit of units",
            Box::new(|config| rejected(config, budget(seconds(60)))),
            json!({
                "message": "Rate limit exceeded: day. Retry after 60 s.",
                "openai": ["tokens", "rate_limit_exceeded"], "anthropic": "rate_limit_error",
                "gemini": ["RESOURCE_EXHAUSTED", [retry("60s"), quota("day")]],
                "json_rpc": [-32029, 60_000], "graphql": "RATE_LIMITED",
            }),
            429,
        ),
        (
            "a ban",
            Box::new(|config| rejected(config, banned(seconds(5)))),
            json!({
                "message": "Blocked after too many requests over the limit. Retry after 5 s.",
                "openai": ["requests", "rate_limit_exceeded"], "anthropic": "rate_limit_error",
                "gemini": ["RESOURCE_EXHAUSTED", [retry("5s")]],
                "json_rpc": [-32029, 5_000], "graphql": "RATE_LIMITED",
            }),
            429,
        ),
        (
            "a deny list",
            Box::new(of_config),
            json!({
                "message": "Request denied.",
                "openai": ["invalid_request_error", "request_denied"], "anthropic": "permission_error",
                "gemini": ["PERMISSION_DENIED", []], "json_rpc": [-32043, null], "graphql": "FORBIDDEN",
            }),
            403,
        ),
        (
            "no store",
            Box::new(|config| unavailable(config.response(None))),
            json!({
                "message": "Rate limit temporarily unavailable. Retry after 1 s.",
                "openai": ["server_error", "service_unavailable"], "anthropic": "api_error",
                "gemini": ["UNAVAILABLE", [retry("1s")]], "json_rpc": [-32053, 1_000], "graphql": "SERVICE_UNAVAILABLE",
            }),
            503,
        ),
        (
            "a body that is late",
            Box::new(|config| late(config.response(None))),
            json!({
                "message": "Request body did not arrive in time.",
                "openai": ["invalid_request_error", "request_timeout"], "anthropic": "timeout_error",
                "gemini": ["DEADLINE_EXCEEDED", []], "json_rpc": [-32048, null], "graphql": "REQUEST_TIMEOUT",
            }),
            408,
        ),
    ];
    let configs = ["openai", "anthropic", "gemini", "json_rpc", "graphql"]
        .map(|style| (style, config(&format!(r#""style": "{style}""#))));
    for (row, reject, wanted, status) in rows {
        let message = &wanted["message"];
        let optional = |mut object: Value, name: &str, value: &Value| {
            if !value.is_null() {
                object[name] = value.clone();
            }
            object
        };
        for (style, config) in &configs {
            let rejection = reject(config);
            let of = &wanted[style];
            let body_wanted = match *style {
                "openai" => {
                    json!({"error": {"message": message, "type": of[0], "param": null, "code": of[1]}})
                }
                "anthropic" => json!({"type": "error", "error": {"type": of, "message": message}}),
                "gemini" => {
                    json!({"error": {"code": status, "message": message, "status": of[0], "details": of[1]}})
                }
                "json_rpc" => {
                    let data = optional(json!({}), "retryAfterMs", &of[1]);
                    let data = if of[1].is_null() { Value::Null } else { data };
                    let error = optional(json!({"code": of[0], "message": message}), "data", &data);
                    json!({"jsonrpc": "2.0", "id": null, "error": error})
                }
                _ => {
                    let after = &wanted["json_rpc"][1];
                    let extensions = optional(json!({"code": of}), "retryAfterMs", after);
                    json!({"errors": [{"message": message, "extensions": extensions}]})
                }
            };
            assert_eq!((body(&rejection), rejection.status), (body_wanted, status), "{row}, {style}");
            let kind =
                if *style == "graphql" { "application/graphql-response+json" } else { "application/json" };
            assert_eq!(header(&rejection.headers, "content-type"), Some(kind), "{row}, {style}");
        }
    }
}

/// `retry-after`, `retry-after-ms`, `x-should-retry`.
#[test]
fn client_libraries_are_told_when_to_retry_and_when_that_is_in_vain() {
    let rows: [(&str, fn(&Config) -> Rejection, [Option<&str>; 3]); 8] = [
        ("soon", |config| rejected(config, rate(After(Micros(1_500_001)))), [Some("2"), Some("1501"), None]),
        ("at the bound", |config| rejected(config, rate(seconds(60))), [Some("60"), Some("60000"), None]),
        (
            "beyond it",
            |config| rejected(config, rate(After(Micros(60_000_001)))),
            [Some("61"), Some("60001"), Some("false")],
        ),
        ("never", |config| rejected(config, budget(Never)), [None, None, Some("false")]),
        ("a ban without an end", |config| rejected(config, banned(Never)), [None, None, Some("false")]),
        ("when a permit is free", |config| rejected(config, all_running()), [None, None, None]),
        ("denied", |config| deny(config.response(None), ""), [None, None, Some("false")]),
        ("unavailable", |config| unavailable(config.response(None)), [Some("1"), Some("1000"), None]),
    ];
    for style in ["openai", "anthropic", "gemini", "json_rpc", "graphql"] {
        let config = config(&format!(r#""style": "{style}""#));
        for (row, reject, [seconds, millis, retry]) in rows {
            let headers = reject(&config).headers;
            let is_read = matches!(style, "openai" | "anthropic");
            assert_eq!(header(&headers, "retry-after"), seconds, "{style}, {row}");
            assert_eq!(header(&headers, "retry-after-ms"), millis.filter(|_| is_read), "{style}, {row}");
            assert_eq!(header(&headers, "x-should-retry"), retry.filter(|_| is_read), "{style}, {row}");
        }
    }
}

/// The names and values of the headers that show limits.
fn shown(headers: &[weir::response::Header]) -> Vec<String> {
    let of_limits = headers.iter().filter(|header| header.name.contains("ratelimit"));
    of_limits.map(|header| format!("{}: {}", header.name, header.value)).collect()
}

#[test]
fn the_headers_of_a_provider_show_one_limit_of_requests_and_one_of_tokens() {
    let limits = [limit(3, Now), limit(7, Now), limit(1, Now)];
    let granted = || [store(true, limits, Now), store(true, [limit(9, Now)], Now)];
    let openai = [
        "x-ratelimit-limit-requests: 60",
        "x-ratelimit-remaining-requests: 3",
        "x-ratelimit-reset-requests: 6m0s",
        "x-ratelimit-limit-tokens: 150000",
        "x-ratelimit-remaining-tokens: 9",
        "x-ratelimit-reset-tokens: 6m0s",
    ];
    let anthropic = [
        "anthropic-ratelimit-requests-limit: 60",
        "anthropic-ratelimit-requests-remaining: 3",
        "anthropic-ratelimit-requests-reset: 2025-01-01T00:05:59Z",
        "anthropic-ratelimit-tokens-limit: 150000",
        "anthropic-ratelimit-tokens-remaining: 9",
        "anthropic-ratelimit-tokens-reset: 2025-01-01T00:05:59Z",
    ];
    let rows: [(&str, &[&str]); 5] = [
        (r#""style": "openai""#, &openai),
        (r#""headers": "openai""#, &openai),
        (r#""style": "anthropic""#, &anthropic),
        (r#""style": "gemini""#, &[]),
        (r#""style": "openai", "headers": "none""#, &[]),
    ];
    for (fields, wanted) in rows {
        let Verdict::Admit(admission) = of(&config(fields), granted()) else { panic!("{fields}: rejected") };
        assert_eq!(shown(&admission.headers), wanted, "{fields}");
    }
    let config = config(r#""style": "openai""#);
    let headers = rejected(&config, rate(seconds(5))).headers;
    assert!(shown(&headers).contains(&String::from("x-ratelimit-remaining-requests: 0")), "{headers:?}");
    let headers = rejected(&config, banned(seconds(5))).headers;
    assert_eq!(shown(&headers), openai[3..], "of a ban, no limit of its policy");
}

/// The id is JSON, and only an error of JSON-RPC has one.
#[test]
fn an_error_of_json_rpc_names_its_request() {
    for (style, id, wanted) in [
        ("json_rpc", Some("7"), "{\"jsonrpc\":\"2.0\",\"id\":7,"),
        ("json_rpc", Some("\"a-1\""), "{\"jsonrpc\":\"2.0\",\"id\":\"a-1\","),
        ("json_rpc", None, "{\"jsonrpc\":\"2.0\",\"id\":null,"),
        ("openai", Some("7"), "{\"error\":"),
    ] {
        let config = config(&format!(r#""style": "{style}""#));
        let rejection = rejected(&config, rate(seconds(5))).answering(id);
        assert!(rejection.body.starts_with(wanted), "{style}: {}", rejection.body);
        body(&rejection);
    }
}

/// What the id of a request is, of a policy that needs its body.
#[test]
fn the_id_of_a_request_is_a_string_or_a_number() {
    let text = r#"{"response": {"style": "json_rpc"}, "policies": [{"name": "p",
        "match": {"path": {"exact": "/mcp"}, "body_json": {"path": "method", "exact": "tools/call"}},
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    let config = Config::parse(text.as_bytes()).unwrap();
    let rows = [
        (r#"{"method": "tools/call", "id": 7}"#, Some("7")),
        (r#"{"method": "tools/call", "id": -1.5e1}"#, Some("-15")),
        (r#"{"method": "tools/call", "id": "a-\u00e9 1"}"#, Some("\"a-é 1\"")),
        (r#"{"method": "tools/call", "id": "a\"b"}"#, None),
        (r#"{"method": "tools/call", "id": "a\\b"}"#, None),
        (r#"{"method": "tools/call", "id": "a\u0001"}"#, None),
        (r#"{"method": "tools/call", "id": null}"#, None),
        (r#"{"method": "tools/call"}"#, None),
        (r#"{"method": "tools/call", "id": true}"#, None),
        (r#"{"method": "tools/call", "id": [1]}"#, None),
        (r#"{"method": "tools/call", "id": 1, "id": 2}"#, None),
        (r#"[{"method": "tools/call", "id": 7}]"#, None),
        (r#"{"method": "tools/call", "id": 7"#, None),
        ("", None),
    ];
    let request = |path: &str, body: &str| Sample::default().path(path).with_body(body);
    for (text, wanted) in rows {
        let id = config.needed_body(&request("/mcp", text)).and_then(|body| body.json_rpc_id());
        assert_eq!(id.as_deref(), wanted, "{text}");
    }
    assert!(config.needed_body(&request("/other", rows[0].0)).is_none(), "no policy needs it");
    let other = Config::parse(text.replace("json_rpc", "openai").as_bytes()).unwrap();
    let body = other.needed_body(&request("/mcp", rows[0].0)).unwrap();
    assert_eq!(body.json_rpc_id(), None, "no response needs it");
}
