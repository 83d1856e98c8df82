//! A policy's script: its source, linked from the fragments in `lua/`, and the commands and replies around
//! it.
//!
//! Everything about a check that does not change from request to request is compiled once, into a [`Plan`].
//! Sizes are in bytes, times in microseconds.

mod link;

use core::fmt;

use link::Subjects;

use crate::limit::{Answer, Ask, Invalid, Lease, Limit, MAX_COST, Outcome, RetryAfter};
use crate::resp::{self, Reply};
use crate::time::Micros;

/// What ends the key of a subject's own limits.
pub(crate) const OVERRIDE: &str = "override";
/// The most limits that one policy may hold.
pub const MAX_LIMITS: usize = 8;

/// At most this many subjects in one command.
const MAX_SUBJECTS: usize = crate::bridge::MAX_ITEMS;
/// Redis does nothing else while a script runs, and others wait for their deadlines: a command asks about so many subjects
/// as take at most this many microseconds at worst.
const LONGEST: usize = 400;
/// What a subject's own limits add to that.
const OVERRIDDEN: usize = 7;

/// A limit and its name, which ends its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// What follows the last colon of the key. It names no braces, or it would move the key to another slot.
    pub name: String,
    /// The algorithm and its parameters.
    pub limit: Limit,
}

/// How to name the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By its SHA-1, which Redis knows if it has ever seen the source.
    Evalsha,
    /// By its source: the answer to `NOSCRIPT`.
    Eval,
}

/// Whether subjects may have limits of their own, in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overrides {
    /// All have those of the plan.
    Ignored,
    /// The script reads `weir:{policy|subject}:override` too: see `docs/limits.md`.
    Read,
}

/// One policy's limits, ready to be asked about.
#[derive(Clone, Debug)]
pub struct Plan {
    limits: Vec<Limit>,
    overrides: Overrides,
    /// `:name`, in the order of the script; then `:override`, if it is read.
    suffixes: Vec<Vec<u8>>,
    /// Where the script's i-th limit is in `limits`.
    order: Vec<usize>,
    check: Script,
    /// For several subjects.
    check_all: Open,
    /// How many subjects that may ask about.
    subjects: usize,
    settle: Script,
    release: Open,
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
struct Open {
    source: String,
    sha: String,
}

impl Open {
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

/// The beginning of a command that has as many keys and arguments.
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

    /// The same, where subjects may have limits of their own. That takes one more call to Redis in each
    /// check.
    ///
    /// # Errors
    /// As [`Plan::new`]; and where overrides are read, no limit is named `override`.
    pub fn with(limits: Vec<NamedLimit>, overrides: Overrides) -> Result<Self, Invalid> {
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            let allowed = format!("1 to {MAX_LIMITS} limits");
            return Err(Invalid { parameter: "limits", value: limits.len().to_string(), allowed });
        }
        for (i, NamedLimit { name, .. }) in limits.iter().enumerate() {
            let reserved = overrides == Overrides::Read && name == OVERRIDE;
            if reserved || limits.iter().take(i).any(|other| other.name == *name) {
                let allowed = "a name that no other key of the policy has".to_owned();
                return Err(Invalid { parameter: "name", value: name.clone(), allowed });
            }
        }
        // Policies with the same algorithms share a script, whatever the order they name them in.
        let mut sorted: Vec<_> = limits
            .iter()
            .enumerate()
            .map(|(place, NamedLimit { name, limit })| (link::compile(limit, overrides), place, name))
            .collect();
        sorted.sort_by_key(|((fragment, _), place, _)| (fragment.rank, *place));
        let fragments: Vec<_> = sorted.iter().map(|((fragment, _), ..)| *fragment).collect();
        let worst = fragments.iter().fold(0, |sum: usize, of| sum.saturating_add(of.worst)).max(1);
        let worst = if overrides == Overrides::Read { worst.saturating_add(OVERRIDDEN) } else { worst };
        let numbers = sorted.iter().flat_map(|((_, numbers), ..)| numbers);
        let mut suffixes: Vec<_> = sorted.iter().map(|(.., name)| format!(":{name}").into_bytes()).collect();
        if overrides == Overrides::Read {
            suffixes.push(format!(":{OVERRIDE}").into_bytes());
        }
        Ok(Self {
            order: sorted.iter().map(|(_, place, _)| *place).collect(),
            check: Script::new(link::check(&fragments, overrides, Subjects::One), suffixes.len()),
            check_all: Open::new(link::check(&fragments, overrides, Subjects::Many)),
            subjects: (LONGEST / worst).clamp(1, MAX_SUBJECTS),
            settle: Script::new(link::settle(&fragments, overrides), suffixes.len()),
            suffixes,
            overrides,
            release: Open::new(link::release()),
            parameters: numbers
                .flat_map(|&number| u64::try_from(number).unwrap_or(u64::MAX).to_le_bytes())
                .collect(),
            limits: limits.into_iter().map(|of| of.limit).collect(),
        })
    }

    /// Whether subjects may have limits of their own.
    #[must_use]
    pub const fn overrides(&self) -> Overrides {
        self.overrides
    }

    /// How many subjects one command may ask about: fewer where one of them may take long.
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

    /// The Lua sources of everything a plan may ask for: the check, that of several subjects, settling, releasing.
    #[must_use]
    pub fn sources(&self) -> [&str; 4] {
        [&self.check.source, &self.check_all.source, &self.settle.source, &self.release.source]
    }

    /// The SHA-1 of [`Plan::source`], by which Redis knows it.
    #[must_use]
    pub fn sha(&self) -> String {
        sha(&self.check.source)
    }

    /// Appends the one command that asks all limits of a subject and charges what they grant.
    ///
    /// `tag` is the key's hash tag with its braces, `{policy|subject}`. `now` is for tests and replays:
    /// without it, Redis's own clock counts. The reply is for [`Plan::outcome`].
    pub fn check(&self, tag: &[u8], ask: Ask, now: Option<Micros>, form: Form, out: &mut Vec<u8>) {
        out.extend_from_slice(self.check.form(form));
        for suffix in &self.suffixes {
            resp::bulk_of(out, &[b"weir:", tag, suffix]);
        }
        let [now, requests, cost] = [time(now), i64::from(ask.requests), cost(ask)].map(i64::to_le_bytes);
        resp::bulk_of(out, &[&now, &requests, &cost, &self.parameters]);
    }

    /// Appends the one command that asks about several subjects, each as in [`Plan::check`]. All of their keys have to be
    /// in one Redis: the slot is that of the first. The reply is an array with one for [`Plan::outcome`] per subject.
    ///
    /// The subjects have nothing to agree upon: if the script fails halfway, those before are charged.
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
                resp::bulk_of(out, &[b"weir:", tag, suffix]);
            }
            questions.extend([i64::from(ask.requests), cost(ask)].map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk_of(out, &[&time(now).to_le_bytes(), &self.parameters]);
        resp::bulk(out, &questions);
    }

    /// Appends the one command that charges `units` more than was asked for or, if they are negative, gives
    /// them back from what `paid` took. Places in flight are left alone: see [`Plan::release`].
    ///
    /// A charge empties a limit at most (a bucket: to its overdraft). What has come back by itself since it
    /// was paid is not given back a second time, so nothing passes that the limits would not have let pass.
    /// The reply is for [`Plan::outcome`], and is how things stand now.
    pub fn settle(
        &self,
        tag: &[u8],
        units: i64,
        paid: &Outcome,
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(self.settle.form(form));
        for suffix in &self.suffixes {
            resp::bulk_of(out, &[b"weir:", tag, suffix]);
        }
        let most = i64::try_from(MAX_COST).unwrap_or(i64::MAX);
        let mut question = Vec::with_capacity(24 + 24 * self.order.len());
        question.extend(
            [time(now), units.clamp(-most, most), number(paid.at.0)].map(i64::to_le_bytes).as_flattened(),
        );
        for &place in &self.order {
            let answer = paid.limits.get(place).copied().unwrap_or_default();
            let paid = [answer.remaining, number(answer.reset.0), number(answer.refunded)];
            question.extend(paid.map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk_of(out, &[&question, &self.parameters]);
    }

    /// Appends the one command that gives back places in flight of one subject. The reply is an integer: how
    /// many places were given back. Without a lease nothing is appended, and `false` returned.
    pub fn release(
        &self,
        tag: &[u8],
        leases: &[Lease],
        now: Option<Micros>,
        form: Form,
        out: &mut Vec<u8>,
    ) -> bool {
        if leases.is_empty() {
            return false;
        }
        self.release.begin(form, leases.len(), 1, out);
        let mut question = Vec::with_capacity(8 + 16 * leases.len());
        question.extend(time(now).to_le_bytes());
        for Lease { limit, lease, requests } in leases {
            let place = self.order.iter().position(|place| place == limit);
            let suffix =
                place.and_then(|place| self.suffixes.get(place)).map_or(b"".as_slice(), Vec::as_slice);
            resp::bulk_of(out, &[b"weir:", tag, suffix]);
            question.extend([number(*lease), i64::from(*requests)].map(i64::to_le_bytes).as_flattened());
        }
        resp::bulk(out, &question);
        true
    }

    /// Reads the reply to [`Plan::check`] or [`Plan::settle`].
    ///
    /// # Errors
    /// [`BadReply`] if it is an error, or not what this script replies.
    pub fn outcome(&self, reply: &Reply<'_>) -> Result<Outcome, BadReply> {
        let bytes = match reply {
            Reply::Bulk(Some(bytes)) if bytes.len() >= self.reply_size() => bytes,
            Reply::Error(line) => return Err(BadReply::error(line)),
            _ => return Err(BadReply::Unexpected),
        };
        self.read(bytes).ok_or(BadReply::Unexpected)
    }

    fn reply_size(&self) -> usize {
        8 * (2 + link::answer_size(self.overrides) * self.limits.len())
    }

    fn read(&self, bytes: &[u8]) -> Option<Outcome> {
        let (bytes, receipts) = bytes.split_at_checked(self.reply_size())?;
        let mut numbers = bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        let granted = u32::try_from(numbers.next()?).ok()?;
        let at = Micros(u64::try_from(numbers.next()?).ok()?);
        let mut limits = vec![Answer::default(); self.limits.len()];
        let mut own: Option<Vec<Limit>> = None;
        for &place in &self.order {
            let (limit, answer) = (self.limits.get(place)?, limits.get_mut(place)?);
            answer.remaining = numbers.next()?;
            answer.retry_after = match numbers.next()? {
                -1 => RetryAfter::Never,
                span => RetryAfter::after(u64::try_from(span).ok()?),
            };
            answer.reset = Micros(u64::try_from(numbers.next()?).ok()?);
            let extra = numbers.next()?;
            match limit {
                Limit::Concurrency(_) => answer.lease = u64::try_from(extra).ok()?,
                _ => answer.turn = extra,
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
        let (receipts, rest) = receipts.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, place] in receipts {
            let answer = self.order.get(usize::from(place)).and_then(|&place| limits.get_mut(place))?;
            answer.refunded = u64::from_le_bytes([a, b, c, d, e, f, g, 0]);
        }
        (rest.is_empty() && receipts.len() <= self.limits.len()).then_some(Outcome {
            granted,
            at,
            limits,
            own,
        })
    }
}

/// A reply that is no answer. To the request it is as if Redis had not replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// This Redis has not seen the script: ask again with [`Form::Eval`].
    NoScript,
    /// Redis says what is wrong.
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

/// The time as the script wants it: 0 asks Redis, so the epoch itself is its first microsecond.
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
