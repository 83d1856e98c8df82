// SPDX-License-Identifier: Apache-2.0
//! A policy's scripts, linked from the fragments in `lua/`, their commands and their replies.
//!
//! A [`Plan`] holds everything about a check that does not change from request to request.
//! Sizes are in bytes, times in microseconds.

mod link;
pub mod records;
mod reply;
pub mod usage;

use core::fmt;
use std::rc::Rc;

pub use reply::{BadReply, is_noscript};

use crate::limit::{Ask, Ban, Invalid, Limit, MAX_COST, Outcome, Permits};
use crate::resp;
use crate::sorted_map::sorted;
use crate::time::Micros;

/// The prefix of keys, before a colon, unless the plan says otherwise.
pub const KEY_PREFIX: &str = "weir";
/// The end of the key of a subject's overrides.
pub(crate) const OVERRIDE: &str = "override";
/// The end of the key of a subject's ban, and of that of the denials that lead to one.
pub(crate) const BAN: [&str; 2] = ["ban", "denials"];
/// The most limits that one policy may hold.
pub const MAX_LIMITS: usize = 8;

/// The most subjects in one command.
const MAX_SUBJECTS: usize = crate::bridge::MAX_ITEMS;
/// The longest time that a command may take in Redis, in microseconds, at worst. Redis does nothing else while a script
/// runs, and the requests of others wait for their deadlines meanwhile.
const MAX_TIME: usize = 400;
/// The time that reading a subject's overrides adds, in microseconds.
const OVERRIDE_TIME: usize = 7;
/// The time that a ban adds, in microseconds: to a check whose denial begins one.
const BAN_TIME: usize = 10;

/// A limit and its name, which ends its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The part of the key after the last colon. It has no braces, which would move the key to another slot.
    pub name: String,
    /// The algorithm and its parameters.
    pub limit: Limit,
}

/// The way in which a command refers to its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By its SHA-1, which Redis knows once it has seen the source.
    Evalsha,
    /// By its source, after `NOSCRIPT`.
    Eval,
}

/// A script of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// Asks about one subject or several.
    Check,
    /// Refunds units, or charges more of them.
    Settle,
    /// Releases permits.
    Release,
}

/// The options of all limits of a plan. Each option adds calls of Redis commands to a check.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Overrides add one call to each check.
    pub overrides: Overrides,
    /// The rule after which denials lead to a ban. It adds one call to each check, and up to four to a check that denies.
    pub ban: Option<Ban>,
    /// Classes do not change the keys or their contents.
    pub classes: Classes,
}

/// True if subjects may have overrides, in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overrides {
    /// All subjects have the limits of the plan.
    #[default]
    Ignored,
    /// The script reads `weir:{policy|subject}:override` too: see `docs/limits.md`.
    Read,
}

/// The classes of requests: if there are several, checks keep a share of each limit for those of other classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Classes {
    /// Every request may use all of each limit.
    #[default]
    One,
    /// The share is an argument of each check: [`Ask::kept_percent`].
    Several,
}

/// One policy's limits and their scripts.
#[derive(Clone, Debug)]
pub struct Plan {
    limits: Vec<Limit>,
    /// The limits' parameters, packed in the order of the script. They follow the first question of a check, and end a settlement.
    parameters: Vec<u8>,
    /// The most subjects for one command.
    subjects: usize,
    /// The prefix of keys, `weir:`.
    prefix: Vec<u8>,
    linked: Rc<Linked>,
}

/// The parts that do not depend on the numbers of the limits.
#[derive(Debug)]
struct Linked {
    options: Options,
    /// `:name`, in the order of the script; then `:override`, if it is read; then `:ban` and `:denials`, if there are bans.
    suffixes: Vec<Vec<u8>>,
    /// The place in `limits` of the script's i-th limit.
    order: Vec<usize>,
    /// The ranks of their fragments.
    ranks: Vec<u8>,
    /// True if the value of requests is the end of a question.
    members: bool,
    check: Script,
    settle: Script,
    release: Script,
}

/// A linked script, for any number of keys.
struct Script {
    source: String,
    sha: String,
    /// The number of keys of most commands, and how such a command begins.
    usual: (usize, Vec<u8>),
}

/// Without the source, which is long.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("sha", &self.sha).finish_non_exhaustive()
    }
}

impl Script {
    /// Most of its commands have `usual` keys.
    fn new(source: String, usual: usize) -> Self {
        let sha = sha1_smol::Sha1::from(&source).digest().to_string();
        let mut script = Self { source, sha, usual: (0, Vec::new()) };
        let mut begins = Vec::new();
        script.begin(Form::Evalsha, usual, &mut begins);
        script.usual = (usual, begins);
        script
    }

    /// Appends the beginning of a command with this many keys, and one argument behind them.
    fn begin(&self, form: Form, keys: usize, out: &mut Vec<u8>) {
        let (usual, begins) = &self.usual;
        if form == Form::Evalsha && keys == *usual {
            return out.extend_from_slice(begins);
        }
        let (verb, script) = match form {
            Form::Evalsha => ("EVALSHA", &self.sha),
            Form::Eval => ("EVAL", &self.source),
        };
        resp::array_header(out, keys.saturating_add(4));
        for text in [verb, script, itoa::Buffer::new().format(keys)] {
            resp::bulk(out, text.as_bytes());
        }
    }
}

impl Plan {
    /// Links the scripts of these limits and encodes their parameters.
    ///
    /// # Errors
    /// [`Invalid`] if there is no limit, more than [`MAX_LIMITS`], or two of one name; if one script of all of them may take longer
    /// than 400 microseconds in Redis; if a limit has the name of another key that the options need: `override`, `ban` or `denials`;
    /// and if a limit goes into debt where overrides are read.
    pub fn new(limits: Vec<NamedLimit>, options: Options) -> Result<Self, Invalid> {
        let own_keys: Vec<_> = options.keys().collect();
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            let allowed = format!("1 to {MAX_LIMITS} limits");
            return Err(Invalid { parameter: "limits", value: limits.len().to_string(), allowed });
        }
        for (i, NamedLimit { name, limit }) in limits.iter().enumerate() {
            if options.overrides == Overrides::Read && limit.debt() > 0 {
                let allowed = "0 where subjects have limits of their own".to_owned();
                return Err(Invalid { parameter: "debt", value: limit.debt().to_string(), allowed });
            }
            if own_keys.contains(&name.as_str()) || limits.iter().take(i).any(|other| other.name == *name) {
                let allowed = "a name that no other key of the policy has".to_owned();
                return Err(Invalid { parameter: "name", value: name.clone(), allowed });
            }
        }
        // Policies with the same algorithms share a script, in whatever order they list them.
        let compiled: Vec<_> = limits.iter().map(|of| link::compile(&of.limit, options.overrides)).collect();
        let ranks = compiled.iter().map(|(fragment, _)| fragment.rank);
        let order: Vec<_> = sorted(ranks.zip(0..).collect()).into_iter().map(|(_, place)| place).collect();
        let in_order =
            || order.iter().filter_map(|place: &usize| compiled.get(*place).zip(limits.get(*place)));
        let fragments: Vec<_> = in_order().map(|((fragment, _), _)| *fragment).collect();
        let subjects = max_subjects(&fragments, &options)?;
        let numbers = in_order().flat_map(|((_, numbers), _)| numbers.iter().copied());
        let members = limits.iter().any(|of| matches!(of.limit, Limit::Distinct(_)));
        let parameters = pack(options.ban.as_ref(), numbers);
        let mut suffixes: Vec<_> = in_order().map(|(_, of)| format!(":{}", of.name).into_bytes()).collect();
        suffixes.extend(own_keys.iter().map(|name| format!(":{name}").into_bytes()));
        let linked = Linked {
            order,
            ranks: fragments.iter().map(|fragment| fragment.rank).collect(),
            members,
            check: Script::new(link::check(&fragments, &options), suffixes.len()),
            settle: Script::new(link::settle(&fragments, &options), suffixes.len()),
            release: Script::new(link::release(), 1),
            suffixes,
            options,
        };
        let limits = limits.into_iter().map(|of| of.limit).collect();
        let prefix = format!("{KEY_PREFIX}:").into_bytes();
        Ok(Self { limits, parameters, subjects, prefix, linked: Rc::new(linked) })
    }

    /// The same plan with limits that are this many times as large: see [`Limit::scaled`]. The keys stay the same, and mostly the
    /// scripts.
    ///
    /// # Errors
    /// [`Invalid`] if a limit gets too large, or if one script of all of them may take too long then.
    pub fn scaled(&self, scale: u64) -> Result<Self, Invalid> {
        self.with_limits(self.limits.iter().map(|limit| limit.scaled(scale)).collect::<Result<_, _>>()?)
    }

    /// The same plan, on keys that `other` counts on, too. Both [count alike](Plan::counts_like).
    ///
    /// # Errors
    /// [`Invalid`] if a limit gets too large.
    pub fn sharing(&self, other: &Self) -> Result<Self, Invalid> {
        let both = self.limits.iter().zip(&other.limits);
        self.with_limits(both.map(|(limit, other)| limit.sharing(other)).collect())
    }

    /// The same plan, on keys that plans up to this many times as large count on, too.
    ///
    /// # Errors
    /// As [`Plan::scaled`].
    pub fn up_to(&self, scale: u64) -> Result<Self, Invalid> {
        self.with_limits(self.limits.iter().map(|limit| limit.up_to(scale)).collect())
    }

    /// The same plan with other numbers in its limits.
    fn with_limits(&self, limits: Vec<Limit>) -> Result<Self, Invalid> {
        let Linked { options, suffixes, order, ranks, .. } = &*self.linked;
        let prefix = self.prefix.clone();
        let compiled: Vec<_> = order
            .iter()
            .filter_map(|place| limits.get(*place))
            .map(|limit| link::compile(limit, options.overrides))
            .collect();
        if compiled.iter().map(|(fragment, _)| &fragment.rank).eq(ranks) {
            let numbers = compiled.iter().flat_map(|(_, numbers)| numbers.iter().copied());
            let parameters = pack(options.ban.as_ref(), numbers);
            let fragments: Vec<_> = compiled.iter().map(|(fragment, _)| *fragment).collect();
            let subjects = max_subjects(&fragments, options)?;
            return Ok(Self { limits, parameters, subjects, prefix, linked: Rc::clone(&self.linked) });
        }
        // A bucket whose numbers have become too large needs the script of wide buckets.
        let named = limits.into_iter().enumerate().map(|(place, limit)| {
            let suffix = order.iter().position(|of| *of == place).and_then(|at| suffixes.get(at));
            let name = suffix.and_then(|suffix| suffix.get(1..)).unwrap_or_default();
            NamedLimit { name: String::from_utf8_lossy(name).into_owned(), limit }
        });
        let plan = Self::new(named.collect(), options.clone())?;
        Ok(Self { prefix, ..plan })
    }

    /// The same plan, under keys that begin with `prefix` and a colon.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.prefix = format!("{prefix}:").into_bytes();
        self
    }

    /// True if both read and write the same state: the same limits and ban, under the same names, in the same order. Leaky buckets of one rate may
    /// have different bursts and delays, and permits of one ttl different limits, but not where overrides are read.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        let (ones, others) = (&self.limits, &other.limits);
        let alike =
            ones.len() == others.len() && ones.iter().zip(others).all(|(one, other)| one.counts_like(other));
        (&self.linked.suffixes, self.overrides(), self.ban())
            == (&other.linked.suffixes, other.overrides(), other.ban())
            && alike
            && (self.overrides() == Overrides::Ignored || ones == others)
    }

    /// True if the limits of both are identical.
    #[must_use]
    pub fn limits_like(&self, other: &Self) -> bool {
        self.limits == other.limits
    }

    /// Says if subjects may have overrides.
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        self.linked.options.overrides
    }

    /// The rule after which denials of a subject lead to a ban.
    #[must_use]
    pub fn ban(&self) -> Option<&Ban> {
        self.linked.options.ban.as_ref()
    }

    /// The most subjects for one command; fewer if one subject may take long.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.subjects
    }

    /// The limits, in the order of the policy.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The Lua source of the check.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.linked.check.source
    }

    /// The Lua source of a script.
    #[must_use]
    pub fn source_of(&self, script: ScriptKind) -> &str {
        match script {
            ScriptKind::Check => &self.linked.check.source,
            ScriptKind::Settle => &self.linked.settle.source,
            ScriptKind::Release => &self.linked.release.source,
        }
    }

    /// The Lua sources of all scripts: check, settle, release.
    #[must_use]
    pub fn sources(&self) -> [&str; 3] {
        [ScriptKind::Check, ScriptKind::Settle, ScriptKind::Release].map(|script| self.source_of(script))
    }

    /// The SHA-1 of [`Plan::source`].
    #[must_use]
    pub fn sha(&self) -> String {
        self.linked.check.sha.clone()
    }

    /// Appends the one command that checks one subject, as [`Plan::check_all`]. The reply is for [`Plan::outcome`].
    pub fn check(&self, tag: &[u8], ask: Ask, now: Option<Micros>, form: Form, out: &mut Vec<u8>) {
        self.check_all(core::iter::once((tag, ask)), now, form, out);
    }

    /// Appends the one command that asks all limits of each subject, and charges what they grant. All of the keys must be in one Redis: the
    /// slot is that of the first. If all checks ask for the same, the command has the numbers once. The reply is for [`Plan::outcomes`].
    /// There is at least one subject.
    ///
    /// A subject's `tag` is the hash tag of its keys with its braces, `{policy|subject}`. Tests and replays bring `now`; otherwise the clock is
    /// Redis's. Each subject is decided alone: if the script fails halfway, the subjects before are charged.
    pub fn check_all<'a>(
        &self,
        subjects: impl ExactSizeIterator<Item = (&'a [u8], Ask)> + Clone,
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) {
        let Linked { check, suffixes, .. } = &*self.linked;
        check.begin(form, subjects.len().saturating_mul(suffixes.len()), out);
        for (tag, _) in subjects.clone() {
            self.keys(tag, out);
        }
        let mut asks = subjects.map(|(_, ask)| ask);
        let first = asks.next().unwrap_or(Ask::new(0, 0));
        let others = if asks.clone().all(|ask| ask == first) { 0 } else { asks.len() };
        let question = 8 * link::question_size(self.linked.options.classes, self.linked.members);
        let questions = others.saturating_add(1).saturating_mul(question);
        resp::bulk_header(out, questions.saturating_add(self.parameters.len()).saturating_add(8));
        out.extend_from_slice(&time(now).to_le_bytes());
        self.ask(first, out);
        out.extend_from_slice(&self.parameters);
        asks.take(others).for_each(|ask| self.ask(ask, out));
        out.extend_from_slice(resp::CRLF);
    }

    /// Appends the keys of a subject.
    fn keys(&self, tag: &[u8], out: &mut Vec<u8>) {
        for suffix in &self.linked.suffixes {
            resp::bulk_of(out, &[&self.prefix, tag, suffix]);
        }
    }

    /// Appends a question as the script reads it.
    #[inline]
    fn ask(&self, ask: Ask, out: &mut Vec<u8>) {
        let numbers = [i64::from(ask.requests), cost(ask), i64::from(ask.kept_percent)].map(i64::to_le_bytes);
        let size = 8 * link::question_size(self.linked.options.classes, false);
        out.extend_from_slice(numbers.as_flattened().get(..size).unwrap_or_default());
        if self.linked.members {
            out.extend_from_slice(ask.member.halves().map(u64::to_le_bytes).as_flattened());
        }
    }

    /// True if one of its limits counts the values of requests: see [`Ask::member`].
    #[must_use]
    pub fn counts_members(&self) -> bool {
        self.linked.members
    }

    /// Appends the one command that charges `units` more than was asked for or, if they are negative, refunds them from
    /// what `receipt` charged. Permits stay as they are: see [`Plan::release`].
    ///
    /// A charge empties a limit at most (a bucket: to its overdraft), or takes it into debt. Refunds conserve the quota, as
    /// [`Subject::settle`](crate::limit::Subject::settle) describes. The reply is for [`Plan::outcome`], and is what is left now.
    pub fn settle(
        &self,
        tag: &[u8],
        units: i64,
        receipt: &Outcome,
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) {
        self.linked.settle.begin(form, self.linked.suffixes.len(), out);
        self.keys(tag, out);
        let most = i64::try_from(MAX_COST).unwrap_or(i64::MAX);
        let mut question = Vec::with_capacity(24 + 32 * self.linked.order.len());
        question.extend(
            [time(now), units.clamp(-most, most), number(receipt.at.0)].map(i64::to_le_bytes).as_flattened(),
        );
        for &place in &self.linked.order {
            let answer = receipt.limits.get(place).copied().unwrap_or_default();
            let debt = self.limits.get(place).map_or(0, Limit::debt_units);
            let numbers = [answer.remaining, number(answer.reset.0), number(answer.refunded), number(debt)];
            question.extend(numbers.map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk_of(out, &[&question, &self.parameters]);
    }

    /// Appends the one command that releases permits of one subject. The reply is an integer: how many were released.
    /// Without permits, nothing is appended and the result is `false`.
    pub fn release(
        &self,
        tag: &[u8],
        permits: &[Permits],
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) -> bool {
        self.permits(tag, (permits, &|_| Micros::ZERO), now, form, out)
    }

    /// Appends the one command that renews permits of one subject, whose requests still run. The reply is for [`Plan::renewed`].
    /// Without permits, nothing is appended and the result is `false`.
    pub fn renew(
        &self,
        tag: &[u8],
        permits: &[Permits],
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) -> bool {
        let ttl = |limit: usize| self.ttl(limit).unwrap_or_default();
        self.permits(tag, (permits, &ttl), now, form, out)
    }

    /// The lifetime of permits of the limit in this place, if it has permits.
    pub fn ttl(&self, limit: usize) -> Option<Micros> {
        match self.limits.get(limit)? {
            Limit::Concurrency(limit) => Some(limit.ttl()),
            _ => None,
        }
    }

    fn permits(
        &self,
        tag: &[u8],
        (permits, ttl): (&[Permits], &dyn Fn(usize) -> Micros),
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) -> bool {
        if permits.is_empty() {
            return false;
        }
        self.linked.release.begin(form, permits.len(), out);
        let mut question = Vec::with_capacity(8 + 24 * permits.len());
        question.extend(time(now).to_le_bytes());
        for Permits { limit, expiry, count } in permits {
            let place = self.linked.order.iter().position(|place| place == limit);
            let suffix =
                place.and_then(|place| self.linked.suffixes.get(place)).map_or(b"".as_slice(), Vec::as_slice);
            resp::bulk_of(out, &[&self.prefix, tag, suffix]);
            let numbers = [number(*expiry), i64::from(*count), number(ttl(*limit).0)];
            question.extend(numbers.map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk(out, &question);
        true
    }
}

impl Options {
    /// The names of keys that are no limit's.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        let (overrides, bans) = (self.overrides == Overrides::Read, self.ban.is_some());
        overrides.then_some(OVERRIDE).into_iter().chain(BAN.into_iter().filter(move |_| bans))
    }
}

/// The most subjects that a command may check, so that it does not take longer than [`MAX_TIME`].
///
/// # Errors
/// [`Invalid`] if a script may take longer for one subject. A refund is for one subject, and is settled in all limits.
fn max_subjects(fragments: &[link::Fragment], options: &Options) -> Result<usize, Invalid> {
    let limits = fragments.iter().fold(0, |sum: usize, of| sum.saturating_add(of.worst));
    let overrides = if options.overrides == Overrides::Read { OVERRIDE_TIME } else { 0 };
    let ban = if options.ban.is_some() { BAN_TIME } else { 0 };
    let worst = limits.saturating_add(overrides).saturating_add(ban).max(1);
    match MAX_TIME / worst {
        0 => Err(Invalid {
            parameter: "limits",
            value: format!("limits of which one script may take {worst} microseconds in Redis"),
            allowed: format!("{MAX_TIME} microseconds: {}", link::worst_times()),
        }),
        subjects => Ok(subjects.min(MAX_SUBJECTS).min(reply::most_subjects(fragments.len(), options))),
    }
}

/// The parameters of a script: those of the ban, then those of the limits.
fn pack(ban: Option<&Ban>, numbers: impl Iterator<Item = u128>) -> Vec<u8> {
    let ban = ban.into_iter().flat_map(Ban::numbers).map(u128::from);
    ban.chain(numbers).flat_map(|number| u64::try_from(number).unwrap_or(u64::MAX).to_le_bytes()).collect()
}

/// The time as the script reads it. 0 means Redis's own time, so the epoch itself becomes 1.
fn time(now: Option<Micros>) -> i64 {
    now.map_or(0, |now| i64::try_from(now.0.max(1)).unwrap_or(i64::MAX))
}

/// A cost that Lua holds exactly.
fn cost(ask: Ask) -> i64 {
    number(ask.cost.min(MAX_COST))
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
