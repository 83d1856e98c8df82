// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::engine::BatchId;

type Token = u32;

/// A host whose connections carry this many batches. If they carry one, the pool opens them; otherwise the host gives them to the pool.
#[derive(Default)]
struct Host<const DEPTH: usize> {
    newest: Token,
    refuses: bool,
    /// The connections that the pool has requested, each with its store.
    requested: Vec<(usize, Purpose)>,
    expects_suspect: bool,
}

impl<const DEPTH: usize> Transport for Host<DEPTH> {
    const DEPTH: usize = DEPTH;
    const SILENCE_FAILS: bool = DEPTH > 1;
    type Batch = BatchId;
    type Id = Token;
    type Connection = Token;

    fn id(connection: &Token) -> Token {
        *connection
    }

    fn open(&mut self, store: usize, purpose: Purpose) -> Result<Option<Token>, NoConnection> {
        self.requested.push((store, purpose));
        if self.refuses {
            return Err(NoConnection);
        }
        self.newest += u32::from(DEPTH == 1);
        Ok((DEPTH == 1).then_some(self.newest))
    }

    fn expects_suspect(&self, _: usize) -> bool {
        self.expects_suspect
    }
}

/// A host with two stores. A batch of the second has a number from 10,000.
struct World<const DEPTH: usize> {
    pool: Pool<Host<DEPTH>>,
    now: Micros,
    batch: BatchId,
    /// The connections that the host has, and the batches that each has carried.
    open: BTreeMap<Token, Vec<BatchId>>,
    closed: Vec<Token>,
    failed: Vec<(BatchId, StoreFailure)>,
}

impl<const DEPTH: usize> World<DEPTH> {
    fn new() -> Self {
        let mut world = Self {
            pool: Pool::new(Host::default()),
            now: Micros::from_secs(1_000),
            batch: 0,
            open: BTreeMap::new(),
            closed: Vec::new(),
            failed: Vec::new(),
        };
        (0..2).for_each(|store| assert_eq!(world.pool.add_store(), store));
        world.pool.tick(world.now);
        world
    }

    fn after(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now.plus(Micros::from_millis(1));
            self.pool.tick(self.now);
        }
    }

    fn set_clock(&mut self, seconds: u64) {
        self.now = Micros::from_secs(seconds);
        self.pool.tick(self.now);
    }

    /// A callback begins, and the pool acts.
    fn callback(&mut self, may_act: bool, event: impl FnOnce(&mut Pool<Host<DEPTH>>)) {
        self.pool.begin(self.now, may_act);
        event(&mut self.pool);
        let mut connected = Vec::new();
        while let Some(output) = self.pool.poll() {
            match output {
                Output::Close(token) => {
                    self.closed.push(token);
                    self.open.remove(&token);
                }
                // As the engine does it, the newest comes last.
                Output::Connected(batch) => connected.insert(0, batch),
                Output::Failed(batch, failure) => self.failed.push((batch, failure)),
            }
        }
        for batch in connected {
            self.offer(batch, Slots::Normal);
        }
        self.note();
    }

    fn note(&mut self) {
        for (token, _) in self.pool.iter() {
            self.open.entry(*token).or_default();
        }
    }

    /// Returns whether it was sent.
    fn offer(&mut self, batch: BatchId, slots: Slots) -> bool {
        let sent = self.pool.send(usize::from(batch >= 10_000), batch, slots).expect("no failure");
        self.note();
        sent.iter().for_each(|token| self.open.get_mut(token).expect("it is open").push(batch));
        sent.is_some()
    }

    /// The callback of a timer or a queue.
    fn turn(&mut self) {
        self.callback(true, |_| ());
    }

    fn send(&mut self) -> BatchId {
        self.turn();
        self.batch += 1;
        self.offer(self.batch, Slots::Normal);
        self.batch
    }

    fn opened(&mut self, token: Token) {
        self.callback(false, |pool| pool.opened(token));
    }

    /// Its oldest batch is answered well.
    fn answered(&mut self, token: Token) {
        self.judged(token, true);
        self.turn();
    }

    fn judged(&mut self, token: Token, well: bool) {
        self.callback(false, |pool| {
            assert!(pool.answered(token).is_some());
            pool.judge(token, well);
        });
    }

    fn closed(&mut self, token: Token) {
        self.callback(false, |pool| pool.closed(token, &StoreFailure::Refused));
        self.open.remove(&token);
    }

    fn tokens(&self) -> Vec<Token> {
        self.open.keys().copied().collect()
    }

    fn failed(&mut self) -> Vec<BatchId> {
        mem::take(&mut self.failed).into_iter().map(|(batch, _)| batch).collect()
    }
}

const NOTHING: [u32; 0] = [];

// --- One batch at a time -----------------------------------------------------------------------------------------------

type Streams = World<1>;

/// One stream, idle, that has carried batch 1.
fn warm() -> Streams {
    let mut world = Streams::new();
    world.send();
    world.opened(1);
    world.answered(1);
    world
}

/// The same five seconds later: its successor is opening.
fn renewing() -> Streams {
    let mut world = warm();
    world.after(5_000);
    world.send();
    world.answered(1);
    world
}

/// Two idle streams, opened five seconds ago. Each carried a batch a millisecond ago.
fn two() -> Streams {
    let mut world = Streams::new();
    for millis in [4_999, 1] {
        world.send();
        world.send();
        for token in [1, 2] {
            world.opened(token);
        }
        [1, 2].into_iter().for_each(|token| world.answered(token));
        world.after(millis);
    }
    assert_eq!(world.tokens(), [1, 2]);
    world
}

#[test]
fn a_batch_waits_until_its_connection_is_open() {
    let mut world = Streams::new();
    world.send();
    assert_eq!(world.open[&1], NOTHING);
    world.opened(1);
    assert_eq!(world.open[&1], [1]);
    world.answered(1);
    world.send();
    assert_eq!((world.tokens(), &world.open[&1]), (vec![1], &vec![1, 2]));
}

#[test]
fn an_old_connection_is_left_when_its_successor_is_proven_and_not_before() {
    let mut world = warm();
    world.after(4_999);
    world.send();
    assert_eq!(world.tokens(), [1], "it is not old yet");
    world.answered(1);
    world.after(1);
    world.send();
    assert_eq!((world.tokens(), world.open[&1].len()), (vec![1, 2], 3), "no batch waits for the successor");
    world.answered(1);
    world.send();
    assert_eq!((world.tokens(), world.open[&1].len()), (vec![1, 2], 4), "one successor at a time");
    world.opened(2);
    let next = world.send();
    assert_eq!(world.open[&2], [next], "the next batch is sent on the new connection");
    world.answered(2);
    assert_eq!(world.tokens(), [1, 2], "the batch on the old connection has no answer yet");
    let next = world.send();
    assert_eq!(world.open[&2].last(), Some(&next), "and the old connection gets no further batch");
    world.answered(1);
    assert_eq!(world.tokens(), [2]);
    // An old connection that carries nothing closes in the next callback that may close it.
    let mut world = renewing();
    world.opened(2);
    world.send();
    world.callback(false, |pool| assert!(pool.answered(2).is_some()));
    assert!(!world.pool.any_closing(), "it stays until the answer was judged");
    world.callback(false, |pool| pool.judge(2, true));
    assert_eq!((world.tokens(), world.pool.any_closing()), (vec![1, 2], true));
    world.turn();
    assert_eq!((world.tokens(), world.pool.any_closing()), (vec![2], false));
}

#[test]
fn where_no_successor_opens_the_old_connection_stays_and_another_is_tried_each_second() {
    for refuses in [false, true] {
        let mut world = warm();
        world.after(60_000);
        world.pool.transport.refuses = refuses;
        world.pool.transport.requested.clear();
        for _ in 0..500 {
            world.send();
            let newest = *world.tokens().last().unwrap();
            if newest > 1 {
                world.closed(newest);
            }
            assert_eq!(world.tokens(), [1]);
            world.answered(1);
            world.after(10);
        }
        assert_eq!(world.pool.transport.requested, [(0, Purpose::Successor); 5]);
        assert_eq!(world.failed(), NOTHING);
        world.pool.transport.refuses = false;
        world.send();
        assert_eq!(world.tokens().len(), 2, "the store has recovered");
    }
}

/// Envoy neither opens nor closes a stream after its bridge has trapped.
#[test]
fn a_connection_that_does_not_open_is_replaced_after_a_second_and_its_batch_waits() {
    let mut world = renewing();
    world.after(1_000);
    world.turn();
    assert_eq!(world.tokens(), [1]);
    world.after(1_000);
    world.turn();
    assert_eq!(world.tokens(), [1, 3]);

    let mut world = Streams::new();
    let batch = world.send();
    world.after(999);
    world.turn();
    assert_eq!(world.tokens(), [1]);
    world.after(1);
    world.turn();
    assert_eq!((world.tokens(), world.failed()), (vec![2], vec![]));
    world.opened(2);
    assert_eq!(world.open[&2], [batch]);
}

#[test]
fn only_time_in_which_the_worker_could_read_makes_a_connection_late() {
    let mut world = Streams::new();
    world.send();
    world.now = world.now.plus(Micros::from_secs(3));
    world.pool.tick(world.now);
    world.turn();
    assert_eq!(world.tokens(), [1], "the worker was busy");
    world.after(41);
    world.turn();
    assert_eq!(world.tokens(), [2]);
}

/// An operator or NTP sets the clock of the host back, or ahead.
#[test]
fn a_clock_that_was_set_changes_nothing() {
    for seconds in [10, 4_600] {
        let mut world = Streams::new();
        (0..2).for_each(|_| _ = world.send());
        world.opened(1);
        world.set_clock(seconds);
        world.turn();
        assert_eq!(world.tokens()[..2], [1, 2], "one opens, and one carries a batch");
        world.opened(2);
        assert_eq!(world.open[&2], [2]);
        [1, 2].into_iter().for_each(|token| world.answered(token));
        assert_eq!((&world.tokens()[..2], world.failed.len()), (&[1, 2][..], 0), "both stay");
        if seconds == 10 {
            world.after(5_000);
            world.send();
            assert_eq!(world.tokens().last(), Some(&3), "it gets a successor");
        }
        let mut world = Streams::new();
        world.send();
        world.set_clock(seconds);
        world.after(1_000);
        world.turn();
        assert_eq!(world.tokens(), [2], "one that does not open closes");
    }
}

#[test]
fn a_batch_that_finds_no_idle_connection_takes_the_one_that_opens() {
    let mut world = warm();
    world.after(5_000);
    let (first, second) = (world.send(), world.send());
    assert_eq!(world.tokens(), [1, 2], "two are enough for two batches");
    world.opened(2);
    assert_eq!((world.open[&1].last(), world.open[&2].last()), (Some(&first), Some(&second)));
    world.answered(1);
    world.answered(2);
    assert_eq!(world.tokens(), [2], "the new one has replaced the old one all the same");
    let third = world.send();
    world.closed(2);
    assert_eq!(world.failed(), [third]);
}

/// The store has ended the connection together with its reply, and Envoy reports the close only after this callback. A batch sent on the
/// stream before that is lost.
#[test]
fn nothing_follows_on_a_connection_that_retires() {
    let mut world = warm();
    world.send();
    let second = world.send();
    world.opened(2);
    world.judged(2, true);
    world.callback(false, |pool| pool.retire(2));
    assert!(!world.offer(4, Slots::Normal), "the other stream is busy");
    assert_eq!(world.open[&2], [second]);
    assert!(world.pool.waits_for_callback());
    assert_eq!(world.closed, NOTHING, "it does not close in the callback of a message");
    world.closed(2);
    assert_eq!(world.failed(), NOTHING, "the close loses nothing");
    world.turn();
    assert_eq!(world.closed, NOTHING, "Envoy has closed it");
    world.opened(3);
    assert_eq!(world.open[&3], [4]);
    // A successor that ends with its first answer has replaced the old stream all the same.
    let mut world = renewing();
    world.opened(2);
    world.send();
    world.judged(2, true);
    world.callback(false, |pool| pool.retire(2));
    world.closed(2);
    world.turn();
    assert_eq!(world.tokens(), NOTHING);
    world.send();
    assert_eq!(world.tokens(), [3]);
}

/// A bridge of an older version does not say which answer is the last of its stream.
#[test]
fn nothing_is_sent_on_a_connection_that_rests_before_the_next_callback() {
    for is_paused in [false, true] {
        let mut world = warm();
        world.send();
        if is_paused {
            // While new streams fail, it waits for this one.
            world.pool.pause(0, RETRY);
        }
        world.judged(1, true);
        world.callback(false, |pool| pool.rest(1));
        assert!(!world.offer(3, Slots::Normal));
        assert!(world.pool.waits_for_callback(), "the worker is woken");
        world.turn();
        assert_eq!((world.tokens(), world.open[&1].last()), (vec![1], Some(&3)));
        // The store has ended it.
        world.judged(1, true);
        world.callback(false, |pool| pool.rest(1));
        assert!(!world.offer(4, Slots::Normal));
        world.closed(1);
        world.turn();
        assert_eq!((world.tokens(), world.failed()), (vec![2], vec![]), "nothing is lost");
    }
}

/// For example, the password has changed, or the name leads to a former primary. The open connection stays in use, and one batch in five
/// seconds tries a new one.
#[test]
fn a_successor_that_the_store_answers_badly_takes_no_place() {
    for is_silent in [false, true] {
        let mut world = renewing();
        world.opened(2);
        let batch = world.send();
        assert_eq!(world.open[&2], [batch]);
        match is_silent {
            true => world.callback(true, |pool| pool.abandon(batch)),
            false => world.judged(2, false),
        }
        for _ in 0..49 {
            world.after(100);
            world.send();
            assert_eq!(world.tokens(), [1]);
            world.answered(1);
        }
        world.after(100);
        world.send();
        assert_eq!(world.tokens(), [1, 3]);
    }
}

/// The store's name has moved to an address without a Redis: the connection that is open goes on, also with two batches at a time.
#[test]
fn a_batch_whose_fresh_connection_is_refused_waits_for_the_one_that_is_open() {
    let mut world = warm();
    let (first, second) = (world.send(), world.send());
    assert_eq!(world.tokens(), [1, 2], "the second batch needs another");
    world.closed(2);
    let third = world.send();
    assert_eq!(world.tokens(), [1], "no other is tried for a second");
    world.pool.abandon(third);
    world.answered(1);
    assert_eq!(world.open[&1][1..], [first, second]);
    world.send();
    world.closed(1);
    assert_eq!(world.failed(), [second]);
    world.turn();
    assert_eq!(world.tokens(), [3], "without an open one, a new one is opened");
    world.closed(3);
    assert_eq!(world.failed().len(), 1, "no open one is left to wait for");
}

/// Otherwise Envoy handles the close of a stream for ever: see `src/host/limiter/streams.rs`.
#[test]
fn one_connection_is_opened_in_a_callback_at_most_and_before_anything_is_sent() {
    let mut world = Streams::new();
    world.turn();
    assert_eq!([1, 2].map(|batch| world.offer(batch, Slots::Normal)), [false; 2]);
    assert_eq!(world.tokens(), [1], "the second waits for another callback");
    assert!(world.pool.waits_for_callback());
    world.callback(false, |_| ());
    assert!(!world.offer(3, Slots::Normal));
    assert_eq!(world.tokens(), [1], "this callback may not open any");
    world.pool.abandon(3);
    world.turn();
    assert_eq!((world.tokens(), world.pool.waits_for_callback()), (vec![1, 2], false));

    let mut world = warm();
    world.turn();
    assert_eq!([2, 3].map(|batch| world.offer(batch, Slots::Normal)), [true, false]);
    assert_eq!(world.tokens(), [1], "what was sent before may have failed");
    world.turn();
    assert_eq!(world.tokens(), [1, 2]);
}

/// Eight streams, because the store was slow for a moment. Those in use get successors one after the other, and the others are closed. At
/// no time is more than one stream open beside those in use.
#[test]
fn many_connections_are_replaced_one_by_one_and_those_without_use_are_closed() {
    let mut world = Streams::new();
    (0..8).for_each(|_| _ = world.send());
    (1..=8).for_each(|token| world.opened(token));
    (1..=8).for_each(|token| world.answered(token));
    let (mut at_old, mut max) = (0, 0);
    for millis in (0..10_000).step_by(10) {
        // Two at a time are in use.
        let batches = [world.send(), world.send()];
        for token in world.tokens() {
            let opens = |stream: &&Connection<_>| stream.host == token && stream.state == State::Opening;
            if world.pool.connections.iter().any(|stream| opens(&stream)) {
                world.opened(token);
            }
        }
        for batch in batches {
            let token = *world.open.iter().find(|(_, carried)| carried.last() == Some(&batch)).unwrap().0;
            at_old = if token <= 8 { millis } else { at_old };
            world.answered(token);
        }
        max = max.max(world.tokens().len());
        world.after(10);
    }
    assert!(at_old < 6_000, "the last batch on an old stream left after {at_old} ms");
    assert!(world.tokens().len() <= 3 && max <= 9, "{:?}, {max}", world.tokens());
    assert_eq!(two().tokens(), [1, 2]);
    let mut world = two();
    world.turn();
    assert_eq!(world.tokens(), [1, 2, 3], "streams that are in use are replaced and not closed");
}

#[test]
fn each_successor_takes_the_place_of_another_also_while_those_carry_batches() {
    let mut world = two();
    (0..2).for_each(|_| _ = world.send());
    assert_eq!(world.tokens(), [1, 2, 3]);
    for successor in [3, 4] {
        world.opened(successor);
        let batch = world.send();
        assert_eq!(world.open[&successor], [batch]);
        world.answered(successor);
    }
    assert_eq!(world.tokens(), [1, 2, 3, 4], "each old one still carries a batch");
    world.answered(1);
    world.answered(2);
    assert_eq!(world.tokens(), [3, 4]);
}

#[test]
fn a_connection_that_closes_takes_along_what_was_sent_on_it_and_nothing_else() {
    let mut world = warm();
    world.send();
    let second = world.send();
    world.opened(2);
    world.closed(2);
    assert_eq!(world.failed(), [second]);
    world.answered(1);
    world.closed(1);
    world.closed(1);
    assert_eq!(world.failed(), NOTHING, "it is already forgotten");
    let next = world.send();
    assert_eq!(world.tokens(), [3], "nothing has failed: the next batch opens another at once");
    world.pool.abandon(next);
    world.closed(3);
    assert_eq!(world.failed(), NOTHING, "the batch that waited was abandoned");
    // Connections are closed once. Envoy closes one of these before the pool does.
    let mut world = two();
    let batches = [world.send(), world.send()];
    world.callback(false, |pool| batches.iter().for_each(|batch| pool.abandon(*batch)));
    assert_eq!(world.closed, NOTHING, "not in this callback");
    world.closed(1);
    world.turn();
    world.turn();
    assert_eq!(world.closed, [2]);
}

#[test]
fn a_batch_that_the_host_cannot_send_has_failed() {
    let mut world = Streams::new();
    world.pool.transport.refuses = true;
    world.turn();
    assert_eq!(world.pool.send(0, 1, Slots::Normal), Err(StoreFailure::NotSent));
    assert_eq!(world.pool.send(2, 1, Slots::Normal), Err(StoreFailure::NotSent), "there is no such store");
    assert!(!world.pool.waits_for_callback(), "neither waits");
    // If another stream is open, the batch waits for that one, and no other is tried for a second.
    let mut world = warm();
    world.send();
    world.pool.transport.refuses = true;
    let batch = world.send();
    world.pool.transport.refuses = false;
    world.after(999);
    world.turn();
    assert_eq!((world.pool.waits_for_callback(), world.tokens()), (false, vec![1]));
    world.after(1);
    world.turn();
    world.opened(2);
    assert_eq!(world.open[&2], [batch]);
    // A stream that the store answers badly closes.
    world.judged(2, false);
    world.turn();
    assert_eq!(world.tokens(), [1]);
}

#[test]
fn what_happens_to_a_connection_matters_to_its_own_store_only() {
    let mut world = Streams::new();
    world.turn();
    assert_eq!([1, 10_000, 2].map(|batch| world.offer(batch, Slots::Normal)), [false; 3]);
    for _ in 0..2 {
        assert!(world.pool.waits_for_callback());
        world.turn();
    }
    assert_eq!(world.pool.iter().map(|(_, store)| store).collect::<Vec<_>>(), [0, 1, 0]);
    [1, 2, 3].into_iter().for_each(|token| world.opened(token));
    assert_eq!(world.open[&2], [10_000]);
    world.closed(2);
    assert_eq!(world.failed(), [10_000]);
    world.judged(1, false);
    world.turn();
    assert_eq!((world.tokens(), world.failed()), (vec![3], vec![]));
    world.callback(false, |pool| {
        assert_eq!(pool.answered(7), None, "there is no such connection");
        pool.opened(7);
        pool.judge(7, false);
        pool.retire(7);
    });
    // Each store gets its successors.
    let mut world = Streams::new();
    for (token, batch) in [(1, 1), (2, 10_000)] {
        world.turn();
        assert!(!world.offer(batch, Slots::Normal));
        world.opened(token);
        world.answered(token);
    }
    world.after(6_000);
    for successors in [vec![1, 2, 3], vec![1, 2, 3, 4], vec![1, 2, 3, 4]] {
        world.turn();
        assert_eq!(world.tokens(), successors);
    }
}

// --- Many batches ------------------------------------------------------------------------------------------------------

type Lines = World<{ usize::MAX }>;

impl Lines {
    /// Envoy gives the pool a connection, which opens.
    fn given(&mut self, token: Token) {
        self.callback(true, |pool| pool.add(token, 0));
        self.opened(token);
    }

    fn requested(&mut self) -> Vec<Purpose> {
        mem::take(&mut self.pool.transport.requested).into_iter().map(|(_, purpose)| purpose).collect()
    }

    /// A worker with one connection that is proven.
    fn ready() -> Self {
        let mut world = Self::new();
        world.given(1);
        world.send();
        world.answered(1);
        world
    }
}

#[test]
fn what_waits_for_a_connection_is_sent_when_one_opens_and_fails_when_none_does() {
    let mut world = Lines::new();
    let batches = [world.send(), world.send()];
    world.turn();
    assert_eq!(world.requested(), [Purpose::Batch; 2]);
    world.callback(true, |pool| pool.add(1, 0));
    world.send();
    assert_eq!(world.requested(), []);
    world.opened(1);
    assert_eq!(world.open[&1], [1, 2, 3], "{batches:?}");
    world.answered(1);
    world.callback(true, |pool| pool.fail(1, &StoreFailure::Refused));
    assert_eq!(world.failed(), [3, 2]);
    assert_eq!(world.closed, [1]);
    let fails = |fails: &dyn Fn(&mut Pool<_>), expected: &[BatchId]| {
        let mut world = Lines::new();
        (0..2).for_each(|_| _ = world.send());
        world.callback(true, |pool| pool.add(1, 0));
        world.callback(true, fails);
        assert_eq!(world.failed(), expected);
        world.requested()
    };
    // Redis refuses the login, or the connection. Then all fail, unless another connection opens.
    fails(&|pool| pool.fail(1, &StoreFailure::Refused), &[2, 1]);
    fails(&|pool| pool.not_opened(0, &StoreFailure::Refused), &[]);
    let another = |pool: &mut Pool<_>| {
        pool.add(2, 0);
        pool.fail(1, &StoreFailure::Refused);
    };
    fails(&another, &[]);
    // Redis does not answer the greeting.
    let mut world = Lines::new();
    world.send();
    world.callback(true, |pool| pool.add(1, 0));
    world.after(1_000);
    world.turn();
    assert_eq!((world.failed(), world.closed), (vec![1], vec![1]));
}

#[test]
fn an_old_connection_is_replaced_also_where_the_host_gives_connections() {
    let mut world = Lines::ready();
    world.after(5_000);
    world.send();
    world.turn();
    assert_eq!(world.requested(), [Purpose::Successor], "once in a second");
    world.given(2);
    assert_eq!(world.tokens(), [1, 2], "it is not proven yet");
    let batch = world.send();
    assert_eq!(world.open[&2], [batch]);
    world.answered(2);
    assert_eq!(world.tokens(), [1, 2], "the old one still has a batch");
    world.answered(1);
    assert_eq!(world.tokens(), [2]);
    // One whose only connection was never used, and leads to a Redis that hangs.
    let mut idle = Lines::new();
    idle.given(1);
    idle.after(60_000);
    idle.send();
    idle.turn();
    assert_eq!(idle.requested(), [Purpose::Successor]);
    // A worker without traffic gets connections that others request.
    world.given(3);
    world.given(4);
    world.turn();
    assert_eq!(world.tokens(), [2, 4]);
    // An answer that is no good: what else is in flight on it is still answered, and the old connection gets the next.
    (0..2).for_each(|_| _ = world.send());
    world.judged(4, false);
    assert_eq!(world.tokens(), [2, 4]);
    let batch = world.send();
    assert_eq!(world.open[&2].last(), Some(&batch));
    world.judged(4, true);
    world.turn();
    assert_eq!(world.tokens(), [2]);
    world.requested();
    world.after(4_999);
    world.turn();
    assert_eq!(world.requested(), []);
    world.after(1);
    world.turn();
    assert_eq!(world.requested(), [Purpose::Successor]);
    // Redis still answers an abandoned batch. So the connection closes, with what else is in flight.
    let batch = world.send();
    world.callback(true, |pool| pool.abandon(batch));
    assert_eq!((world.failed().len(), world.tokens()), (2, vec![]));
}

#[test]
fn suspect_slots_have_a_connection_of_their_own() {
    let mut world = Lines::ready();
    assert!(!world.offer(2, Slots::Suspect));
    assert_eq!((world.requested(), world.offer(3, Slots::Suspect)), (vec![Purpose::Suspect], true));
    assert_eq!(world.open[&1], [1, 3], "one waits, the others use the normal one until it is there");
    world.turn();
    assert_eq!(world.open[&1], [1, 3]);
    world.pool.transport.expects_suspect = true;
    world.given(2);
    assert_eq!(world.open[&1], [1, 3, 2], "what waited takes any");
    assert!(world.offer(4, Slots::Suspect));
    assert!(world.offer(5, Slots::Normal));
    assert_eq!((&world.open[&1][3..], &world.open[&2]), (&[5][..], &vec![4]));
    // The normal one stays, although a later one has answered well. At 5 s the other closes, without a successor.
    world.answered(2);
    assert_eq!(world.tokens(), [1, 2]);
    world.offer(6, Slots::Suspect);
    world.after(5_000);
    world.requested();
    world.turn();
    assert_eq!((world.tokens(), world.requested()), (vec![1, 2], vec![Purpose::Successor]));
    world.answered(2);
    assert_eq!(world.tokens(), [1]);
    // If no connection is expected soon, the normal one is used.
    world.pool.transport.refuses = true;
    assert!(world.offer(7, Slots::Suspect));
    assert_eq!(world.requested(), [Purpose::Suspect]);
    // If the normal one is lost, the other slots use the connection for suspect ones.
    world.given(3);
    assert!(world.offer(8, Slots::Suspect));
    assert_eq!(world.open[&3], [8]);
    world.closed(1);
    assert!(world.offer(9, Slots::Normal));
    assert_eq!(world.open[&3], [8, 9]);
}
