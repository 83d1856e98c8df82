//! Denied until: when the script denies a request it says when the next one would pass, and until then the answer is
//! known here. A subject that is over its limit costs the store nothing.
//!
//! What is known is exact for this policy, subject and cost, as long as nobody gives units back: then the store would
//! have admitted somewhat earlier than it said. Places in a `concurrency` limit come back all the time, so a denial
//! by one is never remembered. What can change without being told (an override in the store) is relied on for a
//! second; and where workers lease, for as long as a lease lasts: what others held may have come back by then.

use std::collections::HashMap;
use std::rc::Rc;

use super::seed::Seed;
use crate::decision::{Finding, Standing};
use crate::limit::{Limit, RetryAfter};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many subjects are remembered, in two generations: when the younger is full the older is forgotten.
const MAX_REMEMBERED: usize = 65_536;

/// What can never pass is asked about again after this long.
const NEVER: Micros = Micros::from_secs(60);

/// The subjects that are denied for now.
#[derive(Debug)]
pub(super) struct Denied {
    young: HashMap<Rc<Check>, Denial, Seed>,
    old: HashMap<Rc<Check>, Denial, Seed>,
}

#[derive(Clone, Debug)]
struct Denial {
    until: Micros,
    /// When the store was asked: what it said counts from there.
    asked: Micros,
    finding: Finding,
}

impl Denied {
    pub fn new(seed: Seed) -> Self {
        Self { young: HashMap::with_hasher(seed), old: HashMap::with_hasher(seed) }
    }

    /// Remembers what the store said of a request that it denied; `asked` is when the question left, so that nobody is
    /// denied for longer than the truth; `most` is for how long it may be relied on.
    pub fn remember(
        &mut self,
        check: &Rc<Check>,
        limits: &[Limit],
        finding: &Finding,
        asked: Micros,
        most: Micros,
    ) {
        let Some(span) = certain(limits, finding) else { return };
        if self.young.len() >= MAX_REMEMBERED / 2 {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        let denial = Denial { until: asked.plus(span.min(most)), asked, finding: finding.clone() };
        self.young.insert(Rc::clone(check), denial);
    }

    /// What the store would say now, if that is certain.
    pub fn look_up(&self, check: &Check, now: Micros) -> Option<Finding> {
        let denial = self.young.get(check).or_else(|| self.old.get(check))?;
        // A clock that was set back must not prolong a denial.
        (denial.asked..denial.until).contains(&now).then(|| later(&denial.finding, now.since(denial.asked)))
    }

    /// Units were given back: what was known is not certain any more.
    pub fn forget(&mut self, check: &Check) {
        self.young.remove(check);
        self.old.remove(check);
    }
}

/// For how long a denial is certain.
fn certain(limits: &[Limit], finding: &Finding) -> Option<Micros> {
    let lasting =
        limits.iter().zip(&finding.limits).filter(|(limit, _)| !matches!(limit, Limit::Concurrency(_)));
    match lasting.map(|(_, standing)| standing.retry_after).max()? {
        RetryAfter::Now => None,
        RetryAfter::After(span) => Some(span),
        RetryAfter::Never => Some(NEVER),
    }
}

/// The same standing, `elapsed` later.
fn later(finding: &Finding, elapsed: Micros) -> Finding {
    let standing = |standing: &Standing| Standing {
        remaining: standing.remaining,
        retry_after: match standing.retry_after {
            RetryAfter::After(span) if span > elapsed => RetryAfter::After(span.since(elapsed)),
            RetryAfter::After(_) => RetryAfter::Now,
            other => other,
        },
        reset: standing.reset.since(elapsed),
    };
    Finding { limits: finding.limits.iter().map(standing).collect(), ..finding.clone() }
}
