// SPDX-License-Identifier: Apache-2.0
//! RESP2: what is written, what is read, and that where a stream is cut makes no difference.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::resp::{self, Bounds, MAX_BULK, MAX_DEPTH, MAX_ITEMS, MAX_LINE, Malformed, Reply, Scanner};

fn bulk(bytes: &[u8]) -> Reply<'_> {
    Reply::Bulk(Some(bytes))
}

fn array<const N: usize>(items: [Reply<'_>; N]) -> Reply<'_> {
    Reply::Array(Some(items.into()))
}

/// Named complete values, and what they say.
fn values() -> Vec<(&'static str, &'static [u8], Reply<'static>)> {
    vec![
        ("simple", b"+OK\r\n", Reply::Simple(b"OK")),
        ("simple, empty", b"+\r\n", Reply::Simple(b"")),
        ("simple, not UTF-8", b"+\xff\x00\r\n", Reply::Simple(b"\xff\x00")),
        ("error", b"-NOSCRIPT No matching script.\r\n", Reply::Error(b"NOSCRIPT No matching script.")),
        (
            "error, longer than a number",
            b"-ERR 012345678901234567890\r\n",
            Reply::Error(b"ERR 012345678901234567890"),
        ),
        ("integer", b":42\r\n", Reply::Integer(42)),
        ("integer, signed", b":-1\r\n", Reply::Integer(-1)),
        ("integer, plus sign", b":+7\r\n", Reply::Integer(7)),
        ("integer, least", b":-9223372036854775808\r\n", Reply::Integer(i64::MIN)),
        ("integer, greatest", b":9223372036854775807\r\n", Reply::Integer(i64::MAX)),
        ("bulk", b"$3\r\nfoo\r\n", bulk(b"foo")),
        ("bulk, empty", b"$0\r\n\r\n", bulk(b"")),
        ("bulk, null", b"$-1\r\n", Reply::Bulk(None)),
        ("bulk that looks like framing", b"$8\r\n\r\n+OK\r\n*\r\n", bulk(b"\r\n+OK\r\n*")),
        ("array, empty", b"*0\r\n", array([])),
        ("array, null", b"*-1\r\n", Reply::Array(None)),
        ("array, mixed", b"*4\r\n:1\r\n$-1\r\n-E\r\n$1\r\nx\r\n", {
            array([Reply::Integer(1), Reply::Bulk(None), Reply::Error(b"E"), bulk(b"x")])
        }),
        ("array, nested", b"*3\r\n*2\r\n:1\r\n*0\r\n*-1\r\n*1\r\n+a\r\n", {
            array([array([Reply::Integer(1), array([])]), Reply::Array(None), array([Reply::Simple(b"a")])])
        }),
        ("array, as deep as allowed", b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:5\r\n", {
            (0..MAX_DEPTH).fold(Reply::Integer(5), |inner, _| array([inner]))
        }),
    ]
}

/// Named bytes that cannot become a value, whatever follows.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let over = |kind: char, max: usize| format!("{kind}{}\r\n", max + 1).into_bytes();
    vec![
        ("HTTP", b"HTTP/1.1 200 OK\r\n".into()),
        ("an empty line", b"\r\n".into()),
        ("RESP3 null", b"_\r\n".into()),
        ("LF alone ends a line", b"+OK\n".into()),
        ("CR inside a line", b"+a\rb\r\n".into()),
        ("integer without digits", b":\r\n".into()),
        ("integer with a sign only", b":-\r\n".into()),
        ("integer with a space", b": 1\r\n".into()),
        ("integer with a fraction", b":1.5\r\n".into()),
        ("integer out of range", b":9223372036854775808\r\n".into()),
        ("integer with too many digits", b":000000000000000000001".into()),
        ("bulk of negative length", b"$-2\r\n".into()),
        ("bulk of absurd length", over('$', MAX_BULK)),
        ("bulk longer than it says", b"$2\r\nfoo\r\n".into()),
        ("bulk that ends in CR CR", b"$1\r\nx\r\r".into()),
        ("array of negative length", b"*-7\r\n".into()),
        ("array of absurd length", over('*', MAX_ITEMS)),
        ("array with a malformed item", b"*2\r\n:1\r\nx".into()),
        ("array one too deep", b"*1\r\n".repeat(MAX_DEPTH + 1)),
        ("line one too long", [b"+".as_slice(), &b"x".repeat(MAX_LINE + 1)].concat()),
    ]
}

/// The bound is stated, so it is a number here.
#[test]
fn an_array_has_so_many_items_at_most() {
    for (items, is_taken) in [(1_048_576, true), (1_048_577, false)] {
        assert_eq!(ends([format!("*{items}\r\n").as_bytes()]).is_ok(), is_taken, "{items}");
    }
}

/// The ends of values in `chunks`, as offsets into the whole.
fn ends<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<usize>, Malformed> {
    let (mut scanner, mut ends, mut passed) = (Scanner::new(), Vec::new(), 0);
    for mut chunk in chunks {
        while let Some(n) = scanner.scan(chunk)? {
            passed += n;
            chunk = chunk.split_at(n).1;
            ends.push(passed);
        }
        passed += chunk.len();
    }
    Ok(ends)
}

#[test]
fn writes_commands_from_lengths() {
    type Write = fn(&mut Vec<u8>);
    #[rustfmt::skip]
    let cases: [(&str, Write, &[u8]); 6] = [
        ("array header", |out| resp::array_header(out, 12), b"*12\r\n"),
        ("bulk", |out| resp::bulk(out, b"GET"), b"$3\r\nGET\r\n"),
        ("bulk, empty", |out| resp::bulk(out, b""), b"$0\r\n\r\n"),
        ("bulk of framing bytes", |out| resp::bulk(out, b"\"\r\n$\0"), b"$5\r\n\"\r\n$\0\r\n"),
        ("bulk of an integer", |out| resp::bulk_int(out, 1_750_000_000_000_000), b"$16\r\n1750000000000000\r\n"),
        ("bulk of the least integer", |out| resp::bulk_int(out, i64::MIN), b"$20\r\n-9223372036854775808\r\n"),
    ];
    for (name, write, expected) in cases {
        let mut out = b"before".to_vec();
        write(&mut out);
        assert_eq!(out, [b"before", expected].concat(), "{name}");
    }
}

#[test]
fn decodes_complete_values_and_leaves_the_rest() {
    for (name, bytes, expected) in values() {
        let input = [bytes, b"+next"].concat();
        assert_eq!(resp::decode(&input), Ok(Some((expected, bytes.len()))), "{name}");
    }
}

#[test]
fn every_proper_prefix_is_incomplete() {
    for (name, bytes, _) in values() {
        for cut in 0..bytes.len() {
            assert_eq!(resp::decode(&bytes[..cut]), Ok(None), "{name}, first {cut} bytes");
        }
    }
}

#[test]
fn refuses_what_cannot_become_a_value() {
    for (name, bytes) in malformed() {
        assert_eq!(resp::decode(&bytes), Err(Malformed), "{name}");
        let mut scanner = Scanner::new();
        assert!(scanner.scan(&bytes).is_err(), "{name}, scanned");
        assert!(scanner.scan(b"+OK\r\n").is_err(), "{name}: a lost stream stays lost");
    }
}

#[test]
fn values_at_their_bounds_pass() {
    let cases = [
        ("line", [b"+".as_slice(), &b"x".repeat(MAX_LINE), b"\r\n"].concat()),
        ("bulk", [format!("${MAX_BULK}\r\n").as_bytes(), &b"x".repeat(MAX_BULK), b"\r\n"].concat()),
        ("items", [format!("*{MAX_ITEMS}\r\n").as_bytes(), &b":1\r\n".repeat(MAX_ITEMS)].concat()),
    ];
    for (name, bytes) in cases {
        let decoded = resp::decode(&bytes).expect(name).map(|(_, length)| length);
        assert_eq!(decoded, Some(bytes.len()), "{name}");
    }
}

/// The line that announces too much is the last that is read: a peer cannot make weir read the rest.
#[test]
fn what_exceeds_narrower_bounds_is_refused_at_its_header() {
    let bounds = Bounds { line: 4, bulk: 3, items: 2, depth: 1 };
    for (name, within, beyond) in [
        ("items", b"*2\r\n:1\r\n:2\r\n".as_slice(), b"*3\r\n".as_slice()),
        ("bulk", b"$3\r\nabc\r\n", b"$4\r\n"),
        ("line", b"-four\r\n", b"-fives"),
        ("depth", b"*1\r\n*0\r\n", b"*1\r\n*1\r\n"),
    ] {
        let read = resp::decode_within(within, bounds).expect(name).map(|(_, length)| length);
        assert_eq!(read, Some(within.len()), "{name}");
        assert!(resp::decode_within(beyond, bounds).is_err(), "{name}");
        assert_eq!(resp::decode(beyond), Ok(None), "{name}: by itself it may go on");
        let (last, first) = beyond.split_last().expect("a line");
        let mut scanner = Scanner::within(bounds);
        assert_eq!(scanner.scan(first), Ok(None), "{name}");
        assert!(scanner.scan(&[*last]).is_err(), "{name}");
    }
}

#[test]
fn ends_are_the_same_wherever_the_stream_is_cut() {
    let stream: Vec<u8> = values().iter().flat_map(|(_, bytes, _)| bytes.iter().copied()).collect();
    let expected: Vec<usize> = values()
        .iter()
        .scan(0, |end, (_, bytes, _)| {
            *end += bytes.len();
            Some(*end)
        })
        .collect();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(ends([head, tail]).as_ref(), Ok(&expected), "cut at {cut}");
    }
    assert_eq!(ends(stream.chunks(1)), Ok(expected), "byte by byte");
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are often almost RESP: that is where two readers of one grammar would part.
    fn nearly_resp() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            4 => proptest::sample::select(values()).prop_map(|(_, bytes, _)| bytes.to_vec()),
            2 => (0..4_usize).prop_map(|n| format!("*{n}\r\n").into_bytes()),
            2 => (-2..12_i64).prop_map(|n| format!("${n}\r\n").into_bytes()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
            1 => proptest::sample::select(vec![b"\r".to_vec(), b"\n".to_vec(), b"\r\n".to_vec(), b":".to_vec()]),
        ];
        proptest::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bulk_written_is_read_back(bytes: Vec<u8>, number: i64) {
            let mut out = Vec::new();
            resp::array_header(&mut out, 2);
            resp::bulk(&mut out, &bytes);
            resp::bulk_int(&mut out, number);
            let digits = number.to_string();
            let expected = array([bulk(&bytes), bulk(digits.as_bytes())]);
            prop_assert_eq!(resp::decode(&out), Ok(Some((expected, out.len()))));
        }

        #[test]
        fn any_cuts_give_the_same_ends(
            input in nearly_resp(),
            mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(input.len() + 1)).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]);
            prop_assert_eq!(ends(chunks), ends([input.as_slice()]));
        }

        #[test]
        fn decoding_one_by_one_finds_the_same_ends(input in nearly_resp()) {
            let (mut found, mut at) = (Vec::new(), 0);
            let decoded = loop {
                match resp::decode(&input[at..]) {
                    Ok(Some((_, length))) => at += length,
                    Ok(None) => break Ok(found),
                    Err(malformed) => break Err(malformed),
                }
                found.push(at);
            };
            // They look at different things first, so the reasons differ where several are wrong.
            prop_assert_eq!(decoded.map_err(drop), ends([input.as_slice()]).map_err(drop));
        }
    }
}
