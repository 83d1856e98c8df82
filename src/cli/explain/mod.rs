//! `weir explain`: why one request is limited or not, policy by policy, and what its client gets.

mod answer;
mod limits;
mod rehearsal;
mod rulings;

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::sample::RequestFlags;
use super::store::{Login, Redis};
use super::words::{self, span};
use super::{Failure, Found, date, failed, request, source};
use crate::config::{Config, Evaluation, Step};
use crate::decision::{CheckAnswer, Decision};
use crate::limit::{Outcome, RetryAfter, Subject};
use crate::policy::{self, Check, Mode, Policy, Ruling, key};
use crate::request::Request;
use crate::request::sample::Sample;
use crate::response::{self, Verdict};
use crate::script::{Form, Plan};
use rulings::listed_condition;

/// What to explain.
#[derive(Args)]
pub(super) struct Arguments {
    /// The configuration, or an Envoy bootstrap that contains one.
    file: PathBuf,
    #[command(flatten)]
    request: RequestFlags,
    /// Show what the limits have left in this Redis, and what the client gets, without counting the request:
    /// `redis://host[:port][/database]`, `rediss://…` with TLS, or `unix:///path`.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    redis: Vec<String>,
    #[command(flatten)]
    login: Login,
    /// Show the commands that the filter would send to Redis.
    #[arg(long)]
    commands: bool,
}

/// Explains.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Failure> {
    let config = source::load_one(&arguments.file)?;
    let sample = arguments.request.sample()?;
    let redis = arguments.login.connect_if(&arguments.redis)?;
    let mut explained = Explained {
        config: &config,
        redis,
        commands: arguments.commands,
        answers: Vec::new(),
        inexact: None,
    };
    explained.print(&sample, out)?;
    Ok(Found::Nothing)
}

/// An explanation, while it is printed.
struct Explained<'a> {
    config: &'a Config,
    redis: Option<Redis>,
    commands: bool,
    /// What the limits answer, of each policy that asks them.
    answers: Vec<(Check, CheckAnswer)>,
    /// Why the answers do not say what is left after the request.
    inexact: Option<Failure>,
}

impl Explained<'_> {
    fn print(&mut self, sample: &Sample, out: &mut impl io::Write) -> Result<(), Failure> {
        let config = self.config;
        let body = request::body(config, sample);
        let request = request::request(config, sample, body.as_ref());
        match request.client() {
            Ok(Some(client)) => writeln!(out, "client {client}"),
            _ => writeln!(out, "no client address that can be read"),
        }
        .map_err(failed)?;
        let asked = config.asked(&request);
        let asked_about = asked.as_ref().map(|asked| Request::new(asked, &config.trust));
        let (mut enquiry, mut listed, mut rulings) = (None, None, Vec::new());
        let evaluation = config.evaluate_steps(&request, |step| match step {
            Step::Enquiry(method, target) => {
                let (method, target) = (method.escape_ascii(), target.escape_ascii());
                enquiry = Some(format!("an enquiry about {method} {target}, which weir answers"));
            }
            Step::Denied(at) => {
                listed = Some(format!("denied: deny[{at}] holds, {}", listed_condition(&config.deny, at)));
            }
            Step::Exempt(at) => {
                let condition = listed_condition(&config.exempt, at);
                listed = Some(format!("exempt from all policies: exempt[{at}] holds, {condition}"));
            }
            Step::Policy(index, ruling) => rulings.push((index, ruling.clone())),
        });
        for line in enquiry.into_iter().chain(listed) {
            writeln!(out, "{line}").map_err(failed)?;
        }
        let matched = asked_about.as_ref().unwrap_or(&request);
        for (index, ruling) in &rulings {
            let Some(policy) = config.policies.get(*index) else { continue };
            writeln!(out, "policy {}: {}", policy.name, rulings::in_words(policy, ruling, matched))
                .map_err(failed)?;
            if let Ruling::Check(check) = ruling {
                self.print_check(policy, check, &evaluation, out)?;
            }
        }
        if let Evaluation::Deny(Some(_), _) = evaluation {
            let rest: Vec<&str> =
                config.policies.iter().skip(rulings.len()).map(|policy| policy.name.as_str()).collect();
            let rest =
                if rest.is_empty() { String::new() } else { format!("; not evaluated: {}", rest.join(", ")) };
            writeln!(out, "the request is denied without asking Redis{rest}").map_err(failed)?;
        }
        self.print_answer(&evaluation, sample, out)
    }

    /// The subject of a policy that applies, and its limits, if the filter asks them.
    fn print_check(
        &mut self,
        policy: &Policy,
        check: &Check,
        evaluation: &Evaluation,
        out: &mut impl io::Write,
    ) -> Result<(), Failure> {
        writeln!(out, "  subject {} in slot {}", check.tag.escape_ascii(), key::slot(&check.tag))
            .map_err(failed)?;
        let is_asked = match evaluation {
            Evaluation::Check(_) => true,
            Evaluation::Enquiry(checks) => checks.iter().any(|asked| asked.is_about_the_same(check)),
            _ => false,
        };
        let Some(plan) = self.config.plan(check).filter(|_| is_asked) else { return Ok(()) };
        let left = match &mut self.redis {
            Some(redis) => Some(redis.check(&plan, &check.tag, check.ask(0), None)?),
            None => None,
        };
        print_limits(policy, check, &plan, left.as_ref(), out).map_err(failed)?;
        if self.commands {
            print_command(&plan, check, out).map_err(failed)?;
        }
        let requests = u32::from(check.mode != Mode::Enquiry);
        let ask = check.ask(requests);
        let decision = match (&mut self.redis, left) {
            (Some(redis), Some(left)) => {
                let decision = match rehearsal::ask(redis, &plan, &check.tag, ask) {
                    Ok(outcome) => Decision::new(&outcome, plan.limits(), 0, ask),
                    Err(failure) => {
                        self.inexact = Some(failure);
                        without_taking(&left, &plan, check)
                    }
                };
                self.print_decision(policy, check, &decision, &left, out)?;
                decision
            }
            _ => {
                let outcome = Subject::default().check_with_ban(plan.limits(), plan.ban(), date::now(), ask);
                Decision::new(&outcome, plan.limits(), 0, ask)
            }
        };
        self.answers.push((check.clone(), CheckAnswer::Store(decision)));
        Ok(())
    }

    /// What would happen to the request, if this were the only policy and it were enforced.
    fn print_decision(
        &self,
        policy: &Policy,
        check: &Check,
        decision: &Decision,
        left: &Outcome,
        out: &mut impl io::Write,
    ) -> Result<(), Failure> {
        if let RetryAfter::After(rest) = left.ban {
            writeln!(out, "  banned for {}", span(rest)).map_err(failed)?;
        }
        if check.mode == Mode::Enquiry {
            return Ok(());
        }
        let enforced = Check { mode: Mode::Enforce, ..check.clone() };
        let answer = CheckAnswer::Store(decision.clone());
        let shadow = if check.mode == Mode::Shadow { " (shadow: not enforced)" } else { "" };
        let name = &policy.name;
        match response::verdict(&policy::answers(&self.config.policies, [(&enforced, &answer)].into_iter())) {
            Verdict::Admit(_) => writeln!(out, "  {name} would admit it"),
            Verdict::Reject(rejection) => {
                let when = answer::retry(rejection.retry_after, left.ban == RetryAfter::Never);
                writeln!(out, "  {name} would reject it, {when}{shadow}")
            }
        }
        .map_err(failed)
    }

    /// What the client gets, by the answers of all policies.
    fn print_answer(
        &self,
        evaluation: &Evaluation,
        sample: &Sample,
        out: &mut impl io::Write,
    ) -> Result<(), Failure> {
        let config = self.config;
        let answers =
            policy::answers(&config.policies, self.answers.iter().map(|(check, answer)| (check, answer)));
        let (verdict, is_counted) = match evaluation {
            Evaluation::Deny(policy, _) => {
                let name = policy
                    .and_then(|policy| config.policies.get(policy))
                    .map_or("", |policy| policy.name.as_str());
                (Verdict::Reject(response::deny(config.response(*policy), name)), false)
            }
            Evaluation::Enquiry(_) => (Verdict::Reject(response::enquiry(&answers, &config.response)), true),
            Evaluation::Check(_) => (response::verdict(&answers), true),
            Evaluation::Admit | Evaluation::AwaitBody => {
                (Verdict::Admit(response::Admission::default()), false)
            }
        };
        let when = if is_counted && self.redis.is_none() { ", if nothing is counted yet" } else { "" };
        match (&self.inexact, &verdict) {
            (Some(failure), Verdict::Admit(_)) => {
                writeln!(out, "answer: the request goes to the upstream; the headers of its response are not known ({failure})")
            }
            _ => answer::print(&verdict, sample, when, out),
        }
        .map_err(failed)
    }
}

/// The decision by what is left, where the script cannot be asked for the request itself.
fn without_taking(left: &Outcome, plan: &Plan, check: &Check) -> Decision {
    let granted = left.retry_after() == RetryAfter::Now;
    Decision { granted, ..Decision::new(left, plan.limits(), 0, check.ask(0)) }
}

/// Each limit with its key, and what it has left if that is known; then the keys that are no limit's.
fn print_limits(
    policy: &Policy,
    check: &Check,
    plan: &Plan,
    left: Option<&Outcome>,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let views = policy.tiers.tiers.get(check.tier).map_or(&[][..], |tier| &tier.views);
    let limits = left.map_or(plan.limits(), |left| left.in_force(plan.limits()));
    let mut command = Vec::new();
    plan.check(&check.tag, check.ask(0), None, Form::Evalsha, &mut command);
    let mut keys = rehearsal::keys(&command).into_iter();
    for (place, (view, limit)) in views.iter().zip(limits).enumerate() {
        let answer = left.and_then(|left| left.limits.get(place));
        let state =
            answer.map(|answer| format!("; {}", limits::has_left(limit, answer, limit.kept(check.ask(0)))));
        writeln!(out, "  limit {}: {}{}", view.name(), words::limit(limit), state.unwrap_or_default())?;
        writeln!(out, "    key {}", keys.next().unwrap_or_default().escape_ascii())?;
    }
    keys.try_for_each(|key| writeln!(out, "  key {}", key.escape_ascii()))
}

/// The command that goes to Redis.
fn print_command(plan: &Plan, check: &Check, out: &mut impl io::Write) -> io::Result<()> {
    let mut command = Vec::new();
    let requests = u32::from(check.mode != Mode::Enquiry);
    plan.check(&check.tag, check.ask(requests), None, Form::Evalsha, &mut command);
    write!(out, "  command")?;
    for word in rehearsal::words(&command) {
        let plain = !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
        let quote = if plain { "" } else { "\"" };
        write!(out, " {quote}{}{quote}", word.escape_ascii())?;
    }
    writeln!(out)
}
