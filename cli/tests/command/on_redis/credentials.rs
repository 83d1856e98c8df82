// SPDX-License-Identifier: Apache-2.0
//! A credential that an operator gives a command is in no output, and in no key: its hash is.

use super::{command, run, world};

const SECRET: &str = "hunter2-c0ffee";

const CONFIG: &str = r"
policies:
- name: key
  subject: [{credential: {}}]
  limits: [{name: day, algorithm: sliding_log, limit: 5, window: 1d}]
  ban: {after: 3, window: 10h, duration: 2h}
  overrides: true
";

#[test]
fn a_credential_is_in_no_output_and_in_no_key() {
    let Some(world) = world() else { return };
    let file = world.file();
    std::fs::write(&file, CONFIG).expect("a file");
    let trace = format!(r#"{{"t_ms": 0, "headers": {{"authorization": "Bearer {SECRET}"}}}}"#);
    let traced = world.folder.path().join("trace.json");
    std::fs::write(&traced, [trace.as_str(), "\n"].concat().repeat(9)).expect("a file");
    let bearer = format!("authorization: Bearer {SECRET}");
    let key = format!("x-api-key: {SECRET}");
    let traced = traced.display().to_string();
    let rows: &[&[&str]] = &[
        &["explain", &file, "-H", &bearer, "--commands"],
        &["explain", &file, "-H", &bearer, "--json"],
        &["inspect", &file, "-H", &bearer],
        &["ban", &file, "-H", &key, "-y", "--reason", "scraper"],
        &["bans", &file],
        &["inspect", &file, "-H", &key, "--json"],
        &["unban", &file, "-H", &bearer, "-y"],
        &["override", "set", &file, "day.limit=2", "-H", &bearer, "-y"],
        &["override", "get", &file, "-H", &key],
        &["reset", &file, "-H", &bearer, "-y"],
        &["hot", "--used", &file],
        &["usage", &file],
        &["usage", &file, "-H", &bearer, "--csv"],
        &["audit", &file],
        &["audit", &file, "--json"],
        &["replay", &file, &traced],
        &["replay", &file, &traced, "--json"],
        // These fail.
        &["ban", &file, "-H", &bearer],
        &["ban", &file, "-H", &bearer, "--policy", "another", "-y"],
        &["inspect", &file, "-H", &bearer, "-H", "x-api-key: another"],
        &["inspect", &file, "-H", &bearer, "--redis", "redis://127.0.0.1:1"],
    ];
    let mut hashed = 0;
    for words in rows {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (_, out, error) = run(command(&words).env("WEIR_REDIS", world.url()));
        let said = out + &error;
        assert!(!said.is_empty(), "{words:?}");
        assert!(!said.contains("hunter2"), "{words:?}: {said}");
        hashed += usize::from(said.contains("{key|%+"));
    }
    assert!(hashed > 9, "{hashed}");
    let keys = world.says(&["KEYS", "*"]);
    assert!(keys.contains("{key|%+") && !keys.contains("hunter2"), "{keys}");
}
