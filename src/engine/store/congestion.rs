// SPDX-License-Identifier: Apache-2.0
//! The maximum number of tasks in flight: congestion control by delay, as in TCP Vegas, BBR and Copa.
//!
//! The controller learns from answers only. The shortest recent round trip is the **distance**. The time of round trips beyond it is
//! **queueing**: the store has more to do than it can. The time of the deadline beyond the distance is the **slack**. The congestion window
//! (`cwnd`) is the number of tasks that may be in flight:
//!
//! | queueing | the congestion window |
//! |---|---|
//! | up to 1/8 of the slack | grows in each round trip by twice as much as in the last, until it doubles |
//! | up to 1/4 | grows by a sixteenth each round trip; trials |
//! | up to 1/2 | stays; trials |
//! | more | becomes what the store does in the distance and 3/8 of the slack |
//!
//! The speed of the store is its **delivery rate**, counted from answers as in BBR: the tasks that were answered between two answers,
//! divided by the time between them. So one slow answer is enough to find the right window.
//!
//! A queue that never empties looks like distance. So if the shortest round trip of a span is longer than before, the window becomes small
//! for one round trip, and the real distance shows. If fewer tasks in flight do not shorten the round trips, there is no queue: the store
//! is farther away than before. The same is true if more tasks in flight do not lengthen them. While the window grows slowly or stays,
//! [trials](super::trials) find that out.
//!
//! A failure says nothing about delay, and one slow answer says little. So the queueing of the fastest of the last two to four answers
//! counts.

use super::batch::MAX_TASKS;
use super::trials::{Shown, Trials};
use crate::engine::clock::Now;
use crate::time::Micros;

/// After this time without an answer, a batch no longer delays the next. It is many round trips to a near store, and a fifth of
/// the usual deadline.
const SLOW: Micros = Micros::from_millis(10);

/// At most this many batches are in flight at a time. Each has its own connection.
pub(super) const MAX_BATCHES: usize = 16;

/// The first window: enough for a burst at a near store, and not too much for a far or slow one.
const FIRST: usize = 128;

/// The largest window.
const MAX_CWND: usize = MAX_BATCHES * MAX_TASKS;

/// The distance is the shortest round trip of the last one to two of these spans.
const REMEMBERED: Micros = Micros::from_secs(3);

/// In a round trip the window grows by a sixteenth, times two to the power of at most this.
const BOOST: u32 = 4;

/// This many of the last answers are remembered.
const TRIPS: usize = 8;

/// The minimum of the samples in the current span of time and in the previous one.
#[derive(Debug, Default)]
struct RecentMin {
    current: Option<Micros>,
    previous: Option<Micros>,
    turned: Micros,
}

impl RecentMin {
    /// Begins another span if this one is over. If the minimum has risen, returns that of the span before, and the new one.
    fn turn(&mut self, at: Micros, span: Micros) -> Option<(Micros, Micros)> {
        let elapsed = at.since(self.turned);
        if elapsed < span {
            return None;
        }
        let risen = self.previous.zip(self.current).filter(|(previous, current)| current > previous);
        let ended = self.current.take();
        // Samples older than two spans are forgotten, unless there are no others.
        self.previous = ended.or(self.previous);
        self.turned = at;
        risen
    }

    fn record(&mut self, sample: Micros) {
        self.current = Some(self.current.map_or(sample, |least| least.min(sample)));
    }

    fn get(&self) -> Option<Micros> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some(current.min(previous)),
            (current, previous) => current.or(previous),
        }
    }
}

/// An answered batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub took: Micros,
    /// The uptime at which it was sent.
    pub sent: Micros,
    /// The number of tasks in flight when it was sent, including its own.
    pub in_flight: usize,
    /// The number of batches in flight now.
    pub batches: usize,
    /// The number of tasks that were answered, its own included, since the last answer before it was sent; and the time since then.
    pub done: (usize, Micros),
    /// The number of its tasks.
    pub tasks: usize,
}

/// The longest round trip since queueing became too long. With fewer tasks in flight it shows whether that was a queue.
#[derive(Clone, Copy, Debug)]
struct Worst {
    in_flight: usize,
    trip: Micros,
    /// The shortest round trip of batches that were sent with fewer tasks in flight, and how many such batches there were.
    less: (Micros, u32),
}

/// The congestion window of the normal or the suspect slots. Times are the worker's uptime.
#[derive(Debug)]
pub(super) struct Congestion {
    /// The number of tasks that may be in flight.
    cwnd: usize,
    deadline: Micros,
    distance: RecentMin,
    /// The shortest round trip of all.
    shortest: Option<Micros>,
    /// The last round trips, the youngest first.
    trips: [Option<Micros>; TRIPS],
    /// The last delivery rates: how many tasks, in which time; the youngest first.
    rates: [(usize, Micros); TRIPS],
    /// The times at which the last answers arrived, and their numbers of tasks; the youngest first.
    arrivals: [(Now, usize); TRIPS],
    /// The time at which the window last shrank. Batches that were sent before say nothing about it.
    shrunk: Micros,
    worst: Option<Worst>,
    trials: Trials,
    /// Set while the distance is measured: the window to return to, and the time from which a batch must be sent to measure it.
    drained: Option<(usize, Micros)>,
    /// Each round trip without queueing adds one, which doubles the growth, up to [`BOOST`].
    boost: u32,
    /// The beginning of the current round trip.
    round: Micros,
}

impl Congestion {
    pub fn new(deadline: Micros) -> Self {
        Self {
            cwnd: FIRST,
            deadline,
            distance: RecentMin::default(),
            shortest: None,
            trips: [None; TRIPS],
            rates: [(0, Micros::ZERO); TRIPS],
            arrivals: [(Now::default(), 0); TRIPS],
            shrunk: Micros::ZERO,
            worst: None,
            trials: Trials::new(),
            drained: None,
            boost: BOOST,
            round: Micros::ZERO,
        }
    }

    /// The number of tasks that may be in flight.
    pub const fn cwnd(&self) -> usize {
        self.cwnd
    }

    /// The interval after a batch in which the next is not sent unless the answer comes. A distant store needs several batches in flight,
    /// evenly spread, because a request that waits long for its batch has too little of its deadline left.
    pub fn pace(&self) -> Micros {
        let distance = self.distance.get().unwrap_or_default();
        let spread = Micros(distance.0 / MAX_BATCHES as u64);
        spread.max(SLOW.min(Micros(self.deadline.since(distance).0 / 4)))
    }

    /// The interval before a batch that only repeats subjects of batches in flight. It waits for as long as recent answers were queued,
    /// and further requests for its subjects join its tasks. Otherwise each worker would have several commands for a hot subject in the
    /// queue of its shard. Neither a single slow answer nor a distant store delays it. Here all time beyond the shortest round trip ever
    /// is queueing, because a queue of other workers may stay.
    pub fn pace_of_repeats(&self) -> Micros {
        let lately = self.trips.iter().take(2).flatten().min().copied().unwrap_or_default();
        let slack = self.deadline.since(self.distance.get().unwrap_or_default());
        let queued = lately.since(self.shortest.unwrap_or_default());
        self.pace().max(Micros(queued.0 / 4 * 5).min(Micros(slack.0 / 8 * 5)))
    }

    /// The number of tasks that one batch may have when this many are in flight. If there are several batches at a time, each has its share
    /// of the window, so that the store is busy evenly. But half a window may be sent at once.
    pub fn batch(&self, in_flight: usize, batches_in_flight: usize) -> usize {
        let distance = self.distance.get().unwrap_or_default();
        // A long queue must become shorter, so it must not lead to more batches.
        let wanted = distance.plus(Micros(self.deadline.since(distance).0 / 8 * 3));
        let trip = self.trips[0].unwrap_or_default().min(wanted);
        let batches = trip.0.checked_div(self.pace().0).unwrap_or(1).clamp(1, MAX_BATCHES as u64);
        let share = self.cwnd.div_ceil(usize::try_from(batches).unwrap_or(1));
        let free = self
            .cwnd
            .saturating_sub(in_flight)
            .div_ceil(MAX_BATCHES.saturating_sub(batches_in_flight).max(1));
        share.max(free).max((self.cwnd / 2).saturating_sub(in_flight)).min(MAX_TASKS)
    }

    /// The number of further tasks that can be answered in time, if `in_flight` are in flight and `free` more may be sent at once.
    pub fn may_wait(&self, in_flight: usize, free: usize) -> usize {
        let Some(distance) = self.distance.get() else { return usize::MAX };
        let trips = self.trips.iter().flatten();
        let (Some(slowest), Some(fastest)) = (trips.clone().max(), trips.min()) else { return FIRST };
        let in_time = if fastest.since(distance).0 > self.deadline.since(distance).0 / 8 {
            let jitter = Micros(slowest.since(*fastest).0 / 2);
            // While the distance is measured, few tasks are in flight, and the others wait longer.
            let drain = self.drained.map_or(Micros::ZERO, |_| Micros(self.deadline.since(distance).0 / 4));
            let time = self.deadline.since(self.pace().plus(jitter).plus(drain));
            let (tasks, took) = self.rates.iter().fold((0_usize, Micros::ZERO), |(tasks, took), rate| {
                (tasks.saturating_add(rate.0), took.plus(rate.1))
            });
            // Tasks that fit into the window are sent at once. If there is little to do, the rate is low for that reason alone.
            scaled(tasks, time, took).saturating_sub(in_flight).max(free)
        } else {
            let rest = self.deadline.since(slowest.plus(self.pace()));
            free.saturating_add(scaled(self.cwnd, rest, *fastest))
        };
        in_time.max(1)
    }

    /// The delivery rate that an answer shows: over the time since the batch was sent, or over the last answers, whichever
    /// is higher. The former is too low while a far store has less to do than it can.
    fn rate(&mut self, done: (usize, Micros), took: Micros, arrival: (Now, usize)) -> (usize, Micros) {
        push_front(&mut self.arrivals, arrival);
        // The rate over a short time means nothing.
        let least = Micros(took.0 / 4).max(Micros(self.pace().0.saturating_mul(2)));
        if let [.., (oldest, 1..)] = self.arrivals
            && arrival.0.since(oldest) < least
        {
            return done;
        }
        let mut lately = 0_usize;
        let mut best = done;
        let (mut fastest, mut slowest) = (Micros(u64::MAX), Micros::ZERO);
        for trip in self.trips.into_iter().flatten() {
            (fastest, slowest) = (fastest.min(trip), slowest.max(trip));
        }
        // With jitter some answers arrive close together.
        let least = least.max(slowest.since(fastest));
        for (at, tasks) in self.arrivals {
            let span = arrival.0.since(at);
            if lately > 0 && tasks > 0 && span >= least {
                let second = Micros::from_secs(1);
                if scaled(lately, second, span) > scaled(best.0, second, best.1) {
                    best = (lately, span);
                }
                break;
            }
            lately = lately.saturating_add(tasks);
        }
        best
    }

    /// The number of tasks that the store does in this time, at the best rate of this many of the last answers.
    fn done_in(&self, time: Micros, answers: usize) -> usize {
        self.rates.iter().take(answers).map(|(tasks, took)| scaled(*tasks, time, *took)).max().unwrap_or(0)
    }

    /// A batch was answered.
    pub fn answered(&mut self, sample: Sample, now: Now) {
        let Sample { took, sent, in_flight, batches, done, tasks } = sample;
        let at = now.uptime;
        let risen = self.distance.turn(at, REMEMBERED);
        self.distance.record(took);
        self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        if let Some((window, since)) = self.drained {
            if sent >= since {
                self.drained = None;
                self.measured(window, took, at);
            }
            return;
        }
        match self.trials.result(took, sent, in_flight) {
            Some(Shown::Distance(distance)) => self.moved(distance, at),
            Some(Shown::Queue(in_flight)) => self.cwnd = self.cwnd.min(in_flight),
            None => {}
        }
        push_front(&mut self.trips, Some(took));
        let rate = self.rate(done, took, (now, tasks));
        push_front(&mut self.rates, rate);
        let distance = self.distance.get().unwrap_or_default();
        let answers = batches.clamp(2, 4);
        let trips = self.trips.iter().flatten().take(answers);
        let known = trips.clone().count();
        let trip = trips.min().copied().unwrap_or(took);
        let slack = self.deadline.since(distance);
        // A window that is not used says nothing about a larger one.
        let is_used = in_flight.saturating_mul(2) >= self.cwnd;
        if let Some((before, now)) = risen
            && now.since(before).0 > slack.0 / 16
            && in_flight.saturating_mul(8) >= self.cwnd.saturating_mul(7)
        {
            // A queue that never empties looks like distance. With few tasks in flight for one round trip, the distance shows.
            let drained = self.done_in(before, answers).min(self.cwnd).saturating_mul(15) / 16;
            self.drained = Some((self.cwnd, at));
            self.cwnd = drained.max(1);
            self.trials.stop();
            return;
        }
        // A task that arrives while the store is busy with another waits at least for that one.
        let service = Micros(done.1.0.checked_div(done.0 as u64).unwrap_or(0)).min(distance);
        let most = Micros(slack.0 / 2).max(service).min(Micros(slack.0 / 4 * 3));
        let queueing = trip.since(distance);
        if queueing > most {
            self.boost = 0;
            if known > 1 && !self.has_moved(in_flight, took, at) && sent >= self.shrunk {
                self.shrink(self.done_in(distance.plus(Micros(most.0 / 4 * 3)), answers), at);
            }
            return;
        }
        if queueing.0 <= most.0 / 2 {
            self.worst = None;
        }
        if sent < self.shrunk || !is_used {
            return;
        }
        let is_round = sent >= self.round;
        if is_round {
            self.round = at;
        }
        if queueing.0 <= most.0 / 4 && took.since(distance) <= most {
            self.trials.stop();
            self.boost = self.boost.saturating_add(u32::from(is_round)).min(BOOST);
        } else {
            self.boost = 0;
            if is_round && self.trials.is_due() {
                let more = (in_flight / 4).min(self.done_in(Micros(slack.0 / 4), TRIPS)).max(1);
                self.trials.begin(in_flight, more, trip, at);
                self.grow(in_flight, more);
            }
        }
        if queueing.0 <= most.0 / 2 && took.since(distance) <= most {
            self.grow(in_flight, (in_flight >> BOOST.saturating_sub(self.boost)).max(1));
        }
    }

    /// The window grows from what was in flight a round trip ago, because that is known to be possible.
    fn grow(&mut self, in_flight: usize, more: usize) {
        self.cwnd = self.cwnd.max(in_flight.saturating_add(more)).min(MAX_CWND);
    }

    /// The window shrinks to this, unless it is smaller.
    fn shrink(&mut self, target: usize, at: Micros) {
        if target < self.cwnd / 2 {
            // The store may be another one now.
            self.trials = Trials::new();
        }
        if target < self.cwnd {
            self.trials.stop();
            self.cwnd = target.max(1);
            self.shrunk = at;
        }
    }

    /// Ends a measurement of the distance: the round trip with few tasks in flight. `window` is the window before it.
    fn measured(&mut self, window: usize, distance: Micros, at: Micros) {
        let slack = self.deadline.since(distance);
        let trip = self.trips.iter().flatten().min().copied().unwrap_or_default();
        let there_was_a_queue = trip.since(distance).0 > slack.0 / 16;
        self.cwnd = window;
        self.boost = if there_was_a_queue { 0 } else { BOOST };
        self.shrunk = at;
        if there_was_a_queue {
            self.shrink(self.done_in(distance.plus(Micros(slack.0 / 8 * 3)), TRIPS), at);
        }
    }

    /// Sets a new distance of the store.
    fn moved(&mut self, distance: Micros, at: Micros) {
        self.distance = RecentMin { current: Some(distance), previous: None, turned: at };
        self.trips = [None; TRIPS];
        self.worst = None;
        self.trials = Trials::new();
        self.boost = BOOST;
        self.round = at;
    }

    /// True if the round trip is long although this worker has no queue there: fewer tasks in flight do not shorten it. Then the store is
    /// farther away, or other clients keep it busy.
    fn has_moved(&mut self, in_flight: usize, took: Micros, at: Micros) -> bool {
        let worst = self.worst.get_or_insert(Worst { in_flight, trip: took, less: (Micros(u64::MAX), 0) });
        let is_less = in_flight.saturating_mul(4) <= worst.in_flight.saturating_mul(3);
        if !is_less && in_flight > 1 {
            if took > worst.trip {
                *worst = Worst { in_flight, trip: took, ..*worst };
            }
            return false;
        }
        worst.less = (worst.less.0.min(took), worst.less.1.saturating_add(1));
        let if_queue = worst.trip.0.saturating_mul(in_flight as u64).checked_div(worst.in_flight as u64);
        let trip = worst.less.0;
        let moved =
            worst.less.1 >= 3 && (in_flight == 1 || trip.0 > worst.trip.0.midpoint(if_queue.unwrap_or(0)));
        if moved {
            self.cwnd = self.cwnd.max(worst.in_flight);
            self.moved(trip, at);
        }
        moved
    }

    /// A batch was not answered within twice its deadline. This many tasks were in flight.
    pub fn unanswered(&mut self, in_flight: usize) {
        self.cwnd = self.cwnd.min(in_flight / 8).max(1);
        self.boost = BOOST;
        self.drained = None;
        self.trials = Trials::new();
        self.trips = [None; TRIPS];
    }
}

/// Puts `first` before the others. The last one is dropped.
fn push_front<T: Copy>(list: &mut [T; TRIPS], first: T) {
    list.copy_within(..TRIPS - 1, 1);
    list[0] = first;
}

/// `tasks` × `part` / `whole`.
fn scaled(tasks: usize, part: Micros, whole: Micros) -> usize {
    let scaled = (tasks as u64).saturating_mul(part.0).checked_div(whole.0).unwrap_or(0);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
