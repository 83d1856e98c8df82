// SPDX-License-Identifier: Apache-2.0
//! The entries of a stream in Redis.

use std::time::Duration;

use redis::Value;

use super::super::Failure;
use super::redis::{Redis, bytes, items};

pub(in super::super) struct Entry {
    pub id: String,
    /// Names and values, in the order in which they were written.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(other, _)| other == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// The value of a field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        core::str::from_utf8(self.get(name)?).ok()?.parse().ok()
    }
}

impl Redis {
    /// The newest entries of a stream up to this id, at most so many, newest first.
    pub fn older(&mut self, key: &[u8], end: &str, count: usize) -> Result<Vec<Entry>, Failure> {
        let count = count.to_string();
        let reply = self.ask(&[b"XREVRANGE", key, end.as_bytes(), b"-", b"COUNT", count.as_bytes()])?;
        entries(reply)
    }

    /// The entries of a stream after this id, at most so many, oldest first. Waits for so long for the first of them.
    pub fn newer(
        &mut self,
        key: &[u8],
        after: &str,
        count: usize,
        wait: Duration,
    ) -> Result<Vec<Entry>, Failure> {
        let (count, wait) = (count.to_string(), wait.as_millis().max(1).to_string());
        let words: [&[u8]; 8] = [
            b"XREAD",
            b"COUNT",
            count.as_bytes(),
            b"BLOCK",
            wait.as_bytes(),
            b"STREAMS",
            key,
            after.as_bytes(),
        ];
        // A list of one stream: its key, and its entries.
        match items(self.ask(&words)?).into_iter().next() {
            None => Ok(Vec::new()),
            Some(stream) => items(stream).into_iter().nth(1).map_or(Err(unexpected()), entries),
        }
    }
}

fn unexpected() -> Failure {
    String::from("Redis: not the entries of a stream")
}

/// The entries of a stream, as Redis replies with them.
fn entries(reply: Value) -> Result<Vec<Entry>, Failure> {
    let bytes = |value: &Value| bytes(value).map(<[u8]>::to_vec);
    let entry = |value: Value| {
        let mut parts = items(value).into_iter();
        let (id, words) = (parts.next()?, items(parts.next()?));
        let fields = words.as_chunks().0.iter().map(|[name, value]| Some((bytes(name)?, bytes(value)?)));
        Some(Entry { id: String::from_utf8(bytes(&id)?).ok()?, fields: fields.collect::<Option<_>>()? })
    };
    match reply {
        Value::Array(all) => all.into_iter().map(|value| entry(value).ok_or_else(unexpected)).collect(),
        _ => Err(unexpected()),
    }
}
