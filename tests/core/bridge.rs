// SPDX-License-Identifier: Apache-2.0
//! The bridge between the limiter's gRPC messages and Redis's RESP: what it makes of whole conversations, what closes a
//! stream and what was expected instead, that cutting either side's bytes anywhere changes nothing, and that memory is
//! bounded. In every conversation Redis gets whole commands only, the limiter gets whole messages of as many replies as
//! it sent commands, and a stream that is closed stays closed: see [`Link`].

use std::borrow::Cow;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::bridge::{self, Bridge, HEAD, MAX_BODY, MAX_COMMANDS, MAX_REPLIES, Output};
use weir::resp;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Limiter,
    Redis,
}

/// The bytes of one side, until the other sends any.
type Turn = (Side, Vec<u8>);
/// A piece of it.
type Said<'a> = (Side, &'a [u8]);

fn limiter(bytes: impl Into<Vec<u8>>) -> Turn {
    (Side::Limiter, bytes.into())
}

fn redis(bytes: impl Into<Vec<u8>>) -> Turn {
    (Side::Redis, bytes.into())
}

fn message(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = u32::try_from(body.len()).expect("a length").to_be_bytes();
    [&[0], length.as_slice(), body].concat()
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    resp::array_header(&mut out, words.len());
    words.iter().for_each(|word| resp::bulk(&mut out, word.as_bytes()));
    out
}

/// The number of RESP values in these bytes, which contain nothing else.
fn values(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let (_, length) = resp::decode(bytes).expect("RESP").expect("only whole values are passed on");
        bytes = &bytes[length..];
        count += 1;
    }
    count
}

/// Both ends of one stream: what each of them has received so far.
#[derive(Default)]
struct Link {
    bridge: Bridge,
    /// Replies that the next message to the limiter must hold.
    due: usize,
    greets: bool,
    redis: Vec<u8>,
    limiter: Vec<u8>,
    closed: Option<&'static str>,
}

impl Link {
    fn new(credentials: Option<&[u8]>) -> Self {
        let bridge = credentials.map_or(Bridge::new(), Bridge::authenticating);
        Self { bridge, greets: credentials.is_some(), ..Self::default() }
    }

    fn says(&mut self, side: Side, bytes: &[u8]) {
        let output = match side {
            Side::Limiter => self.bridge.on_downstream(bytes),
            Side::Redis => self.bridge.on_upstream(bytes, false),
        };
        match output {
            Output::Close(expected) => assert_eq!(*self.closed.get_or_insert(expected), expected),
            Output::Send(bytes) => {
                assert_eq!(self.closed, None, "it was closed");
                let bytes = bytes.into_owned();
                self.passes(side, &bytes);
            }
        }
    }

    fn passes(&mut self, side: Side, bytes: &[u8]) {
        match side {
            _ if bytes.is_empty() => {}
            Side::Limiter => {
                assert_eq!(self.due, 0, "a message before the last one is answered");
                self.due = values(bytes) - usize::from(self.greets);
                assert!((1..=MAX_COMMANDS).contains(&self.due));
                self.greets = false;
                self.redis.extend_from_slice(bytes);
            }
            Side::Redis => {
                let replies = &bytes[HEAD..];
                assert!(bytes == message(replies), "a head that is wrong");
                assert_eq!(values(replies), self.due, "replies to as many commands");
                self.due = 0;
                self.limiter.extend_from_slice(bytes);
            }
        }
    }

    /// The reason for which the stream is closed, if it is; the other end may not know yet. Nothing opens it again.
    fn closed(&mut self) -> Option<&'static str> {
        self.says(Side::Redis, b"");
        if self.closed.is_some() {
            let before = (self.redis.clone(), self.limiter.clone());
            self.says(Side::Redis, b":1\r\n");
            self.says(Side::Limiter, &message(command(&["PING"])));
            self.says(Side::Redis, b":1\r\n");
            assert_eq!((&self.redis, &self.limiter), (&before.0, &before.1));
        }
        self.closed
    }
}

/// The bytes that Redis got, those that the limiter got, and the reason for which the stream is closed, if it is.
type Outcome = (Vec<u8>, Vec<u8>, Option<String>);

fn outcome<'a>(credentials: Option<&[u8]>, pieces: impl IntoIterator<Item = Said<'a>>) -> Outcome {
    let mut link = Link::new(credentials);
    pieces.into_iter().for_each(|(side, piece)| link.says(side, piece));
    let closed = link.closed().map(Into::into);
    (link.redis, link.limiter, closed)
}

/// A named conversation, and what comes of it.
struct Talk {
    name: String,
    credentials: Option<&'static [u8]>,
    turns: Vec<Turn>,
    outcome: Outcome,
}

fn talk(
    name: &str,
    turns: impl Into<Vec<Turn>>,
    to_redis: impl Into<Vec<u8>>,
    to_limiter: impl Into<Vec<u8>>,
) -> Talk {
    let outcome = (to_redis.into(), to_limiter.into(), None);
    Talk { name: name.into(), credentials: None, turns: turns.into(), outcome }
}

impl Talk {
    fn closed(mut self, expected: impl Into<String>) -> Self {
        self.outcome.2 = Some(expected.into());
        self
    }

    fn authenticating(self, credentials: &'static str) -> Self {
        Self { credentials: Some(credentials.as_bytes()), ..self }
    }

    fn assert<'a>(&self, how: &str, pieces: impl IntoIterator<Item = Said<'a>>) {
        let (redis, limiter, closed) = outcome(self.credentials, pieces);
        let (to_redis, to_limiter, expected) = &self.outcome;
        let shown =
            |bytes: &[u8]| bytes.iter().take(1_000).copied().collect::<Vec<_>>().escape_ascii().to_string();
        let name = &self.name;
        assert!(redis == *to_redis, "{name}, {how}: Redis got {}", shown(&redis));
        assert!(limiter == *to_limiter, "{name}, {how}: the limiter got {}", shown(&limiter));
        assert_eq!(closed, *expected, "{name}, {how}: closed");
    }

    /// As it stands, and in pieces of this size.
    fn holds_in_pieces_of(&self, size: usize) {
        let pieces = self.turns.iter().flat_map(|(side, said)| said.chunks(size).map(|piece| (*side, piece)));
        self.assert(&format!("in pieces of {size}"), pieces);
    }

    /// Wherever one turn is cut in two, and every turn in pieces.
    fn holds(&self) {
        for cut_turn in 0..self.turns.len() {
            for cut in 0..=self.turns[cut_turn].1.len() {
                let pieces = self.turns.iter().enumerate().flat_map(|(index, (side, said))| {
                    let (first, second) = said.split_at(if index == cut_turn { cut } else { said.len() });
                    [(*side, first), (*side, second)]
                });
                self.assert(&format!("turn {cut_turn} cut at {cut}"), pieces);
            }
        }
        [1, 2, 7, usize::MAX].into_iter().for_each(|size| self.holds_in_pieces_of(size));
    }
}

const ONE: &str = "one message at a time";
const OWED: &str = "as many replies as commands";

fn a_message() -> String {
    format!("a gRPC message of 1 to {MAX_BODY} bytes: has the cluster its upstream_config?")
}

fn commands() -> String {
    format!("a message of 1 to {MAX_COMMANDS} RESP commands and nothing else")
}

fn replies() -> String {
    format!(
        "RESP replies from Redis of at most 64 items, of at most 4096 bytes each, and {MAX_REPLIES} bytes together"
    )
}

#[test]
fn answers_each_message_with_the_replies_to_it() {
    let (a, b) = (command(&["GET", "a"]), command(&["EVALSHA", "0123", "1", "{k}", "b"]));
    let awkward = command(&["SET", "\0\0\0\0\x05*1\r\n", "\r\n$-1\r\n*"]);
    let all = [&*a, &*b, &*a].concat();
    let every =
        "+OK\r\n-ERR no\r\n:-1\r\n$3\r\n\r\n*\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n:1\r\n$1\r\nx\r\n";
    #[rustfmt::skip]
    let talks = [
        talk("one command", [limiter(message(&a)), redis(":1\r\n")], &*a, message(":1\r\n")),
        talk("several commands", [limiter(message(&all)), redis(":1\r\n+OK\r\n$-1\r\n")], &*all, message(":1\r\n+OK\r\n$-1\r\n")),
        talk("every kind of reply", [limiter(message(a.repeat(9))), redis(every)], a.repeat(9), message(every)),
        talk("bytes that look like framing", [limiter(message(&awkward)), redis("$9\r\n\0\0\0\0\x04:1\r\n\r\n")], &*awkward,
         message("$9\r\n\0\0\0\0\x04:1\r\n\r\n")),
        talk("one message after another",
         [limiter(message(&a)), redis(":1\r\n"), limiter(message(&all)), redis("+2\r\n+3\r\n+4\r\n"), { limiter(message(&b)) }],
         [&*a, &*all, &*b].concat(),
         [message(":1\r\n"), message("+2\r\n+3\r\n+4\r\n")].concat()),
        talk("replies in turns of their own", [limiter(message(&all)), redis(":1\r\n:2"), redis("\r\n:3\r\n")], &*all, message(":1\r\n:2\r\n:3\r\n")),
        talk("a reply too few", [limiter(message(&all)), redis(":1\r\n:2\r\n")], &*all, ""),
        talk("a message that does not end", [limiter(&message(&a)[..20])], "", ""),
    ];
    talks.iter().for_each(Talk::holds);
}

#[test]
fn closes_the_stream_on_what_is_no_message_of_commands() {
    let (good, ping) = (command(&["GET", "a"]), "*1\r\n$4\r\nPING\r\n");
    let headed = |compressed: u8, length: usize| {
        [&[compressed], &u32::try_from(length).expect("a length").to_be_bytes()[..], ping.as_bytes()].concat()
    };
    let of = |body: &str| message(body);
    let cases: Vec<(&str, Vec<u8>, String)> = vec![
        ("HTTP/1.1", b"POST / HTTP/1.1\r\n\r\n".into(), a_message()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), a_message()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01".into(), a_message()),
        ("RESP without a head", ping.into(), a_message()),
        ("one byte of it", b"*".into(), a_message()),
        ("a compressed message", headed(1, ping.len()), a_message()),
        ("an unknown flag", headed(0x80, ping.len()), a_message()),
        ("an empty message", headed(0, 0), a_message()),
        ("a message one byte too long", headed(0, MAX_BODY + 1), a_message()),
        ("a message longer than memory", headed(0, 0xffff_ffff), a_message()),
        ("no RESP", of("{\"hello\": 1}"), commands()),
        ("a command, then no RESP", of(&format!("{ping}GET b\r\n")), commands()),
        ("a command written inline", of("PING\r\n"), commands()),
        ("an empty line after a command", of(&format!("{ping}\r\n")), commands()),
        ("half a command", of("*1\r\n$4\r\nPI"), commands()),
        ("a command and a half", of(&format!("{ping}*1\r\n$4\r\n")), commands()),
        ("a head that says a byte too few", headed(0, ping.len() - 1), commands()),
        ("a head that says a byte too many", [&headed(0, ping.len() + 1), &b"*"[..]].concat(), commands()),
        ("a command without an answer", of("*0\r\n"), commands()),
        ("another one", of("*-1\r\n"), commands()),
        ("one of them behind a command", of(&format!("{ping}*0\r\n")), commands()),
        ("a bulk string, which is two inline commands", of("$4\r\nPING\r\n"), commands()),
        ("replies", of("+OK\r\n"), commands()),
    ];
    for (name, sent, expected) in cases {
        talk(name, [limiter(&*sent)], "", "").closed(&*expected).holds();
        // On a stream that has served, what it has served stands.
        let turns = [limiter(message(&good)), redis(":1\r\n"), limiter(&*sent)];
        let later = talk(&format!("{name}, later"), turns, &*good, message(":1\r\n"));
        later.closed(&*expected).holds();
        // And no password was told to it.
        talk(name, [limiter(&*sent)], "", "").authenticating("ann:secret").closed(expected).holds();
    }
}

#[test]
fn closes_the_stream_on_a_message_before_the_last_is_answered() {
    let (a, b) = (command(&["GET", "a"]), command(&["GET", "b"]));
    let (first, both) = (message([&*a, &*b].concat()), [&*a, &*b].concat());
    let talks = [
        talk("in one piece", [limiter([&*first, &*message(&b)].concat())], &*both, ""),
        talk("one byte", [limiter([&*first, b"\0"].concat())], &*both, ""),
        talk("before any reply", [limiter(&*first), limiter(message(&b))], &*both, ""),
        talk("before the last reply", [limiter(&*first), redis(":1\r\n"), limiter(message(&b))], &*both, ""),
        talk("amid the last reply", [limiter(&*first), redis(":1\r\n:2"), limiter(message(&b))], &*both, ""),
        talk(
            "the replies come too late",
            [limiter([&*first, b"\0"].concat()), redis(":1\r\n:2\r\n")],
            &*both,
            "",
        ),
    ];
    talks.into_iter().for_each(|talk| talk.closed(ONE).holds());
}

#[test]
fn closes_the_stream_on_replies_that_cannot_be_trusted() {
    let a = command(&["GET", "a"]);
    let (one, two) = (message(&a), message(a.repeat(2)));
    let half = &one[..one.len() - 1];
    let answer = message(":1\r\n");
    let owed = [
        talk("an unexpected reply", [redis("+OK\r\n")], "", ""),
        talk("unexpected garbage", [redis("HTTP/1.1 400 Bad Request\r\n")], "", ""),
        talk("a reply to a message that is not whole", [limiter(half), redis(":1\r\n")], "", ""),
        talk("one reply too many", [limiter(&*one), redis(":1\r\n:2\r\n")], &*a, &*answer),
        talk("garbage after the last reply", [limiter(&*one), redis(":1\r\n?")], &*a, &*answer),
        talk("a reply between messages", [limiter(&*one), redis(":1\r\n"), redis(":2\r\n")], &*a, &*answer),
        talk(
            "the next message is not answered by it",
            [limiter(&*one), redis(":1\r\n:2\r\n"), limiter(&*one)],
            &*a,
            &*answer,
        ),
    ];
    owed.into_iter().for_each(|talk| talk.closed(OWED).holds());
    let malformed = [
        ("HTTP", "HTTP/1.1 400 Bad Request\r\n"),
        ("a message", "\0\0\0\0\x04:1\r\n"),
        ("RESP3", "_\r\n"),
        ("a number that is none", ":one\r\n"),
        ("a bulk string longer than it says", "$1\r\nxx\r\n"),
        // None of them is walked through: the line that announces it is enough.
        ("a bulk string too long", "$4097\r\n"),
        ("an array too long", "*65\r\n"),
        ("an array of a million items", "*1000000\r\n"),
        ("an array in an array", "*1\r\n*1\r\n"),
    ];
    for (name, said) in malformed {
        talk(name, [limiter(&*one), redis(said)], &*a, "").closed(replies()).holds();
        let second = [limiter(&*two), redis([b":1\r\n", said.as_bytes()].concat())];
        talk(&format!("{name}, after a reply"), second, a.repeat(2), "").closed(replies()).holds();
    }
}

#[test]
fn the_first_command_of_a_stream_is_auth() {
    // The content of the file, and the words of the command.
    let cases: &[(&str, &[&str])] = &[
        ("ann:secret", &["AUTH", "ann", "secret"]),
        ("secret", &["AUTH", "secret"]),
        (":secret", &["AUTH", "secret"]),
        ("ann:", &["AUTH", "ann", ""]),
        ("ann:a:b::c", &["AUTH", "ann", "a:b::c"]),
        (":a:b", &["AUTH", "a:b"]),
        ("secret\n", &["AUTH", "secret"]),
        ("ann:secret\n", &["AUTH", "ann", "secret"]),
        ("ann:secret\r\n", &["AUTH", "ann", "secret"]),
        ("ann:secret\n\n", &["AUTH", "ann", "secret\n"]),
        (" ann : secret ", &["AUTH", " ann ", " secret "]),
        ("ann:*1\r\n$4\r\nQUIT", &["AUTH", "ann", "*1\r\n$4\r\nQUIT"]),
    ];
    let a = command(&["GET", "a"]);
    for (credentials, words) in cases {
        let turns = [limiter(message(&a)), redis("+OK\r\n:1\r\n"), limiter(message(&a)), redis(":2\r\n")];
        let to_redis = [command(words), a.repeat(2)].concat();
        let name = credentials.escape_debug().to_string();
        talk(&name, turns, to_redis, [message(":1\r\n"), message(":2\r\n")].concat())
            .authenticating(credentials)
            .holds();
    }
    let mut bridge = Bridge::authenticating(b"\xff:\0\xfe");
    let greeted = [b"*3\r\n$4\r\nAUTH\r\n$1\r\n\xff\r\n$2\r\n\0\xfe\r\n", &*a].concat();
    assert_eq!(bridge.on_downstream(&message(&a)), Output::Send(greeted.into()), "no text at all");
}

#[test]
fn what_redis_says_to_auth_answers_nobody_unless_the_password_is_wrong() {
    let (a, auth) = (command(&["GET", "a"]), command(&["AUTH", "ann", "secret"]));
    let greeted = [&*auth, &*a, &*a].concat();
    let asks = || limiter(message(a.repeat(2)));
    let (wrong, no) =
        ("-WRONGPASS invalid username-password pair\r\n", "-NOAUTH Authentication required.\r\n");
    let unwanted = "-ERR AUTH <password> called without any password configured for the default user.\r\n";
    let answered = [
        talk("accepted", [asks(), redis("+OK\r\n:1\r\n:2\r\n")], &*greeted, message(":1\r\n:2\r\n")),
        talk("in turns of their own", [asks(), redis("+OK\r\n"), redis(":1\r\n:2\r\n")], &*greeted, {
            message(":1\r\n:2\r\n")
        }),
        talk("not wanted", [asks(), redis(format!("{unwanted}:1\r\n:2\r\n"))], &*greeted, {
            message(":1\r\n:2\r\n")
        }),
        talk("of no avail", [asks(), redis(format!("{unwanted}{no}{no}"))], &*greeted, message(no.repeat(2))),
        talk(
            "in more words than expected",
            [asks(), redis("*2\r\n+OK\r\n$1\r\nx\r\n:1\r\n:2\r\n")],
            &*greeted,
            message(":1\r\n:2\r\n"),
        ),
        talk("and nothing more", [asks(), redis("+OK\r\n")], &*greeted, ""),
        talk("and one reply", [asks(), redis("+OK\r\n:1\r\n")], &*greeted, ""),
        talk("not asked yet", [limiter(&message(&a)[..20])], "", ""),
    ];
    answered.into_iter().for_each(|talk| talk.authenticating("ann:secret").holds());
    let answer = message(":1\r\n:2\r\n");
    let (password, told) =
        ("the password of Redis", message("-WRONGPASS the user or the password\r\n".repeat(2)));
    let closed = [
        talk("refused", [asks(), redis(format!("{wrong}{no}{no}"))], &*greeted, told.clone())
            .closed(password),
        talk("refused, and hung up", [asks(), redis(wrong)], &*greeted, told).closed(password),
        talk("not RESP", [asks(), redis("HTTP/1.1 400 Bad Request\r\n")], &*greeted, "").closed(replies()),
        talk("RESP, then not", [asks(), redis("+OK\r\n:1\r\n?")], &*greeted, "").closed(replies()),
        talk("a reply too many", [asks(), redis("+OK\r\n:1\r\n:2\r\n:3\r\n")], &*greeted, answer)
            .closed(OWED),
        talk("before it is asked", [redis("+OK\r\n"), asks()], "", "").closed(OWED),
        talk("a message before any reply", [asks(), asks()], &*greeted, "").closed(ONE),
        talk("a message before the first reply", [asks(), redis("+OK\r\n"), asks()], &*greeted, "")
            .closed(ONE),
    ];
    closed.into_iter().for_each(|talk| talk.authenticating("ann:secret").holds());
}

#[test]
fn an_answer_that_ends_with_the_connection_is_marked() {
    let said = "$3\r\n1-1\r\n*2\r\n:1\r\n$1\r\n.\r\n".as_bytes();
    for credentials in [None, Some(&b"ann:secret"[..])] {
        let greeting = if credentials.is_some() { "+OK\r\n" } else { "" };
        let all = [greeting.as_bytes(), said].concat();
        for cut in 0..=all.len() {
            // Redis has ended the connection with the first piece, with the second piece, or not at all.
            for ends in [Some(0), Some(1), None] {
                let mut bridge = credentials.map_or(Bridge::new(), Bridge::authenticating);
                bridge.on_downstream(&message(command(&["GET", "a"]).repeat(2)));
                let (first, second) = all.split_at(cut);
                let mut answer = Vec::new();
                for (place, piece) in [first, second].into_iter().enumerate() {
                    match bridge.on_upstream(piece, ends == Some(place)) {
                        Output::Send(bytes) => answer.extend_from_slice(&bytes),
                        Output::Close(expected) => panic!("{expected}"),
                    }
                }
                let completes = usize::from(cut < all.len());
                let is_last = ends == Some(completes);
                let replies = bridge::replies(&answer[HEAD..]);
                assert_eq!(replies, (said, is_last), "cut at {cut}, the end with {ends:?}");
                assert_eq!(answer, message(&answer[HEAD..]), "the head counts the mark");
            }
        }
    }
    let mut refused = Bridge::authenticating(b"secret");
    refused.on_downstream(&message(command(&["PING"])));
    let Output::Send(told) = refused.on_upstream(b"-WRONGPASS no\r\n", true) else { panic!("it is told") };
    assert_eq!(bridge::replies(&told[HEAD..]), (&b"-WRONGPASS the user or the password\r\n"[..], true));
}

#[test]
fn redis_gets_nothing_of_a_message_that_is_not_whole() {
    let body = [command(&["GET", "a"]), command(&["GET", "b"])].concat();
    let sent = message(&body);
    for credentials in [None, Some(b"secret".as_slice())] {
        let mut link = Link::new(credentials);
        for byte in &sent[..sent.len() - 1] {
            link.says(Side::Limiter, &[*byte]);
        }
        assert_eq!(link.redis, b"");
        link.says(Side::Limiter, b"\n");
        assert!(link.redis.ends_with(&body));
    }
}

#[test]
fn a_message_in_one_piece_goes_on_uncopied() {
    let body = command(&["GET", "a"]).repeat(3);
    let (mut bridge, sent) = (Bridge::new(), message(&body));
    for _ in 0..2 {
        let output = bridge.on_downstream(&sent);
        assert!(matches!(output, Output::Send(Cow::Borrowed(passed_on)) if passed_on == body), "{output:?}");
        bridge.on_upstream(b":1\r\n:2\r\n:3\r\n", false);
    }
}

/// A bulk string of `bytes` bytes in all.
fn bulk(bytes: usize) -> Vec<u8> {
    let digits = |length: usize| length.to_string().len();
    let length = (0..bytes).rev().find(|length| length + digits(*length) + b"$\r\n\r\n".len() == bytes);
    let length = length.expect("a length");
    let bulk = [format!("${length}\r\n").as_bytes(), &b"x".repeat(length), b"\r\n"].concat();
    assert_eq!(bulk.len(), bytes);
    bulk
}

/// A bulk string of as many bytes as one may have.
fn longest_bulk() -> Vec<u8> {
    bulk(4096 + b"$4096\r\n\r\n".len())
}

/// Replies of `bytes` bytes together, and how many they are.
fn many(bytes: usize) -> (usize, Vec<u8>) {
    let one = longest_bulk();
    let (count, rest) = (bytes / one.len(), bytes % one.len());
    (count + 1, [one.repeat(count), bulk(rest)].concat())
}

/// A command of `bytes` bytes in all.
fn long_command(bytes: usize) -> Vec<u8> {
    [b"*1\r\n".as_slice(), &bulk(bytes - 4)].concat()
}

#[test]
fn at_its_bounds_a_message_is_answered_and_beyond_them_it_is_not() {
    let ping = command(&["PING"]);
    let most_replies = usize::try_from(MAX_REPLIES).expect("a length");
    let (longest, most) = (long_command(MAX_BODY), ping.repeat(MAX_COMMANDS));
    let pongs = "+PONG\r\n".repeat(MAX_COMMANDS);
    let (count, all) = many(most_replies);
    let line = |length: usize| [b"-", "x".repeat(length).as_bytes(), b"\r\n"].concat();
    let array = |items: usize| [format!("*{items}\r\n").as_bytes(), &longest_bulk().repeat(items)].concat();
    let asks = |commands: usize| limiter(message(ping.repeat(commands)));
    let talks = [
        talk(
            "the longest message",
            [limiter(message(&longest)), redis("+1\r\n")],
            &*longest,
            message("+1\r\n"),
        ),
        talk("one byte more", [limiter(message(long_command(MAX_BODY + 1)))], "", "").closed(a_message()),
        talk("the most commands", [limiter(message(&most)), redis(&*pongs)], &*most, message(&pongs)),
        talk("one command more", [asks(MAX_COMMANDS + 1)], "", "").closed(commands()),
        talk("the longest line", [asks(1), redis(line(4096))], &*ping, message(line(4096))),
        talk("one byte more", [asks(1), redis(line(4097))], &*ping, "").closed(replies()),
        talk("the longest string", [asks(1), redis(longest_bulk())], &*ping, message(longest_bulk())),
        talk("one byte more", [asks(1), redis(bulk(longest_bulk().len() + 1))], &*ping, "").closed(replies()),
        talk("the longest array", [asks(1), redis(array(64))], &*ping, message(array(64))),
        talk("one item more", [asks(1), redis(array(65))], &*ping, "").closed(replies()),
        talk("the longest replies together", [asks(count), redis(&*all)], ping.repeat(count), message(&all)),
        talk("a byte more", [asks(count), redis(many(most_replies + 1).1)], ping.repeat(count), "")
            .closed(replies()),
        talk(
            "a reply more, unfinished",
            [asks(count + 1), redis([&*all, b":1"].concat())],
            ping.repeat(count + 1),
            "",
        )
        .closed(replies()),
        talk("a reply more, not owed", [asks(count), redis([&*all, b":1"].concat())], ping.repeat(count), {
            message(&all)
        })
        .closed(OWED),
    ];
    for talk in talks {
        [16 * 1024, usize::MAX].into_iter().for_each(|size| talk.holds_in_pieces_of(size));
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod memory {
    use super::*;
    use allocation_counter::measure;

    /// The most bytes that `run` held at any time, and those it still holds.
    fn held(run: impl FnOnce()) -> (usize, usize) {
        let measured = measure(run);
        let most = usize::try_from(measured.bytes_max).expect("a size");
        (most, usize::try_from(measured.bytes_current).expect("nothing of before is freed"))
    }

    const PIECE: usize = 16 * 1024;

    /// A buffer that has grown to its bound has doubled a little before, and stood twice while it moved.
    fn grown(bound: usize) -> usize {
        3 * (bound + HEAD + PIECE)
    }

    #[test]
    fn of_what_is_only_announced_nothing_is_held() {
        let begun = [&message(long_command(MAX_BODY))[..64], &[]].concat();
        let mut bridge = Bridge::new();
        let (most, _) = held(|| drop(bridge.on_downstream(&begun)));
        assert!((64..1024).contains(&most), "{most}");

        let (mut bridge, one) = (Bridge::new(), message(command(&["PING"])));
        let (most, _) = held(|| {
            bridge.on_downstream(&one);
            bridge.on_upstream(b"*64\r\n$4096\r\n", false);
        });
        assert!((HEAD..1024).contains(&most), "{most}");
    }

    #[test]
    fn at_most_one_message_is_held_and_the_replies_to_it() {
        let most_replies = usize::try_from(MAX_REPLIES).expect("a length");
        let (count, replies) = many(most_replies);
        let each = MAX_BODY / count;
        let longest = [long_command(each).repeat(count - 1), long_command(MAX_BODY - each * (count - 1))];
        let longest = message(longest.concat());
        let small = message(command(&["PING"]));
        let mut bridge = Bridge::new();
        let (most, kept) = held(|| {
            for _ in 0..4 {
                longest.chunks(PIECE).for_each(|piece| drop(bridge.on_downstream(piece)));
                replies.chunks(PIECE).for_each(|piece| drop(bridge.on_upstream(piece, false)));
            }
            bridge.on_downstream(&small);
            assert_ne!(bridge.on_upstream(b"+PONG\r\n", false), Output::Send(Cow::default()));
        });
        assert!(most <= grown(MAX_BODY) + grown(most_replies), "{most}");
        assert!(kept <= 64 * 1024, "{kept} after a small one");
    }

    #[test]
    fn a_stream_that_is_closed_holds_nothing() {
        let sent = message(command(&["PING"]).repeat(2));
        let cases: [(&str, &[Said<'_>]); 4] = [
            ("amid a message", &[(Side::Limiter, &sent[..20]), (Side::Redis, b":1\r\n")]),
            ("amid its replies", &[(Side::Limiter, &sent), (Side::Redis, b":1\r\n"), (Side::Redis, b"?")]),
            ("by a second message", &[(Side::Limiter, &sent), (Side::Limiter, &sent)]),
            ("with AUTH unsaid", &[(Side::Limiter, b"?")]),
        ];
        for (name, events) in cases {
            let mut bridge = Bridge::new();
            let (most, kept) = held(|| {
                bridge = Bridge::authenticating(b"ann:secret");
                for (side, bytes) in events {
                    match side {
                        Side::Limiter => drop(bridge.on_downstream(bytes)),
                        Side::Redis => drop(bridge.on_upstream(bytes, false)),
                    }
                }
            });
            assert!(matches!(bridge.on_upstream(b"", false), Output::Close(_)), "{name}");
            assert!(most > 0 && kept == 0, "{name}: {kept} of {most}");
        }
    }

    #[test]
    fn nothing_is_held_of_what_redis_says_to_auth() {
        let (mut bridge, one) = (Bridge::authenticating(b"secret"), message(command(&["PING"])));
        bridge.on_downstream(&one);
        let long = [b"*64\r\n".as_slice(), &longest_bulk().repeat(63)].concat();
        let (most, _) = held(|| long.chunks(PIECE).for_each(|piece| drop(bridge.on_upstream(piece, false))));
        assert_eq!(most, 0);
        assert_eq!(bridge.on_upstream(b":1\r\n+PONG\r\n", false), Output::Send(message("+PONG\r\n").into()));
    }

    /// Work is what is allocated: where each piece had what came before it copied, that would be the square of it.
    #[test]
    fn small_pieces_cost_no_more_than_large_ones() {
        let (count, replies) = many(256 * 1024);
        let asked = message(long_command(4_000).repeat(count));
        for piece in [usize::MAX, 64, 1] {
            let mut bridge = Bridge::new();
            let work = measure(|| {
                asked.chunks(piece).for_each(|piece| drop(bridge.on_downstream(piece)));
                replies.chunks(piece).for_each(|piece| drop(bridge.on_upstream(piece, false)));
            });
            let most = 4 * u64::try_from(asked.len() + replies.len()).expect("a size");
            assert!(work.bytes_total <= most, "{} of {most} in pieces of {piece}", work.bytes_total);
            assert!(work.count_total <= 64, "{} allocations in pieces of {piece}", work.count_total);
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    /// A number of commands, as the limiter writes them.
    fn written() -> impl Strategy<Value = (usize, Vec<u8>)> {
        let words = proptest::collection::vec("[a-z\r\n$*:\0]{0,9}", 1..4);
        proptest::collection::vec(words, 1..5).prop_map(|commands| {
            let each =
                commands.iter().map(|words| command(&words.iter().map(String::as_str).collect::<Vec<_>>()));
            (commands.len(), each.flatten().collect())
        })
    }

    fn reply() -> impl Strategy<Value = String> {
        let flat = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n")),
            "[+-][a-zA-Z ]{0,9}\r\n",
            "[a-z\r\n$*:\0]{0,9}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
            Just("$-1\r\n".into()),
        ];
        flat.prop_recursive(1, 3, 3, |item| {
            proptest::collection::vec(item, 0..3)
                .prop_map(|items| format!("*{}\r\n{}", items.len(), items.concat()))
        })
    }

    /// A message's commands, and the replies to it.
    fn served() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        (written(), proptest::collection::vec(reply(), 4))
            .prop_map(|((count, body), replies)| (body, replies[..count].concat().into_bytes()))
    }

    /// Turns. Most are as they should be; some are damaged, doubled, lost or made up.
    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let whole = || served().prop_map(|(body, replies)| vec![limiter(message(body)), redis(replies)]);
        let some = prop_oneof![
            8 => whole(),
            2 => (whole(), any::<(Index, Index, u8)>()).prop_map(|(mut turns, (turn, at, byte))| {
                let said = &mut turns[turn.index(2)].1;
                let at = at.index(said.len());
                said[at] = byte;
                turns
            }),
            1 => (whole(), any::<Index>()).prop_map(|(mut turns, turn)| {
                turns.remove(turn.index(2));
                turns
            }),
            1 => (whole(), any::<Index>()).prop_map(|(mut turns, turn)| {
                let said = &mut turns[turn.index(2)].1;
                *said = said.repeat(2);
                turns
            }),
            1 => (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20)).prop_map(|(redis_says, bytes)| {
                vec![if redis_says { redis(bytes) } else { limiter(bytes) }]
            }),
        ];
        proptest::collection::vec(some, 1..5).prop_map(|some| some.concat())
    }

    /// Pieces of the turns, each turn cut in the same places, as far as it goes.
    fn cut<'a>(turns: &'a [Turn], cuts: &[usize]) -> Vec<Said<'a>> {
        let mut pieces = Vec::new();
        for (side, said) in turns {
            let mut ends: Vec<usize> = cuts.iter().map(|at| (*at).min(said.len())).collect();
            ends.extend([0, said.len()]);
            ends.sort_unstable();
            pieces.extend(ends.windows(2).map(|pair| (*side, &said[pair[0]..pair[1]])));
        }
        pieces
    }

    fn cuts() -> impl Strategy<Value = Vec<usize>> {
        proptest::collection::vec(0..150_usize, 0..12)
    }

    fn credentials() -> impl Strategy<Value = Option<&'static [u8]>> {
        prop_oneof![Just(None), Just(Some(b"ann:secret".as_slice()))]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn every_message_gets_its_own_replies_however_they_are_cut(
            served in proptest::collection::vec(served(), 1..5),
            cuts in cuts(),
        ) {
            let turns: Vec<Turn> =
                served.iter().flat_map(|(body, replies)| [limiter(message(body)), redis(&**replies)]).collect();
            let to_redis: Vec<u8> = served.iter().flat_map(|(body, _)| body.clone()).collect();
            let to_limiter: Vec<u8> = served.iter().flat_map(|(_, replies)| message(replies)).collect();
            prop_assert_eq!(outcome(None, cut(&turns, &cuts)), (to_redis, to_limiter, None));
        }

        #[test]
        fn any_cuts_of_any_conversation_come_to_the_same(
            turns in turns(),
            cuts in cuts(),
            credentials in credentials(),
        ) {
            prop_assert_eq!(outcome(credentials, cut(&turns, &cuts)), outcome(credentials, cut(&turns, &[])));
        }

        #[test]
        fn any_order_of_anything_leaves_the_bridge_standing(
            turns in turns(),
            cuts in cuts(),
            order in proptest::collection::vec(any::<Index>(), 64),
            credentials in credentials(),
        ) {
            let mut pieces = cut(&turns, &cuts);
            for (from, to) in order.iter().enumerate() {
                let (from, to) = (from % pieces.len(), to.index(pieces.len()));
                pieces.swap(from, to);
            }
            // The link says what must hold.
            outcome(credentials, pieces);
        }
    }
}
