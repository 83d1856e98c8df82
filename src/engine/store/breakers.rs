// SPDX-License-Identifier: Apache-2.0
//! The breakers of a store: one for the whole store, and one for each 64th of its slots. If a shard of a cluster is down,
//! commands for its slots get errors, while the other shards answer.
//!
//! A batch is answered when all of its commands are, so one shard that hangs would delay every request that shares a batch with it. If the
//! last answer of some slots was an error, these are therefore *suspect*: they have their own queue, batches and congestion window.

use super::breaker::{Breaker, Carrier};
use crate::engine::{BatchId, StreamId};
use crate::policy::key;
use crate::time::Micros;

/// The slots of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// The slots without a failure since their last answer.
    Normal,
    /// The slots whose last answer was an error.
    Suspect,
}

/// One value for the normal slots, one for the suspect ones.
#[derive(Debug)]
pub(in crate::engine) struct BySlots<T> {
    pub normal: T,
    pub suspect: T,
}

impl<T> BySlots<T> {
    pub const fn of(&self, slots: Slots) -> &T {
        match slots {
            Slots::Normal => &self.normal,
            Slots::Suspect => &self.suspect,
        }
    }

    pub const fn of_mut(&mut self, slots: Slots) -> &mut T {
        match slots {
            Slots::Normal => &mut self.normal,
            Slots::Suspect => &mut self.suspect,
        }
    }
}

/// For how long breakers have been open, and how much of the store they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The time since the first of the open breakers opened.
    pub lasted: Micros,
    /// The number of 64ths of the slots that are not asked about; `None` if the store is not asked at all.
    pub slots: Option<u32>,
}

/// A breaker opens, its pause ends, and for this long no request asks about its slots: then it counts as no outage, because perhaps none ever
/// will. It stays open until a request asks.
const UNASKED: Micros = Micros::from_secs(120);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Breakers {
    store: Breaker,
    /// The breakers of the 64ths, each with the first six bits of its slots. A 64th without a breaker has had no failure.
    parts: Vec<(u16, Breaker)>,
    seed: u64,
    /// The time of the last tick.
    ticked: Micros,
}

impl Breakers {
    pub const fn new(seed: u64) -> Self {
        Self { store: Breaker::new(seed), parts: Vec::new(), seed, ticked: Micros::ZERO }
    }

    /// Time passed.
    pub const fn tick(&mut self, now: Micros) {
        self.ticked = now;
    }

    /// The open breakers of slots about which requests ask: those that count as an outage.
    fn open_parts(&self) -> impl Iterator<Item = &Breaker> + Clone {
        let parts = self.parts.iter().map(|(_, part)| part);
        parts.filter(|part| part.is_open() && !self.is_unasked(part))
    }

    /// True if no request has asked for [`UNASKED`].
    fn is_unasked(&self, breaker: &Breaker) -> bool {
        breaker.unasked_at(UNASKED).is_some_and(|at| at <= self.ticked)
    }

    /// The time of the next tick at which an open breaker counts as no outage any more, if no request asks.
    pub fn next_unasked(&self) -> Option<Micros> {
        if self.parts.is_empty() && !self.store.is_open() {
            return None;
        }
        let all = self.parts.iter().map(|(_, part)| part).chain([&self.store]);
        all.filter_map(|breaker| breaker.unasked_at(UNASKED)).filter(|at| *at > self.ticked).min()
    }

    /// True if weir may ask the store now, whatever the slot.
    pub fn store_admits(&self, now: Micros) -> bool {
        self.store.admits(now)
    }

    /// True if weir may ask about the slots of this tag now.
    pub fn slots_admit(&self, tag: &[u8], now: Micros) -> bool {
        let part = self.place(tag).and_then(|place| self.parts.get(place));
        part.is_none_or(|(_, part)| part.admits(now))
    }

    /// Notes that a request waits for the answer about this tag. Each breaker that needs a probe uses this request.
    pub fn request_waits(&mut self, tag: &[u8], stream: StreamId, now: Micros) {
        let carrier = Carrier::Request(stream);
        self.store.probe(carrier, now);
        if let Some((_, part)) = self.place(tag).and_then(|place| self.parts.get_mut(place)) {
            part.probe(carrier, now);
        }
    }

    /// Notes that a request no longer waits, or that a batch is no longer in flight.
    pub fn ended(&mut self, carrier: Carrier, now: Micros) {
        self.store.free(carrier, now);
        self.parts.iter_mut().for_each(|(_, part)| part.free(carrier, now));
    }

    /// Notes that a batch is sent, which now carries the probes of its requests. `asks` says which request asks about which tag.
    pub fn batch_sent<'a>(
        &mut self,
        id: BatchId,
        asks: impl Iterator<Item = (&'a [u8], StreamId)> + Clone,
        now: Micros,
    ) {
        let batch = Carrier::Batch(id);
        if self.store.is_open() {
            self.store.probe(batch, now);
            asks.clone().for_each(|(_, stream)| self.store.hand_over(Carrier::Request(stream), batch));
        }
        self.hand_over(asks, Carrier::Request, |_| batch);
    }

    /// Notes that the requests of a batch wait to be sent again.
    pub fn batch_requeued<'a>(
        &mut self,
        id: BatchId,
        asks: impl Iterator<Item = (&'a [u8], StreamId)> + Clone,
    ) {
        let batch = Carrier::Batch(id);
        asks.clone().for_each(|(_, stream)| self.store.hand_over(batch, Carrier::Request(stream)));
        self.hand_over(asks, |_| batch, Carrier::Request);
    }

    fn hand_over<'a>(
        &mut self,
        asks: impl Iterator<Item = (&'a [u8], StreamId)>,
        from: impl Fn(StreamId) -> Carrier,
        to: impl Fn(StreamId) -> Carrier,
    ) {
        if !self.parts.iter().any(|(_, part)| part.is_open()) {
            return;
        }
        for (tag, stream) in asks {
            if let Some((_, part)) = self.place(tag).and_then(|place| self.parts.get_mut(place)) {
                part.hand_over(from(stream), to(stream));
            }
        }
    }

    /// The index in `parts` of this tag's breaker.
    fn place(&self, tag: &[u8]) -> Option<usize> {
        if self.parts.is_empty() {
            return None;
        }
        let part = part(tag);
        self.parts.iter().position(|(other, _)| *other == part)
    }

    /// True if anything may be sent.
    pub fn sends(&self, now: Micros) -> bool {
        self.store.sends(now)
    }

    /// Notes a usable answer of the store about this tag.
    pub fn answered(&mut self, tag: &[u8]) {
        let Some(place) = self.place(tag) else { return };
        if let Some((_, part)) = self.parts.get_mut(place) {
            part.answered();
            if part.is_healthy() {
                self.parts.swap_remove(place);
            }
        }
    }

    /// True if any slots are suspect.
    pub fn any_suspect(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.is_suspect())
    }

    /// Returns the slots of this tag, normal or suspect.
    pub fn slots(&self, tag: &[u8]) -> Slots {
        let part = self.place(tag).and_then(|place| self.parts.get(place));
        if part.is_some_and(|(_, part)| part.is_suspect()) { Slots::Suspect } else { Slots::Normal }
    }

    /// Notes that the store has answered one command of this batch, about these tags, with an error: one failure for each 64th of the slots
    /// that has one of the tags. Returns how many breakers that opens.
    pub fn refused<'a>(&mut self, tags: impl Iterator<Item = &'a [u8]>, by: BatchId, now: Micros) -> usize {
        let (mut failed, mut opened) = (0_u64, 0_usize);
        for part in tags.map(part) {
            let bit = 1_u64.wrapping_shl(u32::from(part));
            if failed & bit != 0 {
                continue;
            }
            failed |= bit;
            if !self.parts.iter().any(|(other, _)| *other == part) {
                self.parts.push((part, Breaker::new(self.seed.wrapping_add(u64::from(part)))));
            }
            let breaker = self.parts.iter_mut().find(|(other, _)| *other == part);
            opened = opened
                .saturating_add(usize::from(breaker.is_some_and(|(_, breaker)| breaker.failed(by, now))));
        }
        opened
    }

    /// Notes that the store has answered a batch in time.
    pub fn store_answered(&mut self) {
        self.store.answered();
    }

    /// True if no breaker remembers a failure.
    pub fn all_healthy(&self) -> bool {
        self.parts.is_empty() && self.store.is_healthy()
    }

    /// Notes that this batch got no answer at all. Returns whether that opens the breaker.
    pub fn store_failed(&mut self, by: BatchId, now: Micros) -> bool {
        self.store.failed(by, now)
    }

    /// True if the breaker of the whole store is open: weir sends it only probes.
    pub const fn is_open(&self) -> bool {
        self.store.is_open()
    }

    /// The number of open breakers. It does not include those about whose slots, or whose store, no request has asked for [`UNASKED`].
    pub fn open(&self) -> u64 {
        let is_asked = self.store.is_open() && !self.is_unasked(&self.store);
        (self.open_parts().count() as u64).saturating_add(is_asked.into())
    }

    /// Returns the part of the store that is not asked, and since when; `None` if all breakers are closed.
    pub fn outage(&self, now: Micros) -> Option<Outage> {
        if self.store.is_open() {
            return Some(Outage { lasted: now.since(self.store.opened), slots: None });
        }
        let opened = self.open_parts().map(|part| part.opened).min()?;
        Some(Outage { lasted: now.since(opened), slots: u32::try_from(self.open_parts().count()).ok() })
    }
}

fn part(tag: &[u8]) -> u16 {
    key::slot(tag) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::store::breaker::SHORTEST_PAUSE;

    /// Some tags in each 64th of the slots that has any.
    fn tags() -> std::collections::BTreeMap<u16, Vec<Vec<u8>>> {
        let mut parts = std::collections::BTreeMap::<_, Vec<_>>::new();
        for subject in 0..500 {
            let tag = format!("{{p|{subject}}}").into_bytes();
            parts.entry(key::slot(&tag) / 256).or_default().push(tag);
        }
        assert_eq!(parts.len(), 64);
        parts
    }

    #[test]
    fn the_slots_fail_by_64ths() {
        let (parts, now) = (tags(), Micros::from_secs(1));
        let failing = [0, 1, 40, 63];
        let all = |part: &u16| parts[part].iter().map(Vec::as_slice);
        let mut breakers = Breakers::new(7);
        let opened = [1, 2, 3].map(|batch| breakers.refused(failing.iter().flat_map(all), batch, now));
        assert_eq!((opened, breakers.open()), ([0, 0, 4], 4));
        let lasted = Micros::from_millis(30);
        let outage = Outage { lasted, slots: Some(4) };
        assert_eq!(breakers.outage(now.plus(lasted)), Some(outage));
        for (part, tags) in &parts {
            let admits = tags.iter().all(|tag| breakers.slots_admit(tag, now));
            let refuses = tags.iter().all(|tag| !breakers.slots_admit(tag, now));
            assert_eq!((refuses, admits), (failing.contains(part), !failing.contains(part)), "part {part}");
        }
        breakers.answered(&parts[&40][0]);
        assert_eq!((breakers.open(), breakers.outage(now).and_then(|outage| outage.slots)), (3, Some(3)));
    }

    #[test]
    fn slots_that_fail_every_other_time_are_left_alone_and_forgotten_when_all_went_well() {
        let (parts, now) = (tags(), Micros::from_secs(1));
        let tag = parts[&5][0].as_slice();
        let mut breakers = Breakers::new(7);
        let opened = (1..100).find(|batch| {
            breakers.answered(tag);
            breakers.refused(std::iter::once(tag), *batch, now) > 0
        });
        assert_eq!(opened, Some(8));
        breakers.answered(tag);
        assert_eq!((breakers.open(), breakers.all_healthy()), (0, true), "it answers its probe");
        breakers.refused(std::iter::once(tag), 9, now);
        for answers in 0..16 {
            assert!(!breakers.all_healthy(), "{answers} answers after a failure");
            breakers.answered(tag);
        }
        assert!(breakers.all_healthy());
    }

    /// Two parts fail, and requests ask about one of them only.
    #[test]
    fn slots_about_which_no_request_asks_are_no_outage_and_stay_open() {
        let (parts, mut now) = (tags(), Micros::from_secs(1));
        let (asked, unasked) = (parts[&5][0].as_slice(), parts[&40][0].as_slice());
        let mut breakers = Breakers::new(7);
        for batch in 1..=3 {
            breakers.refused([asked, unasked].into_iter(), batch, now);
        }
        assert_eq!(breakers.open(), 2);
        for batch in 4..504 {
            now = now.plus(Micros::from_secs(1));
            breakers.tick(now);
            if breakers.slots_admit(asked, now) {
                breakers.request_waits(asked, 1, now);
                breakers.batch_sent(batch, std::iter::once((asked, 1)), now);
                breakers.refused(std::iter::once(asked), batch, now);
            }
        }
        let slots = |breakers: &Breakers| breakers.outage(now).and_then(|outage| outage.slots);
        assert_eq!((breakers.open(), slots(&breakers)), (1, Some(1)));
        assert!(breakers.slots(unasked) == Slots::Suspect && !breakers.all_healthy(), "it is not forgotten");
        // It is asked about again, and fails.
        assert!(breakers.slots_admit(unasked, now));
        breakers.request_waits(unasked, 2, now);
        breakers.batch_sent(504, std::iter::once((unasked, 2)), now);
        assert!(!breakers.slots_admit(unasked, now), "one probe");
        breakers.refused(std::iter::once(unasked), 504, now);
        assert_eq!((breakers.open(), slots(&breakers)), (2, Some(2)));
        [asked, unasked].into_iter().for_each(|tag| breakers.answered(tag));
        assert_eq!((breakers.open(), slots(&breakers)), (0, None));
    }

    /// A generator that is at zero stays there.
    #[test]
    fn the_probes_of_slots_are_spread_whatever_the_seed_is() {
        let (parts, now) = (tags(), Micros::from_secs(1));
        for (part, seed) in parts.keys().flat_map(|part| (0..4).map(move |seed: u64| (part, seed))) {
            let mut breakers = Breakers::new(seed.wrapping_sub(u64::from(*part)));
            let tag = parts[part][0].as_slice();
            (1..=3).for_each(|batch| {
                breakers.refused(std::iter::once(tag), batch, now);
            });
            assert!(!breakers.slots_admit(tag, now.plus(SHORTEST_PAUSE)), "part {part}, seed {seed}");
        }
    }
}
