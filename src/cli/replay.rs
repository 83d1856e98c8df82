//! `weir replay`: runs a trace through the policies in simulated time, as fast as possible.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::process;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::store::{Redis, Store};
use super::trace::{Event, Trace};
use super::{Failure, Found, failed, file};
use crate::config::{Config, Evaluation};
use crate::decision::{self, CheckAnswer};
use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Outcome, RetryAfter};
use crate::policy::{self, Check, Mode};
use crate::response::{self, Verdict};
use crate::time::Micros;

/// The most denied subjects of a policy that are printed, and the most differences.
const TOP: usize = 10;

/// How often the progress bar moves, in requests.
const STEP: u64 = 4096;

/// What to replay.
#[derive(Args)]
pub(super) struct Arguments {
    /// The configuration, or an Envoy bootstrap that contains one.
    file: PathBuf,
    /// The trace: JSON lines (`{"t_ms": 0, "method": "GET", "path": "/", "client": "192.0.2.1", "headers": {}}`), an
    /// nginx access log (combined), or an Envoy access log (its default).
    trace: PathBuf,
    /// Write one line of JSON for each decision, in place of the totals.
    #[arg(long)]
    json: bool,
    /// Compare with another configuration, decision by decision; status 1 when they differ.
    #[arg(long, value_name = "OTHER")]
    against: Option<PathBuf>,
    /// Count in this Redis, with the filter's own scripts and the trace's time, under keys of this run.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

/// What was decided for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decision {
    at: Micros,
    allowed: bool,
    policy: String,
    limit: String,
    remaining: Option<u64>,
    retry_after: RetryAfter,
    reset: Option<Micros>,
    delay: Micros,
    /// What the filter records as `weir.outcome`; empty where it records nothing.
    outcome: &'static str,
}

impl Decision {
    /// The decision for a request that is decided without a check.
    const fn clear(at: Micros, allowed: bool, policy: String) -> Self {
        let (retry_after, outcome) =
            if allowed { (RetryAfter::Now, "") } else { (RetryAfter::Unknown, "denied") };
        Self {
            at,
            allowed,
            policy,
            limit: String::new(),
            remaining: None,
            retry_after,
            reset: None,
            delay: Micros::ZERO,
            outcome,
        }
    }

    /// One line of JSON. Names need no escapes, because the configuration allows only names without special characters.
    fn json(&self) -> String {
        let null = || String::from("null");
        let name = |name: &str| if name.is_empty() { null() } else { format!("\"{name}\"") };
        let number = |number: Option<u64>| number.map_or_else(null, |number| number.to_string());
        format!(
            "{{\"t_ms\":{},\"allowed\":{},\"policy\":{},\"limit\":{},\"remaining\":{},\"retry_after_ms\":{},\
             \"reset_ms\":{},\"delay_ms\":{},\"outcome\":{}}}",
            self.at.0 / 1_000,
            self.allowed,
            name(&self.policy),
            name(&self.limit),
            number(self.remaining),
            number(match self.retry_after {
                RetryAfter::Now => Some(0),
                RetryAfter::After(span) => Some(span.as_millis_ceil()),
                RetryAfter::Unknown | RetryAfter::Never => None,
            }),
            number(self.reset.map(Micros::as_millis_ceil)),
            self.delay.as_millis_ceil(),
            name(self.outcome),
        )
    }
}

/// What a policy decided in the whole trace.
#[derive(Default)]
struct Total {
    admitted: u64,
    delayed: u64,
    rejected: u64,
    shadow: u64,
    denied: u64,
    /// How often each subject was rejected, and how often it would be.
    rejected_subjects: HashMap<Vec<u8>, u64>,
    shadow_subjects: HashMap<Vec<u8>, u64>,
}

/// A configuration and everything counted under it.
struct Run {
    config: Config,
    store: Store,
    totals: Vec<Total>,
    globally_denied: u64,
    unmatched: u64,
    /// Requests that hold permits, by the time at which they end.
    ends: BTreeMap<(Micros, u64), Vec<(Check, Outcome)>>,
    requests: u64,
}

impl Run {
    fn new(config: Config, store: Store) -> Self {
        let totals = config.policies.iter().map(|_| Total::default()).collect();
        Self { config, store, totals, globally_denied: 0, unmatched: 0, ends: BTreeMap::new(), requests: 0 }
    }

    fn decide(&mut self, event: &Event) -> Result<Decision, Failure> {
        self.requests = self.requests.saturating_add(1);
        while let Some(entry) = self.ends.first_entry()
            && entry.key().0 <= event.at
        {
            let (ended, _) = *entry.key();
            for (check, receipt) in entry.remove() {
                if let Some(plan) = self.config.plan(&check) {
                    self.store.release(plan, &check, ended, &receipt)?;
                }
            }
        }
        let checks = match self.config.evaluate(&event.request) {
            Evaluation::Check(checks) => checks,
            Evaluation::Admit => {
                self.unmatched = self.unmatched.saturating_add(1);
                return Ok(Decision::clear(event.at, true, String::new()));
            }
            Evaluation::Deny(policy, _) => {
                let total =
                    policy.and_then(|policy| self.totals.get_mut(policy)).map(|total| &mut total.denied);
                let count = total.unwrap_or(&mut self.globally_denied);
                *count = count.saturating_add(1);
                let name =
                    policy.and_then(|policy| self.config.policies.get(policy)).map(|policy| &policy.name);
                return Ok(Decision::clear(event.at, false, name.cloned().unwrap_or_default()));
            }
        };
        self.ask(event, checks)
    }

    fn ask(&mut self, event: &Event, checks: InlineVec<Check>) -> Result<Decision, Failure> {
        let (mut answers, mut granted) = (Vec::new(), Vec::new());
        for check in checks {
            let Some(plan) = self.config.plan(&check) else { continue };
            let outcome = self.store.check(plan, &check, event.at)?;
            let ask = Ask { requests: 1, cost: check.cost };
            let finding = decision::Decision::new(&outcome, plan.limits(), 0, ask);
            self.count(&check, &finding);
            if finding.granted {
                granted.push((check.clone(), outcome));
            }
            answers.push((check, CheckAnswer::Store(finding)));
        }
        let checks = answers.iter().map(|(check, answer)| (check, answer));
        let answers = policy::answers(&self.config.policies, checks);
        let verdict = response::verdict(&answers);
        let record = response::record(&answers);
        let (allowed, delay, retry_after) = match verdict {
            Verdict::Admit(admission) => (true, admission.delay, RetryAfter::Now),
            Verdict::Reject(rejection) => (false, Micros::ZERO, rejection.retry_after),
        };
        let decision = Decision {
            at: event.at,
            allowed,
            policy: record.as_ref().map(|record| record.policy.to_owned()).unwrap_or_default(),
            limit: record.as_ref().map(|record| record.limit.to_owned()).unwrap_or_default(),
            remaining: record.as_ref().and_then(|record| record.remaining),
            retry_after,
            reset: record.as_ref().and_then(|record| record.reset),
            delay,
            outcome: record.as_ref().map_or("", |record| record.outcome),
        };
        if allowed {
            granted.retain(|(_, receipt)| receipt.permits(1).next().is_some());
            if !granted.is_empty() {
                self.ends.insert((event.at.plus(delay).plus(event.took), self.requests), granted);
            }
            return Ok(decision);
        }
        for (check, receipt) in granted {
            if let Some(plan) = self.config.plan(&check) {
                self.store.refund(plan, &check, event.at, &receipt)?;
            }
        }
        Ok(decision)
    }

    fn count(&mut self, check: &Check, finding: &decision::Decision) {
        let Some(total) = self.totals.get_mut(check.policy) else { return };
        let count = match (finding.granted, check.mode) {
            (true, Mode::Enforce) if finding.delay > Micros::ZERO => &mut total.delayed,
            (true, _) => &mut total.admitted,
            (false, Mode::Enforce) => &mut total.rejected,
            (false, Mode::Shadow) => &mut total.shadow,
        };
        *count = count.saturating_add(1);
        if !finding.granted {
            let subjects = match check.mode {
                Mode::Enforce => &mut total.rejected_subjects,
                Mode::Shadow => &mut total.shadow_subjects,
            };
            let count = subjects.entry(check.tag.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }

    fn report(&self, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(out, "{} requests, {} of them admitted without a check", self.requests, self.unmatched)?;
        if self.globally_denied > 0 {
            writeln!(out, "denied by the global deny list: {}", self.globally_denied)?;
        }
        for (policy, total) in self.config.policies.iter().zip(&self.totals) {
            let Total { admitted, delayed, rejected, shadow, denied, .. } = total;
            writeln!(
                out,
                "policy {}: {admitted} admitted, {delayed} delayed, {rejected} rejected, {shadow} would be \
                 rejected (shadow), {denied} denied without a check",
                policy.name
            )?;
            for (subjects, note) in [(&total.rejected_subjects, ""), (&total.shadow_subjects, " (shadow)")] {
                let mut top: Vec<_> = subjects.iter().collect();
                top.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
                for (tag, times) in top.into_iter().take(TOP) {
                    writeln!(out, "  {times:>10}  {}{note}", tag.escape_ascii())?;
                }
            }
        }
        Ok(())
    }
}

/// How two configurations differ in the whole trace.
#[derive(Default)]
struct Differences {
    same: u64,
    only_first_rejects: u64,
    only_second_rejects: u64,
    other_delay: u64,
    examples: Vec<(Decision, Decision)>,
}

impl Differences {
    fn compare(&mut self, first: &Decision, second: &Decision) -> bool {
        let count = match (first.allowed, second.allowed) {
            (false, true) => &mut self.only_first_rejects,
            (true, false) => &mut self.only_second_rejects,
            _ if first.delay != second.delay => &mut self.other_delay,
            _ => {
                self.same = self.same.saturating_add(1);
                return true;
            }
        };
        *count = count.saturating_add(1);
        if self.examples.len() < TOP {
            self.examples.push((first.clone(), second.clone()));
        }
        false
    }

    fn report(&self, out: &mut impl io::Write) -> io::Result<()> {
        let Self { same, only_first_rejects, only_second_rejects, other_delay, examples } = self;
        writeln!(
            out,
            "{same} decided the same, {only_first_rejects} rejected by the first only, {only_second_rejects} by the \
             second only, {other_delay} delayed differently"
        )?;
        for (first, second) in examples {
            writeln!(out, "  first  {}\n  second {}", first.json(), second.json())?;
        }
        Ok(())
    }
}

/// Replays.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Failure> {
    let store = |place: &str| -> Result<Store, Failure> {
        match &arguments.redis {
            None => Ok(Store::Memory(HashMap::new())),
            Some(url) => Ok(Store::Redis(Redis::connect(url)?, format!("replay-{}-{place}", process::id()))),
        }
    };
    let mut first = Run::new(file::load_one(&arguments.file)?, store("1")?);
    let mut second = match &arguments.against {
        None => None,
        Some(other) => Some((Run::new(file::load_one(other)?, store("2")?), Differences::default())),
    };
    let named = |error: io::Error| format!("{}: {error}", arguments.trace.display());
    let input = File::open(&arguments.trace).map_err(named)?;
    let bar = progress(input.metadata().map_err(named)?.len());
    let mut trace = Trace::new(BufReader::new(input));
    while let Some(event) = trace.next() {
        let event = event?;
        let decision = first.decide(&event)?;
        match &mut second {
            None if arguments.json => writeln!(out, "{}", decision.json()).map_err(failed)?,
            None => {}
            Some((second, differences)) => {
                let other = second.decide(&event)?;
                if !differences.compare(&decision, &other) && arguments.json {
                    writeln!(out, "{{\"first\":{},\"second\":{}}}", decision.json(), other.json())
                        .map_err(failed)?;
                }
            }
        }
        if first.requests.is_multiple_of(STEP) {
            bar.set_position(trace.read());
        }
    }
    bar.finish_and_clear();
    match &second {
        Some((_, differences)) => {
            if !arguments.json {
                differences.report(out).map_err(failed)?;
            }
            Ok(if differences.same == first.requests { Found::Nothing } else { Found::Something })
        }
        None => {
            if !arguments.json {
                first.report(out).map_err(failed)?;
            }
            Ok(Found::Nothing)
        }
    }
}

/// A progress bar, if stderr is a terminal.
fn progress(bytes: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {percent}% {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
