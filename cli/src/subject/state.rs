// SPDX-License-Identifier: Apache-2.0
//! The state of a subject in Redis. The filter's own script says what its limits have left, in a check for no request.

use redis::Value as Reply;
use serde_json::{Value, json};

use super::super::store::{Redis, bytes};
use super::super::{Failure, words};
use super::Subject;
use weir::limit::{Limit, Outcome, RetryAfter};
use weir::policy::{Check, Tier, key};
use weir::script::Overrides;
use weir::script::records::{BAN_NAME, BanRecord, DENIALS_NAME, DenialsRecord, OVERRIDE_NAME};
use weir::time::Micros;

pub(in super::super) struct State {
    /// Its tiers; those without any count or override are left out, unless a request says which tier counts.
    pub tiers: Vec<TierState>,
    /// Its own counts, if any are set.
    pub own: Option<Record>,
    /// Its ban, if its key exists.
    pub ban: Option<Record>,
    /// Its denials, if there are any.
    pub denials: Option<DenialsRecord>,
}

pub(in super::super) struct TierState {
    pub name: String,
    pub check: Check,
    pub outcome: Outcome,
    pub limits: Vec<LimitState>,
}

pub(in super::super) struct LimitState {
    /// The name in its key.
    pub name: String,
    pub configured: Limit,
    /// The limit that is in force for this subject.
    pub in_force: Limit,
    /// The remaining amount, and the times at which more comes back.
    pub left: i64,
    pub retry_after: RetryAfter,
    pub reset: Micros,
}

/// A key whose value is text.
pub(in super::super) struct Record {
    pub value: Vec<u8>,
    /// The time until it expires; `None`: never.
    pub expires: Option<Micros>,
}

impl State {
    pub fn read(subject: &Subject<'_>, redis: &mut Redis) -> Result<Self, Failure> {
        let own = record(redis, &subject.key(OVERRIDE_NAME))?;
        let counts = own.as_ref().and_then(|own| serde_json::from_slice::<Value>(&own.value).ok());
        let has_own = |name: &String| counts.as_ref().is_some_and(|counts| counts.get(name).is_some());
        let mut tiers = Vec::new();
        let last = subject.checks.len().saturating_sub(1);
        for (place, (check, plan)) in subject.plans().enumerate() {
            let names: Vec<String> = plan.names().into_iter().map(str::to_owned).collect();
            let is_needed = subject.is_of_request || (place == last && tiers.is_empty());
            if !is_needed && !names.iter().any(has_own) && !any_exists(subject, redis, &names)? {
                continue;
            }
            let outcome = redis.check(&plan, &check.tag, check.ask(0), None)?;
            let in_force = outcome.in_force(plan.limits());
            let each = names.into_iter().zip(plan.limits()).zip(in_force).zip(&outcome.limits);
            let limits = each.map(|(((name, configured), in_force), answer)| LimitState {
                name,
                configured: configured.clone(),
                in_force: in_force.clone(),
                left: answer.remaining,
                retry_after: answer.retry_after,
                reset: answer.reset,
            });
            let tier = subject.policy.tiers.tiers.get(check.tier);
            let name = tier.map(|tier| tier.name.clone()).unwrap_or_default();
            tiers.push(TierState { name, check: check.clone(), limits: limits.collect(), outcome });
        }
        let denials = match redis.ask(&[b"GET", &subject.key(DENIALS_NAME)]) {
            Ok(reply) => bytes(&reply).and_then(DenialsRecord::read),
            Err(failure) => wrong_type(failure)?,
        };
        Ok(Self { tiers, own, ban: record(redis, &subject.key(BAN_NAME))?, denials })
    }

    pub fn text(&self, subject: &Subject<'_>) -> String {
        let mut lines = Vec::new();
        let slot = key::slot(subject.tag());
        lines.push(format!("policy {}, subject {} in slot {slot}", subject.policy.name, subject.shown()));
        lines.extend(subject.counted().map(|counted| format!("  {}", counted.text())));
        for tier in &self.tiers {
            for limit in &tier.limits {
                lines.push(format!("  limit {}: {}", limit.name, limit.text(&tier.check)));
            }
        }
        lines.extend(self.override_text(subject));
        lines.extend(self.ban_text(subject));
        lines.extend(self.denials_text(subject));
        let bans = subject.policy.closed_by.iter().filter_map(|policy| subject.config.policies.get(*policy));
        lines.extend(bans.map(|policy| format!("  a ban of this subject by {} denies it, too", policy.name)));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub fn override_text(&self, subject: &Subject<'_>) -> Vec<String> {
        let is_read = self.reads_overrides(subject);
        let Some(own) = &self.own else {
            return if is_read { vec![String::from("  override: none")] } else { Vec::new() };
        };
        let mut lines = vec![format!("  override: {}, {}", words::shown(&own.value), own.text())];
        if !is_read {
            lines.push(String::from("    it has no effect: the policy has not \"overrides\": true"));
        }
        lines.extend(self.ignored(subject).map(|what| format!("    ignored: {what}")));
        lines
    }

    /// Says which parts of the override have no effect.
    fn ignored(&self, subject: &Subject<'_>) -> impl Iterator<Item = String> {
        let value = self.own.as_ref().map(|own| serde_json::from_slice::<Value>(&own.value));
        let mut ignored = Vec::new();
        match value {
            None => {}
            Some(Ok(Value::Object(limits))) => {
                for (name, counts) in &limits {
                    let state = self.tiers.iter().flat_map(|tier| &tier.limits).find(|of| of.name == *name);
                    let has = |tier: &Tier| tier.plan.names().contains(&name.as_str());
                    match (state, counts) {
                        (Some(state), Value::Object(counts)) => {
                            ignored.extend(
                                counts.iter().filter_map(|(count, value)| state.ignores(count, value)),
                            );
                        }
                        (Some(_), _) => ignored.push(format!("{name:?} is no object")),
                        // A limit of another tier.
                        (None, _) if subject.policy.tiers.tiers.iter().any(has) => {}
                        (None, _) => ignored.push(format!("the policy has no limit {name:?}")),
                    }
                }
            }
            Some(_) => ignored.push(String::from("it is no JSON object")),
        }
        ignored.into_iter()
    }

    /// The remaining time of the subject's ban, as the filter's script says.
    pub fn rest_of_ban(&self) -> RetryAfter {
        self.tiers.first().map_or(RetryAfter::Now, |tier| tier.outcome.ban)
    }

    fn reads_overrides(&self, subject: &Subject<'_>) -> bool {
        subject.plans().any(|(_, plan)| plan.overrides() == Overrides::Read)
    }

    fn ban_text(&self, subject: &Subject<'_>) -> Vec<String> {
        let has_bans = subject.plans().any(|(_, plan)| plan.ban().is_some());
        let Some(ban) = &self.ban else {
            return if has_bans { vec![String::from("  ban: none")] } else { Vec::new() };
        };
        let by = ban.banned_by();
        match self.rest_of_ban() {
            RetryAfter::After(rest) => vec![format!("  ban: for another {}, {by}", words::span(rest))],
            RetryAfter::Never | RetryAfter::Unknown => vec![format!("  ban: until it is lifted, {by}")],
            RetryAfter::Now if has_bans => vec![String::from("  ban: ended")],
            RetryAfter::Now => {
                vec![format!("  ban: {by}"), String::from("    it has no effect: the policy has no `ban`")]
            }
        }
    }

    fn denials_text(&self, subject: &Subject<'_>) -> Option<String> {
        let [after, window, ..] = ban_numbers(subject)?;
        let counting = self.counting(subject).unwrap_or(0);
        let within = weir::config::duration_text(Micros(window));
        Some(format!("  denials: {counting} of the {after} within {within} that begin a ban"))
    }

    /// The denials that count towards the next ban.
    fn counting(&self, subject: &Subject<'_>) -> Option<u32> {
        let [_, window, ..] = ban_numbers(subject)?;
        Some(self.denials.as_ref()?.counting(Micros(window), self.tiers.first()?.outcome.at))
    }

    pub fn json(&self, subject: &Subject<'_>) -> Value {
        let limits =
            self.tiers.iter().flat_map(|tier| tier.limits.iter().map(|limit| limit.json(subject, tier)));
        let ban = self.ban.as_ref().map(|ban| {
            let record = BanRecord::read(&ban.value);
            json!({
                "by": if matches!(record, BanRecord::Until(_)) { "weir" } else { "operator" },
                "text": String::from_utf8_lossy(&ban.value),
                "in_effect": self.rest_of_ban() != RetryAfter::Now,
                "rest_ms": words::millis(self.rest_of_ban()),
            })
        });
        let own = self.own.as_ref().map(|own| {
            json!({
                "value": serde_json::from_slice(&own.value)
                    .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&own.value))),
                "expires_ms": own.expires.map(Micros::as_millis_ceil),
                "in_effect": self.reads_overrides(subject),
                "ignored": self.ignored(subject).collect::<Vec<_>>(),
            })
        });
        json!({
            "policy": subject.policy.name,
            "subject": subject.shown(),
            "slot": key::slot(subject.tag()),
            "region": subject.region(),
            "limits": limits.collect::<Vec<_>>(),
            "override": own,
            "ban": ban,
            "denials": self.counting(subject),
        })
    }
}

impl LimitState {
    fn text(&self, check: &Check) -> String {
        let quota = self.in_force.quota();
        let mut text = match &self.in_force {
            Limit::Concurrency(_) => format!("{} of {quota} permits free", self.left),
            Limit::Distinct(_) => format!("{} of {quota} values left", self.left),
            _ => format!("{} of {quota} left", self.left),
        };
        let what = match check.cost {
            _ if matches!(self.in_force, Limit::Distinct(_)) => String::from("a new value"),
            1 => String::from("a request"),
            cost if matches!(self.in_force, Limit::Concurrency(_)) || cost == 0 => String::from("a request"),
            cost => format!("a request of cost {cost}"),
        };
        match (self.retry_after, &self.in_force) {
            (RetryAfter::Now, _) => {}
            (RetryAfter::After(_) | RetryAfter::Unknown, Limit::Concurrency(_)) => {
                text.push_str(&format!(", {what} passes when another ends"));
            }
            (RetryAfter::After(rest), _) => {
                text.push_str(&format!(", {what} passes in {}", words::span(rest)));
            }
            (RetryAfter::Unknown, _) => {}
            (RetryAfter::Never, _) => text.push_str(&format!(", {what} never passes")),
        }
        if self.reset > Micros::ZERO {
            text.push_str(&format!(", {}", words::full_again(&self.in_force, self.reset)));
        }
        text.push_str(&format!(" ({}", words::limit(&self.in_force)));
        if self.in_force != self.configured {
            text.push_str(&format!("; configured: {}", words::limit(&self.configured)));
        }
        text.push(')');
        text
    }

    fn json(&self, subject: &Subject<'_>, tier: &TierState) -> Value {
        json!({
            "name": self.name,
            "tier": tier.name,
            "limit": words::limit(&self.in_force),
            "quota": self.in_force.quota(),
            "overridden": self.in_force != self.configured,
            "remaining": self.left,
            "retry_after_ms": words::millis(self.retry_after),
            "passes": self.retry_after == RetryAfter::Now,
            "reset_ms": self.reset.as_millis_ceil(),
            "cost": tier.check.cost,
            "key": words::shown(&subject.key(&self.name)),
        })
    }

    /// Says why this count of an override has no effect, if that is so.
    fn ignores(&self, count: &str, value: &Value) -> Option<String> {
        let place = self.in_force.count_names().iter().position(|name| *name == count);
        let Some(place) = place else {
            let allowed = self.in_force.count_names().join(", ");
            return Some(format!("limit {:?} has no count {count:?}, but {allowed}", self.name));
        };
        let in_force = self.in_force.counts().get(place).copied();
        (whole(value) != in_force).then(|| format!("{}.{count}={value} is out of bounds", self.name))
    }
}

impl Record {
    /// Says who began a ban.
    pub fn banned_by(&self) -> String {
        match BanRecord::read(&self.value) {
            BanRecord::Until(_) => String::from("begun by weir"),
            BanRecord::Imposed(text) => format!("imposed: {}", words::written(&text)),
        }
    }

    fn text(&self) -> String {
        match self.expires {
            Some(rest) => format!("for another {}", words::span(rest)),
            None => String::from("until it is removed"),
        }
    }
}

/// The numbers of the policy's `ban`: first how many denials begin a ban, then within which time.
fn ban_numbers(subject: &Subject<'_>) -> Option<[u64; 5]> {
    subject.plans().find_map(|(_, plan)| Some(plan.ban()?.numbers()))
}

/// A key whose value is text, if it exists and is.
pub(super) fn record(redis: &mut Redis, key: &[u8]) -> Result<Option<Record>, Failure> {
    let value = match redis.ask(&[b"GET", key]) {
        Ok(reply) => bytes(&reply).map(<[u8]>::to_vec),
        Err(failure) => wrong_type(failure)?,
    };
    let Some(value) = value else { return Ok(None) };
    let expires = match redis.ask(&[b"PTTL", key])? {
        Reply::Int(millis) => u64::try_from(millis).ok().map(Micros::from_millis),
        _ => None,
    };
    Ok(Some(Record { value, expires }))
}

/// A key of another type is no record, for the scripts too.
fn wrong_type<T>(failure: Failure) -> Result<Option<T>, Failure> {
    if failure.contains("WRONGTYPE") { Ok(None) } else { Err(failure) }
}

fn any_exists(subject: &Subject<'_>, redis: &mut Redis, names: &[String]) -> Result<bool, Failure> {
    let keys: Vec<Vec<u8>> = names.iter().map(|name| subject.key(name)).collect();
    let words: Vec<&[u8]> =
        [b"EXISTS".as_slice()].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
    Ok(!matches!(redis.ask(&words)?, Reply::Int(0)))
}

/// A whole number, as the script reads it: `1e3` and `1000.0` are some, too.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let of_float = || format!("{:.0}", value.as_f64().filter(|number| number.fract() == 0.0)?).parse().ok();
    value.as_u64().or_else(of_float)
}
