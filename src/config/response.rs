// SPDX-License-Identifier: Apache-2.0
//! `response`: what clients see of decisions.

use std::rc::Rc;

use super::schema::{
    ADDED_HEADER, BODY, Count, Duration, Errors, Flag, HEADER_VALUE, Json, List, Nested, ORIGIN, Text, View,
    Word, Words, count, duration, flag, list, nested, object, text, word, words,
};
use crate::response::{Api, Body, Cors, Kind, Own, Settings, Style, Template, Upstream};
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
    body: Option<Text> = text(&BODY).optional("The body of a rejection, for formats `json`, `text` and `html`. See \
        [your own rejections](clients.md#your-own-rejections)."),
    bodies: List<Nested<BodyFields>> = list(&nested(&OTHER_BODY), 0, 4)
        .default("[]", "Further bodies: for requests whose `accept` prefers their format to the body above."),
    add_headers: List<Nested<AddedHeaderFields>> = list(&nested(&HEADER_ADDED), 0, 16).default("[]", "Further headers of a rejection."),
    cors: Option<Nested<CorsFields>> = nested(&CORS)
        .optional("Lets pages of other origins read a rejection. Without it, or Envoy's filter `cors` before weir, browsers hide status and `retry-after` \
            from them."),
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

object! {
    static OTHER_BODY: BodyFields = "other_body", "A body for requests that prefer its format.";
    format: Word<Kind> = word(&KIND).required("The format."),
    body: Text = text(&BODY).required("The body."),
}

static KIND: Words<Kind> = words! {
    "json" => Kind::Json, "`application/json`.";
    "text" => Kind::Text, "`text/plain`.";
    "html" => Kind::Html, "`text/html`.";
};

object! {
    static HEADER_ADDED: AddedHeaderFields = "added_header", "A header of a rejection. If a placeholder has no value, weir leaves the header out.";
    name: Text = text(&ADDED_HEADER).required("The name."),
    value: Text = text(&HEADER_VALUE).required("The value."),
}

object! {
    static CORS: CorsFields = "cors", "The origins whose pages may read a rejection.";
    origins: List<Text> = list(&text(&ORIGIN), 1, 64).required("The origins; `*` is every one."),
    credentials: Flag = flag().default("false", "Whether they may also if the request had cookies or other credentials."),
}

/// The format of a rejection's body.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Problem,
    Json,
    Text,
    Html,
    Empty,
}

static FORMAT: Words<Format> = words! {
    "problem" => Format::Problem, "`application/problem+json` (RFC 9457), type `quota-exceeded` with `violated-policies`; \
        for bans `abnormal-usage-detected`.";
    "json" => Format::Json, "`application/json`: `body`, or a small object.";
    "text" => Format::Text, "`text/plain`: `body`, or a sentence.";
    "html" => Format::Html, "`text/html`: `body`.";
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
    let style = view.get(&RESPONSE.style);
    let format = view.get(&RESPONSE.format).unwrap_or(Format::Problem);
    let kind = match format {
        Format::Json => Some(Kind::Json),
        Format::Text => Some(Kind::Text),
        Format::Html => Some(Kind::Html),
        Format::Problem | Format::Empty => None,
    };
    let path = || view.path_of(&RESPONSE.body);
    let body = view.get(&RESPONSE.body);
    let wrong = match (body, kind) {
        (Some(_), None) => Some(("a body", "none, because `format` is none of `json`, `text`, `html`")),
        (None, Some(Kind::Html)) => Some(("nothing", "a body, because `format` is `html`")),
        _ => None,
    };
    if let Some((found, allowed)) = wrong {
        errors.add(&path(), found, allowed);
    }
    let body = body.zip(kind).and_then(|(body, kind)| template(kind, body, &path, errors));
    let mut own = Own { body, ..Own::default() };
    if let Some(cors) = view.get(&RESPONSE.cors) {
        let credentials = cors.get(&CORS.credentials);
        let origins: Vec<_> = cors.get(&CORS.origins).iter().map(str::to_owned).collect();
        if credentials && origins.iter().any(|origin| origin == "*") {
            let allowed = "origins by their names, because browsers send no credentials to `*`";
            errors.add(&cors.path_of(&CORS.origins), "\"*\"", allowed);
        }
        own.cors = Some(Cors { origins, credentials });
    }
    for other in view.get(&RESPONSE.bodies).iter() {
        let path = || other.path_of(&OTHER_BODY.body);
        own.bodies.extend(template(
            other.get(&OTHER_BODY.format),
            other.get(&OTHER_BODY.body),
            &path,
            errors,
        ));
    }
    for header in view.get(&RESPONSE.add_headers).iter() {
        let value = Template::new(Kind::Header, header.get(&HEADER_ADDED.value));
        own.headers.extend(value.map(|value| (header.get(&HEADER_ADDED.name).to_owned(), value)));
    }
    let has_own =
        own.body.is_some() || own.cors.is_some() || !own.bodies.is_empty() || !own.headers.is_empty();
    Settings {
        status: view.get(&RESPONSE.status),
        deny_status: view.get(&RESPONSE.deny_status),
        ban_status: view.get(&RESPONSE.ban_status),
        body: match (style, format) {
            (Some(api), _) => Body::Api(api),
            (None, Format::Problem) => Body::Problem,
            (None, Format::Json) => Body::Json,
            (None, Format::Text) => Body::Text,
            (None, Format::Html | Format::Empty) => Body::Empty,
        },
        style: view.get(&RESPONSE.headers).unwrap_or(match style {
            Some(Api::OpenAi) => Style::OpenAi,
            Some(Api::Anthropic) => Style::Anthropic,
            Some(Api::Gemini) => Style::None,
            Some(Api::JsonRpc | Api::GraphQl) | None => Style::Draft11,
        }),
        upstream: view.get(&RESPONSE.upstream_headers),
        warns: view.get(&RESPONSE.warning_header),
        retry_jitter: view.get(&RESPONSE.retry_jitter),
        own: has_own.then(|| Rc::new(own)),
    }
}

/// A body. If it is JSON with an example of each placeholder, it is JSON with every value.
#[inline(never)]
fn template(kind: Kind, body: &str, path: &dyn Fn() -> String, errors: &mut Errors) -> Option<Template> {
    let template = Template::new(kind, body).ok()?;
    if kind == Kind::Json
        && let Err(wrong) = Json::parse(template.example().as_bytes())
    {
        errors.add(&path(), format_args!("no JSON ({wrong})"), "JSON, because `format` is `json`");
    }
    Some(template)
}
