//! `weir explain`: why one request is limited or not, policy by policy.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::store::Redis;
use super::{Failure, Found, describe, failed, file};
use crate::config::{Evaluation, Step};
use crate::decision::{CheckAnswer, Decision};
use crate::limit::{Ask, Outcome, RetryAfter};
use crate::policy::list::Conditions;
use crate::policy::matcher::OnAmbiguity;
use crate::policy::{self, Check, Denial, Mode, Policy, Ruling, key};
use crate::request::Request;
use crate::request::sample::Sample;
use crate::resp;
use crate::response::{self, Verdict};
use crate::script::{Form, Plan};

/// What to explain.
#[derive(Args)]
pub(super) struct Arguments {
    /// The configuration, or an Envoy bootstrap that contains one.
    file: PathBuf,
    /// The method.
    #[arg(long, default_value = "GET")]
    method: String,
    /// The path and query.
    #[arg(long, default_value = "/")]
    path: String,
    /// The host.
    #[arg(long, default_value = "localhost")]
    host: String,
    /// A header, `name: value`; once for each line of it.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The address of the connection, as Envoy sees it.
    #[arg(long, default_value = "127.0.0.1")]
    client: String,
    /// An Envoy attribute, `xds.route_name=value`. If its names contain dots, separate them with `/`.
    #[arg(long = "attribute", value_name = "PATH=VALUE")]
    properties: Vec<String>,
    /// Show what the limits have left in this Redis, without counting the request: `redis://host:port` or `unix:///path`.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

impl Arguments {
    fn sample(&self) -> Result<Sample, Failure> {
        let mut sample =
            Sample::default().method(&self.method).path(&self.path).host(&self.host).from(&self.client);
        for line in &self.headers {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("{line:?} is not NAME: VALUE"))?;
            sample = sample.header(name.trim(), value.trim());
        }
        for line in &self.properties {
            let (path, value) = line.split_once('=').ok_or_else(|| format!("{line:?} is not PATH=VALUE"))?;
            let path: Vec<&str> = path.split(if path.contains('/') { '/' } else { '.' }).collect();
            sample = sample.property(&path, value);
        }
        Ok(sample)
    }
}

/// Explains.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Failure> {
    let config = file::load_one(&arguments.file)?;
    let sample = arguments.sample()?;
    let mut redis = arguments.redis.as_deref().map(Redis::connect).transpose()?;
    let request = Request::new(&sample, &config.trust);
    if let Ok(Some(client)) = request.client() {
        writeln!(out, "client {client}").map_err(failed)?;
    }
    let (mut listed, mut rulings) = (None, Vec::new());
    let evaluation = config.evaluate_steps(&request, |step| match step {
        Step::Denied(at) => {
            listed = Some(format!("denied: deny[{at}] holds, {}", listed_condition(&config.deny, at)));
        }
        Step::Exempt(at) => {
            let condition = listed_condition(&config.exempt, at);
            listed = Some(format!("exempt from all policies: exempt[{at}] holds, {condition}"));
        }
        Step::Policy(index, ruling) => rulings.push((index, ruling.clone())),
    });
    if let Some(listed) = listed {
        writeln!(out, "{listed}").map_err(failed)?;
    }
    for (policy, ruling) in rulings.iter().filter_map(|(index, of)| Some((config.policies.get(*index)?, of)))
    {
        writeln!(out, "policy {}: {}", policy.name, ruling_in_words(policy, ruling, &request))
            .map_err(failed)?;
        let Ruling::Check(check) = ruling else { continue };
        writeln!(out, "  subject {} in slot {}", check.tag.escape_ascii(), key::slot(&check.tag))
            .map_err(failed)?;
        let Some(plan) = config.plan(check).filter(|_| matches!(evaluation, Evaluation::Check(_))) else {
            continue;
        };
        command(plan, check, out).map_err(failed)?;
        if let Some(redis) = &mut redis {
            live(redis, &config.policies, plan, check, out)?;
        }
    }
    if let Evaluation::Deny(Some(_), _) = evaluation {
        let rest: Vec<&str> =
            config.policies.iter().skip(rulings.len()).map(|policy| policy.name.as_str()).collect();
        let rest =
            if rest.is_empty() { String::new() } else { format!("; not evaluated: {}", rest.join(", ")) };
        writeln!(out, "the request is denied without asking Redis{rest}").map_err(failed)?;
    }
    Ok(Found::Nothing)
}

fn listed_condition(list: &Conditions, index: usize) -> String {
    list.conditions().get(index).map(describe::condition).unwrap_or_default()
}

fn ruling_in_words<'a>(policy: &'a Policy, ruling: &Ruling, request: &Request<'a>) -> String {
    let part = |index: &usize| policy.subject.get(*index).map(describe::part).unwrap_or_default();
    match ruling {
        Ruling::Unmatched => {
            let broken = policy
                .matcher
                .broken_by(request, OnAmbiguity::Holds)
                .map(describe::condition)
                .unwrap_or_default();
            format!("does not match, it is not true that {broken}")
        }
        Ruling::Skipped(index) => format!("skipped, the request has no {}", part(index)),
        Ruling::Exempt(index) => {
            format!("exempt, exempt[{index}] holds: {}", listed_condition(&policy.exempt, *index))
        }
        Ruling::Denied(denial) => {
            let why = match denial {
                Denial::Listed(index) => {
                    format!("deny[{index}] holds: {}", listed_condition(&policy.deny, *index))
                }
                Denial::Absent(index) => format!("the request has no {}", part(index)),
                Denial::Ambiguous(index) => {
                    format!("the request has more than one {}, or too many to read", part(index))
                }
            };
            let shadow = if policy.mode == Mode::Shadow { " (shadow: not enforced)" } else { "" };
            format!("denied{shadow}, {why}")
        }
        Ruling::Check(check) => {
            let mode = match (check.mode, policy.mode) {
                (Mode::Enforce, _) => "",
                (Mode::Shadow, Mode::Shadow) => ", in shadow",
                (Mode::Shadow, Mode::Enforce) => ", in shadow for this subject (enforce_percent)",
            };
            let tier = policy.tiers.tiers.get(check.tier).map(|tier| tier.name.as_str()).unwrap_or_default();
            let tier = if tier.is_empty() { String::new() } else { format!(", tier {tier}") };
            let counters = if policy.counters == policy.name {
                String::new()
            } else {
                format!(", counts as {}", policy.counters)
            };
            format!("matches{tier}, cost {}{counters}{mode}", check.cost)
        }
    }
}

/// The command that goes to Redis.
fn command(plan: &Plan, check: &Check, out: &mut impl io::Write) -> io::Result<()> {
    let mut command = Vec::new();
    plan.check(&check.tag, Ask { requests: 1, cost: check.cost }, None, Form::Evalsha, &mut command);
    let Ok(Some((resp::Reply::Array(Some(words)), _))) = resp::decode(&command) else { return Ok(()) };
    write!(out, "  command")?;
    for word in words {
        if let resp::Reply::Bulk(Some(bytes)) = word {
            let plain = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
            let quote = if plain { "" } else { "\"" };
            write!(out, " {quote}{}{quote}", bytes.escape_ascii())?;
        }
    }
    writeln!(out)
}

/// What the limits have left in Redis, and what would happen to the request.
fn live(
    redis: &mut Redis,
    policies: &[Policy],
    plan: &Plan,
    check: &Check,
    out: &mut impl io::Write,
) -> Result<(), Failure> {
    let ask = Ask { requests: 0, cost: check.cost };
    let outcome = redis.check(plan, &check.tag, ask, None)?;
    let tier = policies.get(check.policy).and_then(|policy| policy.tiers.tiers.get(check.tier));
    let views = tier.map_or(&[][..], |tier| &tier.views);
    for (view, answer) in views.iter().zip(&outcome.limits) {
        let (name, left, reset) = (view.name(), answer.remaining, answer.reset.as_millis_ceil());
        // A permit is free when its request ends. The rest of its ttl is only the longest time until then.
        let most = if view.is_in_flight() { " at the latest" } else { "" };
        writeln!(out, "  limit {name}: {left} left, full again in {reset} ms{most}").map_err(failed)?;
    }
    if let RetryAfter::After(rest) = outcome.ban {
        writeln!(out, "  banned for {} ms", rest.as_millis_ceil()).map_err(failed)?;
    }
    let shadow = if check.mode == Mode::Shadow { " (shadow: not enforced)" } else { "" };
    match verdict(policies, plan, check, &outcome, ask) {
        Verdict::Admit(_) => writeln!(out, "  would be admitted"),
        Verdict::Reject(rejection) => {
            let when = match rejection.retry_after {
                RetryAfter::After(span) => format!("retry after {} ms", span.as_millis_ceil()),
                RetryAfter::Now | RetryAfter::Unknown => String::from("without a time to retry"),
                RetryAfter::Never if outcome.ban == RetryAfter::Never => {
                    String::from("until an operator lifts the ban")
                }
                RetryAfter::Never => String::from("always, because it costs more than a limit ever holds"),
            };
            writeln!(out, "  would be rejected, {when}{shadow}")
        }
    }
    .map_err(failed)
}

/// What the filter would decide, if this were the only policy and it were enforced.
fn verdict(policies: &[Policy], plan: &Plan, check: &Check, outcome: &Outcome, ask: Ask) -> Verdict {
    // The question was without a request, so nothing was granted.
    let granted = outcome.retry_after() == RetryAfter::Now;
    let finding = Decision { granted, ..Decision::new(outcome, plan.limits(), 0, ask) };
    let check = Check { mode: Mode::Enforce, ..check.clone() };
    let answer = CheckAnswer::Store(finding);
    response::verdict(&policy::answers(policies, [(&check, &answer)].into_iter()))
}
