// SPDX-License-Identifier: Apache-2.0
//! Hashing for tables whose keys clients choose. In wasm the standard library has no random numbers and hashes with fixed keys, so an
//! attacker could compute subjects that collide. A seed that clients cannot know prevents that.

use std::hash::{BuildHasher, DefaultHasher, Hasher};

/// Makes hashers that begin with a seed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_differ_by_the_seed_and_by_nothing_else() {
        let hash = |seed| Seed(seed).hash_one("subject");
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
