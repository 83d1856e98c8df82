// SPDX-License-Identifier: Apache-2.0
//! Hosts, pairs and bodies at the bounds of what is read.

use std::borrow::Cow;
use std::rc::Rc;

use weir::config::{Config, Evaluation};
use weir::request::body::{Body, Wanted};
use weir::request::client_ip::Trust;
use weir::request::enquiry::Endpoint;
use weir::request::pairs::{self, LONGEST_PAIRS, Query, Semicolon};
use weir::request::path::LONGEST_PATH;
use weir::request::sample::Sample;
use weir::request::{Attributes, Request, Unreadable};

#[test]
fn hosts() {
    for (sent, host) in [
        ("Example.COM:8080", "example.com"),
        ("example.com.:80", "example.com"),
        ("example.com:", "example.com"),
        ("[2001:db8::1]:80", "[2001:db8::1]"),
        ("[v1]:80", "[v1]"),
    ] {
        let (sample, trust) = (Sample::default().host(sent), Trust::default());
        assert_eq!(Request::new(&sample, &trust).host(), Ok(Some(host.as_bytes())), "{sent}");
    }
    for sent in [
        "a.example:http",
        "a.example:80:80",
        "2001:db8::1",
        "[::1]a",
        "b@a.example",
        "%61.example",
        "ä.example",
    ] {
        let (sample, trust) = (Sample::default().host(sent), Trust::default());
        assert_eq!(Request::new(&sample, &trust).host(), Err(Unreadable), "{sent}");
    }
}

#[test]
fn the_documented_bounds() {
    assert_eq!((LONGEST_PAIRS, LONGEST_PATH), (16_384, 8_192));
}

#[test]
fn a_query_of_the_longest_length_is_read_whole() {
    for (length, truncated) in [(LONGEST_PAIRS, false), (LONGEST_PAIRS + 1, true)] {
        let text = [b"a=", "x".repeat(length - 2).as_bytes()].concat();
        let query = Query::new(&text);
        let pairs = query.readings(Semicolon::Ambiguous).next().expect("a reading");
        assert_eq!(pairs.truncated(), truncated, "{length}");
    }
}

#[test]
fn a_cookie_has_the_readings_of_all_servers() {
    let text = b"a=\"%41+\"; b=2";
    let pairs = pairs::cookies(text);
    let readings = |name: &[u8]| -> Vec<_> {
        let values = pairs::cookie(&pairs, text, name).expect("clear");
        let readings = values.into_iter().flat_map(|value| value.readings());
        readings.map(|value| String::from_utf8(value.value().into_owned()).unwrap()).collect()
    };
    assert_eq!(readings(b"a"), ["A+", "%41+", "\"%41+\""]);
    assert_eq!(readings(b"b"), ["2"]);
    // Undertow ends it at the `=`.
    for (text, wanted) in
        [("a=b=", ["b", "b="]), ("a=b==", ["b", "b=="]), ("a=\"b=c=\"", ["b=c=", "\"b=c=\""])]
    {
        let pairs = pairs::cookies(text.as_bytes());
        let values = pairs::cookie(&pairs, text.as_bytes(), b"a").expect("clear");
        let readings = values.into_iter().flat_map(|value| value.readings());
        assert_eq!(
            readings.map(|value| value.value().into_owned()).collect::<Vec<_>>(),
            wanted.map(str::as_bytes)
        );
    }
}

#[test]
fn a_value_with_a_byte_that_servers_read_differently_is_not_clear() {
    for byte in 0..=u8::MAX {
        let text = [b"k=a".as_slice(), &[byte], b"z"].concat();
        let query = Query::new(&text);
        let parameters = query.readings(Semicolon::Literal).next().expect("a reading");
        // `%z` is no escape.
        let is_clear = matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=0x7f) && byte != b'%';
        assert_eq!(pairs::parameters(parameters, &text, b"k").is_ok(), is_clear, "parameter, {byte}");
        let cookies = pairs::cookies(&text);
        // A comma ends a cookie for some servers, and other marks its value.
        let is_clear = is_clear && byte.is_ascii_graphic() && !b"\",\\[]()<=>?@{}".contains(&byte);
        assert_eq!(pairs::cookie(&cookies, &text, b"k").is_ok(), is_clear, "cookie, {byte}");
    }
}

#[test]
fn pairs_are_counted() {
    for (text, count) in [("", 0), ("a=1", 1), ("a=1&b=2&c", 3)] {
        let query = Query::new(text.as_bytes());
        let pairs = query.readings(Semicolon::Ambiguous).next().expect("a reading");
        assert_eq!(pairs.count(), count, "{text:?}");
    }
}

#[test]
fn a_sample_can_lack_a_header() {
    let sample = Sample::default().header("x-a", "1").header("x-b", "2").without("x-a");
    let found =
        ["x-a", "x-b", ":path"].map(|name| Attributes::header(&sample, name).expect("readable").is_some());
    assert_eq!(found, [false, true, true]);
}

/// The attributes that a host shows of a request at first: its headers.
struct HeadersOnly;

impl Attributes for HeadersOnly {
    fn header(&self, _: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(None)
    }

    fn header_lines(&self, _: &str) -> Result<usize, Unreadable> {
        Ok(1)
    }

    fn property(&self, _: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(None)
    }
}

#[test]
fn a_body_is_waited_for_unless_it_is_there() {
    let policy = r#"{"name": "p", "subject": [{"body_json": {"path": "user"}}],
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]}"#;
    let config = Config::parse(format!(r#"{{"policies": [{policy}]}}"#).as_bytes());
    let config = config.unwrap_or_else(|errors| panic!("{errors:?}"));
    assert!(matches!(config.evaluate(&HeadersOnly), Evaluation::AwaitBody(_)));
}

#[test]
fn bodies_at_their_bound() {
    let wanted = Rc::new(Wanted::new(vec!["n".into()], 8).expect("a path"));
    for (name, chunks, is_unreadable) in [
        ("the longest", &["{\"n\":1} "][..], false),
        ("a byte more, after the document", &["{\"n\":1} ", " "], true),
        ("an error, before its end", &["{\"n\":1}}"], true),
    ] {
        let mut body = Body::new(&wanted, &Sample::default());
        chunks.iter().for_each(|chunk| body.feed(chunk.as_bytes()));
        assert_eq!(body.is_unreadable(), is_unreadable, "{name}");
        assert_eq!(body.is_read(), is_unreadable, "{name}: what is wrong stays wrong");
        body.end();
        assert_eq!((body.is_read(), body.is_unreadable()), (true, is_unreadable), "{name}");
    }
    for (length, is_unreadable) in [("8", false), ("9", true)] {
        let sample = Sample::default().header("content-length", length);
        assert_eq!(Body::whole(&wanted, &sample, b"{\"n\":1} ").is_unreadable(), is_unreadable, "{length}");
    }
}

#[test]
fn a_value_that_needs_no_body_leaves_the_body_awaited() {
    let wanted = Rc::new(Wanted::new(vec!["n".into()], 8).expect("a path"));
    let (sample, trust) = (Sample::default().header("content-length", "7"), Trust::default());
    let request = Request::new(&sample, &trust).before_body(&wanted);
    assert!(!request.awaits_body());
    assert_eq!(request.without_body(|| request.body_number("n").is_err()), None);
    assert!(request.awaits_body());
    assert_eq!(request.without_body(|| 1), Some(1));
    assert!(request.awaits_body());
}

#[test]
fn an_enquiry_has_the_header_lines_of_its_request() {
    let endpoint = Endpoint { method: b"GET".to_vec(), path: b"/quota".to_vec() };
    let sample = Sample::default().path("/quota?path=/a").header("x-user", "a").header("x-user", "b");
    let trust = Trust::default();
    let request = Request::new(&sample, &trust);
    let asked = endpoint.asked(&request).expect("an enquiry");
    for (name, lines) in [("x-user", 2), ("x-none", 0), (":path", 1)] {
        assert_eq!(asked.header_lines(name), Ok(lines), "{name}");
    }
    assert!(!asked.has_body());
}
