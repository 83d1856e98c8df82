// SPDX-License-Identifier: Apache-2.0
//! Traces in lines of JSON with other names: `--map` says which field means what.

use serde_json::{Map, Value};

use super::json::{object, plain, with_attribute, with_header};
use super::number::{Unit, micros};
use super::text::{request, request_line};
use super::{Entry, Reason, Said, When};
use crate::{Failure, date};
use weir::config;
use weir::request::sample::Sample;
use weir::time::Micros;

/// The words without a unit.
const WORDS: [&str; 9] = ["time", "end", "request", "method", "path", "host", "client", "status", "body"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    /// The date at which the request came, or ended.
    Date {
        is_end: bool,
    },
    /// The same as a number.
    Number {
        is_end: bool,
        unit: Unit,
    },
    Duration(Unit),
    /// `GET /path HTTP/1.1`
    Request,
    Method,
    Path,
    Host,
    Client,
    Status,
    Body,
    Header(String),
    Attribute(String),
}

/// One `--map`.
#[derive(Clone, Debug)]
pub struct Mapping {
    meaning: Meaning,
    /// The name of the field, or a pointer to it (RFC 6901) if it begins with a slash.
    field: String,
    written: String,
}

/// Reads `client=remote_addr`.
pub fn mapping(text: &str) -> Result<Mapping, Failure> {
    let (word, field) = text.split_once('=').ok_or("allowed: MEANING=FIELD, such as client=remote_addr")?;
    if field.is_empty() {
        return Err(String::from("there is no name of a field after =, allowed: MEANING=FIELD"));
    }
    let unit = Unit::ALL.into_iter().find_map(|(unit, ending)| Some((word.strip_suffix(ending)?, unit)));
    let meaning = match (word, unit) {
        ("time", _) => Meaning::Date { is_end: false },
        ("end", _) => Meaning::Date { is_end: true },
        (_, Some(("time", unit))) => Meaning::Number { is_end: false, unit },
        (_, Some(("end", unit))) => Meaning::Number { is_end: true, unit },
        (_, Some(("duration", unit))) => Meaning::Duration(unit),
        ("request", _) => Meaning::Request,
        ("method", _) => Meaning::Method,
        ("path", _) => Meaning::Path,
        ("host", _) => Meaning::Host,
        ("client", _) => Meaning::Client,
        ("status", _) => Meaning::Status,
        ("body", _) => Meaning::Body,
        _ => match word.split_once('.') {
            Some(("header", name)) if !name.is_empty() => Meaning::Header(name.to_ascii_lowercase()),
            Some(("attribute", path)) if !path.is_empty() => Meaning::Attribute(path.to_owned()),
            _ => {
                let units = ["time", "end", "duration"]
                    .map(|word| Unit::ALL.map(|(_, ending)| format!("{word}{ending}")));
                let words: Vec<String> =
                    WORDS.map(String::from).into_iter().chain(units.into_iter().flatten()).collect();
                let meant = config::nearest(word, words.iter().map(String::as_str));
                let meant = meant.map(|word| format!(" (did you mean {word:?}?)")).unwrap_or_default();
                return Err(format!(
                    "found {word:?}, allowed: {}, header.NAME, attribute.PATH{meant}",
                    words.join(", ")
                ));
            }
        },
    };
    Ok(Mapping { meaning, field: field.to_owned(), written: text.to_owned() })
}

/// All of them, and which of their fields were seen.
#[derive(Clone, Debug)]
pub struct Mapped {
    fields: Vec<(Mapping, bool)>,
    /// The names of the first line's fields, for the message about one that no line has.
    names: Vec<String>,
}

impl Mapped {
    /// # Errors
    /// They do not say when a request came, or say it twice.
    pub fn new(fields: &[Mapping]) -> Result<Self, Failure> {
        let times = fields
            .iter()
            .filter(|field| matches!(field.meaning, Meaning::Date { .. } | Meaning::Number { .. }))
            .count();
        if times != 1 {
            return Err(format!(
                "--map: found {times} times, allowed: one of time, end, time_s, time_ms, time_us, time_ns, end_s, end_ms, \
                 end_us, end_ns"
            ));
        }
        for (place, field) in fields.iter().enumerate() {
            if let Some(other) = fields.iter().take(place).find(|other| other.meaning == field.meaning) {
                return Err(format!("--map: {} and {} have the same meaning", other.written, field.written));
            }
        }
        Ok(Self { fields: fields.iter().map(|field| (field.clone(), false)).collect(), names: Vec::new() })
    }

    pub fn read(&mut self, line: &[u8]) -> Result<Said, Failure> {
        let object = object(line)?;
        if self.names.is_empty() {
            self.names = object.keys().take(64).cloned().collect();
        }
        let mut found = Found::default();
        for (mapping, seen) in &mut self.fields {
            let Some(value) = get(&object, &mapping.field) else { continue };
            *seen = true;
            if !value.is_null() {
                found.take(mapping, value)?;
            }
        }
        let is_target =
            |mapping: &Mapping| matches!(mapping.meaning, Meaning::Request | Meaning::Method | Meaning::Path);
        found.said(self.fields.iter().any(|(mapping, _)| is_target(mapping)))
    }

    /// # Errors
    /// A field is in no line: its name is probably misspelt.
    pub fn check_seen(&self) -> Result<(), Failure> {
        let Some((never, _)) = self.fields.iter().find(|(_, seen)| !seen) else { return Ok(()) };
        let meant = config::nearest(&never.field, self.names.iter().map(String::as_str));
        let meant = meant.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
        Err(format!(
            "--map {}: no line has the field {:?}; the first has {}{meant}",
            never.written,
            never.field,
            self.names.join(", ")
        ))
    }
}

fn get<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(field) {
        return Some(value);
    }
    let (first, rest) = field.strip_prefix('/')?.split_once('/').unwrap_or((field.strip_prefix('/')?, ""));
    let first = first.replace("~1", "/").replace("~0", "~");
    let value = object.get(&first)?;
    if rest.is_empty() { Some(value) } else { value.pointer(&format!("/{rest}")) }
}

/// The values of a line's fields.
#[derive(Default)]
struct Found {
    when: Option<When>,
    took: Option<Micros>,
    line: Option<String>,
    method: Option<String>,
    path: Option<String>,
    host: Option<String>,
    client: Option<String>,
    status: Option<String>,
    /// Headers, attributes and the body.
    more: Vec<(Meaning, Value)>,
}

impl Found {
    fn take(&mut self, Mapping { meaning, field, .. }: &Mapping, value: &Value) -> Result<(), Failure> {
        // Logs write a dash for what is not there.
        let text = || Some(plain(value)).filter(|text| text != "-");
        let when = |is_end, at| if is_end { When::End(at) } else { When::Start(at) };
        match meaning {
            Meaning::Date { is_end } => {
                let text = plain(value);
                let at = date::rfc3339(&text).or_else(|| date::common_log(&text)).ok_or_else(|| {
                    format!(
                        "{field} is {value}, allowed: a date such as 2026-01-31T12:00:00.5Z or \
                         31/Jan/2026:12:00:00 +0100; for a number say time_s, time_ms, time_us or time_ns"
                    )
                })?;
                self.when = Some(when(*is_end, at));
            }
            Meaning::Number { is_end, unit } => self.when = Some(when(*is_end, micros(field, value, *unit)?)),
            Meaning::Duration(_) if value == "-" => {}
            Meaning::Duration(unit) => self.took = Some(micros(field, value, *unit)?),
            Meaning::Request => self.line = text(),
            Meaning::Method => self.method = text(),
            Meaning::Path => self.path = text(),
            Meaning::Host => self.host = text(),
            Meaning::Client => self.client = text(),
            Meaning::Status => self.status = text(),
            Meaning::Header(_) | Meaning::Attribute(_) if value == "-" => {}
            Meaning::Header(_) | Meaning::Attribute(_) | Meaning::Body => {
                self.more.push((meaning.clone(), value.clone()));
            }
        }
        Ok(())
    }

    /// `has_target` says whether the log has a method or a path at all.
    fn said(self, has_target: bool) -> Result<Said, Failure> {
        let when = self.when.ok_or("it has no time")?;
        let is_late = self.status.as_deref() == Some("408");
        let by_line = self.line.is_some();
        let parsed = match (&self.line, &self.method) {
            (Some(line), _) if line.is_empty() => Err(Reason::NoRequestLine),
            (Some(line), _) => request_line(line.as_bytes()),
            (None, Some(method)) => {
                request(method.as_bytes(), self.path.as_deref().unwrap_or("/").as_bytes())
            }
            (None, None) if self.path.is_some() => {
                request(b"GET", self.path.as_deref().unwrap_or("/").as_bytes())
            }
            (None, None) if has_target => Err(Reason::NoRequestLine),
            (None, None) => Ok((Sample::default(), false)),
        };
        let (mut request, named) = match parsed {
            Ok(_) if is_late && by_line => return Ok(Said::NoRequest(Reason::TimedOut)),
            Ok(parsed) => parsed,
            Err(Reason::NoRequestLine) if is_late => return Ok(Said::NoRequest(Reason::TimedOut)),
            Err(reason) => return Ok(Said::NoRequest(reason)),
        };
        for (meaning, value) in self.more {
            request = match meaning {
                Meaning::Header(name) => with_header(request, &name, &value)?,
                Meaning::Attribute(path) => with_attribute(request, &path, &value),
                _ => request.with_body(plain(&value)),
            };
        }
        let has_host = named || self.host.is_some();
        if let Some(host) = self.host {
            request = request.host(&host);
        }
        let client = self.client.map(String::into_bytes);
        Ok(Said::Request(Box::new(Entry { when, took: self.took, client, has_host, request })))
    }
}
