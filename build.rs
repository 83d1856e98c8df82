// SPDX-License-Identifier: Apache-2.0
//! Prepares the Lua fragments for `src/script/link.rs`, which includes them from `OUT_DIR`; and says which commit this is, where the
//! scripts that build weir know it.
//!
//! Of the fragments, it removes comments and indentation, because the plugin holds every script in its binary and sends it to each Redis that does
//! not know it. It replaces each line `-- include NAME` by `lua/shared/NAME.lua`, so that what fragments share is written once
//! and costs no function call.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    match &commit {
        Some(commit) => println!("cargo::rustc-env=WEIR_BUILD={version} ({commit})"),
        None => println!("cargo::rustc-env=WEIR_BUILD={version}"),
    }
    println!("cargo::rustc-env=WEIR_BUILD_INFO={version}.{}", commit.as_deref().unwrap_or("unknown"));
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    prepare(Path::new("lua"), &out.join("lua"))
}

fn prepare(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            prepare(&path, &to.join(name))?;
        } else {
            let mut text = String::new();
            append(&path, &mut text)?;
            fs::write(to.join(name), text)?;
        }
    }
    Ok(())
}

fn append(path: &Path, text: &mut String) -> io::Result<()> {
    for line in fs::read_to_string(path)?.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("-- include ") {
            append(&Path::new("lua/shared").join(name).with_extension("lua"), text)?;
        } else if !is_comment(line) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(())
}

/// True if a line is only a comment. `--` elsewhere in a line may be part of a string. `-- take` and `-- settle` divide a fragment into its
/// parts, and the linker needs them.
fn is_comment(line: &str) -> bool {
    line.starts_with("--") && !["-- settle", "-- take"].contains(&line)
}
