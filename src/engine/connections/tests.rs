// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::rc::Rc;

use super::*;
use crate::engine::Slots;
use crate::engine::streams::tests::Host;

const NOTHING: [BatchId; 0] = [];

/// Three stores on one host. The batches of store N are those whose number has the remainder N by 32.
struct World {
    host: Rc<Host>,
    connections: Connections<Rc<Host>>,
    now: Micros,
}

impl World {
    fn new() -> Self {
        let host = Rc::new(Host::default());
        let connections = Connections::new((0..3).map(|_| Rc::clone(&host)));
        Self { host, connections, now: Micros::from_secs(1_000) }
    }

    fn send(&mut self, id: u8) -> Result<Sent, StoreFailure> {
        let outgoing =
            Outgoing { id: id.into(), store: id % 32, body: vec![id], replies: 1, slots: Slots::Normal };
        self.connections.send(outgoing, self.now)
    }

    /// A callback in which a stream may be opened. Sends what can be sent, as the host does. Returns what that was.
    fn callback(&mut self) -> Vec<BatchId> {
        self.connections.begin_callback(true);
        self.connections.rotate(self.now);
        let mut sent = Vec::new();
        while let Some(batch) = self.connections.next_ready(self.now) {
            self.send(u8::try_from(batch).unwrap()).expect("sent");
            sent.push(batch);
        }
        sent
    }

    fn open(&self) -> Vec<Token> {
        self.host.open.borrow().keys().copied().collect()
    }

    fn carried(&self, token: Token) -> Vec<BatchId> {
        self.host.open.borrow().get(&token).cloned().unwrap_or_default()
    }

    /// Each store has a stream, which carries a batch: streams 1, 2 and 3 carry batches 1, 2 and 0.
    fn busy() -> Self {
        let mut world = Self::new();
        for batch in [0, 1, 2] {
            assert_eq!(world.send(batch), Ok(Sent::Connecting));
        }
        for (token, batch) in [(1, 1), (2, 2), (3, 0)] {
            assert_eq!(world.callback(), [BatchId::from(batch)]);
            assert_eq!(world.connections.began(token, world.now), Some(Began::Connected(batch.into())));
            assert_eq!(world.send(batch), Ok(Sent::Now));
            assert_eq!(world.carried(token), [BatchId::from(batch)]);
        }
        world
    }
}

#[test]
fn stores_take_turns_to_open_the_one_stream_of_a_callback() {
    let mut world = World::new();
    assert!(!world.connections.waits_for_callback(world.now));
    for batch in [0, 1, 2, 32, 33, 34] {
        assert_eq!(world.send(batch), Ok(Sent::Connecting), "no callback has begun");
    }
    assert!(world.open().is_empty());
    for (stream, batch) in [(1, 33), (2, 34), (3, 32)] {
        assert!(world.connections.waits_for_callback(world.now));
        assert_eq!(world.callback(), [batch], "the other stores wait for their turns");
        assert_eq!(world.open().len(), stream);
    }
    // Nothing was answered, so the second batches need streams of their own.
    for batch in [1, 2, 0] {
        assert!(world.connections.waits_for_callback(world.now));
        assert_eq!(world.callback(), [batch]);
        let token = *world.open().last().unwrap();
        assert_eq!(world.connections.began(token, world.now), Some(Began::Connected(batch)));
        assert_eq!(world.send(u8::try_from(batch).unwrap()), Ok(Sent::Now));
    }
    assert!(!world.connections.waits_for_callback(world.now));
    assert_eq!(world.callback(), NOTHING);
}

#[test]
fn a_callback_that_may_open_no_stream_opens_none_and_takes_no_turn() {
    let mut world = World::new();
    for batch in [0, 1, 2] {
        assert_eq!(world.send(batch), Ok(Sent::Connecting));
    }
    for _ in 0..5 {
        world.connections.begin_callback(false);
        assert_eq!(world.connections.next_ready(world.now), None);
    }
    assert_eq!(world.callback(), [1]);
}

#[test]
fn streams_that_are_old_get_their_successors_in_turn() {
    let mut world = World::busy();
    for (token, batch) in [(1, 1), (2, 2), (3, 0)] {
        assert_eq!(world.connections.answered(token), Some(batch));
        world.connections.judge(token, true, world.now);
    }
    world.now = world.now.plus(Micros::from_secs(6));
    for successor in 4..=6 {
        assert_eq!(world.callback(), NOTHING);
        assert_eq!(world.open().last(), Some(&successor));
        assert_eq!(world.connections.began(successor, world.now), None);
    }
    assert_eq!(world.callback(), NOTHING);
    assert_eq!(world.open(), [1, 2, 3, 4, 5, 6], "each old stream stays until its successor has answered");
    for batch in [32, 33, 34] {
        assert_eq!(world.send(batch), Ok(Sent::Now));
    }
    // The callback before had the turn of store 1.
    assert_eq!([4, 5, 6].map(|token| world.carried(token)), [[33], [34], [32]]);
}

#[test]
fn what_happens_to_a_stream_matters_to_its_own_store_only() {
    let mut world = World::busy();
    assert_eq!(world.connections.next_clear(world.now), None);
    assert_eq!(world.connections.answered(7), None, "there is no such stream");
    assert_eq!(world.connections.began(7, world.now), None);

    // The store of stream 1 answers badly.
    assert_eq!(world.connections.answered(1), Some(1));
    world.connections.judge(1, false, world.now);
    assert_eq!(world.connections.next_clear(world.now), Some(world.now.plus(Micros::from_millis(5))));
    assert_eq!(world.open(), [1, 2, 3], "it is not cancelled in its own callback");
    world.connections.clear();
    assert_eq!((world.open(), world.connections.next_clear(world.now)), (vec![2, 3], None));

    // No request waits for the batch on stream 2 any longer.
    world.connections.abandon(2, world.now);
    world.connections.clear();
    assert_eq!(world.open(), [3]);

    // Stream 3 breaks off.
    assert_eq!(
        world.connections.closed(3, 14, world.now),
        Closed::Lost(0, StoreFailure::Refused),
        "its batch is lost"
    );
    assert_eq!(*world.host.cancelled.borrow(), [1, 2, 3]);
    assert_eq!(world.connections.closed(7, 0, world.now), Closed::Idle);
    assert_eq!(*world.host.cancelled.borrow(), [1, 2, 3, 7], "Envoy is told that nobody needs it");
}

#[test]
fn what_a_stream_must_not_carry_in_this_callback_it_carries_in_the_next() {
    let mut world = World::new();
    world.host.older.set(true);
    assert_eq!(world.send(1), Ok(Sent::Connecting));
    assert_eq!(world.callback(), [1]);
    assert_eq!(world.connections.began(1, world.now), Some(Began::Connected(1)));
    assert_eq!(world.send(1), Ok(Sent::Now));
    world.connections.begin_callback(false);
    assert_eq!(world.connections.answered(1), Some(1));
    world.connections.judge(1, true, world.now);
    assert_eq!(
        world.send(33),
        Ok(Sent::Connecting),
        "an older bridge does not say whether this was the last"
    );
    assert!(world.connections.waits_for_callback(world.now));
    assert_eq!(world.callback(), [33]);
    assert_eq!((world.open(), world.carried(1)), (vec![1], vec![1, 33]));
    world.connections.begin_callback(false);
    assert_eq!(world.connections.answered(1), Some(33));
    world.connections.end(1);
    assert_eq!(world.send(65), Ok(Sent::Connecting));
    assert_eq!(world.callback(), [65]);
    assert_eq!(world.open(), [1, 2], "the worker cancels the stream later");
    world.connections.clear();
    assert_eq!(world.open(), [2]);
}

#[test]
fn a_batch_for_a_store_that_there_is_not_is_not_sent() {
    let mut world = World::new();
    assert_eq!(world.send(3), Err(StoreFailure::NotSent));
    world.connections.abandon(3, world.now);
    assert_eq!(world.callback(), NOTHING);
}
