// SPDX-License-Identifier: Apache-2.0
//! Asks what the limits of a subject would answer now. The filter's own script runs on copies of the subject's keys, which are removed
//! afterwards: the answer is exact, and nothing is counted.

use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;

use crate::Failure;
use crate::store::Redis;
use weir::limit::{Ask, Outcome};
use weir::resp;
use weir::script::{Form, Plan};

/// The limits that a request asks, and the check.
pub type Charge = (Rc<Plan>, Ask);

/// Asks on copies of the keys, which have the same hash slot. What the same request has charged `earlier` has the same keys. The number in
/// the names of the copies is random: operators in containers often have the same process id.
pub fn ask(redis: &mut Redis, tag: &[u8], earlier: &[Charge], last: &Charge) -> Result<Outcome, Failure> {
    let mark = format!("explain-{:016x}", RandomState::new().hash_one(0)).into_bytes();
    let command = |(plan, ask): &Charge, form| {
        let mut command = Vec::new();
        plan.check(tag, *ask, None, form, &mut command);
        command
    };
    let keys = keys(&command(last, Form::Evalsha));
    let copies: Vec<Vec<u8>> = keys.iter().map(|key| copy_of(key, &mark)).collect();
    let remove: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(copies.iter().map(Vec::as_slice)).collect();
    redis.ask(&remove)?;
    let mut copied = keys.iter().zip(&copies);
    let copied = copied.try_for_each(|(key, copy)| redis.ask(&[b"COPY", key, copy]).map(|_| ()));
    let answer = copied.and_then(|()| {
        let mut run = |charge: &Charge| {
            let check = |form, out: &mut Vec<u8>| out.extend(on_copies(&command(charge, form), &mark));
            redis.run(check, |reply| charge.0.outcome(reply))
        };
        earlier.iter().try_for_each(|charge| run(charge).map(|_| ())).and_then(|()| run(last))
    });
    redis.ask(&remove).and(answer)
}

/// The keys of a command that runs a script.
pub fn keys(command: &[u8]) -> Vec<Vec<u8>> {
    let words = words(command);
    let count = count_of_keys(&words);
    words.into_iter().skip(3).take(count).collect()
}

/// The key of a copy: `weir:{policy|subject}:explain-1f:minute`. It ends with the name of the limit, by which the script finds a subject's own
/// counts.
fn copy_of(key: &[u8], mark: &[u8]) -> Vec<u8> {
    let name = key.iter().rposition(|byte| *byte == b':').unwrap_or(key.len());
    let (subject, name) = key.split_at_checked(name).unwrap_or((key, b""));
    [subject, b":", mark, name].concat()
}

/// The same command on the copies of its keys.
fn on_copies(command: &[u8], mark: &[u8]) -> Vec<u8> {
    let words = words(command);
    let keys = 3..count_of_keys(&words).saturating_add(3);
    let mut out = Vec::new();
    resp::array_header(&mut out, words.len());
    for (place, word) in words.iter().enumerate() {
        let copy = keys.contains(&place).then(|| copy_of(word, mark));
        resp::bulk(&mut out, copy.as_deref().unwrap_or(word));
    }
    out
}

/// The words of a command: EVALSHA, a hash, how many keys, the keys, the arguments.
pub fn words(command: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Some((resp::Reply::Array(Some(words)), _))) = resp::decode(command) else { return Vec::new() };
    let bytes = |word: &resp::Reply<'_>| match word {
        resp::Reply::Bulk(Some(bytes)) => Some(bytes.to_vec()),
        _ => None,
    };
    words.iter().filter_map(bytes).collect()
}

fn count_of_keys(words: &[Vec<u8>]) -> usize {
    let count = words.get(2).and_then(|count| str::from_utf8(count).ok());
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}
