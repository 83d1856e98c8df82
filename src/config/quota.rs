// SPDX-License-Identifier: Apache-2.0
//! `quota`: requests with which clients ask what is left of their quota, and what they ask Redis.

use super::schema::{Errors, METHOD, NAME, PATH, Text, View, nearest, object, text};
use super::{Config, Evaluation, Step};
use crate::inline_vec::InlineVec;
use crate::policy::matcher::OnAmbiguity;
use crate::policy::{Check, Denial, Mode, Policy, Ruling};
use crate::request::Request;
use crate::request::enquiry::{Asked, Endpoint};

/// The settings of quota requests.
#[derive(Clone, Debug)]
pub struct Quota {
    /// The requests that are quota requests.
    pub endpoint: Endpoint,
    /// The policy that these requests are charged to, if there is one: an index into the configuration's.
    pub policy: Option<usize>,
}

object! {
    static QUOTA: QuotaFields = "quota",
        "With which request clients ask what is left of their quota, without spending any. weir answers it: it never reaches the \
         upstream. See [quota requests](clients.md#quota-requests).";
    method: Text = text(&METHOD).default("\"GET\"", "The method."),
    path: Text = text(&PATH)
        .default("\"/.well-known/quota\"", "The path, without a query. Only this spelling of it counts."),
    policy: Option<Text> = text(&NAME)
        .optional("The name of a policy that limits quota requests. Each costs at least one unit of it, if the policy matches it."),
}

pub(super) fn read(view: &View<'_, QuotaFields>, policies: &[Policy], errors: &mut Errors) -> Quota {
    let name = view.get(&QUOTA.policy);
    let policy = name.and_then(|name| policies.iter().position(|policy| policy.name == name));
    if let Some(name) = name.filter(|_| policy.is_none()) {
        let names = || policies.iter().map(|policy| policy.name.as_str());
        let hint = nearest(name, names());
        let allowed = format!("the name of a policy: {}", names().collect::<Vec<_>>().join(", "));
        errors.add_with_hint(&view.path_of(&QUOTA.policy), format_args!("{name:?}"), allowed, hint);
    }
    let endpoint = Endpoint { method: view.get(&QUOTA.method).into(), path: view.get(&QUOTA.path).into() };
    Quota { endpoint, policy }
}

impl Config {
    /// The request that `request` asks for, if it is a quota request.
    #[must_use]
    pub fn asked<'r>(&self, request: &'r Request<'_>) -> Option<Asked<'r>> {
        self.quota.as_ref()?.endpoint.asked(request)
    }

    /// Returns the checks for a quota request. The lists and the policies decide about the request that it asks for, `asked`.
    pub(super) fn decide_enquiry<'a>(
        &'a self,
        enquiry: &Request<'a>,
        asked: &Asked<'_>,
        mut observe: impl FnMut(Step<'_>),
    ) -> Evaluation {
        let asked = &Request::new(asked, &self.trust);
        if let Some(listed) = self.deny.first(asked, OnAmbiguity::Holds) {
            observe(Step::Denied(listed));
            return Evaluation::Deny(None, Denial::Listed(listed));
        }
        let is_exempt = self.exempt.first(asked, OnAmbiguity::Fails);
        if let Some(listed) = is_exempt {
            observe(Step::Exempt(listed));
        }
        let charged = self.quota.as_ref().and_then(|quota| quota.policy);
        let mut candidates = self.index.candidates(asked).peekable();
        let mut checks = InlineVec::new();
        for (index, policy) in self.policies.iter().enumerate() {
            let is_candidate = candidates.next_if_eq(&index).is_some();
            let ruling = match charged == Some(index) {
                true => policy.rule(index, enquiry),
                false if is_exempt.is_some() => continue,
                false if is_candidate => policy.rule_enquiry(index, asked, enquiry),
                false => Ruling::Unmatched,
            };
            observe(Step::Policy(index, &ruling));
            match ruling {
                Ruling::Check(check) if check.mode == Mode::QuotaRequest => checks.push(check),
                Ruling::Check(check) if charged == Some(index) => {
                    checks.push(Check { cost: check.cost.max(1), ..check });
                }
                Ruling::Denied(denial) if policy.enforces(denial) => {
                    return Evaluation::Deny(Some(index), denial);
                }
                _ => {}
            }
        }
        self.add_bans(&mut checks, &mut observe);
        Evaluation::QuotaRequest(checks)
    }
}
