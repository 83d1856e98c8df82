// SPDX-License-Identifier: Apache-2.0
//! The counts of a replay in memory. A subject whose limits are all full again is as good as one that was never seen, so it is
//! forgotten: memory is bounded by the subjects that are in use at one time, however many a trace has.

use std::collections::HashMap;

use sha1_smol::Sha1;

use crate::Failure;
use weir::limit::{Ban, Outcome, Permits, RetryAfter, Subject};
use weir::policy::Check;
use weir::script::Plan;
use weir::time::Micros;

/// So few subjects are never looked through.
const FEW: usize = 1 << 14;

/// The most subjects that are in use at one time: about 1 GB, more with long logs.
const MOST: usize = 4_000_000;

#[derive(Default)]
pub struct Memory {
    /// Boxed, because the table has up to two places for each of them.
    subjects: HashMap<Id, Box<Counted>>,
    /// At how many subjects they are looked through next.
    next_sweep: usize,
}

/// A hash of the tag and the tier: half of the memory that they take.
type Id = [u8; 16];

#[derive(Default)]
struct Counted {
    subject: Subject,
    /// The time from which on it is as one that was never seen.
    forgotten_at: Micros,
}

impl Memory {
    /// Asks for one request at `now`, which is never earlier than before.
    ///
    /// # Errors
    /// Too many subjects are in use.
    pub fn check(&mut self, plan: &Plan, check: &Check, now: Micros) -> Result<Outcome, Failure> {
        if check.ban_only {
            return Ok(self.subject(check).check(plan.limits(), plan.ban(), now, check.ask(0)));
        }
        if self.subjects.len() >= self.next_sweep.max(FEW) {
            self.sweep(now)?;
        }
        let counted = self.subjects.entry(id(check)).or_default();
        let outcome = counted.subject.check(plan.limits(), plan.ban(), now, check.ask(1));
        counted.keep(&outcome, plan.ban(), now);
        Ok(outcome)
    }

    /// Charges units, or refunds them if they are negative.
    pub fn settle(&mut self, plan: &Plan, check: &Check, units: i64, receipt: &Outcome, now: Micros) {
        if let Some(counted) = self.subjects.get_mut(&id(check)) {
            let outcome = counted.subject.settle(plan.limits(), plan.ban(), now, units, receipt);
            counted.keep(&outcome, plan.ban(), now);
        }
    }

    /// Releases the permits of a request that has ended.
    pub fn release(&mut self, check: &Check, permits: &[Permits]) {
        if let Some(counted) = self.subjects.get_mut(&id(check)) {
            counted.subject.release(permits);
        }
    }

    /// Renews the permits of a request that still runs. Returns its receipt from then on.
    pub fn renew(&mut self, plan: &Plan, check: &Check, receipt: &Outcome, now: Micros) -> Outcome {
        let permits: Vec<_> = receipt.permits(1).collect();
        let counted = self.subjects.entry(id(check)).or_default();
        let renewed = receipt.with_expiries(counted.subject.renew(plan.limits(), &permits, now));
        let last = renewed.permits(1).map(|permits| Micros(permits.expiry)).max().unwrap_or_default();
        counted.forgotten_at = counted.forgotten_at.max(last);
        renewed
    }

    /// Returns the counts of the subject of a check.
    pub fn subject(&self, check: &Check) -> Subject {
        self.subjects.get(&id(check)).map(|counted| counted.subject.clone()).unwrap_or_default()
    }

    fn sweep(&mut self, now: Micros) -> Result<(), Failure> {
        self.subjects.retain(|_, counted| counted.forgotten_at > now);
        self.next_sweep = self.subjects.len().saturating_mul(2).min(MOST);
        if self.subjects.len() >= MOST {
            return Err(format!(
                "more than {MOST} subjects have limits in use at one time, which is all that fits into memory: replay a \
                 shorter time, or say --redis"
            ));
        }
        Ok(())
    }
}

impl Counted {
    fn keep(&mut self, outcome: &Outcome, ban: Option<&Ban>, now: Micros) {
        let reset = outcome.limits.iter().map(|limit| limit.reset).max().unwrap_or_default();
        let mut until = now.plus(reset);
        if let Some(ban) = ban {
            // A denial counts for a window, and a ban makes the next one longer until its longest duration has passed.
            let [_, window, _, _, longest] = ban.numbers();
            if outcome.granted == 0 || outcome.ban != RetryAfter::Now {
                until = until.max(now.plus(Micros(window.saturating_add(longest).saturating_add(longest))));
            }
            until = until.max(self.forgotten_at);
        }
        self.forgotten_at = until;
    }
}

fn id(check: &Check) -> Id {
    let mut hash = Sha1::new();
    hash.update(&check.tier.to_le_bytes());
    hash.update(&check.tag);
    let mut id = Id::default();
    id.iter_mut().zip(hash.digest().bytes()).for_each(|(to, from)| *to = from);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::config::Config;

    const CONFIG: &[u8] = br#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "leaky_bucket", "rate": "2/s", "burst": 3, "max_delay": "1s"},
        {"name": "b", "algorithm": "token_bucket", "capacity": 4, "refill": 2, "interval": "1s"},
        {"name": "c", "algorithm": "token_bucket", "capacity": 4, "refill": 2, "interval": "1s", "mode": "stepwise"},
        {"name": "d", "algorithm": "fixed_window", "limit": 5, "window": "2s", "align": "clock"},
        {"name": "e", "algorithm": "fixed_window", "limit": 5, "window": "2s", "align": "first"},
        {"name": "f", "algorithm": "sliding_log", "limit": 4, "window": "3s"},
        {"name": "g", "algorithm": "sliding_window", "limit": 4, "window": "3s", "precision": "1s"},
        {"name": "h", "algorithm": "concurrency", "limit": 3, "ttl": "2s"}],
        "ban": {"after": 3, "window": "2s", "duration": "1s", "factor": 2, "max": "4s"}}]}"#;

    fn check(subject: u64) -> Check {
        Check::one(0, format!("{{p|{subject}}}"))
    }

    /// Each algorithm, bans and refunds, with subjects that come again after pauses of all lengths.
    #[test]
    fn what_is_forgotten_decides_nothing() {
        let config = Config::parse(CONFIG).unwrap();
        let (mut keeps, mut forgets, mut forgotten) = (Memory::default(), Memory::default(), 0_usize);
        let (mut now, mut random) = (Micros::from_secs(1_700_000_000), 1_u64);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut granted, mut banned) = (0, 0);
        for step in 0..20_000 {
            now = now.plus(Micros(if next(50) == 0 { next(9_000_000) } else { next(60_000) }));
            let check = check(next(4));
            let plan = config.plan(&check).unwrap();
            let before = forgets.subjects.len();
            forgets.sweep(now).unwrap();
            forgotten += before - forgets.subjects.len();
            let one = keeps.check(&plan, &check, now).unwrap();
            let other = forgets.check(&plan, &check, now).unwrap();
            // The total of refunds only shows a receipt which refunds came after it. A forgotten subject has no receipt left.
            let comparable = |mut outcome: Outcome| {
                outcome.limits.iter_mut().for_each(|limit| limit.refunded = 0);
                outcome
            };
            assert_eq!(comparable(one.clone()), comparable(other.clone()), "{step}");
            granted += one.granted;
            banned += u32::from(one.ban != RetryAfter::Now);
            if one.granted > 0 && next(3) == 0 {
                keeps.settle(&plan, &check, -1, &one, now);
                forgets.settle(&plan, &check, -1, &other, now);
            }
            if next(2) == 0 {
                keeps.release(&check, &one.permits(1).collect::<Vec<_>>());
                forgets.release(&check, &other.permits(1).collect::<Vec<_>>());
            }
        }
        assert!(forgotten > 100 && granted > 100 && banned > 100, "{forgotten} {granted} {banned}");
    }

    #[test]
    fn a_million_subjects_are_not_kept() {
        let config = Config::parse(CONFIG).unwrap();
        let mut memory = Memory::default();
        for subject in 0..200_000 {
            let check = check(subject);
            memory.check(&config.plan(&check).unwrap(), &check, Micros(1 + subject * 1_000)).unwrap();
            assert!(memory.subjects.len() <= 2 * FEW, "{subject}");
        }
    }
}
