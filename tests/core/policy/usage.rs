// SPDX-License-Identifier: Apache-2.0
//! The usage of language models, of each provider in its own form, cut anywhere: the charge equals a plain count of the tokens. The
//! reservation of a request before that.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::config::{Config, Evaluation, Unasked};
use weir::policy::settle::Settling;
use weir::policy::{Check, Denial, Mode};
use weir::request::sample::Sample;
use weir::time::Micros;

use super::{config, evaluate, policy};
use crate::frames;
use crate::table::each;
use crate::written::request;

const RESERVED: u64 = 777;

/// The units of a response with this `content-type`, whose body comes in these parts.
fn charged<'a>(
    config: &Config,
    kind: &str,
    requested: Option<u16>,
    parts: impl Iterator<Item = &'a [u8]>,
) -> u64 {
    let mut settling = seen(config, kind, requested, parts);
    settling.whole();
    settling.at_end(&config.policies[0].settle, RESERVED, Micros::ZERO)
}

/// The state after it.
fn seen<'a>(
    config: &Config,
    kind: &str,
    requested: Option<u16>,
    parts: impl Iterator<Item = &'a [u8]>,
) -> Settling {
    let settle = &config.policies[0].settle;
    let mut settling = Settling::new(settle, Micros::ZERO, requested);
    settling.headers(settle, &|name| match name {
        ":status" => Some(b"200".to_vec()),
        "content-type" => Some(kind.into()),
        _ => None,
    });
    parts.for_each(|part| settling.body(part.len(), part));
    settling
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const FRAMES: &str = "application/vnd.amazon.eventstream";

/// The events of a `ConverseStream`.
const CONVERSE: &[(&str, &str)] = &[
    ("messageStart", r#"{"p":"abcdefghij","role":"assistant"}"#),
    (
        "contentBlockDelta",
        r#"{"contentBlockIndex":0,"delta":{"text":"{\"usage\": {\"outputTokens\": 9}}"},"p":"abc"}"#,
    ),
    ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"usage":{"outputTokens":9}},"p":"abcdefg"}"#),
    ("contentBlockStop", r#"{"contentBlockIndex":0,"p":"abcdefghijklmnopqrstuvwxyzABC"}"#),
    ("messageStop", r#"{"p":"abcd","stopReason":"end_turn"}"#),
    (
        "metadata",
        r#"{"metrics":{"latencyMs":824},"p":"abcdefghijk","usage":{"cacheReadInputTokenCount":4,"cacheReadInputTokens":4,"cacheWriteInputTokenCount":6,"cacheWriteInputTokens":6,"inputTokens":30,"outputTokens":6,"serverToolUsage":{},"totalTokens":46}}"#,
    ),
];

/// The events of an `InvokeModelWithResponseStream`: what each says is in base64.
const INVOKE: &[(&str, &str)] =
    &[("chunk", r#"{"bytes":"eyJ1c2FnZSI6eyJpbnB1dFRva2VucyI6MSwib3V0cHV0VG9rZW5zIjoyfX0=","p":"abcd"}"#)];

/// A number of its own for each kind of tokens: what was charged shows what was counted.
const APART: &str = r#"{"provider": "P", "weights": {"input": 1, "cached_input": 100, "cache_write": 10000, "cache_write_1h": 100000, "output": 1000000, "reasoning": "0.01"}}"#;

fn settled(usage: &str, provider: &str) -> Config {
    policy(&format!(
        r#""settle": [{{"cost": {{"usage": {}}}}}]"#,
        usage.replace("\"P\"", &format!("{provider:?}"))
    ))
}

#[test]
fn each_kind_of_tokens_counts_once() {
    // Provider, name, content type, body, and the units: input + 100 cached + 10,000 written (100,000 for an hour) + 1,000,000 output + 0.01 reasoning.
    #[rustfmt::skip]
    let rows: &[(&str, &str, &str, &str, u64)] = &[
        ("openai", "chat", JSON,
         r#"{"model": "gpt-5", "choices": [{"message": {"content": "{\"usage\": {\"prompt_tokens\": 9}}"}}],
                "usage": {"prompt_tokens": 19, "completion_tokens": 12, "total_tokens": 31,
                "prompt_tokens_details": {"cached_tokens": 7, "audio_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 10}}}"#,
         12 + 700 + 2_000_000 + 1),
        ("openai", "a stream of chat", EVENTS,
         "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\ndata: [DONE]\n\n",
         500 + 3_000_000),
        ("openai", "vLLM counts in each event", EVENTS,
         "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"prompt_tokens_details\":null}}\n\n",
         5 + 2_000_000),
        ("openai", "embeddings", JSON, r#"{"object": "list", "data": [{"embedding": [0.1, -2e-3]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}}"#, 8),
        ("openai", "responses", JSON,
         r#"{"object": "response", "output": [], "usage": {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 6},
                "output_tokens": 87, "output_tokens_details": {"reasoning_tokens": 80}, "total_tokens": 123}}"#,
         30 + 600 + 7_000_000 + 1),
        ("openai", "a stream of responses", EVENTS,
         "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":37,\"input_tokens_details\":{\"cached_tokens\":30},\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":0}}}}\n\n",
         7 + 3_000 + 11_000_000),
        ("anthropic", "a message", JSON,
         r#"{"type": "message", "usage": {"input_tokens": 25, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 40,
                "cache_creation": {"ephemeral_5m_input_tokens": 3}, "output_tokens": 15}}"#,
         25 + 4_000 + 30_000 + 15_000_000),
        ("anthropic", "a stream, whose counts grow", EVENTS,
         "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":1,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":26,\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":1,\"output_tokens\":15}}\n\n",
         26 + 100 + 20_000 + 15_000_000),
        ("anthropic", "a stream that was cut off", EVENTS,
         "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: content_bl",
         25 + 1_000_000),
        ("gemini", "content", JSON,
         r#"{"candidates": [], "usageMetadata": {"promptTokenCount": 8, "cachedContentTokenCount": 5, "candidatesTokenCount": 31,
                "toolUsePromptTokenCount": 2, "thoughtsTokenCount": 100, "totalTokenCount": 141, "promptTokensDetails": [{"tokenCount": 8}]}}"#,
         3 + 500 + 2 + 31_000_000 + 1),
        ("gemini", "a stream of events", EVENTS,
         "data: {\"usageMetadata\":{\"promptTokenCount\":8,\"totalTokenCount\":8}}\r\n\r\ndata: {\"usageMetadata\":{\"promptTokenCount\":8,\"candidatesTokenCount\":31}}\r\n\r\n",
         8 + 31_000_000),
        ("gemini", "a stream that is an array", JSON,
         "[{\"usageMetadata\": {\"promptTokenCount\": 8, \"thoughtsTokenCount\": 50}}\n,\r\n{\"usageMetadata\": {\"promptTokenCount\": 8, \"cachedContentTokenCount\": 8, \"candidatesTokenCount\": 4, \"thoughtsTokenCount\": 200}}\n]",
         800 + 4_000_000 + 2),
        ("bedrock", "converse, written for an hour and for less", JSON,
         r#"{"usage": {"inputTokens": 3, "outputTokens": 1, "cacheWriteInputTokens": 6, "cacheDetails": [{"ttl": "1h", "inputTokens": 4}, {"ttl": "5m", "inputTokens": 2}]}}"#,
         3 + 20_000 + 400_000 + 1_000_000),
        ("bedrock", "converse, written for less than an hour", JSON,
         r#"{"usage": {"inputTokens": 3, "outputTokens": 1, "cacheWriteInputTokens": 6, "cacheDetails": [{"ttl": "5m", "inputTokens": 6}]}}"#,
         3 + 60_000 + 1_000_000),
        ("openai", "only a total", JSON, r#"{"usage": {"total_input_tokens": 4, "total_tokens": 7}}"#, 7_000_000),
        ("bedrock", "converse", JSON,
         r#"{"output": {}, "usage": {"inputTokens": 30, "outputTokens": 6, "totalTokens": 46, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 6}}"#,
         30 + 400 + 60_000 + 6_000_000),
        ("ollama", "a chat in lines", LINES,
         "{\"model\":\"m\",\"message\":{\"content\":\"Hi\"},\"done\":false}\n{\"model\":\"m\",\"done\":true,\"prompt_eval_count\":26,\"eval_count\":298}\n",
         26 + 298_000_000),
        ("ollama", "an answer", JSON, r#"{"done": true, "prompt_eval_count": 26, "eval_count": 2}"#, 26 + 2_000_000),
        ("openai", "written to a cache", JSON,
         r#"{"usage": {"prompt_tokens": 2600, "completion_tokens": 1, "total_tokens": 2601, "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 400}}}"#,
         200 + 200_000 + 4_000_000 + 1_000_000),
        ("openai", "a stream of responses, written to a cache", EVENTS,
         "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cache_write_tokens\":4,\"cached_tokens\":3},\"output_tokens\":1,\"total_tokens\":10}}}\n\n",
         2 + 300 + 40_000 + 1_000_000),
        ("openai", "an image", EVENTS,
         "data: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"AA==\"}\n\ndata: {\"type\":\"image_generation.completed\",\"b64_json\":\"AA==\",\"usage\":{\"total_tokens\":100,\"input_tokens\":50,\"output_tokens\":50,\"input_tokens_details\":{\"text_tokens\":10,\"image_tokens\":40}}}\n\n",
         50 + 50_000_000),
        ("openai", "a transcription", JSON,
         r#"{"text": "Hi", "usage": {"type": "tokens", "input_tokens": 14, "input_token_details": {"text_tokens": 0, "audio_tokens": 14}, "output_tokens": 4, "total_tokens": 18}}"#,
         14 + 4_000_000),
        ("openai", "xAI: thoughts beside the output", JSON,
         r#"{"usage": {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135, "prompt_tokens_details": {"text_tokens": 32, "cached_tokens": 6}, "completion_tokens_details": {"reasoning_tokens": 94}}}"#,
         26 + 600 + 9_000_000 + 1),
        ("openai", "Gemini's thoughts, in the total alone", JSON, r#"{"usage": {"completion_tokens": 5, "prompt_tokens": 8, "total_tokens": 113}}"#, 8 + 105_000_000),
        ("openai", "Mistral's connectors", JSON, r#"{"usage": {"prompt_tokens": 188, "completion_tokens": 55, "total_tokens": 7355, "connector_tokens": 7112}}"#, 188 + 7112 + 55_000_000),
        ("openai", "DeepSeek", JSON, r#"{"usage": {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21, "prompt_cache_hit_tokens": 15, "prompt_cache_miss_tokens": 5}}"#, 5 + 1_500 + 1_000_000),
        ("openai", "Qwen", JSON, r#"{"usage": {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21, "prompt_tokens_details": {"cached_tokens": 7, "cache_creation_input_tokens": 9, "cache_type": "ephemeral"}}}"#, 4 + 700 + 90_000 + 1_000_000),
        ("openai", "Moonshot", EVENTS,
         "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":13,\"total_tokens\":32,\"cached_tokens\":19}}]}\n\ndata: [DONE]\n\n",
         1_900 + 13_000_000),
        ("openai", "Groq", EVENTS,
         "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"x_groq\":{\"id\":\"r\",\"usage\":{\"queue_time\":0.01,\"prompt_tokens\":5,\"completion_tokens\":3,\"total_tokens\":8}}}\n\ndata: [DONE]\n\n",
         5 + 3_000_000),
        ("openai", "LiteLLM states tokens twice", JSON,
         r#"{"usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102, "prompt_tokens_details": {"audio_tokens": null, "cached_tokens": 60}, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 60}}"#,
         10 + 6_000 + 300_000 + 2_000_000),
        ("anthropic", "written to a cache for an hour", JSON,
         r#"{"usage": {"input_tokens": 5, "cache_creation_input_tokens": 7, "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}, "output_tokens": 1}}"#,
         5 + 30_000 + 400_000 + 1_000_000),
        ("anthropic", "a total of all", JSON, r#"{"usage": {"input_tokens": 5, "cache_read_input_tokens": 9, "output_tokens": 1, "total_tokens": 15}}"#, 5 + 900 + 1_000_000),
        ("anthropic", "a step that compacts the prompt", JSON,
         r#"{"usage": {"input_tokens": 23, "cache_read_input_tokens": 2, "output_tokens": 3, "iterations": [
                {"type": "compaction", "input_tokens": 180, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 0, "output_tokens": 35},
                {"type": "message", "input_tokens": 23, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2, "output_tokens": 3}]}}"#,
         203 + 200 + 10_000 + 38_000_000),
        ("anthropic", "steps in a stream", EVENTS,
         "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":23,\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":2,\"iterations\":[{\"input_tokens\":180,\"output_tokens\":35}]}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"iterations\":[{\"input_tokens\":180,\"output_tokens\":35},{\"input_tokens\":23,\"output_tokens\":3}],\"output_tokens\":3}}\n\n",
         203 + 38_000_000),
        ("gemini", "Vertex begins without counts", EVENTS,
         "data: {\"candidates\":[{\"content\":{}}],\"usageMetadata\":{\"trafficType\":\"ON_DEMAND\"}}\n\ndata: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":8,\"candidatesTokenCount\":3,\"totalTokenCount\":11,\"trafficType\":\"ON_DEMAND\"}}\n\n",
         8 + 3_000_000),
        ("bedrock", "Claude, invoked", JSON, r#"{"type": "message", "usage": {"input_tokens": 4, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 3, "output_tokens": 2}}"#, 4 + 300 + 10_000 + 2_000_000),
        ("bedrock", "Nova, invoked", JSON, r#"{"output": {}, "usage": {"inputTokens": 4, "outputTokens": 2, "totalTokens": 6, "cacheReadInputTokenCount": 3, "cacheWriteInputTokenCount": 1}}"#, 4 + 300 + 10_000 + 2_000_000),
        ("openai", "more from a cache than there is", JSON, r#"{"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}}"#, 300),
        ("openai", "a count below zero", JSON, r#"{"usage": {"prompt_tokens": -3, "completion_tokens": 1}}"#, 1_000_000),
        ("openai", "no usage: each event is a token", EVENTS, "data: {\"choices\":[],\"usage\":null}\n\ndata: [DONE]\n\n", 2_000_000),
        ("openai", "an error", JSON, r#"{"error": {"message": "overloaded"}}"#, RESERVED),
        ("bedrock", "a stream that is none", FRAMES, r#"{"usage": {"inputTokens": 30}}"#, RESERVED),
    ];
    let streams = [
        ("a stream of converse", CONVERSE, 30 + 400 + 60_000 + 6_000_000),
        ("a stream of invoke: each message is a token", INVOKE, 1_000_000),
    ]
    .map(|(name, events, units)| {
        let stream = events.iter().flat_map(|(name, payload)| frames::event(name, payload.as_bytes()));
        ("bedrock", name, FRAMES, stream.collect::<Vec<_>>(), units)
    });
    let rows = rows
        .iter()
        .map(|&(provider, name, kind, body, units)| (provider, name, kind, body.as_bytes().to_vec(), units));
    let rows: Vec<_> = rows.chain(streams).collect();
    each(rows.iter().flat_map(|(provider, name, kind, body, units)| {
        let sizes = [1, 3, 64, 100_000];
        let of = [*provider, "auto"].into_iter().flat_map(move |of| sizes.map(|size| (of, size)));
        of.map(move |(of, size)| {
            let found = charged(&settled(APART, of), kind, None, body.chunks(size));
            (
                format!("{provider}, {name}: read as {of}, in parts of {size}"),
                found.to_string(),
                units.to_string(),
            )
        })
    }));
}

/// The usage that one event of a stream states.
#[derive(Clone, Copy)]
enum Says {
    Nothing,
    /// This number of units, and more is to come.
    SoFar(u64),
    /// This number of units in all.
    All(u64),
}

use Says::{All, Nothing, SoFar};

/// A stream that ends after any of its events, because the client leaves or the upstream breaks off. A token of input is 1 unit, one of
/// output 2.
#[test]
fn a_stream_that_is_cut_off_costs_what_it_has_delivered_or_what_it_reserved() {
    type Stream = (&'static str, &'static str, &'static str, Vec<(String, Says)>);
    let event = |data: &str| format!("data: {data}\n\n");
    let events = |rows: &[(&str, Says)]| rows.iter().map(|(data, says)| (event(data), *says)).collect();
    let plain = |rows: &[(&str, Says)]| rows.iter().map(|(text, says)| ((*text).to_owned(), *says)).collect();
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#;
    let start =
        r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":50,"output_tokens":1}}}"#;
    let streams: Vec<Stream> = vec![
        (
            "openai",
            "chat",
            EVENTS,
            events(&[
                (
                    r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}],"usage":null}"#,
                    Nothing,
                ),
                (r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#, Nothing),
                (r#"{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":9}}"#, All(68)),
                ("[DONE]", All(68)),
            ]),
        ),
        (
            "openai",
            "chat with counts in each event",
            EVENTS,
            events(&[
                (
                    r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}],"usage":{"prompt_tokens":50,"completion_tokens":0}}"#,
                    SoFar(50),
                ),
                (r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#, SoFar(50)),
                (
                    r#"{"choices":[{"index":0,"delta":{"content":"!"},"finish_reason":null}],"usage":{"prompt_tokens":50,"completion_tokens":3}}"#,
                    SoFar(56),
                ),
                (
                    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":50,"completion_tokens":9}}"#,
                    All(68),
                ),
                (r#"{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":9}}"#, All(68)),
            ]),
        ),
        (
            "openai",
            "completions",
            EVENTS,
            events(&[
                (
                    r#"{"choices":[{"text":"Hi","index":0,"finish_reason":null}],"usage":{"prompt_tokens":50,"completion_tokens":1}}"#,
                    SoFar(52),
                ),
                (
                    r#"{"choices":[{"text":"!","index":0,"finish_reason":"length"}],"usage":{"prompt_tokens":50,"completion_tokens":9}}"#,
                    All(68),
                ),
            ]),
        ),
        (
            "openai",
            "responses",
            EVENTS,
            events(&[
                (r#"{"type":"response.created","response":{"model":"m","usage":null}}"#, Nothing),
                (r#"{"type":"response.output_text.delta","delta":"Hi"}"#, Nothing),
                (
                    r#"{"type":"response.completed","response":{"usage":{"input_tokens":50,"output_tokens":9}}}"#,
                    All(68),
                ),
            ]),
        ),
        (
            "anthropic",
            "messages",
            EVENTS,
            events(&[
                (start, SoFar(52)),
                (
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                    SoFar(52),
                ),
                (delta, SoFar(52)),
                (delta, SoFar(52)),
                (delta, SoFar(52)),
                (
                    r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":4}}"#,
                    SoFar(58),
                ),
                (
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#,
                    All(68),
                ),
                (r#"{"type":"message_stop"}"#, All(68)),
            ]),
        ),
        (
            "anthropic",
            "thoughts that are not shown",
            EVENTS,
            events(&[
                (start, SoFar(52)),
                (
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                    Nothing,
                ),
                (r#"{"type":"ping"}"#, Nothing),
                (
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#,
                    All(68),
                ),
            ]),
        ),
        (
            "openai",
            "OpenRouter",
            EVENTS,
            events(&[
                (r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#, Nothing),
                (r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#, Nothing),
                (
                    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":50,"completion_tokens":9,"total_tokens":59}}"#,
                    SoFar(68),
                ),
                ("[DONE]", All(68)),
            ]),
        ),
        (
            "anthropic",
            "messages that end in an error",
            EVENTS,
            events(&[
                (start, SoFar(52)),
                (delta, SoFar(52)),
                (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, SoFar(52)),
            ]),
        ),
        (
            "gemini",
            "events",
            EVENTS,
            events(&[
                (
                    r#"{"candidates":[{"content":{"parts":[{"text":"H"}]}}],"usageMetadata":{"promptTokenCount":50}}"#,
                    SoFar(50),
                ),
                (
                    r#"{"candidates":[{"content":{"parts":[{"text":"i"}]}}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":3}}"#,
                    SoFar(56),
                ),
                (
                    r#"{"candidates":[{"content":{"parts":[{"text":"!"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":9}}"#,
                    All(68),
                ),
            ]),
        ),
        (
            "gemini",
            "a prompt that is blocked",
            EVENTS,
            events(&[(
                r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":50}}"#,
                All(50),
            )]),
        ),
        (
            "gemini",
            "an array",
            JSON,
            plain(&[
                (
                    r#"[{"candidates":[{"content":{"parts":[{"text":"H"}]}}],"usageMetadata":{"promptTokenCount":50}}"#,
                    SoFar(50),
                ),
                (
                    r#",{"candidates":[{"content":{"parts":[{"text":"i"}]}}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":3}}"#,
                    SoFar(56),
                ),
                (r#",{"candidates":[{"content":{"parts":[{"text":"!"}]},"finishReason":"STOP"}]"#, SoFar(56)),
                (r#","usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":9}}"#, All(68)),
                ("]", All(68)),
            ]),
        ),
        (
            "ollama",
            "lines",
            LINES,
            plain(&[
                ("{\"message\":{\"content\":\"Hi\"},\"done\":false}\n", Nothing),
                (
                    "{\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":50,\"eval_count\":9}\n",
                    All(68),
                ),
            ]),
        ),
    ];
    let bedrock = CONVERSE.iter().map(|(name, payload)| {
        let text = frames::event(name, payload.as_bytes());
        (text, if *name == "metadata" { All(30 + 4 + 6 + 12) } else { Nothing })
    });
    let streams = streams.into_iter().map(|(provider, name, kind, events)| {
        let events = events.into_iter().map(|(text, says)| (text.into_bytes(), says)).collect::<Vec<_>>();
        (provider, name, kind, events)
    });
    let streams: Vec<_> = streams.chain([("bedrock", "converse", FRAMES, bedrock.collect())]).collect();
    each(streams.iter().flat_map(|(provider, name, kind, events)| {
        let of =
            [*provider, "auto"].into_iter().flat_map(move |of| (0..=events.len()).map(move |cut| (of, cut)));
        of.flat_map(move |(of, cut)| {
            let body: Vec<u8> = events.iter().take(cut).flat_map(|(text, _)| text.clone()).collect();
            let says = events.iter().take(cut).next_back().map_or(Nothing, |(_, says)| *says);
            [5, 64, 100_000].map(|size| {
                let config = settled(r#"{"provider": "P", "weights": {"output": 2}}"#, of);
                let settle = &config.policies[0].settle;
                let found =
                    seen(&config, kind, None, body.chunks(size)).at_end(settle, RESERVED, Micros::ZERO);
                let wanted = match says {
                    Nothing => RESERVED,
                    SoFar(units) => (units + 2 * body.len() as u64).min(RESERVED),
                    All(units) => units,
                };
                (
                    format!("{name} of {provider}, read as {of}, cut after {cut}, in parts of {size}"),
                    found.to_string(),
                    wanted.to_string(),
                )
            })
        })
    }));
}

/// A client could leave out `stream_options`, or leave before the last event, and pay the reservation for any output.
/// vLLM and SGLang state in each event the usage of its answer alone: a client that asks for several pays for one by none of these.
#[test]
fn usage_of_one_of_several_answers_is_not_that_of_all() {
    const FIRST: &str = r#"data: {"choices":[{"text":"Hi","index":1,"finish_reason":"length"}],"usage":{"prompt_tokens":50,"completion_tokens":9}}"#;
    const WHOLE: &str = r#"data: {"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":20}}"#;
    let config = policy(
        r#""cost": {"usage": {"max_output_tokens": 1000}}, "settle": [{"cost": {"usage": {"weights": {"output": 2}}}}]"#,
    );
    let settle = &config.policies[0].settle;
    let rows = [
        ("one", r#"{"max_tokens": 9}"#, FIRST, 68),
        ("one, by its number", r#"{"max_tokens": 9, "n": 1}"#, FIRST, 68),
        ("two", r#"{"max_tokens": 9, "n": 2}"#, FIRST, RESERVED),
        ("the best of two", r#"{"max_tokens": 9, "best_of": 2}"#, FIRST, RESERVED),
        ("two prompts", r#"{"max_tokens": 9, "prompt": ["a", "b"]}"#, FIRST, RESERVED),
        ("the second number of a prompt", r#"{"max_tokens": 9, "prompt": [1, 2]}"#, FIRST, RESERVED),
        ("two, and the usage of both", r#"{"max_tokens": 9, "n": 2}"#, WHOLE, 90),
    ];
    each(rows.iter().map(|(name, body, event, units)| {
        let check = check(&config, "POST /v1/completions", body);
        let mut settling = Settling::new(settle, Micros::ZERO, check.requested).answering(check.is_many);
        settling.headers(settle, &|name| match name {
            ":status" => Some(b"200".to_vec()),
            "content-type" => Some(EVENTS.into()),
            _ => None,
        });
        let text = format!("{event}\n\ndata: [DONE]\n\n");
        settling.body(text.len(), text.as_bytes());
        settling.whole();
        ((*name).to_owned(), settling.at_end(settle, RESERVED, Micros::ZERO).to_string(), units.to_string())
    }));
}

#[test]
fn a_stream_costs_at_least_a_token_for_each_event() {
    let openai = r#"data: {"choices":[{"delta":{"content":"data: a\n\ndata: b"}}]}"#;
    let anthropic =
        r#"data: {"type":"message_start","message":{"usage":{"input_tokens":50,"output_tokens":1}}}"#;
    let delta =
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}";
    let vllm = r#"data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":50,"completion_tokens":400}}"#;
    let events = |first: &str, each: &str, number: usize, end: &str| {
        [first, ": no data"]
            .into_iter()
            .chain([each].repeat(number))
            .fold(String::new(), |text, event| text + &event.replace('\n', end) + end + end)
    };
    // The form, the body, and the units: 2 for a token of output, 1 for one of input.
    let rows = [
        ("no usage", EVENTS, events(openai, openai, 999, "\n").into_bytes(), 2_000),
        ("CRLF", EVENTS, events(openai, openai, 999, "\r\n").into_bytes(), 2_000),
        ("CR", EVENTS, events(openai, openai, 999, "\r").into_bytes(), 2_000),
        (
            "a byte order mark",
            EVENTS,
            events(&format!("\u{feff}{openai}"), openai, 999, "\n").into_bytes(),
            2_000,
        ),
        ("few events", EVENTS, events(openai, openai, 9, "\n").into_bytes(), RESERVED),
        ("input, and no output yet", EVENTS, events(anthropic, delta, 999, "\n").into_bytes(), 2_050),
        ("output in the first event", EVENTS, events(vllm, openai, 999, "\n").into_bytes(), 850),
        ("lines", LINES, "{\"response\":\"x\"}\n\n".repeat(1_000).into_bytes(), 2_000),
        (
            "messages in base64",
            FRAMES,
            INVOKE
                .repeat(1_000)
                .iter()
                .flat_map(|(name, payload)| frames::event(name, payload.as_bytes()))
                .collect(),
            2_000,
        ),
        ("one document", JSON, openai[6..].repeat(1_000).into_bytes(), RESERVED),
    ];
    let config = settled(r#"{"provider": "P", "weights": {"output": 2}}"#, "auto");
    each(rows.iter().flat_map(|(name, kind, body, units)| {
        [1, 7, 64, 5_000, 1_000_000].map(|size| {
            let found = charged(&config, kind, None, body.chunks(size));
            (format!("{name}, in parts of {size}"), found.to_string(), units.to_string())
        })
    }));
}

/// One document. A client has received so much of it when it leaves.
#[test]
fn a_document_that_is_cut_off_has_not_said_all() {
    let whole = r#"{"usage": {"prompt_tokens": 50, "completion_tokens": 9}}"#;
    let config = settled(r#"{"provider": "P", "weights": {"output": 2}}"#, "openai");
    let settle = &config.policies[0].settle;
    let (used, input) = (68, 50);
    each((0..=whole.len()).map(|cut| {
        let found = seen(&config, JSON, None, [&whole.as_bytes()[..cut]].into_iter());
        let found = { found }.at_end(settle, RESERVED, Micros::ZERO);
        let said = whole.find(',').is_some_and(|end| cut > end);
        let wanted = match cut {
            _ if cut == whole.len() => used,
            _ if said => input + 2 * cut as u64,
            _ => RESERVED,
        };
        // The second number counts from its end on.
        let both = whole.rfind("9}").is_some_and(|at| cut > at + 1);
        let wanted = if both && cut < whole.len() { used + 2 * cut as u64 } else { wanted };
        (cut, found.to_string(), wanted.to_string())
    }));
}

#[test]
fn a_provider_does_not_read_what_another_says() {
    let body = br#"{"usageMetadata": {"promptTokenCount": 8}, "usage": {"inputTokens": 3}}"#;
    let rows =
        [("openai", RESERVED), ("anthropic", RESERVED), ("gemini", 8), ("bedrock", 3), ("ollama", RESERVED)];
    each(rows.map(|(provider, units)| {
        let found = charged(&settled(r#"{"provider": "P"}"#, provider), JSON, None, [&body[..]].into_iter());
        (provider, found.to_string(), units.to_string())
    }));
}

/// A configuration whose policy `p` reserves and settles by this table of prices.
fn priced(unknown: &str) -> Config {
    config(&format!(
        r#"{{"prices": {{"usd": {{"per": 1000, "on_unknown_model": "{unknown}", "models": [
            {{"model": ["gpt-5", "gpt-5-2*"], "input": 1250, "cached_input": 125, "output": 10000}},
            {{"model": ["gpt-5-mini*"], "input": 250, "output": 2000}},
            {{"model": ["claude*"], "input": 3000, "cached_input": 300, "cache_write": 3750, "output": 15000}},
            {{"model": ["gemini-2.5-flash", "amazon.nova-v1:0"], "input": "0.5", "output": 3}}]}}}},
          "policies": [{{"name": "p", "subject": [{{"literal": "s"}}],
            "limits": [{{"name": "l", "algorithm": "fixed_window", "limit": 1000, "window": "1m"}}],
            "cost": {{"usage": {{"prices": "usd", "bytes_per_token": 10, "output_tokens": 50, "max_output_tokens": 200}}}},
            "settle": [{{"cost": {{"usage": {{"prices": "usd"}}}}}}]}}]}}"#
    ))
}

fn check(config: &Config, line: &str, body: &str) -> Check {
    evaluate(config, &request(line).with_body(body)).unwrap().remove(0)
}

#[test]
fn prices_are_those_of_the_model_that_answers() {
    let of = |model: &str| {
        format!(
            r#"{{"model": "{model}", "usage": {{"prompt_tokens": 2000, "completion_tokens": 1000, "prompt_tokens_details": {{"cached_tokens": 1000}}}}}}"#
        )
    };
    let rows = [
        ("the model", "gpt-5", "", 1250 + 125 + 10_000),
        ("a dated name", "gpt-5-2025-08-07", "", 1250 + 125 + 10_000),
        ("the longest beginning", "gpt-5-mini-2025", "", 250 + 250 + 2_000),
        ("another name that begins so", "gpt-50", "", 3_000 + 300 + 15_000),
        ("unknown, though the request names one", "router/best", "gpt-5-mini", 3_000 + 300 + 15_000),
        ("no name, but the request names one", "", "gpt-5-mini", 250 + 250 + 2_000),
        ("known, whatever the request names", "gpt-5", "gpt-5-mini", 1250 + 125 + 10_000),
        ("unknown, and in the request too", "router/best", "other", 3_000 + 300 + 15_000),
    ];
    let config = priced("max");
    each(rows.map(|(name, model, requested, units)| {
        let check = check(&config, "POST /v1/chat/completions", &format!(r#"{{"model": "{requested}"}}"#));
        let found = charged(&config, JSON, check.requested, of(model).as_bytes().chunks(7));
        (name, found.to_string(), units.to_string())
    }));
    let without_name = r#"{"usage": {"inputTokens": 1000, "outputTokens": 1000}}"#;
    let check = check(&config, "POST /model/amazon.nova-v1:0/converse", "{}");
    let found = charged(&config, JSON, check.requested, without_name.as_bytes().chunks(9));
    assert_eq!(found, 4, "0.5 + 3, rounded up: Bedrock names the model in the path alone");
    let stream = frames::event("metadata", without_name.as_bytes());
    let check = self::check(&config, "POST /model/amazon.nova-v1:0/converse-stream", "{}");
    assert_eq!(charged(&config, FRAMES, check.requested, stream.chunks(9)), 4, "in a stream, too");
}

#[test]
fn a_request_reserves_what_it_may_use() {
    const CHAT: &str = "POST /v1/chat/completions";
    let pad = |body: &str| format!("{body:<100}");
    // The line, the body, and the units: 10 tokens of input for 100 bytes, and the output.
    #[rustfmt::skip]
    let rows: &[(&str, &str, &str, u64)] = &[
        ("states no maximum", CHAT, r#"{"model": "gpt-5"}"#, 13 + 500),
        ("states one", CHAT, r#"{"model": "gpt-5", "max_tokens": 20}"#, 13 + 200),
        ("by its newer name", CHAT, r#"{"model": "gpt-5", "max_completion_tokens": 20}"#, 13 + 200),
        ("in responses", "POST /v1/responses", r#"{"model": "gpt-5", "max_output_tokens": 20}"#, 13 + 200),
        ("twice: the larger", CHAT, r#"{"model": "gpt-5", "max_tokens": 20, "max_output_tokens": 30}"#, 13 + 300),
        ("three answers", CHAT, r#"{"model": "gpt-5", "max_tokens": 20, "n": 3}"#, 13 + 600),
        ("at most the largest", CHAT, r#"{"model": "gpt-5", "max_tokens": 2000}"#, 13 + 2_000),
        ("Ollama without an end", CHAT, r#"{"model": "gpt-5", "options": {"num_predict": -1}}"#, 13 + 2_000),
        ("what is no number", CHAT, r#"{"model": "gpt-5", "max_tokens": "20"}"#, 13 + 2_000),
        ("a cheap model", CHAT, r#"{"model": "gpt-5-mini", "max_tokens": 20}"#, 3 + 40),
        ("input may be written to a cache", CHAT, r#"{"model": "claude-x", "max_tokens": 20}"#, 38 + 300),
        ("an unknown model", CHAT, r#"{"model": "x", "max_tokens": 20}"#, 38 + 300),
        ("two models", CHAT, r#"{"model": "gpt-5-mini", "model": "gpt-5", "max_tokens": 20}"#, 38 + 300),
        ("Gemini", "POST /v1beta/models/gemini-2.5-flash:streamGenerateContent", r#"{"generationConfig": {"maxOutputTokens": 100, "candidateCount": 2}}"#, 1),
        ("Bedrock", "POST /model/amazon.nova-v1%3A0/converse", r#"{"inferenceConfig": {"maxTokens": 200}}"#, 1),
    ];
    let config = priced("max");
    each(rows.iter().map(|(name, line, body, units)| {
        // Both parts are rounded up together.
        let found = check(&config, line, &pad(body)).cost;
        (*name, (found + 1 >= *units && found <= *units).to_string(), String::from("true"))
    }));
    let unreadable = check(&config, CHAT, "no json");
    assert_eq!(unreadable.cost, 200_000 * 3_750 / 1_000 + 200 * 15_000 / 1_000);
}

/// The units that a request reserves by `usage` with these fields in `cost` and `settle`. Its input is one token, unless it is unreadable.
fn reserves(cost: &str, settle: &str, line: &str, body: &str) -> u64 {
    let config = policy(&format!(
        r#""subject": [{{"literal": "s"}}], "settle": [{{"cost": {{"usage": {{{settle}}}}}}}],
           "cost": {{"usage": {{"bytes_per_token": 1000, "output_tokens": 50, "max_output_tokens": 200{cost}}}}}"#
    ));
    check(&config, line, body).cost
}

#[test]
fn only_what_the_provider_obeys_lowers_a_reservation() {
    const CHAT: &str = "POST /v1/chat/completions";
    const ONE: &str = r#"{"max_tokens": 1}"#;
    const NEW: &str = r#"{"max_output_tokens": 1}"#;
    const OLLAMA: &str = r#"{"options": {"num_predict": 1}}"#;
    const GEMINI: &str = r#"{"generationConfig": {"maxOutputTokens": 1}}"#;
    const CONVERSE: &str = r#"{"inferenceConfig": {"maxTokens": 1}}"#;
    // The provider, the line, the body, and the tokens of output.
    let rows = [
        ("openai", CHAT, ONE, 1),
        ("openai", CHAT, r#"{"max_completion_tokens": 1}"#, 1),
        ("openai", CHAT, NEW, 50),
        ("openai", CHAT, r#"{"max_tokens": 9, "max_output_tokens": 1}"#, 9),
        ("openai", CHAT, OLLAMA, 50),
        ("openai", "POST /v1/completions", ONE, 1),
        ("openai", "POST /v1/responses", NEW, 1),
        ("openai", "POST /v1/responses", ONE, 50),
        ("openai", "POST /own", ONE, 50),
        ("openai", "POST /own", r#"{"max_tokens": 1, "max_output_tokens": 3}"#, 3),
        ("openai", "POST /v1/own/../chat/completions", ONE, 50),
        ("anthropic", "POST /v1/messages", ONE, 1),
        ("anthropic", "POST /own", ONE, 1),
        ("anthropic", "POST /v1/messages", NEW, 50),
        ("anthropic", "POST /v1/messages", r#"{"max_tokens": 1, "n": 5}"#, 1),
        ("gemini", "POST /v1beta/models/m:generateContent", GEMINI, 1),
        ("gemini", "POST /v1beta/models/m:streamGenerateContent?alt=sse", GEMINI, 1),
        ("gemini", "POST /v1beta/models/m:generateContent", ONE, 50),
        (
            "gemini",
            "POST /v1beta/models/m:generateContent",
            r#"{"generation_config": {"max_output_tokens": 9, "candidate_count": 2}}"#,
            18,
        ),
        (
            "gemini",
            "POST /v1beta/models/m:generateContent",
            r#"{"generationConfig": {"maxOutputTokens": 1}, "generation_config": {"max_output_tokens": 70}}"#,
            70,
        ),
        // Names of both kinds.
        (
            "gemini",
            "POST /v1beta/models/m:generateContent",
            r#"{"generation_config": {"maxOutputTokens": 70}}"#,
            200,
        ),
        (
            "gemini",
            "POST /v1beta/models/m:generateContent",
            r#"{"generationConfig": {"max_output_tokens": 70}}"#,
            200,
        ),
        (
            "gemini",
            "POST /v1beta/models/m:generateContent",
            r#"{"generationConfig": {"maxOutputTokens": 1, "candidate_count": 8}}"#,
            200,
        ),
        ("auto", "POST /v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict", ONE, 1),
        ("bedrock", "POST /model/m/converse", CONVERSE, 1),
        ("bedrock", "POST /model/m/converse", ONE, 50),
        ("bedrock", "POST /model/m/invoke", CONVERSE, 50),
        ("ollama", "POST /api/chat", OLLAMA, 1),
        ("ollama", "POST /api/chat", ONE, 50),
        ("ollama", "POST /api/chat", NEW, 50),
        ("auto", CHAT, ONE, 1),
        ("auto", CHAT, NEW, 50),
        ("auto", CHAT, r#"{"max_tokens": 1, "options": {"num_predict": 70}}"#, 70),
        ("auto", "POST /v1/messages", OLLAMA, 50),
        ("auto", "POST /api/generate", ONE, 50),
        ("auto", "POST /own", ONE, 50),
        ("auto", "POST /own", r#"{"max_tokens": 60}"#, 60),
        // Values that servers read in several ways.
        ("openai", CHAT, r#"{"max_tokens": null}"#, 50),
        ("openai", CHAT, r#"{"max_tokens": 0}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": -1}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 1.5}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 1e-9}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 1e300}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 1e1}"#, 10),
        ("openai", CHAT, r#"{"max_tokens": "1"}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": [1]}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": true}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 1, "max_tokens": 2}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 1, "max_t\u006fkens": 2}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 10, "n": 2}"#, 20),
        ("openai", "POST /v1/completions", r#"{"max_tokens": 10, "n": 2, "best_of": 5}"#, 50),
        ("openai", "POST /v1/completions", r#"{"max_tokens": 10, "prompt": "a"}"#, 10),
        ("openai", "POST /v1/completions", r#"{"max_tokens": 10, "prompt": ["a"]}"#, 10),
        ("openai", "POST /v1/completions", r#"{"max_tokens": 10, "prompt": ["a", "b"]}"#, 200),
        ("openai", "POST /v1/completions", r#"{"max_tokens": 10, "prompt": [[1], [2]]}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 10, "n": null}"#, 10),
        ("openai", CHAT, r#"{"max_tokens": 10, "n": 1.5}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 10, "n": "2"}"#, 200),
        ("openai", CHAT, r#"{"max_tokens": 10, "n": 1, "n": 3}"#, 200),
    ];
    each(rows.iter().flat_map(|(provider, line, body, output)| {
        let of = |name: &str| format!(r#""provider": "{name}""#);
        // Named by the cost, or by what the responses are read as.
        [("", of(provider)), (&*format!(", {}", of(provider)), of("auto"))].map(|(cost, settle)| {
            let found = reserves(cost, &settle, line, body);
            (format!("{provider}{cost}, {line}: {body}"), found.to_string(), (output + 1).to_string())
        })
    }));
    let cached = reserves(r#", "weights": {"cached_input": "9"}"#, "", CHAT, ONE);
    assert_eq!(cached, 9 + 1, "input from a cache may be the most expensive");
}

/// A body that is too large is not read, but its length is known.
#[test]
fn an_unreadable_body_reserves_input_by_its_length() {
    const CHAT: &str = "POST /v1/chat/completions";
    let body = format!(r#"{{"max_tokens": 1, "text": "{}"}}"#, "x".repeat(70_000));
    let rows = [
        ("too large", "\ncontent-length: 70030", 71),
        ("no length", "", 200_000),
        ("compressed", "\ncontent-length: 70030\ncontent-encoding: gzip", 200_000),
        ("two lengths", "\ncontent-length: 9, 70030", 200_000),
        ("no exchange of a request for a response", "\ncontent-length: 9\nupgrade: websocket", 200_000),
        ("larger than is reserved", "\ncontent-length: 999999999999", 200_000),
    ];
    each(rows.map(|(name, headers, input)| {
        let found = reserves("", "", &format!("{CHAT}{headers}"), &body);
        (name, found.to_string(), (input + 200).to_string())
    }));
}

/// Nothing is reserved for it, no model is needed, and a response that does not state its usage costs nothing.
#[test]
fn what_uses_no_tokens_costs_nothing() {
    let rows = [
        ("/v1/messages/count_tokens", true),
        ("/v1beta/models/x:countTokens", true),
        ("/model/x/count-tokens", true),
        ("/v1/projects/p/publishers/anthropic/models/count-tokens:rawPredict", true),
        ("/v1/projects/p/publishers/google/models/x:computeTokens", true),
        ("/v1/responses/input_tokens", true),
        ("/v1/moderations", true),
        ("/v1/responses/resp_1/cancel", true),
        ("/v1/moderations/", true),
        ("/v1/uploads", true),
        ("/v1/uploads/upload_1/parts", true),
        ("/v1/vector_stores", true),
        ("/openai/vector_stores/vs_1/files", true),
        ("/v1/containers/cntr_1/files", true),
        ("/v1/batches", false),
        ("/v1/messages/batches", false),
        ("/v1/fine_tuning/jobs", false),
        ("/v1/conversations", false),
        ("/v1beta/cachedContents", false),
        ("/v1/uploads/../chat/completions/", false),
        ("/v1/files", true),
        ("/v1/files/file-1/content?x", true),
        ("/upload/v1beta/files", true),
        ("/v1/files/../chat/completions", false),
        ("/v1/chat/completions", false),
        ("/v1/chat/completions?/count_tokens", false),
        ("/a%2f..%2fv1/moderations", false),
        ("/openai/deployments/files/chat/completions", false),
    ];
    let (denies, weighs) =
        (priced("deny"), policy(r#""subject": [{"literal": "s"}], "settle": [{"cost": {"usage": {}}}]"#));
    each(rows.map(|(path, free)| {
        let sample = request(&format!("POST {path}")).with_body(r#"{"model": "x"}"#);
        let requested = evaluate(&weighs, &sample).unwrap()[0].requested;
        let says = |body: &str| charged(&weighs, JSON, requested, [body.as_bytes()].into_iter());
        let found = (
            decided(&denies, &sample),
            says(r#"{"input_tokens": 9}"#),
            says(r#"{"usage": {"input_tokens": 9}}"#),
        );
        let wanted = if free { ("[0]", 0, 9) } else { (DENIED, RESERVED, 9) };
        (path, format!("{found:?}"), format!("{wanted:?}"))
    }));
}

const DENIED: &str = "deny unknown model";

/// The decision about a request without asking: the costs of its checks, or the reason for which it is denied.
fn decided(config: &Config, sample: &Sample) -> String {
    match evaluate(config, sample) {
        Ok(checks) => format!("{:?}", checks.iter().map(|check| check.cost).collect::<Vec<_>>()),
        Err(clear) => clear,
    }
}

/// If `on_unknown_model` is `deny`, a request is denied before the store is asked, unless it names a model of the table for certain.
#[test]
fn a_request_of_an_unknown_model_is_denied() {
    const CHAT: &str = "POST /v1/chat/completions";
    const NOVA: &str = "POST /model/amazon.nova-v1%3A0/converse";
    let large = format!(r#"{{"model": "gpt-5", "text": "{}"}}"#, "x".repeat(70_000));
    let rows: &[(&str, &str, Option<&str>, &str)] = &[
        ("in the body", CHAT, Some(r#"{"model": "gpt-5", "max_tokens": 20, "a": 1}"#), "[207]"),
        ("by its beginning", CHAT, Some(r#"{"model": "gpt-5-mini-2025", "max_tokens": 20}"#), "[42]"),
        ("not in the table", CHAT, Some(r#"{"model": "x"}"#), DENIED),
        ("a longer name", CHAT, Some(r#"{"model": "gpt-50"}"#), DENIED),
        ("another case", CHAT, Some(r#"{"model": "GPT-5"}"#), DENIED),
        ("an empty name", CHAT, Some(r#"{"model": ""}"#), DENIED),
        ("no name", CHAT, Some(r#"{"max_tokens": 20}"#), DENIED),
        ("null", CHAT, Some(r#"{"model": null}"#), DENIED),
        ("a number", CHAT, Some(r#"{"model": 5}"#), DENIED),
        ("two", CHAT, Some(r#"{"model": "gpt-5", "model": "gpt-5"}"#), DENIED),
        ("two, spelled otherwise", CHAT, Some(r#"{"model": "gpt-5", "mode\u006c": "x"}"#), DENIED),
        ("in an array", CHAT, Some(r#"[{"model": "gpt-5"}]"#), DENIED),
        ("no JSON", CHAT, Some("model=gpt-5"), DENIED),
        ("cut off", CHAT, Some(r#"{"model": "gpt-5""#), DENIED),
        ("too large", CHAT, Some(&large), DENIED),
        ("an empty body", CHAT, Some(""), DENIED),
        ("no body", "GET /v1/models", None, DENIED),
        ("in the path", NOVA, Some("{}"), "[1]"),
        ("in the path, and no JSON", NOVA, Some("?"), "[101]"),
        ("in the path, and another in the body", NOVA, Some(r#"{"model": "x"}"#), "[1]"),
        ("unknown in the path", "POST /model/x/converse", Some(r#"{"model": "gpt-5"}"#), DENIED),
        (
            "no model in Azure's path",
            "POST /models/chat/completions",
            Some(r#"{"model": "gpt-5", "max_tokens": 20}"#),
            "[205]",
        ),
        // LiteLLM takes the model of the query.
        ("another in the query", "POST /v1/chat/completions?model=x", Some(r#"{"model": "gpt-5"}"#), DENIED),
        ("unknown in Gemini's path", "POST /v1beta/models/x:generateContent", Some("{}"), DENIED),
        (
            "unknown in LiteLLM's path",
            "POST /engines/x/chat/completions",
            Some(r#"{"model": "gpt-5"}"#),
            DENIED,
        ),
        // The upstream may find a model in it.
        (
            "in a path that cannot be resolved",
            "POST /a%2f..%2fmodel/x",
            Some(r#"{"model": "gpt-5"}"#),
            DENIED,
        ),
    ];
    let config = priced("deny");
    each(rows.iter().map(|(name, line, body, wanted)| {
        let sample = body.map_or_else(|| request(line), |body| request(line).with_body(body));
        (*name, decided(&config, &sample), String::from(*wanted))
    }));
}

/// A denial for the model comes where the limits would come: after the lists and the subject, and only by a cost that the request may have.
#[test]
fn a_denial_for_the_model_is_one_of_the_policy() {
    const TABLE: &str = r#""prices": {"usd": {"on_unknown_model": "deny", "models": [{"model": ["known"], "input": 1, "output": 1}]}}"#;
    const USAGE: &str = r#"{"usage": {"prices": "usd"}}"#;
    const SUBJECT: &str = r#""subject": [{"header": {"name": "x-key"}, "on_missing": "skip"}]"#;
    let cost = format!(r#""cost": {USAGE}"#);
    let by_path = format!(r#""costs": [{{"when": {{"path": {{"prefix": "/v1"}}}}, "cost": {USAGE}}}]"#);
    let free = format!(
        r#""costs": [{{"when": {{"path": {{"prefix": "/v1"}}}}, "cost": {{"constant": 0}}}}], {cost}"#
    );
    let exempt = format!(r#""exempt": [{{"path": {{"prefix": "/v1"}}}}], {cost}"#);
    let listed = format!(r#""deny": [{{"path": {{"prefix": "/v1"}}}}], {cost}"#);
    let shadow = format!(r#""mode": "shadow", {cost}"#);
    let settled = format!(r#""settle": [{{"cost": {USAGE}}}]"#);
    let one_in_shadow = format!(r#""enforce_percent": 0, {cost}"#);
    let others = format!(r#""match": {{"path": {{"prefix": "/v2"}}}}, {cost}"#);
    let rows = [
        ("denied", &cost, "/v1", "a", DENIED),
        ("no subject, which is skipped", &cost, "/v1", "", "admit"),
        ("the cost of this path", &by_path, "/v1", "a", DENIED),
        ("another path has another cost", &by_path, "/v2", "a", "[1]"),
        ("a path that cannot be resolved may have this cost", &by_path, "/a%2f..%2fv1", "a", DENIED),
        ("this path costs nothing", &free, "/v1", "a", "[0]"),
        ("other paths do", &free, "/v2", "a", DENIED),
        ("exempt", &exempt, "/v1", "a", "admit"),
        ("not exempt", &exempt, "/v2", "a", DENIED),
        ("listed", &listed, "/v1", "a", "deny listed 0"),
        ("in shadow", &shadow, "/v1", "a", "admit"),
        ("a subject in shadow", &one_in_shadow, "/v1", "a", "admit"),
        ("only the response is priced", &settled, "/v1", "a", "[1]"),
        ("the policy does not apply", &others, "/v1", "a", "admit"),
    ];
    each(rows.map(|(name, fields, path, key, wanted)| {
        let config = config(&format!(
            r#"{{{TABLE}, "policies": [{{"name": "p", {SUBJECT}, {fields},
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}]}}]}}"#
        ));
        let key = if key.is_empty() { String::new() } else { format!("\nx-key: {key}") };
        let sample = request(&format!("POST {path}{key}")).with_body(r#"{"model": "x"}"#);
        (name, decided(&config, &sample), String::from(wanted))
    }));
}

/// A request whose path names an unknown model is denied by its headers; another one waits for its body.
#[test]
fn an_unknown_model_in_the_path_denies_before_the_body() {
    let config = priced("deny");
    let before_body = |line: &str| {
        let sample = request(line).header("content-length", "9");
        match config.evaluate_and_note(&sample, None, &mut Unasked::new()) {
            Evaluation::AwaitBody(_) => String::from("waits"),
            Evaluation::Deny(Some(0), Denial::UnknownModel(Mode::Enforce)) => String::from(DENIED),
            other => format!("{other:?}"),
        }
    };
    each([
        ("in the path", before_body("POST /model/x/converse"), String::from(DENIED)),
        ("known", before_body("POST /model/amazon.nova-v1%3A0/converse"), String::from("waits")),
        ("not in the path", before_body("POST /v1/chat/completions"), String::from("waits")),
    ]);
}

/// Clients may ask what is left, though the model of the request that they ask about is in a body that there is not.
#[test]
fn an_enquiry_is_not_denied_for_its_model() {
    let config = config(
        r#"{"quota": {}, "prices": {"usd": {"on_unknown_model": "deny", "models": [{"model": ["known"], "input": 1, "output": 2}]}},
          "policies": [{"name": "p", "subject": [{"literal": "s"}],
            "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}], "cost": {"usage": {"prices": "usd"}}}]}"#,
    );
    let sample = request("GET /.well-known/quota?path=/v1/chat/completions&method=POST");
    assert!(matches!(config.evaluate(&sample), Evaluation::QuotaRequest(checks) if checks.len() == 1));
}

/// Prices alone make no request wait for its body.
#[test]
fn only_a_reservation_by_usage_needs_the_body() {
    let waits = |fields: &str| policy(fields).request_body.wanted.is_some();
    assert!(!waits(r#""settle": [{"cost": {"usage": {}}}]"#));
    assert!(waits(r#""cost": {"usage": {}}"#));
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;

    use super::*;
    use crate::tried::tried;

    /// The usage of a model, in a form that no provider has.
    #[derive(Clone, Copy, Debug)]
    struct Used {
        /// Input from no cache.
        fresh: u64,
        cached: u64,
        written: u64,
        said: u64,
        thought: u64,
    }

    /// Weights in hundredths.
    type Hundredths = [u64; 5];

    impl Used {
        /// The units, by counting.
        fn units(self, [input, cached, written, output, reasoning]: Hundredths) -> u64 {
            let hundredths = self.fresh * input
                + self.cached * cached
                + self.written * written
                + self.said * output
                + self.thought * reasoning;
            hundredths.div_ceil(100)
        }
    }

    const FORMS: usize = 12;

    /// The response of a provider, in one of its forms: its content type and its text. `None` for a use that the provider cannot have.
    fn written(form: usize, used: Used, text: &str) -> (&'static str, String, Used) {
        let Used { fresh, cached, written, said, thought } = used;
        let (input, all, output) = (fresh + cached, fresh + cached + written, said + thought);
        let text = serde_json::to_string(text).unwrap();
        let no_writes = Used { written: 0, ..used };
        let no_thoughts = Used { thought: 0, ..used };
        let chat = format!(
            r#""usage":{{"prompt_tokens":{all},"completion_tokens":{output},"prompt_tokens_details":{{"cached_tokens":{cached},"cache_write_tokens":{written}}},"completion_tokens_details":{{"reasoning_tokens":{thought}}}}}"#
        );
        let responses = format!(
            r#""usage":{{"input_tokens":{input},"input_tokens_details":{{"cached_tokens":{cached}}},"output_tokens":{output},"output_tokens_details":{{"reasoning_tokens":{thought}}}}}"#
        );
        let gemini = |said: u64| {
            format!(
                r#""usageMetadata":{{"promptTokenCount":{input},"cachedContentTokenCount":{cached},"candidatesTokenCount":{said},"thoughtsTokenCount":{thought}}}"#
            )
        };
        match form {
            0 => (JSON, format!(r#"{{"choices":[{{"text":{text}}}],{chat}}}"#), used),
            1 => {
                let delta = format!("data: {{\"choices\":[{{\"delta\":{text}}}],\"usage\":null}}\n\n");
                (EVENTS, format!("{delta}{delta}data: {{\"choices\":[],{chat}}}\n\ndata: [DONE]\n\n"), used)
            }
            2 => {
                let events = format!(
                    "event: response.output_text.delta\ndata: {{\"delta\":{text}}}\n\nevent: response.completed\ndata: {{\"response\":{{\"output\":[{text}],{responses}}}}}\n\n"
                );
                (EVENTS, events, no_writes)
            }
            3 => (
                JSON,
                format!(
                    r#"{{"content":[{text}],"usage":{{"input_tokens":{fresh},"cache_creation_input_tokens":{written},"cache_read_input_tokens":{cached},"output_tokens":{said}}}}}"#
                ),
                no_thoughts,
            ),
            4 => {
                let start = format!(
                    r#"{{"message":{{"usage":{{"input_tokens":{fresh},"cache_creation_input_tokens":{written},"cache_read_input_tokens":{cached},"output_tokens":{}}}}}}}"#,
                    said.min(1)
                );
                let events = format!(
                    "event: message_start\r\ndata: {start}\r\n\r\nevent: content_block_delta\r\ndata: {{\"delta\":{text}}}\r\n\r\nevent: message_delta\r\ndata: {{\"usage\":{{\"output_tokens\":{}}}}}\r\n\r\nevent: message_delta\r\ndata: {{\"usage\":{{\"output_tokens\":{said}}}}}\r\n\r\n",
                    said / 2
                );
                (EVENTS, events, no_thoughts)
            }
            5 => {
                let first = gemini(0);
                let last = gemini(said);
                (EVENTS, format!("data: {{\"t\":{text},{first}}}\n\ndata: {{{last}}}\n\n"), no_writes)
            }
            6 => (
                JSON,
                format!("[{{\"t\":{text},{}}},\r\n{{{}}}\n]", gemini(said / 3), gemini(said)),
                no_writes,
            ),
            7 => (
                JSON,
                format!(
                    r#"{{"output":{text},"usage":{{"inputTokens":{fresh},"outputTokens":{said},"cacheReadInputTokens":{cached},"cacheWriteInputTokens":{written}}}}}"#
                ),
                no_thoughts,
            ),
            // xAI.
            8 => (
                JSON,
                format!(
                    r#"{{"choices":[{{"text":{text}}}],"usage":{{"prompt_tokens":{input},"completion_tokens":{said},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{cached}}},"completion_tokens_details":{{"reasoning_tokens":{thought}}}}}}}"#,
                    input + output
                ),
                no_writes,
            ),
            // LiteLLM, in front of Anthropic.
            9 => (
                JSON,
                format!(
                    r#"{{"choices":[{{"text":{text}}}],"usage":{{"prompt_tokens":{all},"completion_tokens":{said},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{cached}}},"cache_read_input_tokens":{cached},"cache_creation_input_tokens":{written}}}}}"#,
                    all + said
                ),
                no_thoughts,
            ),
            // Anthropic, in steps.
            10 => {
                let step = |of: Used| {
                    format!(
                        r#"{{"input_tokens":{},"cache_read_input_tokens":{},"cache_creation_input_tokens":{},"output_tokens":{}}}"#,
                        of.fresh, of.cached, of.written, of.said
                    )
                };
                let half = |number: u64| number / 2;
                let first = Used {
                    fresh: half(fresh),
                    cached: half(cached),
                    written: half(written),
                    said: half(said),
                    thought,
                };
                let last = Used {
                    fresh: fresh - first.fresh,
                    cached: cached - first.cached,
                    written: written - first.written,
                    said: said - first.said,
                    thought,
                };
                let (first, last) = (step(first), step(last));
                let all = last.replace('}', &format!(r#","iterations":[{first},{last}]}}"#));
                (JSON, format!(r#"{{"content":[{text}],"usage":{all}}}"#), no_thoughts)
            }
            _ => (
                LINES,
                format!(
                    "{{\"message\":{text},\"done\":false}}\n{{\"done\":true,\"prompt_eval_count\":{fresh},\"eval_count\":{said}}}\n"
                ),
                Used { cached: 0, written: 0, thought: 0, ..used },
            ),
        }
    }

    const PROVIDERS: [&str; FORMS] = [
        "openai",
        "openai",
        "openai",
        "anthropic",
        "anthropic",
        "gemini",
        "gemini",
        "bedrock",
        "openai",
        "openai",
        "anthropic",
        "ollama",
    ];

    #[test]
    fn what_is_charged_is_what_was_used() {
        let tokens = || prop_oneof![Just(0_u64), 1..5_u64, 0..2_000_000_u64];
        let used = (tokens(), tokens(), tokens(), tokens(), tokens()).prop_map(
            |(fresh, cached, written, said, thought)| Used { fresh, cached, written, said, thought },
        );
        let weight = || prop_oneof![Just(100_u64), 0..1_000_u64];
        let text = prop_oneof![
            Just(String::new()),
            Just(
                "{\"usage\":{\"prompt_tokens\":9,\"output_tokens\":9}}\n\ndata: {\"eval_count\":7}\n\n"
                    .to_owned()
            ),
            ".{0,40}",
        ];
        let given = (
            0..FORMS,
            used,
            [weight(), weight(), weight(), weight(), weight()],
            text,
            1..200_usize,
            any::<bool>(),
        );
        proptest!(tried(2_000), |((form, used, weights, text, size, auto) in given)| {
            let (kind, body, used) = written(form, used, &text);
            let named = ["input", "cached_input", "cache_write", "output", "reasoning"];
            let each = named.iter().zip(weights).map(|(name, weight)| {
                format!(r#""{name}": "{}.{:02}""#, weight / 100, weight % 100)
            });
            let provider = if auto { "auto" } else { PROVIDERS[form] };
            let each = each.collect::<Vec<_>>().join(", ");
            let config = settled(&format!(r#"{{"provider": "P", "weights": {{{each}}}}}"#), provider);
            let found = charged(&config, kind, None, body.as_bytes().chunks(size));
            assert_eq!(found, used.units(weights), "{provider}, form {form}, {used:?}: {body}");
        });
    }
}
