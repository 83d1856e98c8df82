// SPDX-License-Identifier: Apache-2.0
//! Random numbers for jitter, samples and tests, never for secrets: xorshift64 (Marsaglia, "Xorshift RNGs", 2003,
//! <https://doi.org/10.18637/jss.v008.i14>).

/// A generator. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Any seed is allowed. Seeds that differ in the lowest bit only give the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number. The lowest bits are the least random ones.
    pub const fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The upper half of a number.
    pub const fn draw_high(&mut self) -> u64 {
        self.draw() >> 32
    }

    /// A number below `bound`; 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let number = self.draw();
        if bound == 0 { 0 } else { number % bound }
    }
}
