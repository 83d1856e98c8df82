// SPDX-License-Identifier: Apache-2.0
//! Puts lines in the order of time in bounded memory: a heap holds the next ones, and the earliest of them leaves it when it is full.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir::time::Micros;

/// The memory of the lines in the heap, in bytes.
const BUDGET: usize = 32 << 20;

/// The memory of a line beside its text, in bytes.
const OVERHEAD: usize = size_of::<Line>() + 16;

/// The time of a line; its number, which decides between lines of the same time; and its text.
pub type Line = (Micros, u64, Box<[u8]>);

/// Lines that wait for their turn.
pub struct Reorder {
    budget: usize,
    used: usize,
    heap: BinaryHeap<Reverse<Line>>,
    /// The time of the line that left last.
    last: Micros,
    /// The number of lines that came too late, and the number of the first one.
    pub late: Option<(u64, u64)>,
}

impl Default for Reorder {
    fn default() -> Self {
        Self::with_budget(BUDGET)
    }
}

impl Reorder {
    fn with_budget(budget: usize) -> Self {
        Self { budget, used: 0, heap: BinaryHeap::new(), last: Micros::ZERO, late: None }
    }

    /// True if a line must be removed before the next one is pushed.
    pub fn is_full(&self) -> bool {
        self.used >= self.budget
    }

    /// Adds a line. If a later line has left already, it gets the time of that one.
    pub fn push(&mut self, at: Micros, number: u64, text: &[u8]) {
        if at < self.last {
            let (count, first) = self.late.unwrap_or((0, number));
            self.late = Some((count.saturating_add(1), first));
        }
        self.used = self.used.saturating_add(text.len()).saturating_add(OVERHEAD);
        self.heap.push(Reverse((at.max(self.last), number, text.into())));
    }

    pub fn pop(&mut self) -> Option<Line> {
        let Reverse(line) = self.heap.pop()?;
        self.used = self.used.saturating_sub(line.2.len()).saturating_sub(OVERHEAD);
        self.last = line.0;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times and numbers of these times' lines as they leave, what was late, and the most memory that they took.
    fn reordered(
        times: impl Iterator<Item = u64>,
        budget: usize,
    ) -> (Vec<(u64, u64)>, Option<(u64, u64)>, usize) {
        let (mut lines, mut found, mut most) = (Reorder::with_budget(budget), Vec::new(), 0);
        for (number, at) in (1..).zip(times) {
            while lines.is_full() {
                found.extend(lines.pop().map(|(at, number, _)| (at.0, number)));
            }
            lines.push(Micros(at), number, b"0123456789");
            most = most.max(lines.used);
        }
        found.extend(std::iter::from_fn(|| lines.pop()).map(|(at, number, _)| (at.0, number)));
        assert_eq!(lines.used, 0);
        (found, lines.late, most)
    }

    const LINE: usize = OVERHEAD + 10;

    #[test]
    fn what_fits_is_in_the_exact_order() {
        let times = || (0..1_000).map(|number| number * 7_919 % 100);
        let mut wanted: Vec<_> = times().zip(1..).collect();
        wanted.sort_unstable();
        assert_eq!(reordered(times(), 1_000 * LINE), (wanted, None, 1_000 * LINE));
        // Nothing is farther than ten lines from its place.
        let near = || (0..1_000).map(|number| number / 10 * 10 + 9 - number % 10);
        let (found, late, most) = reordered(near(), 10 * LINE);
        assert!(found.is_sorted() && late.is_none() && most == 10 * LINE, "{late:?}");
        assert_eq!(reordered(std::iter::empty(), 0), (Vec::new(), None, 0));
    }

    #[test]
    fn what_is_too_late_gets_the_time_of_the_line_before() {
        let (found, late, _) = reordered([10, 20, 30, 5, 40, 6].into_iter(), 2 * LINE);
        assert_eq!(found, [(10, 1), (20, 2), (20, 4), (30, 3), (30, 6), (40, 5)]);
        assert_eq!(late, Some((2, 4)));
    }

    #[test]
    fn a_million_lines_in_no_order_take_bounded_memory() {
        let times = (0..1_000_000).map(|number| number * 7_919 % 1_000_000);
        let (found, late, most) = reordered(times, 100 * LINE);
        assert!(found.is_sorted_by_key(|(at, _)| *at) && found.len() == 1_000_000);
        assert!(late.is_some_and(|(count, _)| count > 900_000) && most == 100 * LINE, "{late:?} {most}");
    }
}
