// SPDX-License-Identifier: Apache-2.0
//! Requests of several classes of one subject: what is kept for one class is kept from another.

use weir::decision::CheckAnswer;
use weir::engine::{Action, StreamId, Submitted};
use weir::limit::RetryAfter;

use crate::worker::*;

/// Ten at once, one a second. A third is kept for the first class.
fn ranked() -> String {
    let priority = r#""priority": [{"when": {"path": {"exact": "/health"}}, "percent": 33}]"#;
    format!("{priority}, {}", policy(BUCKET))
}

/// A request of `ann`, from which so many percent are kept for others.
fn arrive(worker: &mut Worker, stream: StreamId, kept_percent: u8) -> Option<bool> {
    let check = weir::policy::Check { kept_percent, ..check_of(0, "{p0|ann}", 1) };
    match worker.engine.submit(stream, [check].into_iter().collect(), worker.now) {
        Submitted::Wait => None,
        Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
    }
}

/// The last number of the question: what is kept.
fn kept(command: &Command) -> u64 {
    let argument = command.words.last().expect("an argument");
    u64::from_le_bytes(argument[24..32].try_into().expect("a number"))
}

#[test]
fn requests_of_several_classes_share_no_task() {
    let mut worker = Worker::new(DENY, [ranked()]);
    for (stream, kept_percent) in [(1, 33), (2, 0), (3, 33), (4, 0)] {
        assert_eq!(arrive(&mut worker, stream, kept_percent), None);
    }
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2), check("p0|ann", 2)]);
    let asked: Vec<u64> = batch.commands.iter().map(kept).collect();
    assert_eq!(asked, [33, 0]);
    let replies = [denied(secs(9)), granted(2).remaining(1)];
    assert_eq!(worker.reply(&batch, replies), [(1, false), (3, false), (2, true), (4, true)]);
}

#[test]
fn a_denial_of_one_class_denies_no_other() {
    let mut worker = Worker::new(DENY, [ranked()]);
    assert_eq!(arrive(&mut worker, 1, 33), None);
    assert_eq!(worker.answer([denied(secs(9)).remaining(3)]), [(1, false)]);
    assert_eq!(arrive(&mut worker, 2, 33), Some(false), "the worker knows it");
    assert_eq!(arrive(&mut worker, 3, 0), None, "and asks about the other class");
    assert_eq!(worker.answer([granted(1).remaining(2)]), [(3, true)]);
    assert_eq!(arrive(&mut worker, 4, 33), Some(false));
}

/// Half of ten units are this worker's, and a third of them, rounded up, is kept.
#[test]
fn a_local_share_keeps_its_part() {
    let local = r#"{"deadline": "50ms", "on_failure": "local", "workers": 2}"#;
    let mut worker = Worker::new(local, [ranked()]);
    let mut stream = 0;
    let mut fail = |worker: &mut Worker, kept_percent| {
        stream += 1;
        arrive(worker, stream, kept_percent).unwrap_or_else(|| worker.lose()[0].1)
    };
    let ordinary = [(); 5].map(|()| fail(&mut worker, 33));
    assert_eq!(ordinary, [true, true, true, false, false], "two of its five are kept");
    let favoured = [(); 3].map(|()| fail(&mut worker, 0));
    assert_eq!(favoured, [true, true, false]);
}

#[test]
fn a_class_is_told_what_is_left_for_it() {
    let config = weir::config::Config::parse(
        br#"{"policies": [{"name": "p", "limits": [
            {"name": "l", "algorithm": "fixed_window", "limit": 10, "window": "1m"},
            {"name": "c", "algorithm": "concurrency", "limit": 4}],
            "priority": [{"when": {"path": {"exact": "/health"}}, "percent": 33}]}]}"#,
    )
    .expect("a configuration");
    let limits = [0, 33].map(|kept_percent| {
        let check = weir::policy::Check { kept_percent, ..check_of(0, "{p|ann}", 1) };
        let plan = config.plan(&check).expect("a plan");
        let outcome = weir::limit::Subject::default().check(plan.limits(), None, START, check.ask(2));
        let decision = weir::decision::Decision::new(&outcome, plan.limits(), 1, check.ask(2));
        let left: Vec<u64> = decision.limits.iter().map(|limit| limit.remaining).collect();
        let retry = decision.limits.iter().map(|limit| limit.retry_after).max();
        let answer = CheckAnswer::Store(decision);
        let answers = weir::policy::answers(&config.policies, [(&check, &answer)].into_iter());
        let headers = match weir::response::verdict(&answers) {
            weir::response::Verdict::Admit(admission) => admission.headers,
            weir::response::Verdict::Reject(rejection) => rejection.headers,
        };
        let header =
            headers.iter().find(|header| header.name == "ratelimit-policy").map(|of| of.value.clone());
        (left, retry == Some(RetryAfter::Now), header.unwrap_or_default())
    });
    let policy =
        |window, permits| format!("\"l\";q={window};w=60, \"c\";q={permits};qu=\"concurrent-requests\"");
    assert_eq!(limits, [(vec![8, 2], true, policy(10, 4)), (vec![4, 0], false, policy(6, 2))]);
}
