//! Limits kept by this worker alone, while the store is away: each worker lets through its share.
//!
//! They begin whole when the store fails, and are forgotten when it answers: what was let through meanwhile is not put
//! on the store's account, and the next failure begins anew.

use std::collections::HashMap;
use std::rc::Rc;

use super::batch::Taken;
use super::seed::Seed;
use crate::limit::{Ask, Limit, Outcome, Subject};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many subjects are counted, in two generations: when the younger is full the older is forgotten.
const MAX_COUNTED: usize = 65_536;

/// A subject, whatever its requests cost.
type Name = (usize, Vec<u8>);

/// The subjects that asked since the store failed.
#[derive(Debug)]
pub(super) struct Local {
    young: HashMap<Name, Subject, Seed>,
    old: HashMap<Name, Subject, Seed>,
}

impl Local {
    pub fn new(seed: Seed) -> Self {
        Self { young: HashMap::with_hasher(seed), old: HashMap::with_hasher(seed) }
    }

    /// Asks this worker's share of the limits about one request.
    pub fn check(&mut self, check: &Check, shares: &[Limit], now: Micros) -> Rc<Outcome> {
        Rc::new(self.subject(check).check(shares, now, Ask { requests: 1, cost: check.cost }))
    }

    /// Gives back what a request has taken here.
    pub fn give_back(&mut self, check: &Check, shares: &[Limit], what: Taken, paid: &Outcome, now: Micros) {
        let units = i64::try_from(check.cost).unwrap_or(i64::MAX).saturating_neg();
        let subject = self.subject(check);
        match what {
            Taken::Units => {
                subject.settle(shares, now, units, paid);
            }
            Taken::Places => subject.release(&paid.leases(1).collect::<Vec<_>>()),
        }
    }

    /// The store is back.
    pub fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    fn subject(&mut self, check: &Check) -> &mut Subject {
        let name = (check.tier, check.tag.clone());
        if self.young.len() >= MAX_COUNTED / 2 && !self.young.contains_key(&name) {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        let old = self.old.remove(&name);
        self.young.entry(name).or_insert_with(|| old.unwrap_or_default())
    }
}
