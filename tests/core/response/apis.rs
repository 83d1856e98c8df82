// SPDX-License-Identifier: Apache-2.0
//! Rejections in the form of an API, and the headers of its limits; and in the words of an operator. `tests/envoy/e2e/libraries.rs` shows them to the client libraries.

use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Ids, MAX_IDS};
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision, LimitStatus};
use weir::limit::RetryAfter::{self, After, Never, Now, Unknown};
use weir::policy::{self, Check};
use weir::request::Attributes;
use weir::request::sample::Sample;
use weir::response::{Rejection, Verdict, deny, late, unavailable, verdict};
use weir::time::Micros;

use crate::table::each;

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

fn of<const N: usize>(config: &Config, answers: [CheckAnswer; N]) -> Verdict {
    let checks: Vec<_> =
        (0..).zip(answers).map(|(policy, answer)| (Check::one(policy, b"{p|s}"), answer)).collect();
    let checks = checks.iter().map(|(check, answer)| (check, answer));
    verdict(&policy::answers(&config.policies, checks))
}

fn rejected(config: &Config, answers: [CheckAnswer; 2]) -> Rejection {
    match of(config, answers) {
        Verdict::Reject(rejection) => *rejection,
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

/// The rejections, each with its error in each of the forms.
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

/// Clients of language models pace themselves by these headers, and count tokens.
#[test]
fn no_header_of_a_provider_shows_money_bytes_time_or_values_as_tokens() {
    let usage = |cost: &str, settle: &str| {
        format!(r#""cost": {{"usage": {{{cost}}}}}, "settle": [{{"cost": {{"usage": {{{settle}}}}}}}]"#)
    };
    let prices = r#""prices": "usd""#;
    let rows = [
        ("tokens", usage("", ""), true),
        ("weighed tokens", usage("", r#""weights": {"output": 4}"#), true),
        ("money", usage(prices, prices), false),
        ("money in the response", format!(r#""settle": [{{"cost": {{"usage": {{{prices}}}}}}}]"#), false),
        ("bytes", String::from(r#""settle": [{"cost": {"response_bytes": {}}}]"#), false),
        ("tokens by bytes", String::from(r#""settle": [{"cost": {"response_bytes": {"per": 4}}}]"#), true),
        ("time", String::from(r#""settle": [{"cost": {"duration": {}}}]"#), false),
        ("requests", String::new(), true),
        ("values", String::new(), false),
    ];
    each(rows.into_iter().flat_map(|(name, fields, shows)| {
        ["openai", "anthropic"].map(|style| {
            let algorithm = if name == "values" { r#""distinct", "of": [{"header": {"name": "user-agent"}}]"# } else { r#""fixed_window""# };
            let config = Config::parse(format!(
                r#"{{"prices": {{"usd": {{"models": [{{"model": ["m"], "input": 1, "output": 1}}]}}}}, "response": {{"style": "{style}"}},
                  "policies": [{{"name": "p", "limits": [{{"name": "l", "algorithm": {algorithm}, "limit": 9, "window": "1m"}}]{}{fields}}}]}}"#,
                if fields.is_empty() { "" } else { ", " }
            ).as_bytes()).unwrap();
            let Verdict::Admit(admission) = of(&config, [store(true, [limit(3, Now)], Now)]) else { panic!("{name}: rejected") };
            (format!("{name}, {style}"), (!shown(&admission.headers).is_empty()).to_string(), shows.to_string())
        })
    }));
}

/// An error names its call, and a batch gets one for each. Only an error of JSON-RPC does.
#[test]
fn an_error_of_json_rpc_names_its_calls() {
    let batch = |ids: &str| Some(Ids::Batch(ids.into()));
    let one = |id: &str| Some(Ids::One(id.into()));
    let many = "1\n".repeat(MAX_IDS);
    let rows = [
        ("a number", "json_rpc", one("7"), json!(7)),
        ("a string", "json_rpc", one("\"a-1\""), json!("a-1")),
        ("none", "json_rpc", None, json!(null)),
        ("another style", "openai", one("7"), json!("none")),
        ("a batch", "json_rpc", batch("7\n\"a\\n\"\nnull\n"), json!([7, "a\n", null])),
        ("a batch of one", "json_rpc", batch("7\n"), json!([7])),
        ("as many as there may be", "json_rpc", batch(&many), json!(vec![1; MAX_IDS])),
        ("a batch in another style", "openai", batch("7\n"), json!("none")),
    ];
    each(rows.map(|(name, style, ids, wanted)| {
        let config = config(&format!(r#""style": "{style}""#));
        let unnamed = rejected(&config, rate(seconds(5)));
        let mut rejection = unnamed.clone();
        rejection.name_calls(ids.as_ref());
        let of = |error: &Value| {
            let mut error = error.clone();
            let id = error.as_object_mut().and_then(|error| error.insert(String::from("id"), Value::Null));
            assert_eq!(error.get("error"), body(&unnamed).get("error"), "{name}");
            id.unwrap_or_else(|| json!("none"))
        };
        let found = match body(&rejection) {
            Value::Array(errors) => errors.iter().map(of).collect::<Vec<_>>().into(),
            error => of(&error),
        };
        assert_eq!((rejection.status, &rejection.headers), (429, &unnamed.headers), "{name}");
        (name, found.to_string(), wanted.to_string())
    }));
    // JSON-RPC 2.0, section 6: nothing is returned.
    let config = config(r#""style": "json_rpc""#);
    let mut nothing = rejected(&config, rate(seconds(5)));
    nothing.name_calls(batch("").as_ref());
    assert_eq!((nothing.status, nothing.body.as_str()), (429, ""));
    let names: Vec<_> = nothing.headers.iter().map(|header| header.name).collect();
    assert!(names.contains(&"retry-after") && !names.contains(&"content-type"), "{names:?}");
}

/// However long the names of limits are, the errors of a batch are of a bounded size together: then there is one error for all.
#[test]
fn the_errors_of_a_batch_are_bounded() {
    let limit = |place: usize| {
        format!(
            r#"{{"name": "{}{place}", "algorithm": "leaky_bucket", "rate": "60/m", "burst": 60}}"#,
            "x".repeat(60)
        )
    };
    let limits: Vec<_> = (0..8).map(limit).collect();
    let text = format!(
        r#"{{"response": {{"style": "json_rpc"}}, "policies": [{{"name": "p", "limits": [{}]}}]}}"#,
        limits.join(",")
    );
    let config = Config::parse(text.as_bytes()).unwrap();
    let statuses: Vec<_> = (0..8).map(|_| self::limit(0, seconds(5))).collect();
    let (check, answer) = (Check::one(0, b"{p|s}"), store(false, statuses, Now));
    let Verdict::Reject(rejection) =
        verdict(&policy::answers(&config.policies, [(&check, &answer)].into_iter()))
    else {
        panic!("it is admitted")
    };
    each([1, 40, MAX_IDS].map(|count| {
        let mut errors = rejection.clone();
        errors.name_calls(Some(&Ids::Batch("1\n".repeat(count).into())));
        assert!(errors.body.len() <= 33_000, "{count}: {}", errors.body.len());
        let found = body(&errors).as_array().map_or(0, Vec::len);
        (count, found.to_string(), if count == MAX_IDS { 0 } else { count }.to_string())
    }));
}

/// Of what policies need the body of, and only where an error may name it.
#[test]
fn the_ids_of_a_body_are_those_of_its_calls() {
    let text = r#"{"response": {"style": "json_rpc"}, "policies": [{"name": "p",
        "match": {"path": {"exact": "/mcp"}, "body_json": {"path": "method", "exact": "tools/call"}},
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#;
    let config = Config::parse(text.as_bytes()).unwrap();
    let one = |id: &str| Some(Ids::One(id.into()));
    let rows = [
        (r#"{"method": "tools/call", "id": 7}"#, one("7")),
        (r#"{"method": "tools/call", "id": "a\"b"}"#, one(r#""a\"b""#)),
        (r#"{"method": "tools/call"}"#, None),
        (r#"[{"method": "tools/call", "id": 7}]"#, Some(Ids::Batch("7\n".into()))),
        // A body that is no JSON has no ids.
        (r#"{"method": "tools/call", "id": 7"#, None),
        (r#"[{"id": 7}, {"id": 8,}]"#, None),
        (r#"{"id": 01}"#, None),
        ("", None),
    ];
    let request = |path: &str, body: &str| Sample::default().path(path).with_body(body);
    for (text, wanted) in rows {
        let ids = config.needed_body(&request("/mcp", text)).and_then(|body| body.json_rpc_ids());
        assert_eq!(ids, wanted, "{text}");
    }
    assert!(config.needed_body(&request("/other", r#"{"id": 7}"#)).is_none(), "no policy needs it");
    let other = Config::parse(text.replace("json_rpc", "openai").as_bytes()).unwrap();
    let body = other.needed_body(&request("/mcp", r#"{"id": 7}"#)).unwrap();
    assert_eq!(body.json_rpc_ids(), None, "no response needs it");
}

/// A rejection of the policy `rate` because of its limit `minute`, as it goes to Envoy: the headers that follow `retry-after`, and the
/// body.
fn reply(response: &str, after: RetryAfter, request: &[(&str, &str)]) -> (Vec<String>, String) {
    let rejection = rejected(&config(response), rate(after));
    let sample = request.iter().fold(Sample::default(), |sample, (name, value)| sample.header(name, value));
    let reply = rejection.reply(&|name| Attributes::header(&sample, name).ok().flatten().map(Into::into));
    let is_own = |name: &str| !name.starts_with("ratelimit") && name != "retry-after";
    let headers = reply.headers.iter().filter(|(name, _)| is_own(name));
    (headers.map(|(name, value)| format!("{name}: {value}")).collect(), reply.body.into_owned())
}

const PAGES: &str = r#""format": "json", "body": "{\"wait\": {retry_after}, \"of\": \"{policy}.{limit}\", \"id\": {request_id}}",
    "bodies": [{"format": "html", "body": "<p>Wait {retry_after} s. {request_id}"}, {"format": "text", "body": "Wait. {request_id}"}]"#;
const DEFAULT: &str = r#"{"wait": 42, "of": "rate.minute", "id": null}"#;
const PAGE: &str = "<p>Wait 42 s. ";

#[test]
fn a_body_has_the_type_that_its_client_prefers() {
    let (default, page, text) = (DEFAULT, PAGE, "Wait. ");
    let many = |last: &str| format!("{}{last}", "image/png,".repeat(15));
    let rows = [
        ("no type", String::new(), default),
        ("any", "*/*".into(), default),
        ("a browser", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8".into(), page),
        ("a library", "application/json, text/plain, */*".into(), default),
        ("JSON before a page", "text/html;q=0.9, application/json".into(), default),
        ("a page before JSON", "application/json;q=0.999, text/html".into(), page),
        ("a tie of pages goes to the first", "text/*".into(), page),
        ("the most specific range counts", "text/*, text/html;q=0.1".into(), text),
        ("nothing acceptable", "image/png".into(), default),
        ("a quality of 0", "text/html;q=0".into(), default),
        ("all of a quality of 0", "*/*;q=0".into(), default),
        ("in capitals", "TEXT/HTML;Q=1.0".into(), page),
        ("with a parameter", "text/html ; charset=utf-8 ; q=0.5".into(), page),
        ("no quality", "text/html;q=2".into(), default),
        ("too many places", "text/html;q=0.1234".into(), default),
        ("no number", "text/html;q=0.x".into(), default),
        ("no range", "html".into(), default),
        ("the sixteenth", many("text/html"), page),
        ("the seventeenth", many("image/gif,text/html"), default),
        ("a longest one", format!("text/html{}", " ".repeat(1015)), page),
        ("one too long", format!("text/html{}", " ".repeat(1016)), default),
        ("bytes beyond ASCII", "text/html,é".into(), default),
    ];
    each(rows.map(|(row, accept, wanted)| {
        let accept = (!accept.is_empty()).then_some(("accept", accept.as_str()));
        let kind = match wanted.as_bytes()[0] {
            b'{' => "application/json",
            b'<' => "text/html; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        let wanted =
            (vec![format!("content-type: {kind}"), "vary: accept, origin".into()], wanted.to_owned());
        (row, format!("{wanted:?}"), format!("{:?}", reply(PAGES, seconds(42), accept.as_slice())))
    }));
}

#[test]
fn bodies_stand_beside_every_default() {
    let html = r#""bodies": [{"format": "html", "body": "<p>"}]"#;
    let (page, browser) = ("text/html; charset=utf-8", "text/html, */*;q=0.8");
    let rows = [
        ("a problem is JSON", String::new(), "application/json, text/html;q=0.9", "application/problem+json"),
        (
            "a problem by its name",
            String::new(),
            "application/problem+json, text/html;q=0.9",
            "application/problem+json",
        ),
        ("a problem, and a browser", String::new(), browser, page),
        ("an API", r#", "style": "openai""#.into(), "*/*", "application/json"),
        ("an API, and a browser", r#", "style": "openai""#.into(), browser, page),
        ("nothing", r#", "format": "empty""#.into(), "image/png", ""),
        ("nothing, and a browser", r#", "format": "empty""#.into(), browser, page),
    ];
    each(rows.map(|(row, default, accept, wanted)| {
        let (headers, body) = reply(&format!("{html}{default}"), seconds(42), &[("accept", accept)]);
        let kinds: Vec<_> =
            headers.iter().filter_map(|header| header.strip_prefix("content-type: ")).collect();
        (row, format!("{wanted} {}", wanted == page), format!("{} {}", kinds.join(" "), body == "<p>"))
    }));
}

/// The id of a request is its client's: one that could end a string, a tag, an attribute or a line is not shown.
#[test]
fn an_id_of_a_request_never_needs_an_escape() {
    let every: String = (' '..='~').filter(|letter| !letter.is_ascii_alphanumeric()).collect();
    let plain: String = every.chars().filter(|letter| "-._:/+=@".contains(*letter)).collect();
    let harmful = every.chars().filter(|letter| !plain.contains(*letter)).map(|letter| format!("a{letter}b"));
    let longest = "i".repeat(128);
    let shown = ["3f0c-9", "Root=1-67891233-abcdef", &plain, &longest].map(|id| (id.to_owned(), true));
    let hidden = [
        r#"</p><script>"'\&{limit} "#.to_owned(),
        format!("{longest}i"),
        "a\r\nb".into(),
        "é".into(),
        String::new(),
    ];
    for (id, is_shown) in shown.into_iter().chain(hidden.into_iter().chain(harmful).map(|id| (id, false))) {
        let request = [("x-request-id", id.as_str()), ("accept", "*/*")];
        let value = is_shown.then_some(&id);
        let (_, body) = reply(PAGES, seconds(42), &request);
        let json: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{id}: {error}: {body}"));
        assert_eq!(json, json!({"wait": 42, "of": "rate.minute", "id": value}), "{id}");
        let in_string =
            r#""format": "json", "body": "{\"text\": \"\\\"{request_id}\\\\{{limit}\", \"a\": 1}""#;
        let (_, body) = reply(in_string, seconds(42), &request);
        let json: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{id}: {error}: {body}"));
        let text = format!("\"{}\\{{limit}}", value.map_or("", String::as_str));
        assert_eq!(json, json!({"text": text, "a": 1}), "{id}");
        let (_, page) = reply(PAGES, seconds(42), &[("x-request-id", &id), ("accept", "text/html")]);
        assert_eq!(page.strip_prefix(PAGE), Some(value.map_or("", String::as_str)), "{id}");
        let header = r#""add_headers": [{"name": "x-id", "value": "id={request_id}"}]"#;
        let (headers, _) = reply(header, seconds(42), &request);
        let found = headers.iter().find_map(|header| header.strip_prefix("x-id: id="));
        assert_eq!(found, value.map(String::as_str), "{id}");
    }
}

#[test]
fn own_headers_have_the_values_of_the_rejection() {
    let header = |value: &str| {
        format!(
            r#""add_headers": [{{"name": "x-a", "value": "{value}"}}, {{"name": "cache-control", "value": "no-store"}}]"#
        )
    };
    let rows: [(_, _, _, Option<&str>); 8] = [
        ("a text", "a", seconds(42), Some("a")),
        ("every value", "{policy}/{limit} {retry_after}s", seconds(42), Some("rate/minute 42s")),
        ("rounded up", "{retry_after}", After(Micros::from_millis(41_001)), Some("42")),
        ("no time to retry", "{retry_after}", Never, None),
        ("braces", "{} { {{limit} {a b} {1} {{{limit}", seconds(42), Some("{} { {limit} {a b} {1} {{limit}")),
        ("a brace before a placeholder", "{ {limit}}", seconds(42), Some("{ minute}")),
        ("no id", "{request_id}", seconds(42), None),
        ("twice", "{limit}{limit}", seconds(42), Some("minuteminute")),
    ];
    each(rows.map(|(row, value, after, wanted)| {
        let (headers, _) = reply(&header(value), after, &[]);
        let wanted = wanted.map(|wanted| format!("x-a: {wanted}, ")).unwrap_or_default();
        (
            row,
            format!("content-type: application/problem+json, {wanted}cache-control: no-store"),
            headers.join(", "),
        )
    }));
    // A deny list has no limit, the global one no policy either; each kind of rejection has the headers.
    let config = config(&header("{policy}"));
    for (rejection, wanted) in [
        (deny(config.response(Some(0)), "rate"), true),
        (deny(config.response(None), ""), false),
        (late(config.response(None)), false),
        (unavailable(config.response(None)), false),
    ] {
        let reply = rejection.reply(&|_| None);
        assert_eq!(reply.headers.iter().any(|header| *header == ("x-a", "rate".into())), wanted, "{reply:?}");
        assert!(
            reply.headers.iter().any(|header| *header == ("cache-control", "no-store".into())),
            "{reply:?}"
        );
    }
}

#[test]
fn pages_of_the_named_origins_may_read_a_rejection() {
    let cors = |more: &str| {
        format!(
            r#""cors": {{"origins": ["https://app.example.com", "https://*.example.org:8443", "http://localhost:3000"]{more}}},
        "add_headers": [{{"name": "x-a", "value": "{{limit}}"}}]"#
        )
    };
    let rows = [
        ("the origin", "https://app.example.com", true),
        ("another port", "http://localhost:3000", true),
        ("one below", "https://a.example.org:8443", true),
        ("two below", "https://a-1.b.example.org:8443", true),
        ("the domain itself", "https://example.org:8443", false),
        ("an empty name", "https://.example.org:8443", false),
        ("without the port", "https://a.example.org", false),
        ("another scheme", "http://app.example.com", false),
        ("a longer host", "https://app.example.com.evil.test", false),
        ("a longer end", "https://evilexample.org:8443", false),
        ("a path before the end", "https://evil.test/.example.org:8443", false),
        ("a user before the end", "https://evil.test@.example.org:8443", false),
        ("two origins", "https://evil.test, https://a.example.org:8443", false),
        ("capitals", "https://APP.example.com", false),
        ("no origin", "", false),
        ("null", "null", false),
        ("a star", "*", false),
        ("the pattern", "https://*.example.org:8443", false),
        ("a line's end", "https://a\r\n.example.org:8443", false),
    ];
    for (more, credentials) in
        [("", ""), (r#", "credentials": true"#, ", access-control-allow-credentials: true")]
    {
        each(rows.map(|(row, origin, is_allowed)| {
            let (headers, _) = reply(&cors(more), seconds(42), &[("origin", origin)]);
            let exposed = "access-control-expose-headers: ratelimit-policy, ratelimit, retry-after, x-a";
            let allowed = format!(", access-control-allow-origin: {origin}, {exposed}{credentials}");
            let allowed = if is_allowed { allowed } else { String::new() };
            let wanted =
                format!("content-type: application/problem+json, x-a: minute, vary: accept, origin{allowed}");
            (row, wanted, headers.join(", "))
        }));
    }
    let any =
        |origin| reply(r#""cors": {"origins": ["*"]}"#, seconds(42), &[("origin", origin)]).0.join(", ");
    let exposed = "access-control-expose-headers: ratelimit-policy, ratelimit, retry-after";
    let wanted = "content-type: application/problem+json, vary: accept, origin";
    assert_eq!(any("https://any.test"), format!("{wanted}, access-control-allow-origin: *, {exposed}"));
    assert_eq!(any("null"), format!("{wanted}, access-control-allow-origin: *, {exposed}"));
    assert_eq!(any(""), wanted);
}

/// A gRPC call has no body; its headers and its status are for pages of other origins, too.
#[test]
fn a_grpc_call_gets_own_headers_and_no_page() {
    let response = format!(
        r#"{PAGES}, "cors": {{"origins": ["https://a.test"]}}, "add_headers": [{{"name": "x-a", "value": "{{limit}}"}}]"#
    );
    let request = [
        (":path", "/s/M"),
        ("content-type", "application/grpc"),
        ("accept", "text/html"),
        ("origin", "https://a.test"),
    ];
    let (headers, body) = reply(&response, seconds(42), &request);
    assert_eq!(body, "");
    let has = |wanted: &str| headers.iter().any(|header| header == wanted);
    assert!(
        has("x-a: minute") && has("grpc-status: 8") && has("access-control-allow-origin: https://a.test"),
        "{headers:?}"
    );
    let exposed = headers.iter().find(|header| header.starts_with("access-control-expose-headers")).unwrap();
    assert!(
        exposed.ends_with("retry-after, grpc-status, grpc-message, grpc-retry-pushback-ms, x-a"),
        "{exposed}"
    );
    assert!(!headers.iter().any(|header| header.starts_with("content-type")), "{headers:?}");
}
