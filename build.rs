//! Prepares the Lua fragments for `src/script/link.rs`, which includes them from `OUT_DIR`. It removes comments and
//! indentation: the plugin carries every script in its binary, and sends it to each Redis that does not know it.
//! It replaces each line `-- include NAME` by `lua/shared/NAME.lua`: what two fragments share is written once, and
//! the script has it in place, without the cost of a call.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
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

/// A comment has a line of its own: `--` elsewhere may be part of a string. The linker needs the lines that divide a
/// fragment into its parts.
fn is_comment(line: &str) -> bool {
    line.starts_with("--") && !["-- settle", "-- take"].contains(&line)
}
