//! Puts the Lua fragments where `src/script/link.rs` includes them, without their comments and indentation: a script
//! travels to Redis whenever Redis has forgotten it, and the plugin carries it always.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    strip(Path::new("lua"), &out.join("lua"))
}

/// The lines that part a fragment for the linker look like comments and are none.
fn is_comment(line: &str) -> bool {
    line.starts_with("--") && !["-- settle", "-- take"].contains(&line)
}

fn strip(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            strip(&path, &to.join(name))?;
        } else {
            // Comments stand on lines of their own: what follows `--` elsewhere may be part of a string.
            let source = fs::read_to_string(&path)?;
            let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !is_comment(line));
            fs::write(to.join(name), lines.fold(String::new(), |text, line| text + line + "\n"))?;
        }
    }
    Ok(())
}
