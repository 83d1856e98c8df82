// SPDX-License-Identifier: Apache-2.0
//! The documented shapes of three providers: the tokens of a response, whole and streamed, and what a request asks for.
//!
//! - OpenAI, Chat Completions: `usage` in the response; in a stream only with `stream_options.include_usage`, in a last chunk
//!   without choices, while all other chunks say `"usage": null`. Responses: in the `response` of the last event.
//! - Anthropic, Messages: `message_start` has the input tokens inside `message`, each `message_delta` the output tokens so far.
//! - Gemini: `usageMetadata` in each chunk, with the totals so far; a stream is one JSON array, or events with `alt=sse`.

use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Form, Paths, Sum, Weight};

use super::{found, read};
use crate::table;

/// The places of the tokens: of the input, and of the output.
const PATHS: [&str; 10] = [
    "usage.prompt_tokens",
    "usage.input_tokens",
    "message.usage.input_tokens",
    "response.usage.input_tokens",
    "usageMetadata.promptTokenCount",
    "usage.completion_tokens",
    "usage.output_tokens",
    "message.usage.output_tokens",
    "response.usage.output_tokens",
    "usageMetadata.candidatesTokenCount",
];

const OPENAI: &str = r#"{"id": "chatcmpl-1", "object": "chat.completion", "created": 1741569952, "model": "gpt-5",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "{\"usage\": {\"prompt_tokens\": 999}}",
    "refusal": null, "annotations": []}, "logprobs": null, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0}}, "service_tier": "default"}"#;

const OPENAI_STREAM: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{"content":"data: {\"usage\":"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}

data: [DONE]

"#;

const OPENAI_RESPONSES_STREAM: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[],"usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi"}

event: response.completed
data: {"type":"response.completed","sequence_number":9,"response":{"id":"resp_1","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":0},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":48}}}

"#;

const ANTHROPIC: &str = r#"{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Hi! My name is Claude."}], "stop_reason": "end_turn", "stop_sequence": null,
    "usage": {"input_tokens": 25, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0}, "output_tokens": 15, "service_tier": "standard"}}"#;

const ANTHROPIC_STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude-sonnet-4-5","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":7}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"#;

const GEMINI: &str = r#"{"candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 31, "totalTokenCount": 39,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 8}], "thoughtsTokenCount": 12},
    "modelVersion": "gemini-2.5-flash", "responseId": "r"}"#;

const GEMINI_STREAM: &str = r#"data: {"candidates": [{"content": {"parts": [{"text": "H"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 8,"totalTokenCount": 8},"modelVersion": "gemini-2.5-flash"}

data: {"candidates": [{"content": {"parts": [{"text": "i"}],"role": "model"},"finishReason": "STOP","index": 0}],"usageMetadata": {"promptTokenCount": 8,"candidatesTokenCount": 31,"totalTokenCount": 39},"modelVersion": "gemini-2.5-flash"}

"#;

#[test]
fn tokens_of_a_response() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let without_usage = OPENAI_STREAM
        .replace(",\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10,\"total_tokens\":29}", "");
    let cut = ANTHROPIC_STREAM.split("event: message_delta").next().unwrap().to_owned();
    let rows = [
        ("OpenAI", Form::Json, OPENAI.to_owned(), "19", "10"),
        ("OpenAI, streamed", Form::EventStream, OPENAI_STREAM.to_owned(), "19", "10"),
        ("OpenAI, streamed, CRLF", Form::EventStream, crlf(OPENAI_STREAM), "19", "10"),
        ("OpenAI, streamed without usage", Form::EventStream, without_usage, "-", "-"),
        ("OpenAI, Responses, streamed", Form::EventStream, OPENAI_RESPONSES_STREAM.to_owned(), "37", "11"),
        ("Anthropic", Form::Json, ANTHROPIC.to_owned(), "25", "15"),
        ("Anthropic, streamed", Form::EventStream, ANTHROPIC_STREAM.to_owned(), "25", "15"),
        ("Anthropic, the client left early", Form::EventStream, cut, "25", "1"),
        ("Gemini", Form::Json, GEMINI.to_owned(), "8", "31"),
        ("Gemini, streamed", Form::EventStream, GEMINI_STREAM.to_owned(), "8", "31"),
    ];
    let paths = Rc::new(Paths::new(&PATHS).unwrap());
    let one = || Weight::parse("1").unwrap();
    let input = Sum::new(vec![(one(), (0..5).collect())]).unwrap();
    let output = Sum::new(vec![(one(), (5..10).collect())]).unwrap();
    table::each(rows.into_iter().flat_map(|(name, form, body, of_input, of_output)| {
        [1, 5, 64, 100_000].map(|size| {
            let (scanner, end) = read(form, &paths, body.as_bytes().chunks(size));
            let show = |sum: Option<u64>| sum.map_or("-".to_owned(), |sum| sum.to_string());
            let found = format!("{end:?} {} {}", show(input.last(&scanner)), show(output.last(&scanner)));
            (format!("{name}, in chunks of {size}"), found, format!("Ok(()) {of_input} {of_output}"))
        })
    }));
}

#[test]
fn gemini_streams_an_array() {
    let chunks = ["1", "17", "31"].map(|count| {
        GEMINI.replace("\"candidatesTokenCount\": 31", &format!("\"candidatesTokenCount\": {count}"))
    });
    let body = format!("[{}\n]", chunks.join(",\r\n"));
    let paths = ["[*].usageMetadata.promptTokenCount", "[*].usageMetadata.candidatesTokenCount"];
    assert_eq!(found(Form::Json, &paths, body.as_bytes()), "ok: ?8 ?31");
    let cut = body.len() - 2;
    assert_eq!(found(Form::Json, &paths, &body.as_bytes()[..cut]), "not JSON: ?8 ?31", "cut off");
}

#[test]
fn what_a_request_asks_for() {
    #[rustfmt::skip]
    let rows: &[(&str, &[&str], &str, &str)] = &[
        ("a login", &["username"], r#"{"username": "ann", "password": "\"}, {\"username\": \"bob"}"#, r#"ok: "ann""#),
        ("a login with two names", &["username"], r#"{"username": "ann", "user\u006eame": "bob"}"#, r#"ok: ?"bob""#),
        ("a chat", &["model", "max_tokens", "stream", "stream_options.include_usage"],
         r#"{"model": "gpt-5", "messages": [{"role": "user", "content": "{\"model\": \"x\"}", "model": "y"}], "max_tokens": 1024,
                "stream": true, "stream_options": {"include_usage": true}}"#,
         r#"ok: "gpt-5" 1024 true true"#),
        ("an MCP tool", &["method", "params.name"],
         r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_weather", "arguments": {"name": "x"}}}"#,
         r#"ok: "tools/call" "get_weather""#),
        ("a batch of JSON-RPC", &["[*].params.name"],
         r#"[{"method": "tools/call", "params": {"name": "a"}}, {"method": "tools/call", "params": {"name": "b"}}]"#,
         r#"ok: ?"b""#),
        ("a GraphQL operation", &["operationName"], r#"{"query": "query Q { a }", "operationName": "Q", "variables": {}}"#, r#"ok: "Q""#),
    ];
    table::each(rows.iter().map(|(name, paths, body, wanted)| {
        (*name, found(Form::Json, paths, body.as_bytes()), (*wanted).to_owned())
    }));
}
