// SPDX-License-Identifier: Apache-2.0
//! The time after which the client of a rejected request may come again.

use super::answer::PolicyAnswer;
use super::cause::Cause;
use crate::limit::RetryAfter;
use crate::time::Micros;

/// For a request that was denied because nothing decided: the store is asked again within this time, which is the longest
/// pause of the breaker.
pub(super) const STORE_RETRY: Micros = Micros::from_secs(1);

/// The time until a request with these answers would pass.
pub(super) fn retry_after(answers: &[PolicyAnswer<'_>]) -> RetryAfter {
    let (mut after, mut estimate) = (RetryAfter::Now, None);
    for answer in answers {
        if answer.cause() == Some(Cause::Unavailable) {
            after = after.max(RetryAfter::After(STORE_RETRY));
        }
        if let Some(decision) = answer.answer.decision().filter(|_| answer.is_enforced) {
            after = after.max(decision.ban);
        }
        for (view, status) in answer.limits().filter(|(_, status)| answer.is_violated(status)) {
            if view.is_in_flight() {
                estimate = estimate.max(view.retry_estimate());
            } else {
                after = after.max(status.retry_after);
            }
        }
    }
    // A time that is known counts before one that is estimated.
    match estimate {
        Some(estimate) if after == RetryAfter::Now => RetryAfter::After(estimate),
        _ => after,
    }
}

/// `after` as it is sent to a client: later by the jitter of this answer's policy. `Now` becomes `Unknown`, because a
/// request that is rejected does not pass now.
pub(super) fn with_jitter(after: RetryAfter, answer: &PolicyAnswer<'_>) -> RetryAfter {
    match after {
        RetryAfter::After(after) => {
            RetryAfter::After(after.plus(jitter(answer.settings.retry_jitter, answer.tag, after)))
        }
        RetryAfter::Never => RetryAfter::Never,
        RetryAfter::Now | RetryAfter::Unknown => RetryAfter::Unknown,
    }
}

/// A time from 0 to `max` that differs between subjects, and for one subject between times. It spreads clients, which is all
/// that jitter is for (FNV-1a).
fn jitter(max: Micros, tag: &[u8], after: Micros) -> Micros {
    let bytes = tag.iter().copied().chain(after.0.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Micros((hash >> 8).checked_rem(max.0.saturating_add(1)).unwrap_or_default())
}
