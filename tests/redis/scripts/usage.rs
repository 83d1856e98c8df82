// SPDX-License-Identifier: Apache-2.0
//! The script of the usage journal: what it adds up, that a write that is sent twice counts once, and that one that fails loses nothing.
//! And the script with its writer, on a Redis whose clock is set forth and back.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use weir::config::Config;
use weir::engine::{Action, Engine, Outgoing, Release, StoreFailure};
use weir::policy::Check;
use weir::random::Random;
use weir::resp::{self, Reply};
use weir::script::usage::{Interval, Used, Write, index_key};
use weir::time::Micros;

use crate::redis::{Connection, Redis, Shared};

const HOUR: u64 = 3_600;
/// An hour that is not over.
const AT: u64 = 4_000_000_000 / HOUR * HOUR;

/// A write: its worker and number, its hour after [`AT`], the tags with units and requests, and the reply.
type Row = (u64, u64, u64, &'static [(&'static str, i64, i64)], i64);
/// The final content of an hour's hash.
type Hour = (u64, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const CASES: [(&str, u32, &[Row], &[Hour]); 8] = [
    ("units and requests are added up", 10, &[(1, 1, 0, &[("{p|a}", 5, 1), ("{p|b}", 2, 2)], 1), (1, 2, 0, &[("{p|a}", 7, 1)], 1)],
     &[(0, &[("{p|a}", "12 2"), ("{p|b}", "2 2")])]),
    ("a refund takes away", 10, &[(1, 1, 0, &[("{p|a}", 5, 1)], 1), (1, 2, 0, &[("{p|a}", -7, -1)], 1)], &[(0, &[("{p|a}", "-2 0")])]),
    ("a write that comes twice counts once", 10, &[(1, 1, 0, &[("{p|a}", 5, 1)], 1), (1, 1, 0, &[("{p|a}", 5, 1)], 0)], &[(0, &[("{p|a}", "5 1")])]),
    ("an earlier write that comes late does not count again", 10,
     &[(1, 1, 0, &[("{p|a}", 5, 1)], 1), (1, 2, 1, &[("{p|a}", 3, 1)], 1), (1, 1, 0, &[("{p|a}", 5, 1)], 0)],
     &[(0, &[("{p|a}", "5 1")]), (1, &[("{p|a}", "3 1")])]),
    ("each worker has numbers of its own", 10, &[(1, 1, 0, &[("{p|a}", 5, 1)], 1), (2, 1, 0, &[("{p|a}", 5, 1)], 1)], &[(0, &[("{p|a}", "10 2")])]),
    (
        "subjects that are too many count for the others of their policy",
        2,
        &[
            (
                1,
                1,
                0,
                &[("{p|a}", 1, 1), ("{q|b}", 2, 1), ("{q|c}", 3, 1), ("{p|d}", 4, 1), ("{p|a}", 5, 1)],
                1,
            ),
            (1, 2, 0, &[("{q|c}", 6, 1), ("{q|}", 7, 1)], 1),
        ],
        &[(0, &[("{p|a}", "6 2"), ("{p}", "4 1"), ("{q|b}", "2 1"), ("{q}", "16 3")])],
    ),
    ("large numbers are exact", 10, &[(1, 1, 0, &[("{p|a}", 4_503_599_627_370_496, 1)], 1), (1, 2, 0, &[("{p|a}", 4_503_599_627_370_495, 1)], 1)],
     &[(0, &[("{p|a}", "9007199254740991 2")])]),
    ("any byte of a tag is kept", 10, &[(1, 1, 0, &[("{p|a%20b|%~0f|-}", 1, 1)], 1)], &[(0, &[("{p|a%20b|%~0f|-}", "1 1")])]),
];

pub fn trials(server: &Arc<Shared>) -> Vec<Trial> {
    let mut trials: Vec<_> = CASES
        .into_iter()
        .enumerate()
        .map(|(place, (name, most, writes, hours))| {
            let server = Arc::clone(server);
            Trial::test(format!("usage: {name}"), move || {
                let prefix = format!("usage{place}");
                let mut connection = server.connect();
                for (worker, number, hour, used, wanted) in writes {
                    let found =
                        write(&mut connection, &prefix, (*worker, *number), AT + hour * HOUR, most, used);
                    check(&found, &Reply::Integer(*wanted), number)?;
                }
                for (hour, wanted) in hours {
                    let found = hash(&mut connection, &key(&prefix, AT + hour * HOUR));
                    let wanted: BTreeMap<_, _> =
                        wanted.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned())).collect();
                    check(&found, &wanted, hour)?;
                }
                Ok(())
            })
        })
        .collect();
    let own = Arc::clone(server);
    trials.push(Trial::test("usage: intervals expire, and the index forgets them", move || expiry(&own)));
    let own = Arc::clone(server);
    trials.push(Trial::test("usage: a write without a right, again with it", move || rights(&own)));
    let own = Arc::clone(server);
    trials.push(Trial::test("usage: another interval and keep cut nothing off", move || others(&own)));
    trials.push(Trial::test(
        "usage: five hundred intervals, reloads, losses, lost rights, a clock that goes back",
        conservation,
    ));
    let server = Arc::clone(server);
    trials.push(Trial::test("usage: what stands there and is no count is replaced", move || {
        let mut connection = server.connect();
        connection.call(&[b"HSET", key("replaced", AT).as_bytes(), b"{p|a}", b"what is this"]);
        write(&mut connection, "replaced", (1, 1), AT, 10, &[("{p|a}", 5, 1)]);
        let wanted = BTreeMap::from([("{p|a}".to_owned(), "5 1".to_owned())]);
        check(&hash(&mut connection, &key("replaced", AT)), &wanted, &AT)
    }));
    trials
}

fn check<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T, what: &u64) -> Result<(), Failed> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}").into()) }
}

fn expiry(server: &Redis) -> Result<(), Failed> {
    const KEEP: i64 = 86_400;
    let mut connection = server.connect();
    let now = connection.say("TIME").lines().nth(2).and_then(|text| text.trim().parse::<u64>().ok());
    let this = now.expect("a time") / HOUR * HOUR;
    let (old, kept) = (this - 40 * HOUR, this - 23 * HOUR);
    for (number, start) in [(1, old), (2, old + HOUR), (3, kept), (4, this)] {
        write(&mut connection, "expiry", (1, number), start, 10, &[("{p|a}", 1, 1)]);
    }
    let ttl = connection.integer(&[b"TTL", key("expiry", this).as_bytes()]);
    let hour = i64::try_from(HOUR).expect("small");
    if !(KEEP..=KEEP + hour).contains(&ttl) {
        return Err(format!("{ttl} s").into());
    }
    let index = index_key("expiry");
    let known = list(&connection.call(&[b"ZRANGE", index.as_bytes(), b"0", b"-1"]));
    check(&known, &vec![format!("{kept}:{HOUR}"), format!("{this}:{HOUR}")], &0)?;
    for (key, most) in [(index.clone(), KEEP + hour), (format!("{index}:worker:{:016x}", 1), KEEP)] {
        let least = if key == index { KEEP } else { most - 60 };
        let ttl = connection.integer(&[b"TTL", key.as_bytes()]);
        if !(least..=most).contains(&ttl) {
            return Err(format!("{key}: {ttl} s").into());
        }
    }
    let is_gone = connection.integer(&[b"EXISTS", key("expiry", old).as_bytes()]) == 0;
    if is_gone { Ok(()) } else { Err("what is older than `keep` is kept".into()) }
}

/// The commands of the script. Each may be missing among the rights of a user of Redis.
const COMMANDS: [&str; 10] =
    ["get", "time", "pttl", "hlen", "hget", "zadd", "zremrangebyscore", "expireat", "set", "hset"];

/// Whatever right is missing, the write is made when it is there, and only once.
fn rights(server: &Redis) -> Result<(), Failed> {
    let (mut operator, mut connection) = (server.connect(), server.connect());
    operator.say("ACL SETUSER clerk on >clerk ~* +@all");
    connection.say("AUTH clerk clerk");
    for (number, command) in (1..).zip(COMMANDS) {
        // An interval of its own, so that the script lists it.
        let start = AT + number * HOUR;
        operator.say(&format!("ACL SETUSER clerk -{command}"));
        let mut send = || {
            send(
                &mut connection,
                "rights",
                (7, number),
                (start, HOUR),
                86_400,
                10,
                &[("{p|a}", 5, 1), ("{p|b}", 2, 1)],
            )
        };
        let refused = String::from_utf8_lossy(&send()).into_owned();
        if !refused.starts_with('-') {
            return Err(format!("without {command}: {refused}").into());
        }
        operator.say(&format!("ACL SETUSER clerk +{command}"));
        let replies = [send(), send()];
        check(&replies, &[b":1\r\n".to_vec(), b":0\r\n".to_vec()], &number)?;
        let wanted =
            [("{p|a}", "5 1"), ("{p|b}", "2 1")].map(|(tag, used)| (tag.to_owned(), used.to_owned()));
        check(&hash(&mut operator, &key("rights", start)), &BTreeMap::from(wanted), &number)?;
    }
    let index = index_key("rights");
    let listed = operator.integer(&[b"ZCARD", index.as_bytes()]);
    check(&listed, &i64::try_from(COMMANDS.len()).expect("few"), &0)
}

/// A configuration with short intervals that are kept for an hour writes, too: the longer ones stay, and are listed. The short ones go when
/// they have expired.
fn others(server: &Redis) -> Result<(), Failed> {
    const DAY: u64 = 86_400;
    let mut connection = server.connect();
    let now = connection.say("TIME").lines().nth(2).and_then(|text| text.trim().parse::<u64>().ok());
    let today = now.expect("a time") / DAY * DAY;
    let used: [(&str, i64, i64); 1] = [("{p|a}", 1, 1)];
    let mut number = 0;
    let mut write = |connection: &mut Connection, of: (u64, u64), keep: u64| {
        number += 1;
        send(connection, "others", (1, number), of, keep, 10, &used)
    };
    let days = [(today - 30 * DAY, DAY), (today - DAY, DAY), (today, DAY)];
    for day in days {
        write(&mut connection, day, 62 * DAY);
    }
    let minute = |ago: u64| ((now.expect("a time") / 60 - ago) * 60, 60);
    for ago in [120, 59, 1, 0] {
        write(&mut connection, minute(ago), HOUR);
    }
    // A shorter `keep` for the same interval.
    write(&mut connection, days[1], HOUR);
    let index = index_key("others");
    let mut listed = list(&connection.call(&[b"ZRANGE", index.as_bytes(), b"0", b"-1"]));
    listed.sort();
    let mut wanted: Vec<_> = days
        .into_iter()
        .chain([59, 1, 0].map(minute))
        .map(|(start, length)| format!("{start}:{length}"))
        .collect();
    wanted.sort();
    check(&listed, &wanted, &0)?;
    for (key, least) in [(index, 62), (Interval { start: days[1].0, length: DAY }.key("others"), 61)] {
        let ttl = connection.integer(&[b"TTL", key.as_bytes()]);
        if ttl < least * 86_400 {
            return Err(format!("{key}: {ttl} s").into());
        }
    }
    Ok(())
}

/// An engine, and the batches of it that Redis gets late.
struct Proxy {
    engine: Engine,
    late: Vec<(Vec<u8>, usize)>,
}

impl Proxy {
    fn new(seed: u64, settings: &str) -> Self {
        let config = format!(
            r#"{{"usage_journal": {settings}, "store": {{"key_prefix": "all", "on_failure": "deny"}}, "policies": [{{"name": "p",
            "usage_journal": true, "limits": [{{"name": "l", "algorithm": "fixed_window", "limit": 1000000000000, "window": "1d"}}]}}]}}"#
        );
        let engine = Engine::new(Rc::new(Config::parse(config.as_bytes()).expect("a configuration")), seed);
        Self { engine, late: Vec::new() }
    }

    /// Sends what is ready. Of the writes of the journal some are lost, or their answers are, or they reach Redis when they were sent again.
    fn turn(&mut self, redis: &mut Connection, random: &mut Random, loses: bool, now: Micros) {
        self.engine.tick(now);
        while self.engine.next_abandoned().is_some() {}
        while let Some(Outgoing { id, body, replies, .. }) = self.engine.next_batch(now) {
            let is_usage = body.windows(14).any(|bytes| bytes == b":usage:worker:");
            let fate = if loses && is_usage { random.below(12) } else { 5 };
            if fate == 0 {
                self.late.push((body.clone(), replies));
            }
            let answer = if fate > 1 { redis.pipeline(&body, replies).concat() } else { Vec::new() };
            if fate > 3 {
                self.engine.replied(id, &answer, now);
            } else {
                self.engine.failed(id, &StoreFailure::Refused, now);
            }
        }
        if !self.late.is_empty() && (!loses || random.below(4) == 0) {
            let (body, replies) = self.late.remove(0);
            redis.pipeline(&body, replies);
        }
    }
}

/// Two workers whose usage is added up, and one of another configuration on the same journal, which keeps less of it. All are replaced now
/// and then. The final content of the journal equals the admitted requests.
fn conservation() -> Result<(), Failed> {
    const COST: u64 = 7;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (file, library) = (folder.join("moved"), folder.join("clock.so"));
    std::fs::write(&file, [0; 8])?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/skewed_clock.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).status()?;
    assert!(compiled.success(), "a C compiler");
    let variable = |name: &str, path: &Path| (name.to_owned(), path.display().to_string());
    let server = Redis::start_under(&[variable("LD_PRELOAD", &library), variable("WEIR_CLOCK_FILE", &file)]);
    let server = server.expect("a Redis");
    let clock = File::options().write(true).open(&file)?;
    let (mut operator, mut redis) = (server.connect(), server.connect());
    operator.say("ACL SETUSER clerk on >clerk ~* +@all");
    redis.say("AUTH clerk clerk");

    const SETTINGS: [&str; 3] =
        [r#"{"interval": "1m"}"#, r#"{"interval": "1m"}"#, r#"{"interval": "5m", "keep": "1h"}"#];
    let mut random = Random::new(4);
    let mut proxies: Vec<_> =
        (1..).zip(SETTINGS).map(|(seed, settings)| Proxy::new(seed, settings)).collect();
    let mut ending: Vec<Proxy> = Vec::new();
    let (mut now, mut stream, mut admitted) = (Micros::from_secs(1_800_000_000), 0, 0_i64);
    let mut missing = None;
    for round in 0..500_u64 {
        // A minute for each round; of ten rounds one is two hours ahead.
        let moved = round * 60 + if round % 10 == 9 { 7_200 } else { 0 };
        clock.write_all_at(&moved.to_le_bytes(), 0)?;
        if round % 20 == 10 {
            let command = COMMANDS[3 + random.below(5) as usize];
            operator.say(&format!("ACL SETUSER clerk -{command}"));
            missing = Some(command);
        } else if round % 20 == 13
            && let Some(command) = missing.take()
        {
            operator.say(&format!("ACL SETUSER clerk +{command}"));
        }
        if round % 50 == 49 {
            let place = random.below(3) as usize;
            let mut old = std::mem::replace(&mut proxies[place], Proxy::new(100 + round, SETTINGS[place]));
            old.engine.retire();
            ending.push(old);
        }
        for (place, proxy) in proxies.iter_mut().enumerate() {
            for subject in 0..random.below(if round % 100 == 0 { 400 } else { 20 }) {
                stream += 1;
                let check = Check { cost: COST, ..Check::one(0, format!("{{p|{place}x{subject}}}")) };
                drop(proxy.engine.submit(stream, [check].into_iter().collect(), now));
            }
            proxy.turn(&mut redis, &mut random, true, now);
            while let Some(Release { stream, action }) = proxy.engine.next_release() {
                admitted += i64::from(place < 2 && matches!(action, Action::Admit));
                proxy.engine.closed(stream, now);
            }
        }
        for _ in 0..20 {
            now = now.plus(Micros::from_millis(100));
            proxies
                .iter_mut()
                .chain(&mut ending)
                .for_each(|proxy| proxy.turn(&mut redis, &mut random, true, now));
        }
        ending.retain(|proxy| !proxy.engine.may_end() || !proxy.late.is_empty());
    }
    for _ in 0..300 {
        now = now.plus(Micros::from_millis(100));
        proxies
            .iter_mut()
            .chain(&mut ending)
            .for_each(|proxy| proxy.turn(&mut redis, &mut random, false, now));
    }
    assert!(proxies.iter().chain(&ending).all(|proxy| proxy.engine.may_end()), "all is written");
    let listed = list(&operator.call(&[b"ZRANGE", index_key("all").as_bytes(), b"0", b"-1"]));
    let mut sum = Used::default();
    for interval in listed.iter().map(|name| Interval::read(name).expect("an interval")) {
        let fields = hash(&mut operator, &interval.key("all"));
        assert!(!fields.is_empty(), "{interval:?} has expired, and is listed");
        let of_both = fields.iter().filter(|(tag, _)| !tag.starts_with("{p|2x"));
        sum =
            of_both.fold(sum, |sum, (_, used)| sum.plus(Used::read(used.as_bytes()).expect("what was used")));
    }
    drop(server);
    std::fs::remove_dir_all(&folder)?;
    assert!(admitted > 8_000, "{admitted}");
    check(&(sum.units, sum.requests), &(admitted * COST as i64, admitted), &0)
}

fn key(prefix: &str, start: u64) -> String {
    Interval { start, length: HOUR }.key(prefix)
}

fn write(
    connection: &mut Connection,
    prefix: &str,
    write: (u64, u64),
    start: u64,
    max_subjects: u32,
    used: &[(&str, i64, i64)],
) -> Reply<'static> {
    match resp::decode(&send(connection, prefix, write, (start, HOUR), 86_400, max_subjects, used)) {
        Ok(Some((Reply::Integer(number), _))) => Reply::Integer(number),
        other => panic!("{other:?}"),
    }
}

/// The reply to a write.
fn send(
    connection: &mut Connection,
    prefix: &str,
    (worker, number): (u64, u64),
    (start, length): (u64, u64),
    keep: u64,
    max_subjects: u32,
    used: &[(&str, i64, i64)],
) -> Vec<u8> {
    let used: Vec<_> = used
        .iter()
        .map(|(tag, units, requests)| (tag.as_bytes().to_vec(), Used { units: *units, requests: *requests }))
        .collect();
    let (interval, keep) = (Interval { start, length }, Micros::from_secs(keep));
    let mut command = Vec::new();
    Write { prefix, worker, number, interval, keep, max_subjects, used: &used }.encode(&mut command);
    connection.pipeline(&command, 1).remove(0)
}

fn hash(connection: &mut Connection, key: &str) -> BTreeMap<String, String> {
    let all = list(&connection.call(&[b"HGETALL", key.as_bytes()]));
    all.as_chunks().0.iter().map(|[tag, value]| (tag.clone(), value.clone())).collect()
}

fn list(reply: &[u8]) -> Vec<String> {
    let Ok(Some((Reply::Array(Some(items)), _))) = resp::decode(reply) else { panic!("an array") };
    let text = |item: &Reply<'_>| match item {
        Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    items.iter().map(text).collect()
}
