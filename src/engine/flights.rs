//! What is on its way to the store, and when the next may follow.
//!
//! While one batch flies everything that arrives is the next one: group commit. But a batch is answered when all of its
//! commands are, so one shard that hangs would hold up whoever shares a batch with it, and whoever comes after. Hence
//! two lanes: slots whose last answer was an error fly apart from the others. And before anybody knows which slots
//! those are, a batch that takes unusually long no longer holds up the next.
//!
//! A store that is asked for more than it can do takes ever longer for ever larger batches, until all answers come too late
//! and none is of use. So each lane has a [congestion window](super::congestion). Who would have to wait for longer than
//! the deadline allows is decided without the store at once.
//!
//! A batch that needs a new connection to the store has not left yet. When the connection is there its commands are sent anew,
//! without those that nobody waits for any longer. So the way to the store is not measured, and the store not
//! judged, by how long it takes to connect.

use super::BatchId;
use super::batch::Batch;
use super::congestion::{Congestion, MAX_FLIGHTS, Sample};
use super::{STEP, TICK};
use crate::time::Micros;

/// Connecting may take so many deadlines before it counts as a failure of the store: two round trips for TCP and TLS, three with
/// an old TLS, to a store that is nearly a deadline away.
const CONNECTING: u64 = 4;

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

/// A time by both clocks of the worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    /// The engine's, which advances by a little with each tick.
    pub clock: Micros,
    /// The host's, which never goes back.
    pub uptime: Micros,
}

impl Instant {
    /// The time since then: as precise as the host's clock, and as robust as the engine's. A worker that was busy, or whose clock was
    /// set, has not waited for the store meanwhile.
    fn since(self, earlier: Self) -> Micros {
        let ticks = self.clock.since(earlier.clock);
        self.uptime.since(earlier.uptime).max(ticks.since(STEP)).min(ticks.plus(TICK))
    }
}

#[derive(Debug)]
pub(super) struct Flight {
    id: BatchId,
    pub lane: Lane,
    pub batch: Batch,
    pub tasks: usize,
    /// How many tasks were in flight when it left, its own among them.
    in_flight: usize,
    /// How many tasks of its lane had been answered when it left, and when the last of them was.
    done: (usize, Micros),
    /// By the host's clock.
    pub sent: Micros,
    left: Instant,
    /// By the engine's clock.
    overdue: Micros,
    /// Its time is over; the breaker has been told.
    pub late: bool,
    /// It waits for its connection.
    connecting: bool,
    /// It left while the store was a store like any other, and not tried by a probe.
    is_probe: bool,
}

/// The flights of one worker.
#[derive(Debug)]
pub(super) struct Flights {
    flying: Vec<Flight>,
    next_id: BatchId,
    congestion: Lanes<Congestion>,
    /// How many tasks have been answered, and when the last of them was.
    done: Lanes<(usize, Micros)>,
    deadline: Micros,
    /// When the store answered last.
    answered: Micros,
}

impl Flights {
    /// Requests wait for `deadline` at most.
    pub fn new(deadline: Micros) -> Self {
        let congestion = Lanes { main: Congestion::new(deadline), doubtful: Congestion::new(deadline) };
        let done = Lanes { main: (0, Micros::ZERO), doubtful: (0, Micros::ZERO) };
        Self { flying: Vec::new(), next_id: 0, congestion, done, deadline, answered: Micros::ZERO }
    }

    fn of(&self, lane: Lane) -> impl Iterator<Item = &Flight> {
        self.flying.iter().filter(move |flight| flight.lane == lane)
    }

    /// Whether one more task than so many could not be answered in time. Never while nothing is in flight: then the next batch leaves at once,
    /// and what waited before may have been decided meanwhile.
    pub fn is_crowded(&self, lane: Lane, waiting: impl FnOnce() -> usize) -> bool {
        let in_flight = self.load(lane).0;
        let free = self.congestion.of(lane).window().saturating_sub(in_flight);
        let places = self.congestion.of(lane).may_wait(in_flight, free);
        in_flight > 0 && places < usize::MAX && waiting() >= places
    }

    /// How many tasks more may be in flight, whenever they leave.
    fn free(&self, lane: Lane) -> usize {
        if self.of(lane).count() >= MAX_FLIGHTS {
            return 0;
        }
        // What is late still keeps the store busy.
        self.congestion.of(lane).window().saturating_sub(self.load(lane).0)
    }

    /// How many tasks may leave in this lane now.
    pub fn room(&self, lane: Lane, now: Instant) -> usize {
        let congestion = self.congestion.of(lane);
        let pace = congestion.pace();
        if self.of(lane).any(|flight| now.since(flight.left) < pace) {
            return 0;
        }
        self.free(lane).min(congestion.batch(self.load(lane).0, self.of(lane).count()))
    }

    /// When the next batch of this lane may leave, by the worker's uptime, if that is a matter of time.
    pub fn opens(&self, lane: Lane) -> Option<Micros> {
        let youngest = self.of(lane).map(|flight| flight.left.uptime).max()?;
        (self.free(lane) > 0).then(|| youngest.plus(self.congestion.of(lane).pace()))
    }

    /// The name of the batch that leaves next.
    pub const fn next_id(&self) -> BatchId {
        self.next_id
    }

    /// A batch leaves, `sent` by the host's clock, and is overdue at this time.
    pub fn leave(
        &mut self,
        lane: Lane,
        batch: Batch,
        (sent, left): (Micros, Instant),
        overdue: Micros,
        is_probe: bool,
    ) {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let tasks = batch.iter().map(|command| command.tasks.len()).sum();
        let in_flight = self.load(lane).0.saturating_add(tasks);
        let (late, connecting) = (false, false);
        let (count, last) = *self.done.of(lane);
        // A store that had nothing to do begins when the batch leaves.
        let done = (count, if in_flight > tasks { last } else { left.uptime });
        let flight = Flight {
            id,
            lane,
            batch,
            tasks,
            in_flight,
            done,
            sent,
            left,
            overdue,
            late,
            connecting,
            is_probe,
        };
        self.flying.push(flight);
    }

    /// A batch that has just left has to wait for its connection.
    pub fn connects(&mut self, id: BatchId) -> Option<&Batch> {
        let flight = self.flying.iter_mut().find(|flight| flight.id == id)?;
        flight.connecting = true;
        let more = self.deadline.0.saturating_mul(CONNECTING.saturating_sub(1));
        flight.overdue = flight.overdue.plus(Micros(more));
        Some(&flight.batch)
    }

    /// A batch flies no longer.
    pub fn end(&mut self, id: BatchId) -> Option<Flight> {
        let index = self.flying.iter().position(|flight| flight.id == id)?;
        Some(self.flying.swap_remove(index))
    }

    /// What there is to learn of a batch that is answered now.
    pub fn sample(&self, id: BatchId, now: Instant) -> Option<Sample> {
        let Flight { lane, left, in_flight, tasks, done: (before, since), .. } =
            self.flying.iter().find(|flight| flight.id == id)?;
        let batches = self.load(*lane).1;
        let done = self.done.of(*lane).0.wrapping_add(*tasks).wrapping_sub(*before);
        let done = (done, now.uptime.since(*since));
        let (took, left, in_flight, tasks) = (now.since(*left), left.uptime, *in_flight, *tasks);
        Some(Sample { took, left, in_flight, batches, done, tasks })
    }

    /// The store itself answered.
    pub fn learn(&mut self, lane: Lane, tasks: usize, sample: Sample, uptime: Micros) {
        let done = self.done.of_mut(lane);
        *done = (done.0.wrapping_add(tasks), uptime);
        self.congestion.of_mut(lane).answered(sample, uptime);
        self.answered = uptime;
    }

    /// A batch will not be answered any more: it has had twice its time.
    pub fn abandon(&mut self, id: BatchId) -> Option<Flight> {
        let flight = self.end(id)?;
        if !flight.connecting && !flight.is_probe {
            self.congestion.of_mut(flight.lane).unanswered(flight.in_flight);
        }
        Some(flight)
    }

    /// How many tasks are in flight in a lane, and in how many batches.
    fn load(&self, lane: Lane) -> (usize, usize) {
        let flying = self.of(lane).filter(|flight| !flight.connecting);
        flying.fold((0, 0), |(tasks, batches): (usize, usize), flight| {
            (tasks.saturating_add(flight.tasks), batches.saturating_add(1))
        })
    }

    /// Those that are overdue now and were not before. A connection that is not there yet is no failure of a store that
    /// answered meanwhile.
    pub fn become_late(&mut self, clock: Micros) -> Vec<BatchId> {
        let late = self.flying.iter_mut().filter(|flight| !flight.late && flight.overdue <= clock);
        let late = late.filter_map(|flight| {
            flight.late = true;
            let alive = flight.connecting && self.answered > flight.left.uptime;
            (!alive).then_some(flight.id)
        });
        late.collect()
    }

    /// One that has been late for as long as it could have come in time: its answer is of no use any more.
    pub fn expired(&self, clock: Micros) -> Option<BatchId> {
        let expired = self.flying.iter().find(|flight| flight.overdue.plus(self.deadline) <= clock);
        expired.map(|flight| flight.id)
    }

    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }
}
