// SPDX-License-Identifier: Apache-2.0
//! Traces: requests and their times, read from lines of JSON or from access logs, in the order in which they came.
//!
//! A trace is read twice. The first time fills the [`Summary`], so that a trace that cannot be believed is refused before anything is
//! decided. The second time [`Reorder`] puts the lines in order, because a log has the order in which requests *ended*.

mod json;
mod lines;
mod mapped;
mod number;
mod reorder;
mod summary;
mod text;

pub(super) use mapped::{Mapping, mapping};
pub(super) use number::duration;
pub(super) use summary::Summary;

use super::Failure;
use super::sample::with_host;
use lines::LONGEST;
pub(super) use lines::Lines;
use mapped::Mapped;
use reorder::Reorder;
use text::Text;
use weir::request::sample::Sample;
use weir::request::{Attributes as _, client_ip};
use weir::time::Micros;

#[derive(Debug)]
pub(super) struct Event {
    /// The time at which it came; at least 1 µs, because 0 means Redis's own time to the scripts.
    pub at: Micros,
    pub took: Micros,
    pub line: u64,
    pub request: Sample,
}

#[derive(Debug)]
pub enum Said {
    Request(Box<Entry>),
    NoRequest(Reason),
}

/// The reason for which a line of a log is for no request that a filter saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A client spoke TLS to a port without TLS.
    TlsHandshake,
    /// The connection ended before a request.
    NoRequestLine,
    NotHttp,
    /// The request did not come in time: status 408.
    TimedOut,
}

/// A request as its line has it.
#[derive(Debug)]
pub struct Entry {
    when: When,
    took: Option<Micros>,
    client: Option<Vec<u8>>,
    has_host: bool,
    request: Sample,
}

/// The time that a line has.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// The time at which the request came.
    Start(Micros),
    /// The time at which it ended.
    End(Micros),
}

/// The operator's settings for a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// The meaning of fields, for lines of JSON with names of their own.
    pub map: Vec<Mapping>,
    /// The host of requests whose line has none.
    pub host: Option<String>,
    /// The duration of requests whose line has none.
    pub duration: Option<Micros>,
}

/// The format of a trace: that of the first line that is in any.
#[derive(Clone, Debug)]
enum Format {
    Unknown,
    Json,
    Mapped(Mapped),
    Text(Text),
}

impl Format {
    fn name(&self) -> String {
        match self {
            Self::Unknown => String::from("no format that is known"),
            Self::Json => String::from("JSON"),
            Self::Mapped(_) => String::from("JSON by --map"),
            Self::Text(text) if text.is_coarse() => format!("{}, times in whole seconds", text.name()),
            Self::Text(text) => text.name().to_owned(),
        }
    }

    /// Reads a line. The first line that is in a format decides which it is.
    fn read(&mut self, line: &[u8]) -> Result<Said, Wrong> {
        match self {
            Self::Json => json::read(line).map_err(Wrong::Trace),
            Self::Mapped(mapped) => mapped.read(line).map_err(Wrong::Line),
            Self::Unknown if line.starts_with(b"{") => {
                *self = Self::Json;
                self.read(line)
            }
            Self::Unknown => {
                let (format, said) = text::read(line)
                    .ok_or_else(|| Wrong::Line(String::from("it is in no format that is known")))?;
                *self = Self::Text(format);
                Ok(said)
            }
            Self::Text(format) => match text::read(line) {
                Some((found, said)) if found == *format => Ok(said),
                Some((found, _)) => Err(Wrong::Trace(format!(
                    "it is in the format {}, and the lines before are in {}; a trace has one format",
                    found.name(),
                    format.name()
                ))),
                None if line.starts_with(b"{") && json::object(line).is_ok() => Err(Wrong::Trace(format!(
                    "it is JSON, and the lines before are in {}; a trace has one format",
                    format.name()
                ))),
                None => Err(Wrong::Line(format!("it is not in the format {}", format.name()))),
            },
        }
    }

    /// True if a line that cannot be read, and has no end, may be the beginning of one that can.
    fn is_cut_off(&self, line: &[u8]) -> bool {
        match self {
            Self::Unknown => false,
            Self::Json | Self::Mapped(_) => json::is_cut_off(line),
            Self::Text(_) => text::read(line).is_none() && !line.starts_with(b"{"),
        }
    }
}

enum Wrong {
    /// It alone is wrong: it is skipped and counted.
    Line(Failure),
    /// So is the trace.
    Trace(Failure),
}

/// The request of a line of JSON, of this number.
pub(super) fn event(line: &str, number: u64) -> Result<Event, Failure> {
    match json::read(line.as_bytes())? {
        Said::Request(entry) => Ok(Options::default().event(*entry, number)),
        Said::NoRequest(_) => Err(String::from("it is no request")),
    }
}

pub(super) struct Trace {
    lines: Lines,
    /// The last line that the summary knows: a log may grow meanwhile.
    end: u64,
    again: u64,
    order: Reorder,
    format: Format,
    options: Options,
    line: Vec<u8>,
    pub summary: Summary,
}

impl Trace {
    /// Reads a trace for the first time. Calls `progress` with how many bytes are read, and how many there are if that is
    /// known; and `watch` with each request, in the order of the lines.
    pub fn read(
        mut lines: Lines,
        options: Options,
        mut progress: impl FnMut(u64, Option<u64>),
        mut watch: impl FnMut(&Event),
    ) -> Result<Self, Failure> {
        let mut format =
            if options.map.is_empty() { Format::Unknown } else { Format::Mapped(Mapped::new(&options.map)?) };
        let (mut summary, mut line) = (Summary::default(), Vec::new());
        while lines.next(&mut line)? {
            if lines.number.is_multiple_of(1_024) {
                progress(lines.read, lines.size);
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let said = match line.len() {
                0..=LONGEST => format.read(line.trim_ascii()),
                _ => Err(Wrong::Line(format!("it is longer than {LONGEST} bytes"))),
            };
            match said {
                Ok(Said::Request(entry)) => {
                    summary.add(&entry, lines.number);
                    let event = options.event(*entry, lines.number);
                    summary.add_time(event.at);
                    watch(&event);
                }
                Ok(Said::NoRequest(reason)) => summary.skip(reason),
                Err(_) if !lines.is_whole && summary.requests > 0 && format.is_cut_off(&line) => {
                    summary.cut_off = Some(lines.number);
                }
                Err(Wrong::Line(why)) => {
                    summary.add_unreadable(lines.number, why, matches!(format, Format::Unknown))?
                }
                Err(Wrong::Trace(why)) => {
                    return Err(format!("{}: line {}: {why}", lines.name(), lines.number));
                }
            }
        }
        summary.format = format.name();
        let name = lines.name().to_owned();
        summary.check(&name)?;
        if let Format::Mapped(mapped) = &format {
            mapped.check_seen().map_err(|wrong| format!("{name}: {wrong}"))?;
        }
        let end = summary.cut_off.map_or(lines.number, |cut_off| cut_off.saturating_sub(1));
        lines.rewind()?;
        let order = Reorder::default();
        Ok(Self { lines, end, again: 0, order, format, options, line, summary })
    }

    pub fn next(&mut self) -> Result<Option<Event>, Failure> {
        while !self.order.is_full() && self.lines.number < self.end && self.lines.next(&mut self.line)? {
            if self.line.len() <= LONGEST
                && let line = self.line.trim_ascii()
                && let Ok(Said::Request(entry)) = self.format.read(line)
            {
                self.again = self.again.saturating_add(1);
                let event = self.options.event(*entry, self.lines.number);
                self.order.push(event.at, event.line, line);
            }
        }
        let changed = || format!("{}: it has changed while it was read", self.lines.name());
        let Some((at, number, line)) = self.order.pop() else {
            return if self.again == self.summary.requests { Ok(None) } else { Err(changed()) };
        };
        match self.format.read(&line) {
            Ok(Said::Request(entry)) => Ok(Some(Event { at, ..self.options.event(*entry, number) })),
            _ => Err(changed()),
        }
    }

    /// Returns warnings about what the trace lacks.
    pub fn warnings(&self) -> Vec<String> {
        self.summary.warnings(self.options.host.as_deref(), self.options.duration)
    }

    /// The lines that could not be put in order; none before the last request.
    pub fn disorder(&self) -> Option<String> {
        let (count, first) = self.order.late?;
        let (lines, came) = if count == 1 { ("line", "it is") } else { ("lines", "they are") };
        Some(format!(
            "{count} {lines} could not be put in order, the first is line {first}: {came} too far behind later lines, so each got the \
             time of the request before it; sort the trace by time"
        ))
    }
}

impl Options {
    fn event(&self, entry: Entry, line: u64) -> Event {
        let names_host = entry.names_host();
        let Entry { when, took, client, mut request, .. } = entry;
        let took = took.or(self.duration).unwrap_or_default();
        let at = match when {
            When::Start(at) => at,
            When::End(at) => at.since(took),
        };
        if let Some(host) = self.host.as_ref().filter(|_| !names_host) {
            request = request.host(host);
        }
        if let Some(client) = client {
            request = request.property(&["source", "address"], client);
        }
        Event { at: at.max(Micros(1)), took, line, request: with_host(request.at(at)) }
    }
}

impl Entry {
    /// True if it has a host, perhaps as a header.
    fn names_host(&self) -> bool {
        self.has_host || self.request.header_lines("host").is_ok_and(|lines| lines > 0)
    }

    /// True if the filter could read the client's address.
    fn has_client(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client_ip::connection(client).is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_trace_that_grows_is_read_to_where_it_ended_and_one_that_shrinks_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"{\"t_ms\": 2}\n{\"t_ms\": 1}\n").unwrap();
        let read =
            || Trace::read(Lines::open(file.path()).unwrap(), Options::default(), |_, _| (), |_| ()).unwrap();
        let (mut grows, mut shrinks) = (read(), read());
        // Its lines are in the buffer already.
        let rewritten = |text: &str, trace: &mut Trace| {
            std::fs::write(file.path(), text).unwrap();
            trace.lines.rewind().unwrap();
        };
        rewritten("{\"t_ms\": 2}\n", &mut shrinks);
        let shrunk = std::iter::from_fn(|| shrinks.next().transpose()).collect::<Result<Vec<_>, _>>();
        assert!(shrunk.unwrap_err().ends_with("it has changed while it was read"));
        rewritten("{\"t_ms\": 2}\n{\"t_ms\": 1}\n{\"t_ms\": 0}\n", &mut grows);
        let grown = std::iter::from_fn(|| grows.next().unwrap()).map(|event| (event.at.0, event.line));
        assert_eq!(grown.collect::<Vec<_>>(), [(1_000, 2), (2_000, 1)]);
    }
}
