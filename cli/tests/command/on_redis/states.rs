// SPDX-License-Identifier: Apache-2.0
//! The records that an earlier version has written for operators, read and changed by this one: audit, journal, usage journal, bans,
//! overrides.
//!
//! `tests/states/VERSION/store.json` has the keys as that version left them. Before a version is tagged, `scripts/record` writes its file.
//! Do not change it later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use weir::config::Config;
use weir::engine::Engine;
use weir::policy::Denial;
use weir::resp::{self, Reply};
use weir::script::usage::{Interval, Used, Write};
use weir::time::Micros;

use super::{World, world};
use crate::support::redis::Connection;
use crate::support::root;

const JOURNAL: &str = "edge:{journal}";
const AUDIT: &str = "edge:{audit}";
/// A day that is not over.
const DAY: Interval = Interval { start: 3_999_974_400, length: 86_400 };

/// A key: its type and what it holds.
type State = BTreeMap<String, Value>;

#[test]
fn versions_what_an_earlier_one_has_written_is_read_and_changed() {
    let Some(now) = written() else { return };
    let folder = root().join("tests/states");
    if std::env::var_os("WEIR_RECORD").is_some() {
        let lines: Vec<_> =
            now.iter().map(|(key, state)| format!("{}: {state}", Value::from(key.as_str()))).collect();
        let file = folder.join(env!("CARGO_PKG_VERSION")).join("store.json");
        fs::write(file, format!("{{\n{}\n}}\n", lines.join(",\n"))).expect("the folder");
    }
    let mut versions = 0;
    for folder in fs::read_dir(folder).expect("a folder") {
        let file = folder.expect("an entry").path().join("store.json");
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let state: State = serde_json::from_str(&text).expect("JSON");
        println!("{}", file.display());
        reads(&state);
        changes(&state);
        older_reads(&state, &now);
        versions += 1;
    }
    assert!(versions > 0, "at least one version is recorded");
}

// --- This version writes ----------------------------------------------------------------------------------------------

/// The state that this version writes.
fn written() -> Option<State> {
    let world = world()?;
    operate(&world);
    work(&world, 1);
    Some(dump(&mut world.redis.connect()))
}

/// The commands of operators.
fn operate(world: &World) {
    let rows: [&[&str]; 6] = [
        &["ban", "FILE", "--subject", "{login|ann}", "--reason", "ticket 4711", "-y"],
        &["ban", "FILE", "--subject", "{login|bob}", "--for", "300d", "-y"],
        &["unban", "FILE", "--subject", "{login|bob}", "--reason", "he called", "-y"],
        &["override", "set", "FILE", "--subject", "{api|ann}", "hour.limit=20", "--reason", "sold", "-y"],
        &["override", "set", "FILE", "--subject", "{plans|eve}", "gold/bucket.capacity=30", "-y"],
        &["reset", "FILE", "--subject", "{login|eve}", "--reason", "wrong client", "-y"],
    ];
    world.requests("{login|eve}", 1);
    for words in rows {
        let (status, _, failure) = world.run(words);
        assert_eq!((status, failure.as_str()), (0, ""), "{words:?}");
    }
}

/// The records of workers: a denial, and the usage of subjects.
fn work(world: &World, worker: u64) {
    let config = r#"{"journal": {}, "store": {"key_prefix": "edge"}, "policies": [{"name": "login", "subject": [{"header": {"name": "x"}}],
        "limits": [{"name": "tries", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}]}]}"#;
    let mut engine = Engine::new(Rc::new(Config::parse(config.as_bytes()).expect("a configuration")), 7);
    let mut now = Micros::from_secs(1_700_000_000);
    engine.denied(None, Denial::Listed(0), now);
    let check = weir::policy::Check::one(0, "{login|ann}");
    engine.submit(1, [check].into_iter().collect(), now);
    let batch = engine.next_batch(now).expect("a batch");
    let day = 86_400_000_000_u64;
    let mut denied = Vec::new();
    resp::bulk(&mut denied, [0, now.0, 0, !day, day, 0, 0].map(u64::to_le_bytes).as_flattened());
    assert!(engine.replied(batch.id, &[denied, b"$3\r\n1-1\r\n".to_vec()].concat(), now));
    let mut redis = world.redis.connect();
    // The first entry left behind the command of the request, which this Redis does not know.
    let replies = redis.pipeline(&batch.body, batch.replies);
    assert!(replies.last().is_some_and(|reply| reply.starts_with(b"$")), "{replies:?}");
    while engine.next_release().is_some() {}
    now = now.plus(Micros::from_millis(200));
    engine.tick(now);
    let batch = engine.next_batch(now).expect("a batch");
    assert!(redis.pipeline(&batch.body, batch.replies)[0].starts_with(b"$"));
    let used = |units, requests| Used { units, requests };
    let used = [(b"{api|ann}".to_vec(), used(120, 3)), (b"{api|bob}".to_vec(), used(-7, -7))];
    let (prefix, keep, mut command) = ("edge", Micros::from_secs(86_400), Vec::new());
    Write { prefix, worker, number: 1, interval: DAY, keep, max_subjects: 10, used: &used }
        .encode(&mut command);
    assert_eq!(redis.pipeline(&command, 1), [b":1\r\n"]);
}

// --- Keys -------------------------------------------------------------------------------------------------------------

fn dump(redis: &mut Connection) -> State {
    let mut keys = texts(&redis.call(&[b"KEYS", b"*"]));
    // The counts of limits belong to another test, and expire.
    keys.retain(|key| !key.ends_with(":tries"));
    keys.into_iter()
        .map(|key| {
            let name = key.as_bytes();
            let kind = String::from_utf8(redis.call(&[b"TYPE", name])).expect("text");
            let kind = kind.trim_start_matches('+').trim().to_owned();
            let holds = match kind.as_str() {
                "string" => json!(texts(&redis.call(&[b"GET", name]))[0]),
                "hash" => json!(texts(&redis.call(&[b"HGETALL", name]))),
                "zset" => json!(texts(&redis.call(&[b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"]))),
                "stream" => entries(&redis.call(&[b"XRANGE", name, b"-", b"+"])),
                other => panic!("{key}: {other}"),
            };
            (key, json!([kind, holds]))
        })
        .collect()
}

fn restore(redis: &mut Connection, state: &State) {
    let list = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .expect("a list")
            .iter()
            .map(|text| text.as_str().expect("a text").to_owned())
            .collect()
    };
    for (key, value) in state {
        let holds = &value[1];
        let commands: Vec<Vec<String>> = match value[0].as_str().expect("a type") {
            "string" => vec![vec!["SET".into(), key.clone(), holds.as_str().expect("a text").into()]],
            "hash" => vec![[vec!["HSET".into(), key.clone()], list(holds)].concat()],
            "zset" => list(holds)
                .as_chunks()
                .0
                .iter()
                .map(|[member, score]| vec!["ZADD".into(), key.clone(), score.clone(), member.clone()])
                .collect(),
            _ => holds
                .as_array()
                .expect("entries")
                .iter()
                .map(|entry| [vec!["XADD".into(), key.clone()], list(entry)].concat())
                .collect(),
        };
        for command in commands {
            let words: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
            let reply = redis.call(&words);
            assert!(!reply.starts_with(b"-"), "{key}: {}", String::from_utf8_lossy(&reply));
        }
    }
}

fn text(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Bulk(Some(bytes)) => String::from_utf8(bytes.to_vec()).expect("text"),
        other => panic!("{other:?}"),
    }
}

fn texts(reply: &[u8]) -> Vec<String> {
    match resp::decode(reply).expect("RESP").expect("a reply").0 {
        Reply::Array(Some(items)) => items.iter().map(text).collect(),
        other => vec![text(&other)],
    }
}

/// Each entry of a stream: its id, then names and values.
fn entries(reply: &[u8]) -> Value {
    let Reply::Array(Some(entries)) = resp::decode(reply).expect("RESP").expect("a reply").0 else {
        panic!("a list")
    };
    let entry = |entry: &Reply<'_>| match entry {
        Reply::Array(Some(parts)) => match &parts[..] {
            [id, Reply::Array(Some(fields))] => {
                core::iter::once(id).chain(fields.iter()).map(text).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    // Whoever records is no part of the record.
    let nobody = |words: Vec<String>| -> Vec<String> {
        let is_from = |place: usize| place > 0 && words[place - 1] == "from";
        let word = |(place, word): (usize, &String)| {
            if is_from(place) { "ann@bastion".into() } else { word.clone() }
        };
        words.iter().enumerate().map(word).collect()
    };
    json!(entries.iter().map(|words| nobody(entry(words))).collect::<Vec<_>>())
}

/// The entries of a stream: names and values, without the ids.
fn fields(state: &State, key: &str) -> Vec<BTreeMap<String, String>> {
    let entries = state[key][1].as_array().expect("entries");
    let fields = |entry: &Value| {
        let words = entry.as_array().expect("an entry")[1..].to_vec();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        words.as_chunks().0.iter().map(|[name, value]| (text(name), text(value))).collect()
    };
    entries.iter().map(fields).collect()
}

// --- Read and changed -------------------------------------------------------------------------------------------------

fn restored(state: &State) -> World {
    let world = world().expect("a Redis");
    restore(&mut world.redis.connect(), state);
    world
}

fn lines(world: &World, words: &[&str]) -> Vec<Map<String, Value>> {
    let (status, out, failure) = world.run(words);
    assert_eq!((status, failure.as_str()), (0, ""), "{words:?}");
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The commands of this version show what an earlier one has written.
fn reads(state: &State) {
    let world = restored(state);
    for (key, words) in
        [(AUDIT, &["audit", "FILE", "--json"][..]), (JOURNAL, &["journal", "--prefix", "edge", "--json"])]
    {
        let (shown, wanted) = (lines(&world, words), fields(state, key));
        assert_eq!(shown.len(), wanted.len(), "{key}");
        for (shown, wanted) in shown.iter().zip(&wanted) {
            for (name, value) in wanted {
                let found =
                    shown.get(name).unwrap_or_else(|| panic!("{key}: {name} is not shown: {shown:?}"));
                let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
                assert_eq!(&found, value, "{key}: {name}");
            }
        }
    }
    let used = lines(&world, &["usage", "FILE", "--from", "2096-10-01", "--json"]);
    let used: Vec<_> = used.iter().map(|row| (row["subject"].clone(), row["units"].clone())).collect();
    assert_eq!(used, [(json!("{api|ann}"), json!(120)), (json!("{api|bob}"), json!(-7))]);
    let (_, bans, _) = world.run(&["bans", "FILE"]);
    assert!(bans.contains("{login|ann}") && bans.contains("ticket 4711"), "{bans}");
    let (_, subject, _) = world.run(&["inspect", "FILE", "--subject", "{api|ann}"]);
    assert!(subject.contains(r#"override: {"hour":{"limit":20}}"#), "{subject}");
}

/// This version goes on where an earlier one stopped.
fn changes(state: &State) {
    let world = restored(state);
    let mut redis = world.redis.connect();
    let audited = fields(state, AUDIT).len();
    operate(&world);
    assert_eq!(lines(&world, &["audit", "FILE", "--json"]).len(), audited + 6);
    // A worker of the earlier version, and one of this one.
    work(&world, 2);
    let used = lines(&world, &["usage", "FILE", "--from", "2096-10-01", "--json"]);
    assert_eq!(used.iter().map(|row| row["units"].clone()).collect::<Vec<_>>(), [json!(240), json!(-14)]);
    let (status, _, _) = world.run(&["unban", "FILE", "--subject", "{login|ann}", "-y"]);
    assert_eq!((status, redis.integer(&[b"EXISTS", b"edge:{login|ann}:ban"])), (0, 0));
}

/// An earlier version finds in what this one writes each key and each field that it has written itself.
fn older_reads(state: &State, now: &State) {
    for (key, value) in state {
        let found = now.get(key).unwrap_or_else(|| panic!("{key} is not written any more"));
        assert_eq!(found[0], value[0], "{key}");
        if value[0] != "stream" {
            // The index of the usage journal: its scores say since then when an interval expires. An older version reads the members.
            let [found, value] = [found, value].map(|of| {
                if key.ends_with("}:usage") && of[0] == "zset" { of[1][0].clone() } else { of[1].clone() }
            });
            assert_eq!(found, value, "{key}");
            continue;
        }
        let (old, new) = (fields(state, key), fields(now, key));
        assert_eq!(old.len(), new.len(), "{key}");
        for (old, new) in old.iter().zip(&new) {
            let names = |entry: &BTreeMap<String, String>| entry.keys().cloned().collect::<BTreeSet<_>>();
            let missing: Vec<_> = names(old).difference(&names(new)).cloned().collect();
            assert!(missing.is_empty(), "{key}: {new:?} has no {missing:?}");
            for name in ["action", "outcome", "policy", "subject", "change"] {
                assert_eq!(old.get(name), new.get(name), "{key}");
            }
        }
    }
}
