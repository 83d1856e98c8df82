// SPDX-License-Identifier: Apache-2.0
//! The decisions of a configuration about requests without asking Redis, for the statistics.

use std::ops::Range;

use super::{Config, Evaluation, Observer, Step};
use crate::policy::{Denial, Ruling};
use crate::request::body::Body;
use crate::request::{Attributes, Request};

/// The decisions about one request without asking Redis: each with its policy, or with none for the lists of the configuration. Mostly
/// empty.
pub type Unasked = Vec<(Option<usize>, UnaskedRuling)>;

/// One decision without asking Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaskedRuling {
    /// An `exempt` list lets the request pass.
    Exempt,
    /// The request is denied.
    Denied(Denial),
    /// The request would be denied, but the policy is in shadow.
    ShadowDenied(Denial),
    /// A policy needs a value of the body, and the headers say that the body cannot be read. No policy of its own is named.
    UnreadableBody,
}

/// Notes the steps with such a decision.
struct Notes<'a> {
    config: &'a Config,
    unasked: &'a mut Unasked,
}

impl Observer for Notes<'_> {
    fn step(&mut self, step: Step<'_>) {
        let note = match step {
            Step::Denied(listed) => (None, UnaskedRuling::Denied(Denial::Listed(listed))),
            Step::Exempt(_) => (None, UnaskedRuling::Exempt),
            Step::Policy(policy, Ruling::Exempt(_)) => (Some(policy), UnaskedRuling::Exempt),
            Step::Policy(index, Ruling::Denied(denial)) => {
                let policy = self.config.policies.get(index);
                let is_enforced = policy.is_some_and(|policy| policy.enforces(*denial));
                let ruling = if is_enforced { UnaskedRuling::Denied } else { UnaskedRuling::ShadowDenied };
                (Some(index), ruling(*denial))
            }
            Step::Policy(..) | Step::QuotaRequest(..) => return,
        };
        self.unasked.push(note);
    }

    fn of_enquiry(&mut self, step: Step<'_>) {
        let noted = self.unasked.len();
        self.step(step);
        // Only its rejection concerns anybody: it is no request that passes.
        if !matches!(self.unasked.last(), Some((_, UnaskedRuling::Denied(_)))) {
            self.unasked.truncate(noted);
        }
    }

    fn unmatched(&mut self, _: Range<usize>) {}

    fn discard(&mut self) {
        self.unasked.clear();
    }

    fn certain(&mut self, step: Step<'_>) {
        self.step(step);
    }
}

impl Config {
    /// The same as [`Config::evaluate`], or as [`Config::evaluate_with_body`]; `unasked` gets what was decided without asking Redis.
    #[must_use]
    pub fn evaluate_and_note(
        &self,
        attributes: &dyn Attributes,
        body: Option<&Body>,
        unasked: &mut Unasked,
    ) -> Evaluation {
        let request = Request::new(attributes, &self.trust);
        let notes = &mut Notes { config: self, unasked };
        match (body, &self.request_body.wanted) {
            (None, None) => self.evaluate_observed(&request, notes),
            (Some(body), _) => self.evaluate_observed(&request.with_body(body), notes),
            (None, Some(wanted)) => {
                let request = request.before_body(wanted);
                let evaluation = self.evaluate_observed(&request, notes);
                if request.lacks_body() {
                    notes.unasked.push((None, UnaskedRuling::UnreadableBody));
                }
                evaluation
            }
        }
    }
}
