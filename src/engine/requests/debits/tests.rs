// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::policy::Mode;

const NOW: Micros = Micros::from_secs(1_000);

/// What a subject may owe at most, and for how long.
const MOST: (u64, Micros) = (100, Micros::from_secs(60));

/// What a region owes two others.
fn debits() -> Debits {
    let all: Vec<_> = (0..3).map(|region| format!(r#"{{"name": "r{region}", "cluster": "c"}}"#)).collect();
    let config = format!(
        r#"{{"regions": {{"here": "r0", "sync_interval": "100ms", "all": [{}]}}, "policies": [{{"name": "p", "limits":
        [{{"name": "l", "algorithm": "leaky_bucket", "rate": "60/m", "burst": 60}}]}}]}}"#,
        all.join(",")
    );
    Debits::new(&Config::parse(config.as_bytes()).expect("valid"), Seed(1))
}

fn subject(number: usize) -> Rc<Check> {
    let tag = format!("{{p|{number}}}").into_bytes();
    Rc::new(Check {
        policy: 0,
        tier: 0,
        tag,
        cost: 1,
        kept_percent: 0,
        scale: 1,
        store: 0,
        mode: Mode::Enforce,
    })
}

/// How many units were dropped: in all, and of each of the two other regions.
fn dropped(debits: &Debits) -> [u64; 3] {
    [debits.counts.dropped, debits.owed(1, NOW).counts.dropped, debits.owed(2, NOW).counts.dropped]
}

#[test]
fn where_nothing_is_owed_nothing_becomes_due() {
    let mut debits = debits();
    debits.granted(&subject(0), 0, MOST, NOW);
    assert_eq!((debits.due(), debits.line.len(), debits.waiting()), (None, 0, 0), "nothing was granted");
}

#[test]
fn charges_of_further_subjects_are_dropped_where_too_many_wait() {
    let mut debits = debits();
    for number in 0..MAX_SUBJECTS {
        debits.granted(&subject(number), 1, MOST, NOW);
    }
    assert_eq!((debits.waiting(), dropped(&debits)), (2 * 16_384, [0, 0, 0]));
    debits.granted(&subject(MAX_SUBJECTS), 5, MOST, NOW);
    assert_eq!((debits.waiting(), dropped(&debits)), (2 * 16_384, [10, 5, 5]), "no place for it");
    debits.granted(&subject(7), 5, MOST, NOW);
    assert_eq!((debits.waiting(), dropped(&debits)), (2 * 16_389, [10, 5, 5]), "it has its place");
}

#[test]
fn what_is_above_the_most_that_a_subject_may_owe_is_dropped() {
    let mut debits = debits();
    debits.granted(&subject(0), 90, MOST, NOW);
    debits.granted(&subject(0), 13, MOST, NOW);
    assert_eq!((debits.waiting(), dropped(&debits)), (200, [6, 3, 3]));
}
