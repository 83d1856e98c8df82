//! What a client is told: from the standing of each limit to a status, headers and a body.
//!
//! Headers follow draft-ietf-httpapi-ratelimit-headers-11 (structured fields, RFC 9651), bodies RFC 9457, gRPC
//! its status codes and retry pushback (gRFC A6). Times are told in whole seconds, gRPC's in milliseconds,
//! rounded up: never earlier than the truth.

use std::fmt::Write as _;

use smallvec::SmallVec;

use crate::limit::{self, Ask, Limit, Outcome, RetryAfter};
use crate::policy::response::{Body, Face, Response, Style, Upstream};
use crate::policy::{Check, Few, Mode, OnFailure, Policy};
use crate::time::Micros;

/// Where the draft's problem types live.
const PROBLEMS: &str = "https://iana.org/assignments/http-problem-types#";

/// Room for a header's value of usual length, in bytes.
const VALUE: usize = 64;

/// Room for a problem's body of usual length, in bytes.
const BODY: usize = 256;

/// At most this many limits are named in one response. With more policies on a request its headers would grow until
/// proxies and clients refuse them.
const MAX_SHOWN: usize = 16;

/// At most so many bytes of them in a header or in a body.
const MAX_VALUE: usize = 1024;

/// When a request may pass that was denied because the store did not answer: the store is asked again within this time,
/// which is the longest pause of the breaker.
const STORE_RETRY: Micros = Micros::from_secs(1);

/// What one request is told by the limits of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it may pass.
    pub granted: bool,
    /// How long to hold it before it passes; zero when it may not.
    pub delay: Micros,
    /// Where each limit stands, in the plan's order.
    pub limits: Few<Standing>,
}

impl Finding {
    /// What request `index` of those asked for together is told; see [`Outcome::allotment`].
    #[must_use]
    pub fn new(outcome: &Outcome, limits: &[Limit], index: u32, ask: Ask) -> Self {
        let allotment = outcome.allotment(limits, index, ask);
        let last = index.saturating_add(1) >= outcome.granted;
        let standing = |(place, answer): (usize, &limit::Answer)| {
            let remaining = outcome.remaining(limits, place, index, ask);
            let limit = outcome.in_force(limits).get(place);
            Standing {
                remaining,
                // What the next of them was granted, this one could have had as well.
                retry_after: if last { answer.retry_after } else { RetryAfter::Now },
                reset: answer.reset,
                window: limit.map_or(Micros::ZERO, |of| of.effective_window(remaining, answer, outcome.at)),
            }
        };
        let limits = outcome.limits.iter().enumerate().map(standing).collect();
        Self { granted: allotment.granted, delay: allotment.delay, limits }
    }
}

/// Where one limit stands, when it was this request's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many units were left.
    pub remaining: u64,
    /// When one more request of the same cost would pass.
    pub retry_after: RetryAfter,
    /// How long until the limit is whole again.
    pub reset: Micros,
    /// Within which time no more than what is left may be taken; see [`Limit::effective_window`].
    pub window: Micros,
}

impl Standing {
    /// The `t` beside `r`: within it, no more than `r` units. `None` where no time is known after which a request passes.
    fn told(&self) -> Option<Micros> {
        match self.retry_after {
            // Also when some units are left: they are too few for a request of this cost.
            RetryAfter::After(span) => Some(span),
            _ if self.remaining > 0 => Some(self.window),
            _ => None,
        }
    }
}

/// What came of one check, and who knew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The store said so.
    Store(Finding),
    /// A lease held here said so.
    Lease(Finding),
    /// The store said earlier until when the subject is denied.
    DeniedUntil(Finding),
    /// This worker said so, by its share of the limits: the store did not answer.
    Local(Finding),
    /// Nobody did: the policy says what then.
    Unavailable,
}

impl Answer {
    /// What the request was told; `None` when nobody knew.
    #[must_use]
    pub const fn finding(&self) -> Option<&Finding> {
        match self {
            Self::Store(finding)
            | Self::Lease(finding)
            | Self::DeniedUntil(finding)
            | Self::Local(finding) => Some(finding),
            Self::Unavailable => None,
        }
    }

    /// Who knew: `redis`, `lease`, `denied-until` or `fallback`.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        match self {
            Self::Store(_) => "redis",
            Self::Lease(_) => "lease",
            Self::DeniedUntil(_) => "denied-until",
            Self::Local(_) | Self::Unavailable => "fallback",
        }
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Admit(Admission),
    /// It is answered here.
    Reject(Rejection),
}

/// A request that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// After being held this long.
    pub delay: Micros,
    /// To be added to its response.
    pub headers: Vec<Header>,
}

/// A header for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What happens to the upstream's header of that name.
    pub upstream: Upstream,
}

/// An answer in the upstream's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// When the client is told to come back, jitter included. `Never` tells gRPC clients not to; `Unknown` tells no time.
    pub retry_after: RetryAfter,
    /// The status.
    pub status: u16,
    /// The headers, `content-type` among them where there is a body.
    pub headers: Vec<Header>,
    /// The body.
    pub body: String,
    /// What a gRPC client gets in place of status and body.
    pub grpc: Grpc,
}

/// The end of a gRPC call: trailers under status 200, with the rejection's headers but for `content-type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grpc {
    /// The status code.
    pub code: u8,
    /// The message.
    pub message: &'static str,
    /// `grpc-retry-pushback-ms`: -1 tells clients not to retry by themselves.
    pub pushback: Option<String>,
}

/// What the access log and later filters can read of a decision: about the policy that rejected the request, or
/// else about the limit nearest its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The limit; empty when nobody knows.
    pub limit: &'a str,
    /// `admitted`, `delayed`, `rejected`, `shadow` (would have been rejected) or `unanswered` (admitted so).
    pub outcome: &'static str,
    /// How many units are left.
    pub remaining: Option<u64>,
    /// How long until the limit is whole again.
    pub reset: Option<Micros>,
    /// Who knew; see [`Answer::source`].
    pub source: &'static str,
}

/// Why a request is rejected: decides codes, titles and problem types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Exceeded,
    Denied,
    Unavailable,
}

impl Cause {
    /// The draft's problem type; empty for `about:blank`.
    const fn problem(self) -> &'static str {
        match self {
            Self::Exceeded => "quota-exceeded",
            Self::Denied => "",
            Self::Unavailable => "temporary-reduced-capacity",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Exceeded => "Request cannot be satisfied as assigned quota has been exceeded",
            Self::Denied => "Request is denied",
            Self::Unavailable => "Request cannot be satisfied due to temporary server capacity constraints",
        }
    }

    /// RESOURCE_EXHAUSTED, PERMISSION_DENIED, UNAVAILABLE.
    const fn grpc(self) -> (u8, &'static str) {
        match self {
            Self::Exceeded => (8, "rate limit exceeded"),
            Self::Denied => (7, "request denied"),
            Self::Unavailable => (14, "rate limit unavailable"),
        }
    }
}

/// One answer, next to the policy and what its limits look like to clients.
struct Told<'a> {
    check: &'a Check,
    answer: &'a Answer,
    policy: &'a Policy,
    faces: &'a [Face],
}

impl<'a> Told<'a> {
    fn all(policies: &'a [Policy], answers: impl Iterator<Item = (&'a Check, &'a Answer)>) -> Few<Self> {
        let told = answers.filter_map(|(check, answer)| {
            let policy = policies.get(check.policy)?;
            let faces = &policy.tiers.tiers.get(check.tier)?.faces;
            Some(Self { check, answer, policy, faces })
        });
        told.collect()
    }

    fn limits(&self) -> impl Iterator<Item = (&'a Face, &'a Standing)> + use<'a> {
        let standings = self.answer.finding().map_or(&[][..], |finding| &finding.limits);
        self.faces.iter().zip(standings)
    }

    fn enforced(&self) -> bool {
        self.check.mode == Mode::Enforce
    }

    fn refused(&self) -> bool {
        self.answer.finding().is_some_and(|finding| !finding.granted)
    }

    /// Why this answer rejects the request, if it does.
    fn cause(&self) -> Option<Cause> {
        let unavailable = self.answer.finding().is_none() && self.policy.on_failure == OnFailure::Deny;
        match self.enforced() {
            true if self.refused() => Some(Cause::Exceeded),
            true if unavailable => Some(Cause::Unavailable),
            _ => None,
        }
    }

    /// Whether the limit that stands so is one that rejects the request.
    fn violates(&self, standing: &Standing) -> bool {
        self.enforced() && self.refused() && standing.retry_after != RetryAfter::Now
    }

    fn delay(&self) -> Micros {
        let finding = self.answer.finding().filter(|finding| finding.granted && self.enforced());
        finding.map_or(Micros::ZERO, |finding| finding.delay)
    }
}

/// The limit that stands in the way or, when none does, the one with the fewest units left.
fn nearest_end<'a>(
    limits: impl Iterator<Item = (&'a Face, &'a Standing)>,
) -> Option<(&'a Face, &'a Standing)> {
    limits.min_by_key(|(_, standing)| nearness(standing))
}

fn nearness(standing: &Standing) -> (bool, u64) {
    (standing.retry_after == RetryAfter::Now, standing.remaining)
}

/// One limit that a client is told about.
#[derive(Clone, Copy)]
struct Shown<'a> {
    told: &'a Told<'a>,
    face: &'a Face,
    standing: &'a Standing,
}

impl<'a> Shown<'a> {
    fn of(told: &'a Told<'a>) -> impl Iterator<Item = Self> {
        told.limits().map(move |(face, standing)| Shown { told, face, standing })
    }

    fn styled(&self, style: Style) -> bool {
        self.told.enforced() && self.told.policy.response.style == style
    }

    fn violated(&self) -> bool {
        self.told.violates(self.standing)
    }

    /// What rejects the request comes first, then what has the smallest part left.
    fn matters_before(&self, other: &Self) -> bool {
        let part = |one: &Self, of: &Self| u128::from(one.standing.remaining) * u128::from(of.face.quota());
        match (self.violated(), other.violated()) {
            (true, false) => true,
            (false, true) => false,
            _ => part(self, other) < part(other, self),
        }
    }

    /// The limits `wanted`, as configured, if all may be shown; or else those that matter most.
    fn bounded(
        told: &'a [Told<'a>],
        wanted: fn(&Self) -> bool,
        size: fn(&Face) -> usize,
    ) -> SmallVec<[Self; MAX_SHOWN]> {
        let limits = || told.iter().flat_map(Shown::of).filter(wanted);
        let (count, bytes) = limits().fold((0_usize, 0_usize), |(count, bytes), shown| {
            (count.saturating_add(1), bytes.saturating_add(size(shown.face)))
        });
        if count <= MAX_SHOWN && bytes <= MAX_VALUE {
            return limits().collect();
        }
        let mut most = SmallVec::new();
        for shown in limits() {
            let place = most.partition_point(|other: &Self| !shown.matters_before(other));
            if place < MAX_SHOWN {
                most.truncate(MAX_SHOWN.saturating_sub(1));
                most.insert(place, shown);
            }
        }
        let mut room = MAX_VALUE;
        let fits = |shown: &&Self| match room.checked_sub(size(shown.face)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let fit = most.iter().take_while(fits).count();
        most.truncate(fit);
        most
    }

    /// Their names, for a body.
    fn names(told: &'a [Told<'a>], wanted: fn(&Self) -> bool) -> Few<&'a str> {
        let quoted = |face: &Face| face.name().len().saturating_add(3);
        Self::bounded(told, wanted, quoted).iter().map(|shown| shown.face.name()).collect()
    }
}

/// What happens to a request, given what came of all its checks.
#[must_use]
pub fn decide<'a>(policies: &'a [Policy], answers: impl Iterator<Item = (&'a Check, &'a Answer)>) -> Verdict {
    let told = Told::all(policies, answers);
    let Some((first, cause)) = told.iter().find_map(|told| Some((told, told.cause()?))) else {
        let delay = told.iter().map(Told::delay).max().unwrap_or_default();
        return Verdict::Admit(Admission { delay, headers: standing_headers(&told, Times::All) });
    };
    let (mut after, mut estimate) = (RetryAfter::Now, None);
    for told in &told {
        if told.cause() == Some(Cause::Unavailable) {
            after = later(after, RetryAfter::After(STORE_RETRY));
        }
        for (face, standing) in told.limits().filter(|(_, standing)| told.violates(standing)) {
            if face.is_in_flight() {
                estimate = estimate.max(face.retry_estimate());
            } else {
                after = later(after, standing.retry_after);
            }
        }
    }
    // A time that is known counts before one that is guessed.
    let after = match estimate {
        Some(estimate) if after == RetryAfter::Now => RetryAfter::After(estimate),
        _ => after,
    };
    let violated = Shown::names(&told, Shown::violated);
    let headers = standing_headers(&told, Times::beside(after));
    Verdict::Reject(reject(first, cause, &violated, after, headers))
}

/// The answer to a request that was granted a delay, when no place is left to hold it: it is as if the limit
/// had no delay.
#[must_use]
pub fn no_room_to_hold<'a>(
    policies: &'a [Policy],
    answers: impl Iterator<Item = (&'a Check, &'a Answer)>,
) -> Option<Rejection> {
    let told = Told::all(policies, answers);
    let longest = told.iter().max_by_key(|told| told.delay())?;
    let names = Shown::names(std::slice::from_ref(longest), |_| true);
    let after = RetryAfter::After(longest.delay());
    let headers = standing_headers(&told, Times::beside(after));
    Some(reject(longest, Cause::Exceeded, &names, after, headers))
}

/// The answer to a request that is denied without asking; `policy` is empty for the global deny list.
#[must_use]
pub fn deny(response: &Response, policy: &str) -> Rejection {
    let detail = Detail { policy, violated: &[], after: None };
    answer(response, response.deny_status, Cause::Denied, &detail, RetryAfter::Unknown, Vec::new())
}

/// What to record of a decision; `None` when no policy was asked.
#[must_use]
pub fn record<'a>(
    policies: &'a [Policy],
    answers: impl Iterator<Item = (&'a Check, &'a Answer)>,
) -> Option<Record<'a>> {
    let told = Told::all(policies, answers);
    let left =
        |told: &&Told<'_>| nearest_end(told.limits()).map_or(u64::MAX, |(_, standing)| standing.remaining);
    let rejects = told.iter().find(|told| told.cause().is_some());
    let told = rejects
        .or_else(|| told.iter().find(|told| told.refused()))
        .or_else(|| told.iter().min_by_key(left))?;
    let limit = nearest_end(told.limits());
    let outcome = match told.answer.finding() {
        _ if told.cause().is_some() => "rejected",
        None => "unanswered",
        Some(finding) if !finding.granted => "shadow",
        Some(_) if told.delay() == Micros::ZERO => "admitted",
        Some(_) => "delayed",
    };
    Some(Record {
        policy: &told.policy.name,
        limit: limit.map_or("", |(face, _)| face.name()),
        outcome,
        remaining: limit.map(|(_, standing)| standing.remaining),
        reset: limit.map(|(_, standing)| standing.reset),
        source: told.answer.source(),
    })
}

/// The later of two: never is later than any time.
fn later(one: RetryAfter, other: RetryAfter) -> RetryAfter {
    match (one, other) {
        (RetryAfter::Never, _) | (_, RetryAfter::Never) => RetryAfter::Never,
        (RetryAfter::Unknown, _) | (_, RetryAfter::Unknown) => RetryAfter::Unknown,
        (RetryAfter::After(one), RetryAfter::After(other)) => RetryAfter::After(one.max(other)),
        (RetryAfter::Now, other) => other,
        (one, RetryAfter::Now) => one,
    }
}

/// A number from 0 to `most` that differs between subjects, and for one subject between times: enough to spread
/// clients, which is all that jitter is for (FNV-1a).
fn jitter(most: Micros, tag: &[u8], after: Micros) -> Micros {
    let bytes = tag.iter().copied().chain(after.0.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Micros((hash >> 8).checked_rem(most.0.saturating_add(1)).unwrap_or_default())
}

const fn ours(name: &'static str, value: String) -> Header {
    Header { name, value, upstream: Upstream::Replace }
}

/// Which limits say a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    All,
    /// Only those that `Retry-After` waits for. It must not be earlier than any `t`, and a limit that lets the request
    /// pass may well have a longer one.
    Violated,
}

impl Times {
    const fn beside(after: RetryAfter) -> Self {
        if matches!(after, RetryAfter::After(_)) { Self::Violated } else { Self::All }
    }

    fn of(self, shown: &Shown<'_>) -> Option<Micros> {
        // Requests in flight end when they end: the rest of a ttl is not how long a client has to wait.
        let says = !shown.face.is_in_flight() && (self == Self::All || shown.violated());
        if says { shown.standing.told() } else { None }
    }
}

/// The headers that tell where enforced limits stand, each policy's in its own style.
fn standing_headers(told: &[Told<'_>], times: Times) -> Vec<Header> {
    let mut headers = Vec::new();
    let of = |style| {
        let shown = move |told: &&Told<'_>| told.enforced() && told.policy.response.style == style;
        told.iter().filter(shown).filter(|told| told.answer.finding().is_some())
    };
    if let Some(first) = of(Style::Draft11).next() {
        let upstream = first.policy.response.upstream;
        let (mut policy, mut state) = (String::with_capacity(VALUE), String::with_capacity(VALUE));
        for shown in Shown::bounded(told, |shown| shown.styled(Style::Draft11), Face::largest_item) {
            shown.face.append_policy(&mut policy);
            shown.face.append_state(shown.standing.remaining, times.of(&shown), &mut state);
        }
        headers.push(Header { name: "ratelimit-policy", value: policy, upstream });
        headers.push(Header { name: "ratelimit", value: state, upstream });
    }
    if let Some(first) = of(Style::XRateLimit).next()
        && let Some(shown) =
            of(Style::XRateLimit).flat_map(Shown::of).min_by_key(|shown| nearness(shown.standing))
    {
        let upstream = first.policy.response.upstream;
        let mut add = |name, value: u64| headers.push(Header { name, value: value.to_string(), upstream });
        add("x-ratelimit-limit", shown.face.quota());
        add("x-ratelimit-remaining", shown.standing.remaining);
        if let Some(time) = times.of(&shown) {
            add("x-ratelimit-reset", time.as_secs_ceil());
        }
    }
    headers
}

fn reject(
    told: &Told<'_>,
    cause: Cause,
    violated: &[&str],
    after: RetryAfter,
    mut headers: Vec<Header>,
) -> Rejection {
    let response = &told.policy.response;
    let retry_after = match after {
        RetryAfter::After(after) => {
            RetryAfter::After(after.plus(jitter(response.retry_jitter, &told.check.tag, after)))
        }
        RetryAfter::Never => RetryAfter::Never,
        RetryAfter::Now | RetryAfter::Unknown => RetryAfter::Unknown,
    };
    let after = if let RetryAfter::After(after) = retry_after { Some(after) } else { None };
    if let Some(after) = after {
        headers.push(ours("retry-after", after.as_secs_ceil().to_string()));
    }
    let status = if cause == Cause::Unavailable { 503 } else { response.status };
    let detail = Detail { policy: &told.policy.name, violated, after };
    answer(response, status, cause, &detail, retry_after, headers)
}

/// What the body of a rejection can mention.
struct Detail<'a> {
    policy: &'a str,
    violated: &'a [&'a str],
    after: Option<Micros>,
}

fn answer(
    response: &Response,
    status: u16,
    cause: Cause,
    detail: &Detail<'_>,
    retry_after: RetryAfter,
    mut headers: Vec<Header>,
) -> Rejection {
    let (kind, body) = match &response.body {
        Body::Problem => ("application/problem+json", problem(status, cause, detail)),
        Body::Json(Some(body)) => ("application/json", body.clone()),
        Body::Json(None) => ("application/json", object(cause, detail)),
        Body::Text(Some(body)) => ("text/plain; charset=utf-8", body.clone()),
        Body::Text(None) => ("text/plain; charset=utf-8", sentence(cause, detail)),
        Body::Empty => ("", String::new()),
    };
    if !kind.is_empty() {
        headers.push(ours("content-type", kind.to_owned()));
    }
    let (code, message) = cause.grpc();
    let pushback = match retry_after {
        RetryAfter::After(after) => Some(after.as_millis_ceil().to_string()),
        RetryAfter::Never => Some(String::from("-1")),
        RetryAfter::Now | RetryAfter::Unknown => None,
    };
    Rejection { retry_after, status, headers, body, grpc: Grpc { code, message, pushback } }
}

fn problem(status: u16, cause: Cause, detail: &Detail<'_>) -> String {
    let (base, name) = match cause.problem() {
        "" => ("", "about:blank"),
        name => (PROBLEMS, name),
    };
    let mut out = String::with_capacity(BODY);
    let _ = write!(out, "{{\"type\":\"{base}{name}\",\"title\":\"{}\",\"status\":{status}", cause.title());
    if cause == Cause::Exceeded {
        let _ = write!(out, ",\"violated-policies\":[");
        for (index, name) in detail.violated.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(out, "{comma}\"{name}\"");
        }
        out.push(']');
    }
    out.push('}');
    out
}

fn object(cause: Cause, detail: &Detail<'_>) -> String {
    let mut out = format!("{{\"error\":\"{}\"", cause.grpc().1);
    if !detail.policy.is_empty() {
        let _ = write!(out, ",\"policy\":\"{}\"", detail.policy);
    }
    if let Some(after) = detail.after {
        let _ = write!(out, ",\"retry_after\":{}", after.as_secs_ceil());
    }
    out.push('}');
    out
}

fn sentence(cause: Cause, detail: &Detail<'_>) -> String {
    let retry =
        detail.after.map(|after| format!(" Retry after {} s.", after.as_secs_ceil())).unwrap_or_default();
    format!("{}.{retry}\n", cause.title())
}
