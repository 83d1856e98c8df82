// SPDX-License-Identifier: Apache-2.0
//! The units that a Redis forgets when it restarts, is flushed, or runs out of memory: the table of docs/stores.md. Each case grants units,
//! lets it happen, and counts the units that may be granted again. Every case has a Redis of its own.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use weir::limit::{Ask, LeakyBucket, Limit};
use weir::resp;
use weir::script::Form;
use weir::time::Micros;

use crate::redis::Redis;
use crate::store::Store;

/// Units of each limit. None comes back while a test runs.
const LIMIT: u32 = 10;
/// Units that are granted before what is saved, and after it.
const BEFORE: u32 = 6;
const AFTER: u32 = 3;

/// Its name, the arguments of Redis, what happens after `BEFORE` units (it says how many it grants by itself), and how many
/// units are forgotten then.
type Case = (&'static str, &'static [&'static str], fn(&mut Redis) -> u32, u32);

const AOF: &[&str] = &["--appendonly", "yes", "--appendfsync", "everysec"];

const RESTARTS: &[Case] = &[
    ("restart without persistence: all that was granted", &[], without_persistence, BEFORE),
    ("restart from AOF, the process was killed: nothing", AOF, killed, 0),
    (
        "restart from AOF, the machine lost power: what was granted since the last fsync",
        AOF,
        unplugged,
        AFTER,
    ),
    ("restart from a snapshot: what was granted since the snapshot", &[], from_snapshot, AFTER),
    ("FLUSHALL: all that was granted", &[], flushed, BEFORE),
];

pub fn trials() -> Vec<Trial> {
    let restart = |case: &'static Case| Trial::test(format!("lost: {}", case.0), move || restarts(case));
    let mut trials: Vec<_> = RESTARTS.iter().map(restart).collect();
    trials.push(Trial::test(
        "lost: eviction under `volatile-ttl`: the evicted subjects, those with least to lose",
        evicts,
    ));
    trials.push(Trial::test("lost: `noeviction`: nothing, and what cannot be counted is an error", refuses));
    trials
}

fn limit() -> Limit {
    LeakyBucket::new(1, Micros::from_secs(86_400), LIMIT.into(), Micros::ZERO).expect("a limit").into()
}

/// The subject of this number, on a connection of its own.
fn subject(redis: &Redis, number: usize) -> Store {
    Store::named(redis, vec![("limit0".to_owned(), limit())], format!("{{policy|{number}}}").as_bytes())
}

fn grant(redis: &Redis, units: u32) {
    assert_eq!(subject(redis, 0).check(None, Ask::new(units, 1)).granted, units);
}

/// The number of units that are still granted: all that are left.
fn left(store: &mut Store) -> u32 {
    store.check(None, Ask::new(2 * LIMIT, 1)).granted
}

fn restarts(&(_, arguments, happens, forgotten): &Case) -> Result<(), Failed> {
    let Some(mut redis) = Redis::start_with(arguments) else { return Err("no redis-server".into()) };
    grant(&redis, BEFORE);
    let granted = BEFORE + happens(&mut redis);
    let again = left(&mut subject(&redis, 0));
    assert_eq!(again, LIMIT - granted + forgotten);
    Ok(())
}

fn without_persistence(redis: &mut Redis) -> u32 {
    redis.restart();
    0
}

/// The kernel has what Redis has written, whether or not it is on the disk.
fn killed(redis: &mut Redis) -> u32 {
    grant(redis, AFTER);
    written(redis);
    redis.restart();
    AFTER
}

/// After a power cut the file is as it was at the last fsync, which Redis does each second: the test puts an earlier file in its place.
fn unplugged(redis: &mut Redis) -> u32 {
    let log = newest_aof(redis);
    written(redis);
    let synced = fs::read(&log).expect("the log");
    grant(redis, AFTER);
    written(redis);
    assert!(fs::read(&log).expect("the log").len() > synced.len());
    redis.stop();
    fs::write(&log, synced).expect("the log is written");
    redis.restart();
    AFTER
}

/// Waits until Redis has written its log. While it waits for the disk, it answers first and writes later.
fn written(redis: &Redis) {
    let mut asked = redis.connect();
    let mut is_written = || asked.say("INFO persistence").contains("aof_buffer_length:0\r");
    for _ in 0..4_000 {
        if is_written() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("Redis has not written its log after 20 s");
}

/// The file that Redis appends to.
fn newest_aof(redis: &Redis) -> PathBuf {
    let folder = redis.socket().parent().expect("a folder").join("appendonlydir");
    let files = fs::read_dir(&folder).expect("a folder of logs").map(|file| file.expect("a file").path());
    files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).max().expect("a log")
}

fn from_snapshot(redis: &mut Redis) -> u32 {
    assert_eq!(redis.connect().say("SAVE"), "+OK\r\n");
    grant(redis, AFTER);
    redis.restart();
    AFTER
}

fn flushed(redis: &mut Redis) -> u32 {
    assert_eq!(redis.connect().say("FLUSHALL"), "+OK\r\n");
    0
}

/// Fills a Redis with subjects that have used 1 to 10 units, in turn, until `enough`. Returns the usage of each.
fn fill(redis: &Redis, mut enough: impl FnMut(&mut Store, Result<u32, String>) -> bool) -> Vec<u32> {
    let mut used = Vec::new();
    let mut store = subject(redis, 0);
    store.check(None, Ask::new(0, 0));
    let before = store.redis.info("memory", "used_memory");
    store.redis.say(&format!("CONFIG SET maxmemory {}", before + 300_000.0));
    for number in 0..100_000 {
        store.tag = format!("{{policy|{number}}}").into_bytes();
        let units = 1 + u32::try_from(number).expect("a number") % LIMIT;
        let mut command = Vec::new();
        store.plan.check(&store.tag, Ask::new(units, 1), None, Form::Evalsha, &mut command);
        let reply = store.redis.pipeline(&command, 1).remove(0);
        let reply = store.plan.outcome(&resp::decode(&reply).expect("RESP").expect("a reply").0);
        let granted = reply.map(|outcome| outcome.granted).map_err(|bad| bad.to_string());
        if granted.is_ok() {
            used.push(units);
        }
        if enough(&mut store, granted) {
            return used;
        }
    }
    panic!("Redis never has enough");
}

/// The units that each subject could use again, though it has used them.
fn forgotten(redis: &Redis, used: &[u32]) -> Vec<u32> {
    redis.connect().say("CONFIG SET maxmemory 0");
    let mut store = subject(redis, 0);
    let mut again = |(number, used): (usize, &u32)| {
        store.tag = format!("{{policy|{number}}}").into_bytes();
        left(&mut store) + used - LIMIT
    };
    used.iter().enumerate().map(&mut again).collect()
}

fn evicts() -> Result<(), Failed> {
    let Some(redis) = Redis::start_with(&["--maxmemory-policy", "volatile-ttl"]) else {
        return Err("no redis-server".into());
    };
    let used = fill(&redis, |store, granted| {
        granted.expect("a grant");
        store.redis.info("stats", "evicted_keys") >= 200.0
    });
    let forgotten = forgotten(&redis, &used);
    // Redis has evicted some for the connection that lifts its limit, too, and none since.
    let evicted = redis.connect().info("stats", "evicted_keys");
    let subjects = forgotten.iter().filter(|units| **units > 0).count();
    assert_eq!(subjects as f64, evicted, "each evicted subject, and no other");
    let sum = |units: &[u32]| f64::from(units.iter().sum::<u32>());
    let (lost, average) = (sum(&forgotten) / subjects as f64, sum(&used) / used.len() as f64);
    // The keys that expire first belong to the subjects that have used least.
    if lost < average / 2.0 { Ok(()) } else { Err(format!("{lost} units each, of {average}").into()) }
}

fn refuses() -> Result<(), Failed> {
    let Some(redis) = Redis::start_with(&["--maxmemory-policy", "noeviction"]) else {
        return Err("no redis-server".into());
    };
    let used = fill(&redis, |_, granted| granted.is_err_and(|error| error.contains("OOM")));
    assert!(used.len() > 200, "{}", used.len());
    assert_eq!(forgotten(&redis, &used), vec![0; used.len()]);
    Ok(())
}
