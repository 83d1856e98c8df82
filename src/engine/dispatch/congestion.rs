//! How much may be asked of the store at a time: congestion control by delay, as TCP Vegas, BBR and Copa have it.
//!
//! Only answers teach. The least that an answer took lately is the **distance**. What answers take beyond it is **queueing**:
//! the store has more to do than it gets done. What the deadline leaves beyond the distance is the **slack**. The
//! congestion window is the number of tasks that may be in flight:
//!
//! | queueing | the window |
//! |---|---|
//! | up to 1/8 of the slack | grows in each round trip by twice as much as in the last, until it doubles |
//! | up to 1/4 | grows by a sixteenth each round trip |
//! | up to 1/2 | stays |
//! | more | becomes what the store does in the distance and 3/8 of the slack |
//!
//! How much the store does is its **delivery rate**, counted from answers as BBR does: the tasks that were answered between two
//! answers, by the time between them. So one slow answer is enough to find the right window.
//!
//! A queue that never empties looks like distance. So when the least of a span is higher than before, little is in flight for one round
//! trip, and the distance shows. When less in flight does not make the trips shorter, it is no queue: the store has moved away.
//!
//! A failure says nothing about delay, and one slow answer little: queueing is what the fastest of the last two to four answers had of
//! it.

use super::batch::MAX_TASKS;
use crate::time::Micros;

/// A batch that has not been answered after this long no longer holds up the next: many times what a store nearby
/// takes, a fifth of the usual deadline.
const SLOW: Micros = Micros::from_millis(10);

/// At most this many batches are in flight at a time. Each has a connection of its own.
pub(super) const MAX_BATCHES: usize = 16;

/// The first window: enough for a burst at a store nearby, and not too much for one that is far or slow.
const FIRST: usize = 128;

/// The largest window.
const MAX_WINDOW: usize = MAX_BATCHES * MAX_TASKS;

/// The distance is the least that an answer took in the last one to two of these spans.
const REMEMBERED: Micros = Micros::from_secs(3);

/// The window grows by a sixteenth of itself in a round trip, times two to the power of this at most.
const BOOST: u32 = 4;

/// So many of the last answers are remembered.
const TRIPS: usize = 8;

/// The least of what was recorded lately: in the current span of time and the one before.
#[derive(Debug, Default)]
struct RecentMin {
    current: Option<Micros>,
    previous: Option<Micros>,
    turned: Micros,
}

impl RecentMin {
    /// Begins another span if this one is over. What the least was in the one that ends, if it was higher than before.
    fn turn(&mut self, at: Micros, span: Micros) -> Option<(Micros, Micros)> {
        let elapsed = at.since(self.turned);
        if elapsed < span {
            return None;
        }
        let risen = self.previous.zip(self.current).filter(|(previous, current)| current > previous);
        let ended = self.current.take();
        // What is older than two spans is forgotten, but never all that is known.
        self.previous = ended.or(self.previous);
        self.turned = at;
        risen
    }

    fn record(&mut self, sample: Micros) {
        self.current = Some(self.current.map_or(sample, |least| least.min(sample)));
    }

    fn get(&self) -> Option<Micros> {
        self.current.into_iter().chain(self.previous).min()
    }
}

/// An answered batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub took: Micros,
    /// The uptime at which it was sent.
    pub sent: Micros,
    /// How many tasks were in flight when it was sent, its own among them.
    pub in_flight: usize,
    /// How many batches are in flight now.
    pub batches: usize,
    /// How many tasks were answered in this time, its own among them: since the last answer before it was sent.
    pub done: (usize, Micros),
    /// How many tasks it had.
    pub tasks: usize,
}

/// The worst that was seen since queueing became too long: whether it was a queue shows when less is in flight.
#[derive(Clone, Copy, Debug)]
struct Worst {
    in_flight: usize,
    trip: Micros,
    /// The fastest of what left with less in flight, and how many those are.
    less: (Micros, u32),
}

/// The congestion window of the normal or the suspect slots. Times are the worker's uptime.
#[derive(Debug)]
pub(super) struct Congestion {
    /// How many tasks may be in flight.
    cwnd: usize,
    deadline: Micros,
    distance: RecentMin,
    /// What the last answers took, the youngest first.
    trips: [Option<Micros>; TRIPS],
    /// How many tasks were done in which time, the youngest first.
    rates: [(usize, Micros); TRIPS],
    /// When the last answers came, and to how many tasks, the youngest first.
    arrivals: [(Micros, usize); TRIPS],
    /// What left before it was shrunk last says nothing about how it is now.
    shrunk: Micros,
    worst: Option<Worst>,
    /// The window to return to when the distance has been measured by what leaves from this time on.
    drained: Option<(usize, Micros)>,
    /// A round trip without queueing doubles the growth, up to doubling the window.
    boost: u32,
    /// When the round trip began that counts for that.
    round: Micros,
}

impl Congestion {
    pub fn new(deadline: Micros) -> Self {
        Self {
            cwnd: FIRST,
            deadline,
            distance: RecentMin::default(),
            trips: [None; TRIPS],
            rates: [(0, Micros::ZERO); TRIPS],
            arrivals: [(Micros::ZERO, 0); TRIPS],
            shrunk: Micros::ZERO,
            worst: None,
            drained: None,
            boost: BOOST,
            round: Micros::ZERO,
        }
    }

    /// How many tasks may be in flight.
    pub const fn cwnd(&self) -> usize {
        self.cwnd
    }

    /// How long after a batch the next may leave without waiting for the answer. A store that is far needs several in flight, evenly
    /// spread: to gather for long would cost a request the rest of its deadline.
    pub fn pace(&self) -> Micros {
        let distance = self.distance.get().unwrap_or_default();
        let spread = Micros(distance.0 / MAX_BATCHES as u64);
        spread.max(SLOW.min(Micros(self.deadline.since(distance).0 / 4)))
    }

    /// How many tasks one batch may have when so many are in flight. Where there are several batches at a time, each takes
    /// its share of the window, so that the store is busy evenly; but half a window may leave at once.
    pub fn batch(&self, in_flight: usize, batches_in_flight: usize) -> usize {
        let distance = self.distance.get().unwrap_or_default();
        // A queue is to become shorter, and takes no more batches for being long.
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

    /// How many tasks more can be answered in time when so many are in flight, and so many more may leave at once.
    pub fn may_wait(&self, in_flight: usize, free: usize) -> usize {
        let Some(distance) = self.distance.get() else { return usize::MAX };
        let trips = self.trips.iter().flatten();
        let (Some(slowest), Some(fastest)) = (trips.clone().max(), trips.min()) else { return FIRST };
        let in_time = if fastest.since(distance).0 > self.deadline.since(distance).0 / 8 {
            let jitter = Micros(slowest.since(*fastest).0 / 2);
            // While little is in flight for the distance to show, what waits has to wait for longer.
            let drain = self.drained.map_or(Micros::ZERO, |_| Micros(self.deadline.since(distance).0 / 4));
            let time = self.deadline.since(self.pace().plus(jitter).plus(drain));
            let (tasks, took) = self.rates.iter().fold((0_usize, Micros::ZERO), |(tasks, took), rate| {
                (tasks.saturating_add(rate.0), took.plus(rate.1))
            });
            scaled(tasks, time, took).saturating_sub(in_flight)
        } else {
            let rest = self.deadline.since(slowest.plus(self.pace()));
            free.saturating_add(scaled(self.cwnd, rest, *fastest))
        };
        in_time.max(1)
    }

    /// What an answer says about how much the store does: what was done since the batch left, or lately if that was more. The former
    /// is too little while a store that is far has not been asked for all that it can do.
    fn rate(&mut self, done: (usize, Micros), took: Micros, arrival: (Micros, usize)) -> (usize, Micros) {
        let mut lately = 0_usize;
        let mut best = done;
        let trips = self.trips.iter().flatten();
        let jitter =
            trips.clone().max().copied().unwrap_or_default().since(trips.min().copied().unwrap_or_default());
        // Answers that come at odd times, some of them close together, say nothing about what is done in so short a time.
        let least = Micros(took.0 / 4).max(Micros(self.pace().0.saturating_mul(2))).max(jitter);
        self.arrivals.rotate_right(1);
        self.arrivals[0] = arrival;
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

    /// How many tasks the store does in this time, by the best of so many of the last answers.
    fn done_in(&self, time: Micros, answers: usize) -> usize {
        self.rates.iter().take(answers).map(|(tasks, took)| scaled(*tasks, time, *took)).max().unwrap_or(0)
    }

    /// A batch was answered.
    pub fn answered(&mut self, sample: Sample, at: Micros) {
        let Sample { took, sent, in_flight, batches, done, tasks } = sample;
        let risen = self.distance.turn(at, REMEMBERED);
        self.distance.record(took);
        if let Some((window, since)) = self.drained {
            if sent >= since {
                let slack = self.deadline.since(took);
                let target = self.done_in(took.plus(Micros(slack.0 / 8 * 3)), TRIPS);
                self.cwnd = window.min(target).max(1);
                self.drained = None;
                self.shrunk = at;
                self.boost = 0;
            }
            return;
        }
        self.trips.rotate_right(1);
        self.trips[0] = Some(took);
        self.rates.rotate_right(1);
        self.rates[0] = self.rate(done, took, (at, tasks));
        let distance = self.distance.get().unwrap_or_default();
        let answers = batches.clamp(2, 4);
        let trips = self.trips.iter().flatten().take(answers);
        let known = trips.clone().count();
        let trip = trips.min().copied().unwrap_or(took);
        let slack = self.deadline.since(distance);
        if let Some((before, now)) = risen
            && now.since(before).0 > slack.0 / 16
        {
            // A queue that never empties looks like distance. For one round trip little is in flight, and the distance shows.
            let drained = self.done_in(before, answers).min(self.cwnd).saturating_mul(15) / 16;
            self.drained = Some((self.cwnd, at));
            self.cwnd = drained.max(1);
            return;
        }
        // One more than the store is busy with has to wait for one task, whatever that takes.
        let service = Micros(done.1.0.checked_div(done.0 as u64).unwrap_or(0)).min(distance);
        let most = Micros(slack.0 / 2).max(service).min(Micros(slack.0 / 4 * 3));
        let queueing = trip.since(distance);
        if queueing > most {
            self.boost = 0;
            if known > 1 && !self.has_moved(in_flight, took, at) && sent >= self.shrunk {
                let target = self.done_in(distance.plus(Micros(most.0 / 4 * 3)), answers);
                self.cwnd = self.cwnd.min(target).max(1);
                self.shrunk = at;
            }
            return;
        }
        self.worst = None;
        // What is not used is not known to be possible.
        if sent < self.shrunk || in_flight.saturating_mul(2) < self.cwnd {
            return;
        }
        if queueing.0 > most.0 / 2 || took.since(distance) > most {
            self.boost = 0;
            return;
        }
        if queueing.0 > most.0 / 4 {
            self.boost = 0;
        } else if sent >= self.round {
            self.round = at;
            self.boost = self.boost.saturating_add(1).min(BOOST);
        }
        // What was in flight a round trip ago is what is known to be possible.
        let more = in_flight >> BOOST.saturating_sub(self.boost);
        self.cwnd = self.cwnd.max(in_flight.saturating_add(more.max(1))).min(MAX_WINDOW);
    }

    /// Whether it is no queue that makes a trip so long: if less in flight does not make it shorter, the store has moved away, or
    /// others keep it busy.
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
            self.distance = RecentMin { current: Some(trip), previous: None, turned: at };
            self.trips = [None; TRIPS];
            self.worst = None;
            self.boost = BOOST;
            self.round = at;
        }
        moved
    }

    /// A batch was not answered in twice the time that it had. So many tasks were in flight.
    pub fn unanswered(&mut self, in_flight: usize) {
        self.cwnd = self.cwnd.min(in_flight / 8).max(1);
        self.boost = BOOST;
        self.drained = None;
        self.trips = [None; TRIPS];
    }
}

/// So many tasks in this proportion.
fn scaled(tasks: usize, part: Micros, whole: Micros) -> usize {
    let scaled = (tasks as u64).saturating_mul(part.0).checked_div(whole.0).unwrap_or(0);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}
