// SPDX-License-Identifier: Apache-2.0
//! The errors of a configuration.

use core::fmt;

use super::json::Json;

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The JSON path, such as `policies[0].limits[1].burst`; `$` is the configuration itself.
    pub path: String,
    /// The value there, or `nothing`.
    pub found: String,
    /// The values that are allowed there.
    pub allowed: String,
    /// The operator's probable intention.
    pub hint: Option<Hint>,
}

/// The operator's probable intention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The valid name or value that differs least.
    Nearest(String),
    /// The field has this name now.
    Renamed(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, allowed: {}", self.path, self.found, self.allowed)?;
        match &self.hint {
            None => Ok(()),
            Some(Hint::Nearest(nearest)) => write!(f, " (did you mean {nearest:?}?)"),
            Some(Hint::Renamed(name)) => write!(f, " (it is called {name:?} now)"),
        }
    }
}

/// Everything wrong so far.
#[derive(Default)]
pub struct Errors {
    /// In the order found.
    pub found: Vec<ConfigError>,
}

impl Errors {
    /// Adds an error.
    pub fn add(&mut self, path: &str, found: impl fmt::Display, allowed: impl fmt::Display) {
        self.add_with_hint(path, found, allowed, None);
    }

    /// Adds an error, with what the operator probably meant.
    pub fn add_with_hint(
        &mut self,
        path: &str,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
        hint: Option<Hint>,
    ) {
        let path = if path.is_empty() { "$" } else { path }.to_owned();
        self.found.push(ConfigError { path, found: found.to_string(), allowed: allowed.to_string(), hint });
    }
}

/// The path of a field of the object at `path`. A name with other characters than those of a word is quoted.
pub fn path_of(path: &str, name: &str) -> String {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
        return format!("{path}[{}]", Json::Text(name.to_owned()));
    }
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
