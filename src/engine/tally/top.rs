// SPDX-License-Identifier: Apache-2.0
//! The subjects that are denied most, or use most, in bounded memory: the space-saving sketch (Metwally, Agrawal, El Abbadi, 2005).
//!
//! If the list is full, a new subject replaces the one with the smallest count, and inherits that count. So a count is never too low, and
//! too high by the inherited count at most, which is kept beside it. A subject with more than one in `places` of all is in the list for
//! certain, however many others come, unless units are refunded.
//!
//! A subject is written here as in keys: escaped, and hashed where its part has a `hash`.

use std::hash::BuildHasher as _;

use crate::config;
use crate::engine::generations::Seed;
use crate::time::Micros;

/// The number of subjects that are counted for each that is shown.
const PLACES: usize = 8;

/// One subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Listed {
    /// Its hash tag.
    pub tag: Vec<u8>,
    /// The number of its denials, or its usage, at most…
    pub count: u64,
    /// …and how many of these may be another's.
    pub error: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Top {
    settings: config::Top,
    /// With the hashes of their tags: there are few enough to look at each.
    subjects: Vec<(u64, Listed)>,
    seed: Seed,
    /// The beginning of the list, by the host's clock; absent while it is empty and before it was first looked at.
    began: Option<Micros>,
    /// The sum of its counts, and the number of subjects that left it.
    pub total: (u64, u64),
}

impl Top {
    pub const fn new(settings: config::Top, seed: u64) -> Self {
        Self { settings, subjects: Vec::new(), seed: Seed(seed), began: None, total: (0, 0) }
    }

    /// A subject was denied once, or has used so much.
    pub fn add(&mut self, tag: &[u8], count: u64) {
        self.total.0 = self.total.0.wrapping_add(count);
        let hash = self.seed.hash_one(tag);
        if let Some(subject) = self.find(tag, hash) {
            subject.count = subject.count.saturating_add(count);
            return;
        }
        let fresh = Listed { tag: tag.to_vec(), count, error: 0 };
        if self.subjects.len() < usize::from(self.settings.count).saturating_mul(PLACES) {
            return self.subjects.push((hash, fresh));
        }
        let least = self.subjects.iter_mut().min_by_key(|(_, subject)| subject.count);
        if let Some((other, subject)) = least {
            let error = subject.count;
            (*other, *subject) = (hash, Listed { count: error.saturating_add(count), error, ..fresh });
            self.total.1 = self.total.1.wrapping_add(1);
        }
    }

    /// So much came back of what a subject had used.
    pub fn refunded(&mut self, tag: &[u8], count: u64) {
        if let Some(subject) = self.find(tag, self.seed.hash_one(tag)) {
            subject.count = subject.count.saturating_sub(count).max(subject.error);
        }
    }

    fn find(&mut self, tag: &[u8], hash: u64) -> Option<&mut Listed> {
        let mut subjects = self.subjects.iter_mut();
        subjects.find(|(other, subject)| *other == hash && subject.tag == tag).map(|(_, subject)| subject)
    }

    /// The time at which the list is due, by the host's clock.
    pub fn due(&self) -> Option<Micros> {
        Some(self.began?.plus(self.settings.interval))
    }

    /// The list begins with the first look at a subject in it.
    pub fn look(&mut self, now: Micros) {
        if !self.subjects.is_empty() && self.began.is_none_or(|began| began > now) {
            self.began = Some(now);
        }
    }

    /// If it is due, the subjects with the largest counts, the largest first, and for how long they were counted. The list begins anew.
    pub fn take(&mut self, now: Micros) -> Option<(Micros, Vec<Listed>)> {
        let began = self.began.filter(|began| now >= began.plus(self.settings.interval))?;
        self.began = None;
        let mut subjects = std::mem::take(&mut self.subjects);
        let mut most = Vec::new();
        while most.len() < self.settings.count.into() {
            let place = (0..subjects.len())
                .max_by_key(|place| subjects.get(*place).map(|(_, subject)| subject.count));
            let Some(place) = place else { break };
            most.push(subjects.swap_remove(place).1);
        }
        Some((now.since(began), most))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn a_full_list_gives_up_the_one_with_the_least_count() {
        let settings = config::Top { count: 1, interval: Micros::from_secs(1) };
        let mut top = Top::new(settings, 1);
        for subject in 1..=8_u8 {
            (0..=subject).for_each(|_| top.add(&[subject], 1));
        }
        assert_eq!((top.subjects.len(), top.total), (PLACES, (44, 0)), "eight subjects have a place");
        top.add(b"new", 1);
        assert_eq!((top.subjects.len(), top.total), (PLACES, (45, 1)));
        assert_eq!(top.subjects[0].1, Listed { tag: b"new".to_vec(), count: 3, error: 2 });
        top.refunded(b"new", 5);
        assert_eq!(top.subjects[0].1.count, 2, "the count of the other is not known to have come back");
    }
}
