//! The breaker: stops asking a store that does not answer, and finds out with one request when it does again.
//!
//! ```text
//!     failures in a row, or half of all       the pause is over
//!  Closed ────────────────────▶ Open ─────────────────────────────▶ Probing
//!    ▲                           ▲  nobody waits                       │  one request waits, the others do not
//!    │                           ├────────── it failed: twice the pause┤
//!    │                           ├───────── it was lost: no pause left─┤
//!    └──────────────────────────────────────────────── it was answered ┘
//! ```
//!
//! A probe is always carried by a request that waits, or by a batch in flight. Both end in bounded time, whatever the
//! store and the clients do. When the carrier ends without telling the breaker anything, the probe is free again, and
//! the next request takes it. So no state waits for something that never comes.
//!
//! Times are the worker's uptime, which never goes back.

use super::flights::Lane;
use super::{BatchId, StreamId};
use crate::policy::key;
use crate::time::Micros;

/// So many failures in a row open it,…
const IN_A_ROW: u32 = 3;

/// …and so many among those remembered: a store that fails every other time is no store either.
const IN_ALL: u32 = 8;

/// The last 16 outcomes, the youngest lowest; a failure is a 1.
type History = u16;

/// The first pause; each probe that fails doubles it, up to [`LONGEST`].
const SHORTEST: Micros = Micros::from_millis(100);

/// The longest pause. With a quarter more, the deadline of a probe that just failed and the answer to the next one, a store
/// that returns is in use again within a second.
const LONGEST: Micros = Micros::from_millis(400);

/// What a probe travels with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A request that waits for its batch.
    Request(StreamId),
    /// A batch in flight.
    Batch(BatchId),
}

/// Whether the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { history: History },
    Open { until: Micros, pause: Micros },
    Probing { carrier: Carrier, pause: Micros },
}

/// One store's breaker.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// When it opened, unless it is closed.
    opened: Micros,
    /// Spreads the probes of workers that lost the store at the same moment.
    jitter: u64,
}

impl Breaker {
    pub const fn new(seed: u64) -> Self {
        Self { state: State::Closed { history: 0 }, opened: Micros::ZERO, jitter: seed }
    }

    /// Whether a request may wait for the store now, as its probe if it is not closed. Asking changes nothing.
    pub fn admits(&self, now: Micros) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until, .. } => until <= now,
            State::Probing { .. } => false,
        }
    }

    /// A request that was admitted waits, or a batch leaves: it is the probe, if one is due.
    pub fn probe(&mut self, carrier: Carrier, now: Micros) {
        if let State::Open { until, pause } = self.state
            && until <= now
        {
            self.state = State::Probing { carrier, pause };
        }
    }

    /// Whether anything may be sent: a probe, or everything. While a probe is in flight nothing follows it.
    pub fn sends(&self, now: Micros) -> bool {
        match self.state {
            State::Closed { .. } | State::Probing { carrier: Carrier::Request(_), .. } => true,
            State::Probing { carrier: Carrier::Batch(_), .. } => false,
            State::Open { until, .. } => until <= now,
        }
    }

    /// The probe travels with something else from now on.
    fn hand_over(&mut self, from: Carrier, to: Carrier) {
        if let State::Probing { carrier, .. } = &mut self.state
            && *carrier == from
        {
            *carrier = to;
        }
    }

    /// What carried the probe has ended. If the probe has not been told of, the next request is the probe.
    fn free(&mut self, by: Carrier, now: Micros) {
        if let State::Probing { carrier, pause } = self.state
            && carrier == by
        {
            self.state = State::Open { until: now, pause };
        }
    }

    /// The store gave a usable answer in time.
    pub const fn answered(&mut self) {
        let history = match self.state {
            State::Closed { history } => history << 1,
            State::Open { .. } | State::Probing { .. } => 0,
        };
        self.state = State::Closed { history };
    }

    const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// Whether all that is remembered went well.
    const fn is_whole(&self) -> bool {
        matches!(self.state, State::Closed { history: 0 })
    }

    /// Whether the last answer was of no use, or there is none since.
    const fn is_doubtful(&self) -> bool {
        !matches!(self.state, State::Closed { history } if history & 1 == 0)
    }

    /// This batch got no usable answer. Whether that opened the breaker. While a probe is out only its own batch counts: what
    /// was sent before it tells nothing new.
    pub fn failed(&mut self, by: BatchId, now: Micros) -> bool {
        let pause = match self.state {
            State::Closed { history }
                if history.trailing_ones() < IN_A_ROW.wrapping_sub(1)
                    && history.count_ones() < IN_ALL.wrapping_sub(1) =>
            {
                self.state = State::Closed { history: history << 1 | 1 };
                return false;
            }
            State::Closed { .. } => {
                self.opened = now;
                SHORTEST
            }
            State::Probing { carrier, pause } if carrier == Carrier::Batch(by) => {
                Micros(pause.0.saturating_mul(2)).min(LONGEST)
            }
            State::Probing { .. } | State::Open { .. } => return false,
        };
        // Up to a quarter more; xorshift (Marsaglia 2003) is random enough for that.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let more = self.jitter.checked_rem(pause.0 / 4).unwrap_or(0);
        self.state = State::Open { until: now.plus(pause).plus(Micros(more)), pause };
        true
    }
}

/// For how long a breaker has been open, and how much of the store it keeps from being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Since the first of the breakers that are open now opened.
    pub lasted: Micros,
    /// How many 64ths of the slots are not asked about; `None` if the store is not asked at all.
    pub slots: Option<u32>,
}

/// The breakers of a store: one for all of it, and one for each part of its slots that fails by itself. A shard of a
/// cluster that is gone answers with errors, while the others answer.
#[derive(Debug)]
pub(super) struct Breakers {
    store: Breaker,
    /// By the slot's first six bits; those that are missing have nothing to remember.
    parts: Vec<(u16, Breaker)>,
    seed: u64,
}

impl Breakers {
    pub const fn new(seed: u64) -> Self {
        Self { store: Breaker::new(seed), parts: Vec::new(), seed }
    }

    /// Whether the store is asked at all now.
    pub fn store_admits(&self, now: Micros) -> bool {
        self.store.admits(now)
    }

    /// Whether the slots that this tag is in are asked about now.
    pub fn slots_admit(&self, tag: &[u8], now: Micros) -> bool {
        let part = self.place(tag).and_then(|place| self.parts.get(place));
        part.is_none_or(|(_, part)| part.admits(now))
    }

    /// A request waits for the answer about this tag. It is the probe wherever one is due.
    pub fn waits(&mut self, tag: &[u8], stream: StreamId, now: Micros) {
        let carrier = Carrier::Request(stream);
        self.store.probe(carrier, now);
        if let Some((_, part)) = self.place(tag).and_then(|place| self.parts.get_mut(place)) {
            part.probe(carrier, now);
        }
    }

    /// A request waits no longer, or a batch flies no longer.
    pub fn ended(&mut self, carrier: Carrier, now: Micros) {
        self.store.free(carrier, now);
        self.parts.iter_mut().for_each(|(_, part)| part.free(carrier, now));
    }

    /// A batch leaves. The probes of the requests in it travel with it; `asks` says which request asks about which tag.
    pub fn sent<'a>(
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

    /// A batch that is to be sent again waits for that.
    pub fn sent_back<'a>(&mut self, id: BatchId, asks: impl Iterator<Item = (&'a [u8], StreamId)> + Clone) {
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

    /// Where in `parts` that of this tag is.
    fn place(&self, tag: &[u8]) -> Option<usize> {
        if self.parts.is_empty() {
            return None;
        }
        let part = part(tag);
        self.parts.iter().position(|(other, _)| *other == part)
    }

    /// Whether anything may be sent.
    pub fn sends(&self, now: Micros) -> bool {
        self.store.sends(now)
    }

    /// The store answered this command with something usable.
    pub fn answered(&mut self, tag: &[u8]) {
        let Some(place) = self.place(tag) else { return };
        if let Some((_, part)) = self.parts.get_mut(place) {
            part.answered();
            if part.is_whole() {
                self.parts.swap_remove(place);
            }
        }
    }

    /// Whether there are doubtful slots at all.
    pub fn doubt(&self) -> bool {
        self.parts.iter().any(|(_, part)| part.is_doubtful())
    }

    /// The lane in which to ask about the subject of this tag.
    pub fn lane(&self, tag: &[u8]) -> Lane {
        let part = self.place(tag).and_then(|place| self.parts.get(place));
        if part.is_some_and(|(_, part)| part.is_doubtful()) { Lane::Doubtful } else { Lane::Main }
    }

    /// The store answered one command of this batch, about these tags, with an error: one failure of each part of the slots
    /// that they are in. How many breakers that opened.
    pub fn refused<'a>(&mut self, tags: impl Iterator<Item = &'a [u8]>, by: BatchId, now: Micros) -> usize {
        let (mut failed, mut opened) = (0_u64, 0_usize);
        for part in tags.map(part) {
            let bit = 1_u64.wrapping_shl(u32::from(part));
            if failed & bit != 0 {
                continue;
            }
            failed |= bit;
            if !self.parts.iter().any(|(other, _)| *other == part) {
                self.parts.push((part, Breaker::new(self.seed.wrapping_add(u64::from(part)) | 1)));
            }
            let breaker = self.parts.iter_mut().find(|(other, _)| *other == part);
            opened = opened
                .saturating_add(usize::from(breaker.is_some_and(|(_, breaker)| breaker.failed(by, now))));
        }
        opened
    }

    /// The store answered a batch in time.
    pub fn store_answered(&mut self) {
        self.store.answered();
    }

    /// Whether nothing of the store fails.
    pub fn all_closed(&self) -> bool {
        self.parts.is_empty() && self.store.is_whole()
    }

    /// This batch got no answer at all. Whether that opened the breaker.
    pub fn store_failed(&mut self, by: BatchId, now: Micros) -> bool {
        self.store.failed(by, now)
    }

    /// Whether the store as a whole is not asked, but for a probe.
    pub const fn is_open(&self) -> bool {
        self.store.is_open()
    }

    /// How many breakers are open.
    pub fn open(&self) -> u64 {
        let parts = self.parts.iter().filter(|(_, part)| part.is_open()).count() as u64;
        parts.saturating_add(u64::from(self.store.is_open()))
    }

    /// What is not asked about, and for how long.
    pub fn outage(&self, now: Micros) -> Option<Outage> {
        if self.store.is_open() {
            return Some(Outage { lasted: now.since(self.store.opened), slots: None });
        }
        let open = self.parts.iter().filter(|(_, part)| part.is_open());
        let opened = open.clone().map(|(_, part)| part.opened).min()?;
        Some(Outage { lasted: now.since(opened), slots: u32::try_from(open.count()).ok() })
    }
}

fn part(tag: &[u8]) -> u16 {
    key::slot(tag) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Carrier = Carrier::Request(1);

    /// The probe goes with a request, then with this batch, which fails.
    fn probe_fails(breaker: &mut Breaker, now: Micros) -> bool {
        breaker.probe(REQUEST, now);
        breaker.hand_over(REQUEST, Carrier::Batch(9));
        breaker.failed(9, now)
    }

    #[test]
    fn opens_after_failures_in_a_row_and_probes_one_by_one() {
        let mut breaker = Breaker::new(7);
        let mut now = Micros::from_secs(1);
        assert!(!breaker.failed(1, now) && !breaker.failed(2, now));
        breaker.answered();
        assert!(
            !breaker.failed(3, now) && !breaker.failed(4, now) && breaker.admits(now) && breaker.sends(now)
        );
        assert!(breaker.failed(5, now));
        for expected in [100, 200, 400, 400] {
            assert!(!breaker.admits(now) && !breaker.sends(now), "{expected}");
            now = now.plus(Micros::from_millis(expected).since(Micros(1)));
            assert!(!breaker.admits(now), "{expected}: not before the pause is over");
            now = now.plus(Micros::from_millis(expected / 4)).plus(Micros(1));
            assert!(breaker.admits(now) && breaker.admits(now), "{expected}: asking changes nothing");
            breaker.probe(REQUEST, now);
            assert!(!breaker.admits(now) && breaker.sends(now), "{expected}: one probe");
            assert!(!breaker.failed(8, now), "{expected}: an older batch is not the probe");
            assert!(probe_fails(&mut breaker, now), "{expected}");
        }
        breaker.answered();
        assert!(breaker.admits(now) && breaker.sends(now));
    }

    #[test]
    fn opens_when_half_of_all_fail() {
        let now = Micros::from_secs(1);
        for (good, bad, opens_at) in [(1, 1, Some(8)), (2, 2, Some(8)), (2, 1, None), (15, 1, None)] {
            let mut breaker = Breaker::new(7);
            let opened = (0..100).find(|_| {
                (0..good).for_each(|_| breaker.answered());
                (0..bad).any(|_| breaker.failed(1, now))
            });
            let failures = opened.map(|rounds| rounds * bad + bad);
            assert_eq!(failures, opens_at, "{good} good, {bad} bad");
        }
    }

    #[test]
    fn a_lost_probe_is_free_at_once() {
        let mut breaker = Breaker::new(7);
        let now = Micros::from_secs(1);
        for _ in 0..IN_A_ROW {
            breaker.failed(1, now);
        }
        let later = now.plus(Micros::from_secs(1));
        for end in [REQUEST, Carrier::Batch(9)] {
            breaker.probe(REQUEST, later);
            breaker.hand_over(REQUEST, end);
            assert!(!breaker.admits(later), "{end:?}");
            breaker.free(Carrier::Batch(8), later);
            assert!(!breaker.admits(later), "{end:?}: another's end is not its end");
            breaker.free(end, later);
            assert!(breaker.admits(later), "{end:?}");
        }
    }

    /// Workers that lost the store at the same moment do not ask it again at the same moment.
    #[test]
    fn probes_are_spread_over_a_quarter_of_the_pause() {
        let begun = Micros::from_secs(1);
        let open = |seed: u64| {
            let mut breaker = Breaker::new(seed);
            let opened = (0..IN_A_ROW).filter(|_| breaker.failed(1, begun)).count();
            assert_eq!(opened, 1);
            breaker
        };
        let due = |breaker: &Breaker| {
            let State::Open { until, .. } = breaker.state else { panic!("it is open: {breaker:?}") };
            until
        };
        let workers = (1..=256_u64).map(|worker| {
            let breaker = open(worker.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            due(&breaker).since(begun)
        });
        let mut breaker = open(7);
        let mut probe = || {
            let now = due(&breaker);
            assert!(probe_fails(&mut breaker, now));
            due(&breaker).since(now)
        };
        probe();
        let times = (0..256).map(|_| probe());
        let spread = |row: &str, pauses: Vec<Micros>, shortest: Micros| {
            let more: Vec<u64> = pauses.iter().map(|pause| pause.0 - shortest.0).collect();
            let different: std::collections::HashSet<_> = more.iter().collect();
            assert!(different.len() > 200, "{row}: {} of {} differ", different.len(), more.len());
            for quarter in 0..4 {
                let count = more.iter().filter(|more| **more * 16 / shortest.0 == quarter).count();
                assert!((32..=96).contains(&count), "{row}: {count} of {} in quarter {quarter}", more.len());
            }
        };
        spread("workers", workers.collect(), SHORTEST);
        spread("probes of one worker", times.collect(), LONGEST);
    }

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
        assert_eq!((breakers.open(), breakers.all_closed()), (0, true), "it answers its probe");
        breakers.refused(std::iter::once(tag), 9, now);
        for answers in 0..16 {
            assert!(!breakers.all_closed(), "{answers} answers after a failure");
            breakers.answered(tag);
        }
        assert!(breakers.all_closed());
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
            assert!(!breakers.slots_admit(tag, now.plus(SHORTEST)), "part {part}, seed {seed}");
        }
    }
}
