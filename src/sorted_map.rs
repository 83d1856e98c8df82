// SPDX-License-Identifier: Apache-2.0
//! Sorted lists, and a map in the order of its keys, kept as a sorted list. It is for keys that mostly grow, such as times at which something is
//! due: then an entry is added at the end, and removed at the beginning. It is a tenth of the code of a `BTreeMap`.

use std::collections::VecDeque;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries, by their keys.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &(K, V)> {
        self.0.iter()
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<&(K, V)> {
        self.0.front()
    }

    /// The entry with the largest key.
    pub fn last(&self) -> Option<&(K, V)> {
        self.0.back()
    }

    /// Takes out the entry with the smallest key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        self.0.pop_front()
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.find(key).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// Adds an entry, in the place of one with the same key.
    pub fn insert(&mut self, key: K, value: V) {
        let place = self.find(&key).unwrap_or_else(|place| place);
        match self.0.get_mut(place) {
            Some(entry) if entry.0 == key => entry.1 = value,
            _ => self.0.insert(place, (key, value)),
        }
    }

    /// Takes out the entry of a key; its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(self.find(key).ok()?).map(|(_, value)| value)
    }

    /// Removes the entries whose value `keep` denies.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|(_, value)| keep(value));
    }

    /// Takes out all entries.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        std::mem::take(&mut self.0).into_iter()
    }

    /// The place of a key, or the place at which it belongs.
    fn find(&self, key: &K) -> Result<usize, usize> {
        // Most keys are added last.
        match self.0.back() {
            Some((last, _)) if last < key => Err(self.0.len()),
            _ => self.0.binary_search_by(|(other, _)| other.cmp(key)),
        }
    }
}

/// The items in their order. Equal ones may change places. All types share the code that sorts.
#[must_use]
pub fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    let count = items.len();
    heap_sort(&mut items, count);
    items
}

/// The operations of [`heap_sort`] on items, by their places.
trait Sortable {
    fn is_less(&self, one: usize, other: usize) -> bool;
    fn swap(&mut self, one: usize, other: usize);
}

impl<T: Ord> Sortable for Vec<T> {
    fn is_less(&self, one: usize, other: usize) -> bool {
        self.get(one) < self.get(other)
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.as_mut_slice().swap(one, other);
    }
}

fn heap_sort(items: &mut dyn Sortable, count: usize) {
    // The items from `first` to `end` are a heap: none is less than its children. Those from `end` on are in their order.
    let (mut first, mut end) = (count / 2, count);
    while end > 1 {
        if first > 0 {
            first = first.saturating_sub(1);
        } else {
            end = end.saturating_sub(1);
            items.swap(0, end);
        }
        let mut parent = first;
        loop {
            let (left, right) =
                (parent.saturating_mul(2).saturating_add(1), parent.saturating_mul(2).saturating_add(2));
            let child = if right < end && items.is_less(left, right) { right } else { left };
            if child >= end || !items.is_less(parent, child) {
                break;
            }
            items.swap(parent, child);
            parent = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn items_are_sorted(items in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut model = items.clone();
            model.sort_unstable();
            prop_assert_eq!(sorted(items), model);
        }

        #[test]
        fn it_is_a_map_in_order(steps in proptest::collection::vec((0..4_u8, 0..16_u8, any::<u8>()), 0..60)) {
            let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 | 1 => {
                        map.insert(key, value);
                        model.insert(key, value);
                    }
                    2 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    _ => prop_assert_eq!(map.pop_first(), model.pop_first()),
                }
                prop_assert_eq!(map.get_mut(&key).copied(), model.get(&key).copied());
                prop_assert_eq!(map.first().copied(), model.first_key_value().map(|(key, value)| (*key, *value)));
                prop_assert_eq!(map.last().copied(), model.last_key_value().map(|(key, value)| (*key, *value)));
                prop_assert!(map.iter().copied().eq(model.iter().map(|(key, value)| (*key, *value))));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
