// SPDX-License-Identifier: Apache-2.0
//! The command `weir`, run as an operator runs it, and files that it reads.
#![allow(dead_code, missing_docs, clippy::expect_used)]

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The command with these arguments, and with nothing of the environment that it reads.
pub fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments);
    for name in ["NO_COLOR", "WEIR_REDIS", "WEIR_REDIS_LOGIN", "WEIR_SENTINEL_LOGIN"] {
        command.env_remove(name);
    }
    command
}

/// Runs it: exit status, standard output, standard error.
pub fn run(command: &mut Command) -> (i32, String, String) {
    told(command.stdin(Stdio::null()).output().expect("weir runs"))
}

/// Runs `weir` with these arguments: exit status, standard output, standard error.
pub fn weir(arguments: &[&str]) -> (i32, String, String) {
    run(&mut command(arguments))
}

fn told(Output { status, stdout, stderr }: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A file that goes with the test.
pub struct File(PathBuf);

impl File {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-file-{}-{next}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a file");
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Two requests of a client in a minute, three at once of one.
pub const CONFIG: &str = r#"{
  "policies": [
    {
      "name": "login",
      "match": {"path": {"exact": "/login"}},
      "limits": [{"name": "tries", "algorithm": "sliding_log", "limit": 2, "window": "1m"}]
    },
    {
      "name": "all",
      "exempt": [{"client_address": ["10.0.0.0/8"]}],
      "limits": [
        {"name": "steady", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 3},
        {"name": "flying", "algorithm": "concurrency", "limit": 2}
      ]
    },
    {
      "name": "watched",
      "mode": "shadow",
      "subject": [{"header": {"name": "x-key"}, "on_missing": "skip"}],
      "limits": [{"name": "few", "algorithm": "fixed_window", "limit": 1, "window": "1h"}]
    }
  ]
}
"#;
