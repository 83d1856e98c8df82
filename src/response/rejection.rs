// SPDX-License-Identifier: Apache-2.0
//! A response in the upstream's place, for HTTP and for gRPC clients.

use std::borrow::Cow;
use std::rc::Rc;

use super::answer::PolicyAnswer;
use super::api;
use super::body::{self, Detail};
use super::cause::Cause;
use super::fields::Header;
use super::retry_after::{STORE_RETRY, with_jitter};
use super::settings::{Body, Settings};
use super::template::{Own, Values, push, request_id};
use super::view::Counts;
use crate::body::Ids;
use crate::limit::RetryAfter;
use crate::request;

/// The name under which hosts write [`Rejection::details`] to Envoy's filter state.
pub const DETAILS: &str = "weir.details";

/// The errors to a batch have at most this many bytes. A batch that would get more gets one, without an id.
const MAX_BATCH: usize = 32 * 1024;

/// A response in the upstream's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason of the rejection.
    pub cause: Cause,
    /// The time until the client may retry, jitter included. `Never` tells gRPC clients not to; `Unknown` sends no time.
    pub retry_after: RetryAfter,
    /// The HTTP status.
    pub status: u16,
    /// The headers, `content-type` among them where there is a body.
    pub headers: Vec<Header>,
    /// The body.
    pub body: String,
    /// The text for access logs: `weir_denied{policy}`, where a limit of that policy denies the request; `weir_banned{policy}`,
    /// `weir_forbidden{policy}`, `weir_unavailable{policy}`, each without the braces where no policy decided; `weir_body_late`,
    /// `weir_enquiry`.
    pub details: String,
    /// The status and the message for a gRPC client, in place of status and body.
    pub grpc: Grpc,
    /// The operator's own texts, and the values of this rejection in them.
    pub(super) own: Option<Box<OwnTexts>>,
}

/// The operator's own texts in a rejection, and its values in them; an empty one is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnTexts {
    texts: Rc<Own>,
    retry_after: String,
    limit: String,
    policy: String,
}

impl OwnTexts {
    fn values<'a>(&'a self, id: &'a str) -> Values<'a> {
        [&self.retry_after, &self.limit, &self.policy, id]
    }
}

/// The end of a gRPC call: trailers under status 200, with the rejection's headers except `content-type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grpc {
    /// The status code.
    pub code: u8,
    /// The message.
    pub message: &'static str,
    /// `grpc-retry-pushback-ms`: -1 tells clients not to retry by themselves.
    pub pushback: Option<i64>,
}

/// The arguments of Envoy's local reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(&'a str, Cow<'a, str>)>,
    /// The body.
    pub body: Cow<'a, str>,
}

impl Rejection {
    /// Names the calls that it answers, if it is an error of JSON-RPC. A batch gets an error for each, and one of notifications
    /// alone no body.
    pub fn name_calls(&mut self, ids: Option<&Ids>) {
        let Some((ids, rest)) = ids.zip(self.body.strip_prefix(api::WITHOUT_ID)) else { return };
        let error = |id: &str| [api::UP_TO_ID, id, rest].concat();
        let length =
            |ids: &str, count: usize| count.saturating_mul(self.body.len()).saturating_add(ids.len());
        self.body = match ids {
            Ids::One(id) => error(id),
            Ids::Batch(ids) if ids.is_empty() => {
                self.headers.retain(|header| header.name != "content-type");
                String::new()
            }
            Ids::Batch(ids) if length(ids, ids.lines().count()) > MAX_BATCH => return,
            Ids::Batch(ids) => format!("[{}]", ids.lines().map(error).collect::<Vec<_>>().join(",")),
        };
    }

    /// The local reply to a request. `header` reads a header of the request as weir finds it, in lower case.
    ///
    /// Envoy decides what is gRPC before the filters run, so a filter before weir may have made gRPC of a request that Envoy does not take
    /// for gRPC. Then Envoy sends the reply as it is, and that filter translates it. So the reply to a gRPC call is right in both cases:
    /// - It has a `grpc-status`, which Envoy leaves as it is.
    /// - It has no body: Envoy would make the `grpc-message` of it, and `grpc_web` would replace the `grpc-status`.
    /// - It has the HTTP status of the rejection. Envoy replaces it with 200 where it takes the request for gRPC. Only `grpc_web` passes
    ///   the status on, and its clients need 200. It has written `grpc-accept-encoding`. A client may write that too, so that is not
    ///   believed where the transcoder has written `x-envoy-original-method`.
    #[must_use]
    pub fn reply(&self, header: &dyn Fn(&str) -> Option<Vec<u8>>) -> Reply<'_> {
        let is_grpc = request::is_grpc(header);
        let other = self.own.as_ref().filter(|_| !is_grpc);
        let other = other.and_then(|own| own.texts.preferred(&self.headers, header));
        let has_type = !is_grpc && other.is_none();
        let mut headers: Vec<_> = self
            .headers
            .iter()
            .filter(|header| has_type || header.name != "content-type")
            .map(|header| (header.name, Cow::from(&header.value)))
            .collect();
        let mut body = Cow::from(if is_grpc { "" } else { &self.body });
        if is_grpc {
            push(&mut headers, "grpc-status", self.grpc.code.to_string());
            push(&mut headers, "grpc-message", self.grpc.message.to_owned());
            if let Some(millis) = self.grpc.pushback {
                push(&mut headers, "grpc-retry-pushback-ms", millis.to_string());
            }
        }
        if let Some(of) = &self.own {
            let (own, id) = (&of.texts, request_id(header));
            let values = of.values(&id);
            if let Some(other) = other {
                push(&mut headers, "content-type", other.content_type().to_owned());
            }
            if let Some(template) = other.or(own.body.as_ref().filter(|_| !is_grpc)) {
                body = template.fill(&values).into();
            }
            own.add(&values, header, &mut headers);
        }
        if !is_grpc {
            return Reply { status: self.status, headers, body };
        }
        let is_web = header("grpc-accept-encoding").is_some() && header("x-envoy-original-method").is_none();
        let status = if is_web { 200 } else { self.status };
        Reply { status, headers, body }
    }
}

/// The rejection of a request that is denied without asking; `policy` is empty for the global deny list.
#[must_use]
pub fn deny(settings: &Settings, policy: &str) -> Rejection {
    build(settings, (policy, &[], false), Cause::Denied, RetryAfter::Unknown, Vec::new())
}

/// The rejection of a request that weir could not decide at all, under `on_failure: deny`.
#[must_use]
pub fn unavailable(settings: &Settings) -> Rejection {
    build(settings, ("", &[], false), Cause::Unavailable, RetryAfter::After(STORE_RETRY), Vec::new())
}

/// The rejection of a request whose body, which a policy needs, did not come in time.
#[must_use]
pub fn late(settings: &Settings) -> Rejection {
    build(settings, ("", &[], false), Cause::Late, RetryAfter::Unknown, Vec::new())
}

/// The answer to a quota request: not a rejection, but also a response in the upstream's place.
pub(super) fn answer(mut headers: Vec<Header>, body: String) -> Rejection {
    headers.push(Header::new("content-type", String::from("application/json")));
    let (cause, retry_after) = (Cause::Answered, RetryAfter::Unknown);
    let grpc = Grpc { code: cause.grpc_code(), message: cause.message(), pushback: None };
    Rejection { cause, retry_after, status: 200, headers, body, details: cause.details(""), grpc, own: None }
}

/// The rejection because of one policy's answer. `headers` carry the status of all limits.
pub(super) fn reject(
    because_of: &PolicyAnswer<'_>,
    cause: Cause,
    violated: &[&str],
    after: RetryAfter,
    headers: Vec<Header>,
) -> Rejection {
    let after = with_jitter(after, because_of);
    let in_tokens = because_of.limits().any(|(view, status)| {
        matches!(view.counts, Counts::Tokens | Counts::Others) && because_of.is_violated(status)
    });
    build(because_of.settings, (because_of.policy, violated, in_tokens), cause, after, headers)
}

fn build(
    settings: &Settings,
    (policy, violated, in_tokens): (&str, &[&str], bool),
    cause: Cause,
    retry_after: RetryAfter,
    mut headers: Vec<Header>,
) -> Rejection {
    let status = match cause {
        Cause::Exceeded => settings.status,
        Cause::Banned => settings.ban_status,
        Cause::Denied => settings.deny_status,
        Cause::Unavailable => 503,
        Cause::Late => 408,
        Cause::Answered => 200,
    };
    let after = if let RetryAfter::After(after) = retry_after { Some(after) } else { None };
    if let Some(after) = after {
        headers.push(Header::new("retry-after", after.as_secs_ceil().to_string()));
    }
    if let Body::Api(api) = settings.body {
        api.add_retry(cause, retry_after, &mut headers);
    }
    let detail = Detail { policy, violated, after, in_tokens };
    let own = settings.own.as_ref().map(|own| {
        let limit = violated.first().copied().unwrap_or_default().to_owned();
        let retry_after = after.map(|after| after.as_secs_ceil().to_string()).unwrap_or_default();
        Box::new(OwnTexts { texts: Rc::clone(own), retry_after, limit, policy: policy.to_owned() })
    });
    let template = own.as_ref().and_then(|own| Some((own.texts.body.as_ref()?, own.values(""))));
    let (content_type, body) = match template {
        Some((template, values)) => (Some(template.content_type()), template.fill(&values)),
        None => body::body(settings, status, cause, &detail),
    };
    if let Some(content_type) = content_type {
        headers.push(Header::new("content-type", content_type.to_owned()));
    }
    let pushback = match retry_after {
        RetryAfter::After(after) => Some(i64::try_from(after.as_millis_ceil()).unwrap_or(i64::MAX)),
        RetryAfter::Never => Some(-1),
        RetryAfter::Now | RetryAfter::Unknown => None,
    };
    let grpc = Grpc { code: cause.grpc_code(), message: cause.message(), pushback };
    Rejection { cause, retry_after, status, headers, body, details: cause.details(policy), grpc, own }
}
