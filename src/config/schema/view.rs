// SPDX-License-Identifier: Apache-2.0
//! Reads an object that was checked and completed with defaults: each field as the type that it was declared with.

use core::marker::PhantomData;

use super::error::path_of;
use super::field::{
    Count, Duration, Field, Flag, List, Map, Nested, Object, Rates, Tagged, Text, Variants, Word,
};
use super::json::Json;
use super::shape::{FieldShape, NAME, WordShape};
use super::syntax::{self, Rate};
use crate::time::Micros;

/// An object with the fields `F`, and where it stands.
pub struct View<'a, F> {
    json: &'a Json,
    at: At<'a>,
    object: PhantomData<fn(F)>,
}

impl<'a, F> View<'a, F> {
    /// The whole configuration, which was checked against the shape of this object without errors: every field has a value that
    /// its kind allows, but for optional ones.
    pub const fn root(json: &'a Json, _: &'static Object<F>) -> Self {
        Self { json, at: At::Root, object: PhantomData }
    }

    /// The value of a field.
    pub fn get<T: Read>(&self, field: &Field<F, T>) -> T::Value<'_> {
        field.read.read(value(self.json, &field.shape), At::Field(&self.at, field.shape.name))
    }

    /// Where the object stands.
    pub fn path(&self) -> String {
        self.at.path()
    }

    /// Where a field stands.
    pub fn path_of<T>(&self, field: &Field<F, T>) -> String {
        At::Field(&self.at, field.shape.name).path()
    }
}

/// An object of one of several shapes, and where it stands.
pub struct Variant<'a> {
    json: &'a Json,
    at: At<'a>,
}

impl<'a> Variant<'a> {
    /// The object as one of this shape.
    pub const fn view<F>(&self, _: &'static Object<F>) -> View<'a, F> {
        View { json: self.json, at: self.at, object: PhantomData }
    }

    /// What the reader of the object's shape makes of it.
    pub fn read<R>(&self, variants: &'static Variants<R>) -> Option<R> {
        let tag = self.text(variants.tag);
        let mut readers = variants.shapes.iter().zip(variants.readers);
        readers.find(|(shape, _)| shape.name == tag).map(|(_, read)| read(self))
    }

    /// The object's name.
    pub fn name(&self) -> &'a str {
        self.text(NAME)
    }

    /// Where the object's name stands.
    pub fn path_of_name(&self) -> String {
        At::Field(&self.at, NAME).path()
    }

    /// Where the object stands.
    pub fn path(&self) -> String {
        self.at.path()
    }

    /// Where the parameter of this name stands, and its value.
    pub fn parameter(&self, name: &str) -> (String, Option<&'a Json>) {
        (At::Field(&self.at, name).path(), self.json.get(name))
    }

    fn text(&self, name: &str) -> &'a str {
        self.json.get(name).map(Json::text).unwrap_or_default()
    }
}

/// The items of a list, and where it stands.
#[derive(Default)]
pub struct Items<'a, T> {
    items: &'a [Json],
    at: At<'a>,
    read: T,
}

impl<T: Read> Items<'_, T> {
    /// Where the list stands.
    pub fn path(&self) -> String {
        self.at.path()
    }

    /// The items, in order.
    pub fn iter(&self) -> impl Iterator<Item = T::Value<'_>> {
        let each = self.items.iter().enumerate();
        each.map(|(index, item)| self.read.read(item, At::Item(&self.at, index)))
    }
}

/// The values of an object whose names the operator chooses, and where it stands.
pub struct Entries<'a, T> {
    entries: &'a [(String, Json)],
    at: At<'a>,
    read: T,
}

impl<T: Read> Entries<'_, T> {
    /// The names and values, in the order written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, T::Value<'_>)> {
        let each = self.entries.iter();
        each.map(|(name, value)| (name.as_str(), self.read.read(value, At::Field(&self.at, name))))
    }
}

/// Where a value stands. A path is written only where something is wrong.
#[derive(Clone, Copy, Default)]
pub enum At<'a> {
    /// The whole configuration.
    #[default]
    Root,
    /// In the field of this name, of the object that stands there.
    Field(&'a At<'a>, &'a str),
    /// At this index, in the list that stands there.
    Item(&'a At<'a>, usize),
}

impl At<'_> {
    fn path(self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(object, name) => path_of(&object.path(), name),
            Self::Item(list, index) => format!("{}[{index}]", list.path()),
        }
    }
}

// The functions below are not inlined, for each would stand in the binary a hundred times.

/// The value of a field; `null` where the object does not have it.
#[inline(never)]
fn value<'a>(object: &'a Json, field: &FieldShape) -> &'a Json {
    object.get(field.name).unwrap_or(&Json::Null)
}

#[inline(never)]
const fn count(json: &Json) -> u64 {
    if let Json::Count(count) = json { *count } else { 0 }
}

#[inline(never)]
fn duration(json: &Json) -> Micros {
    syntax::duration(json.text()).unwrap_or_default()
}

/// The position of a word among `words`.
#[inline(never)]
fn position(words: &[WordShape], json: &Json) -> usize {
    words.iter().position(|word| word.name == json.text()).unwrap_or(usize::MAX)
}

/// How the value of a field is read. The check has seen that the value fits, so what is read of another value never counts.
pub trait Read: Copy {
    /// What it is read as.
    type Value<'a>;

    /// Reads it.
    fn read<'a>(self, json: &'a Json, at: At<'a>) -> Self::Value<'a>;
}

impl Read for Text {
    type Value<'a> = &'a str;

    fn read<'a>(self, json: &'a Json, _: At<'_>) -> &'a str {
        json.text()
    }
}

impl Read for Rates {
    type Value<'a> = Rate;

    fn read(self, json: &Json, _: At<'_>) -> Rate {
        syntax::rate(json.text()).unwrap_or_default()
    }
}

impl Read for Flag {
    type Value<'a> = bool;

    fn read(self, json: &Json, _: At<'_>) -> bool {
        matches!(json, Json::Flag(true))
    }
}

impl<N: TryFrom<u64> + Default> Read for Count<N> {
    type Value<'a> = N;

    fn read(self, json: &Json, _: At<'_>) -> N {
        N::try_from(count(json)).unwrap_or_default()
    }
}

impl Read for Duration {
    type Value<'a> = Micros;

    fn read(self, json: &Json, _: At<'_>) -> Micros {
        duration(json)
    }
}

impl<E: Copy> Read for Word<E> {
    type Value<'a> = E;

    fn read(self, json: &Json, _: At<'_>) -> E {
        let Self(words) = self;
        words.values.get(position(words.words, json)).copied().unwrap_or(words.first)
    }
}

impl<T: Read + 'static> Read for List<T> {
    type Value<'a> = Items<'a, T>;

    fn read<'a>(self, json: &'a Json, at: At<'a>) -> Items<'a, T> {
        Items { items: if let Json::List(items) = json { items } else { &[] }, at, read: self.0 }
    }
}

impl<T: Read + 'static> Read for Map<T> {
    type Value<'a> = Entries<'a, T>;

    fn read<'a>(self, json: &'a Json, at: At<'a>) -> Entries<'a, T> {
        Entries { entries: if let Json::Object(entries) = json { entries } else { &[] }, at, read: self.0 }
    }
}

impl<F: 'static> Read for Nested<F> {
    type Value<'a> = View<'a, F>;

    fn read<'a>(self, json: &'a Json, at: At<'a>) -> View<'a, F> {
        View { json, at, object: PhantomData }
    }
}

impl Read for Tagged {
    type Value<'a> = Variant<'a>;

    fn read<'a>(self, json: &'a Json, at: At<'a>) -> Variant<'a> {
        Variant { json, at }
    }
}

/// A field that an object may not have: `null` is never a value.
impl<T: Read> Read for Option<T> {
    type Value<'a> = Option<T::Value<'a>>;

    fn read<'a>(self, json: &'a Json, at: At<'a>) -> Option<T::Value<'a>> {
        if matches!(json, Json::Null) { None } else { self.map(|read| read.read(json, at)) }
    }
}
