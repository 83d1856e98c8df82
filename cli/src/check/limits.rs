// SPDX-License-Identifier: Apache-2.0
//! Warnings about single limits, and notes on leases.

use super::warning::{code, note, warning};
use crate::finding::Finding;
use weir::config::{Config, duration_text};
use weir::limit::Limit;
use weir::policy::cost::Cost;
use weir::policy::{Across, Lease, Policy, Tier};
use weir::time::Micros;

pub fn warnings(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    for tier in &policy.tiers.tiers {
        let list = list(tier, at);
        logs(policy, tier, &list, found);
        warned_always(tier, &list, found);
        short_ttl(tier, &list, found);
    }
}

/// The path of the limits of a tier.
pub fn list(tier: &Tier, at: &str) -> String {
    match tier.name.as_str() {
        "" => format!("{at}.limits"),
        name => format!("{at}.tiers.limits.{name}"),
    }
}

/// The memory of a log in Redis, in bytes: see the table of docs/sizing.md.
const fn log_size(grants: u64) -> u64 {
    grants.saturating_mul(2_224).div_ceil(100).saturating_add(160)
}

const MEBIBYTE: u64 = 1 << 20;

fn logs(policy: &Policy, tier: &Tier, list: &str, found: &mut Vec<Finding>) {
    let least = |cost: &Cost| match cost {
        Cost::Constant(units) => *units,
        Cost::Stated(_, bounds) => bounds.min.min(bounds.on_missing),
        Cost::Usage(_) => 0,
        Cost::Calls(on_unreadable) => 1.min(*on_unreadable),
    };
    let least = policy.costs.iter().map(|(_, cost)| cost).chain([&policy.cost]).map(least).min();
    for (place, limit) in tier.plan.limits().iter().enumerate() {
        let Limit::SlidingLog(log) = limit else { continue };
        let scale = policy.scale.as_ref().map_or(1, |scale| scale.max);
        let grants = log.limit().saturating_mul(scale).checked_div(least.unwrap_or(1).max(1)).unwrap_or(0);
        let size = log_size(grants);
        if size <= MEBIBYTE {
            continue;
        }
        let tenths = size.saturating_mul(10).div_ceil(MEBIBYTE);
        let reason = format!(
            "a log of {grants} grants takes {}.{} MiB of Redis's memory, for each subject that uses its limit",
            tenths / 10,
            tenths % 10
        );
        let advice = "Write `algorithm: sliding_window`, which takes some hundred bytes";
        found.push(warning(code::LARGE_LOG, format!("{list}[{place}].limit"), reason, advice));
    }
}

/// The range of the alert WeirLimitNearlyFull (`operate/rules.yaml`).
const ALERT: Micros = Micros::from_secs(600);

/// Limits that a subject may lawfully use up again before the alert about the last time has ended.
fn warned_always(tier: &Tier, list: &str, found: &mut Vec<Finding>) {
    let limits = tier.plan.limits().iter().zip(&tier.views).enumerate();
    for (place, (limit, view)) in limits {
        let full = limit.whole_within();
        // No time brings back a permit.
        if view.warn_at().is_none() || matches!(limit, Limit::Concurrency(_)) || full > ALERT {
            continue;
        }
        let reason = format!(
            "limit {} is full again within {}: a subject that uses it steadily, as it may, causes a warning each time, and the \
             alert WeirLimitNearlyFull does not end",
            view.name(),
            duration_text(full)
        );
        let advice = "Remove `warn_at_percent`, or write it at a limit of an hour, a day or a month";
        found.push(warning(code::WARNED_ALWAYS, format!("{list}[{place}].warn_at_percent"), reason, advice));
    }
}

/// A permit is renewed three times in its `ttl`. Below this, a renewal that is a little late comes after the permit has expired.
const SHORTEST_TTL: Micros = Micros::from_secs(1);

fn short_ttl(tier: &Tier, list: &str, found: &mut Vec<Finding>) {
    for (place, limit) in tier.plan.limits().iter().enumerate() {
        let Limit::Concurrency(permits) = limit else { continue };
        if permits.ttl() < SHORTEST_TTL {
            let reason = format!(
                "a worker renews a permit three times within {}: if a renewal is late, a request that still runs no longer counts",
                duration_text(permits.ttl())
            );
            let advice = "Write at least 1s; the default is 60s";
            found.push(warning(code::SHORT_TTL, format!("{list}[{place}].ttl"), reason, advice));
        }
    }
}

/// Limits so large that `lease: auto` would reduce the cost of one busy subject.
pub fn notes(config: &Config) -> Vec<Finding> {
    let gains = config.policies.iter().enumerate().filter(|(_, policy)| gains(policy));
    let found = gains.map(|(index, Policy { name, .. })| {
        let reason = format!("a subject of policy {name:?} may send so much that it fills a core of Redis");
        let advice = "Write `lease: auto`, or `--allow auto-lease` if no subject does";
        note(code::AUTO_LEASE, format!("policies[{index}].name"), reason, advice)
    });
    found.collect()
}

fn gains(policy: &Policy) -> bool {
    let takes_turns = |limit: &Limit| match limit {
        Limit::Concurrency(_) | Limit::Distinct(_) => true,
        Limit::LeakyBucket(bucket) => bucket.max_delay() > Micros::ZERO,
        _ => false,
    };
    let forbids = |tier: &Tier| tier.plan.ban().is_some() || tier.plan.limits().iter().any(takes_turns);
    let is_possible = policy.lease.is_none()
        && policy.priority.is_empty()
        && policy.closed_by.is_empty()
        && policy.regions != Across::Share;
    is_possible
        && policy.tiers.tiers.iter().any(|tier| Lease::auto(tier.plan.limits(), 1).is_some())
        && !policy.tiers.tiers.iter().any(forbids)
}
