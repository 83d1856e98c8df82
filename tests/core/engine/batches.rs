// SPDX-License-Identifier: Apache-2.0
//! Requests become commands and batches.

use weir::engine::StoreFailure;

use crate::worker::*;

fn two_buckets() -> [String; 2] {
    [policy(BUCKET), policy(BUCKET)]
}

#[test]
fn requests_of_one_subject_share_a_command_first_come_first_served() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([7, 3, 9], "ann");
    worker.all_wait([4], "bob");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 3), check("p0|bob", 1)]);
    assert_eq!(batch.commands[0].words[3], b"weir:{p0|ann}:l");
    let outcomes = worker.reply(&batch, [granted(2), granted(1)]);
    assert_eq!(outcomes, [(7, true), (3, true), (9, false), (4, true)]);
}

#[test]
fn requests_that_arrive_while_a_batch_is_in_flight_are_the_next_batch() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let first = worker.batch();
    worker.all_wait([2, 3], "ann");
    assert!(worker.next_batch().is_none() && !worker.engine.wants_to_send());
    assert_eq!(worker.reply(&first, [granted(1)]), [(1, true)]);
    assert!(worker.engine.wants_to_send());
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 2)]);
}

#[test]
fn an_overdue_batch_does_not_hold_up_the_next() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    worker.batch();
    worker.idle(ms(60));
    worker.all_wait([2], "ann");
    assert_eq!(worker.batch().tasks(), [check("p0|ann", 1)]);
}

#[test]
fn a_client_that_leaves_loses_its_seat() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1, 2, 3], "ann");
    worker.all_wait([4], "bob");
    worker.close(2);
    worker.close(4);
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|ann", 2)]);
    worker.close(1);
    assert_eq!(worker.reply(&batch, [granted(1)]), [(3, false)], "the one that left was first in line");
}

// --- One Redis that has all keys --------------------------------------------------------------------------------------

#[test]
fn where_one_redis_has_all_keys_one_command_asks_about_all_subjects_of_a_policy() {
    let arrive = |worker: &mut Worker| {
        for (stream, subject) in [(1, "ann"), (2, "bob"), (3, "ann"), (4, "eve")] {
            worker.all_wait([stream], subject);
        }
    };
    let mut worker = Worker::new(SINGLE, two_buckets());
    arrive(&mut worker);
    let first = worker.batch();
    assert_eq!(first.sizes(), [3], "one command");
    assert_eq!(first.tasks(), [check("p0|ann", 2), check("p0|bob", 1), check("p0|eve", 1)]);
    let asked = &first.commands[0].words;
    assert_eq!((asked[0].as_slice(), asked[2].as_slice()), (b"EVALSHA".as_slice(), b"3".as_slice()));
    assert_eq!(asked[3..6], ["ann", "bob", "eve"].map(|name| format!("weir:{{p0|{name}}}:l").into_bytes()));
    let numbers = numbers(&asked[6]);
    assert_eq!(
        (&numbers[1..3], &numbers[numbers.len() - 4..]),
        (&[2, 1][..], &[1, 1, 1, 1][..]),
        "requests and cost of each"
    );

    // The store is sent the source, and asked about all subjects again.
    assert_eq!(worker.reply(&first, [noscript()]), []);
    let second = worker.batch();
    let repeated = &second.commands[0].words;
    assert_eq!((repeated[0].as_slice(), &repeated[2..]), (b"EVAL".as_slice(), &asked[2..]));
    let reply = together([granted(1), granted(1), granted(0)]);
    assert_eq!(worker.reply(&second, [reply]), [(1, true), (3, false), (2, true), (4, false)]);

    // A reply of another length decides no request, and an error is an error for each.
    for (reply, failure) in [
        (together([granted(1), granted(1)]), StoreFailure::BadReply),
        (granted(1), StoreFailure::BadReply),
        (error("OOM used"), StoreFailure::Error("OOM used".into())),
    ] {
        let store = r#"{"topology": "single", "on_failure": "deny"}"#;
        let mut worker = Worker::new(store, [policy(BUCKET)]);
        arrive(&mut worker);
        let denied = [(1, false), (3, false), (2, false), (4, false)];
        assert_eq!(worker.answer([reply]), denied, "{failure:?}");
        assert_eq!(worker.failures()[..3], std::array::from_fn::<_, 3, _>(|_| failure.clone()));
    }
}

/// A reply about more subjects than were asked about decides nothing; the next reply counts.
#[test]
fn a_reply_about_one_subject_more_decides_none_of_them() {
    let store = r#"{"topology": "single", "on_failure": "deny"}"#;
    for (case, first, admitted) in [
        ("as many subjects as tasks", together([granted(1), granted(1)]), true),
        ("one subject more", together([granted(1), granted(1), granted(1)]), false),
    ] {
        let mut worker = Worker::new(store, two_buckets());
        assert_eq!(worker.arrive(1, &["ann", "site"]), None);
        assert_eq!(worker.arrive(2, &["bob", "site"]), None);
        let batch = worker.batch();
        assert_eq!(batch.sizes(), [2, 1], "{case}");
        assert_eq!(worker.reply(&batch, [first, granted(2)]), [(1, admitted), (2, admitted)], "{case}");
        let failures = worker.failures();
        assert_eq!(failures, if admitted { vec![] } else { vec![StoreFailure::BadReply; 2] }, "{case}");
    }
}

#[test]
fn a_command_asks_about_64_subjects_at_most_and_about_one_policy() {
    let mut worker = Worker::new(SINGLE, two_buckets());
    for subject in 0..100 {
        worker.arrive(subject, &[&subject.to_string(), "s"]);
    }
    assert_eq!(worker.batch().sizes(), [64, 1, 36]);
}

/// Redis does nothing else while a script runs: where one subject may take long, a command asks about fewer.
#[test]
fn a_command_asks_about_fewer_subjects_whose_limits_may_take_long() {
    let log = r#"{"name": "l", "algorithm": "sliding_log", "limit": 100000, "window": "1h"}"#;
    let mut worker = Worker::new(SINGLE, [policy(log)]);
    assert!((0..12).all(|subject| worker.waits_alone(subject)));
    assert_eq!(worker.batch().sizes(), [4, 4, 4]);
}

// --- Bounds -----------------------------------------------------------------------------------------------------------

#[test]
fn a_batch_is_bounded_in_tasks_and_bytes() {
    let limits = (0..8).map(|limit| {
        format!(
            r#"{{"name": "{}{limit}", "algorithm": "sliding_window", "limit": 5, "window": "1m"}}"#,
            "n".repeat(60)
        )
    });
    let (limits, name) = (limits.collect::<Vec<_>>().join(", "), "p".repeat(64));
    for topology in ["single", "any"] {
        let mut worker = Worker::configured(&format!(
            r#"{{"store": {{"topology": "{topology}"}},
                "policies": [{{"name": "{name}", "overrides": true, {}}}]}}"#,
            policy(&limits)
        ));
        for stream in 0..1_000 {
            let check = check_of(0, format!("{{{name}|{stream:0>128}}}"), 1);
            worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
        }
        let (mut asked, mut sources, mut decided) = (0, 0, 0);
        while let Some(batch) = worker.next_batch() {
            let tasks = batch.tasks().len();
            assert!(tasks <= 256 && batch.bytes <= 1024 * 1024, "{topology}: {tasks}, {}", batch.bytes);
            if batch.commands[0].by_source() {
                let brought = batch.commands.iter().filter(|command| command.by_source()).count();
                sources += brought;
                asked += tasks;
                assert!(topology == "any" || brought == 1, "one Redis is sent a source once");
            }
            let forgot = |command: &Command| !command.by_source() && asked == 0;
            let reply = |command| if forgot(command) { noscript() } else { error("OOM used") };
            let replies: Vec<_> = batch.commands.iter().map(reply).collect();
            decided += worker.reply(&batch, replies).len();
        }
        assert_eq!(decided, 1_000, "{topology}: what did not fit was sent later");
        assert!(asked > 0 && sources > 0, "{topology}: {asked}, {sources}");
    }
}

/// Tasks behind a batch without an answer are sent 10 ms after it. The host's timer is set to that moment.
#[test]
fn the_timer_is_set_to_when_the_next_batch_may_leave() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    let sent = worker.now;
    worker.batch();
    worker.idle(ms(7));
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(5))), "nothing waits to be sent: the next look");
    worker.all_wait([2], "bob");
    assert!(worker.next_batch().is_none(), "not yet");
    assert_eq!(worker.next_tick(), Some(sent.plus(ms(10))), "before the next look");
    worker.idle(ms(3));
    assert_eq!(worker.batch().tasks(), [check("p0|bob", 1)]);
}

/// When as many batches are in flight as may be, only an answer lets the next one leave.
#[test]
fn the_timer_is_not_set_to_a_moment_when_no_batch_may_leave() {
    let mut worker = Worker::new(r#"{"deadline": "10s"}"#, [policy(BUCKET)]);
    let mut sent = 0;
    for stream in 0..40 {
        worker.all_wait([stream], &stream.to_string());
        sent += u32::from(worker.next_batch().is_some());
        worker.idle(ms(20));
    }
    assert!((2..=16).contains(&sent) && worker.next_batch().is_none(), "{sent}");
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(5))));
}

/// Requests in advance are asked for once, also by a command that had to wait for the next batch.
#[test]
fn a_command_that_does_not_fit_asks_in_advance_when_it_leaves() {
    let limit = |limit| {
        format!(r#"{{"name": "n{limit}", "algorithm": "sliding_window", "limit": 500, "window": "1m"}}"#)
    };
    let limits: Vec<_> = (0..8).map(limit).collect();
    let leased = leased(r#"{"max": 2, "min": 2, "duration": "1s"}"#, &limits.join(", "));
    let mut worker = Worker::new(ALLOW, [leased]);
    for stream in 0..600 {
        worker.all_wait([stream], &stream.to_string());
    }
    let (mut by_source, mut batches) = (0, 0);
    while let Some(batch) = worker.next_batch() {
        assert!(
            batch.tasks().iter().all(|task| task.requests == 3),
            "its own, and two in advance: {:?}",
            batch.tasks()
        );
        let replies = batch
            .commands
            .iter()
            .map(|command| if command.by_source() { error("OOM used") } else { noscript() });
        by_source += batch.commands.iter().filter(|command| command.by_source()).count();
        batches += usize::from(batch.by_source());
        let replies: Vec<_> = replies.collect();
        worker.reply(&batch, replies);
    }
    assert!(batches > 1 && by_source > 100, "{batches} batches, {by_source} sources");
}

#[test]
fn checks_go_before_refunds_and_refunds_are_bounded() {
    let places = PLACES.replace(r#""limit": 5"#, r#""limit": 100000"#);
    let mut worker = Worker::new(ALLOW, [policy(&places)]);
    // Each holds a place of its own, and all end at once.
    let (mut stream, mut held) = (0, Vec::new());
    while held.len() < 17_000 {
        for _ in 0..100 {
            stream += 1;
            worker.waits_alone(stream);
        }
        while let Some(batch) = worker.next_batch() {
            let replies = batch.each(granted(1).permit(i64::from(stream)));
            held.extend(worker.reply(&batch, replies).into_iter().map(|(stream, _)| stream));
        }
    }
    held.into_iter().for_each(|stream| worker.close(stream));
    worker.all_wait([stream + 1], "ann");
    let (mut refunds, mut batches) = (0, 0);
    while let Some(batch) = worker.next_batch() {
        assert!(batch.commands.len() <= 256);
        if batches == 0 {
            assert_eq!(batch.tasks()[0], check("p0|ann", 1), "the check goes first");
            refunds -= 1;
        }
        batches += 1;
        refunds += i64::try_from(batch.commands.len()).expect("few");
        let replies = batch.each(done());
        worker.reply(&batch, replies);
    }
    assert_eq!(refunds, 16_384, "further refunds are dropped");
}

#[test]
fn refunds_go_at_last_however_much_there_is_to_ask() {
    let mut worker = Worker::new(ALLOW, two_buckets());
    worker.arrive(1, &["ann", "all"]);
    assert_eq!(worker.answer([granted(1), granted(0)]), [(1, false)]);
    assert!((10..310).all(|stream| worker.waits_alone(stream)));
    let tasks = worker.batch().tasks();
    assert_eq!(tasks.last(), Some(&refund("p0|ann", 1)));
    assert!(tasks.len() > 100, "most are checks");
}

// --- Scripts that the store has forgotten -----------------------------------------------------------------------------

#[test]
fn a_store_that_forgot_the_script_is_sent_its_source_and_no_request_fails() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    worker.all_wait([1], "ann");
    worker.all_wait([2], "bob");
    let first = worker.batch();
    assert!(!first.by_source());
    assert_eq!(worker.reply(&first, [noscript(), granted(1)]), [(2, true)]);
    let second = worker.batch();
    assert_eq!((second.by_source(), second.tasks()), (true, vec![check("p0|ann", 1)]));
    assert_eq!(worker.reply(&second, [granted(1)]), [(1, true)]);
    assert_eq!(worker.failures(), []);
}

/// One Redis that is sent a script knows it from then on, and is not sent it again in the same batch. The scripts that
/// check, refund, and release are three.
#[test]
fn one_redis_is_sent_each_script_that_it_has_forgotten_once() {
    let store = r#"{"deadline": "50ms", "topology": "single"}"#;
    let both = [BUCKET, &PLACES.replace(r#""l""#, r#""m""#)].join(",");
    let mut worker = Worker::new(store, [policy(&both), policy(BUCKET)]);
    worker.arrive(1, &["ann", "all"]);
    let held = granted(1).and(&[4, 0, micros(secs(1)), 7]);
    assert_eq!(worker.answer([held, denied(DAY)]), [(1, false)]);
    // Of nine subjects eight share a command.
    assert!((100..109).all(|stream| worker.waits_alone(stream)));
    let mut forgets = || {
        let batch = worker.batch();
        let replies = batch.each(noscript());
        worker.reply(&batch, replies);
        let kind = |command: &Command| (command.by_source(), command.tasks[0].verb, command.tasks.len());
        batch.commands.iter().map(kind).collect::<Vec<_>>()
    };
    let kinds = [(Verb::Check, 8), (Verb::Check, 1), (Verb::Refund, 1), (Verb::Release, 1)];
    assert_eq!(forgets(), kinds.map(|(verb, tasks)| (false, verb, tasks)));
    // The ninth subject is checked by the script that is sent for the eight.
    assert_eq!(forgets(), kinds.map(|(verb, tasks)| (tasks == 8 || verb != Verb::Check, verb, tasks)));
}

/// A command relies on the source that an earlier one of its batch brings. When Redis refuses the earlier one before it reads the
/// script, the later one is not lost: the batch after brings the source for it.
#[test]
fn one_redis_is_sent_a_script_again_when_the_command_that_brought_it_was_refused() {
    let store = r#"{"deadline": "50ms", "topology": "single"}"#;
    let mut worker = Worker::new(store, [policy(BUCKET), policy(BUCKET), policy(BUCKET)]);
    assert_eq!(worker.arrive(1, &["ann", "ann", "ann"]), None);
    assert_eq!(worker.answer([granted(1), granted(1), denied(DAY)]), [(1, false)]);
    let mut send = |replies: Vec<Reply>| -> Vec<(bool, String)> {
        let batch = worker.batch();
        worker.reply(&batch, replies);
        batch.commands.iter().map(|command| (command.by_source(), command.tasks[0].tag.clone())).collect()
    };
    let (ann0, ann1) = ("p0|ann".to_owned(), "p1|ann".to_owned());
    let both = [(false, ann0.clone()), (false, ann1.clone())];
    assert_eq!(send(vec![noscript(), noscript()]), both);
    let refused = error("LOADING dataset in memory");
    assert_eq!(send(vec![refused, noscript()]), [(true, ann0), (false, ann1.clone())]);
    assert_eq!(send(vec![Reply::Bytes(b"$0\r\n\r\n".to_vec())]), [(true, ann1)]);
}
