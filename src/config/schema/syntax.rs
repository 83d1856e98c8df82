// SPDX-License-Identifier: Apache-2.0
//! The strings of a configuration that have a syntax of their own: durations, rates, names, networks, paths, hosts, regular
//! expressions. Each has one reader; a [`Syntax`] checks whether that reader succeeds.

use core::ops::RangeInclusive;

use super::shape::{Mismatch, Syntax};
use crate::body::{MAX_PATH_LENGTH, Paths, Weight};
use crate::limit::{MAX_UNITS, MAX_WINDOW, MIN_WINDOW, UtcOffset};
use crate::policy::key::LONGEST_PREFIX;
use crate::policy::pattern::{Pattern, compile};
use crate::request::client_ip::Network;
use crate::request::path::{DecodedPath, Path};
use crate::response::{Kind, Template};
use crate::time::Micros;

/// Units of duration, with their length in microseconds.
const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// The suffixes of a count that is written as text, with their factors.
const MULTIPLES: [(char, u64); 3] = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];

/// The syntax of a count that is written as text, as a regular expression.
pub const COUNT_PATTERN: &str = "^(0|[1-9](_?[0-9])*[kMG]?)$";

/// The same in words, after the bounds of the count.
pub const COUNT_FORMS: &str = ", as text such as \"50_000\", \"10k\", \"2M\" or \"1G\"";

/// The syntax of a duration, as a regular expression.
pub const DURATION_PATTERN: &str = "^[0-9]+(us|ms|s|m|h|d)$";

/// A number of units in each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// The number of units; from 1.
    pub count: u64,
    /// The length of a period; from 1 ms.
    pub per: Micros,
}

/// Reads a count that is written as text: digits, with `_` between them where that helps to read, and `k`, `M` or `G` for so many
/// thousands, millions or thousand millions. Envoy, too, makes a string of a number over 2^31, and of `50_000`, when it makes a
/// `Struct` of YAML. A zero before other digits is an error, because YAML reads `010` as eight.
#[must_use]
pub fn count(text: &str) -> Option<u64> {
    let multiple = MULTIPLES.iter().find_map(|(letter, times)| Some((text.strip_suffix(*letter)?, *times)));
    let (digits, times) = multiple.unwrap_or((text, 1));
    let groups = || digits.split('_');
    let is_whole = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    if !groups().all(is_whole) || digits.starts_with('0') && text != "0" {
        return None;
    }
    groups().collect::<String>().parse::<u64>().ok()?.checked_mul(times)
}

/// The count that was probably meant: without spaces, and with the letter as it is to be written.
#[must_use]
pub fn nearest_count(text: &str) -> Option<String> {
    let mut meant: String = text.chars().filter(|letter| *letter != ' ').collect();
    let letter = meant.pop()?;
    meant.push(if letter == 'K' {
        'k'
    } else if matches!(letter, 'm' | 'g') {
        letter.to_ascii_uppercase()
    } else {
        letter
    });
    (meant != text && count(&meant).is_some()).then_some(meant)
}

/// Reads a duration: a whole number and a unit.
#[must_use]
pub fn duration(text: &str) -> Option<Micros> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*length).map(Micros)
}

/// Longer names of the units.
const NAMES: [(&str, &str); 8] = [
    ("msec", "ms"),
    ("millisecond", "ms"),
    ("sec", "s"),
    ("second", "s"),
    ("min", "m"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
];

/// The duration that was probably meant: without spaces, and with the unit as it is to be written.
#[must_use]
pub fn nearest_duration(text: &str) -> Option<String> {
    let meant: String = text.chars().filter(|letter| *letter != ' ').collect::<String>().to_ascii_lowercase();
    let digits = meant.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = meant.split_at_checked(digits)?;
    let known = NAMES.iter().find(|(name, _)| *name == unit || unit.strip_suffix('s') == Some(name));
    let meant = format!("{number}{}", known.map_or(unit, |(_, unit)| unit));
    (meant != text && duration(&meant).is_some()).then_some(meant)
}

/// The rate that was probably meant.
fn nearest_rate(text: &str) -> Option<String> {
    let (count, per) = text.split_once('/')?;
    let (count, per) = (count.trim(), per.trim());
    let count = nearest_count(count).unwrap_or_else(|| count.to_owned());
    let per = match per.starts_with(|first: char| first.is_ascii_digit()) {
        true => nearest_duration(per),
        false => nearest_duration(&format!("1{per}")).and_then(|of| of.strip_prefix('1').map(str::to_owned)),
    }
    .unwrap_or_else(|| per.to_owned());
    let meant = format!("{count}/{per}");
    (meant != text && rate(&meant).is_some()).then_some(meant)
}

/// The shortest way to write a duration.
#[must_use]
pub fn duration_text(duration: Micros) -> String {
    let unit = UNITS.iter().rev().find(|(_, length)| duration.0.is_multiple_of(*length) && duration.0 != 0);
    unit.map_or_else(|| String::from("0s"), |(name, length)| format!("{}{name}", duration.0 / length))
}

/// Reads a rate: `10/s`, `100/5m`, `10k/s`.
#[must_use]
pub fn rate(text: &str) -> Option<Rate> {
    let (count, per) = text.split_once('/')?;
    let count = self::count(count)?;
    let per = duration(per).or_else(|| duration(&format!("1{per}")))?;
    let fits = (1..=MAX_UNITS).contains(&count) && (MIN_WINDOW..=MAX_WINDOW).contains(&per);
    fits.then_some(Rate { count, per })
}

fn ok_if(holds: bool) -> Result<(), Mismatch> {
    if holds { Ok(()) } else { Err(Mismatch::default()) }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Any text.
pub static TEXT: Syntax = Syntax {
    name: "text",
    allowed: "1 to 1024 bytes",
    pattern: "[\\s\\S]",
    max: 1024,
    number: None,
    check: |text| ok_if(!text.is_empty()),
};

/// Reads statuses of HTTP: `404`, `4xx` or `500-503`.
#[must_use]
pub fn statuses(text: &str) -> Option<RangeInclusive<u16>> {
    let status = |text: &str| {
        let is_status = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|status| is_status && (100..=599).contains(status))
    };
    if let Some(class) = text.strip_suffix("xx") {
        let first = status(&format!("{class}00"))?;
        return Some(first..=status(&format!("{class}99"))?);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (status(first)?, status(last)?);
    (first <= last).then_some(first..=last)
}

/// Reads an offset from UTC: `+02:00`.
#[must_use]
pub fn utc_offset(text: &str) -> Option<UtcOffset> {
    let (sign, time) = text.split_at_checked(1)?;
    let ahead = i16::try_from(minutes_of(time)?).ok()?;
    match sign {
        "+" if ahead <= 14 * 60 => Some(UtcOffset::from_minutes(ahead)),
        "-" if ahead <= 12 * 60 => Some(UtcOffset::from_minutes(ahead.saturating_neg())),
        _ => None,
    }
}

/// The minutes of hours and minutes, such as `09:30`.
fn minutes_of(time: &str) -> Option<u16> {
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse::<u16>().ok() } else { None }
    };
    let (hours, minutes) = time.split_once(':')?;
    let minutes = number(minutes).filter(|minutes| *minutes < 60)?;
    Some(number(hours)?.saturating_mul(60).saturating_add(minutes))
}

/// The first minute of a span of a day, and the first after it.
#[must_use]
pub fn day_span(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (minutes_of(from)?, minutes_of(to)?);
    (from != to && from < 24 * 60 && to <= 24 * 60).then_some((from, to))
}

/// A span of a day.
pub static DAY_SPAN: Syntax = Syntax {
    name: "day_span",
    allowed: "two different times from `00:00` to `24:00`, such as `09:00-17:30` or `22:00-06:00`",
    pattern: "^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$",
    max: 11,
    number: None,
    check: |text| ok_if(day_span(text).is_some()),
};

/// Offsets from UTC; these are all that are in use.
pub static UTC_OFFSET: Syntax = Syntax {
    name: "utc_offset",
    allowed: "an offset from `-12:00` to `+14:00`, such as `+02:00`",
    pattern: "^([+](0[0-9]|1[0-3]):[0-5][0-9]|[+]14:00|-(0[0-9]|1[01]):[0-5][0-9]|-12:00)$",
    max: 6,
    number: None,
    check: |text| ok_if(utc_offset(text).is_some()),
};

/// One or several statuses of HTTP.
pub static STATUS: Syntax = Syntax {
    name: "status",
    allowed: "a status from 100 to 599, a class such as `4xx`, or a range such as `500-503`",
    pattern: "^[1-5]([0-9][0-9]|xx|[0-9][0-9]-[1-5][0-9][0-9])$",
    max: 7,
    number: Some((100, 599)),
    check: |text| ok_if(statuses(text).is_some()),
};

/// The path of a value in a JSON body.
pub static BODY_PATH: Syntax = Syntax {
    name: "body_path",
    allowed: "a path of up to 32 keys and indexes, such as `usage.total_tokens`, `items[0].n`, `items[*].n` or `['a.b'].n`",
    pattern: "",
    max: MAX_PATH_LENGTH,
    number: None,
    check: |text| match Paths::new(&[text]) {
        Ok(_) => Ok(()),
        Err((byte, allowed)) => {
            let detail = format!("at byte {byte}: {allowed}");
            Err(Mismatch { detail: Some(detail), nearest: None })
        }
    },
};

/// The weight of a number in a sum.
pub static WEIGHT: Syntax = Syntax {
    name: "weight",
    allowed: "a number from 0 to 1000000, with up to six decimal places, such as `1` or `\"0.25\"`",
    pattern: "^[0-9]{1,7}(\\.[0-9]{1,6})?$",
    max: 14,
    number: Some((0, 1_000_000)),
    check: |text| ok_if(Weight::parse(text).is_some()),
};

/// The name of a language model, or what it begins with.
pub static MODEL: Syntax = Syntax {
    name: "model",
    allowed: "the name of a model, of 1 to 256 bytes; a `*` at its end stands for any rest",
    pattern: "^([^*]+[*]?|[*])$",
    max: 256,
    number: None,
    check: |text| ok_if(!text.is_empty() && !text.strip_suffix('*').unwrap_or(text).contains('*')),
};

/// The body of a response.
pub static BODY: Syntax = Syntax {
    name: "body",
    allowed: "up to 65536 bytes, with the placeholders `{retry_after}`, `{limit}`, `{policy}` and `{request_id}`; `{{word}` is the text `{word}`",
    pattern: "",
    max: 65536,
    number: None,
    check: placeholders,
};

/// The name of a header that a rejection gets beside those that weir and Envoy write.
pub static ADDED_HEADER: Syntax = Syntax {
    name: "added_header_name",
    allowed: "a header name in lower case, not of one that weir or Envoy writes",
    pattern: HEADER.pattern,
    max: HEADER.max,
    number: None,
    check: |text| {
        let taken = "^(access-control-.*|connection|content-(encoding|length|type)|date|grpc-.*|keep-alive|proxy-connection|\
            (.*-)?ratelimit.*|retry-after(-ms)?|server|te|trailer|transfer-encoding|upgrade|vary|x-envoy-.*|x-should-retry)$";
        (HEADER.check)(text)?;
        ok_if(!matches(taken, text))
    },
};

/// The value of a header of a rejection.
pub static HEADER_VALUE: Syntax = Syntax {
    name: "header_value",
    allowed: "1 to 1024 printable characters of ASCII, with placeholders as in `body`",
    pattern: "^[!-~]([ -~]*[!-~])?$",
    max: 1024,
    number: None,
    check: |text| {
        ok_if(matches(HEADER_VALUE.pattern, text))?;
        placeholders(text)
    },
};

fn placeholders(text: &str) -> Result<(), Mismatch> {
    let unknown = |word| Mismatch { detail: Some(format!("`{{{word}}}` is no placeholder")), nearest: None };
    Template::new(Kind::Text, text).map(drop).map_err(unknown)
}

/// True if the pattern of a syntax, which has both ends, matches.
#[inline(never)]
fn matches(pattern: &str, text: &str) -> bool {
    compile(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

/// The origins of web pages, as browsers send them.
pub static ORIGIN: Syntax = Syntax {
    name: "origin",
    allowed: "an origin in lower case: `https://app.example.com`, `http://localhost:3000`, `https://*.example.com`, or `*`",
    pattern: "^([a-z][a-z0-9+.-]*://([*][.])?[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?|[*])$",
    max: 253,
    number: None,
    check: |text| ok_if(matches(ORIGIN.pattern, text)),
};

/// Secrets: too long to be guessed, and without letters that files have in several encodings.
pub static SECRET: Syntax = Syntax {
    name: "secret",
    allowed: "16 to 1024 printable characters of ASCII",
    // Without the upper bound, which is `max`: regular expressions of Go, and so of Helm, count to 1000.
    pattern: "^[ -~]{16,}$",
    max: 1024,
    number: None,
    check: |text| ok_if(text.len() >= 16 && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))),
};

/// Names of environment variables (POSIX).
pub static VARIABLE: Syntax = Syntax {
    name: "variable",
    allowed: "1 to 256 letters, digits or `_`, the first no digit",
    pattern: "^[A-Za-z_][A-Za-z0-9_]{0,255}$",
    max: 256,
    number: None,
    check: |text| {
        ok_if(
            !text.is_empty()
                && !text.starts_with(|first: char| first.is_ascii_digit())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        )
    },
};

/// The prefix of keys: nothing that a pattern of `SCAN` or of an ACL would read as more than itself.
pub static KEY_PREFIX: Syntax = Syntax {
    name: "key_prefix",
    allowed: "1 to 32 letters, digits, `_`, `-` or `.`",
    pattern: "^[A-Za-z0-9_.-]{1,32}$",
    max: LONGEST_PREFIX,
    number: None,
    check: |text| {
        ok_if(
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)),
        )
    },
};

/// Names of policies, limits and tiers.
pub static NAME: Syntax = Syntax {
    name: "name",
    allowed: "1 to 64 letters, digits, `_`, `-` or `.`, the first a letter or digit",
    pattern: "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
    max: 64,
    number: None,
    check: |text| {
        ok_if(
            text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)),
        )
    },
};

/// Header names (RFC 9110 §5.1), in lower case as Envoy has them.
pub static HEADER: Syntax = Syntax {
    name: "header_name",
    allowed: "a header name in lower case",
    pattern: "^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$",
    max: 128,
    number: None,
    check: |text| {
        if !text.is_empty() && text.bytes().all(is_token) {
            let lower = text.to_ascii_lowercase();
            return if lower == text {
                Ok(())
            } else {
                Err(Mismatch { nearest: Some(lower), ..Mismatch::default() })
            };
        }
        Err(Mismatch::default())
    },
};

/// Request methods (RFC 9110 §9.1).
pub static METHOD: Syntax = Syntax {
    name: "method",
    allowed: "a request method in capitals",
    pattern: "^[A-Z0-9!#$%&'*+.^_`|~-]{1,32}$",
    max: 32,
    number: None,
    check: |text| {
        let upper = text.to_ascii_uppercase();
        if !text.is_empty() && text.bytes().all(is_token) && upper != text {
            return Err(Mismatch { nearest: Some(upper), ..Mismatch::default() });
        }
        ok_if(!text.is_empty() && text.bytes().all(is_token))
    },
};

/// Hosts to match.
pub static HOST: Syntax = Syntax {
    name: "host",
    allowed: "a host in lower case without port (an international name as `xn--…`), or `*.` and a domain for all hosts below it",
    pattern: "^(\\*\\.)?[!-)+-.0-@\\[-~]{1,253}$",
    max: 255,
    number: None,
    check: |text| {
        let rest = text.strip_prefix("*.").unwrap_or(text);
        let lower = text.to_ascii_lowercase();
        if lower != text {
            return Err(Mismatch { nearest: Some(lower), ..Mismatch::default() });
        }
        let is_ascii = rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"*/".contains(&byte));
        let has_port = if rest.starts_with('[') { !rest.ends_with(']') } else { rest.contains(':') };
        ok_if((1..=253).contains(&rest.len()) && is_ascii && !has_port && !rest.ends_with('.'))
    },
};

/// Address blocks.
pub static NETWORK: Syntax = Syntax {
    name: "network",
    allowed: "an address, or a network such as `10.0.0.0/8` or `2001:db8::/32`",
    pattern: "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$",
    max: 64,
    number: None,
    check: |text| match Network::parse(text) {
        Ok(_) => Ok(()),
        Err(meant) => Err(Mismatch {
            detail: meant.is_some().then(|| String::from("bits are set beyond the prefix")),
            nearest: meant.map(|network| network.to_string()),
        }),
    },
};

/// Paths to match, as [`Path::resolved`] has them.
pub static PATH: Syntax = Syntax {
    name: "path",
    allowed: "a path that begins with `/`, decoded, without query, empty segments, `.`, `..` or `;`",
    pattern: "^/",
    max: 1024,
    number: None,
    check: |text| {
        let decoded = DecodedPath::new(text.as_bytes());
        let path = Path::new(text.as_bytes(), decoded.as_ref());
        let resolved = String::from_utf8_lossy(path.resolved());
        if text.starts_with('/') && !text.contains('?') && resolved == text {
            return Ok(());
        }
        Err(Mismatch {
            nearest: Some(resolved.split('?').next().unwrap_or_default().to_owned()),
            ..Mismatch::default()
        })
    },
};

/// Regular expressions.
pub static REGEX: Syntax = Syntax {
    name: "regex",
    allowed: "a regular expression for the whole value, without look-around or back-references, whose program is at most 512 steps long",
    pattern: "",
    max: 1024,
    number: None,
    check: |text| {
        Pattern::new(text).map(|_| ()).map_err(|detail| Mismatch { detail: Some(detail), nearest: None })
    },
};

/// Rates.
pub static RATE: Syntax = Syntax {
    name: "rate",
    allowed: "a whole number from 1 to 1000000000000, `/`, and a duration from 1 ms to 366 days or its unit, such as `10/s` or `100/5m`",
    pattern: "^[1-9](_?[0-9])*[kMG]?/[0-9]{0,30}(us|ms|s|m|h|d)$",
    max: 32,
    number: None,
    check: |text| match rate(text) {
        Some(_) => Ok(()),
        None => Err(Mismatch { nearest: nearest_rate(text), ..Mismatch::default() }),
    },
};
