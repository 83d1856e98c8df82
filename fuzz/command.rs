// SPDX-License-Identifier: Apache-2.0
//! Forms of what the command reads from others: files, traces, configurations of other limiters. No input may panic. As in `forms.rs`,
//! cargo-fuzz searches without end, and a test of the command tries the seeds.

use std::path::PathBuf;

use super::Form;
use weir_cli::lab;

/// All forms of the command.
pub const FORMS: &[Form] = &[("file", file), ("trace", trace), ("import", import)];

/// A file of JSON or YAML that may have a limiter in it: what is printed is JSON. The first byte chooses.
pub fn file(input: &[u8]) {
    let Some((first, text)) = input.split_first() else { return };
    let name = if first % 2 == 0 { "weir.yaml" } else { "weir.json" };
    let text = String::from_utf8_lossy(text);
    for line in lab::check((name, &text)).expect("findings").lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON");
    }
}

/// A trace: it is replayed, or refused with a reason.
pub fn trace(input: &[u8]) {
    const CONFIG: &str = r#"{"policies": [{"name": "p", "subject": [{"header": {"name": "user-agent"}, "on_missing": "skip"}],
        "match": {"any": [{"path": {"prefix": "/"}}, {"method": ["POST"]}]},
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 2}]}]}"#;
    let text = String::from_utf8_lossy(input);
    if let Err(said) = lab::replay(("weir.json", CONFIG), None, ("trace", &text)) {
        assert!(!said.is_empty(), "a reason");
    }
}

/// The configuration of another limiter: the import loads, or the error says why not. The first byte chooses which limiter.
pub fn import(input: &[u8]) {
    let Some((first, text)) = input.split_first() else { return };
    let limiters = ["nginx", "ingress", "apisix", "envoy", "kong", "ratelimit"];
    let from = limiters[usize::from(*first) % limiters.len()];
    let folder = if cfg!(target_os = "linux") { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let file = folder.join(format!("weir-fuzz-{}", std::process::id()));
    std::fs::write(&file, text).expect("a file");
    let made = weir_cli::imported(from, &file);
    std::fs::remove_file(&file).expect("the file");
    if let Ok(made) = made {
        let made: serde_json::Value = serde_json::from_str(&made).expect("JSON");
        let configuration = made["configuration"].to_string();
        assert!(weir::config::Config::parse(configuration.as_bytes()).is_ok(), "{configuration}");
    }
}
