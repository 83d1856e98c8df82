// SPDX-License-Identifier: Apache-2.0
//! The requests that a worker reserves in advance, and what is then left of a limit in Redis.

use weir::limit::{Ask, LeakyBucket, Limit};
use weir::time::Micros;

use crate::redis::Redis;
use crate::store::Store;

/// The policy `p` of this limiter, on lease.
pub fn leased(limiter: &str, duration: &str) -> String {
    limiter.replace(
        r#""name": "p","#,
        &format!(r#""name": "p", "lease": {{"max": 20, "min": 2, "duration": "{duration}"}},"#),
    )
}

/// Returns how much of its limit a subject of the policy `p` has used, as Redis has it now. One unit comes back every `hours`. The query
/// charges nothing.
pub fn used(redis: &Redis, subject: &str, limit: usize, hours: u64) -> usize {
    let burst = u64::try_from(limit).expect("a burst");
    let every = Micros::from_secs(3_600 * hours);
    let bucket: Limit = LeakyBucket::new(1, every, burst, Micros::ZERO).expect("a limit").into();
    let tag = format!("{{p|{subject}}}");
    let mut store = Store::named(redis, vec![("l".into(), bucket)], tag.as_bytes());
    let ask = Ask::new(0, 1);
    let told = store.check(None, ask);
    limit - usize::try_from(told.remaining(store.plan.limits(), 0, 0, ask)).expect("no more than the limit")
}
