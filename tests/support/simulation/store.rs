// SPDX-License-Identifier: Apache-2.0
//! A store in virtual time: it runs the commands of the engines with the pure limits. Other tests show that the scripts on a real Redis
//! answer the same.

use std::collections::HashMap;
use std::sync::Arc;

use weir::config::Config;
use weir::limit::{Ask, LimitOutcome, Outcome, RetryAfter, Subject};
use weir::script::{Plan, ScriptKind};
use weir::time::Micros;

use crate::worker::{Reply, bytes, commands, key_count, numbers};

/// What the scripts of a configuration do, by their SHA-1.
pub struct Scripts(HashMap<Vec<u8>, Script>);

struct Script {
    kind: ScriptKind,
    /// Whether a check says how much it keeps for others.
    keeps: bool,
    plan: Arc<Plan>,
}

impl Scripts {
    pub fn new(config: &Config) -> Self {
        let mut scripts = HashMap::new();
        for tier in config.policies.iter().flat_map(|policy| &policy.tiers.tiers) {
            for kind in [ScriptKind::Check, ScriptKind::Settle] {
                let sha = sha1_smol::Sha1::from(tier.plan.source_of(kind)).digest().to_string();
                let (keeps, plan) = (tier.plan.source().contains("kept_percent"), Arc::clone(&tier.plan));
                scripts.insert(sha.into_bytes(), Script { kind, keeps, plan });
            }
        }
        Self(scripts)
    }
}

/// What one region's store knows.
#[derive(Default)]
pub struct Store(HashMap<Vec<u8>, Subject>);

impl Store {
    /// Runs the commands of a batch at this time of the store's clock, and returns its replies.
    pub fn run(&mut self, batch: &[u8], scripts: &Scripts, now: Micros) -> Vec<u8> {
        bytes(commands(batch).iter().map(|words| self.command(words, scripts, now)))
    }

    fn command(&mut self, words: &[Vec<u8>], Scripts(scripts): &Scripts, now: Micros) -> Reply {
        assert_eq!(
            (words[0].as_slice(), key_count(words)),
            (b"EVALSHA".as_slice(), 1),
            "a policy has one limit"
        );
        let Script { kind, keeps, plan } = scripts.get(&words[1]).expect("a script of the configuration");
        let subject = self.0.entry(words[3].clone()).or_default();
        let arguments = numbers(&words[4]);
        let outcome = match kind {
            ScriptKind::Check => {
                let unsigned = |place: usize| u64::try_from(arguments[place]).expect("a count");
                let kept = if *keeps { unsigned(3) } else { 0 };
                let ask = Ask {
                    requests: unsigned(1).try_into().expect("a count of requests"),
                    cost: unsigned(2),
                    kept_percent: kept.try_into().expect("a percentage"),
                };
                subject.check(plan.limits(), None, now, ask)
            }
            _ => {
                let [_, units, at, remaining, reset, refunded] = arguments[..6] else { unreachable!() };
                let time = |micros: i64| Micros(u64::try_from(micros).expect("a time"));
                let refunded = u64::try_from(refunded).expect("a count");
                let answer =
                    LimitOutcome { remaining, reset: time(reset), refunded, ..LimitOutcome::default() };
                let receipt =
                    Outcome { at: time(at), limits: [answer].into_iter().collect(), ..Outcome::NONE };
                subject.settle(plan.limits(), None, now, units, &receipt)
            }
        };
        reply(&outcome)
    }
}

/// An outcome as the script writes it.
fn reply(outcome: &Outcome) -> Reply {
    let micros = |span: Micros| i64::try_from(span.0).expect("a time");
    let mut numbers = vec![i64::from(outcome.granted), micros(outcome.at)];
    for limit in &outcome.limits {
        let wait = match limit.retry_after {
            RetryAfter::Now => 0,
            RetryAfter::After(span) => micros(span),
            RetryAfter::Never | RetryAfter::Unknown => -1,
        };
        numbers.extend([limit.remaining, wait, micros(limit.reset), limit.first_delay]);
    }
    // Seven bytes of a count, and the place of its limit, which is 0.
    numbers.extend(
        outcome.limits.iter().filter(|limit| limit.refunded > 0).map(|limit| limit.refunded.cast_signed()),
    );
    Reply::Numbers(numbers)
}
