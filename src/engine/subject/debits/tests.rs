// SPDX-License-Identifier: Apache-2.0
use super::*;

const NOW: Micros = Micros::from_secs(1_000);

/// The maximum debt of a subject, and the time for which it matters.
const MOST: (u64, Micros) = (100, Micros::from_secs(60));

/// The debits of a region with two others.
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
    Rc::new(Check::one(0, format!("{{p|{number}}}")))
}

/// The number of dropped units: in all, and of each of the two other regions.
fn dropped(debits: &Debits) -> [u64; 3] {
    [debits.counts.dropped, debits.owed(1, NOW).counts.dropped, debits.owed(2, NOW).counts.dropped]
}

#[test]
fn where_nothing_is_owed_nothing_becomes_due() {
    let mut debits = debits();
    debits.granted(&subject(0), 0, MOST, NOW);
    assert_eq!((debits.due(), debits.queue.len(), debits.waiting()), (None, 0, 0), "nothing was granted");
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

/// The charges that both other regions accept now, each as (store, units).
fn taken(debits: &mut Debits, takes: [Charges; 2], now: Micros) -> Vec<(u8, u64)> {
    let charges = debits.take(&|store| takes[usize::from(store) - 1], now);
    charges.iter().map(|charge| (charge.check.store, charge.units)).collect()
}

const INTERVAL: Micros = Micros::from_millis(100);
const SYNC: Micros = NOW.plus(INTERVAL);
const ALL: [Charges; 2] = [Charges::All, Charges::All];

/// After the time in which it matters, a debt is dropped, also where nothing can be charged. In that very time it is charged yet.
#[test]
fn what_no_longer_matters_is_dropped() {
    let end = NOW.plus(MOST.1);
    let late = end.plus(Micros(1));
    let rows = [
        ("in time", ALL, end, vec![(1, 7), (2, 7)], 0),
        ("late", ALL, late, vec![], 14),
        ("late, and one cannot be charged", [Charges::None, Charges::All], late, vec![], 14),
    ];
    for (name, takes, now, charged, dropped) in rows {
        let mut debits = debits();
        debits.granted(&subject(0), 7, MOST, NOW);
        assert_eq!(taken(&mut debits, takes, now), charged, "{name}");
        assert_eq!((debits.waiting(), debits.counts.dropped), (0, dropped), "{name}");
        assert_eq!((debits.subjects.len(), debits.queue.len()), (0, 0), "{name}: nothing of it is kept");
    }
}

#[test]
fn a_sync_makes_so_many_charges_and_the_next_one_the_others() {
    let mut debits = debits();
    for number in 0..300 {
        debits.granted(&subject(number), 1, MOST, NOW);
    }
    assert_eq!(taken(&mut debits, ALL, SYNC).len(), 512);
    assert_eq!(debits.due(), Some(SYNC.plus(INTERVAL)));
    assert_eq!(taken(&mut debits, ALL, SYNC.plus(INTERVAL)).len(), 88);
}

/// The next sync is due while anything waits or is in flight: then the lag has to be looked at.
#[test]
fn a_sync_is_due_until_all_is_charged() {
    let mut debits = debits();
    debits.granted(&subject(0), 7, MOST, NOW);
    taken(&mut debits, ALL, SYNC);
    let second = SYNC.plus(INTERVAL);
    assert_eq!((debits.waiting(), debits.due()), (0, Some(second)), "in flight");
    for store in [1, 2] {
        debits.ended(&Check { store, ..Check::clone(&subject(0)) }, 7, true);
    }
    taken(&mut debits, ALL, second);
    assert_eq!(debits.due(), None, "all is answered");

    debits.granted(&subject(0), 7, MOST, second);
    debits.refunded(&subject(0), 7);
    assert_eq!(taken(&mut debits, ALL, second.plus(INTERVAL)), []);
    assert_eq!(debits.due(), None, "nothing was sent");
}

/// If a region did not accept charges, waiting subjects still have their first grants to charge, wherever they are in the queue now.
#[test]
fn the_lag_is_that_of_the_oldest_grant_that_is_not_charged() {
    let mut debits = debits();
    for number in 0..600 {
        debits.granted(&subject(number), 1, MOST, NOW);
    }
    let second = SYNC.plus(INTERVAL);
    assert_eq!(taken(&mut debits, [Charges::None, Charges::All], SYNC).len(), 512);
    // The 88 that were not looked at are charged in both regions, and 336 more in the first.
    assert_eq!(taken(&mut debits, ALL, second).len(), 512);
    debits.ended(&Check { store: 1, ..Check::clone(&subject(0)) }, 88 + 336, true);
    let owed = debits.owed(1, second);
    assert_eq!((owed.waiting, owed.lag), (600 - 88 - 336, second.since(NOW)));
}

#[test]
fn a_region_is_late_from_more_than_three_intervals_and_deadlines_on() {
    let mut debits = debits();
    debits.granted(&subject(0), 7, MOST, NOW);
    let deadline = debits.peers[0].late.0 / 3 - INTERVAL.0;
    assert!(deadline > 0);
    let late = NOW.plus(Micros(3 * (INTERVAL.0 + deadline)));
    assert!(!debits.owed(1, late).is_late);
    assert!(debits.owed(1, late.plus(Micros(1))).is_late);
}

#[test]
fn a_subject_has_one_place_whatever_its_requests_cost() {
    let mut debits = debits();
    for cost in 1..=50 {
        let check = Rc::new(Check { cost, kept_percent: (cost % 2) as u8, ..Check::clone(&subject(0)) });
        debits.granted(&check, 2, MOST, NOW);
    }
    assert_eq!((debits.subjects.len(), debits.queue.len(), debits.waiting()), (1, 1, 200));
    debits.refunded(&subject(0), 9);
    assert_eq!(taken(&mut debits, ALL, SYNC), [(1, 91), (2, 91)]);
}

/// The probe of a breaker may be lost, so it is a single unit of one subject.
#[test]
fn a_probe_is_one_unit() {
    let mut debits = debits();
    (0..2).for_each(|number| debits.granted(&subject(number), 7, MOST, NOW));
    assert_eq!(taken(&mut debits, [Charges::Probe, Charges::All], SYNC), [(1, 1), (2, 7), (2, 7)]);
    assert_eq!(
        (debits.waiting(), debits.owed(1, SYNC).waiting, debits.owed(1, SYNC).counts.sent),
        (13, 13, 1)
    );
}

/// Dropped units are no longer unanswered: neither those above the maximum nor those that no longer matter.
#[test]
fn what_is_dropped_is_not_unanswered() {
    let mut debits = debits();
    let unanswered = |debits: &Debits| [1, 2].map(|store| debits.unanswered(0, store));
    debits.granted(&subject(0), MOST.0 + 3, MOST, NOW);
    assert_eq!((unanswered(&debits), dropped(&debits)), ([MOST.0; 2], [6, 3, 3]));
    assert_eq!(taken(&mut debits, ALL, NOW.plus(MOST.1).plus(Micros(1))), []);
    assert_eq!((unanswered(&debits), dropped(&debits)[0]), ([0; 2], 206));
}
