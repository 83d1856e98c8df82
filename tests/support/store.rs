// SPDX-License-Identifier: Apache-2.0
//! One subject of one policy on a real Redis.

use std::sync::atomic::{AtomicU64, Ordering};

use weir::limit::{Ask, Limit, Outcome, Permits};
use weir::resp::{self, Reply};
use weir::script::{BadReply, Form, NamedLimit, Options, Plan};
use weir::time::Micros;

use crate::redis::{Connection, Redis};

/// A policy, a new subject, and a connection to Redis.
pub struct Store {
    pub plan: Plan,
    pub tag: Vec<u8>,
    pub redis: Connection,
}

/// A plan of limits named `limit0`, `limit1` and so on.
pub fn plan(limits: Vec<Limit>) -> Plan {
    plan_with(limits, Options::default())
}

/// The same with these options.
pub fn plan_with(limits: Vec<Limit>, options: Options) -> Plan {
    let name = |(i, limit)| NamedLimit { name: format!("limit{i}"), limit };
    let limits = limits.into_iter().enumerate().map(name).collect();
    Plan::new(limits, options).expect("a plan")
}

/// The outcomes of a reply about several subjects.
pub fn outcomes_of(plan: &Plan, reply: &Reply<'_>, subjects: usize) -> Result<Vec<Outcome>, BadReply> {
    let mut outcomes = Vec::new();
    plan.outcomes(reply, subjects, |outcome| outcomes.push(outcome)).map(|()| outcomes)
}

impl Store {
    pub fn new(server: &Redis, limits: Vec<Limit>) -> Self {
        static SUBJECTS: AtomicU64 = AtomicU64::new(0);
        let tag = format!("{{policy|{}}}", SUBJECTS.fetch_add(1, Ordering::Relaxed)).into_bytes();
        Self { plan: plan(limits), tag, redis: server.connect() }
    }

    /// A subject and limits with names of their own.
    pub fn named(server: &Redis, limits: Vec<(String, Limit)>, tag: &[u8]) -> Self {
        let named = limits.into_iter().map(|(name, limit)| NamedLimit { name, limit });
        let plan = Plan::new(named.collect(), Options::default()).expect("a plan");
        Self { plan, tag: tag.to_vec(), redis: server.connect() }
    }

    /// The key of a limit.
    pub fn key(&self, limit: usize) -> Vec<u8> {
        [b"weir:", self.tag.as_slice(), format!(":limit{limit}").as_bytes()].concat()
    }

    /// Asks by SHA-1 and, if Redis does not know it, by source.
    pub fn call<T>(
        &mut self,
        command: impl Fn(&Plan, &[u8], Form, &mut Vec<u8>),
        read: impl Fn(&Plan, &Reply<'_>) -> Result<T, BadReply>,
    ) -> T {
        for form in [Form::Evalsha, Form::Eval] {
            let mut bytes = Vec::new();
            command(&self.plan, &self.tag, form, &mut bytes);
            let reply = self.redis.pipeline(&bytes, 1).remove(0);
            let (reply, _) = resp::decode(&reply).expect("RESP").expect("a whole reply");
            match read(&self.plan, &reply) {
                Ok(value) => return value,
                Err(BadReply::NoScript) => {}
                Err(bad) => panic!("{bad}"),
            }
        }
        panic!("EVAL answers NOSCRIPT");
    }

    pub fn check(&mut self, now: Option<Micros>, ask: Ask) -> Outcome {
        self.call(|plan, tag, form, out| plan.check(tag, ask, now, form, out), Plan::outcome)
    }

    pub fn settle(&mut self, now: Option<Micros>, units: i64, receipt: &Outcome) -> Outcome {
        self.call(|plan, tag, form, out| plan.settle(tag, units, receipt, now, form, out), Plan::outcome)
    }

    /// Renews the permits of so many requests; the receipt for them from then on.
    pub fn renew(&mut self, now: Option<Micros>, requests: u32, receipt: &Outcome) -> Outcome {
        let permits: Vec<_> = receipt.permits(requests).collect();
        self.call(
            |plan, tag, form, out| assert!(plan.renew(tag, &permits, now, form, out)),
            |plan, reply| plan.renewed(receipt, reply),
        )
    }

    pub fn release(&mut self, now: Option<Micros>, permits: &[Permits]) -> i64 {
        self.call(
            |plan, tag, form, out| assert!(plan.release(tag, permits, now, form, out)),
            |_, reply| match reply {
                Reply::Integer(places) => Ok(*places),
                Reply::Error(line) => Err(BadReply::error(line)),
                other => panic!("{other:?}"),
            },
        )
    }
}
