// SPDX-License-Identifier: Apache-2.0
//! The time for which a denial is remembered, and the checks that it saves the store.

use weir::engine::{Action, StreamId, Submitted};
use weir::limit::Member;
use weir::policy::Check;
use weir::time::Micros;

use crate::worker::*;

/// One request was denied for a day, and has closed.
fn denied_for_a_day<const N: usize>(store: &str, policies: [String; N]) -> Worker {
    let mut worker = Worker::new(store, policies);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([denied(DAY)]), [(1, false)]);
    worker.close(1);
    worker
}

/// After what time the store is asked about the subject again, to the millisecond, when requests arrive all the time.
fn asked_again(worker: &mut Worker) -> Micros {
    let begun = worker.now;
    for stream in 1_000.. {
        worker.idle(ms(1));
        let decided = worker.arrive(stream, &["ann"]);
        if decided.is_none() {
            break;
        }
        worker.close(stream);
        assert_eq!(decided, Some(false));
        assert!(worker.now.since(begun) < secs(10), "it is never asked about again");
    }
    worker.now.since(begun)
}

// --- How long ---------------------------------------------------------------------------------------------------------

#[test]
fn a_denied_subject_is_denied_here_until_the_time_the_store_said() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    worker.idle(ms(5));
    assert_eq!(worker.reply(&batch, [denied(ms(20))]), [(1, false)]);
    // 20 ms from when the store was asked, not from when it answered.
    worker.idle(ms(14));
    assert_eq!(worker.arrive(2, &["ann"]), Some(false));
    assert_eq!(worker.arrive(3, &["bob"]), None, "the store is asked about others");
    worker.idle(ms(1));
    assert_eq!(worker.arrive(4, &["ann"]), None, "the store may say something else now");
}

/// A date in a header stays the same while the denial grows old.
#[test]
fn a_denial_that_is_remembered_names_the_same_date() {
    let dated = format!(r#""response": {{"style": "anthropic"}}, {}"#, policy(BUCKET));
    let trusting = DENY.replace('}', r#", "denial_ttl": "1h"}"#);
    let mut worker = Worker::new(&trusting, [dated]);
    worker.all_wait([1], "ann");
    worker.answer([denied(DAY).reset(DAY)]);
    let mut date = |stream| {
        let checks = [check_of(0, "{p0|ann}", 1)].into_iter().collect();
        let Submitted::Decided(Action::Reject(told)) = worker.engine.submit(stream, checks, worker.now)
        else {
            panic!("it is denied")
        };
        worker.skip(secs(100));
        let date = told.headers.iter().find(|header| header.name == "anthropic-ratelimit-requests-reset");
        date.expect("a date").value.clone()
    };
    assert_eq!(date(2), date(3));
}

#[test]
fn a_denied_subject_is_asked_about_again_after_one_to_two_seconds() {
    let mut worker = denied_for_a_day(DENY, [policy(BUCKET)]);
    let mut ages = Vec::new();
    for _ in 0..8 {
        let age = asked_again(&mut worker);
        assert!((secs(1)..=secs(2)).contains(&age), "after {age}");
        ages.push(age);
        let batch = worker.batch();
        assert_eq!(batch.tasks(), [check("p0|ann", 1)]);
        let outcomes = worker.reply(&batch, [denied(DAY)]);
        outcomes.into_iter().for_each(|(stream, _)| worker.close(stream));
    }
    // A subject that was unblocked is admitted.
    asked_again(&mut worker);
    assert_eq!(worker.answer([granted(1)]).last().map(|outcome| outcome.1), Some(true));
    ages.dedup();
    assert!(ages.len() > 4, "workers and subjects do not ask in step: {ages:?}");
}

#[test]
fn denial_ttl_says_how_long_a_denial_is_remembered() {
    let with = |ttl: &str| format!(r#"{{"deadline": "50ms", "on_failure": "deny", "denial_ttl": "{ttl}"}}"#);
    let mut always = denied_for_a_day(&with("0s"), [policy(BUCKET)]);
    assert_eq!(always.arrive(2, &["ann"]), None, "with 0s it is always asked about");
    let mut shortly = denied_for_a_day(&with("20ms"), [policy(BUCKET)]);
    let age = asked_again(&mut shortly);
    assert!((ms(20)..=ms(41)).contains(&age), "after {age}");
    let mut long = denied_for_a_day(&with("1h"), [policy(BUCKET)]);
    long.skip(secs(3_599));
    assert_eq!(long.arrive(2, &["ann"]), Some(false));
    long.skip(secs(3_602));
    assert_eq!(long.arrive(3, &["ann"]), None);
}

#[test]
fn a_denial_that_holds_for_less_is_remembered_for_less() {
    let store = DENY.replace('}', r#", "denial_ttl": "1h"}"#);
    let mut worker = Worker::new(&store, [format!(r#""overrides": true, {}"#, policy(BUCKET))]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([denied(DAY).remaining(0).and(&[1, 10, 0])]), [(1, false)]);
    assert_eq!(asked_again(&mut worker), secs(1), "an override is seen within a second");
    // The limit itself says 20 ms.
    let mut worker = Worker::new(&store, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    worker.answer([denied(ms(20)).remaining(0)]);
    assert_eq!(asked_again(&mut worker), ms(20));
}

/// Redis has denied nothing yet, and what others give back may be granted.
#[test]
fn a_subject_that_took_the_last_unit_is_asked_about_again() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([granted(1).remaining(0).wait(DAY)]), [(1, true)]);
    assert_eq!(worker.arrive(2, &["ann"]), None);
}

#[test]
fn a_concurrency_limit_that_denied_is_always_asked_again() {
    let mut worker = Worker::new(ALLOW, [policy(PLACES)]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([denied(MINUTE)]), [(1, false)]);
    assert_eq!(worker.arrive(2, &["ann"]), None, "a place may have become free");
}

#[test]
fn when_a_denial_is_old_one_question_is_in_flight() {
    let mut worker = denied_for_a_day(DENY, [policy(BUCKET)]);
    worker.skip(secs(2));
    worker.all_wait(10..20, "ann");
    let question = worker.batch();
    assert_eq!(question.tasks(), [check("p0|ann", 10)]);
    // Requests that arrive meanwhile are decided by its answer, and ask nothing.
    worker.all_wait(20..30, "ann");
    worker.all_wait([40], "bob");
    let decided = worker.reply(&question, [denied(DAY)]);
    assert_eq!(decided, (10..20).map(|stream| (stream, false)).collect::<Vec<_>>());
    assert_eq!(worker.batch().tasks(), [check("p0|bob", 1)]);
    assert_eq!(worker.released(), (20..30).map(|stream| (stream, false)).collect::<Vec<_>>());
}

// --- Several policies -------------------------------------------------------------------------------------------------

#[test]
fn a_denial_refunds_what_other_policies_granted() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 1), check("p1|all", 1)]);
    assert_eq!(worker.reply(&batch, [granted(1), granted(0)]), [(1, false)]);
    assert_eq!(worker.batch().tasks(), [refund("p0|ann", 1)]);
}

#[test]
fn a_request_that_one_policy_is_known_to_deny_asks_no_other() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    assert_eq!(worker.answer([denied(secs(1)), denied(secs(1))]), [(1, false)]);
    assert_eq!(worker.arrive(2, &["ann", "all"]), Some(false));
    assert!(!worker.engine.wants_to_send());
}

#[test]
fn a_request_that_one_policy_is_known_to_deny_asks_no_other_of_which_nothing_is_known() {
    let mut worker = denied_for_a_day(DENY, [policy(BUCKET), policy(BUCKET)]);
    assert_eq!(worker.arrive(2, &["ann", "all"]), Some(false));
    assert!(!worker.engine.wants_to_send(), "nothing is known of the other policy's subject");
}

#[test]
fn a_refund_makes_the_subject_worth_asking_about_again() {
    let mut worker = Worker::new(DENY, [policy(BUCKET), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    worker.all_wait([2], "ann");
    // The one unit goes to the first request, which the other policy denies.
    assert_eq!(worker.answer([granted(1).wait(DAY), denied(DAY)]), [(2, false), (1, false)]);
    assert_eq!(worker.arrive(3, &["ann"]), None);
}

// --- While Redis is unavailable ---------------------------------------------------------------------------------------

#[test]
fn a_subject_that_redis_denied_stays_denied_while_redis_is_unavailable() {
    let mut worker = denied_for_a_day(ALLOW, [policy(BUCKET)]);
    worker.skip(secs(2));
    worker.all_wait([2], "ann");
    worker.all_wait([3], "bob");
    assert_eq!(worker.lose(), [(2, false), (3, true)]);
    worker.skip(DAY);
    worker.all_wait([4], "ann");
    assert_eq!(worker.lose(), [(4, true)], "the day is over");
}

#[test]
fn a_denial_that_holds_for_less_is_not_relied_on_for_longer_while_redis_is_unavailable() {
    let short = r#"{"max": 8, "min": 2, "duration": "100ms"}"#;
    let mut worker = Worker::new(ALLOW, [leased(short, WINDOW)]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([denied(DAY)]), [(1, false)]);
    // The requests that other workers held on lease may be back by now.
    worker.idle(ms(100));
    worker.all_wait([2], "ann");
    assert_eq!(worker.lose(), [(2, true)]);
}

// --- A clock that is set back -----------------------------------------------------------------------------------------

#[test]
fn a_clock_that_was_set_back_does_not_prolong_a_denial() {
    let mut worker = denied_for_a_day(DENY, [policy(BUCKET)]);
    worker.set_back(Micros(1));
    assert_eq!(worker.arrive(2, &["ann"]), None);
}

#[test]
fn a_denial_of_unknown_age_is_not_remembered() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    let sent = worker.now;
    worker.set_back(secs(3_600));
    assert_eq!(worker.reply(&batch, [denied(DAY)]), [(1, false)]);
    // An hour later.
    worker.now = sent.plus(Micros(1));
    assert_eq!(worker.arrive(2, &["ann"]), None);
}

// --- Values of `distinct` limits ----------------------------------------------------------------------------------------

const VALUES: &str = r#"{"name": "l", "algorithm": "distinct", "limit": 2, "window": "1d", "of": [{"header": {"name": "x-value"}}]}"#;

/// A request of `ann` with this value arrives.
fn uses(worker: &mut Worker, stream: StreamId, value: u8) -> Option<bool> {
    let check = Check { member: Member([value; 12]), ..check_of(0, "{p0|ann}", 1) };
    match worker.engine.submit(stream, [check].into_iter().collect(), worker.now) {
        Submitted::Wait => None,
        Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
    }
}

#[test]
fn a_denial_is_for_the_value_that_was_denied() {
    let mut worker = Worker::new(DENY, [policy(VALUES)]);
    assert_eq!(uses(&mut worker, 1, 1), None);
    assert_eq!(worker.answer([denied(DAY)]), [(1, false)]);
    assert_eq!(uses(&mut worker, 2, 1), Some(false), "the store has said so");
    assert_eq!(uses(&mut worker, 3, 2), None, "another value may be counted already");
    assert_eq!(worker.answer([granted(1)]), [(3, true)]);
    assert_eq!(uses(&mut worker, 4, 1), Some(false));
}

#[test]
fn requests_with_one_value_are_one_check_and_those_with_others_are_others() {
    let mut worker = Worker::new(DENY, [policy(VALUES)]);
    for (stream, value) in [(1, 1), (2, 2), (3, 1), (4, 3), (5, 1)] {
        assert_eq!(uses(&mut worker, stream, value), None);
    }
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 3), check("p0|ann", 1), check("p0|ann", 1)]);
    // Behind the time, the number of requests and their cost: the value.
    let values: Vec<[u8; 12]> = batch
        .commands
        .iter()
        .map(|command| {
            let question = numbers(command.words.last().expect("the question"));
            let half = |place: usize| question[place].to_le_bytes();
            let bytes: Vec<u8> = [half(3), half(4)].iter().flat_map(|half| half[..6].to_vec()).collect();
            bytes.try_into().expect("twelve")
        })
        .collect();
    assert_eq!(values, [1, 2, 3].map(|value| [value; 12]));
    let outcomes = worker.reply(&batch, [granted(3), granted(1), denied(DAY)]);
    assert_eq!(outcomes, [(1, true), (3, true), (5, true), (2, true), (4, false)]);
}

#[test]
fn a_ban_is_for_all_values() {
    let ban = r#""ban": {"after": 1, "window": "10m", "duration": "1h"}"#;
    let mut worker = Worker::new(DENY, [format!("{ban}, {}", policy(VALUES))]);
    assert_eq!(uses(&mut worker, 1, 1), None);
    assert_eq!(worker.answer([granted(0).and(&[micros(secs(3_600))])]), [(1, false)]);
    assert_eq!([uses(&mut worker, 2, 1), uses(&mut worker, 3, 2)], [Some(false); 2]);
}

/// Another policy denies the request: what this one has granted is refunded by its receipt, which names the value.
#[test]
fn a_refund_names_the_value_by_its_receipt() {
    let mut worker = Worker::new(DENY, [policy(VALUES), policy(BUCKET)]);
    let value = Check { member: Member([7; 12]), ..check_of(0, "{p0|ann}", 1) };
    let checks = [value, check_of(1, "{p1|ann}", 1)].into_iter().collect();
    assert!(matches!(worker.engine.submit(1, checks, worker.now), Submitted::Wait));
    let low = 0x0707_0707_0707;
    assert_eq!(worker.answer([granted(1).delay(Micros(low)), denied(DAY)]), [(1, false)]);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [refund("p0|ann", 1)]);
    let receipt = numbers(batch.commands[0].words.last().expect("the receipt"));
    assert_eq!(receipt[5], i64::try_from(low).expect("48 bits"), "behind what was left and the reset");
}
