// SPDX-License-Identifier: Apache-2.0
//! Commands about one subject: what Redis holds of it, and what an operator changes there.
//!
//! A subject is named by a request that has it, or as it is written in Redis's keys. Its keys come from the filter's code, and what its
//! limits have left comes from the filter's scripts.

pub(super) mod ban;
pub(super) mod bans;
pub(super) mod change;
pub(super) mod inspect;
pub(super) mod overrides;
pub(super) mod reset;
mod state;

pub(super) use state::State;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;

use super::region::{Counted, InRegion, counted_here, elsewhere};
use super::sample::RequestFlags;
use super::{Ended, Failure, failed, request, tell, words};
use weir::config::Config;
use weir::policy::subject::{Source, SubjectPart};
use weir::policy::{Check, Policy, Ruling, key};
use weir::request::Request;
use weir::request::client_ip::{Network, Trust, connection};
use weir::request::sample::Sample;
use weir::script::Plan;
use weir::script::records;
use weir::time::Micros;

/// The subject that a command applies to.
#[derive(Args, Clone)]
pub(super) struct Selection {
    /// The configuration, or a configuration of Envoy that contains one.
    file: PathBuf,
    /// The subject as Redis has it, `{policy|subject}`, or one of its keys; `weir journal`, `weir hot` and `weir explain` print it. All
    /// tiers with counts are shown then, and with a `scale` the default limits. By default the subjects of the request that the other flags
    /// describe; lists have no effect on them.
    #[arg(long, value_name = "SUBJECT", conflicts_with_all = RequestFlags::ALL, help_heading = "Subject")]
    subject: Option<String>,
    /// Only in this policy.
    #[arg(long, value_name = "NAME", help_heading = "Subject")]
    policy: Option<String>,
    #[command(flatten)]
    in_region: InRegion,
    #[command(flatten)]
    request: RequestFlags,
}

pub(super) struct Subject<'a> {
    config: &'a Config,
    pub policy: &'a Policy,
    /// A check for each tier that the subject may have limits of; at least one.
    checks: Vec<Check>,
    /// True if a request says its tier and cost. Otherwise all tiers are shown.
    is_of_request: bool,
}

impl Selection {
    pub fn load(&self) -> Result<Config, Ended> {
        if self.is_open() {
            self.in_region.load(&self.file)
        } else {
            self.in_region.load_for_keys(&self.file)
        }
    }

    /// True if it says no subject.
    pub fn is_open(&self) -> bool {
        self.subject.is_none() && self.request.is_empty()
    }

    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The same for a request with `value` for each `{}`; `None` if no flag has one.
    fn filled(&self, value: &str) -> Option<Self> {
        Some(Self { request: self.request.filled(value)?, ..self.clone() })
    }

    /// The subjects; at least one.
    pub fn find<'a>(&self, config: &'a Config) -> Result<Vec<Subject<'a>>, Failure> {
        if self.is_open() {
            return Err(String::from(
                "which subject? Describe a request of it, such as --client 192.0.2.1, or write --subject",
            ));
        }
        if let Some(name) = &self.policy {
            policy_named(config, name)?;
        }
        let is_wanted = |policy: &Policy| self.policy.as_ref().is_none_or(|name| *name == policy.name);
        let found = match &self.subject {
            Some(text) => {
                let found = by_name(config, text, is_wanted)?;
                for (subject, why) in found.iter().filter_map(|of| Some((of, of.unlike()?))) {
                    let shown = subject.shown();
                    tell(&format!("weir: warning: no request has the subject {shown}, because {why}"));
                }
                found
            }
            None => self.by_request(config, is_wanted)?,
        };
        if found.is_empty() {
            let what = if self.subject.is_some() { "the subject" } else { "this request" };
            return Err(format!(
                "no policy counts {what}{}: `weir explain` says why",
                self.policy.as_ref().map(|name| format!(" under --policy {name}")).unwrap_or_default()
            ));
        }
        Ok(found)
    }

    fn by_request<'a>(
        &self,
        config: &'a Config,
        is_wanted: impl Fn(&Policy) -> bool,
    ) -> Result<Vec<Subject<'a>>, Failure> {
        let sample = self.request.sample()?;
        let body = request::body(config, &sample);
        let request = request::request(config, &sample, body.as_ref());
        let mut found: Vec<Subject<'a>> = Vec::new();
        for (index, policy) in config.policies.iter().enumerate().filter(|(_, policy)| is_wanted(policy)) {
            // An operator looks for a subject, so lists that hold for this request do not matter.
            if let Ruling::Check(check) = policy.rule(index, &request) {
                let is_known = found.iter().any(|other| other.tag() == check.tag);
                if !is_known {
                    found.push(Subject { config, policy, checks: vec![check], is_of_request: true });
                }
            }
        }
        Ok(found)
    }

    /// The subjects that are counted in the Redis that is asked; at least one.
    pub fn find_here<'a>(&self, config: &'a Config) -> Result<Vec<Subject<'a>>, Failure> {
        counted_here(config, self.find(config)?, |subject| subject.policy)
    }

    /// The only subject for which `fits` holds. The others are named in `lacks`.
    fn only<'a>(
        &self,
        config: &'a Config,
        fits: impl Fn(&Policy) -> bool,
        lacks: &str,
    ) -> Result<Subject<'a>, Failure> {
        let (mut fit, other): (Vec<_>, Vec<_>) =
            self.find(config)?.into_iter().partition(|subject| fits(subject.policy));
        let list = |of: &[Subject<'_>]| {
            of.iter().map(|subject| subject.policy.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        match fit.as_slice() {
            [] => Err(format!("policy {}: {lacks}", list(&other))),
            [only] => match elsewhere(config, only.policy) {
                Some(said) => Err(said),
                None => fit.pop().ok_or_else(String::new),
            },
            several => Err(format!(
                "several policies count this request: choose one with --policy, of {}",
                list(several)
            )),
        }
    }
}

fn by_name<'a>(
    config: &'a Config,
    text: &str,
    is_wanted: impl Fn(&Policy) -> bool,
) -> Result<Vec<Subject<'a>>, Failure> {
    let wrong = |why: &str| {
        format!("--subject {text:?}: {why}; allowed is {{policy|subject}} as it is written in Redis's keys")
    };
    let tag = key::tag_of(text.as_bytes()).and_then(|tag| core::str::from_utf8(tag).ok());
    let Some(tag) = tag else { return Err(wrong("it has no braces")) };
    let before = text.split('{').next().unwrap_or_default();
    let prefix = &config.store.key_prefix;
    if !before.is_empty() && before != format!("{prefix}:") {
        return Err(wrong(&format!("the configuration's keys begin with {prefix}:")));
    }
    let inner = tag.trim_start_matches('{').trim_end_matches('}');
    let Some((name, subject)) = inner.split_once('|') else { return Err(wrong("it has no |")) };
    // A header or a parameter without a value is an empty subject.
    if !subject.bytes().all(key::is_of_subject) {
        return Err(wrong("a byte in it is escaped in keys, such as %20 for a space"));
    }
    let mut counted = config.policies.iter().enumerate().filter(|(_, policy)| policy.counters == name);
    let first = counted.clone().find(|(_, policy)| is_wanted(policy));
    let Some((index, policy)) = first else {
        return match counted.next() {
            Some(_) => Ok(Vec::new()),
            None => Err(format!(
                "--subject {text:?}: the configuration has no policy {name:?}, but {}",
                names(config)
            )),
        };
    };
    let check = |tier: usize| Check {
        tier,
        scale: policy.scale.as_ref().map_or(1, |scale| scale.default),
        store: policy.regions.store(),
        ..Check::one(index, tag)
    };
    let checks = (0..policy.tiers.tiers.len()).map(check).collect();
    Ok(vec![Subject { config, policy, checks, is_of_request: false }])
}

/// The value of a part of a subject in a key; `None` of one that is missing, or hashed.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut runs = text.split('%');
    let mut value = runs.next()?.as_bytes().to_vec();
    for run in runs {
        let (digits, rest) = run.split_at_checked(2)?;
        let is_escape = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        value.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_escape)?);
        value.extend(rest.as_bytes());
    }
    Some(value)
}

/// The value of a part as requests have it; `None` if that is not known.
fn spelled(part: &SubjectPart, value: Vec<u8>) -> Option<Vec<u8>> {
    let (sample, trust) = (Sample::default().header(":authority", &value), Trust::default());
    Some(match &part.source {
        Source::ClientAddress { ipv4_prefix, ipv6_prefix } => {
            let client = connection(&value)?;
            let prefix = if client.is_ipv4() { *ipv4_prefix } else { *ipv6_prefix };
            Network::around(client, prefix).to_string().into_bytes()
        }
        Source::Host => Request::new(&sample, &trust).host().ok()??.to_vec(),
        Source::Method => value.to_ascii_uppercase(),
        _ => part.normalize.apply(value.into())?.into_owned(),
    })
}

/// A value as a key has it.
fn escaped(value: &[u8]) -> String {
    let mut tag = key::Tag::new("");
    tag.part(Some(value));
    String::from_utf8_lossy(&tag.finish()).trim_start_matches("{|").trim_end_matches('}').to_owned()
}

/// The policy that `--policy` names.
pub(super) fn policy_named<'a>(config: &'a Config, name: &str) -> Result<&'a Policy, Failure> {
    let found = config.policies.iter().find(|policy| policy.name == name);
    found.ok_or_else(|| format!("--policy {name:?}: the configuration has {}", names(config)))
}

fn names(config: &Config) -> String {
    config.policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>().join(", ")
}

impl<'a> Subject<'a> {
    /// The subject with this tag, if the configuration has its policy.
    pub fn of_tag(config: &'a Config, tag: &str, is_wanted: impl Fn(&Policy) -> bool) -> Option<Self> {
        by_name(config, tag, is_wanted).ok()?.pop()
    }

    pub fn tag(&self) -> &[u8] {
        self.checks.first().map(|check| check.tag.as_slice()).unwrap_or_default()
    }

    /// Says why no request has its tag, if that is so.
    fn unlike(&self) -> Option<String> {
        let tag = core::str::from_utf8(self.tag()).ok()?;
        let (counters, subject) = tag.trim_start_matches('{').trim_end_matches('}').split_once('|')?;
        let texts: Vec<&str> = subject.split('|').collect();
        let unlike = |Policy { name, subject: parts, .. }: &Policy| {
            let is_hash = matches!(texts.as_slice(), [only] if only.starts_with("%~"));
            if texts.len() != parts.len() {
                let (count, s) = (parts.len(), if parts.len() == 1 { "" } else { "s" });
                return (!is_hash).then(|| format!("subjects of policy {name} have {count} part{s}"));
            }
            let is_clear =
                |(text, part): (&&str, &SubjectPart)| part.hash.is_some() && !text.starts_with('%');
            if texts.iter().zip(parts).any(is_clear) {
                return Some(format!(
                    "policy {name} hashes it: describe the request, such as -H 'x-api-key: KEY'"
                ));
            }
            let each = texts.iter().zip(parts).map(|(text, part)| {
                let value = unescaped(text).and_then(|value| spelled(part, value));
                value.map_or_else(|| (*text).to_owned(), |value| escaped(&value))
            });
            let normal = each.collect::<Vec<_>>().join("|");
            let is_other = normal != subject && normal.len() <= key::LONGEST_SUBJECT;
            is_other
                .then(|| format!("keys spell it in another way: write --subject '{{{counters}|{normal}}}'"))
        };
        let counted = self.config.policies.iter().filter(|policy| policy.counters == counters);
        counted.map(unlike).collect::<Option<Vec<_>>>()?.into_iter().next()
    }

    /// The same, for people.
    pub fn shown(&self) -> String {
        words::shown(self.tag())
    }

    fn key(&self, name: &str) -> Vec<u8> {
        records::key(&self.config.store.key_prefix, self.tag(), name)
    }

    /// Its limits, tier by tier.
    fn plans(&self) -> impl Iterator<Item = (&Check, Rc<Plan>)> {
        self.checks.iter().filter_map(|check| Some((check, self.config.plan(check)?)))
    }

    /// Says within which time every worker sees the change in Redis, and in which regions nothing has changed.
    fn delay(&self) -> String {
        let ttl = self.config.store.denial_ttl;
        // A worker with a lease of the subject does not ask Redis.
        let counted = self.config.policies.iter().filter(|policy| policy.counters == self.policy.counters);
        let leases = counted.filter_map(|policy| policy.lease).map(|lease| lease.duration);
        let delay = leases.fold(ttl.plus(ttl), Micros::max);
        let delay = format!("Workers see the change within {}.", words::span(delay));
        let apart = self.counted().and_then(|counted| Some((counted.region(), counted.apart()?)));
        match apart {
            Some((region, others)) => format!(
                "{delay} This was in the Redis of region {region} only: to change {others} too, repeat it with --region and that Redis."
            ),
            None => delay,
        }
    }

    /// The region in which it is counted, in a configuration with regions.
    fn counted(&self) -> Option<Counted<'a>> {
        Counted::of(self.config, self.policy)
    }

    /// The region whose Redis counts it.
    fn region(&self) -> Option<&'a str> {
        self.counted().map(|counted| counted.region())
    }
}

/// The policies that a ban closes, too, behind what is said of it.
fn also(scope: &[&str]) -> String {
    if scope.is_empty() { String::new() } else { format!(", also for {}", scope.join(", ")) }
}

/// The operator's consent.
#[derive(Args)]
pub(super) struct Consent {
    /// Change Redis without a question. Required without a terminal.
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Consent {
    /// Asks the operator. The question goes to standard error.
    fn ask(&self, question: &str) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            return Err(format!("{question} There is no terminal to answer on: write --yes if you agree"));
        }
        eprint!("{} [y/N] ", words::lines(question));
        io::stderr().flush().map_err(failed)?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map_err(failed)?;
        let agrees = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        if !agrees {
            tell("Nothing was changed.");
        }
        Ok(agrees)
    }
}
