// SPDX-License-Identifier: Apache-2.0
//! An operator's changes of a subject in Redis, together with the entry of the audit for each.
//!
//! One script makes both, so no change is without an entry. On a Redis Cluster the audit is on another node than the subject, and a long list
//! takes several scripts: there the entry is written first, and if the change then fails, a second entry says that.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use clap::Args;
use redis::Value as Reply;

use super::super::Failure;
use super::super::store::{Redis, bytes};
use super::Subject;

/// The hash tag of the audit's key. No subject has it: the tag of a subject contains a `|`.
pub(in super::super) const AUDIT: &str = "{audit}";

/// The most entries of the audit; Redis removes the oldest.
pub(in super::super) const MAX_ENTRIES: u64 = 10_000;

/// The most keys of a script: 10,000 would hold up Redis for almost as long as requests wait.
const MAX_KEYS: usize = 1_000;

/// The longest reason, in bytes.
pub(super) const MAX_REASON: usize = 1_024;

/// `KEYS`: the audit, unless it is on another node, then the keys that change. `ARGV`: 1 if the audit is there; `SET` or `DEL`; what the
/// first key has to be, and 1 if it has to; the keys' value; milliseconds until they expire, with a `+` at least, `KEEP`, or nothing
/// for never; the most entries; names and values of the entry. Replies 1 if the change was made.
const SCRIPT: &[u8] = b"\
local function add(...)
  if ARGV[1] == '1' then return redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[7], '*', ...) end
end
local first = ARGV[1] + 1
if ARGV[4] == '1' then
  local before = redis.pcall('GET', KEYS[first])
  if type(before) ~= 'string' then before = '' end
  if before ~= ARGV[3] then return 0 end
end
local entry = add(unpack(ARGV, 8))
local reply
if ARGV[2] == 'DEL' then reply = redis.pcall('DEL', unpack(KEYS, first))
else
  local longer, millis = string.match(ARGV[6], '^(%+?)(%d+)$')
  local expiry = ARGV[6] == 'KEEP' and {'KEEPTTL'} or millis and {'PX', millis} or {}
  for place = first, #KEYS do
    local left = longer == '+' and redis.call('PTTL', KEYS[place]) or -2
    if left == -2 or left >= 0 and left < tonumber(millis) then
      reply = redis.pcall('SET', KEYS[place], ARGV[5], unpack(expiry))
      if reply.err then break end
    end
  end
end
if type(reply) == 'table' and reply.err then
  add('failed', entry or '', 'error', reply.err)
  return reply
end
return 1";

/// The reason for a change.
#[derive(Args)]
pub(in super::super) struct Reason {
    /// The reason, for the audit: up to 1,024 bytes.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
}

fn reason(text: &str) -> Result<String, String> {
    let fits = (1..=MAX_REASON).contains(&text.len());
    if fits { Ok(text.to_owned()) } else { Err(format!("allowed are 1 to {MAX_REASON} bytes")) }
}

impl Reason {
    pub fn text(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// The lifetime of a key.
pub(super) enum Expiry {
    Never,
    Keep,
    Millis(u64),
    /// A key that lives longer stays as it is.
    AtLeast(u64),
}

/// The change of keys.
pub(super) enum Work<'a> {
    /// These keys get one value. They may belong to several subjects of a policy.
    Set(&'a [Vec<u8>], &'a [u8], Expiry),
    Delete(&'a [Vec<u8>]),
}

/// A change of a subject, as the audit has it.
pub(super) struct Change<'a> {
    pub action: &'a str,
    pub work: Work<'a>,
    /// The value that the first key must have; `None` if it must not exist.
    pub expected: Option<&'a [u8]>,
    /// The change in words.
    pub what: &'a str,
    /// The value before.
    pub before: Option<&'a [u8]>,
    pub reason: Option<&'a str>,
}

impl Change<'_> {
    /// Makes the change, and returns whether it was made: it is not if the first key is another than expected.
    pub fn make(&self, subject: &Subject<'_>, redis: &mut Redis) -> Result<bool, Failure> {
        let audit = [subject.config.store.key_prefix.as_bytes(), b":", AUDIT.as_bytes()].concat();
        let most = MAX_ENTRIES.to_string();
        let entry = self.entry(subject, redis);
        let fields: Vec<&[u8]> = entry.iter().flat_map(|(name, value)| [name.as_bytes(), value]).collect();
        let (keys, value, expiry): (&[Vec<u8>], &[u8], String) = match &self.work {
            Work::Delete(keys) => (keys, b"", String::new()),
            Work::Set(keys, value, expiry) => {
                let expiry = match expiry {
                    Expiry::Never => String::new(),
                    Expiry::Keep => String::from("KEEP"),
                    Expiry::Millis(millis) => millis.to_string(),
                    Expiry::AtLeast(millis) => format!("+{millis}"),
                };
                (keys, value, expiry)
            }
        };
        let is_set = matches!(self.work, Work::Set(..));
        let is_apart = redis.is_cluster() || keys.len() > MAX_KEYS;
        let add = |redis: &mut Redis, fields: &[&[u8]]| {
            let words: [&[u8]; 5] = [b"XADD", &audit, b"MAXLEN", most.as_bytes(), b"*"];
            redis.ask(&[&words, fields].concat())
        };
        let id = if is_apart { Some(add(redis, &fields)?) } else { None };
        let shared: &[&[u8]] = if is_apart { &[] } else { &[&audit] };
        let op: &[u8] = if is_set { b"SET" } else { b"DEL" };
        let flag = |is: bool| if is { b"1".as_slice() } else { b"0" };
        let arguments: [&[u8]; 7] = [
            flag(!is_apart),
            op,
            self.expected.unwrap_or_default(),
            flag(self.expected.is_some()),
            value,
            expiry.as_bytes(),
            most.as_bytes(),
        ];
        let mut reply = Ok(Reply::Int(1));
        // The keys of one subject are on one node.
        for keys in keys.chunks(if is_set && redis.is_cluster() { 1 } else { MAX_KEYS }) {
            if matches!(reply, Ok(Reply::Int(1))) {
                let keys: Vec<&[u8]> = shared.iter().copied().chain(keys.iter().map(Vec::as_slice)).collect();
                let count = keys.len().to_string();
                let words: [&[u8]; 3] = [b"EVAL", SCRIPT, count.as_bytes()];
                reply = redis.ask(&[&words, keys.as_slice(), &arguments, &fields].concat());
            }
        }
        if let Some(id) = id {
            let error = match &reply {
                Ok(Reply::Int(1)) => None,
                Ok(_) => Some("it was changed by another meanwhile"),
                Err(failure) => Some(failure.as_str()),
            };
            if let Some(error) = error {
                add(redis, &[b"failed", bytes(&id).unwrap_or_default(), b"error", error.as_bytes()])?;
            }
        }
        Ok(matches!(reply?, Reply::Int(1)))
    }

    fn entry(&self, subject: &Subject<'_>, redis: &Redis) -> Vec<(&'static str, Vec<u8>)> {
        let tag = match &self.work {
            // No subject has this tag: a `*` is escaped in keys.
            Work::Set([_, _, ..], ..) => format!("{{{}|*}}", subject.policy.counters).into_bytes(),
            _ => subject.tag().to_vec(),
        };
        let mut entry = vec![
            ("action", self.action.into()),
            ("policy", subject.policy.name.clone().into_bytes()),
            ("subject", tag),
            ("by", redis.user().into()),
            ("from", from().into_bytes()),
            ("change", self.what.into()),
        ];
        entry.extend(self.before.map(|before| ("before", before.to_vec())));
        entry.extend(self.reason.map(|reason| ("reason", reason.into())));
        entry
    }
}

/// The user of this machine that runs the command, and the machine: `ann@bastion`.
fn from() -> String {
    let id = fs::metadata("/proc/self").map(|process| process.uid().to_string()).ok();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (Some(number) == id.as_deref()).then(|| name.to_owned())
    });
    let user = named.or(id).or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| String::from("?"));
    let host =
        fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    match host.as_deref().map(str::trim).filter(|host| !host.is_empty()) {
        Some(host) => format!("{user}@{host}"),
        None => user,
    }
}
