// SPDX-License-Identifier: Apache-2.0
//! An explanation for programs: what `text.rs` and `answer.rs` print.

use serde_json::{Map, Value, json};

use super::{Answer, Asked, Explanation, Ruled, Would, usage};
use crate::words::{self, shown};
use weir::limit::RetryAfter;
use weir::policy::{Check, Denial, Mode, Ruling, key, part_place};
use weir::response::Verdict;

impl Explanation<'_> {
    /// An object. `commands` says whether those that go to Redis are part of it.
    pub fn json(&self, commands: bool) -> Value {
        let listed = self.listed.as_ref();
        json!({
            "client": self.client,
            "region": self.config.regions.all.first().map(|region| &region.name).filter(|name| !name.is_empty()),
            "enquiry": self.enquiry.as_ref().map(|(method, path)| json!({ "method": method, "path": path })),
            "list": listed.map(|of| json!({
                "name": of.list, "index": of.at, "condition": of.condition, "doubt": of.doubt,
            })),
            "policies": self.policies.iter().map(|ruled| ruled.json(commands)).collect::<Vec<_>>(),
            "not_evaluated": self.unevaluated.as_deref().unwrap_or_default(),
            "unknown_attributes": self.unknown,
            "answer": self.answer.json(),
        })
    }
}

impl Ruled<'_> {
    fn json(&self, commands: bool) -> Value {
        let (ruling, place) = match &self.ruling {
            Ruling::Unmatched => ("does_not_match", None),
            Ruling::Skipped(part) => ("skipped", Some(part_place(*part))),
            Ruling::Unknown(part) => ("not_shown", Some(part_place(*part))),
            Ruling::Exempt(at) => ("exempt", Some(("exempt", *at))),
            Ruling::Denied(Denial::Listed(at)) => ("denied", Some(("deny", *at))),
            Ruling::Denied(Denial::Absent(part) | Denial::Ambiguous(part)) => {
                ("denied", Some(part_place(*part)))
            }
            Ruling::Denied(Denial::UnknownModel(_)) => ("denied", None),
            Ruling::Check(check) if check.ban_only => ("ban_only", None),
            Ruling::Check(_) => ("matches", None),
        };
        let because_of = match &self.ruling {
            Ruling::Denied(Denial::UnknownModel(_)) => Some(String::from("model")),
            _ => place.map(|(list, at)| format!("{list}[{at}]")),
        };
        let mut all = Map::new();
        let mut set = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
        set("policy", self.policy.name.as_str().into());
        set("ruling", ruling.into());
        set("words", self.words.as_str().into());
        set("because_of", because_of.into());
        let Ruling::Check(check) = &self.ruling else {
            set("mode", mode(self.policy.mode).into());
            return Value::Object(all);
        };
        let tier = self.policy.tiers.tiers.get(check.tier);
        set("mode", mode(check.mode).into());
        set("tier", tier.map(|tier| tier.name.as_str()).filter(|name| !name.is_empty()).into());
        set("cost", check.cost.into());
        set("scale", check.scale.into());
        set("kept_percent", check.kept_percent.into());
        set("subject", shown(&check.tag).into());
        set("slot", key::slot(&check.tag).into());
        set("counted", self.counted.as_ref().map(super::Counted::json).into());
        set("usage", usage::json(self.policy, check).into());
        set("asked", self.asked.as_ref().map(|asked| asked.json(self, check, commands)).into());
        Value::Object(all)
    }
}

impl Asked {
    fn json(&self, ruled: &Ruled<'_>, check: &Check, commands: bool) -> Value {
        let (limits, keys) = self.limits(ruled.policy, check);
        let limits = limits.into_iter().map(|(view, limit, key, answer)| {
            json!({
                "name": view.name(),
                "limit": words::limit(limit),
                "key": shown(&key),
                "remaining": answer.map(|answer| answer.remaining),
                "kept": answer.map(|_| limit.kept(check.ask(0))),
                "reset_ms": answer.map(|answer| answer.reset.as_millis_ceil()),
                "warn_at_percent": view.warn_at().map(|warn_at| warn_at.percent),
            })
        });
        let ban = self.left.as_ref().map_or(RetryAfter::Now, |left| left.ban);
        let would = self.would.map(|would| match would {
            Would::Admit => json!({ "admit": true, "retry_after_ms": Value::Null }),
            Would::Reject(after) => json!({ "admit": false, "retry_after_ms": millis(after) }),
        });
        let words = |command: Vec<Vec<u8>>| command.iter().map(|word| shown(word)).collect::<Vec<_>>();
        json!({
            "limits": limits.collect::<Vec<_>>(),
            "other_keys": keys.iter().map(|key| shown(key)).collect::<Vec<_>>(),
            "command": commands.then(|| words(self.command(check))),
            "not_asked": self.not_asked,
            "banned": ban != RetryAfter::Now,
            "banned_ms": millis(ban),
            "would": would,
        })
    }
}

impl Answer {
    fn json(&self) -> Value {
        let header =
            |(name, value): &(String, String)| json!({ "name": name, "value": shown(value.as_bytes()) });
        let headers: Vec<_> = self.headers.iter().map(header).collect();
        let mut answer = match &self.verdict {
            Verdict::Admit(admission) => json!({
                "admitted": true,
                "delay_ms": admission.delay.as_millis_ceil(),
                "headers": self.inexact.is_none().then_some(headers),
            }),
            Verdict::Reject(rejection) if self.is_grpc => json!({
                "admitted": false,
                "grpc_status": rejection.grpc.code,
                "grpc_message": rejection.grpc.message,
                "grpc_retry_pushback_ms": rejection.grpc.pushback.map(|millis| millis.to_string()),
                "headers": headers,
            }),
            Verdict::Reject(rejection) => json!({
                "admitted": false,
                "status": rejection.status,
                "headers": headers,
                "body": self.body,
            }),
        };
        if let Value::Object(answer) = &mut answer {
            answer.insert(String::from("assumes"), self.uncounted.clone().into());
            answer.insert(String::from("inexact"), self.inexact.clone().into());
        }
        answer
    }
}

const fn mode(of: Mode) -> &'static str {
    match of {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::QuotaRequest => "enquiry",
    }
}

/// A time to wait; `None` where there is none to say.
fn millis(of: RetryAfter) -> Option<u64> {
    words::millis(of).filter(|_| of != RetryAfter::Now)
}
