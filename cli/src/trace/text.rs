// SPDX-License-Identifier: Apache-2.0
//! Access logs in lines of text: of nginx, of Envoy and of Istio. A line is in a format if each of its fields is where the format
//! has it, and nothing else is there.

use super::{Entry, Reason, Said, When};
use crate::date;
use weir::request::sample::Sample;
use weir::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// `combined`, also Apache's.
    NginxCombined,
    /// The same, with `$request_time` at its end.
    NginxCombinedTimed,
    /// `main`: as `combined`, then `"$http_x_forwarded_for"`.
    NginxMain,
    /// The same, with `$request_time` at its end.
    NginxMainTimed,
    Envoy,
    /// Istio's default, as text.
    Istio,
}

impl Text {
    pub const fn name(self) -> &'static str {
        match self {
            Self::NginxCombined => "nginx combined",
            Self::NginxCombinedTimed => "nginx combined with $request_time",
            Self::NginxMain => "nginx main",
            Self::NginxMainTimed => "nginx main with $request_time",
            Self::Envoy => "Envoy's default",
            Self::Istio => "Istio's default",
        }
    }

    pub const fn is_coarse(self) -> bool {
        !matches!(self, Self::Envoy | Self::Istio)
    }
}

/// Reads a line, and says in which format it is; `None` if it is in none.
pub fn read(line: &[u8]) -> Option<(Text, Said)> {
    if line.starts_with(b"[") { envoy(line) } else { nginx(line) }
}

/// `client - user [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326 "referer" "agent" "forwarded for" 0.012`; the time is that
/// of the end.
fn nginx(line: &[u8]) -> Option<(Text, Said)> {
    let mut fields = Fields(line);
    let client = fields.until(b" - ")?;
    if client.is_empty() || client.contains(&b' ') {
        return None;
    }
    let _user = fields.until(b" [")?;
    let end = date::common_log(str::from_utf8(fields.until(b"] ")?).ok()?)?;
    let request = fields.escaped()?;
    let status = fields.next_word()?;
    let bytes = fields.next_word()?;
    if !is_status(status) || !(bytes == b"-" || is_number(bytes)) {
        return None;
    }
    let (referer, agent) = (fields.next_escaped()?, fields.next_escaped()?);
    let forwarded = if fields.0.starts_with(b" \"") { Some(fields.next_escaped()?) } else { None };
    let took = if fields.0.is_empty() { None } else { Some(seconds(fields.next_word()?)?) };
    if !fields.0.is_empty() {
        return None;
    }
    let format = match (&forwarded, took) {
        (None, None) => Text::NginxCombined,
        (None, Some(_)) => Text::NginxCombinedTimed,
        (Some(_), None) => Text::NginxMain,
        (Some(_), Some(_)) => Text::NginxMainTimed,
    };
    // The headers of a request that timed out did not come, even if its first line did.
    let request = if status == b"408" { Err(Reason::TimedOut) } else { request_line(&request) };
    let (request, has_host) = match request {
        Ok(request) => request,
        Err(reason) => return Some((format, Said::NoRequest(reason))),
    };
    let request = with(with(request, "referer", &referer), "user-agent", &agent);
    let request = with(request, "x-forwarded-for", forwarded.as_deref().unwrap_or(b"-"));
    let client = Some(client.to_vec());
    Some((format, Said::Request(Box::new(Entry { when: When::End(end), took, client, has_host, request }))))
}

/// `[2016-04-15T20:17:00.310Z] "POST /path HTTP/2" 204 - 154 0 226 100 "forwarded for" "agent" "id" "authority" "upstream"`. Istio
/// has two more fields after the flags and the reason of a transport failure, and at the end the cluster, three addresses, the
/// server name of TLS and the route. The time is that of the start. Envoy escapes no quotes, so a line with a quote in a field is
/// not readable.
fn envoy(line: &[u8]) -> Option<(Text, Said)> {
    let mut fields = Fields(line.strip_prefix(b"[")?);
    let start = date::rfc3339(str::from_utf8(fields.until(b"] ")?).ok()?)?;
    let request = fields.quoted()?;
    let (status, _flags) = (fields.next_word()?, fields.next_word()?);
    let mut received = fields.next_word()?;
    let is_istio = !is_number(received);
    if is_istio {
        let (_connection, _transport) = (fields.next_word()?, fields.next_quoted()?);
        received = fields.next_word()?;
    }
    let (sent, took, upstream) = (fields.next_word()?, fields.next_word()?, fields.next_word()?);
    let is_right = is_status(status) || status == b"0";
    if !is_right || !is_number(received) || !is_number(sent) || !(upstream == b"-" || is_number(upstream)) {
        return None;
    }
    let took = if took == b"-" { None } else { Some(Micros::from_millis(number(took)?)) };
    let forwarded = fields.next_quoted()?;
    let (agent, id) = (fields.next_quoted()?, fields.next_quoted()?);
    let (authority, _upstream) = (fields.next_quoted()?, fields.next_quoted()?);
    let (mut client, mut server, mut route) = (None, &b"-"[..], &b"-"[..]);
    if is_istio {
        let (_cluster, _local, _downstream) = (fields.next_word()?, fields.next_word()?, fields.next_word()?);
        client = Some(fields.next_word()?.to_vec());
        (server, route) = (fields.next_word()?, fields.next_word()?);
    } else if forwarded != b"-" {
        // The last hop is the connection, where Envoy is an edge (`use_remote_address`).
        client = forwarded.rsplit(|byte| *byte == b',').next().map(|last| last.trim_ascii().to_vec());
    }
    if !fields.0.is_empty() {
        return None;
    }
    let format = if is_istio { Text::Istio } else { Text::Envoy };
    let (request, named) = match request_line(request) {
        Ok(request) => request,
        Err(Reason::NoRequestLine) if status == b"408" => {
            return Some((format, Said::NoRequest(Reason::TimedOut)));
        }
        Err(reason) => return Some((format, Said::NoRequest(reason))),
    };
    let request = with(with(request, "x-forwarded-for", forwarded), "user-agent", agent);
    let mut request = with(with(request, "x-request-id", id), ":authority", authority);
    for (path, value) in [(["connection", "requested_server_name"], server), (["xds", "route_name"], route)] {
        if value != b"-" {
            request = request.property(&path, value);
        }
    }
    let has_host = named || authority != b"-";
    Some((
        format,
        Said::Request(Box::new(Entry { when: When::Start(start), took, client, has_host, request })),
    ))
}

/// The request of `METHOD TARGET PROTOCOL`, and whether it names its host.
pub fn request_line(line: &[u8]) -> Result<(Sample, bool), Reason> {
    if line.starts_with(b"\x16\x03") {
        return Err(Reason::TlsHandshake);
    }
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let (method, target) = match words.as_slice() {
        [b"" | b"-"] | [b"-", b"-", _] => return Err(Reason::NoRequestLine),
        [method, target, protocol] if protocol.starts_with(b"HTTP/") => (*method, *target),
        _ => return Err(Reason::NotHttp),
    };
    request(method, target)
}

/// A request of this method and target, and whether it names its host.
pub fn request(method: &[u8], target: &[u8]) -> Result<(Sample, bool), Reason> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let method = str::from_utf8(method)
        .ok()
        .filter(|method| !method.is_empty() && method.bytes().all(|byte| is_token(&byte)));
    let method = method.filter(|method| *method != "PRI").ok_or(Reason::NotHttp)?;
    let sample = Sample::default().method(method);
    let absolute = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| target.strip_prefix(scheme));
    if let Some(rest) = absolute {
        let slash = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(slash).unwrap_or((rest, b"/"));
        let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
        return Ok((sample.header(":authority", host).path(path), true));
    }
    match target {
        [b'/', ..] | b"*" => Ok((sample.path(target), false)),
        _ if method == "CONNECT" => Ok((sample.header(":authority", target), true)),
        _ => Err(Reason::NotHttp),
    }
}

/// The request with one more header, unless the log says that it has none.
fn with(sample: Sample, name: &str, value: &[u8]) -> Sample {
    if value == b"-" { sample } else { sample.header(name, value) }
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn is_status(text: &[u8]) -> bool {
    text.len() == 3 && is_number(text)
}

fn number(text: &[u8]) -> Option<u64> {
    if is_number(text) { str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// `0.012`: seconds and three digits, as nginx writes `$request_time`.
fn seconds(text: &[u8]) -> Option<Micros> {
    let dot = text.len().checked_sub(4)?;
    let (seconds, rest) = text.split_at_checked(dot)?;
    Some(Micros::from_secs(number(seconds)?).plus(Micros::from_millis(number(rest.strip_prefix(b".")?)?)))
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the text before `mark`, and skips `mark`.
    fn until(&mut self, mark: &[u8]) -> Option<&'a [u8]> {
        let at = self.0.windows(mark.len()).position(|window| window == mark)?;
        let (before, rest) = self.0.split_at_checked(at)?;
        self.0 = rest.strip_prefix(mark)?;
        Some(before)
    }

    /// Returns the text after a space, up to the next one.
    fn next_word(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.strip_prefix(b" ")?;
        let length = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (!word.is_empty() && !word.contains(&b'"')).then_some(word)
    }

    /// `"text"` without escapes.
    fn quoted(&mut self) -> Option<&'a [u8]> {
        self.0 = self.0.strip_prefix(b"\"")?;
        self.until(b"\"")
    }

    fn next_quoted(&mut self) -> Option<&'a [u8]> {
        self.0 = self.0.strip_prefix(b" ")?;
        self.quoted()
    }

    /// `"text"` with the escapes of nginx (`\x22`) and Apache (`\"`).
    fn escaped(&mut self) -> Option<Vec<u8>> {
        let mut rest = self.0.strip_prefix(b"\"")?;
        let mut text = Vec::new();
        loop {
            let (first, after) = rest.split_first()?;
            rest = after;
            match (first, after) {
                (b'"', _) => break,
                (b'\\', [b'x', high, low, after @ ..]) => {
                    let hex = [*high, *low];
                    text.push(u8::from_str_radix(str::from_utf8(&hex).ok()?, 16).ok()?);
                    rest = after;
                }
                (b'\\', [escaped, after @ ..]) => {
                    text.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'v' => 11,
                        b'"' | b'\\' => *escaped,
                        _ => return None,
                    });
                    rest = after;
                }
                _ => text.push(*first),
            }
        }
        self.0 = rest;
        Some(text)
    }

    fn next_escaped(&mut self) -> Option<Vec<u8>> {
        self.0 = self.0.strip_prefix(b" ")?;
        self.escaped()
    }
}
