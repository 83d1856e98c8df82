// SPDX-License-Identifier: Apache-2.0
//! The lists `deny` and `exempt`: the first of their conditions that holds. A list has an [index](super::index), so a request that
//! no condition matches costs the same under a long list as under a short one.

use super::index::Index;
use super::matcher::{Condition, OnAmbiguity};
use crate::request::Request;

/// A list of conditions.
#[derive(Debug)]
pub struct Conditions {
    conditions: Vec<Condition>,
    index: Index,
}

impl Conditions {
    /// A list of at most [`MAX_CONDITIONS`](super::index::MAX_CONDITIONS) conditions.
    #[must_use]
    pub fn new(conditions: Vec<Condition>) -> Self {
        let index = Index::new(conditions.iter());
        Self { conditions, index }
    }

    /// Its conditions, in the order of the configuration.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The place of the first condition that holds. Most lists are empty.
    #[must_use]
    #[inline(always)]
    pub fn first<'a>(&'a self, request: &Request<'a>, on_ambiguity: OnAmbiguity) -> Option<usize> {
        if self.conditions.is_empty() { None } else { self.first_candidate(request, on_ambiguity) }
    }

    /// The place of the first condition that holds whatever the body of the request has, which has not come yet.
    #[must_use]
    pub fn first_without_body<'a>(&'a self, request: &Request<'a>) -> Option<usize> {
        let holds = |condition: &'a Condition| {
            request.without_body(|| condition.holds(request, OnAmbiguity::Holds)) == Some(true)
        };
        let mut candidates = self.index.candidates(request);
        candidates.find(|place| self.conditions.get(*place).is_some_and(holds))
    }

    /// The candidates of the index are enough for both values of `on_ambiguity`: a condition that holds under `Fails` also holds under
    /// `Holds`.
    #[inline(never)]
    fn first_candidate<'a>(&'a self, request: &Request<'a>, on_ambiguity: OnAmbiguity) -> Option<usize> {
        let holds = |place: &usize| {
            let condition = self.conditions.get(*place);
            condition.is_some_and(|condition| condition.holds(request, on_ambiguity))
        };
        self.index.candidates(request).find(holds)
    }
}
