// SPDX-License-Identifier: Apache-2.0
//! The permit queues of `concurrency` limits: requests that only such a limit denies wait until a permit is free, each in the permit queue
//! of its subject.
//!
//! ```text
//!  decided: denied ──▶ queued ──▶ asks again, with the others at the head of its queue ──▶ granted: decided as any other
//!                        ▲  │                   │
//!                        └──┼───────────────────┘ denied again
//!                           └─▶ max_wait is over, or its client leaves
//! ```
//!
//! - A permit queue is in the order in which the requests came. Only those at its head ask, together, and only when those that asked before
//!   are answered. A request that joins a queue does so without asking about the subject.
//! - All queues of a subject ask when this worker has released a permit of it. Priority classes, tiers and scales have queues of their own,
//!   because their checks differ, but the permits are the same.
//! - Permits that other workers release are not announced. So a queue also asks after a pause, which doubles from [`SHORTEST`] to
//!   [`LONGEST`], and begins anew when a permit was free. All queues of the worker together ask so at most once per [`INTERVAL`], after a
//!   [`BURST`]: those that are due for the longest time ask first.
//! - A denial charges nothing, so asking again charges nothing. The grants of other policies stay charged while the request waits, and are
//!   refunded if it is rejected in the end.
//! - No request waits past its `max_wait`, also if the store has not answered yet: a grant that comes later is refunded.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::rc::Rc;

use crate::decision::Decision;
use crate::engine::StreamId;
use crate::engine::generations::Seed;
use crate::policy::Check;
use crate::sorted_map::SortedMap;
use crate::time::Micros;

/// At most this many requests of one worker are queued; one more is rejected.
const MAX_QUEUED: usize = 4_096;

/// At most this many requests of one queue ask together.
pub(in crate::engine) const ASK_TOGETHER: usize = 16;

/// The pauses after which a queue asks again.
const SHORTEST: Micros = Micros::from_millis(20);
const LONGEST: Micros = Micros::from_millis(320);

/// The interval at which the queues of a worker ask after a pause. Otherwise very many idle requests, each of another subject, would keep
/// the store busy.
const INTERVAL: Micros = Micros::from_millis(2);

/// They may ask so much earlier than that if they have asked less before.
const BURST: Micros = Micros::from_secs(1);

/// The due time of a queue that asks at once: before all others.
const AT_ONCE: Micros = Micros::ZERO;

/// The state of a request in a permit queue.
#[derive(Debug)]
pub(in crate::engine) struct Queued {
    /// Its queue.
    pub key: Rc<Check>,
    /// The index of its check that is denied.
    pub place: usize,
    /// The store's last denial. Its client gets it if no permit comes in time.
    pub denial: Decision,
    /// The uptime at which it has waited for long enough.
    pub until: Micros,
}

/// The permit queue of requests for one subject whose checks are alike.
#[derive(Debug)]
pub(in crate::engine) struct PermitQueue {
    /// A check of these requests. They may differ in their costs: the permits of a subject are the same at any cost.
    key: Rc<Check>,
    /// Distinguishes queues that are due at the same time.
    number: u64,
    /// In the order in which they came.
    pub requests: VecDeque<(u64, StreamId)>,
    /// The number of requests whose checks are in flight.
    asking: usize,
    /// True if all checks have been granted until now.
    all_granted: bool,
    /// True if a permit was released since they asked.
    released: bool,
    /// The time at which it asks again, if it does not ask now.
    due: Option<Micros>,
    pause: Micros,
    /// The last denial, for requests that join the queue.
    denial: Decision,
}

impl PermitQueue {
    /// So many requests at its head ask again.
    pub const fn asks(&mut self, requests: usize) {
        (self.asking, self.all_granted) = (requests, true);
    }

    /// A request no longer asks.
    fn answered(&mut self, granted: bool) {
        self.asking = self.asking.saturating_sub(1);
        self.all_granted &= granted;
        if granted {
            self.pause = SHORTEST;
        }
    }

    fn set_due(&mut self, all: &mut Due, due: Option<Micros>) {
        if let Some(due) = mem::replace(&mut self.due, due) {
            all.remove(&(due, self.number));
        }
        if let Some(due) = due {
            all.insert((due, self.number), Rc::clone(&self.key));
        }
    }

    /// See [`PermitQueues::plan`].
    fn plan(&mut self, all: &mut Due, now: Micros) {
        if self.asking > 0 {
            return;
        }
        if self.requests.is_empty() {
            return self.set_due(all, None);
        }
        let at_once = mem::take(&mut self.released) || mem::take(&mut self.all_granted);
        let due = if at_once { AT_ONCE } else { now.plus(self.pause) };
        self.pause = if at_once { SHORTEST } else { self.pause.plus(self.pause).min(LONGEST) };
        self.set_due(all, Some(due));
    }

    /// True if requests with this check wait in it.
    fn is_of(&self, check: &Check) -> bool {
        let kind = |check: &Check| (check.kept_percent, check.mode);
        kind(&self.key) == kind(check) && self.key.has_the_subject_of(check)
    }
}

/// The times at which queues ask again.
type Due = SortedMap<(Micros, u64), Rc<Check>>;

/// All permit queues of one worker.
#[derive(Debug)]
pub(in crate::engine) struct PermitQueues {
    /// By the tag, which names the permits.
    by_tag: HashMap<Vec<u8>, Vec<PermitQueue>, Seed>,
    due: Due,
    /// Checks after a pause are at least [`INTERVAL`] apart on average: this is the time up to which they have used their intervals.
    taken: Micros,
    /// The time at which each request has waited for long enough.
    ends: SortedMap<(Micros, StreamId), ()>,
    next: u64,
    /// The number of requests that were queued.
    pub queued: u64,
}

impl PermitQueues {
    pub fn new(seed: Seed) -> Self {
        let (by_tag, due, ends) = (HashMap::with_hasher(seed), SortedMap::default(), SortedMap::default());
        Self { by_tag, due, taken: Micros::ZERO, ends, next: 0, queued: 0 }
    }

    /// The number of requests that wait.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The uptime at which something is to be done next.
    pub fn next(&self) -> Option<Micros> {
        let asks = |due: Micros| if due == AT_ONCE { due } else { due.max(self.asks_from()) };
        let due = self.due.first().map(|((due, _), _)| asks(*due));
        Micros::earliest([due, self.ends.first().map(|((end, _), ())| *end)])
    }

    /// The next request that has waited for long enough.
    pub fn expired(&self, now: Micros) -> Option<(Micros, StreamId)> {
        self.ends.first().map(|(end, ())| *end).filter(|(until, _)| *until <= now)
    }

    /// Forgets the end of a request that is in no queue.
    pub fn forget(&mut self, end: (Micros, StreamId)) {
        self.ends.remove(&end);
    }

    /// The uptime from which a queue may ask after its pause.
    const fn asks_from(&self) -> Micros {
        self.taken.since(BURST)
    }

    /// The denial of the queue that a request with this check has to join, if there is one.
    pub fn denial(&self, check: &Check) -> Option<Decision> {
        if self.by_tag.is_empty() {
            return None;
        }
        // The requests of a permit queue are enforced ones, so others find none.
        let queue = self.by_tag.get(&check.tag)?.iter().find(|queue| queue.is_of(check))?;
        Some(queue.denial.clone())
    }

    pub fn queue_of(&mut self, key: &Check) -> Option<&mut PermitQueue> {
        self.by_tag.get_mut(&key.tag)?.iter_mut().find(|queue| queue.is_of(key))
    }

    pub fn remove(&mut self, key: &Check) {
        let Some(queues) = self.by_tag.get_mut(&key.tag) else { return };
        queues.retain(|queue| !queue.is_of(key));
        if queues.is_empty() {
            self.by_tag.remove(&key.tag);
        }
    }

    /// If all that asked are answered, the queue asks again now, or after a pause.
    pub fn plan(&mut self, key: &Check, now: Micros) {
        let queue =
            self.by_tag.get_mut(&key.tag).and_then(|queues| queues.iter_mut().find(|queue| queue.is_of(key)));
        let Some(queue) = queue else { return };
        queue.plan(&mut self.due, now);
        if queue.asking == 0 && queue.requests.is_empty() {
            self.remove(key);
        }
    }

    /// Permits of a subject were released.
    pub fn released(&mut self, check: &Check, now: Micros) {
        if self.by_tag.is_empty() {
            return;
        }
        for queue in self.by_tag.get_mut(&check.tag).into_iter().flatten() {
            if queue.key.store == check.store {
                (queue.released, queue.pause) = (true, SHORTEST);
                queue.plan(&mut self.due, now);
            }
        }
    }

    /// The next queue that asks again now.
    pub fn pop_due(&mut self, now: Micros) -> Option<Rc<Check>> {
        let ((due, _), key) = self.due.first()?;
        let (due, key) = (*due, Rc::clone(key));
        if due != AT_ONCE {
            if due.max(self.asks_from()) > now {
                return None;
            }
            self.taken = self.taken.max(now).plus(INTERVAL);
        }
        self.due.pop_first();
        if let Some(queue) = self.queue_of(&key) {
            queue.due = None;
        }
        Some(key)
    }

    /// A request joins the queue of its subject, unless it is full. Returns `true` if it has joined.
    pub fn join(&mut self, (arrived, stream): (u64, StreamId), queued: &Queued, max_waiting: usize) -> bool {
        if self.ends.len() >= MAX_QUEUED {
            return false;
        }
        if self.queue_of(&queued.key).is_none() {
            let new = PermitQueue {
                key: Rc::clone(&queued.key),
                number: self.next,
                requests: VecDeque::new(),
                asking: 0,
                all_granted: false,
                released: false,
                due: None,
                pause: SHORTEST,
                denial: queued.denial.clone(),
            };
            self.next = self.next.wrapping_add(1);
            self.by_tag.entry(queued.key.tag.clone()).or_default().push(new);
        }
        let Some(queue) = self.queue_of(&queued.key).filter(|queue| queue.requests.len() < max_waiting)
        else {
            return false;
        };
        let place = queue.requests.partition_point(|(other, _)| *other < arrived);
        queue.requests.insert(place, (arrived, stream));
        self.ends.insert((queued.until, stream), ());
        self.queued = self.queued.saturating_add(1);
        true
    }

    /// A request in a queue is denied: it `asked`, or has just joined.
    pub fn denied(&mut self, queued: &Queued, asked: bool, now: Micros) {
        let Some(queue) = self.queue_of(&queued.key) else { return };
        if asked {
            queue.answered(false);
        }
        queue.denial = queued.denial.clone();
        if queue.due.is_none() {
            self.plan(&queued.key, now);
        }
    }

    /// A request leaves its queue. If it was asking, `granted` says whether it was granted.
    pub fn leave(&mut self, stream: StreamId, queued: &Queued, granted: Option<bool>, now: Micros) {
        self.ends.remove(&(queued.until, stream));
        let Some(queue) = self.queue_of(&queued.key) else { return };
        if let Some(granted) = granted {
            queue.answered(granted);
        }
        queue.requests.retain(|(_, other)| *other != stream);
        if queue.due.is_none() || queue.requests.is_empty() {
            self.plan(&queued.key, now);
        }
    }
}
