// SPDX-License-Identifier: Apache-2.0
//! The requests of a worker that the engine knows, by the names that the host gives them.

use std::collections::HashMap;

use crate::engine::StreamId;
use crate::sorted_map::sorted;

/// Returns the next free name after `last`, the name of the request before. Names are 32 bits, and a request may live for days, so a name
/// may come again that a request still has.
fn next_name(last: StreamId, is_taken: impl Fn(StreamId) -> bool) -> StreamId {
    let mut name = last.wrapping_add(1);
    while is_taken(name) {
        name = name.wrapping_add(1);
    }
    name
}

/// The requests of a worker, each with the host's filter for it, an `F`.
#[derive(Debug)]
pub struct RequestTable<F> {
    requests: HashMap<StreamId, Entry<F>, foldhash::fast::FixedState>,
    last: StreamId,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<F> {
    /// Its filter.
    pub filter: F,
    /// It has no body.
    pub end_of_stream: bool,
    /// It waits to be released.
    pub is_paused: bool,
}

impl<F> Default for RequestTable<F> {
    fn default() -> Self {
        Self { requests: HashMap::default(), last: StreamId::MAX }
    }
}

impl<F: Copy + PartialEq> RequestTable<F> {
    /// A name that no request here has.
    pub fn draw(&mut self) -> StreamId {
        self.last = next_name(self.last, |name| self.requests.contains_key(&name));
        self.last
    }

    /// Notes the new state of a request that the engine knows. A request that was released does not pause again.
    pub fn note(&mut self, name: StreamId, entry: Entry<F>) {
        let known = self.requests.entry(name).and_modify(|known| known.is_paused &= entry.is_paused);
        known.or_insert(entry);
    }

    /// Removes the request with this name, if `filter` is its filter. Another request may have got the name meanwhile.
    pub fn remove(&mut self, name: StreamId, filter: F) {
        if self.requests.get(&name).is_some_and(|entry| entry.filter == filter) {
            self.requests.remove(&name);
        }
    }

    /// The engine releases a request. `None` if it has ended.
    pub fn release(&mut self, name: StreamId) -> Option<F> {
        let entry = self.requests.get_mut(&name)?;
        entry.is_paused = false;
        Some(entry.filter)
    }

    /// The filter of one of the requests that wait.
    pub fn any_paused(&self) -> Option<F> {
        self.requests.values().find(|entry| entry.is_paused).map(|entry| entry.filter)
    }

    /// The filter of a request; `None` if it has ended.
    pub fn filter(&self, name: StreamId) -> Option<F> {
        self.requests.get(&name).map(|entry| entry.filter)
    }

    /// Returns the waiting requests in the order of their arrival, because the engine is replaced. None of them counts as paused any more.
    /// All requests keep their names, because their sessions live until they end.
    pub fn take_paused(&mut self) -> Vec<(StreamId, Entry<F>)> {
        let first = self.last.wrapping_add(1);
        let paused = self.requests.iter().filter(|(_, entry)| entry.is_paused);
        let ages = sorted(paused.map(|(name, _)| name.wrapping_sub(first)).collect());
        let take = |age: StreamId| {
            let name = age.wrapping_add(first);
            let entry = self.requests.get_mut(&name)?;
            entry.is_paused = false;
            Some((name, *entry))
        };
        ages.into_iter().filter_map(take).collect()
    }

    /// Sets whether a request waits for a decision that the engine does not make. Does nothing if the request has ended.
    pub fn set_paused(&mut self, name: StreamId, is_paused: bool) {
        if let Some(entry) = self.requests.get_mut(&name) {
            entry.is_paused = is_paused;
        }
    }

    /// True if no request is here.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn entry(filter: char, is_paused: bool) -> Entry<char> {
        Entry { filter, end_of_stream: true, is_paused }
    }

    #[test]
    fn a_name_is_the_next_that_is_free() {
        let cases: &[(StreamId, &[StreamId], StreamId)] = &[
            (0, &[], 1),
            (0, &[1, 2, 4], 3),
            (StreamId::MAX, &[], 0),
            (StreamId::MAX - 1, &[StreamId::MAX, 0, 1], 2),
        ];
        for (last, taken, expected) in cases {
            assert_eq!(next_name(*last, |name| taken.contains(&name)), *expected, "after {last}, {taken:?}");
        }
    }

    #[test]
    fn a_name_is_not_given_twice_while_its_request_lives() {
        let mut table = RequestTable { last: StreamId::MAX - 1, ..RequestTable::default() };
        assert_eq!(table.draw(), StreamId::MAX);
        table.note(StreamId::MAX, entry('a', false));
        assert_eq!(table.draw(), 0);
        table.last = StreamId::MAX - 1;
        assert_eq!(table.draw(), 0, "'a' lives");
        table.remove(StreamId::MAX, 'b');
        assert_eq!(table.filter(StreamId::MAX), Some('a'), "another request does not remove it");
        table.remove(StreamId::MAX, 'a');
        table.last = StreamId::MAX - 1;
        assert_eq!(table.draw(), StreamId::MAX);
    }

    /// When the engine is replaced, those that wait are decided in order, and the names of all stay taken until the requests end.
    #[test]
    fn names_outlive_the_engine() {
        let mut table = RequestTable { last: StreamId::MAX - 2, ..RequestTable::default() };
        for (filter, is_paused) in [('a', true), ('b', false), ('c', true)] {
            let name = table.draw();
            table.note(name, entry(filter, is_paused));
        }
        let paused = table.take_paused();
        let expected = [(StreamId::MAX - 1, entry('a', false)), (0, entry('c', false))];
        assert_eq!(paused, expected, "the order is that of the counter, which has wrapped");
        assert_eq!(table.take_paused(), [], "each is decided once");
        table.set_paused(0, true);
        assert_eq!(table.take_paused(), [(0, entry('c', false))], "`on_failure` held it");
        table.last = StreamId::MAX - 2;
        assert_eq!(table.draw(), 1);
        for (name, filter) in [(StreamId::MAX - 1, 'a'), (StreamId::MAX, 'b'), (0, 'c')] {
            assert_eq!(table.filter(name), Some(filter));
            table.remove(name, filter);
        }
        assert!(table.is_empty());
    }

    #[test]
    fn a_request_that_was_released_does_not_pause_again() {
        let mut table = RequestTable::default();
        let name = table.draw();
        table.note(name, entry('a', true));
        assert_eq!(table.release(name), Some('a'));
        table.note(name, entry('a', true));
        assert_eq!(table.take_paused(), []);
        table.remove(name, 'a');
        assert_eq!(table.release(name), None);
    }
}
