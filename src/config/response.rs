// SPDX-License-Identifier: Apache-2.0
//! `response`: what clients see of decisions.

use super::schema::{
    BODY, Count, Duration, Errors, Flag, Json, Text, View, Word, Words, count, duration, flag, object, text,
    word, words,
};
use crate::response::{Api, Body, Settings, Style, Upstream};
use crate::time::Micros;

object! {
    static RESPONSE: ResponseFields = "response", at_most_one(style, format), "What clients see of decisions.";
    status: Count<u16> = count(400, 599).default("429", "The status of a request over its limit."),
    deny_status: Count<u16> = count(400, 599)
        .default("403", "The status of a request on a deny list, one whose subject is missing or ambiguous, or whose model has no price (`on_unknown_model: deny`)."),
    ban_status: Count<u16> = count(400, 599).default("429", "The status of a request that a [ban](bans.md#bans) denies."),
    style: Option<Word<Api>> = word(&API)
        .optional("The API whose client libraries shall understand a rejection: in place of `format`, and of `headers` unless these are \
            written. See [responses for client libraries](language-models.md#responses-for-client-libraries)."),
    format: Option<Word<Format>> = word(&FORMAT).optional("The format of a rejection's body: by default `problem`."),
    body: Option<Text> = text(&BODY).optional("The body of a rejection, for formats `json` and `text`."),
    headers: Option<Word<Style>> = word(&STYLE)
        .optional("Which headers show clients their limits, on rejected and on admitted responses: by default those of the `style`, and \
            `draft_11` without one."),
    upstream_headers: Word<Upstream> = word(&UPSTREAM)
        .default("\"replace\"", "What happens to headers of the same names that the upstream sends."),
    warning_header: Flag = flag()
        .default("false", "Whether the header `X-RateLimit-Warning` tells clients which limits are as full as their `warn_at_percent`. See \
            [warnings](clients.md#warnings)."),
    retry_jitter: Duration = duration(Micros::ZERO, Micros::from_secs(3600))
        .default("\"0s\"", "weir adds a random time up to this to `Retry-After`, so that clients do not all come back at once."),
}

/// The format of a rejection's body.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Problem,
    Json,
    Text,
    Empty,
}

static FORMAT: Words<Format> = words! {
    "problem" => Format::Problem, "`application/problem+json` (RFC 9457), type `quota-exceeded` with `violated-policies`; \
        for bans `abnormal-usage-detected`.";
    "json" => Format::Json, "`application/json`: `body`, or a small object.";
    "text" => Format::Text, "`text/plain`: `body`, or a sentence.";
    "empty" => Format::Empty, "No body.";
};

static API: Words<Api> = words! {
    "openai" => Api::OpenAi, "OpenAI's, which many providers and gateways copy.";
    "anthropic" => Api::Anthropic, "Anthropic's.";
    "gemini" => Api::Gemini, "Gemini's and Google's other APIs, with `RetryInfo` and `QuotaFailure`; `headers` is `none`.";
    "json_rpc" => Api::JsonRpc, "JSON-RPC 2.0, and so MCP.";
    "graphql" => Api::GraphQl, "GraphQL over HTTP.";
};

static STYLE: Words<Style> = words! {
    "draft_11" => Style::Draft11, "`RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them.";
    "x_ratelimit" => Style::XRateLimit, "`X-RateLimit-Limit`, `-Remaining` and `-Reset` (the same seconds as `t`), of the limit \
        nearest its end.";
    "openai" => Style::OpenAi, "`X-RateLimit-Limit-Requests`, `-Remaining-Requests`, `-Reset-Requests`, and the same for `-Tokens`.";
    "anthropic" => Style::Anthropic, "`Anthropic-RateLimit-Requests-Limit`, `-Remaining`, `-Reset`, and the same for `-Tokens`.";
    "none" => Style::None, "None. `Retry-After` is sent all the same.";
};

static UPSTREAM: Words<Upstream> = words! {
    "replace" => Upstream::Replace, "weir replaces them with its own.";
    "keep" => Upstream::Keep, "They stay, and weir adds none of the same name.";
    "append" => Upstream::Append, "They stay, and weir adds its own after them.";
};

pub(super) fn read(view: &View<'_, ResponseFields>, errors: &mut Errors) -> Settings {
    let body = view.get(&RESPONSE.body);
    let path = || view.path_of(&RESPONSE.body);
    let style = view.get(&RESPONSE.style);
    let format = view.get(&RESPONSE.format).unwrap_or(Format::Problem);
    let body = match (format, body.map(str::to_owned)) {
        (Format::Json, body) => {
            if let Some(Err(wrong)) = body.as_ref().map(|body| Json::parse(body.as_bytes())) {
                errors.add(&path(), format_args!("no JSON ({wrong})"), "JSON, because `format` is `json`");
            }
            Body::Json(body)
        }
        (Format::Text, body) => Body::Text(body),
        (format, body) => {
            if body.is_some() {
                errors.add(&path(), "a body", "none, because `format` is neither `json` nor `text`");
            }
            match style {
                Some(api) => Body::Api(api),
                None if matches!(format, Format::Empty) => Body::Empty,
                None => Body::Problem,
            }
        }
    };
    Settings {
        status: view.get(&RESPONSE.status),
        deny_status: view.get(&RESPONSE.deny_status),
        ban_status: view.get(&RESPONSE.ban_status),
        body,
        style: view.get(&RESPONSE.headers).unwrap_or(match style {
            Some(Api::OpenAi) => Style::OpenAi,
            Some(Api::Anthropic) => Style::Anthropic,
            Some(Api::Gemini) => Style::None,
            Some(Api::JsonRpc | Api::GraphQl) | None => Style::Draft11,
        }),
        upstream: view.get(&RESPONSE.upstream_headers),
        warns: view.get(&RESPONSE.warning_header),
        retry_jitter: view.get(&RESPONSE.retry_jitter),
    }
}
