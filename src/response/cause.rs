// SPDX-License-Identifier: Apache-2.0
//! The reason of a rejection, in the words of each protocol.

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A limit denies it.
    Exceeded,
    /// A ban denies it.
    Banned,
    /// A deny list or a missing part of the subject denies it; no limit was asked.
    Denied,
    /// Nothing decided, and `on_failure` is `deny`.
    Unavailable,
    /// The body that a policy needs did not come in time.
    Late,
    /// It is a quota request, and this is the answer.
    Answered,
}

impl Cause {
    /// The draft's problem type; `None` for `about:blank`.
    pub(super) const fn problem_type(self) -> Option<&'static str> {
        match self {
            Self::Exceeded => Some("quota-exceeded"),
            Self::Banned => Some("abnormal-usage-detected"),
            Self::Denied | Self::Late | Self::Answered => None,
            Self::Unavailable => Some("temporary-reduced-capacity"),
        }
    }

    /// The title of the problem, also the sentence of a plain-text body.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Exceeded => "Request cannot be satisfied as assigned quota has been exceeded",
            Self::Banned => "Request not satisfied due to detection of abnormal request pattern",
            Self::Denied => "Request is denied",
            Self::Unavailable => "Request cannot be satisfied due to temporary server capacity constraints",
            Self::Late => "Request body did not arrive in time",
            Self::Answered => "What is left of the quota",
        }
    }

    /// The short message of gRPC and of JSON bodies.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Exceeded => "rate limit exceeded",
            Self::Banned => "banned",
            Self::Denied => "request denied",
            Self::Unavailable => "rate limit unavailable",
            Self::Late => "request body late",
            Self::Answered => "ok",
        }
    }

    /// The words for access logs, together with the policy.
    pub(super) fn details(self, policy: &str) -> String {
        let word = match self {
            Self::Exceeded => "weir_denied",
            Self::Banned => "weir_banned",
            Self::Denied => "weir_forbidden",
            Self::Unavailable => "weir_unavailable",
            Self::Late => "weir_body_late",
            Self::Answered => "weir_enquiry",
        };
        if policy.is_empty() { word.to_owned() } else { [word, "{", policy, "}"].concat() }
    }

    /// The gRPC status: RESOURCE_EXHAUSTED, PERMISSION_DENIED, UNAVAILABLE, DEADLINE_EXCEEDED. A gRPC call is no quota request.
    pub(super) const fn grpc_code(self) -> u8 {
        match self {
            Self::Exceeded | Self::Banned | Self::Answered => 8,
            Self::Denied => 7,
            Self::Unavailable => 14,
            Self::Late => 4,
        }
    }
}
