// SPDX-License-Identifier: Apache-2.0
//! Two versions of weir on one Redis, as during a rollout or after a downgrade: the scripts of an earlier version and those of this
//! one take turns on the same keys, and answer what the table says.
//!
//! `tests/states/VERSION.json` has what that version sent for some tables: its scripts, each command, and each reply of Redis. Before
//! a version is tagged, `WEIR_UPDATE=1 cargo test --test scripts -- versions` writes its file. Later nobody changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use weir::limit::{Outcome, Subject};
use weir::resp::{self, Reply};
use weir::script::{Form, Options, Plan};

use crate::redis::{Connection, Redis};
use crate::spec::{self, Row, Table};
use crate::store::{self, Store};

/// The subject in the recorded commands.
const RECORDED: &str = "{policy|recorded}";

/// Who answers the rows of a table.
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

/// What an earlier version did.
struct Version {
    scripts: Vec<String>,
    tables: BTreeMap<String, Vec<Recorded>>,
}

pub fn trials(server: &Arc<Redis>) -> Vec<Trial> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states");
    if std::env::var_os("WEIR_UPDATE").is_some() {
        let file = folder.join(concat!(env!("CARGO_PKG_VERSION"), ".json"));
        std::fs::write(file, recording(server)).expect("the folder");
    }
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "at least one version is recorded");
    let mut trials = Vec::new();
    for file in files {
        let number = file.file_stem().and_then(|stem| stem.to_str()).expect("a version").to_owned();
        let version = Arc::new(read(&std::fs::read_to_string(&file).expect("a file")));
        for name in version.tables.keys().cloned() {
            let (server, version) = (Arc::clone(server), Arc::clone(&version));
            trials.push(Trial::test(format!("versions: {number} and this one, {name}"), move || {
                let Some((table, options)) = tables().into_iter().find(|(table, _)| table.name == name)
                else {
                    return Err("there is no such table any more: the earlier version still has it".into());
                };
                TURNS.iter().try_for_each(|turn| together(&server, &version, &table, &options, turn))
            }));
        }
    }
    trials
}

/// The tables, with what their policies have beside limits. Classes of priority write nothing of their own.
fn tables() -> Vec<(Table, Options)> {
    let plain = spec::tables().into_iter().chain(spec::debts()).map(|table| (table, Options::default()));
    let bans = spec::bans().into_iter().map(|table| {
        let options = Options { ban: table.ban.clone(), ..Options::default() };
        (table, options)
    });
    plain.chain(bans).collect()
}

/// Both versions answer the rows of a table, each in its turn.
fn together(
    server: &Redis,
    version: &Version,
    table: &Table,
    options: &Options,
    (turns, is_earlier): &(&str, fn(usize, usize) -> bool),
) -> Result<(), Failed> {
    let mut store = Store::new(server, table.limits.clone());
    store.plan = store::plan_with(table.limits.clone(), options.clone());
    let tag = String::from_utf8(store.tag.clone())?;
    let recorded = &version.tables[table.name];
    let mut place = 0;
    // What an earlier version understood of its reply is what the pure limits answer.
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

fn eval(redis: &mut Connection, script: &str, arguments: &[Vec<u8>]) -> Vec<u8> {
    let command = [b"EVAL".as_slice(), script.as_bytes()].into_iter();
    redis.call(&command.chain(arguments.iter().map(Vec::as_slice)).collect::<Vec<_>>())
}

/// The argument with another subject, if it is a key.
fn renamed(argument: &[u8], tag: &str) -> Vec<u8> {
    match std::str::from_utf8(argument) {
        Ok(key) if key.starts_with("weir:") => key.replacen(RECORDED, tag, 1).into_bytes(),
        _ => argument.to_vec(),
    }
}

/// What this version does, as the text of its file: of the tables that run one script, the first.
fn recording(server: &Redis) -> String {
    let (mut scripts, mut told, mut known) = (Vec::<String>::new(), BTreeMap::new(), BTreeSet::new());
    for (table, options) in tables() {
        let plan: Plan = store::plan_with(table.limits.clone(), options);
        if !known.insert((plan.sha(), table.rows.iter().any(|row| row.settled.is_some()))) {
            continue;
        }
        let mut store = Store { plan, tag: RECORDED.as_bytes().to_vec(), redis: server.connect() };
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
            let words = words(&command);
            let source = text(&words[1]);
            let script = scripts.iter().position(|known| *known == source).unwrap_or_else(|| {
                scripts.push(source);
                scripts.len() - 1
            });
            let reply = store.redis.pipeline(&command, 1).remove(0);
            let arguments: Vec<String> = words[2..].iter().map(|word| text(word)).collect();
            rows.push(json!([script, arguments, text(&reply)]));
            purely(&mut subject, &table, row, receipt)
        });
        said.expect("the table holds");
        store.redis.say("FLUSHALL");
        told.insert(table.name, rows);
    }
    // A line for each script and each command, so that a change of one shows.
    let lines = |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n");
    let scripts: Vec<Value> = scripts.into_iter().map(Value::from).collect();
    let tables: Vec<String> =
        told.iter().map(|(name, rows)| format!("{}: [\n{}\n]", Value::from(*name), lines(rows))).collect();
    format!("{{\"scripts\": [\n{}\n],\n\"tables\": {{\n{}\n}}}}\n", lines(&scripts), tables.join(",\n"))
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
    }
}

/// The words of a command.
fn words(command: &[u8]) -> Vec<Vec<u8>> {
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
fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn bytes(text: &Value) -> Vec<u8> {
    text.as_str().expect("a text").chars().map(|next| u8::try_from(next).expect("a byte")).collect()
}
