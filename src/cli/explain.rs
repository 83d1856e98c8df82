//! `weir explain`: one request, policy by policy.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::store::Redis;
use super::{Failure, Found, failed, file};
use crate::config::{Evaluation, Step};
use crate::decision::{CheckAnswer, Decision};
use crate::limit::{Ask, Outcome, RetryAfter};
use crate::policy::matcher::{Condition, HostTest, OnAmbiguity, PathTest, ValueTest};
use crate::policy::subject::{Part, Source};
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
    /// An Envoy attribute, `xds.route_name=value`. Where names contain dots, part them with `/` instead.
    #[arg(long = "property", value_name = "PATH=VALUE")]
    properties: Vec<String>,
    /// Ask this Redis how things stand, without counting the request: `redis://host:port` or `unix:///path`.
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
        writeln!(out, "policy {}: {}", policy.name, said(policy, ruling, &request)).map_err(failed)?;
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

fn listed_condition(conditions: &[Condition], index: usize) -> String {
    conditions.get(index).map(describe).unwrap_or_default()
}

fn said<'a>(policy: &'a Policy, ruling: &Ruling, request: &Request<'a>) -> String {
    let part = |index: &usize| policy.subject.get(*index).map(part).unwrap_or_default();
    match ruling {
        Ruling::Unmatched => {
            let broken =
                policy.matcher.broken_by(request, OnAmbiguity::Holds).map(describe).unwrap_or_default();
            format!("does not match, it is not so that {broken}")
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
                    format!("the request has several of {}, or more than is read", part(index))
                }
            };
            let shadow = if policy.mode == Mode::Shadow { " (in shadow: it is not)" } else { "" };
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
            format!("matches{tier}, cost {}{mode}", check.cost)
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

/// How things stand in Redis, and what would happen.
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
        // Requests in flight end when they end. The rest of a ttl is only the longest that it can take.
        let most = if view.is_in_flight() { " at the latest" } else { "" };
        writeln!(out, "  limit {name}: {left} left, full again in {reset} ms{most}").map_err(failed)?;
    }
    let shadow = if check.mode == Mode::Shadow { " (in shadow: it is not)" } else { "" };
    match told(policies, plan, check, &outcome, ask) {
        Verdict::Admit(_) => writeln!(out, "  would be admitted"),
        Verdict::Reject(rejection) => {
            let told = match rejection.retry_after {
                RetryAfter::After(span) => format!("to come back after {} ms", span.as_millis_ceil()),
                RetryAfter::Now | RetryAfter::Unknown => String::from("no time"),
                RetryAfter::Never => {
                    String::from("not to come back, because it costs more than a limit ever holds")
                }
            };
            writeln!(out, "  would be rejected, and told {told}{shadow}")
        }
    }
    .map_err(failed)
}

/// What the filter would tell the client, if only this policy were asked and it were enforced.
fn told(policies: &[Policy], plan: &Plan, check: &Check, outcome: &Outcome, ask: Ask) -> Verdict {
    // No request was asked for, so none was granted.
    let granted = outcome.retry_after() == RetryAfter::Now;
    let finding = Decision { granted, ..Decision::new(outcome, plan.limits(), 0, ask) };
    let check = Check { mode: Mode::Enforce, ..check.clone() };
    let answer = CheckAnswer::Store(finding);
    response::verdict(&policy::answers(policies, [(&check, &answer)].into_iter()))
}

/// A condition in words.
fn describe(condition: &Condition) -> String {
    let all = |all: &[Condition], word: &str| {
        let each: Vec<String> = all.iter().map(describe).collect();
        if each.is_empty() { String::from("anything") } else { format!("({})", each.join(word)) }
    };
    match condition {
        Condition::All(conditions) => all(conditions, " and "),
        Condition::Any(conditions) => all(conditions, " or "),
        Condition::Not(condition) => format!("not {}", describe(condition)),
        Condition::Path(PathTest::Exact(path, _)) => format!("the path is {}", path.escape_ascii()),
        Condition::Path(PathTest::Prefix(path)) => format!("the path is {0}/ or below", path.escape_ascii()),
        Condition::Path(PathTest::Regex(pattern)) => format!("the path matches {}", pattern.exact.text()),
        Condition::Method(names) => format!("the method is {}", one_of(names)),
        Condition::Host(hosts) => {
            let each = hosts.iter().map(|host| match host {
                HostTest::Exact(host) => host.escape_ascii().to_string(),
                HostTest::Below(suffix) => format!("*{}", suffix.escape_ascii()),
            });
            format!("the host is {}", each.collect::<Vec<_>>().join(" or "))
        }
        Condition::Header(name, test) => format!("the header {name} {}", value(test)),
        Condition::Query(name, _, test) => {
            format!("the query parameter {} {}", name.escape_ascii(), value(test))
        }
        Condition::Route(names) => format!("the route is {}", one_of(names)),
        Condition::ClientAddress(networks) => {
            let each: Vec<String> = networks.iter().map(ToString::to_string).collect();
            format!("the client is in {}", each.join(" or "))
        }
    }
}

fn one_of(names: &[Vec<u8>]) -> String {
    names.iter().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>().join(" or ")
}

fn value(test: &ValueTest) -> String {
    match test {
        ValueTest::Present => String::from("is there"),
        ValueTest::Absent => String::from("is not there"),
        ValueTest::Exact(text) => format!("is \"{}\"", text.escape_ascii()),
        ValueTest::Prefix(text) => format!("begins with \"{}\"", text.escape_ascii()),
        ValueTest::Regex(pattern) => format!("matches {}", pattern.text()),
    }
}

/// A part of a subject in words.
fn part(part: &Part) -> String {
    match &part.source {
        Source::ClientAddress { .. } => String::from("client address"),
        Source::Header(name) => format!("header {name}"),
        Source::Cookie(name) => format!("cookie {}", name.escape_ascii()),
        Source::Query(name, _) => format!("query parameter {}", name.escape_ascii()),
        Source::Path(_) => String::from("path"),
        Source::PathSegment(index) => format!("path segment {index}"),
        Source::Method => String::from("method"),
        Source::Host => String::from("host"),
        Source::Attribute(path) => format!("attribute {}", path.join(".")),
        Source::Literal(_) => String::from("literal"),
    }
}
