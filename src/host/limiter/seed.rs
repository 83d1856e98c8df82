// SPDX-License-Identifier: Apache-2.0
//! The seed of the engine's tables. Clients choose their keys. A client that knew the seed could choose keys that collide.
//!
//! The host offers no random numbers by a call that this crate can make: proxy-wasm has none; WASI's `random_get`, which Envoy has, takes a
//! pointer, and this crate forbids `unsafe`. So the seed comes from the clock. Clients see when Envoy starts, so the time to the nanosecond
//! at which a worker began is little protection. But the time that each call of the clock takes differs by some nanoseconds from call to
//! call, and a client would have to know all of them.

use super::super::time_since_epoch;

/// The number of readings of the clock. Each adds a bit or more that cannot be predicted.
const READINGS: u32 = 256;

/// An odd number with bits all over (2⁶⁴ divided by the golden ratio): a factor that spreads each bit over the higher ones.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that clients cannot know; `root` tells the workers of a process apart.
pub(super) fn seed(root: u32) -> u64 {
    (0..READINGS).fold(u64::from(root), |seed, _| {
        let reading = u64::from(time_since_epoch().subsec_nanos());
        (seed ^ reading).wrapping_mul(SPREAD).rotate_left(29)
    })
}
