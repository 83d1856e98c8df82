// SPDX-License-Identifier: Apache-2.0
//! The number of replicas that have the grants of a batch: `WAIT`, behind the commands of the batch. Redis answers with the number of
//! replicas that have acknowledged all earlier writes: when enough have, or after its time-out.

use super::StoreFailure;
use super::batch::{self, Batch, Work};
use super::resp::{self, Reply};
use crate::bridge;
use crate::engine::clock::Now;
use crate::time::Micros;

/// For this time after replicas were missing, Redis waits for them more briefly. Otherwise all requests would wait for replicas that
/// are unavailable.
const IMPATIENT: Micros = Micros::from_secs(1);

/// The demands of a batch on the replicas of its store.
#[derive(Debug)]
pub(super) struct Replicas {
    min: u32,
    deadline: Micros,
    /// The uptime at which too few replicas had acknowledged a batch after the longer wait.
    missed: Option<Micros>,
}

impl Replicas {
    pub const fn new(min: u32, deadline: Micros) -> Self {
        Self { min, deadline, missed: None }
    }

    /// True if there is a `WAIT` behind these commands.
    pub fn are_awaited(&self, batch: &Batch) -> bool {
        self.min > 0 && batch::tasks(batch).any(|task| !matches!(task.work, Work::Settle { .. }))
    }

    fn is_impatient(&self, now: Now) -> bool {
        self.missed.is_some_and(|missed| now.uptime.since(missed) < IMPATIENT)
    }

    /// Writes the command.
    pub fn wait(&self, out: &mut Vec<u8>, now: Now) {
        let part = if self.is_impatient(now) { 8_000 } else { 2_000 };
        let timeout = i64::try_from(self.deadline.0 / part).unwrap_or(i64::MAX).max(1);
        resp::array_header(out, 3);
        resp::bulk(out, b"WAIT");
        resp::bulk_int(out, self.min.into());
        resp::bulk_int(out, timeout);
    }

    /// Reads the reply from `replies`. The failure is `None` if it is not a reply to this command.
    pub fn replied(&mut self, replies: &mut &[u8], now: Now) -> Result<(), Option<StoreFailure>> {
        let Ok(Some((reply, length))) = resp::decode_within(replies, bridge::REPLY) else { return Err(None) };
        *replies = replies.get(length..).unwrap_or_default();
        let text = match reply {
            Reply::Integer(acknowledged) if acknowledged >= self.min.into() => {
                self.missed = None;
                return Ok(());
            }
            Reply::Integer(_) => {
                if !self.is_impatient(now) {
                    self.missed = Some(now.uptime);
                }
                "NOREPLICAS too few have acknowledged".into()
            }
            Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
            _ => return Err(None),
        };
        Err(Some(StoreFailure::Error(text)))
    }
}
