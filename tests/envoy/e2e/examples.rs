// SPDX-License-Identifier: Apache-2.0
//! The files of `examples/`, as Envoy reads them, under the traffic that they are for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::frames;
use crate::support::http::{self, Request};
use crate::support::regions::{self, HERE, NAMES};
use crate::support::upstream::PIECE;
use crate::support::weir::{Statuses, World, reading_bodies};
use crate::support::{PATIENCE, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("example: a budget of tokens, whichever provider answers", llm_budget),
    ("example: mcp, per tool and per session, and no batch", mcp),
    ("example: an agent that loops", agents),
    ("example: plans in money", llm_money),
    ("example: anthropic's tokens", anthropic),
    ("example: coding agents share a budget, in both envoys", coding_agents),
    ("example: gemini's tokens", gemini),
    (
        "example: several providers behind one limit, in streams cut in pieces, across two envoys",
        llm_providers,
    ),
    ("example: failed logins lead to a ban, in both envoys", login_protection),
    ("example: failed logins by a form lead to a ban, in both envoys", login_form),
    ("recipe: credential stuffing: an address fails for twenty users, in both envoys", stuffing),
    ("example: logins that fail with a redirect, or without a cookie, lead to a ban", login_that_redirects),
    ("example: cheap and expensive requests share a bucket", cheap_and_expensive),
    ("example: uploads by their bytes", uploads),
    ("example: each key has a quota, and each address a rate", per_key_and_address),
    ("example: plans", tiers),
    ("example: tenants wait for their turn", tenants),
    ("example: what nginx says", nginx),
    ("example: in shadow first", shadow_first),
    ("example: grpc", grpc),
    ("recipe: graphql by the cost that the server states, in both envoys", graphql),
    ("recipe: upgrades count for as long as they last, in both envoys", web_sockets),
    ("example: lists", lists),
    ("example: a ban", ban),
    ("example: many regions", many_regions),
];

/// A busy machine decides nothing.
const BUSY: &str = "store: {deadline: 10s, on_failure: deny}\n";

/// The same for a file that has a `store`.
fn busy(example: &str) -> String {
    let fields = BUSY.trim_start_matches("store: {").trim_end_matches("}\n").replace(", ", "\n  ");
    let text = example.replace("\nstore:\n", &format!("\nstore:\n  {fields}\n"));
    assert_ne!(text, example, "it has no store");
    text
}

/// A world under one of the files.
fn world(example: &str) -> World {
    World::of(&format!("{example}{BUSY}"), 2, 1)
}

const STREAM: &str = "content-type: text/event-stream; charset=utf-8\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn llm_budget() {
    let world = World::of(&busy(include_str!("../../../examples/llm-budget.yaml")), 2, 1);
    // A provider's response, and its cost: the input, and four times the output.
    #[rustfmt::skip]
    let rows: [(&str, &str, &str, &str, u64); 8] = [
        ("OpenAI", "200 OK", JSON,
         r#"{"choices": [{"message": {"content": "\"usage\": {}"}}], "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}}"#,
         59),
        ("OpenAI, a stream that includes the usage", "200 OK", STREAM,
         "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":500}}\n\ndata: [DONE]\n\n",
         2_007),
        ("OpenAI, a stream that does not", "200 OK", STREAM, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: [DONE]\n\n", 2_000),
        ("Anthropic, a stream", "200 OK", STREAM,
         "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: content_block_delta\ndata: {\"delta\":{\"text\":\"Hi\"}}\n\nevent: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
         85),
        ("Anthropic", "200 OK", JSON, r#"{"content": [], "usage": {"input_tokens": 2095, "output_tokens": 503}}"#, 4_107),
        ("Gemini, a stream", "200 OK", STREAM,
         "data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":4}}\r\n\r\ndata: {\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":9,\"totalTokenCount\":13}}\r\n\r\n",
         40),
        ("Gemini, a stream in a list, with thoughts", "200 OK", JSON,
         r#"[{"usageMetadata": {"promptTokenCount": 4, "thoughtsTokenCount": 1}}, {"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}}]"#,
         24),
        ("an error", "500 Internal Server Error", JSON, r#"{"usage": {"prompt_tokens": 19}}"#, 0),
    ];
    let (mut reserved, mut cost) = (0, 0);
    for (row, status, headers, body, units) in rows {
        let response = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        let request = match row.split(',').next() {
            Some("Anthropic") => Request::post("/v1/say", response.as_bytes()).header("x-api-key", "k-1"),
            Some("Gemini") => {
                Request::post("/v1beta/models/g-2.5:streamGenerateContent?key=k-1", response.as_bytes())
            }
            _ => Request::post("/v1/say", response.as_bytes()).header("authorization", "Bearer k-1"),
        };
        let answered = world.send(&request);
        assert_eq!(answered.text(), body, "{row}");
        (reserved, cost) = (reserved + 2_000, cost + units);
        world.counts_cost(row, reserved, cost);
    }
    for path in ["/v1/say", "/v1/messages", "/v1beta/models/g:generateContent"] {
        assert_eq!(world.send(&Request::post(path, b"")).status, 403, "{path} without a key");
        let two = Request::post(path, b"").header("x-api-key", "k").header("authorization", "bearer k-1");
        assert_eq!(world.send(&two).status, 403, "{path} with two keys");
    }
    let models = Request::get("/v1/models").header("authorization", "Bearer k-1");
    assert!(!world.send(&models).headers.get("ratelimit").expect("that of the address").contains("day"));
    // The remaining units are fewer than the next request reserves, in whichever place the key is.
    let expensive = r#"{"usage": {"prompt_tokens": 990000, "completion_tokens": 0}}"#;
    let response = format!("HTTP/1.1 200 OK\r\n{JSON}content-length: {}\r\n\r\n{expensive}", expensive.len());
    let post = |path: &str| Request::post(path, response.as_bytes());
    let gemini = "/v1beta/models/g:generateContent";
    let everywhere = |key: &str| {
        [
            post("/v1/say").header("authorization", &format!("Bearer {key}")),
            post("/v1/say").header("authorization", &format!("bearer   {key}")),
            post("/v1/messages").header("x-api-key", key),
            post("/v1/say").header("api-key", key),
            post(gemini).header("x-goog-api-key", key),
            post(&format!("{gemini}?key={key}")),
        ]
    };
    let [first, spent @ ..] = everywhere("k-3");
    assert_eq!(world.send(&first).status, 200);
    for request in [&first].into_iter().chain(&spent) {
        eventually("the budget to be spent", || (world.send(request).status == 429).then_some(()));
    }
    for place in 0..everywhere("").len() {
        let request = &everywhere(&format!("k-4-{place}"))[place];
        assert_eq!(world.send(request).status, 200, "another key has a budget of its own");
    }
    let keys = world.redis.connect().call(&[b"KEYS", b"*"]);
    let keys = String::from_utf8(keys).expect("text");
    assert!(!keys.contains("k-3") && keys.contains("{per-key|%+"), "{keys}");
}

fn mcp() {
    let world = World::with(&busy(include_str!("../../../examples/mcp.yaml")), 2, 1, reading_bodies);
    let call = |envoy: usize, session: &str, body: &str| {
        let mut request = Request::post("/mcp", body.as_bytes()).header("content-type", "application/json");
        if !session.is_empty() {
            request = request.header("mcp-session-id", session);
        }
        http::send(world.envoys[envoy % 2].address("edge"), &request).expect("a response")
    };
    let tool = |name: &str| {
        format!(
            r#"{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {{"name": "{name}", "arguments": {{}}}}}}"#
        )
    };
    // Ten of each expensive tool, and sixty calls of a session in all.
    let calls = |session: &str, name: &str, count: usize| -> Statuses {
        (0..count).map(|number| call(number, session, &tool(name)).status).collect()
    };
    assert_eq!(calls("s-1", "web_search", 12), Statuses(vec![(200, 10), (429, 2)]));
    assert_eq!(calls("s-1", "run_code", 11), Statuses(vec![(200, 10), (429, 1)]));
    assert_eq!(calls("s-2", "web_search", 1), Statuses(vec![(200, 1)]), "another session has its own");
    let denied = call(0, "s-1", &tool("web_search"));
    let error: serde_json::Value = serde_json::from_slice(&denied.body).expect("JSON");
    let after = error["error"]["data"]["retryAfterMs"].as_u64().expect("a time");
    assert_eq!((&error["jsonrpc"], &error["error"]["code"]), (&"2.0".into(), &(-32029).into()), "{error}");
    assert!((1..=90_000).contains(&after), "{error}");
    assert_eq!(error["id"], 7, "it answers this request: {error}");
    // Twenty are taken, and one comes back each second.
    let statuses = calls("s-1", "read_file", 50);
    let passed = statuses.0.iter().find(|(status, _)| *status == 200).map_or(0, |(_, count)| *count);
    assert!((40..50).contains(&passed), "{statuses:?}");
    // A request that is no single call with a known session and tool calls nothing.
    let one = tool("read_file");
    let arrived = world.upstream.requests();
    let rows = [
        ("a batch", "s-3", format!("[{one}, {one}]")),
        ("a batch of one", "s-3", format!("[{one}]")),
        ("a batch that begins with null", "s-3", format!("[null, {one}]")),
        ("a batch in blanks", "s-3", format!(" \n[ {one} ]")),
        ("two methods", "s-3", one.replacen(r#""method""#, r#""method": "ping", "method""#, 1)),
        ("no session", "", one.clone()),
        ("two tools", "s-3", tool("web_search").replacen(r#""name""#, r#""name": "read_file", "name""#, 1)),
        ("no json", "s-3", format!("{one}]")),
    ];
    for (row, session, body) in rows {
        let response = call(0, session, &body);
        // Of two methods, one is a call: so it counts as one.
        let wanted = if row == "two methods" { 200 } else { 403 };
        assert_eq!(response.status, wanted, "{row}: {}", response.text());
        let id = match row {
            "no json" => "\"id\":null",
            _ => "\"id\":7",
        };
        assert!(wanted == 200 || response.text().contains(id), "{row}: {}", response.text());
    }
    assert_eq!(world.upstream.requests(), arrived + 1);
    assert_eq!(call(0, "s-3", r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#).status, 200);
    let initialize = r#"{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}"#;
    let opened: Statuses = (0..33).map(|number| call(number, "", initialize).status).collect();
    // The request with two methods may have been one of these thirty.
    assert_eq!(opened, Statuses(vec![(200, 29), (429, 4)]));
}

fn agents() {
    let world = World::of(&busy(include_str!("../../../examples/agents.yaml")), 2, 1);
    let used = |tokens: u64| {
        let body = format!(r#"{{"usage": {{"total_tokens": {tokens}}}}}"#);
        format!("HTTP/1.1 200 OK\r\n{JSON}content-length: {}\r\n\r\n{body}", body.len())
    };
    let ask = |number: usize, session: &str, tokens: u64| {
        let request = Request::post("/v1/say", used(tokens).as_bytes())
            .header("authorization", "Bearer k-1")
            .header("x-session-id", session);
        http::send(world.envoys[number % 2].address("edge"), &request).expect("a response")
    };
    let loops: Statuses = (0..203).map(|number| ask(number, "s-1", 1).status).collect();
    let passed = loops.0.iter().find(|(status, _)| *status == 200).map_or(0, |(_, count)| *count);
    assert!((200..203).contains(&passed), "{loops:?}");
    let denied = ask(0, "s-1", 1);
    assert!(denied.text().contains("Rate limit exceeded: session-requests."), "{}", denied.text());
    assert!(denied.text().contains(r#""code":"rate_limit_exceeded""#), "{}", denied.text());
    assert!(denied.headers.get("x-ratelimit-remaining-requests") == Some("0"), "{:?}", denied.headers);
    // Another session of the same key goes on, until its own tokens are used.
    assert_eq!(ask(0, "s-2", 499_900).status, 200);
    eventually("its tokens to be used", || (ask(0, "s-2", 499_900).status == 429).then_some(()));
    let spent = ask(1, "s-2", 1);
    assert_eq!(spent.headers.get("x-should-retry"), Some("false"), "{}", spent.text());
    assert!(spent.text().contains(r#""type":"tokens""#), "{}", spent.text());
    assert_eq!(ask(0, "s-3", 1).status, 200);
    let nameless = Request::post("/v1/say", used(1).as_bytes()).header("authorization", "Bearer k-1");
    assert_eq!(world.send(&nameless).status, 403, "without a session");
}

/// A request with this body, and with this response to it, each chunk written by itself.
fn answered(path: &str, body: &str, kind: &str, answer: impl AsRef<[u8]>, size: usize) -> Request {
    let mut response = format!("HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n").into_bytes();
    let answer = answer.as_ref();
    assert!(!answer.contains(&PIECE), "a piece would end within it");
    for chunk in answer.chunks(size) {
        response.push(PIECE);
        response.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        response.extend(chunk);
        response.extend(b"\r\n");
    }
    response.extend(b"0\r\n\r\n");
    let digits: String = response.iter().map(|byte| format!("{byte:02x}")).collect();
    Request::post(path, body.as_bytes()).header("content-type", "application/json").header("x-say", &digits)
}

fn with_bodies(example: &str) -> World {
    let busy = BUSY.trim_start_matches("store: {").trim_end_matches("}\n").replace(", ", "\n  ");
    let example = match example.contains("\nstore:\n") {
        true => example.replace("\nstore:\n", &format!("\nstore:\n  {busy}\n")),
        false => format!("{example}{BUSY}"),
    };
    World::with(&example, 2, 1, reading_bodies)
}

fn llm_money() {
    let world = with_bodies(include_str!("../../../examples/llm-money.yaml"));
    let chat = r#"{"model": "gpt-5", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}"#;
    let answer = r#"{"model": "gpt-5-2025-08-07", "choices": [], "usage": {"prompt_tokens": 80000, "completion_tokens": 40000, "prompt_tokens_details": {"cached_tokens": 40000}}}"#;
    let of = |plan: &str, body: &str| {
        answered("/v1/chat/completions", body, JSON, answer, 50)
            .header("x-customer", plan)
            .header("x-plan", plan)
    };
    // 29 tokens of input and 10 of output; then 50,000 + 5,000 + 400,000.
    for sent in 1..=2 {
        assert_eq!(world.send(&of("free", chat)).text(), answer);
        world.counts_cost("the price of the model", sent * 137, sent * 455_000);
    }
    let long = chat.replace("10,", "9000,");
    assert_eq!(
        world.send(&of("free", &long)).status,
        429,
        "a tenth of a dollar is left, and it may cost more"
    );
    assert_eq!(world.send(&of("pro", &long)).status, 200, "another plan");
    assert_eq!(world.send(&of("pro", &chat.replace("gpt-5", "gpt-9"))).status, 403, "an unknown model");
    assert_eq!(world.send(&of("pro", "no json")).status, 403, "an unknown model");
    assert_eq!(world.send(&answered("/v1/x", chat, JSON, answer, 50)).status, 403, "no customer");
}

fn anthropic() {
    let world = with_bodies(include_str!("../../../examples/anthropic.yaml"));
    let body = r#"{"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": []}"#;
    let answer = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-4-5\",\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":10,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let request = answered("/v1/messages", body, STREAM, answer, 7).header("x-api-key", "k");
    assert_eq!(world.send(&request).text(), answer);
    // 22 tokens of input at two, and 1,000 of output; then 25 + 5 + 1 + 75. One of the two policies settles.
    world.counts_cost("the tokens", 5_044, 106);
    assert_eq!(world.send(&answered("/v1/messages", body, STREAM, answer, 7)).status, 403, "no key");
}

fn coding_agents() {
    let world = with_bodies(include_str!("../../../examples/coding-agents.yaml"));
    let ask = |number: usize, user: &str, request: Request| {
        let request = request.header("authorization", &format!("Bearer {user}"));
        http::send(world.envoys[number % 2].address("edge"), &request).expect("a response")
    };
    let body = r#"{"model": "m", "max_tokens": 1000, "max_output_tokens": 2000, "stream": true}"#;
    let long = format!("{body}{}", " ".repeat(300_000));
    // A token of input may cost two.
    let input = |body: &str| body.len().div_ceil(3) as u64 * 2;
    let claude = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":10,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let codex = "event: response.created\ndata: {\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":1000,\"input_tokens_details\":{\"cached_tokens\":900},\"output_tokens\":20,\"output_tokens_details\":{\"reasoning_tokens\":10}}}}\n\n";
    let (counted, file) = (r#"{"input_tokens": 2095}"#, r#"{"id": "file-1", "object": "file"}"#);
    // The path, the body, the response, and the units: reserved, and used.
    let rows = [
        ("/v1/messages/count_tokens?beta=true", body, JSON, counted, 0, 0),
        ("/v1/files", body, JSON, file, 0, 0),
        ("/v1/messages?beta=true", body, STREAM, claude, input(body) + 2_000 * 5, 25 + 5 + 1 + 15 * 5),
        ("/v1/responses", body, STREAM, codex, input(body) + 2_000 * 5, 100 + 90 + 20 * 5),
        ("/v1/messages?beta=true", &long, STREAM, claude, input(&long) + 32_000 * 5, 25 + 5 + 1 + 15 * 5),
    ];
    let (mut reserved, mut used) = (0, 0);
    for (number, (path, body, kind, answer, units, cost)) in rows.into_iter().enumerate() {
        assert_eq!(ask(number, "k-1", answered(path, body, kind, answer, 40)).text(), answer, "{path}");
        (reserved, used) = (reserved + units, used + cost);
        world.counts_cost(path, reserved, used);
    }
    for denied in ["/v1/messages/batches", "/v1/batches"] {
        assert_eq!(ask(0, "k-1", Request::post(denied, b"{}")).status, 403, "{denied}");
    }
    assert_eq!(world.send(&Request::post("/v1/responses", b"{}")).status, 403, "without a key");
    // Codex uses up the budget, and then Claude Code has none either.
    let spent = r#"{"usage": {"input_tokens": 4990000, "output_tokens": 0}}"#;
    let spend = |number| ask(number, "k-2", answered("/v1/responses", body, JSON, spent, 40));
    assert_eq!(spend(0).status, 200);
    // A request that costs nothing shows when the response is charged: another one could be admitted before, and spend it twice.
    let left = || ask(1, "k-2", answered("/v1/messages/count_tokens", body, JSON, counted, 40));
    let left = || left().headers.get("anthropic-ratelimit-tokens-remaining").map(str::to_owned);
    eventually("the budget to be spent", || (left().as_deref() == Some("10000")).then_some(()));
    assert_eq!(spend(1).status, 429);
    assert!(spend(0).text().contains("rate_limit_exceeded"), "{}", spend(0).text());
    let other = ask(1, "k-2", answered("/v1/messages", body, STREAM, claude, 40));
    assert_eq!((other.status, other.text().contains("rate_limit_error")), (429, true), "{}", other.text());
    assert_eq!(ask(0, "k-2", Request::get("/v1/models")).status, 200);
    assert_eq!(ask(0, "k-2", answered("/v1/messages/count_tokens", body, JSON, counted, 40)).status, 200);
    assert_eq!(ask(0, "k-3", answered("/v1/messages", body, STREAM, claude, 40)).status, 200);
}

fn gemini() {
    let world = with_bodies(include_str!("../../../examples/gemini.yaml"));
    let body = r#"{"contents": [], "generationConfig": {"maxOutputTokens": 400}}"#;
    let part = |said: u64| {
        format!(
            r#"{{"candidates": [], "usageMetadata": {{"promptTokenCount": 2000, "cachedContentTokenCount": 1000, "candidatesTokenCount": {said}, "thoughtsTokenCount": 400}}, "modelVersion": "gemini-2.5-flash"}}"#
        )
    };
    let answer = format!("[{},\r\n{}\n]", part(3), part(1600));
    let path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?key=k";
    assert_eq!(world.send(&answered(path, body, JSON, &answer, 11)).text(), answer);
    // 21 tokens of input and 400 of output; then 300 + 30 + 2,500 * 2.
    world.counts_cost("the price", 1_007, 5_330);
}

fn llm_providers() {
    let world = with_bodies(include_str!("../../../examples/llm-providers.yaml"));
    let chat = r#"{"model": "MODEL", "max_tokens": 100, "stream": true}"#;
    let openai = "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\": {\"}}],\"usage\":null}\n\ndata: {\"model\":\"gpt-5-2025-08-07\",\"choices\":[],\"usage\":{\"prompt_tokens\":3000,\"completion_tokens\":1000,\"prompt_tokens_details\":{\"cached_tokens\":1000}}}\n\ndata: [DONE]\n\n";
    let anthropic = "event: message_start\r\ndata: {\"message\":{\"model\":\"claude-sonnet-4-5\",\"usage\":{\"input_tokens\":1000,\"cache_creation_input_tokens\":1000,\"cache_read_input_tokens\":1000,\"output_tokens\":1}}}\r\n\r\nevent: message_delta\r\ndata: {\"usage\":{\"output_tokens\":1000}}\r\n\r\n";
    let bedrock =
        r#"{"output": {}, "usage": {"inputTokens": 10000, "outputTokens": 5000, "totalTokens": 15000}}"#;
    let converse = [
        ("messageStart", r#"{"p":"abcdefg","role":"assistant"}"#),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"text":"\"outputTokens\": 9"},"p":"abcdefgh"}"#,
        ),
        ("contentBlockStop", r#"{"contentBlockIndex":0,"p":"abcdefghi"}"#),
        ("messageStop", r#"{"p":"abcdefghij","stopReason":"end_turn"}"#),
        (
            "metadata",
            r#"{"metrics":{"latencyMs":824},"p":"a","usage":{"inputTokens":10000,"outputTokens":5000,"totalTokens":15000}}"#,
        ),
    ];
    let converse: Vec<u8> =
        converse.iter().flat_map(|(name, payload)| frames::event(name, payload.as_bytes())).collect();
    let ollama = "{\"model\":\"llama3.2\",\"done\":false}\n{\"model\":\"llama3.2\",\"done\":true,\"prompt_eval_count\":700,\"eval_count\":300}\n";
    const LINES: &str = "content-type: application/x-ndjson\r\n";
    const FRAMES: &str = "content-type: application/vnd.amazon.eventstream\r\n";
    // The path, the model of the request, its response, and what it has cost.
    let rows = [
        ("/openai/v1/chat/completions", "gpt-5", STREAM, openai.as_bytes(), 2 * 1250 + 125 + 10_000),
        (
            "/anthropic/v1/messages",
            "claude-sonnet-4-5",
            STREAM,
            anthropic.as_bytes(),
            3_000 + 3_750 + 300 + 15_000,
        ),
        ("/bedrock/model/amazon.nova-lite-v1:0/converse", "", JSON, bedrock.as_bytes(), 600 + 1_200),
        ("/bedrock/model/amazon.nova-lite-v1:0/converse-stream", "", FRAMES, &converse, 600 + 1_200),
        ("/ollama/api/chat", "llama3.2", LINES, ollama.as_bytes(), 10),
    ];
    let mut sum = 0;
    for (index, size) in [1, 7, 40, 1000].into_iter().enumerate() {
        for (path, model, kind, answer, units) in rows {
            let request =
                answered(path, &chat.replace("MODEL", model), kind, answer, size.max(answer.len() / 60))
                    .header("x-team", "t");
            let edge = world.envoys[index % 2].address("edge");
            let response = http::send(edge, &request).expect("a response");
            assert_eq!((response.status, &response.body[..]), (200, answer), "{path}");
            sum += units;
        }
    }
    let left = || {
        let asked = world.send(&answered("/openai/v1/x", "{}", JSON, "{}", 9).header("x-team", "t"));
        let left = asked.headers.get("ratelimit").expect("a limit").to_string();
        left.split(";r=")
            .nth(1)
            .and_then(|rest| rest.split(';').next()?.parse::<u64>().ok())
            .expect("a number")
    };
    // Each of these requests reserves 1 token of input and 4,096 of output at the highest prices, and its response says nothing.
    let mut asked = 0;
    eventually("all of it to be charged to one limit", || {
        asked += 1;
        (left() + sum + asked * 61_446 == 500_000_000).then_some(())
    });
}

/// A login of a user, as JSON.
fn json_login(user: &str) -> Request {
    Request::post("/login", format!(r#"{{"user": "{user}", "password": "p"}}"#).as_bytes())
}

/// The same as a page sends it.
fn form_login(user: &str) -> Request {
    let user = user.replace(' ', "+").replace('\u{3000}', "%E3%80%80");
    let request = Request::post("/login", format!("password=p&user={user}").as_bytes());
    request.header("content-type", "application/x-www-form-urlencoded")
}

fn login_protection() {
    let failures = ["401 Unauthorized", "403 Forbidden"];
    let world = failed_logins(include_str!("../../../examples/login-protection.yaml"), json_login, &failures);
    assert_eq!(world.send(&form_login("ann")).status, 403, "a body that cannot be read");
    assert_eq!(world.send(&Request::post("/login", b"{}")).status, 403, "no user");
    many_users(&world, json_login);
}

fn login_form() {
    let example = include_str!("../../../examples/login-form.yaml");
    let failures = ["401 Unauthorized", "422 Unprocessable Content", "403 Forbidden"];
    let world = failed_logins(example, form_login, &failures);
    assert_eq!(world.send(&json_login("ann")).status, 403, "a body that cannot be read");
    assert_eq!(world.send(&form_login("ann&user=bob")).status, 403, "two users");
    let nobody =
        Request::post("/login", b"password=p").header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(world.send(&nobody).status, 403, "no user");
    many_users(&world, form_login);
    // As the page says, by address alone.
    let user =
        "{client_address: {}}, {body_form: {field: user}, normalize: [trim, lowercase], on_missing: deny}";
    assert!(example.contains(user));
    let world = World::of(&format!("{}{BUSY}", example.replace(user, "{client_address: {}}")), 2, 1);
    for number in 0..5 {
        let failed = form_login("ann").header("x-answer", "401 Unauthorized");
        assert_eq!(world.send(&failed).status, 401);
        eventually("it is settled", || {
            (world.total("wasmcustom.weir.units_charged") == number + 1).then_some(())
        });
    }
    assert_eq!(world.send(&form_login("bob")).status, 429);
}

/// A world under the recipe that has this title and no file.
fn recipe(title: &str) -> World {
    World::with(&recipe_text(title), 2, 1, reading_bodies)
}

fn recipe_text(title: &str) -> String {
    let page = include_str!("../../../docs/recipes.md");
    let (_, recipe) = page.split_once(&format!("## {title}\n")).expect("the recipe");
    let (_, recipe) = recipe.split_once("```yaml weir\n").expect("its configuration");
    let (recipe, _) = recipe.split_once("```").expect("its end");
    // YAML begins with a comment.
    format!("# The recipe.\n{recipe}{BUSY}")
}

/// Permits are renewed, because the requests last for much longer than the `ttl`. The upstream does not answer them.
fn web_sockets() {
    let recipe =
        recipe_text("Limit WebSockets").replace("limit: 20", "limit: 3").replace("ttl: 1m", "ttl: 2s");
    assert!(recipe.contains("limit: 3") && recipe.contains("ttl: 2s"), "{recipe}");
    let world = World::of(&recipe, 2, 1);
    let open = |envoy: usize, more: &str| {
        let mut socket = TcpStream::connect(world.envoys[envoy].address("edge")).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let head = "GET / HTTP/1.1\r\nhost: weir.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
        socket.write_all(format!("{head}{more}\r\n").as_bytes()).expect("sent");
        socket
    };
    let status = |mut socket: TcpStream| {
        let mut line = [0; 12];
        socket.read_exact(&mut line).expect("a status line");
        String::from_utf8_lossy(&line[9..]).into_owned()
    };
    let sockets: Vec<_> = (0..3).map(|number| open(number % 2, "x-hold: 1\r\n")).collect();
    eventually("three to be open", || (world.upstream.held() == 3).then_some(()));
    thread::sleep(Duration::from_secs(5));
    assert_eq!([status(open(0, "")), status(open(1, ""))], ["429", "429"]);
    assert_eq!(world.send(&Request::get("/")).status, 200, "no socket");
    world.upstream.release();
    for socket in sockets {
        assert_eq!(status(socket), "200");
    }
    eventually("a place", || (status(open(0, "")) == "200").then_some(()));
}

fn stuffing() {
    let world = recipe("Slow down credential stuffing");
    let attempt = |number: usize, user: &str, status: &str| {
        let request = form_login(user).header("x-answer", status);
        http::send(world.envoys[number % 2].address("edge"), &request).expect("a response").status
    };
    // An office: each of its users succeeds, and does not count.
    for round in 1..3 {
        for number in 0..15 {
            assert_eq!(attempt(number, &format!("user{round}-{number}"), "200 OK"), 200);
        }
        // Both policies refund each.
        eventually("all to be settled", || {
            (world.total("wasmcustom.weir.units_refunded") == 30 * round).then_some(())
        });
    }
    for number in 0..20 {
        assert_eq!(attempt(number, &format!("user{number}"), "401 Unauthorized"), 401, "{number}");
    }
    for number in 20..24 {
        assert_eq!(attempt(number, &format!("user{number}"), "401 Unauthorized"), 429, "{number}");
    }
    for (number, user) in ["user7", "USER8", "+user9"].into_iter().enumerate() {
        assert_eq!(attempt(number, user, "401 Unauthorized"), 401, "{user} is counted already");
    }
    // The fifth denial begins the ban, which is for all users.
    for (number, user) in ["user24", "user7", "user8", "user25"].into_iter().enumerate() {
        assert_eq!(attempt(number, user, "200 OK"), 429, "{user}");
    }
}

/// The two other ways to tell a failure, as the page has them: the file's `settle`, replaced by each of them.
fn login_that_redirects() {
    let page = include_str!("../../../docs/recipes.md");
    let shown =
        page.split("\n```yaml\n  settle:\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    let shown: Vec<_> = shown.collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    let example = include_str!("../../../examples/login-form.yaml");
    let (before, rest) = example.split_once("  settle:\n").expect("what it settles");
    let (_, after) = rest.split_once("  ban:").expect("a ban");
    // A cookie with commas, on a line of its own, as a login that fails may have it, too.
    let theme = "set-cookie: theme=a,session=b; Expires=Wed, 09 Jun 2027 10:18:14 GMT\r\n";
    let success = format!("302 Found\r\n{theme}set-cookie: session=s\r\nlocation: /account?a,/login\r\n");
    let redirect = format!("302 Found\r\n{theme}location: /login?next=,/account\r\n");
    let page = format!("200 OK\r\n{theme}");
    for (settle, failures) in [(shown[0], &[&redirect][..]), (shown[1], &[&redirect, &page])] {
        let limiter = format!("{before}  settle:\n{settle}  ban:{after}{BUSY}");
        let world = World::with(&limiter, 2, 1, reading_bodies);
        let attempt = |envoy: usize, user: &str, answer: &str| {
            let answer = format!("HTTP/1.1 {answer}content-length: 0\r\n\r\n");
            let digits: String = answer.bytes().map(|byte| format!("{byte:02x}")).collect();
            let request = form_login(user).header("x-say", &digits);
            http::send(world.envoys[envoy].address("edge"), &request).expect("a response").status
        };
        for number in 0..8 {
            assert_eq!(attempt(number % 2, "ann", &success), 302, "{settle}");
            eventually("it is settled", || {
                (world.total("wasmcustom.weir.units_refunded") == number as u64 + 1).then_some(())
            });
        }
        for number in 0..5 {
            let failure = failures[number % failures.len()];
            assert_eq!(attempt(number % 2, "ann", failure).to_string(), failure[..3], "{settle}");
            eventually("it is settled", || {
                (world.total("wasmcustom.weir.units_charged") == number as u64 + 1).then_some(())
            });
        }
        assert_eq!([attempt(0, "ann", &success), attempt(1, "Ann", &success)], [429, 429], "{settle}");
        assert_eq!(attempt(0, "bob", &success), 302, "another user is not banned");
    }
}

/// Logins of a user that succeed, eight at once, and five that fail.
fn failed_logins(example: &str, login: fn(&str) -> Request, failures: &[&str]) -> World {
    let limiter = format!("{example}{BUSY}");
    let world = World::with(&limiter, 2, 1, reading_bodies);
    let attempt = |envoy: usize, user: &str, status: &str| {
        let request = login(user).header("x-answer", status);
        http::send(world.envoys[envoy].address("edge"), &request).expect("a response")
    };
    for number in 0..12 {
        assert_eq!(attempt(number % 2, "ann", "200 OK").status, 200, "a success costs nothing");
        eventually("it is settled", || {
            (world.total("wasmcustom.weir.units_refunded") == number as u64 + 1).then_some(())
        });
    }
    // Eight correct logins of a user at once: all of them are under way before one has an answer.
    let held: Vec<_> = (0..8)
        .map(|number| {
            let request = login("ann").header("x-hold", "1");
            http::begin(world.envoys[number % 2].address("edge"), &request).expect("sent")
        })
        .collect();
    eventually("eight to be under way", || (world.upstream.held() == 8).then_some(()));
    world.upstream.release();
    for login in held {
        assert_eq!(login.finish().expect("a response").status, 200);
    }
    eventually("they are settled", || (world.total("wasmcustom.weir.units_refunded") == 20).then_some(()));
    for number in 0..5 {
        let failure = failures[number % failures.len()];
        assert_eq!(attempt(number % 2, "ann", failure).status.to_string(), failure[..3]);
        eventually("it is settled", || {
            (world.total("wasmcustom.weir.units_charged") == number as u64 + 1).then_some(())
        });
    }
    for (number, spelling) in ["ann", "Ann", "ANN ", "\u{3000}aNN"].into_iter().enumerate() {
        let banned = attempt(number % 2, spelling, "200 OK");
        let wait: u64 = banned.headers.get("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
        assert_eq!((banned.status, (3_500..=3_600).contains(&wait)), (429, true), "{banned:?}");
        assert!(banned.text().contains("abnormal-usage-detected"), "{}", banned.text());
    }
    assert_eq!(attempt(0, "bob", "200 OK").status, 200, "another user is not banned");
    assert_eq!(world.send(&Request::get("/")).status, 200, "other requests pass");
    world
}

/// Of its fifty attempts, whoever the user is, an address has made 26 in this world.
fn many_users(world: &World, login: fn(&str) -> Request) {
    let attempt = |number: usize| {
        let request = login(&format!("user{number}"));
        http::send(world.envoys[number % 2].address("edge"), &request).expect("a response").status
    };
    assert_eq!((0..60).map(attempt).collect::<Statuses>(), Statuses(vec![(200, 24), (429, 36)]));
}

fn uploads() {
    let world = world(include_str!("../../../examples/uploads.yaml"));
    let rows = [
        (Request::post("/upload/a", &[b'x'; 12_345]), 13),
        (Request::chunked("/upload/a", &[b'x'; 12_345]), 26),
        (Request::get("/upload/a"), 26),
    ];
    for (request, kilobytes) in rows {
        assert_eq!(world.send(&request).status, 200);
        // An upload of no bytes reserves one, and costs none.
        eventually("the upload to be charged", || {
            let response = world.send(&Request::post("/upload/", b""));
            let told = response.headers.get("ratelimit").expect("the limit").to_owned();
            told.contains(&format!("r={};", 2_000_000 - kilobytes - 1)).then_some(())
        });
    }
}

fn cheap_and_expensive() {
    let world = world(include_str!("../../../examples/cheap-and-expensive.yaml"));
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

fn per_key_and_address() {
    let world = world(include_str!("../../../examples/per-key-and-address.yaml"));
    let keyed = |key: &str| world.send(&Request::get("/").header("x-api-key", key));
    let response = keyed("k-1");
    assert_eq!(
        response.headers.get("ratelimit-policy"),
        Some("\"minute\";q=600;w=60, \"day\";q=100000;w=86400, \"steady\";q=40;w=2")
    );
    // More than an address may, which has used one of its forty.
    let statuses = world.burst(240, &Request::get("/").header("x-api-key", "k-2"));
    assert!(matches!(statuses.0[..], [(200, 39..), (429, 1..)]), "{statuses:?}");
    let without = world.send(&Request::get("/"));
    assert!(
        without.headers.get("ratelimit-policy").is_some_and(|told| !told.contains("minute")),
        "{without:?}"
    );
}

fn tiers() {
    let world = world(include_str!("../../../examples/tiers.yaml"));
    let send = |customer: &str, plan: &str| {
        world.send(&Request::get("/").header("x-customer", customer).header("x-plan", plan)).status
    };
    for plan in ["free", "unheard-of"] {
        let passed = (0..15).map(|_| send(plan, plan)).filter(|status| *status == 200).count();
        assert!((10..15).contains(&passed), "{plan}: {passed}");
    }
    assert_eq!((0..30).map(|_| send("acme", "pro")).collect::<Vec<_>>(), [200; 30]);
    assert_eq!(world.send(&Request::get("/")).status, 403, "without a customer");
}

fn tenants() {
    let world = world(include_str!("../../../examples/tenants.yaml"));
    let hold = |place: usize, tenant: &str| {
        let path = format!("/hold-{tenant}/reports");
        http::begin(world.envoys[place % 2].address("edge"), &Request::get(&path)).expect("sent")
    };
    let held: Vec<_> = (0..4).map(|place| hold(place, "acme")).collect();
    eventually("four at the upstream", || (world.upstream.held() == 4).then_some(()));
    let fifth = hold(0, "acme");
    eventually("one to wait", || (world.total("wasmcustom.weir.queued") >= 1).then_some(()));
    let other = hold(1, "other");
    eventually("another tenant to pass", || (world.upstream.held() == 5).then_some(()));
    assert_eq!(fifth.finish().expect("a response").status, 429, "after two seconds");
    world.upstream.reset();
    drop((held, other));
}

fn nginx() {
    let world = world(include_str!("../../../examples/nginx.yaml"));
    let statuses = world.burst(60, &Request::get("/"));
    assert!(matches!(statuses.0[..], [(200, 5..), (429, 1..)]), "{statuses:?}");
    // The rate admits them one after the other, and no more than five are in flight.
    let mut held = Vec::new();
    eventually("five at the upstream", || {
        if world.upstream.held() < 5 {
            let edge = world.envoys[held.len() % 2].address("edge");
            held.push(http::begin(edge, &Request::get("/hold")).expect("sent"));
        }
        (world.upstream.held() == 5).then_some(())
    });
    assert_eq!(world.send(&Request::get("/")).status, 429, "a sixth at once");
    world.upstream.reset();
    drop(held);
}

fn shadow_first() {
    let world = world(include_str!("../../../examples/shadow-first.yaml"));
    let orders: Vec<_> = (0..70).map(|_| world.send(&Request::get("/orders")).status).collect();
    assert_eq!(orders, [200; 70]);
    let mut redis = world.redis.connect();
    eventually("the journal to tell what would have been denied", || {
        (redis.integer(&[b"XLEN", b"weir:{journal}"]) >= 9).then_some(())
    });
}

fn grpc() {
    let world = world(include_str!("../../../examples/grpc.yaml"));
    let call = |user: &str, method: &str| {
        let request =
            Request::post(&format!("/shop.Orders/{method}"), b"").header("content-type", "application/grpc");
        world.send(&request.header("x-user", user))
    };
    for _ in 0..5 {
        assert_eq!(call("ann", "Add").headers.get("grpc-status"), None, "it reaches the upstream");
    }
    let denied = call("ann", "Add");
    assert_eq!((denied.status, denied.headers.get("grpc-status")), (200, Some("8")), "{denied:?}");
    assert!(denied.headers.get("grpc-retry-pushback-ms").is_some(), "{denied:?}");
    assert_eq!(call("ann", "Get").headers.get("grpc-status"), None, "another method");
    assert_eq!(call("bob", "Add").headers.get("grpc-status"), None, "another user");
}

fn graphql() {
    let world = recipe("Limit GraphQL by cost");
    let query = |number: usize, key: &str, body: &str, stated: &str| {
        let answer = format!("HTTP/1.1 200 OK\r\n{JSON}{stated}content-length: 2\r\n\r\n{{}}");
        let digits: String = answer.bytes().map(|byte| format!("{byte:02x}")).collect();
        let request = Request::post("/graphql", body.as_bytes()).header("x-say", &digits);
        let request = if key.is_empty() { request } else { request.header("x-api-key", key) };
        http::send(world.envoys[number % 2].address("edge"), &request).expect("a response")
    };
    let hero = r#"{"query": "{ hero { name } }"}"#;
    let aliases: String = (0..100).map(|number| format!("a{number}: login(p: {number}) ")).collect();
    let aliases = format!(r#"{{"query": "{{ {aliases} }}"}}"#);
    let rows = [
        ("little", hero, "x-query-cost: 37\r\n", 37),
        ("much, in one short query", hero, "x-query-cost: 1200\r\n", 1_200),
        ("a hundred aliases", &aliases, "x-query-cost: 100\r\n", 100),
        ("no stated cost", hero, "", 500),
        ("no number", hero, "x-query-cost: -5\r\n", 500),
    ];
    let mut used = 0;
    for (number, (name, body, stated, cost)) in rows.into_iter().enumerate() {
        assert_eq!(query(number, "k-1", body, stated).status, 200, "{name}");
        used += cost;
        world.counts_cost(name, 500 * (number as u64 + 1), used);
    }
    assert_eq!(query(0, "k-1", &format!("[{hero}, {hero}]"), "").status, 403, "a batch");
    assert_eq!(query(0, "k-1", "{", "").status, 403, "no json");
    assert_eq!(query(0, "", hero, "").status, 403, "no key");
    // One query may cost more than is left. It empties the bucket, and the next one has to wait.
    assert_eq!(query(0, "k-1", hero, "x-query-cost: 50000\r\n").status, 200);
    eventually("the points to be used", || (query(1, "k-1", hero, "").status == 429).then_some(()));
    let denied = query(0, "k-1", hero, "");
    assert!(denied.text().contains("RATE_LIMITED"), "{}", denied.text());
    assert_eq!(query(0, "k-2", hero, "").status, 200, "another key");
}

fn lists() {
    let world = world(include_str!("../../../examples/lists.yaml"));
    assert_eq!((0..10).map(|_| world.send(&Request::get("/healthz")).status).collect::<Vec<_>>(), [200; 10]);
    let tool = Request::get("/").header("user-agent", "sqlmap/1.8");
    assert_eq!(world.send(&tool).status, 403);
    let statuses: Vec<_> = (0..8).map(|_| world.send(&Request::get("/")).status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
}

fn ban() {
    let world = world(include_str!("../../../examples/ban.yaml"));
    let send = |place: usize| {
        http::send(world.envoys[place % 2].address("edge"), &Request::get("/")).expect("a response")
    };
    let banned = (0..60)
        .map(send)
        .find(|response| response.status == 429 && response.text().contains("abnormal-usage-detected"));
    let banned = banned.expect("a ban");
    let wait: u64 = banned.headers.get("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
    assert!((290..=300).contains(&wait), "{banned:?}");
    assert_eq!([0, 1].map(|place| send(place).status), [429; 2], "in both");
    assert_eq!(world.send(&Request::get("/api/x")).status, 429, "the API, too");
}

fn many_regions() {
    // As in the file, but for the names of clusters, and the deadlines.
    let mut limiter = include_str!("../../../examples/many-regions.yaml")
        .replace("  cluster: redis-ams\n", "  cluster: weir-bridge\n  deadline: 10s\n  on_failure: deny\n")
        .replace("here: ams", &format!("here: {HERE}"))
        .replace("deadline: 300ms", "deadline: 10s");
    for name in &NAMES[..3] {
        limiter = limiter.replace(&format!("cluster: redis-{name}"), &format!("cluster: weir-bridge-{name}"));
    }
    let regions = regions::start(&limiter, 3, 1);
    assert_eq!([0, 1, 2].map(|place| regions[place].status(&Request::get("/"))), [403; 3], "without a key");
    let keyed = Request::get("/").header("x-api-key", "k-1");
    let begin = Instant::now();
    let mut passed = 0;
    eventually("a region to borrow from the others", || {
        for _ in 0..100 {
            passed += u128::from(regions[0].status(&keyed) == 200);
        }
        (regions[0].lab.total("wasmcustom.weir.borrowed") > 0).then_some(())
    });
    for place in [1, 2].repeat(100) {
        passed += u128::from(regions[place].status(&keyed) == 200);
    }
    let limit = 45 + begin.elapsed().as_millis() * 90 / 1000 + 1;
    assert!((30..=limit).contains(&passed), "{passed} of {limit} in all regions");
}
