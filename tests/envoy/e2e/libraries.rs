// SPDX-License-Identifier: Apache-2.0
//! The official client libraries of OpenAI, Anthropic, Google and MCP, through Envoy: they get their answers, also as streams; they raise
//! their own error when they are over a limit, and retry when weir says. `libraries.py` uses them as an application does.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::http;
use crate::support::redis::Redis;
use crate::support::root;
use crate::support::server::{Server, Shared};
use crate::support::weir::{PATIENT, reading_bodies, template};

pub const TESTS: &[(&str, fn())] = &[
    ("client libraries: openai", openai),
    ("client libraries: anthropic", anthropic),
    ("client libraries: google-genai", gemini),
    ("client libraries: mcp", mcp),
];

/// Each test, with the reason not to run it, if the libraries are not installed.
pub fn ignored() -> Vec<(&'static str, &'static str)> {
    crate::support::ignored_unless(
        python().is_some(),
        TESTS,
        "no client libraries in $WEIR_CLIENTS: scripts/setup installs them from PyPI",
    )
}

/// The Python that has the libraries.
fn python() -> Option<PathBuf> {
    std::env::var_os("WEIR_CLIENTS").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Two requests, then one in this many seconds.
const EVERY: u64 = 4;

/// The results of the library of this name through an Envoy with this policy. One request a day to the `daily` path; `/models` is denied.
fn seen(name: &str, style: &str, paths: [&str; 2]) -> Value {
    let [path, daily] = paths;
    let (subject, matched) = if name == "mcp" {
        (
            r#"{"body_json": {"path": "params.name"}}"#,
            r#", "body_json": {"path": "method", "exact": "tools/call"}"#,
        )
    } else {
        (r#"{"credential": {}, "on_missing": "deny"}"#, "")
    };
    let limiter = format!(
        r#"{{{PATIENT}, "response": {{"style": "{style}"}}, "deny": [{{"path": {{"regex": "/v1(beta)?/models"}}}}], "policies": [
            {{"name": "p", "match": {{"path": {{"regex": "{path}"}}{matched}}}, "subject": [{subject}],
              "limits": [{{"name": "rate", "algorithm": "leaky_bucket", "rate": "1/{EVERY}s", "burst": 2}}]}},
            {{"name": "d", "match": {{"path": {{"exact": "{daily}"}}}}, "subject": [{{"credential": {{}}}}],
              "limits": [{{"name": "day", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}}]}}]}}"#
    );
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Server::start((), serve));
    let envoy =
        reading_bodies(template(&limiter, redis.address(), upstream.address()).concurrency(1)).start();
    let script = root().join("tests/envoy/e2e/libraries.py");
    let url = format!("http://{}", envoy.address("edge"));
    let mut command = Command::new(python().expect("the libraries"));
    // A proxy of this machine is none of the test's.
    command.arg(script).args([name, &url]).env("NO_PROXY", "127.0.0.1").env_remove("PYTHONPATH");
    let output = command.output().expect("a Python");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {text}\n{errors}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"))
}

/// Asserts that the client waited for as many seconds as it was told.
fn assert_waited(seen: &Value, told: &Value) {
    let told =
        told["headers"]["retry-after-ms"].as_str().expect("it").parse::<f64>().expect("a number") / 1e3;
    let waited = seen["waited"].as_f64().expect("it");
    assert!(told <= 4.0 && waited + 1.0 >= told && waited < told + 4.0, "told {told} s, waited {waited} s");
    assert_eq!(seen["retries"], 1);
}

/// Asserts the results of both OpenAI's and Anthropic's library.
fn assert_limited(seen: &Value, limit: impl Fn(&Value) -> Value, denied: &Value) {
    assert_eq!(seen["answer"], "Hello");
    assert_eq!(seen["streamed"], "Hello");
    assert_eq!(seen["remaining"], "1");
    for limited in ["limited", "limited_stream"] {
        let limited = &seen[limited];
        let message = &limited["body"]["error"]["message"];
        let text = message.as_str().expect("a message");
        assert!(text.starts_with("Rate limit exceeded: rate. Retry after "), "{seen}");
        assert!(limited["text"].as_str().expect("a text").contains(text), "people see the message: {seen}");
        assert_eq!((&limited["status"], &limited["body"]), (&json!(429), &limit(message)), "{seen}");
        assert_eq!(limited["headers"]["x-should-retry"], Value::Null, "{seen}");
    }
    assert_waited(seen, &seen["limited_stream"]);
    // A day is too long to wait, and a denial does not end: the libraries send nothing more.
    let daily = &seen["daily"];
    assert_eq!((&daily["status"], &daily["sent"]), (&json!(429), &json!(1)), "{seen}");
    assert_eq!(daily["headers"]["x-should-retry"], "false");
    let of_list = &seen["denied"];
    assert_eq!(
        (&of_list["status"], &of_list["sent"], &of_list["body"]),
        (&json!(403), &json!(1), denied),
        "{seen}"
    );
}

fn openai() {
    let seen = seen("openai", "openai", ["/v1/chat/completions", "/v1/embeddings"]);
    let object = |kind: &str, code: &str, message: &Value| json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    let denied = object("invalid_request_error", "request_denied", &json!("Request denied."));
    assert_limited(&seen, |message| object("requests", "rate_limit_exceeded", message), &denied);
    assert_eq!(
        (&seen["limited"]["code"], &seen["limited"]["type"]),
        (&json!("rate_limit_exceeded"), &json!("requests"))
    );
    let headers = &seen["limited"]["headers"];
    assert_eq!(headers["x-ratelimit-limit-requests"], "2", "{seen}");
    assert_eq!(headers["x-ratelimit-remaining-requests"], "0", "{seen}");
    assert!(headers["x-ratelimit-reset-requests"].as_str().is_some_and(|span| span.ends_with('s')), "{seen}");
}

fn anthropic() {
    let seen = seen("anthropic", "anthropic", ["/v1/messages", "/v1/messages/count_tokens"]);
    let object =
        |kind: &str, message: &Value| json!({"type": "error", "error": {"type": kind, "message": message}});
    let denied = object("permission_error", &json!("Request denied."));
    assert_limited(&seen, |message| object("rate_limit_error", message), &denied);
    let headers = &seen["limited"]["headers"];
    assert_eq!(headers["anthropic-ratelimit-requests-limit"], "2", "{seen}");
    assert_eq!(headers["anthropic-ratelimit-requests-remaining"], "0", "{seen}");
    let reset = headers["anthropic-ratelimit-requests-reset"].as_str().expect("it");
    assert!(reset.starts_with("20") && reset.len() == "2026-01-01T00:00:00Z".len(), "{seen}");
}

fn gemini() {
    let seen = seen("gemini", "gemini", ["/v1(beta)?/models/.*", "/none"]);
    assert_eq!(
        (&seen["answer"], &seen["streamed"], &seen["again"]),
        (&json!("Hello"), &json!("Hello"), &json!("Hello"))
    );
    let limited = &seen["limited"];
    assert_eq!((&limited["code"], &limited["status"]), (&json!(429), &json!("RESOURCE_EXHAUSTED")), "{seen}");
    assert!(
        limited["message"].as_str().is_some_and(|text| text.starts_with("Rate limit exceeded: rate.")),
        "{seen}"
    );
    assert_eq!(limited["body"]["error"]["details"][1]["violations"], json!([{"quotaId": "rate"}]), "{seen}");
    assert_eq!(seen["limited_stream"], json!({"code": 429, "status": "RESOURCE_EXHAUSTED"}));
}

fn mcp() {
    let seen = seen("mcp", "json_rpc", ["/mcp", "/none"]);
    for answer in ["answer", "streamed", "other_tool", "again"] {
        assert_eq!(seen[answer], "Hello", "{answer}: {seen}");
    }
    let limited = &seen["limited"];
    assert_eq!(limited["code"], -32029, "{seen}");
    assert!(
        limited["message"].as_str().is_some_and(|text| text.starts_with("Rate limit exceeded: rate.")),
        "{seen}"
    );
}

/// The providers, as far as the libraries ask for it.
fn serve(_: &Arc<Shared<()>>, mut connection: TcpStream) {
    let Ok(reading) = connection.try_clone() else { return };
    let mut reading = BufReader::new(reading);
    while let Ok(Some(request)) = http::read(&mut reading) {
        let (status, kind, body) = answer(&request);
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}");
        if connection.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The events of a stream. Some have names.
fn events(events: &[(&str, Value)]) -> String {
    let event = |(name, data): &(&str, Value)| match *name {
        "" => format!("data: {data}\n\n"),
        name => format!("event: {name}\ndata: {data}\n\n"),
    };
    events.iter().map(event).collect()
}

fn answer(request: &http::Message) -> (&'static str, &'static str, String) {
    const OK: &str = "200 OK";
    const JSON: &str = "application/json";
    const STREAM: &str = "text/event-stream";
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let is_stream = asked["stream"] == true;
    let mut words = request.start.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match path {
        "/v1/chat/completions" if is_stream => {
            let chunk = |delta: Value, end: Value| {
                let choice = json!({"index": 0, "delta": delta, "finish_reason": end});
                json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
            };
            let chunks = [
                ("", chunk(json!({"role": "assistant", "content": "Hel"}), Value::Null)),
                ("", chunk(json!({"content": "lo"}), Value::Null)),
                ("", chunk(json!({}), json!("stop"))),
            ];
            (OK, STREAM, events(&chunks) + "data: [DONE]\n\n")
        }
        "/v1/chat/completions" => {
            let message = json!({"role": "assistant", "content": "Hello"});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
            let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage});
            (OK, JSON, body.to_string())
        }
        "/v1/embeddings" => {
            let data = json!([{"object": "embedding", "index": 0, "embedding": [0.5]}]);
            let usage = json!({"prompt_tokens": 1, "total_tokens": 1});
            (OK, JSON, json!({"object": "list", "model": "m", "data": data, "usage": usage}).to_string())
        }
        "/v1/messages" if is_stream => {
            let begun = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
                "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
            let block = json!({"type": "text", "text": ""});
            let text = |text: &str| {
                let delta = json!({"type": "text_delta", "text": text});
                ("content_block_delta", json!({"type": "content_block_delta", "index": 0, "delta": delta}))
            };
            let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 2}});
            let events = events(&[
                ("message_start", json!({"type": "message_start", "message": begun})),
                (
                    "content_block_start",
                    json!({"type": "content_block_start", "index": 0, "content_block": block}),
                ),
                text("Hel"),
                text("lo"),
                ("content_block_stop", json!({"type": "content_block_stop", "index": 0})),
                ("message_delta", end),
                ("message_stop", json!({"type": "message_stop"})),
            ]);
            (OK, STREAM, events)
        }
        "/v1/messages" => {
            let body = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hello"}],
                "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
            (OK, JSON, body.to_string())
        }
        "/v1/messages/count_tokens" => (OK, JSON, json!({"input_tokens": 1}).to_string()),
        path if path.starts_with("/v1/models/") => {
            let part = |text: &str| {
                let content = json!({"role": "model", "parts": [{"text": text}]});
                json!({"candidates": [{"index": 0, "content": content}]})
            };
            if path.contains(":streamGenerateContent") {
                (OK, STREAM, events(&[("", part("Hel")), ("", part("lo"))]))
            } else {
                (OK, JSON, part("Hello").to_string())
            }
        }
        "/mcp" if method == "POST" => of_mcp(&asked),
        "/mcp" => ("405 Method Not Allowed", JSON, String::from("{}")),
        _ => ("404 Not Found", JSON, String::from("{}")),
    }
}

/// Every other answer comes as a stream.
fn of_mcp(asked: &Value) -> (&'static str, &'static str, String) {
    let result = match asked["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }),
        Some("tools/list") => {
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
            json!({"tools": [tool("search"), tool("read")]})
        }
        Some("tools/call") => json!({"content": [{"type": "text", "text": "Hello"}]}),
        _ if asked["id"].is_null() => return ("202 Accepted", "application/json", String::new()),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            let body = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
            return ("200 OK", "application/json", body.to_string());
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    let is_odd = asked["id"].as_u64().is_some_and(|id| id % 2 == 1);
    if is_odd {
        ("200 OK", "text/event-stream", events(&[("message", body)]))
    } else {
        ("200 OK", "application/json", body.to_string())
    }
}
