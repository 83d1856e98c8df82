// SPDX-License-Identifier: Apache-2.0
//! The script of the usage journal: what it adds up, and that a write that is sent twice counts once.

use std::collections::BTreeMap;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use weir::resp::{self, Reply};
use weir::script::usage::{Interval, Used, Write, index_key};
use weir::time::Micros;

use crate::redis::{Connection, Redis, Shared};

const HOUR: u64 = 3_600;
/// An hour that is not over.
const AT: u64 = 4_000_000_000 / HOUR * HOUR;

/// A write: its worker and number, its hour after [`AT`], the tags with units and requests, and the reply.
type Row = (u64, u64, u64, &'static [(&'static str, i64, i64)], i64);
/// What is in the hash of an hour in the end.
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
    for (key, most) in [(index.clone(), KEEP + hour), (format!("{index}:worker:{:016x}", 1), 3_600)] {
        let ttl = connection.integer(&[b"TTL", key.as_bytes()]);
        if !(most - 60..=most).contains(&ttl) {
            return Err(format!("{key}: {ttl} s").into());
        }
    }
    let is_gone = connection.integer(&[b"EXISTS", key("expiry", old).as_bytes()]) == 0;
    if is_gone { Ok(()) } else { Err("what is older than `keep` is kept".into()) }
}

fn key(prefix: &str, start: u64) -> String {
    Interval { start, length: HOUR }.key(prefix)
}

fn write(
    connection: &mut Connection,
    prefix: &str,
    (worker, number): (u64, u64),
    start: u64,
    max_subjects: u32,
    used: &[(&str, i64, i64)],
) -> Reply<'static> {
    let used: Vec<_> = used
        .iter()
        .map(|(tag, units, requests)| (tag.as_bytes().to_vec(), Used { units: *units, requests: *requests }))
        .collect();
    let interval = Interval { start, length: HOUR };
    let keep = Micros::from_secs(86_400);
    let mut command = Vec::new();
    Write { prefix, worker, number, interval, keep, max_subjects, used: &used }.encode(&mut command);
    let reply = connection.pipeline(&command, 1).remove(0);
    match resp::decode(&reply) {
        Ok(Some((Reply::Integer(number), _))) => Reply::Integer(number),
        other => panic!("{other:?}"),
    }
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
