//! One request while it is here: its checks, what came of each, and where it stands.

use std::rc::Rc;

use crate::decision::CheckAnswer;
use crate::inline_vec::InlineVec;
use crate::limit::Outcome;
use crate::policy::{self, Check, Policy};
use crate::response::{Admission, PolicyAnswer};
use crate::time::Micros;

#[derive(Debug)]
pub(super) struct Part {
    pub check: Rc<Check>,
    pub answer: Option<CheckAnswer>,
    /// Whether the store is being asked: it may grant this part, whatever becomes of the request meanwhile.
    pub in_flight: bool,
    /// What granted it, where something did: what to give back, and what to release when the request ends.
    pub paid: Option<Paid>,
}

/// A grant, and who gave it.
#[derive(Clone, Debug)]
pub(super) enum Paid {
    Store(Rc<Outcome>),
    Local(Rc<Outcome>),
}

#[derive(Debug)]
pub(super) enum State {
    Waiting,
    Held {
        due: Micros,
        admission: Admission,
    },
    Admitted(Admission),
    Rejected,
    /// It was rejected, and its stream is closed. It is remembered while parts of it are in flight: what they are granted
    /// has to be refunded.
    Closed,
}

#[derive(Debug)]
pub(super) struct Request {
    pub parts: InlineVec<Part>,
    pub state: State,
}

impl Request {
    pub fn waits(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    pub fn in_flight(&self) -> bool {
        self.parts.iter().any(|part| part.in_flight)
    }

    /// The answers that are here, each with what its policy says about responses.
    pub fn answers<'a>(&'a self, policies: &'a [Policy]) -> InlineVec<PolicyAnswer<'a>> {
        let parts = self.parts.iter().filter_map(|part| Some((&*part.check, part.answer.as_ref()?)));
        policy::answers(policies, parts)
    }
}
