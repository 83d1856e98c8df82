// SPDX-License-Identifier: Apache-2.0
//! A world in which the test decides what happens next: each batch and each answer stays on its way until the test lets it arrive, and
//! time only passes when the test says so.

use std::cmp::Reverse;
use std::fmt::{self, Write};
use std::hash::Hasher;

use weir::engine::StreamId;
use weir::policy::Check;

use super::{Defect, Event, Host, World};

/// Connections that are open to each store: no batch waits for one.
const CONNECTIONS: usize = 64;

impl World {
    /// The test steers from now on.
    pub fn steer(&mut self) {
        self.workers.iter_mut().for_each(|host| host.idle.fill(CONNECTIONS));
    }

    /// A request with this number arrives.
    pub fn arrive_as(&mut self, stream: StreamId, worker: usize, checks: Vec<Check>) {
        self.next_stream = stream - 1;
        self.arrive(worker, checks);
    }

    /// The batches and answers that are on their way, in the order in which they would arrive. An answer on a closed connection is not.
    pub fn on_the_way(&self) -> Vec<Event> {
        let arrives = |event: &Event| matches!(event, Event::Reached(..)) || self.is_awaited(*event);
        let mut events: Vec<_> = self.events.iter().map(|Reverse(event)| *event).collect();
        events.retain(|(.., event)| arrives(event));
        events.sort_unstable();
        events.into_iter().map(|(.., event)| event).collect()
    }

    /// True if a worker waits for this: it has not abandoned it, and has not crashed.
    pub fn is_awaited(&self, event: Event) -> bool {
        let (Event::Reached(place, id) | Event::Answered(place, id)) = event else { return false };
        !self.in_flight[&(place, id)].is_abandoned
    }

    /// This batch or answer arrives now.
    pub fn arrives(&mut self, event: Event) {
        let found = self.events.iter().filter(|Reverse((.., of))| *of == event).max();
        let Some(&Reverse((at, number, _))) = found else { panic!("{event:?} is not on its way") };
        self.events.retain(|Reverse((_, other, _))| *other != number);
        // A timer gets its own time. Any other event that arrives now would otherwise have arrived at another time.
        self.happens(event, if matches!(event, Event::Tick(_)) { at } else { self.time });
    }

    /// This batch or answer never arrives, and the worker does not notice.
    pub fn goes_missing(&mut self, event: Event) {
        let (Event::Reached(place, id) | Event::Answered(place, id)) = event else { return };
        self.in_flight.get_mut(&(place, id)).expect("a batch").is_lost = true;
        self.arrives(event);
    }

    /// The connection of this batch or answer breaks, and the worker notices. A batch still reaches its store.
    pub fn breaks(&mut self, event: Event) {
        let (Event::Reached(place, id) | Event::Answered(place, id)) = event else { return };
        self.in_flight.get_mut(&(place, id)).expect("a batch").is_abandoned = true;
        self.fail(place, id);
        self.turn(place);
        if self.defect == Some(Defect::SendsAgain) {
            let mut sent = self.in_flight.remove(&(place, id)).expect("a batch");
            self.execute(place, &mut sent);
            self.in_flight.insert((place, id), sent);
        }
    }

    /// This batch or answer arrives twice: the store does the batch now, and once more later; or the worker reads the answer again.
    pub fn arrives_twice(&mut self, event: Event) {
        match event {
            Event::Reached(place, id) => {
                let mut sent = self.in_flight.remove(&(place, id)).expect("a batch");
                self.execute(place, &mut sent);
                self.ledger.entries[sent.entries.clone()].iter_mut().for_each(|entry| entry.is_copy = true);
                self.in_flight.insert((place, id), sent);
            }
            Event::Answered(place, id) => {
                let replies = self.in_flight[&(place, id)].replies.clone();
                self.arrives(event);
                let worker = self.worker(place);
                worker.engine.replied(id, &replies, worker.now);
                self.turn(place);
            }
            Event::Own(_) | Event::Tick(_) | Event::Connected(..) => {}
        }
    }

    /// A worker crashes, and its requests end with it. Another one starts in its place; returns its number. Batches that the worker has
    /// sent still reach the stores.
    pub fn crashes(&mut self, place: usize) -> usize {
        let (regions, number) = (self.stores.len(), self.workers.len());
        let host = &mut self.workers[place];
        (host.is_dead, host.timer) = (true, None);
        let new = Host::new(&host.known, (host.region, regions), number as u64);
        self.workers.push(new);
        self.steer();
        let ends = |stream: &StreamId| self.ledger.requests[stream].worker != place;
        self.ledger.open.retain(ends);
        let of = |(by, _): &(usize, u32)| *by == place;
        self.in_flight.iter_mut().filter(|(key, _)| of(key)).for_each(|(_, sent)| sent.is_abandoned = true);
        number
    }

    /// Time passes until a worker sends or decides something, but no longer than this.
    pub fn passes(&mut self, span: u64) {
        let end = self.time + span;
        let visible = |world: &Self| (world.on_the_way().len(), world.ledger.decisions.len());
        let before = visible(self);
        while let Some((at, event)) = self.next_timer().filter(|(at, _)| *at <= end) {
            self.time = self.time.max(at);
            self.arrives(event);
            if visible(self) != before {
                return;
            }
        }
        self.time = end;
    }

    /// The next timer. If several fire together, it is that of the first worker: the order decides nothing that the digest does not show.
    fn next_timer(&self) -> Option<(u64, Event)> {
        let timers = self.events.iter().filter(|Reverse((.., event))| matches!(event, Event::Tick(_)));
        timers.map(|Reverse((at, _, event))| (*at, *event)).min()
    }

    /// Everything that decides what can happen from now on: what the engines, the stores and the batches on their way print. That leaves out
    /// only which of equal receipts are the same one.
    pub fn digest(&self, into: &mut impl Hasher) {
        struct Sink<'a, H>(&'a mut H);
        impl<H: Hasher> Write for Sink<'_, H> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }
        let mut sink = Sink(into);
        let mut add = |of: fmt::Arguments<'_>| sink.write_fmt(of).expect("it takes all");
        add(format_args!("{} {:?} ", self.time, self.stores));
        for host in self.workers.iter().filter(|host| !host.is_dead) {
            add(format_args!("{} {:?} {:?} ", host.skew, host.timer, host.worker.engine));
        }
        for ((place, id), sent) in &self.in_flight {
            let is_on_its_way = self.on_the_way().contains(&Event::Reached(*place, *id));
            let flags = (sent.to, sent.is_abandoned, sent.is_over, is_on_its_way);
            add(format_args!("{place} {id} {flags:?} {:?} ", sent.replies));
            sent.batch.commands.iter().for_each(|command| add(format_args!("{:?}", command.words)));
        }
    }
}
