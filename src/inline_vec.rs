// SPDX-License-Identifier: Apache-2.0
//! A short list that mostly has one element: a policy that applies, a limit in it. It is a fraction of the code of a `SmallVec`, which the
//! binary would have once for each type.

use core::ops::{Deref, DerefMut};
use std::vec;

/// A vector that needs no memory on the heap for a single element.
#[derive(Clone, Debug)]
pub enum InlineVec<T> {
    /// A single element.
    One(T),
    /// Any number of elements; a single one only where more were expected, or where it is made of a `Vec`.
    Many(Vec<T>),
}

impl<T> InlineVec<T> {
    /// No elements.
    #[must_use]
    pub const fn new() -> Self {
        Self::Many(Vec::new())
    }

    /// No elements, and memory for `count`.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self::Many(if count > 1 { Vec::with_capacity(count) } else { Vec::new() })
    }

    /// Adds an element at the end.
    #[inline]
    pub fn push(&mut self, item: T) {
        if let Self::One(_) = self {
            self.spill();
        }
        match self {
            Self::Many(items) if items.capacity() > 0 => items.push(item),
            _ => *self = Self::One(item),
        }
    }

    /// Moves a single element to the heap, where others can follow it.
    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        if let Self::One(item) = core::mem::take(self) {
            let mut items = Vec::with_capacity(4);
            items.push(item);
            *self = Self::Many(items);
        }
    }

    /// Returns the list of the results of `f`.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> InlineVec<U> {
        match self {
            Self::One(item) => InlineVec::One(f(item)),
            Self::Many(items) => InlineVec::Many(items.into_iter().map(f).collect()),
        }
    }

    /// Drops the elements that are not kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        match self {
            Self::One(item) => {
                if !keep(item) {
                    *self = Self::new();
                }
            }
            Self::Many(items) => items.retain_mut(keep),
        }
    }
}

impl<T: Clone> InlineVec<T> {
    /// The same element `count` times.
    #[must_use]
    pub fn repeat(item: T, count: usize) -> Self {
        if count == 1 { Self::One(item) } else { Self::Many(vec![item; count]) }
    }
}

impl<T> Default for InlineVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for InlineVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(item) => core::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }
}

impl<T> DerefMut for InlineVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(item) => core::slice::from_mut(item),
            Self::Many(items) => items,
        }
    }
}

impl<T: PartialEq> PartialEq for InlineVec<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for InlineVec<T> {}

impl<T> From<Vec<T>> for InlineVec<T> {
    fn from(items: Vec<T>) -> Self {
        Self::Many(items)
    }
}

impl<T> Extend<T> for InlineVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl<T> FromIterator<T> for InlineVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items = items.into_iter();
        let mut all = Self::with_capacity(items.size_hint().0);
        all.extend(items);
        all
    }
}

impl<T> IntoIterator for InlineVec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        match self {
            Self::One(item) => IntoIter::One(Some(item)),
            Self::Many(items) => IntoIter::Many(items.into_iter()),
        }
    }
}

impl<'a, T> IntoIterator for &'a InlineVec<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut InlineVec<T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// The elements of an [`InlineVec`].
#[derive(Debug)]
pub enum IntoIter<T> {
    /// A single one, until it is taken.
    One(Option<T>),
    /// Any number.
    Many(vec::IntoIter<T>),
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            Self::One(item) => item.take(),
            Self::Many(items) => items.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::One(item) => item.iter().size_hint(),
            Self::Many(items) => items.size_hint(),
        }
    }
}

impl<T> DoubleEndedIterator for IntoIter<T> {
    fn next_back(&mut self) -> Option<T> {
        match self {
            Self::One(item) => item.take(),
            Self::Many(items) => items.next_back(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_a_vector(items in proptest::collection::vec(any::<u8>(), 0..5), expected in 0..4_usize, more in 0..3_usize) {
            let (mut list, mut model) = (InlineVec::with_capacity(expected), Vec::new());
            for item in &items {
                list.push(*item);
                model.push(*item);
                prop_assert_eq!(&*list, &*model);
            }
            list.extend(items.iter().take(more).copied());
            model.extend(items.iter().take(more));
            list.iter_mut().chain(&mut model).for_each(|item| *item = item.wrapping_add(1));
            prop_assert_eq!(&*list, &*model);
            prop_assert_eq!(&list, &list.clone());
            prop_assert_eq!(&list, &model.iter().copied().collect());
            prop_assert_eq!(list.clone().into_iter().collect::<Vec<_>>(), model.clone());
            prop_assert_eq!(list.clone().into_iter().rev().collect::<Vec<_>>(), model.iter().rev().copied().collect::<Vec<_>>());
            prop_assert_eq!(&*list.clone().map(u16::from), &*model.iter().copied().map(u16::from).collect::<Vec<_>>());
            list.retain(|item| *item % 2 == 0);
            model.retain(|item| item % 2 == 0);
            prop_assert_eq!(&*list, &*model);
        }

        #[test]
        fn it_repeats(item: u8, count in 0..4_usize) {
            let list = InlineVec::repeat(item, count);
            prop_assert_eq!(&*list, &vec![item; count][..]);
        }
    }

    #[test]
    fn a_single_element_needs_no_memory() {
        let mut pushed = InlineVec::new();
        pushed.push(1);
        for list in [pushed, [1].into_iter().collect(), InlineVec::repeat(1, 1)] {
            assert!(matches!(list, InlineVec::One(1)), "{list:?}");
        }
    }
}
