// SPDX-License-Identifier: Apache-2.0
//! The subjects that are counted most often, in bounded memory: the algorithm of Misra and Gries.
//!
//! There is a counter for each of some thousand subjects. When there are too many, all counters are lowered until enough of them
//! are zero. So a count is exact, or too low by at most [`Heaviest::missed`], and no subject that was counted more often than that
//! is missing.

use std::collections::HashMap;

const KEPT: usize = 2_048;

#[derive(Default)]
pub struct Heaviest {
    counts: HashMap<Vec<u8>, u64>,
    missed: u64,
}

impl Heaviest {
    pub fn add(&mut self, subject: &[u8]) {
        if let Some(count) = self.counts.get_mut(subject) {
            *count = count.saturating_add(1);
            return;
        }
        if self.counts.len() >= 2 * KEPT {
            self.lower();
        }
        self.counts.insert(subject.to_vec(), 1);
    }

    fn lower(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        let (_, most, _) = counts.select_nth_unstable_by(KEPT, |one, other| other.cmp(one));
        let by = *most;
        self.missed = self.missed.saturating_add(by);
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(by);
            *count > 0
        });
    }

    /// This number of subjects, those with the highest counts first.
    pub fn top(&self, count: usize) -> Vec<(&[u8], u64)> {
        let mut top: Vec<(&[u8], u64)> =
            self.counts.iter().map(|(subject, count)| (subject.as_slice(), *count)).collect();
        top.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
        top.truncate(count);
        top
    }

    /// The most by which a count may be too low.
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_subjects_are_counted_exactly() {
        let mut heaviest = Heaviest::default();
        for subject in [b"a", b"b", b"a", b"c", b"a", b"b"] {
            heaviest.add(subject);
        }
        assert_eq!(heaviest.top(2), [(&b"a"[..], 3), (b"b", 2)]);
        assert_eq!((heaviest.missed(), heaviest.top(9).len()), (0, 3));
    }

    #[test]
    fn the_heaviest_of_many_are_found_within_the_stated_error() {
        let mut heaviest = Heaviest::default();
        let total = 500_000_u64;
        for number in 0..total {
            heaviest.add(number.to_string().as_bytes());
            assert!(heaviest.counts.len() <= 2 * KEPT);
            if number % 10 == 0 {
                heaviest.add(b"heavy");
            }
        }
        let (subject, count) = heaviest.top(1)[0];
        assert_eq!(subject, b"heavy");
        assert!(count <= 50_000 && count + heaviest.missed() >= 50_000, "{count} {}", heaviest.missed());
        assert!(
            heaviest.missed() > 0 && heaviest.missed() <= (total + 50_000) / 2_048,
            "{}",
            heaviest.missed()
        );
    }
}
