// SPDX-License-Identifier: Apache-2.0
//! Forms: what must hold for any input. Each form is a function for one room of weir that parses untrusted bytes, and panics if
//! its statement does not hold. Two callers run them: the cargo-fuzz targets beside this file search without end, and
//! `tests/fuzz_forms.rs` tries a million inputs in `make test`.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use weir::body::{self, Fields, Form as BodyForm, HtmlForm, Paths, Value};
use weir::bridge::{Bridge, HEAD, Output, replies};
use weir::config::{Config, Evaluation};
use weir::random::Random;
use weir::request::client_ip::{Network, Proxies, Trust, connection};
use weir::request::pairs::{self, LONGEST_PAIRS, MAX_PAIRS, Query, Semicolon};
use weir::request::path::{DecodedPath, Path, Split};
use weir::request::sample::Sample;
use weir::resp::{self, Scanner};

/// A form, and the name of its file of seeds and of its cargo-fuzz target.
pub type Form = (&'static str, fn(&[u8]));

/// All forms.
pub const FORMS: &[Form] = &[
    ("resp", resp),
    ("bridge", bridge),
    ("config", config),
    ("address", address),
    ("pairs", pairs),
    ("body", body),
    ("form", form),
];

/// RESP: where values end does not depend on how the stream is cut, and every value that the scanner finds complete can be
/// decoded.
///
/// The input is the stream, and a number that chooses the cuts.
pub fn resp(input: &[u8]) {
    let (mut dice, stream) = Dice::after(input);
    let mut whole = Vec::new();
    let mut at = 0;
    let malformed = loop {
        match resp::decode(&stream[at..]) {
            Ok(Some((_, length))) => {
                assert!(length > 0);
                at += length;
                whole.push(at);
            }
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    let (mut scanner, mut ends, mut read, mut lost) = (Scanner::new(), Vec::new(), 0, false);
    for piece in dice.cut(stream) {
        let mut rest = piece;
        while !lost && !rest.is_empty() {
            match scanner.scan(rest) {
                Ok(Some(length)) => {
                    read += length;
                    ends.push(read);
                    rest = &rest[length..];
                }
                Ok(None) => {
                    read += rest.len();
                    break;
                }
                Err(_) => lost = true,
            }
        }
    }
    assert_eq!((ends, lost), (whole, malformed));
}

/// The bridge: what it passes on does not depend on how its input is cut. Redis gets whole commands only, and the limiter gets as
/// many replies as it sent commands. After a close, nothing is passed on.
///
/// The input is credentials or nothing, then the bytes of the limiter and of Redis in turns, with a byte 0xFE between them, and a
/// number that chooses the cuts. Bytes of the limiter after a byte 0xFD get the head of a message. Otherwise hardly any mutation
/// would leave a whole message. Redis ends its connection together with bytes before a byte 0xFC.
pub fn bridge(input: &[u8]) {
    let (mut dice, said) = Dice::after(input);
    let mut said = said.split(|&byte| byte == 0xfe);
    let credentials = said.next().filter(|credentials| !credentials.is_empty());
    let turns: Vec<(Side, Vec<u8>)> = said
        .enumerate()
        .map(|(turn, said)| match said {
            [0xfd, body @ ..] if turn % 2 == 0 => (Side::Limiter, message(body)),
            _ if turn % 2 == 0 => (Side::Limiter, said.to_vec()),
            [bytes @ .., 0xfc] if !bytes.is_empty() => (Side::Redis { ends: true }, bytes.to_vec()),
            _ => (Side::Redis { ends: false }, said.to_vec()),
        })
        .collect();

    let mut whole = Wire::new(credentials);
    turns.iter().for_each(|(side, said)| whole.feed(*side, said));
    let mut pieces: Vec<(Side, &[u8])> = Vec::new();
    for (side, said) in &turns {
        // Only the last piece comes together with the end.
        let begun = if let Side::Redis { .. } = side { Side::Redis { ends: false } } else { *side };
        pieces.extend(dice.cut(said).map(|piece| (begun, piece)));
        if let Some(last) = pieces.last_mut().filter(|_| !said.is_empty()) {
            last.0 = *side;
        }
    }
    let mut cut = Wire::new(credentials);
    pieces.iter().for_each(|(side, piece)| cut.feed(*side, piece));
    assert_eq!(whole.end(), cut.end());

    // In any order, a reply may come before its command. The bridge must still keep its promises.
    let mut shuffled = pieces;
    for index in 1..shuffled.len() {
        shuffled.swap(index, dice.below(index + 1));
    }
    let mut wire = Wire::new(credentials);
    shuffled.iter().for_each(|(side, piece)| wire.feed(*side, piece));
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a length").to_be_bytes();
    [&[0], length.as_slice(), body].concat()
}

/// The number of whole RESP values in these bytes.
fn values(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let length = Scanner::new().scan(bytes).expect("RESP").expect("a whole value");
        bytes = &bytes[length..];
        count += 1;
    }
    count
}

/// The end of a bridge that sends bytes.
#[derive(Clone, Copy)]
enum Side {
    Limiter,
    Redis { ends: bool },
}

/// A bridge, and everything that its two ends have received.
#[derive(Default)]
struct Wire {
    bridge: Bridge,
    /// Redis has not received the `AUTH` yet.
    greets: bool,
    /// The number of replies in the next message to the limiter.
    due: usize,
    to_redis: Vec<u8>,
    to_limiter: Vec<u8>,
    closed: Option<&'static str>,
}

impl Wire {
    fn new(credentials: Option<&[u8]>) -> Self {
        let bridge = credentials.map_or(Bridge::new(), Bridge::authenticating);
        Self { bridge, greets: credentials.is_some(), ..Self::default() }
    }

    fn feed(&mut self, side: Side, bytes: &[u8]) {
        let output = match side {
            Side::Limiter => self.bridge.on_downstream(bytes),
            Side::Redis { ends } => self.bridge.on_upstream(bytes, ends),
        };
        match output {
            Output::Close(expected) => assert_eq!(*self.closed.get_or_insert(expected), expected),
            Output::Send(bytes) => {
                assert_eq!(self.closed, None, "it was closed");
                if bytes.is_empty() {
                } else if let Side::Redis { ends } = side {
                    assert_eq!(*bytes, *message(&bytes[HEAD..]));
                    let (replies, is_last) = replies(&bytes[HEAD..]);
                    assert_eq!((values(replies), is_last), (self.due, ends));
                    self.due = 0;
                    // Without the mark: the end of the connection may also come after the answer.
                    self.to_limiter.extend_from_slice(&message(replies));
                } else {
                    assert_eq!(self.due, 0, "one message at a time");
                    self.due = values(&bytes) - usize::from(self.greets);
                    self.greets = false;
                    self.to_redis.extend_from_slice(&bytes);
                }
            }
        }
    }

    /// Returns the bytes that both ends have received, and the reason for which the stream closed. A close may be reported only by the next
    /// call.
    fn end(&mut self) -> (&[u8], &[u8], Option<&str>) {
        self.feed(Side::Limiter, b"");
        (&self.to_redis, &self.to_limiter, self.closed)
    }
}

/// A configuration loads or is refused with reasons, and a configuration that loads can evaluate any request.
///
/// The input is the configuration, a path and a header, with NUL between them.
pub fn config(input: &[u8]) {
    let mut parts = input.splitn(3, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (text, path, header) = (part(), part(), part());
    match Config::parse(text) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(config) => {
            let request = Sample::default().path(path).header("x-forwarded-for", header).header("x", header);
            if let Evaluation::Check(checks) = config.evaluate(&request.from("192.0.2.1:1")) {
                assert!(checks.iter().all(|check| config.plan(check).is_some()));
            }
        }
    }
}

/// Addresses: the client's address is found from the right end of the chain. Entries that a client adds at the left end do not change it,
/// unless all entries to its right are trusted.
///
/// The input is a number of hops, and the chain.
pub fn address(input: &[u8]) {
    let Some((&hops, chain)) = input.split_first() else { return };
    let hops = usize::from(hops % 5);
    let trusted = ["10.0.0.0/8", "fd00::/8"].map(|network| Network::parse(network).expect("a network"));
    let last = chain.rsplit(|&byte| byte == b',').next().unwrap_or_default();
    let spoofed: IpAddr = Ipv4Addr::new(203, 0, 113, 9).into();
    let longer = [b"203.0.113.9, ", chain].concat();
    let peers = [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(192, 0, 2, 1).into()];
    // Envoy may append the address of the connection to the chain itself.
    for peer in peers.into_iter().chain(connection(last.trim_ascii())) {
        let entries: Vec<_> =
            chain.split(|&byte| byte == b',').map(|it| connection(it.trim_ascii())).collect();
        let told = &entries[..entries.len() - usize::from(entries.last() == Some(&Some(peer)))];
        for proxies in [Proxies::Hops(hops), Proxies::Networks(trusted.to_vec())] {
            let trusts = |address: &Option<IpAddr>| {
                address.is_some_and(|address| trusted.iter().any(|network| network.contains(address)))
            };
            let reached = match &proxies {
                Proxies::Hops(hops) => told.len() < *hops,
                Proxies::Networks(_) => trusts(&Some(peer)) && told.iter().all(trusts),
            };
            let trust = Trust::new("x-forwarded-for".into(), proxies);
            let client = trust.client(peer, chain);
            assert_eq!(client, client.to_canonical());
            assert!(client == peer || told.contains(&Some(client)), "{client} is not in the chain");
            let with_spoof = trust.client(peer, &longer);
            assert!(
                with_spoof == client
                    || reached && (with_spoof == spoofed || told.contains(&Some(with_spoof)))
            );
        }
    }
    let text = String::from_utf8_lossy(chain);
    if let Ok(network) | Err(Some(network)) = Network::parse(&text) {
        assert_eq!(Network::parse(&network.to_string()), Ok(network));
    }
}

/// Cookies, queries and paths: weir finds the pairs that a simple parser finds, up to a bound. To compare a value decodes it. One
/// more pair is one more value. To resolve a resolved path without a `%` changes nothing.
///
/// The input is a name, NUL, and the text.
pub fn pairs(input: &[u8]) {
    let mut parts = input.splitn(2, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (name, text) = (part(), part());

    let cookies = |text: &[u8]| {
        let pairs = pairs::cookies(text);
        let values = pairs::cookie(&pairs, text, name).ok()?;
        (!pairs.truncated()).then(|| values.iter().map(|it| it.value().into_owned()).collect::<Vec<_>>())
    };
    // No configuration names a cookie with white space around its name.
    if let Some(found) = cookies(text).filter(|_| name == name.trim_ascii()) {
        assert_eq!(
            found,
            plainly(
                text,
                b";,",
                |key| key.trim_ascii() == name,
                |value| {
                    let value = value.trim_ascii();
                    let value = value
                        .strip_prefix(b"\"")
                        .and_then(|it| it.strip_suffix(b"\""))
                        .unwrap_or_else(|| {
                            value.strip_suffix(b"==").or_else(|| value.strip_suffix(b"=")).unwrap_or(value)
                        });
                    // A `+` is no space here.
                    decoded(
                        &value
                            .iter()
                            .flat_map(|&byte| if byte == b'+' { b"%2B".to_vec() } else { vec![byte] })
                            .collect::<Vec<_>>(),
                    )
                }
            )
        );
        let one_more =
            !name.is_empty() && name == name.trim_ascii() && !name.iter().any(|byte| b";,=".contains(byte));
        if let Some(more) = cookies(&[text, b"; ", name, b"=one-more"].concat()).filter(|_| one_more) {
            assert_eq!(more, [found, vec![b"one-more".to_vec()]].concat());
        }
    }

    for (semicolon, ends) in [(Semicolon::Literal, &b"&"[..]), (Semicolon::Ambiguous, b"&;")] {
        let query = Query::new(text);
        let reading = query.readings(semicolon).last().expect("one at least");
        assert!(reading.count() <= MAX_PAIRS);
        if reading.truncated() {
            assert!(text.split(|byte| ends.contains(byte)).count() > MAX_PAIRS || text.len() > LONGEST_PAIRS);
            continue;
        }
        let plain = plainly(text, ends, |key| decoded(key) == name, decoded);
        let Ok(values) = pairs::parameters(reading, text, name) else { continue };
        assert_eq!(values.iter().map(|it| it.value().into_owned()).collect::<Vec<_>>(), plain);
        for (sent, value) in values.iter().zip(&plain) {
            for other in plain.iter().map(Vec::as_slice).chain([name, text]) {
                assert_eq!(sent.equals(other), value == other);
                assert_eq!(sent.begins_with(other), value.starts_with(other));
            }
        }
    }

    let split = Split::new(text);
    if let Some(path) = split.path {
        assert!(path.end <= split.query.start && split.query.end <= text.len() || split.query.is_empty());
        assert!(!text[path].iter().any(|byte| b"?#".contains(byte)));
    }

    let decoded = DecodedPath::new(text);
    let path = Path::new(text, decoded.as_ref());
    let resolved = path.resolved();
    assert_eq!(resolved.first(), Some(&b'/'));
    assert!(resolved.len() <= text.len() + 1);
    let segments = || resolved[1..].split(|&byte| byte == b'/');
    let last = segments().count() - 1;
    assert!(segments().enumerate().all(|(index, segment)| {
        let empty = segment.is_empty() && index < last;
        !(empty || segment == b"." || segment == b".." || segment.contains(&b';') || segment.contains(&b'\\'))
    }));
    if !resolved.contains(&b'%') {
        let again = DecodedPath::new(resolved);
        assert_eq!(Path::new(resolved, again.as_ref()).resolved(), resolved);
    }
}

/// Only documents of a stream with the last key of a path are read, if they are whole in a chunk. In chunks of one byte, all of them are,
/// with the same result.
fn skips_nothing_that_counts(form: BodyForm, stream: &[u8]) {
    let table = Rc::new(Paths::new(&["a", "a.b", "['a/b'][1]", "usage.n"]).expect("paths"));
    let mut skipping = body::Scanner::new(form, Rc::clone(&table));
    skipping.feed(stream);
    let mut reading = body::Scanner::new(form, Rc::clone(&table));
    stream.chunks(1).for_each(|byte| reading.feed(byte));
    assert_eq!(skipping.end(), reading.end());
    for path in 0..table.count() {
        assert_eq!(skipping.last(path), reading.last(path));
    }
}

/// Bodies: what is found does not depend on how the body is cut. A document is JSON exactly if serde_json takes it. If the only
/// value at a path is a string, a boolean or a whole number, serde_json finds it as well.
///
/// The input is the body, and a number that chooses the cuts.
pub fn body(input: &[u8]) {
    type Lookup = fn(&serde_json::Value) -> Option<&serde_json::Value>;
    let paths: [(&str, Lookup); 5] = [
        ("a", |it| it.get("a")),
        ("a.b", |it| it.get("a")?.get("b")),
        ("[0].a", |it| it.get(0)?.get("a")),
        ("['a.b'][1]", |it| it.get("a.b")?.get(1)),
        ("usage.n", |it| it.get("usage")?.get("n")),
    ];
    let texts = paths.map(|(path, _)| path);
    let table = Rc::new(Paths::new(&[&texts[..], &["[*].a", "a[*]", "b"]].concat()).expect("paths"));
    let (mut dice, stream) = Dice::after(input);
    for form in [BodyForm::Json, BodyForm::EventStream, BodyForm::JsonLines, BodyForm::Frames] {
        let mut whole = body::Scanner::new(form, Rc::clone(&table));
        whole.feed(stream);
        let end = whole.end();
        let mut cut = body::Scanner::new(form, Rc::clone(&table));
        dice.cut(stream).for_each(|piece| cut.feed(piece));
        assert_eq!(cut.end(), end);
        for path in 0..table.count() {
            assert_eq!(whole.last(path), cut.last(path));
        }
        if form != BodyForm::Json {
            skips_nothing_that_counts(form, stream);
            continue;
        }
        for path in 0..table.count() {
            assert_eq!(whole.only(path), cut.only(path));
        }
        match serde_json::from_slice::<serde_json::Value>(stream) {
            Ok(document) => {
                assert_eq!(end, Ok(()));
                for (path, (_, lookup)) in paths.iter().enumerate() {
                    let theirs = lookup(&document);
                    match whole.only(path) {
                        Err(body::Ambiguous) | Ok(Some(Value::TooLong)) => {}
                        Ok(None) => assert!(theirs.is_none_or(serde_json::Value::is_null)),
                        Ok(Some(Value::Nested)) => {
                            assert!(theirs.is_some_and(|it| it.is_array() || it.is_object()))
                        }
                        Ok(Some(Value::Text(text))) => {
                            assert_eq!(theirs.and_then(|it| it.as_str()), Some(text))
                        }
                        Ok(Some(Value::Bool(value))) => {
                            assert_eq!(theirs.and_then(|it| it.as_bool()), Some(value))
                        }
                        Ok(Some(Value::Number(number))) => {
                            let theirs = theirs.expect("a number");
                            assert!(theirs.is_number());
                            if let Some(theirs) = theirs.as_u64() {
                                let theirs = body::Millionths::new(theirs.saturating_mul(1_000_000));
                                assert_eq!(number.counted(), Some(theirs));
                            }
                        }
                    }
                }
            }
            Err(error) => {
                // serde_json has bounds of its own.
                let bounds = ["number out of range", "recursion limit exceeded"];
                let bounded = bounds.iter().any(|bound| error.to_string().starts_with(bound));
                assert!(bounded || end.is_err(), "{error}");
            }
        }
    }
}

/// HTML forms: what is read does not depend on how the form is cut. If a field of `multipart/form-data` has a value, or is not there, so it
/// is for a reader that splits the form at its boundary.
///
/// The input is the form, and a number that chooses the cuts.
pub fn form(input: &[u8]) {
    let (mut dice, stream) = Dice::after(input);
    for (content_type, boundary) in [
        ("application/x-www-form-urlencoded", None),
        ("multipart/form-data; boundary=x-y", Some("x-y")),
        ("multipart/form-data; boundary=\"--\"; charset=utf-8", Some("--")),
    ] {
        let form = HtmlForm::of(content_type.as_bytes(), b"").expect("a form");
        let names: Rc<[String]> = ["user", "a.b", "c[d]"].map(String::from).into();
        let mut whole = Fields::new(&form, Rc::clone(&names));
        whole.feed(stream);
        whole.end();
        let mut cut = Fields::new(&form, Rc::clone(&names));
        dice.cut(stream).for_each(|piece| cut.feed(piece));
        cut.end();
        assert_eq!(cut.is_unreadable(), whole.is_unreadable());
        if whole.is_unreadable() {
            continue;
        }
        for name in &*names {
            assert_eq!(cut.only(name), whole.only(name));
            if let (Some(boundary), Ok(value)) = (boundary, whole.only(name)) {
                assert_eq!(split_at(boundary, stream, name), value.as_slice());
            }
        }
    }
}

/// The values of a field in a form with parts: what stands between delimiters, after the first empty line.
fn split_at<'a>(boundary: &str, form: &'a [u8], name: &str) -> Vec<&'a str> {
    // A file may have any bytes.
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).unwrap_or_default();
    let find = |text: &[u8], word: &[u8]| text.windows(word.len()).position(|window| window == word);
    let delimiter = ["--", boundary].concat();
    let (mut values, mut rest) = (Vec::new(), form);
    while let Some(begin) = find(rest, delimiter.as_bytes()) {
        rest = &rest[begin + delimiter.len()..];
        let Some(part) = find(rest, delimiter.as_bytes()).map(|end| &rest[..end]) else { break };
        let Some(end) = find(part, b"\r\n\r\n") else { continue };
        let (head, body) = (text(&part[..end]), &part[end + 4..]);
        let names = [format!("name=\"{name}\""), format!("name={name}")];
        let is_name = |line: &str| line.split("; ").any(|it| names.iter().any(|name| name == it));
        if head.lines().any(is_name) && !head.contains("filename") {
            values.push(text(body.strip_suffix(b"\r\n").expect("a line's end")));
        }
    }
    values
}

/// The pairs that a simple parser finds: split at `ends`, then at the first `=`. Empty pairs are left out.
fn plainly(
    text: &[u8],
    ends: &[u8],
    named: impl Fn(&[u8]) -> bool,
    value: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let pairs = text.split(|byte| ends.contains(byte)).filter(|pair| !pair.is_empty());
    let halves = pairs.map(|pair| {
        let equals = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        (&pair[..equals], pair.get(equals + 1..).unwrap_or_default())
    });
    halves.filter(|(key, _)| named(key)).map(|(_, it)| value(it)).collect()
}

/// Percent-decoded once, with `+` for a space.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digits =
            text.get(at + 1..at + 3).filter(|it| byte == b'%' && it.iter().all(u8::is_ascii_hexdigit));
        if let Some(digits) = digits {
            let digits = std::str::from_utf8(digits).expect("ASCII");
            out.push(u8::from_str_radix(digits, 16).expect("digits"));
            at += 3;
        } else {
            out.push(if byte == b'+' { b' ' } else { byte });
            at += 1;
        }
    }
    out
}

/// Random numbers from a seed in the input.
pub struct Dice(Random);

impl Dice {
    /// Any seed is allowed.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// The last eight bytes are the seed. Returns the bytes before them, too. A mutation of those leaves the seed as it is.
    fn after(input: &[u8]) -> (Self, &[u8]) {
        match input.split_last_chunk() {
            Some((rest, seed)) => (Self::new(u64::from_le_bytes(*seed)), rest),
            None => (Self::new(0), input),
        }
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.draw() >> 33).unwrap_or(0) % bound
    }

    /// Cuts the stream into pieces of one or two bytes, or into pieces of any length.
    fn cut<'a>(&mut self, mut stream: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let longest = if self.below(2) == 0 { 2 } else { stream.len().max(1) };
        let mut pieces = Vec::new();
        while !stream.is_empty() {
            let length = (self.below(longest) + 1).min(stream.len());
            let (piece, rest) = stream.split_at(length);
            pieces.push(piece);
            stream = rest;
        }
        pieces.into_iter()
    }
}
