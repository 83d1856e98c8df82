// SPDX-License-Identifier: Apache-2.0
//! The declaration of an object of the configuration: once, with its name, its fields, their values and their meaning.
//!
//! ```text
//! object! {
//!     static STORE: StoreFields = "store", "How limits are asked of Redis.";
//!     workers: Count<u32> = count(1, 1_000_000).default("1", "How many workers there are."),
//! }
//! ```
//!
//! makes the [`Shape`] that the check, the schema and the reference use, and the handle `STORE.workers`, with which a
//! [`View`](super::view::View) of that object is read as a `u32`. A misspelled field, a field of another object or a wrong type does not
//! compile.

use core::marker::PhantomData;
use core::ops::Deref;

use super::shape::{Doc, FieldShape, Kind, Need, Shape, Syntax, WordShape};
use super::syntax;
use super::view::Variant;
use crate::time::Micros;

/// An object of the configuration, with the fields `F`; made by [`object!`].
pub struct Object<F: 'static> {
    /// The shape that the check, the schema and the reference use.
    pub shape: Shape,
    /// The handles of its fields.
    pub fields: F,
}

impl<F> Deref for Object<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fields
    }
}

/// A field of an object with the fields `F`, and how it is read.
pub struct Field<F, T> {
    /// The shape of the field.
    pub shape: FieldShape,
    /// The reader of its value.
    pub read: T,
    object: PhantomData<fn(F)>,
}

/// The kind of value that a field holds, and its reader.
pub struct Typed<T> {
    kind: Kind,
    read: T,
}

/// A field without its name.
pub struct Draft<T> {
    kind: Kind,
    need: Need,
    doc: Doc,
    read: T,
}

impl<T: Copy> Typed<T> {
    /// A field that every object has.
    pub const fn required(self, meaning: &'static str) -> Draft<T> {
        Draft { kind: self.kind, need: Need::Required, doc: Doc::new(meaning), read: self.read }
    }

    /// A field that an object may have.
    pub const fn optional(self, meaning: &'static str) -> Draft<Option<T>> {
        Draft { kind: self.kind, need: Need::Optional, doc: Doc::new(meaning), read: Some(self.read) }
    }

    /// A field that has this value, written in JSON, where it is not given.
    pub const fn default(self, json: &'static str, meaning: &'static str) -> Draft<T> {
        Draft { kind: self.kind, need: Need::Default(json), doc: Doc::new(meaning), read: self.read }
    }
}

impl<T: Copy> Draft<T> {
    /// The field, under its name.
    pub const fn named<F>(self, name: &'static str) -> Field<F, T> {
        let shape = FieldShape { name, kind: self.kind, need: self.need, doc: self.doc };
        Field { shape, read: self.read, object: PhantomData }
    }
}

/// Declares an object; see [the module](self). Fields that exclude each other are named before the text:
/// `exactly_one(a, b)` or `at_most_one(a, b)`. A name that is no Rust name follows the field's: `schema as "$schema"`.
macro_rules! object {
    (
        static $object:ident: $fields:ident = $name:literal, $($choice:ident($($one:ident),+),)? $doc:literal;
        $($field:ident $(as $json:literal)?: $read:ty = $draft:expr,)*
    ) => {
        pub(in $crate::config) struct $fields {
            $(pub(in $crate::config) $field: $crate::config::schema::Field<$fields, $read>,)*
        }

        pub(in $crate::config) static $object: $crate::config::schema::Object<$fields> = $crate::config::schema::Object {
            shape: $crate::config::schema::Shape {
                name: $name,
                doc: $crate::config::schema::Doc::new($doc),
                fields: &[$(&$object.fields.$field.shape),*],
                choice: object!(@choice $($choice ($(&$object.fields.$one.shape),+))?),
            },
            fields: $fields { $($field: $draft.named(object!(@name $field $($json)?)),)* },
        };
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $json:literal) => { $json };
    (@choice) => { $crate::config::schema::Choice::Free };
    (@choice exactly_one ($($one:expr),+)) => { $crate::config::schema::Choice::ExactlyOne(&[$($one),+]) };
    (@choice at_most_one ($($one:expr),+)) => { $crate::config::schema::Choice::AtMostOne(&[$($one),+]) };
}
pub(in crate::config) use object;

/// A string, read as it is.
#[derive(Clone, Copy)]
pub struct Text;

/// A string of this syntax.
pub const fn text(syntax: &'static Syntax) -> Typed<Text> {
    Typed { kind: Kind::Text(syntax), read: Text }
}

/// A rate, read as a [`syntax::Rate`].
#[derive(Clone, Copy)]
pub struct Rates;

/// A rate.
pub const fn rate() -> Typed<Rates> {
    Typed { kind: Kind::Text(&syntax::RATE), read: Rates }
}

/// `true` or `false`, read as a `bool`.
#[derive(Clone, Copy)]
pub struct Flag;

/// `true` or `false`.
pub const fn flag() -> Typed<Flag> {
    Typed { kind: Kind::Flag, read: Flag }
}

/// A whole number, read as an `N`.
pub struct Count<N>(PhantomData<N>);

/// A whole number from `min` to `max`; `N` holds all of them.
pub const fn count<N: Copy>(min: u64, max: u64) -> Typed<Count<N>> {
    let bits = size_of::<N>() * 8;
    assert!(bits >= 64 || max >> bits == 0, "the type is too small for the largest count");
    Typed { kind: Kind::Count(min, max), read: Count(PhantomData) }
}

/// A duration, read as [`Micros`].
#[derive(Clone, Copy)]
pub struct Duration;

/// A duration from `min` to `max`.
pub const fn duration(min: Micros, max: Micros) -> Typed<Duration> {
    Typed { kind: Kind::Duration(min, max), read: Duration }
}

/// One of several words, read as the value that the word stands for.
pub struct Word<E: 'static>(pub &'static Words<E>);

/// One of these words.
pub const fn word<E>(words: &'static Words<E>) -> Typed<Word<E>> {
    Typed { kind: Kind::Word(words.words), read: Word(words) }
}

/// Words, and the values that they stand for, in the same order; made by [`words!`].
pub struct Words<E: 'static> {
    pub words: &'static [WordShape],
    pub values: &'static [E],
    /// The first value. The check admits no other words, so it is never read for one.
    pub first: E,
}

/// Declares words: each with the value that it stands for, and with what it means.
macro_rules! words {
    ($($word:literal => $value:expr, $doc:literal;)+) => {
        $crate::config::schema::Words {
            words: &[$($crate::config::schema::WordShape { name: $word, doc: $crate::config::schema::Doc::new($doc) }),+],
            values: &[$($value),+],
            first: words!(@first $($value),+),
        }
    };
    (@first $first:expr $(, $more:expr)*) => { $first };
}
pub(in crate::config) use words;

/// A list, read as [`Items`](super::view::Items).
#[derive(Clone, Copy)]
pub struct List<T>(pub T);

/// A list of `min` to `max` items.
pub const fn list<T: Copy>(item: &'static Typed<T>, min: usize, max: usize) -> Typed<List<T>> {
    Typed { kind: Kind::List(&item.kind, min, max), read: List(item.read) }
}

/// An object whose names the operator chooses, read as [`Entries`](super::view::Entries).
#[derive(Clone, Copy)]
pub struct Map<T>(pub T);

/// An object with `min` to `max` names of the operator's choice.
pub const fn map<T: Copy>(value: &'static Typed<T>, min: usize, max: usize) -> Typed<Map<T>> {
    Typed { kind: Kind::Map(&value.kind, min, max), read: Map(value.read) }
}

/// An object, read as a [`View`](super::view::View) of the fields `F`.
pub struct Nested<F>(PhantomData<fn(F)>);

/// An object like this one.
pub const fn nested<F>(object: &'static Object<F>) -> Typed<Nested<F>> {
    Typed { kind: Kind::Object(&object.shape), read: Nested(PhantomData) }
}

/// An object, read as a [`View`](super::view::View) of the fields `F`, or a word, read as none.
pub struct WordOr<F>(PhantomData<fn(F)>);

/// This word, or an object like this one.
pub const fn word_or<F>(word: &'static WordShape, object: &'static Object<F>) -> Typed<WordOr<F>> {
    Typed { kind: Kind::WordOr(word, &object.shape), read: WordOr(PhantomData) }
}

/// An object of one of several shapes, read as a [`Variant`].
#[derive(Clone, Copy, Default)]
pub struct Tagged;

/// An object of one of these shapes.
pub const fn tagged<R>(variants: &'static Variants<R>) -> Typed<Tagged> {
    Typed { kind: Kind::Tagged(variants.tag, variants.shapes), read: Tagged }
}

/// Alternative shapes of an object, and the reader of each, in the same order; made by [`variants!`].
pub struct Variants<R: 'static> {
    /// The field that holds the shape's name.
    pub tag: &'static str,
    pub shapes: &'static [&'static Shape],
    pub readers: &'static [fn(&Variant<'_>) -> R],
}

/// Declares the shapes of an object by the field that tells them apart, each with the function that reads it.
macro_rules! variants {
    ($tag:literal: $($object:ident => $read:expr,)+) => {
        $crate::config::schema::Variants {
            tag: $tag,
            shapes: &[$(&$object.shape),+],
            readers: &[$(|variant| $read(&variant.view(&$object))),+],
        }
    };
}
pub(in crate::config) use variants;

/// Derived, these would ask the same of their parameters.
macro_rules! copy {
    ($($type:ident)*) => {
        $(impl<T> Clone for $type<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $type<T> {})*
    };
}
copy! { Count Word Nested WordOr }
