// SPDX-License-Identifier: Apache-2.0
//! The entries about denials in the journal. No request suffers from them.

use weir::engine::{Action, Counters, Slots, StoreFailure, StreamId, Submitted};
use weir::policy::{Check, Denial, FIRST_OF_MEMBER, Mode, key};

use crate::worker::*;

/// A worker with a journal and these policies.
fn journaling(journal: &str, store: &str, policies: &[String]) -> Worker {
    let named = |(place, policy): (usize, &String)| format!(r#"{{"name": "p{place}", {policy}}}"#);
    let policies: Vec<_> = policies.iter().enumerate().map(named).collect();
    Worker::configured(&format!(
        r#"{{"journal": {journal}, "store": {store}, "policies": [{}]}}"#,
        policies.join(", ")
    ))
}

/// A worker that relies on a denial for as long as it lasts, and does not ask again.
const TRUSTING: &str = r#"{"deadline": "50ms", "on_failure": "deny", "denial_ttl": "1h"}"#;

fn simple(journal: &str) -> Worker {
    journaling(journal, TRUSTING, &[policy(BUCKET)])
}

/// The store denies `ann` for a day. Further requests are denied by the worker itself.
fn deny_ann(worker: &mut Worker, stream: StreamId) {
    worker.all_wait([stream], "ann");
    assert_eq!(worker.answer([denied(DAY)]), [(stream, false)]);
    worker.close(stream);
}

/// Further requests of `ann`, denied by the worker itself.
fn deny_more(worker: &mut Worker, count: u32) {
    for stream in 1_000..1_000 + count {
        assert_eq!(worker.arrive(stream, &["ann"]), Some(false));
        worker.close(stream);
    }
}

fn fields(entry: &Entry) -> Vec<(&str, &str)> {
    entry.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// A field of each of these entries; 0 where it is missing.
pub fn numbers_of(entries: &[Entry], name: &str) -> Vec<u64> {
    entries
        .iter()
        .map(|entry| entry.get(name).map_or(0, |number| number.parse().expect("a number")))
        .collect()
}

/// Everything that the journal writes within a tenth of a second, in batches of its own.
pub fn written_alone(worker: &mut Worker) -> Vec<Entry> {
    let mut entries = Vec::new();
    worker.idle(ms(100));
    while let Some(batch) = worker.next_batch() {
        assert!(batch.commands.is_empty() && !batch.journal.is_empty());
        worker.reply(&batch, []);
        entries.extend(batch.journal);
    }
    entries
}

fn dropped(worker: &Worker) -> u64 {
    worker.engine.counters().journal_dropped
}

// --- What is written --------------------------------------------------------------------------------------------------

#[test]
fn without_a_journal_nothing_is_written() {
    let mut worker = Worker::new(DENY, [policy(BUCKET)]);
    deny_ann(&mut worker, 1);
    worker.engine.denied(None, Denial::Listed(0), worker.now);
    assert_eq!(worker.next_tick(), None);
    worker.idle(secs(1));
    assert!(worker.next_batch().is_none());
}

#[test]
fn a_denial_is_written_behind_the_next_batch() {
    let mut worker = simple("{}");
    deny_ann(&mut worker, 1);
    worker.idle(ms(7));
    worker.all_wait([2], "bob");
    let batch = worker.batch();
    assert_eq!(batch.tasks(), [check("p0|bob", 1)]);
    let [entry] = &batch.journal[..] else { panic!("{:?}", batch.journal) };
    let wanted = [
        ("age_ms", "7"),
        ("cost", "1"),
        ("limit", "l"),
        ("outcome", "rejected"),
        ("policy", "p0"),
        ("source", "redis"),
        ("subject", "{p0|ann}"),
    ];
    assert_eq!(fields(entry), wanted);
    assert_eq!(worker.reply(&batch, [granted(1)]), [(2, true)]);
    assert_eq!(worker.next_tick(), None, "it is written once");
    assert_eq!(dropped(&worker), 0);
}

#[test]
fn a_denial_that_finds_no_batch_gets_one_of_its_own_after_a_tenth_of_a_second() {
    let mut worker = simple("{}");
    deny_ann(&mut worker, 1);
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(100))));
    worker.idle(ms(99));
    assert!(!worker.engine.wants_to_send() && worker.next_batch().is_none());
    worker.idle(ms(1));
    assert!(worker.engine.wants_to_send());
    let batch = worker.batch();
    assert_eq!((batch.commands.len(), numbers_of(&batch.journal, "age_ms")), (0, vec![100]));
    // Requests do not wait for it.
    worker.all_wait([2], "bob");
    let asked = worker.batch();
    assert_eq!(asked.tasks(), [check("p0|bob", 1)]);
    assert_eq!(worker.reply(&asked, [granted(1)]), [(2, true)]);
    assert_eq!(worker.reply(&batch, []), []);
    assert_eq!(worker.next_tick(), None);
}

/// A request that is admitted has an entry for what would have denied it, and none for what has granted it.
#[test]
fn a_shadow_denial_of_an_admitted_request_is_written() {
    for (reply, written, denied) in [(denied(MINUTE), 1, 1), (granted(1), 0, 0)] {
        let mut worker = journaling("{}", DENY, &[policy(BUCKET)]);
        let shadow = Check { mode: Mode::Shadow, ..check_of(0, "{p0|ann}", 1) };
        assert!(matches!(
            worker.engine.submit(1, [shadow].into_iter().collect(), worker.now),
            Submitted::Wait
        ));
        assert_eq!(worker.answer([reply]), [(1, true)]);
        assert_eq!(written_alone(&mut worker).len(), written);
        assert_eq!(worker.engine.counters().shadow_denied, denied);
    }
}

#[test]
fn every_way_to_be_denied_is_written() {
    let [mut worker, mut quiet] = ["{}", r#"{"shadow": false}"#].map(|journal| {
        let banning =
            format!(r#""ban": {{"after": 1, "window": "1h", "duration": "1h"}}, {}"#, policy(BUCKET));
        journaling(
            journal,
            DENY,
            &[policy(&format!("{BUCKET}, {}", BUCKET.replace(r#""l""#, r#""m""#))), banning],
        )
    });
    let mut all = Vec::new();
    for worker in [&mut worker, &mut quiet] {
        let mut entries = Vec::new();
        // Two limits deny, and then the worker does by itself.
        worker.all_wait([1], "ann");
        let second = [3, micros(MINUTE), micros(secs(1)), 0];
        assert_eq!(worker.answer([denied(MINUTE).and(&second)]), [(1, false)]);
        assert_eq!(worker.arrive(2, &["ann"]), Some(false));
        entries.extend(written_alone(worker));
        // A shadow denial beside a ban.
        let shadow = Check { mode: Mode::Shadow, ..check_of(0, "{p0|ann}", 3) };
        let checks = [shadow, check_of(1, "{p1|ann}", 3)].into_iter().collect();
        assert!(matches!(worker.engine.submit(3, checks, worker.now), Submitted::Wait));
        let shadow = granted(0).wait(MINUTE).and(&[4, 0, micros(secs(1)), 0]);
        let outcomes = worker.answer([shadow, granted(0).and(&[micros(MINUTE)])]);
        assert_eq!(outcomes, [(3, false)]);
        entries.extend(written_alone(worker));
        // `on_failure` denies.
        worker.all_wait([4], "bob");
        assert_eq!(worker.lose(), [(4, false)]);
        // Lists deny, and the lack of a subject.
        for (policy, denial) in [
            (None, Denial::Listed(2)),
            (Some(1), Denial::Absent(0)),
            (Some(0), Denial::Ambiguous(1)),
            (Some(0), Denial::Ambiguous(FIRST_OF_MEMBER + 1)),
            (Some(0), Denial::UnknownModel(Mode::Enforce)),
        ] {
            worker.engine.denied(policy, denial, worker.now);
        }
        entries.extend(written_alone(worker));
        all.push(entries);
    }
    let rows = |entries: &[Entry]| -> Vec<String> {
        let names = ["outcome", "policy", "limit", "source", "subject", "cost", "reason"];
        let row = |entry: &Entry| names.map(|name| entry.get(name).map_or("-", String::as_str)).join(" ");
        entries.iter().map(row).collect()
    };
    let wanted = [
        "rejected p0 p0.l,m redis {p0|ann} 1 -",
        "rejected p0 p0.l,m denied-until {p0|ann} 1 -",
        "shadow p0 p0.l redis {p0|ann} 3 -",
        "banned p1 - redis {p1|ann} 3 -",
        "rejected p0 - fallback {p0|bob} 1 -",
        "denied - - - - - deny[2]",
        "denied p1 - - - - subject[0] missing",
        "denied p0 - - - - subject[1] ambiguous",
        "denied p0 - - - - of[1] ambiguous",
        "denied p0 - - - - model unknown",
    ];
    let without_shadow: Vec<_> = wanted.into_iter().filter(|row| !row.starts_with("shadow")).collect();
    for (entries, wanted) in all.into_iter().zip([wanted.to_vec(), without_shadow]) {
        assert_eq!(rows(&entries), wanted);
        assert_eq!(numbers_of(&entries, "skipped"), vec![0; wanted.len()], "nothing is skipped");
    }
}

#[test]
fn a_request_for_which_there_is_no_place_to_be_held_is_written() {
    let mut worker = journaling("{}", ALLOW, &[policy(&delayed("60s"))]);
    for stream in 0..4_097 {
        worker.all_wait([stream], "ann");
        let released = worker.answer([granted(1).delay(secs(30))]);
        assert_eq!(released, if stream < 4_096 { vec![] } else { vec![(stream, false)] });
    }
    worker.idle(ms(100));
    let batch = worker.batch();
    let entries = batch.journal;
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry["outcome"].as_str(), entry["limit"].as_str()), ("rejected", "l"));
}

#[test]
fn an_entry_is_added_and_the_oldest_removed_in_one_command() {
    let mut worker = journaling(r#"{"max_entries": 7}"#, r#"{"key_prefix": "staging"}"#, &[policy(BUCKET)]);
    worker.engine.denied(None, Denial::Listed(0), worker.now);
    worker.idle(ms(100));
    let batch = worker.engine.next_batch(worker.now).expect("a batch");
    let words: Vec<_> = commands(&batch.body).remove(0).into_iter().map(String::from_utf8).collect();
    let words: Vec<_> = words.iter().map(|word| word.as_deref().expect("text")).collect();
    assert_eq!(words[..5], ["XADD", "staging:{journal}", "MAXLEN", "7", "*"]);
}

// --- Bounds -----------------------------------------------------------------------------------------------------------

#[test]
fn a_worker_writes_so_many_entries_in_a_second_and_counts_the_others() {
    let mut worker = simple(r#"{"max_per_second": 3}"#);
    deny_ann(&mut worker, 1);
    deny_more(&mut worker, 9);
    assert_eq!(dropped(&worker), 7);
    assert_eq!(numbers_of(&written_alone(&mut worker), "skipped"), [0; 3]);
    worker.idle(ms(899));
    deny_more(&mut worker, 1);
    assert_eq!((written_alone(&mut worker), dropped(&worker)), (vec![], 8), "the second is not over");
    deny_more(&mut worker, 5);
    assert_eq!(numbers_of(&written_alone(&mut worker), "skipped"), [8, 0, 0]);
    assert_eq!(dropped(&worker), 10);
    // Also when the clock was set back.
    worker.set_back(secs(3_600));
    worker.idle(ms(1_100));
    worker.engine.denied(None, Denial::Listed(0), worker.now);
    assert_eq!(numbers_of(&written_alone(&mut worker), "skipped"), [2]);
}

#[test]
fn entries_that_wait_are_bounded() {
    let mut worker = simple(r#"{"max_per_second": 10000}"#);
    deny_ann(&mut worker, 1);
    deny_more(&mut worker, 2_000);
    assert_eq!(dropped(&worker), 2_001 - 1_024);
    worker.idle(ms(100));
    let sizes = std::iter::from_fn(|| {
        let batch = worker.next_batch()?;
        worker.reply(&batch, []);
        Some(batch.journal.len())
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [32; 32], "and so is what one batch carries");
}

#[test]
fn one_batch_of_its_own_is_in_flight_at_a_time() {
    let mut worker = simple("{}");
    deny_ann(&mut worker, 1);
    deny_more(&mut worker, 50);
    worker.idle(ms(100));
    let first = worker.batch();
    assert!(!worker.engine.wants_to_send() && worker.next_batch().is_none());
    worker.reply(&first, []);
    let second = worker.batch();
    assert_eq!((first.journal.len(), second.journal.len()), (32, 19));
}

#[test]
fn a_part_of_the_denials_is_drawn_and_the_others_are_counted() {
    let mut worker = simple(r#"{"sample_percent": 25, "max_per_second": 10000}"#);
    deny_ann(&mut worker, 1);
    let mut entries = Vec::new();
    for _ in 0..50 {
        deny_more(&mut worker, 80);
        entries.extend(written_alone(&mut worker));
    }
    assert!((850..1_150).contains(&entries.len()), "{} of 4,001", entries.len());
    let skipped: u64 = numbers_of(&entries, "skipped").iter().sum();
    let told = entries.len() as u64 + skipped;
    assert!((3_950..=4_001).contains(&told), "the last ones may not be told yet: {told}");
    assert_eq!(dropped(&worker), 0, "they were not to be written");
}

// --- A journal that fails harms no request ----------------------------------------------------------------------------

/// The user of Redis may not write it, or it is no stream, or Redis is full.
#[test]
fn an_entry_that_the_store_refuses_is_not_sent_again_and_the_next_ones_share_no_batch() {
    let mut worker = simple("{}");
    deny_ann(&mut worker, 1);
    worker.all_wait([2], "bob");
    let batch = worker.batch();
    assert_eq!(batch.journal.len(), 1);
    let refused = error("NOPERM User weir has no permissions to run the 'xadd' command");
    assert_eq!(worker.reply_journal(&batch, [granted(1)], &refused), [(2, true)]);
    assert_eq!((dropped(&worker), worker.engine.open_breakers()), (1, 0));
    assert_eq!(worker.failures().iter().map(StoreFailure::kind).collect::<Vec<_>>(), ["noperm"]);
    deny_more(&mut worker, 2);
    for round in 0..5 {
        // Requests are asked about as ever, in batches of their own.
        for stream in 10..19 {
            worker.idle(ms(100));
            worker.all_wait([stream], "bob");
            let batch = worker.batch();
            assert_eq!((batch.tasks(), batch.journal.len()), (vec![check("p0|bob", 1)], 0));
            assert_eq!(worker.reply(&batch, [granted(1)]), [(stream, true)]);
            worker.close(stream);
        }
        worker.idle(ms(101));
        let alone = worker.engine.next_batch(worker.now).expect("a batch");
        assert_eq!((alone.slots, commands(&alone.body).len()), (Slots::Suspect, 2));
        // One that was refused counts more than another in the same batch that was written.
        let replies = match round {
            0..3 => [refused.clone(), refused.clone()],
            3 => [refused.clone(), written()],
            _ => [written(), written()],
        };
        assert!(worker.engine.replied(alone.id, &bytes(replies), worker.now), "the connection is well");
        assert_eq!(worker.engine.open_breakers(), 0);
        deny_more(&mut worker, 2);
    }
    assert_eq!(dropped(&worker), 1 + 3 * 2 + 1);
    // The last ones were written, so the next ones share a batch again.
    worker.all_wait([99], "bob");
    let batch = worker.batch();
    assert_eq!((batch.commands.len(), numbers_of(&batch.journal, "skipped")), (1, vec![0, 0]));
}

#[test]
fn what_was_lost_is_told_by_the_next_entry() {
    let mut worker = simple(r#"{"max_per_second": 2}"#);
    deny_ann(&mut worker, 1);
    deny_more(&mut worker, 5);
    worker.idle(ms(100));
    let batch = worker.batch();
    worker.fail(&batch);
    assert_eq!(dropped(&worker), 6);
    worker.idle(secs(1));
    deny_more(&mut worker, 1);
    worker.idle(ms(100));
    let batch = worker.batch();
    assert_eq!(numbers_of(&batch.journal, "skipped"), [6]);
    worker.fail(&batch);
    worker.idle(secs(1));
    deny_more(&mut worker, 1);
    assert_eq!(numbers_of(&written_alone(&mut worker), "skipped"), [7]);
}

#[test]
fn a_connection_on_which_no_entry_can_be_written_carries_no_other_batch() {
    for (text, is_well) in
        [("READONLY You can't write against a read only replica.", false), ("OOM used", true)]
    {
        let mut worker = simple("{}");
        deny_ann(&mut worker, 1);
        worker.idle(ms(100));
        let batch = worker.batch();
        assert_eq!(worker.engine.replied(batch.id, &bytes([error(text)]), worker.now), is_well, "{text}");
    }
}

/// Its shard hangs, or is unreachable.
#[test]
fn batches_of_the_journal_that_are_lost_say_nothing_about_requests() {
    let window = |fate: &dyn Fn(&mut Worker, &Batch)| {
        let mut worker = journaling("{}", TRUSTING, &[policy(BUCKET)]);
        deny_ann(&mut worker, 1);
        for _ in 0..5 {
            worker.idle(ms(1_100));
            let batch = worker.batch();
            assert!(batch.commands.is_empty());
            fate(&mut worker, &batch);
            assert_eq!(
                (worker.engine.open_breakers(), worker.engine.outage(worker.now).map(|(_, outage)| outage)),
                (0, None)
            );
            deny_more(&mut worker, 1);
        }
        (2..1_000).for_each(|stream| assert!(worker.waits_alone(stream)));
        let batch = worker.batch();
        assert_eq!(batch.journal.len(), 0);
        (batch.commands.len(), dropped(&worker))
    };
    let reference = {
        let mut worker = Worker::new(TRUSTING, [policy(BUCKET)]);
        deny_ann(&mut worker, 1);
        worker.idle(secs(5));
        (2..1_000).for_each(|stream| assert!(worker.waits_alone(stream)));
        worker.batch().commands.len()
    };
    let failed = window(&|worker, batch| {
        worker.fail(batch);
        assert_eq!(worker.failures(), [StoreFailure::Refused]);
    });
    let abandoned = window(&|worker, batch| {
        worker.idle(ms(120));
        assert_eq!(worker.engine.next_abandoned(), Some(batch.id));
        assert_eq!(worker.failures(), [StoreFailure::Timeout]);
    });
    assert_eq!([failed, abandoned], [(reference, 5); 2], "as many requests at once as ever");
}

/// The answer to its entries does not hide that the store leaves requests unanswered.
#[test]
fn a_journal_that_is_written_closes_no_breaker() {
    let mut worker = journaling("{}", &TRUSTING.replace("deny\"", "allow\""), &[policy(BUCKET)]);
    deny_ann(&mut worker, 1);
    for stream in 1..=3 {
        deny_more(&mut worker, 1);
        assert_eq!(written_alone(&mut worker).len(), if stream == 1 { 2 } else { 1 });
        worker.all_wait([stream], "bob");
        assert_eq!(worker.lose(), [(stream, true)]);
        worker.close(stream);
    }
    assert_eq!(worker.engine.open_breakers(), 1);
}

#[test]
fn a_batch_that_is_late_is_not_followed_by_another_with_entries() {
    let mut worker = journaling("{}", &TRUSTING.replace("deny\"", "allow\""), &[policy(BUCKET)]);
    deny_ann(&mut worker, 1);
    deny_more(&mut worker, 1);
    worker.all_wait([2], "bob");
    let late = worker.batch();
    assert_eq!(late.journal.len(), 2);
    worker.idle(ms(60));
    assert_eq!(worker.released(), [(2, true)], "its deadline is over");
    deny_more(&mut worker, 1);
    worker.all_wait([3], "bob");
    let next = worker.batch();
    assert_eq!(next.journal.len(), 0, "the journal's shard may be what hangs");
    assert_eq!(worker.reply(&next, [granted(1)]), [(3, true)]);
    assert_eq!(worker.reply(&late, [granted(1)]), []);
    assert_eq!(numbers_of(&written_alone(&mut worker), "skipped"), [0], "it answered after all");
}

#[test]
fn while_the_store_is_unavailable_entries_wait_and_cost_no_turn() {
    let mut worker = simple("{}");
    for stream in 1..=3 {
        worker.all_wait([stream], "ann");
        let batch = worker.batch();
        worker.fail(&batch);
        worker.close(stream);
    }
    assert_eq!(worker.engine.open_breakers(), 1);
    assert_eq!(dropped(&worker), 1, "the second batch had the first denial with it, and the third had none");
    let second = worker.now.plus(secs(1));
    assert_eq!(worker.next_tick(), Some(second), "nothing is sent then: the next request is the probe");
    worker.idle(secs(3));
    assert!(worker.next_batch().is_none());
    worker.all_wait([4], "ann");
    let probe = worker.batch();
    assert_eq!(probe.journal.len(), 0);
    assert_eq!(worker.reply(&probe, [granted(1)]), [(4, true)]);
    let batch = worker.batch();
    assert_eq!(
        (numbers_of(&batch.journal, "age_ms"), numbers_of(&batch.journal, "skipped")),
        (vec![3_000, 3_000], vec![1, 0])
    );
}

#[test]
fn a_probe_carries_no_entry() {
    let mut worker = journaling("{}", ALLOW, &[policy(BUCKET)]);
    for stream in 1..=3 {
        worker.all_wait([stream], "ann");
        worker.lose();
    }
    worker.engine.denied(None, Denial::Listed(0), worker.now);
    worker.idle(ms(200));
    worker.all_wait([4], "ann");
    let probe = worker.batch();
    assert_eq!((probe.commands.len(), probe.journal.len()), (1, 0));
    worker.reply(&probe, [granted(1)]);
    assert_eq!(worker.batch().journal.len(), 1);
}

/// The last answer about a subject in the journal's 64th of the slots was an error.
#[test]
fn entries_for_a_shard_that_fails_share_no_batch_with_requests_for_others() {
    let part = |tag: &[u8]| key::slot(tag) / 256;
    let subjects = |here: bool| {
        let tag = |user: &String| format!("{{p0|{user}}}").into_bytes();
        (0..)
            .map(|user| user.to_string())
            .find(|user| (part(&tag(user)) == part(key::JOURNAL.as_bytes())) == here)
            .unwrap()
    };
    let (here, there) = (subjects(true), subjects(false));
    let mut worker = journaling("{}", ALLOW, &[policy(BUCKET)]);
    worker.all_wait([1], &here);
    worker.answer([error("CLUSTERDOWN The cluster is down")]);
    worker.engine.denied(None, Denial::Listed(0), worker.now);
    worker.all_wait([2], &there);
    let batch = worker.batch();
    assert_eq!((batch.commands.len(), batch.journal.len()), (1, 0));
    worker.reply(&batch, [granted(1)]);
    worker.idle(ms(100));
    let alone = worker.engine.next_batch(worker.now).expect("a batch");
    assert_eq!((alone.slots, alone.replies), (Slots::Suspect, 1));
}

#[test]
fn entries_for_which_a_connection_has_to_be_opened_wait_for_it() {
    let mut worker = simple("{}");
    deny_ann(&mut worker, 1);
    worker.idle(ms(30));
    deny_more(&mut worker, 2);
    worker.idle(ms(70));
    let before = worker.engine.counters();
    let batch = worker.batch();
    worker.engine.connecting(batch.id);
    assert_eq!(Counters { in_flight: 0, ..worker.engine.counters() }, before, "nothing was sent");
    deny_more(&mut worker, 1);
    assert!(worker.next_batch().is_none());
    worker.engine.connected(batch.id, worker.now);
    let batch = worker.batch();
    assert_eq!(numbers_of(&batch.journal, "age_ms"), [100, 70, 70, 0], "in the order in which they came");
    assert_eq!(worker.engine.counters().commands, before.commands + 4);
}

#[test]
fn a_worker_that_ends_writes_what_waits_at_once() {
    let mut worker = simple("{}");
    deny_ann(&mut worker, 1);
    worker.engine.retire();
    assert!(worker.engine.wants_to_send());
    let batch = worker.batch();
    assert_eq!((batch.journal.len(), worker.engine.in_flight()), (1, true));
    worker.reply(&batch, []);
    assert!(!worker.engine.in_flight());
}

/// Otherwise one batch of its own is in flight at a time.
#[test]
fn a_worker_that_ends_does_not_wait_for_the_last_batch_of_its_journal() {
    for ends in [false, true] {
        let mut worker = simple("{}");
        deny_ann(&mut worker, 1);
        worker.idle(ms(100));
        let first = worker.batch();
        deny_more(&mut worker, 1);
        if ends {
            worker.engine.retire();
        }
        let second = worker.next_batch().map_or(0, |batch| batch.journal.len());
        assert_eq!((first.journal.len(), second), (1, usize::from(ends)));
    }
}

/// The window of the store counts them.
#[test]
fn entries_take_only_the_room_that_requests_leave() {
    let subjects = |worker: &mut Worker, count: u32| {
        (10_000..10_000 + count).for_each(|stream| assert!(worker.waits_alone(stream)));
    };
    let with = |denials: u32| {
        let mut worker = simple(r#"{"max_per_second": 10000}"#);
        deny_ann(&mut worker, 1);
        deny_more(&mut worker, denials - 1);
        worker
    };
    let room = {
        let mut worker = with(500);
        subjects(&mut worker, 1_000);
        let batch = worker.batch();
        assert_eq!(batch.journal.len(), 0, "requests take all of it");
        u32::try_from(batch.commands.len()).unwrap()
    };
    let mut worker = with(500);
    subjects(&mut worker, room - 5);
    let batch = worker.batch();
    assert_eq!((batch.commands.len(), batch.journal.len()), (room as usize - 5, 5));
    // The size of the next batch does not depend on the contents of the one before.
    let next = |denials: u32, requests: u32| {
        let mut worker = with(denials);
        if denials == 1 {
            written_alone(&mut worker);
        } else {
            worker.idle(ms(50));
        }
        subjects(&mut worker, requests);
        let first = worker.batch();
        assert_eq!(first.commands.len() + first.journal.len(), 33);
        worker.idle(ms(11));
        (20_000..21_000).for_each(|stream| {
            worker.waits_alone(stream);
        });
        worker.batch().commands.len()
    };
    assert_eq!(next(32, 1), next(1, 33));
}

/// Decisions do not depend on whether there is a journal.
#[test]
fn a_journal_changes_no_decision() {
    let decisions = |journal: &str| {
        let mut worker = Worker::configured(&format!(
            r#"{{{journal} "store": {DENY}, "policies": [{{"name": "p0", {}}}]}}"#,
            policy(BUCKET)
        ));
        let (mut random, mut decided) = (7_u64, Vec::new());
        for stream in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let checks = [check_of(0, format!("{{p0|{}}}", random >> 61), 1)].into_iter().collect();
            if let Submitted::Decided(action) = worker.engine.submit(stream, checks, worker.now) {
                decided.push((stream, matches!(action, Action::Admit)));
            }
            while let Some(batch) = worker.next_batch() {
                let reply = match random >> 40 & 7 {
                    0 | 1 => denied(ms(random >> 20 & 127)),
                    2 => error("OOM used"),
                    _ => granted(1),
                };
                let replies = batch.each(reply);
                decided.extend(worker.reply(&batch, replies));
            }
            worker.close(stream);
            worker.idle(ms(random >> 50 & 15));
        }
        decided
    };
    assert_eq!(decisions(""), decisions(r#""journal": {},"#));
}

// --- Requests that ask, and requests that wait ------------------------------------------------------------------------

#[test]
fn an_enquiry_is_no_denial_unless_it_is_denied_itself() {
    let mut worker = journaling("{}", TRUSTING, &[policy(BUCKET), policy(WINDOW)]);
    let asked = Check { mode: Mode::QuotaRequest, ..check_of(0, "{p0|ann}", 1) };
    let counting = check_of(1, "{p1|ann}", 1);
    for (stream, counted, wanted) in [(1, granted(1), vec![]), (2, denied(DAY), vec!["p1"])] {
        let checks = [asked.clone(), counting.clone()].into_iter().collect();
        assert!(matches!(worker.engine.submit_quota_request(stream, checks, worker.now), Submitted::Wait));
        worker.answer([denied(DAY), counted]);
        let entries = written_alone(&mut worker);
        assert_eq!(entries.iter().map(|entry| entry["policy"].as_str()).collect::<Vec<_>>(), wanted);
        worker.close(stream);
    }
}

#[test]
fn a_request_that_waits_for_a_permit_is_written_once_if_it_waits_in_vain() {
    let mut worker = journaling("{}", DENY, &[policy(&queued(PLACES, "1s", 9))]);
    worker.all_wait([1, 2], "ann");
    assert_eq!(worker.answer([granted(0).remaining(0).wait(DAY)]), []);
    let end = worker.now.plus(secs(1));
    let mut entries = Vec::new();
    while worker.now < end.plus(ms(200)) {
        worker.idle(ms(1));
        if let Some(batch) = worker.next_batch() {
            let full = batch.each(granted(0).remaining(0).wait(DAY));
            worker.reply(&batch, full);
            assert!(batch.journal.is_empty() || worker.now >= end);
            entries.extend(batch.journal);
        }
    }
    let limits: Vec<_> =
        entries.iter().map(|entry| (entry["limit"].as_str(), entry["outcome"].as_str())).collect();
    assert_eq!(limits, [("l", "rejected"); 2]);
}
