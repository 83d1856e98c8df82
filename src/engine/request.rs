//! One request while it is here: its checks, what came of each, and where it stands.

use std::rc::Rc;

use crate::decision::{Admission, Answer, Finding, Standing};
use crate::limit::{self, Ask, Outcome};
use crate::policy::Check;
use crate::script::Plan;
use crate::time::Micros;

#[derive(Debug)]
pub(super) struct Part {
    pub check: Rc<Check>,
    pub answer: Option<Answer>,
    /// The store's grant, where it gave one: what to give back, and what to release when the request ends.
    pub paid: Option<Rc<Outcome>>,
}

#[derive(Debug)]
pub(super) enum State {
    Waiting,
    Held { due: Micros, admission: Admission },
    Admitted(Admission),
    Rejected,
}

#[derive(Debug)]
pub(super) struct Request {
    pub parts: Vec<Part>,
    pub state: State,
}

impl Request {
    pub fn waits(&self) -> bool {
        matches!(self.state, State::Waiting)
    }
}

pub(super) fn answers(parts: &[Part]) -> impl Iterator<Item = (&Check, &Answer)> + Clone {
    parts.iter().filter_map(|part| Some((&*part.check, part.answer.as_ref()?)))
}

/// What the `index`-th of the requests that were asked for together is told.
pub(super) fn finding(outcome: &Outcome, plan: &Plan, index: u32, ask: Ask) -> Finding {
    let limits = plan.limits();
    let share = outcome.share(limits, index, ask);
    let standing = |(limit, answer): (usize, &limit::Answer)| Standing {
        remaining: outcome.remaining(limits, limit, index, ask),
        retry_after: answer.retry_after,
        reset: answer.reset,
    };
    Finding {
        granted: share.granted,
        delay: share.delay,
        limits: outcome.limits.iter().enumerate().map(standing).collect(),
    }
}
