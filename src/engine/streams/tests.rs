// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::engine::Slots;

/// A host that remembers which streams are open, and what each has carried.
#[derive(Default)]
pub(in crate::engine) struct Host {
    next: Cell<Token>,
    /// The batches that each open stream has carried.
    pub open: RefCell<BTreeMap<Token, Vec<BatchId>>>,
    most: Cell<usize>,
    refuses: Cell<bool>,
    unmarked: Cell<bool>,
    /// The bridge does not mark the last answer of a stream.
    pub older: Cell<bool>,
    pub cancelled: RefCell<Vec<Token>>,
    /// The status of an answer that is not the bridge's, if it is not 200.
    status: Cell<Option<&'static str>>,
}

impl Transport for Rc<Host> {
    fn open(&self) -> Option<Token> {
        if self.refuses.get() {
            return None;
        }
        self.next.set(self.next.get() + 1);
        let mut open = self.open.borrow_mut();
        open.insert(self.next.get(), Vec::new());
        self.most.set(self.most.get().max(open.len()));
        Some(self.next.get())
    }

    fn message(&self, stream: Token, commands: &[u8]) -> bool {
        let batch = BatchId::from(commands[0]);
        self.open.borrow_mut().get_mut(&stream).map(|carried| carried.push(batch)).is_some()
    }

    fn cancel(&self, stream: Token) {
        self.cancelled.borrow_mut().push(stream);
        self.open.borrow_mut().remove(&stream);
    }

    fn header(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            MARK if self.unmarked.get() => None,
            MARK => Some(if self.older.get() { b"1".to_vec() } else { MARKS_LAST.into() }),
            ":status" => {
                Some(self.status.get().unwrap_or("200")).filter(|status| !status.is_empty()).map(Into::into)
            }
            _ => None,
        }
    }
}

/// A batch. Its body is its number.
fn outgoing(id: BatchId) -> Outgoing {
    let body = vec![u8::try_from(id).expect("a small number")];
    Outgoing { id, store: 0, body, replies: 1, slots: Slots::Normal }
}

struct World {
    host: Rc<Host>,
    streams: Streams<Rc<Host>>,
    now: Micros,
    batch: u8,
}

impl World {
    fn new() -> Self {
        let host = Rc::new(Host::default());
        Self { streams: Streams::new(Rc::clone(&host)), host, now: Micros::from_secs(1_000), batch: 0 }
    }

    fn after(&mut self, millis: u64) {
        self.now = self.now.plus(Micros::from_millis(millis));
    }

    fn send(&mut self) -> BatchId {
        self.batch += 1;
        let id = BatchId::from(self.batch);
        self.streams.begin_callback(true);
        self.streams.rotate(self.now);
        self.streams.send(outgoing(id), self.now).expect("sent");
        id
    }

    /// A batch that waits for its connection is sent again when the connection is there, as the engine does it.
    fn began(&mut self, token: Token) {
        match self.streams.began(token, self.now) {
            Some(Began::Connected(id)) => {
                assert_eq!(self.streams.send(outgoing(id), self.now), Ok(Sent::Now));
            }
            began => assert_eq!(began, None),
        }
    }

    fn answered(&mut self, token: Token, batch: BatchId) {
        assert_eq!(self.streams.answered(token), Some(batch));
        self.streams.judge(token, true, self.now);
        self.rotate();
        self.streams.clear();
    }

    fn rotate(&mut self) {
        self.streams.begin_callback(true);
        self.streams.rotate(self.now);
    }

    fn ready(&mut self) -> Option<BatchId> {
        self.streams.begin_callback(true);
        self.streams.next_ready(self.now)
    }

    fn open(&self) -> Vec<Token> {
        self.host.open.borrow().keys().copied().collect()
    }

    fn carried(&self, token: Token) -> Vec<BatchId> {
        self.host.open.borrow().get(&token).cloned().unwrap_or_default()
    }

    /// One stream, idle, that has carried batch 1.
    fn warm() -> Self {
        let mut world = Self::new();
        let batch = world.send();
        world.began(1);
        world.answered(1, batch);
        world
    }

    /// The same five seconds later: its successor is opening.
    fn renewing() -> Self {
        let mut world = Self::warm();
        world.after(5_000);
        let batch = world.send();
        world.answered(1, batch);
        world
    }
}

#[test]
fn a_batch_is_held_until_the_bridge_has_answered() {
    let mut world = World::new();
    let batch = world.send();
    assert_eq!((world.open(), world.carried(1)), (vec![1], vec![]));
    world.began(1);
    assert_eq!(world.carried(1), [batch]);
    world.answered(1, batch);
    world.send();
    assert_eq!((world.open(), world.carried(1)), (vec![1], vec![1, 2]));
}

#[test]
fn an_old_stream_is_left_when_its_successor_is_open_and_not_before() {
    let mut world = World::warm();
    world.after(4_999);
    let batch = world.send();
    assert_eq!(world.open(), [1], "it is not old yet");
    world.answered(1, batch);
    world.after(1);
    let batch = world.send();
    assert_eq!(
        (world.open(), world.carried(1)),
        (vec![1, 2], vec![1, 2, 3]),
        "no batch waits for the successor"
    );
    world.answered(1, batch);
    let batch = world.send();
    assert_eq!((world.open(), world.carried(1)), (vec![1, 2], vec![1, 2, 3, 4]), "one successor at a time");
    world.began(2);
    let next = world.send();
    assert_eq!(world.carried(2), [next], "the next batch is sent on the new stream");
    world.answered(2, next);
    assert_eq!(world.open(), [1, 2], "the batch on the old stream has no answer yet");
    let next = world.send();
    assert_eq!(world.carried(2), [5, next], "and the old stream gets no further batch");
    world.answered(1, batch);
    assert_eq!(world.open(), [2]);
}

#[test]
fn an_old_stream_that_carries_nothing_is_closed_at_once() {
    let mut world = World::renewing();
    world.began(2);
    let batch = world.send();
    assert_eq!(world.streams.answered(2), Some(batch));
    assert_eq!(world.open(), [1, 2], "it stays until the store has answered on its successor");
    world.streams.judge(2, true, world.now);
    assert!(world.streams.next_clear(world.now).is_some(), "it has to be cancelled");
    world.streams.clear();
    assert_eq!((world.open(), world.streams.next_clear(world.now)), (vec![2], None));
}

#[test]
fn where_no_successor_can_be_opened_the_old_stream_stays_and_it_is_tried_now_and_then() {
    type Fails = fn(&mut World, Token);
    let closed: Fails = |world, token| {
        assert_eq!(world.streams.closed(token, UNAVAILABLE, world.now), Closed::NeverOpened);
    };
    let foreign: Fails = |world, token| {
        world.host.unmarked.set(true);
        world.began(token);
        world.host.unmarked.set(false);
        world.streams.clear();
    };
    for fails in [closed, foreign] {
        let mut world = World::warm();
        world.after(60_000);
        let mut tried = 0;
        for _ in 0..500 {
            let (before, batch) = (world.host.next.get(), world.send());
            if world.host.next.get() > before {
                tried += 1;
                fails(&mut world, before + 1);
            }
            assert_eq!(world.open(), [1]);
            world.answered(1, batch);
            world.batch = 0;
            world.after(10);
        }
        assert_eq!(tried, 5, "once a second");
        world.send();
        world.began(world.host.next.get());
        assert_eq!(world.open(), [1, world.host.next.get()], "the store has recovered");
    }
}

#[test]
fn a_host_that_opens_nothing_is_not_asked_all_the_time() {
    let mut world = World::warm();
    world.after(5_000);
    world.host.refuses.set(true);
    let batch = world.send();
    world.answered(1, batch);
    world.host.refuses.set(false);
    let batch = world.send();
    world.answered(1, batch);
    assert_eq!(world.open(), [1]);
    world.after(1_000);
    world.send();
    assert_eq!(world.open(), [1, 2]);
}

#[test]
fn a_successor_that_does_not_open_is_given_up_for_another() {
    let mut world = World::renewing();
    world.after(1_000);
    world.rotate();
    world.streams.clear();
    assert_eq!(world.open(), [1]);
    world.after(1_000);
    world.rotate();
    assert_eq!(world.open(), [1, 3]);
}

/// Envoy neither opens nor closes a stream after its bridge has trapped.
#[test]
fn a_stream_that_never_opens_keeps_its_batch_for_a_second() {
    let mut world = World::new();
    let batch = world.send();
    world.after(999);
    assert_eq!((world.ready(), world.open()), (None, vec![1]));
    world.rotate();
    assert_eq!(world.open(), [1]);
    world.after(1);
    world.rotate();
    world.streams.clear();
    assert_eq!((world.ready(), world.open()), (Some(batch), vec![]));
    assert_eq!(world.streams.send(outgoing(batch), world.now), Ok(Sent::Connecting));
    world.began(2);
    assert_eq!(world.carried(2), [batch]);
}

#[test]
fn a_batch_that_finds_no_idle_stream_takes_the_one_that_opens() {
    let mut world = World::warm();
    world.after(5_000);
    let (first, second) = (world.send(), world.send());
    assert_eq!(world.open(), [1, 2], "two streams are enough for two batches");
    world.began(2);
    assert_eq!((world.carried(1), world.carried(2)), (vec![1, first], vec![second]));
    world.answered(1, first);
    world.answered(2, second);
    assert_eq!(world.open(), [2], "the new stream has replaced the old one all the same");
    let third = world.send();
    assert_eq!(world.streams.closed(2, UNAVAILABLE, world.now), Closed::Lost(third, StoreFailure::Refused));
}

/// The store has ended the connection together with its reply, and Envoy reports the close only after this callback. A batch sent on the
/// stream before that is lost.
#[test]
fn an_answer_that_is_the_last_of_its_stream_counts_and_nothing_follows_on_it() {
    let mut world = World::warm();
    let (first, second) = (world.send(), world.send());
    world.began(2);
    assert_eq!((world.carried(1), world.carried(2)), (vec![1, first], vec![second]));
    assert_eq!(world.streams.answered(2), Some(second));
    world.streams.judge(2, true, world.now);
    world.streams.end(2);
    world.streams.begin_callback(false);
    assert_eq!(world.streams.send(outgoing(4), world.now), Ok(Sent::Connecting), "the other stream is busy");
    assert_eq!(world.carried(2), [second], "nothing follows on the stream");
    assert!(world.streams.waits_for_callback(world.now), "it is sent from another callback");
    assert_eq!(*world.host.cancelled.borrow(), [0; 0], "not from the callback of a message");
    assert_eq!(world.streams.closed(2, 14, world.now), Closed::Idle, "the close loses nothing");
    world.streams.clear();
    assert_eq!(*world.host.cancelled.borrow(), [2], "once");
    assert_eq!(world.ready(), Some(4));
    assert_eq!(world.streams.send(outgoing(4), world.now), Ok(Sent::Connecting));
    world.began(3);
    assert_eq!((world.ready(), world.carried(3)), (None, vec![4]), "it is sent once, on a new stream");
    world.answered(1, first);
    world.answered(3, 4);
    assert_eq!(world.open(), [1, 3]);
}

/// If the store ends the successor with its first reply, the store is known to answer there, so the old stream is closed all the same.
#[test]
fn a_successor_that_ends_with_its_first_answer_has_replaced_the_old_stream() {
    let mut world = World::renewing();
    world.began(2);
    let batch = world.send();
    assert_eq!(world.streams.answered(2), Some(batch));
    world.streams.judge(2, true, world.now);
    world.streams.end(2);
    assert_eq!(world.streams.closed(2, 14, world.now), Closed::Idle);
    world.streams.clear();
    assert_eq!(world.open(), [0; 0]);
    world.send();
    assert_eq!(world.open(), [3]);
    // A stream that retires anyway is closed once.
    let mut world = two();
    let carried = [world.send(), world.send()];
    world.began(3);
    let batch = world.send();
    world.answered(3, batch);
    assert_eq!(world.streams.answered(1), Some(carried[1]), "its successor has answered");
    world.streams.end(1);
    world.streams.clear();
    world.streams.clear();
    assert_eq!(*world.host.cancelled.borrow(), [1]);
}

/// A bridge of an older version does not say which answer is the last of its stream.
#[test]
fn where_the_bridge_marks_no_last_answer_nothing_is_sent_from_the_callback_of_an_answer() {
    let mut world = World::new();
    world.host.older.set(true);
    let batch = world.send();
    world.began(1);
    for fails in [false, true] {
        if fails {
            // While new streams fail, it waits for this one.
            world.streams.failed = Some((world.now, RETRY));
        }
        let batch = if fails { 2 } else { batch };
        world.streams.begin_callback(false);
        assert_eq!(world.streams.answered(1), Some(batch));
        world.streams.judge(1, true, world.now);
        assert_eq!(world.streams.next_ready(world.now), None);
        assert_eq!(world.streams.send(outgoing(2), world.now), Ok(Sent::Connecting));
        assert_eq!(world.carried(1).last(), Some(&batch));
        assert!(world.streams.waits_for_callback(world.now), "the worker is woken");
        world.streams.leave_callback();
        assert_eq!(world.ready(), Some(2));
        assert_eq!(world.streams.send(outgoing(2), world.now), Ok(Sent::Now));
        assert_eq!((world.open(), world.carried(1).last()), (vec![1], Some(&2)));
    }
    // The store has ended it.
    assert_eq!(world.streams.answered(1), Some(2));
    world.streams.judge(1, true, world.now);
    assert_eq!(world.streams.send(outgoing(3), world.now), Ok(Sent::Connecting));
    assert_eq!(world.streams.closed(1, 14, world.now), Closed::Idle, "nothing is lost");
    world.streams.leave_callback();
    assert_eq!(world.ready(), Some(3));
    assert_eq!(world.streams.send(outgoing(3), world.now), Ok(Sent::Connecting));
    assert_eq!(world.open(), [2]);
}

/// For example, the password has changed, or the name leads to a former primary. The open stream stays in use, and one batch in
/// five seconds tries a new one.
#[test]
fn a_successor_that_the_store_answers_badly_takes_no_place() {
    type Fails = fn(&mut World, BatchId);
    let refused: Fails = |world, batch| {
        assert_eq!(world.streams.answered(2), Some(batch));
        world.streams.judge(2, false, world.now);
    };
    let silent: Fails = |world, batch| world.streams.abandon(batch, world.now);
    for fails in [refused, silent] {
        let mut world = World::renewing();
        world.began(2);
        let batch = world.send();
        assert_eq!(world.carried(2), [batch]);
        fails(&mut world, batch);
        world.streams.clear();
        for _ in 0..49 {
            world.after(100);
            let batch = world.send();
            assert_eq!(world.open(), [1]);
            world.answered(1, batch);
        }
        world.after(100);
        world.send();
        assert_eq!(world.open(), [1, 3]);
    }
}

/// The store's name has moved to an address without a Redis: the connection that is open goes on, also with two batches at a
/// time.
#[test]
fn a_batch_whose_fresh_stream_is_refused_waits_for_the_one_that_is_open() {
    let mut world = World::warm();
    let (first, second) = (world.send(), world.send());
    assert_eq!(world.open(), [1, 2], "the second batch needs another stream");
    assert_eq!(world.streams.closed(2, UNAVAILABLE, world.now), Closed::NeverOpened);
    assert_eq!(world.ready(), None, "the only stream carries the first");
    let third = world.send();
    assert_eq!(world.open(), [1], "no other stream is tried for a second");
    world.streams.abandon(third, world.now);
    world.answered(1, first);
    assert_eq!((world.ready(), world.ready()), (Some(second), None));
    let (first, second) = (world.send(), world.send());
    assert_eq!(world.carried(1).last(), Some(&first));
    assert_eq!(world.streams.closed(1, UNAVAILABLE, world.now), Closed::Lost(first, StoreFailure::Refused));
    assert_eq!(world.ready(), Some(second), "no open stream is left to wait for");
    world.send();
    assert_eq!(world.open(), [3], "without an open stream, a new one is opened");
}

/// Otherwise Envoy handles the close of a stream for ever: see the module.
#[test]
fn one_stream_is_opened_in_a_callback_at_most_and_before_anything_is_sent() {
    let mut world = World::new();
    world.streams.begin_callback(true);
    assert_eq!(world.streams.send(outgoing(1), world.now), Ok(Sent::Connecting));
    assert_eq!(world.streams.send(outgoing(2), world.now), Ok(Sent::Connecting));
    assert_eq!(world.open(), [1], "the second waits for another callback");
    assert!(world.streams.waits_for_callback(world.now));

    world.streams.begin_callback(false);
    assert_eq!(world.streams.next_ready(world.now), None, "this callback may not open any");
    assert_eq!(world.streams.send(outgoing(3), world.now), Ok(Sent::Connecting));
    assert_eq!(world.open(), [1]);
    world.streams.abandon(3, world.now);

    assert_eq!(world.ready(), Some(2));
    assert_eq!(world.streams.send(outgoing(2), world.now), Ok(Sent::Connecting));
    assert_eq!((world.open(), world.streams.waits_for_callback(world.now)), (vec![1, 2], false));

    let mut world = World::warm();
    world.streams.begin_callback(true);
    assert_eq!(world.streams.send(outgoing(2), world.now), Ok(Sent::Now));
    assert_eq!(world.streams.send(outgoing(3), world.now), Ok(Sent::Connecting));
    assert_eq!(world.open(), [1], "what was sent before may have failed");
    assert_eq!(world.ready(), Some(3));
}

#[test]
fn a_stream_that_the_store_answers_badly_is_closed() {
    let mut world = World::warm();
    let batch = world.send();
    assert_eq!(world.streams.answered(1), Some(batch));
    world.streams.judge(1, false, world.now);
    world.send();
    assert_eq!(world.open(), [1, 2], "the next batch opens another");
    world.streams.clear();
    assert_eq!(world.open(), [2]);
}

/// Eight streams, because the store was slow for a moment. Those in use get successors one after the other, and the others are
/// closed. At no time is more than one stream open beside those in use.
#[test]
fn many_streams_are_replaced_one_by_one_and_those_without_use_are_closed() {
    let mut world = World::new();
    let batches: Vec<_> = (0..8).map(|_| world.send()).collect();
    for (token, batch) in (1..).zip(batches) {
        world.began(token);
        world.answered(token, batch);
    }
    assert_eq!(world.open().len(), 8);
    let mut at_old = 0;
    for _ in 0..1_000 {
        world.batch = 0;
        // Two at a time are in use.
        let batches = [world.send(), world.send()];
        for token in world.open() {
            let opening =
                world.streams.open.iter().any(|stream| stream.token == token && stream.is_opening());
            if opening {
                world.began(token);
            }
        }
        for batch in batches {
            let carries = world.streams.open.iter().find(|stream| stream.batch == Some(batch));
            let token = carries.expect("it is carried").token;
            at_old = if token <= 8 { world.now.0 } else { at_old };
            world.answered(token, batch);
        }
        world.after(10);
    }
    let last = at_old - Micros::from_secs(1_000).0;
    assert!(last < 6_000_000, "the last batch on an old stream left after {last} us");
    assert!(world.open().len() <= 3, "{:?}", world.open());
    assert!(world.host.most.get() <= 9, "{}", world.host.most.get());
}

#[test]
fn a_clock_that_was_set_back_does_not_keep_an_old_stream() {
    let mut world = World::warm();
    world.now = Micros::from_secs(10);
    world.send();
    assert_eq!(world.open(), [1, 2]);
}

#[test]
fn what_answers_in_the_place_of_the_bridge_gets_no_batch() {
    let first = || {
        let mut world = World::new();
        world.host.unmarked.set(true);
        let batch = world.send();
        (world, batch)
    };
    let (mut world, batch) = first();
    let failed = Began::Failed(batch, StoreFailure::NotTheBridge);
    assert_eq!(world.streams.began(1, world.now), Some(failed));
    assert_eq!(world.open(), [1], "not from its own callback");
    world.streams.clear();
    assert_eq!((world.open(), world.carried(1)), (vec![], vec![]));
    // Envoy closes a stream whose status is not 200, and then reports why: there is no connection, or something else answered.
    for status in ["404", "503", ""] {
        for (code, failure) in [
            (0, StoreFailure::NotTheBridge),
            (2, StoreFailure::NotTheBridge),
            (UNAVAILABLE, StoreFailure::Refused),
        ] {
            let (mut world, batch) = first();
            world.host.status.set(Some(status));
            assert_eq!(world.streams.began(1, world.now), None, "{status:?}");
            assert_eq!(
                world.streams.closed(1, code, world.now),
                Closed::Lost(batch, failure),
                "{status:?}, {code}"
            );
            assert_eq!(world.open(), [0; 0]);
        }
    }
    // The same for a stream that closes before its headers.
    let (mut world, batch) = first();
    assert_eq!(world.streams.closed(1, 2, world.now), Closed::Lost(batch, StoreFailure::Refused));
}

#[test]
fn a_stream_that_closes_takes_along_what_was_sent_on_it_and_nothing_else() {
    // The second stream closes while it carries a batch, the first after its batch was answered.
    let mut world = World::warm();
    let (first, second) = (world.send(), world.send());
    world.began(2);
    assert_eq!(world.streams.closed(2, UNAVAILABLE, world.now), Closed::Lost(second, StoreFailure::Refused));
    world.answered(1, first);
    assert_eq!(world.streams.closed(1, 0, world.now), Closed::Idle);
    assert_eq!(world.streams.closed(1, 0, world.now), Closed::Idle, "it is already forgotten");
    let next = world.send();
    assert_eq!(world.open(), [3], "nothing has failed: the next batch opens another at once");
    // The batch of a stream without headers is abandoned, so the close loses nothing.
    world.streams.abandon(next, world.now);
    assert_eq!(world.streams.closed(3, UNAVAILABLE, world.now), Closed::Idle);
}

#[test]
fn a_batch_that_the_host_cannot_send_has_failed() {
    let mut world = World::warm();
    world.host.open.borrow_mut().remove(&1);
    world.streams.begin_callback(true);
    assert_eq!(world.streams.send(outgoing(2), world.now), Err(StoreFailure::NotSent));
    world.host.refuses.set(true);
    world.streams.begin_callback(true);
    assert_eq!(world.streams.send(outgoing(3), world.now), Err(StoreFailure::NotSent), "no stream is left");
    assert!(!world.streams.waits_for_callback(world.now), "neither waits");
    // If another stream is open, the batch waits for that one, and no other is tried for a second.
    let mut world = World::warm();
    world.send();
    world.host.refuses.set(true);
    world.streams.begin_callback(true);
    assert_eq!(world.streams.send(outgoing(3), world.now), Ok(Sent::Connecting));
    assert!(!world.streams.waits_for_callback(world.now));
    world.after(999);
    assert_eq!((world.streams.waits_for_callback(world.now), world.ready()), (false, None));
    world.after(1);
    assert_eq!((world.streams.waits_for_callback(world.now), world.ready()), (true, Some(3)));
    assert!(!world.streams.waits_for_callback(world.now), "nothing waits any more");
}

/// Two idle streams, opened five seconds ago. Each carried a batch a millisecond ago.
fn two() -> World {
    let mut world = World::new();
    for millis in [4_999, 1] {
        let batches = [world.send(), world.send()];
        for token in [1, 2] {
            if millis == 4_999 {
                world.began(token);
            }
            let carries = world.streams.open.iter().find(|stream| stream.token == token);
            let batch = carries.and_then(|stream| stream.batch).expect("a batch");
            assert!(batches.contains(&batch));
            world.answered(token, batch);
        }
        world.after(millis);
    }
    world
}

#[test]
fn each_successor_takes_the_place_of_another_stream_also_while_those_carry_batches() {
    let mut world = two();
    let carried = [world.send(), world.send()];
    assert_eq!((world.open(), world.carried(1).last()), (vec![1, 2, 3], Some(&carried[1])));
    for successor in [3, 4] {
        if successor == 3 {
            world.send();
        }
        world.began(successor);
        let batch = if successor == 3 { world.batch.into() } else { world.send() };
        assert_eq!(world.carried(successor), [batch]);
        world.answered(successor, batch);
    }
    assert_eq!(world.open(), [1, 2, 3, 4], "each old stream still carries a batch");
    world.answered(1, carried[1]);
    world.answered(2, carried[0]);
    assert_eq!(world.open(), [3, 4]);
}

#[test]
fn streams_that_are_in_use_are_replaced_and_not_closed() {
    let mut world = two();
    world.rotate();
    world.streams.clear();
    assert_eq!(world.open(), [1, 2, 3]);
}

/// After the callback that reports the close, Envoy has freed the stream: see the module.
#[test]
fn each_stream_is_cancelled_once() {
    let mut world = two();
    let batches = [world.send(), world.send()];
    world.streams.abandon(batches[0], world.now);
    world.streams.abandon(batches[1], world.now);
    assert_eq!(*world.host.cancelled.borrow(), [0; 0], "not from the callback that abandons it");
    // Envoy closes one of them before they are cancelled.
    assert_eq!(world.streams.closed(1, UNAVAILABLE, world.now), Closed::Idle);
    assert_eq!(*world.host.cancelled.borrow(), [1]);
    world.streams.clear();
    world.streams.clear();
    assert_eq!(*world.host.cancelled.borrow(), [1, 2]);
}
