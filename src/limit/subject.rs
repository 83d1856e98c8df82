//! A whole policy in memory: what the script does for one subject in Redis, with exactly its reply.

use super::bucket::BucketState;
use super::{Answer, Ask, Limit, Outcome};
use crate::time::Micros;

/// What is remembered about one limit of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing: nobody asked yet, or all of it has stopped to matter.
    #[default]
    Empty,
    /// When the bucket is whole again.
    Bucket(BucketState),
}

/// What is remembered about one subject: a state for each limit of its policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    states: Vec<State>,
}

impl Subject {
    /// Asks every limit, grants what all of them can, and charges all or none.
    ///
    /// The limits may change from call to call, as after a new configuration: what is remembered counts under the new
    /// ones as far as it can, and another algorithm's state counts as nothing.
    pub fn check(&mut self, limits: &[Limit], now: Micros, ask: Ask) -> Outcome {
        self.states.resize(limits.len(), State::Empty);
        let mut granted = ask.requests;
        for (limit, state) in limits.iter().zip(&mut self.states) {
            granted = granted.min(limit.can(state, now, ask));
        }
        let answers =
            limits.iter().zip(&mut self.states).map(|(limit, state)| limit.take(state, now, ask, granted));
        Outcome { granted, at: now, limits: answers.collect() }
    }
}

impl Limit {
    /// Makes `state` one of this algorithm: another's counts as nothing.
    fn adopt(&self, state: &mut State) {
        match (self, &state) {
            (Self::LeakyBucket(_), State::Bucket(_)) => {}
            (Self::LeakyBucket(_), _) => *state = State::Bucket(BucketState::default()),
        }
    }

    fn can(&self, state: &mut State, now: Micros, ask: Ask) -> u32 {
        self.adopt(state);
        match (self, state) {
            (Self::LeakyBucket(limit), State::Bucket(state)) => limit.bucket.can(state, now, ask),
            _ => 0,
        }
    }

    fn take(&self, state: &mut State, now: Micros, ask: Ask, granted: u32) -> Answer {
        match (self, state) {
            (Self::LeakyBucket(limit), State::Bucket(state)) => limit.bucket.take(state, now, ask, granted),
            _ => Answer::default(),
        }
    }

    /// What one request takes from this limit.
    pub(super) const fn cost(&self, ask: Ask) -> u64 {
        match self {
            Self::LeakyBucket(_) => ask.cost,
        }
    }
}
