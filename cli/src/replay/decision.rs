// SPDX-License-Identifier: Apache-2.0
//! The decision for one request of a trace.

use serde_json::Value;

use crate::words;
use weir::limit::RetryAfter;
use weir::time::Micros;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at: Micros,
    pub line: u64,
    pub allowed: bool,
    /// The policy that decided; empty if none did.
    pub policy: String,
    pub limit: String,
    /// The name of the tier; empty if the policy has one only.
    pub tier: String,
    /// The hash tag of the subject; empty if the store was not asked.
    pub subject: Vec<u8>,
    pub remaining: Option<u64>,
    pub retry_after: RetryAfter,
    pub reset: Option<Micros>,
    pub delay: Micros,
    /// The value that the filter records as `weir.outcome`; empty if it records nothing.
    pub outcome: &'static str,
    pub in_shadow: bool,
}

impl Decision {
    /// The decision for a request that is decided without asking the store.
    pub const fn clear(at: Micros, line: u64, allowed: bool, policy: String) -> Self {
        let (retry_after, outcome) =
            if allowed { (RetryAfter::Now, "") } else { (RetryAfter::Unknown, "denied") };
        Self {
            at,
            line,
            allowed,
            policy,
            limit: String::new(),
            tier: String::new(),
            subject: Vec::new(),
            remaining: None,
            retry_after,
            reset: None,
            delay: Micros::ZERO,
            outcome,
            in_shadow: false,
        }
    }

    pub fn json(&self) -> String {
        let text = |text: &str| if text.is_empty() { Value::Null } else { Value::from(text) };
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::from);
        format!(
            "{{\"line\":{},\"t_ms\":{},\"allowed\":{},\"policy\":{},\"limit\":{},\"tier\":{},\"subject\":{},\"remaining\":{},\
             \"retry_after_ms\":{},\"reset_ms\":{},\"delay_ms\":{},\"outcome\":{}}}",
            self.line,
            self.at.0 / 1_000,
            self.allowed,
            text(&self.policy),
            text(&self.limit),
            text(&self.tier),
            text(&self.subject.escape_ascii().to_string()),
            number(self.remaining),
            number(words::millis(self.retry_after)),
            number(self.reset.map(Micros::as_millis_ceil)),
            self.delay.as_millis_ceil(),
            text(self.outcome),
        )
    }
}
