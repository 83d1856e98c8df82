//! What is on its way to the store, and when the next may follow.
//!
//! While one batch flies everything that arrives is the next one: group commit. But a batch is answered when all of its
//! commands are, so one shard that hangs would hold up whoever shares a batch with it, and whoever comes after. Hence
//! two lanes: slots whose last answer was an error fly apart from the others. And before anybody knows which slots
//! those are, a batch that takes unusually long no longer holds up the next.

use super::BatchId;
use super::batch::Batch;
use crate::time::Micros;

/// Batches of a lane in flight at a time, of those that are not [`SLOW`].
const MAX_FLIGHTS: usize = 1;

/// A batch that has not been answered after this long no longer holds up the next: many times what a store nearby
/// takes, a fifth of the usual deadline.
const SLOW: Micros = Micros::from_millis(10);

/// Batches of a lane in flight at a time, slow ones among them.
const MAX_SLOW: usize = 8;

/// Which slots a batch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Those that nothing is known against.
    Main,
    /// Those whose last answer was an error.
    Doubtful,
}

#[derive(Debug)]
pub(super) struct Flight {
    id: BatchId,
    pub lane: Lane,
    pub batch: Batch,
    /// By the host's clock.
    pub sent: Micros,
    /// By the engine's clock.
    pub left: Micros,
    overdue: Micros,
    /// Its time is over; the breaker has been told.
    pub late: bool,
}

/// The flights of one worker. Times are the engine's clock.
#[derive(Debug, Default)]
pub(super) struct Flights {
    flying: Vec<Flight>,
    next_id: BatchId,
}

impl Flights {
    /// Whether a batch may leave in this lane now.
    pub fn may_leave(&self, lane: Lane, clock: Micros) -> bool {
        let flying = || self.flying.iter().filter(|flight| flight.lane == lane);
        let fast = flying().filter(|flight| clock.since(flight.left) < SLOW);
        fast.count() < MAX_FLIGHTS && flying().count() < MAX_SLOW
    }

    /// A batch leaves, `sent` by the host's clock, and is overdue at this time.
    pub fn leave(
        &mut self,
        lane: Lane,
        batch: Batch,
        sent: Micros,
        clock: Micros,
        overdue: Micros,
    ) -> BatchId {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.flying.push(Flight { id, lane, batch, sent, left: clock, overdue, late: false });
        id
    }

    /// A batch is answered, or lost.
    pub fn land(&mut self, id: BatchId) -> Option<Flight> {
        let index = self.flying.iter().position(|flight| flight.id == id)?;
        Some(self.flying.swap_remove(index))
    }

    /// How many are overdue now and were not before.
    pub fn become_late(&mut self, clock: Micros) -> usize {
        let late = self.flying.iter_mut().filter(|flight| !flight.late && flight.overdue <= clock);
        late.map(|flight| flight.late = true).count()
    }

    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }
}
