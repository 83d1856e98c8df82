//! One request while it is here: its checks, what came of each, and where it stands.

use std::rc::Rc;

use crate::decision::{Admission, Answer};
use crate::limit::Outcome;
use crate::policy::{Check, Few};
use crate::time::Micros;

#[derive(Debug)]
pub(super) struct Part {
    pub check: Rc<Check>,
    pub answer: Option<Answer>,
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
    pub parts: Few<Part>,
    pub state: State,
}

impl Request {
    pub fn waits(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    pub fn in_flight(&self) -> bool {
        self.parts.iter().any(|part| part.in_flight)
    }
}

pub(super) fn answers(parts: &[Part]) -> impl Iterator<Item = (&Check, &Answer)> + Clone {
    parts.iter().filter_map(|part| Some((&*part.check, part.answer.as_ref()?)))
}
