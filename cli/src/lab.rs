// SPDX-License-Identifier: Apache-2.0
//! The functions of the playground: the parts of the command that need no file, no terminal and no network. They take strings, and return
//! what the command prints.

use crate::replay::{Replay, Run, Totals, Wanted};
use crate::source::Source;
use crate::store::{Memory, Store};
use crate::trace::{self, Event, Lines, Options, Trace};
use crate::{Ended, Failure, check};
use weir::config::Config;

/// A file: its name and its text.
pub type File<'a> = (&'a str, &'a str);

/// Returns what `weir check --format json` prints of this file.
///
/// # Errors
/// None that can happen.
pub fn check((name, text): File<'_>) -> Result<String, String> {
    text_of(check::json(Source::of(name.to_owned(), text.to_owned())))
}

/// Returns what `weir replay --html` writes of this trace: under one configuration, or compared with another one.
///
/// # Errors
/// If a configuration or the trace cannot be read; the error says why.
pub fn replay(first: File<'_>, other: Option<File<'_>>, trace: File<'_>) -> Result<String, String> {
    let config = config(first)?;
    let mut wanted = Wanted::new(&config);
    let lines = Lines::of(trace.0, trace.1.as_bytes().to_vec())?;
    let read =
        Trace::read(lines, Options::default(), |_, _| (), |event| wanted.look(&config, &event.request))?;
    let mut replay = Replay::new(read, wanted, true, (config, memory()));
    if let Some(other) = other {
        replay.compare((self::config(other)?, memory()));
    }
    while replay.next()?.is_some() {}
    replay.page(trace.0.to_owned(), [first, other.unwrap_or_default()].map(|(name, _)| name.to_owned()))
}

/// A configuration under which requests are decided one by one, each by a line of JSON as in a trace.
pub struct Lab {
    run: Run,
    lines: u64,
}

impl Lab {
    /// Nothing is counted.
    ///
    /// # Errors
    /// The mistake in the configuration.
    pub fn new(file: File<'_>) -> Result<Self, String> {
        let config = config(file)?;
        let totals = Totals::new(&config, None);
        Ok(Self { run: Run::new(config, memory(), totals), lines: 0 })
    }

    /// Decides about a request, which comes no earlier than the one before: what `weir replay --json` prints.
    ///
    /// # Errors
    /// The mistake in the line.
    pub fn decide(&mut self, line: &str) -> Result<String, String> {
        self.lines = self.lines.saturating_add(1);
        Ok(self.run.decide(&self.event(line)?)?.json())
    }

    /// Says what would happen to a request, which comes no earlier than the one before, as `weir explain` prints it, or as JSON. Counts
    /// nothing.
    ///
    /// # Errors
    /// If the line cannot be read, or cannot be explained; the error says why.
    pub fn explain(&mut self, line: &str, json: bool) -> Result<String, String> {
        let event = self.event(line)?;
        let explanation = self.run.explain(&event)?;
        if json {
            return Ok(crate::words::json(&explanation.json(false)));
        }
        let mut out = Vec::new();
        text_of(explanation.print(false, &mut out).map(|()| out))
    }

    /// Returns what `weir replay` prints of the requests until now.
    ///
    /// # Errors
    /// None that can happen.
    pub fn report(&self) -> Result<String, String> {
        let mut out = Vec::new();
        text_of(self.run.totals.report(&self.run.config, &mut out).map(|()| out))
    }

    fn event(&self, line: &str) -> Result<Event, Failure> {
        trace::event(line, self.lines)
    }
}

fn memory() -> Store {
    Store::Memory(Memory::default())
}

fn config((name, text): File<'_>) -> Result<Config, String> {
    let (config, _) =
        Source::of(name.to_owned(), text.to_owned()).load(None).map_err(|ended| match ended {
            Ended::Failed(said) | Ended::Wrong(said) => said,
        })?;
    Ok(config)
}

fn text_of(bytes: std::io::Result<Vec<u8>>) -> Result<String, String> {
    bytes.map_err(|error| error.to_string()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
