// SPDX-License-Identifier: Apache-2.0
//! `scale` multiplies a policy's limits for each subject, by a number in its requests.

use weir::config::Config;
use weir::decision::{CheckAnswer, Decision};
use weir::engine::{Action, StreamId, Submitted};
use weir::limit::Subject;
use weir::policy::Check;

use crate::worker::*;

const DAILY: &str = r#"{"name": "l", "algorithm": "fixed_window", "limit": 10, "window": "1d"}"#;

/// These limits, times what the request says.
fn scaled(limits: &str) -> String {
    format!(r#""scale": {{"from": {{"header": {{"name": "x"}}}}, "max": 9}}, {}"#, policy(limits))
}

/// A request of `ann` that says so.
fn arrive(worker: &mut Worker, stream: StreamId, scale: u64) -> Option<bool> {
    let check = Check { scale, ..check_of(0, "{p0|ann}", 1) };
    match worker.engine.submit(stream, [check].into_iter().collect(), worker.now) {
        Submitted::Wait => None,
        Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
    }
}

#[test]
fn requests_of_several_scales_share_no_task_and_each_asks_with_its_limits() {
    let mut worker = Worker::new(DENY, [scaled(BUCKET)]);
    for (stream, scale) in [(1, 1), (2, 3), (3, 1), (4, 3)] {
        assert_eq!(arrive(&mut worker, stream, scale), None);
    }
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2), check("p0|ann", 2)]);
    let [one, three] = [0, 1].map(|place| batch.commands[place].words.clone());
    assert_eq!(one[..4], three[..4], "the same script and keys");
    assert_ne!(one[4], three[4], "other numbers");
    assert_eq!(
        worker.reply(&batch, [denied(secs(9)), granted(2).remaining(20)]),
        [(1, false), (3, false), (2, true), (4, true)]
    );
    assert_eq!(worker.remaining(4), 20);
    // A denial at one scale is none at another.
    assert_eq!(arrive(&mut worker, 5, 1), Some(false));
    assert_eq!(arrive(&mut worker, 6, 2), None);
}

#[test]
fn a_share_is_of_the_limits_at_that_scale() {
    let local = r#"{"deadline": "50ms", "on_failure": "local", "workers": 5}"#;
    let mut worker = Worker::new(local, [scaled(DAILY)]);
    let mut stream = 0;
    let mut fail = |worker: &mut Worker, scale| {
        stream += 1;
        arrive(worker, stream, scale).unwrap_or_else(|| worker.lose()[0].1)
    };
    assert_eq!([1; 3].map(|scale| fail(&mut worker, scale)), [true, true, false], "a fifth of ten");
    let more = [2; 3].map(|scale| fail(&mut worker, scale));
    assert_eq!(more, [true, true, false], "a fifth of twenty, of which two are used");
}

#[test]
fn a_lease_is_for_requests_of_its_scale() {
    let lease = format!(r#""lease": {{"max": 2, "min": 2}}, {}"#, scaled(BUCKET));
    let mut worker = Worker::new(DENY, [lease]);
    assert_eq!(arrive(&mut worker, 1, 1), None);
    assert_eq!(worker.answer([granted(3).remaining(7)]), [(1, true)]);
    assert_eq!(arrive(&mut worker, 2, 3), None, "the lease is of a smaller limit");
    assert_eq!(arrive(&mut worker, 3, 1), Some(true));
}

#[test]
fn clients_are_told_the_quota_that_they_have() {
    let config = Config::parse(
        br#"{"policies": [{"name": "p", "limits": [
            {"name": "l", "algorithm": "fixed_window", "limit": 10, "window": "1m"},
            {"name": "c", "algorithm": "concurrency", "limit": 4},
            {"name": "d", "algorithm": "leaky_bucket", "rate": "2/s", "burst": 2, "max_delay": "900ms"}],
            "priority": [{"when": {"path": {"exact": "/health"}}, "percent": 25}],
            "scale": {"from": {"header": {"name": "x"}}, "max": 9}}]}"#,
    )
    .expect("a configuration");
    let told = |scale, kept_percent| {
        let check = Check { scale, kept_percent, ..check_of(0, "{p|ann}", 1) };
        let plan = config.plan(&check).expect("a plan");
        let outcome = Subject::default().check(plan.limits(), None, START, check.ask(1));
        let answer = CheckAnswer::Store(Decision::new(&outcome, plan.limits(), 0, check.ask(1)));
        let answers = weir::policy::answers(&config.policies, [(&check, &answer)].into_iter());
        let weir::response::Verdict::Admit(admission) = weir::response::verdict(&answers) else {
            panic!("it is admitted")
        };
        let field =
            |name| admission.headers.iter().find(|header| header.name == name).map(|of| of.value.clone());
        let left = field("ratelimit").expect("a field").replace(";t=60", "").replace(";t=0", "");
        (field("ratelimit-policy").expect("a field"), left)
    };
    // What `max_delay` holds is rounded down: 2 + 1.8 units, 6 + 5.4.
    let expected =
        |l, c, (d, w)| format!("\"l\";q={l};w=60, \"c\";q={c};qu=\"concurrent-requests\", \"d\";q={d};w={w}");
    for (scale, kept_percent, quotas, left) in [
        (1, 0, (10, 4, (3, 2)), (9, 3, 2)),
        (3, 0, (30, 12, (11, 2)), (29, 11, 10)),
        (3, 25, (22, 9, (8, 2)), (21, 8, 7)),
    ] {
        let (policy, state) = told(scale, kept_percent);
        assert_eq!(policy, expected(quotas.0, quotas.1, quotas.2), "times {scale}, {kept_percent} % kept");
        let of = |name: &str, left: u64| state.contains(&format!("\"{name}\";r={left}"));
        assert!(of("l", left.0) && of("c", left.1) && of("d", left.2), "{state}");
    }
}
