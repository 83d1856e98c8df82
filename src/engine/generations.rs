// SPDX-License-Identifier: Apache-2.0
//! Tables whose keys clients choose: their hashing, and a table of bounded size. It keeps two generations: when the younger one holds half of
//! the bound, it becomes the older one, and the older one is forgotten.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

/// Makes hashers that begin with a seed. In wasm the standard library has no random numbers and hashes with fixed keys, so an attacker could
/// compute subjects that collide. A seed that clients cannot know prevents that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Generations<K, V> {
    young: HashMap<K, V, Seed>,
    old: HashMap<K, V, Seed>,
    bound: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// At most `bound` entries are kept.
    pub fn new(bound: usize, seed: Seed) -> Self {
        Self { young: HashMap::with_hasher(seed), old: HashMap::with_hasher(seed), bound }
    }

    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub fn insert(&mut self, key: K, value: V) {
        self.make_room(&key);
        self.young.insert(key, value);
    }

    /// The value of this key, or a new default value. It moves to the younger generation.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        // Before the older generation is forgotten.
        let old = self.old.remove(&key);
        self.make_room(&key);
        self.young.entry(key).or_insert_with(|| old.unwrap_or_default())
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.young.remove(key);
        self.old.remove(key);
    }

    /// The number of entries that are kept.
    pub fn len(&self) -> usize {
        self.young.len().saturating_add(self.old.len())
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// A number that is different for each value and that clients cannot know.
    pub fn hash(&self, of: impl Hash) -> u64 {
        self.young.hasher().hash_one(of)
    }

    fn make_room(&mut self, key: &K) {
        if self.young.len() >= self.bound / 2 && !self.young.contains_key(key) {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_differ_by_the_seed_and_by_nothing_else() {
        let hash = |seed| Seed(seed).hash_one("subject");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    #[test]
    fn an_entry_is_forgotten_when_as_many_others_came_as_fit() {
        let mut table = Generations::new(8, Seed(1));
        (0..=4).for_each(|key| table.insert(key, key));
        assert_eq!(table.get(&0), Some(&0), "half as many others fit beside it");
        (5..=8).for_each(|key| table.insert(key, key));
        assert_eq!((table.get(&0), table.get(&5)), (None, Some(&5)), "half as many others came later");
    }

    #[test]
    fn an_entry_in_use_is_kept() {
        let mut table = Generations::new(8, Seed(1));
        table.insert(0, 7);
        for others in [1..6, 6..11, 11..16] {
            others.for_each(|key| table.insert(key, 0));
            assert_eq!(*table.get_or_default(0), 7);
        }
        table.insert(0, 8);
        table.remove(&0);
        assert_eq!(table.get(&0), None, "it is in neither generation");
        assert_eq!(*table.get_or_default(0), 0);
    }
}
