// SPDX-License-Identifier: Apache-2.0
//! A limit that is as full as its `warn_at_percent`: the warnings to clients, journal and metrics, and their number.

use weir::policy::{Check, Mode};

use super::journal::{numbers_of, written_alone};
use super::usage::measured;
use crate::worker::*;

/// A limit of 100 units a day that warns at 80 percent, or so.
fn worker(window: &str, beside: &str, journal: &str) -> Worker {
    let warns = window.replace('}', r#", "warn_at_percent": 80}"#);
    Worker::configured(&format!(
        r#"{{"store": {DENY}, "journal": {journal}, "policies": [{{"name": "p0", {beside}, {}}}]}}"#,
        policy(&warns)
    ))
}

/// The number of requests with a warning of the limit.
fn counted(worker: &mut Worker) -> i64 {
    measured(worker).get("weir.policy.p0.limit.l.warned").copied().unwrap_or(0)
}

/// The effects of a request: the header, the percentages in the journal, and the count of the metric.
fn told(worker: &mut Worker, check: Check, reply: Reply) -> (Option<String>, Vec<u64>, i64) {
    let submitted = worker.engine.submit(1, [check].into_iter().collect(), worker.now);
    assert!(matches!(submitted, weir::engine::Submitted::Wait));
    worker.answer([reply]);
    let headers = worker.engine.headers_to_add(1).unwrap_or_default();
    let header = headers.iter().find(|header| header.name == "x-ratelimit-warning");
    let header = header.map(|header| header.value.clone());
    let warned = |entry: &Entry| entry["outcome"] == "warned";
    let entries: Vec<_> = written_alone(worker).into_iter().filter(warned).collect();
    let count = counted(worker);
    worker.close(1);
    (header, numbers_of(&entries, "used_percent"), count)
}

#[test]
fn a_request_that_leaves_a_limit_nearly_full_is_told_of() {
    const SHOWN: &str = r#""response": {"warning_header": true}"#;
    const KEPT: &str = r#""response": {"warning_header": true}, "priority": [{"when": {"path": {"prefix": "/vip"}}, "percent": 50}]"#;
    let enforce = || check_of(0, "{p0|ann}", 1);
    let shadow = || Check { mode: Mode::Shadow, ..enforce() };
    let tenfold = || Check { scale: 10, ..enforce() };
    let common = || Check { kept_percent: 50, ..enforce() };
    type Row = (&'static str, &'static str, Check, Reply, Option<&'static str>, &'static [u64], i64);
    let rows: [Row; 11] = [
        ("less full", SHOWN, enforce(), granted(1).remaining(21), None, &[], 0),
        ("as full", SHOWN, enforce(), granted(1).remaining(20), Some(r#""l";used=80"#), &[80], 1),
        ("full", SHOWN, enforce(), granted(1).remaining(0), Some(r#""l";used=100"#), &[100], 1),
        ("denied", SHOWN, enforce(), denied(MINUTE).remaining(0), None, &[], 0),
        ("no header", r#""mode": "enforce""#, enforce(), granted(1).remaining(9), None, &[91], 1),
        ("in shadow clients see nothing", SHOWN, shadow(), granted(1).remaining(9), None, &[91], 1),
        ("of ten times the limit", SHOWN, tenfold(), granted(1).remaining(201), None, &[], 0),
        ("as full", SHOWN, tenfold(), granted(1).remaining(200), Some(r#""l";used=80"#), &[80], 1),
        ("where half is kept for others", KEPT, common(), granted(1).remaining(61), None, &[], 0),
        ("as full", KEPT, common(), granted(1).remaining(60), Some(r#""l";used=80"#), &[80], 1),
        (
            "headers of limits do not matter",
            r#""response": {"warning_header": true, "headers": "none"}"#,
            enforce(),
            granted(1).remaining(5),
            Some(r#""l";used=95"#),
            &[95],
            1,
        ),
    ];
    for (name, beside, check, reply, header, journal, counted) in rows {
        let found = told(&mut worker(WINDOW, beside, "{}"), check, reply);
        assert_eq!(found, (header.map(str::to_owned), journal.to_vec(), counted), "{name}");
    }
}

/// A lease knows what the store has left. The worker's own share is not the limit.
#[test]
fn a_lease_warns_and_a_local_share_does_not() {
    let mut leased = worker(WINDOW, r#""lease": {"max": 8, "min": 2, "duration": "1s"}"#, "{}");
    assert_eq!(leased.arrive(1, &["ann"]), None);
    leased.answer([granted(3).remaining(17).reset(MINUTE)]);
    assert_eq!(leased.arrive(2, &["ann"]), Some(true));
    assert_eq!(counted(&mut leased), 2);
    let mut local = worker(WINDOW, r#""on_failure": "local""#, "{}");
    local.all_wait([1], "ann");
    let batch = local.batch();
    assert_eq!(local.fail(&batch), [(1, true)]);
    assert_eq!(counted(&mut local), 0);
}

#[test]
fn a_journal_has_one_warning_until_the_limit_would_be_full_again() {
    let mut worker = worker(WINDOW, r#""mode": "enforce""#, "{}");
    let warned = |worker: &mut Worker, subject: &str, left: i64| {
        worker.all_wait([1], subject);
        worker.answer([granted(1).remaining(left).reset(MINUTE)]);
        let entries = written_alone(worker);
        worker.close(1);
        entries
            .iter()
            .map(|entry| format!("{} {}", entry["subject"], entry["used_percent"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(warned(&mut worker, "ann", 15), ["{p0|ann} 85"]);
    assert!(warned(&mut worker, "ann", 14).is_empty(), "it is known");
    assert_eq!(warned(&mut worker, "bob", 14), ["{p0|bob} 86"]);
    worker.idle(secs(59));
    assert!(warned(&mut worker, "ann", 13).is_empty(), "the limit is not full again");
    worker.idle(secs(1));
    assert_eq!(warned(&mut worker, "ann", 12), ["{p0|ann} 88"]);
    let full_again = worker.now.plus(MINUTE);
    assert_eq!(warned(&mut worker, "cat", 12), ["{p0|cat} 88"]);
    worker.idle(full_again.since(worker.now));
    assert_eq!(warned(&mut worker, "cat", 11), ["{p0|cat} 89"], "from the moment at which it would be full");
}

/// A warning for which the journal has no room is written about the next request; without `shadow`, none of a policy in shadow.
#[test]
fn a_journal_keeps_its_bounds() {
    let mut full = worker(WINDOW, r#""mode": "enforce""#, r#"{"max_per_second": 1}"#);
    full.all_wait([1, 2], "ann");
    full.all_wait([3], "bob");
    full.answer([granted(2).remaining(9).reset(MINUTE), granted(1).remaining(9).reset(MINUTE)]);
    assert_eq!(written_alone(&mut full).len(), 1);
    full.idle(secs(1));
    full.all_wait([4], "bob");
    full.answer([granted(1).remaining(8).reset(MINUTE)]);
    assert_eq!(numbers_of(&written_alone(&mut full), "used_percent"), [92]);
    let mut quiet = worker(WINDOW, r#""mode": "enforce""#, r#"{"shadow": false}"#);
    let shadow = Check { mode: Mode::Shadow, ..check_of(0, "{p0|ann}", 1) };
    assert_eq!(told(&mut quiet, shadow, granted(1).remaining(9)), (None, vec![], 1));
}

/// A request that another policy rejects uses nothing.
#[test]
fn a_rejected_request_is_not_warned_of() {
    let policies = [policy(&WINDOW.replace('}', r#", "warn_at_percent": 80}"#)), policy(BUCKET)];
    for (second, warned) in [(granted(1), 1), (denied(MINUTE), 0)] {
        let config = configuration(DENY, policies.clone()).replacen('{', r#"{"journal": {}, "#, 1);
        let mut worker = Worker::configured(&config);
        assert_eq!(worker.arrive(1, &["ann", "ann"]), None);
        worker.answer([granted(1).remaining(9), second]);
        // A refund may leave first, with the entries behind it.
        let refund = worker.next_batch();
        let mut entries = refund.as_ref().map_or(vec![], |batch| batch.journal.clone());
        refund.map(|batch| worker.reply(&batch, [done()]));
        entries.extend(written_alone(&mut worker));
        assert_eq!(entries.iter().filter(|entry| entry["outcome"] == "warned").count(), warned);
    }
}

/// A warning tells how many denials were left out before it, as a denial does.
#[test]
fn a_warning_tells_what_was_left_out() {
    let mut worker = worker(WINDOW, r#""mode": "enforce""#, r#"{"max_per_second": 1}"#);
    worker.all_wait([1], "ann");
    worker.answer([denied(DAY)]);
    (2..5).for_each(|stream| assert_eq!(worker.arrive(stream, &["ann"]), Some(false)));
    assert_eq!(written_alone(&mut worker).len(), 1);
    worker.idle(secs(1));
    worker.all_wait([5], "bob");
    worker.answer([granted(1).remaining(9)]);
    let entries = written_alone(&mut worker);
    assert_eq!((numbers_of(&entries, "used_percent"), numbers_of(&entries, "skipped")), (vec![91], vec![3]));
}
