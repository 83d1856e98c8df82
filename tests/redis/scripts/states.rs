// SPDX-License-Identifier: Apache-2.0
//! Two versions of weir on one Redis, as during a rollout or after a downgrade: the scripts of an earlier version and those of this one
//! take turns on the same keys, and answer what the table says.
//!
//! `tests/states/VERSION/limits.json` has what that version sent for some tables: its scripts, each command, and each reply of Redis.
//! Before a version is tagged, `scripts/record` writes its files. Do not change them later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use weir::limit::{Limit, Outcome, Subject};
use weir::resp::{self, Reply};
use weir::script::{Form, Options, Overrides};

use crate::redis::{Connection, Redis, Shared};
use crate::spec::{self, Row, Table};
use crate::store::{self, Store};

/// The subject in the recorded commands.
pub const RECORDED: &str = "{policy|recorded}";

/// The version that answers each row of a table.
const TURNS: [(&str, fn(usize, usize) -> bool); 4] = [
    ("the earlier one begins, this one takes over", |row, rows| row < rows / 2),
    ("this one begins, the earlier one takes over", |row, rows| row >= rows / 2),
    ("in turn, the earlier one first", |row, _| row % 2 == 0),
    ("in turn, this one first", |row, _| row % 2 == 1),
];

/// A command of an earlier version, without `EVAL` and its script, and what Redis answered.
struct Recorded {
    script: usize,
    arguments: Vec<Vec<u8>>,
    reply: Vec<u8>,
}

/// The recorded commands and replies of an earlier version.
struct Version {
    scripts: Vec<String>,
    tables: BTreeMap<String, Vec<Recorded>>,
    /// The overrides of subjects, by table: the key and the value.
    overrides: BTreeMap<String, [Vec<u8>; 2]>,
}

/// A table, and the policy that has to answer it.
struct Case {
    name: String,
    table: Table,
    limits: Vec<Limit>,
    options: Options,
    /// The value of the subject's override.
    own: Option<String>,
}

/// The folders of the recorded versions, in order, and that of this one if it is to be recorded.
pub fn versions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states");
    if is_recording() {
        std::fs::create_dir_all(this_version()).expect("a folder");
    }
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    // Before the first version there were other names of fields, and no scripts were recorded.
    folders.retain(|folder| folder.join("limits.json").exists() || *folder == this_version());
    folders.sort();
    assert!(!folders.is_empty(), "at least one version is recorded");
    folders
}

/// True if the files of this version are to be written.
pub fn is_recording() -> bool {
    std::env::var_os("WEIR_RECORD").is_some()
}

/// The folder of this version.
pub fn this_version() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states").join(env!("CARGO_PKG_VERSION"))
}

pub fn trials(server: &Arc<Shared>) -> Vec<Trial> {
    if is_recording() {
        std::fs::create_dir_all(this_version()).expect("a folder");
        std::fs::write(this_version().join("limits.json"), recording(server)).expect("the folder");
    }
    let mut trials = Vec::new();
    for folder in versions() {
        let number = folder.file_name().and_then(|name| name.to_str()).expect("a version").to_owned();
        let file = std::fs::read_to_string(folder.join("limits.json")).expect("a file");
        let version = Arc::new(read(&file));
        for name in version.tables.keys().cloned() {
            let (server, version) = (Arc::clone(server), Arc::clone(&version));
            trials.push(Trial::test(format!("versions: {number} and this one, {name}"), move || {
                let Some(case) = cases().into_iter().find(|case| case.name == name) else {
                    return Err("there is no such table any more: the earlier version still has it".into());
                };
                TURNS.iter().try_for_each(|turn| together(&server, &version, &case, turn))
            }));
        }
    }
    trials
}

/// The tables, with what their policies have beside limits. Classes of priority write nothing of their own.
fn cases() -> Vec<Case> {
    let case = |table: Table| Case {
        name: table.name.to_owned(),
        limits: table.limits.clone(),
        options: Options { ban: table.ban.clone(), ..Options::default() },
        own: None,
        table,
    };
    let plain = spec::tables().into_iter().chain(spec::debts()).chain(spec::bans()).map(case);
    plain.chain(spec::tables().into_iter().map(|table| overridden(case(table)))).collect()
}

/// The same answers, where the policy has other counts and the subject has those of the table.
fn overridden(case: Case) -> Case {
    let halved = |limit: &Limit| {
        limit.with_counts(limit.counts().map(|count| count.div_ceil(2))).unwrap_or(limit.clone())
    };
    let counts = |limit: &Limit| {
        let [first, second, third] = limit.counts();
        match limit {
            Limit::TokenBucket(_) => json!({"refill": first, "capacity": second, "overdraft": third}),
            Limit::LeakyBucket(_) => json!({"rate": first, "burst": second}),
            _ => json!({"limit": first}),
        }
    };
    let own: serde_json::Map<_, _> = case
        .limits
        .iter()
        .enumerate()
        .map(|(place, limit)| (format!("limit{place}"), counts(limit)))
        .collect();
    Case {
        name: format!("override: {}", case.name),
        limits: case.limits.iter().map(halved).collect(),
        options: Options { overrides: Overrides::Read, ..case.options },
        own: Some(Value::Object(own).to_string()),
        table: case.table,
    }
}

impl Case {
    fn store(&self, server: &Redis, tag: &[u8]) -> Store {
        let plan = store::plan_with(self.limits.clone(), self.options.clone());
        Store { plan, tag: tag.to_vec(), redis: server.connect() }
    }
}

/// Both versions answer the rows of a table, each in its turn.
fn together(
    server: &Redis,
    version: &Version,
    case: &Case,
    (turns, is_earlier): &(&str, fn(usize, usize) -> bool),
) -> Result<(), Failed> {
    let Case { name, table, .. } = case;
    let tag = Store::new(server, table.limits.clone()).tag;
    let mut store = case.store(server, &tag);
    let tag = String::from_utf8(tag)?;
    if let Some([key, value]) = version.overrides.get(name) {
        store.redis.call(&[b"SET", &renamed(key, &tag), value]);
    }
    let recorded = &version.tables[name];
    let mut place = 0;
    // The earlier version read its reply as the answer of the pure limits.
    let mut subject = Subject::default();
    table
        .holds(|row, receipt| {
            let pure = purely(&mut subject, table, row, receipt);
            let (now, earlier) = (place, is_earlier(place, table.rows.len()));
            place += 1;
            if !earlier {
                return ask(&mut store, row, receipt);
            }
            let Recorded { script, arguments, reply } = &recorded[now];
            let arguments: Vec<Vec<u8>> = arguments.iter().map(|argument| renamed(argument, &tag)).collect();
            let found = eval(&mut store.redis, &version.scripts[*script], &arguments);
            assert_eq!(text(&found), text(reply), "{turns}: {}", row.line);
            pure
        })
        .map_err(|difference| format!("{turns}: {difference}").into())
}

fn purely(subject: &mut Subject, table: &Table, row: &Row, receipt: &Outcome) -> Outcome {
    match row.settled {
        Some(units) => subject.settle(&table.limits, table.ban.as_ref(), row.now, units, receipt),
        None => subject.check(&table.limits, table.ban.as_ref(), row.now, row.ask),
    }
}

fn ask(store: &mut Store, row: &Row, receipt: &Outcome) -> Outcome {
    match row.settled {
        Some(units) => store.settle(Some(row.now), units, receipt),
        None => store.check(Some(row.now), row.ask),
    }
}

pub fn eval(redis: &mut Connection, script: &str, arguments: &[Vec<u8>]) -> Vec<u8> {
    let command = [b"EVAL".as_slice(), script.as_bytes()].into_iter();
    redis.call(&command.chain(arguments.iter().map(Vec::as_slice)).collect::<Vec<_>>())
}

/// The argument with another subject, if it is a key.
pub fn renamed(argument: &[u8], tag: &str) -> Vec<u8> {
    match std::str::from_utf8(argument) {
        Ok(key) if key.starts_with("weir:") => key.replacen(RECORDED, tag, 1).into_bytes(),
        _ => argument.to_vec(),
    }
}

/// The commands of this version, as the text of its file: if several tables run one script, the first of them.
fn recording(server: &Redis) -> String {
    let (mut scripts, mut told, mut known) = (Vec::<String>::new(), BTreeMap::new(), BTreeSet::new());
    let mut overrides = BTreeMap::new();
    for case in cases() {
        let (mut store, table) = (case.store(server, RECORDED.as_bytes()), &case.table);
        if !known.insert((store.plan.sha(), table.rows.iter().any(|row| row.settled.is_some()))) {
            continue;
        }
        if let Some(own) = &case.own {
            let key = format!("weir:{RECORDED}:override");
            store.redis.call(&[b"SET", key.as_bytes(), own.as_bytes()]);
            overrides.insert(case.name.clone(), json!([key, own]));
        }
        let mut rows = Vec::new();
        let mut subject = Subject::default();
        let said = table.holds(|row, receipt| {
            let mut command = Vec::new();
            match row.settled {
                Some(units) => {
                    store.plan.settle(&store.tag, units, receipt, Some(row.now), Form::Eval, &mut command);
                }
                None => store.plan.check(&store.tag, row.ask, Some(row.now), Form::Eval, &mut command),
            }
            let (script, arguments) = recorded(&command, &mut scripts);
            let reply = store.redis.pipeline(&command, 1).remove(0);
            rows.push(json!([script, arguments, text(&reply)]));
            purely(&mut subject, table, row, receipt)
        });
        said.expect("the table holds");
        store.redis.say("FLUSHALL");
        told.insert(case.name, rows);
    }
    let tables: Vec<String> = told
        .iter()
        .map(|(name, rows)| format!("{}: [\n{}\n]", Value::from(name.as_str()), lines(rows)))
        .collect();
    let overrides: Vec<String> =
        overrides.iter().map(|(name, own)| format!("{}: {own}", Value::from(name.as_str()))).collect();
    let scripts: Vec<Value> = scripts.into_iter().map(Value::from).collect();
    format!(
        "{{\"scripts\": [\n{}\n],\n\"overrides\": {{\n{}\n}},\n\"tables\": {{\n{}\n}}}}\n",
        lines(&scripts),
        overrides.join(",\n"),
        tables.join(",\n")
    )
}

/// A command with `EVAL`: the number of its script among these, and its arguments.
pub fn recorded(command: &[u8], scripts: &mut Vec<String>) -> (usize, Vec<String>) {
    let words = words(command);
    assert_eq!(words[0], b"EVAL");
    let source = text(&words[1]);
    let script = scripts.iter().position(|known| *known == source).unwrap_or_else(|| {
        scripts.push(source);
        scripts.len() - 1
    });
    (script, words[2..].iter().map(|word| text(word)).collect())
}

/// A line for each, so that a change of one shows.
pub fn lines(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n")
}

fn read(file: &str) -> Version {
    let file: Value = serde_json::from_str(file).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let row = |row: &Value| Recorded {
        script: usize::try_from(row[0].as_u64().expect("a number")).expect("a script"),
        arguments: list(&row[1]).iter().map(bytes).collect(),
        reply: bytes(&row[2]),
    };
    Version {
        scripts: list(&file["scripts"])
            .iter()
            .map(|text| text.as_str().expect("a script").to_owned())
            .collect(),
        tables: file["tables"]
            .as_object()
            .expect("tables")
            .iter()
            .map(|(name, rows)| (name.clone(), list(rows).iter().map(row).collect()))
            .collect(),
        overrides: file["overrides"]
            .as_object()
            .expect("overrides")
            .iter()
            .map(|(name, own)| (name.clone(), [bytes(&own[0]), bytes(&own[1])]))
            .collect(),
    }
}

/// The words of a command.
pub fn words(command: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Some((Reply::Array(Some(words)), _))) = resp::decode(command) else { panic!("a command") };
    words
        .iter()
        .map(|word| match word {
            Reply::Bulk(Some(bytes)) => bytes.to_vec(),
            other => panic!("a word: {other:?}"),
        })
        .collect()
}

/// Bytes as text: each is the character of its number.
pub fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

pub fn bytes(text: &Value) -> Vec<u8> {
    text.as_str().expect("a text").chars().map(|next| u8::try_from(next).expect("a byte")).collect()
}
