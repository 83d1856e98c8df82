//! Traces: requests and their times, read from JSON lines, or from the access logs of nginx (combined) and of Envoy (its default).

use std::io::BufRead;

use serde_json::Value;

use super::Failure;
use crate::request::sample::Sample;
use crate::time::Micros;

/// One request of a trace.
#[derive(Debug)]
pub(super) struct Event {
    /// When it came; at least 1 µs, because 0 means Redis's own time to the scripts.
    pub at: Micros,
    /// How long it took.
    pub took: Micros,
    /// The request.
    pub request: Sample,
}

/// Reads the events of a trace, one by one.
pub(super) struct Trace<R> {
    lines: std::io::Lines<R>,
    line: usize,
    read: u64,
}

impl<R: BufRead> Trace<R> {
    pub fn new(input: R) -> Self {
        Self { lines: input.lines(), line: 0, read: 0 }
    }

    /// How many bytes were read.
    pub const fn read(&self) -> u64 {
        self.read
    }
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = Result<Event, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(format!("the trace: {error}"))),
            };
            self.line = self.line.saturating_add(1);
            self.read = self.read.saturating_add(u64::try_from(line.len()).unwrap_or(0)).saturating_add(1);
            if !line.trim().is_empty() {
                let event = event(line.trim()).map(|event| Event { at: event.at.max(Micros(1)), ..event });
                return Some(event.map_err(|wrong| format!("the trace, line {}: {wrong}", self.line)));
            }
        }
    }
}

fn event(line: &str) -> Result<Event, Failure> {
    if line.starts_with('{') {
        json(line)
    } else if line.starts_with('[') {
        envoy(line).ok_or_else(|| String::from("not a line of Envoy's default access log"))
    } else {
        nginx(line).ok_or_else(|| String::from("neither JSON nor a line of nginx's combined access log"))
    }
}

/// `{"t_ms": 0, "method": …, "path": …, "host": …, "client": …, "headers": {"name": "value" or ["value", …]},
/// "attributes": {"xds.route_name": …}, "duration_ms": 0}`; all but `t_ms` may be missing.
fn json(line: &str) -> Result<Event, Failure> {
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |name: &str, default: &str| match value.get(name) {
        None => Ok(default.to_owned()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("{name} is {other}, not a string")),
    };
    let millis = |name: &str| match value.get(name) {
        Some(count) => count.as_u64().ok_or_else(|| format!("{name} is {count}, not a whole number")),
        None if name == "t_ms" => Err(String::from("there is no t_ms")),
        None => Ok(0),
    };
    let mut request = Sample::default()
        .method(&text("method", "GET")?)
        .path(text("path", "/")?)
        .host(&text("host", "localhost")?)
        .from(&text("client", "127.0.0.1")?);
    for (name, value) in value.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let lines = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        for line in lines {
            request = request.header(name, line.as_str().map_or_else(|| line.to_string(), str::to_owned));
        }
    }
    if value.get("properties").is_some() {
        return Err(String::from("properties is attributes now"));
    }
    for (path, value) in value.get("attributes").and_then(Value::as_object).into_iter().flatten() {
        let path: Vec<&str> = path.split(if path.contains('/') { '/' } else { '.' }).collect();
        request = request.property(&path, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    Ok(Event {
        at: Micros::from_millis(millis("t_ms")?),
        took: Micros::from_millis(millis("duration_ms")?),
        request,
    })
}

/// The words of a line; `"…"` and `[…]` are one word, without what is around them.
fn words(line: &str) -> Option<Vec<&str>> {
    let mut out = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => rest.get(1..)?.split_once('"')?,
            '[' => rest.get(1..)?.split_once(']')?,
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        out.push(word);
        rest = after.trim_start();
    }
    Some(out)
}

/// The request of `METHOD PATH PROTOCOL`.
fn request(line: &str) -> Option<Sample> {
    let mut words = line.split(' ');
    Some(Sample::default().method(words.next()?).path(words.next()?))
}

fn with(sample: Sample, name: &str, value: &str) -> Sample {
    if value == "-" { sample } else { sample.header(name, value) }
}

/// `client - user [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326 "referer" "agent"`
fn nginx(line: &str) -> Option<Event> {
    let words = words(line)?;
    let [client, _, _, time, line, _, _, rest @ ..] = words.as_slice() else { return None };
    let mut sample = request(line)?.from(client);
    for (name, value) in ["referer", "user-agent"].into_iter().zip(rest) {
        sample = with(sample, name, value);
    }
    let (date, rest) = time.split_once(':')?;
    let (clock, zone) = rest.split_once(' ')?;
    let [day, month, year] = split(date, '/')?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = i64::try_from(months.iter().position(|name| *name == month)?).ok()?.checked_add(1)?;
    let (sign, zone) = zone.split_at_checked(1)?;
    let offset = zone.get(..2)?.parse::<i64>().ok()? * 60 + zone.get(2..4)?.parse::<i64>().ok()?;
    let offset = if sign == "-" { -offset } else { offset };
    let seconds = seconds(year.parse().ok()?, month, day.parse().ok()?, clock)?.checked_sub(offset * 60)?;
    Some(Event { at: Micros::from_secs(u64::try_from(seconds).ok()?), took: Micros::ZERO, request: sample })
}

/// `[2016-04-15T20:17:00.310Z] "POST /path HTTP/2" 204 - 154 0 226 100 "forwarded-for" "agent" "id" "authority" "host"`
fn envoy(line: &str) -> Option<Event> {
    let words = words(line)?;
    let [time, line, _, _, _, _, took, _, forwarded, agent, _, host, ..] = words.as_slice() else {
        return None;
    };
    // The last hop is the connection, where Envoy is an edge (`use_remote_address`).
    let client = forwarded.rsplit(',').next().unwrap_or_default().trim();
    let sample = with(with(request(line)?, "user-agent", agent), "x-forwarded-for", forwarded).from(client);
    let sample = if *host == "-" { sample } else { sample.host(host) };
    let (date, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = split(date, '-')?;
    let (clock, millis) = clock.split_once('.').unwrap_or((clock, "0"));
    let seconds = seconds(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?, clock)?;
    let millis: u64 = format!("{millis:0<3}").get(..3)?.parse().ok()?;
    Some(Event {
        at: Micros::from_secs(u64::try_from(seconds).ok()?).plus(Micros::from_millis(millis)),
        took: Micros::from_millis(took.parse().unwrap_or(0)),
        request: sample,
    })
}

fn split(text: &str, at: char) -> Option<[&str; 3]> {
    text.split(at).collect::<Vec<_>>().try_into().ok()
}

/// Seconds since 1970 of a date and a clock `13:55:36`, both in UTC.
/// <https://howardhinnant.github.io/date_algorithms.html#days_from_civil>
fn seconds(year: i64, month: i64, day: i64, clock: &str) -> Option<i64> {
    let [hour, minute, second] = split(clock, ':')?.map(|number| number.parse::<i64>().ok());
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year / 400;
    let year_of_era = year % 400;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(days * 86_400 + hour? * 3_600 + minute? * 60 + second?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Attributes;

    #[test]
    fn lines() {
        let rows = [
            (r#"{"t_ms": 5}"#, 5, 0, "GET / 127.0.0.1"),
            (
                r#"{"t_ms": 7, "duration_ms": 3, "method": "PUT", "path": "/a?b", "client": "::1", "headers": {"x": ["1", "2"]}}"#,
                7,
                3,
                "PUT /a?b ::1 x=1,2",
            ),
            (
                r#"192.0.2.7 - bob [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 23 "-" "curl/8""#,
                971_211_336_000,
                0,
                "GET /a 192.0.2.7 user-agent=curl/8",
            ),
            (
                r#"192.0.2.7 - - [29/Feb/2024:00:00:00 +0100] "POST / HTTP/1.1" 200 23"#,
                1_709_161_200_000,
                0,
                "POST / 192.0.2.7",
            ),
            (
                r#"[2016-04-15T20:17:00.310Z] "POST /v1 HTTP/2" 204 - 154 0 226 100 "203.0.113.9, 10.0.35.28" "agent" "id" "locations" "tcp://10.0.2.1:80""#,
                1_460_751_420_310,
                226,
                "POST /v1 10.0.35.28 user-agent=agent x-forwarded-for=203.0.113.9, 10.0.35.28 :authority=locations",
            ),
        ];
        for (line, at, took, wanted) in rows {
            let event = event(line).unwrap();
            assert_eq!(
                (event.at, event.took),
                (Micros::from_millis(at), Micros::from_millis(took)),
                "{line}"
            );
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            let header = |name: &str| Attributes::header(&event.request, name).unwrap().map(text);
            let mut found = format!(
                "{} {} {}",
                header(":method").unwrap(),
                header(":path").unwrap(),
                text(Attributes::property(&event.request, &["source", "address"]).unwrap().unwrap()),
            );
            for name in ["x", "user-agent", "x-forwarded-for", ":authority"] {
                if let Some(value) = header(name).filter(|value| value != "localhost") {
                    found.push_str(&format!(" {name}={value}"));
                }
            }
            assert_eq!(found, wanted, "{line}");
        }
    }

    #[test]
    fn lines_that_are_none() {
        for line in
            ["hello", "{}", "{\"t_ms\": 1.5}", "[x] y", "a b c [d] \"e\" 1 2", "{\"t_ms\": 1, \"path\": 2}"]
        {
            assert!(event(line).is_err(), "{line}");
        }
    }
}
