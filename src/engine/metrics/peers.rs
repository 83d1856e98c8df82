// SPDX-License-Identifier: Apache-2.0
//! The metrics of the other regions, and of the policies there. All but the counters are of this moment.

use std::borrow::Cow;

use super::catalogue::{Kind, Reading, Row};
use crate::config::Config;
use crate::engine::request::Peer;
use crate::engine::tally::escaped;
use crate::policy::Across;

/// At most this many pairs of a policy and another region have metrics of their own. Those of further pairs count only under the region.
pub const MAX_POLICY_PEERS: usize = 2_048;

/// The rows of a configuration: those that the ways of its policies across regions need.
#[rustfmt::skip]
pub(super) fn rows(config: &Config) -> Vec<Row> {
    use Kind::{Counter, Gauge};
    let peers: Vec<_> = (0_u8..).zip(&config.regions.all).skip(1).map(|(store, region)| (store, escaped(&region.name))).collect();
    let has = |way| config.policies.iter().any(|policy| policy.regions == way);
    let mut rows = Vec::new();
    for (store, peer) in &peers {
        let name = |last: &str| Cow::Owned(["weir.peer.", peer, ".", last].concat());
        let of = |read: fn(&Peer) -> u64| Reading::Peer(read, *store);
        if has(Across::Debit) {
            rows.extend([
                row!(Gauge, name("debits_waiting"), of(|peer| peer.debits_waiting), "Units that this region has granted and has yet to charge there."),
                row!(Counter, name("debits_sent"), of(|peer| peer.debits_sent), "Units that were sent there to be charged."),
                row!(Counter, name("debits_answered"), of(|peer| peer.debits_answered), "Those of `debits_sent` that were charged for certain. What is missing after twice the `deadline` was probably not charged."),
                row!(Counter, name("debits_dropped"), of(|peer| peer.debits_dropped), "Units that were not charged there: they no longer mattered, there were too many subjects, or the worker ended."),
                row!(Gauge, name("sync_lag_ms"), of(|peer| peer.lag.as_millis_ceil()), "Milliseconds since the oldest grant that is not known to be charged there; 0 if all are. The workers' are added up."),
                row!(Gauge, name("workers_late"), of(|peer| peer.is_late.into()), "Workers whose lag is above three times the `sync_interval` and the region's `deadline`."),
            ]);
        }
        if has(Across::Share) {
            rows.push(row!(Counter, name("borrowed"), of(|peer| peer.borrowed), "Requests admitted with what that region has lent."));
        }
    }
    let first = rows.len();
    for (policy, of) in config.policies.iter().enumerate() {
        for (store, peer) in &peers {
            let name = |last: &str| Cow::Owned(["weir.policy.", &escaped(&of.name), ".peer.", peer, ".", last].concat());
            let reading = Reading::Outstanding(policy, *store);
            match of.regions {
                Across::Debit => rows.push(row!(Gauge, name("debits_unanswered"), reading, "Units that this region has granted and that are not known to be charged there.")),
                Across::Share => rows.push(row!(Gauge, name("on_loan"), reading, "Units that this region has borrowed from that one and not used yet.")),
                Across::Apart | Across::Home(_) => {}
            }
        }
    }
    rows.truncate(first.saturating_add(MAX_POLICY_PEERS));
    rows
}
