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
use weir::limit::Subject;

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
    if server.is_none() {
        eprintln!("skipped: no redis-server");
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(server);
    conclusion.exit();
}

fn run(table: &spec::Table, mut check: impl FnMut(&spec::Row) -> weir::limit::Outcome) -> Result<(), Failed> {
    for row in &table.rows {
        let outcome = check(row);
        row.holds(&table.limits, &outcome)?;
    }
    Ok(())
}
