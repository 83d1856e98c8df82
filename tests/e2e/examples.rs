//! The files of `examples/`, as Envoy reads them, under the traffic that they are for.

use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::weir::World;

pub const TESTS: &[(&str, fn())] = &[
    ("example: a budget of tokens, whichever provider answers", llm_budget),
    ("example: failed logins lead to a ban, in both envoys", login_protection),
    ("example: cheap and dear requests share a bucket", cheap_and_dear),
];

/// A world under one of the files, in which a busy machine decides nothing.
fn world(example: &str) -> World {
    World::of(&format!("{example}store: {{deadline: 10s, on_failure: deny}}\n"), 2, 1)
}

const STREAM: &str = "content-type: text/event-stream; charset=utf-8\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn llm_budget() {
    let world = world(include_str!("../../examples/llm-budget.yaml"));
    // What a provider answers, and what it has cost: the input, and four times the output.
    let rows: [(&str, &str, &str, &str, u64); 7] = [
        (
            "OpenAI",
            "200 OK",
            JSON,
            r#"{"choices": [{"message": {"content": "\"usage\": {}"}}], "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}}"#,
            59,
        ),
        (
            "OpenAI, a stream that includes the usage",
            "200 OK",
            STREAM,
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":500}}\n\ndata: [DONE]\n\n",
            2_007,
        ),
        (
            "OpenAI, a stream that does not",
            "200 OK",
            STREAM,
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: [DONE]\n\n",
            2_000,
        ),
        (
            "Anthropic, a stream",
            "200 OK",
            STREAM,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: content_block_delta\ndata: {\"delta\":{\"text\":\"Hi\"}}\n\nevent: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            85,
        ),
        (
            "Anthropic",
            "200 OK",
            JSON,
            r#"{"content": [], "usage": {"input_tokens": 2095, "output_tokens": 503}}"#,
            4_107,
        ),
        (
            "Gemini, a stream",
            "200 OK",
            STREAM,
            "data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":4}}\r\n\r\ndata: {\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":9,\"totalTokenCount\":13}}\r\n\r\n",
            40,
        ),
        ("an error", "500 Internal Server Error", JSON, r#"{"usage": {"prompt_tokens": 19}}"#, 0),
    ];
    let (mut reserved, mut cost) = (0, 0);
    for (row, status, headers, body, units) in rows {
        let response = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        let request = Request::post("/v1/say", response.as_bytes()).header("authorization", "Bearer k-1");
        let answered = world.send(&request);
        assert_eq!(answered.text(), body, "{row}");
        (reserved, cost) = (reserved + 2_000, cost + units);
        eventually(row, || {
            let charged = world.total("wasmcustom.weir.units_charged");
            let refunded = world.total("wasmcustom.weir.units_refunded");
            (reserved + charged - refunded == cost).then_some(())
        });
    }
    assert_eq!(world.send(&Request::post("/v1/say", b"")).status, 403, "without a key");
    // What is left is less than the next request reserves.
    let dear = r#"{"usage": {"prompt_tokens": 990000, "completion_tokens": 0}}"#;
    let response = format!("HTTP/1.1 200 OK\r\n{JSON}content-length: {}\r\n\r\n{dear}", dear.len());
    let request = Request::post("/v1/say", response.as_bytes()).header("authorization", "Bearer k-1");
    assert_eq!(world.send(&request).status, 200);
    eventually("the budget to be spent", || (world.send(&request).status == 429).then_some(()));
    let other = Request::post("/v1/say", response.as_bytes()).header("authorization", "Bearer k-2");
    assert_eq!(world.send(&other).status, 200, "another key has a budget of its own");
}

fn login_protection() {
    let world = world(&include_str!("../../examples/login-protection.yaml").replace("/login", "/say"));
    let attempt = |envoy: usize, status: &str| {
        let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        let request = Request::post("/say", response.as_bytes());
        http::send(world.envoys[envoy].address("edge"), &request).expect("a response")
    };
    for number in 0..12 {
        assert_eq!(attempt(number % 2, "200 OK").status, 200, "a success costs nothing");
        eventually("it is settled", || {
            (world.total("wasmcustom.weir.units_refunded") == number as u64 + 1).then_some(())
        });
    }
    for number in 0..5 {
        assert_eq!(attempt(number % 2, "401 Unauthorized").status, 401);
    }
    for number in 0..4 {
        let banned = attempt(number % 2, "200 OK");
        let wait: u64 = banned.headers.get("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
        assert_eq!((banned.status, (3_500..=3_600).contains(&wait)), (429, true), "{banned:?}");
        assert!(banned.text().contains("abnormal-usage-detected"), "{}", banned.text());
    }
    assert_eq!(world.send(&Request::get("/")).status, 200, "other requests pass");
}

fn cheap_and_dear() {
    let world = world(include_str!("../../examples/cheap-and-dear.yaml"));
    let left = |request: &Request| {
        let response = world.send(request);
        let told = response.headers.get("ratelimit").expect("the limit").to_owned();
        let left = told.split("r=").nth(1).and_then(|rest| rest.split(';').next()?.parse::<i64>().ok());
        left.expect("what is left")
    };
    // Ten points come back each second: never more than the whole.
    let rows = [
        (Request::get("/"), 1),
        (Request::get("/search?q=all"), 20),
        (Request::post("/upload/a", &[b'x'; 12_345]), 13),
        (Request::post("/", b"x"), 5),
    ];
    for (request, points) in rows {
        let before = left(&Request::get("/probe"));
        let after = left(&request);
        let back = after - (before - points);
        assert!((0..=40).contains(&back), "{points} points of {before} leave {after}");
    }
    let statuses = (0..12).map(|_| world.send(&Request::get("/search")).status).collect::<Vec<_>>();
    assert!(statuses.contains(&429), "{statuses:?}");
}
