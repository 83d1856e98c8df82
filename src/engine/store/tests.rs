// SPDX-License-Identifier: Apache-2.0
//! Tasks for which no request waits: loans, and charges of other regions.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use super::breaker::SHORTEST_PAUSE;
use super::*;
use crate::limit::Outcome;

const BEGIN: u64 = 1_000_000;

fn at(uptime: u64) -> Now {
    Now { host: Micros(uptime), uptime: Micros(uptime), loop_time: Micros(uptime) }
}

/// A store that has to answer within 50 ms.
fn store() -> Store {
    let config = r#"{"store": {"deadline": "50ms"}, "policies": [{"name": "p", "limits":
        [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]}]}"#;
    let config = Rc::new(Config::parse(config.as_bytes()).expect("valid"));
    let region = config.regions.all.first().expect("this region").clone();
    Store::new(config, 0, &region, 1)
}

fn subject(number: usize) -> Rc<Check> {
    Rc::new(Check::one(0, format!("{{p|{number}}}")))
}

impl Store {
    /// Three batches in a row are lost.
    fn lose_the_store(&mut self) {
        assert!((1..=3).any(|id| self.lost(id * 32, at(BEGIN))));
    }

    fn ask_about(&mut self, subjects: std::ops::Range<usize>, now: Now) {
        for number in subjects {
            let stream = u32::try_from(number).unwrap();
            self.ask(&subject(number), Waiter { stream, place: 0 }, Slots::Normal, now);
        }
    }

    /// The next batch leaves.
    fn send_next(&mut self, now: Now) -> BatchId {
        let (slots, batch) = self.take(&|_| true, now).expect("a batch");
        self.send((0, slots), (batch, Vec::new()), Vec::new(), now.loop_time.plus(self.deadline), now).id
    }
}

#[test]
fn nothing_is_borrowed_from_a_store_that_does_not_answer_in_time() {
    /// A state of the store: its name, the change that leads to it, and the expected number.
    type Row = (&'static str, fn(&mut Store) -> Now, usize);
    let rows: [Row; 4] = [
        ("well", |_| at(BEGIN), 1),
        (
            "its breaker is open",
            |store| {
                store.lose_the_store();
                at(BEGIN)
            },
            0,
        ),
        (
            "its breaker is open, and sends a probe",
            |store| {
                store.lose_the_store();
                at(BEGIN + 2 * SHORTEST_PAUSE.0)
            },
            1,
        ),
        (
            "more waits than it answers in time",
            |store| {
                store.ask_about(0..1, at(BEGIN));
                let (first, answered) = (store.send_next(at(BEGIN)), at(BEGIN + 40_000));
                let sample = store.in_flight.sample(first, answered).expect("in flight");
                store.in_flight.learn(Slots::Normal, 1, sample, answered);
                store.in_flight.complete(first);
                store.ask_about(1..2, answered);
                store.send_next(answered);
                store.ask_about(2..5_000, answered);
                answered
            },
            0,
        ),
    ];
    for (name, begin, lent) in rows {
        let mut store = store();
        let now = begin(&mut store);
        let before = store.queues.normal.len();
        store.lend(subject(7_000), subject(7_000).subject(), 5, now);
        assert_eq!(store.queues.normal.len() - before, lent, "{name}");
    }
}

#[test]
fn charges_are_taken_while_there_is_room_for_them() {
    for (waiting, taken) in [(0, Charges::All), (1_023, Charges::All), (1_024, Charges::None)] {
        let mut store = store();
        for number in 0..waiting {
            let (check, receipt) = (subject(number), Rc::new(Outcome::NONE));
            assert!(store.settle(Settlement { check, due: Due::Charge(1), receipt }));
        }
        assert_eq!(store.takes_charges(at(BEGIN)), taken, "{waiting}");
        store.lose_the_store();
        assert_eq!(store.takes_charges(at(BEGIN)), Charges::None, "{waiting}, the breaker is open");
        let probes = at(BEGIN + 2 * SHORTEST_PAUSE.0);
        let taken = if taken == Charges::All { Charges::Probe } else { Charges::None };
        assert_eq!(store.takes_charges(probes), taken, "{waiting}, the breaker sends a probe");
    }
}
