// SPDX-License-Identifier: Apache-2.0
//! `weir explain FILE -- curl …`: the request that a command of curl sends.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};
use url::Url;

use super::{Failure, form};
use crate::sample::RequestFlags;

/// The arguments of curl. Flags that change nothing of the request are read and left out; others are errors.
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
    #[arg(short = 'F', long)]
    form: Vec<String>,
    #[arg(long)]
    form_string: Vec<String>,
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

/// Returns the flags of `weir` that say the same as these words. The first word is `curl`.
pub fn request(words: &[String]) -> Result<RequestFlags, Failure> {
    let wrong = |said: String| format!("after --: {said}");
    if words.first().map(String::as_str) != Some("curl") {
        return Err(wrong(String::from(
            "allowed is a command of curl: `-- curl -H 'x-key: a' http://host/path`",
        )));
    }
    let unread = |error: clap::Error| {
        let said = error.render().to_string();
        wrong(format!("curl: {}", said.lines().next().unwrap_or_default().trim_start_matches("error: ")))
    };
    let matches = Curl::command().try_get_matches_from(words).map_err(unread)?;
    let curl = Curl::from_arg_matches(&matches).map_err(unread)?;
    let address = curl.named.as_ref().or(curl.url.as_ref());
    let address = address.ok_or_else(|| wrong(String::from("curl: no URL")))?;
    // curl takes a URL without a scheme for one of HTTP.
    let whole = if address.contains("://") { address.clone() } else { format!("http://{address}") };
    let url = Url::parse(&whole).map_err(|said| wrong(format!("curl: {address:?}: {said}")))?;
    if let Some(next) = whole.chars().find(|next| next.is_ascii_control() || *next == ' ') {
        return Err(wrong(format!("curl: {address:?}: found {next:?}, which curl sends in no URL")));
    }
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));

    let mut headers = Headers::default();
    for line in &curl.header {
        if line.starts_with('@') {
            return Err(wrong(format!("curl: -H {line}: allowed is NAME: VALUE, no file")));
        }
        headers.written(line);
    }
    if let Some(cookie) = curl.cookie.as_ref().filter(|cookie| !cookie.is_empty() && !cookie.contains('=')) {
        return Err(wrong(format!("curl: -b {cookie}: allowed is NAME=VALUE, no file")));
    }
    let is_json = !curl.json.is_empty();
    let data = data(&curl, &matches)?;
    let form = form(&curl, &matches).transpose().map_err(|said| wrong(format!("curl: {said}")))?;
    if form.is_some() && (data.is_some() || curl.get || curl.head) {
        return Err(wrong(String::from("curl: -F is a request of its own: not beside data, -G or -I")));
    }
    headers.by_default("user-agent", curl.user_agent.as_deref().unwrap_or("curl"));
    headers.by_default("accept", if is_json { "application/json" } else { "*/*" });
    let in_url = format!("{}:{}", url.username(), url.password().unwrap_or_default());
    // curl asks for a password that is not there.
    let user =
        curl.user.as_ref().map(|user| if user.contains(':') { user.clone() } else { format!("{user}:") });
    if let Some(user) = user.or((in_url != ":").then_some(in_url)) {
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
    let (mut path, query) = target(&whole);
    let query = match (&data, curl.get) {
        (Some(data), true) => query.map_or_else(|| data.clone(), |query| format!("{query}&{data}")),
        _ => query.unwrap_or_default().to_owned(),
    };
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let kind = match (&form, is_json) {
        (Some(_), _) => format!("multipart/form-data; boundary={}", form::BOUNDARY),
        (None, true) => String::from("application/json"),
        (None, false) => String::from("application/x-www-form-urlencoded"),
    };
    let body = form.or(data.filter(|_| !curl.get));
    if let Some(body) = &body {
        headers.by_default("content-type", &kind);
        headers.by_default("content-length", &body.len().to_string());
    }
    let by_default = match (&body, curl.head) {
        (_, true) => "HEAD",
        (Some(_), false) => "POST",
        (None, false) => "GET",
    };
    let method = curl.request.unwrap_or_else(|| by_default.to_owned());
    let host = headers.host.unwrap_or(host);
    Ok(RequestFlags::of([method, path, host], url.scheme(), headers.lines, body))
}

/// The path and the query of a URL, as curl sends them: without `.` and `..`, but only where they are written so. (`Url` reads `%2e` and `\`,
/// too.)
fn target(whole: &str) -> (String, Option<&str>) {
    let (rest, _) = whole.split_once('#').unwrap_or((whole, ""));
    let (_, rest) = rest.split_once("://").unwrap_or(("", rest));
    let (_, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let mut segments = Vec::new();
    let mut all = path.split('/').skip(1).peekable();
    while let Some(segment) = all.next() {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
        if matches!(segment, "." | "..") && all.peek().is_none() {
            segments.push("");
        }
    }
    (format!("/{}", segments.join("/")), query)
}

/// The form of all `-F` and `--form-string`, in the order in which they are written.
fn form(curl: &Curl, matches: &ArgMatches) -> Option<Result<String, String>> {
    let placed = |name, values: &[String], is_read| {
        let places = matches.indices_of(name).into_iter().flatten();
        places.zip(values.to_vec()).map(move |(place, text)| (place, text, is_read)).collect::<Vec<_>>()
    };
    let mut parts = placed("form", &curl.form, true);
    parts.extend(placed("form_string", &curl.form_string, false));
    parts.sort_unstable();
    (!parts.is_empty()).then(|| form::body(parts.iter().map(|(_, text, is_read)| (text.as_str(), *is_read))))
}

/// The data of all flags, joined as curl joins them, in the order in which they are written.
fn data(curl: &Curl, matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let file =
        |name: &str| fs::read_to_string(name).map_err(|error| format!("after --: curl: {name}: {error}"));
    let mut parts = Vec::new();
    let Curl { data, data_raw, data_binary, json, .. } = curl;
    for (name, texts) in
        [("data", data), ("data_raw", data_raw), ("data_binary", data_binary), ("json", json)]
    {
        for (place, text) in matches.indices_of(name).into_iter().flatten().zip(texts) {
            let part = match (name, text.strip_prefix('@')) {
                ("data_raw", _) | (_, None) => text.clone(),
                ("data", Some(name)) => file(name)?.replace(['\r', '\n'], ""),
                (_, Some(name)) => file(name)?,
            };
            parts.push((place, part));
        }
    }
    parts.sort_unstable();
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    let between = if json.is_empty() { "&" } else { "" };
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
        let value = value.trim_matches([' ', '\t']);
        if name.trim().eq_ignore_ascii_case("host") {
            self.host = Some(value.to_owned());
        } else if !value.is_empty() || line.ends_with(';') {
            self.lines.push(format!("{}: {value}", name.trim()));
        }
    }

    fn by_default(&mut self, name: &str, value: &str) {
        if !self.known.iter().any(|known| known == name) {
            self.known.push(name.to_owned());
            // `-A ''` is no header.
            if value.is_empty() {
                return;
            }
            self.lines.push(format!("{name}: {value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::process::Command;

    use weir::request::Attributes;

    use super::*;

    const HEADERS: [&str; 8] = [
        "user-agent",
        "accept",
        "authorization",
        "cookie",
        "referer",
        "content-type",
        "content-length",
        "x-own",
    ];

    /// The request that the program curl sends with these words, its headers and its body, from a server in the place of `URL`.
    fn sent(words: &[&str]) -> (String, String) {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", server.local_addr().expect("an address"));
        let words = words.iter().map(|word| word.replace("URL", &address));
        let mut curl = Command::new("curl").arg("-s").args(words).spawn().expect("curl");
        server.set_nonblocking(true).expect("set");
        let mut client = loop {
            match server.accept() {
                Ok((client, _)) => break client,
                Err(_) => assert_eq!(curl.try_wait().expect("curl"), None, "curl sends nothing"),
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        client.set_nonblocking(false).expect("set");
        let (mut text, mut piece) = (String::new(), [0; 4_096]);
        let (head, body) = loop {
            let length = client.read(&mut piece).expect("bytes");
            text.push_str(std::str::from_utf8(&piece[..length]).expect("UTF-8"));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = header(head, "content-length").map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                break (head.to_owned(), body.to_owned());
            }
        };
        client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("sent");
        assert!(curl.wait().expect("it ends").success(), "{head}");
        (head, body)
    }

    fn header(head: &str, name: &str) -> Option<String> {
        head.lines().find_map(|line| {
            let (of, value) = line.split_once(": ")?;
            of.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    }

    #[test]
    fn a_request_is_what_curl_sends() {
        if Command::new("curl").arg("--version").output().is_err() {
            return println!("skipped: there is no curl");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (text, page) = (folder.path().join("a b.txt"), folder.path().join("page.html"));
        fs::write(&text, "one\ntwo;three\n").expect("a file");
        fs::write(&page, "<p>").expect("a file");
        let [text, page] = [&text, &page].map(|path| path.to_str().expect("UTF-8"));
        let files = |form: &str| form.replace("TEXT", text).replace("PAGE", page);
        for words in [
            &["URL/a?b=c"][..],
            &["URL/a/%2e%2e/b/./c/../d\\..?x='../y'#z"],
            &["URL/a/.."],
            &["-d", "a=1", "--data-raw", "a=2", "-d", "a=3", "-A", "", "-e", "", "URL?q"],
            &["-u", "ann:s", "-b", "a=b", "-e", "http://r/", "-H", "X-Own: 1", "-A", "probe", "URL"],
            &["-X", "PUT", "-d", "a=b", "--data-raw", "@c", "URL/p"],
            &["-d", "@TEXT", "--data-binary", "@TEXT", "URL"],
            &["-G", "-d", "q=a+b", "URL/p?x"],
            &["--json", "{}", "-H", "Content-Type: application/x", "URL"],
            &["-F", "a=b", "-F", "a b=\"c;d\" ;type=text/x;charset=utf-8", "URL"],
            &["-F", "quo\"te=x", "--form-string", "raw=@not;a=file", "-F", "last=1", "URL"],
            &[
                "-F",
                "f=@TEXT",
                "-F",
                "g=<TEXT",
                "-F",
                "h=@PAGE;filename=o\"n.e;type=a/b",
                "-F",
                "i=@PAGE",
                "URL",
            ],
            &["-F", "f=@\"TEXT\";filename=\"a;\\\"b\"", "URL"],
        ] {
            let words: Vec<String> = words.iter().map(|word| files(word)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (head, body) = sent(&words);
            let own = words.iter().map(|word| word.replace("URL", "http://127.0.0.1:1"));
            let own: Vec<_> = std::iter::once(String::from("curl")).chain(own).collect();
            let read = request(&own).and_then(|flags| flags.sample()).expect("a request");
            let value = |name: &str| {
                let value = Attributes::header(&read, name).ok().flatten()?;
                Some(String::from_utf8(value.into_owned()).expect("UTF-8"))
            };
            let line = format!("{} {} HTTP/1.1", value(":method").unwrap(), value(":path").unwrap());
            assert_eq!(head.lines().next(), Some(&*line), "{words:?}");

            // curl's own boundary, whose length depends on its version.
            let kind = header(&head, "content-type").unwrap_or_default();
            let theirs = kind.split_once("; boundary=").map_or("no boundary", |(_, boundary)| boundary);
            let body = body.replace(theirs, form::BOUNDARY);
            assert_eq!(
                read.body().map(|body| String::from_utf8_lossy(body).into_owned()).unwrap_or_default(),
                body,
                "{words:?}"
            );
            for name in HEADERS {
                let theirs = header(&head, name).map(|value| match name {
                    "user-agent" if value.starts_with("curl/") => String::from("curl"),
                    "content-length" => body.len().to_string(),
                    _ => value.replace(theirs, form::BOUNDARY),
                });
                assert_eq!(value(name), theirs, "{words:?}: {name}");
            }
        }
    }
}
