// SPDX-License-Identifier: Apache-2.0
//! The metrics of the other regions: which there are, for a configuration. All but the counters are of this moment.

use super::catalogue::{Kind, escaped};
use crate::config::Config;
use crate::policy::Across;
use crate::time::Micros;

/// The debits and loans between this region and another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// Units charged there: sent, known to be charged, dropped, and yet to be sent.
    pub debits_sent: u64,
    pub debits_answered: u64,
    pub debits_dropped: u64,
    pub debits_waiting: u64,
    /// The age of the oldest grant that it is not known to have charged.
    pub lag: Micros,
    pub is_late: bool,
    /// Requests admitted with what it has lent.
    pub borrowed: u64,
}

/// A metric of another region.
#[derive(Clone, Copy, Debug)]
pub struct PeerMetric {
    /// The last part of its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its meaning, for the documents. The plugin has no use for it.
    #[cfg(not(target_arch = "wasm32"))]
    pub meaning: &'static str,
    /// A policy has to hold so across regions.
    way: Across,
    /// `None` for a metric of a policy and a region.
    value: Option<fn(&Peer) -> u64>,
}

/// The number of [`PEERS`].
const PEER_COUNT: usize = 7;

macro_rules! peers {
    ($($name:literal: $kind:ident of $way:ident = $value:expr, $meaning:literal;)*) => {
        [$(PeerMetric {
            name: $name,
            kind: Kind::$kind,
            #[cfg(not(target_arch = "wasm32"))]
            meaning: $meaning,
            way: Across::$way,
            value: $value,
        }),*]
    };
}

/// The metrics of each other region: those of `debit`, and those of `share`.
pub static PEERS: [PeerMetric; PEER_COUNT] = peers! {
    "debits_waiting": Gauge of Debit = Some(|of| of.debits_waiting), "Units that this region has granted and has yet to charge there.";
    "debits_sent": Counter of Debit = Some(|of| of.debits_sent), "Units that were sent there to be charged.";
    "debits_answered": Counter of Debit = Some(|of| of.debits_answered), "Those of `debits_sent` that were charged for certain. What is missing after twice the `deadline` was probably not charged.";
    "debits_dropped": Counter of Debit = Some(|of| of.debits_dropped), "Units that were not charged there: they no longer mattered, there were too many subjects, or the worker ended.";
    "sync_lag_ms": Gauge of Debit = Some(|of| of.lag.as_millis_ceil()), "Milliseconds since the oldest grant that is not known to be charged there; 0 if all are. The workers' are added up.";
    "workers_late": Gauge of Debit = Some(|of| of.is_late.into()), "Workers whose lag is above three times the `sync_interval` and the region's `deadline`.";
    "borrowed": Counter of Share = Some(|of| of.borrowed), "Requests admitted with what that region has lent.";
};

/// The metrics of each policy in each other region.
pub static POLICY_PEERS: [PeerMetric; 2] = peers! {
    "debits_unanswered": Gauge of Debit = None, "Units that this region has granted and that are not known to be charged there.";
    "on_loan": Gauge of Share = None, "Units that this region has borrowed from that one and not used yet.";
};

/// At most this many pairs of a policy and another region have metrics of their own. Those of further pairs count only under the region.
pub const MAX_POLICY_PEERS: usize = 2_048;

/// One metric.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct PeerSeries {
    pub metric: &'static PeerMetric,
    /// The store of the region.
    pub store: u8,
    /// Absent for all policies together.
    pub policy: Option<usize>,
}

impl PeerSeries {
    /// All of a configuration, always in the same order.
    pub fn of(config: &Config) -> Vec<Self> {
        let stores = || (0_u8..).zip(&config.regions.all).skip(1).map(|(store, _)| store);
        let mut all = Vec::new();
        for store in stores() {
            let is_used = |metric: &&PeerMetric| config.policies.iter().any(|of| of.regions == metric.way);
            let used = PEERS.iter().filter(is_used);
            all.extend(used.map(|metric| Self { metric, store, policy: None }));
        }
        let pairs = config.policies.iter().enumerate().flat_map(|(policy, of)| {
            let metric = POLICY_PEERS.iter().find(|metric| metric.way == of.regions);
            metric.into_iter().flat_map(move |metric| {
                stores().map(move |store| Self { metric, store, policy: Some(policy) })
            })
        });
        all.extend(pairs.take(MAX_POLICY_PEERS));
        all
    }

    /// Its name.
    pub fn name(&self, config: &Config) -> String {
        let region = config.regions.all.get(usize::from(self.store)).map(|region| escaped(&region.name));
        let policy = self.policy.and_then(|policy| config.policies.get(policy));
        let policy = policy.map(|policy| [".policy.", &escaped(&policy.name)].concat());
        ["weir", &policy.unwrap_or_default(), ".peer.", &region.unwrap_or_default(), ".", self.metric.name]
            .concat()
    }

    /// Its value, of what is between the regions, or outstanding there of a policy.
    pub fn value(&self, peer: impl FnOnce(u8) -> Peer, outstanding: impl FnOnce(usize, u8) -> u64) -> u64 {
        match (self.policy, self.metric.value) {
            (Some(policy), _) => outstanding(policy, self.store),
            (None, Some(value)) => value(&peer(self.store)),
            (None, None) => 0,
        }
    }
}
