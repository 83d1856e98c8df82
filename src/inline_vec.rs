// SPDX-License-Identifier: Apache-2.0
//! A short list for what a request mostly has one of: a policy that applies, a limit in it.

use smallvec::SmallVec;

/// A vector that needs no memory on the heap for a single element.
pub type InlineVec<T> = SmallVec<[T; 1]>;
