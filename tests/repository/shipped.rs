// SPDX-License-Identifier: Apache-2.0
//! `make dist` packages the files that the tests have passed with, and no others: `scripts/tested`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A plugin and a module as `scripts/tested` sees them: exports, a version, and code.
const PLUGIN: &[u8] =
    b"\0asm\x11proxy_on_log_line\0\x07\x18proxy_on_request_headers\0\x08weir.build_info.0.1.0.4fc76c0a1b2cweir code";
const MODULE: &[u8] =
    b"\x7fELF\0envoy_dynamic_module_on_program_init\0weir.build_info.0.1.0.4fc76c0a1b2c code";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tested-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs the script. Returns `true` if it succeeds, and its messages.
    fn tested(&self, arguments: &[&str]) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/tested");
        let output =
            Command::new(script).args(arguments).env("RECORD", self.0.join("tested.txt")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn changed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).expect(from);
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

#[test]
fn other_files_than_the_tested_ones_are_refused() {
    let folder = Folder::new("others");
    let (plugin, module) = (folder.write("weir.wasm", PLUGIN), folder.write("libweir.so", MODULE));
    let shipped = [format!("weir.wasm={plugin}"), format!("libweir.so={module}")];
    let check = || folder.tested(&["check", &shipped[0], &shipped[1]]);
    let (is_taken, said) = check();
    assert!(!is_taken && said.contains("nothing says that these files were tested"), "{said}");
    assert_eq!(folder.tested(&["write", &plugin, &module]), (true, String::new()));
    assert_eq!(check(), (true, String::new()));

    #[rustfmt::skip]
    let rows = [
        ("weir.wasm", PLUGIN, "proxy_on_log_line", "proxy_on_log_lost", "tested, not in weir.wasm: export proxy_on_log_line"),
        ("weir.wasm", PLUGIN, "4fc76c0a1b2c", "0123456789ab", "in weir.wasm, not tested: version 0.1.0.0123456789ab"),
        ("weir.wasm", PLUGIN, "0.1.0", "0.2.0", "tested, not in weir.wasm: version 0.1.0.4fc76c0a1b2c"),
        ("weir.wasm", PLUGIN, "code", "cod3", "tested, not in weir.wasm: sha256"),
        ("libweir.so", MODULE, "init", "exit", "tested, not in libweir.so: export envoy_dynamic_module_on_program_init"),
        ("libweir.so", MODULE, "code", "cod3", "in libweir.so, not tested: sha256"),
    ];
    for (name, bytes, from, to, wanted) in rows {
        folder.write(name, &changed(bytes, from, to));
        let (is_taken, said) = check();
        assert!(!is_taken && said.contains(wanted), "{to}: {said}");
        folder.write(name, bytes);
    }
    assert_eq!(check(), (true, String::new()));
    // Files that were tested together ship together.
    assert!(folder.tested(&["write", &plugin]).0);
    let (is_taken, said) = check();
    assert!(!is_taken && said.contains("has no libweir.so"), "{said}");
}

#[test]
fn the_files_of_a_release_are_checked_before_they_are_packed() {
    let dist = include_str!("../../scripts/dist");
    let at = |text: &str| dist.find(text).unwrap_or_else(|| panic!("scripts/dist has no {text:?}"));
    assert!(at("scripts/tested check \"${shipped[@]}\"\n") < at("\nimage weir-wasm "));
    let test = include_str!("../../scripts/test");
    let tally = test.find("exit failed > 0").expect("the tally, which ends the script if a test has failed");
    assert!(tally < test.find("scripts/tested write").expect("the record"));
}
