//! The limits, table by table: the pure ones, and the Lua on a real Redis.
#![cfg(not(target_arch = "wasm32"))]
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "support/redis.rs"]
#[allow(dead_code)]
mod redis;
#[path = "support/spec.rs"]
#[allow(dead_code)]
mod spec;
#[path = "support/store.rs"]
#[allow(dead_code)]
mod store;

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use redis::Redis;
use store::Store;
use weir::limit::{Limit, Subject};
use weir::script::MAX_LIMITS;

fn main() {
    let arguments = Arguments::from_args();
    let server = Redis::start().map(Arc::new);
    let mut trials = Vec::new();
    for (place, table) in spec::tables().into_iter().enumerate() {
        let limits = table.limits.clone();
        trials.push(Trial::test(format!("{} (pure)", table.name), move || {
            let mut subject = Subject::default();
            run(&spec::tables()[place], |row| subject.check(&limits, row.now, row.ask))
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{} (Lua)", table.name), move || {
            let table = &spec::tables()[place];
            let mut store = Store::new(&server, table.limits.clone());
            run(table, |row| store.check(Some(row.now), row.ask))
        }));
    }
    trials.push(Trial::test("luacheck knows every name of the linked scripts", luacheck));
    if server.is_none() {
        eprintln!("skipped: no redis-server");
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(server);
    conclusion.exit();
}

/// The fragments are linted apart, where most of their names are unknown; here all must be known.
fn luacheck() -> Result<(), Failed> {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("lua");
    std::fs::create_dir_all(&directory)?;
    let mut limits: Vec<Vec<Limit>> = spec::each().into_iter().map(|(_, limit)| vec![limit]).collect();
    limits.push(spec::each().into_iter().map(|(_, limit)| limit).take(MAX_LIMITS).collect());
    limits.push(spec::each().into_iter().map(|(_, limit)| limit).rev().take(MAX_LIMITS).collect());
    for (i, limits) in limits.into_iter().enumerate() {
        let plan = store::plan(limits);
        for (source, name) in plan.sources().into_iter().zip(["check", "settle", "release"]) {
            std::fs::write(directory.join(format!("{i}.{name}.lua")), source)?;
        }
    }
    let known = ["KEYS", "ARGV", "redis", "struct", "math", "type", "tonumber", "error", "ipairs"];
    let mut command = std::process::Command::new("luacheck");
    command.args(["--no-config", "--std", "none", "--no-max-line-length", "--no-unused", "--no-redefined"]);
    command.arg(directory.as_os_str()).arg("--read-globals").args(known);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stdout).into_owned().into()),
        Err(_) => {
            println!("skipped: no luacheck");
            Ok(())
        }
    }
}

fn run(table: &spec::Table, mut check: impl FnMut(&spec::Row) -> weir::limit::Outcome) -> Result<(), Failed> {
    for row in &table.rows {
        let outcome = check(row);
        row.holds(&table.limits, &outcome)?;
    }
    Ok(())
}
