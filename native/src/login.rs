// SPDX-License-Identifier: Apache-2.0
//! The login of Redis: one line in a file, `user:password` or a password alone. The module reads the file itself, because Envoy logs what
//! one of its filters passes to another.
//!
//! The connector reads the file before each connection that it opens. So a change applies from the next connection on, and no worker
//! waits for a disk.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::panics::locked;

/// A longer file is no login.
const MAX_LENGTH: usize = 4 * 1024;

/// No log may contain it: there is no `Debug`.
pub struct Login {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// The content of the file when the module could last read it.
    line: Vec<u8>,
    /// The log says that the module cannot read the file.
    is_failure_logged: bool,
}

impl Login {
    /// The login in this file.
    ///
    /// # Errors
    /// The reason for which the module cannot read it.
    pub fn from_file(path: &str) -> Result<Self, String> {
        let state = Mutex::new(State { line: read(Path::new(path))?, is_failure_logged: false });
        Ok(Self { path: path.into(), state })
    }

    /// Reads the file again. If that fails, the login stays as it was.
    pub fn refresh(&self) {
        let read = read(&self.path);
        let state = &mut *locked(&self.state);
        match read {
            Ok(line) => *state = State { line, is_failure_logged: false },
            Err(_) if state.is_failure_logged => {}
            Err(error) => {
                state.is_failure_logged = true;
                log::warn!("login_file: {}: {error}; weir logs in to Redis as before", self.path.display());
            }
        }
    }

    /// The credentials to send to Redis.
    pub fn credentials(&self) -> Vec<u8> {
        locked(&self.state).line.clone()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    // To open a pipe would block.
    if !fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err(String::from("it is no file"));
    }
    let mut line = Vec::new();
    let file = File::open(path).and_then(|file| file.take(MAX_LENGTH as u64 + 1).read_to_end(&mut line));
    match file.map_err(|error| error.to_string())? {
        0 => Err(String::from("it is empty")),
        length if length > MAX_LENGTH => Err(String::from("it is longer than 4 KiB")),
        _ => Ok(line),
    }
}
