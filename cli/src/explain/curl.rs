// SPDX-License-Identifier: Apache-2.0
//! `weir explain FILE -- curl …`: the request that a command of curl sends.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use clap::Parser;
use url::Url;

use super::Failure;
use crate::sample::RequestFlags;

/// What curl is told. Flags that change nothing of the request are read and left out; others are errors.
#[derive(Parser)]
#[command(name = "curl", disable_help_flag = true, disable_version_flag = true)]
struct Curl {
    #[arg(short = 'X', long)]
    request: Option<String>,
    #[arg(short = 'H', long)]
    header: Vec<String>,
    #[arg(short, long, visible_alias = "data-ascii")]
    data: Vec<String>,
    #[arg(long)]
    data_raw: Vec<String>,
    #[arg(long)]
    data_binary: Vec<String>,
    #[arg(long)]
    json: Vec<String>,
    #[arg(short = 'G', long)]
    get: bool,
    #[arg(short = 'I', long)]
    head: bool,
    #[arg(short, long)]
    user: Option<String>,
    #[arg(short = 'b', long)]
    cookie: Option<String>,
    #[arg(short = 'A', long)]
    user_agent: Option<String>,
    #[arg(short = 'e', long)]
    referer: Option<String>,
    #[arg(long)]
    oauth2_bearer: Option<String>,
    #[arg(long = "url")]
    named: Option<String>,
    url: Option<String>,

    #[arg(short = 's', long)]
    silent: bool,
    #[arg(short = 'S', long)]
    show_error: bool,
    #[arg(short = 'i', long, visible_alias = "show-headers")]
    include: bool,
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    #[arg(short = 'k', long)]
    insecure: bool,
    #[arg(short = 'L', long)]
    location: bool,
    #[arg(short, long)]
    fail: bool,
    #[arg(short = 'N', long)]
    no_buffer: bool,
    #[arg(long)]
    compressed: bool,
    #[arg(long = "http1.1")]
    http1: bool,
    #[arg(long)]
    http2: bool,
    #[arg(short, long)]
    output: Option<String>,
    #[arg(short, long)]
    write_out: Option<String>,
    #[arg(short, long)]
    max_time: Option<String>,
    #[arg(long)]
    connect_timeout: Option<String>,
}

/// The flags of `weir` that say the same as these words, of which the first is `curl`.
pub fn request(words: &[String]) -> Result<RequestFlags, Failure> {
    let wrong = |said: String| format!("after --: {said}");
    if words.first().map(String::as_str) != Some("curl") {
        return Err(wrong(String::from(
            "allowed is a command of curl: `-- curl -H 'x-key: a' http://host/path`",
        )));
    }
    let curl = Curl::try_parse_from(words).map_err(|error| {
        let said = error.render().to_string();
        wrong(format!("curl: {}", said.lines().next().unwrap_or_default().trim_start_matches("error: ")))
    })?;
    let address = curl.named.as_ref().or(curl.url.as_ref());
    let address = address.ok_or_else(|| wrong(String::from("curl: no URL")))?;
    // curl takes a URL without a scheme for one of HTTP.
    let whole = if address.contains("://") { address.clone() } else { format!("http://{address}") };
    let url = Url::parse(&whole).map_err(|said| wrong(format!("curl: {address:?}: {said}")))?;
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));

    let mut headers = Headers::default();
    for line in &curl.header {
        headers.written(line);
    }
    let is_json = !curl.json.is_empty();
    let data = data(&curl)?;
    headers.by_default("user-agent", curl.user_agent.as_deref().unwrap_or("curl"));
    headers.by_default("accept", if is_json { "application/json" } else { "*/*" });
    let in_url = format!("{}:{}", url.username(), url.password().unwrap_or_default());
    if let Some(user) = curl.user.as_ref().or((in_url != ":").then_some(&in_url)) {
        headers.by_default("authorization", &format!("Basic {}", BASE64_STANDARD.encode(user)));
    }
    if let Some(token) = &curl.oauth2_bearer {
        headers.by_default("authorization", &format!("Bearer {token}"));
    }
    for (name, value) in [("cookie", &curl.cookie), ("referer", &curl.referer)] {
        if let Some(value) = value {
            headers.by_default(name, value);
        }
    }
    let mut path = url.path().to_owned();
    let query = match (&data, curl.get) {
        (Some(data), true) => url.query().map_or_else(|| data.clone(), |query| format!("{query}&{data}")),
        _ => url.query().unwrap_or_default().to_owned(),
    };
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let body = data.filter(|_| !curl.get);
    if let Some(body) = &body {
        let kind = if is_json { "application/json" } else { "application/x-www-form-urlencoded" };
        headers.by_default("content-type", kind);
        headers.by_default("content-length", &body.len().to_string());
    }
    let by_default = match (&body, curl.head) {
        (_, true) => "HEAD",
        (Some(_), false) => "POST",
        (None, false) => "GET",
    };
    let method = curl.request.unwrap_or_else(|| by_default.to_owned());
    Ok(RequestFlags::of([method, path, headers.host.unwrap_or(host)], headers.lines, body))
}

/// The data of all flags, joined as curl joins them.
fn data(curl: &Curl) -> Result<Option<String>, Failure> {
    let file =
        |name: &str| fs::read_to_string(name).map_err(|error| format!("after --: curl: {name}: {error}"));
    let mut parts = Vec::new();
    for text in &curl.data {
        parts.push(match text.strip_prefix('@') {
            Some(name) => file(name)?.replace(['\r', '\n'], ""),
            None => text.clone(),
        });
    }
    parts.extend(curl.data_raw.iter().cloned());
    for text in curl.data_binary.iter().chain(&curl.json) {
        parts.push(text.strip_prefix('@').map_or_else(|| Ok(text.clone()), file)?);
    }
    let between = if curl.json.is_empty() { "&" } else { "" };
    Ok((!parts.is_empty()).then(|| parts.join(between)))
}

#[derive(Default)]
struct Headers {
    lines: Vec<String>,
    /// Names of headers that curl does not add: those that are there, and those that are removed by `-H 'name:'`.
    known: Vec<String>,
    host: Option<String>,
}

impl Headers {
    fn written(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or_else(|| (line.trim_end_matches(';'), ""));
        self.known.push(name.trim().to_ascii_lowercase());
        let value = value.trim();
        if name.trim().eq_ignore_ascii_case("host") {
            self.host = Some(value.to_owned());
        } else if !value.is_empty() || line.ends_with(';') {
            self.lines.push(format!("{}: {value}", name.trim()));
        }
    }

    fn by_default(&mut self, name: &str, value: &str) {
        if !self.known.iter().any(|known| known == name) {
            self.known.push(name.to_owned());
            self.lines.push(format!("{name}: {value}"));
        }
    }
}
