// SPDX-License-Identifier: Apache-2.0
//! `weir render`: what it makes for each platform and each store, applied to configurations of the shape that these control planes
//! generate, in a real Envoy with a real Redis. Its cases are ignored where there is no Envoy.

mod envoy;
mod gateway;
mod istio;
pub mod kubernetes;
pub mod page;
mod stored;

use std::process::Command;

use crate::support::envoy::Template;
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::weir::PATIENT;
use serde_json::Value;
use stored::Stored;

pub fn tests() -> Vec<(&'static str, fn())> {
    [envoy::TESTS, istio::TESTS, gateway::TESTS, &kubernetes::tests(), page::TESTS].concat()
}

/// Three requests, and no more in a day.
pub fn limiter() -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "all"}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 3}}]}}]}}"#
    )
}

/// In `/` three requests of all regions, counted in `bom`; in `/here` many of this one.
pub fn limiter_of_regions() -> String {
    format!(
        r#"{{{PATIENT}, "regions": {{"here": "ams", "all": [{{"name": "ams", "cluster": "others"}},
                {{"name": "bom", "cluster": "redis-bom", "deadline": "10s"}}]}},
            "policies": [{{"name": "p", "match": {{"path": {{"exact": "/"}}}}, "regions": {{"home": "bom"}},
                "subject": [{{"literal": "all"}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 3}}]}},
            {{"name": "here", "match": {{"path": {{"exact": "/here"}}}}, "subject": [{{"literal": "all"}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1000}}]}}]}}"#
    )
}

/// Starts the stores of two regions, and an Envoy of what `apply` makes of the rendered text. Each store counts its own.
pub fn two_regions(
    store: &'static str,
    platform: &str,
    host: &str,
    more: &[String],
    listener: &str,
    apply: impl Fn(&Stored, &str) -> Value,
) {
    let (ams, bom) = (Stored::start(store), Stored::start(store));
    let mut arguments = ams.arguments_beside(&bom, platform, host);
    arguments.extend_from_slice(more);
    if platform == "envoy" {
        arguments.extend(["--upstream".into(), ams.upstream.address().to_string()]);
    }
    let text = render(ams.folder.path(), &limiter_of_regions(), &arguments);
    limits_after(&apply(&ams, &text), listener, &["/here"]);
    assert!(ams.asked() && bom.asked(), "a Redis has run no script");
}

/// Runs `weir` with these arguments: exit status, standard output, standard error.
pub fn weir(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Renders a limiter with `weir render`; asserts that `weir check --deny-warnings` has nothing to say about it.
pub fn render(folder: &std::path::Path, limiter: &str, arguments: &[String]) -> String {
    let file = folder.join("weir.json");
    std::fs::write(&file, limiter).expect("a file");
    let mut all = vec!["render", file.to_str().expect("UTF-8")];
    all.extend(arguments.iter().map(String::as_str));
    let (status, out, error) = weir(&all);
    // Of Sentinel and a login.
    let is_told =
        |line: &str| line.starts_with("weir: --password-file: Envoy's health check does not log in");
    assert!(status == 0 && error.lines().all(is_told), "{all:?}\n{error}{out}");
    let made = folder.join("made.yaml");
    std::fs::write(&made, &out).expect("a file");
    let (status, said, _) = weir(&["check", "--deny-warnings", made.to_str().expect("UTF-8")]);
    assert_eq!(status, 0, "{said}\n{out}");
    out
}

/// The documents of a file, as Envoy and Kubernetes read them.
pub fn documents(text: &str) -> Vec<Value> {
    let read = |document: &str| {
        weir_cli::envoys_reading("a.yaml", document).unwrap_or_else(|said| panic!("{said}\n{document}"))
    };
    text.split("\n---\n").map(read).collect()
}

/// The document of this kind.
pub fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Option<&'a Value> {
    documents.iter().find(|document| document["kind"] == kind)
}

/// An Envoy with this configuration admits three requests of a user, and rejects the fourth, whichever worker has it.
pub fn limits(config: &Value, listener: &str) {
    limits_after(config, listener, &[]);
}

/// The same, when requests of these paths are admitted.
fn limits_after(config: &Value, listener: &str, paths: &[&str]) {
    let envoy = Template::new(&config.to_string()).concurrency(2).start();
    let edge = envoy.address(listener);
    let send_to = |path: &str| http::send(edge, &Request::get(path)).expect("a response").status;
    for path in paths {
        eventually("the store of this region to answer", || (send_to(path) == 200).then_some(()));
    }
    let send = || send_to("/");
    // Until Envoy has found out which node is the primary, requests are denied without Redis.
    eventually("the store to answer", || (send() == 200).then_some(()));
    let statuses: Vec<u16> = (0..4).map(|_| send()).collect();
    assert_eq!(statuses, [200, 200, 429, 429], "{}", envoy.log());
}

/// Changes each value, the outer ones first.
pub fn walk(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    change(value);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, change)),
        _ => {}
    }
}
