// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 for tests, both ends of it: a client that decides when a request begins and whether it ends, and the
//! message reader that the upstream shares. One request per connection, so that nothing is ever queued behind another.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// A request to send.
#[derive(Clone, Debug)]
pub struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self {
            head: format!("GET {path} HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\n").into(),
            body: Vec::new(),
        }
    }

    pub fn put(path: &str) -> Self {
        Self {
            head: format!(
                "PUT {path} HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ncontent-length: 0\r\n"
            )
            .into(),
            body: Vec::new(),
        }
    }

    pub fn post(path: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ncontent-length: {length}\r\n"
        );
        Self { head: head.into(), body: body.into() }
    }

    /// A POST that does not say how long its body is.
    pub fn chunked(path: &str, body: &[u8]) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
        );
        let chunk = format!("{:x}\r\n", body.len());
        Self { head: head.into(), body: [chunk.as_bytes(), body, b"\r\n0\r\n\r\n"].concat() }
    }

    /// To another host than `weir.test`.
    #[must_use]
    pub fn with_host(mut self, host: &str) -> Self {
        let head = String::from_utf8_lossy(&self.head);
        self.head = head.replacen("host: weir.test\r\n", &format!("host: {host}\r\n"), 1).into_bytes();
        self
    }

    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        self.header_bytes(name, value.as_bytes())
    }

    /// A header whose value need not be text.
    #[must_use]
    pub fn header_bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        self
    }

    /// The request as it is sent.
    pub fn into_bytes(self) -> Vec<u8> {
        [self.head.as_slice(), b"\r\n", &self.body].concat()
    }
}

/// A response, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.body).expect("a body of text")
    }
}

/// Sends a request and waits for its response.
///
/// # Errors
/// When the connection fails, or ends before the response does.
pub fn send(to: SocketAddr, request: &Request) -> io::Result<Response> {
    begin(to, request)?.finish()
}

/// Sends a request and leaves its response for later.
///
/// # Errors
/// When the connection fails.
pub fn begin(to: SocketAddr, request: &Request) -> io::Result<Exchange> {
    let mut exchange = connect(to)?;
    exchange.connection.write_all(&request.clone().into_bytes())?;
    Ok(exchange)
}

/// Sends all requests at once, each over a connection of its own. All but their last bytes are sent before: what comes
/// at once then depends neither on accepting connections nor on threads. The responses come in the order of `requests`.
///
/// # Errors
/// When any connection fails, or ends before its response does.
pub fn burst(to: SocketAddr, requests: impl IntoIterator<Item = Request>) -> io::Result<Vec<Response>> {
    burst_held(to, requests)?.into_iter().map(Exchange::finish).collect()
}

/// As [`burst`], but the responses are left for later.
///
/// # Errors
/// When any connection fails.
pub fn burst_held(to: SocketAddr, requests: impl IntoIterator<Item = Request>) -> io::Result<Vec<Exchange>> {
    let mut ready = Vec::new();
    for request in requests {
        let (mut exchange, bytes) = (connect(to)?, request.into_bytes());
        let (last, first) = bytes.split_last().expect("a request has bytes");
        exchange.connection.write_all(first)?;
        ready.push((exchange, *last));
    }
    ready
        .into_iter()
        .map(|(mut exchange, last)| exchange.connection.write_all(&[last]).map(|()| exchange))
        .collect()
}

fn connect(to: SocketAddr) -> io::Result<Exchange> {
    let connection = TcpStream::connect(to)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(Exchange { connection })
}

/// A request that was sent and whose response has not been read. If it is dropped, the client disconnects.
#[derive(Debug)]
pub struct Exchange {
    connection: TcpStream,
}

impl Exchange {
    /// Waits for the response.
    ///
    /// # Errors
    /// When the connection ends before the response does.
    pub fn finish(self) -> io::Result<Response> {
        response(&mut BufReader::new(self.connection))
    }

    /// Disconnects without waiting for the response.
    pub fn abort(self) {}
}

fn response(from: &mut impl BufRead) -> io::Result<Response> {
    let message = read(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = message.start.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| malformed(&message.start))?;
    Ok(Response { status, headers: message.headers, body: message.body })
}

/// A client that sends one request after the other on its connection.
#[derive(Debug)]
pub struct Kept(BufReader<TcpStream>);

impl Kept {
    /// # Errors
    /// When nothing listens there.
    pub fn open(to: SocketAddr) -> io::Result<Self> {
        let connection = TcpStream::connect(to)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(connection)))
    }

    /// Sends it and waits for the response.
    ///
    /// # Errors
    /// When the connection ends before the response does.
    pub fn send(&mut self, request: &Request) -> io::Result<Response> {
        let bytes =
            String::from_utf8_lossy(&request.clone().into_bytes()).replace("connection: close\r\n", "");
        self.0.get_mut().write_all(bytes.as_bytes())?;
        response(&mut self.0)
    }
}

/// A request or a response, as it was read.
#[derive(Clone, Debug)]
pub struct Message {
    /// The request line or the status line.
    pub start: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    pub trailers: Headers,
}

/// Header fields in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The value of the first field of this name, in any case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads one message with its whole body; `None` where the peer has closed the connection in place of another message.
///
/// # Errors
/// When the connection fails, ends inside the message, or says what is not HTTP/1.1.
pub fn read(from: &mut impl BufRead) -> io::Result<Option<Message>> {
    if has_ended(from)? {
        return Ok(None);
    }
    let (start, headers) = (line(from)?, fields(from)?);
    let (mut body, mut trailers) = (Vec::new(), Headers::default());
    if headers.get("transfer-encoding").is_some() {
        while let length @ 1.. = number(&line(from)?, 16)? {
            exactly(from, length, &mut body)?;
            line(from)?;
        }
        trailers = fields(from)?;
    } else if let Some(length) = headers.get("content-length") {
        exactly(from, number(length, 10)?, &mut body)?;
    } else if start.starts_with("HTTP/") {
        from.read_to_end(&mut body)?;
    }
    Ok(Some(Message { start, headers, body, trailers }))
}

/// True if the peer closes the connection instead of sending more; waits for either. When this process is stopped and goes on, Linux
/// interrupts a read that has a time limit: signal(7). Only `fill_buf` returns that as an error here; the other reads try again.
///
/// # Errors
/// If the connection fails.
pub fn has_ended(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            read => return read.map(<[u8]>::is_empty),
        }
    }
}

/// Header fields, or trailers, up to the empty line after them.
fn fields(from: &mut impl BufRead) -> io::Result<Headers> {
    let mut fields = Headers::default();
    loop {
        let field = line(from)?;
        if field.is_empty() {
            return Ok(fields);
        }
        let (name, value) = field.split_once(':').ok_or_else(|| malformed(&field))?;
        fields.0.push((name.into(), value.trim().into()));
    }
}

/// A line of a head. Header values need not be UTF-8; what is not is shown as U+FFFD.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(String::from_utf8_lossy(line).into_owned())
}

fn number(text: &str, radix: u32) -> io::Result<u64> {
    u64::from_str_radix(text, radix).map_err(|_| malformed(text))
}

fn exactly(from: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let read = from.take(length).read_to_end(body)?;
    if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP/1.1: {what:?}"))
}
