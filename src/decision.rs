//! What a client is told: from the standing of each limit to a status, headers and a body.
//!
//! Headers follow draft-ietf-httpapi-ratelimit-headers-09 (structured fields, RFC 9651), bodies RFC 9457, gRPC
//! its status codes and retry pushback (gRFC A6). Times are told in whole seconds (gRPC's in milliseconds),
//! rounded up: never earlier than the truth.

use std::fmt::Write as _;

use crate::policy::answer::{Answer, Body, Face, Style, Upstream};
use crate::policy::{Check, Mode, OnFailure, Policy};
use crate::time::Micros;

/// Where RFC 9457 problem types of the draft live.
const PROBLEMS: &str = "https://iana.org/assignments/http-problem-types#";

/// The largest integer of a structured field (RFC 9651 §3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

/// Where one limit stands after a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many units are left.
    pub remaining: u64,
    /// When this limit would admit the request.
    pub retry: Retry,
    /// How long until the whole quota is back.
    pub reset: Micros,
}

/// When a limit would admit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once: this limit does not stand in its way.
    Now,
    /// This long from now, and not before.
    After(Micros),
    /// Never: it costs more than the limit ever holds.
    Never,
}

/// Who knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The store.
    Redis,
    /// A lease held here.
    Lease,
    /// The store said earlier until when the subject is denied.
    DeniedUntil,
    /// Nobody: the store did not answer, and the policy says what then.
    Fallback,
}

/// What came of one policy's check.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// The check.
    pub check: &'a Check,
    /// Where the policy's limits stand, in the order of its tier; empty when nobody knows.
    pub limits: &'a [Standing],
    /// What came of it.
    pub outcome: Outcome,
    /// Who knew.
    pub source: Source,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request may pass after this delay.
    Granted(Micros),
    /// It may not pass.
    Refused,
    /// The store did not answer.
    Unanswered,
}

/// How the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Plain HTTP.
    Http,
    /// gRPC, whose status travels in trailers under status 200.
    Grpc,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Admit {
        /// After being held this long.
        delay: Micros,
        /// To be added to the response.
        headers: Vec<Header>,
    },
    /// It is answered here.
    Reject(Rejection),
}

/// A header for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What happens to the upstream's header of that name. On a rejection there is none.
    pub upstream: Upstream,
}

/// An answer in the upstream's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status; for gRPC, what it would have been.
    pub status: u16,
    /// The headers, `content-type` among them; for gRPC they are metadata.
    pub headers: Vec<Header>,
    /// The body; for gRPC empty.
    pub body: String,
    /// For gRPC: status and message.
    pub grpc: Option<Grpc>,
}

/// A gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grpc {
    /// Its code.
    pub code: u8,
    /// Its message.
    pub message: &'static str,
}

/// What the access log and later filters can read of a decision: about the policy that rejected the request, or
/// else of the limit nearest its end.
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
    /// Who knew.
    pub source: Source,
}

impl Source {
    /// `redis`, `lease`, `denied-until` or `fallback`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Lease => "lease",
            Self::DeniedUntil => "denied-until",
            Self::Fallback => "fallback",
        }
    }
}

/// Why a request is rejected: decides codes, titles and problem types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Exceeded,
    Denied,
    Unanswered,
}

impl Cause {
    const fn problem(self) -> &'static str {
        match self {
            Self::Exceeded => "quota-exceeded",
            Self::Denied => "",
            Self::Unanswered => "temporary-reduced-capacity",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Exceeded => "Request cannot be satisfied as assigned quota has been exceeded",
            Self::Denied => "Request is denied",
            Self::Unanswered => "Request cannot be satisfied due to temporary server capacity constraints",
        }
    }

    /// <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>
    const fn grpc(self) -> Grpc {
        match self {
            Self::Exceeded => Grpc { code: 8, message: "rate limit exceeded" },
            Self::Denied => Grpc { code: 7, message: "denied" },
            Self::Unanswered => Grpc { code: 14, message: "rate limit unavailable" },
        }
    }
}

/// One finding next to the policy and the faces of its limits.
struct Told<'a> {
    finding: &'a Finding<'a>,
    policy: &'a Policy,
    faces: &'a [Face],
}

impl<'a> Told<'a> {
    fn all(policies: &'a [Policy], findings: &'a [Finding<'a>]) -> Vec<Self> {
        let told = findings.iter().filter_map(|finding| {
            let policy = policies.get(finding.check.policy)?;
            let faces = &policy.tiers.tiers.get(finding.check.tier)?.faces;
            Some(Self { finding, policy, faces })
        });
        told.collect()
    }

    fn limits(&self) -> impl Iterator<Item = (&'a Face, &'a Standing)> + use<'a> {
        self.faces.iter().zip(self.finding.limits)
    }

    /// Why this finding rejects the request, if it does.
    fn cause(&self) -> Option<Cause> {
        match self.finding.outcome {
            _ if self.finding.check.mode == Mode::Shadow => None,
            Outcome::Refused => Some(Cause::Exceeded),
            Outcome::Unanswered if self.policy.on_failure == OnFailure::Deny => Some(Cause::Unanswered),
            Outcome::Granted(_) | Outcome::Unanswered => None,
        }
    }

    fn nearest_end(&self) -> Option<(&'a Face, &'a Standing)> {
        self.limits().min_by_key(|(_, standing)| (standing.retry == Retry::Now, standing.remaining))
    }
}

/// What happens to a request, given what came of all its checks. `salt` is any number that varies from request
/// to request: it picks the jitter of `Retry-After`.
#[must_use]
pub fn decide(policies: &[Policy], findings: &[Finding<'_>], protocol: Protocol, salt: u64) -> Verdict {
    let told = Told::all(policies, findings);
    let mut headers = standing_headers(&told);
    let Some((first, cause)) = told.iter().find_map(|told| Some((told, told.cause()?))) else {
        let delays = findings.iter().filter(|finding| finding.check.mode == Mode::Enforce);
        let delay = delays.map(|finding| match finding.outcome {
            Outcome::Granted(delay) => delay,
            Outcome::Refused | Outcome::Unanswered => Micros::ZERO,
        });
        return Verdict::Admit { delay: delay.max().unwrap_or_default(), headers };
    };
    let answer = &first.policy.answer;
    let (mut retry, mut violated) = (Retry::Now, Vec::new());
    for told in told.iter().filter(|told| told.cause() == Some(Cause::Exceeded)) {
        for (face, standing) in told.limits().filter(|(_, standing)| standing.retry != Retry::Now) {
            violated.push(face.name.as_str());
            retry = later(retry, standing.retry);
        }
    }
    let jitter = salt.checked_rem(answer.retry_jitter.0.saturating_add(1)).unwrap_or_default();
    let after = match retry {
        Retry::After(span) => Some(span.plus(Micros(jitter))),
        Retry::Now | Retry::Never => None,
    };
    if let Some(after) = after {
        headers.push(ours("retry-after", after.as_secs_ceil().to_string()));
    }
    if protocol == Protocol::Grpc && cause == Cause::Exceeded {
        let pushback = match (after, retry) {
            (Some(after), _) => Some(after.as_millis_ceil().to_string()),
            (None, Retry::Never) => Some(String::from("-1")),
            (None, _) => None,
        };
        headers.extend(pushback.map(|pushback| ours("grpc-retry-pushback-ms", pushback)));
    }
    let status = if cause == Cause::Unanswered { 503 } else { answer.status };
    let policy = first.policy.name.as_str();
    Verdict::Reject(reject(
        answer,
        status,
        cause,
        &Detail { policy, violated: &violated, after },
        headers,
        protocol,
    ))
}

/// The answer to a request that is denied without asking. `policy` is empty for the global deny list.
#[must_use]
pub fn deny(answer: &Answer, policy: &str, protocol: Protocol) -> Rejection {
    let detail = Detail { policy, violated: &[], after: None };
    reject(answer, answer.deny_status, Cause::Denied, &detail, Vec::new(), protocol)
}

/// What to record of a decision; `None` when no policy was asked.
#[must_use]
pub fn record<'a>(policies: &'a [Policy], findings: &'a [Finding<'a>]) -> Option<Record<'a>> {
    let told = Told::all(policies, findings);
    let refused = |told: &&Told<'_>| told.finding.outcome == Outcome::Refused;
    let left = |told: &&Told<'_>| told.nearest_end().map_or(u64::MAX, |(_, standing)| standing.remaining);
    let chosen = told.iter().find(|told| told.cause().is_some()).or_else(|| told.iter().find(refused));
    let told = chosen.or_else(|| told.iter().min_by_key(left))?;
    let limit = told.nearest_end();
    Some(Record {
        policy: &told.policy.name,
        limit: limit.map_or("", |(face, _)| &face.name),
        outcome: match told.finding.outcome {
            _ if told.cause().is_some() => "rejected",
            Outcome::Refused => "shadow",
            Outcome::Unanswered => "unanswered",
            Outcome::Granted(Micros::ZERO) => "admitted",
            Outcome::Granted(_) => "delayed",
        },
        remaining: limit.map(|(_, standing)| standing.remaining),
        source: told.finding.source,
    })
}

/// The later of two: never is later than any time.
fn later(one: Retry, other: Retry) -> Retry {
    match (one, other) {
        (Retry::Never, _) | (_, Retry::Never) => Retry::Never,
        (Retry::After(one), Retry::After(other)) => Retry::After(one.max(other)),
        (Retry::Now, other) => other,
        (one, Retry::Now) => one,
    }
}

const fn ours(name: &'static str, value: String) -> Header {
    Header { name, value, upstream: Upstream::Replace }
}

/// The headers that tell where enforced limits stand, each policy's in its own style.
fn standing_headers(told: &[Told<'_>]) -> Vec<Header> {
    let mut headers = Vec::new();
    let known = || {
        told.iter().filter(|told| told.finding.check.mode == Mode::Enforce && !told.finding.limits.is_empty())
    };
    let of = |style| known().filter(move |told| told.policy.answer.style == style);
    if let Some(first) = of(Style::Draft).next() {
        let upstream = first.policy.answer.upstream;
        let (mut policy, mut state) = (String::new(), String::new());
        for (face, standing) in of(Style::Draft).flat_map(Told::limits) {
            draft_policy(&mut policy, face);
            draft_state(&mut state, face, standing);
        }
        headers.push(Header { name: "ratelimit-policy", value: policy, upstream });
        headers.push(Header { name: "ratelimit", value: state, upstream });
    }
    if let Some(first) = of(Style::XRateLimit).next() {
        let upstream = first.policy.answer.upstream;
        let limits = of(Style::XRateLimit).flat_map(Told::limits);
        if let Some((face, standing)) =
            limits.min_by_key(|(_, standing)| (standing.retry == Retry::Now, standing.remaining))
        {
            let mut add =
                |name, value: u64| headers.push(Header { name, value: value.to_string(), upstream });
            add("x-ratelimit-limit", face.quota);
            add("x-ratelimit-remaining", standing.remaining);
            add("x-ratelimit-reset", standing.reset.as_secs_ceil());
        }
    }
    headers
}

/// Appends `"name";q=100;w=60`. Names need no escapes: configuration allows none that would.
fn draft_policy(out: &mut String, face: &Face) {
    let comma = if out.is_empty() { "" } else { ", " };
    // Writing to a string cannot fail, here and below.
    let _ = write!(out, "{comma}\"{}\";q={}", face.name, face.quota.min(LARGEST_INTEGER));
    let _ = match face.window {
        Some(window) => write!(out, ";w={}", window.as_secs_ceil().clamp(1, LARGEST_INTEGER)),
        None => write!(out, ";qu=\"concurrent-requests\""),
    };
}

/// Appends `"name";r=50;t=30`.
fn draft_state(out: &mut String, face: &Face, standing: &Standing) {
    let comma = if out.is_empty() { "" } else { ", " };
    let _ = write!(out, "{comma}\"{}\";r={}", face.name, standing.remaining.min(LARGEST_INTEGER));
    if face.window.is_some() {
        let _ = write!(out, ";t={}", standing.reset.as_secs_ceil().min(LARGEST_INTEGER));
    }
}

/// What the body of a rejection can mention.
struct Detail<'a> {
    policy: &'a str,
    violated: &'a [&'a str],
    after: Option<Micros>,
}

fn reject(
    answer: &Answer,
    status: u16,
    cause: Cause,
    detail: &Detail<'_>,
    mut headers: Vec<Header>,
    protocol: Protocol,
) -> Rejection {
    if protocol == Protocol::Grpc {
        return Rejection { status, headers, body: String::new(), grpc: Some(cause.grpc()) };
    }
    let (kind, body) = match &answer.body {
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
    Rejection { status, headers, body, grpc: None }
}

fn problem(status: u16, cause: Cause, detail: &Detail<'_>) -> String {
    let mut out = String::from("{\"type\":\"");
    match cause.problem() {
        "" => out.push_str("about:blank"),
        name => {
            out.push_str(PROBLEMS);
            out.push_str(name);
        }
    }
    let _ = write!(out, "\",\"title\":\"{}\",\"status\":{status}", cause.title());
    if cause == Cause::Exceeded {
        out.push_str(",\"violated-policies\":[");
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
    let mut out = format!("{{\"error\":\"{}\",\"policy\":\"{}\"", cause.grpc().message, detail.policy);
    if let Some(after) = detail.after {
        let _ = write!(out, ",\"retry_after\":{}", after.as_secs_ceil());
    }
    out.push('}');
    out
}

fn sentence(cause: Cause, detail: &Detail<'_>) -> String {
    detail.after.map_or_else(
        || format!("{}.\n", cause.title()),
        |after| format!("{}. Retry after {} s.\n", cause.title(), after.as_secs_ceil()),
    )
}
