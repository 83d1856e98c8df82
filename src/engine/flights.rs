//! What is on its way to the store, and when the next may follow.
//!
//! While one batch flies everything that arrives is the next one: group commit. But a batch is answered when all of its
//! commands are, so one shard that hangs would hold up whoever shares a batch with it, and whoever comes after. Hence
//! two lanes: slots whose last answer was an error fly apart from the others. And before anybody knows which slots
//! those are, a batch that takes unusually long no longer holds up the next.
//!
//! A store that is asked for more than it can do takes ever longer for ever larger batches, until all answers come too late
//! and none is of use. So there is a **window**, as TCP has one: half as many tasks may fly after a batch that took long,
//! twice as many after one that did not. Who would have to wait for more than the next
//! window is decided without the store at once.

use super::BatchId;
use super::batch::{Batch, MAX_TASKS};
use crate::time::Micros;

/// Batches of a lane in flight at a time, of those that are not [`SLOW`].
const MAX_FLIGHTS: usize = 1;

/// A batch that has not been answered after this long no longer holds up the next: many times what a store nearby
/// takes, a fifth of the usual deadline.
const SLOW: Micros = Micros::from_millis(10);

/// Batches of a lane in flight at a time, slow ones among them.
const MAX_SLOW: usize = 8;

/// However slow the store is: so many tasks may fly.
const LEAST: usize = 1;

/// Which slots a batch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Those that nothing is known against.
    Main,
    /// Those whose last answer was an error.
    Doubtful,
}

/// One for each lane.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    pub main: T,
    pub doubtful: T,
}

impl<T> Lanes<T> {
    pub const fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Main => &self.main,
            Lane::Doubtful => &self.doubtful,
        }
    }

    pub const fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Main => &mut self.main,
            Lane::Doubtful => &mut self.doubtful,
        }
    }
}

/// How many tasks of one lane may fly.
#[derive(Debug)]
struct Window {
    tasks: usize,
    /// What a batch takes at least, by and large: how far away the store is.
    distance: Micros,
}

impl Window {
    const fn new() -> Self {
        Self { tasks: MAX_TASKS, distance: Micros::ZERO }
    }

    /// While so many tasks flew a batch took so long.
    fn learn(&mut self, tasks: usize, took: Micros, deadline: Micros) {
        let long = (deadline.0.saturating_mul(3) / 5).max(self.distance.0.saturating_mul(2));
        if took.0 >= long {
            self.tasks = (tasks / 2).clamp(LEAST, self.tasks);
        } else if took.0 < long / 2 {
            self.tasks = self.tasks.saturating_mul(2).min(MAX_TASKS);
        }
        self.distance = match took.0.checked_sub(self.distance.0) {
            // Slowly, for it may be the store's load.
            Some(more) => Micros(self.distance.0.saturating_add(more / 16)),
            None => took,
        };
    }
}

#[derive(Debug)]
pub(super) struct Flight {
    id: BatchId,
    pub lane: Lane,
    pub batch: Batch,
    tasks: usize,
    /// By the host's clock.
    pub sent: Micros,
    /// By the engine's clock.
    pub left: Micros,
    overdue: Micros,
    /// Its time is over; the breaker has been told.
    pub late: bool,
}

/// The flights of one worker. Times are the engine's clock.
#[derive(Debug)]
pub(super) struct Flights {
    flying: Vec<Flight>,
    next_id: BatchId,
    windows: Lanes<Window>,
}

impl Flights {
    pub const fn new() -> Self {
        let windows = Lanes { main: Window::new(), doubtful: Window::new() };
        Self { flying: Vec::new(), next_id: 0, windows }
    }

    fn of(&self, lane: Lane) -> impl Iterator<Item = &Flight> {
        self.flying.iter().filter(move |flight| flight.lane == lane)
    }

    /// Whether one more task than so many would wait in vain. Never while a batch may leave: then there is nobody to
    /// wait for, and who waited before may have given up.
    pub fn is_crowded(&self, lane: Lane, clock: Micros, waiting: impl FnOnce() -> usize) -> bool {
        let window = self.windows.of(lane).tasks;
        window < MAX_TASKS && waiting() >= window && self.room(lane, clock) == 0
    }

    /// How many tasks may leave in this lane now.
    pub fn room(&self, lane: Lane, clock: Micros) -> usize {
        let fast = self.of(lane).filter(|flight| clock.since(flight.left) < SLOW);
        if fast.count() < MAX_FLIGHTS && self.of(lane).count() < MAX_SLOW {
            let awaited = self.of(lane).filter(|flight| !flight.late);
            self.windows.of(lane).tasks.saturating_sub(awaited.map(|flight| flight.tasks).sum())
        } else {
            0
        }
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
        let tasks = batch.iter().map(|command| command.tasks.len()).sum();
        self.flying.push(Flight { id, lane, batch, tasks, sent, left: clock, overdue, late: false });
        id
    }

    /// A batch is answered, or lost. Requests wait for `deadline` at most.
    pub fn land(&mut self, id: BatchId, clock: Micros, deadline: Micros) -> Option<Flight> {
        let index = self.flying.iter().position(|flight| flight.id == id)?;
        let lane = self.flying.get(index)?.lane;
        let tasks = self.of(lane).map(|flight| flight.tasks).sum();
        let flight = self.flying.swap_remove(index);
        self.windows.of_mut(lane).learn(tasks, clock.since(flight.left), deadline);
        Some(flight)
    }

    /// How many are overdue now and were not before.
    pub fn become_late(&mut self, clock: Micros) -> usize {
        let late = self.flying.iter_mut().filter(|flight| !flight.late && flight.overdue <= clock);
        late.map(|flight| flight.late = true).count()
    }

    /// One that has been late for as long as it could have come in time: its answer is of no use any more.
    pub fn expired(&self, clock: Micros, deadline: Micros) -> Option<BatchId> {
        let expired = self.flying.iter().find(|flight| flight.overdue.plus(deadline) <= clock);
        expired.map(|flight| flight.id)
    }

    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }
}
