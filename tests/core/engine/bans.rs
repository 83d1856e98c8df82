// SPDX-License-Identifier: Apache-2.0
//! The bans that a worker knows of.

use weir::config::Config;
use weir::engine::{Action, StreamId, Submitted};
use weir::limit::RetryAfter;
use weir::policy::{Check, OnFailure};
use weir::time::Micros;

use super::usage::measured;
use crate::worker::*;

const HOUR: Micros = secs(3_600);

/// A policy whose subjects may be banned.
fn banning(limits: &str) -> String {
    format!(r#""ban": {{"after": 3, "window": "10m", "duration": "1h"}}, {}"#, policy(limits))
}

/// The limits grant nothing for a second, and the subject is not banned yet.
fn not_yet() -> Reply {
    denied(secs(1)).and(&[0])
}

/// The subject is banned for so long. Its limit has come back.
fn banned(rest: Micros) -> Reply {
    granted(0).and(&[micros(rest)])
}

/// The time to retry for a request of `ann` that is rejected at once.
fn retry_after(worker: &mut Worker, stream: StreamId) -> RetryAfter {
    let checks = [check_of(0, "{p0|ann}", 1)].into_iter().collect();
    match worker.engine.submit(stream, checks, worker.now) {
        Submitted::Decided(Action::Reject(rejection)) => rejection.retry_after,
        _ => panic!("it is not rejected"),
    }
}

/// A worker that knows `ann` to be banned for an hour from now.
fn with_ann_banned(store: &str) -> Worker {
    let mut worker = Worker::new(store, [banning(BUCKET)]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([banned(HOUR)]), [(1, false)]);
    worker.close(1);
    worker
}

#[test]
fn each_denial_is_counted_until_the_subject_is_banned() {
    let mut worker = Worker::new(DENY, [banning(BUCKET)]);
    for stream in 1..4 {
        worker.all_wait([stream], "ann");
        assert_eq!(worker.answer([not_yet()]), [(stream, false)], "the store has to count it");
    }
    worker.all_wait(4..6, "ann");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2)], "both count");
    assert_eq!(worker.reply(&batch, [banned(HOUR)]), [(4, false), (5, false)]);
    assert_eq!(worker.arrive(6, &["ann"]), Some(false));
    assert_eq!(worker.arrive(7, &["bob"]), None, "others are asked about");
}

#[test]
fn what_the_limits_still_grant_passes_beside_the_denial_that_begins_a_ban() {
    let mut worker = Worker::new(DENY, [banning(BUCKET)]);
    worker.all_wait(1..6, "ann");
    let begun = granted(2).and(&[micros(HOUR)]);
    assert_eq!(worker.answer([begun]), [(1, true), (2, true), (3, false), (4, false), (5, false)]);
    let outcomes = [1, 3].map(|stream| worker.engine.record(stream).map(|record| record.outcome));
    assert_eq!(outcomes, [Some("admitted"), Some("banned")]);
    let counters = worker.engine.counters();
    assert_eq!((counters.rejected, counters.banned), (3, 3));
}

#[test]
fn a_banned_subject_is_asked_about_again_after_denial_ttl_and_no_later_than_its_end() {
    let mut worker = with_ann_banned(DENY);
    worker.skip(ms(999));
    assert_eq!(retry_after(&mut worker, 2), RetryAfter::After(HOUR.since(ms(999))), "what is left of it");
    worker.skip(secs(2));
    worker.all_wait([3], "ann");
    assert_eq!(worker.answer([granted(1).and(&[0])]), [(3, true)], "an operator has lifted the ban");

    let hour = DENY.replace('}', r#", "denial_ttl": "1h"}"#);
    let mut worker = with_ann_banned(&hour);
    let asked = worker.now;
    worker.skip(HOUR.since(secs(1)));
    assert_eq!(worker.arrive(2, &["ann"]), Some(false));
    worker.now = asked.plus(HOUR);
    assert_eq!(worker.arrive(3, &["ann"]), None);
}

#[test]
fn a_ban_without_an_end_is_asked_about_again_like_any_other() {
    let mut worker = Worker::new(DENY, [banning(BUCKET)]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([granted(0).and(&[-1])]), [(1, false)]);
    assert_eq!(worker.arrive(2, &["ann"]), Some(false));
    worker.skip(secs(2));
    worker.all_wait([3], "ann");
}

#[test]
fn refunds_do_not_lift_a_ban() {
    let mut worker = Worker::new(DENY, [banning(BUCKET), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    worker.all_wait([2], "ann");
    // The first request is granted, and refunded because the other policy denies it. The second begins a ban.
    let begun = granted(1).and(&[micros(HOUR)]);
    assert_eq!(worker.answer([begun, denied(DAY)]), [(2, false), (1, false)]);
    assert_eq!(worker.arrive(3, &["ann"]), Some(false));
}

#[test]
fn a_known_ban_lasts_while_redis_is_unavailable_whatever_else_holds_for_less() {
    for own in ["", r#""overrides": true, "#] {
        let mut worker = Worker::new(ALLOW, [format!("{own}{}", banning(BUCKET))]);
        worker.all_wait([1], "ann");
        let reply = if own.is_empty() { granted(0) } else { granted(0).and(&[1, 10, 0]) };
        assert_eq!(worker.answer([reply.and(&[micros(HOUR)])]), [(1, false)]);
        worker.skip(HOUR.since(secs(1)));
        worker.all_wait([2], "ann");
        worker.all_wait([3], "bob");
        assert_eq!(worker.lose(), [(2, false), (3, true)]);
        worker.skip(secs(1));
        worker.all_wait([4], "ann");
        assert_eq!(worker.lose(), [(4, true)], "the ban is over");
    }
}

#[test]
fn a_worker_alone_begins_no_ban() {
    let window = WINDOW.replace("100", "1").replace("1d", "1s");
    let mut worker = Worker::new(LOCAL, [banning(&window)]);
    worker.all_wait(1..9, "ann");
    let decided = worker.lose();
    assert_eq!(decided.iter().filter(|(_, admitted)| *admitted).count(), 1, "its share");
    worker.skip(secs(1));
    worker.all_wait([9], "ann");
    assert_eq!(worker.lose(), [(9, true)], "seven denials, and no ban");
}

#[test]
fn of_two_policies_one_bans() {
    let mut worker = Worker::new(DENY, [policy(BUCKET), banning(BUCKET)]);
    worker.arrive(1, &["all", "ann"]);
    let batch = worker.batch();
    assert_eq!(worker.reply(&batch, [granted(1), banned(HOUR)]), [(1, false)]);
    let refunds = worker.batch();
    assert_eq!(refunds.tasks(), [refund("p0|all", 1)]);
    worker.reply(&refunds, [done()]);
    assert_eq!(worker.engine.record(1).map(|record| (record.policy, record.outcome)), Some(("p1", "banned")));
    // Nothing is asked of either policy about `ann`, and everything about `bob`.
    assert_eq!(worker.arrive(2, &["all", "ann"]), Some(false));
    assert!(!worker.engine.wants_to_send());
    worker.arrive(3, &["all", "bob"]);
    assert_eq!(worker.batch().tasks(), [check("p0|all", 1), check("p1|bob", 1)]);
}

#[test]
fn only_what_may_lead_to_a_ban_is_asked_about_again_at_once() {
    let named = |name: &str, policy: String| format!(r#"{{"name": "{name}", {policy}}}"#);
    let policies = [named("a", policy(BUCKET)), named("b", banning(BUCKET))].join(", ");
    let config = Config::parse(format!(r#"{{"policies": [{policies}]}}"#).as_bytes()).unwrap();
    let denial = |ban| weir::decision::Decision {
        granted: false,
        delay: Micros::ZERO,
        limits: Vec::new().into(),
        ban,
        own: None,
        at: Micros::ZERO,
    };
    let hour = RetryAfter::After(HOUR);
    let rows = [
        (0, RetryAfter::Now, secs(1), Micros(u64::MAX)),
        (1, RetryAfter::Now, Micros::ZERO, Micros(u64::MAX)),
        (1, hour, secs(1), Micros(u64::MAX)),
    ];
    for (place, ban, min, unanswered) in rows {
        let ttl = config.denial_ttl(&check_of(place, "{s}", 1), &denial(ban));
        assert_eq!((ttl.min, ttl.unanswered), (min, unanswered), "{place} {ban:?}");
    }
}

/// `p0` has a ban whose scope is `p1`, with these fields.
fn closing(own: &str, other: &str) -> [String; 2] {
    let ban = banning(BUCKET).replace(r#""1h"}"#, r#""1h", "scope": ["p1"]}"#);
    [format!("{own}{ban}"), format!("{other}{}", policy(WINDOW))]
}

/// A request of `ann` to the second of these policies.
fn arrive_at_other(worker: &mut Worker, stream: StreamId) -> Option<bool> {
    let policies = &worker.engine.config().policies;
    let other = Check { mode: policies[1].mode, ..check_of(1, "{p1|ann}", 1) };
    let checks = [policies[0].ban_check(0, &other), other].into_iter().collect();
    match worker.engine.submit(stream, checks, worker.now) {
        Submitted::Wait => None,
        Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
    }
}

fn recorded(worker: &Worker, stream: StreamId) -> Option<(&str, &str)> {
    worker.engine.record(stream).map(|record| (record.policy, record.outcome))
}

#[test]
fn a_ban_rejects_the_requests_of_other_policies_and_takes_nothing_for_them() {
    let mut worker = Worker::new(DENY, closing(r#""usage_journal": true, "#, ""));
    assert_eq!(arrive_at_other(&mut worker, 1), None);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [Task { number: 0, ..check("p0|ann", 0) }, check("p1|ann", 1)]);
    assert_eq!(worker.reply(&batch, [not_yet(), granted(1)]), [(1, true)], "only the ban counts");
    assert_eq!(recorded(&worker, 1), Some(("p1", "admitted")));
    worker.close(1);
    assert_eq!(worker.drain(), [], "there is nothing to return");

    assert_eq!(arrive_at_other(&mut worker, 2), None);
    assert_eq!(worker.answer([banned(HOUR), granted(1)]), [(2, false)]);
    assert_eq!(recorded(&worker, 2), Some(("p0", "banned")));
    assert_eq!(worker.drain(), [refund("p1|ann", 1)]);
    assert_eq!((arrive_at_other(&mut worker, 3), worker.engine.wants_to_send()), (Some(false), false));
    worker.skip(secs(2));
    assert_eq!(arrive_at_other(&mut worker, 4), None);
    assert_eq!(worker.answer([granted(0).and(&[0]), granted(1)]), [(4, true)], "an operator has lifted it");
    let counts = measured(&mut worker);
    let count = |of: &str| counts.get(&format!("weir.policy.p0.requests.{of}")).copied();
    let counted = ["allowed.redis", "banned.redis", "banned.denied-until"].map(count);
    assert_eq!((counted, counts.get("weir.usage_waiting")), ([None, Some(1), Some(1)], None));
}

#[test]
fn a_ban_that_is_not_known_closes_nothing() {
    for own in [r#""on_failure": "deny", "#, r#""on_failure": "local", "#] {
        let mut worker = Worker::new(ALLOW, closing(own, ""));
        let config = worker.engine.config();
        let ban = config.policies[0].ban_check(0, &check_of(1, "{p1|ann}", 1));
        assert_eq!(config.on_failure(&ban), OnFailure::Allow);
        worker.all_wait(11..21, "ann");
        worker.lose();
        assert_eq!(arrive_at_other(&mut worker, 1), None);
        assert_eq!(worker.lose(), [(1, true)], "the local share of the ban's policy is used up");
        assert_eq!(recorded(&worker, 1), Some(("p1", "unanswered")));
        assert_eq!(arrive_at_other(&mut worker, 2), None);
        assert_eq!(worker.answer([banned(HOUR), granted(1)]), [(2, false)]);
        worker.skip(HOUR.since(secs(1)));
        assert_eq!(arrive_at_other(&mut worker, 3), None);
        assert_eq!(worker.lose(), [(3, false)], "it is known");
    }
}

#[test]
fn a_known_ban_closes_other_costs_and_other_policies_also_without_the_store() {
    let mut worker = Worker::new(ALLOW, closing("", ""));
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([banned(HOUR)]), [(1, false)]);
    assert_eq!(arrive_at_other(&mut worker, 2), Some(false), "the worker has seen it in the own policy");
    worker.skip(HOUR.since(secs(1)));
    assert_eq!(worker.arrive_costing(5, 3, &["ann"]), None);
    assert_eq!(arrive_at_other(&mut worker, 4), None);
    assert_eq!(worker.arrive(5, &["bob"]), None);
    assert_eq!(worker.lose(), [(3, false), (4, false), (5, true)]);
    worker.skip(secs(2));
    assert_eq!(arrive_at_other(&mut worker, 6), None, "the ban has ended");
    assert_eq!(worker.lose(), [(6, true)]);
}

#[test]
fn a_ban_without_an_end_lasts_as_long_as_the_store_is_away() {
    let mut worker = Worker::new(ALLOW, closing("", ""));
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([granted(0).and(&[-1])]), [(1, false)]);
    for stream in [2, 4] {
        worker.skip(HOUR);
        worker.all_wait([stream], "ann");
        assert_eq!(arrive_at_other(&mut worker, stream + 1), None);
        assert_eq!(worker.lose(), [(stream, false), (stream + 1, false)]);
    }
}

#[test]
fn a_ban_that_was_seen_lifted_is_not_remembered() {
    let mut worker = Worker::new(ALLOW, closing("", ""));
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([banned(HOUR)]), [(1, false)]);
    worker.skip(secs(2));
    worker.all_wait([2], "ann");
    assert_eq!(worker.answer([granted(1).and(&[0])]), [(2, true)], "an operator has lifted it");
    worker.all_wait([3], "ann");
    assert_eq!(arrive_at_other(&mut worker, 4), None);
    assert_eq!(worker.lose(), [(3, true), (4, true)]);
}

#[test]
fn a_policy_in_shadow_closes_no_other_and_is_closed_by_none() {
    let shadow = r#""mode": "shadow", "#;
    for (own, other) in [(shadow, ""), ("", shadow)] {
        let mut worker = Worker::new(DENY, closing(own, other));
        assert_eq!(arrive_at_other(&mut worker, 1), None);
        assert_eq!(worker.answer([banned(HOUR), granted(1)]), [(1, true)]);
        assert_eq!(recorded(&worker, 1), Some(("p0", "shadow")));
    }
}
