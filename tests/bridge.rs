//! The bridge between a client's HTTP/1.1 and `redis_proxy`'s RESP, and that cutting either stream changes nothing.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing)]

use std::borrow::Cow;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::bridge::{Bridge, MAX_BODY, MAX_COMMANDS, MAX_HEAD, MAX_IN_FLIGHT, MAX_REPLIES, Onward};
use weir::resp::{self, Reply};

const QUIT: &[u8] = b"*1\r\n$4\r\nQUIT\r\n";

/// Both ends of one connection: what each of them has received so far.
#[derive(Default)]
struct Link {
    bridge: Bridge,
    redis: Vec<u8>,
    client: Vec<u8>,
    closed: bool,
}

impl Link {
    fn client_sends(&mut self, bytes: &[u8]) {
        match self.bridge.on_downstream(bytes) {
            Onward::Send(bytes) => self.redis.extend_from_slice(&bytes),
            Onward::Close => self.closed = true,
        }
    }

    fn redis_sends(&mut self, bytes: &[u8]) {
        match self.bridge.on_upstream(bytes) {
            Onward::Send(bytes) => self.client.extend_from_slice(&bytes),
            Onward::Close => self.closed = true,
        }
    }

    /// Whether the bridge has given the connection up, be it in silence.
    fn is_closed(&mut self) -> bool {
        self.redis_sends(b"");
        self.closed
    }
}

/// When `redis_proxy` replies, and in what pieces.
#[derive(Clone, Copy, Debug)]
enum Replies {
    AtOnce { pieces: usize },
    AtTheEnd { pieces: usize },
}

/// What the client got, and whether the connection is closed, after `chunks` met a `redis_proxy` that [`echo`]es.
fn converse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, replies: Replies) -> (String, bool) {
    let (mut link, mut seen) = (Link::default(), 0);
    let mut reply = |link: &mut Link, pieces: usize| {
        let answers = echo(link.redis.split_at(seen).1);
        seen = link.redis.len();
        answers.chunks(pieces).for_each(|piece| link.redis_sends(piece));
    };
    for chunk in chunks {
        link.client_sends(chunk);
        if let Replies::AtOnce { pieces } = replies {
            reply(&mut link, pieces);
        }
    }
    if let Replies::AtTheEnd { pieces } = replies {
        reply(&mut link, pieces);
    }
    let closed = link.is_closed();
    (String::from_utf8_lossy(&link.client).into_owned(), closed)
}

/// Replies to whole commands, and only to whole commands, each with something of its own.
fn echo(mut commands: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while !commands.is_empty() {
        let (command, length) =
            resp::decode(commands).expect("RESP").expect("only whole commands are passed on");
        commands = commands.split_at(length).1;
        match command {
            Reply::Array(Some(words)) if words == [Reply::Bulk(Some(b"QUIT"))] => {
                out.extend_from_slice(b"+OK\r\n")
            }
            Reply::Array(Some(words)) => match words.last() {
                Some(Reply::Bulk(Some(last))) => {
                    resp::array_header(&mut out, 2);
                    resp::bulk(&mut out, last);
                    out.extend_from_slice(b":-1\r\n");
                }
                _ => out.extend_from_slice(b"-invalid request\r\n"),
            },
            _ => out.extend_from_slice(b"-invalid request\r\n"),
        }
    }
    out
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    resp::array_header(&mut out, words.len());
    words.iter().for_each(|word| resp::bulk(&mut out, word.as_bytes()));
    out
}

/// A request as Envoy's client writes it, announcing `announced` commands.
fn post(announced: usize, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nhost: weir-bridge\r\nx-weir-commands: {announced}\r\ncontent-length: {}\r\n\
         x-envoy-internal: true\r\nx-forwarded-for: 127.0.0.1\r\nx-envoy-expected-rq-timeout-ms: 50\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A request of one command, which [`echo`] answers with `word`.
fn get(word: &str) -> Vec<u8> {
    post(1, &command(&["GET", word]))
}

fn ok(replies: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nx-weir-bridge: 1\r\ncontent-length: {}\r\n\r\n{replies}", replies.len())
}

fn echoed(word: &str) -> String {
    format!("*2\r\n${}\r\n{word}\r\n:-1\r\n", word.len())
}

fn failed(status: &str, expected: &str) -> String {
    let body = format!("weir bridge: expected {expected}\n");
    format!(
        "HTTP/1.1 {status}\r\nx-weir-bridge: 1\r\nconnection: close\r\ncontent-type: text/plain\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn refused(expected: &str) -> String {
    failed("400 Bad Request", expected)
}

/// Named conversations: all the client sends, and all it gets.
fn served() -> Vec<(&'static str, Vec<u8>, String)> {
    let exact = "a body of exactly x-weir-commands RESP commands";
    let (a, b) = (command(&["GET", "a"]), command(&["EVALSHA", "0123", "1", "{k}", "b"]));
    let awkward = command(&["SET", "POST / HTTP/1.1\r\n\r\n", "\r\n$-1\r\n*"]);
    let shouted =
        format!("POST /weir HTTP/1.1\r\nX-WEIR-COMMANDS:1\r\nContent-Length:  {}  \r\n\r\n", a.len());
    vec![
        ("one command", post(1, &a), ok(&echoed("a"))),
        ("several commands", post(3, &[&*a, &*b, &*a].concat()), {
            ok(&[echoed("a"), echoed("b"), echoed("a")].concat())
        }),
        ("bytes that look like framing", post(1, &awkward), ok(&echoed("\r\n$-1\r\n*"))),
        ("headers in any case, padded", [shouted.as_bytes(), &*a].concat(), ok(&echoed("a"))),
        ("one request after another", [get("a"), get("b"), get("c")].concat(), {
            [ok(&echoed("a")), ok(&echoed("b")), ok(&echoed("c"))].concat()
        }),
        ("a good request, then a bad one", [&*get("a"), b"GET / HTTP/1.1\r\n\r\n"].concat(), {
            [ok(&echoed("a")), refused("the method POST")].concat()
        }),
        (
            "nothing after a bad one",
            [b"GET / HTTP/1.1\r\n\r\n", &*get("a")].concat(),
            refused("the method POST"),
        ),
        ("a body with a command too few", post(3, &[&*a, &*b].concat()), refused(exact)),
        ("a body with a command too many", post(1, &[&*a, &*b].concat()), refused(exact)),
        ("a body that ends inside a command", post(2, &[&*a, b.split_at(9).0].concat()), refused(exact)),
        ("a body with more after its commands", post(1, &[&*a, b"\r\n"].concat()), refused(exact)),
        ("a body that is not RESP", post(1, b"{\"hello\": 1}"), refused(exact)),
        ("a body that stops being RESP", post(2, &[&*a, b"GET b\r\n"].concat()), refused(exact)),
        ("no body", post(1, b""), refused(exact)),
    ]
}

/// Named heads that are not ours, and what the refusal says was expected.
fn refused_heads() -> Vec<(&'static str, Vec<u8>, String)> {
    let post = |headers: &str| format!("POST / HTTP/1.1\r\n{headers}\r\n").into_bytes();
    let http = || "an HTTP/1.1 request".to_owned();
    let head = || format!("a head of at most {MAX_HEAD} bytes and 64 headers");
    let length = || format!("one content-length of at most {MAX_BODY}");
    let count = || format!("one x-weir-commands from 1 to {MAX_COMMANDS}");
    vec![
        ("not HTTP", b"\x16\x03\x01\x02\x00\x01".into(), http()),
        ("RESP", b"*1\r\n$4\r\nPING\r\n".into(), http()),
        ("HTTP/1.0", b"POST / HTTP/1.0\r\n\r\n".into(), http()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), http()),
        ("a space in a header name", post("x weir: 1\r\n"), http()),
        ("another method", b"PUT / HTTP/1.1\r\n\r\n".into(), "the method POST".into()),
        ("a head one byte too long", post(&format!("x: {}\r\n", "x".repeat(MAX_HEAD - 23))), head()),
        (
            "a head without end",
            [b"POST / HTTP/1.1\r\nx: ".as_slice(), &b"x".repeat(MAX_HEAD)].concat(),
            head(),
        ),
        ("too many headers", post(&"x: 1\r\n".repeat(65)), head()),
        ("no content-length", post("x-weir-commands: 1\r\n"), length()),
        ("an empty content-length", post("x-weir-commands: 1\r\ncontent-length:\r\n"), length()),
        (
            "two content-lengths",
            post("content-length: 5\r\ncontent-length: 5\r\nx-weir-commands: 1\r\n"),
            length(),
        ),
        ("a signed content-length", post("content-length: +5\r\n"), length()),
        ("a list of content-lengths", post("content-length: 5, 5\r\n"), length()),
        ("an absurd content-length", post("content-length: 99999999999999999999\r\n"), length()),
        ("a body too long", post(&format!("content-length: {}\r\n", MAX_BODY + 1)), length()),
        ("no count", post("content-length: 5\r\n"), count()),
        ("no commands", post("x-weir-commands: 0\r\n"), count()),
        ("too many commands", post(&format!("x-weir-commands: {}\r\n", MAX_COMMANDS + 1)), count()),
        ("a count that is not one", post("x-weir-commands: two\r\n"), count()),
        ("two counts", post("x-weir-commands: 1\r\nx-weir-commands: 1\r\n"), count()),
        ("a body in chunks", post("transfer-encoding: chunked\r\n"), {
            "a content-length in place of transfer-encoding".into()
        }),
        ("a client that waits for 100", post("expect: 100-continue\r\n"), "no expect header".into()),
    ]
}

#[test]
fn answers_with_the_replies_in_order_wherever_requests_and_replies_are_cut() {
    for (name, sent, expected) in served() {
        let closes = expected.contains("connection: close");
        for replies in [
            Replies::AtOnce { pieces: usize::MAX },
            Replies::AtOnce { pieces: 1 },
            Replies::AtTheEnd { pieces: usize::MAX },
            Replies::AtTheEnd { pieces: 3 },
        ] {
            for cut in 0..=sent.len() {
                let (got, closed) = converse([sent.split_at(cut).0, sent.split_at(cut).1], replies);
                assert_eq!(got, expected, "{name}, cut at {cut}, replies {replies:?}");
                assert_eq!(closed, closes, "{name}, cut at {cut}, replies {replies:?}: closed");
            }
            assert_eq!(converse(sent.chunks(1), replies), (expected.clone(), closes), "{name}, byte by byte");
        }
    }
}

#[test]
fn refuses_what_is_not_ours_and_says_what_was_expected() {
    for (name, sent, expected) in refused_heads() {
        let expected = refused(&expected);
        for pieces in [1, 2, 7, sent.len()] {
            let (got, closed) = converse(sent.chunks(pieces), Replies::AtOnce { pieces: usize::MAX });
            assert_eq!(got, expected, "{name}, in pieces of {pieces}");
            assert!(closed, "{name}, in pieces of {pieces}: closed");
        }
    }
}

#[test]
fn a_refusal_waits_for_the_replies_before_it() {
    let mut link = Link::default();
    link.client_sends(&get("a"));
    link.client_sends(b"GET / HTTP/1.1\r\n\r\n");
    assert!(link.redis.ends_with(QUIT));
    assert_eq!(link.client, b"");
    link.redis_sends(b":1\r\n");
    assert_eq!(link.client, ok(":1\r\n").as_bytes());
    link.redis_sends(b"+OK\r\n");
    assert_eq!(link.client, [ok(":1\r\n"), refused("the method POST")].concat().as_bytes());
    link.client_sends(b"GET / HTTP/1.1\r\n\r\n");
    assert!(link.closed);
}

#[test]
fn passes_commands_on_before_the_whole_body_is_there() {
    let (a, b) = (command(&["GET", "a"]), command(&["GET", "b"]));
    let sent = post(2, &[&*a, &*b].concat());
    let mut link = Link::default();
    link.client_sends(sent.split_at(sent.len() - 1).0);
    assert_eq!(link.redis, a, "the first command, and nothing of the second");
    link.redis_sends(b":1\r\n");
    assert_eq!(link.client, b"");
    link.client_sends(sent.split_at(sent.len() - 1).1);
    assert_eq!(link.redis, [a, b].concat());
    link.redis_sends(b":2\r\n");
    assert_eq!(link.client, ok(":1\r\n:2\r\n").as_bytes());
}

#[test]
fn a_request_in_one_piece_goes_on_uncopied() {
    let body = command(&["GET", "a"]).repeat(3);
    let (mut bridge, request) = (Bridge::new(), post(3, &body));
    let onward = bridge.on_downstream(&request);
    assert!(matches!(onward, Onward::Send(Cow::Borrowed(passed_on)) if passed_on == body), "{onward:?}");
}

#[test]
fn gives_up_on_replies_that_cannot_be_trusted() {
    let fault = || {
        failed("502 Bad Gateway", &format!("RESP replies of at most {MAX_REPLIES} bytes from redis_proxy"))
    };
    let half =
        [format!("${}\r\n", MAX_REPLIES / 2).as_bytes(), &b"x".repeat(MAX_REPLIES / 2), b"\r\n"].concat();
    let cases: [(&str, usize, Vec<u8>, String); 9] = [
        ("a reply that nobody asked for", 0, b"+OK\r\n".into(), String::new()),
        ("garbage that nobody asked for", 0, b"HTTP/1.1 400 Bad Request\r\n".into(), String::new()),
        ("one reply too many", 1, b":1\r\n:2\r\n".into(), ok(":1\r\n")),
        ("garbage after the last reply", 1, b":1\r\n?".into(), ok(":1\r\n")),
        ("replies that are not RESP", 1, b"HTTP/1.1 400 Bad Request\r\n".into(), fault()),
        ("garbage after the first reply", 2, b":1\r\n?".into(), fault()),
        ("a good answer, then garbage", 1 + 2, b":1\r\n:2\r\n:3\r\n?".into(), ok(":1\r\n:2\r\n:3\r\n")),
        ("one reply too long", 1, format!("${}\r\n", MAX_REPLIES + 1).into(), fault()),
        ("replies too long together", 2, half.repeat(2), fault()),
    ];
    for (name, commands, replies, expected) in cases {
        for pieces in [1, replies.len()] {
            let mut link = Link::default();
            if commands > 0 {
                link.client_sends(&post(commands, &command(&["GET", "a"]).repeat(commands)));
            }
            replies.chunks(pieces).for_each(|piece| link.redis_sends(piece));
            assert!(link.is_closed(), "{name}, in pieces of {pieces}");
            assert_eq!(String::from_utf8_lossy(&link.client), expected, "{name}, in pieces of {pieces}");
            let redis = link.redis.len();
            link.client_sends(&get("b"));
            assert_eq!(link.redis.len(), redis, "{name}, in pieces of {pieces}: nothing more is passed on");
        }
    }
}

#[test]
fn a_reply_to_a_command_that_is_not_there_yet_is_not_taken_for_its_own() {
    let (mut link, sent) = (Link::default(), get("a"));
    link.client_sends(sent.split_at(sent.len() - 1).0);
    link.redis_sends(b":1\r\n");
    assert!(link.closed);
    assert_eq!(link.client, b"");
}

#[test]
fn requests_at_their_bounds_pass() {
    let empty = command(&["ECHO", ""]);
    let bulk = "x".repeat(MAX_BODY - empty.len() - "4194268".len() + 1);
    let longest = command(&["ECHO", &bulk]);
    assert_eq!(longest.len(), MAX_BODY);
    let most = command(&["GET", "a"]).repeat(MAX_COMMANDS);
    let body = command(&["GET", "a"]);
    let head = format!("POST / HTTP/1.1\r\nx-weir-commands: 1\r\ncontent-length: {}\r\nx: ", body.len());
    let padding = "x".repeat(MAX_HEAD - head.len() - 4);
    let cases = [
        ("the longest body", post(1, &longest), ok(&echoed(&bulk))),
        ("the most commands", post(MAX_COMMANDS, &most), ok(&echoed("a").repeat(MAX_COMMANDS))),
        (
            "the longest head",
            [head.as_bytes(), padding.as_bytes(), b"\r\n\r\n", &body].concat(),
            ok(&echoed("a")),
        ),
    ];
    for (name, sent, expected) in cases {
        let (got, closed) = converse(sent.chunks(16 * 1024), Replies::AtOnce { pieces: 16 * 1024 });
        assert!(got == expected, "{name}: got {} bytes for {}", got.len(), expected.len());
        assert!(!closed, "{name}");
    }
}

#[test]
fn requests_in_flight_are_bounded() {
    let mut link = Link::default();
    (0..=MAX_IN_FLIGHT).for_each(|_| link.client_sends(&get("a")));
    let passed_on = command(&["GET", "a"]).repeat(MAX_IN_FLIGHT);
    assert_eq!(link.redis, [passed_on.as_slice(), QUIT].concat());
    link.redis_sends(&echo(&link.redis.clone()));
    let refusal = refused(&format!("at most {MAX_IN_FLIGHT} requests at a time"));
    assert_eq!(String::from_utf8_lossy(&link.client), ok(&echoed("a")).repeat(MAX_IN_FLIGHT) + &refusal);
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    /// What one client sends: mostly good requests, here and there a damaged or unrelated one.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let words = proptest::collection::vec("[a-z\r\n$*:]{0,9}", 1..4);
        let body = proptest::collection::vec(words, 1..5).prop_map(|commands| {
            let written: Vec<u8> = commands
                .iter()
                .flat_map(|words| command(&words.iter().map(String::as_str).collect::<Vec<_>>()))
                .collect();
            (commands.len(), written)
        });
        let request = prop_oneof![
            12 => body.clone().prop_map(|(count, body)| post(count, &body)),
            1 => (body.clone(), 1..6_usize).prop_map(|((_, body), announced)| post(announced, &body)),
            1 => (body, any::<prop::sample::Index>(), any::<u8>()).prop_map(|((count, body), at, byte)| {
                let mut request = post(count, &body);
                let at = at.index(request.len());
                request[at] = byte;
                request
            }),
            1 => proptest::collection::vec(any::<u8>(), 0..40),
        ];
        proptest::collection::vec(request, 1..5).prop_map(|requests| requests.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn any_cuts_of_any_stream_give_the_same_conversation(
            sent in stream(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
            pieces in 1..40_usize,
            at_once: bool,
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(sent.len() + 1)).collect();
            cuts.extend([0, sent.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &sent[pair[0]..pair[1]]);
            let replies = if at_once { Replies::AtOnce { pieces } } else { Replies::AtTheEnd { pieces } };
            prop_assert_eq!(
                converse(chunks, replies),
                converse([sent.as_slice()], Replies::AtOnce { pieces: usize::MAX })
            );
        }

        #[test]
        fn any_bytes_from_both_sides_leave_the_bridge_standing(
            events in proptest::collection::vec((any::<bool>(), stream()), 0..6)
        ) {
            let mut link = Link::default();
            for (from_client, bytes) in events {
                if from_client { link.client_sends(&bytes) } else { link.redis_sends(&bytes) }
                prop_assert!(link.redis.is_empty() || resp::decode(&link.redis).is_ok_and(|command| command.is_some()));
            }
        }
    }
}
