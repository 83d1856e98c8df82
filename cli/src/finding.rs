// SPDX-License-Identifier: Apache-2.0
//! The findings of `weir check`: errors, and warnings with a code.

use super::document::Place;
use super::words::printable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The filter or Envoy refuses it.
    Error,
    /// It loads, and does something else than it seems to.
    Warning,
    /// It does what it seems to; the operator should know a limit of it.
    Note,
}

impl Severity {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub code: &'static str,
    pub place: Place,
    /// The path of the field; empty if the message says so.
    pub path: String,
    /// The problem, and for a warning its consequence.
    pub reason: String,
    /// The advice; empty for an error, whose reason says what is allowed.
    pub advice: String,
}

impl Finding {
    /// An error, in the words of what refuses it.
    pub fn error(code: &'static str, place: Place, said: impl Into<String>) -> Self {
        let (path, advice) = (String::new(), String::new());
        Self { severity: Severity::Error, code, place, path, reason: said.into(), advice }
    }

    /// A warning about the field `path`.
    pub fn warning(
        code: &'static str,
        place: Place,
        path: impl Into<String>,
        reason: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (path, reason, advice) = (path.into(), reason.into(), advice.into());
        Self { severity: Severity::Warning, code, place, path, reason, advice }
    }

    /// All of it in one sentence or two.
    pub fn message(&self) -> String {
        let mut text = self.title();
        if !self.advice.is_empty() {
            text.push_str(". ");
            text.push_str(&self.advice());
        }
        text
    }

    pub fn advice(&self) -> String {
        printable(&self.advice)
    }

    /// Without what to write instead.
    pub fn title(&self) -> String {
        let text = if self.path.is_empty() {
            self.reason.clone()
        } else {
            format!("{}: {}", self.path, self.reason)
        };
        printable(&text)
    }

    /// On a line of its own, in the form that editors and CI systems read.
    pub fn line(&self, file: &str) -> String {
        let (Place { line, column }, word) = (self.place, self.severity.word());
        let code = match self.severity {
            Severity::Error => String::new(),
            Severity::Warning | Severity::Note => format!(" [{}]", self.code),
        };
        format!("{file}:{line}:{column}: {word}: {}{code}", self.message())
    }
}
