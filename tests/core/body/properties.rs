// SPDX-License-Identifier: Apache-2.0
//! Generated documents, cut anywhere: weir finds what serde_json finds, and takes for JSON what serde_json takes. Event streams
//! against a reader that has all lines. Numbers against arithmetic on their digits.

use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value as Json};
use weir::body::{Form, MAX_MILLIONTHS, Paths, Sum, Weight};

use super::json_rpc::ids;
use super::{decimal, found, read, shown};
use crate::frames::message;
use crate::tried::tried;

/// Paths with all kinds of segments. Keys are `a`, `b` and `é`.
const PATHS: [&str; 8] = ["a", "b.a", "a.b[0]", "[0].a", "[*].b", "a[*]", "é.é", "a.a.a"];

/// One segment of such a path.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
    Any,
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    parts
        .map(|part| match part.strip_suffix(']') {
            Some("*") => Step::Any,
            Some(index) => Step::Index(index.parse().unwrap()),
            None => Step::Key(part),
        })
        .collect()
}

/// The values at a path, in the order of the document.
fn at<'a>(json: &'a Json, steps: &[Step<'_>]) -> Vec<&'a Json> {
    let Some((step, rest)) = steps.split_first() else { return vec![json] };
    let next: Vec<&Json> = match (step, json) {
        (Step::Key(key), Json::Object(members)) => members.get(*key).into_iter().collect(),
        (Step::Index(index), Json::Array(items)) => items.get(*index).into_iter().collect(),
        (Step::Any, Json::Array(items)) => items.iter().collect(),
        _ => vec![],
    };
    next.into_iter().flat_map(|json| at(json, rest)).collect()
}

/// The values that a scanner should show for this document.
fn wanted(json: &Json) -> String {
    let mut text = "ok:".to_owned();
    for path in PATHS {
        let values = at(json, &steps(path));
        let values: Vec<_> = values.into_iter().filter(|value| !value.is_null()).collect();
        // Some servers end a string at a zero character.
        let is_cut = values.iter().any(|value| value.as_str().is_some_and(|text| text.contains('\0')));
        text.push_str(if values.len() > 1 || is_cut { " ?" } else { " " });
        let last = values.iter().rfind(|value| value.is_number()).or(values.last());
        text.push_str(&match last {
            None => "-".to_owned(),
            Some(Json::String(text)) => format!("{text:?}"),
            Some(Json::Array(_) | Json::Object(_)) => "nested".to_owned(),
            Some(scalar) => scalar.to_string(),
        });
    }
    text
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("a"), 4 => Just("b"), 2 => Just("é"), 1 => Just("aa"), 1 => Just("")]
        .prop_map(str::to_owned)
}

/// A document; its numbers are whole, so that they have one way to be written.
fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        1 => Just(Json::Null),
        1 => any::<bool>().prop_map(Json::Bool),
        3 => (0..1_000_000_000_000_u64).prop_map(Json::from),
        3 => "[a-z\"\\\\/\u{0}-\u{1f}é名😀\u{7f}\u{ffff}]{0,40}".prop_map(Json::String),
        1 => any::<String>().prop_map(Json::String),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Json::Array),
            vec((key(), inner), 0..5).prop_map(|members| Json::Object(Map::from_iter(members))),
        ]
    })
}

/// Writes a document. The numbers choose the white space and which characters are escaped.
fn written(json: &Json, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    let space = |out: &mut String, choices: &mut dyn Iterator<Item = u8>| {
        out.push_str(["", "", "", " ", "\n", "\t \r\n"][usize::from(choices.next().unwrap_or(0) % 6)]);
    };
    space(out, choices);
    match json {
        Json::String(text) => written_text(text, choices, out),
        Json::Array(items) => {
            out.push('[');
            space(out, choices);
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                written(item, choices, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            space(out, choices);
            for (index, (key, member)) in members.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                space(out, choices);
                written_text(key, choices, out);
                space(out, choices);
                out.push(':');
                written(member, choices, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
    space(out, choices);
}

fn written_text(text: &str, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        let must = character < ' ' || matches!(character, '"' | '\\');
        if must || choices.next().is_some_and(|choice| choice % 4 == 0) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

/// The values at the paths of the items of an array.
fn in_all(array: &Json) -> String {
    let of_item =
        |path: &&str| if path.starts_with('[') { format!("[*]{path}") } else { format!("[*].{path}") };
    let paths: Vec<String> = PATHS.iter().map(of_item).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    found(Form::Json, &paths, array.to_string().as_bytes()).replace('?', "")
}

/// The payloads in a stream of frames, as far as they are whole, and whether a message has impossible lengths.
fn payloads(mut stream: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut payloads = Vec::new();
    while stream.len() >= 8 {
        let number =
            |at: usize| stream[at..at + 4].iter().fold(0, |number, byte| number * 256 + usize::from(*byte));
        let (whole, headers) = (number(0), number(4));
        if headers > 128 << 10 || whole < headers + 16 || whole - headers - 16 > 24 << 20 {
            return (payloads, true);
        }
        let end = whole.min(stream.len());
        payloads.push(
            stream[..end]
                .get(12 + headers..)
                .map_or(&[][..], |rest| &rest[..rest.len().min(whole - headers - 16)]),
        );
        stream = &stream[end..];
    }
    (payloads, false)
}

/// The text in pieces of these lengths, over and over.
fn pieces<'a>(mut text: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().copied().cycle() {
        let (piece, rest) = text.split_at(length.min(text.len()));
        pieces.push(piece);
        text = rest;
        if rest.is_empty() {
            break;
        }
    }
    pieces
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![vec(1..4_usize, 1..4), vec(1..40_usize, 1..8), Just(vec![usize::MAX])]
}

fn scanned(form: Form, body: &[u8], cuts: &[usize]) -> String {
    let paths = Rc::new(Paths::new(&PATHS).unwrap());
    let (scanner, end) = read(form, &paths, pieces(body, cuts));
    shown(&scanner, form, PATHS.len(), end)
}

/// A document in which keys may occur twice.
#[derive(Clone, Debug)]
enum Tree {
    Null,
    Number(u32),
    /// So much below zero.
    Below(u32),
    Word(&'static str),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        1 => Just(Tree::Null),
        4 => (0..9_u32).prop_map(Tree::Number),
        1 => (1..9_u32).prop_map(Tree::Below),
        1 => prop::sample::select(&["true", "false"][..]).prop_map(Tree::Word),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..3).prop_map(Tree::Array),
            3 => vec((key(), inner), 0..4).prop_map(Tree::Object),
        ]
    })
}

/// The document, with some keys in another spelling.
fn spelled(tree: &Tree, choices: &mut impl Iterator<Item = u8>) -> String {
    match tree {
        Tree::Null => "null".to_owned(),
        Tree::Number(number) => number.to_string(),
        Tree::Below(number) => format!("-{number}"),
        Tree::Word(word) => (*word).to_owned(),
        Tree::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| spelled(item, choices)).collect();
            format!("[{}]", items.join(","))
        }
        Tree::Object(members) => {
            let member = |(key, member): &(String, Tree)| {
                let mut text = String::new();
                written_text(key, choices, &mut text);
                format!("{text}:{}", spelled(member, choices))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
    }
}

/// The values at a path that are not null, in the order of the document, and whether a key on the way occurs twice.
fn reached<'a>(tree: &'a Tree, steps: &[Step<'_>], values: &mut Vec<&'a Tree>) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        if !matches!(tree, Tree::Null) {
            values.push(tree);
        }
        return false;
    };
    let next: Vec<&Tree> = match (step, tree) {
        (Step::Key(key), Tree::Object(members)) => {
            members.iter().filter(|(other, _)| other == key).map(|(_, member)| member).collect()
        }
        (Step::Index(index), Tree::Array(items)) => items.get(*index).into_iter().collect(),
        (Step::Any, Tree::Array(items)) => items.iter().collect(),
        _ => vec![],
    };
    let twice = matches!(step, Step::Key(_)) && next.len() > 1;
    next.into_iter().fold(twice, |twice, tree| reached(tree, rest, values) | twice)
}

/// A reader of event streams that has them whole: the data of each event.
fn events(stream: &str) -> Vec<String> {
    let stream = stream.strip_prefix('\u{feff}').unwrap_or(stream);
    let lines = stream.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    for event in lines.split("\n\n") {
        let data: Vec<_> = event
            .split('\n')
            .map(|line| line.split_once(':').unwrap_or((line, "")))
            .filter(|(name, _)| *name == "data")
            .map(|(_, value)| value.strip_prefix(' ').unwrap_or(value))
            .collect();
        events.push(data.join("\n"));
    }
    events
}

/// The effect of a response's document on what is known, by the documents: the last number at each path counts, and any other value changes
/// nothing.
#[derive(Clone, Debug)]
enum Shown {
    Tree(Tree),
    /// It breaks off, or goes on wrongly: what was read before counts, which is this number at `a`.
    Broken(String, Option<u32>),
}

fn shown_document() -> impl Strategy<Value = Shown> {
    let wrong = prop::sample::select(
        &[
            "012", "1_000", "0x1", "1.5.3", "10px", "1.", "-", "+1", "1e", "01.5", "1 2", "'5'", "?", "\"5",
            "NaN",
        ][..],
    );
    prop_oneof![
        4 => tree().prop_map(Shown::Tree),
        1 => wrong.clone().prop_map(|wrong| Shown::Broken(format!("{{\"a\":{wrong}}}"), (wrong == "1 2").then_some(1))),
        1 => (0..9_u32, wrong.clone()).prop_map(|(number, wrong)| {
            Shown::Broken(format!("{{\"a\":{number},\"a\":{wrong}}}"), Some(if wrong == "1 2" { 1 } else { number }))
        }),
        1 => (0..9_u32, wrong).prop_map(|(number, wrong)| Shown::Broken(format!("{{\"a\":{number}}} {wrong}"), Some(number))),
        1 => Just(Shown::Broken("?".to_owned(), None)),
    ]
}

/// The distance of a number from zero in millionths, by moving the point through its digits.
fn counted(integer: &str, fraction: &str, exponent: i32) -> u64 {
    // As many zeros on both sides as the point may move.
    let zeros = "0".repeat(500);
    let digits = format!("{zeros}{integer}{fraction}{zeros}");
    let point = i32::try_from(zeros.len() + integer.len()).unwrap() + exponent + 6;
    let (whole, rest) = digits.split_at(usize::try_from(point).unwrap());
    let whole = whole.trim_start_matches('0');
    if whole.len() > 19 {
        return MAX_MILLIONTHS;
    }
    let whole: u64 = format!("0{whole}").parse().unwrap();
    let more = rest.bytes().any(|digit| digit != b'0');
    (whole + u64::from(more)).min(MAX_MILLIONTHS)
}

proptest! {
    #![proptest_config(tried(1500))]

    /// The ids of any document are what serde_json finds.
    #[test]
    fn ids_of_calls_are_found(document in prop_oneof![json(), vec(json(), 0..6).prop_map(Json::from)], spelled: bool, size in 1..9_usize) {
        let key = if spelled { r#""\u0069d":"# } else { r#""id":"# };
        let text = document.to_string().replace(r#""a":"#, key);
        let found = ids(text.as_bytes(), size);
        let found = (found != "-").then(|| serde_json::from_str::<Json>(&found).unwrap());
        let id = |call: &Json| match call.as_object().map(|call| call.get("id")) {
            Some(None) => None,
            Some(Some(id)) if id.is_number() || id.is_string() => Some(id.clone()),
            _ => Some(Json::Null),
        };
        let wanted = match serde_json::from_str::<Json>(&text).unwrap() {
            Json::Array(items) if items.is_empty() => None,
            Json::Array(items) => Some(items.iter().filter_map(id).collect::<Vec<_>>().into()),
            one => id(&one).filter(|id| !id.is_null()),
        };
        prop_assert_eq!(found, wanted, "{}", text);
    }

    #[test]
    fn finds_what_serde_json_finds(json in json(), choices in vec(any::<u8>(), 0..200), cuts in cuts()) {
        let mut body = String::new();
        written(&json, &mut choices.into_iter(), &mut body);
        prop_assert_eq!(&serde_json::from_str::<Json>(&body).unwrap(), &json);
        prop_assert_eq!(scanned(Form::Json, body.as_bytes(), &cuts), wanted(&json), "{}", body);
    }

    /// A server may take either value, so weir takes none.
    #[test]
    fn a_key_that_occurs_twice_is_ambiguous(tree in tree(), choices in vec(any::<u8>(), 0..60), cuts in cuts()) {
        let body = spelled(&tree, &mut choices.into_iter());
        let mut wanted = "ok:".to_owned();
        for path in PATHS {
            let mut values = Vec::new();
            let twice = reached(&tree, &steps(path), &mut values);
            wanted.push_str(if twice || values.len() > 1 { " ?" } else { " " });
            let number = values.iter().rfind(|value| matches!(value, Tree::Number(_)));
            wanted.push_str(&match number.or(values.last()) {
                None | Some(Tree::Null) => "-".to_owned(),
                Some(Tree::Number(number)) => number.to_string(),
                Some(Tree::Below(number)) => format!("-{number}"),
                Some(Tree::Word(word)) => (*word).to_owned(),
                Some(Tree::Array(_) | Tree::Object(_)) => "nested".to_owned(),
            });
        }
        prop_assert_eq!(scanned(Form::Json, body.as_bytes(), &cuts), wanted, "{}", body);
    }

    #[test]
    fn takes_for_json_what_serde_json_takes(
        json in json(),
        choices in vec(any::<u8>(), 0..100),
        cuts in cuts(),
        changes in vec((any::<prop::sample::Index>(), prop_oneof![
            prop::sample::select(&b"{}[]:,\"\\/u0123456789aeE+-. \n\0\x80\xc3\xa9\xed\xa0\xf0"[..]),
            any::<u8>(),
        ], 0..3_u8), 0..4),
    ) {
        let mut body = String::new();
        written(&json, &mut choices.into_iter(), &mut body);
        let mut body = body.into_bytes();
        for (place, byte, change) in changes {
            let place = place.index(body.len() + 1);
            match change {
                0 => body.insert(place, byte),
                1 => body.truncate(place.max(body.len() * 3 / 4)),
                _ => if let Some(old) = body.get_mut(place) { *old = byte },
            }
        }
        let ours = scanned(Form::Json, &body, &cuts);
        let theirs = serde_json::from_slice::<Json>(&body);
        // serde_json keeps numbers as floating point, and refuses those that are too large for it.
        let too_large = theirs.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"));
        if !too_large {
            prop_assert_eq!(ours.starts_with("ok:"), theirs.is_ok(), "{:?} {:?}", String::from_utf8_lossy(&body), theirs);
        }
    }

    /// Any bytes, mostly those of JSON and of event streams.
    #[test]
    fn where_a_body_is_cut_makes_no_difference(
        body in vec(prop_oneof![
            6 => prop::sample::select(&b"{}[]:,\"\\1a-.e\n\rdat: n"[..]),
            1 => any::<u8>(),
        ], 0..60),
        event in any::<bool>(),
        cuts in cuts(),
    ) {
        let frames = [message(b"", b"{\"a\": 1}"), message(&body, &body), body.clone()].concat();
        prop_assert_eq!(scanned(Form::Frames, &frames, &cuts), scanned(Form::Frames, &frames, &[usize::MAX]));
        let body = if event { [b"data: {\"a\":", &body[..], b"}\n\n"].concat() } else { body };
        for form in [Form::Json, Form::EventStream, Form::JsonLines, Form::Frames] {
            prop_assert_eq!(scanned(form, &body, &cuts), scanned(form, &body, &[usize::MAX]));
        }
    }

    #[test]
    fn numbers_are_exact(
        negative in prop::bool::weighted(0.1),
        integer in "0|[1-9][0-9]{0,25}|[1-9]0{0,40}",
        fraction in "|[0-9]{1,30}|0{0,30}[0-9]{1,3}|9{1,25}",
        exponent in prop_oneof![Just(None), (-40..40_i32).prop_map(Some), (-400..400_i32).prop_map(Some)],
        capital in any::<bool>(),
        plus in any::<bool>(),
    ) {
        let mut number = format!("{}{integer}", if negative { "-" } else { "" });
        if !fraction.is_empty() {
            number.push('.');
            number.push_str(&fraction);
        }
        if let Some(exponent) = exponent {
            number.push(if capital { 'E' } else { 'e' });
            number.push_str(if plus && exponent >= 0 { "+" } else { "" });
            number.push_str(&exponent.to_string());
        }
        let counted = counted(&integer, &fraction, exponent.unwrap_or(0));
        let minus = if negative && counted > 0 { "-" } else { "" };
        let wanted = format!("ok: {minus}{}", decimal(counted));
        prop_assert_eq!(found(Form::Json, &["[0]"], format!("[{number}]").as_bytes()), wanted, "{}", number);
    }

    /// The data of an event stream are the documents that a simple reader finds in it.
    #[test]
    fn event_streams_hold_what_a_simple_reader_finds(
        lines in vec((prop_oneof![
            4 => json().prop_map(|json| format!("data: {json}")),
            2 => (0..100_u32).prop_map(|a| format!("data:{{\"a\": {a}}}")),
            1 => Just("data: {\"a\":".to_owned()),
            1 => Just("data:1}".to_owned()),
            1 => Just("data".to_owned()),
            1 => "(data|dat|event|id|retry|)(: ?|)[a-z1: ]{0,8}",
            4 => Just(String::new()),
        ], prop::sample::select(&["\n", "\r\n", "\r"][..])), 0..12),
        mark in any::<bool>(),
        cuts in cuts(),
    ) {
        let ends = lines.iter().map(|(line, end)| [line.as_str(), end].concat());
        let stream = [if mark { "\u{feff}" } else { "" }.to_owned(), ends.collect()].concat();
        let documents: Vec<Result<Json, _>> = events(&stream)
            .iter()
            .filter(|data| !data.trim_ascii().is_empty())
            .map(|data| serde_json::from_str(data))
            .collect();
        let ours = scanned(Form::EventStream, stream.as_bytes(), &cuts);
        if documents.iter().all(Result::is_ok) {
            // All documents in one array: what is at a path of each is at the path after any index.
            let all = Json::Array(documents.into_iter().filter_map(Result::ok).collect());
            prop_assert_eq!(ours.replace('?', ""), in_all(&all), "{:?}", stream);
        }
    }

    /// The payloads of frames are the documents that a simple reader finds, up to a message with impossible lengths.
    #[test]
    fn frames_hold_what_a_simple_reader_finds(
        messages in vec((vec(any::<u8>(), 0..20), prop_oneof![
            4 => json().prop_map(|json| json.to_string()),
            1 => Just(String::new()),
        ]), 0..8),
        changed in proptest::option::weighted(0.5, (any::<prop::sample::Index>(), any::<u8>())),
        cuts in cuts(),
    ) {
        let mut stream: Vec<u8> = messages.iter().flat_map(|(headers, json)| message(headers, json.as_bytes())).collect();
        if let Some((place, byte)) = changed.filter(|_| !stream.is_empty()) {
            let place = place.index(stream.len());
            stream[place] = byte;
        }
        let (payloads, is_lost) = payloads(&stream);
        let documents: Vec<Result<Json, _>> =
            payloads.iter().filter(|data| !data.trim_ascii().is_empty()).map(|data| serde_json::from_slice(data)).collect();
        let ours = scanned(Form::Frames, &stream, &cuts);
        prop_assert_eq!(ours.starts_with("no frames:"), is_lost, "{}", ours);
        if documents.iter().all(Result::is_ok) {
            let all = Json::Array(documents.into_iter().filter_map(Result::ok).collect());
            let theirs = in_all(&all);
            prop_assert_eq!(ours.replace("no frames:", "ok:").replace('?', ""), theirs);
        }
    }

    /// Only documents with a wanted key are read, if they are whole in a chunk, or their beginning is kept. Behind 600 bytes that were cut,
    /// all of them are read.
    #[test]
    fn documents_that_are_not_read_hold_nothing(
        documents in vec((shown_document(), prop_oneof![
            6 => Just("\n\n"), 2 => Just("\r\n\r\n"), 1 => Just("\n\r\n"), 1 => Just("\r\r"), 1 => Just("\n"),
            1 => Just("\n: a\n\n"), 1 => Just("\ndata: 1\n\n"),
        ]), 0..12),
        keys in prop::sample::subsequence(&["a", "b.a", "a.b[0]", "[0].a", "[*].b", "é.é", "['a/b']", "[*]"][..], 1..3),
        choices in vec(any::<u8>(), 0..60),
        mark in any::<bool>(),
        cuts in prop_oneof![cuts(), vec(20..200_usize, 1..8)],
        spaces in prop_oneof![2 => Just(0), 1 => 440..520_usize],
    ) {
        let mut choices = choices.into_iter();
        let mut stream = if mark { "\u{feff}" } else { "" }.to_owned();
        for (document, end) in &documents {
            let text = match document {
                Shown::Tree(tree) => spelled(tree, &mut choices),
                Shown::Broken(text, _) => text.clone(),
            };
            stream.push_str("data: ");
            // A key that only an escape spells.
            stream.push_str(&text.replace("\"aa\"", "\"a\\/b\""));
            stream.push_str(end);
        }
        // Only a table of groups counts the documents.
        let grouped = Rc::new(Paths::grouped(&[(0, "a"), (1, "b.a")], &["a"]).unwrap());
        let tables = [Rc::new(Paths::new(&keys).unwrap()), grouped];
        let frames: Vec<u8> = stream.split('\n').flat_map(|line| message(b"", line.trim_start_matches("data: ").as_bytes())).collect();
        let forms = [Form::EventStream, Form::JsonLines, Form::Frames];
        for (form, paths) in forms.into_iter().flat_map(|form| tables.iter().map(move |paths| (form, paths))) {
            let begin = if form == Form::JsonLines { "" } else { "data: " };
            let [ours, theirs] = [(&cuts[..], spaces), (&[50], 600)].map(|(cuts, spaces)| {
                let padded = stream.replace("data: ", &[begin, &" ".repeat(spaces)].concat());
                let (stream, cuts) = match form {
                    Form::Frames if spaces == 600 => (&frames[..], &[1][..]),
                    Form::Frames => (&frames[..], cuts),
                    _ => (padded.as_bytes(), cuts),
                };
                let (scanner, end) = read(form, paths, pieces(stream, cuts));
                (shown(&scanner, form, paths.count(), end), scanner.documents())
            });
            prop_assert_eq!(ours, theirs, "{:?}", stream);
        }
    }

    /// JSON lines are the same as an event stream with an event for each line.
    #[test]
    fn json_lines_are_events(lines in vec(prop_oneof![json().prop_map(|json| json.to_string()), "[{}a\" ]{0,4}"], 0..6), cuts in cuts()) {
        let events: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        prop_assert_eq!(scanned(Form::JsonLines, lines.as_bytes(), &cuts), scanned(Form::EventStream, events.as_bytes(), &cuts));
    }

    /// The cost of a response is the sum of the last numbers at its paths, whatever else is there, and wherever it is cut.
    #[test]
    fn what_is_no_number_hides_none(
        documents in vec(shown_document(), 1..5), choices in vec(any::<u8>(), 0..60), cuts in cuts(), lines in any::<bool>(),
    ) {
        let mut choices = choices.into_iter();
        let texts: Vec<String> = documents.iter().map(|document| match document {
            Shown::Tree(tree) => spelled(tree, &mut choices),
            Shown::Broken(text, _) => text.clone(),
        }).collect();
        let costs = |form, body: &str, documents: &[Shown]| {
            let paths = Rc::new(Paths::new(&PATHS).unwrap());
            let (scanner, _) = read(form, &paths, pieces(body.as_bytes(), &cuts));
            let ours: Vec<_> = (0..PATHS.len()).map(|path| sum_of(&[path]).last(&scanner)).collect();
            let wanted: Vec<_> = PATHS.iter().map(|path| {
                documents.iter().rev().find_map(|document| match document {
                    Shown::Tree(tree) => {
                        let mut values = Vec::new();
                        reached(tree, &steps(path), &mut values);
                        values.into_iter().rev().find_map(|value| match value {
                            Tree::Number(number) => Some(*number),
                            _ => None,
                        })
                    }
                    Shown::Broken(_, number) => number.filter(|_| *path == "a"),
                }).map(u64::from)
            }).collect();
            (ours, wanted)
        };
        let (ours, wanted) = costs(Form::Json, &texts[0], &documents[..1]);
        prop_assert_eq!(ours, wanted, "{}", texts[0]);
        let (form, body) = if lines {
            (Form::JsonLines, texts.join("\n"))
        } else {
            (Form::EventStream, texts.iter().map(|text| format!("data: {text}\n\n")).collect())
        };
        let (ours, wanted) = costs(form, &body, &documents);
        prop_assert_eq!(ours, wanted, "{}", body);
    }

    /// A number counts if all of it is one, by another reader of JSON.
    #[test]
    fn no_number_is_read_by_its_beginning(
        text in "-?[0-9_]{0,4}(\\.[0-9_]{0,3}|)([eE][-+]?[0-9]{0,2}|)[-+._ex0-9\"/a\u{661}]{0,2}", cuts in cuts(),
    ) {
        let body = format!("{{\"a\": {text}}}");
        let theirs = serde_json::from_str::<Json>(&text);
        // serde_json stops at a number that is too large for floating point, whatever follows.
        prop_assume!(!theirs.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range")));
        let theirs = theirs.is_ok_and(|value| value.is_number());
        let paths = Rc::new(Paths::new(&["a"]).unwrap());
        let (scanner, _) = read(Form::Json, &paths, pieces(body.as_bytes(), &cuts));
        let is_below = text.starts_with('-') && text.split(['e', 'E']).next().unwrap().contains(|digit| matches!(digit, '1'..='9'));
        prop_assert_eq!(sum_of(&[0]).last(&scanner).is_some(), theirs && !is_below, "{}", body);
    }
}

/// The number at the first of these paths that has one.
fn sum_of(paths: &[usize]) -> Sum {
    Sum::new(vec![(Weight::parse("1").unwrap(), paths.to_vec())]).unwrap()
}
