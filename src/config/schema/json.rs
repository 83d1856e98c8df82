// SPDX-License-Identifier: Apache-2.0
//! JSON as the configuration needs it. Numbers are whole. An object keeps a name that it was given twice, so that the check
//! can report it instead of silently using one of the two.

use core::fmt;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Flag(bool),
    /// A whole number that is not negative.
    Count(u64),
    /// Any other number, as it would be written.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object: names and values, in the order written.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a JSON text.
    ///
    /// # Errors
    /// What is wrong with the text, with line and column.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut reader = Reader { text, at: 0 };
        let json = reader.value(MAX_DEPTH).and_then(|json| reader.end().map(|()| json));
        json.map_err(|(message, at)| {
            let before = text.get(..at).unwrap_or(text);
            let column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("{message} at line {line} column {column}")
        })
    }

    /// The value of `name` in an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The text of a string; empty for anything else.
    #[must_use]
    pub fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }
}

/// A number of a protobuf `Struct`: always an `f64`. A whole number is a count up to 2^53, beyond which it is not exact.
///
/// Of other numbers, the configuration needs at most six decimal places. So nothing here prints an `f64`: that alone would be 12 KB.
impl From<f64> for Json {
    #[expect(
        clippy::float_arithmetic,
        reason = "the number comes from outside; what is computed of it is exact"
    )]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "in range"
    )]
    fn from(number: f64) -> Self {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let magnitude = number.abs();
        if magnitude.is_nan() || magnitude > EXACT {
            return Self::Number(String::from("a number out of range"));
        }
        let (whole, sign) = (magnitude as u64, if number < 0.0 { "-" } else { "" });
        if whole as f64 == magnitude {
            let count = if sign.is_empty() { Self::Count(whole) } else { Self::Number(format!("-{whole}")) };
            return count;
        }
        let millionths = ((magnitude - whole as f64) * 1e6 + 0.5) as u64;
        let text = format!("{sign}{whole}.{millionths:06}");
        // A quotient of integers is the `f64` nearest to it, as is the number that was written.
        let is_exact = (whole * 1_000_000 + millionths) as f64 / 1e6 == magnitude;
        Self::Number(if is_exact { text.trim_end_matches('0').to_owned() } else { text + "…" })
    }
}

/// The value for messages: as JSON, cut short where it is long.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(number) => f.write_str(number),
            Self::Text(text) => match text.char_indices().nth(64) {
                Some((end, _)) => write!(f, "{:?}…", text.get(..end).unwrap_or_default()),
                None => write!(f, "{text:?}"),
            },
            Self::List(items) => write!(f, "a list of {}", items.len()),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

/// The deepest nesting of lists and objects.
const MAX_DEPTH: u8 = 127;

/// What is wrong, and after how many bytes.
type Wrong = (&'static str, usize);

/// A JSON text while it is read (RFC 8259).
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// The next byte that is no white space.
    fn peek_token(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    /// An error at the byte that was read last.
    fn wrong<T>(&self, message: &'static str) -> Result<T, Wrong> {
        Err((message, self.at))
    }

    /// An error at the next byte.
    fn wrong_next<T>(&self, message: &'static str) -> Result<T, Wrong> {
        Err((message, self.text.len().min(self.at + 1)))
    }

    fn end(&mut self) -> Result<(), Wrong> {
        match self.peek_token() {
            None => Ok(()),
            Some(_) => self.wrong_next("trailing characters"),
        }
    }

    fn value(&mut self, depth: u8) -> Result<Json, Wrong> {
        match self.peek_token() {
            None => self.wrong_next("EOF while parsing a value"),
            Some(b'n') => self.word(b"null", Json::Null),
            Some(b't') => self.word(b"true", Json::Flag(true)),
            Some(b'f') => self.word(b"false", Json::Flag(false)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'[' | b'{') if depth == 0 => self.wrong_next("recursion limit exceeded"),
            Some(b'[') => self.list(depth - 1),
            Some(b'{') => self.object(depth - 1),
            Some(_) => self.wrong_next("expected value"),
        }
    }

    fn word(&mut self, word: &[u8], json: Json) -> Result<Json, Wrong> {
        for expected in word {
            match self.next() {
                None => return self.wrong("EOF while parsing a value"),
                Some(byte) if byte != *expected => return self.wrong("expected ident"),
                Some(_) => {}
            }
        }
        Ok(json)
    }

    fn list(&mut self, depth: u8) -> Result<Json, Wrong> {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            match self.peek_token() {
                None => return self.wrong_next("EOF while parsing a list"),
                Some(b']') => break,
                Some(_) if items.is_empty() => {}
                Some(b',') => {
                    self.at += 1;
                    if self.peek_token() == Some(b']') {
                        return self.wrong_next("trailing comma");
                    }
                }
                Some(_) => return self.wrong_next("expected `,` or `]`"),
            }
            items.push(self.value(depth)?);
        }
        self.at += 1;
        Ok(Json::List(items))
    }

    fn object(&mut self, depth: u8) -> Result<Json, Wrong> {
        let mut fields = Vec::new();
        self.at += 1;
        loop {
            match self.peek_token() {
                None => return self.wrong_next("EOF while parsing an object"),
                Some(b'}') => break,
                Some(_) if fields.is_empty() => {}
                Some(b',') => {
                    self.at += 1;
                    match self.peek_token() {
                        None => return self.wrong_next("EOF while parsing a value"),
                        Some(b'}') => return self.wrong_next("trailing comma"),
                        Some(_) => {}
                    }
                }
                Some(_) => return self.wrong_next("expected `,` or `}`"),
            }
            if self.peek() != Some(b'"') {
                return self.wrong_next("key must be a string");
            }
            let name = self.string()?;
            match self.peek_token() {
                None => return self.wrong_next("EOF while parsing an object"),
                Some(b':') => self.at += 1,
                Some(_) => return self.wrong_next("expected `:`"),
            }
            fields.push((name, self.value(depth)?));
        }
        self.at += 1;
        Ok(Json::Object(fields))
    }

    fn string(&mut self) -> Result<String, Wrong> {
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            match self.next() {
                None => return self.wrong("EOF while parsing a string"),
                Some(b'"') => break,
                Some(b'\\') => {
                    let escaped = self.escape()?;
                    bytes.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(..0x20) => {
                    return self.wrong("control character (\\u0000-\\u001F) found while parsing a string");
                }
                Some(byte) => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).or_else(|_| self.wrong("invalid unicode code point"))
    }

    fn escape(&mut self) -> Result<char, Wrong> {
        Ok(match self.next() {
            None => return self.wrong("EOF while parsing a string"),
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut code = self.hex()?;
                if let 0xd800..0xdc00 = code {
                    for expected in *b"\\u" {
                        match self.next() {
                            None => return self.wrong("EOF while parsing a string"),
                            Some(byte) if byte != expected => {
                                return self.wrong("unexpected end of hex escape");
                            }
                            Some(_) => {}
                        }
                    }
                    let low = self.hex()?.wrapping_sub(0xdc00);
                    // Of anything but the second half of a pair, this makes no character.
                    code = if low < 0x400 { ((code - 0xd800) << 10 | low) + 0x1_0000 } else { code };
                }
                match char::from_u32(code) {
                    Some(character) => character,
                    None => return self.wrong("lone leading surrogate in hex escape"),
                }
            }
            Some(_) => return self.wrong("invalid escape"),
        })
    }

    fn hex(&mut self) -> Result<u32, Wrong> {
        let Some(digits) = self.text.get(self.at..).and_then(|rest| rest.first_chunk::<4>()) else {
            self.at = self.text.len();
            return self.wrong("EOF while parsing a string");
        };
        self.at += 4;
        let digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
        let code = digits.reduce(|code, digit| Some(code? << 4 | digit?)).flatten();
        code.map_or_else(|| self.wrong("invalid escape"), Ok)
    }

    fn number(&mut self) -> Result<Json, Wrong> {
        let from = self.at;
        let is_negative = self.peek() == Some(b'-');
        self.at += usize::from(is_negative);
        match self.next() {
            None => return self.wrong("EOF while parsing a value"),
            Some(b'0') if matches!(self.peek(), Some(b'0'..=b'9')) => {
                return self.wrong_next("invalid number");
            }
            Some(b'0') => {}
            Some(b'1'..=b'9') => self.digits(),
            Some(_) => return self.wrong("invalid number"),
        }
        let mut is_whole = true;
        if self.peek() == Some(b'.') {
            is_whole = false;
            self.at += 1;
            match self.peek() {
                Some(b'0'..=b'9') => self.digits(),
                Some(_) => return self.wrong_next("invalid number"),
                None => return self.wrong_next("EOF while parsing a value"),
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            is_whole = false;
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            match self.next() {
                Some(b'0'..=b'9') => self.digits(),
                Some(_) => return self.wrong("invalid number"),
                None => return self.wrong("EOF while parsing a value"),
            }
        }
        let text = self.text.get(from..self.at).map(String::from_utf8_lossy).unwrap_or_default();
        Ok(match text.parse() {
            Ok(count) => Json::Count(count),
            Err(_) if is_whole => Json::Number(text.into_owned()),
            Err(_) => Json::Number(plain(&text).unwrap_or_else(|| text.into_owned())),
        })
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }
}

/// A number without its exponent, and without zeros that say nothing: `1000.0` for `1e3`. `None` if that would be long.
fn plain(number: &str) -> Option<String> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent.parse().ok()?)?;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    if !(-20..=20).contains(&point) {
        return None;
    }
    let length = i32::try_from(whole.len() + fraction.len()).ok()?;
    let digits = format!("{}{whole}{fraction}{}", zeros(-point), zeros(point - length));
    let (whole, fraction) = digits.split_at_checked(usize::try_from(point).unwrap_or(0))?;
    let [whole, fraction] = [whole.trim_start_matches('0'), fraction.trim_end_matches('0')];
    let or_zero = |digits: &str| if digits.is_empty() { String::from("0") } else { digits.to_owned() };
    Some(format!("{sign}{}.{}", or_zero(whole), or_zero(fraction)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn shown(value: &Value) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Flag(*flag),
            Value::Number(number) => {
                number.as_u64().map_or_else(|| Json::Number(number.to_string()), Json::Count)
            }
            Value::String(text) => Json::Text(text.clone()),
            Value::Array(items) => Json::List(items.iter().map(shown).collect()),
            Value::Object(fields) => {
                Json::Object(fields.iter().map(|(name, value)| (name.clone(), shown(value))).collect())
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Of every text it says what serde_json says: the value, or what is wrong and where.
        #[test]
        fn it_reads_what_serde_json_reads(
            text in proptest::collection::vec(prop_oneof![
                Just("["), Just("]"), Just("{"), Just("}"), Just(","), Just(":"), Just("\""), Just("\"a\":"), Just("\\"), Just("\\u00e9"),
                Just("\\ud83d"), Just("\\ude00"), Just("\\n"), Just("u"), Just("null"), Just("true"), Just("fals"), Just("-"), Just("0"), Just("12"),
                Just("."), Just("25"), Just("e"), Just("+"), Just("3"), Just(" "), Just("\n"), Just("\t"), Just("é"), Just("\u{1}"), Just("\"x\""),
            ], 0..12),
        ) {
            let text = text.concat();
            let expected = serde_json::from_str::<Value>(&text).map(|value| shown(&value));
            let read = Json::parse(text.as_bytes());
            match (read, expected) {
                // A number that `f64` cannot hold, or holds as another text.
                (_, Err(error)) if error.to_string().starts_with("number out of range") => {}
                (Ok(Json::Number(number)), Ok(Json::Number(expected))) => {
                    prop_assert_eq!(number.parse::<f64>().unwrap(), expected.parse::<f64>().unwrap());
                }
                (read, expected) => prop_assert_eq!(read, expected.map_err(|error| error.to_string()), "{}", text),
            }
        }
    }

    #[test]
    fn an_f64_is_the_number_that_was_written() {
        let cases = [
            (0.0, Json::Count(0)),
            (-0.0, Json::Count(0)),
            (5.0, Json::Count(5)),
            (9_007_199_254_740_992.0, Json::Count(1 << 53)),
            (-5.0, Json::Number("-5".into())),
            (0.1, Json::Number("0.1".into())),
            (-2.25, Json::Number("-2.25".into())),
            (999_999.999_999, Json::Number("999999.999999".into())),
            (0.000_001, Json::Number("0.000001".into())),
            (0.1 + 0.2, Json::Number("0.300000…".into())),
            (0.000_000_1, Json::Number("0.000000…".into())),
            (1e300, Json::Number("a number out of range".into())),
            (f64::NAN, Json::Number("a number out of range".into())),
        ];
        for (number, expected) in cases {
            assert_eq!(Json::from(number), expected, "{number}");
        }
        for millionths in (0..1_000_000_000_000_u64).step_by(7_777_777_777).chain(0..100_000) {
            let (whole, places) = (millionths / 1_000_000, millionths % 1_000_000);
            let written = format!("{whole}.{places:06}");
            let expected = match written.trim_end_matches('0').strip_suffix('.') {
                Some(_) => Json::Count(whole),
                None => Json::Number(written.trim_end_matches('0').to_owned()),
            };
            assert_eq!(Json::from(written.parse::<f64>().unwrap()), expected, "{written}");
        }
    }

    #[test]
    fn a_number_is_read_without_its_exponent() {
        let cases = [
            ("1e3", "1000.0"),
            ("10.50", "10.5"),
            ("1.0", "1.0"),
            ("0.5E+1", "5.0"),
            ("25e-2", "0.25"),
            ("25e-4", "0.0025"),
            ("0e0", "0.0"),
            ("-1.5e1", "-15.0"),
            ("10000000e-7", "1.0"),
            ("1e400", "1e400"),
            ("1e99999999999", "1e99999999999"),
        ];
        for (text, expected) in cases {
            assert_eq!(Json::parse(text.as_bytes()), Ok(Json::Number(expected.into())), "{text}");
        }
    }
}
