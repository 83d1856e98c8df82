// SPDX-License-Identifier: Apache-2.0
//! The command reads a file as Envoy does. A table of spellings, each read without Envoy and by a real one, with the same result.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weir_cli::envoys_reading;

use crate::command::File;
use crate::support::http::{self, Request};

/// A value in a `Struct` of YAML, and what Envoy takes it for.
fn values() -> Vec<(&'static str, Value)> {
    vec![
        ("no", json!(false)),
        ("y", json!(true)),
        ("True", json!(true)),
        ("off", json!(false)),
        ("tRue", json!("tRue")),
        ("\"no\"", json!("no")),
        ("'5'", json!("5")),
        ("\"10\"", json!("10")),
        ("5", json!(5)),
        ("+5", json!(5)),
        ("-5", json!(-5)),
        ("010", json!(8)),
        ("-010", json!(-8)),
        ("00", json!(0)),
        ("08", json!("08")),
        ("0o17", json!("0o17")),
        ("0x1F", json!(31)),
        ("0X1f", json!(31)),
        ("+0x10", json!(16)),
        ("-0x1f", json!(-31)),
        ("0b11", json!("0b11")),
        ("0xffffffff", json!("4294967295")),
        ("0xffffffffffffffff", json!("0xffffffffffffffff")),
        ("2147483647", json!(2_147_483_647)),
        ("2147483648", json!("2147483648")),
        ("-2147483648", json!(-2_147_483_648_i64)),
        ("-2147483649", json!("-2147483649")),
        ("9223372036854775808", json!("9223372036854775808")),
        ("1_000", json!("1_000")),
        ("1e3", json!("1e3")),
        ("0.5", json!("0.5")),
        (".5", json!(".5")),
        ("1.", json!("1.")),
        (".inf", json!(".inf")),
        ("2019-01-01", json!("2019-01-01")),
        ("~", json!(null)),
        ("null", json!(null)),
        ("", json!(null)),
        ("\"\"", json!("")),
        ("!!str 5", json!(5)),
        ("!!str \"5\"", json!(5)),
        ("!!int \"x\"", json!("x")),
        ("!foo \"no\"", json!(false)),
        ("!!str no", json!(false)),
        ("! 5", json!("5")),
        ("! \"5\"", json!("5")),
        ("{a: 1, a: 2}", json!({"a": 2})),
        ("{<<: {a: 1}, b: 2}", json!({"<<": {"a": 1}, "b": 2})),
        ("{yes: 1, 010: 2, 1.5: 3}", json!({"yes": 1, "010": 2, "1.5": 3})),
        ("[&x a, *x]", json!(["a", "a"])),
        ("{&n a: 1, b: *n}", json!({"a": 1, "b": "a"})),
        ("{&n 010: 1, b: *n}", json!({"010": 1, "b": 8})),
        ("{a: &n no, *n : 1}", json!({"a": false, "no": 1})),
        ("{~: 1}", json!({"null": 1})),
        ("{\"~\": 1}", json!({"~": 1})),
        ("{: 1}", json!({"null": 1})),
        ("!!str", json!("")),
        ("!!null ~", json!("~")),
        ("a?b", json!("a?b")),
        ("[\"a?b\", '|']", json!(["a?b", "|"])),
        ("\"\\x41\\u00e9\\/\\t\"", json!("A\u{e9}/\t")),
        ("|\n      x\n      y\n", json!("x\ny\n")),
        (">-\n      x\n      y\n", json!("x y")),
    ]
}

const ADMIN: &str = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n";

/// A bootstrap with these values in a `Struct`.
fn bootstrap(values: &[(&str, Value)]) -> String {
    let values = values.iter().enumerate().map(|(at, (written, _))| format!("    v{at}: {written}\n"));
    format!("{ADMIN}node:\n  id: a\n  cluster: b\n  metadata:\n{}", values.collect::<String>())
}

/// Whole files: the end of the name, the text, and the content of the `Struct`; `None` where Envoy refuses it.
fn files() -> Vec<(&'static str, &'static str, String, Option<Value>)> {
    let json = |metadata: &str| {
        format!(
            r#"{{"admin": {{"address": {{"socket_address": {{"address": "127.0.0.1", "port_value": 0}}}}}}, "node": {{"id": "a", "cluster": "b", "metadata": {metadata}}}}}"#
        )
    };
    let yaml = |metadata: &str| format!("{ADMIN}node: {{id: a, cluster: b, metadata: {metadata}}}\n");
    vec![
        (
            "JSON",
            ".json",
            json(r#"{"a": 1.5, "b": 12345678901, "c": "\ud83d\ude00"}"#),
            Some(json!({"a": 1.5, "b": 12_345_678_901_u64, "c": "\u{1f600}"})),
        ),
        ("JSON of YAML's numbers", ".json", json(r#"{"a": 010}"#), None),
        ("JSON of YAML's words", ".json", json(r#"{"a": no}"#), None),
        ("a comment before JSON", ".json", format!("# c\n{}", json("{}")), None),
        ("a BOM before JSON", ".json", format!("\u{feff}{}", json("{}")), None),
        (
            "JSON as YAML",
            ".yaml",
            json(r#"{"a": no, "b": 010, "c": 1.5}"#),
            Some(json!({"a": false, "b": 8, "c": "1.5"})),
        ),
        ("JSON with tabs as YAML", ".yaml", json("{\"a\":\n\t1}"), Some(json!({"a": 1}))),
        ("surrogates as YAML", ".yaml", json(r#"{"c": "\ud83d\ude00"}"#), None),
        (
            "a comment before JSON as YAML",
            ".yaml",
            format!("# c\n{}", json(r#"{"a": 1}"#)),
            Some(json!({"a": 1})),
        ),
        ("a BOM before YAML", ".yaml", format!("\u{feff}{}", yaml("{a: 1}")), Some(json!({"a": 1}))),
        (
            "a BOM before JSON as YAML",
            ".yaml",
            format!("\u{feff}{}", json(r#"{"a": 1}"#)),
            Some(json!({"a": 1})),
        ),
        ("two documents", ".yaml", format!("{}---\nfoo: bar\n", yaml("{a: 1}")), Some(json!({"a": 1}))),
        ("an alias inside of its value", ".yaml", yaml("{a: &x {b: *x}}"), None),
        ("a list as a name", ".yaml", yaml("{? [a] : 1}"), None),
        ("a question mark in braces", ".yaml", yaml("{a: /colou?r}"), None),
        ("one in a name", ".yaml", yaml("{a?: 1}"), None),
        (
            "one in brackets in a list",
            ".yaml",
            format!("{ADMIN}node:\n  id: a\n  metadata:\n    a:\n    - b: [c, d?]\n"),
            None,
        ),
        ("a sign of a block in braces", ".yaml", yaml("{a: |}"), None),
        ("the other ending", ".yml", yaml("{a: no}"), Some(json!({"a": false}))),
        ("tabs", ".yaml", String::from("node:\n\tid: a\n"), None),
    ]
}

fn metadata(read: &Value) -> Value {
    read["node"]["metadata"].clone()
}

#[test]
fn the_command_reads_each_spelling_so() {
    let all = values();
    let read = metadata(&envoys_reading("x.yaml", &bootstrap(&all)).expect("YAML"));
    for (at, (written, wanted)) in all.iter().enumerate() {
        assert_eq!(&read[format!("v{at}")], wanted, "{written}");
    }
    for (name, ending, text, wanted) in files() {
        let read = envoys_reading(&format!("x{ending}"), &text);
        assert_eq!(read.as_ref().ok().map(metadata), wanted, "{name}: {read:?}");
    }
}

#[test]
fn a_real_envoy_reads_each_spelling_so() {
    let Some(envoy) = std::env::var("WEIR_ENVOY").ok().filter(|path| !path.is_empty()) else {
        return crate::support::not_tested("no Envoy here");
    };
    let all = values();
    let read = run(&envoy, ".yaml", &bootstrap(&all)).expect("it starts");
    for (at, (written, wanted)) in all.iter().enumerate() {
        assert_eq!(&read[format!("v{at}")], wanted, "{written}");
    }
    for (name, ending, text, wanted) in files() {
        assert_eq!(run(&envoy, ending, &text), wanted, "{name}");
    }
}

/// Ends the process with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The `Struct` that Envoy shows of a bootstrap; `None` if it refuses the file.
fn run(envoy: &str, ending: &str, text: &str) -> Option<Value> {
    let (file, admin) = (File::new(&format!("c{ending}"), text), File::new("admin", ""));
    let process = Command::new(envoy)
        .args(["-c", file.path(), "--admin-address-path", admin.path()])
        .args(["--concurrency", "1", "--use-dynamic-base-id", "-l", "off"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("Envoy starts");
    let mut process = Ends(process);
    loop {
        let address = std::fs::read_to_string(Path::new(admin.path())).expect("a file");
        if !address.is_empty() {
            return Some(shown(&address));
        }
        if process.0.try_wait().expect("its state").is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn shown(address: &str) -> Value {
    let address = address.parse().expect("the admin port");
    let response = http::send(address, &Request::get("/config_dump")).expect("a reply");
    let dump: Value = serde_json::from_slice(&response.body).expect("JSON");
    dump["configs"][0]["bootstrap"]["node"]["metadata"].clone()
}
