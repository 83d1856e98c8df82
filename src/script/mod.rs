//! A policy's scripts, linked from the fragments in `lua/`, their commands and their replies.
//!
//! A [`Plan`] holds everything about a check that does not change from request to request.
//! Sizes are in bytes, times in microseconds.

mod link;

use core::fmt;
use std::sync::Arc;

use link::{Bans, Subjects};

use crate::limit::{Ask, Ban, Invalid, Limit, LimitOutcome, MAX_COST, Outcome, Permits, RetryAfter};
use crate::resp::{self, Reply};
use crate::time::Micros;

/// With what keys begin, before a colon, unless the plan says otherwise.
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

/// How a command refers to its script.
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
    /// Asks about one subject.
    Check,
    /// Asks about several subjects.
    CheckAll,
    /// Refunds units, or charges more of them.
    Settle,
    /// Releases permits.
    Release,
}

/// Whether subjects may have overrides, in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overrides {
    /// All subjects have the limits of the plan.
    Ignored,
    /// The script reads `weir:{policy|subject}:override` too: see `docs/limits.md`.
    Read,
}

/// One policy's limits and their scripts.
#[derive(Clone, Debug)]
pub struct Plan {
    limits: Vec<Limit>,
    overrides: Overrides,
    ban: Option<Ban>,
    /// What keys begin with, `weir:`.
    prefix: Vec<u8>,
    /// `:name`, in the order of the script; then `:override`, if it is read; then `:ban` and `:denials`, if there are bans.
    suffixes: Vec<Vec<u8>>,
    /// Where the script's i-th limit is in `limits`.
    order: Vec<usize>,
    check: Script,
    /// For several subjects.
    check_all: VariadicScript,
    /// The most subjects for that.
    subjects: usize,
    settle: Script,
    release: VariadicScript,
    /// The limits' parameters, in the order of the script, packed.
    parameters: Vec<u8>,
}

/// A linked script as the beginning of a command: `EVALSHA sha n` or `EVAL source n`.
#[derive(Clone, Debug)]
struct Script {
    source: String,
    evalsha: Vec<u8>,
    eval: Vec<u8>,
}

impl Script {
    fn new(source: String, keys: usize) -> Self {
        let (mut evalsha, mut eval) = (Vec::new(), Vec::new());
        begin(b"EVALSHA", sha(&source).as_bytes(), keys, 1, &mut evalsha);
        begin(b"EVAL", source.as_bytes(), keys, 1, &mut eval);
        Self { source, evalsha, eval }
    }

    fn form(&self, form: Form) -> &[u8] {
        match form {
            Form::Evalsha => &self.evalsha,
            Form::Eval => &self.eval,
        }
    }
}

/// A linked script for any number of keys.
#[derive(Clone, Debug)]
struct VariadicScript {
    source: String,
    sha: String,
}

impl VariadicScript {
    fn new(source: String) -> Self {
        Self { sha: sha(&source), source }
    }

    fn begin(&self, form: Form, keys: usize, arguments: usize, out: &mut Vec<u8>) {
        match form {
            Form::Evalsha => begin(b"EVALSHA", self.sha.as_bytes(), keys, arguments, out),
            Form::Eval => begin(b"EVAL", self.source.as_bytes(), keys, arguments, out),
        }
    }
}

fn sha(source: &str) -> String {
    sha1_smol::Sha1::from(source).digest().to_string()
}

/// Appends the beginning of a command with so many keys and arguments.
fn begin(verb: &[u8], script: &[u8], keys: usize, arguments: usize, out: &mut Vec<u8>) {
    resp::array_header(out, 3 + keys + arguments);
    resp::bulk(out, verb);
    resp::bulk(out, script);
    resp::bulk(out, itoa::Buffer::new().format(keys).as_bytes());
}

impl Plan {
    /// Links the script of these limits and encodes their parameters.
    ///
    /// # Errors
    /// [`Invalid`] if there is no limit, more than [`MAX_LIMITS`], or two of one name.
    pub fn new(limits: Vec<NamedLimit>) -> Result<Self, Invalid> {
        Self::with(limits, Overrides::Ignored)
    }

    /// The same, where subjects may have overrides. That takes one more call to Redis in each check.
    ///
    /// # Errors
    /// As [`Plan::new`]; and where overrides are read, no limit is named `override`.
    pub fn with(limits: Vec<NamedLimit>, overrides: Overrides) -> Result<Self, Invalid> {
        Self::with_ban(limits, overrides, None)
    }

    /// The same, where denials of a subject may lead to a ban. That takes one more call to Redis in each check, and up to four
    /// where a request is denied.
    ///
    /// # Errors
    /// As [`Plan::with`]; and where there are bans, no limit is named `ban` or `denials`.
    pub fn with_ban(
        limits: Vec<NamedLimit>,
        overrides: Overrides,
        ban: Option<Ban>,
    ) -> Result<Self, Invalid> {
        let own_keys: Vec<_> = reserved(overrides, ban.is_some()).collect();
        let bans = if ban.is_some() { Bans::Counted } else { Bans::Never };
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            let allowed = format!("1 to {MAX_LIMITS} limits");
            return Err(Invalid { parameter: "limits", value: limits.len().to_string(), allowed });
        }
        for (i, NamedLimit { name, .. }) in limits.iter().enumerate() {
            if own_keys.contains(&name.as_str()) || limits.iter().take(i).any(|other| other.name == *name) {
                let allowed = "a name that no other key of the policy has".to_owned();
                return Err(Invalid { parameter: "name", value: name.clone(), allowed });
            }
        }
        // Policies with the same algorithms share a script, in whatever order they list them.
        let mut sorted: Vec<_> = limits
            .iter()
            .enumerate()
            .map(|(place, NamedLimit { name, limit })| (link::compile(limit, overrides), place, name))
            .collect();
        sorted.sort_by_key(|((fragment, _), place, _)| (fragment.rank, *place));
        let fragments: Vec<_> = sorted.iter().map(|((fragment, _), ..)| *fragment).collect();
        let worst = fragments.iter().fold(0, |sum: usize, of| sum.saturating_add(of.worst)).max(1);
        let worst = if overrides == Overrides::Read { worst.saturating_add(OVERRIDE_TIME) } else { worst };
        let worst = if ban.is_some() { worst.saturating_add(BAN_TIME) } else { worst };
        let numbers = sorted.iter().flat_map(|((_, numbers), ..)| numbers.iter().copied());
        let of_ban: Vec<_> = ban.iter().flat_map(Ban::numbers).map(u128::from).collect();
        let mut suffixes: Vec<_> = sorted.iter().map(|(.., name)| format!(":{name}").into_bytes()).collect();
        suffixes.extend(own_keys.iter().map(|name| format!(":{name}").into_bytes()));
        Ok(Self {
            order: sorted.iter().map(|(_, place, _)| *place).collect(),
            check: Script::new(link::check(&fragments, overrides, bans, Subjects::One), suffixes.len()),
            check_all: VariadicScript::new(link::check(&fragments, overrides, bans, Subjects::Many)),
            subjects: (MAX_TIME / worst).clamp(1, MAX_SUBJECTS),
            settle: Script::new(link::settle(&fragments, overrides, bans), suffixes.len()),
            suffixes,
            overrides,
            ban,
            prefix: format!("{KEY_PREFIX}:").into_bytes(),
            release: VariadicScript::new(link::release()),
            parameters: of_ban
                .into_iter()
                .chain(numbers)
                .flat_map(|number| u64::try_from(number).unwrap_or(u64::MAX).to_le_bytes())
                .collect(),
            limits: limits.into_iter().map(|of| of.limit).collect(),
        })
    }

    /// The same plan, under keys that begin with `prefix` and a colon.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.prefix = format!("{prefix}:").into_bytes();
        self
    }

    /// Whether both read and write the same state: the same limits, under the same names, in the same order.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        (&self.limits, &self.suffixes, self.overrides) == (&other.limits, &other.suffixes, other.overrides)
    }

    /// Whether subjects may have overrides.
    #[must_use]
    pub const fn overrides(&self) -> Overrides {
        self.overrides
    }

    /// When denials of a subject lead to a ban, if they ever do.
    #[must_use]
    pub const fn ban(&self) -> Option<&Ban> {
        self.ban.as_ref()
    }

    /// The most subjects for one command: fewer, where one subject may take long.
    #[must_use]
    pub const fn subjects(&self) -> usize {
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
        &self.check.source
    }

    /// The Lua source of a script.
    #[must_use]
    pub fn source_of(&self, script: ScriptKind) -> &str {
        match script {
            ScriptKind::Check => &self.check.source,
            ScriptKind::CheckAll => &self.check_all.source,
            ScriptKind::Settle => &self.settle.source,
            ScriptKind::Release => &self.release.source,
        }
    }

    /// The Lua sources of all scripts: check, check of several subjects, settle, release.
    #[must_use]
    pub fn sources(&self) -> [&str; 4] {
        [ScriptKind::Check, ScriptKind::CheckAll, ScriptKind::Settle, ScriptKind::Release]
            .map(|script| self.source_of(script))
    }

    /// The SHA-1 of [`Plan::source`].
    #[must_use]
    pub fn sha(&self) -> String {
        sha(&self.check.source)
    }

    /// Appends the one command that asks all limits of a subject and charges what they grant.
    ///
    /// `tag` is the key's hash tag with its braces, `{policy|subject}`. Tests and replays bring `now`; otherwise the clock
    /// is Redis's. The reply is for [`Plan::outcome`].
    pub fn check(&self, tag: &[u8], ask: Ask, now: Option<Micros>, form: Form, out: &mut Vec<u8>) {
        out.extend_from_slice(self.check.form(form));
        for suffix in &self.suffixes {
            resp::bulk_of(out, &[&self.prefix, tag, suffix]);
        }
        let [now, requests, cost] = [time(now), i64::from(ask.requests), cost(ask)].map(i64::to_le_bytes);
        resp::bulk_of(out, &[&now, &requests, &cost, &self.parameters]);
    }

    /// Appends the one command that checks several subjects, each as in [`Plan::check`]. All of their keys must be in one
    /// Redis: the slot is that of the first. The reply is an array, with a reply for [`Plan::outcome`] per subject.
    ///
    /// Each subject is decided alone: if the script fails halfway, the subjects before are charged.
    pub fn check_all<'a>(
        &self,
        subjects: impl ExactSizeIterator<Item = (&'a [u8], Ask)>,
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) {
        self.check_all.begin(form, subjects.len().saturating_mul(self.suffixes.len()), 2, out);
        let mut questions = Vec::with_capacity(subjects.len().saturating_mul(16));
        for (tag, ask) in subjects {
            for suffix in &self.suffixes {
                resp::bulk_of(out, &[&self.prefix, tag, suffix]);
            }
            questions.extend([i64::from(ask.requests), cost(ask)].map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk_of(out, &[&time(now).to_le_bytes(), &self.parameters]);
        resp::bulk(out, &questions);
    }

    /// Appends the one command that charges `units` more than was asked for or, if they are negative, refunds them from
    /// what `receipt` charged. Permits stay as they are: see [`Plan::release`].
    ///
    /// A charge empties a limit at most (a bucket: to its overdraft). Refunds conserve the quota, as
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
        out.extend_from_slice(self.settle.form(form));
        for suffix in &self.suffixes {
            resp::bulk_of(out, &[&self.prefix, tag, suffix]);
        }
        let most = i64::try_from(MAX_COST).unwrap_or(i64::MAX);
        let mut question = Vec::with_capacity(24 + 24 * self.order.len());
        question.extend(
            [time(now), units.clamp(-most, most), number(receipt.at.0)].map(i64::to_le_bytes).as_flattened(),
        );
        for &place in &self.order {
            let answer = receipt.limits.get(place).copied().unwrap_or_default();
            let charged = [answer.remaining, number(answer.reset.0), number(answer.refunded)];
            question.extend(charged.map(i64::to_le_bytes).as_flattened());
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
        if permits.is_empty() {
            return false;
        }
        self.release.begin(form, permits.len(), 1, out);
        let mut question = Vec::with_capacity(8 + 16 * permits.len());
        question.extend(time(now).to_le_bytes());
        for Permits { limit, expiry, count } in permits {
            let place = self.order.iter().position(|place| place == limit);
            let suffix =
                place.and_then(|place| self.suffixes.get(place)).map_or(b"".as_slice(), Vec::as_slice);
            resp::bulk_of(out, &[&self.prefix, tag, suffix]);
            question.extend([number(*expiry), i64::from(*count)].map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk(out, &question);
        true
    }

    /// Reads the reply to [`Plan::check`] or [`Plan::settle`].
    ///
    /// # Errors
    /// [`BadReply`] if it is an error, or not a reply of this script.
    pub fn outcome(&self, reply: &Reply<'_>) -> Result<Outcome, BadReply> {
        let bytes = match reply {
            Reply::Bulk(Some(bytes)) if bytes.len() >= self.reply_size() => bytes,
            Reply::Error(line) => return Err(BadReply::error(line)),
            _ => return Err(BadReply::Unexpected),
        };
        self.read(bytes).ok_or(BadReply::Unexpected)
    }

    fn reply_size(&self) -> usize {
        8 * (2 + link::answer_size(self.overrides) * self.limits.len() + usize::from(self.ban.is_some()))
    }

    fn read(&self, bytes: &[u8]) -> Option<Outcome> {
        let (bytes, refunds) = bytes.split_at_checked(self.reply_size())?;
        let mut numbers = bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        let granted = u32::try_from(numbers.next()?).ok()?;
        let at = Micros(u64::try_from(numbers.next()?).ok()?);
        let mut limits = vec![LimitOutcome::default(); self.limits.len()];
        let mut own: Option<Vec<Limit>> = None;
        for &place in &self.order {
            let (limit, answer) = (self.limits.get(place)?, limits.get_mut(place)?);
            answer.remaining = numbers.next()?;
            answer.retry_after = wait(numbers.next()?)?;
            answer.reset = Micros(u64::try_from(numbers.next()?).ok()?);
            let extra = numbers.next()?;
            match limit {
                Limit::Concurrency(_) => answer.permit_expiry = u64::try_from(extra).ok()?,
                _ => answer.first_delay = extra,
            }
            if self.overrides == Overrides::Read {
                let mut count = || numbers.next().and_then(|count| u64::try_from(count).ok());
                let counts = [count()?, count()?, count()?];
                if counts != limit.counts() {
                    *own.get_or_insert_with(|| self.limits.clone()).get_mut(place)? =
                        limit.with_counts(counts).ok()?;
                }
            }
        }
        let ban = if self.ban.is_some() { wait(numbers.next()?)? } else { RetryAfter::Now };
        let (refunds, rest) = refunds.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, place] in refunds {
            let answer = self.order.get(usize::from(place)).and_then(|&place| limits.get_mut(place))?;
            answer.refunded = u64::from_le_bytes([a, b, c, d, e, f, g, 0]);
        }
        (rest.is_empty() && refunds.len() <= self.limits.len()).then_some(Outcome {
            granted,
            at,
            limits,
            own: own.map(Arc::new),
            ban,
        })
    }
}

/// A reply that is not an answer. For the request it is the same as no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// This Redis has not seen the script: ask again with [`Form::Eval`].
    NoScript,
    /// Any other error of Redis.
    Error(String),
    /// Not a reply of this script.
    Unexpected,
}

/// Whether an error says that Redis does not know the script. The command has to be sent again, as [`Form::Eval`].
#[must_use]
pub fn is_noscript(error: &[u8]) -> bool {
    error.starts_with(b"NOSCRIPT")
}

impl BadReply {
    /// What an error of Redis means.
    #[must_use]
    pub fn error(line: &[u8]) -> Self {
        if is_noscript(line) {
            return Self::NoScript;
        }
        Self::Error(String::from_utf8_lossy(line).into_owned())
    }
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScript => f.write_str("NOSCRIPT"),
            Self::Error(line) => f.write_str(line),
            Self::Unexpected => f.write_str("not a reply of this script"),
        }
    }
}

impl core::error::Error for BadReply {}

/// The names of keys that are no limit's.
pub(crate) fn reserved(overrides: Overrides, bans: bool) -> impl Iterator<Item = &'static str> {
    let overrides = (overrides == Overrides::Read).then_some(OVERRIDE);
    overrides.into_iter().chain(BAN.into_iter().filter(move |_| bans))
}

/// When a request would pass, as the script says it.
#[inline(always)]
fn wait(span: i64) -> Option<RetryAfter> {
    match span {
        -1 => Some(RetryAfter::Never),
        span => Some(RetryAfter::after(u64::try_from(span).ok()?)),
    }
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
