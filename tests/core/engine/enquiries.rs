// SPDX-License-Identifier: Apache-2.0
//! Quota requests: they are charged nothing, whatever comes of them, and the client gets what the store says.

use serde_json::{Value, json};
use weir::engine::{Action, StreamId, Submitted};
use weir::policy::{Check, Mode};
use weir::response::Rejection;

use crate::worker::*;

/// A quota request for these policies and subjects. A request of them would cost this.
fn ask(worker: &mut Worker, stream: StreamId, cost: u64, subjects: &[(usize, &str)]) -> Option<Rejection> {
    let check = |&(policy, subject): &(usize, &str)| Check {
        mode: Mode::QuotaRequest,
        ..check_of(policy, format!("{{p{policy}|{subject}}}"), cost)
    };
    submit(worker, stream, subjects.iter().map(check).collect())
}

fn submit(worker: &mut Worker, stream: StreamId, checks: Vec<Check>) -> Option<Rejection> {
    match worker.engine.submit_quota_request(stream, checks.into_iter().collect(), worker.now) {
        Submitted::Wait => None,
        Submitted::Decided(action) => Some(rejection(action)),
    }
}

fn rejection(action: Action) -> Rejection {
    match action {
        Action::Reject(rejection) => *rejection,
        Action::Admit => panic!("an enquiry never reaches the upstream"),
    }
}

/// The responses to what is decided now.
fn responses(worker: &mut Worker) -> Vec<(StreamId, Rejection)> {
    std::iter::from_fn(|| worker.engine.next_release())
        .map(|release| (release.stream, rejection(release.action)))
        .collect()
}

/// The tasks of the next batch, and the responses when the store replies so.
fn answer(worker: &mut Worker, replies: impl IntoIterator<Item = Reply>) -> (Vec<Task>, Vec<Rejection>) {
    let batch = worker.batch();
    worker.engine.replied(batch.id, &bytes(replies), worker.now);
    (batch.tasks(), responses(worker).into_iter().map(|(_, response)| response).collect())
}

fn policies(response: &Rejection) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(header(response, "cache-control"), Some("no-store"));
    assert_eq!(header(response, "content-type"), Some("application/json"));
    serde_json::from_str::<Value>(&response.body).expect("JSON")["policies"].clone()
}

fn header<'r>(response: &'r Rejection, name: &str) -> Option<&'r str> {
    response.headers.iter().find(|header| header.name == name).map(|header| header.value.as_str())
}

#[test]
fn the_answer_is_what_the_store_says() {
    let mut worker = Worker::new(DENY, [policy(BUCKET), policy(PLACES)]);
    assert_eq!(ask(&mut worker, 1, 3, &[(0, "ann"), (1, "ann")]), None);
    let bucket = granted(0).remaining(2).wait(ms(1_100)).reset(ms(7_900));
    let places = granted(0).remaining(4).reset(secs(40));
    let (asked, responses) = answer(&mut worker, [bucket, places]);
    assert_eq!(asked, [check("p0|ann", 0), check("p1|ann", 0)].map(|task| Task { number: 3, ..task }));
    let [response] = responses.as_slice() else { panic!("{responses:?}") };
    assert_eq!(
        policies(response),
        json!([
            {"policy": "p0", "limit": "p0.l", "quota": 10, "remaining": 2, "window_s": 10, "reset_s": 8, "retry_after_s": 2},
            {"policy": "p1", "limit": "p1.l", "quota": 5, "remaining": 4},
        ])
    );
    let policy = r#""p0.l";q=10;w=10, "p1.l";q=5;qu="concurrent-requests""#;
    assert_eq!(header(response, "ratelimit-policy"), Some(policy));
    assert_eq!(header(response, "ratelimit"), Some(r#""p0.l";r=2;t=2, "p1.l";r=4"#));
    assert_eq!(header(response, "retry-after"), None, "the enquiry itself was answered");
    assert_eq!(worker.engine.record(1).map(|record| record.outcome), Some("enquiry"));
    worker.close(1);
    assert_eq!(worker.drain(), [], "there is nothing to return");
    let counters = worker.engine.counters();
    assert_eq!(
        (counters.enquiries, counters.admitted, counters.rejected, worker.engine.request_count()),
        (1, 0, 0, 0)
    );
}

/// However many ask about one subject, the store is asked once in a batch. Requests of the subject have a task of their own.
#[test]
fn enquiries_about_one_subject_share_a_task() {
    let mut worker = Worker::new(SINGLE, [policy(BUCKET)]);
    worker.all_wait([1, 2], "ann");
    (3..50).for_each(|stream| assert_eq!(ask(&mut worker, stream, 1, &[(0, "ann")]), None));
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2), check("p0|ann", 0)]);
    worker.engine.replied(
        batch.id,
        &bytes([together([granted(2).remaining(3), granted(0).remaining(3)])]),
        worker.now,
    );
    let released: Vec<_> = std::iter::from_fn(|| worker.engine.next_release()).collect();
    assert_eq!(released.iter().filter(|release| matches!(release.action, Action::Admit)).count(), 2);
    assert_eq!(released.len(), 49);
    let told =
        released.into_iter().filter(|release| release.stream > 2).map(|release| rejection(release.action));
    told.for_each(|response| assert_eq!(policies(&response)[0]["remaining"], 3));
}

#[test]
fn a_request_without_policies_is_answered_at_once() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    let response = ask(&mut worker, 1, 1, &[]).expect("an answer");
    assert_eq!(policies(&response), json!([]));
    worker.close(1);
    assert_eq!(worker.engine.request_count(), 0);
}

/// A denial that the worker remembers answers a quota request, and the answer to a quota request denies no request.
#[test]
fn what_is_remembered_answers_and_nothing_is_remembered_of_an_answer() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    worker.answer([denied(secs(1)).remaining(0)]);
    worker.skip(ms(400));
    let response = ask(&mut worker, 2, 1, &[(0, "ann")]).expect("a denial is known");
    assert_eq!(
        (&policies(&response)[0]["remaining"], &policies(&response)[0]["retry_after_s"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(ask(&mut worker, 3, 1, &[(0, "bob")]), None);
    answer(&mut worker, [denied(DAY).remaining(0)]);
    assert_eq!(worker.arrive(4, &["bob"]), None, "the store is asked about a request");
}

#[test]
fn a_banned_client_is_told() {
    let ban = r#""ban": {"after": 3, "window": "10m", "duration": "1h"}"#;
    let mut worker = Worker::new(DENY, [format!("{ban}, {}", policy(BUCKET)), policy(WINDOW)]);
    for (stream, rest, wanted) in [
        (1, micros(MINUTE), json!({"policy": "p0", "banned": true, "retry_after_s": 60})),
        (2, -1, json!({"policy": "p0", "banned": true})),
    ] {
        assert_eq!(ask(&mut worker, stream, 1, &[(0, "ann"), (1, "ann")]), None);
        let (_, responses) = answer(&mut worker, [granted(0).and(&[rest]), granted(0)]);
        let told = policies(&responses[0]);
        assert_eq!(
            (&told[0], &told[1]["policy"], told.as_array().unwrap().len()),
            (&wanted, &json!("p1"), 2)
        );
        assert_eq!(header(&responses[0], "ratelimit-policy"), Some(r#""p1.l";q=100;w=86400"#));
    }
}

/// No failure causes a charge, and no quota request waits past its deadline.
#[test]
fn without_an_answer_of_the_store_there_is_none() {
    for store in [ALLOW, DENY, LOCAL] {
        let unavailable = |response: &Rejection| {
            assert_eq!(response.status, 503, "{response:?}");
            assert!(response.body.contains("#temporary-reduced-capacity"), "{response:?}");
            assert_eq!(header(response, "cache-control"), Some("no-store"));
            assert_eq!(header(response, "retry-after"), Some("1"));
        };
        let mut worker = Worker::new(store, [policy(BUCKET), policy(BUCKET)]);
        ask(&mut worker, 1, 1, &[(0, "ann")]);
        let batch = worker.batch();
        worker.idle(ms(60));
        let late = responses(&mut worker);
        assert_eq!(late.len(), 1, "{store}: at the deadline");
        unavailable(&late[0].1);
        worker.engine.replied(batch.id, &bytes([granted(0)]), worker.now);
        worker.close(1);
        // Half of the answer is none.
        ask(&mut worker, 2, 1, &[(0, "ann"), (1, "ann")]);
        let (_, half) = answer(&mut worker, [granted(0), error("LOADING")]);
        unavailable(&half[0]);
        worker.close(2);
        // While the breaker is open, the worker's share is whole.
        for stream in 10..30 {
            worker.arrive(stream, &["eve"]);
            if let Some(batch) = worker.next_batch() {
                worker.fail(&batch);
            }
        }
        for stream in 30..60 {
            if let Some(response) = ask(&mut worker, stream, 1, &[(0, "bob")]) {
                unavailable(&response);
            }
        }
        if store == LOCAL {
            assert_eq!(worker.arrive(60, &["bob"]), Some(true), "no enquiry has taken of it");
        }
    }
}

#[test]
fn a_policy_that_counts_enquiries_may_deny_them() {
    let places = PLACES.replace("\"l\"", "\"places\"");
    let mut worker = Worker::new(DENY, [policy(BUCKET), policy(&format!("{WINDOW}, {places}"))]);
    let checks = |subject: &str| {
        let asked = Check { mode: Mode::QuotaRequest, ..check_of(0, format!("{{p0|{subject}}}"), 1) };
        vec![asked, check_of(1, format!("{{p1|{subject}}}"), 1)]
    };
    assert_eq!(submit(&mut worker, 1, checks("ann")), None);
    // The script asks about places first.
    let counted = granted(1).permit(77).and(&[5, 0, micros(secs(1)), 0]);
    let (asked, responses) = answer(&mut worker, [granted(0), counted.clone()]);
    assert_eq!(asked, [check("p0|ann", 0), check("p1|ann", 1)]);
    assert_eq!(policies(&responses[0]).as_array().map(Vec::len), Some(3), "its limits are shown too");
    worker.close(1);
    assert_eq!(
        worker.drain(),
        [release("p1|ann", 77)],
        "its permit ends with the enquiry, its units stay charged"
    );

    assert_eq!(submit(&mut worker, 2, checks("ann")), None);
    let (_, responses) =
        answer(&mut worker, [granted(0), granted(0).and(&[0, micros(secs(9)), micros(secs(9)), 0])]);
    assert_eq!((responses[0].status, header(&responses[0], "retry-after")), (429, Some("9")));
    worker.close(2);
    assert_eq!(
        submit(&mut worker, 3, checks("ann")).map(|response| response.status),
        Some(429),
        "without the store"
    );
    worker.close(3);
    // Its charge is refunded when there is no answer.
    assert_eq!(submit(&mut worker, 4, checks("bob")), None);
    let (_, responses) = answer(&mut worker, [error("LOADING"), counted]);
    assert_eq!(responses[0].status, 503);
    worker.close(4);
    assert_eq!(worker.drain(), [refund("p1|bob", 1), release("p1|bob", 77)]);
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_client_that_leaves_leaves_nothing() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    ask(&mut worker, 1, 1, &[(0, "ann")]);
    let batch = worker.batch();
    worker.close(1);
    worker.engine.replied(batch.id, &bytes([granted(0)]), worker.now);
    ask(&mut worker, 2, 1, &[(0, "ann")]);
    worker.close(2);
    assert_eq!(worker.next_batch().map(|batch| batch.tasks()), None, "nobody waits for it");
    assert_eq!(worker.engine.request_count(), 0);
}

/// A lease is for requests. A worker's leased units are charged, so the store's answer is not too high.
#[test]
fn an_enquiry_uses_no_lease_and_takes_none() {
    let mut worker = Worker::new(DENY, [leased(r#"{"max": 10, "min": 2}"#, WINDOW)]);
    for stream in 1..40 {
        ask(&mut worker, stream, 1, &[(0, "ann")]);
        let (asked, responses) = answer(&mut worker, [granted(0)]);
        assert_eq!((asked, responses.len()), (vec![check("p0|ann", 0)], 1));
        worker.close(stream);
    }
    assert_eq!(worker.engine.on_lease(), 0);
    // Nor one that the worker has.
    assert_eq!(worker.arrive(50, &["ann"]), None);
    worker.answer([granted(3).remaining(97).reset(MINUTE)]);
    assert_eq!(worker.engine.on_lease(), 2);
    assert!(ask(&mut worker, 51, 1, &[(0, "ann")]).is_none(), "the store is asked");
    assert_eq!(answer(&mut worker, [granted(0).remaining(97).reset(MINUTE)]).1.len(), 1);
    assert_eq!(worker.engine.on_lease(), 2);
}
