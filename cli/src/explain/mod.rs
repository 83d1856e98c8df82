// SPDX-License-Identifier: Apache-2.0
//! `weir explain`: why one request is limited or not, policy by policy, and what its client gets.
//!
//! | file | what is inside |
//! |---|---|
//! | `rulings.rs` | what a policy decides before Redis is asked, in words |
//! | `rehearsal.rs` | what Redis would answer, without counting |
//! | `limits.rs` | limits in words |
//! | `text.rs`, `answer.rs` | an explanation for people |
//! | `json.rs` | the same for programs |
//! | `curl.rs`, `form.rs` | a request as a command of curl; the form of its `-F` |

mod answer;
mod curl;
mod form;
mod json;
mod limits;
mod rehearsal;
mod rulings;
mod text;
mod usage;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;

use super::region::{Counted, InRegion};
use super::sample::RequestFlags;
use super::store::{Login, Memory, Redis};
use super::{Ended, Failure, Found, date, failed, request, words};
use rehearsal::Charge;
use rulings::{doubt, listed_condition};
use weir::config::{Config, Evaluation, Step};
use weir::decision::{CheckAnswer, Decision};
use weir::limit::{Limit, LimitOutcome, Outcome, RetryAfter, Subject};
use weir::policy::{self, Check, Mode, Policy, Ruling};
use weir::request::client_ip::connection;
use weir::request::sample::Sample;
use weir::request::{Attributes, Request, is_grpc};
use weir::response::{self, LimitView, Verdict};
use weir::script::{Form, Plan};
use weir::time::Micros;

/// The request to explain.
#[derive(Args)]
pub(super) struct Arguments {
    /// The configuration, or a configuration of Envoy that contains one.
    file: PathBuf,
    #[command(flatten)]
    request: RequestFlags,
    #[command(flatten)]
    in_region: InRegion,
    /// Read in this Redis what the subject's limits have left. The answer is exact, and counts nothing. Without it, nothing has been
    /// counted for this client yet.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    redis: Vec<String>,
    /// The time of the request: a day, or a time such as 2026-11-01T12:00:00Z. By default now.
    #[arg(long, value_name = "TIME", value_parser = date::time, conflicts_with = "redis")]
    time: Option<Micros>,
    /// Show the commands that the filter would send to Redis.
    #[arg(long)]
    commands: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    /// Read the request from a curl command (URL, headers, data, `--json`, user, cookie, forms), and send nothing: `-- curl -H 'x-key: a'
    /// http://host/path`. Flags before `--` win.
    #[arg(last = true, value_name = "CURL")]
    curl: Vec<String>,
    #[command(flatten)]
    login: Login,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.in_region.load_for_keys(&arguments.file)?;
    let sample = match arguments.curl.as_slice() {
        [] => arguments.request.sample()?,
        words => arguments.request.over(curl::request(words)?).sample()?,
    };
    let redis = arguments.login.connect_if(&arguments.redis)?;
    let now = || Counts::Nothing(arguments.time.unwrap_or_else(date::now));
    let counts = redis.map_or_else(now, |redis| Counts::Redis(Box::new(redis)));
    let explanation = explain(&config, counts, &sample)?;
    if arguments.json {
        writeln!(out, "{}", words::json(&explanation.json(arguments.commands)))
    } else {
        explanation.print(arguments.commands, out)
    }
    .map_err(failed)?;
    Ok(Found::Nothing)
}

/// The source of the counts before the request.
pub(super) enum Counts<'a> {
    /// Nothing, and it is this time.
    Nothing(Micros),
    Redis(Box<Redis>),
    /// In a replay, until this time.
    Replay(&'a Memory, Micros),
}

pub(super) fn explain<'a>(
    config: &'a Config,
    counts: Counts<'a>,
    sample: &Sample,
) -> Result<Explanation<'a>, Failure> {
    Asking { config, counts, answers: Vec::new(), inexact: None }.explain(sample)
}

/// The explanation of a request, in the filter's order.
pub(super) struct Explanation<'a> {
    config: &'a Config,
    client: Option<String>,
    /// The header with the chain of proxies, if Envoy appends its machine's own address to that.
    appended: Option<&'a str>,
    /// The method and the path that a quota request asks for.
    enquiry: Option<(String, String)>,
    listed: Option<Listed>,
    policies: Vec<Ruled<'a>>,
    /// If the request is denied without Redis: the policies that are not evaluated.
    unevaluated: Option<Vec<&'a str>>,
    /// The attributes that were asked for, and that only Envoy knows. They counted as absent.
    unknown: Vec<String>,
    answer: Answer,
}

/// A condition of a global list that holds.
struct Listed {
    list: &'static str,
    at: usize,
    condition: String,
    /// The part of the request that cannot be read, or has several readings, if it holds only therefore.
    doubt: Option<String>,
}

struct Ruled<'a> {
    policy: &'a Policy,
    ruling: Ruling,
    words: String,
    /// The region that counts it, in a configuration with regions.
    counted: Option<Counted<'a>>,
    /// Its limits, if the filter asks them.
    asked: Option<Asked>,
}

struct Asked {
    plan: Rc<Plan>,
    /// The remaining amounts of the limits, if a Redis says so.
    left: Option<Outcome>,
    /// The reason for which the Redis that was named does not say so.
    not_asked: Option<String>,
    /// The result if this were the only policy and it were enforced.
    would: Option<Would>,
}

#[derive(Clone, Copy)]
enum Would {
    Admit,
    Reject(RetryAfter),
}

struct Answer {
    verdict: Verdict,
    /// The headers that weir adds to the response, or those of a rejection.
    headers: Vec<(String, String)>,
    /// The body of a rejection.
    body: String,
    is_grpc: bool,
    /// The condition of the answer: the subjects that count as new.
    uncounted: Option<String>,
    /// The reason for which the headers of an admitted request are not known.
    inexact: Option<Failure>,
}

/// An explanation, while it is made.
struct Asking<'a> {
    config: &'a Config,
    counts: Counts<'a>,
    /// The checks of the request, with the answers of the limits.
    answers: Vec<(Check, CheckAnswer)>,
    /// The reason for which the answers do not say what is left after the request.
    inexact: Option<Failure>,
}

impl<'a> Asking<'a> {
    /// The time at which the request comes.
    fn now(&self) -> Micros {
        match self.counts {
            Counts::Nothing(now) | Counts::Replay(_, now) => now,
            Counts::Redis(_) => date::now(),
        }
    }

    fn explain(&mut self, sample: &Sample) -> Result<Explanation<'a>, Failure> {
        let config = self.config;
        let sample = &sample.clone().at(self.now());
        let body = request::body(config, sample);
        let watched = request::Watched::new(sample);
        let request = request::request(config, &watched, body.as_ref());
        let client = request.client().ok().flatten().map(|client| client.to_string());
        let source = Attributes::property(sample, &["source", "address"]).ok().flatten();
        let is_local =
            source.and_then(|source| connection(&source)).is_some_and(|address| address.is_loopback());
        let chain = Some(config.trust.header()).filter(|_| is_local && !config.trust.is_connection());
        let appended = chain.filter(|chain| matches!(request.header(chain), Ok(Some(_))));
        let asked = config.asked(&request);
        let asked_about = asked.as_ref().map(|asked| Request::new(asked, &config.trust));
        let (mut enquiry, mut listed, mut rulings) = (None, None, Vec::new());
        let evaluation = config.evaluate_steps(&request, |step| match step {
            Step::QuotaRequest(method, target) => {
                enquiry = Some((method.escape_ascii().to_string(), target.escape_ascii().to_string()));
            }
            Step::Denied(at) => {
                let doubt = config.deny.conditions().get(at).and_then(|listed| doubt(listed, &request));
                let condition = listed_condition(&config.deny, at);
                listed = Some(Listed { list: "deny", at, condition, doubt });
            }
            Step::Exempt(at) => {
                let condition = listed_condition(&config.exempt, at);
                listed = Some(Listed { list: "exempt", at, condition, doubt: None });
            }
            // A policy that does not apply is named again if only its ban counts.
            Step::Policy(index, ruling) => match rulings.iter_mut().find(|(known, _)| *known == index) {
                Some((_, known)) => *known = ruling.clone(),
                None => rulings.push((index, ruling.clone())),
            },
        });
        let matched = asked_about.as_ref().unwrap_or(&request);
        let unevaluated = matches!(evaluation, Evaluation::Deny(Some(_), _))
            .then(|| config.policies.iter().skip(rulings.len()).map(|policy| policy.name.as_str()).collect());
        let mut policies = Vec::new();
        for (index, ruling) in rulings {
            let Some(policy) = config.policies.get(index) else { continue };
            let words = rulings::in_words(policy, &ruling, matched);
            let counted = Counted::of(config, policy);
            let asked = match &ruling {
                Ruling::Check(check) => self.ask(check, counted.as_ref(), &evaluation)?,
                _ => None,
            };
            policies.push(Ruled { policy, ruling, words, counted, asked });
        }
        let answer = self.answer(&evaluation, sample, &policies);
        let unknown = watched.unknown();
        Ok(Explanation { config, client, appended, enquiry, listed, policies, unevaluated, unknown, answer })
    }

    /// The limits of a policy that applies, if the filter asks them.
    fn ask(
        &mut self,
        check: &Check,
        counted: Option<&Counted<'_>>,
        evaluation: &Evaluation,
    ) -> Result<Option<Asked>, Failure> {
        let is_asked = match evaluation {
            Evaluation::Check(_) => true,
            Evaluation::QuotaRequest(checks) => checks.iter().any(|asked| asked.has_the_subject_of(check)),
            _ => false,
        };
        let Some(plan) = self.config.plan(check).filter(|_| is_asked) else { return Ok(None) };
        let elsewhere = counted.and_then(Counted::elsewhere);
        let not_asked = elsewhere.filter(|_| matches!(self.counts, Counts::Redis(_)));
        let ask = check.ask(check.is_charged().into());
        let (mut left, mut would) = (None, None);
        // Policies with one name in `counters` charge the same counts, in their order.
        let earlier = self.answers.iter().map(|(earlier, _)| earlier);
        let earlier = earlier.filter(|earlier| (earlier.tier, &earlier.tag) == (check.tier, &check.tag));
        let charge = |check: &Check| Some((self.config.plan(check)?, check.ask(check.is_charged().into())));
        let earlier: Vec<Charge> = earlier.filter_map(charge).collect();
        let after_all = |mut subject: Subject, now| {
            for (plan, ask) in &earlier {
                subject.check(plan.limits(), plan.ban(), now, *ask);
            }
            subject.check(plan.limits(), plan.ban(), now, ask)
        };
        let asked = match &mut self.counts {
            Counts::Redis(redis) if not_asked.is_none() => {
                let outcome = redis.check(&plan, &check.tag, check.ask(0), None)?;
                Some((outcome, rehearsal::ask(redis, &check.tag, &earlier, &(Rc::clone(&plan), ask))))
            }
            Counts::Replay(memory, now) => {
                let subject = memory.subject(check);
                let outcome = subject.clone().check(plan.limits(), plan.ban(), *now, check.ask(0));
                Some((outcome, Ok(after_all(subject, *now))))
            }
            Counts::Redis(_) | Counts::Nothing(_) => None,
        };
        let decision = match asked {
            Some((outcome, rehearsed)) => {
                let decision = match rehearsed {
                    Ok(outcome) => check.decision(&outcome, plan.limits(), 0, ask),
                    Err(failure) => {
                        self.inexact = Some(failure);
                        without_taking(&outcome, &plan, check)
                    }
                };
                would = (check.mode != Mode::QuotaRequest).then(|| self.would(check, &decision));
                left = Some(outcome);
                decision
            }
            None => {
                let outcome = after_all(Subject::default(), self.now());
                check.decision(&outcome, plan.limits(), 0, ask)
            }
        };
        self.answers.push((check.clone(), CheckAnswer::Store(decision)));
        Ok(Some(Asked { plan, left, not_asked, would }))
    }

    /// Returns the result if this were the only policy and it were enforced.
    fn would(&self, check: &Check, decision: &Decision) -> Would {
        let enforced = Check { mode: Mode::Enforce, ..check.clone() };
        let answer = CheckAnswer::Store(decision.clone());
        let answers = policy::answers(&self.config.policies, [(&enforced, &answer)].into_iter());
        match response::verdict(&answers) {
            Verdict::Admit(_) => Would::Admit,
            Verdict::Reject(rejection) => Would::Reject(rejection.retry_after),
        }
    }

    /// Returns the response for the client, by the answers of all policies.
    fn answer(&mut self, evaluation: &Evaluation, sample: &Sample, policies: &[Ruled<'_>]) -> Answer {
        let config = self.config;
        let answers =
            policy::answers(&config.policies, self.answers.iter().map(|(check, answer)| (check, answer)));
        let (verdict, is_counted) = match evaluation {
            Evaluation::Deny(policy, _) => {
                let name = policy
                    .and_then(|policy| config.policies.get(policy))
                    .map_or("", |policy| policy.name.as_str());
                (Verdict::Reject(response::deny(config.response(*policy), name).into()), false)
            }
            Evaluation::QuotaRequest(_) => {
                (Verdict::Reject(response::enquiry(&answers, &config.response).into()), true)
            }
            Evaluation::Check(_) => (response::verdict(&answers), true),
            Evaluation::Admit | Evaluation::AwaitBody(_) => {
                (Verdict::Admit(response::Admission::default()), false)
            }
        };
        let verdict = match verdict {
            Verdict::Reject(mut rejection) => {
                let ids = config.needed_body(sample).and_then(|body| body.json_rpc_ids());
                rejection.name_calls(ids.as_ref());
                Verdict::Reject(rejection)
            }
            admitted => admitted,
        };
        let not_asked: Vec<&str> = policies
            .iter()
            .filter(|ruled| ruled.asked.as_ref().is_some_and(|asked| asked.not_asked.is_some()))
            .map(|ruled| ruled.policy.name.as_str())
            .collect();
        let uncounted = match &self.counts {
            Counts::Nothing(_) => is_counted.then(|| String::from("nothing is counted yet")),
            _ if not_asked.is_empty() => None,
            _ => Some(format!("nothing is counted yet of {}", not_asked.join(", "))),
        };
        let header = |name: &str| sample.header(name).ok().flatten().map(Cow::into_owned);
        let is_grpc = is_grpc(&header);
        let (headers, body) = match &verdict {
            Verdict::Admit(admission) => {
                let headers = admission.headers.iter();
                let headers = headers.map(|header| (header.name.to_owned(), header.value.clone()));
                (headers.collect(), String::new())
            }
            Verdict::Reject(rejection) => {
                let reply = rejection.reply(&header);
                // The answer says the status and the time of a gRPC call by themselves.
                let headers = reply.headers.into_iter().filter(|(name, _)| !name.starts_with("grpc-"));
                let headers = headers.map(|(name, value)| (name.to_owned(), value.into_owned()));
                (headers.collect(), reply.body.into_owned())
            }
        };
        Answer { verdict, headers, body, is_grpc, uncounted, inexact: self.inexact.take() }
    }
}

/// The decision by what is left. It is used if the script may not be run for the request itself.
fn without_taking(left: &Outcome, plan: &Plan, check: &Check) -> Decision {
    let after = if check.ban_only { left.ban } else { left.retry_after() };
    Decision { granted: after == RetryAfter::Now, ..check.decision(left, plan.limits(), 0, check.ask(0)) }
}

/// A limit that is asked: its view, what is in force, its key, and the answer if that is known.
type AskedLimit<'a> = (&'a LimitView, &'a Limit, Vec<u8>, Option<&'a LimitOutcome>);

impl Asked {
    /// Its limits, in the order of the policy; and the keys that are no limit's. If only the ban counts, no limit is asked.
    fn limits<'a>(&'a self, policy: &'a Policy, check: &Check) -> (Vec<AskedLimit<'a>>, Vec<Vec<u8>>) {
        let names = self.plan.names();
        let place = |key: &[u8]| {
            let is_of = |name: &&str| key.rsplit(|byte| *byte == b':').next() == Some(name.as_bytes());
            names.iter().position(is_of)
        };
        let keys = rehearsal::keys(&command(&self.plan, check, 0)).into_iter();
        let (mut keys, others): (Vec<_>, Vec<_>) = keys.partition(|key| place(key).is_some());
        // The command has them in the order of its script.
        keys.sort_by_key(|key| place(key));
        let views = policy.tiers.tiers.get(check.tier).filter(|_| !check.ban_only);
        let views = views.map_or(&[][..], |tier| &tier.views);
        let left = self.left.as_ref();
        let in_force = left.map_or(self.plan.limits(), |left| left.in_force(self.plan.limits()));
        let limits = views.iter().zip(in_force).zip(keys).enumerate().map(|(place, ((view, limit), key))| {
            (view, limit, key, left.and_then(|left| left.limits.get(place)))
        });
        (limits.collect(), others)
    }

    /// The words of the command that goes to Redis.
    fn command(&self, check: &Check) -> Vec<Vec<u8>> {
        rehearsal::words(&command(&self.plan, check, check.is_charged().into()))
    }
}

fn command(plan: &Plan, check: &Check, requests: u32) -> Vec<u8> {
    let mut command = Vec::new();
    plan.check(&check.tag, check.ask(requests), None, Form::Evalsha, &mut command);
    command
}
