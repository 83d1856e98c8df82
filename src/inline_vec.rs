//! A vector for what a request has mostly one of: one policy that applies, one limit in it.

use smallvec::SmallVec;

/// A vector whose first element needs no memory of its own on the heap.
pub type InlineVec<T> = SmallVec<[T; 1]>;
